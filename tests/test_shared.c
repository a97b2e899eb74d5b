/*
 * test_shared.c: batches and scratch in memory files, and functions that have
 * another process do their work.
 *
 * The aide is a process that was forked before anything was opened. A function of
 * the pipeline tells it, through a socket, where the input and the output lie; the
 * memory file of a region that it does not know yet goes along. It maps each once,
 * writes the output in place and answers.
 */
#include "support/fault_sweep.h"
#include "support/memory_watch.h"

#include "base/fault.h"
#include "engine/loader.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define WIDTH 8
#define MAPS  256 /* regions that the aide can know */

/* -------------------------------------------------------------------- aide */

struct place {
    uint64_t region, bytes, offset;
};

struct request {
    struct place place; /* WIDTH numbers */
    int64_t add;        /* 0: read them; else multiply by 3 what was read, add, and write */
    bool with_file;
};

static int aide_socket = -1;
static pid_t aide_process;
static uint64_t aide_known[MAPS];
static unsigned aide_known_count;
static atomic_uint aide_calls;

static bool receive(int from, struct request *request, int *file) {
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    struct iovec data = { request, sizeof *request };
    struct msghdr message = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control
    };
    if (recvmsg(from, &message, 0) != (ssize_t)sizeof *request) {
        return false;
    }
    const struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (request->with_file) {
        if (header == NULL) {
            return false;
        }
        memcpy(file, CMSG_DATA(header), sizeof *file);
    }
    return true;
}

static void run_aide(int from) {
    static struct {
        uint64_t number;
        uint8_t *memory;
    } map[MAPS];
    unsigned maps = 0;
    int64_t read[WIDTH] = { 0 };
    struct request request;
    for (int file = -1; receive(from, &request, &file);) {
        if (request.with_file) {
            map[maps].number = request.place.region;
            map[maps].memory =
                mmap(NULL, request.place.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
            close(file);
            if (map[maps++].memory == MAP_FAILED) {
                _exit(1);
            }
        }
        unsigned i = 0;
        while (i < maps && map[i].number != request.place.region) {
            i++;
        }
        if (i == maps) {
            _exit(2);
        }
        int64_t *at = (int64_t *)(void *)(map[i].memory + request.place.offset);
        for (unsigned k = 0; k < WIDTH; k++) {
            if (request.add == 0) {
                read[k] = at[k];
            } else {
                at[k] = read[k] * 3 + request.add;
            }
        }
        if (write(from, &(char){ 1 }, 1) != 1) {
            _exit(3);
        }
    }
    _exit(0);
}

static void begin_aide(void) {
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    aide_known_count = 0;
    atomic_store(&aide_calls, 0);
    aide_process = fork();
    assert_true(aide_process >= 0);
    if (aide_process == 0) {
        close(ends[0]);
        run_aide(ends[1]);
    }
    close(ends[1]);
    aide_socket = ends[0];
}

static void end_aide(void) {
    int how;
    close(aide_socket);
    assert_int_equal(waitpid(aide_process, &how, 0), aide_process);
    assert_true(WIFEXITED(how));
    assert_int_equal(WEXITSTATUS(how), 0);
}

/* Which of the call's regions the value lies in; NULL: in neither. */
static const brim_region *region_of(const brim_call *call, const brim_value *value) {
    const brim_region *both[] = { &call->batch, &call->scratch };
    for (unsigned i = 0; i < 2; i++) {
        const uint8_t *begin = both[i]->memory, *data = value->data;
        if (begin != NULL && data >= begin && data + value->bytes <= begin + both[i]->bytes) {
            return both[i];
        }
    }
    return NULL;
}

static bool ask_aide(const brim_call *call, const brim_value *value, int64_t add) {
    const brim_region *region = region_of(call, value);
    if (region == NULL) {
        return false;
    }
    unsigned known = 0;
    while (known < aide_known_count && aide_known[known] != region->number) {
        known++;
    }
    const struct request request = {
        .place = { region->number, region->bytes,
                   (uint64_t)((const uint8_t *)value->data - (const uint8_t *)region->memory) },
        .add = add,
        .with_file = known == aide_known_count,
    };
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = { 0 };
    struct iovec data = { (void *)(uintptr_t)&request, sizeof request };
    struct msghdr message = { .msg_iov = &data, .msg_iovlen = 1 };
    if (request.with_file) {
        if (aide_known_count == MAPS) {
            return false;
        }
        aide_known[aide_known_count++] = region->number;
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(header), &region->file, sizeof(int));
    }
    char answer;
    return sendmsg(aide_socket, &message, MSG_NOSIGNAL) == (ssize_t)sizeof request &&
           read(aide_socket, &answer, 1) == 1;
}

/* --------------------------------------------------------------- pipelines */

/* What the last calls of functions were told. */
static brim_region seen_batch, seen_scratch;
static bool seen_regions, seen_outside;

static int64_t addend(const brim_call *call) {
    return (int64_t)call->sample + 1000 * (int64_t)(call->epoch + 1);
}

static int read_sample(void *user, const brim_call *call, brim_value *outputs, size_t count,
                       char *why, size_t why_bytes) {
    (void)user, (void)count, (void)why, (void)why_bytes;
    int64_t *x = outputs[0].data;
    for (unsigned k = 0; k < WIDTH; k++) {
        x[k] = (int64_t)(call->sample * 31 + k);
    }
    seen_outside |= region_of(call, &outputs[0]) == NULL;
    return 0;
}

/* In this process. */
static int map_here(void *user, const brim_call *call, const brim_value *inputs, size_t input_count,
                    brim_value *outputs, size_t output_count, char *why, size_t why_bytes) {
    (void)user, (void)input_count, (void)output_count, (void)why, (void)why_bytes;
    const int64_t *x = inputs[0].data;
    int64_t *y = outputs[0].data;
    for (unsigned k = 0; k < WIDTH; k++) {
        y[k] = x[k] * 3 + addend(call);
    }
    seen_batch = call->batch;
    seen_scratch = call->scratch;
    seen_regions |= call->batch.memory != NULL || call->scratch.memory != NULL;
    return 0;
}

/* In the other one. */
static int map_there(void *user, const brim_call *call, const brim_value *inputs,
                     size_t input_count, brim_value *outputs, size_t output_count, char *why,
                     size_t why_bytes) {
    (void)user, (void)input_count, (void)output_count;
    atomic_fetch_add(&aide_calls, 1);
    if (!ask_aide(call, &inputs[0], 0) || !ask_aide(call, &outputs[0], addend(call))) {
        snprintf(why, why_bytes, "the aide was not reached");
        return 1;
    }
    return 0;
}

/* One sample of each, by a function that is asked again and again. */
static int expand_here(void *user, const brim_call *call, uint64_t index, const brim_value *inputs,
                       size_t input_count, brim_value *outputs, size_t output_count, char *why,
                       size_t why_bytes) {
    if (index > call->sample % 2) {
        return 0;
    }
    return map_here(user, call, inputs, input_count, outputs, output_count, why, why_bytes) ? -1
                                                                                            : 1;
}

static int expand_there(void *user, const brim_call *call, uint64_t index, const brim_value *inputs,
                        size_t input_count, brim_value *outputs, size_t output_count, char *why,
                        size_t why_bytes) {
    if (index > call->sample % 2) {
        return 0;
    }
    return map_there(user, call, inputs, input_count, outputs, output_count, why, why_bytes) ? -1
                                                                                             : 1;
}

static int keep(void *user, const brim_call *call, const brim_value *inputs, size_t input_count,
                char *why, size_t why_bytes) {
    (void)user, (void)inputs, (void)input_count, (void)why, (void)why_bytes;
    return call->sample % 5 != 1;
}

static const brim_field_spec x_field = { .size = sizeof(brim_field_spec),
                                         .name = "x",
                                         .dtype = BRIM_DTYPE_I64,
                                         .rank = 1,
                                         .shape = { WIDTH } };
static const brim_field_spec y_field = { .size = sizeof(brim_field_spec),
                                         .name = "y",
                                         .dtype = BRIM_DTYPE_I64,
                                         .rank = 1,
                                         .shape = { WIDTH } };

#define BIND(place, ...) \
    { .size = sizeof(brim_binding), .fields = place, .field_count = 1, __VA_ARGS__ }
static const brim_binding here[] = {
    BIND(&x_field, .kind = BRIM_BINDING_SOURCE, .name = "source", .count = 500,
         .read = read_sample),
    BIND(&y_field, .kind = BRIM_BINDING_MAP, .name = "function", .map = map_here),
    BIND(&y_field, .kind = BRIM_BINDING_FLAT_MAP, .name = "many", .count = 2,
         .flat_map = expand_here),
    BIND(NULL, .kind = BRIM_BINDING_FILTER, .name = "keep", .filter = keep),
};
static const brim_binding there[] = {
    BIND(&x_field, .kind = BRIM_BINDING_SOURCE, .name = "source", .count = 500,
         .read = read_sample),
    BIND(&y_field, .kind = BRIM_BINDING_MAP, .name = "function", .map = map_there),
    BIND(&y_field, .kind = BRIM_BINDING_FLAT_MAP, .name = "many", .count = 2,
         .flat_map = expand_there),
    BIND(NULL, .kind = BRIM_BINDING_FILTER, .name = "keep", .filter = keep),
};
enum { BINDINGS = sizeof here / sizeof here[0] };

static const char *const direct = "callback @source | shuffle seed=3 | map @function | batch 16";
static const char *const texts[] = {
    "callback @source | shuffle seed=3 | map @function | batch 16",
    "callback @source | filter by=@keep | map @function | shuffle buffer=8KiB | batch 16",
    "callback @source | flat_map @many | batch 16",
};

static brim_open_options options_with(const brim_binding *bindings, int shared) {
    brim_open_options options = BRIM_OPEN_OPTIONS_INIT;
    options.bindings = bindings;
    options.binding_count = BINDINGS;
    options.shared = shared;
    return options;
}

static struct digest run(const char *text, const brim_binding *bindings, int shared,
                         int32_t threads) {
    const brim_open_options options = options_with(bindings, shared);
    brim_runtime *runtime = make_runtime(threads, 0);
    const struct session session = open_on(runtime, text, &options);
    struct digest digest = { 0 };
    assert_true(take_more(session.loader, 80, &digest)); /* into the third epoch */
    assert_true(usage_of(runtime).peak <=
                brim_plan_get(brim_loader_plan(session.loader))->planned_bytes);
    check_budget(runtime);
    brim_loader_close(session.loader);
    brim_runtime_free(runtime);
    return digest;
}

/* ------------------------------------------------------------------- tests */

static void test_another_process_makes_the_rows(void **state) {
    (void)state;
    for (unsigned i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        const struct digest wanted = run(texts[i], here, 0, 0);
        for (int32_t threads = 0; threads <= 2; threads += 2) {
            const size_t descriptors = descriptor_count();
            begin_aide();
            assert_same(run(texts[i], there, 1, threads), wanted);
            assert_true(atomic_load(&aide_calls) >= 1000);
            end_aide();
            assert_int_equal(descriptor_count(), descriptors);
        }
    }
}

static void test_what_a_call_is_told(void **state) {
    (void)state;
    seen_regions = seen_outside = false;
    run(direct, here, 0, 0);
    assert_false(seen_regions);
    assert_true(seen_outside);

    const brim_open_options options = options_with(here, 1);
    brim_runtime *runtime = make_runtime(0, 0);
    const struct session session = open_on(runtime, direct, &options);
    brim_batch *batch;
    seen_outside = false;
    assert_int_equal(brim_loader_next(session.loader, BRIM_FOREVER, &batch), BRIM_OK);
    assert_false(seen_outside); /* what a source reads goes there too */
    assert_true(seen_batch.number != seen_scratch.number);
    const brim_region *const regions[] = { &seen_batch, &seen_scratch };
    for (unsigned i = 0; i < 2; i++) {
        struct stat facts;
        assert_non_null(regions[i]->memory);
        assert_true(regions[i]->number > 0);
        assert_int_equal(fstat(regions[i]->file, &facts), 0);
        assert_int_equal(facts.st_size, regions[i]->bytes);
        assert_true((uint64_t)facts.st_blocks * 512 >= regions[i]->bytes); /* taken already */
    }
    /* the batch that is lent is those pages */
    const uint8_t *data = brim_batch_find(batch, "y")->data;
    const uint8_t *begin = seen_batch.memory;
    assert_true(data >= begin && data < begin + seen_batch.bytes);
    brim_batch_release(batch);
    brim_loader_close(session.loader);
    brim_runtime_free(runtime);
}

static void test_the_plan_is_the_same(void **state) {
    (void)state;
    for (unsigned i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        const brim_open_options plain = options_with(here, 0), shared = options_with(here, 1);
        const brim_plan_info a = plan_alone(2, texts[i], &plain);
        const brim_plan_info b = plan_alone(2, texts[i], &shared);
        assert_int_equal(a.minimum_bytes, b.minimum_bytes);
        assert_int_equal(a.planned_bytes, b.planned_bytes);
    }
    const brim_open_options other = options_with(here, 2);
    brim_runtime *runtime = make_runtime(0, 0);
    brim_loader *loader = NULL;
    assert_int_equal(try_open(runtime, direct, &other, &loader), BRIM_STATUS_INVALID);
    assert_detail_has("shared=2");
    brim_runtime_free(runtime);
}

static void test_pages(void **state) {
    (void)state;
    const size_t descriptors = descriptor_count();
    struct brim__pages pages[3];
    uint64_t last = 0;
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(brim__pages_new_shared(&pages[i], NULL, 3 << 20, i == 1), BRIM_OK);
        const brim_region region = brim__pages_region(&pages[i]);
        assert_ptr_equal(region.memory, pages[i].memory);
        assert_int_equal(region.bytes, pages[i].bytes);
        assert_true(region.number > last);
        last = region.number;
        for (size_t k = 0; k < pages[i].bytes; k += 512) {
            assert_int_equal(pages[i].memory[k], 0);
        }
    }
    for (unsigned i = 0; i < 3; i++) {
        brim__pages_free(&pages[i]);
        brim__pages_free(&pages[i]);
        assert_null(pages[i].memory);
        assert_null(brim__pages_region(&pages[i]).memory);
    }
    assert_int_equal(brim__pages_new_shared(&pages[0], NULL, 1, false), BRIM_OK);
    assert_true(brim__pages_region(&pages[0]).number > last);
    brim__pages_free(&pages[0]);
    assert_int_equal(brim__pages_new_shared(&pages[0], NULL, UINT64_MAX, false),
                     BRIM_STATUS_MEMORY);
    assert_int_equal(brim__pages_new(&pages[0], NULL, 1, false, false), BRIM_OK);
    assert_null(brim__pages_region(&pages[0]).memory);
    brim__pages_free(&pages[0]);
    assert_int_equal(descriptor_count(), descriptors);
}

static uint64_t file_bytes(int file) {
    struct stat facts;
    assert_int_equal(fstat(file, &facts), 0);
    return (uint64_t)facts.st_blocks * 512;
}

/* Whoever else has the files open or mapped. */
static void test_what_is_given_back_leaves_the_system(void **state) {
    (void)state;
    enum { MOST = 16 };
    brim_open_options options = options_with(here, 1);
    options.growth = BRIM_GROWTH_FIXED;
    brim_runtime *runtime = make_runtime(0, 0);
    const struct session session = open_on(runtime, direct, &options);
    const brim_plan *plan = brim_loader_plan(session.loader);
    const uint32_t slots = session.loader->batches->count;
    int file[MOST];
    assert_true(slots > plan->info.minimum_slots && slots <= MOST);
    uint64_t held = 0;
    for (uint32_t i = 0; i < slots; i++) {
        const brim_region region = brim__pages_region(&session.loader->batches->slot[i].pages);
        file[i] = dup(region.file);
        assert_true(file[i] >= 0);
        assert_ptr_not_equal(mmap(NULL, region.bytes, PROT_READ, MAP_SHARED, file[i], 0),
                             MAP_FAILED);
        held += file_bytes(file[i]);
    }
    assert_int_equal(held, slots * plan->info.slot_bytes);
    const uint64_t charged = usage_of(runtime).charged;
    uint64_t freed = 0, left = 0;
    assert_int_equal(brim_runtime_trim(runtime, &freed), BRIM_OK);
    for (uint32_t i = 0; i < slots; i++) {
        left += file_bytes(file[i]);
    }
    assert_true(freed >= (slots - plan->info.minimum_slots) * plan->info.slot_bytes);
    assert_int_equal(left, plan->info.minimum_slots * plan->info.slot_bytes);
    assert_int_equal(usage_of(runtime).charged, charged - freed);

    brim_batch *batch;
    assert_int_equal(brim_loader_next(session.loader, BRIM_FOREVER, &batch), BRIM_OK);
    const struct digest before = digest_of(batch);
    brim_loader_close(session.loader);
    assert_same(digest_of(batch), before); /* it outlives the loader */
    brim_batch_release(batch);
    for (uint32_t i = 0; i < slots; i++) {
        assert_int_equal(file_bytes(file[i]), 0);
        close(file[i]);
    }
    brim_runtime_free(runtime);
}

static void test_a_copy_is_not_shared(void **state) {
    (void)state;
    const brim_open_options options = options_with(here, 1);
    brim_runtime *runtime = make_runtime(0, 0);
    const struct session session = open_on(runtime, direct, &options);
    brim_batch *batch, *copy;
    assert_int_equal(brim_loader_next(session.loader, BRIM_FOREVER, &batch), BRIM_OK);
    const struct digest digest = digest_of(batch);
    const size_t descriptors = descriptor_count();
    assert_int_equal(brim_batch_copy(batch, &copy), BRIM_OK);
    assert_int_equal(descriptor_count(), descriptors);
    brim_batch_release(batch);
    assert_true(take_more(session.loader, 5, NULL));
    assert_same(digest_of(copy), digest);
    brim_batch_release(copy);
    brim_loader_close(session.loader);
    brim_runtime_free(runtime);
}

/* A child that frees what it has inherited takes nothing from its parent. */
static void test_after_fork(void **state) {
    (void)state;
    const brim_open_options options = options_with(here, 1);
    brim_runtime *runtime = make_runtime(0, 0);
    const struct session session = open_on(runtime, direct, &options);
    brim_batch *batch;
    assert_int_equal(brim_loader_next(session.loader, BRIM_FOREVER, &batch), BRIM_OK);
    const struct digest digest = digest_of(batch);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const bool same = digest_of(batch).value == digest.value;
        brim_batch_release(batch);
        brim_loader_close(session.loader);
        brim_runtime_free(runtime);
        _exit(same ? 0 : 1);
    }
    int how;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    assert_same(digest_of(batch), digest);
    brim_batch_release(batch);
    assert_true(take_more(session.loader, 5, NULL));
    brim_loader_close(session.loader);
    brim_runtime_free(runtime);
}

static void test_too_many_open_files(void **state) {
    (void)state;
    const size_t descriptors = descriptor_count();
    struct rlimit was;
    brim_open_options options = options_with(here, 1);
    brim_runtime *runtime = make_runtime(0, 0);
    const uint64_t charged = usage_of(runtime).charged;
    brim_loader *loader = NULL;
    options.hold = 40;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
    const struct rlimit few = { .rlim_cur = descriptors + 20, .rlim_max = was.rlim_max };
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    const brim_status status = try_open(runtime, direct, &options, &loader);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
    assert_int_equal(status, BRIM_STATUS_MEMORY);
    assert_null(loader);
    assert_detail_has("other processes");
    assert_detail_has("open files");
    assert_int_equal(usage_of(runtime).charged, charged);
    assert_int_equal(descriptor_count(), descriptors);
    assert_int_equal(try_open(runtime, direct, &options, &loader), BRIM_OK);
    brim_loader_close(loader);
    brim_runtime_free(runtime);
}

/* ------------------------------------------------------------------ faults */

static void run_scenario(void) {
    brim_open_options options = options_with(here, 1);
    options.growth = BRIM_GROWTH_FIXED;
    begin_runtime(SIXTEEN_MIB);
    brim_loader *loader = open_text(now.scenario->text, &options);
    take(loader, 3);
    brim_loader_close(loader);
    end_runtime();
}

static struct scenario scenarios[] = {
    { .name = "direct",
      .run = run_scenario,
      .text = "callback @source | map @function | batch 16" },
    { .name = "sequenced",
      .run = run_scenario,
      .text = "callback @source | filter by=@keep | shuffle buffer=8KiB | batch 16" },
};

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_another_process_makes_the_rows),
        cmocka_unit_test(test_what_a_call_is_told),
        cmocka_unit_test(test_the_plan_is_the_same),
        cmocka_unit_test(test_pages),
        cmocka_unit_test(test_what_is_given_back_leaves_the_system),
        cmocka_unit_test(test_a_copy_is_not_shared),
        cmocka_unit_test(test_after_fork),
        cmocka_unit_test(test_too_many_open_files),
    };
    const int failed = argc > 1 ? 0 : cmocka_run_group_tests(tests, begin_tests, end_tests);
    const int swept =
        sweep_main(argc, argv, scenarios, sizeof scenarios / sizeof scenarios[0], begin_tests);
    return failed != 0 ? failed : swept;
}

/*
 * test_shared_runtime.c: runtimes with memory of all kinds, in one process and in several:
 * options, defaults, usage, trimming, and loaders in a budget that processes share.
 */
#include "support/memory_data.h"
#include "support/memory_watch.h"

#include "memory/alloc.h"
#include "memory/segment.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)

static char text[TEXT_BYTES];

static const char *own_name(const char *test) {
    static char name[64];
    snprintf(name, sizeof name, "test-%d-%s", (int)getpid(), test);
    return name;
}

static bool name_exists(const char *name) {
    char path[BRIM__SEGMENT_PATH];
    return access(brim__segment_path(name, path), F_OK) == 0;
}

static uint64_t segment_bytes(void) {
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    return (sizeof(struct brim__shared_segment) + page - 1) / page * page;
}

static brim_runtime_options sharing(const char *name, uint64_t bytes) {
    brim_runtime_options options = BRIM_RUNTIME_OPTIONS_INIT;
    options.threads = 0;
    options.shared_name = name;
    options.shared_bytes = bytes;
    return options;
}

static brim_runtime *runtime_of(const brim_runtime_options *options) {
    brim_runtime *runtime;
    if (brim_runtime_new(options, &runtime) != BRIM_OK) {
        fail_msg("%s", brim_detail());
    }
    return runtime;
}

static void refused(const brim_runtime_options *options, brim_status status, const char *part) {
    brim_runtime *runtime;
    assert_int_equal(brim_runtime_new(options, &runtime), status);
    assert_detail_has(part);
}

static uint64_t limit_of(brim_runtime *runtime, int kind) {
    brim_budget_info info = BRIM_BUDGET_INFO_INIT;
    assert_int_equal(brim_budget_read(brim_runtime_budget(runtime), (brim_memory)kind, &info),
                     BRIM_OK);
    return info.limit;
}

/* ------------------------------------------------------------------ defaults */

static void test_limits_that_are_not_given(void **state) {
    (void)state;
    brim_runtime_options options = BRIM_RUNTIME_OPTIONS_INIT;
    options.host_bytes = 64 * MIB;
    brim_runtime *runtime = runtime_of(&options);
    assert_int_equal(limit_of(runtime, BRIM_MEMORY_HOST), 64 * MIB);
    assert_int_equal(limit_of(runtime, BRIM_MEMORY_PINNED), 64 * MIB);
    for (int kind = BRIM_MEMORY_DEVICE; kind < BRIM_MEMORY_KINDS; kind++) {
        assert_true(limit_of(runtime, kind) == BRIM_UNLIMITED);
    }
    const brim_usage usage = usage_of(runtime);
    assert_int_equal(usage.shared_limit + usage.shared_used + usage.processes, 0);
    brim_runtime_free(runtime);

    options.pinned_bytes = MIB;
    options.device_bytes = 3 * MIB;
    runtime = runtime_of(&options);
    assert_int_equal(limit_of(runtime, BRIM_MEMORY_PINNED), MIB);
    assert_int_equal(limit_of(runtime, BRIM_MEMORY_DEVICE), 3 * MIB);
    assert_int_equal(limit_of(runtime, BRIM_MEMORY_KINDS - 1), 3 * MIB);
    brim_runtime_free(runtime);
    options.host_bytes = 1000;
    refused(&options, BRIM_STATUS_BUDGET, "too small for any pipeline");
}

/* ------------------------------------------------------------------ trimming */

struct holder {
    brim_budget *budget;
    uint64_t held[BRIM_MEMORY_KINDS];
};

/* Page-locked memory is host memory too, and goes with it. */
static uint64_t give(void *user, brim_memory kind, uint64_t wanted, bool firmly) {
    (void)firmly;
    struct holder *holder = user;
    const uint64_t given = wanted < holder->held[kind] ? wanted : holder->held[kind];
    holder->held[kind] -= given;
    brim__budget_return(holder->budget, kind, given);
    if (kind == BRIM_MEMORY_HOST &&
        holder->held[BRIM_MEMORY_HOST] < holder->held[BRIM_MEMORY_PINNED]) {
        const uint64_t unpinned = holder->held[BRIM_MEMORY_PINNED] - holder->held[BRIM_MEMORY_HOST];
        holder->held[BRIM_MEMORY_PINNED] -= unpinned;
        brim__budget_return(holder->budget, BRIM_MEMORY_PINNED, unpinned);
    }
    return given;
}

static void test_trimming_takes_every_kind(void **state) {
    (void)state;
    brim_runtime *runtime = make_runtime(0, 64 * MIB);
    struct holder holder = { 0 };
    uint64_t bytes = 7;
    assert_int_equal(brim_runtime_trim(runtime, &bytes), BRIM_OK);
    assert_int_equal(bytes, 0);
    assert_int_equal(
        brim_budget_new(brim_runtime_budget(runtime), "holder", BRIM_UNLIMITED, 0, &holder.budget),
        BRIM_OK);
    brim__budget_on_revoke(holder.budget, give, &holder);
    holder.held[BRIM_MEMORY_HOST] = 5 * MIB;
    holder.held[BRIM_MEMORY_PINNED] = 3 * MIB;
    holder.held[BRIM_MEMORY_DEVICE] = 2 * MIB;
    holder.held[BRIM_MEMORY_DEVICE + 9] = MIB;
    for (int kind = 0; kind < BRIM_MEMORY_KINDS; kind++) {
        assert_true(brim__budget_try(holder.budget, (brim_memory)kind, holder.held[kind]));
    }
    assert_int_equal(brim_runtime_trim(runtime, &bytes), BRIM_OK);
    assert_int_equal(bytes, 8 * MIB);
    for (int kind = 0; kind < BRIM_MEMORY_KINDS; kind++) {
        assert_int_equal(holder.held[kind], 0);
    }
    brim__budget_check(brim_runtime_budget(runtime));
    brim__budget_on_revoke(holder.budget, NULL, NULL);
    brim_budget_free(holder.budget);
    brim_runtime_free(runtime);
}

/* ------------------------------------------------------------------- options */

static void test_options_of_sharing(void **state) {
    (void)state;
    const char *name = own_name("options");
    brim_runtime_options options = sharing(NULL, 64 * MIB);
    refused(&options, BRIM_STATUS_INVALID, "no shared_name");
    options = sharing("no/such", 64 * MIB);
    refused(&options, BRIM_STATUS_INVALID, "\"no/such\"");
    options = sharing(name, 0);
    refused(&options, BRIM_STATUS_INVALID, "must give its size");
    options = sharing(name, 1000);
    refused(&options, BRIM_STATUS_BUDGET, name);
    options = sharing(name, 100 << 10);
    refused(&options, BRIM_STATUS_BUDGET, "too small for any pipeline");
    assert_false(name_exists(name));

    options = sharing(name, 64 * MIB);
    options.device_bytes = 5 * MIB;
    brim_runtime *all = runtime_of(&options);
    assert_int_equal(limit_of(all, BRIM_MEMORY_HOST), 64 * MIB);
    assert_int_equal(limit_of(all, BRIM_MEMORY_PINNED), 64 * MIB);
    assert_int_equal(limit_of(all, BRIM_MEMORY_DEVICE), 5 * MIB);
    brim_usage usage = usage_of(all);
    assert_int_equal(usage.limit, 64 * MIB);
    assert_int_equal(usage.shared_limit, 64 * MIB);
    assert_int_equal(usage.shared_used, usage.charged);
    assert_int_equal(usage.charged, empty_runtime_bytes() + segment_bytes());
    assert_int_equal(usage.processes, 1);
    assert_non_null(strstr(usage.host_origin, "all of the shared budget \"test-"));

    options.shared_bytes = 32 * MIB;
    refused(&options, BRIM_STATUS_INVALID, "the limit is 67108864 bytes");
    options = sharing(name, 0);
    options.host_bytes = 16 * MIB;
    brim_runtime *part = runtime_of(&options);
    assert_int_equal(limit_of(part, BRIM_MEMORY_HOST), 16 * MIB);
    assert_int_equal(limit_of(part, BRIM_MEMORY_PINNED), 16 * MIB);
    assert_string_equal(usage_of(part).host_origin, "given");
    usage = usage_of(part);
    assert_int_equal(usage.shared_used, 2 * usage.charged);
    assert_int_equal(usage.processes, 1); /* with two runtimes */

    /* what one process may have, and what all may */
    brim_budget *root = brim_runtime_budget(part);
    assert_int_equal(brim_budget_charge(root, BRIM_MEMORY_HOST, 17 * MIB), BRIM_STATUS_BUDGET);
    assert_detail_has("budget \"runtime\" (limit 16.0 MiB)");
    assert_int_equal(brim_budget_charge(root, BRIM_MEMORY_HOST, 15 * MIB), BRIM_OK);
    assert_int_equal(brim_budget_charge(brim_runtime_budget(all), BRIM_MEMORY_HOST, 50 * MIB),
                     BRIM_STATUS_BUDGET);
    assert_detail_has("shared budget \"test-");
    assert_int_equal(brim_budget_charge(root, BRIM_MEMORY_DEVICE, 3 * MIB), BRIM_OK);
    assert_int_equal(brim_budget_charge(brim_runtime_budget(all), BRIM_MEMORY_DEVICE, 3 * MIB),
                     BRIM_STATUS_BUDGET);
    assert_detail_has("(limit 5.0 MiB on cuda:0)");

    /* of a program that was built with an older header */
    usage = (brim_usage)BRIM_USAGE_INIT;
    usage.size = offsetof(brim_usage, shared_limit);
    usage.processes = 99;
    assert_int_equal(brim_runtime_read_usage(part, &usage), BRIM_OK);
    assert_int_equal(usage.processes, 99);
    brim_runtime_free(all);
    assert_int_equal(usage_of(part).shared_used, usage_of(part).charged);
    brim_runtime_free(part);
    assert_false(name_exists(name));
}

/* ------------------------------------------------------------------- loaders */

#define EXPECT(condition)                                                            \
    do {                                                                             \
        if (!(condition)) {                                                          \
            fprintf(stderr, "in the child: line %d: %s: %s\n", __LINE__, #condition, \
                    brim_detail());                                                  \
            _exit(1);                                                                \
        }                                                                            \
    } while (0)

static void load_as_child(const char *name, struct digest wanted, int told, int tells) {
    brim_runtime_options options = sharing(name, 0);
    const brim_open_options opening = open_options("child");
    brim_runtime *runtime;
    brim_pipeline *pipeline;
    brim_loader *loader;
    char byte = 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct digest digest = { 0 };
    EXPECT(brim_runtime_new(&options, &runtime) == BRIM_OK);
    EXPECT(brim_pipeline_parse(text, &pipeline) == BRIM_OK);
    EXPECT(brim_loader_open(runtime, pipeline, &opening, &loader) == BRIM_OK);
    EXPECT(write(tells, &byte, 1) == 1);
    for (uint64_t i = 0; i < wanted.batches; i++) {
        brim_usage usage = BRIM_USAGE_INIT;
        EXPECT(take_more(loader, 1, &digest));
        EXPECT(brim_runtime_read_usage(runtime, &usage) == BRIM_OK);
        EXPECT(usage.processes == 2);
    }
    EXPECT(digest.value == wanted.value);
    EXPECT(write(tells, &byte, 1) == 1);
    EXPECT(read(told, &byte, 1) == 1); /* until then it holds what it has */
    brim_loader_close(loader);
    brim_pipeline_free(pipeline);
    brim_runtime_free(runtime);
}

static void test_loaders_of_two_processes(void **state) {
    (void)state;
    const char *name = own_name("loaders");
    const brim_open_options opening = open_options("parent");
    recipe_text("array", text);
    const struct digest wanted = first_batches(text, 40);
    const brim_plan_info info = plan_alone(0, text, &opening);
    const uint64_t minimum = info.minimum_bytes + segment_bytes();
    brim_runtime_options options = sharing(name, 2 * minimum + info.slot_bytes);
    brim_runtime *runtime = runtime_of(&options);
    int orders[2];
    int answers[2];
    char byte = 0;
    assert_int_equal(pipe(orders), 0);
    assert_int_equal(pipe(answers), 0);
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        load_as_child(name, wanted, orders[0], answers[1]);
        _exit(0);
    }
    close(answers[1]);
    assert_int_equal(read(answers[0], &byte, 1), 1);
    struct session session = open_on(runtime, text, &opening);
    struct digest digest = { 0 };
    for (uint64_t i = 0; i < wanted.batches; i++) {
        assert_true(take_more(session.loader, 1, &digest));
        check_budget(runtime);
    }
    assert_int_equal(digest.value, wanted.value);
    assert_int_equal(read(answers[0], &byte, 1), 1);
    brim_usage usage = usage_of(runtime);
    assert_int_equal(usage.processes, 2);
    assert_true(usage.shared_used <= usage.shared_limit);
    assert_true(usage.shared_used >= 2 * (empty_runtime_bytes() + segment_bytes()) +
                                         2 * info.minimum_slots * info.slot_bytes);

    /* one more does not fit, and it is said who has the rest */
    brim_loader *loader;
    char who[64];
    snprintf(who, sizeof who, "process %d (test_shared_run)", (int)child);
    assert_int_equal(try_open(runtime, text, &opening, &loader), BRIM_STATUS_BUDGET);
    assert_detail_has(who);
    assert_detail_has("this process");

    int status = 0;
    assert_int_equal(write(orders[1], &byte, 1), 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(try_open(runtime, text, &opening, &loader), BRIM_OK);
    brim_loader_close(loader);
    brim_loader_close(session.loader);
    brim_runtime_free(runtime);
    assert_false(name_exists(name));
    close(orders[0]);
    close(orders[1]);
    close(answers[0]);
}

/* A process whose cache takes all that it can get, and then waits. */
static void fill_as_child(const char *name, int told, int tells) {
    brim_runtime_options options = sharing(name, 4 * MIB);
    const brim_open_options opening = open_options("filler");
    brim_runtime *runtime;
    brim_pipeline *pipeline;
    brim_loader *loader;
    brim_batch *batch;
    brim_usage usage = BRIM_USAGE_INIT;
    char byte = 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    EXPECT(brim_runtime_new(&options, &runtime) == BRIM_OK);
    EXPECT(brim_pipeline_parse("range 1000000 | cache memory | batch 1000", &pipeline) == BRIM_OK);
    EXPECT(brim_loader_open(runtime, pipeline, &opening, &loader) == BRIM_OK);
    for (int i = 0; i < 500; i++) {
        EXPECT(brim_loader_next(loader, BRIM_FOREVER, &batch) == BRIM_OK);
        brim_batch_release(batch);
    }
    EXPECT(brim_runtime_read_usage(runtime, &usage) == BRIM_OK);
    EXPECT(usage.charged > 3 * MIB); /* it did fill */
    EXPECT(usage.elastic > 2 * MIB);
    EXPECT(write(tells, &byte, 1) == 1);
    EXPECT(read(told, &byte, 1) == 1);
    brim_loader_close(loader);
    brim_pipeline_free(pipeline);
    brim_runtime_free(runtime);
}

static void test_a_full_cache_leaves_room_for_another_process(void **state) {
    (void)state;
    const char *name = own_name("full");
    const brim_open_options opening = open_options("newcomer");
    int orders[2];
    int answers[2];
    char byte = 0;
    assert_int_equal(pipe(orders), 0);
    assert_int_equal(pipe(answers), 0);
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        fill_as_child(name, orders[0], answers[1]);
        _exit(0);
    }
    close(answers[1]);
    assert_int_equal(read(answers[0], &byte, 1), 1);
    const brim_runtime_options options = sharing(name, 0);
    brim_runtime *runtime = runtime_of(&options);
    struct session session = open_on(runtime, "range 1000 | batch 10", &opening);
    struct digest digest = { 0 };
    assert_true(take_more(session.loader, 100, &digest));
    brim_loader *loader;
    char who[64];
    snprintf(who, sizeof who, "process %d (test_shared_run)", (int)child);
    assert_int_equal(try_open(runtime, "range 1000000 | batch 500000", &opening, &loader),
                     BRIM_STATUS_BUDGET);
    assert_detail_has(who);
    assert_detail_has(" of it elastic)");
    int status = 0;
    assert_int_equal(write(orders[1], &byte, 1), 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    brim_loader_close(session.loader);
    brim_runtime_free(runtime);
    assert_false(name_exists(name));
    close(orders[0]);
    close(orders[1]);
    close(answers[0]);
}

/* A batch that outlives its runtime stays counted. */
static void test_a_batch_keeps_its_share(void **state) {
    (void)state;
    const char *name = own_name("batch");
    brim_runtime_options options = sharing(name, 64 * MIB);
    const brim_open_options opening = open_options("short");
    brim_batch *batch;
    recipe_text("array", text);
    brim_runtime *other = runtime_of(&options);
    brim_runtime *runtime = runtime_of(&options);
    const struct session session = open_on(runtime, text, &opening);
    assert_int_equal(brim_loader_next(session.loader, BRIM_FOREVER, &batch), BRIM_OK);
    brim_loader_close(session.loader);
    brim_runtime_free(runtime);
    const uint64_t alone = usage_of(other).charged;
    assert_true(usage_of(other).shared_used > alone);
    brim_batch_release(batch);
    assert_int_equal(usage_of(other).shared_used, alone);
    brim_runtime_free(other);
    assert_false(name_exists(name));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limits_that_are_not_given),
        cmocka_unit_test(test_trimming_takes_every_kind),
        cmocka_unit_test(test_options_of_sharing),
        cmocka_unit_test(test_loaders_of_two_processes),
        cmocka_unit_test(test_a_full_cache_leaves_room_for_another_process),
        cmocka_unit_test(test_a_batch_keeps_its_share),
    };
    return cmocka_run_group_tests(tests, begin_memory_tests, end_tests);
}

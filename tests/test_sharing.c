/*
 * test_sharing.c: several loaders in one budget: who gets workers and memory, and when.
 *
 * Nothing here is timed. Workers are watched through callbacks that stop until the test lets
 * them on, one at a time, so that their order is seen as it is. Memory moves when a
 * consumer waits: the tests take batches until it has, or fail after a minute. Where a
 * loader must not count as idle however slow the machine is, its habit is written into it.
 */
#include "support/memory_data.h"
#include "support/memory_watch.h"

#include "base/platform.h"
#include "engine/loader.h"
#include "memory/budget.h"

#include <stdio.h>
#include <string.h>

#define PATIENCE_NS UINT64_C(60000000000)
#define NEVER_NS    UINT64_C(10000000000) /* between calls: idle after 80 s, later than any test */
#define THREADS     2
#define SLOTS       6u /* 2 of them are the minimum */

#define BURST (2 * SLOTS)

static char images[TEXT_BYTES];
static struct digest first; /* of the first BURST batches */

static int begin(void **state) {
    if (begin_memory_tests(state) != 0) {
        return -1;
    }
    recipe_text("npy", images);
    first = first_batches(images, BURST);
    return 0;
}

static brim_stats stats_of(brim_loader *loader) {
    brim_stats stats = BRIM_STATS_INIT;
    assert_int_equal(brim_loader_read_stats(loader, &stats), BRIM_OK);
    return stats;
}

/* ------------------------------------------------------------------- workers */

#define WATCHED     3
#define ROWS        256
#define MOST_VISITS 128

/* What the workers' and the consumers' callbacks meet. */
static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool open;        /* for everybody, for good */
    unsigned allowed; /* calls by workers that may go on */
    unsigned visits;  /* calls by workers so far, and of which loader: */
    char visit[MOST_VISITS];
    unsigned consumers; /* that stand in a callback of their own */
} watch = { .mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

static _Thread_local bool is_consumer;

/* A row takes at least a millisecond, so that a run is a single row once that is known. */
static int read_watched(void *user, const brim_call *call, brim_value *outputs, size_t count,
                        char *why, size_t why_bytes) {
    (void)count, (void)why, (void)why_bytes;
    memcpy(outputs[0].data, &call->sample, sizeof call->sample);
    pthread_mutex_lock(&watch.mutex);
    if (is_consumer) {
        watch.consumers++;
        pthread_cond_broadcast(&watch.changed);
        while (!watch.open) {
            pthread_cond_wait(&watch.changed, &watch.mutex);
        }
    } else if (!watch.open) {
        const unsigned number = watch.visits++;
        if (number < MOST_VISITS) {
            watch.visit[number] = *(const char *)user;
        }
        pthread_cond_broadcast(&watch.changed);
        while (!watch.open && number >= watch.allowed) {
            pthread_cond_wait(&watch.changed, &watch.mutex);
        }
        pthread_mutex_unlock(&watch.mutex);
        sleep_ns(1000000);
        return 0;
    }
    pthread_mutex_unlock(&watch.mutex);
    return 0;
}

/* Lets workers go on until they have made so many calls in all, and stand in the last. */
static void watch_visits(unsigned visits) {
    pthread_mutex_lock(&watch.mutex);
    watch.allowed = visits - 1;
    pthread_cond_broadcast(&watch.changed);
    while (watch.visits < visits) {
        pthread_cond_wait(&watch.changed, &watch.mutex);
    }
    pthread_mutex_unlock(&watch.mutex);
}

static unsigned count_visits(char name, unsigned from, unsigned to) {
    unsigned count = 0;
    pthread_mutex_lock(&watch.mutex);
    for (unsigned i = from; i < to; i++) {
        count += watch.visit[i] == name;
    }
    pthread_mutex_unlock(&watch.mutex);
    return count;
}

struct watched {
    char name;
    brim_loader *loader;
    pthread_t thread;
    brim_status status;
};

static void open_watched(brim_runtime *runtime, struct watched *watched) {
    static const brim_field_spec field = { .size = sizeof field,
                                           .name = "number",
                                           .dtype = BRIM_DTYPE_U64 };
    const brim_binding binding = { .size = sizeof binding,
                                   .name = "watched",
                                   .kind = BRIM_BINDING_SOURCE,
                                   .user = &watched->name,
                                   .count = 4 * ROWS,
                                   .fields = &field,
                                   .field_count = 1,
                                   .flags = BRIM_CALLBACK_PURE | BRIM_CALLBACK_CONCURRENT,
                                   .read = read_watched };
    brim_open_options options = open_options(NULL);
    options.bindings = &binding;
    options.binding_count = 1;
    watched->loader = open_on(runtime, "callback @watched | batch 256", &options).loader;
}

static void *consume(void *argument) {
    struct watched *watched = argument;
    brim_batch *batch = NULL;
    is_consumer = true;
    watched->status = brim_loader_next(watched->loader, BRIM_FOREVER, &batch);
    brim_batch_release(batch);
    return NULL;
}

/* One worker, which stands in the first loader, for which nobody waits. For the others
 * consumers do: they have begun to help themselves, and stand in callbacks of their own. */
static void test_workers_go_to_those_who_wait(void **state) {
    (void)state;
    for (unsigned waiting = 1; waiting < WATCHED; waiting++) {
        struct watched watched[WATCHED] = { { .name = 'a' }, { .name = 'b' }, { .name = 'c' } };
        watch.open = false;
        watch.allowed = watch.visits = watch.consumers = 0;
        brim_runtime *runtime = make_runtime(1, 0);
        open_watched(runtime, &watched[0]);
        watch_visits(1);
        for (unsigned i = 1; i <= waiting; i++) {
            open_watched(runtime, &watched[i]);
            assert_int_equal(pthread_create(&watched[i].thread, NULL, consume, &watched[i]), 0);
        }
        pthread_mutex_lock(&watch.mutex);
        while (watch.consumers < waiting) {
            pthread_cond_wait(&watch.changed, &watch.mutex);
        }
        pthread_mutex_unlock(&watch.mutex);
        /* the run in progress is of at most 4 rows, as that of a new loader is; from then on
         * nobody who does not wait is served, and those who do in turn */
        const unsigned seen = 64;
        watch_visits(seen);
        assert_true(count_visits('a', 0, seen) <= 4);
        assert_int_equal(count_visits('a', 4, seen), 0);
        for (unsigned i = 1; i <= waiting; i++) {
            assert_true(count_visits(watched[i].name, 4, seen) >= (seen - 4) / waiting - 4);
        }
        pthread_mutex_lock(&watch.mutex);
        watch.open = true;
        pthread_cond_broadcast(&watch.changed);
        pthread_mutex_unlock(&watch.mutex);
        for (unsigned i = 0; i <= waiting; i++) {
            if (i > 0) {
                pthread_join(watched[i].thread, NULL);
                assert_int_equal(watched[i].status, BRIM_OK);
            }
            brim_loader_close(watched[i].loader);
        }
        brim_runtime_free(runtime);
    }
}

/* -------------------------------------------------------------------- memory */

/* From the beginning on, so that all that is ready is thrown away and the consumer waits,
 * however slow it is; and a pause, in which slots get full. */
static void take_burst(brim_loader *loader) {
    struct digest digest = { 0 };
    assert_int_equal(brim_loader_seek(loader, 0, 0), BRIM_OK);
    assert_true(take_more(loader, BURST, &digest));
    assert_same(digest, first);
    sleep_ns(2000000);
}

static uint32_t slots_of(brim_loader *loader) {
    return stats_of(loader).slots;
}

static uint32_t device_slots_of(brim_loader *loader) {
    return stats_of(loader).device_slots;
}

static uint32_t scratch_of(brim_loader *loader) {
    brim__lock(&loader->mutex);
    const uint32_t count = loader->scratch_count;
    brim__unlock(&loader->mutex);
    return count;
}

static void take_until(brim_loader *loader, uint32_t (*count)(brim_loader *), uint32_t wanted) {
    const uint64_t deadline = brim__now() + PATIENCE_NS;
    while (count(loader) < wanted) {
        if (brim__now() > deadline) {
            fail_msg("%u after a minute, not %u", count(loader), wanted);
        }
        take_burst(loader);
    }
}

/* Until the loader has looked so many times for what it lacks. */
static void take_until_regrown(brim_loader *loader, unsigned times) {
    const uint64_t deadline = brim__now() + PATIENCE_NS;
    for (uint64_t last = 0; times > 0;) {
        take_burst(loader);
        brim__lock(&loader->mutex);
        const uint64_t regrown = loader->regrown_ns;
        brim__unlock(&loader->mutex);
        times -= regrown != last;
        last = regrown;
        assert_true(brim__now() < deadline);
    }
}

static void set_gap(brim_loader *loader, uint64_t gap_ns) {
    brim__lock(&loader->mutex);
    loader->consumer.gap_ns = gap_ns;
    brim__unlock(&loader->mutex);
}

static brim_open_options slots_options(const char *label) {
    brim_open_options options = open_options(label);
    options.slots = SLOTS;
    return options;
}

/* Room for two loaders with all their threads, and for the slots above the minimum of one. */
static brim_runtime *make_room(const brim_open_options *options, brim_plan_info *info) {
    *info = plan_alone(THREADS, images, options);
    assert_int_equal(info->slots, SLOTS);
    assert_int_equal(info->threads, THREADS);
    return make_runtime(THREADS, 2 * info->minimum_bytes - empty_runtime_bytes() +
                                     THREADS * (info->stack_bytes + 2 * info->scratch_bytes) +
                                     (SLOTS - info->minimum_slots) * info->slot_bytes);
}

static void test_memory_of_the_idle_moves_and_comes_back(void **state) {
    (void)state;
    const brim_open_options a = slots_options("training"), b = slots_options("validation");
    brim_plan_info info;
    brim_runtime *runtime = make_room(&a, &info);
    brim_loader *training = open_on(runtime, images, &a).loader;
    take_until(training, slots_of, SLOTS);

    /* planned with what training has above its minimum, which then really comes */
    brim_loader *validation = open_on(runtime, images, &b).loader;
    assert_int_equal(brim_plan_get(brim_loader_plan(validation))->slots, SLOTS);
    assert_int_equal(brim_plan_get(brim_loader_plan(validation))->threads, THREADS);
    for (int pass = 0; pass < 2; pass++) {
        take_until(validation, slots_of, SLOTS);
        assert_in_range(stats_of(training).slots, info.minimum_slots, SLOTS - 1);
        check_budget(runtime);
        take_until(training, slots_of, SLOTS);
        assert_in_range(stats_of(validation).slots, info.minimum_slots, SLOTS - 1);
        check_budget(runtime);
    }
    brim_loader_close(validation);
    brim_loader_close(training);
    brim_runtime_free(runtime);
}

/* One that was opened and never used is idle too; and what is lent stays where it is. */
static void test_what_is_lent_and_the_minimum_stay(void **state) {
    (void)state;
    brim_open_options a = slots_options("training");
    const brim_open_options b = slots_options("validation");
    brim_plan_info info;
    brim_runtime *runtime = make_room(&b, &info);
    a.growth = BRIM_GROWTH_FIXED;
    struct session training = open_on(runtime, images, &a);
    struct session validation = open_on(runtime, images, &b);
    assert_int_equal(stats_of(training.loader).slots, SLOTS);
    take_until(validation.loader, slots_of, SLOTS);
    assert_in_range(stats_of(training.loader).slots, info.minimum_slots, SLOTS - 1);

    take_until(training.loader, slots_of, SLOTS);
    brim_batch *lent = NULL;
    while (lent == NULL) {
        const brim_status status = brim_loader_next(training.loader, BRIM_FOREVER, &lent);
        assert_true(status == BRIM_OK || status == BRIM_STATUS_END);
    }
    const struct digest before = digest_of(lent);
    take_until(validation.loader, slots_of, SLOTS);
    assert_in_range(stats_of(training.loader).slots, info.minimum_slots, SLOTS - 1);
    assert_int_equal(stats_of(training.loader).lent, 1);
    assert_same(digest_of(lent), before);
    brim_batch_release(lent);
    take_burst(training.loader);
    check_budget(runtime);
    brim_loader_close(validation.loader);
    brim_loader_close(training.loader);
    brim_runtime_free(runtime);
}

/* All slots of the loader hold batches that are made and not lent. */
static void await_all_ready(brim_loader *loader) {
    const uint64_t deadline = brim__now() + PATIENCE_NS;
    for (bool ready = false; !ready;) {
        assert_true(brim__now() < deadline);
        sleep_ns(1000000);
        brim__lock(&loader->mutex);
        ready = brim__ring_count(loader->last, BRIM__SLOT_READY) == loader->last->count;
        brim__unlock(&loader->mutex);
    }
}

/* What a sequencer has made ahead goes too, if another loader's minimum needs the memory: it is
 * made again from the batch after the last one lent. */
static void test_sequenced_batches_give_way_to_a_minimum(void **state) {
    (void)state;
    static const char *const texts[] = {
        "zip (npy $/a.npy $/b.npy name=image) (npy $/labels.npy name=label) | repeat 8 | "
        "filter 'label!=3' | cast float32 on=image | batch 48",
        "zip (npy $/a.npy $/b.npy name=image) (npy $/labels.npy name=label) | repeat 8 | "
        "filter 'label!=3' | shuffle buffer=64KiB | cast float32 on=image | batch 96 micro=48",
    };
    for (size_t t = 0; t < sizeof texts / sizeof texts[0]; t++) {
        char text[TEXT_BYTES];
        expand(texts[t], text);
        brim_open_options a = open_options("training");
        const brim_open_options b = open_options("validation");
        a.slots = SLOTS;
        a.growth = BRIM_GROWTH_FIXED;
        brim_runtime *runtime = make_runtime(1, plan_alone(1, text, &a).planned_bytes);
        struct session training = open_on(runtime, text, &a);
        struct digest digest = { 0 };
        assert_int_equal(stats_of(training.loader).slots, SLOTS);
        take_batches(&training, 1, digest_batch, &digest);
        await_all_ready(training.loader);
        /* all that is free or elastic: the slots too, whatever stacks take */
        const brim_usage usage = usage_of(runtime);
        const uint64_t rest = usage.limit - usage.charged + usage.elastic;
        brim_budget *root = brim_runtime_budget(runtime);
        assert_int_equal(brim_budget_charge(root, BRIM_MEMORY_HOST, rest), BRIM_OK);
        assert_int_equal(stats_of(training.loader).slots, 2);
        check_budget(runtime);
        brim_budget_uncharge(root, BRIM_MEMORY_HOST, rest);
        struct session validation = open_on(runtime, images, &b); /* which must succeed */
        check_budget(runtime);
        take_burst(validation.loader);
        take_batches(&training, 2, digest_batch, &digest);
        assert_same(digest, first_batches(text, 3));
        brim_loader_close(validation.loader);
        brim_loader_close(training.loader);
        brim_runtime_free(runtime);
    }
}

/* Both in use: each keeps what it has, and gets more as soon as the other is idle. */
static void test_those_in_use_keep_what_they_have(void **state) {
    (void)state;
    const brim_open_options a = slots_options("training"), b = slots_options("validation");
    brim_plan_info info;
    brim_runtime *runtime = make_room(&a, &info);
    brim_loader *training = open_on(runtime, images, &a).loader;
    brim_loader *validation = open_on(runtime, images, &b).loader;
    take_until(training, slots_of, SLOTS);
    const uint64_t revoked = stats_of(training).revoked;
    set_gap(training, NEVER_NS);
    take_until_regrown(validation, 4);
    assert_int_equal(stats_of(training).slots, SLOTS);
    assert_int_equal(stats_of(training).revoked, revoked);
    assert_int_equal(stats_of(validation).slots, info.minimum_slots);

    /* nor does one whose consumer is inside a call */
    set_gap(training, 0);
    brim__lock(&training->mutex);
    training->in_call = true;
    brim__unlock(&training->mutex);
    take_until_regrown(validation, 4);
    assert_int_equal(stats_of(training).slots, SLOTS);
    brim__lock(&training->mutex);
    training->in_call = false;
    brim__unlock(&training->mutex);
    take_until(validation, slots_of, SLOTS);
    take_burst(training);
    brim_loader_close(validation);
    brim_loader_close(training);
    brim_runtime_free(runtime);
}

/* Threads before slots: a loader in use gives slots to one that has no scratch for workers,
 * but neither its own scratch for that, nor slots for slots, nor for less than a worker's
 * stack where workers were stopped. */
static void check_threads_come_before_slots(bool stop_workers) {
    brim_open_options a = slots_options("training");
    const brim_open_options b = slots_options("validation");
    brim_plan_info info;
    brim_runtime *runtime = make_room(&b, &info);
    brim_budget *model = NULL;
    uint64_t taken = 0;
    assert_int_equal(
        brim_budget_new(brim_runtime_budget(runtime), "model", BRIM_UNLIMITED, 0, &model), BRIM_OK);
    a.slots = SLOTS - 1; /* in all less than a stack above the minimum */
    assert_true((a.slots - info.minimum_slots) * info.slot_bytes < info.stack_bytes);
    brim_loader *training = open_on(runtime, images, &a).loader;
    take_until(training, slots_of, a.slots);
    take_until(training, scratch_of, THREADS + 1);
    set_gap(training, NEVER_NS);

    /* which plans threads and slots, because training has memory above its minimum */
    brim_loader *validation = open_on(runtime, images, &b).loader;
    assert_int_equal(brim_plan_get(brim_loader_plan(validation))->threads, THREADS);
    do { /* as if there had been no memory when its workers came */
        if (stop_workers) {
            brim__budget_revoke(runtime->workers_budget, BRIM_MEMORY_HOST, UINT64_MAX);
        }
        brim__budget_revoke(validation->budget, BRIM_MEMORY_HOST, UINT64_MAX);
        const uint64_t rest = brim__budget_free_now(model, BRIM_MEMORY_HOST);
        taken += brim__budget_try(model, BRIM_MEMORY_HOST, rest) ? rest : 0;
    } while (brim__budget_free_now(model, BRIM_MEMORY_HOST) > 0 || scratch_of(validation) > 1);
    const uint32_t slots = slots_of(training);
    assert_true(slots > info.minimum_slots);
    take_until(validation, scratch_of, THREADS + 1);
    take_until_regrown(validation, 4);
    const uint64_t most = (THREADS * info.scratch_bytes + info.slot_bytes - 1) / info.slot_bytes;
    assert_true(slots_of(training) >= slots - most);
    assert_int_equal(scratch_of(training), THREADS + 1);
    check_budget(runtime);
    brim_loader_close(validation);
    brim_loader_close(training);
    brim__budget_return(model, BRIM_MEMORY_HOST, taken);
    brim_budget_free(model);
    brim_runtime_free(runtime);
}

static void test_threads_come_before_slots(void **state) {
    (void)state;
    check_threads_come_before_slots(false);
    check_threads_come_before_slots(true);
}

/* -------------------------------------------------------------------- devices */

/* Slots there are taken from the idle too, and so is page-locked memory: each in its turn is
 * what there is too little of. */
static void test_memory_on_devices_moves(void **state) {
    (void)state;
    uint32_t devices = 0;
    if (brim_device_count(BRIM_DEVICE_OPENCL, &devices) != BRIM_OK || devices == 0) {
        print_message("no OpenCL device: %s\n", brim_detail());
        skip();
    }
    brim_open_options options = slots_options("either");
    options.device_kind = BRIM_DEVICE_OPENCL;
    const brim_plan_info info = plan_alone(THREADS, images, &options);
    assert_true(info.device_slots > info.minimum_device_slots);
    for (int pinned = 0; pinned < 2; pinned++) {
        uint32_t (*const count)(brim_loader *) = pinned ? slots_of : device_slots_of;
        const uint32_t most = pinned ? info.slots : info.device_slots;
        const uint32_t least = pinned ? info.minimum_slots : info.minimum_device_slots;
        brim_runtime_options limits = BRIM_RUNTIME_OPTIONS_INIT;
        limits.threads = THREADS;
        limits.host_bytes = UINT64_C(256) << 20;
        if (pinned) {
            limits.pinned_bytes = 2 * info.minimum_pinned_bytes + (most - least) * info.slot_bytes;
        } else {
            limits.device_bytes =
                2 * info.minimum_device_bytes + (most - least) * info.device_slot_bytes;
        }
        brim_runtime *runtime = NULL;
        assert_int_equal(brim_runtime_new(&limits, &runtime), BRIM_OK);
        brim_loader *loader[2];
        for (int i = 0; i < 2; i++) {
            loader[i] = open_on(runtime, images, &options).loader;
        }
        for (int pass = 0; pass < 4; pass++) {
            take_until(loader[pass % 2], count, most);
            assert_in_range(count(loader[1 - pass % 2]), least, most - 1);
            check_budget(runtime);
        }
        for (int i = 0; i < 2; i++) {
            brim_loader_close(loader[i]);
        }
        brim_runtime_free(runtime);
    }
}

/* --------------------------------------------------------------------- habits */

static void test_a_pause_is_no_habit(void **state) {
    (void)state;
    const uint64_t ms = 1000000, hour = 3600000 * ms;
    const brim_open_options options = open_options(NULL);
    brim_runtime *runtime = make_runtime(0, 0);
    brim_loader *loader = open_on(runtime, images, &options).loader;
    uint64_t now = brim__now();
    brim__lock(&loader->mutex);
    for (int i = 0; i < 200; i++) {
        brim__loader_used(loader, now += 10 * ms);
    }
    assert_in_range(loader->consumer.gap_ns, 9 * ms, 10 * ms);
    brim__loader_used(loader, now += hour);
    assert_in_range(loader->consumer.gap_ns, 10 * ms, 50 * ms);
    for (int i = 0; i < 50; i++) {
        brim__loader_used(loader, now += 10 * ms);
    }
    assert_in_range(loader->consumer.gap_ns, 9 * ms, 11 * ms);
    for (int i = 0; i < 200; i++) { /* but steps that long are */
        brim__loader_used(loader, now += hour);
    }
    assert_in_range(loader->consumer.gap_ns, 200 * ms, 250 * ms);
    loader->consumer.used_ns = 0;
    brim__unlock(&loader->mutex);
    brim_loader_close(loader);
    brim_runtime_free(runtime);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_workers_go_to_those_who_wait),
        cmocka_unit_test(test_memory_of_the_idle_moves_and_comes_back),
        cmocka_unit_test(test_what_is_lent_and_the_minimum_stay),
        cmocka_unit_test(test_sequenced_batches_give_way_to_a_minimum),
        cmocka_unit_test(test_those_in_use_keep_what_they_have),
        cmocka_unit_test(test_threads_come_before_slots),
        cmocka_unit_test(test_memory_on_devices_moves),
        cmocka_unit_test(test_a_pause_is_no_habit),
    };
    return cmocka_run_group_tests(tests, begin, end_tests);
}

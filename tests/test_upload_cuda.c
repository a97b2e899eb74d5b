/*
 * test_upload_cuda.c: whole loaders on CUDA, on the stand-in for its driver.
 *
 * What only the stand-in can show: a driver that refuses memory that the budget allows, or
 * to lock pages; a driver whose calls fail one by one; copies that all come from
 * page-locked memory; and that nothing is left of a loader when it is closed.
 */
#include "upload_util.h"

#include "base/fault.h"
#include "engine/upload.h"

#define CUDA     BRIM_DEVICE_CUDA
#define A_MINUTE INT64_C(60000000000)
#define IMAGES                                                                        \
    "npy $/images.npy | shuffle seed=3 | normalize imagenet | layout chw | batch 12 " \
    "remainder=keep"
#define KEPT                                                                             \
    "npy $/images.npy | take 12 | shuffle seed=3 | normalize imagenet | cache device | " \
    "batch 4"

static char text[TEXT_BYTES], kept[TEXT_BYTES];

static int begin(void **state) {
    const int failed = begin_upload_tests(state);
    if (failed == 0) {
        expand(IMAGES, text);
        expand(KEPT, kept);
    }
    return failed;
}

static int reset(void **state) {
    (void)state;
    brim__fault_arm(0, 0, false);
    cuda_standin_reset();
    return 0;
}

static brim_open_options options_there(const char *label) {
    brim_open_options options = open_options(label);
    options.device_kind = CUDA;
    return options;
}

static struct digest on_host(unsigned epochs) {
    return run_epochs(text, &(struct how){ .threads = 0 }, epochs);
}

/* ------------------------------------------------------------------- batches */

static void test_same_as_on_the_host(void **state) {
    (void)state;
    static const char *const more[] = {
        IMAGES,
        "npy $/images.npy | normalize imagenet | cast float16 | batch 7 remainder=pad",
        ("zip (npy $/images.npy) (npy $/classes.npy name=label) | filter \"label != 7\" | "
         "shuffle buffer=8KiB seed=1 | batch 8"),
        "text $/lines.txt | batch 6 remainder=keep",
        "text $/lines.txt | pad on=text | bucket 64 buffer=4KiB",
    };
    for (size_t t = 0; t < sizeof more / sizeof more[0]; t++) {
        char each[TEXT_BYTES];
        expand(more[t], each);
        const struct digest wanted = run_epochs(each, &(struct how){ .threads = 0 }, 2);
        for (unsigned way = 0; way < 18; way++) {
            const struct how how = { .threads = (int32_t)(way % 3),
                                     .hold = 1 + way / 3 % 2 * 2,
                                     .growth = way % 2 ? BRIM_GROWTH_FIXED : BRIM_GROWTH_ON_DEMAND,
                                     .device = CUDA,
                                     .device_index = way % 2,
                                     .bytes = way < 9 ? 0 : AT_MINIMUM,
                                     .pinned_bytes = way < 9 ? 0 : AT_MINIMUM,
                                     .device_bytes = way < 9 ? 0 : AT_MINIMUM };
            assert_same(run_epochs(each, &how, 2), wanted);
        }
        check_standin();
    }
}

/* Every copy comes from page-locked memory: others would wait for the host. */
static void test_copies_are_from_locked_pages(void **state) {
    (void)state;
    struct session session;
    session_open(&session, text, &(struct how){ .threads = 2, .device = CUDA });
    for (int i = 0; i < 9; i++) {
        brim_batch *batch;
        if (brim_loader_next(session.loader, BRIM_FOREVER, &batch) == BRIM_OK) {
            brim_batch_release(batch);
        }
    }
    assert_true(cuda_standin_get(CUDA_STANDIN_bytes_in) > 0);
    assert_int_equal(cuda_standin_get(CUDA_STANDIN_not_locked), 0);
    session_close(&session);
    check_standin();
}

static void test_default_streams(void **state) {
    (void)state;
    const struct digest wanted = on_host(1);
    for (uintptr_t stream = 1; stream <= 2; stream++) {
        for (int32_t threads = 0; threads < 2; threads++) {
            const struct how how = { .threads = threads, .device = CUDA, .queue = (void *)stream };
            assert_same(run_epochs(text, &how, 1), wanted);
        }
    }
    check_standin();
    expect_refused(text, &(struct how){ .device = CUDA, .queue = (void *)3 }, BRIM_STATUS_INVALID,
                   "is not a stream");
    check_standin();
}

/* ------------------------------------------------- a driver that has less memory */

static void test_the_driver_refuses_device_memory(void **state) {
    (void)state;
    const brim_open_options options = options_there("greedy");
    const brim_plan_info info = plan_alone(0, text, &options);
    const struct digest wanted = on_host(2);
    assert_true(info.device_slots >= info.minimum_device_slots + 2);
    for (uint32_t more = 0; more < 3; more++) {
        for (int32_t threads = 0; threads < 3; threads++) {
            for (int growth = BRIM_GROWTH_ON_DEMAND; growth <= BRIM_GROWTH_FIXED; growth++) {
                cuda_standin_reset();
                cuda_standin_limit(0, info.minimum_device_bytes + more * info.device_slot_bytes);
                struct session session;
                struct digest digest = { 0 };
                session_open(&session, text,
                             &(struct how){ .threads = threads,
                                            .growth = (brim_growth)growth,
                                            .device = CUDA,
                                            .device_bytes = info.planned_device_bytes });
                for (int i = 0; i < 2; i++) {
                    assert_true(take_batches(&session, TO_THE_END, digest_batch, &digest));
                }
                assert_same(digest, wanted);
                assert_true(stats_of(session.loader).device_slots <=
                            info.minimum_device_slots + more);
                if (growth == BRIM_GROWTH_FIXED) {
                    assert_int_equal(stats_of(session.loader).device_slots,
                                     info.minimum_device_slots + more);
                }
                session_close(&session);
                check_standin();
            }
        }
    }
}

/* Below the minimum: who has memory there is said, as far as brim knows. */
static void test_the_driver_refuses_the_minimum(void **state) {
    (void)state;
    const brim_open_options training = options_there("training"),
                            validation = options_there("validation");
    const brim_plan_info info = plan_alone(0, text, &training);
    cuda_standin_limit(0, 2 * info.minimum_device_bytes - 1);
    brim_runtime_options runtime_options = BRIM_RUNTIME_OPTIONS_INIT;
    brim_runtime *runtime;
    brim_loader *first, *second = NULL;
    runtime_options.threads = 0;
    runtime_options.host_bytes = (uint64_t)64 << 20;
    runtime_options.device_bytes = (uint64_t)64 << 20;
    MUST(brim_runtime_new(&runtime_options, &runtime));
    MUST(try_open(runtime, text, &training, &first));
    const uint64_t charged = usage_of(runtime).charged;
    assert_int_equal(try_open(runtime, text, &validation, &second), BRIM_STATUS_MEMORY);
    assert_null(second);
    assert_detail_has("cuda:0: taking device memory");
    assert_detail_has("brim holds there: training");
    assert_detail_has("close one of them");
    assert_int_equal(usage_of(runtime).charged, charged);
    assert_int_equal(budget_of(runtime, brim_device_memory(CUDA, 0)).charged,
                     info.minimum_device_bytes);
    cuda_standin_limit(0, 2 * info.minimum_device_bytes);
    MUST(try_open(runtime, text, &validation, &second));
    brim_loader_close(first);
    brim_loader_close(second);
    brim_runtime_free(runtime);
    check_standin();
}

/* What one loader holds above its minimum gives way to another's minimum also where the driver
 * has less than the budget. */
static void test_slots_give_way_to_the_driver(void **state) {
    (void)state;
    brim_open_options training = options_there("training"),
                      validation = options_there("validation");
    const brim_plan_info info = plan_alone(0, text, &training);
    brim_runtime_options runtime_options = BRIM_RUNTIME_OPTIONS_INIT;
    brim_runtime *runtime;
    brim_loader *first, *second;
    cuda_standin_limit(0, 2 * info.minimum_device_bytes);
    runtime_options.threads = 0;
    runtime_options.host_bytes = (uint64_t)64 << 20;
    runtime_options.device_bytes = (uint64_t)64 << 20;
    training.growth = BRIM_GROWTH_FIXED;
    MUST(brim_runtime_new(&runtime_options, &runtime));
    MUST(try_open(runtime, text, &training, &first));
    assert_true(stats_of(first).device_slots > info.minimum_device_slots);
    MUST(try_open(runtime, text, &validation, &second));
    assert_int_equal(stats_of(first).device_slots, info.minimum_device_slots);
    assert_int_equal(budget_of(runtime, brim_device_memory(CUDA, 0)).charged,
                     2 * info.minimum_device_bytes);
    brim_loader_close(first);
    brim_loader_close(second);
    brim_runtime_free(runtime);
    check_standin();
}

static brim_cache_stats kept_by(brim_loader *loader) {
    brim_cache_stats stats = BRIM_CACHE_STATS_INIT;
    MUST(brim_loader_read_cache_stats(loader, 0, &stats));
    return stats;
}

static void take_epoch(brim_loader *loader, struct digest *digest) {
    struct session session = { .loader = loader, .hold = 1 };
    assert_true(take_batches(&session, TO_THE_END, digest_batch, digest));
}

/* Samples stay as far as the driver has memory for them, and the others when it has. */
static void test_the_driver_refuses_what_stays(void **state) {
    (void)state;
    brim_open_options options = options_there("kept");
    options.slots = 2;
    const brim_plan_info info = plan_alone(0, kept, &options);
    const struct digest wanted = run_epochs(kept, &(struct how){ .threads = 0 }, 4);
    for (int32_t threads = 0; threads < 3; threads++) {
        /* a part, of which there are as many as all samples of the file need, and some rows */
        const uint64_t row = info.device_slot_bytes / 4;
        const uint64_t limit = info.minimum_device_bytes + (UPLOAD_SAMPLES / 8 + 2) * row;
        struct session session;
        struct digest digest = { 0 };
        cuda_standin_reset();
        cuda_standin_limit(0, limit);
        session_open(&session, kept,
                     &(struct how){ .threads = threads,
                                    .device = CUDA,
                                    .slots = 2,
                                    .device_bytes = (uint64_t)64 << 20 });
        take_epoch(session.loader, &digest);
        take_epoch(session.loader, &digest);
        const brim_cache_stats some = kept_by(session.loader);
        assert_true(some.filled > 0 && some.filled < 12 && some.dropped > 0);
        assert_true(cuda_standin_get(CUDA_STANDIN_device_bytes_peak) <= limit);
        /* what was refused is charged no longer, once nobody asks for it any more */
        const uint64_t kept_bytes = info.minimum_device_bytes + some.bytes;
        uint64_t charged = budget_of(session.runtime, session.kind).charged;
        for (int i = 0; i < 60000 && charged != kept_bytes; i++) {
            sleep_ns(1000000);
            charged = budget_of(session.runtime, session.kind).charged;
        }
        assert_int_equal(charged, kept_bytes);
        cuda_standin_limit(0, CUDA_STANDIN_BYTES);
        take_epoch(session.loader, &digest);
        take_epoch(session.loader, &digest);
        assert_int_equal(kept_by(session.loader).filled, 12);
        session_close(&session);
        assert_same(digest, wanted);
        check_standin();
    }
}

/* Samples of one loader give way to another's minimum, too, where the driver has less than the
 * budget. */
static void test_what_stays_gives_way_to_the_driver(void **state) {
    (void)state;
    brim_open_options training = options_there("training"),
                      validation = options_there("validation");
    training.slots = validation.slots = 2;
    const brim_plan_info info = plan_alone(0, kept, &training);
    const struct digest wanted = run_epochs(kept, &(struct how){ .threads = 0 }, 3);
    for (int32_t threads = 0; threads < 3; threads++) {
        brim_runtime *runtime = make_runtime(threads, (uint64_t)64 << 20);
        struct digest a = { 0 }, b = { 0 };
        brim_loader *first, *second;
        cuda_standin_reset();
        MUST(brim_budget_set(brim_runtime_budget(runtime), brim_device_memory(CUDA, 0),
                             (uint64_t)64 << 20, 0));
        MUST(try_open(runtime, kept, &training, &first));
        take_epoch(first, &a);
        assert_int_equal(kept_by(first).filled, 12);
        cuda_standin_limit(0, cuda_standin_get(CUDA_STANDIN_device_bytes) + info.device_slot_bytes);
        MUST(try_open(runtime, kept, &validation, &second));
        assert_true(kept_by(first).filled < 12);
        take_epoch(first, &a);
        take_epoch(second, &b);
        take_epoch(second, &b);
        take_epoch(second, &b);
        assert_same(b, wanted);
        brim_loader_close(second);
        take_epoch(first, &a);
        assert_same(a, wanted);
        brim_loader_close(first);
        check_budget(runtime);
        brim_runtime_free(runtime);
        check_standin();
    }
}

/* Fewer slots, down to the minimum; below it opening is refused. */
static void test_locking_pages_is_refused(void **state) {
    (void)state;
    const brim_open_options options = options_there("greedy");
    const brim_plan_info info = plan_alone(0, text, &options);
    const struct digest wanted = on_host(2);
    for (uint32_t more = 0; more < 3; more++) {
        for (int32_t threads = 0; threads < 3; threads++) {
            const uint64_t limit = info.minimum_pinned_bytes + more * info.slot_bytes;
            cuda_standin_reset();
            cuda_standin_limit_locked(limit);
            const struct how how = { .threads = threads,
                                     .growth =
                                         threads == 1 ? BRIM_GROWTH_FIXED : BRIM_GROWTH_ON_DEMAND,
                                     .device = CUDA };
            assert_same(run_epochs(text, &how, 2), wanted);
            assert_true(cuda_standin_get(CUDA_STANDIN_locked_bytes_peak) <= limit);
            check_standin();
        }
    }
    cuda_standin_limit_locked(info.minimum_pinned_bytes - 1);
    expect_refused(text, &(struct how){ .device = CUDA }, BRIM_STATUS_MEMORY, "page-locking");
    check_standin();
}

/* ----------------------------------------------------- a driver whose calls fail */

struct reads {
    const char *text;
    size_t count;
    size_t steps; /* of an epoch */
    size_t bytes[16];
    uint8_t *data[16];
};

static struct reads read_on_host(const char *from, unsigned epochs) {
    struct reads reads = { .text = from };
    struct session session;
    brim_batch *batch;
    session_open(&session, from, &(struct how){ .threads = 0 });
    for (unsigned i = 0; i < epochs; i++) {
        while (brim_loader_next(session.loader, BRIM_FOREVER, &batch) == BRIM_OK) {
            const uint64_t bytes = brim_batch_field_at(batch, 0)->bytes;
            assert_true(reads.count < BRIM__COUNT(reads.data));
            reads.bytes[reads.count] = bytes;
            reads.data[reads.count] = malloc(bytes);
            MUST(brim_batch_copy_field(batch, 0, reads.data[reads.count++], bytes));
            brim_batch_release(batch);
        }
    }
    reads.steps = reads.count / epochs;
    session_close(&session);
    return reads;
}

static void end_reads(struct reads *reads) {
    for (size_t i = 0; i < reads->count; i++) {
        free(reads->data[i]);
    }
}

static void check_error(const char *call, brim_status status) {
    if ((status != BRIM_STATUS_DRIVER && status != BRIM_STATUS_MEMORY) ||
        brim_detail()[0] == '\0') {
        fail_msg("%s failed, and brim says %s: %s", call, brim_status_name(status), brim_detail());
    }
}

/* A whole life with an entry point of the driver failing at its nth call, once or from
 * then on. What comes are errors or the right batches; nothing is left behind. False: there
 * were fewer calls. */
static bool life_with(const char *call, uint64_t nth, bool for_ever, const struct reads *truth) {
    brim_open_options options = options_there("life");
    brim_runtime *runtime = make_runtime(0, (uint64_t)64 << 20);
    brim_loader *loader = NULL;
    cuda_standin_reset();
    struct consumer consumer = consumer_new(CUDA);
    options.device_queue = consumer.queue;
    options.growth = nth % 2 ? BRIM_GROWTH_FIXED : BRIM_GROWTH_ON_DEMAND;
    /* asked for what is still under way, a driver may tell of anything */
    const bool under_way = strcmp(call, "cuEventQuery") == 0;
    cuda_standin_delay(!under_way ? 0 : truth->text == kept ? 20 : 300); /* there are more */
    cuda_standin_fail(call, nth, CUDA_ERROR_UNKNOWN, for_ever);
    brim_status status = try_open(runtime, truth->text, &options, &loader);
    if (status != BRIM_OK) {
        check_error(call, status);
    }
    unsigned errors = 0;
    for (size_t taken = 0; loader != NULL && taken < truth->count;) {
        brim_batch *batch;
        status = brim_loader_next(loader, A_MINUTE, &batch);
        if (status == BRIM_STATUS_END) {
            continue;
        }
        if (status != BRIM_OK) {
            check_error(call, status);
            if (++errors == 3) {
                cuda_standin_fail(call, 0, CUDA_SUCCESS, false); /* it works again */
            }
            assert_true(errors < 6);
            continue;
        }
        assert_int_equal(brim_batch_get(batch)->step, taken % truth->steps);
        uint8_t *bytes = malloc(truth->bytes[taken]);
        status = brim_batch_copy_field(batch, 0, bytes, truth->bytes[taken]);
        if (status != BRIM_OK) {
            check_error(call, status);
        } else {
            assert_memory_equal(bytes, truth->data[taken], truth->bytes[taken]);
        }
        free(bytes);
        brim_batch_release(batch);
        taken++;
    }
    brim_loader_close(loader);
    const bool met = cuda_standin_get(CUDA_STANDIN_failed) > 0;
    cuda_standin_fail(NULL, 0, CUDA_SUCCESS, false);
    for (int kind = BRIM_MEMORY_PINNED; kind < BRIM_MEMORY_KINDS; kind++) {
        assert_int_equal(budget_of(runtime, (brim_memory)kind).charged, 0);
    }
    brim_runtime_free(runtime);
    consumer_close(&consumer);
    if (cuda_standin_get(CUDA_STANDIN_violations) > 0 || !cuda_standin_empty()) {
        fail_msg("%s, call %llu %s: something is left, or: %s", call, (unsigned long long)nth,
                 for_ever ? "for ever" : "once", cuda_standin_violation(0));
    }
    return met;
}

static void fail_in_turn(const char *call, const struct reads *truth) {
    for (int for_ever = 0; for_ever < 2; for_ever++) {
        uint64_t nth = 1;
        while (life_with(call, nth, for_ever, truth)) {
            nth += is_sanitized() ? 1 + nth / 2 : 1;
        }
        if (nth == 1) {
            fail_msg("%s is never called", call);
        }
    }
}

static void test_every_entry_point_fails_in_turn(void **state) {
    (void)state;
    /* all but the one without which nothing can be undone: making a context current */
    static const char *const calls[] = {
        "cuDevicePrimaryCtxRetain",
        "cuDevicePrimaryCtxRelease_v2",
        "cuCtxPopCurrent_v2",
        "cuMemAlloc_v2",
        "cuMemFree_v2",
        "cuMemHostRegister_v2",
        "cuMemHostUnregister",
        "cuMemcpyHtoDAsync_v2",
        "cuMemcpyDtoHAsync_v2",
        "cuStreamCreate",
        "cuStreamDestroy_v2",
        "cuStreamSynchronize",
        "cuStreamGetCtx",
        "cuStreamWaitEvent",
        "cuEventCreate",
        "cuEventDestroy_v2",
        "cuEventRecord",
        "cuEventQuery",
        "cuEventSynchronize",
    };
    struct reads truth = read_on_host(text, 1);
    for (size_t c = 0; c < sizeof calls / sizeof calls[0]; c++) {
        fail_in_turn(calls[c], &truth);
    }
    end_reads(&truth);
}

/* The same with samples that stay on the device: what they and the batches that are gathered
 * from them go through. */
static void test_entry_points_fail_while_samples_stay(void **state) {
    (void)state;
    static const char *const calls[] = {
        "cuMemAlloc_v2",       "cuMemFree_v2",  "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoDAsync_v2",
        "cuStreamSynchronize", "cuEventRecord", "cuEventQuery",
    };
    struct reads truth = read_on_host(kept, 3);
    for (size_t c = 0; c < sizeof calls / sizeof calls[0]; c++) {
        fail_in_turn(calls[c], &truth);
    }
    end_reads(&truth);
}

/* Asked whether something is done, a driver may tell of something else that went wrong: what
 * is still read or copied is not used again all the same. */
static void test_asking_for_events_fails(void **state) {
    (void)state;
    struct reads truth = read_on_host(text, 1);
    for (uint64_t nth = 1; nth < 60; nth += 1 + nth / 8) {
        const int32_t threads = (int32_t)(nth % 2);
        uint8_t *late[16] = { NULL };
        struct consumer consumer = consumer_new(CUDA);
        struct session session;
        session_open(&session, text,
                     &(struct how){
                         .threads = threads, .device = CUDA, .queue = consumer.queue, .slots = 2 });
        cuda_standin_delay(200);
        cuda_standin_fail("cuEventQuery", nth, CUDA_ERROR_UNKNOWN, false);
        for (size_t taken = 0; taken < truth.count;) {
            brim_batch *batch;
            const brim_status status = brim_loader_next(session.loader, A_MINUTE, &batch);
            if (status != BRIM_OK) {
                check_error("cuEventQuery", status);
                continue;
            }
            const brim_field *field = brim_batch_field_at(batch, 0);
            late[taken] = malloc(field->bytes);
            consumer_read(&consumer, field, late[taken++], 1000);
            brim_batch_release(batch);
        }
        consumer_finish(&consumer);
        for (size_t i = 0; i < truth.count; i++) {
            assert_memory_equal(late[i], truth.data[i], truth.bytes[i]);
            free(late[i]);
        }
        cuda_standin_delay(0);
        cuda_standin_fail(NULL, 0, CUDA_SUCCESS, false);
        session_close(&session);
        consumer_close(&consumer);
        check_standin();
    }
    end_reads(&truth);
}

/* ----------------------------------------------------------------- losing and seeking */

static uint32_t state_count(brim_loader *loader, const struct brim__ring *ring,
                            enum brim__slot_state wanted) {
    brim__lock(&loader->mutex);
    const uint32_t found = brim__ring_count(ring, wanted);
    brim__unlock(&loader->mutex);
    return found;
}

static void await_device_slots(brim_loader *loader, uint32_t ready) {
    for (int i = 0; i < 60000; i++) {
        if (state_count(loader, loader->last, BRIM__SLOT_READY) >= ready) {
            return;
        }
        sleep_ns(1000000);
    }
    fail_msg("batches are not uploaded");
}

static void await_copies(brim_loader *loader) {
    for (int i = 0; i < 60000; i++) {
        if (state_count(loader, loader->batches, BRIM__SLOT_LEAVING) == 0) {
            return;
        }
        sleep_ns(1000000);
    }
    fail_msg("copies are not done");
}

/* Device slots are lost when the driver fails at releases: if all are, next says so instead
 * of waiting for them, and goes on when the driver works again. */
static void test_all_slots_are_lost(void **state) {
    (void)state;
    struct session session;
    struct digest digest = { 0 };
    struct consumer consumer = consumer_new(CUDA);
    session_open(&session, text, &(struct how){ .threads = 1, .device = CUDA, .slots = 2 });
    brim_batch *batch = take_batch(&session);
    await_device_slots(session.loader, 1);
    await_copies(session.loader);
    brim__fault_arm(1u << BRIM__FAULT_DEVICE, 1, true);
    brim_batch_release_after(batch, consumer.queue);
    MUST(brim_loader_next(session.loader, A_MINUTE, &batch));
    brim_batch_release_after(batch, consumer.queue);
    for (int i = 0; i < 2; i++) {
        const brim_status status = brim_loader_next(session.loader, A_MINUTE, &batch);
        assert_true(status == BRIM_STATUS_MEMORY || status == BRIM_STATUS_DRIVER);
        assert_detail_has("cuda:0");
    }
    brim__fault_arm(0, 0, false);
    brim_status status;
    while ((status = brim_loader_next(session.loader, A_MINUTE, &batch)) == BRIM_STATUS_MEMORY) {
        /* a worker had met it before */
    }
    assert_int_equal(status, BRIM_OK);
    assert_int_equal(brim_batch_get(batch)->step, 2);
    brim_batch_release(batch);
    MUST(brim_loader_seek(session.loader, 0, 0));
    assert_true(take_batches(&session, TO_THE_END, digest_batch, &digest));
    assert_same(digest, on_host(1));
    session_close(&session);
    consumer_close(&consumer);
    check_standin();
}

/* The same when another has taken the memory meanwhile. */
static void test_a_lost_slot_is_somebody_elses(void **state) {
    (void)state;
    struct session session;
    struct consumer consumer = consumer_new(CUDA);
    session_open(&session, text,
                 &(struct how){ .threads = 0, .device = CUDA, .device_bytes = AT_MINIMUM });
    brim_budget *root = brim_runtime_budget(session.runtime);
    const uint64_t bytes = brim_plan_get(brim_loader_plan(session.loader))->device_slot_bytes;
    brim_batch *batch;
    for (int i = 0; i < 2; i++) {
        MUST(brim_loader_next(session.loader, A_MINUTE, &batch));
        brim__fault_arm(1u << BRIM__FAULT_DEVICE, 1, true);
        brim_batch_release_after(batch, consumer.queue);
        brim__fault_arm(0, 0, false);
        MUST(brim_budget_charge(root, session.kind, bytes));
    }
    assert_int_equal(brim_loader_next(session.loader, A_MINUTE, &batch), BRIM_STATUS_BUDGET);
    assert_detail_has("others have the memory now");
    brim_budget_uncharge(root, session.kind, 2 * bytes);
    MUST(brim_loader_next(session.loader, A_MINUTE, &batch));
    assert_int_equal(brim_batch_get(batch)->step, 2);
    brim_batch_release(batch);
    session_close(&session);
    consumer_close(&consumer);
    check_standin();
}

/* A copy that was under way when the loader went elsewhere fails afterwards (the nth that is
 * seen to be done): what it held is not taken for the batch that has its ticket now. */
static void fail_a_copy_after_a_seek(uint64_t nth, struct digest wanted) {
    struct session session;
    struct digest digest = { 0 };
    struct consumer consumer = consumer_new(CUDA); /* its context is current here */
    session_open(
        &session, text,
        &(struct how){ .threads = 1, .growth = BRIM_GROWTH_FIXED, .device = CUDA, .slots = 2 });
    brim_loader *loader = session.loader;
    await_device_slots(loader, 2); /* both are full: no thread uploads any more */
    await_copies(loader);
    CUstream stream = loader->uploader->queue.handle;
    assert_int_equal(cuda_standin_hold(stream), CUDA_SUCCESS);
    MUST(brim_loader_seek(loader, 0, 2)); /* copies of other batches, which do not begin */
    await_device_slots(loader, 2);
    MUST(brim_loader_seek(loader, 0, 0));
    await_device_slots(loader, 2);
    brim__fault_arm(1u << BRIM__FAULT_DEVICE, nth, false);
    assert_int_equal(cuda_standin_go_on(stream), CUDA_SUCCESS);
    await_copies(loader);
    brim__fault_arm(0, 0, false);
    for (unsigned errors = 0; digest.batches < wanted.batches;) {
        brim_batch *batch;
        const brim_status status = brim_loader_next(loader, A_MINUTE, &batch);
        if (status != BRIM_OK) {
            check_error("a copy", status);
            assert_true(++errors < 3);
            continue;
        }
        digest_batch(&digest, batch);
        brim_batch_release(batch);
    }
    assert_same(digest, wanted);
    session_close(&session);
    consumer_close(&consumer);
    check_standin();
}

static void test_a_copy_fails_after_a_seek(void **state) {
    (void)state;
    const struct digest wanted = on_host(1);
    for (uint64_t nth = 1; nth <= 4; nth++) {
        fail_a_copy_after_a_seek(nth, wanted);
    }
}

int main(void) {
#define TEST(test) cmocka_unit_test_setup(test, reset)
    const struct CMUnitTest tests[] = {
        TEST(test_same_as_on_the_host),
        TEST(test_copies_are_from_locked_pages),
        TEST(test_default_streams),
        TEST(test_the_driver_refuses_device_memory),
        TEST(test_the_driver_refuses_the_minimum),
        TEST(test_slots_give_way_to_the_driver),
        TEST(test_the_driver_refuses_what_stays),
        TEST(test_what_stays_gives_way_to_the_driver),
        TEST(test_locking_pages_is_refused),
        TEST(test_every_entry_point_fails_in_turn),
        TEST(test_entry_points_fail_while_samples_stay),
        TEST(test_asking_for_events_fails),
        TEST(test_all_slots_are_lost),
        TEST(test_a_lost_slot_is_somebody_elses),
        TEST(test_a_copy_fails_after_a_seek),
    };
    return cmocka_run_group_tests_name("upload_cuda", tests, begin, end_tests);
}

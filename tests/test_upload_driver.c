/*
 * test_upload_driver.c: loaders on a driver that others use too, or that does not answer; on
 * the stand-in for CUDA's driver.
 *
 * A program that captures a stream for a graph; events of which nobody can say whether they
 * are done; copies that fail at the moments at which that is least convenient. The last are
 * brought about by hand, in the loader's own structures: no pace would meet them reliably.
 */
#include "upload_util.h"

#include "base/fault.h"
#include "engine/chain.h"
#include "engine/resident.h"

#define CUDA     BRIM_DEVICE_CUDA
#define A_MINUTE INT64_C(60000000000)
#define IMAGES   "npy $/images.npy | shuffle seed=3 | cast float32 | batch 12 remainder=keep"

static int reset(void **state) {
    (void)state;
    brim__fault_arm(0, 0, false);
    cuda_standin_reset();
    return 0;
}

static struct digest on_host(const char *text, unsigned epochs) {
    return run_epochs(text, &(struct how){ .threads = 0 }, epochs);
}

static void arm_one_failure(void) {
    brim__fault_arm(1u << BRIM__FAULT_DEVICE, 1, false);
}

/* -------------------------------------------------------------- others' captures */

static CUstreamCaptureMode mode_of_thread(void) {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    assert_int_equal(cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
    const CUstreamCaptureMode had = mode;
    assert_int_equal(cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
    return had;
}

/* Opening, growing, copying, waiting, giving way and closing spoil no capture that another
 * thread has begun, and leave the calling thread's mode as it was. */
static void test_captures_are_not_spoilt(void **state) {
    (void)state;
    char text[TEXT_BYTES];
    expand(IMAGES, text);
    const struct digest wanted = on_host(text, 2);
    for (int32_t threads = 0; threads <= 2; threads += 2) {
        struct session session;
        struct digest digest = { 0 };
        struct consumer consumer = consumer_new(CUDA);
        cuda_standin_delay(100);
        cuda_standin_capture(true);
        session_open(&session, text,
                     &(struct how){ .threads = threads, .device = CUDA, .queue = consumer.queue });
        for (int i = 0; i < 2; i++) {
            assert_true(take_batches(&session, TO_THE_END, digest_batch, &digest));
            MUST(brim_runtime_trim(session.runtime, NULL));
        }
        assert_same(digest, wanted);
        assert_int_equal(mode_of_thread(), CU_STREAM_CAPTURE_MODE_GLOBAL);
        session_close(&session);
        cuda_standin_capture(false);
        cuda_standin_delay(0);
        consumer_close(&consumer);
        check_standin();
    }
}

/* -------------------------------------------------------- nobody knows who is done */

/* The driver neither says whether the reader of a released slot is done nor waits for it:
 * the slot is not filled again, so that the reader finds what it was given. */
static void test_a_slot_whose_reader_is_unknown(void **state) {
    (void)state;
    char text[TEXT_BYTES];
    expand(IMAGES, text);
    static uint8_t late[1 << 16], there[1 << 16];
    struct session session;
    struct consumer consumer = consumer_new(CUDA);
    session_open(&session, text, &(struct how){ .threads = 0, .device = CUDA, .slots = 2 });
    brim_batch *batch;
    MUST(brim_loader_next(session.loader, A_MINUTE, &batch));
    const brim_field *field = brim_batch_field_at(batch, 0);
    const uint64_t bytes = field->bytes;
    assert_true(bytes <= sizeof late);
    MUST(brim_batch_copy_field(batch, 0, there, sizeof there));
    consumer_hold(&consumer);
    consumer_read(&consumer, field, late, 0);
    brim_batch_release_after(batch, consumer.queue);
    cuda_standin_silence(true);
    for (int i = 0; i < 3; i++) { /* what was copied cannot be told either */
        if (brim_loader_next(session.loader, 0, &batch) == BRIM_OK) {
            brim_batch_release(batch);
        }
    }
    cuda_standin_silence(false);
    consumer_go_on(&consumer);
    consumer_finish(&consumer);
    assert_memory_equal(late, there, bytes);
    MUST(brim_loader_seek(session.loader, 0, 0));
    struct digest digest = { 0 };
    assert_true(take_batches(&session, TO_THE_END, digest_batch, &digest));
    assert_same(digest, on_host(text, 1));
    session_close(&session);
    consumer_close(&consumer);
    assert_true(cuda_standin_empty());
}

/* ----------------------------------------------------- failures at the wrong moment */

/* Batches in slots of the device, and those whose copies are not seen to be done. */
static uint32_t count_ready(brim_loader *loader) {
    brim__lock(&loader->mutex);
    const uint32_t ready = brim__ring_count(loader->last, BRIM__SLOT_READY);
    brim__unlock(&loader->mutex);
    return ready;
}

static uint32_t count_uploaded(brim_loader *loader) {
    brim__lock(&loader->mutex);
    brim__upload_settle(loader);
    const uint32_t uploaded = brim__ring_count(loader->batches, BRIM__SLOT_LEAVING);
    brim__unlock(&loader->mutex);
    return uploaded;
}

static void await(uint32_t (*what)(brim_loader *), brim_loader *loader, uint32_t wanted) {
    for (int i = 0; what(loader) != wanted; i++) {
        assert_true(i < 60000);
        sleep_ns(1000000);
    }
}

static void finish(CUstream stream) {
    assert_int_equal(cuda_standin_go_on(stream), CUDA_SUCCESS);
    assert_int_equal(cuStreamSynchronize(stream), CUDA_SUCCESS);
}

/* The next copy is held, its batch lent; finishing the stream with a fault armed lets it fail. */
static CUstream hold_a_copy(brim_loader *loader, brim_batch **batch) {
    MUST(brim_loader_next(loader, A_MINUTE, batch)); /* the queue is there from now on */
    brim_batch_release(*batch);
    await(count_uploaded, loader, 0);
    CUstream stream = loader->uploader->queue.handle;
    assert_int_equal(cuda_standin_hold(stream), CUDA_SUCCESS);
    MUST(brim_loader_next(loader, A_MINUTE, batch));
    assert_int_equal(count_uploaded(loader), 1);
    return stream;
}

static void let_it_fail(brim_loader *loader, CUstream stream) {
    finish(stream);
    arm_one_failure();
    assert_int_equal(count_uploaded(loader), 0);
    brim__fault_arm(0, 0, false);
}

/* A copy that fails is seen while another thread uploads a batch: rows that it should have left
 * on the device are withdrawn only when that is done, and the failure is not forgotten. */
static void test_rows_stay_while_a_batch_is_uploaded(void **state) {
    (void)state;
    char text[TEXT_BYTES];
    expand("npy $/images.npy | cast float32 | cache device | batch 12 remainder=keep", text);
    struct session session;
    struct digest digest = { 0 };
    struct consumer consumer = consumer_new(CUDA); /* its context is current here */
    session_open(&session, text, &(struct how){ .threads = 0, .device = CUDA, .slots = 2 });
    brim_loader *loader = session.loader;
    const struct brim__residents *tier = brim__loader_residents(loader);
    brim_batch *batch;
    CUstream stream = hold_a_copy(loader, &batch);
    brim__lock(&loader->mutex);
    const uint64_t filled = atomic_load(&tier->filled);
    finish(stream);
    loader->uploader->running = true; /* as if another thread were at it */
    arm_one_failure();
    brim__upload_settle(loader);
    assert_int_equal(atomic_load(&tier->filled), filled);
    loader->uploader->running = false;
    brim__unlock(&loader->mutex);
    assert_int_equal(count_uploaded(loader), 0);
    brim__fault_arm(0, 0, false);
    assert_true(atomic_load(&tier->filled) < filled);
    assert_int_equal(brim_batch_wait(batch, NULL), BRIM_STATUS_DRIVER);
    brim_batch_release(batch);
    MUST(brim_loader_seek(loader, 0, 0));
    for (int i = 0; i < 2; i++) {
        assert_true(take_batches(&session, TO_THE_END, digest_batch, &digest));
    }
    assert_same(digest, on_host(text, 2));
    session_close(&session);
    consumer_close(&consumer);
    check_standin();
}

/* A lent batch whose copy fails is told of, also where the loader has gone elsewhere meanwhile. */
static void test_a_copy_that_fails_after_a_seek(void **state) {
    (void)state;
    char text[TEXT_BYTES];
    expand("npy $/images.npy | cast float32 | batch 12 remainder=keep", text);
    struct session session;
    struct digest digest = { 0 };
    struct consumer consumer = consumer_new(CUDA); /* its context is current here */
    session_open(&session, text, &(struct how){ .threads = 0, .device = CUDA, .slots = 2 });
    brim_loader *loader = session.loader;
    brim_batch *batch;
    CUstream stream = hold_a_copy(loader, &batch);
    MUST(brim_loader_seek(loader, 0, 0));
    let_it_fail(loader, stream);
    assert_int_equal(brim_batch_wait(batch, NULL), BRIM_STATUS_DRIVER);
    brim_batch_release(batch);
    assert_true(take_batches(&session, TO_THE_END, digest_batch, &digest));
    assert_same(digest, on_host(text, 1));
    session_close(&session);
    consumer_close(&consumer);
    check_standin();
}

/* What the consumer does with the batch of which the copy fails, and the loader meanwhile. */
enum moment { RELEASED, RELEASED_AND_SEEKED, RELEASED_AT_THE_END, NOT_ASKED };

/* Work on the device may have read rows that never came: `next` says so, though the batch is gone,
 * and says it once. */
static void fail_after_release(const char *text, enum moment moment) {
    struct session session;
    struct consumer consumer = consumer_new(CUDA); /* its context is current here */
    session_open(&session, text, &(struct how){ .threads = 0, .device = CUDA, .slots = 2 });
    brim_loader *loader = session.loader;
    brim_batch *batch;
    CUstream stream = hold_a_copy(loader, &batch);
    if (moment != NOT_ASKED) {
        brim_batch_release(batch);
    }
    if (moment ==
        RELEASED_AT_THE_END) { /* the two are the whole epoch; and the end is seen first */
        brim_batch *none;
        assert_int_equal(brim_loader_next(loader, 0, &none), BRIM_STATUS_END);
    }
    let_it_fail(loader, stream);
    if (moment == RELEASED_AND_SEEKED) {
        MUST(brim_loader_seek(loader, 0, 0));
    }
    if (moment == NOT_ASKED) {
        brim_batch_release(batch);
    }
    assert_int_equal(brim_loader_next(loader, A_MINUTE, &batch), BRIM_STATUS_DRIVER);
    assert_non_null(strstr(brim_detail(), "epoch 0, step 1: the batch was released before"));
    MUST(brim_loader_seek(loader, 0, 0));
    struct digest digest = { 0 };
    assert_true(take_batches(&session, TO_THE_END, digest_batch, &digest));
    assert_same(digest, on_host(text, 1));
    session_close(&session);
    consumer_close(&consumer);
    check_standin();
}

static void test_a_copy_that_fails_after_the_release(void **state) {
    (void)state;
    static const char *const caches[] = { "", "cache device | " };
    char text[TEXT_BYTES], template[TEXT_BYTES];
    for (size_t i = 0; i < BRIM__COUNT(caches); i++) {
        snprintf(template, sizeof template,
                 "npy $/images.npy | cast float32 | %sbatch 12 remainder=keep", caches[i]);
        expand(template, text);
        fail_after_release(text, RELEASED);
        fail_after_release(text, RELEASED_AND_SEEKED);
        fail_after_release(text, NOT_ASKED);
        snprintf(template, sizeof template,
                 "npy $/images.npy | take 24 | cast float32 | %sbatch 12", caches[i]);
        expand(template, text);
        fail_after_release(text, RELEASED_AT_THE_END);
    }
}

/* A failure of a device is returned with all batches lent too, before the refusal of one more; and
 * before the end of an epoch. */
static void test_a_failure_comes_before_held_and_end(void **state) {
    (void)state;
    char text[TEXT_BYTES];
    for (int at_end = 0; at_end < 2; at_end++) {
        expand(at_end ? "npy $/images.npy | take 24 | cast float32 | batch 12"
                      : "npy $/images.npy | cast float32 | batch 12 remainder=keep",
               text);
        struct session session;
        struct consumer consumer = consumer_new(CUDA);
        session_open(&session, text, &(struct how){ .threads = 0, .device = CUDA, .slots = 2 });
        brim_loader *loader = session.loader;
        brim_batch *batch, *held = NULL;
        CUstream stream = hold_a_copy(loader, &batch);
        brim_batch_release(batch);
        if (!at_end) {
            MUST(brim_loader_next(loader, A_MINUTE, &held));
            assert_int_equal(brim_loader_next(loader, 0, &batch), BRIM_STATUS_HELD);
        }
        let_it_fail(loader, stream);
        assert_int_equal(brim_loader_next(loader, A_MINUTE, &batch), BRIM_STATUS_DRIVER);
        if (held != NULL) {
            brim_batch_release(held);
        }
        MUST(brim_loader_seek(loader, 0, 0));
        struct digest digest = { 0 };
        assert_true(take_batches(&session, TO_THE_END, digest_batch, &digest));
        assert_same(digest, on_host(text, 1));
        session_close(&session);
        consumer_close(&consumer);
        check_standin();
    }
}

/* What a sequencer has made, and could not be copied, keeps a slot of the device to be copied
 * into: all other slots may hold batches that come after it. Only for a firm charge does it go, with
 * these, to be made again. */
static void keep_a_slot(bool firmly) {
    char text[TEXT_BYTES];
    expand("zip (npy $/images.npy name=image) (npy $/classes.npy name=label) | filter 'label<9' | "
           "cast float32 on=image | batch 6 remainder=keep",
           text);
    brim_open_options options = open_options("training");
    options.device_kind = CUDA;
    options.growth = BRIM_GROWTH_FIXED;
    const brim_plan_info info = plan_alone(1, text, &options);
    brim_runtime_options limits = BRIM_RUNTIME_OPTIONS_INIT;
    limits.threads = 1;
    limits.host_bytes = UINT64_C(64) << 20;
    limits.device_bytes = info.minimum_device_bytes + info.device_slot_bytes;
    brim_runtime *runtime;
    brim_loader *loader;
    brim_batch *batch;
    struct digest digest = { 0 };
    struct consumer consumer = consumer_new(CUDA); /* its context is current here */
    MUST(brim_runtime_new(&limits, &runtime));
    MUST(try_open(runtime, text, &options, &loader));
    MUST(brim_loader_next(loader, A_MINUTE, &batch)); /* the queue is there from now on */
    brim_batch_release(batch);
    await(count_ready, loader, 3); /* all that there are */
    await(count_uploaded, loader, 0);
    CUstream stream = loader->uploader->queue.handle;
    assert_int_equal(cuda_standin_hold(stream), CUDA_SUCCESS);
    MUST(brim_loader_seek(loader, 0, 0));
    await(count_ready, loader, 3);
    arm_one_failure(); /* the first that is seen to be done, by the worker */
    finish(stream);
    await(count_ready, loader, 2);
    brim__fault_arm(0, 0, false);
    brim_budget *root = brim_runtime_budget(runtime);
    const brim_memory kind = brim_device_memory(CUDA, 0);
    if (firmly) {
        MUST(brim_budget_charge(root, kind, info.device_slot_bytes));
        brim_budget_uncharge(root, kind, info.device_slot_bytes);
    } else {
        assert_int_equal(brim__chain_revoke(loader, kind, info.device_slot_bytes, false), 0);
    }
    unsigned errors = 0;
    for (;;) {
        const brim_status status = brim_loader_next(loader, A_MINUTE, &batch);
        if (status == BRIM_STATUS_DRIVER) {
            errors++;
            continue;
        }
        if (status == BRIM_STATUS_END) {
            break;
        }
        MUST(status);
        digest_batch(&digest, batch);
        brim_batch_release(batch);
    }
    assert_int_equal(errors, firmly ? 0 : 1);
    assert_same(digest, on_host(text, 1));
    brim_loader_close(loader);
    brim_runtime_free(runtime);
    consumer_close(&consumer);
    check_standin();
}

static void test_a_sequenced_batch_keeps_a_slot(void **state) {
    (void)state;
    keep_a_slot(false);
    keep_a_slot(true);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_captures_are_not_spoilt, reset),
        cmocka_unit_test_setup(test_a_slot_whose_reader_is_unknown, reset),
        cmocka_unit_test_setup(test_rows_stay_while_a_batch_is_uploaded, reset),
        cmocka_unit_test_setup(test_a_copy_that_fails_after_a_seek, reset),
        cmocka_unit_test_setup(test_a_copy_that_fails_after_the_release, reset),
        cmocka_unit_test_setup(test_a_failure_comes_before_held_and_end, reset),
        cmocka_unit_test_setup(test_a_sequenced_batch_keeps_a_slot, reset),
    };
    return cmocka_run_group_tests(tests, begin_upload_tests, end_tests);
}

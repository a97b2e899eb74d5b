/*
 * test_device_cuda.c: CUDA devices through device.h, on the stand-in for CUDA's driver.
 *
 * The stand-in finds what is done wrong without showing in the results (memory that is
 * freed while it is used, contexts left behind, leaks): every test ends with asking it.
 * Order is tested by holding a stream: what must come after it cannot be done, however
 * long one looks, and what does not depend on it is waited for.
 */
#include "support/support.h"

#include "base/fault.h"
#include "base/platform.h"
#include "cuda_standin.h"
#include "device/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES 65536u

/* --------------------------------------------------------------------- tools */

static uint64_t count_of(enum cuda_standin_counter counter) {
    return cuda_standin_get(counter);
}

static void assert_clean(void) {
    assert_string_equal(cuda_standin_violation(0), "");
    assert_int_equal(count_of(CUDA_STANDIN_violations), 0);
    assert_int_equal(count_of(CUDA_STANDIN_depth), 0);
    assert_true(cuda_standin_empty());
}

static int begin_test(void **state) {
    (void)state;
    brim__fault_arm(0, 0, false);
    cuda_standin_reset();
    return 0;
}

/* Everything that a loader has on a device: an open device, a queue, page-locked pages and
 * device memory of the same size. */
struct rig {
    struct brim__device device;
    struct brim__queue queue;
    struct brim__pages pages;
    void *pin;
    bool pinned;
    struct brim__device_memory memory;
};

static brim_status begin_rig(struct rig *rig, uint32_t index, void *queue) {
    *rig = (struct rig){ .pinned = false };
    brim_status status = brim__pages_new(&rig->pages, NULL, BYTES, false, false);
    if (status == BRIM_OK) {
        status = brim__device_open(&rig->device, BRIM_DEVICE_CUDA, index, queue, NULL);
    }
    if (status == BRIM_OK) {
        status = brim__device_pin(&rig->device, rig->pages.memory, BYTES, &rig->pin);
        rig->pinned = status == BRIM_OK;
    }
    if (status == BRIM_OK) {
        status = brim__queue_new(&rig->device, &rig->queue);
    }
    if (status == BRIM_OK) {
        status = brim__device_take(&rig->device, BYTES, &rig->memory);
    }
    return status;
}

static void end_rig(struct rig *rig) {
    brim__queue_free(&rig->queue);
    brim__device_give(&rig->device, &rig->memory);
    if (rig->pinned) {
        brim__device_unpin(&rig->device, rig->pages.memory, rig->pin);
        rig->pinned = false;
    }
    brim__device_close(&rig->device);
    brim__pages_free(&rig->pages);
}

static CUdeviceptr address_of(const struct brim__device_memory *memory) {
    return (CUdeviceptr)(uintptr_t)memory->handle;
}

static void fill(struct rig *rig, int value) {
    memset(rig->pages.memory, value, BYTES);
}

/* The bytes of device memory, all the same. */
static uint8_t value_of(const struct brim__device_memory *memory) {
    static uint8_t bytes[BYTES];
    assert_int_equal(cuda_standin_peek(address_of(memory), bytes, memory->bytes), CUDA_SUCCESS);
    for (size_t i = 1; i < memory->bytes; i++) {
        assert_int_equal(bytes[i], bytes[0]);
    }
    return bytes[0];
}

/* The consumer: it has the device's primary context current on this thread, and streams. */
static CUcontext begin_consumer(CUdevice device) {
    CUcontext context = NULL;
    assert_int_equal(cuDevicePrimaryCtxRetain(&context, device), CUDA_SUCCESS);
    assert_int_equal(cuCtxPushCurrent_v2(context), CUDA_SUCCESS);
    return context;
}

static void end_consumer(CUcontext context, CUdevice device) {
    CUcontext popped = NULL;
    assert_int_equal(cuCtxPopCurrent_v2(&popped), CUDA_SUCCESS);
    assert_ptr_equal(popped, context);
    assert_int_equal(cuDevicePrimaryCtxRelease_v2(device), CUDA_SUCCESS);
}

static CUstream new_stream(unsigned flags) {
    CUstream stream = NULL;
    assert_int_equal(cuStreamCreate(&stream, flags), CUDA_SUCCESS);
    return stream;
}

/* ------------------------------------------------------------------- devices */

static void test_devices_are_told(void **state) {
    (void)state;
    uint32_t count = 0;
    assert_int_equal(brim_device_count(BRIM_DEVICE_CUDA, &count), BRIM_OK);
    assert_int_equal(count, CUDA_STANDIN_DEVICES);
    cuda_standin_limit(1, 5000);
    brim_device_info info = BRIM_DEVICE_INFO_INIT;
    assert_int_equal(brim_device_read(BRIM_DEVICE_CUDA, 1, &info), BRIM_OK);
    assert_int_equal(info.kind, BRIM_DEVICE_CUDA);
    assert_int_equal(info.index, 1);
    assert_string_equal(info.name, "Stand-in 1");
    assert_string_equal(info.driver, "CUDA 13.0");
    assert_int_equal(info.total_bytes, 5000);
    assert_int_equal(info.free_bytes, 5000);
    assert_int_equal(info.largest_bytes, BRIM_UNLIMITED);
    assert_int_equal(info.unified, 0);
    assert_int_equal(info.converts, 0);
    assert_int_equal(brim_device_read(BRIM_DEVICE_CUDA, CUDA_STANDIN_DEVICES, &info),
                     BRIM_STATUS_INVALID);
    assert_clean();
}

static void test_free_memory_is_what_others_left(void **state) {
    (void)state;
    struct rig rig;
    brim_device_info info = BRIM_DEVICE_INFO_INIT;
    assert_int_equal(begin_rig(&rig, 0, NULL), BRIM_OK);
    assert_int_equal(brim_device_read(BRIM_DEVICE_CUDA, 0, &info), BRIM_OK);
    assert_int_equal(info.free_bytes, CUDA_STANDIN_BYTES - BYTES);
    end_rig(&rig);
    /* a device that gives no context is told all the same */
    cuda_standin_fail("cuDevicePrimaryCtxRetain", 1, CUDA_ERROR_OUT_OF_MEMORY, true);
    assert_int_equal(brim_device_read(BRIM_DEVICE_CUDA, 0, &info), BRIM_OK);
    assert_int_equal(info.total_bytes, CUDA_STANDIN_BYTES);
    assert_int_equal(info.free_bytes, BRIM_UNKNOWN);
    assert_int_equal(brim__device_open(&rig.device, BRIM_DEVICE_CUDA, 0, NULL, NULL),
                     BRIM_STATUS_MEMORY);
    assert_non_null(strstr(brim_detail(), "cuda:0"));
    assert_non_null(strstr(brim_detail(), "CUDA_ERROR_OUT_OF_MEMORY (out of memory)"));
    assert_clean();
}

static void test_contexts_are_shared_and_given_back(void **state) {
    (void)state;
    struct rig a, b, other;
    assert_int_equal(begin_rig(&a, 0, NULL), BRIM_OK);
    assert_int_equal(begin_rig(&b, 0, NULL), BRIM_OK);
    assert_int_equal(begin_rig(&other, 1, NULL), BRIM_OK);
    assert_ptr_equal(a.device.context, b.device.context);
    assert_ptr_not_equal(a.device.context, other.device.context);
    assert_int_equal(count_of(CUDA_STANDIN_retained), 3);
    end_rig(&a);
    assert_int_equal(count_of(CUDA_STANDIN_retained), 2);
    end_rig(&b);
    end_rig(&other);
    end_rig(&other); /* harmless twice */
    assert_clean();
}

/* -------------------------------------------------------------------- copies */

static void test_copies_there_within_and_back(void **state) {
    (void)state;
    struct rig rig;
    struct brim__event done = { 0 };
    struct brim__device_memory second = { 0 };
    assert_int_equal(begin_rig(&rig, 1, NULL), BRIM_OK);
    assert_int_equal(brim__device_take(&rig.device, 1000, &second), BRIM_OK);
    assert_int_equal(address_of(&rig.memory) % 64, 0);
    assert_int_equal(address_of(&second) % 64, 0);
    fill_random(rig.pages.memory, BYTES, 7);
    uint8_t *back = rig.pages.memory + 4096, sent[100];
    memcpy(sent, rig.pages.memory + 3, sizeof sent);
    assert_int_equal(
        brim__queue_write(&rig.queue, &rig.memory, 17, rig.pages.memory + 3, sizeof sent), BRIM_OK);
    assert_int_equal(brim__queue_copy(&rig.queue, &second, 900, &rig.memory, 17, sizeof sent),
                     BRIM_OK);
    assert_int_equal(brim__queue_read(&rig.queue, back, &second, 900, sizeof sent), BRIM_OK);
    assert_int_equal(brim__queue_flush(&rig.queue), BRIM_OK);
    assert_int_equal(brim__queue_record(&rig.queue, &done), BRIM_OK);
    assert_int_equal(brim__event_wait(&rig.device, &done), BRIM_OK);
    assert_int_equal(brim__event_poll(&rig.device, &done), BRIM_OK);
    assert_memory_equal(back, sent, sizeof sent);
    assert_int_equal(count_of(CUDA_STANDIN_copies_in), 1);
    assert_int_equal(count_of(CUDA_STANDIN_bytes_in), sizeof sent);
    assert_int_equal(count_of(CUDA_STANDIN_copies_within), 1);
    assert_int_equal(count_of(CUDA_STANDIN_copies_back), 1);
    assert_int_equal(count_of(CUDA_STANDIN_not_locked), 0);
    /* no bytes are no call */
    assert_int_equal(brim__queue_write(&rig.queue, &rig.memory, BYTES, back, 0), BRIM_OK);
    assert_int_equal(count_of(CUDA_STANDIN_copies_in), 1);
    brim__event_free(&rig.device, &done);
    brim__event_free(&rig.device, &done); /* harmless twice */
    brim__device_give(&rig.device, &second);
    brim__device_give(&rig.device, &second);
    end_rig(&rig);
    assert_clean();
}

static void test_rows_are_gathered_by_copies(void **state) {
    (void)state;
    enum { ROW = 24, ROWS = 5, PART_ROWS = 3 };
    struct rig rig;
    struct brim__device_memory parts[2] = { { 0 } }, gathered = { 0 };
    struct brim__event done = { 0 };
    const uint32_t number[ROWS] = { 4, 0, UINT32_MAX, 2, 3 };
    assert_int_equal(begin_rig(&rig, 0, NULL), BRIM_OK);
    assert_false(brim__device_converts(&rig.device));
    uint8_t *rows = rig.pages.memory, *back = rig.pages.memory + 4096;
    fill_random(rows, 6 * ROW, 9);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(brim__device_take(&rig.device, PART_ROWS * ROW, &parts[i]), BRIM_OK);
        assert_int_equal(brim__queue_write(&rig.queue, &parts[i], 0, rows + i * PART_ROWS * ROW,
                                           PART_ROWS * ROW),
                         BRIM_OK);
    }
    assert_int_equal(brim__device_take(&rig.device, ROWS * ROW, &gathered), BRIM_OK);
    memset(back, 0, ROWS * ROW);
    assert_int_equal(brim__queue_write(&rig.queue, &gathered, 0, back, ROWS * ROW), BRIM_OK);
    const struct brim__gather gather = {
        .part = { &parts[0], &parts[1] },
        .part_rows = PART_ROWS,
        .source_row = ROW,
        .destination = &gathered,
        .destination_row = ROW,
        .row_bytes = ROW,
        .rows = ROWS,
        .number = number,
    };
    assert_int_equal(brim__queue_gather(&rig.queue, &gather), BRIM_OK);
    assert_int_equal(brim__queue_read(&rig.queue, back, &gathered, 0, ROWS * ROW), BRIM_OK);
    assert_int_equal(brim__queue_record(&rig.queue, &done), BRIM_OK);
    assert_int_equal(brim__event_wait(&rig.device, &done), BRIM_OK);
    const uint8_t nothing[ROW] = { 0 };
    for (int i = 0; i < ROWS; i++) {
        assert_memory_equal(back + i * ROW, i == 2 ? nothing : rows + number[i] * ROW, ROW);
    }
    brim__event_free(&rig.device, &done);
    brim__device_give(&rig.device, &gathered);
    brim__device_give(&rig.device, &parts[0]);
    brim__device_give(&rig.device, &parts[1]);
    end_rig(&rig);
    assert_clean();
}

static void test_memory_that_is_not_locked_is_noticed(void **state) {
    (void)state;
    struct rig rig;
    struct brim__event done = { 0 };
    static uint8_t plain[64];
    assert_int_equal(begin_rig(&rig, 0, NULL), BRIM_OK);
    assert_int_equal(brim__queue_write(&rig.queue, &rig.memory, 0, plain, sizeof plain), BRIM_OK);
    assert_int_equal(brim__queue_record(&rig.queue, &done), BRIM_OK);
    assert_int_equal(brim__event_wait(&rig.device, &done), BRIM_OK);
    assert_int_equal(count_of(CUDA_STANDIN_not_locked), 1);
    brim__event_free(&rig.device, &done);
    end_rig(&rig);
    assert_clean();
}

/* --------------------------------------------------------------------- order */

static void test_an_event_is_done_when_all_before_it_is(void **state) {
    (void)state;
    struct rig rig;
    struct brim__event before = { 0 }, after = { 0 };
    assert_int_equal(begin_rig(&rig, 0, NULL), BRIM_OK);
    const CUcontext context = begin_consumer(0);
    assert_int_equal(brim__queue_record(&rig.queue, &before), BRIM_OK);
    assert_int_equal(brim__event_wait(&rig.device, &before), BRIM_OK);
    assert_int_equal(cuda_standin_hold(rig.queue.handle), CUDA_SUCCESS);
    fill(&rig, 1);
    assert_int_equal(brim__queue_write(&rig.queue, &rig.memory, 0, rig.pages.memory, BYTES),
                     BRIM_OK);
    assert_int_equal(brim__queue_record(&rig.queue, &after), BRIM_OK);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(brim__event_poll(&rig.device, &before), BRIM_OK);
        assert_int_equal(brim__event_poll(&rig.device, &after), BRIM_STATUS_TIMEOUT);
    }
    assert_int_not_equal(value_of(&rig.memory), 1);
    assert_int_equal(cuda_standin_go_on(rig.queue.handle), CUDA_SUCCESS);
    assert_int_equal(brim__event_wait(&rig.device, &after), BRIM_OK);
    assert_int_equal(brim__event_poll(&rig.device, &after), BRIM_OK);
    assert_int_equal(value_of(&rig.memory), 1);
    brim__event_free(&rig.device, &before);
    brim__event_free(&rig.device, &after);
    const struct brim__event none = { 0 }; /* which counts as done */
    assert_int_equal(brim__event_poll(&rig.device, &none), BRIM_OK);
    assert_int_equal(brim__event_wait(&rig.device, &none), BRIM_OK);
    assert_int_equal(brim__queue_wait(&rig.queue, &none), BRIM_OK);
    end_consumer(context, 0);
    end_rig(&rig);
    assert_clean();
}

static void test_a_queue_waits_for_an_event_of_another(void **state) {
    (void)state;
    struct rig rig;
    struct brim__queue second = { 0 };
    struct brim__event first_done = { 0 }, second_done = { 0 };
    assert_int_equal(begin_rig(&rig, 0, NULL), BRIM_OK);
    const CUcontext context = begin_consumer(0);
    assert_int_equal(brim__queue_new(&rig.device, &second), BRIM_OK);
    assert_int_equal(cuda_standin_hold(rig.queue.handle), CUDA_SUCCESS);
    fill(&rig, 2);
    assert_int_equal(brim__queue_write(&rig.queue, &rig.memory, 0, rig.pages.memory, BYTES),
                     BRIM_OK);
    assert_int_equal(brim__queue_record(&rig.queue, &first_done), BRIM_OK);
    assert_int_equal(brim__queue_wait(&second, &first_done), BRIM_OK);
    /* a wait keeps what it needs */
    brim__event_free(&rig.device, &first_done);
    uint8_t seen[100] = { 0 };
    assert_int_equal(brim__queue_read(&second, seen, &rig.memory, 50, sizeof seen), BRIM_OK);
    assert_int_equal(brim__queue_record(&second, &second_done), BRIM_OK);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(brim__event_poll(&rig.device, &second_done), BRIM_STATUS_TIMEOUT);
    }
    assert_int_equal(cuda_standin_go_on(rig.queue.handle), CUDA_SUCCESS);
    assert_int_equal(brim__event_wait(&rig.device, &second_done), BRIM_OK);
    for (size_t i = 0; i < sizeof seen; i++) {
        assert_int_equal(seen[i], 2);
    }
    brim__event_free(&rig.device, &second_done);
    brim__queue_free(&second);
    brim__queue_free(&second); /* harmless twice */
    end_consumer(context, 0);
    end_rig(&rig);
    assert_clean();
}

/* A batch is used by a kernel of the consumer's, released while it is still ahead, and its
 * memory filled again: with the wait the kernel reads the batch, without it the next one. */
static void reuse(CUstream stream, bool wait, uint8_t expected) {
    struct rig rig;
    struct brim__queue consumer = { 0 };
    struct brim__event ready = { 0 }, released = { 0 }, refilled = { 0 };
    uint8_t seen[BYTES];
    assert_int_equal(begin_rig(&rig, 0, stream), BRIM_OK);
    assert_int_equal(brim__queue_of(&rig.device, stream, &consumer), BRIM_OK);
    assert_int_equal(cuda_standin_hold(stream), CUDA_SUCCESS);
    fill(&rig, 3);
    assert_int_equal(brim__queue_write(&rig.queue, &rig.memory, 0, rig.pages.memory, BYTES),
                     BRIM_OK);
    assert_int_equal(brim__queue_record(&rig.queue, &ready), BRIM_OK);
    assert_int_equal(brim__queue_wait(&consumer, &ready), BRIM_OK);
    assert_int_equal(cuda_standin_read(stream, address_of(&rig.memory), seen, BYTES, 1000),
                     CUDA_SUCCESS);
    assert_int_equal(brim__queue_record(&consumer, &released), BRIM_OK);
    assert_int_equal(brim__event_wait(&rig.device, &ready), BRIM_OK);
    fill(&rig, 4);
    if (wait) {
        assert_int_equal(brim__queue_wait(&rig.queue, &released), BRIM_OK);
    }
    assert_int_equal(brim__queue_write(&rig.queue, &rig.memory, 0, rig.pages.memory, BYTES),
                     BRIM_OK);
    assert_int_equal(brim__queue_record(&rig.queue, &refilled), BRIM_OK);
    if (!wait) {
        assert_int_equal(brim__event_wait(&rig.device, &refilled), BRIM_OK);
    }
    assert_int_equal(brim__event_poll(&rig.device, &released), BRIM_STATUS_TIMEOUT);
    assert_int_equal(cuda_standin_go_on(stream), CUDA_SUCCESS);
    assert_int_equal(brim__event_wait(&rig.device, &refilled), BRIM_OK);
    assert_int_equal(brim__event_wait(&rig.device, &released), BRIM_OK);
    for (size_t i = 0; i < BYTES; i++) {
        assert_int_equal(seen[i], expected);
    }
    assert_int_equal(value_of(&rig.memory), 4);
    brim__event_free(&rig.device, &ready);
    brim__event_free(&rig.device, &released);
    brim__event_free(&rig.device, &refilled);
    brim__queue_free(&consumer); /* which is not brim's: nothing happens to it */
    end_rig(&rig);
}

static void test_memory_is_refilled_behind_its_reader(void **state) {
    (void)state;
    const CUcontext context = begin_consumer(0);
    const CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    reuse(stream, true, 3);
    reuse(stream, false, 4);
    reuse(CU_STREAM_LEGACY, true, 3);
    reuse(CU_STREAM_LEGACY, false, 4); /* no implicit order holds our copies back */
    reuse(CU_STREAM_PER_THREAD, true, 3);
    reuse(CU_STREAM_PER_THREAD, false, 4);
    assert_int_equal(cuStreamDestroy_v2(stream), CUDA_SUCCESS);
    end_consumer(context, 0);
    assert_clean();
}

/* A mark in the legacy stream comes after what ordinary streams hold. */
static void test_the_legacy_stream_waits_for_ordinary_ones(void **state) {
    (void)state;
    struct rig rig;
    struct brim__queue legacy = { 0 };
    struct brim__event own = { 0 }, released = { 0 };
    const CUcontext context = begin_consumer(0);
    const CUstream ordinary = new_stream(0);
    uint8_t seen[64];
    assert_int_equal(begin_rig(&rig, 0, CU_STREAM_LEGACY), BRIM_OK);
    assert_int_equal(brim__queue_of(&rig.device, CU_STREAM_LEGACY, &legacy), BRIM_OK);
    assert_int_equal(cuda_standin_hold(ordinary), CUDA_SUCCESS);
    assert_int_equal(cuda_standin_read(ordinary, address_of(&rig.memory), seen, sizeof seen, 0),
                     CUDA_SUCCESS);
    assert_int_equal(brim__queue_record(&legacy, &released), BRIM_OK);
    assert_int_equal(brim__queue_record(&rig.queue, &own), BRIM_OK);
    assert_int_equal(brim__event_wait(&rig.device, &own), BRIM_OK);
    assert_int_equal(brim__event_poll(&rig.device, &released), BRIM_STATUS_TIMEOUT);
    assert_int_equal(cuda_standin_go_on(ordinary), CUDA_SUCCESS);
    assert_int_equal(brim__event_wait(&rig.device, &released), BRIM_OK);
    brim__event_free(&rig.device, &own);
    brim__event_free(&rig.device, &released);
    assert_int_equal(cuStreamDestroy_v2(ordinary), CUDA_SUCCESS);
    end_rig(&rig);
    end_consumer(context, 0);
    assert_clean();
}

static void test_streams_of_other_contexts_are_refused(void **state) {
    (void)state;
    struct rig rig;
    struct brim__queue queue = { 0 };
    const CUcontext context = begin_consumer(1);
    const CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    assert_int_equal(begin_rig(&rig, 0, stream), BRIM_STATUS_INVALID);
    assert_non_null(strstr(brim_detail(), "primary context of cuda:0"));
    end_rig(&rig);
    assert_int_equal(count_of(CUDA_STANDIN_retained), 1); /* the consumer's */
    assert_int_equal(begin_rig(&rig, 1, stream), BRIM_OK);
    assert_int_equal(brim__queue_of(&rig.device, (void *)3, &queue), BRIM_STATUS_INVALID);
    assert_non_null(strstr(brim_detail(), "1 (the legacy default stream)"));
    end_rig(&rig);
    assert_int_equal(cuStreamDestroy_v2(stream), CUDA_SUCCESS);
    end_consumer(context, 1);
    assert_clean();
}

/* ------------------------------------------------------------------ lifetimes */

static void test_a_queue_is_freed_when_it_is_done(void **state) {
    (void)state;
    struct rig rig;
    struct brim__event event = { 0 };
    assert_int_equal(begin_rig(&rig, 0, NULL), BRIM_OK);
    cuda_standin_delay(2000);
    fill(&rig, 5);
    assert_int_equal(brim__queue_write(&rig.queue, &rig.memory, 0, rig.pages.memory, BYTES),
                     BRIM_OK);
    assert_int_equal(brim__queue_record(&rig.queue, &event), BRIM_OK);
    brim__event_free(&rig.device, &event); /* while it is ahead */
    brim__queue_free(&rig.queue);
    assert_int_equal(value_of(&rig.memory), 5);
    end_rig(&rig); /* nothing uses the memory any more: the stand-in would tell */
    assert_clean();
}

static void test_memory_is_refused_with_its_numbers(void **state) {
    (void)state;
    struct rig rig;
    struct brim__device_memory more = { 0 };
    cuda_standin_limit(0, 3 * BYTES);
    assert_int_equal(begin_rig(&rig, 0, NULL), BRIM_OK);
    assert_int_equal(brim__device_take(&rig.device, 2 * BYTES + 1, &more), BRIM_STATUS_MEMORY);
    assert_null(more.handle);
    assert_non_null(strstr(brim_detail(), "CUDA_ERROR_OUT_OF_MEMORY"));
    assert_non_null(strstr(brim_detail(), "128.0 KiB of 192.0 KiB are free"));
    assert_int_equal(brim__device_take(&rig.device, UINT64_MAX, &more), BRIM_STATUS_MEMORY);
    assert_int_equal(brim__device_take(&rig.device, 2 * BYTES, &more), BRIM_OK);
    brim__device_give(&rig.device, &more);
    end_rig(&rig);
    assert_clean();
}

static void test_page_locking_is_refused(void **state) {
    (void)state;
    struct rig rig;
    struct brim__pages pages = { 0 };
    void *pin = NULL;
    assert_int_equal(begin_rig(&rig, 0, NULL), BRIM_OK);
    assert_int_equal(brim__device_pin(&rig.device, rig.pages.memory, BYTES, &pin),
                     BRIM_STATUS_DRIVER);
    assert_non_null(strstr(brim_detail(), "page-locked (registered with CUDA) already"));
    cuda_standin_limit_locked(2 * BYTES - 1);
    assert_int_equal(brim__pages_new(&pages, NULL, BYTES, false, false), BRIM_OK);
    assert_int_equal(brim__device_pin(&rig.device, pages.memory, BYTES, &pin), BRIM_STATUS_MEMORY);
    assert_non_null(strstr(brim_detail(), "page-locking 64.0 KiB"));
    cuda_standin_limit_locked(2 * BYTES);
    assert_int_equal(brim__device_pin(&rig.device, pages.memory, BYTES, &pin), BRIM_OK);
    assert_int_equal(count_of(CUDA_STANDIN_locked_bytes), 2 * BYTES);
    brim__device_unpin(&rig.device, pages.memory, pin);
    brim__pages_free(&pages);
    end_rig(&rig);
    assert_clean();
}

/* At the end of a process the driver may go first. */
static void test_freeing_after_the_driver_is_gone(void **state) {
    (void)state;
    struct rig rig;
    struct brim__event event = { 0 };
    assert_int_equal(begin_rig(&rig, 0, NULL), BRIM_OK);
    assert_int_equal(brim__queue_record(&rig.queue, &event), BRIM_OK);
    cuda_standin_fail(NULL, 1, CUDA_ERROR_DEINITIALIZED, true);
    assert_int_equal(brim__event_poll(&rig.device, &event), BRIM_STATUS_DRIVER);
    assert_non_null(strstr(brim_detail(), "CUDA_ERROR_DEINITIALIZED (driver shutting down)"));
    brim__event_free(&rig.device, &event);
    brim__queue_free(&rig.queue);
    brim__device_give(&rig.device, &rig.memory);
    brim__device_unpin(&rig.device, rig.pages.memory, rig.pin);
    assert_string_equal(cuda_standin_violation(0), "");
    assert_int_equal(count_of(CUDA_STANDIN_depth), 0);
    cuda_standin_reset(); /* which drops what the driver would have */
    cuda_standin_fail(NULL, 1, CUDA_ERROR_DEINITIALIZED, true);
    brim__device_unpin(&rig.device, rig.pages.memory, rig.pin);
    cuda_standin_fail(NULL, 0, CUDA_SUCCESS, false);
    brim__pages_free(&rig.pages);
    assert_clean();
}

/* ------------------------------------------------------------------- failures */

/* All calls that there are, once. */
static brim_status do_everything(void) {
    struct rig rig;
    struct brim__queue consumer = { 0 };
    struct brim__event ready = { 0 }, released = { 0 };
    brim_device_info info = BRIM_DEVICE_INFO_INIT;
    brim_status status = brim_device_read(BRIM_DEVICE_CUDA, 0, &info);
    if (status != BRIM_OK) {
        return status;
    }
    status = begin_rig(&rig, 0, CU_STREAM_PER_THREAD);
    if (status == BRIM_OK) { /* one that is looked at */
        status = brim__queue_of(&rig.device, rig.queue.handle, &consumer);
    }
    if (status == BRIM_OK) {
        status = brim__queue_of(&rig.device, CU_STREAM_PER_THREAD, &consumer);
    }
    if (status == BRIM_OK) {
        fill(&rig, 6);
        status = brim__queue_write(&rig.queue, &rig.memory, 0, rig.pages.memory, 4096);
    }
    if (status == BRIM_OK) {
        status = brim__queue_copy(&rig.queue, &rig.memory, 4096, &rig.memory, 0, 4096);
    }
    if (status == BRIM_OK) {
        status = brim__queue_read(&rig.queue, rig.pages.memory + 8192, &rig.memory, 4096, 4096);
    }
    if (status == BRIM_OK) {
        status = brim__queue_flush(&rig.queue);
    }
    if (status == BRIM_OK) {
        status = brim__queue_record(&rig.queue, &ready);
    }
    if (status == BRIM_OK) {
        status = brim__queue_wait(&consumer, &ready);
    }
    if (status == BRIM_OK) {
        status = brim__queue_record(&consumer, &released);
    }
    if (status == BRIM_OK) {
        status = brim__event_wait(&rig.device, &released);
    }
    if (status == BRIM_OK) {
        status = brim__event_poll(&rig.device, &released);
    }
    brim__event_free(&rig.device, &ready);
    brim__event_free(&rig.device, &released);
    end_rig(&rig);
    return status;
}

static void assert_told(brim_status status, const char *says) {
    assert_in_range(status, BRIM_OK, BRIM_STATUS_DRIVER);
    if (status != BRIM_OK) {
        assert_true(status == BRIM_STATUS_DRIVER || status == BRIM_STATUS_MEMORY);
        assert_non_null(strstr(brim_detail(), says));
    }
}

/* Every time that this entry point is called, once. How often nobody was told. */
static uint64_t fail_each(const char *call) {
    const bool pushes = strcmp(call, "cuCtxPushCurrent_v2") == 0;
    uint64_t told = 0, failed = 1;
    for (uint64_t nth = 1; failed > 0; nth++) {
        cuda_standin_reset();
        cuda_standin_fail(call, nth, CUDA_ERROR_ILLEGAL_ADDRESS, false);
        const brim_status status = do_everything();
        failed = count_of(CUDA_STANDIN_failed);
        told += status != BRIM_OK;
        assert_told(status, "CUDA_ERROR_ILLEGAL_ADDRESS");
        assert_int_equal(count_of(CUDA_STANDIN_depth), 0);
        if (pushes && status == BRIM_OK && failed > 0) {
            continue; /* what frees cannot without a context, and it stays */
        }
        assert_clean();
    }
    return told;
}

static void test_each_call_of_the_driver_fails_in_turn(void **state) {
    (void)state;
    static const struct {
        const char *call;
        bool told; /* those that free tell nobody, and those for texts are never refused */
    } calls[] = {
        { "cuInit", false }, /* done when the driver was loaded */
        { "cuDriverGetVersion", true },
        { "cuGetErrorName", false },
        { "cuGetErrorString", false },
        { "cuDeviceGetCount", true },
        { "cuDeviceGet", true },
        { "cuDeviceGetName", true },
        { "cuDeviceTotalMem_v2", true },
        { "cuDeviceGetAttribute", true },
        { "cuDevicePrimaryCtxRetain", true },
        { "cuDevicePrimaryCtxRelease_v2", false },
        { "cuCtxPushCurrent_v2", true },
        { "cuCtxPopCurrent_v2", false },
        { "cuThreadExchangeStreamCaptureMode", false },
        { "cuMemGetInfo_v2", false }, /* what is free is unknown then */
        { "cuMemAlloc_v2", true },
        { "cuMemFree_v2", false },
        { "cuMemHostRegister_v2", true },
        { "cuMemHostUnregister", false },
        { "cuMemcpyHtoDAsync_v2", true },
        { "cuMemcpyDtoHAsync_v2", true },
        { "cuMemcpyDtoDAsync_v2", true },
        { "cuStreamCreate", true },
        { "cuStreamDestroy_v2", false },
        { "cuStreamSynchronize", false },
        { "cuStreamGetCtx", true },
        { "cuStreamWaitEvent", true },
        { "cuEventCreate", true },
        { "cuEventDestroy_v2", false },
        { "cuEventRecord", true },
        { "cuEventQuery", true },
        { "cuEventSynchronize", true },
    };
#define X(symbol, parameters) +1
    assert_int_equal(BRIM__COUNT(calls), BRIM__CUDA_CALLS(X));
#undef X
    for (size_t i = 0; i < BRIM__COUNT(calls); i++) {
        const uint64_t told = fail_each(calls[i].call);
        if ((told > 0) != calls[i].told) {
            fail_msg("%s: %llu failures were told", calls[i].call, (unsigned long long)told);
        }
    }
    cuda_standin_reset();
    cuda_standin_fail("cuMemcpyHtoDAsync_v2", 1, (CUresult)12345, false);
    assert_int_equal(do_everything(), BRIM_STATUS_DRIVER);
    assert_string_equal(brim_detail(), "cuda:0: copying to the device, 4.0 KiB: error 12345, which "
                                       "the driver has no name for");
    assert_clean();
}

static void test_each_point_of_failure_in_turn(void **state) {
    (void)state;
    const unsigned device = 1u << BRIM__FAULT_DEVICE;
    brim__fault_arm(device, 0, false);
    assert_int_equal(do_everything(), BRIM_OK);
    const uint64_t points = brim__fault_passed(BRIM__FAULT_DEVICE);
    assert_in_range(points, 13, 100);
    for (uint64_t nth = 1; nth <= points; nth++) {
        brim__fault_arm(device, nth, false);
        assert_told(do_everything(), "cuda:0");
        assert_int_equal(brim__fault_injected(), 1);
        assert_clean();
    }
    brim__fault_arm(0, 0, false);
}

static void test_what_failed_on_the_device_is_told_by_its_event(void **state) {
    (void)state;
    struct rig rig;
    struct brim__event event = { 0 };
    assert_int_equal(begin_rig(&rig, 0, NULL), BRIM_OK);
    assert_int_equal(brim__queue_record(&rig.queue, &event), BRIM_OK);
    cuda_standin_fail("cuEventQuery", 1, CUDA_ERROR_ILLEGAL_ADDRESS, false);
    assert_int_equal(brim__event_poll(&rig.device, &event), BRIM_STATUS_DRIVER);
    assert_non_null(strstr(brim_detail(), "CUDA_ERROR_ILLEGAL_ADDRESS"));
    cuda_standin_fail("cuEventSynchronize", 1, CUDA_ERROR_ILLEGAL_ADDRESS, false);
    assert_int_equal(brim__event_wait(&rig.device, &event), BRIM_STATUS_DRIVER);
    brim__event_free(&rig.device, &event);
    end_rig(&rig);
    assert_clean();
}

/* -------------------------------------------------------------------- threads */

static void test_the_callers_context_stays(void **state) {
    (void)state;
    const CUcontext context = begin_consumer(1);
    assert_int_equal(do_everything(), BRIM_OK); /* on device 0 */
    assert_int_equal(count_of(CUDA_STANDIN_depth), 1);
    end_consumer(context, 1); /* which sees that it is the one that was pushed */
    assert_clean();
}

static void *run_rounds(void *failed) {
    for (int i = 0; i < 20; i++) {
        if (do_everything() != BRIM_OK || count_of(CUDA_STANDIN_depth) != 0) {
            *(bool *)failed = true;
        }
    }
    return NULL;
}

static void test_threads(void **state) {
    (void)state;
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    bool failed[THREADS] = { false };
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, run_rounds, &failed[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_false(failed[i]);
    }
    assert_clean();
}

static void test_a_child_that_only_exits(void **state) {
    (void)state;
    struct rig rig;
    struct brim__event event = { 0 };
    int ended = -1;
    assert_int_equal(begin_rig(&rig, 0, NULL), BRIM_OK);
    fflush(NULL); /* else the child writes it again */
    const pid_t child = fork();
    assert_int_not_equal(child, -1);
    if (child == 0) {
        exit(0);
    }
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_int_equal(ended, 0);
    assert_int_equal(count_of(CUDA_STANDIN_forked_calls), 0);
    fill(&rig, 8);
    assert_int_equal(brim__queue_write(&rig.queue, &rig.memory, 0, rig.pages.memory, BYTES),
                     BRIM_OK);
    assert_int_equal(brim__queue_record(&rig.queue, &event), BRIM_OK);
    assert_int_equal(brim__event_wait(&rig.device, &event), BRIM_OK);
    assert_int_equal(value_of(&rig.memory), 8);
    brim__event_free(&rig.device, &event);
    end_rig(&rig);
    assert_clean();
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup(name, begin_test)
    const struct CMUnitTest tests[] = {
        TEST(test_devices_are_told),
        TEST(test_free_memory_is_what_others_left),
        TEST(test_contexts_are_shared_and_given_back),
        TEST(test_copies_there_within_and_back),
        TEST(test_rows_are_gathered_by_copies),
        TEST(test_memory_that_is_not_locked_is_noticed),
        TEST(test_an_event_is_done_when_all_before_it_is),
        TEST(test_a_queue_waits_for_an_event_of_another),
        TEST(test_memory_is_refilled_behind_its_reader),
        TEST(test_the_legacy_stream_waits_for_ordinary_ones),
        TEST(test_streams_of_other_contexts_are_refused),
        TEST(test_a_queue_is_freed_when_it_is_done),
        TEST(test_memory_is_refused_with_its_numbers),
        TEST(test_page_locking_is_refused),
        TEST(test_freeing_after_the_driver_is_gone),
        TEST(test_each_call_of_the_driver_fails_in_turn),
        TEST(test_each_point_of_failure_in_turn),
        TEST(test_what_failed_on_the_device_is_told_by_its_event),
        TEST(test_the_callers_context_stays),
        TEST(test_threads),
        TEST(test_a_child_that_only_exits),
    };
    return cmocka_run_group_tests_name("device_cuda", tests, begin_tests, end_tests);
}

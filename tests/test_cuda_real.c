/*
 * test_cuda_real.c: CUDA devices on a real GPU, through the driver of this machine.
 *
 * Without a driver the answer says what was looked for, and that is all that is tested;
 * without a device the rest is skipped. The stand-in for CUDA's driver must not be what is
 * found here: it would make this test say something that it has not seen. (With the folder of
 * the stand-in in LD_LIBRARY_PATH all but the test that says so can be tried without a GPU.)
 */
#include "support/support.h"

#include "device/cuda_library.h"
#include "device/device.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES   (8u << 20)
#define SAMPLES 300
#define ROWS    32

static int begin(void **state) {
    static uint8_t pixels[SAMPLES * 32 * 30 * 3];
    static int64_t labels[SAMPLES];
    if (begin_tests(state) != 0) {
        return -1;
    }
    fill_random(pixels, sizeof pixels, 1);
    for (int64_t i = 0; i < SAMPLES; i++) {
        labels[i] = i * i;
    }
    write_npy("images.npy", BRIM_DTYPE_U8, 4, (const int64_t[]){ SAMPLES, 32, 30, 3 }, pixels);
    write_npy("labels.npy", BRIM_DTYPE_I64, 1, (const int64_t[]){ SAMPLES }, labels);
    return 0;
}

/* The number of devices, or the test is skipped. */
static uint32_t need_devices(void) {
    uint32_t count = 0;
    const brim_status status = brim_device_count(BRIM_DEVICE_CUDA, &count);
    if (status != BRIM_OK || count == 0) {
        print_message("skipped: %s\n", status != BRIM_OK ? brim_detail() : "there is no GPU");
        skip();
    }
    return count;
}

static void test_the_driver_is_no_stand_in(void **state) {
    (void)state;
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library != NULL) {
        assert_null(dlsym(library, "cuda_standin_get"));
        dlclose(library);
    }
}

static void test_a_driver_that_is_missing_is_named(void **state) {
    (void)state;
    uint32_t count = 0;
    const brim_status status = brim_device_count(BRIM_DEVICE_CUDA, &count);
    assert_true(status == BRIM_OK || status == BRIM_STATUS_UNSUPPORTED ||
                status == BRIM_STATUS_DRIVER);
    if (status != BRIM_OK) {
        assert_non_null(strstr(brim_detail(), "libcuda.so.1"));
        const brim_status again = brim_device_count(BRIM_DEVICE_CUDA, &count);
        assert_int_equal(again, status); /* and every time */
        assert_non_null(strstr(brim_detail(), "libcuda.so.1"));
        struct brim__device device;
        assert_int_equal(brim__device_open(&device, BRIM_DEVICE_CUDA, 0, NULL, NULL), status);
        brim__device_close(&device);
    }
}

static void test_devices_are_told(void **state) {
    (void)state;
    const uint32_t count = need_devices();
    for (uint32_t i = 0; i < count; i++) {
        brim_device_info info = BRIM_DEVICE_INFO_INIT;
        assert_int_equal(brim_device_read(BRIM_DEVICE_CUDA, i, &info), BRIM_OK);
        print_message("cuda:%u: %s, %s, %llu bytes, %llu free\n", i, info.name, info.driver,
                      (unsigned long long)info.total_bytes, (unsigned long long)info.free_bytes);
        assert_true(strlen(info.name) > 0);
        assert_in_range(info.total_bytes, 1, UINT64_MAX - 1);
        assert_true(info.free_bytes == BRIM_UNKNOWN || info.free_bytes <= info.total_bytes);
    }
}

static void test_bytes_go_there_and_back(void **state) {
    (void)state;
    const uint32_t count = need_devices();
    for (uint32_t i = 0; i < count; i++) {
        struct brim__device device;
        struct brim__queue queue, second;
        struct brim__pages pages = { 0 };
        struct brim__device_memory a, b;
        struct brim__event event = { 0 };
        void *pin = NULL;
        assert_int_equal(brim__device_open(&device, BRIM_DEVICE_CUDA, i, CU_STREAM_LEGACY, NULL),
                         BRIM_OK);
        assert_int_equal(brim__pages_new(&pages, NULL, 2 * BYTES, false, false), BRIM_OK);
        assert_int_equal(brim__device_pin(&device, pages.memory, 2 * BYTES, &pin), BRIM_OK);
        void *again = NULL;
        assert_int_not_equal(brim__device_pin(&device, pages.memory, 2 * BYTES, &again), BRIM_OK);
        assert_int_equal(brim__device_take(&device, BYTES, &a), BRIM_OK);
        assert_int_equal(brim__device_take(&device, BYTES, &b), BRIM_OK);
        assert_int_equal((uintptr_t)a.handle % 64, 0);
        assert_int_equal(brim__queue_new(&device, &queue), BRIM_OK);
        assert_int_equal(brim__queue_new(&device, &second), BRIM_OK);
        uint8_t *const back = pages.memory + BYTES;
        for (uint64_t round = 0; round < 20; round++) {
            fill_random(pages.memory, BYTES, round + 1);
            assert_int_equal(brim__queue_write(&queue, &a, 0, pages.memory, BYTES), BRIM_OK);
            assert_int_equal(brim__queue_copy(&queue, &b, 0, &a, 0, BYTES), BRIM_OK);
            assert_int_equal(brim__queue_record(&queue, &event), BRIM_OK);
            assert_int_equal(brim__queue_wait(&second, &event), BRIM_OK);
            brim__event_free(&device, &event);
            assert_int_equal(brim__queue_read(&second, back, &b, 0, BYTES), BRIM_OK);
            assert_int_equal(brim__queue_record(&second, &event), BRIM_OK);
            assert_int_equal(brim__event_wait(&device, &event), BRIM_OK);
            assert_int_equal(brim__event_poll(&device, &event), BRIM_OK);
            brim__event_free(&device, &event);
            assert_memory_equal(back, pages.memory, BYTES);
        }
        /* a mark in the consumer's streams */
        for (uintptr_t handle = 1; handle <= 2; handle++) {
            struct brim__queue consumer;
            assert_int_equal(brim__queue_of(&device, (void *)handle, &consumer), BRIM_OK);
            assert_int_equal(brim__queue_record(&consumer, &event), BRIM_OK);
            assert_int_equal(brim__queue_wait(&queue, &event), BRIM_OK);
            assert_int_equal(brim__event_wait(&device, &event), BRIM_OK);
            brim__event_free(&device, &event);
        }
        struct brim__device_memory large;
        assert_int_equal(brim__device_take(&device, UINT64_C(1) << 46, &large), BRIM_STATUS_MEMORY);
        brim__queue_free(&second);
        brim__queue_free(&queue);
        brim__device_give(&device, &b);
        brim__device_give(&device, &a);
        brim__device_unpin(&device, pages.memory, pin);
        brim__pages_free(&pages);
        brim__device_close(&device);
    }
}

/* ------------------------------------------------------------------- loaders */

static const char *pipeline_of(char text[TEXT_BYTES], const char *cache) {
    const struct path images = in_directory("images.npy"), labels = in_directory("labels.npy");
    format_text(text,
                "zip (npy %s name=image) (npy %s name=label) | shuffle seed=3 | normalize imagenet "
                "on=image | layout chw on=image | %sbatch %d remainder=keep",
                images.text, labels.text, cache, ROWS);
    return text;
}

static struct digest run(const char *text, const struct how *how, unsigned epochs) {
    struct session session;
    struct digest digest = { 0 };
    session_open(&session, text, how);
    for (unsigned i = 0; i < epochs; i++) {
        assert_true(take_batches(&session, TO_THE_END, digest_batch, &digest));
    }
    session_close(&session);
    return digest;
}

static void assert_same(struct digest a, struct digest b) {
    assert_int_equal(a.batches, b.batches);
    assert_int_equal(a.value, b.value);
}

static void test_batches_are_the_hosts(void **state) {
    (void)state;
    const uint32_t count = need_devices();
    char text[TEXT_BYTES];
    const struct digest wanted = run(pipeline_of(text, ""), &(struct how){ .threads = 0 }, 2);
    for (unsigned way = 0; way < 12; way++) {
        /* nobody's stream, the legacy default one, the thread's */
        const struct how how = { .threads = (int32_t)(way % 3),
                                 .hold = 1 + way / 6 * 2,
                                 .growth = way % 2 ? BRIM_GROWTH_FIXED : BRIM_GROWTH_ON_DEMAND,
                                 .device = BRIM_DEVICE_CUDA,
                                 .device_index = way % count,
                                 .queue = (void *)(uintptr_t)(way / 4),
                                 .device_bytes = way % 4 == 3 ? AT_MINIMUM : 64 << 20,
                                 .pinned_bytes = way % 4 == 3 ? AT_MINIMUM : 0 };
        assert_same(run(text, &how, 2), wanted);
    }
}

static uint64_t charged_of(brim_runtime *runtime, brim_memory kind) {
    brim_budget_info info = BRIM_BUDGET_INFO_INIT;
    assert_int_equal(brim_budget_read(brim_runtime_budget(runtime), kind, &info), BRIM_OK);
    return info.charged;
}

static void test_memory_is_flat_over_resets(void **state) {
    (void)state;
    (void)need_devices();
    char text[TEXT_BYTES];
    struct session session;
    struct digest wanted = { 0 };
    uint64_t device = 0, pinned = 0;
    session_open(
        &session, pipeline_of(text, ""),
        &(struct how){ .threads = 2, .growth = BRIM_GROWTH_FIXED, .device = BRIM_DEVICE_CUDA });
    for (unsigned i = 0; i < 100; i++) {
        struct digest digest = { 0 };
        assert_int_equal(brim_loader_seek(session.loader, 0, 0), BRIM_OK);
        assert_true(take_batches(&session, TO_THE_END, digest_batch, &digest));
        wanted = i == 0 ? digest : wanted;
        device = i == 0 ? charged_of(session.runtime, session.kind) : device;
        pinned = i == 0 ? charged_of(session.runtime, BRIM_MEMORY_PINNED) : pinned;
        assert_same(digest, wanted);
        assert_int_equal(charged_of(session.runtime, session.kind), device);
        assert_int_equal(charged_of(session.runtime, BRIM_MEMORY_PINNED), pinned);
    }
    session_close(&session);
}

/* Copied once, in the first epoch, and gathered there from then on. */
static void test_samples_stay(void **state) {
    (void)state;
    (void)need_devices();
    char text[TEXT_BYTES];
    const struct digest wanted = run(pipeline_of(text, ""), &(struct how){ .threads = 0 }, 5);
    pipeline_of(text, "cache device | ");
    for (int32_t threads = 0; threads < 3; threads++) {
        struct session session;
        struct digest digest = { 0 };
        uint64_t copied[5];
        session_open(&session, text,
                     &(struct how){ .threads = threads,
                                    .device = BRIM_DEVICE_CUDA,
                                    .device_bytes = 64 << 20 });
        for (unsigned i = 0; i < 5; i++) {
            brim_stats stats = BRIM_STATS_INIT;
            assert_true(take_batches(&session, TO_THE_END, digest_batch, &digest));
            assert_int_equal(brim_loader_read_stats(session.loader, &stats), BRIM_OK);
            copied[i] = stats.copied_bytes;
            if (i == 1) { /* they go, and come back */
                assert_int_equal(brim_runtime_trim(session.runtime, NULL), BRIM_OK);
            }
        }
        brim_cache_stats cache = BRIM_CACHE_STATS_INIT;
        assert_int_equal(brim_loader_read_cache_stats(session.loader, 0, &cache), BRIM_OK);
        assert_int_equal(cache.filled, SAMPLES);
        /* batches of the third epoch may have been on their way before */
        assert_true(copied[3] > copied[1]);
        assert_int_equal(copied[4], copied[3]);
        session_close(&session);
        assert_same(digest, wanted);
    }
}

/* A stream of the program's own, which reads batches that were given back already. */
static void test_released_after_a_stream(void **state) {
    (void)state;
    (void)need_devices();
    enum { BATCHES = (SAMPLES + ROWS - 1) / ROWS };
    const struct brim__cuda *cuda = NULL;
    CUcontext context = NULL, popped = NULL;
    CUstream stream = NULL;
    CUdevice device = 0;
    char text[TEXT_BYTES];
    struct session host, there;
    uint8_t *truth[BATCHES], *late[BATCHES];
    assert_int_equal(brim__cuda_load(&cuda, NULL), BRIM_OK);
    assert_int_equal(cuda->cuDeviceGet(&device, 0), CUDA_SUCCESS);
    assert_int_equal(cuda->cuDevicePrimaryCtxRetain(&context, device), CUDA_SUCCESS);
    assert_int_equal(cuda->cuCtxPushCurrent_v2(context), CUDA_SUCCESS);
    assert_int_equal(cuda->cuStreamCreate(&stream, 1 /* non-blocking */), CUDA_SUCCESS);
    session_open(&host, pipeline_of(text, ""), &(struct how){ .threads = 0 });
    session_open(&there, text,
                 &(struct how){ .threads = 2, .device = BRIM_DEVICE_CUDA, .slots = 2 });
    for (int round = 0; round < 10; round++) {
        uint64_t bytes[BATCHES];
        assert_int_equal(brim_loader_seek(host.loader, (uint64_t)round, 0), BRIM_OK);
        assert_int_equal(brim_loader_seek(there.loader, (uint64_t)round, 0), BRIM_OK);
        for (int i = 0; i < BATCHES; i++) {
            brim_batch *batch = take_batch(&host);
            bytes[i] = brim_batch_field_at(batch, 0)->bytes;
            truth[i] = malloc(bytes[i]);
            late[i] = calloc(1, bytes[i]);
            assert_int_equal(brim_batch_copy_field(batch, 0, truth[i], bytes[i]), BRIM_OK);
            brim_batch_release(batch);
            batch = take_batch(&there);
            const brim_field *field = brim_batch_field_at(batch, 0);
            assert_int_equal(field->bytes, bytes[i]);
            assert_int_equal(brim_batch_wait(batch, stream), BRIM_OK);
            assert_int_equal(cuda->cuMemcpyDtoHAsync_v2(
                                 late[i], (CUdeviceptr)(uintptr_t)field->data, bytes[i], stream),
                             CUDA_SUCCESS);
            brim_batch_release_after(batch, stream);
        }
        assert_int_equal(cuda->cuStreamSynchronize(stream), CUDA_SUCCESS);
        for (int i = 0; i < BATCHES; i++) {
            assert_memory_equal(late[i], truth[i], bytes[i]);
            free(late[i]);
            free(truth[i]);
        }
    }
    session_close(&there);
    session_close(&host);
    assert_int_equal(cuda->cuStreamDestroy_v2(stream), CUDA_SUCCESS);
    assert_int_equal(cuda->cuCtxPopCurrent_v2(&popped), CUDA_SUCCESS);
    assert_int_equal(cuda->cuDevicePrimaryCtxRelease_v2(device), CUDA_SUCCESS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_driver_is_no_stand_in),
        cmocka_unit_test(test_a_driver_that_is_missing_is_named),
        cmocka_unit_test(test_devices_are_told),
        cmocka_unit_test(test_bytes_go_there_and_back),
        cmocka_unit_test(test_batches_are_the_hosts),
        cmocka_unit_test(test_memory_is_flat_over_resets),
        cmocka_unit_test(test_samples_stay),
        cmocka_unit_test(test_released_after_a_stream),
    };
    return cmocka_run_group_tests_name("cuda_real", tests, begin, end_tests);
}

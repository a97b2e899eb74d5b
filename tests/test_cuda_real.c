/*
 * test_cuda_real.c: CUDA devices on a real GPU, through the driver of this machine.
 *
 * Without a driver the answer says what was looked for, and that is all that is tested;
 * without a device the rest is skipped. The stand-in for CUDA's driver must not be what is
 * found here: it would make this test say something that it has not seen.
 */
#include "support/support.h"

#include "device/cuda_library.h"
#include "device/device.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define BYTES (8u << 20)

/* The number of devices, or the test is skipped. */
static uint32_t need_devices(void) {
    uint32_t count = 0;
    const brim_status status = brim_device_count(BRIM_ON_CUDA, &count);
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
    const brim_status status = brim_device_count(BRIM_ON_CUDA, &count);
    assert_true(status == BRIM_OK || status == BRIM_UNSUPPORTED || status == BRIM_DRIVER);
    if (status != BRIM_OK) {
        assert_non_null(strstr(brim_detail(), "libcuda.so.1"));
        const brim_status again = brim_device_count(BRIM_ON_CUDA, &count);
        assert_int_equal(again, status); /* and every time */
        assert_non_null(strstr(brim_detail(), "libcuda.so.1"));
        struct brim__device device;
        assert_int_equal(brim__device_open(&device, BRIM_ON_CUDA, 0, NULL, NULL), status);
        brim__device_close(&device);
    }
}

static void test_devices_are_told(void **state) {
    (void)state;
    const uint32_t count = need_devices();
    for (uint32_t i = 0; i < count; i++) {
        brim_device_info info = BRIM_DEVICE_INFO_INIT;
        assert_int_equal(brim_device_read(BRIM_ON_CUDA, i, &info), BRIM_OK);
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
        assert_int_equal(brim__device_open(&device, BRIM_ON_CUDA, i, CU_STREAM_LEGACY, NULL),
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
        assert_int_equal(brim__device_take(&device, UINT64_C(1) << 46, &large), BRIM_MEMORY);
        brim__queue_free(&second);
        brim__queue_free(&queue);
        brim__device_give(&device, &b);
        brim__device_give(&device, &a);
        brim__device_unpin(&device, pages.memory, pin);
        brim__pages_free(&pages);
        brim__device_close(&device);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_driver_is_no_stand_in),
        cmocka_unit_test(test_a_driver_that_is_missing_is_named),
        cmocka_unit_test(test_devices_are_told),
        cmocka_unit_test(test_bytes_go_there_and_back),
    };
    return cmocka_run_group_tests_name("cuda_real", tests, begin_tests, end_tests);
}

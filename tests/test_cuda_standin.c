/*
 * test_cuda_standin.c: the stand-in for CUDA's driver finds what it is there to find.
 *
 * Tests rest on its silence, so that each kind of violation is committed here once, and
 * must be told with its own words.
 */
#include "support/support.h"

#include "cuda_standin.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define THREAD_SANITIZER 1
#endif
#elif defined(__SANITIZE_THREAD__)
#define THREAD_SANITIZER 1
#endif

#define BYTES 8192u

static CUcontext context;
static CUstream stream, second;
static CUdeviceptr memory;

static int begin_test(void **state) {
    (void)state;
    cuda_standin_reset();
    if (cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
        cuCtxPushCurrent_v2(context) != CUDA_SUCCESS ||
        cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS ||
        cuStreamCreate(&second, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) {
        return -1;
    }
    return cuMemAlloc_v2(&memory, BYTES) == CUDA_SUCCESS ? 0 : -1;
}

/* It was noticed, once, and nothing else was. */
static void assert_violation(const char *says) {
    if (strstr(cuda_standin_violation(0), says) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", cuda_standin_violation(0), says);
    }
    assert_int_equal(cuda_standin_get(CUDA_STANDIN_violations), 1);
    cuda_standin_reset();
    assert_int_equal(cuda_standin_get(CUDA_STANDIN_violations), 0);
    assert_string_equal(cuda_standin_violation(0), "");
    assert_true(cuda_standin_empty());
}

static void *map_pages(void) {
    void *pages = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(pages, MAP_FAILED);
    return pages;
}

static void test_nothing_wrong_is_nothing_told(void **state) {
    (void)state;
    CUcontext popped;
    assert_false(cuda_standin_empty());
    assert_int_equal(cuMemFree_v2(memory), CUDA_SUCCESS);
    assert_int_equal(cuStreamDestroy_v2(stream), CUDA_SUCCESS);
    assert_int_equal(cuStreamDestroy_v2(second), CUDA_SUCCESS);
    assert_int_equal(cuCtxPopCurrent_v2(&popped), CUDA_SUCCESS);
    assert_int_equal(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
    assert_int_equal(cuda_standin_get(CUDA_STANDIN_violations), 0);
    assert_int_equal(cuda_standin_get(CUDA_STANDIN_device_bytes_peak), BYTES);
    assert_true(cuda_standin_empty());
}

static void test_addresses(void **state) {
    static uint8_t bytes[BYTES + 1];
    assert_int_equal(cuMemcpyHtoDAsync_v2(memory + 1, bytes, BYTES, stream),
                     CUDA_ERROR_INVALID_VALUE);
    assert_violation("not all of one allocation");
    begin_test(state);
    assert_int_equal(cuMemcpyDtoHAsync_v2(bytes, memory - 1, 1, stream), CUDA_ERROR_INVALID_VALUE);
    assert_violation("not all of one allocation");
    begin_test(state);
    assert_int_equal(cuMemFree_v2(memory), CUDA_SUCCESS);
    assert_int_equal(cuMemcpyDtoDAsync_v2(memory, memory, 1, stream), CUDA_ERROR_INVALID_VALUE);
    assert_violation("not all of one allocation");
    begin_test(state);
    assert_int_equal(cuMemFree_v2(memory), CUDA_SUCCESS);
    assert_int_equal(cuMemFree_v2(memory), CUDA_ERROR_INVALID_VALUE);
    assert_violation("nothing that is allocated");
    begin_test(state);
    assert_int_equal(cuMemFree_v2(memory + 512), CUDA_ERROR_INVALID_VALUE);
    assert_violation("nothing that is allocated");
}

static void test_what_streams_still_use(void **state) {
    static uint8_t bytes[BYTES];
    assert_int_equal(cuda_standin_hold(stream), CUDA_SUCCESS);
    assert_int_equal(cuda_standin_read(stream, memory, bytes, BYTES, 0), CUDA_SUCCESS);
    assert_int_equal(cuMemFree_v2(memory), CUDA_SUCCESS);
    assert_violation("still used 1 times in streams");
    begin_test(state);
    void *pages = map_pages();
    assert_int_equal(cuMemHostRegister_v2(pages, BYTES, 0), CUDA_SUCCESS);
    assert_int_equal(cuda_standin_hold(stream), CUDA_SUCCESS);
    assert_int_equal(cuMemcpyHtoDAsync_v2(memory, pages, 1, stream), CUDA_SUCCESS);
    assert_int_equal(cuMemHostUnregister(pages), CUDA_ERROR_INVALID_VALUE);
    assert_violation("still used 1 times in streams");
    munmap(pages, BYTES);
    begin_test(state);
    assert_int_equal(cuda_standin_hold(stream), CUDA_SUCCESS);
    assert_int_equal(cuda_standin_write(stream, memory, 1, BYTES, 0), CUDA_SUCCESS);
    assert_int_equal(cuStreamDestroy_v2(stream), CUDA_SUCCESS);
    assert_violation("still holds something");
}

static void test_page_locked_memory(void **state) {
    uint8_t *pages = map_pages();
    assert_int_equal(cuMemHostRegister_v2(pages + 1, BYTES, 0), CUDA_ERROR_INVALID_VALUE);
    assert_violation("not whole pages");
    begin_test(state);
    assert_int_equal(cuMemHostUnregister(pages), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    assert_violation("not page-locked");
    begin_test(state);
    assert_int_equal(cuMemHostRegister_v2(pages, BYTES, 0), CUDA_SUCCESS);
    assert_int_equal(cuMemHostRegister_v2(pages + BYTES / 2, BYTES / 2, 0),
                     CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    assert_int_equal(cuda_standin_get(CUDA_STANDIN_violations), 0);
    /* one page, because a sanitizer's allocator may map something into a larger hole meanwhile */
    assert_int_equal(munmap(pages, (size_t)sysconf(_SC_PAGESIZE)), 0);
    assert_int_equal(cuMemHostUnregister(pages), CUDA_SUCCESS);
    assert_violation("unmapped before");
    munmap(pages, BYTES);
}

static void test_handles(void **state) {
    CUevent event;
    assert_int_equal(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
    assert_int_equal(cuEventDestroy_v2(event), CUDA_SUCCESS);
    assert_int_equal(cuEventQuery(event), CUDA_ERROR_INVALID_HANDLE);
    assert_violation("no event, or not any more");
    begin_test(state);
    assert_int_equal(cuStreamDestroy_v2(stream), CUDA_SUCCESS);
    assert_int_equal(cuStreamSynchronize(stream), CUDA_ERROR_INVALID_HANDLE);
    assert_violation("no stream of the context, or not any more");
    begin_test(state);
    CUcontext other;
    assert_int_equal(cuDevicePrimaryCtxRetain(&other, 1), CUDA_SUCCESS);
    assert_int_equal(cuCtxPushCurrent_v2(other), CUDA_SUCCESS);
    assert_int_equal(cuStreamSynchronize(stream), CUDA_ERROR_INVALID_HANDLE);
    assert_violation("no stream of the context, or not any more");
}

static void *leave_pushed(void *unused) {
    (void)unused;
    (void)cuCtxPushCurrent_v2(context);
    return NULL;
}

static void test_contexts(void **state) {
    CUcontext popped;
    CUdeviceptr address;
    assert_int_equal(cuCtxPopCurrent_v2(&popped), CUDA_SUCCESS);
    assert_int_equal(cuMemAlloc_v2(&address, 1), CUDA_ERROR_INVALID_CONTEXT);
    assert_violation("no context is current");
    begin_test(state);
    assert_int_equal(cuCtxPopCurrent_v2(&popped), CUDA_SUCCESS);
    assert_int_equal(cuCtxPopCurrent_v2(&popped), CUDA_ERROR_INVALID_CONTEXT);
    assert_violation("stack is empty");
    begin_test(state);
    assert_int_equal(cuDevicePrimaryCtxRelease_v2(1), CUDA_ERROR_INVALID_CONTEXT);
    assert_violation("not retained");
    begin_test(state);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, leave_pushed, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_violation("ended with 1 contexts pushed");
    begin_test(state);
    assert_int_equal(cuStreamDestroy_v2(stream), CUDA_SUCCESS);
    assert_int_equal(cuStreamDestroy_v2(second), CUDA_SUCCESS);
    assert_int_equal(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
    assert_violation("released for the last time with 8192 bytes");
}

/* Both run for as long as it takes that they meet. */
static void test_collisions(void **state) {
    (void)state;
#ifdef THREAD_SANITIZER
    skip(); /* the sanitizer ends the process for what the stand-in is to tell */
#endif
    static uint8_t bytes[BYTES];
    const uint64_t long_enough = 100000;
    for (int i = 0; i < 600 && cuda_standin_get(CUDA_STANDIN_violations) == 0; i++) {
        assert_int_equal(cuda_standin_read(stream, memory, bytes, 1, long_enough), CUDA_SUCCESS);
        assert_int_equal(cuda_standin_read(second, memory, bytes + 1, 1, long_enough),
                         CUDA_SUCCESS); /* both may read */
        assert_int_equal(cuda_standin_write(second, memory + 1, 1, 1, long_enough), CUDA_SUCCESS);
        assert_int_equal(cuStreamSynchronize(stream), CUDA_SUCCESS);
        assert_int_equal(cuda_standin_get(CUDA_STANDIN_violations), 0);
        assert_int_equal(cuStreamSynchronize(second), CUDA_SUCCESS);
        assert_int_equal(cuda_standin_get(CUDA_STANDIN_violations), 0);
        assert_int_equal(cuda_standin_read(stream, memory, bytes, 1, long_enough), CUDA_SUCCESS);
        assert_int_equal(cuda_standin_write(second, memory, 1, 1, long_enough), CUDA_SUCCESS);
        assert_int_equal(cuStreamSynchronize(stream), CUDA_SUCCESS);
        assert_int_equal(cuStreamSynchronize(second), CUDA_SUCCESS);
    }
    assert_violation("use the same 1 bytes at once");
}

static void test_a_child(void **state) {
    (void)state;
    int ended = -1;
    const pid_t child = fork();
    assert_int_not_equal(child, -1);
    if (child == 0) {
        _exit(cuStreamSynchronize(stream) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_int_equal(ended, 0);
    assert_int_equal(cuda_standin_get(CUDA_STANDIN_forked_calls), 1);
    assert_violation("forked child");
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup(name, begin_test)
    const struct CMUnitTest tests[] = {
        TEST(test_nothing_wrong_is_nothing_told),
        TEST(test_addresses),
        TEST(test_what_streams_still_use),
        TEST(test_page_locked_memory),
        TEST(test_handles),
        TEST(test_contexts),
        TEST(test_collisions),
        TEST(test_a_child),
    };
    return cmocka_run_group_tests_name("cuda_standin", tests, begin_tests, end_tests);
}

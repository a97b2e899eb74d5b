/*
 * upload_util.h: what the tests of batches on devices share: small files, pipelines over
 * them, and a consumer with a queue of its own, on OpenCL or on the stand-in for CUDA.
 *
 * A consumer's queue can be held back: what is put into it begins when it is let go on.
 * So "late" is not a matter of time in these tests: a read that is behind a held queue
 * cannot have been done, however long one looks.
 */
#ifndef BRIM_TESTS_UPLOAD_UTIL_H
#define BRIM_TESTS_UPLOAD_UTIL_H

#include "support/memory_data.h"
#include "support/memory_watch.h"

#include "cuda_standin.h"
#include "device/opencl_library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UPLOAD_SAMPLES 57

static inline void must_be_ok(brim_status status, const char *call, int line) {
    if (status != BRIM_OK) {
        fail_msg("line %d: %s: %s: %s", line, call, brim_status_name(status), brim_detail());
    }
}
#define MUST(call) must_be_ok((call), #call, __LINE__)

static inline bool has_device(brim_device kind) {
    uint32_t count = 0;
    return brim_device_count(kind, &count) == BRIM_OK && count > 0;
}

#define NEED_DEVICE(kind)                                                                       \
    if (!has_device(kind)) {                                                                    \
        print_message("skipped: no device of %s: %s\n", brim_device_name(kind), brim_detail()); \
        skip();                                                                                 \
    }

/* A group's set-up: its directory, with the files of memory_data.h and images, labels,
 * numbers (npy) and lines of text. */
static inline int begin_upload_tests(void **state) {
    static uint8_t pixels[UPLOAD_SAMPLES * 12 * 10 * 3];
    static float numbers[UPLOAD_SAMPLES * 5];
    static int64_t labels[UPLOAD_SAMPLES];
    static char lines[UPLOAD_SAMPLES * 40];
    size_t length = 0;
    if (begin_memory_tests_in_memory(state) != 0) {
        return -1;
    }
    fill_random(pixels, sizeof pixels, 1);
    for (int i = 0; i < UPLOAD_SAMPLES; i++) {
        labels[i] = i % 10;
        for (int k = 0; k < 5; k++) {
            numbers[i * 5 + k] = (float)(i * 5 + k) / 7;
        }
        length +=
            (size_t)sprintf(lines + length, "%.*s\n", 1 + i % 17, "abcdefghijklmnopqrstuvwxyz");
    }
    write_npy("images.npy", BRIM_DTYPE_U8, 4, (const int64_t[]){ UPLOAD_SAMPLES, 12, 10, 3 },
              pixels);
    write_npy("classes.npy", BRIM_DTYPE_I64, 1, (const int64_t[]){ UPLOAD_SAMPLES }, labels);
    write_npy("numbers.npy", BRIM_DTYPE_F32, 2, (const int64_t[]){ UPLOAD_SAMPLES, 5 }, numbers);
    write_file("lines.txt", lines, length);
    return 0;
}

/* `epochs` of them, in a runtime of its own. */
static inline struct digest run_epochs(const char *text, const struct how *how, unsigned epochs) {
    struct session session;
    struct digest digest = { 0 };
    session_open(&session, text, how);
    for (unsigned i = 0; i < epochs; i++) {
        assert_true(take_batches(&session, TO_THE_END, digest_batch, &digest));
    }
    session_close(&session);
    return digest;
}

static inline brim_budget_info budget_of(brim_runtime *runtime, brim_memory kind) {
    brim_budget_info info = BRIM_BUDGET_INFO_INIT;
    MUST(brim_budget_read(brim_runtime_budget(runtime), kind, &info));
    return info;
}

static inline brim_stats stats_of(brim_loader *loader) {
    brim_stats stats = BRIM_STATS_INIT;
    MUST(brim_loader_read_stats(loader, &stats));
    return stats;
}

/* ---------------------------------------------------------------- the consumer */

struct consumer {
    brim_device kind;
    void *context;
    void *queue;
    void *gate; /* OpenCL, while it is held: a user event */
};

static inline void *opencl_call(const char *name) {
    static void *library;
    library = library != NULL ? library : dlopen("libOpenCL.so.1", RTLD_NOW);
    assert_non_null(library);
    void *call = dlsym(library, name);
    assert_non_null(call);
    return call;
}

static inline const struct brim__opencl *opencl_calls(void) {
    const struct brim__opencl *opencl;
    MUST(brim__opencl_load(&opencl));
    return opencl;
}

/* One more queue in the context of another consumer. */
static inline struct consumer consumer_beside(const struct consumer *other) {
    struct consumer consumer = *other;
    consumer.gate = NULL;
    if (consumer.kind == BRIM_DEVICE_CUDA) {
        CUstream stream = NULL;
        assert_int_equal(cuStreamCreate(&stream, 1 /* non-blocking */), CUDA_SUCCESS);
        consumer.queue = stream;
    } else {
        const struct brim__opencl *opencl = opencl_calls();
        cl_int error;
        consumer.queue =
            opencl->clCreateCommandQueue(consumer.context, opencl->device[0].id, 0, &error);
        assert_int_equal(error, CL_SUCCESS);
        assert_int_equal(opencl->clRetainContext(consumer.context), CL_SUCCESS);
    }
    return consumer;
}

/* On the first device of the kind. CUDA: the context is current on this thread. */
static inline struct consumer consumer_new(brim_device kind) {
    struct consumer consumer = { .kind = kind };
    if (kind == BRIM_DEVICE_CUDA) {
        CUcontext context = NULL;
        assert_int_equal(cuInit(0), CUDA_SUCCESS);
        assert_int_equal(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
        assert_int_equal(cuCtxPushCurrent_v2(context), CUDA_SUCCESS);
        consumer.context = context;
        return consumer_beside(&consumer);
    }
    const struct brim__opencl *opencl = opencl_calls();
    cl_int error;
    consumer.context = opencl->clCreateContext(NULL, 1, &opencl->device[0].id, NULL, NULL, &error);
    assert_int_equal(error, CL_SUCCESS);
    const struct consumer with_queue = consumer_beside(&consumer);
    assert_int_equal(opencl->clReleaseContext(consumer.context), CL_SUCCESS);
    return with_queue;
}

/* OpenCL's, with a queue that may begin with anything that is in it; queue NULL: the device has
 * none such. */
static inline struct consumer consumer_out_of_order(void) {
    const struct brim__opencl *opencl = opencl_calls();
    struct consumer consumer = consumer_new(BRIM_DEVICE_OPENCL);
    cl_int error;
    void *queue = opencl->clCreateCommandQueue(consumer.context, opencl->device[0].id,
                                               1 /* out of order */, &error);
    assert_int_equal(opencl->clReleaseCommandQueue(consumer.queue), CL_SUCCESS);
    if (error != CL_SUCCESS) {
        queue = NULL;
        assert_int_equal(opencl->clReleaseContext(consumer.context), CL_SUCCESS);
    }
    consumer.queue = queue;
    return consumer;
}

static inline void consumer_finish(const struct consumer *consumer) {
    if (consumer->kind == BRIM_DEVICE_CUDA) {
        assert_int_equal(cuStreamSynchronize(consumer->queue), CUDA_SUCCESS);
    } else {
        assert_int_equal(opencl_calls()->clFinish(consumer->queue), CL_SUCCESS);
    }
}

static inline void consumer_close_beside(struct consumer *consumer) {
    consumer_finish(consumer);
    if (consumer->kind == BRIM_DEVICE_CUDA) {
        assert_int_equal(cuStreamDestroy_v2(consumer->queue), CUDA_SUCCESS);
    } else {
        assert_int_equal(opencl_calls()->clReleaseCommandQueue(consumer->queue), CL_SUCCESS);
        assert_int_equal(opencl_calls()->clReleaseContext(consumer->context), CL_SUCCESS);
    }
}

static inline void consumer_close(struct consumer *consumer) {
    consumer_close_beside(consumer);
    if (consumer->kind == BRIM_DEVICE_CUDA) {
        CUcontext popped = NULL;
        assert_int_equal(cuCtxPopCurrent_v2(&popped), CUDA_SUCCESS);
        assert_ptr_equal(popped, consumer->context);
        assert_int_equal(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
    }
}

/* What is put into the queue from now on does not begin. */
static inline void consumer_hold(struct consumer *consumer) {
    if (consumer->kind == BRIM_DEVICE_CUDA) {
        assert_int_equal(cuda_standin_hold(consumer->queue), CUDA_SUCCESS);
        return;
    }
    cl_event (*create)(cl_context, cl_int *);
    void *call = opencl_call("clCreateUserEvent");
    cl_int error;
    memcpy(&create, &call, sizeof call);
    const cl_event gate = create(consumer->context, &error);
    assert_int_equal(error, CL_SUCCESS);
    assert_int_equal(opencl_calls()->clEnqueueBarrierWithWaitList(consumer->queue, 1, &gate, NULL),
                     CL_SUCCESS);
    consumer->gate = gate;
}

static inline void consumer_go_on(struct consumer *consumer) {
    if (consumer->kind == BRIM_DEVICE_CUDA) {
        assert_int_equal(cuda_standin_go_on(consumer->queue), CUDA_SUCCESS);
        return;
    }
    cl_int (*set)(cl_event, cl_int);
    void *call = opencl_call("clSetUserEventStatus");
    memcpy(&set, &call, sizeof call);
    assert_int_equal(set(consumer->gate, CL_COMPLETE), CL_SUCCESS);
    assert_int_equal(opencl_calls()->clReleaseEvent(consumer->gate), CL_SUCCESS);
    consumer->gate = NULL;
}

/* The kernel of the consumer: reads a field when the queue has come so far, and on the
 * stand-in so much later. Nothing waits for it here. */
static inline void consumer_read(const struct consumer *consumer, const brim_field *field, void *to,
                                 uint64_t microseconds) {
    if (consumer->kind == BRIM_DEVICE_CUDA) {
        assert_int_equal(cuda_standin_read(consumer->queue, (CUdeviceptr)(uintptr_t)field->data, to,
                                           field->bytes, microseconds),
                         CUDA_SUCCESS);
    } else {
        assert_int_equal(opencl_calls()->clEnqueueReadBuffer(consumer->queue, field->data, 0,
                                                             field->offset, field->bytes, to, 0,
                                                             NULL, NULL),
                         CL_SUCCESS);
        assert_int_equal(opencl_calls()->clFlush(consumer->queue), CL_SUCCESS);
    }
}

/* Nothing of CUDA is left, and nothing was done wrong with it. */
static inline void check_standin(void) {
    assert_string_equal(cuda_standin_violation(0), "");
    assert_int_equal(cuda_standin_get(CUDA_STANDIN_violations), 0);
    assert_int_equal(cuda_standin_get(CUDA_STANDIN_depth), 0);
    assert_true(cuda_standin_empty());
}

#endif

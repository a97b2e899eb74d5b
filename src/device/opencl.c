/*
 * opencl.c: OpenCL's devices for the table of device.h.
 *
 * Contexts. A device that is opened with a consumer's queue uses that queue's context, which is
 * retained. All other openers of a device share one context, which brim makes, and the program that
 * is built in it. Each is made for the first opener that needs it and freed with the last, because
 * a context holds device memory that no budget counts.
 *
 * Every opened device has a queue for internal work (`errands`), such as making the driver really
 * allocate memory. No other work is in it, so waits for it are short.
 *
 * Page-locked memory is a buffer over the pages that stays mapped as long as they are locked. The
 * host uses the pages. Copies from them are ordinary writes with a pointer into them; the driver
 * recognizes that the pages are locked.
 */
#include "base/fault.h"
#include "base/platform.h"
#include "device/device.h"
#include "device/opencl_kernels.h"
#include "device/opencl_library.h"

#include <stdio.h>

/* The driver's own data of an opened device (device->self). */
struct state {
    const struct brim__opencl *opencl;
    bool shares; /* the context is the one in `contexts` */
    brim__mutex lock;
    cl_command_queue errands; /* used with the lock held */
    struct brim__opencl_kernels kernels;
};

/* The contexts that brim makes, one for each device in use. */
static pthread_mutex_t contexts_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    cl_context context;
    uint32_t users;
    struct brim__opencl_program program; /* under its own lock, while there are users */
} contexts[BRIM_MAX_DEVICES];            /* under the lock */

static struct state *state_of(const struct brim__device *device) {
    return device->self;
}

static const struct brim__opencl *opencl_of(const struct brim__device *device) {
    return state_of(device)->opencl;
}

/* A point at which tests let the driver fail. */
static bool fails(void) {
    return brim__fault(BRIM__FAULT_DEVICE);
}

static brim_status result(const struct brim__device *device, const char *what, cl_int error) {
    return BRIM__UNLIKELY(error) ? brim__opencl_fail(device->index, what, error) : BRIM_OK;
}

/* ------------------------------------------------------------------ devices */

static brim_status count_devices(uint32_t *count) {
    const struct brim__opencl *opencl;
    const brim_status status = brim__opencl_load(&opencl);
    if (status == BRIM_OK) {
        *count = opencl->count;
    }
    return status;
}

static uint64_t device_number(const struct brim__opencl *opencl, cl_device_id device,
                              cl_uint which) {
    cl_ulong number = 0;
    return opencl->clGetDeviceInfo(device, which, sizeof number, &number, NULL) ? 0 : number;
}

static bool device_says(const struct brim__opencl *opencl, cl_device_id device, cl_uint which) {
    cl_bool yes = CL_FALSE;
    return opencl->clGetDeviceInfo(device, which, sizeof yes, &yes, NULL) == CL_SUCCESS && yes;
}

static brim_status read_device(uint32_t index, brim_device_info *info) {
    const struct brim__opencl *opencl;
    const brim_status status = brim__opencl_load(&opencl);
    if (status != BRIM_OK) {
        return status;
    }
    cl_device_id device = opencl->device[index].id;
    char platform[80];
    char version[40];
    brim__opencl_device_text(opencl, device, CL_DEVICE_NAME, info->name, sizeof info->name);
    brim__opencl_platform_text(opencl, opencl->device[index].platform, CL_PLATFORM_NAME, platform,
                               sizeof platform);
    brim__opencl_device_text(opencl, device, CL_DRIVER_VERSION, version, sizeof version);
    (void)snprintf(info->driver, sizeof info->driver, "%s %s", platform, version);
    info->total_bytes = device_number(opencl, device, CL_DEVICE_GLOBAL_MEM_SIZE);
    info->free_bytes = BRIM_UNKNOWN;
    info->largest_bytes = device_number(opencl, device, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
    info->unified = device_says(opencl, device, CL_DEVICE_HOST_UNIFIED_MEMORY);
    return BRIM_OK;
}

/* Whether the device can do what brim needs. */
static brim_status check_device(const struct brim__opencl *opencl, uint32_t index) {
    cl_device_id device = opencl->device[index].id;
    if (!device_says(opencl, device, CL_DEVICE_AVAILABLE)) {
        return brim__fail(BRIM_STATUS_DRIVER, "opencl:%u: the driver says that it is not available",
                          index);
    }
    if (!device_says(opencl, device, CL_DEVICE_COMPILER_AVAILABLE)) {
        return brim__fail(BRIM_STATUS_UNSUPPORTED, "opencl:%u: its driver has no compiler", index);
    }
    char version[64]; /* "OpenCL 3.0 ..." */
    unsigned major = 0;
    unsigned minor = 0;
    brim__opencl_device_text(opencl, device, CL_DEVICE_VERSION, version, sizeof version);
    if (sscanf(version, "OpenCL %3u.%3u", &major, &minor) != 2 || major < 1 ||
        (major == 1 && minor < 2)) {
        return brim__fail(BRIM_STATUS_UNSUPPORTED,
                          "opencl:%u: OpenCL 1.2 or later is needed, and this is \"%s\"", index,
                          version);
    }
    return BRIM_OK;
}

/* The device and the context of a consumer's queue. */
static brim_status read_queue(const struct brim__opencl *opencl, uint32_t index, void *queue,
                              cl_context *context) {
    cl_device_id device = NULL;
    cl_int error = fails() ? CL_OUT_OF_RESOURCES
                           : opencl->clGetCommandQueueInfo(queue, CL_QUEUE_DEVICE, sizeof device,
                                                           &device, NULL);
    if (error == CL_SUCCESS) {
        error = fails() ? CL_OUT_OF_RESOURCES
                        : opencl->clGetCommandQueueInfo(queue, CL_QUEUE_CONTEXT, sizeof *context,
                                                        context, NULL);
    }
    if (error) {
        return brim__opencl_fail(index, "looking at the given queue", error);
    }
    if (device != opencl->device[index].id) {
        char name[128];
        return brim__fail(
            BRIM_STATUS_INVALID,
            "the given queue is of the device \"%s\", which is not opencl:%u; use a "
            "queue of that device, or open the device of the queue",
            brim__opencl_device_text(opencl, device, CL_DEVICE_NAME, name, sizeof name), index);
    }
    return BRIM_OK;
}

static brim_status queue_check(struct brim__device *device, void *handle) {
    cl_context context = NULL;
    const brim_status status = read_queue(opencl_of(device), device->index, handle, &context);
    if (status == BRIM_OK && context != device->context) {
        return brim__fail(
            BRIM_STATUS_INVALID,
            "the given queue is of another OpenCL context than the batches, and cannot use them; "
            "open the loader with this queue, or with one of its context, as device_queue");
    }
    return status;
}

static brim_status make_context(const struct brim__opencl *opencl, uint32_t index,
                                cl_context *context) {
    const intptr_t properties[] = { CL_CONTEXT_PLATFORM, (intptr_t)opencl->device[index].platform,
                                    0 };
    cl_int error = CL_OUT_OF_RESOURCES;
    if (!fails()) {
        *context =
            opencl->clCreateContext(properties, 1, &opencl->device[index].id, NULL, NULL, &error);
    }
    return error ? brim__opencl_fail(index, "making a context", error) : BRIM_OK;
}

static brim_status share_context(const struct brim__opencl *opencl, uint32_t index,
                                 cl_context *context) {
    brim__lock(&contexts_lock);
    const brim_status status =
        contexts[index].users > 0 ? BRIM_OK : make_context(opencl, index, &contexts[index].context);
    if (status == BRIM_OK) {
        contexts[index].users++;
        *context = contexts[index].context;
    }
    brim__unlock(&contexts_lock);
    return status;
}

static void leave_context(const struct brim__device *device) {
    const struct brim__opencl *const opencl = opencl_of(device);
    if (!state_of(device)->shares) {
        (void)opencl->clReleaseContext(device->context);
        return;
    }
    brim__lock(&contexts_lock);
    if (--contexts[device->index].users == 0) {
        brim__opencl_program_free(opencl, &contexts[device->index].program);
        (void)opencl->clReleaseContext(contexts[device->index].context);
        contexts[device->index].context = NULL;
    }
    brim__unlock(&contexts_lock);
}

static brim_status enter_context(struct brim__device *device, void *queue) {
    struct state *const state = device->self;
    cl_context context = NULL;
    brim_status status;
    if (queue != NULL) {
        status = read_queue(state->opencl, device->index, queue, &context);
        if (status == BRIM_OK) {
            status =
                result(device, "keeping the queue's context",
                       fails() ? CL_OUT_OF_RESOURCES : state->opencl->clRetainContext(context));
        }
    } else {
        status = share_context(state->opencl, device->index, &context);
        state->shares = true;
    }
    device->context = context;
    return status;
}

static brim_status queue_new(struct brim__device *device, void **handle) {
    cl_int error = CL_OUT_OF_RESOURCES;
    if (!fails()) {
        *handle =
            opencl_of(device)->clCreateCommandQueue(device->context, device->handle, 0, &error);
    }
    return result(device, "making a queue", error);
}

static void queue_free(struct brim__device *device, void *handle) {
    (void)opencl_of(device)->clFinish(handle);
    (void)opencl_of(device)->clReleaseCommandQueue(handle);
}

/* Makes the locks, the queue for errands and the kernels' data. The context exists already. */
static brim_status fill_state(struct brim__device *device) {
    struct state *const state = device->self;
    const struct brim__opencl *const opencl = state->opencl;
    const uint64_t type = device_number(opencl, device->handle, CL_DEVICE_TYPE);
    state->kernels = (struct brim__opencl_kernels){
        .opencl = opencl,
        .index = device->index,
        .is_cpu = (type & CL_DEVICE_TYPE_CPU) != 0,
        .context = device->context,
        .device = device->handle,
        .of_context = state->shares ? &contexts[device->index].program : NULL,
    };
    void *errands = NULL;
    brim_status status = queue_new(device, &errands);
    if (status != BRIM_OK) {
        return status;
    }
    state->errands = errands;
    status = brim__mutex_init(&state->lock);
    if (status == BRIM_OK) {
        status = brim__opencl_kernels_init(&state->kernels);
        if (status == BRIM_OK) {
            return BRIM_OK;
        }
        brim__mutex_fini(&state->lock);
    }
    queue_free(device, errands);
    return status;
}

static brim_status open_device(struct brim__device *device, void *queue, brim_budget *budget) {
    const struct brim__opencl *opencl;
    brim_status status = brim__opencl_load(&opencl);
    if (status == BRIM_OK) {
        status = check_device(opencl, device->index);
    }
    if (status != BRIM_OK) {
        return status;
    }
    struct state *state = brim__alloc(budget, sizeof *state, &status);
    if (state == NULL) {
        return status;
    }
    state->opencl = opencl;
    device->self = state;
    device->handle = opencl->device[device->index].id;
    device->largest = device_number(opencl, device->handle, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
    status = enter_context(device, queue);
    if (status == BRIM_OK) {
        status = fill_state(device);
        if (status == BRIM_OK) {
            return BRIM_OK;
        }
        leave_context(device);
    }
    brim__free(state);
    return status;
}

static void close_device(struct brim__device *device) {
    struct state *const state = device->self;
    brim__opencl_kernels_fini(&state->kernels);
    brim__mutex_fini(&state->lock);
    queue_free(device, state->errands);
    leave_context(device);
    brim__free(state);
}

/* ------------------------------------------------------------------- memory */

/* Many drivers allocate no memory when a buffer is made. A write at both ends makes them do it. */
static cl_int touch(struct state *state, cl_mem buffer, uint64_t bytes) {
    static const uint8_t zero;
    const uint64_t ends[] = { 0, bytes - 1 };
    cl_int error = CL_SUCCESS;
    brim__lock(&state->lock);
    for (size_t i = 0; i < BRIM__COUNT(ends) && error == CL_SUCCESS; i++) {
        error = fails() ? CL_MEM_OBJECT_ALLOCATION_FAILURE
                        : state->opencl->clEnqueueWriteBuffer(state->errands, buffer, CL_TRUE,
                                                              ends[i], 1, &zero, 0, NULL, NULL);
    }
    brim__unlock(&state->lock);
    return error;
}

static brim_status take(struct brim__device *device, uint64_t bytes, void **handle) {
    struct state *const state = device->self;
    cl_int error = CL_MEM_OBJECT_ALLOCATION_FAILURE;
    cl_mem buffer = NULL;
    if (!fails()) {
        buffer =
            state->opencl->clCreateBuffer(device->context, CL_MEM_READ_WRITE, bytes, NULL, &error);
    }
    if (error == CL_SUCCESS) {
        error = touch(state, buffer, bytes);
        if (error == CL_SUCCESS) {
            *handle = buffer;
            return BRIM_OK;
        }
        (void)state->opencl->clReleaseMemObject(buffer);
    }
    char size[BRIM__SIZE_TEXT];
    /* some drivers report a lack of memory as CL_OUT_OF_RESOURCES */
    const bool memory = brim__opencl_is_memory(error) || error == CL_OUT_OF_RESOURCES;
    return brim__fail(memory ? BRIM_STATUS_MEMORY : BRIM_STATUS_DRIVER,
                      "opencl:%u: the driver refused %s (%llu bytes) of the device's memory, which "
                      "the budget would have allowed: %s (%d)",
                      device->index, brim__size_text(bytes, size), (unsigned long long)bytes,
                      brim__opencl_error_name(error), error);
}

static void give(struct brim__device *device, void *handle) {
    (void)opencl_of(device)->clReleaseMemObject(handle);
}

static brim_status pin(struct brim__device *device, void *memory, uint64_t bytes, void **handle) {
    struct state *const state = device->self;
    const struct brim__opencl *const opencl = state->opencl;
    cl_int error = CL_MEM_OBJECT_ALLOCATION_FAILURE;
    cl_mem buffer = NULL;
    if (!fails()) {
        buffer = opencl->clCreateBuffer(device->context, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR,
                                        bytes, memory, &error);
    }
    if (error) {
        return result(device, "page-locking memory", error);
    }
    error = CL_MAP_FAILURE;
    brim__lock(&state->lock);
    if (!fails()) {
        void *const mapped = opencl->clEnqueueMapBuffer(
            state->errands, buffer, CL_TRUE, CL_MAP_WRITE, 0, bytes, 0, NULL, NULL, &error);
        if (error == CL_SUCCESS && mapped != memory) { /* not allowed by the standard */
            (void)opencl->clEnqueueUnmapMemObject(state->errands, buffer, mapped, 0, NULL, NULL);
            (void)opencl->clFinish(state->errands);
            error = CL_MAP_FAILURE;
        }
    }
    brim__unlock(&state->lock);
    if (error) {
        (void)opencl->clReleaseMemObject(buffer);
        return result(device, "mapping page-locked memory", error);
    }
    *handle = buffer;
    return BRIM_OK;
}

static void unpin(struct brim__device *device, void *memory, void *handle) {
    struct state *const state = device->self;
    const struct brim__opencl *const opencl = state->opencl;
    brim__lock(&state->lock);
    (void)opencl->clEnqueueUnmapMemObject(state->errands, handle, memory, 0, NULL, NULL);
    (void)opencl->clFinish(state->errands); /* the caller may free the pages when this returns */
    brim__unlock(&state->lock);
    (void)opencl->clReleaseMemObject(handle);
}

/* ------------------------------------------------------------------- copies */

static brim_status write_to(struct brim__queue *queue, const struct brim__device_memory *to,
                            uint64_t offset, const void *from, uint64_t bytes) {
    const cl_int error = fails() ? CL_OUT_OF_RESOURCES
                                 : opencl_of(queue->device)
                                       ->clEnqueueWriteBuffer(queue->handle, to->handle, CL_FALSE,
                                                              offset, bytes, from, 0, NULL, NULL);
    return result(queue->device, "copying to the device", error);
}

static brim_status read_back(struct brim__queue *queue, void *to,
                             const struct brim__device_memory *from, uint64_t offset,
                             uint64_t bytes) {
    const cl_int error = fails() ? CL_OUT_OF_RESOURCES
                                 : opencl_of(queue->device)
                                       ->clEnqueueReadBuffer(queue->handle, from->handle, CL_FALSE,
                                                             offset, bytes, to, 0, NULL, NULL);
    return result(queue->device, "copying from the device", error);
}

static brim_status copy(struct brim__queue *queue, const struct brim__device_memory *to,
                        uint64_t to_offset, const struct brim__device_memory *from,
                        uint64_t from_offset, uint64_t bytes) {
    const cl_int error =
        fails() ? CL_OUT_OF_RESOURCES
                : opencl_of(queue->device)
                      ->clEnqueueCopyBuffer(queue->handle, from->handle, to->handle, from_offset,
                                            to_offset, bytes, 0, NULL, NULL);
    return result(queue->device, "copying on the device", error);
}

static brim_status prepare(struct brim__device *device) {
    struct state *const state = device->self;
    return brim__opencl_kernels_build(&state->kernels);
}

static brim_status look_up(struct brim__queue *queue, const struct brim__lookup *lookup) {
    return brim__opencl_lookup(&state_of(queue->device)->kernels, queue->handle, lookup);
}

static brim_status gather_rows(struct brim__queue *queue, const struct brim__gather *gather) {
    return brim__opencl_gather(&state_of(queue->device)->kernels, queue->handle, gather);
}

/* ------------------------------------------------------------------- events */

static brim_status flush(struct brim__queue *queue) {
    return result(queue->device, "flushing a queue",
                  fails() ? CL_OUT_OF_RESOURCES : opencl_of(queue->device)->clFlush(queue->handle));
}

static brim_status record(struct brim__queue *queue, void **event) {
    const struct brim__opencl *const opencl = opencl_of(queue->device);
    cl_event mark = NULL;
    cl_int error = fails() ? CL_OUT_OF_RESOURCES
                           : opencl->clEnqueueMarkerWithWaitList(queue->handle, 0, NULL, &mark);
    if (error == CL_SUCCESS) {
        error = fails() ? CL_OUT_OF_RESOURCES : opencl->clFlush(queue->handle);
        if (error == CL_SUCCESS) {
            *event = mark;
            return BRIM_OK;
        }
        (void)opencl->clReleaseEvent(mark);
    }
    return result(queue->device, "putting an event into a queue", error);
}

/* Uses a barrier. In an out-of-order queue, which a consumer's may be, a marker would delay no
 * other work. */
static brim_status queue_wait(struct brim__queue *queue, void *event) {
    const cl_event events[] = { event };
    const cl_int error = fails()
                             ? CL_OUT_OF_RESOURCES
                             : opencl_of(queue->device)
                                   ->clEnqueueBarrierWithWaitList(queue->handle, 1, events, NULL);
    return result(queue->device, "having a queue wait", error);
}

static brim_status event_poll(struct brim__device *device, void *event) {
    cl_int progress = CL_COMPLETE; /* above 0: not there yet; below: an error */
    const cl_int error = opencl_of(device)->clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS,
                                                           sizeof progress, &progress, NULL);
    if (error || progress < 0) {
        return result(device, "work on the device", error ? error : progress);
    }
    return progress == CL_COMPLETE ? BRIM_OK : BRIM_STATUS_TIMEOUT;
}

static brim_status event_wait(struct brim__device *device, void *event) {
    const cl_event events[] = { event };
    const cl_int error = opencl_of(device)->clWaitForEvents(1, events);
    if (error) { /* the event's own status is more precise */
        const brim_status status = event_poll(device, event);
        return status != BRIM_OK && status != BRIM_STATUS_TIMEOUT
                   ? status
                   : result(device, "waiting for the device", error);
    }
    return BRIM_OK;
}

static void event_free(struct brim__device *device, void *event) {
    (void)opencl_of(device)->clReleaseEvent(event);
}

const struct brim__device_ops brim__device_opencl = {
    .name = "opencl",
    .count = count_devices,
    .read = read_device,
    .open = open_device,
    .close = close_device,
    .take = take,
    .give = give,
    .pin = pin,
    .unpin = unpin,
    .queue_new = queue_new,
    .queue_free = queue_free,
    .queue_check = queue_check,
    .write = write_to,
    .read_back = read_back,
    .copy = copy,
    .prepare = prepare,
    .lookup = look_up,
    .gather = gather_rows,
    .flush = flush,
    .record = record,
    .queue_wait = queue_wait,
    .event_poll = event_poll,
    .event_wait = event_wait,
    .event_free = event_free,
};

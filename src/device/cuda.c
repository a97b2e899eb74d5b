/*
 * cuda.c: CUDA devices, through the driver API.
 *
 * All work is in a device's primary context. CUDA's runtime, and therefore the frameworks, use the
 * same context, so addresses and streams mean the same to all of them. A thread has a current
 * context, which the program has set. Each call here pushes the primary context and pops it before
 * it returns, so the program's context is unchanged.
 *
 * brim's own streams do not block (CU_STREAM_NON_BLOCKING): they have no part in the implicit order
 * in which the legacy default stream and the ordinary streams of its context wait for each other.
 * So only events (record, queue_wait) order a stream of brim and one of the consumer, the legacy
 * one included, and a consumer on the legacy stream does not delay brim's copies. An event in the
 * legacy stream also comes after the work in the ordinary streams. That only makes a release later,
 * never too early. The per-thread default stream belongs to the calling thread, so release and wait
 * must be called by the consumer's thread, like the consumer's own calls.
 *
 * While any thread of the program captures a stream for a graph, calls that may wait or take memory
 * are forbidden to all threads and invalidate the capture. brim's calls concern no stream that is
 * being captured, so each call here sets the relaxed mode, which exempts it (enter).
 *
 * Events have no time (CU_EVENT_DISABLE_TIMING), so waiting for them and querying them is cheap. A
 * stream starts its work by itself: there is nothing to flush.
 *
 * When a process ends, the driver may shut down before brim frees its objects. Pushing the context
 * is then refused (CUDA_ERROR_DEINITIALIZED), and the objects no longer exist. So functions that
 * free ignore results.
 */
#include "base/platform.h"
#include "device/cuda_library.h"
#include "device/device.h"

#include <stdio.h>

/* The lowest number that a handle which is an address can have. */
#define FIRST_ADDRESS 4096u

/* For calls on an open device: the driver has been loaded. */
static const struct brim__cuda *driver(void) {
    const struct brim__cuda *cuda = NULL;
    const brim_status status = brim__cuda_load(&cuda, NULL);
    assert(status == BRIM_OK);
    (void)status;
    return cuda;
}

static brim_status fail(uint32_t index, CUresult result, const char *what) {
    char text[BRIM__CUDA_TEXT];
    return brim__fail(result == CUDA_ERROR_OUT_OF_MEMORY ? BRIM_STATUS_MEMORY : BRIM_STATUS_DRIVER,
                      "cuda:%u: %s: %s", index, what, brim__cuda_text(driver(), result, text));
}

static brim_status fail_bytes(uint32_t index, CUresult result, const char *what, uint64_t bytes) {
    char size[BRIM__SIZE_TEXT], text[64];
    snprintf(text, sizeof text, "%s %s", what, brim__size_text(bytes, size));
    return fail(index, result, text);
}

/* The thread's capture mode before enter_context(). Calls of it are never nested. */
static _Thread_local CUstreamCaptureMode mode_before;

static CUresult enter_context(CUcontext context) {
    const CUresult result = driver()->cuCtxPushCurrent_v2(context);
    if (result == CUDA_SUCCESS) {
        CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
        const bool changed = driver()->cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS;
        mode_before = changed ? mode : CU_STREAM_CAPTURE_MODE_GLOBAL;
    }
    return result;
}

static CUresult enter(const struct brim__device *device) {
    return enter_context(device->context);
}

/* The results do not matter: these calls are refused only if the driver has shut down. */
static void leave(void) {
    CUcontext popped = NULL;
    CUstreamCaptureMode mode = mode_before;
    (void)driver()->cuThreadExchangeStreamCaptureMode(&mode);
    (void)driver()->cuCtxPopCurrent_v2(&popped);
}

static CUdevice device_of(const struct brim__device *device) {
    return (CUdevice)(intptr_t)device->handle;
}

static CUdeviceptr address_of(const void *handle) {
    return (CUdeviceptr)(uintptr_t)handle;
}

/* ----------------------------------------------------------------- devices */

static brim_status count_devices(uint32_t *count) {
    const struct brim__cuda *cuda = NULL;
    bool devices = false;
    const brim_status status = brim__cuda_load(&cuda, &devices);
    *count = 0;
    if (status != BRIM_OK || !devices) {
        return status;
    }
    int found = 0;
    const CUresult result = cuda->cuDeviceGetCount(&found);
    if (result == CUDA_ERROR_NO_DEVICE) {
        return BRIM_OK;
    }
    if (result != CUDA_SUCCESS) {
        char text[BRIM__CUDA_TEXT];
        return brim__fail(BRIM_STATUS_DRIVER, "counting the CUDA devices: %s",
                          brim__cuda_text(cuda, result, text));
    }
    *count = found > 0 ? (uint32_t)brim__min((uint64_t)found, BRIM_MAX_DEVICES) : 0;
    return BRIM_OK;
}

/* index is below the count. */
static brim_status find_device(uint32_t index, CUdevice *device) {
    const struct brim__cuda *cuda = NULL;
    const brim_status status = brim__cuda_load(&cuda, NULL);
    if (status != BRIM_OK) {
        return status;
    }
    const CUresult result = cuda->cuDeviceGet(device, (int)index);
    return result == CUDA_SUCCESS ? BRIM_OK : fail(index, result, "finding the device");
}

/* The free memory can be read only in a context, which is made for the query if it does not exist.
 * If that is refused (all memory is taken, or another process has the device for itself), the
 * answer is BRIM_UNKNOWN, and the other properties are still reported. */
static uint64_t read_free(CUdevice device) {
    const struct brim__cuda *cuda = driver();
    CUcontext context = NULL;
    uint64_t answer = BRIM_UNKNOWN;
    if (cuda->cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS) {
        return answer;
    }
    if (enter_context(context) == CUDA_SUCCESS) {
        size_t free_bytes = 0, total_bytes = 0;
        if (cuda->cuMemGetInfo_v2(&free_bytes, &total_bytes) == CUDA_SUCCESS) {
            answer = free_bytes;
        }
        leave();
    }
    (void)cuda->cuDevicePrimaryCtxRelease_v2(device);
    return answer;
}

static brim_status read_device(uint32_t index, brim_device_info *info) {
    CUdevice device = 0;
    const brim_status status = find_device(index, &device);
    if (status != BRIM_OK) {
        return status;
    }
    const struct brim__cuda *cuda = driver();
    size_t total = 0;
    int version = 0, integrated = 0;
    CUresult result = cuda->cuDeviceGetName(info->name, (int)sizeof info->name, device);
    if (result == CUDA_SUCCESS) {
        result = cuda->cuDeviceTotalMem_v2(&total, device);
    }
    if (result == CUDA_SUCCESS) {
        result = cuda->cuDeviceGetAttribute(&integrated, CU_DEVICE_ATTRIBUTE_INTEGRATED, device);
    }
    if (result == CUDA_SUCCESS) {
        result = cuda->cuDriverGetVersion(&version);
    }
    if (result != CUDA_SUCCESS) {
        return fail(index, result, "reading the properties of the device");
    }
    info->name[sizeof info->name - 1] = '\0';
    /* 12040 is 12.4 */
    snprintf(info->driver, sizeof info->driver, "CUDA %d.%d", version / 1000, version % 1000 / 10);
    info->total_bytes = total;
    info->free_bytes = read_free(device);
    info->largest_bytes = BRIM_UNLIMITED;
    info->unified = integrated != 0;
    info->converts = 0;
    return BRIM_OK;
}

/* -------------------------------------------------------- context and queues */

static brim_status check_queue(struct brim__device *device, void *handle) {
    if (handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
        return BRIM_OK; /* they are of the context in which they are used: the device's */
    }
    if ((uintptr_t)handle < FIRST_ADDRESS) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "cuda:%u: %p is not a stream; give a CUstream, 1 (the legacy default "
                          "stream) or 2 (the thread's)",
                          device->index, handle);
    }
    CUcontext context = NULL;
    CUresult result = enter(device);
    if (result == CUDA_SUCCESS) {
        result = driver()->cuStreamGetCtx(handle, &context);
        leave();
    }
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_INVALID_HANDLE) {
        return fail(device->index, result, "reading the context of a stream");
    }
    if (result == CUDA_ERROR_INVALID_HANDLE || context != device->context) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "the stream %p is not of the primary context of cuda:%u, which brim, "
                          "CUDA's runtime and the frameworks use: make it there, or open the "
                          "device that it belongs to",
                          handle, device->index);
    }
    return BRIM_OK;
}

static brim_status open_device(struct brim__device *device, void *queue, brim_budget *budget) {
    (void)budget; /* this driver needs no memory for `self` */
    CUdevice found = 0;
    brim_status status = find_device(device->index, &found);
    if (status != BRIM_OK) {
        return status;
    }
    CUcontext context = NULL;
    const CUresult result = driver()->cuDevicePrimaryCtxRetain(&context, found);
    if (result != CUDA_SUCCESS) {
        return fail(device->index, result, "opening the device's primary context");
    }
    device->context = context;
    device->handle = (void *)(intptr_t)found;
    device->largest = BRIM_UNLIMITED;
    if (queue != NULL) {
        status = check_queue(device, queue);
    }
    if (status != BRIM_OK) {
        (void)driver()->cuDevicePrimaryCtxRelease_v2(found);
        device->context = NULL;
    }
    return status;
}

static void close_device(struct brim__device *device) {
    (void)driver()->cuDevicePrimaryCtxRelease_v2(device_of(device));
}

static brim_status new_queue(struct brim__device *device, void **handle) {
    CUstream stream = NULL;
    CUresult result = enter(device);
    if (result == CUDA_SUCCESS) {
        result = driver()->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
        leave();
    }
    if (result != CUDA_SUCCESS) {
        return fail(device->index, result, "making a stream");
    }
    *handle = stream;
    return BRIM_OK;
}

static void free_queue(struct brim__device *device, void *handle) {
    if (enter(device) == CUDA_SUCCESS) {
        (void)driver()->cuStreamSynchronize(handle);
        (void)driver()->cuStreamDestroy_v2(handle);
        leave();
    }
}

/* ------------------------------------------------------------------- memory */

static brim_status fail_take(const struct brim__device *device, uint64_t bytes, CUresult result,
                             size_t free_bytes, size_t total_bytes) {
    char asked[BRIM__SIZE_TEXT], left[BRIM__SIZE_TEXT], all[BRIM__SIZE_TEXT], text[BRIM__CUDA_TEXT];
    if (result != CUDA_ERROR_OUT_OF_MEMORY || total_bytes == 0) {
        return fail_bytes(device->index, result, "taking device memory,", bytes);
    }
    return brim__fail(BRIM_STATUS_MEMORY,
                      "cuda:%u: taking device memory, %s: %s; %s of %s are free there: give brim "
                      "fewer bytes of the device, or free memory of other programs there",
                      device->index, brim__size_text(bytes, asked),
                      brim__cuda_text(driver(), result, text), brim__size_text(free_bytes, left),
                      brim__size_text(total_bytes, all));
}

static brim_status take(struct brim__device *device, uint64_t bytes, void **handle) {
    CUdeviceptr address = 0;
    size_t free_bytes = 0, total_bytes = 0;
    CUresult result = enter(device);
    if (result == CUDA_SUCCESS) {
        result = driver()->cuMemAlloc_v2(&address, bytes);
        if (result == CUDA_ERROR_OUT_OF_MEMORY) { /* the free bytes are only for the text */
            (void)driver()->cuMemGetInfo_v2(&free_bytes, &total_bytes);
        }
        leave();
    }
    if (result != CUDA_SUCCESS) {
        return fail_take(device, bytes, result, free_bytes, total_bytes);
    }
    *handle = (void *)(uintptr_t)address;
    return BRIM_OK;
}

static void give(struct brim__device *device, void *handle) {
    if (enter(device) == CUDA_SUCCESS) {
        (void)driver()->cuMemFree_v2(address_of(handle));
        leave();
    }
}

static brim_status pin(struct brim__device *device, void *memory, uint64_t bytes, void **pinned) {
    assert((uintptr_t)memory % brim__page_bytes() == 0 && bytes % brim__page_bytes() == 0);
    CUresult result = enter(device);
    if (result == CUDA_SUCCESS) {
        result = driver()->cuMemHostRegister_v2(memory, bytes, 0);
        leave();
    }
    if (result == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED) {
        char size[BRIM__SIZE_TEXT];
        return brim__fail(BRIM_STATUS_DRIVER,
                          "cuda:%u: page-locking %s at %p: the memory, or a part of it, is "
                          "page-locked (registered with CUDA) already",
                          device->index, brim__size_text(bytes, size), memory);
    }
    if (result != CUDA_SUCCESS) {
        return fail_bytes(device->index, result, "page-locking", bytes);
    }
    *pinned = NULL;
    return BRIM_OK;
}

static void unpin(struct brim__device *device, void *memory, void *pinned) {
    (void)pinned;
    if (enter(device) == CUDA_SUCCESS) {
        (void)driver()->cuMemHostUnregister(memory);
        leave();
    }
}

/* ------------------------------------------------------------------- copies */

static brim_status write_to(struct brim__queue *queue, const struct brim__device_memory *to,
                            uint64_t offset, const void *from, uint64_t bytes) {
    CUresult result = enter(queue->device);
    if (result == CUDA_SUCCESS) {
        result = driver()->cuMemcpyHtoDAsync_v2(address_of(to->handle) + offset, from, bytes,
                                                queue->handle);
        leave();
    }
    return result == CUDA_SUCCESS
               ? BRIM_OK
               : fail_bytes(queue->device->index, result, "copying to the device,", bytes);
}

static brim_status read_from(struct brim__queue *queue, void *to,
                             const struct brim__device_memory *from, uint64_t offset,
                             uint64_t bytes) {
    CUresult result = enter(queue->device);
    if (result == CUDA_SUCCESS) {
        result = driver()->cuMemcpyDtoHAsync_v2(to, address_of(from->handle) + offset, bytes,
                                                queue->handle);
        leave();
    }
    return result == CUDA_SUCCESS
               ? BRIM_OK
               : fail_bytes(queue->device->index, result, "copying from the device,", bytes);
}

static brim_status copy(struct brim__queue *queue, const struct brim__device_memory *to,
                        uint64_t to_offset, const struct brim__device_memory *from,
                        uint64_t from_offset, uint64_t bytes) {
    CUresult result = enter(queue->device);
    if (result == CUDA_SUCCESS) {
        result = driver()->cuMemcpyDtoDAsync_v2(address_of(to->handle) + to_offset,
                                                address_of(from->handle) + from_offset, bytes,
                                                queue->handle);
        leave();
    }
    return result == CUDA_SUCCESS
               ? BRIM_OK
               : fail_bytes(queue->device->index, result, "copying on the device,", bytes);
}

/* ------------------------------------------------------------------- events */

static brim_status flush(struct brim__queue *queue) {
    (void)queue;
    return BRIM_OK;
}

static brim_status record(struct brim__queue *queue, void **event) {
    CUevent made = NULL;
    CUresult result = enter(queue->device);
    if (result == CUDA_SUCCESS) {
        result = driver()->cuEventCreate(&made, CU_EVENT_DISABLE_TIMING);
        if (result == CUDA_SUCCESS) {
            result = driver()->cuEventRecord(made, queue->handle);
            if (result != CUDA_SUCCESS) {
                (void)driver()->cuEventDestroy_v2(made);
            }
        }
        leave();
    }
    if (result != CUDA_SUCCESS) {
        return fail(queue->device->index, result, "putting an event into a stream");
    }
    *event = made;
    return BRIM_OK;
}

static brim_status wait_in_queue(struct brim__queue *queue, void *event) {
    CUresult result = enter(queue->device);
    if (result == CUDA_SUCCESS) {
        result = driver()->cuStreamWaitEvent(queue->handle, event, 0);
        leave();
    }
    return result == CUDA_SUCCESS
               ? BRIM_OK
               : fail(queue->device->index, result, "having a stream wait for an event");
}

static brim_status poll_event(struct brim__device *device, void *event) {
    CUresult result = enter(device);
    if (result == CUDA_SUCCESS) {
        result = driver()->cuEventQuery(event);
        leave();
    }
    if (result == CUDA_ERROR_NOT_READY) {
        return BRIM_STATUS_TIMEOUT;
    }
    return result == CUDA_SUCCESS
               ? BRIM_OK
               : fail(device->index, result, "querying an event, or earlier work,");
}

static brim_status wait_for_event(struct brim__device *device, void *event) {
    CUresult result = enter(device);
    if (result == CUDA_SUCCESS) {
        result = driver()->cuEventSynchronize(event);
        leave();
    }
    return result == CUDA_SUCCESS
               ? BRIM_OK
               : fail(device->index, result, "waiting for an event, or earlier work,");
}

/* The driver frees a pending event when it completes. */
static void free_event(struct brim__device *device, void *event) {
    if (enter(device) == CUDA_SUCCESS) {
        (void)driver()->cuEventDestroy_v2(event);
        leave();
    }
}

const struct brim__device_ops brim__device_cuda = {
    .name = "cuda",
    .count = count_devices,
    .read = read_device,
    .open = open_device,
    .close = close_device,
    .take = take,
    .give = give,
    .pin = pin,
    .unpin = unpin,
    .queue_new = new_queue,
    .queue_free = free_queue,
    .queue_check = check_queue,
    .write = write_to,
    .read_back = read_from,
    .copy = copy,
    .lookup = NULL, /* batches are normalised on the host */
    .gather = NULL,
    .flush = flush,
    .record = record,
    .queue_wait = wait_in_queue,
    .event_poll = poll_event,
    .event_wait = wait_for_event,
    .event_free = free_event,
};

/*
 * cuda.c: entry points of the stand-in for CUDA's driver (cuda_standin.h says what it is):
 * devices, contexts and memory. Errors are those that CUDA documents.
 */
#include "cuda_state.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Addresses of device memory begin here, are spread over the devices, and are used once. */
#define ADDRESSES (UINT64_C(0xD0) << 48)
#define OF_DEVICE (UINT64_C(1) << 44)
#define ALIGNMENT 512u
#define GAP       4096u /* between allocations, so that running over meets nothing */
#define VERSION   13000
#define UNTOUCHED 0xA5 /* what new device memory holds */

/* ------------------------------------------------------------------- texts */

static const struct {
    CUresult result;
    const char *name, *says;
} results[] = {
    { CUDA_SUCCESS, "CUDA_SUCCESS", "no error" },
    { CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument" },
    { CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory" },
    { CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error" },
    { CUDA_ERROR_DEINITIALIZED, "CUDA_ERROR_DEINITIALIZED", "driver shutting down" },
    { CUDA_ERROR_STUB_LIBRARY, "CUDA_ERROR_STUB_LIBRARY", "the library is a stub" },
    { CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no device is there" },
    { CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal" },
    { CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context" },
    { CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle" },
    { CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready" },
    { CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access" },
    { CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
      "part or all of the memory is registered already" },
    { CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
      "the memory is not registered" },
    { CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
      "operation not permitted when stream is capturing" },
    { CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error" },
};

static CUresult find_text(CUresult result, const char **name, const char **says) {
    for (size_t i = 0; i < sizeof results / sizeof results[0]; i++) {
        if (results[i].result == result) {
            *name = results[i].name;
            *says = results[i].says;
            return CUDA_SUCCESS;
        }
    }
    *name = *says = NULL;
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorName(CUresult result, const char **text) {
    const char *says;
    return find_text(result, text, &says);
}

CUresult cuGetErrorString(CUresult result, const char **text) {
    const char *name;
    return find_text(result, &name, text);
}

/* ----------------------------------------------------------------- devices */

CUresult cuInit(unsigned int flags) {
    struct call call;
    const char *told = getenv("CUDA_STANDIN_INIT");
    if (!begin(&call, "cuInit", NEEDS_NOTHING)) {
        return call.result;
    }
    if (told != NULL) {
        return end(&call, (CUresult)atoi(told));
    }
    if (flags != 0) {
        return violate(&call, CUDA_ERROR_INVALID_VALUE, "flags are %u", flags);
    }
    if (state.devices == 0) {
        return end(&call, CUDA_ERROR_NO_DEVICE);
    }
    state.initialised = true;
    return end(&call, CUDA_SUCCESS);
}

CUresult cuDriverGetVersion(int *version) {
    struct call call;
    if (!begin(&call, "cuDriverGetVersion", NEEDS_NOTHING)) {
        return call.result;
    }
    *version = VERSION;
    return end(&call, CUDA_SUCCESS);
}

CUresult cuDeviceGetCount(int *count) {
    struct call call;
    if (!begin(&call, "cuDeviceGetCount", NEEDS_INIT)) {
        return call.result;
    }
    *count = state.devices;
    return end(&call, CUDA_SUCCESS);
}

CUresult cuDeviceGet(CUdevice *device, int index) {
    struct call call;
    if (!begin(&call, "cuDeviceGet", NEEDS_INIT)) {
        return call.result;
    }
    if (index < 0 || index >= state.devices) {
        return end(&call, CUDA_ERROR_INVALID_DEVICE);
    }
    *device = index;
    return end(&call, CUDA_SUCCESS);
}

static bool begin_device(struct call *call, const char *name, CUdevice device, unsigned flags) {
    if (!begin(call, name, NEEDS_INIT | flags)) {
        return false;
    }
    if (device < 0 || device >= state.devices) {
        call->result = violate(call, CUDA_ERROR_INVALID_DEVICE, "there is no device %d", device);
        return false;
    }
    return true;
}

CUresult cuDeviceGetName(char *name, int bytes, CUdevice device) {
    struct call call;
    if (!begin_device(&call, "cuDeviceGetName", device, 0)) {
        return call.result;
    }
    snprintf(name, (size_t)bytes, "Stand-in %d", device);
    return end(&call, CUDA_SUCCESS);
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    struct call call;
    if (!begin_device(&call, "cuDeviceTotalMem_v2", device, 0)) {
        return call.result;
    }
    *bytes = state.contexts[device].limit;
    return end(&call, CUDA_SUCCESS);
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
    struct call call;
    if (!begin_device(&call, "cuDeviceGetAttribute", device, 0)) {
        return call.result;
    }
    if (attribute != CU_DEVICE_ATTRIBUTE_INTEGRATED) {
        return violate(&call, CUDA_ERROR_INVALID_VALUE, "attribute %d", (int)attribute);
    }
    *value = 0;
    return end(&call, CUDA_SUCCESS);
}

/* ----------------------------------------------------------------- contexts */

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    struct call call;
    if (!begin_device(&call, "cuDevicePrimaryCtxRetain", device, 0)) {
        return call.result;
    }
    struct context *own = &state.contexts[device];
    while (own->ending) {
        pthread_cond_wait(&state.changed, &state.lock);
    }
    if (own->retained++ == 0) {
        own->handle = (CUcontext)(uintptr_t)new_handle();
    }
    COUNTER(retained)++;
    *context = own->handle;
    return end(&call, CUDA_SUCCESS);
}

static void check_left(struct context *context) {
    const struct stream *stream = context->streams;
    for (; stream != NULL; stream = stream->next) {
        if (stream->made) {
            note("a context was released for the last time with stream %p in it",
                 (void *)stream->handle);
        }
    }
    for (struct allocation *next, *a = state.allocations; a != NULL; a = next) {
        next = a->next;
        if (a->context == context) {
            note("a context was released for the last time with %zu bytes at %#llx in it", a->bytes,
                 a->address);
            drop_allocation(a);
        }
    }
    for (struct event *next, *e = state.events; e != NULL; e = next) {
        next = e->next;
        if (e->context == context) {
            note("a context was released for the last time with event %p in it", (void *)e->handle);
            drop_event(e);
        }
    }
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    struct call call;
    if (!begin_device(&call, "cuDevicePrimaryCtxRelease_v2", device, UNDOES)) {
        return call.result;
    }
    struct context *own = &state.contexts[device];
    if (own->retained == 0) {
        return violate(&call, CUDA_ERROR_INVALID_CONTEXT, "the context is not retained");
    }
    COUNTER(retained)--;
    if (--own->retained == 0) {
        check_left(own);
        own->handle = NULL;
        own->ending = true;
        end_streams(own);
        own->ending = false;
        pthread_cond_broadcast(&state.changed);
    }
    return end(&call, CUDA_SUCCESS);
}

CUresult cuCtxPushCurrent_v2(CUcontext context) {
    struct call call;
    if (!begin(&call, "cuCtxPushCurrent_v2", NEEDS_INIT)) {
        return call.result;
    }
    if (find_context(context) == NULL) {
        return violate(&call, CUDA_ERROR_INVALID_CONTEXT, "%p is no context", (void *)context);
    }
    if (!push_context(context)) {
        return violate(&call, CUDA_ERROR_INVALID_VALUE, "the thread's stack is full");
    }
    return end(&call, CUDA_SUCCESS);
}

CUresult cuCtxPopCurrent_v2(CUcontext *context) {
    struct call call;
    if (!begin(&call, "cuCtxPopCurrent_v2", NEEDS_INIT | UNDOES)) {
        return call.result;
    }
    if (!pop_context(context)) {
        return violate(&call, CUDA_ERROR_INVALID_CONTEXT, "the thread's stack is empty");
    }
    return end(&call, CUDA_SUCCESS);
}

/* ------------------------------------------------------------------- memory */

struct allocation *find_allocation(CUdeviceptr address) {
    struct allocation *a = state.allocations;
    while (a != NULL && (address < a->address || address - a->address >= a->bytes)) {
        a = a->next;
    }
    return a;
}

struct locked *find_locked(const void *memory, size_t bytes) {
    const uintptr_t address = (uintptr_t)memory;
    struct locked *l = state.locked;
    while (l != NULL && (address < l->address || address - l->address > l->bytes ||
                         bytes > l->bytes - (address - l->address))) {
        l = l->next;
    }
    return l;
}

static void raise_peak(enum cuda_standin_counter peak, uint64_t value) {
    if (state.counters[peak] < value) {
        state.counters[peak] = value;
    }
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes) {
    struct call call;
    if (!begin(&call, "cuMemGetInfo_v2", NEEDS_CONTEXT)) {
        return call.result;
    }
    const struct context *context = call.context;
    *free_bytes = context->limit > context->used ? context->limit - context->used : 0;
    *total_bytes = context->limit;
    return end(&call, CUDA_SUCCESS);
}

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes) {
    struct call call;
    if (!begin(&call, "cuMemAlloc_v2", NEEDS_CONTEXT | UNSAFE)) {
        return call.result;
    }
    struct context *context = call.context;
    if (bytes == 0) {
        return violate(&call, CUDA_ERROR_INVALID_VALUE, "no bytes are asked for");
    }
    if (context->used > context->limit || bytes > context->limit - context->used) {
        return end(&call, CUDA_ERROR_OUT_OF_MEMORY);
    }
    struct allocation *allocation = calloc(1, sizeof *allocation);
    uint8_t *memory = malloc(bytes);
    if (allocation == NULL || memory == NULL) {
        free(allocation);
        free(memory);
        return end(&call, CUDA_ERROR_OUT_OF_MEMORY);
    }
    memset(memory, UNTOUCHED, bytes);
    *allocation = (struct allocation){
        .next = state.allocations,
        .context = context,
        .address = ADDRESSES + (CUdeviceptr)(context - state.contexts) * OF_DEVICE + context->given,
        .bytes = bytes,
        .memory = memory,
    };
    context->given += (bytes + GAP + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    context->used += bytes;
    state.allocations = allocation;
    COUNTER(allocations)++;
    COUNTER(device_bytes) += bytes;
    raise_peak(CUDA_STANDIN_device_bytes_peak, COUNTER(device_bytes));
    *address = allocation->address;
    return end(&call, CUDA_SUCCESS);
}

CUresult cuMemFree_v2(CUdeviceptr address) {
    struct call call;
    if (!begin(&call, "cuMemFree_v2", NEEDS_CONTEXT | UNDOES | UNSAFE)) {
        return call.result;
    }
    struct allocation *allocation = find_allocation(address);
    if (allocation == NULL || allocation->address != address) {
        return violate(&call, CUDA_ERROR_INVALID_VALUE, "%#llx is nothing that is allocated",
                       address);
    }
    if (allocation->context != call.context) {
        note("cuMemFree_v2: %#llx is of another context", address);
    }
    if (allocation->uses > 0) {
        note("cuMemFree_v2: %#llx is still used %u times in streams", address, allocation->uses);
    }
    drop_allocation(allocation);
    return end(&call, CUDA_SUCCESS);
}

CUresult cuMemHostRegister_v2(void *memory, size_t bytes, unsigned int flags) {
    struct call call;
    if (!begin(&call, "cuMemHostRegister_v2", NEEDS_CONTEXT | UNSAFE)) {
        return call.result;
    }
    const uintptr_t address = (uintptr_t)memory, page = (uintptr_t)sysconf(_SC_PAGESIZE);
    if (bytes == 0 || address % page != 0 || bytes % page != 0 || flags != 0) {
        return violate(&call, CUDA_ERROR_INVALID_VALUE, "%zu bytes at %p are not whole pages",
                       bytes, memory);
    }
    for (const struct locked *l = state.locked; l != NULL; l = l->next) {
        if (address < l->address + l->bytes && l->address < address + bytes) {
            return end(&call, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
        }
    }
    const uint64_t taken = COUNTER(locked_bytes);
    struct locked *locked = NULL;
    if (taken <= state.locked_limit && bytes <= state.locked_limit - taken) {
        locked = calloc(1, sizeof *locked);
    }
    if (locked == NULL) {
        return end(&call, CUDA_ERROR_OUT_OF_MEMORY);
    }
    locked->next = state.locked;
    locked->context = call.context;
    locked->address = address;
    locked->bytes = bytes;
    state.locked = locked;
    COUNTER(locked)++;
    COUNTER(locked_bytes) += bytes;
    raise_peak(CUDA_STANDIN_locked_bytes_peak, COUNTER(locked_bytes));
    return end(&call, CUDA_SUCCESS);
}

CUresult cuMemHostUnregister(void *memory) {
    struct call call;
    if (!begin(&call, "cuMemHostUnregister", NEEDS_CONTEXT | UNDOES | UNSAFE)) {
        return call.result;
    }
    struct locked **at = &state.locked;
    while (*at != NULL && (*at)->address != (uintptr_t)memory) {
        at = &(*at)->next;
    }
    struct locked *locked = *at;
    if (locked == NULL) {
        return violate(&call, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "%p is not page-locked",
                       memory);
    }
    if (locked->uses > 0) {
        return violate(&call, CUDA_ERROR_INVALID_VALUE, "%p is still used %u times in streams",
                       memory, locked->uses);
    }
    if (msync(memory, locked->bytes, MS_ASYNC) != 0 && errno == ENOMEM) {
        note("cuMemHostUnregister: %p was unmapped before", memory);
    }
    *at = locked->next;
    COUNTER(locked)--;
    COUNTER(locked_bytes) -= locked->bytes;
    free(locked);
    return end(&call, CUDA_SUCCESS);
}

/*
 * cuda_work.c: entry points of the stand-in for CUDA's driver: streams, copies and events,
 * and the kernels that tests play. Each checks what it is given, and puts what is to
 * happen on the device into a stream.
 */
#include "cuda_state.h"

#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------- streams */

CUresult cuStreamCreate(CUstream *stream, unsigned int flags) {
    struct call call;
    if (!begin(&call, "cuStreamCreate", NEEDS_CONTEXT)) {
        return call.result;
    }
    struct stream *made = new_stream(call.context, (flags & CU_STREAM_NON_BLOCKING) == 0);
    if (made == NULL) {
        return end(&call, CUDA_ERROR_OUT_OF_MEMORY);
    }
    made->made = true;
    COUNTER(streams)++;
    *stream = made->handle;
    return end(&call, CUDA_SUCCESS);
}

/* A call that uses a stream; begun, or false with the result to return. */
static bool begin_stream(struct call *call, const char *name, unsigned flags, CUstream handle,
                         struct stream **stream) {
    if (!begin(call, name, NEEDS_CONTEXT | flags)) {
        return false;
    }
    *stream = find_stream(call->context, handle);
    if (*stream == NULL) {
        call->result = violate(call, CUDA_ERROR_INVALID_HANDLE,
                               "%p is no stream of the context, or not any more", (void *)handle);
        return false;
    }
    return true;
}

CUresult cuStreamDestroy_v2(CUstream handle) {
    struct call call;
    struct stream *stream;
    if (!begin_stream(&call, "cuStreamDestroy_v2", UNDOES, handle, &stream)) {
        return call.result;
    }
    if (!stream->made) {
        return violate(&call, CUDA_ERROR_INVALID_HANDLE, "a default stream cannot be destroyed");
    }
    if (stream->first != NULL) {
        note("cuStreamDestroy_v2: %p still holds something", (void *)handle);
    }
    end_stream(stream);
    return end(&call, CUDA_SUCCESS);
}

CUresult cuStreamSynchronize(CUstream handle) {
    struct call call;
    struct stream *stream;
    if (!begin_stream(&call, "cuStreamSynchronize", UNDOES | UNSAFE, handle, &stream)) {
        return call.result;
    }
    wait_for(stream, put(stream, &(struct operation){ .action = NOTHING }));
    return end(&call, CUDA_SUCCESS);
}

/* Of any context: that is what it is asked for. */
CUresult cuStreamGetCtx(CUstream handle, CUcontext *context) {
    struct call call;
    if (!begin(&call, "cuStreamGetCtx", NEEDS_CONTEXT)) {
        return call.result;
    }
    struct stream *stream = find_stream(call.context, handle);
    for (unsigned i = 0; stream == NULL && i < CUDA_STANDIN_DEVICES; i++) {
        stream = find_stream(&state.contexts[i], handle);
    }
    if (stream == NULL) {
        return end(&call, CUDA_ERROR_INVALID_HANDLE);
    }
    *context = stream->context->handle;
    return end(&call, CUDA_SUCCESS);
}

/* -------------------------------------------------------------------- copies */

/* The bytes of device memory from `address` on; NULL: they are not all there. */
static uint8_t *find_bytes(const struct call *call, CUdeviceptr address, size_t bytes,
                           struct allocation **allocation) {
    struct allocation *a = find_allocation(address);
    if (a == NULL || a->context != call->context || bytes > a->bytes - (address - a->address)) {
        return NULL;
    }
    *allocation = a;
    return a->memory + (address - a->address);
}

static CUresult no_bytes(struct call *call, CUdeviceptr address, size_t bytes) {
    return violate(call, CUDA_ERROR_INVALID_VALUE,
                   "%zu bytes at %#llx are not all of one allocation of the context", bytes,
                   address);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream handle) {
    struct call call;
    struct stream *stream;
    if (!begin_stream(&call, "cuMemcpyHtoDAsync_v2", 0, handle, &stream)) {
        return call.result;
    }
    struct operation copy = { .action = COPY, .from = from, .bytes = bytes };
    copy.to = find_bytes(&call, to, bytes, &copy.to_memory);
    if (copy.to == NULL) {
        return no_bytes(&call, to, bytes);
    }
    copy.host = find_locked(from, bytes);
    COUNTER(not_locked) += copy.host == NULL;
    COUNTER(copies_in)++;
    COUNTER(bytes_in) += bytes;
    put(stream, &copy);
    return end(&call, CUDA_SUCCESS);
}

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream handle) {
    struct call call;
    struct stream *stream;
    if (!begin_stream(&call, "cuMemcpyDtoHAsync_v2", 0, handle, &stream)) {
        return call.result;
    }
    struct operation copy = { .action = COPY, .to = to, .bytes = bytes };
    copy.from = find_bytes(&call, from, bytes, &copy.from_memory);
    if (copy.from == NULL) {
        return no_bytes(&call, from, bytes);
    }
    copy.host = find_locked(to, bytes);
    COUNTER(not_locked) += copy.host == NULL;
    COUNTER(copies_back)++;
    put(stream, &copy);
    return end(&call, CUDA_SUCCESS);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream handle) {
    struct call call;
    struct stream *stream;
    if (!begin_stream(&call, "cuMemcpyDtoDAsync_v2", 0, handle, &stream)) {
        return call.result;
    }
    struct operation copy = { .action = COPY, .bytes = bytes };
    copy.to = find_bytes(&call, to, bytes, &copy.to_memory);
    copy.from = find_bytes(&call, from, bytes, &copy.from_memory);
    if (copy.to == NULL || copy.from == NULL) {
        return no_bytes(&call, copy.to == NULL ? to : from, bytes);
    }
    COUNTER(copies_within)++;
    put(stream, &copy);
    return end(&call, CUDA_SUCCESS);
}

/* -------------------------------------------------------------------- events */

CUresult cuEventCreate(CUevent *event, unsigned int flags) {
    struct call call;
    if (!begin(&call, "cuEventCreate", NEEDS_CONTEXT)) {
        return call.result;
    }
    struct event *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return end(&call, CUDA_ERROR_OUT_OF_MEMORY);
    }
    if (flags != CU_EVENT_DISABLE_TIMING) {
        note("cuEventCreate: flags are %#x", flags);
    }
    made->next = state.events;
    made->context = call.context;
    made->handle = (CUevent)(uintptr_t)new_handle();
    state.events = made;
    COUNTER(events)++;
    *event = made->handle;
    return end(&call, CUDA_SUCCESS);
}

static struct event *find_event(CUevent handle) {
    struct event *event = state.events;
    while (event != NULL && event->handle != handle) {
        event = event->next;
    }
    return event;
}

static CUresult no_event(struct call *call, CUevent handle) {
    return violate(call, CUDA_ERROR_INVALID_HANDLE, "%p is no event, or not any more",
                   (void *)handle);
}

CUresult cuEventDestroy_v2(CUevent handle) {
    struct call call;
    if (!begin(&call, "cuEventDestroy_v2", NEEDS_CONTEXT | UNDOES)) {
        return call.result;
    }
    struct event *event = find_event(handle);
    if (event == NULL) {
        return no_event(&call, handle);
    }
    drop_event(event);
    return end(&call, CUDA_SUCCESS);
}

CUresult cuEventRecord(CUevent handle, CUstream to) {
    struct call call;
    struct stream *stream;
    if (!begin_stream(&call, "cuEventRecord", 0, to, &stream)) {
        return call.result;
    }
    struct event *event = find_event(handle);
    if (event == NULL || event->context != call.context) {
        return no_event(&call, handle);
    }
    put(stream, &(struct operation){ .action = RECORD, .event = event, .mark = ++event->recorded });
    return end(&call, CUDA_SUCCESS);
}

CUresult cuStreamWaitEvent(CUstream to, CUevent handle, unsigned int flags) {
    struct call call;
    struct stream *stream;
    if (!begin_stream(&call, "cuStreamWaitEvent", 0, to, &stream)) {
        return call.result;
    }
    struct event *event = find_event(handle);
    if (event == NULL) {
        return no_event(&call, handle);
    }
    if (flags != 0) {
        return violate(&call, CUDA_ERROR_INVALID_VALUE, "flags are %#x", flags);
    }
    put(stream, &(struct operation){ .action = WAIT, .event = event, .mark = event->recorded });
    return end(&call, CUDA_SUCCESS);
}

CUresult cuEventQuery(CUevent handle) {
    struct call call;
    if (!begin(&call, "cuEventQuery", NEEDS_CONTEXT | UNSAFE)) {
        return call.result;
    }
    const struct event *event = find_event(handle);
    if (event == NULL) {
        return no_event(&call, handle);
    }
    if (state.silent) {
        return end(&call, CUDA_ERROR_UNKNOWN);
    }
    return end(&call, event->done < event->recorded ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS);
}

CUresult cuEventSynchronize(CUevent handle) {
    struct call call;
    if (!begin(&call, "cuEventSynchronize", NEEDS_CONTEXT | UNDOES | UNSAFE)) {
        return call.result;
    }
    struct event *event = find_event(handle);
    if (event == NULL) {
        return no_event(&call, handle);
    }
    if (state.silent) {
        return end(&call, CUDA_ERROR_UNKNOWN);
    }
    const uint64_t mark = event->recorded;
    event->uses++;
    while (event->done < mark) {
        pthread_cond_wait(&state.changed, &state.lock);
    }
    if (--event->uses == 0 && event->destroyed) {
        free(event);
    }
    return end(&call, CUDA_SUCCESS);
}

/* ----------------------------------------------------- of the tests' own */

CUresult cuda_standin_hold(CUstream handle) {
    struct call call;
    struct stream *stream;
    if (!begin_stream(&call, "cuda_standin_hold", UNCOUNTED, handle, &stream)) {
        return call.result;
    }
    stream->holds++;
    return end(&call, CUDA_SUCCESS);
}

CUresult cuda_standin_go_on(CUstream handle) {
    struct call call;
    struct stream *stream;
    if (!begin_stream(&call, "cuda_standin_go_on", UNCOUNTED, handle, &stream)) {
        return call.result;
    }
    if (stream->holds == 0) {
        return violate(&call, CUDA_ERROR_INVALID_VALUE, "the stream is not held");
    }
    stream->holds--;
    pthread_cond_broadcast(&state.changed);
    return end(&call, CUDA_SUCCESS);
}

CUresult cuda_standin_read(CUstream handle, CUdeviceptr from, void *to, size_t bytes,
                           uint64_t microseconds) {
    struct call call;
    struct stream *stream;
    if (!begin_stream(&call, "cuda_standin_read", UNCOUNTED, handle, &stream)) {
        return call.result;
    }
    struct operation read = {
        .action = COPY, .to = to, .bytes = bytes, .microseconds = microseconds
    };
    read.from = find_bytes(&call, from, bytes, &read.from_memory);
    if (read.from == NULL) {
        return no_bytes(&call, from, bytes);
    }
    put(stream, &read);
    return end(&call, CUDA_SUCCESS);
}

CUresult cuda_standin_write(CUstream handle, CUdeviceptr to, uint8_t value, size_t bytes,
                            uint64_t microseconds) {
    struct call call;
    struct stream *stream;
    if (!begin_stream(&call, "cuda_standin_write", UNCOUNTED, handle, &stream)) {
        return call.result;
    }
    struct operation write = {
        .action = FILL, .value = value, .bytes = bytes, .microseconds = microseconds
    };
    write.to = find_bytes(&call, to, bytes, &write.to_memory);
    if (write.to == NULL) {
        return no_bytes(&call, to, bytes);
    }
    put(stream, &write);
    return end(&call, CUDA_SUCCESS);
}

CUresult cuda_standin_peek(CUdeviceptr from, void *to, size_t bytes) {
    struct call call;
    if (!begin(&call, "cuda_standin_peek", NEEDS_INIT | UNCOUNTED)) {
        return call.result;
    }
    const struct allocation *a = find_allocation(from);
    if (a == NULL || bytes > a->bytes - (from - a->address)) {
        return no_bytes(&call, from, bytes);
    }
    memcpy(to, a->memory + (from - a->address), bytes);
    return end(&call, CUDA_SUCCESS);
}

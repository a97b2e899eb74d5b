/*
 * cuda_streams.c: the streams of the stand-in for CUDA's driver.
 *
 * A stream is a list of operations and a thread that does them in order. The first of the
 * list is begun when the stream is not held, the event that it waits for is done, and the
 * order with the legacy stream allows it: an operation of the legacy stream waits for all
 * earlier ones of the blocking streams of its context, and the other way round. Earlier
 * means that it was put there earlier, which the operations' numbers tell; since lists are
 * in order, looking at the first of each is enough.
 *
 * An operation runs from its beginning, through its delay, until it has moved its bytes.
 * Two that run at the same time and share bytes that one of them writes are a violation.
 */
#include "cuda_state.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void *need(void *memory) {
    if (memory == NULL) {
        abort(); /* the stand-in has no memory: no test can go on */
    }
    return memory;
}

/* -------------------------------------------------------------------- order */

static bool is_before(const struct stream *stream, uint64_t number) {
    return stream->first != NULL && stream->first->number < number;
}

static bool may_begin(const struct stream *stream, const struct operation *operation) {
    if (stream->holds > 0) {
        return false;
    }
    if (operation->action == WAIT && operation->event->done < operation->mark) {
        return false;
    }
    for (const struct stream *s = stream->context->streams; s != NULL; s = s->next) {
        const bool ordered = stream->legacy ? s->blocking : stream->blocking && s->legacy;
        if (s != stream && ordered && is_before(s, operation->number)) {
            return false;
        }
    }
    return true;
}

static bool overlap(const uint8_t *a, size_t a_bytes, const uint8_t *b, size_t b_bytes) {
    return a != NULL && b != NULL && a < b + b_bytes && b < a + a_bytes;
}

static bool collide(const struct operation *a, const struct operation *b) {
    return overlap(a->to, a->bytes, b->to, b->bytes) ||
           overlap(a->to, a->bytes, b->from, b->bytes) ||
           overlap(a->from, a->bytes, b->to, b->bytes);
}

static void check_collisions(const struct stream *stream) {
    for (unsigned device = 0; device < CUDA_STANDIN_DEVICES; device++) {
        for (struct stream *s = state.contexts[device].streams; s != NULL; s = s->next) {
            if (s != stream && s->running && collide(s->first, stream->first)) {
                note("streams %p and %p use the same %zu bytes at once, and one writes",
                     (void *)s->handle, (void *)stream->handle, stream->first->bytes);
            }
        }
    }
}

/* ---------------------------------------------------------------- operations */

static void unlink_allocation(struct allocation *allocation) {
    struct allocation **at = &state.allocations;
    while (*at != allocation) {
        at = &(*at)->next;
    }
    *at = allocation->next;
}

static void free_if_unused(struct allocation *allocation) {
    if (allocation != NULL && allocation->freed && allocation->uses == 0) {
        free(allocation->memory);
        free(allocation);
    }
}

void drop_allocation(struct allocation *allocation) {
    unlink_allocation(allocation);
    allocation->freed = true;
    allocation->context->used -= allocation->bytes;
    COUNTER(allocations)--;
    COUNTER(device_bytes) -= allocation->bytes;
    free_if_unused(allocation);
}

void drop_event(struct event *event) {
    struct event **at = &state.events;
    while (*at != event) {
        at = &(*at)->next;
    }
    *at = event->next;
    event->destroyed = true;
    COUNTER(events)--;
    if (event->uses == 0) {
        free(event);
    }
}

uint64_t put(struct stream *stream, const struct operation *operation) {
    struct operation *own = need(malloc(sizeof *own));
    *own = *operation;
    own->next = NULL;
    own->number = ++state.numbers;
    if (own->to_memory != NULL) {
        own->to_memory->uses++;
    }
    if (own->from_memory != NULL) {
        own->from_memory->uses++;
    }
    if (own->host != NULL) {
        own->host->uses++;
    }
    if (own->event != NULL) {
        own->event->uses++;
    }
    if (stream->last != NULL) {
        stream->last->next = own;
    } else {
        stream->first = own;
    }
    stream->last = own;
    pthread_cond_broadcast(&state.changed);
    return own->number;
}

static void finish(struct stream *stream) {
    struct operation *operation = stream->first;
    struct event *event = operation->event;
    stream->first = operation->next;
    if (stream->first == NULL) {
        stream->last = NULL;
    }
    stream->running = false;
    stream->done = operation->number;
    if (operation->to_memory != NULL) {
        operation->to_memory->uses--;
        free_if_unused(operation->to_memory);
    }
    if (operation->from_memory != NULL) {
        operation->from_memory->uses--;
        if (operation->from_memory != operation->to_memory) {
            free_if_unused(operation->from_memory);
        }
    }
    if (operation->host != NULL) {
        operation->host->uses--;
    }
    if (event != NULL) {
        if (operation->action == RECORD && event->done < operation->mark) {
            event->done = operation->mark;
        }
        if (--event->uses == 0 && event->destroyed) {
            free(event);
        }
    }
    free(operation);
    pthread_cond_broadcast(&state.changed);
}

static void move_bytes(const struct operation *operation) {
    if (operation->action == COPY) {
        memmove(operation->to, operation->from, operation->bytes);
    } else if (operation->action == FILL) {
        memset(operation->to, operation->value, operation->bytes);
    }
}

static void pause_for(uint64_t microseconds) {
    struct timespec left = { .tv_sec = (time_t)(microseconds / 1000000),
                             .tv_nsec = (long)(microseconds % 1000000 * 1000) };
    while (microseconds > 0 && nanosleep(&left, &left) != 0) {
    }
}

static void *run(void *argument) {
    struct stream *stream = argument;
    pthread_mutex_lock(&state.lock);
    while (stream->first != NULL || !stream->ending) {
        if (stream->first == NULL || !may_begin(stream, stream->first)) {
            pthread_cond_wait(&state.changed, &state.lock);
            continue;
        }
        const struct operation *operation = stream->first;
        const uint64_t microseconds = state.microseconds + operation->microseconds;
        check_collisions(stream);
        stream->running = true;
        pthread_mutex_unlock(&state.lock);
        pause_for(microseconds);
        move_bytes(operation);
        pthread_mutex_lock(&state.lock);
        finish(stream);
    }
    pthread_mutex_unlock(&state.lock);
    return NULL;
}

/* ------------------------------------------------------------------- streams */

struct stream *new_stream(struct context *context, bool blocking) {
    struct stream *stream = need(calloc(1, sizeof *stream));
    stream->context = context;
    stream->blocking = blocking;
    stream->handle = (CUstream)(uintptr_t)new_handle();
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int failed = pthread_create(&stream->thread, NULL, run, stream);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed != 0) {
        free(stream);
        return NULL;
    }
    stream->next = context->streams;
    context->streams = stream;
    return stream;
}

static struct stream *find_default(struct context *context, bool legacy) {
    const uint64_t owner = legacy ? 0 : thread_number();
    for (struct stream *s = context->streams; s != NULL; s = s->next) {
        if (!s->made && s->legacy == legacy && s->owner == owner) {
            return s;
        }
    }
    struct stream *stream = new_stream(context, !legacy);
    if (stream != NULL) {
        stream->legacy = legacy;
        stream->owner = owner;
    }
    return stream;
}

struct stream *find_stream(struct context *context, CUstream handle) {
    if (handle == NULL || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
        return find_default(context, handle != CU_STREAM_PER_THREAD);
    }
    for (struct stream *s = context->streams; s != NULL; s = s->next) {
        if (s->made && !s->ending && s->handle == handle) {
            return s;
        }
    }
    return NULL;
}

void end_stream(struct stream *stream) {
    struct stream **at = &stream->context->streams;
    stream->ending = true;
    stream->holds = 0;
    pthread_cond_broadcast(&state.changed);
    pthread_mutex_unlock(&state.lock);
    pthread_join(stream->thread, NULL);
    pthread_mutex_lock(&state.lock);
    while (*at != stream) {
        at = &(*at)->next;
    }
    *at = stream->next;
    COUNTER(streams) -= stream->made;
    free(stream);
}

void end_streams(struct context *context) {
    for (struct stream *s = context->streams; s != NULL; s = s->next) {
        s->holds = 0; /* one may wait for another */
    }
    while (context->streams != NULL) {
        end_stream(context->streams);
    }
}

void wait_for(const struct stream *stream, uint64_t number) {
    while (stream->done < number) {
        pthread_cond_wait(&state.changed, &state.lock);
    }
}

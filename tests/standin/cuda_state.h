/*
 * cuda_state.h: what the files of the stand-in for CUDA's driver share.
 *
 *   cuda.c          entry points: devices, contexts, memory
 *   cuda_work.c     entry points that put operations into streams
 *   cuda_streams.c  streams: the threads that do the operations
 *   cuda_control.c  beginning and ending a call, violations, what tests steer
 *
 * One lock holds for everything, but the bytes that operations move: those are touched
 * without it, so that a thread sanitizer sees who touches them in which order. One
 * condition tells of every change. An operation counts as a use of all that it names,
 * which lasts until it is done, even if it was freed by then.
 */
#ifndef CUDA_STATE_H
#define CUDA_STATE_H

#include "cuda_standin.h"

#include <pthread.h>

struct allocation {
    struct allocation *next;
    struct context *context;
    CUdeviceptr address;
    size_t bytes;
    uint8_t *memory;
    unsigned uses;
    bool freed;
};

/* Page-locked host memory. */
struct locked {
    struct locked *next;
    struct context *context;
    uintptr_t address;
    size_t bytes;
    unsigned uses;
};

struct event {
    struct event *next;
    struct context *context;
    CUevent handle;
    uint64_t recorded, done; /* how often; it is done when both are equal */
    unsigned uses;
    bool destroyed;
};

enum action { COPY, FILL, RECORD, WAIT, NOTHING };

struct operation {
    struct operation *next;
    enum action action;
    uint64_t number; /* rising over all streams */
    uint64_t microseconds;
    /* COPY and FILL: places in this process, and what they belong to, or NULL */
    uint8_t *to;
    const uint8_t *from;
    size_t bytes;
    uint8_t value;
    struct allocation *to_memory, *from_memory;
    struct locked *host;
    /* RECORD and WAIT */
    struct event *event;
    uint64_t mark; /* the event is to become, or to be, done so often */
};

struct stream {
    struct stream *next;
    struct context *context;
    CUstream handle;
    bool made;     /* by cuStreamCreate */
    bool blocking; /* in order with the legacy stream */
    bool legacy;
    uint64_t owner;                 /* of a per-thread stream: the thread; else 0 */
    struct operation *first, *last; /* the first may be running */
    bool running, ending;
    uint64_t done; /* number of the last operation that is done */
    unsigned holds;
    pthread_t thread;
};

/* The primary context of a device. */
struct context {
    CUcontext handle; /* another one each time that it is made */
    unsigned retained;
    bool ending; /* its streams are being ended, without the lock: nobody makes it anew */
    struct stream *streams;
    uint64_t used, limit, given; /* bytes; `given` is the next address, as a distance */
};

struct state {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int devices;
    bool initialised, captures, silent;
    struct context contexts[CUDA_STANDIN_DEVICES];
    struct allocation *allocations;
    struct locked *locked;
    struct event *events;
    uint64_t numbers; /* given to operations */
    uint64_t handles; /* given to contexts, streams, events */
    uint64_t locked_limit, microseconds;
    uint64_t counters[CUDA_STANDIN_COUNTERS_END];
};
extern struct state state;

#define COUNTER(name) state.counters[CUDA_STANDIN_##name]

/* ---------------------------------------------------------- cuda_control.c */

enum {
    NEEDS_NOTHING = 0,
    NEEDS_INIT = 1,
    NEEDS_CONTEXT = 2, /* and cuInit */
    UNDOES = 4,        /* is done even if it is made to fail */
    UNCOUNTED = 8,     /* a test's own, and others that fail only if named */
    UNSAFE = 16,       /* forbidden while a stream is captured */
};

/* A call of an entry point: true with the lock held, or false with the result to return. */
struct call {
    const char *name;
    CUresult result;
    struct context *context; /* the thread's current one */
};
bool begin(struct call *call, const char *name, unsigned flags);
CUresult end(struct call *call, CUresult result);
/* Notes a violation and ends the call with `result`. */
CUresult violate(struct call *call, CUresult result, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Notes a violation; the lock is held. */
void note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The thread's stack of contexts. */
bool push_context(CUcontext context);
bool pop_context(CUcontext *context);
uint64_t thread_number(void);
struct context *find_context(CUcontext handle);
uint64_t new_handle(void);

/* ------------------------------------------------------------------ cuda.c */

/* What an address is part of; NULL: nothing that is there. */
struct allocation *find_allocation(CUdeviceptr address);
struct locked *find_locked(const void *memory, size_t bytes);

/* ---------------------------------------------------------- cuda_streams.c */

/* A stream's thread could not be started: NULL. */
struct stream *new_stream(struct context *context, bool blocking);
/* By its handle, the default ones too, which are made when first asked for. NULL: there is
 * none, or none in this context. */
struct stream *find_stream(struct context *context, CUstream handle);
/* Waits until it has nothing to do any more, and frees it. */
void end_stream(struct stream *stream);
void end_streams(struct context *context);
/* Copies the operation, whose uses begin. */
uint64_t put(struct stream *stream, const struct operation *operation);
void wait_for(const struct stream *stream, uint64_t number);
/* Takes it from the list of those that there are, and frees it when nothing uses it. */
void drop_allocation(struct allocation *allocation);
void drop_event(struct event *event);

#endif

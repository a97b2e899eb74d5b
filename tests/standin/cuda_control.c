/*
 * cuda_control.c: how calls of the stand-in for CUDA's driver begin and end, what it finds
 * wrong, and what tests set and read.
 *
 * In a forked child no lock is taken, for it may be held by a thread that is not there:
 * calls are counted in memory that parent and child share, and refused as CUDA does.
 */
#include "cuda_state.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define KEPT       16
#define TEXT_BYTES 256
#define DEEPEST    16
#define HANDLES    (UINT64_C(0xE0) << 48) /* no addresses of a process */

struct state state = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

static char texts[KEPT][TEXT_BYTES];
static struct {
    const char *call;
    uint64_t left; /* calls until it happens, this one counted; 0: never */
    CUresult result;
    bool for_ever;
} failure;

static pid_t owner;                    /* written before any other thread can be */
static _Atomic uint64_t *forked_calls; /* shared with children */
static pthread_key_t ending_key;       /* set while a thread has contexts */

static _Thread_local struct {
    CUcontext contexts[DEEPEST];
    unsigned depth;
    uint64_t number;
    CUstreamCaptureMode mode;
} thread;

/* ------------------------------------------------------------ what is wrong */

void note(const char *format, ...) {
    va_list arguments;
    if (COUNTER(violations) < KEPT) {
        va_start(arguments, format);
        vsnprintf(texts[COUNTER(violations)], TEXT_BYTES, format, arguments);
        va_end(arguments);
    }
    COUNTER(violations)++;
}

CUresult violate(struct call *call, CUresult result, const char *format, ...) {
    char text[TEXT_BYTES - 40];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    note("%s: %s", call->name, text);
    return end(call, result);
}

/* ------------------------------------------------------- threads and contexts */

static void thread_ends(void *unused) {
    (void)unused;
    if (getpid() == owner && thread.depth > 0) {
        pthread_mutex_lock(&state.lock);
        note("a thread ended with %u contexts pushed", thread.depth);
        pthread_mutex_unlock(&state.lock);
    }
}

__attribute__((constructor)) static void loaded(void) {
    owner = getpid();
    void *shared =
        mmap(NULL, sizeof *forked_calls, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || pthread_key_create(&ending_key, thread_ends) != 0) {
        abort();
    }
    forked_calls = shared;
    cuda_standin_reset();
}

bool push_context(CUcontext context) {
    if (thread.depth == DEEPEST) {
        return false;
    }
    thread.contexts[thread.depth++] = context;
    pthread_setspecific(ending_key, &thread);
    return true;
}

bool pop_context(CUcontext *context) {
    if (thread.depth == 0) {
        return false;
    }
    *context = thread.contexts[--thread.depth];
    pthread_setspecific(ending_key, thread.depth > 0 ? &thread : NULL);
    return true;
}

uint64_t thread_number(void) {
    static uint64_t numbers; /* under the lock */
    if (thread.number == 0) {
        thread.number = ++numbers;
    }
    return thread.number;
}

struct context *find_context(CUcontext handle) {
    for (unsigned i = 0; i < CUDA_STANDIN_DEVICES; i++) {
        if (handle != NULL && state.contexts[i].handle == handle) {
            return &state.contexts[i];
        }
    }
    return NULL;
}

uint64_t new_handle(void) {
    return HANDLES + 16 * ++state.handles;
}

/* --------------------------------------------------------------------- calls */

static CUresult injected(const char *name) {
    if (failure.left == 0 || (failure.call != NULL && strcmp(failure.call, name) != 0)) {
        return CUDA_SUCCESS;
    }
    if (failure.left > 1) {
        failure.left--;
        return CUDA_SUCCESS;
    }
    failure.left = failure.for_ever;
    COUNTER(failed)++;
    return failure.result;
}

bool begin(struct call *call, const char *name, unsigned flags) {
    *call = (struct call){ .name = name };
    if (getpid() != owner) {
        atomic_fetch_add(forked_calls, 1);
        call->result = CUDA_ERROR_NOT_INITIALIZED;
        return false;
    }
    pthread_mutex_lock(&state.lock);
    if ((flags & UNCOUNTED) == 0) {
        COUNTER(calls)++;
    }
    if ((flags & UNCOUNTED) == 0 || failure.call != NULL) {
        call->result = injected(name);
    }
    if (call->result != CUDA_SUCCESS && (flags & UNDOES) == 0) {
        end(call, call->result);
        return false;
    }
    if ((flags & (NEEDS_INIT | NEEDS_CONTEXT)) != 0 && !state.initialised) {
        call->result = violate(call, CUDA_ERROR_NOT_INITIALIZED, "before cuInit");
        return false;
    }
    if (thread.depth > 0) {
        call->context = find_context(thread.contexts[thread.depth - 1]);
    }
    if ((flags & NEEDS_CONTEXT) != 0 && call->context == NULL) {
        call->result = violate(call, CUDA_ERROR_INVALID_CONTEXT, "no context is current");
        return false;
    }
    if ((flags & UNSAFE) != 0 && state.captures && thread.mode != CU_STREAM_CAPTURE_MODE_RELAXED) {
        call->result = violate(call, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "it spoils a capture");
        return false;
    }
    return true;
}

CUresult end(struct call *call, CUresult result) {
    pthread_mutex_unlock(&state.lock);
    return call->result != CUDA_SUCCESS ? call->result : result;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
    struct call call;
    if (!begin(&call, "cuThreadExchangeStreamCaptureMode", NEEDS_NOTHING | UNCOUNTED)) {
        return call.result;
    }
    const CUstreamCaptureMode before = thread.mode;
    thread.mode = *mode;
    *mode = before;
    return end(&call, CUDA_SUCCESS);
}

/* ------------------------------------------------------------ what tests read */

static uint64_t count_now(enum cuda_standin_counter counter) {
    switch (counter) {
    case CUDA_STANDIN_forked_calls:
        return atomic_load(forked_calls);
    case CUDA_STANDIN_violations:
        return COUNTER(violations) + atomic_load(forked_calls);
    case CUDA_STANDIN_depth:
        return thread.depth;
    default:
        return state.counters[counter];
    }
}

uint64_t cuda_standin_get(enum cuda_standin_counter counter) {
    pthread_mutex_lock(&state.lock);
    const uint64_t count = count_now(counter);
    pthread_mutex_unlock(&state.lock);
    return count;
}

bool cuda_standin_empty(void) {
    pthread_mutex_lock(&state.lock);
    const uint64_t there = COUNTER(retained) + COUNTER(allocations) + COUNTER(locked) +
                           COUNTER(streams) + COUNTER(events);
    pthread_mutex_unlock(&state.lock);
    return there == 0;
}

const char *cuda_standin_violation(unsigned index) {
    pthread_mutex_lock(&state.lock);
    const char *text = index < KEPT && index < COUNTER(violations) ? texts[index] : "";
    if (*text == '\0' && index == COUNTER(violations) && atomic_load(forked_calls) > 0) {
        text = "calls in a forked child";
    }
    pthread_mutex_unlock(&state.lock);
    return text;
}

/* Where other processes run it, their end is all that can be asked. */
__attribute__((destructor)) static void unloaded(void) {
    const char *path = getenv("CUDA_STANDIN_REPORT");
    FILE *file = path != NULL && getpid() == owner ? fopen(path, "w") : NULL;
    if (file == NULL) {
        return;
    }
    pthread_mutex_lock(&state.lock);
#define X(name, says) \
    fprintf(file, #name " %llu\n", (unsigned long long)count_now(CUDA_STANDIN_##name));
    CUDA_STANDIN_COUNTERS(X)
#undef X
    for (unsigned i = 0; i < COUNTER(violations) && i < KEPT; i++) {
        fprintf(file, "violation: %s\n", texts[i]);
    }
    pthread_mutex_unlock(&state.lock);
    fclose(file);
}

/* ------------------------------------------------------------- what tests set */

static uint64_t environment_number(const char *name, uint64_t otherwise) {
    const char *text = getenv(name);
    return text != NULL ? strtoull(text, NULL, 10) : otherwise;
}

static void drop_everything(void) {
    for (unsigned i = 0; i < CUDA_STANDIN_DEVICES; i++) {
        for (struct stream *s = state.contexts[i].streams; s != NULL; s = s->next) {
            s->holds = 0;
        }
    }
    for (unsigned i = 0; i < CUDA_STANDIN_DEVICES; i++) {
        end_streams(&state.contexts[i]);
    }
    while (state.allocations != NULL) {
        drop_allocation(state.allocations);
    }
    while (state.events != NULL) {
        drop_event(state.events);
    }
    while (state.locked != NULL) {
        struct locked *locked = state.locked;
        state.locked = locked->next;
        free(locked);
    }
}

void cuda_standin_reset(void) {
    pthread_mutex_lock(&state.lock);
    drop_everything();
    const uint64_t devices = environment_number("CUDA_STANDIN_DEVICES", CUDA_STANDIN_DEVICES);
    state.devices = devices < CUDA_STANDIN_DEVICES ? (int)devices : CUDA_STANDIN_DEVICES;
    for (unsigned i = 0; i < CUDA_STANDIN_DEVICES; i++) {
        struct context *context = &state.contexts[i];
        context->handle = NULL;
        context->retained = 0;
        context->limit = environment_number("CUDA_STANDIN_BYTES", CUDA_STANDIN_BYTES);
    }
    state.locked_limit = UINT64_MAX;
    state.microseconds = 0;
    state.captures = state.silent = false;
    failure.left = 0;
    memset(state.counters, 0, sizeof state.counters);
    atomic_store(forked_calls, 0);
    thread.depth = 0;
    pthread_setspecific(ending_key, NULL);
    pthread_mutex_unlock(&state.lock);
}

void cuda_standin_capture(bool captures) {
    pthread_mutex_lock(&state.lock);
    state.captures = captures;
    pthread_mutex_unlock(&state.lock);
}

void cuda_standin_silence(bool silent) {
    pthread_mutex_lock(&state.lock);
    state.silent = silent;
    pthread_mutex_unlock(&state.lock);
}

void cuda_standin_delay(uint64_t microseconds) {
    pthread_mutex_lock(&state.lock);
    state.microseconds = microseconds;
    pthread_mutex_unlock(&state.lock);
}

void cuda_standin_limit(unsigned device, uint64_t bytes) {
    pthread_mutex_lock(&state.lock);
    state.contexts[device % CUDA_STANDIN_DEVICES].limit = bytes;
    pthread_mutex_unlock(&state.lock);
}

void cuda_standin_limit_locked(uint64_t bytes) {
    pthread_mutex_lock(&state.lock);
    state.locked_limit = bytes;
    pthread_mutex_unlock(&state.lock);
}

void cuda_standin_fail(const char *call, uint64_t nth, CUresult result, bool for_ever) {
    static char name[64]; /* the caller's may go */
    pthread_mutex_lock(&state.lock);
    if (call != NULL) {
        snprintf(name, sizeof name, "%s", call);
    }
    failure.call = call != NULL ? name : NULL;
    failure.left = nth;
    failure.result = result;
    failure.for_ever = for_ever;
    pthread_mutex_unlock(&state.lock);
}

/*
 * platform.c: threads, locks, the clock and process facts, for Linux.
 *
 * A thread's stack is mapped and charged by the caller. The C library puts more than brim's frames
 * on it: all static thread-local storage of the process (a Python with large extensions brings
 * hundreds of KiB), its own descriptor and room for signal frames. brim__thread_stack_bytes() asks
 * the C library how much that is. glibc does not export this function publicly, so it is looked up
 * at run time; without it a fixed size is assumed.
 */
#include "base/platform.h"
#include "base/fault.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* Sanitizers widen every frame and keep tables of their own on the stack. */
#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || \
    __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZER_BYTES ((size_t)768 * 1024)
#else
#define SANITIZER_BYTES ((size_t)0)
#endif

/* Assumed for thread-local storage where the C library does not say. */
#define UNKNOWN_TLS_BYTES ((size_t)64 * 1024)

#define NS_PER_SECOND UINT64_C(1000000000)

brim_status brim__mutex_init(brim__mutex *mutex) {
    char why[BRIM__ERROR_TEXT];
    const int error = pthread_mutex_init(mutex, NULL);
    return error ? brim__fail(BRIM_STATUS_MEMORY, "a lock could not be made: %s",
                              brim__error_text(error, why))
                 : BRIM_OK;
}

void brim__mutex_fini(brim__mutex *mutex) {
    pthread_mutex_destroy(mutex);
}

brim_status brim__condition_init(brim__condition *condition) {
    char why[BRIM__ERROR_TEXT];
    pthread_condattr_t attributes;
    int error = pthread_condattr_init(&attributes);
    if (error == 0) {
        error = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
        if (error == 0) {
            error = pthread_cond_init(condition, &attributes);
        }
        pthread_condattr_destroy(&attributes);
    }
    return error ? brim__fail(BRIM_STATUS_MEMORY, "a condition could not be made: %s",
                              brim__error_text(error, why))
                 : BRIM_OK;
}

void brim__condition_fini(brim__condition *condition) {
    pthread_cond_destroy(condition);
}

bool brim__wait(brim__condition *condition, brim__mutex *mutex, uint64_t deadline_ns) {
    if (deadline_ns == UINT64_MAX) {
        pthread_cond_wait(condition, mutex);
        return true;
    }
    const struct timespec deadline = { .tv_sec = (time_t)(deadline_ns / NS_PER_SECOND),
                                       .tv_nsec = (long)(deadline_ns % NS_PER_SECOND) };
    return pthread_cond_timedwait(condition, mutex, &deadline) != ETIMEDOUT;
}

void brim__relax(void) {
    sched_yield();
}

uint64_t brim__now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * NS_PER_SECOND + (uint64_t)now.tv_nsec;
}

/* Creates the thread while the signal mask for it is set here, because it inherits the mask. */
static int create_with_signals_blocked(pthread_t *thread, const pthread_attr_t *attributes,
                                       void *(*run)(void *), void *argument) {
    static const int own_faults[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT };
    sigset_t blocked;
    sigset_t before;
    sigfillset(&blocked);
    for (size_t i = 0; i < BRIM__COUNT(own_faults); i++) {
        sigdelset(&blocked, own_faults[i]);
    }
    int error = pthread_sigmask(SIG_SETMASK, &blocked, &before);
    if (error) {
        return error;
    }
    error = brim__fault(BRIM__FAULT_THREAD) ? EAGAIN
                                            : pthread_create(thread, attributes, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

brim_status brim__thread_start(brim__thread *thread, void *stack, size_t stack_bytes,
                               const char *name, void *(*run)(void *), void *argument) {
    pthread_attr_t attributes;
    int error = pthread_attr_init(&attributes);
    if (error == 0) {
        error = pthread_attr_setstack(&attributes, stack, stack_bytes);
        if (error == 0) {
            error = create_with_signals_blocked(thread, &attributes, run, argument);
        }
        pthread_attr_destroy(&attributes);
    }
    if (error) {
        char size[BRIM__SIZE_TEXT];
        char why[BRIM__ERROR_TEXT];
        return brim__fail(BRIM_STATUS_THREAD,
                          "thread \"%s\" with a stack of %s could not be started: %s", name,
                          brim__size_text(stack_bytes, size), brim__error_text(error, why));
    }
    char short_name[16];
    brim__copy_text(short_name, sizeof short_name, name);
    pthread_setname_np(*thread, short_name); /* only for debuggers: failure does not matter */
    return BRIM_OK;
}

void brim__thread_join(brim__thread thread) {
    pthread_join(thread, NULL);
}

size_t brim__thread_stack_bytes(size_t usable) {
    assert(usable <= SIZE_MAX / 4);
    size_t own = 0;
    size_t (*minimum)(const pthread_attr_t *) = NULL;
    void *const symbol = dlsym(RTLD_DEFAULT, "__pthread_get_minstack");
    /* ISO C has no conversion from an object pointer to a function pointer. */
    memcpy(&minimum, &symbol, sizeof minimum);
    pthread_attr_t attributes;
    if (minimum != NULL && pthread_attr_init(&attributes) == 0) {
        own = minimum(&attributes);
        pthread_attr_destroy(&attributes);
    } else {
        const long least = sysconf(_SC_THREAD_STACK_MIN);
        own = (least > 0 ? (size_t)least : (size_t)PTHREAD_STACK_MIN) + UNKNOWN_TLS_BYTES;
    }
    return brim__align(usable + own + SANITIZER_BYTES, brim__page_bytes());
}

uint32_t brim__process(void) {
    return (uint32_t)getpid();
}

size_t brim__page_bytes(void) {
    return (size_t)sysconf(_SC_PAGESIZE);
}

bool brim__home_directory(char *path, size_t bytes) {
    char strings[4096];
    struct passwd entry;
    struct passwd *found = NULL;
    path[0] = '\0';
    return getpwuid_r(geteuid(), &entry, strings, sizeof strings, &found) == 0 && found != NULL &&
           found->pw_dir != NULL && found->pw_dir[0] == '/' &&
           brim__copy_text(path, bytes, found->pw_dir);
}

bool brim__system_text(const char *path, char *text, size_t bytes) {
    text[0] = '\0';
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        return false;
    }
    size_t filled = 0;
    ssize_t got = 1;
    while (filled + 1 < bytes) {
        got = read(fd, text + filled, bytes - 1 - filled);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            break;
        }
        filled += (size_t)got;
    }
    close(fd);
    text[got < 0 ? 0 : filled] = '\0';
    return got >= 0;
}

void brim__rss(uint64_t *now, uint64_t *peak) {
    *now = 0;
    *peak = 0;
    char text[8192];
    unsigned long long pages = 0;
    if (brim__system_text("/proc/self/statm", text, sizeof text) &&
        sscanf(text, "%*s %llu", &pages) == 1) {
        *now = pages * brim__page_bytes();
    }
    if (brim__system_text("/proc/self/status", text, sizeof text)) {
        const char *line = strstr(text, "\nVmHWM:");
        if (line != NULL) {
            *peak = strtoull(line + strlen("\nVmHWM:"), NULL, 10) * 1024;
        }
    }
    /* The kernel updates the two at different moments. */
    *peak = brim__max(*peak, *now);
}

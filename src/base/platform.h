/*
 * platform.h: the only access to threads, locks, the clock and process facts.
 *
 * Locks and conditions never fail here (they are initialised with checked
 * attributes; conditions use the monotonic clock). A thread runs on a stack
 * that the caller has mapped and charged.
 */
#ifndef BRIM_PLATFORM_H
#define BRIM_PLATFORM_H

#include "base/base.h"

#include <pthread.h>

typedef pthread_mutex_t brim__mutex;
typedef pthread_cond_t brim__condition;

brim_status brim__mutex_init(brim__mutex *mutex);
void brim__mutex_fini(brim__mutex *mutex);
static inline void brim__lock(brim__mutex *mutex) {
    pthread_mutex_lock(mutex);
}
static inline void brim__unlock(brim__mutex *mutex) {
    pthread_mutex_unlock(mutex);
}

brim_status brim__condition_init(brim__condition *condition);
void brim__condition_fini(brim__condition *condition);
static inline void brim__signal(brim__condition *condition) {
    pthread_cond_signal(condition);
}
static inline void brim__broadcast(brim__condition *condition) {
    pthread_cond_broadcast(condition);
}
/* deadline_ns on the clock of brim__now(); UINT64_MAX waits without limit. Returns false when the
 * deadline passed. */
bool brim__wait(brim__condition *condition, brim__mutex *mutex, uint64_t deadline_ns);

uint64_t brim__now(void); /* monotonic, nanoseconds */
/* For a loop that polls a value which another thread will change: lets a thread that waits for this
 * CPU run. */
void brim__relax(void);

typedef pthread_t brim__thread;
/* stack: page-aligned, without its guard. The name shows in debuggers (cut to 15 characters). All
 * signals are blocked in the thread, except for those that it raises itself by a fault (SIGSEGV and
 * the like), so that a program's own crash reports still work. Refused: BRIM_STATUS_THREAD. */
brim_status brim__thread_start(brim__thread *thread, void *stack, size_t stack_bytes,
                               const char *name, void *(*run)(void *), void *argument);
void brim__thread_join(brim__thread thread);
/* The size of a stack with `usable` bytes for frames, thread-local storage included. */
size_t brim__thread_stack_bytes(size_t usable);

uint32_t brim__process(void); /* getpid(): compared to notice a fork */
size_t brim__page_bytes(void);

/* Resident set size of the process and its high-water mark, 0 if unknown.
 * Allocates nothing. */
void brim__rss(uint64_t *now, uint64_t *peak);

/* The user's home directory, as the system's user database says it; false: it
 * says none, or one that is too long. */
bool brim__home_directory(char *path, size_t bytes);

/* The beginning of a file of /proc or /sys as text, at most bytes - 1
 * characters of it. false, with "" in text: it could not be read. */
bool brim__system_text(const char *path, char *text, size_t bytes);

#endif

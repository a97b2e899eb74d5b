/*
 * stop.h: a request to end work that may take seconds.
 *
 * A stop belongs to the thread that works. It refers to a flag that any thread may set, and to a
 * function of the program, which is called from time to time if the program's thread does the work:
 * a signal handler can set a flag of the program, but not one of the library. Code that sees the
 * stop returns brim__interrupted(). The sample is not bad; it is made again later from the
 * beginning.
 */
#ifndef BRIM_STOP_H
#define BRIM_STOP_H

#include "base/platform.h"

#include <stdatomic.h>

#define BRIM__ASK_NS    UINT64_C(20000000) /* between two questions */
#define BRIM__ASK_EVERY 8                  /* looks at the flag between two at the clock */

struct brim__stop {
    atomic_bool *flag;        /* NULL: none; also set when the function asks to stop */
    int (*asked)(void *user); /* non-zero: stop. NULL: none */
    void *user;
    uint64_t asked_ns; /* when it was last called */
    uint32_t looks;
};

/* stop NULL: never. To be called for each row or each 64 KiB. It costs a load, and every
 * BRIM__ASK_EVERY calls a reading of the clock if there is a function. */
static inline bool brim__stopped(struct brim__stop *stop) {
    if (stop == NULL || stop->flag == NULL) {
        return false;
    }
    if (stop->asked != NULL && BRIM__UNLIKELY(++stop->looks % BRIM__ASK_EVERY == 0)) {
        const uint64_t time = brim__now();
        if (time - stop->asked_ns >= BRIM__ASK_NS) {
            stop->asked_ns = time;
            if (stop->asked(stop->user) != 0) {
                atomic_store(stop->flag, true);
            }
        }
    }
    return atomic_load_explicit(stop->flag, memory_order_relaxed);
}

static inline brim_status brim__interrupted(void) {
    return brim__fail(BRIM_STATUS_INTERRUPTED, "interrupted");
}

#endif

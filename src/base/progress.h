/*
 * progress.h: reporting long work to the caller's function (brim_progress_callback).
 */
#ifndef BRIM_PROGRESS_H
#define BRIM_PROGRESS_H

#include "base/base.h"
#include "base/platform.h"

#define BRIM__PROGRESS_NS UINT64_C(100000000) /* between two reports */

/* Whether there is a function and a report is due; then *reported_ns, the time of the last report,
 * is set to now. Its first value is 0, or brim__now() so that short work reports nothing. */
static inline bool brim__progress_is_due(brim_progress_callback *progress, uint64_t *reported_ns) {
    const uint64_t now = progress != NULL ? brim__now() : 0;
    if (progress == NULL || now - *reported_ns < BRIM__PROGRESS_NS) {
        return false;
    }
    *reported_ns = now;
    return true;
}

/* Reports, if there is a function. False: the work is to stop. */
static inline bool brim__progress_report(brim_progress_callback *progress, void *user,
                                         const char *what, brim_unit unit, uint64_t done,
                                         uint64_t total) {
    const brim_progress now = { sizeof now, what, unit, done, total };
    return progress == NULL || progress(user, &now) == BRIM_ANSWER_DONE;
}

#endif

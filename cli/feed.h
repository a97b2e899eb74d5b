/*
 * feed.h: takes batches from a loader for run and bench, and notices Ctrl-C.
 *
 * Like a training loop with `--hold N`, a feed keeps the last N batches, and releases the oldest
 * before it asks for one more.
 */
#ifndef CLI_FEED_H
#define CLI_FEED_H

#include "session.h"

#include <brim.h>

struct feed {
    brim_loader *loader;
    brim_batch **held; /* a ring of `hold` */
    size_t hold, count, oldest;
    double begun; /* when opening began, seconds on the monotonic clock */
};

/* Opens the session's loader. The status of opening; feed_close in any case. */
brim_status feed_open(struct feed *feed, struct session *session);
/* The next batch, lent until a later call gives it back. BRIM_STATUS_INTERRUPTED after
 * SIGINT or SIGTERM. */
brim_status feed_next(struct feed *feed, const brim_batch **batch);
void feed_close(struct feed *feed);

/* From now on SIGINT and SIGTERM are noticed and do not end the process at once. */
void feed_watch(void);
/* The signal that came, 0 if none did. */
int feed_signal(void);
/* A brim_progress_callback with a struct progress: draws the line, and stops the work after a
 * signal. */
int feed_progress(void *user, const brim_progress *work);

#endif

/*
 * progress.h: one line on stderr that says how far a run has come.
 */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include <brim.h>
#include <stdbool.h>

struct progress {
    bool shown;          /* false: nothing is ever printed */
    bool on_screen;      /* a line is there to be cleared */
    double begun, drawn; /* seconds on the monotonic clock */
};

/* `wanted`: the user did not ask for silence. Shows only on a terminal. */
void progress_begin(struct progress *progress, bool wanted);
/* Draws at most five times a second. `done`: the share of the work that is done,
 * 0 if unknown. */
void progress_update(struct progress *progress, brim_runtime *runtime, brim_loader *loader,
                     double done);
/* The same for long work that the library reports; and words alone. */
void progress_work(struct progress *progress, const brim_progress *work);
void progress_say(struct progress *progress, const char *what);
void progress_end(struct progress *progress); /* clears the line */

double now_seconds(void);

#endif

/*
 * bad.h: the texts of bad samples, each once.
 *
 * A loader keeps only the last few, including those of batches that it makes ahead. At the end of
 * an epoch they are of the next epoch, in which the same samples are bad again. So a command that
 * reports them looks after each batch and keeps what is new.
 */
#ifndef CLI_BAD_H
#define CLI_BAD_H

#include <brim.h>

struct bad {
    size_t most;   /* that are kept; those after them are not looked at */
    uint64_t seen; /* bad samples of the loader so far */
    size_t count;
    char **texts; /* in the order in which they were met */
};

/* Keeps those of the loader's texts that are new. To be called after each batch. */
void bad_look(struct bad *bad, brim_loader *loader);
void bad_free(struct bad *bad);

#endif

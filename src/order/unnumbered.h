/*
 * unnumbered.h: the requests of order stages if samples have no numbers.
 *
 * The samples of a stream have no numbers, and neither have the samples after a filter or an
 * expansion, because their count is known only after they are made. Without positions there is no
 * arithmetic, so take, skip and shuffle act on the rows as they are made, in this order:
 *
 *     rows ─► skip ─► take ─► shuffle, a buffer of rows at a time
 *
 * The stages record their requests here; plan/sequence.c plans them.
 */
#ifndef BRIM_UNNUMBERED_H
#define BRIM_UNNUMBERED_H

#include "base/base.h"

struct brim__unnumbered {
    bool bounded;  /* by take or skip: no filter may follow */
    uint64_t skip; /* rows that are left out ... */
    uint64_t take; /* ... and rows after them that are used */
    bool shuffled;
    bool shuffled_packed; /* packed rows are shuffled, not the samples that are packed */
    bool each_epoch;      /* another order in every epoch */
    uint64_t key;
    uint64_t buffer_bytes;
};

/* The arguments of a stage that adds itself. */
struct brim__unnumbered_site {
    struct brim__unnumbered *order;
    uint64_t key; /* from the stage's place and branch; a seed of the stage is mixed into it */
    bool packed;  /* pack_sequences stands before it */
};

void brim__unnumbered_init(struct brim__unnumbered *order);
/* take keeps only the first `count` rows; skip leaves them out. stage: for errors. */
brim_status brim__unnumbered_take(const struct brim__unnumbered_site *site, const char *stage,
                                  uint64_t count);
brim_status brim__unnumbered_skip(const struct brim__unnumbered_site *site, const char *stage,
                                  uint64_t count);
brim_status brim__unnumbered_shuffle(const struct brim__unnumbered_site *site, uint64_t key,
                                     uint64_t buffer_bytes, bool each_epoch);

#endif

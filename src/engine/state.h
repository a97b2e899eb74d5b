/*
 * state.h: the position of a loader, as bytes that may be stored.
 *
 * Little-endian on every machine:
 *
 *      0  8  "BRIMSTA2"
 *      8  8  data fingerprint
 *     16  8  order fingerprint
 *     24  8  epoch
 *     32  8  global position at which the step begins; all ones: the epoch's end
 *     40  4  micro-batches of that step already delivered
 *     44  4  world when written
 *     48  8  rows of the global batch when written
 *     56  8  rows of a micro-batch when written
 *     64  1  what was done with the remainder
 *     65  7  zero
 *     72  8  sequenced: rows that the sample at that position has given already
 *     80  8  sequenced: rows kept by filters before that, for take and skip
 *     88  8  sequenced: elements of the next row that are packed already
 *     96  8  sequenced: rows (bucket: batches) of the buffer that begins here
 *                       already given out
 *    104  8  sequenced: the step's number
 *    112  8  sequenced: the step that was sought, if it lies ahead
 *    120  8  XXH3 of bytes 0 to 119
 *
 * The position is global (of the input, where it is sequenced), so every rank of
 * a world writes the same bytes, and a world of another size reads them.
 */
#ifndef BRIM_STATE_H
#define BRIM_STATE_H

#include "plan/plan.h"

struct brim__position {
    uint64_t epoch;
    uint64_t sample; /* UINT64_MAX: the end */
    uint32_t micro;
    /* where samples are placed one after the other; else 0 */
    uint64_t row;    /* rows that `sample` has given already */
    uint64_t passed; /* rows kept so far, for take and skip */
    uint64_t offset; /* elements of the next row that are packed already */
    uint64_t given;  /* of the block of rows that begins here */
    uint64_t step;
    uint64_t until; /* batches before this step are not wanted */
};

void brim__state_write(const brim_plan *plan, const struct brim__position *position,
                       brim_state *state);
/* Micro-batches count only if batch and world are as they were; else the step
 * begins anew. */
brim_status brim__state_read(const brim_plan *plan, const brim_state *state,
                             struct brim__position *position);

#endif

/*
 * state.h: where a loader stands, as bytes that may be stored.
 *
 * Little-endian on every machine:
 *
 *      0  8  "BRIMSTA1"
 *      8  8  data fingerprint
 *     16  8  order fingerprint
 *     24  8  epoch
 *     32  8  global position at which the step begins; all ones: the epoch's end
 *     40  4  micro-batches of that step already delivered
 *     44  4  world when written
 *     48  8  rows of the global batch when written
 *     56  8  rows of a micro-batch when written
 *     64  1  what was done with the remainder
 *     65 23  zero
 *     88  8  XXH3 of bytes 0 to 87
 *
 * The position is global, so every rank of a world writes the same bytes, and
 * a world of another size reads them.
 */
#ifndef BRIM_STATE_H
#define BRIM_STATE_H

#include "plan/plan.h"

struct brim__position {
    uint64_t epoch;
    uint64_t sample; /* UINT64_MAX: the end */
    uint32_t micro;
};

void brim__state_write(const brim_plan *plan, const struct brim__position *position,
                       brim_state *state);
/* Micro-batches count only if batch and world are as they were; else the step
 * begins anew. */
brim_status brim__state_read(const brim_plan *plan, const brim_state *state,
                             struct brim__position *position);

#endif

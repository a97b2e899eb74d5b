/*
 * permutation.h: a keyed bijection on [0, count), without memory.
 *
 * A shuffled table for tiny counts; else a Feistel network over the bits of
 * count - 1 with cycle-walking. Both directions cost O(1).
 */
#ifndef BRIM_PERMUTATION_H
#define BRIM_PERMUTATION_H

#include "base/base.h"

#define BRIM__PERMUTATION_ROUNDS 8
#define BRIM__PERMUTATION_TINY   64

struct brim__permutation {
    uint64_t count;
    uint64_t round_key[BRIM__PERMUTATION_ROUNDS];
    uint64_t left_mask, right_mask; /* of the two halves; 0 when the table is used */
    uint32_t right_bits;
    uint8_t table[BRIM__PERMUTATION_TINY]; /* for counts up to this */
};

/* count: 1 .. 2^63. */
void brim__permutation_init(struct brim__permutation *permutation, uint64_t count, uint64_t key);
uint64_t brim__permute(const struct brim__permutation *permutation, uint64_t position);
uint64_t brim__unpermute(const struct brim__permutation *permutation, uint64_t value);
/* Permutes each of `values` in place, several times as fast as one at a time. */
void brim__permute_run(const struct brim__permutation *permutation, uint64_t *values, size_t count);

/* Permutes the value of each lane by the permutation of its count and key, for up
 * to BRIM__PERMUTATION_LANES of them. Equal keys have equal counts and are set up
 * once. */
#define BRIM__PERMUTATION_LANES 64
struct brim__permutation_lane {
    uint64_t key, count, value;
};
void brim__permute_each(struct brim__permutation_lane *lanes, size_t count);

#endif

/*
 * block_shuffle.h: a shuffle of one epoch by blocks of neighbours.
 */
#ifndef BRIM_BLOCK_SHUFFLE_H
#define BRIM_BLOCK_SHUFFLE_H

#include "order/permutation.h"

/* The shuffle of one epoch. Blocks, slots and groups as drawn in block_shuffle.c. */
struct brim__block_shuffle {
    struct brim__permutation blocks; /* slot -> block */
    struct brim__permutation inside; /* of the group that was looked at last */
    uint64_t key;
    uint64_t block;                   /* samples of a full block */
    uint64_t slots;                   /* at least 1 */
    uint64_t short_slot;              /* slot of the last block ... */
    uint64_t short_begin;             /* ... its place in the stream ... */
    uint64_t short_rows;              /* ... and its samples, 1 .. block */
    uint64_t group_begin, group_rows; /* 0 rows: none yet */
};

void brim__block_shuffle_init(struct brim__block_shuffle *shuffle, uint64_t count, uint64_t block,
                              uint64_t key);
/* Replaces positions of the shuffle by positions of its input, up to BRIM__PERMUTATION_LANES. */
void brim__block_shuffle_run(struct brim__block_shuffle *shuffle, uint64_t *positions,
                             size_t count);

#endif

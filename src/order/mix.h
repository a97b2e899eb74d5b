/*
 * mix.h: the pattern by which a mix takes its parts in turn.
 *
 * The weights become whole numbers of a block: weights 0.7 and 0.3 are 7 and 3 of 10. The table is
 * as many blocks as fit into BRIM__ORDER_PATTERN entries, each permuted by its own key, and repeats
 * without end:
 *
 *     position   0  1  2  3 ... table-1 | table ...
 *     part       a  b  a  a             | a ...
 *     rank       0  0  1  2             | 0 ...     (of its part, in the table)
 *
 * so the position within a part is (position / table) * in_table[part] + rank: O(1), and exact
 * proportions in every block. The pattern is the same in all epochs. Only the positions of the
 * parts change (see brim__mix_locate).
 */
#ifndef BRIM_MIX_H
#define BRIM_MIX_H

#include "order/order.h"

struct brim__mix_entry {
    uint16_t part;
    uint16_t rank; /* entries of the same part before it in the table */
};

struct brim__mix {
    uint32_t parts;
    uint32_t block;                         /* positions of a block */
    uint32_t table;                         /* positions of the table: whole blocks */
    uint32_t top[BRIM__ORDER_PARTS];        /* last operation of each part */
    uint64_t part_count[BRIM__ORDER_PARTS]; /* samples of each part */
    uint32_t in_block[BRIM__ORDER_PARTS];
    uint32_t in_table[BRIM__ORDER_PARTS];
    uint64_t in_epoch[BRIM__ORDER_PARTS]; /* positions of each part in an epoch of the mix */
    struct brim__mix_entry entry[BRIM__ORDER_PATTERN];
};

/* The epoch and position of each part at which an epoch of the mix begins. */
struct brim__mix_start {
    uint64_t epoch[BRIM__ORDER_PARTS];
    uint64_t position[BRIM__ORDER_PARTS];
};
void brim__mix_begin(const struct brim__mix *mix, uint64_t epoch, struct brim__mix_start *start);

/* Turns a position of the mix into a part and its epoch and position. */
uint32_t brim__mix_locate(const struct brim__mix *mix, const struct brim__mix_start *start,
                          uint64_t *epoch, uint64_t *position);

/* How many of the first `length` positions of the mix belong to `part`. */
uint64_t brim__mix_share(const struct brim__mix *mix, uint32_t part, uint64_t length);

#endif

/*
 * block.h: rows stored without gaps, until they are given out in another order.
 *
 *     | row 0 | row 1 | ... free ... | entry 1 | entry 0 |
 *
 * A row is its number and then its fields; a field that is not dense is its count and only the
 * elements that it has. How many rows fit depends on the rows alone, so a block that is filled from
 * the same row on holds the same rows again: so a loader can continue from a state.
 */
#ifndef BRIM_BLOCK_H
#define BRIM_BLOCK_H

#include "engine/state.h"
#include "plan/layout.h"

struct brim__block_entry {
    uint64_t key; /* length in the upper half, the row's number in the lower */
    uint64_t offset;
    uint64_t batch; /* bucket: with which row batch number i begins, for the i-th entry */
};

struct brim__block {
    uint8_t *memory;
    uint64_t bytes, used;
    uint64_t rows, batches;
    uint64_t skipped;                 /* bad samples met while it was filled */
    bool sealed;                      /* no row is added any more */
    struct brim__position begin, end; /* before its first row and after its last */
};

/* One row: where a layout says, or in a block. */
struct brim__row {
    const struct brim__layout *layout;
    uint8_t *memory; /* NULL: packed */
    uint64_t at;     /* which row of it */
    const uint8_t *packed;
    struct brim__position after; /* where a loader goes on after it */
};

void brim__block_clear(struct brim__block *block, const struct brim__position *begin);
/* Adds a row that lies where a layout says; false: it does not fit. */
bool brim__block_add(struct brim__block *block, const struct brim__row *row);
/* The i-th row, as an address for the functions below. */
const uint8_t *brim__block_row(const struct brim__block *block, uint64_t i);

/* Sorts the rows by length, the longest first, and cuts them into batches. */
void brim__block_cut(struct brim__block *block, const struct brim__bucketing *bucket,
                     uint64_t most_rows);
/* Batch i: its first row, how many, and its width. */
uint64_t brim__block_batch(const struct brim__block *block, const struct brim__bucketing *bucket,
                           uint64_t i, uint64_t *rows, uint64_t *width);

/* A field's elements; dense: count is 1. */
const uint8_t *brim__row_field(const struct brim__row *row, uint32_t field, uint64_t *count);
uint64_t brim__row_number(const struct brim__row *row);
/* Copies a row to row `at` of a layout with the same fields; width: distance of
 * rows of padded fields, 0: the layout's. */
void brim__row_place(const struct brim__row *row, const struct brim__layout *to, uint8_t *memory,
                     uint64_t at, uint64_t width);

#endif

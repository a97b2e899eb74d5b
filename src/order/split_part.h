/*
 * split_part.h: a part of the samples, for a stratified split and for folds.
 *
 * A part chooses from ranks 0 .. whole - 1 by arithmetic. Without classes a rank is an index in one
 * permutation of all samples. With classes the ranks are those of classes.h, the members of each
 * class permuted; every choice below is spread evenly over the ranks, and so over each class:
 *
 *     spread   v of n: rank g is chosen if (g + 1) v / n, rounded down, is more
 *              than g v / n is. Any m neighbours hold v m / n, up or down.
 *     fold     i of n: every rank that leaves i when divided by n. Any m
 *              neighbours hold m / n, up or down.
 *
 * `validation` is spread over all ranks, `test` over the rest, `train` is the rest. So the parts of
 * one division are disjoint and cover everything, and their sizes are the same with and without
 * classes.
 */
#ifndef BRIM_SPLIT_PART_H
#define BRIM_SPLIT_PART_H

#include "order/classes.h"
#include "order/permutation.h"

enum brim__split_part_kind {
    BRIM__PART_TRAIN,
    BRIM__PART_VALIDATION,
    BRIM__PART_TEST,
    BRIM__PART_FOLD,     /* one fold */
    BRIM__PART_NOT_FOLD, /* all others */
};

struct brim__split_part {
    enum brim__split_part_kind kind;
    uint64_t whole;
    uint64_t validation, test;           /* of a split: samples in these parts */
    uint64_t fold, folds;                /* of folds: 0 .. folds - 1 */
    const struct brim__classes *classes; /* NULL: none */
};

uint64_t brim__split_part_count(const struct brim__split_part *part);
/* The rank at a position, below the count, of the part. */
uint64_t brim__split_part_rank(const struct brim__split_part *part, uint64_t position);
/* Replaces positions of the part by those of its input, up to BRIM__PERMUTATION_LANES. */
void brim__split_part_run(const struct brim__split_part *part, uint64_t key, uint64_t *positions,
                          size_t count);

#endif

/*
 * numbers.h: a list of sample numbers that was read from a file.
 *
 * The only order that is not arithmetic: the file chooses the samples. Four bytes for each number
 * if they suffice, else eight.
 */
#ifndef BRIM_NUMBERS_H
#define BRIM_NUMBERS_H

#include "order/order.h"

struct brim__numbers {
    uint64_t count;
    const uint32_t *narrow; /* one of the two */
    const uint64_t *wide;
    bool ascending;       /* each is larger than the one before: none stands twice */
    uint64_t fingerprint; /* of the numbers, however they were written */
};

/* Reads text (one number a line) or npy (one dimension, integers); the file's first bytes decide
 * which. Each number must be below `bound`, and there must be at least one. The numbers and
 * *numbers itself are in the arena. */
brim_status brim__numbers_read(const char *path, uint64_t bound, struct brim__arena *arena,
                               const struct brim__numbers **numbers);

static inline uint64_t brim__number_at(const struct brim__numbers *numbers, uint64_t i) {
    return numbers->narrow != NULL ? numbers->narrow[i] : numbers->wide[i];
}

/* Whether a number occurs twice. Unless the numbers ascend, this needs a sorted copy, which is
 * charged to `budget` and freed. */
brim_status brim__numbers_repeat(const struct brim__numbers *numbers, brim_budget *budget,
                                 bool *repeat);

#endif

/*
 * concat.h: several orders one after the other.
 */
#ifndef BRIM_CONCAT_H
#define BRIM_CONCAT_H

#include "order/order.h"

struct brim__concat_part {
    uint64_t begin, end; /* positions of the concat that it takes */
    uint32_t top;        /* its last operation */
};

struct brim__concat {
    uint32_t parts;
    struct brim__concat_part part[];
};

/* The part of a position. guess: where to look first; a lane is mostly in the part of the lane
 * before it. */
static inline uint32_t brim__concat_at(const struct brim__concat *concat, uint32_t guess,
                                       uint64_t position) {
    const struct brim__concat_part *part = concat->part;
    if (position < part[guess].begin) {
        guess = 0;
    }
    while (position >= part[guess].end) {
        guess++;
    }
    return guess;
}

#endif

/*
 * search.h: finds the one of adjacent intervals that contains a value.
 */
#ifndef BRIM_SEARCH_H
#define BRIM_SEARCH_H

#include "base/base.h"

/* The last i of [0, count) with begin[i] <= value; begin ascends, begin[0] <= value. If several
 * intervals begin at the same place, only the last of them is not empty, so this is the one that
 * contains the value. */
static inline uint32_t brim__interval(const uint64_t *begin, uint32_t count, uint64_t value) {
    uint32_t first = 0;
    while (count > 1) {
        const uint32_t half = count / 2;
        first = begin[first + half] <= value ? first + half : first;
        count -= half;
    }
    return first;
}

#endif

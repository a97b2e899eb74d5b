/*
 * classes.h: the samples sorted by a label, and the position of each.
 *
 * Classes are numbered by ascending labels. The members of a class are numbered
 * by ascending positions, and all members of all classes by rank:
 *
 *     position  0 1 2 3 4 5 6 7        label of each:  b b a a a b c b
 *
 *     rank      0 1 2 | 3 4 5 6 | 7
 *     class     a     | b       | c
 *     position  2 3 4 | 0 1 5 7 | 6
 *
 * Labels in few runs (sorted data, a folder for each class) are kept as runs of 16 bytes, whatever
 * the number of samples. Others are kept as a table of positions by rank, 4 bytes for each sample
 * (8 above 2^31). The smaller form is used, with at most BRIM__CLASS_RUNS runs. A class itself
 * takes 20 bytes in runs and 16 in a table.
 */
#ifndef BRIM_CLASSES_H
#define BRIM_CLASSES_H

#include "order/order.h"
#include "order/search.h"

#define BRIM__CLASS_MOST 1048576 /* classes */
#define BRIM__CLASS_RUNS 65536

struct brim__class_run {
    uint64_t rank;     /* of its first sample */
    uint64_t position; /* of its first sample */
};

struct brim__classes {
    uint32_t count;
    uint64_t samples;
    uint64_t smallest, largest; /* members of a class */
    const int64_t *label;       /* ascending */
    const uint64_t *begin;      /* count + 1: rank of each class's first member, and samples */
    /* runs by rank; those of class c are first_run[c] .. first_run[c + 1] - 1 ... */
    const struct brim__class_run *run;
    const uint32_t *first_run;
    /* ... or one of these, position by rank */
    const uint32_t *narrow;
    const uint64_t *wide;
};

/* Reads the labels of all samples before the site's stage and hashes them into the order's
 * fingerprint. stage: for messages. The tables are in the site's arena. Temporary memory is charged
 * to the arena's budget and returned. */
brim_status brim__classes_read(const struct brim__order_site *site, const char *stage,
                               const char *field, const struct brim__classes **classes);

static inline uint64_t brim__class_size(const struct brim__classes *classes, uint32_t c) {
    return classes->begin[c + 1] - classes->begin[c];
}

/* The position of member k, below the class's size, of class c. */
static inline uint64_t brim__class_member(const struct brim__classes *classes, uint32_t c,
                                          uint64_t k) {
    const uint64_t rank = classes->begin[c] + k;
    if (classes->narrow != NULL) {
        return classes->narrow[rank];
    }
    if (classes->wide != NULL) {
        return classes->wide[rank];
    }
    const struct brim__class_run *run = classes->run + classes->first_run[c];
    uint32_t count = classes->first_run[c + 1] - classes->first_run[c];
    while (count > 1) {
        const uint32_t half = count / 2;
        run = run[half].rank <= rank ? run + half : run;
        count -= half;
    }
    return run->position + (rank - run->rank);
}

/* The class of a rank. */
static inline uint32_t brim__class_of_rank(const struct brim__classes *classes, uint64_t rank) {
    return brim__interval(classes->begin, classes->count, rank);
}

#endif

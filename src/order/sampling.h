/*
 * sampling.h: drawing from classes: every class equally often, or by weight.
 *
 * Balanced: an epoch is cut into rounds of as many positions as there are classes. Each round shows
 * every class once, in a random order. Round r shows member r of a permutation of the class, and
 * each pass over the class has a new permutation. Every class starts again in each epoch.
 *
 * Weighted: each position draws a class by weight and one of its members, both with replacement,
 * from random numbers that depend only on key, epoch and position. Weights are whole multiples of
 * 2^-53, so that every machine draws the same class.
 *
 * The input counts passes as epochs: pass p of epoch e is its epoch e * passes + p. So a sample
 * that occurs twice in an epoch has different random numbers.
 */
#ifndef BRIM_SAMPLING_H
#define BRIM_SAMPLING_H

#include "order/classes.h"
#include "order/permutation.h"

struct brim__sampling {
    const struct brim__classes *classes;
    uint64_t length; /* positions in an epoch */
    uint64_t passes; /* by which epochs below are counted */
    /* weighted: of 2^53, what the classes before each have; one more at the end */
    const uint64_t *before;
};

/* *sampling is in the site's arena. length 0: as many positions as needed to show every sample of
 * the largest class. */
brim_status brim__sampling_balanced(const struct brim__order_site *site,
                                    const struct brim__classes *classes, uint64_t length,
                                    const struct brim__sampling **sampling);
/* weights: one for each class; NULL: all equal. length 0: as many positions as there are
 * samples. */
brim_status brim__sampling_weighted(const struct brim__order_site *site,
                                    const struct brim__classes *classes, const double *weights,
                                    uint64_t length, const struct brim__sampling **sampling);

/* Replace epochs and positions by those of the input, up to BRIM__PERMUTATION_LANES. */
void brim__balance_run(const struct brim__sampling *sampling, uint64_t key, uint64_t *epochs,
                       uint64_t *positions, size_t count);
void brim__weighted_run(const struct brim__sampling *sampling, uint64_t key, uint64_t *epochs,
                        uint64_t *positions, size_t count);

#endif

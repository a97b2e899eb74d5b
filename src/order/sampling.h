/*
 * sampling.h: drawing from classes: every class equally often, or by weight.
 *
 * Balanced: an epoch is cut into rounds of as many positions as there are classes. Each round shows
 * every class once, in an order of its own; round r shows the class's member r, of a permutation
 * that is a new one for each pass over the class. Every class begins again in each epoch.
 *
 * Weighted: each position draws a class by weight and one of its members, both
 * with replacement, from random numbers that depend on key, epoch and position
 * alone. Weights are whole numbers of 2^-53, so that no machine draws another
 * class.
 *
 * The order below sees passes as epochs, so that a sample that comes twice in an epoch has other
 * random numbers: pass p of epoch e is epoch e * passes + p.
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

/* In the site's arena. length 0: as many as needed so that no sample of the largest class is left
 * out. */
brim_status brim__sampling_balanced(const struct brim__order_site *site,
                                    const struct brim__classes *classes, uint64_t length,
                                    const struct brim__sampling **sampling);
/* weights: one for each class; NULL: all alike. length 0: as many as there are
 * samples. */
brim_status brim__sampling_weighted(const struct brim__order_site *site,
                                    const struct brim__classes *classes, const double *weights,
                                    uint64_t length, const struct brim__sampling **sampling);

/* Turn epochs and positions into those below, for up to BRIM__PERMUTATION_LANES. */
void brim__balance_run(const struct brim__sampling *sampling, uint64_t key, uint64_t *epochs,
                       uint64_t *positions, size_t count);
void brim__weighted_run(const struct brim__sampling *sampling, uint64_t key, uint64_t *epochs,
                        uint64_t *positions, size_t count);

#endif

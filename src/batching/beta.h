/*
 * beta.h: random numbers of a batch, and the Beta distribution.
 */
#ifndef BRIM_BETA_H
#define BRIM_BETA_H

#include "base/base.h"

/* The sequence of random numbers of one batch. */
struct brim__batch_draws {
    uint64_t key, number, epoch; /* see order/philox.h; number: the batch's */
    uint32_t next;
};

/* Uniform in (0, 1), without its ends; 52 bits. */
double brim__draw_uniform(struct brim__batch_draws *draws);

/* Beta(alpha, alpha), in [0, 1]. alpha from BRIM__LEAST_ALPHA to BRIM__MOST_ALPHA.
 * Takes as many uniform numbers as it needs, 128 at most. */
#define BRIM__LEAST_ALPHA 0.001
#define BRIM__MOST_ALPHA  1000.0
double brim__draw_beta(struct brim__batch_draws *draws, double alpha);

#endif

/*
 * beta.c: drawing from Beta(alpha, alpha).
 *
 * Two methods of rejection: Joehnk's for alpha up to 1, where x = u^(1/alpha) and y = v^(1/alpha)
 * are accepted if x + y <= 1 (half of the tries at alpha = 1, more below it); and Cheng's BB above
 * 1, which for equal parameters accepts nearly nine of ten or more. After TRIES tries the middle is
 * used, so that no batch takes for ever; the probability of that is 2^-64.
 *
 * The code uses only plain arithmetic and base/real.h, because a lambda that differs in its last
 * bit gives another batch.
 */
#include "batching/beta.h"

#include "base/real.h"
#include "order/philox.h"

#define TRIES      64
#define LOG_4      1.3862943611198906
#define LOG_5_PLUS 2.6094379124341003 /* log 5 + 1 */

double brim__draw_uniform(struct brim__batch_draws *draws) {
    const uint32_t high = brim__random(draws->key, draws->number, draws->epoch, draws->next);
    const uint32_t low = brim__random(draws->key, draws->number, draws->epoch, draws->next + 1);
    const uint64_t bits = ((uint64_t)high << 32 | low) >> 12;
    draws->next += 2;
    return ((double)bits + 0.5) * 0x1p-52;
}

/* Computes x / (x + y) from the logarithms of x and y, because x and y may be too small for a
 * double. true: accepted. */
static bool try_small(struct brim__batch_draws *draws, double alpha, double *result) {
    const double x = brim__log(brim__draw_uniform(draws)) / alpha;
    const double y = brim__log(brim__draw_uniform(draws)) / alpha;
    const double larger = x > y ? x : y;
    const double scaled_x = brim__exp(x - larger), sum = scaled_x + brim__exp(y - larger);
    *result = scaled_x / sum;
    return larger + brim__log(sum) <= 0;
}

static bool try_large(struct brim__batch_draws *draws, double alpha, double *result) {
    const double root = brim__sqrt(alpha); /* 1 / Cheng's beta */
    const double u = brim__draw_uniform(draws), second = brim__draw_uniform(draws);
    const double v = brim__log(u / (1 - u)) / root;
    const double w = alpha * brim__exp(v);
    const double z = u * u * second;
    const double r = (alpha + root) * v - LOG_4;
    const double s = alpha + r - w;
    *result = w / (alpha + w);
    if (s + LOG_5_PLUS >= 5 * z) {
        return true;
    }
    return r + 2 * alpha * brim__log(2 * alpha / (alpha + w)) >= brim__log(z);
}

double brim__draw_beta(struct brim__batch_draws *draws, double alpha) {
    assert(alpha >= BRIM__LEAST_ALPHA && alpha <= BRIM__MOST_ALPHA);
    for (int i = 0; i < TRIES; i++) {
        double result;
        if (alpha <= 1 ? try_small(draws, alpha, &result) : try_large(draws, alpha, &result)) {
            return result;
        }
    }
    return 0.5;
}

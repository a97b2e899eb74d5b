/*
 * weights.h: an axis of a resize as a table: the input pixels of each output, and their weights.
 *
 * The weights are Pillow's, made in doubles and rounded to 22 fractional bits. A weight k is stored
 * as two halves for multipliers of 16 bits, k = high * 2048 + low with low in [0, 2047], and those
 * of four taps together:
 *
 *     output j:  | h0 h1 l0 l1 h2 h3 l2 l3 | h4 h5 l4 l5 ... |     `groups` of them
 *                 '------- group 0 -------'
 *
 * so that one multiply-and-add does two taps. All outputs of a table have as many
 * pairs and groups; the weights that an output does not need are 0.
 *
 * A table of one group, the usual one, also has a form that is spread out for the four channels of
 * two outputs a and b, as vector code needs it:
 *
 *     | a: h0 h1 h0 h1 h0 h1 h0 h1  b: h0 h1 ... | l0 l1 | h2 h3 | l2 l3 |     two outputs
 */
#ifndef BRIM_WEIGHTS_H
#define BRIM_WEIGHTS_H

#include "image/resize.h"

#define BRIM__GROUP_TAPS   4
#define BRIM__GROUP_HALVES 8
#define BRIM__SPREAD_PAIR  64 /* of two outputs */
#define BRIM__WEIGHT_BITS  22
#define BRIM__LOW_BITS     11

struct brim__weights {
    uint32_t count;  /* outputs */
    uint32_t most;   /* taps of the output that has most */
    uint32_t pairs;  /* of taps, of every output: twice as many pixels are read from first on */
    uint32_t groups; /* of pairs, of every output */
    uint32_t *first; /* [count] input pixel of an output's first tap, of the needed ones */
    uint32_t *taps;  /* [count] */
    int16_t *halves; /* [count][groups][8] */
    int16_t *spread; /* [count / 2][64], where there is one group; or NULL */
};

/* Twice the reach of a filter in output pixels: 1, 2, 4, 6. Not for NEAREST. */
uint32_t brim__filter_width(enum brim__filter filter);

/* Whether every output is the input pixel at its place, so that there is nothing to do. */
bool brim__axis_is_same(const struct brim__axis *axis);

/* Upper bounds for resizing up to `in` pixels to `out` or more. most: of the field `most`; taps: of
 * count * groups * BRIM__GROUP_TAPS, for up to `window` outputs. */
uint32_t brim__weights_most(enum brim__filter filter, uint32_t in, uint32_t out);
uint64_t brim__weights_taps(enum brim__filter filter, uint32_t in, uint32_t out, uint32_t window);

/* NEAREST: sets `first` of each wanted output to its pixel, counted from the first needed one.
 * reversed: last output first. */
void brim__weights_pick(const struct brim__axis *axis, bool reversed, uint32_t *first);

/* Fills first, taps, most, pairs and groups of the wanted outputs. reversed: last output first.
 * `weights` has count, first and taps. */
void brim__weights_spans(const struct brim__axis *axis, enum brim__filter filter, bool reversed,
                         struct brim__weights *weights);
/* After brim__weights_spans: fills the halves. limit: if not 0, no pair may reach beyond that many
 * pixels (at least 2 * pairs); `first` of such an output is moved to the left. scratch: `most`
 * doubles. */
void brim__weights_make(const struct brim__axis *axis, enum brim__filter filter, bool reversed,
                        uint32_t limit, double *scratch, struct brim__weights *weights);

/* Fills `spread` from the halves. */
void brim__weights_spread(struct brim__weights *weights);

static inline const int16_t *brim__weights_of(const struct brim__weights *weights,
                                              uint32_t output) {
    return weights->halves + (size_t)output * weights->groups * BRIM__GROUP_HALVES;
}

/* One whole weight of an output's halves. */
static inline int32_t brim__weight(const int16_t *halves, uint32_t tap) {
    const int16_t *const pair = halves + (size_t)(tap / 2) * 4 + tap % 2;
    return pair[0] * (1 << BRIM__LOW_BITS) + pair[2];
}

#endif

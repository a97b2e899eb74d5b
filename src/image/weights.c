/*
 * weights.c: tables of weights, equal to Pillow's bit for bit.
 *
 * Equal weights need the same operations on doubles in the same order: centre, reach, filter, sum,
 * quotient, rounding. Nothing here may be rearranged, and a quotient must not become a product with
 * the inverse. Every image may have a new crop, so tables must be made quickly: each filter has its
 * own compiled loop.
 *
 * A mirrored axis is computed as if pixel 0 were the last one, and then turned around: mirrored()
 * gives the output that is computed.
 */
#include "image/weights.h"

#include "base/real.h"

/* How the pixels of an axis map to its outputs. */
struct scaling {
    double from, scale;
    double stretch; /* of the filter: scale, or 1 where the axis grows */
    double reach;
};

struct span {
    uint32_t first, end;
};

uint32_t brim__filter_width(enum brim__filter filter) {
    switch (filter) {
    case BRIM__BOX:
        return 1;
    case BRIM__BILINEAR:
        return 2;
    case BRIM__BICUBIC:
        return 4;
    case BRIM__LANCZOS:
        return 6;
    case BRIM__NEAREST:
        break;
    }
    return 0;
}

bool brim__axis_is_same(const struct brim__axis *axis) {
    return axis->in == axis->out && axis->from == 0 && axis->to == (float)axis->in;
}

/* The output that is computed for output `at`: the mirrored one on a mirrored axis. */
static uint32_t mirrored(const struct brim__axis *axis, uint32_t at) {
    return axis->mirrored ? axis->out - 1 - at : at;
}

/* --------------------------------------------------------------- nearest */

/* The pixel at a position. Positions are sums of steps, as in Pillow, not products. */
static uint32_t clamp_pick(double at, uint32_t in) {
    const uint32_t pixel = at > 0 ? (uint32_t)at : 0;
    return pixel < in ? pixel : in - 1;
}

static double step_of(const struct brim__axis *axis) {
    return (double)(axis->to - axis->from) / axis->out;
}

/* first and last pixel of the wanted outputs. */
static void pick_needs(const struct brim__axis *axis, uint32_t *first, uint32_t *last) {
    const uint32_t a = mirrored(axis, axis->first);
    const uint32_t b = mirrored(axis, axis->first + axis->count - 1);
    const double step = step_of(axis);
    double at = (double)axis->from + step * 0.5;
    for (uint32_t i = 0; i <= a || i <= b; i++, at += step) {
        const uint32_t pixel = clamp_pick(at, axis->in);
        const uint32_t stored = axis->mirrored ? axis->in - 1 - pixel : pixel;
        if (i == a) {
            *first = stored;
        }
        if (i == b) {
            *last = stored;
        }
    }
}

void brim__weights_pick(const struct brim__axis *axis, bool reversed, uint32_t *first) {
    uint32_t base = 0, last = 0;
    pick_needs(axis, &base, &last);
    const double step = step_of(axis);
    double at = (double)axis->from + step * 0.5;
    for (uint32_t i = 0; i < axis->out; i++, at += step) {
        const uint32_t output = mirrored(axis, i);
        if (output < axis->first || output - axis->first >= axis->count) {
            continue;
        }
        const uint32_t pixel = clamp_pick(at, axis->in);
        const uint32_t stored = axis->mirrored ? axis->in - 1 - pixel : pixel;
        const uint32_t j = output - axis->first;
        first[reversed ? axis->count - 1 - j : j] = stored - base;
    }
}

/* ----------------------------------------------------------------- spans */

static struct scaling scaling_of(const struct brim__axis *axis, enum brim__filter filter) {
    struct scaling scaling;
    scaling.from = (double)axis->from;
    scaling.scale = step_of(axis);
    scaling.stretch = scaling.scale < 1.0 ? 1.0 : scaling.scale;
    scaling.reach = brim__filter_width(filter) * 0.5 * scaling.stretch;
    return scaling;
}

static double centre_of(const struct scaling *scaling, uint32_t output) {
    return scaling->from + (output + 0.5) * scaling->scale;
}

static struct span span_of(const struct scaling *scaling, double centre, uint32_t in) {
    const double first = centre - scaling->reach + 0.5;
    const double end = centre + scaling->reach + 0.5;
    return (struct span){
        .first = first > 0 ? (uint32_t)first : 0,
        .end = end < in ? (uint32_t)end : in,
    };
}

/* The span of an output, in pixels of the stored order. */
static struct span stored_span(const struct brim__axis *axis, const struct scaling *scaling,
                               uint32_t output) {
    const double centre = centre_of(scaling, mirrored(axis, output));
    const struct span span = span_of(scaling, centre, axis->in);
    if (!axis->mirrored) {
        return span;
    }
    return (struct span){ axis->in - span.end, axis->in - span.first };
}

void brim__axis_needs(const struct brim__axis *axis, enum brim__filter filter, uint32_t *first,
                      uint32_t *count) {
    const uint32_t last_output = axis->first + axis->count - 1;
    if (brim__axis_is_same(axis)) {
        *first = axis->first;
        *count = axis->count;
        return;
    }
    if (filter == BRIM__NEAREST) {
        uint32_t last = 0;
        *first = 0;
        pick_needs(axis, first, &last);
        *count = last - *first + 1;
        return;
    }
    const struct scaling scaling = scaling_of(axis, filter);
    *first = stored_span(axis, &scaling, axis->first).first;
    *count = stored_span(axis, &scaling, last_output).end - *first;
}

/* A span is the pixels whose middle is in an interval of width * stretch: that many, rounded up,
 * and one for the rounding of its ends. */
uint32_t brim__weights_most(enum brim__filter filter, uint32_t in, uint32_t out) {
    const uint64_t width = brim__filter_width(filter);
    const uint64_t taps = brim__divide_up(width * brim__max(in, out), brim__max(out, 1)) + 1;
    return (uint32_t)brim__min(taps, in);
}

/* An axis of few outputs has many taps for each, an axis of many outputs few. If the least `out` is
 * below the window, the worst case is in between. n outputs, at most `out`, have at most n * (width
 * * max(in / out, 1) + 2 + 3) taps; the 3 fill the last group. */
uint64_t brim__weights_taps(enum brim__filter filter, uint32_t in, uint32_t out, uint32_t window) {
    const uint64_t width = brim__filter_width(filter);
    const uint64_t together = width * brim__max(in, window) + 5 * (uint64_t)window;
    const uint64_t each = brim__align(brim__weights_most(filter, in, out), BRIM__GROUP_TAPS);
    return brim__min(together, each * window);
}

static uint32_t output_of(const struct brim__axis *axis, bool reversed, uint32_t j) {
    return reversed ? axis->first + axis->count - 1 - j : axis->first + j;
}

void brim__weights_spans(const struct brim__axis *axis, enum brim__filter filter, bool reversed,
                         struct brim__weights *weights) {
    const struct scaling scaling = scaling_of(axis, filter);
    const uint32_t base = stored_span(axis, &scaling, axis->first).first;
    uint32_t most = 0;
    for (uint32_t j = 0; j < weights->count; j++) {
        const struct span span = stored_span(axis, &scaling, output_of(axis, reversed, j));
        weights->first[j] = span.first - base;
        weights->taps[j] = span.end - span.first;
        most = weights->taps[j] > most ? weights->taps[j] : most;
    }
    weights->most = most;
    weights->pairs = (most + 1) / 2;
    weights->groups = (weights->pairs + 1) / 2;
}

/* --------------------------------------------------------------- filters */

typedef double filter_value(double x);

static inline double box(double x) {
    return x > -0.5 && x <= 0.5 ? 1.0 : 0.0;
}

static inline double bilinear(double x) {
    const double away = x < 0.0 ? -x : x;
    return away < 1.0 ? 1.0 - away : 0.0;
}

static inline double bicubic(double x) {
    const double away = x < 0.0 ? -x : x;
    if (away < 1.0) {
        return (1.5 * away - 2.5) * away * away + 1;
    }
    return away < 2.0 ? (((away - 5) * away + 8) * away - 4) * -0.5 : 0.0;
}

static inline double sinc(double x) {
    const double turned = x * BRIM__PI;
    return x == 0.0 ? 1.0 : brim__sin(turned) / turned;
}

static inline double lanczos(double x) {
    return -3.0 <= x && x < 3.0 ? sinc(x) * sinc(x / 3) : 0.0;
}

/* ---------------------------------------------------------------- halves */

static inline void put_weight(int16_t *halves, uint32_t tap, double weight) {
    const double scaled = weight * (1 << BRIM__WEIGHT_BITS);
    const int32_t whole = (int32_t)(weight < 0 ? -0.5 + scaled : 0.5 + scaled);
    int16_t *const pair = halves + (size_t)(tap / 2) * 4 + tap % 2;
    pair[0] = (int16_t)(whole >> BRIM__LOW_BITS);
    pair[2] = (int16_t)(whole & ((1 << BRIM__LOW_BITS) - 1));
}

static inline __attribute__((always_inline)) void
make(const struct brim__axis *axis, enum brim__filter filter, bool reversed, uint32_t limit,
     double *scratch, struct brim__weights *weights, filter_value *value) {
    const struct scaling scaling = scaling_of(axis, filter);
    const double inverse = 1.0 / scaling.stretch;
    const size_t row = (size_t)weights->groups * BRIM__GROUP_HALVES;
    const uint32_t width = weights->pairs * 2;
    memset(weights->halves, 0, weights->count * row * sizeof *weights->halves);

    for (uint32_t j = 0; j < weights->count; j++) {
        const double centre = centre_of(&scaling, mirrored(axis, output_of(axis, reversed, j)));
        const uint32_t first = span_of(&scaling, centre, axis->in).first;
        const uint32_t taps = weights->taps[j];
        double sum = 0.0;
        for (uint32_t i = 0; i < taps; i++) {
            scratch[i] = value(((double)(i + first) - centre + 0.5) * inverse);
            sum += scratch[i];
        }

        uint32_t skip = 0; /* taps of weight 0 before the first */
        if (limit != 0 && weights->first[j] + width > limit) {
            skip = weights->first[j] + width - limit;
            weights->first[j] -= skip;
        }
        int16_t *const halves = weights->halves + j * row;
        for (uint32_t i = 0; i < taps; i++) {
            const double share = sum != 0.0 ? scratch[i] / sum : scratch[i];
            put_weight(halves, skip + (axis->mirrored ? taps - 1 - i : i), share);
        }
    }
}

void brim__weights_make(const struct brim__axis *axis, enum brim__filter filter, bool reversed,
                        uint32_t limit, double *scratch, struct brim__weights *weights) {
    switch (filter) {
    case BRIM__BOX:
        make(axis, filter, reversed, limit, scratch, weights, box);
        return;
    case BRIM__BILINEAR:
        make(axis, filter, reversed, limit, scratch, weights, bilinear);
        return;
    case BRIM__BICUBIC:
        make(axis, filter, reversed, limit, scratch, weights, bicubic);
        return;
    case BRIM__LANCZOS:
        make(axis, filter, reversed, limit, scratch, weights, lanczos);
        return;
    case BRIM__NEAREST:
        break;
    }
}

void brim__weights_spread(struct brim__weights *weights) {
    for (uint32_t j = 0; j + 2 <= weights->count; j += 2) {
        int16_t *to = weights->spread + (size_t)(j / 2) * BRIM__SPREAD_PAIR;
        const int16_t *const from = weights->halves + (size_t)j * BRIM__GROUP_HALVES;
        for (uint32_t pair = 0; pair < 4; pair++) {
            uint32_t a, b; /* two halves at a time */
            memcpy(&a, from + pair * 2, sizeof a);
            memcpy(&b, from + BRIM__GROUP_HALVES + pair * 2, sizeof b);
            const uint32_t all[8] = { a, a, a, a, b, b, b, b };
            memcpy(to, all, sizeof all);
            to += 16;
        }
    }
}

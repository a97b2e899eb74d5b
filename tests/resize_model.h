/*
 * resize_model.h: what resizing means, said as plainly as possible and slowly.
 *
 * Pillow's arithmetic on a whole image: mirror, box, weights in doubles by the C
 * library, passes over every pixel, window, flip. The library's tables, rings and
 * vectors are compared with it. Include after cmocka.h.
 */
#ifndef BRIM_TESTS_RESIZE_MODEL_H
#define BRIM_TESTS_RESIZE_MODEL_H

#include "image/resize.h"

#include <math.h>
#include <stdlib.h>

/* The same numbers on every machine: a linear congruence, the upper bits. */
static inline uint32_t model_random(uint32_t *seed) {
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}
static inline uint32_t model_below(uint32_t *seed, uint32_t limit) {
    return model_random(seed) % limit;
}

static inline void *model_memory(size_t bytes) {
    void *const memory = calloc(1, bytes > 0 ? bytes : 1);
    assert_non_null(memory);
    return memory;
}

static inline double model_sinc(double x) {
    return x == 0 ? 1 : sin(x * 3.14159265358979323846) / (x * 3.14159265358979323846);
}

static inline double model_filter(enum brim__filter filter, double x) {
    const double away = fabs(x);
    switch (filter) {
    case BRIM__BOX:
        return x > -0.5 && x <= 0.5 ? 1 : 0;
    case BRIM__BILINEAR:
        return away < 1 ? 1 - away : 0;
    case BRIM__BICUBIC:
        return away < 1   ? ((-0.5 + 2) * away - (-0.5 + 3)) * away * away + 1
               : away < 2 ? (((away - 5) * away + 8) * away - 4) * -0.5
                          : 0;
    case BRIM__LANCZOS:
        return x >= -3 && x < 3 ? model_sinc(x) * model_sinc(x / 3) : 0;
    case BRIM__NEAREST:
        break;
    }
    return 0;
}

static inline double model_support(enum brim__filter filter) {
    static const double support[] = {
        [BRIM__BOX] = 0.5, [BRIM__BILINEAR] = 1, [BRIM__BICUBIC] = 2, [BRIM__LANCZOS] = 3
    };
    return support[filter];
}

/* `in` values `stride` apart to `out` values `out_stride` apart, one after the other. */
static inline void model_line(const struct brim__axis *axis, enum brim__filter filter,
                              const uint8_t *from, size_t stride, uint8_t *to, size_t out_stride) {
    const double scale = (double)(axis->to - axis->from) / axis->out;
    const double stretch = scale < 1 ? 1 : scale;
    const double support = model_support(filter) * stretch;
    double *const weight = model_memory(axis->in * sizeof *weight);
    double nearest = (double)axis->from + scale * 0.5;
    for (uint32_t o = 0; o < axis->out; o++, nearest += scale) {
        if (filter == BRIM__NEAREST) {
            to[o * out_stride] = from[(size_t)nearest * stride];
            continue;
        }
        const double centre = (double)axis->from + (o + 0.5) * scale;
        int first = (int)(centre - support + 0.5);
        int end = (int)(centre + support + 0.5);
        first = first < 0 ? 0 : first;
        end = end > (int)axis->in ? (int)axis->in : end;
        double sum = 0;
        for (int i = first; i < end; i++) {
            weight[i] = model_filter(filter, (i - centre + 0.5) * (1.0 / stretch));
            sum += weight[i];
        }
        int64_t total = 1 << 21;
        for (int i = first; i < end; i++) {
            const double share = sum != 0 ? weight[i] / sum : weight[i];
            total +=
                from[(size_t)i * stride] * (int64_t)((share < 0 ? -0.5 : 0.5) + share * 4194304);
        }
        total >>= 22;
        to[o * out_stride] = (uint8_t)(total < 0 ? 0 : total > 255 ? 255 : total);
    }
    free(weight);
}

static inline uint8_t *model_mirrored(const uint8_t *pixels, uint32_t width, uint32_t height,
                                      uint32_t pixel, bool x, bool y) {
    uint8_t *const turned = model_memory((size_t)width * height * pixel);
    for (uint32_t row = 0; row < height; row++) {
        for (uint32_t column = 0; column < width; column++) {
            const size_t from =
                ((y ? height - 1 - row : row) * (size_t)width + (x ? width - 1 - column : column)) *
                pixel;
            memcpy(turned + (row * (size_t)width + column) * pixel, pixels + from, pixel);
        }
    }
    return turned;
}

/* One pass over all of an image; the image is freed. */
static inline uint8_t *model_pass(uint8_t *pixels, uint32_t width, uint32_t height, uint32_t pixel,
                                  const struct brim__axis *axis, enum brim__filter filter,
                                  bool across) {
    if (axis->in == axis->out && axis->from == 0 && axis->to == (float)axis->in) {
        return pixels;
    }
    const uint32_t out_width = across ? axis->out : width;
    const uint32_t lines = (across ? height : width) * pixel;
    const uint32_t out_height = across ? height : axis->out;
    uint8_t *const out = model_memory((size_t)out_width * out_height * pixel);
    for (uint32_t line = 0; line < lines; line++) {
        const uint32_t at = line / pixel, channel = line % pixel;
        if (across) {
            model_line(axis, filter, pixels + (size_t)at * width * pixel + channel, pixel,
                       out + (size_t)at * out_width * pixel + channel, pixel);
        } else {
            model_line(axis, filter, pixels + line, (size_t)width * pixel, out + line,
                       (size_t)out_width * pixel);
        }
    }
    free(pixels);
    return out;
}

static inline bool model_is_same(const struct brim__axis *axis) {
    return axis->in == axis->out && axis->from == 0 && axis->to == (float)axis->in;
}

/* What the sink gets of `pixels`, all of it, row after row. */
static inline uint8_t *model_resize(const struct brim__resize *resize, const uint8_t *pixels) {
    const struct brim__axis *x = &resize->x, *y = &resize->y;
    const uint32_t pixel = resize->pixel;
    const bool alpha =
        resize->alpha && resize->filter != BRIM__NEAREST && !(model_is_same(x) && model_is_same(y));
    uint8_t *image = model_mirrored(pixels, x->in, y->in, pixel, x->mirrored, y->mirrored);
    for (size_t i = 0; alpha && i < (size_t)x->in * y->in * 4; i++) {
        const uint32_t product = image[i] * (uint32_t)image[i / 4 * 4 + 3] + 128;
        image[i] = i % 4 == 3 ? image[i] : (uint8_t)((product + (product >> 8)) >> 8);
    }
    if (resize->vertical_first) {
        image = model_pass(image, x->in, y->in, pixel, y, resize->filter, false);
        image = model_pass(image, x->in, y->out, pixel, x, resize->filter, true);
    } else {
        image = model_pass(image, x->in, y->in, pixel, x, resize->filter, true);
        image = model_pass(image, x->out, y->in, pixel, y, resize->filter, false);
    }
    for (size_t i = 0; alpha && i < (size_t)x->out * y->out * 4; i++) {
        const int opacity = image[i / 4 * 4 + 3];
        if (i % 4 != 3 && opacity != 0 && opacity != 255) {
            const int value = 255 * image[i] / opacity;
            image[i] = (uint8_t)(value > 255 ? 255 : value);
        }
    }
    uint8_t *const whole = model_mirrored(image, x->out, y->out, pixel, x->mirrored, y->mirrored);
    uint8_t *const window = model_memory((size_t)x->count * y->count * pixel);
    for (uint32_t row = 0; row < y->count; row++) {
        memcpy(window + (size_t)row * x->count * pixel,
               whole + ((size_t)(y->first + row) * x->out + x->first) * pixel,
               (size_t)x->count * pixel);
    }
    uint8_t *const result =
        model_mirrored(window, x->count, y->count, pixel, x->flipped, y->flipped);
    free(image);
    free(whole);
    free(window);
    return result;
}

#endif

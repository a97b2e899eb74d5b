/*
 * resize_plain.c: tf.image.resize without antialiasing, in float32.
 *
 * Output x is taken from (x + 0.5) * in / out - 0.5. The order of operations is that of
 * TensorFlow's kernels: bilinear goes across and then down, bicubic down and then across with
 * weights from steps of 1/1024 pixel. In bicubic, pixels outside the image have no weight, and the
 * remaining weights are scaled to a sum of 1. Columns are done in blocks, so that the values they
 * share are computed once for a block and fit on the stack.
 */
#include "image/resize.h"

#define BLOCK 64 /* columns */
#define STEPS 1024

/* The pixels that an output is made of and their weights; bilinear has one weight, that
 * of the second pixel. */
struct taps {
    uint32_t pixel[4];
    float weight[4];
};

static int64_t floor_of(float value) {
    const int64_t whole = (int64_t)value;
    return whole - ((float)whole > value);
}

static uint32_t bounded(int64_t pixel, uint32_t in) {
    return pixel < 0 ? 0 : pixel >= (int64_t)in ? in - 1 : (uint32_t)pixel;
}

static float scale_of(uint32_t in, uint32_t out) {
    return (float)in / (float)out;
}

static struct taps nearest_taps(uint32_t in, uint32_t out, uint32_t at) {
    const float from = ((float)at + 0.5f) * scale_of(in, out);
    return (struct taps){ .pixel = { bounded(floor_of(from), in) } };
}

static struct taps bilinear_taps(uint32_t in, uint32_t out, uint32_t at) {
    const float from = ((float)at + 0.5f) * scale_of(in, out) - 0.5f;
    const int64_t below = floor_of(from);
    const int64_t above = below + ((float)below < from);
    return (struct taps){
        .pixel = { bounded(below, in), bounded(above, in) },
        .weight = { from - (float)below },
    };
}

/* Keys's cubic with a = -0.5, at `steps` from 0 to 2 pixels. */
static float near_weight(int steps) {
    const double x = (double)steps / STEPS;
    return (float)((1.5 * x - 2.5) * x * x + 1);
}
static float far_weight(int steps) {
    const double x = (double)steps / STEPS + 1;
    return (float)(((-0.5 * x + 2.5) * x - 4) * x + 2);
}

static struct taps bicubic_taps(uint32_t in, uint32_t out, uint32_t at) {
    const float from = ((float)at + 0.5f) * scale_of(in, out) - 0.5f;
    const int64_t whole = floor_of(from);
    /* to the nearest step, and to the even one between two */
    const float exact = (from - (float)whole) * STEPS;
    int steps = (int)exact;
    const float over = exact - (float)steps;
    steps += over > 0.5f || (over == 0.5f && steps % 2 == 1);

    const float weights[4] = { far_weight(steps), near_weight(steps), near_weight(STEPS - steps),
                               far_weight(STEPS - steps) };
    struct taps taps;
    float sum = 0;
    for (int i = 0; i < 4; i++) {
        const int64_t pixel = whole - 1 + i;
        taps.pixel[i] = bounded(pixel, in);
        taps.weight[i] = taps.pixel[i] == pixel ? weights[i] : 0.0f;
        sum = i == 0 ? taps.weight[i] : sum + taps.weight[i];
    }
    const float inverse = 1.0f / sum; /* at least one weight of the two in the middle counts */
    for (int i = 0; i < 4; i++) {
        taps.weight[i] *= inverse;
    }
    return taps;
}

static struct taps taps_of(enum brim__filter filter, uint32_t in, uint32_t out, uint32_t at) {
    return filter == BRIM__NEAREST    ? nearest_taps(in, out, at)
           : filter == BRIM__BILINEAR ? bilinear_taps(in, out, at)
                                      : bicubic_taps(in, out, at);
}

static float bilinear_value(const uint8_t *const rows[4], const struct taps *y,
                            const struct taps *x, size_t pixel, size_t channel) {
    const size_t left = x->pixel[0] * pixel + channel, right = x->pixel[1] * pixel + channel;
    const float top_left = rows[0][left], top_right = rows[0][right];
    const float bottom_left = rows[1][left], bottom_right = rows[1][right];
    const float top = top_left + (top_right - top_left) * x->weight[0];
    const float bottom = bottom_left + (bottom_right - bottom_left) * x->weight[0];
    return top + (bottom - top) * y->weight[0];
}

static float weighed(const float values[4], const float weights[4]) {
    return values[0] * weights[0] + values[1] * weights[1] + values[2] * weights[2] +
           values[3] * weights[3];
}

static float bicubic_value(const uint8_t *const rows[4], const struct taps *y, const struct taps *x,
                           size_t pixel, size_t channel) {
    float columns[4];
    for (int i = 0; i < 4; i++) {
        const size_t at = x->pixel[i] * pixel + channel;
        const float column[4] = { rows[0][at], rows[1][at], rows[2][at], rows[3][at] };
        columns[i] = weighed(column, y->weight);
    }
    return weighed(columns, x->weight);
}

void brim__resize_plain(const struct brim__image *image, uint32_t channels, uint32_t out_width,
                        uint32_t out_height, enum brim__filter filter, float *out) {
    assert(filter == BRIM__NEAREST || filter == BRIM__BILINEAR || filter == BRIM__BICUBIC);
    assert(channels <= image->pixel);
    const size_t pixel = image->pixel;
    for (uint32_t begin = 0; begin < out_width; begin += BLOCK) {
        const uint32_t columns = out_width - begin < BLOCK ? out_width - begin : BLOCK;
        struct taps x[BLOCK];
        for (uint32_t i = 0; i < columns; i++) {
            x[i] = taps_of(filter, image->width, out_width, begin + i);
        }
        for (uint32_t row = 0; row < out_height; row++) {
            const struct taps y = taps_of(filter, image->height, out_height, row);
            const uint8_t *const rows[4] = {
                brim__image_row(image, y.pixel[0]),
                brim__image_row(image, y.pixel[1]),
                brim__image_row(image, y.pixel[2]),
                brim__image_row(image, y.pixel[3]),
            };
            float *to = out + ((size_t)row * out_width + begin) * channels;
            for (uint32_t i = 0; i < columns; i++) {
                for (size_t c = 0; c < channels; c++) {
                    *to++ = filter == BRIM__NEAREST    ? (float)rows[0][x[i].pixel[0] * pixel + c]
                            : filter == BRIM__BILINEAR ? bilinear_value(rows, &y, &x[i], pixel, c)
                                                       : bicubic_value(rows, &y, &x[i], pixel, c);
                }
            }
        }
    }
}

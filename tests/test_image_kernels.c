/*
 * test_image_kernels.c: every variant of the image kernels gives the same bytes and
 * touches none beyond its own; and resizing as TensorFlow does.
 *
 * Buffers are allocated to the byte, at any alignment, for the address sanitizer;
 * without it, the bytes around an output are looked at.
 */
#include "image/kernels.h"
#include "image/weights.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "resize_model.h"

#define EDGE 40 /* bytes around an output */

/* `bytes` random bytes that end where their allocation ends. */
static uint8_t *random_bytes(uint32_t *seed, size_t bytes) {
    uint8_t *const memory = model_memory(bytes);
    for (size_t i = 0; i < bytes; i++) {
        memory[i] = (uint8_t)model_below(seed, 256);
    }
    return memory;
}

/* An output of `bytes` bytes at an odd place between two edges. */
struct output {
    uint8_t *memory, *data;
    size_t bytes;
};

static struct output output_new(size_t bytes, uint32_t shift) {
    struct output output = { model_memory(bytes + 2 * EDGE), NULL, bytes };
    memset(output.memory, 0x5a, bytes + 2 * EDGE);
    output.data = output.memory + shift % EDGE;
    return output;
}

static void output_check(const struct output *output, const struct output *expected) {
    assert_memory_equal(output->data, expected->data, output->bytes);
    for (const uint8_t *at = output->memory; at < output->data; at++) {
        assert_int_equal(*at, 0x5a);
    }
    const uint8_t *const end = output->memory + output->bytes + 2 * EDGE;
    for (const uint8_t *at = output->data + output->bytes; at < end; at++) {
        assert_int_equal(*at, 0x5a);
    }
}

/* Runs `call` with the scalar kernels and with every other variant, on outputs of
 * `bytes` bytes, and compares. */
typedef void kernel_call(const struct brim__image_kernels *kernels, const void *arguments,
                         uint8_t *out);

static void compare(kernel_call *call, const void *arguments, size_t bytes) {
    struct output expected = output_new(bytes, 3);
    call(brim__image_kernels_variant(0), arguments, expected.data);
    output_check(&expected, &expected);
    for (size_t variant = 1; brim__image_kernels_variant(variant) != NULL; variant++) {
        for (uint32_t shift = 0; shift < 2; shift++) {
            struct output output = output_new(bytes, 7 + 9 * shift);
            call(brim__image_kernels_variant(variant), arguments, output.data);
            output_check(&output, &expected);
            free(output.memory);
        }
    }
    free(expected.memory);
}

/* -------------------------------------------------------------- resampling */

struct across {
    const uint8_t *row;
    const struct brim__weights *weights;
};

static void call_across4(const struct brim__image_kernels *kernels, const void *arguments,
                         uint8_t *out) {
    const struct across *across = arguments;
    kernels->across4(across->row, out, across->weights);
}

static void call_across1(const struct brim__image_kernels *kernels, const void *arguments,
                         uint8_t *out) {
    const struct across *across = arguments;
    kernels->across1(across->row, out, across->weights);
}

static void test_across_is_equal(void **state) {
    (void)state;
    uint32_t seed = 1;
    for (int i = 0; i < 1500; i++) {
        const uint32_t in = 1 + model_below(&seed, i % 10 == 0 ? 400 : 60);
        const uint32_t out = 1 + model_below(&seed, 40);
        const struct brim__axis axis = { .in = in, .out = out, .to = (float)in, .count = out };
        const enum brim__filter filter = (enum brim__filter)(1 + model_below(&seed, 4));
        struct brim__weights weights = { .count = out };
        weights.first = model_memory(out * sizeof *weights.first);
        weights.taps = model_memory(out * sizeof *weights.taps);
        brim__weights_spans(&axis, filter, false, &weights);
        const uint32_t width = in > weights.pairs * 2 ? in : weights.pairs * 2;
        const size_t halves = (size_t)out * weights.groups * BRIM__GROUP_HALVES;
        weights.halves = model_memory(halves * sizeof *weights.halves);
        double *const scratch = model_memory(weights.most * sizeof *scratch);
        brim__weights_make(&axis, filter, false, width, scratch, &weights);

        uint8_t *const row4 = random_bytes(&seed, (size_t)width * 4);
        uint8_t *const row1 = random_bytes(&seed, width);
        compare(call_across4, &(struct across){ row4, &weights }, (size_t)out * 4);
        compare(call_across1, &(struct across){ row1, &weights }, out);
        if (weights.groups == 1) {
            weights.spread = model_memory(out / 2 * BRIM__SPREAD_PAIR * sizeof *weights.spread);
            brim__weights_spread(&weights);
            compare(call_across4, &(struct across){ row4, &weights }, (size_t)out * 4);
            free(weights.spread);
        }
        free(row4);
        free(row1);
        free(scratch);
        free(weights.first);
        free(weights.taps);
        free(weights.halves);
    }
}

struct down {
    const uint8_t *const *rows;
    uint32_t taps;
    const int16_t *halves;
    size_t bytes;
};

static void call_down(const struct brim__image_kernels *kernels, const void *arguments,
                      uint8_t *out) {
    const struct down *down = arguments;
    kernels->down(down->rows, down->taps, down->halves, out, down->bytes);
}

/* The same by single rows. */
static void call_sums(const struct brim__image_kernels *kernels, const void *arguments,
                      uint8_t *out) {
    const struct down *down = arguments;
    int32_t *const sums = model_memory(down->bytes * sizeof *sums);
    for (uint32_t tap = 0; tap < down->taps; tap++) {
        kernels->add(down->rows[tap], brim__weight(down->halves, tap), sums, down->bytes);
    }
    kernels->settle(sums, out, down->bytes);
    free(sums);
}

static void test_down_is_equal_by_rows_and_by_sums(void **state) {
    (void)state;
    enum { MOST = 33 };
    uint32_t seed = 2;
    for (int i = 0; i < 600; i++) {
        const uint32_t taps = 1 + model_below(&seed, MOST - 1);
        const size_t bytes = 1 + model_below(&seed, i % 5 == 0 ? 600 : 100);
        int16_t halves[2 * MOST + 6] = { 0 };
        const uint8_t *rows[MOST + 1];
        for (uint32_t tap = 0; tap < taps; tap++) {
            /* negative ones too, and sums that leave the bytes */
            const int32_t weight =
                (int32_t)model_below(&seed, 1 << 23) / (int32_t)taps * (tap % 3 == 2 ? -1 : 1);
            int16_t *const pair = halves + tap / 2 * 4 + tap % 2;
            pair[0] = (int16_t)(weight >> BRIM__LOW_BITS);
            pair[2] = (int16_t)(weight & ((1 << BRIM__LOW_BITS) - 1));
            assert_int_equal(brim__weight(halves, tap), weight);
            rows[tap] = random_bytes(&seed, bytes);
        }
        rows[taps] = rows[0];
        const struct down down = { rows, taps, halves, bytes };
        compare(call_down, &down, bytes);
        compare(call_sums, &down, bytes);

        struct output by_rows = output_new(bytes, 0), by_sums = output_new(bytes, 0);
        call_down(brim__image_kernels(), &down, by_rows.data);
        call_sums(brim__image_kernels(), &down, by_sums.data);
        output_check(&by_sums, &by_rows);
        free(by_rows.memory);
        free(by_sums.memory);
        for (uint32_t tap = 0; tap < taps; tap++) {
            free((void *)(uintptr_t)rows[tap]);
        }
    }
}

/* ----------------------------------------------------------------- layouts */

struct pixels {
    const uint8_t *from;
    size_t count, plane;
};

static const float scales[3] = { 0.017124753f, 0.1f, -3.0f };
static const float biases[3] = { -2.117904f, 0.3f, 1e9f };

static void call_premultiply(const struct brim__image_kernels *kernels, const void *arguments,
                             uint8_t *out) {
    const struct pixels *pixels = arguments;
    kernels->premultiply(pixels->from, out, pixels->count);
}
static void call_unpremultiply(const struct brim__image_kernels *kernels, const void *arguments,
                               uint8_t *out) {
    const struct pixels *pixels = arguments;
    memcpy(out, pixels->from, pixels->count * 4);
    kernels->unpremultiply(out, pixels->count);
}
static void call_planes4(const struct brim__image_kernels *kernels, const void *arguments,
                         uint8_t *out) {
    const struct pixels *pixels = arguments;
    memset(out, 0, (2 * pixels->plane + pixels->count) * 4);
    kernels->planes4(pixels->from, (float *)(void *)out, pixels->plane, pixels->count, scales,
                     biases);
}
static void call_split3(const struct brim__image_kernels *kernels, const void *arguments,
                        uint8_t *out) {
    const struct pixels *pixels = arguments;
    memset(out, 0, 2 * pixels->plane + pixels->count);
    kernels->split4(pixels->from, out, pixels->plane, pixels->count, 3);
}
static void call_split4(const struct brim__image_kernels *kernels, const void *arguments,
                        uint8_t *out) {
    const struct pixels *pixels = arguments;
    memset(out, 0, 3 * pixels->plane + pixels->count);
    kernels->split4(pixels->from, out, pixels->plane, pixels->count, 4);
}
static void call_pack4(const struct brim__image_kernels *kernels, const void *arguments,
                       uint8_t *out) {
    const struct pixels *pixels = arguments;
    kernels->pack4(pixels->from, out, pixels->count);
}
static void call_unpack3(const struct brim__image_kernels *kernels, const void *arguments,
                         uint8_t *out) {
    const struct pixels *pixels = arguments;
    kernels->unpack3(pixels->from, out, pixels->count);
}
static void call_gray4(const struct brim__image_kernels *kernels, const void *arguments,
                       uint8_t *out) {
    const struct pixels *pixels = arguments;
    kernels->gray4(pixels->from, out, pixels->count);
}
static void call_reverse4(const struct brim__image_kernels *kernels, const void *arguments,
                          uint8_t *out) {
    const struct pixels *pixels = arguments;
    kernels->reverse4(pixels->from, out, pixels->count);
}
static void call_reverse1(const struct brim__image_kernels *kernels, const void *arguments,
                          uint8_t *out) {
    const struct pixels *pixels = arguments;
    kernels->reverse1(pixels->from, out, pixels->count);
}

static void test_layouts_are_equal(void **state) {
    (void)state;
    static const struct {
        kernel_call *call;
        size_t in, out, planes; /* bytes of a pixel, and planes after the first */
    } kernels[] = {
        { call_premultiply, 4, 4, 0 }, { call_unpremultiply, 4, 4, 0 }, { call_planes4, 4, 4, 2 },
        { call_split3, 4, 1, 2 },      { call_split4, 4, 1, 3 },        { call_pack4, 4, 3, 0 },
        { call_unpack3, 3, 4, 0 },     { call_gray4, 4, 1, 0 },         { call_reverse4, 4, 4, 0 },
        { call_reverse1, 1, 1, 0 },
    };
    uint32_t seed = 4;
    for (size_t k = 0; k < BRIM__COUNT(kernels); k++) {
        for (size_t count = 0; count < 140; count++) {
            uint8_t *const from = random_bytes(&seed, count * kernels[k].in);
            const struct pixels pixels = { from, count, count + model_below(&seed, 5) };
            compare(kernels[k].call, &pixels,
                    (kernels[k].planes * pixels.plane + count) * kernels[k].out);
            free(from);
        }
    }
}

/* The scalar ones do what they say: one pixel of every kind by hand. */
static void test_layouts_of_known_pixels(void **state) {
    (void)state;
    const struct brim__image_kernels *const kernels = brim__image_kernels();
    const uint8_t two[8] = { 10, 20, 30, 255, 200, 100, 50, 128 };
    uint8_t out[8];
    kernels->pack4(two, out, 2);
    assert_memory_equal(out, ((uint8_t[]){ 10, 20, 30, 200, 100, 50 }), 6);
    kernels->unpack3(((const uint8_t[]){ 10, 20, 30, 200, 100, 50 }), out, 2);
    assert_memory_equal(out, ((uint8_t[]){ 10, 20, 30, 255, 200, 100, 50, 255 }), 8);
    kernels->split4(two, out, 2, 2, 4);
    assert_memory_equal(out, ((uint8_t[]){ 10, 200, 20, 100, 30, 50, 255, 128 }), 8);
    kernels->reverse4(two, out, 2);
    assert_memory_equal(out, ((uint8_t[]){ 200, 100, 50, 128, 10, 20, 30, 255 }), 8);
    kernels->reverse1(two, out, 3);
    assert_memory_equal(out, ((uint8_t[]){ 30, 20, 10 }), 3);
    kernels->gray4(two, out, 2);
    assert_memory_equal(out, ((uint8_t[]){ 18, 124 }), 2); /* 0.299 r + 0.587 g + 0.114 b */
    kernels->premultiply(two, out, 2);
    assert_memory_equal(out, ((uint8_t[]){ 10, 20, 30, 255, 100, 50, 25, 128 }), 8);
    kernels->unpremultiply(out, 2);
    assert_memory_equal(out, ((uint8_t[]){ 10, 20, 30, 255, 199, 99, 49, 128 }), 8);
    float planes[6];
    kernels->planes4(two, planes, 2, 2, (float[]){ 2, 0.5f, 1 }, (float[]){ 1, 0, -50 });
    const float expected[6] = { 21, 401, 10, 50, -20, 0 };
    assert_memory_equal(planes, expected, sizeof expected);
}

/* ------------------------------------------------------------- as TensorFlow */

static float clamped_pixel(const struct brim__image *image, int64_t x, int64_t y, uint32_t c) {
    const int64_t column = x < 0 ? 0 : x >= image->width ? image->width - 1 : x;
    const int64_t row = y < 0 ? 0 : y >= image->height ? image->height - 1 : y;
    return image->data[(size_t)row * image->stride + (size_t)column * image->pixel + c];
}

static double keys(double x) {
    const double away = fabs(x);
    return away <= 1   ? (1.5 * away - 2.5) * away * away + 1
           : away <= 2 ? ((-0.5 * away + 2.5) * away - 4) * away + 2
                       : 0;
}

/* Weights of the four pixels from *first on, in steps of 1/1024; none outside. */
static void cubic_weights(uint32_t in, uint32_t out, uint32_t at, int64_t *first,
                          double weights[4]) {
    const float from = ((float)at + 0.5f) * ((float)in / (float)out) - 0.5f;
    const double below = floor((double)from);
    const double part = nearbyint(((double)from - below) * 1024) / 1024;
    double sum = 0;
    *first = (int64_t)below - 1;
    for (int i = 0; i < 4; i++) {
        const bool inside = *first + i >= 0 && *first + i < in;
        weights[i] = inside ? keys(part + 1 - i) : 0;
        sum += weights[i];
    }
    for (int i = 0; i < 4; i++) {
        weights[i] /= sum;
    }
}

/* In doubles: what float32 comes near. Linear filters need no order of operations. */
static double plain_model(const struct brim__image *image, uint32_t out_width, uint32_t out_height,
                          enum brim__filter filter, uint32_t x, uint32_t y, uint32_t c) {
    const float scale_x = (float)image->width / (float)out_width;
    const float scale_y = (float)image->height / (float)out_height;
    if (filter == BRIM__NEAREST) {
        return (double)clamped_pixel(image, (int64_t)floorf(((float)x + 0.5f) * scale_x),
                                     (int64_t)floorf(((float)y + 0.5f) * scale_y), c);
    }
    double sum = 0;
    if (filter == BRIM__BILINEAR) {
        const float at_x = ((float)x + 0.5f) * scale_x - 0.5f;
        const float at_y = ((float)y + 0.5f) * scale_y - 0.5f;
        const double left = floor((double)at_x), top = floor((double)at_y);
        for (int i = 0; i < 4; i++) {
            const double weight_x = 1 - fabs((double)at_x - (left + i % 2));
            const double weight_y = 1 - fabs((double)at_y - (top + i / 2));
            sum += weight_x * weight_y *
                   (double)clamped_pixel(image, (int64_t)left + i % 2, (int64_t)top + i / 2, c);
        }
        return sum;
    }
    int64_t left, top;
    double weights_x[4], weights_y[4];
    cubic_weights(image->width, out_width, x, &left, weights_x);
    cubic_weights(image->height, out_height, y, &top, weights_y);
    for (int i = 0; i < 16; i++) {
        sum += weights_x[i % 4] * weights_y[i / 4] *
               (double)clamped_pixel(image, left + i % 4, top + i / 4, c);
    }
    return sum;
}

static void check_plain(const struct brim__image *image, uint32_t channels, uint32_t width,
                        uint32_t height, enum brim__filter filter) {
    const size_t values = (size_t)width * height * channels;
    float *const out = model_memory(values * sizeof *out);
    brim__resize_plain(image, channels, width, height, filter, out);
    for (size_t i = 0; i < values; i++) {
        const uint32_t at = (uint32_t)(i / channels);
        const double expected = plain_model(image, width, height, filter, at % width, at / width,
                                            (uint32_t)(i % channels));
        assert_true(fabs((double)out[i] - expected) < (filter == BRIM__NEAREST ? 1e-9 : 2e-4));
    }
    free(out);
}

static void test_plain_resizing_is_tensorflows(void **state) {
    (void)state;
    static const enum brim__filter filters[] = { BRIM__NEAREST, BRIM__BILINEAR, BRIM__BICUBIC };
    uint32_t seed = 6;
    for (int i = 0; i < 240; i++) {
        const uint32_t channels = i % 3 == 0 ? 1 : i % 3 == 1 ? 3 : 4;
        struct brim__image image = { .width = 1 + model_below(&seed, 30),
                                     .height = 1 + model_below(&seed, 30),
                                     .pixel = channels == 1 ? 1 : 4 };
        image.stride = (size_t)image.width * image.pixel + model_below(&seed, 9);
        image.data = random_bytes(&seed, image.stride * image.height);
        check_plain(&image, channels, 1 + model_below(&seed, i % 8 == 0 ? 150 : 30),
                    1 + model_below(&seed, 30), filters[model_below(&seed, 3)]);
        free(image.data);
    }
}

/* Every output lies in the middle between two steps of the weights' table. */
static void test_plain_resizing_between_steps(void **state) {
    (void)state;
    uint8_t pixels[5] = { 0, 255, 0, 200, 10 };
    const struct brim__image image = { pixels, 5, 1, 1, 5 };
    check_plain(&image, 1, 5 * 1024, 1, BRIM__BICUBIC);
}

/* Bits, by hand: 2 pixels to 4 lie at -0.25, 0.25, 0.75 and 1.25. */
static void test_plain_resizing_of_two_pixels(void **state) {
    (void)state;
    uint8_t pixels[2] = { 10, 20 };
    const struct brim__image image = { pixels, 2, 1, 1, 2 };
    float out[4];
    brim__resize_plain(&image, 1, 4, 1, BRIM__BILINEAR, out);
    assert_memory_equal(out, ((float[]){ 10, 12.5f, 17.5f, 20 }), sizeof out);
    brim__resize_plain(&image, 1, 4, 1, BRIM__NEAREST, out);
    assert_memory_equal(out, ((float[]){ 10, 10, 20, 20 }), sizeof out);
    brim__resize_plain(&image, 1, 2, 1, BRIM__BICUBIC, out);
    assert_memory_equal(out, ((float[]){ 10, 20 }), 2 * sizeof(float));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_across_is_equal),
        cmocka_unit_test(test_down_is_equal_by_rows_and_by_sums),
        cmocka_unit_test(test_layouts_are_equal),
        cmocka_unit_test(test_layouts_of_known_pixels),
        cmocka_unit_test(test_plain_resizing_is_tensorflows),
        cmocka_unit_test(test_plain_resizing_between_steps),
        cmocka_unit_test(test_plain_resizing_of_two_pixels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * test_resize.c: resampling against the model, against what Pillow gave, and against
 * memory that is too small.
 *
 * The model says what a result is; the digests in `pillow_digests` come from Pillow
 * 13.0 itself, so that a misreading shared by model and library would show. Rows and
 * memory are allocated to the byte, so that the address sanitizer sees every access
 * beyond them.
 */
#include "image/resize.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "resize_model.h"

/* ----------------------------------------------------------------- running */

struct collected {
    uint8_t *rows;
    uint8_t *seen; /* [y.count] times that a row came */
    size_t row_bytes;
    uint32_t count;
    uint32_t fail_at; /* the row at which the sink fails; UINT32_MAX: none */
};

static brim_status collect(void *user, const uint8_t *row, uint32_t y) {
    struct collected *collected = user;
    assert_true(y < collected->count);
    if (y == collected->fail_at) {
        return brim__fail(BRIM_STATUS_CALLBACK, "no more");
    }
    memcpy(collected->rows + y * collected->row_bytes, row, collected->row_bytes);
    collected->seen[y]++;
    return BRIM_OK;
}

static struct brim__resize_bounds bounds_of(const struct brim__resize *resize) {
    return (struct brim__resize_bounds){
        .in_width = resize->x.in,
        .in_height = resize->y.in,
        .least_width = resize->x.out,
        .least_height = resize->y.out,
        .window_width = resize->x.count,
        .window_height = resize->y.count,
        .filter = resize->filter,
        .vertical_first = resize->vertical_first,
    };
}

/* Memory of exactly `bytes` bytes, aligned to 64. */
static uint8_t *resizer_memory(uint64_t bytes) {
    void *memory = NULL;
    assert_int_equal(posix_memalign(&memory, 64, bytes > 0 ? bytes : 1), 0);
    memset(memory, 0xa5, bytes);
    return memory;
}

/* Gives a resizer the rows that it needs. */
static brim_status push_rows(const struct brim__resize *resize, struct brim__resizer *resizer,
                             const uint8_t *pixels) {
    uint32_t x, width, y, height;
    brim__axis_needs(&resize->x, resize->filter, &x, &width);
    brim__axis_needs(&resize->y, resize->filter, &y, &height);
    assert_true(x + width <= resize->x.in && y + height <= resize->y.in);
    brim_status status = BRIM_OK;
    for (uint32_t i = 0; i < height && status == BRIM_OK; i++) {
        uint8_t *const row = model_memory((size_t)width * resize->pixel);
        memcpy(row, pixels + ((size_t)(y + i) * resize->x.in + x) * resize->pixel,
               (size_t)width * resize->pixel);
        status = brim__resize_row(resizer, row);
        free(row);
    }
    return status;
}

/* All that the sink gets; to be freed. */
static uint8_t *run(const struct brim__resize *resize, uint64_t bytes, const uint8_t *pixels) {
    struct collected collected = { .row_bytes = (size_t)resize->x.count * resize->pixel,
                                   .count = resize->y.count,
                                   .fail_at = UINT32_MAX };
    collected.rows = model_memory(collected.row_bytes * collected.count);
    collected.seen = model_memory(collected.count);
    uint8_t *const memory = resizer_memory(bytes);
    struct brim__resizer *resizer = NULL;
    assert_int_equal(brim__resize_begin(resize, memory, bytes, collect, &collected, &resizer),
                     BRIM_OK);
    assert_int_equal(push_rows(resize, resizer, pixels), BRIM_OK);
    for (uint32_t y = 0; y < collected.count; y++) {
        assert_int_equal(collected.seen[y], 1);
    }
    free(memory);
    free(collected.seen);
    return collected.rows;
}

static struct brim__axis whole_axis(uint32_t in, uint32_t out) {
    return (struct brim__axis){ .in = in, .out = out, .to = (float)in, .count = out };
}

/* -------------------------------------------------------------- the model */

static float random_real(uint32_t *seed, float limit) {
    return (float)model_below(seed, 1 << 20) / (float)(1 << 20) * limit;
}

static uint32_t random_side(uint32_t *seed) {
    switch (model_below(seed, 8)) {
    case 0:
        return 1 + model_below(seed, 3);
    case 1:
        return 1 + model_below(seed, 260);
    default:
        return 1 + model_below(seed, 40);
    }
}

static struct brim__axis random_axis(uint32_t *seed) {
    struct brim__axis axis = whole_axis(random_side(seed), random_side(seed));
    if (model_below(seed, 8) == 0) {
        axis = whole_axis(axis.in, axis.in);
    }
    if (model_below(seed, 3) == 0) {
        const float a = random_real(seed, (float)axis.in), b = random_real(seed, (float)axis.in);
        if (a != b) {
            axis.from = a < b ? a : b;
            axis.to = a < b ? b : a;
        }
    }
    if (model_below(seed, 2) == 0) {
        axis.first = model_below(seed, axis.out);
        axis.count = 1 + model_below(seed, axis.out - axis.first);
    }
    axis.mirrored = model_below(seed, 4) == 0;
    axis.flipped = model_below(seed, 4) == 0;
    return axis;
}

static struct brim__resize random_resize(uint32_t *seed) {
    struct brim__resize resize;
    do {
        resize = (struct brim__resize){
            .x = random_axis(seed),
            .y = random_axis(seed),
            .filter = (enum brim__filter)model_below(seed, 5),
            .pixel = model_below(seed, 2) == 0 ? 1 : 4,
            .vertical_first = model_below(seed, 2) == 0,
        };
        resize.alpha = resize.pixel == 4 && model_below(seed, 2) == 0;
    } while ((uint64_t)resize.x.in * resize.y.in > 6000 ||
             (uint64_t)resize.x.out * resize.y.out > 6000);
    return resize;
}

static uint8_t *random_pixels(uint32_t *seed, const struct brim__resize *resize) {
    const size_t bytes = (size_t)resize->x.in * resize->y.in * resize->pixel;
    uint8_t *const pixels = model_memory(bytes);
    const bool extremes = model_below(seed, 4) == 0; /* makes filters overshoot */
    for (size_t i = 0; i < bytes; i++) {
        const uint32_t value = model_below(seed, 256);
        pixels[i] = (uint8_t)(extremes ? (value & 1) * 255 : value);
    }
    return pixels;
}

static void test_any_request_equals_the_model(void **state) {
    (void)state;
    uint32_t seed = 7;
    for (int i = 0; i < 2500; i++) {
        const uint32_t at = seed;
        const struct brim__resize resize = random_resize(&seed);
        const struct brim__resize_bounds bounds = bounds_of(&resize);
        uint8_t *const pixels = random_pixels(&seed, &resize);
        uint8_t *const expected = model_resize(&resize, pixels);
        uint8_t *const got = run(&resize, brim__resize_memory(&bounds), pixels);
        const size_t bytes = (size_t)resize.x.count * resize.y.count * resize.pixel;
        if (memcmp(got, expected, bytes) != 0) {
            print_error("request %d of seed %u: %u x %u to %u x %u, filter %d\n", i, at,
                        resize.x.in, resize.y.in, resize.x.out, resize.y.out, (int)resize.filter);
        }
        assert_memory_equal(got, expected, bytes);
        free(pixels);
        free(expected);
        free(got);
    }
}

/* Shrinking by much is done with sums instead of a ring, whichever pass is first. */
static void test_extreme_ratios_equal_the_model(void **state) {
    (void)state;
    static const uint32_t sizes[][4] = {
        { 3, 4000, 5, 3 },    { 4000, 3, 3, 5 },   { 2, 5000, 1, 1 },  { 5000, 1, 1, 1 },
        { 40, 900, 6, 31 },   { 1, 1, 70, 60 },    { 65535, 1, 2, 1 }, { 1, 65535, 1, 2 },
        { 17, 1100, 17, 40 }, { 9, 1100, 500, 2 }, { 1, 2, 3000, 1 },  { 300, 310, 1, 1 },
    };
    uint32_t seed = 3;
    for (size_t i = 0; i < BRIM__COUNT(sizes); i++) {
        for (int filter = BRIM__NEAREST; filter <= BRIM__LANCZOS; filter++) {
            const struct brim__resize resize = {
                .x = whole_axis(sizes[i][0], sizes[i][2]),
                .y = whole_axis(sizes[i][1], sizes[i][3]),
                .filter = (enum brim__filter)filter,
                .pixel = i % 2 == 0 ? 4 : 1,
                .alpha = i % 4 == 0,
                .vertical_first = filter % 2 == 0,
            };
            const struct brim__resize_bounds bounds = bounds_of(&resize);
            uint8_t *const pixels = random_pixels(&seed, &resize);
            uint8_t *const expected = model_resize(&resize, pixels);
            uint8_t *const got = run(&resize, brim__resize_memory(&bounds), pixels);
            assert_memory_equal(got, expected, (size_t)resize.x.out * resize.y.out * resize.pixel);
            free(pixels);
            free(expected);
            free(got);
        }
    }
}

/* ------------------------------------------------------------------ Pillow */

static const struct {
    enum brim__filter filter;
    uint32_t pixel;
    bool alpha;
    uint32_t width, height, out_width, out_height;
    float box[4];
    uint64_t digest;
} pillow_digests[] = {
    { BRIM__BILINEAR, 4, false, 60, 45, 32, 32, { 0.0f, 0.0f, 60.0f, 45.0f }, 0x319567af5141dd27u },
    { BRIM__BILINEAR, 4, false, 40, 90, 32, 32, { 0.0f, 0.0f, 40.0f, 90.0f }, 0xc17158868d88704cu },
    { BRIM__BICUBIC, 4, false, 37, 29, 50, 61, { 0.0f, 0.0f, 37.0f, 29.0f }, 0x4f7534687891c35fu },
    { BRIM__LANCZOS,
      4,
      false,
      64,
      48,
      20,
      33,
      { 3.25f, 0.0f, 60.5f, 47.75f },
      0x3d01434cb74a540au },
    { BRIM__BOX, 4, false, 50, 41, 7, 9, { 0.0f, 0.0f, 50.0f, 41.0f }, 0xfb8ba46030c7ba32u },
    { BRIM__NEAREST, 4, false, 50, 41, 33, 77, { 1.5f, 2.0f, 44.25f, 40.0f }, 0x1e5fb083b54716cau },
    { BRIM__BILINEAR, 4, true, 30, 30, 17, 40, { 0.0f, 0.0f, 30.0f, 30.0f }, 0xc60464c69a0e4352u },
    { BRIM__BICUBIC, 4, true, 33, 70, 21, 12, { 0.0f, 0.0f, 33.0f, 70.0f }, 0x25e8c407822fa854u },
    { BRIM__LANCZOS, 1, false, 90, 31, 13, 31, { 0.0f, 0.0f, 90.0f, 31.0f }, 0x446dfb3781f7f3f5u },
    { BRIM__BOX, 1, false, 5, 300, 8, 3, { 0.0f, 0.0f, 5.0f, 300.0f }, 0xbbfc5b7a4b33b036u },
    { BRIM__NEAREST, 1, false, 14, 3, 21, 7, { 0.0f, 0.0f, 14.0f, 3.0f }, 0xa58c2d0bdf2720f1u },
    { BRIM__BILINEAR, 1, false, 700, 2, 9, 5, { 0.5f, 0.25f, 699.75f, 2.0f }, 0x3adcfad6c9f2af9cu },
};

static uint64_t fnv(const uint8_t *bytes, size_t count) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < count; i++) {
        hash = (hash ^ bytes[i]) * 0x100000001b3u;
    }
    return hash;
}

static void test_results_are_pillows(void **state) {
    (void)state;
    for (size_t i = 0; i < BRIM__COUNT(pillow_digests); i++) {
        const uint32_t width = pillow_digests[i].width, height = pillow_digests[i].height;
        const uint32_t out_width = pillow_digests[i].out_width;
        const uint32_t out_height = pillow_digests[i].out_height;
        struct brim__resize resize = {
            .x = whole_axis(width, out_width),
            .y = whole_axis(height, out_height),
            .filter = pillow_digests[i].filter,
            .pixel = pillow_digests[i].pixel,
            .alpha = pillow_digests[i].alpha,
            .vertical_first = brim__resize_is_tall(width, height, out_width, out_height),
        };
        resize.x.from = pillow_digests[i].box[0];
        resize.y.from = pillow_digests[i].box[1];
        resize.x.to = pillow_digests[i].box[2];
        resize.y.to = pillow_digests[i].box[3];
        const size_t bytes = (size_t)width * height * resize.pixel;
        uint8_t *const pixels = model_memory(bytes);
        uint32_t seed = 1;
        for (size_t k = 0; k < bytes; k++) {
            seed = seed * 1664525u + 1013904223u;
            pixels[k] = (uint8_t)(seed >> 24);
            if (resize.pixel == 4 && !resize.alpha && k % 4 == 3) {
                pixels[k] = 255;
            }
        }
        const struct brim__resize_bounds bounds = bounds_of(&resize);
        uint8_t *const got = run(&resize, brim__resize_memory(&bounds), pixels);
        assert_int_equal(fnv(got, (size_t)out_width * out_height * resize.pixel),
                         pillow_digests[i].digest);
        free(pixels);
        free(got);
    }
}

/* Found by asking Pillow 13.0 itself, at and beside the limit. */
static void test_which_images_go_vertically_first(void **state) {
    (void)state;
    assert_false(brim__resize_is_tall(40, 50, 30, 30));
    assert_true(brim__resize_is_tall(40, 51, 30, 30));
    assert_false(brim__resize_is_tall(40, 140, 20, 100));
    assert_true(brim__resize_is_tall(40, 141, 20, 100));
    assert_false(brim__resize_is_tall(40, 40, 80, 40)); /* growing counts as not shrinking */
    assert_true(brim__resize_is_tall(40, 41, 80, 40));
    assert_false(brim__resize_is_tall(40, 20, 80, 40));
    assert_false(brim__resize_is_tall(65535, 1, 1, 65535));
    assert_true(brim__resize_is_tall(1, 65535, 65535, 1));
}

/* ------------------------------------------------------------------ memory */

/* A bound for larger images, smaller results and wider windows holds for what is inside. */
static void test_memory_is_a_bound_for_all_inside(void **state) {
    (void)state;
    uint32_t seed = 11;
    for (int i = 0; i < 4000; i++) {
        struct brim__resize resize = random_resize(&seed);
        struct brim__resize_bounds bounds = bounds_of(&resize);
        bounds.in_width += model_below(&seed, 50);
        bounds.in_height += model_below(&seed, 50);
        bounds.least_width = 1 + model_below(&seed, bounds.least_width);
        bounds.least_height = 1 + model_below(&seed, bounds.least_height);
        bounds.window_width += model_below(&seed, 20);
        bounds.window_height += model_below(&seed, 20);
        const uint64_t bytes = brim__resize_memory(&bounds);
        uint8_t *const memory = resizer_memory(bytes);
        struct brim__resizer *resizer = NULL;
        struct collected collected = { .count = 0 };
        assert_int_equal(brim__resize_begin(&resize, memory, bytes, collect, &collected, &resizer),
                         BRIM_OK);
        free(memory);
    }
}

/* A few rows, not the image: that is what streaming is for. */
static void test_memory_does_not_grow_with_the_image(void **state) {
    (void)state;
    struct brim__resize_bounds bounds = { 500, 400, 224, 224, 224, 224, BRIM__BILINEAR, false };
    assert_true(brim__resize_memory(&bounds) < 50000);
    bounds.in_height = 20000;
    assert_true(brim__resize_memory(&bounds) < 400000);
    bounds.vertical_first = true;
    assert_true(brim__resize_memory(&bounds) < 400000);
    bounds.least_height = 1;
    assert_true(brim__resize_memory(&bounds) < 500000);
}

static void test_too_little_memory_is_refused(void **state) {
    (void)state;
    uint32_t seed = 5;
    for (int i = 0; i < 60; i++) {
        const struct brim__resize resize = random_resize(&seed);
        const struct brim__resize_bounds bounds = bounds_of(&resize);
        const uint64_t most = brim__resize_memory(&bounds);
        uint8_t *const pixels = random_pixels(&seed, &resize);
        uint8_t *const expected = model_resize(&resize, pixels);
        uint64_t bytes = 0;
        for (;; bytes += 64) {
            assert_true(bytes <= most);
            uint8_t *const memory = resizer_memory(bytes);
            struct brim__resizer *resizer = NULL;
            struct collected collected = { .count = 0 };
            const brim_status status =
                brim__resize_begin(&resize, memory, bytes, collect, &collected, &resizer);
            free(memory);
            if (status == BRIM_OK) {
                break;
            }
            assert_int_equal(status, BRIM_STATUS_BUDGET);
            assert_non_null(strstr(brim_detail(), "takes up to"));
        }
        /* and the least that is taken is enough */
        uint8_t *const got = run(&resize, bytes, pixels);
        assert_memory_equal(got, expected, (size_t)resize.x.count * resize.y.count * resize.pixel);
        free(pixels);
        free(expected);
        free(got);
    }
}

/* ---------------------------------------------------------------- refusals */

static void test_senseless_axes_are_refused(void **state) {
    (void)state;
    const struct brim__axis axes[] = {
        { .in = 0, .out = 4, .to = 0, .count = 4 },
        { .in = 4, .out = 0, .to = 4, .count = 0 },
        { .in = 65536, .out = 4, .to = 4, .count = 4 },
        { .in = 4, .out = 65536, .to = 4, .count = 4 },
        { .in = 4, .out = 4, .from = -1, .to = 4, .count = 4 },
        { .in = 4, .out = 4, .from = 2, .to = 2, .count = 4 },
        { .in = 4, .out = 4, .from = 3, .to = 2, .count = 4 },
        { .in = 4, .out = 4, .to = 4.5f, .count = 4 },
        { .in = 4, .out = 4, .from = NAN, .to = 4, .count = 4 },
        { .in = 4, .out = 4, .to = NAN, .count = 4 },
        { .in = 4, .out = 4, .to = 4, .count = 0 },
        { .in = 4, .out = 4, .to = 4, .first = 1, .count = 4 },
        { .in = 4, .out = 4, .to = 4, .first = 4, .count = UINT32_MAX },
    };
    uint8_t *const memory = resizer_memory(65536);
    for (size_t i = 0; i < 2 * BRIM__COUNT(axes); i++) {
        struct brim__resize resize = {
            .x = whole_axis(8, 8), .y = whole_axis(8, 8), .filter = BRIM__BILINEAR, .pixel = 4
        };
        *(i % 2 == 0 ? &resize.x : &resize.y) = axes[i / 2];
        struct brim__resizer *resizer = NULL;
        assert_int_equal(brim__resize_begin(&resize, memory, 65536, collect, NULL, &resizer),
                         BRIM_STATUS_INVALID);
        assert_non_null(strstr(brim_detail(), i % 2 == 0 ? "width" : "height"));
    }
    free(memory);
}

/* The sink's failure comes back from the row that met it, in each way of working. */
static void test_a_failing_sink_ends_the_rows(void **state) {
    (void)state;
    static const struct {
        uint32_t in, out;
        enum brim__filter filter;
    } cases[] = {
        { 20, 10, BRIM__BILINEAR },
        { 900, 10, BRIM__BILINEAR },
        { 20, 10, BRIM__NEAREST },
        { 10, 10, BRIM__BOX },
    };
    for (size_t i = 0; i < BRIM__COUNT(cases); i++) {
        const struct brim__resize resize = { .x = whole_axis(6, 3),
                                             .y = whole_axis(cases[i].in, cases[i].out),
                                             .filter = cases[i].filter,
                                             .pixel = 1 };
        const struct brim__resize_bounds bounds = bounds_of(&resize);
        const uint64_t bytes = brim__resize_memory(&bounds);
        uint8_t *const memory = resizer_memory(bytes);
        uint8_t *const pixels = model_memory((size_t)6 * cases[i].in);
        uint8_t rows[30], seen[10] = { 0 };
        struct collected collected = { rows, seen, 3, 10, 4 };
        struct brim__resizer *resizer = NULL;
        assert_int_equal(brim__resize_begin(&resize, memory, bytes, collect, &collected, &resizer),
                         BRIM_OK);
        assert_int_equal(push_rows(&resize, resizer, pixels), BRIM_STATUS_CALLBACK);
        assert_int_equal(seen[3], 1);
        assert_int_equal(seen[5], 0);
        free(memory);
        free(pixels);
    }
}

static void test_more_rows_than_needed_are_refused(void **state) {
    (void)state;
    const struct brim__resize resize = {
        .x = whole_axis(6, 3), .y = whole_axis(6, 3), .filter = BRIM__BOX, .pixel = 1
    };
    const struct brim__resize_bounds bounds = bounds_of(&resize);
    const uint64_t bytes = brim__resize_memory(&bounds);
    uint8_t *const memory = resizer_memory(bytes);
    uint8_t pixels[36] = { 0 }, rows[9], seen[3] = { 0 };
    struct collected collected = { rows, seen, 3, 3, UINT32_MAX };
    struct brim__resizer *resizer = NULL;
    assert_int_equal(brim__resize_begin(&resize, memory, bytes, collect, &collected, &resizer),
                     BRIM_OK);
    assert_int_equal(push_rows(&resize, resizer, pixels), BRIM_OK);
    assert_int_equal(brim__resize_row(resizer, pixels), BRIM_STATUS_INVALID);
    assert_int_equal(seen[0] + seen[1] + seen[2], 3);
    free(memory);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_request_equals_the_model),
        cmocka_unit_test(test_extreme_ratios_equal_the_model),
        cmocka_unit_test(test_results_are_pillows),
        cmocka_unit_test(test_which_images_go_vertically_first),
        cmocka_unit_test(test_memory_is_a_bound_for_all_inside),
        cmocka_unit_test(test_memory_does_not_grow_with_the_image),
        cmocka_unit_test(test_too_little_memory_is_refused),
        cmocka_unit_test(test_senseless_axes_are_refused),
        cmocka_unit_test(test_a_failing_sink_ends_the_rows),
        cmocka_unit_test(test_more_rows_than_needed_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

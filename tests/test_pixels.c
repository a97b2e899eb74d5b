/*
 * test_pixels.c: operations on pixels: values worked out by hand or taken from Pillow 13,
 * and a digest of each over one image of random colours. Equality with Pillow on whole
 * images is for the tests of pipelines; this is what must hold without it.
 *
 * Every image has rows that are longer than its pixels, and what lies between them must
 * come through untouched.
 */
#include "image/pixels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdlib.h>

#define SLACK  5 /* bytes behind each row */
#define MARK   0xa5
#define DIGEST UINT64_C(0xc03caf85e2abcaa8) /* of test_bits_stay */
#define OPAQUE 77                           /* of the fourth bytes, which stay as they are */

static struct brim__image make(uint32_t width, uint32_t height, uint32_t pixel) {
    struct brim__image image = { .width = width, .height = height, .pixel = pixel };
    image.stride = (size_t)width * pixel + SLACK;
    image.data = test_malloc(image.stride * height);
    memset(image.data, MARK, image.stride * height);
    return image;
}

/* An image of the bytes given; 3 for a pixel of 4. */
static struct brim__image from_bytes(uint32_t width, uint32_t height, uint32_t pixel,
                                     const uint8_t *bytes) {
    const struct brim__image image = make(width, height, pixel);
    for (uint32_t y = 0; y < height; y++) {
        for (uint32_t i = 0; i < width * pixel; i++) {
            brim__image_row(&image, y)[i] = i % 4 == 3 && pixel == 4 ? OPAQUE : *bytes++;
        }
    }
    return image;
}

static struct brim__image noise(uint32_t width, uint32_t height, uint32_t pixel) {
    const struct brim__image image = make(width, height, pixel);
    uint32_t random = 99;
    for (uint32_t y = 0; y < height; y++) {
        for (uint32_t i = 0; i < width * pixel; i++) {
            random = random * 1664525 + 1013904223;
            brim__image_row(&image, y)[i] =
                i % 4 == 3 && pixel == 4 ? OPAQUE : (uint8_t)(random >> 24);
        }
    }
    return image;
}

/* Frees it, having looked at what lies between the rows. */
static void drop(struct brim__image image) {
    for (uint32_t y = 0; y < image.height; y++) {
        for (uint32_t i = 0; i < SLACK; i++) {
            assert_int_equal(brim__image_row(&image, y)[image.width * image.pixel + i], MARK);
        }
    }
    test_free(image.data);
}

static uint64_t digest(const struct brim__image *image) {
    uint64_t hash = 0;
    for (uint32_t y = 0; y < image->height; y++) {
        hash = brim__hash(brim__image_row(image, y), (size_t)image->width * image->pixel, hash);
    }
    return hash;
}

static void assert_bytes(const struct brim__image *image, const uint8_t *bytes) {
    for (uint32_t y = 0; y < image->height; y++) {
        for (uint32_t i = 0; i < image->width * image->pixel; i++) {
            const int want = i % 4 == 3 && image->pixel == 4 ? OPAQUE : *bytes++;
            if (brim__image_row(image, y)[i] != want) {
                fail_msg("row %u, byte %u is %d, not %d", y, i, brim__image_row(image, y)[i], want);
            }
        }
    }
}

/* ------------------------------------------------------------------ colours */

static const uint8_t colors[] = { 10,  200, 30,  255, 0,   0,   7, 7, 7,
                                  128, 64,  250, 90,  180, 179, 1, 2, 3 };

/* Each operation on the six colours above; the values are Pillow's. */
static void brightness(const struct brim__image *image) {
    brim__image_brightness(image, 0.7);
}
static void more_brightness(const struct brim__image *image) {
    brim__image_brightness(image, 1.9);
}
static void contrast(const struct brim__image *image) {
    brim__image_contrast(image, 0.35);
}
static void more_contrast(const struct brim__image *image) {
    brim__image_contrast(image, 1.6);
}
static void saturation(const struct brim__image *image) {
    brim__image_saturation(image, 0.4);
}
static void more_saturation(const struct brim__image *image) {
    brim__image_saturation(image, 2.2);
}
static void hue(const struct brim__image *image) {
    brim__image_hue(image, 0.2);
}
static void hue_back(const struct brim__image *image) {
    brim__image_hue(image, -0.5);
}
static void hue_unturned(const struct brim__image *image) {
    brim__image_hue(image, 0);
}
static void gray(const struct brim__image *image) {
    brim__image_gray(image);
}
static void posterize(const struct brim__image *image) {
    brim__image_posterize(image, 3);
}
static void solarize(const struct brim__image *image) {
    brim__image_solarize(image, 128);
}
static void autocontrast(const struct brim__image *image) {
    brim__image_autocontrast(image);
}

static void test_colors_are_those_of_pillow(void **state) {
    (void)state;
    static const struct {
        void (*change)(const struct brim__image *);
        uint8_t want[sizeof colors];
    } cases[] = {
        { brightness, { 7, 140, 21, 178, 0, 0, 4, 4, 4, 89, 44, 175, 63, 126, 125, 0, 1, 2 } },
        { more_brightness,
          { 19, 255, 57, 255, 0, 0, 13, 13, 13, 243, 121, 255, 171, 255, 255, 1, 3, 5 } },
        { contrast,
          { 54, 120, 61, 139, 50, 50, 53, 53, 53, 95, 73, 138, 82, 113, 113, 51, 51, 51 } },
        { more_contrast, { 0, 255, 1, 255, 0, 0, 0, 0, 0, 158, 55, 255, 97, 241, 239, 0, 0, 0 } },
        { saturation, { 78, 154, 86, 147, 45, 45, 7, 7, 7, 113, 88, 162, 127, 163, 163, 1, 2, 2 } },
        { more_saturation, { 0, 255, 0, 255, 0, 0, 7, 7, 7, 156, 16, 255, 14, 212, 210, 0, 2, 4 } },
        { hue, { 10, 144, 200, 204, 255, 0, 7, 7, 7, 250, 65, 152, 107, 90, 180, 2, 1, 3 } },
        { hue_back, { 200, 10, 175, 0, 246, 255, 7, 7, 7, 187, 250, 65, 180, 90, 90, 3, 2, 1 } },
        { hue_unturned, { 10, 200, 28, 255, 0, 0, 7, 7, 7, 126, 65, 250, 90, 180, 179, 1, 2, 3 } },
        { gray, { 124, 124, 124, 76, 76, 76, 7, 7, 7, 104, 104, 104, 153, 153, 153, 2, 2, 2 } },
        { posterize, { 0, 192, 0, 224, 0, 0, 0, 0, 0, 128, 64, 224, 64, 160, 160, 0, 0, 0 } },
        { solarize, { 10, 55, 30, 0, 0, 0, 7, 7, 7, 127, 64, 5, 90, 75, 76, 1, 2, 3 } },
        { autocontrast, { 9, 254, 30, 255, 0, 0, 6, 8, 7, 127, 81, 255, 89, 229, 182, 0, 2, 3 } },
    };
    for (size_t i = 0; i < BRIM__COUNT(cases); i++) {
        const struct brim__image image = from_bytes(3, 2, 4, colors);
        cases[i].change(&image);
        assert_bytes(&image, cases[i].want);
        drop(image);
    }
}

static void test_gray_images_take_part(void **state) {
    (void)state;
    static const uint8_t bytes[] = { 0, 50, 100, 150, 200, 255 };
    struct brim__image image = from_bytes(6, 1, 1, bytes);
    brim__image_brightness(&image, 1.5);
    static const uint8_t bright[] = { 0, 75, 150, 225, 255, 255 };
    assert_bytes(&image, bright);
    drop(image);
    image = from_bytes(6, 1, 1, bytes);
    brim__image_contrast(&image, 0.5); /* the mean is 125.8, rounded to 126 */
    static const uint8_t contrast[] = { 63, 88, 113, 138, 163, 190 };
    assert_bytes(&image, contrast);
    brim__image_saturation(&image, 3);
    brim__image_hue(&image, 0.3);
    brim__image_gray(&image);
    assert_bytes(&image, contrast);
    drop(image);
}

static void test_factor_one_changes_nothing(void **state) {
    (void)state;
    const struct brim__image image = noise(37, 11, 4), to = make(37, 11, 4);
    const uint64_t before = digest(&image);
    brim__image_brightness(&image, 1);
    brim__image_contrast(&image, 1);
    brim__image_saturation(&image, 1);
    brim__image_add(&image, 0);
    brim__image_posterize(&image, 8);
    brim__image_solarize(&image, 256);
    brim__image_sharpness(&image, &to, 1);
    assert_int_equal(digest(&image), before);
    assert_int_equal(digest(&to), before);
    drop(image);
    drop(to);
}

static void test_add(void **state) {
    (void)state;
    static const uint8_t bytes[] = { 0, 1, 100, 200, 254, 255 };
    struct brim__image image = from_bytes(6, 1, 1, bytes);
    brim__image_add(&image, 0.1);
    /* (v / 255 + 0.1) * 255.5 */
    static const uint8_t more[] = { 25, 26, 125, 225, 255, 255 };
    assert_bytes(&image, more);
    brim__image_add(&image, -1);
    static const uint8_t none[] = { 0, 0, 0, 0, 0, 0 };
    assert_bytes(&image, none);
    drop(image);
}

static void test_sharpness(void **state) {
    (void)state;
    /* one bright pixel in the middle: smoothed to 5/13 of it, its neighbours to 1/13 */
    struct brim__image from = make(5, 5, 1), to = make(5, 5, 1);
    brim__image_fill(&from, 0, 0, 5, 5, (const uint8_t[4]){ 0 });
    brim__image_fill(&from, 2, 2, 1, 1, (const uint8_t[4]){ 130 });
    brim__image_sharpness(&from, &to, 0);
    for (uint32_t y = 0; y < 5; y++) {
        for (uint32_t x = 0; x < 5; x++) {
            const bool border = x == 0 || y == 0 || x == 4 || y == 4;
            const int want = border ? 0 : x == 2 && y == 2 ? 50 : 10;
            assert_int_equal(brim__image_row(&to, y)[x], want);
        }
    }
    brim__image_sharpness(&from, &to, 2); /* as much beyond the image as it is before */
    assert_int_equal(brim__image_row(&to, 2)[2], 210);
    assert_int_equal(brim__image_row(&to, 2)[1], 0);
    drop(from);
    drop(to);
    from = noise(2, 9, 4), to = make(2, 9, 4); /* nothing but border */
    brim__image_sharpness(&from, &to, 0);
    assert_int_equal(digest(&from), digest(&to));
    drop(from);
    drop(to);
}

static void test_equalize_and_autocontrast(void **state) {
    (void)state;
    /* 1024 pixels, 128 of each of eight values */
    struct brim__image image = make(32, 32, 1);
    for (uint32_t i = 0; i < 1024; i++) {
        brim__image_row(&image, i / 32)[i % 32] = (uint8_t)(100 + i % 8);
    }
    brim__image_equalize(&image);
    /* step = (1024 - 128) / 255 = 3; (3 / 2 + 128 i) / 3, at most 255 */
    for (uint32_t i = 0; i < 1024; i++) {
        const uint32_t want = (1 + 128 * (i % 8)) / 3;
        assert_int_equal(brim__image_row(&image, i / 32)[i % 32], want > 255 ? 255 : want);
    }
    drop(image);
    static const uint8_t narrow[] = { 100, 101, 110, 120 };
    image = from_bytes(4, 1, 1, narrow);
    brim__image_autocontrast(&image);
    static const uint8_t wide[] = { 0, 12, 127, 255 };
    assert_bytes(&image, wide);
    brim__image_equalize(&image); /* too few pixels to say anything: stays */
    assert_bytes(&image, wide);
    brim__image_fill(&image, 0, 0, 4, 1, (const uint8_t[4]){ 9 });
    brim__image_autocontrast(&image);
    static const uint8_t flat[] = { 9, 9, 9, 9 };
    assert_bytes(&image, flat);
    drop(image);
}

static void test_to_gray_is_gray(void **state) {
    (void)state;
    const struct brim__image image = noise(19, 7, 4), to = make(19, 7, 1);
    brim__image_to_gray(&image, &to);
    brim__image_gray(&image);
    for (uint32_t y = 0; y < 7; y++) {
        for (uint32_t x = 0; x < 19; x++) {
            const uint8_t *pixel = brim__image_row(&image, y) + x * 4;
            assert_int_equal(brim__image_row(&to, y)[x], pixel[0]);
            assert_true(pixel[0] == pixel[1] && pixel[1] == pixel[2] && pixel[3] == OPAQUE);
        }
    }
    drop(image);
    drop(to);
}

static void test_alpha(void **state) {
    (void)state;
    const struct brim__image image = make(3, 1, 4);
    static const uint8_t pixels[] = { 200, 100, 50, 128, 9, 8, 7, 0, 1, 2, 3, 255 };
    memcpy(image.data, pixels, sizeof pixels);
    brim__image_premultiply(&image);
    static const uint8_t weighted[] = { 100, 50, 25, 128, 0, 0, 0, 0, 1, 2, 3, 255 };
    assert_memory_equal(image.data, weighted, sizeof weighted);
    brim__image_unpremultiply(&image);
    static const uint8_t back[] = { 199, 99, 49, 128, 0, 0, 0, 0, 1, 2, 3, 255 };
    assert_memory_equal(image.data, back, sizeof back);
    drop(image);
}

/* ------------------------------------------------------------------ movement */

/* The pixel at (x, y) of an image whose bytes tell their place. */
static struct brim__image places(uint32_t width, uint32_t height, uint32_t pixel) {
    const struct brim__image image = make(width, height, pixel);
    for (uint32_t y = 0; y < height; y++) {
        for (uint32_t x = 0; x < width; x++) {
            const uint8_t bytes[4] = { (uint8_t)(x + 16 * y), (uint8_t)x, (uint8_t)y, OPAQUE };
            memcpy(brim__image_row(&image, y) + x * pixel, bytes, pixel);
        }
    }
    return image;
}

static uint8_t place_at(const struct brim__image *image, uint32_t x, uint32_t y) {
    const uint8_t *pixel = brim__image_row(image, y) + x * image->pixel;
    if (image->pixel == 4) {
        assert_int_equal(pixel[3], OPAQUE);
        assert_int_equal(pixel[0], pixel[1] + 16 * pixel[2]);
    }
    return pixel[0];
}

static void test_orientations(void **state) {
    (void)state;
    for (uint32_t pixel = 1; pixel <= 4; pixel += 3) {
        for (uint8_t orientation = 1; orientation <= 8; orientation++) {
            const uint32_t w = 5, h = 3;
            const bool turned = orientation >= 5;
            const struct brim__image from = places(w, h, pixel);
            const struct brim__image to = make(turned ? h : w, turned ? w : h, pixel);
            brim__image_orient(&from, &to, orientation);
            for (uint32_t y = 0; y < h; y++) {
                for (uint32_t x = 0; x < w; x++) {
                    /* where EXIF says that the stored row and column are to be seen */
                    const uint32_t right = w - 1 - x, bottom = h - 1 - y;
                    const uint32_t at[9][2] = {
                        { 0, 0 },          { x, y },          { right, y },
                        { right, bottom }, { x, bottom },     { y, x },
                        { bottom, x },     { bottom, right }, { y, right }
                    };
                    assert_int_equal(place_at(&to, at[orientation][0], at[orientation][1]),
                                     x + 16 * y);
                }
            }
            drop(from);
            drop(to);
        }
    }
}

static void test_orientation_of_large_images(void **state) {
    (void)state;
    const struct brim__image from = noise(53, 41, 4), to = make(41, 53, 4), back = make(53, 41, 4);
    brim__image_orient(&from, &to, 6);
    brim__image_orient(&to, &back, 8);
    assert_int_equal(digest(&back), digest(&from));
    drop(from);
    drop(to);
    drop(back);
}

static void test_flips(void **state) {
    (void)state;
    for (uint32_t pixel = 1; pixel <= 4; pixel += 3) {
        for (uint32_t side = 1; side <= 6; side++) {
            const struct brim__image x_flipped = places(side, 3, pixel);
            const struct brim__image y_flipped = places(3, side, pixel);
            brim__image_flip_x(&x_flipped);
            brim__image_flip_y(&y_flipped);
            for (uint32_t i = 0; i < side; i++) {
                assert_int_equal(place_at(&x_flipped, i, 2), side - 1 - i + 32);
                assert_int_equal(place_at(&y_flipped, 1, i), 1 + 16 * (side - 1 - i));
            }
            drop(x_flipped);
            drop(y_flipped);
        }
    }
}

static void test_pad(void **state) {
    (void)state;
    /* a row of 0 1 2 with four more on the left and five more on the right */
    static const uint8_t want[4][12] = {
        { 99, 99, 99, 99, 0, 1, 2, 99, 99, 99, 99, 99 },
        { 0, 0, 0, 0, 0, 1, 2, 2, 2, 2, 2, 2 },
        { 0, 1, 2, 1, 0, 1, 2, 1, 0, 1, 2, 1 },
        { 2, 2, 1, 0, 0, 1, 2, 2, 1, 0, 0, 1 },
    };
    static const uint8_t color[4] = { 99, 3, 6, OPAQUE }; /* 3 + 16 * 6 */
    for (uint32_t pixel = 1; pixel <= 4; pixel += 3) {
        for (int edge = 0; edge < 4; edge++) {
            const struct brim__image from = places(3, 1, pixel), to = make(12, 4, pixel);
            brim__image_pad(&from, &to, 4, 2, (enum brim__edge)edge, color);
            for (uint32_t y = 0; y < 4; y++) {
                for (uint32_t x = 0; x < 12; x++) {
                    const bool outside = edge == BRIM__EDGE_CONSTANT && y != 2;
                    assert_int_equal(place_at(&to, x, y), outside ? 99 : want[edge][x]);
                }
            }
            drop(from);
            drop(to);
        }
    }
}

static void test_fill(void **state) {
    (void)state;
    const struct brim__image image = places(6, 5, 4);
    brim__image_fill(&image, 2, 1, 3, 2, (const uint8_t[4]){ 37, 5, 2, OPAQUE });
    for (uint32_t y = 0; y < 5; y++) {
        for (uint32_t x = 0; x < 6; x++) {
            const bool inside = x >= 2 && x < 5 && y >= 1 && y < 3;
            assert_int_equal(place_at(&image, x, y), inside ? 37 : x + 16 * y);
        }
    }
    brim__image_fill(&image, 6, 5, 0, 0, (const uint8_t[4]){ 0 }); /* nothing, at the end */
    drop(image);
}

/* -------------------------------------------------------------------- affine */

static void test_affine_moves(void **state) {
    (void)state;
    static const uint8_t fill[4] = { 119, 7, 7, OPAQUE };
    static const double moves[][6] = { { 1, 0, -2, 0, 1, 1 }, { 1, 0, -2, 1e-9, 1, 1 } };
    for (size_t m = 0; m < 2; m++) { /* summed in double, in fixed point */
        for (int bilinear = 0; bilinear < 2; bilinear++) {
            const struct brim__image from = places(6, 5, 4), to = make(7, 4, 4);
            brim__image_affine(&from, &to, moves[m], bilinear != 0, fill);
            for (uint32_t y = 0; y < 4; y++) {
                for (uint32_t x = 0; x < 7; x++) {
                    assert_int_equal(place_at(&to, x, y), x < 2 ? 119 : x - 2 + 16 * (y + 1));
                }
            }
            drop(from);
            drop(to);
        }
    }
}

/* Positions from 1.0 to 6.0 in an image of 6: the last one is outside. */
static void test_the_edge_is_outside(void **state) {
    (void)state;
    static const uint8_t fill[4] = { 119, 7, 7, OPAQUE };
    static const double moves[][6] = { { 1, 0, 0.5, 0, 1, 0.5 }, { 1, 1e-9, 0.5, 0, 1, 0.5 } };
    for (size_t m = 0; m < 2; m++) {
        const struct brim__image from = places(6, 6, 4), to = make(6, 6, 4);
        brim__image_affine(&from, &to, moves[m], false, fill);
        for (uint32_t y = 0; y < 6; y++) {
            for (uint32_t x = 0; x < 6; x++) {
                const bool outside = x == 5 || y == 5;
                assert_int_equal(place_at(&to, x, y), outside ? 119 : x + 1 + 16 * (y + 1));
            }
        }
        brim__image_affine(&from, &to, moves[0], true, fill);
        for (uint32_t i = 0; i < 6; i++) {
            assert_int_equal(place_at(&to, 5, i), 119);
            assert_int_equal(place_at(&to, i, 5), 119);
        }
        drop(from);
        drop(to);
    }
}

static void test_bilinear_between_pixels(void **state) {
    (void)state;
    static const uint8_t bytes[] = { 0, 100, 200, 50 };
    const struct brim__image from = from_bytes(2, 2, 1, bytes), to = make(4, 4, 1);
    /* twice the size: positions a quarter of a pixel apart from the centres */
    brim__image_affine(&from, &to, (const double[6]){ 0.5, 0, 0, 0, 0.5, 0 }, true,
                       (const uint8_t[4]){ 0 });
    static const uint8_t want[] = { 0,   25,  75, 100, 50,  59,  78, 87,
                                    150, 128, 84, 62,  200, 162, 87, 50 };
    assert_bytes(&to, want);
    drop(from);
    drop(to);
}

static void test_hostile_matrices(void **state) {
    (void)state;
    const double nan = __builtin_nan(""), inf = __builtin_inf();
    const double values[] = { 0, 1, -1e300, 1e300, nan, inf, -inf, 32767.5, 1e-320 };
    const struct brim__image from = noise(5, 4, 4), to = make(6, 3, 4);
    uint32_t random = 5;
    for (int i = 0; i < 20000; i++) {
        double m[6];
        for (int k = 0; k < 6; k++) {
            random = random * 1664525 + 1013904223;
            m[k] = values[(random >> 24) % BRIM__COUNT(values)];
        }
        brim__image_affine(&from, &to, m, i % 2 == 0, (const uint8_t[4]){ 0 });
    }
    drop(from);
    drop(to);
}

static void test_rotation(void **state) {
    (void)state;
    double m[6];
    for (int turns = -4; turns <= 4; turns++) { /* right angles are right */
        const struct brim__image from = places(6, 6, 4), to = make(6, 6, 4), want = make(6, 6, 4);
        static const uint8_t orientation[4] = { 1, 8, 3, 6 };
        brim__image_rotation(6, 6, 90 * turns, m);
        brim__image_affine(&from, &to, m, turns % 2 != 0, (const uint8_t[4]){ 0 });
        brim__image_orient(&from, &want, orientation[(turns + 4) % 4]);
        assert_int_equal(digest(&to), digest(&want));
        drop(from);
        drop(to);
        drop(want);
    }
    brim__image_rotation(100, 60, 45, m); /* Python's numbers; they are on two sides of a half */
    assert_true(m[0] == 0.707106781186548 && m[1] == -0.707106781186547);
    assert_true(m[3] == 0.707106781186547 && m[4] == 0.707106781186548);
    assert_true(m[2] > 35.857864 && m[2] < 35.857865 && m[5] < -26.568542 && m[5] > -26.568543);
}

/* ---------------------------------------------------------------------- blur */

/* The blur by its definition, one sum over the whole kernel. */
static double plain_blur(const struct brim__image *image, uint32_t x, uint32_t y, uint32_t c,
                         int size, double sigma) {
    double sum = 0, weights = 0;
    for (int dy = -size / 2; dy <= size / 2; dy++) {
        for (int dx = -size / 2; dx <= size / 2; dx++) {
            int at_x = (int)x + dx, at_y = (int)y + dy;
            while (at_x < 0 || at_x >= (int)image->width) {
                at_x = at_x < 0 ? -at_x : 2 * (int)image->width - 2 - at_x;
            }
            while (at_y < 0 || at_y >= (int)image->height) {
                at_y = at_y < 0 ? -at_y : 2 * (int)image->height - 2 - at_y;
            }
            const double weight = __builtin_exp(-0.5 * (dx * dx + dy * dy) / (sigma * sigma));
            weights += weight;
            sum +=
                weight * brim__image_row(image, (uint32_t)at_y)[(uint32_t)at_x * image->pixel + c];
        }
    }
    return sum / weights;
}

static void blur(const struct brim__image *image, uint32_t size, double sigma) {
    const uint64_t bytes = brim__image_blur_bytes(image->width, image->height, image->pixel);
    uint8_t *scratch = test_malloc(bytes);
    brim__image_blur(image, size, sigma, scratch);
    test_free(scratch);
}

static void test_blur_is_the_definition(void **state) {
    (void)state;
    static const struct {
        uint32_t width, height, pixel, size;
        double sigma;
    } cases[] = { { 13, 9, 4, 5, 1.3 },  { 9, 17, 1, 23, 4.0 }, { 40, 33, 4, 63, 25.0 },
                  { 5, 4, 4, 63, 1e3 },  { 8, 8, 1, 3, 0.001 }, { 3, 30, 4, 9, 2.0 },
                  { 12, 12, 4, 1, 2.0 }, { 2, 2, 1, 7, 1.0 } };
    for (size_t i = 0; i < BRIM__COUNT(cases); i++) {
        const struct brim__image from = noise(cases[i].width, cases[i].height, cases[i].pixel);
        const struct brim__image image = make(from.width, from.height, from.pixel);
        brim__image_copy(&from, &image);
        blur(&image, cases[i].size, cases[i].sigma);
        for (uint32_t y = 0; y < from.height; y++) {
            for (uint32_t b = 0; b < from.width * from.pixel; b++) {
                const double want = plain_blur(&from, b / from.pixel, y, b % from.pixel,
                                               (int)cases[i].size, cases[i].sigma);
                const double apart = brim__image_row(&image, y)[b] - want;
                if (apart > 0.85 || apart < -0.85) { /* half for rounding, the rest our own */
                    fail_msg("case %zu, row %u, byte %u: %d, not %.3f", i, y, b,
                             brim__image_row(&image, y)[b], want);
                }
            }
        }
        drop(from);
        drop(image);
    }
}

static void test_blur_keeps_what_is_even(void **state) {
    (void)state;
    for (uint32_t value = 0; value <= 255; value += 5) {
        for (uint32_t size = 1; size <= BRIM__BLUR_MOST; size += 2) {
            const struct brim__image image = make(4, 3, 4);
            brim__image_fill(&image, 0, 0, 4, 3, (const uint8_t[4]){ (uint8_t)value, 255, 0, 255 });
            const uint64_t before = digest(&image);
            blur(&image, size, size * 0.4);
            assert_int_equal(digest(&image), before);
            drop(image);
        }
    }
    const struct brim__image one = make(1, 1, 1);
    one.data[0] = 201;
    blur(&one, 63, 10);
    assert_int_equal(one.data[0], 201);
    drop(one);
}

/* Samples depend on these. */
static void test_bits_stay(void **state) {
    (void)state;
    struct brim__image image = noise(61, 47, 4);
    const struct brim__image to = make(61, 47, 4);
    uint64_t all = 0;
    double m[6];
    brim__image_brightness(&image, 0.83);
    brim__image_contrast(&image, 1.31);
    brim__image_saturation(&image, 0.57);
    brim__image_hue(&image, -0.07);
    all = brim__hash_words(all, digest(&image), 0);
    brim__image_sharpness(&image, &to, 1.7);
    all = brim__hash_words(all, digest(&to), 0);
    brim__image_rotation(61, 47, 17.3, m);
    brim__image_affine(&image, &to, m, true, (const uint8_t[4]){ 1, 2, 3, 4 });
    all = brim__hash_words(all, digest(&to), 0);
    brim__image_affine(&image, &to, m, false, (const uint8_t[4]){ 1, 2, 3, 4 });
    all = brim__hash_words(all, digest(&to), 0);
    brim__image_equalize(&image);
    blur(&image, 11, 1.7);
    all = brim__hash_words(all, digest(&image), 0);
    if (all != DIGEST) {
        fail_msg("the digest is 0x%016llx", (unsigned long long)all);
    }
    drop(image);
    drop(to);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_colors_are_those_of_pillow),
        cmocka_unit_test(test_gray_images_take_part),
        cmocka_unit_test(test_factor_one_changes_nothing),
        cmocka_unit_test(test_add),
        cmocka_unit_test(test_sharpness),
        cmocka_unit_test(test_equalize_and_autocontrast),
        cmocka_unit_test(test_to_gray_is_gray),
        cmocka_unit_test(test_alpha),
        cmocka_unit_test(test_orientations),
        cmocka_unit_test(test_orientation_of_large_images),
        cmocka_unit_test(test_flips),
        cmocka_unit_test(test_pad),
        cmocka_unit_test(test_fill),
        cmocka_unit_test(test_affine_moves),
        cmocka_unit_test(test_the_edge_is_outside),
        cmocka_unit_test(test_bilinear_between_pixels),
        cmocka_unit_test(test_hostile_matrices),
        cmocka_unit_test(test_rotation),
        cmocka_unit_test(test_blur_is_the_definition),
        cmocka_unit_test(test_blur_keeps_what_is_even),
        cmocka_unit_test(test_bits_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

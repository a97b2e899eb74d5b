/*
 * test_jpeg_rough.c: JPEG files at a quarter and an eighth from their lowest coefficients.
 */
#include "jpeg_util.h"

#include <unistd.h>

struct kept {
    uint8_t *data;
    size_t row_bytes;
};

static brim_status keep(void *user, const uint8_t *row, uint32_t y) {
    const struct kept *kept = user;
    memcpy(kept->data + y * kept->row_bytes, row, kept->row_bytes);
    return BRIM_OK;
}

/* All of it or a region; the rows end up in `to`. */
static brim_status decode_from(struct brim__input *input, uint32_t scale, bool rough,
                               enum brim__color color, const uint32_t region[4], uint8_t *to) {
    struct brim__image_info info;
    brim_status status = brim__image_info(input, false, &info);
    if (status != BRIM_OK) {
        return status;
    }
    struct brim__decoding decoding = whole_of(input, &info);
    decoding.color = color;
    decoding.scale = scale;
    decoding.cheap = decoding.rough = true;
    decoding.damaged = !rough; /* then libjpeg does it */
    decoding.width = (uint32_t)brim__divide_up(info.width, scale);
    decoding.height = (uint32_t)brim__divide_up(info.height, scale);
    if (region != NULL) {
        decoding.x = region[0];
        decoding.y = region[1];
        decoding.width = region[2];
        decoding.height = region[3];
    }
    give_memory(&decoding);
    struct kept kept = { to, decoding.width * (size_t)brim__color_pixel(color) };
    return brim__jpeg_decode(&decoding, keep, &kept);
}

static brim_status decode(const struct bytes *file, uint32_t scale, bool rough,
                          enum brim__color color, const uint32_t region[4], uint8_t *to) {
    struct brim__input input;
    brim__input_memory(&input, file->data, file->count);
    return decode_from(&input, scale, rough, color, region, to);
}

static const struct spec specs[] = {
    { .width = 201, .height = 133, .components = 1 },
    { .width = 201, .height = 133, .components = 1, .restart = 4, .optimized = true },
    { .width = 201, .height = 133, .components = 3 },
    { .width = 97, .height = 301, .components = 3, .h = { 2, 1, 1 }, .v = { 2, 1, 1 } },
    { .width = 97,
      .height = 300,
      .components = 3,
      .h = { 2, 1, 1 },
      .v = { 1, 1, 1 },
      .restart = 3 },
    { .width = 80,
      .height = 64,
      .components = 3,
      .h = { 1, 1, 1 },
      .v = { 2, 1, 1 },
      .optimized = true },
    { .width = 1, .height = 1, .components = 3, .h = { 2, 1, 1 }, .v = { 2, 1, 1 } },
};
#define SPECS (sizeof specs / sizeof specs[0])

static uint8_t first[1 << 20], second[1 << 20];

/* At an eighth luminance is libjpeg's; with full chroma so are the colours. */
static void same_as_libjpeg(void **state) {
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct bytes file = make_jpeg(&specs[i], i + 1);
        const size_t pixel = specs[i].components == 1 ? 1 : 4;
        const enum brim__color color = specs[i].components == 1 ? BRIM__GRAY : BRIM__RGB;
        assert_int_equal(decode(&file, 8, true, color, NULL, first), BRIM_OK);
        assert_int_equal(decode(&file, 8, false, color, NULL, second), BRIM_OK);
        assert_memory_equal(first, second, pixel * 26 * 17);
        free(file.data);
    }
}

/* Otherwise the picture is nearly the same. */
static void close_to_libjpeg(void **state) {
    (void)state;
    for (size_t i = 0; i < SPECS - 1; i++) {
        for (uint32_t scale = 4; scale <= 8; scale *= 2) {
            struct bytes file = make_jpeg(&specs[i], i + 1);
            const size_t bytes = 4 * brim__divide_up(specs[i].width, scale) *
                                 brim__divide_up(specs[i].height, scale);
            double error = 0;
            assert_int_equal(decode(&file, scale, true, BRIM__RGB, NULL, first), BRIM_OK);
            assert_int_equal(decode(&file, scale, false, BRIM__RGB, NULL, second), BRIM_OK);
            for (size_t k = 0; k < bytes; k++) {
                error += (first[k] - second[k]) * (double)(first[k] - second[k]);
            }
            /* the test's pictures wrap around at 256, which is harder than any photograph */
            if (error / (double)bytes > 900) {
                fail_msg("file %zu at 1/%u: mean error %.1f", i, scale, error / (double)bytes);
            }
            free(file.data);
        }
    }
}

/* Any region is that part of all; read through a window or from memory, in colour or gray. */
static void regions(void **state) {
    (void)state;
    uint64_t random = 5;
    for (size_t i = 0; i < SPECS; i++) {
        struct bytes file = make_jpeg(&specs[i], i + 1);
        char name[] = "/tmp/brim-rough-XXXXXX";
        const int fd = mkstemp(name);
        assert_true(fd >= 0);
        assert_int_equal(write(fd, file.data, file.count), file.count);
        close(fd);
        for (unsigned round = 0; round < 40; round++) {
            const uint32_t scale = round % 2 == 0 ? 8 : 4;
            const enum brim__color color = round % 4 < 2 ? BRIM__RGB : BRIM__GRAY;
            const size_t pixel = brim__color_pixel(color);
            const uint32_t width = (uint32_t)brim__divide_up(specs[i].width, scale);
            const uint32_t height = (uint32_t)brim__divide_up(specs[i].height, scale);
            uint32_t region[4];
            region[0] = (uint32_t)(next_random(&random) % width);
            region[1] = (uint32_t)(next_random(&random) % height);
            region[2] = 1 + (uint32_t)(next_random(&random) % (width - region[0]));
            region[3] = 1 + (uint32_t)(next_random(&random) % (height - region[1]));
            struct brim__file opened;
            static uint8_t window[BRIM__INPUT_WINDOW];
            struct brim__input input;
            assert_int_equal(brim__file_open(&opened, name), BRIM_OK);
            brim__input_file(&input, &opened, 0, opened.bytes, window);
            assert_int_equal(decode(&file, scale, true, color, NULL, first), BRIM_OK);
            assert_int_equal(decode_from(&input, scale, true, color, region, second), BRIM_OK);
            brim__file_close(&opened);
            for (uint32_t y = 0; y < region[3]; y++) {
                assert_memory_equal(first + ((region[1] + y) * (size_t)width + region[0]) * pixel,
                                    second + y * (size_t)region[2] * pixel, region[2] * pixel);
            }
        }
        unlink(name);
        free(file.data);
    }
}

/* Cut anywhere, or with bytes changed: pixels or an error, nothing else. */
static void damage(void **state) {
    (void)state;
    uint64_t random = 9;
    for (size_t i = 0; i < SPECS; i++) {
        struct bytes file = make_jpeg(&specs[i], i + 1);
        uint8_t *copy = malloc(file.count); /* to the byte: sanitizers look */
        assert_non_null(copy);
        for (size_t cut = 0; cut < file.count - 2; cut += 1 + cut / 50) {
            uint8_t *less = malloc(cut + 1);
            memcpy(less, file.data, cut);
            const struct bytes part = { less, cut };
            const brim_status status = decode(&part, 8, true, BRIM__RGB, NULL, first);
            assert_true(status == BRIM_STATUS_CORRUPT ||
                        (status == BRIM_OK && cut > file.count / 2));
            free(less);
        }
        for (unsigned round = 0; round < 300; round++) {
            memcpy(copy, file.data, file.count);
            for (unsigned k = 0; k < 1 + round % 4; k++) {
                copy[next_random(&random) % file.count] = (uint8_t)next_random(&random);
            }
            const struct bytes changed = { copy, file.count };
            struct brim__input input;
            struct brim__image_info info;
            brim__input_memory(&input, changed.data, changed.count);
            if (brim__image_info(&input, false, &info) == BRIM_OK && info.width <= 1024 &&
                info.height <= 1024) {
                const brim_status status =
                    decode(&changed, round % 2 == 0 ? 8 : 4, true, BRIM__RGB, NULL, first);
                assert_true(status == BRIM_OK || status == BRIM_STATUS_CORRUPT);
            }
        }
        free(copy);
        free(file.data);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_as_libjpeg),
        cmocka_unit_test(close_to_libjpeg),
        cmocka_unit_test(regions),
        cmocka_unit_test(damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

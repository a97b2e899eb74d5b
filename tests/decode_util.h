/*
 * decode_util.h: decoding encoded bytes to an array, for the tests of decoders.
 *
 * Input and the decoder's memory are allocated to the byte, so that the address
 * sanitizer sees every step outside. Decoding is done twice, from memory and from
 * a file through a window, and must agree.
 */
#ifndef BRIM_TESTS_DECODE_UTIL_H
#define BRIM_TESTS_DECODE_UTIL_H

#include "support/support.h"

#include "image/decode.h"

#include <stdlib.h>

struct region {
    uint32_t x, y, width, height;
};

struct decoded {
    struct brim__image_info info;
    uint8_t *pixels; /* of the region; released by decoded_free */
    uint32_t rows;   /* that came */
    size_t row_bytes;
};

static inline void decoded_free(struct decoded *decoded) {
    free(decoded->pixels);
    decoded->pixels = NULL;
}

static inline brim_status keep_row(void *user, const uint8_t *row, uint32_t y) {
    struct decoded *decoded = user;
    assert_int_equal(y, decoded->rows);
    memcpy(decoded->pixels + y * decoded->row_bytes, row, decoded->row_bytes);
    decoded->rows++;
    return BRIM_OK;
}

/* memory_bytes 0: as much as the header asks for. The caller frees decoded->pixels also
 * after a failure. */
static inline brim_status decode_input(struct brim__input *input, enum brim__color color,
                                       const struct region *region, bool damaged,
                                       uint64_t memory_bytes, struct decoded *decoded) {
    *decoded = (struct decoded){ 0 };
    brim_status status = brim__image_info(input, true, &decoded->info);
    if (status != BRIM_OK) {
        return status;
    }
    const struct region all = { 0, 0, decoded->info.width, decoded->info.height };
    if (region == NULL) {
        region = &all;
    }
    struct brim__decoding decoding = {
        .input = input,
        .info = &decoded->info,
        .color = color,
        .x = region->x,
        .y = region->y,
        .width = region->width,
        .height = region->height,
        .scale = 1,
        .damaged = damaged,
        .memory_bytes = memory_bytes == 0 ? decoded->info.memory : memory_bytes,
    };
    void *memory;
    assert_true(decoded->info.memory < 64 << 20);
    assert_int_equal(posix_memalign(&memory, 64, decoding.memory_bytes), 0);
    memset(memory, 0xa5, decoding.memory_bytes); /* nobody may rely on zeros */
    decoding.memory = memory;
    decoded->row_bytes = (size_t)region->width * brim__color_pixel(color);
    decoded->pixels = malloc(decoded->row_bytes * region->height);
    assert_non_null(decoded->pixels);
    /* less memory than the header asks for is a case only for a decoder itself */
    brim_status (*decode)(const struct brim__decoding *, brim__row_sink *, void *) =
        memory_bytes == 0                         ? brim__image_decode
        : decoded->info.format == BRIM__IMAGE_PNG ? brim__png_decode
                                                  : brim__webp_decode;
    status = decode(&decoding, keep_row, decoded);
    if (status == BRIM_OK) {
        assert_int_equal(decoded->rows, region->height);
    } else {
        assert_true(brim_detail()[0] != '\0');
    }
    free(memory);
    return status;
}

static inline brim_status decode_bytes(const void *data, size_t bytes, enum brim__color color,
                                       const struct region *region, bool damaged,
                                       struct decoded *decoded) {
    struct brim__input input;
    void *copy = malloc(bytes == 0 ? 1 : bytes);
    assert_non_null(copy);
    memcpy(copy, data, bytes);
    brim__input_memory(&input, copy, bytes);
    const brim_status status = decode_input(&input, color, region, damaged, 0, decoded);
    free(copy);
    return status;
}

/* The same from the middle of a file. */
static inline brim_status decode_file(const void *data, size_t bytes, enum brim__color color,
                                      const struct region *region, bool damaged,
                                      struct decoded *decoded) {
    enum { BEFORE = 1000 };
    static uint8_t window[BRIM__INPUT_WINDOW];
    const struct path path = in_directory("image");
    struct brim__file file;
    struct brim__input input;
    uint8_t *around = malloc(bytes + BEFORE + 100);
    assert_non_null(around);
    memset(around, 0x5a, bytes + BEFORE + 100);
    memcpy(around + BEFORE, data, bytes);
    write_file("image", around, bytes + BEFORE + 100);
    free(around);
    assert_int_equal(brim__file_open(&file, path.text), BRIM_OK);
    brim__input_file(&input, &file, BEFORE, bytes, window);
    const brim_status status = decode_input(&input, color, region, damaged, 0, decoded);
    brim__file_close(&file);
    return status;
}

/* Refused, from memory and from a file, with `part` in the reason. */
static inline void expect_bad_image(const void *data, size_t bytes, enum brim__color color,
                                    const char *part) {
    struct decoded decoded;
    for (int i = 0; i < 2; i++) {
        const brim_status status =
            (i == 0 ? decode_bytes : decode_file)(data, bytes, color, NULL, false, &decoded);
        assert_int_equal(status, BRIM_STATUS_CORRUPT);
        assert_detail_has(part);
        decoded_free(&decoded);
    }
}

/* Damages a file at random again and again: it is decoded or refused, and nothing
 * else. What is damaged beyond `most_pixels` is refused by its header alone. */
static inline void decode_damaged(const uint8_t *data, size_t bytes, uint64_t seed, int times,
                                  uint64_t most_pixels) {
    uint8_t *copy = malloc(bytes);
    assert_non_null(copy);
    for (int i = 0; i < times; i++) {
        memcpy(copy, data, bytes);
        const uint64_t changes = 1 + next_random(&seed) % 4;
        for (uint64_t change = 0; change < changes; change++) {
            const uint64_t random = next_random(&seed);
            const size_t at = (size_t)(random >> 16) % bytes;
            const uint64_t flipped = copy[at] ^ UINT64_C(1) << (random >> 8 & 7);
            copy[at] = (uint8_t)(random % 3 == 0 ? random >> 8 : flipped);
        }
        const size_t left = next_random(&seed) % 8 == 0 ? next_random(&seed) % bytes : bytes;
        struct brim__input input;
        struct brim__image_info info;
        brim__input_memory(&input, copy, left);
        if (brim__image_info(&input, true, &info) == BRIM_OK &&
            (uint64_t)info.width * info.height > most_pixels) {
            continue;
        }
        struct decoded decoded;
        const brim_status status =
            decode_bytes(copy, left, (enum brim__color)(i % 4), NULL, i % 2 == 0, &decoded);
        assert_true(status == BRIM_OK || status == BRIM_STATUS_CORRUPT);
        decoded_free(&decoded);
    }
    free(copy);
}

#endif

/*
 * test_png.c: PNG against a model: files made here, with every colour type, depth,
 * filter and both kinds of interlacing, and pixels said by plain rules.
 */
#include "decode_util.h"

#include <string.h>
#include <zlib.h>

/* ------------------------------------------------------------------ writer */

enum { GRAY = 0, RGB = 2, PALETTE = 3, GRAY_ALPHA = 4, RGB_ALPHA = 6 };

struct bytes {
    uint8_t *data;
    size_t count, room;
};

static void put(struct bytes *to, const void *data, size_t count) {
    if (to->count + count > to->room) {
        to->room = 2 * (to->count + count);
        to->data = realloc(to->data, to->room);
        assert_non_null(to->data);
    }
    if (count > 0) {
        memcpy(to->data + to->count, data, count);
    }
    to->count += count;
}

static void put_u32(struct bytes *to, uint32_t value) {
    const uint8_t data[4] = { (uint8_t)(value >> 24), (uint8_t)(value >> 16), (uint8_t)(value >> 8),
                              (uint8_t)value };
    put(to, data, 4);
}

static void put_chunk(struct bytes *to, const char *name, const void *data, size_t count) {
    put_u32(to, (uint32_t)count);
    const size_t at = to->count;
    put(to, name, 4);
    put(to, data, count);
    put_u32(to, (uint32_t)crc32(0, to->data + at, (uInt)(count + 4)));
}

static void begin_png(struct bytes *to, uint32_t width, uint32_t height, uint32_t depth,
                      uint32_t type, bool interlaced) {
    struct bytes header = { 0 };
    const uint8_t rest[5] = { (uint8_t)depth, (uint8_t)type, 0, 0, interlaced };
    put(to, "\x89PNG\r\n\x1a\n", 8);
    put_u32(&header, width);
    put_u32(&header, height);
    put(&header, rest, 5);
    put_chunk(to, "IHDR", header.data, header.count);
    free(header.data);
}

static void put_data(struct bytes *to, const struct bytes *rows, size_t pieces) {
    uLongf count = compressBound(rows->count);
    uint8_t *packed = malloc(count);
    assert_non_null(packed);
    assert_int_equal(compress2(packed, &count, rows->data, rows->count, 6), Z_OK);
    for (size_t i = 0; i < pieces; i++) {
        const size_t from = count * i / pieces;
        put_chunk(to, "IDAT", packed + from, count * (i + 1) / pieces - from);
    }
    free(packed);
    put_chunk(to, "IEND", "", 0);
}

/* A picture of samples: what the writer writes and the model reads. */
struct picture {
    uint32_t width, height, depth, type;
    bool interlaced;
    uint32_t channels;
    uint16_t *samples;
    uint8_t palette[256][3];
    uint32_t colors; /* of the palette */
    uint8_t alphas[256];
    uint32_t alpha_count;
    bool transparent;
    uint16_t key[3];
};

static uint32_t channels_of(uint32_t type) {
    return type == RGB ? 3 : type == GRAY_ALPHA ? 2 : type == RGB_ALPHA ? 4 : 1;
}

static uint8_t predict(int filter, int left, int up, int corner) {
    const int p = left + up - corner;
    const int to_left = abs(p - left), to_up = abs(p - up), to_corner = abs(p - corner);
    switch (filter) {
    case 1:
        return (uint8_t)left;
    case 2:
        return (uint8_t)up;
    case 3:
        return (uint8_t)((left + up) / 2);
    case 4:
        return (uint8_t)(to_left <= to_up && to_left <= to_corner ? left
                         : to_up <= to_corner                     ? up
                                                                  : corner);
    default:
        return 0;
    }
}

/* One pass: every dx-th pixel from x on of every dy-th row from y on. */
static void put_pass(struct bytes *to, const struct picture *picture, uint32_t x, uint32_t y,
                     uint32_t dx, uint32_t dy, uint64_t *random) {
    const uint32_t width = picture->width > x ? (picture->width - x + dx - 1) / dx : 0;
    const size_t row_bytes = ((size_t)width * picture->channels * picture->depth + 7) / 8;
    const size_t step = (picture->channels * picture->depth + 7) / 8;
    uint8_t *rows = calloc(2, row_bytes + 1);
    assert_non_null(rows);
    uint8_t *row = rows, *above = rows + row_bytes;
    for (uint32_t at = y; at < picture->height && width > 0; at += dy) {
        memset(row, 0, row_bytes);
        for (uint32_t i = 0; i < width; i++) {
            for (uint32_t c = 0; c < picture->channels; c++) {
                const size_t pixel = (size_t)at * picture->width + x + (size_t)i * dx;
                const uint32_t sample = picture->samples[pixel * picture->channels + c];
                const size_t bit = ((size_t)i * picture->channels + c) * picture->depth;
                if (picture->depth == 16) {
                    row[bit / 8] = (uint8_t)(sample >> 8);
                    row[bit / 8 + 1] = (uint8_t)sample;
                } else {
                    row[bit / 8] |= (uint8_t)(sample << (8 - picture->depth - bit % 8));
                }
            }
        }
        const uint8_t filter = (uint8_t)(next_random(random) >> 8) % 5;
        put(to, &filter, 1);
        for (size_t i = 0; i < row_bytes; i++) {
            const uint8_t left = i >= step ? row[i - step] : 0;
            const uint8_t corner = i >= step ? above[i - step] : 0;
            const uint8_t byte = (uint8_t)(row[i] - predict(filter, left, above[i], corner));
            put(to, &byte, 1);
        }
        uint8_t *const swapped = row;
        row = above;
        above = swapped;
    }
    free(rows);
}

static void write_picture(const struct picture *picture, uint64_t *random, struct bytes *png) {
    static const uint8_t passes[7][4] = { { 0, 0, 8, 8 }, { 4, 0, 8, 8 }, { 0, 4, 4, 8 },
                                          { 2, 0, 4, 4 }, { 0, 2, 2, 4 }, { 1, 0, 2, 2 },
                                          { 0, 1, 1, 2 } };
    struct bytes rows = { 0 };
    png->count = 0;
    begin_png(png, picture->width, picture->height, picture->depth, picture->type,
              picture->interlaced);
    put_chunk(png, "tEXt", "Comment\0x", 9);
    if (picture->type == PALETTE) {
        put_chunk(png, "PLTE", picture->palette, 3 * (size_t)picture->colors);
        if (picture->alpha_count > 0) {
            put_chunk(png, "tRNS", picture->alphas, picture->alpha_count);
        }
    } else if (picture->transparent) {
        uint8_t key[6];
        for (int i = 0; i < 3; i++) {
            key[2 * i] = (uint8_t)(picture->key[i] >> 8);
            key[2 * i + 1] = (uint8_t)picture->key[i];
        }
        put_chunk(png, "tRNS", key, 2 * (size_t)picture->channels);
    }
    if (picture->interlaced) {
        for (int i = 0; i < 7; i++) {
            put_pass(&rows, picture, passes[i][0], passes[i][1], passes[i][2], passes[i][3],
                     random);
        }
    } else {
        put_pass(&rows, picture, 0, 0, 1, 1, random);
    }
    put_data(png, &rows, 1 + next_random(random) % 4);
    free(rows.data);
}

static const struct {
    uint8_t type, depth;
} kinds[] = {
    { GRAY, 1 },    { GRAY, 2 },       { GRAY, 4 },        { GRAY, 8 },      { GRAY, 16 },
    { RGB, 8 },     { RGB, 16 },       { PALETTE, 1 },     { PALETTE, 2 },   { PALETTE, 4 },
    { PALETTE, 8 }, { GRAY_ALPHA, 8 }, { GRAY_ALPHA, 16 }, { RGB_ALPHA, 8 }, { RGB_ALPHA, 16 },
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

/* Few different samples, so that transparent colours are met. */
static void make_picture(struct picture *picture, size_t kind, uint32_t width, uint32_t height,
                         bool interlaced, uint64_t *random) {
    static const uint16_t some[] = { 0, 1, 3, 85, 170, 255, 256, 511, 0xff00, 0xffff };
    *picture = (struct picture){ .width = width, .height = height, .interlaced = interlaced };
    picture->type = kinds[kind].type;
    picture->depth = kinds[kind].depth;
    picture->channels = channels_of(picture->type);
    const uint32_t mask = (1u << picture->depth) - 1;
    const size_t count = (size_t)width * height * picture->channels;
    picture->samples = malloc(count * sizeof picture->samples[0]);
    assert_non_null(picture->samples);
    for (size_t i = 0; i < count; i++) {
        const uint64_t value = next_random(random) >> 11;
        picture->samples[i] =
            (uint16_t)((value % 3 == 0 ? value >> 8 : some[(value >> 8) % 10]) & mask);
    }
    picture->colors = 1 + (uint32_t)(next_random(random) >> 8) % (mask < 256 ? mask + 1 : 256);
    fill_random(picture->palette, sizeof picture->palette, next_random(random));
    fill_random(picture->alphas, sizeof picture->alphas, next_random(random));
    if (picture->type == PALETTE) {
        picture->alpha_count = (uint32_t)(next_random(random) >> 8) % (picture->colors + 1);
    } else if (picture->type == GRAY || picture->type == RGB) {
        picture->transparent = next_random(random) >> 8 & 1;
        for (int i = 0; i < 3; i++) {
            picture->key[i] = some[(next_random(random) >> 8) % 10];
        }
    }
}

/* ------------------------------------------------------------------- model */

/* Pillow's red, green, blue, alpha of a pixel. */
static void model_pixel(const struct picture *picture, uint32_t x, uint32_t y, uint8_t to[4]) {
    const uint16_t *sample =
        picture->samples + ((size_t)y * picture->width + x) * picture->channels;
    uint8_t value[4] = { 0 };
    for (uint32_t c = 0; c < 4 && c < picture->channels; c++) {
        value[c] = (uint8_t)(picture->depth == 16 ? sample[c] >> 8 : sample[c]);
    }
    to[3] = 255;
    switch (picture->type) {
    case GRAY: {
        uint32_t gray = sample[0];
        if (picture->depth == 16) {
            gray = gray > 255 ? 255 : gray;
        } else {
            gray = gray * 255 / ((1u << picture->depth) - 1);
        }
        to[0] = to[1] = to[2] = (uint8_t)gray;
        uint8_t key = (uint8_t)picture->key[0];
        if (picture->depth == 1) {
            key = picture->key[0] != 0 ? 255 : 0;
        }
        to[3] = picture->transparent && gray == key ? 0 : 255;
        break;
    }
    case RGB:
        memcpy(to, value, 3);
        to[3] = picture->transparent && value[0] == (uint8_t)picture->key[0] &&
                        value[1] == (uint8_t)picture->key[1] && value[2] == (uint8_t)picture->key[2]
                    ? 0
                    : 255;
        break;
    case PALETTE:
        memset(to, 0, 3);
        if (sample[0] < picture->colors) {
            memcpy(to, picture->palette[sample[0]], 3);
        }
        to[3] = sample[0] < picture->alpha_count ? picture->alphas[sample[0]] : 255;
        break;
    case GRAY_ALPHA:
        to[0] = to[1] = to[2] = value[0];
        to[3] = value[1];
        break;
    default:
        memcpy(to, value, 4);
    }
}

static void check_pixels(const struct picture *picture, const struct decoded *decoded,
                         enum brim__color color, const struct region *region) {
    for (uint32_t y = 0; y < region->height; y++) {
        for (uint32_t x = 0; x < region->width; x++) {
            const uint8_t *got =
                decoded->pixels + y * decoded->row_bytes + (size_t)x * brim__color_pixel(color);
            uint8_t want[4];
            model_pixel(picture, region->x + x, region->y + y, want);
            if (color == BRIM__MASK) {
                const size_t at = (size_t)(region->y + y) * picture->width + region->x + x;
                assert_int_equal(got[0], picture->samples[at]);
            } else if (color == BRIM__GRAY) {
                assert_int_equal(got[0], brim__luma(want[0], want[1], want[2]));
            } else {
                want[3] = color == BRIM__RGB ? 255 : want[3];
                assert_memory_equal(got, want, 4);
            }
        }
    }
}

static bool can_be_mask(const struct picture *picture) {
    return picture->depth <= 8 && (picture->type == GRAY || picture->type == PALETTE);
}

/* ------------------------------------------------------------------- tests */

static void pixels_are_those_of_the_model(void **state) {
    (void)state;
    static const uint32_t sides[] = { 1, 2, 3, 4, 5, 7, 8, 9, 16, 33 };
    uint64_t random = 11;
    struct bytes png = { 0 };
    for (size_t i = 0; i < 40 * KINDS; i++) {
        struct picture picture;
        struct decoded decoded;
        make_picture(&picture, i % KINDS, sides[next_random(&random) % 10],
                     sides[next_random(&random) % 10], next_random(&random) % 2, &random);
        write_picture(&picture, &random, &png);
        for (enum brim__color color = BRIM__GRAY; color <= BRIM__MASK; color++) {
            if (color == BRIM__MASK && !can_be_mask(&picture)) {
                expect_bad_image(png.data, png.count, color, "cannot be a mask");
                continue;
            }
            struct region region = { 0, 0, picture.width, picture.height };
            for (int part = 0; part < 3; part++) {
                const brim_status status = (part == 2 ? decode_file : decode_bytes)(
                    png.data, png.count, color, &region, false, &decoded);
                assert_int_equal(status, BRIM_OK);
                assert_int_equal(decoded.info.format, BRIM__IMAGE_PNG);
                assert_int_equal(decoded.info.whole, picture.interlaced);
                assert_int_equal(decoded.info.orientation, 1);
                check_pixels(&picture, &decoded, color, &region);
                decoded_free(&decoded);
                region.x = (uint32_t)next_random(&random) % picture.width;
                region.y = (uint32_t)next_random(&random) % picture.height;
                region.width = 1 + (uint32_t)next_random(&random) % (picture.width - region.x);
                region.height = 1 + (uint32_t)next_random(&random) % (picture.height - region.y);
            }
        }
        free(picture.samples);
    }
    free(png.data);
}

/* More than a window of data, in many chunks. */
static void large_images_stream_through_the_window(void **state) {
    (void)state;
    uint64_t random = 12;
    struct bytes png = { 0 };
    for (int i = 0; i < 2; i++) {
        struct picture picture;
        struct decoded decoded;
        const struct region region = { 100, 50, 150, 120 };
        make_picture(&picture, 6, 300, 200, i == 1, &random);
        write_picture(&picture, &random, &png);
        assert_true(png.count > 2 * BRIM__INPUT_WINDOW);
        assert_int_equal(decode_file(png.data, png.count, BRIM__RGB, &region, false, &decoded),
                         BRIM_OK);
        check_pixels(&picture, &decoded, BRIM__RGB, &region);
        decoded_free(&decoded);
        free(picture.samples);
    }
    free(png.data);
}

/* The least memory in which it decodes, found by halving. */
static uint64_t least_memory(const struct bytes *png, uint64_t enough) {
    uint64_t low = 64, high = enough;
    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        struct brim__input input;
        struct decoded decoded;
        brim__input_memory(&input, png->data, png->count);
        const brim_status status = decode_input(&input, BRIM__RGBA, NULL, false, middle, &decoded);
        decoded_free(&decoded);
        if (status == BRIM_OK) {
            high = middle;
        } else {
            assert_int_equal(status, BRIM_STATUS_CORRUPT);
            assert_detail_has("needs more than");
            low = middle + 1;
        }
    }
    return low;
}

static void the_memory_of_the_header_is_enough_and_not_much_more(void **state) {
    (void)state;
    static const uint32_t widths[] = { 1, 63, 64, 65, 500, 3000 };
    uint64_t random = 13;
    struct bytes png = { 0 };
    for (size_t i = 0; i < KINDS * 6; i++) {
        struct picture picture;
        struct decoded decoded;
        make_picture(&picture, i % KINDS, widths[i / KINDS], 1 + (uint32_t)i % 40, i % 2, &random);
        write_picture(&picture, &random, &png);
        assert_int_equal(decode_bytes(png.data, png.count, BRIM__RGBA, NULL, false, &decoded),
                         BRIM_OK);
        const uint64_t bound = decoded.info.memory;
        decoded_free(&decoded);
        const uint64_t least = least_memory(&png, bound);
        assert_true(bound - least < 24 * 1024);
        free(picture.samples);
    }
    /* not in proportion to the height unless interlaced */
    struct brim__input input;
    struct brim__image_info info;
    for (int interlaced = 0; interlaced < 2; interlaced++) {
        png.count = 0;
        begin_png(&png, 500, 60000, 8, RGB, interlaced);
        put_chunk(&png, "IDAT", "", 0);
        brim__input_memory(&input, png.data, png.count);
        assert_int_equal(brim__image_info(&input, false, &info), BRIM_OK);
        assert_true(interlaced ? info.memory > 500 * 3 * 60000 : info.memory < 90 * 1024);
        assert_int_equal(info.outside, 0);
    }
    free(png.data);
}

/* A small file of every kind. */
static void make_small(size_t kind, bool interlaced, struct bytes *png) {
    uint64_t random = 14 + kind;
    struct picture picture;
    make_picture(&picture, kind, 9, 7, interlaced, &random);
    write_picture(&picture, &random, png);
    free(picture.samples);
}

static void cut_files_are_refused(void **state) {
    (void)state;
    struct bytes png = { 0 };
    for (size_t kind = 0; kind < KINDS; kind++) {
        make_small(kind, kind % 2, &png);
        const size_t end = png.count - 12; /* of the data; what lacks only the end is whole */
        for (size_t left = 0; left < png.count; left++) {
            struct decoded decoded;
            const brim_status status =
                decode_bytes(png.data, left, BRIM__RGB, NULL, false, &decoded);
            assert_int_equal(status, left >= end ? BRIM_OK : BRIM_STATUS_CORRUPT);
            decoded_free(&decoded);
            const brim_status borne = decode_bytes(png.data, left, BRIM__RGB, NULL, true, &decoded);
            assert_true(borne == BRIM_OK || borne == BRIM_STATUS_CORRUPT);
            decoded_free(&decoded);
        }
    }
    free(png.data);
}

static void random_damage_is_borne_or_refused(void **state) {
    (void)state;
    struct bytes png = { 0 };
    for (size_t kind = 0; kind < KINDS; kind++) {
        make_small(kind, kind % 2 == 0, &png);
        decode_damaged(png.data, png.count, 15 + kind, 400, 10000);
    }
    free(png.data);
}

/* Every bit of what the pixels depend on is protected by a checksum. */
static void wrong_checksums_are_refused_unless_damage_is_borne(void **state) {
    (void)state;
    struct bytes png = { 0 };
    struct decoded right, decoded;
    make_small(9, false, &png); /* a palette, with alpha */
    assert_int_equal(decode_bytes(png.data, png.count, BRIM__RGBA, NULL, false, &right), BRIM_OK);
    for (size_t at = 8; at < png.count - 12;) {
        const size_t length = (size_t)png.data[at + 2] << 8 | png.data[at + 3];
        const bool matters = memcmp(png.data + at + 4, "tEXt", 4) != 0;
        png.data[at + 8 + length] ^= 1; /* of the checksum */
        brim_status status = decode_bytes(png.data, png.count, BRIM__RGBA, NULL, false, &decoded);
        assert_int_equal(status, matters ? BRIM_STATUS_CORRUPT : BRIM_OK);
        if (matters) {
            assert_detail_has("checksum");
        }
        decoded_free(&decoded);
        status = decode_bytes(png.data, png.count, BRIM__RGBA, NULL, true, &decoded);
        assert_int_equal(status, BRIM_OK);
        assert_memory_equal(decoded.pixels, right.pixels, right.row_bytes * right.rows);
        decoded_free(&decoded);
        png.data[at + 8 + length] ^= 1;
        at += length + 12;
    }
    decoded_free(&right);
    free(png.data);
}

static void of_damaged_data_the_rows_before_the_damage_come(void **state) {
    (void)state;
    uint64_t random = 16;
    struct bytes png = { 0 };
    struct picture picture;
    struct decoded decoded;
    make_picture(&picture, 5, 64, 64, false, &random);
    write_picture(&picture, &random, &png);
    assert_int_equal(decode_bytes(png.data, png.count * 3 / 4, BRIM__RGB, NULL, true, &decoded),
                     BRIM_OK);
    check_pixels(&picture, &decoded, BRIM__RGB, &(struct region){ 0, 0, 64, 32 });
    const uint8_t black[4] = { 0, 0, 0, 255 };
    assert_memory_equal(decoded.pixels + 63 * decoded.row_bytes, black, 4);
    decoded_free(&decoded);
    free(picture.samples);
    free(png.data);
}

static void other_chunks_cost_nothing(void **state) {
    (void)state;
    static const char *const names[] = { "iCCP", "zTXt", "iTXt", "sPLT", "gAMA", "abCd", "eXIf" };
    struct bytes png = { 0 }, zeros = { 0 };
    struct decoded decoded;
    uint8_t *nothing = calloc(1, 1 << 20);
    assert_non_null(nothing);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        /* a profile or a text of 50 MiB that takes 50 KiB */
        uLongf count = compressBound(1 << 20);
        uint8_t *packed = malloc(count);
        assert_non_null(packed);
        assert_int_equal(compress2(packed, &count, nothing, 1 << 20, 9), Z_OK);
        zeros.count = 0;
        put(&zeros, "name\0\0", 6);
        for (int k = 0; k < 50; k++) {
            put(&zeros, packed, count);
        }
        free(packed);
        png.count = 0;
        begin_png(&png, 2, 1, 8, GRAY, false);
        for (int k = 0; k < 20; k++) {
            put_chunk(&png, names[i], zeros.data, zeros.count);
            png.data[png.count - 1] ^= 1; /* nor do their checksums matter */
        }
        const struct bytes rows = { .data = (uint8_t[]){ 0, 7, 9 }, .count = 3 };
        put_data(&png, &rows, 1);
        put_chunk(&png, names[i], zeros.data, zeros.count);
        assert_int_equal(decode_file(png.data, png.count, BRIM__GRAY, NULL, false, &decoded),
                         BRIM_OK);
        assert_memory_equal(decoded.pixels, ((uint8_t[]){ 7, 9 }), 2);
        assert_true(decoded.info.memory < 80 * 1024);
        decoded_free(&decoded);
    }
    free(nothing);
    free(zeros.data);
    free(png.data);
}

/* Chunks of next to nothing, `count` of them. */
static void put_many(struct bytes *png, const char *name, size_t count) {
    for (size_t i = 0; i < count; i++) {
        put_chunk(png, name, "", 0);
    }
}

/* Before the data and in it their number is limited; what stands behind it is not read. */
static void a_bomb_of_chunks_is_refused(void **state) {
    (void)state;
    static const struct {
        size_t before, empty, behind;
        const char *says; /* NULL: it is decoded */
    } cases[] = {
        { 4095, 4096, 100000, NULL },
        { 4096, 0, 0, "PNG: more than 4096 chunks come before its image data" },
        { 1000000, 0, 0, "PNG: more than 4096 chunks come before its image data" },
        { 0, 4097, 0, "PNG: more than 4096 of its IDAT chunks are empty" },
        { 0, 1000000, 0, "PNG: more than 4096 of its IDAT chunks are empty" },
    };
    const struct bytes rows = { .data = (uint8_t[]){ 0, 7, 9 }, .count = 3 };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct bytes png = { 0 };
        struct decoded decoded;
        begin_png(&png, 2, 1, 8, GRAY, false);
        put_many(&png, "teXt", cases[i].before);
        put_many(&png, "IDAT", cases[i].empty);
        put_data(&png, &rows, 1);
        put_many(&png, "teXt", cases[i].behind);
        if (cases[i].says != NULL) {
            expect_bad_image(png.data, png.count, BRIM__GRAY, cases[i].says);
        } else {
            assert_int_equal(decode_file(png.data, png.count, BRIM__GRAY, NULL, false, &decoded),
                             BRIM_OK);
            assert_memory_equal(decoded.pixels, ((uint8_t[]){ 7, 9 }), 2);
            decoded_free(&decoded);
        }
        free(png.data);
    }
}

static void put_one_row(struct bytes *png) {
    const struct bytes rows = { .data = (uint8_t[]){ 0, 0, 1, 200 }, .count = 4 };
    put_data(png, &rows, 1);
}

static void wrong_headers_are_refused(void **state) {
    (void)state;
    static const struct {
        uint32_t width, height, depth, type;
        const char *says;
    } cases[] = {
        { 0, 1, 8, GRAY, "is a PNG image of 0 x 1 pixels; sides may be 1 to 65535" },
        { 1, 0, 8, GRAY, "1 x 0" },
        { 65536, 1, 8, GRAY, "65536 x 1" },
        { 0xffffffff, 0xffffffff, 16, RGB_ALPHA, "4294967295 x 4294967295" },
        { 1, 1, 3, GRAY, "there is no colour type 0 with 3 bits" },
        { 1, 1, 0, GRAY, "there is no colour type 0 with 0 bits" },
        { 1, 1, 255, GRAY, "there is no colour type 0 with 255 bits" },
        { 1, 1, 16, PALETTE, "there is no colour type 3 with 16 bits" },
        { 1, 1, 4, RGB, "there is no colour type 2 with 4 bits" },
        { 1, 1, 8, 1, "there is no colour type 1 with 8 bits" },
        { 1, 1, 8, 255, "there is no colour type 255 with 8 bits" },
    };
    struct bytes png = { 0 };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        png.count = 0;
        begin_png(&png, cases[i].width, cases[i].height, cases[i].depth, cases[i].type, false);
        put_one_row(&png);
        expect_bad_image(png.data, png.count, BRIM__RGB, cases[i].says);
    }
    /* the largest that is taken needs a plain amount of memory to look at */
    struct brim__input input;
    struct brim__image_info info;
    png.count = 0;
    begin_png(&png, 65535, 65535, 16, RGB_ALPHA, true);
    put_one_row(&png);
    brim__input_memory(&input, png.data, png.count);
    assert_int_equal(brim__image_info(&input, true, &info), BRIM_OK);
    assert_true(info.memory > UINT64_C(65535) * 65535 * 8);
    png.data[8 + 8 + 12] = 2; /* interlacing */
    expect_bad_image(png.data, png.count, BRIM__RGB, "interlacing 2");
    png.data[8 + 3] = 14;
    expect_bad_image(png.data, png.count, BRIM__RGB, "it must have 13");
    png.data[8 + 4] = 'J';
    expect_bad_image(png.data, png.count, BRIM__RGB, "not with IHDR");
    free(png.data);
}

static void begin_palette(struct bytes *png) {
    png->count = 0;
    begin_png(png, 3, 1, 8, PALETTE, false);
}

static void wrong_chunks_are_refused(void **state) {
    (void)state;
    struct bytes png = { 0 };
    uint8_t many[771] = { 0 };
    begin_palette(&png);
    put_one_row(&png);
    expect_bad_image(png.data, png.count, BRIM__RGB, "no palette");
    const size_t sizes[] = { 0, 4, 771 };
    for (int i = 0; i < 3; i++) {
        begin_palette(&png);
        put_chunk(&png, "PLTE", many, sizes[i]);
        put_one_row(&png);
        expect_bad_image(png.data, png.count, BRIM__RGB, "3 for each of 1 to 256 colours");
    }
    begin_palette(&png);
    put_chunk(&png, "PLTE", many, 3);
    put_chunk(&png, "PLTE", many, 3);
    put_one_row(&png);
    expect_bad_image(png.data, png.count, BRIM__RGB, "second palette");
    begin_palette(&png);
    put_chunk(&png, "PLTE", many, 3);
    put_chunk(&png, "tRNS", many, 257);
    put_one_row(&png);
    expect_bad_image(png.data, png.count, BRIM__RGB, "at most 256");
    png.count = 0;
    begin_png(&png, 3, 1, 8, GRAY, false);
    put_chunk(&png, "tRNS", many, 1);
    put_one_row(&png);
    expect_bad_image(png.data, png.count, BRIM__RGB, "2 for each channel");
    png.count = 0;
    begin_png(&png, 3, 1, 8, GRAY, false);
    put_chunk(&png, "CgBI", many, 4);
    put_one_row(&png);
    expect_bad_image(png.data, png.count, BRIM__RGB, "CgBI");
    png.count = 0;
    begin_png(&png, 3, 1, 8, GRAY, false);
    put_chunk(&png, "IEND", many, 0);
    expect_bad_image(png.data, png.count, BRIM__RGB, "IEND");
    png.count = 0;
    begin_png(&png, 3, 1, 8, GRAY, false);
    put(&png, "\xff\xff\xff\xfftEXt", 8);
    put_one_row(&png);
    expect_bad_image(png.data, png.count, BRIM__RGB, "length of 4294967295");
    png.count = 33;
    put(&png, "\0\0\0\1tE\0t", 8);
    put_one_row(&png);
    expect_bad_image(png.data, png.count, BRIM__RGB, "begins no chunk");
    png.count = 33;
    put(&png, "\x7f\xff\xff\xfftEXt", 8);
    put_one_row(&png);
    expect_bad_image(png.data, png.count, BRIM__RGB, "PNG without image data: ends after");
    free(png.data);
}

/* An index behind the palette's end is black, as in Pillow, and of a mask its number. */
static void indices_outside_the_palette_are_black(void **state) {
    (void)state;
    struct bytes png = { 0 };
    struct decoded decoded;
    begin_palette(&png);
    put_chunk(&png, "PLTE", ((uint8_t[]){ 10, 20, 30 }), 3);
    put_one_row(&png);
    assert_int_equal(decode_bytes(png.data, png.count, BRIM__RGBA, NULL, false, &decoded), BRIM_OK);
    assert_memory_equal(decoded.pixels,
                        ((uint8_t[]){ 10, 20, 30, 255, 0, 0, 0, 255, 0, 0, 0, 255 }), 12);
    decoded_free(&decoded);
    assert_int_equal(decode_bytes(png.data, png.count, BRIM__MASK, NULL, false, &decoded), BRIM_OK);
    assert_memory_equal(decoded.pixels, ((uint8_t[]){ 0, 1, 200 }), 3);
    decoded_free(&decoded);
    free(png.data);
}

static void the_orientation_is_looked_for_on_request(void **state) {
    (void)state;
    static const uint8_t exif[] = "II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0";
    struct bytes png = { 0 };
    struct brim__input input;
    struct brim__image_info info;
    begin_png(&png, 3, 1, 8, GRAY, false);
    put_chunk(&png, "eXIf", exif, sizeof exif);
    put_one_row(&png);
    brim__input_memory(&input, png.data, png.count);
    assert_int_equal(brim__image_info(&input, true, &info), BRIM_OK);
    assert_int_equal(info.orientation, 6);
    assert_int_equal(brim__image_info(&input, false, &info), BRIM_OK);
    assert_int_equal(info.orientation, 1);
    free(png.data);
}

/* A chunk between those of the data ends it, whatever follows. */
static void data_in_two_places_is_refused(void **state) {
    (void)state;
    struct bytes png = { 0 }, parted = { 0 };
    make_small(5, false, &png);
    size_t at = 8;
    while (memcmp(png.data + at + 4, "IDAT", 4) != 0) {
        at += 12 + ((size_t)png.data[at + 2] << 8 | png.data[at + 3]);
    }
    const size_t first = 20;
    put(&parted, png.data, at);
    const size_t length = (size_t)png.data[at + 2] << 8 | png.data[at + 3];
    assert_true(length > first);
    put_chunk(&parted, "IDAT", png.data + at + 8, first);
    put_chunk(&parted, "tEXt", "a\0b", 3);
    put_chunk(&parted, "IDAT", png.data + at + 8 + first, length - first);
    expect_bad_image(parted.data, parted.count, BRIM__RGB, "PNG: at row");
    free(png.data);
    free(parted.data);
}

static brim_status stop(void *user, const uint8_t *row, uint32_t y) {
    (void)row;
    *(uint32_t *)user = y + 1;
    return y == 2 ? BRIM_STATUS_CALLBACK : BRIM_OK;
}

static void a_sink_that_fails_ends_the_decoding(void **state) {
    (void)state;
    for (int interlaced = 0; interlaced < 2; interlaced++) {
        struct bytes png = { 0 };
        struct brim__input input;
        struct brim__image_info info;
        uint32_t rows = 0;
        make_small(5, interlaced, &png);
        brim__input_memory(&input, png.data, png.count);
        assert_int_equal(brim__image_info(&input, false, &info), BRIM_OK);
        void *memory;
        assert_int_equal(posix_memalign(&memory, 64, info.memory), 0);
        const struct brim__decoding decoding = {
            .input = &input,
            .info = &info,
            .color = BRIM__RGB,
            .width = info.width,
            .height = info.height,
            .scale = 1,
            .memory = memory,
            .memory_bytes = info.memory,
        };
        assert_int_equal(brim__image_decode(&decoding, stop, &rows), BRIM_STATUS_CALLBACK);
        assert_int_equal(rows, 3);
        free(memory);
        free(png.data);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pixels_are_those_of_the_model),
        cmocka_unit_test(large_images_stream_through_the_window),
        cmocka_unit_test(the_memory_of_the_header_is_enough_and_not_much_more),
        cmocka_unit_test(cut_files_are_refused),
        cmocka_unit_test(random_damage_is_borne_or_refused),
        cmocka_unit_test(wrong_checksums_are_refused_unless_damage_is_borne),
        cmocka_unit_test(of_damaged_data_the_rows_before_the_damage_come),
        cmocka_unit_test(other_chunks_cost_nothing),
        cmocka_unit_test(a_bomb_of_chunks_is_refused),
        cmocka_unit_test(wrong_headers_are_refused),
        cmocka_unit_test(wrong_chunks_are_refused),
        cmocka_unit_test(indices_outside_the_palette_are_black),
        cmocka_unit_test(the_orientation_is_looked_for_on_request),
        cmocka_unit_test(data_in_two_places_is_refused),
        cmocka_unit_test(a_sink_that_fails_ends_the_decoding),
    };
    return cmocka_run_group_tests(tests, begin_tests_in_memory, end_tests);
}

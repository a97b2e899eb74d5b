/*
 * jpeg_util.h: what the tests of JPEG share: files of every kind, written by libjpeg, and
 * decoding that watches its memory and its rows.
 */
#ifndef BRIM_TESTS_JPEG_UTIL_H
#define BRIM_TESTS_JPEG_UTIL_H

#include "support/support.h"

#include "image/jpeg_memory.h"

#include <stdlib.h>
#include <string.h>

#define GUARD     4096 /* bytes behind the memory */
#define UNTOUCHED 0xa5

/* ------------------------------------------------------------------ files */

struct spec {
    uint32_t width, height;
    int components;
    int h[4], v[4];      /* sampling factors; 0: 1 */
    J_COLOR_SPACE space; /* in the file; 0: the usual one */
    bool progressive;
    bool dc_only;     /* progressive, and nothing but the first scan */
    bool apart;       /* baseline, a scan for each component */
    unsigned restart; /* MCUs */
    bool optimized;
};

struct bytes {
    uint8_t *data;
    size_t count;
};

static inline uint8_t pixel_at(uint32_t x, uint32_t y, int c, uint64_t *random) {
    const uint32_t wave = x * (uint32_t)(3 + c) + y * (uint32_t)(5 - c) + x * y / 7;
    return (uint8_t)(wave + (next_random(random) >> 33) % 60);
}

static inline struct bytes make_jpeg(const struct spec *spec, uint64_t seed) {
    struct jpeg_compress_struct jpeg;
    struct jpeg_error_mgr errors;
    jpeg_scan_info scans[4];
    unsigned char *data = NULL;
    unsigned long count = 0;
    uint64_t random = seed * 2 + 1;
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_compress(&jpeg);
    jpeg_mem_dest(&jpeg, &data, &count);
    jpeg.image_width = spec->width;
    jpeg.image_height = spec->height;
    jpeg.input_components = spec->components;
    jpeg.in_color_space = spec->components == 1   ? JCS_GRAYSCALE
                          : spec->components == 3 ? JCS_RGB
                                                  : JCS_CMYK;
    jpeg_set_defaults(&jpeg);
    if (spec->space != JCS_UNKNOWN) {
        jpeg_set_colorspace(&jpeg, spec->space);
    }
    jpeg_set_quality(&jpeg, 92, TRUE);
    for (int c = 0; c < spec->components; c++) {
        jpeg.comp_info[c].h_samp_factor = spec->h[c] == 0 ? 1 : spec->h[c];
        jpeg.comp_info[c].v_samp_factor = spec->v[c] == 0 ? 1 : spec->v[c];
    }
    jpeg.restart_interval = spec->restart;
    jpeg.optimize_coding = spec->optimized;
    if (spec->progressive) {
        jpeg_simple_progression(&jpeg);
    }
    if (spec->dc_only) {
        scans[0] = (jpeg_scan_info){ .comps_in_scan = spec->components,
                                     .component_index = { 0, 1, 2, 3 } };
        jpeg.scan_info = scans;
        jpeg.num_scans = 1;
    }
    if (spec->apart) {
        for (int c = 0; c < spec->components; c++) {
            scans[c] = (jpeg_scan_info){ .comps_in_scan = 1, .component_index = { c }, .Se = 63 };
        }
        jpeg.scan_info = scans;
        jpeg.num_scans = spec->components;
    }
    jpeg_start_compress(&jpeg, TRUE);
    uint8_t *row = malloc((size_t)spec->width * 4);
    assert_non_null(row);
    for (uint32_t y = 0; y < spec->height; y++) {
        for (uint32_t x = 0; x < spec->width; x++) {
            for (int c = 0; c < spec->components; c++) {
                row[x * (uint32_t)spec->components + (uint32_t)c] = pixel_at(x, y, c, &random);
            }
        }
        jpeg_write_scanlines(&jpeg, &row, 1);
    }
    jpeg_finish_compress(&jpeg);
    jpeg_destroy_compress(&jpeg);
    free(row);
    return (struct bytes){ data, count };
}

/* The five ways to write an image, in turn. */
static inline void set_way(struct spec *spec, unsigned way) {
    spec->progressive = way == 1;
    spec->restart = way == 2 ? 3 : way == 1 ? 5 : 0;
    spec->apart = way == 3;
    spec->dc_only = way == 4;
}
#define WAYS 5

/* What is built by put() has room up to the next power of two. */
static inline size_t room_for(size_t count) {
    size_t room = 1024;
    while (room < count) {
        room *= 2;
    }
    return room;
}

/* not inlined: GCC takes the loop of room_for for one that ends at once */
__attribute__((noinline, unused)) static void put(struct bytes *to, const void *data,
                                                  size_t count) {
    if (to->data == NULL || to->count + count > room_for(to->count)) {
        to->data = realloc(to->data, room_for(to->count + count));
        assert_non_null(to->data);
    }
    memcpy(to->data + to->count, data, count);
    to->count += count;
}

static inline void put_segment(struct bytes *to, uint8_t marker, const void *data, size_t count) {
    const uint8_t head[] = { 0xff, marker, (uint8_t)((count + 2) >> 8), (uint8_t)(count + 2) };
    put(to, head, sizeof head);
    put(to, data, count);
}

/* A gray progressive file whose scans but the first only look at every coefficient of every
 * block: all bits are 0, because the one code of either table is the bit 0. In scans of AC it
 * ends 2^14 blocks at once, with 14 bits more. */
static inline struct bytes make_bomb(uint32_t width, uint32_t height, unsigned scans) {
    struct bytes bomb = { 0 };
    const size_t blocks = (size_t)((width + 7) / 8) * ((height + 7) / 8);
    const size_t dc = (blocks + 7) / 8, ac = ((blocks + 16383) / 16384 * 15 + 7) / 8;
    uint8_t quantum[65] = { 0 }, table[18] = { 0, 1 };
    const uint8_t frame[] = { 8,
                              (uint8_t)(height >> 8),
                              (uint8_t)height,
                              (uint8_t)(width >> 8),
                              (uint8_t)width,
                              1,
                              1,
                              0x11,
                              0 };
    uint8_t *zeros = calloc(dc + ac, 1);
    assert_non_null(zeros);
    memset(quantum + 1, 1, 64);
    put(&bomb, "\xff\xd8", 2);
    put_segment(&bomb, 0xdb, quantum, sizeof quantum);
    put_segment(&bomb, 0xc2, frame, sizeof frame);
    put_segment(&bomb, 0xc4, table, sizeof table);
    table[0] = 0x10;
    table[17] = 0xe0;
    put_segment(&bomb, 0xc4, table, sizeof table);
    put_segment(&bomb, 0xda, "\1\1\0\0\0\0", 6);
    put(&bomb, zeros, dc);
    for (unsigned i = 1; i < scans; i++) {
        put_segment(&bomb, 0xda, "\1\1\0\1\x3f\x10", 6);
        put(&bomb, zeros, ac);
    }
    put(&bomb, "\xff\xd9", 2);
    free(zeros);
    return bomb;
}

/* --------------------------------------------------------------- decoding */

/* All of an image, decoded. */
struct picture {
    uint32_t width, height, pixel;
    uint8_t *data;
};

struct run {
    const struct brim__decoding *decoding;
    const struct picture *picture; /* to compare with, or NULL */
    bool counts_memory;
    uint32_t next;   /* row */
    uint64_t digest; /* of all rows */
    bool differs;
    uint64_t peak; /* of the memory, where it was last written to */
};

static inline brim_status take_row(void *user, const uint8_t *row, uint32_t y) {
    struct run *run = user;
    const struct brim__decoding *decoding = run->decoding;
    const size_t pixel = brim__color_pixel(decoding->color);
    assert_int_equal(y, run->next);
    run->next++;
    run->digest = brim__hash(row, decoding->width * pixel, run->digest);
    if (run->picture != NULL) {
        const uint8_t *wanted =
            run->picture->data +
            ((size_t)(decoding->y + y) * run->picture->width + decoding->x) * pixel;
        run->differs |= memcmp(row, wanted, decoding->width * pixel) != 0;
    }
    return BRIM_OK;
}

/* One piece for all tests: taking it anew each time is most of the time under sanitizers. */
static inline void give_memory(struct brim__decoding *decoding) {
    static uint8_t *memory;
    static size_t have;
    const size_t bytes = (size_t)brim__align(decoding->memory_bytes + GUARD, 64);
    if (bytes > have) {
        free(memory);
        memory = aligned_alloc(64, bytes);
        assert_non_null(memory);
        have = bytes;
    }
    memset(memory, UNTOUCHED, bytes);
    decoding->memory = memory;
}

static inline brim_status run_decoding(struct brim__decoding *decoding, struct run *run) {
    const size_t bytes = (size_t)decoding->memory_bytes;
    uint8_t guard[GUARD];
    give_memory(decoding);
    run->decoding = decoding;
    const brim_status status = brim__jpeg_decode(decoding, take_row, run);
    memset(guard, UNTOUCHED, sizeof guard);
    assert_memory_equal(decoding->memory + bytes, guard, sizeof guard);
    run->peak = run->counts_memory ? bytes : 0;
    while (run->peak > 0 && decoding->memory[run->peak - 1] == UNTOUCHED) {
        run->peak--;
    }
    if (status == BRIM_OK) {
        assert_int_equal(run->next, decoding->height);
    }
    return status;
}

static inline struct brim__decoding whole_of(struct brim__input *input,
                                             const struct brim__image_info *info) {
    return (struct brim__decoding){
        .input = input,
        .info = info,
        .color = BRIM__RGB,
        .width = info->width,
        .height = info->height,
        .scale = 1,
        .memory_bytes = info->memory,
    };
}

static inline void choose_region(struct brim__decoding *decoding, uint64_t *random,
                                 unsigned round) {
    const uint32_t width = (uint32_t)brim__divide_up(decoding->info->width, decoding->scale);
    const uint32_t height = (uint32_t)brim__divide_up(decoding->info->height, decoding->scale);
    decoding->x = round == 0 ? 0 : (uint32_t)(next_random(random) % width);
    decoding->y = round == 0 ? 0 : (uint32_t)(next_random(random) % height);
    decoding->width = round == 0   ? width
                      : round == 1 ? 1
                                   : 1 + (uint32_t)(next_random(random) % (width - decoding->x));
    decoding->height = round == 0   ? height
                       : round == 1 ? 1
                                    : 1 + (uint32_t)(next_random(random) % (height - decoding->y));
    if (round == 1) {
        decoding->x = width - 1;
    }
}

#endif

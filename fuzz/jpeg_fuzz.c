/*
 * jpeg_fuzz.c: a JPEG file: its header, all of it, and a region of it.
 *
 * The hash of the input says which region, colour and scale, whether damage is
 * taken, and whether the file is read through a window. Decoding keeps to the
 * memory that the header promised, gives each row once, and gives the same for a
 * region as for the whole, where both are decoded.
 */
#include "fuzz.h"

#include "image/decode.h"

#include <stdlib.h>

#define MOST_PIXELS (1u << 18)
#define GUARD       64

struct rows {
    const struct brim__decoding *decoding;
    const struct brim__decoding *whole; /* what `pixels` holds; NULL: they are filled now */
    uint8_t *pixels;
    uint32_t next;
};

static brim_status take_row(void *user, const uint8_t *row, uint32_t y) {
    struct rows *rows = user;
    const struct brim__decoding *decoding = rows->decoding;
    const size_t pixel = brim__color_pixel(decoding->color);
    if (y != rows->next++ || y >= decoding->height) {
        fuzz_wrong("row %u came as number %u of %u", y, rows->next - 1, decoding->height);
    }
    if (rows->whole == NULL) {
        memcpy(rows->pixels + y * decoding->width * pixel, row, decoding->width * pixel);
        return BRIM_OK;
    }
    const size_t at = (size_t)(decoding->y + y) * rows->whole->width + decoding->x;
    if (memcmp(rows->pixels + at * pixel, row, decoding->width * pixel) != 0) {
        fuzz_wrong("row %u of the region %u,%u %u x %u is not that of the whole image", y,
                   decoding->x, decoding->y, decoding->width, decoding->height);
    }
    return BRIM_OK;
}

static void *take_memory(size_t bytes) {
    void *memory = aligned_alloc(64, (size_t)brim__align(bytes, 64));
    if (memory == NULL) {
        fuzz_wrong("no memory");
    }
    return memory;
}

static brim_status decode(struct brim__decoding *decoding, struct rows *rows) {
    const size_t bytes = (size_t)decoding->memory_bytes;
    decoding->memory = take_memory(bytes + GUARD);
    memset(decoding->memory + bytes, 0xa5, GUARD);
    rows->decoding = decoding;
    const brim_status status = brim__jpeg_decode(decoding, take_row, rows);
    for (size_t i = 0; i < GUARD; i++) {
        if (decoding->memory[bytes + i] != 0xa5) {
            fuzz_wrong("more than the %zu bytes of its memory were written to", bytes);
        }
    }
    free(decoding->memory);
    if (status == BRIM_OK && rows->next != decoding->height) {
        fuzz_wrong("%u of %u rows came", rows->next, decoding->height);
    }
    if (status != BRIM_OK) {
        fuzz_check_refusal("brim__jpeg_decode", status);
        if (strstr(brim_detail(), "follow from its header") != NULL ||
            strstr(brim_detail(), "header has changed") != NULL) {
            fuzz_wrong("the header was misread: %s", brim_detail());
        }
    }
    return status;
}

static void decode_twice(struct brim__input *input, const struct brim__image_info *info,
                         uint64_t choice) {
    const uint32_t scale = 1u << (choice & 3);
    struct brim__decoding whole = {
        .input = input,
        .info = info,
        .color = (enum brim__color)(choice >> 2 & 3),
        .width = (uint32_t)brim__divide_up(info->width, scale),
        .height = (uint32_t)brim__divide_up(info->height, scale),
        .scale = scale,
        .cheap = choice >> 4 & 1,
        .rough = choice >> 4 & 1,
        .damaged = choice >> 5 & 1,
        .memory_bytes = info->memory,
    };
    struct rows rows = { .pixels = take_memory((size_t)whole.width * whole.height * 4) };
    const brim_status status = decode(&whole, &rows);
    struct brim__decoding region = whole;
    region.x = (uint32_t)(choice >> 8 & 0xffff) % whole.width;
    region.y = (uint32_t)(choice >> 24 & 0xffff) % whole.height;
    region.width = 1 + (uint32_t)(choice >> 40 & 0xfff) % (whole.width - region.x);
    region.height = 1 + (uint32_t)(choice >> 52 & 0xfff) % (whole.height - region.y);
    struct rows part = { .whole = &whole, .pixels = rows.pixels };
    if (status == BRIM_OK && decode(&region, &part) != BRIM_OK) {
        fuzz_wrong("all of it can be decoded, but not a region: %s", brim_detail());
    }
    free(rows.pixels);
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    fuzz_begin();
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static uint8_t window[BRIM__INPUT_WINDOW];
    const uint64_t choice = brim__hash(data, bytes, 1);
    struct brim__image_info info;
    struct brim__input input;
    struct brim__file file;
    char path[FUZZ_PATH_BYTES];
    const bool in_file = (choice >> 6 & 3) == 0;
    brim__input_memory(&input, data, bytes);
    if (in_file) {
        fuzz_write("x.jpg", data, bytes);
        if (brim__file_open(&file, fuzz_path(path, "x.jpg")) != BRIM_OK) {
            fuzz_wrong("%s", brim_detail());
        }
        brim__input_file(&input, &file, 0, bytes, window);
    }
    const brim_status status = brim__jpeg_info(&input, true, &info);
    if (status != BRIM_OK) {
        fuzz_check_refusal("brim__jpeg_info", status);
    } else if ((uint64_t)info.width * info.height <= MOST_PIXELS) {
        decode_twice(&input, &info, choice);
    }
    if (in_file) {
        brim__file_close(&file);
    }
    return 0;
}

/*
 * fuzz_image.h: what the targets of image formats do with an input.
 *
 * It is taken for a file of the format. A header that is accepted and asks for little
 * enough memory is followed by decoding, whole and a region of it, with damage borne
 * and not: the region must be that of the whole, nothing but BRIM_STATUS_CORRUPT may come of
 * bad data, and the libraries may take no more by themselves than the header said.
 */
#ifndef BRIM_FUZZ_IMAGE_H
#define BRIM_FUZZ_IMAGE_H

#include "fuzz.h"

#include "image/decode.h"

#include <sanitizer/allocator_interface.h>
#include <stdlib.h>

#define FUZZ_IMAGE_PIXELS 65536 /* more are not decoded */

struct fuzz_rows {
    uint8_t *pixels;
    size_t row_bytes;
    uint32_t rows;
};

/* Of the decoding thread: the hooks see all of them, and that in which libFuzzer watches
 * the memory takes and frees some of its own while it starts. */
static _Thread_local struct {
    bool counts;
    size_t now, most;
} fuzz_taken;

static inline void fuzz_count_taken(const volatile void *memory, size_t bytes) {
    (void)memory;
    if (fuzz_taken.counts) {
        fuzz_taken.now += bytes;
        fuzz_taken.most = fuzz_taken.now > fuzz_taken.most ? fuzz_taken.now : fuzz_taken.most;
    }
}

static inline void fuzz_count_freed(const volatile void *memory) {
    if (fuzz_taken.counts && memory != NULL) {
        fuzz_taken.now -= __sanitizer_get_allocated_size(memory);
    }
}

/* Of LLVMFuzzerInitialize. */
static inline void fuzz_image_begin(void) {
    if (__sanitizer_install_malloc_and_free_hooks(fuzz_count_taken, fuzz_count_freed) == 0) {
        fuzz_wrong("allocations cannot be counted");
    }
}

static inline brim_status fuzz_keep_row(void *user, const uint8_t *row, uint32_t y) {
    struct fuzz_rows *rows = user;
    if (y != rows->rows) {
        fuzz_wrong("row %u came after %u others", y, rows->rows);
    }
    memcpy(rows->pixels + y * rows->row_bytes, row, rows->row_bytes);
    rows->rows++;
    return BRIM_OK;
}

static inline void *fuzz_take_memory(size_t bytes) {
    void *memory;
    if (posix_memalign(&memory, 64, bytes) != 0) {
        fuzz_wrong("no memory");
    }
    return memory;
}

/* false: refused. */
static inline bool fuzz_decode(const struct brim__decoding *decoding, struct fuzz_rows *rows) {
    rows->rows = 0;
    rows->row_bytes = (size_t)decoding->width * brim__color_pixel(decoding->color);
    rows->pixels = fuzz_take_memory(rows->row_bytes * decoding->height);
    fuzz_taken.counts = true;
    fuzz_taken.now = fuzz_taken.most = 0;
    const brim_status status = brim__image_decode(decoding, fuzz_keep_row, rows);
    fuzz_taken.counts = false;
    if (fuzz_taken.now != 0 || fuzz_taken.most > decoding->info->outside) {
        fuzz_wrong("%zu bytes were taken, %zu of them not given back; %llu are allowed",
                   fuzz_taken.most, fuzz_taken.now, (unsigned long long)decoding->info->outside);
    }
    if (status == BRIM_OK) {
        if (rows->rows != decoding->height) {
            fuzz_wrong("%u rows came of %u", rows->rows, decoding->height);
        }
        return true;
    }
    if (status != BRIM_STATUS_CORRUPT || brim_detail()[0] == '\0') {
        fuzz_wrong("%s: %s", brim_status_name(status), brim_detail());
    }
    return false;
}

static inline void fuzz_image(const uint8_t *data, size_t bytes) {
    struct brim__input input;
    struct brim__image_info info;
    brim__input_memory(&input, data, bytes);
    const brim_status status = brim__image_info(&input, true, &info);
    if (status != BRIM_OK) {
        if (status != BRIM_STATUS_CORRUPT || brim_detail()[0] == '\0') {
            fuzz_wrong("%s: %s", brim_status_name(status), brim_detail());
        }
        return;
    }
    if (info.orientation < 1 || info.orientation > 8) {
        fuzz_wrong("orientation %u", info.orientation);
    }
    if ((uint64_t)info.width * info.height > FUZZ_IMAGE_PIXELS) {
        return;
    }
    struct brim__decoding whole = {
        .input = &input,
        .info = &info,
        .width = info.width,
        .height = info.height,
        .scale = 1,
        .memory_bytes = info.memory,
        .memory = fuzz_take_memory(info.memory),
    };
    for (int i = 0; i < 4; i++) {
        whole.color = (enum brim__color)((bytes + (size_t)i) % 4);
        whole.damaged = i % 2 == 1;
        struct fuzz_rows all, part;
        struct brim__decoding region = whole;
        region.x = info.width / 3;
        region.y = info.height / 2;
        region.width = (info.width - region.x + 1) / 2;
        region.height = (info.height - region.y + 1) / 2;
        const bool got_all = fuzz_decode(&whole, &all);
        const bool got_part = fuzz_decode(&region, &part);
        if (got_all && !got_part && !whole.damaged) {
            fuzz_wrong("the whole is good, but a region of it is not: %s", brim_detail());
        }
        const uint32_t pixel = brim__color_pixel(whole.color);
        for (uint32_t y = 0; got_all && got_part && !whole.damaged && y < region.height; y++) {
            if (memcmp(part.pixels + y * part.row_bytes,
                       all.pixels + (region.y + y) * all.row_bytes + (size_t)region.x * pixel,
                       part.row_bytes) != 0) {
                fuzz_wrong("row %u of a region differs from that of the whole", y);
            }
        }
        free(all.pixels);
        free(part.pixels);
    }
    free(whole.memory);
}

#endif

/*
 * png.h: declarations for the two files of the PNG decoder: the part of a file before the image
 * data.
 *
 *     signature  IHDR  ...  PLTE  ...  tRNS  ...  | IDAT IDAT IDAT ...
 *     \________ png_info.c: own code ____________/ \_ png.c: libspng _/
 */
#ifndef BRIM_PNG_H
#define BRIM_PNG_H

#include "image/decode.h"

enum brim__png_type {
    BRIM__PNG_GRAY = 0,
    BRIM__PNG_RGB = 2,
    BRIM__PNG_PALETTE = 3,
    BRIM__PNG_GRAY_ALPHA = 4,
    BRIM__PNG_RGB_ALPHA = 6
};

struct brim__png_header {
    uint8_t chunk[25]; /* IHDR as it stands in the file, but its checksum put right */
    uint32_t width, height;
    uint8_t depth; /* bits of a sample */
    uint8_t type;  /* a brim__png_type */
    bool interlaced;
    /* red, green, blue, alpha; black and opaque if the file has no entry */
    uint8_t palette[256][4];
    bool transparent; /* of gray and RGB: one colour is, in `color`, of gray the first */
    uint16_t color[3];
    uint8_t orientation;
    uint64_t data_at; /* the first IDAT chunk */
};

/* damaged: accept wrong checksums. */
brim_status brim__png_read_header(struct brim__input *input, bool damaged,
                                  struct brim__png_header *header);

/* Bytes of a row as it is stored, without its filter. */
static inline uint64_t brim__png_row_bytes(const struct brim__png_header *header) {
    static const uint8_t channels[7] = { 1, 0, 3, 1, 2, 0, 4 };
    return ((uint64_t)header->width * channels[header->type] * header->depth + 7) / 8;
}

#endif

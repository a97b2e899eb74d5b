/*
 * image.h: pixels in memory, and the conventions of this module.
 *
 * A pixel is 1 byte (gray, or a mask's class) or 4 (red, green, blue, and alpha or nothing): never
 * 3, because four fit in a register together. Images get the form that the user asked for only at
 * the end.
 *
 * Rows are pushed: the code that makes them calls a sink with each one, in any order.
 */
#ifndef BRIM_IMAGE_H
#define BRIM_IMAGE_H

#include "base/base.h"

#define BRIM__MAX_SIDE 65535u /* pixels; larger images are refused by every decoder */

struct brim__image {
    uint8_t *data;
    uint32_t width, height;
    uint32_t pixel; /* bytes: 1 or 4 */
    size_t stride;  /* bytes from row to row */
};

static inline uint8_t *brim__image_row(const struct brim__image *image, uint32_t y) {
    return image->data + y * image->stride;
}

/* The pixels that the caller wants. RGB: the fourth byte is 255. MASK: palette indices or gray
 * values as stored in the file. */
enum brim__color { BRIM__GRAY, BRIM__RGB, BRIM__RGBA, BRIM__MASK };

static inline uint32_t brim__color_pixel(enum brim__color color) {
    return color == BRIM__RGB || color == BRIM__RGBA ? 4 : 1;
}
static inline uint32_t brim__color_channels(enum brim__color color) {
    return color == BRIM__RGB ? 3 : color == BRIM__RGBA ? 4 : 1;
}

/* Receives row y. Any status other than BRIM_OK ends the work, which returns that status. The row
 * is valid during the call. */
typedef brim_status brim__row_sink(void *user, const uint8_t *row, uint32_t y);

/* Pillow's gray of a colour, ITU-R 601 in 16 bits. */
static inline uint8_t brim__luma(uint32_t r, uint32_t g, uint32_t b) {
    return (uint8_t)((r * 19595 + g * 38470 + b * 7471 + 0x8000) >> 16);
}

#endif

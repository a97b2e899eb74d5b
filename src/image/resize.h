/*
 * resize.h: resampling row by row, equal to Pillow's bit for bit.
 *
 * Pillow resizes horizontally first, rounds to bytes, and then resizes vertically. Each axis is a
 * table of weights. So rows can be pushed in as they are decoded. Each is resampled horizontally at
 * once, and kept in a ring as long as the vertical kernel needs it. The memory is that of a few
 * rows, whatever the image.
 *
 *     row --(horizontal)--> ring of rows --(vertical)--> sink
 *
 * vertical_first exchanges the two (images much taller than wide; images that are stored
 * transposed). Only the requested window of the result is computed, and only from the rows and
 * columns of the input that it needs.
 */
#ifndef BRIM_RESIZE_H
#define BRIM_RESIZE_H

#include "image/image.h"

enum brim__filter {
    BRIM__NEAREST,
    BRIM__BOX,
    BRIM__BILINEAR,
    BRIM__BICUBIC,
    BRIM__LANCZOS,
};

/* One axis: `in` pixels, of which [from, to) become `out` pixels, of which `count`
 * beginning with `first` are wanted. */
struct brim__axis {
    uint32_t in, out;
    float from, to; /* as Pillow's box: 0 and `in` for all of it; of the mirrored input if so */
    uint32_t first, count;
    bool mirrored; /* the weights are those of the mirrored input, mirrored */
    bool flipped;  /* the wanted pixels are put out last first */
};

struct brim__resize {
    struct brim__axis x, y;
    enum brim__filter filter;
    uint32_t pixel; /* bytes: 1 or 4 */
    bool alpha;     /* the fourth byte is alpha: colours are weighted by it, as Pillow does */
    bool vertical_first;
};

/* Whether Pillow (13) resizes vertically first: the height shrinks by more than twice as many
 * pixels as the width does. The sizes are those of the whole image, even if only a box of it is
 * used. */
bool brim__resize_is_tall(uint32_t width, uint32_t height, uint32_t out_width, uint32_t out_height);

/* The input pixels [*first, *first + *count) of an axis that its wanted output needs. */
void brim__axis_needs(const struct brim__axis *axis, enum brim__filter filter, uint32_t *first,
                      uint32_t *count);

/* Bytes that a resizer needs at most for any input up to in_width x in_height, any
 * axis.out from the least sizes on, and any wanted count up to the window's. */
struct brim__resize_bounds {
    uint32_t in_width, in_height;
    uint32_t least_width, least_height;
    uint32_t window_width, window_height;
    enum brim__filter filter;
    bool vertical_first;
};
uint64_t brim__resize_memory(const struct brim__resize_bounds *bounds);

struct brim__resizer; /* lies at the begin of the memory */
/* memory: aligned to 64. The output rows go to `sink` with y = 0 .. y.count - 1, each once, not
 * necessarily in order. y is the row's place after any flip. */
brim_status brim__resize_begin(const struct brim__resize *resize, uint8_t *memory, uint64_t bytes,
                               brim__row_sink *sink, void *user, struct brim__resizer **resizer);
/* Takes the next row of the needed region of the input (brim__axis_needs of both axes), from the
 * top. Pixels beyond its end are not read. */
brim_status brim__resize_row(struct brim__resizer *resizer, const uint8_t *row);

/* tf.image.resize without antialias: half-pixel centres, float32, no rounding. Resizes a whole
 * image in memory to `out_width` x `out_height` x channels floats (channels: 1, 3 or 4 of the
 * pixel). Bilinear, bicubic (Keys, -0.5) and nearest. */
void brim__resize_plain(const struct brim__image *image, uint32_t channels, uint32_t out_width,
                        uint32_t out_height, enum brim__filter filter, float *out);

#endif

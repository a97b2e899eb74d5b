/*
 * kernels.h: the inner loops over pixels.
 *
 * One table for each instruction set; all variants give the same bits. No kernel reads
 * or writes beyond what its comment says, at any alignment. Input and output do not
 * overlap.
 */
#ifndef BRIM_IMAGE_KERNELS_H
#define BRIM_IMAGE_KERNELS_H

#include "base/cpu.h"
#include "image/image.h"

struct brim__weights;

struct brim__image_kernels {
    const char *name;

    /* Resampling (weights.h). across: makes weights->count pixels from a row; for each, twice
     * `pairs` pixels from its `first` on are read. down: makes `bytes` bytes from `taps` rows with
     * the halves of one output. If `taps` is odd there is one more row, with its weight. */
    void (*across4)(const uint8_t *row, uint8_t *out, const struct brim__weights *weights);
    void (*across1)(const uint8_t *row, uint8_t *out, const struct brim__weights *weights);
    void (*down)(const uint8_t *const *rows, uint32_t taps, const int16_t *halves, uint8_t *out,
                 size_t bytes);
    /* The same row by row, for outputs of many rows. The caller sets the sums to 0 first. */
    void (*add)(const uint8_t *row, int32_t weight, int32_t *sums, size_t bytes);
    void (*settle)(const int32_t *sums, uint8_t *out, size_t bytes);

    /* Pillow's RGBA to RGBa, and back in place. */
    void (*premultiply)(const uint8_t *from, uint8_t *to, size_t pixels);
    void (*unpremultiply)(uint8_t *row, size_t pixels);

    /* 4-byte pixels to 3 planes, `plane` elements apart: value * scale + bias in float32, each
     * rounded. `to` at any address. */
    void (*planes4)(const uint8_t *from, float *to, size_t plane, size_t pixels,
                    const float scale[3], const float bias[3]);
    /* 4-byte pixels to 3 or 4 planes of bytes. */
    void (*split4)(const uint8_t *from, uint8_t *to, size_t plane, size_t pixels,
                   uint32_t channels);
    void (*pack4)(const uint8_t *from, uint8_t *to, size_t pixels);   /* to 3 bytes */
    void (*unpack3)(const uint8_t *from, uint8_t *to, size_t pixels); /* to 4, the last 255 */
    void (*gray4)(const uint8_t *from, uint8_t *to, size_t pixels);   /* brim__luma */
    void (*reverse4)(const uint8_t *from, uint8_t *to, size_t pixels);
    void (*reverse1)(const uint8_t *from, uint8_t *to, size_t pixels);
};

extern const struct brim__image_kernels brim__image_kernels_scalar, brim__image_kernels_avx2;

/* Variant 0 is the scalar one; NULL for one that does not exist or that this CPU does not run. */
static inline const struct brim__image_kernels *brim__image_kernels_variant(size_t index) {
    static const struct brim__image_kernels *const variants[] =
        BRIM__CPU_VARIANTS(brim__image_kernels);
    return index < brim__cpu_variants() ? variants[index] : NULL;
}
/* The fastest that this CPU runs. */
static inline const struct brim__image_kernels *brim__image_kernels(void) {
    return brim__image_kernels_variant(brim__cpu_variants() - 1);
}

#endif

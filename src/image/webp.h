/*
 * webp.h: declarations for the files of the WebP decoder: where the image is in the file, and the
 * memory that libwebp will take for it.
 *
 *     RIFF [VP8X ...] [ALPH] VP8  [EXIF ...]          still, lossy
 *     RIFF [VP8X ...]        VP8L [EXIF ...]          still, lossless
 *     RIFF  VP8X ... ANMF( [ALPH] VP8 | VP8L ) ...    animated: the first frame
 */
#ifndef BRIM_WEBP_H
#define BRIM_WEBP_H

#include "image/decode.h"

struct brim__webp {
    uint32_t width, height;             /* of the canvas */
    uint32_t x, y;                      /* of the frame on it */
    uint32_t frame_width, frame_height; /* a still image covers the canvas */
    bool lossless;
    bool alpha; /* is to be looked at */
    bool plane; /* it stands in an ALPH chunk */
    /* what libwebp is given: from the first of ALPH and VP8 or VP8L, as it stands, to
     * the end of the data ... */
    uint64_t at, bytes;
    /* ... of VP8 or VP8L, which begins here */
    uint64_t data_at, data_bytes;
    /* the image of ALPH that is compressed as VP8L's are; 0 bytes if there is none */
    uint64_t alpha_at, alpha_bytes;
    uint64_t exif_at, exif_bytes; /* 0: none */
    bool truncated;               /* the file ends before the image does */
};

/* Images of this many pixels or more are decoded piece by piece. */
#define BRIM__WEBP_LARGE 1000000
static inline bool brim__webp_is_large(const struct brim__webp *webp) {
    return (uint64_t)webp->frame_width * webp->frame_height >= BRIM__WEBP_LARGE;
}

brim_status brim__webp_find(struct brim__input *input, bool exif, struct brim__webp *webp);

/* What libwebp takes for a lossless image at [at, at + bytes) of width x height pixels, at most.
 * `at` is after the image's own header. BRIM_STATUS_CORRUPT: it cannot be decoded. */
brim_status brim__webp_lossless_bytes(struct brim__input *input, uint64_t at, uint64_t bytes,
                                      uint32_t width, uint32_t height, uint64_t *taken);

#endif

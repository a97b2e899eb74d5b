/*
 * decode.h: from encoded bytes to rows of pixels: JPEG, PNG and WebP.
 *
 * First the header: what it is, how large, and what decoding it will need. It is
 * read by brim's own code, takes no memory, and refuses what no decoder would
 * take. Then the rows of a region. Everything that a library takes while it
 * decodes comes from `memory`, which the caller has sized by the header (info's
 * memory), so that no file can take more; what a library allocates by itself
 * (libwebp all, libjpeg 2 KB for a decoder) stays within info's outside.
 *
 *     input --brim__image_info--> size, format, memory, outside
 *     input --brim__image_decode(region)--> rows --> sink
 *
 * The pixels are those that Pillow gives for open(...).convert("RGB" | "RGBA" | "L").
 */
#ifndef BRIM_DECODE_H
#define BRIM_DECODE_H

#include "image/image.h"
#include "image/input.h"

enum brim__image_format { BRIM__IMAGE_NONE, BRIM__IMAGE_JPEG, BRIM__IMAGE_PNG, BRIM__IMAGE_WEBP };

struct brim__image_info {
    enum brim__image_format format;
    uint32_t width, height; /* as stored, before any orientation */
    uint8_t orientation;    /* EXIF, 1 to 8; 1 where there is none */
    bool whole;             /* held whole while it is decoded: progressive, interlaced, WebP */
    uint64_t memory;        /* bytes that decoding takes at most from `memory` */
    uint64_t outside;       /* bytes that the library takes by itself at most */
    /* JPEG: of the frame header */
    uint8_t components;
    uint8_t horizontal[4], vertical[4]; /* sampling factors */
    bool progressive;
};

/* What any of many images needs at most: what an index remembers of them. */
struct brim__image_bounds {
    uint32_t width, height; /* the largest of each, as stored */
    uint64_t pixels;        /* of the largest */
    uint64_t memory, outside;
    bool turned;      /* some have an orientation other than 1 */
    const char *most; /* the file whose memory + outside is the most ... */
    uint64_t needs;   /* ... and how much that is */
};
/* To be raised when the memory or outside of any image changes: what indexes remember
 * of an older version is then found out anew. */
#define BRIM__IMAGE_BOUNDS_VERSION 1
/* Widens the bounds by one image; true: it now needs the most of all. */
bool brim__image_bounds_add(struct brim__image_bounds *bounds, const struct brim__image_info *info);

/* "JPEG", "PNG", "WebP". */
const char *brim__image_format_name(enum brim__image_format format);

/* What the bytes are, whatever the file is called; sizes are checked: sides from 1
 * to BRIM__MAX_SIDE. BRIM_CORRUPT, with the reason, for anything that is no image.
 * orientation: also look for EXIF's, which may stand behind the size. Uses no
 * memory but the input's window. */
brim_status brim__image_info(struct brim__input *input, bool orientation,
                             struct brim__image_info *info);

struct brim__decoding {
    struct brim__input *input;
    const struct brim__image_info *info;
    enum brim__color color;
    uint32_t x, y, width, height; /* region of the stored image at that scale; inside it */
    uint32_t scale;               /* 1; JPEG also 2, 4, 8: the image is ceil(side / scale) */
    bool cheap;                   /* JPEG: chroma as boxes, not exact */
    bool rough;                   /* JPEG at scale 4 and 8: from few coefficients */
    bool damaged;                 /* take what can be had of damaged data */
    uint8_t *memory;              /* info->memory bytes, aligned to 64 */
    uint64_t memory_bytes;
};

/* Rows y = 0 .. height - 1 of the region, from top to bottom, width pixels each.
 * BRIM_CORRUPT for bad data; BRIM_BUDGET never: memory was sized before. */
brim_status brim__image_decode(const struct brim__decoding *decoding, brim__row_sink *sink,
                               void *user);

/* BRIM_CORRUPT unless both sides are from 1 to BRIM__MAX_SIDE. */
brim_status brim__image_check_size(const struct brim__image_info *info);

/* One for each format; decode.c chooses. */
brim_status brim__jpeg_info(struct brim__input *input, bool orientation,
                            struct brim__image_info *info);
brim_status brim__jpeg_decode(const struct brim__decoding *decoding, brim__row_sink *sink,
                              void *user);
brim_status brim__png_info(struct brim__input *input, bool orientation,
                           struct brim__image_info *info);
brim_status brim__png_decode(const struct brim__decoding *decoding, brim__row_sink *sink,
                             void *user);
brim_status brim__webp_info(struct brim__input *input, bool orientation,
                            struct brim__image_info *info);
brim_status brim__webp_decode(const struct brim__decoding *decoding, brim__row_sink *sink,
                              void *user);

/* The orientation in a TIFF header as EXIF holds it (II or MM ...): 1 to 8, and 1 for
 * whatever is not understood. Loops and offsets outside end the search. */
uint8_t brim__exif_orientation(const uint8_t *tiff, size_t bytes);

/* libraries.c: a hash of the versions of the libraries that decode. */
uint64_t brim__image_libraries(void);

#endif

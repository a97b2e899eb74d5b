/*
 * decode.h: decodes JPEG, PNG and WebP to rows of pixels.
 *
 * The first step reads the header: the format, the size, and the memory that decoding needs. brim's
 * own code does this, without memory, and refuses files that no decoder would accept. The second
 * step decodes the rows of a region. All memory that a library takes while it decodes comes from
 * `memory`, whose size the caller takes from the header (info's memory), so no file can take more.
 * Memory that a library allocates by itself (libwebp all of it, libjpeg 2 KB for a decoder) is at
 * most info's outside.
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

/* An index keeps bands of images by number of pixels. Each band records the most that any of its
 * images needs, so that a bound on pixels that is given later can leave out larger images. Band 0
 * ends at 65,536 pixels, and each third band doubles that. This is the format on disk:
 * docs/folder.md. */
#define BRIM__IMAGE_BANDS 49
struct brim__image_band {
    uint64_t images;          /* 0: all else is 0 too */
    uint64_t sample;          /* whose memory + outside is the most ... */
    uint64_t needs;           /* ... and how much that is */
    uint64_t memory, outside; /* the most of each */
    uint32_t least, pixels;   /* of the smallest and of the largest image */
    uint16_t width, height;   /* the greatest of each, as stored */
    uint16_t turned;          /* 1: some have an orientation other than 1 */
    uint16_t zero;
};
_Static_assert(sizeof(struct brim__image_band) == 56, "56 bytes on disk");
/* To be raised when the memory or outside of any image changes. Bands of an older version are then
 * computed again. */
#define BRIM__IMAGE_BOUNDS_VERSION 2
void brim__image_bands_add(struct brim__image_band bands[BRIM__IMAGE_BANDS],
                           const struct brim__image_info *info, uint64_t sample);
/* Whether this can be a band of images among `samples` samples, with every size below `most`
 * bytes. */
bool brim__image_band_plausible(const struct brim__image_band *band, uint32_t number,
                                uint64_t samples, uint64_t most);

/* The bands that have images, in ascending order of pixels. */
struct brim__image_survey {
    const struct brim__image_band *band;
    uint32_t count; /* at least 1 */
};
/* The most that any of the images of at most this many pixels needs. */
struct brim__image_bounds {
    uint64_t images;        /* 0: there is none, and all up to `over` is 0 */
    uint32_t width, height; /* the largest of each, as stored */
    uint64_t pixels;        /* of the largest */
    uint64_t memory, outside;
    bool turned;          /* some have an orientation other than 1 */
    uint64_t sample;      /* whose memory + outside is the most ... */
    uint64_t needs;       /* ... and how much that is */
    uint64_t over;        /* images that have more pixels, at least ... */
    uint64_t over_sample; /* ... and one of them */
};
/* A band that contains the bound counts as a whole, because it does not record the needs of single
 * images. Memory is then planned for images of up to a third more pixels. */
struct brim__image_bounds brim__image_bounds_within(const struct brim__image_survey *survey,
                                                    uint64_t most_pixels);

/* "JPEG", "PNG", "WebP". */
const char *brim__image_format_name(enum brim__image_format format);

/* Reads the header, whatever the file is called. Sides must be from 1 to BRIM__MAX_SIDE.
 * BRIM_STATUS_CORRUPT, with the reason, for anything that is no image. orientation: also search for
 * EXIF's orientation, which may come after the size. Uses only the memory of the input's window. */
brim_status brim__image_info(struct brim__input *input, bool orientation,
                             struct brim__image_info *info);

/* The most scans of a JPEG that has as many pixels as are allowed; a smaller image may have more in
 * proportion. Usual files have 10 to 12 scans, optimised ones some dozens. */
#define BRIM__IMAGE_SCANS 24
/* The default bound on pixels of `decode`. Pillow refuses images above it: twice its
 * MAX_IMAGE_PIXELS. */
#define BRIM__IMAGE_PIXELS 178956970

struct brim__decoding {
    struct brim__input *input; /* its stop ends the decoding with BRIM_STATUS_INTERRUPTED */
    const struct brim__image_info *info;
    enum brim__color color;
    uint32_t x, y, width, height; /* region of the stored image at that scale; inside it */
    uint32_t scale;               /* 1; JPEG also 2, 4, 8: the image is ceil(side / scale) */
    bool cheap;                   /* JPEG: chroma as boxes, not exact */
    bool rough;                   /* JPEG at scale 4 and 8: from few coefficients */
    bool damaged;                 /* use the good part of damaged data */
    uint64_t most_work;           /* JPEG: scans times pixels; 0: any */
    uint8_t *memory;              /* info->memory bytes, aligned to 64 */
    uint64_t memory_bytes;
};

/* Passes rows y = 0 .. height - 1 of the region to the sink, from top to bottom, width pixels each.
 * BRIM_STATUS_CORRUPT: the data is bad. Never BRIM_STATUS_BUDGET, because the memory was sized
 * before. */
brim_status brim__image_decode(const struct brim__decoding *decoding, brim__row_sink *sink,
                               void *user);

/* BRIM_STATUS_CORRUPT unless both sides are from 1 to BRIM__MAX_SIDE. */
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

/* The orientation in the TIFF header of EXIF data (II or MM ...): 1 to 8, and 1 for everything that
 * is not understood. Loops, and offsets outside the data, end the search. */
uint8_t brim__exif_orientation(const uint8_t *tiff, size_t bytes);

/* libraries.c: a hash of the versions of the libraries that decode. */
uint64_t brim__image_libraries(void);

#endif

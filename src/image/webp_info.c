/*
 * webp_info.c: finds the image in a WebP file, and the memory that it needs.
 *
 * The file is a list of chunks (RIFF); only those of the image and its EXIF matter. Of an animation
 * the first frame is found, at its position on the canvas. The number of chunks is limited, so that
 * no file can keep a reader busy.
 */
#include "image/webp.h"

#define HEADER      8     /* bytes of a chunk before its data */
#define MOST_CHUNKS 65536 /* EXIF comes after all frames of an animation, a chunk each */

#define FLAG_ANIMATED 0x02
#define FLAG_EXIF     0x08
#define FLAG_ALPHA    0x10

/* The memory that libwebp 1.2.4 takes for a lossy image: its decoder, and memory in proportion to
 * the width (a row of blocks of 16 x 16 with their borders and coefficients, 2,000 bytes for each
 * block, and 2 for each pixel while chroma is enlarged). No measurement, over its test files and
 * generated ones, was above this. */
#define LOSSY_BYTES (16 * 1024)
#define BLOCK_BYTES 2304
/* The further memory that it takes to continue after a piece of the data: its own state, and a copy
 * of the cache of colours. */
#define PIECES_BYTES (16 * 1024)

static uint32_t read_u24(const uint8_t *data) {
    return (uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16;
}

static uint32_t read_u32(const uint8_t *data) {
    return read_u24(data) | (uint32_t)data[3] << 24;
}

/* A way through the chunks. */
struct walk {
    struct brim__input *input;
    uint32_t chunks; /* passed so far */
};

struct chunk {
    char name[5];
    uint64_t at;    /* of its name */
    uint64_t data;  /* of its data */
    uint64_t bytes; /* of its data, as far as they are there */
    uint64_t next;  /* of the chunk after it */
    bool cut;       /* some of its data is not there */
};

/* The chunk at `at`, inside of what ends at `end`. */
static brim_status read_chunk(struct walk *walk, uint64_t at, uint64_t end, struct chunk *chunk) {
    const uint8_t *data;
    if (++walk->chunks > MOST_CHUNKS) {
        return brim__fail(BRIM_STATUS_CORRUPT, "WebP: it has more than %d chunks: a chunk bomb",
                          MOST_CHUNKS);
    }
    if (end < at || end - at < HEADER) {
        return brim__fail(BRIM_STATUS_CORRUPT, "WebP: ends after %llu bytes, before its image",
                          (unsigned long long)end);
    }
    const brim_status status = brim__input_at(walk->input, at, HEADER, &data);
    if (status != BRIM_OK) {
        return status;
    }
    const uint64_t bytes = read_u32(data + 4);
    *chunk = (struct chunk){ .at = at, .data = at + HEADER };
    memcpy(chunk->name, data, 4);
    chunk->bytes = brim__min(bytes, end - chunk->data);
    chunk->cut = chunk->bytes < bytes;
    chunk->next = chunk->data + bytes + (bytes & 1);
    return BRIM_OK;
}

static bool is(const struct chunk *chunk, const char *name) {
    return memcmp(chunk->name, name, 4) == 0;
}

static brim_status read_lossy(struct brim__input *input, const struct chunk *chunk,
                              struct brim__webp *webp) {
    const uint8_t *data;
    if (chunk->bytes < 10) {
        return brim__fail(BRIM_STATUS_CORRUPT, "WebP: its image data has only %llu bytes",
                          (unsigned long long)chunk->bytes);
    }
    const brim_status status = brim__input_at(input, chunk->data, 10, &data);
    if (status != BRIM_OK) {
        return status;
    }
    if ((data[0] & 1) != 0 || memcmp(data + 3, "\x9d\x01\x2a", 3) != 0) {
        return brim__fail(BRIM_STATUS_CORRUPT, "WebP: byte %llu begins no VP8 image",
                          (unsigned long long)chunk->data);
    }
    webp->frame_width = (uint32_t)(data[6] | data[7] << 8) & 0x3fff;
    webp->frame_height = (uint32_t)(data[8] | data[9] << 8) & 0x3fff;
    return BRIM_OK;
}

static brim_status read_lossless(struct brim__input *input, const struct chunk *chunk,
                                 struct brim__webp *webp) {
    const uint8_t *data;
    if (chunk->bytes < 5) {
        return brim__fail(BRIM_STATUS_CORRUPT, "WebP: its image data has only %llu bytes",
                          (unsigned long long)chunk->bytes);
    }
    const brim_status status = brim__input_at(input, chunk->data, 5, &data);
    if (status != BRIM_OK) {
        return status;
    }
    const uint32_t fields = read_u32(data + 1);
    if (data[0] != 0x2f || fields >> 29 != 0) {
        return brim__fail(BRIM_STATUS_CORRUPT, "WebP: byte %llu begins no lossless image",
                          (unsigned long long)chunk->data);
    }
    webp->frame_width = (fields & 0x3fff) + 1;
    webp->frame_height = (fields >> 14 & 0x3fff) + 1;
    webp->alpha = (fields >> 28 & 1) != 0;
    webp->lossless = true;
    return BRIM_OK;
}

/* Finds the image among the chunks of [at, end); *next: after it. */
static brim_status find_image(struct walk *walk, uint64_t at, uint64_t end, struct brim__webp *webp,
                              uint64_t *next) {
    struct chunk chunk;
    webp->at = 0;
    for (;; at = chunk.next) {
        brim_status status = read_chunk(walk, at, end, &chunk);
        if (status != BRIM_OK) {
            return status;
        }
        const bool lossless = is(&chunk, "VP8L");
        if (is(&chunk, "ALPH") && webp->at == 0) {
            const uint8_t *data;
            webp->at = at;
            webp->alpha = true;
            status = brim__input_at(walk->input, chunk.data, chunk.bytes > 0, &data);
            if (status != BRIM_OK) {
                return status;
            }
            if (chunk.bytes > 0 && (data[0] & 3) == 1) {
                webp->alpha_at = chunk.data + 1;
                webp->alpha_bytes = chunk.bytes - 1;
            }
        } else if (lossless || is(&chunk, "VP8 ")) {
            webp->plane = webp->at != 0 && !lossless;
            webp->at = webp->plane ? webp->at : at;
            webp->bytes = chunk.data + chunk.bytes - webp->at;
            webp->data_at = chunk.data;
            webp->data_bytes = chunk.bytes;
            webp->truncated = webp->truncated || chunk.cut;
            *next = chunk.next;
            return (lossless ? read_lossless : read_lossy)(walk->input, &chunk, webp);
        }
    }
}

/* The first frame of an animation. */
static brim_status find_frame(struct walk *walk, uint64_t at, uint64_t end, struct brim__webp *webp,
                              uint64_t *next) {
    struct chunk chunk;
    const uint8_t *data;
    uint64_t behind;
    do {
        const brim_status status = read_chunk(walk, at, end, &chunk);
        if (status != BRIM_OK) {
            return status;
        }
        at = chunk.next;
    } while (!is(&chunk, "ANMF"));
    *next = chunk.next;
    if (chunk.bytes < 16) {
        return brim__fail(BRIM_STATUS_CORRUPT, "WebP: the frame at byte %llu has only %llu bytes",
                          (unsigned long long)chunk.at, (unsigned long long)chunk.bytes);
    }
    brim_status status = brim__input_at(walk->input, chunk.data, 16, &data);
    if (status != BRIM_OK) {
        return status;
    }
    webp->x = 2 * read_u24(data);
    webp->y = 2 * read_u24(data + 3);
    const uint32_t width = read_u24(data + 6) + 1, height = read_u24(data + 9) + 1;
    const bool alpha = webp->alpha; /* the canvas's counts */
    status = find_image(walk, chunk.data + 16, chunk.data + chunk.bytes, webp, &behind);
    webp->alpha = alpha;
    if (status == BRIM_OK &&
        (width != webp->frame_width || height != webp->frame_height ||
         (uint64_t)webp->x + width > webp->width || (uint64_t)webp->y + height > webp->height)) {
        return brim__fail(
            BRIM_STATUS_CORRUPT,
            "WebP: a frame of %u x %u pixels at %u, %u holds an image of %u x %u on a "
            "canvas of %u x %u",
            width, height, webp->x, webp->y, webp->frame_width, webp->frame_height, webp->width,
            webp->height);
    }
    return status;
}

static brim_status find_exif(struct walk *walk, uint64_t at, uint64_t end,
                             struct brim__webp *webp) {
    while (at < end && end - at >= HEADER) {
        struct chunk chunk;
        const brim_status status = read_chunk(walk, at, end, &chunk);
        if (status != BRIM_OK) {
            return status;
        }
        if (is(&chunk, "EXIF")) {
            webp->exif_at = chunk.data;
            webp->exif_bytes = chunk.bytes;
            return BRIM_OK;
        }
        at = chunk.next;
    }
    return BRIM_OK;
}

brim_status brim__webp_find(struct brim__input *input, bool exif, struct brim__webp *webp) {
    const uint8_t *data;
    struct walk walk = { .input = input };
    struct chunk chunk;
    uint64_t next;
    *webp = (struct brim__webp){ 0 };
    brim_status status = brim__input_at(input, 0, 12, &data);
    if (status != BRIM_OK) {
        return status;
    }
    const uint64_t riff_end = HEADER + (uint64_t)read_u32(data + 4);
    const uint64_t end = brim__min(riff_end, input->bytes);
    webp->truncated = end < riff_end;
    status = read_chunk(&walk, 12, end, &chunk);
    if (status != BRIM_OK) {
        return status;
    }
    if (!is(&chunk, "VP8X")) {
        status = find_image(&walk, 12, end, webp, &next);
        webp->width = webp->frame_width;
        webp->height = webp->frame_height;
        return status;
    }
    if (chunk.bytes < 10) {
        return brim__fail(BRIM_STATUS_CORRUPT, "WebP: its VP8X chunk has only %llu bytes",
                          (unsigned long long)chunk.bytes);
    }
    status = brim__input_at(input, chunk.data, 10, &data);
    if (status != BRIM_OK) {
        return status;
    }
    const uint8_t flags = data[0];
    webp->width = read_u24(data + 4) + 1;
    webp->height = read_u24(data + 7) + 1;
    webp->alpha = (flags & FLAG_ALPHA) != 0;
    if ((flags & FLAG_ANIMATED) != 0) {
        status = find_frame(&walk, chunk.next, end, webp, &next);
    } else {
        status = find_image(&walk, chunk.next, end, webp, &next);
        if (status == BRIM_OK &&
            (webp->width != webp->frame_width || webp->height != webp->frame_height)) {
            return brim__fail(BRIM_STATUS_CORRUPT,
                              "WebP: an image of %u x %u pixels on a canvas of %u x %u",
                              webp->frame_width, webp->frame_height, webp->width, webp->height);
        }
    }
    return status == BRIM_OK && exif && (flags & FLAG_EXIF) != 0 ? find_exif(&walk, next, end, webp)
                                                                 : status;
}

static uint8_t read_orientation(struct brim__input *input, const struct brim__webp *webp) {
    const uint8_t *data;
    const size_t bytes = (size_t)brim__min(webp->exif_bytes, BRIM__INPUT_WINDOW);
    if (bytes < 6 || brim__input_at(input, webp->exif_at, bytes, &data) != BRIM_OK) {
        return 1;
    }
    const size_t skipped = memcmp(data, "Exif\0\0", 6) == 0 ? 6 : 0; /* some writers copy it */
    return brim__exif_orientation(data + skipped, bytes - skipped);
}

brim_status brim__webp_info(struct brim__input *input, bool orientation,
                            struct brim__image_info *info) {
    struct brim__webp webp;
    uint64_t lossless = 0;
    brim_status status = brim__webp_find(input, orientation, &webp);
    if (status != BRIM_OK) {
        return status;
    }
    info->width = webp.width;
    info->height = webp.height;
    status = brim__image_check_size(info);
    if (status != BRIM_OK) {
        return status;
    }
    const uint64_t pixels = (uint64_t)webp.frame_width * webp.frame_height;
    if (pixels == 0) {
        return brim__fail(BRIM_STATUS_CORRUPT, "WebP: its image is %u x %u pixels",
                          webp.frame_width, webp.frame_height);
    }
    if (webp.lossless) {
        status = brim__webp_lossless_bytes(input, webp.data_at + 5, webp.data_bytes - 5,
                                           webp.frame_width, webp.frame_height, &lossless);
        info->outside = lossless;
    } else {
        info->outside = LOSSY_BYTES + BLOCK_BYTES * brim__divide_up(webp.frame_width, 16);
        if (webp.plane) {
            info->outside += 2 * pixels; /* as it is stored, and as it is shown */
        }
        if (webp.alpha_bytes > 0) {
            status = brim__webp_lossless_bytes(input, webp.alpha_at, webp.alpha_bytes,
                                               webp.frame_width, webp.frame_height, &lossless);
            info->outside += lossless;
        }
    }
    if (status != BRIM_OK) {
        return status;
    }
    info->outside += brim__webp_is_large(&webp) ? PIECES_BYTES : 0;
    info->orientation = orientation ? read_orientation(input, &webp) : 1;
    info->whole = true;
    info->memory = (input->memory != NULL ? 0 : brim__align(webp.bytes, BRIM__CACHE_LINE)) +
                   brim__align(4 * pixels, BRIM__CACHE_LINE) + 4 * (uint64_t)webp.width;
    return BRIM_OK;
}

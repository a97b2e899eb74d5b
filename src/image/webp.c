/*
 * webp.c: the pixels of a WebP, by libwebp.
 *
 * libwebp decodes from memory to memory, so the encoded image is read into the
 * caller's first, unless it lies in memory already:
 *
 *     | encoded image | pixels of the region's surroundings | a row |
 *
 * libwebp decodes only what the region needs. At the edges of the decoded part it enlarges chroma
 * without the neighbouring pixels, so two more pixels on each side are decoded to make the region
 * equal to that of the whole image. If alpha is separate, rows and columns before the region are
 * decoded too, because libwebp 1.2.4 filters alpha wrongly otherwise. webp_info.c bounds the memory
 * that libwebp allocates by itself; it uses no threads.
 *
 * A large image is given to libwebp piece by piece, so that decoding can be interrupted in between.
 *
 * Pixels are Pillow's: the first frame of an animation on a canvas of transparent
 * black. MASK is the gray of the colours, which of a gray image is its value.
 */
#include "image/webp.h"

#include <webp/decode.h>

#define MARGIN       2
#define PIECE_PIXELS BRIM__WEBP_LARGE /* about as many are decoded from one piece */

struct region {
    uint32_t x, y, width, height; /* of the frame */
};

/* The part of the frame that is decoded for `count` pixels of the canvas from `from` on. Its begin
 * is even, because libwebp rounds it down to an even number. false: no part of the frame is
 * needed. */
static bool cut(uint32_t from, uint32_t count, uint32_t frame_from, uint32_t frame_count,
                uint32_t *begin, uint32_t *size) {
    if (from >= frame_from + frame_count || from + count <= frame_from) {
        return false;
    }
    const uint32_t first = from > frame_from ? from - frame_from : 0;
    const uint32_t end = (uint32_t)brim__min(from + count - frame_from + MARGIN, frame_count);
    *begin = (first > MARGIN ? first - MARGIN : 0) & ~1u;
    *size = end - *begin;
    return true;
}

static const char *explain(VP8StatusCode code) {
    switch (code) {
    case VP8_STATUS_OUT_OF_MEMORY:
        return "the system refused memory";
    case VP8_STATUS_BITSTREAM_ERROR:
        return "the data is damaged";
    case VP8_STATUS_UNSUPPORTED_FEATURE:
        return "the data has a feature that is not supported";
    case VP8_STATUS_SUSPENDED:
    case VP8_STATUS_NOT_ENOUGH_DATA:
        return "the data ends too early";
    default:
        return "libwebp refused it";
    }
}

static bool is_zero(const uint8_t *data, size_t bytes) {
    size_t i = 0;
    while (i < bytes && data[i] == 0) {
        i++;
    }
    return i == bytes;
}

/* The same as WebPDecode, but checks for a stop between pieces. *stopped: a stop was requested.
 * `height`: of the region. */
static VP8StatusCode decode_pieces(const struct brim__decoding *decoding,
                                   const struct brim__webp *webp, WebPDecoderConfig *config,
                                   const uint8_t *encoded, uint32_t height, bool *stopped) {
    const uint64_t pixels = (uint64_t)webp->frame_width * webp->frame_height;
    const uint64_t pieces = brim__divide_up(pixels, PIECE_PIXELS);
    uint64_t piece = brim__max(1, webp->bytes / pieces);
    int rows = 0; /* of the region, decoded so far */
    WebPIDecoder *decoder = WebPIDecode(NULL, 0, config);
    VP8StatusCode code = decoder == NULL ? VP8_STATUS_OUT_OF_MEMORY : VP8_STATUS_SUSPENDED;
    for (uint64_t shown = 0; code == VP8_STATUS_SUSPENDED && shown < webp->bytes && !*stopped;) {
        shown = brim__min(shown + piece, webp->bytes);
        code = WebPIUpdate(decoder, encoded, shown);
        (void)WebPIDecGetRGB(decoder, &rows, NULL, NULL, NULL);
        if (rows >= (int)height) {
            code = VP8_STATUS_OK; /* WebPDecode ignores the data below the region too */
        } else if (webp->lossless && rows == 0) {
            piece *= 2; /* libwebp starts an incomplete header again with each piece */
        }
        *stopped = brim__stopped(decoding->input->stop);
    }
    if (decoder != NULL) {
        WebPIDelete(decoder);
    }
    /* libwebp's own abort, for which WebPDecode returns the error of the damaged data */
    return code == VP8_STATUS_USER_ABORT ? VP8_STATUS_BITSTREAM_ERROR : code;
}

static brim_status decode_region(const struct brim__decoding *decoding,
                                 const struct brim__webp *webp, const struct region *region,
                                 const uint8_t *encoded, uint8_t *pixels) {
    WebPDecoderConfig config;
    const uint64_t bytes = 4 * (uint64_t)region->width * region->height;
    if (!WebPInitDecoderConfig(&config)) {
        return brim__fail(BRIM_STATUS_UNSUPPORTED,
                          "the libwebp that is loaded is not the one that brim "
                          "was built with");
    }
    config.options.use_cropping = 1;
    config.options.crop_left = (int)region->x;
    config.options.crop_top = (int)region->y;
    config.options.crop_width = (int)region->width;
    config.options.crop_height = (int)region->height;
    config.output.colorspace = MODE_RGBA;
    config.output.is_external_memory = 1;
    config.output.u.RGBA.rgba = pixels;
    config.output.u.RGBA.stride = (int)(4 * region->width);
    config.output.u.RGBA.size = bytes;
    uint64_t skipped = 0;
    if (decoding->damaged) {
        memset(pixels, 0, bytes);
        /* with a chunk header, libwebp refuses an image that ends too early; without one it decodes
         * what is there */
        skipped = webp->truncated ? webp->data_at - webp->at : 0;
    }
    VP8StatusCode code;
    bool stopped = false;
    if (brim__webp_is_large(webp) && !decoding->damaged) {
        code = decode_pieces(decoding, webp, &config, encoded, region->height, &stopped);
    } else {
        code = WebPDecode(encoded + skipped, webp->bytes - skipped, &config);
    }
    WebPFreeDecBuffer(&config.output);
    if (stopped) {
        return brim__interrupted();
    }
    if (code == VP8_STATUS_OUT_OF_MEMORY) {
        return brim__fail(BRIM_STATUS_MEMORY, "WebP: %s; its decoder takes up to %llu bytes",
                          explain(code), (unsigned long long)decoding->info->outside);
    }
    /* if the data is damaged, the rows that were decoded are used, if there are any */
    if (code != VP8_STATUS_OK && (!decoding->damaged || is_zero(pixels, 4 * region->width))) {
        return brim__fail(BRIM_STATUS_CORRUPT, "WebP: the image at byte %llu cannot be decoded: %s",
                          (unsigned long long)webp->at, explain(code));
    }
    return BRIM_OK;
}

/* Makes a row of the region: decoded pixels inside the frame, 0 outside. */
static void convert(const struct brim__decoding *decoding, const struct brim__webp *webp,
                    const struct region *region, const uint8_t *pixels, uint32_t y, uint8_t *row) {
    const uint32_t pixel = brim__color_pixel(decoding->color);
    const uint64_t left = webp->x + region->x; /* of the decoded ones, on the canvas */
    const uint64_t top = webp->y + region->y;
    const uint64_t begin = brim__max(left, decoding->x);
    const uint64_t end = brim__min(left + region->width, (uint64_t)decoding->x + decoding->width);
    if (y < top || y - top >= region->height || begin >= end) {
        memset(row, 0, (size_t)pixel * decoding->width);
    } else {
        const uint8_t *from = pixels + 4 * ((y - top) * region->width + (begin - left));
        uint8_t *to = row + (begin - decoding->x) * pixel;
        const size_t count = (size_t)(end - begin);
        if (count < decoding->width) {
            memset(row, 0, (size_t)pixel * decoding->width);
        }
        if (pixel == 4) {
            memcpy(to, from, 4 * count);
        } else {
            for (size_t i = 0; i < count; i++, from += 4) {
                to[i] = brim__luma(from[0], from[1], from[2]);
            }
        }
    }
    if (pixel == 4 && (decoding->color == BRIM__RGB || !webp->alpha)) {
        for (uint32_t i = 0; i < decoding->width; i++) {
            row[4 * (size_t)i + 3] = 255;
        }
    }
}

static brim_status read_all(struct brim__input *input, const struct brim__webp *webp, uint8_t *to) {
    uint64_t left = webp->bytes;
    brim__input_seek(input, webp->at);
    while (left > 0) {
        const uint8_t *data;
        size_t bytes;
        const brim_status status = brim__input_next(input, &data, &bytes);
        if (status != BRIM_OK) {
            return status;
        }
        const size_t piece = (size_t)brim__min(bytes, left);
        assert(piece > 0);
        memcpy(to, data, piece);
        to += piece;
        left -= piece;
    }
    return BRIM_OK;
}

brim_status brim__webp_decode(const struct brim__decoding *decoding, brim__row_sink *sink,
                              void *user) {
    struct brim__input *input = decoding->input;
    struct brim__webp webp;
    brim_status status = brim__webp_find(input, false, &webp);
    if (status != BRIM_OK) {
        return status;
    }
    if (webp.truncated && !decoding->damaged) {
        return brim__fail(BRIM_STATUS_CORRUPT, "WebP: ends after %llu bytes, before its image does",
                          (unsigned long long)input->bytes);
    }
    const uint64_t frame = 4 * (uint64_t)webp.frame_width * webp.frame_height;
    const uint64_t held = input->memory != NULL ? 0 : brim__align(webp.bytes, BRIM__CACHE_LINE);
    uint8_t *const pixels = decoding->memory + held;
    uint8_t *const row = pixels + brim__align(frame, BRIM__CACHE_LINE);
    if (webp.width != decoding->info->width || webp.height != decoding->info->height ||
        held + brim__align(frame, BRIM__CACHE_LINE) + 4 * (uint64_t)webp.width >
            decoding->memory_bytes) {
        return brim__fail(BRIM_STATUS_CORRUPT, "WebP: its header changed while it was read");
    }
    struct region region = { 0 };
    if (cut(decoding->x, decoding->width, webp.x, webp.frame_width, &region.x, &region.width) &&
        cut(decoding->y, decoding->height, webp.y, webp.frame_height, &region.y, &region.height)) {
        if (webp.plane) {
            region = (struct region){ 0, 0, webp.frame_width, region.y + region.height };
        }
        const uint8_t *encoded = input->memory != NULL ? input->memory + webp.at : decoding->memory;
        if (input->memory == NULL) {
            status = read_all(input, &webp, decoding->memory);
        }
        if (status == BRIM_OK) {
            status = decode_region(decoding, &webp, &region, encoded, pixels);
        }
    } else {
        region = (struct region){ 0 };
    }
    for (uint32_t y = 0; y < decoding->height && status == BRIM_OK; y++) {
        if (brim__stopped(input->stop)) {
            return brim__interrupted();
        }
        convert(decoding, &webp, &region, pixels, decoding->y + y, row);
        status = sink(user, row, y);
    }
    return status;
}

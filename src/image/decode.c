/*
 * decode.c: chooses the decoder of an image.
 *
 * The bytes decide, never the name: some data sets have PNG files with names in .JPEG. If a file
 * cannot be decoded, the message names its format if that is known. Sizes and regions are checked
 * here for all formats.
 */
#include "image/decode.h"

#include <stdio.h>

#define SNIFFED 16 /* bytes that tell one format from the other */

const char *brim__image_format_name(enum brim__image_format format) {
    switch (format) {
    case BRIM__IMAGE_JPEG:
        return "JPEG";
    case BRIM__IMAGE_PNG:
        return "PNG";
    case BRIM__IMAGE_WEBP:
        return "WebP";
    default:
        return "no image";
    }
}

struct magic {
    uint8_t offset, bytes;
    char magic[10];
    const char *name;
};

static const struct magic others[] = {
    { 0, 4, "GIF8", "a GIF" },
    { 0, 2, "BM", "a BMP" },
    { 0, 4, "II*\0", "a TIFF" },
    { 0, 4, "MM\0*", "a TIFF" },
    { 4, 8, "ftypavif", "an AVIF" },
    { 4, 8, "ftypavis", "an AVIF" },
    { 4, 8, "ftypheic", "a HEIC" },
    { 4, 8, "ftypheix", "a HEIC" },
    { 4, 8, "ftypmif1", "a HEIF" },
    { 4, 4, "ftyp", "a video or another ISO media file" },
    { 0, 2, "\xff\x0a", "a JPEG XL" },
    { 0, 8, "\0\0\0\x0cJXL ", "a JPEG XL" },
    { 0, 8, "\0\0\0\x0cjP  ", "a JPEG 2000" },
    { 0, 4, "\xff\x4f\xff\x51", "a JPEG 2000" },
    { 0, 4, "\x89PNG", "a PNG whose line ends were changed in transfer" },
    { 0, 4, "8BPS", "a Photoshop file" },
    { 0, 4, "%PDF", "a PDF" },
    { 0, 5, "<?xml", "XML or SVG" },
    { 0, 4, "<svg", "an SVG" },
    { 0, 5, "<html", "an HTML page" },
    { 0, 5, "<HTML", "an HTML page" },
    { 0, 9, "<!DOCTYPE", "an HTML page" },
    { 0, 9, "<!doctype", "an HTML page" },
    { 0, 2, "\x1f\x8b", "gzip" },
    { 0, 4, "PK\x03\x04", "a zip" },
    { 0, 4, "RIFF", "a RIFF file that is not a WebP" },
};

static const char *name_other(const uint8_t *data, size_t bytes) {
    for (size_t i = 0; i < BRIM__COUNT(others); i++) {
        const struct magic *other = &others[i];
        if (bytes >= (size_t)other->offset + other->bytes &&
            memcmp(data + other->offset, other->magic, other->bytes) == 0) {
            return other->name;
        }
    }
    if (bytes >= 3 && data[0] == 'P' && data[1] >= '1' && data[1] <= '7' &&
        (data[2] == '\n' || data[2] == '\r' || data[2] == ' ' || data[2] == '\t')) {
        return "a PNM";
    }
    for (size_t i = 0; i < bytes; i++) {
        if (data[i] != 0) {
            return NULL;
        }
    }
    return "zeros";
}

static brim_status refuse(const uint8_t *data, size_t bytes) {
    char begin[3 * 4 + 1] = "";
    const size_t shown = bytes < 4 ? bytes : 4;
    if (bytes == 0) {
        return brim__fail(BRIM_STATUS_CORRUPT, "is not a JPEG, PNG or WebP image: it is empty");
    }
    for (size_t i = 0; i < shown; i++) {
        (void)snprintf(begin + 3 * i, 4, " %02x", data[i]);
    }
    const char *name = name_other(data, bytes);
    return brim__fail(BRIM_STATUS_CORRUPT, "is not a JPEG, PNG or WebP image (begins with%s%s%s)",
                      begin, name == NULL ? "" : ", ", name == NULL ? "" : name);
}

static enum brim__image_format sniff(const uint8_t *data, size_t bytes) {
    if (bytes >= 3 && memcmp(data, "\xff\xd8\xff", 3) == 0) {
        return BRIM__IMAGE_JPEG;
    }
    if (bytes >= 8 && memcmp(data, "\x89PNG\r\n\x1a\n", 8) == 0) {
        return BRIM__IMAGE_PNG;
    }
    if (bytes >= 12 && memcmp(data, "RIFF", 4) == 0 && memcmp(data + 8, "WEBP", 4) == 0) {
        return BRIM__IMAGE_WEBP;
    }
    return BRIM__IMAGE_NONE;
}

brim_status brim__image_check_size(const struct brim__image_info *info) {
    if (info->width == 0 || info->height == 0 || info->width > BRIM__MAX_SIDE ||
        info->height > BRIM__MAX_SIDE) {
        return brim__fail(
            BRIM_STATUS_CORRUPT, "is a %s image of %u x %u pixels; sides may be 1 to %u",
            brim__image_format_name(info->format), info->width, info->height, BRIM__MAX_SIDE);
    }
    return BRIM_OK;
}

brim_status brim__image_info(struct brim__input *input, bool orientation,
                             struct brim__image_info *info) {
    const size_t bytes = (size_t)brim__min(input->bytes, SNIFFED);
    struct brim__image_info found = { .orientation = 1 };
    const uint8_t *data;
    brim_status status = brim__input_at(input, 0, bytes, &data);
    if (status != BRIM_OK) {
        return status;
    }
    switch (sniff(data, bytes)) {
    case BRIM__IMAGE_JPEG:
        found.format = BRIM__IMAGE_JPEG;
        status = brim__jpeg_info(input, orientation, &found);
        break;
    case BRIM__IMAGE_PNG:
        found.format = BRIM__IMAGE_PNG;
        status = brim__png_info(input, orientation, &found);
        break;
    case BRIM__IMAGE_WEBP:
        found.format = BRIM__IMAGE_WEBP;
        status = brim__webp_info(input, orientation, &found);
        break;
    default:
        return refuse(data, bytes);
    }
    if (status != BRIM_OK) {
        return status;
    }
    status = brim__image_check_size(&found);
    if (status != BRIM_OK) {
        return status;
    }
    *info = found;
    return BRIM_OK;
}

brim_status brim__image_decode(const struct brim__decoding *decoding, brim__row_sink *sink,
                               void *user) {
    const struct brim__image_info *info = decoding->info;
    const uint32_t scale = decoding->scale;
    assert(scale == 1 ||
           (info->format == BRIM__IMAGE_JPEG && (scale == 2 || scale == 4 || scale == 8)));
    const uint64_t width = brim__divide_up(info->width, scale);
    const uint64_t height = brim__divide_up(info->height, scale);
    assert(decoding->width > 0 && decoding->height > 0);
    assert((uint64_t)decoding->x + decoding->width <= width);
    assert((uint64_t)decoding->y + decoding->height <= height);
    assert(decoding->memory_bytes >= info->memory);
    (void)width, (void)height;
    switch (info->format) {
    case BRIM__IMAGE_JPEG:
        return brim__jpeg_decode(decoding, sink, user);
    case BRIM__IMAGE_PNG:
        return brim__png_decode(decoding, sink, user);
    case BRIM__IMAGE_WEBP:
        return brim__webp_decode(decoding, sink, user);
    default:
        return brim__fail(BRIM_STATUS_INVALID, "no image was found to decode");
    }
}

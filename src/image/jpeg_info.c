/*
 * jpeg_info.c: the header of a JPEG file.
 *
 * A JPEG is a chain of segments: FF, a marker, and for most of them a length of two bytes and that
 * much data. The header ends with the first SOS, after which the pixels begin. Segments are
 * skipped; only the frame (SOF), the start of the scan (SOS) and, if asked for, the EXIF segment
 * are read:
 *
 *     SOI | APPn DQT DHT COM ... | SOF | ... | SOS | pixels
 *
 * Bytes between segments are skipped up to the next marker, as in libjpeg. Their number and the
 * number of segments are limited, so that no file can keep a reader busy. If a file is of a kind
 * that cannot be decoded, the message names the kind.
 */
#include "image/jpeg_memory.h"

#define MOST_SEGMENTS 4096
#define MOST_STRAY    65536 /* bytes between segments in all */
#define LONGEST_SIDE  65500 /* what libjpeg takes */

enum {
    TEM = 0x01,
    SOF0 = 0xc0,
    SOF2 = 0xc2,
    DHT = 0xc4,
    DAC = 0xcc,
    RST0 = 0xd0,
    RST7 = 0xd7,
    SOI = 0xd8,
    EOI = 0xd9,
    SOS = 0xda,
    DQT = 0xdb,
    DNL = 0xdc,
    DRI = 0xdd,
    APP0 = 0xe0,
    APP1 = 0xe1,
    APP15 = 0xef,
    SOF55 = 0xf7,
    COM = 0xfe,
};

/* A way through the segments. */
struct walk {
    struct brim__input *input;
    uint64_t at;    /* the next byte */
    uint32_t stray; /* bytes between segments so far */
};

static uint32_t read_16(const uint8_t *data) {
    return (uint32_t)data[0] << 8 | data[1];
}

/* The marker at or after `at`; `at` is then after the marker. */
static brim_status next_marker(struct walk *walk, uint8_t *marker) {
    bool after_ff = false;
    for (uint32_t i = 0;; i++) {
        const uint8_t *byte;
        const brim_status status = brim__input_at(walk->input, walk->at, 1, &byte);
        if (status != BRIM_OK) {
            return status;
        }
        walk->at++;
        if (after_ff && *byte != 0 && *byte != 0xff) {
            *marker = *byte;
            return BRIM_OK;
        }
        after_ff = *byte == 0xff;
        if (i >= 1 && ++walk->stray > MOST_STRAY) {
            return brim__fail(BRIM_STATUS_CORRUPT,
                              "is a damaged JPEG: byte %llu: more than %d bytes of its header "
                              "belong to no segment",
                              (unsigned long long)walk->at, MOST_STRAY);
        }
    }
}

/* A kind of JPEG that is not decoded; NULL for others. */
static const char *kind_name(uint8_t marker) {
    switch (marker) {
    case 0xc3:
        return "lossless";
    case 0xc5:
    case 0xc6:
    case 0xc7:
        return "hierarchical";
    case 0xc9:
    case 0xca:
        return "arithmetically coded";
    case 0xcb:
        return "lossless, arithmetically coded";
    case 0xcd:
    case 0xce:
    case 0xcf:
        return "hierarchical, arithmetically coded";
    case SOF55:
        return "JPEG-LS";
    default:
        return NULL;
    }
}

/* Segments that have a length and are not needed here. */
static bool is_passed_over(uint8_t marker) {
    return marker == DHT || marker == DAC || marker == DQT || marker == DNL || marker == DRI ||
           marker == COM || (marker >= APP0 && marker <= APP15);
}

static brim_status check_sampling(const struct brim__image_info *info) {
    uint32_t h = 1, v = 1;
    for (uint32_t c = 0; c < info->components; c++) {
        if (info->horizontal[c] < 1 || info->horizontal[c] > 4 || info->vertical[c] < 1 ||
            info->vertical[c] > 4) {
            return brim__fail(BRIM_STATUS_CORRUPT,
                              "is a damaged JPEG: component %u has sampling factors %u x %u; they "
                              "may be 1 to 4",
                              c + 1, info->horizontal[c], info->vertical[c]);
        }
        h = (uint32_t)brim__max(h, info->horizontal[c]);
        v = (uint32_t)brim__max(v, info->vertical[c]);
    }
    for (uint32_t c = 0; c < info->components; c++) {
        if (h % info->horizontal[c] != 0 || v % info->vertical[c] != 0) {
            return brim__fail(BRIM_STATUS_CORRUPT,
                              "is a JPEG whose component %u is sampled %u x %u times where the "
                              "largest is sampled %u x %u times: only whole ratios can be decoded",
                              c + 1, info->horizontal[c], info->vertical[c], h, v);
        }
    }
    return BRIM_OK;
}

/* data: the frame's segment after its length, `bytes` of it. */
static brim_status read_frame(const uint8_t *data, size_t bytes, struct brim__image_info *info) {
    if (bytes < 6) {
        return brim__fail(BRIM_STATUS_CORRUPT, "is a damaged JPEG: its frame header has %zu bytes",
                          bytes);
    }
    const uint32_t bits = data[0], count = data[5];
    info->height = read_16(data + 1);
    info->width = read_16(data + 3);
    if (bits != 8) {
        return brim__fail(BRIM_STATUS_CORRUPT,
                          "is a JPEG of %u bits for a sample; only 8 can be decoded", bits);
    }
    if (info->width == 0) {
        return brim__fail(BRIM_STATUS_CORRUPT, "is a damaged JPEG: its width is 0");
    }
    if (info->height == 0) {
        return brim__fail(
            BRIM_STATUS_CORRUPT,
            "is a JPEG that gives its height after its pixels (DNL), which cannot be decoded");
    }
    if (info->width > LONGEST_SIDE || info->height > LONGEST_SIDE) {
        return brim__fail(BRIM_STATUS_CORRUPT, "is a JPEG of %u x %u pixels; sides may be 1 to %d",
                          info->width, info->height, LONGEST_SIDE);
    }
    if (count != 1 && count != 3 && count != 4) {
        return brim__fail(BRIM_STATUS_CORRUPT,
                          "is a JPEG of %u components; 1 (gray), 3 (colour) and 4 (CMYK) can be "
                          "decoded",
                          count);
    }
    if (bytes != 6 + 3 * count) {
        return brim__fail(BRIM_STATUS_CORRUPT,
                          "is a damaged JPEG: the header of a frame of %u components has %zu bytes",
                          count, bytes);
    }
    info->components = (uint8_t)count;
    for (uint32_t c = 0; c < count; c++) {
        const uint8_t factors = data[6 + 3 * c + 1];
        info->horizontal[c] = factors >> 4;
        info->vertical[c] = factors & 15;
    }
    return check_sampling(info);
}

/* If there are several scans, the whole image is held until the last has been read. A scan of only
 * some of the components is one of several. */
static brim_status read_scan(const uint8_t *data, size_t bytes, struct brim__image_info *info) {
    if (info->components == 0) {
        return brim__fail(BRIM_STATUS_CORRUPT,
                          "is a damaged JPEG: it has pixels but no frame header");
    }
    if (bytes < 1 || data[0] < 1 || data[0] > info->components ||
        bytes != 4 + 2 * (size_t)data[0]) {
        return brim__fail(BRIM_STATUS_CORRUPT,
                          "is a damaged JPEG: its first scan's header is wrong");
    }
    info->whole = info->progressive || data[0] < info->components;
    return BRIM_OK;
}

static bool is_exif(const uint8_t *data, size_t bytes) {
    return bytes >= 6 && memcmp(data, "Exif\0\0", 6) == 0;
}

/* One segment whose data begin at walk->at. */
static brim_status read_segment(struct walk *walk, uint8_t marker, bool *orientation,
                                struct brim__image_info *info) {
    const unsigned long long at = walk->at;
    const uint8_t *data;
    brim_status status = brim__input_at(walk->input, walk->at, 2, &data);
    if (status != BRIM_OK) {
        return status;
    }
    const size_t length = read_16(data);
    if (length < 2) {
        return brim__fail(BRIM_STATUS_CORRUPT,
                          "is a damaged JPEG: byte %llu: a segment of %zu bytes", at, length);
    }
    const size_t bytes = length - 2;
    walk->at += length;
    if (marker >= SOF0 && marker <= SOF2) {
        if (info->components != 0) {
            return brim__fail(BRIM_STATUS_CORRUPT,
                              "is a damaged JPEG: byte %llu: a second frame header", at);
        }
        info->progressive = marker == SOF2;
        status = brim__input_at(walk->input, at + 2, bytes, &data);
        return status == BRIM_OK ? read_frame(data, bytes, info) : status;
    }
    if (marker == SOS) {
        status = brim__input_at(walk->input, at + 2, bytes, &data);
        return status == BRIM_OK ? read_scan(data, bytes, info) : status;
    }
    if (marker == APP1 && *orientation) {
        status = brim__input_at(walk->input, at + 2, bytes, &data);
        if (status == BRIM_OK && is_exif(data, bytes)) {
            info->orientation = brim__exif_orientation(data + 6, bytes - 6);
            *orientation = false; /* the first one counts */
        }
        return status;
    }
    if (!is_passed_over(marker)) {
        const char *kind = kind_name(marker);
        if (kind != NULL) {
            return brim__fail(BRIM_STATUS_CORRUPT,
                              "is a %s JPEG; baseline and progressive ones can be decoded", kind);
        }
        return brim__fail(BRIM_STATUS_CORRUPT,
                          "is a damaged JPEG: byte %llu: unknown marker ff%02x", at, marker);
    }
    return BRIM_OK;
}

brim_status brim__jpeg_info(struct brim__input *input, bool orientation,
                            struct brim__image_info *info) {
    struct brim__image_info found = { .format = BRIM__IMAGE_JPEG, .orientation = 1 };
    struct walk walk = { .input = input, .at = 2 };
    const uint8_t *data;
    brim_status status = brim__input_at(input, 0, 2, &data);
    if (status != BRIM_OK) {
        return status;
    }
    if (data[0] != 0xff || data[1] != SOI) {
        return brim__fail(BRIM_STATUS_CORRUPT, "is not a JPEG: it begins with %02x %02x", data[0],
                          data[1]);
    }
    for (uint32_t i = 0; i < MOST_SEGMENTS; i++) {
        uint8_t marker = 0;
        status = next_marker(&walk, &marker);
        if (status != BRIM_OK) {
            return status;
        }
        if (marker == TEM || (marker >= RST0 && marker <= RST7)) {
            continue; /* without data */
        }
        if (marker == SOI || marker == EOI) {
            return brim__fail(BRIM_STATUS_CORRUPT,
                              "is a damaged JPEG: byte %llu: it %s before its pixels",
                              (unsigned long long)walk.at, marker == EOI ? "ends" : "begins again");
        }
        status = read_segment(&walk, marker, &orientation, &found);
        if (status != BRIM_OK) {
            return status;
        }
        if (marker == SOS) {
            found.memory = brim__jpeg_memory_bound(&found);
            found.outside = BRIM__JPEG_OUTSIDE;
            *info = found;
            return BRIM_OK;
        }
    }
    return brim__fail(BRIM_STATUS_CORRUPT,
                      "is a damaged JPEG: more than %d segments before its pixels", MOST_SEGMENTS);
}

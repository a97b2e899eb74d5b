/*
 * exif.c: the orientation that a camera wrote beside the pixels.
 *
 * EXIF is a TIFF file without an image: a header with the byte order and the offset of the first
 * directory, and the directory, 12 bytes for each entry:
 *
 *     II or MM | 42 | offset of the directory        8 bytes
 *     count | tag, type, number of values, value ... 2 + 12 * count bytes
 *
 * The orientation is in the first directory. No other directory is read, so a cycle of directories
 * is harmless. If a directory is cut short, the entries that are present are used. If there are two
 * orientations, the last is used.
 */
#include "image/decode.h"

#define HEADER      8
#define ENTRY       12
#define ORIENTATION 0x0112

enum { TYPE_BYTE = 1, TYPE_SHORT = 3, TYPE_LONG = 4 };

struct tiff {
    const uint8_t *data;
    bool big_endian;
};

static uint32_t read_16(const struct tiff *tiff, size_t at) {
    const uint8_t *p = tiff->data + at;
    return tiff->big_endian ? (uint32_t)p[0] << 8 | p[1] : (uint32_t)p[1] << 8 | p[0];
}

static uint32_t read_32(const struct tiff *tiff, size_t at) {
    const uint32_t first = read_16(tiff, at), second = read_16(tiff, at + 2);
    return tiff->big_endian ? first << 16 | second : second << 16 | first;
}

/* The value of an entry that has exactly one, stored in the entry itself; else 0. */
static uint32_t entry_value(const struct tiff *tiff, size_t entry) {
    if (read_32(tiff, entry + 4) != 1) {
        return 0;
    }
    switch (read_16(tiff, entry + 2)) {
    case TYPE_BYTE:
        return tiff->data[entry + 8];
    case TYPE_SHORT:
        return read_16(tiff, entry + 8);
    case TYPE_LONG:
        return read_32(tiff, entry + 8);
    default:
        return 0;
    }
}

uint8_t brim__exif_orientation(const uint8_t *tiff, size_t bytes) {
    uint32_t orientation = 1;
    if (bytes < HEADER) {
        return 1;
    }
    const bool big_endian = memcmp(tiff, "MM", 2) == 0;
    const struct tiff file = { .data = tiff, .big_endian = big_endian };
    if ((!big_endian && memcmp(tiff, "II", 2) != 0) || read_16(&file, 2) != 42) {
        return 1;
    }
    const size_t directory = read_32(&file, 4);
    if (directory > bytes || bytes - directory < 2) {
        return 1;
    }
    const size_t whole = (bytes - directory - 2) / ENTRY;
    const size_t count = (size_t)brim__min(read_16(&file, directory), whole);
    for (size_t i = 0; i < count; i++) {
        const size_t entry = directory + 2 + i * ENTRY;
        if (read_16(&file, entry) == ORIENTATION) {
            orientation = entry_value(&file, entry);
        }
    }
    return (uint8_t)(orientation >= 1 && orientation <= 8 ? orientation : 1);
}

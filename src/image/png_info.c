/*
 * png_info.c: reads the part of a PNG before its image data, and computes the memory that it needs.
 *
 * Chunks are walked by their lengths up to the first IDAT; only those that pixels depend on are
 * read. The others (text, colour profiles and so on) are skipped and never reach libspng, so that a
 * compressed megabyte of text costs neither time nor memory. Their number is limited, so that no
 * file can keep a reader busy.
 *
 * Colours are Pillow's: no gamma, no profile. An index beyond the end of the palette is black. The
 * low byte of tRNS decides which colour is transparent.
 */
#include "image/png.h"

#include <zlib.h>

#define SIGNATURE   8
#define AROUND      12         /* bytes of a chunk around its data: length, type, checksum */
#define MOST_LENGTH 0x7fffffff /* of a chunk, by the standard */
#define MOST_CHUNKS 4096       /* before the image data; usual files have 10 */

/* The memory that libspng and zlib take for every image: 52.5 KB were measured with libspng 0.7.3
 * and zlib 1.2.13 (the context, its read buffer, inflate's state and window of 32 KiB); zlib-ng's
 * state is larger. Rows are counted separately. */
#define LIBRARY_BYTES (72 * 1024)
/* libspng's two rows have a filter byte and room for its vector code. Rows in the arena begin at a
 * cache line. */
#define ROW_EXTRA (32 + 1 + BRIM__CACHE_LINE)

struct chunk {
    uint64_t at; /* of its length */
    uint32_t bytes;
    char name[5];
};

static uint32_t read_u32(const uint8_t *data) {
    return (uint32_t)data[0] << 24 | (uint32_t)data[1] << 16 | (uint32_t)data[2] << 8 | data[3];
}

static void write_u32(uint8_t *data, uint32_t value) {
    for (int i = 0; i < 4; i++) {
        data[i] = (uint8_t)(value >> (24 - 8 * i));
    }
}

static uint16_t read_u16(const uint8_t *data) {
    return (uint16_t)(data[0] << 8 | data[1]);
}

static brim_status read_chunk(struct brim__input *input, uint64_t at, struct chunk *chunk) {
    const uint8_t *data;
    const brim_status status = brim__input_at(input, at, 8, &data);
    if (status != BRIM_OK) {
        return brim__fail_within(status, "PNG without image data");
    }
    chunk->at = at;
    chunk->bytes = read_u32(data);
    for (int i = 0; i < 4; i++) {
        const uint8_t letter = data[4 + i];
        if (!((letter >= 'A' && letter <= 'Z') || (letter >= 'a' && letter <= 'z'))) {
            return brim__fail(BRIM_STATUS_CORRUPT,
                              "PNG: byte %llu begins no chunk: its type is "
                              "%02x %02x %02x %02x",
                              (unsigned long long)at, data[4], data[5], data[6], data[7]);
        }
        chunk->name[i] = (char)letter;
    }
    chunk->name[4] = '\0';
    if (chunk->bytes > MOST_LENGTH) {
        return brim__fail(BRIM_STATUS_CORRUPT, "PNG: the %s chunk at byte %llu has a length of %u",
                          chunk->name, (unsigned long long)at, chunk->bytes);
    }
    return BRIM_OK;
}

static bool is(const struct chunk *chunk, const char *name) {
    return memcmp(chunk->name, name, 4) == 0;
}

/* All of a small chunk, from its length on, with its checksum compared. */
static brim_status read_data(struct brim__input *input, const struct chunk *chunk, bool damaged,
                             const uint8_t **data) {
    const brim_status status =
        brim__input_at(input, chunk->at, (size_t)chunk->bytes + AROUND, data);
    if (status != BRIM_OK) {
        return brim__fail_within(status, "PNG, in its %s chunk", chunk->name);
    }
    const uint32_t sum = (uint32_t)crc32(0, *data + 4, chunk->bytes + 4);
    if (!damaged && sum != read_u32(*data + 8 + chunk->bytes)) {
        return brim__fail(BRIM_STATUS_CORRUPT,
                          "PNG: the %s chunk at byte %llu has a wrong checksum", chunk->name,
                          (unsigned long long)chunk->at);
    }
    return BRIM_OK;
}

static brim_status refuse_length(const struct chunk *chunk, const char *right) {
    return brim__fail(BRIM_STATUS_CORRUPT, "PNG: the %s chunk at byte %llu has %u bytes; %s",
                      chunk->name, (unsigned long long)chunk->at, chunk->bytes, right);
}

/* Bit d - 1 is set where a sample may have d bits. */
static uint32_t depths_of(uint8_t type) {
    switch (type) {
    case BRIM__PNG_GRAY:
        return 1u << 0 | 1u << 1 | 1u << 3 | 1u << 7 | 1u << 15;
    case BRIM__PNG_PALETTE:
        return 1u << 0 | 1u << 1 | 1u << 3 | 1u << 7;
    case BRIM__PNG_RGB:
    case BRIM__PNG_GRAY_ALPHA:
    case BRIM__PNG_RGB_ALPHA:
        return 1u << 7 | 1u << 15;
    default:
        return 0;
    }
}

static brim_status read_ihdr(struct brim__input *input, bool damaged,
                             struct brim__png_header *header) {
    struct chunk chunk;
    const uint8_t *data;
    brim_status status = read_chunk(input, SIGNATURE, &chunk);
    if (status != BRIM_OK) {
        return status;
    }
    if (!is(&chunk, "IHDR")) {
        return brim__fail(BRIM_STATUS_CORRUPT, "PNG: begins with a %s chunk, not with IHDR",
                          chunk.name);
    }
    if (chunk.bytes != 13) {
        return refuse_length(&chunk, "it must have 13");
    }
    status = read_data(input, &chunk, damaged, &data);
    if (status != BRIM_OK) {
        return status;
    }
    memcpy(header->chunk, data, sizeof header->chunk);
    write_u32(header->chunk + 21, (uint32_t)crc32(0, header->chunk + 4, 17));
    header->width = read_u32(data + 8);
    header->height = read_u32(data + 12);
    header->depth = data[16];
    header->type = data[17];
    if (header->depth < 1 || header->depth > 16 ||
        (depths_of(header->type) >> (header->depth - 1) & 1) == 0) {
        return brim__fail(BRIM_STATUS_CORRUPT, "PNG: there is no colour type %u with %u bits",
                          header->type, header->depth);
    }
    if (data[18] != 0 || data[19] != 0 || data[20] > 1) {
        return brim__fail(BRIM_STATUS_CORRUPT,
                          "PNG: compression %u, filter %u and interlacing %u are not known",
                          data[18], data[19], data[20]);
    }
    header->interlaced = data[20] == 1;
    return BRIM_OK;
}

static brim_status read_palette(struct brim__input *input, const struct chunk *chunk, bool damaged,
                                struct brim__png_header *header) {
    const uint8_t *data;
    if (chunk->bytes == 0 || chunk->bytes > 768 || chunk->bytes % 3 != 0) {
        return refuse_length(chunk, "it must have 3 for each of 1 to 256 colours");
    }
    const brim_status status = read_data(input, chunk, damaged, &data);
    if (status != BRIM_OK) {
        return status;
    }
    for (uint32_t i = 0; i < chunk->bytes / 3; i++) {
        memcpy(header->palette[i], data + 8 + 3 * i, 3);
    }
    return BRIM_OK;
}

static brim_status read_transparency(struct brim__input *input, const struct chunk *chunk,
                                     bool damaged, struct brim__png_header *header) {
    const uint32_t least = header->type == BRIM__PNG_GRAY  ? 2
                           : header->type == BRIM__PNG_RGB ? 6
                                                           : 0;
    const uint8_t *data;
    if (header->type == BRIM__PNG_GRAY_ALPHA || header->type == BRIM__PNG_RGB_ALPHA) {
        return BRIM_OK;
    }
    if (chunk->bytes < least || chunk->bytes > 256) {
        return refuse_length(chunk, least == 0 ? "it may have at most 256"
                                               : "it must have 2 for each channel");
    }
    const brim_status status = read_data(input, chunk, damaged, &data);
    if (status != BRIM_OK) {
        return status;
    }
    if (header->type == BRIM__PNG_PALETTE) {
        for (uint32_t i = 0; i < chunk->bytes; i++) {
            header->palette[i][3] = data[8 + i];
        }
        return BRIM_OK;
    }
    header->transparent = true;
    for (uint32_t i = 0; i < least / 2; i++) {
        header->color[i] = read_u16(data + 8 + 2 * i);
    }
    return BRIM_OK;
}

/* Errors in EXIF are no reason to refuse the image. */
static void read_exif(struct brim__input *input, const struct chunk *chunk,
                      struct brim__png_header *header) {
    const uint8_t *data;
    if (chunk->bytes <= BRIM__INPUT_WINDOW - AROUND &&
        read_data(input, chunk, false, &data) == BRIM_OK) {
        header->orientation = brim__exif_orientation(data + 8, chunk->bytes);
    }
}

brim_status brim__png_read_header(struct brim__input *input, bool damaged,
                                  struct brim__png_header *header) {
    bool has_palette = false;
    *header = (struct brim__png_header){ .orientation = 1 };
    for (int i = 0; i < 256; i++) {
        header->palette[i][3] = 255;
    }
    brim_status status = read_ihdr(input, damaged, header);
    uint64_t at = SIGNATURE + 13 + AROUND;
    for (uint32_t i = 1; status == BRIM_OK; i++) {
        struct chunk chunk;
        if (i > MOST_CHUNKS) {
            return brim__fail(BRIM_STATUS_CORRUPT,
                              "PNG: more than %d chunks come before its image data: a chunk bomb",
                              MOST_CHUNKS);
        }
        status = read_chunk(input, at, &chunk);
        if (status != BRIM_OK) {
            break;
        }
        if (is(&chunk, "IDAT")) {
            if (header->type == BRIM__PNG_PALETTE && !has_palette) {
                return brim__fail(BRIM_STATUS_CORRUPT, "PNG: has palette indices but no palette");
            }
            header->data_at = at;
            return BRIM_OK;
        }
        if (is(&chunk, "PLTE")) {
            if (header->type == BRIM__PNG_PALETTE) { /* in other types it is only a suggestion */
                if (has_palette) {
                    return brim__fail(BRIM_STATUS_CORRUPT, "PNG: a second palette at byte %llu",
                                      (unsigned long long)at);
                }
                status = read_palette(input, &chunk, damaged, header);
                has_palette = true;
            }
        } else if (is(&chunk, "tRNS")) {
            status = read_transparency(input, &chunk, damaged, header);
        } else if (is(&chunk, "eXIf")) {
            read_exif(input, &chunk, header);
        } else if ((chunk.name[0] & 0x20) == 0) {
            return brim__fail(BRIM_STATUS_CORRUPT,
                              "PNG: the %s chunk at byte %llu is where image data must be",
                              chunk.name, (unsigned long long)at);
        }
        at += (uint64_t)chunk.bytes + AROUND;
    }
    return status;
}

brim_status brim__png_info(struct brim__input *input, bool orientation,
                           struct brim__image_info *info) {
    struct brim__png_header header;
    brim_status status = brim__png_read_header(input, true, &header);
    if (status != BRIM_OK) {
        return status;
    }
    info->width = header.width;
    info->height = header.height;
    status = brim__image_check_size(info);
    if (status != BRIM_OK) {
        return status;
    }
    info->orientation = orientation ? header.orientation : 1;
    info->whole = header.interlaced;
    const uint64_t row = brim__png_row_bytes(&header);
    const uint64_t rows = header.interlaced ? header.height : 1;
    /* brim needs the pixels of a row, and one stored row or all of them; libspng needs two rows,
     * and a third if interlaced */
    info->memory = LIBRARY_BYTES + brim__align(4 * (uint64_t)info->width, BRIM__CACHE_LINE) +
                   brim__align(rows * row, BRIM__CACHE_LINE) +
                   (header.interlaced ? 3 : 2) * (row + ROW_EXTRA);
    return BRIM_OK;
}

/*
 * png.c: the pixels of a PNG, by libspng.
 *
 * libspng inflates and unfilters rows; this file converts them to pixels. libspng reads a synthetic
 * file: the header, a substitute for the palette, the image data of the input, and an end. So no
 * other chunk, before or after the data, can make it take time or memory.
 *
 * Its memory, and that of zlib, comes from the caller's. The allocation hooks have no user
 * argument, so the arena is a thread-local variable during the call. The libraries allocate once
 * and free at the end, so the arena only grows, and freeing does nothing.
 *
 *     | pixels of a row | stored row, or all of them | libspng's ... |
 *
 * If the image is not interlaced, rows come in order and only the last one is held. Rows after the
 * region are not read.
 *
 * Pixels are those of Pillow's convert, also in these cases: 16-bit colours give their high byte,
 * 16-bit gray is clamped to 255, and the transparent colour is compared by one byte. MASK is the
 * number in the file: the index of palette images, the value of gray ones; 1-, 2- and 4-bit values
 * are not stretched.
 */
#include "image/png.h"

#include <spng.h>

/* ------------------------------------------------------------------- arena */

struct arena {
    uint8_t *memory;
    uint64_t bytes, used;
    bool refused; /* something did not fit: libspng does not always report it */
};

static _Thread_local struct arena *arena;

static void *take(size_t bytes) {
    if (bytes > arena->bytes - arena->used) {
        arena->refused = true;
        return NULL;
    }
    void *taken = arena->memory + arena->used;
    arena->used += brim__min(brim__align(bytes, BRIM__CACHE_LINE), arena->bytes - arena->used);
    return taken;
}

static void *take_zeros(size_t count, size_t bytes) {
    uint64_t all;
    if (brim__mul_overflows(count, bytes, &all)) {
        return NULL;
    }
    void *taken = take(all);
    return taken == NULL ? NULL : memset(taken, 0, all);
}

/* libspng calls this only for chunks that it never sees here. */
static void *take_again(void *taken, size_t bytes) {
    (void)taken, (void)bytes;
    return NULL;
}

static void give_back(void *taken) {
    (void)taken;
}

/* ------------------------------------------------------------------ stream */

/* A palette of one black entry: libspng does not look up indices here. */
static const uint8_t palette_chunk[] = { 0, 0, 0, 3,    'P',  'L',  'T', 'E',
                                         0, 0, 0, 0xa7, 0x7a, 0x3d, 0xda };
/* An end, after a checksum for a chunk that lost its own. */
static const uint8_t end_chunks[] = { 0,   0,   0,   0,   0,    0,    0,    0,
                                      'I', 'E', 'N', 'D', 0xae, 0x42, 0x60, 0x82 };
enum { CHECKSUM = 4, AROUND = 12 };
#define MOST_EMPTY 4096 /* empty chunks of image data: allowed, but they take time */

struct stream {
    struct brim__input *input;
    uint8_t begin[8 + 25 + sizeof palette_chunk];
    const uint8_t *own; /* bytes to be shown before those of the input ... */
    size_t own_bytes;
    uint64_t at;    /* ... which go on here ... */
    uint64_t left;  /* ... and belong to the same chunk so far */
    uint32_t empty; /* chunks without data so far */
    bool ended;
    bool damaged;       /* a chunk that is cut is shown as a shorter one ... */
    uint8_t cut[8];     /* ... with this header */
    brim_status status; /* of reading */
};

static void stream_begin(struct stream *stream, const struct brim__decoding *decoding,
                         const struct brim__png_header *header) {
    *stream = (struct stream){
        .input = decoding->input,
        .at = header->data_at,
        .damaged = decoding->damaged,
    };
    memcpy(stream->begin, "\x89PNG\r\n\x1a\n", 8);
    memcpy(stream->begin + 8, header->chunk, sizeof header->chunk);
    stream->own = stream->begin;
    stream->own_bytes = 8 + sizeof header->chunk;
    if (header->type == BRIM__PNG_PALETTE) {
        memcpy(stream->begin + stream->own_bytes, palette_chunk, sizeof palette_chunk);
        stream->own_bytes += sizeof palette_chunk;
    }
}

/* Called at the end of a chunk: begins the next, or ends the data. A file that ends here lacks no
 * pixel data. */
static brim_status next_chunk(struct stream *stream) {
    const uint8_t *data;
    const uint64_t there = stream->input->bytes - stream->at;
    const bool lacks_checksum = stream->own == stream->cut + sizeof stream->cut;
    if (there >= 8 && !lacks_checksum) {
        const brim_status status = brim__input_at(stream->input, stream->at, 8, &data);
        if (status != BRIM_OK) {
            return status;
        }
        if (memcmp(data + 4, "IDAT", 4) == 0) {
            stream->left = AROUND + ((uint64_t)data[0] << 24 | (uint64_t)data[1] << 16 |
                                     (uint64_t)data[2] << 8 | data[3]);
            if (stream->left == AROUND && ++stream->empty > MOST_EMPTY) {
                return brim__fail(BRIM_STATUS_CORRUPT,
                                  "PNG: more than %d of its IDAT chunks are empty: a chunk bomb",
                                  MOST_EMPTY);
            }
            if (stream->left > there && stream->damaged) {
                stream->left = there - 8;
                memcpy(stream->cut, data, 8);
                for (int i = 0; i < 4; i++) {
                    stream->cut[i] = (uint8_t)(stream->left >> (24 - 8 * i));
                }
                stream->own = stream->cut;
                stream->own_bytes = sizeof stream->cut;
                stream->at += 8;
            }
            return BRIM_OK;
        }
    }
    stream->own = end_chunks + (lacks_checksum ? 0 : CHECKSUM);
    stream->own_bytes = sizeof end_chunks - (lacks_checksum ? 0 : CHECKSUM);
    stream->ended = true;
    return BRIM_OK;
}

static int stream_read(spng_ctx *context, void *user, void *to, size_t bytes) {
    struct stream *stream = user;
    uint8_t *target = to;
    (void)context;
    while (bytes > 0) {
        const uint8_t *data = stream->own;
        uint64_t piece = brim__min(bytes, stream->own_bytes);
        if (piece > 0) {
            stream->own += piece;
            stream->own_bytes -= piece;
        } else if (stream->left == 0) {
            if (stream->ended) {
                return SPNG_IO_EOF;
            }
            stream->status = next_chunk(stream);
            if (stream->status != BRIM_OK) {
                return SPNG_IO_ERROR;
            }
            continue;
        } else {
            piece = brim__min(brim__min(bytes, stream->left), BRIM__INPUT_WINDOW);
            stream->status = brim__input_at(stream->input, stream->at, piece, &data);
            if (stream->status != BRIM_OK) {
                return SPNG_IO_ERROR;
            }
            stream->at += piece;
            stream->left -= piece;
        }
        memcpy(target, data, piece);
        target += piece;
        bytes -= piece;
    }
    return 0;
}

/* ------------------------------------------------------------------ pixels */

struct png {
    const struct brim__decoding *decoding;
    struct brim__png_header header;
    /* for images of one number a pixel: the pixel of each number */
    uint8_t table[256][4];
    uint8_t *pixels; /* of a row of the region */
    uint8_t *stored; /* a row, or all of them */
    uint64_t row_bytes;
    struct stream stream;
    spng_ctx *context;
};

static bool is_table(const struct brim__png_header *header) {
    return header->type == BRIM__PNG_GRAY || header->type == BRIM__PNG_PALETTE;
}

static void fill_table(struct png *png) {
    const struct brim__png_header *header = &png->header;
    const enum brim__color color = png->decoding->color;
    const uint32_t most = header->depth < 8 ? (1u << header->depth) - 1 : 255;
    uint8_t transparent = (uint8_t)header->color[0];
    if (header->depth == 1 && header->color[0] != 0) {
        transparent = 255; /* the one depth whose tRNS Pillow stretches with its values */
    }
    for (uint32_t i = 0; i <= most; i++) {
        uint8_t *to = png->table[i];
        if (color == BRIM__MASK) {
            to[0] = (uint8_t)i;
            continue;
        }
        if (header->type == BRIM__PNG_PALETTE) {
            memcpy(to, header->palette[i], 4);
        } else {
            const uint8_t gray = (uint8_t)(i * 255 / most);
            const bool hidden = header->transparent && gray == transparent;
            to[0] = to[1] = to[2] = gray;
            to[3] = hidden ? 0 : 255;
        }
        if (color == BRIM__RGB) {
            to[3] = 255;
        } else if (color == BRIM__GRAY) {
            to[0] = brim__luma(to[0], to[1], to[2]);
        }
    }
}

/* The number of pixel x in a row of one number a pixel. */
static inline uint32_t number_at(const uint8_t *stored, uint32_t depth, uint32_t x) {
    if (depth == 8) {
        return stored[x];
    }
    if (depth == 16) {
        return stored[2 * (size_t)x] != 0 ? 255 : stored[2 * (size_t)x + 1];
    }
    const uint64_t bit = (uint64_t)x * depth;
    return (uint32_t)stored[bit / 8] >> (8 - depth - bit % 8) & ((1u << depth) - 1);
}

static void convert_numbers(const struct png *png, const uint8_t *stored) {
    const struct brim__decoding *decoding = png->decoding;
    const uint32_t depth = png->header.depth;
    if (brim__color_pixel(decoding->color) == 1) {
        for (uint32_t i = 0; i < decoding->width; i++) {
            png->pixels[i] = png->table[number_at(stored, depth, decoding->x + i)][0];
        }
        return;
    }
    for (uint32_t i = 0; i < decoding->width; i++) {
        memcpy(png->pixels + 4 * (size_t)i, png->table[number_at(stored, depth, decoding->x + i)],
               4);
    }
}

/* Rows of several samples a pixel; of 16-bit samples the first byte is the high one. */
static void convert_samples(const struct png *png, const uint8_t *stored) {
    const struct brim__decoding *decoding = png->decoding;
    const struct brim__png_header *header = &png->header;
    const size_t sample = header->depth / 8;
    const bool gray = header->type == BRIM__PNG_GRAY_ALPHA;
    const bool alpha = header->type != BRIM__PNG_RGB;
    const size_t step = sample * (gray ? 2 : alpha ? 4 : 3);
    const size_t green = gray ? 0 : sample, blue = 2 * green;
    const uint8_t *from = stored + decoding->x * step;
    uint8_t *to = png->pixels;
    switch (decoding->color) {
    case BRIM__RGB:
        for (uint32_t i = 0; i < decoding->width; i++, from += step, to += 4) {
            to[0] = from[0];
            to[1] = from[green];
            to[2] = from[blue];
            to[3] = 255;
        }
        break;
    case BRIM__RGBA:
        for (uint32_t i = 0; i < decoding->width; i++, from += step, to += 4) {
            to[0] = from[0];
            to[1] = from[green];
            to[2] = from[blue];
            if (alpha) {
                to[3] = from[step - sample];
            } else {
                const bool hidden = header->transparent && to[0] == (uint8_t)header->color[0] &&
                                    to[1] == (uint8_t)header->color[1] &&
                                    to[2] == (uint8_t)header->color[2];
                to[3] = hidden ? 0 : 255;
            }
        }
        break;
    default:
        for (uint32_t i = 0; i < decoding->width; i++, from += step) {
            to[i] = brim__luma(from[0], from[green], from[blue]);
        }
        break;
    }
}

static brim_status put(const struct png *png, const uint8_t *stored, uint32_t y,
                       brim__row_sink *sink, void *user) {
    if (is_table(&png->header)) {
        convert_numbers(png, stored);
    } else {
        convert_samples(png, stored);
    }
    return sink(user, png->pixels, y - png->decoding->y);
}

/* -------------------------------------------------------------------- rows */

static brim_status explain(const struct png *png, int error, uint64_t row) {
    const uint32_t height = png->header.height;
    if (png->stream.status != BRIM_OK) {
        return brim__fail_within(png->stream.status, "PNG, at row %llu of %u",
                                 (unsigned long long)row, height);
    }
    if (arena->refused) {
        return brim__fail(BRIM_STATUS_CORRUPT,
                          "PNG: decoding needs more than the %llu bytes that follow "
                          "from its header",
                          (unsigned long long)png->decoding->memory_bytes);
    }
    return brim__fail(BRIM_STATUS_CORRUPT, "PNG: at row %llu of %u, near byte %llu: %s",
                      (unsigned long long)row, height, (unsigned long long)png->stream.at,
                      spng_strerror(error));
}

/* Whether damage is accepted: some rows were good, and reading has neither failed nor been
 * interrupted. */
static bool is_borne(const struct png *png, uint64_t rows) {
    return png->decoding->damaged && rows > 0 && png->stream.status != BRIM_STATUS_IO &&
           png->stream.status != BRIM_STATUS_INTERRUPTED;
}

/* To be called after the last row: checks the checksum of the last data. */
static brim_status finish(struct png *png) {
    const int error = spng_decode_chunks(png->context);
    return error == 0 || is_borne(png, 1) ? BRIM_OK : explain(png, error, png->header.height);
}

static brim_status decode_rows(struct png *png, brim__row_sink *sink, void *user) {
    const struct brim__decoding *decoding = png->decoding;
    const uint32_t end = decoding->y + decoding->height;
    bool lost = false;
    for (uint32_t y = 0; y < end; y++) {
        if (brim__stopped(decoding->input->stop)) {
            return brim__interrupted();
        }
        if (!lost) {
            const int error = spng_decode_scanline(png->context, png->stored, png->row_bytes);
            if (error != 0 && error != SPNG_EOI) {
                if (!is_borne(png, y)) {
                    return explain(png, error, y);
                }
                lost = true;
                memset(png->stored, 0, png->row_bytes);
            }
        }
        if (y >= decoding->y) {
            const brim_status status = put(png, png->stored, y, sink, user);
            if (status != BRIM_OK) {
                return status;
            }
        }
    }
    return end == png->header.height && !lost ? finish(png) : BRIM_OK;
}

static brim_status decode_interlaced(struct png *png, brim__row_sink *sink, void *user) {
    const struct brim__decoding *decoding = png->decoding;
    uint64_t rows = 0;
    int error = 0;
    memset(png->stored, 0, png->row_bytes * png->header.height);
    for (; error == 0; rows++) {
        struct spng_row_info row;
        if (brim__stopped(decoding->input->stop)) {
            return brim__interrupted();
        }
        error = spng_get_row_info(png->context, &row);
        if (error == 0) {
            error = spng_decode_row(png->context, png->stored + row.row_num * png->row_bytes,
                                    png->row_bytes);
        }
    }
    if (error != SPNG_EOI && !is_borne(png, rows - 1)) {
        return explain(png, error, rows - 1);
    }
    if (error == SPNG_EOI) {
        const brim_status status = finish(png);
        if (status != BRIM_OK) {
            return status;
        }
    }
    for (uint32_t y = decoding->y; y < decoding->y + decoding->height; y++) {
        if (brim__stopped(decoding->input->stop)) {
            return brim__interrupted();
        }
        const brim_status status = put(png, png->stored + y * png->row_bytes, y, sink, user);
        if (status != BRIM_OK) {
            return status;
        }
    }
    return BRIM_OK;
}

static brim_status decode(struct png *png, brim__row_sink *sink, void *user) {
    const uint32_t height = png->header.interlaced ? png->header.height : 1;
    struct spng_alloc hooks = { take, take_again, take_zeros, give_back };
    png->row_bytes = brim__png_row_bytes(&png->header);
    png->pixels = take(4 * (size_t)png->header.width);
    png->stored = take(png->row_bytes * height);
    if (png->pixels == NULL || png->stored == NULL) {
        return explain(png, SPNG_EMEM, 0);
    }
    png->context = spng_ctx_new2(&hooks, 0);
    if (png->context == NULL) {
        return explain(png, SPNG_EMEM, 0);
    }
    int error = spng_set_image_limits(png->context, BRIM__MAX_SIDE, BRIM__MAX_SIDE);
    if (error == 0 && png->decoding->damaged) {
        error = spng_set_crc_action(png->context, SPNG_CRC_USE, SPNG_CRC_USE);
    }
    if (error == 0) {
        error = spng_set_png_stream(png->context, stream_read, &png->stream);
    }
    if (error == 0) {
        error = spng_decode_image(png->context, NULL, 0, SPNG_FMT_RAW, SPNG_DECODE_PROGRESSIVE);
    }
    brim_status status;
    if (error != 0) {
        status = explain(png, error, 0);
    } else if (png->header.interlaced) {
        status = decode_interlaced(png, sink, user);
    } else {
        status = decode_rows(png, sink, user);
    }
    spng_ctx_free(png->context);
    return status;
}

brim_status brim__png_decode(const struct brim__decoding *decoding, brim__row_sink *sink,
                             void *user) {
    struct arena mine = { .memory = decoding->memory, .bytes = decoding->memory_bytes };
    struct png png = { .decoding = decoding };
    const brim_status status =
        brim__png_read_header(decoding->input, decoding->damaged, &png.header);
    if (status != BRIM_OK) {
        return status;
    }
    const struct brim__png_header *header = &png.header;
    if (header->width != decoding->info->width || header->height != decoding->info->height ||
        header->interlaced != decoding->info->whole) {
        return brim__fail(BRIM_STATUS_CORRUPT, "PNG: its header changed while it was read");
    }
    if (decoding->color == BRIM__MASK && (!is_table(header) || header->depth > 8)) {
        return brim__fail(BRIM_STATUS_CORRUPT,
                          "PNG: %u-bit %s cannot be a mask, which needs palette indices or gray "
                          "values of at most 8 bits",
                          header->depth,
                          header->type == BRIM__PNG_GRAY         ? "gray"
                          : header->type == BRIM__PNG_GRAY_ALPHA ? "gray with alpha"
                                                                 : "colour");
    }
    if (is_table(header)) {
        fill_table(&png);
    }
    stream_begin(&png.stream, decoding, header);
    /* a sink may decode another image, so the arena of the outer call is restored */
    struct arena *const before = arena;
    arena = &mine;
    const brim_status result = decode(&png, sink, user);
    arena = before;
    return result;
}

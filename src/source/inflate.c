/*
 * inflate.c: deflated bytes of a file, inflated in order by zlib.
 *
 *     file ─► input (16 KiB) ─► zlib ─► the caller's memory
 *
 * zlib allocates twice: when it is set up, and at the first output for its window of 32 KiB. Both
 * come from the arena, and resetting it (inflateReset2) keeps both. So an inflater takes the same
 * memory for one file or a thousand. inflateEnd is never called, because the arena owns all its
 * memory.
 *
 * Invariants while reading: zlib has not consumed input[next .. next + left) yet; `at` is the byte
 * of the file after it; nothing is read from the file while `left` is not 0.
 */
#include "source/inflate.h"

#include "base/progress.h"

#include <stdio.h>
#include <zlib.h>

#define INPUT_BYTES 16384
#define MOST_OUTPUT (1u << 30) /* of one call: zlib counts in 32 bits */

struct brim__inflater {
    const struct brim__opening *opening;
    z_stream zlib;
    bool set_up;
    brim_status refused; /* why zlib got no memory */
    enum brim__deflate_form form;
    const struct brim__file *file;
    uint64_t begin, at, end; /* the range, and the next byte to be read */
    bool ended;              /* the last member is over */
    uint64_t total;
    uint32_t crc;
    uint64_t reported_ns;
    uint8_t input[INPUT_BYTES];
};

static void *take(void *opaque, uInt items, uInt size) {
    struct brim__inflater *inflater = opaque;
    void *memory = NULL;
    const brim_status status =
        brim__arena_take(inflater->opening->arena, (uint64_t)items * size, &memory);
    if (status != BRIM_OK) {
        inflater->refused = status;
        return NULL;
    }
    return memory;
}

static void give(void *opaque, void *memory) {
    (void)opaque; /* the arena's */
    (void)memory;
}

brim_status brim__inflater_new(const struct brim__opening *opening,
                               struct brim__inflater **inflater) {
    struct brim__inflater *made;
    const brim_status status = brim__arena_take(opening->arena, sizeof *made, &made);
    if (status != BRIM_OK) {
        return status;
    }
    made->opening = opening;
    *inflater = made;
    return BRIM_OK;
}

void brim__inflater_use(struct brim__inflater *inflater, const struct brim__opening *opening) {
    inflater->opening = opening;
}

static int window_bits(enum brim__deflate_form form) {
    switch (form) {
    case BRIM__DEFLATE_ZLIB:
        return MAX_WBITS;
    case BRIM__DEFLATE_GZIP:
        return 16 + MAX_WBITS;
    default:
        return -MAX_WBITS;
    }
}

/* The byte of the file up to which zlib has consumed the data. */
static unsigned long long file_byte(const struct brim__inflater *inflater) {
    return inflater->at - inflater->zlib.avail_in;
}

static brim_status fail(const struct brim__inflater *inflater, const char *what) {
    return brim__fail_byte(BRIM_STATUS_CORRUPT, inflater->file->path, file_byte(inflater), "%s",
                           what);
}

/* The failure for a result of zlib other than Z_OK and Z_STREAM_END. */
static brim_status fail_zlib(const struct brim__inflater *inflater, int said) {
    if (said == Z_MEM_ERROR) {
        return inflater->refused != BRIM_OK
                   ? inflater->refused
                   : brim__fail(BRIM_STATUS_MEMORY, "%s: zlib has no memory", inflater->file->path);
    }
    if (said == Z_NEED_DICT) {
        return brim__fail_byte(BRIM_STATUS_UNSUPPORTED, inflater->file->path, file_byte(inflater),
                               "compressed with a dictionary that is not in the file");
    }
    return brim__fail_byte(BRIM_STATUS_CORRUPT, inflater->file->path, file_byte(inflater),
                           "the compressed data are damaged: %s",
                           inflater->zlib.msg != NULL ? inflater->zlib.msg
                                                      : "they end here without an end mark");
}

brim_status brim__inflate_begin(struct brim__inflater *inflater, enum brim__deflate_form form,
                                const struct brim__file *file, uint64_t begin, uint64_t bytes) {
    uint64_t end;
    inflater->form = form;
    inflater->file = file;
    inflater->begin = inflater->at = begin;
    inflater->total = 0;
    inflater->crc = 0;
    inflater->ended = false;
    inflater->refused = BRIM_OK;
    inflater->reported_ns = brim__now();
    inflater->zlib.next_in = inflater->input;
    inflater->zlib.avail_in = 0;
    if (brim__add_overflows(begin, bytes, &end) || end > file->bytes) {
        return brim__fail_byte(BRIM_STATUS_CORRUPT, file->path, begin,
                               "%llu compressed bytes should begin here, but the file "
                               "ends at byte %llu",
                               (unsigned long long)bytes, (unsigned long long)file->bytes);
    }
    inflater->end = end;
    int said;
    if (inflater->set_up) {
        said = inflateReset2(&inflater->zlib, window_bits(form));
    } else {
        inflater->zlib.zalloc = take;
        inflater->zlib.zfree = give;
        inflater->zlib.opaque = inflater;
        said = inflateInit2(&inflater->zlib, window_bits(form));
        inflater->set_up = said == Z_OK;
    }
    return said == Z_OK ? BRIM_OK : fail_zlib(inflater, said);
}

/* Reports the progress of a long opening to the caller, some times a second. */
static brim_status report(struct brim__inflater *inflater) {
    const struct brim__opening *opening = inflater->opening;
    if (!brim__progress_is_due(opening->progress, &inflater->reported_ns)) {
        return BRIM_OK;
    }
    char what[256];
    snprintf(what, sizeof what, "inflating %s", inflater->file->path);
    if (!brim__progress_report(opening->progress, opening->progress_user, what, BRIM_UNIT_BYTES,
                               inflater->at - inflater->begin, inflater->end - inflater->begin)) {
        return brim__fail(BRIM_STATUS_INTERRUPTED, "%s: inflating it was stopped",
                          inflater->file->path);
    }
    return BRIM_OK;
}

/* Makes sure that there is input, unless the range is used up. */
static brim_status fill(struct brim__inflater *inflater) {
    if (inflater->zlib.avail_in > 0 || inflater->at == inflater->end) {
        return BRIM_OK;
    }
    brim_status status = report(inflater);
    const size_t count = brim__min(INPUT_BYTES, inflater->end - inflater->at);
    if (status == BRIM_OK) {
        status = brim__file_read(inflater->file, inflater->at, inflater->input, count);
    }
    if (status == BRIM_OK) {
        inflater->zlib.next_in = inflater->input;
        inflater->zlib.avail_in = (uInt)count;
        inflater->at += count;
    }
    return status;
}

/* At the end of a member: another one follows, or nothing. */
static brim_status end_member(struct brim__inflater *inflater) {
    const brim_status status = fill(inflater);
    if (status != BRIM_OK) {
        return status;
    }
    inflater->ended = inflater->form != BRIM__DEFLATE_GZIP || inflater->zlib.avail_in == 0 ||
                      inflater->zlib.next_in[0] != 0x1f;
    return inflater->ended || inflateReset(&inflater->zlib) == Z_OK
               ? BRIM_OK
               : fail(inflater, "zlib cannot be reset");
}

/* Inflates up to *bytes bytes, fewer only at the end of the data. */
static brim_status run(struct brim__inflater *inflater, uint8_t *to, uint64_t *bytes) {
    const uint64_t wanted = *bytes;
    uint64_t made = 0;
    *bytes = 0;
    while (!inflater->ended && made < wanted) {
        brim_status status = fill(inflater);
        if (status != BRIM_OK) {
            return status;
        }
        const uInt room = (uInt)brim__min(MOST_OUTPUT, wanted - made);
        inflater->zlib.next_out = to + made;
        inflater->zlib.avail_out = room;
        const int said = inflate(&inflater->zlib, Z_NO_FLUSH);
        const uInt got = room - inflater->zlib.avail_out;
        if (inflater->form == BRIM__DEFLATE_RAW) {
            inflater->crc = (uint32_t)crc32(inflater->crc, to + made, got);
        }
        made += got;
        inflater->total += got;
        if (said == Z_STREAM_END) {
            status = end_member(inflater);
            if (status != BRIM_OK) {
                return status;
            }
        } else if (said == Z_BUF_ERROR) { /* nothing came in, because there is no more */
            return fail(inflater, "the compressed data end too early: the file was cut short");
        } else if (said != Z_OK) {
            return fail_zlib(inflater, said);
        }
    }
    *bytes = made;
    return BRIM_OK;
}

brim_status brim__inflate_read(struct brim__inflater *inflater, void *to, uint64_t bytes) {
    uint64_t got = bytes;
    const brim_status status = run(inflater, to, &got);
    if (status != BRIM_OK || got == bytes) {
        return status;
    }
    const unsigned long long promised = inflater->total - got + bytes;
    return brim__fail_byte(BRIM_STATUS_CORRUPT, inflater->file->path, file_byte(inflater),
                           "the compressed data end here after %llu bytes, but %llu were expected",
                           (unsigned long long)inflater->total, promised);
}

brim_status brim__inflate_end(struct brim__inflater *inflater) {
    const uint64_t promised = inflater->total;
    uint8_t more;
    uint64_t got = 1;
    const brim_status status = run(inflater, &more, &got);
    if (status != BRIM_OK) {
        return status;
    }
    if (got > 0) {
        return brim__fail_byte(BRIM_STATUS_CORRUPT, inflater->file->path, file_byte(inflater),
                               "the compressed data continue after the %llu bytes that were "
                               "expected",
                               (unsigned long long)promised);
    }
    if (inflater->zlib.avail_in > 0 || inflater->at < inflater->end) {
        return brim__fail_byte(BRIM_STATUS_CORRUPT, inflater->file->path, file_byte(inflater),
                               "the compressed data end here, but %llu bytes follow that "
                               "do not belong to them",
                               (unsigned long long)inflater->end - file_byte(inflater));
    }
    return BRIM_OK;
}

uint64_t brim__inflate_total(const struct brim__inflater *inflater) {
    return inflater->total;
}

uint32_t brim__inflate_crc(const struct brim__inflater *inflater) {
    return inflater->crc;
}

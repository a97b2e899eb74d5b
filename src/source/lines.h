/*
 * lines.h: files of records that end with a newline, as one source.
 *
 * The common part of text, CSV and JSONL. Files are read by number: an index of each file gives the
 * places of its records, and neighbours are read together. A stream ("-" for standard input, or a
 * pipe's path) is read in order: records are found as bytes arrive. In both cases the bytes of one
 * record, without its line end (
 * or \r
 * ), are passed to the format's parse function, which writes a record of the source (source.h).
 *
 * The bound on a record's bytes is max_bytes, or the longest in the indexes if
 * that is less; a longer one is a bad sample that names the option.
 *
 * The buffer is that of source.h, for files and streams:
 *
 *     buffer: | record | record | ... | bytes of all of them | work | work | ... | scratch |
 */
#ifndef BRIM_LINES_H
#define BRIM_LINES_H

#include "source/index.h"
#include "source/source.h"

struct brim__line_format {
    const char *stage; /* its name, also in the index's key */
    bool quotes;       /* a newline between double quotes does not end a record (CSV) */
    /* With quotes: a quote opens only at the begin of a field, which is the record's begin or after
     * this byte, or directly after a closing quote (a doubled one). Others are literal. 0: every
     * quote counts. */
    uint8_t delimiter;
    bool skip_blank;        /* empty lines are no records */
    uint64_t skip;          /* records at the beginning of each file that are no samples */
    uint64_t max_bytes;     /* 0: as it is usual for a file or a stream */
    uint64_t work_bytes;    /* that parse may use as it likes ... */
    uint64_t scratch_bytes; /* ... and that many more after them, which do not stay */
    /* brim__lines_finish calls it once the bound on a record's bytes is known, to set the two
     * above; NULL: they are set already. */
    void (*fit)(struct brim__line_format *format, uint64_t bound);
    /* Writes a record. `bytes`, and one byte after `length`, may be overwritten; spans may point
     * into them and into `work`. Called from any thread. */
    brim_status (*parse)(const struct brim__source *source, void *self, uint8_t *bytes,
                         uint64_t length, uint8_t *record, uint8_t *work);
    void *self;
};

struct brim__lines; /* the source's self */

/* Opens the files, or the stream, and sets the source's self and ops. From now on
 * source->ops->close closes what is open. The format is copied. home: where indexes are kept. */
brim_status brim__lines_init(struct brim__source *source, const struct brim__line_format *format,
                             const struct brim__values *paths, enum brim__index_home home,
                             struct brim__opening *opening, struct brim__lines **out);
/* The format. skip, work_bytes, parse and self may be set until brim__lines_finish. The other
 * fields are used from brim__lines_init on and must not change. */
struct brim__line_format *brim__lines_format(struct brim__lines *lines);
/* Reads record `number` (counted before `skip`) of the first file or the stream, for finding
 * headers and types. It is copied to the arena with a zero after it. Of a stream, only records in
 * the first 64 KiB can be read; they are not consumed. BRIM_STATUS_END if there are fewer
 * records. */
brim_status brim__lines_peek(struct brim__lines *lines, uint64_t number, uint8_t **bytes,
                             uint64_t *length);
/* Whether a BRIM_STATUS_END of peeking is the end of the data. For a stream it is only if all bytes
 * have come. */
bool brim__lines_ended(const struct brim__lines *lines);
/* The refusal of data without any record. */
brim_status brim__lines_empty(const char *path);
/* Whether the bytes begin like a gzip file. Such a file is never UTF-8. */
bool brim__lines_is_gzip(const uint8_t *bytes, uint64_t length);
/* Advice for a gzip file, appended to the error. */
#define BRIM__LINES_GZIP \
    "compressed with gzip: unpack it first, or pipe it: zcat FILE | brim ... '%s -'"
/* Before this call the source's fields, record_bytes, pitch and the begin of identity must be set.
 * Opens or makes the indexes and fills in count, extra_bytes and the rest. */
brim_status brim__lines_finish(struct brim__source *source, struct brim__lines *lines);
/* Bound on a record's bytes; known after brim__lines_finish for files with
 * an index, before it is max_bytes. */
uint64_t brim__lines_bound(const struct brim__lines *lines);

#endif

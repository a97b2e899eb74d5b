/*
 * lines.h: files of records that end with a newline, as one source.
 *
 * What text, CSV and JSONL have in common. By number: an index of each file says
 * where its records lie; neighbours are read together. As a stream ("-" for
 * standard input, or a pipe's path): records are found as bytes arrive. Either
 * way the bytes of one record, without its line end (\n or \r\n), are handed to
 * the format's parse function, which writes a record of the source (source.h).
 *
 * The bound on a record's bytes is max_bytes, or the longest in the indexes if
 * that is less; a longer one is a bad sample that names the option.
 *
 * Its buffer is that of source.h, for files and streams:
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
    /* With quotes: a quote opens only where a field begins, at the record's begin or
     * after this byte (or right after a closing one: doubled); others are literal.
     * 0: every quote counts. */
    uint8_t delimiter;
    bool skip_blank;        /* empty lines are no records */
    uint64_t skip;          /* records at the beginning of each file that are no samples */
    uint64_t max_bytes;     /* 0: as it is usual for a file or a stream */
    uint64_t work_bytes;    /* that parse may use as it likes ... */
    uint64_t scratch_bytes; /* ... and that many more after them, which do not stay */
    /* Called by brim__lines_finish, once the bound on a record's bytes is known, to set
     * the two above; NULL: they are set. */
    void (*fit)(struct brim__line_format *format, uint64_t bound);
    /* `bytes` may be written over, and spans may point into them and into `work`;
     * one byte after `length` may be read and written too. From any thread. */
    brim_status (*parse)(const struct brim__source *source, void *self, uint8_t *bytes,
                         uint64_t length, uint8_t *record, uint8_t *work);
    void *self;
};

struct brim__lines; /* the source's self */

/* Opens the files (or the stream: then there is only one) and makes the source's
 * self and ops; from here on source->ops->close closes what is open. The format
 * is copied. place: where indexes are kept. */
brim_status brim__lines_init(struct brim__source *source, const struct brim__line_format *format,
                             const struct brim__values *paths, enum brim__index_place place,
                             struct brim__opening *opening, struct brim__lines **out);
/* The format, to be completed until brim__lines_finish: skip, work_bytes, parse and
 * self. The others are used from brim__lines_init on, and stay as they were. */
struct brim__line_format *brim__lines_format(struct brim__lines *lines);
/* Record `number` (counted before `skip`) of the first file or the stream, for
 * looking at headers and types: copied to the arena with a zero after it. Of a
 * stream only what the first 64 KiB hold, which are not lost. BRIM_STATUS_END if there
 * are fewer. */
brim_status brim__lines_peek(struct brim__lines *lines, uint64_t number, uint8_t **bytes,
                             uint64_t *length);
/* Is a BRIM_STATUS_END of peeking the end of the data? Of a stream only once all of it
 * came. */
bool brim__lines_ended(const struct brim__lines *lines);
/* The refusal of data without any record. */
brim_status brim__lines_empty(const char *path);
/* Do the bytes begin as those of a file that gzip compressed? Such a file is never
 * UTF-8. */
bool brim__lines_is_gzip(const uint8_t *bytes, uint64_t length);
/* What to do about it; after what is wrong. */
#define BRIM__LINES_GZIP \
    "compressed with gzip: unpack it first, or pipe it: zcat FILE | brim ... '%s -'"
/* With the source's fields, record_bytes and pitch set (and identity begun): opens
 * or makes the indexes and fills in count, extra_bytes and the rest. */
brim_status brim__lines_finish(struct brim__source *source, struct brim__lines *lines);
/* Bound on a record's bytes; known after brim__lines_finish for files with
 * an index, before it is max_bytes. */
uint64_t brim__lines_bound(const struct brim__lines *lines);

#endif

/*
 * lines_parts.h: what lines.c, lines_scan.c and lines_stream.c share.
 */
#ifndef BRIM_LINES_PARTS_H
#define BRIM_LINES_PARTS_H

#include "base/stream.h"
#include "source/files.h"
#include "source/lines.h"

#define BRIM__LINES_PEEK 65536 /* of a stream, before its first sample is pulled */

/* The state of a walk over bytes with quotes; all zero at a record's begin. */
struct brim__line_state {
    bool inside; /* between quotes */
    bool within; /* in a field that has begun: a quote would be literal */
};

/* A stream's window: bytes [begin, end) came and are not consumed.
 *
 *     | consumed | record in progress, looked at | not looked at | free |
 *     0          begin                           scanned         end    window_bytes
 */
struct brim__line_stream {
    struct brim__stream in;
    uint8_t *window;
    uint64_t window_bytes;
    uint64_t begin, scanned, end;
    struct brim__line_state state; /* at scanned */
    bool begun;                    /* a byte order mark has been passed */
    bool ended;                    /* the window holds the last bytes */
    bool discarding;               /* the record in progress was too long and is reported */
    uint64_t to_skip;
};

struct brim__lines {
    struct brim__line_format format;
    struct brim__opening *opening; /* until finished */
    enum brim__index_home home;
    struct brim__files *files;        /* NULL: a stream */
    struct brim__index *index;        /* of each file */
    struct brim__line_stream *stream; /* NULL: files */
    uint64_t bound;                   /* on a record's bytes */
};

/* lines_scan.c */

/* The newline in [from, end) that ends the record in progress, or NULL. *state: the state at
 * `from`; on return that after the newline, or at `end`. */
const uint8_t *brim__line_end(const uint8_t *from, const uint8_t *end,
                              const struct brim__line_format *format,
                              struct brim__line_state *state);
/* Bytes of a byte order mark at the beginning. */
uint64_t brim__line_mark(const uint8_t *bytes, uint64_t count);
extern brim__index_scan brim__lines_scan; /* self: the lines */
/* Hash of the options that decide the entries of an index. */
uint64_t brim__lines_options(const struct brim__line_format *format);
brim_status brim__lines_peek_file(struct brim__lines *lines, uint64_t number, uint8_t **bytes,
                                  uint64_t *length);

/* lines_stream.c */

brim_status brim__lines_stream_init(struct brim__lines *lines, const char *path);
brim_status brim__lines_peek_stream(struct brim__lines *lines, uint64_t number, uint8_t **bytes,
                                    uint64_t *length);
extern const struct brim__source_ops brim__lines_stream_ops;
extern const struct brim__source_ops brim__lines_seekable_ops;

/* lines.c */

/* The error for a record over the bound. */
brim_status brim__lines_too_long(const struct brim__lines *lines, uint64_t length, bool at_least);
/* Copies a record that was peeked at to the arena, with a zero after it. */
brim_status brim__lines_keep(struct brim__lines *lines, uint64_t length, uint8_t **bytes);

#endif

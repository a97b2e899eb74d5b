/*
 * lines_stream.c: records found as bytes arrive.
 *
 * Bytes are read into a window that has room for the longest record and one more read. A whole
 * record is copied to the caller's buffer and parsed there. It is consumed only after that, so that
 * a record that cannot be delivered with those before it comes first the next time.
 *
 * A record that does not fit the window is reported once, and its remaining bytes are discarded as
 * they come.
 */
#include "base/progress.h"
#include "source/lines_parts.h"

#include <stdio.h>

#define READ_BYTES 65536
#define WAIT_NS    UINT64_C(100000000) /* between two checks whether to stop waiting */

brim_status brim__lines_stream_init(struct brim__lines *lines, const char *path) {
    struct brim__line_stream *stream;
    brim_status status = brim__arena_take(lines->opening->arena, sizeof *stream, &stream);
    if (status != BRIM_OK) {
        return status;
    }
    stream->in.fd = -1;
    lines->stream = stream;
    stream->window_bytes = lines->format.max_bytes + READ_BYTES;
    status = brim__arena_take(lines->opening->arena, stream->window_bytes, &stream->window);
    return status == BRIM_OK ? brim__stream_open(&stream->in, path) : status;
}

/* Makes room and reads once. */
static brim_status read_more(struct brim__line_stream *stream, uint64_t deadline_ns) {
    if (stream->begin > 0) {
        memmove(stream->window, stream->window + stream->begin, stream->end - stream->begin);
        stream->scanned -= stream->begin;
        stream->end -= stream->begin;
        stream->begin = 0;
    }
    size_t got;
    const brim_status status =
        brim__stream_read(&stream->in, stream->window + stream->end,
                          (size_t)(stream->window_bytes - stream->end), deadline_ns, &got);
    if (status == BRIM_OK) {
        stream->end += got;
        stream->ended = got == 0;
    }
    return status;
}

/* Skips a byte order mark as soon as enough bytes have come to recognize it. */
static void begin(struct brim__line_stream *stream) {
    const uint64_t held = stream->end - stream->begin;
    if (!stream->begun && (held >= 3 || stream->ended)) {
        stream->begin += brim__line_mark(stream->window + stream->begin, held);
        stream->scanned = stream->begin;
        stream->begun = true;
    }
}

static void consume(struct brim__line_stream *stream, uint64_t next) {
    stream->begin = stream->scanned = next;
    stream->state = (struct brim__line_state){ 0 };
    stream->discarding = false;
}

/* Finds the whole record [begin, begin + length); the next one begins at `next`. false: it is not
 * complete yet, or there is none. */
static bool find_record(const struct brim__lines *lines, uint64_t *length, uint64_t *next) {
    struct brim__line_stream *stream = lines->stream;
    begin(stream);
    if (!stream->begun) {
        return false;
    }
    const uint8_t *window = stream->window;
    const uint8_t *newline = brim__line_end(window + stream->scanned, window + stream->end,
                                            &lines->format, &stream->state);
    if (newline != NULL) {
        const uint64_t at = (uint64_t)(newline - window);
        stream->scanned = at;
        *length = at - stream->begin;
        *next = at + 1;
        if (*length > 0 && newline[-1] == '\r') {
            --*length;
        }
        return true;
    }
    stream->scanned = stream->end;
    *length = stream->end - stream->begin;
    *next = stream->end;
    return stream->ended && *length > 0;
}

/* If the whole record at `begin` is not a sample, consumes it and returns true. */
static bool pass_over(const struct brim__lines *lines, uint64_t length, uint64_t next) {
    struct brim__line_stream *stream = lines->stream;
    if (!stream->discarding) {
        if (!(lines->format.skip_blank && length == 0)) {
            if (stream->to_skip == 0) {
                return false;
            }
            stream->to_skip--;
        }
    }
    consume(stream, next);
    return true;
}

/* Finds the next sample's record and leaves it in the window. Without `wait` it reads nothing:
 * BRIM_STATUS_TIMEOUT, without a text, if there is no whole record. */
static brim_status next_record(const struct brim__lines *lines, bool wait, uint64_t deadline_ns,
                               uint64_t *length, uint64_t *next) {
    struct brim__line_stream *stream = lines->stream;
    for (;;) {
        while (find_record(lines, length, next)) {
            if (!pass_over(lines, *length, *next)) {
                return BRIM_OK;
            }
        }
        if (stream->ended) {
            return BRIM_STATUS_END;
        }
        if (!wait) {
            return BRIM_STATUS_TIMEOUT;
        }
        if (stream->end - stream->begin == stream->window_bytes) {
            /* the record is not needed, only its end */
            const bool skipped = stream->to_skip > 0 || stream->discarding;
            const struct brim__line_state state = stream->state;
            stream->to_skip -= stream->to_skip > 0 && !stream->discarding;
            consume(stream, stream->end);
            stream->state = state;
            stream->discarding = true;
            if (!skipped) {
                return brim__lines_too_long(lines, stream->window_bytes, true);
            }
        }
        /* if bytes never stop coming, no read would reach the deadline */
        if (stream->discarding && brim__now() >= deadline_ns) {
            return brim__fail(BRIM_STATUS_TIMEOUT, "%s: no whole record came in time",
                              brim__stream_name(stream->in.path));
        }
        const brim_status status = read_more(stream, deadline_ns);
        if (status != BRIM_OK) {
            return status;
        }
    }
}

static brim_status pull(const struct brim__source *source, uint64_t count, uint64_t deadline_ns,
                        uint8_t *buffer, const uint8_t **records, uint64_t *got) {
    const struct brim__lines *lines = source->self;
    const struct brim__line_format *format = &lines->format;
    struct brim__line_stream *stream = lines->stream;
    uint8_t *const raw = buffer + brim__source_extra(source, count);
    uint8_t *const work = raw + source->range_bytes;
    const uint64_t run = brim__min(count, source->most_run);
    uint64_t used = 0, n = 0;
    while (n < run) {
        uint64_t length = 0, next = 0;
        brim_status status = next_record(lines, n == 0, deadline_ns, &length, &next);
        if (status != BRIM_OK) {
            if (n > 0) {
                break;
            }
            return status;
        }
        if (n > 0 && length + 1 > source->range_bytes - used) {
            break;
        }
        if (length > lines->bound) {
            status = brim__lines_too_long(lines, length, false);
        } else {
            memcpy(raw + used, stream->window + stream->begin, length);
            status = format->parse(source, format->self, raw + used, length,
                                   buffer + n * source->pitch, work + n * source->work_bytes);
        }
        if (status != BRIM_OK && n > 0) {
            break; /* it will be the first of the next pull */
        }
        consume(stream, next);
        if (status != BRIM_OK) {
            return status;
        }
        used += length + 1;
        n++;
    }
    *records = buffer;
    *got = n;
    return BRIM_OK;
}

/* Reads from the beginning again, and skips the samples before `sample`. */
static brim_status rewind_stream(const struct brim__source *source, uint64_t epoch,
                                 uint64_t sample) {
    const struct brim__lines *lines = source->self;
    struct brim__line_stream *stream = lines->stream;
    (void)epoch;
    brim__stream_rewind(&stream->in);
    consume(stream, 0);
    stream->end = 0;
    stream->begun = stream->ended = false;
    if (brim__add_overflows(lines->format.skip, sample, &stream->to_skip)) {
        stream->to_skip = UINT64_MAX;
    }
    return BRIM_OK;
}

static void describe(const struct brim__source *source, uint64_t sample, char *text, size_t bytes) {
    const struct brim__lines *lines = source->self;
    snprintf(text, bytes, "%s, record %llu", brim__stream_name(lines->stream->in.path),
             (unsigned long long)sample);
}

static void where(const struct brim__source *source, uint64_t sample, char *path, uint64_t *byte) {
    const struct brim__lines *lines = source->self;
    (void)sample;
    brim__copy_text(path, BRIM_SOURCE_BYTES, brim__stream_name(lines->stream->in.path));
    *byte = BRIM_UNKNOWN;
}

static void close_stream(struct brim__source *source) {
    struct brim__lines *lines = source->self;
    if (lines->stream != NULL) {
        brim__stream_close(&lines->stream->in);
    }
    source->ops = NULL;
}

const struct brim__source_ops brim__lines_stream_ops = {
    .pull = pull,
    .describe = describe,
    .where = where,
    .close = close_stream,
};

const struct brim__source_ops brim__lines_seekable_ops = {
    .pull = pull,
    .rewind = rewind_stream,
    .describe = describe,
    .where = where,
    .close = close_stream,
};

/* -------------------------------------------------------------------- peek */

/* Waits for bytes until the caller's progress function asks to stop. */
static brim_status wait_more(const struct brim__lines *lines) {
    const struct brim__opening *opening = lines->opening;
    struct brim__line_stream *stream = lines->stream;
    for (;;) {
        const brim_status status = read_more(stream, brim__now() + WAIT_NS);
        if (status != BRIM_STATUS_TIMEOUT) {
            return status;
        }
        if (!brim__progress_report(opening->progress, opening->progress_user,
                                   "waiting for the first bytes", BRIM_UNIT_BYTES, stream->end,
                                   BRIM_UNKNOWN)) {
            return brim__fail(BRIM_STATUS_INTERRUPTED,
                              "%s: waiting for its first bytes was stopped",
                              brim__stream_name(stream->in.path));
        }
    }
}

/* Finds record `number` in the window. */
static bool find_peeked(const struct brim__lines *lines, uint64_t number, uint64_t *offset,
                        uint64_t *length) {
    const struct brim__line_stream *stream = lines->stream;
    const uint8_t *from = stream->window + stream->begin;
    const uint8_t *const end = stream->window + stream->end;
    uint64_t seen = 0;
    while (from < end) {
        struct brim__line_state state = { 0 };
        const uint8_t *newline = brim__line_end(from, end, &lines->format, &state);
        if (newline == NULL && !stream->ended) {
            return false;
        }
        const uint8_t *const stop = newline == NULL ? end : newline;
        *offset = (uint64_t)(from - stream->window);
        *length = (uint64_t)(stop - from);
        if (newline != NULL && *length > 0 && stop[-1] == '\r') {
            --*length;
        }
        if (!(lines->format.skip_blank && *length == 0) && seen++ == number) {
            return true;
        }
        from = stop + 1;
    }
    return false;
}

brim_status brim__lines_peek_stream(struct brim__lines *lines, uint64_t number, uint8_t **bytes,
                                    uint64_t *length) {
    struct brim__line_stream *stream = lines->stream;
    uint64_t offset = 0;
    begin(stream);
    while (!stream->begun || !find_peeked(lines, number, &offset, length)) {
        if (stream->ended || stream->end - stream->begin >= BRIM__LINES_PEEK) {
            return BRIM_STATUS_END;
        }
        const brim_status status = wait_more(lines);
        if (status != BRIM_OK) {
            return status;
        }
        begin(stream);
    }
    const brim_status status = brim__lines_keep(lines, *length, bytes);
    if (status == BRIM_OK) {
        memcpy(*bytes, stream->window + offset, *length);
    }
    return status;
}

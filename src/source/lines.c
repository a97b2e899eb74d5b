/*
 * lines.c: files of records that end with a newline, by number.
 *
 * The index gives the places of the records, and the format parses them (source.h). A parse
 * function may use the byte after its record, so two neighbours are read together only if a line
 * end is between them. A forged index can therefore give wrong records, but never bytes outside the
 * buffer.
 */
#include "source/lines.h"
#include "source/lines_parts.h"

#include <stdio.h>

#define RUN_BYTES    262144      /* of records and work for one fetch, if there are several */
#define FILE_BYTES   (1u << 20)  /* longest record, if nothing was said */
#define STREAM_BYTES (64u << 10) /* the same of a stream, whose true longest is not known */

/* ----------------------------------------------------------------- opening */

static const struct brim__source_ops file_ops;

static brim_status init_files(struct brim__source *source, struct brim__lines *lines,
                              const struct brim__values *paths) {
    const char *stage = lines->format.stage;
    brim_status status =
        brim__files_init(source, stage, paths->count, lines->opening, &lines->files);
    if (status == BRIM_OK) {
        status = brim__arena_take(lines->opening->arena, paths->count * sizeof *lines->index,
                                  &lines->index);
    }
    if (status != BRIM_OK) {
        return status;
    }
    for (size_t i = 0; i < paths->count; i++) {
        lines->index[i].file.fd = -1;
    }
    source->self = lines;
    source->ops = &file_ops;
    for (size_t i = 0; status == BRIM_OK && i < paths->count; i++) {
        const char *path;
        status = brim__arena_text(lines->opening->arena, paths->items[i].text, &path);
        if (status == BRIM_OK) {
            status = brim__files_open(lines->files, i, path);
        }
    }
    return status;
}

static brim_status init_stream(struct brim__source *source, struct brim__lines *lines,
                               const struct brim__values *paths) {
    const char *path;
    brim_status status = brim__arena_text(lines->opening->arena, paths->items[0].text, &path);
    if (status != BRIM_OK) {
        return status;
    }
    source->self = lines;
    source->ops = &brim__lines_stream_ops;
    source->stream = true;
    source->count = BRIM_UNKNOWN;
    status = brim__lines_stream_init(lines, path);
    if (status == BRIM_OK && lines->stream->in.seekable) {
        source->ops = &brim__lines_seekable_ops;
    }
    return status;
}

brim_status brim__lines_init(struct brim__source *source, const struct brim__line_format *format,
                             const struct brim__values *paths, enum brim__index_home home,
                             struct brim__opening *opening, struct brim__lines **out) {
    bool stream = false;
    for (size_t i = 0; i < paths->count; i++) {
        if (brim__stream_is(paths->items[i].text)) {
            if (paths->count > 1) {
                return brim__fail(BRIM_STATUS_INVALID,
                                  "%s: %s is a stream: it must be the only file", format->stage,
                                  brim__stream_name(paths->items[i].text));
            }
            stream = true;
        }
    }
    struct brim__lines *lines;
    const brim_status status = brim__arena_take(opening->arena, sizeof *lines, &lines);
    if (status != BRIM_OK) {
        return status;
    }
    lines->format = *format;
    if (format->max_bytes == 0) {
        lines->format.max_bytes = stream ? STREAM_BYTES : FILE_BYTES;
    }
    lines->opening = opening;
    lines->home = home;
    lines->bound = lines->format.max_bytes;
    *out = lines;
    return stream ? init_stream(source, lines, paths) : init_files(source, lines, paths);
}

struct brim__line_format *brim__lines_format(struct brim__lines *lines) {
    return &lines->format;
}

uint64_t brim__lines_bound(const struct brim__lines *lines) {
    return lines->bound;
}

brim_status brim__lines_too_long(const struct brim__lines *lines, uint64_t length, bool at_least) {
    return brim__fail(BRIM_STATUS_CORRUPT,
                      "%s: the record has %s%llu bytes, but max_bytes is %llu: raise it, or leave "
                      "bad samples out (batch on_error=skip)",
                      lines->format.stage, at_least ? "more than " : "", (unsigned long long)length,
                      (unsigned long long)lines->format.max_bytes);
}

brim_status brim__lines_keep(struct brim__lines *lines, uint64_t length, uint8_t **bytes) {
    return length > lines->format.max_bytes
               ? brim__lines_too_long(lines, length, false)
               : brim__arena_take(lines->opening->arena, length + 1, bytes);
}

brim_status brim__lines_peek(struct brim__lines *lines, uint64_t number, uint8_t **bytes,
                             uint64_t *length) {
    return lines->stream != NULL ? brim__lines_peek_stream(lines, number, bytes, length)
                                 : brim__lines_peek_file(lines, number, bytes, length);
}

bool brim__lines_ended(const struct brim__lines *lines) {
    return lines->stream == NULL || lines->stream->ended;
}

brim_status brim__lines_empty(const char *path) {
    return brim__fail(BRIM_STATUS_CORRUPT, "%s: holds no records: it is empty",
                      brim__stream_name(path));
}

bool brim__lines_is_gzip(const uint8_t *bytes, uint64_t length) {
    return length >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b;
}

static brim_status open_indexes(struct brim__source *source, struct brim__lines *lines) {
    const struct brim__index_recipe recipe = { .source = lines->format.stage,
                                               .options = brim__lines_options(&lines->format),
                                               .home = lines->home,
                                               .scan = brim__lines_scan,
                                               .self = lines };
    struct brim__files *files = lines->files;
    uint64_t largest = 1; /* at least 1: a bound of 0 would mean no bound for a field */
    for (size_t i = 0; i < files->count; i++) {
        struct brim__files_part *part = &files->part[i];
        const brim_status status =
            brim__index_open(&lines->index[i], &part->file, &recipe, lines->opening);
        if (status != BRIM_OK) {
            return status;
        }
        part->samples = lines->index[i].count;
        part->first = source->count;
        if (brim__add_overflows(source->count, part->samples, &source->count) ||
            source->count > INT64_MAX) {
            return brim__fail(BRIM_STATUS_INVALID,
                              "%s: the files hold more than 2^63 records together",
                              part->file.path);
        }
        largest = brim__max(largest, lines->index[i].largest);
        source->identity = brim__hash_words(source->identity, part->samples, part->file.bytes);
    }
    if (source->count == 0) {
        return files->count == 1
                   ? brim__lines_empty(files->part[0].file.path)
                   : brim__fail(BRIM_STATUS_CORRUPT,
                                "%s: holds no records, nor do the other files of the list",
                                files->part[0].file.path);
    }
    lines->bound = brim__min(lines->format.max_bytes, largest);
    return BRIM_OK;
}

brim_status brim__lines_finish(struct brim__source *source, struct brim__lines *lines) {
    struct brim__line_format *format = &lines->format;
    source->identity = brim__hash_words(source->identity, brim__lines_options(format),
                                        brim__hash(format->stage, strlen(format->stage), 0));
    if (lines->stream != NULL) {
        lines->stream->to_skip = format->skip;
    } else {
        const brim_status status = open_indexes(source, lines);
        if (status != BRIM_OK) {
            return status;
        }
        source->is_file = true;
    }
    if (format->fit != NULL) {
        format->fit(format, lines->bound);
    }
    uint64_t each;
    if (format->work_bytes > UINT64_MAX / 4 || format->scratch_bytes > UINT64_MAX / 8 ||
        lines->bound > UINT64_MAX / 8 ||
        brim__add_overflows(brim__align(format->work_bytes, BRIM__CACHE_LINE), source->pitch,
                            &each)) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "%s: records of up to %llu bytes are too large: lower "
                          "max_bytes",
                          format->stage, (unsigned long long)lines->bound);
    }
    source->work_bytes = brim__align(format->work_bytes, BRIM__CACHE_LINE);
    source->scratch_bytes = brim__align(format->scratch_bytes, BRIM__CACHE_LINE);
    source->most_run = brim__max(1, brim__min(BRIM__MOST_RANGES, RUN_BYTES / brim__max(1, each)));
    source->range_margin = 1; /* the byte after a record that a parse function may use */
    source->range_bytes = brim__align(
        brim__max(lines->bound + 1,
                  brim__min(BRIM__READ_WINDOW,
                            source->most_run * (brim__min(lines->bound, BRIM__READ_WINDOW) + 2))),
        BRIM__CACHE_LINE);
    source->extra_bytes = brim__source_parsing_bytes(source);
    lines->opening = NULL;
    return BRIM_OK;
}

/* ---------------------------------------------------------------- fetching */

static size_t find_file(const struct brim__lines *lines, uint64_t sample) {
    return (size_t)(brim__files_find(lines->files, sample) - lines->files->part);
}

static brim_status locate(const struct brim__source *source, uint64_t sample, uint64_t count,
                          struct brim__file_range *ranges, size_t most, size_t *found) {
    const struct brim__lines *lines = source->self;
    assert(sample < source->count && count > 0 && most > 0);
    const size_t p = find_file(lines, sample);
    const struct brim__files_part *part = &lines->files->part[p];
    const uint64_t first = sample - part->first;
    const size_t run = (size_t)brim__min(brim__min(count, most), part->samples - first);
    const brim_status status =
        brim__index_locate(&lines->index[p], &part->file, first, run, ranges);
    if (status != BRIM_OK) {
        return status;
    }
    if (ranges[0].bytes > lines->bound) {
        return brim__lines_too_long(lines, ranges[0].bytes, false);
    }
    size_t n = 1;
    while (n < run && ranges[n].bytes <= lines->bound) {
        n++;
    }
    *found = n;
    return BRIM_OK;
}

static brim_status parse(const struct brim__source *source, const struct brim__file_range *range,
                         uint8_t *bytes, uint8_t *record, uint8_t *work) {
    const struct brim__lines *lines = source->self;
    return lines->format.parse(source, lines->format.self, bytes, range->bytes, record, work);
}

/* The byte at which a sample begins in its file; BRIM_UNKNOWN: the index cannot be read. */
static uint64_t byte_of(const struct brim__lines *lines, size_t p, uint64_t sample) {
    struct brim__index_entry entry;
    struct brim__failure kept;
    brim__failure_keep(&kept); /* the failure that is being described */
    const brim_status status =
        brim__index_read(&lines->index[p], sample - lines->files->part[p].first, 1, &entry);
    brim__failure_restore(&kept);
    return status == BRIM_OK ? entry.offset : BRIM_UNKNOWN;
}

static void describe(const struct brim__source *source, uint64_t sample, char *text, size_t bytes) {
    const struct brim__lines *lines = source->self;
    const size_t p = find_file(lines, sample);
    const struct brim__files_part *part = &lines->files->part[p];
    const uint64_t byte = byte_of(lines, p, sample);
    if (byte != BRIM_UNKNOWN) {
        snprintf(text, bytes, "%s, record %llu (byte %llu)", part->file.path,
                 (unsigned long long)(sample - part->first), (unsigned long long)byte);
    } else {
        snprintf(text, bytes, "%s, record %llu", part->file.path,
                 (unsigned long long)(sample - part->first));
    }
}

static void where(const struct brim__source *source, uint64_t sample, char *path, uint64_t *byte) {
    const struct brim__lines *lines = source->self;
    const size_t p = find_file(lines, sample);
    brim__copy_text(path, BRIM_SOURCE_BYTES, lines->files->part[p].file.path);
    *byte = byte_of(lines, p, sample);
}

static brim_status stamp_lines(const struct brim__source *source, uint64_t sample, uint8_t *buffer,
                               const struct brim__opening *opening, uint64_t *stamp) {
    const struct brim__lines *lines = source->self;
    (void)buffer;
    (void)opening;
    return brim__files_stamp(lines->files, sample, stamp);
}

static void close_lines(struct brim__source *source) {
    struct brim__lines *lines = source->self;
    for (size_t i = 0; i < lines->files->count; i++) {
        brim__file_close(&lines->files->part[i].file);
        brim__index_close(&lines->index[i]);
    }
    source->ops = NULL;
}

static const struct brim__source_ops file_ops = {
    .locate = locate,
    .parse = parse,
    .fetch = brim__source_fetch,
    .describe = describe,
    .where = where,
    .stamp = stamp_lines,
    .close = close_lines,
};

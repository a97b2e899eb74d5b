/*
 * records.c: `records PATH... bytes=N`, raw records of one size.
 *
 *     | skip bytes | record 0 | record 1 | ... | record n - 1 |
 *
 * The file does not describe its content, so the pipeline does. Each of `fields` is
 *
 *     name:dtype            a scalar
 *     name:dtype:3x32x32    an array, row-major
 *     ...@17                at byte 17 of the record; else after the field before it
 *
 * Fields may overlap and may leave bytes out. Without fields a record is one
 * field of its bytes. A file's size must be skip and a whole number of records.
 *
 * "-" and pipes are streams: records are delivered as they become whole. If a wait ends in the
 * middle of a record, its bytes so far are kept in the stream.
 */
#include "base/stream.h"
#include "source/arguments.h"
#include "source/files.h"

#include <stdio.h>

enum {
    ARGUMENT_FILES,
    ARGUMENT_BYTES,
    ARGUMENT_FIELDS,
    ARGUMENT_SKIP,
    ARGUMENT_ORDER,
    ARGUMENT_MAP,
    ARGUMENT_NAME,
};

#define MOST_RECORD (UINT64_C(1) << 40)

/* ------------------------------------------------------------------ fields */

/* Decimal digits and nothing else, below 2^63. */
static bool read_number(const char *text, size_t length, uint64_t *number) {
    *number = 0;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9' || brim__mul_overflows(*number, 10, number) ||
            brim__add_overflows(*number, (uint64_t)(text[i] - '0'), number) ||
            *number > INT64_MAX) {
            return false;
        }
    }
    return length > 0;
}

/* "3x32x32" */
static bool read_shape(const char *text, struct brim__shape *shape) {
    do {
        const size_t length = strcspn(text, "x");
        if (shape->rank == BRIM_MAX_RANK - 1 ||
            !read_number(text, length, &shape->dim[shape->rank]) || shape->dim[shape->rank] == 0) {
            return false;
        }
        shape->rank++;
        text += length;
    } while (*text++ == 'x');
    return true;
}

static brim_status bad_field(const char *given, const char *what) {
    return brim__fail(BRIM_STATUS_INVALID,
                      "records: field '%s': %s; a field is name:dtype, name:dtype:3x32x32, or "
                      "either with @ and its first byte in the record",
                      given, what);
}

/* *end: the byte after the previous field; on return, the byte after this one. */
static brim_status read_field(const char *given, bool big, struct brim__source_field *field,
                              uint64_t *end) {
    char text[256];
    if (!brim__copy_text(text, sizeof text, given)) {
        return bad_field(given, "too long");
    }
    uint64_t offset = *end, bytes;
    char *at = strchr(text, '@');
    if (at != NULL) {
        *at = '\0';
        if (!read_number(at + 1, strlen(at + 1), &offset)) {
            return bad_field(given, "no number follows the @");
        }
    }
    char *dtype = strchr(text, ':');
    if (dtype == NULL) {
        return bad_field(given, "it has no dtype");
    }
    *dtype++ = '\0';
    char *shape = strchr(dtype, ':');
    if (shape != NULL) {
        *shape++ = '\0';
    }
    field->view = (struct brim__view){ .offset = offset };
    brim_status status = brim__field_name(field->name, text);
    if (status == BRIM_OK) {
        status = brim__dtype_parse(dtype, &field->view.dtype);
    }
    if (status != BRIM_OK) {
        return brim__fail_within(status, "records: field '%s'", given);
    }
    if (shape != NULL && !read_shape(shape, &field->view.shape)) {
        return bad_field(given, "its shape is not 1 to 7 numbers of at least 1 with x between "
                                "them");
    }
    const uint64_t item_bytes = brim_dtype_bytes(field->view.dtype);
    if (brim__shape_bytes_overflow(&field->view.shape, item_bytes, &bytes) ||
        brim__add_overflows(offset, bytes, end)) {
        *end = UINT64_MAX; /* after any record */
    }
    field->view.swapped = big && item_bytes > 1;
    brim__view_row_major(&field->view);
    return BRIM_OK;
}

static brim_status set_fields(const struct brim__use *use, struct brim__source *source) {
    const struct brim__values *given = &use->values[ARGUMENT_FIELDS];
    const bool big = brim__item(use, ARGUMENT_ORDER)->integer != 0;
    uint64_t end = 0;
    source->identity = brim__hash("records", 7, source->record_bytes);
    if (given->count == 0) {
        source->field_count = 1;
        source->field[0].view =
            (struct brim__view){ .dtype = BRIM_DTYPE_U8,
                                 .shape = { .rank = 1, .dim = { source->record_bytes } } };
        brim__view_row_major(&source->field[0].view);
        const brim_status status =
            brim__field_name(source->field[0].name, brim__item(use, ARGUMENT_NAME)->text);
        return status == BRIM_OK ? BRIM_OK : brim__fail_within(status, "records");
    }
    if (given->count > BRIM__MAX_FIELDS) {
        return brim__fail(BRIM_STATUS_UNSUPPORTED, "records: %zu fields; at most %d", given->count,
                          BRIM__MAX_FIELDS);
    }
    for (size_t i = 0; i < given->count; i++) {
        struct brim__source_field *field = &source->field[i];
        const brim_status status = read_field(given->items[i].text, big, field, &end);
        if (status != BRIM_OK) {
            return status;
        }
        if (end > source->record_bytes) {
            return brim__fail(BRIM_STATUS_INVALID,
                              "records: field '%s' extends past the record's %llu bytes: make "
                              "bytes= larger or the field smaller",
                              given->items[i].text, (unsigned long long)source->record_bytes);
        }
        for (size_t k = 0; k < i; k++) {
            if (strcmp(source->field[k].name, field->name) == 0) {
                return brim__fail(BRIM_STATUS_INVALID, "records: two fields have the name '%s'",
                                  field->name);
            }
        }
        source->field_count++;
        source->identity = brim__hash_words(source->identity, (uint64_t)field->view.dtype, end);
    }
    return BRIM_OK;
}

/* ------------------------------------------------------------------- files */

static brim_status open_files(const struct brim__use *use, struct brim__opening *opening,
                              struct brim__source *source) {
    const struct brim__values *paths = &use->values[ARGUMENT_FILES];
    const uint64_t skip = (uint64_t)brim__item(use, ARGUMENT_SKIP)->integer;
    struct brim__files *files;
    brim_status status = brim__files_init(source, "records", paths->count, opening, &files);
    if (status != BRIM_OK) {
        return status;
    }
    for (size_t i = 0; i < files->count; i++) {
        struct brim__files_part *part = &files->part[i];
        const char *path;
        status = brim__arena_text(opening->arena, paths->items[i].text, &path);
        if (status == BRIM_OK) {
            status = brim__files_open(files, i, path);
        }
        if (status != BRIM_OK) {
            return status;
        }
        if (part->file.bytes < skip) {
            return brim__fail_byte(BRIM_STATUS_CORRUPT, path, part->file.bytes,
                                   "the file ends inside the %llu bytes to "
                                   "be skipped",
                                   (unsigned long long)skip);
        }
        const uint64_t rest = (part->file.bytes - skip) % source->record_bytes;
        if (rest != 0) {
            return brim__fail_byte(BRIM_STATUS_CORRUPT, path, (part->file.bytes - rest),
                                   "the file ends inside a record: after the %llu bytes "
                                   "skipped, %llu bytes are not a multiple of bytes=%llu",
                                   (unsigned long long)skip,
                                   (unsigned long long)(part->file.bytes - skip),
                                   (unsigned long long)source->record_bytes);
        }
        part->data = skip;
        part->samples = (part->file.bytes - skip) / source->record_bytes;
    }
    return brim__files_finish(source, files, brim__item(use, ARGUMENT_MAP)->integer != 0,
                              "records");
}

/* ------------------------------------------------------------------ stream */

/* Used by one thread of the engine at a time. */
struct record_stream {
    struct brim__stream in;
    uint64_t skip;      /* bytes before the first record */
    uint64_t to_skip;   /* of them, still to come */
    uint64_t delivered; /* records since the stream's first */
    uint8_t *begun;     /* record_bytes: the bytes of the next record so far */
    uint64_t begun_bytes;
    bool ended;
};

/* Skips the bytes before the first record, using `spare` as a buffer. */
static brim_status pass_header(struct record_stream *stream, uint64_t deadline_ns, uint8_t *spare,
                               uint64_t spare_bytes) {
    while (stream->to_skip > 0) {
        size_t got;
        const brim_status status = brim__stream_read(
            &stream->in, spare, (size_t)brim__min(spare_bytes, stream->to_skip), deadline_ns, &got);
        if (status != BRIM_OK) {
            return status;
        }
        if (got == 0) {
            stream->ended = true;
            const uint64_t missing = stream->to_skip;
            stream->to_skip = 0;
            return brim__fail(BRIM_STATUS_CORRUPT,
                              "%s: ends inside the %llu bytes to be skipped: %llu "
                              "are missing",
                              brim__stream_name(stream->in.path), (unsigned long long)stream->skip,
                              (unsigned long long)missing);
        }
        stream->to_skip -= got;
    }
    return BRIM_OK;
}

static brim_status pull(const struct brim__source *source, uint64_t count, uint64_t deadline_ns,
                        uint8_t *buffer, const uint8_t **records, uint64_t *got) {
    struct record_stream *stream = source->self;
    const uint64_t size = source->record_bytes;
    const uint64_t room = brim__min(count, source->most_run) * size;
    if (stream->ended) {
        return BRIM_STATUS_END;
    }
    brim_status status = pass_header(stream, deadline_ns, buffer, room);
    if (status != BRIM_OK) {
        return status;
    }
    uint64_t filled = stream->begun_bytes;
    memcpy(buffer, stream->begun, filled);
    while (filled < size && status == BRIM_OK && !stream->ended) {
        size_t came = 0;
        status = brim__stream_read(&stream->in, buffer + filled, (size_t)(room - filled),
                                   deadline_ns, &came);
        stream->ended = status == BRIM_OK && came == 0;
        filled += came;
    }
    const uint64_t whole = filled / size;
    stream->begun_bytes = filled - whole * size;
    memcpy(stream->begun, buffer + whole * size, stream->begun_bytes);
    if (whole > 0) {
        stream->delivered += whole;
        *records = buffer;
        *got = whole;
        return BRIM_OK;
    }
    if (status != BRIM_OK) {
        return status;
    }
    if (filled == 0) {
        return BRIM_STATUS_END;
    }
    return brim__fail(BRIM_STATUS_CORRUPT,
                      "%s: ends inside record %llu: %llu of its %llu bytes came",
                      brim__stream_name(stream->in.path), (unsigned long long)stream->delivered,
                      (unsigned long long)filled, (unsigned long long)size);
}

/* For a file that was given as standard input, by position. */
static brim_status rewind_stream(const struct brim__source *source, uint64_t epoch,
                                 uint64_t sample) {
    struct record_stream *stream = source->self;
    uint64_t past;
    (void)epoch;
    brim__stream_rewind(&stream->in);
    stream->to_skip = stream->skip;
    stream->begun_bytes = 0;
    stream->delivered = sample;
    stream->ended = brim__mul_overflows(sample, source->record_bytes, &past) ||
                    brim__add_overflows(past, stream->skip, &past) ||
                    brim__add_overflows(past, stream->in.start, &past) || past > INT64_MAX;
    if (sample > 0 && !stream->ended) {
        stream->in.at = past; /* at or after the end: it has ended */
        stream->to_skip = 0;
    }
    return BRIM_OK;
}

static void describe_stream(const struct brim__source *source, uint64_t sample, char *text,
                            size_t bytes) {
    const struct record_stream *stream = source->self;
    snprintf(text, bytes, "%s, record %llu", brim__stream_name(stream->in.path),
             (unsigned long long)sample);
}

static void where_stream(const struct brim__source *source, uint64_t sample, char *path,
                         uint64_t *byte) {
    const struct record_stream *stream = source->self;
    (void)sample;
    brim__copy_text(path, BRIM_SOURCE_BYTES, brim__stream_name(stream->in.path));
    *byte = BRIM_UNKNOWN;
}

static void close_stream(struct brim__source *source) {
    struct record_stream *stream = source->self;
    brim__stream_close(&stream->in);
    source->ops = NULL;
}

static const struct brim__source_ops stream_ops = {
    .pull = pull,
    .describe = describe_stream,
    .where = where_stream,
    .close = close_stream,
};

static const struct brim__source_ops seekable_ops = {
    .pull = pull,
    .rewind = rewind_stream,
    .describe = describe_stream,
    .where = where_stream,
    .close = close_stream,
};

static brim_status open_stream(const struct brim__use *use, struct brim__opening *opening,
                               struct brim__source *source) {
    struct record_stream *stream;
    const char *path;
    brim_status status = brim__arena_take(opening->arena, sizeof *stream, &stream);
    if (status != BRIM_OK) {
        return status;
    }
    stream->in.fd = -1;
    stream->skip = stream->to_skip = (uint64_t)brim__item(use, ARGUMENT_SKIP)->integer;
    source->self = stream;
    source->ops = &stream_ops;
    status = brim__arena_text(opening->arena, use->values[ARGUMENT_FILES].items[0].text, &path);
    if (status == BRIM_OK) {
        status = brim__arena_take(opening->arena, source->record_bytes, &stream->begun);
    }
    if (status == BRIM_OK) {
        status = brim__stream_open(&stream->in, path);
    }
    if (status != BRIM_OK) {
        return status;
    }
    if (stream->in.seekable) {
        source->ops = &seekable_ops;
    }
    source->stream = true;
    source->count = BRIM_UNKNOWN;
    source->most_run = brim__max(1, BRIM__READ_WINDOW / source->record_bytes);
    return BRIM_OK;
}

/* ------------------------------------------------------------------- stage */

static brim_status open_any(const struct brim__use *use, struct brim__opening *opening,
                            struct brim__source *source) {
    const struct brim__values *paths = &use->values[ARGUMENT_FILES];
    brim_status status = set_fields(use, source);
    if (status != BRIM_OK) {
        return status;
    }
    bool stream = false;
    for (size_t i = 0; i < paths->count; i++) {
        stream = stream || brim__stream_is(paths->items[i].text);
    }
    if (stream && paths->count > 1) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "records: a stream cannot be one of several files: give "
                          "it alone");
    }
    return stream ? open_stream(use, opening, source) : open_files(use, opening, source);
}

static brim_status open_records(const struct brim__use *use, struct brim__opening *opening,
                                struct brim__source *source) {
    memset(source, 0, sizeof *source);
    source->record_bytes = source->pitch = (uint64_t)brim__item(use, ARGUMENT_BYTES)->integer;
    const brim_status status = open_any(use, opening, source);
    if (status != BRIM_OK && source->ops != NULL) {
        source->ops->close(source);
    }
    return status;
}

static const brim_argument_info arguments[] = {
    [ARGUMENT_FILES] = BRIM__FILES_ARGUMENT("one or several files of records, read as one; or - "
                                            "(standard input) or a pipe alone, read as a stream"),
    [ARGUMENT_BYTES] = { .name = "bytes",
                         .type = BRIM_TYPE_SIZE,
                         .flags = BRIM_ARGUMENT_FLAG_REQUIRED,
                         .least = 1,
                         .most = (double)MOST_RECORD,
                         .help = "bytes of a record" },
    [ARGUMENT_FIELDS] = { .name = "fields",
                          .type = BRIM_TYPE_WORD,
                          .flags = BRIM_ARGUMENT_FLAG_LIST,
                          .help = "what a record holds: name:dtype, name:dtype:3x32x32, each "
                                  "after the one before it or at @BYTE; without fields: uint8, "
                                  "all its bytes" },
    [ARGUMENT_SKIP] = { .name = "skip",
                        .type = BRIM_TYPE_SIZE,
                        .fallback = "0",
                        .least = 0,
                        .most = (double)MOST_RECORD,
                        .help = "bytes before the first record of each file" },
    [ARGUMENT_ORDER] = { .name = "order",
                         .type = BRIM_TYPE_CHOICE,
                         .fallback = "little",
                         .choices = "little|big",
                         .help = "byte order of elements of more than one byte" },
    [ARGUMENT_MAP] = BRIM__MAP_ARGUMENT("the files instead of reading them", ""),
    [ARGUMENT_NAME] = BRIM__NAME_ARGUMENT("x", " where fields= is not given"),
};

const struct brim__stage brim__stage_records = {
    .info = { .name = "records",
              .summary = "raw records of one size, with fields that the text describes",
              .example = "records train.bin bytes=3073 fields=label:uint8,image:uint8:3x32x32",
              .room = BRIM_ROOM_SOURCE,
              .version = 1,
              .arguments = arguments,
              .argument_count = BRIM__COUNT(arguments) },
    .open = open_records,
};

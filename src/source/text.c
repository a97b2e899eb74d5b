/*
 * text.c: `text PATH...`, one sample for each line.
 *
 * lines.h defines lines and how they are found. A sample is the bytes of one line without its end,
 * in the place where they were read. A record has only a span:
 *
 *     record:  brim__span -> the line's bytes, after the records
 *
 * Text that is not UTF-8 is a bad sample, so that stages can rely on fields of form text;
 * form=bytes takes any bytes.
 */
#include "base/utf8.h"
#include "source/arguments.h"
#include "source/lines.h"

enum { ARGUMENT_FILES, ARGUMENT_NAME, ARGUMENT_MAX_BYTES, ARGUMENT_INDEX, ARGUMENT_FORM };

static brim_status parse_bytes(const struct brim__source *source, void *self, uint8_t *bytes,
                               uint64_t length, uint8_t *record, uint8_t *work) {
    (void)source;
    (void)self;
    (void)work;
    const struct brim__span span = { .data = bytes, .count = length };
    memcpy(record, &span, sizeof span);
    return BRIM_OK;
}

static brim_status parse_text(const struct brim__source *source, void *self, uint8_t *bytes,
                              uint64_t length, uint8_t *record, uint8_t *work) {
    const size_t valid = brim__utf8_valid(bytes, (size_t)length);
    if (valid != length && brim__lines_is_gzip(bytes, length)) {
        return brim__fail(BRIM_STATUS_CORRUPT,
                          "the line begins with 1f 8b, like a file that is " BRIM__LINES_GZIP,
                          "text");
    }
    if (valid != length) {
        return brim__fail(BRIM_STATUS_CORRUPT,
                          "byte %zu of the line (0x%02x) is not UTF-8; form=bytes takes any bytes",
                          valid, bytes[valid]);
    }
    return parse_bytes(source, self, bytes, length, record, work);
}

static brim_status open_lines(const struct brim__use *use, struct brim__opening *opening,
                              struct brim__source *source) {
    const bool is_text = brim__item(use, ARGUMENT_FORM)->integer == 0;
    const struct brim__line_format format = {
        .stage = "text",
        .max_bytes = (uint64_t)brim__item(use, ARGUMENT_MAX_BYTES)->integer,
        .parse = is_text ? parse_text : parse_bytes,
    };
    const enum brim__index_home home =
        brim__item(use, ARGUMENT_INDEX)->integer == 0 ? BRIM__INDEX_CACHE : BRIM__INDEX_BESIDE;
    struct brim__source_field *field = &source->field[0];
    struct brim__lines *lines;
    brim_status status =
        brim__lines_init(source, &format, &use->values[ARGUMENT_FILES], home, opening, &lines);
    if (status != BRIM_OK) {
        return status;
    }
    source->field_count = 1;
    source->record_bytes = source->pitch = sizeof(struct brim__span);
    field->form = is_text ? BRIM_FORM_TEXT : BRIM_FORM_BYTES;
    status = brim__lines_finish(source, lines);
    field->view =
        (struct brim__view){ .dtype = BRIM_DTYPE_U8,
                             .shape = { .rank = 1, .dim = { brim__lines_bound(lines) } } };
    brim__view_row_major(&field->view);
    return status;
}

static brim_status open_text(const struct brim__use *use, struct brim__opening *opening,
                             struct brim__source *source) {
    memset(source, 0, sizeof *source);
    brim_status status =
        brim__field_name(source->field[0].name, brim__item(use, ARGUMENT_NAME)->text);
    if (status != BRIM_OK) {
        return brim__fail_within(status, "text");
    }
    status = open_lines(use, opening, source);
    if (status != BRIM_OK && source->ops != NULL) {
        source->ops->close(source);
    }
    return status;
}

static const brim_argument_info arguments[] = {
    [ARGUMENT_FILES] =
        BRIM__FILES_ARGUMENT("one or several files of lines, read as one; or - for standard input, "
                             "or a pipe: then it is read once, in its order"),
    [ARGUMENT_NAME] = BRIM__NAME_ARGUMENT("text", ""),
    [ARGUMENT_MAX_BYTES] = BRIM__MAX_BYTES_ARGUMENT("line", 1099511627776.0 /* 2^40 */),
    [ARGUMENT_INDEX] = BRIM__LINES_INDEX_ARGUMENT,
    [ARGUMENT_FORM] = { .name = "form",
                        .type = BRIM_TYPE_CHOICE,
                        .fallback = "text",
                        .choices = "text|bytes",
                        .help = "text: lines must be UTF-8; bytes: lines of any bytes" },
};

const struct brim__stage brim__stage_text = {
    .info = { .name = "text",
              .summary = "lines of text files, one sample each",
              .example = "text corpus.txt max_bytes=64KiB",
              .room = BRIM_ROOM_SOURCE,
              .version = 1,
              .arguments = arguments,
              .argument_count = BRIM__COUNT(arguments) },
    .open = open_text,
};

/*
 * csv.c: `csv PATH...`, records of text with a delimiter between their fields.
 *
 * lines.c finds the records and reads their bytes, csv_columns.c determines the columns, and
 * csv_parse.c converts the bytes to values. This file has the arguments and the layout of the
 * record:
 *
 *     pack=no   a: float64 | b: int64 | name: span | ...   a field for each column
 *     pack=yes  a b c d ...                                one field, a vector
 *
 * The columns come from the first file. Every other file must begin with the same header, because
 * its columns could be others.
 */
#include "source/csv.h"
#include "source/arguments.h"

#include "base/stream.h"

#include <stdio.h>

enum {
    ARGUMENT_FILES,
    ARGUMENT_HEADER,
    ARGUMENT_DELIMITER,
    ARGUMENT_COLUMNS,
    ARGUMENT_TYPES,
    ARGUMENT_MAX_BYTES,
    ARGUMENT_MAX_TEXT,
    ARGUMENT_PACK,
    ARGUMENT_NAME,
    ARGUMENT_MISSING,
    ARGUMENT_INDEX,
};

static brim_status parse_delimiter(const char *text, char *delimiter) {
    *delimiter = strcmp(text, "tab") == 0 || strcmp(text, "\\t") == 0 ? '\t' : text[0];
    const char c = *delimiter;
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    const bool single = c == '\t' || text[1] == '\0';
    if (c == '\0' || !single || letter || (uint8_t)c >= 0x7f || ((uint8_t)c < 0x20 && c != '\t') ||
        strchr("\".+-", c) != NULL) {
        return brim__fail(
            BRIM_STATUS_INVALID,
            "csv: delimiter= is one character that is not a letter, digit, quote, '.', "
            "'+' or '-', or the word tab");
    }
    return BRIM_OK;
}

/* ------------------------------------------------------------------ fields */

static void field_name(const struct brim__csv *csv, uint32_t column, char to[BRIM_NAME_BYTES]) {
    const char *name = csv->column[column].name;
    brim__field_name_of(to, name, name == NULL ? 0 : strlen(name));
    if (to[0] == '\0') {
        snprintf(to, BRIM_NAME_BYTES, "c%u", column);
    }
}

static brim_status check_twice(const struct brim__csv *csv, const struct brim__source *source,
                               uint32_t index, const char *path) {
    for (uint32_t i = 0; i < index; i++) {
        if (strcmp(source->field[i].name, source->field[index].name) == 0) {
            return brim__fail(BRIM_STATUS_INVALID,
                              "%s: columns %u and %u would both be called '%s': rename one, or "
                              "choose with columns=",
                              path, csv->chosen[i] + 1, csv->chosen[index] + 1,
                              source->field[i].name);
        }
    }
    return BRIM_OK;
}

/* A field for each column. */
static brim_status set_fields(struct brim__csv *csv, struct brim__source *source,
                              const char *path) {
    if (csv->chosen_count > BRIM__MAX_FIELDS) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "%s: %u columns, but a sample has at most %d fields: choose with "
                          "columns=, or make one vector of them with pack=yes",
                          path, csv->chosen_count, BRIM__MAX_FIELDS);
    }
    source->field_count = csv->chosen_count;
    for (uint32_t i = 0; i < csv->chosen_count; i++) {
        struct brim__csv_column *column = &csv->column[csv->chosen[i]];
        struct brim__source_field *field = &source->field[i];
        const bool text = column->kind == BRIM__CSV_TEXT || column->kind == BRIM__CSV_BYTES;
        const uint64_t bytes =
            text ? sizeof(struct brim__span) : brim_dtype_bytes((brim_dtype)column->kind);
        field_name(csv, csv->chosen[i], field->name);
        const brim_status status = check_twice(csv, source, i, path);
        if (status != BRIM_OK) {
            return status;
        }
        column->offset = (uint32_t)brim__align(source->record_bytes, text ? 8 : bytes);
        source->record_bytes = column->offset + bytes;
        field->form = !text                             ? BRIM_FORM_DENSE
                      : column->kind == BRIM__CSV_BYTES ? BRIM_FORM_BYTES
                                                        : BRIM_FORM_TEXT;
        field->view = (struct brim__view){ .dtype = text ? BRIM_DTYPE_U8 : (brim_dtype)column->kind,
                                           .shape = { .rank = text ? 1 : 0, .dim = { 1 } },
                                           .offset = column->offset };
        brim__view_row_major(&field->view);
    }
    source->pitch = brim__align(source->record_bytes, 8);
    return BRIM_OK;
}

/* One vector of all columns. */
static brim_status set_packed(struct brim__csv *csv, struct brim__source *source,
                              const struct brim__use *use, const char *path) {
    struct brim__source_field *field = &source->field[0];
    uint8_t kind = 0;
    for (uint32_t i = 0; i < csv->chosen_count; i++) {
        struct brim__csv_column *column = &csv->column[csv->chosen[i]];
        char shown[BRIM__CSV_SHOWN];
        if (column->kind == BRIM__CSV_TEXT || column->kind == BRIM__CSV_BYTES) {
            return brim__fail(BRIM_STATUS_INVALID,
                              "%s: column '%s' holds %s, which pack=yes cannot put into a vector "
                              "of numbers: choose others with columns=",
                              path, brim__csv_column_text(csv, csv->chosen[i], shown),
                              brim__csv_kind_name(column->kind));
        }
        column->kind = column->guessed ? BRIM_DTYPE_F32 : column->kind;
        kind = i == 0 ? column->kind : kind;
        if (column->kind != kind) {
            return brim__fail(BRIM_STATUS_INVALID,
                              "csv: types=: pack=yes makes one vector of one type, but column '%s' "
                              "is %s and others %s: give one type, such as types=float32",
                              brim__csv_column_text(csv, csv->chosen[i], shown),
                              brim__csv_kind_name(column->kind), brim__csv_kind_name(kind));
        }
        column->offset = (uint32_t)(i * brim_dtype_bytes((brim_dtype)kind));
    }
    source->field_count = 1;
    source->record_bytes = csv->chosen_count * brim_dtype_bytes((brim_dtype)kind);
    source->pitch = source->record_bytes;
    field->view = (struct brim__view){ .dtype = (brim_dtype)kind,
                                       .shape = { .rank = 1, .dim = { csv->chosen_count } } };
    brim__view_row_major(&field->view);
    const brim_status status = brim__field_name(field->name, brim__item(use, ARGUMENT_NAME)->text);
    return status == BRIM_OK ? BRIM_OK : brim__fail_within(status, "csv: name=");
}

/* A hash of everything except the bytes that the values depend on. */
static uint64_t identity(const struct brim__csv *csv) {
    uint64_t hash = brim__hash_words(brim__hash("csv", 3, (uint64_t)csv->delimiter), csv->missing,
                                     csv->has_header);
    for (uint32_t i = 0; i < csv->chosen_count; i++) {
        hash = brim__hash_words(hash, csv->chosen[i], csv->column[csv->chosen[i]].kind);
    }
    return hash;
}

/* ------------------------------------------------------------------- files */

/* Checks that a file begins with the header of the first one. */
static brim_status check_header(const struct brim__csv *csv, const char *path,
                                const char *first_path, uint8_t *bytes) {
    struct brim__file file;
    brim_status status = brim__file_open(&file, path);
    if (status != BRIM_OK) {
        return status;
    }
    const uint64_t room = csv->header_bytes + 4; /* a byte-order mark, and what follows */
    const uint64_t count = brim__min(file.bytes, room);
    status = brim__file_read(&file, 0, bytes, (size_t)count);
    brim__file_close(&file);
    if (status != BRIM_OK) {
        return status;
    }
    const uint64_t mark = count >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    const uint64_t end = mark + csv->header_bytes;
    const bool same = end <= count && memcmp(bytes + mark, csv->header, csv->header_bytes) == 0 &&
                      (end == count || bytes[end] == '\n' || bytes[end] == '\r');
    if (same) {
        return BRIM_OK;
    }
    char shown[BRIM__CSV_SHOWN], first[BRIM__CSV_SHOWN];
    const uint8_t *line = memchr(bytes, '\n', (size_t)count);
    return brim__fail(BRIM_STATUS_INVALID,
                      "%s begins with \"%s\", but %s with the header \"%s\": files of one list "
                      "must have the same",
                      path,
                      brim__csv_show(shown, (const char *)bytes,
                                     line == NULL ? (size_t)count : (size_t)(line - bytes)),
                      first_path,
                      brim__csv_show(first, (const char *)csv->header, (size_t)csv->header_bytes));
}

static brim_status check_headers(const struct brim__csv *csv, const struct brim__values *paths,
                                 struct brim__opening *opening) {
    if (!csv->has_header || paths->count == 1) {
        return BRIM_OK;
    }
    uint8_t *bytes;
    brim_status status = brim__arena_take(opening->arena, csv->header_bytes + 4, &bytes);
    for (size_t i = 1; i < paths->count && status == BRIM_OK; i++) {
        status = check_header(csv, paths->items[i].text, paths->items[0].text, bytes);
    }
    return status;
}

/* Sets the bound on texts, once the bound on a record is known. */
static void bound_texts(struct brim__csv *csv, struct brim__source *source, uint64_t most) {
    csv->most_text = brim__max(1, most);
    for (uint32_t i = 0; i < source->field_count; i++) {
        if (source->field[i].form != BRIM_FORM_DENSE) {
            source->field[i].view.shape.dim[0] = csv->most_text;
        }
    }
}

/* Called if there are no records: fails with another text if the data is only a header. */
static brim_status check_records(const struct brim__csv *csv, struct brim__lines *lines,
                                 const char *path, brim_status otherwise) {
    uint8_t *bytes;
    uint64_t length;
    if (!csv->has_header || brim__lines_peek(lines, 1, &bytes, &length) != BRIM_STATUS_END) {
        return otherwise;
    }
    return brim__fail(BRIM_STATUS_CORRUPT,
                      "%s: it has a header but no records; if its first line is a record, "
                      "give header=no",
                      path);
}

static brim_status open_files(const struct brim__use *use, struct brim__opening *opening,
                              struct brim__source *source, struct brim__csv *csv) {
    const struct brim__values *paths = &use->values[ARGUMENT_FILES];
    const char *path = brim__stream_name(paths->items[0].text);
    struct brim__line_format format = {
        .stage = "csv",
        .quotes = true,
        .delimiter = (uint8_t)csv->delimiter,
        .skip_blank = true,
        .max_bytes = (uint64_t)brim__item(use, ARGUMENT_MAX_BYTES)->integer,
        .parse = brim__csv_parse,
        .self = csv,
    };
    const struct brim__csv_wish wish = {
        .header = (enum brim__csv_header)brim__item(use, ARGUMENT_HEADER)->integer,
        .columns = &use->values[ARGUMENT_COLUMNS],
        .types = &use->values[ARGUMENT_TYPES],
    };
    struct brim__lines *lines;
    brim_status status = brim__lines_init(
        source, &format, paths, (enum brim__index_home)brim__item(use, ARGUMENT_INDEX)->integer,
        opening, &lines);
    if (status == BRIM_OK) {
        status = brim__csv_choose(csv, &wish, lines, path, opening->arena);
    }
    if (status == BRIM_OK) {
        status = check_headers(csv, paths, opening);
    }
    if (status == BRIM_OK) {
        status = csv->pack ? set_packed(csv, source, use, path) : set_fields(csv, source, path);
    }
    if (status != BRIM_OK) {
        return status;
    }
    source->identity = identity(csv);
    brim__lines_format(lines)->skip = csv->has_header ? 1 : 0;
    const uint64_t most = brim__given(use, ARGUMENT_MAX_TEXT)
                              ? (uint64_t)brim__item(use, ARGUMENT_MAX_TEXT)->integer
                              : UINT64_MAX;
    if (source->stream && brim__lines_ended(lines)) {
        status = check_records(csv, lines, path, BRIM_OK);
    }
    if (status == BRIM_OK) {
        status = brim__lines_finish(source, lines);
    }
    if (status == BRIM_STATUS_CORRUPT && source->count == 0 && paths->count == 1) {
        return check_records(csv, lines, path, status);
    }
    bound_texts(csv, source, brim__min(most, brim__lines_bound(lines)));
    return status;
}

static brim_status open_csv(const struct brim__use *use, struct brim__opening *opening,
                            struct brim__source *source) {
    struct brim__csv *csv;
    memset(source, 0, sizeof *source);
    brim_status status = brim__arena_take(opening->arena, sizeof *csv, &csv);
    if (status == BRIM_OK) {
        csv->pack = brim__item(use, ARGUMENT_PACK)->integer != 0;
        csv->missing = (enum brim__csv_missing)brim__item(use, ARGUMENT_MISSING)->integer;
        status = parse_delimiter(brim__item(use, ARGUMENT_DELIMITER)->text, &csv->delimiter);
    }
    if (status == BRIM_OK) {
        status = open_files(use, opening, source, csv);
    }
    if (status != BRIM_OK && source->ops != NULL) {
        source->ops->close(source);
    }
    return status;
}

static const brim_argument_info arguments[] = {
    [ARGUMENT_FILES] = BRIM__FILES_ARGUMENT(
        "one or several CSV files with the same header, or - for standard input"),
    [ARGUMENT_HEADER] = { .name = "header",
                          .type = BRIM_TYPE_CHOICE,
                          .fallback = "auto",
                          .choices = "auto|yes|no",
                          .help = "whether the first record of each file names the columns; auto: "
                                  "yes, unless one of its fields is a number. Without a header "
                                  "columns are called c0, c1, ..." },
    [ARGUMENT_DELIMITER] = { .name = "delimiter",
                             .type = BRIM_TYPE_WORD,
                             .fallback = ",",
                             .help = "the character between fields; tab for a tabulator" },
    [ARGUMENT_COLUMNS] = { .name = "columns",
                           .type = BRIM_TYPE_WORD,
                           .flags = BRIM_ARGUMENT_FLAG_LIST,
                           .help = "names of the columns to read, in this order; none: all" },
    [ARGUMENT_TYPES] = { .name = "types",
                         .type = BRIM_TYPE_WORD,
                         .flags = BRIM_ARGUMENT_FLAG_LIST,
                         .help = "one type for each column read, one for all, or name:type; of "
                                 "int64, float64, other integers, float32, bool, text, bytes; "
                                 "columns without one are int64, float64 or text, as their first "
                                 "100 records are" },
    [ARGUMENT_MAX_BYTES] = BRIM__MAX_BYTES_ARGUMENT("record", 1073741824),
    [ARGUMENT_MAX_TEXT] = { .name = "max_text",
                            .type = BRIM_TYPE_SIZE,
                            .least = 1,
                            .most = 1073741824,
                            .help = "longest text in a column; a longer one is a bad sample; "
                                    "not given: as long as the record" },
    [ARGUMENT_PACK] = { .name = "pack",
                        .type = BRIM_TYPE_YESNO,
                        .fallback = "no",
                        .help = "yes: one field, a vector of all columns, float32 unless types= "
                                "says otherwise" },
    [ARGUMENT_NAME] = { .name = "name",
                        .type = BRIM_TYPE_WORD,
                        .fallback = "x",
                        .help = "with pack=yes: the field's name" },
    [ARGUMENT_MISSING] = { .name = "missing",
                           .type = BRIM_TYPE_CHOICE,
                           .fallback = "error",
                           .choices = "error|nan|zero",
                           .help = "what an empty number (or NA, N/A, null, none) is: a bad "
                                   "sample, NaN or 0" },
    [ARGUMENT_INDEX] = BRIM__LINES_INDEX_ARGUMENT,
};

const struct brim__stage brim__stage_csv = {
    .info = { .name = "csv",
              .summary = "records of CSV files; each column is a field, or all one vector",
              .example = "csv train.csv columns=age,income,label types=float32,float32,int64",
              .room = BRIM_ROOM_SOURCE,
              .version = 1,
              .arguments = arguments,
              .argument_count = BRIM__COUNT(arguments) },
    .open = open_csv,
};

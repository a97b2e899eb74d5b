/*
 * csv_columns.c: determines the columns of a CSV file, which are read, and their types.
 *
 * The header is split in place in the arena, so the names need no other memory. Types that are not
 * given are guessed from the first records of the first file. A record with another number of
 * fields, or one that cannot be read, is ignored here; it will be a bad sample when it is read.
 *
 *     int64  <-- all integers    float64 <-- all numbers or missing    text <-- the rest
 */
#include "base/number.h"
#include "source/csv.h"

#include <math.h>
#include <stdio.h>

struct choice {
    struct brim__csv *csv;
    const struct brim__csv_wish *wish;
    struct brim__lines *lines;
    const char *path;
    struct brim__arena *arena;
};

/* ----------------------------------------------------------------- records */

/* Reads a record of the first file, with the delimiter after it, as brim__csv_split needs it. */
static brim_status look(const struct choice *choice, uint64_t number, char **begin, char **end) {
    uint8_t *bytes;
    uint64_t length;
    const brim_status status = brim__lines_peek(choice->lines, number, &bytes, &length);
    if (status == BRIM_OK) {
        *begin = (char *)bytes;
        *end = *begin + length;
        **end = choice->csv->delimiter;
    }
    return status;
}

static bool is_number(char *text, size_t length) {
    double value;
    brim__csv_strip(&text, &length);
    return brim__parse_real(text, length, &value) && isfinite(value);
}

/* How many fields a record has, 0 if a quote is never closed. */
static uint32_t count_fields(const struct brim__csv *csv, const char *at, const char *end) {
    uint32_t count = 0;
    while (at != NULL && at <= end && count <= BRIM__CSV_COLUMNS) {
        at = brim__csv_skip(csv->delimiter, at, end);
        count++;
    }
    return at == NULL ? 0 : count;
}

static size_t count_of(const char *at, const char *end, char c) {
    size_t count = 0;
    for (; at < end; at++) {
        count += *at == c;
    }
    return count;
}

/* Fails if the delimiter seems to be wrong: there is one column, and with another delimiter its
 * header and first record have the same number of fields, more than one. Not checked if columns or
 * types are given. */
static brim_status check_delimiter(const struct choice *choice, const char *begin,
                                   const char *end) {
    static const char others[] = { ';', '\t' };
    const struct brim__csv_wish *wish = choice->wish;
    if (choice->csv->count != 1 || choice->csv->delimiter != ',' || wish->columns->count > 0 ||
        wish->types->count > 0) {
        return BRIM_OK;
    }
    for (size_t i = 0; i < BRIM__COUNT(others); i++) {
        const size_t count = count_of(begin, end, others[i]);
        char *next, *next_end;
        if (count == 0) {
            continue;
        }
        const brim_status status = look(choice, 1, &next, &next_end);
        if (status == BRIM_STATUS_END || status == BRIM_STATUS_CORRUPT) {
            continue;
        }
        if (status != BRIM_OK) {
            return status;
        }
        if (count_of(next, next_end, others[i]) == count) {
            return brim__fail(BRIM_STATUS_INVALID,
                              "%s: the header has one column but holds %s: give delimiter=%s, or "
                              "types=text if it is one column",
                              choice->path, i == 0 ? "';'" : "tabs", i == 0 ? ";" : "tab");
        }
    }
    return BRIM_OK;
}

/* ----------------------------------------------------------------- columns */

/* Reads the first record: the number of columns, whether it is a header, and the names. */
static brim_status read_header(const struct choice *choice) {
    struct brim__csv *csv = choice->csv;
    char *begin, *end;
    brim_status status = look(choice, 0, &begin, &end);
    if (status == BRIM_STATUS_END) {
        return brim__lines_ended(choice->lines)
                   ? brim__lines_empty(choice->path)
                   : brim__fail(BRIM_STATUS_CORRUPT,
                                "%s: the first record does not end in its first %d bytes",
                                choice->path, BRIM__CSV_LOOK);
    }
    if (status != BRIM_OK) {
        return status;
    }
    if (brim__lines_is_gzip((const uint8_t *)begin, (uint64_t)(end - begin))) {
        return brim__fail(BRIM_STATUS_CORRUPT, "%s: the file is " BRIM__LINES_GZIP, choice->path,
                          "csv");
    }
    if (memchr(begin, '\0', (size_t)(end - begin)) != NULL) {
        return brim__fail(BRIM_STATUS_CORRUPT,
                          "%s: the first record holds NUL bytes: this is not CSV text, or it is "
                          "UTF-16, which must be converted to UTF-8",
                          choice->path);
    }
    csv->count = count_fields(csv, begin, end);
    if (csv->count == 0 || csv->count > BRIM__CSV_COLUMNS) {
        return csv->count == 0
                   ? brim__fail(BRIM_STATUS_CORRUPT,
                                "%s: the first record: a quote is never closed", choice->path)
                   : brim__fail(BRIM_STATUS_INVALID,
                                "%s: the first record has more than %d fields, the most that csv "
                                "reads",
                                choice->path, BRIM__CSV_COLUMNS);
    }
    status = check_delimiter(choice, begin, end);
    if (status != BRIM_OK) {
        return status;
    }
    uint8_t *copy; /* unchanged: the other files must have the same */
    csv->header_bytes = (uint64_t)(end - begin);
    status = brim__arena_take(choice->arena, csv->header_bytes + 1, &copy);
    if (status == BRIM_OK) {
        status = brim__arena_take(choice->arena, csv->count * sizeof *csv->column, &csv->column);
    }
    if (status != BRIM_OK) {
        return status;
    }
    memcpy(copy, begin, csv->header_bytes);
    csv->header = copy;
    csv->has_header = choice->wish->header != BRIM__CSV_HEADER_NO;
    for (uint32_t i = 0; i < csv->count; i++) {
        char *text;
        size_t length;
        begin = brim__csv_split(csv->delimiter, begin, end, &text, &length);
        brim__csv_strip(&text, &length);
        text[length] = '\0'; /* a delimiter, a quote or a blank stood here */
        csv->column[i].name = length == 0 ? NULL : text;
        if (choice->wish->header == BRIM__CSV_HEADER_AUTO && is_number(text, length)) {
            csv->has_header = false;
        }
    }
    for (uint32_t i = 0; i < csv->count && !csv->has_header; i++) {
        csv->column[i].name = NULL;
    }
    return BRIM_OK;
}

/* The column number of a name like "c12", or the count if it is none. */
static uint32_t number_in(const struct brim__csv *csv, const char *name) {
    int64_t number;
    return name[0] == 'c' && name[1] >= '0' && name[1] <= '9' &&
                   brim__parse_integer(name + 1, strlen(name + 1), &number) && number < csv->count
               ? (uint32_t)number
               : csv->count;
}

static bool has_name(const struct brim__csv *csv, uint32_t column, const char *name) {
    const char *own = csv->column[column].name;
    return own != NULL ? strcmp(own, name) == 0 : number_in(csv, name) == column;
}

/* The error names the nearest column and lists the existing ones. */
static brim_status unknown_column(const struct choice *choice, const char *argument,
                                  const char *name) {
    const struct brim__csv *csv = choice->csv;
    char shown[BRIM__CSV_SHOWN], one[BRIM__CSV_SHOWN], list[320] = "", near[96] = "";
    const char *nearest = NULL;
    for (uint32_t i = 0; i < csv->count; i++) {
        const char *pair[2] = { nearest, csv->column[i].name };
        if (pair[1] != NULL) {
            nearest =
                pair[0] == NULL ? brim_nearest(name, pair + 1, 1) : brim_nearest(name, pair, 2);
        }
    }
    size_t used = 0;
    for (uint32_t i = 0; i < csv->count; i++) {
        const char *text = brim__csv_column_text(csv, i, one);
        if (used + strlen(text) + 8 > sizeof list) {
            memcpy(list + used, ", ...", 6);
            break;
        }
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i == 0 ? "" : ", ", text);
    }
    if (nearest != NULL) {
        snprintf(near, sizeof near, "; did you mean '%s'?",
                 brim__csv_show(one, nearest, strlen(nearest)));
    }
    return brim__fail(BRIM_STATUS_INVALID, "csv: %s: %s has no column '%s'%s (it has %s)", argument,
                      choice->path, brim__csv_show(shown, name, strlen(name)), near, list);
}

static brim_status find_column(const struct choice *choice, const char *argument, const char *name,
                               uint32_t *column) {
    const struct brim__csv *csv = choice->csv;
    uint32_t found = csv->count;
    for (uint32_t i = 0; i < csv->count; i++) {
        if (!has_name(csv, i, name)) {
            continue;
        }
        if (found < csv->count) {
            char shown[BRIM__CSV_SHOWN];
            return brim__fail(BRIM_STATUS_INVALID,
                              "csv: %s: columns %u and %u of %s are both called '%s': rename one",
                              argument, found + 1, i + 1, choice->path,
                              brim__csv_show(shown, name, strlen(name)));
        }
        found = i;
    }
    *column = found;
    return found < csv->count ? BRIM_OK : unknown_column(choice, argument, name);
}

static brim_status choose_columns(const struct choice *choice) {
    struct brim__csv *csv = choice->csv;
    const struct brim__values *names = choice->wish->columns;
    if (names->count > csv->count) {
        return brim__fail(BRIM_STATUS_INVALID, "csv: columns= names %zu columns, but %s has %u",
                          names->count, choice->path, csv->count);
    }
    csv->chosen_count = names->count == 0 ? csv->count : (uint32_t)names->count;
    const brim_status taken =
        brim__arena_take(choice->arena, csv->chosen_count * sizeof *csv->chosen, &csv->chosen);
    if (taken != BRIM_OK) {
        return taken;
    }
    for (uint32_t i = 0; i < csv->chosen_count; i++) {
        csv->chosen[i] = i;
        if (names->count > 0) {
            const brim_status status =
                find_column(choice, "columns=", names->items[i].text, &csv->chosen[i]);
            if (status != BRIM_OK) {
                return status;
            }
        }
        struct brim__csv_column *column = &csv->column[csv->chosen[i]];
        if (column->kind != BRIM__CSV_SKIP) {
            char shown[BRIM__CSV_SHOWN];
            return brim__fail(BRIM_STATUS_INVALID, "csv: columns= names '%s' twice",
                              brim__csv_column_text(csv, csv->chosen[i], shown));
        }
        column->kind = BRIM__CSV_AUTO;
        column->guessed = true;
    }
    return BRIM_OK;
}

/* ------------------------------------------------------------------- types */

/* The error names the nearest type and lists all types of csv. */
static brim_status unknown_type(const char *text) {
    static const char *const names[] = { "bool",    "int8",   "int16",  "int32",  "int64",
                                         "uint8",   "uint16", "uint32", "uint64", "float32",
                                         "float64", "text",   "bytes" };
    char list[160] = "", near[64] = "";
    size_t used = 0;
    for (size_t i = 0; i < BRIM__COUNT(names); i++) {
        used +=
            (size_t)snprintf(list + used, sizeof list - used, "%s%s", i == 0 ? "" : ", ", names[i]);
    }
    const char *nearest = brim_nearest(text, names, BRIM__COUNT(names));
    if (nearest != NULL) {
        snprintf(near, sizeof near, "; did you mean '%s'?", nearest);
    }
    return brim__fail(BRIM_STATUS_INVALID, "csv: types=: '%.40s' is not a type%s (it takes %s)",
                      text, near, list);
}

static brim_status parse_type(const char *text, uint8_t *kind) {
    brim_dtype dtype;
    if (strcmp(text, "text") == 0 || strcmp(text, "bytes") == 0) {
        *kind = text[0] == 't' ? BRIM__CSV_TEXT : BRIM__CSV_BYTES;
        return BRIM_OK;
    }
    if (brim__dtype_parse(text, &dtype) != BRIM_OK) {
        return unknown_type(text);
    }
    if (brim__dtype_is_complex(dtype) || dtype == BRIM_DTYPE_F16 || dtype == BRIM_DTYPE_BF16) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "csv: types=: columns cannot be read as %s, only as integers, bool, "
                          "float32, float64, text and bytes%s",
                          brim_dtype_name(dtype),
                          brim__dtype_is_complex(dtype) ? "" : "; the stage cast makes others");
    }
    *kind = (uint8_t)dtype;
    return BRIM_OK;
}

static brim_status set_type(const struct choice *choice, uint32_t column, const char *text) {
    struct brim__csv_column *own = &choice->csv->column[column];
    own->guessed = false;
    return parse_type(text, &own->kind);
}

/* name:type; names may hold colons, types do not. */
static brim_status set_named_type(const struct choice *choice, const char *text,
                                  const char *colon) {
    char *name;
    uint32_t column;
    brim_status status = brim__arena_take(choice->arena, (uint64_t)(colon - text) + 1, &name);
    if (status != BRIM_OK) {
        return status;
    }
    memcpy(name, text, (size_t)(colon - text));
    status = find_column(choice, "types=", name, &column);
    if (status != BRIM_OK) {
        return status;
    }
    if (!choice->csv->column[column].guessed) {
        char shown[BRIM__CSV_SHOWN];
        const bool twice = choice->csv->column[column].kind != BRIM__CSV_SKIP;
        return brim__fail(BRIM_STATUS_INVALID, "csv: types=: column '%s' %s",
                          brim__csv_column_text(choice->csv, column, shown),
                          twice ? "is given two types" : "is not among columns=");
    }
    return set_type(choice, column, colon + 1);
}

static brim_status set_types(const struct choice *choice) {
    const struct brim__csv *csv = choice->csv;
    const struct brim__values *types = choice->wish->types;
    size_t named = 0;
    brim_status status = BRIM_OK;
    for (size_t i = 0; i < types->count && status == BRIM_OK; i++) {
        const char *text = types->items[i].text, *colon = strrchr(text, ':');
        if (colon != NULL) {
            named++;
            status = set_named_type(choice, text, colon);
        }
    }
    if (status != BRIM_OK || types->count == named) {
        return status;
    }
    if (named > 0) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "csv: types= mixes types with and without a column's name: give "
                          "name:type for all, or one type for each chosen column");
    }
    if (types->count != 1 && types->count != csv->chosen_count) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "csv: types= has %zu types for %u columns: give one for each, one for "
                          "all, or name:type",
                          types->count, csv->chosen_count);
    }
    for (uint32_t i = 0; i < csv->chosen_count && status == BRIM_OK; i++) {
        status = set_type(choice, csv->chosen[i], types->items[types->count == 1 ? 0 : i].text);
    }
    return status;
}

/* The kind that a column needs after one more value. Kinds only get wider. */
static uint8_t widen(uint8_t kind, char *text, size_t length) {
    int64_t integer;
    double real;
    brim__csv_strip(&text, &length);
    if (kind == BRIM__CSV_TEXT) {
        return kind;
    }
    if (brim__parse_integer(text, length, &integer)) {
        return kind == BRIM__CSV_AUTO ? BRIM_DTYPE_I64 : kind;
    }
    return brim__parse_real(text, length, &real) || brim__csv_is_missing(text, length)
               ? BRIM_DTYPE_F64
               : BRIM__CSV_TEXT;
}

/* Widens the kinds of the columns that are guessed by one record. */
static void learn(struct brim__csv *csv, char *at, char *end) {
    if (count_fields(csv, at, end) != csv->count) {
        return;
    }
    for (uint32_t i = 0; i < csv->count; i++) {
        char *text;
        size_t length;
        at = brim__csv_split(csv->delimiter, at, end, &text, &length);
        if (csv->column[i].guessed) {
            csv->column[i].kind = widen(csv->column[i].kind, text, length);
        }
    }
}

static brim_status guess_types(const struct choice *choice) {
    struct brim__csv *csv = choice->csv;
    const uint64_t first = csv->has_header ? 1 : 0;
    uint64_t seen = 0;
    bool any = false;
    for (uint32_t i = 0; i < csv->chosen_count; i++) {
        any = any || csv->column[csv->chosen[i]].guessed;
    }
    for (uint64_t i = 0; any && i < BRIM__CSV_GUESS && seen < BRIM__CSV_LOOK; i++) {
        char *begin, *end;
        const brim_status status = look(choice, first + i, &begin, &end);
        if (status == BRIM_STATUS_END) {
            break;
        }
        if (status == BRIM_STATUS_CORRUPT) {
            continue;
        }
        if (status != BRIM_OK) {
            return status;
        }
        seen += (uint64_t)(end - begin);
        learn(csv, begin, end);
    }
    for (uint32_t i = 0; i < csv->chosen_count; i++) {
        struct brim__csv_column *column = &csv->column[csv->chosen[i]];
        column->kind = column->kind == BRIM__CSV_AUTO ? BRIM_DTYPE_F64 : column->kind;
    }
    return BRIM_OK;
}

brim_status brim__csv_choose(struct brim__csv *csv, const struct brim__csv_wish *wish,
                             struct brim__lines *lines, const char *path,
                             struct brim__arena *arena) {
    const struct choice choice = {
        .csv = csv, .wish = wish, .lines = lines, .path = path, .arena = arena
    };
    brim_status status = read_header(&choice);
    if (status == BRIM_OK) {
        status = choose_columns(&choice);
    }
    if (status == BRIM_OK) {
        status = set_types(&choice);
    }
    return status == BRIM_OK ? guess_types(&choice) : status;
}

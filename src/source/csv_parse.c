/*
 * csv_parse.c: converts the bytes of one CSV record to values.
 *
 * A record is read once, from front to back. The delimiter is written after its end, so that every
 * field ends with one and no loop has to check for the end. brim__csv_parse handles the usual
 * fields itself: a plain number is read in place, and if a delimiter follows, the field is done;
 * plain text ends at the next delimiter. All other fields (quotes, blanks, missing values, errors)
 * are split off first and read by read_field.
 */
#include "base/number.h"
#include "base/utf8.h"
#include "source/csv.h"

/* ------------------------------------------------------------------ errors */

static brim_status not_a_value(const struct brim__csv *csv, uint32_t column, const char *text,
                               size_t length) {
    char name[BRIM__CSV_SHOWN], shown[BRIM__CSV_SHOWN];
    const unsigned kind = csv->column[column].kind;
    return brim__fail(BRIM_STATUS_CORRUPT, "column '%s': \"%s\" is not of type %s%s",
                      brim__csv_column_text(csv, column, name), brim__csv_show(shown, text, length),
                      brim__csv_kind_name(kind),
                      csv->column[column].guessed
                          ? ", the type of the first records: give the right one with types="
                          : "");
}

static brim_status not_a_text(const struct brim__csv *csv, uint32_t column, const char *text,
                              size_t length) {
    char name[BRIM__CSV_SHOWN], shown[BRIM__CSV_SHOWN];
    return brim__fail(BRIM_STATUS_CORRUPT,
                      "column '%s': \"%s\" is not UTF-8 text%s: convert the file, or read the "
                      "column as bytes with types=",
                      brim__csv_column_text(csv, column, name), brim__csv_show(shown, text, length),
                      memchr(text, '\0', length) != NULL ? " (it holds a NUL)" : "");
}

static brim_status is_missing(const struct brim__csv *csv, uint32_t column) {
    char name[BRIM__CSV_SHOWN];
    const unsigned kind = csv->column[column].kind;
    brim__csv_column_text(csv, column, name);
    if (csv->missing == BRIM__CSV_MISSING_NAN) {
        return brim__fail(BRIM_STATUS_CORRUPT,
                          "column '%s': the value is missing, and type %s has no NaN: give "
                          "missing=zero, or another type with types=",
                          name, brim__csv_kind_name(kind));
    }
    return brim__fail(BRIM_STATUS_CORRUPT,
                      "column '%s': the value is missing: give missing=nan or missing=zero", name);
}

static brim_status never_closed(const struct brim__csv *csv, uint32_t column) {
    char name[BRIM__CSV_SHOWN];
    return brim__fail(BRIM_STATUS_CORRUPT, "column '%s': its quote is never closed",
                      brim__csv_column_text(csv, column, name));
}

static brim_status wrong_count(const struct brim__csv *csv, uint64_t count) {
    return brim__fail(BRIM_STATUS_CORRUPT, "has %llu fields, but %s has %u",
                      (unsigned long long)count,
                      csv->has_header ? "the header" : "the first record", csv->count);
}

/* The error for further fields, from `at` on, after as many as the header has. */
static brim_status too_many(const struct brim__csv *csv, const char *at, const char *end) {
    uint64_t count = csv->count;
    while (at != NULL && at <= end) {
        at = brim__csv_skip(csv->delimiter, at, end);
        count++;
    }
    return wrong_count(csv, count);
}

/* ------------------------------------------------------------------ values */

/* Not 0 if some byte is above 0x7f, or is zero: subtracting 1 from zero sets its high bit. */
static inline uint64_t odd_bytes(uint64_t eight) {
    const uint64_t ones = UINT64_C(0x0101010101010101), highs = UINT64_C(0x8080808080808080);
    return (eight | (eight - ones)) & highs;
}

/* Whether a text is ASCII without a zero, as most texts are. The last load overlaps the one before
 * it, because a loop over the last few bytes would cost more than all other loads. */
static inline bool is_plain(const char *text, size_t length) {
    uint64_t odd = 0, eight = UINT64_C(0x2020202020202020);
    for (size_t i = 0; i + 8 < length; i += 8) {
        memcpy(&eight, text + i, 8);
        odd |= odd_bytes(eight);
    }
    if (length >= 8) {
        memcpy(&eight, text + length - 8, 8);
    } else if (length >= 4) {
        uint32_t first, last;
        memcpy(&first, text, 4);
        memcpy(&last, text + length - 4, 4);
        eight = (uint64_t)last << 32 | first;
    } else if (length > 0) {
        memcpy(&eight, text, 1);
        memcpy((uint8_t *)&eight + 1, text + length / 2, 1);
        memcpy((uint8_t *)&eight + 2, text + length - 1, 1);
    }
    return (odd | odd_bytes(eight)) == 0;
}

static brim_status put_text(const struct brim__csv *csv, uint32_t column, const char *text,
                            size_t length, uint8_t *to) {
    if (BRIM__UNLIKELY(length > csv->most_text)) {
        char name[BRIM__CSV_SHOWN];
        return brim__fail(BRIM_STATUS_CORRUPT,
                          "column '%s': a text of %zu bytes, but max_text allows %llu: raise it",
                          brim__csv_column_text(csv, column, name), length,
                          (unsigned long long)csv->most_text);
    }
    if (csv->column[column].kind == BRIM__CSV_TEXT && !is_plain(text, length) &&
        (brim__utf8_valid((const uint8_t *)text, length) != length ||
         memchr(text, '\0', length) != NULL)) {
        return not_a_text(csv, column, text, length);
    }
    const struct brim__span span = { .data = (const uint8_t *)text, .count = length };
    memcpy(to, &span, sizeof span);
    return BRIM_OK;
}

/* Writes an integer as a dtype; false: it does not fit. */
static bool put_integer(int64_t value, unsigned kind, uint8_t *to) {
    static const struct {
        int64_t least, most;
    } range[] = {
        [BRIM_DTYPE_BOOL] = { 0, 1 },
        [BRIM_DTYPE_U8] = { 0, UINT8_MAX },
        [BRIM_DTYPE_I8] = { INT8_MIN, INT8_MAX },
        [BRIM_DTYPE_U16] = { 0, UINT16_MAX },
        [BRIM_DTYPE_I16] = { INT16_MIN, INT16_MAX },
        [BRIM_DTYPE_U32] = { 0, UINT32_MAX },
        [BRIM_DTYPE_I32] = { INT32_MIN, INT32_MAX },
        [BRIM_DTYPE_U64] = { 0, INT64_MAX },
        [BRIM_DTYPE_I64] = { INT64_MIN, INT64_MAX },
    };
    if (value < range[kind].least || value > range[kind].most) {
        return false;
    }
    memcpy(to, &value, brim_dtype_bytes((brim_dtype)kind)); /* little-endian: the low bytes */
    return true;
}

static void put_real(double value, unsigned kind, uint8_t *to) {
    if (kind == BRIM_DTYPE_F64) {
        memcpy(to, &value, sizeof value);
    } else {
        const float narrow = (float)value;
        memcpy(to, &narrow, sizeof narrow);
    }
}

/* "true" and "false" in any case. */
static bool read_word(const char *text, size_t length, int64_t *value) {
    static const char *const words[] = { "false", "true" };
    for (int64_t i = 0; i < 2; i++) {
        size_t n = 0;
        while (n < length && words[i][n] != '\0' && (text[n] | 0x20) == words[i][n]) {
            n++;
        }
        if (n == length && words[i][n] == '\0') {
            *value = i;
            return true;
        }
    }
    return false;
}

/* Writes the number for a missing value; false: there is none. */
static bool put_missing(const struct brim__csv *csv, unsigned kind, uint8_t *to) {
    if (kind == BRIM_DTYPE_F32 || kind == BRIM_DTYPE_F64) {
        put_real(csv->missing == BRIM__CSV_MISSING_NAN ? __builtin_nan("") : 0, kind, to);
        return csv->missing != BRIM__CSV_MISSING_ERROR;
    }
    return csv->missing == BRIM__CSV_MISSING_ZERO && put_integer(0, kind, to);
}

static brim_status put_value(const struct brim__csv *csv, uint32_t column, char *text,
                             size_t length, uint8_t *to) {
    const unsigned kind = csv->column[column].kind;
    double real;
    int64_t integer;
    uint64_t large;
    if (kind == BRIM__CSV_TEXT || kind == BRIM__CSV_BYTES) {
        return put_text(csv, column, text, length, to);
    }
    brim__csv_strip(&text, &length);
    if (kind == BRIM_DTYPE_F32 || kind == BRIM_DTYPE_F64) {
        if (brim__parse_real(text, length, &real)) {
            put_real(real, kind, to);
            return BRIM_OK;
        }
    } else if (brim__parse_integer(text, length, &integer) ||
               (kind == BRIM_DTYPE_BOOL && read_word(text, length, &integer))) {
        if (put_integer(integer, kind, to)) {
            return BRIM_OK;
        }
    } else if (kind == BRIM_DTYPE_U64 && brim__parse_unsigned(text, length, &large)) {
        memcpy(to, &large, sizeof large);
        return BRIM_OK;
    }
    if (!brim__csv_is_missing(text, length)) {
        return not_a_value(csv, column, text, length);
    }
    return put_missing(csv, kind, to) ? BRIM_OK : is_missing(csv, column);
}

/* Reads the field at *at, of any form, and moves *at past its delimiter. */
static brim_status read_field(const struct brim__csv *csv, uint32_t column, char **at, char *end,
                              uint8_t *to) {
    char *text;
    size_t length;
    *at = brim__csv_split(csv->delimiter, *at, end, &text, &length);
    return *at == NULL ? never_closed(csv, column) : put_value(csv, column, text, length, to);
}

/* ----------------------------------------------------------------- records */

/* Reads the number at `at`. Returns the delimiter after it; NULL if no number with a delimiter
 * after it is there. */
static inline const char *plain_real(const char *at, const char *end, char delimiter,
                                     double *value) {
    const char *stop = brim__scan_real(at, end, value);
    return stop != NULL && *stop == delimiter ? stop : NULL;
}
static inline const char *plain_integer(const char *at, const char *end, char delimiter,
                                        int64_t *value) {
    const char *stop = brim__scan_integer(at, end, value);
    return stop != NULL && *stop == delimiter ? stop : NULL;
}

brim_status brim__csv_parse(const struct brim__source *source, void *self, uint8_t *bytes,
                            uint64_t length, uint8_t *record, uint8_t *work) {
    (void)source;
    (void)work;
    const struct brim__csv *csv = self;
    const char delimiter = csv->delimiter;
    char *at = (char *)bytes, *const end = at + length;
    *end = delimiter;
    for (uint32_t i = 0; i < csv->count; i++) {
        const struct brim__csv_column *column = &csv->column[i];
        uint8_t *to = record + column->offset;
        const char *stop = NULL; /* the delimiter after a field that is done */
        double real;
        int64_t integer;
        if (BRIM__UNLIKELY(at > end)) {
            return wrong_count(csv, i);
        }
        switch (column->kind) {
        case BRIM_DTYPE_F64:
            stop = plain_real(at, end, delimiter, &real);
            if (stop != NULL) {
                put_real(real, BRIM_DTYPE_F64, to);
            }
            break;
        case BRIM_DTYPE_F32:
            stop = plain_real(at, end, delimiter, &real);
            if (stop != NULL) {
                put_real(real, BRIM_DTYPE_F32, to);
            }
            break;
        case BRIM_DTYPE_I64:
            stop = plain_integer(at, end, delimiter, &integer);
            if (stop != NULL) {
                memcpy(to, &integer, sizeof integer);
            }
            break;
        case BRIM__CSV_TEXT:
            if (*at != '"') {
                stop = memchr(at, delimiter, (size_t)(end - at) + 1);
                const brim_status status = put_text(csv, i, at, (size_t)(stop - at), to);
                if (BRIM__UNLIKELY(status != BRIM_OK)) {
                    return status;
                }
            }
            break;
        case BRIM__CSV_SKIP:
            stop = brim__csv_skip(delimiter, at, end);
            if (stop == NULL) {
                return never_closed(csv, i);
            }
            stop--;
            break;
        default:
            break;
        }
        if (stop != NULL) {
            at += stop - at + 1;
        } else {
            const brim_status status = read_field(csv, i, &at, end, to);
            if (BRIM__UNLIKELY(status != BRIM_OK)) {
                return status;
            }
        }
    }
    return at == end + 1 ? BRIM_OK : too_many(csv, at, end);
}

/*
 * jsonl_parse.c: makes one record of one line.
 *
 *     work: | elements of ragged lists, one list after the other | scratch: memory for parsing |
 *
 * Scalars and dense lists are written to the record. Strings stay in the line, and ragged lists are
 * written to the work memory: for both the record has a span. The elements of lists in a list are
 * one after the other, as in a matrix.
 */
#include "base/number.h"
#include "source/jsonl.h"

#include <math.h>

struct line {
    const struct brim__jsonl *jsonl;
    uint8_t *record;
    uint8_t *next;        /* where the next element of a ragged list goes ... */
    uint8_t *work_end;    /* ... and where its memory ends */
    uint8_t *list;        /* where the open list began */
    uint8_t *element;     /* where its next element goes */
    uint64_t list_length; /* rows so far: elements, or lists in it */
    uint64_t row_length;  /* elements so far of the open list in it */
};

/* The bytes of a list's elements, rounded up so that each list is aligned to 8. */
static uint64_t bytes_of(const struct brim__jsonl_field *field, uint64_t elements) {
    return brim__align(elements * brim_dtype_bytes(field->dtype), 8);
}

void brim__jsonl_fit(struct brim__line_format *format, uint64_t bound) {
    struct brim__jsonl *jsonl = format->self;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < jsonl->count; i++) {
        const struct brim__jsonl_field *field = &jsonl->field[i];
        if (field->form == BRIM_FORM_RAGGED) {
            /* a line of that many bytes has at most half as many numbers */
            const uint64_t numbers =
                brim__min(jsonl->max_length * brim__jsonl_row(field), bound / 2);
            bytes += bytes_of(field, numbers);
        }
    }
    jsonl->list_bytes = brim__align(brim__min(bytes, (bound / 2 + jsonl->count) * 8), 16);
    jsonl->parsing_bytes = brim__json_whole_bytes(bound);
    format->work_bytes = jsonl->list_bytes;
    format->scratch_bytes = jsonl->parsing_bytes;
}

/* ------------------------------------------------------------------ values */

static const char *kind_text(enum brim__json_kind kind) {
    switch (kind) {
    case BRIM__JSON_NULL:
        return "null";
    case BRIM__JSON_FALSE:
        return "false";
    case BRIM__JSON_TRUE:
        return "true";
    case BRIM__JSON_NUMBER:
        return "a number";
    case BRIM__JSON_STRING:
        return "a string";
    case BRIM__JSON_LIST:
    case BRIM__JSON_LIST_END:
        return "a list";
    case BRIM__JSON_OBJECT:
    case BRIM__JSON_OBJECT_END:
    case BRIM__JSON_KEY:
        break;
    }
    return "an object";
}

static const char *type_text(const struct brim__jsonl_field *field) {
    return field->form == BRIM_FORM_TEXT ? "text" : brim_dtype_name(field->dtype);
}

static bool is_list(const struct brim__jsonl_field *field) {
    return field->form == BRIM_FORM_RAGGED || field->fixed > 0;
}

static brim_status wrong_kind(const struct brim__jsonl_field *field, enum brim__json_kind kind,
                              bool in_list) {
    return brim__fail(BRIM_STATUS_CORRUPT, "key '%s': %s %s, but its type is %s%s%s", field->name,
                      in_list ? "holds" : "is", kind_text(kind), is_list(field) ? "a list of " : "",
                      field->inner > 0 ? "lists of " : "", type_text(field));
}

/* The bytes of an integer are the low bytes of the 64-bit value. */
static brim_status put_number(const struct brim__jsonl_field *field, const char *text,
                              size_t length, uint8_t *to) {
    union {
        int64_t integer;
        uint64_t natural;
        double real;
        float single;
    } value;
    bool fits;
    switch (field->dtype) {
    case BRIM_DTYPE_F64:
        fits = brim__parse_real(text, length, &value.real);
        break;
    case BRIM_DTYPE_F32: {
        double real;
        fits = brim__parse_real(text, length, &real);
        value.single = (float)real;
        break;
    }
    case BRIM_DTYPE_U64:
        fits = brim__parse_unsigned(text, length, &value.natural);
        break;
    case BRIM_DTYPE_U8:
    case BRIM_DTYPE_U16:
    case BRIM_DTYPE_U32:
        fits = brim__parse_unsigned(text, length, &value.natural) &&
               value.natural >> (8 * brim_dtype_bytes(field->dtype)) == 0;
        break;
    default: {
        fits = brim__parse_integer(text, length, &value.integer);
        const int spare = 64 - 8 * (int)brim_dtype_bytes(field->dtype);
        /* all bits above the sign are like it */
        fits =
            fits && ((value.integer >> (63 - spare)) == 0 || (value.integer >> (63 - spare)) == -1);
        break;
    }
    }
    if (BRIM__UNLIKELY(!fits)) {
        return brim__fail(BRIM_STATUS_CORRUPT, "key '%s': %.*s%s is no %s", field->name,
                          (int)brim__min(length, 40), text, length > 40 ? "..." : "",
                          type_text(field));
    }
    memcpy(to, &value, brim_dtype_bytes(field->dtype)); /* little-endian */
    return BRIM_OK;
}

static brim_status put_missing(const struct brim__jsonl *jsonl,
                               const struct brim__jsonl_field *field, const char *what,
                               uint8_t *to) {
    const size_t bytes = brim_dtype_bytes(field->dtype);
    if (jsonl->missing == BRIM__JSONL_MISSING_ZERO) {
        memset(to, 0, bytes);
        return BRIM_OK;
    }
    if (jsonl->missing == BRIM__JSONL_MISSING_NAN && brim__dtype_is_float(field->dtype)) {
        const double real = NAN;
        const float single = NAN;
        memcpy(to, bytes == sizeof single ? (const void *)&single : &real, bytes);
        return BRIM_OK;
    }
    if (jsonl->missing == BRIM__JSONL_MISSING_NAN) {
        return brim__fail(BRIM_STATUS_CORRUPT,
                          "key '%s': %s, and %s has no NaN: give missing=zero, or types=%s:float64",
                          field->name, what, type_text(field), field->name);
    }
    return brim__fail(BRIM_STATUS_CORRUPT,
                      "key '%s': %s: give missing=nan or missing=zero to accept it", field->name,
                      what);
}

/* Writes a field whose value is null or missing. */
static brim_status put_missing_value(const struct brim__jsonl *jsonl,
                                     const struct brim__jsonl_field *field, const char *what,
                                     uint8_t *record) {
    uint8_t *to = record + field->at;
    if (field->form != BRIM_FORM_DENSE) {
        if (jsonl->missing != BRIM__JSONL_MISSING_ZERO) {
            return brim__fail(BRIM_STATUS_CORRUPT,
                              "key '%s': %s: give missing=zero to make it "
                              "empty",
                              field->name, what);
        }
        memcpy(to, &(struct brim__span){ .data = record, .count = 0 }, sizeof(struct brim__span));
        return BRIM_OK;
    }
    const size_t bytes = brim_dtype_bytes(field->dtype);
    const uint64_t elements = brim__max(1, field->fixed) * brim__jsonl_row(field);
    for (uint64_t i = 0; i < elements; i++) {
        const brim_status status = put_missing(jsonl, field, what, to + i * bytes);
        if (status != BRIM_OK) {
            return status;
        }
    }
    return BRIM_OK;
}

/* ------------------------------------------------------------------- lists */

static void begin_list(struct line *line, const struct brim__jsonl_field *field) {
    line->list_length = 0;
    line->list = field->form == BRIM_FORM_RAGGED ? line->next : line->record + field->at;
    line->element = line->list;
}

/* Counts one more row, before it is written. */
static brim_status count_row(struct line *line, const struct brim__jsonl_field *field) {
    const uint64_t most = field->fixed > 0 ? field->fixed : line->jsonl->max_length;
    if (BRIM__UNLIKELY(line->list_length == most)) {
        return brim__fail(BRIM_STATUS_CORRUPT, "key '%s': its list has more than %llu %s%s",
                          field->name, (unsigned long long)most,
                          field->inner > 0 ? "lists" : "elements",
                          field->fixed > 0 ? "" : ": raise max_length");
    }
    line->list_length++;
    return BRIM_OK;
}

static brim_status put_element(struct line *line, const struct brim__jsonl_field *field,
                               enum brim__json_kind kind, const char *text, size_t length) {
    uint8_t *to = line->element;
    line->element += brim_dtype_bytes(field->dtype);
    assert(field->form != BRIM_FORM_RAGGED || line->element <= line->work_end);
    if (kind == BRIM__JSON_NUMBER && field->dtype != BRIM_DTYPE_BOOL) {
        return put_number(field, text, length, to);
    }
    if ((kind == BRIM__JSON_TRUE || kind == BRIM__JSON_FALSE) && field->dtype == BRIM_DTYPE_BOOL) {
        *to = kind == BRIM__JSON_TRUE;
        return BRIM_OK;
    }
    return kind == BRIM__JSON_NULL ? put_missing(line->jsonl, field, "null in its list", to)
                                   : wrong_kind(field, kind, true);
}

static brim_status wrong_row(const struct line *line, const struct brim__jsonl_field *field,
                             bool longer) {
    return brim__fail(
        BRIM_STATUS_CORRUPT, "key '%s': list %llu in its list has %s%llu elements, not %llu",
        field->name, (unsigned long long)line->list_length - 1, longer ? "at least " : "",
        (unsigned long long)line->row_length + longer, (unsigned long long)field->inner);
}

/* Takes a value in a list whose elements are lists, or (lists: 2) in one of those lists. */
static brim_status put_in_row(struct line *line, const struct brim__jsonl_field *field,
                              enum brim__json_kind kind, uint32_t lists, const char *text,
                              size_t length) {
    if (lists == 2) {
        if (BRIM__UNLIKELY(line->row_length == field->inner)) {
            return wrong_row(line, field, true);
        }
        line->row_length++;
        return put_element(line, field, kind, text, length);
    }
    if (kind == BRIM__JSON_LIST) {
        line->row_length = 0;
        return count_row(line, field);
    }
    if (kind == BRIM__JSON_LIST_END) {
        return line->row_length == field->inner ? BRIM_OK : wrong_row(line, field, false);
    }
    return wrong_kind(field, kind, true);
}

static brim_status put_in_list(struct line *line, const struct brim__jsonl_field *field,
                               enum brim__json_kind kind, const char *text, size_t length) {
    const brim_status status = count_row(line, field);
    return status == BRIM_OK ? put_element(line, field, kind, text, length) : status;
}

static brim_status end_list(struct line *line, const struct brim__jsonl_field *field) {
    if (field->form == BRIM_FORM_RAGGED) {
        const struct brim__span span = { .data = line->list, .count = line->list_length };
        memcpy(line->record + field->at, &span, sizeof span);
        line->next += bytes_of(field, line->list_length * brim__jsonl_row(field));
        return BRIM_OK;
    }
    if (line->list_length != field->fixed) {
        return brim__fail(BRIM_STATUS_CORRUPT, "key '%s': its list has %llu %s, not %llu",
                          field->name, (unsigned long long)line->list_length,
                          field->inner > 0 ? "lists" : "elements",
                          (unsigned long long)field->fixed);
    }
    return BRIM_OK;
}

/* -------------------------------------------------------------------- line */

static brim_status on_value(void *self, uint32_t index, enum brim__json_kind kind, uint32_t lists,
                            const char *text, size_t length) {
    struct line *line = self;
    const struct brim__jsonl_field *field = &line->jsonl->field[index];
    uint8_t *to = line->record + field->at;
    if (lists > 0) {
        return field->inner > 0 ? put_in_row(line, field, kind, lists, text, length)
                                : put_in_list(line, field, kind, text, length);
    }
    if (kind == BRIM__JSON_NULL) {
        return put_missing_value(line->jsonl, field, "is null", line->record);
    }
    if (field->form == BRIM_FORM_TEXT) {
        if (kind != BRIM__JSON_STRING) {
            return wrong_kind(field, kind, false);
        }
        const struct brim__span span = { .data = (const uint8_t *)text, .count = length };
        memcpy(to, &span, sizeof span);
        return BRIM_OK;
    }
    if (is_list(field)) {
        if (kind == BRIM__JSON_LIST) {
            begin_list(line, field);
            return BRIM_OK;
        }
        return kind == BRIM__JSON_LIST_END ? end_list(line, field) : wrong_kind(field, kind, false);
    }
    if (kind == BRIM__JSON_NUMBER && field->dtype != BRIM_DTYPE_BOOL) {
        return put_number(field, text, length, to);
    }
    if ((kind == BRIM__JSON_TRUE || kind == BRIM__JSON_FALSE) && field->dtype == BRIM_DTYPE_BOOL) {
        *to = kind == BRIM__JSON_TRUE;
        return BRIM_OK;
    }
    return wrong_kind(field, kind, false);
}

brim_status brim__jsonl_parse(const struct brim__source *source, void *self, uint8_t *bytes,
                              uint64_t length, uint8_t *record, uint8_t *work) {
    (void)source;
    const struct brim__jsonl *jsonl = self;
    struct line line = {
        .jsonl = jsonl, .record = record, .next = work, .work_end = work + jsonl->list_bytes
    };
    uint32_t seen;
    brim_status status = brim__jsonl_walk(jsonl, bytes, length, work + jsonl->list_bytes,
                                          jsonl->parsing_bytes, on_value, &line, &seen);
    for (uint32_t i = 0; i < jsonl->count && status == BRIM_OK; i++) {
        if (!(seen & 1u << i)) {
            status = put_missing_value(jsonl, &jsonl->field[i], "is missing", record);
        }
    }
    return status;
}

/*
 * jsonl_types.c: determines the fields and their types.
 *
 * Without `fields`, the fields are the keys of the first record whose values are numbers, booleans,
 * strings, lists of numbers or lists of such lists. A type that is not given is determined by the
 * values in the first records:
 *
 *     all integers                int64, or uint64 if one is too large for it
 *     other numbers among them    float64
 *     null among numbers          float64, with missing=nan
 *     booleans, strings           bool, text
 *     lists of numbers            ragged int64 or float64
 *     lists of lists of numbers   the same in rows, all as long as the first is
 *
 * Values of several kinds, and lists with inner lists of several lengths, have no common type; the
 * error says so.
 */
#include "base/number.h"
#include "source/jsonl.h"

#include <stdio.h>

/* The kinds of values that a field had. */
enum {
    SEEN_INTEGER = 1,  /* int64 holds it */
    SEEN_NEGATIVE = 2, /* with SEEN_INTEGER */
    SEEN_NATURAL = 4,  /* only uint64 holds it */
    SEEN_REAL = 8,
    SEEN_BOOL = 16,
    SEEN_TEXT = 32,
    SEEN_NULL = 64,
    SEEN_LIST = 128, /* the bits before are its elements' */
    SEEN_SCALAR = 256,
    SEEN_ELEMENT = 512, /* in a list, what is no list ... */
    SEEN_ROW = 1024,    /* ... and what is one: a row */
    SEEN_UNEVEN = 2048, /* rows of several lengths, or of none */
    SEEN_OTHER = 4096,  /* an object, a string in a list, or a list in a row */
};
#define SEEN_NUMBER (SEEN_INTEGER | SEEN_NATURAL | SEEN_REAL)
#define SEEN_MIXED  (SEEN_ELEMENT | SEEN_ROW) /* both: lists of no one depth */

/* ------------------------------------------------------------------- given */

/* Reads a length in brackets and moves *text after it. */
static bool take_length(const char **text, uint64_t *length) {
    const char *end = strchr(*text, ']');
    if (**text != '[' || end == NULL ||
        !brim__parse_unsigned(*text + 1, (size_t)(end - *text) - 1, length) || *length == 0 ||
        *length > INT32_MAX) {
        return false;
    }
    *text = end + 1;
    return true;
}

brim_status brim__jsonl_type(struct brim__jsonl_field *field, const char *text) {
    char base[BRIM_NAME_BYTES] = "";
    const char *bracket = text + strcspn(text, "[");
    const size_t length = (size_t)(bracket - text);
    if (length < sizeof base) {
        memcpy(base, text, length);
    }
    field->typed = true;
    field->form = BRIM_FORM_DENSE;
    field->fixed = field->inner = 0;
    if (strcmp(text, "text") == 0) {
        field->form = BRIM_FORM_TEXT;
        field->dtype = BRIM_DTYPE_U8;
        return BRIM_OK;
    }
    if (brim__dtype_parse(base, &field->dtype) != BRIM_OK || field->dtype == BRIM_DTYPE_F16 ||
        field->dtype == BRIM_DTYPE_BF16 || brim__dtype_is_complex(field->dtype)) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "jsonl: '%.60s' is not a type: give text, bool, float32, float64, an "
                          "integer type, or a list such as float32[], float32[3] or float32[][4]",
                          text);
    }
    if (*bracket == '\0') {
        return BRIM_OK;
    }
    bool good = true;
    if (strncmp(bracket, "[]", 2) == 0) {
        field->form = BRIM_FORM_RAGGED;
        bracket += 2;
    } else {
        good = take_length(&bracket, &field->fixed);
    }
    if (good && *bracket != '\0') {
        good = take_length(&bracket, &field->inner) && *bracket == '\0' &&
               field->fixed * field->inner <= INT32_MAX;
    }
    return good ? BRIM_OK
                : brim__fail(BRIM_STATUS_INVALID,
                             "jsonl: '%.60s' is not a type of a list: write %s[] for any length, "
                             "%s[3] for 3 elements each, or %s[][4] for any number of lists of 4",
                             text, base, base, base);
}

brim_status brim__jsonl_add(struct brim__jsonl *jsonl, struct brim__arena *arena, const char *key,
                            size_t length) {
    if (jsonl->count == BRIM__MAX_FIELDS) {
        return brim__fail(
            BRIM_STATUS_INVALID,
            "jsonl: more than %d fields: choose some of the keys with fields=", BRIM__MAX_FIELDS);
    }
    if (length >= BRIM__JSONL_KEY_BYTES) {
        return brim__fail(BRIM_STATUS_INVALID, "jsonl: the key '%.40s...' is longer than %d bytes",
                          key, BRIM__JSONL_KEY_BYTES - 1);
    }
    char *copy;
    const brim_status status = brim__arena_take(arena, length + 1, &copy);
    if (status != BRIM_OK) {
        return status;
    }
    memcpy(copy, key, length);
    struct brim__jsonl_field *field = &jsonl->field[jsonl->count];
    *field = (struct brim__jsonl_field){ .key = copy, .key_length = length };
    brim__field_name_of(field->name, key, length);
    if (field->name[0] == '\0') {
        snprintf(field->name, sizeof field->name, "k%u", jsonl->count);
    }
    for (uint32_t i = 0; i < jsonl->count; i++) {
        const struct brim__jsonl_field *other = &jsonl->field[i];
        if (strcmp(other->name, field->name) == 0) {
            return brim__fail(BRIM_STATUS_INVALID,
                              "jsonl: two keys give a field of the name '%s': choose one of them "
                              "with fields=",
                              field->name);
        }
    }
    jsonl->count++;
    return BRIM_OK;
}

/* ----------------------------------------------------------------- looking */

static uint32_t number_bits(const char *text, size_t length) {
    int64_t integer;
    uint64_t natural;
    if (brim__parse_integer(text, length, &integer)) {
        return SEEN_INTEGER | (integer < 0 ? (uint32_t)SEEN_NEGATIVE : 0);
    }
    return brim__parse_unsigned(text, length, &natural) ? SEEN_NATURAL : SEEN_REAL;
}

static uint32_t value_bits(enum brim__json_kind kind, uint32_t lists, const char *text,
                           size_t length) {
    const uint32_t place = lists == 0 ? SEEN_SCALAR : lists == 1 ? SEEN_ELEMENT : 0;
    switch (kind) {
    case BRIM__JSON_NULL:
        return lists == 0 ? SEEN_NULL : SEEN_NULL | place;
    case BRIM__JSON_FALSE:
    case BRIM__JSON_TRUE:
        return SEEN_BOOL | place;
    case BRIM__JSON_NUMBER:
        return number_bits(text, length) | place;
    case BRIM__JSON_STRING:
        return lists > 0 ? (uint32_t)SEEN_OTHER : SEEN_TEXT | place;
    case BRIM__JSON_LIST:
    case BRIM__JSON_LIST_END:
        return lists == 0 ? SEEN_LIST : lists == 1 ? SEEN_ROW : SEEN_OTHER;
    case BRIM__JSON_OBJECT:
    case BRIM__JSON_OBJECT_END:
    case BRIM__JSON_KEY:
        break;
    }
    return SEEN_OTHER;
}

static void see(struct brim__jsonl_seen *seen, enum brim__json_kind kind, uint32_t lists,
                const char *text, size_t length) {
    seen->bits |= value_bits(kind, lists, text, length);
    if (lists == 2) {
        seen->open++;
    } else if (lists == 1 && kind == BRIM__JSON_LIST) {
        seen->open = 0;
    } else if (lists == 1 && kind == BRIM__JSON_LIST_END) {
        if (seen->row == 0) {
            seen->row = seen->open;
        }
        if (seen->open == 0 || seen->open != seen->row) {
            seen->bits |= SEEN_UNEVEN;
        }
    }
}

static brim_status on_value(void *self, uint32_t field, enum brim__json_kind kind, uint32_t lists,
                            const char *text, size_t length) {
    struct brim__jsonl_look *look = self;
    see(&look->seen[field], kind, lists, text, length);
    return BRIM_OK;
}

/* The state of reading the first record, if it decides the fields. */
struct first {
    struct brim__jsonl_look *look;
    const char *key; /* of the value in progress, in the line */
    size_t key_length;
    uint32_t depth;               /* containers open */
    struct brim__jsonl_seen seen; /* of the value so far */
};

static brim_status take_key(struct first *first) {
    struct brim__jsonl_look *look = first->look;
    const uint32_t bits = first->seen.bits;
    if (bits & (SEEN_OTHER | SEEN_UNEVEN) || !(bits & (SEEN_SCALAR | SEEN_LIST)) ||
        (bits & SEEN_LIST && bits & SEEN_BOOL) || (bits & SEEN_MIXED) == SEEN_MIXED) {
        return BRIM_OK;
    }
    const uint32_t index = look->jsonl->count;
    for (uint32_t i = 0; i < index; i++) {
        const struct brim__jsonl_field *field = &look->jsonl->field[i];
        if (field->key_length == first->key_length &&
            memcmp(field->key, first->key, first->key_length) == 0) {
            return brim__fail(BRIM_STATUS_CORRUPT, "has the key '%s' twice", field->name);
        }
    }
    const brim_status status =
        brim__jsonl_add(look->jsonl, look->arena, first->key, first->key_length);
    if (status == BRIM_OK) {
        look->seen[index] = first->seen;
    }
    return status;
}

static brim_status on_first(void *self, enum brim__json_kind kind, const char *text,
                            size_t length) {
    struct first *first = self;
    const bool begins = kind == BRIM__JSON_OBJECT || kind == BRIM__JSON_LIST;
    const bool ends = kind == BRIM__JSON_OBJECT_END || kind == BRIM__JSON_LIST_END;
    if (first->depth == 0) {
        first->depth = 1;
        return kind == BRIM__JSON_OBJECT
                   ? BRIM_OK
                   : brim__fail(BRIM_STATUS_CORRUPT,
                                "is not a JSON object: it does not begin with '{'");
    }
    if (kind == BRIM__JSON_KEY) {
        if (first->depth == 1) {
            first->key = text;
            first->key_length = length;
            first->seen = (struct brim__jsonl_seen){ 0 };
        }
        return BRIM_OK;
    }
    first->depth -= ends;
    if (first->depth == 0) {
        return BRIM_OK;
    }
    see(&first->seen, kind, first->depth - 1, text, length);
    first->depth += begins;
    return first->depth == 1 ? take_key(first) : BRIM_OK;
}

brim_status brim__jsonl_look(struct brim__jsonl_look *look, uint8_t *line, size_t length,
                             void *memory, uint64_t memory_bytes) {
    brim_status status;
    if (look->jsonl->count > 0) {
        struct brim__jsonl_seen before[BRIM__MAX_FIELDS];
        uint32_t fields;
        memcpy(before, look->seen, sizeof before);
        status = brim__jsonl_walk(look->jsonl, line, length, memory, memory_bytes, on_value, look,
                                  &fields);
        if (status == BRIM_STATUS_CORRUPT) { /* discard also what was found before the error */
            memcpy(look->seen, before, sizeof before);
        }
    } else {
        struct first first = { .look = look };
        status = brim__json_parse(line, length, memory, memory_bytes, on_first, &first);
        if (status == BRIM_OK && look->jsonl->count == 0) {
            status = brim__fail(BRIM_STATUS_INVALID,
                                "jsonl: the first record has no key whose value is a number, a "
                                "boolean, a string, a list of numbers or a list of such lists of "
                                "one length: choose with fields=");
        } else if (status == BRIM_STATUS_CORRUPT) {
            look->jsonl->count = 0;
        }
    }
    look->looked++;
    if (status != BRIM_STATUS_CORRUPT) {
        look->good += status == BRIM_OK;
        return status;
    }
    if (look->why[0] == '\0') {
        snprintf(look->why, sizeof look->why, "record %llu: %.200s",
                 (unsigned long long)look->looked - 1, brim_detail());
    }
    return BRIM_OK;
}

/* ---------------------------------------------------------------- deciding */

static brim_status decide(struct brim__jsonl_field *field, const struct brim__jsonl_seen *seen,
                          bool nan, uint64_t looked) {
    const uint32_t bits = seen->bits;
    const uint32_t numbers = bits & SEEN_NUMBER, truths = bits & SEEN_BOOL,
                   texts = bits & SEEN_TEXT;
    if (!(bits & (SEEN_SCALAR | SEEN_LIST | SEEN_OTHER))) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "jsonl: the key '%s' has no value in the first %llu records: check its "
                          "spelling, or give its type, such as types=%s:float64",
                          field->name, (unsigned long long)looked, field->name);
    }
    if (bits & SEEN_OTHER) {
        return brim__fail(
            BRIM_STATUS_INVALID,
            "jsonl: the values of the key '%s' are objects, or lists of other than "
            "numbers or lists of numbers, which are not fields; a key of an object is "
            "written as %s.KEY",
            field->name, field->name);
    }
    if ((numbers != 0) + (truths != 0) + (texts != 0) > 1 ||
        (bits & (SEEN_SCALAR | SEEN_LIST)) == (SEEN_SCALAR | SEEN_LIST) ||
        (bits & SEEN_MIXED) == SEEN_MIXED) {
        return brim__fail(
            BRIM_STATUS_INVALID,
            "jsonl: the values of the key '%s' have no common type (numbers, booleans, strings, "
            "lists, lists of lists): give one, as types=%s:text, and leave the "
            "others out (batch on_error=skip), or leave the key out with fields=",
            field->name, field->name);
    }
    if (bits & SEEN_UNEVEN) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "jsonl: the inner lists of the key '%s' differ in length: give one, as "
                          "types=%s:float64[][%llu], and leave the others out (batch "
                          "on_error=skip), or leave the key out with fields=",
                          field->name, field->name, (unsigned long long)brim__max(1, seen->row));
    }
    const bool real = bits & SEEN_REAL || (bits & SEEN_NATURAL && bits & SEEN_NEGATIVE) ||
                      (bits & SEEN_NULL && nan) || !(numbers | truths | texts);
    field->typed = true;
    field->form = texts ? BRIM_FORM_TEXT : bits & SEEN_LIST ? BRIM_FORM_RAGGED : BRIM_FORM_DENSE;
    field->inner = seen->row;
    field->dtype = texts                 ? BRIM_DTYPE_U8
                   : truths              ? BRIM_DTYPE_BOOL
                   : real                ? BRIM_DTYPE_F64
                   : bits & SEEN_NATURAL ? BRIM_DTYPE_U64
                                         : BRIM_DTYPE_I64;
    return BRIM_OK;
}

brim_status brim__jsonl_decide(const struct brim__jsonl_look *look) {
    struct brim__jsonl *jsonl = look->jsonl;
    for (uint32_t i = 0; i < jsonl->count; i++) {
        if (!jsonl->field[i].typed) {
            const brim_status status =
                decide(&jsonl->field[i], &look->seen[i], jsonl->missing == BRIM__JSONL_MISSING_NAN,
                       look->looked);
            if (status != BRIM_OK) {
                return status;
            }
        }
    }
    return BRIM_OK;
}

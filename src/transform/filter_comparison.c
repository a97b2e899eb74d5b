/*
 * filter_comparison.c: reads conditions and compares values. See filter.h.
 *
 * Comparisons do not round: integers are compared with the number as it is written, with any number
 * of digits and fractions; reals with the value of their own type that is nearest to it, so that a
 * float32 that was stored as 0.1 equals "0.1". NaN equals nothing and is neither less nor more.
 */
#include "transform/filter.h"

#include "base/number.h"

#include <math.h>

/* Outcomes of a comparison. */
enum { LESS = 1, EQUAL = 2, MORE = 4, UNORDERED = 8 };

#define DIGITS 20           /* of the largest uint64: more are beyond every integer */
#define BEYOND (1ull << 62) /* times 8: likewise */

struct parts {
    const char *whole; /* the condition, for messages */
    char field[BRIM_NAME_BYTES];
    bool length;
    uint32_t accepts;
    const char *literal; /* to its end, without blanks around it */
    size_t literal_bytes;
    bool quoted; /* the literal is a text, without its quotes */
};

/* ----------------------------------------------------------------- reading */

static brim_status malformed(const struct parts *parts, const char *why) {
    return brim__fail(BRIM_STATUS_SYNTAX,
                      "filter \"%.80s\": %s; write a condition as in \"label == 3\"", parts->whole,
                      why);
}

/* The error for text after the value, which ends at `rest`. */
static brim_status left_over(const struct parts *parts, const char *rest) {
    return brim__fail(BRIM_STATUS_SYNTAX,
                      "filter \"%.80s\": '%.60s' is left over after the value; give several "
                      "conditions as several arguments, as in \"label == 3\" \"score > 0.5\"",
                      parts->whole, rest);
}

static const char *skip_blank(const char *at) {
    while (*at == ' ' || (*at >= '\t' && *at <= '\r')) {
        at++;
    }
    return at;
}

static size_t name_length(const char *at) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789_.-";
    return strspn(at, letters);
}

/* field | length(field); *at moves past it. */
static brim_status read_operand(struct parts *parts, const char **at) {
    size_t length = name_length(*at);
    const char *after = skip_blank(*at + length);
    if (length == 6 && memcmp(*at, "length", 6) == 0 && *after == '(') {
        parts->length = true;
        *at = skip_blank(after + 1);
        length = name_length(*at);
    }
    if (length == 0 || length >= sizeof parts->field) {
        return malformed(parts, "the name of a field is missing or too long");
    }
    memcpy(parts->field, *at, length);
    *at = skip_blank(*at + length);
    if (parts->length && **at != ')') {
        return malformed(parts, "')' is missing after the field");
    }
    *at = skip_blank(*at + parts->length);
    return BRIM_OK;
}

static brim_status read_operator(struct parts *parts, const char **at) {
    static const struct {
        const char *text;
        uint32_t accepts;
    } operators[] = {
        /* longer ones first */
        { "==", EQUAL },        { "!=", LESS | MORE | UNORDERED },
        { "<=", LESS | EQUAL }, { ">=", MORE | EQUAL },
        { "<", LESS },          { ">", MORE },
    };
    for (size_t i = 0; i < BRIM__COUNT(operators); i++) {
        const size_t length = strlen(operators[i].text);
        if (strncmp(*at, operators[i].text, length) == 0) {
            parts->accepts = operators[i].accepts;
            *at = skip_blank(*at + length);
            return BRIM_OK;
        }
    }
    return malformed(parts, "an operator is missing after the field: ==, !=, <, <=, > or >=");
}

static brim_status read_literal(struct parts *parts, const char *at) {
    size_t bytes = strlen(at);
    while (bytes > 0 && skip_blank(at + bytes - 1) != at + bytes - 1) {
        bytes--;
    }
    if (bytes == 0) {
        return malformed(parts, "there is no value after the operator");
    }
    parts->quoted = at[0] == '\'' || at[0] == '"';
    if (parts->quoted && (bytes == 1 || at[bytes - 1] != at[0])) {
        const char *closing = strchr(at + 1, at[0]);
        return closing == NULL ? malformed(parts, "the quote is never closed")
                               : left_over(parts, closing + 1);
    }
    parts->literal = at + parts->quoted;
    parts->literal_bytes = bytes - (parts->quoted ? 2 : 0);
    return BRIM_OK;
}

/* -------------------------------------------------------------- literals */

/* Reads the exact floor of a decimal number, and whether the number is above it. false: not a
 * decimal number, for example infinity. */
static bool read_whole(const char *text, size_t bytes, struct brim__comparison *comparison) {
    double checked;
    const char *end = text + bytes;
    const bool negative = text[0] == '-';
    text += negative || text[0] == '+';
    const size_t digits = strspn(text, "0123456789."); /* ends at the exponent or the end */
    if (!brim__parse_real(text, (size_t)(end - text), &checked) || digits == 0) {
        return false;
    }
    int64_t exponent = 0;
    if (text + digits < end) {
        const char *written = text + digits + 1;
        const size_t written_bytes = (size_t)(end - written);
        if (!brim__parse_integer(written, written_bytes, &exponent) || exponent > 1000000000 ||
            exponent < -1000000000) {
            exponent = written[0] == '-' ? -1000000000 : 1000000000;
        }
    }
    /* how many of the digits are before the point, without the exponent */
    const char *point = memchr(text, '.', digits);
    int64_t before = (int64_t)(point != NULL ? (size_t)(point - text) : digits) + exponent;
    brim__wide whole = 0;
    bool between = false, begun = false;
    int64_t taken = 0; /* digits since the first that is not 0 */
    for (size_t i = 0; i < digits; i++) {
        if (text[i] == '.') {
            continue;
        }
        begun |= text[i] != '0';
        if (before > 0) {
            before--;
            taken += begun;
            whole = taken <= DIGITS ? whole * 10 + (text[i] - '0') : whole;
        } else {
            between |= text[i] != '0';
        }
    }
    for (; begun && before > 0 && taken <= DIGITS; before--, taken++) {
        whole *= 10;
    }
    if (taken > DIGITS) {
        whole = (brim__wide)BEYOND * 8;
    }
    comparison->whole = negative ? -whole - between : whole;
    comparison->between = between;
    return true;
}

/* The nearest value of a field's type. */
static double nearest(brim_dtype dtype, double value) {
    switch (dtype) {
    case BRIM_DTYPE_F16:
        return brim__f16_to_f32(brim__f32_to_f16((float)value));
    case BRIM_DTYPE_BF16:
        return brim__bf16_to_f32(brim__f32_to_bf16((float)value));
    case BRIM_DTYPE_F32:
        return (float)value;
    default:
        return value;
    }
}

static brim_status no_number(const struct parts *parts) {
    const char *rest = parts->literal;
    while (*rest != '\0' && skip_blank(rest) == rest) {
        rest++;
    }
    double value;
    const size_t bytes = (size_t)(rest - parts->literal);
    return bytes < parts->literal_bytes && brim__parse_real(parts->literal, bytes, &value)
               ? left_over(parts, rest)
               : malformed(parts, "there is no number after the operator");
}

static brim_status set_number(struct brim__comparison *comparison, const struct parts *parts) {
    const char *text = parts->literal;
    if (parts->quoted) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "filter \"%.80s\": the field is a number: leave out the quotes",
                          parts->whole);
    }
    if (comparison->compared == BRIM__AS_REAL) {
        double value;
        if (!brim__parse_real(text, parts->literal_bytes, &value) || isnan(value)) {
            return no_number(parts);
        }
        comparison->real = nearest(comparison->dtype, value);
        if (isinf(comparison->real) && strpbrk(text, "0123456789") != NULL) {
            return brim__fail(BRIM_STATUS_INVALID, "filter \"%.80s\": the number is beyond %s",
                              parts->whole, brim_dtype_name(comparison->dtype));
        }
        return BRIM_OK;
    }
    return read_whole(text, parts->literal_bytes, comparison) ? BRIM_OK : no_number(parts);
}

static brim_status set_text(struct brim__comparison *comparison, struct brim__arena *arena,
                            const struct parts *parts) {
    if (!parts->quoted) {
        return brim__fail(
            BRIM_STATUS_INVALID,
            "filter \"%.80s\": field '%s' is text: put the value in quotes, or compare length(%s)",
            parts->whole, parts->field, parts->field);
    }
    if (parts->accepts != EQUAL && parts->accepts != (LESS | MORE | UNORDERED)) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "filter \"%.80s\": text is compared with == and != only", parts->whole);
    }
    char *text;
    const brim_status status = brim__arena_take(arena, parts->literal_bytes + 1, &text);
    if (status == BRIM_OK) {
        memcpy(text, parts->literal, parts->literal_bytes);
        comparison->text = text;
        comparison->text_bytes = parts->literal_bytes;
    }
    return status;
}

/* ------------------------------------------------------------------ fields */

/* Chooses the comparison for a field's type and form. */
static brim_status choose(struct brim__comparison *comparison, const struct parts *parts,
                          const struct brim__program_field *field) {
    uint64_t elements = 0;
    char shape[BRIM__SHAPE_TEXT];
    if (parts->length) {
        comparison->compared = BRIM__AS_LENGTH;
        if (field->form == BRIM_FORM_DENSE) {
            return brim__fail(BRIM_STATUS_INVALID,
                              "filter \"%.80s\": field '%s' has the same length in every sample",
                              parts->whole, field->name);
        }
        return BRIM_OK;
    }
    if (field->form == BRIM_FORM_TEXT || field->form == BRIM_FORM_BYTES) {
        comparison->compared = BRIM__AS_TEXT;
        return BRIM_OK;
    }
    if (field->form == BRIM_FORM_RAGGED) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "filter \"%.80s\": field '%s' has many elements: compare length(%s), or "
                          "filter with a function, by=@name",
                          parts->whole, field->name, field->name);
    }
    if (brim__shape_bytes_overflow(&field->pending.from.shape, 1, &elements) || elements != 1) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "filter \"%.80s\": field '%s' is %s, not one number: filter with a "
                          "function, by=@name",
                          parts->whole, field->name,
                          brim__shape_text(&field->pending.from.shape, shape));
    }
    if (brim__dtype_is_complex(field->pending.to)) {
        return brim__fail(BRIM_STATUS_UNSUPPORTED, "filter \"%.80s\": field '%s' is complex",
                          parts->whole, field->name);
    }
    comparison->compared =
        brim__dtype_is_float(field->pending.to) ? BRIM__AS_REAL : BRIM__AS_INTEGER;
    return BRIM_OK;
}

brim_status brim__comparison_init(struct brim__comparison *comparison,
                                  struct brim__program *program, const char *text) {
    struct parts parts = { .whole = text, .literal = "" };
    const char *at = skip_blank(text);
    uint32_t f = 0;
    *comparison = (struct brim__comparison){ 0 };
    brim_status status = read_operand(&parts, &at);
    if (status == BRIM_OK) {
        status = read_operator(&parts, &at);
    }
    if (status == BRIM_OK) {
        status = read_literal(&parts, at);
    }
    if (status == BRIM_OK) {
        status = brim__program_find(program, "filter", parts.field, &f);
    }
    if (status == BRIM_OK) {
        status = choose(comparison, &parts, &program->field[f]);
    }
    if (status != BRIM_OK) {
        return status;
    }
    comparison->accepts = parts.accepts;
    comparison->dtype = program->field[f].pending.to;
    status = comparison->compared == BRIM__AS_TEXT ? set_text(comparison, program->arena, &parts)
                                                   : set_number(comparison, &parts);
    /* a pending conversion does not change a length */
    if (status == BRIM_OK &&
        (comparison->compared != BRIM__AS_LENGTH || program->field[f].deferred)) {
        status = brim__program_flush(program, f, false);
    }
    brim__program_reader(program, f, &comparison->reader);
    return status;
}

/* --------------------------------------------------------------- comparing */

static brim__wide load_integer(brim_dtype dtype, const uint8_t *data) {
    union {
        uint16_t u16;
        int16_t i16;
        uint32_t u32;
        int32_t i32;
        uint64_t u64;
        int64_t i64;
    } value = { .u64 = 0 };
    memcpy(&value, data, brim_dtype_bytes(dtype));
    switch (dtype) {
    case BRIM_DTYPE_BOOL:
        return data[0] != 0;
    case BRIM_DTYPE_U8:
        return data[0];
    case BRIM_DTYPE_I8:
        return (int8_t)data[0];
    case BRIM_DTYPE_U16:
        return value.u16;
    case BRIM_DTYPE_I16:
        return value.i16;
    case BRIM_DTYPE_U32:
        return value.u32;
    case BRIM_DTYPE_I32:
        return value.i32;
    case BRIM_DTYPE_U64:
        return value.u64;
    default:
        return value.i64;
    }
}

static double load_real(brim_dtype dtype, const uint8_t *data) {
    uint16_t half;
    float single;
    double twice;
    switch (dtype) {
    case BRIM_DTYPE_F16:
        memcpy(&half, data, sizeof half);
        return brim__f16_to_f32(half);
    case BRIM_DTYPE_BF16:
        memcpy(&half, data, sizeof half);
        return brim__bf16_to_f32(half);
    case BRIM_DTYPE_F32:
        memcpy(&single, data, sizeof single);
        return single;
    default:
        memcpy(&twice, data, sizeof twice);
        return twice;
    }
}

static uint32_t compare_wide(brim__wide value, const struct brim__comparison *comparison) {
    if (value != comparison->whole) {
        return value < comparison->whole ? LESS : MORE;
    }
    return comparison->between ? LESS : EQUAL;
}

static uint32_t compare_real(double value, double other) {
    return value < other ? LESS : value > other ? MORE : value == other ? EQUAL : UNORDERED;
}

bool brim__comparison_holds(const struct brim__comparison *comparison,
                            const struct brim__frame *frame) {
    uint32_t outcome = UNORDERED;
    switch (comparison->compared) {
    case BRIM__AS_INTEGER:
        outcome = compare_wide(
            load_integer(comparison->dtype, brim__reader_data(&comparison->reader, frame)),
            comparison);
        break;
    case BRIM__AS_REAL:
        outcome = compare_real(
            load_real(comparison->dtype, brim__reader_data(&comparison->reader, frame)),
            comparison->real);
        break;
    case BRIM__AS_LENGTH:
        outcome = compare_wide(brim__reader_span(&comparison->reader, frame).count, comparison);
        break;
    case BRIM__AS_TEXT: {
        const struct brim__span span = brim__reader_span(&comparison->reader, frame);
        const size_t bytes = comparison->text_bytes;
        if (span.count == bytes &&
            (bytes == 0 || memcmp(span.data, comparison->text, bytes) == 0)) {
            outcome = EQUAL;
        }
        break;
    }
    }
    return (outcome & comparison->accepts) != 0;
}

/*
 * value.c: walks and writes the elements of one value.
 *
 * Everything goes by strides: rows of a batch may be padded, and the fields of a
 * caller's array may lie in any order.
 */
#include "value.h"

#include "document.h"
#include "output.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define ELEMENTS_SHOWN 8
#define TEXT_SHOWN     60 /* bytes */

struct value value_of(const brim_field *field, uint64_t row) {
    struct value value = {
        .dtype = field->dtype,
        .form = field->form,
        .rank = field->rank - 1,
        .data = field->data,
        .count = 1,
    };
    for (uint32_t d = 0; d < value.rank; d++) {
        value.shape[d] = field->shape[d + 1];
        value.strides[d] = field->strides[d + 1];
    }
    if (field->form == BRIM_FORM_DENSE) {
        value.data += field->strides[0] * (int64_t)row;
    } else {
        value.shape[0] = field->offsets[row + 1] - field->offsets[row];
        value.data += field->offsets[row] * value.strides[0];
    }
    for (uint32_t d = 0; d < value.rank; d++) {
        value.count *= (uint64_t)value.shape[d];
    }
    return value;
}

struct value value_of_batch(const brim_field *field) {
    struct value value = {
        .dtype = field->dtype,
        .form = field->form,
        .rank = field->rank,
        .data = field->data,
        .count = 1,
    };
    for (uint32_t d = 0; d < value.rank; d++) {
        value.shape[d] = field->shape[d];
        value.strides[d] = field->strides[d];
        value.count *= (uint64_t)value.shape[d];
    }
    return value;
}

bool value_walk(const struct value *value, value_visit *visit, void *user) {
    uint64_t run = 1; /* elements of the dimensions, from the last on, that lie together */
    uint32_t outer = value->rank;
    const size_t bytes = brim_dtype_bytes(value->dtype);
    while (outer > 0 &&
           (value->shape[outer - 1] == 1 || value->strides[outer - 1] == (int64_t)(run * bytes))) {
        run *= (uint64_t)value->shape[--outer];
    }
    int64_t index[BRIM_MAX_RANK] = { 0 };
    const unsigned char *at = value->data;
    for (uint64_t done = 0; done < value->count; done += run) {
        if (!visit(user, at, run)) {
            return false;
        }
        for (uint32_t d = outer; d-- > 0;) {
            at += value->strides[d];
            if (++index[d] < value->shape[d]) {
                break;
            }
            at -= value->strides[d] * value->shape[d];
            index[d] = 0;
        }
    }
    return true;
}

/* ----------------------------------------------------------------- elements */

/* Sign, exponent and fraction of a float16, as a float. */
static float half_value(uint16_t bits) {
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    float value;
    if (exponent == 31) {
        value = fraction != 0 ? NAN : INFINITY;
    } else if (exponent == 0) {
        value = ldexpf((float)fraction, -24);
    } else {
        value = ldexpf((float)(fraction + 1024), exponent - 25);
    }
    return bits >> 15 ? -value : value;
}

static double real_value(brim_dtype dtype, const unsigned char *data) {
    uint16_t half;
    uint32_t word;
    float single;
    double real;
    switch (dtype) {
    case BRIM_DTYPE_F16:
        memcpy(&half, data, sizeof half);
        return (double)half_value(half);
    case BRIM_DTYPE_BF16:
        memcpy(&half, data, sizeof half);
        word = (uint32_t)half << 16;
        memcpy(&single, &word, sizeof single);
        return (double)single;
    case BRIM_DTYPE_F32:
    case BRIM_DTYPE_C64:
        memcpy(&single, data, sizeof single);
        return (double)single;
    default:
        memcpy(&real, data, sizeof real);
        return real;
    }
}

static int64_t signed_value(brim_dtype dtype, const unsigned char *data) {
    int64_t number = 0;
    const size_t bytes = brim_dtype_bytes(dtype);
    memcpy(&number, data, bytes); /* little-endian, like every platform of brim */
    const unsigned spare = (unsigned)(64 - 8 * bytes);
    return (int64_t)((uint64_t)number << spare) >> spare;
}

double element_value(brim_dtype dtype, const unsigned char *data) {
    uint64_t number = 0;
    switch (dtype) {
    case BRIM_DTYPE_BOOL:
        return *data != 0;
    case BRIM_DTYPE_U8:
    case BRIM_DTYPE_U16:
    case BRIM_DTYPE_U32:
    case BRIM_DTYPE_U64:
        memcpy(&number, data, brim_dtype_bytes(dtype));
        return (double)number;
    case BRIM_DTYPE_I8:
    case BRIM_DTYPE_I16:
    case BRIM_DTYPE_I32:
    case BRIM_DTYPE_I64:
        return (double)signed_value(dtype, data);
    default:
        return real_value(dtype, data);
    }
}

static void put_number(FILE *file, double number, int digits, bool json) {
    if (isfinite(number)) {
        char text[40];
        snprintf(text, sizeof text, "%.*g", digits, number);
        fputs(text, file);
        if (json && text[strcspn(text, ".e")] == '\0') {
            fputs(".0", file); /* a reader takes 1 for an integer, and -0 for 0 */
        }
    } else if (json) {
        fputs(isnan(number) ? "\"NaN\"" : number > 0 ? "\"Infinity\"" : "\"-Infinity\"", file);
    } else {
        fputs(isnan(number) ? "nan" : number > 0 ? "inf" : "-inf", file);
    }
}

static void put_element(FILE *file, brim_dtype dtype, const unsigned char *data, bool json) {
    uint64_t number = 0;
    switch (dtype) {
    case BRIM_DTYPE_BOOL:
        fputs(*data != 0 ? "true" : "false", file);
        break;
    case BRIM_DTYPE_U8:
    case BRIM_DTYPE_U16:
    case BRIM_DTYPE_U32:
    case BRIM_DTYPE_U64:
        memcpy(&number, data, brim_dtype_bytes(dtype));
        fprintf(file, "%" PRIu64, number);
        break;
    case BRIM_DTYPE_I8:
    case BRIM_DTYPE_I16:
    case BRIM_DTYPE_I32:
    case BRIM_DTYPE_I64:
        fprintf(file, "%" PRId64, signed_value(dtype, data));
        break;
    case BRIM_DTYPE_F16:
    case BRIM_DTYPE_BF16:
    case BRIM_DTYPE_F32:
        put_number(file, real_value(dtype, data), json ? 9 : 6, json);
        break;
    case BRIM_DTYPE_F64:
        put_number(file, real_value(dtype, data), json ? 17 : 6, json);
        break;
    case BRIM_DTYPE_C64:
    case BRIM_DTYPE_C128: {
        const int digits = !json ? 6 : dtype == BRIM_DTYPE_C64 ? 9 : 17;
        fputc(json ? '[' : '(', file);
        put_number(file, real_value(dtype, data), digits, json);
        fputs(json ? ", " : " ", file);
        put_number(file, real_value(dtype, data + brim_dtype_bytes(dtype) / 2), digits, json);
        fputc(json ? ']' : ')', file);
        break;
    }
    }
}

/* ------------------------------------------------------------------- people */

struct shown {
    FILE *file;
    brim_dtype dtype;
    uint64_t count;
};

static bool show_run(void *user, const unsigned char *data, uint64_t count) {
    struct shown *shown = user;
    for (uint64_t i = 0; i < count; i++) {
        if (shown->count == ELEMENTS_SHOWN) {
            return false;
        }
        if (shown->count++ > 0) {
            fputc(' ', shown->file);
        }
        put_element(shown->file, shown->dtype, data + i * brim_dtype_bytes(shown->dtype), false);
    }
    return true;
}

/* In quotes, control characters and bytes outside ASCII text escaped; a character
 * of UTF-8 is not cut in two. */
static void show_text(const struct value *value, FILE *file) {
    uint64_t length = value->count < TEXT_SHOWN ? value->count : TEXT_SHOWN;
    while (value->form == BRIM_FORM_TEXT && length > 0 && length < value->count &&
           (value->data[length] & 0xc0) == 0x80) {
        length--;
    }
    fputc('"', file);
    for (uint64_t i = 0; i < length; i++) {
        const unsigned char c = value->data[i];
        if (c == '"' || c == '\\') {
            fprintf(file, "\\%c", c);
        } else if (c == '\n') {
            fputs("\\n", file);
        } else if (c == '\t') {
            fputs("\\t", file);
        } else if (c < 0x20 || c == 0x7f || (c >= 0x80 && value->form != BRIM_FORM_TEXT)) {
            fprintf(file, "\\x%02x", c);
        } else {
            fputc(c, file);
        }
    }
    fputs(length < value->count ? "\" ..." : "\"", file);
}

void value_print(const struct value *value, FILE *file) {
    if (value->form == BRIM_FORM_TEXT || value->form == BRIM_FORM_BYTES) {
        fprintf(file, "%s %" PRIu64 " ", value->form == BRIM_FORM_TEXT ? "text" : "bytes",
                value->count);
        show_text(value, file);
        return;
    }
    struct shown shown = { .file = file, .dtype = value->dtype };
    fprintf(file, "%s ", brim_dtype_name(value->dtype));
    if (value->rank > 0) {
        char shape[SHAPE_TEXT];
        fprintf(file, "%s [", shape_text(value->shape, value->rank, shape));
    }
    const bool all = value_walk(value, show_run, &shown);
    if (value->rank > 0) {
        fputs(all ? "]" : " ...]", file);
    }
}

/* --------------------------------------------------------------------- JSON */

static void put_nested(const struct value *value, uint32_t dimension, const unsigned char *data,
                       FILE *file) {
    if (dimension == value->rank) {
        put_element(file, value->dtype, data, true);
        return;
    }
    fputc('[', file);
    for (int64_t i = 0; i < value->shape[dimension]; i++) {
        if (i > 0) {
            fputs(", ", file);
        }
        put_nested(value, dimension + 1, data + i * value->strides[dimension], file);
    }
    fputc(']', file);
}

static void put_base64(const unsigned char *data, uint64_t count, FILE *file) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    fputs("{\"base64\": \"", file);
    for (uint64_t i = 0; i < count; i += 3) {
        const uint64_t left = count - i;
        const uint32_t group = (uint32_t)data[i] << 16 |
                               (left > 1 ? (uint32_t)data[i + 1] << 8 : 0) |
                               (left > 2 ? (uint32_t)data[i + 2] : 0);
        fputc(digits[group >> 18], file);
        fputc(digits[group >> 12 & 63], file);
        fputc(left > 1 ? digits[group >> 6 & 63] : '=', file);
        fputc(left > 2 ? digits[group & 63] : '=', file);
    }
    fputs("\"}", file);
}

void value_json(const struct value *value, FILE *file) {
    if (value->form == BRIM_FORM_TEXT &&
        json_string_write(file, (const char *)value->data, value->count)) {
        return;
    }
    if (value->form == BRIM_FORM_TEXT || value->form == BRIM_FORM_BYTES) {
        put_base64(value->data, value->count, file);
        return;
    }
    put_nested(value, 0, value->data, file);
}

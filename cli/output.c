/*
 * output.c: writes JSON, tables and numbers.
 *
 * Nothing here is set by the locale: the program never calls setlocale, so the
 * decimal point is a point everywhere.
 */
#include "output.h"

#include "cli.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void *take(size_t count, size_t bytes) {
    void *memory = calloc(count > 0 ? count : 1, bytes);
    if (memory == NULL) {
        fprintf(stderr, "brim: the system refused %zu bytes for the command line\n", count * bytes);
        exit(EXIT_FAILED);
    }
    return memory;
}

/* -------------------------------------------------------------------- JSON */

/* Length of the UTF-8 character at `s`, 0 if it is none. Overlong forms,
 * surrogates and what lies past U+10FFFF are none. */
static size_t utf8_length(const unsigned char *s) {
    static const struct {
        unsigned char first, last;       /* of the first byte */
        unsigned char second, second_to; /* range of the second byte */
        size_t length;
    } forms[] = {
        { 0x00, 0x7f, 0, 0, 1 },       { 0xc2, 0xdf, 0x80, 0xbf, 2 }, { 0xe0, 0xe0, 0xa0, 0xbf, 3 },
        { 0xe1, 0xec, 0x80, 0xbf, 3 }, { 0xed, 0xed, 0x80, 0x9f, 3 }, { 0xee, 0xef, 0x80, 0xbf, 3 },
        { 0xf0, 0xf0, 0x90, 0xbf, 4 }, { 0xf1, 0xf3, 0x80, 0xbf, 4 }, { 0xf4, 0xf4, 0x80, 0x8f, 4 },
    };
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        if (s[0] < forms[i].first || s[0] > forms[i].last) {
            continue;
        }
        if (forms[i].length > 1 && (s[1] < forms[i].second || s[1] > forms[i].second_to)) {
            return 0;
        }
        for (size_t k = 2; k < forms[i].length; k++) {
            if (s[k] < 0x80 || s[k] > 0xbf) {
                return 0;
            }
        }
        return forms[i].length;
    }
    return 0;
}

static void put_string(FILE *file, const char *text) {
    const unsigned char *s = (const unsigned char *)text;
    fputc('"', file);
    while (*s != '\0') {
        const size_t length = utf8_length(s);
        if (length == 0) {
            fputs("\\ufffd", file);
            s++;
            continue;
        }
        if (*s == '"' || *s == '\\') {
            fprintf(file, "\\%c", *s);
        } else if (*s < 0x20 || *s == 0x7f) {
            fprintf(file, "\\u%04x", *s);
        } else {
            fwrite(s, 1, length, file);
        }
        s += length;
    }
    fputc('"', file);
}

/* What stands before a value: comma, line, key. */
static void begin_value(struct json *json, const char *key) {
    if (json->more) {
        fputc(',', json->file);
    }
    if (json->depth > 0) {
        fprintf(json->file, "\n%*s", (int)json->depth * 2, "");
    }
    if (key != NULL) {
        put_string(json->file, key);
        fputs(": ", json->file);
    }
    json->more = true;
}

static void begin_nest(struct json *json, const char *key, char mark) {
    begin_value(json, key);
    fputc(mark, json->file);
    json->depth++;
    json->more = false;
}

static void end_nest(struct json *json, char mark) {
    json->depth--;
    if (json->more) {
        fprintf(json->file, "\n%*s", (int)json->depth * 2, "");
    }
    fputc(mark, json->file);
    json->more = true;
    if (json->depth == 0) {
        fputc('\n', json->file);
    }
}

void json_object(struct json *json, const char *key) {
    begin_nest(json, key, '{');
}
void json_array(struct json *json, const char *key) {
    begin_nest(json, key, '[');
}
void json_end_object(struct json *json) {
    end_nest(json, '}');
}
void json_end_array(struct json *json) {
    end_nest(json, ']');
}

void json_text(struct json *json, const char *key, const char *text) {
    begin_value(json, key);
    if (text == NULL) {
        fputs("null", json->file);
    } else {
        put_string(json->file, text);
    }
}

void json_count(struct json *json, const char *key, uint64_t number) {
    begin_value(json, key);
    fprintf(json->file, "%" PRIu64, number);
}

void json_signed(struct json *json, const char *key, int64_t number) {
    begin_value(json, key);
    fprintf(json->file, "%" PRId64, number);
}

void json_real(struct json *json, const char *key, double number) {
    begin_value(json, key);
    char text[NUMBER_TEXT] = "null";
    /* the fewest digits that read back as the same number */
    for (int digits = 15; isfinite(number) && digits <= 17; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, number);
        if (strtod(text, NULL) == number) {
            break;
        }
    }
    fputs(text, json->file);
}

void json_bool(struct json *json, const char *key, bool value) {
    begin_value(json, key);
    fputs(value ? "true" : "false", json->file);
}

void json_hex(struct json *json, const char *key, uint64_t number) {
    char text[20];
    snprintf(text, sizeof(text), "%016" PRIx64, number);
    json_text(json, key, text);
}

/* ------------------------------------------------------------------- tables */

static char *cell(const struct table *table, size_t row, size_t column) {
    return table->cells + (row * table->columns + column) * CELL_BYTES;
}

void table_row(struct table *table, const char *const *texts) {
    const size_t before = table->rows * table->columns * CELL_BYTES;
    char *cells = take(1, before + table->columns * CELL_BYTES);
    if (table->cells != NULL) {
        memcpy(cells, table->cells, before);
        free(table->cells);
    }
    table->cells = cells;
    for (size_t c = 0; c < table->columns; c++) {
        snprintf(cell(table, table->rows, c), CELL_BYTES, "%s", texts[c]);
    }
    table->rows++;
}

/* Columns on a terminal: UTF-8 characters, all taken as one column wide. */
static int width_of(const char *text) {
    int width = 0;
    for (; *text != '\0'; text++) {
        width += ((unsigned char)*text & 0xc0) != 0x80;
    }
    return width;
}

void table_print(struct table *table, FILE *file) {
    int widths[TABLE_COLUMNS] = { 0 };
    for (size_t r = 0; r < table->rows; r++) {
        for (size_t c = 0; c < table->columns; c++) {
            const int width = width_of(cell(table, r, c));
            widths[c] = width > widths[c] ? width : widths[c];
        }
    }
    for (size_t r = 0; r < table->rows; r++) {
        for (size_t c = 0; c < table->columns; c++) {
            const char *text = cell(table, r, c);
            const int gap = widths[c] - width_of(text);
            const bool right = (table->right >> c & 1u) != 0;
            const bool last = c + 1 == table->columns;
            fprintf(file, "%*s", right ? gap : 0, "");
            put_clean(file, text);
            fprintf(file, "%*s", last ? 0 : (right ? 0 : gap) + 2, "");
        }
        fputc('\n', file);
    }
    free(table->cells);
    table->cells = NULL;
    table->rows = 0;
}

/* ----------------------------------------------------------------- numbers */

const char *bytes_text(double bytes, char text[NUMBER_TEXT]) {
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
    size_t unit = 0;
    while (bytes >= 1024 && unit + 1 < sizeof(units) / sizeof(units[0])) {
        bytes /= 1024;
        unit++;
    }
    snprintf(text, NUMBER_TEXT, unit == 0 ? "%.0f %s" : "%.1f %s", bytes, units[unit]);
    return text;
}

const char *count_text(uint64_t count, char text[NUMBER_TEXT]) {
    char digits[24];
    const int length = snprintf(digits, sizeof(digits), "%" PRIu64, count);
    size_t to = 0;
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0) {
            text[to++] = ',';
        }
        text[to++] = digits[i];
    }
    text[to] = '\0';
    return text;
}

const char *rate_text(double rate, char text[NUMBER_TEXT]) {
    if (rate >= 100 && rate < 1e18) {
        return count_text((uint64_t)(rate + 0.5), text);
    }
    snprintf(text, NUMBER_TEXT, "%.3g", rate);
    return text;
}

const char *time_text(double seconds, char text[NUMBER_TEXT]) {
    if (seconds < 1e-3) {
        snprintf(text, NUMBER_TEXT, "%.0f us", seconds * 1e6);
    } else if (seconds < 1) {
        snprintf(text, NUMBER_TEXT, "%.1f ms", seconds * 1e3);
    } else if (seconds < 60) {
        snprintf(text, NUMBER_TEXT, "%.2f s", seconds);
    } else if (seconds < 1e15) {
        const uint64_t whole = (uint64_t)seconds;
        if (whole < 3600) {
            snprintf(text, NUMBER_TEXT, "%" PRIu64 ":%02" PRIu64 " min", whole / 60, whole % 60);
        } else {
            snprintf(text, NUMBER_TEXT, "%" PRIu64 ":%02" PRIu64 " h", whole / 3600,
                     whole / 60 % 60);
        }
    } else {
        snprintf(text, NUMBER_TEXT, "unknown");
    }
    return text;
}

const char *shape_text(const int64_t *shape, uint32_t rank, char text[SHAPE_TEXT]) {
    size_t at = 0;
    snprintf(text, SHAPE_TEXT, "scalar");
    for (uint32_t i = 0; i < rank && at < SHAPE_TEXT; i++) {
        at +=
            (size_t)snprintf(text + at, SHAPE_TEXT - at, "%s%" PRId64, i > 0 ? "x" : "", shape[i]);
    }
    return text;
}

void put_clean(FILE *file, const char *text) {
    for (; *text != '\0'; text++) {
        const unsigned char c = (unsigned char)*text;
        fputc((c < 0x20 && c != '\n') || c == 0x7f ? '?' : c, file);
    }
}

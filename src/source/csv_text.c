/*
 * csv_text.c: one field of a CSV record.
 *
 * Quoting follows RFC 4180, and in cases that it does not define, Python's csv module and pandas. A
 * field is quoted if its first character is a quote; inside, two quotes are one; text between the
 * closing quote and the delimiter is part of the field, unchanged; a quote anywhere else is an
 * ordinary character.
 */
#include "base/utf8.h"
#include "source/csv.h"

#include <stdio.h>

char *brim__csv_split(char delimiter, char *at, char *end, char **text, size_t *length) {
    assert(at <= end && *end == delimiter);
    if (at == end || *at != '"') {
        char *stop = memchr(at, delimiter, (size_t)(end - at) + 1);
        *text = at;
        *length = (size_t)(stop - at);
        return stop + 1;
    }
    char *to = at + 1, *from = at + 1;
    *text = to;
    for (bool open = true; open;) {
        char *quote = memchr(from, '"', (size_t)(end - from));
        if (quote == NULL) {
            return NULL;
        }
        open = quote[1] == '"'; /* the delimiter at `end` is no quote */
        const size_t part = (size_t)(quote - from) + open;
        memmove(to, from, part);
        to += part;
        from = quote + 1 + open;
    }
    char *stop = memchr(from, delimiter, (size_t)(end - from) + 1);
    memmove(to, from, (size_t)(stop - from));
    *length = (size_t)(to - *text) + (size_t)(stop - from);
    return stop + 1;
}

const char *brim__csv_skip(char delimiter, const char *at, const char *end) {
    assert(at <= end && *end == delimiter);
    if (at < end && *at == '"') {
        do { /* after a quote that closes, or is one of two */
            at = memchr(at + 1, '"', (size_t)(end - at) - 1);
            if (at == NULL) {
                return NULL;
            }
            at++;
        } while (*at == '"');
    }
    return (const char *)memchr(at, delimiter, (size_t)(end - at) + 1) + 1;
}

const char *brim__csv_show(char shown[BRIM__CSV_SHOWN], const char *text, size_t length) {
    const size_t most = BRIM__CSV_SHOWN - 4; /* the dots fit after it */
    size_t kept = length < most ? length : most;
    while (kept < length && kept > most - 4 && ((uint8_t)text[kept] & 0xc0) == 0x80) {
        kept--; /* not in the middle of a character */
    }
    for (size_t i = 0, valid = 0; i < kept; i++) {
        if (i >= valid) {
            valid = i + brim__utf8_valid((const uint8_t *)text + i, kept - i);
        }
        const bool control = (uint8_t)text[i] < 0x20 || text[i] == 0x7f;
        shown[i] = control || i >= valid ? '?' : text[i];
    }
    memcpy(shown + kept, kept < length ? "..." : "", kept < length ? 4 : 1);
    return shown;
}

const char *brim__csv_column_text(const struct brim__csv *csv, uint32_t column,
                                  char shown[BRIM__CSV_SHOWN]) {
    const char *name = csv->column[column].name;
    if (name != NULL) {
        return brim__csv_show(shown, name, strlen(name));
    }
    snprintf(shown, BRIM__CSV_SHOWN, "c%u", column);
    return shown;
}

const char *brim__csv_kind_name(unsigned kind) {
    return kind == BRIM__CSV_TEXT    ? "text"
           : kind == BRIM__CSV_BYTES ? "bytes"
                                     : brim_dtype_name((brim_dtype)kind);
}

static bool is_blank(char c) {
    return c == ' ' || c == '\t';
}

void brim__csv_strip(char **text, size_t *length) {
    while (*length > 0 && is_blank((*text)[0])) {
        (*text)++;
        (*length)--;
    }
    while (*length > 0 && is_blank((*text)[*length - 1])) {
        (*length)--;
    }
}

bool brim__csv_is_missing(const char *text, size_t length) {
    static const char *const words[] = { "", "na", "n/a", "null", "none", "<na>", "#n/a" };
    for (size_t i = 0; i < BRIM__COUNT(words); i++) {
        size_t n = 0;
        while (n < length && words[i][n] != '\0' &&
               (text[n] | (text[n] >= 'A' && text[n] <= 'Z' ? 0x20 : 0)) == words[i][n]) {
            n++;
        }
        if (n == length && words[i][n] == '\0') {
            return true;
        }
    }
    return false;
}

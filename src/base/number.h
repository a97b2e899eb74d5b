/*
 * number.h: numbers written as text, read the same under every locale.
 *
 * Reals are the double nearest to the written number, ties to even, for any number of digits.
 * Accepted are an optional sign, digits, of reals also '.' and an exponent, and "inf", "infinity"
 * and "nan" in any case; nothing else: no blanks, no hexadecimal, no separators. A number that is
 * too large for a double is infinite, one that is too small is zero; an integer that does not fit
 * is refused.
 *
 * The scan functions read the longest number that `text` begins with and return what follows it, or
 * NULL if there is none. They read nothing at or after `end`, take no memory, and may be called
 * from any thread.
 */
#ifndef BRIM_NUMBER_H
#define BRIM_NUMBER_H

#include "base/base.h"

const char *brim__scan_integer(const char *text, const char *end, int64_t *value);
const char *brim__scan_unsigned(const char *text, const char *end, uint64_t *value);
const char *brim__scan_real(const char *text, const char *end, double *value);

/* All of the text is one number. */
static inline bool brim__parse_integer(const char *text, size_t length, int64_t *value) {
    return brim__scan_integer(text, text + length, value) == text + length && length > 0;
}
static inline bool brim__parse_unsigned(const char *text, size_t length, uint64_t *value) {
    return brim__scan_unsigned(text, text + length, value) == text + length && length > 0;
}
static inline bool brim__parse_real(const char *text, size_t length, double *value) {
    return brim__scan_real(text, text + length, value) == text + length && length > 0;
}

#endif

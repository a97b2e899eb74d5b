/*
 * text.c: small texts for messages: cut copies, sizes, the system's error
 * texts, and the name that a misspelt word may have meant.
 *
 * Nothing here allocates; words longer than any name in the library are not compared.
 */
#include "base/base.h"

#include <ctype.h>
#include <stdio.h>

bool brim__copy_text(char *to, size_t bytes, const char *from) {
    assert(bytes > 0);
    const size_t length = strnlen(from, bytes);
    const bool whole = length < bytes;
    const size_t kept = whole ? length : bytes - 1;
    memmove(to, from, kept);
    to[kept] = '\0';
    return whole;
}

const char *brim__size_text(uint64_t bytes, char text[BRIM__SIZE_TEXT]) {
    static const char *const units[] = { "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
    if (bytes < 1024) {
        snprintf(text, BRIM__SIZE_TEXT, "%u B", (unsigned)bytes);
        return text;
    }
    /* Tenths of the unit, rounded; what rounds to 1024.0 takes the next unit.
     * Whole and rest apart, because bytes * 10 may not fit. */
    size_t unit = 0;
    uint64_t tenths = 0;
    for (unsigned shift = 10;; shift += 10, unit++) {
        const uint64_t rest = bytes & ((UINT64_C(1) << shift) - 1);
        const uint64_t half = UINT64_C(1) << (shift - 1);
        tenths = (bytes >> shift) * 10 + ((rest * 10 + half) >> shift);
        if (tenths < 10240 || unit + 1 == BRIM__COUNT(units)) {
            break;
        }
    }
    snprintf(text, BRIM__SIZE_TEXT, "%u.%u %s", (unsigned)(tenths / 10), (unsigned)(tenths % 10),
             units[unit]);
    return text;
}

const char *brim__error_text(int error, char text[BRIM__ERROR_TEXT]) {
    /* The GNU form, which may return a constant instead of filling `text`. */
    const char *said = strerror_r(error, text, BRIM__ERROR_TEXT);
    if (said != text) {
        brim__copy_text(text, BRIM__ERROR_TEXT, said);
    }
    return text;
}

#define LONGEST_WORD 63

static bool same(char a, char b) {
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

/* Insertions, deletions, replacements and swaps of neighbours that turn one
 * word into the other. Both are at most LONGEST_WORD long. */
static unsigned edit_distance(const char *a, size_t a_length, const char *b, size_t b_length) {
    unsigned rows[3][LONGEST_WORD + 1]; /* row i lies at i % 3 */
    for (size_t j = 0; j <= b_length; j++) {
        rows[0][j] = (unsigned)j;
    }
    for (size_t i = 1; i <= a_length; i++) {
        unsigned *row = rows[i % 3];
        const unsigned *above = rows[(i + 2) % 3];
        const unsigned *two_above = rows[(i + 1) % 3];
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= b_length; j++) {
            unsigned best = above[j - 1] + !same(a[i - 1], b[j - 1]);
            if (above[j] + 1 < best) {
                best = above[j] + 1;
            }
            if (row[j - 1] + 1 < best) {
                best = row[j - 1] + 1;
            }
            if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1]) &&
                two_above[j - 2] + 1 < best) {
                best = two_above[j - 2] + 1;
            }
            row[j] = best;
        }
    }
    return rows[a_length % 3][b_length];
}

const char *brim_nearest(const char *word, const char *const *names, size_t count) {
    const size_t length = word != NULL ? strnlen(word, LONGEST_WORD + 1) : 0;
    if (length > LONGEST_WORD || names == NULL) {
        return NULL;
    }
    const char *nearest = NULL;
    unsigned least = 0;
    for (size_t i = 0; i < count; i++) {
        const size_t name_length = names[i] != NULL ? strnlen(names[i], LONGEST_WORD + 1) : 0;
        if (name_length == 0 || name_length > LONGEST_WORD) {
            continue;
        }
        const unsigned distance = edit_distance(word, length, names[i], name_length);
        /* one edit for every three letters; one in a short word, unless all of the word
         * would be replaced */
        const size_t allowed = brim__max(1, length / 3);
        if (distance > allowed || distance >= length) {
            continue;
        }
        if (nearest == NULL || distance < least) {
            nearest = names[i];
            least = distance;
        }
    }
    return nearest;
}

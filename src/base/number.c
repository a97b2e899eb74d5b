/*
 * number.c: numbers written as text.
 *
 * A real is w * 10^q with an integer w of the digits written. Three ways, from
 * the fastest to the one that is always right:
 *
 * 1. w <= 2^53 and |q| <= 22: both are doubles, so that one multiplication or
 *    division rounds once (Clinger 1990).
 * 2. At most 19 digits, |q| <= 55: w times the first 128 bits of 5^q. Those are
 *    exact for q >= 0 (5^55 < 2^128), else cut off, so that the true product
 *    lies in (U, U + 2) of its upper 128 bits U. Unless the middle between two
 *    doubles lies in there, both ends round to the same double.
 *
 *      U:  1 m m m ... m | r r r ... r      53 bits of the double, 74 or 75 to round by
 *
 * 3. Otherwise the C library's strtod under the C locale, on a text of the
 *    first DIGITS significant digits. No double and no middle between two has
 *    more than 767; what is cut off is represented by a last digit that is not
 *    zero, which decides on which side of a middle the number lies.
 *
 * Both of the first two stay far from the smallest and the largest doubles.
 */
#include "base/number.h"

#include <locale.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#define DIGITS       770
#define FAST_POWER   55
#define SAFE_DIGITS  19 /* 10^19 < 2^64 */
#define MOST_INTEGER (UINT64_C(1) << 53)

__extension__ typedef unsigned __int128 wide;

/* 5^q = (high * 2^64 + low + less than 1) * 2^exponent, with the top bit of high set. */
struct power {
    uint64_t high, low;
    int exponent;
};

static struct power powers[2 * FAST_POWER + 1]; /* of 5^(index - FAST_POWER) */
static locale_t plain_locale;
static pthread_once_t prepared = PTHREAD_ONCE_INIT;
static atomic_bool ready; /* set after all of the above; saves the call of pthread_once */

static void set_power(int q, wide bits, int exponent) {
    powers[q + FAST_POWER] = (struct power){ .high = (uint64_t)(bits >> 64),
                                             .low = (uint64_t)bits,
                                             .exponent = exponent };
}

/* floor(2^(127 + bits) / divisor), where 2^(bits - 1) < divisor < 2^bits. */
static wide reciprocal(wide divisor, int bits) {
    wide quotient = 0, rest = 1;
    for (int i = 0; i < 127 + bits; i++) {
        const bool carry = (rest >> 127) != 0;
        rest <<= 1;
        quotient <<= 1;
        if (carry || rest >= divisor) {
            rest -= divisor;
            quotient |= 1;
        }
    }
    return quotient;
}

static void prepare(void) {
    wide five = 1;
    for (int q = 0; q <= FAST_POWER; q++, five *= 5) {
        int bits = 128;
        while ((five >> (bits - 1)) == 0) {
            bits--;
        }
        set_power(q, five << (128 - bits), bits - 128);
        if (q > 0) {
            set_power(-q, reciprocal(five, bits), -127 - bits);
        }
    }
    /* glibc's and musl's C locale is a static object: nothing is taken, nothing can fail */
    plain_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    atomic_store_explicit(&ready, true, memory_order_release);
}

static inline void make_ready(void) {
    if (BRIM__UNLIKELY(!atomic_load_explicit(&ready, memory_order_acquire))) {
        pthread_once(&prepared, prepare);
    }
}

/* ----------------------------------------------------------------- digits */

#define EACH_BYTE(byte) (UINT64_C(0x0101010101010101) * (byte))

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* The digits from `text` on enter *value, modulo 2^64. Returns what follows. */
static inline const char *take_digits(const char *text, const char *end, uint64_t *value) {
    static const uint32_t ten_to[] = { 1, 10, 100, 1000, 10000, 100000, 1000000, 10000000 };
    uint64_t sum = *value;
    while (end - text >= 8) { /* eight at a time: the first is the lowest byte */
        uint64_t eight;
        memcpy(&eight, text, sizeof eight);
        /* not zero in bytes that are no digit; a carry only reaches bytes after such a byte */
        const uint64_t others =
            ((eight ^ EACH_BYTE(0x30)) | ((eight + EACH_BYTE(0x06)) ^ EACH_BYTE(0x30))) &
            EACH_BYTE(0xf0);
        const unsigned digits = others == 0 ? 8 : (unsigned)__builtin_ctzll(others) / 8;
        if (digits == 0) {
            *value = sum;
            return text;
        }
        eight <<= 64 - 8 * digits; /* zeros in front */
        eight &= EACH_BYTE(0x0f);
        eight = (eight * 10 + (eight >> 8)) & UINT64_C(0x00ff00ff00ff00ff);
        eight = (eight * 100 + (eight >> 16)) & UINT64_C(0x0000ffff0000ffff);
        eight = (eight * 10000 + (eight >> 32)) & UINT64_C(0x00000000ffffffff);
        text += digits;
        if (digits < 8) {
            *value = sum * ten_to[digits] + eight;
            return text;
        }
        sum = sum * 100000000 + eight;
    }
    for (; text < end && is_digit(*text); text++) {
        sum = sum * 10 + (uint64_t)(*text - '0');
    }
    *value = sum;
    return text;
}

/* Without a branch on the sign, which cannot be predicted. */
static inline const char *take_sign(const char *text, const char *end, bool *negative) {
    const char sign = text < end ? *text : '\0';
    *negative = sign == '-';
    return text + ((sign == '-') | (sign == '+'));
}

static double with_sign(double value, bool negative) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    bits ^= (uint64_t)negative << 63;
    memcpy(&value, &bits, sizeof bits);
    return value;
}

/* --------------------------------------------------------------- integers */

/* Digits whose value fits; NULL if there are none or it does not. */
static const char *take_magnitude(const char *text, const char *end, uint64_t *value) {
    const char *digits = text;
    *value = 0;
    const char *stop = take_digits(text, end, value);
    if (stop - digits <= SAFE_DIGITS) {
        return stop == digits ? NULL : stop;
    }
    while (digits < stop && *digits == '0') {
        digits++;
    }
    if (stop - digits > SAFE_DIGITS + 1) {
        return NULL;
    }
    *value = 0;
    for (; digits < stop; digits++) {
        if (brim__mul_overflows(*value, 10, value) ||
            brim__add_overflows(*value, (uint64_t)(*digits - '0'), value)) {
            return NULL;
        }
    }
    return stop;
}

const char *brim__scan_integer(const char *text, const char *end, int64_t *value) {
    bool negative;
    uint64_t magnitude;
    const char *stop = take_magnitude(take_sign(text, end, &negative), end, &magnitude);
    if (stop == NULL || magnitude > (uint64_t)INT64_MAX + (negative ? 1 : 0)) {
        return NULL;
    }
    *value = negative ? (int64_t)(0 - magnitude) : (int64_t)magnitude;
    return stop;
}

const char *brim__scan_unsigned(const char *text, const char *end, uint64_t *value) {
    bool negative;
    uint64_t magnitude;
    const char *stop = take_magnitude(take_sign(text, end, &negative), end, &magnitude);
    if (stop == NULL || (negative && magnitude != 0)) {
        return NULL;
    }
    *value = magnitude;
    return stop;
}

/* ------------------------------------------------------------------ reals */

static const double ten[] = { 1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                              1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                              1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22 };
#define MOST_TEN ((int)BRIM__COUNT(ten) - 1)

/* w * 10^q by 128 bits of 5^q; false: they do not decide. w is not 0. */
static bool by_product(uint64_t w, int q, double *value) {
    make_ready();
    const struct power *power = &powers[q + FAST_POWER];
    const int shift = __builtin_clzll(w);
    w <<= shift;
    const wide lower = (wide)w * power->low;
    const wide upper = (wide)w * power->high + (uint64_t)(lower >> 64);
    const uint64_t high = (uint64_t)(upper >> 64), low = (uint64_t)upper;
    /* of `high` the first 53 bits are the mantissa; it begins with a bit that is set, or the
     * one after it is */
    const int spare = 10 + (int)(high >> 63);
    const uint64_t middle = UINT64_C(1) << (spare - 1);
    const uint64_t rest = high & (2 * middle - 1); /* followed by `low` */
    uint64_t mantissa = high >> spare;
    if (q >= 0) {
        const bool tie = rest == middle && low == 0 && (uint64_t)lower == 0;
        mantissa += tie ? mantissa & 1 : rest >= middle;
    } else if (BRIM__UNLIKELY(rest == middle - 1 && low == UINT64_MAX)) {
        return false;
    } else {
        mantissa += rest >= middle;
    }
    /* a mantissa that was rounded up to 2^53 carries into the exponent */
    const int exponent = spare + 128 + power->exponent + q - shift + 52 + 1023;
    const uint64_t bits = ((uint64_t)exponent << 52) + (mantissa - (UINT64_C(1) << 52));
    memcpy(value, &bits, sizeof bits);
    return true;
}

/* Digits with at most one '.' among them, times 10^exponent. */
static double by_library(const char *digits, const char *stop, int64_t exponent) {
    char text[DIGITS + 32];
    size_t used = 0;
    bool point = false, rest = false;
    for (; digits < stop; digits++) {
        if (*digits == '.') {
            point = true;
            continue;
        }
        exponent -= point;
        if (used == 0 && *digits == '0') {
            continue;
        }
        if (used < DIGITS) {
            text[used++] = *digits;
        } else {
            rest = rest || *digits != '0';
            exponent++;
        }
    }
    if (used == 0) {
        return 0;
    }
    if (rest) {
        text[used++] = '1';
        exponent--;
    }
    const int64_t beyond = 20000; /* with DIGITS digits infinite, or zero */
    exponent = exponent > beyond ? beyond : exponent < -beyond ? -beyond : exponent;
    snprintf(text + used, sizeof text - used, "e%d", (int)exponent);
    make_ready();
    return strtod_l(text, NULL, plain_locale);
}

/* "inf", "infinity", "nan" in any case; NULL if it is none of them. */
static const char *take_word(const char *text, const char *end, double *value) {
    static const char *const words[] = { "infinity", "inf", "nan" };
    for (size_t i = 0; i < BRIM__COUNT(words); i++) {
        size_t n = 0;
        while (words[i][n] != '\0' && text + n < end && (text[n] | 0x20) == words[i][n]) {
            n++;
        }
        if (words[i][n] == '\0') {
            *value = i == 2 ? __builtin_nan("") : __builtin_inf();
            return text + n;
        }
    }
    return NULL;
}

/* Reads an exponent, if there is one at `text`, saturated; returns what follows it. */
static const char *take_exponent(const char *text, const char *end, int64_t *exponent) {
    bool negative;
    if (text == end || (*text | 0x20) != 'e') {
        return text;
    }
    const char *digits = take_sign(text + 1, end, &negative);
    const char *c = digits;
    const int64_t most = INT64_C(1) << 52; /* more than a text has digits to make up for it */
    int64_t sum = 0;
    for (; c < end && is_digit(*c); c++) {
        sum = sum < most ? sum * 10 + (*c - '0') : most;
    }
    if (c == digits) {
        return text;
    }
    *exponent += negative ? -sum : sum;
    return c;
}

/* Digits that count: from the first that is not zero. */
static ptrdiff_t significant(const char *digits, const char *stop) {
    ptrdiff_t point = 0;
    while (digits < stop && (*digits == '0' || *digits == '.')) {
        digits++;
    }
    for (const char *c = digits; c < stop && point == 0; c++) {
        point = *c == '.';
    }
    return stop - digits - point;
}

const char *brim__scan_real(const char *text, const char *end, double *value) {
    bool negative;
    const char *digits = take_sign(text, end, &negative);
    uint64_t w = 0;
    int64_t exponent = 0, written = 0;
    const char *stop = take_digits(digits, end, &w);
    ptrdiff_t count = stop - digits;
    if (stop < end && *stop == '.') {
        const char *fraction = stop + 1;
        const char *after = take_digits(fraction, end, &w);
        exponent = fraction - after;
        count += after - fraction;
        stop = after;
    }
    double result = 0;
    const char *after;
    if (count == 0) {
        after = take_word(digits, end, &result);
    } else {
        after = take_exponent(stop, end, &written);
        exponent += written;
        const bool whole = count <= SAFE_DIGITS || significant(digits, stop) <= SAFE_DIGITS;
        if (whole && w <= MOST_INTEGER && exponent >= -MOST_TEN && exponent <= MOST_TEN) {
            result = exponent < 0 ? (double)w / ten[-exponent] : (double)w * ten[exponent];
        } else if (whole && w == 0) {
            result = 0;
        } else if (!whole || exponent < -FAST_POWER || exponent > FAST_POWER ||
                   !by_product(w, (int)exponent, &result)) {
            result = by_library(digits, stop, written);
        }
    }
    *value = with_sign(result, negative);
    return after;
}

/*
 * test_number.c: numbers written as text, compared with the C library's.
 *
 * strtod of glibc rounds correctly, so that it is the model: every text that
 * both accept must give the same bits. The tests run under the C locale.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/number.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state * UINT64_C(0x2545f4914f6cdd1d);
}

static uint64_t bits_of(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static double from_bits(uint64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The text lies in a block of just its length, so that a sanitizer sees reads behind it. */
static bool parse_alone(const char *text, size_t length, double *value) {
    char *alone = malloc(length + (length == 0));
    assert_non_null(alone);
    memcpy(alone, text, length);
    const bool good = brim__parse_real(alone, length, value);
    free(alone);
    return good;
}

static void expect_as_library(const char *text) {
    double value = -1;
    if (!parse_alone(text, strlen(text), &value)) {
        fail_msg("\"%.100s\" was refused", text);
    }
    const double wanted = strtod(text, NULL);
    if (bits_of(value) != bits_of(wanted)) {
        fail_msg("\"%.100s\" became %a, but is %a", text, value, wanted);
    }
}

/* ------------------------------------------------------------------ reals */

static void random_bit_patterns_come_back(void **state) {
    (void)state;
    uint64_t random = 1;
    char text[64];
    for (int i = 0; i < 300000; i++) {
        const double value = from_bits(next_random(&random));
        if (value != value) {
            continue;
        }
        double read;
        snprintf(text, sizeof text, "%.17g", value);
        assert_true(brim__parse_real(text, strlen(text), &read));
        assert_int_equal(bits_of(read), bits_of(value));
        snprintf(text, sizeof text, "%.15g", value);
        assert_true(brim__parse_real(text, strlen(text), &read));
        assert_int_equal(bits_of(read), bits_of(strtod(text, NULL)));
    }
}

/* Those of tables: near 1, of all lengths, where the fast ways are taken. */
static void usual_numbers_are_as_the_library_says(void **state) {
    (void)state;
    uint64_t random = 2;
    char text[96];
    for (int i = 0; i < 600000; i++) {
        const uint64_t bits = next_random(&random), kind = next_random(&random);
        const int digits = 1 + (int)(kind >> 8) % 20;
        const double value = (double)(int64_t)bits * ((kind & 16) != 0 ? 0x1p-63 : 0x1p-40);
        switch (kind % 4) {
        case 0:
            snprintf(text, sizeof text, "%.*f", digits, value);
            break;
        case 1:
            snprintf(text, sizeof text, "%.*e", digits, value);
            break;
        case 2:
            snprintf(text, sizeof text, "%" PRIu64 "e%d", bits >> (kind >> 32) % 64,
                     (int)(kind >> 16 & 127) - 64);
            break;
        default:
            snprintf(text, sizeof text, "%" PRId64 ".%0*" PRIu64,
                     (int64_t)bits >> (kind >> 32) % 64, (int)(kind >> 16 & 15),
                     bits >> (kind >> 40) % 64);
        }
        double read = -1;
        assert_true(brim__parse_real(text, strlen(text), &read));
        if (bits_of(read) != bits_of(strtod(text, NULL))) {
            fail_msg("\"%s\" became %a, but is %a", text, read, strtod(text, NULL));
        }
    }
}

/* The middle between a double and the next is a number of at most 54 bits times a
 * power of two, which a decimal text can hold exactly: it must round to even, and
 * to either side with one digit more. */
static void middles_round_to_even(void **state) {
    (void)state;
    uint64_t random = 3;
    char text[1400];
    for (int i = 0; i < 20000; i++) {
        const int exponent = -1 - (int)(next_random(&random) % (i < 10000 ? 60 : 900));
        const uint64_t mantissa = next_random(&random) >> 11 | UINT64_C(1) << 52;
        const long double middle =
            ((long double)mantissa + 0.5L) * __builtin_ldexpl(1, exponent); /* exact: 54 bits */
        if (sizeof(long double) == 8 || __LDBL_MANT_DIG__ < 54) {
            skip();
        }
        const int length = snprintf(text, sizeof text, "%.*Lf", 960, middle);
        int end = length;
        while (text[end - 1] == '0') {
            end--;
        }
        text[end] = '\0';
        expect_as_library(text);
        double below = 0, at = 0, above = 0;
        assert_true(brim__parse_real(text, (size_t)end, &at));
        assert_int_equal(bits_of(at) & 1, 0);
        memcpy(text + end, "1", 2);
        assert_true(brim__parse_real(text, (size_t)end + 1, &above));
        text[end - 1]--; /* was not '0' */
        text[end] = '9';
        assert_true(brim__parse_real(text, (size_t)end + 1, &below));
        assert_int_equal(bits_of(above), bits_of(below) + 1);
    }
}

static void integers_beyond_53_bits_round_to_even(void **state) {
    (void)state;
    uint64_t random = 4;
    char text[64];
    for (int i = 0; i < 100000; i++) {
        const int zeros = (int)(next_random(&random) % 11);
        const uint64_t middle = ((next_random(&random) >> 11 | UINT64_C(1) << 52) * 2 + 1)
                                << (10 - zeros);
        for (int64_t off = -1; off <= 1; off++) {
            snprintf(text, sizeof text, "%" PRIu64, middle + (uint64_t)off);
            expect_as_library(text);
            snprintf(text, sizeof text, "%" PRIu64 "0e-1", middle + (uint64_t)off);
            expect_as_library(text);
            snprintf(text, sizeof text, "%" PRIu64 "e5", middle + (uint64_t)off);
            expect_as_library(text);
        }
    }
}

static void known_hard_numbers(void **state) {
    (void)state;
    static const char *const texts[] = {
        "0",
        "-0",
        "+0.0",
        "0e5",
        "0e-999999999999999999999",
        "0e999999999999999999999",
        ".5",
        "5.",
        "-.5e1",
        "00000000000000000000000000000000000001.5",
        "0.000000000000000000000000000000000000000000000000000000000000000000000000001",
        "1e23",
        "8.5e22",
        "9007199254740993",
        "9007199254740992.999999999999999999",
        "9007199254740993.0",
        "9007199254740993.00000000000000000000000000000000000000001",
        "2.2250738585072011e-308",
        "2.2250738585072012e-308",
        "2.2250738585072014e-308",
        "4.9e-324",
        "2.4703282292062327e-324",
        "2.4703282292062328e-324",
        "2.47032822920623272088284396434110686e-324",
        "1e-400",
        "-1e-99999999999999999999999999",
        "1.7976931348623157e308",
        "1.7976931348623158e308",
        "1.7976931348623159e308",
        "17976931348623158079372897140530341507993413271003782693617377898044496829276475e229",
        "1e309",
        "-1e99999999999999999999999999",
        "6.0221407600000000000000e+23",
        "18446744073709551615",
        "18446744073709551616",
        "9999999999999999999",
        "99999999999999999999e-20",
        "9214843084008499e0",
        "1090544144181609348835077142190",
        "3.518437208883201171875e13",
        "inf",
        "-INF",
        "+Infinity",
        "iNfInItY",
    };
    for (size_t i = 0; i < BRIM__COUNT(texts); i++) {
        expect_as_library(texts[i]);
    }
    double value = 0;
    assert_true(brim__parse_real("NaN", 3, &value));
    assert_true(value != value);
}

/* Exponents and digits outweigh each other, however far. */
static void long_texts(void **state) {
    (void)state;
    const size_t bytes = 1 << 20;
    char *text = malloc(bytes + 64);
    assert_non_null(text);
    double value;
    memset(text, '9', bytes);
    assert_true(brim__parse_real(text, bytes, &value));
    assert_true(value == __builtin_inf());
    snprintf(text + bytes, 64, "e-%zu", bytes);
    assert_true(brim__parse_real(text, strlen(text), &value));
    assert_true(value == 1.0);
    memset(text, '0', bytes);
    snprintf(text + bytes, 64, "25e-1");
    assert_true(brim__parse_real(text, strlen(text), &value));
    assert_true(value == 2.5);
    text[0] = '.';
    snprintf(text + bytes, 64, "25e%zu", bytes);
    assert_true(brim__parse_real(text, strlen(text), &value));
    assert_true(value == 2.5);
    /* a digit far behind the middle between 1 and the next double still decides */
    snprintf(text, 64, "1.00000000000000011102230246251565404236316680908203125");
    const size_t end = strlen(text);
    assert_true(brim__parse_real(text, end, &value));
    assert_true(value == 1.0);
    memset(text + end, '0', bytes - end);
    text[bytes - 1] = '1';
    assert_true(brim__parse_real(text, bytes, &value));
    assert_true(value == 1.0 + 0x1p-52);
    free(text);
}

static void what_is_no_real(void **state) {
    (void)state;
    static const char *const texts[] = {
        "",     " 1",     "1 ",  "+",   "-",    ".",     "-.",       "e5",
        ".e5",  "1e",     "1e+", "1e-", "1e1.", "1.2.3", "--1",      "+-1",
        "0x10", "0x1p3",  "1_0", "1,5", "nanx", "na",    "in",       "infi",
        "i",    "nan(1)", "1f",  "1d0", "\t1",  "1\n",   "\xd9\xa1", "infinit",
    };
    double value = 7;
    for (size_t i = 0; i < BRIM__COUNT(texts); i++) {
        if (parse_alone(texts[i], strlen(texts[i]), &value)) {
            fail_msg("\"%s\" was accepted", texts[i]);
        }
    }
    assert_false(brim__parse_real("1\0", 2, &value));
    char text[64];
    uint64_t random = 5;
    for (int i = 0; i < 10000; i++) {
        double half = from_bits(next_random(&random) & ~(UINT64_C(1) << 62));
        snprintf(text, sizeof text, "%a", half);
        assert_true(strncmp(text, "nan", 3) == 0 || strncmp(text, "-nan", 4) == 0 ||
                    !brim__parse_real(text, strlen(text), &value));
    }
}

static void a_scan_stops_behind_the_number(void **state) {
    (void)state;
    static const struct {
        const char *text;
        size_t used;
        double value;
    } cases[] = {
        { "1.5,2", 3, 1.5 },
        { "12e,", 2, 12 },
        { "1e+x", 1, 1 },
        { "3.;", 2, 3 },
        { "infinite", 3, __builtin_inf() },
        { "-7 ", 2, -7 },
        { "12345678,9", 8, 12345678 },
    };
    for (size_t i = 0; i < BRIM__COUNT(cases); i++) {
        double value;
        const char *text = cases[i].text;
        assert_ptr_equal(brim__scan_real(text, text + strlen(text), &value), text + cases[i].used);
        assert_true(value == cases[i].value);
    }
    double value;
    const char *word = "x";
    assert_null(brim__scan_real(word, word + 1, &value));
}

/* --------------------------------------------------------------- integers */

static void integers_are_exact_or_refused(void **state) {
    (void)state;
    uint64_t random = 6;
    char text[64];
    for (int i = 0; i < 300000; i++) {
        const uint64_t bits = next_random(&random) >> next_random(&random) % 64;
        int64_t value = 0;
        uint64_t unsigned_value = 0;
        snprintf(text, sizeof text, "%" PRId64, (int64_t)bits);
        assert_true(brim__parse_integer(text, strlen(text), &value));
        assert_int_equal(value, (int64_t)bits);
        snprintf(text, sizeof text, "%" PRIu64, bits);
        assert_true(brim__parse_unsigned(text, strlen(text), &unsigned_value));
        assert_int_equal(unsigned_value, bits);
        assert_int_equal(brim__parse_integer(text, strlen(text), &value), bits <= INT64_MAX);
    }
}

static void edges_of_integers(void **state) {
    (void)state;
    static const struct {
        const char *text;
        bool good;
        int64_t value;
    } cases[] = {
        { "9223372036854775807", true, INT64_MAX },
        { "9223372036854775808", false, 0 },
        { "-9223372036854775808", true, INT64_MIN },
        { "-9223372036854775809", false, 0 },
        { "18446744073709551616", false, 0 },
        { "18446744073709551617", false, 0 },
        { "99999999999999999999", false, 0 },
        { "100000000000000000000", false, 0 },
        { "000000000000000000000000000000000000000042", true, 42 },
        { "-0", true, 0 },
        { "+7", true, 7 },
        { "", false, 0 },
        { "-", false, 0 },
        { "+", false, 0 },
        { "1.0", false, 0 },
        { "1e3", false, 0 },
        { " 1", false, 0 },
        { "1 ", false, 0 },
        { "0x1", false, 0 },
        { "1234567a", false, 0 },
        { "1234567:", false, 0 },
        { "1234567/", false, 0 },
        { "12345678", true, 12345678 },
    };
    for (size_t i = 0; i < BRIM__COUNT(cases); i++) {
        int64_t value = 0;
        const bool good = brim__parse_integer(cases[i].text, strlen(cases[i].text), &value);
        if (good != cases[i].good || (good && value != cases[i].value)) {
            fail_msg("\"%s\": %s, %" PRId64, cases[i].text, good ? "accepted" : "refused", value);
        }
    }
    uint64_t value;
    assert_true(brim__parse_unsigned("18446744073709551615", 20, &value));
    assert_int_equal(value, UINT64_MAX);
    assert_false(brim__parse_unsigned("18446744073709551616", 20, &value));
    assert_false(brim__parse_unsigned("-1", 2, &value));
    assert_true(brim__parse_unsigned("-0", 2, &value));
    assert_int_equal(value, 0);
}

/* Eight characters that are all but digits, each byte value in each place. */
static void eight_at_a_time_only_if_all_are_digits(void **state) {
    (void)state;
    for (int place = 0; place < 8; place++) {
        for (int byte = 0; byte < 256; byte++) {
            char text[9] = "00000000";
            text[place] = (char)byte;
            int64_t value;
            const bool sign = place == 0 && (byte == '-' || byte == '+');
            assert_int_equal(brim__parse_integer(text, 8, &value),
                             sign || (byte >= '0' && byte <= '9'));
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_bit_patterns_come_back),
        cmocka_unit_test(usual_numbers_are_as_the_library_says),
        cmocka_unit_test(middles_round_to_even),
        cmocka_unit_test(integers_beyond_53_bits_round_to_even),
        cmocka_unit_test(known_hard_numbers),
        cmocka_unit_test(long_texts),
        cmocka_unit_test(what_is_no_real),
        cmocka_unit_test(a_scan_stops_behind_the_number),
        cmocka_unit_test(integers_are_exact_or_refused),
        cmocka_unit_test(edges_of_integers),
        cmocka_unit_test(eight_at_a_time_only_if_all_are_digits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * test_mixing.c: what mixup and cutmix are made of: numbers drawn from the Beta
 * distribution, and rows mixed with the row before.
 */
#include "support/support.h"

#include "batching/mixing.h"

#include <math.h>
#include <string.h>

/* ------------------------------------------------------------ lambda itself */

static void test_beta(void **state) {
    (void)state;
    /* chance of a lambda below a quarter; negative: not checked */
    static const struct {
        double alpha, below;
    } cases[] = {
        { 0.001, -1 },  { 0.2, -1 },        { 0.5, 1.0 / 3 }, { 1, 0.25 }, { 1.0001, 0.25 },
        { 2, 0.15625 }, { 3, 0.103515625 }, { 40, -1 },       { 1000, 0 },
    };
    enum { DRAWS = 100000 };
    for (size_t c = 0; c < BRIM__COUNT(cases); c++) {
        double sum = 0, squares = 0, fourth = 0;
        unsigned below = 0;
        uint32_t longest = 0;
        for (uint64_t i = 0; i < DRAWS; i++) {
            struct brim__batch_draws draws = { .key = 99, .number = i, .epoch = c };
            const double x = brim__draw_beta(&draws, cases[c].alpha);
            assert_true(x >= 0 && x <= 1);
            sum += x - 0.5;
            squares += (x - 0.5) * (x - 0.5);
            fourth += (x - 0.5) * (x - 0.5) * (x - 0.5) * (x - 0.5);
            below += x < 0.25;
            longest = draws.next > longest ? draws.next : longest;
        }
        const double variance = 1 / (4 * (2 * cases[c].alpha + 1));
        const double of_squares = fourth / DRAWS - (squares / DRAWS) * (squares / DRAWS);
        /* three standard deviations; the numbers are the same in every run */
        assert_true(fabs(sum / DRAWS) < 3 * sqrt(variance / DRAWS));
        assert_true(fabs(squares / DRAWS - variance) < 3 * sqrt(of_squares / DRAWS));
        if (cases[c].below >= 0) {
            const double chance = cases[c].below;
            assert_true(fabs((double)below / DRAWS - chance) <=
                        3 * sqrt(chance * (1 - chance) / DRAWS));
        }
        assert_true(longest < 256);
    }
}

/* Formats: every machine and release draws these. */
static void test_known_lambdas(void **state) {
    (void)state;
    static const struct {
        double alpha, lambda;
    } known[] = { { 0.2, 0x1.fffc51176fc63p-1 },
                  { 1, 0x1.cb43b68a9318bp-3 },
                  { 2, 0x1.befb6d3cae916p-1 } };
    for (size_t i = 0; i < BRIM__COUNT(known); i++) {
        struct brim__batch_draws draws = { .key = 1, .number = 2, .epoch = 3 };
        const double lambda = brim__draw_beta(&draws, known[i].alpha);
        if (lambda != known[i].lambda) {
            fail_msg("alpha %g: lambda is %a", known[i].alpha, lambda);
        }
    }
}

static void test_uniform(void **state) {
    (void)state;
    struct brim__batch_draws draws = { .key = 5 };
    double sum = 0, least = 1, most = 0;
    for (int i = 0; i < 100000; i++) {
        const double u = brim__draw_uniform(&draws);
        assert_true(u > 0 && u < 1);
        sum += u;
        least = u < least ? u : least;
        most = u > most ? u : most;
    }
    assert_int_equal(draws.next, 200000);
    assert_float_equal(sum / 100000, 0.5, 0.005);
    assert_true(least < 0.001 && most > 0.999);
}

/* -------------------------------------------------------------- the kernels */

/* All pairs of bytes, to the nearest, halves to the even. */
static void test_bytes(void **state) {
    (void)state;
    static const double lambdas[] = { 0, 1, 0.5, 0.25, 0.1, 0.9999999, 1e-30, 1.0 / 3 };
    static uint8_t rows[2][65536];
    for (size_t l = 0; l < BRIM__COUNT(lambdas); l++) {
        const float a = (float)lambdas[l], b = (float)(1 - lambdas[l]);
        for (unsigned i = 0; i < 65536; i++) {
            rows[0][i] = (uint8_t)i;
            rows[1][i] = (uint8_t)(i >> 8);
        }
        const struct brim__mixed field = { .dtype = BRIM_DTYPE_U8, .row_bytes = sizeof rows[0] };
        const struct brim__batch_call call = { .memory = rows[0], .rows = 2 };
        brim__mix_rows(&field, &call, lambdas[l]);
        for (unsigned i = 0; i < 65536; i++) {
            const float low = (float)(i & 255), high = (float)(i >> 8);
            assert_int_equal(rows[0][i], (uint8_t)nearbyintf(low * a + high * b));
            assert_int_equal(rows[1][i], (uint8_t)nearbyintf(high * a + low * b));
        }
    }
}

/* One NaN, whatever the CPU would make of two of them, or of infinity times zero. */
static void test_nans(void **state) {
    (void)state;
    static const uint32_t bits[][2] = {
        { 0x7fc00123, 0x3f800000 }, { 0x3f800000, 0xffc00001 }, { 0x7f800000, 0x3f800000 },
        { 0x7f800000, 0xff800000 }, { 0x7f812345, 0xffc00009 },
    };
    for (size_t i = 0; i < BRIM__COUNT(bits); i++) {
        uint32_t rows[2] = { bits[i][0], bits[i][1] };
        const struct brim__mixed field = { .dtype = BRIM_DTYPE_F32, .row_bytes = 4 };
        const struct brim__batch_call call = { .memory = (uint8_t *)rows, .rows = 2 };
        brim__mix_rows(&field, &call, i == 2 ? 0 : 0.5);
        assert_int_equal(rows[0], 0x7fc00000);
        assert_int_equal(rows[1], i == 2 ? 0x7f800000 : 0x7fc00000);
        double wide[2] = { (double)NAN, -1 };
        const struct brim__mixed doubles = { .dtype = BRIM_DTYPE_F64, .row_bytes = 8 };
        const struct brim__batch_call pair = { .memory = (uint8_t *)wide, .rows = 2 };
        uint64_t after;
        brim__mix_rows(&doubles, &pair, 0.5);
        memcpy(&after, &wide[1], 8);
        assert_int_equal(after, 0x7ff8000000000000u);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_beta),    cmocka_unit_test(test_known_lambdas),
        cmocka_unit_test(test_uniform), cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_nans),
    };
    return cmocka_run_group_tests(tests, begin_tests, end_tests);
}

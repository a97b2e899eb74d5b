/*
 * test_real.c: exp, log, pow, sin and cos against the C library in long double, in units
 * of the last place; values at the ends; and bits that must never change.
 */
#include "base/real.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>

#define TRIES  100000
#define DIGEST UINT64_C(0xef5570ec2b2cc245)

static uint64_t random_state = 1;

/* Uniform in [low, high). */
static double uniform(double low, double high) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return low + (high - low) * ((double)(random_state >> 11) * 0x1p-53);
}

/* How far apart, in units of the last place of the double next to `want`. */
static double units(double got, long double want) {
    int exponent;
    frexp((double)want, &exponent);
    return (double)(fabsl((long double)got - want) /
                    ldexpl(1, exponent < -1021 ? -1074 : exponent - 53));
}

static void assert_near(double got, long double want, double most, const char *what, double x) {
    if (!(units(got, want) <= most)) {
        fail_msg("%s at %.17g is %.17g, not %.17Lg: %.2f units", what, x, got, want,
                 units(got, want));
    }
}

static void test_exp(void **state) {
    (void)state;
    for (int i = 0; i < TRIES; i++) {
        const double wide = uniform(-708, 709), narrow = uniform(-1, 1);
        assert_near(brim__exp(wide), expl(wide), 1.0, "exp", wide);
        assert_near(brim__exp(narrow), expl(narrow), 1.0, "exp", narrow);
        const double tiny = uniform(-745, -708);
        assert_near(brim__exp(tiny), expl(tiny), 1.0, "exp", tiny);
    }
    assert_true(brim__exp(0) == 1);
    assert_true(brim__exp(-0.0) == 1);
    assert_true(brim__exp(1) == M_E);
    assert_true(brim__exp(709.9) == INFINITY && brim__exp(INFINITY) == INFINITY);
    assert_true(brim__exp(1e300) == INFINITY && brim__exp(-1e300) == 0);
    assert_true(brim__exp(-INFINITY) == 0 && brim__exp(-746) == 0);
    assert_true(isnan(brim__exp(NAN)));
}

static void test_log(void **state) {
    (void)state;
    for (int i = 0; i < TRIES; i++) {
        const double wide = exp(uniform(-744, 709)), narrow = uniform(0.5, 1.5);
        assert_near(brim__log(wide), logl(wide), 0.6, "log", wide);
        assert_near(brim__log(narrow), logl(narrow), 0.6, "log", narrow);
    }
    assert_true(brim__log(1) == 0);
    assert_true(brim__log(2) == M_LN2);
    assert_true(brim__log(0) == -INFINITY && brim__log(INFINITY) == INFINITY);
    assert_true(isnan(brim__log(-1)) && isnan(brim__log(NAN)));
    assert_near(brim__log(5e-324), logl(0x1p-1074L), 0.6, "log", 5e-324);
}

static void test_pow(void **state) {
    (void)state;
    for (int i = 0; i < TRIES; i++) {
        const double x = exp(uniform(-5, 5)), y = uniform(-10, 10);
        assert_near(brim__pow(x, y), powl(x, y), 1.0, "pow", x);
        const double far = uniform(-140, 140);
        assert_near(brim__pow(x, far), powl(x, far), 12.0, "pow", x);
    }
    assert_true(brim__pow(3, 0) == 1 && brim__pow(1, 1e300) == 1);
    assert_true(brim__pow(2, 10) == 1024 && brim__pow(2, -3) == 0.125);
    assert_true(brim__pow(0, 2) == 0 && brim__pow(0, -2) == INFINITY);
    assert_true(brim__pow(2, 1025) == INFINITY && brim__pow(2, -1100) == 0);
    assert_true(brim__pow(INFINITY, 2) == INFINITY && brim__pow(INFINITY, -2) == 0);
    assert_true(brim__pow(1 + 0x1p-52, 1e300) == INFINITY);
    assert_near(brim__pow(1 + 0x1p-52, 0x1p58), expl(64.0L - 0x1p-47L), 20, "pow", 1);
    assert_true(isnan(brim__pow(-1, 0.5)) && isnan(brim__pow(NAN, 1)));
}

static void test_sin_and_cos(void **state) {
    (void)state;
    for (int i = 0; i < TRIES; i++) {
        const double wide = uniform(-0x1p20, 0x1p20), narrow = uniform(-7, 7);
        assert_near(brim__sin(wide), sinl(wide), 0.7, "sin", wide);
        assert_near(brim__cos(wide), cosl(wide), 0.7, "cos", wide);
        assert_near(brim__sin(narrow), sinl(narrow), 0.7, "sin", narrow);
        assert_near(brim__cos(narrow), cosl(narrow), 0.7, "cos", narrow);
    }
    /* where the results are next to nothing, all digits come from the reduction */
    for (int i = 1; i < 600000; i += 7) {
        const double x = i * M_PI_2;
        assert_near(brim__sin(x), sinl(x), 1.1, "sin", x);
        assert_near(brim__cos(x), cosl(x), 1.1, "cos", x);
    }
    assert_true(brim__sin(0) == 0 && brim__cos(0) == 1);
    assert_true(brim__sin(M_PI_2) == 1 && brim__cos(BRIM__PI) == -1);
    assert_true(isnan(brim__sin(INFINITY)) && isnan(brim__cos(NAN)));
}

static void test_sqrt(void **state) {
    (void)state;
    for (int i = 0; i < TRIES; i++) {
        const double x = exp(uniform(-700, 700));
        assert_true(brim__sqrt(x) == sqrt(x));
    }
    assert_true(brim__sqrt(0) == 0 && brim__sqrt(INFINITY) == INFINITY);
    assert_true(isnan(brim__sqrt(-1)));
}

/* Samples depend on these: other bits would be other samples. */
static void test_bits_stay(void **state) {
    (void)state;
    uint64_t digest = 0;
    random_state = 7;
    for (int i = 0; i < 1000; i++) {
        const double x = uniform(0, 10), y = uniform(-5, 5);
        const double all[] = { brim__exp(y), brim__log(x), brim__pow(x, y),
                               brim__sin(y), brim__cos(y), brim__sqrt(x) };
        digest = brim__hash(all, sizeof all, digest);
    }
    if (digest != DIGEST) {
        fail_msg("the digest is 0x%016llx", (unsigned long long)digest);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exp),  cmocka_unit_test(test_log),
        cmocka_unit_test(test_pow),  cmocka_unit_test(test_sin_and_cos),
        cmocka_unit_test(test_sqrt), cmocka_unit_test(test_bits_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

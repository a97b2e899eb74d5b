/*
 * real.c: exp, log, pow, sin and cos from additions, multiplications and divisions.
 *
 * IEEE 754 fixes the result of each of those, so that fixed code gives fixed bits.
 * Every function reduces its argument to a small interval and sums a Taylor series
 * there, highest power first. What the reduction loses below the last place is kept in a
 * second double, the `low` part of a pair; a pair's value is high + low.
 *
 *     exp x = 2^k exp r           r = x - k ln 2,     |r| <= ln(2) / 2
 *     log x = k ln 2 + log m      m in [sqrt(1/2), sqrt(2)),  log m = 2 atanh((m-1)/(m+1))
 *     sin x = +-sin r or +-cos r  r = x - n pi/2,     |r| <= pi/4
 *
 * Errors stay below 1.1 units of the last place; pow's too while |y log x| < 50, beyond
 * which it loses up to 10 units towards the ends of the doubles.
 */
#include "base/real.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#else
#include <arm_neon.h>
#endif

struct pair {
    double high, low;
};

/* Constants in pieces whose trailing bits are zero: their products with k and n are exact. */
#define LN2_HIGH  0x1.62e42fee00000p-1
#define LN2_LOW   0x1.a39ef35793c76p-33
#define LN2_TIMES 0x1.71547652b82fep+0 /* 1 / ln 2 */
#define HALF_PI_1 0x1.921fb54400000p+0
#define HALF_PI_2 0x1.0b4611a600000p-34
#define HALF_PI_3 0x1.3198a2e037073p-69
#define HALF_PIS  0x1.45f306dc9c883p-1 /* 2 / pi */

/* Exact: a + b, whatever their sizes. */
static struct pair sum(double a, double b) {
    const double high = a + b;
    const double b_part = high - a;
    return (struct pair){ high, (a - (high - b_part)) + (b - b_part) };
}

/* A double of 26 bits, so that products of two of them are exact. |x| < 2^970. */
static double upper_half(double x) {
    const double scaled = x * 0x1p27;
    return (x + scaled) - scaled;
}

/* Exact: a * b, where neither overflows nor vanishes. */
static struct pair product(double a, double b) {
    const double high = a * b;
    const double a1 = upper_half(a), b1 = upper_half(b);
    const double a2 = a - a1, b2 = b - b1;
    return (struct pair){ high, ((a1 * b1 - high) + a1 * b2 + a2 * b1) + a2 * b2 };
}

static double from_bits(uint64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* 2^k for a normal result. */
static double power_of_two(int k) {
    return from_bits((uint64_t)(k + 1023) << 52);
}

static int nearest(double x) {
    return (int)(x < 0 ? x - 0.5 : x + 0.5);
}

/* |low| is far below high. */
static double exp_pair(double high, double low) {
    if (high > 710.0) {
        return __builtin_inf();
    }
    if (high < -746.0) {
        return 0.0;
    }
    const int k = nearest(high * LN2_TIMES);
    const struct pair rest = sum(high - k * LN2_HIGH, -(k * LN2_LOW));
    const double r = rest.high;
    double series = 0.0;
    for (int i = 13; i >= 3; i--) {
        series = (series + 1.0) * r / i;
    }
    /* exp r - 1 - r is half of r (r + r series) */
    const double tail = r * (r + r * series) * 0.5;
    const double y = 1.0 + (r + (tail + (rest.low + low) * (1.0 + (r + tail))));
    /* in two steps, because 2^k alone may be too large or too small for a double */
    return y * power_of_two(k / 2) * power_of_two(k - k / 2);
}

double brim__exp(double x) {
    return x != x ? x : exp_pair(x, 0.0);
}

/* x positive and finite. */
static struct pair log_pair(double x) {
    int k = 0;
    if (x < 0x1p-1022) {
        x *= 0x1p54;
        k = -54;
    }
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    k += (int)(bits >> 52) - 1023;
    double m = from_bits((bits & 0xfffffffffffffu) | (UINT64_C(1023) << 52));
    if (m >= 0x1.6a09e667f3bcdp+0) { /* sqrt 2 */
        m *= 0.5;
        k++;
    }
    /* s = (m - 1) / (m + 1), with what the division leaves over */
    const double above = m - 1.0;
    const struct pair below = sum(m, 1.0);
    const double s = above / below.high;
    const struct pair back = product(s, below.high);
    const double s_low = ((above - back.high) - back.low - s * below.low) / below.high;
    const double square = s * s;
    double series = 0.0;
    for (int i = 25; i >= 3; i -= 2) {
        series = series * square + 1.0 / i;
    }
    const double tail = 2.0 * (s_low + s * square * series);
    const struct pair large = sum(k * LN2_HIGH, 2.0 * s);
    const struct pair result = sum(large.high, k * LN2_LOW);
    const double low = result.low + large.low + tail;
    return sum(result.high, low);
}

double brim__log(double x) {
    if (!(x > 0.0)) {
        return x == 0.0 ? -__builtin_inf() : __builtin_nan("");
    }
    return x > 0x1.fffffffffffffp+1023 ? x : log_pair(x).high;
}

double brim__pow(double x, double y) {
    if (y == 0.0 || x == 1.0) {
        return 1.0;
    }
    if (x != x || y != y || x < 0.0) {
        return __builtin_nan("");
    }
    if (x == 0.0 || x > 0x1.fffffffffffffp+1023) {
        return (x == 0.0) == (y > 0.0) ? 0.0 : __builtin_inf();
    }
    const struct pair log_x = log_pair(x);
    const double rough = y * log_x.high;
    if (!(rough < 800.0 && rough > -800.0)) { /* before y is split: it may be enormous */
        return rough > 0.0 ? __builtin_inf() : 0.0;
    }
    const double scale = y > 0x1p900 || y < -0x1p900 ? 0x1p-100 : 1.0;
    const struct pair exponent = product(y * scale, log_x.high / scale);
    return exp_pair(exponent.high, exponent.low + y * log_x.low);
}

/* sin of x + turns * pi/2; |x| is small enough that n and the products are exact. */
static double sine(double x, int turns) {
    if (!(x < 0x1p20 && x > -0x1p20)) {
        return __builtin_nan("");
    }
    const int n = nearest(x * HALF_PIS);
    const struct pair first = sum(x - n * HALF_PI_1, -(n * HALF_PI_2));
    const struct pair second = sum(first.high, -(n * HALF_PI_3));
    const struct pair rest = sum(second.high, first.low + second.low);
    const double r = rest.high;
    const struct pair square = product(r, r);
    const unsigned quadrant = (unsigned)(n + turns) & 3;
    double y, series = 0.0;
    if (quadrant & 1) {
        for (int i = 18; i >= 4; i -= 2) {
            series = square.high * (1.0 - series) / (i * (i - 1));
        }
        /* cos r = 1 - r^2 / 2 (1 - series), and its derivative is about -r */
        const double half = square.high * 0.5;
        const double near = 1.0 - half;
        const double low = square.low * 0.5 + r * rest.low - half * series;
        y = near + (((1.0 - near) - half) - low);
    } else {
        for (int i = 19; i >= 5; i -= 2) {
            series = square.high * (1.0 - series) / (i * (i - 1));
        }
        /* sin r = r - r^3 / 6 (1 - series), and its derivative is about 1 - r^2 / 2 */
        const struct pair cube = product(square.high, r);
        const double sixth = cube.high / 6.0;
        const struct pair back = product(sixth, 6.0);
        const double sixth_low =
            ((cube.high - back.high) - back.low + cube.low + square.low * r) / 6.0;
        const double near = r - sixth;
        const double low = sixth * series - sixth_low + rest.low * (1.0 - square.high * 0.5);
        y = near + (((r - near) - sixth) + low);
    }
    return quadrant & 2 ? -y : y;
}

double brim__sin(double x) {
    return sine(x, 0);
}

double brim__cos(double x) {
    return sine(x, 1);
}

double brim__sqrt(double x) {
    /* the instruction itself: sqrt() of the C library would be called for negative x */
#if defined(__x86_64__)
    const __m128d value = _mm_set_sd(x);
    return _mm_cvtsd_f64(_mm_sqrt_sd(value, value));
#else
    return vget_lane_f64(vsqrt_f64(vdup_n_f64(x)), 0);
#endif
}

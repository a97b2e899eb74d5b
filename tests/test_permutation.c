/*
 * test_permutation.c: the permutation is a bijection at every count, its
 * inverse undoes it, and statistics cannot tell it from chance.
 *
 * Statistics are sums of squares or of products, scaled so that chance gives
 * |z| of about 1; all keys are fixed, so a test either always passes or never.
 * A weak network gives |z| of 10 and more here.
 *
 * BRIM_TEST_LONG in the environment raises the exhaustive counts to 2^24.
 *
 * label: quick, long
 */
#include "order/permutation.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define TOO_FAR 4.5

static uint8_t *seen_bits;

/* Every value below count exactly once; the run, the single call and the
 * inverse agree. */
static void check_bijection(uint64_t count, uint64_t key) {
    struct brim__permutation permutation;
    brim__permutation_init(&permutation, count, key);
    memset(seen_bits, 0, count / 8 + 1);
    uint64_t values[256];
    for (uint64_t first = 0; first < count; first += BRIM__COUNT(values)) {
        const size_t run = brim__min(count - first, BRIM__COUNT(values));
        for (size_t i = 0; i < run; i++) {
            values[i] = first + i;
        }
        brim__permute_run(&permutation, values, run);
        for (size_t i = 0; i < run; i++) {
            const uint64_t value = values[i];
            if (value >= count || (seen_bits[value / 8] >> (value % 8) & 1) != 0) {
                fail_msg("count %llu key %llu: position %llu gives %llu %s",
                         (unsigned long long)count, (unsigned long long)key,
                         (unsigned long long)(first + i), (unsigned long long)value,
                         value >= count ? "outside" : "twice");
            }
            seen_bits[value / 8] |= (uint8_t)(1u << (value % 8));
        }
        const size_t one = (size_t)(first / BRIM__COUNT(values) % run);
        assert_int_equal(brim__permute(&permutation, first + one), values[one]);
        assert_int_equal(brim__unpermute(&permutation, values[one]), first + one);
    }
}

static void test_every_small_count(void **state) {
    (void)state;
    for (uint64_t count = 1; count <= 700; count++) {
        check_bijection(count, count * 3);
    }
    for (uint64_t key = 0; key < 200; key++) {
        check_bijection(BRIM__PERMUTATION_TINY, key);
        check_bijection(BRIM__PERMUTATION_TINY + 1, key);
        check_bijection(257, key);
    }
}

static void test_counts_around_powers_of_two(void **state) {
    (void)state;
    const int most = getenv("BRIM_TEST_LONG") != NULL ? 24 : 20;
    for (int k = 1; k <= most; k++) {
        const uint64_t power = (uint64_t)1 << k;
        check_bijection(power - 1, (uint64_t)k);
        check_bijection(power, (uint64_t)k + 100);
        check_bijection(power + 1, (uint64_t)k + 200);
    }
}

static void test_counts_where_others_failed(void **state) {
    (void)state;
    for (uint64_t key = 0; key < 3; key++) {
        for (uint64_t off = 0; off <= 4; off++) {
            check_bijection(((uint64_t)1 << 16) - 2 + off, key);
            if (key == 0) {
                check_bijection(((uint64_t)1 << 18) - 2 + off, key);
            }
        }
    }
}

static void test_inverse_of_large_counts(void **state) {
    (void)state;
    uint64_t random = 7;
    for (int bits = 21; bits <= 63; bits++) {
        for (int off = -1; off <= 1; off++) {
            if (bits == 63 && off == 1) {
                continue;
            }
            const uint64_t count = ((uint64_t)1 << bits) + (uint64_t)(int64_t)off;
            struct brim__permutation permutation;
            brim__permutation_init(&permutation, count, random);
            uint64_t upper = 0;
            for (int i = 0; i < 300; i++) {
                random = random * 6364136223846793005u + 1442695040888963407u;
                const uint64_t position = i < 4   ? (uint64_t)i
                                          : i < 8 ? count - 1 - (uint64_t)(i - 4)
                                                  : (random >> 1) % count;
                uint64_t run[1] = { position };
                const uint64_t value = brim__permute(&permutation, position);
                brim__permute_run(&permutation, run, 1);
                assert_true(value < count);
                assert_int_equal(run[0], value);
                assert_int_equal(brim__unpermute(&permutation, value), position);
                assert_int_equal(
                    brim__permute(&permutation, brim__unpermute(&permutation, position)), position);
                upper += value >= count / 2;
            }
            assert_true(upper > 90 && upper < 210); /* reaches all of the range */
        }
    }
}

static uint32_t permutation_number(const struct brim__permutation *permutation) {
    uint32_t number = 0;
    for (uint64_t i = 0; i < permutation->count; i++) {
        uint32_t smaller = 0;
        const uint64_t value = brim__permute(permutation, i);
        for (uint64_t k = i + 1; k < permutation->count; k++) {
            smaller += brim__permute(permutation, k) < value;
        }
        number = number * (uint32_t)(permutation->count - i) + smaller;
    }
    return number;
}

static double chi_square_z(const uint32_t *seen, size_t cells, double expected, double freedom,
                           double scale) {
    double chi_square = 0;
    for (size_t i = 0; i < cells; i++) {
        const double off = (double)seen[i] - expected;
        chi_square += off * off / expected;
    }
    return (chi_square * scale - freedom) / sqrt(2 * freedom);
}

static void test_all_permutations_of_few(void **state) {
    (void)state;
    uint32_t factorial = 1;
    for (uint32_t count = 2; count <= 6; count++) {
        factorial *= count;
        uint32_t seen[720] = { 0 };
        const uint32_t each = 200;
        for (uint32_t key = 0; key < factorial * each; key++) {
            struct brim__permutation permutation;
            brim__permutation_init(&permutation, count, key);
            seen[permutation_number(&permutation)]++;
        }
        const double z = chi_square_z(seen, factorial, each, factorial - 1, 1);
        if (fabs(z) > TOO_FAR) {
            fail_msg("%u values: z = %.1f over all permutations", count, z);
        }
    }
}

/* Each position meets each value equally often. */
static void check_pairs(uint64_t count) {
    enum { EACH = 24 };
    static uint32_t seen[160 * 160];
    memset(seen, 0, sizeof seen);
    for (uint64_t key = 0; key < count * EACH; key++) {
        struct brim__permutation permutation;
        brim__permutation_init(&permutation, count, key);
        uint64_t values[160];
        for (uint64_t i = 0; i < count; i++) {
            values[i] = i;
        }
        brim__permute_run(&permutation, values, count);
        for (uint64_t i = 0; i < count; i++) {
            seen[i * count + values[i]]++;
        }
    }
    const double freedom = (double)((count - 1) * (count - 1));
    const double scale = (double)(count - 1) / (double)count;
    const double z = chi_square_z(seen, count * count, EACH, freedom, scale);
    if (fabs(z) > TOO_FAR) {
        fail_msg("count %llu: z = %.1f over (position, value)", (unsigned long long)count, z);
    }
}

static void test_positions_meet_values_equally(void **state) {
    (void)state;
    for (uint64_t count = 17; count <= 64; count++) {
        check_pairs(count);
    }
    static const uint64_t feistel[] = { 65, 66, 71, 81, 96, 100, 127, 128, 129, 150 };
    for (size_t i = 0; i < BRIM__COUNT(feistel); i++) {
        check_pairs(feistel[i]);
    }
}

/* Differences between the values of neighbours, in 64 classes: a network with
 * too few rounds sends neighbours to related places. */
static void test_differences_of_neighbours(void **state) {
    (void)state;
    static const uint64_t counts[] = { 256, 1024, 4096, 65536, (uint64_t)1 << 40 };
    for (size_t c = 0; c < BRIM__COUNT(counts); c++) {
        uint32_t seen[64] = { 0 }, seen_xor[64] = { 0 };
        const uint64_t pairs = brim__min(counts[c] / 2, 4096);
        const uint64_t keys = 400000 / pairs;
        for (uint64_t key = 0; key < keys; key++) {
            struct brim__permutation permutation;
            brim__permutation_init(&permutation, counts[c], key);
            for (uint64_t i = 0; i < pairs; i++) {
                const uint64_t a = brim__permute(&permutation, 2 * i);
                const uint64_t b = brim__permute(&permutation, 2 * i + 1);
                seen[(b - a) % 64]++;
                seen_xor[(a ^ b) * 64 / counts[c]]++;
            }
        }
        /* a difference of 0 is impossible: its class is left out */
        const double expected = (double)(pairs * keys) / 64 * (double)counts[c];
        const double fair = expected / ((double)counts[c] - 1);
        const double z = chi_square_z(seen + 1, 63, fair, 62, 1);
        const double z_xor = chi_square_z(seen_xor + 1, 63, fair, 62, 1);
        if (fabs(z) > TOO_FAR || fabs(z_xor) > TOO_FAR) {
            fail_msg("count %llu: z = %.1f and %.1f over differences",
                     (unsigned long long)counts[c], z, z_xor);
        }
    }
}

static double correlation_z(const double *a, const double *b, size_t count) {
    double sum_a = 0, sum_b = 0, squares_a = 0, squares_b = 0, products = 0;
    for (size_t i = 0; i < count; i++) {
        sum_a += a[i];
        sum_b += b[i];
    }
    for (size_t i = 0; i < count; i++) {
        const double off_a = a[i] - sum_a / (double)count, off_b = b[i] - sum_b / (double)count;
        squares_a += off_a * off_a;
        squares_b += off_b * off_b;
        products += off_a * off_b;
    }
    return products / sqrt(squares_a * squares_b) * sqrt((double)count);
}

/* Of many z the largest must be small and their squares 1 on average. */
struct z_collection {
    double squares, largest;
    int count;
};
static void collect(struct z_collection *collection, double z) {
    collection->squares += z * z;
    collection->largest = fmax(collection->largest, fabs(z));
    collection->count++;
}
static void check_collection(const struct z_collection *collection, const char *what) {
    const double spread = (collection->squares - collection->count) / sqrt(2.0 * collection->count);
    if (collection->largest > TOO_FAR || fabs(spread) > TOO_FAR) {
        fail_msg("%s: largest |z| %.1f, spread %.1f", what, collection->largest, spread);
    }
}

static void test_no_correlation(void **state) {
    (void)state;
    static const uint64_t counts[] = { 1000, 1009, 4096, 5000, 16385 };
    static double values[16386], next[16386], place[16386];
    struct z_collection serial = { 0 }, own = { 0 }, epochs = { 0 };
    for (size_t c = 0; c < BRIM__COUNT(counts); c++) {
        const uint64_t count = counts[c];
        for (uint64_t key = 0; key < 30; key++) {
            struct brim__permutation a, b;
            brim__permutation_init(&a, count, key);
            brim__permutation_init(&b, count, key + 1); /* keys of an epoch are hashes: harder */
            for (uint64_t i = 0; i < count; i++) {
                values[i] = (double)brim__permute(&a, i);
                next[i] = (double)brim__permute(&b, i);
                place[i] = (double)i;
            }
            for (size_t lag = 1; lag <= 4; lag++) {
                collect(&serial, correlation_z(values, values + lag, count - lag));
            }
            collect(&own, correlation_z(values, place, count));
            collect(&epochs, correlation_z(values, next, count));
        }
    }
    check_collection(&serial, "neighbours");
    check_collection(&own, "position and value");
    check_collection(&epochs, "consecutive keys");
}

/* Values that stay, and neighbours that stay neighbours: one each on average. */
static void test_fixed_points_and_successions(void **state) {
    (void)state;
    static const uint64_t counts[] = { 40, 65, 100, 300, 1000 };
    for (size_t c = 0; c < BRIM__COUNT(counts); c++) {
        const uint64_t keys = 400000 / counts[c];
        uint64_t fixed = 0, successions = 0, same_as_next_key = 0;
        for (uint64_t key = 0; key < keys; key++) {
            struct brim__permutation permutation, other;
            brim__permutation_init(&permutation, counts[c], key);
            brim__permutation_init(&other, counts[c], key + 1);
            for (uint64_t i = 0; i < counts[c]; i++) {
                const uint64_t value = brim__permute(&permutation, i);
                fixed += value == i;
                same_as_next_key += value == brim__permute(&other, i);
                successions += i + 1 < counts[c] && brim__permute(&permutation, i + 1) == value + 1;
            }
        }
        const double off = 5 * sqrt((double)keys);
        assert_true(fabs((double)fixed - (double)keys) < off);
        assert_true(fabs((double)same_as_next_key - (double)keys) < off);
        assert_true(fabs((double)successions - (double)keys * (1 - 1 / (double)counts[c])) < off);
    }
}

/* One bit of the key changes about half of the bits of a value. */
static void test_every_key_bit_matters(void **state) {
    (void)state;
    const uint64_t count = (uint64_t)1 << 40;
    for (int bit = 0; bit < 64; bit++) {
        int changed = 0;
        for (uint64_t i = 0; i < 50; i++) {
            struct brim__permutation a, b;
            brim__permutation_init(&a, count, i);
            brim__permutation_init(&b, count, i ^ (uint64_t)1 << bit);
            changed += __builtin_popcountll(brim__permute(&a, i) ^ brim__permute(&b, i));
        }
        assert_true(changed > 850 && changed < 1150); /* of 2000 */
    }
}

/* Orders are a format: a run that is resumed by a later version meets them. */
static void test_order_is_stable(void **state) {
    (void)state;
    static const struct {
        uint64_t count, key, value[4];
    } known[] = {
        { 5u, 0u, { 3u, 0u, 1u, 2u } },
        { 64u, 11u, { 18u, 14u, 15u, 17u } },
        { 65u, 22u, { 6u, 33u, 3u, 20u } },
        { 1000u, 33u, { 478u, 948u, 477u, 492u } },
        { 1281167u, 44u, { 813384u, 233953u, 361458u, 421362u } },
        { 1000003007000021u,
          55u,
          { 753433545571056u, 685248035288349u, 365934164376016u, 720904811461884u } },
        { 9223372036854775808u,
          18446744073709551615u,
          { 4698638763070839623u, 8601664752030425418u, 6839539991156170060u,
            6431091181827168849u } },
    };
    for (size_t i = 0; i < BRIM__COUNT(known); i++) {
        struct brim__permutation permutation;
        brim__permutation_init(&permutation, known[i].count, known[i].key);
        for (uint64_t p = 0; p < 4; p++) {
            assert_int_equal(brim__permute(&permutation, p), known[i].value[p]);
        }
    }
}

int main(void) {
    seen_bits = calloc(1, ((size_t)1 << 24) / 8 + 2);
    if (seen_bits == NULL) {
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_small_count),
        cmocka_unit_test(test_counts_around_powers_of_two),
        cmocka_unit_test(test_counts_where_others_failed),
        cmocka_unit_test(test_inverse_of_large_counts),
        cmocka_unit_test(test_all_permutations_of_few),
        cmocka_unit_test(test_positions_meet_values_equally),
        cmocka_unit_test(test_differences_of_neighbours),
        cmocka_unit_test(test_no_correlation),
        cmocka_unit_test(test_fixed_points_and_successions),
        cmocka_unit_test(test_every_key_bit_matters),
        cmocka_unit_test(test_order_is_stable),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(seen_bits);
    return failed;
}

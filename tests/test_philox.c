/*
 * test_philox.c: published answers, a plain second implementation, and how the
 * draws of a sample are laid out.
 */
#include "order/philox.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* Word by word, with the products cut by hand. */
static void plain_philox(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4]) {
    uint32_t c[4], k[2] = { key[0], key[1] };
    memcpy(c, counter, sizeof c);
    for (int round = 0; round < 10; round++) {
        if (round > 0) {
            k[0] = (uint32_t)(k[0] + 2654435769u);
            k[1] = (uint32_t)(k[1] + 3144134277u);
        }
        const uint64_t a = 3528531795u * (uint64_t)c[0];
        const uint64_t b = 3449720151u * (uint64_t)c[2];
        const uint32_t next[4] = {
            (uint32_t)(b / 4294967296u) ^ c[1] ^ k[0],
            (uint32_t)(b % 4294967296u),
            (uint32_t)(a / 4294967296u) ^ c[3] ^ k[1],
            (uint32_t)(a % 4294967296u),
        };
        memcpy(c, next, sizeof c);
    }
    memcpy(out, c, sizeof c);
}

static void test_published_answers(void **state) {
    (void)state;
    static const struct {
        uint64_t key;
        uint32_t counter[4], answer[4];
    } known[] = {
        { 0, { 0, 0, 0, 0 }, { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
        { UINT64_MAX,
          { UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX },
          { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
        { 0x299f31d0a4093822u,
          { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 },
          { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
    };
    for (size_t i = 0; i < BRIM__COUNT(known); i++) {
        const struct brim__philox_block block = brim__philox(known[i].key, known[i].counter);
        assert_memory_equal(block.word, known[i].answer, sizeof known[i].answer);
    }
}

static void test_equals_plain_implementation(void **state) {
    (void)state;
    uint32_t random = 1;
    for (int i = 0; i < 20000; i++) {
        uint32_t words[6];
        for (int k = 0; k < 6; k++) {
            random = random * 1664525u + 1013904223u;
            words[k] = i % 7 == k ? UINT32_MAX : random;
        }
        uint32_t answer[4];
        plain_philox(words, words + 2, answer);
        const uint64_t key = (uint64_t)words[1] << 32 | words[0];
        const struct brim__philox_block block = brim__philox(key, words + 2);
        assert_memory_equal(block.word, answer, sizeof answer);
    }
}

static void test_draws_follow_the_counter(void **state) {
    (void)state;
    const uint64_t key = 0x0123456789abcdefu, sample = 0xfedcba9876543210u, epoch = 9;
    for (uint32_t draw = 0; draw < 64; draw++) {
        const uint32_t words[6] = { (uint32_t)key,    (uint32_t)(key >> 32),
                                    (uint32_t)sample, (uint32_t)(sample >> 32),
                                    (uint32_t)epoch,  draw / 4 };
        uint32_t answer[4];
        plain_philox(words, words + 2, answer);
        assert_int_equal(brim__random(key, sample, epoch, draw), answer[draw % 4]);
    }
    /* no wrap at 2^32 samples */
    assert_int_not_equal(brim__random(key, 5, 0, 0),
                         brim__random(key, 5 + ((uint64_t)1 << 32), 0, 0));
}

static void test_below_is_uniform(void **state) {
    (void)state;
    static const uint64_t bounds[] = { 1, 2, 3, 7, 10, 100 };
    for (size_t b = 0; b < BRIM__COUNT(bounds); b++) {
        uint64_t seen[100] = { 0 };
        const uint64_t draws = 1000 * bounds[b];
        for (uint64_t i = 0; i < draws; i++) {
            const uint64_t value = brim__random_below(42, i / 8, 3, (uint32_t)(i % 8), bounds[b]);
            assert_true(value < bounds[b]);
            seen[value]++;
        }
        double chi_square = 0;
        for (uint64_t v = 0; v < bounds[b]; v++) {
            const double off = (double)seen[v] - 1000;
            chi_square += off * off / 1000;
        }
        const double freedom = (double)bounds[b] - 1;
        assert_true(chi_square < freedom + 25 + 5 * freedom);
        /* a generator that is too even is wrong as well */
        if (bounds[b] == 100) {
            assert_true(chi_square > 40 && chi_square < 180);
        }
    }
}

static void test_below_large_bounds(void **state) {
    (void)state;
    const uint64_t bound = ((uint64_t)1 << 63) + 1;
    uint64_t upper = 0;
    for (uint32_t draw = 0; draw < 1000; draw++) {
        const uint64_t value = brim__random_below(1, 2, 3, draw, bound);
        assert_true(value < bound);
        upper += value >= bound / 2;
    }
    assert_true(upper > 400 && upper < 600);
}

static void test_below_shares_no_number_with_random(void **state) {
    (void)state;
    for (uint32_t draw = 0; draw < 32; draw++) {
        const uint64_t below = brim__random_below(11, 12, 13, draw, UINT64_MAX);
        for (uint32_t other = 0; other < 256; other++) {
            const uint32_t word = brim__random(11, 12, 13, other);
            assert_int_not_equal((uint32_t)(below >> 32), word);
            assert_int_not_equal((uint32_t)below, word);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published_answers),
        cmocka_unit_test(test_equals_plain_implementation),
        cmocka_unit_test(test_draws_follow_the_counter),
        cmocka_unit_test(test_below_is_uniform),
        cmocka_unit_test(test_below_large_bounds),
        cmocka_unit_test(test_below_shares_no_number_with_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

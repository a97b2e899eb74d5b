/*
 * test_order_mix.c: several orders as one: mix and concat.
 */
#include "order_model.h"

/* --------------------------------------------------------------------- mix */

/* Every block of every table holds the parts by their counts. */
static void check_pattern(const struct brim__mix *mix) {
    uint32_t rank[BRIM__ORDER_PARTS] = { 0 };
    assert_int_equal(mix->table % mix->block, 0);
    assert_true(mix->table + mix->block > BRIM__ORDER_PATTERN);
    for (uint32_t begin = 0; begin < mix->table; begin += mix->block) {
        uint32_t seen[BRIM__ORDER_PARTS] = { 0 };
        for (uint32_t t = begin; t < begin + mix->block; t++) {
            assert_int_equal(mix->entry[t].rank, rank[mix->entry[t].part]++);
            seen[mix->entry[t].part]++;
        }
        assert_memory_equal(seen, mix->in_block, sizeof seen);
    }
}

static void test_mix_blocks(void **state) {
    (void)state;
    static const struct {
        size_t parts;
        double weights[4];
        uint32_t block, counts[4];
    } known[] = {
        { 1, { 5 }, 1, { 1 } },
        { 2, { 0.7, 0.3 }, 10, { 7, 3 } },
        { 2, { 1e308, 1e308 }, 2, { 1, 1 } },
        { 3, { 1, 1, 1 }, 3, { 1, 1, 1 } },
        { 3, { 0.1, 0.2, 0.7 }, 10, { 1, 2, 7 } },
        { 2, { 0.3333333333, 0.6666666667 }, 3, { 1, 2 } },
        { 2, { 999, 1 }, 1000, { 999, 1 } },
        { 2, { 3.14159265, 1 }, 1000, { 759, 241 } },
        { 3, { 1, 1e-300, 1e-300 }, 1000, { 998, 1, 1 } },
        { 4, { 2, 3, 4, 5 }, 14, { 2, 3, 4, 5 } },
    };
    const uint64_t counts[4] = { 5000, 5000, 5000, 5000 };
    for (size_t i = 0; i < BRIM__COUNT(known); i++) {
        struct brim__order order;
        assert_int_equal(mix_of(&order, known[i].weights, counts, known[i].parts, 0), BRIM_OK);
        assert_int_equal(mixes[0].block, known[i].block);
        assert_memory_equal(mixes[0].in_block, known[i].counts, known[i].parts * 4);
        check_pattern(&mixes[0]);
    }
}

static void test_mix_pattern_is_random(void **state) {
    (void)state;
    struct brim__order order;
    const uint64_t counts[2] = { 5000, 5000 };
    const double weights[2] = { 1, 1 };
    assert_int_equal(mix_of(&order, weights, counts, 2, 0), BRIM_OK);
    int first = 0;
    for (uint32_t t = 0; t < mixes[0].table; t += 2) {
        first += mixes[0].entry[t].part == 0;
    }
    assert_true(first > 200 && first < 312); /* of 512 pairs */
}

static void test_mix_ends_at_the_first_exhausted_part(void **state) {
    (void)state;
    for (uint64_t i = 0; i < 400; i++) {
        struct brim__order order;
        uint64_t counts[4];
        double weights[4];
        pick_state = i;
        const size_t parts = 1 + pick(4);
        for (size_t k = 0; k < parts; k++) {
            counts[k] = 1 + pick(i % 4 < 2 ? 6 : 4000);
            weights[k] = i % 2 == 0 ? (double)(1 + pick(9)) : 0.001 + (double)pick(1000000) / 7;
        }
        assert_int_equal(mix_of(&order, weights, counts, parts, 0), BRIM_OK);
        uint64_t used[4] = { 0 }, length = 0;
        for (;; length++) {
            const uint32_t part = mixes[0].entry[length % mixes[0].table].part;
            if (used[part] == counts[part]) {
                break;
            }
            used[part]++;
        }
        assert_int_equal(brim__order_count(&order), length);
        for (uint32_t k = 0; k < parts; k++) {
            assert_int_equal(mixes[0].in_epoch[k], used[k]);
        }
    }
}

/* Epochs of the mix are too short or too long for a part: its own epochs go on,
 * each a full permutation. */
static void test_mix_parts_have_their_own_epochs(void **state) {
    (void)state;
    struct brim__order order;
    const uint64_t counts[3] = { 1000, 7, 90 };
    const double weights[3] = { 5, 3, 2 };
    assert_int_equal(mix_of(&order, weights, counts, 3, 123), BRIM_OK);
    uint64_t used[3] = { 0 };
    uint8_t seen[3][1000] = { { 0 } };
    for (uint64_t epoch = 0; epoch < 60; epoch++) {
        struct brim__location places[123];
        brim__order_locate(&order, epoch, 0, 123, places);
        for (int i = 0; i < 123; i++) {
            const uint32_t part = places[i].leaf;
            assert_int_equal(places[i].epoch, used[part] / counts[part]);
            if (used[part] % counts[part] == 0) {
                memset(seen[part], 0, sizeof seen[part]);
            }
            assert_int_equal(seen[part][places[i].sample]++, 0);
            used[part]++;
        }
    }
    assert_true(used[0] > 3 * counts[0] && used[1] > 100 * counts[1]);
    assert_true(used[0] > 60 * 123 / 2 - 400 && used[0] < 60 * 123 / 2 + 400);
}

static void test_mix_in_late_epochs_is_exact(void **state) {
    (void)state;
    struct brim__order order;
    uint32_t tops[2];
    const double weights[2] = { 2, 1 };
    const uint64_t counts[2] = { ((uint64_t)1 << 62) + 1, 1000003 };
    brim__order_init(&order);
    for (uint32_t k = 0; k < 2; k++) {
        brim__order_leaf(&order, k, counts[k]);
        tops[k] = order.top;
    }
    const uint64_t length = ((uint64_t)1 << 61) + 12345;
    assert_int_equal(brim__order_mix(&order, &mixes[0], 1, tops, weights, 2, length), BRIM_OK);
    static const uint64_t epochs[] = { 0, 1, 7, (uint64_t)1 << 40, UINT64_MAX };
    for (size_t e = 0; e < BRIM__COUNT(epochs); e++) {
        for (uint64_t p = 0; p < 200; p++) {
            const uint64_t position = p < 100 ? p * p * p : length - 1 - p;
            struct brim__location place;
            brim__order_locate(&order, epochs[e], position, 1, &place);
            const uint64_t before = brim__mix_share(&mixes[0], place.leaf, position);
            const unsigned __int128 running =
                (unsigned __int128)epochs[e] * mixes[0].in_epoch[place.leaf] + before;
            assert_int_equal(place.sample, (uint64_t)(running % counts[place.leaf]));
            assert_int_equal(place.epoch, (uint64_t)(running / counts[place.leaf]));
        }
    }
}

static void test_mix_refusals(void **state) {
    (void)state;
    struct brim__order order;
    const uint64_t counts[17] = { 5, 5, 0, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5 };
    double weights[17];
    for (int k = 0; k < 17; k++) {
        weights[k] = 1;
    }
    assert_int_equal(mix_of(&order, weights, counts, 0, 0), BRIM_STATUS_INVALID);
    assert_int_equal(mix_of(&order, weights, counts, 17, 0), BRIM_STATUS_INVALID);
    assert_int_equal(mix_of(&order, weights, counts, 3, 0), BRIM_STATUS_INVALID);
    assert_non_null(strstr(brim_detail(), "part 3 of 3 has no samples"));
    assert_int_equal(mix_of(&order, weights, counts, 2, UINT64_MAX), BRIM_STATUS_INVALID);
    const double bad[] = { 0, -1, (double)NAN, (double)INFINITY, -0.0 };
    for (size_t i = 0; i < BRIM__COUNT(bad); i++) {
        weights[1] = bad[i];
        assert_int_equal(mix_of(&order, weights, counts, 2, 0), BRIM_STATUS_INVALID);
        assert_non_null(strstr(brim_detail(), "part 2"));
    }
}

/* ------------------------------------------------------------------ concat */

#define PARTS (BRIM__CONCAT_PARTS + 1)

static brim_status concat_of(struct brim__order *order, const uint64_t *counts, size_t parts,
                             bool shuffled) {
    static uint64_t memory[512];
    uint32_t tops[PARTS];
    brim__order_init(order);
    assert_true(brim__concat_bytes(parts) <= sizeof memory);
    for (size_t k = 0; k < parts; k++) {
        assert_int_equal(brim__order_leaf(order, (uint32_t)k, counts[k]), BRIM_OK);
        if (shuffled) {
            assert_int_equal(brim__order_shuffle(order, k, 0, true), BRIM_OK);
        }
        tops[k] = order->top;
    }
    return brim__order_concat(order, (struct brim__concat *)memory, tops, parts);
}

static void test_concat_joins_in_the_same_epoch(void **state) {
    (void)state;
    for (uint64_t i = 0; i < 300; i++) {
        struct brim__order order;
        uint64_t counts[PARTS];
        pick_state = i;
        const size_t parts = 1 + pick(i % 3 == 0 ? BRIM__CONCAT_PARTS : 4);
        for (size_t k = 0; k < parts; k++) {
            counts[k] = pick(3) == 0 ? pick(3) : pick(90);
        }
        assert_int_equal(concat_of(&order, counts, parts, i % 2 == 0), BRIM_OK);
        compare_with_list(&order, i);
        if (i % 5 == 0 && brim__order_count(&order) > 0) {
            assert_int_equal(brim__order_shuffle(&order, 3, 0, true), BRIM_OK);
            compare_with_list(&order, i);
        }
    }
}

/* A shuffle behind a concat moves samples over all parts. */
static void test_shuffle_over_a_concat_is_global(void **state) {
    (void)state;
    struct brim__order order;
    const uint64_t counts[2] = { 500, 500 };
    struct brim__location places[1000];
    uint8_t seen[2][500] = { { 0 } };
    assert_int_equal(concat_of(&order, counts, 2, false), BRIM_OK);
    assert_false(brim__order_jumps(&order));
    assert_int_equal(brim__order_shuffle(&order, 3, 0, true), BRIM_OK);
    assert_true(brim__order_jumps(&order));
    brim__order_locate(&order, 4, 0, 1000, places);
    int first = 0;
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(places[i].epoch, 4);
        assert_int_equal(seen[places[i].leaf][places[i].sample]++, 0);
        first += i < 500 && places[i].leaf == 0;
    }
    assert_true(first > 200 && first < 300);
}

static void test_concat_is_exact_at_the_bounds(void **state) {
    (void)state;
    struct brim__order order;
    const uint64_t half = (uint64_t)1 << 62;
    const uint64_t counts[3] = { half - 1, 1, half };
    const uint64_t positions[] = { 0, half - 2, half - 1, half, 2 * half - 1 };
    const struct brim__location wanted[] = {
        { .sample = 0, .leaf = 0 }, { .sample = half - 2, .leaf = 0 }, { .sample = 0, .leaf = 1 },
        { .sample = 0, .leaf = 2 }, { .sample = half - 1, .leaf = 2 },
    };
    assert_int_equal(concat_of(&order, counts, 3, false), BRIM_OK);
    assert_int_equal(brim__order_count(&order), (uint64_t)1 << 63);
    for (size_t i = 0; i < BRIM__COUNT(positions); i++) {
        struct brim__location place;
        brim__order_locate(&order, 0, positions[i], 1, &place);
        assert_place(place, wanted[i]);
    }
}

static void test_concat_refusals(void **state) {
    (void)state;
    struct brim__order order;
    uint64_t counts[PARTS] = { 0 };
    assert_int_equal(concat_of(&order, counts, 0, false), BRIM_STATUS_INVALID);
    assert_int_equal(concat_of(&order, counts, PARTS, false), BRIM_STATUS_INVALID);
    assert_non_null(strstr(brim_detail(), "33 parts"));
    assert_int_equal(concat_of(&order, counts, PARTS - 1, false), BRIM_OK);
    assert_int_equal(brim__order_count(&order), 0);
    brim__order_locate(&order, 0, 0, 0, NULL);
    counts[1] = (uint64_t)1 << 63;
    assert_int_equal(concat_of(&order, counts, 2, false), BRIM_OK);
    counts[3] = 1;
    assert_int_equal(concat_of(&order, counts, 5, false), BRIM_STATUS_INVALID);
    assert_non_null(strstr(brim_detail(), "with part 4"));
    counts[3] = (uint64_t)1 << 63; /* the sum would wrap to 0 */
    assert_int_equal(concat_of(&order, counts, 5, false), BRIM_STATUS_INVALID);
    counts[1] = counts[3] = 1;
    assert_int_equal(concat_of(&order, counts, 2, false), BRIM_OK);
    while (order.op_count < BRIM__ORDER_OPS) {
        assert_int_equal(brim__order_take(&order, 5), BRIM_OK);
    }
    uint64_t memory[8];
    const uint32_t top = order.top;
    assert_int_equal(brim__order_concat(&order, (struct brim__concat *)memory, &top, 1),
                     BRIM_STATUS_UNSUPPORTED);
    assert_int_equal(order.top, top);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mix_blocks),
        cmocka_unit_test(test_mix_pattern_is_random),
        cmocka_unit_test(test_mix_ends_at_the_first_exhausted_part),
        cmocka_unit_test(test_mix_parts_have_their_own_epochs),
        cmocka_unit_test(test_mix_in_late_epochs_is_exact),
        cmocka_unit_test(test_mix_refusals),
        cmocka_unit_test(test_concat_joins_in_the_same_epoch),
        cmocka_unit_test(test_shuffle_over_a_concat_is_global),
        cmocka_unit_test(test_concat_is_exact_at_the_bounds),
        cmocka_unit_test(test_concat_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * test_order.c: every order operation against lists; shuffle, repeat, take, skip.
 *
 * Random pipelines of all operations are compared with order_model.h.
 */
#include "order_model.h"

#include <time.h>

/* -------------------------------------------------------- random pipelines */

static uint32_t mixes_used, leaves_used;

static void random_subset(struct brim__order *order) {
    struct brim__numbers *numbers;
    uint32_t *narrow;
    uint64_t *wide;
    const uint64_t count = 1 + pick(200);
    assert_int_equal(brim__arena_take(&model_arena, sizeof *numbers, &numbers), BRIM_OK);
    assert_int_equal(brim__arena_take(&model_arena, count * 4, &narrow), BRIM_OK);
    assert_int_equal(brim__arena_take(&model_arena, count * 8, &wide), BRIM_OK);
    for (uint64_t i = 0; i < count; i++) {
        wide[i] = narrow[i] = (uint32_t)pick(brim__order_count(order));
    }
    numbers->count = count;
    if (pick(2) == 0) {
        numbers->narrow = narrow;
    } else {
        numbers->wide = wide;
    }
    assert_int_equal(brim__order_subset(order, numbers), BRIM_OK);
}

/* Refused where the order below moves or is empty; then there is no stage. */
static void random_part(struct brim__order *order) {
    const struct brim__order_site site = site_of(order, pick(1000));
    const double folds = (double)(2 + pick(6)), seed = (double)pick(100);
    const bool plain = pick(2) == 0;
    const struct given fold[] = { { .number = (double)pick((uint64_t)folds) },
                                  { .number = folds },
                                  { .number = (double)pick(2) },
                                  { .text = "label", .absent = plain },
                                  { .number = seed } };
    const struct given split[] = { { .number = (double)pick(3) },
                                   { .number = (double)pick(60) / 100 },
                                   { .number = (double)pick(40) / 100 },
                                   { .number = seed },
                                   { .text = "label" } };
    const brim_status status = pick(2) == 0 ? add_given(&brim__stage_fold, &site, fold)
                                            : add_given(&brim__stage_split, &site, split);
    assert_true(status == BRIM_OK || status == BRIM_STATUS_INVALID);
}

static void random_draws(struct brim__order *order) {
    const struct brim__order_site site = site_of(order, pick(1000));
    const double length = (double)(1 + pick(300)), seed = (double)pick(100);
    const struct given balance[] = { { .text = "label" },
                                     { .number = length },
                                     { .number = seed } };
    const struct given weighted[] = {
        { .text = "label" }, { .absent = true }, { .number = length }, { .number = seed }
    };
    const brim_status status = pick(2) == 0 ? add_given(&brim__stage_balance, &site, balance)
                                            : add_given(&brim__stage_weighted, &site, weighted);
    assert_true(status == BRIM_OK || status == BRIM_STATUS_INVALID);
}

static void random_stage(struct brim__order *order) {
    const uint64_t count = brim__order_count(order);
    const uint64_t key = pick(1000);
    switch (pick(9)) {
    case 0:
        assert_int_equal(brim__order_take(order, count / 2 + pick(count + 3)), BRIM_OK);
        break;
    case 1:
        assert_int_equal(brim__order_skip(order, pick(pick(8) == 0 ? count + 3 : 10)), BRIM_OK);
        break;
    case 2:
        if (count < 200) {
            assert_int_equal(brim__order_repeat(order, 1 + pick(4)), BRIM_OK);
        }
        break;
    case 3: {
        const uint64_t first = pick(count / 3 + 1);
        assert_int_equal(brim__order_split(order, key, first, pick(count - first + 1)), BRIM_OK);
        break;
    }
    case 4:
        assert_int_equal(brim__order_shuffle(order, key, 0, pick(3) > 0), BRIM_OK);
        break;
    case 5:
        assert_int_equal(brim__order_shuffle(order, key, pick(12), pick(3) > 0), BRIM_OK);
        break;
    case 6:
        if (count > 0) {
            random_subset(order);
        }
        break;
    case 7:
        random_part(order);
        break;
    default:
        random_draws(order);
    }
}

static void random_chain(struct brim__order *order, int depth);

static void random_concat(struct brim__order *order, int depth) {
    uint32_t tops[4];
    struct brim__concat *concat;
    const size_t parts = 1 + pick(4);
    assert_int_equal(brim__arena_take(&model_arena, brim__concat_bytes(parts), &concat), BRIM_OK);
    for (size_t k = 0; k < parts; k++) {
        random_chain(order, depth - 1);
        tops[k] = order->top;
    }
    assert_int_equal(brim__order_concat(order, concat, tops, parts), BRIM_OK);
}

static void random_chain(struct brim__order *order, int depth) {
    if (depth > 0 && pick(3) == 0 && mixes_used < BRIM__COUNT(mixes)) {
        struct brim__mix *mix = &mixes[mixes_used++];
        uint32_t tops[3];
        double weights[3];
        const size_t parts = 1 + pick(3);
        for (size_t k = 0; k < parts; k++) {
            random_chain(order, depth - 1);
            if (brim__order_count(order) == 0) {
                assert_int_equal(brim__order_leaf(order, leaves_used++, 5), BRIM_OK);
            }
            tops[k] = order->top;
            weights[k] = (double)(1 + pick(5));
        }
        assert_int_equal(brim__order_mix(order, mix, pick(1000), tops, weights, parts,
                                         pick(2) * (1 + pick(200))),
                         BRIM_OK);
    } else if (depth > 0 && pick(4) == 0) {
        random_concat(order, depth);
    } else {
        const uint64_t count = pick(20) == 0 ? pick(4) : 1 + pick(150);
        assert_int_equal(brim__order_leaf(order, leaves_used++, count), BRIM_OK);
    }
    for (uint64_t stages = pick(5); stages > 0 && brim__order_count(order) < 500; stages--) {
        random_stage(order);
    }
}

static void test_random_pipelines_equal_lists(void **state) {
    (void)state;
    uint64_t met[BRIM__ORDER_PART + 1] = { 0 };
    for (uint64_t i = 0; i < 1200; i++) {
        struct brim__order order;
        pick_state = i;
        mixes_used = leaves_used = 0;
        labelled.classes = 1 + pick(6);
        labelled.run = pick(2) == 0 ? 1 : 1 + pick(30);
        labelled.salt = i;
        forget_tables();
        brim__order_init(&order);
        random_chain(&order, 2);
        compare_with_list(&order, pick(4));
        for (uint32_t op = 0; op < order.op_count; op++) {
            met[order.op[op].kind]++;
        }
    }
    for (size_t kind = 0; kind < BRIM__COUNT(met); kind++) {
        assert_true(met[kind] > 50);
    }
}

/* ----------------------------------------------------------------- shuffle */

static void test_block_shuffle_is_a_bijection(void **state) {
    (void)state;
    for (uint64_t count = 1; count <= 100; count++) {
        for (uint64_t block = 1; block <= count + 1; block++) {
            struct brim__order order;
            struct brim__location places[100];
            uint8_t seen[100] = { 0 };
            brim__order_init(&order);
            brim__order_leaf(&order, 0, count);
            brim__order_shuffle(&order, count * 1000 + block, block, true);
            brim__order_locate(&order, 5, 0, count, places);
            for (uint64_t i = 0; i < count; i++) {
                assert_true(places[i].sample < count);
                assert_int_equal(seen[places[i].sample]++, 0);
            }
        }
    }
}

static void test_block_shuffle_equals_lists(void **state) {
    (void)state;
    static const uint64_t counts[] = { 1, 2, 16, 17, 31, 32, 33, 48, 100, 257, 1000, 1025 };
    for (size_t c = 0; c < BRIM__COUNT(counts); c++) {
        for (uint64_t block = 1; block <= 70; block += 1 + block / 12) {
            struct brim__order order;
            brim__order_init(&order);
            brim__order_leaf(&order, 3, counts[c]);
            brim__order_shuffle(&order, 9, block, block % 2 == 0);
            compare_with_list(&order, 2);
        }
    }
}

/* A stretch of positions reads from at most two groups of sixteen blocks. */
static void test_block_shuffle_reads_near(void **state) {
    (void)state;
    struct brim__order order;
    brim__order_init(&order);
    brim__order_leaf(&order, 0, 1000003);
    brim__order_shuffle(&order, 4, 1000, true);
    struct brim__location *places = calloc(16000, sizeof *places);
    assert_non_null(places);
    brim__order_locate(&order, 0, 320000, 16000, places);
    uint32_t blocks[1001] = { 0 };
    int distinct = 0;
    for (int i = 0; i < 16000; i++) {
        distinct += blocks[places[i].sample / 1000]++ == 0;
    }
    assert_true(distinct >= 15 && distinct <= 33);
    free(places);
}

static void test_shuffle_changes_with_epoch_only_when_asked(void **state) {
    (void)state;
    for (int each = 0; each < 2; each++) {
        for (uint64_t block = 0; block <= 8; block += 8) {
            struct brim__order order;
            struct brim__location a[64], b[64];
            brim__order_init(&order);
            brim__order_leaf(&order, 0, 5000);
            brim__order_shuffle(&order, 1, block, each == 1);
            brim__order_locate(&order, 0, 0, 64, a);
            brim__order_locate(&order, 1, 0, 64, b);
            int same = 0;
            for (int i = 0; i < 64; i++) {
                same += a[i].sample == b[i].sample;
                assert_int_equal(b[i].epoch, 1);
            }
            if (each == 1) {
                assert_true(same < 8);
            } else {
                assert_int_equal(same, 64);
            }
        }
    }
}

static void test_epochs_of_a_shuffle_are_uncorrelated(void **state) {
    (void)state;
    enum { COUNT = 4000 };
    static struct brim__location a[COUNT], b[COUNT];
    struct brim__order order;
    brim__order_init(&order);
    brim__order_leaf(&order, 0, COUNT);
    brim__order_shuffle(&order, 1, 0, true);
    for (uint64_t epoch = 0; epoch < 40; epoch++) {
        brim__order_locate(&order, epoch, 0, COUNT, a);
        brim__order_locate(&order, epoch + 1, 0, COUNT, b);
        double products = 0, squares = 0;
        for (int i = 0; i < COUNT; i++) {
            const double off = (double)a[i].sample - (COUNT - 1) / 2.0;
            products += off * ((double)b[i].sample - (COUNT - 1) / 2.0);
            squares += off * off;
        }
        assert_true(fabs(products / squares * sqrt(COUNT)) < 4.5);
    }
}

/* ------------------------------------------------- repeat, take, skip, all */

static void test_repeat_joins_epochs(void **state) {
    (void)state;
    struct brim__order once, repeated;
    struct brim__location a[3 * 37], b[37];
    brim__order_init(&once);
    brim__order_leaf(&once, 0, 37);
    brim__order_shuffle(&once, 8, 0, true);
    repeated = once;
    assert_int_equal(brim__order_repeat(&repeated, 3), BRIM_OK);
    assert_int_equal(brim__order_count(&repeated), 3 * 37);
    for (uint64_t epoch = 0; epoch < 5; epoch++) {
        brim__order_locate(&repeated, epoch, 0, 3 * 37, a);
        for (uint64_t pass = 0; pass < 3; pass++) {
            brim__order_locate(&once, 3 * epoch + pass, 0, 37, b);
            for (int i = 0; i < 37; i++) {
                assert_place(a[pass * 37 + (uint64_t)i], b[i]);
            }
        }
    }
}

static void test_empty_orders(void **state) {
    (void)state;
    struct brim__order order;
    brim__order_init(&order);
    assert_int_equal(brim__order_leaf(&order, 0, 10), BRIM_OK);
    assert_int_equal(brim__order_skip(&order, 11), BRIM_OK);
    assert_int_equal(brim__order_shuffle(&order, 1, 4, true), BRIM_OK);
    assert_int_equal(brim__order_repeat(&order, 1000), BRIM_OK);
    assert_int_equal(brim__order_take(&order, 5), BRIM_OK);
    assert_int_equal(brim__order_split(&order, 0, 0, 0), BRIM_OK);
    assert_int_equal(brim__order_count(&order), 0);
    brim__order_locate(&order, 0, 0, 0, NULL);
}

static void test_refusals(void **state) {
    (void)state;
    struct brim__order order;
    brim__order_init(&order);
    assert_int_equal(brim__order_leaf(&order, 0, ((uint64_t)1 << 63) + 1), BRIM_STATUS_UNSUPPORTED);
    assert_int_equal(brim__order_leaf(&order, 0, (uint64_t)1 << 40), BRIM_OK);
    assert_int_equal(brim__order_repeat(&order, 0), BRIM_STATUS_INVALID);
    assert_int_equal(brim__order_repeat(&order, ((uint64_t)1 << 23) + 1), BRIM_STATUS_INVALID);
    assert_int_equal(brim__order_repeat(&order, UINT64_MAX), BRIM_STATUS_INVALID);
    assert_int_equal(brim__order_split(&order, 0, 1, (uint64_t)1 << 40), BRIM_STATUS_INVALID);
    assert_int_equal(brim__order_split(&order, 0, UINT64_MAX, 2), BRIM_STATUS_INVALID);
    assert_int_equal(order.op_count, 1);
    assert_int_equal(brim__order_repeat(&order, (uint64_t)1 << 23), BRIM_OK);
    while (order.op_count < BRIM__ORDER_OPS) {
        assert_int_equal(brim__order_take(&order, 5), BRIM_OK);
    }
    assert_int_equal(brim__order_take(&order, 5), BRIM_STATUS_UNSUPPORTED);
    assert_non_null(strstr(brim_detail(), "take"));
    assert_int_equal(order.op_count, BRIM__ORDER_OPS);
    const double weight = 1;
    assert_int_equal(brim__order_mix(&order, &mixes[0], 0, &order.top, &weight, 1, 0),
                     BRIM_STATUS_UNSUPPORTED);
}

/* ------------------------------------------------------------------ stages */

static void test_rows(void **state) {
    (void)state;
    const struct brim__stage *const rows[] = {
        &brim__stage_shuffle, &brim__stage_split,    &brim__stage_take,   &brim__stage_skip,
        &brim__stage_repeat,  &brim__stage_mix,      &brim__stage_concat, &brim__stage_subset,
        &brim__stage_balance, &brim__stage_weighted, &brim__stage_fold
    };
    for (size_t i = 0; i < BRIM__COUNT(rows); i++) {
        const brim_stage_info *info = &rows[i]->info;
        assert_int_equal(info->room, BRIM_ROOM_ORDER);
        assert_int_equal(strncmp(info->example, info->name, strlen(info->name)), 0);
        assert_int_equal(rows[i]->add_order == NULL,
                         rows[i] == &brim__stage_mix || rows[i] == &brim__stage_concat);
        for (size_t k = 0; k < info->argument_count; k++) {
            assert_non_null(brim_stage_argument_at(info, k)->help);
            assert_false((brim_stage_argument_at(info, k)->flags & BRIM_ARGUMENT_FLAG_REQUIRED) !=
                             0 &&
                         brim_stage_argument_at(info, k)->fallback != NULL);
        }
    }
}

static void test_stages_build_their_operations(void **state) {
    (void)state;
    struct brim__order order;
    brim__order_init(&order);
    brim__order_leaf(&order, 0, 100);
    assert_int_equal(ADD(brim__stage_skip, &order, 0, 10), BRIM_OK);
    assert_int_equal(ADD(brim__stage_take, &order, 0, 50), BRIM_OK);
    assert_int_equal(ADD(brim__stage_repeat, &order, 0, 3), BRIM_OK);
    assert_int_equal(brim__order_count(&order), 150);
    struct brim__location place;
    brim__order_locate(&order, 2, 57, 1, &place);
    assert_place(place, (struct brim__location){ .sample = 17, .epoch = 7, .leaf = 0 });

    /* the seed and the key both change the order; block and each_epoch arrive */
    const double seeds[] = { 0, 7, -3 };
    uint64_t keys[6];
    for (size_t i = 0; i < 6; i++) {
        brim__order_init(&order);
        brim__order_leaf(&order, 0, 100);
        assert_int_equal(ADD(brim__stage_shuffle, &order, 5 + i % 2, seeds[i / 2],
                             i % 2 == 0 ? 0 : 8, i % 2 == 0, 0),
                         BRIM_OK);
        keys[i] = order.op[order.top].key;
        assert_int_equal(order.op[order.top].amount, i % 2 == 0 ? 0 : 8);
        assert_int_equal(order.op[order.top].each_epoch, i % 2 == 0);
        for (size_t k = 0; k < i; k++) {
            assert_int_not_equal(keys[k], keys[i]);
        }
    }
}

/* -------------------------------------------------------------------- cost */

static double seconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void test_cost_does_not_grow_with_the_count(void **state) {
    (void)state;
    double least[2] = { 1e9, 1e9 };
    for (int attempt = 0; attempt < 7; attempt++) {
        for (int k = 0; k < 2; k++) {
            struct brim__order order;
            struct brim__location places[64];
            brim__order_init(&order);
            brim__order_leaf(&order, 0, k == 0 ? 1000000 : 1000000000000000);
            brim__order_shuffle(&order, 1, 1024, true);
            brim__order_repeat(&order, 5);
            brim__order_skip(&order, 17);
            const uint64_t step = brim__order_count(&order) / 100;
            const double begin = seconds();
            for (uint64_t i = 0; i < 99; i++) {
                brim__order_locate(&order, i, i * step, 64, places);
            }
            least[k] = fmin(least[k], seconds() - begin);
        }
    }
    assert_true(least[1] < 8 * least[0]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_pipelines_equal_lists),
        cmocka_unit_test(test_block_shuffle_is_a_bijection),
        cmocka_unit_test(test_block_shuffle_equals_lists),
        cmocka_unit_test(test_block_shuffle_reads_near),
        cmocka_unit_test(test_shuffle_changes_with_epoch_only_when_asked),
        cmocka_unit_test(test_epochs_of_a_shuffle_are_uncorrelated),
        cmocka_unit_test(test_repeat_joins_epochs),
        cmocka_unit_test(test_empty_orders),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_stages_build_their_operations),
        cmocka_unit_test(test_cost_does_not_grow_with_the_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * test_order_split.c: parts of the samples: split, plain and stratified, and fold.
 */
#include "order_model.h"

/* ------------------------------------------------------------------- split */

/* Builds the three parts; returns the first refusal. */
static brim_status split_parts(struct brim__order part[3], uint64_t count, double validation,
                               double test, double seed) {
    for (int k = 0; k < 3; k++) {
        brim__order_init(&part[k]);
        brim__order_leaf(&part[k], 0, count);
        /* a key for each: the place in the pipeline must not matter */
        const brim_status status =
            ADD(brim__stage_split, &part[k], (uint64_t)k * 99, k, validation, test, seed);
        if (status != BRIM_OK) {
            return status;
        }
    }
    return BRIM_OK;
}

static void test_split_is_disjoint_and_complete(void **state) {
    (void)state;
    static const double sizes[][2] = { { 0.1, 0 },        { 0.1, 0.1 }, { 0.5, 0.5 }, { 0.3, 0.7 },
                                       { 0.25, 0.33333 }, { 0, 0 },     { 0, 0.999 }, { 1, 1 },
                                       { 3, 0.2 },        { 0.2, 2 },   { 5, 0 } };
    for (uint64_t count = 5; count <= 300; count += count < 70 ? 1 : 23) {
        for (size_t s = 0; s < BRIM__COUNT(sizes); s++) {
            for (int seed = -2; seed < 2; seed++) {
                struct brim__order part[3];
                struct brim__location places[300];
                uint8_t seen[300] = { 0 };
                uint64_t sum = 0;
                assert_int_equal(split_parts(part, count, sizes[s][0], sizes[s][1], seed), BRIM_OK);
                for (int k = 0; k < 3; k++) {
                    const uint64_t rows = brim__order_count(&part[k]);
                    brim__order_locate(&part[k], (uint64_t)k, 0, rows, places);
                    sum += rows;
                    for (uint64_t i = 0; i < rows; i++) {
                        assert_int_equal(seen[places[i].sample]++, 0);
                    }
                }
                assert_int_equal(sum, count);
                for (int k = 1; k < 3; k++) {
                    const double size = sizes[s][k - 1];
                    const double exact = size < 1 ? size * (double)count : size;
                    assert_true(fabs((double)brim__order_count(&part[k]) - exact) <=
                                (k == 1 ? 0.5 + 1e-6 : 1 + 1e-6));
                }
            }
        }
    }
}

static void test_split_rounds_exactly(void **state) {
    (void)state;
    static const struct {
        uint64_t count;
        double validation;
        uint64_t rows;
    } known[] = {
        { 5, 0.3, 2 },
        { 15, 0.3, 5 },
        { 15, 0.1, 2 },
        { 14, 0.1, 1 },
        { 0, 0.5, 0 },
        { 1, 0.5, 1 },
        { 1, 0.499999, 0 },
        { 50000, 0.1, 5000 },
        { 1000, 1, 1 },
        { 1000, 1000, 1000 },
        { (uint64_t)1 << 53, 0.1, 900719925474099 },
        { ((uint64_t)1 << 53) - 1, 0.5, (uint64_t)1 << 52 },
        { (uint64_t)1 << 63, 0.7, 6456360425798343066 },
    };
    for (size_t i = 0; i < BRIM__COUNT(known); i++) {
        struct brim__order part[3];
        assert_int_equal(split_parts(part, known[i].count, known[i].validation, 0, 0), BRIM_OK);
        assert_int_equal(brim__order_count(&part[1]), known[i].rows);
        assert_int_equal(brim__order_count(&part[0]), known[i].count - known[i].rows);
    }
}

static void test_split_refusals(void **state) {
    (void)state;
    static const struct {
        double validation, test;
        const char *text;
    } known[] = {
        { 0.6, 0.5, "overlap" },
        { 101, 0, "overlap" },
        { 60, 41, "overlap" },
        { 60, 0.41, "overlap" },
        { 1.5, 0, "validation=1.5 is neither" },
        { 0.1, 2.25, "test=2.25 is neither" },
        { -0.1, 0, "not a size" },
        { (double)NAN, 0, "not a size" },
    };
    struct brim__order part[3];
    for (size_t i = 0; i < BRIM__COUNT(known); i++) {
        assert_int_equal(split_parts(part, 100, known[i].validation, known[i].test, 0),
                         BRIM_STATUS_INVALID);
        assert_non_null(strstr(brim_detail(), known[i].text));
    }
    assert_int_equal(split_parts(part, 100, 60, 0.4, 0), BRIM_OK);
}

/* What shows samples elsewhere in another epoch, or twice, would leak. */
static void test_split_stands_before_what_moves_samples(void **state) {
    (void)state;
    struct brim__order order;
    const uint64_t counts[2] = { 10, 10 };
    const double weights[2] = { 1, 1 };
    brim__order_init(&order);
    brim__order_leaf(&order, 0, 100);
    brim__order_shuffle(&order, 0, 0, false);
    brim__order_take(&order, 90);
    brim__order_repeat(&order, 1);
    assert_int_equal(ADD(brim__stage_split, &order, 0, 0, 0.1, 0, 0), BRIM_OK);
    brim__order_shuffle(&order, 0, 0, true);
    brim__order_skip(&order, 3);
    assert_int_equal(ADD(brim__stage_split, &order, 0, 0, 0.1, 0, 0), BRIM_STATUS_INVALID);
    assert_non_null(strstr(brim_detail(), "shuffle"));
    brim__order_init(&order);
    brim__order_leaf(&order, 0, 100);
    brim__order_repeat(&order, 2);
    assert_int_equal(ADD(brim__stage_split, &order, 0, 0, 0.1, 0, 0), BRIM_STATUS_INVALID);
    assert_non_null(strstr(brim_detail(), "repeat"));
    assert_int_equal(mix_of(&order, weights, counts, 2, 0), BRIM_OK);
    assert_int_equal(ADD(brim__stage_split, &order, 0, 0, 0.1, 0, 0), BRIM_STATUS_INVALID);
    assert_non_null(strstr(brim_detail(), "mix"));
}

/* -------------------------------------------------------------- stratified */

enum { MOST_CLASSES = 16, MOST_SAMPLES = 1200 };

static void label_with(uint64_t classes, uint64_t run, uint64_t salt) {
    labelled.classes = classes;
    labelled.run = run;
    labelled.salt = salt;
}

static uint32_t class_at(uint64_t position) {
    return (uint32_t)(label_at(position) / 1000000007 + 2);
}

/* The parts of one division; [k] is the part of choice k. */
static void stratified_parts(struct brim__order part[3], uint64_t count, double validation,
                             double test, double seed) {
    for (int k = 0; k < 3; k++) {
        brim__order_init(&part[k]);
        assert_int_equal(brim__order_leaf(&part[k], 0, count), BRIM_OK);
        const struct brim__order_site site = site_of(&part[k], (uint64_t)k * 99);
        const struct given given[] = { { .number = k },
                                       { .number = validation },
                                       { .number = test },
                                       { .number = seed },
                                       { .text = "label" } };
        assert_int_equal(add_given(&brim__stage_split, &site, given), BRIM_OK);
    }
}

/* Marks the samples of a part as seen, each for the first time, and counts them
 * by class. */
static void count_part(const struct brim__order *part, uint8_t *seen, uint64_t *by_class) {
    static struct brim__location places[MOST_SAMPLES];
    const uint64_t rows = brim__order_count(part);
    brim__order_locate(part, 3, 0, rows, places);
    for (uint64_t i = 0; i < rows; i++) {
        assert_int_equal(seen[places[i].sample]++, 0);
        assert_int_equal(places[i].epoch, 3);
        by_class[class_at(places[i].sample)]++;
    }
}

static void count_all(uint64_t count, uint64_t *by_class) {
    for (uint64_t i = 0; i < count; i++) {
        by_class[class_at(i)]++;
    }
}

static void test_stratified_split_divides_each_class(void **state) {
    (void)state;
    static const double sizes[][2] = { { 0.1, 0 }, { 0.1, 0.1 }, { 0.5, 0.5 },   { 0.25, 0.3333 },
                                       { 0, 0 },   { 0, 0.9 },   { 0.05, 0.15 }, { 7, 0.2 } };
    for (uint64_t i = 0; i < 400; i++) {
        struct brim__order part[3], plain[3];
        uint8_t seen[MOST_SAMPLES] = { 0 };
        uint64_t all[MOST_CLASSES] = { 0 }, by[3][MOST_CLASSES] = { { 0 } };
        pick_state = i;
        const uint64_t count = 10 + pick(i % 4 == 0 ? 1100 : 90);
        const double *size = sizes[i % BRIM__COUNT(sizes)];
        forget_tables();
        label_with(1 + pick(MOST_CLASSES), 1 + pick(i % 2 == 0 ? 1 : 40), i);
        stratified_parts(part, count, size[0], size[1], (double)i);
        assert_int_equal(split_parts(plain, count, size[0], size[1], (double)i), BRIM_OK);
        count_all(count, all);
        for (int k = 0; k < 3; k++) {
            /* the sizes of a split without classes */
            assert_int_equal(brim__order_count(&part[k]), brim__order_count(&plain[k]));
            count_part(&part[k], seen, by[k]);
        }
        for (uint32_t c = 0; c < MOST_CLASSES; c++) {
            assert_int_equal(by[0][c] + by[1][c] + by[2][c], all[c]);
            for (int k = 0; k < 3; k++) {
                const double share =
                    (double)all[c] * (double)brim__order_count(&part[k]) / (double)count;
                /* validation up or down; test is spread over what that leaves */
                assert_true(fabs((double)by[k][c] - share) < (k == 1 || size[1] == 0 ? 1 : 2));
            }
        }
    }
}

/* A class that the fractions divide without a remainder is divided so. */
static void test_stratified_split_is_exact_where_it_can_be(void **state) {
    (void)state;
    struct brim__order part[3];
    label_with(10, 100, 5); /* multiples of 100 members */
    forget_tables();
    stratified_parts(part, 1200, 0.2, 0.1, 1);
    uint8_t seen[MOST_SAMPLES] = { 0 };
    uint64_t all[MOST_CLASSES] = { 0 }, by[3][MOST_CLASSES] = { { 0 } };
    count_all(1200, all);
    for (int k = 0; k < 3; k++) {
        count_part(&part[k], seen, by[k]);
    }
    for (uint32_t c = 0; c < 10; c++) {
        assert_int_equal(by[1][c], all[c] / 5);
        assert_int_equal(by[2][c], all[c] / 10);
    }
}

/* Not class after class, though the ranks lie so; and other seeds, other parts. */
static void test_stratified_split_is_mixed(void **state) {
    (void)state;
    struct brim__order part[3], other[3];
    struct brim__location a[600], b[600];
    label_with(2, 600, 11);
    forget_tables();
    while (class_at(0) == class_at(600)) {
        labelled.salt++;
    }
    stratified_parts(part, 1200, 0.5, 0, 1);
    stratified_parts(other, 1200, 0.5, 0, 2);
    brim__order_locate(&part[1], 0, 0, 600, a);
    brim__order_locate(&other[1], 0, 0, 600, b);
    int first = 0, common = 0;
    uint8_t in_a[1200] = { 0 };
    for (int i = 0; i < 600; i++) {
        first += i < 300 && a[i].sample < 600;
        in_a[a[i].sample] = 1;
    }
    for (int i = 0; i < 600; i++) {
        common += in_a[b[i].sample];
    }
    assert_true(first > 110 && first < 190);
    assert_true(common > 240 && common < 360);
}

static void test_labels_decide_the_fingerprint(void **state) {
    (void)state;
    struct brim__order part[3];
    uint64_t prints[4];
    for (uint64_t i = 0; i < 4; i++) {
        forget_tables();
        label_with(5, 1, i / 2);
        stratified_parts(part, i % 2 == 0 ? 1000 : 999, 0.1, 0, 1);
        prints[i] = part[0].fingerprint;
        assert_int_equal(part[1].fingerprint, prints[i]);
        assert_int_not_equal(prints[i], 0);
        for (uint64_t k = 0; k < i; k++) {
            assert_int_not_equal(prints[k], prints[i]);
        }
    }
    assert_int_equal(split_parts(part, 1000, 0.1, 0, 1), BRIM_OK);
    assert_int_equal(part[0].fingerprint, 0);
}

/* Ranks of a spread choice, at counts that no test can walk through. */
static void test_ranks_of_large_counts(void **state) {
    (void)state;
    static const uint64_t wholes[] = { ((uint64_t)1 << 40) + 7, (uint64_t)1 << 62,
                                       (uint64_t)1 << 63 };
    for (size_t w = 0; w < BRIM__COUNT(wholes); w++) {
        const uint64_t whole = wholes[w];
        struct brim__split_part part = { .whole = whole,
                                         .validation = whole / 3,
                                         .test = whole / 7 };
        for (uint64_t i = 0; i < 3000; i++) {
            part.kind = i % 3 == 0   ? BRIM__PART_TRAIN
                        : i % 3 == 1 ? BRIM__PART_VALIDATION
                                     : BRIM__PART_TEST;
            const uint64_t count = brim__split_part_count(&part);
            const uint64_t p = i < 3 ? 0 : i < 6 ? count - 1 : brim__hash_words(i, 1, 2) % count;
            const uint64_t rank = brim__split_part_rank(&part, p);
            assert_true(rank < whole);
            assert_true(is_in(&part, rank));
            if (p > 0) {
                assert_true(brim__split_part_rank(&part, p - 1) < rank);
            }
        }
    }
}

static void test_stratified_refusals(void **state) {
    (void)state;
    struct brim__order order;
    const struct brim__order_site site = site_of(&order, 0);
    struct given given[] = {
        { .number = 0 }, { .number = 0.1 }, { .number = 0 }, { .number = 0 }, { .text = "colour" }
    };
    label_with(4, 1, 0);
    forget_tables();
    brim__order_init(&order);
    brim__order_leaf(&order, 0, 100);
    assert_int_equal(add_given(&brim__stage_split, &site, given), BRIM_STATUS_INVALID);
    assert_string_equal(brim_detail(), "split: there is no field 'colour'");
    assert_int_equal(order.op_count, 1);
    /* nothing to divide is divided */
    given[4].text = "label";
    brim__order_skip(&order, 100);
    assert_int_equal(add_given(&brim__stage_split, &site, given), BRIM_OK);
    assert_int_equal(brim__order_count(&order), 0);
}

/* -------------------------------------------------------------------- fold */

static brim_status fold_of(struct brim__order *order, uint64_t count, uint64_t fold, uint64_t folds,
                           bool train, bool stratify, double seed) {
    brim__order_init(order);
    assert_int_equal(brim__order_leaf(order, 0, count), BRIM_OK);
    const struct brim__order_site site = site_of(order, fold);
    const struct given given[] = { { .number = (double)fold },
                                   { .number = (double)folds },
                                   { .number = train },
                                   { .text = "label", .absent = !stratify },
                                   { .number = seed } };
    return add_given(&brim__stage_fold, &site, given);
}

static void test_folds_are_disjoint_and_cover_everything(void **state) {
    (void)state;
    for (uint64_t i = 0; i < 200; i++) {
        uint8_t seen[MOST_SAMPLES] = { 0 };
        uint64_t all[MOST_CLASSES] = { 0 };
        pick_state = i;
        const uint64_t folds = 2 + pick(9);
        const uint64_t count = folds + pick(i % 5 == 0 ? 1000 : 60);
        const bool stratify = i % 2 == 0;
        forget_tables();
        label_with(1 + pick(MOST_CLASSES), 1 + pick(i % 4 < 2 ? 1 : 40), i);
        count_all(count, all);
        for (uint64_t f = 0; f < folds; f++) {
            struct brim__order fold, train;
            uint8_t both[MOST_SAMPLES] = { 0 };
            uint64_t by[2][MOST_CLASSES] = { { 0 } };
            assert_int_equal(fold_of(&fold, count, f, folds, false, stratify, (double)i), BRIM_OK);
            assert_int_equal(fold_of(&train, count, f, folds, true, stratify, (double)i), BRIM_OK);
            count_part(&fold, both, by[0]);
            for (uint64_t s = 0; s < count; s++) {
                seen[s] = (uint8_t)(seen[s] + both[s]);
            }
            count_part(&train, both, by[1]);
            assert_int_equal(brim__order_count(&fold) + brim__order_count(&train), count);
            assert_true(brim__order_count(&fold) - count / folds <= 1);
            for (uint32_t c = 0; stratify && c < MOST_CLASSES; c++) {
                assert_true(by[0][c] - all[c] / folds <= 1);
            }
        }
        for (uint64_t s = 0; s < count; s++) {
            assert_int_equal(seen[s], 1);
        }
    }
}

static void test_folds_are_random(void **state) {
    (void)state;
    for (int stratify = 0; stratify < 2; stratify++) {
        struct brim__order order;
        struct brim__location places[500];
        uint8_t in_first[1000] = { 0 };
        label_with(3, 50, 1);
        forget_tables();
        assert_int_equal(fold_of(&order, 1000, 1, 2, false, stratify, 1), BRIM_OK);
        brim__order_locate(&order, 0, 0, 500, places);
        int odd = 0, rising = 0, common = 0;
        for (int i = 0; i < 500; i++) {
            odd += places[i].sample % 2 == 1;
            rising += i > 0 && places[i].sample > places[i - 1].sample;
            in_first[places[i].sample] = 1;
        }
        assert_true(odd > 200 && odd < 300);
        assert_true(rising > 200 && rising < 300);
        assert_int_equal(fold_of(&order, 1000, 1, 2, false, stratify, 2), BRIM_OK);
        brim__order_locate(&order, 0, 0, 500, places);
        for (int i = 0; i < 500; i++) {
            common += in_first[places[i].sample];
        }
        assert_true(common > 200 && common < 300);
        assert_true(brim__order_jumps(&order));
    }
}

static void test_fold_refusals(void **state) {
    (void)state;
    struct brim__order order;
    forget_tables();
    assert_int_equal(fold_of(&order, 100, 5, 5, false, false, 0), BRIM_STATUS_INVALID);
    assert_non_null(strstr(brim_detail(), "number 5 of 5 folds of 100 samples"));
    assert_int_equal(fold_of(&order, 4, 0, 5, false, false, 0), BRIM_STATUS_INVALID);
    assert_int_equal(fold_of(&order, 0, 0, 2, false, false, 0), BRIM_STATUS_INVALID);
    assert_int_equal(fold_of(&order, 5, 4, 5, true, false, 0), BRIM_OK);
    assert_int_equal(brim__order_count(&order), 4);
    brim__order_shuffle(&order, 0, 0, true);
    assert_int_equal(ADD(brim__stage_fold, &order, 0, 0, 2, 0), BRIM_STATUS_INVALID);
    assert_non_null(strstr(brim_detail(), "fold: after a shuffle"));
}

/* ------------------------------------------------------- what stands below */

/* Parts of a concat may move as little as anything else below a split. */
static void test_split_looks_into_a_concat(void **state) {
    (void)state;
    for (int moving = 0; moving < 2; moving++) {
        struct brim__order order;
        uint64_t memory[32];
        uint32_t tops[2];
        brim__order_init(&order);
        forget_tables();
        for (uint32_t k = 0; k < 2; k++) {
            brim__order_leaf(&order, k, 50);
            brim__order_shuffle(&order, k, 0, k == 1 && moving == 1);
            tops[k] = order.top;
        }
        assert_true(brim__concat_bytes(2) <= sizeof memory);
        assert_int_equal(brim__order_concat(&order, (struct brim__concat *)memory, tops, 2),
                         BRIM_OK);
        assert_int_equal(ADD(brim__stage_split, &order, 0, 0, 0.1, 0, 0),
                         moving == 1 ? BRIM_STATUS_INVALID : BRIM_OK);
    }
}

static void test_split_refuses_a_subset_that_repeats(void **state) {
    (void)state;
    static const uint32_t lists[][4] = { { 1, 5, 9, 20 }, { 9, 5, 20, 1 }, { 9, 5, 1, 9 } };
    for (size_t i = 0; i < BRIM__COUNT(lists); i++) {
        const struct brim__numbers numbers = { .count = 4,
                                               .narrow = lists[i],
                                               .ascending = i == 0 };
        struct brim__order order;
        brim__order_init(&order);
        forget_tables();
        brim__order_leaf(&order, 0, 100);
        assert_int_equal(brim__order_subset(&order, &numbers), BRIM_OK);
        assert_int_equal(ADD(brim__stage_split, &order, 0, 0, 0.1, 0, 0),
                         i == 2 ? BRIM_STATUS_INVALID : BRIM_OK);
    }
    assert_non_null(strstr(brim_detail(), "names a sample twice"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_split_is_disjoint_and_complete),
        cmocka_unit_test(test_split_rounds_exactly),
        cmocka_unit_test(test_split_refusals),
        cmocka_unit_test(test_split_stands_before_what_moves_samples),
        cmocka_unit_test(test_stratified_split_divides_each_class),
        cmocka_unit_test(test_stratified_split_is_exact_where_it_can_be),
        cmocka_unit_test(test_stratified_split_is_mixed),
        cmocka_unit_test(test_labels_decide_the_fingerprint),
        cmocka_unit_test(test_ranks_of_large_counts),
        cmocka_unit_test(test_stratified_refusals),
        cmocka_unit_test(test_folds_are_disjoint_and_cover_everything),
        cmocka_unit_test(test_folds_are_random),
        cmocka_unit_test(test_fold_refusals),
        cmocka_unit_test(test_split_looks_into_a_concat),
        cmocka_unit_test(test_split_refuses_a_subset_that_repeats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * test_order_classes.c: classes by label, and what is drawn from them: balance
 * and weighted.
 */
#include "order_model.h"

#include "base/fault.h"
#include "budget_util.h"

#include <time.h>

static void label_with(uint64_t classes, uint64_t run, uint64_t salt) {
    labelled.classes = classes;
    labelled.run = run;
    labelled.salt = salt;
    labelled.calls = labelled.most = 0;
}

static const struct brim__classes *classes_of(struct brim__order *order, uint64_t count) {
    const struct brim__classes *classes = NULL;
    const struct brim__order_site site = site_of(order, 0);
    brim__order_init(order);
    assert_int_equal(brim__order_leaf(order, 0, count), BRIM_OK);
    assert_int_equal(brim__classes_read(&site, "test", "label", &classes), BRIM_OK);
    return classes;
}

/* ----------------------------------------------------------------- classes */

static void check_classes(const struct brim__classes *classes, uint64_t count) {
    static uint64_t position[MOST_LIST], begin[MOST_LIST + 1];
    assert_int_equal(classes->count, sort_by_class(count, position, begin));
    assert_int_equal(classes->samples, count);
    uint64_t smallest = UINT64_MAX, largest = 0;
    for (uint32_t c = 0; c < classes->count; c++) {
        const uint64_t size = brim__class_size(classes, c);
        assert_int_equal(classes->begin[c], begin[c]);
        assert_int_equal(size, begin[c + 1] - begin[c]);
        smallest = brim__min(smallest, size);
        largest = brim__max(largest, size);
        for (uint64_t k = 0; k < size; k++) {
            const uint64_t at = brim__class_member(classes, c, k);
            assert_true(at == position[begin[c] + k]);
            assert_true(label_at(at) == classes->label[c]);
            assert_true(brim__class_of_rank(classes, begin[c] + k) == c);
        }
    }
    assert_int_equal(classes->smallest, smallest);
    assert_int_equal(classes->largest, largest);
}

static void test_classes_equal_a_search(void **state) {
    (void)state;
    int runs = 0, tables = 0;
    for (uint64_t i = 0; i < 300; i++) {
        struct brim__order order;
        pick_state = i;
        const uint64_t count = 1 + pick(i % 10 == 0 ? MOST_LIST - 1 : 200);
        forget_tables();
        label_with(1 + pick(i % 7 == 0 ? 400 : 9), 1 + pick(i % 2 == 0 ? 1 : 60), i);
        const struct brim__classes *classes = classes_of(&order, count);
        check_classes(classes, count);
        runs += classes->run != NULL;
        tables += classes->narrow != NULL;
        assert_true((classes->run != NULL) != (classes->narrow != NULL));
    }
    assert_true(runs > 50 && tables > 50);
}

/* Runs while they are few, a table when they are not; each reads every label
 * once, some at a time. */
static void test_memory_of_classes(void **state) {
    (void)state;
    enum { COUNT = 2000000 };
    static const uint64_t lengths[] = { 10000, 50, 1 };
    for (size_t i = 0; i < BRIM__COUNT(lengths); i++) {
        struct brim__order order;
        struct brim__arena arena;
        const struct brim__classes *classes = NULL;
        struct brim__order_site site = site_of(&order, 0);
        brim_budget *root = new_root(64 * MIB);
        brim__arena_init(&arena, root);
        site.arena = &arena;
        label_with(100, lengths[i], i);
        brim__order_init(&order);
        brim__order_leaf(&order, 0, COUNT);
        const uint64_t before = read_info(root).charged;
        assert_int_equal(brim__classes_read(&site, "test", "label", &classes), BRIM_OK);
        assert_int_equal(labelled.calls, (COUNT + 4095) / 4096);
        assert_int_equal(labelled.most, 4096);
        assert_true(classes->count <= 100 && (lengths[i] == 10000 || classes->count == 100));
        /* nothing but the arena is left */
        assert_int_equal(read_info(root).charged - before, arena.bytes);
        const uint64_t peak = read_info(root).peak - before;
        if (lengths[i] == 1) {
            assert_non_null(classes->narrow);
            assert_true(arena.bytes < 4ull * COUNT + 64 * KIB);
            assert_true(peak < 4ull * COUNT + 16ull * BRIM__CLASS_RUNS + 128 * KIB);
        } else {
            assert_non_null(classes->run);
            assert_true(arena.bytes < COUNT / lengths[i] * 16 + 64 * KIB);
            /* a list of runs that is copied as it doubles, and a block of labels */
            assert_true(peak < COUNT / lengths[i] * 16 * 3 + 128 * KIB);
        }
        uint64_t met = 0;
        for (uint32_t c = 0; c < classes->count; c++) {
            met += brim__class_size(classes, c);
            for (uint64_t k = 0; k < brim__class_size(classes, c); k += 11) {
                const uint64_t at = brim__class_member(classes, c, k);
                assert_true(label_at(at) == classes->label[c]);
                assert_true(k == 0 || at > brim__class_member(classes, c, k - 1));
            }
        }
        assert_int_equal(met, COUNT);
        brim__arena_fini(&arena);
        brim_budget_free(root);
    }
}

static brim_status own_labels(void *user, const char *field, uint64_t first, uint64_t count,
                              int64_t *labels) {
    (void)field;
    const int64_t *all = user;
    for (uint64_t i = 0; i < count; i++) {
        labels[i] = all == NULL ? (int64_t)(first + i) : all[first + i];
    }
    return BRIM_OK;
}

static void test_extreme_labels(void **state) {
    (void)state;
    int64_t labels[] = { 0, INT64_MAX, -1, INT64_MIN, 5, INT64_MIN, 0, INT64_MAX, 1 };
    static const int64_t wanted[] = { INT64_MIN, -1, 0, 1, 5, INT64_MAX };
    struct brim__order order;
    const struct brim__classes *classes = NULL;
    struct brim__order_site site = site_of(&order, 0);
    forget_tables();
    site.labels = own_labels;
    site.user = labels;
    brim__order_init(&order);
    brim__order_leaf(&order, 0, BRIM__COUNT(labels));
    assert_int_equal(brim__classes_read(&site, "test", "y", &classes), BRIM_OK);
    assert_int_equal(classes->count, BRIM__COUNT(wanted));
    assert_memory_equal(classes->label, wanted, sizeof wanted);
    assert_int_equal(brim__class_member(classes, 0, 0), 3);
    assert_int_equal(brim__class_member(classes, 0, 1), 5);
    assert_int_equal(brim__class_member(classes, 5, 1), 7);
}

static void test_most_classes(void **state) {
    (void)state;
    for (uint64_t over = 0; over < 2; over++) {
        struct brim__order order;
        const struct brim__classes *classes = NULL;
        struct brim__order_site site = site_of(&order, 0);
        forget_tables();
        site.labels = own_labels;
        brim__order_init(&order);
        brim__order_leaf(&order, 0, BRIM__CLASS_MOST + over);
        assert_int_equal(brim__classes_read(&site, "balance", "y", &classes),
                         over == 0 ? BRIM_OK : BRIM_STATUS_UNSUPPORTED);
        assert_int_equal(order.fingerprint == 0, over == 1);
    }
    assert_non_null(strstr(brim_detail(), "balance: field 'y' has more than 1048576"));
    forget_tables();
}

/* ----------------------------------------------------------------- balance */

static brim_status balance_of(struct brim__order *order, uint64_t count, uint64_t length,
                              double seed) {
    const struct brim__order_site site = site_of(order, 77);
    const struct given given[] = { { .text = "label" },
                                   { .number = (double)length },
                                   { .number = seed } };
    brim__order_init(order);
    assert_int_equal(brim__order_leaf(order, 0, count), BRIM_OK);
    return add_given(&brim__stage_balance, &site, given);
}

static uint32_t class_at(uint64_t position) {
    return (uint32_t)(label_at(position) / 1000000007 + 2);
}

static void test_balance_is_exact(void **state) {
    (void)state;
    for (uint64_t i = 0; i < 120; i++) {
        struct brim__order order;
        pick_state = i;
        const uint64_t count = 1 + pick(i % 5 == 0 ? 2000 : 150);
        forget_tables();
        label_with(1 + pick(12), 1 + pick(i % 2 == 0 ? 1 : 25), i);
        const struct brim__classes *classes = classes_of(&order, count);
        const uint64_t class_count = classes->count, largest = classes->largest;
        assert_int_equal(balance_of(&order, count, 0, (double)i), BRIM_OK);
        const uint64_t length = brim__order_count(&order);
        assert_int_equal(length, class_count * largest);
        struct brim__location *places = calloc(length, sizeof *places);
        uint32_t *times = calloc(count, sizeof *times);
        assert_true(places != NULL && times != NULL);
        const uint64_t passes = brim__divide_up(largest, classes->smallest);
        brim__order_locate(&order, 3, 0, length, places);
        for (uint64_t p = 0; p < length; p += class_count) {
            uint32_t shown[16] = { 0 };
            for (uint64_t k = p; k < p + class_count; k++) {
                shown[class_at(places[k].sample)]++;
                const uint64_t sample = places[k].sample;
                /* no second time before the class's next pass, which is an epoch below */
                assert_true(places[k].epoch >= 3 * passes && places[k].epoch < 4 * passes);
                assert_true(times[sample]++ == places[k].epoch - 3 * passes);
            }
            for (uint32_t c = 0; c < 16; c++) {
                assert_true(shown[c] <= 1); /* so each of them once */
            }
        }
        for (uint64_t s = 0; s < count; s++) {
            assert_true(times[s] > 0);
        }
        free(places);
        free(times);
    }
}

static void test_balance_is_new_in_every_epoch(void **state) {
    (void)state;
    struct brim__order order, other;
    struct brim__location a[1000], b[1000], c[1000];
    label_with(7, 1, 4);
    forget_tables();
    assert_int_equal(balance_of(&order, 5000, 1000, 1), BRIM_OK);
    assert_int_equal(balance_of(&other, 5000, 1000, 2), BRIM_OK);
    assert_int_equal(brim__order_count(&order), 1000);
    brim__order_locate(&order, 0, 0, 1000, a);
    brim__order_locate(&order, 1, 0, 1000, b);
    brim__order_locate(&other, 0, 0, 1000, c);
    int samples[2] = { 0 }, classes[2] = { 0 };
    for (int i = 0; i < 1000; i++) {
        samples[0] += a[i].sample == b[i].sample;
        samples[1] += a[i].sample == c[i].sample;
        classes[0] += class_at(a[i].sample) == class_at(b[i].sample);
        classes[1] += class_at(a[i].sample) == class_at(c[i].sample);
    }
    for (int k = 0; k < 2; k++) {
        assert_true(samples[k] < 30);
        assert_true(classes[k] > 80 && classes[k] < 220); /* one in seven */
    }
    assert_true(brim__order_jumps(&order));
}

static void test_balance_refusals(void **state) {
    (void)state;
    struct brim__order order;
    label_with(3, 1, 4);
    forget_tables();
    assert_int_equal(balance_of(&order, 0, 5, 1), BRIM_STATUS_INVALID);
    assert_non_null(strstr(brim_detail(), "balance: there are no samples"));
    const struct brim__order_site site = site_of(&order, 0);
    const struct given given[] = { { .text = "label" }, { .number = 0 }, { .number = 0 } };
    brim__order_init(&order);
    brim__order_leaf(&order, 0, 100);
    brim__order_shuffle(&order, 0, 0, true);
    assert_int_equal(add_given(&brim__stage_balance, &site, given), BRIM_STATUS_INVALID);
    assert_non_null(strstr(brim_detail(), "balance: after a shuffle"));
    assert_int_equal(balance_of(&order, 100, 5, 1), BRIM_OK);
    assert_int_equal(add_given(&brim__stage_balance, &site, given), BRIM_STATUS_INVALID);
    assert_non_null(strstr(brim_detail(), "balance: after balance"));
    /* classes that no memory could hold, so that the length overflows */
    const struct brim__classes huge = {
        .count = 1000, .samples = (uint64_t)1 << 62, .smallest = 1, .largest = (uint64_t)1 << 61
    };
    const struct brim__sampling *sampling;
    assert_int_equal(brim__sampling_balanced(&site, &huge, 0, &sampling), BRIM_STATUS_INVALID);
    assert_non_null(strstr(brim_detail(), "give a length"));
    assert_int_equal(brim__sampling_balanced(&site, &huge, 5, &sampling), BRIM_OK);
}

/* ---------------------------------------------------------------- weighted */

static brim_status weighted_of(struct brim__order *order, uint64_t count, const double *weights,
                               size_t weight_count, uint64_t length, double seed) {
    const struct brim__order_site site = site_of(order, 77);
    const struct given given[] = {
        { .text = "label" },
        { .list = weights, .count = weight_count, .absent = weights == NULL },
        { .number = (double)length },
        { .number = seed },
    };
    brim__order_init(order);
    assert_int_equal(brim__order_leaf(order, 0, count), BRIM_OK);
    return add_given(&brim__stage_weighted, &site, given);
}

/* Draws by class over some epochs. */
static void draws_by_class(const struct brim__order *order, uint64_t *draws, uint64_t *total) {
    static struct brim__location places[4000];
    const uint64_t length = brim__order_count(order);
    assert_true(length <= BRIM__COUNT(places));
    *total = 0;
    for (uint64_t epoch = 0; epoch < 50; epoch++) {
        brim__order_locate(order, epoch, 0, length, places);
        for (uint64_t i = 0; i < length; i++) {
            draws[class_at(places[i].sample)]++;
            assert_int_equal(places[i].epoch, epoch * length + i);
        }
        *total += length;
    }
}

static void test_weighted_draws_by_weight(void **state) {
    (void)state;
    static const double sets[][4] = { { 1, 2, 5, 0 },
                                      { 0, 0.25, 0, 0.75 },
                                      { 1, 1, 1, 1 },
                                      { 1e-9, 3, 3, 1e-9 },
                                      { 1e300, 1e300, 0, 0 } };
    label_with(4, 1, 9);
    for (size_t s = 0; s < BRIM__COUNT(sets); s++) {
        struct brim__order order;
        uint64_t draws[16] = { 0 }, total;
        double sum = 0;
        forget_tables();
        assert_int_equal(weighted_of(&order, 3000, sets[s], 4, 4000, (double)s), BRIM_OK);
        assert_int_equal(brim__order_count(&order), 4000);
        draws_by_class(&order, draws, &total);
        for (int c = 0; c < 4; c++) {
            sum += sets[s][c];
        }
        for (int c = 0; c < 4; c++) {
            const double share = sets[s][c] / sum;
            const double error = (double)draws[c] - share * (double)total;
            assert_true(fabs(error) <= 5 * sqrt(share * (1 - share) * (double)total) + 1e-3);
        }
    }
}

/* Without weights all classes are alike, and the members of each too. */
static void test_weighted_without_weights(void **state) {
    (void)state;
    enum { COUNT = 60 };
    struct brim__order order;
    uint64_t times[COUNT] = { 0 }, sizes[16] = { 0 };
    struct brim__location places[COUNT];
    label_with(3, 1, 2);
    forget_tables();
    assert_int_equal(weighted_of(&order, COUNT, NULL, 0, 0, 5), BRIM_OK);
    assert_int_equal(brim__order_count(&order), COUNT);
    for (uint64_t epoch = 0; epoch < 3000; epoch++) {
        brim__order_locate(&order, epoch, 0, COUNT, places);
        for (int i = 0; i < COUNT; i++) {
            times[places[i].sample]++;
        }
    }
    for (uint64_t i = 0; i < COUNT; i++) {
        sizes[class_at(i)]++;
    }
    for (uint64_t i = 0; i < COUNT; i++) {
        const double wanted = 3000.0 * COUNT / 3 / (double)sizes[class_at(i)];
        assert_true(fabs((double)times[i] - wanted) < 5 * sqrt(wanted));
    }
}

static void test_weighted_refusals(void **state) {
    (void)state;
    struct brim__order order;
    const double bad[][4] = {
        { 1, 2, 3, -1 }, { 0, 0, 0, 0 }, { 1, (double)NAN, 1, 1 }, { 1, (double)INFINITY, 1, 1 }
    };
    label_with(4, 1, 9);
    for (size_t i = 0; i < BRIM__COUNT(bad); i++) {
        forget_tables();
        assert_int_equal(weighted_of(&order, 300, bad[i], 4, 0, 0), BRIM_STATUS_INVALID);
        assert_int_equal(order.op_count, 1);
    }
    assert_non_null(strstr(brim_detail(), "weight 2 is inf"));
    assert_int_equal(weighted_of(&order, 300, bad[0], 3, 0, 0), BRIM_STATUS_INVALID);
    assert_non_null(strstr(brim_detail(), "3 weights for 4 classes"));
    assert_int_equal(weighted_of(&order, 0, NULL, 0, 10, 0), BRIM_STATUS_INVALID);
    forget_tables();
}

/* ------------------------------------------------------- faults, all stages */

static brim_status add_all(const struct brim__order_site *site, size_t which) {
    static const double weights[] = { 1, 2, 3, 4 };
    const struct given balance[] = { { .text = "label" }, { .number = 0 }, { .number = 0 } };
    const struct given weighted[] = {
        { .text = "label" }, { .list = weights, .count = 4 }, { .number = 0 }, { .number = 0 }
    };
    const struct given split[] = {
        { .number = 0 }, { .number = 0.1 }, { .number = 0 }, { .number = 0 }, { .text = "label" }
    };
    const struct given fold[] = {
        { .number = 0 }, { .number = 5 }, { .number = 0 }, { .text = "label" }, { .number = 0 }
    };
    switch (which) {
    case 0:
        return add_given(&brim__stage_balance, site, balance);
    case 1:
        return add_given(&brim__stage_weighted, site, weighted);
    case 2:
        return add_given(&brim__stage_split, site, split);
    default:
        return add_given(&brim__stage_fold, site, fold);
    }
}

static int failing_call; /* of failing_labels, from 1 */
static brim_status failing_labels(void *user, const char *field, uint64_t first, uint64_t count,
                                  int64_t *labels) {
    return --failing_call == 0
               ? brim__fail(BRIM_STATUS_CORRUPT, "sample %llu: bad", (unsigned long long)first)
               : label_run(user, field, first, count, labels);
}

/* Every refusal of memory, a failing read, a budget that is too small: refused,
 * nothing is added and nothing is left. */
static void test_faults(void **state) {
    (void)state;
    static const unsigned kinds[] = { 1u << BRIM__FAULT_ALLOC, 1u << BRIM__FAULT_MAP };
    enum { COUNT = 20000 };
    brim_budget *root = new_root(8 * MIB);
    const uint64_t before = read_info(root).charged;
    for (size_t i = 0; i < 4 * 2 * BRIM__COUNT(kinds); i++) {
        brim_status status = BRIM_STATUS_END;
        uint64_t nth = 0;
        label_with(4, i % 2 == 0 ? 1 : 500, 3); /* a table, or runs */
        while (status != BRIM_OK) {
            struct brim__order order;
            struct brim__arena arena;
            struct brim__order_site site = site_of(&order, 0);
            brim__arena_init(&arena, root);
            site.arena = &arena;
            brim__order_init(&order);
            brim__order_leaf(&order, 0, COUNT);
            brim__fault_arm(kinds[i / 8], ++nth, false);
            status = add_all(&site, i / 2 % 4);
            assert_int_equal(status == BRIM_OK, brim__fault_injected() == 0);
            assert_int_equal(order.op_count, status == BRIM_OK ? 2 : 1);
            brim__fault_arm(0, 0, false);
            brim__arena_fini(&arena);
            assert_int_equal(read_info(root).charged, before);
            assert_true(nth < 30);
        }
        assert_true(nth > 1);
    }
    for (int call = 1; call <= 5; call++) {
        struct brim__order order;
        struct brim__arena arena;
        struct brim__order_site site = site_of(&order, 0);
        brim__arena_init(&arena, root);
        site.arena = &arena;
        site.labels = failing_labels;
        failing_call = call;
        brim__order_init(&order);
        brim__order_leaf(&order, 0, COUNT);
        assert_int_equal(add_all(&site, 0), BRIM_STATUS_CORRUPT);
        assert_non_null(strstr(brim_detail(), "balance: sample "));
        brim__arena_fini(&arena);
        assert_int_equal(read_info(root).charged, before);
    }
    brim_budget_free(root);
}

static void test_small_budget(void **state) {
    (void)state;
    enum { COUNT = 1000000 }; /* a table of 4 MB */
    static const uint64_t rooms[] = { 2 * MIB, 6 * MIB };
    label_with(4, 1, 3);
    for (size_t i = 0; i < BRIM__COUNT(rooms); i++) {
        struct brim__order order;
        struct brim__arena arena;
        struct brim__order_site site = site_of(&order, 0);
        brim_budget *root = new_root(rooms[i]);
        brim__arena_init(&arena, root);
        site.arena = &arena;
        brim__order_init(&order);
        brim__order_leaf(&order, 0, COUNT);
        const brim_status status = add_all(&site, 0);
        assert_int_equal(status, i == 0 ? BRIM_STATUS_BUDGET : BRIM_OK);
        if (i == 0) {
            assert_non_null(strstr(brim_detail(), "a table of 4 bytes a sample"));
        }
        brim__arena_fini(&arena);
        brim_budget_free(root);
    }
}

/* What they show is part of the format: a resumed run must meet it again. */
static void test_orders_are_stable(void **state) {
    (void)state;
    static const uint64_t known[4] = { 0x437c0227043dabe5u, 0x970147f829880286u,
                                       0x5705cee6dfb07504u, 0xf0ca474a73b6d45au };
    for (size_t which = 0; which < 4; which++) {
        struct brim__order order;
        const struct brim__order_site site = site_of(&order, 5);
        struct brim__location places[100];
        uint64_t hash = 0;
        forget_tables();
        label_with(4, 3, 7);
        brim__order_init(&order);
        brim__order_leaf(&order, 0, 1000);
        assert_int_equal(add_all(&site, which), BRIM_OK);
        brim__order_locate(&order, 2, 50, 100, places);
        for (size_t i = 0; i < 100; i++) {
            hash = brim__hash_words(hash, places[i].sample, places[i].epoch);
        }
        assert_int_equal(hash, known[which]);
    }
}

/* -------------------------------------------------------------------- cost */

static double seconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* A sample is found in a table or among runs, never by walking through them. */
static void test_cost_does_not_grow_with_the_count(void **state) {
    (void)state;
    for (size_t which = 0; which < 4; which++) {
        double least[2] = { 1e9, 1e9 };
        for (int k = 0; k < 2; k++) {
            struct brim__order order;
            const struct brim__order_site site = site_of(&order, 0);
            forget_tables();
            label_with(4, 20, 1);
            brim__order_init(&order);
            brim__order_leaf(&order, 0, k == 0 ? 20000 : 400000);
            assert_int_equal(add_all(&site, which), BRIM_OK);
            const uint64_t step = brim__order_count(&order) / 50;
            for (int attempt = 0; attempt < 7; attempt++) {
                struct brim__location places[64];
                const double begin = seconds();
                for (uint64_t i = 0; i < 49; i++) {
                    brim__order_locate(&order, i, i * step, 64, places);
                }
                least[k] = fmin(least[k], seconds() - begin);
            }
        }
        assert_true(least[1] < 8 * least[0]);
    }
    forget_tables();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_classes_equal_a_search),
        cmocka_unit_test(test_memory_of_classes),
        cmocka_unit_test(test_extreme_labels),
        cmocka_unit_test(test_most_classes),
        cmocka_unit_test(test_balance_is_exact),
        cmocka_unit_test(test_balance_is_new_in_every_epoch),
        cmocka_unit_test(test_balance_refusals),
        cmocka_unit_test(test_weighted_draws_by_weight),
        cmocka_unit_test(test_weighted_without_weights),
        cmocka_unit_test(test_weighted_refusals),
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_small_budget),
        cmocka_unit_test(test_orders_are_stable),
        cmocka_unit_test(test_cost_does_not_grow_with_the_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

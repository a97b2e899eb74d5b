/*
 * test_loaders.c: several loaders in one budget, and what is lent and copied.
 *
 * Two loaders run at their joint minimum, where nothing is elastic and every
 * mistake in what belongs to whom would be a deadlock or a refusal. The group's
 * alarm ends a test that hangs.
 */
#include "support/memory_data.h"
#include "support/memory_watch.h"

#include "engine/loader.h"
#include "memory/budget.h"

#include <stdio.h>
#include <string.h>

#define SWITCHES (is_thread_sanitized() ? 200u : 1000u)

static char training[TEXT_BYTES], validation[TEXT_BYTES];

static int begin(void **state) {
    if (begin_memory_tests(state) != 0) {
        return -1;
    }
    recipe_text("npy", training);
    recipe_text("tokens", validation);
    return 0;
}

/* The smallest limit in which both open. */
static uint64_t joint_minimum(int32_t threads, const brim_open_options *a,
                              const brim_open_options *b) {
    return plan_alone(threads, training, a).minimum_bytes +
           plan_alone(threads, validation, b).minimum_bytes - empty_runtime_bytes();
}

static brim_stats stats_of(brim_loader *loader) {
    brim_stats stats = BRIM_STATS_INIT;
    assert_int_equal(brim_loader_read_stats(loader, &stats), BRIM_OK);
    return stats;
}

/* ------------------------------------------------------------- two loaders */

struct pair {
    brim_runtime *runtime;
    brim_loader *a, *b;
};

static struct pair open_pair(int32_t threads, uint64_t above_minimum) {
    const brim_open_options a = open_options("training"), b = open_options("validation");
    struct pair pair = { 0 };
    pair.runtime = make_runtime(threads, joint_minimum(threads, &a, &b) + above_minimum);
    pair.a = open_on(pair.runtime, training, &a).loader;
    pair.b = open_on(pair.runtime, validation, &b).loader;
    return pair;
}

static void close_pair(struct pair *pair) {
    check_budget(pair->runtime);
    brim_loader_close(pair->a);
    brim_loader_close(pair->b);
    assert_int_equal(brim_runtime_trim(pair->runtime, NULL), BRIM_OK);
    assert_int_equal(usage_of(pair->runtime).charged, empty_runtime_bytes());
    brim_runtime_free(pair->runtime);
}

static const uint64_t above[] = { 0, 20000, 400000, 2000000 };
#define ABOVE (sizeof above / sizeof above[0])

static void test_two_loaders_in_one_thread(void **state) {
    (void)state;
    for (unsigned way = 0; way < 2 * ABOVE; way++) {
        struct pair pair = open_pair(way % 2 ? 2 : 0, above[way / 2]);
        struct digest a = { 0 }, b = { 0 };
        uint64_t random = way + 1;
        for (unsigned i = 0; i < SWITCHES / (2 * ABOVE); i++) {
            assert_true(
                take_more(i % 2 ? pair.a : pair.b, next_random(&random) % 3, i % 2 ? &a : &b));
        }
        assert_same(a, first_batches(training, a.batches));
        assert_same(b, first_batches(validation, b.batches));
        close_pair(&pair);
    }
}

struct taker {
    brim_loader *loader;
    uint64_t batches;
    struct digest digest;
    bool good;
};

static void *take_in_thread(void *argument) {
    struct taker *taker = argument;
    taker->good = take_more(taker->loader, taker->batches, &taker->digest);
    return NULL;
}

static void test_two_loaders_in_two_threads(void **state) {
    (void)state;
    for (unsigned way = 0; way < 2 * ABOVE; way++) {
        struct pair pair = open_pair(way % 2 ? 2 : 0, above[way / 2]);
        struct taker taker[2] = { { .loader = pair.a, .batches = SWITCHES / 2 },
                                  { .loader = pair.b, .batches = SWITCHES / 2 } };
        pthread_t thread[2];
        for (int i = 0; i < 2; i++) {
            assert_int_equal(pthread_create(&thread[i], NULL, take_in_thread, &taker[i]), 0);
        }
        for (int i = 0; i < 2; i++) {
            pthread_join(thread[i], NULL);
            assert_true(taker[i].good);
        }
        assert_same(taker[0].digest, first_batches(training, SWITCHES / 2));
        assert_same(taker[1].digest, first_batches(validation, SWITCHES / 2));
        close_pair(&pair);
    }
}

static void test_joint_minimum_is_exact(void **state) {
    (void)state;
    const brim_open_options a = open_options("training"), b = open_options("validation");
    brim_runtime *runtime = make_runtime(0, joint_minimum(0, &a, &b) - 1);
    struct session first = open_on(runtime, training, &a);
    const uint64_t charged = usage_of(runtime).charged;
    brim_loader *second = NULL;
    assert_int_equal(try_open(runtime, validation, &b, &second), BRIM_STATUS_BUDGET);
    assert_null(second);
    assert_int_equal(usage_of(runtime).charged, charged);
    check_budget(runtime);
    brim_loader_close(first.loader);
    brim_runtime_free(runtime);
}

/* Refused by its tables (nothing is left) or by its slots (some is). */
static void test_a_third_is_refused_and_fits_later(void **state) {
    (void)state;
    for (int way = 0; way < 2; way++) {
        struct pair pair = open_pair(0, way == 0 ? 0 : 50000);
        const brim_open_options options = open_options("newcomer");
        brim_loader *third = NULL;
        const uint64_t charged = usage_of(pair.runtime).charged;
        assert_int_equal(try_open(pair.runtime, training, &options, &third), BRIM_STATUS_BUDGET);
        assert_null(third);
        assert_detail_has("training ");
        assert_detail_has("validation ");
        if (way == 1) {
            assert_detail_has("newcomer");
        }
        assert_int_equal(usage_of(pair.runtime).charged, charged);
        assert_int_equal(usage_of(pair.runtime).loaders, 2);

        struct digest digest = { 0 };
        brim_loader_close(pair.a);
        pair.a = open_on(pair.runtime, training, &options).loader;
        assert_true(take_more(pair.a, 10, &digest));
        assert_same(digest, first_batches(training, 10));
        close_pair(&pair);
    }
}

/* -------------------------------------------------------------- giving way */

/* A training loader that has taken all there is. */
static struct session open_greedy(int32_t threads, uint64_t *minimum_of_other) {
    const brim_open_options other = open_options("validation");
    brim_open_options options = open_options("training");
    options.growth = BRIM_GROWTH_FIXED;
    options.slots = 64;
    *minimum_of_other =
        plan_alone(threads, validation, &other).minimum_bytes - empty_runtime_bytes();
    const brim_plan_info info = plan_alone(threads, training, &options);
    /* more in slots than in workers, so that slots go first */
    const uint64_t workers = (uint64_t)threads * (info.stack_bytes + info.scratch_bytes);
    brim_runtime *runtime =
        make_runtime(threads, info.minimum_bytes + 2 * workers + 3 * *minimum_of_other / 2);
    struct session session = open_on(runtime, training, &options);
    assert_true(brim__budget_free_now(brim_runtime_budget(runtime), BRIM_MEMORY_HOST) <
                *minimum_of_other);
    assert_true(brim__budget_available(brim_runtime_budget(runtime), BRIM_MEMORY_HOST) >=
                *minimum_of_other);
    return session;
}

static void test_elastic_memory_gives_way_to_a_minimum(void **state) {
    (void)state;
    const brim_open_options options = open_options("validation");
    for (int32_t threads = 0; threads <= 2; threads += 2) {
        uint64_t minimum;
        struct session greedy = open_greedy(threads, &minimum);
        struct digest a = { 0 }, b = { 0 };
        assert_true(take_more(greedy.loader, 7, &a));
        brim_batch *held = take_batch(&greedy);
        digest_batch(&a, held);
        for (int i = 0; i < 5; i++) {
            struct session other = open_on(greedy.runtime, validation, &options);
            assert_true(take_more(other.loader, 3, &b));
            check_budget(greedy.runtime);
            brim_loader_close(other.loader);
        }
        brim_batch_release(held);
        assert_true(stats_of(greedy.loader).revoked > 0);
        assert_true(take_more(greedy.loader, 25, &a));
        assert_same(a, first_batches(training, 33));
        check_budget(greedy.runtime);
        brim_loader_close(greedy.loader);
        brim_runtime_free(greedy.runtime);
    }
}

static void test_giving_way_while_batches_are_taken(void **state) {
    (void)state;
    const brim_open_options options = open_options("validation");
    for (int32_t threads = 0; threads <= 2; threads += 2) {
        uint64_t minimum;
        struct session greedy = open_greedy(threads, &minimum);
        struct taker taker = { .loader = greedy.loader, .batches = SWITCHES };
        const struct digest wanted = first_batches(validation, 2);
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, take_in_thread, &taker), 0);
        for (int i = 0; i < 40; i++) {
            struct digest digest = { 0 };
            struct session other = open_on(greedy.runtime, validation, &options);
            assert_true(take_more(other.loader, 2, &digest));
            assert_same(digest, wanted);
            if (i % 8 == 0) {
                assert_int_equal(brim_runtime_trim(greedy.runtime, NULL), BRIM_OK);
            }
            brim_loader_close(other.loader);
        }
        pthread_join(thread, NULL);
        assert_true(taker.good);
        assert_same(taker.digest, first_batches(training, SWITCHES));
        check_budget(greedy.runtime);
        brim_loader_close(greedy.loader);
        brim_runtime_free(greedy.runtime);
    }
}

/* ----------------------------------------------------------- users' budgets */

static void test_a_users_charge_makes_loaders_give_way(void **state) {
    (void)state;
    for (int32_t threads = 0; threads <= 2; threads += 2) {
        uint64_t minimum;
        struct session greedy = open_greedy(threads, &minimum);
        brim_budget *root = brim_runtime_budget(greedy.runtime), *model = NULL;
        struct digest digest = { 0 };
        assert_true(take_more(greedy.loader, 5, &digest));
        assert_int_equal(brim_budget_new(root, "model", BRIM_UNLIMITED, 0, &model), BRIM_OK);
        const uint64_t most = brim__budget_available(model, BRIM_MEMORY_HOST);
        const uint64_t elastic = usage_of(greedy.runtime).elastic;
        assert_true(elastic > 0 && most > brim__budget_free_now(model, BRIM_MEMORY_HOST));
        assert_int_equal(brim_budget_charge(model, BRIM_MEMORY_HOST, most + 1), BRIM_STATUS_BUDGET);
        assert_detail_has("training");
        assert_detail_has("model");
        assert_int_equal(brim_budget_charge(model, BRIM_MEMORY_HOST, most), BRIM_OK);
        assert_int_equal(usage_of(greedy.runtime).elastic, 0);
        assert_true(take_more(greedy.loader, 20, &digest)); /* on its minimum */
        assert_int_equal(usage_of(greedy.runtime).elastic, 0);
        check_budget(greedy.runtime);
        brim_budget_uncharge(model, BRIM_MEMORY_HOST, most);
        assert_true(take_more(greedy.loader, 20, &digest));
        assert_same(digest, first_batches(training, 45));

        /* a minimum that is set aside takes memory as a charge does */
        brim_budget_free(model);
        assert_int_equal(brim_budget_new(root, "model", most, most, &model), BRIM_OK);
        assert_int_equal(usage_of(greedy.runtime).elastic, 0);
        check_budget(greedy.runtime);
        brim_loader_close(greedy.loader);
        brim_budget_free(model);
        brim_runtime_free(greedy.runtime);
    }
}

static void test_a_loader_obeys_the_budget_it_is_opened_in(void **state) {
    (void)state;
    for (int32_t threads = 0; threads <= 2; threads += 2) {
        brim_runtime *runtime = make_runtime(threads, 0);
        brim_budget *share = NULL;
        brim_budget_info info = BRIM_BUDGET_INFO_INIT;
        brim_open_options options = open_options("training");
        options.growth = BRIM_GROWTH_FIXED;
        options.slots = 16;
        const uint64_t needs =
            plan_alone(threads, training, &options).minimum_bytes - empty_runtime_bytes();
        const uint64_t slot = plan_alone(threads, training, &options).slot_bytes;
        assert_int_equal(
            brim_budget_new(brim_runtime_budget(runtime), "share", needs + 2 * slot, 0, &share),
            BRIM_OK);
        options.budget = share;
        struct session session = open_on(runtime, training, &options);
        struct digest digest = { 0 };
        assert_true(take_more(session.loader, 30, &digest));
        assert_same(digest, first_batches(training, 30));
        assert_int_equal(brim_budget_read(share, BRIM_MEMORY_HOST, &info), BRIM_OK);
        assert_true(info.peak <= needs + 2 * slot && info.charged >= needs);
        check_budget(runtime);

        /* beside it there is no room in the share, but in the runtime there is */
        brim_loader *other = NULL;
        options.label = "validation";
        options.slots = 0;
        assert_int_equal(try_open(runtime, validation, &options, &other), BRIM_STATUS_BUDGET);
        assert_detail_has("training");
        options.budget = NULL;
        other = open_on(runtime, validation, &options).loader;
        brim_loader_close(other);
        brim_loader_close(session.loader);
        assert_int_equal(brim_budget_read(share, BRIM_MEMORY_HOST, &info), BRIM_OK);
        assert_int_equal(info.charged, 0);
        brim_budget_free(share);

        assert_int_equal(
            brim_budget_new(brim_runtime_budget(runtime), "share", needs - 1, 0, &share), BRIM_OK);
        options.budget = share;
        options.slots = 16;
        assert_int_equal(try_open(runtime, training, &options, &other), BRIM_STATUS_BUDGET);
        brim_budget_free(share);
        brim_runtime_free(runtime);
    }
}

/* -------------------------------------------------------- lent and copied */

static void test_holding_more_than_hold(void **state) {
    (void)state;
    for (uint32_t hold = 1; hold <= 3; hold++) {
        brim_runtime *runtime = make_runtime(hold == 2 ? 2 : 0, 0);
        brim_open_options options = open_options(NULL);
        options.hold = hold;
        struct session session = open_on(runtime, validation, &options);
        struct digest digest = { 0 };
        brim_batch *held[4] = { 0 };
        char text[64];
        for (uint32_t i = 0; i < hold; i++) {
            held[i] = take_batch(&session);
            digest_batch(&digest, held[i]);
        }
        for (int again = 0; again < 3; again++) {
            assert_int_equal(brim_loader_next(session.loader, BRIM_FOREVER, &held[3]),
                             BRIM_STATUS_HELD);
            for (uint32_t i = 0; i < hold; i++) {
                snprintf(text, sizeof text, "epoch 0 step %u", i);
                assert_detail_has(text);
            }
            brim_loader_detail(session.loader, text, sizeof text);
            assert_int_equal(strncmp(text, brim_detail(), sizeof text - 1), 0);
        }
        assert_null(held[3]);
        assert_int_equal(stats_of(session.loader).lent, hold);
        brim_batch_release(held[0]);
        held[0] = take_batch(&session);
        digest_batch(&digest, held[0]);
        assert_same(digest, first_batches(validation, hold + 1));
        /* named in their order, whatever slots they lie in: the last one may lie in the first */
        assert_int_equal(brim_loader_next(session.loader, BRIM_FOREVER, &held[3]),
                         BRIM_STATUS_HELD);
        const char *last = brim_detail();
        for (uint32_t step = 1; step <= hold; step++) {
            snprintf(text, sizeof text, "epoch 0 step %u", step);
            last = strstr(last, text);
            assert_non_null(last);
        }
        for (uint32_t i = 0; i < hold; i++) {
            brim_batch_release(held[i]);
        }
        brim_loader_close(session.loader);
        brim_runtime_free(runtime);
    }
}

static void test_copies(void **state) {
    (void)state;
    const brim_open_options options = open_options("training");
    const brim_plan_info info = plan_alone(0, training, &options);
    const uint64_t copy_bytes =
        brim__align(info.slot_bytes + sizeof(brim_batch), brim__page_bytes());
    brim_runtime *runtime = make_runtime(0, info.minimum_bytes + copy_bytes);
    struct session session = open_on(runtime, training, &options);
    brim_batch *batch = take_batch(&session), *copy = NULL, *second = NULL;
    const struct digest wanted = digest_of(batch);
    const uint64_t charged = usage_of(runtime).charged;
    brim_state original, copied;

    assert_int_equal(brim_batch_copy(batch, &copy), BRIM_OK);
    assert_int_equal(usage_of(runtime).charged, charged + copy_bytes);
    assert_same(digest_of(copy), wanted);
    assert_ptr_not_equal(brim_batch_field_at(copy, 0)->data, brim_batch_field_at(batch, 0)->data);
    assert_int_equal(brim_batch_state(batch, &original), BRIM_OK);
    assert_int_equal(brim_batch_state(copy, &copied), BRIM_OK);
    assert_memory_equal(&original, &copied, sizeof original);
    assert_int_equal(brim_batch_copy(batch, &second), BRIM_STATUS_BUDGET);
    assert_int_equal(brim_batch_copy(copy, &second), BRIM_STATUS_BUDGET);
    assert_detail_has("training");
    assert_null(second);
    assert_int_equal(usage_of(runtime).charged, charged + copy_bytes);
    check_budget(runtime);

    brim_batch_release(batch); /* a copy is not held */
    batch = take_batch(&session);
    brim_batch_release(batch);
    brim_loader_close(session.loader);
    assert_same(digest_of(copy), wanted);
    assert_int_equal(brim_batch_copy(copy, &second), BRIM_OK); /* of a loader that is gone */
    assert_int_equal(usage_of(runtime).loaders, 0);
    assert_true(usage_of(runtime).charged >= 2 * copy_bytes);
    brim_runtime_free(runtime);
    brim_batch_release(copy);
    assert_same(digest_of(second), wanted);
    brim_batch_release(second);
}

/* A copy that fits only when elastic memory gives way. */
static void test_a_copy_takes_elastic_memory(void **state) {
    (void)state;
    uint64_t minimum;
    struct session greedy = open_greedy(2, &minimum);
    brim_batch *batch = take_batch(&greedy), *copy = NULL;
    struct digest digest = digest_of(batch);
    if (brim__budget_free_now(brim_runtime_budget(greedy.runtime), BRIM_MEMORY_HOST) < minimum) {
        assert_int_equal(brim_batch_copy(batch, &copy), BRIM_OK);
        assert_same(digest_of(copy), digest);
    }
    check_budget(greedy.runtime);
    brim_batch_release(copy);
    brim_batch_release(batch);
    assert_true(take_more(greedy.loader, 9, &digest));
    assert_same(digest, first_batches(training, 10));
    brim_loader_close(greedy.loader);
    brim_runtime_free(greedy.runtime);
}

static void test_batches_outlive_loader_and_runtime(void **state) {
    (void)state;
    for (int32_t threads = 0; threads <= 2; threads += 2) {
        for (int order = 0; order < 2; order++) {
            brim_runtime *runtime = make_runtime(threads, 0);
            const uint64_t empty = usage_of(runtime).charged;
            brim_open_options options = open_options("training");
            options.hold = 3;
            options.growth = BRIM_GROWTH_FIXED;
            struct session session = open_on(runtime, training, &options);
            brim_batch *held[3];
            struct digest wanted[3];
            for (int i = 0; i < 3; i++) {
                held[i] = take_batch(&session);
                wanted[i] = digest_of(held[i]);
            }
            const uint64_t slot = brim_plan_get(brim_loader_plan(session.loader))->slot_bytes;
            brim_loader_close(session.loader);
            brim_usage usage = usage_of(runtime);
            assert_true(usage.charged >= empty + 3 * slot);
            assert_int_equal(usage.loaders, 0);
            assert_int_equal(brim_runtime_trim(runtime, NULL), BRIM_OK);
            usage = usage_of(runtime);
            assert_true(usage.charged >= empty + 3 * slot);
            assert_int_equal(usage.elastic, 0); /* nobody could give it back */
            check_budget(runtime);
            if (order == 0) {
                brim_runtime_free(runtime);
            }
            for (int i = 2; i >= 0; i--) {
                assert_same(digest_of(held[i]), wanted[i]);
                brim_batch_release(held[i]);
            }
            if (order == 1) {
                assert_int_equal(usage_of(runtime).charged, empty);
                brim_runtime_free(runtime);
            }
        }
    }
}

/* A batch that is left, in a slot that was elastic, is promised to nobody. */
static void test_left_batches_count_as_taken(void **state) {
    (void)state;
    brim_open_options options = open_options("training");
    options.growth = BRIM_GROWTH_FIXED;
    const brim_plan_info info = plan_alone(2, training, &options);
    brim_runtime *runtime = make_runtime(2, info.planned_bytes);
    struct session session = open_on(runtime, training, &options);
    brim_batch *held = NULL;
    for (int i = 0; held == NULL || !held->slot->pages.elastic; i++) {
        assert_true(i < 100000);
        brim_batch_release(held);
        held = NULL;
        assert_true(brim_loader_next(session.loader, BRIM_FOREVER, &held) <= BRIM_STATUS_END);
    }
    const struct digest digest = digest_of(held);
    brim_loader_close(session.loader);
    assert_int_equal(brim_runtime_trim(runtime, NULL), BRIM_OK);
    assert_int_equal(usage_of(runtime).elastic, 0);
    assert_int_equal(brim__budget_available(brim_runtime_budget(runtime), BRIM_MEMORY_HOST),
                     brim__budget_free_now(brim_runtime_budget(runtime), BRIM_MEMORY_HOST));
    check_budget(runtime);
    assert_same(digest_of(held), digest);
    brim_batch_release(held);
    assert_int_equal(usage_of(runtime).charged, empty_runtime_bytes());
    brim_runtime_free(runtime);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_loaders_in_one_thread),
        cmocka_unit_test(test_two_loaders_in_two_threads),
        cmocka_unit_test(test_joint_minimum_is_exact),
        cmocka_unit_test(test_a_third_is_refused_and_fits_later),
        cmocka_unit_test(test_elastic_memory_gives_way_to_a_minimum),
        cmocka_unit_test(test_giving_way_while_batches_are_taken),
        cmocka_unit_test(test_a_users_charge_makes_loaders_give_way),
        cmocka_unit_test(test_a_loader_obeys_the_budget_it_is_opened_in),
        cmocka_unit_test(test_holding_more_than_hold),
        cmocka_unit_test(test_copies),
        cmocka_unit_test(test_a_copy_takes_elastic_memory),
        cmocka_unit_test(test_batches_outlive_loader_and_runtime),
        cmocka_unit_test(test_left_batches_count_as_taken),
    };
    return cmocka_run_group_tests(tests, begin, end_tests);
}

/*
 * test_loaders.c: several loaders in one budget, what is lent and copied, and
 * calls that are waited for, interrupted, timed out or closed from elsewhere.
 *
 * Two loaders run at their joint minimum, where nothing is elastic and every
 * mistake in what belongs to whom would be a deadlock or a refusal. The group's
 * alarm ends a test that hangs.
 */
#include "support/memory_data.h"
#include "support/memory_watch.h"

#include "base/fault.h"
#include "engine/loader.h"
#include "memory/budget.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define SWITCHES (is_thread_sanitized() ? 200u : 1000u)
#define CLOSINGS (is_thread_sanitized() ? 100u : 300u)

/* Between two threads, "at once" is well below this and well above what a
 * loaded machine needs to switch threads. */
#define AT_ONCE_NS UINT64_C(5000000000)

static char training[TEXT_BYTES], validation[TEXT_BYTES], gated[TEXT_BYTES];

static int begin(void **state) {
    if (begin_memory_tests(state) != 0) {
        return -1;
    }
    recipe_text("npy", training);
    recipe_text("tokens", validation);
    strcpy(gated, "callback @gated | batch 2");
    return 0;
}

/* The smallest limit in which both open. */
static uint64_t joint_minimum(int32_t threads, const brim_open_options *a,
                              const brim_open_options *b) {
    return plan_alone(threads, training, a).minimum_bytes +
           plan_alone(threads, validation, b).minimum_bytes - empty_runtime_bytes();
}

static void check_budget(brim_runtime *runtime) {
    const brim_usage usage = usage_of(runtime);
    assert_true(usage.peak <= usage.limit);
    brim__budget_check(brim_runtime_budget(runtime));
}

static brim_stats stats_of(brim_loader *loader) {
    brim_stats stats = BRIM_STATS_INIT;
    assert_int_equal(brim_loader_stats(loader, &stats), BRIM_OK);
    return stats;
}

static void assert_same(struct digest a, struct digest b) {
    assert_int_equal(a.batches, b.batches);
    assert_int_equal(a.value, b.value);
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
    assert_int_equal(try_open(runtime, validation, &b, &second), BRIM_BUDGET);
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
        assert_int_equal(try_open(pair.runtime, training, &options, &third), BRIM_BUDGET);
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
    options.growth = BRIM_FIXED;
    options.slots = 64;
    *minimum_of_other =
        plan_alone(threads, validation, &other).minimum_bytes - empty_runtime_bytes();
    const brim_plan_info info = plan_alone(threads, training, &options);
    brim_runtime *runtime =
        make_runtime(threads, info.minimum_bytes + 3 * *minimum_of_other / 2 + 4096);
    struct session session = open_on(runtime, training, &options);
    assert_true(brim__budget_free_now(brim_runtime_budget(runtime)) < *minimum_of_other);
    assert_true(brim__budget_available(brim_runtime_budget(runtime)) >= *minimum_of_other);
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
        assert_true(stats_of(greedy.loader).revoked > 0 || threads > 0);
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
        const uint64_t most = brim__budget_available(model);
        const uint64_t elastic = usage_of(greedy.runtime).elastic;
        assert_true(elastic > 0 && most > brim__budget_free_now(model));
        assert_int_equal(brim_budget_charge(model, BRIM_HOST, most + 1), BRIM_BUDGET);
        assert_detail_has("training");
        assert_detail_has("model");
        assert_int_equal(brim_budget_charge(model, BRIM_HOST, most), BRIM_OK);
        assert_int_equal(usage_of(greedy.runtime).elastic, 0);
        assert_true(take_more(greedy.loader, 20, &digest)); /* on its minimum */
        assert_int_equal(usage_of(greedy.runtime).elastic, 0);
        check_budget(greedy.runtime);
        brim_budget_uncharge(model, BRIM_HOST, most);
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
        options.growth = BRIM_FIXED;
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
        assert_int_equal(brim_budget_read(share, BRIM_HOST, &info), BRIM_OK);
        assert_true(info.peak <= needs + 2 * slot && info.charged >= needs);
        check_budget(runtime);

        /* beside it there is no room in the share, but in the runtime there is */
        brim_loader *other = NULL;
        options.label = "validation";
        options.slots = 0;
        assert_int_equal(try_open(runtime, validation, &options, &other), BRIM_BUDGET);
        assert_detail_has("training");
        options.budget = NULL;
        other = open_on(runtime, validation, &options).loader;
        brim_loader_close(other);
        brim_loader_close(session.loader);
        assert_int_equal(brim_budget_read(share, BRIM_HOST, &info), BRIM_OK);
        assert_int_equal(info.charged, 0);
        brim_budget_free(share);

        assert_int_equal(
            brim_budget_new(brim_runtime_budget(runtime), "share", needs - 1, 0, &share), BRIM_OK);
        options.budget = share;
        options.slots = 16;
        assert_int_equal(try_open(runtime, training, &options, &other), BRIM_BUDGET);
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
        struct session session = open_on(runtime, training, &options);
        struct digest digest = { 0 };
        brim_batch *held[4] = { 0 };
        char text[64];
        for (uint32_t i = 0; i < hold; i++) {
            held[i] = take_batch(&session);
            digest_batch(&digest, held[i]);
        }
        for (int again = 0; again < 3; again++) {
            assert_int_equal(brim_loader_next(session.loader, BRIM_FOREVER, &held[3]), BRIM_HELD);
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
        assert_same(digest, first_batches(training, hold + 1));
        for (uint32_t i = 0; i < hold; i++) {
            brim_batch_release(held[i]);
        }
        brim_loader_close(session.loader);
        brim_runtime_free(runtime);
    }
}

static struct digest digest_of(const brim_batch *batch) {
    struct digest digest = { 0 };
    digest_batch(&digest, batch);
    return digest;
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
    assert_int_equal(brim_batch_copy(batch, &second), BRIM_BUDGET);
    assert_int_equal(brim_batch_copy(copy, &second), BRIM_BUDGET);
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
    if (brim__budget_free_now(brim_runtime_budget(greedy.runtime)) < minimum) {
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
            options.growth = BRIM_FIXED;
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
    options.growth = BRIM_FIXED;
    const brim_plan_info info = plan_alone(2, training, &options);
    brim_runtime *runtime = make_runtime(2, info.planned_bytes);
    struct session session = open_on(runtime, training, &options);
    brim_batch *held = NULL;
    for (int i = 0; held == NULL || !held->slot->pages.elastic; i++) {
        assert_true(i < 100000);
        brim_batch_release(held);
        held = NULL;
        assert_true(brim_loader_next(session.loader, BRIM_FOREVER, &held) <= BRIM_END);
    }
    const struct digest digest = digest_of(held);
    brim_loader_close(session.loader);
    assert_int_equal(brim_runtime_trim(runtime, NULL), BRIM_OK);
    assert_int_equal(usage_of(runtime).elastic, 0);
    assert_int_equal(brim__budget_available(brim_runtime_budget(runtime)),
                     brim__budget_free_now(brim_runtime_budget(runtime)));
    check_budget(runtime);
    assert_same(digest_of(held), digest);
    brim_batch_release(held);
    assert_int_equal(usage_of(runtime).charged, empty_runtime_bytes());
    brim_runtime_free(runtime);
}

/* --------------------------------------------------- waiting for something */

struct caller {
    brim_loader *loader;
    int64_t timeout_ns;
    brim_status status;
    brim_batch *batch;
    atomic_bool returned;
};

static void *call_next(void *argument) {
    struct caller *caller = argument;
    caller->status = brim_loader_next(caller->loader, caller->timeout_ns, &caller->batch);
    atomic_store(&caller->returned, true);
    return NULL;
}

/* Until the call has begun, or is over already. */
static void await_call(struct caller *caller) {
    for (bool inside = false; !inside && !atomic_load(&caller->returned);) {
        brim__lock(&caller->loader->mutex);
        inside = caller->loader->in_call;
        brim__unlock(&caller->loader->mutex);
    }
}

static bool returns_at_once(struct caller *caller) {
    const uint64_t deadline = brim__now() + AT_ONCE_NS;
    while (!atomic_load(&caller->returned) && brim__now() < deadline) {
        sleep_ns(100000);
    }
    return atomic_load(&caller->returned);
}

/* Two workers that stand at the gate have all of the batch that is wanted next,
 * so that `next` has no rows to make itself. */
static struct session open_gated(uint64_t from) {
    const brim_open_options options = open_options("gated");
    gate_shut(from);
    return open_on(make_runtime(2, 0), gated, &options);
}

static void close_gated(struct session *session) {
    gate_open();
    brim_loader_close(session->loader);
    brim_runtime_free(session->runtime);
}

static void test_interrupting_a_call_that_waits(void **state) {
    (void)state;
    struct session session = open_gated(4);
    struct digest digest = { 0 };
    assert_true(take_more(session.loader, 2, &digest)); /* samples 0 to 3 pass */
    gate_await(2);
    for (int i = 0; i < 3; i++) {
        struct caller caller = { .loader = session.loader, .timeout_ns = BRIM_FOREVER };
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, call_next, &caller), 0);
        await_call(&caller);
        sleep_ns(i * 10000000u);
        assert_int_equal(brim_loader_interrupt(session.loader), BRIM_OK);
        const bool good = returns_at_once(&caller);
        if (!good) {
            gate_open();
        }
        pthread_join(thread, NULL);
        assert_true(good);
        assert_int_equal(caller.status, BRIM_INTERRUPTED);
        assert_null(caller.batch);
    }
    gate_open();
    assert_true(take_more(session.loader, 60, &digest)); /* as if nothing had been */
    assert_same(digest, first_batches(gated, 62));
    close_gated(&session);
}

static void test_interrupting_before_a_call(void **state) {
    (void)state;
    for (int32_t threads = 0; threads <= 2; threads += 2) {
        brim_runtime *runtime = make_runtime(threads, 0);
        const brim_open_options options = open_options(NULL);
        struct session session = open_on(runtime, training, &options);
        struct digest digest = { 0 };
        brim_batch *batch = NULL;
        for (int i = 0; i < 6; i++) {
            assert_int_equal(brim_loader_interrupt(session.loader), BRIM_OK);
            assert_int_equal(brim_loader_interrupt(session.loader), BRIM_OK); /* counts once */
            assert_int_equal(brim_loader_next(session.loader, BRIM_FOREVER, &batch),
                             BRIM_INTERRUPTED);
            assert_null(batch);
            assert_true(take_more(session.loader, 1, &digest));
        }
        assert_same(digest, first_batches(training, 6));
        brim_loader_close(session.loader);
        brim_runtime_free(runtime);
    }
}

static void *close_in_thread(void *loader) {
    brim_loader_close(loader);
    return NULL;
}

static void test_closing_while_another_thread_waits(void **state) {
    (void)state;
    struct session session = open_gated(0);
    struct caller caller = { .loader = session.loader, .timeout_ns = BRIM_FOREVER };
    pthread_t thread, closer;
    gate_await(2);
    assert_int_equal(pthread_create(&thread, NULL, call_next, &caller), 0);
    await_call(&caller);
    assert_int_equal(pthread_create(&closer, NULL, close_in_thread, session.loader), 0);
    const bool good = returns_at_once(&caller); /* although the callbacks have not returned */
    gate_open();
    pthread_join(thread, NULL);
    pthread_join(closer, NULL);
    assert_true(good);
    assert_int_equal(caller.status, BRIM_CLOSED);
    assert_int_equal(brim_runtime_trim(session.runtime, NULL), BRIM_OK);
    assert_int_equal(usage_of(session.runtime).charged, empty_runtime_bytes());
    brim_runtime_free(session.runtime);
}

/* One call and one closing, whichever comes first inside. The runtime goes at
 * once too, so that a call that still looks at anything looks at nothing. */
static void test_closing_at_any_moment_of_a_call(void **state) {
    (void)state;
    uint64_t random = 5;
    for (unsigned i = 0; i < CLOSINGS; i++) {
        brim_runtime *runtime = make_runtime((int32_t)(next_random(&random) % 3), 0);
        const brim_open_options options = open_options(NULL);
        struct session session = open_on(runtime, i % 2 ? training : validation, &options);
        struct caller caller = { .loader = session.loader,
                                 .timeout_ns = i % 5 == 0 ? 50000 : BRIM_FOREVER };
        pthread_t thread;
        sleep_ns(next_random(&random) % 100000);
        assert_int_equal(pthread_create(&thread, NULL, call_next, &caller), 0);
        await_call(&caller);
        sleep_ns(next_random(&random) % 200000);
        brim_loader_close(session.loader);
        brim_runtime_free(runtime);
        pthread_join(thread, NULL);
        assert_true(caller.status == BRIM_OK || caller.status == BRIM_CLOSED ||
                    (caller.status == BRIM_TIMEOUT && i % 5 == 0));
        if (caller.status == BRIM_OK) {
            assert_same(digest_of(caller.batch), first_batches(i % 2 ? training : validation, 1));
            brim_batch_release(caller.batch);
        }
    }
}

static void test_closing_at_any_moment_of_the_workers(void **state) {
    (void)state;
    uint64_t random = 3;
    brim_runtime *runtime = make_runtime(2, 0);
    for (unsigned i = 0; i < CLOSINGS; i++) {
        brim_open_options options = open_options(NULL);
        options.growth = i % 3 ? BRIM_GROW : BRIM_FIXED;
        struct session session = open_on(runtime, i % 2 ? training : validation, &options);
        struct digest digest = { 0 };
        const uint64_t batches = next_random(&random) % 4;
        assert_true(take_more(session.loader, batches, &digest));
        brim_batch *held = i % 4 == 0 && batches < 4 ? take_batch(&session) : NULL;
        if (i % 7 == 0) {
            assert_int_equal(brim_loader_seek(session.loader, 3, 1), BRIM_OK);
        }
        sleep_ns(next_random(&random) % 300000);
        brim_loader_close(session.loader);
        if (held != NULL) {
            digest_batch(&digest, held);
            brim_batch_release(held);
        }
        check_budget(runtime);
    }
    assert_int_equal(brim_runtime_trim(runtime, NULL), BRIM_OK);
    assert_int_equal(usage_of(runtime).charged, empty_runtime_bytes());
    brim_runtime_free(runtime);
}

/* Asked again and again without waiting, the batches come all the same. */
static void test_time_outs(void **state) {
    (void)state;
    static const int64_t timeouts[] = { 0, 1, 1000, 1000000 };
    for (unsigned way = 0; way < 8; way++) {
        brim_runtime *runtime = make_runtime(way % 2 ? 2 : 0, 0);
        const brim_open_options options = open_options(NULL);
        struct session session = open_on(runtime, training, &options);
        struct digest digest = { 0 };
        const uint64_t deadline = brim__now() + 10 * AT_ONCE_NS;
        while (digest.batches < 20 && brim__now() < deadline) {
            brim_batch *batch = NULL;
            const brim_status status = brim_loader_next(session.loader, timeouts[way / 2], &batch);
            if (status == BRIM_OK) {
                digest_batch(&digest, batch);
                brim_batch_release(batch);
            } else if (status == BRIM_TIMEOUT) {
                assert_null(batch);
                sleep_ns(1000);
            } else {
                assert_int_equal(status, BRIM_END);
            }
        }
        assert_same(digest, first_batches(training, 20));
        brim_loader_close(session.loader);
        brim_runtime_free(runtime);
    }
}

/* Workers were planned, but the system starts none. */
static void test_polling_without_the_workers_planned(void **state) {
    (void)state;
    brim__fault_arm(1u << BRIM__FAULT_THREAD, 1, true);
    brim_runtime *runtime = make_runtime(2, 0);
    const brim_open_options options = open_options(NULL);
    struct session session = open_on(runtime, training, &options);
    assert_int_equal(brim_plan_get(brim_loader_plan(session.loader))->threads, 2);
    struct digest digest = { 0 };
    const uint64_t deadline = brim__now() + 2 * AT_ONCE_NS;
    while (digest.batches < 3 && brim__now() < deadline) {
        brim_batch *batch;
        if (brim_loader_next(session.loader, 0, &batch) == BRIM_OK) {
            digest_batch(&digest, batch);
            brim_batch_release(batch);
        }
    }
    assert_int_equal(usage_of(runtime).threads, 0);
    brim__fault_arm(0, 0, false);
    assert_same(digest, first_batches(training, 3));
    brim_loader_close(session.loader);
    brim_runtime_free(runtime);
}

static void test_a_time_out_is_kept(void **state) {
    (void)state;
    struct session session = open_gated(0);
    brim_batch *batch = NULL;
    gate_await(2);
    for (int64_t timeout = 0; timeout <= 20000000; timeout += 10000000) {
        const uint64_t began = brim__now();
        assert_int_equal(brim_loader_next(session.loader, timeout, &batch), BRIM_TIMEOUT);
        const uint64_t took = brim__now() - began;
        assert_true(took >= (uint64_t)timeout && took < (uint64_t)timeout + AT_ONCE_NS);
        assert_null(batch);
    }
    gate_open();
    struct digest digest = { 0 };
    assert_true(take_more(session.loader, 3, &digest));
    assert_same(digest, first_batches(gated, 3));
    close_gated(&session);
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
        cmocka_unit_test(test_interrupting_a_call_that_waits),
        cmocka_unit_test(test_interrupting_before_a_call),
        cmocka_unit_test(test_closing_while_another_thread_waits),
        cmocka_unit_test(test_closing_at_any_moment_of_a_call),
        cmocka_unit_test(test_closing_at_any_moment_of_the_workers),
        cmocka_unit_test(test_time_outs),
        cmocka_unit_test(test_polling_without_the_workers_planned),
        cmocka_unit_test(test_a_time_out_is_kept),
    };
    return cmocka_run_group_tests(tests, begin, end_tests);
}

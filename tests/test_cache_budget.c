/*
 * test_cache_budget.c: caches take what the budget has left, and give it back.
 *
 * Charged never exceeds the limit, from the plan's minimum up; a loader that opens later gets
 * its minimum at once, and its workers and slots, from a cache that had filled all the rest;
 * what was given up fills again.
 */
#include "support/cache_runs.h"
#include "support/image_data.h"
#include "support/memory_data.h"
#include "support/memory_watch.h"

#include "base/platform.h"
#include "engine/loader.h"
#include "memory/budget.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define KIB         UINT64_C(1024)
#define MIB         UINT64_C(1048576)
#define PATIENCE_NS UINT64_C(60000000000) /* for what comes when it comes */

/* 4 MiB of samples, 2 KiB each. */
#define SAMPLES UINT64_C(2048)
static const char *const large =
    "range 2048 | one_hot 2048 on=index | cast uint8 ^| shuffle | batch 16";
static const char *const other = "tokens $/plain.bin length=64 | shuffle seed=1 | cast int64 | "
                                 "batch 64";

static const char *text_of(const char *marked, const char *cache, char text[TEXT_BYTES]) {
    return with_caches(marked, (struct caches){ { cache } }, text);
}

static void take_epoch(struct session *session, struct digest *digest) {
    assert_true(take_batches(session, TO_THE_END, digest_batch, digest));
}

/* Epochs until the cache has at least so many samples. */
static void fill_to(struct session *session, uint64_t wanted) {
    const uint64_t deadline = brim__now() + PATIENCE_NS;
    struct digest ignored = { 0 };
    while (cache_stats(session->loader, 0).filled < wanted) {
        take_epoch(session, &ignored);
        if (brim__now() > deadline) {
            fail_msg("the cache has %" PRIu64 " samples, not %" PRIu64,
                     cache_stats(session->loader, 0).filled, wanted);
        }
    }
}

/* ------------------------------------------------------------------ budgets */

static void check_budgets(const char *marked, const char *cache, int32_t threads, uint32_t hold,
                          brim_growth growth) {
    char text[TEXT_BYTES];
    brim_open_options options = open_options("training");
    options.hold = hold;
    options.growth = growth;
    const struct digest wanted =
        run_epochs(text_of(marked, NULL, text), &(struct how){ .hold = hold }, 2, NULL);
    text_of(marked, cache, text);
    const brim_plan_info roomy = plan_alone(threads, text, &options);
    const uint64_t minimum = roomy.minimum_bytes;
    const uint64_t budgets[] = { minimum,
                                 minimum + 1,
                                 minimum + roomy.slot_bytes + 1,
                                 minimum + 300 * KIB,
                                 minimum + 700 * KIB,
                                 minimum + 2 * MIB,
                                 minimum + 6 * MIB };
    for (size_t b = 0; b < COUNT_OF(budgets); b++) {
        struct digest digest = { 0 };
        brim_runtime *runtime = make_runtime(threads, budgets[b]);
        const uint64_t before = usage_of(runtime).charged;
        struct session session = open_on(runtime, text, &options);
        remove_file("1.cache");
        for (int epoch = 0; epoch < 2; epoch++) {
            take_epoch(&session, &digest);
            check_budget(runtime);
        }
        assert_digest(text, digest, wanted);
        const brim_usage usage = usage_of(runtime);
        assert_int_equal(usage.limit, budgets[b]);
        assert_true(usage.peak <= budgets[b]);
        assert_true(usage.peak <= brim_plan_get(brim_loader_plan(session.loader))->planned_bytes);
        brim_loader_close(session.loader);
        assert_int_equal(brim_runtime_trim(runtime, NULL), BRIM_OK);
        assert_int_equal(usage_of(runtime).charged, before);
        brim_runtime_free(runtime);
    }
    brim_runtime *runtime = make_runtime(threads, minimum - 1);
    brim_loader *loader = NULL;
    assert_int_equal(try_open(runtime, text, &options, &loader), BRIM_STATUS_BUDGET);
    brim_runtime_free(runtime);
    remove_file("1.cache");
}

static void test_budgets_from_the_minimum_up(void **state) {
    (void)state;
    static const char *const tiers[] = { "cache memory", "cache file=$/1.cache",
                                         "cache file=$/1.cache | cache memory limit=600KiB" };
    static const char *const marked[] = {
        "range 256 | one_hot 512 on=index | cast float32 ^| shuffle | batch 16",
        "npy $/a.npy $/b.npy ^| shuffle seed=5 | normalize imagenet | batch 24",
    };
    static const int32_t threads[] = { 0, 1, 4 };
    unsigned way = 0;
    for (size_t p = 0; p < COUNT_OF(marked); p++) {
        for (size_t t = 0; t < COUNT_OF(tiers); t++) {
            for (size_t i = 0; i < COUNT_OF(threads); i++, way++) {
                if (!is_sanitized() || way % 4 == 0) {
                    check_budgets(marked[p], tiers[t], threads[i], way % 2 ? 2 : 1,
                                  way % 3 ? BRIM_GROWTH_FIXED : BRIM_GROWTH_ON_DEMAND);
                }
            }
        }
    }
}

/* A cache asks for a little more at least: its records, and a block for one entry. */
static void test_the_minimum_is_little_more(void **state) {
    (void)state;
    char text[TEXT_BYTES];
    const brim_open_options options = open_options(NULL);
    const uint64_t without = plan_alone(0, text_of(large, NULL, text), &options).minimum_bytes;
    static const char *const tiers[] = { "cache memory", "cache file=$/1.cache" };
    for (size_t t = 0; t < COUNT_OF(tiers); t++) {
        const uint64_t with = plan_alone(0, text_of(large, tiers[t], text), &options).minimum_bytes;
        assert_true(with >= without && with - without <= 24 * KIB);
    }
    assert_false(file_exists("1.cache")); /* a plan makes none */
}

/* Opening looks at all files, many at a time, for which it needs room for their paths: more
 * than one row and one sample need, and no more than the minimum says. */
static void test_looking_at_files_at_the_minimum(void **state) {
    (void)state;
    enum { LINES = 100, DOTS = 1500 };
    static char list[16 + LINES * (DOTS + 16)], dots[DOTS + 1];
    static uint8_t pixels[8 * 8 * 3];
    static const char marked[] = "files $/list.csv index=beside ^| batch 1";
    const struct how plenty = { 0 }, least = { .bytes = AT_MINIMUM };
    char text[TEXT_BYTES];
    brim_cache_stats stats;
    size_t used = (size_t)snprintf(list, sizeof list, "path,label\n");
    for (size_t i = 0; i < DOTS; i++) {
        dots[i] = i % 2 == 0 ? '.' : '/';
    }
    for (unsigned i = 0; i < LINES; i++) {
        used += (size_t)snprintf(list + used, sizeof list - used, "%s0.png,%u\n", dots, i % 3);
    }
    write_file("list.csv", list, used);
    write_png("0.png", pixels, 8, 8);
    const struct digest wanted = run_epochs(text_of(marked, NULL, text), &plenty, 1, NULL);
    text_of(marked, "cache file=$/1.cache", text);
    assert_digest(text, run_epochs(text, &least, 1, NULL), wanted);
    assert_digest(text, run_epochs(text, &plenty, 1, NULL), wanted);
    assert_digest(text, run_epochs(text, &least, 1, &stats), wanted);
    assert_int_equal(stats.misses, 0);
    remove_file("1.cache");
}

static void test_limit(void **state) {
    (void)state;
    static const uint64_t limits[] = { 0, 100 * KIB, 1 * MIB, 3 * MIB, 64 * MIB };
    for (size_t l = 0; l < COUNT_OF(limits); l += is_sanitized() ? 2 : 1) {
        for (int32_t threads = 0; threads <= 2; threads += 2) {
            char text[TEXT_BYTES], cache[64];
            struct digest digest = { 0 };
            const struct how how = { .threads = threads };
            struct session session;
            snprintf(cache, sizeof cache, "cache memory limit=%" PRIu64, limits[l]);
            session_open(&session, text_of(large, cache, text), &how);
            for (int epoch = 0; epoch < 3; epoch++) {
                take_epoch(&session, &digest);
                const brim_cache_stats stats = cache_stats(session.loader, 0);
                assert_true(stats.bytes <= limits[l]);
                assert_int_equal(stats.fills, limits[l] > 0);
                assert_int_equal(stats.warning[0] != '\0', limits[l] == 0);
                /* at least three quarters of it are samples */
                assert_true(threads > 0 || l == 0 ||
                            stats.filled * 2 * KIB >= brim__min(limits[l], 4 * MIB) * 3 / 4 ||
                            limits[l] < 1 * MIB);
            }
            assert_int_equal(cache_stats(session.loader, 0).filled == SAMPLES, limits[l] > 4 * MIB);
            session_close(&session);
        }
    }
}

/* ---------------------------------------------------------------- giving way */

/* A loader whose cache has filled what is meant for another. */
struct full {
    brim_runtime *runtime;
    struct session session;
    uint64_t limit;
    char text[TEXT_BYTES];
};

static void open_full(struct full *full, int32_t threads, uint64_t rest, uint64_t at_least) {
    const brim_open_options options = open_options("training");
    text_of(large, "cache memory", full->text);
    const brim_plan_info info = plan_alone(threads, full->text, &options);
    /* what the first one plans for itself comes before its cache */
    const uint64_t planned = info.minimum_bytes +
                             threads * (info.scratch_bytes + info.stack_bytes) +
                             (info.slots - info.minimum_slots) * info.slot_bytes;
    full->limit = planned + rest;
    full->runtime = make_runtime(threads, full->limit);
    full->session = open_on(full->runtime, full->text, &options);
    fill_to(&full->session, at_least);
}

static void close_full(struct full *full) {
    check_budget(full->runtime);
    brim_loader_close(full->session.loader);
    assert_int_equal(brim_runtime_trim(full->runtime, NULL), BRIM_OK);
    assert_int_equal(usage_of(full->runtime).charged, empty_runtime_bytes());
    brim_runtime_free(full->runtime);
}

static void test_a_minimum_is_got_at_once(void **state) {
    (void)state;
    char second[TEXT_BYTES];
    const brim_open_options options = open_options("validation");
    expand(other, second);
    for (int32_t threads = 0; threads <= 4; threads += 2) {
        struct full full;
        const uint64_t minimum =
            plan_alone(threads, second, &options).minimum_bytes - empty_runtime_bytes();
        open_full(&full, threads, minimum + 64 * KIB, 20);
        const uint64_t filled = cache_stats(full.session.loader, 0).filled;
        if (threads == 0) { /* nothing else could hold it: it is the cache's */
            assert_true(brim__budget_free_now(brim_runtime_budget(full.runtime), BRIM_MEMORY_HOST) <
                        minimum);
        }
        for (int turn = 0; turn < (is_sanitized() ? 1 : 3); turn++) {
            struct digest a = { 0 }, b = { 0 };
            struct session newcomer = open_on(full.runtime, second, &options);
            check_budget(full.runtime);
            for (int i = 0; i < 20; i++) {
                assert_true(take_more(newcomer.loader, 1, &b));
                assert_true(take_more(full.session.loader, 1, NULL));
            }
            assert_same(b, first_batches(second, 20));
            assert_true(threads > 0 || cache_stats(full.session.loader, 0).filled < filled);
            brim_loader_close(newcomer.loader);
            fill_to(&full.session, 20);
            take_epoch(&full.session, &a);
        }
        close_full(&full);
    }
}

/* ------------------------------------------------------- at the joint minimum */

/* Two loaders whose caches could each take more than there is: 8 MiB of samples. What has to
 * be got at once is some KiB in the one direction and 4 MiB in the other. */
static const char *const either[] = {
    "range 2048 | one_hot 4096 on=index | cast uint8 ^| shuffle | batch 16",
    "range 1024 | one_hot 2048 on=index | cast float32 ^| shuffle seed=3 | batch 256",
};
#define LEFT_OVER (128 * KIB) /* of what a cache may take: too little for an extent or a segment */

struct joint {
    brim_runtime *runtime;
    struct {
        char text[TEXT_BYTES], without[TEXT_BYTES];
        brim_open_options options;
        uint64_t minimum; /* without the runtime's own */
        uint64_t firm;    /* what it holds of that */
        uint64_t workers; /* what its workers take of what is elastic, at most */
        struct session session;
        struct digest digest;
    } loader[2];
};

static uint64_t firm_bytes(const struct joint *joint) {
    const brim_usage usage = usage_of(joint->runtime);
    return usage.charged - usage.elastic;
}

static void joint_begin(struct joint *joint, int first, int32_t threads, uint64_t rest) {
    *joint = (struct joint){ 0 };
    for (int i = 0; i < 2; i++) {
        const char *marked = either[i == 0 ? first : !first];
        text_of(marked, "cache memory", joint->loader[i].text);
        text_of(marked, NULL, joint->loader[i].without);
        brim_open_options *options = &joint->loader[i].options;
        *options = open_options(i == 0 ? "first" : "second");
        options->growth =
            BRIM_GROWTH_FIXED; /* no more slots than it must have: a cache or nobody */
        options->slots = plan_alone(threads, joint->loader[i].text, options).minimum_slots;
        const brim_plan_info info = plan_alone(threads, joint->loader[i].text, options);
        assert_int_equal(info.slots, info.minimum_slots);
        joint->loader[i].minimum = info.minimum_bytes - empty_runtime_bytes();
        joint->loader[i].workers = (uint64_t)threads * (info.scratch_bytes + info.stack_bytes);
    }
    rest += rest > 0 ? brim__max(joint->loader[0].workers, joint->loader[1].workers) : 0;
    joint->runtime = make_runtime(threads, empty_runtime_bytes() + joint->loader[0].minimum +
                                               joint->loader[1].minimum + rest);
}

static void joint_open(struct joint *joint, int i) {
    const uint64_t firm = firm_bytes(joint);
    joint->loader[i].session =
        open_on(joint->runtime, joint->loader[i].text, &joint->loader[i].options);
    joint->loader[i].digest = (struct digest){ 0 };
    joint->loader[i].firm = firm_bytes(joint) - firm;
    assert_true(joint->loader[i].firm <= joint->loader[i].minimum);
    check_budget(joint->runtime);
}

static void joint_take(struct joint *joint, int i, uint64_t batches) {
    assert_true(take_more(joint->loader[i].session.loader, batches, &joint->loader[i].digest));
}

/* Takes batches until nothing is left that a cache could take; all of it is this one's. */
static void joint_fill(struct joint *joint, int i) {
    brim_budget *root = brim_runtime_budget(joint->runtime);
    const uint64_t deadline = brim__now() + PATIENCE_NS;
    while (brim__budget_free_now(root, BRIM_MEMORY_HOST) >= LEFT_OVER) {
        joint_take(joint, i, 8);
        if (brim__now() > deadline) {
            fail_msg("%" PRIu64 " bytes are free, and the cache has %" PRIu64,
                     brim__budget_free_now(root, BRIM_MEMORY_HOST),
                     cache_stats(joint->loader[i].session.loader, 0).bytes);
        }
    }
    const uint64_t bytes = cache_stats(joint->loader[i].session.loader, 0).bytes;
    const uint64_t elastic = usage_of(joint->runtime).elastic;
    assert_true(bytes + joint->loader[i].workers >= elastic);
    assert_true(bytes + joint->loader[i].workers + LEFT_OVER >= joint->loader[!i].minimum);
    check_budget(joint->runtime);
}

static void joint_close(struct joint *joint, int i) {
    const uint64_t firm = firm_bytes(joint);
    assert_same(joint->loader[i].digest,
                first_batches(joint->loader[i].without, joint->loader[i].digest.batches));
    brim_loader_close(joint->loader[i].session.loader);
    assert_int_equal(firm_bytes(joint), firm - joint->loader[i].firm);
    check_budget(joint->runtime);
}

/* The second opens although all but the first's minimum is in use, and both run. rest: beside
 * the minimums, and workers. */
static void check_joint(int first, int32_t threads, uint64_t rest) {
    struct joint joint;
    joint_begin(&joint, first, threads, rest);
    joint_open(&joint, 0);
    for (int turn = 0; turn < 2; turn++) {
        joint_fill(&joint, 0);
        const uint64_t kept = cache_stats(joint.loader[0].session.loader, 0).bytes;
        joint_open(&joint, 1);
        const uint64_t left = cache_stats(joint.loader[0].session.loader, 0).bytes;
        assert_true(left < kept);
        for (int i = 0; i < 20; i++) {
            joint_take(&joint, 0, 4);
            joint_take(&joint, 1, 1);
        }
        joint_close(&joint, 1);
    }
    /* what the first leaves, the second's cache takes, and gives back to the first */
    joint_open(&joint, 1);
    joint_close(&joint, 0);
    joint_fill(&joint, 1);
    joint_open(&joint, 0);
    joint_take(&joint, 0, 40);
    joint_take(&joint, 1, 10);
    joint_close(&joint, 0);
    joint_close(&joint, 1);
    assert_int_equal(brim_runtime_trim(joint.runtime, NULL), BRIM_OK);
    assert_int_equal(usage_of(joint.runtime).charged, empty_runtime_bytes());
    brim_runtime_free(joint.runtime);
}

static void test_the_joint_minimum_of_two(void **state) {
    (void)state;
    for (int32_t threads = 0; threads <= 4; threads += 2) {
        check_joint(0, threads, 3 * MIB);
        check_joint(1, threads, 3 * MIB);
    }
    check_joint(0, 0, 0); /* nothing but the two minimums */
    check_joint(1, 0, 0);
    if (!is_sanitized()) { /* whose stacks leave a cache nothing of it */
        check_joint(0, 2, 0);
    }
}

/* ------------------------------------------------------------ what comes before */

static uint32_t slots_of(brim_loader *loader) {
    brim__lock(&loader->mutex);
    const uint32_t slots = loader->batches->count;
    brim__unlock(&loader->mutex);
    return slots;
}

/* All slots and workers that one plans which opens later come before the cache too. */
static void test_later_loaders_get_what_they_planned(void **state) {
    (void)state;
    char second[TEXT_BYTES];
    brim_open_options options = open_options("validation");
    options.slots = 12;
    options.growth = BRIM_GROWTH_FIXED;
    expand("tokens $/plain.bin length=64 | shuffle seed=1 | cast int64 | batch 400", second);
    for (int32_t threads = 0; threads <= 2; threads += 2) {
        struct full full;
        struct digest digest = { 0 };
        const brim_plan_info alone = plan_alone(threads, second, &options);
        open_full(&full, threads, alone.planned_bytes, 500);
        const uint64_t filled = cache_stats(full.session.loader, 0).filled;
        uint64_t called = brim__now(), gap = 0;
        struct session newcomer = open_on(full.runtime, second, &options);
        const brim_plan_info *info = brim_plan_get(brim_loader_plan(newcomer.loader));
        assert_int_equal(info->slots, 12);
        assert_int_equal(info->threads, alone.threads);
        assert_int_equal(slots_of(newcomer.loader), 12);
        assert_true(cache_stats(full.session.loader, 0).filled < filled);
        /* a cache that would like to have it asks some times, and gets nothing of it */
        for (const uint64_t begin = brim__now(); brim__now() - begin < 50000000;) {
            assert_true(take_more(full.session.loader, 20, NULL));
            gap = brim__max(gap, brim__now() - called);
            called = brim__now();
            assert_true(take_more(newcomer.loader, 1, &digest));
        }
        const uint32_t slots = slots_of(newcomer.loader);
        gap = brim__max(gap, brim__now() - called);
        if (gap < 50000000) { /* one that was not called for longer is idle, and gives way first */
            assert_int_equal(slots, 12);
        }
        assert_same(digest, first_batches(second, digest.batches));
        brim_loader_close(newcomer.loader);
        fill_to(&full.session, 500);
        close_full(&full);
    }
}

/* What the program charges itself. */
static void test_a_charge_is_got_at_once(void **state) {
    (void)state;
    for (int32_t threads = 0; threads <= 2; threads += 2) {
        struct full full;
        brim_budget *model = NULL;
        open_full(&full, threads, 3 * MIB, 1000);
        brim_budget *root = brim_runtime_budget(full.runtime);
        assert_int_equal(brim_budget_new(root, "model", BRIM_UNLIMITED, 0, &model), BRIM_OK);
        for (int turn = 0; turn < (is_sanitized() ? 2 : 5); turn++) {
            const uint64_t bytes = 5 * MIB / 2;
            assert_true(brim__budget_free_now(root, BRIM_MEMORY_HOST) < bytes);
            assert_int_equal(brim_budget_charge(model, BRIM_MEMORY_HOST, bytes), BRIM_OK);
            assert_true(cache_stats(full.session.loader, 0).filled < 1000);
            struct digest digest = { 0 };
            take_epoch(&full.session, &digest);
            check_budget(full.runtime);
            brim_budget_uncharge(model, BRIM_MEMORY_HOST, bytes);
            fill_to(&full.session, 1000);
        }
        brim_budget_free(model);
        close_full(&full);
    }
}

#define BATCHES ((is_sanitized() ? 1 : 4) * SAMPLES / 16)

/* Two caches in one budget, each with a loader that runs in a thread. */
struct taker {
    brim_loader *loader;
    struct digest digest;
    bool good;
};

static void *take_in_thread(void *argument) {
    struct taker *taker = argument;
    taker->good = take_more(taker->loader, BATCHES, &taker->digest);
    return NULL;
}

static void test_two_caches_in_one_budget(void **state) {
    (void)state;
    char text[TEXT_BYTES];
    const struct digest wanted = first_batches(text_of(large, NULL, text), BATCHES);
    for (int32_t threads = 0; threads <= 2; threads++) {
        brim_runtime *runtime = make_runtime(threads, 5 * MIB);
        const brim_open_options options = open_options(NULL);
        struct taker taker[2] = { { 0 } };
        pthread_t thread[2];
        for (int i = 0; i < 2; i++) {
            taker[i].loader =
                open_on(runtime, text_of(large, "cache memory", text), &options).loader;
        }
        for (int i = 0; i < 2; i++) {
            assert_int_equal(pthread_create(&thread[i], NULL, take_in_thread, &taker[i]), 0);
        }
        for (int i = 0; i < 20; i++) { /* meanwhile everything is taken away */
            sleep_ns(1000000);
            assert_int_equal(brim_runtime_trim(runtime, NULL), BRIM_OK);
        }
        for (int i = 0; i < 2; i++) {
            pthread_join(thread[i], NULL);
            assert_true(taker[i].good);
            assert_same(taker[i].digest, wanted);
        }
        check_budget(runtime);
        brim_loader_close(taker[0].loader);
        brim_loader_close(taker[1].loader);
        brim_runtime_free(runtime);
    }
}

/* ----------------------------------------------------------------- the system */

/* What is charged is what is there, and what is given up is gone. */
static void test_resident_memory(void **state) {
    (void)state;
    static const uint64_t outside = 3 * MIB; /* stacks, tables, the C library */
    if (is_sanitized()) {
        skip();
    }
    char text[TEXT_BYTES];
    const uint64_t limit = 40 * MIB;
    struct session session;
    struct digest digest = { 0 };
    const struct how how = { .bytes = limit, .threads = 2 };
    const uint64_t before = resident_bytes();
    session_open(&session,
                 text_of("range 4096 | one_hot 4096 on=index | cast float16 ^| shuffle | batch 16",
                         "cache memory", text),
                 &how);
    fill_to(&session, 3 * 1024); /* 24 MiB */
    for (int epoch = 0; epoch < 2; epoch++) {
        take_epoch(&session, &digest);
        const uint64_t now = resident_bytes();
        assert_true(now > before + 20 * MIB);
        assert_true(now <= before + limit + outside);
        assert_true(now <= before + usage_of(session.runtime).peak + outside);
    }
    uint64_t given = 0;
    assert_int_equal(brim_runtime_trim(session.runtime, &given), BRIM_OK);
    assert_true(given >= 24 * MIB);
    assert_int_equal(usage_of(session.runtime).elastic, 0);
    assert_true(resident_bytes() <= before + usage_of(session.runtime).charged + outside);
    const brim_cache_stats stats = cache_stats(session.loader, 0);
    assert_int_equal(stats.filled + stats.bytes, 0);
    fill_to(&session, 1000);
    session_close(&session);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_budgets_from_the_minimum_up),
        cmocka_unit_test(test_the_minimum_is_little_more),
        cmocka_unit_test(test_looking_at_files_at_the_minimum),
        cmocka_unit_test(test_limit),
        cmocka_unit_test(test_a_minimum_is_got_at_once),
        cmocka_unit_test(test_the_joint_minimum_of_two),
        cmocka_unit_test(test_later_loaders_get_what_they_planned),
        cmocka_unit_test(test_a_charge_is_got_at_once),
        cmocka_unit_test(test_two_caches_in_one_budget),
        cmocka_unit_test(test_resident_memory),
    };
    return cmocka_run_group_tests(tests, begin_memory_tests_in_memory, end_tests);
}

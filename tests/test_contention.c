/*
 * test_contention.c: training and validation in one budget, back and forth a thousand times.
 *
 * At the joint minimum, where nothing is elastic; at twice that, where all that is elastic goes
 * to and fro; and with memory in plenty. On one thread, and on two at once. Direct and
 * sequenced plans, with and without caches in memory, without workers, with one and with
 * several: a thousand switches in each of these budgets and forms, and a thousand more of one
 * pair alone where there is least. The same on devices, where page-locked and device memory
 * have such limits too. Every batch must be the one that the loader gives alone, and the budget
 * must hold at every switch. A watchdog ends the program, and says how the loaders stand, when
 * no batch comes for two minutes.
 *
 * Under the thread sanitizer there are a tenth of the switches, so that it ends within a
 * minute.
 *
 * label: full
 */
#include "support/memory_data.h"
#include "support/memory_watch.h"

#include "cuda_standin.h"
#include "engine/loader.h"
#include "memory/budget.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#define SWITCHES   (is_thread_sanitized() ? 100u : 1000u) /* in each budget and form */
#define PATIENCE_S 120

struct pair {
    const char *training, *validation;
};
static const struct pair pairs[] = {
    { "npy $/a.npy $/b.npy | shuffle seed=5 | normalize imagenet | layout chw | batch 24",
      "tokens $/plain.bin length=64 | shuffle seed=1 | cast int64 | batch 64" },
    { "npy $/a.npy $/b.npy | shuffle seed=5 | cache memory | normalize imagenet | batch 24",
      "tokens $/plain.bin length=64 | cache memory | cast int64 | batch 64" },
    { "callback @parallel | filter 'number>5000' | batch 20",
      "zip (npy $/a.npy $/b.npy name=image) (npy $/labels.npy name=label) | filter 'label<8' | "
      "cast float32 on=image | batch 16" },
    { "zip (npy $/a.npy $/b.npy name=image) (npy $/labels.npy name=label) | cache memory | "
      "filter 'label<8' | shuffle seed=2 buffer=16KiB | cast float32 on=image | batch 16",
      "npy $/a.npy | cache memory | cast float32 | batch 16" },
};
#define WITH_CACHES 1

static const struct pair pairs_there[] = {
    { "npy $/a.npy $/b.npy | shuffle seed=5 | normalize imagenet | layout chw | batch 24",
      "tokens $/plain.bin length=64 | shuffle seed=1 | cast int64 | batch 64" },
    { "npy $/a.npy $/b.npy | shuffle seed=5 | normalize imagenet | cache device | batch 24",
      "tokens $/plain.bin length=64 | cast int64 | cache device | batch 64" },
    { "zip (npy $/a.npy $/b.npy name=image) (npy $/labels.npy name=label) | cache memory | "
      "filter 'label<8' | shuffle seed=2 buffer=16KiB | cast float32 on=image | batch 16",
      "npy $/a.npy | cast float32 | cache device | batch 16" },
};

static const int32_t threads[] = { 0, 1, 3 };
enum { AT_JOINT_MINIMUM, AT_TWICE, IN_PLENTY, LIMITS };

/* ------------------------------------------------------------------- watchdog */

static struct {
    pthread_t thread;
    atomic_bool over;
    _Atomic uint64_t batches;
    _Atomic(brim_loader *) loader[2];
} watchdog;

/* Without locks: whoever has them may be what hangs. */
static void print_loader(const brim_loader *loader) {
    if (loader == NULL) {
        return;
    }
    fprintf(stderr,
            "loader: in call %d, revoking %d, idle %d, wants %d, starving %d, visitors %u, lent "
            "%u, slots %u, scratch %u, lacking %llu, tickets %llu to %llu, workers %u, sleepers "
            "%u\n",
            loader->in_call, loader->revoking, loader->idle, atomic_load(&loader->wants),
            atomic_load(&loader->starving), loader->visits.visitors, loader->lent,
            loader->batches->count, loader->scratch_count,
            (unsigned long long)atomic_load(&loader->lacking),
            (unsigned long long)loader->rows->take, (unsigned long long)loader->rows->make,
            atomic_load(&loader->runtime->worker_count), atomic_load(&loader->runtime->sleepers));
    for (uint32_t i = 0; i < loader->rows->cap; i++) {
        const struct brim__slot *slot = &loader->rows->slot[i];
        fprintf(stderr, "  %u: state %d, abandoned %d, ticket %llu, %u of %u rows, %u busy\n", i,
                (int)slot->state, slot->abandoned, (unsigned long long)slot->ticket,
                slot->claims.made, slot->rows, slot->busy);
    }
}

static void *watch(void *unused) {
    (void)unused;
    uint64_t seen = 0;
    for (unsigned quiet = 0; !atomic_load(&watchdog.over); quiet++) {
        const uint64_t batches = atomic_load(&watchdog.batches);
        if (batches != seen) {
            seen = batches;
            quiet = 0;
        }
        if (quiet >= PATIENCE_S * 100) {
            fprintf(stderr, "no batch came for %d s\n", PATIENCE_S);
            print_loader(atomic_load(&watchdog.loader[0]));
            print_loader(atomic_load(&watchdog.loader[1]));
            abort();
        }
        sleep_ns(10000000);
    }
    return NULL;
}

static int begin(void **state) {
    return begin_memory_tests(state) != 0 ||
                   pthread_create(&watchdog.thread, NULL, watch, NULL) != 0
               ? -1
               : 0;
}

static int end(void **state) {
    atomic_store(&watchdog.over, true);
    pthread_join(watchdog.thread, NULL);
    return end_tests(state);
}

/* --------------------------------------------------------------------- taking */

struct taker {
    brim_runtime *runtime;
    brim_loader *loader;
    uint64_t random;
    unsigned switches;
    struct digest digest;
    bool good;
};

/* Asserts nothing, because it is called in threads. */
static bool is_within_budget(brim_runtime *runtime) {
    brim_budget *root = brim_runtime_budget(runtime);
    bool within = true;
    brim__budget_check(root);
    for (int kind = 0; kind < BRIM_MEMORY_KINDS; kind++) {
        brim_budget_info info = BRIM_BUDGET_INFO_INIT;
        within &= brim_budget_read(root, (brim_memory)kind, &info) == BRIM_OK &&
                  info.charged + info.reserved <= info.limit && info.peak <= info.limit;
    }
    return within;
}

/* A few batches, sometimes more than an epoch has. */
static bool take_some(struct taker *taker) {
    const uint64_t random = next_random(&taker->random);
    const uint64_t batches = random % 16 == 0 ? 12 : random / 16 % 4;
    const bool good = take_more(taker->loader, batches, &taker->digest);
    atomic_fetch_add(&watchdog.batches, batches);
    return good && is_within_budget(taker->runtime);
}

static void *take_in_thread(void *argument) {
    struct taker *taker = argument;
    taker->good = true;
    for (unsigned i = 0; taker->good && i < taker->switches; i++) {
        taker->good = take_some(taker);
    }
    return NULL;
}

static void take_in_parallel(struct taker takers[2]) {
    pthread_t thread[2];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&thread[i], NULL, take_in_thread, &takers[i]), 0);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(thread[i], NULL);
        assert_true(takers[i].good);
    }
}

/* One of the contests. */
struct contest_of {
    const struct pair *pair;
    unsigned limit;
    int32_t threads;
    bool parallel;
    brim_device device;
    unsigned switches;
};

static brim_open_options options_for(const struct contest_of *how, const char *label) {
    brim_open_options options = open_options(label);
    options.device_kind = how->device;
    return options;
}

/* A runtime with what both need together at least, of every kind of memory, or twice that. */
static brim_runtime *make_limited(const struct contest_of *how, const char *training,
                                  const char *validation) {
    const brim_open_options options = options_for(how, "either");
    const brim_plan_info a = plan_alone(how->threads, training, &options),
                         b = plan_alone(how->threads, validation, &options);
    const uint64_t times = how->limit == IN_PLENTY ? 0 : 1 + (how->limit == AT_TWICE);
    brim_runtime_options limits = BRIM_RUNTIME_OPTIONS_INIT;
    brim_runtime *runtime;
    limits.threads = how->threads;
    limits.host_bytes = times * (a.minimum_bytes + b.minimum_bytes - empty_runtime_bytes());
    limits.pinned_bytes = times * (a.minimum_pinned_bytes + b.minimum_pinned_bytes);
    limits.device_bytes = times * (a.minimum_device_bytes + b.minimum_device_bytes);
    assert_int_equal(brim_runtime_new(&limits, &runtime), BRIM_OK);
    return runtime;
}

struct contest {
    char text[2][TEXT_BYTES];
    brim_runtime *runtime;
    struct taker takers[2]; /* of training, of validation */
};

static void open_contest(struct contest *contest, const struct contest_of *how) {
    expand(how->pair->training, contest->text[0]);
    expand(how->pair->validation, contest->text[1]);
    contest->runtime = make_limited(how, contest->text[0], contest->text[1]);
    for (unsigned i = 0; i < 2; i++) {
        const brim_open_options options = options_for(how, i == 0 ? "training" : "validation");
        contest->takers[i] = (struct taker){
            .runtime = contest->runtime,
            .loader = open_on(contest->runtime, contest->text[i], &options).loader,
            .random = i + 1,
        };
        atomic_store(&watchdog.loader[i], contest->takers[i].loader);
    }
}

static void close_contest(struct contest *contest) {
    for (unsigned i = 0; i < 2; i++) {
        const struct taker *taker = &contest->takers[i];
        atomic_store(&watchdog.loader[i], NULL);
        assert_same(taker->digest, first_batches(contest->text[i], taker->digest.batches));
        brim_loader_close(taker->loader);
    }
    assert_int_equal(brim_runtime_trim(contest->runtime, NULL), BRIM_OK);
    assert_int_equal(usage_of(contest->runtime).charged, empty_runtime_bytes());
    for (int kind = BRIM_MEMORY_PINNED; kind < BRIM_MEMORY_KINDS; kind++) {
        brim_budget_info info = BRIM_BUDGET_INFO_INIT;
        assert_int_equal(
            brim_budget_read(brim_runtime_budget(contest->runtime), (brim_memory)kind, &info),
            BRIM_OK);
        assert_int_equal(info.charged + info.reserved, 0);
    }
    brim_runtime_free(contest->runtime);
}

static void contend(const struct contest_of *how) {
    struct contest contest;
    open_contest(&contest, how);
    if (how->parallel) {
        contest.takers[0].switches = contest.takers[1].switches = (how->switches + 1) / 2;
        take_in_parallel(contest.takers);
    } else {
        for (unsigned i = 0; i < how->switches; i++) {
            assert_true(take_some(&contest.takers[i % 2]));
        }
    }
    close_contest(&contest);
}

/* In every budget, with all numbers of threads, in turn and at once. */
static void contend_in_pair(struct contest_of how) {
    for (how.limit = 0; how.limit < LIMITS; how.limit++) {
        for (size_t i = 0; i < COUNT_OF(threads); i++) {
            how.threads = threads[i];
            how.parallel = false;
            contend(&how);
            how.parallel = true;
            contend(&how);
        }
    }
}

static void contend_on_host(size_t pair) {
    contend_in_pair((struct contest_of){
        .pair = &pairs[pair],
        .switches = SWITCHES / (unsigned)(COUNT_OF(pairs) * COUNT_OF(threads)) + 1 });
}

static void test_direct(void **state) {
    (void)state;
    contend_on_host(0);
}

static void test_direct_with_caches(void **state) {
    (void)state;
    contend_on_host(WITH_CACHES);
}

static void test_sequenced(void **state) {
    (void)state;
    contend_on_host(2);
}

static void test_sequenced_and_direct_with_caches(void **state) {
    (void)state;
    contend_on_host(3);
}

/* The same two loaders from the first switch to the thousandth. */
static void test_a_thousand_of_one_pair(void **state) {
    (void)state;
    for (unsigned way = 0; way < 4; way++) {
        contend(&(struct contest_of){ .pair = &pairs[WITH_CACHES],
                                      .limit = way / 2 == 0 ? AT_JOINT_MINIMUM : AT_TWICE,
                                      .threads = 3,
                                      .parallel = way % 2 == 1,
                                      .switches = SWITCHES });
    }
}

static void contend_there(brim_device device) {
    uint32_t count = 0;
    if (brim_device_count(device, &count) != BRIM_OK || count == 0) {
        print_message("skipped: no device of %s: %s\n", brim_device_name(device), brim_detail());
        skip();
    }
    for (size_t pair = 0; pair < COUNT_OF(pairs_there); pair++) {
        contend_in_pair((struct contest_of){
            .pair = &pairs_there[pair],
            .device = device,
            .switches = SWITCHES / (unsigned)(COUNT_OF(pairs_there) * COUNT_OF(threads)) + 1 });
    }
}

static void test_on_opencl(void **state) {
    (void)state;
    contend_there(BRIM_DEVICE_OPENCL);
}

static void test_on_cuda(void **state) {
    (void)state;
    contend_there(BRIM_DEVICE_CUDA);
    assert_string_equal(cuda_standin_violation(0), "");
    assert_true(cuda_standin_empty());
}

/* Long enough for each to be idle while the other is used: memory goes to and fro. */
static void test_passes_with_pauses(void **state) {
    (void)state;
    for (size_t pair = 0; pair < COUNT_OF(pairs); pair++) {
        struct contest contest;
        open_contest(&contest,
                     &(struct contest_of){ .pair = &pairs[pair], .limit = AT_TWICE, .threads = 3 });
        for (unsigned pass = 0; pass < 4; pass++) {
            for (unsigned i = 0; i < 40; i++) {
                assert_true(take_some(&contest.takers[pass % 2]));
                sleep_ns(3000000);
            }
        }
        close_contest(&contest);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_direct),
        cmocka_unit_test(test_direct_with_caches),
        cmocka_unit_test(test_sequenced),
        cmocka_unit_test(test_sequenced_and_direct_with_caches),
        cmocka_unit_test(test_a_thousand_of_one_pair),
        cmocka_unit_test(test_on_opencl),
        cmocka_unit_test(test_on_cuda),
        cmocka_unit_test(test_passes_with_pauses),
    };
    return cmocka_run_group_tests(tests, begin, end);
}

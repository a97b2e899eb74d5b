/*
 * fault_sweep.c: runs scenarios with every fault; see fault_sweep.h.
 */
#include "support/fault_sweep.h"
#include "support/memory_data.h"
#include "support/memory_watch.h"

#include "base/fault.h"
#include "memory/budget.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct kind {
    const char *name;
    unsigned bits;
    unsigned statuses; /* that a call may fail with: bits */
};
#define BIT(status) (1u << BRIM_STATUS_##status)
static const struct kind kinds[] = {
    { "alloc", 1u << BRIM__FAULT_ALLOC, BIT(MEMORY) },
    { "map", 1u << BRIM__FAULT_MAP, BIT(MEMORY) },
    { "thread", 1u << BRIM__FAULT_THREAD, 0 }, /* there is one worker less */
    { "open", 1u << BRIM__FAULT_OPEN, BIT(IO) },
    { "read", 1u << BRIM__FAULT_READ, BIT(IO) },
    { "write", 1u << BRIM__FAULT_WRITE, BIT(IO) },
    { "device", 1u << BRIM__FAULT_DEVICE, BIT(MEMORY) | BIT(DRIVER) },
    { "all", (1u << BRIM__FAULT_KINDS) - 1, BIT(MEMORY) | BIT(IO) | BIT(DRIVER) },
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

struct fault_run now;
static struct scenario *scenarios;
static size_t scenario_count;
static char program[256];

void wrong(const char *format, ...) {
    char text[1536];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    brim__fault_arm(0, 0, false);
    print_error("%s\n  again: %s %s %s %" PRIu64 " %s %d\n", text, program, now.scenario->name,
                now.kind->name, now.nth, now.for_ever ? "forever" : "once", now.threads);
    fail();
    abort();
}

static void disarm(void) {
    if (!now.disarmed) {
        now.injected = brim__fault_injected();
        now.disarmed = true;
        brim__fault_arm(0, 0, false);
    }
}

/* ---------------------------------------------------------------- attempts */

void forget_detail(void) {
    brim__fail_text(BRIM_OK, "");
}

void check_failure(const char *call, brim_status status) {
    if (now.nth == 0 || (now.disarmed ? now.injected : brim__fault_injected()) == 0) {
        wrong("%s failed without a fault: %s: %s", call, brim_status_name(status), brim_detail());
    }
    if ((now.kind->statuses & (1u << status)) == 0) {
        wrong("%s: %s does not fit the fault: %s", call, brim_status_name(status), brim_detail());
    }
    if (now.scenario->fileless && status == BRIM_STATUS_IO) {
        wrong("%s: what a cache met has become an error: %s", call, brim_detail());
    }
    if (brim_detail()[0] == '\0') {
        wrong("%s: %s has no detail", call, brim_status_name(status));
    }
    disarm();
}

bool faults_are(unsigned kind) {
    return now.kind->bits == 1u << kind;
}

/* What is elastic may have given way; and workers charge whenever they like. */
uint64_t charged_now(void) {
    if (now.runtime == NULL || now.threads > 0) {
        return 0;
    }
    const brim_usage usage = usage_of(now.runtime);
    return usage.charged - usage.elastic;
}

static void make_runtime_in(uint64_t bytes, const char *index_dir) {
    brim_runtime_options options = BRIM_RUNTIME_OPTIONS_INIT;
    brim_runtime *runtime;
    options.threads = now.threads;
    options.host_bytes = bytes;
    options.index_dir = index_dir;
    ATTEMPT(brim_runtime_new(&options, &runtime), runtime);
    now.runtime = runtime;
    now.base = usage_of(runtime).charged;
}

void begin_runtime(uint64_t bytes) {
    make_runtime_in(bytes, NULL);
}

void begin_runtime_with_cache(uint64_t bytes) {
    make_runtime_in(bytes, in_directory("cache").text);
}

void end_runtime(void) {
    if (brim_runtime_trim(now.runtime, NULL) != BRIM_OK) {
        wrong("trim: %s", brim_detail());
    }
    const brim_usage usage = usage_of(now.runtime);
    if (usage.charged != now.base || usage.elastic != 0 || usage.reserved != 0 ||
        usage.loaders != 0) {
        wrong("after closing %" PRIu64 " bytes are charged, not %" PRIu64, usage.charged, now.base);
    }
    if (usage.peak > usage.limit) {
        wrong("%" PRIu64 " bytes were charged, %" PRIu64 " are allowed", usage.peak, usage.limit);
    }
    brim__budget_check(brim_runtime_budget(now.runtime));
    brim_runtime_free(now.runtime);
    now.runtime = NULL;
}

brim_loader *open_text(const char *text, const brim_open_options *options) {
    brim_loader *loader;
    ATTEMPT(brim_loader_open_text(now.runtime, text, options, &loader), loader);
    return loader;
}

/* How many failures may be told before one batch. Without threads a call that is made again
 * meets no fault. With threads every fault that was met before may be told on its own, because
 * what a worker was at then fails later; the last few may not have been counted. */
static uint64_t most_failures(void) {
    return now.threads == 0 ? 1 : now.injected + (now.for_ever ? (uint64_t)now.threads : 0);
}

brim_batch *take_one(brim_loader *loader) {
    brim_batch *batch = NULL;
    char detail[256] = "";
    bool ended = false;
    forget_detail();
    brim_status status = brim_loader_next(loader, BRIM_FOREVER, &batch);
    for (uint64_t failures = 0; status != BRIM_OK;) {
        if (status == BRIM_STATUS_END && !ended) { /* perhaps after the failure of a device */
            ended = true;
            status = brim_loader_next(loader, BRIM_FOREVER, &batch);
            continue;
        }
        failures++;
        check_failure("brim_loader_next", status);
        if (failures > most_failures()) {
            wrong("brim_loader_next failed again: %s: %s", brim_status_name(status), brim_detail());
        }
        brim_loader_detail(loader, detail, sizeof detail);
        if (batch != NULL || detail[0] == '\0') {
            wrong("brim_loader_next failed, but gave a batch or no detail of the loader");
        }
        status = brim_loader_next(loader, BRIM_FOREVER, &batch);
    }
    return batch;
}

void take(brim_loader *loader, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        brim_batch *batch = take_one(loader);
        digest_batch(&now.digest, batch);
        brim_batch_release(batch);
    }
}

void must(brim_status status, const char *call) {
    if (status != BRIM_OK) {
        wrong("%s: %s: %s", call, brim_status_name(status), brim_detail());
    }
}

/* -------------------------------------------------------------------- runs */

static bool is_index(const char *name) {
    static const char *const suffixes[] = { ".brimidx", ".brimlst", ".brimprb" };
    const size_t length = strlen(name);
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
        const size_t end = strlen(suffixes[i]);
        if (length > end && strcmp(name + length - end, suffixes[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* Deletes indexes, listings and what was probed in a directory; returns how many other entries it has. */
static size_t delete_indexes(const char *path) {
    DIR *entries = opendir(path);
    size_t others = 0;
    for (const struct dirent *entry; entries != NULL && (entry = readdir(entries)) != NULL;) {
        if (is_index(entry->d_name)) {
            assert_int_equal(unlinkat(dirfd(entries), entry->d_name, 0), 0);
        } else {
            others += entry->d_name[0] != '.';
        }
    }
    if (entries != NULL) {
        closedir(entries);
    }
    return others;
}

/* So that the next run makes its indexes again, and their directories. */
static size_t clean_directory(void) {
    const size_t left = delete_indexes(in_directory("cache/index").text);
    if (left > 0) {
        wrong("%zu files that are no indexes are left in the cache", left);
    }
    rmdir(in_directory("cache/index").text);
    rmdir(in_directory("cache").text);
    return delete_indexes(in_directory("").text);
}

/* True: a fault was injected, so that there may be another point. */
static bool run(struct scenario *scenario, const struct kind *kind, uint64_t nth, bool for_ever,
                int32_t threads) {
    memset(&now, 0, sizeof now);
    now.scenario = scenario;
    now.kind = kind;
    now.nth = nth;
    now.for_ever = for_ever;
    now.threads = threads;
    const size_t descriptors = descriptor_count(), maps = file_map_count();
    const size_t files = clean_directory();
    brim__fault_arm(kind->bits, nth, for_ever);
    scenario->run();
    disarm();
    if (descriptor_count() != descriptors || file_map_count() != maps) {
        wrong("%zu descriptors and %zu maps of files, not %zu and %zu", descriptor_count(),
              file_map_count(), descriptors, maps);
    }
    const size_t left = clean_directory();
    if (left != files) {
        wrong("%zu files in the directory, not %zu", left, files);
    }
    if (nth == 0 && threads == 0) {
        scenario->wanted = now.digest;
    } else if (now.digest.value != scenario->wanted.value ||
               now.digest.batches != scenario->wanted.batches) {
        wrong("other batches than without a fault");
    }
    return now.injected > 0;
}

/* N = 1, 2, 3 ... or, where runs are slow and which point is the Nth is chance
 * anyway, with growing steps. */
static uint64_t sweep(struct scenario *scenario, const struct kind *kind, bool for_ever,
                      int32_t threads, bool steps) {
    uint64_t nth = 1, runs = 0;
    while (run(scenario, kind, nth, for_ever, threads)) {
        nth += steps ? 1 + nth / 3 : scenario->some ? 1 + nth / 8 : 1;
        runs++;
    }
    return runs;
}

static void test_without_faults(void **state) {
    (void)state;
    for (size_t s = 0; s < scenario_count; s++) {
        assert_false(run(&scenarios[s], &kinds[KINDS - 1], 0, false, 0));
        assert_false(run(&scenarios[s], &kinds[KINDS - 1], 0, false, 2));
    }
}

static bool is_swept(const struct scenario *scenario, size_t kind) {
    return !scenario->device_only || kinds[kind].bits == 1u << BRIM__FAULT_DEVICE;
}

static void test_every_point_without_threads(void **state) {
    (void)state;
    for (size_t s = 0; s < scenario_count; s++) {
        uint64_t runs = 0;
        for (size_t k = 0; k < KINDS; k++) {
            for (int for_ever = 0; is_swept(&scenarios[s], k) && for_ever < 2; for_ever++) {
                /* "all" meets the points of the others one by one again; it is
                 * different when it goes on for ever */
                const bool steps = is_thread_sanitized() || (k == KINDS - 1 && for_ever == 0);
                runs += sweep(&scenarios[s], &kinds[k], for_ever, 0, steps);
            }
        }
        print_message("%s: %" PRIu64 " faults\n", scenarios[s].name, runs);
        assert_true(runs > 10);
    }
}

static void test_points_with_threads(void **state) {
    (void)state;
    for (size_t s = 0; s < scenario_count; s++) {
        const bool some = is_thread_sanitized() && !scenarios[s].device_only;
        for (size_t k = some ? KINDS - 1 : 0; k < KINDS; k++) {
            for (int for_ever = 0; is_swept(&scenarios[s], k) && for_ever < 2; for_ever++) {
                sweep(&scenarios[s], &kinds[k], for_ever, 2, true);
            }
        }
    }
}

/* --------------------------------------------------------------- one alone */

static struct {
    struct scenario *scenario;
    const struct kind *kind;
    uint64_t nth;
    bool for_ever;
    int32_t threads;
} chosen;

static void test_one(void **state) {
    (void)state;
    run(chosen.scenario, chosen.kind, 0, false, 0);
    run(chosen.scenario, chosen.kind, 0, false, chosen.threads);
    const bool injected =
        run(chosen.scenario, chosen.kind, chosen.nth, chosen.for_ever, chosen.threads);
    print_message("%s\n", injected ? "a fault was injected" : "there are fewer points");
}

static bool choose(char **argument) {
    for (size_t s = 0; s < scenario_count; s++) {
        chosen.scenario =
            strcmp(scenarios[s].name, argument[0]) == 0 ? &scenarios[s] : chosen.scenario;
    }
    for (size_t k = 0; k < KINDS; k++) {
        chosen.kind = strcmp(kinds[k].name, argument[1]) == 0 ? &kinds[k] : chosen.kind;
    }
    chosen.nth = strtoull(argument[2], NULL, 10);
    chosen.for_ever = strcmp(argument[3], "forever") == 0;
    chosen.threads = atoi(argument[4]);
    return chosen.scenario != NULL && chosen.kind != NULL && chosen.threads >= 0 &&
           chosen.threads <= 2;
}

int sweep_main(int argc, char **argv, struct scenario *all, size_t count,
               int (*set_up)(void **state)) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_faults),
        cmocka_unit_test(test_every_point_without_threads),
        cmocka_unit_test(test_points_with_threads),
    };
    const struct CMUnitTest one[] = { cmocka_unit_test(test_one) };
    snprintf(program, sizeof program, "%s", argv[0]);
    scenarios = all;
    scenario_count = count;
    if (argc == 1) {
        return cmocka_run_group_tests(tests, set_up, end_tests);
    }
    if (argc != 6 || !choose(argv + 1)) {
        fprintf(stderr, "usage: %s [SCENARIO KIND N once|forever THREADS]\n", argv[0]);
        return 2;
    }
    return cmocka_run_group_tests(one, set_up, end_tests);
}

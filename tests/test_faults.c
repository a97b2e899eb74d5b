/*
 * test_faults.c: whatever the system refuses, and whenever, the failure is
 * clean.
 *
 * One table of scenarios, each a whole life from the text of a pipeline to
 * freeing everything. A run makes the Nth point of a kind fail, once or from
 * then on; N goes up until a run meets fewer points. In every run
 *
 *   - a call that fails says so with a status that fits the kind, and a detail;
 *     it returns nothing and leaves nothing charged;
 *   - once the fault is gone, the same call succeeds, and the scenario goes on
 *     to its end with the same batches as without any fault;
 *   - afterwards all counters, descriptors and maps are where they were.
 *
 * So a scenario always ends with the same digest. Without threads the Nth point
 * is the same in every run (but for sequential reads, where it depends on time
 * how many neighbours one of them fetches), and a failure prints how to see it
 * again:
 *
 *   test_faults SCENARIO KIND N once|forever THREADS
 */
#include "support/memory_data.h"
#include "support/memory_watch.h"

#include "base/fault.h"
#include "base/platform.h"
#include "memory/budget.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIXTEEN_MIB ((uint64_t)16 << 20)

struct kind {
    const char *name;
    unsigned bits;
    unsigned statuses; /* that a call may fail with: bits */
};
#define BIT(status) (1u << BRIM_##status)
static const struct kind kinds[] = {
    { "alloc", 1u << BRIM__FAULT_ALLOC, BIT(MEMORY) },
    { "map", 1u << BRIM__FAULT_MAP, BIT(MEMORY) },
    { "thread", 1u << BRIM__FAULT_THREAD, 0 }, /* there is one worker less */
    { "open", 1u << BRIM__FAULT_OPEN, BIT(IO) },
    { "read", 1u << BRIM__FAULT_READ, BIT(IO) },
    { "all", (1u << BRIM__FAULT_KINDS) - 1, BIT(MEMORY) | BIT(IO) },
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

struct scenario {
    const char *name;
    void (*run)(void);
};

/* The run in progress. */
static struct {
    const struct scenario *scenario;
    const struct kind *kind;
    uint64_t nth; /* 0: no fault */
    bool for_ever;
    int32_t threads;
    bool disarmed;
    uint64_t injected;
    brim_runtime *runtime;
    uint64_t base; /* charged by the runtime alone */
    struct digest digest;
} now;
static char program[256];

static void wrong(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

static void wrong(const char *format, ...) {
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

static void forget_detail(void) {
    brim__fail_text(BRIM_OK, "");
}

/* A call has failed: it is how it should be, and the fault goes away. */
static void check_failure(const char *call, brim_status status) {
    if (now.nth == 0 || (now.disarmed ? now.injected : brim__fault_injected()) == 0) {
        wrong("%s failed without a fault: %s: %s", call, brim_status_name(status), brim_detail());
    }
    if ((now.kind->statuses & (1u << status)) == 0) {
        wrong("%s: %s does not fit the fault: %s", call, brim_status_name(status), brim_detail());
    }
    if (brim_detail()[0] == '\0') {
        wrong("%s: %s has no detail", call, brim_status_name(status));
    }
    disarm();
}

/* What is elastic may have given way; and workers charge whenever they like. */
static uint64_t charged_now(void) {
    if (now.runtime == NULL || now.threads > 0) {
        return 0;
    }
    const brim_usage usage = usage_of(now.runtime);
    return usage.charged - usage.elastic;
}

/* Makes the call; if it fails as it may, checks that it left nothing behind and
 * makes it again, which must succeed. */
#define ATTEMPT(call, result)                                                                     \
    do {                                                                                          \
        const uint64_t charged_ = charged_now();                                                  \
        forget_detail();                                                                          \
        (result) = NULL;                                                                          \
        brim_status status_ = (call);                                                             \
        if (status_ != BRIM_OK) {                                                                 \
            check_failure(#call, status_);                                                        \
            if ((result) != NULL || charged_now() != charged_) {                                  \
                wrong("%s failed, but left something: %" PRIu64 " bytes charged before, %" PRIu64 \
                      " after",                                                                   \
                      #call, charged_, charged_now());                                            \
            }                                                                                     \
            status_ = (call);                                                                     \
        }                                                                                         \
        if (status_ != BRIM_OK) {                                                                 \
            wrong("%s failed again: %s: %s", #call, brim_status_name(status_), brim_detail());    \
        }                                                                                         \
    } while (0)

static void begin_runtime(uint64_t bytes) {
    brim_runtime_options options = BRIM_RUNTIME_OPTIONS_INIT;
    brim_runtime *runtime;
    options.threads = now.threads;
    options.host_bytes = bytes;
    ATTEMPT(brim_runtime_new(&options, &runtime), runtime);
    now.runtime = runtime;
    now.base = usage_of(runtime).charged;
}

/* Everything on the runtime has been closed. */
static void end_runtime(void) {
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

static brim_loader *open_text(const char *text, const brim_open_options *options) {
    brim_pipeline *pipeline;
    brim_loader *loader;
    ATTEMPT(brim_pipeline_parse(text, &pipeline), pipeline);
    ATTEMPT(brim_loader_open(now.runtime, pipeline, options, &loader), loader);
    brim_pipeline_free(pipeline);
    return loader;
}

/* One more batch, across the end of an epoch. A worker may have met the fault
 * for a later batch, so that with threads a call fails after it has gone. */
static brim_batch *take_one(brim_loader *loader) {
    brim_batch *batch = NULL;
    char detail[256] = "";
    forget_detail();
    brim_status status = brim_loader_next(loader, BRIM_FOREVER, &batch);
    if (status == BRIM_END) {
        status = brim_loader_next(loader, BRIM_FOREVER, &batch);
    }
    if (status != BRIM_OK) {
        check_failure("brim_loader_next", status);
        brim_loader_detail(loader, detail, sizeof detail);
        if (batch != NULL || detail[0] == '\0') {
            wrong("brim_loader_next failed, but gave a batch or no detail of the loader");
        }
        status = brim_loader_next(loader, BRIM_FOREVER, &batch);
    }
    if (status != BRIM_OK) {
        wrong("brim_loader_next failed again: %s: %s", brim_status_name(status), brim_detail());
    }
    return batch;
}

static void take(brim_loader *loader, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        brim_batch *batch = take_one(loader);
        digest_batch(&now.digest, batch);
        brim_batch_release(batch);
    }
}

static void must(brim_status status, const char *call) {
    if (status != BRIM_OK) {
        wrong("%s: %s: %s", call, brim_status_name(status), brim_detail());
    }
}

/* --------------------------------------------------------------- scenarios */

/* The recipe of the scenario's own name. */
static void run_recipe(void) {
    char text[TEXT_BYTES];
    const brim_open_options options = open_options("recipe");
    begin_runtime(SIXTEEN_MIB * 4);
    brim_loader *loader = open_text(recipe_text(now.scenario->name, text), &options);
    take(loader, 1);
    must(brim_loader_seek(loader, 1, 1), "seek");
    take(loader, 1);
    brim_loader_close(loader);
    end_runtime();
}

static void run_pad(void) {
    char text[TEXT_BYTES];
    brim_open_options options = open_options("rank 1");
    options.rank = 1;
    options.world = 2;
    begin_runtime(SIXTEEN_MIB);
    brim_loader *loader = open_text(recipe_text("pad", text), &options);
    take(loader, 4); /* the last of the epoch is padded */
    brim_loader_close(loader);
    end_runtime();
}

/* The first loader has taken all; the second and a user's charge take it back. */
static void run_two(void) {
    static uint64_t limit[3], charge;
    char training[TEXT_BYTES], validation[TEXT_BYTES];
    brim_open_options first = open_options("training"), second = open_options("validation");
    recipe_text("npy", training);
    recipe_text("llmc", validation);
    first.growth = BRIM_FIXED;
    first.slots = 16;
    if (limit[now.threads] == 0) { /* in the run without a fault */
        charge = plan_alone(now.threads, validation, &second).minimum_bytes;
        limit[now.threads] = plan_alone(now.threads, training, &first).minimum_bytes + 2 * charge;
    }
    begin_runtime(limit[now.threads]);
    brim_loader *a = open_text(training, &first);
    take(a, 1);
    brim_loader *b = open_text(validation, &second);
    take(b, 1);
    take(a, 1);
    brim_budget *model;
    ATTEMPT(brim_budget_new(brim_runtime_budget(now.runtime), "model", BRIM_UNLIMITED, 0, &model),
            model);
    must(brim_budget_charge(model, BRIM_HOST, charge / 2), "charge");
    take(b, 1);
    take(a, 1);
    brim_loader_close(a);
    brim_budget_free(model);
    brim_loader_close(b);
    end_runtime();
}

static void run_copy(void) {
    char text[TEXT_BYTES];
    const brim_open_options options = open_options("copied");
    begin_runtime(SIXTEEN_MIB);
    brim_loader *loader = open_text(recipe_text("zip", text), &options);
    brim_batch *batch = take_one(loader), *copy, *second;
    ATTEMPT(brim_batch_copy(batch, &copy), copy);
    brim_batch_release(batch);
    brim_loader_close(loader);
    ATTEMPT(brim_batch_copy(copy, &second), second);
    digest_batch(&now.digest, copy);
    brim_batch_release(copy);
    digest_batch(&now.digest, second);
    brim_batch_release(second);
    end_runtime();
}

static void run_trim(void) {
    char text[TEXT_BYTES];
    brim_open_options options = open_options("trimmed");
    options.growth = BRIM_FIXED;
    options.hold = 2;
    begin_runtime(SIXTEEN_MIB);
    brim_loader *loader = open_text(recipe_text("npy", text), &options);
    for (int i = 0; i < 3; i++) {
        brim_batch *held = take_one(loader);
        must(brim_runtime_trim(now.runtime, NULL), "trim");
        digest_batch(&now.digest, held);
        take(loader, 1);
        brim_batch_release(held);
    }
    brim_loader_close(loader);
    end_runtime();
}

static void run_state(void) {
    char text[TEXT_BYTES];
    brim_state state;
    const brim_open_options options = open_options("resumed");
    recipe_text("zip", text);
    begin_runtime(SIXTEEN_MIB);
    brim_loader *loader = open_text(text, &options);
    take(loader, 2);
    must(brim_loader_state(loader, &state), "state");
    brim_loader_close(loader);
    loader = open_text(text, &options);
    must(brim_loader_restore(loader, &state), "restore");
    take(loader, 1);
    must(brim_loader_restore(loader, &state), "restore");
    take(loader, 1);
    brim_loader_close(loader);
    end_runtime();
}

static void run_plan(void) {
    static const char *const names[] = { "zip", "megatron", "mix", "callback" };
    const brim_open_options options = open_options("planned");
    begin_runtime(SIXTEEN_MIB);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char text[TEXT_BYTES];
        brim_pipeline *pipeline;
        brim_plan *plan;
        ATTEMPT(brim_pipeline_parse(recipe_text(names[i], text), &pipeline), pipeline);
        ATTEMPT(brim_plan_new(now.runtime, pipeline, &options, &plan), plan);
        now.digest.value = now.digest.value * 31 + brim_plan_get(plan)->minimum_bytes +
                           brim_plan_get(plan)->order_fingerprint;
        brim_plan_free(plan);
        brim_pipeline_free(pipeline);
    }
    end_runtime();
}

/* Stage by stage; a stage that could not be added is as if never asked for. */
static void run_build(void) {
    const brim_argument length[] = {
        { .size = sizeof(brim_argument), .kind = BRIM_ARGUMENT_INTEGER, .integer = 50 },
    };
    const brim_argument rows[] = {
        { .size = sizeof(brim_argument), .kind = BRIM_ARGUMENT_INTEGER, .integer = 8 },
        { .size = sizeof(brim_argument),
          .key = "remainder",
          .kind = BRIM_ARGUMENT_TEXT,
          .text = "drop" },
    };
    const struct {
        const char *stage;
        const brim_argument *arguments;
        size_t count;
    } stages[] = { { "range", length, 1 }, { "shuffle", NULL, 0 }, { "batch", rows, 2 } };
    brim_pipeline *pipeline, *copy;
    ATTEMPT(brim_pipeline_new(&pipeline), pipeline);
    for (size_t i = 0; i < sizeof stages / sizeof stages[0]; i++) {
        const void *none = NULL;
        ATTEMPT(brim_pipeline_add(pipeline, stages[i].stage, stages[i].arguments, stages[i].count),
                none);
    }
    ATTEMPT(brim_pipeline_copy(pipeline, &copy), copy);
    brim_pipeline_free(pipeline);
    forget_detail();
    const char *text = brim_pipeline_text(copy);
    if (text == NULL) {
        check_failure("brim_pipeline_text", BRIM_MEMORY);
        text = brim_pipeline_text(copy);
    }
    if (text == NULL || strncmp(text, "range 50 | shuffle", 18) != 0) {
        wrong("the text is \"%s\"", text == NULL ? "" : text);
    }
    begin_runtime(SIXTEEN_MIB);
    brim_loader *loader = open_text(text, NULL);
    brim_pipeline_free(copy);
    take(loader, 7);
    brim_loader_close(loader);
    end_runtime();
}

static const struct scenario scenarios[] = {
    { "npy", run_recipe },  { "zip", run_recipe },      { "tokens", run_recipe },
    { "llmc", run_recipe }, { "megatron", run_recipe }, { "mapped", run_recipe },
    { "mix", run_recipe },  { "callback", run_recipe }, { "array", run_recipe },
    { "pad", run_pad },     { "two", run_two },         { "copy", run_copy },
    { "trim", run_trim },   { "state", run_state },     { "plan", run_plan },
    { "build", run_build },
};
enum { SCENARIOS = sizeof scenarios / sizeof scenarios[0] };

/* -------------------------------------------------------------------- runs */

static struct digest wanted[SCENARIOS]; /* without any fault */

/* True: a fault was injected, so that there may be another point. */
static bool run(const struct scenario *scenario, const struct kind *kind, uint64_t nth,
                bool for_ever, int32_t threads) {
    memset(&now, 0, sizeof now);
    now.scenario = scenario;
    now.kind = kind;
    now.nth = nth;
    now.for_ever = for_ever;
    now.threads = threads;
    const size_t descriptors = descriptor_count(), maps = file_map_count();
    brim__fault_arm(kind->bits, nth, for_ever);
    scenario->run();
    disarm();
    if (descriptor_count() != descriptors || file_map_count() != maps) {
        wrong("%zu descriptors and %zu maps of files, not %zu and %zu", descriptor_count(),
              file_map_count(), descriptors, maps);
    }
    struct digest *digest = &wanted[scenario - scenarios];
    if (nth == 0 && threads == 0) {
        *digest = now.digest;
    } else if (now.digest.value != digest->value || now.digest.batches != digest->batches) {
        wrong("other batches than without a fault");
    }
    return now.injected > 0;
}

/* N = 1, 2, 3 ... or, where runs are slow and which point is the Nth is chance
 * anyway, with growing steps. */
static uint64_t sweep(const struct scenario *scenario, const struct kind *kind, bool for_ever,
                      int32_t threads, bool steps) {
    uint64_t nth = 1, runs = 0;
    while (run(scenario, kind, nth, for_ever, threads)) {
        nth += steps ? 1 + nth / 3 : 1;
        runs++;
    }
    return runs;
}

static void test_without_faults(void **state) {
    (void)state;
    for (size_t s = 0; s < SCENARIOS; s++) {
        assert_false(run(&scenarios[s], &kinds[KINDS - 1], 0, false, 0));
        assert_false(run(&scenarios[s], &kinds[KINDS - 1], 0, false, 2));
    }
}

static void test_every_point_without_threads(void **state) {
    (void)state;
    for (size_t s = 0; s < SCENARIOS; s++) {
        uint64_t runs = 0;
        for (size_t k = 0; k < KINDS; k++) {
            for (int for_ever = 0; for_ever < 2; for_ever++) {
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
    for (size_t s = 0; s < SCENARIOS; s++) {
        for (size_t k = is_thread_sanitized() ? KINDS - 1 : 0; k < KINDS; k++) {
            for (int for_ever = 0; for_ever < 2; for_ever++) {
                sweep(&scenarios[s], &kinds[k], for_ever, 2, true);
            }
        }
    }
}

/* --------------------------------------------------------------- one alone */

static struct {
    const struct scenario *scenario;
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
    for (size_t s = 0; s < SCENARIOS; s++) {
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

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_faults),
        cmocka_unit_test(test_every_point_without_threads),
        cmocka_unit_test(test_points_with_threads),
    };
    const struct CMUnitTest one[] = { cmocka_unit_test(test_one) };
    snprintf(program, sizeof program, "%s", argv[0]);
    if (argc == 1) {
        return cmocka_run_group_tests(tests, begin_memory_tests, end_tests);
    }
    if (argc != 6 || !choose(argv + 1)) {
        fprintf(stderr, "usage: %s [SCENARIO KIND N once|forever THREADS]\n", argv[0]);
        return 2;
    }
    return cmocka_run_group_tests(one, begin_memory_tests, end_tests);
}

/*
 * test_promise.c: charged + reserved never exceeds the budget, and a plan says
 * beforehand what will be used.
 *
 * Every pipeline is run in budgets from its plan's minimum upwards, with
 * different numbers of threads, batches held and ways of growing. The counters'
 * peaks are kept under the same lock as the counters, so looking at them at the
 * end is looking at every instant.
 *
 * Resident memory is looked at in a process of its own, which this program
 * starts from itself:  test_promise load BYTES THREADS PIPELINE
 */
#include "support/memory_data.h"
#include "support/memory_watch.h"

#include "engine/chain.h"
#include "memory/budget.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EPOCHS 2

/* What the process holds beside what it charges: code, libc, the test's own
 * stack and tables. Measured: 2 MiB. */
#define OUTSIDE_BYTES ((uint64_t)4 << 20)

static void check_invariants(const struct session *session) {
    brim__lock(&session->loader->mutex);
    brim__chain_check(session->loader);
    brim__unlock(&session->loader->mutex);
    brim__budget_check(brim_runtime_budget(session->runtime));
}

/* ----------------------------------------------------------------- budgets */

static struct digest digest_in(const char *text, int32_t threads, uint64_t bytes,
                               const brim_open_options *options) {
    struct digest digest = { 0 };
    brim_runtime *runtime = make_runtime(threads, bytes);
    const uint64_t before = usage_of(runtime).charged;
    const brim_plan_info info = plan_in(runtime, text, options);
    struct session session = open_on(runtime, text, options);
    for (int i = 0; i < EPOCHS; i++) {
        assert_true(take_batches(&session, TO_THE_END, digest_batch, &digest));
        check_invariants(&session);
    }
    const brim_usage usage = usage_of(runtime);
    if (usage.peak > bytes || usage.peak > info.planned_bytes || info.planned_bytes > bytes) {
        fail_msg("\"%s\", %d threads, hold %u, growth %d: %" PRIu64 " used at most, %" PRIu64
                 " planned, %" PRIu64 " allowed",
                 text, threads, options->hold, (int)options->growth, usage.peak, info.planned_bytes,
                 bytes);
    }
    assert_int_equal(usage.limit, bytes);
    assert_true(usage.charged + usage.reserved <= usage.peak);
    assert_int_equal(info.planned_bytes,
                     brim_plan_get(brim_loader_plan(session.loader))->planned_bytes);
    brim_loader_close(session.loader);
    assert_int_equal(brim_runtime_trim(runtime, NULL), BRIM_OK);
    assert_int_equal(usage_of(runtime).charged, before);
    brim_runtime_free(runtime);
    return digest;
}

/* One byte below the minimum is too little, for the plan and for opening. */
static void check_refused(const char *text, int32_t threads, uint64_t minimum,
                          const brim_open_options *options) {
    char number[24];
    brim_plan *plan = NULL;
    brim_loader *loader = NULL;
    brim_runtime *runtime = make_runtime(threads, minimum - 1);
    brim_pipeline *pipeline = parse(text);
    const brim_usage before = usage_of(runtime);
    snprintf(number, sizeof number, "%" PRIu64, minimum);

    assert_int_equal(brim_plan_new(runtime, pipeline, options, &plan), BRIM_OK);
    const brim_plan_info *info = brim_plan_get(plan);
    assert_int_equal(info->fits, 0);
    assert_non_null(strstr(info->reason, number));
    assert_int_equal(info->minimum_bytes, minimum);
    assert_int_equal(info->limit_bytes, minimum - 1);
    brim_plan_free(plan);
    assert_int_equal(usage_of(runtime).charged, before.charged);

    assert_int_equal(brim_loader_open(runtime, pipeline, options, &loader), BRIM_STATUS_BUDGET);
    assert_null(loader);
    assert_detail_has(number);
    const brim_usage after = usage_of(runtime);
    assert_int_equal(after.charged, before.charged);
    assert_int_equal(after.reserved, 0);
    assert_int_equal(after.loaders, 0);
    brim__budget_check(brim_runtime_budget(runtime));
    brim_pipeline_free(pipeline);
    brim_runtime_free(runtime);
}

static void check_recipe(const char *text, int32_t threads, uint32_t hold, brim_growth growth,
                         struct digest wanted) {
    brim_open_options options = open_options("training");
    options.hold = hold;
    options.growth = growth;
    const brim_plan_info roomy = plan_alone(threads, text, &options);
    const uint64_t minimum = roomy.minimum_bytes;
    const uint64_t more = roomy.planned_bytes - minimum;
    const uint64_t budgets[] = { minimum,
                                 minimum + 1,
                                 minimum + roomy.slot_bytes,
                                 minimum + more / 3,
                                 minimum + more - 1,
                                 minimum + more,
                                 minimum + 3 * more };
    assert_true(roomy.fits && minimum > BRIM__BUDGET_FLOOR);
    assert_int_equal(roomy.hold, hold);
    assert_int_equal(roomy.minimum_slots, brim__max(2, hold));
    check_refused(text, threads, minimum, &options);
    for (size_t b = 0; b < sizeof budgets / sizeof budgets[0]; b++) {
        if (is_sanitized() && b % 3 != 0) {
            continue;
        }
        brim_runtime *runtime = make_runtime(threads, budgets[b]);
        assert_int_equal(plan_in(runtime, text, &options).minimum_bytes, minimum);
        brim_runtime_free(runtime);
        const struct digest got = digest_in(text, threads, budgets[b], &options);
        assert_int_equal(got.value, wanted.value);
    }
}

static void test_budgets_from_the_minimum_up(void **state) {
    (void)state;
    static const int32_t threads[] = { 0, 1, 2, 8 };
    for (size_t r = 0; r < recipe_count; r++) {
        char text[TEXT_BYTES];
        recipe_text(recipes[r].name, text);
        const brim_open_options options = open_options(NULL);
        const struct digest wanted = digest_in(text, 0, (uint64_t)64 << 20, &options);
        assert_true(wanted.batches >= 2 * EPOCHS);
        for (unsigned way = 0; way < 16; way++) {
            if (is_thread_sanitized() && (way / 4 == 1 || way / 4 == 2)) {
                continue; /* slow, and every value of each is still tried */
            }
            check_recipe(text, threads[way % 4], way & 4 ? 2 : 1,
                         way & 8 ? BRIM_GROWTH_FIXED : BRIM_GROWTH_ON_DEMAND, wanted);
        }
    }
}

/* The numbers hold for each way of opening: in memory files, as one of several ranks. */
static void test_other_ways_of_opening(void **state) {
    (void)state;
    for (size_t r = 0; r < recipe_count; r++) {
        char text[TEXT_BYTES];
        recipe_text(recipes[r].name, text);
        for (unsigned way = 1; way < 4; way++) {
            brim_open_options options = open_options("training");
            options.hold = 3;
            options.shared = way & 1;
            options.rank = way / 2;
            options.world = 1 + way / 2;
            const uint64_t minimum = plan_alone(2, text, &options).minimum_bytes;
            check_refused(text, 2, minimum, &options);
            assert_true(digest_in(text, 2, minimum, &options).batches > 0);
        }
    }
}

/* Below the floor nothing fits, and the runtime says so itself. */
static void test_a_budget_too_small_for_anything(void **state) {
    (void)state;
    brim_runtime_options options = BRIM_RUNTIME_OPTIONS_INIT;
    brim_runtime *runtime = NULL;
    options.threads = 0;
    options.host_bytes = BRIM__BUDGET_FLOOR - 1;
    assert_int_equal(brim_runtime_new(&options, &runtime), BRIM_STATUS_BUDGET);
    assert_null(runtime);
    assert_detail_has("128.0 KiB");

    /* a minimum below the floor is the floor */
    const brim_open_options open = open_options(NULL);
    assert_int_equal(plan_alone(0, "range 10 | batch 2", &open).minimum_bytes, BRIM__BUDGET_FLOOR);
    digest_in("range 10 | batch 2", 0, BRIM__BUDGET_FLOOR, &open);
}

/* A plan that is kept holds its tables, and nothing else. */
static void test_a_plan_charges_its_tables(void **state) {
    (void)state;
    char text[TEXT_BYTES];
    brim_runtime *runtime = make_runtime(2, 0);
    const uint64_t before = usage_of(runtime).charged;
    const brim_open_options options = open_options(NULL);
    brim_pipeline *pipeline = parse(recipe_text("zip", text));
    brim_plan *plan = NULL;
    assert_int_equal(brim_plan_new(runtime, pipeline, &options, &plan), BRIM_OK);
    assert_int_equal(usage_of(runtime).charged,
                     before + brim__budget_node_bytes() + brim_plan_get(plan)->fixed_bytes);
    brim_pipeline_free(pipeline);
    brim_runtime_free(runtime); /* the plan keeps what it needs */
    assert_true(brim_plan_get(plan)->fits);
    brim_plan_free(plan);
}

/* ------------------------------------------------------------------- usage */

struct sums {
    brim_budget_info root;
    uint64_t charged, elastic, reserved; /* of the root's children */
    unsigned nodes, children;
    char labels[256];
};

static int add_up(void *user, const brim_budget_info *info) {
    struct sums *sums = user;
    sums->nodes++;
    if (info->depth == 0) {
        sums->root = *info;
    } else if (info->depth == 1) {
        sums->children++;
        sums->charged += info->charged;
        sums->elastic += info->elastic;
        sums->reserved += info->reserved;
        const size_t used = strlen(sums->labels);
        snprintf(sums->labels + used, sizeof sums->labels - used, "%s,", info->label);
    }
    return 0;
}

static void check_sums(brim_runtime *runtime, unsigned children, uint64_t own) {
    struct sums sums = { 0 };
    assert_int_equal(
        brim_budget_walk(brim_runtime_budget(runtime), BRIM_MEMORY_HOST, add_up, &sums), BRIM_OK);
    const brim_usage usage = usage_of(runtime);
    assert_int_equal(sums.children, children);
    assert_int_equal(sums.root.charged, usage.charged);
    assert_int_equal(sums.root.elastic, usage.elastic);
    assert_int_equal(sums.root.reserved, usage.reserved);
    assert_int_equal(sums.root.peak, usage.peak);
    assert_int_equal(sums.root.limit, usage.limit);
    assert_int_equal(sums.elastic, usage.elastic);
    assert_int_equal(sums.reserved, usage.reserved);
    assert_int_equal(sums.charged + own + children * brim__budget_node_bytes(), usage.charged);
    assert_true(usage.outside == (usage.rss > usage.charged ? usage.rss - usage.charged : 0));
    assert_true(usage.peak_rss >= usage.rss && usage.rss > 0);
}

static void test_usage_adds_up(void **state) {
    (void)state;
    char text[TEXT_BYTES];
    brim_budget *model = NULL, *part = NULL;
    brim_runtime *runtime = make_runtime(2, 0);
    brim_open_options options = open_options("training");
    options.growth = BRIM_GROWTH_FIXED;
    const uint64_t own = usage_of(runtime).charged - brim__budget_node_bytes(); /* "workers" */
    check_sums(runtime, 1, own);
    struct session a = open_on(runtime, recipe_text("npy", text), &options);
    options.label = NULL;
    struct session b = open_on(runtime, recipe_text("tokens", text), &options);
    check_sums(runtime, 3, own);
    assert_int_equal(
        brim_budget_new(brim_runtime_budget(runtime), "model", 1 << 20, 1 << 16, &model), BRIM_OK);
    assert_int_equal(brim_budget_new(model, "weights", BRIM_UNLIMITED, 0, &part), BRIM_OK);
    assert_int_equal(brim_budget_charge(part, BRIM_MEMORY_HOST, 12345), BRIM_OK);
    assert_int_equal(brim__budget_reserve(part, BRIM_MEMORY_HOST, 777), BRIM_OK);
    check_sums(runtime, 4, own);
    const brim_usage usage = usage_of(runtime);
    assert_int_equal(usage.reserved, 777);
    assert_int_equal(usage.loaders, 2);
    assert_int_equal(usage.threads, 2);

    struct sums sums = { 0 };
    assert_int_equal(
        brim_budget_walk(brim_runtime_budget(runtime), BRIM_MEMORY_HOST, add_up, &sums), BRIM_OK);
    assert_string_equal(sums.labels, "workers,training,loader 2,model,");
    assert_int_equal(sums.nodes, 6);
    brim_loader_close(a.loader);
    brim_loader_close(b.loader);
    check_sums(runtime, 2, own);
    brim_budget_free(part);
    brim_budget_free(model);
    check_sums(runtime, 1, own);
    brim_runtime_free(runtime);
}

/* -------------------------------------------------------------------- trim */

/* Large slots, so that they show in resident memory. */
static const char *const large =
    "array @pixels | shuffle | cast float32 | batch 64"; /* 8 MiB each */
#define LARGE_WIDTH 32768
static uint8_t pixels[256][LARGE_WIDTH];
static const brim_binding large_binding = { .size = sizeof(brim_binding),
                                            .name = "pixels",
                                            .kind = BRIM_BINDING_ARRAY,
                                            .data = pixels,
                                            .dtype = BRIM_DTYPE_U8,
                                            .rank = 2,
                                            .shape = { 256, LARGE_WIDTH } };

static struct digest run_with_trims(int32_t threads, uint64_t batches, uint64_t every) {
    struct digest digest = { 0 };
    brim_runtime *runtime = make_runtime(threads, 0);
    brim_open_options options = open_options("training");
    options.growth = BRIM_GROWTH_FIXED;
    options.bindings = &large_binding;
    options.binding_count = 1;
    const struct session session = open_on(runtime, large, &options);
    const brim_plan_info info = *brim_plan_get(brim_loader_plan(session.loader));
    for (uint64_t taken = 0; taken < batches; taken++) {
        assert_true(take_more(session.loader, 1, &digest));
        if (taken % every != every - 1) {
            continue;
        }
        uint64_t bytes = 0;
        assert_int_equal(brim_runtime_trim(runtime, &bytes), BRIM_OK);
        const brim_usage usage = usage_of(runtime);
        assert_int_equal(usage.elastic, 0);
        assert_int_equal(usage.threads, 0);
        assert_int_equal(usage.charged, info.minimum_bytes);
        assert_true(taken >= every || bytes >= 2 * info.slot_bytes); /* the first takes most */
        check_invariants(&session);
    }
    brim_loader_close(session.loader);
    brim_runtime_free(runtime);
    return digest;
}

static void test_trim_and_go_on(void **state) {
    (void)state;
    fill_random(pixels, sizeof pixels, 7);
    const struct digest wanted = run_with_trims(0, 24, UINT64_MAX);
    assert_int_equal(run_with_trims(0, 24, 5).value, wanted.value);
    assert_int_equal(run_with_trims(2, 24, 5).value, wanted.value);
    assert_int_equal(run_with_trims(2, 24, 1).value, wanted.value);
}

static void test_trim_shows_in_resident_memory(void **state) {
    (void)state;
    if (is_sanitized()) {
        skip();
    }
    struct digest digest = { 0 };
    brim_runtime *runtime = make_runtime(2, 0);
    brim_open_options options = open_options("training");
    options.growth = BRIM_GROWTH_FIXED;
    options.hold = 2;
    options.slots = 6;
    options.bindings = &large_binding;
    options.binding_count = 1;
    const uint64_t empty = resident_bytes();
    const struct session session = open_on(runtime, large, &options);
    const brim_plan_info info = *brim_plan_get(brim_loader_plan(session.loader));
    assert_true(take_more(session.loader, 10, &digest));
    brim_batch *held = NULL;
    assert_int_equal(brim_loader_next(session.loader, BRIM_FOREVER, &held), BRIM_OK);
    struct digest before = { 0 }, after = { 0 };
    digest_batch(&before, held);
    uint64_t deadline = brim__now() + 60000000000; /* the workers fill every slot */
    const uint64_t filled = empty + 5 * info.slot_bytes + info.slot_bytes / 2;
    while (resident_bytes() < filled && brim__now() < deadline) {
        sleep_ns(1000000);
    }
    const uint64_t full = resident_bytes();
    assert_true(full >= filled);
    uint64_t bytes = 0;
    assert_int_equal(brim_runtime_trim(runtime, &bytes), BRIM_OK);
    const uint64_t trimmed = resident_bytes();
    assert_true(bytes >= 3 * info.slot_bytes);
    assert_true(full > trimmed && full - trimmed >= 2 * info.slot_bytes);
    digest_batch(&after, held); /* what is lent stays */
    assert_int_equal(before.value, after.value);
    brim_batch_release(held);
    deadline = brim__now() + 60000000000; /* what pays grows again */
    while (usage_of(runtime).elastic == 0 && brim__now() < deadline) {
        assert_true(take_more(session.loader, 1, &digest));
    }
    assert_true(usage_of(runtime).elastic > 0);
    brim_loader_close(session.loader);
    brim_runtime_free(runtime);
}

/* --------------------------------------------------------- resident memory */

#define BIG_ROWS  1500
#define BIG_BYTES 12288

/* The other program: loads for three epochs and reports in one line. */
static int load(char **argument) {
    brim_runtime_options options = BRIM_RUNTIME_OPTIONS_INIT;
    brim_usage usage = BRIM_USAGE_INIT;
    brim_runtime *runtime;
    brim_pipeline *pipeline;
    brim_loader *loader;
    options.host_bytes = strtoull(argument[0], NULL, 10);
    options.threads = atoi(argument[1]);
    if (brim_runtime_new(&options, &runtime) != BRIM_OK ||
        brim_pipeline_parse(argument[2], &pipeline) != BRIM_OK ||
        brim_loader_open(runtime, pipeline, NULL, &loader) != BRIM_OK) {
        fprintf(stderr, "%s\n", brim_detail());
        return 1;
    }
    struct digest digest = { 0 };
    for (int epoch = 0; epoch < 3; epoch++) {
        brim_batch *batch;
        while (brim_loader_next(loader, BRIM_FOREVER, &batch) == BRIM_OK) {
            digest_batch(&digest, batch);
            brim_batch_release(batch);
        }
    }
    brim_runtime_read_usage(runtime, &usage);
    printf("%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", usage.peak, usage.peak_rss,
           usage.outside, digest.batches);
    brim_loader_close(loader);
    brim_pipeline_free(pipeline);
    brim_runtime_free(runtime);
    return 0;
}

static void test_resident_memory_is_what_was_charged(void **state) {
    (void)state;
    static uint8_t data[BIG_ROWS][BIG_BYTES];
    static const uint64_t budgets[] = { (uint64_t)14 << 20, (uint64_t)24 << 20,
                                        (uint64_t)200 << 20 };
    if (is_sanitized()) {
        skip();
    }
    fill_random(data, sizeof data, 9);
    write_npy("big.npy", BRIM_DTYPE_U8, 2, (const int64_t[]){ BIG_ROWS, BIG_BYTES }, data);
    char program[256], command[TEXT_BYTES];
    const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    assert_true(length > 0);
    program[length] = '\0';
    for (size_t b = 0; b < sizeof budgets / sizeof budgets[0]; b++) {
        uint64_t peak, peak_rss, outside, batches;
        format_text(command, "%s load %" PRIu64 " %d 'npy %s | shuffle | cast float32 | batch 128'",
                    program, budgets[b], b == 0 ? 0 : 2, in_directory("big.npy").text);
        FILE *child = popen(command, "re");
        assert_non_null(child);
        assert_int_equal(fscanf(child, "%" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64, &peak,
                                &peak_rss, &outside, &batches),
                         4);
        assert_int_equal(pclose(child), 0);
        print_message("budget %" PRIu64 ": at most %" PRIu64 " charged, %" PRIu64 " resident\n",
                      budgets[b], peak, peak_rss);
        assert_int_equal(batches, 3 * ((BIG_ROWS + 127) / 128));
        assert_true(peak <= budgets[b]);
        assert_true(peak_rss <= peak + OUTSIDE_BYTES);
        assert_true(peak_rss >= 128 * BIG_BYTES * sizeof(float)); /* it does measure */
        assert_true(outside <= OUTSIDE_BYTES);
    }
}

int main(int argc, char **argv) {
    if (argc == 5 && strcmp(argv[1], "load") == 0) {
        return load(argv + 2);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_budgets_from_the_minimum_up),
        cmocka_unit_test(test_other_ways_of_opening),
        cmocka_unit_test(test_a_budget_too_small_for_anything),
        cmocka_unit_test(test_a_plan_charges_its_tables),
        cmocka_unit_test(test_usage_adds_up),
        cmocka_unit_test(test_trim_and_go_on),
        cmocka_unit_test(test_trim_shows_in_resident_memory),
        cmocka_unit_test(test_resident_memory_is_what_was_charged),
    };
    return cmocka_run_group_tests(tests, begin_memory_tests, end_tests);
}

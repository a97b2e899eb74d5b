/*
 * test_upload_limits.c: loaders that deliver on a device keep the limits of all kinds of
 * memory that they use: host, page-locked and the device's.
 *
 * Every limit from the minimum up is enough for the right batches, and never exceeded; a
 * byte less is refused. A set that is read again and again takes the same memory each
 * time. Loaders that share a device give way to each other.
 *
 * On OpenCL; without a device of it, all of this skips.
 */
#include "upload_util.h"

#include "device/device.h"
#include "memory/budget.h"
#include "plan/plan.h"

#define OPENCL BRIM_DEVICE_OPENCL

static const char *const texts[] = {
    "npy $/images.npy | shuffle seed=3 | normalize imagenet | layout chw | batch 12 remainder=keep",
    "npy $/numbers.npy | shuffle seed=3 | batch 12 remainder=keep",
    ("zip (npy $/images.npy) (npy $/classes.npy name=label) | filter \"label != 7\" | batch 12 "
     "remainder=pad"),
    "text $/lines.txt | batch 12 remainder=keep",
};
#define TEXTS (sizeof texts / sizeof texts[0])

static brim_memory kind_there(void) {
    return brim_device_memory(OPENCL, 0);
}

static brim_open_options options_there(const char *label) {
    brim_open_options options = open_options(label);
    options.device_kind = OPENCL;
    return options;
}

/* -------------------------------------------------------------------- limits */

/* The limits of a plan, by the kind of memory. */
struct range {
    uint64_t least, most, step;
};

static struct range range_of(const brim_plan_info *info, brim_memory kind) {
    if (kind == BRIM_MEMORY_HOST) {
        return (struct range){ info->minimum_bytes, info->planned_bytes, info->slot_bytes };
    }
    return kind == BRIM_MEMORY_PINNED
               ? (struct range){ info->minimum_pinned_bytes, info->planned_pinned_bytes,
                                 info->slot_bytes }
               : (struct range){ info->minimum_device_bytes, info->planned_device_bytes,
                                 info->device_slot_bytes };
}

static struct how limited(brim_memory kind, uint64_t bytes, int32_t threads, brim_growth growth) {
    struct how how = { .threads = threads, .growth = growth, .device = OPENCL };
    if (kind == BRIM_MEMORY_HOST) {
        how.bytes = bytes;
    } else if (kind == BRIM_MEMORY_PINNED) {
        how.pinned_bytes = bytes;
    } else {
        how.device_bytes = bytes;
    }
    return how;
}

/* Sessions check their peaks when they are closed. */
static void test_every_limit_from_the_minimum_up(void **state) {
    (void)state;
    NEED_DEVICE(OPENCL);
    const brim_memory kinds[] = { BRIM_MEMORY_HOST, BRIM_MEMORY_PINNED, kind_there() };
    for (size_t t = 0; t < TEXTS; t++) {
        char text[TEXT_BYTES];
        expand(texts[t], text);
        const struct digest wanted = run_epochs(text, &(struct how){ .threads = 0 }, 1);
        for (unsigned k = 0; k < 3; k++) {
            for (unsigned way = 0; way < 2; way++) {
                const brim_growth growth = way == 0 ? BRIM_GROWTH_ON_DEMAND : BRIM_GROWTH_FIXED;
                /* workers' stacks are much memory: with them steps are larger */
                const bool coarse = is_sanitized() || (kinds[k] == BRIM_MEMORY_HOST && way == 1);
                const int32_t threads =
                    kinds[k] == BRIM_MEMORY_HOST ? (int32_t)way * 2 : (int32_t)((t + k + way) % 3);
                const brim_open_options options = options_there("limits");
                const brim_plan_info info = plan_alone(threads, text, &options);
                const struct range range = range_of(&info, kinds[k]);
                const uint64_t step =
                    1 + (coarse ? (range.most - range.least) / 4 : range.step * 2 / 3);
                assert_true(range.most > range.least);
                for (uint64_t bytes = range.least; bytes < range.most + step; bytes += step) {
                    const struct how how = limited(kinds[k], bytes, threads, growth);
                    assert_same(run_epochs(text, &how, 1), wanted);
                }
            }
        }
    }
}

static void test_the_minimum_of_everything(void **state) {
    (void)state;
    NEED_DEVICE(OPENCL);
    for (size_t t = 0; t < TEXTS; t++) {
        char text[TEXT_BYTES];
        expand(texts[t], text);
        const struct digest wanted = run_epochs(text, &(struct how){ .threads = 0 }, 2);
        for (unsigned way = 0; way < 6; way++) {
            const struct how how = { .threads = (int32_t)(way % 3),
                                     .hold = 1 + way / 3 * 2,
                                     .device = OPENCL,
                                     .bytes = AT_MINIMUM,
                                     .pinned_bytes = AT_MINIMUM,
                                     .device_bytes = AT_MINIMUM };
            assert_same(run_epochs(text, &how, 2), wanted);
        }
    }
}

/* What a limit may be above the minimum, where something may turn. */
#define EDGES 12
static uint64_t edge(const struct range *range, unsigned which) {
    const uint64_t page = 4096;
    const uint64_t edges[EDGES] = { 0,
                                    1,
                                    255,
                                    256,
                                    page - 1,
                                    page,
                                    page + 1,
                                    range->step - 1,
                                    range->step,
                                    range->step + 1,
                                    range->most - range->least - 1,
                                    range->most - range->least };
    return range->least + edges[which];
}

/* One kind of memory at a time; then all of them, each at another edge. */
static void test_limits_at_every_edge(void **state) {
    (void)state;
    NEED_DEVICE(OPENCL);
    const brim_memory kinds[] = { BRIM_MEMORY_HOST, BRIM_MEMORY_PINNED, kind_there() };
    struct brim__device keeper; /* of kernels, which are built once for all who share them */
    MUST(brim__device_open(&keeper, OPENCL, 0, NULL, NULL));
    MUST(brim__device_prepare(&keeper));
    for (size_t t = 0; t < TEXTS; t++) {
        char text[TEXT_BYTES];
        const brim_open_options options = options_there("limits");
        const brim_plan_info info = plan_alone(0, expand(texts[t], text), &options);
        const struct digest wanted = run_epochs(text, &(struct how){ .threads = 0 }, 1);
        struct range range[3];
        for (unsigned k = 0; k < 3; k++) {
            range[k] = range_of(&info, kinds[k]);
        }
        for (unsigned way = 0; way < 3 * EDGES; way += is_sanitized() ? 5 : 1) {
            const unsigned k = way / EDGES;
            const struct how how = limited(kinds[k], edge(&range[k], way % EDGES), 0,
                                           way % 2 ? BRIM_GROWTH_FIXED : BRIM_GROWTH_ON_DEMAND);
            assert_same(run_epochs(text, &how, 1), wanted);
        }
        for (unsigned way = 0; way < EDGES * EDGES; way += is_sanitized() ? 13 : 1) {
            const unsigned mixed = way * 7 + way / EDGES;
            const struct how how = { .device = OPENCL,
                                     .growth = way % 2 ? BRIM_GROWTH_FIXED : BRIM_GROWTH_ON_DEMAND,
                                     .bytes = edge(&range[0], way % EDGES),
                                     .pinned_bytes = edge(&range[1], way / EDGES),
                                     .device_bytes = edge(&range[2], mixed % EDGES) };
            assert_same(run_epochs(text, &how, 1), wanted);
        }
    }
    brim__device_close(&keeper);
}

static void test_a_byte_less_is_refused(void **state) {
    (void)state;
    NEED_DEVICE(OPENCL);
    const struct {
        brim_memory kind;
        const char *says[4];
    } cases[] = {
        { BRIM_MEMORY_HOST,
          { "needs at least", "held by: ", "make the batch smaller", "raise the budget" } },
        { BRIM_MEMORY_PINNED,
          { "of page-locked memory (", "held by: no budget", "make the batch smaller",
            "or raise the limit" } },
        { kind_there(),
          { " on opencl:0 (", "held by: no budget", "hold fewer", "or raise the limit" } },
    };
    for (size_t t = 0; t < TEXTS; t++) {
        char text[TEXT_BYTES];
        const brim_open_options options = options_there("limits");
        const brim_plan_info info = plan_alone(0, expand(texts[t], text), &options);
        for (size_t c = 0; c < 3; c++) {
            const struct range range = range_of(&info, cases[c].kind);
            const struct how how =
                limited(cases[c].kind, range.least - 1, 0, BRIM_GROWTH_ON_DEMAND);
            if (how.bytes > 0 && how.bytes < BRIM__BUDGET_FLOOR) {
                continue; /* no runtime is made with so little */
            }
            for (int s = 0; s < 4; s++) {
                expect_refused(text, &how, BRIM_STATUS_BUDGET, cases[c].says[s]);
            }
        }
    }
}

/* A batch larger than any memory that the driver gives in one piece. */
static void test_larger_than_the_device_gives_at_once(void **state) {
    (void)state;
    NEED_DEVICE(OPENCL);
    brim_device_info device = BRIM_DEVICE_INFO_INIT;
    MUST(brim_device_read(OPENCL, 0, &device));
    const uint64_t rows = device.largest_bytes / sizeof(int64_t) + 1;
    if (rows > INT32_MAX) {
        print_message("skipped: no batch is as large as the device allocates at once\n");
        skip();
    }
    const brim_open_options options = options_there("large");
    brim_runtime *runtime = make_runtime(0, (uint64_t)64 << 20);
    brim_loader *loader = NULL;
    brim_plan *plan = NULL;
    char text[TEXT_BYTES];
    MUST(brim_budget_set(brim_runtime_budget(runtime), kind_there(), 4 * device.total_bytes, 0));
    format_text(text, "range %llu | batch %llu", (unsigned long long)rows * 2,
                (unsigned long long)rows);
    brim_pipeline *pipeline = parse(text);
    assert_int_equal(brim_plan_new(runtime, pipeline, &options, &plan), BRIM_STATUS_BUDGET);
    assert_null(plan);
    assert_detail_has("is more than opencl:0 allocates at once (");
    assert_detail_has("make the batch smaller, or use micro-batches");
    assert_int_equal(brim_loader_open(runtime, pipeline, &options, &loader), BRIM_STATUS_BUDGET);
    assert_null(loader);
    assert_detail_has("allocates at once");
    brim_pipeline_free(pipeline);
    /* as it says: in pieces it is not too large for the device */
    format_text(text, "range %llu | batch %llu micro=1024", (unsigned long long)rows * 2,
                (unsigned long long)rows);
    pipeline = parse(text);
    MUST(brim_plan_new(runtime, pipeline, &options, &plan));
    assert_true(brim_plan_get(plan)->device_slot_bytes < device.largest_bytes / 1000);
    brim_plan_free(plan);
    brim_pipeline_free(pipeline);
    brim_runtime_free(runtime);
}

/* Who holds the rest is named. */
static void test_holders_are_named(void **state) {
    (void)state;
    NEED_DEVICE(OPENCL);
    char text[TEXT_BYTES];
    const brim_open_options training = options_there("training"),
                            validation = options_there("validation");
    const brim_plan_info info = plan_alone(0, expand(texts[0], text), &training);
    brim_runtime *runtime = make_runtime(0, (uint64_t)64 << 20);
    brim_loader *first, *second = NULL;
    brim_budget *root = brim_runtime_budget(runtime);
    MUST(brim_budget_set(root, kind_there(), 2 * info.minimum_device_bytes - 1, 0));
    MUST(try_open(runtime, text, &training, &first));
    assert_int_equal(try_open(runtime, text, &validation, &second), BRIM_STATUS_BUDGET);
    assert_detail_has("\"validation\" needs at least");
    assert_detail_has(" on opencl:0 (");
    assert_detail_has("held by: training");
    assert_detail_has("or raise the limit");
    MUST(brim_budget_set(root, kind_there(), 2 * info.minimum_device_bytes, 0));
    MUST(brim_budget_set(root, BRIM_MEMORY_PINNED, 2 * info.minimum_pinned_bytes - 1, 0));
    assert_int_equal(try_open(runtime, text, &validation, &second), BRIM_STATUS_BUDGET);
    assert_detail_has("of page-locked memory");
    assert_detail_has("held by: training");
    MUST(brim_budget_set(root, BRIM_MEMORY_PINNED, 2 * info.minimum_pinned_bytes, 0));
    MUST(try_open(runtime, text, &validation, &second));
    brim_loader_close(first);
    brim_loader_close(second);
    brim_runtime_free(runtime);
}

/* ---------------------------------------------------------- again and again */

#define RESETS 100

struct charges {
    uint64_t host, pinned, device;
};

static struct charges charges_of(brim_runtime *runtime) {
    return (struct charges){ budget_of(runtime, BRIM_MEMORY_HOST).charged,
                             budget_of(runtime, BRIM_MEMORY_PINNED).charged,
                             budget_of(runtime, kind_there()).charged };
}

static void assert_flat(struct charges first, struct charges later, unsigned resets) {
    if (first.host != later.host || first.pinned != later.pinned || first.device != later.device) {
        fail_msg("after %u resets %llu, %llu and %llu bytes are charged of the host, page-locked "
                 "and the device; %llu, %llu and %llu at first",
                 resets, (unsigned long long)later.host, (unsigned long long)later.pinned,
                 (unsigned long long)later.device, (unsigned long long)first.host,
                 (unsigned long long)first.pinned, (unsigned long long)first.device);
    }
}

/* What the driver and the C library keep for later is not without bounds. */
static void assert_resident_bounded(uint64_t after_some, uint64_t in_the_end) {
    if (!is_sanitized() && in_the_end > after_some + ((uint64_t)8 << 20)) {
        fail_msg("%llu bytes resident after some resets, %llu in the end",
                 (unsigned long long)after_some, (unsigned long long)in_the_end);
    }
}

static void reset_by_seeking(const char *text, const struct how *how) {
    struct session session;
    struct charges first = { 0 };
    struct digest wanted = { 0 };
    uint64_t resident = 0;
    session_open(&session, text, how);
    for (unsigned i = 0; i < RESETS; i++) {
        struct digest digest = { 0 };
        MUST(brim_loader_seek(session.loader, 0, 0));
        assert_true(take_batches(&session, TO_THE_END, digest_batch, &digest));
        const struct charges charges = charges_of(session.runtime);
        first = i == 0 ? charges : first;
        wanted = i == 0 ? digest : wanted;
        resident = i == RESETS / 4 ? resident_bytes() : resident;
        assert_flat(first, charges, i);
        assert_same(digest, wanted);
    }
    assert_resident_bounded(resident, resident_bytes());
    session_close(&session);
}

static void test_resets_by_seeking(void **state) {
    (void)state;
    NEED_DEVICE(OPENCL);
    for (size_t t = 0; t < TEXTS; t++) {
        char text[TEXT_BYTES];
        expand(texts[t], text);
        /* all that is planned, and no more than the minimum: both leave nothing to grow */
        reset_by_seeking(text, &(struct how){ .threads = (int32_t)(t % 3),
                                              .growth = BRIM_GROWTH_FIXED,
                                              .device = OPENCL });
        reset_by_seeking(text, &(struct how){ .threads = (int32_t)((t + 1) % 3),
                                              .device = OPENCL,
                                              .bytes = AT_MINIMUM,
                                              .pinned_bytes = AT_MINIMUM,
                                              .device_bytes = AT_MINIMUM });
    }
}

/* What grows stays within the plan. */
static void test_resets_while_growing(void **state) {
    (void)state;
    NEED_DEVICE(OPENCL);
    char text[TEXT_BYTES];
    struct session session;
    session_open(&session, expand(texts[0], text), &(struct how){ .threads = 2, .device = OPENCL });
    const brim_plan_info *info = brim_plan_get(brim_loader_plan(session.loader));
    for (unsigned i = 0; i < RESETS; i++) {
        struct digest digest = { 0 };
        MUST(brim_loader_seek(session.loader, 0, 0));
        take_batches(&session, i % 3 == 0 ? TO_THE_END : i % 3, digest_batch, &digest);
        const struct charges charges = charges_of(session.runtime);
        assert_true(charges.device >= info->minimum_device_bytes &&
                    charges.device <= info->planned_device_bytes);
        assert_true(charges.pinned >= info->minimum_pinned_bytes &&
                    charges.pinned <= info->planned_pinned_bytes);
    }
    session_close(&session);
}

static void test_resets_by_opening_again(void **state) {
    (void)state;
    NEED_DEVICE(OPENCL);
    char text[TEXT_BYTES];
    const brim_open_options options = options_there("validation");
    brim_runtime *runtime = make_runtime(1, (uint64_t)64 << 20);
    struct charges first = { 0 };
    struct digest wanted = { 0 };
    uint64_t resident = 0;
    expand(texts[0], text);
    for (unsigned i = 0; i < RESETS; i++) {
        struct digest digest = { 0 };
        struct session session = open_on(runtime, text, &options);
        assert_true(take_batches(&session, TO_THE_END, digest_batch, &digest));
        brim_loader_close(session.loader);
        MUST(brim_runtime_trim(runtime, NULL));
        const struct charges charges = charges_of(runtime);
        first = i == 0 ? charges : first;
        wanted = i == 0 ? digest : wanted;
        resident = i == RESETS / 4 ? resident_bytes() : resident;
        assert_flat(first, charges, i);
        assert_same(digest, wanted);
        assert_int_equal(charges.device, 0);
        assert_int_equal(charges.pinned, 0);
    }
    assert_resident_bounded(resident, resident_bytes());
    assert_int_equal(first.host, empty_runtime_bytes());
    brim_runtime_free(runtime);
}

/* ------------------------------------------------------------ sharing a device */

/* Elastic slots of one are the minimum of the other. */
static void test_two_loaders_on_one_device(void **state) {
    (void)state;
    NEED_DEVICE(OPENCL);
    char text[TEXT_BYTES];
    brim_open_options training = options_there("training"),
                      validation = options_there("validation");
    training.growth = BRIM_GROWTH_FIXED;
    expand(texts[0], text);
    for (int32_t threads = 0; threads < 3; threads++) {
        const brim_plan_info info = plan_alone(threads, text, &training);
        const struct digest wanted = run_epochs(text, &(struct how){ .threads = 0 }, 2);
        brim_runtime *runtime = make_runtime(threads, (uint64_t)64 << 20);
        brim_budget *root = brim_runtime_budget(runtime);
        const uint64_t limit = 2 * info.minimum_device_bytes + info.device_slot_bytes / 2;
        MUST(brim_budget_set(root, kind_there(), limit, 0));
        MUST(brim_budget_set(root, BRIM_MEMORY_PINNED, 2 * info.minimum_pinned_bytes + 100, 0));
        struct session first = open_on(runtime, text, &training);
        struct digest a = { 0 }, b = { 0 };
        take_batches(&first, 2, digest_batch, &a);
        assert_true(stats_of(first.loader).device_slots > info.minimum_device_slots);
        struct session second = open_on(runtime, text, &validation);
        assert_int_equal(stats_of(first.loader).device_slots, info.minimum_device_slots);
        for (int i = 0; i < 2; i++) {
            assert_true(take_batches(&second, TO_THE_END, digest_batch, &b));
        }
        assert_same(b, wanted);
        assert_true(take_batches(&first, TO_THE_END, digest_batch, &a));
        brim_loader_close(second.loader);
        assert_true(take_batches(&first, TO_THE_END, digest_batch, &a));
        assert_same(a, wanted);
        brim_loader_close(first.loader);
        const brim_budget_info device = budget_of(runtime, kind_there());
        assert_true(device.peak <= limit && device.charged == 0);
        check_budget(runtime);
        brim_runtime_free(runtime);
    }
}

static void test_trim_gives_slots_back(void **state) {
    (void)state;
    NEED_DEVICE(OPENCL);
    char text[TEXT_BYTES];
    expand(texts[0], text);
    const struct digest wanted = run_epochs(text, &(struct how){ .threads = 0 }, 1);
    for (int32_t threads = 0; threads < 3; threads++) {
        struct session session;
        struct digest digest = { 0 };
        session_open(
            &session, text,
            &(struct how){ .threads = threads, .growth = BRIM_GROWTH_FIXED, .device = OPENCL });
        const brim_plan_info *info = brim_plan_get(brim_loader_plan(session.loader));
        take_batches(&session, 2, digest_batch, &digest);
        assert_int_equal(budget_of(session.runtime, kind_there()).charged,
                         info->planned_device_bytes);
        assert_int_equal(stats_of(session.loader).device_slots, info->device_slots);
        MUST(brim_runtime_trim(session.runtime, NULL));
        assert_int_equal(budget_of(session.runtime, kind_there()).charged,
                         info->minimum_device_bytes);
        assert_int_equal(budget_of(session.runtime, BRIM_MEMORY_PINNED).charged,
                         info->minimum_pinned_bytes);
        assert_int_equal(stats_of(session.loader).device_slots, info->minimum_device_slots);
        assert_true(take_batches(&session, TO_THE_END, digest_batch, &digest));
        assert_same(digest, wanted);
        session_close(&session);
    }
}

/* Budgets below the runtime's: parts of a device. */
static void test_a_part_of_a_device(void **state) {
    (void)state;
    NEED_DEVICE(OPENCL);
    char text[TEXT_BYTES];
    brim_open_options options = options_there("part");
    expand(texts[0], text);
    const brim_plan_info info = plan_alone(2, text, &options);
    const struct digest wanted = run_epochs(text, &(struct how){ .threads = 0 }, 1);
    brim_runtime *runtime = make_runtime(2, (uint64_t)64 << 20);
    brim_budget *part;
    brim_loader *refused = NULL;
    MUST(brim_budget_new(brim_runtime_budget(runtime), "part", BRIM_UNLIMITED, 0, &part));
    const uint64_t limit = info.minimum_device_bytes + info.device_slot_bytes;
    MUST(brim_budget_set(part, kind_there(), info.minimum_device_bytes - 1, 0));
    options.budget = part;
    assert_int_equal(try_open(runtime, text, &options, &refused), BRIM_STATUS_BUDGET);
    assert_detail_has(" on opencl:0 (");
    MUST(brim_budget_set(part, kind_there(), limit, limit));
    options.growth = BRIM_GROWTH_FIXED;
    struct session session = open_on(runtime, text, &options);
    struct digest digest = { 0 };
    brim_budget_info there = BRIM_BUDGET_INFO_INIT;
    assert_int_equal(stats_of(session.loader).device_slots, info.minimum_device_slots + 1);
    take_batches(&session, 2, digest_batch, &digest);
    /* a lower limit: the elastic slot goes; lower still is refused, and changes nothing */
    MUST(brim_budget_set(part, kind_there(), info.minimum_device_bytes, 0));
    assert_int_equal(stats_of(session.loader).device_slots, info.minimum_device_slots);
    assert_int_equal(brim_budget_set(part, kind_there(), info.minimum_device_bytes - 1, 0),
                     BRIM_STATUS_BUDGET);
    assert_true(take_batches(&session, TO_THE_END, digest_batch, &digest));
    assert_same(digest, wanted);
    MUST(brim_budget_read(part, kind_there(), &there));
    assert_int_equal(there.charged, info.minimum_device_bytes);
    assert_true(there.peak <= limit);
    brim_loader_close(session.loader);
    brim_budget_free(part);
    check_budget(runtime);
    brim_runtime_free(runtime);
}

/* A copy is charged, and refused when there is no room for it. */
static void test_copies_are_charged(void **state) {
    (void)state;
    NEED_DEVICE(OPENCL);
    char text[TEXT_BYTES];
    const brim_open_options options = options_there("copies");
    const brim_plan_info info = plan_alone(0, expand(texts[0], text), &options);
    brim_runtime *runtime = make_runtime(0, (uint64_t)64 << 20);
    MUST(brim_budget_set(brim_runtime_budget(runtime), kind_there(),
                         info.minimum_device_bytes + info.device_slot_bytes, 0));
    struct session session = open_on(runtime, text, &options);
    brim_batch *batch = take_batch(&session), *copy, *more = NULL;
    const struct digest wanted = digest_of(batch);
    const struct charges before = charges_of(runtime);
    MUST(brim_batch_copy(batch, &copy));
    assert_int_equal(charges_of(runtime).device,
                     info.minimum_device_bytes + info.device_slot_bytes);
    assert_int_equal(brim_batch_copy(batch, &more), BRIM_STATUS_BUDGET);
    assert_null(more);
    assert_detail_has("copies");
    assert_same(digest_of(copy), wanted);
    brim_batch_release(batch);
    assert_same(digest_of(copy), wanted);
    brim_batch_release(copy);
    assert_flat(before, charges_of(runtime), 0);
    brim_loader_close(session.loader);
    brim_runtime_free(runtime);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_limit_from_the_minimum_up),
        cmocka_unit_test(test_the_minimum_of_everything),
        cmocka_unit_test(test_limits_at_every_edge),
        cmocka_unit_test(test_a_byte_less_is_refused),
        cmocka_unit_test(test_larger_than_the_device_gives_at_once),
        cmocka_unit_test(test_holders_are_named),
        cmocka_unit_test(test_resets_by_seeking),
        cmocka_unit_test(test_resets_while_growing),
        cmocka_unit_test(test_resets_by_opening_again),
        cmocka_unit_test(test_two_loaders_on_one_device),
        cmocka_unit_test(test_trim_gives_slots_back),
        cmocka_unit_test(test_a_part_of_a_device),
        cmocka_unit_test(test_copies_are_charged),
    };
    return cmocka_run_group_tests_name("upload_limits", tests, begin_upload_tests, end_tests);
}

/*
 * test_soak.c: nothing grows with time.
 *
 * Seeks, epochs and openings by the thousand leave resident memory,
 * descriptors, maps and counters where they were after a warm-up, and a loader
 * that runs takes nothing from the system at all: no allocation, no map, no
 * thread.
 */
#include "support/memory_data.h"
#include "support/memory_watch.h"

#include "base/fault.h"
#include "engine/loader.h"
#include "memory/budget.h"

#include <inttypes.h>

/* What resident memory may differ by between two looks: the C library's own
 * pools, pages of the stack and of tables touched for the first time. */
#define DRIFT_BYTES ((uint64_t)768 << 10)

/* Sanitizers make everything slower by an order of magnitude. */
static unsigned times(unsigned count) {
    return is_sanitized() ? count / 10 : count;
}

struct marks {
    uint64_t charged, resident;
    size_t descriptors, file_maps;
};

static struct marks look(brim_runtime *runtime) {
    return (struct marks){ .charged = runtime != NULL ? usage_of(runtime).charged : 0,
                           .resident = resident_bytes(),
                           .descriptors = descriptor_count(),
                           .file_maps = file_map_count() };
}

static void check_marks(struct marks before, struct marks after) {
    assert_int_equal(before.charged, after.charged);
    assert_int_equal(before.descriptors, after.descriptors);
    assert_int_equal(before.file_maps, after.file_maps);
    if (!is_sanitized() && after.resident > before.resident + DRIFT_BYTES) {
        fail_msg("resident memory grew from %" PRIu64 " to %" PRIu64 " bytes", before.resident,
                 after.resident);
    }
}

static struct session open_fixed(brim_runtime *runtime, const char *text) {
    brim_open_options options = open_options("soak");
    options.growth = BRIM_GROWTH_FIXED;
    return open_on(runtime, text, &options);
}

/* --------------------------------------------------------- a running loader */

static void seek_about(brim_loader *loader, unsigned count, uint64_t *random) {
    const uint64_t steps = brim_plan_get(brim_loader_plan(loader))->steps;
    for (unsigned i = 0; i < count; i++) {
        const uint64_t epoch = next_random(random) % 1000, step = next_random(random) % steps;
        brim_batch *batch;
        assert_int_equal(brim_loader_seek(loader, epoch, step), BRIM_OK);
        if (i % 4 == 0) { /* else at once elsewhere, with workers inside */
            assert_int_equal(brim_loader_next(loader, BRIM_FOREVER, &batch), BRIM_OK);
            assert_int_equal(brim_batch_get(batch)->epoch, epoch);
            assert_int_equal(brim_batch_get(batch)->step, step);
            brim_batch_release(batch);
        }
    }
}

static void run_epochs(brim_loader *loader, unsigned count) {
    const uint64_t batches = brim_plan_get(brim_loader_plan(loader))->batches;
    assert_true(take_more(loader, count * batches, NULL));
}

static void test_seeks_and_epochs(void **state) {
    (void)state;
    static const char *const names[] = { "tokens", "array", "mapped", "callback" };
    for (unsigned way = 0; way < 8; way++) {
        char text[TEXT_BYTES];
        uint64_t random = 11 + way;
        brim_runtime *runtime = make_runtime(way % 2 ? 2 : 0, 0);
        const struct marks empty = look(runtime);
        struct session session = open_fixed(runtime, recipe_text(names[way / 2], text));
        seek_about(session.loader, 100, &random);
        run_epochs(session.loader, 10);
        const struct marks before = look(runtime);
        seek_about(session.loader, times(10000 / 8), &random);
        check_marks(before, look(runtime));
        run_epochs(session.loader, times(1000 / 8));
        check_marks(before, look(runtime));
        brim_loader_close(session.loader);
        assert_int_equal(brim_runtime_trim(runtime, NULL), BRIM_OK);
        const struct marks after = look(runtime);
        assert_int_equal(after.charged, empty.charged);
        assert_int_equal(after.descriptors, empty.descriptors);
        assert_int_equal(after.file_maps, empty.file_maps);
        brim_runtime_free(runtime);
    }
}

/* ---------------------------------------------------------------- openings */

static void open_and_close(brim_runtime *runtime, unsigned number) {
    char text[TEXT_BYTES];
    brim_runtime *own = runtime == NULL ? make_runtime(number % 3 == 0 ? 2 : 0, 0) : runtime;
    struct session session =
        open_fixed(own, recipe_text(recipes[number % recipe_count].name, text));
    if (number % 2 == 0) {
        assert_true(take_more(session.loader, 1, NULL));
    }
    brim_batch *copy = NULL;
    if (number % 7 == 0) {
        brim_batch *batch = take_batch(&session);
        assert_int_equal(brim_batch_copy(batch, &copy), BRIM_OK);
        brim_batch_release(batch);
    }
    brim_loader_close(session.loader);
    brim_batch_release(copy);
    if (runtime == NULL) {
        brim_runtime_free(own);
    }
}

static void test_openings(void **state) {
    (void)state;
    for (int way = 0; way < 3; way++) { /* one runtime without and with threads; one each */
        brim_runtime *runtime = way < 2 ? make_runtime(way * 2, 0) : NULL;
        for (unsigned i = 0; i < 42; i++) {
            open_and_close(runtime, i);
        }
        const struct marks before = look(runtime);
        for (unsigned i = 0; i < 42 * (is_sanitized() ? 1 : 8); i++) { /* 1,008 in all */
            open_and_close(runtime, i);
        }
        check_marks(before, look(runtime));
        brim_runtime_free(runtime);
    }
}

static void test_refusals(void **state) {
    (void)state;
    char text[TEXT_BYTES];
    const brim_open_options options = open_options("soak");
    recipe_text("zip", text);
    const uint64_t minimum = plan_alone(0, text, &options).minimum_bytes;
    brim_runtime *runtime = make_runtime(2, minimum - 4096);
    brim_loader *loader;
    assert_int_equal(try_open(runtime, text, &options, &loader), BRIM_STATUS_BUDGET);
    const struct marks before = look(runtime);
    for (unsigned i = 0; i < times(1000); i++) {
        assert_int_equal(try_open(runtime, text, &options, &loader), BRIM_STATUS_BUDGET);
    }
    check_marks(before, look(runtime));
    brim_runtime_free(runtime);
}

/* ---------------------------------------------------- nothing in the steady */

static uint64_t taken_from_the_system(void) {
    return brim__fault_passed(BRIM__FAULT_ALLOC) + brim__fault_passed(BRIM__FAULT_MAP) +
           brim__fault_passed(BRIM__FAULT_THREAD) + brim__fault_passed(BRIM__FAULT_OPEN);
}

static void check_steady(const char *text, int32_t threads, brim_growth growth) {
    uint64_t random = 17;
    brim_runtime *runtime = make_runtime(threads, 0);
    brim_open_options options = open_options("steady");
    options.growth = growth;
    struct session session = open_on(runtime, text, &options);
    assert_true(take_more(session.loader, 50, NULL));
    brim__fault_arm(0, 0, false);
    for (unsigned i = 0; i < 5; i++) { /* 1,000 batches, epochs and seeks among them */
        brim_state where;
        assert_true(take_more(session.loader, times(1000) / 5, NULL));
        seek_about(session.loader, 20, &random);
        assert_int_equal(brim_loader_state(session.loader, &where), BRIM_OK);
        assert_int_equal(brim_loader_restore(session.loader, &where), BRIM_OK);
    }
    if (taken_from_the_system() != 0) {
        fail_msg("\"%s\" with %d threads: %" PRIu64 " allocations, %" PRIu64 " maps, %" PRIu64
                 " threads, %" PRIu64 " files while running",
                 text, threads, brim__fault_passed(BRIM__FAULT_ALLOC),
                 brim__fault_passed(BRIM__FAULT_MAP), brim__fault_passed(BRIM__FAULT_THREAD),
                 brim__fault_passed(BRIM__FAULT_OPEN));
    }
    brim_loader_close(session.loader);
    brim_runtime_free(runtime);
}

static void test_nothing_is_taken_while_running(void **state) {
    (void)state;
    for (size_t r = 0; r < recipe_count; r++) {
        char text[TEXT_BYTES];
        recipe_text(recipes[r].name, text);
        check_steady(text, 0, r % 2 == 0 ? BRIM_GROWTH_ON_DEMAND : BRIM_GROWTH_FIXED);
        check_steady(text, 2, BRIM_GROWTH_FIXED);
    }
}

/* A loader that grows takes each thing once: what it grew to stays. */
static void test_growth_ends(void **state) {
    (void)state;
    char text[TEXT_BYTES];
    brim_runtime *runtime = make_runtime(2, 0);
    const brim_open_options options = open_options("growing");
    struct session session = open_on(runtime, recipe_text("npy", text), &options);
    const brim_plan_info *info = brim_plan_get(brim_loader_plan(session.loader));
    brim__fault_arm(0, 0, false);
    assert_true(take_more(session.loader, times(1000), NULL));
    assert_true(brim__fault_passed(BRIM__FAULT_MAP) <=
                info->slots - info->minimum_slots + info->threads);
    assert_int_equal(brim__fault_passed(BRIM__FAULT_ALLOC), 0);
    assert_int_equal(brim__fault_passed(BRIM__FAULT_THREAD), 0);
    brim_loader_close(session.loader);
    brim_runtime_free(runtime);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_seeks_and_epochs),
        cmocka_unit_test(test_openings),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_nothing_is_taken_while_running),
        cmocka_unit_test(test_growth_ends),
    };
    return cmocka_run_group_tests(tests, begin_memory_tests, end_tests);
}

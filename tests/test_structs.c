/*
 * test_structs.c: structs of programs that were compiled with an older or a newer brim.h, and
 * arrays of them.
 *
 * A newer program's struct is one with bytes after this library's. They are 0 where the program
 * did not use what is new: then it works; else it is refused, and the text names the byte.
 */
#include "support/support.h"

#include <stdio.h>
#include <string.h>

#define NEWER 24 /* bytes that a newer header has added */

/* A struct of a newer header. */
#define NEWER_OF(type)      \
    struct {                \
        type known;         \
        uint8_t new[NEWER]; \
    }

static brim_runtime *runtime;
static brim_pipeline *pipeline;

static int begin(void **state) {
    brim_runtime_options options = BRIM_RUNTIME_OPTIONS_INIT;
    options.host_bytes = 16u << 20;
    options.threads = 0;
    return begin_tests(state) != 0 || brim_runtime_new(&options, &runtime) != BRIM_OK ||
           brim_pipeline_parse("array @x | batch 2", &pipeline) != BRIM_OK;
}

static int end(void **state) {
    brim_pipeline_free(pipeline);
    brim_runtime_free(runtime);
    return end_tests(state);
}

static const float numbers[6] = { 1, 2, 3, 4, 5, 6 };
static const int64_t six[1] = { 6 };

/* ----------------------------------------------------------------- options */

static void test_runtime_options(void **state) {
    NEWER_OF(brim_runtime_options) newer = { .known = BRIM_RUNTIME_OPTIONS_INIT };
    brim_runtime *made;
    (void)state;
    newer.known.size = sizeof newer;
    newer.known.host_bytes = 1u << 20;
    assert_int_equal(brim_runtime_new(&newer.known, &made), BRIM_OK);
    brim_runtime_free(made);
    newer.new[NEWER - 1] = 1;
    assert_int_equal(brim_runtime_new(&newer.known, &made), BRIM_STATUS_UNSUPPORTED);
    assert_null(made);
    assert_detail_has("runtime options: byte ");
    assert_detail_has("load a newer library");

    brim_runtime_options older = BRIM_RUNTIME_OPTIONS_INIT;
    brim_usage usage = BRIM_USAGE_INIT;
    older.host_bytes = 1u << 20;
    older.threads = -77; /* not in the older header */
    older.size = offsetof(brim_runtime_options, threads);
    assert_int_equal(brim_runtime_new(&older, &made), BRIM_OK);
    assert_int_equal(brim_runtime_read_usage(made, &usage), BRIM_OK);
    assert_int_equal(usage.limit, 1u << 20);
    brim_runtime_free(made);
}

static void test_sizes_that_were_never_set(void **state) {
    static const size_t sizes[] = { 0, sizeof(size_t) - 1, (size_t)1 << 40, SIZE_MAX };
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        brim_runtime_options options = { .size = sizes[i] };
        brim_open_options open = { .size = sizes[i] };
        brim_usage usage = { .size = sizes[i] };
        brim_failure failure = { .size = sizes[i] };
        brim_device_info device = { .size = sizes[i] };
        brim_argument argument = { .size = sizes[i], .key = "length" };
        brim_binding binding = { .size = sizes[i], .name = "x" };
        const brim_open_options with = { .size = sizeof with,
                                         .bindings = &binding,
                                         .binding_count = 1 };
        brim_runtime *made;
        brim_plan *plan;
        brim_pipeline *built;
        assert_int_equal(brim_runtime_new(&options, &made), BRIM_STATUS_INVALID);
        assert_detail_has("BRIM_RUNTIME_OPTIONS_INIT");
        assert_int_equal(brim_plan_new(runtime, pipeline, &open, &plan), BRIM_STATUS_INVALID);
        assert_detail_has("BRIM_OPEN_OPTIONS_INIT");
        assert_int_equal(brim_plan_new(runtime, pipeline, &with, &plan), BRIM_STATUS_INVALID);
        assert_detail_has("BRIM_BINDING_INIT");
        assert_int_equal(brim_runtime_read_usage(runtime, &usage), BRIM_STATUS_INVALID);
        assert_detail_has("BRIM_USAGE_INIT");
        assert_int_equal(brim_failure_read(&failure), BRIM_STATUS_INVALID);
        assert_int_equal(brim_device_read(BRIM_DEVICE_HOST, 0, &device), BRIM_STATUS_INVALID);
        assert_int_equal(brim_pipeline_new(&built), BRIM_OK);
        assert_int_equal(brim_pipeline_add(built, "range", &argument, 1), BRIM_STATUS_INVALID);
        assert_detail_has("BRIM_ARGUMENT_INIT");
        brim_pipeline_free(built);
    }
}

/* Opens with bindings whose elements lie `apart` bytes apart. */
static brim_status open_bound(const void *bindings, size_t count, brim_loader **loader) {
    brim_open_options options = BRIM_OPEN_OPTIONS_INIT;
    options.bindings = bindings;
    options.binding_count = count;
    return brim_loader_open(runtime, pipeline, &options, loader);
}

static void expect_numbers(brim_loader *loader) {
    brim_batch *batch;
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(brim_loader_next(loader, BRIM_FOREVER, &batch), BRIM_OK);
        assert_memory_equal(brim_batch_field_at(batch, 0)->data, numbers + 2 * i,
                            2 * sizeof(float));
        brim_batch_release(batch);
    }
    assert_int_equal(brim_loader_next(loader, BRIM_FOREVER, &batch), BRIM_STATUS_END);
    assert_null(batch);
    brim_loader_close(loader);
}

static void test_open_options(void **state) {
    const brim_binding binding = brim_bind_array("x", numbers, BRIM_DTYPE_F32, 1, six);
    NEWER_OF(brim_open_options) newer = { .known = BRIM_OPEN_OPTIONS_INIT };
    brim_loader *loader;
    brim_plan *plan;
    (void)state;
    newer.known.size = sizeof newer;
    newer.known.bindings = &binding;
    newer.known.binding_count = 1;
    assert_int_equal(brim_loader_open(runtime, pipeline, &newer.known, &loader), BRIM_OK);
    expect_numbers(loader);
    newer.new[0] = 1;
    assert_int_equal(brim_loader_open(runtime, pipeline, &newer.known, &loader),
                     BRIM_STATUS_UNSUPPORTED);
    assert_null(loader);
    assert_int_equal(brim_plan_new(runtime, pipeline, &newer.known, &plan),
                     BRIM_STATUS_UNSUPPORTED);
    assert_null(plan);
    newer.new[0] = 0;
    newer.known.size = offsetof(brim_open_options, shared);
    newer.known.shared = 99; /* not in the older header */
    assert_int_equal(brim_loader_open(runtime, pipeline, &newer.known, &loader), BRIM_OK);
    expect_numbers(loader);
}

static void test_arrays_of_bindings(void **state) {
    NEWER_OF(brim_binding)
    newer[2] = {
        { .known = brim_bind_array("other", numbers, BRIM_DTYPE_F32, 1, six) },
        { .known = brim_bind_array("x", numbers, BRIM_DTYPE_F32, 1, six) },
    };
    brim_loader *loader;
    (void)state;
    newer[0].known.size = sizeof newer[0];
    assert_int_equal(open_bound(newer, 2, &loader), BRIM_OK);
    expect_numbers(loader);
    newer[1].new[3] = 1;
    assert_int_equal(open_bound(newer, 2, &loader), BRIM_STATUS_UNSUPPORTED);
    assert_detail_has("a binding: byte ");
    newer[1].new[3] = 0;
    newer[1].known.flags = 1u << 20;
    assert_int_equal(open_bound(newer, 2, &loader), BRIM_STATUS_UNSUPPORTED);
    assert_detail_has("flags");

    /* as a header without batch_map had them */
    enum { OLDER = offsetof(brim_binding, batch_map) };
    uint8_t older[2 * OLDER];
    for (size_t i = 0; i < 2; i++) {
        brim_binding binding = newer[i].known;
        binding.size = OLDER;
        binding.flags = 0;
        memcpy(older + i * OLDER, &binding, OLDER);
    }
    assert_int_equal(open_bound(older, 2, &loader), BRIM_OK);
    expect_numbers(loader);
}

static void test_arrays_of_arguments(void **state) {
    NEWER_OF(brim_argument)
    newer[2] = { { .known = BRIM_ARGUMENT_INIT }, { .known = BRIM_ARGUMENT_INIT } };
    brim_pipeline *built;
    (void)state;
    newer[0].known.size = sizeof newer[0];
    newer[0].known.kind = BRIM_ARGUMENT_INTEGER;
    newer[0].known.integer = 64;
    newer[1].known.key = "on_error";
    newer[1].known.text = "skip";
    assert_int_equal(brim_pipeline_new(&built), BRIM_OK);
    assert_int_equal(brim_pipeline_add(built, "batch", &newer[0].known, 2), BRIM_OK);
    assert_string_equal(brim_pipeline_text(built), "batch 64 on_error=skip");
    newer[1].new[0] = 1;
    assert_int_equal(brim_pipeline_add(built, "batch", &newer[0].known, 2),
                     BRIM_STATUS_UNSUPPORTED);
    assert_detail_has("an argument: byte ");
    newer[0].known.size = offsetof(brim_argument, pipeline);
    assert_int_equal(brim_pipeline_add(built, "batch", &newer[0].known, 1), BRIM_OK);
    brim_pipeline_free(built);
}

static int read_two(void *user, const brim_call *call, brim_value *outputs, size_t count, char *why,
                    size_t why_bytes) {
    (void)user, (void)why, (void)why_bytes;
    assert_int_equal(count, 2);
    assert_int_equal(outputs->size, sizeof(brim_value));
    assert_ptr_equal(brim_value_at(outputs, 1), &outputs[1]);
    for (size_t i = 0; i < count; i++) {
        const int64_t value = (int64_t)(10 * call->sample + i);
        memcpy(brim_value_at(outputs, i)->data, &value, sizeof value);
    }
    return BRIM_ANSWER_DONE;
}

static void test_arrays_of_fields_and_values(void **state) {
    NEWER_OF(brim_field_spec)
    newer[2] = { { .known = BRIM_FIELD_SPEC_INIT }, { .known = BRIM_FIELD_SPEC_INIT } };
    brim_binding binding = BRIM_BINDING_INIT;
    brim_open_options options = BRIM_OPEN_OPTIONS_INIT;
    brim_loader *loader;
    brim_batch *batch;
    (void)state;
    newer[0].known.size = sizeof newer[0];
    newer[0].known.name = "a";
    newer[1].known.name = "b";
    newer[0].known.dtype = newer[1].known.dtype = BRIM_DTYPE_I64;
    binding.name = "two";
    binding.kind = BRIM_BINDING_SOURCE;
    binding.count = 4;
    binding.fields = &newer[0].known;
    binding.field_count = 2;
    binding.read = read_two;
    options.bindings = &binding;
    options.binding_count = 1;
    assert_int_equal(brim_loader_open_text(runtime, "callback @two | batch 4", &options, &loader),
                     BRIM_OK);
    assert_int_equal(brim_loader_next(loader, BRIM_FOREVER, &batch), BRIM_OK);
    assert_int_equal(((const int64_t *)brim_batch_find(batch, "b")->data)[3], 31);
    brim_batch_release(batch);
    brim_loader_close(loader);
    newer[1].new[1] = 1;
    assert_int_equal(brim_loader_open_text(runtime, "callback @two | batch 4", &options, &loader),
                     BRIM_STATUS_UNSUPPORTED);
    assert_detail_has("a field: byte ");
    newer[0].known.size = offsetof(brim_field_spec, form);
    binding.field_count = 1;
    assert_int_equal(brim_plan_new(runtime, pipeline, &options, &(brim_plan *){ NULL }),
                     BRIM_STATUS_UNBOUND); /* that one wants @x */
    assert_int_equal(brim_loader_open_text(runtime, "range 4 | batch 4", &options, &loader),
                     BRIM_OK);
    brim_loader_close(loader);
}

static void test_arguments_of_stages(void **state) {
    const brim_stage_info *batch = brim_stage_find("batch");
    (void)state;
    assert_non_null(batch);
    assert_true(batch->argument_count > 1);
    for (size_t i = 0; i < batch->argument_count; i++) {
        assert_non_null(brim_stage_argument_at(batch, i)->name);
    }
    assert_null(brim_stage_argument_at(batch, batch->argument_count));
}

/* -------------------------------------------------------------------- info */

/* Reads into a struct of an older header and into one of a newer: nothing is written past the
 * first, and what the second has besides is 0. */
#define CHECK_INFO(type, macro, first, call)                           \
    do {                                                               \
        NEWER_OF(type) read, whole = { .known = macro };               \
        memset(&read, 0xAB, sizeof read);                              \
        read.known.size = offsetof(type, first);                       \
        type *given = &read.known;                                     \
        assert_int_equal(call, BRIM_OK);                               \
        assert_int_equal(read.known.size, offsetof(type, first));      \
        const uint8_t *bytes = (const uint8_t *)&read;                 \
        for (size_t i = offsetof(type, first); i < sizeof read; i++) { \
            assert_int_equal(bytes[i], 0xAB);                          \
        }                                                              \
        memset(whole.new, 0xAB, sizeof whole.new);                     \
        whole.known.size = sizeof whole;                               \
        given = &whole.known;                                          \
        assert_int_equal(call, BRIM_OK);                               \
        assert_int_equal(whole.known.size, sizeof whole);              \
        for (size_t i = 0; i < NEWER; i++) {                           \
            assert_int_equal(whole.new[i], 0);                         \
        }                                                              \
        given = NULL;                                                  \
        assert_int_equal(call, BRIM_STATUS_INVALID);                   \
    } while (0)

static void test_structs_that_are_read(void **state) {
    brim_budget *budget = brim_runtime_budget(runtime);
    brim_loader *loader;
    char path[160];
    (void)state;
    struct path kept = in_directory("kept");
    brim_binding binding = brim_bind_array("x", numbers, BRIM_DTYPE_F32, 1, six);
    brim_open_options options = BRIM_OPEN_OPTIONS_INIT;
    options.bindings = &binding;
    options.binding_count = 1;
    snprintf(path, sizeof path, "array @x version=1 | cache file=%s | batch 2", kept.text);
    CHECK_INFO(brim_usage, BRIM_USAGE_INIT, elastic, brim_runtime_read_usage(runtime, given));
    CHECK_INFO(brim_budget_info, BRIM_BUDGET_INFO_INIT, peak,
               brim_budget_read(budget, BRIM_MEMORY_HOST, given));
    CHECK_INFO(brim_device_info, BRIM_DEVICE_INFO_INIT, driver,
               brim_device_read(BRIM_DEVICE_HOST, 0, given));
    CHECK_INFO(brim_failure, BRIM_FAILURE_INIT, exact, brim_failure_read(given));
    CHECK_INFO(brim_pipeline_stage, BRIM_PIPELINE_STAGE_INIT, depth,
               brim_pipeline_read_stage(pipeline, 0, given));
    CHECK_INFO(brim_pipeline_value, BRIM_PIPELINE_VALUE_INIT, real,
               brim_pipeline_read_value(pipeline, 0, 0, given));
    assert_int_equal(brim_loader_open_text(runtime, path, &options, &loader), BRIM_OK);
    CHECK_INFO(brim_stats, BRIM_STATS_INIT, bytes, brim_loader_read_stats(loader, given));
    CHECK_INFO(brim_failure, BRIM_FAILURE_INIT, exact, brim_loader_read_failure(loader, given));
    CHECK_INFO(brim_stage_stats, BRIM_STAGE_STATS_INIT, ns,
               brim_loader_read_stage_stats(loader, 0, given));
    CHECK_INFO(brim_cache_stats, BRIM_CACHE_STATS_INIT, samples,
               brim_loader_read_cache_stats(loader, 0, given));
    brim_loader_close(loader);
    CHECK_INFO(brim_cache_info, BRIM_CACHE_INFO_INIT, filled, brim_cache_read(kept.text, given));
}

static void test_version(void **state) {
    char text[32];
    (void)state;
    snprintf(text, sizeof text, "%d.%d.%d", BRIM_VERSION_NUMBER / 1000000,
             BRIM_VERSION_NUMBER / 1000 % 1000, BRIM_VERSION_NUMBER % 1000);
    assert_string_equal(text, brim_version());
    assert_int_equal(brim_version_number(), BRIM_VERSION_NUMBER);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_runtime_options),
        cmocka_unit_test(test_sizes_that_were_never_set),
        cmocka_unit_test(test_open_options),
        cmocka_unit_test(test_arrays_of_bindings),
        cmocka_unit_test(test_arrays_of_arguments),
        cmocka_unit_test(test_arrays_of_fields_and_values),
        cmocka_unit_test(test_arguments_of_stages),
        cmocka_unit_test(test_structs_that_are_read),
        cmocka_unit_test(test_version),
    };
    return cmocka_run_group_tests(tests, begin, end);
}

/*
 * test_null.c: every call of brim.h with NULL where a pointer is expected, and what out-parameters
 * are after a failure. cli/test_symbols.py checks that no call is missing here.
 */
#include "support/support.h"

#include <string.h>

#define POISON ((void *)(uintptr_t)0x5A5A5A5A)

static brim_runtime *runtime;
static brim_pipeline *pipeline;
static brim_loader *loader;
static brim_batch *batch;

static int begin(void **state) {
    brim_runtime_options options = BRIM_RUNTIME_OPTIONS_INIT;
    options.host_bytes = 16u << 20;
    options.threads = 0;
    return begin_tests(state) != 0 || brim_runtime_new(&options, &runtime) != BRIM_OK ||
           brim_pipeline_parse("range 8 | batch 2", &pipeline) != BRIM_OK ||
           brim_loader_open(runtime, pipeline, NULL, &loader) != BRIM_OK ||
           brim_loader_next(loader, BRIM_FOREVER, &batch) != BRIM_OK;
}

static int end(void **state) {
    brim_batch_release(batch);
    brim_loader_close(loader);
    brim_pipeline_free(pipeline);
    brim_runtime_free(runtime);
    return end_tests(state);
}

/* Refused, and says what. */
static void refuses(brim_status status) {
    assert_int_equal(status, BRIM_STATUS_INVALID);
    assert_true(strlen(brim_detail()) > 10);
}

static int visit(void *user, const brim_budget_info *info) {
    (void)user, (void)info;
    return BRIM_ANSWER_DONE;
}

static void test_handles(void **state) {
    brim_budget *root = brim_runtime_budget(runtime), *budget = POISON;
    brim_budget_info info = BRIM_BUDGET_INFO_INIT;
    brim_usage usage = BRIM_USAGE_INIT;
    brim_stats stats = BRIM_STATS_INIT;
    brim_stage_stats stage_stats = BRIM_STAGE_STATS_INIT;
    brim_cache_stats cache_stats = BRIM_CACHE_STATS_INIT;
    brim_pipeline *copy = POISON;
    brim_plan *plan = POISON;
    brim_loader *opened = POISON;
    brim_batch *next = POISON;
    brim_state at;
    uint64_t bytes;
    char text[64];
    (void)state;
    refuses(brim_budget_new(NULL, "a", 0, 0, &budget));
    assert_null(budget);
    refuses(brim_budget_new(root, NULL, 0, 0, &budget));
    refuses(brim_budget_set(NULL, BRIM_MEMORY_HOST, 0, 0));
    refuses(brim_budget_charge(NULL, BRIM_MEMORY_HOST, 1));
    brim_budget_uncharge(NULL, BRIM_MEMORY_HOST, 1);
    refuses(brim_budget_read(NULL, BRIM_MEMORY_HOST, &info));
    refuses(brim_budget_walk(NULL, BRIM_MEMORY_HOST, visit, NULL));
    refuses(brim_budget_walk(root, BRIM_MEMORY_HOST, NULL, NULL));
    assert_null(brim_runtime_budget(NULL));
    refuses(brim_runtime_read_usage(NULL, &usage));
    refuses(brim_runtime_trim(NULL, &bytes));
    refuses(brim_pipeline_parse(NULL, &copy));
    assert_null(copy);
    refuses(brim_pipeline_add(NULL, "batch", NULL, 0));
    refuses(brim_pipeline_add(pipeline, NULL, NULL, 0));
    refuses(brim_pipeline_add(pipeline, "batch", NULL, 1));
    copy = POISON;
    refuses(brim_pipeline_copy(NULL, &copy));
    assert_null(copy);
    assert_int_equal(brim_pipeline_length(NULL), 0);
    assert_int_equal(brim_pipeline_stage_count(NULL), 0);
    brim_pipeline_stage stage = BRIM_PIPELINE_STAGE_INIT;
    brim_pipeline_value value = BRIM_PIPELINE_VALUE_INIT;
    refuses(brim_pipeline_read_stage(NULL, 0, &stage));
    refuses(brim_pipeline_read_value(NULL, 0, 0, &value));
    refuses(brim_pipeline_cut(NULL, 0));
    assert_null(brim_pipeline_text(NULL));
    refuses(brim_plan_new(NULL, pipeline, NULL, &plan));
    assert_null(plan);
    plan = POISON;
    refuses(brim_plan_new(runtime, NULL, NULL, &plan));
    assert_null(plan);
    assert_null(brim_plan_get(NULL));
    assert_null(brim_plan_field_at(NULL, 0));
    assert_null(brim_plan_stage_at(NULL, 0));
    assert_null(brim_plan_stage_field_at(NULL, 0, 0));
    assert_null(brim_plan_index_at(NULL, 0));
    refuses(brim_plan_verify(NULL, NULL, NULL));
    assert_int_equal(brim_plan_class_count(NULL, "label"), 0);
    assert_int_equal(brim_plan_class_count(brim_loader_plan(loader), NULL), 0);
    assert_null(brim_plan_class_name(NULL, "label", 0));
    refuses(brim_plan_sample_name(NULL, 0, text, sizeof text));
    refuses(brim_loader_open(NULL, pipeline, NULL, &opened));
    assert_null(opened);
    opened = POISON;
    refuses(brim_loader_open(runtime, NULL, NULL, &opened));
    assert_null(opened);
    opened = POISON;
    refuses(brim_loader_open_text(NULL, "range 8 | batch 2", NULL, &opened));
    assert_null(opened);
    opened = POISON;
    refuses(brim_loader_open_text(runtime, NULL, NULL, &opened));
    assert_null(opened);
    refuses(brim_loader_next(NULL, 0, &next));
    assert_null(next);
    refuses(brim_loader_seek(NULL, 0, 0));
    refuses(brim_loader_interrupt(NULL));
    assert_null(brim_loader_plan(NULL));
    memset(text, 'x', sizeof text);
    brim_loader_detail(NULL, text, sizeof text);
    assert_string_equal(text, "");
    refuses(brim_loader_state(NULL, &at));
    assert_int_equal(brim_loader_state(loader, &at), BRIM_OK);
    refuses(brim_loader_restore(NULL, &at));
    refuses(brim_loader_read_stats(NULL, &stats));
    brim_failure failure = BRIM_FAILURE_INIT;
    refuses(brim_loader_read_failure(NULL, &failure));
    assert_null(brim_nearest(NULL, NULL, 0));
    assert_null(brim_nearest("x", NULL, 3));
    assert_string_equal(brim_nearest("bacth", (const char *const[]){ NULL, "batch" }, 2), "batch");
    brim_callback_cause(0);
    refuses(brim_loader_read_stage_stats(NULL, 0, &stage_stats));
    refuses(brim_loader_read_cache_stats(NULL, 0, &cache_stats));
    refuses(brim_loader_read_error(NULL, 0, &failure));
    assert_null(brim_batch_get(NULL));
    assert_null(brim_batch_field_at(NULL, 0));
    assert_null(brim_batch_find(NULL, "x"));
    assert_null(brim_batch_find(batch, NULL));
    refuses(brim_batch_state(NULL, &at));
    next = POISON;
    refuses(brim_batch_copy(NULL, &next));
    assert_null(next);
    refuses(brim_batch_wait(NULL, NULL));
    refuses(brim_batch_copy_field(NULL, 0, text, sizeof text));
    assert_int_equal(brim_output_file(NULL), -1);
    refuses(brim_output_commit(NULL));
    assert_null(brim_stage_argument_at(NULL, 0));
    assert_null(brim_stage_find(NULL));
    assert_int_equal(brim_call_random(NULL, 0), 0);
}

static void test_out_parameters(void **state) {
    brim_budget *root = brim_runtime_budget(runtime);
    uint32_t count;
    brim_device kind;
    (void)state;
    refuses(brim_failure_read(NULL));
    refuses(brim_pipeline_read_stage(pipeline, 0, NULL));
    refuses(brim_pipeline_read_value(pipeline, 0, 0, NULL));
    refuses(brim_budget_new(root, "a", 0, 0, NULL));
    refuses(brim_budget_read(root, BRIM_MEMORY_HOST, NULL));
    refuses(brim_device_count(BRIM_DEVICE_HOST, NULL));
    refuses(brim_device_read(BRIM_DEVICE_HOST, 0, NULL));
    refuses(brim_device_parse(NULL, &kind, &count));
    refuses(brim_device_parse("cuda", NULL, &count));
    refuses(brim_device_parse("cuda", &kind, NULL));
    refuses(brim_runtime_new(NULL, NULL));
    refuses(brim_runtime_read_usage(runtime, NULL));
    assert_int_equal(brim_runtime_trim(runtime, NULL), BRIM_OK); /* optional */
    refuses(brim_pipeline_parse("range 8", NULL));
    refuses(brim_pipeline_new(NULL));
    refuses(brim_pipeline_copy(pipeline, NULL));
    refuses(brim_plan_new(runtime, pipeline, NULL, NULL));
    refuses(brim_plan_sample_name(brim_loader_plan(loader), 0, NULL, 64));
    refuses(brim_loader_open(runtime, pipeline, NULL, NULL));
    refuses(brim_loader_open_text(runtime, "range 8 | batch 2", NULL, NULL));
    refuses(brim_loader_next(loader, 0, NULL));
    brim_loader_detail(loader, NULL, 64);
    refuses(brim_loader_state(loader, NULL));
    refuses(brim_loader_restore(loader, NULL));
    refuses(brim_loader_read_stats(loader, NULL));
    refuses(brim_loader_read_stage_stats(loader, 0, NULL));
    refuses(brim_loader_read_cache_stats(loader, 0, NULL));
    refuses(brim_loader_read_error(loader, 0, NULL));
    refuses(brim_batch_state(batch, NULL));
    refuses(brim_batch_copy(batch, NULL));
    refuses(brim_batch_copy_field(batch, 0, NULL, 64));
    refuses(brim_cache_read(NULL, &(brim_cache_info)BRIM_CACHE_INFO_INIT));
    refuses(brim_cache_read("x", NULL));
    refuses(brim_cache_verify(NULL, NULL, NULL, NULL, NULL));
    refuses(brim_cache_remove(NULL));
    refuses(brim_output_new(NULL, &(brim_output *){ NULL }));
    refuses(brim_output_new("x", NULL));
    refuses(brim_guess(NULL, (char[8]){ 0 }, 8));
    refuses(brim_guess("x", NULL, 8));
}

static void test_pointers_are_null_after_a_failure(void **state) {
    brim_runtime_options tiny = BRIM_RUNTIME_OPTIONS_INIT;
    brim_open_options wrong = BRIM_OPEN_OPTIONS_INIT;
    brim_runtime *made = POISON;
    brim_budget *budget = POISON;
    brim_pipeline *parsed = POISON;
    brim_plan *plan = POISON;
    brim_loader *opened = POISON;
    brim_batch *next = POISON;
    brim_output *output = POISON;
    (void)state;
    tiny.host_bytes = 1;
    assert_int_equal(brim_runtime_new(&tiny, &made), BRIM_STATUS_BUDGET);
    assert_null(made);
    assert_int_equal(brim_budget_new(brim_runtime_budget(runtime), "a", 1, 2, &budget),
                     BRIM_STATUS_INVALID);
    assert_null(budget);
    assert_int_equal(brim_pipeline_parse("nonsense", &parsed), BRIM_STATUS_SYNTAX);
    assert_null(parsed);
    wrong.rank = 7;
    assert_int_equal(brim_plan_new(runtime, pipeline, &wrong, &plan), BRIM_STATUS_INVALID);
    assert_null(plan);
    assert_int_equal(brim_loader_open(runtime, pipeline, &wrong, &opened), BRIM_STATUS_INVALID);
    assert_null(opened);
    opened = POISON;
    assert_int_equal(brim_loader_open_text(runtime, "nonsense", NULL, &opened), BRIM_STATUS_SYNTAX);
    assert_null(opened);
    assert_int_equal(brim_loader_next(loader, 0, &next), BRIM_STATUS_HELD);
    assert_null(next);
    assert_int_equal(brim_output_new(in_directory("none/x").text, &output), BRIM_STATUS_IO);
    assert_null(output);
}

static void test_freeing_nothing(void **state) {
    (void)state;
    brim_budget_free(NULL);
    brim_runtime_free(NULL);
    brim_pipeline_free(NULL);
    brim_plan_free(NULL);
    brim_loader_close(NULL);
    brim_batch_release(NULL);
    brim_batch_release_after(NULL, NULL);
    brim_output_free(NULL);
}

/* The rest of the header, which takes no pointer: values of no meaning. */
static void test_values_of_no_meaning(void **state) {
    (void)state;
    assert_non_null(brim_status_name((brim_status)999));
    assert_non_null(brim_status_text((brim_status)999));
    assert_non_null(brim_detail());
    assert_non_null(brim_version());
    assert_int_equal(brim_version_number(), BRIM_VERSION_NUMBER);
    (void)brim_dtype_name((brim_dtype)999);
    assert_int_equal(brim_dtype_bytes((brim_dtype)999), 0);
    assert_null(brim_device_name((brim_device)999));
    assert_int_equal(brim_device_memory((brim_device)999, 0), BRIM_MEMORY_NONE);
    assert_null(brim_stage_at(brim_stage_count()));
    brim_keep_addresses();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_handles),
        cmocka_unit_test(test_out_parameters),
        cmocka_unit_test(test_pointers_are_null_after_a_failure),
        cmocka_unit_test(test_freeing_nothing),
        cmocka_unit_test(test_values_of_no_meaning),
    };
    return cmocka_run_group_tests(tests, begin, end);
}

/*
 * test_log.c: what a program's log callback is told, and when.
 */
#include "base/fault.h"
#include "support/support.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST 16

struct told {
    int count;
    brim_log_level level[MOST];
    char text[MOST][1024];
    pthread_t thread; /* of the calls that may tell something */
    brim_runtime *runtime;
};

static void note(void *user, brim_log_level level, const char *text) {
    struct told *told = user;
    brim_usage usage = BRIM_USAGE_INIT;
    brim_pipeline *pipeline;
    brim_loader *loader;
    assert_true(pthread_equal(told->thread, pthread_self()));
    assert_true(told->count < MOST);
    told->level[told->count] = level;
    snprintf(told->text[told->count++], sizeof told->text[0], "%s", text);
    /* it may use brim: no lock that these need is held; and their failures are its own */
    if (told->runtime != NULL) {
        assert_int_equal(brim_runtime_read_usage(told->runtime, &usage), BRIM_OK);
        assert_int_equal(brim_runtime_trim(told->runtime, NULL), BRIM_OK);
    }
    assert_int_equal(brim_pipeline_parse("nonsense of the log's", &pipeline), BRIM_STATUS_SYNTAX);
    if (told->runtime != NULL) {
        assert_int_equal(brim_loader_open_text(told->runtime, "nor is this", NULL, &loader),
                         BRIM_STATUS_SYNTAX);
    }
}

/* How many were told that have `part` in their text. */
static int told_of(const struct told *told, brim_log_level level, const char *part) {
    int count = 0;
    for (int i = 0; i < told->count; i++) {
        count += told->level[i] == level && strstr(told->text[i], part) != NULL;
    }
    return count;
}

static void begin_log(struct told *told, uint64_t bytes, int32_t threads, const char *index_dir) {
    brim_runtime_options options = BRIM_RUNTIME_OPTIONS_INIT;
    *told = (struct told){ .thread = pthread_self() };
    options.host_bytes = bytes;
    options.threads = threads;
    options.index_dir = index_dir;
    options.log = note;
    options.log_user = told;
    assert_int_equal(brim_runtime_new(&options, &told->runtime), BRIM_OK);
    assert_int_equal(told->count, 0);
}

static brim_loader *open_loader(struct told *told, const char *text) {
    brim_loader *loader;
    assert_int_equal(brim_loader_open_text(told->runtime, text, NULL, &loader), BRIM_OK);
    return loader;
}

static void run_epoch(brim_loader *loader) {
    brim_batch *batch;
    brim_status status;
    while ((status = brim_loader_next(loader, BRIM_FOREVER, &batch)) == BRIM_OK) {
        brim_batch_release(batch);
    }
    assert_int_equal(status, BRIM_STATUS_END);
}

static void test_nothing_is_told_where_all_is_well(void **state) {
    struct told told;
    (void)state;
    begin_log(&told, 16u << 20, 2, NULL);
    brim_loader *loader = open_loader(&told, "range 100 | cache memory | batch 7");
    run_epoch(loader);
    run_epoch(loader);
    brim_loader_close(loader);
    brim_runtime_free(told.runtime);
    assert_int_equal(told.count, 0);
}

static void test_a_cache_that_is_reset(void **state) {
    struct told told;
    char text[256];
    (void)state;
    const struct path path = in_directory("anew");
    begin_log(&told, 16u << 20, 0, NULL);
    snprintf(text, sizeof text, "range 100 | cache file=%s | batch 7", path.text);
    brim_loader *loader = open_loader(&told, text);
    run_epoch(loader);
    brim_loader_close(loader);
    assert_int_equal(told.count, 0);
    snprintf(text, sizeof text, "range 99 | cache file=%s | batch 7", path.text);
    loader = open_loader(&told, text);
    assert_int_equal(told.count, 1);
    assert_int_equal(told_of(&told, BRIM_LOG_NOTE, "reset"), 1);
    run_epoch(loader);
    brim_loader_close(loader);
    assert_int_equal(told.count, 1);
    brim_runtime_free(told.runtime);
}

static void test_a_cache_that_keeps_nothing(void **state) {
    struct told told;
    char text[256];
    (void)state;
    write_file("lines", "x", 1); /* no directory */
    begin_log(&told, 16u << 20, 0, NULL);
    snprintf(text, sizeof text, "range 100 | cache file=%s | batch 7",
             in_directory("lines/cache").text);
    brim_loader *loader = open_loader(&told, text);
    run_epoch(loader);
    run_epoch(loader);
    brim_loader_close(loader);
    brim_runtime_free(told.runtime);
    assert_int_equal(told.count, 1); /* once */
    assert_int_equal(told_of(&told, BRIM_LOG_WARNING, "nothing is kept"), 1);
}

/* Found out by a worker or a writer long after opening; told at the end of the epoch. */
static void test_a_cache_that_was_deleted(void **state) {
    struct told told;
    char text[256];
    (void)state;
    const struct path path = in_directory("deleted");
    begin_log(&told, 16u << 20, 1, NULL);
    snprintf(text, sizeof text, "range 100 | cache file=%s | batch 7", path.text);
    brim_loader *loader = open_loader(&told, text);
    assert_int_equal(told.count, 0);
    assert_int_equal(unlink(path.text), 0);
    run_epoch(loader);
    brim_loader_close(loader);
    brim_runtime_free(told.runtime);
    assert_int_equal(told_of(&told, BRIM_LOG_WARNING, "was deleted"), 1);
    assert_int_equal(told.count, 1);
}

static void test_workers_that_are_missing(void **state) {
    struct told told;
    (void)state;
    begin_log(&told, 64u << 20, 2, NULL);
    brim__fault_arm(1u << BRIM__FAULT_THREAD, 2, true); /* the system gives one thread */
    brim_loader *loader = open_loader(&told, "range 100 | batch 7");
    brim__fault_arm(0, 0, false);
    assert_int_equal(told.count, 1);
    assert_int_equal(told_of(&told, BRIM_LOG_WARNING, "1 of 2 workers run"), 1);
    run_epoch(loader);
    brim_loader_close(loader);
    brim_runtime_free(told.runtime);
    assert_int_equal(told.count, 1);
}

static int bad_sample(void *user, const brim_call *call, const brim_value *inputs, size_t count,
                      brim_value *outputs, size_t output_count, char *why, size_t why_bytes) {
    (void)user, (void)call, (void)inputs, (void)count, (void)outputs, (void)output_count;
    (void)why, (void)why_bytes;
    return BRIM_ANSWER_BAD;
}

static void test_batches_without_rows(void **state) {
    static const brim_field_spec spec = { .size = sizeof spec,
                                          .name = "x",
                                          .dtype = BRIM_DTYPE_I64 };
    static const brim_binding binding = { .size = sizeof binding,
                                          .name = "bad",
                                          .kind = BRIM_BINDING_MAP,
                                          .fields = &spec,
                                          .field_count = 1,
                                          .map = bad_sample };
    struct told told;
    brim_open_options options = BRIM_OPEN_OPTIONS_INIT;
    brim_loader *loader;
    (void)state;
    options.bindings = &binding;
    options.binding_count = 1;
    options.world = 2;
    begin_log(&told, 16u << 20, 0, NULL);
    assert_int_equal(brim_loader_open_text(told.runtime,
                                           "range 40 | map @bad | batch 4 on_error=skip", &options,
                                           &loader),
                     BRIM_OK);
    run_epoch(loader);
    run_epoch(loader);
    brim_loader_close(loader);
    brim_runtime_free(told.runtime);
    assert_int_equal(told.count, 1);
    assert_int_equal(told_of(&told, BRIM_LOG_WARNING, "on_error=skip: all samples of"), 1);
}

static void test_an_index_that_is_not_trusted(void **state) {
    static const char lines[] = "one\ntwo\nthree\n";
    struct told told;
    brim_pipeline *pipeline;
    brim_plan *plan;
    char text[256];
    (void)state;
    const struct path data = in_directory("lines.txt"), kept = in_directory("kept");
    write_file("lines.txt", lines, sizeof lines - 1);
    begin_log(&told, 16u << 20, 0, kept.text);
    snprintf(text, sizeof text, "text %s index=beside | batch 2", data.text);
    assert_int_equal(brim_pipeline_parse(text, &pipeline), BRIM_OK);
    assert_int_equal(brim_plan_new(told.runtime, pipeline, NULL, &plan), BRIM_OK);
    const char *index = brim_plan_index_at(plan, 0)->path;
    assert_int_equal(chmod(index, 0666), 0);
    brim_plan_free(plan);
    assert_int_equal(told.count, 0);
    assert_int_equal(brim_plan_new(told.runtime, pipeline, NULL, &plan), BRIM_OK);
    assert_int_equal(told.count, 1);
    assert_int_equal(told_of(&told, BRIM_LOG_WARNING, brim_plan_index_at(plan, 0)->note), 1);
    brim_plan_free(plan);
    brim_pipeline_free(pipeline);
    brim_runtime_free(told.runtime);
}

/* What the log's own calls fail with is not what the caller reads of its call. */
static void test_the_detail_is_the_calls_own(void **state) {
    struct told told;
    brim_loader *loader;
    char text[256];
    (void)state;
    write_file("lines", "x", 1); /* no directory */
    begin_log(&told, 16u << 20, 0, NULL);
    snprintf(text, sizeof text, "range 100 | cache file=%s | batch 7",
             in_directory("lines/again").text);
    assert_int_equal(brim_loader_open_text(told.runtime, "nothing known", NULL, &loader),
                     BRIM_STATUS_SYNTAX);
    assert_int_equal(brim_loader_open_text(told.runtime, text, NULL, &loader), BRIM_OK);
    assert_int_equal(told.count, 1);
    assert_null(strstr(brim_detail(), "of the log's"));
    brim_loader_close(loader);
    brim_runtime_free(told.runtime);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_is_told_where_all_is_well),
        cmocka_unit_test(test_a_cache_that_is_reset),
        cmocka_unit_test(test_a_cache_that_keeps_nothing),
        cmocka_unit_test(test_a_cache_that_was_deleted),
        cmocka_unit_test(test_workers_that_are_missing),
        cmocka_unit_test(test_batches_without_rows),
        cmocka_unit_test(test_an_index_that_is_not_trusted),
        cmocka_unit_test(test_the_detail_is_the_calls_own),
    };
    return cmocka_run_group_tests(tests, begin_tests, end_tests);
}

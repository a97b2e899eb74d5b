/*
 * test_failure.c: what a failure says to programs: stage and its place in the text, argument,
 * file, byte, sample, cause, and memory; and that nothing of an earlier failure is left.
 */
#include "support/support.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SAMPLES 40

static brim_failure last_failure(void) {
    brim_failure failure = BRIM_FAILURE_INIT;
    assert_int_equal(brim_failure_read(&failure), BRIM_OK);
    assert_string_equal(failure.text, brim_detail());
    return failure;
}

/* Of one that knows nothing of data and memory. */
static void assert_no_data(const brim_failure *failure) {
    assert_string_equal(failure->source, "");
    assert_true(failure->sample == BRIM_UNKNOWN && failure->byte == BRIM_UNKNOWN);
    assert_int_equal(failure->cause, 0);
}

static void assert_no_memory(const brim_failure *failure) {
    assert_int_equal(failure->wanted_bytes, 0);
    assert_int_equal(failure->minimum_bytes, 0);
    assert_int_equal(failure->exact, 0);
    assert_int_equal(failure->holder_count, 0);
}

static void assert_place(const brim_failure *failure, const char *text, const char *stage,
                         uint32_t index, const char *spelled) {
    assert_string_equal(failure->stage, stage);
    assert_int_equal(failure->stage_index, index);
    assert_true(failure->end <= strlen(text));
    assert_int_equal(failure->end - failure->begin, strlen(spelled));
    assert_memory_equal(text + failure->begin, spelled, strlen(spelled));
}

/* ------------------------------------------------------------------- texts */

static void test_what_is_wrong_with_a_text(void **state) {
    static const struct {
        const char *text, *stage, *spelled, *argument, *at;
        uint32_t index;
    } cases[] = {
        { "range 8 | shuffel seed=7 | batch 2", "shuffel", "shuffel seed=7", "", "shuffel", 1 },
        { "range 8 | shuffle sed=7 | batch 2", "shuffle", "shuffle sed=7", "sed", "sed", 1 },
        { "range 8 | batch 0 micro=2  # none", "batch", "batch 0 micro=2", "rows", "0 micro", 1 },
        { "range 8 | batch 2 rows=3", "batch", "batch 2 rows=3", "rows", "rows=3", 1 },
        { "range 8 | batch", "batch", "batch", "rows", "batch", 1 },
        { "zip (npy 'a|)') (npy \"b\" map=x) | batch 2", "npy", "npy \"b\" map=x", "map", "x)", 2 },
        { "range 8 | npy (range 2 | batch 1) | batch 2", "npy", "npy (range 2 | batch 1)", "files",
          "(range", 1 },
        { "concat (range 8) (rang 9 | take 3) | batch 2", "rang", "rang 9", "", "rang 9", 2 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *text = cases[i].text;
        brim_pipeline *pipeline;
        assert_int_equal(brim_pipeline_parse(text, &pipeline), BRIM_STATUS_SYNTAX);
        const brim_failure failure = last_failure();
        assert_int_equal(failure.status, BRIM_STATUS_SYNTAX);
        assert_place(&failure, text, cases[i].stage, cases[i].index, cases[i].spelled);
        assert_string_equal(failure.argument, cases[i].argument);
        assert_int_equal(failure.at, strstr(text, cases[i].at) - text);
        assert_no_data(&failure);
        assert_no_memory(&failure);
    }
}

/* Outside of all stages there is only the byte. */
static void test_what_is_wrong_beside_the_stages(void **state) {
    brim_pipeline *pipeline;
    (void)state;
    assert_int_equal(brim_pipeline_parse("range 8 | | batch 2", &pipeline), BRIM_STATUS_SYNTAX);
    const brim_failure failure = last_failure();
    assert_string_equal(failure.stage, "");
    assert_int_equal(failure.stage_index, BRIM_NO_STAGE);
    assert_int_equal(failure.end, 0);
    assert_int_equal(failure.at, 8);
}

static void test_what_is_wrong_with_a_stage_that_is_added(void **state) {
    brim_argument argument = BRIM_ARGUMENT_INIT;
    brim_pipeline *pipeline;
    (void)state;
    assert_int_equal(brim_pipeline_parse("concat (range 8) (range 9)", &pipeline), BRIM_OK);
    argument.key = "rows";
    argument.kind = BRIM_ARGUMENT_INTEGER;
    argument.integer = -1;
    assert_int_equal(brim_pipeline_add(pipeline, "batch", &argument, 1), BRIM_STATUS_SYNTAX);
    const brim_failure failure = last_failure();
    assert_string_equal(failure.stage, "batch");
    assert_string_equal(failure.argument, "rows");
    assert_int_equal(failure.stage_index, 3);
    assert_int_equal(failure.end, 0);
    brim_pipeline_free(pipeline);
}

/* Places are those of the pipeline's own text, whatever was parsed. */
static void test_what_is_wrong_with_a_plan(void **state) {
    static const char written[] = "range   8 |\n  concat (range 2)|batch 2";
    brim_pipeline *pipeline;
    brim_runtime *runtime;
    brim_plan *plan;
    (void)state;
    assert_int_equal(brim_pipeline_parse(written, &pipeline), BRIM_OK);
    assert_int_equal(brim_runtime_new(NULL, &runtime), BRIM_OK);
    assert_int_equal(brim_plan_new(runtime, pipeline, NULL, &plan), BRIM_STATUS_SYNTAX);
    const brim_failure failure = last_failure();
    assert_place(&failure, brim_pipeline_text(pipeline), "concat", 1, "concat (range 2)");
    assert_no_data(&failure);
    /* the only text that the program has */
    brim_loader *loader;
    assert_int_equal(brim_loader_open_text(runtime, written, NULL, &loader), BRIM_STATUS_SYNTAX);
    const brim_failure of_text = last_failure();
    assert_place(&of_text, written, "concat", 1, "concat (range 2)");
    brim_runtime_free(runtime);
    brim_pipeline_free(pipeline);
}

/* The argument that names what is not there. */
static void test_the_argument_of_a_plan(void **state) {
    static const struct {
        const char *text, *stage, *argument;
    } wrong[] = { { "range 8 | cast float99 | batch 2", "cast", "dtype" },
                  { "range 8 | cast float32 on=nothing | batch 2", "cast", "on" },
                  { "range 8 | one_hot 8 dtype=word | batch 2", "one_hot", "dtype" },
                  { "range 8 | map @nothing | batch 2", "map", "function" },
                  { "array @nothing | batch 2", "array", "array" } };
    brim_runtime *runtime;
    brim_loader *loader;
    (void)state;
    assert_int_equal(brim_runtime_new(NULL, &runtime), BRIM_OK);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_not_equal(brim_loader_open_text(runtime, wrong[i].text, NULL, &loader), BRIM_OK);
        const brim_failure failure = last_failure();
        assert_string_equal(failure.stage, wrong[i].stage);
        assert_string_equal(failure.argument, wrong[i].argument);
    }
    brim_runtime_free(runtime);
}

/* -------------------------------------------------------------------- data */

/* An npy file that ends early: the file, the byte, and the stage in its parentheses. */
static void test_a_corrupt_file(void **state) {
    static const int32_t rows[SAMPLES] = { 0 };
    char text[TEXT_BYTES], bytes[64];
    brim_pipeline *pipeline;
    brim_runtime *runtime;
    brim_loader *loader;
    (void)state;
    write_npy("good.npy", BRIM_DTYPE_I32, 1, (const int64_t[]){ SAMPLES }, rows);
    memset(bytes, 'x', sizeof bytes);
    write_file("bad.npy", bytes, sizeof bytes);
    format_text(text, "zip (npy %s name=a) (npy %s name=b) | batch 2",
                in_directory("good.npy").text, in_directory("bad.npy").text);
    assert_int_equal(brim_pipeline_parse(text, &pipeline), BRIM_OK);
    assert_int_equal(brim_runtime_new(NULL, &runtime), BRIM_OK);
    assert_int_equal(brim_loader_open(runtime, pipeline, NULL, &loader), BRIM_STATUS_CORRUPT);
    brim_failure failure = last_failure();
    assert_string_equal(failure.source, in_directory("bad.npy").text);
    assert_int_equal(failure.byte, 0);
    assert_true(failure.sample == BRIM_UNKNOWN);
    assert_string_equal(failure.stage, "npy");
    assert_int_equal(failure.stage_index, 2);
    assert_no_memory(&failure);

    /* the next failure knows nothing of it */
    brim_pipeline_free(pipeline);
    assert_int_equal(brim_pipeline_parse("", &pipeline), BRIM_STATUS_SYNTAX);
    failure = last_failure();
    assert_string_equal(failure.stage, "");
    assert_no_data(&failure);
    brim_runtime_free(runtime);
}

static void test_a_file_that_is_not_there(void **state) {
    char text[TEXT_BYTES];
    (void)state;
    format_text(text, "csv %s | batch 2", in_directory("none.csv").text);
    expect_refused(text, &(struct how){ 0 }, BRIM_STATUS_IO, "cannot be opened");
    const brim_failure failure = last_failure();
    assert_string_equal(failure.source, in_directory("none.csv").text);
    assert_string_equal(failure.stage, "csv");
    assert_int_equal(failure.stage_index, 0);
}

/* A record that cannot be read: which sample, of which file, at which byte; a transform that
 * refuses it: its stage. For any number of threads. */
static void test_a_bad_sample(void **state) {
    static const char lines[] = "{\"a\": 1, \"b\": \"x\"}\n{\"a\": 2, \"b\": \"y\"}\n"
                                "{\"a\": 3, \"b\": 7}\n{\"a\": 4, \"b\": \"z\"}\n";
    (void)state;
    write_file("bad.jsonl", lines, sizeof lines - 1);
    for (int32_t threads = 0; threads <= 2; threads++) {
        const struct how how = { .threads = threads };
        char text[TEXT_BYTES];
        struct session session;
        brim_batch *batch;
        format_text(text, "jsonl %s types=a:int64,b:text | batch 16",
                    in_directory("bad.jsonl").text);
        session_open(&session, text, &how);
        assert_int_equal(brim_loader_next(session.loader, BRIM_FOREVER, &batch),
                         BRIM_STATUS_CORRUPT);
        const brim_failure failure = last_failure();
        assert_int_equal(failure.sample, 2);
        assert_string_equal(failure.source, in_directory("bad.jsonl").text);
        assert_int_equal(failure.byte, strstr(lines, "{\"a\": 3") - lines);
        assert_string_equal(failure.stage, "jsonl");
        assert_int_equal(failure.stage_index, 0);
        /* the loader keeps the same */
        brim_failure kept = BRIM_FAILURE_INIT;
        assert_int_equal(brim_loader_read_failure(session.loader, &kept), BRIM_OK);
        assert_int_equal(kept.status, BRIM_STATUS_CORRUPT);
        assert_int_equal(kept.sample, 2);
        assert_string_equal(kept.source, failure.source);
        assert_string_equal(kept.stage, failure.stage);
        assert_string_equal(kept.text, failure.text);
        session_close(&session);
    }
}

/* A function that refuses sample 7, in the second part of a concat; says why, and a cause. */
static int refuse(void *user, const brim_call *call, const brim_value *inputs, size_t input_count,
                  brim_value *outputs, size_t output_count, char *why, size_t why_bytes) {
    (void)user, (void)input_count, (void)output_count;
    memcpy(outputs[0].data, inputs[0].data, sizeof(int64_t));
    if (call->sample != 7) {
        return 0;
    }
    snprintf(why, why_bytes, "no sevens");
    brim_callback_cause(1234);
    return -1;
}

static const brim_field_spec refused_field = { .size = sizeof(brim_field_spec),
                                               .name = "index",
                                               .dtype = BRIM_DTYPE_I64 };
static const brim_binding refuser = { .size = sizeof(brim_binding),
                                      .name = "refuse",
                                      .kind = BRIM_BINDING_MAP,
                                      .map = refuse,
                                      .fields = &refused_field,
                                      .field_count = 1,
                                      .flags = BRIM_CALLBACK_CONCURRENT };

static void test_the_stage_of_a_step(void **state) {
    static const char text[] = "concat (range 5 | cast int64) (range 9 | cast int64 | map @refuse)"
                               " | batch 4";
    (void)state;
    for (int32_t threads = 0; threads <= 2; threads++) {
        const struct how how = { .threads = threads, .bindings = &refuser, .binding_count = 1 };
        struct session session;
        brim_batch *batch;
        brim_status status;
        session_open(&session, text, &how);
        while ((status = brim_loader_next(session.loader, BRIM_FOREVER, &batch)) == BRIM_OK) {
            brim_batch_release(batch);
        }
        assert_int_equal(status, BRIM_STATUS_CALLBACK);
        const brim_failure failure = last_failure();
        assert_place(&failure, text, "map", 5, "map @refuse");
        assert_int_equal(failure.sample, 5 + 7);
        assert_int_equal(failure.cause, 1234);
        assert_non_null(strstr(failure.text, "map @refuse: no sevens"));
        assert_null(strstr(failure.text, "returned"));
        session_close(&session);
    }
}

/* Too many bad samples: the failure says of one of them what it would say alone. */
static void test_too_many_bad_samples(void **state) {
    static const char *const texts[] = {
        "range 9 | map @refuse | batch 3 on_error=skip max_errors=0",
        "range 9 | map @refuse | filter 'index>=0' | batch 3 "
        "on_error=skip max_errors=0"
    };
    (void)state;
    for (int32_t i = 0; i < 6; i++) {
        const struct how how = { .threads = i / 2, .bindings = &refuser, .binding_count = 1 };
        struct session session;
        brim_batch *batch;
        brim_status status;
        session_open(&session, texts[i % 2], &how);
        while ((status = brim_loader_next(session.loader, BRIM_FOREVER, &batch)) == BRIM_OK) {
            brim_batch_release(batch);
        }
        assert_int_equal(status, BRIM_STATUS_CORRUPT);
        const brim_failure failure = last_failure();
        assert_non_null(strstr(failure.text, "more than max_errors=0"));
        assert_non_null(strstr(failure.text, "no sevens"));
        assert_string_equal(failure.stage, "map");
        assert_int_equal(failure.sample, 7);
        assert_int_equal(failure.cause, 1234);
        session_close(&session);
    }
}

/* ------------------------------------------------------------------- memory */

/* A limit that is too small for anything. */
static void test_a_refused_runtime(void **state) {
    brim_runtime_options options = BRIM_RUNTIME_OPTIONS_INIT;
    brim_runtime *runtime;
    (void)state;
    options.host_bytes = 1;
    assert_int_equal(brim_runtime_new(&options, &runtime), BRIM_STATUS_BUDGET);
    options.host_bytes = last_failure().minimum_bytes - 1;
    assert_int_equal(brim_runtime_new(&options, &runtime), BRIM_STATUS_BUDGET);
    options.host_bytes = last_failure().minimum_bytes;
    assert_int_equal(brim_runtime_new(&options, &runtime), BRIM_OK);
    brim_runtime_free(runtime);
}

/* A charge that is refused: how much, by whom it is held, and the limit that would do. */
static void test_a_refused_charge(void **state) {
    brim_runtime_options options = BRIM_RUNTIME_OPTIONS_INIT;
    brim_budget *part, *holder;
    brim_runtime *runtime;
    (void)state;
    options.host_bytes = 16 << 20;
    options.threads = 0;
    assert_int_equal(brim_runtime_new(&options, &runtime), BRIM_OK);
    assert_int_equal(brim_budget_new(brim_runtime_budget(runtime), "part", 4 << 20, 0, &part),
                     BRIM_OK);
    assert_int_equal(brim_budget_new(part, "holder", BRIM_UNLIMITED, 0, &holder), BRIM_OK);
    assert_int_equal(brim_budget_charge(holder, BRIM_MEMORY_HOST, 3 << 20), BRIM_OK);
    assert_int_equal(brim_budget_charge(part, BRIM_MEMORY_HOST, 2 << 20), BRIM_STATUS_BUDGET);
    const brim_failure failure = last_failure();
    assert_int_equal(failure.status, BRIM_STATUS_BUDGET);
    assert_int_equal(failure.wanted_kind, BRIM_MEMORY_HOST);
    assert_int_equal(failure.wanted_bytes, 2 << 20);
    assert_string_equal(failure.holder[0].label, "holder");
    assert_int_equal(failure.holder[0].bytes, 3 << 20);
    assert_true(failure.minimum_bytes >= 5 << 20);
    assert_int_equal(brim_budget_set(part, BRIM_MEMORY_HOST, failure.minimum_bytes - 1, 0),
                     BRIM_OK);
    assert_int_equal(brim_budget_charge(part, BRIM_MEMORY_HOST, 2 << 20), BRIM_STATUS_BUDGET);
    assert_int_equal(brim_budget_set(part, BRIM_MEMORY_HOST, failure.minimum_bytes, 0), BRIM_OK);
    assert_int_equal(brim_budget_charge(part, BRIM_MEMORY_HOST, 2 << 20), BRIM_OK);
    brim_budget_free(holder);
    brim_budget_free(part);
    brim_runtime_free(runtime);
}

/* Another loader holds what is missing: it is named, and the minimum is that of a loader alone. */
static void test_a_refused_loader(void **state) {
    brim_runtime_options options = BRIM_RUNTIME_OPTIONS_INIT;
    brim_open_options open = BRIM_OPEN_OPTIONS_INIT;
    brim_pipeline *pipeline;
    brim_runtime *runtime;
    brim_loader *first, *second;
    (void)state;
    options.host_bytes = 5 << 20;
    options.threads = 0;
    open.label = "first";
    assert_int_equal(brim_pipeline_parse("range 200000 | batch 100000", &pipeline), BRIM_OK);
    assert_int_equal(brim_runtime_new(&options, &runtime), BRIM_OK);
    assert_int_equal(brim_loader_open(runtime, pipeline, &open, &first), BRIM_OK);
    open.label = "second";
    assert_int_equal(brim_loader_open(runtime, pipeline, &open, &second), BRIM_STATUS_BUDGET);
    const brim_failure failure = last_failure();
    assert_string_equal(failure.holder[0].label, "first");
    assert_true(failure.holder[0].bytes > 1600000);
    assert_true(failure.wanted_bytes > 1600000);
    assert_int_equal(failure.exact, 1);
    brim_loader_close(first);
    brim_runtime_free(runtime);

    for (int less = 1; less >= 0; less--) {
        options.host_bytes = failure.minimum_bytes - (uint64_t)less;
        assert_int_equal(brim_runtime_new(&options, &runtime), BRIM_OK);
        assert_int_equal(brim_loader_open(runtime, pipeline, &open, &second),
                         less ? BRIM_STATUS_BUDGET : BRIM_OK);
        if (!less) {
            brim_loader_close(second);
        }
        brim_runtime_free(runtime);
    }
    brim_pipeline_free(pipeline);
}

/* ------------------------------------------------------------------- threads */

static void *fail_there(void *unused) {
    brim_failure failure = BRIM_FAILURE_INIT;
    brim_pipeline *pipeline;
    (void)unused;
    const bool fresh = brim_failure_read(&failure) == BRIM_OK && failure.status == BRIM_OK &&
                       failure.stage_index == BRIM_NO_STAGE && failure.sample == BRIM_UNKNOWN &&
                       failure.byte == BRIM_UNKNOWN && failure.text[0] == '\0';
    const brim_status status = brim_pipeline_parse("range 8 | wrong", &pipeline);
    return fresh && status == BRIM_STATUS_SYNTAX ? unused : NULL;
}

static void test_each_thread_has_its_own(void **state) {
    brim_pipeline *pipeline;
    pthread_t thread;
    void *result;
    int token;
    (void)state;
    assert_int_equal(brim_pipeline_parse("here", &pipeline), BRIM_STATUS_SYNTAX);
    assert_int_equal(pthread_create(&thread, NULL, fail_there, &token), 0);
    pthread_join(thread, &result);
    assert_ptr_equal(result, &token);
    assert_string_equal(last_failure().stage, "here");
}

/* A program that was built with an older or a newer header. */
static void test_other_sizes(void **state) {
    struct {
        brim_failure failure;
        uint64_t later[4];
    } newer;
    brim_failure older;
    brim_pipeline *pipeline;
    (void)state;
    assert_int_equal(brim_pipeline_parse("range 8 | wrong", &pipeline), BRIM_STATUS_SYNTAX);
    memset(&newer, 0xff, sizeof newer);
    newer.failure.size = sizeof newer;
    assert_int_equal(brim_failure_read(&newer.failure), BRIM_OK);
    assert_string_equal(newer.failure.stage, "wrong");
    assert_int_equal(newer.failure.size, sizeof newer);
    assert_int_equal(newer.later[0] | newer.later[3], 0);
    memset(&older, 0xff, sizeof older);
    older.size = offsetof(brim_failure, source);
    assert_int_equal(brim_failure_read(&older), BRIM_OK);
    assert_string_equal(older.stage, "wrong");
    assert_int_equal((unsigned char)older.source[0], 0xff);
    older.size = sizeof older.size - 1;
    assert_int_equal(brim_failure_read(&older), BRIM_STATUS_INVALID);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_wrong_with_a_text),
        cmocka_unit_test(test_what_is_wrong_beside_the_stages),
        cmocka_unit_test(test_what_is_wrong_with_a_stage_that_is_added),
        cmocka_unit_test(test_what_is_wrong_with_a_plan),
        cmocka_unit_test(test_the_argument_of_a_plan),
        cmocka_unit_test(test_a_corrupt_file),
        cmocka_unit_test(test_a_file_that_is_not_there),
        cmocka_unit_test(test_a_bad_sample),
        cmocka_unit_test(test_the_stage_of_a_step),
        cmocka_unit_test(test_too_many_bad_samples),
        cmocka_unit_test(test_a_refused_runtime),
        cmocka_unit_test(test_a_refused_charge),
        cmocka_unit_test(test_a_refused_loader),
        cmocka_unit_test(test_each_thread_has_its_own),
        cmocka_unit_test(test_other_sizes),
    };
    return cmocka_run_group_tests(tests, begin_tests, end_tests);
}

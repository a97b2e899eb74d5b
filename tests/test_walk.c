/*
 * test_walk.c: walking a pipeline's stages and values, so that no program needs to read its text.
 */
#include "support/support.h"

#include <stdio.h>
#include <string.h>

static brim_pipeline *parse(const char *text) {
    brim_pipeline *pipeline = NULL;
    if (brim_pipeline_parse(text, &pipeline) != BRIM_OK) {
        fail_msg("%s: %s", text, brim_detail());
    }
    return pipeline;
}

static brim_pipeline_stage stage_at(const brim_pipeline *pipeline, size_t index) {
    brim_pipeline_stage stage = BRIM_PIPELINE_STAGE_INIT;
    assert_int_equal(brim_pipeline_read_stage(pipeline, index, &stage), BRIM_OK);
    return stage;
}

/* Value `number` of an argument; one there must be. */
static brim_pipeline_value value_of(const brim_pipeline *pipeline, size_t index,
                                    const char *argument, size_t number) {
    const size_t count = stage_at(pipeline, index).value_count;
    for (size_t i = 0; i < count; i++) {
        brim_pipeline_value value = BRIM_PIPELINE_VALUE_INIT;
        assert_int_equal(brim_pipeline_read_value(pipeline, index, i, &value), BRIM_OK);
        if (strcmp(value.info->name, argument) == 0 && number-- == 0) {
            return value;
        }
    }
    fail_msg("stage %zu has no such value of %s", index, argument);
    return (brim_pipeline_value){ 0 };
}

static void assert_spelled(const brim_pipeline *pipeline, size_t begin, size_t end,
                           const char *spelled) {
    assert_int_equal(end - begin, strlen(spelled));
    assert_memory_equal(brim_pipeline_text(pipeline) + begin, spelled, strlen(spelled));
}

/* What stands at every number of a pipeline. */
struct expected {
    const char *name, *spelled;
    uint32_t depth, parent, branch;
};

static void assert_stages(const brim_pipeline *pipeline, const struct expected *expected,
                          size_t count) {
    assert_int_equal(brim_pipeline_stage_count(pipeline), count);
    for (size_t i = 0; i < count; i++) {
        const brim_pipeline_stage stage = stage_at(pipeline, i);
        assert_string_equal(stage.info->name, expected[i].name);
        assert_ptr_equal(stage.info, brim_stage_find(stage.info->name));
        assert_spelled(pipeline, stage.begin, stage.end, expected[i].spelled);
        assert_int_equal(stage.depth, expected[i].depth);
        assert_int_equal(stage.parent, expected[i].parent);
        assert_int_equal(stage.branch, expected[i].branch);
    }
    brim_pipeline_stage stage = BRIM_PIPELINE_STAGE_INIT;
    assert_int_equal(brim_pipeline_read_stage(pipeline, count, &stage), BRIM_STATUS_INVALID);
    assert_int_equal(brim_pipeline_read_stage(pipeline, SIZE_MAX, &stage), BRIM_STATUS_INVALID);
}

#define NONE BRIM_NO_STAGE

static const struct expected mixed[] = {
    { "mix", "mix 0.25 (range 8 | cast int64) 3 (concat (npy \"a | b\" | take 2) (range 9))", 0,
      NONE, 0 },
    { "range", "range 8", 1, 0, 0 },
    { "cast", "cast int64", 1, 0, 0 },
    { "concat", "concat (npy \"a | b\" | take 2) (range 9)", 1, 0, 1 },
    { "npy", "npy \"a | b\"", 2, 3, 0 },
    { "take", "take 2", 2, 3, 0 },
    { "range", "range 9", 2, 3, 1 },
    { "shuffle", "shuffle seed=7", 0, NONE, 0 },
    { "batch", "batch 4", 0, NONE, 0 },
};

static void test_stages_in_the_order_of_the_text(void **state) {
    brim_pipeline *pipeline =
        parse("mix 0.25 (range 8|cast int64) 3 (concat (npy 'a | b' | take 2) (range 9))\n"
              " | shuffle   seed=7 | batch 4  # done");
    brim_pipeline *copy;
    (void)state;
    assert_stages(pipeline, mixed, sizeof mixed / sizeof mixed[0]);
    assert_int_equal(brim_pipeline_copy(pipeline, &copy), BRIM_OK);
    assert_int_equal(brim_pipeline_cut(copy, 1), BRIM_OK);
    assert_stages(copy, mixed, 7);
    assert_stages(pipeline, mixed, sizeof mixed / sizeof mixed[0]);
    brim_pipeline_free(copy);
    brim_pipeline_free(pipeline);
    assert_int_equal(brim_pipeline_new(&pipeline), BRIM_OK);
    assert_stages(pipeline, NULL, 0);
    brim_pipeline_free(pipeline);
}

/* Built stage by stage they have the same places; what was put in is not changed. */
static void test_stages_that_were_added(void **state) {
    brim_pipeline *built, *inner = parse("range 9 | skip 1");
    brim_argument parts[] = { BRIM_ARGUMENT_INIT, BRIM_ARGUMENT_INIT };
    (void)state;
    static const struct expected expected[] = {
        { "concat", "concat (range 9 | skip 1) (range 9 | skip 1)", 0, NONE, 0 },
        { "range", "range 9", 1, 0, 0 },
        { "skip", "skip 1", 1, 0, 0 },
        { "range", "range 9", 1, 0, 1 },
        { "skip", "skip 1", 1, 0, 1 },
        { "shuffle", "shuffle", 0, NONE, 0 },
    };
    for (int i = 0; i < 2; i++) {
        parts[i].kind = BRIM_ARGUMENT_PIPELINE;
        parts[i].pipeline = inner;
    }
    assert_int_equal(brim_pipeline_new(&built), BRIM_OK);
    assert_int_equal(brim_pipeline_add(built, "concat", parts, 2), BRIM_OK);
    assert_int_equal(brim_pipeline_add(built, "shuffle", NULL, 0), BRIM_OK);
    assert_stages(built, expected, 6);
    assert_spelled(inner, stage_at(inner, 1).begin, stage_at(inner, 1).end, "skip 1");
    assert_int_equal(stage_at(inner, 0).begin, 0);
    brim_pipeline_free(inner);
    brim_pipeline_free(built);
}

static void test_values(void **state) {
    brim_pipeline *pipeline =
        parse("mix 0.25 (npy \"a \\\"b\\\"\" map=true) 3 (array @data) | cache memory limit=2MiB |"
              " normalize mean=0.5,0.25 std=1 | batch 64 remainder=pad");
    (void)state;
    brim_pipeline_value value = value_of(pipeline, 0, "parts", 1);
    assert_int_equal(value.info->type, BRIM_TYPE_WEIGHTED);
    assert_true(value.real == 3);
    assert_int_equal(value.branch, 1);
    assert_spelled(pipeline, value.begin, value.end, "3 (array @data)");
    value = value_of(pipeline, 1, "map", 0);
    assert_int_equal(value.info->type, BRIM_TYPE_YESNO);
    assert_int_equal(value.integer, 1);
    assert_spelled(pipeline, value.begin, value.end, "yes");
    value = value_of(pipeline, 1, "files", 0);
    assert_string_equal(value.text, "a \"b\"");
    assert_spelled(pipeline, value.begin, value.end, "\"a \\\"b\\\"\"");
    assert_int_equal(value.branch, BRIM_NO_STAGE);
    value = value_of(pipeline, 1, "name", 0); /* a default: not in the text */
    assert_string_equal(value.text, "x");
    assert_int_equal(value.begin, 0);
    assert_int_equal(value.end, 0);
    value = value_of(pipeline, 2, "array", 0);
    assert_int_equal(value.info->type, BRIM_TYPE_BINDING);
    assert_string_equal(value.text, "data");
    assert_spelled(pipeline, value.begin, value.end, "@data");
    assert_int_equal(value_of(pipeline, 3, "limit", 0).integer, 2 << 20);
    assert_true(value_of(pipeline, 4, "mean", 1).real == 0.25);
    assert_true(value_of(pipeline, 4, "mean", 0).real == 0.5);
    value = value_of(pipeline, 5, "remainder", 0);
    assert_string_equal(value.text, "pad");
    assert_spelled(pipeline, value.begin, value.end, "pad");
    assert_int_equal(value_of(pipeline, 5, "rows", 0).integer, 64);

    const size_t count = stage_at(pipeline, 5).value_count;
    assert_int_equal(brim_pipeline_read_value(pipeline, 5, count, &value), BRIM_STATUS_INVALID);
    assert_int_equal(brim_pipeline_read_value(pipeline, 6, 0, &value), BRIM_STATUS_INVALID);
    brim_pipeline_free(pipeline);
}

static void test_wrong_calls(void **state) {
    brim_pipeline *pipeline = parse("range 8");
    brim_pipeline_stage stage = BRIM_PIPELINE_STAGE_INIT;
    brim_pipeline_value value = BRIM_PIPELINE_VALUE_INIT;
    (void)state;
    assert_int_equal(brim_pipeline_read_stage(NULL, 0, &stage), BRIM_STATUS_INVALID);
    assert_int_equal(brim_pipeline_read_stage(pipeline, 0, NULL), BRIM_STATUS_INVALID);
    assert_int_equal(brim_pipeline_read_value(pipeline, 0, 0, NULL), BRIM_STATUS_INVALID);
    stage.size = value.size = 0;
    assert_int_equal(brim_pipeline_read_stage(pipeline, 0, &stage), BRIM_STATUS_INVALID);
    assert_int_equal(brim_pipeline_read_value(pipeline, 0, 0, &value), BRIM_STATUS_INVALID);
    /* of an older header */
    stage.size = offsetof(brim_pipeline_stage, begin);
    stage.end = 77;
    assert_int_equal(brim_pipeline_read_stage(pipeline, 0, &stage), BRIM_OK);
    assert_string_equal(stage.info->name, "range");
    assert_int_equal(stage.end, 77);
    brim_pipeline_free(pipeline);
}

/* The plan's stages have the same numbers, and say where they stand. */
static void test_stages_of_a_plan(void **state) {
    brim_pipeline *pipeline = parse("concat (zip (range 8 name=a) (range 8 name=b) | cast int64)"
                                    " (zip (range 9 name=a) (range 9 name=b)) | shuffle | batch 2");
    brim_runtime *runtime;
    brim_plan *plan;
    (void)state;
    assert_int_equal(brim_runtime_new(NULL, &runtime), BRIM_OK);
    if (brim_plan_new(runtime, pipeline, NULL, &plan) != BRIM_OK) {
        fail_msg("%s", brim_detail());
    }
    assert_int_equal(brim_plan_get(plan)->stage_count, brim_pipeline_stage_count(pipeline));
    for (size_t i = 0; i < brim_pipeline_stage_count(pipeline); i++) {
        const brim_plan_stage *planned = brim_plan_stage_at(plan, i);
        const brim_pipeline_stage stage = stage_at(pipeline, i);
        assert_string_equal(planned->name, stage.info->name);
        assert_int_equal(planned->begin, stage.begin);
        assert_int_equal(planned->end, stage.end);
    }
    brim_plan_free(plan);
    brim_runtime_free(runtime);
    brim_pipeline_free(pipeline);
}

static void assert_field(const brim_plan *plan, size_t stage, size_t index, const char *name,
                         brim_dtype dtype, uint32_t rank, int64_t first, uint64_t bytes) {
    const brim_plan_field *field = brim_plan_stage_field_at(plan, stage, index);
    assert_non_null(field);
    assert_string_equal(field->name, name);
    assert_int_equal(field->dtype, dtype);
    assert_int_equal(field->rank, rank);
    assert_int_equal(field->shape[0], rank > 0 ? first : 0);
    assert_int_equal(field->bytes, bytes);
}

/* Also of a stage that changes none. */
static void test_fields_after_a_stage(void **state) {
    static const uint8_t pixels[8 * 6];
    const int64_t shape[] = { 8, 2, 3 };
    const brim_binding binding = brim_bind_array("data", pixels, BRIM_DTYPE_U8, 3, shape);
    brim_pipeline *pipeline =
        parse("zip (array @data name=pixels) (range 8 name=n) | shuffle | cast float32 on=pixels "
              "| reshape 6 on=pixels | batch 2");
    brim_open_options options = BRIM_OPEN_OPTIONS_INIT;
    options.bindings = &binding;
    options.binding_count = 1;
    brim_runtime *runtime;
    brim_plan *plan;
    (void)state;
    assert_int_equal(brim_runtime_new(NULL, &runtime), BRIM_OK);
    if (brim_plan_new(runtime, pipeline, &options, &plan) != BRIM_OK) {
        fail_msg("%s", brim_detail());
    }
    /* zip, array, range, shuffle, cast, reshape, batch */
    static const size_t counts[] = { 2, 1, 1, 0, 2, 2, 0 };
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        assert_int_equal(brim_plan_stage_at(plan, i)->field_count, counts[i]);
        assert_null(brim_plan_stage_field_at(plan, i, counts[i]));
    }
    assert_field(plan, 0, 0, "pixels", BRIM_DTYPE_U8, 2, 2, 6);
    assert_field(plan, 0, 1, "n", BRIM_DTYPE_I64, 0, 0, 8);
    assert_field(plan, 4, 0, "pixels", BRIM_DTYPE_F32, 2, 2, 24);
    assert_field(plan, 5, 0, "pixels", BRIM_DTYPE_F32, 1, 6, 24);
    assert_null(brim_plan_stage_field_at(plan, 7, 0));
    brim_plan_free(plan);
    brim_runtime_free(runtime);
    brim_pipeline_free(pipeline);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stages_in_the_order_of_the_text),
        cmocka_unit_test(test_stages_that_were_added),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_wrong_calls),
        cmocka_unit_test(test_stages_of_a_plan),
        cmocka_unit_test(test_fields_after_a_stage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

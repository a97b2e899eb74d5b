/*
 * Callbacks behind a mix: a function that is not declared BRIM_CALLBACK_CONCURRENT never
 * runs twice at once, whatever part its sample comes from, and samples of
 * different parts draw different random numbers.
 */
#include <brim.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdatomic.h>
#include <unistd.h>

#define PART 200

static atomic_int inside, overlaps;

/* Puts out the sample's first random number. */
static int draw(void *user, const brim_call *call, const brim_value *inputs, size_t input_count,
                brim_value *outputs, size_t output_count, char *why, size_t why_bytes) {
    (void)user, (void)inputs, (void)input_count, (void)output_count, (void)why, (void)why_bytes;
    if (atomic_fetch_add(&inside, 1) > 0) {
        atomic_fetch_add(&overlaps, 1);
    }
    usleep(20);
    *(uint32_t *)outputs[0].data = brim_call_random(call, 0);
    atomic_fetch_sub(&inside, 1);
    return 0;
}

/* Runs an epoch of `text`; numbers[id] is what came for a sample. */
static void run(const char *text, uint32_t *numbers) {
    brim_runtime_options limits = BRIM_RUNTIME_OPTIONS_INIT;
    limits.host_bytes = 64u << 20;
    limits.threads = 4;
    brim_field_spec spec = BRIM_FIELD_SPEC_INIT;
    spec.name = "number";
    spec.dtype = BRIM_DTYPE_U32;
    brim_binding binding = BRIM_BINDING_INIT;
    binding.name = "draw";
    binding.kind = BRIM_BINDING_MAP;
    binding.fields = &spec;
    binding.field_count = 1;
    binding.map = draw;
    brim_open_options options = BRIM_OPEN_OPTIONS_INIT;
    options.bindings = &binding;
    options.binding_count = 1;

    brim_runtime *runtime;
    brim_pipeline *pipeline;
    brim_loader *loader;
    brim_batch *batch;
    assert_int_equal(brim_runtime_new(&limits, &runtime), BRIM_OK);
    assert_int_equal(brim_pipeline_parse(text, &pipeline), BRIM_OK);
    assert_int_equal(brim_loader_open(runtime, pipeline, &options, &loader), BRIM_OK);
    while (brim_loader_next(loader, BRIM_FOREVER, &batch) == BRIM_OK) {
        const brim_batch_info *info = brim_batch_get(batch);
        for (uint64_t i = 0; i < info->rows; i++) {
            numbers[info->samples[i]] = ((uint32_t *)brim_batch_find(batch, "number")->data)[i];
        }
        brim_batch_release(batch);
    }
    brim_loader_close(loader);
    brim_pipeline_free(pipeline);
    brim_runtime_free(runtime);
}

static void test_serialised_functions_never_overlap(void **state) {
    uint32_t numbers[2 * PART];
    (void)state;
    run("mix 1 (range 200) 1 (range 200) | map @draw | batch 4", numbers);
    run("mix 1 (range 200 | map @draw) 1 (range 200 | map @draw) | batch 4", numbers);
    assert_int_equal(atomic_load(&overlaps), 0);
}

static void test_parts_draw_different_numbers(void **state) {
    uint32_t numbers[2 * PART], again[2 * PART];
    (void)state;
    run("mix 1 (range 200) 1 (range 200) | map @draw | batch 4", numbers);
    int same = 0;
    for (int i = 0; i < PART; i++) {
        same += numbers[i] == numbers[PART + i];
    }
    assert_int_equal(same, 0);
    run("mix 1 (range 200) 1 (range 200) | map @draw seed=1 | batch 4", again);
    for (int i = 0; i < 2 * PART; i++) {
        same += numbers[i] == again[i];
    }
    assert_int_equal(same, 0);
}

int main(void) {
    alarm(1100);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_serialised_functions_never_overlap),
        cmocka_unit_test(test_parts_draw_different_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

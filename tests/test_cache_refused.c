/*
 * test_cache_refused.c: where a cache may not stand, and why; and that a plan says so before.
 */
#include "support/cache_runs.h"
#include "support/format_data.h"
#include "support/image_data.h"
#include "support/memory_data.h"
#include "support/memory_watch.h"

#include <string.h>

#define SAMPLES 60

/* ---------------------------------------------------------------- functions */

/* None of them is ever called. */
static int make(void *user, const brim_call *call, brim_value *outputs, size_t count, char *why,
                size_t why_bytes) {
    (void)user, (void)call, (void)outputs, (void)count, (void)why, (void)why_bytes;
    return 1;
}

static int change(void *user, const brim_call *call, const brim_value *inputs, size_t count,
                  brim_value *outputs, size_t output_count, char *why, size_t why_bytes) {
    (void)user, (void)call, (void)inputs, (void)count, (void)outputs, (void)output_count;
    (void)why, (void)why_bytes;
    return 1;
}

static const brim_field_spec fields[] = {
    { .size = sizeof(brim_field_spec), .name = "number", .dtype = BRIM_DTYPE_I64 },
};
static int64_t numbers[SAMPLES];

#define BINDING(label, of_kind, of_flags) \
    .size = sizeof(brim_binding), .name = label, .kind = of_kind, .flags = of_flags
#define MAP(label, of_flags, function)                                                  \
    {                                                                                   \
        BINDING(label, BRIM_BINDING_MAP, of_flags), .fields = fields, .field_count = 1, \
                                                    .map = function                     \
    }
static const brim_binding bindings[] = {
    { BINDING("made", BRIM_BINDING_SOURCE, BRIM_CALLBACK_PURE | BRIM_CALLBACK_CONCURRENT),
      .count = SAMPLES, .fields = fields, .field_count = 1, .read = make },
    MAP("behind", BRIM_CALLBACK_PURE | BRIM_CALLBACK_CONCURRENT, change),
    MAP("random", BRIM_CALLBACK_PURE | BRIM_CALLBACK_CONCURRENT | BRIM_CALLBACK_RANDOM, change),
    MAP("impure", BRIM_CALLBACK_CONCURRENT, change),
    { BINDING("numbers", BRIM_BINDING_ARRAY, 0), .data = numbers, .dtype = BRIM_DTYPE_I64,
      .rank = 1, .shape = { SAMPLES } },
};

/* ----------------------------------------------------------------- refusals */

struct refusal {
    const char *marked, *cache;
    brim_status status;
    const char *part;
};

static void check_refusals(const struct refusal *refusals, size_t count, const struct how *how) {
    for (size_t i = 0; i < count; i++) {
        char text[TEXT_BYTES];
        with_caches(refusals[i].marked, (struct caches){ { refusals[i].cache } }, text);
        expect_refused(text, how, refusals[i].status, refusals[i].part);
        assert_false(file_exists("1.cache"));
    }
}

static void test_arrays(void **state) {
    (void)state;
    static const struct refusal refusals[] = {
        { "npy $/a.npy | flip ^| batch 8", "cache memory", BRIM_STATUS_INVALID,
          "'flip' before it is random" },
        { "npy $/a.npy | random_crop 8 | cast float32 ^| batch 8", "cache file=$/1.cache",
          BRIM_STATUS_INVALID, "'random_crop' before it is random" },
        { "callback @made version=1 | map @random version=1 ^| batch 8", "cache memory",
          BRIM_STATUS_INVALID, "freeze=yes" },
        { "callback @made version=1 | map @impure version=1 ^| batch 8", "cache memory",
          BRIM_STATUS_INVALID, "BRIM_CALLBACK_PURE" },
        { "callback @made version=1 | map @impure version=1 ^| batch 8",
          "cache file=$/1.cache freeze=yes", BRIM_STATUS_INVALID, "'map @impure' before it" },
        { "callback @made ^| batch 8", "cache file=$/1.cache", BRIM_STATUS_INVALID, "version=" },
        { "callback @made version=1 ^| batch 8", "cache memory verify=content",
          BRIM_STATUS_UNSUPPORTED,
          "'callback @made' makes its samples and has no records to compare" },
        { "array @numbers ^| batch 8", "cache file=$/1.cache", BRIM_STATUS_INVALID,
          "'array @numbers' before it has no version" },
        { "callback @made version=1 | map @behind ^| batch 8", "cache file=$/1.cache",
          BRIM_STATUS_INVALID, "'map @behind' before it has no version" },
        { "range 50 | filter \"index > 3\" ^| batch 8", "cache memory", BRIM_STATUS_UNSUPPORTED,
          "after \'filter'" },
        { "npy $/a.npy | unbatch ^| batch 8", "cache memory", BRIM_STATUS_UNSUPPORTED,
          "after \'unbatch'" },
        { "range 50 | batch 8 ^", "cache memory", BRIM_STATUS_SYNTAX,
          "'cache' comes after 'batch'" },
        { "range 50 ^| batch 8", "cache memory file=$/1.cache", BRIM_STATUS_INVALID,
          "give one of" },
        { "range 50 ^| batch 8", "cache x.cache", BRIM_STATUS_SYNTAX, "give a path as file=" },
        { "range 50 ^| batch 8", "cache memory verify=later", BRIM_STATUS_SYNTAX,
          "open, hit, never" },
        { "range 50 ^| batch 8", "cache memory limit=-1", BRIM_STATUS_SYNTAX, "limit" },
        { "range 50 ^| batch 8",
          "cache memory | cache memory | cache memory | cache memory | "
          "cache memory",
          BRIM_STATUS_UNSUPPORTED, "at most 4 caches" },
        { "zip (range 50 ^) (range 50 name=other) | batch 8", "cache memory", BRIM_STATUS_INVALID,
          "one source alone" },
    };
    const struct how how = { .bindings = bindings, .binding_count = COUNT_OF(bindings) };
    check_refusals(refusals, COUNT_OF(refusals), &how);
}

static void test_formats(void **state) {
    (void)state;
    static const struct refusal refusals[] = {
        { "stream @documents ^| batch 4", "cache memory", BRIM_STATUS_UNSUPPORTED,
          "the samples of a stream have no numbers" },
        { "jsonl $/documents.jsonl fields=label index=beside | flat_map @twice ^| batch 4",
          "cache memory", BRIM_STATUS_UNSUPPORTED, "after \'flat_map'" },
        { "jsonl $/documents.jsonl fields=ids index=beside max_length=8 | "
          "pack_sequences 32 on=ids ^| batch 4",
          "cache file=$/1.cache", BRIM_STATUS_UNSUPPORTED, "after 'pack_sequences'" },
        { "jsonl $/documents.jsonl fields=label index=beside | filter by=@even ^| batch 4",
          "cache memory", BRIM_STATUS_UNSUPPORTED, "after \'filter'" },
    };
    const brim_open_options options = format_options();
    const struct how how = { .bindings = options.bindings, .binding_count = options.binding_count };
    check_refusals(refusals, COUNT_OF(refusals), &how);
}

static void test_images(void **state) {
    (void)state;
    static const struct refusal refusals[] = {
        { "files $/pets.csv index=beside probe=no ^| batch 1", "cache memory", BRIM_STATUS_INVALID,
          "field 'path' has no size bound (or give probe=yes" },
        { "folder $/pets index=beside probe=no | decode room=1MiB ^| resize 8 8 | batch 2",
          "cache memory", BRIM_STATUS_INVALID, "image" },
        { "folder $/pets index=beside | decode fast=yes ^| resize 8 8 | batch 2", "cache memory",
          BRIM_STATUS_INVALID, "fast=yes decodes at the size" },
        { "folder $/pets index=beside | decode | random_resized_crop 8 ^| batch 2", "cache memory",
          BRIM_STATUS_INVALID, "'random_resized_crop' before it is random" },
    };
    check_refusals(refusals, COUNT_OF(refusals), &(struct how){ 0 });
}

/* ---------------------------------------------------------------- cacheable */

static bool is_order(const char *name) {
    for (size_t i = 0; i < brim_stage_count(); i++) {
        const brim_stage_info *info = brim_stage_at(i);
        if (strcmp(info->name, name) == 0) {
            return info->room == BRIM_ROOM_ORDER;
        }
    }
    return false;
}

/* What a plan says of each stage, held against a cache that is put right behind it. */
static void check_cacheable(const char *dollars, unsigned *yes, unsigned *no) {
    char text[TEXT_BYTES], with[TEXT_BYTES];
    const brim_open_options options = format_options();
    brim_runtime *runtime = make_runtime(0, 0);
    brim_pipeline *pipeline = parse(expand(dollars, text));
    brim_plan *plan = NULL;
    if (brim_plan_new(runtime, pipeline, &options, &plan) != BRIM_OK) {
        fail_msg("%s: %s", text, brim_detail());
    }
    const size_t count = brim_plan_get(plan)->stage_count;
    const char *end = text;
    for (size_t i = 0; i < count; i++) {
        const brim_plan_stage *stage = brim_plan_stage_at(plan, i);
        const char *bar = strstr(end, " | ");
        const int before = bar == NULL ? (int)strlen(text) : (int)(bar - text);
        format_text(with, "%.*s | cache memory%s", before, text, text + before);
        brim_pipeline *cached = parse(with);
        brim_plan *other = NULL;
        const brim_status status = brim_plan_new(runtime, cached, &options, &other);
        if (is_order(stage->name)) {
            assert_int_equal(stage->cacheable, 0); /* what to keep is the same before it */
        } else if ((status == BRIM_OK) != (stage->cacheable != 0)) {
            fail_msg("\"%s\": the plan says %s, but: %s", with, stage->cacheable ? "yes" : "no",
                     status == BRIM_OK ? "it may" : brim_detail());
        }
        *yes += stage->cacheable != 0;
        *no += stage->cacheable == 0;
        assert_int_equal(stage->sample_bytes > 0, stage->cacheable);
        brim_plan_free(other);
        brim_pipeline_free(cached);
        end = bar == NULL ? end : bar + 3;
    }
    brim_plan_free(plan);
    brim_pipeline_free(pipeline);
    brim_runtime_free(runtime);
}

static void test_the_plan_says_where(void **state) {
    (void)state;
    static const char *const texts[] = {
        "folder $/pets index=beside | batch 2",
        "folder $/pets index=beside | shuffle | decode | random_resized_crop 16 | flip | layout "
        "chw | batch 2",
        "folder $/pets index=beside | decode fast=yes | resize 24 | center_crop 16 | flip p=1 | "
        "batch 2",
        "folder $/pets index=beside probe=no | decode room=1MiB | resize 24 | center_crop 16 | "
        "batch 2",
        "files $/pets.csv index=beside | decode | resize 8 8 | grayscale | rotate 10 | batch 1",
        "npy $/pets.npy | copy x y | crop 8 on=y | cast float32 | batch 1",
        "range 20 | cast float32 | filter \"index > 3\" | cast int32 | batch 2",
        "npy $/pets.npy | unbatch | batch 3",
        "range 20 | take 10 | one_hot 20 | shuffle | cast float16 | batch 2",
        "range 20 | flat_map @twice | batch 2 | batch_map @double",
    };
    unsigned yes = 0, no = 0;
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        check_cacheable(texts[i], &yes, &no);
    }
    assert_true(yes > 20 && no > 10);
}

int main(void) {
    const struct CMUnitTest of_arrays[] = { cmocka_unit_test(test_arrays) };
    const struct CMUnitTest of_formats[] = { cmocka_unit_test(test_formats) };
    const struct CMUnitTest of_images[] = {
        cmocka_unit_test(test_images),
        cmocka_unit_test(test_the_plan_says_where),
    };
    return cmocka_run_group_tests(of_arrays, begin_memory_tests_in_memory, end_tests) +
           cmocka_run_group_tests(of_formats, begin_format_tests, end_tests) +
           cmocka_run_group_tests(of_images, begin_image_tests, end_tests);
}

/*
 * test_range.c: pixels remember that they go to 255, whatever type they have become.
 *
 * What a pipeline gives is compared with what it gives with max= spelled out; where nothing
 * says how far values go, the pipeline is refused and told what to write.
 */
#include "support/image_data.h"

#include <stdlib.h>
#include <string.h>

static uint8_t bytes_of[4 * 6 * 5 * 3], bools[4 * 6 * 5 * 3];
static uint16_t shorts[4 * 6 * 5 * 3];
static float reals[4 * 6 * 5 * 3];

/* clang-format off */
#define ARRAY(name_, dtype_, memory)                                                        \
    { .size = sizeof(brim_binding), .name = (name_), .kind = BRIM_BINDING_ARRAY, .rank = 4,      \
      .shape = { 4, 6, 5, 3 }, .dtype = (dtype_), .data = (memory) }
/* clang-format on */

static int map_reals(void *user, const brim_call *call, const brim_value *inputs,
                     size_t input_count, brim_value *outputs, size_t output_count, char *why,
                     size_t why_bytes) {
    (void)user, (void)call, (void)inputs, (void)input_count, (void)output_count;
    (void)why, (void)why_bytes;
    memset(outputs[0].data, 0, outputs[0].bytes);
    return 0;
}

/* clang-format off */
static struct how how_of(void) {
    static const brim_field_spec mapped = { sizeof(brim_field_spec), "image", BRIM_DTYPE_F32, 3,
                                            { 6, 5, 3 },             0,       BRIM_FORM_DENSE, 0 };
    static brim_binding bindings[] = {
        ARRAY("u8", BRIM_DTYPE_U8, bytes_of),   ARRAY("u16", BRIM_DTYPE_U16, shorts),
        ARRAY("real", BRIM_DTYPE_F32, reals),   ARRAY("bool", BRIM_DTYPE_BOOL, bools),
        { .size = sizeof(brim_binding), .name = "map", .kind = BRIM_BINDING_MAP, .fields = &mapped,
          .field_count = 1, .map = map_reals, .flags = BRIM_CALLBACK_PURE },
    };
    return (struct how){ .bindings = bindings, .binding_count = 5 };
}
/* clang-format on */

static int begin(void **state) {
    fill_random(bytes_of, sizeof bytes_of, 3);
    fill_random(shorts, sizeof shorts, 4);
    for (size_t i = 0; i < sizeof bytes_of; i++) {
        reals[i] = (float)bytes_of[i];
        bools[i] = bytes_of[i] & 1;
    }
    return begin_image_tests(state);
}

/* Every "$" of the text is the folder of images. */
static const char *filled(char text[TEXT_BYTES], const char *stages) {
    const char *at = strchr(stages, '$');
    return at == NULL ? format_text(text, "%s | batch 2", stages)
                      : format_text(text, "%.*s%s%s | batch 2", (int)(at - stages), stages,
                                    in_directory("pets").text, at + 1);
}

static uint64_t digest_of(const char *stages) {
    char text[TEXT_BYTES];
    struct session session;
    struct digest digest = { 0 };
    const struct how how = how_of();
    session_open(&session, filled(text, stages), &how);
    take_batches(&session, TO_THE_END, digest_batch, &digest);
    session_close(&session);
    return digest.value;
}

#define PIXELS "folder $ | decode | "

static void a_range_is_remembered(void **state) {
    (void)state;
    static const struct {
        const char *before, *implied, *spelled;
    } cases[] = {
        /* images */
        { PIXELS "resize 14 14 antialias=no", "normalize unit", "normalize unit max=255" },
        { PIXELS "resize 14 14 antialias=no", "normalize imagenet", "normalize imagenet max=255" },
        { PIXELS "resize 14 14 | cast float32", "normalize imagenet",
          "normalize imagenet max=255" },
        { PIXELS "resize 14 14 | cast float16 | cast float64", "normalize unit",
          "normalize unit max=255" },
        { PIXELS "resize 14 14 | cast uint16", "normalize unit", "normalize unit max=255" },
        { PIXELS "resize 14 14 | cast uint16", "normalize mean=0.5 std=0.25",
          "normalize mean=0.5 std=0.25 max=255" },
        { PIXELS "resize 14 14 | cast int32", "normalize unit", "normalize unit max=255" },
        { PIXELS "resize 14 14 antialias=no | cast uint8", "normalize unit",
          "normalize unit max=255" },
        /* what keeps it */
        { PIXELS "resize 14 14 antialias=no | layout chw | reshape 3 196", "normalize imagenet",
          "normalize imagenet max=255" },
        { PIXELS "resize 14 14 antialias=no | cast float16 | cache memory", "normalize unit",
          "normalize unit max=255" },
        { PIXELS "cache memory | resize 14 14 antialias=no", "normalize unit",
          "normalize unit max=255" },
        { PIXELS "resize 14 14 antialias=no | copy image second", "normalize unit on=second",
          "normalize unit on=second max=255" },
        { PIXELS "resize 14 14 | cast float32 on=image | copy image second | unbatch on=second",
          "normalize unit on=second", "normalize unit on=second max=255" },
        /* arrays */
        { "array @u8 | cast float32", "normalize unit", "normalize unit max=255" },
        { "array @u8 | resize 14 14 antialias=no", "normalize imagenet",
          "normalize imagenet max=255" },
        { "array @u16 | cast float32", "normalize unit", "normalize unit max=65535" },
        { "array @u16 | cast float32 | cast uint8", "normalize unit", "normalize unit max=255" },
        { "array @bool | cast float32", "normalize imagenet", "normalize imagenet max=1" },
        { "zip (array @u16 name=a) (array @u8 name=b) | cast float32 | reshape 90 on=a,b",
          "normalize unit on=b", "normalize unit on=b max=255" },
        /* after normalize */
        { "array @u8 | normalize unit", "normalize imagenet", "normalize imagenet max=1" },
        { "array @u8 | normalize mean=0 std=1 max=255", "normalize imagenet",
          "normalize imagenet max=1" },
        { "array @u8 | normalize unit max=1", "normalize unit", "normalize unit max=255" },
        { "array @real | normalize unit max=255", "normalize imagenet",
          "normalize imagenet max=1" },
        /* numbers for the values as they are */
        { "array @u8 | cast float32", "normalize mean=127 std=60",
          "normalize mean=127 std=60 max=1" },
        { "array @real", "normalize mean=0.5 std=0.5", "normalize mean=0.5 std=0.5 max=1" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char implied[TEXT_BYTES], spelled[TEXT_BYTES];
        format_text(implied, "%s | %s", cases[i].before, cases[i].implied);
        format_text(spelled, "%s | %s", cases[i].before, cases[i].spelled);
        if (digest_of(implied) != digest_of(spelled)) {
            fail_msg("not as with max=: %s", implied);
        }
    }
}

/* Each part of a mix is divided by its own. */
static void parts_of_a_mix_have_their_own(void **state) {
    (void)state;
    assert_int_equal(digest_of("mix 1 (array @u8 name=x | cast float32) 1 (array @u16 name=x | "
                               "cast float32) | normalize unit"),
                     digest_of("mix 1 (array @u8 name=x | normalize unit) 1 (array @u16 name=x | "
                               "normalize unit)"));
}

static void refused_where_nobody_knows(void **state) {
    (void)state;
    static const struct {
        const char *text, *part;
    } cases[] = {
        { "array @real | normalize unit", "add max=1 if they go from 0 to 1, max=255" },
        { "array @real | normalize imagenet", "normalize imagenet: field 'real' is float32" },
        { "range 9 | normalize unit", "field 'index' is int64" },
        { "array @u8 | map @map | normalize unit", "add max=1" },
        { "array @u8 | one_hot 256 | normalize unit", "add max=1" },
        { "array @u8 | normalize imagenet | normalize unit", "add max=1" },
        { "array @u16 | cast int8 | normalize unit", "add max=1" },
        { "mix 1 (array @u8 name=x | cast float32) 1 (array @real name=x) | normalize unit",
          "add max=1" },
        /* numbers for 0 to 1 on values from 0 to 255 */
        { PIXELS "resize 8 8 antialias=no | normalize mean=0.485,0.456,0.406 std=0.229,0.224,0.225",
          "from 0 to 255, but mean= and std= look like those of values from 0 to 1: add max=255" },
        { "array @u16 | cast float32 | normalize mean=0.5 std=0.5", "add max=65535" },
    };
    const struct how how = how_of();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[TEXT_BYTES];
        brim_runtime *runtime;
        brim_pipeline *pipeline;
        brim_loader *loader = NULL;
        brim_runtime_options options = BRIM_RUNTIME_OPTIONS_INIT;
        brim_open_options open = BRIM_OPEN_OPTIONS_INIT;
        options.host_bytes = 64 << 20;
        open.bindings = how.bindings;
        open.binding_count = how.binding_count;
        assert_int_equal(brim_runtime_new(&options, &runtime), BRIM_OK);
        assert_int_equal(brim_pipeline_parse(filled(text, cases[i].text), &pipeline), BRIM_OK);
        const brim_status status = brim_loader_open(runtime, pipeline, &open, &loader);
        if (status != BRIM_STATUS_INVALID) {
            fail_msg("%s: %s", brim_status_name(status), text);
        }
        assert_detail_has(cases[i].part);
        brim_pipeline_free(pipeline);
        brim_runtime_free(runtime);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_range_is_remembered),
        cmocka_unit_test(parts_of_a_mix_have_their_own),
        cmocka_unit_test(refused_where_nobody_knows),
    };
    return cmocka_run_group_tests(tests, begin, end_tests);
}

/*
 * test_random_flag.c: which stages make a program random or impure, and what it calls them.
 *
 * What is said of a stage is held against what it does: one that is not random gives the
 * same in every epoch, and one that is gives something else in some.
 */
#include "program_util.h"

#define WIDTH  12
#define HEIGHT 10
#define EPOCHS 12

static int read_image(void *user, const brim_call *call, brim_value *outputs, size_t count,
                      char *why, size_t why_bytes) {
    (void)user, (void)count, (void)why, (void)why_bytes;
    uint8_t *pixels = outputs[0].data;
    for (uint64_t i = 0; i < outputs[0].bytes; i++) {
        pixels[i] = (uint8_t)(i * 37 + call->sample * 11 + i * i % 91);
    }
    const int64_t label = (int64_t)call->sample % 3;
    memcpy(outputs[1].data, &label, sizeof label);
    return 0;
}

/* The first pixel is the draw's, or the epoch's. */
static int map_image(void *user, const brim_call *call, const brim_value *inputs,
                     size_t input_count, brim_value *outputs, size_t output_count, char *why,
                     size_t why_bytes) {
    (void)input_count, (void)output_count, (void)why, (void)why_bytes;
    memcpy(outputs[0].data, inputs[0].data, outputs[0].bytes);
    if (user != NULL) {
        *(uint8_t *)outputs[0].data = (uint8_t)brim_call_random(call, 0);
    }
    return 0;
}

static int keep_image(void *user, const brim_call *call, const brim_value *inputs,
                      size_t input_count, char *why, size_t why_bytes) {
    (void)user, (void)call, (void)inputs, (void)input_count, (void)why, (void)why_bytes;
    return 1;
}

/* clang-format off */
static const brim_field_spec fields[] = {
    { sizeof(brim_field_spec), "image", BRIM_DTYPE_U8, 3, { HEIGHT, WIDTH, 3 }, 0, BRIM_FORM_DENSE, 0 },
    { sizeof(brim_field_spec), "label", BRIM_DTYPE_I64, 0, { 0 }, 0, BRIM_FORM_DENSE, 0 },
};
static char draws;
#define BINDING .size = sizeof(brim_binding), .fields = fields
#define SOURCE  BINDING, .kind = BRIM_BINDING_SOURCE, .count = 8, .field_count = 2, .read = read_image
#define MAP     BINDING, .kind = BRIM_BINDING_MAP, .field_count = 1, .map = map_image
static const brim_binding bindings[] = {
    { SOURCE, .name = "data", .flags = BRIM_CALLBACK_PURE | BRIM_CALLBACK_CONCURRENT },
    { SOURCE, .name = "loose", .flags = BRIM_CALLBACK_CONCURRENT },
    { SOURCE, .name = "dice", .flags = BRIM_CALLBACK_PURE | BRIM_CALLBACK_RANDOM },
    { MAP, .name = "pure", .flags = BRIM_CALLBACK_PURE },
    { MAP, .name = "impure" },
    { MAP, .name = "random", .flags = BRIM_CALLBACK_PURE | BRIM_CALLBACK_RANDOM, .user = &draws },
    { MAP, .name = "both", .flags = BRIM_CALLBACK_RANDOM, .user = &draws },
    { .size = sizeof(brim_binding), .name = "keep", .kind = BRIM_BINDING_FILTER,
      .filter = keep_image },
    { .size = sizeof(brim_binding), .name = "draw", .kind = BRIM_BINDING_FILTER,
      .flags = BRIM_CALLBACK_PURE | BRIM_CALLBACK_RANDOM, .filter = keep_image },
};

/* random, impure: what the program calls the first such stage; NULL: there is none. */
static const struct {
    const char *stages, *random, *impure;
} cases[] = {
    { "cast uint8", NULL, NULL },
    { "cast float32 | normalize unit", NULL, NULL },
    { "layout chw", NULL, NULL },
    { "reshape 30 4 3", NULL, NULL },
    { "one_hot 3", NULL, NULL },
    { "copy image second", NULL, NULL },
    { "filter 'label != 3'", NULL, NULL },
    { "unbatch on=image", NULL, NULL },
    { "resize 6 6", NULL, NULL },
    { "resize 6 6 antialias=no", NULL, NULL },
    { "crop 5 x=1 y=2", NULL, NULL },
    { "center_crop 7", NULL, NULL },
    { "random_crop 8", "random_crop", NULL },
    { "random_crop 10 padding=2", "random_crop", NULL },
    { "random_resized_crop 6", "random_resized_crop", NULL },
    { "flip", "flip", NULL },
    { "flip vertical p=0.9", "flip", NULL },
    { "flip p=1", NULL, NULL },
    { "flip p=0", NULL, NULL },
    { "color_jitter brightness=0.4 hue=0.2", "color_jitter", NULL },
    { "color_jitter brightness=0.4 p=0", NULL, NULL },
    { "brightness 0.2", NULL, NULL },
    { "brightness 0.2 p=0.5", "brightness", NULL },
    { "brightness max=0.5", "brightness", NULL },
    { "brightness max=0.5 p=0", NULL, NULL },
    { "grayscale", NULL, NULL },
    { "grayscale channels=1", NULL, NULL },
    { "grayscale p=0.5", "grayscale", NULL },
    { "gaussian_blur 5 sigma=0.5,3", "gaussian_blur", NULL },
    { "gaussian_blur 5 sigma=1.5,1.5", NULL, NULL },
    { "gaussian_blur 5 sigma=1.5 p=0.5", "gaussian_blur", NULL },
    { "random_erasing", "random_erasing", NULL },
    { "random_erasing p=1", "random_erasing", NULL },
    { "random_erasing p=0", NULL, NULL },
    { "rotate 60", "rotate", NULL },
    { "rotate 90 exact=yes", NULL, NULL },
    { "rotate 90 exact=yes p=0.5", "rotate", NULL },
    { "rotate 20,20", NULL, NULL },
    { "trivial_augment", "trivial_augment", NULL },
    { "map @pure", NULL, NULL },
    { "map @impure", NULL, "map @impure" },
    { "map @random", "map @random", NULL },
    { "map @both", "map @both", "map @both" },
    { "filter by=@keep", NULL, "filter @keep" },
    { "filter by=@draw | cast uint8", "filter @draw", NULL },
    /* the first is told, and a stage behind takes nothing back */
    { "flip | rotate 60 | center_crop 5", "flip", NULL },
    { "rotate 60 | flip p=1", "rotate", NULL },
    { "map @impure | flip | map @both", "flip", "map @impure" },
};
/* clang-format on */

static struct made made;

static void run_one(uint64_t sample, uint64_t epoch) {
    uint64_t got = 0;
    made.frame.call = (brim_call){ .size = sizeof(brim_call), .sample = sample, .epoch = epoch };
    assert_int_equal(made.source.ops->fetch(&made.source, &made.frame.call, 1, made.buffer,
                                            &made.frame.record[0], &got),
                     BRIM_OK);
    memset(made.frame.scratch, 0xee, made.program.scratch_bytes);
    assert_int_equal(run_steps(&made, 0, made.program.step_count), BRIM_OK);
}

/* In some epoch, some sample's first field is not what it was in epoch 0. */
static bool differs_by_epoch(void) {
    static uint8_t first[HEIGHT * WIDTH * 3 * sizeof(float)];
    bool differs = false;
    assert_true(made.row_bytes[0] <= sizeof first);
    for (uint64_t sample = 0; sample < 8; sample++) {
        run_one(sample, 0);
        memcpy(first, made.frame.row[0], made.row_bytes[0]);
        for (uint64_t epoch = 1; epoch < EPOCHS; epoch++) {
            run_one(sample, epoch);
            differs |= memcmp(first, made.frame.row[0], made.row_bytes[0]) != 0;
        }
    }
    return differs;
}

static void assert_stage(const char *text, bool set, const char *got, const char *expected) {
    if (set != (expected != NULL) || (got == NULL) != (expected == NULL) ||
        (expected != NULL && strcmp(got, expected) != 0)) {
        fail_msg("%s: it is %s, not %s", text, got != NULL ? got : "none",
                 expected != NULL ? expected : "none");
    }
}

static void test_stages_say_what_they_do(void **state) {
    (void)state;
    for (size_t i = 0; i < BRIM__COUNT(cases); i++) {
        char text[200];
        snprintf(text, sizeof text, "callback @data | %s", cases[i].stages);
        if (made_open(&made, text, bindings, BRIM__COUNT(bindings)) != BRIM_OK) {
            fail_msg("%s: %s", text, brim_detail());
        }
        assert_stage(text, made.program.random, made.program.random_stage, cases[i].random);
        assert_stage(text, made.program.impure, made.program.impure_stage, cases[i].impure);
        const bool draws_only = strstr(text, "@draw") != NULL; /* it always keeps */
        if (made.program.expand == BRIM__NO_EXPAND && !draws_only &&
            differs_by_epoch() != (cases[i].random != NULL)) {
            fail_msg("%s: said %s, but it is not so", text,
                     cases[i].random != NULL ? "to be random" : "not to be random");
        }
        made_close(&made);
    }
}

/* A stage that takes a seed draws: one that is new must stand in the table above. */
static void test_every_stage_with_a_seed_is_here(void **state) {
    (void)state;
    for (size_t s = 0; s < brim_stage_count(); s++) {
        const brim_stage_info *info = brim_stage_at(s);
        bool seeded = false, here = strcmp(info->name, "flat_map") == 0; /* as map */
        for (size_t a = 0; a < info->argument_count; a++) {
            seeded |= strcmp(brim_stage_argument_at(info, a)->name, "seed") == 0;
        }
        for (size_t i = 0; i < BRIM__COUNT(cases); i++) {
            const size_t length = strlen(info->name);
            here |= strncmp(cases[i].stages, info->name, length) == 0 && cases[i].random != NULL;
        }
        if (info->room == BRIM_ROOM_TRANSFORM && seeded && !here) {
            fail_msg("%s takes a seed, but no case here says that it is random", info->name);
        }
    }
}

static void test_sources(void **state) {
    (void)state;
    static const struct {
        const char *text, *random, *impure;
    } sources[] = {
        { "callback @data", NULL, NULL },
        { "callback @loose", NULL, "callback @loose" },
        { "callback @dice", "callback @dice", NULL },
        { "callback @loose | flip | map @both", "flip", "callback @loose" },
        { "range 5", NULL, NULL },
    };
    for (size_t i = 0; i < BRIM__COUNT(sources); i++) {
        if (made_open(&made, sources[i].text, bindings, BRIM__COUNT(bindings)) != BRIM_OK) {
            fail_msg("%s: %s", sources[i].text, brim_detail());
        }
        assert_stage(sources[i].text, made.program.random, made.program.random_stage,
                     sources[i].random);
        assert_stage(sources[i].text, made.program.impure, made.program.impure_stage,
                     sources[i].impure);
        made_close(&made);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stages_say_what_they_do),
        cmocka_unit_test(test_every_stage_with_a_seed_is_here),
        cmocka_unit_test(test_sources),
    };
    return cmocka_run_group_tests_name("random_flag", tests, NULL, NULL);
}

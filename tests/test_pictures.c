/*
 * test_pictures.c: pipelines of images as a whole: the same for any threads, budget and
 * way to the pixels; sizes, fields and errors.
 */
#include "support/image_data.h"

#include <stdio.h>
#include <string.h>

static uint64_t digest_of(const char *text, const struct how *how) {
    struct session session;
    struct digest digest = { 0 };
    session_open(&session, text, how);
    take_batches(&session, TO_THE_END, digest_batch, &digest);
    take_batches(&session, TO_THE_END, digest_batch, &digest); /* other draws in the next epoch */
    session_close(&session);
    return digest.value;
}

static const char *const chains[] = {
    "decode | random_resized_crop 16 | flip | normalize imagenet | layout chw",
    "decode | resize 24 | center_crop 16",
    "decode orient=yes | random_resized_crop 16 24 filter=lanczos | flip vertical",
    "decode fast=yes | random_resized_crop 8",
    "decode gray | resize 20 filter=bicubic | random_crop 16 | normalize unit",
    "decode rgba | resize 10 12 | flip | random_crop 10 padding=2 edge=reflect",
    "decode | color_jitter brightness=0.5 hue=0.1 | resize 16 16",
    "decode | resize 30 30 | rotate 40 | gaussian_blur 5 | resize 9 9 | random_erasing",
    "decode | flip | trivial_augment | random_resized_crop 16",
    "decode | copy image second | random_resized_crop 16 on=image | random_resized_crop 8 "
    "on=second",
    "decode | resize 14 14 antialias=no | layout chw",
    "decode mask | resize 16 16 | flip",
    "decode | grayscale channels=1 | resize 16 16",
    "decode | center_crop 150 pad=yes fill=9 | resize 20 20",
    "decode | crop 100 90 x=20 y=70 pad=yes",
    "decode | random_crop 140 pad=yes padding=3",
    "decode rgba | grayscale channels=1 | resize 16 16 filter=lanczos",
    "decode | resize 16 16 | cast bfloat16",
    "decode | resize 300 | flip | resize 14 14 antialias=no",
};

/* Also: the plan's minimum is enough, and all that it takes stays inside the plan. */
static void same_for_threads_and_budgets(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof chains / sizeof chains[0]; i++) {
        char text[TEXT_BYTES];
        const bool mask = strstr(chains[i], "mask") != NULL; /* colour PNGs are none */
        format_text(text, "folder %s | %s | batch 3 on_error=%s", in_directory("pets").text,
                    chains[i], mask ? "skip" : "fail");
        const struct how plain = { 0 };
        const uint64_t expected = digest_of(text, &plain);
        const struct how ways[] = { { .threads = 2 },
                                    { .bytes = AT_MINIMUM },
                                    { .bytes = AT_MINIMUM, .threads = 3 },
                                    { .threads = 1, .growth = BRIM_GROWTH_FIXED } };
        for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++) {
            const uint64_t got = digest_of(text, &ways[w]);
            if (got != expected) {
                fail_msg("way %zu differs: %s", w, text);
            }
        }
    }
}

struct pixels {
    uint8_t data[1 << 20];
    size_t bytes;
};

static void keep(void *user, const brim_batch *batch) {
    struct pixels *pixels = user;
    const brim_field *field = brim_batch_field_at(batch, 0);
    assert_true(pixels->bytes + field->bytes <= sizeof pixels->data);
    memcpy(pixels->data + pixels->bytes, field->data, field->bytes);
    pixels->bytes += field->bytes;
}

/* Decoded by rows or given as an array: the same draws, the same pixels. */
static void files_and_arrays_agree(void **state) {
    (void)state;
    static const char *const stages[] = {
        "random_resized_crop 20",
        "random_resized_crop 20 filter=bicubic | flip | flip vertical",
        "flip | random_resized_crop 20 | random_crop 16",
        "resize 30 | center_crop 24 | color_jitter contrast=0.5 | normalize unit",
        "crop 40 50 x=3 y=2 | resize 100 20 filter=lanczos | layout chw",
        "rotate 30 | resize 17 19 filter=box",
        "resize 33 | random_crop 30 padding=3",
    };
    static struct pixels from_files, from_array;
    for (size_t i = 0; i < sizeof stages / sizeof stages[0]; i++) {
        char text[TEXT_BYTES];
        struct session session;
        const struct how how = { 0 };
        from_files.bytes = from_array.bytes = 0;
        /* decode is a transform too: something that does nothing stands in its place */
        session_open(&session,
                     format_text(text, "folder %s classes=no | decode | %s | batch 1",
                                 in_directory("same").text, stages[i]),
                     &how);
        take_batches(&session, TO_THE_END, keep, &from_files);
        session_close(&session);
        session_open(&session,
                     format_text(text, "npy %s name=image | cast uint8 | %s | batch 1",
                                 in_directory("pets.npy").text, stages[i]),
                     &how);
        take_batches(&session, TO_THE_END, keep, &from_array);
        session_close(&session);
        assert_int_equal(from_files.bytes, from_array.bytes);
        if (memcmp(from_files.data, from_array.data, from_files.bytes) != 0) {
            fail_msg("differ: %s", stages[i]);
        }
    }
}

struct first {
    uint64_t sample;
    uint8_t data[32];
    unsigned seen;
};

static void keep_first(void *user, const brim_batch *batch) {
    struct first *first = user;
    const brim_batch_info *info = brim_batch_get(batch);
    if (first->seen++ == 0) {
        first->sample = info->samples[0];
        memcpy(first->data, brim_batch_field_at(batch, 0)->data, sizeof first->data);
    }
}

/* Draws before a sample is taken apart are the sample's, whatever came before it. */
static void draws_before_unbatch(void **state) {
    (void)state;
    struct first whole = { 0 }, rest = { 0 };
    struct first *const firsts[] = { &whole, &rest };
    static const char *const orders[] = { "", "skip 1 | " };
    for (size_t i = 0; i < 2; i++) {
        char text[TEXT_BYTES];
        struct session session;
        const struct how how = { .threads = (int32_t)i * 2 };
        session_open(&session,
                     format_text(text, "npy %s name=image | %srandom_crop 6 8 | unbatch | batch 6",
                                 in_directory("pets.npy").text, orders[i]),
                     &how);
        firsts[i]->seen = i == 0 ? UINT32_MAX : 0; /* of all of them the second batch */
        take_batches(&session, TO_THE_END, keep_first, firsts[i]);
        session_close(&session);
    }
    assert_int_equal(whole.sample, 1);
    assert_int_equal(rest.sample, 1);
    assert_memory_equal(whole.data, rest.data, sizeof whole.data);
}

/* Class numbers are no quantities: cast leaves them alone unless it names them. */
static void labels_are_spared(void **state) {
    (void)state;
    char text[TEXT_BYTES];
    struct session session;
    const struct how how = { 0 };
    session_open(&session,
                 format_text(text, "folder %s | decode | resize 4 4 | cast float16 | batch 8",
                             in_directory("pets").text),
                 &how);
    brim_batch *batch = take_batch(&session);
    assert_int_equal(brim_batch_find(batch, "image")->dtype, BRIM_DTYPE_F16);
    assert_int_equal(brim_batch_find(batch, "label")->dtype, BRIM_DTYPE_I64);
    brim_batch_release(batch);
    session_close(&session);
}

/* Undecoded, the files themselves. */
static void bytes_of_files(void **state) {
    (void)state;
    char text[TEXT_BYTES];
    struct session session;
    const struct how how = { 0 };
    session_open(&session,
                 format_text(text, "folder %s | filter \"length(image) > 10\" | batch 8",
                             in_directory("pets").text),
                 &how);
    brim_batch *batch = take_batch(&session);
    const brim_field *field = brim_batch_find(batch, "image");
    assert_int_equal(field->form, BRIM_FORM_BYTES);
    assert_int_equal(field->shape[0], 8);
    for (uint32_t i = 0; i < 8; i++) {
        static uint8_t file[1 << 16];
        char name[64];
        snprintf(name, sizeof name, "pets/%s/%u.%s", i < 4 ? "cat" : "dog", i,
                 i % 4 < 2    ? "jpg"
                 : i % 4 == 2 ? "png"
                              : "webp");
        FILE *stream = fopen(in_directory(name).text, "rb");
        assert_non_null(stream);
        const size_t bytes = fread(file, 1, sizeof file, stream);
        fclose(stream);
        assert_int_equal(field->offsets[i + 1] - field->offsets[i], bytes);
        assert_memory_equal((const uint8_t *)field->data + field->offsets[i], file, bytes);
    }
    brim_batch_release(batch);
    session_close(&session);
}

static void refusals(void **state) {
    (void)state;
    char text[TEXT_BYTES];
    const struct how how = { 0 };
    const char *pets = in_directory("pets").text;
    static const struct {
        const char *stages, *part;
    } cases[] = {
        { "decode", "differ in size" },
        { "decode | resize 64", "differ in size" },
        { "decode | normalize imagenet", "differ in size" },
        { "resize 64", "no image" },
        { "decode | resize 8 8 | normalize unit | flip", "put flip before" },
        { "decode | decode", "decoded already" },
        { "normalize unit", "still encoded" },
        { "decode gray | resize 8 8 | normalize imagenet", "instead of imagenet" },
        { "decode | resize 8 8 | one_hot 1 on=label", "one_hot 2" },
        { "decode | resize 8 8 | cast float32 | flip", "put flip before" },
        { "decode on=label", "no encoded images" },
        { "decode mask | resize 8 8 | color_jitter brightness=0.1 on=image", "mask" },
        { "decode | resize 8 8 8", "height and width" },
        { "decode | resize 8 8 antialias=no filter=lanczos", "bicubic" },
        { "decode | resize 8 8 antialias=no | flip", "put flip before" },
        { "decode | random_resized_crop 8 scale=0.5,0.1", "smaller one first" },
        { "decode | resize 8 8 on=label", "not an image" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        brim_runtime *runtime;
        brim_pipeline *pipeline = NULL;
        brim_loader *loader = NULL;
        brim_runtime_options options = BRIM_RUNTIME_OPTIONS_INIT;
        options.host_bytes = 64 << 20;
        assert_int_equal(brim_runtime_new(&options, &runtime), BRIM_OK);
        brim_status status = brim_pipeline_parse(
            format_text(text, "folder %s | %s | batch 2", pets, cases[i].stages), &pipeline);
        if (status == BRIM_OK) {
            status = brim_loader_open(runtime, pipeline, NULL, &loader);
        }
        assert_int_not_equal(status, BRIM_OK);
        assert_detail_has(cases[i].part);
        brim_loader_close(loader);
        brim_pipeline_free(pipeline);
        brim_runtime_free(runtime);
    }
    struct session session;
    brim_batch *batch;
    session_open(&session, format_text(text, "folder %s | decode | crop 500 | batch 2", pets),
                 &how);
    assert_int_equal(brim_loader_next(session.loader, BRIM_FOREVER, &batch), BRIM_STATUS_CORRUPT);
    assert_detail_has("too small");
    session_close(&session);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_for_threads_and_budgets),
        cmocka_unit_test(files_and_arrays_agree),
        cmocka_unit_test(draws_before_unbatch),
        cmocka_unit_test(labels_are_spared),
        cmocka_unit_test(bytes_of_files),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, begin_image_tests, end_tests);
}

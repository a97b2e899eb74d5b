/*
 * test_picture_bytes.c: pictures that a cache keeps as bytes, and that are pictures again after it.
 *
 * A pipeline with `cache` in it is built twice: without it, and with what a cache does to the
 * program. There, a step takes all that a cache would keep out of the scratch, wipes the
 * scratch, and puts it back: as after a hit, nothing else is left of what came before. Rows
 * are the same, byte for byte.
 */
#include "program_util.h"

#include "cache/cache.h"
#include "support/image_data.h"
#include "transform/picture.h"

#include <spng.h>

#define IMAGES 9
#define BOXES  3
#define BOUND  65536 /* bytes of an encoded image */
#define EPOCHS 2

/* ------------------------------------------------------------------ images */

struct encoded {
    uint8_t data[BOUND];
    uint64_t bytes;
    uint32_t width, height;
};
static struct encoded image[IMAGES], mask[IMAGES];

static void load(struct encoded *encoded, const char *name, uint32_t width, uint32_t height) {
    FILE *file = fopen(in_directory(name).text, "rb");
    assert_non_null(file);
    encoded->bytes = fread(encoded->data, 1, BOUND, file);
    assert_true(encoded->bytes > 0 && encoded->bytes < BOUND);
    fclose(file);
    encoded->width = width;
    encoded->height = height;
}

/* A PNG of 1 or 4 bytes a pixel. */
static void encode_png(struct encoded *encoded, const uint8_t *pixels, uint32_t width,
                       uint32_t height, bool gray) {
    spng_ctx *png = spng_ctx_new(SPNG_CTX_ENCODER);
    struct spng_ihdr header = { .width = width,
                                .height = height,
                                .bit_depth = 8,
                                .color_type = gray ? SPNG_COLOR_TYPE_GRAYSCALE
                                                   : SPNG_COLOR_TYPE_TRUECOLOR_ALPHA };
    size_t bytes = 0;
    int error = 0;
    spng_set_option(png, SPNG_ENCODE_TO_BUFFER, 1);
    spng_set_ihdr(png, &header);
    assert_int_equal(spng_encode_image(png, pixels, (size_t)width * height * (gray ? 1 : 4),
                                       SPNG_FMT_PNG, SPNG_ENCODE_FINALIZE),
                     0);
    void *data = spng_get_png_buffer(png, &bytes, &error);
    assert_true(error == 0 && bytes <= BOUND);
    *encoded = (struct encoded){ .bytes = bytes, .width = width, .height = height };
    memcpy(encoded->data, data, bytes);
    free(data);
    spng_ctx_free(png);
}

/* EXIF behind the first marker, which says that the image is to be turned. */
static void turn(struct encoded *jpeg, uint8_t orientation) {
    const uint8_t exif[] = { 0xff, 0xe1, 0, 34, 'E',         'x', 'i', 'f', 0,    0,    'I', 'I',
                             0x2a, 0,    8, 0,  0,           0,   1,   0,   0x12, 0x01, 3,   0,
                             1,    0,    0, 0,  orientation, 0,   0,   0,   0,    0,    0,   0 };
    memmove(jpeg->data + 2 + sizeof exif, jpeg->data + 2, jpeg->bytes - 2);
    memcpy(jpeg->data + 2, exif, sizeof exif);
    jpeg->bytes += sizeof exif;
}

/* JPEG, progressive JPEG, PNG, WebP, PNG with alpha; JPEGs on their side and mirrored; a JPEG
 * of 80x60, which is what some chains resize to. */
static int make_images(void **state) {
    static uint8_t pixels[200 * 200 * 4];
    const int failed = begin_image_tests(state);
    for (uint32_t i = 0; failed == 0 && i < IMAGES; i++) {
        static const uint8_t orientations[] = { 6, 3, 7 };
        const uint32_t width = i == 8 ? 80 : 33 + 13 * i, height = i == 8 ? 60 : 130 - 11 * i;
        char name[32];
        snprintf(name, sizeof name, "image%u", i);
        draw_pixels(pixels, width, height, i + 7);
        if (i == 2) {
            write_png(name, pixels, width, height);
        } else if (i == 3) {
            write_webp(name, pixels, width, height);
        } else {
            write_jpeg(name, pixels, width, height, i == 1);
        }
        load(&image[i], name, width, height);
        if (i >= 5 && i < 8) {
            struct brim__input input;
            struct brim__image_info info;
            turn(&image[i], orientations[i - 5]);
            brim__input_memory(&input, image[i].data, image[i].bytes);
            assert_int_equal(brim__image_info(&input, true, &info), BRIM_OK);
            assert_int_equal(info.orientation, orientations[i - 5]);
        }
        for (uint32_t p = 0; p < width * height * 4; p++) {
            pixels[p] = (uint8_t)(p % 4 == 3 ? p / 4 % 256 : p * 7 % 251);
        }
        if (i == 4) {
            encode_png(&image[i], pixels, width, height, false);
        }
        encode_png(&mask[i], pixels, width, height, true);
    }
    return failed;
}

static int read_encoded(void *user, const brim_call *call, brim_value *outputs, size_t count,
                        char *why, size_t why_bytes) {
    (void)user, (void)why, (void)why_bytes;
    assert_int_equal(count, 4);
    const struct encoded *from[] = { &image[call->sample], &mask[call->sample] };
    for (size_t i = 0; i < 2; i++) {
        memcpy(outputs[i].data, from[i]->data, from[i]->bytes);
        outputs[i].shape[0] = (int64_t)from[i]->bytes;
    }
    const int64_t boxes = (int64_t)call->sample % (BOXES + 1);
    for (int64_t b = 0; b < boxes; b++) {
        const float box[4] = { (float)b, 2, (float)(20 + 5 * b), 25 };
        memcpy((uint8_t *)outputs[2].data + (size_t)b * sizeof box, box, sizeof box);
    }
    outputs[2].shape[0] = boxes;
    memcpy(outputs[3].data, &(int64_t){ 100 + (int64_t)call->sample }, sizeof(int64_t));
    return 0;
}

/* clang-format off */
static const brim_field_spec fields[] = {
    { sizeof(brim_field_spec), "image", BRIM_DTYPE_U8, 1, { BOUND }, 0, BRIM_FORM_BYTES, 0 },
    { sizeof(brim_field_spec), "mask", BRIM_DTYPE_U8, 1, { BOUND }, 0, BRIM_FORM_BYTES, 0 },
    { sizeof(brim_field_spec), "boxes", BRIM_DTYPE_F32, 2, { BOXES, 4 }, 0, BRIM_FORM_RAGGED, 0 },
    { sizeof(brim_field_spec), "label", BRIM_DTYPE_I64, 0, { 0 }, 0, BRIM_FORM_DENSE, 0 },
};
/* clang-format on */

static int keep_all(void *user, const brim_call *call, const brim_value *inputs, size_t input_count,
                    char *why, size_t why_bytes) {
    (void)user, (void)call, (void)inputs, (void)input_count, (void)why, (void)why_bytes;
    return 1;
}

static const brim_binding bindings[] = {
    { .size = sizeof(brim_binding),
      .name = "data",
      .kind = BRIM_BINDING_SOURCE,
      .count = IMAGES,
      .fields = fields,
      .field_count = 4,
      .flags = BRIM_CALLBACK_PURE | BRIM_CALLBACK_CONCURRENT,
      .read = read_encoded },
    { .size = sizeof(brim_binding),
      .name = "all",
      .kind = BRIM_BINDING_FILTER,
      .flags = BRIM_CALLBACK_PURE | BRIM_CALLBACK_CONCURRENT,
      .filter = keep_all },
};

/* ---------------------------------------------------------------- programs */

/* What is kept of one field, in memory of just its size. */
struct kept {
    uint64_t at; /* in scratch */
    bool dense;
    uint64_t unit; /* bytes: dense: of all of it */
    uint64_t count;
    uint8_t *data;
};

struct rest {
    struct kept kept[BRIM__MAX_FIELDS];
    uint32_t count;
    uint64_t scratch_bytes;
};

static void (*spoil)(uint8_t *data, uint64_t *count); /* of what is first kept; or NULL */

static void give_up(struct rest *rest) {
    for (uint32_t i = 0; i < rest->count; i++) {
        free(rest->kept[i].data);
        rest->kept[i].data = NULL;
    }
}

static brim_status run_rest(const struct brim__step *step, const struct brim__frame *frame) {
    struct rest *rest = step->self;
    give_up(rest);
    for (uint32_t i = 0; i < rest->count; i++) {
        struct kept *kept = &rest->kept[i];
        const uint8_t *from = frame->scratch + kept->at;
        kept->count = 1;
        if (!kept->dense) {
            struct brim__span span;
            memcpy(&span, from, sizeof span);
            from = span.data;
            kept->count = span.count;
        }
        kept->data = malloc(brim__max(1, kept->count * kept->unit));
        assert_non_null(kept->data);
        memcpy(kept->data, from, kept->count * kept->unit);
        if (i == 0 && spoil != NULL) {
            spoil(kept->data, &kept->count);
        }
    }
    memset(frame->scratch, 0xdd, rest->scratch_bytes);
    for (uint32_t i = 0; i < rest->count; i++) {
        const struct kept *kept = &rest->kept[i];
        if (kept->dense) {
            memcpy(frame->scratch + kept->at, kept->data, kept->unit);
        } else {
            const struct brim__span span = { kept->data, kept->count };
            memcpy(frame->scratch + kept->at, &span, sizeof span);
        }
    }
    return BRIM_OK;
}

/* What a cache does with the program's fields. */
static brim_status put_away(struct brim__program *program, struct rest *rest) {
    struct brim__picture_bytes *as_bytes[BRIM__MAX_FIELDS] = { NULL };
    brim_status status = BRIM_OK;
    for (uint32_t f = 0; status == BRIM_OK && f < program->field_count; f++) {
        struct brim__program_field *field = &program->field[f];
        struct kept *kept = &rest->kept[rest->count++];
        uint64_t bytes = 0;
        if (field->open != NULL && !brim__picture_of(field)->extent.fixed) {
            status = brim__picture_to_bytes(program, "cache", f, &as_bytes[f]);
        }
        if (status == BRIM_OK && field->form == BRIM_FORM_DENSE) {
            struct brim__operand to;
            assert_false(brim__shape_bytes_overflow(&field->pending.from.shape,
                                                    brim_dtype_bytes(field->pending.to), &bytes));
            assert_int_equal(brim__program_scratch(program, bytes, &to), BRIM_OK);
            status = brim__program_move(program, "cache", f, to);
            assert_true(status != BRIM_OK || field->at.offset == to.offset);
        } else if (status == BRIM_OK) {
            struct brim__shape unit = field->pending.from.shape;
            unit.dim[0] = 1;
            status = brim__program_flush(program, f, true);
            assert_false(
                brim__shape_bytes_overflow(&unit, brim_dtype_bytes(field->pending.to), &bytes));
        }
        field->written = NULL;
        *kept =
            (struct kept){ .at = field->at.offset, field->form == BRIM_FORM_DENSE, .unit = bytes };
    }
    struct brim__step *step;
    if (status == BRIM_OK && (status = brim__program_step(program, &step)) == BRIM_OK) {
        step->run = run_rest;
        step->self = rest;
    }
    for (uint32_t f = 0; status == BRIM_OK && f < program->field_count; f++) {
        status = as_bytes[f] != NULL ? brim__picture_from_bytes(program, f, as_bytes[f]) : BRIM_OK;
    }
    return status;
}

struct built {
    struct made made;
    struct rest rest[BRIM__KEPT_RECORDS];
    uint32_t rests;
};

/* `cached`: with what `cache` stands for, else without it. */
static brim_status build(struct built *built, const char *text, bool cached) {
    struct made *made = &built->made;
    memset(built, 0, sizeof *built);
    brim__arena_init(&made->arena, NULL);
    made->opening = (struct brim__opening){ .arena = &made->arena,
                                            .bindings = bindings,
                                            .binding_count = BRIM__COUNT(bindings),
                                            .serials = &made->serials };
    made->sources[0] = &made->source;
    assert_int_equal(brim_pipeline_parse(text, &made->pipeline), BRIM_OK);
    const struct brim__use *use = made->pipeline->use;
    brim_status status = use[0].stage->open(&use[0], &made->opening, &made->source);
    assert_int_equal(status, BRIM_OK);
    status = brim__program_init(&made->program, &made->opening, made->sources, 1, 0);
    uint64_t key = 1000;
    for (size_t u = 1; status == BRIM_OK && u < made->pipeline->use_count; u++) {
        made->program.stage = (uint32_t)u;
        if (use[u].stage == &brim__stage_cache) {
            status = cached ? put_away(&made->program, &built->rest[built->rests++]) : BRIM_OK;
        } else {
            made->program.key = key++;
            status = use[u].stage->add_transform(&use[u], &made->program);
        }
    }
    if (status == BRIM_OK) {
        status = brim__program_finish(&made->program, made->sources, 1);
    }
    if (status != BRIM_OK) {
        return status;
    }
    for (uint32_t i = 0; i < built->rests; i++) {
        built->rest[i].scratch_bytes = made->program.scratch_bytes;
    }
    made->buffer = aligned_memory(brim__source_buffer(&made->source, 1));
    made->frame.scratch = aligned_memory(made->program.scratch_bytes);
    for (uint32_t f = 0; f < made->program.field_count; f++) {
        const struct brim__program_field *field = &made->program.field[f];
        assert_false(brim__shape_bytes_overflow(
            &field->pending.from.shape, brim_dtype_bytes(field->pending.to), &made->row_bytes[f]));
        made->frame.row[f] = aligned_memory(made->row_bytes[f]);
        made->frame.length[f] = &made->length[f];
    }
    return BRIM_OK;
}

static void end(struct built *built) {
    for (uint32_t i = 0; i < built->rests; i++) {
        give_up(&built->rest[i]);
    }
    made_close(&built->made);
}

static brim_status run_one(struct built *built, uint64_t sample, uint64_t epoch) {
    struct made *made = &built->made;
    uint64_t got = 0;
    made->frame.call = (brim_call){ .size = sizeof(brim_call), .sample = sample, .epoch = epoch };
    assert_int_equal(made->source.ops->fetch(&made->source, &made->frame.call, 1, made->buffer,
                                             &made->frame.record[0], &got),
                     BRIM_OK);
    return run_steps(made, 0, made->program.step_count);
}

/* The same rows, or the same refusal of the sample. */
static void compare(const char *text) {
    static struct built plain, cached;
    uint32_t good = 0;
    if (build(&plain, text, false) != BRIM_OK || build(&cached, text, true) != BRIM_OK) {
        fail_msg("%s: %s", text, brim_detail());
    }
    assert_int_equal(plain.made.program.field_count, cached.made.program.field_count);
    for (uint64_t epoch = 0; epoch < EPOCHS; epoch++) {
        for (uint64_t sample = 0; sample < IMAGES; sample++) {
            const brim_status expected = run_one(&plain, sample, epoch);
            const brim_status got = run_one(&cached, sample, epoch);
            if (got != expected) {
                fail_msg("%s: sample %llu: %s", text, (unsigned long long)sample, brim_detail());
            }
            for (uint32_t f = 0; expected == BRIM_OK && f < plain.made.program.field_count; f++) {
                assert_int_equal(plain.made.row_bytes[f], cached.made.row_bytes[f]);
                if (plain.made.length[f] != cached.made.length[f] ||
                    memcmp(plain.made.frame.row[f], cached.made.frame.row[f],
                           plain.made.row_bytes[f]) != 0) {
                    fail_msg("%s: field %u of sample %llu differs", text, f,
                             (unsigned long long)sample);
                }
            }
            good += expected == BRIM_OK;
        }
    }
    assert_true(good >= EPOCHS * (IMAGES - 2)); /* it is about something */
    end(&plain);
    end(&cached);
}

/* ------------------------------------------------------------------- tests */

#define LIMITS "room=1MiB max_pixels=40000"
#define IMAGE  "decode on=image " LIMITS
#define BOTH   IMAGE " | decode mask on=mask " LIMITS

static void test_images_of_any_size(void **state) {
    (void)state;
    static const char *const chains[] = {
        IMAGE " | cache memory | random_resized_crop 16 | flip",
        IMAGE " | cache memory | random_resized_crop 16 24 filter=lanczos | flip vertical",
        IMAGE " | cache memory | resize 20 | center_crop 16 | normalize imagenet | layout chw",
        IMAGE " | resize 64 | cache memory | center_crop 48",
        IMAGE " | resize 64 max=80 | cache memory | resize 9 9",
        IMAGE " | resize 40 filter=bicubic | cache memory | random_crop 32 padding=3 | flip",
        IMAGE " | flip p=1 | cache memory | random_resized_crop 16",
        IMAGE " | flip vertical p=1 | resize 30 | cache memory | flip p=1 | center_crop 24",
        IMAGE " | gaussian_blur 5 sigma=1 | cache memory | resize 17 19 filter=box",
        IMAGE " | cache memory | color_jitter brightness=0.5 hue=0.1 | resize 16 16",
        IMAGE " | cache memory | trivial_augment | rotate 30 | center_crop 20 pad=yes fill=7",
        IMAGE " | rotate 90 exact=yes | cache memory | resize 12 12",
        IMAGE " | grayscale channels=1 | cache memory | resize 16 16",
        IMAGE " | cache memory | grayscale channels=1 | resize 16 16 antialias=no",
        IMAGE " | cache memory | resize 14 14 antialias=no | layout chw",
        IMAGE " gray | cache memory | resize 20 filter=bicubic | random_crop 16",
        IMAGE " gray | resize 33 | cache memory | flip | center_crop 33",
        IMAGE " rgba | cache memory | resize 10 12 | flip",
        IMAGE " rgba | resize 31 | cache memory | random_crop 30 | resize 8 8",
        IMAGE " rgba | cache memory | grayscale channels=1 | resize 16 16 filter=lanczos",
        IMAGE " orient=yes | cache memory | random_resized_crop 16 | flip",
        IMAGE " orient=yes | resize 25 | cache memory | random_crop 22",
        IMAGE " orient=yes gray | flip p=1 | cache memory | resize 11 13",
        IMAGE " damaged=keep | cache memory | center_crop 20",
        IMAGE " | cache memory | copy image second | random_resized_crop 16 on=image | "
              "random_resized_crop 8 on=second",
        IMAGE " | copy image second | resize 20 on=second | cache memory | "
              "random_resized_crop 16 on=image,second",
        IMAGE " | cache memory | resize 40 | cache memory | center_crop 40",
    };
    for (size_t i = 0; i < BRIM__COUNT(chains); i++) {
        char text[TEXT_BYTES];
        compare(format_text(text, "callback @data | %s", chains[i]));
    }
}

/* Of one size, they lie as an array; but stages behind treat them as images. */
static void test_images_of_one_size(void **state) {
    (void)state;
    static const char *const chains[] = {
        IMAGE " | resize 24 24 | cache memory | flip | random_crop 20",
        IMAGE " | resize 24 24 | normalize imagenet | cache memory | layout chw",
        IMAGE " | resize 24 24 antialias=no | cache memory | cast float16",
        IMAGE " | center_crop 20 | copy image second | cache memory | flip",
        IMAGE " | resize 24 24 | copy image second | cache memory | rotate 30 | resize 9 9",
        IMAGE " | resize 24 24 | cache memory | copy image second | random_crop 8",
        IMAGE " | resize 24 24 | copy image second | cache memory | filter by=@all | flip",
        IMAGE " | resize 24 24 | copy image second | cache memory | cache memory | flip",
        BOTH " | resize 40 40 | cache memory | rotate 20 | resize 9 11 filter=bicubic",
        BOTH " | resize 40 40 | cache memory | color_jitter contrast=0.5",
        BOTH " | resize 40 40 | cache memory | filter by=@all | color_jitter contrast=0.5",
    };
    for (size_t i = 0; i < BRIM__COUNT(chains); i++) {
        char text[TEXT_BYTES];
        compare(format_text(text, "callback @data | %s", chains[i]));
    }
}

static void test_masks_and_boxes(void **state) {
    (void)state;
    static const char *const chains[] = {
        BOTH " | cache memory | random_resized_crop 16 | flip",
        BOTH " | cache memory | random_resized_crop 16 on=image,mask,boxes | flip "
             "on=image,mask,boxes",
        BOTH " | resize 50 on=image,mask,boxes | cache memory | center_crop 40 "
             "on=image,mask,boxes",
        BOTH " | resize 50 on=image,mask,boxes | cache memory | flip on=image,boxes | resize 8 9",
        IMAGE " | flip p=1 on=image,boxes | cache memory | resize 32 32 on=image,boxes | rotate 20 "
              "on=image,boxes",
        IMAGE " | resize 32 32 on=image,boxes | cache memory | random_crop 20 on=image,boxes",
        "decode mask on=mask " LIMITS " | cache memory | resize 16 16 filter=lanczos | flip",
        "decode mask on=mask " LIMITS " | resize 30 | cache memory | random_crop 20",
    };
    for (size_t i = 0; i < BRIM__COUNT(chains); i++) {
        char text[TEXT_BYTES];
        compare(format_text(text, "callback @data | %s", chains[i]));
    }
}

/* The size at which fast=yes decodes must not depend on what stands behind the cache; not
 * even where the resize before it changes nothing (image 8 is 80x60). */
static void test_fast(void **state) {
    (void)state;
    static const char *const chains[] = {
        IMAGE " fast=yes | resize 16 | cache memory | center_crop 12",
        IMAGE " fast=yes | resize 40 | cache memory | random_resized_crop 8",
        IMAGE " fast=yes | resize 60 80 | cache memory | resize 7 9",
        IMAGE " fast=yes | center_crop 20 | normalize unit | cache memory | layout chw",
    };
    for (size_t i = 0; i < BRIM__COUNT(chains); i++) {
        char text[TEXT_BYTES];
        compare(format_text(text, "callback @data | %s", chains[i]));
    }
}

static void test_refusals(void **state) {
    (void)state;
    static const struct {
        const char *stages, *part;
    } refused[] = {
        { IMAGE " fast=yes | cache memory | resize 8 8", "fast=yes" },
        { IMAGE " fast=yes | center_crop 30 | cache memory | resize 8 8", "fast=yes" },
        { "decode on=image | cache memory | resize 8 8", "max_pixels=" },
        { IMAGE " | resize 20 antialias=no | cache memory", "differ in size" },
        { IMAGE " | cache memory", "differ in size" },
        { IMAGE " | cache memory | normalize unit on=image", "differ in size" },
        { BOTH " | resize 8 8 | cache memory | color_jitter hue=0.1 on=mask", "is a mask" },
        { "decode mask on=mask " LIMITS " | resize 8 8 | cache memory | color_jitter hue=0.1",
          "decode before" },
    };
    for (size_t i = 0; i < BRIM__COUNT(refused); i++) {
        static struct built built;
        char text[TEXT_BYTES];
        format_text(text, "callback @data | %s", refused[i].stages);
        if (build(&built, text, true) != BRIM_STATUS_INVALID) {
            fail_msg("%s: not refused", text);
        }
        detail_has(refused[i].part, text);
        end(&built);
    }
}

/* What a cache keeps of an image without one size: its sides, and its pixels as decoded. */
static void test_what_is_kept(void **state) {
    (void)state;
    static struct built built, array;
    char text[TEXT_BYTES];
    assert_int_equal(build(&built, "callback @data | " IMAGE " | cache memory | resize 8 8", true),
                     BRIM_OK);
    assert_int_equal(run_one(&built, 2, 0), BRIM_OK);
    const struct kept *kept = &built.rest[0].kept[0];
    const uint32_t width = image[2].width, height = image[2].height;
    uint32_t size[2];
    memcpy(size, kept->data, sizeof size);
    assert_int_equal(size[0], width);
    assert_int_equal(size[1], height);
    assert_int_equal(kept->count, 8 + width * height * 3);
    format_text(text, "callback @data | " IMAGE " | crop %u %u | cache memory", height, width);
    assert_int_equal(build(&array, text, false), BRIM_OK);
    assert_int_equal(run_one(&array, 2, 0), BRIM_OK);
    assert_memory_equal(kept->data + 8, array.made.frame.row[0], width * height * 3);
    end(&array);
    end(&built);
}

/* --------------------------------------------------------- whole pipelines */

static uint64_t digest_of(const char *text, int32_t threads, unsigned epochs) {
    const struct how how = { .threads = threads };
    struct session session;
    struct digest digest = { 0 };
    session_open(&session, text, &how);
    for (unsigned epoch = 0; epoch < epochs; epoch++) {
        take_batches(&session, TO_THE_END, digest_batch, &digest);
    }
    session_close(&session);
    return digest.value;
}

/* Files whose sizes an index knows; the first epoch fills the cache, the others find it full,
 * and so does the whole second run where it is a file. */
static void test_whole_pipelines(void **state) {
    (void)state;
    static const char *const chains[][2] = {
        { "decode", "random_resized_crop 16 | flip | normalize imagenet | layout chw" },
        { "decode | resize 24 max=60", "center_crop 16" },
        { "decode orient=yes", "random_resized_crop 16 24 filter=lanczos | flip vertical" },
        { "decode gray | resize 20 max=80", "random_crop 16 | normalize unit" },
        { "decode rgba", "resize 10 12 | flip" },
        { "decode | copy image second", "random_resized_crop 16 | flip" },
        { "decode | resize 20 20 | copy image second", "rotate 40 | flip" },
    };
    for (size_t i = 0; i < BRIM__COUNT(chains); i++) {
        char text[TEXT_BYTES], file[32];
        const struct path pets = in_directory("pets");
        snprintf(file, sizeof file, "bytes%zu.brimcache", i);
        const struct path kept = in_directory(file);
        const uint64_t expected = digest_of(format_text(text, "folder %s | %s | %s | batch 3",
                                                        pets.text, chains[i][0], chains[i][1]),
                                            0, 3);
        for (int32_t threads = 0; threads < 3; threads += 2) {
            format_text(text, "folder %s | %s | cache memory | %s | batch 3", pets.text,
                        chains[i][0], chains[i][1]);
            if (digest_of(text, threads, 3) != expected) {
                fail_msg("differs: %s", text);
            }
            format_text(text, "folder %s | %s | cache file=%s | %s | batch 3", pets.text,
                        chains[i][0], kept.text, chains[i][1]);
            if (digest_of(text, threads, 3) != expected) {
                fail_msg("differs: %s", text);
            }
        }
    }
}

/* ----------------------------------------------------------------- hostile */

static uint32_t spoiled_size[2];
static int64_t spoiled_count;

static void spoil_size(uint8_t *data, uint64_t *count) {
    (void)count;
    memcpy(data, spoiled_size, sizeof spoiled_size);
}
static void spoil_count(uint8_t *data, uint64_t *count) {
    (void)data;
    *count = spoiled_count < 0 ? *count + (uint64_t)spoiled_count : (uint64_t)spoiled_count;
}

static void test_hostile_bytes(void **state) {
    (void)state;
    static struct built built;
    assert_int_equal(
        build(&built, "callback @data | " IMAGE " | cache memory | center_crop 8 pad=yes", true),
        BRIM_OK);
    const uint32_t width = image[0].width, height = image[0].height;
    const uint32_t sizes[][2] = {
        { 0, 0 },
        { 0, height },
        { width, 0 },
        { width + 1, height },
        { width, height - 1 },
        { height, width - 1 },
        { UINT32_MAX, UINT32_MAX },
        { 65536, 65536 },      /* 0 pixels in 32 bits */
        { UINT32_MAX, 1 },     /* wider than any */
        { 0x80000000u, 2 },    /* 0 in 32 bits, too */
        { 1, width * height }, /* as many pixels: it may be so, see below */
        { width * height * 3, 1 },
    };
    spoil = spoil_size;
    for (size_t i = 0; i < BRIM__COUNT(sizes); i++) {
        memcpy(spoiled_size, sizes[i], sizeof spoiled_size);
        const bool may_be = sizes[i][0] == 1;
        assert_int_equal(run_one(&built, 0, 0), may_be ? BRIM_OK : BRIM_STATUS_CORRUPT);
        if (!may_be) {
            detail_has("cache", "sizes");
        }
    }
    spoil = spoil_count;
    static const int64_t counts[] = { 0, 1, 7, 8, 9, -1, -3, -1000 };
    for (size_t i = 0; i < BRIM__COUNT(counts); i++) {
        spoiled_count = counts[i];
        assert_int_equal(run_one(&built, 0, 0), BRIM_STATUS_CORRUPT);
        detail_has("cache", "counts");
    }
    spoil = NULL;
    assert_int_equal(run_one(&built, 0, 0), BRIM_OK); /* the next one is well again */
    end(&built);
}

/* Bytes that agree with themselves, but not with what was planned. */
static void test_bounds(void **state) {
    (void)state;
    const struct brim__picture_source source = { .from_bytes = true,
                                                 .keeper = "cache",
                                                 .max_width = 20,
                                                 .max_height = 10,
                                                 .max_pixels = 100,
                                                 .channels = 3 };
    static const struct {
        uint32_t width, height;
        brim_status expected;
    } cases[] = {
        { 10, 10, BRIM_OK },
        { 20, 5, BRIM_OK },
        { 1, 1, BRIM_OK },
        { 21, 4, BRIM_STATUS_CORRUPT },
        { 9, 11, BRIM_STATUS_CORRUPT },
        { 20, 6, BRIM_STATUS_CORRUPT },
        { 100, 1, BRIM_STATUS_CORRUPT },
        { 0, 5, BRIM_STATUS_CORRUPT },
        { 5, 0, BRIM_STATUS_CORRUPT },
    };
    for (size_t i = 0; i < BRIM__COUNT(cases); i++) {
        static uint8_t data[8 + 3 * 200];
        const uint32_t size[2] = { cases[i].width, cases[i].height };
        const uint64_t count = 8 + (uint64_t)size[0] * size[1] * 3;
        const struct brim__span span = { data, count };
        uint32_t width = 0, height = 0;
        const uint8_t *pixels = NULL;
        memcpy(data, size, sizeof size);
        assert_true(count <= sizeof data);
        assert_int_equal(brim__picture_bytes_read(&source, &span, &width, &height, &pixels),
                         cases[i].expected);
        if (cases[i].expected == BRIM_OK) {
            assert_true(width == size[0] && height == size[1] && pixels == data + 8);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_images_of_any_size), cmocka_unit_test(test_images_of_one_size),
        cmocka_unit_test(test_masks_and_boxes),    cmocka_unit_test(test_fast),
        cmocka_unit_test(test_refusals),           cmocka_unit_test(test_what_is_kept),
        cmocka_unit_test(test_hostile_bytes),      cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_whole_pipelines),
    };
    return cmocka_run_group_tests_name("picture_bytes", tests, make_images, end_tests);
}

/*
 * test_mixup.c: mixup and cutmix, and with them stages that act on whole batches.
 *
 * Each pipeline runs twice, with and without its last stages. What the plain run
 * delivers is mixed here, the slow way and with a second batch to write to, by the
 * lambda and the box that the documentation promises for that batch; the other run
 * must have delivered the same bytes.
 */
#include "support/support.h"

#include "base/base.h"
#include "batching/beta.h"
#include "order/philox.h"
#include "tensor/tensor.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- the data
 *
 * A pixel never has the same value in two samples, and every sample is a class of
 * its own: what was taken from where can be told from the result. */

#define SAMPLES  60
#define HEIGHT   30
#define WIDTH    26
#define CHANNELS 3
#define ELEMENTS (HEIGHT * WIDTH * CHANNELS) /* as float32 more than a block */

static int read_sample(void *user, const brim_call *call, brim_value *outputs, size_t count,
                       char *why, size_t why_bytes) {
    (void)count;
    if (user != NULL && call->sample % 7 == 3) {
        snprintf(why, why_bytes, "bad on purpose");
        return -1;
    }
    uint8_t *image = outputs[0].data;
    for (uint64_t e = 0; e < ELEMENTS; e++) {
        image[e] = (uint8_t)((call->sample * 7 + e * 3) % 251);
    }
    int32_t *mask = outputs[1].data;
    for (uint64_t e = 0; e < HEIGHT * WIDTH; e++) {
        mask[e] = (int32_t)(call->sample * 10000 + e);
    }
    *(int64_t *)outputs[2].data = (int64_t)call->sample;
    return 0;
}

static uint64_t stream_at;

static int pull_sample(void *user, brim_value *outputs, size_t count, char *why, size_t why_bytes) {
    const brim_call call = { .sample = stream_at };
    return stream_at == SAMPLES
               ? 0
               : (stream_at++,
                  read_sample(user, &call, outputs, count, why, why_bytes) == 0 ? 1 : -1);
}

static int reopen_stream(void *user, uint64_t epoch, uint64_t sample, char *why, size_t why_bytes) {
    (void)user, (void)epoch, (void)why, (void)why_bytes;
    stream_at = sample;
    return 0;
}

static int read_ragged(void *user, const brim_call *call, brim_value *outputs, size_t count,
                       char *why, size_t why_bytes) {
    (void)user, (void)count, (void)why, (void)why_bytes;
    outputs[0].shape[0] = (int64_t)(call->sample % 5 + 1);
    memset(outputs[0].data, (int)call->sample, (size_t)outputs[0].shape[0]);
    float *x = outputs[1].data;
    x[0] = (float)call->sample;
    x[1] = (float)-(double)call->sample;
    memset(outputs[2].data, 0, SAMPLES * sizeof(double));
    ((double *)outputs[2].data)[call->sample] = 1;
    return 0;
}

#define FIELD .size = sizeof(brim_field_spec)
static const brim_field_spec image_fields[] = {
    { FIELD, .name = "image", .dtype = BRIM_DTYPE_U8, .rank = 3,
      .shape = { HEIGHT, WIDTH, CHANNELS } },
    { FIELD, .name = "mask", .dtype = BRIM_DTYPE_I32, .rank = 2, .shape = { HEIGHT, WIDTH } },
    { FIELD, .name = "label", .dtype = BRIM_DTYPE_I64 },
};
static const brim_field_spec ragged_fields[] = {
    { FIELD, .name = "tokens", .dtype = BRIM_DTYPE_U8, .rank = 1, .shape = { 5 },
      .form = BRIM_FORM_RAGGED },
    { FIELD, .name = "x", .dtype = BRIM_DTYPE_F32, .rank = 1, .shape = { 2 } },
    { FIELD, .name = "label", .dtype = BRIM_DTYPE_F64, .rank = 1, .shape = { SAMPLES } },
};
static int marker;

#define BINDING .size = sizeof(brim_binding), .field_count = 3
static const brim_binding bindings[] = {
    { BINDING, .name = "data", .kind = BRIM_BINDING_SOURCE, .count = SAMPLES,
      .flags = BRIM_CALLBACK_PURE | BRIM_CALLBACK_CONCURRENT, .fields = image_fields,
      .read = read_sample },
    { BINDING, .name = "bad", .kind = BRIM_BINDING_SOURCE, .count = SAMPLES,
      .flags = BRIM_CALLBACK_PURE | BRIM_CALLBACK_CONCURRENT, .fields = image_fields,
      .user = &marker, .read = read_sample },
    { BINDING, .name = "events", .kind = BRIM_BINDING_STREAM, .fields = image_fields,
      .pull = pull_sample, .reopen = reopen_stream },
    { BINDING, .name = "ragged", .kind = BRIM_BINDING_SOURCE, .count = SAMPLES,
      .flags = BRIM_CALLBACK_PURE | BRIM_CALLBACK_CONCURRENT, .fields = ragged_fields,
      .read = read_ragged },
};

#define HOT    " | one_hot 60 dtype=float64"
#define PLENTY .bindings = bindings, .binding_count = BRIM__COUNT(bindings)
static const struct how plain_how = { PLENTY };

/* --------------------------------------------------------------- the model */

/* A stage behind batch, and what its arguments say. */
struct mix {
    bool cut;
    double alpha, p;
    uint64_t seed;
    const char *on[2]; /* what is not NULL */
    const char *label;
    bool planes; /* of rank 3: channels first */
};

/* A field of a batch: all rows, one behind the other. */
struct rows {
    brim_field field;
    uint64_t row_bytes, bytes;
    uint8_t *data;
};

static struct rows copy_rows(const brim_field *field) {
    struct rows rows = { .field = *field };
    assert_int_equal(field->form, BRIM_FORM_DENSE);
    rows.row_bytes = (uint64_t)field->strides[0];
    rows.bytes = rows.row_bytes * (uint64_t)field->shape[0];
    rows.data = malloc(rows.bytes + 1);
    assert_non_null(rows.data);
    memcpy(rows.data, field->data, rows.bytes);
    return rows;
}

/* One element, mixed with the one of the row before. */
static void mix_element(brim_dtype dtype, const uint8_t *own, const uint8_t *before, uint8_t *to,
                        double lambda) {
    const float a = (float)lambda, b = (float)(1 - lambda);
    uint16_t own_bits, before_bits, bits;
    float x, y;
    double p, q;
    switch (dtype) {
    case BRIM_DTYPE_U8:
        *to = (uint8_t)nearbyintf((float)*own * a + (float)*before * b);
        return;
    case BRIM_DTYPE_F16:
    case BRIM_DTYPE_BF16:
        memcpy(&own_bits, own, 2);
        memcpy(&before_bits, before, 2);
        bits = dtype == BRIM_DTYPE_F16 ? brim__f32_to_f16(brim__f16_to_f32(own_bits) * a +
                                                          brim__f16_to_f32(before_bits) * b)
                                       : brim__f32_to_bf16(brim__bf16_to_f32(own_bits) * a +
                                                           brim__bf16_to_f32(before_bits) * b);
        memcpy(to, &bits, 2);
        return;
    case BRIM_DTYPE_F32:
        memcpy(&x, own, 4);
        memcpy(&y, before, 4);
        x = x * a + y * b;
        memcpy(to, &x, 4);
        return;
    default:
        assert_int_equal(dtype, BRIM_DTYPE_F64);
        memcpy(&p, own, 8);
        memcpy(&q, before, 8);
        p = p * lambda + q * (1 - lambda);
        memcpy(to, &p, 8);
    }
}

static uint64_t row_before(uint64_t row, uint64_t rows) {
    return row == 0 ? rows - 1 : row - 1;
}

static void model_mix(struct rows *rows, uint64_t valid, double lambda) {
    const uint64_t element = brim_dtype_bytes(rows->field.dtype);
    uint8_t *mixed = malloc(rows->bytes + 1);
    assert_non_null(mixed);
    memcpy(mixed, rows->data, rows->bytes);
    for (uint64_t r = 0; r < valid; r++) {
        for (uint64_t at = 0; at < rows->row_bytes; at += element) {
            mix_element(rows->field.dtype, rows->data + r * rows->row_bytes + at,
                        rows->data + row_before(r, valid) * rows->row_bytes + at,
                        mixed + r * rows->row_bytes + at, lambda);
        }
    }
    free(rows->data);
    rows->data = mixed;
}

struct box {
    int64_t top, bottom, left, right;
};

static void model_cut(struct rows *rows, uint64_t valid, bool planes, const struct box *box) {
    const brim_field *field = &rows->field;
    const uint64_t element = brim_dtype_bytes(field->dtype);
    uint8_t *cut = malloc(rows->bytes + 1);
    assert_non_null(cut);
    memcpy(cut, rows->data, rows->bytes);
    for (uint64_t r = 0; r < valid; r++) {
        for (uint64_t e = 0; e * element < rows->row_bytes; e++) {
            int64_t rest = (int64_t)e, index[3] = { 0 };
            for (uint32_t d = field->rank - 1; d > 0; d--) {
                index[d - 1] = rest % field->shape[d];
                rest /= field->shape[d];
            }
            const bool first = field->rank == 4 && planes;
            const int64_t y = index[first ? 1 : 0], x = index[first ? 2 : 1];
            if (y >= box->top && y < box->bottom && x >= box->left && x < box->right) {
                memcpy(cut + r * rows->row_bytes + e * element,
                       rows->data + row_before(r, valid) * rows->row_bytes + e * element, element);
            }
        }
    }
    free(rows->data);
    rows->data = cut;
}

/* The box that is promised, and the lambda of what it leaves. */
static struct box model_box(const struct brim__batch_draws *draws, int64_t height, int64_t width,
                            double *lambda) {
    const int64_t x =
        (int64_t)brim__random_below(draws->key, draws->number, draws->epoch, 0, (uint64_t)width);
    const int64_t y =
        (int64_t)brim__random_below(draws->key, draws->number, draws->epoch, 1, (uint64_t)height);
    const double half = 0.5 * sqrt(1 - *lambda);
    const int64_t w = (int64_t)(half * (double)width), h = (int64_t)(half * (double)height);
    const struct box box = { .top = y - h < 0 ? 0 : y - h,
                             .bottom = y + h > height ? height : y + h,
                             .left = x - w < 0 ? 0 : x - w,
                             .right = x + w > width ? width : x + w };
    *lambda = 1 - (double)((box.right - box.left) * (box.bottom - box.top)) /
                      ((double)width * (double)height);
    return box;
}

/* What the draws of a batch are keyed by: place: of the stage among those of
 * batching, `batch` being 0. */
static struct brim__batch_draws draws_of(uint64_t number, uint64_t epoch, uint64_t place,
                                         uint64_t seed) {
    return (struct brim__batch_draws){
        .key = brim__hash_words(brim__hash_words(BRIM_ROOM_BATCHING, place, 0), seed, 0),
        .number = number,
        .epoch = epoch,
    };
}

/* Whether the stage acts on a batch, and its lambda. */
static bool model_lambda(const struct mix *mix, struct brim__batch_draws *draws, double *lambda) {
    if (brim__draw_uniform(draws) >= mix->p) {
        return false;
    }
    *lambda = brim__draw_beta(draws, mix->alpha);
    return true;
}

static struct rows *find_rows(struct rows *fields, size_t count, const char *name) {
    for (size_t f = 0; f < count; f++) {
        if (strcmp(fields[f].field.name, name) == 0) {
            return &fields[f];
        }
    }
    fail_msg("no field %s", name);
    return NULL;
}

static void model_act(const struct mix *mix, struct brim__batch_draws draws, uint64_t valid,
                      struct rows *fields, size_t count) {
    double lambda;
    if (valid < 2 || !model_lambda(mix, &draws, &lambda)) {
        return;
    }
    struct box box = { 0 };
    if (mix->cut) {
        const brim_field *image = &find_rows(fields, count, mix->on[0])->field;
        const uint32_t first = image->rank == 4 && mix->planes ? 2 : 1;
        box = model_box(&draws, image->shape[first], image->shape[first + 1], &lambda);
    }
    for (size_t i = 0; i < BRIM__COUNT(mix->on) && mix->on[i] != NULL; i++) {
        struct rows *rows = find_rows(fields, count, mix->on[i]);
        if (mix->cut) {
            model_cut(rows, valid, mix->planes, &box);
        } else {
            model_mix(rows, valid, lambda);
        }
    }
    model_mix(find_rows(fields, count, mix->label), valid, lambda);
}

/* A pipeline with and without what stands behind its batch. */
struct comparison {
    const char *plain, *stages;
    struct mix mix[2];
    size_t count;
};

static void compare_batch(const struct comparison *comparison, const brim_batch *plain,
                          const brim_batch *mixed) {
    const brim_batch_info *info = brim_batch_get(plain), *other = brim_batch_get(mixed);
    struct rows fields[8];
    assert_info_equal(info, other);
    for (uint32_t f = 0; f < info->field_count; f++) {
        fields[f] = copy_rows(brim_batch_field_at(plain, f));
    }
    for (size_t i = 0; i < comparison->count; i++) {
        const struct mix *mix = &comparison->mix[i];
        model_act(mix, draws_of(info->first_position, info->epoch, i + 1, mix->seed),
                  info->valid_rows, fields, info->field_count);
    }
    for (uint32_t f = 0; f < info->field_count; f++) {
        const brim_field *field = brim_batch_field_at(mixed, f);
        if (memcmp(field->data, fields[f].data, fields[f].bytes) != 0) {
            fail_msg("%s%s: field %s of epoch %llu step %llu differs from the model",
                     comparison->plain, comparison->stages, field->name,
                     (unsigned long long)info->epoch, (unsigned long long)info->step);
        }
        free(fields[f].data);
    }
    for (uint64_t r = 0; r < info->rows; r++) {
        assert_int_equal(info->samples[r], other->samples[r]);
        assert_int_equal(info->valid[r], other->valid[r]);
    }
}

static void compare(const struct comparison *comparison, const struct how *how, unsigned epochs) {
    char text[TEXT_BYTES];
    struct session plain, mixed;
    session_open(&plain, comparison->plain, how);
    session_open(&mixed, format_text(text, "%s%s", comparison->plain, comparison->stages), how);
    uint64_t batches = 0;
    for (unsigned epoch = 0; epoch < epochs;) {
        brim_batch *left, *right;
        const brim_status status = brim_loader_next(plain.loader, BRIM_FOREVER, &left);
        assert_int_equal(brim_loader_next(mixed.loader, BRIM_FOREVER, &right), status);
        if (status == BRIM_STATUS_END) {
            epoch++;
            continue;
        }
        assert_int_equal(status, BRIM_OK);
        compare_batch(comparison, left, right);
        brim_batch_release(left);
        brim_batch_release(right);
        batches++;
    }
    assert_true(batches > epochs);
    session_close(&plain);
    session_close(&mixed);
}

/* ----------------------------------------------------------- against it */

#define MIXUP(a) \
    { .alpha = (a), .p = 1, .on = { "image" }, .label = "label" }
#define CUTMIX(channels_first)                                                \
    {                                                                         \
        .cut = true, .alpha = 1, .p = 1, .on = { "image" }, .label = "label", \
        .planes = (channels_first)                                            \
    }

static void test_mixup(void **state) {
    (void)state;
    static const struct comparison cases[] = {
        { "callback @data | normalize unit" HOT " | batch 8", " | mixup", { MIXUP(0.2) }, 1 },
        { "callback @data | shuffle seed=3" HOT " | batch 8", " | mixup 1", { MIXUP(1) }, 1 },
        { "callback @data | normalize imagenet | cast float16 on=image" HOT " | batch 9",
          " | mixup alpha=0.5",
          { MIXUP(0.5) },
          1 },
        { "callback @data | normalize imagenet | layout chw | cast bfloat16 on=image" HOT
          " | batch 9",
          " | mixup alpha=4",
          { MIXUP(4) },
          1 },
        { "callback @data | cast float64 on=image,mask | one_hot 60 dtype=float16 | batch 8",
          " | mixup 1 on=image,mask labels=label",
          { { .alpha = 1, .p = 1, .on = { "image", "mask" }, .label = "label" } },
          1 },
        /* any floats are mixed; labels may be quantities */
        { "callback @ragged | pad on=tokens to=5 | reshape 1 2 on=x | batch 8",
          " | mixup 1 on=label labels=x",
          { { .alpha = 1, .p = 1, .on = { "label" }, .label = "x" } },
          1 },
        { "callback @data" HOT " | batch 8",
          " | mixup 1 p=0.5 seed=9",
          { { .alpha = 1, .p = 0.5, .seed = 9, .on = { "image" }, .label = "label" } },
          1 },
    };
    for (size_t c = 0; c < BRIM__COUNT(cases); c++) {
        compare(&cases[c], &plain_how, 2);
    }
}

static void test_cutmix(void **state) {
    (void)state;
    static const struct comparison cases[] = {
        { "callback @data" HOT " | batch 8", " | cutmix", { CUTMIX(false) }, 1 },
        { "callback @data | layout chw" HOT " | batch 8", " | cutmix", { CUTMIX(true) }, 1 },
        { "callback @data | normalize unit" HOT " | batch 8",
          " | cutmix on=mask,image",
          { { .cut = true, .alpha = 1, .p = 1, .on = { "mask", "image" }, .label = "label" } },
          1 },
        /* 3 and 4 channels at once: only told can it be known */
        { "callback @data | reshape 3 195 4" HOT " | batch 8",
          " | cutmix layout=hwc",
          { CUTMIX(false) },
          1 },
        { "callback @data | reshape 3 195 4" HOT " | batch 8",
          " | cutmix layout=chw",
          { CUTMIX(true) },
          1 },
        /* lines longer than a block */
        { "callback @data | cast float64 on=image | reshape 2 1170" HOT " | batch 8",
          " | cutmix 0.3",
          { { .cut = true, .alpha = 0.3, .p = 1, .on = { "image" }, .label = "label" } },
          1 },
    };
    for (size_t c = 0; c < BRIM__COUNT(cases); c++) {
        compare(&cases[c], &plain_how, 2);
    }
}

/* Some batches by both, some by one, some by none. */
static void test_both_in_order(void **state) {
    (void)state;
    static const struct comparison both = {
        "callback @data" HOT " | batch 4",
        " | cutmix p=0.5 | mixup 1 p=0.5",
        { { .cut = true, .alpha = 1, .p = 0.5, .on = { "image" }, .label = "label" },
          { .alpha = 1, .p = 0.5, .on = { "image" }, .label = "label" } },
        2,
    };
    compare(&both, &plain_how, 3);
}

/* Bad rows are closed up before, padded ones are left alone, a last batch is shorter,
 * batches may come in pieces or one after the other: what is delivered is mixed. */
static void test_what_is_delivered(void **state) {
    (void)state;
    static const char *const plain[] = {
        "callback @bad" HOT " | batch 8 on_error=skip",
        "callback @bad" HOT " | batch 8 on_error=skip remainder=pad",
        "callback @bad" HOT " | batch 8 on_error=replace",
        "callback @data | take 57" HOT " | batch 8 remainder=pad",
        "callback @data | take 57" HOT " | batch 8 remainder=keep",
        "callback @data | take 57" HOT " | batch 28 remainder=pad micro=5",
        "callback @data | filter \"label != 5\"" HOT " | batch 8",
        "callback @data | filter \"label != 5\"" HOT " | batch 8 remainder=pad",
        "callback @data | filter \"label != 5\"" HOT " | batch 8 micro=3",
        "callback @data | filter \"label != 5\" | shuffle buffer=200KiB seed=2" HOT " | batch 8",
        "callback @bad | filter \"label != 5\"" HOT " | batch 8 on_error=skip",
    };
    for (size_t i = 0; i < BRIM__COUNT(plain); i++) {
        const struct comparison mixup = { plain[i], " | mixup", { MIXUP(0.2) }, 1 };
        const struct comparison cutmix = { plain[i], " | cutmix", { CUTMIX(false) }, 1 };
        compare(&mixup, &plain_how, 2);
        compare(&cutmix, &plain_how, 1);
    }
}

/* Each rank mixes its own rows, by a lambda of its own. */
static void test_ranks(void **state) {
    (void)state;
    static const char *const plain[] = {
        "callback @data" HOT " | batch 8",
        "callback @data" HOT " | batch 9 per=global micro=2 remainder=pad",
        "callback @data | filter \"label != 5\"" HOT " | batch 6",
    };
    for (size_t i = 0; i < BRIM__COUNT(plain); i++) {
        const struct comparison mixup = { plain[i], " | mixup", { MIXUP(0.2) }, 1 };
        for (uint32_t rank = 0; rank < 2; rank++) {
            const struct how how = { .rank = rank, .world = 2, PLENTY };
            compare(&mixup, &how, 1);
        }
    }
}

/* Behind bucket a batch is numbered by its place among those of all ranks. */
static void test_buckets(void **state) {
    (void)state;
    static const char text[] =
        "callback @ragged | pad on=tokens | bucket 20 rows=8 | mixup 1 on=x labels=label";
    static const struct mix mix = { .alpha = 1, .p = 1 };
    for (uint32_t rank = 0; rank < 2; rank++) {
        const struct how how = { .rank = rank, .world = 2, PLENTY };
        struct session session;
        unsigned mixed = 0;
        session_open(&session, text, &how);
        for (uint64_t b = 0; b < 6; b++) {
            brim_batch *batch = take_batch(&session);
            const brim_batch_info *info = brim_batch_get(batch);
            struct brim__batch_draws draws = draws_of(info->step * 2 + rank, info->epoch, 1, 0);
            double lambda = 0;
            assert_true(model_lambda(&mix, &draws, &lambda));
            const double *label = brim_batch_find(batch, "label")->data;
            const float *x = brim_batch_find(batch, "x")->data;
            for (uint64_t r = 0; info->rows >= 2 && r < info->rows; r++, mixed++) {
                const uint64_t own = info->samples[r],
                               before = info->samples[row_before(r, info->rows)];
                assert_true(label[r * SAMPLES + own] == lambda);
                assert_true(label[r * SAMPLES + before] == 1 - lambda);
                assert_true(x[2 * r] ==
                            (float)own * (float)lambda + (float)before * (float)(1 - lambda));
            }
            brim_batch_release(batch);
        }
        assert_true(mixed > 10);
        session_close(&session);
    }
}

/* ------------------------------------------------- the same in every way */

static struct digest digest_of(const char *text, const struct how *how) {
    struct session session;
    struct digest digest = { 0 };
    session_open(&session, text, how);
    assert_true(take_batches(&session, TO_THE_END, digest_batch, &digest));
    assert_true(take_batches(&session, TO_THE_END, digest_batch, &digest));
    session_close(&session);
    return digest;
}

/* Two epochs, all but the first `step` batches of them by a loader that goes on from a
 * state. */
static struct digest digest_resumed(const char *text, uint64_t step, const struct how *how) {
    struct session session;
    struct digest digest = { 0 };
    session_open(&session, text, how);
    take_batches(&session, step, digest_batch, &digest);
    const brim_state kept = session_state(&session);
    session_close(&session);
    session_open(&session, text, how);
    session_restore(&session, &kept);
    assert_true(take_batches(&session, TO_THE_END, digest_batch, &digest));
    assert_true(take_batches(&session, TO_THE_END, digest_batch, &digest));
    session_close(&session);
    return digest;
}

static const char *const every_way[] = {
    "callback @data | shuffle seed=1 | normalize unit" HOT
    " | batch 8 | mixup p=0.8 | cutmix p=0.5",
    "callback @bad | shuffle seed=1" HOT " | batch 10 micro=4 on_error=skip remainder=pad | mixup",
    "callback @data | filter \"label != 5\" | cast float16 on=image" HOT
    " | batch 8 micro=3 | mixup | cutmix",
    "callback @data | filter \"label >= 5\" | shuffle buffer=200KiB" HOT " | batch 7 | cutmix",
    "callback @ragged | pad on=tokens | bucket 20 rows=8 | mixup on=x labels=label",
};

static void test_threads_and_memory(void **state) {
    (void)state;
    for (size_t i = 0; i < BRIM__COUNT(every_way); i++) {
        const struct digest wanted = digest_of(every_way[i], &plain_how);
        assert_true(wanted.batches > 4);
        for (int32_t threads = 0; threads <= 2; threads++) {
            const struct how ways[] = {
                { .threads = threads, PLENTY },
                { .threads = threads, .bytes = AT_MINIMUM, PLENTY },
                { .threads = threads, .hold = 3, .growth = BRIM_GROWTH_FIXED, PLENTY },
            };
            for (size_t w = 0; w < BRIM__COUNT(ways); w++) {
                const struct digest got = digest_of(every_way[i], &ways[w]);
                assert_int_equal(got.batches, wanted.batches);
                assert_int_equal(got.value, wanted.value);
            }
        }
    }
}

/* A stream is mixed as the same samples are that have numbers. */
static void test_streams(void **state) {
    (void)state;
    static const char rest[] = HOT " | batch 8 | mixup | cutmix";
    char text[TEXT_BYTES];
    const struct digest wanted =
        digest_of(format_text(text, "callback @data | filter \"label >= 0\"%s", rest), &plain_how);
    for (int32_t threads = 0; threads <= 2; threads++) {
        const struct how how = { .threads = threads, PLENTY };
        stream_at = 0;
        const struct digest got = digest_of(format_text(text, "stream @events%s", rest), &how);
        assert_int_equal(got.batches, wanted.batches);
        assert_int_equal(got.value, wanted.value);
    }
}

static void test_resuming(void **state) {
    (void)state;
    for (size_t i = 0; i < BRIM__COUNT(every_way); i++) {
        const struct digest wanted = digest_of(every_way[i], &plain_how);
        for (uint64_t step = 0; step < 5; step += 1 + (i > 0)) {
            const struct how how = { .threads = (int32_t)(step % 3), PLENTY };
            const struct digest got = digest_resumed(every_way[i], step, &how);
            assert_int_equal(got.batches, wanted.batches);
            assert_int_equal(got.value, wanted.value);
        }
    }
}

/* A sought step is mixed as it would have been, also where the batches before it are
 * made and thrown away. */
static void test_seeking(void **state) {
    (void)state;
    for (size_t i = 0; i < BRIM__COUNT(every_way); i++) {
        struct session session;
        struct digest walked = { 0 }, sought = { 0 };
        session_open(&session, every_way[i], &plain_how);
        assert_int_equal(brim_loader_seek(session.loader, 1, 0), BRIM_OK);
        for (uint64_t step = 0; step < 3;) {
            brim_batch *batch = take_batch(&session);
            step = brim_batch_get(batch)->step;
            if (step == 3) {
                digest_batch(&walked, batch);
            }
            brim_batch_release(batch);
        }
        assert_int_equal(brim_loader_seek(session.loader, 1, 3), BRIM_OK);
        take_batches(&session, 1, digest_batch, &sought);
        assert_int_equal(sought.value, walked.value);
        session_close(&session);
    }
}

/* A state belongs to a run with the same mixing. */
static void test_states_of_other_mixing(void **state) {
    (void)state;
    static const char *const texts[] = {
        "callback @data" HOT " | batch 8",
        "callback @data" HOT " | batch 8 | mixup",
        "callback @data" HOT " | batch 8 | mixup alpha=0.3",
        "callback @data" HOT " | batch 8 | mixup seed=1",
        "callback @data" HOT " | batch 8 | cutmix",
        "callback @data" HOT " | batch 8 | mixup | cutmix",
    };
    for (size_t from = 0; from < BRIM__COUNT(texts); from++) {
        struct session session;
        session_open(&session, texts[from], &plain_how);
        const brim_state kept = session_state(&session);
        session_close(&session);
        for (size_t to = 0; to < BRIM__COUNT(texts); to++) {
            session_open(&session, texts[to], &plain_how);
            assert_int_equal(brim_loader_restore(session.loader, &kept),
                             from == to ? BRIM_OK : BRIM_STATUS_MISMATCH);
            session_close(&session);
        }
    }
}

/* --------------------------------------------------- what mixing is to be */

struct labels {
    uint64_t mixed, rows;
    double least, most;
};

/* Labels are shares: none is negative, together they are one. */
static void look_at_labels(void *user, const brim_batch *batch) {
    struct labels *labels = user;
    const brim_batch_info *info = brim_batch_get(batch);
    const double *label = brim_batch_find(batch, "label")->data;
    for (uint64_t r = 0; r < info->rows; r++) {
        double sum = 0;
        for (uint64_t c = 0; c < SAMPLES; c++) {
            assert_true(label[r * SAMPLES + c] >= 0);
            sum += label[r * SAMPLES + c];
        }
        assert_float_equal(sum, 1, 1e-15);
        const double own = label[r * SAMPLES + info->samples[r]];
        labels->mixed += own < 1;
        labels->rows++;
        labels->least = own < labels->least ? own : labels->least;
        labels->most = own > labels->most ? own : labels->most;
    }
}

static struct labels labels_of(const char *stages, unsigned epochs) {
    char text[TEXT_BYTES];
    struct session session;
    struct labels labels = { .least = 2, .most = -1 };
    session_open(&session,
                 format_text(text, "callback @data | shuffle" HOT " | batch 4 | %s", stages),
                 &plain_how);
    for (unsigned epoch = 0; epoch < epochs; epoch++) {
        assert_true(take_batches(&session, TO_THE_END, look_at_labels, &labels));
    }
    session_close(&session);
    return labels;
}

static void test_labels_and_chances(void **state) {
    (void)state;
    struct labels labels = labels_of("mixup 1", 6);
    assert_int_equal(labels.mixed, labels.rows);
    assert_true(labels.least < 0.2 && labels.most > 0.8);
    labels = labels_of("cutmix", 6);
    assert_true(labels.mixed > labels.rows * 9 / 10);
    labels = labels_of("mixup 1 p=0", 1);
    assert_int_equal(labels.mixed, 0);
    labels = labels_of("mixup 1 p=0.3", 40); /* of 600 batches */
    assert_true(labels.mixed > labels.rows * 24 / 100 && labels.mixed < labels.rows * 36 / 100);
    /* two stages of one kind draw for themselves: half of a half is mixed by neither */
    labels = labels_of("mixup 1 p=0.5 | mixup 1 p=0.5", 40);
    assert_true(labels.mixed > labels.rows * 69 / 100 && labels.mixed < labels.rows * 81 / 100);
}

/* Nothing to mix with: the bytes stay what they are. */
static void test_single_rows(void **state) {
    (void)state;
    static const struct comparison none = {
        "callback @data" HOT " | batch 1", " | mixup | cutmix", { { .p = 0, .alpha = 1 } }, 0
    };
    compare(&none, &plain_how, 1);
}

/* ------------------------------------------------------------ plan, errors */

static void test_plan_and_statistics(void **state) {
    (void)state;
    struct session session;
    session_open(&session,
                 "callback @data" HOT " | batch 8 | mixup on=image | cutmix on=image,mask",
                 &plain_how);
    const brim_plan *plan = brim_loader_plan(session.loader);
    assert_int_equal(brim_plan_get(plan)->stage_count, 5);
    const brim_plan_stage *stage = brim_plan_stage_at(plan, 3);
    assert_string_equal(stage->name, "mixup");
    assert_string_equal(stage->text, "mixup 0.2 on=image p=1 seed=0");
    assert_string_equal(stage->effect, "image uint8 30x26x3, label float64 60");
    assert_int_equal(stage->bytes, 0);
    stage = brim_plan_stage_at(plan, 4);
    assert_string_equal(stage->effect, "image uint8 30x26x3, mask int32 30x26, label float64 60");
    assert_string_equal(brim_plan_stage_at(plan, 2)->effect, "8 batches of 8 rows");
    struct digest digest = { 0 };
    assert_true(take_batches(&session, TO_THE_END, digest_batch, &digest));
    for (size_t i = 3; i < 5; i++) {
        brim_stage_stats stats = BRIM_STAGE_STATS_INIT;
        assert_int_equal(brim_loader_read_stage_stats(session.loader, i, &stats), BRIM_OK);
        assert_true(stats.samples >= SAMPLES && stats.ns > 0);
    }
    session_close(&session);
}

static void test_refusals(void **state) {
    (void)state;
    static const struct {
        const char *text;
        brim_status status;
        const char *part;
    } cases[] = {
        { "callback @data | batch 8 | mixup", BRIM_STATUS_INVALID,
          "labels 'label' are int64, which cannot be mixed: make class numbers vectors before "
          "batch, with `one_hot N on=label`" },
        { "callback @data | cast float32 | batch 8 | mixup", BRIM_STATUS_INVALID,
          "labels 'label' are single numbers" },
        { "callback @data" HOT " | batch 8 | mixup on=mask", BRIM_STATUS_INVALID,
          "field 'mask' is int32, but only floats and uint8 are mixed: put `cast float32 "
          "on=mask`" },
        { "callback @data" HOT " | batch 8 | mixup on=imge", BRIM_STATUS_INVALID,
          "no field 'imge'; did you mean 'image'?; a batch's fields here are: image, mask, label" },
        { "callback @data" HOT " | batch 8 | mixup labels=x", BRIM_STATUS_INVALID, "no field 'x'" },
        { "callback @data" HOT " | batch 8 | mixup on=image,label", BRIM_STATUS_INVALID,
          "field 'label' cannot be both the mixed field and its labels" },
        { "callback @data" HOT " | batch 8 | mixup alpha=0", BRIM_STATUS_SYNTAX, "alpha must be" },
        { "callback @data" HOT " | batch 8 | mixup alpha=1001", BRIM_STATUS_SYNTAX,
          "alpha must be" },
        { "callback @data" HOT " | batch 8 | mixup alpha=nan", BRIM_STATUS_SYNTAX,
          "alpha must be" },
        { "callback @data" HOT " | batch 8 | mixup p=1.5", BRIM_STATUS_SYNTAX, "p must be" },
        { "callback @data" HOT " | batch 8 | cutmix layout=cwh", BRIM_STATUS_SYNTAX,
          "layout must be" },
        { "callback @data | reshape 3 195 4" HOT " | batch 8 | cutmix", BRIM_STATUS_INVALID,
          "could be first or last: give layout=chw or layout=hwc" },
        { "callback @data | reshape 45 26 2" HOT " | batch 8 | cutmix", BRIM_STATUS_INVALID,
          "could be neither first nor last" },
        { "callback @data | reshape 2340" HOT " | batch 8 | cutmix", BRIM_STATUS_INVALID,
          "field 'image' is 2340, but an image has height and width" },
        { "callback @data | reshape 26 30 3" HOT " | batch 8 | cutmix on=image,mask",
          BRIM_STATUS_INVALID,
          "field 'mask' has 30x26 pixels, but the one before it in on= 26x30" },
        { "callback @ragged | batch 8 | mixup on=tokens", BRIM_STATUS_INVALID,
          "field 'tokens' differs in length" },
        { "callback @ragged | pad on=tokens | batch 8 | mixup on=tokens labels=label",
          BRIM_STATUS_INVALID, "field 'tokens' differs in length" },
        { "callback @data" HOT " | mixup | batch 8", BRIM_STATUS_SYNTAX,
          "'mixup' acts on whole batches: put it after batch" },
        { "callback @data" HOT " | cutmix", BRIM_STATUS_SYNTAX, "put it after batch" },
        { "mixup", BRIM_STATUS_SYNTAX, "a pipeline begins with a source" },
        { "mix 1 (callback @data" HOT " | mixup) | batch 8", BRIM_STATUS_SYNTAX,
          "'mixup' cannot be inside parentheses" },
        { "callback @data" HOT " | batch 8 | mixup | shuffle", BRIM_STATUS_SYNTAX,
          "'shuffle' comes after 'batch'" },
        { "callback @data" HOT " | batch 8 | mixup | batch 8", BRIM_STATUS_SYNTAX,
          "'batch' comes after 'batch'" },
        { "callback @data" HOT " | batch 8 | mixup | mixup | mixup | mixup | mixup | mixup | mixup "
          "| mixup | mixup",
          BRIM_STATUS_UNSUPPORTED, "more than 8 stages after 'batch'" },
    };
    for (size_t c = 0; c < BRIM__COUNT(cases); c++) {
        expect_refused(cases[c].text, &plain_how, cases[c].status, cases[c].part);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mixup),
        cmocka_unit_test(test_cutmix),
        cmocka_unit_test(test_both_in_order),
        cmocka_unit_test(test_what_is_delivered),
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_buckets),
        cmocka_unit_test(test_threads_and_memory),
        cmocka_unit_test(test_streams),
        cmocka_unit_test(test_resuming),
        cmocka_unit_test(test_seeking),
        cmocka_unit_test(test_states_of_other_mixing),
        cmocka_unit_test(test_labels_and_chances),
        cmocka_unit_test(test_single_rows),
        cmocka_unit_test(test_plan_and_statistics),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, begin_tests, end_tests);
}

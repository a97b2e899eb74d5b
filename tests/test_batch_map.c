/*
 * test_batch_map.c: functions of the caller on whole batches.
 *
 * Each pipeline runs twice, with and without its last stage. What that stage must
 * have made of each batch follows from the plain batch, and is computed here, row by
 * row. Its numbers depend on how many rows the function was shown, on the batch's
 * number and on the stage's random key, so that a function that sees the wrong rows or
 * runs twice on the same memory is found out.
 */
#include "support/support.h"

#include "base/base.h"
#include "order/philox.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---------------------------------------------------------------- the data */

#define SAMPLES 50

static int read_sample(void *user, const brim_call *call, brim_value *outputs, size_t count,
                       char *why, size_t why_bytes) {
    (void)count;
    if (user != NULL && call->sample % 7 == 3) {
        snprintf(why, why_bytes, "bad on purpose");
        return -1;
    }
    float *x = outputs[0].data;
    for (uint64_t e = 0; e < 3; e++) {
        x[e] = (float)(call->sample * 10 + e);
    }
    *(int64_t *)outputs[1].data = (int64_t)call->sample;
    return 0;
}

static int read_ragged(void *user, const brim_call *call, brim_value *outputs, size_t count,
                       char *why, size_t why_bytes) {
    outputs[2].shape[0] = (int64_t)(call->sample % 5);
    memset(outputs[2].data, (int)call->sample, (size_t)outputs[2].shape[0]);
    return read_sample(user, call, outputs, count, why, why_bytes);
}

static uint64_t stream_at;

static int pull_sample(void *user, brim_value *outputs, size_t count, char *why, size_t why_bytes) {
    const brim_call call = { .sample = stream_at };
    return stream_at == SAMPLES
               ? 0
               : (stream_at++, read_sample(user, &call, outputs, count, why, why_bytes) == 0) * 2 -
                     1;
}

static int reopen_stream(void *user, uint64_t epoch, uint64_t sample, char *why, size_t why_bytes) {
    (void)user, (void)epoch, (void)why, (void)why_bytes;
    stream_at = sample;
    return 0;
}

/* ----------------------------------------------------------- the functions */

/* Which batch fails, and how often yet; and how functions were called. */
static atomic_uint_least64_t failing_number;
static atomic_int failures_left, calls, inside, overlaps;

static int must_fail(const brim_call *call, char *why, size_t why_bytes) {
    atomic_fetch_add(&calls, 1);
    if (call->sample == atomic_load(&failing_number) && atomic_load(&failures_left) > 0) {
        atomic_fetch_sub(&failures_left, 1);
        snprintf(why, why_bytes, "on purpose");
        return 7;
    }
    return 0;
}

/* A brim_value is what the header promises of a batch's field. */
static uint64_t check_value(const brim_value *value) {
    uint64_t bytes = brim_dtype_bytes(value->dtype);
    for (uint32_t i = 0; i < value->rank; i++) {
        bytes *= (uint64_t)value->shape[i];
    }
    assert_true(value->rank >= 1);
    assert_int_equal(value->form, BRIM_FORM_DENSE);
    assert_int_equal(value->bytes, bytes);
    assert_int_equal((uintptr_t)value->data % 64, 0);
    return (uint64_t)value->shape[0];
}

/* In place: label += 100 x rows + a random number below 8; x[0] += the batch's number. */
static int change(void *user, const brim_call *call, brim_value *inputs, size_t input_count,
                  brim_value *outputs, size_t output_count, char *why, size_t why_bytes) {
    (void)user, (void)outputs;
    assert_int_equal(call->size, sizeof *call);
    assert_in_range(input_count, 2, 3); /* pad adds lengths */
    assert_int_equal(output_count, 0);
    assert_string_equal(inputs[0].name, "x");
    assert_string_equal(inputs[1].name, "label");
    const uint64_t rows = check_value(&inputs[0]);
    assert_int_equal(check_value(&inputs[1]), rows);
    float *x = inputs[0].data;
    int64_t *label = inputs[1].data;
    for (uint64_t r = 0; r < rows; r++) {
        x[r * 3] += (float)call->sample;
        label[r] += (int64_t)(100 * rows + brim_call_random(call, 0) % 8);
    }
    return must_fail(call, why, why_bytes);
}

/* Other fields: sum float64, pair uint8 2x2. */
static int collate(void *user, const brim_call *call, brim_value *inputs, size_t input_count,
                   brim_value *outputs, size_t output_count, char *why, size_t why_bytes) {
    (void)user;
    assert_int_equal(input_count, 2);
    assert_int_equal(output_count, 2);
    const uint64_t rows = check_value(&inputs[0]);
    assert_int_equal(check_value(&outputs[0]), rows);
    assert_int_equal(check_value(&outputs[1]), rows);
    assert_string_equal(outputs[0].name, "sum");
    assert_int_equal(outputs[1].rank, 3);
    const float *x = inputs[0].data;
    const int64_t *label = inputs[1].data;
    double *sum = outputs[0].data;
    uint8_t *pair = outputs[1].data;
    for (uint64_t r = 0; r < rows; r++) {
        sum[r] = (double)x[r * 3] + (double)x[r * 3 + 1] + (double)x[r * 3 + 2] + (double)rows;
        for (uint64_t e = 0; e < 4; e++) {
            pair[r * 4 + e] = (uint8_t)(label[r] + (int64_t)e);
        }
        memset(&((float *)inputs[0].data)[r * 3], 0xff, 12); /* the inputs are the function's */
    }
    return must_fail(call, why, why_bytes);
}

/* Of what collate has made: y float32 2 = (sum, the first of pair), hot float32 2. */
static int again(void *user, const brim_call *call, brim_value *inputs, size_t input_count,
                 brim_value *outputs, size_t output_count, char *why, size_t why_bytes) {
    (void)user, (void)call, (void)output_count, (void)why, (void)why_bytes;
    assert_int_equal(input_count, 2);
    assert_string_equal(inputs[0].name, "sum");
    const uint64_t rows = check_value(&inputs[1]);
    for (uint64_t r = 0; r < rows; r++) {
        float *y = (float *)outputs[0].data + 2 * r, *hot = (float *)outputs[1].data + 2 * r;
        y[0] = (float)((const double *)inputs[0].data)[r];
        y[1] = (float)((const uint8_t *)inputs[1].data)[4 * r];
        hot[0] = (float)(r % 2);
        hot[1] = 1 - hot[0];
    }
    return 0;
}

static int watch(void *user, const brim_call *call, brim_value *inputs, size_t input_count,
                 brim_value *outputs, size_t output_count, char *why, size_t why_bytes) {
    (void)user, (void)call, (void)inputs, (void)input_count, (void)outputs, (void)output_count;
    (void)why, (void)why_bytes;
    if (atomic_fetch_add(&inside, 1) > 0) {
        atomic_fetch_add(&overlaps, 1);
    }
    usleep(50);
    atomic_fetch_sub(&inside, 1);
    atomic_fetch_add(&calls, 1);
    return 0;
}

/* All values lie in the pages that the call says. */
static int locate(void *user, const brim_call *call, brim_value *inputs, size_t input_count,
                  brim_value *outputs, size_t output_count, char *why, size_t why_bytes) {
    const uint8_t *begin = call->batch.memory;
    assert_null(call->scratch.memory);
    assert_non_null(begin);
    assert_true(call->batch.file >= 0);
    for (size_t i = 0; i < input_count + output_count; i++) {
        const brim_value *value = i < input_count ? &inputs[i] : &outputs[i - input_count];
        const uint8_t *data = value->data;
        assert_true(data >= begin && data + value->bytes <= begin + call->batch.bytes);
    }
    atomic_fetch_add(&calls, 1);
    return collate(user, call, inputs, input_count, outputs, output_count, why, why_bytes);
}

static int never(void *user, const brim_call *call, const brim_value *inputs, size_t input_count,
                 brim_value *outputs, size_t output_count, char *why, size_t why_bytes) {
    (void)user, (void)call, (void)inputs, (void)input_count, (void)outputs, (void)output_count;
    (void)why, (void)why_bytes;
    return 1;
}

static int never_of_many(void *user, const brim_call *call, uint64_t index,
                         const brim_value *inputs, size_t input_count, brim_value *outputs,
                         size_t output_count, char *why, size_t why_bytes) {
    (void)index;
    return -never(user, call, inputs, input_count, outputs, output_count, why, why_bytes);
}

#define FIELD .size = sizeof(brim_field_spec)
static const brim_field_spec sample_fields[] = {
    { FIELD, .name = "x", .dtype = BRIM_DTYPE_F32, .rank = 1, .shape = { 3 } },
    { FIELD, .name = "label", .dtype = BRIM_DTYPE_I64 },
    { FIELD, .name = "tokens", .dtype = BRIM_DTYPE_U8, .rank = 1, .shape = { 5 },
      .form = BRIM_FORM_RAGGED },
};
static const brim_field_spec collated[] = {
    { FIELD, .name = "sum", .dtype = BRIM_DTYPE_F64 },
    { FIELD, .name = "pair", .dtype = BRIM_DTYPE_U8, .rank = 2, .shape = { 2, 2 } },
};
static const brim_field_spec made_again[] = {
    { FIELD, .name = "y", .dtype = BRIM_DTYPE_F32, .rank = 1, .shape = { 2 } },
    { FIELD, .name = "hot", .dtype = BRIM_DTYPE_F32, .rank = 1, .shape = { 2 } },
};
static const brim_field_spec twins[] = {
    { FIELD, .name = "a", .dtype = BRIM_DTYPE_F32 },
    { FIELD, .name = "a", .dtype = BRIM_DTYPE_F32 },
};
static const brim_field_spec huge[] = {
    { FIELD, .name = "huge", .dtype = BRIM_DTYPE_F32, .rank = 1, .shape = { (int64_t)1 << 52 } },
};
static int marker;

#define BINDING .size = sizeof(brim_binding)
#define SOURCE                                              \
    BINDING, .kind = BRIM_BINDING_SOURCE, .count = SAMPLES, \
             .flags = BRIM_CALLBACK_PURE | BRIM_CALLBACK_CONCURRENT
#define FUNCTION BINDING, .kind = BRIM_BINDING_BATCH_MAP
#define PURE     .flags = BRIM_CALLBACK_PURE | BRIM_CALLBACK_CONCURRENT
static const brim_binding bindings[] = {
    { SOURCE, .name = "data", .fields = sample_fields, .field_count = 2, .read = read_sample },
    { SOURCE, .name = "bad", .fields = sample_fields, .field_count = 2, .user = &marker,
      .read = read_sample },
    { SOURCE, .name = "ragged", .fields = sample_fields, .field_count = 3, .read = read_ragged },
    { BINDING, .name = "events", .kind = BRIM_BINDING_STREAM, .fields = sample_fields,
      .field_count = 2, .pull = pull_sample, .reopen = reopen_stream },
    { BINDING, .name = "once", .kind = BRIM_BINDING_STREAM, .fields = sample_fields,
      .field_count = 2, .pull = pull_sample },
    { FUNCTION, .name = "change", PURE, .batch_map = change },
    { FUNCTION, .name = "collate", PURE, .fields = collated, .field_count = 2,
      .batch_map = collate },
    { FUNCTION, .name = "again", PURE, .fields = made_again, .field_count = 2, .batch_map = again },
    { FUNCTION, .name = "probed", .flags = BRIM_CALLBACK_PROBED, .fields = collated,
      .field_count = 2, .batch_map = collate },
    { FUNCTION, .name = "serial", .batch_map = watch },
    { FUNCTION, .name = "located", PURE, .fields = collated, .field_count = 2,
      .batch_map = locate },
    { BINDING, .name = "probed_map", .kind = BRIM_BINDING_MAP,
      .flags = BRIM_CALLBACK_PURE | BRIM_CALLBACK_PROBED, .fields = collated, .field_count = 1,
      .map = never },
    { BINDING, .name = "probed_flat_map", .kind = BRIM_BINDING_FLAT_MAP,
      .flags = BRIM_CALLBACK_PROBED, .count = 2, .fields = collated, .field_count = 1,
      .flat_map = never_of_many },
    { FUNCTION, .name = "null" },
    { FUNCTION, .name = "not_dense", .fields = &sample_fields[2], .field_count = 1,
      .batch_map = collate },
    { FUNCTION, .name = "twins", .fields = twins, .field_count = 2, .batch_map = collate },
    { FUNCTION, .name = "huge", .fields = huge, .field_count = 1, .batch_map = collate },
    { FUNCTION, .name = "many", .fields = twins, .field_count = 17, .batch_map = collate },
};
#define PLENTY .bindings = bindings, .binding_count = BRIM__COUNT(bindings)
static const struct how plain_how = { PLENTY };

static void begin(uint64_t number, int failures) {
    atomic_store(&failing_number, number);
    atomic_store(&failures_left, failures);
    atomic_store(&calls, 0);
    stream_at = 0;
}

/* --------------------------------------------------------------- the model */

typedef void model_check(const brim_batch *plain, const brim_batch *mapped, uint64_t number);

static const void *field_of(const brim_batch *batch, const char *name) {
    const brim_field *field = brim_batch_find(batch, name);
    if (field == NULL) {
        fail_msg("no field '%s'", name);
    }
    return field->data;
}

/* Padded rows of a field are zero. */
static void check_padding(const brim_batch *batch) {
    const brim_batch_info *info = brim_batch_get(batch);
    for (uint32_t f = 0; f < info->field_count; f++) {
        const brim_field *field = brim_batch_field_at(batch, f);
        const uint8_t *row = field->data;
        for (uint64_t i = info->valid_rows * (uint64_t)field->strides[0];
             i < info->rows * (uint64_t)field->strides[0]; i++) {
            assert_int_equal(row[i], 0);
        }
    }
}

static void check_change(const brim_batch *plain, const brim_batch *mapped, uint64_t number) {
    const brim_batch_info *info = brim_batch_get(plain);
    const uint64_t key = brim__hash_words(brim__hash_words(BRIM_ROOM_BATCHING, 1, 0), 5, 0);
    const uint32_t random = brim__random(key, number, info->epoch, 0) % 8;
    const float *x = field_of(plain, "x"), *y = field_of(mapped, "x");
    const int64_t *label = field_of(plain, "label"), *changed = field_of(mapped, "label");
    assert_int_equal(brim_batch_get(mapped)->field_count, info->field_count);
    for (uint64_t r = 0; r < info->valid_rows; r++) {
        assert_true(y[3 * r] == x[3 * r] + (float)number);
        assert_true(y[3 * r + 1] == x[3 * r + 1]);
        assert_int_equal(changed[r], label[r] + (int64_t)(100 * info->valid_rows + random));
    }
}

static double sum_of(const float *x, uint64_t rows) {
    return (double)x[0] + (double)x[1] + (double)x[2] + (double)rows;
}

static void check_collate(const brim_batch *plain, const brim_batch *mapped, uint64_t number) {
    (void)number;
    const brim_batch_info *info = brim_batch_get(plain);
    const float *x = field_of(plain, "x");
    const int64_t *label = field_of(plain, "label");
    const double *sum = field_of(mapped, "sum");
    const uint8_t *pair = field_of(mapped, "pair");
    const brim_field *field = brim_batch_field_at(mapped, 1);
    assert_int_equal(brim_batch_get(mapped)->field_count, 2);
    assert_int_equal(field->rank, 3);
    assert_int_equal(field->shape[0], info->rows);
    assert_int_equal(field->shape[2], 2);
    assert_int_equal(field->strides[0], 4);
    assert_int_equal((uintptr_t)field->data % 64, 0);
    for (uint64_t r = 0; r < info->valid_rows; r++) {
        assert_true(sum[r] == sum_of(x + 3 * r, info->valid_rows));
        assert_int_equal(pair[4 * r + 3], (uint8_t)(label[r] + 3));
    }
    check_padding(mapped);
}

static void check_again(const brim_batch *plain, const brim_batch *mapped, uint64_t number) {
    (void)number;
    const brim_batch_info *info = brim_batch_get(plain);
    const float *y = field_of(mapped, "y");
    for (uint64_t r = 0; r < info->valid_rows; r++) {
        assert_true(y[2 * r] ==
                    (float)sum_of((const float *)field_of(plain, "x") + 3 * r, info->valid_rows));
        assert_true(y[2 * r + 1] == (float)((const int64_t *)field_of(plain, "label"))[r]);
    }
    check_padding(mapped);
}

static void compare_batches(const brim_batch *plain, const brim_batch *mapped, bool bucket,
                            model_check *check) {
    const brim_batch_info *left = brim_batch_get(plain), *right = brim_batch_get(mapped);
    assert_int_equal(left->rows, right->rows);
    assert_int_equal(left->valid_rows, right->valid_rows);
    assert_int_equal(left->step, right->step);
    assert_int_equal(left->micro, right->micro);
    assert_int_equal(left->skipped, right->skipped);
    for (uint64_t r = 0; r < left->rows; r++) {
        assert_int_equal(left->samples[r], right->samples[r]);
        assert_int_equal(left->valid[r], right->valid[r]);
    }
    check(plain, mapped, bucket ? left->step : left->first_position);
}

/* Two epochs of both; a call that fails is made once more. Returns how many did. */
static unsigned compare(const char *text, const char *stage, const struct how *how,
                        model_check *check) {
    char whole[TEXT_BYTES];
    struct session plain, mapped;
    unsigned failures = 0, batches = 0;
    session_open(&plain, text, how);
    session_open(&mapped, format_text(whole, "%s | %s", text, stage), how);
    for (unsigned epoch = 0; epoch < 2;) {
        brim_batch *left, *right;
        const brim_status status = brim_loader_next(plain.loader, BRIM_FOREVER, &left);
        brim_status other = brim_loader_next(mapped.loader, BRIM_FOREVER, &right);
        while (other == BRIM_STATUS_CALLBACK) {
            assert_detail_has("batch_map @");
            assert_detail_has("of epoch");
            assert_detail_has("returned 7: on purpose");
            failures++;
            other = brim_loader_next(mapped.loader, BRIM_FOREVER, &right);
        }
        assert_int_equal(other, status);
        if (status == BRIM_STATUS_END) {
            epoch++;
            continue;
        }
        assert_int_equal(status, BRIM_OK);
        compare_batches(left, right, strstr(text, "bucket") != NULL, check);
        brim_batch_release(left);
        brim_batch_release(right);
        batches++;
    }
    assert_true(batches > 2);
    session_close(&plain);
    session_close(&mapped);
    return failures;
}

/* ------------------------------------------------------------ against it */

#define KEEP   "filter \"label != 11\""
#define BUCKET "callback @ragged | pad on=tokens | bucket 40 buffer=16KiB"

/* Direct, sequenced, with rows missing, filled up, in small batches. */
static const char *const ways[] = {
    "callback @data | batch 8",
    "callback @data | shuffle seed=3 | batch 8 remainder=pad",
    "callback @data | batch 8 micro=3",
    "callback @data | batch 8 micro=3 remainder=pad",
    "callback @bad | batch 8 on_error=skip remainder=keep",
    "callback @bad | batch 8 on_error=skip remainder=pad",
    "callback @bad | batch 8 on_error=replace",
    "callback @data | " KEEP " | batch 8 remainder=pad",
    "callback @data | " KEEP " | batch 8 micro=3 remainder=pad",
    "callback @bad | " KEEP " | batch 8 on_error=skip",
    "callback @data | " KEEP " | shuffle buffer=4KiB | batch 8",
};

static void test_in_place(void **state) {
    (void)state;
    begin(0, 0);
    for (size_t i = 0; i < BRIM__COUNT(ways); i++) {
        compare(ways[i], "batch_map @change seed=5", &plain_how, check_change);
    }
    compare("callback @ragged | batch 8", "batch_map @change seed=5", &plain_how, check_change);
    compare(BUCKET, "batch_map @change seed=5", &plain_how, check_change);
}

static void test_other_fields(void **state) {
    (void)state;
    begin(0, 0);
    for (size_t i = 0; i < BRIM__COUNT(ways); i++) {
        compare(ways[i], "batch_map @collate", &plain_how, check_collate);
        compare(ways[i], "batch_map @collate | batch_map @again", &plain_how, check_again);
    }
}

/* Whatever a function has left in memory when it failed, the batch is made anew. */
static void test_asked_again(void **state) {
    (void)state;
    for (size_t i = 0; i < BRIM__COUNT(ways); i++) {
        for (int32_t threads = 0; threads <= 3; threads += 3) {
            for (uint64_t number = 0; number <= 48; number += 8) {
                const struct how how = { PLENTY, .threads = threads };
                begin(number, 2);
                const unsigned failed =
                    compare(ways[i], "batch_map @change seed=5", &how, check_change);
                if (threads == 0 && failed != 2 && number < 48) { /* that is not always there */
                    fail_msg("%s: batch %u failed %u times", ways[i], (unsigned)number, failed);
                }
                begin(number, 2);
                compare(ways[i], "batch_map @collate", &how, check_collate);
            }
        }
    }
    begin(8, 3);
    assert_int_equal(compare(ways[0], "batch_map @change seed=5", &plain_how, check_change), 3);
    begin(2, 3); /* the third batch */
    assert_int_equal(compare(BUCKET, "batch_map @change seed=5", &plain_how, check_change), 3);
}

/* ---------------------------------------------------------------- digests */

/* One epoch, asked again after each failure. */
static struct digest digest_epoch(const char *text, const struct how *how, int *failures) {
    struct session session;
    struct digest digest = { 0 };
    brim_batch *batch;
    brim_status status;
    session_open(&session, text, how);
    *failures = 0;
    while ((status = brim_loader_next(session.loader, BRIM_FOREVER, &batch)) != BRIM_STATUS_END) {
        if (status == BRIM_STATUS_CALLBACK) {
            ++*failures;
            continue;
        }
        assert_int_equal(status, BRIM_OK);
        digest_batch(&digest, batch);
        brim_batch_release(batch);
    }
    session_close(&session);
    return digest;
}

static const char *const long_ways[] = {
    "callback @data | shuffle | repeat 20 | batch 8 | batch_map @change seed=5",
    "callback @data | repeat 20 | batch 8 micro=4 | batch_map @collate | batch_map @again",
    "callback @data | repeat 20 | batch 8 | batch_map @collate | batch_map @again | mixup 1",
    "callback @data | repeat 20 | filter \"label != 11\" | batch 8 | batch_map @collate",
    "callback @ragged | repeat 20 | pad on=tokens | bucket 40 buffer=16KiB | batch_map @change",
};

static void test_threads_and_budget(void **state) {
    (void)state;
    for (size_t i = 0; i < BRIM__COUNT(long_ways); i++) {
        int failures;
        begin(0, 0);
        const struct digest wanted = digest_epoch(long_ways[i], &plain_how, &failures);
        for (int32_t threads = 0; threads <= 3; threads += threads + 1) {
            for (int tight = 0; tight <= 1; tight++) {
                const struct how how = { PLENTY, .threads = threads,
                                         .bytes = tight ? AT_MINIMUM : 0, .hold = 2 };
                begin(40, 1); /* one batch is made twice */
                const struct digest digest = digest_epoch(long_ways[i], &how, &failures);
                assert_int_equal(digest.batches, wanted.batches);
                assert_int_equal(digest.value, wanted.value);
            }
        }
    }
}

static void test_resumed(void **state) {
    (void)state;
    for (size_t i = 0; i < BRIM__COUNT(long_ways); i++) {
        const struct how other = { PLENTY, .threads = 1 };
        struct session session;
        struct digest rest = { 0 }, resumed = { 0 }, ignored = { 0 };
        begin(0, 0);
        session_open(&session, long_ways[i], &plain_how);
        take_batches(&session, 5, digest_batch, &ignored);
        const brim_state here = session_state(&session);
        assert_true(take_batches(&session, TO_THE_END, digest_batch, &rest));
        session_close(&session);
        session_open(&session, long_ways[i], &other);
        session_restore(&session, &here);
        assert_true(take_batches(&session, TO_THE_END, digest_batch, &resumed));
        session_close(&session);
        assert_int_equal(resumed.value, rest.value);
    }
}

/* ---------------------------------------------------------------- streams */

static void test_stream_again(void **state) {
    (void)state;
    static const char text[] = "stream @events | batch 8 | batch_map @change";
    for (int32_t threads = 0; threads <= 3; threads += 3) {
        const struct how how = { PLENTY, .threads = threads };
        int failures;
        begin(0, 0);
        const struct digest wanted = digest_epoch(text, &how, &failures);
        begin(16, 2);
        const struct digest digest = digest_epoch(text, &how, &failures);
        assert_int_equal(failures, 2);
        assert_int_equal(digest.value, wanted.value);
    }
}

/* What was pulled cannot be pulled again: the batch that failed is left out. */
static void test_stream_once(void **state) {
    (void)state;
    for (int32_t threads = 0; threads <= 3; threads += 3) {
        const struct how how = { PLENTY, .threads = threads };
        struct session session;
        brim_batch *batch;
        begin(16, 1);
        session_open(&session, "stream @once | batch 8 | batch_map @collate", &how);
        for (uint64_t first = 0; first < SAMPLES; first += 8) {
            brim_status status = brim_loader_next(session.loader, BRIM_FOREVER, &batch);
            if (first == 16) {
                assert_int_equal(status, BRIM_STATUS_CALLBACK);
                assert_detail_has("batch_map @collate, the batch from position 16 of epoch 0");
                char detail[256];
                brim_loader_detail(session.loader, detail, sizeof detail);
                assert_string_equal(detail, brim_detail());
                continue;
            }
            assert_int_equal(status, BRIM_OK);
            assert_int_equal(brim_batch_get(batch)->samples[0], first);
            assert_int_equal(((const uint8_t *)field_of(batch, "pair"))[0], first);
            brim_batch_release(batch);
        }
        assert_int_equal(brim_loader_next(session.loader, BRIM_FOREVER, &batch), BRIM_STATUS_END);
        session_close(&session);
    }
}

/* Going elsewhere after a failure forgets it. */
static void test_seek_after_failure(void **state) {
    (void)state;
    static const char *const texts[] = {
        "callback @data | batch 8 | batch_map @collate",
        "callback @data | " KEEP " | batch 8 | batch_map @collate",
    };
    for (size_t i = 0; i < BRIM__COUNT(texts); i++) {
        struct session session;
        brim_batch *batch;
        begin(0, 1);
        session_open(&session, texts[i], &plain_how);
        assert_int_equal(brim_loader_next(session.loader, BRIM_FOREVER, &batch),
                         BRIM_STATUS_CALLBACK);
        assert_int_equal(brim_loader_seek(session.loader, 0, 3), BRIM_OK);
        batch = take_batch(&session);
        assert_int_equal(brim_batch_get(batch)->step, 3);
        brim_batch_release(batch);
        session_close(&session);
    }
}

/* ------------------------------------------------------------------ plans */

static void test_plan(void **state) {
    (void)state;
    struct session plain, mapped;
    brim_batch *batch, *copy;
    begin(0, 0);
    session_open(&plain, "callback @data | batch 1000", &plain_how);
    session_open(&mapped, "callback @data | batch 1000 | batch_map @collate", &plain_how);
    const brim_plan *plan = brim_loader_plan(mapped.loader);
    const brim_plan_info *info = brim_plan_get(plan);
    assert_int_equal(info->field_count, 2);
    assert_string_equal(brim_plan_field_at(plan, 0)->name, "sum");
    assert_int_equal(brim_plan_field_at(plan, 0)->bytes, 8000);
    assert_int_equal(brim_plan_field_at(plan, 1)->dtype, BRIM_DTYPE_U8);
    assert_int_equal(brim_plan_field_at(plan, 1)->rank, 3);
    assert_int_equal(brim_plan_field_at(plan, 1)->shape[0], 1000);
    assert_int_equal(brim_plan_field_at(plan, 1)->bytes, 4000);
    assert_null(brim_plan_field_at(plan, 2));
    const uint64_t more =
        info->slot_bytes - brim_plan_get(brim_loader_plan(plain.loader))->slot_bytes;
    assert_true(more >= 12000 && more < 12000 + 4096 + 128);
    assert_string_equal(brim_plan_stage_at(plan, 2)->effect, "sum float64 scalar, pair uint8 2x2");

    brim_stats stats = BRIM_STATS_INIT;
    brim_stage_stats stage = BRIM_STAGE_STATS_INIT;
    batch = take_batch(&mapped);
    assert_null(brim_batch_find(batch, "x"));
    assert_int_equal(brim_batch_copy(batch, &copy), BRIM_OK);
    struct digest left = { 0 }, right = { 0 };
    digest_batch(&left, batch);
    memset(brim_batch_find(batch, "sum")->data, 0, 8);
    brim_batch_release(batch);
    digest_batch(&right, copy);
    assert_int_equal(left.value, right.value);
    brim_batch_release(copy);
    assert_int_equal(brim_loader_read_stats(mapped.loader, &stats), BRIM_OK);
    assert_int_equal(stats.bytes, SAMPLES * 12);
    assert_int_equal(brim_loader_read_stage_stats(mapped.loader, 2, &stage), BRIM_OK);
    assert_int_equal(stage.samples, SAMPLES);
    session_close(&plain);
    session_close(&mapped);
}

/* The function runs on the stack of a worker, whose size is what people are used to. */
static void test_stack(void **state) {
    (void)state;
    struct session session;
    session_open(&session, "range 100 | batch 8 | batch_map @serial", &plain_how);
    assert_true(brim_plan_get(brim_loader_plan(session.loader))->stack_bytes >= (8u << 20));
    session_close(&session);
}

static void expect_effect(const char *text, size_t stage, const char *effect) {
    struct session session;
    session_open(&session, text, &plain_how);
    assert_string_equal(brim_plan_stage_at(brim_loader_plan(session.loader), stage)->effect,
                        effect);
    session_close(&session);
}

static void test_effects(void **state) {
    (void)state;
    begin(0, 0);
    expect_effect("callback @ragged | batch 8 | batch_map @change", 2,
                  "x float32 3, label int64 scalar");
    expect_effect("callback @data | batch 8 | batch_map @probed", 2,
                  "sum float64 scalar, pair uint8 2x2; not pure, probed");
    expect_effect("callback @data | batch 8 | batch_map @serial | batch_map @change", 3,
                  "x float32 3, label int64 scalar; not pure");
    expect_effect("callback @data | map @probed_map | batch 8", 1, "sum float64 scalar, probed");
    expect_effect("callback @data | map @probed_map | cast float32 | batch 8", 2,
                  "sum float32 scalar");
    expect_effect("callback @data | flat_map @probed_flat_map | batch 8", 1,
                  "sum float64 scalar; not pure, probed");
}

static void test_refusals(void **state) {
    (void)state;
    begin(0, 0);
#define REFUSED(text, status, part) expect_refused(text, &plain_how, status, part)
    REFUSED("callback @data | batch_map @change | batch 8", BRIM_STATUS_SYNTAX,
            "put it after batch");
    REFUSED("callback @data | batch 8 | batch_map @nobody", BRIM_STATUS_UNBOUND,
            "batch_map @nobody");
    REFUSED("callback @data | batch 8 | batch_map @events", BRIM_STATUS_INVALID,
            "BRIM_BINDING_BATCH_MAP");
    REFUSED("callback @data | map @change | batch 8", BRIM_STATUS_INVALID,
            "a function on whole batches");
    REFUSED("callback @data | batch 8 | batch_map @null", BRIM_STATUS_INVALID,
            "`batch_map` is NULL");
    REFUSED("callback @data | batch 8 | batch_map @not_dense", BRIM_STATUS_UNSUPPORTED,
            "dense fields");
    REFUSED("callback @data | batch 8 | batch_map @twins", BRIM_STATUS_INVALID, "two fields 'a'");
    REFUSED("callback @data | batch 1000 | batch_map @huge", BRIM_STATUS_INVALID, "too large");
    REFUSED("callback @data | batch 8 | batch_map @many", BRIM_STATUS_INVALID, "17 fields");
    REFUSED("callback @ragged | batch 8 | batch_map @collate", BRIM_STATUS_INVALID,
            "the rows of field 'tokens' differ in length");
    REFUSED("callback @ragged | batch 8 | batch_map @change | batch_map @collate",
            BRIM_STATUS_INVALID, "pad to=N on=tokens");
    REFUSED("text $nowhere | batch 8 | batch_map @change", BRIM_STATUS_IO, "nowhere");
    REFUSED("callback @data | batch 8 | batch_map @collate | mixup on=x", BRIM_STATUS_INVALID,
            "'x'");
}

/* ---------------------------------------------------------------- calling */

static void test_serialised(void **state) {
    (void)state;
    const struct how how = { PLENTY, .threads = 3 };
    int failures;
    begin(0, 0);
    const struct digest digest =
        digest_epoch("callback @data | repeat 20 | batch 2 | batch_map @serial | batch_map @serial",
                     &how, &failures);
    assert_int_equal(digest.batches, 500);
    assert_true(atomic_load(&calls) >= 1000); /* workers have begun the next epoch */
    assert_int_equal(atomic_load(&overlaps), 0);
}

/* A batch without valid rows is not shown: those that only fill up, and skipped ones. */
static void test_empty_batches(void **state) {
    (void)state;
    int failures;
    begin(0, 0);
    digest_epoch("callback @data | take 10 | batch 8 micro=2 remainder=pad | batch_map @collate",
                 &plain_how, &failures);
    assert_int_equal(atomic_load(&calls), 5);
    begin(0, 0);
    digest_epoch("callback @bad | skip 3 | take 2 | batch 1 on_error=skip | batch_map @collate",
                 &plain_how, &failures);
    assert_int_equal(atomic_load(&calls), 1);
}

static void test_shared(void **state) {
    (void)state;
    static const char *const texts[] = {
        "callback @data | batch 8 | batch_map @located",
        "callback @data | " KEEP " | batch 8 | batch_map @located",
    };
    for (size_t i = 0; i < BRIM__COUNT(texts); i++) {
        brim_runtime_options limits = BRIM_RUNTIME_OPTIONS_INIT;
        brim_open_options options = BRIM_OPEN_OPTIONS_INIT;
        brim_runtime *runtime;
        brim_pipeline *pipeline;
        brim_loader *loader;
        brim_batch *batch;
        limits.host_bytes = 64u << 20;
        limits.threads = 0;
        options.bindings = bindings;
        options.binding_count = BRIM__COUNT(bindings);
        options.shared = 1;
        begin(0, 0);
        assert_int_equal(brim_runtime_new(&limits, &runtime), BRIM_OK);
        assert_int_equal(brim_pipeline_parse(texts[i], &pipeline), BRIM_OK);
        assert_int_equal(brim_loader_open(runtime, pipeline, &options, &loader), BRIM_OK);
        assert_int_equal(brim_loader_next(loader, BRIM_FOREVER, &batch), BRIM_OK);
        assert_true(atomic_load(&calls) > 0);
        brim_batch_release(batch);
        brim_loader_close(loader);
        brim_pipeline_free(pipeline);
        brim_runtime_free(runtime);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_in_place),    cmocka_unit_test(test_other_fields),
        cmocka_unit_test(test_asked_again), cmocka_unit_test(test_threads_and_budget),
        cmocka_unit_test(test_resumed),     cmocka_unit_test(test_stream_again),
        cmocka_unit_test(test_stream_once), cmocka_unit_test(test_seek_after_failure),
        cmocka_unit_test(test_plan),        cmocka_unit_test(test_stack),
        cmocka_unit_test(test_effects),     cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_serialised),  cmocka_unit_test(test_empty_batches),
        cmocka_unit_test(test_shared),
    };
    return cmocka_run_group_tests(tests, begin_tests, end_tests);
}

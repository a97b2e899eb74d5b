/*
 * test_values.c: the values of every transform and source, against a model.
 *
 * The model does to a sample what the text of the pipeline says, one stage after
 * the other; the library does it in as few passes as it can. Chains of stages at
 * random find the places where the two disagree.
 */
#include "support/sample_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -------------------------------------------------------------------- casts */

static void test_cast_among_all_dtypes(void **state) {
    (void)state;
    static struct model_field model;
    for (int from = 0; from < REAL_DTYPES; from++) {
        struct data data =
            data_new("x", real_dtypes[from], 2, (const int64_t[]){ 9, 37 }, from % 2, 77);
        const struct how how = { .bindings = &data.binding, .binding_count = 1 };
        for (int to = 0; to < REAL_DTYPES; to++) {
            char text[TEXT_BYTES];
            struct session session;
            format_text(text, "array @x | cast %s | batch 4", brim_dtype_name(real_dtypes[to]));
            session_open(&session, text, &how);
            for (uint64_t step = 0; step < 3; step++) {
                brim_batch *batch = take_batch(&session);
                assert_fields_well_laid(batch);
                for (uint64_t r = 0; r < brim_batch_get(batch)->rows; r++) {
                    load_sample(&data, step * 4 + r, &model);
                    model_cast(&model, real_dtypes[to]);
                    assert_row_is(brim_batch_field_at(batch, 0), r, &model, text);
                }
                brim_batch_release(batch);
            }
            session_close(&session);
        }
        free(data.memory);
    }
}

/* A cast to a float and on to an integer saturates, as the text says, although
 * one step from integer to integer would wrap. */
static void test_casts_in_a_row(void **state) {
    (void)state;
    static struct model_field model;
    for (int from = 0; from < REAL_DTYPES; from++) {
        struct data data = data_new("x", real_dtypes[from], 2, (const int64_t[]){ 3, 20 }, 0, 5);
        const struct how how = { .bindings = &data.binding, .binding_count = 1 };
        for (int middle = 0; middle < REAL_DTYPES; middle++) {
            for (int to = 0; to < REAL_DTYPES; to++) {
                char text[TEXT_BYTES];
                struct session session;
                format_text(text, "array @x | cast %s | cast %s | batch 3",
                            brim_dtype_name(real_dtypes[middle]), brim_dtype_name(real_dtypes[to]));
                session_open(&session, text, &how);
                brim_batch *batch = take_batch(&session);
                for (uint64_t r = 0; r < 3; r++) {
                    load_sample(&data, r, &model);
                    model_cast(&model, real_dtypes[middle]);
                    model_cast(&model, real_dtypes[to]);
                    assert_row_is(brim_batch_field_at(batch, 0), r, &model, text);
                }
                brim_batch_release(batch);
                session_close(&session);
            }
        }
        free(data.memory);
    }
}

/* ---------------------------------------------------------------- normalize */

static void test_normalize(void **state) {
    (void)state;
    static struct model_field model;
    static const double mean[] = { 0.485, 0.456, 0.406 }, std[] = { 0.229, 0.224, 0.225 };
    static const double own_mean[] = { 0.5, -1, 7 }, own_std[] = { 2, 0.125, 3 };
    static const double zeros[] = { 0 }, ones[] = { 1 }, twos[] = { 2, 2, 2 };
    static const struct {
        brim_dtype dtype;
        int64_t shape[4]; /* of the whole */
        const char *stage;
        const double *mean, *std;
        int64_t channels;
        uint32_t axis;
        double max;
    } cases[] = {
        { BRIM_DTYPE_U8, { 5, 6, 4, 3 }, "normalize imagenet", mean, std, 3, 2, 255 },
        { BRIM_DTYPE_U8, { 5, 3, 6, 4 }, "normalize imagenet", mean, std, 3, 0, 255 },
        { BRIM_DTYPE_U8, { 5, 3, 6, 3 }, "normalize imagenet", mean, std, 3, 2, 255 },
        { BRIM_DTYPE_U8, { 5, 3, 6, 3 }, "normalize imagenet axis=0", mean, std, 3, 0, 255 },
        { BRIM_DTYPE_U8, { 5, 6, 3, 4 }, "normalize imagenet axis=-2", mean, std, 3, 1, 255 },
        { BRIM_DTYPE_U8, { 5, 6, 4, 3 }, "normalize unit", zeros, ones, 1, 0, 255 },
        { BRIM_DTYPE_U16, { 5, 6, 4, 3 }, "normalize unit", zeros, ones, 1, 0, 65535 },
        { BRIM_DTYPE_BOOL, { 5, 6, 4, 3 }, "normalize unit", zeros, ones, 1, 0, 1 },
        { BRIM_DTYPE_F32, { 5, 6, 4, 3 }, "normalize unit max=1", zeros, ones, 1, 0, 1 },
        { BRIM_DTYPE_I32, { 5, 6, 4, 3 }, "normalize unit max=4", zeros, ones, 1, 0, 4 },
        { BRIM_DTYPE_U8, { 5, 6, 4, 3 }, "normalize unit max=100", zeros, ones, 1, 0, 100 },
        { BRIM_DTYPE_F16,
          { 5, 6, 4, 3 },
          "normalize mean=0.5,-1,7 std=2,0.125,3",
          own_mean,
          own_std,
          3,
          2,
          1 },
        { BRIM_DTYPE_F64,
          { 5, 3, 4, 6 },
          "normalize mean=0.5,-1,7 std=2 max=4",
          own_mean,
          twos,
          3,
          0,
          4 },
        { BRIM_DTYPE_I8, { 5, 6, 4, 3 }, "normalize mean=0 std=1", zeros, ones, 1, 0, 1 },
        { BRIM_DTYPE_BOOL, { 5, 6, 4, 3 }, "normalize mean=0 std=1", zeros, ones, 1, 0, 1 },
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        for (int turned = 0; turned < 2; turned++) {
            struct data data = data_new("x", cases[c].dtype, 4, cases[c].shape, turned, c + 1);
            const struct how how = { .bindings = &data.binding, .binding_count = 1 };
            char text[TEXT_BYTES];
            struct session session;
            format_text(text, "array @x | %s | batch 5", cases[c].stage);
            session_open(&session, text, &how);
            brim_batch *batch = take_batch(&session);
            for (uint64_t r = 0; r < 5; r++) {
                load_sample(&data, r, &model);
                model_normalize(&model, cases[c].mean, cases[c].std, cases[c].channels,
                                cases[c].axis, cases[c].max);
                assert_row_is(brim_batch_field_at(batch, 0), r, &model, text);
            }
            brim_batch_release(batch);
            session_close(&session);
            free(data.memory);
        }
    }
}

/* ------------------------------------------------------------------ one_hot */

static void test_one_hot(void **state) {
    (void)state;
    static struct model_field model;
    static const brim_dtype labels[] = { BRIM_DTYPE_U8,  BRIM_DTYPE_I8,  BRIM_DTYPE_I16,
                                         BRIM_DTYPE_U32, BRIM_DTYPE_I64, BRIM_DTYPE_BOOL };
    for (size_t i = 0; i < sizeof labels / sizeof labels[0]; i++) {
        for (int to = 0; to < REAL_DTYPES; to++) {
            struct data data = data_new("y", labels[i], 2, (const int64_t[]){ 4, 3 }, 0, i + 3);
            for (uint64_t k = 0; k < 12; k++) { /* all bytes but the lowest are zero */
                memset(data.memory + k * brim_dtype_bytes(labels[i]), 0,
                       brim_dtype_bytes(labels[i]));
                data.memory[k * brim_dtype_bytes(labels[i])] = (uint8_t)(k % 2);
            }
            const struct how how = { .bindings = &data.binding, .binding_count = 1 };
            char text[TEXT_BYTES];
            struct session session;
            format_text(text, "array @y | one_hot 2 dtype=%s | batch 4",
                        brim_dtype_name(real_dtypes[to]));
            session_open(&session, text, &how);
            brim_batch *batch = take_batch(&session);
            for (uint64_t r = 0; r < 4; r++) {
                load_sample(&data, r, &model);
                model_one_hot(&model, 2, real_dtypes[to]);
                assert_row_is(brim_batch_field_at(batch, 0), r, &model, text);
            }
            brim_batch_release(batch);
            session_close(&session);
            free(data.memory);
        }
    }
}

static void test_one_hot_of_bad_labels(void **state) {
    (void)state;
    static const struct {
        brim_dtype dtype;
        int64_t label;
        const char *part;
    } cases[] = {
        { BRIM_DTYPE_I64, 10, "is 10, outside 0 to 9" },
        { BRIM_DTYPE_I8, -1, "is -1, outside 0 to 9" },
        { BRIM_DTYPE_U64, -1, "outside 0 to 9" }, /* 2^64 - 1 */
        { BRIM_DTYPE_U8, 255, "is 255, outside 0 to 9" },
        { BRIM_DTYPE_I64, INT64_MIN, "outside 0 to 9" },
        { BRIM_DTYPE_I64, 10 + (INT64_C(1) << 32), "outside 0 to 9" },
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        struct data data = data_new("y", cases[c].dtype, 1, (const int64_t[]){ 5 }, 0, 1);
        const size_t bytes = brim_dtype_bytes(cases[c].dtype);
        memset(data.memory, 0, 5 * bytes);
        memcpy(data.memory + 3 * bytes, &cases[c].label, bytes);
        const struct how how = { .bindings = &data.binding, .binding_count = 1 };
        struct session session;
        brim_batch *batch;
        session_open(&session, "array @y | one_hot 10 | batch 5", &how);
        assert_int_equal(brim_loader_next(session.loader, BRIM_FOREVER, &batch),
                         BRIM_STATUS_CORRUPT);
        assert_detail_has(cases[c].part);
        assert_detail_has("array @y, sample 3");
        session_close(&session);
        free(data.memory);
    }
}

/* ------------------------------------------------------------ random chains */

#define CHAINS       600
#define CHAIN_STAGES 7

enum { CAST, NORMALIZE, LAYOUT, RESHAPE, ONE_HOT, STAGES };

/* Appends one stage at random to the text, and the numbers that the model needs
 * to its record. */
struct stage {
    int kind, field;
    brim_dtype dtype;
    double mean[8], std[8], max;
    int64_t channels;
    uint32_t axis;
    uint32_t place[BRIM_MAX_RANK];
    uint32_t rank;
    int64_t shape[BRIM_MAX_RANK];
};

static void run_stage(const struct stage *stage, struct model_field *fields) {
    struct model_field *field = &fields[stage->field];
    switch (stage->kind) {
    case CAST:
        model_cast(field, stage->dtype);
        break;
    case NORMALIZE:
        model_normalize(field, stage->mean, stage->std, stage->channels, stage->axis, stage->max);
        break;
    case LAYOUT:
        model_layout(field, stage->place);
        break;
    case RESHAPE:
        field->rank = stage->rank;
        memcpy(field->shape, stage->shape, sizeof field->shape);
        break;
    default:
        model_one_hot(field, stage->channels, stage->dtype);
    }
}

static size_t append(char text[TEXT_BYTES], size_t used, const char *part) {
    const size_t length = strlen(part);
    assert_true(used + length < TEXT_BYTES);
    memcpy(text + used, part, length + 1);
    return used + length;
}

static void choose_normalize(struct stage *stage, const struct model_field *field, uint64_t *random,
                             char *words, size_t bytes) {
    /* channels along an axis of fewer than 8, or one for all */
    stage->axis = field->rank > 0 ? (uint32_t)(next_random(random) % field->rank) : 0;
    const bool many = field->rank > 0 && field->shape[stage->axis] <= 8 && next_random(random) % 4;
    stage->channels = many ? field->shape[stage->axis] : 1;
    stage->max = field->dtype == BRIM_DTYPE_U8 ? 255 : field->dtype == BRIM_DTYPE_U16 ? 65535 : 1;
    int length = snprintf(words, bytes, " | normalize on=%s mean=", field->name);
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t c = 0; c < stage->channels; c++) {
            const double value = (double)(1 + next_random(random) % 40) / 8;
            (pass == 0 ? stage->mean : stage->std)[c] = value;
            length +=
                snprintf(words + length, bytes - (size_t)length, "%s%g", c > 0 ? "," : "", value);
        }
        length += snprintf(words + length, bytes - (size_t)length, pass == 0 ? " std=" : "");
    }
    if (many) {
        const int shown = (int)stage->axis - (next_random(random) % 2 ? (int)field->rank : 0);
        length += snprintf(words + length, bytes - (size_t)length, " axis=%d", shown);
    }
    /* what max is after casts is test_range's */
    stage->max = next_random(random) % 3 == 0 ? 16 : stage->max;
    if (stage->max != 255) {
        snprintf(words + length, bytes - (size_t)length, " max=%g", stage->max);
    }
}

static void choose_layout(struct stage *stage, const struct model_field *field, uint64_t *random,
                          char *words, size_t bytes) {
    char from[BRIM_MAX_RANK + 1] = "", to[BRIM_MAX_RANK + 1] = "";
    for (uint32_t i = 0; i < field->rank; i++) {
        from[i] = (char)('p' + i);
        stage->place[i] = i;
    }
    for (uint32_t i = field->rank; i > 1; i--) {
        const uint32_t k = (uint32_t)(next_random(random) % i);
        const uint32_t swapped = stage->place[k];
        stage->place[k] = stage->place[i - 1];
        stage->place[i - 1] = swapped;
    }
    for (uint32_t i = 0; i < field->rank; i++) {
        to[i] = from[stage->place[i]];
    }
    snprintf(words, bytes, " | layout %s from=%s on=%s", to, from, field->name);
}

/* Joins two neighbouring dimensions, cuts one in two, or flattens; one of them
 * may be written as -1. */
static void choose_reshape(struct stage *stage, const struct model_field *field, uint64_t *random,
                           char *words, size_t bytes) {
    stage->rank = field->rank;
    memcpy(stage->shape, field->shape, sizeof stage->shape);
    const uint32_t at = (uint32_t)(next_random(random) % field->rank);
    const uint64_t what = next_random(random) % 3;
    if (what == 0 && at + 1 < field->rank) {
        stage->shape[at] *= stage->shape[at + 1];
        memmove(stage->shape + at + 1, stage->shape + at + 2,
                (field->rank - at - 2) * sizeof stage->shape[0]);
        stage->rank--;
    } else if (what == 1 && field->rank < 5) {
        const int64_t part = stage->shape[at] % 2 == 0 ? 2 : 1;
        memmove(stage->shape + at + 1, stage->shape + at,
                (field->rank - at) * sizeof stage->shape[0]);
        stage->shape[at] = part;
        stage->shape[at + 1] /= part;
        stage->rank++;
    } else if (what == 2) {
        stage->rank = 1;
        stage->shape[0] = model_elements(field);
    }
    const uint32_t open = (uint32_t)(next_random(random) % (stage->rank + 1));
    int length = snprintf(words, bytes, " | reshape");
    for (uint32_t i = 0; i < stage->rank; i++) {
        length += snprintf(words + length, bytes - (size_t)length, " %lld",
                           i == open ? -1 : (long long)stage->shape[i]);
    }
    snprintf(words + length, bytes - (size_t)length, " on=%s", field->name);
}

/* false: this stage cannot be here. */
static bool choose_stage(struct stage *stage, const struct model_field *fields, uint64_t *random,
                         char *words, size_t bytes) {
    stage->kind = (int)(next_random(random) % STAGES);
    stage->field = (int)(next_random(random) % 2);
    stage->dtype = real_dtypes[next_random(random) % REAL_DTYPES];
    const struct model_field *field = &fields[stage->field];
    switch (stage->kind) {
    case CAST:
        snprintf(words, bytes, " | cast %s on=%s", brim_dtype_name(stage->dtype), field->name);
        return true;
    case NORMALIZE:
        choose_normalize(stage, field, random, words, bytes);
        return true;
    case LAYOUT:
        choose_layout(stage, field, random, words, bytes);
        return field->rank > 0;
    case RESHAPE:
        if (field->rank > 0) {
            choose_reshape(stage, field, random, words, bytes);
        }
        return field->rank > 0;
    default:
        stage->channels = 2; /* of what is 0 or 1 */
        snprintf(words, bytes, " | one_hot 2 dtype=%s on=%s", brim_dtype_name(stage->dtype),
                 field->name);
        return field->dtype == BRIM_DTYPE_BOOL && field->rank < 5 &&
               model_elements(field) * 2 <= MOST_ELEMENTS;
    }
}

static void check_chain(uint64_t seed) {
    static struct model_field start[2], fields[2];
    static const int64_t shapes[][4] = {
        { 6, 4, 6, 3 }, { 6, 2, 3, 8 }, { 6, 5, 1, 4 }, { 6, 1, 1, 1 }, { 6, 3, 12, 10 }
    };
    uint64_t random = seed * 2 + 1;
    for (int i = 0; i < 10; i++) {
        next_random(&random);
    }
    struct data data[2];
    for (int i = 0; i < 2; i++) {
        data[i] = data_new(i == 0 ? "a" : "b", real_dtypes[next_random(&random) % REAL_DTYPES],
                           1 + (uint32_t)(next_random(&random) % 4),
                           shapes[next_random(&random) % 5], next_random(&random) % 2, seed + 9);
        load_sample(&data[i], 0, &start[i]);
    }
    char text[TEXT_BYTES];
    struct stage stages[CHAIN_STAGES];
    size_t used = append(text, 0, "zip (array @a) (array @b)"), count = 0;
    memcpy(fields, start, sizeof fields);
    for (int tries = 0; tries < 2 * CHAIN_STAGES && count < CHAIN_STAGES; tries++) {
        char words[256];
        memset(&stages[count], 0, sizeof stages[count]);
        if (choose_stage(&stages[count], fields, &random, words, sizeof words)) {
            run_stage(&stages[count++], fields);
            used = append(text, used, words);
        }
    }
    append(text, used, " | shuffle | batch 4");

    const brim_binding bindings[] = { data[0].binding, data[1].binding };
    const struct how how = { .bindings = bindings,
                             .binding_count = 2,
                             .threads = (int32_t)(seed % 2) };
    struct session session;
    session_open(&session, text, &how);
    for (int step = 0; step < 2; step++) {
        brim_batch *batch = take_batch(&session);
        const brim_batch_info *info = brim_batch_get(batch);
        assert_int_equal(info->field_count, 2);
        assert_fields_well_laid(batch);
        for (uint64_t r = 0; r < info->rows; r++) {
            for (int i = 0; i < 2; i++) {
                load_sample(&data[i], info->samples[r], &fields[i]);
            }
            for (size_t s = 0; s < count; s++) {
                run_stage(&stages[s], fields);
            }
            assert_row_is(brim_batch_find(batch, "a"), r, &fields[0], text);
            assert_row_is(brim_batch_find(batch, "b"), r, &fields[1], text);
        }
        brim_batch_release(batch);
    }
    session_close(&session);
    free(data[0].memory);
    free(data[1].memory);
}

static void test_chains_at_random(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < CHAINS; seed++) {
        check_chain(seed);
    }
}

/* ------------------------------------------------------------------ sources */

static void test_values_of_sources(void **state) {
    (void)state;
    enum { ROWS = 23, LENGTH = 6, STRIDE = 4, TOKENS = 50 };
    static uint16_t tokens[TOKENS];
    static int32_t rows[ROWS][3];
    for (int i = 0; i < TOKENS; i++) {
        tokens[i] = (uint16_t)(i * 31);
    }
    fill_random(rows, sizeof rows, 4);
    write_file("tokens.bin", tokens, sizeof tokens);
    write_npy("one.npy", BRIM_DTYPE_I32, 2, (const int64_t[]){ 10, 3 }, rows[0]);
    write_npy("two.npy", BRIM_DTYPE_I32, 2, (const int64_t[]){ ROWS - 10, 3 }, rows[10]);
    char text[TEXT_BYTES];
    const struct how how = { 0 };
    struct session session;

    format_text(text, "tokens %s length=%d stride=%d | shuffle | batch 20",
                in_directory("tokens.bin").text, LENGTH, STRIDE);
    session_open(&session, text, &how);
    brim_batch *batch = take_batch(&session);
    const brim_batch_info *info = brim_batch_get(batch);
    assert_int_equal(info->rows, (TOKENS - LENGTH - 1) / STRIDE + 1);
    assert_fields_well_laid(batch);
    for (uint64_t r = 0; r < info->rows; r++) {
        const uint16_t *x = (const uint16_t *)brim_batch_find(batch, "x")->data + r * LENGTH;
        const uint16_t *y = (const uint16_t *)brim_batch_find(batch, "y")->data + r * LENGTH;
        assert_memory_equal(x, tokens + info->samples[r] * STRIDE, LENGTH * sizeof *x);
        assert_memory_equal(y, tokens + info->samples[r] * STRIDE + 1, LENGTH * sizeof *y);
    }
    brim_batch_release(batch);
    session_close(&session);

    format_text(text, "zip (npy %s %s name=rows) (range %d) | skip 1 | batch 30",
                in_directory("one.npy").text, in_directory("two.npy").text, ROWS);
    session_open(&session, text, &how);
    batch = take_batch(&session);
    info = brim_batch_get(batch);
    assert_int_equal(info->rows, ROWS - 1);
    assert_memory_equal(brim_batch_find(batch, "rows")->data, rows[1],
                        sizeof rows - sizeof rows[0]);
    for (uint64_t r = 0; r < info->rows; r++) {
        assert_int_equal(((const int64_t *)brim_batch_find(batch, "index")->data)[r], r + 1);
    }
    assert_null(brim_batch_find(batch, "row"));
    assert_detail_has("row");
    brim_batch_release(batch);
    session_close(&session);

    /* samples of a mix are numbered through: each part begins where the one
     * before it ends, and each gives its own values */
    session_open(&session,
                 "mix 1 (range 10 name=n) 1 (range 20 name=n) 1 (range 5 name=n) length=30 | "
                 "batch 30",
                 &how);
    batch = take_batch(&session);
    info = brim_batch_get(batch);
    static const uint64_t first_id[] = { 0, 10, 30, 35 };
    uint64_t of_part[3] = { 0 };
    for (uint64_t r = 0; r < 30; r++) {
        const uint64_t n = ((const uint64_t *)brim_batch_find(batch, "n")->data)[r];
        const int part = (info->samples[r] >= 10) + (info->samples[r] >= 30);
        of_part[part]++;
        assert_true(info->samples[r] < first_id[part + 1]);
        assert_int_equal(info->samples[r], first_id[part] + n);
    }
    for (int part = 0; part < 3; part++) {
        assert_int_equal(of_part[part], 10);
    }
    brim_batch_release(batch);
    session_close(&session);
}

/* -------------------------------------------------------------------- calls */

#define CALLED 10

static int tell_call(void *user, const brim_call *call, brim_value *outputs, size_t count,
                     char *why, size_t why_bytes) {
    const uint64_t told[] = { call->sample, call->epoch, call->key, 0 };
    (void)user, (void)count, (void)why, (void)why_bytes;
    memcpy(outputs[0].data, told, sizeof told);
    return 0;
}

/* Sees the sample and epoch that the source saw, and a key of its own. */
static int compare_calls(void *user, const brim_call *call, const brim_value *inputs,
                         size_t input_count, brim_value *outputs, size_t output_count, char *why,
                         size_t why_bytes) {
    uint64_t told[4];
    (void)user, (void)input_count, (void)output_count, (void)why, (void)why_bytes;
    memcpy(told, inputs[0].data, sizeof told);
    const bool same = told[0] == call->sample && told[1] == call->epoch && told[2] != call->key;
    told[3] = call->key;
    memcpy(outputs[0].data, told, sizeof told);
    return !same;
}

/* repeat and mix count passes as epochs of what stands in them: every sample
 * once in every epoch of its source, and epochs from 0 without a gap. */
static void check_calls(const char *text, unsigned parts, unsigned passes, unsigned epochs) {
    static const brim_field_spec field = {
        .size = sizeof field, .name = "told", .dtype = BRIM_DTYPE_U64, .rank = 1, .shape = { 4 }
    };
    const brim_binding bindings[] = {
        { .size = sizeof(brim_binding),
          .name = "teller",
          .kind = BRIM_BINDING_SOURCE,
          .count = CALLED,
          .fields = &field,
          .field_count = 1,
          .read = tell_call },
        { .size = sizeof(brim_binding),
          .name = "compare",
          .kind = BRIM_BINDING_MAP,
          .fields = &field,
          .field_count = 1,
          .map = compare_calls },
    };
    const struct how how = { .bindings = bindings, .binding_count = 2 };
    uint8_t seen[4 * 16 * CALLED] = { 0 };
    uint64_t rows = 0, key[4][2] = { 0 };
    struct session session;
    session_open(&session, text, &how);
    for (unsigned ended = 0; ended < epochs;) {
        brim_batch *batch;
        const brim_status status = brim_loader_next(session.loader, BRIM_FOREVER, &batch);
        if (status == BRIM_STATUS_END) {
            ended++;
            continue;
        }
        assert_int_equal(status, BRIM_OK);
        const brim_batch_info *info = brim_batch_get(batch);
        for (uint64_t r = 0; r < info->rows; r++, rows++) {
            const uint64_t *told = (const uint64_t *)brim_batch_find(batch, "told")->data + 4 * r;
            const uint64_t part = info->samples[r] / CALLED;
            assert_int_equal(told[0], info->samples[r] % CALLED);
            assert_true(part < parts && told[1] < passes);
            seen[(part * 16 + told[1]) * CALLED + told[0]]++;
            for (unsigned k = 0; k < 2; k++) { /* of the source and of the map */
                assert_int_not_equal(told[2 + k], 0);
                assert_true(key[part][k] == 0 || key[part][k] == told[2 + k]);
                key[part][k] = told[2 + k];
            }
        }
        brim_batch_release(batch);
    }
    session_close(&session);
    assert_int_equal(rows, parts * passes * CALLED);
    for (unsigned i = 0; i < parts * 16 * CALLED; i++) {
        assert_int_equal(seen[i], i / CALLED % 16 < passes);
    }
    if (parts > 1) { /* each branch has keys of its own */
        assert_int_not_equal(key[0][0], key[1][0]);
        assert_int_not_equal(key[0][1], key[1][1]);
    }
}

static void test_calls_count_passes(void **state) {
    (void)state;
    check_calls("callback @teller | shuffle | map @compare | batch 4", 1, 3, 3);
    check_calls("callback @teller | shuffle | repeat 3 | map @compare | batch 4", 1, 6, 2);
    check_calls("mix 1 (callback @teller | map @compare) 1 (callback @teller | shuffle | "
                "map @compare) length=30 | batch 4",
                2, 3, 2);
    check_calls("mix 1 (callback @teller | repeat 2 | map @compare) 1 (callback @teller | "
                "shuffle | map @compare) length=60 | batch 4",
                2, 6, 2);
}

/* ------------------------------------------------------------ micro-batches */

static void test_micro_batches(void **state) {
    (void)state;
    static const uint64_t wanted[][6] = {
        /* step, micro, micro_count, rows, step_rows, first_position */
        { 0, 0, 3, 3, 8, 0 },  { 0, 1, 3, 3, 8, 3 },  { 0, 2, 3, 2, 8, 6 },  { 1, 0, 3, 3, 8, 8 },
        { 1, 1, 3, 3, 8, 11 }, { 1, 2, 3, 2, 8, 14 }, { 2, 0, 2, 3, 4, 16 }, { 2, 1, 2, 1, 4, 19 },
    };
    for (int32_t threads = 0; threads <= 2; threads++) {
        const struct how how = { .threads = threads };
        struct session session;
        session_open(&session, "range 20 | batch 8 micro=3", &how);
        const brim_plan_info *plan = brim_plan_get(brim_loader_plan(session.loader));
        assert_int_equal(plan->batches, 8);
        assert_int_equal(plan->steps, 3);
        assert_int_equal(plan->batch_rows, 3);
        for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
            brim_batch *batch = take_batch(&session);
            const brim_batch_info *info = brim_batch_get(batch);
            assert_int_equal(info->step, wanted[i][0]);
            assert_int_equal(info->micro, wanted[i][1]);
            assert_int_equal(info->micro_count, wanted[i][2]);
            assert_int_equal(info->rows, wanted[i][3]);
            assert_int_equal(info->valid_rows, wanted[i][3]);
            assert_int_equal(info->step_rows, wanted[i][4]);
            assert_int_equal(info->global_rows, wanted[i][4]);
            assert_int_equal(info->first_position, wanted[i][5]);
            assert_int_equal(info->samples[0], wanted[i][5]);
            brim_batch_release(batch);
        }
        brim_batch *batch;
        assert_int_equal(brim_loader_next(session.loader, BRIM_FOREVER, &batch), BRIM_STATUS_END);
        session_close(&session);
    }
}

/* --------------------------------------------------------------------- plans */

static void test_plan_says_what_batches_have(void **state) {
    (void)state;
    struct data data = data_new("img", BRIM_DTYPE_U8, 4, (const int64_t[]){ 10, 4, 5, 3 }, 0, 1);
    const struct how how = { .bindings = &data.binding, .binding_count = 1 };
    struct session session;
    session_open(&session, "array @img | normalize imagenet | layout chw | batch 4", &how);
    const brim_plan *plan = brim_loader_plan(session.loader);
    const brim_plan_info *info = brim_plan_get(plan);
    assert_int_equal(info->fits, 1);
    assert_string_equal(info->reason, "");
    assert_int_equal(info->field_count, 1);
    assert_int_equal(info->stage_count, 4);
    assert_int_equal(info->samples, 10);
    assert_true(info->minimum_bytes <= info->planned_bytes);
    assert_true(info->planned_bytes <= info->limit_bytes);
    brim_batch *batch = take_batch(&session);
    const brim_field *got = brim_batch_field_at(batch, 0);
    const brim_plan_field *field = brim_plan_field_at(plan, 0);
    assert_string_equal(field->name, "img");
    assert_int_equal(field->dtype, BRIM_DTYPE_F32);
    assert_int_equal(field->rank, got->rank);
    assert_memory_equal(field->shape, got->shape, got->rank * sizeof got->shape[0]);
    assert_int_equal(field->bytes, got->bytes);
    assert_null(brim_plan_field_at(plan, 1));
    static const char *const names[] = { "array", "normalize", "layout", "batch" };
    for (size_t i = 0; i < 4; i++) {
        assert_string_equal(brim_plan_stage_at(plan, i)->name, names[i]);
        assert_non_null(brim_plan_stage_at(plan, i)->text);
        assert_non_null(brim_plan_stage_at(plan, i)->effect);
    }
    assert_null(brim_plan_stage_at(plan, 4));
    brim_batch_release(batch);
    session_close(&session);
    free(data.memory);
}

static void test_refused_pipelines(void **state) {
    (void)state;
    struct data image = data_new("image", BRIM_DTYPE_U8, 4, (const int64_t[]){ 8, 4, 5, 3 }, 0, 1);
    struct data label = data_new("label", BRIM_DTYPE_F32, 1, (const int64_t[]){ 8 }, 0, 1);
    struct data complex = data_new("complex", BRIM_DTYPE_U64, 2, (const int64_t[]){ 8, 2 }, 0, 1);
    complex.binding.dtype = BRIM_DTYPE_C64;
    memset(complex.binding.strides, 0, sizeof complex.binding.strides);
    const brim_binding bindings[] = { image.binding, label.binding, complex.binding };
    const struct how how = { .bindings = bindings, .binding_count = 3 };
    static const struct {
        const char *text;
        brim_status status;
        const char *part;
    } cases[] = {
        { "array @image | normalize imagenet axis=0", BRIM_STATUS_INVALID,
          "axis 0 does not have 3" },
        { "array @image | normalize imagenet axis=3", BRIM_STATUS_INVALID, "axis 3" },
        { "array @image | normalize imagenet axis=-4", BRIM_STATUS_INVALID, "axis -4" },
        { "array @image | normalize mean=1,2 std=1", BRIM_STATUS_INVALID, "give axis=" },
        { "array @image | normalize mean=1,2 std=1,2,3", BRIM_STATUS_INVALID, "2 means but 3" },
        { "array @image | normalize mean=1 std=0", BRIM_STATUS_INVALID, "above 0" },
        { "array @image | normalize mean=1", BRIM_STATUS_INVALID, "std=" },
        { "array @image | normalize unit mean=1", BRIM_STATUS_INVALID, "not both" },
        { "array @label | normalize imagenet", BRIM_STATUS_INVALID, "channels" },
        { "array @complex | normalize unit", BRIM_STATUS_UNSUPPORTED, "complex" },
        { "array @complex | cast float32", BRIM_STATUS_UNSUPPORTED, "complex" },
        { "array @image | cast complex64", BRIM_STATUS_UNSUPPORTED, "complex" },
        { "array @image | cast flaot32", BRIM_STATUS_INVALID, "float32" },
        { "array @image | layout chw from=hw", BRIM_STATUS_INVALID, "3 dimensions" },
        { "array @image | layout chx", BRIM_STATUS_INVALID, "'chx' is not the letters of 'hwc'" },
        { "array @image | layout cch", BRIM_STATUS_INVALID, "'cch'" },
        { "array @image | layout cch from=cch", BRIM_STATUS_INVALID, "'cch'" },
        { "array @image | reshape 7 -1", BRIM_STATUS_INVALID, "60 elements" },
        { "array @image | reshape -1 -1", BRIM_STATUS_INVALID, "only one" },
        { "array @image | reshape 0 -1", BRIM_STATUS_INVALID, "60 elements" },
        { "array @image | reshape 61", BRIM_STATUS_INVALID, "60 elements" },
        { "array @image | reshape 1 1 1 1 1 1 1 60", BRIM_STATUS_INVALID, "at most 7" },
        { "array @label | one_hot 10", BRIM_STATUS_INVALID, "not an integer" },
        { "array @image | one_hot 10 dtype=complex64", BRIM_STATUS_UNSUPPORTED, "complex" },
        { "array @image | cast float32 on=imgae", BRIM_STATUS_INVALID, "did you mean 'image'?" },
        { "zip (array @image) (array @label) | cast uint8 on=label,images", BRIM_STATUS_INVALID,
          "did you mean 'image'?; the fields here are: image, label" },
        { "array @image | normalize unit on=zebra", BRIM_STATUS_INVALID, "no field 'zebra'" },
        { "zip (array @image) (array @image)", BRIM_STATUS_INVALID,
          "two fields are called 'image'" },
        { "zip (array @image) (range 9)", BRIM_STATUS_INVALID,
          "part 1 has 8 samples, part 2 has 9" },
        { "zip (array @image | cast float32) (range 8)", BRIM_STATUS_INVALID, "one source alone" },
        { "mix 1 (array @image) 1 (array @label)", BRIM_STATUS_INVALID, "image uint8 4x5x3" },
        { "mix 1 (range 5) 1 (range 5 name=other)", BRIM_STATUS_INVALID, "same fields" },
        { "mix 1 (range 5) 1 (range 5 | cast int32)", BRIM_STATUS_INVALID, "index int32" },
        { "mix 1 (range 5) 1 (range 5 | take 0)", BRIM_STATUS_INVALID, "no samples" },
        { "mix 1 (range 5) 1 (range 5 | batch 2)", BRIM_STATUS_SYNTAX, "parentheses" },
        { "mix 1 (range 5) 1 (array @absent)", BRIM_STATUS_UNBOUND, "mix: part 2" },
        { "range 5 | batch 2 | shuffle", BRIM_STATUS_SYNTAX, "'shuffle' comes after 'batch'" },
        { "range 5 | batch 2 | batch 2", BRIM_STATUS_SYNTAX, "after 'batch'" },
        { "range 5 | range 6", BRIM_STATUS_SYNTAX, "'range' can only be the first stage" },
        { "range 5 | mix 1 (range 5)", BRIM_STATUS_SYNTAX, "'mix' can only be the first" },
        { "shuffle | batch 2", BRIM_STATUS_SYNTAX, "begins with a source" },
        { "batch 2", BRIM_STATUS_SYNTAX, "begins with a source" },
        { "array @absent", BRIM_STATUS_UNBOUND, "bound: @image, @label, @complex" },
        { "callback @image", BRIM_STATUS_INVALID, "is bound to an array" },
        { "range 5 | map @label", BRIM_STATUS_INVALID, "is bound to an array" },
        { "range 5 | shuffle | split train", BRIM_STATUS_INVALID, "put split first" },
        { "range 5 | split train validation=6", BRIM_STATUS_INVALID, "overlap" },
        { "npy /nowhere/at/all.npy", BRIM_STATUS_IO, "/nowhere/at/all.npy" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        expect_refused(cases[i].text, &how, cases[i].status, cases[i].part);
    }
    expect_refused("array @image", &(struct how){ 0 }, BRIM_STATUS_UNBOUND, "nothing is bound");
    free(image.memory);
    free(label.memory);
    free(complex.memory);
}

/* What does not fit is refused, with what would; with that it opens. */
static void test_refused_budgets(void **state) {
    (void)state;
    const char *text = "range 100000 | batch 50000";
    struct how how = { .bytes = AT_MINIMUM };
    struct session session;
    session_open(&session, text, &how);
    const uint64_t minimum = brim_plan_get(brim_loader_plan(session.loader))->minimum_bytes;
    session_close(&session);
    char part[TEXT_BYTES];
    how.bytes = minimum - 1;
    expect_refused(
        text, &how, BRIM_STATUS_BUDGET,
        format_text(part, "fits in a budget of %llu bytes", (unsigned long long)minimum));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cast_among_all_dtypes),
        cmocka_unit_test(test_casts_in_a_row),
        cmocka_unit_test(test_normalize),
        cmocka_unit_test(test_one_hot),
        cmocka_unit_test(test_one_hot_of_bad_labels),
        cmocka_unit_test(test_chains_at_random),
        cmocka_unit_test(test_values_of_sources),
        cmocka_unit_test(test_calls_count_passes),
        cmocka_unit_test(test_micro_batches),
        cmocka_unit_test(test_plan_says_what_batches_have),
        cmocka_unit_test(test_refused_pipelines),
        cmocka_unit_test(test_refused_budgets),
    };
    return cmocka_run_group_tests(tests, begin_tests, end_tests);
}

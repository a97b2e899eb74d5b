/*
 * sample_model.c: the model of transforms, and samples to begin with.
 */
#include "support/sample_model.h"

#include "tensor_model.h"

#include <stdio.h>
#include <stdlib.h>

/* ------------------------------------------------------------------- model */

int64_t model_elements(const struct model_field *field) {
    int64_t count = 1;
    for (uint32_t i = 0; i < field->rank; i++) {
        count *= field->shape[i];
    }
    return count;
}

void model_cast(struct model_field *field, brim_dtype dtype) {
    static struct model_field from;
    from = *field;
    field->dtype = dtype;
    for (int64_t i = 0; i < model_elements(field); i++) {
        model_convert(from.dtype, dtype, from.data + i * brim_dtype_bytes(from.dtype),
                      field->data + i * brim_dtype_bytes(dtype), NULL, NULL);
    }
}

void model_normalize(struct model_field *field, const double *mean, const double *std,
                     int64_t channels, uint32_t axis, double max) {
    static struct model_field from;
    from = *field;
    field->dtype = BRIM_DTYPE_F32;
    int64_t inner = 1;
    for (uint32_t i = axis + 1; i < field->rank; i++) {
        inner *= field->shape[i];
    }
    for (int64_t i = 0; i < model_elements(field); i++) {
        const int64_t c = channels == 1 ? 0 : i / inner % channels;
        const float scale = (float)(1.0 / (max * std[c]));
        const float bias = (float)(0.0 - mean[c] / std[c]);
        model_convert(from.dtype, BRIM_DTYPE_F32, from.data + i * brim_dtype_bytes(from.dtype),
                      field->data + i * sizeof(float), &scale, &bias);
    }
}

void model_layout(struct model_field *field, const uint32_t *place) {
    static struct model_field from;
    const size_t bytes = brim_dtype_bytes(field->dtype);
    from = *field;
    for (uint32_t i = 0; i < field->rank; i++) {
        field->shape[i] = from.shape[place[i]];
    }
    for (int64_t i = 0; i < model_elements(field); i++) {
        int64_t index[BRIM_MAX_RANK] = { 0 }, rest = i, at = 0;
        for (uint32_t d = field->rank; d-- > 0;) {
            index[place[d]] = rest % field->shape[d];
            rest /= field->shape[d];
        }
        for (uint32_t d = 0; d < from.rank; d++) {
            at = at * from.shape[d] + index[d];
        }
        memcpy(field->data + i * bytes, from.data + at * bytes, bytes);
    }
}

void model_one_hot(struct model_field *field, int64_t classes, brim_dtype dtype) {
    static struct model_field labels;
    const uint8_t zero = 0, one = 1;
    labels = *field;
    model_cast(&labels, BRIM_DTYPE_I64);
    field->dtype = dtype;
    field->shape[field->rank++] = classes;
    for (int64_t i = 0; i < model_elements(field); i++) {
        int64_t label;
        memcpy(&label, labels.data + i / classes * sizeof label, sizeof label);
        model_convert(BRIM_DTYPE_U8, dtype, label == i % classes ? &one : &zero,
                      field->data + i * brim_dtype_bytes(dtype), NULL, NULL);
    }
}

/* ------------------------------------------------------ samples as arrays */

const brim_dtype real_dtypes[REAL_DTYPES] = { BRIM_DTYPE_BOOL, BRIM_DTYPE_U8,   BRIM_DTYPE_I8,
                                              BRIM_DTYPE_U16,  BRIM_DTYPE_I16,  BRIM_DTYPE_U32,
                                              BRIM_DTYPE_I32,  BRIM_DTYPE_U64,  BRIM_DTYPE_I64,
                                              BRIM_DTYPE_F16,  BRIM_DTYPE_BF16, BRIM_DTYPE_F32,
                                              BRIM_DTYPE_F64 };

/* A value for one element: any bits for integers, no NaN for floats (whose bits
 * are a matter of the conversions' own test). */
static void make_element(brim_dtype dtype, uint64_t bits, uint8_t *at) {
    if (dtype == BRIM_DTYPE_BOOL) {
        *at = bits & 1;
    } else if (dtype == BRIM_DTYPE_F16 || dtype == BRIM_DTYPE_BF16 || dtype == BRIM_DTYPE_F32 ||
               dtype == BRIM_DTYPE_F64) {
        double value = (double)(int32_t)bits / (double)(1u << (bits >> 32) % 30);
        if (bits >> 60 == 3) {
            value = value < 0 ? -(double)__builtin_inff() : (double)__builtin_inff();
        }
        model_convert(BRIM_DTYPE_F64, dtype, (const uint8_t *)&value, at, NULL, NULL);
    } else {
        memcpy(at, &bits, brim_dtype_bytes(dtype));
    }
}

struct data data_new(const char *name, brim_dtype dtype, uint32_t rank, const int64_t *shape,
                     bool turned, uint64_t seed) {
    struct data data = { .binding = { .size = sizeof(brim_binding),
                                      .name = name,
                                      .kind = BRIM_BINDING_ARRAY,
                                      .dtype = dtype,
                                      .rank = rank } };
    const int64_t bytes = (int64_t)brim_dtype_bytes(dtype);
    int64_t total = bytes;
    for (uint32_t i = 0; i < rank; i++) {
        const uint32_t d = turned ? i : rank - 1 - i;
        data.binding.shape[d] = shape[d];
        data.binding.strides[d] = total;
        total *= shape[d];
    }
    data.memory = malloc((size_t)total);
    assert_non_null(data.memory);
    for (int64_t i = 0; i < total; i += bytes) {
        make_element(dtype, next_random(&seed), data.memory + i);
    }
    data.binding.data = data.memory;
    return data;
}

void load_sample(const struct data *data, uint64_t sample, struct model_field *field) {
    const brim_binding *binding = &data->binding;
    const size_t bytes = brim_dtype_bytes(binding->dtype);
    snprintf(field->name, sizeof field->name, "%s", binding->name);
    field->dtype = binding->dtype;
    field->rank = binding->rank - 1;
    memcpy(field->shape, binding->shape + 1, field->rank * sizeof field->shape[0]);
    assert_true(model_elements(field) <= MOST_ELEMENTS);
    for (int64_t i = 0; i < model_elements(field); i++) {
        int64_t at = (int64_t)sample * binding->strides[0], rest = i;
        for (uint32_t d = field->rank; d-- > 0;) {
            at += rest % field->shape[d] * binding->strides[d + 1];
            rest /= field->shape[d];
        }
        memcpy(field->data + (size_t)i * bytes, data->memory + at, bytes);
    }
}

/* --------------------------------------------------------------- comparing */

void assert_row_is(const brim_field *field, uint64_t row, const struct model_field *model,
                   const char *text) {
    const size_t bytes = (size_t)model_elements(model) * brim_dtype_bytes(model->dtype);
    bool same = strcmp(field->name, model->name) == 0 && field->dtype == model->dtype &&
                field->rank == model->rank + 1 && field->strides[0] == (int64_t)bytes;
    for (uint32_t i = 0; same && i < model->rank; i++) {
        same = field->shape[i + 1] == model->shape[i];
    }
    if (!same) {
        fail_msg("\"%s\": field '%s' is not what the model says of '%s'", text, field->name,
                 model->name);
    }
    const uint8_t *data = (const uint8_t *)field->data + row * bytes;
    for (size_t i = 0; i < bytes; i++) {
        if (data[i] != model->data[i]) {
            fail_msg("\"%s\": field '%s', row %llu: element %zu differs from the model's", text,
                     field->name, (unsigned long long)row, i / brim_dtype_bytes(model->dtype));
        }
    }
}

void assert_fields_well_laid(const brim_batch *batch) {
    const brim_batch_info *info = brim_batch_get(batch);
    assert_null(brim_batch_field_at(batch, info->field_count));
    for (uint32_t f = 0; f < info->field_count; f++) {
        const brim_field *field = brim_batch_field_at(batch, f);
        int64_t stride = (int64_t)brim_dtype_bytes(field->dtype);
        assert_int_equal((uintptr_t)field->data % 64, 0);
        assert_ptr_equal(brim_batch_find(batch, field->name), field);
        assert_int_equal(field->shape[0], info->rows);
        assert_int_equal(field->device_kind, BRIM_DEVICE_HOST);
        assert_null(field->ready);
        for (uint32_t i = field->rank; i-- > 0;) {
            assert_int_equal(field->strides[i], stride);
            stride *= field->shape[i];
        }
        assert_int_equal(field->bytes, stride);
        for (uint32_t g = 0; g < f; g++) { /* fields do not overlap */
            const brim_field *other = brim_batch_field_at(batch, g);
            const uintptr_t a = (uintptr_t)field->data, b = (uintptr_t)other->data;
            assert_true(a + field->bytes <= b || b + other->bytes <= a);
        }
    }
}

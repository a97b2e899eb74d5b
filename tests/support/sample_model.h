/*
 * sample_model.h: what transforms do to a sample, written the slow and plain way.
 *
 * The model holds a field as a plain row-major array and does what a stage's
 * text says, one element at a time. The data that it starts from are bound
 * arrays, which the library reads in its own way.
 */
#ifndef BRIM_TESTS_SAMPLE_MODEL_H
#define BRIM_TESTS_SAMPLE_MODEL_H

#include "support/support.h"

#define MOST_ELEMENTS 4096

struct model_field {
    char name[16];
    brim_dtype dtype;
    uint32_t rank;
    int64_t shape[BRIM_MAX_RANK];
    uint8_t data[MOST_ELEMENTS * 8];
};

int64_t model_elements(const struct model_field *field);
void model_cast(struct model_field *field, brim_dtype dtype);
/* (value / max - mean[c]) / std[c] as it is promised: in float32, with scale and
 * bias rounded once. axis: of the channels. */
void model_normalize(struct model_field *field, const double *mean, const double *std,
                     int64_t channels, uint32_t axis, double max);
/* Dimension i of the result is dimension place[i] of the field. */
void model_layout(struct model_field *field, const uint32_t *place);
void model_one_hot(struct model_field *field, int64_t classes, brim_dtype dtype);

/* All dtypes but the complex ones. */
enum { REAL_DTYPES = 13 };
extern const brim_dtype real_dtypes[REAL_DTYPES];

/* A bound array of samples at random; its memory is freed by the test. */
struct data {
    brim_binding binding;
    uint8_t *memory;
};
/* rank and shape: of the whole, the first dimension counting the samples.
 * turned: the dimensions lie in memory in the reverse order. */
struct data data_new(const char *name, brim_dtype dtype, uint32_t rank, const int64_t *shape,
                     bool turned, uint64_t seed);
void load_sample(const struct data *data, uint64_t sample, struct model_field *field);

/* A row of a batch's field is, bit for bit, what the model has; text: of the
 * pipeline, for the message. */
void assert_row_is(const brim_field *field, uint64_t row, const struct model_field *model,
                   const char *text);
/* Names, strides, alignment and bytes of a batch's fields are as brim.h says. */
void assert_fields_well_laid(const brim_batch *batch);

#endif

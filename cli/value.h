/*
 * value.h: one field of one sample: where its elements lie, and how they are
 * written for people and as JSON.
 */
#ifndef CLI_VALUE_H
#define CLI_VALUE_H

#include <brim.h>
#include <stdbool.h>
#include <stdio.h>

/* The batch's dimension is gone; a ragged field has the length of this sample.
 * `rank` is 0 for a scalar. */
struct value {
    brim_dtype dtype;
    brim_form form;
    uint32_t rank;
    int64_t shape[BRIM_MAX_RANK];
    int64_t strides[BRIM_MAX_RANK]; /* in bytes; padded rows leave gaps */
    const unsigned char *data;
    uint64_t count; /* elements */
};

/* One element as a number, a complex one by its real part. */
double element_value(brim_dtype dtype, const unsigned char *data);

struct value value_of(const brim_field *field, uint64_t row);
/* A dense field of a whole batch, its rows in the first dimension. */
struct value value_of_batch(const brim_field *field);

/* Calls `visit` for runs of elements that lie together, row-major, until it
 * returns false or all are done. */
typedef bool value_visit(void *user, const unsigned char *data, uint64_t count);
bool value_walk(const struct value *value, value_visit *visit, void *user);

/* "float32 3x4 [0.5 1 2 ...]", "text 5 \"hello\"", "int64 7" */
void value_print(const struct value *value, FILE *file);
/* Lists nested by shape; text as a string; bytes, and text that is not UTF-8, as
 * {"base64": "..."}; numbers so that they read back to the same bits, and those
 * that JSON does not have as "NaN", "Infinity", "-Infinity"; a complex number as
 * a list of two. */
void value_json(const struct value *value, FILE *file);

#endif

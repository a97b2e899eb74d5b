/*
 * caption.c: labels in words.
 *
 * A vector whose elements are shares of a whole is a label after one_hot, mixup or
 * cutmix: the classes with the largest shares are named. Any other vector is shown
 * by its first elements.
 */
#include "caption.h"

#include <stdio.h>
#include <string.h>

#define ELEMENTS_SHOWN 3
#define LEAST_SHARE    0.005 /* what rounds to nothing is not named */

static bool is_whole(brim_dtype dtype) {
    return dtype >= BRIM_DTYPE_BOOL && dtype <= BRIM_DTYPE_I64;
}

bool caption_able(const brim_plan_field *field) {
    return field->form != BRIM_FORM_BYTES && field->rank <= 2;
}

/* Appends a word, or a line's end, as far as there is room. */
static void append(char text[CAPTION_BYTES], const char *more) {
    const size_t length = strlen(text);
    const bool apart = length > 0 && text[length - 1] != '\n' && *more != '\n';
    snprintf(text + length, CAPTION_BYTES - length, "%s%s", apart ? " " : "", more);
}

static void append_number(char text[CAPTION_BYTES], int digits, double number) {
    char written[32];
    snprintf(written, sizeof written, "%.*g", digits, number);
    append(text, written);
}

static void append_class(char text[CAPTION_BYTES], const brim_plan *plan, const char *field,
                         double number) {
    const char *name =
        number >= 0 && number < 0x1p53 ? brim_plan_class_name(plan, field, (size_t)number) : NULL;
    if (name != NULL) {
        append(text, name);
    } else {
        append_number(text, 15, number);
    }
}

/* ------------------------------------------------------------------ vectors */

static double element(const struct value *vector, int64_t index) {
    return element_value(vector->dtype, vector->data + index * vector->strides[0]);
}

/* The index of the largest element but for `other`; -1: there is none. */
static int64_t largest(const struct value *vector, int64_t other) {
    int64_t best = -1;
    for (int64_t i = 0; i < vector->shape[0]; i++) {
        if (i != other && (best < 0 || element(vector, i) > element(vector, best))) {
            best = i;
        }
    }
    return best;
}

static bool is_whole_of_shares(const struct value *vector) {
    double sum = 0;
    for (int64_t i = 0; i < vector->shape[0]; i++) {
        const double share = element(vector, i);
        if (!(share >= -LEAST_SHARE)) {
            return false;
        }
        sum += share;
    }
    return vector->shape[0] > 1 && sum > 1 - 2 * LEAST_SHARE && sum < 1 + 2 * LEAST_SHARE;
}

static void append_vector(char text[CAPTION_BYTES], const brim_plan *plan, const char *field,
                          const struct value *vector) {
    if (is_whole_of_shares(vector)) {
        const int64_t class = largest(vector, -1);
        const int64_t second = largest(vector, class);
        append_class(text, plan, field, (double)class);
        if (element(vector, second) >= LEAST_SHARE) {
            append_number(text, 2, element(vector, class));
            append(text, "\n");
            append_class(text, plan, field, (double)second);
            append_number(text, 2, element(vector, second));
        }
        return;
    }
    for (int64_t i = 0; i < vector->shape[0] && i < ELEMENTS_SHOWN; i++) {
        append_number(text, 4, element(vector, i));
    }
    if (vector->shape[0] > ELEMENTS_SHOWN) {
        append(text, "..");
    }
}

void caption_write(const brim_plan *plan, const char *field, const struct value *value,
                   char text[CAPTION_BYTES]) {
    text[0] = '\0';
    if (value->form == BRIM_FORM_TEXT) {
        const uint64_t bytes = value->count < CAPTION_BYTES ? value->count : CAPTION_BYTES - 1;
        snprintf(text, CAPTION_BYTES, "%.*s", (int)bytes, (const char *)value->data);
    } else if (value->rank > 0) {
        append_vector(text, plan, field, value);
    } else if (is_whole(value->dtype)) {
        append_class(text, plan, field, element_value(value->dtype, value->data));
    } else {
        append_number(text, 6, element_value(value->dtype, value->data));
    }
}

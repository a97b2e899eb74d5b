/*
 * shape.c: sizes and texts of shapes, and the strides of views.
 *
 * Shapes come from files, so nothing here assumes that a product of dimensions fits. Products are
 * checked where they are computed. Strides may wrap, without harm, if the caller has not checked
 * the shape yet.
 */
#include "tensor/tensor.h"

#include <stdio.h>

bool brim__shape_bytes_overflow(const struct brim__shape *shape, uint64_t unit, uint64_t *bytes) {
    /* With a dimension of 0 the shape is empty, however large the others are. */
    for (uint32_t i = 0; i < shape->rank; i++) {
        if (shape->dim[i] == 0) {
            *bytes = 0;
            return false;
        }
    }
    uint64_t product = unit;
    for (uint32_t i = 0; i < shape->rank; i++) {
        if (brim__mul_overflows(product, shape->dim[i], &product)) {
            return true;
        }
    }
    *bytes = product;
    return false;
}

bool brim__shape_equal(const struct brim__shape *a, const struct brim__shape *b) {
    if (a->rank != b->rank) {
        return false;
    }
    for (uint32_t i = 0; i < a->rank; i++) {
        if (a->dim[i] != b->dim[i]) {
            return false;
        }
    }
    return true;
}

const char *brim__shape_text(const struct brim__shape *shape, char text[BRIM__SHAPE_TEXT]) {
    if (shape->rank == 0) {
        brim__copy_text(text, BRIM__SHAPE_TEXT, "scalar");
        return text;
    }
    size_t length = 0;
    for (uint32_t i = 0; i < shape->rank; i++) {
        length += (size_t)snprintf(text + length, BRIM__SHAPE_TEXT - length, "%s%llu",
                                   i == 0 ? "" : "x", (unsigned long long)shape->dim[i]);
    }
    return text;
}

void brim__view_row_major(struct brim__view *view) {
    uint64_t stride = brim_dtype_bytes(view->dtype);
    for (uint32_t i = view->shape.rank; i-- > 0;) {
        view->stride[i] = (int64_t)stride;
        stride *= view->shape.dim[i];
    }
}

bool brim__view_is_row_major(const struct brim__view *view) {
    uint64_t expected = brim_dtype_bytes(view->dtype);
    bool row_major = true;
    for (uint32_t i = view->shape.rank; i-- > 0;) {
        const uint64_t dim = view->shape.dim[i];
        if (dim == 0) {
            return true;
        }
        /* The stride of a dimension of 1 is never used, and can be anything. */
        if (dim > 1 && (uint64_t)view->stride[i] != expected) {
            row_major = false;
        }
        expected *= dim;
    }
    return row_major;
}

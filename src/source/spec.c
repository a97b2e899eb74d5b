/*
 * spec.c: what a callback promises to put out, checked.
 */
#include "source/source.h"

brim_status brim__spec_field(const brim_binding *binding, size_t index,
                             struct brim__source_field *field, uint64_t *bytes) {
    const size_t least = offsetof(brim_field_spec, largest_bytes) + sizeof(uint64_t);
    brim_field_spec spec = { 0 };
    if (binding->fields == NULL || binding->fields->size < least) {
        return brim__fail(BRIM_INVALID,
                          "@%s: its `fields` are NULL or their `size` is not set to "
                          "sizeof(brim_field_spec)",
                          binding->name);
    }
    const size_t apart = binding->fields->size;
    memcpy(&spec, (const uint8_t *)binding->fields + index * apart, brim__min(apart, sizeof(spec)));
    const brim_status status = brim__field_name(field->name, spec.name);
    if (status != BRIM_OK) {
        return brim__fail_within(status, "@%s, field %zu", binding->name, index);
    }
    if (brim_dtype_bytes(spec.dtype) == 0) {
        return brim__fail(BRIM_INVALID, "@%s, field '%s': %d is not a dtype", binding->name,
                          field->name, (int)spec.dtype);
    }
    if (spec.rank >= BRIM_MAX_RANK) {
        return brim__fail(BRIM_INVALID,
                          "@%s, field '%s': rank %u, but a sample has at most %d dimensions",
                          binding->name, field->name, spec.rank, BRIM_MAX_RANK - 1);
    }
    field->view = (struct brim__view){ .dtype = spec.dtype, .shape = { .rank = spec.rank } };
    for (uint32_t i = 0; i < spec.rank; i++) {
        if (spec.shape[i] < 1) {
            return brim__fail(BRIM_INVALID,
                              "@%s, field '%s': dimension %u is %lld, but must be at least 1",
                              binding->name, field->name, i, (long long)spec.shape[i]);
        }
        field->view.shape.dim[i] = (uint64_t)spec.shape[i];
    }
    if (brim__shape_bytes_overflow(&field->view.shape, brim_dtype_bytes(spec.dtype), bytes) ||
        *bytes > INT64_MAX / (2 * BRIM__MAX_FIELDS)) {
        return brim__fail(BRIM_INVALID,
                          "@%s, field '%s': its shape needs more bytes than can be addressed",
                          binding->name, field->name);
    }
    if (spec.largest_bytes != 0 && spec.largest_bytes < *bytes) {
        return brim__fail(BRIM_INVALID,
                          "@%s, field '%s': largest_bytes is %llu, but its shape needs %llu bytes",
                          binding->name, field->name, (unsigned long long)spec.largest_bytes,
                          (unsigned long long)*bytes);
    }
    brim__view_row_major(&field->view);
    return BRIM_OK;
}

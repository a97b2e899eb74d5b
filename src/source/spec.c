/*
 * spec.c: checks the declared outputs of callbacks, and lays out the records that callbacks fill.
 * See spec.h.
 *
 * Invariant: the function gets a copy of the fields' description, made for each call. Changes to
 * that copy have no effect here, except for the lengths that it sets.
 */
#include "source/spec.h"
#include "base/struct.h"

#define FIELD_ALIGNMENT 64

/* Checks a form and the dtype and rank that it allows. */
static brim_status check_form(const brim_binding *binding, const char *name,
                              const brim_field_spec *spec) {
    switch (spec->form) {
    case BRIM_FORM_DENSE:
        return BRIM_OK;
    case BRIM_FORM_RAGGED:
        if (spec->rank == 0) {
            return brim__fail(BRIM_STATUS_INVALID,
                              "@%s, field '%s': a ragged field has rank 1 or more, and shape[0] "
                              "is its bound",
                              binding->name, name);
        }
        return BRIM_OK;
    case BRIM_FORM_TEXT:
    case BRIM_FORM_BYTES:
        if (spec->rank != 1 || spec->dtype != BRIM_DTYPE_U8) {
            return brim__fail(BRIM_STATUS_INVALID,
                              "@%s, field '%s': text and bytes are uint8 of rank 1, and shape[0] "
                              "is their bound; not %s of rank %u",
                              binding->name, name, brim_dtype_name(spec->dtype), spec->rank);
        }
        return BRIM_OK;
    }
    return brim__fail(BRIM_STATUS_INVALID, "@%s, field '%s': %d is not a form", binding->name, name,
                      (int)spec->form);
}

brim_status brim__spec_field(const brim_binding *binding, size_t index,
                             struct brim__source_field *field, uint64_t *bytes) {
    brim_field_spec spec = BRIM_FIELD_SPEC_INIT;
    if (binding->fields == NULL) {
        return brim__fail(BRIM_STATUS_INVALID, "@%s: its `fields` are NULL", binding->name);
    }
    const size_t apart = binding->fields->size;
    brim_status status = brim__struct_take("a field", "BRIM_FIELD_SPEC_INIT",
                                           (const uint8_t *)binding->fields + index * apart, apart,
                                           &spec, sizeof spec);
    if (status == BRIM_OK && spec.unused != 0) {
        status = brim__fail(BRIM_STATUS_UNSUPPORTED,
                            "a field: unused is %u, which brim %s does not know: initialise the "
                            "struct with BRIM_FIELD_SPEC_INIT, or load a newer library",
                            spec.unused, brim_version());
    }
    if (status != BRIM_OK) {
        return brim__fail_within(status, "@%s", binding->name);
    }
    status = brim__field_name(field->name, spec.name);
    if (status != BRIM_OK) {
        return brim__fail_within(status, "@%s, field %zu", binding->name, index);
    }
    if (brim_dtype_bytes(spec.dtype) == 0) {
        return brim__fail(BRIM_STATUS_INVALID, "@%s, field '%s': %d is not a dtype", binding->name,
                          field->name, (int)spec.dtype);
    }
    if (spec.rank >= BRIM_MAX_RANK) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "@%s, field '%s': rank %u, but a sample has at most %d dimensions",
                          binding->name, field->name, spec.rank, BRIM_MAX_RANK - 1);
    }
    status = check_form(binding, field->name, &spec);
    if (status != BRIM_OK) {
        return status;
    }
    field->form = spec.form;
    field->view = (struct brim__view){ .dtype = spec.dtype, .shape = { .rank = spec.rank } };
    for (uint32_t i = 0; i < spec.rank; i++) {
        if (spec.shape[i] < 1) {
            return brim__fail(BRIM_STATUS_INVALID,
                              "@%s, field '%s': dimension %u is %lld, but must be at least 1",
                              binding->name, field->name, i, (long long)spec.shape[i]);
        }
        field->view.shape.dim[i] = (uint64_t)spec.shape[i];
    }
    if (brim__shape_bytes_overflow(&field->view.shape, brim_dtype_bytes(spec.dtype), bytes) ||
        *bytes > INT64_MAX / (2 * BRIM__MAX_FIELDS)) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "@%s, field '%s': its shape needs more bytes than can be addressed",
                          binding->name, field->name);
    }
    if (spec.largest_bytes != 0 && spec.largest_bytes < *bytes) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "@%s, field '%s': largest_bytes is %llu, but its shape needs %llu bytes",
                          binding->name, field->name, (unsigned long long)spec.largest_bytes,
                          (unsigned long long)*bytes);
    }
    brim__view_row_major(&field->view);
    return BRIM_OK;
}

brim_value brim__spec_value(const char *name, brim_form form, brim_dtype dtype,
                            const struct brim__shape *shape) {
    brim_value value = {
        .size = sizeof value, .name = name, .dtype = dtype, .rank = shape->rank, .form = form
    };
    for (uint32_t i = 0; i < shape->rank; i++) {
        value.shape[i] = (int64_t)shape->dim[i];
    }
    brim__shape_bytes_overflow(shape, brim_dtype_bytes(dtype), &value.bytes);
    return value;
}

brim_status brim__spec_length(const char *name, const brim_value *output, uint64_t bound,
                              uint64_t *count) {
    if (output->shape[0] < 0 || (uint64_t)output->shape[0] > bound) {
        return brim__fail(BRIM_STATUS_CALLBACK,
                          "it says that field '%s' has %lld in its first dimension, but 0 to %llu "
                          "were declared: raise shape[0] of the field's spec",
                          name, (long long)output->shape[0], (unsigned long long)bound);
    }
    *count = (uint64_t)output->shape[0];
    return BRIM_OK;
}

/* ----------------------------------------------------------------- records */

static brim_status add_field(const brim_binding *binding, size_t index,
                             struct brim__source *source) {
    struct brim__source_field *field = &source->field[index];
    uint64_t bytes;
    const brim_status status = brim__spec_field(binding, index, field, &bytes);
    if (status != BRIM_OK) {
        return status;
    }
    for (size_t i = 0; i < index; i++) {
        if (strcmp(source->field[i].name, field->name) == 0) {
            return brim__fail(BRIM_STATUS_INVALID, "@%s: two fields have the name \"%s\"",
                              binding->name, field->name);
        }
    }
    field->view.offset = source->record_bytes;
    source->record_bytes += (field->form != BRIM_FORM_DENSE ? FIELD_ALIGNMENT : 0) +
                            brim__align(bytes, FIELD_ALIGNMENT);
    source->field_count++;
    const struct brim__shape *shape = &field->view.shape;
    const uint64_t kind = shape->rank | (uint64_t)field->form << 8;
    source->identity =
        brim__hash(field->name, strlen(field->name),
                   brim__hash_words(source->identity, (uint64_t)field->view.dtype, kind));
    for (uint32_t axis = 0; axis < shape->rank; axis++) {
        source->identity = brim__hash_words(source->identity, axis, shape->dim[axis]);
    }
    return BRIM_OK;
}

brim_status brim__spec_record(const brim_binding *binding, const char *stage,
                              struct brim__source *source) {
    if (binding->field_count == 0 || binding->field_count > BRIM__MAX_FIELDS) {
        return brim__fail(BRIM_STATUS_INVALID, "%s @%s: %zu fields, but a sample has 1 to %d",
                          stage, binding->name, binding->field_count, BRIM__MAX_FIELDS);
    }
    for (size_t i = 0; i < binding->field_count; i++) {
        const brim_status status = add_field(binding, i, source);
        if (status != BRIM_OK) {
            return brim__fail_within(status, "%s", stage);
        }
    }
    source->pitch = source->record_bytes;
    return BRIM_OK;
}

/* The address of a field's elements in its record. */
static uint8_t *elements_of(const struct brim__source_field *field, uint8_t *record) {
    return record + field->view.offset + (field->form != BRIM_FORM_DENSE ? FIELD_ALIGNMENT : 0);
}

void brim__spec_outputs(const struct brim__source *source, uint8_t *record, brim_value *outputs) {
    for (uint32_t i = 0; i < source->field_count; i++) {
        const struct brim__source_field *field = &source->field[i];
        outputs[i] =
            brim__spec_value(field->name, field->form, field->view.dtype, &field->view.shape);
        outputs[i].data = elements_of(field, record);
    }
}

brim_status brim__spec_spans(const struct brim__source *source, const brim_value *outputs,
                             uint8_t *record) {
    for (uint32_t i = 0; i < source->field_count; i++) {
        const struct brim__source_field *field = &source->field[i];
        if (field->form == BRIM_FORM_DENSE) {
            continue;
        }
        struct brim__span span = { .data = elements_of(field, record) };
        const brim_status status =
            brim__spec_length(field->name, &outputs[i], field->view.shape.dim[0], &span.count);
        if (status != BRIM_OK) {
            return status;
        }
        memcpy(record + field->view.offset, &span, sizeof span);
    }
    return BRIM_OK;
}

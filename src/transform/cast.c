/*
 * cast.c: `cast DTYPE`: another type of element. See tensor.h for the rules.
 *
 * Two casts in a row become one conversion if the first loses nothing and the second gives the same
 * without it. It does not always: integers wrap, but integers that became floats saturate. A cast
 * to a float type after normalize is part of normalize's conversion.
 *
 * Fields that differ in length are cast element by element. Text and bytes are
 * cast only if they are named, and are numbers from then on.
 */
#include "transform/program.h"
#include "transform/stages.h"

enum { DTYPE, ON };

/* Whether one conversion to `dtype` gives the same as the pending one and a second one. */
static bool fuses(const struct brim__conversion *pending, brim_dtype dtype) {
    if (pending->scale != NULL) {
        return pending->to == BRIM_DTYPE_F32 && brim__dtype_is_float(dtype);
    }
    const bool saturates = brim__dtype_is_float(pending->to) && brim__dtype_is_integer(dtype);
    /* bool to another type and back is no copy: every byte except 0 becomes 1 */
    const bool tidies = dtype == BRIM_DTYPE_BOOL && pending->from.dtype == BRIM_DTYPE_BOOL;
    return brim__dtype_holds(pending->to, pending->from.dtype) && !tidies &&
           !(saturates && brim__dtype_is_integer(pending->from.dtype));
}

static bool is_text(const struct brim__program_field *field) {
    return field->form == BRIM_FORM_TEXT || field->form == BRIM_FORM_BYTES;
}

static brim_status cast(struct brim__program *program, uint32_t f, brim_dtype dtype) {
    struct brim__program_field *field = &program->field[f];
    if (brim__dtype_is_complex(dtype) || brim__dtype_is_complex(field->pending.to)) {
        return brim__fail(BRIM_STATUS_UNSUPPORTED,
                          "cast: field '%s': complex numbers cannot be cast", field->name);
    }
    if (!fuses(&field->pending, dtype)) {
        const brim_status status = brim__program_flush(program, f, false);
        if (status != BRIM_OK) {
            return status;
        }
    }
    if (field->padded) {
        uint8_t value[sizeof field->pad_value] = { 0 };
        brim__kernels()->convert[field->pending.to][dtype](field->pad_value, value, 1);
        memcpy(field->pad_value, value, sizeof value);
    }
    field->form = is_text(field) ? BRIM_FORM_RAGGED : field->form;
    field->range = brim__range_cast(field, dtype);
    field->pending.to = dtype;
    field->stage = program->stage;
    return BRIM_OK;
}

/* Whether a field is cast only if it is named: text, and class numbers, which are no quantities. */
static bool is_spared(const struct brim__program_field *field) {
    return is_text(field) || field->class_count > 0;
}

static brim_status add(const struct brim__use *use, struct brim__program *program) {
    brim_dtype dtype;
    brim_status status =
        brim__at_argument(brim__dtype_parse(brim__item(use, DTYPE)->text, &dtype), "dtype");
    uint32_t fields = 0;
    if (status == BRIM_OK) {
        status = brim__program_on(program, use, ON, BRIM__ON_ALL, false, &fields);
    }
    for (uint32_t f = 0; status == BRIM_OK && f < program->field_count; f++) {
        const struct brim__program_field *field = &program->field[f];
        const bool meant = (fields >> f & 1) != 0 && (brim__given(use, ON) || !is_spared(field));
        if (meant && (field->pending.to != dtype || is_text(field))) {
            status = cast(program, f, dtype);
        }
    }
    return status;
}

static const brim_argument_info arguments[] = {
    [DTYPE] = { .name = "dtype",
                .type = BRIM_TYPE_WORD,
                .flags = BRIM_ARGUMENT_FLAG_REQUIRED | BRIM_ARGUMENT_FLAG_POSITIONAL,
                .help = "type to convert to: uint8, int64, float16, bfloat16, float32, ..." },
    [ON] =
        BRIM__ON_ARGUMENT("fields to convert; default: all except text, bytes and class numbers"),
};

const struct brim__stage brim__stage_cast = {
    .info = { .name = "cast",
              .summary = "converts elements to another type",
              .example = "cast int64 on=label",
              .room = BRIM_ROOM_TRANSFORM,
              .version = 1,
              .arguments = arguments,
              .argument_count = BRIM__COUNT(arguments) },
    .add_transform = add,
};

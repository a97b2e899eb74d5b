/*
 * unbatch.c: `unbatch`: a sample becomes as many samples as its fields have in
 * their first dimension, which they lose; fields that are not named are repeated.
 *
 * The first step of the expansion finds the number of parts. Each field has a step that writes the
 * pending conversion of one part directly into the row:
 *
 *     i = 0, 1, ...:  check | part i of field a -> row | part i of field b -> row
 */
#include "transform/program.h"
#include "transform/stages.h"

enum { ON };

struct parts {
    uint64_t count; /* of the dense fields; UINT64_MAX: there are none */
    uint32_t span_count;
    struct brim__reader span[BRIM__MAX_FIELDS];
    char name[BRIM__MAX_FIELDS][BRIM_NAME_BYTES]; /* of the spans' fields */
};

/* The distance from part 0 to part 1. */
struct part {
    int64_t stride;
    uint64_t offset; /* not dense: of the span */
};

static brim_status run_check(const struct brim__step *step, const struct brim__frame *frame) {
    const struct parts *self = step->self;
    uint64_t count = self->count;
    for (uint32_t i = 0; i < self->span_count; i++) {
        const uint64_t own = brim__reader_span(&self->span[i], frame).count;
        if (count != UINT64_MAX && own != count) {
            return brim__fail(BRIM_STATUS_CORRUPT,
                              "unbatch: field '%s' has %llu in its first dimension, but another "
                              "field has %llu",
                              self->name[i], (unsigned long long)own, (unsigned long long)count);
        }
        count = own;
    }
    return frame->expansion_index < count ? BRIM_OK : BRIM__EXHAUSTED;
}

static brim_status run_dense(const struct brim__step *step, const struct brim__frame *frame) {
    const struct part *part = step->self;
    const struct brim__conversion *conversion = &step->conversion;
    const int64_t at =
        (int64_t)conversion->from.offset + (int64_t)frame->expansion_index * part->stride;
    conversion->run(conversion, brim__operand_read(&step->from, frame) + at,
                    brim__operand_write(&step->to, frame));
    return BRIM_OK;
}

static brim_status run_ragged(const struct brim__step *step, const struct brim__frame *frame) {
    const struct part *part = step->self;
    const struct brim__span span = brim__operand_span(&step->from, part->offset, frame);
    step->conversion.run(&step->conversion,
                         span.data + (int64_t)frame->expansion_index * part->stride,
                         brim__operand_write(&step->to, frame));
    return BRIM_OK;
}

/* ---------------------------------------------------------------- building */

static brim_status check_field(const struct brim__program_field *field) {
    if (field->padded) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "unbatch: field '%s' is to be padded in the batch: put unbatch before "
                          "pad",
                          field->name);
    }
    if (field->form == BRIM_FORM_TEXT || field->form == BRIM_FORM_BYTES ||
        field->pending.from.shape.rank == 0) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "unbatch: field '%s' is %s, which cannot be taken apart: name the fields "
                          "that can, as in on=a,b; others are repeated",
                          field->name,
                          field->form == BRIM_FORM_TEXT    ? "text"
                          : field->form == BRIM_FORM_BYTES ? "bytes"
                                                           : "one number");
    }
    if (field->pending.from.shape.dim[0] == 0) {
        return brim__fail(BRIM_STATUS_INVALID, "unbatch: field '%s' has 0 in its first dimension",
                          field->name);
    }
    return BRIM_OK;
}

/* Adds a field to those that are checked, and makes sure that its pending conversion can be carried
 * out part by part. */
static brim_status prepare(struct brim__program *program, uint32_t f, struct parts *parts,
                           uint64_t *most) {
    const struct brim__program_field *field = &program->field[f];
    const struct brim__conversion *pending = &field->pending;
    const uint64_t first = pending->from.shape.dim[0];
    if (field->form == BRIM_FORM_DENSE) {
        if (parts->count != UINT64_MAX && parts->count != first) {
            return brim__fail(BRIM_STATUS_INVALID,
                              "unbatch: field '%s' has %llu in its first dimension, but another "
                              "field has %llu",
                              field->name, (unsigned long long)first,
                              (unsigned long long)parts->count);
        }
        parts->count = first;
    }
    *most = brim__min(*most, first);
    const bool along =
        pending->scale != NULL && pending->channels > 1 && pending->channel_axis == 0;
    return along ? brim__program_flush(program, f, false) : BRIM_OK;
}

/* Replaces the field by one of its parts. */
static brim_status split(struct brim__program *program, uint32_t f) {
    struct brim__program_field *field = &program->field[f];
    struct brim__conversion pending = field->pending;
    struct brim__view *view = &pending.from;
    struct part *part;
    struct brim__step *step;
    uint64_t bytes = 0;
    brim_status status = brim__arena_take(program->arena, sizeof *part, &part);
    if (status != BRIM_OK) {
        return status;
    }
    part->stride = view->stride[0];
    view->shape.rank--;
    memmove(view->shape.dim, view->shape.dim + 1, view->shape.rank * sizeof view->shape.dim[0]);
    memmove(view->stride, view->stride + 1, view->shape.rank * sizeof view->stride[0]);
    pending.channel_axis -= pending.channel_axis > 0;
    if (field->form != BRIM_FORM_DENSE) {
        part->offset = view->offset;
        view->offset = 0;
    }
    brim__shape_bytes_overflow(&view->shape, brim_dtype_bytes(pending.to), &bytes);
    status = brim__conversion_prepare(&pending);
    if (status == BRIM_OK) {
        status = brim__program_step(program, &step);
    }
    if (status == BRIM_OK) {
        status = brim__program_scratch(program, bytes, &step->to);
    }
    if (status != BRIM_OK) {
        return brim__fail_within(status, "unbatch: field '%s'", field->name);
    }
    step->run = field->form == BRIM_FORM_DENSE ? run_dense : run_ragged;
    step->self = part;
    step->from = field->at;
    step->conversion = pending;
    brim__program_set(program, f, BRIM_FORM_DENSE, pending.to, &view->shape, field->range,
                      &step->to);
    return BRIM_OK;
}

static brim_status add(const struct brim__use *use, struct brim__program *program) {
    uint32_t fields = 0;
    uint64_t most = UINT64_MAX;
    struct parts *parts = NULL;
    struct brim__step *step;
    brim_status status = brim__program_on(program, use, ON, BRIM__ON_ALL, false, &fields);
    if (status == BRIM_OK) {
        status = brim__arena_take(program->arena, sizeof *parts, &parts);
    }
    if (status != BRIM_OK) {
        return status;
    }
    parts->count = UINT64_MAX;
    for (uint32_t f = 0; status == BRIM_OK && f < program->field_count; f++) {
        if (fields >> f & 1) {
            status = check_field(&program->field[f]);
            if (status == BRIM_OK) {
                status = prepare(program, f, parts, &most);
            }
        }
    }
    if (status == BRIM_OK) {
        status = brim__program_expand(program, "unbatch", most);
    }
    for (uint32_t f = 0; status == BRIM_OK && f < program->field_count; f++) {
        if ((fields >> f & 1) && program->field[f].form != BRIM_FORM_DENSE) {
            memcpy(parts->name[parts->span_count], program->field[f].name, BRIM_NAME_BYTES);
            brim__program_reader(program, f, &parts->span[parts->span_count++]);
        }
    }
    if (status == BRIM_OK) {
        status = brim__program_step(program, &step);
    }
    if (status != BRIM_OK) {
        return status;
    }
    step->run = run_check;
    step->self = parts;
    for (uint32_t f = 0; status == BRIM_OK && f < program->field_count; f++) {
        if (fields >> f & 1) {
            status = split(program, f);
        }
    }
    return status;
}

static const brim_argument_info arguments[] = {
    [ON] = BRIM__ON_ARGUMENT("fields to take apart; others are repeated; default: all"),
};

const struct brim__stage brim__stage_unbatch = {
    .info = { .name = "unbatch",
              .summary = "makes many samples of one, along the first dimension of its fields",
              .example = "unbatch on=x,label",
              .room = BRIM_ROOM_TRANSFORM,
              .version = 1,
              .arguments = arguments,
              .argument_count = BRIM__COUNT(arguments) },
    .add_transform = add,
};

/*
 * boxes.c: boxes that belong to an image.
 *
 * If a stage names a field of boxes (x0, y0, x1, y1 in pixels of the decoded image) beside a
 * picture, the boxes are moved like the image, by the acts that the stage's operation chose for
 * this sample. A box becomes the smallest upright box around its four moved corners, clipped to the
 * image. Boxes are never removed: a box outside the image gets area 0, so that labels still match
 * their boxes.
 *
 * The step runs after the picture's, whose acts are still in scratch.
 */
#include "transform/picture.h"

struct boxes {
    const struct brim__picture *picture;
    uint64_t ops; /* bits: whose acts move these boxes */
    bool ragged;
    uint64_t count; /* dense: how many there are */
};

bool brim__boxes_are(const struct brim__program_field *field) {
    const struct brim__shape *shape = &field->pending.from.shape;
    const brim_dtype dtype = field->pending.to;
    return (field->form == BRIM_FORM_DENSE || field->form == BRIM_FORM_RAGGED) &&
           shape->rank >= 1 && shape->dim[shape->rank - 1] == 4 &&
           (field->form == BRIM_FORM_DENSE || shape->rank == 2) &&
           (brim__dtype_is_float(dtype) ||
            (brim__dtype_is_integer(dtype) && dtype != BRIM_DTYPE_U8));
}

static double least(double a, double b) {
    return a < b ? a : b;
}
static double most(double a, double b) {
    return a > b ? a : b;
}

static void move(const struct brim__act *act, float box[4]) {
    const double *m = act->map;
    double low[2] = { 0 }, high[2] = { 0 };
    for (int corner = 0; corner < 4; corner++) {
        const double x = box[corner & 1 ? 2 : 0], y = box[corner & 2 ? 3 : 1];
        const double to[2] = { m[0] * x + m[1] * y + m[2], m[3] * x + m[4] * y + m[5] };
        for (int axis = 0; axis < 2; axis++) {
            low[axis] = corner == 0 ? to[axis] : least(low[axis], to[axis]);
            high[axis] = corner == 0 ? to[axis] : most(high[axis], to[axis]);
        }
    }
    const double side[2] = { act->width, act->height };
    for (int axis = 0; axis < 2; axis++) {
        box[axis] = (float)least(most(low[axis], 0), side[axis]);
        box[axis + 2] = (float)least(most(high[axis], 0), side[axis]);
    }
}

static brim_status run(const struct brim__step *step, const struct brim__frame *frame) {
    const struct boxes *self = step->self;
    const struct brim__acts *acts =
        (const struct brim__acts *)(const void *)(frame->scratch + self->picture->at_acts);
    uint64_t count = self->count;
    const uint8_t *from;
    uint8_t *to;
    if (self->ragged) {
        const struct brim__span span = brim__operand_span(&step->from, 0, frame);
        uint64_t *kept;
        to = brim__operand_ragged(&step->to, frame, &kept);
        from = span.data;
        count = *kept = span.count;
    } else {
        from = brim__operand_read(&step->from, frame);
        to = brim__operand_write(&step->to, frame);
    }
    for (uint64_t i = 0; i < count; i++) {
        float box[4];
        memcpy(box, from + i * sizeof box, sizeof box);
        for (uint32_t a = 0; a < acts->count; a++) {
            if (self->ops >> acts->act[a].op & 1) {
                move(&acts->act[a], box);
            }
        }
        memcpy(to + i * sizeof box, box, sizeof box);
    }
    return BRIM_OK;
}

brim_status brim__boxes_follow(struct brim__program *program, struct brim__picture *picture,
                               uint32_t op, uint32_t f) {
    struct brim__program_field *field = &program->field[f];
    for (uint32_t i = 0; i < program->step_count; i++) {
        /* these boxes already follow this picture, and nothing was done to them since */
        if (program->step[i]->run == run && field->written == &program->step[i]->to &&
            brim__conversion_is_copy(&field->pending) &&
            ((struct boxes *)program->step[i]->self)->picture == picture) {
            ((struct boxes *)program->step[i]->self)->ops |= UINT64_C(1) << op;
            return BRIM_OK;
        }
    }
    struct boxes *self;
    struct brim__step *step;
    const struct brim__shape shape = field->pending.from.shape;
    uint64_t bytes = 0;
    /* first the pending conversion in its own type, then the cast to float32 */
    brim_status status = brim__program_flush(program, f, false);
    if (status == BRIM_OK && field->padded) {
        uint8_t value[sizeof field->pad_value] = { 0 };
        brim__kernels()->convert[field->pending.to][BRIM_DTYPE_F32](field->pad_value, value, 1);
        memcpy(field->pad_value, value, sizeof value);
    }
    if (status == BRIM_OK) {
        field->pending.to = BRIM_DTYPE_F32;
        status = brim__program_flush(program, f, true);
    }
    if (status == BRIM_OK && brim__shape_bytes_overflow(&shape, sizeof(float), &bytes)) {
        status = brim__fail(BRIM_STATUS_INVALID, "field '%s' is too large", field->name);
    }
    if (status == BRIM_OK) {
        status = brim__arena_take(program->arena, sizeof *self, &self);
    }
    if (status == BRIM_OK) {
        status = brim__program_step(program, &step);
    }
    if (status == BRIM_OK) {
        status = brim__program_room(program, field->form, bytes, &step->to);
    }
    if (status != BRIM_OK) {
        return status;
    }
    self->picture = picture;
    self->ops = UINT64_C(1) << op;
    self->ragged = field->form != BRIM_FORM_DENSE;
    self->count = bytes / (4 * sizeof(float));
    step->run = run;
    step->self = self;
    step->from = field->at;
    brim__program_set(program, f, field->form, BRIM_DTYPE_F32, &shape, 0, &step->to);
    return BRIM_OK;
}

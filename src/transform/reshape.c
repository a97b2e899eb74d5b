/*
 * reshape.c: `reshape 28 28 1`: gives the same elements other dimensions. It costs nothing if the
 * elements are contiguous; otherwise the pending conversion is done first.
 */
#include "transform/program.h"
#include "transform/stages.h"

enum { SHAPE, ON };

static brim_status new_shape(const struct brim__values *wanted, uint64_t elements,
                             struct brim__shape *shape) {
    if (wanted->count >= BRIM_MAX_RANK) {
        return brim__fail(BRIM_STATUS_INVALID, "reshape: at most %d dimensions", BRIM_MAX_RANK - 1);
    }
    uint64_t known = 1;
    int open = -1;
    *shape = (struct brim__shape){ .rank = (uint32_t)wanted->count };
    for (uint32_t i = 0; i < shape->rank; i++) {
        const int64_t dim = wanted->items[i].integer;
        if (dim == -1 && open < 0) {
            open = (int)i;
        } else if (dim < 0 || brim__mul_overflows(known, (uint64_t)dim, &known)) {
            return brim__fail(BRIM_STATUS_INVALID,
                              "reshape: the dimension %lld is wrong; only one may be -1",
                              (long long)dim);
        } else {
            shape->dim[i] = (uint64_t)dim;
        }
    }
    if (open >= 0 && known > 0 && elements % known == 0) {
        shape->dim[open] = elements / known;
        known = elements;
    }
    if (known != elements || (open >= 0 && shape->dim[open] == 0 && elements > 0)) {
        return brim__fail(BRIM_STATUS_INVALID, "reshape: %llu elements do not fill the new shape",
                          (unsigned long long)elements);
    }
    return BRIM_OK;
}

/* Gives a pending conversion another shape, if its elements are row-major and have one scale and
 * bias; false if it must be carried out first. */
static bool reshape_pending(struct brim__conversion *pending, const struct brim__shape *shape) {
    if (!brim__view_is_row_major(&pending->from) ||
        (pending->scale != NULL && pending->channels != 1)) {
        return false;
    }
    pending->from.shape = *shape;
    brim__view_row_major(&pending->from);
    return true;
}

static brim_status add(const struct brim__use *use, struct brim__program *program) {
    uint32_t fields = 0;
    brim_status status = brim__program_on(program, use, ON, BRIM__ON_FIRST, true, &fields);
    for (uint32_t f = 0; status == BRIM_OK && f < program->field_count; f++) {
        struct brim__program_field *field = &program->field[f];
        if ((fields >> f & 1) == 0) {
            continue;
        }
        uint64_t elements = 0;
        struct brim__shape shape;
        brim__shape_bytes_overflow(&field->pending.from.shape, 1, &elements);
        status = new_shape(&use->values[SHAPE], elements, &shape);
        if (status != BRIM_OK) {
            return brim__fail_within(status, "field '%s'", field->name);
        }
        if (!reshape_pending(&field->pending, &shape)) {
            status = brim__program_flush(program, f, false);
            if (status == BRIM_OK) {
                reshape_pending(&field->pending, &shape);
            }
        }
        field->stage = program->stage;
    }
    return status;
}

static const brim_argument_info arguments[] = {
    [SHAPE] = { .name = "shape",
                .type = BRIM_TYPE_INTEGER,
                .flags = BRIM_ARGUMENT_FLAG_REQUIRED | BRIM_ARGUMENT_FLAG_POSITIONAL |
                         BRIM_ARGUMENT_FLAG_LIST,
                .least = -1,
                .most = 9007199254740992.0,
                .help = "the new dimensions; one may be -1" },
    [ON] = BRIM__ON_ARGUMENT("fields to reshape; default: the first"),
};

const struct brim__stage brim__stage_reshape = {
    .info = { .name = "reshape",
              .summary = "gives the same elements other dimensions",
              .example = "reshape 28 28 1",
              .room = BRIM_ROOM_TRANSFORM,
              .version = 1,
              .arguments = arguments,
              .argument_count = BRIM__COUNT(arguments) },
    .add_transform = add,
};

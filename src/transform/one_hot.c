/*
 * one_hot.c: `one_hot CLASSES`: a class number becomes a vector with a 1 at its index. The field
 * gains a last dimension of CLASSES. A number outside is bad data.
 */
#include "transform/program.h"
#include "transform/stages.h"

enum { CLASSES, DTYPE, ON };

struct one_hot {
    uint64_t classes;
    uint64_t labels; /* numbers in one sample */
    uint64_t element;
    unsigned char one[16]; /* a one of the output's type */
    char name[BRIM_NAME_BYTES];
};

static brim_status run(const struct brim__step *step, const struct brim__frame *frame) {
    const struct one_hot *self = step->self;
    const uint8_t *labels = brim__operand_read(&step->from, frame);
    uint8_t *row = brim__operand_write(&step->to, frame);
    memset(row, 0, self->labels * self->classes * self->element);
    for (uint64_t i = 0; i < self->labels; i++) {
        int64_t label;
        memcpy(&label, labels + i * sizeof label, sizeof label);
        if (label < 0 || (uint64_t)label >= self->classes) {
            return brim__fail(BRIM_STATUS_CORRUPT, "one_hot: field '%s' is %lld, outside 0 to %llu",
                              self->name, (long long)label, (unsigned long long)self->classes - 1);
        }
        memcpy(row + (i * self->classes + (uint64_t)label) * self->element, self->one,
               self->element);
    }
    return BRIM_OK;
}

static brim_status encode(const struct brim__use *use, struct brim__program *program,
                          uint32_t index, brim_dtype dtype) {
    struct brim__program_field *field = &program->field[index];
    if (!brim__dtype_is_integer(field->pending.to) && field->pending.to != BRIM_DTYPE_BOOL) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "one_hot: field '%s' is %s, not an integer: give on=", field->name,
                          brim_dtype_name(field->pending.to));
    }
    if (field->class_count > (uint64_t)brim__item(use, CLASSES)->integer) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "one_hot: field '%s' has %llu classes: use one_hot %llu", field->name,
                          (unsigned long long)field->class_count,
                          (unsigned long long)field->class_count);
    }
    struct brim__shape shape = field->pending.from.shape;
    if (shape.rank + 2 > BRIM_MAX_RANK) {
        return brim__fail(BRIM_STATUS_UNSUPPORTED, "one_hot: field '%s' has too many dimensions",
                          field->name);
    }
    struct one_hot *self;
    struct brim__step *step;
    brim_status status = brim__arena_take(program->arena, sizeof *self, &self);
    if (status != BRIM_OK) {
        return status;
    }
    if (field->pending.to != BRIM_DTYPE_I64) {
        /* numbers beyond int64 (of uint64) become negative and so are refused */
        if (!brim__dtype_holds(field->pending.to, field->pending.from.dtype)) {
            status = brim__program_flush(program, index, false);
        }
        field->pending.to = BRIM_DTYPE_I64;
    }
    if (status == BRIM_OK) {
        status = brim__program_flush(program, index, true);
    }
    uint64_t bytes = 0;
    self->classes = (uint64_t)brim__item(use, CLASSES)->integer;
    self->element = brim_dtype_bytes(dtype);
    brim__shape_bytes_overflow(&shape, 1, &self->labels);
    shape.dim[shape.rank++] = self->classes;
    memcpy(self->name, field->name, sizeof self->name);
    if (status == BRIM_OK && brim__shape_bytes_overflow(&shape, self->element, &bytes)) {
        status =
            brim__fail(BRIM_STATUS_INVALID, "one_hot: field '%s' becomes too large", field->name);
    }
    if (status == BRIM_OK) {
        status = brim__program_step(program, &step);
    }
    if (status == BRIM_OK) {
        status = brim__program_scratch(program, bytes, &step->to);
    }
    if (status != BRIM_OK) {
        return status;
    }
    const uint8_t one = 1;
    brim__kernels()->convert[BRIM_DTYPE_U8][dtype](&one, self->one, 1);
    step->run = run;
    step->self = self;
    step->from = field->at;
    brim__program_set(program, index, BRIM_FORM_DENSE, dtype, &shape, 0, &step->to);
    field->class_count = 0;
    return BRIM_OK;
}

static brim_status add(const struct brim__use *use, struct brim__program *program) {
    brim_dtype dtype;
    brim_status status =
        brim__at_argument(brim__dtype_parse(brim__item(use, DTYPE)->text, &dtype), "dtype");
    uint32_t fields = 0;
    if (status == BRIM_OK && brim__dtype_is_complex(dtype)) {
        status = brim__fail(BRIM_STATUS_UNSUPPORTED, "one_hot: the dtype cannot be complex");
    }
    if (status == BRIM_OK) {
        status = brim__program_on(program, use, ON, BRIM__ON_LAST, true, &fields);
    }
    for (uint32_t f = 0; status == BRIM_OK && f < program->field_count; f++) {
        if (fields >> f & 1) {
            status = encode(use, program, f, dtype);
        }
    }
    return status;
}

static const brim_argument_info arguments[] = {
    [CLASSES] = { .name = "classes",
                  .type = BRIM_TYPE_INTEGER,
                  .flags = BRIM_ARGUMENT_FLAG_REQUIRED | BRIM_ARGUMENT_FLAG_POSITIONAL,
                  .least = 1,
                  .most = 1 << 24,
                  .help = "number of classes" },
    [DTYPE] = { .name = "dtype",
                .type = BRIM_TYPE_WORD,
                .fallback = "float32",
                .help = "type of the vector's elements" },
    [ON] = BRIM__ON_ARGUMENT("fields of class numbers; default: the last"),
};

const struct brim__stage brim__stage_one_hot = {
    .info = { .name = "one_hot",
              .summary = "makes class numbers vectors with a 1 at their index",
              .example = "one_hot 10 on=label",
              .room = BRIM_ROOM_TRANSFORM,
              .version = 1,
              .arguments = arguments,
              .argument_count = BRIM__COUNT(arguments) },
    .add_transform = add,
};

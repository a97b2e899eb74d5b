/*
 * pad.c: `pad on=tokens`: makes one array of a field whose samples differ in length.
 *
 * With to=N every sample is padded to N, and the field is dense after this stage. Without it, the
 * longest sample of a batch decides, which is not known while samples are made. So the field is
 * only marked, and the batch is padded when it is complete. The lengths of the samples become
 * another field.
 */
#include "transform/program.h"
#include "transform/stages.h"

#include <math.h>

enum { FIELDS, TO, VALUE, CUT, LENGTHS };

struct pad {
    struct brim__reader span;
    struct brim__operand length;
    /* with to=N only */
    uint64_t to;
    bool cut;
    brim_dtype from, dtype;
    uint64_t elements; /* in one of the first dimension */
    uint8_t value[16];
    char name[BRIM_NAME_BYTES];
};

/* Copies of one element, each copy twice as long as the one before. */
static void fill(uint8_t *to, uint64_t count, const uint8_t *value, uint64_t element) {
    const uint64_t bytes = count * element;
    if (count > 0) {
        memcpy(to, value, element);
    }
    for (uint64_t done = element; done < bytes; done *= 2) {
        memcpy(to + done, to, brim__min(done, bytes - done));
    }
}

static brim_status run_length(const struct brim__step *step, const struct brim__frame *frame) {
    const struct pad *self = step->self;
    const int64_t length = (int64_t)brim__reader_span(&self->span, frame).count;
    memcpy(brim__operand_write(&self->length, frame), &length, sizeof length);
    return BRIM_OK;
}

static brim_status run_fixed(const struct brim__step *step, const struct brim__frame *frame) {
    const struct pad *self = step->self;
    const struct brim__span span = brim__reader_span(&self->span, frame);
    if (span.count > self->to && !self->cut) {
        return brim__fail(BRIM_STATUS_CORRUPT,
                          "pad: field '%s' has %llu in its first dimension, more than to=%llu; "
                          "cut=yes cuts it off",
                          self->name, (unsigned long long)span.count, (unsigned long long)self->to);
    }
    const uint64_t count = brim__min(span.count, self->to);
    const int64_t length = (int64_t)count;
    const uint64_t filled = count * self->elements;
    const size_t bytes = brim_dtype_bytes(self->dtype);
    uint8_t *row = brim__operand_write(&step->to, frame);
    if (self->from != self->dtype) {
        brim__kernels()->convert[self->from][self->dtype](span.data, row, filled);
    } else if (filled > 0) {
        memcpy(row, span.data, filled * bytes);
    }
    fill(row + filled * bytes, (self->to - count) * self->elements, self->value, bytes);
    memcpy(brim__operand_write(&self->length, frame), &length, sizeof length);
    return BRIM_OK;
}

/* ---------------------------------------------------------------- building */

/* The value as an element of the field's type, which must be able to hold it. */
static brim_status read_value(const struct brim__use *use, const struct brim__program_field *field,
                              uint8_t element[16]) {
    const struct brim__item *item = brim__item(use, VALUE);
    const brim_dtype dtype = field->pending.to;
    const struct brim__kernels *kernels = brim__kernels();
    bool holds = item->real == 0;
    if (brim__dtype_is_float(dtype)) {
        double back;
        kernels->convert[BRIM_DTYPE_F64][dtype](&item->real, element, 1);
        kernels->convert[dtype][BRIM_DTYPE_F64](element, &back, 1);
        holds = isfinite(back);
    } else if (!brim__dtype_is_complex(dtype) && item->integral) {
        int64_t back;
        kernels->convert[BRIM_DTYPE_I64][dtype](&item->integer, element, 1);
        kernels->convert[dtype][BRIM_DTYPE_I64](element, &back, 1);
        /* the upper half of uint64 comes back negative; no literal is that large */
        holds = back == item->integer && !(dtype == BRIM_DTYPE_U64 && item->integer < 0);
    }
    return holds ? BRIM_OK
                 : brim__fail(BRIM_STATUS_INVALID, "pad: field '%s' is %s, which has no value %s",
                              field->name, brim_dtype_name(dtype), item->text);
}

/* Adds the step that makes the field dense. */
static brim_status make_dense(struct brim__program *program, uint32_t f, struct brim__step *step,
                              struct pad *self) {
    const struct brim__program_field *field = &program->field[f];
    struct brim__shape shape = field->pending.from.shape;
    struct brim__shape inner = shape;
    uint64_t bytes = 0;
    inner.dim[0] = 1;
    shape.dim[0] = self->to;
    self->from = field->pending.from.dtype;
    self->dtype = field->pending.to;
    if (brim__shape_bytes_overflow(&inner, 1, &self->elements) ||
        brim__shape_bytes_overflow(&shape, brim_dtype_bytes(self->dtype), &bytes)) {
        return brim__fail(BRIM_STATUS_INVALID, "pad: field '%s' becomes too large with to=%llu",
                          field->name, (unsigned long long)self->to);
    }
    const brim_status status = brim__program_scratch(program, bytes, &step->to);
    if (status == BRIM_OK) {
        step->run = run_fixed;
        brim__program_set(program, f, BRIM_FORM_DENSE, self->dtype, &shape, field->range,
                          &step->to);
    }
    return status;
}

static brim_status add_lengths(const struct brim__use *use, struct brim__program *program,
                               const char *name, struct pad *self) {
    char own[BRIM_NAME_BYTES];
    if (brim__given(use, LENGTHS)) {
        name = brim__item(use, LENGTHS)->text;
    } else {
        const char *const ending = "_length";
        const size_t length = strlen(name);
        if (length + strlen(ending) >= sizeof own) {
            return brim__fail(BRIM_STATUS_INVALID,
                              "pad: \"%s_length\" is too long for a field's name: give another "
                              "with lengths=",
                              name);
        }
        memcpy(own, name, length);
        memcpy(own + length, ending, strlen(ending) + 1);
        name = own;
    }
    uint32_t f;
    brim_status status = brim__program_field(program, "pad", name, &f);
    if (status == BRIM_OK) {
        status = brim__program_scratch(program, sizeof(int64_t), &self->length);
    }
    if (status == BRIM_OK) {
        const struct brim__shape scalar = { .rank = 0 };
        brim__program_set(program, f, BRIM_FORM_DENSE, BRIM_DTYPE_I64, &scalar, 0, &self->length);
    }
    return status;
}

static brim_status pad(const struct brim__use *use, struct brim__program *program, uint32_t f) {
    struct brim__program_field *field = &program->field[f];
    struct pad *self;
    struct brim__step *step;
    brim_status status = brim__arena_take(program->arena, sizeof *self, &self);
    if (status == BRIM_OK && field->deferred) {
        status = brim__program_flush(program, f, false);
    }
    if (status == BRIM_OK) {
        status = read_value(use, field, self->value);
    }
    if (status == BRIM_OK) {
        status = brim__program_step(program, &step);
    }
    if (status != BRIM_OK) {
        return status;
    }
    memcpy(self->name, field->name, sizeof self->name);
    self->to = (uint64_t)brim__item(use, TO)->integer;
    self->cut = brim__item(use, CUT)->integer != 0;
    brim__program_reader(program, f, &self->span);
    step->self = self;
    if (self->to > 0) {
        status = make_dense(program, f, step, self);
    } else {
        step->run = run_length;
        field->form = BRIM_FORM_RAGGED;
        field->padded = true;
        memcpy(field->pad_value, self->value, sizeof field->pad_value);
    }
    return status == BRIM_OK ? add_lengths(use, program, self->name, self) : status;
}

static brim_status add(const struct brim__use *use, struct brim__program *program) {
    uint32_t fields = 0;
    brim_status status = brim__program_on(program, use, FIELDS, BRIM__ON_ALL, false, &fields);
    if (status != BRIM_OK) {
        return status;
    }
    if (brim__given(use, LENGTHS) && (fields & (fields - 1)) != 0) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "pad: lengths= names one field, but on= several: pad them one by one");
    }
    if (brim__item(use, CUT)->integer != 0 && brim__item(use, TO)->integer == 0) {
        return brim__fail(BRIM_STATUS_INVALID, "pad: cut=yes needs to=, the length to cut at");
    }
    const uint32_t count = program->field_count; /* those that are added come after it */
    for (uint32_t f = 0; status == BRIM_OK && f < count; f++) {
        if ((fields >> f & 1) == 0) {
            continue;
        }
        if (program->field[f].form == BRIM_FORM_DENSE || program->field[f].padded) {
            return brim__fail(BRIM_STATUS_INVALID,
                              "pad: field '%s' %s already: pad takes fields that differ in length "
                              "from sample to sample",
                              program->field[f].name,
                              program->field[f].padded ? "is padded" : "has one shape");
        }
        status = pad(use, program, f);
    }
    return status;
}

static const brim_argument_info arguments[] = {
    [FIELDS] = { .name = "on",
                 .type = BRIM_TYPE_WORD,
                 .flags = BRIM_ARGUMENT_FLAG_REQUIRED | BRIM_ARGUMENT_FLAG_LIST,
                 .help = "fields that differ in length from sample to sample" },
    [TO] = { .name = "to",
             .type = BRIM_TYPE_INTEGER,
             .fallback = "0",
             .least = 0,
             .most = 1073741824,
             .help = "length of every sample; 0: the length of the batch's longest" },
    [VALUE] = { .name = "value",
                .type = BRIM_TYPE_REAL,
                .fallback = "0",
                .help = "value of the padding" },
    [CUT] = { .name = "cut",
              .type = BRIM_TYPE_YESNO,
              .fallback = "no",
              .help = "cut longer samples at `to`; otherwise they are bad samples" },
    [LENGTHS] = { .name = "lengths",
                  .type = BRIM_TYPE_WORD,
                  .help = "name of the field with the samples' own lengths; default: NAME_length" },
};

const struct brim__stage brim__stage_pad = {
    .info = { .name = "pad",
              .summary = "pads samples to one length",
              .example = "pad on=tokens to=512 value=-1 cut=yes",
              .room = BRIM_ROOM_TRANSFORM,
              .version = 1,
              .arguments = arguments,
              .argument_count = BRIM__COUNT(arguments) },
    .add_transform = add,
};

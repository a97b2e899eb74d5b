/*
 * map.c: `map @name`: a function of the caller, from all fields of a sample to
 * the fields that it declared.
 *
 * Inputs are made contiguous and aligned in scratch; outputs go to scratch, or
 * straight into the row when nothing follows. A function that is not declared
 * BRIM_CONCURRENT runs under the mutex of its binding and no other lock.
 */
#include "transform/program.h"
#include "transform/transform.h"

enum { NAME, SEED, VERSION };

struct map {
    brim_map_callback *function;
    void *user;
    uint64_t key;
    brim__mutex *serial; /* NULL: declared BRIM_CONCURRENT */
    uint32_t input_count, output_count;
    struct brim__operand input[BRIM__MAX_FIELDS], output[BRIM__MAX_FIELDS];
    brim_value input_value[BRIM__MAX_FIELDS], output_value[BRIM__MAX_FIELDS];
    char name[BRIM__MAX_FIELDS][BRIM_NAME_BYTES]; /* of the outputs */
    const char *binding;
};

static brim_status run(const struct brim__step *step, const struct brim__frame *frame) {
    struct map *self = step->self;
    brim_value input[BRIM__MAX_FIELDS], output[BRIM__MAX_FIELDS];
    for (uint32_t i = 0; i < self->input_count; i++) {
        input[i] = self->input_value[i];
        /* the values are the callback's to read; the type has one data pointer for both */
        input[i].data = (void *)(uintptr_t)brim__operand_read(&self->input[i], frame);
    }
    for (uint32_t i = 0; i < self->output_count; i++) {
        output[i] = self->output_value[i];
        output[i].data = brim__operand_write(&self->output[i], frame);
    }
    brim_call call = frame->call;
    call.key = self->key;
    char why[256] = "";
    if (self->serial != NULL) {
        brim__lock(self->serial);
    }
    const int result = self->function(self->user, &call, input, self->input_count, output,
                                      self->output_count, why, sizeof(why));
    if (self->serial != NULL) {
        brim__unlock(self->serial);
    }
    if (result != 0) {
        why[sizeof(why) - 1] = '\0';
        return brim__fail(BRIM_CALLBACK, "map @%s returned %d%s%s", self->binding, result,
                          why[0] != '\0' ? ": " : "", why);
    }
    return BRIM_OK;
}

static brim_value describe(const char *name, brim_dtype dtype, const struct brim__shape *shape) {
    brim_value value = { .name = name, .dtype = dtype, .rank = shape->rank };
    for (uint32_t i = 0; i < shape->rank; i++) {
        value.shape[i] = (int64_t)shape->dim[i];
    }
    brim__shape_bytes_overflow(shape, brim_dtype_bytes(dtype), &value.bytes);
    return value;
}

/* Every field of the sample as an aligned array in scratch. */
static brim_status take_inputs(struct map *self, struct brim__program *program) {
    self->input_count = program->field_count;
    for (uint32_t f = 0; f < program->field_count; f++) {
        struct brim__program_field *field = &program->field[f];
        const brim_status status = brim__program_flush(program, f, true);
        if (status != BRIM_OK) {
            return status;
        }
        const char *name;
        const brim_status copied = brim__arena_text(program->arena, field->name, &name);
        if (copied != BRIM_OK) {
            return copied;
        }
        self->input[f] = field->at;
        self->input_value[f] = describe(name, field->pending.to, &field->pending.from.shape);
    }
    return BRIM_OK;
}

static brim_status add_output(struct map *self, struct brim__program *program, uint32_t f,
                              const brim_binding *binding) {
    struct brim__source_field field;
    uint64_t bytes;
    brim_status status = brim__spec_field(binding, f, &field, &bytes);
    if (status != BRIM_OK) {
        return brim__fail_within(status, "map");
    }
    for (uint32_t i = 0; i < f; i++) {
        if (strcmp(self->name[i], field.name) == 0) {
            return brim__fail(BRIM_INVALID, "map @%s declares two fields '%s'", self->binding,
                              field.name);
        }
    }
    memcpy(self->name[f], field.name, BRIM_NAME_BYTES);
    self->output_value[f] = describe(self->name[f], field.view.dtype, &field.view.shape);
    status = brim__program_scratch(program, bytes, &self->output[f]);
    if (status == BRIM_OK) {
        memcpy(program->field[f].name, field.name, BRIM_NAME_BYTES);
        brim__program_set(program, f, field.view.dtype, &field.view.shape, &self->output[f]);
    }
    return status;
}

static brim_status add(const struct brim__use *use, struct brim__program *program) {
    brim_binding binding;
    brim_status status = brim__binding_find(program->opening, use, brim__item(use, NAME)->text,
                                            BRIM_BIND_MAP, &binding);
    struct map *self = NULL;
    struct brim__step *step;
    if (status == BRIM_OK && (binding.map == NULL || binding.fields == NULL ||
                              binding.field_count == 0 || binding.field_count > BRIM__MAX_FIELDS)) {
        status =
            brim__fail(BRIM_INVALID, "map @%s: the binding needs a function and 1 to %d fields",
                       brim__item(use, NAME)->text, BRIM__MAX_FIELDS);
    }
    if (status == BRIM_OK) {
        status = brim__arena_take(program->arena, sizeof(*self), &self);
    }
    if (status == BRIM_OK) {
        self->function = binding.map;
        self->user = binding.user;
        self->key = brim__hash_words(program->key, (uint64_t)brim__item(use, SEED)->integer, 0);
        status = brim__arena_text(program->arena, brim__item(use, NAME)->text, &self->binding);
    }
    if (status == BRIM_OK) {
        status = take_inputs(self, program);
    }
    if (status == BRIM_OK) {
        status = brim__program_step(program, &step);
    }
    if (status != BRIM_OK) {
        return status;
    }
    step->run = run;
    step->self = self;
    self->output_count = (uint32_t)binding.field_count;
    program->field_count = self->output_count;
    for (uint32_t f = 0; status == BRIM_OK && f < self->output_count; f++) {
        status = add_output(self, program, f, &binding);
    }
    if (status == BRIM_OK && (binding.flags & BRIM_CONCURRENT) == 0) {
        status = brim__serial_find(program->opening, self->binding, &self->serial);
    }
    program->callback = true;
    if ((binding.flags & BRIM_PURE) == 0) {
        program->impure = true;
    }
    return status;
}

static const brim_argument_info arguments[] = {
    [NAME] = { .name = "function",
               .type = BRIM_TYPE_BINDING,
               .flags = BRIM_REQUIRED | BRIM_POSITIONAL,
               .help = "a function bound when the pipeline is opened" },
    [SEED] = { .name = "seed",
               .type = BRIM_TYPE_INTEGER,
               .fallback = "0",
               .help = "another seed gives brim_call_random other numbers" },
    [VERSION] = { .name = "version",
                  .type = BRIM_TYPE_WORD,
                  .fallback = "0",
                  .help = "change it when the function puts out something else" },
};

const struct brim__stage brim__stage_map = {
    .info = { .name = "map",
              .summary = "a function of the caller on each sample",
              .example = "map @augment version=2",
              .room = BRIM_ROOM_TRANSFORM,
              .version = 1,
              .arguments = arguments,
              .argument_count = BRIM__COUNT(arguments) },
    .add_transform = add,
};

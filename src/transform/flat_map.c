/*
 * flat_map.c: `flat_map @name`: a function of the program that makes many samples of one. See
 * function.h.
 *
 * The function is called for the new samples 0, 1, ... of one sample, until it returns that there
 * are no more or the limit of its binding is reached. Its inputs are prepared once. All its calls
 * have the key of the sample, so they draw the same numbers unless the index is part of the draw.
 */
#include "transform/function.h"
#include "transform/stages.h"

#define MOST_OF_ONE 1000000

enum { NAME, SEED, VERSION };

struct flat_map {
    struct brim__function function;
    brim_flat_map_callback *flat_map;
    uint64_t most;
};

static brim_status run(const struct brim__step *step, const struct brim__frame *frame) {
    const struct flat_map *self = step->self;
    const struct brim__function *function = &self->function;
    struct brim__function_call call;
    if (frame->expansion_index >= self->most) {
        return BRIM__EXHAUSTED;
    }
    brim__function_begin(function, frame, &call);
    const int answer = self->flat_map(function->user, &call.call, frame->expansion_index,
                                      call.input, function->input_count, call.output,
                                      function->output_count, call.why, sizeof call.why);
    brim__function_end(function);
    if (answer == BRIM_ANSWER_SAMPLE) {
        return brim__function_made(function, frame, &call);
    }
    return answer == BRIM_ANSWER_DONE ? BRIM__EXHAUSTED
                                      : brim__function_failed(function, &call, answer);
}

static brim_status check_binding(const brim_binding *binding) {
    if (binding->flat_map == NULL) {
        return brim__fail(BRIM_STATUS_INVALID, "flat_map @%s: its function `flat_map` is NULL",
                          binding->name);
    }
    if (binding->count == 0 || binding->count > MOST_OF_ONE) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "flat_map @%s: its `count` is %llu; it must be the most samples that the "
                          "function makes of one, 1 to %d",
                          binding->name, (unsigned long long)binding->count, MOST_OF_ONE);
    }
    return BRIM_OK;
}

static brim_status add(const struct brim__use *use, struct brim__program *program) {
    brim_binding binding;
    struct flat_map *self;
    struct brim__step *step;
    brim_status status = brim__arena_take(program->arena, sizeof *self, &self);
    if (status == BRIM_OK) {
        status = brim__function_init(&self->function, program, use, NAME, SEED,
                                     BRIM_BINDING_FLAT_MAP, &binding);
    }
    if (status == BRIM_OK) {
        status = check_binding(&binding);
    }
    if (status == BRIM_OK) {
        status = brim__function_inputs(&self->function, program);
    }
    if (status == BRIM_OK) {
        status = brim__program_expand(program, "flat_map", binding.count);
    }
    if (status == BRIM_OK) {
        status = brim__program_step(program, &step);
    }
    if (status != BRIM_OK) {
        return status;
    }
    self->flat_map = binding.flat_map;
    self->most = binding.count;
    step->run = run;
    step->self = self;
    return brim__function_outputs(&self->function, program, &binding);
}

static const brim_argument_info arguments[] = {
    [NAME] = BRIM__FUNCTION_ARGUMENT(", with the most samples that it makes of one"),
    [SEED] = BRIM__CALLS_SEED_ARGUMENT,
    [VERSION] = BRIM__FUNCTION_VERSION_ARGUMENT("the output of the function changes"),
};

const struct brim__stage brim__stage_flat_map = {
    .info = { .name = "flat_map",
              .summary = "calls a function of the program that makes many samples of one",
              .example = "flat_map @windows",
              .room = BRIM_ROOM_TRANSFORM,
              .version = 1,
              .arguments = arguments,
              .argument_count = BRIM__COUNT(arguments) },
    .add_transform = add,
};

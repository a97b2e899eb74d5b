/*
 * map.c: `map @name`: a function of the program, from all fields of a sample to the fields that it
 * declared. See function.h.
 */
#include "transform/function.h"
#include "transform/stages.h"

enum { NAME, SEED, VERSION };

struct map {
    struct brim__function function;
    brim_map_callback *map;
};

static brim_status run(const struct brim__step *step, const struct brim__frame *frame) {
    const struct map *self = step->self;
    const struct brim__function *function = &self->function;
    struct brim__function_call call;
    brim__function_begin(function, frame, &call);
    const int answer = self->map(function->user, &call.call, call.input, function->input_count,
                                 call.output, function->output_count, call.why, sizeof call.why);
    brim__function_end(function);
    return answer == BRIM_ANSWER_DONE ? brim__function_made(function, frame, &call)
                                      : brim__function_failed(function, &call, answer);
}

static brim_status add(const struct brim__use *use, struct brim__program *program) {
    brim_binding binding;
    struct map *self;
    struct brim__step *step;
    brim_status status = brim__arena_take(program->arena, sizeof *self, &self);
    if (status == BRIM_OK) {
        status = brim__function_init(&self->function, program, use, NAME, SEED, BRIM_BINDING_MAP,
                                     &binding);
    }
    if (status == BRIM_OK && binding.map == NULL) {
        status =
            brim__fail(BRIM_STATUS_INVALID, "map @%s: its function `map` is NULL", binding.name);
    }
    if (status == BRIM_OK) {
        status = brim__function_inputs(&self->function, program);
    }
    if (status == BRIM_OK) {
        status = brim__program_step(program, &step);
    }
    if (status != BRIM_OK) {
        return status;
    }
    self->map = binding.map;
    step->run = run;
    step->self = self;
    return brim__function_outputs(&self->function, program, &binding);
}

static const brim_argument_info arguments[] = {
    [NAME] = BRIM__FUNCTION_ARGUMENT(""),
    [SEED] = BRIM__CALLS_SEED_ARGUMENT,
    [VERSION] = BRIM__FUNCTION_VERSION_ARGUMENT(
        "the output of the function changes; a cache file needs one other than 0"),
};

const struct brim__stage brim__stage_map = {
    .info = { .name = "map",
              .summary = "calls a function of the program on each sample",
              .example = "map @augment version=2",
              .room = BRIM_ROOM_TRANSFORM,
              .version = 1,
              .arguments = arguments,
              .argument_count = BRIM__COUNT(arguments) },
    .add_transform = add,
};

/*
 * filter.c: `filter CONDITION...` or `filter by=@name`: keeps samples for which every condition
 * holds, or that a function of the program keeps.
 */
#include "transform/filter.h"

#include "transform/function.h"
#include "transform/stages.h"

enum { CONDITIONS, BY, SEED, VERSION };

struct conditions {
    size_t count;
    struct brim__comparison comparison[];
};

struct by {
    struct brim__function function;
    brim_filter_callback *filter;
};

static brim_status run_conditions(const struct brim__step *step, const struct brim__frame *frame) {
    const struct conditions *self = step->self;
    for (size_t i = 0; i < self->count; i++) {
        if (!brim__comparison_holds(&self->comparison[i], frame)) {
            return BRIM__DROPPED;
        }
    }
    return BRIM_OK;
}

static brim_status run_by(const struct brim__step *step, const struct brim__frame *frame) {
    const struct by *self = step->self;
    const struct brim__function *function = &self->function;
    struct brim__function_call call;
    brim__function_begin(function, frame, &call);
    const int answer = self->filter(function->user, &call.call, call.input, function->input_count,
                                    call.why, sizeof call.why);
    brim__function_end(function);
    if (answer == BRIM_ANSWER_SAMPLE) {
        return BRIM_OK;
    }
    return answer == BRIM_ANSWER_DONE ? BRIM__DROPPED
                                      : brim__function_failed(function, &call, answer);
}

static brim_status add_conditions(const struct brim__use *use, struct brim__program *program,
                                  struct conditions **self) {
    const struct brim__values *texts = &use->values[CONDITIONS];
    brim_status status = brim__arena_take(
        program->arena, sizeof **self + texts->count * sizeof *(*self)->comparison, self);
    for (size_t i = 0; status == BRIM_OK && i < texts->count; i++) {
        (*self)->count++;
        status = brim__comparison_init(&(*self)->comparison[i], program, texts->items[i].text);
    }
    return status;
}

static brim_status add_by(const struct brim__use *use, struct brim__program *program,
                          struct by **self) {
    brim_binding binding;
    brim_status status = brim__arena_take(program->arena, sizeof **self, self);
    if (status == BRIM_OK) {
        status = brim__function_init(&(*self)->function, program, use, BY, SEED,
                                     BRIM_BINDING_FILTER, &binding);
    }
    if (status == BRIM_OK && binding.filter == NULL) {
        status = brim__fail(BRIM_STATUS_INVALID, "filter @%s: its function `filter` is NULL",
                            binding.name);
    }
    if (status == BRIM_OK) {
        (*self)->filter = binding.filter;
        status = brim__function_inputs(&(*self)->function, program);
    }
    return status;
}

static brim_status add(const struct brim__use *use, struct brim__program *program) {
    const bool by = brim__given(use, BY);
    if (by == brim__given(use, CONDITIONS)) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "filter: give conditions, as in \"label == 3\", or a "
                          "function, by=@name: one of the two");
    }
    struct by *function = NULL;
    struct conditions *conditions = NULL;
    struct brim__step *step;
    brim_status status =
        by ? add_by(use, program, &function) : add_conditions(use, program, &conditions);
    if (status == BRIM_OK) {
        status = brim__program_step(program, &step);
    }
    if (status != BRIM_OK) {
        return status;
    }
    step->run = by ? run_by : run_conditions;
    step->self = by ? (void *)function : (void *)conditions;
    program->drops = true;
    return BRIM_OK;
}

static const brim_argument_info arguments[] = {
    [CONDITIONS] = { .name = "conditions",
                     .type = BRIM_TYPE_WORD,
                     .flags = BRIM_ARGUMENT_FLAG_POSITIONAL | BRIM_ARGUMENT_FLAG_LIST,
                     .help = "each a field or length(field), one of == != < <= > >=, and a number "
                             "or a 'text'; all must hold" },
    [BY] = { .name = "by",
             .type = BRIM_TYPE_BINDING,
             .help = "a function bound when the pipeline is opened, instead of conditions" },
    [SEED] = BRIM__CALLS_SEED_ARGUMENT,
    [VERSION] = BRIM__FUNCTION_VERSION_ARGUMENT("the function keeps other samples"),
};

const struct brim__stage brim__stage_filter = {
    .info = { .name = "filter",
              .summary = "keeps samples for which all conditions hold",
              .example = "filter \"label == 3\" \"score > 0.5\"",
              .room = BRIM_ROOM_TRANSFORM,
              .version = 1,
              .arguments = arguments,
              .argument_count = BRIM__COUNT(arguments) },
    .add_transform = add,
};

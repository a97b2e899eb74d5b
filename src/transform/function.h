/*
 * function.h: functions of the program on one sample: the common part of map, filter and flat_map.
 *
 * Inputs are all fields of the sample, contiguous and aligned in scratch. Outputs go to scratch, or
 * directly into the row if no stage follows. A function that is not declared
 * BRIM_CALLBACK_CONCURRENT runs under the mutex of its name and no other lock. Its argument is a
 * description made for that call.
 */
#ifndef BRIM_FUNCTION_H
#define BRIM_FUNCTION_H

#include "transform/program.h"

struct brim__function {
    const char *stage, *name; /* "map", and of the binding */
    void *user;
    uint64_t key;
    bool expanded;       /* after an expansion: each of its samples has its own key */
    brim__mutex *serial; /* NULL: declared BRIM_CALLBACK_CONCURRENT */
    uint32_t input_count, output_count;
    struct brim__operand input[BRIM__MAX_FIELDS], output[BRIM__MAX_FIELDS];
    brim_value input_value[BRIM__MAX_FIELDS], output_value[BRIM__MAX_FIELDS];
    char output_name[BRIM__MAX_FIELDS][BRIM_NAME_BYTES];
};

/* The arguments of one call. */
struct brim__function_call {
    brim_call call;
    brim_value input[BRIM__MAX_FIELDS], output[BRIM__MAX_FIELDS];
    char why[256];
};

/* Finds the binding that the argument `name` refers to, and sets up the function. The argument
 * after `seed` is the version's. */
brim_status brim__function_init(struct brim__function *function, struct brim__program *program,
                                const struct brim__use *use, size_t name, size_t seed,
                                brim_binding_kind kind, brim_binding *binding);
/* Puts every field of the sample in scratch, as an aligned value that stays there. */
brim_status brim__function_inputs(struct brim__function *function, struct brim__program *program);
/* Replaces all fields by those that the binding declares. To be called after the step that runs the
 * function was added. */
brim_status brim__function_outputs(struct brim__function *function, struct brim__program *program,
                                   const brim_binding *binding);

/* Fills in the arguments and takes the lock; end releases the lock. */
void brim__function_begin(const struct brim__function *function, const struct brim__frame *frame,
                          struct brim__function_call *call);
void brim__function_end(const struct brim__function *function);
/* After a successful call: reads the lengths of the outputs that are not dense. */
brim_status brim__function_made(const struct brim__function *function,
                                const struct brim__frame *frame,
                                const struct brim__function_call *call);
/* After a call whose `answer` is a failure. */
brim_status brim__function_failed(const struct brim__function *function,
                                  struct brim__function_call *call, int answer);

/* Rows that the stages with functions share. */
#define BRIM__FUNCTION_ARGUMENT(help_)                                        \
    {                                                                         \
        .name = "function", .type = BRIM_TYPE_BINDING,                        \
        .flags = BRIM_ARGUMENT_FLAG_REQUIRED | BRIM_ARGUMENT_FLAG_POSITIONAL, \
        .help = "a function bound when the pipeline is opened" help_          \
    }
#define BRIM__FUNCTION_VERSION_ARGUMENT(help_) \
    { .name = "version", .type = BRIM_TYPE_WORD, .fallback = "0", .help = "change it when " help_ }

#endif

/*
 * function.c: calls functions of the program. See function.h.
 */
#include "transform/function.h"

#include "base/answer.h"
#include "source/spec.h"

#include <stdio.h>

brim_status brim__function_init(struct brim__function *function, struct brim__program *program,
                                const struct brim__use *use, size_t name, size_t seed,
                                brim_binding_kind kind, brim_binding *binding) {
    char text[2 * BRIM_NAME_BYTES];
    const char *label = NULL;
    brim_status status =
        brim__binding_find(program->opening, use, brim__item(use, name)->text, kind, binding);
    if (status == BRIM_OK) {
        status = brim__arena_text(program->arena, binding->name, &function->name);
    }
    if (status == BRIM_OK) {
        snprintf(text, sizeof text, "%s @%s", use->stage->info.name, function->name);
        status = brim__arena_text(program->arena, text, &label);
    }
    if (status == BRIM_OK && (binding->flags & BRIM_CALLBACK_CONCURRENT) == 0) {
        status = brim__serial_find(program->opening, function->name, &function->serial);
    }
    if (status != BRIM_OK) {
        return status;
    }
    function->stage = use->stage->info.name;
    function->user = binding->user;
    function->key = brim__hash_words(program->key, (uint64_t)brim__item(use, seed)->integer, 0);
    function->expanded = program->expand != BRIM__NO_EXPAND;
    program->callback = true;
    if ((binding->flags & BRIM_CALLBACK_PURE) == 0) {
        brim__program_impure(program, label);
    }
    if ((binding->flags & BRIM_CALLBACK_RANDOM) != 0) {
        brim__program_random(program, label);
    }
    if (brim__unversioned(brim__item(use, seed + 1)->text)) {
        brim__program_unversioned(program, label);
    }
    program->probed = (binding->flags & BRIM_CALLBACK_PROBED) != 0;
    return BRIM_OK;
}

brim_status brim__function_inputs(struct brim__function *function, struct brim__program *program) {
    function->input_count = program->field_count;
    for (uint32_t f = 0; f < program->field_count; f++) {
        struct brim__program_field *field = &program->field[f];
        const char *name = NULL;
        brim_status status = brim__program_flush(program, f, true);
        if (status == BRIM_OK) {
            status = brim__arena_text(program->arena, field->name, &name);
        }
        if (status != BRIM_OK) {
            return status;
        }
        /* must not be moved to the row, where it would not be aligned */
        field->written = NULL;
        function->input[f] = field->at;
        function->input_value[f] =
            brim__spec_value(name, field->form, field->pending.to, &field->pending.from.shape);
    }
    return BRIM_OK;
}

static brim_status add_output(struct brim__function *function, struct brim__program *program,
                              uint32_t f, const brim_binding *binding) {
    struct brim__source_field field;
    uint64_t bytes;
    brim_status status = brim__spec_field(binding, f, &field, &bytes);
    if (status != BRIM_OK) {
        return brim__fail_within(status, "%s", function->stage);
    }
    for (uint32_t i = 0; i < f; i++) {
        if (strcmp(function->output_name[i], field.name) == 0) {
            return brim__fail(BRIM_STATUS_INVALID, "%s @%s declares two fields '%s'",
                              function->stage, function->name, field.name);
        }
    }
    memcpy(function->output_name[f], field.name, BRIM_NAME_BYTES);
    function->output_value[f] =
        brim__spec_value(function->output_name[f], field.form, field.view.dtype, &field.view.shape);
    status = brim__program_room(program, field.form, bytes, &function->output[f]);
    if (status == BRIM_OK) {
        program->field[f] = (struct brim__program_field){ 0 };
        memcpy(program->field[f].name, field.name, BRIM_NAME_BYTES);
        brim__program_set(program, f, field.form, field.view.dtype, &field.view.shape, 0,
                          &function->output[f]);
    }
    return status;
}

brim_status brim__function_outputs(struct brim__function *function, struct brim__program *program,
                                   const brim_binding *binding) {
    if (binding->field_count == 0 || binding->field_count > BRIM__MAX_FIELDS) {
        return brim__fail(BRIM_STATUS_INVALID, "%s @%s: %zu fields, but a sample has 1 to %d",
                          function->stage, function->name, binding->field_count, BRIM__MAX_FIELDS);
    }
    function->output_count = (uint32_t)binding->field_count;
    program->field_count = function->output_count;
    for (uint32_t f = 0; f < function->output_count; f++) {
        const brim_status status = add_output(function, program, f, binding);
        if (status != BRIM_OK) {
            return status;
        }
    }
    return BRIM_OK;
}

/* ----------------------------------------------------------------- running */

/* The value of an input that is not dense has this sample's length. */
static void take_span(brim_value *value, const struct brim__span *span) {
    const uint64_t bound = (uint64_t)value->shape[0];
    value->bytes = bound > 0 ? value->bytes / bound * span->count : 0;
    value->shape[0] = (int64_t)span->count;
}

void brim__function_begin(const struct brim__function *function, const struct brim__frame *frame,
                          struct brim__function_call *call) {
    for (uint32_t i = 0; i < function->input_count; i++) {
        brim_value *value = &call->input[i];
        *value = function->input_value[i];
        const uint8_t *data;
        if (value->form == BRIM_FORM_DENSE) {
            data = brim__operand_read(&function->input[i], frame);
        } else {
            const struct brim__span span = brim__operand_span(&function->input[i], 0, frame);
            take_span(value, &span);
            data = span.data;
        }
        /* the callback only reads the values; the type has one pointer for inputs and outputs */
        value->data = (void *)(uintptr_t)data;
    }
    for (uint32_t i = 0; i < function->output_count; i++) {
        brim_value *value = &call->output[i];
        uint64_t *count;
        *value = function->output_value[i];
        value->data = value->form == BRIM_FORM_DENSE
                          ? brim__operand_write(&function->output[i], frame)
                          : brim__operand_ragged(&function->output[i], frame, &count);
    }
    call->call = frame->call;
    call->call.key = function->expanded ? brim__hash_words(function->key, frame->expansion_index, 1)
                                        : function->key;
    call->why[0] = '\0';
    brim__answer_begin();
    if (function->serial != NULL) {
        brim__lock(function->serial);
    }
}

void brim__function_end(const struct brim__function *function) {
    if (function->serial != NULL) {
        brim__unlock(function->serial);
    }
}

brim_status brim__function_made(const struct brim__function *function,
                                const struct brim__frame *frame,
                                const struct brim__function_call *call) {
    for (uint32_t i = 0; i < function->output_count; i++) {
        const brim_value *declared = &function->output_value[i];
        if (declared->form == BRIM_FORM_DENSE) {
            continue;
        }
        uint64_t *count;
        brim__operand_ragged(&function->output[i], frame, &count);
        const brim_status status = brim__spec_length(declared->name, &call->output[i],
                                                     (uint64_t)declared->shape[0], count);
        if (status != BRIM_OK) {
            return brim__fail_within(status, "%s @%s", function->stage, function->name);
        }
    }
    return BRIM_OK;
}

brim_status brim__function_failed(const struct brim__function *function,
                                  struct brim__function_call *call, int answer) {
    call->why[sizeof call->why - 1] = '\0';
    const brim_status status = brim__answer_status(answer);
    if (brim__cause_said()) {
        return brim__at_callback(brim__fail(status, "%s @%s: %s", function->stage, function->name,
                                            brim__answer_reason(call->why)));
    }
    return brim__fail(status, "%s @%s returned %d%s%s%s", function->stage, function->name, answer,
                      brim__answer_note(answer), call->why[0] != '\0' ? ": " : "", call->why);
}

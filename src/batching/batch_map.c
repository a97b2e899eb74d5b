/*
 * batch_map.c: `batch_map @name`: a function of the program on each whole batch.
 *
 * Its inputs are the valid rows of the dense fields, in place in the slot. If its binding declares
 * no fields, it changes the inputs there. Else it fills the declared fields, which come after the
 * rows in the same slot and replace all others. Fields whose rows differ in length are not passed
 * to it; they stay unchanged, so they are not allowed if fields are declared.
 *
 * A function that is not declared BRIM_CALLBACK_CONCURRENT runs under the mutex of its name and no
 * other lock. Its argument is a description made for that call. It is not called for a batch
 * without valid rows.
 */
#include "batching/stages.h"

#include "base/answer.h"
#include "batching/batch_program.h"
#include "source/spec.h"
#include "transform/function.h"

enum { NAME, SEED, VERSION };

/* The description of a field for the function, except for the rows. */
struct shown {
    char name[BRIM_NAME_BYTES];
    brim_value value; /* of a batch: the first dimension is not set */
    uint64_t offset, row_bytes;
};

struct batch_map {
    const char *name;
    brim_batch_map_callback *call;
    void *user;
    uint64_t key;
    brim__mutex *serial; /* NULL: declared BRIM_CALLBACK_CONCURRENT */
    uint32_t input_count, output_count;
    struct shown input[BRIM__MAX_FIELDS], output[BRIM__MAX_FIELDS];
};

/* ----------------------------------------------------------------- running */

static void show(const struct shown *shown, uint32_t count, const struct brim__batch_call *call,
                 brim_value *values) {
    for (uint32_t i = 0; i < count; i++) {
        values[i] = shown[i].value;
        values[i].shape[0] = (int64_t)call->rows;
        values[i].bytes = call->rows * shown[i].row_bytes;
        values[i].data = call->memory + shown[i].offset;
    }
}

static brim_status run(const struct brim__batch_step *step, const struct brim__batch_call *batch) {
    const struct batch_map *self = step->self;
    brim_value inputs[BRIM__MAX_FIELDS], outputs[BRIM__MAX_FIELDS];
    char why[256] = "";
    for (uint32_t i = 0; i < self->output_count; i++) {
        const struct shown *output = &self->output[i];
        memset(batch->memory + output->offset + batch->rows * output->row_bytes, 0,
               (batch->all_rows - batch->rows) * output->row_bytes);
    }
    if (batch->rows == 0) {
        return BRIM_OK;
    }
    show(self->input, self->input_count, batch, inputs);
    show(self->output, self->output_count, batch, outputs);
    const brim_call call = { .size = sizeof call,
                             .sample = batch->number,
                             .epoch = batch->epoch,
                             .key = self->key,
                             .batch = batch->region,
                             .scratch = { .file = -1 } };
    if (self->serial != NULL) {
        brim__lock(self->serial);
    }
    brim__answer_begin();
    const int answer = self->call(self->user, &call, inputs, self->input_count, outputs,
                                  self->output_count, why, sizeof why);
    if (self->serial != NULL) {
        brim__unlock(self->serial);
    }
    why[sizeof why - 1] = '\0';
    if (answer == BRIM_ANSWER_DONE) {
        return BRIM_OK;
    }
    const brim_status status = brim__answer_status(answer);
    if (brim__cause_said()) {
        return brim__at_callback(
            brim__fail(status, "batch_map @%s, the batch from position %llu of epoch %llu: %s",
                       self->name, (unsigned long long)batch->number,
                       (unsigned long long)batch->epoch, brim__answer_reason(why)));
    }
    return brim__fail(status,
                      "batch_map @%s, the batch from position %llu of epoch %llu: "
                      "it returned %d%s%s%s",
                      self->name, (unsigned long long)batch->number,
                      (unsigned long long)batch->epoch, answer, brim__answer_note(answer),
                      why[0] != '\0' ? ": " : "", why);
}

/* ------------------------------------------------------------------ adding */

static struct shown shown_of(const struct brim__batch_field *field) {
    struct brim__shape shape = { .rank = field->shape.rank + 1, .dim = { 1 } };
    memcpy(shape.dim + 1, field->shape.dim, field->shape.rank * sizeof shape.dim[0]);
    struct shown shown = { .value = brim__spec_value(NULL, BRIM_FORM_DENSE, field->dtype, &shape),
                           .offset = field->offset,
                           .row_bytes = field->row_bytes };
    brim__copy_text(shown.name, sizeof shown.name, field->name);
    return shown;
}

static brim_status show_inputs(struct batch_map *self, const struct brim__batch_site *site,
                               bool declares) {
    for (uint32_t f = 0; f < site->field_count; f++) {
        const struct brim__batch_field *field = &site->field[f];
        if (!field->dense && declares) {
            return brim__fail(BRIM_STATUS_INVALID,
                              "batch_map @%s declares fields, which replace all others, but the "
                              "rows of field '%s' differ in length, and such fields are not passed "
                              "to it: put `pad to=N on=%s` before batch, or declare none",
                              self->name, field->name, field->name);
        }
        if (field->dense) {
            struct shown *input = &self->input[self->input_count++];
            *input = shown_of(field);
            input->value.name = input->name;
            site->step->fields |= 1u << f;
        }
    }
    return self->input_count > 0
               ? BRIM_OK
               : brim__fail(BRIM_STATUS_INVALID,
                            "batch_map @%s: the rows of all fields differ in length, and such "
                            "fields are not passed to it: put `pad to=N` before batch",
                            self->name);
}

static brim_status declare_output(struct batch_map *self, const brim_binding *binding, uint32_t f,
                                  struct brim__batch_field *field) {
    struct brim__source_field spec;
    uint64_t bytes;
    const brim_status status = brim__spec_field(binding, f, &spec, &bytes);
    if (status != BRIM_OK) {
        return brim__fail_within(status, "batch_map");
    }
    if (spec.form != BRIM_FORM_DENSE) {
        return brim__fail(BRIM_STATUS_UNSUPPORTED,
                          "batch_map @%s, field '%s': its output must be dense fields (form "
                          "BRIM_FORM_DENSE), whose rows all have the declared shape",
                          self->name, spec.name);
    }
    for (uint32_t i = 0; i < f; i++) {
        if (strcmp(self->output[i].name, spec.name) == 0) {
            return brim__fail(BRIM_STATUS_INVALID, "batch_map @%s declares two fields '%s'",
                              self->name, spec.name);
        }
    }
    brim__copy_text(self->output[f].name, BRIM_NAME_BYTES, spec.name);
    *field = (struct brim__batch_field){ .name = self->output[f].name,
                                         .dtype = spec.view.dtype,
                                         .dense = true,
                                         .shape = spec.view.shape };
    return BRIM_OK;
}

static brim_status declare_outputs(struct batch_map *self, const struct brim__batch_site *site,
                                   const brim_binding *binding) {
    struct brim__batch_field field[BRIM__MAX_FIELDS];
    if (binding->field_count > BRIM__MAX_FIELDS) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "batch_map @%s: %zu fields, but a batch has at most %d", self->name,
                          binding->field_count, BRIM__MAX_FIELDS);
    }
    const uint32_t count = (uint32_t)binding->field_count;
    for (uint32_t f = 0; f < count; f++) {
        const brim_status status = declare_output(self, binding, f, &field[f]);
        if (status != BRIM_OK) {
            return status;
        }
    }
    const brim_status status = site->replace(site->user, field, count);
    for (uint32_t f = 0; status == BRIM_OK && f < count; f++) {
        self->output[f] = shown_of(&field[f]);
        self->output[f].value.name = self->output[f].name;
    }
    self->output_count = count;
    site->step->fields = (1u << count) - 1;
    return status;
}

static brim_status add(const struct brim__use *use, const struct brim__batch_site *site) {
    struct brim__batch_step *step = site->step;
    brim_binding binding;
    struct batch_map *self;
    brim_status status = brim__binding_find(site->opening, use, brim__item(use, NAME)->text,
                                            BRIM_BINDING_BATCH_MAP, &binding);
    if (status == BRIM_OK && binding.batch_map == NULL) {
        status = brim__fail(BRIM_STATUS_INVALID, "batch_map @%s: its function `batch_map` is NULL",
                            binding.name);
    }
    if (status == BRIM_OK) {
        status = brim__arena_take(site->arena, sizeof *self, &self);
    }
    if (status == BRIM_OK) {
        status = brim__arena_text(site->arena, binding.name, &self->name);
    }
    if (status == BRIM_OK && (binding.flags & BRIM_CALLBACK_CONCURRENT) == 0) {
        status = brim__serial_find(site->opening, self->name, &self->serial);
    }
    if (status == BRIM_OK) {
        status = show_inputs(self, site, binding.field_count > 0);
    }
    if (status == BRIM_OK && binding.field_count > 0) {
        status = declare_outputs(self, site, &binding);
    }
    if (status != BRIM_OK) {
        return status;
    }
    self->call = binding.batch_map;
    self->user = binding.user;
    self->key = brim__hash_words(site->key, (uint64_t)brim__item(use, SEED)->integer, 0);
    step->run = run;
    step->self = self;
    step->callback = true;
    step->impure = (binding.flags & BRIM_CALLBACK_PURE) == 0;
    step->probed = (binding.flags & BRIM_CALLBACK_PROBED) != 0;
    return BRIM_OK;
}

static const brim_argument_info arguments[] = {
    [NAME] = BRIM__FUNCTION_ARGUMENT(""),
    [SEED] = BRIM__CALLS_SEED_ARGUMENT,
    [VERSION] = BRIM__FUNCTION_VERSION_ARGUMENT("the output of the function changes"),
};

const struct brim__stage brim__stage_batch_map = {
    .info = { .name = "batch_map",
              .summary = "calls a function of the program on each whole batch",
              .example = "batch_map @collate version=2",
              .room = BRIM_ROOM_BATCHING,
              .version = 1,
              .arguments = arguments,
              .argument_count = BRIM__COUNT(arguments) },
    .add_batch = add,
};

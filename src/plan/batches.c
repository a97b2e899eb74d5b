/*
 * batches.c: stages that act on whole batches, after `batch` or `bucket`.
 *
 * Their fields are known only when all parts of the pipeline agree on fields and batches are laid
 * out. So compiling only records these stages, and adds them at its end.
 *
 * They are part of the order fingerprint, although they move no sample, because a state belongs to
 * a run, and a run that continues with other mixing is another run. The key for replacing bad
 * samples is that fingerprint without these stages.
 */
#include "plan/compile.h"

#include <stdio.h>

brim_status brim__compile_late(struct brim__compiler *compiler, const struct brim__use *use,
                               uint32_t index, uint64_t key) {
    if (!compiler->has_batch) {
        return brim__fail(BRIM_STATUS_SYNTAX, "'%s' acts on whole batches: put it after batch",
                          use->stage->info.name);
    }
    if (compiler->late_count == BRIM__BATCH_STEPS) {
        return brim__fail(BRIM_STATUS_UNSUPPORTED, "more than %d stages after '%s'",
                          BRIM__BATCH_STEPS, compiler->plan->batch_stage->name);
    }
    compiler->late[compiler->late_count++] = (struct brim__late_stage){ use, index, key };
    return BRIM_OK;
}

/* impure: this step or one before it. */
static brim_status describe(struct brim__compiler *compiler, const struct brim__batch_step *step,
                            bool impure) {
    const struct brim__layout *layout = &compiler->plan->delivered;
    char text[BRIM__EFFECT_BYTES] = "";
    brim_status status = brim__begin_fields(compiler, step->stage, layout->output_count);
    for (uint32_t f = 0; status == BRIM_OK && f < layout->output_count; f++) {
        const struct brim__output *output = &layout->output[f];
        if ((step->fields >> f & 1) != 0) {
            brim__append_field(text, sizeof text, output->name, output->form, output->dtype,
                               &output->shape);
            status = brim__add_field(compiler, step->stage, output->name, output->form,
                                     output->dtype, &output->shape);
        }
    }
    const size_t length = strlen(text);
    snprintf(text + length, sizeof text - length, "%s%s", impure ? "; not pure" : "",
             step->probed ? ", probed" : "");
    return status == BRIM_OK ? brim__set_effect(compiler, step->stage, text) : status;
}

/* A brim__batch_site's replace. */
static brim_status replace(void *user, struct brim__batch_field *field, uint32_t count) {
    brim_plan *plan = user;
    struct brim__layout *layout = &plan->delivered;
    layout->output_count = count;
    for (uint32_t f = 0; f < count; f++) {
        struct brim__output *output = &layout->output[f];
        *output = (struct brim__output){ .dtype = field[f].dtype, .shape = field[f].shape };
        brim__copy_text(output->name, sizeof output->name, field[f].name);
    }
    const brim_status status = brim__layout_append(layout);
    for (uint32_t f = 0; f < count; f++) {
        field[f].offset = layout->output[f].offset;
        field[f].row_bytes = layout->output[f].row_bytes;
    }
    return status;
}

static brim_status add_step(struct brim__compiler *compiler, const struct brim__late_stage *late,
                            struct brim__batch_step *step) {
    brim_plan *plan = compiler->plan;
    struct brim__batch_field field[BRIM__MAX_FIELDS];
    for (uint32_t f = 0; f < plan->delivered.output_count; f++) {
        const struct brim__output *output = &plan->delivered.output[f];
        field[f] = (struct brim__batch_field){ .name = output->name,
                                               .dtype = output->dtype,
                                               .dense = output->form == BRIM_FORM_DENSE,
                                               .shape = output->shape,
                                               .offset = output->offset,
                                               .row_bytes = output->row_bytes };
    }
    const struct brim__batch_site site = { .field = field,
                                           .field_count = plan->delivered.output_count,
                                           .key = late->key,
                                           .arena = &plan->arena,
                                           .opening = &compiler->opening,
                                           .step = step,
                                           .replace = replace,
                                           .user = plan };
    step->stage = late->index;
    const brim_status status = late->use->stage->add_batch(late->use, &site);
    plan->callback |= step->callback;
    return status;
}

brim_status brim__add_late(struct brim__compiler *compiler) {
    brim_plan *plan = compiler->plan;
    bool impure = false;
    for (uint32_t i = 0; i < compiler->late_count; i++) {
        struct brim__batch_step *step = &plan->batch_step[i];
        brim_status status = add_step(compiler, &compiler->late[i], step);
        if (status == BRIM_OK) {
            status =
                brim__enter_stage(compiler, &plan->info.order_fingerprint, compiler->late[i].use);
        }
        impure |= step->impure;
        if (status == BRIM_OK) {
            status = describe(compiler, step, impure);
        }
        if (status != BRIM_OK) {
            const struct brim__spot spot = brim__spot_of(compiler->late[i].use);
            return brim__at_stage(status, &spot);
        }
        plan->batch_steps++;
    }
    return BRIM_OK;
}

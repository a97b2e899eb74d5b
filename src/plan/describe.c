/*
 * describe.c: the plan's text for each stage, and its part of the fingerprints.
 */
#include "plan/compile.h"

#include "transform/picture.h"

#include <stdio.h>

size_t brim__count_stages(const brim_pipeline *pipeline) {
    size_t count = pipeline->use_count;
    for (size_t u = 0; u < pipeline->use_count; u++) {
        const struct brim__use *use = &pipeline->use[u];
        for (size_t a = 0; a < use->stage->info.argument_count; a++) {
            for (size_t i = 0; i < use->values[a].count; i++) {
                const brim_pipeline *nested = use->values[a].items[i].pipeline;
                count += nested != NULL ? brim__count_stages(nested) : 0;
            }
        }
    }
    return count;
}

/* Begins the record of a stage: its name and full text. */
brim_status brim__begin_stage(struct brim__compiler *compiler, const struct brim__use *use,
                              uint32_t *index) {
    brim_plan_stage *stage = &compiler->plan->stage[compiler->stage];
    *index = compiler->stage++;
    assert(*index == use->number); /* the pipeline and the plan use the same numbers */
    stage->name = use->stage->info.name;
    stage->begin = use->begin;
    stage->end = use->end;
    stage->effect = "";
    const size_t length = brim__use_text(use, true, false, NULL, 0);
    char *text;
    const brim_status status =
        brim__arena_take(&compiler->plan->arena, (uint64_t)length + 1, &text);
    if (status == BRIM_OK) {
        brim__use_text(use, true, false, text, length + 1);
        stage->text = text;
    }
    return status;
}

brim_status brim__plan_at_stage(const brim_plan *plan, brim_status status, uint32_t index) {
    if (index < plan->info.stage_count) {
        const brim_plan_stage *stage = &plan->stage[index];
        const struct brim__spot spot = { stage->name, index, stage->begin, stage->end };
        return brim__at_stage(status, &spot);
    }
    return status;
}

brim_status brim__begin_fields(struct brim__compiler *compiler, uint32_t index, uint32_t most) {
    compiler->plan->stage[index].field_count = 0;
    return brim__arena_take(&compiler->plan->arena, most * sizeof(brim_plan_field),
                            &compiler->plan->stage_field[index]);
}

brim_status brim__add_field(struct brim__compiler *compiler, uint32_t index, const char *name,
                            brim_form form, brim_dtype dtype, const struct brim__shape *shape) {
    brim_plan *plan = compiler->plan;
    brim_plan_field *field = &plan->stage_field[index][plan->stage[index].field_count++];
    *field = (brim_plan_field){
        .dtype = dtype, .rank = shape->rank, .bytes = brim_dtype_bytes(dtype), .form = form
    };
    for (uint32_t i = 0; i < shape->rank; i++) {
        field->shape[i] = (int64_t)shape->dim[i];
        field->bytes *= shape->dim[i];
    }
    return brim__arena_text(&plan->arena, name, &field->name); /* the program's may change */
}

brim_status brim__set_effect(struct brim__compiler *compiler, uint32_t index, const char *text) {
    return brim__arena_text(&compiler->plan->arena, text, &compiler->plan->stage[index].effect);
}

brim_status brim__effect_of_program(struct brim__compiler *compiler, uint32_t index,
                                    const struct brim__program *program, const char *note) {
    char text[BRIM__EFFECT_BYTES] = "";
    brim_status status = brim__begin_fields(compiler, index, program->field_count);
    for (uint32_t f = 0; status == BRIM_OK && f < program->field_count; f++) {
        const struct brim__program_field *field = &program->field[f];
        if (field->open != NULL && !brim__picture_of(field)->extent.fixed) {
            const struct brim__shape any = { .rank = 3,
                                             .dim = { 0, 0, brim__picture_of(field)->channels } };
            const size_t length = strlen(text);
            snprintf(text + length, sizeof text - length, "%s%s uint8 of any size x%u",
                     length > 0 ? ", " : "", field->name, brim__picture_of(field)->channels);
            status =
                brim__add_field(compiler, index, field->name, field->form, BRIM_DTYPE_U8, &any);
            continue;
        }
        brim__append_field(text, sizeof text, field->name, field->form, field->pending.to,
                           &field->pending.from.shape);
        status = brim__add_field(compiler, index, field->name, field->form, field->pending.to,
                                 &field->pending.from.shape);
    }
    const size_t length = strlen(text);
    snprintf(text + length, sizeof text - length, "%s%s%s", program->impure ? "; not pure" : "",
             program->probed ? ", probed" : "", note != NULL ? note : "");
    return status == BRIM_OK ? brim__set_effect(compiler, index, text) : status;
}

/* Hashes a stage into a fingerprint: its version and full text without paths. */
brim_status brim__enter_stage(struct brim__compiler *compiler, uint64_t *fingerprint,
                              const struct brim__use *use) {
    char small[1024];
    char *text = small;
    const size_t length = brim__use_text(use, true, true, small, sizeof small);
    if (length >= sizeof small) {
        const brim_status status =
            brim__arena_take(&compiler->plan->arena, (uint64_t)length + 1, &text);
        if (status != BRIM_OK) {
            return status;
        }
        brim__use_text(use, true, true, text, length + 1);
    }
    *fingerprint =
        brim__hash_words(*fingerprint, brim__hash(text, length, use->stage->info.version), 0);
    return BRIM_OK;
}

brim_status brim__effect_of_order(struct brim__compiler *compiler, uint32_t index) {
    char text[BRIM__EFFECT_BYTES];
    const uint64_t count = brim__order_count(&compiler->plan->order);
    if (compiler->plan->sequence.on) {
        return BRIM_OK; /* not known */
    }
    compiler->plan->stage[index].samples = count;
    snprintf(text, sizeof text, "%llu samples", (unsigned long long)count);
    return brim__set_effect(compiler, index, text);
}

/*
 * leaves.c: opening sources: one, or several side by side in `zip`; and loading them.
 */
#include "plan/compile.h"

#include <stdio.h>

static brim_status new_leaf(struct brim__compiler *compiler, struct brim__leaf **leaf) {
    brim_plan *plan = compiler->plan;
    if (plan->leaf_count == BRIM__MAX_LEAVES) {
        return brim__fail(BRIM_STATUS_UNSUPPORTED, "a mix of more than %d sources in all",
                          BRIM__MAX_LEAVES);
    }
    const brim_status status = brim__arena_take(&plan->arena, sizeof **leaf, leaf);
    if (status == BRIM_OK) {
        plan->leaf[plan->leaf_count++] = *leaf;
    }
    return status;
}

static brim_status open_source(struct brim__compiler *compiler, const struct brim__use *use,
                               uint32_t place, struct brim__leaf *leaf) {
    brim_plan *plan = compiler->plan;
    if (leaf->source_count == BRIM__MAX_SOURCES) {
        return brim__fail(BRIM_STATUS_UNSUPPORTED, "zip: more than %d sources side by side",
                          BRIM__MAX_SOURCES);
    }
    struct brim__source *source;
    const uint64_t before = plan->arena.bytes;
    brim_status status = brim__arena_take(&plan->arena, sizeof *source, &source);
    if (status != BRIM_OK) {
        return status;
    }
    /* entered before it is opened: a half-opened one is closed with the plan */
    const uint32_t s = leaf->source_count++;
    leaf->source[s] = source;
    leaf->source_stage[s] = place;
    status = use->stage->open(use, &compiler->opening, source);
    if (status != BRIM_OK) {
        return status;
    }
    plan->stage[place].bytes += plan->arena.bytes - before + source->held_bytes;
    plan->stage[place].samples = source->stream ? 0 : source->count;
    plan->callback |= source->callback;
    plan->info.data_fingerprint =
        brim__hash_words(plan->info.data_fingerprint, source->identity, source->count);
    leaf->data_fingerprint =
        brim__hash_words(leaf->data_fingerprint, source->identity, source->count);
    status = brim__enter_stage(compiler, &plan->info.sample_fingerprint, use);
    if (status == BRIM_OK) {
        status = brim__enter_stage(compiler, &leaf->sample_fingerprint, use);
    }
    if (status != BRIM_OK) {
        return status;
    }
    char text[BRIM__EFFECT_BYTES];
    if (source->stream) {
        snprintf(text, sizeof text, "a stream");
    } else {
        snprintf(text, sizeof text, "%llu samples", (unsigned long long)source->count);
    }
    for (uint32_t f = 0; f < source->field_count; f++) {
        const struct brim__source_field *field = &source->field[f];
        brim__append_field(text, sizeof text, field->name, field->form, field->view.dtype,
                           &field->view.shape);
    }
    if (source->note != NULL) {
        const size_t used = strlen(text);
        brim__copy_text(text + used, sizeof text - used, source->note);
    }
    return brim__set_effect(compiler, place, text);
}

static bool is_plain_source(const struct brim__use *use) {
    return use->stage->info.room == BRIM_ROOM_SOURCE && use->stage->open != NULL;
}

/* `zip (npy a.npy) (npy b.npy)`: each part is one source. */
static brim_status open_zip(struct brim__compiler *compiler, const struct brim__use *use,
                            uint32_t place, struct brim__leaf *leaf) {
    const struct brim__values *parts = &use->values[0];
    for (size_t i = 0; i < parts->count; i++) {
        const brim_pipeline *part = parts->items[i].pipeline;
        if (part->use_count != 1 || !is_plain_source(&part->use[0])) {
            return brim__fail(BRIM_STATUS_INVALID,
                              "zip: part %zu must be one source alone; put the other stages "
                              "behind zip, with on= for single fields",
                              i + 1);
        }
        uint32_t nested;
        brim_status status = brim__begin_stage(compiler, &part->use[0], &nested);
        if (status == BRIM_OK) {
            status = open_source(compiler, &part->use[0], nested, leaf);
        }
        if (status != BRIM_OK) {
            return status;
        }
        if (leaf->source[i]->stream) {
            return brim__fail(BRIM_STATUS_UNSUPPORTED,
                              "zip: part %zu is a stream, whose samples have no numbers to be "
                              "joined by",
                              i + 1);
        }
        if (leaf->source[i]->count != leaf->source[0]->count) {
            return brim__fail(BRIM_STATUS_INVALID,
                              "zip: part 1 has %llu samples, part %zu has %llu: they must have "
                              "equally many",
                              (unsigned long long)leaf->source[0]->count, i + 1,
                              (unsigned long long)leaf->source[i]->count);
        }
    }
    compiler->plan->stage[place].samples = leaf->source[0]->count;
    return BRIM_OK;
}

/* A stream has no count: as good as endless, until it ends. */
#define ENDLESS ((uint64_t)1 << 62)

static brim_status begin_stream(brim_plan *plan, const struct brim__source *source,
                                const struct brim__use *use, bool nested) {
    if (nested) {
        return brim__fail(
            BRIM_STATUS_UNSUPPORTED,
            "'%s' is a stream here, which cannot stand inside parentheses, where every "
            "sample needs a number: read a file",
            use->stage->info.name);
    }
    const brim_status status = brim__sequence_begin(plan, use->stage->info.name, false);
    plan->sequence.stream = true;
    plan->sequence.seekable = source->ops->rewind != NULL;
    return status;
}

brim_status brim__open_leaf(struct brim__compiler *compiler, const struct brim__use *use,
                            uint32_t place, uint64_t branch, bool nested) {
    brim_plan *plan = compiler->plan;
    const bool is_zip = use->stage == &brim__stage_zip;
    struct brim__leaf *leaf;
    brim_status status = new_leaf(compiler, &leaf);
    if (status == BRIM_OK) {
        status =
            is_zip ? open_zip(compiler, use, place, leaf) : open_source(compiler, use, place, leaf);
    }
    if (status == BRIM_OK && leaf->source[0]->stream) {
        status = begin_stream(plan, leaf->source[0], use, nested);
    }
    if (status == BRIM_OK) {
        for (uint32_t s = 0; s < leaf->source_count; s++) {
            leaf->key[s] = brim__hash_words(BRIM_ROOM_SOURCE, s, branch);
            leaf->draws = brim__hash_words(leaf->draws, leaf->key[s], 0);
        }
        leaf->count = leaf->source[0]->stream ? ENDLESS : leaf->source[0]->count;
        if (plan->leaf_count > 1) {
            const struct brim__leaf *before = plan->leaf[plan->leaf_count - 2];
            leaf->first_id = before->first_id + before->count;
        }
        status = brim__order_leaf(&plan->order, plan->leaf_count - 1, leaf->count);
    }
    if (status == BRIM_OK) {
        status = brim__program_init(&leaf->program, &compiler->opening, leaf->source,
                                    leaf->source_count, place);
    }
    if (status == BRIM_OK) {
        brim__cacheable(plan, place, plan->leaf_count - 1);
    }
    if (status == BRIM_OK && is_zip) {
        status = brim__effect_of_program(compiler, place, &leaf->program, NULL);
    }
    return status;
}

/* ----------------------------------------------------------------- loading */

uint64_t brim__plan_held_bytes(const brim_plan *plan) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < plan->leaf_count; i++) {
        for (uint32_t s = 0; s < plan->leaf[i]->source_count; s++) {
            if (brim__add_overflows(bytes, plan->leaf[i]->source[s]->held_bytes, &bytes)) {
                return UINT64_MAX;
            }
        }
    }
    return bytes;
}

brim_status brim__plan_load_source(brim_plan *plan, struct brim__source *source) {
    const struct brim__opening opening = { .arena = &plan->arena,
                                           .progress = plan->progress,
                                           .progress_user = plan->progress_user };
    const uint64_t bytes = source->held_bytes;
    const brim_status status = bytes > 0 ? source->ops->load(source, &opening) : BRIM_OK;
    plan->loaded_bytes += status == BRIM_OK ? bytes : 0;
    return status;
}

brim_status brim__plan_load(brim_plan *plan) {
    for (uint32_t i = 0; i < plan->leaf_count; i++) {
        for (uint32_t s = 0; s < plan->leaf[i]->source_count; s++) {
            const brim_status status = brim__plan_load_source(plan, plan->leaf[i]->source[s]);
            if (status != BRIM_OK) {
                return status;
            }
        }
    }
    return BRIM_OK;
}

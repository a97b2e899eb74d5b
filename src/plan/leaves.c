/*
 * leaves.c: opens sources, one or several side by side in `zip`, and loads them.
 */
#include "plan/compile.h"

#include "source/zip.h"

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

/* The name of a source in a failure that names no file: its first path or binding. */
static brim_status name_source(struct brim__arena *arena, const struct brim__use *use,
                               const char **name) {
    char text[BRIM_NAME_BYTES + 2];
    *name = NULL;
    for (size_t a = 0; a < use->stage->info.argument_count; a++) {
        const brim_type type = brim_stage_argument_at(&use->stage->info, a)->type;
        if (use->values[a].count == 0) {
            continue;
        }
        const char *value = use->values[a].items[0].text;
        if (type == BRIM_TYPE_PATH) {
            return brim__arena_text(arena, value, name);
        }
        if (type == BRIM_TYPE_BINDING) {
            snprintf(text, sizeof text, "@%s", value);
            return brim__arena_text(arena, text, name);
        }
    }
    return BRIM_OK;
}

static brim_status open_source(struct brim__compiler *compiler, const struct brim__use *use,
                               uint32_t index, struct brim__leaf *leaf) {
    brim_plan *plan = compiler->plan;
    if (leaf->source_count == BRIM__MAX_SOURCES) {
        return brim__fail(BRIM_STATUS_UNSUPPORTED, "zip: more than %d sources side by side",
                          BRIM__MAX_SOURCES);
    }
    struct brim__source *source;
    const uint64_t before = plan->arena.taken;
    brim_status status = brim__arena_take(&plan->arena, sizeof *source, &source);
    if (status != BRIM_OK) {
        return status;
    }
    /* counted before it is opened, so that a half-opened one is closed with the plan */
    const uint32_t s = leaf->source_count++;
    leaf->source[s] = source;
    leaf->source_stage[s] = index;
    status = name_source(&plan->arena, use, &leaf->source_name[s]);
    if (status == BRIM_OK) {
        status = use->stage->open(use, &compiler->opening, source);
    }
    if (status != BRIM_OK) {
        return leaf->source_name[s] == NULL ? status
                                            : brim__at_source(status, leaf->source_name[s]);
    }
    plan->stage[index].bytes += plan->arena.taken - before + source->held_bytes;
    plan->stage[index].samples = source->stream ? 0 : source->count;
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
    status = brim__begin_fields(compiler, index, source->field_count);
    for (uint32_t f = 0; status == BRIM_OK && f < source->field_count; f++) {
        const struct brim__source_field *field = &source->field[f];
        brim__append_field(text, sizeof text, field->name, field->form, field->view.dtype,
                           &field->view.shape);
        status = brim__add_field(compiler, index, field->name, field->form, field->view.dtype,
                                 &field->view.shape);
    }
    if (source->note != NULL) {
        const size_t used = strlen(text);
        brim__copy_text(text + used, sizeof text - used, source->note);
    }
    return status == BRIM_OK ? brim__set_effect(compiler, index, text) : status;
}

/* The arguments of a stage with several sources for opening its parts. */
struct zipping {
    struct brim__compiler *compiler;
    const char *stage;
    struct brim__leaf *leaf;
};

/* A brim__zip_site's open_part. */
static brim_status open_part(void *user, const brim_pipeline *part, size_t number,
                             const struct brim__source **out) {
    const struct zipping *zipping = user;
    struct brim__leaf *leaf = zipping->leaf;
    if (part->use_count != 1 || part->use[0].stage->open == NULL) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "%s: part %zu must be one source alone; put the other stages after %s, "
                          "with on= for single fields",
                          zipping->stage, number, zipping->stage);
    }
    const struct brim__spot spot = brim__spot_of(&part->use[0]);
    uint32_t index;
    brim_status status = brim__begin_stage(zipping->compiler, &part->use[0], &index);
    if (status == BRIM_OK) {
        status = open_source(zipping->compiler, &part->use[0], index, leaf);
    }
    if (status == BRIM_OK) {
        *out = leaf->source[leaf->source_count - 1];
    }
    return brim__at_stage(status, &spot);
}

/* `zip (npy a.npy) (npy b.npy)`: each part is one source. */
static brim_status open_sources(struct brim__compiler *compiler, const struct brim__use *use,
                                uint32_t index, struct brim__leaf *leaf) {
    struct zipping zipping = { compiler, use->stage->info.name, leaf };
    const struct brim__zip_site site = { .open_part = open_part, .user = &zipping };
    const brim_status status = use->stage->zip_parts(use, &site);
    if (status == BRIM_OK) {
        compiler->plan->stage[index].samples = leaf->source[0]->count;
    }
    return status;
}

/* A stream has no count: it counts as endless until it ends. */
#define ENDLESS ((uint64_t)1 << 62)

static brim_status begin_stream(brim_plan *plan, const struct brim__source *source,
                                const struct brim__use *use, bool nested) {
    if (nested) {
        return brim__fail(BRIM_STATUS_UNSUPPORTED,
                          "'%s' is a stream here, which cannot be inside parentheses, where every "
                          "sample needs a number: read a file",
                          use->stage->info.name);
    }
    const brim_status status = brim__sequence_begin(plan, use->stage->info.name, false);
    plan->sequence.stream = true;
    plan->sequence.seekable = source->ops->rewind != NULL;
    return status;
}

brim_status brim__open_leaf(struct brim__compiler *compiler, const struct brim__use *use,
                            uint32_t index, uint64_t branch, bool nested) {
    brim_plan *plan = compiler->plan;
    const bool zips = use->stage->zip_parts != NULL;
    struct brim__leaf *leaf;
    brim_status status = new_leaf(compiler, &leaf);
    if (status == BRIM_OK) {
        status = zips ? open_sources(compiler, use, index, leaf)
                      : open_source(compiler, use, index, leaf);
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
                                    leaf->source_count, index);
    }
    if (status == BRIM_OK) {
        brim__cacheable(plan, index, plan->leaf_count - 1);
    }
    if (status == BRIM_OK && zips) {
        status = brim__effect_of_program(compiler, index, &leaf->program, NULL);
    }
    return status;
}

/* ---------------------------------------------------------------- failures */

brim_status brim__plan_at_sample(const brim_plan *plan, brim_status status,
                                 const struct brim__leaf *leaf, uint32_t source, uint64_t sample) {
    const struct brim__source *from = leaf->source[source];
    const uint32_t step = brim__noted_step();
    char path[BRIM_SOURCE_BYTES] = "";
    uint64_t byte = BRIM_UNKNOWN;
    brim__note_sample(leaf->first_id + sample);
    if (from->ops->where != NULL) {
        from->ops->where(from, sample, path, &byte);
    }
    if (path[0] != '\0') {
        brim__note_source_byte(path, byte);
    } else if (leaf->source_name[source] != NULL) {
        brim__note_source(leaf->source_name[source]);
    }
    return brim__plan_at_stage(plan, status,
                               step == BRIM_NO_STAGE ? leaf->source_stage[source] : step);
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
            const struct brim__leaf *leaf = plan->leaf[i];
            const brim_status status = brim__plan_load_source(plan, leaf->source[s]);
            if (status != BRIM_OK) {
                return brim__plan_at_stage(plan, status, leaf->source_stage[s]);
            }
        }
    }
    return BRIM_OK;
}

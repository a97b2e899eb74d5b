/*
 * pipeline.c: pipelines as objects: makes, extends, cuts, copies and frees them.
 *
 * A pipeline and everything that its values point to are in one arena. A nested pipeline is a
 * struct in the arena of the outermost one and has neither its own arena nor a text. The text of
 * the outermost pipeline is made at every change, so that reading it is safe from any thread.
 *
 * Adding a stage uses a separate arena until only a lack of memory can make it fail, so that a
 * refused stage changes nothing.
 */
#include "base/struct.h"
#include "plan/parse.h"

#include <stdio.h>

/* An empty pipeline; NULL with *status set. */
static brim_pipeline *make(brim_status *status) {
    brim_pipeline *fresh = brim__alloc(NULL, sizeof *fresh, status);
    if (fresh == NULL) {
        return NULL;
    }
    brim__arena_init(&fresh->arena, NULL);
    *status = brim__pipeline_keep_text(fresh);
    if (*status != BRIM_OK) {
        brim_pipeline_free(fresh);
        return NULL;
    }
    return fresh;
}

brim_status brim_pipeline_new(brim_pipeline **pipeline) {
    if (pipeline == NULL) {
        return brim__fail_null("pipeline");
    }
    *pipeline = NULL;
    brim_status status;
    brim_pipeline *fresh = make(&status);
    if (fresh == NULL) {
        return status;
    }
    *pipeline = fresh;
    return BRIM_OK;
}

void brim_pipeline_free(brim_pipeline *pipeline) {
    if (pipeline != NULL) {
        brim__arena_fini(&pipeline->arena);
        brim__free(pipeline->text);
        brim__free(pipeline);
    }
}

brim_status brim__pipeline_room(struct brim__arena *arena, brim_pipeline *pipeline,
                                struct brim__use **use) {
    if (pipeline->use_count == pipeline->use_capacity) {
        const size_t capacity = pipeline->use_capacity == 0 ? 4 : 2 * pipeline->use_capacity;
        struct brim__use *uses;
        const brim_status status = brim__arena_take(arena, capacity * sizeof *uses, &uses);
        if (status != BRIM_OK) {
            return status;
        }
        if (pipeline->use_count > 0) {
            memcpy(uses, pipeline->use, pipeline->use_count * sizeof *uses);
        }
        pipeline->use = uses;
        pipeline->use_capacity = capacity;
    }
    *use = &pipeline->use[pipeline->use_count];
    return BRIM_OK;
}

/* Fails if a text of `length` bytes would be too long to be parsed again. */
static brim_status check_length(size_t length) {
    if (length > BRIM__PIPELINE_BYTES) {
        return brim__fail(BRIM_STATUS_SYNTAX,
                          "the pipeline's text has %zu bytes; at most %u are allowed", length,
                          BRIM__PIPELINE_BYTES);
    }
    return BRIM_OK;
}

brim_status brim__pipeline_keep_text(brim_pipeline *pipeline) {
    const size_t length = brim__pipeline_write(pipeline, false, false, NULL, 0);
    brim_status status = check_length(length);
    if (status != BRIM_OK) {
        return status;
    }
    char *text = brim__alloc(NULL, length + 1, &status);
    if (text == NULL) {
        return status;
    }
    brim__pipeline_mark(pipeline, text, length + 1);
    brim__free(pipeline->text);
    pipeline->text = text;
    return BRIM_OK;
}

/* ------------------------------------------------------------------- copy */

static brim_status copy_stages(struct brim__arena *arena, const brim_pipeline *from,
                               brim_pipeline *to);

static brim_status copy_item(struct brim__arena *arena, const struct brim__item *from,
                             struct brim__item *to) {
    *to = *from;
    brim_status status = brim__arena_text(arena, from->text, &to->text);
    if (status == BRIM_OK && from->pipeline != NULL) {
        status = brim__arena_take(arena, sizeof *to->pipeline, &to->pipeline);
        if (status == BRIM_OK) {
            status = copy_stages(arena, from->pipeline, to->pipeline);
        }
    }
    return status;
}

static brim_status copy_use(struct brim__arena *arena, const struct brim__use *from,
                            struct brim__use *to) {
    const size_t count = from->stage->info.argument_count;
    struct brim__values *values;
    brim_status status = brim__arena_take(arena, (count + 1) * sizeof *values, &values);
    for (size_t i = 0; i < count && status == BRIM_OK; i++) {
        const struct brim__values *given = &from->values[i];
        struct brim__item *items;
        struct brim__extent *extents;
        status = brim__arena_take(arena, (given->count + 1) * sizeof *items, &items);
        if (status == BRIM_OK) {
            status = brim__arena_take(arena, (given->count + 1) * sizeof *extents, &extents);
        }
        for (size_t k = 0; k < given->count && status == BRIM_OK; k++) {
            status = copy_item(arena, &given->items[k], &items[k]);
        }
        if (status == BRIM_OK) {
            values[i] = (struct brim__values){ items, extents, given->count };
        }
    }
    if (status == BRIM_OK) {
        *to = (struct brim__use){ .stage = from->stage, .values = values };
    }
    return status;
}

static brim_status copy_stages(struct brim__arena *arena, const brim_pipeline *from,
                               brim_pipeline *to) {
    brim_status status = BRIM_OK;
    for (size_t i = 0; i < from->use_count && status == BRIM_OK; i++) {
        struct brim__use *use;
        status = brim__pipeline_room(arena, to, &use);
        if (status == BRIM_OK) {
            status = copy_use(arena, &from->use[i], use);
        }
        to->use_count += status == BRIM_OK;
    }
    return status;
}

brim_status brim_pipeline_copy(const brim_pipeline *pipeline, brim_pipeline **copy) {
    if (copy == NULL) {
        return brim__fail_null("copy");
    }
    *copy = NULL;
    if (pipeline == NULL) {
        return brim__fail_null("pipeline");
    }
    brim_status status;
    brim_pipeline *fresh = make(&status);
    if (fresh == NULL) {
        assert(status != BRIM_OK);
        return status;
    }
    status = copy_stages(&fresh->arena, pipeline, fresh);
    if (status == BRIM_OK) {
        status = brim__pipeline_keep_text(fresh);
    }
    if (status != BRIM_OK) {
        brim_pipeline_free(fresh);
        return status;
    }
    *copy = fresh;
    return BRIM_OK;
}

/* -------------------------------------------------------------------- add */

/* Levels of parentheses inside. */
static size_t depth_of(const brim_pipeline *pipeline) {
    size_t deepest = 0;
    for (size_t i = 0; i < pipeline->use_count; i++) {
        const struct brim__use *use = &pipeline->use[i];
        for (size_t a = 0; a < use->stage->info.argument_count; a++) {
            for (size_t k = 0; k < use->values[a].count; k++) {
                const brim_pipeline *nested = use->values[a].items[k].pipeline;
                const size_t depth = nested == NULL ? 0 : 1 + depth_of(nested);
                deepest = depth > deepest ? depth : deepest;
            }
        }
    }
    return deepest;
}

/* Makes the raw value of an argument. Numbers are written as text, so that they get the same checks
 * as in a text. */
static brim_status spell(const struct brim__draft *draft, const brim_argument *argument,
                         struct brim__raw *raw) {
    const char *stage = draft->stage->info.name;
    char number[BRIM__REAL_TEXT];
    *raw = (struct brim__raw){ .spelling = BRIM__BUILT };
    switch (argument->kind) {
    case BRIM_ARGUMENT_TEXT:
        if (argument->text == NULL) {
            return brim__fail(BRIM_STATUS_INVALID, "%s: the text of an argument is NULL", stage);
        }
        if (strnlen(argument->text, BRIM__PIPELINE_BYTES) == BRIM__PIPELINE_BYTES) {
            return check_length(BRIM__PIPELINE_BYTES + 1);
        }
        raw->text = argument->text; /* copied with the whole use */
        return BRIM_OK;
    case BRIM_ARGUMENT_INTEGER:
        snprintf(number, sizeof number, "%lld", (long long)argument->integer);
        return brim__arena_text(draft->reading->arena, number, &raw->text);
    case BRIM_ARGUMENT_REAL:
        brim__real_text(argument->real, number);
        return brim__arena_text(draft->reading->arena, number, &raw->text);
    case BRIM_ARGUMENT_PIPELINE:
        if (argument->pipeline == NULL || argument->pipeline->use_count == 0) {
            return brim__fail(BRIM_STATUS_INVALID, "%s: the pipeline of an argument is %s", stage,
                              argument->pipeline == NULL ? "NULL" : "empty");
        }
        if (depth_of(argument->pipeline) >= BRIM__PIPELINE_DEPTH) {
            return brim__complain(draft->reading, 0,
                                  "%s: pipelines are nested deeper than %d levels", stage,
                                  BRIM__PIPELINE_DEPTH);
        }
        raw->pipeline = (brim_pipeline *)argument->pipeline; /* only read, and copied */
        return BRIM_OK;
    }
    return brim__fail(BRIM_STATUS_INVALID, "%s: an argument is of unknown kind %d", stage,
                      (int)argument->kind);
}

/* Checks everything. *use points into the reading's arena and the caller's arguments. */
static brim_status draft_use(const struct brim__reading *reading, const char *name,
                             const brim_argument *arguments, size_t count, struct brim__use *use) {
    const struct brim__stage *stage;
    struct brim__draft draft;
    brim_status status = brim__find_stage(reading, name, 0, &stage);
    if (status == BRIM_OK) {
        status = brim__draft_begin(&draft, reading, stage, 0);
    }
    for (size_t i = 0; i < count && status == BRIM_OK; i++) {
        brim_argument argument = BRIM_ARGUMENT_INIT;
        status = brim__struct_take("an argument", "BRIM_ARGUMENT_INIT",
                                   (const char *)arguments + i * arguments->size, arguments->size,
                                   &argument, sizeof argument);
        if (status != BRIM_OK) {
            break;
        }
        size_t index;
        struct brim__raw raw;
        status = argument.key == NULL ? brim__draft_next(&draft, 0, &index)
                                      : brim__draft_key(&draft, argument.key, 0, true, &index);
        if (status == BRIM_OK) {
            status = spell(&draft, &argument, &raw);
        }
        if (status == BRIM_OK) {
            status = brim__draft_put(&draft, index, &raw);
        }
    }
    return status == BRIM_OK ? brim__draft_end(&draft, use) : status;
}

/* Adds a checked use at the end. Only a lack of memory can make it fail. */
static brim_status append(brim_pipeline *pipeline, const struct brim__use *use) {
    static const char bar[] = " | ";
    const size_t before = strlen(pipeline->text);
    const size_t gap = pipeline->use_count > 0 ? sizeof bar - 1 : 0;
    const size_t length = before + gap + brim__use_text(use, false, false, NULL, 0);
    brim_status status = check_length(length);
    if (status != BRIM_OK) {
        return status;
    }
    char *text = brim__alloc(NULL, length + 1, &status);
    if (text == NULL) {
        return status;
    }
    struct brim__use copied, *place;
    status = copy_use(&pipeline->arena, use, &copied);
    if (status == BRIM_OK) {
        status = brim__pipeline_room(&pipeline->arena, pipeline, &place);
    }
    if (status != BRIM_OK) {
        brim__free(text);
        return status;
    }
    memcpy(text, pipeline->text, before);
    memcpy(text + before, bar, gap);
    *place = copied;
    brim__use_mark(pipeline, place, text, before + gap, length + 1);
    pipeline->use_count++;
    brim__free(pipeline->text);
    pipeline->text = text;
    return BRIM_OK;
}

brim_status brim__pipeline_add(struct brim__table table, brim_pipeline *pipeline, const char *stage,
                               const brim_argument *arguments, size_t count) {
    if (pipeline == NULL || stage == NULL || (arguments == NULL && count > 0)) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "brim_pipeline_add: pipeline, stage and arguments must not be NULL");
    }
    if (pipeline->use_count == BRIM__PIPELINE_STAGES) {
        return brim__fail(BRIM_STATUS_SYNTAX, "a pipeline has at most %d stages",
                          BRIM__PIPELINE_STAGES);
    }
    struct brim__arena scratch;
    brim__arena_init(&scratch, NULL);
    const struct brim__reading reading = {
        .table = table,
        .arena = &scratch,
        .spot = { .stage = stage, .index = pipeline->stage_count },
    };
    struct brim__use use;
    brim_status status = draft_use(&reading, stage, arguments, count, &use);
    if (status == BRIM_OK) {
        status = append(pipeline, &use);
    }
    brim__arena_fini(&scratch);
    return status;
}

brim_status brim_pipeline_add(brim_pipeline *pipeline, const char *stage,
                              const brim_argument *arguments, size_t count) {
    const struct brim__table table = { brim__stages, brim__stages_count };
    return brim__pipeline_add(table, pipeline, stage, arguments, count);
}

/* -------------------------------------------------------------------- cut */

size_t brim_pipeline_length(const brim_pipeline *pipeline) {
    return pipeline == NULL ? 0 : pipeline->use_count;
}

brim_status brim_pipeline_cut(brim_pipeline *pipeline, size_t count) {
    if (pipeline == NULL) {
        return brim__fail_null("pipeline");
    }
    if (count > pipeline->use_count) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "brim_pipeline_cut: the pipeline has %zu stages, so it cannot keep %zu",
                          pipeline->use_count, count);
    }
    /* the remaining stages are copied, so that memory stays bounded by the text */
    brim_pipeline first = *pipeline, *kept;
    first.use_count = count;
    const brim_status status = brim_pipeline_copy(&first, &kept);
    if (status == BRIM_OK) {
        first = *pipeline;
        *pipeline = *kept;
        *kept = first;
        brim_pipeline_free(kept);
    }
    return status;
}

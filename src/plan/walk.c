/*
 * walk.c: public access to the stages and values of a pipeline.
 *
 * Stages are numbered in the order of the text when the text is made. So the numbers of a chain's
 * stages grow, and stages in the parentheses of a stage have numbers between its own and the next
 * one's. A stage is found by searching from the outermost chain inwards.
 */
#include "base/struct.h"
#include "plan/pipeline.h"

struct found {
    const struct brim__use *use;
    uint32_t depth, parent, branch;
};

/* The last stage of a chain whose number is not above `number`. */
static const struct brim__use *find_in(const brim_pipeline *chain, uint32_t number) {
    size_t low = 0, high = chain->use_count;
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (chain->use[middle].number <= number) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return &chain->use[low];
}

/* Finds the pipeline in the stage's parentheses that has the stage `number`, and its index. */
static const brim_pipeline *find_branch(const struct brim__use *use, uint32_t number,
                                        uint32_t *branch) {
    const brim_pipeline *found = NULL;
    uint32_t count = 0;
    for (size_t a = 0; a < use->stage->info.argument_count; a++) {
        for (size_t i = 0; i < use->values[a].count; i++) {
            const brim_pipeline *nested = use->values[a].items[i].pipeline;
            if (nested == NULL) {
                continue;
            }
            if (nested->use[0].number <= number &&
                (found == NULL || nested->use[0].number > found->use[0].number)) {
                found = nested;
                *branch = count;
            }
            count++;
        }
    }
    return found;
}

size_t brim_pipeline_stage_count(const brim_pipeline *pipeline) {
    return pipeline == NULL ? 0 : pipeline->stage_count;
}

static brim_status find(const brim_pipeline *pipeline, size_t stage, struct found *found) {
    if (pipeline == NULL) {
        return brim__fail(BRIM_STATUS_INVALID, "the pipeline is NULL");
    }
    if (stage >= pipeline->stage_count) {
        return brim__fail(BRIM_STATUS_INVALID, "stage %zu: the pipeline has %u stages", stage,
                          pipeline->stage_count);
    }
    const uint32_t number = (uint32_t)stage;
    *found = (struct found){ .use = find_in(pipeline, number), .parent = BRIM_NO_STAGE };
    while (found->use->number != number) {
        const brim_pipeline *nested = find_branch(found->use, number, &found->branch);
        assert(nested != NULL);
        found->parent = found->use->number;
        found->depth++;
        found->use = find_in(nested, number);
    }
    return BRIM_OK;
}

static size_t count_values(const struct brim__use *use) {
    size_t count = 0;
    for (size_t a = 0; a < use->stage->info.argument_count; a++) {
        count += use->values[a].count;
    }
    return count;
}

void brim__pipeline_note_given(const brim_pipeline *pipeline) {
    struct found found;
    const uint32_t stage = brim__noted_stage();
    if (stage < pipeline->stage_count && find(pipeline, stage, &found) == BRIM_OK) {
        brim__note_extent(found.use->given_begin, found.use->given_end);
    }
}

brim_status brim_pipeline_read_stage(const brim_pipeline *pipeline, size_t stage,
                                     brim_pipeline_stage *out) {
    struct found found;
    if (pipeline == NULL) {
        return brim__fail_null("pipeline");
    }
    brim_status status = brim__struct_check("stage", "BRIM_PIPELINE_STAGE_INIT", out);
    if (status == BRIM_OK) {
        status = find(pipeline, stage, &found);
    }
    if (status != BRIM_OK) {
        return status;
    }
    const brim_pipeline_stage whole = { .info = &found.use->stage->info,
                                        .begin = found.use->begin,
                                        .end = found.use->end,
                                        .depth = found.depth,
                                        .parent = found.parent,
                                        .branch = found.branch,
                                        .value_count = count_values(found.use) };
    brim__struct_give(out, &whole, sizeof whole);
    return BRIM_OK;
}

/* Finds value `number` of a stage, its argument, and how many pipelines are before it. */
static const struct brim__item *find_value(const struct brim__use *use, size_t number,
                                           size_t *argument, struct brim__extent *extent,
                                           uint32_t *branches) {
    *branches = 0;
    for (size_t a = 0; a < use->stage->info.argument_count; a++) {
        const struct brim__values *values = &use->values[a];
        for (size_t i = 0; i < values->count; i++) {
            if (number-- == 0) {
                *argument = a;
                *extent = values->extents[i];
                return &values->items[i];
            }
            *branches += values->items[i].pipeline != NULL;
        }
    }
    return NULL;
}

brim_status brim_pipeline_read_value(const brim_pipeline *pipeline, size_t stage, size_t value,
                                     brim_pipeline_value *out) {
    struct found found;
    struct brim__extent extent = { 0 };
    size_t argument = 0;
    uint32_t branch;
    if (pipeline == NULL) {
        return brim__fail_null("pipeline");
    }
    brim_status status = brim__struct_check("value", "BRIM_PIPELINE_VALUE_INIT", out);
    if (status == BRIM_OK) {
        status = find(pipeline, stage, &found);
    }
    if (status != BRIM_OK) {
        return status;
    }
    const struct brim__item *item = find_value(found.use, value, &argument, &extent, &branch);
    if (item == NULL) {
        return brim__fail(BRIM_STATUS_INVALID, "value %zu: '%s' has %zu here", value,
                          found.use->stage->info.name, count_values(found.use));
    }
    const brim_pipeline_value whole = { .info = brim_stage_argument_at(&found.use->stage->info,
                                                                       argument),
                                        .text = item->text,
                                        .integer = item->integer,
                                        .real = item->real,
                                        .branch = item->pipeline != NULL ? branch : BRIM_NO_STAGE,
                                        .begin = extent.begin,
                                        .end = extent.end };
    brim__struct_give(out, &whole, sizeof whole);
    return BRIM_OK;
}

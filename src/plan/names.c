/*
 * names.c: the name of a sample, by the number that batches give it.
 *
 * The samples of all leaves are numbered consecutively. The name of a sample that is a file is the
 * file's path; in a zip the first source that reads files by name decides. Other samples have the
 * name that messages use.
 *
 * It uses only data that do not change after a plan is made, and reads files by position, so it is
 * safe from any thread while a loader runs.
 */
#include "base/struct.h"
#include "plan/plan.h"

static const struct brim__leaf *find_leaf(const brim_plan *plan, uint64_t sample) {
    for (uint32_t i = 0; i < plan->leaf_count; i++) {
        if (sample - plan->leaf[i]->first_id < plan->leaf[i]->count) {
            return plan->leaf[i]; /* below first_id the difference wraps */
        }
    }
    return NULL;
}

static brim_status name_of(const brim_plan *plan, const struct brim__leaf *leaf, uint64_t sample,
                           char name[BRIM__SAMPLE_NAME]) {
    for (uint32_t s = 0; s < leaf->source_count; s++) {
        const struct brim__source *source = leaf->source[s];
        if (source->ops->path != NULL) {
            return source->ops->path(source, sample, 0, plan->budget, name);
        }
    }
    leaf->source[0]->ops->describe(leaf->source[0], sample, name, BRIM__SAMPLE_NAME);
    return BRIM_OK;
}

brim_status brim_plan_sample_name(const brim_plan *plan, uint64_t sample, char *text,
                                  size_t text_bytes) {
    char name[BRIM__SAMPLE_NAME] = "";
    if (plan == NULL || text == NULL) {
        return brim__fail_null("plan and text");
    }
    brim_status status = brim__budget_usable(plan->budget, BRIM_MEMORY_HOST);
    if (status != BRIM_OK) {
        return status;
    }
    if (plan->sequence.stream) {
        return brim__fail(BRIM_STATUS_UNSUPPORTED,
                          "sample %llu: the samples of a stream have no names; read a file, whose "
                          "samples have names",
                          (unsigned long long)sample);
    }
    const struct brim__leaf *leaf = find_leaf(plan, sample);
    if (leaf == NULL) {
        const struct brim__leaf *last = plan->leaf[plan->leaf_count - 1];
        const unsigned long long count = last->first_id + last->count;
        return brim__fail(BRIM_STATUS_INVALID, "sample %llu: the sources have %llu samples in all",
                          (unsigned long long)sample, count);
    }
    status = name_of(plan, leaf, sample - leaf->first_id, name);
    const size_t needed = strlen(name) + 1;
    if (status == BRIM_OK && needed > text_bytes) { /* part of a path may be another path */
        status =
            brim__fail(BRIM_STATUS_INVALID, "sample %llu: its name needs %zu bytes, text has %zu",
                       (unsigned long long)sample, needed, text_bytes);
    }
    if (status == BRIM_OK) {
        memcpy(text, name, needed);
    }
    return status;
}

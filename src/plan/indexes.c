/*
 * indexes.c: lists the indexes that a plan's sources opened, for the public plan.
 */
#include "base/struct.h"
#include "plan/plan.h"
#include "source/index.h"

brim_status brim__plan_list_indexes(brim_plan *plan) {
    uint32_t count = 0;
    for (const struct brim__index *index = plan->indexes; index != NULL; index = index->next) {
        count++;
    }
    if (count == 0) {
        return BRIM_OK;
    }
    const brim_status status =
        brim__arena_take(&plan->arena, count * sizeof *plan->index, &plan->index);
    if (status != BRIM_OK) {
        return status;
    }
    plan->info.index_count = count;
    for (const struct brim__index *index = plan->indexes; index != NULL; index = index->next) {
        plan->index[--count] = (brim_plan_index){ .path = index->file.path,
                                                  .data_path = index->data_path,
                                                  .records = index->count,
                                                  .largest_bytes = index->largest,
                                                  .data_bytes = index->data_bytes,
                                                  .bytes = index->file.bytes,
                                                  .made = index->made,
                                                  .note = index->note == NULL ? "" : index->note };
    }
    return BRIM_OK;
}

const brim_plan_index *brim_plan_index_at(const brim_plan *plan, size_t index) {
    return plan != NULL && index < plan->info.index_count ? &plan->index[index] : NULL;
}

brim_status brim_plan_verify(const brim_plan *plan, brim_progress_callback *progress,
                             void *progress_user) {
    if (plan == NULL) {
        return brim__fail_null("plan");
    }
    brim_status status = brim__budget_usable(plan->budget, BRIM_MEMORY_HOST);
    for (const struct brim__index *index = plan->indexes; status == BRIM_OK && index != NULL;
         index = index->next) {
        status = brim__index_verify(index, progress, progress_user);
    }
    return status;
}

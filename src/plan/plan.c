/*
 * plan.c: making and freeing a plan. The plan is in its own arena, so freeing it means closing its
 * files and freeing the arena.
 */
#include "plan/plan.h"

brim_status brim__plan_build(const struct brim__plan_request *request,
                             const brim_pipeline *pipeline, brim_plan **out) {
    struct brim__arena arena;
    brim_plan *plan;
    brim__arena_init(&arena, request->budget);
    brim_status status = brim__arena_take(&arena, sizeof *plan, &plan);
    if (status != BRIM_OK) {
        brim__arena_fini(&arena);
        return status;
    }
    plan->arena = arena;
    plan->budget = request->budget;
    plan->info.reason = "";
    brim__budget_ref(plan->budget);
    brim__copy_text(plan->limit_origin, sizeof plan->limit_origin, request->limit_origin);
    plan->info.limit_origin = plan->limit_origin;
    status = brim__plan_compile(plan, request, pipeline);
    if (status == BRIM_OK) {
        status = brim__plan_fit(plan, request);
    }
    if (status != BRIM_OK) {
        brim__plan_free(plan);
        return status;
    }
    *out = plan;
    return BRIM_OK;
}

void brim__plan_free(brim_plan *plan) {
    if (plan == NULL) {
        return;
    }
    for (uint32_t i = plan->leaf_count; i-- > 0;) {
        struct brim__leaf *leaf = plan->leaf[i];
        for (uint32_t s = leaf->source_count; s-- > 0;) {
            if (leaf->source[s]->ops != NULL) {
                leaf->source[s]->ops->close(leaf->source[s]);
            }
        }
    }
    for (struct brim__serial *serial = plan->serials; serial != NULL; serial = serial->next) {
        brim__mutex_fini(&serial->mutex);
    }
    struct brim__arena arena = plan->arena; /* holds the plan itself */
    brim_budget *budget = plan->budget;
    brim__arena_fini(&arena);
    brim__budget_unref(budget);
}

const brim_plan_info *brim_plan_get(const brim_plan *plan) {
    return plan != NULL ? &plan->info : NULL;
}

const brim_plan_field *brim_plan_field_at(const brim_plan *plan, size_t index) {
    return plan != NULL && index < plan->info.field_count ? &plan->field[index] : NULL;
}

const brim_plan_stage *brim_plan_stage_at(const brim_plan *plan, size_t index) {
    return plan != NULL && index < plan->info.stage_count ? &plan->stage[index] : NULL;
}

const brim_plan_field *brim_plan_stage_field_at(const brim_plan *plan, size_t stage, size_t index) {
    const brim_plan_stage *own = brim_plan_stage_at(plan, stage);
    return own != NULL && index < own->field_count ? &plan->stage_field[stage][index] : NULL;
}

/*
 * fit.c: how much of a plan the budget holds.
 *
 *     minimum = what was there + arena + (hold + 1) slots + 1 scratch + window
 *     planned = minimum + workers x (stack, if not running, + scratch) + more slots
 *
 * Above the minimum first come workers, up to what the runtime runs, then slots:
 * two more, and of small ones one for each of up to four workers, because there
 * waking a thread costs as much as making a batch and a longer ring needs it less often.
 * What others hold elastically counts as free: it gives way.
 */
#include "plan/plan.h"

#include <stdio.h>

#define MORE_SLOTS   2
#define MORE_SMALL   4
#define SMALL_SLOT   (1u << 20)
#define REASON_BYTES 640

/* a * b and sums of it saturate: what does not fit 64 bits fits no budget. */
static uint64_t times(uint64_t a, uint64_t b) {
    uint64_t result;
    return brim__mul_overflows(a, b, &result) ? UINT64_MAX : result;
}
static uint64_t plus(uint64_t a, uint64_t b) {
    uint64_t result;
    return brim__add_overflows(a, b, &result) ? UINT64_MAX : result;
}

static void explain(const brim_plan *plan, uint64_t needed, uint64_t available, char *text) {
    char holders[256], window[64] = "", sizes[5][BRIM__SIZE_TEXT];
    const brim_plan_info *info = &plan->info;
    brim__budget_holders(brim__budget_tightest(plan->budget), holders, sizeof(holders));
    if (info->window_bytes > 0) {
        snprintf(window, sizeof(window), " and %s of window",
                 brim__size_text(info->window_bytes, sizes[4]));
    }
    snprintf(text, REASON_BYTES,
             "needs at least %s more (%u slots of %s%s%s of scratch%s), but only %s can be had; "
             "held by: %s; alone it fits into a budget of %llu bytes; make the batch smaller, use "
             "micro-batches, or raise the budget",
             brim__size_text(needed, sizes[0]), info->minimum_slots,
             brim__size_text(info->slot_bytes, sizes[1]), window[0] != '\0' ? ", " : " and ",
             brim__size_text(info->scratch_bytes, sizes[2]), window,
             brim__size_text(available, sizes[3]), holders[0] != '\0' ? holders : "nobody",
             (unsigned long long)info->minimum_bytes);
}

/* What the batch stage puts out, and what its slots need. */
static brim_status describe_batches(brim_plan *plan) {
    const brim_plan_info *info = &plan->info;
    char text[160];
    if (plan->batch_stage == NULL) {
        return BRIM_OK;
    }
    int length = snprintf(text, sizeof(text), "%llu batches of %llu rows",
                          (unsigned long long)info->batches, (unsigned long long)info->batch_rows);
    if (info->batches == BRIM_UNKNOWN) {
        length = snprintf(text, sizeof(text), "batches of %s%llu rows",
                          plan->batching.bucket.on ? "up to " : "",
                          (unsigned long long)info->batch_rows);
    }
    if (info->batches != info->steps) {
        snprintf(text + length, sizeof(text) - (size_t)length, " in %llu steps",
                 (unsigned long long)info->steps);
    }
    plan->batch_stage->bytes = times(info->minimum_slots, info->slot_bytes);
    return brim__arena_text(&plan->arena, text, &plan->batch_stage->effect);
}

brim_status brim__plan_fit(brim_plan *plan, const struct brim__plan_request *request) {
    const brim_open_options *options = request->options;
    brim_plan_info *info = &plan->info;
    const uint64_t usable = plan->callback ? BRIM__STACK_CALLBACK : BRIM__STACK_OWN;
    plan->stack_usable = usable;
    info->stack_bytes = brim__thread_stack_bytes(usable) + brim__page_bytes();
    info->hold = options->hold == 0 ? 1 : options->hold;
    info->minimum_slots = info->hold + 1;
    if (info->hold > BRIM__MOST_HOLD) {
        return brim__fail(BRIM_INVALID, "hold=%u: at most %u batches can be lent at a time",
                          info->hold, BRIM__MOST_HOLD);
    }
    if (options->slots > BRIM__MOST_SLOTS) {
        return brim__fail(BRIM_INVALID, "slots=%u: at most %u", options->slots, BRIM__MOST_SLOTS);
    }
    if (options->slots != 0 && options->slots < info->minimum_slots) {
        return brim__fail(BRIM_INVALID, "slots=%u: at least hold + 1 = %u are needed",
                          options->slots, info->minimum_slots);
    }

    info->samples = brim__order_count(&plan->order);
    info->batches = brim__shard_deliveries(&plan->shard);
    info->steps = brim__shard_steps(&plan->shard);
    if (plan->sequence.on) {
        info->samples = info->batches = info->steps = BRIM_UNKNOWN;
        info->sequenced = 1;
        info->window_bytes = brim__sequence_bytes(plan);
    }
    info->batch_rows = plan->shard.micro_rows;
    info->field_count = plan->delivered.output_count;

    plan->thread_cap = options->threads < 0
                           ? request->threads
                           : (uint32_t)brim__min((uint64_t)options->threads, request->threads);
    /* records for all that there may ever be, so that the minimum does not
     * depend on threads; slots for as many workers as there are */
    const uint32_t small = info->slot_bytes <= SMALL_SLOT ? MORE_SMALL : 0;
    plan->slot_cap =
        options->slots != 0 ? options->slots : info->minimum_slots + MORE_SLOTS + small;

    /* everything that the arena will ever hold is taken before it is measured,
     * the text of a refusal too: the minimum does not depend on whether it fits */
    char *reason;
    brim_status status = brim__arena_take(&plan->arena, REASON_BYTES, &reason);
    if (status == BRIM_OK) {
        status = describe_batches(plan);
    }
    if (status == BRIM_OK) {
        status = brim__arena_take(&plan->arena, request->extra_bytes(plan), &plan->extra);
    }
    if (status != BRIM_OK) {
        return status;
    }
    info->reason = reason;
    info->fixed_bytes = plan->arena.bytes;
    const uint64_t needed =
        plus(plus(times(info->minimum_slots, info->slot_bytes), info->scratch_bytes),
             info->window_bytes);
    /* opening may have needed more for a while, to build an index or count labels */
    brim_budget_info opening = BRIM_BUDGET_INFO_INIT;
    status = brim_budget_read(plan->budget, BRIM_HOST, &opening);
    if (status != BRIM_OK) {
        return status;
    }
    const uint64_t running = plus(plus(request->base_bytes, info->fixed_bytes), needed);
    info->minimum_bytes =
        brim__max(brim__max(running, plus(request->base_bytes, opening.peak)), BRIM__BUDGET_FLOOR);
    info->limit_bytes = brim__budget_limit(plan->budget);

    const uint64_t available = brim__budget_available(plan->budget);
    info->slots = info->minimum_slots;
    info->planned_bytes = info->minimum_bytes;
    info->fits = needed <= available;
    if (!info->fits) {
        explain(plan, needed, available, reason);
        return BRIM_OK;
    }
    uint64_t left = available - needed;
    uint64_t used = plus(plus(request->base_bytes, info->fixed_bytes), needed);
    while (info->threads < plan->thread_cap) {
        const uint64_t stack =
            info->threads < request->running[plan->callback] ? 0 : info->stack_bytes;
        const uint64_t cost = plus(info->scratch_bytes, stack);
        if (cost > left) {
            break;
        }
        info->threads++;
        left -= cost;
        used += cost;
    }
    const uint32_t most = options->slots != 0 ? options->slots
                                              : info->minimum_slots + MORE_SLOTS +
                                                    (uint32_t)brim__min(small, plan->thread_cap);
    while (info->slots < most && info->slot_bytes <= left) {
        info->slots++;
        left -= info->slot_bytes;
        used += info->slot_bytes;
    }
    info->planned_bytes = brim__max(used, info->minimum_bytes);
    return BRIM_OK;
}

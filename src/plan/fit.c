/*
 * fit.c: fits a plan into the budget.
 *
 *     minimum = what was there + arena + what sources hold + max(2, hold) slots + 1 scratch + window
 *     planned = minimum + workers x (stack, if not running, + scratch) + more slots + caches
 *
 * `hold` includes the batch that `next` will return. So a consumer that has hold - 1 batches leaves
 * one slot to fill. The least is two slots, so that one batch is made while another is used.
 *
 * Memory above the minimum goes first to workers, up to the number that the runtime runs, and then
 * to slots: up to one that is never lent and two more. If slots are small, there is one for each of
 * up to four workers, because waking a thread then costs as much as making a batch, and a longer
 * ring needs fewer wakes. Elastic memory of others counts as free, because it can be revoked.
 *
 * On a device the host's slots are staging slots: the minimum has two of them, in page-locked
 * memory, and max(2, hold) device slots. Host, page-locked and device memory must each have room
 * for their part.
 */
#include "cache/residents.h"
#include "plan/plan.h"

#include <stdio.h>

#define LEAST_SLOTS  2 /* one is filled while the other is used */
#define MORE_SLOTS   2
#define MORE_SMALL   4
#define SMALL_SLOT   (1u << 20)
#define STAGING      2 /* slots: one is filled while the other is copied */
#define REASON_BYTES 960

/* a * b and sums of it saturate: a value that does not fit 64 bits fits no budget. */
static uint64_t times(uint64_t a, uint64_t b) {
    uint64_t result;
    return brim__mul_overflows(a, b, &result) ? UINT64_MAX : result;
}
static uint64_t plus(uint64_t a, uint64_t b) {
    uint64_t result;
    return brim__add_overflows(a, b, &result) ? UINT64_MAX : result;
}

/* The most memory that the caches of a kind can use: those in memory, or those in files, for
 * writing. */
static uint64_t caches(const brim_plan *plan, bool files) {
    uint64_t bytes = 0;
    for (const struct brim__cache *cache = plan->caches; cache != NULL; cache = cache->next) {
        if ((cache->path != NULL) == files) {
            bytes = plus(bytes, brim__min(cache->ops->most_bytes(cache->count, cache->most_bytes),
                                          files ? UINT64_MAX : cache->limit));
        }
    }
    return bytes;
}

/* The temporary memory that opening takes, before slots and scratch, to stamp the files of
 * caches. */
static uint64_t stamping(const brim_plan *plan) {
    uint64_t most = 0;
    for (uint32_t i = 0; i < plan->leaf_count; i++) {
        const struct brim__leaf *leaf = plan->leaf[i];
        for (uint32_t p = 0; p < leaf->cache_count; p++) {
            const struct brim__cache *cache = leaf->cache[p].cache;
            if (cache->path != NULL && cache->verify == BRIM__VERIFY_OPEN) {
                most = brim__max(most, brim__sources_stamp_bytes(leaf->source, leaf->source_count));
            }
        }
    }
    return most;
}

/* The source for which loading will hold the most memory; NULL: none holds anything. */
static const struct brim__source *most_held(const brim_plan *plan) {
    const struct brim__source *most = NULL;
    for (uint32_t i = 0; i < plan->leaf_count; i++) {
        for (uint32_t s = 0; s < plan->leaf[i]->source_count; s++) {
            const struct brim__source *source = plan->leaf[i]->source[s];
            if (source->held_bytes > (most != NULL ? most->held_bytes : 0)) {
                most = source;
            }
        }
    }
    return most;
}

/* If one file causes most of the need, adds its name and advice to the text. */
static void blame(const brim_plan *plan, uint64_t needed, char *text, size_t bytes) {
    const struct brim__program *worst = &plan->leaf[0]->program;
    char size[BRIM__SIZE_TEXT];
    for (uint32_t i = 1; i < plan->leaf_count; i++) {
        const struct brim__program *program = &plan->leaf[i]->program;
        worst = program->needed_bytes > worst->needed_bytes ? program : worst;
    }
    text[0] = '\0';
    const struct brim__source *held = most_held(plan);
    const uint64_t all = brim__plan_held_bytes(plan);
    if (held != NULL && all > needed / 2) {
        snprintf(text, bytes,
                 "; %s (%llu bytes) of it are for %.200s%s, which is compressed and must be held "
                 "in memory: %s",
                 brim__size_text(all, size), (unsigned long long)all, held->held_label,
                 all > held->held_bytes ? " and others" : "", held->held_advice);
    } else if (worst->neediest != NULL && worst->needed_bytes > needed / 2) {
        snprintf(
            text, bytes,
            "; %s of it are for decoding %.200s: with a smaller decode room= or max_pixels= it is "
            "a bad sample instead",
            brim__size_text(worst->needed_bytes, size), worst->neediest);
    }
}

static void explain(brim_plan *plan, uint64_t needed, uint64_t available, char *text) {
    char holders[256], window[64] = "", file[448], sizes[5][BRIM__SIZE_TEXT];
    blame(plan, needed, file, sizeof file);
    const brim_plan_info *info = &plan->info;
    plan->lacking.kind = BRIM_MEMORY_HOST;
    plan->lacking.bytes = needed;
    brim__budget_holders(brim__budget_tightest(plan->budget, BRIM_MEMORY_HOST), BRIM_MEMORY_HOST,
                         holders, sizeof holders, NULL);
    if (info->window_bytes > 0) {
        snprintf(window, sizeof window, " and %s of window",
                 brim__size_text(info->window_bytes, sizes[4]));
    }
    snprintf(text, REASON_BYTES,
             "needs at least %s more (%u slots of %s%s%s of scratch%s), but only %s is "
             "available%s; held by: %s; alone it fits in a budget of %llu bytes; make the batch "
             "smaller, use micro-batches, or raise the budget",
             brim__size_text(needed, sizes[0]), info->minimum_slots,
             brim__size_text(info->slot_bytes, sizes[1]), window[0] != '\0' ? ", " : " and ",
             brim__size_text(info->scratch_bytes, sizes[2]), window,
             brim__size_text(available, sizes[3]), file, holders[0] != '\0' ? holders : "no budget",
             (unsigned long long)info->minimum_bytes);
}

/* The same for memory that is not the host's. */
static void explain_kind(brim_plan *plan, brim_memory kind, uint64_t needed, uint64_t available,
                         char *text) {
    char holders[256], where[BRIM__MEMORY_TEXT], sizes[3][BRIM__SIZE_TEXT];
    const brim_plan_info *info = &plan->info;
    const bool pinned = kind == BRIM_MEMORY_PINNED;
    plan->lacking.kind = kind;
    plan->lacking.bytes = needed;
    brim__budget_holders(brim__budget_tightest(plan->budget, kind), kind, holders, sizeof holders,
                         NULL);
    snprintf(
        text, REASON_BYTES,
        "needs at least %s%s (%llu bytes: %u slots of %s%s), but only %s (%llu bytes) is "
        "available; held by: %s; make the batch smaller, use micro-batches, %sor raise the limit",
        brim__size_text(needed, sizes[0]), brim__memory_text(kind, where),
        (unsigned long long)needed, pinned ? info->minimum_slots : info->minimum_device_slots,
        brim__size_text(pinned ? info->slot_bytes : info->device_slot_bytes, sizes[1]),
        !pinned && info->device_fixed_bytes > 0 ? ", and what they share" : "",
        brim__size_text(available, sizes[2]), (unsigned long long)available,
        holders[0] != '\0' ? holders : "no budget", pinned ? "" : "hold fewer, ");
}

/* Sums the device memory and page-locked memory that a plan needs. */
static void need_device(brim_plan *plan) {
    brim_plan_info *info = &plan->info;
    const struct brim__device_layout *on_device = &plan->on_device;
    info->device_slot_bytes = on_device->slot_bytes;
    info->device_fixed_bytes = on_device->fixed_bytes;
    info->device_slots = info->minimum_device_slots;
    info->minimum_device_bytes =
        plus(times(info->minimum_device_slots, on_device->slot_bytes), on_device->fixed_bytes);
    info->minimum_pinned_bytes = times(info->minimum_slots, info->slot_bytes);
    info->planned_device_bytes = info->minimum_device_bytes;
    info->planned_pinned_bytes = info->minimum_pinned_bytes;
}

/* slots= bounds what is planned. A batch that is lent beyond `hold` has a slot of its own, so there
 * are records for as many more. */
static uint32_t not_planned(const brim_plan_info *info, const brim_open_options *options) {
    const uint32_t lent = info->hold + options->beyond;
    return options->slots != 0 && lent > options->slots ? lent - options->slots : 0;
}

/* Finds how much of these is available; false: the need does not fit. */
static bool fit_device(brim_plan *plan, const struct brim__plan_request *request, char *reason) {
    brim_plan_info *info = &plan->info;
    const struct brim__device_layout *on_device = &plan->on_device;
    const uint64_t device = brim__budget_available(plan->budget, on_device->kind);
    const uint64_t pinned = brim__budget_available(plan->budget, BRIM_MEMORY_PINNED);
    if (info->minimum_device_bytes > device) {
        explain_kind(plan, on_device->kind, info->minimum_device_bytes, device, reason);
        return false;
    }
    if (info->minimum_pinned_bytes > pinned) {
        explain_kind(plan, BRIM_MEMORY_PINNED, info->minimum_pinned_bytes, pinned, reason);
        return false;
    }
    uint64_t left = device - info->minimum_device_bytes;
    const uint32_t most_slots = plan->device_slot_cap - not_planned(info, request->options);
    while (info->device_slots < most_slots && on_device->slot_bytes <= left) {
        info->device_slots++;
        left -= on_device->slot_bytes;
        info->planned_device_bytes += on_device->slot_bytes;
    }
    if (plan->device_cache != NULL) { /* it takes memory that is free, now or later */
        const uint64_t most =
            brim__residents_most_bytes(plan->device_cache->count, plan->device_cache->most_bytes);
        plan->on_device.resident_room = left;
        info->planned_device_bytes = brim__max(
            info->planned_device_bytes,
            brim__min(plus(info->planned_device_bytes, brim__min(most, plan->device_cache->limit)),
                      brim__budget_limit(plan->budget, on_device->kind)));
    }
    return true;
}

/* Describes the batch stage: its fields and the memory of its slots. */
static brim_status describe_batches(brim_plan *plan) {
    const brim_plan_info *info = &plan->info;
    char text[160];
    if (plan->batch_stage == NULL) {
        return BRIM_OK;
    }
    int length = snprintf(text, sizeof text, "%llu batches of %llu rows",
                          (unsigned long long)info->batches, (unsigned long long)info->batch_rows);
    if (info->batches == BRIM_UNKNOWN) {
        length = snprintf(text, sizeof text, "batches of %s%llu rows",
                          plan->batching.bucket.on ? "up to " : "",
                          (unsigned long long)info->batch_rows);
    }
    if (info->batches != info->steps) {
        snprintf(text + length, sizeof text - (size_t)length, " in %llu steps",
                 (unsigned long long)info->steps);
    }
    plan->batch_stage->bytes = times(info->minimum_slots, info->slot_bytes);
    return brim__arena_text(&plan->arena, text, &plan->batch_stage->effect);
}

/* Describes what a cache keeps: the bytes of an epoch, and how much of that fits into `left`. */
static void describe_cache(const brim_plan *plan, struct brim__cache *cache, uint64_t left) {
    char *text = cache->effect, size[BRIM__SIZE_TEXT], whole[BRIM__SIZE_TEXT];
    const size_t bytes = sizeof cache->effect;
    const uint64_t samples = brim__min(cache->count, plan->info.samples);
    const uint64_t room = brim__min(cache->limit, left);
    const uint64_t fit = room / brim__max(1, cache->most_bytes);
    size_t length = (size_t)snprintf(
        text, bytes, "%llu samples of %s%s, %s%s in all", (unsigned long long)samples,
        cache->varies ? "up to " : "", brim__size_text(cache->most_bytes, size),
        cache->varies ? "up to " : "", brim__size_text(times(samples, cache->most_bytes), whole));
    if (samples < cache->count) {
        length +=
            (size_t)snprintf(text + length, bytes - length, " (an epoch's; the data have %llu)",
                             (unsigned long long)cache->count);
    }
    if (fit < samples) {
        snprintf(text + length, bytes - length, "; about %llu%s fit", (unsigned long long)fit,
                 cache->varies ? " of the largest" : "");
    }
}

static void describe_caches(const brim_plan *plan, uint64_t left) {
    for (struct brim__cache *cache = plan->caches; cache != NULL; cache = cache->next) {
        describe_cache(plan, cache, cache->path != NULL ? UINT64_MAX : left);
    }
    if (plan->device_cache != NULL) {
        describe_cache(plan, plan->device_cache, plan->on_device.resident_room);
    }
}

/* Sums for fitting, in bytes of host memory. */
struct amounts {
    uint64_t needed;    /* that is not taken yet, for loading and running */
    uint64_t whole;     /* `needed`, and all that is already taken when the loader opens */
    uint64_t available; /* to the loader now */
};

/* The least number of slots of the ring that is lent from. */
static uint32_t lendable(const brim_plan_info *info) {
    return (uint32_t)brim__max(LEAST_SLOTS, info->hold);
}

/* If slots are small, one for each worker is useful, up to this many. */
static uint32_t more_if_small(const brim_plan_info *info) {
    return info->slot_bytes <= SMALL_SLOT ? MORE_SMALL : 0;
}

/* Counts the slots and threads that the options require and allow. */
static brim_status count_slots(brim_plan *plan, const struct brim__plan_request *request) {
    const brim_open_options *options = request->options;
    brim_plan_info *info = &plan->info;
    info->hold = options->hold == 0 ? 1 : options->hold;
    if (info->hold > BRIM__MOST_HOLD || options->beyond > BRIM__MOST_HOLD - info->hold) {
        char beyond[32] = "";
        if (options->beyond > 0) {
            snprintf(beyond, sizeof beyond, " with beyond=%u", options->beyond);
        }
        return brim__fail(BRIM_STATUS_INVALID,
                          "hold=%u%s: at most %u batches can be lent at a time", info->hold, beyond,
                          BRIM__MOST_HOLD);
    }
    if (options->slots > BRIM__MOST_SLOTS) {
        return brim__fail(BRIM_STATUS_INVALID, "slots=%u: at most %u", options->slots,
                          BRIM__MOST_SLOTS);
    }
    const uint32_t lent_from = lendable(info);
    if (options->slots != 0 && options->slots < lent_from) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "slots=%u: at least %u are needed for hold=%u: one for each batch that "
                          "may be lent, and no fewer than %u",
                          options->slots, lent_from, info->hold, LEAST_SLOTS);
    }
    plan->thread_cap = options->threads < 0
                           ? request->threads
                           : (uint32_t)brim__min((uint64_t)options->threads, request->threads);
    /* records for the most slots that are possible, so that the minimum does not depend on threads;
     * slots= counts those that are lent */
    const uint32_t more = (uint32_t)brim__max(MORE_SLOTS, options->beyond);
    const uint32_t lent_cap =
        options->slots != 0 ? options->slots + not_planned(info, options) : info->hold + 1 + more;
    if (plan->on_device.used) {
        info->minimum_slots = STAGING;
        info->minimum_device_slots = lent_from;
        plan->slot_cap = STAGING + MORE_SLOTS + more_if_small(info);
        plan->device_slot_cap = lent_cap;
    } else {
        info->minimum_slots = lent_from;
        plan->slot_cap = lent_cap + (options->slots != 0 ? 0 : more_if_small(info));
    }
    return BRIM_OK;
}

/* Counts the samples and batches of an epoch, and the rows of a batch. */
static void count_batches(brim_plan *plan) {
    brim_plan_info *info = &plan->info;
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
}

/* Adds up the minimum: the memory that is taken, the need of loading and running, and the need of
 * opening. */
static brim_status add_up_minimum(brim_plan *plan, const struct brim__plan_request *request,
                                  struct amounts *amounts) {
    brim_plan_info *info = &plan->info;
    const uint64_t taken = plan->arena.bytes + plan->loaded_bytes;
    const uint64_t held = brim__plan_held_bytes(plan);
    const uint64_t running =
        plus(plus(plus(times(info->minimum_slots, info->slot_bytes), info->scratch_bytes),
                  plus(info->window_bytes, plan->cache_count * brim__budget_node_bytes())),
             times(info->minimum_device_slots, plan->on_device.tail_bytes));
    info->fixed_bytes = plus(taken, held);
    amounts->needed = plus(held, brim__max(running, stamping(plan)));
    amounts->whole = plus(plus(request->base_bytes, taken), amounts->needed);
    amounts->available = brim__budget_available(plan->budget, BRIM_MEMORY_HOST);
    /* opening may have needed more temporarily, to build an index or count labels */
    brim_budget_info opening = BRIM_BUDGET_INFO_INIT;
    const brim_status status = brim_budget_read(plan->budget, BRIM_MEMORY_HOST, &opening);
    if (status != BRIM_OK) {
        return status;
    }
    info->minimum_bytes = brim__max(
        brim__max(amounts->whole, plus(request->base_bytes, opening.peak)), BRIM__BUDGET_FLOOR);
    info->limit_bytes = brim__budget_limit(plan->budget, BRIM_MEMORY_HOST);
    info->slots = info->minimum_slots;
    info->planned_bytes = info->minimum_bytes;
    if (plan->on_device.used) {
        need_device(plan);
    }
    return BRIM_OK;
}

/* Page-locked bytes for slots above the minimum; slots that are lent need none. */
static uint64_t pinned_left(const brim_plan *plan) {
    const uint64_t available = brim__budget_available(plan->budget, BRIM_MEMORY_PINNED);
    const uint64_t minimum = plan->info.minimum_pinned_bytes;
    return !plan->on_device.used ? UINT64_MAX : available > minimum ? available - minimum : 0;
}

/* Spends what is free above the minimum: on workers, caches in files, slots, caches. */
static void spend_rest(brim_plan *plan, const struct brim__plan_request *request,
                       const struct amounts *amounts) {
    brim_plan_info *info = &plan->info;
    uint64_t left = amounts->available - amounts->needed;
    uint64_t used = amounts->whole;
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
    /* before more slots, because without this memory a cache in a file keeps nothing */
    const uint64_t writing = brim__min(caches(plan, true), left);
    left -= writing;
    used += writing;
    const uint64_t tails =
        times(info->device_slots - info->minimum_device_slots, plan->on_device.tail_bytes);
    used += brim__min(left, tails);
    left -= brim__min(left, tails);
    /* small slots are made only for as many workers as there are */
    const bool chosen = !plan->on_device.used && request->options->slots != 0;
    const uint32_t small = chosen ? 0 : more_if_small(info);
    const uint32_t lent_only = plan->on_device.used ? 0 : not_planned(info, request->options);
    const uint32_t most =
        plan->slot_cap - lent_only - small + (uint32_t)brim__min(small, plan->thread_cap);
    uint64_t pinned = pinned_left(plan);
    while (info->slots < most && info->slot_bytes <= brim__min(left, pinned)) {
        info->slots++;
        pinned -= info->slot_bytes;
        info->planned_pinned_bytes += plan->on_device.used ? info->slot_bytes : 0;
        left -= info->slot_bytes;
        used += info->slot_bytes;
    }
    used = brim__max(used, info->minimum_bytes);
    /* caches may take more than this if memory is free, now or later */
    info->planned_bytes =
        brim__max(used, brim__min(plus(used, caches(plan, false)), info->limit_bytes));
    describe_caches(plan, left);
}

brim_status brim__plan_fit(brim_plan *plan, const struct brim__plan_request *request) {
    brim_plan_info *info = &plan->info;
    struct amounts amounts;
    char *reason = NULL;
    plan->stack_usable = plan->callback ? BRIM__STACK_CALLBACK : BRIM__STACK_OWN;
    info->stack_bytes = brim__thread_stack_bytes(plan->stack_usable) + brim__page_bytes();
    brim_status status = count_slots(plan, request);
    if (status == BRIM_OK) {
        count_batches(plan);
        /* everything in the arena is taken before it is measured, even the text of a refusal, so
         * that the minimum does not depend on whether the plan fits */
        status = brim__arena_take(&plan->arena, REASON_BYTES, &reason);
    }
    if (status == BRIM_OK) {
        info->reason = reason;
        status = describe_batches(plan);
    }
    if (status == BRIM_OK) {
        status = brim__arena_take(&plan->arena, request->extra_bytes(plan), &plan->extra);
    }
    if (status == BRIM_OK) {
        status = add_up_minimum(plan, request, &amounts);
    }
    if (status != BRIM_OK) {
        return status;
    }
    describe_caches(plan, UINT64_MAX);
    info->fits = amounts.needed <= amounts.available;
    if (!info->fits) {
        explain(plan, amounts.needed, amounts.available, reason);
    } else if (plan->on_device.used) {
        info->fits = fit_device(plan, request, reason);
    }
    if (info->fits) {
        spend_rest(plan, request, &amounts);
    }
    return BRIM_OK;
}

/* --------------------------------------------------------------- refusing */

void brim__plan_note_minimum(const brim_plan *plan) {
    struct brim__lack *lack = brim__lack();
    lack->minimum_bytes = plan->info.minimum_bytes;
    lack->minimum_pinned_bytes = plan->info.minimum_pinned_bytes;
    lack->minimum_device_bytes = plan->info.minimum_device_bytes;
    lack->exact = lack->final = true;
}

brim_status brim__plan_refuse(const brim_plan *plan, const char *label) {
    char holders[256];
    const brim_memory kind = plan->lacking.kind;
    const brim_status status =
        brim__fail(BRIM_STATUS_BUDGET, "\"%s\" %s", label, plan->info.reason);
    struct brim__lack *lack = brim__lack();
    lack->kind = kind;
    lack->wanted = plan->lacking.bytes;
    brim__budget_holders(brim__budget_tightest(plan->budget, kind), kind, holders, sizeof holders,
                         lack);
    brim__plan_note_minimum(plan);
    return status;
}

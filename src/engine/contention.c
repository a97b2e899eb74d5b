/*
 * contention.c: several loaders in one budget: which holder gives memory to which, and when.
 *
 * Memory of others is revoked only for a consumer that waits. Its loader then takes what it lacks
 * of its plan, in this order:
 *
 *     1. what is free
 *     2. idle loaders: all above their minimum, batches that are ready too, because
 *        these are quickly made again when they are asked for
 *     3. caches in memory
 *     4. loaders in use: slots above their minimum, but only for threads (scratch
 *        and stacks). Without these a loader has no workers at all, whereas one more slot only
 *        evens out batches that take longer.
 *
 * A loader that gave memory cannot take it back from the one that got it: an idle loader
 * that is used again finds the other one in use, and a loader that gave a slot for threads
 * lacks a slot, for which no loader in use gives way. So loaders that are used in turn keep
 * what they have.
 *
 * A loader is idle when no call on it is in progress and none has been for longer than is usual for
 * its consumer: IDLE_GAPS times the mean time between two calls, and never less than IDLE_NS. Long
 * gaps count as MOST_GAP_NS, so that one long pause, such as a pass over other data, does not
 * change the mean much. An idle loader takes nothing elastic.
 */
#include "engine/make.h"
#include "engine/upload.h"

#define IDLE_NS     UINT64_C(50000000)
#define IDLE_GAPS   8
#define MOST_GAP_NS UINT64_C(250000000)
#define GAP_SHIFT   3                  /* weight of a new gap in the running mean: 1/8 */
#define REGROW_NS   UINT64_C(50000000) /* between attempts to get what is lacking */

/* ---------------------------------------------------------------- being idle */

void brim__loader_used(brim_loader *loader, uint64_t now) {
    if (loader->consumer.used_ns != 0) {
        const uint64_t gap = brim__min(now - loader->consumer.used_ns, MOST_GAP_NS);
        loader->consumer.gap_ns += (gap >> GAP_SHIFT) - (loader->consumer.gap_ns >> GAP_SHIFT);
    }
    loader->consumer.used_ns = now;
    if (loader->idle) {
        loader->idle = false;
        brim__budget_yields(loader->budget, BRIM__YIELDS_LAST);
    }
}

/* Mutex held. */
static bool is_idle(const brim_loader *loader, uint64_t now) {
    const uint64_t last = brim__max(loader->consumer.used_ns, loader->report.opened_ns);
    return !loader->in_call &&
           last + brim__max(IDLE_NS, IDLE_GAPS * loader->consumer.gap_ns) <= now;
}

/* No lock held: marks the idle ones among the others. */
static void find_idle(const brim_loader *loader, uint64_t now) {
    brim_runtime *runtime = loader->runtime;
    brim__lock(&runtime->pool);
    for (brim_loader *other = runtime->loaders; other != NULL; other = other->visits.next) {
        if (other == loader) {
            continue;
        }
        brim__lock(&other->mutex);
        if (other->idle || is_idle(other, now)) {
            other->idle = true; /* and again: take_slots() may have taken the mark away */
            brim__budget_yields(other->budget, BRIM__YIELDS_IDLE);
        }
        brim__unlock(&other->mutex);
    }
    brim__unlock(&runtime->pool);
}

/* ------------------------------------------------------------------- lacking */

/* What a loader has planned, could use now and does not have, in bytes. */
struct lack {
    uint64_t scratch, stacks; /* of threads */
    uint64_t slot;            /* page-locked too if `pinned` */
    uint64_t there, tail;     /* of a device slot: on the device, and on the host for it */
    bool pinned;
};

/* The mutex is held, or no other thread has the loader yet. */
static struct lack find_lack(const brim_loader *loader) {
    const brim_plan_info *info = &loader->plan->info;
    const uint32_t scratches = info->threads + 1;
    const uint32_t running = brim__pool_suited(loader->runtime, loader->plan->callback);
    const struct brim__ring *batches = loader->batches, *last = loader->last;
    struct lack lack = { 0 };
    if (scratches > loader->scratch_count) {
        lack.scratch = (scratches - loader->scratch_count) * info->scratch_bytes;
    }
    if (info->threads > running) {
        lack.stacks = (info->threads - running) * info->stack_bytes;
    }
    if (batches->planned > batches->count &&
        (batches->refused || (batches->grow && brim__ring_find_free(batches) == NULL))) {
        lack.slot = info->slot_bytes;
        lack.pinned = batches->memory == BRIM__RING_STAGING;
    }
    if (last->memory == BRIM__RING_DEVICE && last->refused && last->planned > last->count) {
        lack.there = loader->plan->on_device.slot_bytes;
        lack.tail = loader->plan->on_device.tail_bytes;
    }
    return lack;
}

uint64_t brim__loader_lacks(const brim_loader *loader) {
    const struct lack lack = find_lack(loader);
    return lack.scratch + lack.stacks + lack.slot + lack.tail;
}

void brim__loader_note_lacking(brim_loader *loader) {
    const uint64_t lacks = loader->closing ? 0 : brim__loader_lacks(loader);
    /* one counter for all loaders: a difference below 0 wraps round, and is right */
    atomic_fetch_add(&loader->runtime->lacking, lacks - atomic_load(&loader->lacking));
    atomic_store(&loader->lacking, lacks);
}

/* ----------------------------------------------------------------- collecting */

/* No lock held: the budget, referenced, of the loader that can give most; NULL: none can. */
static brim_budget *find_richest(const brim_loader *loader, uint64_t *bytes) {
    brim_runtime *runtime = loader->runtime;
    brim_budget *richest = NULL;
    *bytes = 0;
    brim__lock(&runtime->pool);
    for (brim_loader *other = runtime->loaders; other != NULL; other = other->visits.next) {
        brim__lock(&other->mutex);
        const uint64_t gives = other == loader ? 0
                                               : brim__ring_spare(other, other->batches) *
                                                     other->plan->info.slot_bytes;
        brim__unlock(&other->mutex);
        if (gives > *bytes) {
            *bytes = gives;
            richest = other->budget;
        }
    }
    if (richest != NULL) {
        brim__budget_ref(richest);
    }
    brim__unlock(&runtime->pool);
    return richest;
}

/* No lock held: for `wanted` bytes, in pieces of which each is of use, slots of a loader in
 * use. It is asked for no more than these, so that it keeps its own threads, and for
 * nothing that would not make up a piece. */
static void take_slots(const brim_loader *loader, brim_budget *budget, uint64_t wanted,
                       uint64_t piece) {
    const uint64_t had = brim__budget_free_now(budget, BRIM_MEMORY_HOST);
    uint64_t gives;
    brim_budget *richest = had < wanted ? find_richest(loader, &gives) : NULL;
    if (richest != NULL) {
        const uint64_t whole = brim__min(wanted, (had + gives) / piece * piece);
        brim__budget_yields(richest, BRIM__YIELDS_IDLE);
        brim__budget_make_free(budget, BRIM_MEMORY_HOST, whole);
        brim__budget_yields(richest, BRIM__YIELDS_LAST);
        brim__budget_unref(richest);
    }
}

/* No lock held: all but the stacks, which are the workers', is charged to the loader's
 * budget, and everything to the runtime's. False: nothing is lacking but what is free. */
static bool collect(const brim_loader *loader, const struct lack *lack, uint64_t now) {
    brim_budget *own = loader->budget, *workers = loader->runtime->workers_budget;
    const brim_memory device = loader->plan->on_device.kind;
    const uint64_t here = lack->scratch + lack->slot + lack->tail, all = here + lack->stacks;
    const uint64_t pinned = lack->pinned ? lack->slot : 0;
    if (brim__budget_free_now(own, BRIM_MEMORY_HOST) >= here &&
        brim__budget_free_now(workers, BRIM_MEMORY_HOST) >= all &&
        (pinned == 0 || brim__budget_free_now(own, BRIM_MEMORY_PINNED) >= pinned) &&
        (lack->there == 0 || brim__budget_free_now(own, device) >= lack->there)) {
        return false;
    }
    find_idle(loader, now);
    brim__budget_make_free(own, BRIM_MEMORY_HOST, here);
    brim__budget_make_free(workers, BRIM_MEMORY_HOST, all);
    if (pinned > 0) {
        brim__budget_make_free(own, BRIM_MEMORY_PINNED, pinned);
    }
    if (lack->there > 0) {
        brim__budget_make_free(own, device, lack->there);
    }
    return true;
}

void brim__loader_regrow(brim_loader *loader, uint64_t now) {
    const brim_plan_info *info = &loader->plan->info;
    if (info->threads == 0 || now - loader->regrown_ns < REGROW_NS) {
        return;
    }
    loader->regrown_ns = now;
    brim__loader_note_lacking(loader);
    const struct lack lack = find_lack(loader);
    brim__loader_unlock(loader);
    const bool collected = collect(loader, &lack, now);
    if (collected && lack.scratch > 0) {
        take_slots(loader, loader->budget, lack.scratch, info->scratch_bytes);
    }
    brim__lock(&loader->mutex);
    if (collected) {
        /* at once, before the loaders that gave it want it back; scratch first, because a
         * worker without it is of no use */
        while (brim__scratch_grow(loader)) {
        }
        if (lack.slot > 0 && brim__ring_grow(loader, loader->batches) == BRIM_OK) {
            loader->regrown_ns = 0; /* there may be more, when the next one is lacking */
        }
    }
    brim__loader_unlock(loader);
    if (collected && lack.stacks > 0) {
        take_slots(loader, loader->runtime->workers_budget, lack.stacks, info->stack_bytes);
    }
    brim__pool_grow(loader->runtime, info->threads, loader->plan->stack_usable);
    if (collected) {
        brim__loader_want(loader);
        brim__pool_wake(loader->runtime);
    }
    brim__lock(&loader->mutex);
    brim__loader_note_lacking(loader);
}

/*
 * sharing.c: several loaders in one budget: whose memory goes to whom, and when.
 *
 * Only a consumer that waits makes others give way; the loader then looks for what
 * it lacks of its plan, from those who lose least by it:
 *
 *     1. what is free
 *     2. idle loaders: all above their minimum, batches that are ready too, for
 *        these are made again in no time when somebody comes for them
 *     3. caches in memory
 *     4. loaders in use: slots above their minimum, but only for threads (scratch
 *        and stacks). Without these a loader has no workers at all, whereas a
 *        further slot only evens out what takes longer at times.
 *
 * None of these can be undone by its victim: an idle loader that is used again finds the
 * other one in use, and who gave a slot to threads lacks a slot, for which nobody in use
 * gives way. So loaders that are used in turn keep what they have.
 *
 * A loader is idle when nobody is inside a call on it and nobody has been for longer than
 * its consumer's habit: IDLE_GAPS times the mean time between two calls, and never less
 * than IDLE_NS. Long gaps count as MOST_GAP_NS, so that one pause, as long as a pass over
 * other data, does not pass for a habit. An idle loader takes nothing elastic.
 */
#include "engine/loader.h"
#include "engine/ship.h"

#define IDLE_NS     UINT64_C(50000000)
#define IDLE_GAPS   8
#define MOST_GAP_NS UINT64_C(250000000)
#define GAP_SHIFT   3                  /* weight of a new gap in the running mean: 1/8 */
#define REGROW_NS   UINT64_C(50000000) /* between attempts to get what is lacking */

/* ---------------------------------------------------------------- being idle */

void brim__loader_used(brim_loader *loader, uint64_t now) {
    if (loader->used_ns != 0) {
        const uint64_t gap = brim__min(now - loader->used_ns, MOST_GAP_NS);
        loader->gap_ns += (gap >> GAP_SHIFT) - (loader->gap_ns >> GAP_SHIFT);
    }
    loader->used_ns = now;
    if (loader->idle) {
        loader->idle = false;
        brim__budget_yields(loader->budget, BRIM__YIELDS_LAST);
    }
}

/* Mutex held. */
static bool is_idle(const brim_loader *loader, uint64_t now) {
    const uint64_t last = brim__max(loader->used_ns, loader->opened_ns);
    return !loader->in_call && last + brim__max(IDLE_NS, IDLE_GAPS * loader->gap_ns) <= now;
}

/* No lock held: marks the idle ones among the others. */
static void find_idle(const brim_loader *loader, uint64_t now) {
    brim_runtime *runtime = loader->runtime;
    brim__lock(&runtime->pool);
    for (brim_loader *other = runtime->loaders; other != NULL; other = other->next) {
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
    uint64_t berth, tail;     /* on the device, and on the host for it */
    bool pinned;
};

/* The mutex is held, or nobody else has the loader yet. */
static struct lack find_lack(const brim_loader *loader) {
    const brim_plan_info *info = &loader->plan->info;
    const uint32_t scratches = info->threads + 1;
    const uint32_t running = brim__pool_suited(loader->runtime, loader->plan->callback);
    const bool none_free = brim__slot_find_free(loader->slot, loader->plan->slot_cap) == NULL;
    struct lack lack = { 0 };
    if (scratches > loader->scratch_count) {
        lack.scratch = (scratches - loader->scratch_count) * info->scratch_bytes;
    }
    if (info->threads > running) {
        lack.stacks = (info->threads - running) * info->stack_bytes;
    }
    if (info->slots > loader->slot_count &&
        (loader->slot_refused || (loader->grow_slot && none_free))) {
        lack.slot = info->slot_bytes;
        lack.pinned = loader->ship != NULL;
    }
    if (loader->ship != NULL && loader->ship->refused &&
        info->device_slots > loader->ship->berth_count) {
        lack.berth = loader->plan->landing.slot_bytes;
        lack.tail = loader->plan->landing.tail_bytes;
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

/* Mutex held: bytes in slots above the minimum that are given up when asked for, without
 * waiting for the user or his code. */
static uint64_t can_give(const brim_loader *loader) {
    const brim_plan *plan = loader->plan;
    uint64_t slots = 0;
    for (uint32_t i = 0; i < plan->slot_cap; i++) {
        const struct brim__slot *slot = &loader->slot[i];
        const bool made = slot->state == BRIM__SLOT_READY ||
                          (slot->state == BRIM__SLOT_FILLING && !plan->callback);
        slots += slot->state == BRIM__SLOT_FREE || (made && loader->sequencer == NULL);
    }
    return brim__min(slots, loader->slot_count - brim__slots_firm(loader)) * plan->info.slot_bytes;
}

/* No lock held: the budget, referenced, of the loader that can give most; NULL: none can. */
static brim_budget *find_richest(const brim_loader *loader, uint64_t *bytes) {
    brim_runtime *runtime = loader->runtime;
    brim_budget *richest = NULL;
    *bytes = 0;
    brim__lock(&runtime->pool);
    for (brim_loader *other = runtime->loaders; other != NULL; other = other->next) {
        brim__lock(&other->mutex);
        const uint64_t gives = other != loader ? can_give(other) : 0;
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
    const brim_memory device = loader->plan->landing.kind;
    const uint64_t here = lack->scratch + lack->slot + lack->tail, all = here + lack->stacks;
    const uint64_t pinned = lack->pinned ? lack->slot : 0;
    if (brim__budget_free_now(own, BRIM_MEMORY_HOST) >= here &&
        brim__budget_free_now(workers, BRIM_MEMORY_HOST) >= all &&
        (pinned == 0 || brim__budget_free_now(own, BRIM_MEMORY_PINNED) >= pinned) &&
        (lack->berth == 0 || brim__budget_free_now(own, device) >= lack->berth)) {
        return false;
    }
    find_idle(loader, now);
    brim__budget_make_free(own, BRIM_MEMORY_HOST, here);
    brim__budget_make_free(workers, BRIM_MEMORY_HOST, all);
    if (pinned > 0) {
        brim__budget_make_free(own, BRIM_MEMORY_PINNED, pinned);
    }
    if (lack->berth > 0) {
        brim__budget_make_free(own, device, lack->berth);
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
    brim__unlock(&loader->mutex);
    const bool collected = collect(loader, &lack, now);
    if (collected && lack.scratch > 0) {
        take_slots(loader, loader->budget, lack.scratch, info->scratch_bytes);
    }
    brim__lock(&loader->mutex);
    if (collected) {
        /* at once, before those who gave it want it back; scratch first, because a worker
         * without it is of no use */
        while (brim__scratch_grow(loader)) {
        }
        if (lack.slot > 0 && brim__slot_grow(loader)) {
            loader->regrown_ns = 0; /* there may be more, when the next one is lacking */
        }
    }
    brim__unlock(&loader->mutex);
    if (collected && lack.stacks > 0) {
        take_slots(loader, loader->runtime->workers_budget, lack.stacks, info->stack_bytes);
    }
    brim__pool_grow(loader->runtime, info->threads, loader->plan->stack_usable);
    if (collected) {
        atomic_store(&loader->wants, true);
        brim__pool_wake(loader->runtime);
    }
    brim__lock(&loader->mutex);
    brim__loader_note_lacking(loader);
}

/*
 * slots.c: the ring of slots: who claims what, growing, giving way.
 *
 * All slots of a loader measure the same: which of them counts as elastic is
 * only a mark, moved to whichever is given up.
 */
#include "engine/loader.h"
#include "engine/ship.h"

#define RUN_NS   50000 /* work worth claiming at once */
#define MOST_RUN 256

struct brim__shard brim__loader_shard(const brim_loader *loader, uint64_t epoch) {
    struct brim__shard shard = loader->plan->deliveries;
    shard.base = epoch == loader->base_epoch ? loader->base : 0;
    return shard;
}

struct brim__slot *brim__slot_head(brim_loader *loader) {
    for (uint32_t i = 0; i < loader->ring_cap; i++) {
        struct brim__slot *slot = &loader->ring[i];
        if ((slot->state == BRIM__SLOT_READY ||
             (slot->state == BRIM__SLOT_FILLING && !slot->abandoned)) &&
            slot->ticket == loader->take_ticket) {
            return slot;
        }
    }
    return NULL;
}

void brim__slot_free(struct brim__slot *slot) {
    slot->state = BRIM__SLOT_FREE;
    slot->abandoned = slot->cleared = slot->stranded = false;
    slot->error = BRIM_OK;
}

void brim__slot_restart(struct brim__slot *slot) {
    slot->claimed = slot->done = slot->bad_rows = slot->replaced_rows = slot->returned = 0;
    slot->error = BRIM_OK;
    slot->told = slot->stranded = slot->cleared = false;
    slot->bad_text[0] = '\0';
    slot->state = slot->rows == 0 ? BRIM__SLOT_READY : BRIM__SLOT_FILLING;
}

void brim__slots_abandon(brim_loader *loader) {
    for (uint32_t i = 0; i < loader->ring_cap; i++) {
        struct brim__slot *slot = &loader->ring[i];
        if (slot->state == BRIM__SLOT_FILLING && slot->busy > 0) {
            slot->abandoned = true;
        } else if (slot->state == BRIM__SLOT_FILLING || slot->state == BRIM__SLOT_READY) {
            brim__slot_free(slot);
        }
    }
    loader->unmade.slot = NULL;
    loader->make_ticket = loader->take_ticket;
    loader->make_epoch = loader->take_epoch;
    loader->make_index = loader->take_index;
}

/* ---------------------------------------------------------------- claiming */

struct brim__slot *brim__slot_find_free(struct brim__slot *slots, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        if (slots[i].state == BRIM__SLOT_FREE) {
            return &slots[i];
        }
    }
    return NULL;
}

/* Gives the next delivery a slot. NULL: no slot, or no data at all. */
static struct brim__slot *begin_delivery(brim_loader *loader) {
    struct brim__slot *slot = brim__slot_find_free(loader->ring, loader->ring_cap);
    if (slot == NULL && loader->sequencer == NULL && loader->grow_slot && brim__slot_grow(loader)) {
        slot = brim__slot_find_free(loader->ring, loader->ring_cap);
    }
    if (slot == NULL) {
        return NULL;
    }
    struct brim__shard shard = brim__loader_shard(loader, loader->make_epoch);
    if (loader->make_index >= brim__shard_deliveries(&shard)) {
        loader->make_epoch++;
        loader->make_index = 0;
        shard = brim__loader_shard(loader, loader->make_epoch);
        if (brim__shard_deliveries(&shard) == 0) {
            return NULL;
        }
    }
    brim__shard_delivery(&shard, loader->make_index, &slot->delivery);
    slot->ticket = loader->make_ticket++;
    slot->epoch = loader->make_epoch;
    slot->index = loader->make_index++;
    slot->rows = (uint32_t)slot->delivery.rows;
    brim__slot_restart(slot);
    if (slot->state == BRIM__SLOT_READY) {
        brim__loader_event(loader);
        brim__broadcast(&loader->ready);
    }
    return slot;
}

static struct brim__slot *find_unclaimed(brim_loader *loader) {
    struct brim__slot *lowest = NULL;
    for (uint32_t i = 0; i < loader->ring_cap; i++) {
        struct brim__slot *slot = &loader->ring[i];
        if (slot->state == BRIM__SLOT_FILLING && !slot->abandoned &&
            (slot->claimed < slot->rows || slot->returned > 0) &&
            (lowest == NULL || slot->ticket < lowest->ticket)) {
            lowest = slot;
        }
    }
    return lowest;
}

bool brim__slot_claim(brim_loader *loader, bool head_only, struct brim__slot **out, uint32_t *first,
                      uint32_t *count) {
    struct brim__slot *slot = find_unclaimed(loader);
    while (slot == NULL || slot->state == BRIM__SLOT_READY) {
        if (head_only && loader->make_ticket != loader->take_ticket) {
            return false;
        }
        slot = begin_delivery(loader); /* READY at once when it has no rows */
        if (slot == NULL) {
            return false;
        }
    }
    if (head_only && slot->ticket != loader->take_ticket) {
        return false;
    }
    *out = slot;
    if (BRIM__UNLIKELY(slot->returned > 0)) {
        *first = slot->returned_first;
        *count = slot->returned;
        slot->returned = 0;
        slot->busy++;
        return true;
    }
    const uint64_t run =
        loader->ns_per_row == 0 ? 4 : brim__max(1, RUN_NS / brim__max(1, loader->ns_per_row));
    const uint32_t left = slot->rows - slot->claimed;
    *first = slot->claimed;
    *count = (uint32_t)brim__min(brim__min(run, MOST_RUN), left);
    if (left - *count < *count / 2) {
        *count = left; /* a short rest is not worth a claim of its own */
    }
    slot->claimed += *count;
    slot->busy++;
    return true;
}

/* ----------------------------------------------------------------- growing */

bool brim__slot_grow(brim_loader *loader) {
    if (loader->slot_count >= loader->plan->info.slots || loader->revoking || loader->idle) {
        return false;
    }
    for (uint32_t i = 0; i < loader->plan->slot_cap; i++) {
        struct brim__slot *slot = &loader->slot[i];
        if (slot->state == BRIM__SLOT_EMPTY) {
            if (brim__loader_pages(loader, &slot->pages, loader->plan->info.slot_bytes, true) !=
                BRIM_OK) {
                loader->slot_refused = true;
                return false;
            }
            if (loader->ship != NULL && brim__slot_pin(loader, slot, true) != BRIM_OK) {
                brim__pages_free(&slot->pages);
                loader->slot_refused = true;
                return false;
            }
            slot->state = BRIM__SLOT_FREE;
            loader->slot_count++;
            loader->grow_slot = loader->slot_refused = false;
            brim__loader_note_lacking(loader);
            return true;
        }
    }
    return false;
}

bool brim__scratch_grow(brim_loader *loader) {
    if (loader->scratch_count > loader->plan->info.threads || loader->revoking || loader->idle) {
        return false;
    }
    for (uint32_t i = 1; i <= loader->plan->thread_cap; i++) {
        struct brim__scratch *scratch = &loader->scratch[i];
        if (scratch->pages.memory == NULL) {
            if (brim__loader_pages(loader, &scratch->pages, loader->plan->info.scratch_bytes,
                                   true) != BRIM_OK) {
                return false;
            }
            loader->scratch_count++;
            brim__loader_note_lacking(loader);
            return true;
        }
    }
    return false;
}

/* ------------------------------------------------------------- giving way */

/* The slot to give up next: a free one, else the one furthest ahead. What a
 * sequencer has filled is kept: it could be made again only from far back. */
static struct brim__slot *find_victim(brim_loader *loader) {
    struct brim__slot *victim = brim__slot_find_free(loader->slot, loader->plan->slot_cap);
    if (loader->sequencer != NULL) {
        return victim;
    }
    for (uint32_t i = 0; victim == NULL && i < loader->plan->slot_cap; i++) {
        struct brim__slot *slot = &loader->slot[i];
        if ((slot->state == BRIM__SLOT_READY ||
             (slot->state == BRIM__SLOT_FILLING && !slot->abandoned)) &&
            slot->ticket + 1 == loader->make_ticket) {
            victim = slot;
        }
    }
    return victim;
}

/* The delivery in a slot will be begun again later. */
static void take_back(brim_loader *loader, struct brim__slot *slot) {
    loader->make_ticket = slot->ticket;
    loader->make_epoch = slot->epoch;
    loader->make_index = slot->index;
    if (loader->ship != NULL) {
        loader->ship->ticket = brim__min(loader->ship->ticket, slot->ticket);
    }
    if (slot->busy > 0) {
        slot->abandoned = true;
    } else {
        brim__slot_free(slot);
    }
}

static uint64_t unmap_slot(brim_loader *loader, struct brim__slot *slot) {
    const uint64_t bytes = slot->pages.bytes;
    for (uint32_t i = 0; !slot->pages.elastic && i < loader->plan->slot_cap; i++) {
        struct brim__slot *other = &loader->slot[i];
        if (other->state != BRIM__SLOT_EMPTY && other->pages.elastic) {
            other->pages.elastic = false;
            slot->pages.elastic = true;
        }
    }
    if (loader->ship != NULL) {
        brim__slot_unpin(loader, slot);
    }
    brim__pages_free(&slot->pages);
    slot->state = BRIM__SLOT_EMPTY;
    loader->slot_count--;
    return bytes;
}

static uint64_t revoke_slots(brim_loader *loader, uint64_t wanted) {
    uint64_t freed = 0;
    while (freed < wanted && loader->slot_count > brim__slots_firm(loader)) {
        struct brim__slot *victim = find_victim(loader);
        if (victim != NULL && victim->state != BRIM__SLOT_FREE) {
            take_back(loader, victim);
        }
        if (victim != NULL && victim->state == BRIM__SLOT_FREE) {
            freed += unmap_slot(loader, victim);
        } else if (loader->plan->callback || loader->sequencer != NULL) {
            break; /* a thread is in the user's code: nobody waits for that, nor for the user */
        } else if (loader->ship != NULL) {
            brim__ship_await(loader); /* perhaps for copies */
        } else {
            brim__wait(&loader->ready, &loader->mutex, UINT64_MAX);
        }
    }
    return freed;
}

static uint64_t revoke_scratch(brim_loader *loader, uint64_t wanted) {
    uint64_t freed = 0;
    while (freed < wanted && loader->scratch_count > 1) {
        struct brim__scratch *idle = NULL;
        for (uint32_t i = 1; idle == NULL && i <= loader->plan->thread_cap; i++) {
            struct brim__scratch *scratch = &loader->scratch[i];
            idle = scratch->pages.memory != NULL && !scratch->busy ? scratch : NULL;
        }
        if (idle != NULL) {
            freed += idle->pages.bytes;
            brim__pages_free(&idle->pages);
            loader->scratch_count--;
        } else if (loader->plan->callback) {
            break;
        } else {
            brim__wait(&loader->ready, &loader->mutex, UINT64_MAX);
        }
    }
    return freed;
}

uint64_t brim__loader_revoke(void *holder, brim_memory kind, uint64_t wanted) {
    brim_loader *loader = holder;
    brim__lock(&loader->mutex);
    loader->revoking = true; /* what is freed is not claimed again meanwhile */
    uint64_t freed;
    if (kind == BRIM_MEMORY_HOST || kind == BRIM_MEMORY_PINNED) {
        freed = revoke_slots(loader, wanted);
    } else {
        freed = brim__ship_revoke(loader, kind, wanted);
    }
    if (kind == BRIM_MEMORY_HOST && freed < wanted) {
        freed += revoke_scratch(loader, wanted - freed);
    }
    if (kind == BRIM_MEMORY_HOST && freed < wanted && loader->ship != NULL) {
        freed += brim__ship_revoke(loader, kind, wanted - freed);
    }
    loader->revoking = false;
    brim__loader_note_lacking(loader);
    loader->stats.revoked += freed > 0;
    atomic_store(&loader->wants, true);
    brim__loader_event(loader);
    brim__unlock(&loader->mutex);
    brim__broadcast(&loader->ready);
    brim__pool_wake(loader->runtime);
    return freed;
}

static uint64_t check_ring(const brim_loader *loader) {
    uint64_t waiting = 0;
    for (uint32_t i = 0; i < loader->ring_cap; i++) {
        const struct brim__slot *slot = &loader->ring[i];
        assert(slot->done <= slot->claimed && slot->claimed <= slot->rows);
        assert(!slot->abandoned || slot->state == BRIM__SLOT_SHIPPED ||
               (slot->state == BRIM__SLOT_FILLING && slot->busy > 0));
        if (slot->state == BRIM__SLOT_READY ||
            (slot->state == BRIM__SLOT_FILLING && !slot->abandoned)) {
            assert(slot->ticket >= loader->take_ticket && slot->ticket < loader->make_ticket);
            waiting++;
        }
    }
    return waiting;
}

void brim__slots_check(const brim_loader *loader) {
    uint32_t mapped = 0, lent = 0, firm = 0;
    for (uint32_t i = 0; i < loader->plan->slot_cap; i++) {
        const struct brim__slot *slot = &loader->slot[i];
        mapped += slot->state != BRIM__SLOT_EMPTY;
        lent += slot->state == BRIM__SLOT_LENT;
        firm += slot->state != BRIM__SLOT_EMPTY && !slot->pages.elastic;
        assert((slot->state == BRIM__SLOT_EMPTY) == (slot->pages.memory == NULL));
    }
    assert(mapped == loader->slot_count && mapped >= loader->plan->info.minimum_slots);
    assert(firm >= loader->plan->info.minimum_slots &&
           (firm == loader->plan->info.minimum_slots || loader->beyond > 0));
    assert(loader->ship != NULL ||
           (lent == loader->lent && lent <= loader->hold + loader->beyond && lent <= firm));
    uint64_t waiting = check_ring(loader);
    if (loader->ship != NULL) {
        brim__ship_check(loader);
        waiting += loader->sequencer == NULL ? brim__ship_ready(loader) : 0;
    }
    assert(waiting == loader->make_ticket - loader->take_ticket);
    (void)mapped, (void)lent, (void)firm, (void)waiting;
}

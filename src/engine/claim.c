/*
 * claim.c: which rows a thread makes next.
 *
 * Threads claim runs of rows of the lowest ticket that has rows left. A run is worth RUN_NS, by
 * the running mean of what rows take, so that threads that meet at the end of a batch wait for
 * no more than that.
 */
#include "engine/make.h"
#include "engine/position.h"

#define RUN_NS   50000 /* work worth claiming at once */
#define MOST_RUN 256

void brim__begin(brim_loader *loader, struct brim__slot *slot) {
    slot->ticket = loader->rows->make++;
    slot->epoch = loader->reached.begun.epoch;
    slot->index = loader->reached.begun.index++;
    slot->claims.ended = false;
}

/* Gives the next delivery a slot. NULL: no slot, or no data at all. */
static struct brim__slot *begin_delivery(brim_loader *loader) {
    struct brim__ring *ring = loader->rows;
    struct brim__slot *slot = brim__ring_find_free(ring);
    if (slot == NULL && ring->grow && brim__ring_grow(loader, ring) == BRIM_OK) {
        slot = brim__ring_find_free(ring);
    }
    if (slot == NULL) {
        return NULL;
    }
    struct brim__shard shard = brim__loader_shard(loader, loader->reached.begun.epoch);
    if (loader->reached.begun.index >= brim__shard_deliveries(&shard)) {
        loader->reached.begun = (struct brim__cursor){ .epoch = loader->reached.begun.epoch + 1 };
        shard = brim__loader_shard(loader, loader->reached.begun.epoch);
        if (brim__shard_deliveries(&shard) == 0) {
            return NULL;
        }
    }
    brim__shard_delivery(&shard, loader->reached.begun.index, &slot->delivery);
    slot->rows = (uint32_t)slot->delivery.rows;
    brim__begin(loader, slot);
    brim__slot_restart(slot);
    if (slot->state == BRIM__SLOT_READY) { /* it has no rows */
        brim__loader_event(loader);
    }
    return slot;
}

static struct brim__slot *find_unclaimed(const struct brim__ring *ring) {
    struct brim__slot *lowest = NULL;
    for (uint32_t i = 0; i < ring->cap; i++) {
        struct brim__slot *slot = &ring->slot[i];
        if (slot->state == BRIM__SLOT_FILLING && !slot->abandoned &&
            (slot->claims.given < slot->rows || slot->claims.returned > 0) &&
            (lowest == NULL || slot->ticket < lowest->ticket)) {
            lowest = slot;
        }
    }
    return lowest;
}

bool brim__claim(brim_loader *loader, bool head_only, struct brim__run *run) {
    const struct brim__ring *ring = loader->rows;
    /* of batches the one that the consumer waits for, which may be on its way to a device */
    const uint64_t head = ring == loader->batches ? loader->last->take : ring->take;
    struct brim__slot *slot = find_unclaimed(ring);
    while (slot == NULL || slot->state == BRIM__SLOT_READY) {
        if (head_only && ring->make != head) {
            return false;
        }
        slot = begin_delivery(loader); /* READY at once when it has no rows */
        if (slot == NULL) {
            return false;
        }
    }
    if (head_only && slot->ticket != head) {
        return false;
    }
    run->slot = slot;
    slot->busy++;
    struct brim__claims *claims = &slot->claims;
    if (BRIM__UNLIKELY(claims->returned > 0)) {
        run->first = claims->returned_first;
        run->count = claims->returned;
        claims->returned = 0;
        return true;
    }
    const uint64_t most = loader->pace.ns_per_row == 0
                              ? 4
                              : brim__max(1, RUN_NS / brim__max(1, loader->pace.ns_per_row));
    const uint32_t left = slot->rows - claims->given;
    run->first = claims->given;
    run->count = (uint32_t)brim__min(brim__min(most, MOST_RUN), left);
    if (left - run->count < run->count / 2) {
        run->count = left; /* a short rest is not worth a claim of its own */
    }
    claims->given += run->count;
    return true;
}

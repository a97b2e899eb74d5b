/*
 * chain.c: the rings of a loader as one; see chain.h.
 */
#include "engine/chain.h"

/* ----------------------------------------------------------------- the head */

bool brim__slot_awaits_next(const struct brim__slot *slot) {
    const bool bad = slot->bad_rows > 0 || slot->skipped > 0 || slot->replaced_rows > 0;
    return slot->error.status != BRIM_OK || (bad && !slot->inspected);
}

struct brim__slot *brim__chain_head(const brim_loader *loader) {
    const struct brim__ring *last = loader->last;
    struct brim__slot *head = brim__ring_head(last);
    if (brim__slot_is_ready(head) || last->memory != BRIM__RING_DEVICE) {
        return head;
    }
    struct brim__slot *before = brim__ring_find(last->from, BRIM__SLOT_READY, last->take);
    return before != NULL && brim__slot_awaits_next(before) ? before : head;
}

struct brim__ring *brim__chain_error(brim_loader *loader, bool urgent) {
    for (struct brim__ring *ring = loader->batches; ring <= loader->last; ring++) {
        /* a failure of a device may concern all batches there */
        const bool at_once = ring->memory == BRIM__RING_DEVICE;
        const bool due = at_once || (!urgent && ring->make == loader->last->take);
        if (ring->error.status != BRIM_OK && due) {
            return ring;
        }
    }
    return NULL;
}

void brim__chain_retry(brim_loader *loader) {
    for (uint32_t i = loader->ring_count; i-- > 0;) {
        struct brim__ring *ring = &loader->ring[i];
        if (ring->error.status != BRIM_OK && ring->error.reported) {
            ring->role->retry(loader);
        }
    }
    struct brim__slot *head = brim__chain_head(loader);
    if (!brim__slot_is_ready(head) || !head->error.reported) {
        return;
    }
    /* only now: what made it fail may have been put right since */
    if (head->error.of == BRIM__ERROR_OF_UPLOAD && head->ring->made_once) {
        brim__error_clear(&head->error);
    } else {
        brim__slot_restart(head);
    }
}

/* ------------------------------------------------------------------ turning */

bool brim__chain_turn(brim_loader *loader, bool is_next) {
    bool did = false;
    brim__lock(&loader->mutex);
    const unsigned wanted = atomic_load(&loader->wanted);
    for (uint32_t i = loader->ring_count; !did && !loader->closing && i-- > 0;) {
        did = loader->ring[i].role->turn(loader, is_next);
    }
    if (!did && !is_next) {
        atomic_store(&loader->wants, false);
        if (atomic_load(&loader->wanted) != wanted) { /* after it was looked for */
            atomic_store(&loader->wants, true);
        }
    }
    brim__loader_unlock(loader);
    return did;
}

void brim__chain_push(brim_loader *loader) {
    for (uint32_t i = loader->ring_count; i-- > 0;) {
        const struct brim__ring_role *role = loader->ring[i].role;
        while (role->quick && role->turn(loader, true)) {
        }
    }
}

void brim__chain_grow(brim_loader *loader) {
    for (uint32_t i = 0; i < loader->ring_count; i++) {
        loader->ring[i].grow = true;
    }
}

bool brim__chain_needs_next(const brim_loader *loader) {
    return loader->stream.unmade.slot != NULL;
}

bool brim__chain_is_worked_at(const brim_loader *loader) {
    bool works = loader->stream.pulling;
    for (uint32_t i = 0; i < loader->rows->cap; i++) {
        works |= loader->rows->slot[i].busy > 0;
    }
    return works;
}

/* ------------------------------------------------------------- going back */

/* Where the batch of a ticket was begun, wherever it is now; NULL: it is not begun. */
static const struct brim__slot *find_batch(const brim_loader *loader, uint64_t ticket) {
    const struct brim__slot *slot = NULL;
    for (const struct brim__ring *ring = loader->batches; slot == NULL && ring <= loader->last;
         ring++) {
        slot = brim__ring_slot(ring, ticket);
    }
    return slot;
}

void brim__chain_recall(brim_loader *loader, uint64_t ticket) {
    assert(!loader->last->made_once);
    const struct brim__slot *slot = find_batch(loader, ticket);
    if (slot == NULL) {
        return;
    }
    loader->reached.begun = (struct brim__cursor){ .epoch = slot->epoch, .index = slot->index };
    for (struct brim__ring *ring = loader->batches; ring <= loader->last; ring++) {
        for (uint32_t i = 0; i < ring->cap; i++) {
            if (ring->slot[i].ticket >= ticket) {
                brim__slot_drop(&ring->slot[i]);
            }
        }
        ring->make = brim__min(ring->make, ticket);
        ring->take = brim__min(ring->take, ticket);
    }
    brim__loader_want(loader);
}

void brim__chain_abandon(brim_loader *loader) {
    /* before the batches, rings count by themselves: any ticket will do for them */
    const uint64_t ticket = loader->last->take;
    for (uint32_t i = 0; i < loader->ring_count; i++) {
        brim__ring_abandon(&loader->ring[i], ticket);
    }
    loader->stream.unmade.slot = NULL;
    loader->reached.begun = loader->reached.taken;
    brim__loader_want(loader);
}

/* -------------------------------------------------------------- giving way */

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
            brim__loader_wait(loader, UINT64_MAX);
        }
    }
    return freed;
}

/* What a kind of memory is for: a device ring has little on the host, and gives it last. */
static uint64_t revoke_rings(brim_loader *loader, brim_memory kind, uint64_t wanted, bool device,
                             bool firmly) {
    uint64_t freed = 0;
    for (uint32_t i = 0; freed < wanted && i < loader->ring_count; i++) {
        struct brim__ring *ring = &loader->ring[i];
        if ((ring->memory == BRIM__RING_DEVICE) == device) {
            freed += brim__ring_revoke(loader, ring, kind, wanted - freed, firmly);
        }
    }
    return freed;
}

uint64_t brim__chain_revoke(void *holder, brim_memory kind, uint64_t wanted, bool firmly) {
    brim_loader *loader = holder;
    brim__lock(&loader->mutex);
    loader->revoking = true; /* what is freed is not claimed again meanwhile */
    uint64_t freed = revoke_rings(loader, kind, wanted, false, firmly);
    if (kind == BRIM_MEMORY_HOST && freed < wanted) {
        freed += revoke_scratch(loader, wanted - freed);
    }
    if (freed < wanted) {
        freed += revoke_rings(loader, kind, wanted - freed, true, firmly);
    }
    loader->revoking = false;
    brim__loader_note_lacking(loader);
    loader->report.stats.revoked += freed > 0;
    brim__loader_want(loader);
    brim__loader_event(loader);
    brim__loader_unlock(loader);
    brim__pool_wake(loader->runtime);
    return freed;
}

/* ---------------------------------------------------------------- checking */

void brim__chain_check(const brim_loader *loader) {
    const struct brim__ring *last = loader->last;
    const uint32_t lent = brim__ring_count(last, BRIM__SLOT_LENT);
    if (loader->closing) {
        return; /* memory goes whatever the states are */
    }
    for (uint32_t i = 0; i < loader->ring_count; i++) {
        const struct brim__ring *ring = &loader->ring[i];
        brim__ring_check(ring);
        assert(ring->from == (i == 0 ? NULL : ring - 1));
        assert(ring == last || brim__ring_count(ring, BRIM__SLOT_LENT) == 0);
        assert(brim__ring_firm(ring) <= (ring == last ? brim__lend_firm(loader) : ring->minimum));
        for (uint32_t s = 0; ring == loader->rows && s < ring->cap; s++) {
            const struct brim__claims *claims = &ring->slot[s].claims;
            assert(claims->made <= claims->given && claims->given <= ring->slot[s].rows);
            (void)claims;
        }
        if (ring->memory != BRIM__RING_DEVICE) {
            continue;
        }
        assert(ring->from != NULL && ring->make == ring->from->take);
        for (uint32_t s = 0; s < ring->from->cap; s++) {
            const struct brim__slot *slot = &ring->from->slot[s];
            /* one that is sent again has kept its place */
            assert(slot->state != BRIM__SLOT_READY || slot->ticket >= ring->make ||
                   brim__ring_find(ring, BRIM__SLOT_FILLING, slot->ticket) != NULL);
            (void)slot;
        }
    }
    assert(lent == loader->lent && lent <= loader->hold + loader->beyond);
    (void)lent;
}

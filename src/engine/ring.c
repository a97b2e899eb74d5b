/*
 * ring.c: what all rings have in common; see ring.h.
 */
#include "engine/ring.h"

#include "engine/chain.h"

void brim__error_keep(struct brim__kept_error *error, brim_status status) {
    error->status = status;
    error->reported = false;
    error->of = BRIM__ERROR_OF_ROWS;
    brim__failure_keep(&error->failure);
}

brim_status brim__error_report(struct brim__kept_error *error) {
    error->reported = true;
    return brim__fail_kept(error->status, &error->failure);
}

void brim__error_clear(struct brim__kept_error *error) {
    error->status = BRIM_OK;
    error->reported = false;
    error->of = BRIM__ERROR_OF_ROWS;
}

/* ----------------------------------------------------------------- looking */

struct brim__slot *brim__ring_find(const struct brim__ring *ring, enum brim__slot_state state,
                                   uint64_t ticket) {
    for (uint32_t i = 0; i < ring->cap; i++) {
        struct brim__slot *slot = &ring->slot[i];
        if (slot->state == state && slot->ticket == ticket && !slot->abandoned) {
            return slot;
        }
    }
    return NULL;
}

struct brim__slot *brim__ring_find_free(const struct brim__ring *ring) {
    for (uint32_t i = 0; i < ring->cap; i++) {
        if (ring->slot[i].state == BRIM__SLOT_FREE) {
            return &ring->slot[i];
        }
    }
    return NULL;
}

uint32_t brim__ring_count(const struct brim__ring *ring, enum brim__slot_state state) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < ring->cap; i++) {
        count += ring->slot[i].state == state;
    }
    return count;
}

struct brim__slot *brim__ring_slot(const struct brim__ring *ring, uint64_t ticket) {
    struct brim__slot *ready = brim__ring_find(ring, BRIM__SLOT_READY, ticket);
    return ready != NULL ? ready : brim__ring_find(ring, BRIM__SLOT_FILLING, ticket);
}

/* ---------------------------------------------------------------- one slot */

#define TO(state) (1u << BRIM__SLOT_##state)

/* The drawing: to which states each one leads, in each kind of memory. */
static const unsigned edges[][BRIM__SLOT_LEAVING + 1] = {
    [BRIM__RING_HOST] = { [BRIM__SLOT_EMPTY] = TO(MAPPING),
                          [BRIM__SLOT_MAPPING] = TO(FREE) | TO(EMPTY),
                          [BRIM__SLOT_FREE] = TO(FILLING) | TO(READY) | TO(EMPTY),
                          [BRIM__SLOT_FILLING] = TO(READY) | TO(FREE),
                          [BRIM__SLOT_READY] = TO(LENT) | TO(FILLING) | TO(FREE),
                          [BRIM__SLOT_LENT] = TO(FREE) },
    [BRIM__RING_STAGING] = { [BRIM__SLOT_EMPTY] = TO(MAPPING),
                             [BRIM__SLOT_MAPPING] = TO(FREE) | TO(EMPTY),
                             [BRIM__SLOT_FREE] = TO(FILLING) | TO(READY) | TO(EMPTY),
                             [BRIM__SLOT_FILLING] = TO(READY) | TO(FREE),
                             [BRIM__SLOT_READY] = TO(LEAVING) | TO(FILLING) | TO(FREE),
                             [BRIM__SLOT_LEAVING] = TO(READY) | TO(FREE) },
    [BRIM__RING_DEVICE] = { [BRIM__SLOT_EMPTY] = TO(MAPPING),
                            [BRIM__SLOT_MAPPING] = TO(FREE) | TO(EMPTY),
                            [BRIM__SLOT_FREE] = TO(FILLING) | TO(EMPTY),
                            [BRIM__SLOT_FILLING] = TO(READY) | TO(FREE),
                            [BRIM__SLOT_READY] = TO(LENT) | TO(FILLING) | TO(FREE),
                            [BRIM__SLOT_LENT] = TO(FREE) | TO(LEAVING) | TO(EMPTY),
                            [BRIM__SLOT_LEAVING] = TO(FREE) | TO(EMPTY) },
};

void brim__slot_set(struct brim__slot *slot, enum brim__slot_state state) {
    assert(slot->state == state || (edges[slot->ring->memory][slot->state] & 1u << state) != 0);
    (void)edges;
    slot->state = state;
}

void brim__slot_free(struct brim__slot *slot) {
    brim__slot_set(slot, BRIM__SLOT_FREE);
    slot->abandoned = slot->inspected = false;
    brim__error_clear(&slot->error);
}

static void forget_rows(struct brim__slot *slot) {
    slot->claims.given = slot->claims.made = slot->claims.returned = 0;
    slot->bad_rows = slot->replaced_rows = 0;
    slot->inspected = false;
    slot->bad_text[0] = '\0';
    brim__error_clear(&slot->error);
}

void brim__slot_fill(struct brim__slot *slot) {
    forget_rows(slot);
    brim__slot_set(slot, BRIM__SLOT_FILLING);
}

void brim__slot_restart(struct brim__slot *slot) {
    forget_rows(slot);
    brim__slot_set(slot, slot->rows == 0 ? BRIM__SLOT_READY : BRIM__SLOT_FILLING);
}

void brim__slot_drop(struct brim__slot *slot) {
    if (slot->state == BRIM__SLOT_LEAVING ||
        (slot->state == BRIM__SLOT_FILLING && slot->busy > 0)) {
        slot->abandoned = true;
    } else if (slot->state == BRIM__SLOT_FILLING || slot->state == BRIM__SLOT_READY) {
        /* a device may still be writing it: what comes next is written after that */
        brim__slot_free(slot);
    }
}

void brim__ring_abandon(struct brim__ring *ring, uint64_t ticket) {
    for (uint32_t i = 0; i < ring->cap; i++) {
        struct brim__slot *slot = &ring->slot[i];
        if (slot->state != BRIM__SLOT_LEAVING || slot->ticket >= ticket) {
            brim__slot_drop(slot);
        }
    }
    ring->take = ring->make = ticket;
    if (ring->error.of != BRIM__ERROR_OF_DELIVERED) {
        brim__error_clear(&ring->error);
    }
}

/* ----------------------------------------------------------------- growing */

struct brim__slot *brim__ring_add(struct brim__ring *ring) {
    struct brim__slot *slot = ring->slot;
    while (slot->state != BRIM__SLOT_EMPTY) { /* count is less than cap */
        slot++;
    }
    brim__slot_set(slot, BRIM__SLOT_MAPPING);
    ring->count++;
    return slot;
}

brim_status brim__ring_added(struct brim__slot *slot, brim_status status) {
    if (status == BRIM_OK) {
        brim__slot_free(slot);
    } else {
        brim__slot_set(slot, BRIM__SLOT_EMPTY);
        slot->ring->count--;
    }
    return status;
}

brim_status brim__ring_grow(brim_loader *loader, struct brim__ring *ring) {
    if (ring->count >= ring->planned || loader->revoking || loader->idle) {
        return BRIM_STATUS_TIMEOUT;
    }
    struct brim__slot *slot = brim__ring_add(ring);
    const bool unlocked = ring->memory == BRIM__RING_DEVICE; /* drivers take their time */
    if (unlocked) {
        ring->grow = false; /* a consumer that waits meanwhile asks for one more */
        brim__loader_unlock(loader);
    }
    brim_status status = brim__slot_map(loader, slot, true);
    if (unlocked) {
        brim__lock(&loader->mutex);
    }
    status = brim__ring_added(slot, status);
    ring->refused = status != BRIM_OK;
    if (status != BRIM_OK) {
        return status;
    }
    ring->grow &= unlocked;
    if (ring->count <= ring->minimum) {
        brim__slot_firm_up(loader, slot);
    }
    brim__loader_note_lacking(loader);
    return BRIM_OK;
}

/* ------------------------------------------------------------- firm, elastic */

static bool has_memory(const struct brim__slot *slot) {
    return slot->state != BRIM__SLOT_EMPTY && slot->state != BRIM__SLOT_MAPPING;
}

/* A slot that has memory with this mark; NULL: there is none. */
static struct brim__slot *find_marked(const struct brim__ring *ring, bool elastic) {
    for (uint32_t i = 0; i < ring->cap; i++) {
        if (has_memory(&ring->slot[i]) && ring->slot[i].pages.elastic == elastic) {
            return &ring->slot[i];
        }
    }
    return NULL;
}

uint32_t brim__ring_firm(const struct brim__ring *ring) {
    uint32_t firm = 0;
    for (uint32_t i = 0; i < ring->cap; i++) {
        firm += has_memory(&ring->slot[i]) && !ring->slot[i].pages.elastic;
    }
    return firm;
}

brim_status brim__ring_firm_up(brim_loader *loader, struct brim__ring *ring) {
    struct brim__slot *slot;
    while ((slot = find_marked(ring, true)) == NULL && ring->count == ring->cap &&
           brim__ring_count(ring, BRIM__SLOT_MAPPING) > 0) {
        brim__loader_wait(loader, brim__now() + BRIM__POLL_NS); /* another thread maps one */
    }
    if (slot != NULL) {
        brim__slot_firm_up(loader, slot);
        return BRIM_OK;
    }
    if (ring->count == ring->cap) {
        return brim__fail(BRIM_STATUS_BUDGET,
                          "all of the %u slots that the loader may have are held", ring->cap);
    }
    slot = brim__ring_add(ring);
    brim__loader_unlock(loader); /* others give way */
    brim_status status = brim__slot_map(loader, slot, false);
    brim__lock(&loader->mutex);
    status = brim__ring_added(slot, status);
    if (status == BRIM_OK) {
        brim__loader_note_lacking(loader);
    }
    return status;
}

void brim__ring_soften(brim_loader *loader, struct brim__ring *ring) {
    struct brim__slot *slot = find_marked(ring, false); /* which of them does not matter */
    if (slot != NULL) {
        brim__slot_soften(loader, slot);
    }
}

/* -------------------------------------------------------------- giving way */

void brim__ring_give_up(brim_loader *loader, struct brim__slot *slot) {
    struct brim__ring *ring = slot->ring;
    struct brim__slot *other = slot->pages.elastic ? NULL : find_marked(ring, true);
    if (other != NULL) {
        other->pages.elastic = false;
        slot->pages.elastic = true;
    }
    brim__slot_set(slot, BRIM__SLOT_EMPTY);
    brim__slot_unmap(loader, slot);
    ring->count--;
}

/* The slot to give up next: a free one, else the one furthest ahead. */
static struct brim__slot *find_victim(const struct brim__ring *ring) {
    struct brim__slot *victim = brim__ring_find_free(ring);
    return victim != NULL || ring->made_once || ring->take == ring->make
               ? victim
               : brim__ring_slot(ring, ring->make - 1);
}

/* No slot can be given up now: waits for one if that ends by itself. False: it takes a user to
 * release one, or the user's code to return. */
static bool await_victim(brim_loader *loader, const struct brim__ring *ring) {
    if (loader->plan->callback || ring->made_once || ring->memory == BRIM__RING_DEVICE) {
        return false;
    }
    brim__ring_await(loader, ring);
    return true;
}

uint64_t brim__ring_revoke(brim_loader *loader, struct brim__ring *ring, brim_memory kind,
                           uint64_t wanted, bool firmly) {
    const uint64_t bytes = brim__ring_slot_bytes(loader, ring, kind);
    const struct brim__ring_role *maker = loader->batches->role;
    bool may_go_back = firmly && ring->made_once;
    uint64_t freed = 0;
    if (bytes == 0) {
        return 0;
    }
    brim__ring_settle(loader, ring);
    while (freed < wanted && find_marked(ring, true) != NULL) {
        struct brim__slot *victim = find_victim(ring);
        if (victim != NULL && brim__slot_is_written(loader, victim)) {
            brim__ring_await(loader, ring);
            continue;
        }
        if (victim != NULL && victim->state != BRIM__SLOT_FREE) {
            brim__chain_recall(loader, victim->ticket);
        }
        if (victim != NULL && victim->state == BRIM__SLOT_FREE) {
            brim__ring_give_up(loader, victim);
            freed += bytes;
        } else if (may_go_back) {
            may_go_back = false;
            (void)maker->go_back(loader);
        } else if (!await_victim(loader, ring)) {
            break;
        }
    }
    return freed;
}

uint32_t brim__ring_spare(const brim_loader *loader, const struct brim__ring *ring) {
    uint32_t slots = 0;
    for (uint32_t i = 0; i < ring->cap; i++) {
        const struct brim__slot *slot = &ring->slot[i];
        const bool made = slot->state == BRIM__SLOT_READY ||
                          (slot->state == BRIM__SLOT_FILLING && !loader->plan->callback);
        slots += slot->state == BRIM__SLOT_FREE || (made && !ring->made_once);
    }
    const uint32_t mapped = ring->cap - brim__ring_count(ring, BRIM__SLOT_EMPTY) -
                            brim__ring_count(ring, BRIM__SLOT_MAPPING);
    return (uint32_t)brim__min(slots, mapped - brim__ring_firm(ring));
}

/* ---------------------------------------------------------------- checking */

/* The slot holds one of the tickets [take, make). */
static bool is_waiting(const struct brim__ring *ring, const struct brim__slot *slot) {
    return !slot->abandoned && slot->ticket >= ring->take && slot->ticket < ring->make &&
           (slot->state == BRIM__SLOT_READY || slot->state == BRIM__SLOT_FILLING);
}

static void check_slot(const struct brim__ring *ring, const struct brim__slot *slot) {
    const bool waiting = is_waiting(ring, slot);
    assert(slot->ring == ring);
    assert(slot->state == BRIM__SLOT_MAPPING ||
           (slot->state == BRIM__SLOT_EMPTY) == (slot->pages.memory == NULL));
    assert(!slot->abandoned || slot->state == BRIM__SLOT_LEAVING ||
           (slot->state == BRIM__SLOT_FILLING && slot->busy > 0));
    /* beyond the tickets: what a sequencer fills gets one when it is ready, and a batch that is
     * sent again has a place in the device ring */
    assert(slot->state != BRIM__SLOT_READY || waiting || ring->memory == BRIM__RING_STAGING);
    assert(slot->state != BRIM__SLOT_FILLING || waiting || slot->abandoned || ring->made_once);
    (void)waiting;
}

void brim__ring_check(const struct brim__ring *ring) {
    uint32_t waiting = 0;
    for (uint32_t i = 0; i < ring->cap; i++) {
        check_slot(ring, &ring->slot[i]);
        waiting += is_waiting(ring, &ring->slot[i]);
    }
    assert(ring->cap - brim__ring_count(ring, BRIM__SLOT_EMPTY) == ring->count);
    assert(waiting == ring->make - ring->take);
    /* slots may be lost on a device */
    assert(ring->memory == BRIM__RING_DEVICE || brim__ring_firm(ring) >= ring->minimum);
    (void)waiting;
}

/*
 * ship.c: which batch is shipped when, lending it on the device, and taking it back.
 */
#include "engine/ship.h"

#include "engine/resident.h"
#include "engine/sequencer.h"

/* ----------------------------------------------------------------- looking */

static uint64_t wanted_ticket(const brim_loader *loader) {
    return loader->sequencer != NULL ? loader->sequencer->take : loader->take_ticket;
}

static struct brim__slot *find_ready(struct brim__slot *slots, uint32_t count, uint64_t ticket) {
    for (uint32_t i = 0; i < count; i++) {
        if (slots[i].state == BRIM__SLOT_READY && slots[i].ticket == ticket) {
            return &slots[i];
        }
    }
    return NULL;
}

/* Bad samples may be more than the user allows, which only `next` can tell. */
static bool is_cleared(const struct brim__slot *slot) {
    return slot->cleared || (slot->bad_rows == 0 && slot->skipped == 0 && slot->replaced_rows == 0);
}

struct brim__slot *brim__ship_head(brim_loader *loader) {
    const uint64_t ticket = wanted_ticket(loader);
    struct brim__slot *berth = find_ready(loader->ship->berth, loader->plan->berth_cap, ticket);
    if (berth != NULL) {
        return berth;
    }
    struct brim__slot *slot = find_ready(loader->slot, loader->plan->slot_cap, ticket);
    return slot != NULL && (slot->error != BRIM_OK || !is_cleared(slot)) ? slot : NULL;
}

uint32_t brim__ship_ready(const brim_loader *loader) {
    uint32_t ready = 0;
    for (uint32_t i = 0; i < loader->plan->berth_cap; i++) {
        const struct brim__slot *berth = &loader->ship->berth[i];
        ready += berth->state == BRIM__SLOT_READY ||
                 (berth->state == BRIM__SLOT_FILLING && !berth->abandoned);
    }
    return ready;
}

static void fail_slot(struct brim__slot *slot, brim_status status) {
    slot->error = status;
    slot->error_row = 0;
    slot->stranded = true;
    brim__copy_text(slot->error_text, sizeof(slot->error_text), brim_detail());
}

/* Mutex held: the batch of `from`, and all behind it, will be begun again later. */
static void take_back(brim_loader *loader, const struct brim__slot *from) {
    struct brim__ship *ship = loader->ship;
    const uint64_t ticket = from->ticket;
    loader->make_ticket = ticket;
    loader->make_epoch = from->epoch;
    loader->make_index = from->index;
    ship->ticket = brim__min(ship->ticket, ticket);
    for (uint32_t i = 0; i < loader->ring_cap; i++) {
        struct brim__slot *slot = &loader->ring[i];
        if (slot->ticket < ticket) {
            continue;
        }
        if (slot->state == BRIM__SLOT_FILLING && slot->busy > 0) {
            slot->abandoned = true;
        } else if (slot->state == BRIM__SLOT_FILLING || slot->state == BRIM__SLOT_READY) {
            brim__slot_free(slot);
        }
    }
}

/* What was shipped, is not lent and has this ticket or a later one goes nowhere. */
static void drop_shipped(brim_loader *loader, uint64_t ticket) {
    struct brim__ship *ship = loader->ship;
    for (uint32_t i = 0; i < loader->plan->berth_cap; i++) {
        struct brim__slot *berth = &ship->berth[i];
        if (berth->state == BRIM__SLOT_READY && berth->ticket >= ticket) {
            brim__slot_free(berth); /* what comes next is written behind what may be under way */
        } else if (berth->state == BRIM__SLOT_FILLING && berth->ticket >= ticket) {
            berth->abandoned = true;
        }
    }
    for (uint32_t i = 0; i < loader->plan->slot_cap; i++) {
        struct brim__slot *slot = &loader->slot[i];
        if (slot->state == BRIM__SLOT_SHIPPED && slot->ticket >= ticket) {
            slot->abandoned = true; /* another batch may have its ticket when its copy is done */
        }
    }
    ship->generation++;
}

/* The batch of the lowest ticket from `ticket` on that is not lent, wherever it is. */
static const struct brim__slot *find_first(const brim_loader *loader, uint64_t ticket) {
    const struct brim__slot *first = NULL;
    for (uint32_t i = 0; i < loader->plan->berth_cap + loader->plan->slot_cap; i++) {
        const struct brim__slot *slot = i < loader->plan->berth_cap
                                            ? &loader->ship->berth[i]
                                            : &loader->slot[i - loader->plan->berth_cap];
        if ((slot->state == BRIM__SLOT_READY || slot->state == BRIM__SLOT_FILLING) &&
            !slot->abandoned && slot->ticket >= ticket &&
            (first == NULL || slot->ticket < first->ticket)) {
            first = slot;
        }
    }
    return first;
}

/* A copy that the device had accepted has failed. Rows that were to stay there may have gone
 * from it into any batch that was shipped behind it, and are missing in those that were made
 * without them: of a copy that a seek has made pointless too. */
static void fail_copy(brim_loader *loader, struct brim__slot *slot, brim_status status) {
    struct brim__ship *ship = loader->ship;
    const uint64_t ticket = slot->ticket;
    const bool pointless = slot->abandoned; /* its ticket may have been given again */
    const bool lent = !pointless && ticket < wanted_ticket(loader);
    const bool stays = loader->plan->resident != NULL;
    for (uint32_t i = 0; (lent || stays) && i < loader->plan->berth_cap; i++) {
        struct brim__slot *berth = &ship->berth[i];
        if (berth->state == BRIM__SLOT_LENT && ((lent && berth->ticket == ticket) ||
                                                (stays && (pointless || berth->ticket > ticket)))) {
            fail_slot(berth, status);
        }
    }
    if (!stays && (pointless || lent)) {
        brim__slot_free(slot);
        return;
    }
    if (loader->sequencer != NULL) { /* what it made cannot be had again */
        struct brim__slot *berth = find_ready(ship->berth, loader->plan->berth_cap, ticket);
        assert(berth != NULL);
        brim__slot_free(berth);
        slot->state = BRIM__SLOT_READY;
        fail_slot(slot, status);
        return;
    }
    if (!lent && !pointless && ship->error == BRIM_OK) { /* else it is tried again with that */
        ship->error = status;
        ship->told = false;
        brim__copy_text(ship->error_text, sizeof(ship->error_text), brim_detail());
    }
    if (stays) {
        brim__resident_withdraw(loader, slot);
    }
    brim__slot_free(slot);
    const struct brim__slot *first =
        find_first(loader, pointless ? 0 : brim__max(ticket, wanted_ticket(loader)));
    if (first != NULL) {
        const struct brim__slot from = *first;
        drop_shipped(loader, from.ticket);
        take_back(loader, &from);
    }
}

/* Looks whether an event is done. A driver that fails when it is asked may tell of something
 * else, with the work still under way: that is waited for, and counts as failed. *over: what
 * came before the event has ended, for all that the driver says. */
static brim_status poll(struct brim__ship *ship, const struct brim__event *event, bool *over) {
    const brim_status status = brim__event_poll(&ship->device, event);
    *over = status == BRIM_OK;
    if (status == BRIM_OK || status == BRIM_STATUS_TIMEOUT) {
        return status;
    }
    char text[BRIM__DETAIL_BYTES];
    brim__copy_text(text, sizeof(text), brim_detail());
    *over = brim__event_wait(&ship->device, event) == BRIM_OK;
    return brim__fail_text(status, text);
}

/* Mutex held: its memory goes; which of them are elastic is only a mark. */
static void give_up(brim_loader *loader, struct brim__slot *berth) {
    for (uint32_t i = 0; !berth->elastic && i < loader->plan->berth_cap; i++) {
        struct brim__slot *other = &loader->ship->berth[i];
        /* not one in the making, which another thread may be at */
        if (other->state != BRIM__SLOT_EMPTY && other->state != BRIM__SLOT_FILLING &&
            other->elastic && other->pages.elastic) {
            other->elastic = other->pages.elastic = false;
            berth->elastic = berth->pages.elastic = true;
        }
    }
    brim__berth_free(loader, berth);
    loader->ship->berth_count--;
}

void brim__ship_settle(brim_loader *loader) {
    struct brim__ship *ship = loader->ship;
    /* not while another thread counts on what stays on the device, or gives it up: a copy
     * that has failed takes samples away from there */
    const bool later = ship->running && loader->plan->resident != NULL;
    bool polls = later, news = false;
    for (uint32_t i = 0; i < loader->plan->slot_cap; i++) {
        struct brim__slot *slot = &loader->slot[i];
        if (slot->state != BRIM__SLOT_SHIPPED || slot->busy > 0 || later) {
            continue;
        }
        bool over;
        const brim_status status = poll(ship, &slot->copied, &over);
        if (status == BRIM_STATUS_TIMEOUT) {
            polls = true;
            continue;
        }
        brim__event_free(&ship->device, &slot->copied);
        news = true;
        if (status == BRIM_OK) {
            brim__slot_free(slot);
        } else {
            fail_copy(loader, slot, status);
        }
    }
    for (uint32_t i = 0; i < loader->plan->berth_cap; i++) {
        struct brim__slot *berth = &ship->berth[i];
        if (berth->state != BRIM__SLOT_LEAVING) {
            continue;
        }
        bool over;
        if (poll(ship, &berth->released, &over) == BRIM_STATUS_TIMEOUT) {
            polls = true;
            continue;
        }
        brim__event_free(&ship->device, &berth->released);
        if (over) {
            brim__slot_free(berth);
        } else {
            /* its reader may not be done: as in brim__ship_take_back */
            (void)brim__event_wait(&ship->device, &berth->copied);
            give_up(loader, berth);
        }
        news = true;
    }
    atomic_store(&loader->polls, polls);
    if (news) {
        atomic_store(&loader->wants, true);
        brim__loader_event(loader);
        brim__broadcast(&loader->ready);
    }
}

/* ----------------------------------------------------------------- shipping */

/* What `next` will say of the batch, which lies in the slot no longer. */
static void describe(struct brim__slot *berth, const struct brim__slot *slot) {
    berth->ticket = slot->ticket;
    berth->epoch = slot->epoch;
    berth->index = slot->index;
    berth->delivery = slot->delivery;
    berth->rows = slot->rows;
    berth->bad_rows = slot->bad_rows;
    berth->replaced_rows = slot->replaced_rows;
    berth->skipped = slot->skipped;
    berth->resume = slot->resume;
    berth->error = BRIM_OK;
}

/* Mutex held, released meanwhile. */
static void ship_one(brim_loader *loader, struct brim__slot *slot, struct brim__slot *berth) {
    struct brim__ship *ship = loader->ship;
    const uint64_t generation = ship->generation;
    uint64_t copied = 0;
    slot->state = BRIM__SLOT_SHIPPED;
    slot->busy = 1;
    berth->state = BRIM__SLOT_FILLING;
    berth->abandoned = false;
    describe(berth, slot);
    const bool again = slot->ticket < ship->ticket;
    ship->ticket += !again;
    ship->spare =
        loader->plan->info.device_slots > ship->berth_count ? loader->plan->landing.slot_bytes : 0;
    brim__unlock(&loader->mutex);
    brim__event_free(&ship->device, &berth->copied);
    const brim_status status = brim__cargo_send(loader, slot, berth, &copied);
    if (status != BRIM_OK) {
        /* waits for what is in it: then nothing reads the slot or writes the berth */
        brim__queue_free(&ship->queue);
        brim__event_free(&ship->device, &slot->copied);
    }
    brim__lock(&loader->mutex);
    const bool stale = ship->generation != generation;
    slot->busy = 0;
    slot->abandoned = stale;
    if (status != BRIM_OK && loader->plan->resident != NULL) {
        fail_copy(loader, slot, status); /* some of its samples may count as there already */
        brim__slot_free(berth);
        return;
    }
    if (status != BRIM_OK) {
        brim__slot_free(berth);
        if (stale) {
            brim__slot_free(slot);
        } else {
            slot->state = BRIM__SLOT_READY;
            ship->ticket -= !again;
            fail_slot(slot, status);
        }
        return;
    }
    ship->copied_bytes += copied;
    atomic_store(&loader->polls, true);
    if (stale) {
        brim__slot_free(berth);
    } else {
        berth->state = BRIM__SLOT_READY;
    }
}

/* The batch to be shipped next, if it is ready: one whose copy has failed before all others,
 * which would take the berths. */
static struct brim__slot *find_cargo(brim_loader *loader) {
    struct brim__slot *cargo = NULL;
    for (uint32_t i = 0; i < loader->plan->slot_cap; i++) {
        struct brim__slot *slot = &loader->slot[i];
        if (slot->state == BRIM__SLOT_READY && slot->ticket <= loader->ship->ticket &&
            (cargo == NULL || slot->ticket < cargo->ticket)) {
            cargo = slot;
        }
    }
    return cargo != NULL && cargo->error == BRIM_OK && is_cleared(cargo) ? cargo : NULL;
}

/* Berths were lost, and there is no memory for others. If none will be free again whatever
 * the user does, `next` says so, or it would wait for ever. */
static void tell_lost(brim_loader *loader, struct brim__slot *slot, brim_status status) {
    char size[BRIM__SIZE_TEXT];
    const uint64_t bytes = loader->plan->landing.slot_bytes;
    if (status == BRIM_STATUS_BUDGET &&
        brim__budget_free_now(loader->budget, loader->plan->landing.kind) >= bytes) {
        return; /* refused only while somebody collects */
    }
    for (uint32_t i = 0; i < loader->plan->berth_cap; i++) {
        const enum brim__slot_state state = loader->ship->berth[i].state;
        if (state != BRIM__SLOT_EMPTY && state != BRIM__SLOT_LENT) {
            return;
        }
    }
    if (status == BRIM_STATUS_BUDGET) {
        status = brim__fail(BRIM_STATUS_BUDGET,
                            "a device slot of %s was given up because its batch could not be "
                            "released on its queue, and others have the memory now: close one of "
                            "them, or raise the limit of the device",
                            brim__size_text(bytes, size));
    }
    fail_slot(slot, status);
}

bool brim__ship_turn(brim_loader *loader) {
    struct brim__ship *ship = loader->ship;
    brim__ship_settle(loader);
    if (ship->running || loader->revoking || loader->closing || ship->error != BRIM_OK) {
        return false;
    }
    struct brim__slot *slot = find_cargo(loader);
    if (slot == NULL) {
        return false;
    }
    ship->running = true;
    struct brim__slot *berth = brim__slot_find_free(ship->berth, loader->plan->berth_cap);
    const bool lost = ship->berth_count < loader->plan->info.minimum_device_slots;
    if (berth == NULL && (ship->grow || lost)) {
        ship->grow = false;
        const brim_status status = brim__berth_grow(loader);
        berth = brim__slot_find_free(ship->berth, loader->plan->berth_cap);
        slot = find_cargo(loader);
        if (lost && status != BRIM_OK && status != BRIM_STATUS_TIMEOUT && slot != NULL) {
            tell_lost(loader, slot, status);
        }
    }
    const bool ships = berth != NULL && slot != NULL && !loader->revoking;
    if (ships) {
        ship_one(loader, slot, berth);
    }
    ship->running = false;
    brim__loader_event(loader);
    brim__broadcast(&loader->ready);
    return ships;
}

void brim__ship_go(brim_loader *loader) {
    drop_shipped(loader, 0);
    loader->ship->error = BRIM_OK;
    loader->ship->ticket = wanted_ticket(loader);
}

brim_status brim__ship_tell(brim_loader *loader) {
    loader->ship->told = true;
    return brim__fail_text(loader->ship->error, loader->ship->error_text);
}

void brim__ship_retry(brim_loader *loader) {
    struct brim__ship *ship = loader->ship;
    if (ship->error != BRIM_OK && ship->told) {
        struct brim__slot *head = brim__ship_head(loader);
        ship->error = BRIM_OK;
        if (head != NULL && head->error != BRIM_OK) { /* a slot of a direct plan's */
            brim__slot_restart(head);
        }
    }
}

/* --------------------------------------------------- lending and taking back */

brim_status brim__ship_lend(brim_loader *loader, struct brim__slot *berth) {
    struct brim__ship *ship = loader->ship;
    struct brim__queue queue;
    brim_status status = BRIM_OK;
    if (ship->consumer != NULL) {
        status = brim__queue_of(&ship->device, ship->consumer, &queue);
        if (status == BRIM_OK) {
            status = brim__queue_wait(&queue, &berth->copied);
        }
    }
    return status;
}

void brim__ship_take_back(brim_loader *loader, struct brim__slot *berth, void *handle) {
    struct brim__ship *ship = loader->ship;
    struct brim__queue queue;
    brim_status status = BRIM_OK;
    if (handle != NULL) {
        status = brim__queue_of(&ship->device, handle, &queue);
        if (status == BRIM_OK) {
            status = brim__queue_record(&queue, &berth->released);
        }
        if (status != BRIM_OK) {
            (void)brim__event_wait(&ship->device, &berth->copied); /* nobody else has, perhaps */
        }
    }
    brim__lock(&loader->mutex);
    loader->lent--;
    const bool closed = loader->closing;
    if (status != BRIM_OK && !closed) {
        /* Nobody can say when its reader is done, so it is not filled again. The driver gives
         * memory back only after what uses it. */
        give_up(loader, berth);
    } else if (!closed) {
        berth->state = berth->released.handle != NULL ? BRIM__SLOT_LEAVING : BRIM__SLOT_FREE;
        atomic_store(&loader->polls, true);
    }
    if (!closed) {
        brim__beyond_return(loader);
    }
    atomic_store(&loader->wants, !closed);
    brim__unlock(&loader->mutex);
    if (closed) {
        /* the thread that closes may not have come to brim__ship_close yet, nor the copy to its
         * end */
        (void)brim__event_wait(&ship->device, &berth->copied);
        (void)brim__event_wait(&ship->device, &berth->released);
        brim__lock(&loader->mutex);
        brim__berth_free(loader, berth);
        brim__unlock(&loader->mutex);
    } else {
        brim__pool_wake(loader->runtime);
    }
    brim__loader_unref(loader);
}

/* ------------------------------------------------------------- giving way */

void brim__ship_await(brim_loader *loader) {
    brim__wait(&loader->ready, &loader->mutex, brim__now() + BRIM__POLL_NS);
    brim__ship_settle(loader);
}

/* A batch that could not be copied is shipped again before any other. */
static bool is_shipped_again(const brim_loader *loader) {
    bool again = false;
    for (uint32_t i = 0; i < loader->plan->slot_cap; i++) {
        const struct brim__slot *slot = &loader->slot[i];
        again |= slot->state == BRIM__SLOT_READY && slot->ticket < loader->ship->ticket;
    }
    return again;
}

static uint32_t count_free(const brim_loader *loader) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < loader->plan->berth_cap; i++) {
        count += loader->ship->berth[i].state == BRIM__SLOT_FREE;
    }
    return count;
}

/* The berth to give up next: a free one, else the one furthest ahead. What a sequencer
 * has made is kept, and so is a berth for what it must ship again: the others may all hold
 * batches that come after that one. */
static struct brim__slot *find_victim(brim_loader *loader) {
    struct brim__ship *ship = loader->ship;
    struct brim__slot *victim = brim__slot_find_free(ship->berth, loader->plan->berth_cap);
    if (loader->sequencer != NULL) {
        return count_free(loader) == 1 && is_shipped_again(loader) ? NULL : victim;
    }
    return victim != NULL || ship->ticket == 0
               ? victim
               : find_ready(ship->berth, loader->plan->berth_cap, ship->ticket - 1);
}

void brim__ship_recall(brim_loader *loader) {
    for (uint32_t i = 0; i < loader->ring_cap; i++) {
        const struct brim__slot *slot = &loader->ring[i];
        if ((slot->state == BRIM__SLOT_READY || slot->state == BRIM__SLOT_FILLING) &&
            !slot->abandoned && slot->ticket == loader->ship->ticket) {
            take_back(loader, slot);
            return;
        }
    }
}

uint64_t brim__ship_revoke(brim_loader *loader, brim_memory kind, uint64_t wanted) {
    struct brim__ship *ship = loader->ship;
    uint64_t freed = 0;
    while (ship->running) {
        brim__wait(&loader->ready, &loader->mutex, UINT64_MAX);
    }
    brim__ship_settle(loader);
    while (freed < wanted && ship->berth_count > brim__berths_firm(loader)) {
        struct brim__slot *victim = find_victim(loader);
        if (victim == NULL) {
            break; /* all are lent, or their readers are not done: nobody waits for these */
        }
        bool over;
        if (poll(ship, &victim->copied, &over) == BRIM_STATUS_TIMEOUT) {
            brim__ship_await(loader); /* the memory is being written */
            continue;
        }
        if (victim->state == BRIM__SLOT_READY) {
            take_back(loader, victim);
            brim__slot_free(victim);
        }
        freed += kind == BRIM_MEMORY_HOST ? victim->pages.bytes : loader->plan->landing.slot_bytes;
        give_up(loader, victim);
    }
    return freed;
}

/* ---------------------------------------------------------------- checking */

void brim__ship_check(const brim_loader *loader) {
    uint32_t mapped = 0, lent = 0, firm = 0;
    for (uint32_t i = 0; i < loader->plan->berth_cap; i++) {
        const struct brim__slot *berth = &loader->ship->berth[i];
        mapped += berth->state != BRIM__SLOT_EMPTY;
        lent += berth->state == BRIM__SLOT_LENT;
        firm += berth->state != BRIM__SLOT_EMPTY && !berth->elastic;
    }
    assert(mapped == loader->ship->berth_count && lent == loader->lent &&
           lent <= loader->hold + loader->beyond);
    assert(loader->beyond > 0 || firm <= loader->plan->info.minimum_device_slots);
    (void)mapped, (void)lent, (void)firm;
}

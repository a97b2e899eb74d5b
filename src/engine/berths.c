/*
 * berths.c: the memory of a loader that delivers on a device: berths, page-locked slots,
 * and what all of them share.
 */
#include "engine/ship.h"

/* --------------------------------------------------------------- the berths */

static void give_berth(brim_loader *loader, struct brim__slot *berth) {
    const struct brim__landing *landing = &loader->plan->landing;
    struct brim__device *device = &loader->ship->device;
    brim__event_free(device, &berth->copied);
    brim__event_free(device, &berth->released);
    brim__device_give(device, &berth->memory);
    if (berth->elastic) {
        brim__budget_return(loader->budget, landing->kind, landing->slot_bytes);
    } else {
        brim_budget_uncharge(loader->budget, landing->kind, landing->slot_bytes);
    }
    brim__pages_free(&berth->pages);
}

/* Memory of the device that is charged already. What others hold elastically gives way also
 * where the driver has less than the budget; elastic memory is not worth that. */
static brim_status take_memory(brim_loader *loader, uint64_t bytes, bool elastic,
                               struct brim__device_memory *memory) {
    struct brim__device *device = &loader->ship->device;
    brim_status status = brim__device_take(device, bytes, memory);
    if (status == BRIM_STATUS_MEMORY && !elastic &&
        brim__budget_revoke(loader->runtime->budget, loader->plan->landing.kind, bytes) > 0) {
        status = brim__device_take(device, bytes, memory);
    }
    return status;
}

/* No lock is held: firm memory may make others give way. */
static brim_status take_berth(brim_loader *loader, struct brim__slot *berth, bool elastic) {
    const struct brim__landing *landing = &loader->plan->landing;
    const uint64_t bytes = landing->slot_bytes;
    brim_status status = BRIM_OK;
    if (!elastic) {
        status = brim_budget_charge(loader->budget, landing->kind, bytes);
    } else if (!brim__budget_try(loader->budget, landing->kind, bytes)) {
        status = BRIM_STATUS_BUDGET;
    }
    if (status != BRIM_OK) {
        return status;
    }
    status = take_memory(loader, bytes, elastic, &berth->memory);
    if (status == BRIM_OK) {
        status =
            brim__pages_new(&berth->pages, loader->budget, landing->tail_bytes, elastic, false);
    }
    if (status != BRIM_OK) {
        give_berth(loader, berth);
    }
    return status;
}

void brim__berth_free(brim_loader *loader, struct brim__slot *berth) {
    give_berth(loader, berth);
    berth->state = BRIM__SLOT_EMPTY;
}

/* Mutex held: one that has no memory, if more are planned. */
static struct brim__slot *find_empty(brim_loader *loader) {
    struct brim__ship *ship = loader->ship;
    if (ship->berth_count >= loader->plan->info.device_slots) {
        return NULL;
    }
    for (uint32_t i = 0; i < loader->plan->berth_cap; i++) {
        if (ship->berth[i].state == BRIM__SLOT_EMPTY) {
            return &ship->berth[i];
        }
    }
    return NULL;
}

/* Nobody can take the berth's memory back from now on. */
static void firm_up(brim_loader *loader, struct brim__slot *berth) {
    const struct brim__landing *landing = &loader->plan->landing;
    if (berth->elastic) {
        brim__budget_firm_up(loader->budget, landing->kind, landing->slot_bytes);
        berth->elastic = false;
    }
    if (berth->pages.elastic) {
        brim__budget_firm_up(loader->budget, BRIM_MEMORY_HOST, berth->pages.bytes);
        berth->pages.elastic = false;
    }
}

brim_status brim__berth_grow(brim_loader *loader) {
    struct brim__ship *ship = loader->ship;
    struct brim__slot *berth = find_empty(loader);
    if (berth == NULL || loader->revoking || loader->idle) {
        return BRIM_STATUS_TIMEOUT;
    }
    berth->state = BRIM__SLOT_FILLING;
    berth->abandoned = true; /* for no ticket */
    berth->elastic = true;
    ship->berth_count++;
    ship->making = true;
    brim__unlock(&loader->mutex);
    const brim_status status = take_berth(loader, berth, true);
    brim__lock(&loader->mutex);
    ship->making = false;
    ship->refused = status != BRIM_OK;
    if (status != BRIM_OK) {
        berth->state = BRIM__SLOT_EMPTY;
        ship->berth_count--;
        return status;
    }
    if (ship->berth_count <= loader->plan->info.minimum_device_slots) {
        firm_up(loader, berth);
    }
    brim__slot_free(berth);
    return BRIM_OK;
}

void brim__ship_grow(brim_loader *loader) {
    loader->ship->running = true; /* who revokes waits for a berth in the making */
    while (brim__berth_grow(loader) == BRIM_OK) {
    }
    loader->ship->running = false;
    brim__loader_event(loader);
    brim__broadcast(&loader->ready);
}

/* ------------------------------------------------------------ lent beyond hold */

/* Not one in the making, which another thread is at. */
static bool is_there(const struct brim__slot *berth) {
    return berth->state != BRIM__SLOT_EMPTY &&
           !(berth->state == BRIM__SLOT_FILLING && berth->abandoned);
}

uint32_t brim__berths_firm(const brim_loader *loader) {
    uint32_t firm = 0;
    for (uint32_t i = 0; i < loader->plan->berth_cap; i++) {
        const struct brim__slot *berth = &loader->ship->berth[i];
        firm += berth->state != BRIM__SLOT_EMPTY && !berth->elastic;
    }
    return firm;
}

static struct brim__slot *find_elastic(brim_loader *loader) {
    for (uint32_t i = 0; i < loader->plan->berth_cap; i++) {
        struct brim__slot *berth = &loader->ship->berth[i];
        if (is_there(berth) && berth->elastic) {
            return berth;
        }
    }
    return NULL;
}

brim_status brim__berth_firm(brim_loader *loader) {
    struct brim__ship *ship = loader->ship;
    struct brim__slot *berth = find_elastic(loader);
    if (berth != NULL) {
        firm_up(loader, berth);
        return BRIM_OK;
    }
    struct brim__slot made = { .elastic = false };
    brim_status status = BRIM_OK;
    if (ship->berth_count < loader->plan->berth_cap) {
        brim__unlock(&loader->mutex); /* in_call keeps the loader; others give way */
        status = take_berth(loader, &made, false);
        brim__lock(&loader->mutex);
    }
    if (status != BRIM_OK) {
        return status;
    }
    for (uint32_t i = 0; made.memory.handle != NULL && i < loader->plan->berth_cap; i++) {
        berth = &ship->berth[i];
        if (berth->state == BRIM__SLOT_EMPTY) {
            berth->memory = made.memory;
            berth->pages = made.pages;
            berth->elastic = false;
            brim__slot_free(berth);
            ship->berth_count++;
            return BRIM_OK;
        }
    }
    if (made.memory.handle != NULL) { /* others have taken all records meanwhile, elastically */
        give_berth(loader, &made);
    }
    berth = find_elastic(loader);
    if (berth == NULL) {
        return brim__fail(BRIM_STATUS_BUDGET,
                          "all of the %u slots that the loader may have on the "
                          "device are held",
                          loader->plan->berth_cap);
    }
    firm_up(loader, berth);
    return BRIM_OK;
}

void brim__berth_soften(brim_loader *loader) {
    const struct brim__landing *landing = &loader->plan->landing;
    for (uint32_t i = 0; i < loader->plan->berth_cap; i++) {
        struct brim__slot *berth = &loader->ship->berth[i];
        if (is_there(berth) && !berth->elastic) {
            brim__budget_soften(loader->budget, landing->kind, landing->slot_bytes);
            brim__budget_soften(loader->budget, BRIM_MEMORY_HOST, berth->pages.bytes);
            berth->elastic = berth->pages.elastic = true;
            return;
        }
    }
}

/* ------------------------------------------------------- opening and closing */

brim_status brim__slot_pin(brim_loader *loader, struct brim__slot *slot, bool elastic) {
    brim_status status = BRIM_OK;
    if (!elastic) {
        status = brim_budget_charge(loader->budget, BRIM_MEMORY_PINNED, slot->pages.bytes);
    } else if (!brim__budget_try(loader->budget, BRIM_MEMORY_PINNED, slot->pages.bytes)) {
        status = BRIM_STATUS_BUDGET;
    }
    if (status != BRIM_OK) {
        return status;
    }
    slot->pinned = true;
    slot->pin = NULL;
    status =
        brim__device_pin(&loader->ship->device, slot->pages.memory, slot->pages.bytes, &slot->pin);
    if (status != BRIM_OK) {
        slot->pinned = false;
        if (elastic) {
            brim__budget_return(loader->budget, BRIM_MEMORY_PINNED, slot->pages.bytes);
        } else {
            brim_budget_uncharge(loader->budget, BRIM_MEMORY_PINNED, slot->pages.bytes);
        }
    }
    return status;
}

void brim__slot_unpin(brim_loader *loader, struct brim__slot *slot) {
    if (!slot->pinned) {
        return;
    }
    brim__device_unpin(&loader->ship->device, slot->pages.memory, slot->pin);
    if (slot->pages.elastic) {
        brim__budget_return(loader->budget, BRIM_MEMORY_PINNED, slot->pages.bytes);
    } else {
        brim_budget_uncharge(loader->budget, BRIM_MEMORY_PINNED, slot->pages.bytes);
    }
    slot->pinned = false;
}

/* The tables of conversions, through the first slot's memory. */
static brim_status send_tables(brim_loader *loader) {
    const brim_plan *plan = loader->plan;
    struct brim__ship *ship = loader->ship;
    uint8_t *memory = loader->slot[0].pages.memory;
    brim_status status = BRIM_OK;
    for (uint32_t f = 0; status == BRIM_OK && f < plan->delivered.output_count; f++) {
        const struct brim__landing_field *field = &plan->landing.field[f];
        if (!field->converts) {
            continue;
        }
        /* channel by channel: a slot may be smaller than a table */
        struct brim__landing_field one = *field;
        float table[256];
        one.channels = 1;
        for (uint32_t c = 0; status == BRIM_OK && c < field->channels; c++) {
            const uint64_t bytes = 256 * (uint64_t)field->lookup.element;
            struct brim__event sent = { 0 };
            one.scale = field->scale != NULL ? &field->scale[c] : NULL;
            one.bias = field->bias != NULL ? &field->bias[c] : NULL;
            status = brim__landing_table(&one, table);
            memcpy(memory, table, bytes); /* a slot has a page at least */
            if (status == BRIM_OK) {
                status = brim__queue_write(&ship->queue, &ship->fixed, field->table + c * bytes,
                                           memory, bytes);
            }
            if (status == BRIM_OK) {
                status = brim__queue_record(&ship->queue, &sent);
            }
            if (status == BRIM_OK) {
                status = brim__event_wait(&ship->device, &sent);
            }
            brim__event_free(&ship->device, &sent);
        }
    }
    return status;
}

brim_status brim__ship_open(brim_loader *loader) {
    struct brim__ship *ship = loader->ship;
    const struct brim__landing *landing = &loader->plan->landing;
    brim_status status = brim__queue_new(&ship->device, &ship->queue);
    if (status == BRIM_OK && landing->fixed_bytes > 0) { /* kernels work with what is there */
        status = brim__device_prepare(&ship->device);
    }
    if (status == BRIM_OK && landing->fixed_bytes > 0) {
        status = brim_budget_charge(loader->budget, landing->kind, landing->fixed_bytes);
        if (status == BRIM_OK) {
            status = take_memory(loader, landing->fixed_bytes, false, &ship->fixed);
            if (status != BRIM_OK) {
                brim_budget_uncharge(loader->budget, landing->kind, landing->fixed_bytes);
            } else {
                status = send_tables(loader);
            }
        }
    }
    for (uint32_t i = 0; status == BRIM_OK && i < loader->plan->info.minimum_device_slots; i++) {
        status = take_berth(loader, &ship->berth[i], false);
        if (status == BRIM_OK) {
            brim__slot_free(&ship->berth[i]);
            ship->berth_count++;
        }
    }
    if (status == BRIM_STATUS_MEMORY) {
        char holders[256], detail[BRIM__DETAIL_BYTES];
        brim__budget_holders(loader->runtime->budget, landing->kind, holders, sizeof(holders));
        brim__copy_text(detail, sizeof(detail), brim_detail());
        status = brim__fail(BRIM_STATUS_MEMORY,
                            "%.500s; brim holds there: %s; close one of them, lower "
                            "what others take of the device, or make batches smaller",
                            detail, holders[0] != '\0' ? holders : "nothing");
    }
    return status;
}

/* Mutex held, released meanwhile: a berth whose reader is not done, NULL: none is left. */
static bool await_readers(brim_loader *loader) {
    struct brim__ship *ship = loader->ship;
    for (uint32_t i = 0; i < loader->plan->berth_cap; i++) {
        struct brim__slot *berth = &ship->berth[i];
        if (berth->state == BRIM__SLOT_LEAVING) {
            brim__unlock(&loader->mutex);
            (void)brim__event_wait(&ship->device, &berth->released); /* it has ended, well or not */
            brim__lock(&loader->mutex);
            brim__event_free(&ship->device, &berth->released);
            berth->state = BRIM__SLOT_FREE;
            return true;
        }
    }
    return false;
}

void brim__ship_close(brim_loader *loader) {
    struct brim__ship *ship = loader->ship;
    const struct brim__landing *landing = &loader->plan->landing;
    brim__queue_free(&ship->queue);
    brim__lock(&loader->mutex);
    while (await_readers(loader)) {
    }
    for (uint32_t i = 0; i < loader->plan->slot_cap; i++) {
        brim__event_free(&ship->device, &loader->slot[i].copied);
    }
    for (uint32_t i = 0; i < loader->plan->berth_cap; i++) {
        struct brim__slot *berth = &ship->berth[i];
        if (berth->state == BRIM__SLOT_LENT) {
            firm_up(loader, berth);
        } else if (berth->state != BRIM__SLOT_EMPTY) {
            brim__berth_free(loader, berth);
        }
    }
    if (ship->fixed.handle != NULL) {
        brim__device_give(&ship->device, &ship->fixed);
        brim_budget_uncharge(loader->budget, landing->kind, landing->fixed_bytes);
    }
    brim__unlock(&loader->mutex);
}

void brim__ship_free(brim_loader *loader) {
    brim__device_close(&loader->ship->device);
}

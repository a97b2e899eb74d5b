/*
 * slot_memory.c: the memory of one slot, of each kind of ring.
 *
 *     host      pages
 *     staging   pages that the driver has page-locked
 *     device    memory of the device, and pages for what of a batch stays on the host
 *
 * All of it is charged before it is taken. The mark `elastic` of the pages is that of the slot.
 */
#include "engine/loader.h"
#include "engine/upload.h"

uint64_t brim__ring_slot_bytes(const brim_loader *loader, const struct brim__ring *ring,
                               brim_memory kind) {
    const brim_plan *plan = loader->plan;
    if (ring->memory == BRIM__RING_DEVICE) {
        return kind == plan->on_device.kind ? plan->on_device.slot_bytes
               : kind == BRIM_MEMORY_HOST   ? plan->on_device.tail_bytes
                                            : 0;
    }
    const bool has = kind == BRIM_MEMORY_HOST ||
                     (kind == BRIM_MEMORY_PINNED && ring->memory == BRIM__RING_STAGING);
    return has ? ring->bytes : 0;
}

static brim_status charge(brim_loader *loader, brim_memory kind, uint64_t bytes, bool elastic) {
    if (!elastic) {
        return brim_budget_charge(loader->budget, kind, bytes);
    }
    return brim__budget_try(loader->budget, kind, bytes) ? BRIM_OK : BRIM_STATUS_BUDGET;
}

static void uncharge(brim_loader *loader, brim_memory kind, uint64_t bytes, bool elastic) {
    if (elastic) {
        brim__budget_return(loader->budget, kind, bytes);
    } else {
        brim_budget_uncharge(loader->budget, kind, bytes);
    }
}

/* ----------------------------------------------------------------- staging */

static brim_status pin(brim_loader *loader, struct brim__slot *slot, bool elastic) {
    struct brim__device_side *side = &slot->device;
    brim_status status = charge(loader, BRIM_MEMORY_PINNED, slot->pages.bytes, elastic);
    if (status != BRIM_OK) {
        return status;
    }
    status = brim__device_pin(&loader->uploader->device, slot->pages.memory, slot->pages.bytes,
                              &side->pin);
    side->pinned = status == BRIM_OK;
    if (status != BRIM_OK) {
        uncharge(loader, BRIM_MEMORY_PINNED, slot->pages.bytes, elastic);
    }
    return status;
}

static void unpin(brim_loader *loader, struct brim__slot *slot) {
    struct brim__device_side *side = &slot->device;
    if (side->pinned) {
        brim__device_unpin(&loader->uploader->device, slot->pages.memory, side->pin);
        uncharge(loader, BRIM_MEMORY_PINNED, slot->pages.bytes, slot->pages.elastic);
        side->pinned = false;
        side->pin = NULL;
    }
}

/* --------------------------------------------------------------- on devices */

static void give(brim_loader *loader, struct brim__slot *slot, bool elastic) {
    const struct brim__device_layout *on_device = &loader->plan->on_device;
    struct brim__device *device = &loader->uploader->device;
    brim__event_free(device, &slot->device.ready);
    brim__event_free(device, &slot->device.left);
    brim__device_give(device, &slot->device.memory);
    uncharge(loader, on_device->kind, on_device->slot_bytes, elastic);
}

static brim_status map_there(brim_loader *loader, struct brim__slot *slot, bool elastic) {
    const struct brim__device_layout *on_device = &loader->plan->on_device;
    brim_status status = charge(loader, on_device->kind, on_device->slot_bytes, elastic);
    if (status != BRIM_OK) {
        return status;
    }
    status = brim__upload_take_memory(loader, on_device->slot_bytes, elastic, &slot->device.memory);
    if (status == BRIM_OK) {
        status =
            brim__pages_new(&slot->pages, loader->budget, on_device->tail_bytes, elastic, false);
    }
    if (status != BRIM_OK) {
        give(loader, slot, elastic);
    }
    return status;
}

void brim__ring_settle(brim_loader *loader, const struct brim__ring *ring) {
    if (ring->memory == BRIM__RING_DEVICE) {
        brim__upload_stop(loader);
    }
}

bool brim__slot_is_written(brim_loader *loader, const struct brim__slot *slot) {
    return slot->ring->memory == BRIM__RING_DEVICE && brim__upload_is_writing(loader, slot);
}

void brim__ring_await(brim_loader *loader, const struct brim__ring *ring) {
    if (ring->memory == BRIM__RING_HOST) {
        brim__loader_wait(loader, UINT64_MAX);
    } else {
        brim__upload_await(loader);
    }
}

/* --------------------------------------------------------------------- all */

brim_status brim__slot_map(brim_loader *loader, struct brim__slot *slot, bool elastic) {
    const struct brim__ring *ring = slot->ring;
    if (ring->memory == BRIM__RING_DEVICE) {
        return map_there(loader, slot, elastic);
    }
    brim_status status = brim__loader_pages(loader, &slot->pages, ring->bytes, elastic);
    if (status == BRIM_OK && ring->memory == BRIM__RING_STAGING) {
        status = pin(loader, slot, elastic);
        if (status != BRIM_OK) {
            brim__pages_free(&slot->pages);
        }
    }
    return status;
}

void brim__slot_unmap(brim_loader *loader, struct brim__slot *slot) {
    if (slot->ring->memory == BRIM__RING_DEVICE) {
        give(loader, slot, slot->pages.elastic);
    } else {
        unpin(loader, slot);
    }
    brim__pages_free(&slot->pages);
    slot->abandoned = slot->inspected = false;
    brim__error_clear(&slot->error);
    slot->state = BRIM__SLOT_EMPTY; /* at closing from any other */
}

void brim__slot_soften(brim_loader *loader, struct brim__slot *slot) {
    const struct brim__device_layout *on_device = &loader->plan->on_device;
    assert(slot->ring->memory != BRIM__RING_STAGING); /* no batch is lent from there */
    if (slot->ring->memory == BRIM__RING_DEVICE) {
        brim__budget_soften(loader->budget, on_device->kind, on_device->slot_bytes);
    }
    brim__budget_soften(loader->budget, BRIM_MEMORY_HOST, slot->pages.bytes);
    slot->pages.elastic = true;
}

void brim__slot_firm_up(brim_loader *loader, struct brim__slot *slot) {
    const struct brim__device_layout *on_device = &loader->plan->on_device;
    if (!slot->pages.elastic) {
        return;
    }
    if (slot->ring->memory == BRIM__RING_DEVICE) {
        brim__budget_firm_up(loader->budget, on_device->kind, on_device->slot_bytes);
    }
    if (slot->ring->memory == BRIM__RING_STAGING) {
        brim__budget_firm_up(loader->budget, BRIM_MEMORY_PINNED, slot->pages.bytes);
    }
    brim__budget_firm_up(loader->budget, BRIM_MEMORY_HOST, slot->pages.bytes);
    slot->pages.elastic = false;
}

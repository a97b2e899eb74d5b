/*
 * beyond.c: batches lent beyond `hold`, in slots above the minimum.
 *
 * The minimum has a slot for each of `hold` batches. A loader that is opened with `beyond` lends
 * more, and has a slot for each of these firm as long as it is lent:
 *
 *     firm slots = max(minimum, lent), and lent + 1 while `next` makes another one
 *
 * A slot that is elastic already becomes firm, which cannot fail; else one is charged, and others
 * give way for it as for any firm charge. So what is lent is never asked back, and what is
 * elastic can always be given up. On a device these slots are those there.
 */
#include "engine/loader.h"
#include "engine/ship.h"

/* Mutex held: an elastic slot is firm from now on. False: there is none. */
static bool firm_up_slot(brim_loader *loader) {
    for (uint32_t i = 0; i < loader->plan->slot_cap; i++) {
        struct brim__slot *slot = &loader->slot[i];
        if (slot->state != BRIM__SLOT_EMPTY && slot->pages.elastic) {
            brim__budget_firm_up(loader->budget, BRIM_MEMORY_HOST, slot->pages.bytes);
            slot->pages.elastic = false;
            return true;
        }
    }
    return false;
}

/* Mutex held: a firm slot is elastic from now on; which of them does not matter. */
static void soften_slot(brim_loader *loader) {
    for (uint32_t i = 0; i < loader->plan->slot_cap; i++) {
        struct brim__slot *slot = &loader->slot[i];
        if (slot->state != BRIM__SLOT_EMPTY && !slot->pages.elastic) {
            brim__budget_soften(loader->budget, BRIM_MEMORY_HOST, slot->pages.bytes);
            slot->pages.elastic = true;
            return;
        }
    }
}

static brim_status no_record(const brim_loader *loader) {
    return brim__fail(BRIM_STATUS_BUDGET, "all of the %u slots that the loader may have are held",
                      loader->ship != NULL ? loader->plan->berth_cap : loader->plan->slot_cap);
}

/* Mutex held, released meanwhile: one firm slot more. */
static brim_status take_slot(brim_loader *loader) {
    struct brim__pages pages;
    if (firm_up_slot(loader)) {
        return BRIM_OK;
    }
    if (loader->slot_count == loader->plan->slot_cap) {
        return no_record(loader);
    }
    brim__unlock(&loader->mutex); /* in_call keeps the loader; others give way */
    const brim_status status =
        brim__loader_pages(loader, &pages, loader->plan->info.slot_bytes, false);
    brim__lock(&loader->mutex);
    if (status != BRIM_OK) {
        return status;
    }
    for (uint32_t i = 0; i < loader->plan->slot_cap; i++) {
        struct brim__slot *slot = &loader->slot[i];
        if (slot->state == BRIM__SLOT_EMPTY) {
            slot->pages = pages;
            brim__slot_free(slot);
            loader->slot_count++;
            brim__loader_note_lacking(loader);
            return BRIM_OK;
        }
    }
    brim__pages_free(&pages); /* workers have taken all records meanwhile, elastically */
    return firm_up_slot(loader) ? BRIM_OK : no_record(loader);
}

/* Of the slots that are lent from. */
static uint32_t count_firm(const brim_loader *loader) {
    return loader->ship != NULL ? brim__berths_firm(loader) : brim__slots_firm(loader);
}

uint32_t brim__slots_firm(const brim_loader *loader) {
    uint32_t firm = 0;
    for (uint32_t i = 0; i < loader->plan->slot_cap; i++) {
        const struct brim__slot *slot = &loader->slot[i];
        firm += slot->state != BRIM__SLOT_EMPTY && !slot->pages.elastic;
    }
    return firm;
}

brim_status brim__beyond_take(brim_loader *loader) {
    brim_status status = BRIM_OK;
    while (status == BRIM_OK && count_firm(loader) <= loader->lent) {
        status = loader->ship != NULL ? brim__berth_firm(loader) : take_slot(loader);
    }
    return status;
}

void brim__beyond_return(brim_loader *loader) {
    if (loader->beyond == 0) {
        return;
    }
    const brim_plan_info *info = &loader->plan->info;
    const uint32_t least = loader->ship != NULL ? info->minimum_device_slots : info->minimum_slots;
    /* a `next` that is under way may count on one more */
    const uint64_t needed = brim__max(least, loader->lent + loader->in_call);
    for (uint32_t firm = count_firm(loader); firm > needed; firm--) {
        if (loader->ship != NULL) {
            brim__berth_soften(loader);
        } else {
            soften_slot(loader);
        }
    }
}

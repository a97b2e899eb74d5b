/*
 * upload_memory.c: the memory of a loader on a device in addition to its slots: a queue, and memory
 * that all batches share.
 */
#include "engine/upload.h"

/* For firm memory, what others hold elastically gives way also where the driver has less than the
 * budget; for elastic memory it does not. */
brim_status brim__upload_take_memory(brim_loader *loader, uint64_t bytes, bool elastic,
                                     struct brim__device_memory *memory) {
    struct brim__device *device = &loader->uploader->device;
    brim_status status = brim__device_take(device, bytes, memory);
    if (status == BRIM_STATUS_MEMORY && !elastic &&
        brim__budget_revoke(loader->runtime->budget, loader->plan->on_device.kind, bytes) > 0) {
        status = brim__device_take(device, bytes, memory);
    }
    return status;
}

/* The tables of conversions, through the first staging slot's memory. */
static brim_status send_tables(brim_loader *loader) {
    const brim_plan *plan = loader->plan;
    struct brim__uploader *uploader = loader->uploader;
    uint8_t *memory = loader->batches->slot[0].pages.memory;
    brim_status status = BRIM_OK;
    for (uint32_t f = 0; status == BRIM_OK && f < plan->delivered.output_count; f++) {
        const struct brim__device_field *field = &plan->on_device.field[f];
        if (!field->converts) {
            continue;
        }
        /* channel by channel: a slot may be smaller than a table */
        struct brim__device_field one = *field;
        float table[256];
        one.channels = 1;
        for (uint32_t c = 0; status == BRIM_OK && c < field->channels; c++) {
            const uint64_t bytes = 256 * (uint64_t)field->lookup.element;
            struct brim__event sent = { 0 };
            one.scale = field->scale != NULL ? &field->scale[c] : NULL;
            one.bias = field->bias != NULL ? &field->bias[c] : NULL;
            status = brim__device_table(&one, table);
            memcpy(memory, table, bytes); /* a slot has a page at least */
            if (status == BRIM_OK) {
                status = brim__queue_write(&uploader->queue, &uploader->fixed,
                                           field->table + c * bytes, memory, bytes);
            }
            if (status == BRIM_OK) {
                status = brim__queue_record(&uploader->queue, &sent);
            }
            if (status == BRIM_OK) {
                status = brim__event_wait(&uploader->device, &sent);
            }
            brim__event_free(&uploader->device, &sent);
        }
    }
    return status;
}

static brim_status take_fixed(brim_loader *loader) {
    struct brim__uploader *uploader = loader->uploader;
    const struct brim__device_layout *on_device = &loader->plan->on_device;
    brim_status status = brim__device_prepare(&uploader->device); /* kernels work with it */
    if (status != BRIM_OK) {
        return status;
    }
    status = brim_budget_charge(loader->budget, on_device->kind, on_device->fixed_bytes);
    if (status != BRIM_OK) {
        return status;
    }
    status = brim__upload_take_memory(loader, on_device->fixed_bytes, false, &uploader->fixed);
    if (status != BRIM_OK) {
        brim_budget_uncharge(loader->budget, on_device->kind, on_device->fixed_bytes);
        return status;
    }
    return send_tables(loader);
}

brim_status brim__upload_open(brim_loader *loader) {
    struct brim__uploader *uploader = loader->uploader;
    const brim_status status = brim__queue_new(&uploader->device, &uploader->queue);
    return status == BRIM_OK && loader->plan->on_device.fixed_bytes > 0 ? take_fixed(loader)
                                                                        : status;
}

brim_status brim__upload_explain(brim_loader *loader) {
    char holders[256], detail[BRIM__DETAIL_BYTES];
    brim__budget_holders(loader->runtime->budget, loader->plan->on_device.kind, holders,
                         sizeof holders, NULL);
    brim__copy_text(detail, sizeof detail, brim_detail());
    return brim__fail(BRIM_STATUS_MEMORY,
                      "%.500s; brim holds there: %s; close one of them, give others less of the "
                      "device, or make batches smaller",
                      detail, holders[0] != '\0' ? holders : "nothing");
}

/* Mutex held, released meanwhile: waits for the reader of one device slot; false: none is
 * left. */
static bool await_reader(brim_loader *loader) {
    struct brim__uploader *uploader = loader->uploader;
    for (uint32_t i = 0; i < loader->last->cap; i++) {
        struct brim__slot *slot = &loader->last->slot[i];
        if (slot->state == BRIM__SLOT_LEAVING) {
            brim__unlock(&loader->mutex);
            /* it has ended, well or not */
            (void)brim__event_wait(&uploader->device, &slot->device.left);
            brim__lock(&loader->mutex);
            brim__event_free(&uploader->device, &slot->device.left);
            brim__slot_set(slot, BRIM__SLOT_FREE);
            return true;
        }
    }
    return false;
}

void brim__upload_close(brim_loader *loader) {
    struct brim__uploader *uploader = loader->uploader;
    const struct brim__device_layout *on_device = &loader->plan->on_device;
    const struct brim__ring *here = loader->batches;
    brim__queue_free(&uploader->queue);
    brim__lock(&loader->mutex);
    while (await_reader(loader)) {
    }
    for (uint32_t i = 0; i < here->cap; i++) {
        brim__event_free(&uploader->device, &here->slot[i].device.left);
    }
    if (uploader->fixed.handle != NULL) {
        brim__device_give(&uploader->device, &uploader->fixed);
        brim_budget_uncharge(loader->budget, on_device->kind, on_device->fixed_bytes);
    }
    brim__unlock(&loader->mutex);
}

void brim__upload_free(brim_loader *loader) {
    brim__device_close(&loader->uploader->device);
}

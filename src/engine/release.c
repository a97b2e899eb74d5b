/*
 * release.c: releasing a batch.
 *
 * On the host its slot is free at once. On a device it is free when what the consumer's queue
 * holds at that moment is done. After the loader was closed, the slot's memory goes with the
 * batch, and so does the loader with the last of them.
 */
#include "engine/chain.h"
#include "engine/upload.h"

static void release_copy(brim_batch *batch) {
    brim_loader *loader = batch->loader;
    struct brim__pages pages = batch->pages; /* holds the batch */
    brim__pages_free(&pages);
    brim__loader_unref(loader);
}

/* Waits until what `handle` holds now is done. If that cannot be found out, it does not wait: the
 * driver gives memory back only after what uses it. */
static void await_queue(struct brim__device *device, void *handle) {
    struct brim__queue queue;
    struct brim__event done = { 0 };
    if (handle != NULL && brim__queue_of(device, handle, &queue) == BRIM_OK &&
        brim__queue_record(&queue, &done) == BRIM_OK) {
        (void)brim__event_wait(device, &done);
    }
    brim__event_free(device, &done);
}

static void release_copy_there(brim_batch *batch, void *handle) {
    brim_loader *loader = batch->loader;
    struct brim__device_memory memory = batch->memory;
    await_queue(&loader->uploader->device, handle);
    brim__device_give(&loader->uploader->device, &memory);
    brim_budget_uncharge(loader->budget, loader->plan->on_device.kind,
                         loader->plan->on_device.slot_bytes);
    release_copy(batch);
}

/* Puts a mark into the queue in which the batch was used: when that is done, nothing reads the slot
 * any more. A failure: it is unknown when that is. */
static brim_status mark_reader(brim_loader *loader, struct brim__slot *slot, void *handle) {
    struct brim__device *device = &loader->uploader->device;
    struct brim__queue queue;
    if (handle == NULL) {
        return BRIM_OK;
    }
    brim_status status = brim__queue_of(device, handle, &queue);
    if (status == BRIM_OK) {
        status = brim__queue_record(&queue, &slot->device.left);
    }
    if (status != BRIM_OK) { /* perhaps nothing else has waited for the copy */
        (void)brim__event_wait(device, &slot->device.ready);
    }
    return status;
}

/* After the loader was closed: the memory goes with the batch. The thread that closes may not have
 * come to brim__upload_close yet, nor the copy to its end. */
static void give_up_closed(brim_loader *loader, struct brim__slot *slot, bool there) {
    if (there) {
        (void)brim__event_wait(&loader->uploader->device, &slot->device.ready);
        (void)brim__event_wait(&loader->uploader->device, &slot->device.left);
    }
    brim__lock(&loader->mutex);
    brim__slot_free(slot);
    brim__ring_give_up(loader, slot);
    brim__unlock(&loader->mutex);
}

static void release_slot(brim_loader *loader, struct brim__slot *slot, bool there, void *handle) {
    const brim_status status = there ? mark_reader(loader, slot, handle) : BRIM_OK;
    brim__lock(&loader->mutex);
    const bool closed = loader->closing;
    loader->lent--;
    if (!closed) {
        if (there) {
            brim__upload_released(loader, slot);
        }
        if (status != BRIM_OK) {
            /* lost: it is not filled again, and the driver gives memory back only after what uses
             * it */
            brim__ring_give_up(loader, slot);
        } else if (there && slot->device.left.handle != NULL) {
            brim__slot_set(slot, BRIM__SLOT_LEAVING);
            atomic_store(&loader->polls, true);
        } else {
            brim__slot_free(slot);
        }
        brim__lend_end(loader);
        brim__loader_want(loader);
    }
    brim__loader_unlock(loader);
    if (closed) {
        give_up_closed(loader, slot, there);
    } else {
        brim__pool_wake(loader->runtime);
    }
    brim__loader_unref(loader);
}

void brim_batch_release_after(brim_batch *batch, void *handle) {
    if (batch == NULL || brim__runtime_forked(batch->loader->runtime)) {
        return;
    }
    brim_loader *loader = batch->loader;
    const bool there = loader->uploader != NULL;
    if (batch->slot == NULL) {
        if (there) {
            release_copy_there(batch, handle);
        } else {
            release_copy(batch);
        }
    } else {
        release_slot(loader, batch->slot, there, handle);
    }
}

void brim_batch_release(brim_batch *batch) {
    if (batch != NULL) {
        const struct brim__uploader *uploader = batch->loader->uploader;
        brim_batch_release_after(batch, uploader != NULL ? uploader->consumer : NULL);
    }
}

/*
 * device_batch.c: batches that lie on a device: waiting for them, reading them back,
 * copying and releasing them.
 */
#include "engine/ship.h"

static brim_status check(const brim_batch *batch) {
    return brim__runtime_forked(batch->loader->runtime) ? brim__forked() : BRIM_OK;
}

/* The event after which a batch is there; a copy is there when it is handed out. */
static const struct brim__event *there(const brim_batch *batch) {
    static const struct brim__event none;
    return batch->slot != NULL ? &batch->slot->copied : &none;
}

/* What has been found out of its copy since it was lent, told once: asked again, its own event
 * is what counts. */
static brim_status is_good(const brim_batch *batch) {
    brim_status status = BRIM_OK;
    if (batch->slot != NULL) {
        brim__lock(&batch->loader->mutex);
        if (batch->slot->error != BRIM_OK) {
            status = brim__fail_kept(batch->slot->error, &batch->slot->kept);
            batch->slot->error = BRIM_OK;
        }
        brim__unlock(&batch->loader->mutex);
    }
    return status;
}

brim_status brim_batch_wait(const brim_batch *batch, void *handle) {
    struct brim__queue queue;
    brim_status status = check(batch);
    struct brim__ship *ship = batch->loader->ship;
    if (status != BRIM_OK || ship == NULL) {
        return status;
    }
    status = is_good(batch);
    if (status != BRIM_OK) {
        return status;
    }
    if (handle == NULL) {
        return brim__event_wait(&ship->device, there(batch));
    }
    status = brim__queue_of(&ship->device, handle, &queue);
    return status == BRIM_OK ? brim__queue_wait(&queue, there(batch)) : status;
}

/* A queue for one errand, behind what the batch waits for. */
static brim_status begin_errand(const brim_batch *batch, struct brim__queue *queue) {
    brim_status status = brim__queue_new(&batch->loader->ship->device, queue);
    if (status == BRIM_OK) {
        status = brim__queue_wait(queue, there(batch));
        if (status != BRIM_OK) {
            brim__queue_free(queue);
        }
    }
    return status;
}

/* Waits for it; status: how it went so far. */
static brim_status end_errand(const brim_batch *batch, struct brim__queue *queue,
                              brim_status status) {
    struct brim__device *device = &batch->loader->ship->device;
    struct brim__event done = { 0 };
    if (status == BRIM_OK) {
        status = brim__queue_record(queue, &done);
    }
    if (status == BRIM_OK) {
        status = brim__event_wait(device, &done);
    }
    brim__event_free(device, &done);
    brim__queue_free(queue);
    return status;
}

static struct brim__device_memory memory_of(const brim_batch *batch) {
    return batch->slot != NULL ? batch->slot->memory : batch->memory;
}

brim_status brim_batch_read(const brim_batch *batch, size_t index, void *data, uint64_t bytes) {
    brim_status status = check(batch);
    if (status != BRIM_OK) {
        return status;
    }
    const brim_field *field = brim_batch_field_at(batch, index);
    if (field == NULL || bytes < field->bytes) {
        return field == NULL ? brim__fail(BRIM_STATUS_INVALID, "field %zu: the batch has %u", index,
                                          batch->info.field_count)
                             : brim__fail(BRIM_STATUS_INVALID,
                                          "field '%s' has %llu bytes, and there is room for "
                                          "%llu",
                                          field->name, (unsigned long long)field->bytes,
                                          (unsigned long long)bytes);
    }
    /* rows of a padded field may lie apart */
    const uint64_t rows = (uint64_t)field->shape[0];
    const uint64_t apart = (uint64_t)field->strides[0];
    const bool close = field->strides[0] == 0 || rows == 0 || rows * apart == field->bytes;
    const uint64_t piece = close ? field->bytes : field->bytes / rows;
    if (field->bytes == 0) {
        return BRIM_OK;
    }
    struct brim__ship *ship = batch->loader->ship;
    if (ship == NULL) {
        for (uint64_t r = 0; r < (close ? 1 : rows); r++) {
            memcpy((uint8_t *)data + r * piece, (const uint8_t *)field->data + r * apart, piece);
        }
        return BRIM_OK;
    }
    const struct brim__device_memory memory = memory_of(batch);
    const uint64_t offset = batch->loader->plan->landing.field[index].offset;
    struct brim__queue queue;
    status = is_good(batch);
    if (status == BRIM_OK) {
        status = begin_errand(batch, &queue);
    }
    if (status != BRIM_OK) {
        return status;
    }
    for (uint64_t r = 0; status == BRIM_OK && r < (close ? 1 : rows); r++) {
        status = brim__queue_read(&queue, (uint8_t *)data + r * piece, &memory, offset + r * apart,
                                  piece);
    }
    return end_errand(batch, &queue, status);
}

brim_status brim__batch_copy_there(const brim_batch *batch, brim_batch **out) {
    brim_loader *loader = batch->loader;
    const brim_plan *plan = loader->plan;
    const struct brim__landing *landing = &plan->landing;
    const uint64_t tail = landing->tail_bytes;
    struct brim__device_memory memory = { 0 };
    struct brim__pages pages;
    struct brim__queue queue;
    brim_status status = check(batch);
    if (status == BRIM_OK) {
        status = is_good(batch);
    }
    if (status == BRIM_OK) {
        /* the record lies behind what stays on the host */
        status = brim__pages_new(&pages, loader->budget,
                                 tail + sizeof(brim_batch) +
                                     plan->delivered.output_count * sizeof(brim_field),
                                 false, false);
    }
    if (status != BRIM_OK) {
        return status;
    }
    status = brim_budget_charge(loader->budget, landing->kind, landing->slot_bytes);
    if (status != BRIM_OK) {
        goto no_charge;
    }
    status = brim__device_take(&loader->ship->device, landing->slot_bytes, &memory);
    if (status != BRIM_OK) {
        goto no_memory;
    }
    status = begin_errand(batch, &queue);
    if (status == BRIM_OK) {
        const struct brim__device_memory from = memory_of(batch);
        status = brim__queue_copy(&queue, &memory, 0, &from, 0, landing->slot_bytes);
        status = end_errand(batch, &queue, status);
    }
    if (status != BRIM_OK) {
        goto no_copy;
    }
    brim_batch *copy = (brim_batch *)(void *)(pages.memory + tail);
    *copy = *batch;
    copy->slot = NULL;
    copy->pages = pages;
    copy->memory = memory;
    copy->field = (brim_field *)(void *)(copy + 1);
    memcpy(pages.memory, batch->info.samples, batch->info.rows * sizeof(uint64_t));
    memcpy(pages.memory + landing->tail_valid, batch->info.valid, batch->info.rows);
    copy->info.samples = (const uint64_t *)(const void *)pages.memory;
    copy->info.valid = pages.memory + landing->tail_valid;
    for (uint32_t f = 0; f < plan->delivered.output_count; f++) {
        brim_field *field = &copy->field[f];
        *field = batch->field[f];
        field->ready = NULL;
        field->data = memory.handle;
        if (field->device_kind != BRIM_DEVICE_OPENCL) {
            field->data = (uint8_t *)memory.handle + landing->field[f].offset;
        }
        if (field->offsets != NULL) {
            void *offsets = pages.memory + landing->field[f].offsets;
            memcpy(offsets, field->offsets, (batch->info.rows + 1) * sizeof(int64_t));
            field->offsets = offsets;
        }
    }
    brim__loader_ref(loader);
    *out = copy;
    return BRIM_OK;

no_copy:
    brim__device_give(&loader->ship->device, &memory);
no_memory:
    brim_budget_uncharge(loader->budget, landing->kind, landing->slot_bytes);
no_charge:
    brim__pages_free(&pages);
    return status;
}

/* What `handle` holds now is done; if nobody can say so, the driver gives memory back only
 * after what uses it. */
static void await_queue(struct brim__device *device, void *handle) {
    struct brim__queue queue;
    struct brim__event done = { 0 };
    if (handle != NULL && brim__queue_of(device, handle, &queue) == BRIM_OK &&
        brim__queue_record(&queue, &done) == BRIM_OK) {
        (void)brim__event_wait(device, &done);
    }
    brim__event_free(device, &done);
}

void brim_batch_release_after(brim_batch *batch, void *handle) {
    if (batch == NULL || brim__runtime_forked(batch->loader->runtime)) {
        return;
    }
    brim_loader *loader = batch->loader;
    struct brim__ship *ship = loader->ship;
    if (ship == NULL) {
        brim_batch_release(batch);
    } else if (batch->slot != NULL) {
        brim__ship_take_back(loader, batch->slot, handle);
    } else {
        struct brim__pages pages = batch->pages; /* holds the batch */
        struct brim__device_memory memory = batch->memory;
        await_queue(&ship->device, handle);
        brim__device_give(&ship->device, &memory);
        brim_budget_uncharge(loader->budget, loader->plan->landing.kind,
                             loader->plan->landing.slot_bytes);
        brim__pages_free(&pages);
        brim__loader_unref(loader);
    }
}

/*
 * device_batch.c: batches that lie on a device: waiting for them, reading them back
 * and copying them.
 */
#include "base/struct.h"
#include "engine/upload.h"

static brim_status check(const brim_batch *batch) {
    if (batch == NULL) {
        return brim__fail(BRIM_STATUS_INVALID, "the batch must not be NULL");
    }
    return brim__runtime_forked(batch->loader->runtime) ? brim__forked() : BRIM_OK;
}

/* The event after which a batch is there; a copy is there when it is handed out. */
static const struct brim__event *there(const brim_batch *batch) {
    static const struct brim__event none;
    return batch->slot != NULL ? &batch->slot->device.ready : &none;
}

/* What has been found out about its copy since it was lent. It is returned once; after that the
 * batch's own event decides. */
static brim_status is_good(const brim_batch *batch) {
    brim_status status = BRIM_OK;
    if (batch->slot != NULL) {
        brim__lock(&batch->loader->mutex);
        if (batch->slot->error.status != BRIM_OK) {
            status = brim__error_report(&batch->slot->error);
            brim__error_clear(&batch->slot->error);
        }
        brim__unlock(&batch->loader->mutex);
    }
    return status;
}

brim_status brim_batch_wait(const brim_batch *batch, void *handle) {
    struct brim__queue queue;
    brim_status status = check(batch);
    struct brim__uploader *uploader = status == BRIM_OK ? batch->loader->uploader : NULL;
    if (uploader == NULL) {
        return status;
    }
    status = is_good(batch);
    if (status != BRIM_OK) {
        return status;
    }
    if (handle == NULL) {
        return brim__event_wait(&uploader->device, there(batch));
    }
    status = brim__queue_of(&uploader->device, handle, &queue);
    return status == BRIM_OK ? brim__queue_wait(&queue, there(batch)) : status;
}

/* A queue for one errand, which begins after what the batch waits for. */
static brim_status begin_errand(const brim_batch *batch, struct brim__queue *queue) {
    brim_status status = brim__queue_new(&batch->loader->uploader->device, queue);
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
    struct brim__device *device = &batch->loader->uploader->device;
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
    return batch->slot != NULL ? batch->slot->device.memory : batch->memory;
}

brim_status brim_batch_copy_field(const brim_batch *batch, size_t index, void *data,
                                  uint64_t bytes) {
    brim_status status = check(batch);
    if (status != BRIM_OK) {
        return status;
    }
    const brim_field *field = brim_batch_field_at(batch, index);
    if (data == NULL) {
        return brim__fail_null("data");
    }
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
    struct brim__uploader *uploader = batch->loader->uploader;
    if (uploader == NULL) {
        for (uint64_t r = 0; r < (close ? 1 : rows); r++) {
            memcpy((uint8_t *)data + r * piece, (const uint8_t *)field->data + r * apart, piece);
        }
        return BRIM_OK;
    }
    const struct brim__device_memory memory = memory_of(batch);
    const uint64_t offset = batch->loader->plan->on_device.field[index].offset;
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
    const struct brim__device_layout *on_device = &plan->on_device;
    const uint64_t tail = on_device->tail_bytes;
    struct brim__device_memory memory = { 0 };
    struct brim__pages pages;
    struct brim__queue queue;
    brim_status status = check(batch);
    if (status == BRIM_OK) {
        status = is_good(batch);
    }
    if (status == BRIM_OK) {
        /* the record lies after what stays on the host */
        status = brim__pages_new(&pages, loader->budget,
                                 tail + sizeof(brim_batch) +
                                     plan->delivered.output_count * sizeof(brim_field),
                                 false, false);
    }
    if (status != BRIM_OK) {
        return status;
    }
    status = brim_budget_charge(loader->budget, on_device->kind, on_device->slot_bytes);
    if (status != BRIM_OK) {
        goto no_charge;
    }
    status = brim__device_take(&loader->uploader->device, on_device->slot_bytes, &memory);
    if (status != BRIM_OK) {
        goto no_memory;
    }
    status = begin_errand(batch, &queue);
    if (status == BRIM_OK) {
        const struct brim__device_memory from = memory_of(batch);
        status = brim__queue_copy(&queue, &memory, 0, &from, 0, on_device->slot_bytes);
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
    memcpy(pages.memory + on_device->tail_valid, batch->info.valid, batch->info.rows);
    copy->info.samples = (const uint64_t *)(const void *)pages.memory;
    copy->info.valid = pages.memory + on_device->tail_valid;
    for (uint32_t f = 0; f < plan->delivered.output_count; f++) {
        brim_field *field = &copy->field[f];
        *field = batch->field[f];
        field->ready = NULL;
        field->data = memory.handle;
        if (field->device_kind != BRIM_DEVICE_OPENCL) {
            field->data = (uint8_t *)memory.handle + on_device->field[f].offset;
        }
        if (field->offsets != NULL) {
            void *offsets = pages.memory + on_device->field[f].offsets;
            memcpy(offsets, field->offsets, (batch->info.rows + 1) * sizeof(int64_t));
            field->offsets = offsets;
        }
    }
    brim__loader_ref(loader);
    *out = copy;
    return BRIM_OK;

no_copy:
    brim__device_give(&loader->uploader->device, &memory);
no_memory:
    brim_budget_uncharge(loader->budget, on_device->kind, on_device->slot_bytes);
no_charge:
    brim__pages_free(&pages);
    return status;
}

/*
 * upload_queue.c: everything that goes into the queue for one batch: its fields, their
 * conversion, and the rows that stay on the device.
 */
#include "engine/resident.h"
#include "engine/upload.h"

/* The user's view of a field: where it lies on the device, as it will be there. */
static void describe(const brim_loader *loader, const struct brim__slot *to, uint32_t f,
                     brim_field *field) {
    const struct brim__device *device = &loader->uploader->device;
    const struct brim__device_field *on_device = &loader->plan->on_device.field[f];
    const uint64_t rows = (uint64_t)field->shape[0];
    if (on_device->converts) {
        int64_t stride = on_device->lookup.element;
        field->dtype = on_device->dtype;
        field->rank = on_device->shape.rank + 1;
        for (uint32_t i = on_device->shape.rank; i > 0; i--) {
            field->shape[i] = (int64_t)on_device->shape.dim[i - 1];
            field->strides[i] = stride;
            stride *= field->shape[i];
        }
        field->strides[0] = (int64_t)on_device->row_bytes;
        field->bytes = rows * on_device->row_bytes;
    }
    if (field->offsets != NULL) {
        int64_t *offsets = (int64_t *)(void *)(to->pages.memory + on_device->offsets);
        memcpy(offsets, field->offsets, (rows + 1) * sizeof(int64_t));
        field->offsets = offsets;
    }
    field->device_kind = device->kind;
    field->device_index = device->index;
    field->data = to->device.memory.handle;
    field->offset = on_device->offset;
    if (device->kind != BRIM_DEVICE_OPENCL) {
        field->data = (uint8_t *)to->device.memory.handle + on_device->offset;
        field->offset = 0;
    }
}

/* Bytes of a field that are copied: with rows that lie apart, what is between them. */
static uint64_t span(const brim_field *field) {
    const uint64_t rows = (uint64_t)field->shape[0];
    return field->strides[0] > 0 ? rows * (uint64_t)field->strides[0] : field->bytes;
}

/* Rows that only fill a batch up are zero, and not what a zero becomes: `raw` has them, of a
 * fraction of the bytes that they have there. */
static brim_status write_padding(brim_loader *loader, uint32_t f, const struct brim__slot *to,
                                 const uint8_t *raw, uint64_t valid) {
    const struct brim__device_field *field = &loader->plan->on_device.field[f];
    const uint64_t piece = loader->plan->delivered.output[f].row_bytes;
    brim_status status = BRIM_OK;
    for (uint64_t row = valid; status == BRIM_OK && row < to->batch.info.rows; row++) {
        for (uint32_t i = 0; status == BRIM_OK && i < field->lookup.element; i++) {
            status = brim__queue_write(&loader->uploader->queue, &to->device.memory,
                                       field->offset + row * field->row_bytes + i * piece,
                                       raw + row * piece, piece);
        }
    }
    return status;
}

static brim_status convert(brim_loader *loader, uint32_t f, const struct brim__slot *to,
                           uint64_t rows) {
    struct brim__uploader *uploader = loader->uploader;
    const struct brim__device_field *field = &loader->plan->on_device.field[f];
    struct brim__lookup lookup = field->lookup;
    lookup.source = lookup.table = &uploader->fixed;
    lookup.destination = &to->device.memory;
    lookup.source_offset = field->raw;
    lookup.source_row = loader->plan->delivered.output[f].row_bytes;
    lookup.table_offset = field->table;
    lookup.destination_offset = field->offset;
    lookup.destination_row = field->row_bytes;
    lookup.rows = rows;
    return rows > 0 ? brim__queue_lookup(&uploader->queue, &lookup) : BRIM_OK;
}

/* A field of `bytes` in a staging slot, from `offset` of the field on, to where it is
 * converted, or to the device slot. */
static brim_status write_field(brim_loader *loader, uint32_t f, const struct brim__slot *to,
                               uint64_t offset, uint64_t bytes, uint64_t *copied) {
    struct brim__uploader *uploader = loader->uploader;
    const struct brim__device_field *field = &loader->plan->on_device.field[f];
    *copied += bytes;
    return bytes == 0 ? BRIM_OK
                      : brim__queue_write(&uploader->queue,
                                          field->converts ? &uploader->fixed : &to->device.memory,
                                          (field->converts ? field->raw : field->offset) + offset,
                                          (const uint8_t *)to->batch.field[f].data + offset, bytes);
}

static brim_status write_all(brim_loader *loader, uint32_t f, const struct brim__slot *to,
                             uint64_t *copied) {
    return write_field(loader, f, to, 0, span(&to->batch.field[f]), copied);
}

/* Only rows that are not on the device already, and those that fill the batch up. */
static brim_status write_made(brim_loader *loader, uint32_t f, const struct brim__slot *from,
                              const struct brim__slot *to, uint64_t valid, uint64_t *copied) {
    const uint64_t bytes = loader->plan->delivered.output[f].row_bytes;
    brim_status status =
        write_field(loader, f, to, valid * bytes, (to->batch.info.rows - valid) * bytes, copied);
    uint64_t first = 0, count;
    while (status == BRIM_OK && (count = brim__resident_made(loader, from, &first, valid)) > 0) {
        status = write_field(loader, f, to, first * bytes, count * bytes, copied);
        first += count;
    }
    return status;
}

/* Everything that goes into the queue for one batch. */
brim_status brim__upload_send(brim_loader *loader, struct brim__slot *from, struct brim__slot *to,
                              uint64_t *copied) {
    const brim_plan *plan = loader->plan;
    struct brim__uploader *uploader = loader->uploader;
    const struct brim__device_layout *on_device = &plan->on_device;
    struct brim_batch *batch = &to->batch;
    const uint64_t valid = from->delivery.valid_rows - from->bad_rows;
    brim_status status = BRIM_OK;
    if (uploader->queue.handle == NULL) {
        status = brim__queue_new(&uploader->device, &uploader->queue);
    }
    batch->info.rows = from->rows - from->bad_rows;
    brim__batch_layout(batch, plan, from->pages.memory);
    memcpy(to->pages.memory, batch->info.samples, batch->info.rows * sizeof(uint64_t));
    memcpy(to->pages.memory + on_device->tail_valid, batch->info.valid, batch->info.rows);
    const uint64_t *samples = (const uint64_t *)(const void *)to->pages.memory;
    const uint64_t there =
        uploader->residents != NULL ? brim__resident_number(loader, from, samples, valid) : 0;
    for (uint32_t f = 0; status == BRIM_OK && f < plan->delivered.output_count; f++) {
        status = there > 0 ? write_made(loader, f, from, to, valid, copied)
                           : write_all(loader, f, to, copied);
        if (status == BRIM_OK && on_device->field[f].converts) {
            status = write_padding(loader, f, to, batch->field[f].data, valid);
        }
    }
    if (status == BRIM_OK && there > 0) {
        status = brim__resident_send(loader, from, valid);
    }
    if (status == BRIM_OK && uploader->residents == NULL) {
        status = brim__queue_record(&uploader->queue, &from->device.left);
    }
    for (uint32_t f = 0; status == BRIM_OK && f < plan->delivered.output_count; f++) {
        if (on_device->field[f].converts && there < valid) {
            status = convert(loader, f, to, valid);
        }
    }
    if (status == BRIM_OK && there > 0) {
        status = brim__resident_gather(loader, from, to, valid);
    }
    if (status == BRIM_OK && uploader->residents != NULL && there < valid) {
        status = brim__resident_store(loader, from, to, samples, valid);
    }
    if (status == BRIM_OK && uploader->residents != NULL) {
        /* what stays on the device is good only if all of this is */
        status = brim__queue_record(&uploader->queue, &from->device.left);
    }
    if (status == BRIM_OK) {
        status = brim__queue_record(&uploader->queue, &to->device.ready);
    }
    for (uint32_t f = 0; f < plan->delivered.output_count; f++) {
        describe(loader, to, f, &batch->field[f]);
        batch->field[f].ready = to->device.ready.handle;
    }
    return status;
}

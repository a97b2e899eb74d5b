/*
 * batch.c: a batch as the consumer has it: a lent slot, or a copy of one.
 */
#include "base/struct.h"
#include "engine/loader.h"
#include "engine/place.h"
#include "engine/position.h"
#include "engine/upload.h"

static void describe(const struct brim__output *output, uint64_t rows, bool shared, uint8_t *memory,
                     brim_field *field) {
    *field = (brim_field){ .name = output->name,
                           .dtype = output->dtype,
                           .rank = output->shape.rank + 1,
                           .data = memory + output->offset,
                           .bytes = rows * output->row_bytes };
    int64_t stride = (int64_t)brim_dtype_bytes(output->dtype);
    for (uint32_t i = output->shape.rank; i > 0; i--) {
        field->shape[i] = (int64_t)output->shape.dim[i - 1];
        field->strides[i] = stride;
        stride *= field->shape[i];
    }
    field->shape[0] = (int64_t)rows;
    field->strides[0] = (int64_t)output->row_bytes;
    if (output->padded) {
        const uint64_t width = brim__place_width(output, memory, rows);
        field->shape[1] = (int64_t)width;
        field->strides[0] = (int64_t)(shared ? width * output->unit_bytes : output->row_bytes);
        field->bytes = rows * width * output->unit_bytes;
    } else if (output->form != BRIM_FORM_DENSE) {
        field->form = output->form;
        field->offsets = (const int64_t *)(const void *)(memory + output->lengths);
        field->shape[1] = -1;
        field->strides[0] = 0;
        field->bytes = (uint64_t)field->offsets[rows] * output->unit_bytes;
    }
}

/* info.rows is set; fields and arrays are laid over `memory`. */
void brim__batch_layout(struct brim_batch *batch, const brim_plan *plan, uint8_t *memory) {
    const struct brim__layout *layout = &plan->delivered;
    batch->info.samples = brim__layout_ids(layout, memory);
    batch->info.valid = memory + layout->valid_offset;
    for (uint32_t f = 0; f < layout->output_count; f++) {
        describe(&layout->output[f], batch->info.rows, plan->batching.bucket.on, memory,
                 &batch->field[f]);
    }
}

const brim_batch_info *brim_batch_get(const brim_batch *batch) {
    return batch != NULL ? &batch->info : NULL;
}

const brim_field *brim_batch_field_at(const brim_batch *batch, size_t index) {
    return batch != NULL && index < batch->info.field_count ? &batch->field[index] : NULL;
}

const brim_field *brim_batch_find(const brim_batch *batch, const char *name) {
    if (batch == NULL || name == NULL) {
        brim__fail_null("batch and name");
        return NULL;
    }
    for (uint32_t f = 0; f < batch->info.field_count; f++) {
        if (strcmp(batch->field[f].name, name) == 0) {
            return &batch->field[f];
        }
    }
    brim__fail(BRIM_STATUS_INVALID, "the batch has no field '%s'", name);
    return NULL;
}

brim_status brim_batch_state(const brim_batch *batch, brim_state *state) {
    if (batch == NULL || state == NULL) {
        return brim__fail_null("batch and state");
    }
    if (brim__runtime_forked(batch->loader->runtime)) {
        return brim__forked();
    }
    struct brim__position position;
    batch->loader->position->after(batch, &position);
    brim__state_write(batch->loader->plan, &position, state);
    return BRIM_OK;
}

brim_status brim_batch_copy(const brim_batch *batch, brim_batch **out) {
    if (out == NULL) {
        return brim__fail_null("copy");
    }
    *out = NULL;
    if (batch == NULL) {
        return brim__fail_null("batch");
    }
    brim_loader *loader = batch->loader;
    const brim_plan *plan = loader->plan;
    if (loader->uploader != NULL) {
        return brim__batch_copy_there(batch, out);
    }
    const uint8_t *memory = batch->slot != NULL ? batch->slot->pages.memory : batch->pages.memory;
    const uint64_t slot_bytes = plan->info.slot_bytes;
    struct brim__pages pages;
    if (brim__runtime_forked(loader->runtime)) {
        return brim__forked();
    }
    /* the record lies after the rows, in pages of its own */
    const brim_status status = brim__pages_new(
        &pages, loader->budget,
        slot_bytes + sizeof(brim_batch) + plan->delivered.output_count * sizeof(brim_field), false,
        false);
    if (status != BRIM_OK) {
        return status;
    }
    brim_batch *copy = (brim_batch *)(void *)(pages.memory + slot_bytes);
    memcpy(pages.memory, memory, slot_bytes);
    *copy = *batch;
    copy->slot = NULL;
    copy->field = (brim_field *)(void *)(copy + 1);
    copy->pages = pages;
    brim__batch_layout(copy, plan, pages.memory);
    brim__loader_ref(loader);
    *out = copy;
    return BRIM_OK;
}

/*
 * device_layout.c: the parts of a batch that go to a device, and the fields that are converted
 * there.
 */
#include "plan/plan.h"

#define FIELD_ALIGNMENT 256 /* of a field on a device: what drivers ask of parts of a buffer */
#define VALUES          256 /* of a uint8 */

/* ------------------------------------------- conversions left to the device */

/* The dimensions of a view in the order of its elements in memory, slowest first. False: the
 * elements are not contiguous in any order. */
static bool find_natural(const struct brim__view *view, struct brim__view *natural) {
    uint32_t order[BRIM_MAX_RANK];
    *natural = *view;
    for (uint32_t i = 0; i < view->shape.rank; i++) {
        uint32_t at = i;
        for (; at > 0 && view->stride[order[at - 1]] < view->stride[i]; at--) {
            order[at] = order[at - 1];
        }
        order[at] = i;
    }
    for (uint32_t i = 0; i < view->shape.rank; i++) {
        natural->shape.dim[i] = view->shape.dim[order[i]];
        natural->stride[i] = view->stride[order[i]];
    }
    return brim__view_is_row_major(natural);
}

static bool same_values(const float *a, const float *b, uint32_t count) {
    return (a == NULL) == (b == NULL) && (a == NULL || memcmp(a, b, count * sizeof *a) == 0);
}

static bool same_conversion(const struct brim__conversion *a, const struct brim__conversion *b) {
    bool same = a->from.dtype == b->from.dtype && a->from.swapped == b->from.swapped &&
                brim__shape_equal(&a->from.shape, &b->from.shape) && a->to == b->to &&
                a->channels == b->channels && a->channel_axis == b->channel_axis &&
                same_values(a->scale, b->scale, a->channels) &&
                same_values(a->bias, b->bias, a->channels);
    for (uint32_t i = 0; same && i < a->from.shape.rank; i++) {
        same = a->from.stride[i] == b->from.stride[i];
    }
    return same;
}

/* Whether a field has the same conversion by a table in all leaves. */
static bool is_lookup(const brim_plan *plan, uint32_t f, struct brim__view *natural) {
    const struct brim__program_field *field = &plan->leaf[0]->program.field[f];
    const struct brim__conversion *pending = &field->pending;
    bool is = field->form == BRIM_FORM_DENSE && pending->from.dtype == BRIM_DTYPE_U8 &&
              !pending->from.swapped && brim__dtype_is_float(pending->to) &&
              pending->to != BRIM_DTYPE_F64 && pending->from.shape.rank <= 3 &&
              find_natural(&pending->from, natural);
    for (uint32_t i = 0; is && i < pending->from.shape.rank; i++) {
        is = pending->from.shape.dim[i] <= INT32_MAX && pending->from.stride[i] <= INT32_MAX;
    }
    for (uint32_t i = 1; is && i < plan->leaf_count; i++) {
        is = same_conversion(pending, &plan->leaf[i]->program.field[f].pending);
    }
    return is;
}

static void defer(brim_plan *plan, uint32_t f, const struct brim__view *natural) {
    const struct brim__conversion *pending = &plan->leaf[0]->program.field[f].pending;
    struct brim__device_field *field = &plan->on_device.field[f];
    const uint32_t rank = pending->from.shape.rank;
    field->converts = true;
    field->dtype = pending->to;
    field->shape = pending->from.shape;
    field->channels = pending->scale == NULL || pending->channels == 0 ? 1 : pending->channels;
    field->scale = pending->scale;
    field->bias = pending->bias;
    field->lookup.element = (uint32_t)brim_dtype_bytes(pending->to);
    field->lookup.axis = field->channels > 1 ? pending->channel_axis + 3 - rank : 3;
    for (uint32_t i = 0; i < 3; i++) {
        const bool given = i >= 3 - rank;
        field->lookup.dim[i] = given ? (uint32_t)pending->from.shape.dim[i - (3 - rank)] : 1;
        field->lookup.stride[i] = given ? (uint32_t)pending->from.stride[i - (3 - rank)] : 0;
    }
    for (uint32_t i = 0; i < plan->leaf_count; i++) {
        struct brim__conversion *left = &plan->leaf[i]->program.field[f].pending;
        const uint64_t offset = left->from.offset;
        left->from = *natural;
        left->from.offset = offset;
        left->to = BRIM_DTYPE_U8;
        left->scale = left->bias = NULL;
        left->channels = left->channel_axis = 0;
    }
}

void brim__device_defer(brim_plan *plan, const struct brim__device *device, bool acts) {
    if (acts || plan->sequence.on || !brim__device_converts(device)) {
        return; /* stages on whole batches, and rows that are moved about, want what it will be */
    }
    for (uint32_t f = 0; f < plan->leaf[0]->program.field_count; f++) {
        struct brim__view natural;
        if (is_lookup(plan, f, &natural)) {
            defer(plan, f, &natural);
        }
    }
}

brim_status brim__device_table(const struct brim__device_field *field, void *table) {
    uint8_t value[VALUES];
    struct brim__view view = { .dtype = BRIM_DTYPE_U8, .shape = { .rank = 1, .dim = { VALUES } } };
    brim__view_row_major(&view);
    for (uint32_t i = 0; i < VALUES; i++) {
        value[i] = (uint8_t)i;
    }
    for (uint32_t c = 0; c < field->channels; c++) {
        struct brim__conversion conversion;
        brim__conversion_init(&conversion, &view);
        conversion.to = field->dtype;
        if (field->scale != NULL) {
            conversion.scale = &field->scale[c];
            conversion.bias = &field->bias[c];
            conversion.channels = 1;
        }
        const brim_status status = brim__conversion_prepare(&conversion);
        if (status != BRIM_OK) {
            return status;
        }
        brim__convert(&conversion, value,
                      (uint8_t *)table + (uint64_t)c * VALUES * field->lookup.element);
    }
    return BRIM_OK;
}

/* ----------------------------------------------------------------- offsets */

static brim_status lay_out_field(brim_plan *plan, uint32_t f) {
    struct brim__device_layout *on_device = &plan->on_device;
    struct brim__device_field *field = &on_device->field[f];
    const struct brim__output *output = &plan->delivered.output[f];
    const uint64_t rows = plan->delivered.rows;
    const uint64_t raw = output->form != BRIM_FORM_DENSE ? output->lengths - output->offset
                                                         : rows * output->row_bytes;
    field->bytes = raw;
    if (field->converts) {
        field->row_bytes = output->row_bytes * field->lookup.element;
        if (brim__mul_overflows(rows, field->row_bytes, &field->bytes) ||
            field->bytes > UINT64_MAX / 8) {
            return brim__fail(BRIM_STATUS_INVALID, "field '%s': %llu rows of it are too large",
                              output->name, (unsigned long long)rows);
        }
        field->raw = on_device->fixed_bytes;
        field->table = field->raw + brim__align(raw, FIELD_ALIGNMENT);
        on_device->fixed_bytes =
            field->table + brim__align((uint64_t)field->channels * VALUES * field->lookup.element,
                                       FIELD_ALIGNMENT);
        plan->field[f].converted = 1;
        plan->field[f].dtype = field->dtype;
        plan->field[f].bytes = field->bytes;
        plan->field[f].rank = field->shape.rank + 1;
        for (uint32_t i = 0; i < field->shape.rank; i++) {
            plan->field[f].shape[i + 1] = (int64_t)field->shape.dim[i];
        }
    }
    field->resident = on_device->resident_bytes;
    on_device->resident_bytes += field->converts ? field->row_bytes : output->row_bytes;
    field->offset = on_device->slot_bytes;
    on_device->slot_bytes += brim__align(field->bytes, FIELD_ALIGNMENT);
    if (output->form != BRIM_FORM_DENSE && !output->padded) {
        field->offsets = on_device->tail_bytes;
        on_device->tail_bytes += brim__align((rows + 1) * sizeof(int64_t), BRIM__CACHE_LINE);
    }
    return BRIM_OK;
}

brim_status brim__device_lay_out(brim_plan *plan, const struct brim__device *device) {
    struct brim__device_layout *on_device = &plan->on_device;
    const uint64_t rows = plan->delivered.rows;
    brim_status status = BRIM_OK;
    on_device->used = true;
    on_device->kind = brim_device_memory(device->kind, device->index);
    on_device->tail_valid = rows * sizeof(uint64_t);
    on_device->tail_bytes = brim__align(on_device->tail_valid + rows, BRIM__CACHE_LINE);
    for (uint32_t f = 0; status == BRIM_OK && f < plan->delivered.output_count; f++) {
        status = lay_out_field(plan, f);
    }
    on_device->tail_bytes = brim__align(on_device->tail_bytes, brim__page_bytes());
    if (status == BRIM_OK && plan->device_cache != NULL) {
        const uint64_t bytes = rows * sizeof(uint32_t);
        plan->device_cache->most_bytes = brim__max(1, on_device->resident_bytes);
        on_device->numbers = plan->info.slot_bytes;
        plan->info.slot_bytes += brim__align(bytes, brim__page_bytes());
        on_device->numbers_there = on_device->fixed_bytes;
        on_device->fixed_bytes += brim__align(bytes, FIELD_ALIGNMENT);
    }
    if (status == BRIM_OK && on_device->slot_bytes > device->largest) {
        char size[BRIM__SIZE_TEXT], most[BRIM__SIZE_TEXT];
        status =
            brim__fail(BRIM_STATUS_BUDGET,
                       "a batch of %s is more than %s:%u allocates at once (%s): make the batch "
                       "smaller, or use micro-batches",
                       brim__size_text(on_device->slot_bytes, size), brim_device_name(device->kind),
                       device->index, brim__size_text(device->largest, most));
    }
    return status;
}

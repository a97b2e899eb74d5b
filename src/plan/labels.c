/*
 * labels.c: reads the labels of samples, for order stages that use them.
 *
 * A label is the value of a field as the source gives it: an integer or a bool, or a hash of its
 * text. Neighbours are fetched together, into a buffer that is charged during the call. A source
 * that is held in memory is loaded here, and stays loaded.
 */
#include "plan/plan.h"

#define RUN 64

/* Finds the source and field of a leaf for a name. */
static brim_status find_field(const struct brim__leaf *leaf, const char *name, uint32_t *source,
                              uint32_t *field) {
    for (uint32_t s = 0; s < leaf->source_count; s++) {
        for (uint32_t f = 0; f < leaf->source[s]->field_count; f++) {
            const struct brim__source_field *found = &leaf->source[s]->field[f];
            if (strcmp(found->name, name) != 0) {
                continue;
            }
            if (found->form == BRIM_FORM_DENSE &&
                (found->view.shape.rank != 0 || (!brim__dtype_is_integer(found->view.dtype) &&
                                                 found->view.dtype != BRIM_DTYPE_BOOL))) {
                return brim__fail(BRIM_STATUS_INVALID,
                                  "field '%s' is not a label: a label is one integer, or a text",
                                  name);
            }
            *source = s;
            *field = f;
            return BRIM_OK;
        }
    }
    return brim__fail(
        BRIM_STATUS_INVALID,
        "the source has no field '%s': labels are read from the source, before transforms", name);
}

static void read_label(const struct brim__source_field *field, struct brim__conversion *conversion,
                       const uint8_t *record, int64_t *label) {
    if (field->form == BRIM_FORM_DENSE) {
        brim__convert(conversion, record, (uint8_t *)label);
        return;
    }
    const struct brim__span *span =
        (const struct brim__span *)(const void *)(record + field->view.offset);
    *label = (int64_t)brim__hash(span->data, span->count * brim_dtype_bytes(field->view.dtype), 0);
}

/* Reads the labels of `count` neighbouring samples of one leaf. */
static brim_status read_run(brim_plan *plan, const struct brim__leaf *leaf, const char *name,
                            uint64_t sample, uint64_t count, uint8_t *buffer, int64_t *labels) {
    uint32_t s = 0, f = 0;
    brim_status status = find_field(leaf, name, &s, &f);
    if (status == BRIM_OK) {
        status = brim__plan_load_source(plan, leaf->source[s]);
    }
    if (status != BRIM_OK) {
        return status;
    }
    const struct brim__source *source = leaf->source[s];
    struct brim__conversion conversion;
    brim__conversion_init(&conversion, &source->field[f].view);
    conversion.to = BRIM_DTYPE_I64;
    status =
        source->field[f].form == BRIM_FORM_DENSE ? brim__conversion_prepare(&conversion) : BRIM_OK;
    while (status == BRIM_OK && count > 0) {
        const brim_call call = { .size = sizeof call, .sample = sample, .key = leaf->key[s] };
        const uint8_t *records;
        uint64_t got = 0;
        if (source->serial != NULL) {
            brim__lock(source->serial);
        }
        status = source->ops->fetch(source, &call, brim__min(count, source->most_run), buffer,
                                    &records, &got);
        if (source->serial != NULL) {
            brim__unlock(source->serial);
        }
        for (uint64_t i = 0; status == BRIM_OK && i < got; i++) {
            read_label(&source->field[f], &conversion, records + i * source->pitch, &labels[i]);
        }
        sample += got;
        labels += got;
        count -= got;
    }
    return status;
}

brim_status brim__plan_labels(void *user, const char *name, uint64_t first, uint64_t count,
                              int64_t *labels) {
    brim_plan *plan = user;
    uint64_t largest = 1;
    for (uint32_t i = 0; i < plan->leaf_count; i++) {
        for (uint32_t s = 0; s < plan->leaf[i]->source_count; s++) {
            const struct brim__source *source = plan->leaf[i]->source[s];
            largest = brim__max(largest, brim__source_buffer(source, source->most_run));
        }
    }
    brim_status status;
    uint8_t *buffer = brim__alloc(plan->arena.budget, largest, &status);
    if (buffer == NULL) {
        return status;
    }
    struct brim__location locations[RUN];
    status = BRIM_OK;
    while (status == BRIM_OK && count > 0) {
        const size_t run = brim__min(count, RUN);
        brim__order_locate(&plan->order, 0, first, run, locations);
        for (size_t i = 0; status == BRIM_OK && i < run;) {
            size_t n = 1;
            while (i + n < run && locations[i + n].leaf == locations[i].leaf &&
                   locations[i + n].sample == locations[i].sample + n) {
                n++;
            }
            status = read_run(plan, plan->leaf[locations[i].leaf], name, locations[i].sample, n,
                              buffer, labels + i);
            i += n;
        }
        first += run;
        labels += run;
        count -= run;
    }
    brim__free(buffer);
    return status;
}

/*
 * mixup.c: `mixup`: every row becomes a mean of itself and the row before it.
 *
 *     row r  <-  lambda x row r + (1 - lambda) x row r - 1      (row 0: the last row)
 *
 * for the fields `on` and for their labels, with one lambda for the batch, drawn from Beta(alpha,
 * alpha). The method is torchvision's MixUp, but the random lambdas are others.
 */
#include "batching/stages.h"

#include "batching/mixing.h"

struct mixup {
    struct brim__mixing mixing;
    struct brim__mixed image[BRIM__MAX_FIELDS];
    uint32_t image_count;
};

static brim_status run(const struct brim__batch_step *step, const struct brim__batch_call *call) {
    const struct mixup *self = step->self;
    struct brim__batch_draws draws;
    double lambda;
    if (!brim__mixing_begin(&self->mixing, call, &draws, &lambda)) {
        return BRIM_OK;
    }
    for (uint32_t i = 0; i < self->image_count; i++) {
        brim__mix_rows(&self->image[i], call, lambda);
    }
    brim__mix_labels(&self->mixing, call, lambda);
    return BRIM_OK;
}

static brim_status add(const struct brim__use *use, const struct brim__batch_site *site) {
    struct mixup *self;
    brim_status status = brim__arena_take(site->arena, sizeof *self, &self);
    if (status == BRIM_OK) {
        status = brim__mixing_init(use, site, &self->mixing);
    }
    for (uint32_t f = 0; status == BRIM_OK && f < site->field_count; f++) {
        const struct brim__batch_field *field = &site->field[f];
        if ((self->mixing.images >> f & 1) == 0) {
            continue;
        }
        if (!brim__mixable(field->dtype)) {
            return brim__fail(BRIM_STATUS_INVALID,
                              "mixup: field '%s' is %s, but only floats and uint8 are mixed: put "
                              "`cast float32 on=%s` before batch",
                              field->name, brim_dtype_name(field->dtype), field->name);
        }
        self->image[self->image_count++] =
            (struct brim__mixed){ field->dtype, field->offset, field->row_bytes };
    }
    site->step->run = run;
    site->step->self = self;
    return status;
}

static const brim_argument_info arguments[] = { BRIM__MIX_ARGUMENT_ROWS("0.2") };

const struct brim__stage brim__stage_mixup = {
    .info = { .name = "mixup",
              .summary = "mixes each row of a batch and its labels with the row before",
              .example = "mixup alpha=0.2 on=image labels=label",
              .room = BRIM_ROOM_BATCHING,
              .version = 1,
              .arguments = arguments,
              .argument_count = BRIM__COUNT(arguments) },
    .add_batch = add,
};

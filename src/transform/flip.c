/*
 * flip.c: `flip`: mirrors images, with a probability.
 */
#include "transform/geometry.h"
#include "transform/stages.h"

enum { WAY, P, SEED, ON };

struct flip {
    bool vertical;
    double p;
};

static brim_status resolve(const void *object, const struct brim__picture_draws *draws,
                           struct brim__acts *acts) {
    const struct flip *self = object;
    if (brim__draw(draws, 0) < self->p) {
        brim__act_flip(acts, self->vertical);
    }
    return BRIM_OK;
}

static brim_status add(const struct brim__use *use, struct brim__program *program) {
    struct flip *self;
    uint32_t pictures, boxes;
    brim_status status = brim__arena_take(program->arena, sizeof *self, &self);
    if (status == BRIM_OK) {
        status = brim__picture_on(program, use, ON, true, &pictures, &boxes);
    }
    if (status != BRIM_OK) {
        return status;
    }
    self->vertical = brim__item(use, WAY)->integer != 0;
    self->p = brim__item(use, P)->real;
    const struct brim__op op = { .resolve = resolve,
                                 .self = self,
                                 .key = brim__geometry_key(program, use, SEED,
                                                           brim__geometry_draws(self->p, false)) };
    return brim__geometry_add(program, &op, pictures, boxes, 0, 0);
}

static const brim_argument_info arguments[] = {
    [WAY] = { .name = "way",
              .type = BRIM_TYPE_CHOICE,
              .flags = BRIM_ARGUMENT_FLAG_POSITIONAL,
              .fallback = "horizontal",
              .choices = "horizontal|vertical",
              .help = "horizontal: left and right are exchanged; vertical: top and bottom" },
    [P] = BRIM__P_ARGUMENT("0.5", 0),
    [SEED] = BRIM__DRAWS_SEED_ARGUMENT,
    [ON] = BRIM__PICTURES_ARGUMENT,
};

const struct brim__stage brim__stage_flip = {
    .info = { .name = "flip",
              .summary = "mirrors images, with a probability",
              .example = "flip vertical p=0.1",
              .room = BRIM_ROOM_TRANSFORM,
              .version = 1,
              .arguments = arguments,
              .argument_count = BRIM__COUNT(arguments) },
    .add_transform = add,
};

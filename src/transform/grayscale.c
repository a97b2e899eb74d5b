/*
 * grayscale.c: `grayscale`: makes colours gray by Pillow's weights, in the same number of channels
 * or in one. With p below 1 it is torchvision's RandomGrayscale.
 */
#include "transform/geometry.h"
#include "transform/stages.h"

enum { CHANNELS, P, SEED, ON };
enum { KEEP, ONE };

struct grayscale {
    bool one;
    double p;
};

static void run(const struct brim__act *act, const struct brim__image *from,
                const struct brim__image *to, uint8_t *scratch) {
    (void)act, (void)scratch;
    if (to->pixel == from->pixel) {
        brim__image_gray(to);
    } else {
        brim__image_to_gray(from, to);
    }
}

static brim_status resolve(const void *self, const struct brim__picture_draws *draws,
                           struct brim__acts *acts) {
    const struct grayscale *grayscale = self;
    if (acts->pixel == 4 && brim__draw(draws, 0) < grayscale->p) {
        struct brim__act *act = brim__act_pixels(acts, run, !grayscale->one);
        if (grayscale->one) {
            act->pixel = acts->pixel = 1;
        }
    }
    return BRIM_OK;
}

static brim_status add(const struct brim__use *use, struct brim__program *program) {
    struct grayscale *self;
    uint32_t pictures;
    brim_status status = brim__arena_take(program->arena, sizeof *self, &self);
    if (status == BRIM_OK) {
        status = brim__picture_on(program, use, ON, false, &pictures, NULL);
    }
    if (status != BRIM_OK) {
        return status;
    }
    self->one = brim__item(use, CHANNELS)->integer == ONE;
    self->p = brim__item(use, P)->real;
    if (self->one && self->p < 1.0) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "grayscale: with channels=1 all images become gray: leave "
                          "out p, or channels=1");
    }
    const struct brim__op op = { .resolve = resolve,
                                 .self = self,
                                 .key = brim__geometry_key(program, use, SEED,
                                                           brim__geometry_draws(self->p, false)),
                                 .pixels = true };
    for (uint32_t f = 0; status == BRIM_OK && f < program->field_count; f++) {
        if (pictures >> f & 1) {
            const struct brim__picture *picture = brim__picture_of(&program->field[f]);
            const struct brim__picture_extent extent = picture->extent;
            status =
                brim__picture_add(program, f, &op, &extent, self->one ? 1 : picture->channels, 0);
        }
    }
    return status;
}

static const brim_argument_info arguments[] = {
    [CHANNELS] = { .name = "channels",
                   .type = BRIM_TYPE_CHOICE,
                   .fallback = "keep",
                   .choices = "keep|1",
                   .help = "keep: the same number of channels, all equal; 1: one channel" },
    [P] = BRIM__P_ARGUMENT("1", 0),
    [SEED] = BRIM__DRAWS_SEED_ARGUMENT,
    [ON] = BRIM__IMAGES_ARGUMENT,
};

const struct brim__stage brim__stage_grayscale = {
    .info = { .name = "grayscale",
              .summary = "makes colours gray, always or with a probability",
              .example = "grayscale p=0.1",
              .room = BRIM_ROOM_TRANSFORM,
              .version = 1,
              .arguments = arguments,
              .argument_count = BRIM__COUNT(arguments) },
    .add_transform = add,
};

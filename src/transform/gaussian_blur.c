/*
 * gaussian_blur.c: `gaussian_blur SIZE`: blurs with a kernel of SIZE x SIZE whose sigma is drawn,
 * as torchvision's GaussianBlur.
 */
#include "transform/geometry.h"
#include "transform/stages.h"

enum { SIZE, SIGMA, P, SEED, ON };

struct gaussian_blur {
    uint32_t size;
    double low, high;
    double p;
};

static void run(const struct brim__act *act, const struct brim__image *from,
                const struct brim__image *to, uint8_t *scratch) {
    (void)from;
    brim__image_blur(to, (uint32_t)act->pixels.number[0], act->pixels.number[1], scratch);
}

static brim_status resolve(const void *self, const struct brim__picture_draws *draws,
                           struct brim__acts *acts) {
    const struct gaussian_blur *blur = self;
    if (brim__draw(draws, 0) < blur->p) {
        struct brim__act *act = brim__act_pixels(acts, run, true);
        act->pixels.number[0] = blur->size;
        act->pixels.number[1] = brim__draw_between(draws, 1, blur->low, blur->high);
    }
    return BRIM_OK;
}

static brim_status add(const struct brim__use *use, struct brim__program *program) {
    struct gaussian_blur *self;
    uint32_t pictures;
    brim_status status = brim__arena_take(program->arena, sizeof *self, &self);
    if (status == BRIM_OK) {
        status = brim__geometry_range(use, SIGMA, &self->low, &self->high);
    }
    if (status == BRIM_OK) {
        status = brim__picture_on(program, use, ON, false, &pictures, NULL);
    }
    if (status != BRIM_OK) {
        return status;
    }
    self->size = (uint32_t)brim__item(use, SIZE)->integer;
    if (self->size % 2 == 0) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "gaussian_blur: a kernel of %u has no middle: give an odd size, %u or %u",
                          self->size, self->size - 1, self->size + 1);
    }
    self->p = brim__item(use, P)->real;
    struct brim__op op = { .resolve = resolve,
                           .self = self,
                           .key = brim__geometry_key(
                               program, use, SEED,
                               brim__geometry_draws(self->p, self->low < self->high)),
                           .pixels = true };
    for (uint32_t f = 0; f < program->field_count; f++) {
        if (pictures >> f & 1) {
            const struct brim__picture *picture = brim__picture_of(&program->field[f]);
            op.scratch = brim__max(op.scratch,
                                   brim__image_blur_bytes(picture->extent.width,
                                                          picture->extent.height, picture->pixel));
        }
    }
    return brim__geometry_add(program, &op, pictures, 0, 0, 0);
}

static const brim_argument_info arguments[] = {
    [SIZE] = { .name = "size",
               .type = BRIM_TYPE_INTEGER,
               .flags = BRIM_ARGUMENT_FLAG_REQUIRED | BRIM_ARGUMENT_FLAG_POSITIONAL,
               .least = 1,
               .most = BRIM__BLUR_MOST,
               .help = "sides of the kernel in pixels, odd" },
    [SIGMA] = { .name = "sigma",
                .type = BRIM_TYPE_REAL,
                .flags = BRIM_ARGUMENT_FLAG_LIST,
                .fallback = "0.1,2",
                .least = 1e-3,
                .most = 1e3,
                .help = "standard deviation in pixels, drawn from low,high; or one value" },
    [P] = BRIM__P_ARGUMENT("1", 0),
    [SEED] = BRIM__DRAWS_SEED_ARGUMENT,
    [ON] = BRIM__IMAGES_ARGUMENT,
};

const struct brim__stage brim__stage_gaussian_blur = {
    .info = { .name = "gaussian_blur",
              .summary = "blurs with a gaussian of random width",
              .example = "gaussian_blur 23 sigma=0.1,2 p=0.5",
              .room = BRIM_ROOM_TRANSFORM,
              .version = 1,
              .arguments = arguments,
              .argument_count = BRIM__COUNT(arguments) },
    .add_transform = add,
};

/*
 * brightness.c: `brightness DELTA` or `brightness max=M`: adds the same to every channel, as
 * tf.image.adjust_brightness and random_brightness, where 1 is the full range. color_jitter
 * multiplies instead, as Pillow and torchvision do.
 */
#include "transform/geometry.h"
#include "transform/stages.h"

enum { DELTA, MAX, P, SEED, ON };

struct brightness {
    double low, high;
    double p;
};

static void run(const struct brim__act *act, const struct brim__image *from,
                const struct brim__image *to, uint8_t *scratch) {
    (void)from, (void)scratch;
    brim__image_add(to, act->pixels.number[0]);
}

static brim_status resolve(const void *self, const struct brim__picture_draws *draws,
                           struct brim__acts *acts) {
    const struct brightness *brightness = self;
    if (brim__draw(draws, 0) < brightness->p) {
        brim__act_pixels(acts, run, true)->pixels.number[0] =
            brim__draw_between(draws, 1, brightness->low, brightness->high);
    }
    return BRIM_OK;
}

static brim_status add(const struct brim__use *use, struct brim__program *program) {
    if (brim__given(use, DELTA) == brim__given(use, MAX)) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "brightness: give either the value to add, as in brightness 0.1, or the "
                          "largest random value, as in max=0.1");
    }
    struct brightness *self;
    uint32_t pictures;
    brim_status status = brim__arena_take(program->arena, sizeof *self, &self);
    if (status == BRIM_OK) {
        status = brim__picture_on(program, use, ON, false, &pictures, NULL);
    }
    if (status != BRIM_OK) {
        return status;
    }
    const bool fixed = brim__given(use, DELTA);
    self->high = brim__item(use, fixed ? DELTA : MAX)->real;
    self->low = fixed ? self->high : -self->high;
    self->p = brim__item(use, P)->real;
    const struct brim__op op = { .resolve = resolve,
                                 .self = self,
                                 .key = brim__geometry_key(
                                     program, use, SEED,
                                     brim__geometry_draws(self->p, self->low < self->high)),
                                 .pixels = true };
    return brim__geometry_add(program, &op, pictures, 0, 0, 0);
}

static const brim_argument_info arguments[] = {
    [DELTA] = { .name = "delta",
                .type = BRIM_TYPE_REAL,
                .flags = BRIM_ARGUMENT_FLAG_POSITIONAL,
                .least = -1,
                .most = 1,
                .help = "the value to add; 1 is the full range" },
    [MAX] = { .name = "max",
              .type = BRIM_TYPE_REAL,
              .least = 0,
              .most = 1,
              .help = "instead: a random value from -max to max is added" },
    [P] = BRIM__P_ARGUMENT("1", 0),
    [SEED] = BRIM__DRAWS_SEED_ARGUMENT,
    [ON] = BRIM__IMAGES_ARGUMENT,
};

const struct brim__stage brim__stage_brightness = {
    .info = { .name = "brightness",
              .summary = "adds one value to all channels, fixed or random",
              .example = "brightness max=0.125",
              .room = BRIM_ROOM_TRANSFORM,
              .version = 1,
              .arguments = arguments,
              .argument_count = BRIM__COUNT(arguments) },
    .add_transform = add,
};

/*
 * trivial_augment.c: `trivial_augment`: one of fourteen operations at one of 31 strengths,
 * as torchvision's TrivialAugmentWide: nearest pixels, shears about the upper left corner.
 *
 * As in torchvision, strengths are float32 and made by linspace.
 */
#include "transform/geometry.h"
#include "transform/stages.h"

enum { FILL, SEED, ON };
enum { BINS = 31 };

enum operation {
    IDENTITY,
    SHEAR_X,
    SHEAR_Y,
    TRANSLATE_X,
    TRANSLATE_Y,
    ROTATE,
    BRIGHTNESS,
    COLOR,
    CONTRAST,
    SHARPNESS,
    POSTERIZE,
    SOLARIZE,
    AUTOCONTRAST,
    EQUALIZE,
    OPERATIONS,
};

struct trivial_augment {
    uint8_t fill[4];
};

/* Strengths from 0 to `most`; `either` way with the same probability. */
static const struct {
    float most;
    bool either;
} ranges[OPERATIONS] = {
    [SHEAR_X] = { 0.99f, true },     [SHEAR_Y] = { 0.99f, true },
    [TRANSLATE_X] = { 32.0f, true }, [TRANSLATE_Y] = { 32.0f, true },
    [ROTATE] = { 135.0f, true },     [BRIGHTNESS] = { 0.99f, true },
    [COLOR] = { 0.99f, true },       [CONTRAST] = { 0.99f, true },
    [SHARPNESS] = { 0.99f, true },   [POSTERIZE] = { 6.0f, false },
    [SOLARIZE] = { 255.0f, false },
};

/* linspace(0, most, BINS)[bin] in float32: counted from the nearer end. */
static double strength(float most, uint32_t bin) {
    const float step = most / (float)(BINS - 1);
    return (double)(bin < BINS / 2 ? step * (float)bin : most - step * (float)(BINS - 1 - bin));
}

static void run_affine(const struct brim__act *act, const struct brim__image *from,
                       const struct brim__image *to, uint8_t *scratch) {
    (void)scratch;
    brim__image_affine(from, to, act->pixels.number, false, act->pixels.color);
}

static void run_sharpness(const struct brim__act *act, const struct brim__image *from,
                          const struct brim__image *to, uint8_t *scratch) {
    (void)scratch;
    brim__image_sharpness(from, to, act->pixels.number[0]);
}

static void run_color(const struct brim__act *act, const struct brim__image *from,
                      const struct brim__image *to, uint8_t *scratch) {
    (void)from, (void)scratch;
    const double number = act->pixels.number[0];
    switch ((enum operation)act->pixels.number[1]) {
    case BRIGHTNESS:
        brim__image_brightness(to, number);
        return;
    case COLOR:
        brim__image_saturation(to, number);
        return;
    case CONTRAST:
        brim__image_contrast(to, number);
        return;
    case POSTERIZE:
        brim__image_posterize(to, (uint32_t)number);
        return;
    case SOLARIZE:
        brim__image_solarize(to, (uint32_t)number);
        return;
    case AUTOCONTRAST:
        brim__image_autocontrast(to);
        return;
    case EQUALIZE:
        brim__image_equalize(to);
        return;
    default:
        return;
    }
}

/* The matrix that maps pixels to their origins; false: the operation does not move the image. */
static bool movement(enum operation operation, double amount, const struct brim__acts *acts,
                     double m[6]) {
    const double stay[6] = { 1, 0, 0, 0, 1, 0 };
    memcpy(m, stay, sizeof stay);
    switch (operation) {
    case SHEAR_X:
        m[1] = amount;
        return true;
    case SHEAR_Y:
        m[3] = amount;
        return true;
    case TRANSLATE_X:
        m[2] = -(double)(int)amount;
        return true;
    case TRANSLATE_Y:
        m[5] = -(double)(int)amount;
        return true;
    case ROTATE:
        brim__image_rotation(acts->width, acts->height, amount, m);
        return true;
    default:
        return false;
    }
}

static brim_status resolve(const void *self, const struct brim__picture_draws *draws,
                           struct brim__acts *acts) {
    const struct trivial_augment *augment = self;
    const enum operation operation = (enum operation)brim__draw_below(draws, 0, OPERATIONS);
    const uint32_t bin = (uint32_t)brim__draw_below(draws, 1, BINS);
    double amount = strength(ranges[operation].most, bin);
    if (ranges[operation].either && brim__draw_below(draws, 2, 2) == 1) {
        amount = -amount;
    }
    if (operation == IDENTITY) {
        return BRIM_OK;
    }
    double m[6];
    if (movement(operation, amount, acts, m)) {
        struct brim__act *act = brim__act_pixels(acts, run_affine, false);
        memcpy(act->pixels.number, m, sizeof m);
        memcpy(act->pixels.color, augment->fill, 4);
        return BRIM_OK;
    }
    struct brim__act *act = brim__act_pixels(
        acts, operation == SHARPNESS ? run_sharpness : run_color, operation != SHARPNESS);
    if (operation == POSTERIZE) {
        amount = 8 - (int)(amount + 0.5);
    } else if (operation == SOLARIZE) {
        /* from 255 down; if the threshold is not an integer, the next integer is used */
        const double threshold = 255.0 - amount;
        amount = (double)(int)threshold + (threshold > (double)(int)threshold ? 1 : 0);
    } else {
        amount = 1.0 + amount;
    }
    act->pixels.number[0] = amount;
    act->pixels.number[1] = operation;
    return BRIM_OK;
}

static brim_status add(const struct brim__use *use, struct brim__program *program) {
    struct trivial_augment *self;
    uint32_t pictures;
    brim_status status = brim__arena_take(program->arena, sizeof *self, &self);
    if (status == BRIM_OK) {
        status = brim__geometry_color(use, FILL, self->fill);
    }
    if (status == BRIM_OK) {
        status = brim__picture_on(program, use, ON, false, &pictures, NULL);
    }
    if (status != BRIM_OK) {
        return status;
    }
    const struct brim__op op = { .resolve = resolve,
                                 .self = self,
                                 .key = brim__geometry_key(program, use, SEED, true),
                                 .pixels = true };
    return brim__geometry_add(program, &op, pictures, 0, 0, 0);
}

static const brim_argument_info arguments[] = {
    [FILL] = BRIM__FILL_ARGUMENT("colour of uncovered pixels: one value, or one for each channel"),
    [SEED] = BRIM__DRAWS_SEED_ARGUMENT,
    [ON] = BRIM__IMAGES_ARGUMENT,
};

const struct brim__stage brim__stage_trivial_augment = {
    .info = { .name = "trivial_augment",
              .summary = "one random colour or geometric operation, of random strength",
              .example = "trivial_augment",
              .room = BRIM_ROOM_TRANSFORM,
              .version = 1,
              .arguments = arguments,
              .argument_count = BRIM__COUNT(arguments) },
    .add_transform = add,
};

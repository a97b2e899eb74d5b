/*
 * color_jitter.c: `color_jitter`: brightness, contrast, saturation and hue changed by
 * random factors, in a random order, as torchvision's ColorJitter.
 *
 * All four are one act. Its numbers are the four factors, and then their order. A factor whose
 * range allows no change is not drawn and not applied.
 */
#include "transform/geometry.h"
#include "transform/stages.h"

enum { BRIGHTNESS, CONTRAST, SATURATION, HUE, P, SEED, ON, KINDS = 4 };

struct color_jitter {
    double low[KINDS], high[KINDS];
    bool used[KINDS];
    double p;
};

static void run(const struct brim__act *act, const struct brim__image *from,
                const struct brim__image *to, uint8_t *scratch) {
    (void)from, (void)scratch;
    static void (*const change[KINDS])(const struct brim__image *, double) = {
        [BRIGHTNESS] = brim__image_brightness,
        [CONTRAST] = brim__image_contrast,
        [SATURATION] = brim__image_saturation,
        [HUE] = brim__image_hue,
    };
    static const double unchanged[KINDS] = { 1, 1, 1, 0 };
    for (int i = 0; i < KINDS; i++) {
        const int kind = (int)act->pixels.number[KINDS + i];
        const double factor = act->pixels.number[kind];
        if (factor != unchanged[kind]) {
            change[kind](to, factor);
        }
    }
}

static brim_status resolve(const void *self, const struct brim__picture_draws *draws,
                           struct brim__acts *acts) {
    const struct color_jitter *jitter = self;
    if (brim__draw(draws, 0) >= jitter->p) {
        return BRIM_OK;
    }
    int order[KINDS] = { BRIGHTNESS, CONTRAST, SATURATION, HUE };
    for (uint32_t left = KINDS; left > 1; left--) {
        const uint64_t chosen = brim__draw_below(draws, left, left);
        const int kept = order[chosen];
        order[chosen] = order[left - 1];
        order[left - 1] = kept;
    }
    struct brim__act *act = brim__act_pixels(acts, run, true);
    for (uint32_t i = 0; i < KINDS; i++) {
        act->pixels.number[i] =
            jitter->used[i] ? brim__draw_between(draws, 1 + i, jitter->low[i], jitter->high[i])
                            : (i == HUE ? 0.0 : 1.0);
        act->pixels.number[KINDS + i] = order[i];
    }
    return BRIM_OK;
}

/* One value b means the range from middle - b to middle + b. */
static brim_status read_range(const struct brim__use *use, size_t kind, struct color_jitter *self) {
    const double middle = kind == HUE ? 0.0 : 1.0;
    double *low = &self->low[kind], *high = &self->high[kind];
    const brim_status status = brim__geometry_range(use, kind, low, high);
    if (status != BRIM_OK) {
        return status;
    }
    if (use->values[kind].count == 1) {
        const double width = *low;
        if (width < 0.0) { /* only hue allows a negative value */
            return brim__fail(BRIM_STATUS_INVALID,
                              "color_jitter: hue=%g: give how far it may turn, 0 or more, or "
                              "low,high",
                              width);
        }
        *low = kind != HUE && width > 1.0 ? 0.0 : middle - width;
        *high = middle + width;
    }
    self->used[kind] = *low != middle || *high != middle;
    return BRIM_OK;
}

static brim_status add(const struct brim__use *use, struct brim__program *program) {
    struct color_jitter *self;
    uint32_t pictures;
    brim_status status = brim__arena_take(program->arena, sizeof *self, &self);
    for (size_t kind = 0; status == BRIM_OK && kind < KINDS; kind++) {
        status = read_range(use, kind, self);
    }
    if (status == BRIM_OK) {
        status = brim__picture_on(program, use, ON, false, &pictures, NULL);
    }
    if (status != BRIM_OK) {
        return status;
    }
    if (!self->used[BRIGHTNESS] && !self->used[CONTRAST] && !self->used[SATURATION] &&
        !self->used[HUE]) {
        return brim__fail(BRIM_STATUS_INVALID, "color_jitter: nothing to change: give brightness=, "
                                               "contrast=, saturation= or hue=");
    }
    self->p = brim__item(use, P)->real;
    const struct brim__op op = { .resolve = resolve,
                                 .self = self,
                                 .key = brim__geometry_key(program, use, SEED,
                                                           brim__geometry_draws(self->p, true)),
                                 .pixels = true };
    return brim__geometry_add(program, &op, pictures, 0, 0, 0);
}

#define FACTOR_ARGUMENT(of, text)                                                              \
    {                                                                                          \
        .name = of, .type = BRIM_TYPE_REAL, .flags = BRIM_ARGUMENT_FLAG_LIST, .fallback = "0", \
        .least = 0, .most = 1000, .help = text                                                 \
    }

static const brim_argument_info arguments[] = {
    [BRIGHTNESS] =
        FACTOR_ARGUMENT("brightness", "b: a factor from 1 - b (at least 0) to 1 + b; or low,high"),
    [CONTRAST] = FACTOR_ARGUMENT("contrast", "as brightness="),
    [SATURATION] = FACTOR_ARGUMENT("saturation", "as brightness="),
    [HUE] = { .name = "hue",
              .type = BRIM_TYPE_REAL,
              .flags = BRIM_ARGUMENT_FLAG_LIST,
              .fallback = "0",
              .least = -0.5,
              .most = 0.5,
              .help = "h: a turn from -h to h of the full circle; or low,high" },
    [P] = BRIM__P_ARGUMENT("1", 0),
    [SEED] = BRIM__DRAWS_SEED_ARGUMENT,
    [ON] = BRIM__IMAGES_ARGUMENT,
};

const struct brim__stage brim__stage_color_jitter = {
    .info = { .name = "color_jitter",
              .summary = "changes brightness, contrast, saturation and hue at random",
              .example = "color_jitter brightness=0.4 contrast=0.4 saturation=0.4 hue=0.1",
              .room = BRIM_ROOM_TRANSFORM,
              .version = 1,
              .arguments = arguments,
              .argument_count = BRIM__COUNT(arguments) },
    .add_transform = add,
};

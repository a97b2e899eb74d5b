/*
 * rotate.c: `rotate DEGREES`: turned about the centre by a random angle, as torchvision's
 * RandomRotation and Pillow's Image.rotate. The size stays; corners are cut off, and uncovered
 * pixels are filled. Masks and boxes turn with the image.
 *
 * With bilinear and alpha the colours are weighted by it, as Pillow does.
 */
#include "transform/geometry.h"
#include "transform/stages.h"

enum { DEGREES, EXACT, FILTER, FILL, MASK_FILL, P, SEED, ON };
enum { NEAREST, BILINEAR };
enum { BY_ALPHA = 6, SMOOTH }; /* numbers of the act, after the matrix */

struct rotate {
    double low, high;
    bool bilinear;
    struct brim__fill fill;
    double p;
};

static void run(const struct brim__act *act, const struct brim__image *from,
                const struct brim__image *to, uint8_t *scratch) {
    (void)scratch;
    const double *number = act->pixels.number;
    const bool by_alpha = number[BY_ALPHA] != 0.0;
    if (by_alpha) {
        brim__image_premultiply(from);
    }
    brim__image_affine(from, to, number, number[SMOOTH] != 0.0, act->pixels.color);
    if (by_alpha) {
        brim__image_unpremultiply(to);
    }
}

static brim_status resolve(const void *self, const struct brim__picture_draws *draws,
                           struct brim__acts *acts) {
    const struct rotate *rotate = self;
    if (brim__draw(draws, 0) >= rotate->p) {
        return BRIM_OK;
    }
    struct brim__act *act = brim__act_pixels(acts, run, false);
    double *m = act->pixels.number, *map = act->map;
    const bool bilinear = rotate->bilinear && !acts->mask;
    brim__image_rotation(acts->width, acts->height,
                         brim__draw_between(draws, 1, rotate->low, rotate->high), m);
    m[BY_ALPHA] = acts->alpha && acts->pixel == 4 && bilinear;
    m[SMOOTH] = bilinear;
    brim__fill_pixel(&rotate->fill, acts, act->pixels.color);
    /* m maps a pixel to its origin; the inverse of a rotation is its transpose */
    map[0] = m[0];
    map[1] = m[3];
    map[3] = m[1];
    map[4] = m[4];
    map[2] = -(map[0] * m[2] + map[1] * m[5]);
    map[5] = -(map[3] * m[2] + map[4] * m[5]);
    return BRIM_OK;
}

static brim_status add(const struct brim__use *use, struct brim__program *program) {
    struct rotate *self;
    uint32_t pictures, boxes;
    brim_status status = brim__arena_take(program->arena, sizeof *self, &self);
    if (status == BRIM_OK) {
        status = brim__geometry_range(use, DEGREES, &self->low, &self->high);
    }
    if (status == BRIM_OK) {
        status = brim__geometry_fill(use, FILL, MASK_FILL, &self->fill);
    }
    if (status == BRIM_OK) {
        status = brim__picture_on(program, use, ON, true, &pictures, &boxes);
    }
    if (status != BRIM_OK) {
        return status;
    }
    const bool exact = brim__item(use, EXACT)->integer != 0;
    if (exact && use->values[DEGREES].count != 1) {
        return brim__fail(BRIM_STATUS_INVALID, "rotate: exact=yes takes one angle, not a range");
    }
    if (!exact && use->values[DEGREES].count == 1) {
        if (self->low < 0) {
            return brim__fail(BRIM_STATUS_INVALID,
                              "rotate: %g means angles from -%g to %g: write it without the "
                              "sign, or exact=yes for this angle alone",
                              self->low, -self->low, -self->low);
        }
        self->low = -self->high;
    }
    self->bilinear = brim__item(use, FILTER)->integer == BILINEAR;
    self->p = brim__item(use, P)->real;
    const struct brim__op op = { .resolve = resolve,
                                 .self = self,
                                 .key = brim__geometry_key(
                                     program, use, SEED,
                                     brim__geometry_draws(self->p, self->low < self->high)),
                                 .pixels = true };
    return brim__geometry_add(program, &op, pictures, boxes, 0, 0);
}

static const brim_argument_info arguments[] = {
    [DEGREES] = { .name = "degrees",
                  .type = BRIM_TYPE_REAL,
                  .flags = BRIM_ARGUMENT_FLAG_REQUIRED | BRIM_ARGUMENT_FLAG_POSITIONAL |
                           BRIM_ARGUMENT_FLAG_LIST,
                  .least = -360,
                  .most = 360,
                  .help = "d: an angle from -d to d, counter-clockwise; or low high" },
    [EXACT] = { .name = "exact",
                .type = BRIM_TYPE_YESNO,
                .fallback = "no",
                .help = "yes: always by exactly this angle" },
    [FILTER] = { .name = "filter",
                 .type = BRIM_TYPE_CHOICE,
                 .fallback = "nearest",
                 .choices = "nearest|bilinear",
                 .help = "how pixels are taken; masks always use nearest" },
    [FILL] = BRIM__FILL_ARGUMENT("colour of uncovered pixels: one value, or one for each channel"),
    [MASK_FILL] = BRIM__MASK_FILL_ARGUMENT("uncovered"),
    [P] = BRIM__P_ARGUMENT("1", 0),
    [SEED] = BRIM__DRAWS_SEED_ARGUMENT,
    [ON] = BRIM__PICTURES_ARGUMENT,
};

const struct brim__stage brim__stage_rotate = {
    .info = { .name = "rotate",
              .summary = "rotates about the centre, by a random or an exact angle",
              .example = "rotate 15 filter=bilinear",
              .room = BRIM_ROOM_TRANSFORM,
              .version = 1,
              .arguments = arguments,
              .argument_count = BRIM__COUNT(arguments) },
    .add_transform = add,
};

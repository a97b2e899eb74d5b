/*
 * random_resized_crop.c: `random_resized_crop`: a random part of random area and
 * aspect ratio, resized; torchvision's RandomResizedCrop.
 *
 * Up to ten times an area, uniform in `scale`, and a ratio, log-uniform in `ratio`, are drawn. The
 * first part that fits is used, at a uniform position. If none fits, the largest part in the middle
 * that `ratio` allows is used.
 */
#include "base/real.h"
#include "transform/geometry.h"
#include "transform/stages.h"

enum { SIZE, SCALE, RATIO, FILTER, SEED, ON };

#define TRIES 10
/* draws of a try; positions are drawn by brim__draw_below, which has separate numbers */
enum { DRAW_AREA, DRAW_RATIO, DRAWS };

struct crop {
    uint32_t width, height;
    double scale[2], ratio[2], log_ratio[2];
    enum brim__filter filter;
};

/* round(x), halves to even as Python does; x >= 0. */
static uint32_t nearest(double x) {
    if (!(x < 0x1p31)) {
        return UINT32_MAX;
    }
    const uint32_t whole = (uint32_t)x;
    const double rest = x - whole;
    return whole + (rest > 0.5 || (rest == 0.5 && whole % 2 == 1));
}

static brim_status resolve(const void *object, const struct brim__picture_draws *draws,
                           struct brim__acts *acts) {
    const struct crop *self = object;
    const double area = (double)acts->width * acts->height;
    uint32_t width, height;
    uint64_t x, y;
    for (uint32_t try = 0; try < TRIES; try++) {
        const uint32_t draw = try * DRAWS;
        const double part =
            area * brim__draw_between(draws, draw + DRAW_AREA, self->scale[0], self->scale[1]);
        const double ratio = brim__exp(
            brim__draw_between(draws, draw + DRAW_RATIO, self->log_ratio[0], self->log_ratio[1]));
        width = nearest(brim__sqrt(part * ratio));
        height = nearest(brim__sqrt(part / ratio));
        if (width >= 1 && width <= acts->width && height >= 1 && height <= acts->height) {
            x = brim__draw_below(draws, draw, (uint64_t)acts->width - width + 1);
            y = brim__draw_below(draws, draw + 1, (uint64_t)acts->height - height + 1);
            goto found;
        }
    }
    const double ratio = (double)acts->width / acts->height;
    width = acts->width;
    height = acts->height;
    if (ratio < self->ratio[0]) {
        height = (uint32_t)brim__min(height, brim__max(1, nearest(width / self->ratio[0])));
    } else if (ratio > self->ratio[1]) {
        width = (uint32_t)brim__min(width, brim__max(1, nearest(height * self->ratio[1])));
    }
    x = (acts->width - width) / 2;
    y = (acts->height - height) / 2;
found:
    brim__act_crop(acts, (uint32_t)x, (uint32_t)y, width, height);
    brim__act_resize(acts, self->width, self->height, self->filter);
    return BRIM_OK;
}

static brim_status add(const struct brim__use *use, struct brim__program *program) {
    struct crop *self;
    uint32_t pictures, boxes;
    brim_status status = brim__arena_take(program->arena, sizeof *self, &self);
    if (status == BRIM_OK) {
        status = brim__geometry_size(use, SIZE, &self->width, &self->height);
    }
    if (status == BRIM_OK) {
        status = brim__geometry_range(use, SCALE, &self->scale[0], &self->scale[1]);
    }
    if (status == BRIM_OK) {
        status = brim__geometry_range(use, RATIO, &self->ratio[0], &self->ratio[1]);
    }
    if (status == BRIM_OK) {
        status = brim__picture_on(program, use, ON, true, &pictures, &boxes);
    }
    if (status != BRIM_OK) {
        return status;
    }
    self->filter = brim__geometry_filter(use, FILTER);
    self->log_ratio[0] = brim__log(self->ratio[0]);
    self->log_ratio[1] = brim__log(self->ratio[1]);
    const struct brim__op op = { .resolve = resolve,
                                 .self = self,
                                 .key = brim__geometry_key(program, use, SEED, true),
                                 .resizes = true,
                                 .least_width = self->width,
                                 .least_height = self->height,
                                 .filter = self->filter };
    return brim__geometry_add(program, &op, pictures, boxes, self->width, self->height);
}

static const brim_argument_info arguments[] = {
    [SIZE] = BRIM__SIZE_ARGUMENT("side of a square"),
    [SCALE] = { .name = "scale",
                .type = BRIM_TYPE_REAL,
                .flags = BRIM_ARGUMENT_FLAG_LIST,
                .fallback = "0.08,1",
                .least = 1e-9,
                .most = 1,
                .help = "area of the part, smallest and largest, as a share of the image's" },
    [RATIO] = { .name = "ratio",
                .type = BRIM_TYPE_REAL,
                .flags = BRIM_ARGUMENT_FLAG_LIST,
                .fallback = "0.75,1.3333333333333333",
                .least = 1e-4,
                .most = 1e4,
                .help = "width to height of the part, smallest and largest" },
    [FILTER] = BRIM__FILTER_ARGUMENT,
    [SEED] = BRIM__DRAWS_SEED_ARGUMENT,
    [ON] = BRIM__PICTURES_ARGUMENT,
};

const struct brim__stage brim__stage_random_resized_crop = {
    .info = { .name = "random_resized_crop",
              .summary = "crops a random part of random size and shape, and resizes it",
              .example = "random_resized_crop 224 scale=0.35,1",
              .room = BRIM_ROOM_TRANSFORM,
              .version = 1,
              .arguments = arguments,
              .argument_count = BRIM__COUNT(arguments) },
    .add_transform = add,
};

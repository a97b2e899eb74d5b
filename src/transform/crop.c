/*
 * crop.c: `crop` and `center_crop`: one part of every image.
 *
 * The centre is torchvision's: int(round((side - size) / 2)), halves to even. An image that is
 * smaller than the part is a bad sample, or is padded with pad=yes.
 */
#include "transform/geometry.h"
#include "transform/stages.h"

struct crop {
    const char *stage;
    uint32_t width, height;
    uint32_t x, y;
    bool center, pad;
    struct brim__fill fill;
};

/* round(n / 2), halves to even. */
static uint32_t half(uint32_t n) {
    return n / 2 + (n % 4 == 3);
}

static brim_status resolve(const void *object, const struct brim__picture_draws *draws,
                           struct brim__acts *acts) {
    const struct crop *self = object;
    (void)draws;
    const uint64_t right = self->center ? self->width : (uint64_t)self->x + self->width;
    const uint64_t bottom = self->center ? self->height : (uint64_t)self->y + self->height;
    if (self->pad && (acts->width < right || acts->height < bottom)) {
        const uint32_t more_x = acts->width < right ? (uint32_t)right - acts->width : 0;
        const uint32_t more_y = acts->height < bottom ? (uint32_t)bottom - acts->height : 0;
        const uint32_t left = self->center ? more_x / 2 : 0, top = self->center ? more_y / 2 : 0;
        brim__act_pad(acts, left, top, more_x - left, more_y - top, BRIM__EDGE_CONSTANT,
                      &self->fill);
    }
    if (acts->width < right || acts->height < bottom) {
        return brim__fail(BRIM_STATUS_CORRUPT,
                          "%s: the image is %ux%u, too small for a part of %ux%u%s: resize it "
                          "before, or give pad=yes",
                          self->stage, acts->width, acts->height, self->width, self->height,
                          self->center ? "" : " there");
    }
    brim__act_crop(acts, self->center ? half(acts->width - self->width) : self->x,
                   self->center ? half(acts->height - self->height) : self->y, self->width,
                   self->height);
    return BRIM_OK;
}

static brim_status add_crop(const struct brim__use *use, struct brim__program *program,
                            const struct crop *given, size_t size, size_t fill, size_t mask_fill,
                            size_t on) {
    struct crop *self;
    uint32_t pictures, boxes;
    brim_status status = brim__arena_take(program->arena, sizeof *self, &self);
    if (status != BRIM_OK) {
        return status;
    }
    *self = *given;
    self->stage = use->stage->info.name;
    status = brim__geometry_size(use, size, &self->width, &self->height);
    if (status == BRIM_OK) {
        status = brim__geometry_fill(use, fill, mask_fill, &self->fill);
    }
    if (status == BRIM_OK) {
        status = brim__picture_on(program, use, on, true, &pictures, &boxes);
    }
    const struct brim__op op = { .resolve = resolve, .self = self, .pixels = self->pad };
    for (uint32_t f = 0; status == BRIM_OK && self->pad && f < program->field_count; f++) {
        if (pictures >> f & 1) { /* an image that is padded is in a buffer before it is cropped */
            struct brim__picture *picture = brim__picture_of(&program->field[f]);
            brim__picture_buffer(picture, picture->extent.width, picture->extent.height,
                                 self->x + self->width, self->y + self->height);
        }
    }
    return status != BRIM_OK
               ? status
               : brim__geometry_add(program, &op, pictures, boxes, self->width, self->height);
}

#define FILL_HELP "the colour of the padding, 0 to 255; one value or one for each channel"

/* --------------------------------------------------------------------- crop */

enum { SIZE, X, Y, PAD, FILL, MASK_FILL, ON };

static brim_status add(const struct brim__use *use, struct brim__program *program) {
    const struct crop given = { .x = (uint32_t)brim__item(use, X)->integer,
                                .y = (uint32_t)brim__item(use, Y)->integer,
                                .pad = brim__item(use, PAD)->integer != 0 };
    return add_crop(use, program, &given, SIZE, FILL, MASK_FILL, ON);
}

static const brim_argument_info arguments[] = {
    [SIZE] = BRIM__SIZE_ARGUMENT("side of a square"),
    [X] = { .name = "x",
            .type = BRIM_TYPE_INTEGER,
            .fallback = "0",
            .least = 0,
            .most = BRIM__MAX_SIDE,
            .help = "first column" },
    [Y] = { .name = "y",
            .type = BRIM_TYPE_INTEGER,
            .fallback = "0",
            .least = 0,
            .most = BRIM__MAX_SIDE,
            .help = "first row" },
    [PAD] = BRIM__PAD_ARGUMENT,
    [FILL] = BRIM__FILL_ARGUMENT(FILL_HELP),
    [MASK_FILL] = BRIM__MASK_FILL_ARGUMENT("padding"),
    [ON] = BRIM__PICTURES_ARGUMENT,
};

const struct brim__stage brim__stage_crop = {
    .info = { .name = "crop",
              .summary = "crops the same part of every image",
              .example = "crop 224 224 x=16 y=16",
              .room = BRIM_ROOM_TRANSFORM,
              .version = 1,
              .arguments = arguments,
              .argument_count = BRIM__COUNT(arguments) },
    .add_transform = add,
};

/* -------------------------------------------------------------- center_crop */

enum { CENTER_SIZE, CENTER_PAD, CENTER_FILL, CENTER_MASK_FILL, CENTER_ON };

static brim_status add_center(const struct brim__use *use, struct brim__program *program) {
    const struct crop given = { .center = true, .pad = brim__item(use, CENTER_PAD)->integer != 0 };
    return add_crop(use, program, &given, CENTER_SIZE, CENTER_FILL, CENTER_MASK_FILL, CENTER_ON);
}

static const brim_argument_info center_arguments[] = {
    [CENTER_SIZE] = BRIM__SIZE_ARGUMENT("side of a square"),
    [CENTER_PAD] = BRIM__PAD_ARGUMENT,
    [CENTER_FILL] = BRIM__FILL_ARGUMENT(FILL_HELP),
    [CENTER_MASK_FILL] = BRIM__MASK_FILL_ARGUMENT("padding"),
    [CENTER_ON] = BRIM__PICTURES_ARGUMENT,
};

const struct brim__stage brim__stage_center_crop = {
    .info = { .name = "center_crop",
              .summary = "crops the middle of every image",
              .example = "center_crop 224",
              .room = BRIM_ROOM_TRANSFORM,
              .version = 1,
              .arguments = center_arguments,
              .argument_count = BRIM__COUNT(center_arguments) },
    .add_transform = add_center,
};

/*
 * random_crop.c: `random_crop`: a part of fixed size at a random position, of the image or of the
 * padded image, as torchvision's RandomCrop.
 */
#include "transform/geometry.h"
#include "transform/stages.h"

enum { SIZE, PADDING, PAD, EDGE, FILL, MASK_FILL, SEED, ON };
enum { DRAW_X, DRAW_Y };

struct crop {
    uint32_t width, height, padding;
    bool pad;
    enum brim__edge edge;
    struct brim__fill fill;
};

static brim_status resolve(const void *object, const struct brim__picture_draws *draws,
                           struct brim__acts *acts) {
    const struct crop *self = object;
    /* as torchvision: first padding on all sides, then the missing pixels on both sides */
    uint32_t x = self->padding, y = self->padding;
    const uint64_t width = acts->width + (uint64_t)2 * x, height = acts->height + (uint64_t)2 * y;
    if (self->pad && width < self->width) {
        x += self->width - (uint32_t)width;
    }
    if (self->pad && height < self->height) {
        y += self->height - (uint32_t)height;
    }
    const bool reflects = self->edge == BRIM__EDGE_REFLECT;
    if (reflects && (x >= acts->width || y >= acts->height)) {
        return brim__fail(BRIM_STATUS_CORRUPT,
                          "random_crop: an image of %ux%u cannot be reflected by %u pixels: give "
                          "edge=constant or resize it before",
                          acts->width, acts->height, (unsigned)brim__max(x, y));
    }
    if (x > 0 || y > 0) {
        brim__act_pad(acts, x, y, x, y, self->edge, &self->fill);
    }
    if (acts->width < self->width || acts->height < self->height) {
        return brim__fail(BRIM_STATUS_CORRUPT,
                          "random_crop: the image is %ux%u, too small for a part of %ux%u: resize "
                          "it before, or give pad=yes",
                          acts->width, acts->height, self->width, self->height);
    }
    const uint64_t left = brim__draw_below(draws, DRAW_X, (uint64_t)acts->width - self->width + 1);
    const uint64_t top = brim__draw_below(draws, DRAW_Y, (uint64_t)acts->height - self->height + 1);
    brim__act_crop(acts, (uint32_t)left, (uint32_t)top, self->width, self->height);
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
        status = brim__geometry_fill(use, FILL, MASK_FILL, &self->fill);
    }
    if (status == BRIM_OK) {
        status = brim__picture_on(program, use, ON, true, &pictures, &boxes);
    }
    if (status != BRIM_OK) {
        return status;
    }
    self->padding = (uint32_t)brim__item(use, PADDING)->integer;
    self->pad = brim__item(use, PAD)->integer != 0;
    self->edge = (enum brim__edge)brim__item(use, EDGE)->integer;
    const struct brim__op op = { .resolve = resolve,
                                 .self = self,
                                 .key = brim__geometry_key(program, use, SEED, true),
                                 .pixels = self->padding > 0 || self->pad };
    /* a padded image is in a buffer, larger than before and after */
    for (uint32_t f = 0; f < program->field_count && op.pixels; f++) {
        if (pictures >> f & 1) {
            struct brim__picture *picture = brim__picture_of(&program->field[f]);
            const uint32_t more = 2 * self->padding;
            /* the missing pixels are added on both sides */
            brim__picture_buffer(picture, picture->extent.width + more,
                                 picture->extent.height + more, self->pad ? 2 * self->width : 0,
                                 self->pad ? 2 * self->height : 0);
        }
    }
    return brim__geometry_add(program, &op, pictures, boxes, self->width, self->height);
}

static const brim_argument_info arguments[] = {
    [SIZE] = BRIM__SIZE_ARGUMENT("side of a square"),
    [PADDING] = { .name = "padding",
                  .type = BRIM_TYPE_INTEGER,
                  .fallback = "0",
                  .least = 0,
                  .most = 4096,
                  .help = "pixels added on every side first" },
    [PAD] = BRIM__PAD_ARGUMENT,
    [EDGE] = { .name = "edge",
               .type = BRIM_TYPE_CHOICE,
               .fallback = "constant",
               .choices = "constant|edge|reflect|symmetric",
               .help = "the padding: one colour, the last pixel, or the image mirrored" },
    [FILL] = BRIM__FILL_ARGUMENT("the colour, 0 to 255; one value or one for each channel"),
    [MASK_FILL] = BRIM__MASK_FILL_ARGUMENT("padding"),
    [SEED] = BRIM__DRAWS_SEED_ARGUMENT,
    [ON] = BRIM__PICTURES_ARGUMENT,
};

const struct brim__stage brim__stage_random_crop = {
    .info = { .name = "random_crop",
              .summary = "crops a part at a random position",
              .example = "random_crop 32 padding=4",
              .room = BRIM_ROOM_TRANSFORM,
              .version = 1,
              .arguments = arguments,
              .argument_count = BRIM__COUNT(arguments) },
    .add_transform = add,
};

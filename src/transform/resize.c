/*
 * resize.c: `resize`: images to another size, with the pixels that Pillow gives.
 *
 * One number is the shorter side, and the longer one follows as torchvision has it:
 * int(size * long / short). Two numbers are height and width.
 *
 * antialias=no is tf.image.resize with its defaults: float32 values, not rounded.
 */
#include "transform/geometry.h"
#include "transform/stages.h"

enum { SIZE, FILTER, MAX, ANTIALIAS, ON };

struct resize {
    bool exact;
    uint32_t width, height; /* exact */
    uint32_t size, max;     /* of the shorter side; max 0: none */
    enum brim__filter filter;
    bool plain; /* of images; masks are resized by nearest all the same */
};

static void resize(const struct resize *self, struct brim__acts *acts, uint64_t width,
                   uint64_t height) {
    if (self->plain && !acts->mask) {
        brim__act_plain(acts, (uint32_t)width, (uint32_t)height, self->filter);
    } else {
        brim__act_resize(acts, (uint32_t)width, (uint32_t)height, self->filter);
    }
}

static brim_status resolve(const void *object, const struct brim__picture_draws *draws,
                           struct brim__acts *acts) {
    const struct resize *self = object;
    (void)draws;
    if (self->exact) {
        resize(self, acts, self->width, self->height);
        return BRIM_OK;
    }
    const bool tall = acts->height > acts->width;
    const uint64_t shorter = tall ? acts->width : acts->height;
    const uint64_t longer = tall ? acts->height : acts->width;
    uint64_t small = self->size, large = self->size * longer / shorter;
    if (self->max != 0 && large > self->max) {
        small = brim__max(1, self->max * small / large);
        large = self->max;
    }
    if (large > BRIM__MAX_SIDE) {
        return brim__fail(BRIM_STATUS_CORRUPT,
                          "resize: an image of %ux%u would get a side of %llu pixels: give max= to "
                          "bound the longer side",
                          acts->width, acts->height, (unsigned long long)large);
    }
    resize(self, acts, tall ? small : large, tall ? large : small);
    return BRIM_OK;
}

static brim_status add(const struct brim__use *use, struct brim__program *program) {
    struct resize *self;
    uint32_t pictures, boxes;
    brim_status status = brim__arena_take(program->arena, sizeof *self, &self);
    if (status == BRIM_OK) {
        status = brim__geometry_size(use, SIZE, &self->width, &self->height);
    }
    if (status == BRIM_OK) {
        status = brim__picture_on(program, use, ON, true, &pictures, &boxes);
    }
    if (status != BRIM_OK) {
        return status;
    }
    self->exact = use->values[SIZE].count == 2;
    self->size = self->width;
    self->max = brim__given(use, MAX) ? (uint32_t)brim__item(use, MAX)->integer : 0;
    self->filter = brim__geometry_filter(use, FILTER);
    if (self->max != 0 && (self->exact || self->max < self->size)) {
        return brim__fail(BRIM_STATUS_INVALID,
                          self->exact ? "resize: max= needs one size, that of the shorter side"
                                      : "resize: max= must not be below the size");
    }
    self->plain = brim__item(use, ANTIALIAS)->integer == 0;
    if (self->plain && (self->filter == BRIM__BOX || self->filter == BRIM__LANCZOS)) {
        return brim__fail(BRIM_STATUS_UNSUPPORTED,
                          "resize: antialias=no needs filter=nearest, bilinear or bicubic");
    }
    struct brim__op op = { .resolve = resolve,
                           .self = self,
                           .least_width = self->max != 0 ? 1 : self->width,
                           .least_height = self->max != 0 ? 1 : self->height,
                           .filter = self->filter };
    for (uint32_t f = 0; status == BRIM_OK && f < program->field_count; f++) {
        if ((pictures >> f & 1) == 0) {
            continue;
        }
        const struct brim__picture *picture = brim__picture_of(&program->field[f]);
        const uint32_t longest = self->max != 0 ? self->max : BRIM__MAX_SIDE;
        struct brim__picture_extent extent = { self->width, self->height,
                                               (uint64_t)self->width * self->height, true };
        if (!self->exact && picture->extent.fixed) {
            /* of one size before, of one size after */
            struct brim__acts acts = { .width = picture->extent.width,
                                       .height = picture->extent.height };
            status = resolve(self, NULL, &acts);
            extent = (struct brim__picture_extent){ acts.width, acts.height,
                                                    (uint64_t)acts.width * acts.height, true };
        } else if (!self->exact) {
            extent = (struct brim__picture_extent){ longest, longest,
                                                    (uint64_t)self->size * longest, false };
        }
        op.plain = self->plain && !picture->open.mask;
        op.resizes = !op.plain;
        if (status == BRIM_OK) {
            status = brim__picture_add(program, f, &op, &extent, picture->channels, boxes);
        }
        boxes = 0; /* follow the first */
    }
    return status;
}

static const brim_argument_info arguments[] = {
    [SIZE] = BRIM__SIZE_ARGUMENT("the shorter side"),
    [FILTER] = BRIM__FILTER_ARGUMENT,
    [MAX] = { .name = "max",
              .type = BRIM_TYPE_INTEGER,
              .least = 1,
              .most = BRIM__MAX_SIDE,
              .help = "the most for the longer side; the shorter side then becomes smaller" },
    [ANTIALIAS] = { .name = "antialias",
                    .type = BRIM_TYPE_YESNO,
                    .fallback = "yes",
                    .help = "no: float32 values as from tf.image.resize with its defaults; "
                            "nearest, bilinear or bicubic" },
    [ON] = BRIM__PICTURES_ARGUMENT,
};

const struct brim__stage brim__stage_resize = {
    .info = { .name = "resize",
              .summary = "resizes images, as Pillow does",
              .example = "resize 256 filter=bicubic",
              .room = BRIM_ROOM_TRANSFORM,
              .version = 1,
              .arguments = arguments,
              .argument_count = BRIM__COUNT(arguments) },
    .add_transform = add,
};

/*
 * cutmix.c: `cutmix`: a box of every image is replaced by that of the row before.
 *
 *     +-----------+   lambda ~ Beta(alpha, alpha); the box has sqrt(1 - lambda) of the
 *     |   row r   |   height and of the width, its centre may be any pixel, and what
 *     |     +-----|   hangs over the edge is cut off. lambda then becomes the part of
 *     |     |r - 1|   the image that is left of row r, and by that the labels are
 *     +-----+-----+   mixed. One box for the batch; row 0 takes the last row's.
 *
 * The method is torchvision's CutMix, but the random boxes are others. Pixels are only copied, so
 * fields of any type can be cut; several fields (image and mask) must have the same height and
 * width. Boxes are moved line by line, in place, from the last row to the first, as in mixing.h.
 */
#include "batching/stages.h"

#include "base/real.h"
#include "batching/mixing.h"
#include "order/philox.h"

enum { LAYOUT = BRIM__MIX_ARGUMENTS };
enum { GUESS, CHW, HWC };

/* An image as planes of lines of pixels: CHW has a plane for each channel, HWC has one plane whose
 * pixels have all channels. */
struct image {
    uint64_t offset, row_bytes;
    uint64_t planes, plane_bytes, line_bytes, pixel_bytes;
};

struct cutmix {
    struct brim__mixing mixing;
    uint64_t height, width;
    struct image image[BRIM__MAX_FIELDS];
    uint32_t image_count;
};

struct box {
    uint64_t top, bottom, left, right;
};

/* ----------------------------------------------------------------- running */

/* [centre - half, centre + half), clipped to [0, size). */
static void span(uint64_t centre, uint64_t half, uint64_t size, uint64_t *begin, uint64_t *end) {
    *begin = centre - brim__min(centre, half);
    *end = brim__min(centre + half, size);
}

static struct box draw_box(const struct cutmix *self, const struct brim__batch_draws *draws,
                           double lambda) {
    const double half = 0.5 * brim__sqrt(1 - lambda);
    const uint64_t x = brim__random_below(draws->key, draws->number, draws->epoch, 0, self->width);
    const uint64_t y = brim__random_below(draws->key, draws->number, draws->epoch, 1, self->height);
    struct box box;
    span(x, (uint64_t)(half * (double)self->width), self->width, &box.left, &box.right);
    span(y, (uint64_t)(half * (double)self->height), self->height, &box.top, &box.bottom);
    return box;
}

/* Copies `bytes` bytes of every row, from `first` in row 0 on, to the next row. */
static void roll(uint8_t *first, uint64_t row_bytes, uint64_t rows, uint64_t bytes) {
    uint8_t saved[BRIM__MIX_BLOCK];
    while (bytes > 0) {
        const uint64_t count = brim__min(bytes, sizeof saved);
        uint8_t *row = first + (rows - 1) * row_bytes;
        memcpy(saved, row, count);
        for (; row != first; row -= row_bytes) {
            memcpy(row, row - row_bytes, count);
        }
        memcpy(first, saved, count);
        first += count;
        bytes -= count;
    }
}

static void cut(const struct image *image, const struct box *box,
                const struct brim__batch_call *call) {
    for (uint64_t plane = 0; plane < image->planes; plane++) {
        for (uint64_t y = box->top; y < box->bottom; y++) {
            roll(call->memory + image->offset + plane * image->plane_bytes + y * image->line_bytes +
                     box->left * image->pixel_bytes,
                 image->row_bytes, call->rows, (box->right - box->left) * image->pixel_bytes);
        }
    }
}

static brim_status run(const struct brim__batch_step *step, const struct brim__batch_call *call) {
    const struct cutmix *self = step->self;
    struct brim__batch_draws draws;
    double lambda;
    if (!brim__mixing_begin(&self->mixing, call, &draws, &lambda)) {
        return BRIM_OK;
    }
    const struct box box = draw_box(self, &draws, lambda);
    const uint64_t area = (box.right - box.left) * (box.bottom - box.top);
    if (area == 0) {
        return BRIM_OK;
    }
    for (uint32_t i = 0; i < self->image_count; i++) {
        cut(&self->image[i], &box, call);
    }
    brim__mix_labels(&self->mixing, call,
                     1 - (double)area / ((double)self->width * (double)self->height));
    return BRIM_OK;
}

/* ------------------------------------------------------------------ adding */

static bool is_channels(uint64_t dimension) {
    return dimension == 1 || dimension == 3 || dimension == 4;
}

/* Determines the meaning of each dimension. */
static brim_status understand(const struct brim__batch_field *field, int64_t layout,
                              struct image *image, uint64_t *height, uint64_t *width) {
    const struct brim__shape *shape = &field->shape;
    char text[BRIM__SHAPE_TEXT];
    if (shape->rank != 2 && shape->rank != 3) {
        return brim__fail(
            BRIM_STATUS_INVALID,
            "cutmix: field '%s' is %s, but an image has height and width, and channels before or "
            "after them: use reshape before batch, or name another field with on=",
            field->name, brim__shape_text(shape, text));
    }
    if (shape->rank == 3 && layout == GUESS) {
        const bool first = is_channels(shape->dim[0]), last = is_channels(shape->dim[2]);
        if (first == last) {
            return brim__fail(BRIM_STATUS_INVALID,
                              "cutmix: field '%s' is %s, where the channels (1, 3 or 4) could be "
                              "%s: give layout=chw or layout=hwc",
                              field->name, brim__shape_text(shape, text),
                              first ? "first or last" : "neither first nor last");
        }
        layout = first ? CHW : HWC;
    }
    const bool planes = shape->rank == 3 && layout == CHW;
    const uint64_t element = brim_dtype_bytes(field->dtype);
    *height = shape->dim[planes ? 1 : 0];
    *width = shape->dim[planes ? 2 : 1];
    image->offset = field->offset;
    image->row_bytes = field->row_bytes;
    image->planes = planes ? shape->dim[0] : 1;
    image->pixel_bytes = shape->rank == 3 && !planes ? shape->dim[2] * element : element;
    image->line_bytes = *width * image->pixel_bytes;
    image->plane_bytes = *height * image->line_bytes;
    return *height > 0 && *width > 0
               ? BRIM_OK
               : brim__fail(BRIM_STATUS_INVALID, "cutmix: field '%s' is %s: it has no pixels",
                            field->name, brim__shape_text(shape, text));
}

static brim_status add(const struct brim__use *use, const struct brim__batch_site *site) {
    const int64_t layout = brim__item(use, LAYOUT)->integer;
    struct cutmix *self;
    brim_status status = brim__arena_take(site->arena, sizeof *self, &self);
    if (status == BRIM_OK) {
        status = brim__mixing_init(use, site, &self->mixing);
    }
    for (uint32_t f = 0; status == BRIM_OK && f < site->field_count; f++) {
        uint64_t height = 0, width = 0;
        if ((self->mixing.images >> f & 1) == 0) {
            continue;
        }
        status =
            understand(&site->field[f], layout, &self->image[self->image_count], &height, &width);
        if (status == BRIM_OK && self->image_count > 0 &&
            (height != self->height || width != self->width)) {
            return brim__fail(BRIM_STATUS_INVALID,
                              "cutmix: field '%s' has %llux%llu pixels, but the one before it in "
                              "on= %llux%llu: one box is cut out of all of them",
                              site->field[f].name, (unsigned long long)height,
                              (unsigned long long)width, (unsigned long long)self->height,
                              (unsigned long long)self->width);
        }
        if (status == BRIM_OK) {
            self->height = height;
            self->width = width;
            self->image_count++;
        }
    }
    site->step->run = run;
    site->step->self = self;
    return status;
}

static const brim_argument_info arguments[] = {
    BRIM__MIX_ARGUMENT_ROWS("1"),
    [LAYOUT] = { .name = "layout",
                 .type = BRIM_TYPE_CHOICE,
                 .fallback = "guess",
                 .choices = "guess|chw|hwc",
                 .help = "where the channels are; guess: the first or last dimension, whichever is "
                         "1, 3 or 4" },
};

const struct brim__stage brim__stage_cutmix = {
    .info = { .name = "cutmix",
              .summary =
                  "replaces a box of every image by that of the row before, and mixes the labels",
              .example = "cutmix on=image labels=label",
              .room = BRIM_ROOM_BATCHING,
              .version = 1,
              .arguments = arguments,
              .argument_count = BRIM__COUNT(arguments) },
    .add_batch = add,
};

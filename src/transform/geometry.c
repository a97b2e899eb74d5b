/*
 * geometry.c: arguments and acts that several image stages share; see geometry.h.
 */
#include "transform/geometry.h"

brim_status brim__geometry_size(const struct brim__use *use, size_t argument, uint32_t *width,
                                uint32_t *height) {
    const struct brim__values *size = &use->values[argument];
    if (size->count > 2) {
        return brim__fail(BRIM_STATUS_INVALID, "%s: a size is one number, or height and width",
                          use->stage->info.name);
    }
    *height = (uint32_t)size->items[0].integer;
    *width = (uint32_t)size->items[size->count - 1].integer;
    return BRIM_OK;
}

enum brim__filter brim__geometry_filter(const struct brim__use *use, size_t argument) {
    static const enum brim__filter filters[] = { BRIM__NEAREST, BRIM__BOX, BRIM__BILINEAR,
                                                 BRIM__BICUBIC, BRIM__LANCZOS };
    return filters[brim__item(use, argument)->integer];
}

brim_status brim__geometry_color(const struct brim__use *use, size_t argument, uint8_t color[4]) {
    const struct brim__values *values = &use->values[argument];
    if (values->count > 4) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "%s: a colour is one number, or one for each channel",
                          use->stage->info.name);
    }
    for (size_t c = 0; c < 4; c++) {
        if (c < values->count) {
            color[c] = (uint8_t)values->items[c].integer;
        } else {
            color[c] = c < 3 && values->count == 1 ? color[0] : c == 3 ? 255 : 0;
        }
    }
    return BRIM_OK;
}

brim_status brim__geometry_fill(const struct brim__use *use, size_t color, size_t mask,
                                struct brim__fill *fill) {
    fill->mask = (uint8_t)brim__item(use, mask)->integer;
    return brim__geometry_color(use, color, fill->color);
}

void brim__fill_pixel(const struct brim__fill *fill, const struct brim__acts *acts,
                      uint8_t pixel[4]) {
    if (acts->mask) {
        memset(pixel, fill->mask, 4);
    } else {
        memcpy(pixel, fill->color, 4);
    }
}

brim_status brim__geometry_range(const struct brim__use *use, size_t argument, double *low,
                                 double *high) {
    const struct brim__values *values = &use->values[argument];
    *low = values->items[0].real;
    *high = values->items[values->count - 1].real;
    if (values->count > 2 || *low > *high) {
        return brim__fail(BRIM_STATUS_INVALID, "%s: %s= takes two numbers, the smaller one first",
                          use->stage->info.name,
                          brim_stage_argument_at(&use->stage->info, argument)->name);
    }
    return BRIM_OK;
}

uint64_t brim__geometry_key(struct brim__program *program, const struct brim__use *use, size_t seed,
                            bool draws) {
    if (draws) {
        brim__program_random(program, use->stage->info.name);
    }
    return brim__hash_words(program->key, (uint64_t)brim__item(use, seed)->integer, 0);
}

bool brim__geometry_draws(double p, bool how) {
    return p > 0 && (p < 1 || how);
}

brim_status brim__geometry_add(struct brim__program *program, const struct brim__op *op,
                               uint32_t pictures, uint32_t boxes, uint32_t width, uint32_t height) {
    const struct brim__picture_extent fixed = { width, height, (uint64_t)width * height, true };
    brim_status status = BRIM_OK;
    for (uint32_t f = 0; status == BRIM_OK && f < program->field_count; f++) {
        if (pictures >> f & 1) {
            const struct brim__picture *picture = brim__picture_of(&program->field[f]);
            const struct brim__picture_extent extent = width == 0 ? picture->extent : fixed;
            status = brim__picture_add(program, f, op, &extent, picture->channels, boxes);
            boxes = 0; /* follow the first */
        }
    }
    return status;
}

static void run_pad(const struct brim__act *act, const struct brim__image *from,
                    const struct brim__image *to, uint8_t *scratch) {
    (void)scratch;
    brim__image_pad(from, to, (uint32_t)act->pixels.number[0], (uint32_t)act->pixels.number[1],
                    (enum brim__edge)act->pixels.number[2], act->pixels.color);
}

void brim__act_pad(struct brim__acts *acts, uint32_t left, uint32_t top, uint32_t right,
                   uint32_t bottom, enum brim__edge edge, const struct brim__fill *fill) {
    struct brim__act *act = brim__act_pixels(acts, run_pad, false);
    act->pixels.number[0] = left;
    act->pixels.number[1] = top;
    act->pixels.number[2] = edge;
    brim__fill_pixel(fill, acts, act->pixels.color);
    act->map[2] = left;
    act->map[5] = top;
    act->width = acts->width = acts->width + left + right;
    act->height = acts->height = acts->height + top + bottom;
}

/*
 * picture_acts.c: functions for operations that choose acts, and their random numbers; see
 * picture.h.
 */
#include "order/philox.h"
#include "transform/picture.h"

static struct brim__act *add_act(struct brim__acts *acts, enum brim__act_kind kind) {
    assert(acts->count < BRIM__MAX_ACTS);
    struct brim__act *act = &acts->act[acts->count++];
    *act = (struct brim__act){ .kind = kind,
                               .op = acts->op,
                               .width = acts->width,
                               .height = acts->height,
                               .pixel = acts->pixel,
                               .map = { 1, 0, 0, 0, 1, 0 } };
    return act;
}

void brim__act_crop(struct brim__acts *acts, uint32_t x, uint32_t y, uint32_t width,
                    uint32_t height) {
    assert(width >= 1 && height >= 1 && x + width <= acts->width && y + height <= acts->height);
    if (width == acts->width && height == acts->height) {
        return;
    }
    struct brim__act *act = add_act(acts, BRIM__ACT_CROP);
    act->crop.x = x;
    act->crop.y = y;
    act->map[2] = -(double)x;
    act->map[5] = -(double)y;
    act->width = acts->width = width;
    act->height = acts->height = height;
}

void brim__act_resize(struct brim__acts *acts, uint32_t width, uint32_t height,
                      enum brim__filter filter) {
    const bool first = !acts->resized;
    acts->resized = true;
    if (width == acts->width && height == acts->height) {
        acts->exact |= first;
        return;
    }
    struct brim__act *act = add_act(acts, BRIM__ACT_RESIZE);
    act->resize.filter = acts->mask ? BRIM__NEAREST : filter;
    act->map[0] = (double)width / acts->width;
    act->map[4] = (double)height / acts->height;
    act->width = acts->width = width;
    act->height = acts->height = height;
}

void brim__act_plain(struct brim__acts *acts, uint32_t width, uint32_t height,
                     enum brim__filter filter) {
    struct brim__act *act = add_act(acts, BRIM__ACT_PLAIN);
    act->resize.filter = filter;
    act->map[0] = (double)width / acts->width;
    act->map[4] = (double)height / acts->height;
    act->width = acts->width = width;
    act->height = acts->height = height;
}

void brim__act_flip(struct brim__acts *acts, bool vertical) {
    struct brim__act *act = add_act(acts, BRIM__ACT_FLIP);
    act->flip.vertical = vertical;
    act->map[vertical ? 4 : 0] = -1;
    act->map[vertical ? 5 : 2] = vertical ? acts->height : acts->width;
}

struct brim__act *brim__act_pixels(struct brim__acts *acts, brim__act_run *run, bool in_place) {
    struct brim__act *act = add_act(acts, BRIM__ACT_PIXELS);
    act->pixels.run = run;
    act->pixels.in_place = in_place;
    return act;
}

double brim__draw(const struct brim__picture_draws *draws, uint32_t draw) {
    return brim__random(draws->key, draws->sample, draws->epoch, draw) * 0x1p-32;
}
double brim__draw_between(const struct brim__picture_draws *draws, uint32_t draw, double low,
                          double high) {
    return low + (high - low) * brim__draw(draws, draw);
}
uint64_t brim__draw_below(const struct brim__picture_draws *draws, uint32_t draw, uint64_t bound) {
    return brim__random_below(draws->key, draws->sample, draws->epoch, draw, bound);
}

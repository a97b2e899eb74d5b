/*
 * resize.c: rows in, resampled rows out.
 *
 * An axis is copied (SAME), picked from (PICK: nearest) or weighted (WEIGH). Only weighting down
 * the rows needs more than one row at a time. It is done in one of two ways, which give the same
 * bits:
 *
 *     few rows to an output:   a ring of the last rows; an output is made from them when
 *                              its last one has come
 *     many rows (shrinking     32-bit sums of the outputs that are open: each row is added
 *     much):                   to them and forgotten
 *
 * So the filter bounds the memory, whatever the ratio. When an output needs more rows, the number
 * of outputs that share a row does not grow: it is at most the filter's width and one more.
 *
 *     across first:   row -> across -> ring or sums -> out
 *     down first:     row -> ring or sums -> middle -> across -> out
 *
 * Memory, from the front: the resizer, the tables of both axes, then ring or sums and the single
 * rows. While the tables are made, the weights of one output are doubles in the place of the later
 * ring.
 */
#include "image/resize.h"

#include "image/kernels.h"
#include "image/weights.h"

enum pass { SAME, PICK, WEIGH };

/* A ring has at most filter width * 4 + 8 rows: 12, 16, 24, 32. */
#define RING_MOST 32

struct brim__resizer {
    const struct brim__image_kernels *kernels;
    brim__row_sink *sink;
    void *user;
    enum pass across, down;
    uint32_t pixel;
    bool alpha, down_first, flip_x, flip_y;
    uint32_t width, height;         /* needed of the input */
    uint32_t out_width, out_height; /* wanted */
    struct brim__weights x, y;      /* PICK and SAME: only y's count and first, x's first */
    uint32_t row;                   /* the next that comes */
    uint32_t done, opened;          /* outputs put out; and for which sums exist */
    bool sums;
    uint32_t slots;    /* of the ring, or sums */
    size_t slot_bytes; /* from one to the next */
    uint8_t *ring;
    uint8_t *source; /* a row premultiplied, or longer than it came: else NULL */
    uint8_t *middle; /* a row between the passes: else NULL */
    uint8_t *out;
};

bool brim__resize_is_tall(uint32_t width, uint32_t height, uint32_t out_width,
                          uint32_t out_height) {
    const uint64_t shrinks_x = width > out_width ? width - out_width : 0;
    const uint64_t shrinks_y = height > out_height ? height - out_height : 0;
    return shrinks_y > 2 * shrinks_x;
}

/* ----------------------------------------------------------------- memory */

static uint64_t rounded(uint64_t bytes) {
    return brim__align(bytes, BRIM__CACHE_LINE);
}

static uint32_t ring_most(enum brim__filter filter) {
    return brim__filter_width(filter) * 4 + 8;
}

static uint64_t spread_bytes(uint32_t count) {
    return (uint64_t)(count / 2) * BRIM__SPREAD_PAIR * sizeof(int16_t);
}

static uint64_t table_memory(enum brim__filter filter, uint32_t in, uint32_t least,
                             uint32_t window) {
    const uint64_t halves = 2 * brim__weights_taps(filter, in, least, window);
    return 2 * rounded((uint64_t)window * sizeof(uint32_t)) + rounded(halves * sizeof(int16_t));
}

uint64_t brim__resize_memory(const struct brim__resize_bounds *bounds) {
    const enum brim__filter filter = bounds->filter;
    const uint32_t width = bounds->in_width, height = bounds->in_height;
    const uint64_t in_row = rounded(((uint64_t)width + 1) * 4);
    const uint64_t out_row = rounded((uint64_t)bounds->window_width * 4);
    const uint64_t between = bounds->vertical_first ? brim__max(in_row, out_row) : out_row;

    const uint64_t tables =
        table_memory(filter, width, bounds->least_width, bounds->window_width) +
        table_memory(filter, height, bounds->least_height, bounds->window_height) +
        rounded(spread_bytes(bounds->window_width));
    const uint64_t most_x = brim__weights_most(filter, width, bounds->least_width);
    const uint64_t most_y = brim__weights_most(filter, height, bounds->least_height);
    const uint64_t making = rounded(brim__max(most_x, most_y) * sizeof(double));
    const uint64_t ring = brim__min(most_y, ring_most(filter)) * between;
    return rounded(sizeof(struct brim__resizer)) + tables +
           brim__max(making, ring + in_row + between + out_row);
}

/* The memory that is left. A request that does not fit gets NULL, and so do all later ones. */
struct carving {
    uint8_t *at;
    uint64_t left;
    bool full;
};

static void *carve(struct carving *carving, uint64_t bytes) {
    const uint64_t whole = rounded(bytes);
    if (carving->full || whole > carving->left) {
        carving->full = true;
        return NULL;
    }
    void *const at = carving->at;
    carving->at += whole;
    carving->left -= whole;
    return at;
}

/* ------------------------------------------------------------------ begin */

static bool axis_is_sound(const struct brim__axis *axis) {
    return axis->in >= 1 && axis->in <= BRIM__MAX_SIDE && axis->out >= 1 &&
           axis->out <= BRIM__MAX_SIDE && axis->from >= 0 && axis->from < axis->to &&
           axis->to <= (float)axis->in && axis->count >= 1 && axis->first < axis->out &&
           axis->count <= axis->out - axis->first;
}

static brim_status check_axis(const struct brim__axis *axis, const char *name) {
    if (!axis_is_sound(axis)) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "resize, %s: [%g, %g) of %u pixels to %u, of which %u from %u on: sides "
                          "are 1 to %u pixels, and boxes and windows lie inside and are not empty",
                          name, (double)axis->from, (double)axis->to, axis->in, axis->out,
                          axis->count, axis->first, BRIM__MAX_SIDE);
    }
    return BRIM_OK;
}

static enum pass pass_of(const struct brim__axis *axis, enum brim__filter filter) {
    return brim__axis_is_same(axis) ? SAME : filter == BRIM__NEAREST ? PICK : WEIGH;
}

/* Everything of a table but its halves. */
static bool make_spans(const struct brim__axis *axis, enum brim__filter filter, enum pass pass,
                       bool reversed, bool spread, struct carving *carving,
                       struct brim__weights *table) {
    table->count = axis->count;
    table->first = carve(carving, (uint64_t)axis->count * sizeof *table->first);
    if (pass == WEIGH) {
        table->taps = carve(carving, (uint64_t)axis->count * sizeof *table->taps);
    }
    if (carving->full) {
        return false;
    }
    if (pass == WEIGH) {
        brim__weights_spans(axis, filter, reversed, table);
        table->halves = carve(carving, (uint64_t)table->count * table->groups * BRIM__GROUP_HALVES *
                                           sizeof *table->halves);
        if (spread && table->groups == 1) {
            table->spread = carve(carving, spread_bytes(table->count));
        }
    } else if (pass == PICK) {
        brim__weights_pick(axis, reversed, table->first);
    } else {
        for (uint32_t j = 0; j < axis->count; j++) {
            table->first[j] = j;
        }
    }
    return !carving->full;
}

/* The most outputs that share a row. */
static uint32_t most_open(const struct brim__weights *table) {
    uint32_t most = 0, oldest = 0;
    for (uint32_t j = 0; j < table->count; j++) {
        while (table->first[oldest] + table->taps[oldest] <= table->first[j]) {
            oldest++;
        }
        most = j - oldest + 1 > most ? j - oldest + 1 : most;
    }
    return most;
}

/* Pixels of a row as `across` reads it: whole pairs. */
static uint32_t padded_width(const struct brim__resizer *self) {
    const uint32_t pairs = self->across == WEIGH ? self->x.pairs * 2 : 0;
    return self->width > pairs ? self->width : pairs;
}

/* The ring or sums and the single rows. */
static void carve_rows(struct brim__resizer *self, enum brim__filter filter,
                       struct carving *carving) {
    const uint32_t pixel = self->pixel;
    const uint32_t padded = padded_width(self);

    if (self->down == WEIGH) {
        const uint32_t slot_pixels = self->down_first ? self->width : self->out_width;
        self->sums = self->y.most > ring_most(filter);
        self->slots = self->sums ? most_open(&self->y) : self->y.most;
        self->slot_bytes = rounded((uint64_t)slot_pixels * pixel * (self->sums ? 4 : 1));
        self->ring = carve(carving, self->slots * self->slot_bytes);
    }
    if (self->alpha || (padded > self->width && !self->down_first)) {
        self->source = carve(carving, (uint64_t)padded * pixel);
    }
    if (self->down_first) {
        self->middle = carve(carving, (uint64_t)padded * pixel);
    } else if (self->sums) {
        self->middle = carve(carving, (uint64_t)self->out_width * pixel);
    }
    self->out = carve(carving, (uint64_t)self->out_width * pixel);

    if (!carving->full && self->source != NULL) {
        memset(self->source, 0, (size_t)padded * pixel);
    }
    if (!carving->full && self->down_first) {
        memset(self->middle, 0, (size_t)padded * pixel);
    }
}

static bool make(struct brim__resizer *self, const struct brim__resize *resize,
                 struct carving *carving) {
    const enum brim__filter filter = resize->filter;
    const bool spread = self->pixel == 4;
    if (!make_spans(&resize->x, filter, self->across, self->flip_x, spread, carving, &self->x) ||
        !make_spans(&resize->y, filter, self->down, false, false, carving, &self->y)) {
        return false;
    }
    struct carving while_making = *carving;
    const uint32_t most = self->x.most > self->y.most ? self->x.most : self->y.most;
    double *const scratch = carve(&while_making, most * sizeof(double));
    if (while_making.full) {
        return false;
    }
    if (self->across == WEIGH) {
        brim__weights_make(&resize->x, filter, self->flip_x, padded_width(self), scratch, &self->x);
        if (self->x.spread != NULL) {
            brim__weights_spread(&self->x);
        }
    }
    if (self->down == WEIGH) {
        brim__weights_make(&resize->y, filter, false, 0, scratch, &self->y);
    }
    carve_rows(self, filter, carving);
    return !carving->full;
}

brim_status brim__resize_begin(const struct brim__resize *resize, uint8_t *memory, uint64_t bytes,
                               brim__row_sink *sink, void *user, struct brim__resizer **resizer) {
    const struct brim__axis *const x = &resize->x, *const y = &resize->y;
    brim_status status = check_axis(x, "width");
    if (status == BRIM_OK) {
        status = check_axis(y, "height");
    }
    if (status != BRIM_OK) {
        return status;
    }
    assert(resize->pixel == 1 || resize->pixel == 4);
    assert(resize->pixel == 4 || !resize->alpha);

    struct carving carving = { memory, bytes, false };
    struct brim__resizer *const self = carve(&carving, sizeof *self);
    if (self != NULL) {
        const enum pass across = pass_of(x, resize->filter), down = pass_of(y, resize->filter);
        *self = (struct brim__resizer){
            .kernels = brim__image_kernels(),
            .sink = sink,
            .user = user,
            .across = across,
            .down = down,
            .pixel = resize->pixel,
            .alpha = resize->alpha && (across == WEIGH || down == WEIGH),
            /* the order matters only where there are two passes that round */
            .down_first = resize->vertical_first && across == WEIGH && down == WEIGH,
            .flip_x = x->flipped,
            .flip_y = y->flipped,
            .out_width = x->count,
            .out_height = y->count,
        };
        uint32_t unused;
        brim__axis_needs(x, resize->filter, &unused, &self->width);
        brim__axis_needs(y, resize->filter, &unused, &self->height);
    }
    if (self == NULL || !make(self, resize, &carving)) {
        const struct brim__resize_bounds bounds = {
            x->in,    y->in,    x->out,         y->out,
            x->count, y->count, resize->filter, resize->vertical_first,
        };
        const uint64_t most = brim__resize_memory(&bounds);
        return brim__fail(BRIM_STATUS_BUDGET,
                          "resizing %u x %u pixels to %u x %u takes up to %llu bytes; there are "
                          "%llu",
                          x->in, y->in, x->out, y->out, (unsigned long long)most,
                          (unsigned long long)bytes);
    }
    *resizer = self;
    return BRIM_OK;
}

/* ------------------------------------------------------------------- rows */

static void across(const struct brim__resizer *self, const uint8_t *restrict row,
                   uint8_t *restrict out) {
    const struct brim__image_kernels *const kernels = self->kernels;
    const uint32_t count = self->out_width;
    switch (self->across) {
    case WEIGH:
        (self->pixel == 4 ? kernels->across4 : kernels->across1)(row, out, &self->x);
        return;
    case PICK:
        for (uint32_t j = 0; j < count && self->pixel == 1; j++) {
            out[j] = row[self->x.first[j]];
        }
        for (uint32_t j = 0; j < count && self->pixel == 4; j++) {
            memcpy(out + (size_t)j * 4, row + (size_t)self->x.first[j] * 4, 4);
        }
        return;
    case SAME:
        if (self->flip_x) {
            (self->pixel == 4 ? kernels->reverse4 : kernels->reverse1)(row, out, count);
        } else {
            memcpy(out, row, (size_t)count * self->pixel);
        }
        return;
    }
}

/* Output `done` is `row`, which may be self->out. */
static brim_status put_out(struct brim__resizer *self, const uint8_t *row) {
    const uint32_t j = self->done++;
    return self->sink(self->user, row, self->flip_y ? self->out_height - 1 - j : j);
}

/* Puts out output `done`, which is in `weighed` after all its rows were added. */
static brim_status finish(struct brim__resizer *self, uint8_t *weighed) {
    if (self->down_first) {
        across(self, weighed, self->out);
        weighed = self->out;
    }
    if (self->alpha) {
        self->kernels->unpremultiply(weighed, self->out_width);
    }
    return put_out(self, weighed);
}

static uint8_t *slot(const struct brim__resizer *self, uint32_t at) {
    return self->ring + (at % self->slots) * self->slot_bytes;
}

static bool is_complete(const struct brim__resizer *self, uint32_t output) {
    return output < self->out_height &&
           self->y.first[output] + self->y.taps[output] == self->row + 1;
}

/* Where outputs of `weigh` are made. */
static uint8_t *weighed_row(const struct brim__resizer *self) {
    return self->down_first ? self->middle : self->out;
}

static brim_status weigh_ring(struct brim__resizer *self, const uint8_t *row) {
    uint8_t *const newest = slot(self, self->row);
    const size_t pixels = self->down_first ? self->width : self->out_width;
    if (self->down_first) {
        memcpy(newest, row, pixels * self->pixel);
    } else {
        across(self, row, newest);
    }
    brim_status status = BRIM_OK;
    while (status == BRIM_OK && is_complete(self, self->done)) {
        const uint32_t taps = self->y.taps[self->done];
        const uint8_t *rows[RING_MOST + 1];
        for (uint32_t tap = 0; tap < taps; tap++) {
            rows[tap] = slot(self, self->y.first[self->done] + tap);
        }
        rows[taps] = newest; /* of weight 0 where taps is odd */
        self->kernels->down(rows, taps, brim__weights_of(&self->y, self->done), weighed_row(self),
                            pixels * self->pixel);
        status = finish(self, weighed_row(self));
    }
    return status;
}

static brim_status weigh_sums(struct brim__resizer *self, const uint8_t *row) {
    const size_t bytes = (size_t)(self->down_first ? self->width : self->out_width) * self->pixel;
    if (!self->down_first) {
        across(self, row, self->middle);
        row = self->middle;
    }
    while (self->opened < self->out_height && self->y.first[self->opened] <= self->row) {
        memset(slot(self, self->opened), 0, bytes * sizeof(int32_t));
        self->opened++;
    }
    for (uint32_t j = self->done; j < self->opened; j++) {
        const uint32_t tap = self->row - self->y.first[j];
        const int32_t weight = brim__weight(brim__weights_of(&self->y, j), tap);
        self->kernels->add(row, weight, (int32_t *)(void *)slot(self, j), bytes);
    }
    brim_status status = BRIM_OK;
    while (status == BRIM_OK && is_complete(self, self->done)) {
        const int32_t *const sums = (const int32_t *)(const void *)slot(self, self->done);
        self->kernels->settle(sums, weighed_row(self), bytes);
        status = finish(self, weighed_row(self));
    }
    return status;
}

/* Every output is one row. */
static brim_status pass_on(struct brim__resizer *self, const uint8_t *row) {
    if (self->done == self->out_height || self->y.first[self->done] != self->row) {
        return BRIM_OK;
    }
    if (self->across != SAME || self->flip_x) {
        across(self, row, self->out);
        row = self->out;
    }
    if (self->alpha) {
        self->kernels->unpremultiply(self->out, self->out_width); /* across was weighed */
    }
    brim_status status = BRIM_OK;
    while (status == BRIM_OK && self->done < self->out_height &&
           self->y.first[self->done] == self->row) {
        status = put_out(self, row);
    }
    return status;
}

brim_status brim__resize_row(struct brim__resizer *resizer, const uint8_t *row) {
    if (resizer->row == resizer->height) {
        return brim__fail(BRIM_STATUS_INVALID, "resize: all %u rows that are needed were given",
                          resizer->height);
    }
    if (resizer->alpha) {
        resizer->kernels->premultiply(row, resizer->source, resizer->width);
        row = resizer->source;
    } else if (resizer->source != NULL) {
        memcpy(resizer->source, row, (size_t)resizer->width * resizer->pixel);
        row = resizer->source;
    }
    const brim_status status = resizer->down != WEIGH ? pass_on(resizer, row)
                               : resizer->sums        ? weigh_sums(resizer, row)
                                                      : weigh_ring(resizer, row);
    resizer->row++;
    return status;
}

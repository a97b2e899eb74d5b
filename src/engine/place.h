/*
 * place.h: moving rows in memory that a layout describes, and bringing a batch into the form in
 * which it is lent.
 */
#ifndef BRIM_PLACE_H
#define BRIM_PLACE_H

#include "plan/layout.h"

/* Rows [begin, end) that only fill a batch up: zeros, flagged invalid. */
void brim__place_padding(const struct brim__layout *layout, uint8_t *memory, uint64_t begin,
                         uint64_t end);

/* Closes up the `rows` rows of which some are bad; returns how many are left. */
uint64_t brim__place_close_up(const struct brim__layout *layout, uint8_t *memory, uint64_t rows);

/* Copies `count` rows from one place to another with the same fields. */
void brim__place_copy(const struct brim__layout *from, uint8_t *source, uint64_t source_row,
                      const struct brim__layout *to, uint8_t *destination, uint64_t row,
                      uint64_t count);

/* A batch of `rows` rows is complete. Padded fields are filled up to `width`, and
 * their rows lie so far apart already (0: to the longest row, where they are);
 * what the width is remains in the last length. Other fields that are not dense
 * are moved together, and lengths become offsets. */
void brim__place_finish(const struct brim__layout *layout, uint8_t *memory, uint64_t rows,
                        uint64_t width);
/* Elements of the first dimension in each row of a padded field. */
static inline uint64_t brim__place_width(const struct brim__output *output, uint8_t *memory,
                                         uint64_t rows) {
    return brim__layout_lengths(output, memory)[rows];
}

#endif

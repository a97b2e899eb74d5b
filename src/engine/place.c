/*
 * place.c: moving rows in memory; see place.h.
 */
#include "engine/place.h"

void brim__place_padding(const struct brim__layout *layout, uint8_t *memory, uint64_t begin,
                         uint64_t end) {
    for (uint32_t f = 0; f < layout->output_count; f++) {
        const struct brim__output *output = &layout->output[f];
        if (output->form == BRIM_FORM_DENSE) {
            memset(brim__layout_row(output, memory, begin), 0, (end - begin) * output->row_bytes);
        } else {
            memset(brim__layout_lengths(output, memory) + begin, 0,
                   (end - begin) * sizeof(uint64_t));
        }
    }
    memset(memory + layout->valid_offset + begin, 0, end - begin);
    for (uint64_t row = begin; row < end; row++) {
        brim__layout_ids(layout, memory)[row] = UINT64_MAX;
    }
}

void brim__place_copy(const struct brim__layout *from, uint8_t *source, uint64_t source_row,
                      const struct brim__layout *to, uint8_t *destination, uint64_t row,
                      uint64_t count) {
    for (uint32_t f = 0; f < to->output_count; f++) {
        const struct brim__output *output = &to->output[f];
        const uint8_t *left = brim__layout_row(&from->output[f], source, source_row);
        uint8_t *right = brim__layout_row(output, destination, row);
        if (output->form == BRIM_FORM_DENSE) {
            memmove(right, left, count * output->row_bytes);
            continue;
        }
        const uint64_t *lengths = brim__layout_lengths(&from->output[f], source) + source_row;
        for (uint64_t i = 0; i < count; i++) {
            memmove(right + i * output->row_bytes, left + i * from->output[f].row_bytes,
                    lengths[i] * output->unit_bytes);
        }
        memmove(brim__layout_lengths(output, destination) + row, lengths, count * sizeof(uint64_t));
    }
    memmove(brim__layout_ids(to, destination) + row, brim__layout_ids(from, source) + source_row,
            count * sizeof(uint64_t));
}

uint64_t brim__place_close_up(const struct brim__layout *layout, uint8_t *memory, uint64_t rows) {
    const uint8_t *outcome = memory + layout->outcome_offset;
    uint8_t *valid = memory + layout->valid_offset;
    uint64_t to = 0;
    for (uint64_t from = 0; from < rows; from++) {
        if (outcome[from] != BRIM__ROW_MADE) {
            continue;
        }
        if (to != from) {
            brim__place_copy(layout, memory, from, layout, memory, to, 1);
            valid[to] = valid[from];
        }
        to++;
    }
    return to;
}

static void fill_up(const struct brim__output *output, uint8_t *memory, uint64_t rows,
                    uint64_t width) {
    uint64_t *lengths = brim__layout_lengths(output, memory);
    const uint64_t element = brim_dtype_bytes(output->dtype);
    const uint64_t distance = width != 0 ? width * output->unit_bytes : output->row_bytes;
    bool zero = true;
    for (uint64_t i = 0; i < element; i++) {
        zero &= output->pad_value[i] == 0;
    }
    uint64_t longest = width;
    for (uint64_t row = 0; width == 0 && row < rows; row++) {
        longest = brim__max(longest, lengths[row]);
    }
    for (uint64_t row = 0; row < rows; row++) {
        uint8_t *tail =
            memory + output->offset + row * distance + lengths[row] * output->unit_bytes;
        const uint64_t bytes = (longest - lengths[row]) * output->unit_bytes;
        if (zero) {
            memset(tail, 0, bytes);
            continue;
        }
        for (uint64_t at = 0; at < bytes; at += element) {
            memcpy(tail + at, output->pad_value, element);
        }
    }
    lengths[rows] = longest;
}

static void move_together(const struct brim__output *output, uint8_t *memory, uint64_t rows) {
    uint64_t *lengths = brim__layout_lengths(output, memory);
    uint64_t end = 0;
    for (uint64_t row = 0; row < rows; row++) {
        const uint64_t count = lengths[row];
        memmove(memory + output->offset + end * output->unit_bytes,
                brim__layout_row(output, memory, row), count * output->unit_bytes);
        lengths[row] = end;
        end += count;
    }
    lengths[rows] = end;
}

void brim__place_finish(const struct brim__layout *layout, uint8_t *memory, uint64_t rows,
                        uint64_t width) {
    for (uint32_t f = 0; layout->ragged && f < layout->output_count; f++) {
        const struct brim__output *output = &layout->output[f];
        if (output->padded) {
            fill_up(output, memory, rows, width);
        } else if (output->form != BRIM_FORM_DENSE) {
            move_together(output, memory, rows);
        }
    }
}

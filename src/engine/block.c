/*
 * block.c: rows stored without gaps; see block.h.
 */
#include "engine/block.h"

#include "order/sort.h"

void brim__block_clear(struct brim__block *block, const struct brim__position *begin) {
    block->used = block->rows = block->batches = block->skipped = 0;
    block->sealed = false;
    block->begin = block->end = *begin;
}

/* Entries grow from the end: number 0 is the last. */
static struct brim__block_entry *entry_at(const struct brim__block *block, uint64_t i) {
    return (struct brim__block_entry *)(void *)(block->memory + block->bytes) - (i + 1);
}

const uint8_t *brim__block_row(const struct brim__block *block, uint64_t i) {
    assert(i < block->rows);
    return block->memory + entry_at(block, i)->offset;
}

const uint8_t *brim__row_field(const struct brim__row *row, uint32_t field, uint64_t *count) {
    const struct brim__output *output = &row->layout->output[field];
    *count = 1;
    if (row->memory != NULL) {
        if (output->form != BRIM_FORM_DENSE) {
            *count = brim__layout_lengths(output, row->memory)[row->at];
        }
        return brim__layout_row(output, row->memory, row->at);
    }
    assert(row->packed != NULL);
    const uint8_t *at = row->packed + sizeof(uint64_t);
    for (uint32_t f = 0;; f++) {
        output = &row->layout->output[f];
        uint64_t bytes = output->row_bytes;
        if (output->form != BRIM_FORM_DENSE) {
            memcpy(count, at, sizeof *count);
            at += sizeof *count;
            bytes = *count * output->unit_bytes;
        }
        if (f == field) {
            *count = output->form != BRIM_FORM_DENSE ? *count : 1;
            return at;
        }
        at += bytes;
    }
}

uint64_t brim__row_number(const struct brim__row *row) {
    uint64_t number;
    if (row->memory != NULL) {
        return brim__layout_ids(row->layout, row->memory)[row->at];
    }
    memcpy(&number, row->packed, sizeof number);
    return number;
}

bool brim__block_add(struct brim__block *block, const struct brim__row *row) {
    const struct brim__layout *layout = row->layout;
    uint64_t bytes = sizeof(uint64_t), length = 0, count;
    for (uint32_t f = 0; f < layout->output_count; f++) {
        const struct brim__output *output = &layout->output[f];
        brim__row_field(row, f, &count);
        if (output->form == BRIM_FORM_DENSE) {
            bytes += output->row_bytes;
        } else {
            bytes += sizeof count + count * output->unit_bytes;
            length = output->padded ? brim__max(length, count) : length;
        }
    }
    const uint64_t entries = (block->rows + 1) * sizeof(struct brim__block_entry);
    if (block->rows == UINT32_MAX || entries > block->bytes - block->used ||
        bytes > block->bytes - block->used - entries) {
        return false;
    }
    uint8_t *at = block->memory + block->used;
    const uint64_t number = brim__row_number(row);
    *entry_at(block, block->rows) =
        (struct brim__block_entry){ .key = length << 32 | block->rows, .offset = block->used };
    memcpy(at, &number, sizeof number);
    at += sizeof number;
    for (uint32_t f = 0; f < layout->output_count; f++) {
        const struct brim__output *output = &layout->output[f];
        const uint8_t *from = brim__row_field(row, f, &count);
        uint64_t size = output->row_bytes;
        if (output->form != BRIM_FORM_DENSE) {
            memcpy(at, &count, sizeof count);
            at += sizeof count;
            size = count * output->unit_bytes;
        }
        memcpy(at, from, size);
        at += size;
    }
    block->used += bytes;
    block->rows++;
    block->end = row->after;
    return true;
}

/* The width of a batch whose longest row has `length`. */
static uint64_t width_of(const struct brim__bucketing *bucket, uint64_t length) {
    for (uint32_t i = 0; i < bucket->edges; i++) {
        if (length <= bucket->edge[i]) {
            return bucket->edge[i];
        }
    }
    return brim__max(1, length);
}

static uint64_t length_of(const struct brim__block *block, uint64_t i) {
    return entry_at(block, i)->key >> 32;
}

void brim__block_cut(struct brim__block *block, const struct brim__bucketing *bucket,
                     uint64_t most_rows) {
    if (block->rows == 0) {
        return;
    }
    brim__sort(entry_at(block, block->rows - 1), block->rows, sizeof(struct brim__block_entry),
               false);
    for (uint64_t first = 0; first < block->rows;) {
        const uint64_t width = width_of(bucket, length_of(block, first));
        uint64_t rows = 1;
        while (first + rows < block->rows && rows < most_rows &&
               (rows + 1) * width <= bucket->tokens &&
               (bucket->edges == 0 || width_of(bucket, length_of(block, first + rows)) == width)) {
            rows++;
        }
        entry_at(block, block->batches++)->batch = first;
        first += rows;
    }
}

uint64_t brim__block_batch(const struct brim__block *block, const struct brim__bucketing *bucket,
                           uint64_t i, uint64_t *rows, uint64_t *width) {
    const uint64_t first = entry_at(block, i)->batch;
    const uint64_t end = i + 1 < block->batches ? entry_at(block, i + 1)->batch : block->rows;
    *rows = end - first;
    *width = width_of(bucket, length_of(block, first));
    return first;
}

void brim__row_place(const struct brim__row *row, const struct brim__layout *to, uint8_t *memory,
                     uint64_t at, uint64_t width) {
    const uint8_t *next = row->memory == NULL ? row->packed + sizeof(uint64_t) : NULL;
    for (uint32_t f = 0; f < to->output_count; f++) {
        const struct brim__output *output = &to->output[f];
        const uint8_t *from = next;
        uint64_t count = 1;
        if (next == NULL) {
            from = brim__row_field(row, f, &count);
        } else if (output->form != BRIM_FORM_DENSE) {
            memcpy(&count, next, sizeof count);
            from += sizeof count;
        }
        const uint64_t bytes =
            output->form == BRIM_FORM_DENSE ? output->row_bytes : count * output->unit_bytes;
        const uint64_t distance =
            output->padded && width != 0 ? width * output->unit_bytes : output->row_bytes;
        memcpy(memory + output->offset + at * distance, from, bytes);
        if (output->form != BRIM_FORM_DENSE) {
            brim__layout_lengths(output, memory)[at] = count;
        }
        next = next == NULL ? NULL : from + bytes;
    }
    brim__layout_ids(to, memory)[at] = brim__row_number(row);
}

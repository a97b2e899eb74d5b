/*
 * layout.h: the layout of rows in memory: in a slot, or in a chunk.
 *
 *     | field 0: rows x row_bytes | its lengths | field 1 ... | numbers | valid | outcome |
 *
 * While rows are made, the rows of every field are at equal distances. The rows of a field that is
 * not dense are at the distance of its bound, with the number of elements of each in `lengths`.
 * When a batch is complete, the rows are converted to the form that the user sees (engine/place.c).
 * Stages on whole batches may put other fields after the last page of this
 * (batching/batch_program.h); the consumer then sees those.
 */
#ifndef BRIM_LAYOUT_H
#define BRIM_LAYOUT_H

#include "source/source.h"
#include "tensor/tensor.h"

struct brim__output {
    char name[BRIM_NAME_BYTES];
    brim_dtype dtype;
    brim_form form; /* while rows are made */
    bool padded;    /* not dense, but padded for the user */
    uint8_t pad_value[16];
    struct brim__shape shape; /* of one sample; not dense: dim[0] is the bound */
    uint64_t row_bytes;       /* from row to row */
    uint64_t unit_bytes;      /* not dense: of one step in the first dimension */
    uint64_t offset;
    uint64_t lengths; /* not dense: where rows + 1 counts of 64 bits lie */
};

struct brim__layout {
    struct brim__output output[BRIM__MAX_FIELDS];
    uint32_t output_count;
    bool ragged; /* some field is not dense */
    uint64_t rows;
    uint64_t ids_offset, valid_offset, outcome_offset;
    uint64_t bytes; /* whole pages */
};

/* The outcome of a row; one byte for each row at outcome_offset. */
enum brim__row_outcome {
    BRIM__ROW_MADE = 0,
    BRIM__ROW_BAD = 1,
    BRIM__ROW_DROPPED = 2, /* by a filter, or past the end of an expansion */
    BRIM__ROW_FAILED = 3,  /* sequenced: delivering it must fail */
};

/* Fills in the offsets of outputs whose name, dtype, form, shape and padding are set. area: 0, or
 * the most elements of the first dimension that a padded field has in a whole batch, for any number
 * of rows. */
brim_status brim__layout_set_offsets(struct brim__layout *layout, uint64_t rows, uint64_t area);
/* The same for outputs, all dense, that replace those of a layout. They come after all its fields
 * and have the same number of rows. The layout's data about rows do not change. */
brim_status brim__layout_append(struct brim__layout *layout);

static inline uint64_t *brim__layout_ids(const struct brim__layout *layout, uint8_t *memory) {
    return (uint64_t *)(void *)(memory + layout->ids_offset);
}
static inline uint64_t *brim__layout_lengths(const struct brim__output *output, uint8_t *memory) {
    return (uint64_t *)(void *)(memory + output->lengths);
}
static inline uint8_t *brim__layout_row(const struct brim__output *output, uint8_t *memory,
                                        uint64_t row) {
    return memory + output->offset + row * output->row_bytes;
}

#endif

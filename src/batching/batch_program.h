/*
 * batch_program.h: stages that act on a whole batch.
 *
 * They come after `batch` or `bucket`. When the last row of a batch is made and bad rows are
 * removed, each runs once, in the order of the text, on the thread that completed the batch, with
 * no lock held and before the batch is delivered. A step needs no memory except what it took from
 * the arena when it was added, and a few KiB of stack. Padding rows (remainder=pad) are after the
 * valid ones, and no step uses them.
 *
 * A step changes fields in place, or replaces all of them by new ones. The new fields come after
 * the rows in the same slot, for later steps and the consumer:
 *
 *     | rows as they were made | fields of a first such step | of a second ... |
 *
 * A step that fails ends the program; the batch is then made again from its samples.
 *
 * Random numbers depend on the stage (its position and its seed), the epoch and the batch's number:
 * the global position of its first row, after `bucket` the batch's index among those of all ranks.
 * So they do not depend on the number of threads or on a resume, and they differ between ranks,
 * micro-batches, steps and epochs.
 */
#ifndef BRIM_BATCH_PROGRAM_H
#define BRIM_BATCH_PROGRAM_H

#include "base/stage.h"
#include "memory/alloc.h"
#include "tensor/tensor.h"

#define BRIM__BATCH_STEPS 8 /* most stages after `batch` */

/* A complete batch. */
struct brim__batch_call {
    uint8_t *memory;
    uint64_t rows;     /* the valid ones */
    uint64_t all_rows; /* and the padding rows, after them */
    uint64_t epoch, number;
    brim_region region; /* of the pages that `memory` lies in; none: not shared */
};

struct brim__batch_step;
typedef brim_status brim__batch_run(const struct brim__batch_step *step,
                                    const struct brim__batch_call *call);

struct brim__batch_step {
    brim__batch_run *run;
    const void *self;
    uint32_t fields; /* which it changes: bit f for field f, as they are after it */
    uint32_t stage;  /* its index in the plan, set when it is added; one step for each stage */
    bool callback;   /* runs the user's code ... */
    bool impure;     /* ... which may put out something else the next time */
    bool probed;     /* its fields were found by trying */
};

/* A field of the batches: row r is at offset + r * row_bytes, row-major, with its elements aligned
 * to their size. */
struct brim__batch_field {
    const char *name;
    brim_dtype dtype;
    bool dense;               /* else rows differ in length, and lie otherwise */
    struct brim__shape shape; /* of one row */
    uint64_t offset, row_bytes;
};

/* The arguments of a stage that makes its step. */
struct brim__batch_site {
    const struct brim__batch_field *field; /* gone when the plan stands */
    uint32_t field_count;
    uint64_t key; /* from the stage's place; a seed of the stage is mixed into it */
    struct brim__arena *arena;
    struct brim__opening *opening; /* where bindings are found */
    struct brim__batch_step *step; /* to be filled: all but `stage` */
    /* Replaces all fields by `count` dense fields, and sets their offset and row_bytes. `field`
     * above is no longer valid. */
    brim_status (*replace)(void *user, struct brim__batch_field *field, uint32_t count);
    void *user; /* of replace */
};

#endif

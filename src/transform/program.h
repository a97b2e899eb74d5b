/*
 * program.h: what happens to one sample between its records and its row.
 *
 * A program is built stage by stage. A field is somewhere (in a source's
 * record, or in scratch) and has a pending conversion; stages that only change
 * how elements are seen (cast, normalize, layout, reshape) edit that
 * conversion. A stage that needs the elements themselves flushes it, which
 * emits one step. When the program is finished each field's pending conversion
 * is carried out straight into the row, so that a row is written once:
 *
 *     record --(cast, normalize, layout: one conversion)--> row
 *     record --(conversion)--> scratch --(map)--> row
 *
 * Running needs no memory but the scratch that the program declared, and a
 * frame, which belongs to one thread.
 */
#ifndef BRIM_PROGRAM_H
#define BRIM_PROGRAM_H

#include "base/platform.h"
#include "base/stage.h"
#include "memory/alloc.h"
#include "source/source.h"
#include "tensor/tensor.h"

#define BRIM__MAX_STEPS   64
#define BRIM__MAX_SOURCES 16 /* side by side in one sample */

enum brim__where { BRIM__IN_RECORD, BRIM__IN_SCRATCH, BRIM__IN_ROW };

struct brim__operand {
    enum brim__where where;
    uint32_t index;  /* record: the source; row: the field */
    uint64_t offset; /* scratch */
};

/* One thread's sample in the making. */
struct brim__frame {
    const uint8_t *record[BRIM__MAX_SOURCES];
    uint8_t *scratch;
    uint8_t *row[BRIM__MAX_FIELDS];
    brim_call call; /* sample and epoch; each step sets its own key in a copy */
};

struct brim__step {
    brim_status (*run)(const struct brim__step *step, const struct brim__frame *frame);
    uint32_t stage; /* whose time this counts as */
    struct brim__operand from, to;
    struct brim__conversion conversion;
    void *self; /* what other kinds of steps need */
};

struct brim__program_field {
    char name[BRIM_NAME_BYTES];
    struct brim__conversion pending;
    struct brim__operand at;
    /* the operand through which a step wrote this field to scratch; it may be
     * turned to the row if nothing is left to convert. NULL in a record */
    struct brim__operand *written;
    uint32_t stage; /* last that edited the pending conversion */
};

struct brim__program {
    struct brim__arena *arena;
    struct brim__opening *opening;
    uint32_t stage; /* place of the stage being added */
    uint64_t key;   /* of that stage, from its place and branch */
    struct brim__program_field field[BRIM__MAX_FIELDS];
    uint32_t field_count;
    struct brim__step *step[BRIM__MAX_STEPS];
    uint32_t step_count;
    uint64_t scratch_bytes;
    bool callback;                     /* runs the user's code */
    bool impure;                       /* some stage may put out something else each time */
    int32_t direct[BRIM__MAX_SOURCES]; /* field whose row a source's record is, or -1 */
};

/* An empty program; the sources' fields become its fields, names unique. */
brim_status brim__program_init(struct brim__program *program, struct brim__opening *opening,
                               struct brim__source *const *sources, uint32_t source_count,
                               uint32_t stage);
/* Emits what is pending, each field into its row. */
brim_status brim__program_finish(struct brim__program *program, struct brim__source *const *sources,
                                 uint32_t source_count);

static inline brim_status brim__program_run(const struct brim__program *program,
                                            const struct brim__frame *frame) {
    for (uint32_t i = 0; i < program->step_count; i++) {
        const brim_status status = program->step[i]->run(program->step[i], frame);
        if (BRIM__UNLIKELY(status != BRIM_OK)) {
            return status;
        }
    }
    return BRIM_OK;
}

/* ------------------------------------------------------ for the stages */

/* Which fields a stage's `on` argument means, as bits. `fallback` says which
 * when it is not given. */
enum brim__on { BRIM__ON_ALL, BRIM__ON_FIRST, BRIM__ON_LAST };
brim_status brim__program_on(const struct brim__program *program, const struct brim__use *use,
                             size_t argument, enum brim__on fallback, uint32_t *fields);

/* Carries out a field's pending conversion into scratch; afterwards the field
 * is a contiguous, aligned, native array there. always: even if it already is
 * plain in a record. */
brim_status brim__program_flush(struct brim__program *program, uint32_t field, bool always);

/* A new step at the end, zeroed, with its stage set; and scratch for a value. */
brim_status brim__program_step(struct brim__program *program, struct brim__step **step);
brim_status brim__program_scratch(struct brim__program *program, uint64_t bytes,
                                  struct brim__operand *operand);
/* Makes the field what a step wrote at *written. */
void brim__program_set(struct brim__program *program, uint32_t field, brim_dtype dtype,
                       const struct brim__shape *shape, struct brim__operand *written);

static inline const uint8_t *brim__operand_read(const struct brim__operand *operand,
                                                const struct brim__frame *frame) {
    switch (operand->where) {
    case BRIM__IN_RECORD:
        return frame->record[operand->index];
    case BRIM__IN_SCRATCH:
        return frame->scratch + operand->offset;
    case BRIM__IN_ROW:
        break;
    }
    return frame->row[operand->index];
}
static inline uint8_t *brim__operand_write(const struct brim__operand *operand,
                                           const struct brim__frame *frame) {
    return operand->where == BRIM__IN_ROW ? frame->row[operand->index]
                                          : frame->scratch + operand->offset;
}

#endif

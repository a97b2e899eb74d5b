/*
 * program.h: the steps of one sample between its records and its row.
 *
 * A program is built stage by stage. A field has a place (in a source's record, or in scratch) and
 * a pending conversion. Stages that only change the type, scale or shape of elements (cast,
 * normalize, layout, reshape) edit that conversion. A stage that needs the elements themselves
 * flushes it, which adds one step. At the end of the program each field's pending conversion writes
 * directly into the row, so that a row is written once:
 *
 *     record --(cast, normalize, layout: one conversion)--> row
 *     record --(conversion)--> scratch --(map)--> row
 *
 * A value that is not dense is a brim__span, in a record or at the beginning of its scratch,
 * followed by the elements BRIM__SPAN_ROOM bytes later. In a row its elements are in the row and
 * their number is in the row's length.
 *
 * A step may drop the sample. One stage may expand it: the steps from `expand` on then run for
 * frame->expansion_index = 0, 1, ... and make a row each time, until the first of them returns
 * BRIM__EXHAUSTED.
 *
 * Running needs only the scratch that the program declared, and a frame, which belongs to one
 * thread.
 *
 * Dependence goes one way: pictures (picture.h) are built on programs, and caches (cache/) on both.
 * To a program a picture is only an open value, and a cache only means that a record may come from
 * somewhere other than a source.
 */
#ifndef BRIM_PROGRAM_H
#define BRIM_PROGRAM_H

#include "base/platform.h"
#include "base/stage.h"
#include "base/stop.h"
#include "memory/alloc.h"
#include "source/source.h"
#include "tensor/tensor.h"

#define BRIM__MAX_STEPS 64
#define BRIM__NO_EXPAND UINT32_MAX
#define BRIM__SPAN_ROOM 64    /* of a span in scratch, before its elements */
#define BRIM__PIXELS    255.0 /* the range of pixels of 8 bits */

/* Further results of a step, besides those of brim_status. */
#define BRIM__DROPPED      ((brim_status)1000) /* the sample is left out */
#define BRIM__EXHAUSTED    ((brim_status)1001) /* an expansion has no more samples */
#define BRIM__MAX_SOURCES  16                  /* side by side in one sample */
#define BRIM__KEPT_RECORDS 4 /* of a frame, beside those of sources: samples found again */

enum brim__where { BRIM__IN_RECORD, BRIM__IN_SCRATCH, BRIM__IN_ROW };

struct brim__operand {
    enum brim__where where;
    uint32_t index;  /* record: of the frame's; row: the field */
    uint64_t offset; /* scratch */
};

/* The sample that a thread is making. */
struct brim__frame {
    /* of each source; after these, cached entries of the sample (set by cache/) */
    const uint8_t *record[BRIM__MAX_SOURCES + BRIM__KEPT_RECORDS];
    uint8_t *scratch;
    struct brim__stop *stop; /* looked at by steps that may take long; NULL: none */
    uint8_t *row[BRIM__MAX_FIELDS];
    uint64_t *length[BRIM__MAX_FIELDS]; /* of a row that is not dense */
    uint64_t expansion_index;           /* which sample of an expansion */
    uint64_t stamp;                     /* of the sample's files, where it is asked for ... */
    bool unstamped;                     /* ... and it could not be had: not to be kept */
    uint64_t content;                   /* hash of its records, where it is asked for; or 0 */
    bool unread;                        /* ... and they could not be read */
    brim_call call;                     /* sample and epoch; each step sets its own key in a copy */
};

struct brim__step;
typedef brim_status brim__step_run(const struct brim__step *step, const struct brim__frame *frame);

struct brim__step {
    brim__step_run *run;
    uint32_t stage;      /* whose time this counts as */
    uint64_t late_bytes; /* scratch that was taken for it after its stage was added */
    struct brim__operand from, to;
    struct brim__conversion conversion;
    void *self; /* what other kinds of steps need */
};

struct brim__program;
struct brim__program_field;

/* An open value: stages may still add to it, and it is not computed until its elements are needed.
 * The program knows only this table. Images are the only kind (picture.h). */
struct brim__open_value_ops {
    /* Closes the value: its step writes the field's pending conversion to `to`. Fails if the value
     * has several shapes. */
    brim_status (*settle)(struct brim__program *program, uint32_t field, struct brim__operand to);
    /* Whether all samples have one shape. */
    bool (*is_fixed)(const struct brim__program_field *field);
    /* Whether stages can still add to it: no other stage has changed the field. */
    bool (*is_open)(const struct brim__program_field *field);
    /* Fails if later stages could give other results from the elements. The error names the stage
     * that would keep the elements. */
    brim_status (*check_kept)(const char *stage, const struct brim__program_field *field);
    /* The error of a stage that needs one shape. */
    brim_status (*unsized)(const char *stage, const struct brim__program_field *field);
};
struct brim__open_value {
    const struct brim__open_value_ops *ops;
    struct brim__step *step; /* that makes it */
    bool mask;               /* an image whose numbers are classes */
};

struct brim__program_field {
    char name[BRIM_NAME_BYTES];
    brim_form form;
    bool deferred; /* in a record, as a brim__deferred: bytes that are not read yet */
    const struct brim__image_survey *images; /* what is known of images in it; or NULL */
    const struct brim__source *source;       /* that it comes from, where there are images ... */
    uint32_t source_field;                   /* ... and which field of it this is */
    uint64_t class_count;                    /* of a field of class numbers; 0: it is none */
    /* the open value; an image's pending conversion begins with uint8 HWC if it has one size. NULL:
     * none */
    struct brim__open_value *open;
    /* no open value, but the kept pixels of an image: later image stages use them as if it had
     * never been settled */
    bool image, mask;
    /* not dense: in the batch, rows are padded with pad_value (an element of pending.to) to the
     * longest row */
    bool padded;
    uint8_t pad_value[16];
    double range; /* its values go from 0 to here, see range.c; 0: as its type says */
    struct brim__conversion pending; /* not dense: from.shape.dim[0] is the bound */
    struct brim__operand at;
    /* the operand with which a step writes this field to scratch; it can be changed to the row if
     * nothing is left to convert. NULL in a record */
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
    const char *neediest; /* the file for which `needed_bytes` of the scratch are; or NULL */
    uint64_t needed_bytes;
    bool callback;            /* runs the user's code */
    bool impure;              /* some stage may put out something else each time */
    bool random;              /* some stage draws, or depends on the epoch */
    const char *impure_stage; /* the first such stage, as "map @name" */
    const char *random_stage;
    const char *unversioned_stage; /* the first with an object of the program that has no
                                      version; NULL: none */
    bool probed;                   /* the stage in work: its fields were found by trying */
    uint64_t meaning; /* of it: a hash of what its samples depend on besides its text; or 0 */
    const char *note; /* the stage in work: its note in the plan; or NULL */
    bool drops;       /* some step may return BRIM__DROPPED */
    uint32_t expand;  /* first step of those that run for each row of an expansion, or none */
    uint64_t rows_per_sample;          /* rows that one sample becomes at most; 1 without expand */
    int32_t direct[BRIM__MAX_SOURCES]; /* field whose row a source's record is, or -1 */
};

/* An empty program; the sources' fields become its fields, names unique. */
brim_status brim__program_init(struct brim__program *program, struct brim__opening *opening,
                               struct brim__source *const *sources, uint32_t source_count,
                               uint32_t stage);
/* Adds the steps that write each field's pending conversion into its row. */
brim_status brim__program_finish(struct brim__program *program, struct brim__source *const *sources,
                                 uint32_t source_count);

/* Adds the step's stage to the failure, unless the sample is only dropped. */
static inline brim_status brim__step_failed(const struct brim__step *step, brim_status status) {
    if (status != BRIM__DROPPED && status != BRIM__EXHAUSTED) {
        brim__note_step(step->stage);
    }
    return status;
}

/* Runs steps first .. end - 1. */
static inline brim_status brim__program_run(const struct brim__program *program, uint32_t first,
                                            uint32_t end, const struct brim__frame *frame) {
    for (uint32_t i = first; i < end; i++) {
        const brim_status status = program->step[i]->run(program->step[i], frame);
        if (BRIM__UNLIKELY(status != BRIM_OK)) {
            return brim__step_failed(program->step[i], status);
        }
    }
    return BRIM_OK;
}

/* ------------------------------------------------------ for the stages */

/* The fields of a stage's `on` argument, as bits. fallback: those if it is not given. dense: only
 * dense fields are allowed; naming others is an error. */
enum brim__on { BRIM__ON_ALL, BRIM__ON_FIRST, BRIM__ON_LAST };
brim_status brim__program_on(const struct brim__program *program, const struct brim__use *use,
                             size_t argument, enum brim__on fallback, bool dense, uint32_t *fields);
/* Finds one field by name; unknown: an error that lists them. */
brim_status brim__program_find(const struct brim__program *program, const char *stage,
                               const char *name, uint32_t *field);
/* A new field at the end, its name unique, still without a value. */
brim_status brim__program_field(struct brim__program *program, const char *stage, const char *name,
                                uint32_t *field);

/* Records that the stage `stage` is impure. The text must outlive the program. */
void brim__program_impure(struct brim__program *program, const char *stage);
void brim__program_random(struct brim__program *program, const char *stage);
void brim__program_unversioned(struct brim__program *program, const char *stage);

/* Writes a field's pending conversion to scratch. The field is then a contiguous, aligned, native
 * array there, read if it was deferred, and no longer an image. always: even if it is already such
 * an array in a record. */
brim_status brim__program_flush(struct brim__program *program, uint32_t field, bool always);
/* The same to `to`, in scratch, which must have room for the value at its bound; but an image stays
 * an image. If nothing is left to convert, the step that wrote the field writes to `to` instead.
 * stage: the stage that keeps the value there, for errors. */
brim_status brim__program_move(struct brim__program *program, const char *stage, uint32_t field,
                               struct brim__operand to);

/* Adds a step at the end, zeroed, with its stage set; and takes scratch for a value. */
brim_status brim__program_step(struct brim__program *program, struct brim__step **step);
brim_status brim__program_scratch(struct brim__program *program, uint64_t bytes,
                                  struct brim__operand *operand);
/* The same for a value of any form: bytes at its bound. */
brim_status brim__program_room(struct brim__program *program, brim_form form, uint64_t bytes,
                               struct brim__operand *operand);
/* Sets the field to the value that a step writes to *written. range: of these values; 0: that of
 * the type. */
void brim__program_set(struct brim__program *program, uint32_t field, brim_form form,
                       brim_dtype dtype, const struct brim__shape *shape, double range,
                       struct brim__operand *written);

/* The range of a field's values, from 0 on; of a type; and of the field's values as another type,
 * which the field then keeps. 0: unknown; for the last: that of the type. */
double brim__range(const struct brim__program_field *field);
double brim__range_of_type(brim_dtype dtype);
double brim__range_cast(const struct brim__program_field *field, brim_dtype dtype);

/* The place of a field that a step only reads. The value may still be moved to its row, so the
 * place is taken from its writer each time. */
struct brim__reader {
    const struct brim__operand *operand; /* NULL: `own` */
    struct brim__operand own;
    uint64_t offset;
};
void brim__program_reader(const struct brim__program *program, uint32_t field,
                          struct brim__reader *reader);

/* Begins an expansion at the next step. Values made so far stay in scratch and are copied to each
 * row. Fails if there is one already. */
brim_status brim__program_expand(struct brim__program *program, const char *stage, uint64_t most);

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
/* A value that is not dense; offset: of the span in its record. */
static inline struct brim__span brim__operand_span(const struct brim__operand *operand,
                                                   uint64_t offset,
                                                   const struct brim__frame *frame) {
    if (operand->where == BRIM__IN_ROW) {
        return (struct brim__span){ frame->row[operand->index], *frame->length[operand->index] };
    }
    return *(const struct brim__span *)(const void *)(brim__operand_read(operand, frame) + offset);
}
/* Where to write such a value: its elements, and how many there are. */
static inline uint8_t *brim__operand_ragged(const struct brim__operand *operand,
                                            const struct brim__frame *frame, uint64_t **count) {
    if (operand->where == BRIM__IN_ROW) {
        *count = frame->length[operand->index];
        return frame->row[operand->index];
    }
    struct brim__span *span = (struct brim__span *)(void *)(frame->scratch + operand->offset);
    uint8_t *data = frame->scratch + operand->offset + BRIM__SPAN_ROOM;
    span->data = data;
    *count = &span->count;
    return data;
}

static inline const struct brim__operand *brim__reader_operand(const struct brim__reader *reader) {
    return reader->operand != NULL ? reader->operand : &reader->own;
}
/* The address of a dense value, in the layout of its view. The pending conversion is not applied:
 * flush first. */
static inline const uint8_t *brim__reader_data(const struct brim__reader *reader,
                                               const struct brim__frame *frame) {
    return brim__operand_read(brim__reader_operand(reader), frame) + reader->offset;
}
static inline struct brim__span brim__reader_span(const struct brim__reader *reader,
                                                  const struct brim__frame *frame) {
    return brim__operand_span(brim__reader_operand(reader), reader->offset, frame);
}

#endif

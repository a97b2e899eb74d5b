/*
 * sequencer.h: assigning rows to batches in order.
 *
 * One thread at a time runs the sequencer: a worker, or `next` itself. It takes
 * rows through up to three levels, each of which asks the one below for its next
 * row, and places what comes out on top into batches:
 *
 *     rows.. of chunks (made) ─► pack ─► reorder ─► batches       or reorder ─► pack
 *
 * Every row carries the position from which all that comes after it can be made again, so a batch
 * knows the state of a loader that has delivered it. The sequencer never waits: a level that has no
 * row yet says so, keeps what it has, and is asked again when there is something new.
 *
 * A rank places only its own range of a step's global rows and counts the others. The last
 * micro-batch of a step is handed out when the step is complete, because only then is it known
 * where the next one begins, or whether it is dropped.
 */
#ifndef BRIM_SEQUENCER_H
#define BRIM_SEQUENCER_H

#include "engine/block.h"
#include "engine/loader.h"
#include "order/permutation.h"

enum brim__flow {
    BRIM__FLOW_ROW,  /* here is one */
    BRIM__FLOW_WAIT, /* nothing yet: samples are still being made */
    BRIM__FLOW_END,  /* the epoch has no more */
    BRIM__FLOW_FAIL, /* a bad sample or batch; sequencer->failure says which */
};

typedef enum brim__flow brim__next_row(brim_loader *loader, struct brim__row *row);

struct brim__packer {
    struct brim__row from;        /* the document in work; layout NULL: none */
    uint64_t used;                /* elements of it that are packed */
    uint64_t count;               /* and that it has */
    uint64_t filled;              /* elements of the window in work */
    uint64_t documents;           /* in that window */
    uint64_t discard;             /* after a restore: elements of the first document */
    struct brim__position before; /* where the document in work begins */
    bool ended;
};

struct brim__reorderer {
    struct brim__block block[2];
    uint32_t giving;                /* the block that rows are given from; the other is filled */
    uint64_t given;                 /* rows (bucket: batches) of it so far */
    uint64_t discard;               /* after a restore: as many of the first block */
    struct brim__permutation order; /* of what that block gives */
    struct brim__row left;          /* a row that did not fit the block before; layout NULL: none */
    bool ended;
};

/* What the sequencer is about. */
enum brim__phase {
    BRIM__PLACING,
    BRIM__COMPLETING, /* the step has all its rows, but not all its micro-batches */
    BRIM__FINISHING,  /* the input has ended: what is left of the last step is handed out */
    BRIM__ENDED,      /* all of the epoch's batches have been made */
    BRIM__SPENT,      /* so have those of a stream that cannot be read again */
};

/* What stops it until `next` is asked again. */
enum brim__failed {
    BRIM__FAILED_NOTHING,
    BRIM__FAILED_SAMPLE,
    BRIM__FAILED_MANY,  /* more bad samples than max_errors since the last batch */
    BRIM__FAILED_BATCH, /* as a whole: it was given back */
};

/* Beside its ring, which is loader->batches; it takes chunks from the ring before. */
struct brim__sequencer {
    /* under the loader's mutex: */
    bool running;
    bool missed;                     /* a thread came while it ran: there may be more */
    bool starved;                    /* the last run had rows for a batch, but no slot */
    uint64_t tail;                   /* bad samples after the epoch's last batch */
    struct brim__position delivered; /* where a loader stands after the last batch taken */
    /* batches before this one are thrown away: after a seek or restore */
    uint64_t discard_step;
    uint32_t discard_micro;

    /* the running thread's, and under the mutex while none runs: */
    enum brim__phase phase;
    enum brim__failed failed;
    struct brim__kept_error failure; /* that a level has met: the ring's when its row is needed */
    brim__next_row *top;             /* the uppermost level, and the one below pack and reorder */
    brim__next_row *pack_below, *reorder_below;
    struct brim__pages item;   /* one packed row */
    struct brim__pages blocks; /* both blocks */
    struct brim__slot *chunk;  /* being read; NULL: none */
    uint64_t chunk_row;        /* its next row */
    struct brim__row ahead;    /* taken from the top while no slot was free; layout NULL: none */
    struct brim__position at;  /* after the last row taken from chunks */
    uint64_t origin_row;       /* of the first sample: rows already used up */
    struct brim__packer packer;
    struct brim__reorderer reorderer;
    struct brim__slot *slot;                /* being filled; NULL: none */
    uint64_t rows;                          /* in it */
    uint64_t width;                         /* bucket: of its padded fields */
    uint64_t step, step_rows;               /* its number; rows of it so far, over all ranks */
    uint32_t micro;                         /* micro-batches of it made */
    uint64_t total;                         /* rows before this step */
    struct brim__position step_begin, last; /* before its first row, after its latest */
    uint64_t met;       /* bad samples that were met and belong to no batch or block yet */
    uint64_t skipped;   /* and those that the next batch counts */
    uint64_t published; /* batches made, those thrown away among them */
    char bad_text[BRIM__SAMPLE_ERROR]; /* of a bad sample among them ... */
    uint64_t bad_cause;                /* ... and its cause */
};

extern const struct brim__ring_role brim__sequencer_role;

/* Memory for its window, and back; the record lies with the loader's. */
brim_status brim__sequencer_init(brim_loader *loader);
void brim__sequencer_fini(brim_loader *loader);

/* All with the mutex held. */
/* Begins at a position, once the sequencer does not run; the rings are left as they are. */
void brim__sequencer_go(brim_loader *loader, const struct brim__position *position);

/* sequencer_input.c, for the running thread. Up to `most` neighbouring rows that were kept,
 * from *first of the chunk on; one of them, as a level; the rest of the sample's rows is passed
 * over; the position after the last row taken. */
enum brim__flow brim__made_rows(brim_loader *loader, uint64_t most, uint64_t *first,
                                uint64_t *count);
void brim__made_leave_sample(brim_loader *loader);
/* More bad samples than max_errors were met since the last batch: all levels fail with that. */
bool brim__made_too_many(const brim_loader *loader);
struct brim__position brim__made_position(const brim_loader *loader);

/* reorder.c, pack.c: brim__next_row functions, and their beginnings. */
brim__next_row brim__made_next, brim__reorder_next, brim__pack_next;
void brim__reorder_go(brim_loader *loader, const struct brim__position *position);
void brim__pack_go(brim_loader *loader, const struct brim__position *position);
/* Fills the block that is not given out, as far as rows are there: whether any was. */
bool brim__reorder_absorb(brim_loader *loader);
/* Fills a block that has something to give: ROW, once there is. */
enum brim__flow brim__reorder_prepare(brim_loader *loader);
/* bucket: the next batch of rows. */
struct brim__bucket_batch {
    uint64_t first, rows, width;
    const struct brim__block *block;
    struct brim__position after;
};
enum brim__flow brim__reorder_batch(brim_loader *loader, struct brim__bucket_batch *batch);

#endif

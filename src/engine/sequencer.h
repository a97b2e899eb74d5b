/*
 * sequencer.h: rows placed one after the other.
 *
 * One thread at a time runs the sequencer: a worker, or `next` itself. It takes
 * rows through up to three levels, each of which asks the one below for its next
 * row, and places what comes out on top into batches:
 *
 *     rows.. of chunks (made) ─► pack ─► gather ─► batches        or gather ─► pack
 *
 * Every row carries the position from which all that comes behind it can be made
 * again, so a batch knows where a loader stands that has delivered it. Waiting
 * never happens in here: a level that has no row yet says so, keeps what it has,
 * and is asked again when there is something new.
 *
 * Of a step's global rows a rank places only its own range and counts the others.
 * The last micro-batch of a step is handed out when the step is complete, because
 * only then is it known where the next one begins, or whether it is dropped.
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
    BRIM__FLOW_FAIL, /* a bad sample or batch; sequencer->error says which */
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

struct brim__gatherer {
    struct brim__block block[2];
    uint32_t giving;                /* the block that rows are given from; the other is filled */
    uint64_t given;                 /* rows (bucket: batches) of it so far */
    uint64_t discard;               /* after a restore: as many of the first block */
    struct brim__permutation order; /* of what that block gives */
    struct brim__row left;          /* a row that did not fit the block before; layout NULL: none */
    bool ended;
};

struct brim__sequencer {
    /* under the loader's mutex: */
    bool running;
    bool missed;         /* a thread came in vain while it ran: there may be more to do */
    bool end;            /* all of the epoch's batches have been made */
    bool spent;          /* a stream that cannot be read again has ended */
    brim_status error;   /* met: said when the batches before it are taken ... */
    bool told;           /* ... and said: tried again when asked again */
    uint64_t tail;       /* bad samples after the epoch's last batch */
    uint64_t take, make; /* tickets of batches: taken, made */
    struct brim__position delivered; /* where a loader stands after the last one taken */
    /* batches before this one are thrown away: after a seek or restore */
    uint64_t discard_step;
    uint32_t discard_micro;

    /* the runner's: */
    brim__next_row *top; /* the uppermost level, and the one below pack and gather */
    brim__next_row *pack_below, *gather_below;
    struct brim__pages item;   /* one packed row */
    struct brim__pages blocks; /* both blocks */
    struct brim__slot *chunk;  /* being read; NULL: none */
    uint64_t chunk_row;        /* its next row */
    struct brim__position at;  /* after the last row taken from chunks */
    uint64_t origin_row;       /* of the first sample: rows already used up */
    struct brim__packer packer;
    struct brim__gatherer gatherer;
    struct brim__slot *slot; /* being filled; NULL: none */
    uint64_t rows;           /* in it */
    uint64_t width;          /* bucket: of its padded fields */
    bool input_ended;
    bool finishing;                         /* what is left of the last step is being handed out */
    uint64_t step, step_rows;               /* its number; rows of it so far, over all ranks */
    uint32_t micro;                         /* micro-batches of it made */
    uint64_t total;                         /* rows before this step */
    struct brim__position step_begin, last; /* before its first row, after its latest */
    brim_status failure; /* that a level has met; becomes `error` when its row is needed */
    bool batch_failed;   /* it is that of a whole batch, which was given back */
    uint64_t met;        /* bad samples that were met and belong to no batch or block yet */
    uint64_t skipped;    /* and those that the next batch counts */
    uint64_t published;  /* batches made, those thrown away among them */
    bool completing;     /* the step has all its rows, but not all its micro-batches */
    char bad_text[BRIM__SAMPLE_ERROR]; /* of a bad sample among them ... */
    uint64_t bad_cause;                /* ... and its cause */
    struct brim__failure kept;         /* what is known of `error` */
};

/* Memory for its window, and back; the record lies with the loader's. */
brim_status brim__sequencer_init(brim_loader *loader);
void brim__sequencer_fini(brim_loader *loader);

/* All with the mutex held. */
/* Begins at a position, once the sequencer does not run; the ring is abandoned. */
void brim__sequencer_go(brim_loader *loader, const struct brim__position *position);
/* The batch to be lent next, if it is ready. */
struct brim__slot *brim__sequencer_head(brim_loader *loader);
/* After an error was returned: the sample is made again, or, of a stream, left out; so
 * is a batch of a stream that failed as a whole. */
void brim__sequencer_retry(brim_loader *loader);
/* A piece of work, for which the mutex is released; false: there was none. */
bool brim__sequencer_turn(brim_loader *loader);

/* gather.c, pack.c: brim__next_row functions, and their beginnings. */
brim__next_row brim__gather_next, brim__pack_next;
void brim__gather_go(brim_loader *loader, const struct brim__position *position);
void brim__pack_go(brim_loader *loader, const struct brim__position *position);
/* Fills the block that is not given out, as far as rows are there: whether any was. */
bool brim__gather_absorb(brim_loader *loader);
/* bucket: the next batch of rows. */
struct brim__bucket_batch {
    uint64_t first, rows, width;
    const struct brim__block *block;
    struct brim__position after;
};
enum brim__flow brim__gather_batch(brim_loader *loader, struct brim__bucket_batch *batch);

#endif

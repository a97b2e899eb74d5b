/*
 * make.h: rows of batches or chunks, made by threads.
 *
 * A thread claims a run of rows of the lowest ticket that has rows left (claim.c), makes them
 * without any lock (make_rows.c) and reports the results (make.c). Rows of a stream are pulled by
 * one thread at a time, into a chunk of their own (make_stream.c).
 */
#ifndef BRIM_MAKE_H
#define BRIM_MAKE_H

#include "engine/loader.h"

/* A run of rows of one slot. */
struct brim__run {
    brim_loader *loader;
    struct brim__stop stop;
    struct brim__slot *slot;
    struct brim__scratch *memory; /* of the thread */
    uint8_t *slot_memory;
    uint8_t *scratch;
    brim_region batch_region, scratch_region;
    uint32_t first, count;
    bool timed; /* measure each stage */
    bool advise;
    /* results */
    bool interrupted; /* nothing of it counts: its rows are made again */
    brim_status error;
    uint32_t error_row;
    uint32_t bad_rows, replaced_rows;
    uint64_t read_bytes;
    uint64_t slowest_fetch_ns;
    uint64_t stage_ns[BRIM__MAX_STAGES]; /* when timed */
    struct brim__failure failure;        /* what is known of `error` */
    uint32_t bad_count;
    struct brim__failure bad[2]; /* of the first bad samples */
};

/* The roles of the first ring. */
extern const struct brim__ring_role brim__make_role, brim__stream_role;

/* claim.c, with the mutex held: a run of rows of the lowest ticket that has any left, which
 * sets slot, first and count; head_only: of the batch that is wanted next, no other. */
bool brim__claim(brim_loader *loader, bool head_only, struct brim__run *run);
/* Begins a chunk or a batch in a free slot: its ticket is the next one. */
void brim__begin(brim_loader *loader, struct brim__slot *slot);

/* make.c, with the mutex held. A thread's working memory, or NULL; and memory for one more,
 * elastic, if it is free. */
struct brim__scratch *brim__scratch_take(brim_loader *loader, bool is_next);
bool brim__scratch_grow(brim_loader *loader);
/* The beginning and the end of a run, of which slot and memory are set. What became of it is
 * reported to its slot; of the rows of a batch, the thread that reports the last ones finishes
 * the batch. */
void brim__run_begin(struct brim__run *run, brim_loader *loader, bool is_next);
void brim__run_end(struct brim__run *run, uint64_t took);

/* The stages that act on whole batches, on one that is complete otherwise, until one fails. No
 * lock held; takes the mutex to count their time. */
brim_status brim__batch_act(brim_loader *loader, const struct brim__batch_call *call);

/* make_rows.c: makes the run's rows; no lock held. A failure of this kind is the sample's
 * fault, not the system's or brim's. */
void brim__rows_make(struct brim__run *run);
bool brim__is_bad_sample(brim_status status);
/* The same for run->count samples of a stream, from number `sample` on, whose
 * records were pulled; and for one that could not be, because it is bad, or
 * because nothing can be (stuck). */
void brim__rows_pulled(struct brim__run *run, uint64_t sample, const uint8_t *records);
void brim__rows_unpulled(struct brim__run *run, uint64_t sample, brim_status status, bool stuck);

#endif

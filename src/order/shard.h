/*
 * shard.h: how an epoch's positions become the batches of one rank.
 *
 * A global batch is `global_rows` consecutive positions. Rank r of w takes rows
 * [rows * r / w, rows * (r+1) / w) of each, so joining the ranks' rows gives the
 * global batch and all ranks have equally many batches. What a rank receives of
 * a step is cut into micro-batches; each is one delivery: what `next` returns.
 *
 * With a `base` (a state restored under another batch size) the epoch begins at
 * that position instead of 0.
 */
#ifndef BRIM_SHARD_H
#define BRIM_SHARD_H

#include "base/base.h"

enum brim__remainder { BRIM__KEEP, BRIM__DROP, BRIM__PAD };
enum brim__on_error { BRIM__FAIL, BRIM__SKIP, BRIM__REPLACE };

#define BRIM__BUCKET_EDGES 32

/* What bucket says: batches of samples of like length. */
struct brim__bucketing {
    bool on;
    uint64_t tokens;                   /* most of rows x longest in a batch */
    uint64_t buffer;                   /* bytes of samples among which it looks for like ones */
    uint64_t edge[BRIM__BUCKET_EDGES]; /* widths that batches may have; none: any */
    uint32_t edges;
    uint64_t seed;
    bool shuffle; /* batches of one buffer come in random order */
};

/* What pack_sequences says: documents laid end to end into windows. */
struct brim__packing {
    bool on;
    char field[BRIM_NAME_BYTES]; /* "": the first that is ragged */
    uint64_t length;
    bool split; /* a document may go on in the next window */
};

/* What the batching stages say. */
struct brim__batching {
    uint64_t rows;  /* of a rank's batch, or of the global one */
    bool global;    /* rows counts the global batch */
    uint64_t micro; /* rows of a micro-batch; 0: the whole batch */
    enum brim__remainder remainder;
    enum brim__on_error on_error;
    uint64_t max_errors; /* in an epoch; UINT64_MAX: no cap */
    struct brim__bucketing bucket;
    struct brim__packing pack;
};

struct brim__shard {
    uint64_t count; /* positions in an epoch */
    uint64_t base;
    uint64_t global_rows;
    uint64_t micro_rows; /* most rows of a delivery */
    uint32_t rank, world;
    enum brim__remainder remainder;
};

struct brim__delivery {
    uint64_t step; /* counted from position 0 in units of global batches */
    uint32_t micro, micro_count;
    uint64_t first;       /* global position of its first row */
    uint64_t rows;        /* padded ones among them */
    uint64_t valid_rows;  /* the first ones */
    uint64_t step_rows;   /* valid rows of the step at this rank */
    uint64_t global_rows; /* valid rows of the step over all ranks */
    uint64_t resume;      /* position of the step's begin, and where the next step begins */
    uint64_t resume_next;
};

/* Refuses what cannot be: a world of 0, a rank outside it, a global batch
 * smaller than the world, rows whose product overflows. */
brim_status brim__shard_init(struct brim__shard *shard, const struct brim__batching *batching,
                             uint64_t count, uint32_t rank, uint32_t world);
/* Deliveries and steps in an epoch; those after `base` only. */
uint64_t brim__shard_deliveries(const struct brim__shard *shard);
uint64_t brim__shard_steps(const struct brim__shard *shard);
/* The delivery with which step number `step` (from base) begins. */
uint64_t brim__shard_delivery_of_step(const struct brim__shard *shard, uint64_t step);
void brim__shard_delivery(const struct brim__shard *shard, uint64_t index,
                          struct brim__delivery *delivery);

#endif

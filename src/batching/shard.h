/*
 * shard.h: how an epoch's positions become the batches of one rank.
 *
 * A global batch is `global_rows` consecutive positions. Rank r of w takes rows [rows * r / w, rows
 * * (r+1) / w) of each, so the ranks' rows together are the global batch, and all ranks have the
 * same number of batches. A rank's part of a step is cut into micro-batches. Each is one delivery,
 * which `next` returns.
 *
 * With a `base` (a state restored under another batch size) the epoch begins at
 * that position instead of 0.
 */
#ifndef BRIM_SHARD_H
#define BRIM_SHARD_H

#include "batching/batching.h"

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

/* Fails for a world of 0, a rank outside it, a global batch smaller than the world, and rows whose
 * product overflows. */
brim_status brim__shard_init(struct brim__shard *shard, const struct brim__batching *batching,
                             uint64_t count, uint32_t rank, uint32_t world);
/* Deliveries and steps in an epoch, without those before `base`. */
uint64_t brim__shard_deliveries(const struct brim__shard *shard);
uint64_t brim__shard_steps(const struct brim__shard *shard);
/* The delivery with which step number `step` (from base) begins. */
uint64_t brim__shard_delivery_of_step(const struct brim__shard *shard, uint64_t step);
void brim__shard_delivery(const struct brim__shard *shard, uint64_t index,
                          struct brim__delivery *delivery);

/* For a step with `rows` rows over all ranks: own_rows gives the rows [begin, end) of this rank;
 * micro_count the number of deliveries, which is the same on every rank. */
void brim__shard_own_rows(const struct brim__shard *shard, uint64_t rows, uint64_t *begin,
                          uint64_t *end);
uint64_t brim__shard_micro_count(const struct brim__shard *shard, uint64_t rows);
/* The rows [begin, end) of the step that are one of this rank's micro-batches; and how many of this
 * rank's rows are valid, if the first `valid` rows of the step are. */
void brim__shard_micro(const struct brim__shard *shard, uint64_t rows, uint64_t micro,
                       uint64_t *begin, uint64_t *end);
uint64_t brim__shard_valid(const struct brim__shard *shard, uint64_t rows, uint64_t valid);

/* bucket: a step is one batch for each rank, in the order of ranks. The number of this rank's
 * batch, over all steps; whether this rank gets the next batch after `made` batches of the step;
 * whether the step is complete. */
static inline uint64_t brim__shard_batch_of_step(const struct brim__shard *shard, uint64_t step) {
    return step * shard->world + shard->rank;
}
static inline bool brim__shard_is_next(const struct brim__shard *shard, uint32_t made) {
    return made == shard->rank;
}
static inline bool brim__shard_is_whole(const struct brim__shard *shard, uint32_t made) {
    return made == shard->world;
}

#endif

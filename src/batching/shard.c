/*
 * shard.c: the arithmetic of steps, ranks and micro-batches.
 *
 *     positions  base                                          count
 *                |-- step --|-- step --|-- step --|- remainder -|
 *     a step     | rank 0 | rank 1 | ...     | rank w-1 |
 *     a rank     | micro 0 | micro 1 | micro 2 |
 *
 * A step of R rows gives rank r the rows floor(R r / w) .. floor(R (r+1) / w). That is at most
 * ceil(R / w) rows, and some rank has that many. The number of deliveries of a step depends on this
 * maximum, so it is the same on all ranks. A rank with fewer rows may have a last delivery that is
 * short or empty.
 *
 * The remainder: if kept, it is a step of fewer rows; if padded, a full step whose rows at the end
 * are not valid; if dropped, no step.
 */
#include "batching/shard.h"

#define MOST_ROWS ((uint64_t)1 << 62) /* so that position + rows cannot overflow */

brim_status brim__shard_init(struct brim__shard *shard, const struct brim__batching *batching,
                             uint64_t count, uint32_t rank, uint32_t world) {
    uint64_t global_rows = batching->rows;
    if (world == 0) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "shard: the world has 0 ranks; it must have at least 1");
    }
    if (rank >= world) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "shard: rank %u of a world of %u; ranks count from 0", rank, world);
    }
    if (batching->rows == 0) {
        return brim__fail(BRIM_STATUS_INVALID, "batch: 0 rows; a batch has at least 1");
    }
    if (!batching->global && brim__mul_overflows(batching->rows, world, &global_rows)) {
        global_rows = UINT64_MAX;
    }
    if (global_rows > MOST_ROWS || count > (uint64_t)1 << 63) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "batch: %llu rows for %u ranks of %llu samples are too many to count",
                          (unsigned long long)batching->rows, world, (unsigned long long)count);
    }
    if (global_rows < world) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "batch: a global batch of %llu rows is smaller than the world of %u "
                          "ranks; give at least a row for each rank",
                          (unsigned long long)global_rows, world);
    }
    const uint64_t rank_rows = brim__divide_up(global_rows, world);
    const uint64_t micro_rows =
        batching->micro == 0 ? rank_rows : brim__min(batching->micro, rank_rows);
    if (brim__divide_up(rank_rows, micro_rows) > UINT32_MAX) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "batch: %llu rows in micro-batches of %llu are too many micro-batches",
                          (unsigned long long)rank_rows, (unsigned long long)micro_rows);
    }
    *shard = (struct brim__shard){
        .count = count,
        .base = 0,
        .global_rows = global_rows,
        .micro_rows = micro_rows,
        .rank = rank,
        .world = world,
        .remainder = batching->remainder,
    };
    return BRIM_OK;
}

static uint64_t full_steps(const struct brim__shard *shard) {
    return (shard->count - shard->base) / shard->global_rows;
}

/* Rows of the step after the full ones, 0 if there is none. */
static uint64_t last_rows(const struct brim__shard *shard) {
    const uint64_t rows = (shard->count - shard->base) % shard->global_rows;
    if (rows == 0 || shard->remainder == BRIM__DROP) {
        return 0;
    }
    return shard->remainder == BRIM__PAD ? shard->global_rows : rows;
}

uint64_t brim__shard_micro_count(const struct brim__shard *shard, uint64_t rows) {
    return brim__divide_up(brim__divide_up(rows, shard->world), shard->micro_rows);
}

static uint64_t rank_begin(const struct brim__shard *shard, uint64_t rows, uint64_t rank) {
    return (uint64_t)((unsigned __int128)rows * rank / shard->world);
}

void brim__shard_own_rows(const struct brim__shard *shard, uint64_t rows, uint64_t *begin,
                          uint64_t *end) {
    *begin = rank_begin(shard, rows, shard->rank);
    *end = rank_begin(shard, rows, (uint64_t)shard->rank + 1);
}

uint64_t brim__shard_steps(const struct brim__shard *shard) {
    return full_steps(shard) + (last_rows(shard) > 0);
}

uint64_t brim__shard_deliveries(const struct brim__shard *shard) {
    return full_steps(shard) * brim__shard_micro_count(shard, shard->global_rows) +
           brim__shard_micro_count(shard, last_rows(shard));
}

uint64_t brim__shard_delivery_of_step(const struct brim__shard *shard, uint64_t step) {
    const uint64_t full = full_steps(shard);
    if (step > full) {
        return brim__shard_deliveries(shard);
    }
    return step * brim__shard_micro_count(shard, shard->global_rows);
}

void brim__shard_micro(const struct brim__shard *shard, uint64_t rows, uint64_t micro,
                       uint64_t *begin, uint64_t *end) {
    uint64_t first, last;
    brim__shard_own_rows(shard, rows, &first, &last);
    *begin = brim__min(first + micro * shard->micro_rows, last);
    *end = brim__min(*begin + shard->micro_rows, last);
}

uint64_t brim__shard_valid(const struct brim__shard *shard, uint64_t rows, uint64_t valid) {
    uint64_t first, last;
    brim__shard_own_rows(shard, rows, &first, &last);
    return brim__min(last, valid) - brim__min(first, valid);
}

void brim__shard_delivery(const struct brim__shard *shard, uint64_t index,
                          struct brim__delivery *delivery) {
    assert(index < brim__shard_deliveries(shard));
    const uint64_t in_full = brim__shard_micro_count(shard, shard->global_rows);
    /* right for the last step too, because it has no more deliveries than a full one */
    const uint64_t number = index / in_full;
    const uint64_t begin = shard->base + number * shard->global_rows;
    const uint64_t valid = brim__min(shard->count - begin, shard->global_rows);
    const uint64_t rows = valid == shard->global_rows ? valid : last_rows(shard);

    const uint64_t micro = index - number * in_full;
    uint64_t from, to;
    brim__shard_micro(shard, rows, micro, &from, &to);
    *delivery = (struct brim__delivery){
        .step = shard->base / shard->global_rows + number,
        .micro = (uint32_t)micro,
        .micro_count = (uint32_t)brim__shard_micro_count(shard, rows),
        .first = begin + from,
        .rows = to - from,
        .valid_rows = brim__min(to, valid) - brim__min(from, valid),
        .step_rows = brim__shard_valid(shard, rows, valid),
        .global_rows = valid,
        .resume = begin,
        .resume_next = begin + valid,
    };
}

/*
 * shard.c: two ranks divide one epoch; together they receive all samples.
 *
 * In a real training each rank is a separate process, perhaps on a separate machine. They need not
 * communicate: the text and (rank, world) decide the rows of each rank. Here both run in one
 * process, so that they can be compared with a single loader.
 *
 *     global batch    | row 0 ...... row 31 | row 32 ..... row 63 |
 *                       rank 0               rank 1
 *
 * `per=global` fixes the batch of all ranks together. `remainder=pad` fills the last one with rows
 * that are marked as not valid: every rank has the same number of batches of the same shape, no
 * sample comes twice, and none is left out.
 */
#include <brim.h>

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>

enum { WORLD = 2, SAMPLES = 1000, ROWS = 64 };

static brim_status open_rank(brim_runtime *runtime, const brim_pipeline *pipeline, uint32_t rank,
                             uint32_t world, brim_loader **loader) {
    brim_open_options options = BRIM_OPEN_OPTIONS_INIT;
    options.rank = rank;
    options.world = world;
    return brim_loader_open(runtime, pipeline, &options, loader);
}

/* Appends the numbers of a loader's next batch, UINT64_MAX for padded rows. */
static brim_status append_next(brim_loader *loader, uint64_t *numbers, size_t *count) {
    brim_batch *batch;
    const brim_status status = brim_loader_next(loader, BRIM_FOREVER, &batch);
    if (status != BRIM_OK) {
        return status;
    }
    const brim_batch_info *info = brim_batch_get(batch);
    const int64_t *values = brim_batch_find(batch, "index")->data;
    for (uint64_t row = 0; row < info->rows && *count < ROWS; row++) {
        numbers[(*count)++] = info->valid[row] ? (uint64_t)values[row] : UINT64_MAX;
    }
    brim_batch_release(batch);
    return BRIM_OK;
}

/* One epoch in step: the rows of the ranks against those of the whole. */
static brim_status compare(brim_loader *whole, brim_loader *const ranks[WORLD], bool *equal) {
    static unsigned char seen[SAMPLES];
    uint64_t steps = 0, valid = 0, padded = 0;
    brim_status status = BRIM_OK;
    *equal = true;
    for (; *equal; steps++) {
        uint64_t expected[ROWS], joined[ROWS];
        size_t expected_count = 0, joined_count = 0;
        status = append_next(whole, expected, &expected_count);
        for (uint32_t rank = 0; rank < WORLD; rank++) {
            const brim_status own = append_next(ranks[rank], joined, &joined_count);
            if (own != BRIM_OK && own != BRIM_STATUS_END) {
                return own;
            }
            *equal = *equal && own == status; /* all end after the same step */
        }
        if (status != BRIM_OK) {
            break;
        }
        *equal = *equal && expected_count == ROWS && joined_count == ROWS;
        for (size_t row = 0; row < ROWS && *equal; row++) {
            *equal = joined[row] == expected[row];
            if (joined[row] == UINT64_MAX) {
                padded++;
            } else if (joined[row] < SAMPLES && seen[joined[row]]++ == 0) {
                valid++;
            } else {
                *equal = false;
            }
        }
    }
    printf("%" PRIu64 " steps: %" PRIu64 " samples once each, %" PRIu64 " rows padded\n", steps,
           valid, padded);
    *equal = *equal && valid == SAMPLES;
    return status == BRIM_STATUS_END ? BRIM_OK : status;
}

int main(void) {
    brim_runtime_options limits = BRIM_RUNTIME_OPTIONS_INIT;
    limits.host_bytes = 4 << 20;
    brim_runtime *runtime = NULL;
    brim_pipeline *pipeline = NULL;
    brim_loader *whole = NULL, *ranks[WORLD] = { NULL };
    bool equal = false;
    brim_status status = brim_runtime_new(&limits, &runtime);
    if (status == BRIM_OK) {
        status = brim_pipeline_parse(
            "range 1000 | shuffle seed=7 | batch 64 per=global remainder=pad", &pipeline);
    }
    if (status == BRIM_OK) {
        status = open_rank(runtime, pipeline, 0, 1, &whole);
    }
    for (uint32_t rank = 0; rank < WORLD && status == BRIM_OK; rank++) {
        status = open_rank(runtime, pipeline, rank, WORLD, &ranks[rank]);
    }
    if (status == BRIM_OK) {
        status = compare(whole, ranks, &equal);
    }
    if (status != BRIM_OK) {
        fprintf(stderr, "shard: %s: %s\n", brim_status_name(status), brim_detail());
    } else {
        puts(equal ? "the rows of both ranks, joined, are the batches of the whole"
                   : "the rows of both ranks are NOT the whole");
    }
    for (uint32_t rank = 0; rank < WORLD; rank++) {
        brim_loader_close(ranks[rank]);
    }
    brim_loader_close(whole);
    brim_pipeline_free(pipeline);
    brim_runtime_free(runtime);
    return status == BRIM_OK && equal ? 0 : 1;
}

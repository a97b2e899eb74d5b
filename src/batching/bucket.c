/*
 * bucket.c: batches of samples of similar length, bounded by tokens.
 *
 * It replaces `batch`. Samples are collected in a buffer of a given number of bytes, sorted by the
 * length of their padded fields, and cut into batches whose rows times width are at most `tokens`.
 * So there is little padding, and a batch of short samples has many rows. The batches of one buffer
 * come in random order. While one half of the buffer is delivered, the other is filled.
 */
#include "batching/batching.h"
#include "batching/stages.h"

#define MOST_TOKENS 1073741824.0 /* 2^30 */
#define MOST_ROWS   65536

enum { TOKENS, ROWS, BUFFER, EDGES, SHUFFLE, SEED, ON_ERROR, MAX_ERRORS };

static const brim_argument_info arguments[] = {
    [TOKENS] = {
        .name = "tokens",
        .type = BRIM_TYPE_INTEGER,
        .flags = BRIM_ARGUMENT_FLAG_REQUIRED | BRIM_ARGUMENT_FLAG_POSITIONAL,
        .least = 1,
        .most = MOST_TOKENS,
        .help = "most elements of a batch: its rows times the longest of them",
    },
    [ROWS] = {
        .name = "rows",
        .type = BRIM_TYPE_INTEGER,
        .fallback = "256",
        .least = 1,
        .most = MOST_ROWS,
        .help = "most rows of a batch, even if they are short",
    },
    [BUFFER] = {
        .name = "buffer",
        .type = BRIM_TYPE_SIZE,
        .fallback = "4MiB",
        .least = 4096,
        .most = 1099511627776.0, /* 2^40 */
        .help = "memory for samples, which are sorted by length in it",
    },
    [EDGES] = {
        .name = "edges",
        .type = BRIM_TYPE_INTEGER,
        .flags = BRIM_ARGUMENT_FLAG_LIST,
        .least = 1,
        .most = MOST_TOKENS,
        .help = "widths that batches may have, ascending: for frameworks that compile for each "
                "shape; default: that of the longest row",
    },
    [SHUFFLE] = {
        .name = "shuffle",
        .type = BRIM_TYPE_YESNO,
        .fallback = "yes",
        .help = "yes: the batches of one buffer in random order; no: the longest first",
    },
    [SEED] = BRIM__SEED_ARGUMENT("another number gives another order of batches"),
    [ON_ERROR] = BRIM__ON_ERROR_ARGUMENT("fail|skip", "or it is left out"),
    [MAX_ERRORS] = BRIM__MAX_ERRORS_ARGUMENT("skip accepts"),
};

static brim_status set(const struct brim__use *use, struct brim__batching *batching) {
    const struct brim__values *edges = &use->values[EDGES];
    struct brim__bucketing *bucket = &batching->bucket;
    if (edges->count > BRIM__BUCKET_EDGES) {
        return brim__fail(BRIM_STATUS_INVALID, "bucket: %zu edges, but there are at most %d",
                          edges->count, BRIM__BUCKET_EDGES);
    }
    bucket->on = true;
    bucket->tokens = (uint64_t)brim__item(use, TOKENS)->integer;
    bucket->buffer = (uint64_t)brim__item(use, BUFFER)->integer;
    bucket->shuffle = brim__item(use, SHUFFLE)->integer != 0;
    bucket->seed = (uint64_t)brim__item(use, SEED)->integer;
    for (size_t i = 0; i < edges->count; i++) {
        const uint64_t edge = (uint64_t)edges->items[i].integer;
        if (edge > bucket->tokens || (i > 0 && edge <= bucket->edge[i - 1])) {
            return brim__fail(BRIM_STATUS_INVALID,
                              "bucket: edges must ascend and none may be above tokens=%llu; edge "
                              "%zu is %llu",
                              (unsigned long long)bucket->tokens, i + 1, (unsigned long long)edge);
        }
        bucket->edge[bucket->edges++] = edge;
    }
    batching->rows = (uint64_t)brim__item(use, ROWS)->integer;
    batching->on_error = (enum brim__on_error)brim__item(use, ON_ERROR)->integer;
    batching->max_errors = (uint64_t)brim__item(use, MAX_ERRORS)->integer;
    return BRIM_OK;
}

const struct brim__stage brim__stage_bucket = {
    .info = {
        .name = "bucket",
        .summary = "batches of samples of similar length, bounded by tokens",
        .example = "bucket 8192 buffer=8MiB",
        .room = BRIM_ROOM_BATCHING,
        .version = 1,
        .arguments = arguments,
        .argument_count = BRIM__COUNT(arguments),
    },
    .set_batching = set,
    .makes_batches = true,
    .sequences = true,
};

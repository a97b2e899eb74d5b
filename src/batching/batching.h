/*
 * batching.h: the requests of the stages batch, bucket and pack_sequences.
 *
 * The stages fill this record from their arguments (batch.c, bucket.c,
 * pack_sequences.c). shard.c does the arithmetic of steps, ranks and micro-batches;
 * plan/sequence.c plans what is packed or sorted by length; engine/ fills the batches.
 */
#ifndef BRIM_BATCHING_H
#define BRIM_BATCHING_H

#include "base/base.h"

enum brim__remainder { BRIM__KEEP, BRIM__DROP, BRIM__PAD };
enum brim__on_error { BRIM__FAIL, BRIM__SKIP, BRIM__REPLACE };

#define BRIM__BUCKET_EDGES 32

/* The request of `bucket`: batches of samples of similar length. */
struct brim__bucketing {
    bool on;
    uint64_t tokens;                   /* most of rows x longest in a batch */
    uint64_t buffer;                   /* bytes of samples that are sorted together */
    uint64_t edge[BRIM__BUCKET_EDGES]; /* widths that batches may have; none: any */
    uint32_t edges;
    uint64_t seed;
    bool shuffle; /* batches of one buffer come in random order */
};

/* The request of `pack_sequences`: documents put end to end into windows. */
struct brim__packing {
    bool on;
    char field[BRIM_NAME_BYTES]; /* "": the first that is ragged */
    uint64_t length;
    bool split; /* a document may continue in the next window */
};

/* The requests of the batching stages. */
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

#endif

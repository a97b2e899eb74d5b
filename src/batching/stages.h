/*
 * stages.h: the rows of the batching stages in the stage table; each is defined by its file. batch,
 * bucket and pack_sequences determine how batches are made (batching.h); mixup, cutmix and
 * batch_map act on whole batches (batch_program.h).
 */
#ifndef BRIM_BATCHING_STAGES_H
#define BRIM_BATCHING_STAGES_H

#include "base/stage.h"

/* Rows that the stages which make batches have. */
#define BRIM__ON_ERROR_ARGUMENT(choices_, help_)                                               \
    {                                                                                          \
        .name = "on_error", .type = BRIM_TYPE_CHOICE, .fallback = "fail", .choices = choices_, \
        .help = "at a bad sample: next fails, " help_                                          \
    }
#define BRIM__MAX_ERRORS_ARGUMENT(accept)                                                \
    {                                                                                    \
        .name = "max_errors", .type = BRIM_TYPE_INTEGER, .fallback = "1000", .least = 0, \
        .most = 4611686018427387904.0, /* 2^62 */                                        \
            .help = "most bad samples in an epoch that " accept                          \
    }

extern const struct brim__stage brim__stage_batch;
extern const struct brim__stage brim__stage_bucket;
extern const struct brim__stage brim__stage_pack_sequences;
extern const struct brim__stage brim__stage_mixup;
extern const struct brim__stage brim__stage_cutmix;
extern const struct brim__stage brim__stage_batch_map;

#endif

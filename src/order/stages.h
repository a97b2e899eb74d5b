/*
 * stages.h: the rows of the stage table for order stages; each is defined in its own file.
 */
#ifndef BRIM_ORDER_STAGES_H
#define BRIM_ORDER_STAGES_H

#include "base/stage.h"

/* Bound of arguments that count samples or passes: exact as a double. */
#define BRIM__ORDER_MOST_ARGUMENT 4611686018427387904.0 /* 2^62 */

/* Arguments that several of them have. */
#define BRIM__ORDER_SEED_ARGUMENT(what) BRIM__SEED_ARGUMENT("another number gives " what)
#define BRIM__ORDER_LENGTH_ARGUMENT(text)                                         \
    {                                                                             \
        .name = "length", .type = BRIM_TYPE_INTEGER, .fallback = "0", .least = 0, \
        .most = BRIM__ORDER_MOST_ARGUMENT, .help = text                           \
    }
#define BRIM__ORDER_COUNT_ARGUMENT(text)                                                  \
    {                                                                                     \
        .name = "count", .type = BRIM_TYPE_INTEGER,                                       \
        .flags = BRIM_ARGUMENT_FLAG_REQUIRED | BRIM_ARGUMENT_FLAG_POSITIONAL, .least = 0, \
        .most = BRIM__ORDER_MOST_ARGUMENT, .help = text                                   \
    }
#define BRIM__LABEL_ARGUMENT                                                                      \
    {                                                                                             \
        .name = "label", .type = BRIM_TYPE_WORD,                                                  \
        .flags = BRIM_ARGUMENT_FLAG_REQUIRED | BRIM_ARGUMENT_FLAG_POSITIONAL,                     \
        .help =                                                                                   \
            "field whose values are the classes; all values are read when the pipeline is opened" \
    }

extern const struct brim__stage brim__stage_shuffle;
extern const struct brim__stage brim__stage_split;
extern const struct brim__stage brim__stage_take;
extern const struct brim__stage brim__stage_skip;
extern const struct brim__stage brim__stage_repeat;
extern const struct brim__stage brim__stage_mix;
extern const struct brim__stage brim__stage_concat;
extern const struct brim__stage brim__stage_subset;
extern const struct brim__stage brim__stage_balance;
extern const struct brim__stage brim__stage_weighted;
extern const struct brim__stage brim__stage_fold;

#endif

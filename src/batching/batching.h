/*
 * batching.h: the batching room's rows of the stage table. Those that make batches
 * only say what is wanted: order/shard.c does the arithmetic, engine/ the work.
 * mixup, cutmix and batch_map act on whole batches (batch_program.h).
 */
#ifndef BRIM_BATCHING_H
#define BRIM_BATCHING_H

#include "base/stage.h"

extern const struct brim__stage brim__stage_batch;
extern const struct brim__stage brim__stage_bucket;
extern const struct brim__stage brim__stage_pack_sequences;
extern const struct brim__stage brim__stage_mixup;
extern const struct brim__stage brim__stage_cutmix;
extern const struct brim__stage brim__stage_batch_map;

#endif

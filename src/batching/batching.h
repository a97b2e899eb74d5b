/*
 * batching.h: the batching room's rows of the stage table. They only say what is
 * wanted; order/shard.c does the arithmetic, engine/ the work.
 */
#ifndef BRIM_BATCHING_H
#define BRIM_BATCHING_H

#include "base/stage.h"

extern const struct brim__stage brim__stage_batch;
extern const struct brim__stage brim__stage_bucket;
extern const struct brim__stage brim__stage_pack_sequences;

#endif

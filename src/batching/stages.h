/*
 * stages.h: the rows of the batching stages in the stage table; each is defined by its
 * file. batch, bucket and pack_sequences say how batches are made (batching.h); mixup,
 * cutmix and batch_map act on whole batches (batch_program.h).
 */
#ifndef BRIM_BATCHING_STAGES_H
#define BRIM_BATCHING_STAGES_H

#include "base/stage.h"

extern const struct brim__stage brim__stage_batch;
extern const struct brim__stage brim__stage_bucket;
extern const struct brim__stage brim__stage_pack_sequences;
extern const struct brim__stage brim__stage_mixup;
extern const struct brim__stage brim__stage_cutmix;
extern const struct brim__stage brim__stage_batch_map;

#endif

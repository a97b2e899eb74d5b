/*
 * batching.h: the batching room's row of the stage table.
 */
#ifndef BRIM_BATCHING_H
#define BRIM_BATCHING_H

#include "base/stage.h"

extern const struct brim__stage brim__stage_batch;

#endif

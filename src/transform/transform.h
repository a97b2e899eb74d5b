/*
 * transform.h: the rows of the transforms' room; each is defined by its file.
 */
#ifndef BRIM_TRANSFORM_H
#define BRIM_TRANSFORM_H

#include "base/stage.h"

extern const struct brim__stage brim__stage_cast;
extern const struct brim__stage brim__stage_normalize;
extern const struct brim__stage brim__stage_layout;
extern const struct brim__stage brim__stage_reshape;
extern const struct brim__stage brim__stage_one_hot;
extern const struct brim__stage brim__stage_map;
extern const struct brim__stage brim__stage_filter;
extern const struct brim__stage brim__stage_flat_map;
extern const struct brim__stage brim__stage_unbatch;
extern const struct brim__stage brim__stage_pad;

#endif

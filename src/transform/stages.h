/*
 * stages.h: the rows of the transforms in the stage table; each is defined by its file.
 */
#ifndef BRIM_TRANSFORM_STAGES_H
#define BRIM_TRANSFORM_STAGES_H

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
extern const struct brim__stage brim__stage_copy;
extern const struct brim__stage brim__stage_decode;
extern const struct brim__stage brim__stage_resize;
extern const struct brim__stage brim__stage_crop;
extern const struct brim__stage brim__stage_center_crop;
extern const struct brim__stage brim__stage_random_crop;
extern const struct brim__stage brim__stage_random_resized_crop;
extern const struct brim__stage brim__stage_flip;
extern const struct brim__stage brim__stage_color_jitter;
extern const struct brim__stage brim__stage_brightness;
extern const struct brim__stage brim__stage_grayscale;
extern const struct brim__stage brim__stage_gaussian_blur;
extern const struct brim__stage brim__stage_random_erasing;
extern const struct brim__stage brim__stage_rotate;
extern const struct brim__stage brim__stage_trivial_augment;

#endif

/*
 * bounds.c: what any of many images needs at most.
 */
#include "image/decode.h"

bool brim__image_bounds_add(struct brim__image_bounds *bounds,
                            const struct brim__image_info *info) {
    const uint64_t needs = info->memory + info->outside;
    const bool most = bounds->pixels == 0 || needs > bounds->needs;
    bounds->width = info->width > bounds->width ? info->width : bounds->width;
    bounds->height = info->height > bounds->height ? info->height : bounds->height;
    bounds->pixels = brim__max(bounds->pixels, (uint64_t)info->width * info->height);
    bounds->memory = brim__max(bounds->memory, info->memory);
    bounds->outside = brim__max(bounds->outside, info->outside);
    bounds->turned = bounds->turned || info->orientation != 1;
    bounds->needs = most ? needs : bounds->needs;
    return most;
}

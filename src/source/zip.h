/*
 * zip.h: opening several sources whose samples are joined side by side.
 */
#ifndef BRIM_ZIP_H
#define BRIM_ZIP_H

#include "source/source.h"

struct brim__zip_site {
    /* Opens a part, which must be a single source; `number` counts parts from 1, for errors. The
     * source stays open until the plan ends. */
    brim_status (*open_part)(void *user, const brim_pipeline *part, size_t number,
                             const struct brim__source **out);
    void *user;
};

#endif

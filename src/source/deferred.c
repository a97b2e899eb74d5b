/*
 * deferred.c: opens the bytes that a deferred field refers to.
 *
 * A file that is given by its path is opened here and belongs to the reader. A part of a file that
 * the source holds open needs no opening.
 */
#include "source/source.h"

brim_status brim__deferred_open(const struct brim__deferred *deferred, struct brim__file *own,
                                const struct brim__file **file, uint64_t *offset, uint64_t *bytes) {
    *own = (struct brim__file){ .fd = -1 };
    if (deferred->path == NULL) {
        *file = deferred->file;
        *offset = deferred->offset;
        *bytes = deferred->bytes;
        return BRIM_OK;
    }
    const brim_status status = deferred->described ? brim__file_open_unnamed(own, deferred->path)
                                                   : brim__file_open(own, deferred->path);
    if (status != BRIM_OK) {
        return brim__at_source(status, deferred->path);
    }
    *file = own;
    *offset = 0;
    *bytes = own->bytes;
    return BRIM_OK;
}

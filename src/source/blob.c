/*
 * blob.c: opens what a deferred field says is to be read.
 *
 * A file that is named is opened here and belongs to the reader; a part of a file
 * that the source holds open is only looked up.
 */
#include "source/source.h"

brim_status brim__blob_open(const struct brim__blob *blob, struct brim__file *own,
                            const struct brim__file **file, uint64_t *offset, uint64_t *bytes) {
    *own = (struct brim__file){ .fd = -1 };
    if (blob->path == NULL) {
        *file = blob->file;
        *offset = blob->offset;
        *bytes = blob->bytes;
        return BRIM_OK;
    }
    const brim_status status = blob->described ? brim__file_open_unnamed(own, blob->path)
                                               : brim__file_open(own, blob->path);
    if (status != BRIM_OK) {
        return brim__at_source(status, blob->path);
    }
    *file = own;
    *offset = 0;
    *bytes = own->bytes;
    return BRIM_OK;
}

/*
 * deferred.c: opens what a deferred field says is to be read.
 *
 * A file that is named is opened here and belongs to the reader; a part of a file
 * that the source holds open is only looked up.
 */
#include "source/source.h"

/* Leaves the reason of a failure, where the path would be said twice. */
static brim_status without_path(brim_status status, const char *path) {
    char text[BRIM__DETAIL_BYTES];
    const size_t length = strlen(path);
    brim__copy_text(text, sizeof text, brim_detail());
    const bool named = strncmp(text, path, length) == 0 && strncmp(text + length, ": ", 2) == 0;
    return named ? brim__fail_text(status, text + length + 2) : status;
}

brim_status brim__deferred_open(const struct brim__deferred *deferred, struct brim__file *own,
                                const struct brim__file **file, uint64_t *offset, uint64_t *bytes) {
    *own = (struct brim__file){ .fd = -1 };
    if (deferred->path == NULL) {
        *file = deferred->file;
        *offset = deferred->offset;
        *bytes = deferred->bytes;
        return BRIM_OK;
    }
    const brim_status status = brim__file_open(own, deferred->path);
    if (status != BRIM_OK) {
        return deferred->described ? without_path(status, deferred->path) : status;
    }
    *file = own;
    *offset = 0;
    *bytes = own->bytes;
    return BRIM_OK;
}

/*
 * file_write.h: writing files that the library makes.
 *
 * A new file gets its name only when it is complete: it is written under a temporary name in the
 * same directory, synced and renamed, so that a reader of the final name finds either what was
 * there before or all of the new file. After a crash a file with a temporary name may be left; it
 * is never read, and is removed when the same file is made again, an hour later or more.
 */
#ifndef BRIM_FILE_WRITE_H
#define BRIM_FILE_WRITE_H

#include "base/base.h"

#include <limits.h>

struct brim__new_file {
    int fd;           /* -1: none */
    const char *path; /* its name when it is whole; must outlive it */
    char temporary[PATH_MAX];
};

/* For reading and writing by its owner only. All failures are BRIM_STATUS_IO. */
brim_status brim__new_file_begin(struct brim__new_file *file, const char *path);
/* The same with another mode, less the process's umask. */
brim_status brim__new_file_begin_as(struct brim__new_file *file, const char *path, unsigned mode);
brim_status brim__new_file_write(struct brim__new_file *file, uint64_t offset, const void *bytes,
                                 size_t count);
/* Syncs, renames, syncs the directory. The file is closed in any case. If it fails before the
 * renaming, the file is removed. */
brim_status brim__new_file_commit(struct brim__new_file *file);
void brim__new_file_abandon(struct brim__new_file *file); /* harmless after commit, and twice */

/* Makes the directory that `path` lies in, and those above it, for their owner
 * only, where they are missing. */
brim_status brim__make_directory_of(const char *path);

#endif

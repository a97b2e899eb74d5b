/*
 * file.h: local files, read by position.
 *
 * A file knows its path for messages; the path must outlive it. Reads are
 * exact: fewer bytes than asked is an error that names the file and the byte.
 */
#ifndef BRIM_FILE_H
#define BRIM_FILE_H

#include "base/base.h"

struct brim__file {
    int fd; /* -1: not open */
    const char *path;
    uint64_t bytes;
    int64_t modified_ns;
    uint64_t inode;
    const uint8_t *map; /* NULL unless mapped */
};

/* Regular files only; close-on-exec. BRIM_IO otherwise. */
brim_status brim__file_open(struct brim__file *file, const char *path);
void brim__file_close(struct brim__file *file); /* also unmaps; harmless twice */
/* All of [offset, offset + bytes) or an error; EINTR is retried. A range past
 * the size seen when opening is BRIM_CORRUPT, a shrunken file too, a failing
 * system BRIM_IO. */
brim_status brim__file_read(const struct brim__file *file, uint64_t offset, void *buffer,
                            size_t bytes);
/* Maps the whole file for reading: file->map. Once for an open file. */
brim_status brim__file_map(struct brim__file *file);
/* Tells the system that a range will be read soon; failures do not matter. */
void brim__file_advise(const struct brim__file *file, uint64_t offset, size_t bytes);

/* Reads of the map will jump about: the system must not read around each one,
 * which in little memory would push out what the next ones need. */
void brim__file_expect_random(const struct brim__file *file);

#endif

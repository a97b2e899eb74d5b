/*
 * file.h: local files, read by position.
 *
 * A file knows its path for messages; the path must outlive it. Reads are
 * exact: fewer bytes than asked is an error that names the file and the byte.
 */
#ifndef BRIM_FILE_H
#define BRIM_FILE_H

#include "base/base.h"

#include <time.h>

struct brim__file {
    int fd; /* -1: not open */
    const char *path;
    uint64_t bytes;
    int64_t modified_ns; /* programs may set it back, as tar and rsync do */
    int64_t changed_ns;  /* of content or attributes: only the clock sets it */
    uint64_t inode;
    uint32_t owner, mode; /* of the open file */
    const uint8_t *map;   /* NULL unless mapped */
};

/* Whether another user can have written a file that brim keeps for itself: an index, a listing, a
 * cache. The rights of the directory do not matter, because a file that another user puts there
 * belongs to that user. */
enum brim__trust {
    BRIM__TRUSTED, /* it belongs to this user or root, and no other user may write it */
    BRIM__FOREIGN, /* it belongs to another user */
    BRIM__EXPOSED, /* it belongs to this user or root, but its group or all others may write it */
};
/* Takes owner and mode of an open file. Those of a path may be another file's by then. */
enum brim__trust brim__trust_of(uint32_t owner, uint32_t mode);
/* Owner and mode of the file at a path, even if it cannot be read; for a link, those of the link
 * itself. false: nothing is there. For choosing a place to write, not for trusting what is read. */
bool brim__file_owner(const char *path, uint32_t *owner, uint32_t *mode);

/* Regular files only; close-on-exec. BRIM_STATUS_IO otherwise, or BRIM_STATUS_MEMORY if the process has
 * too many files open. */
brim_status brim__file_open(struct brim__file *file, const char *path);
/* The same, but the text of an error does not begin with the path: the caller names the file. */
brim_status brim__file_open_unnamed(struct brim__file *file, const char *path);
void brim__file_close(struct brim__file *file); /* also unmaps; harmless twice */
/* All of [offset, offset + bytes) or an error; EINTR is retried. BRIM_STATUS_CORRUPT: the range
 * ends after the size that was read when opening, or the file has become shorter. BRIM_STATUS_IO:
 * the system fails. */
brim_status brim__file_read(const struct brim__file *file, uint64_t offset, void *buffer,
                            size_t bytes);
/* Maps the whole file for reading: file->map. Once for an open file. */
brim_status brim__file_map(struct brim__file *file);
/* Tells the system that a range will be read soon; failures do not matter. */
void brim__file_advise(const struct brim__file *file, uint64_t offset, size_t bytes);

/* The map will be read at random. The system then does not read ahead around each access, which
 * would evict pages that are needed soon if memory is short. */
void brim__file_expect_random(const struct brim__file *file);

/* Maps an open file of at least `bytes` for reading and writing, shared by all processes that map
 * it. The child of a fork does not have the map. NULL, with errno: the system refuses. */
void *brim__file_map_shared(int fd, size_t bytes);
void brim__file_unmap_shared(void *memory, size_t bytes);

/* The stamp of the file that the path leads to now: a hash of its size, both times and inode. Two
 * equal stamps mean that the file is the same and was not changed in between. The number of the
 * device is not hashed, because it may change when the machine restarts. If the file was changed
 * within the last grain of its clock, the function waits some ms for that grain, so that a later
 * change gets another stamp. If the clock is too coarse to wait for, the stamp is one that never
 * occurs again. BRIM_STATUS_IO: the file cannot be examined. may_lack: if nothing is there that
 * this user can open, the stamp is 0. */
brim_status brim__file_stamp(const char *path, bool may_lack, uint64_t *stamp);
/* The same hash of the facts that were read when the file was opened. It does not wait. */
uint64_t brim__file_opened_stamp(const struct brim__file *file);

/* Whether a time of change is so long ago that any later change gets another time. A time within
 * the grain of a usual clock counts as sure, after waiting for that grain if `wait`. false: the
 * time is recent and the clock has whole seconds, which is too long to wait for. */
bool brim__time_is_sure(const struct timespec *time, bool wait);

#endif

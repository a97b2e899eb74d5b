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
    int64_t changed_ns;  /* the content, or what is known of it: set by the clock alone */
    uint64_t inode;
    uint32_t owner, mode; /* as the system says them of the open file */
    const uint8_t *map;   /* NULL unless mapped */
};

/* Who may have written a file that brim keeps for itself: an index, a listing, a cache. The
 * directory's rights do not matter: a file that another user puts there has that owner. */
enum brim__trust {
    BRIM__TRUSTED, /* it belongs to this user or root, and no other user may write it */
    BRIM__FOREIGN, /* it belongs to another user */
    BRIM__EXPOSED, /* it belongs to this user or root, but its group or all others may write it */
};
/* Of the facts of an open file: those of a path could be another file's by then. */
enum brim__trust brim__trust_of(uint32_t owner, uint32_t mode);
/* Whose the file at a path is, also if it cannot be read; of a link the link itself. false:
 * nothing is there. For choosing a place to write, not for trusting what is read. */
bool brim__file_owner(const char *path, uint32_t *owner, uint32_t *mode);

/* Regular files only; close-on-exec. BRIM_STATUS_IO otherwise, or BRIM_STATUS_MEMORY if the process has
 * too many files open. */
brim_status brim__file_open(struct brim__file *file, const char *path);
/* The same, with an error that does not begin with the path: its caller names it. */
brim_status brim__file_open_unnamed(struct brim__file *file, const char *path);
void brim__file_close(struct brim__file *file); /* also unmaps; harmless twice */
/* All of [offset, offset + bytes) or an error; EINTR is retried. A range past
 * the size seen when opening is BRIM_STATUS_CORRUPT, a shrunken file too, a failing
 * system BRIM_STATUS_IO. */
brim_status brim__file_read(const struct brim__file *file, uint64_t offset, void *buffer,
                            size_t bytes);
/* Maps the whole file for reading: file->map. Once for an open file. */
brim_status brim__file_map(struct brim__file *file);
/* Tells the system that a range will be read soon; failures do not matter. */
void brim__file_advise(const struct brim__file *file, uint64_t offset, size_t bytes);

/* Reads of the map will jump about: the system must not read around each one,
 * which in little memory would push out what the next ones need. */
void brim__file_expect_random(const struct brim__file *file);

/* An open file of at least `bytes` as memory that is shared by all processes that map it, for
 * reading and writing; not there in the child of a fork. NULL, with errno: the system refuses. */
void *brim__file_map_shared(int fd, size_t bytes);
void brim__file_unmap_shared(void *memory, size_t bytes);

/* The stamp of what the path leads to now: a hash of its size, both times and inode. The same
 * twice: the file is the same, and it was not changed in between. The device does not count, whose
 * number is another one after the machine was restarted. If the file was changed this very moment,
 * the grain of its clock is waited for, some ms: what is read after that has this stamp for good.
 * One whose clock is too coarse for that gets a stamp that never comes again. BRIM_STATUS_IO: it
 * cannot be looked at. may_lack: where nothing is that could be opened, the stamp is 0. */
brim_status brim__file_stamp(const char *path, bool may_lack, uint64_t *stamp);
/* The same of the file as opening saw it. */
uint64_t brim__file_opened_stamp(const struct brim__file *file);

/* Is a time of change so long ago that any later change gets another? If only the grain of a usual
 * clock is in the way, that is waited for (if `wait`) or taken for so; false: the clock has whole
 * seconds, too long to wait for. */
bool brim__time_is_sure(const struct timespec *time, bool wait);

#endif

/*
 * segment.h: the memory in which processes count a shared budget, and its lifetime.
 *
 *     | magic, format | limits | lock, its holder | entry | entry | ... 256 |
 *                                                   process, command, bytes of each kind
 *
 * It is a file of /dev/shm that belongs to one user, for that user alone: brim-<user>-<name>.
 * brim's own data in it are neither pointers nor indexes nor sizes, and are checked before they are
 * used: wrong numbers lead only to wrong sums and refusals. The lock is different. It is the C
 * library's, and a robust lock contains pointers, which the C library follows. So processes of one
 * user must trust each other this far: a process that overwrites the lock, or truncates the file,
 * can make the others crash.
 *
 * An entry belongs to one budget (a runtime) of one process. A process that takes it writes its
 * number last, and clears it first when it gives it up, each with one store: a process may be
 * killed anywhere in between and leaves an entry that is in use or is not.
 */
#ifndef BRIM_SEGMENT_H
#define BRIM_SEGMENT_H

#include "memory/process.h"

#include <pthread.h>
#include <stdatomic.h>

#define BRIM__SHARED_ENTRIES    256
#define BRIM__SHARED_NAME_BYTES 65

struct brim__shared_entry {
    /* the owner: `number` is 0 in a free entry */
    _Atomic uint64_t number, start, space; /* written with the lock */
    char command[BRIM__COMMAND_BYTES];     /* written and read with the lock; any bytes */
    /* Raised with the lock, lowered by the owner at any time. */
    _Atomic uint64_t bytes[BRIM_MEMORY_KINDS];
    /* How many of these are elastic; written by the owner at any time, used only in texts. */
    _Atomic uint64_t elastic[BRIM_MEMORY_KINDS];
};

struct brim__shared_segment {
    _Atomic uint64_t magic; /* written last: 0 if a process was killed while making it */
    uint32_t format, mutex_bytes, kinds, entries;
    uint64_t limits[BRIM_MEMORY_KINDS]; /* of the first; written with the file's lock */
    pthread_mutex_t lock;               /* robust: the next one takes it from a dead owner */
    _Atomic uint64_t holder;            /* the process that has the lock, for texts; 0: none */
    struct brim__shared_entry entry[BRIM__SHARED_ENTRIES];
};

/* Opens the segment of a name, or makes it, and locks its file, so that no process joins or leaves
 * meanwhile; *file is closed by brim__segment_unlock. Waits for others for some seconds.
 * BRIM_STATUS_INVALID: no such name is allowed; BRIM_STATUS_CORRUPT: it is not a segment, and the
 * text says what to delete; BRIM_STATUS_IO: the system refuses. */
brim_status brim__segment_open(const char *name, struct brim__shared_segment **segment, int *file);
/* Opens and locks the file of an open segment again, for leaving it. -1: the lock is not available
 * soon, or the file was deleted. */
int brim__segment_relock(const char *name, uint64_t inode);
/* The inode, which distinguishes the file from others of its name. */
uint64_t brim__segment_inode(int file);
void brim__segment_unlock(int file);
/* Deletes the name: its file must be locked. */
void brim__segment_remove(const char *name);
void brim__segment_unmap(struct brim__shared_segment *segment);

/* "/dev/shm/brim-1000-train", for texts. Returns `text`. */
#define BRIM__SEGMENT_PATH 112
const char *brim__segment_path(const char *name, char text[BRIM__SEGMENT_PATH]);

#endif

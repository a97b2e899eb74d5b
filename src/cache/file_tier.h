/*
 * file_tier.h: the internals of a cache in a file; only for file_open.c, file_tier.c and
 * file_writer.c.
 *
 *     file_open.c     opens, replaces, locks
 *     file_tier.c     starts, finds, takes in
 *     file_writer.c   the ring of begin and commit, and the thread that writes it
 *
 * A tier needs the same few KiB for any count, because the file's table has the entries.
 *
 * Locks: `lock` guards the warning and the writer's fields (docs/design.md has the lock order). No
 * thread waits for a disk while it holds the lock, except at the start of the writer's thread.
 */
#ifndef BRIM_FILE_TIER_H
#define BRIM_FILE_TIER_H

#include "base/platform.h"
#include "cache/file_format.h"

#include <limits.h>

#define BRIM__FILE_SUSPECTS 64

/* Entries that are to be written to the file, oldest first, each in one piece:
 *
 *     ring:  ... | head: item, bytes | item, bytes | tail: free ... | pad
 *
 * All: the tier's lock. */
struct brim__file_writer {
    struct brim__pages ring, stack; /* elastic; none until needed */
    uint64_t head, tail;            /* in the ring */
    uint64_t items;                 /* from head to tail, pads among them */
    uint64_t lent;                  /* of them between begin and commit */
    uint64_t ready;                 /* of them committed, and not written */
    uint64_t heap_end;              /* where the next entry goes: only moved by the writer */
    uint64_t pending;               /* bytes of the items in the heap */
    uint64_t take_ns;               /* memory is not asked for before */
    bool full;                      /* something did not fit below the limit */
    bool poor;                      /* the warning is that there is no memory to write with */
    bool started;                   /* the thread */
    bool closing;                   /* nothing new is taken in */
    bool quit, drain;               /* the thread ends, having written what is there or not */
    bool writing;                   /* a thread is writing, without the lock */
    brim__thread thread;
    brim__condition work, idle;
};

struct brim__file_tier {
    /* never change */
    struct brim__tier_start start;
    uint64_t seed;  /* of checksums */
    uint64_t heap;  /* where the heap begins */
    uint64_t limit; /* bytes of the file */
    char path[PATH_MAX];
    /* any thread */
    atomic_int fd;              /* -1: none. Set once, while `trying` */
    atomic_bool writes;         /* this process has the lock, and filling is not turned off */
    atomic_bool trying;         /* a thread tries to get the lock, or the file */
    _Atomic uint64_t retry_ns;  /* when it may be tried again; UINT64_MAX: never */
    _Atomic uint64_t known_end; /* bytes of the file, when it was last looked at */
    _Atomic uint64_t filled, stored, dropped, damaged, changed;
    _Atomic uint64_t counted_ns;                   /* when `filled` was last counted in the table */
    _Atomic uint64_t suspect[BRIM__FILE_SUSPECTS]; /* 1 + a number that was found damaged; 0 */
    brim__mutex lock;
    char warning[BRIM__TIER_WARNING]; /* lock */
    char note[BRIM__TIER_WARNING];    /* lock */
    struct brim__file_writer writer;  /* lock */
};

/* ------------------------------------------------------------- file_open.c */

/* Opens or makes the file at the path, or sets the warning. patient: waits a moment for another
 * process that is making it. */
void brim__file_tier_open(struct brim__file_tier *tier, bool patient);
/* Whether this process may fill now. If not, tries again when a second has passed. */
bool brim__file_tier_may_fill(struct brim__file_tier *tier);
/* Updates `filled` if another process fills the file. */
void brim__file_tier_count(struct brim__file_tier *tier);
/* Sets the warning if the file has lost its name: new entries are then lost when the loader
 * ends. */
void brim__file_tier_look(struct brim__file_tier *tier);
/* Turns filling off for good, with the system's error in the warning. */
void brim__file_tier_off(struct brim__file_tier *tier, int error);

/* The place of a number in `suspect`, if its entry is known to be damaged. */
static inline _Atomic uint64_t *brim__file_suspect(struct brim__file_tier *tier, uint64_t number) {
    return &tier->suspect[number % BRIM__FILE_SUSPECTS];
}

/* ----------------------------------------------------------- file_writer.c */

/* The most memory that the writer takes, for entries of at most this many bytes. */
uint64_t brim__file_writer_most(uint64_t entry_bytes);
brim_status brim__file_writer_init(struct brim__file_tier *tier);
void brim__file_writer_fini(struct brim__file_tier *tier); /* writes out what is committed */
/* Reserves room in the ring; false: there is none now. since: known_end before the search for the
 * number failed. */
bool brim__file_writer_begin(struct brim__file_tier *tier, uint64_t number, uint64_t stamp,
                             uint64_t bytes, uint64_t since, struct brim__room *room);
void brim__file_writer_end(struct brim__file_tier *tier, struct brim__room *room, bool keep);

#endif

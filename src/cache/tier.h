/*
 * tier.h: where a cache keeps samples: in memory (memory_tier.c) or in a file (file_tier.c), with
 * one table of functions. `cache device` keeps rows of batches instead: residents.h.
 *
 * A tier has `count` numbers. For each it keeps at most one entry: some bytes, and the stamp of the
 * file that they were made of (0: not used). An entry is stored once. It is replaced only if it is
 * found to be damaged or has another stamp. No problem of a tier is an error for its caller: an
 * entry that is missing, revoked, torn, too large or not readable is a miss, and an entry that
 * cannot be kept is dropped. A permanent problem (a full disk, a directory that cannot be written)
 * turns filling off and is reported once, in the tier's warning.
 *
 *     find   ──► entry's bytes, pinned or copied ──► done
 *     begin  ──► room for the bytes ──► commit (or abandon)
 *
 * All of these may be called from any number of threads at once. They wait for a disk only to read
 * the requested entry, and, if another process fills the file, at most once a second to check
 * whether it may be filled now.
 */
#ifndef BRIM_TIER_H
#define BRIM_TIER_H

#include "memory/alloc.h"

#include <stdatomic.h>

#define BRIM__TIER_ALIGNMENT 64 /* of an entry's bytes in memory */
#define BRIM__TIER_WARNING   256

enum brim__verify {
    BRIM__VERIFY_OPEN,
    BRIM__VERIFY_HIT,
    BRIM__VERIFY_NEVER,
    BRIM__VERIFY_CONTENT, /* an entry's stamp is the hash of the records it was made of */
};

/* The arguments for starting a tier. Pointers must stay valid until it is stopped. */
struct brim__tier_start {
    brim_budget *budget; /* a node of the cache's own, in which all that it takes is elastic */
    /* host bytes that must stay free for holders that need them more: in the budget, and in all of
     * a runtime's (NULL: there is none) */
    _Atomic uint64_t *headroom;
    brim_budget *root;
    _Atomic uint64_t *root_headroom;
    uint64_t count;      /* numbers */
    uint64_t most_bytes; /* of an entry */
    uint64_t limit;      /* bytes that the tier may take in all; BRIM_UNLIMITED */
    bool copies;         /* find copies to the caller's buffer instead of pinning */
    bool threads;        /* the loader has workers: a tier may have a thread of its own */
    /* files */
    const char *path;
    bool trust_foreign;    /* files that other users could have written are used too */
    uint64_t data, sample; /* fingerprints: entries with others do not count */
    uint64_t stamp;        /* of all files (BRIM__VERIFY_OPEN), or 0 */
    enum brim__verify verify;
    const char *pipeline; /* text of the stages before, for people */
};

static inline uint64_t brim__tier_left(brim_budget *budget, _Atomic uint64_t *headroom) {
    const uint64_t free_now = brim__budget_free_now(budget, BRIM_MEMORY_HOST),
                   kept = atomic_load(headroom);
    return free_now > kept ? free_now - kept : 0;
}
/* The bytes that a tier may take now. */
static inline uint64_t brim__tier_spare(const struct brim__tier_start *start) {
    const uint64_t own = brim__tier_left(start->budget, start->headroom);
    return start->root == NULL ? own
                               : brim__min(own, brim__tier_left(start->root, start->root_headroom));
}

/* An entry that was found, until `done`. */
struct brim__found {
    const uint8_t *data; /* aligned to BRIM__TIER_ALIGNMENT */
    uint64_t bytes;
    void *pin; /* the tier's */
};

/* Room for an entry, until `commit` or `abandon`. */
struct brim__room {
    uint8_t *data; /* aligned to BRIM__TIER_ALIGNMENT */
    uint64_t bytes;
    uint64_t number, stamp;
    void *pin; /* the tier's */
    uint64_t position;
};

/* Counted since the start, except for filled and bytes, which are current. */
struct brim__tier_stats {
    uint64_t filled;  /* entries; of a file: as far as known, with those being written */
    uint64_t bytes;   /* memory or disk taken */
    uint64_t stored;  /* entries put in */
    uint64_t dropped; /* not kept: no room, no time */
    uint64_t damaged; /* torn or forged, and so a miss */
    uint64_t changed; /* of another stamp, and so a miss */
    bool fills;       /* not turned off, not read-only */
    char warning[BRIM__TIER_WARNING]; /* "": no problem */
    char note[BRIM__TIER_WARNING];    /* what was found at the start; "" */
};

struct brim__tier;

struct brim__tier_ops {
    const char *name; /* "memory", "file" */
    /* Firm bytes that a started tier of this many numbers needs from the arena. */
    uint64_t (*arena_bytes)(uint64_t count);
    /* The most elastic bytes that it takes, for entries of this many bytes; saturates. */
    uint64_t (*most_bytes)(uint64_t count, uint64_t entry_bytes);
    /* memory: arena_bytes(start->count) zeroed bytes, aligned to 64. BRIM_OK even if the tier
     * cannot keep anything; the warning then has the reason. Other statuses make opening the loader
     * fail: BRIM_STATUS_MEMORY if a lock cannot be made. */
    brim_status (*start)(void *memory, const struct brim__tier_start *start,
                         struct brim__tier **tier);
    /* No thread may be inside, or enter later. Ends the tier's thread, if it has one (committed
     * entries are written first, unless the disk fails), and frees everything. */
    void (*stop)(struct brim__tier *tier);
    /* buffer: `room` bytes, aligned, used until done. An entry that needs more, which only a forged
     * file can have, is a miss. false: a miss. */
    bool (*find)(struct brim__tier *tier, uint64_t number, uint64_t stamp, uint8_t *buffer,
                 uint64_t room, struct brim__found *found);
    void (*done)(struct brim__tier *tier, struct brim__found *found);
    /* Whether the entry may be stored: a cheap check, to decide which samples to read together. */
    bool (*has)(struct brim__tier *tier, uint64_t number);
    /* false: the entry is not kept. Otherwise the caller fills room->data and commits. */
    bool (*begin)(struct brim__tier *tier, uint64_t number, uint64_t stamp, uint64_t bytes,
                  struct brim__room *room);
    void (*commit)(struct brim__tier *tier, struct brim__room *room);
    void (*abandon)(struct brim__tier *tier, struct brim__room *room);
    void (*stats)(struct brim__tier *tier, struct brim__tier_stats *stats);
};

extern const struct brim__tier_ops brim__memory_tier;
extern const struct brim__tier_ops brim__file_tier;

#endif

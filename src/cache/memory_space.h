/*
 * memory_space.h: the memory of the memory tier's entries, and how it is revoked while threads
 * read; only for memory_tier.c and memory_space.c.
 *
 *     segment[] ──► segment: a pointer for each number ──┐       all pages elastic
 *     (arena)                                            ▼
 *     extent: | record | kept, data | kept, data | kept, data | ... free |
 *                └─► next extent, newest first
 *
 * Segments and extents are separate pages, taken at first need and freed as a whole. Their records
 * are at their beginnings, so that only one pointer for each segment is in the arena. Entries
 * follow each other. The room of a replaced entry is not used again until its extent is freed.
 *
 * Finding takes no lock. A thread that is inside (between find and done, begin and commit, or in
 * `has`) is counted in its stripe, in the counter of the phase that it saw:
 *
 *     inside:  add 1 to the counter; load the pointer; follow it; ...; subtract 1
 *     revoke:  clear the pointers; then see every counter at 0 once; then free
 *
 * All of these are sequentially consistent, except the subtraction, which is a release. A thread
 * that loaded a pointer before it was cleared was counted before that, so a counter that is 0
 * afterwards shows that the thread has left. A thread that is counted later finds the pointer
 * cleared. So it is enough to see each counter at 0 once, at any time. The phases guarantee that
 * this happens: while the revoking thread waits for one counter, new threads use the other.
 *
 * Pointers are written only under the mutex, and none is set to an entry of a dead extent. Once an
 * extent is dead and its pointers are cleared, no pointer leads to it again. Revoke functions never
 * run at the same time, because the budget's tree calls them with its revoke lock held
 * (docs/design.md has the lock order).
 *
 * Invariants, whenever the mutex is free:
 *   - a pointer leads to an entry of its own number, in an extent of the list;
 *   - while there is an extent in the list, no segment goes;
 *   - what is charged is segment_bytes + extent_bytes, or less while revoking, and that
 *     is at most the limit.
 */
#ifndef BRIM_MEMORY_SPACE_H
#define BRIM_MEMORY_SPACE_H

#include "base/platform.h"
#include "cache/tier.h"

#include <stddef.h>

#define BRIM__STRIPES 32

struct brim__cache_extent {
    struct brim__pages pages; /* that it lies in itself */
    /* the mutex */
    struct brim__cache_extent *next;
    uint64_t used; /* where the next entry will be */
    bool dead;     /* out of the list */
};

/* The record before an entry's data. It never changes once a pointer leads to it. */
struct brim__kept {
    uint64_t number, bytes, stamp;
    struct brim__cache_extent *extent;
};

/* The place of the first record in an extent, such that all data is aligned. */
#define BRIM__FIRST_KEPT (2 * BRIM__TIER_ALIGNMENT - sizeof(struct brim__kept))
static_assert(sizeof(struct brim__cache_extent) <= BRIM__FIRST_KEPT,
              "the extent's record lies before");

typedef _Atomic(struct brim__kept *) brim__kept_pointer; /* written under the mutex */

struct brim__cache_segment {
    struct brim__pages pages;         /* that it lies in itself */
    struct brim__cache_segment *next; /* of those that go */
    brim__kept_pointer kept[];
};

#define BRIM__SEGMENT_BYTES (UINT64_C(32) << 10)
#define BRIM__SEGMENT_COUNT                                               \
    ((BRIM__SEGMENT_BYTES - offsetof(struct brim__cache_segment, kept)) / \
     sizeof(brim__kept_pointer))

struct brim__stripe {
    _Alignas(BRIM__CACHE_LINE) _Atomic uint64_t inside[2]; /* by phase */
    _Atomic uint64_t dropped;
};

struct brim__tier {
    struct brim__stripe stripe[BRIM__STRIPES];
    /* never change */
    struct brim__tier_start start;
    uint64_t segment_count;
    bool sparse; /* the table could take too much: it grows with the entries */
    bool fills;
    char warning[BRIM__TIER_WARNING];

    _Atomic unsigned phase; /* 0 or 1; written by the revoking thread */

    /* Hints, by which an entry that will not fit is dropped without taking the mutex: bytes left in
     * `current`, and when memory may be requested again. Written under the mutex. */
    _Alignas(BRIM__CACHE_LINE) _Atomic uint64_t left;
    _Atomic uint64_t paused_until;

    brim__mutex mutex; /* guards all below */
    struct brim__cache_extent *newest;
    struct brim__cache_extent *current; /* in the list: the next entry goes there; or NULL */
    uint64_t segment_bytes, extent_bytes;
    uint64_t filled, stored, changed;

    /* written under the mutex */
    _Alignas(BRIM__CACHE_LINE) _Atomic(struct brim__cache_segment *) segment[];
};

/* Enters: pages that the thread finds through the table stay until brim__space_leave. */
_Atomic uint64_t *brim__space_enter(struct brim__tier *tier);
void brim__space_leave(_Atomic uint64_t *pin);
/* The calling thread's stripe. Two threads may share one, which is only slower. */
struct brim__stripe *brim__space_stripe(struct brim__tier *tier);

/* The memory of all entries of this many numbers: the table, the entries, a quarter more for what
 * is left over at the ends of extents, and one extent; UINT64_MAX: too much. */
uint64_t brim__space_most_bytes(uint64_t count, uint64_t entry_bytes);
/* Computes from tier->start the most memory for the table, and whether anything can be kept. */
void brim__space_init(struct brim__tier *tier);
/* No thread is inside any more, and revoke will not be called. */
void brim__space_fini(struct brim__tier *tier);
/* A brim__revoke, whose holder is the tier. */
uint64_t brim__space_revoke(void *holder, brim_memory kind, uint64_t wanted, bool firmly);

/* Without the mutex: whether there is certainly no room now for an entry of `stride`. */
bool brim__space_is_full(struct brim__tier *tier, uint64_t stride);
/* Inside and with the mutex: takes room for an entry and makes sure that its number has a pointer.
 * NULL: no memory for it now. */
struct brim__kept *brim__space_add(struct brim__tier *tier, uint64_t number, uint64_t stamp,
                                   uint64_t bytes);
/* Inside and with the mutex: frees room that no pointer leads to, if it was the last that was
 * taken. Its extent must not be dead. */
void brim__space_return(struct brim__tier *tier, const struct brim__kept *kept);

/* The distance from an entry to the next. `bytes` is small enough not to overflow. */
static inline uint64_t brim__space_stride(uint64_t bytes) {
    return brim__align(sizeof(struct brim__kept) + bytes, BRIM__TIER_ALIGNMENT);
}

/* Inside, or with the mutex: the pointer of a number, NULL if it has none yet. */
static inline brim__kept_pointer *brim__space_pointer(struct brim__tier *tier, uint64_t number) {
    assert(number < tier->start.count);
    struct brim__cache_segment *segment = atomic_load(&tier->segment[number / BRIM__SEGMENT_COUNT]);
    return segment != NULL ? &segment->kept[number % BRIM__SEGMENT_COUNT] : NULL;
}

static inline struct brim__kept *brim__space_look(struct brim__tier *tier, uint64_t number) {
    brim__kept_pointer *pointer = brim__space_pointer(tier, number);
    return pointer != NULL ? atomic_load(pointer) : NULL;
}

#endif

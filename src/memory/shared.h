/*
 * shared.h: one budget for several processes of a user, by its name.
 *
 * The root of a tree of budgets claims memory of every kind here before it uses it, and returns the
 * claim when it no longer uses it. The claims of all processes are never more than the limits,
 * which the first process gave.
 *
 * A process cannot revoke memory of another process. A claim that does not fit is refused, after
 * the process's own elastic memory has been revoked and the claims of processes that are gone have
 * been freed. So elastic claims leave a part of the limit free: otherwise the first process's
 * caches would keep all others from starting.
 *
 * All functions except brim__shared_reap and brim__shared_await: the lock of the tree that has
 * joined is held. The segment's lock (docs/design.md has the lock order) is held for
 * arithmetic over 256 entries, never while /proc is read. Returning memory takes no lock. A caller
 * that must wait longer for the segment's lock does so in brim__shared_await, so that the tree's
 * lock is free meanwhile.
 */
#ifndef BRIM_SHARED_H
#define BRIM_SHARED_H

#include "memory/segment.h"

/* A tree's part in a shared budget. */
struct brim__shared {
    struct brim__shared_segment *segment; /* NULL: none. Never changes after joining, nor do: */
    struct brim__identity own;
    uint32_t entry;
    uint64_t inode;                     /* of the segment's file */
    uint64_t limits[BRIM_MEMORY_KINDS]; /* a copy */
    char name[BRIM__SHARED_NAME_BYTES];
    uint64_t claimed[BRIM_MEMORY_KINDS]; /* what this entry counts; the tree's lock */
    uint64_t reaped_ns;                  /* when it was last looked for the dead; the tree's lock */
    bool stuck; /* the last wait for the segment's lock failed; the tree's lock */
};

enum brim__claim {
    BRIM__CLAIMED,
    BRIM__CLAIM_FULL,   /* it does not fit */
    BRIM__CLAIM_BUSY,   /* the segment's lock is not available now */
    BRIM__CLAIM_BROKEN, /* the lock was damaged, or the entry is lost */
};

/* The last sentence of a refusal; its argument is the bytes of a limit that is large enough. */
#define BRIM__SHARED_ADVICE                                                                 \
    "end one of them, give each process less memory or their caches a limit, or start the " \
    "shared budget with at least %llu bytes"

/* How long to wait for the lock if the waiting thread delays others. */
#define BRIM__SOON_NS UINT64_C(20000000)

/* The part of a limit that elastic claims leave alone. */
#define BRIM__FIRM_PART 8

/* Joins the shared budget of a name, or makes it, with these limits and with `claims`. Limit 0:
 * that of the other processes; if they have none either, page-locked memory is limited like host
 * memory, and devices are not limited. A limit of a kind for which the first process gave none
 * limits only the caller. BRIM_STATUS_INVALID: the other processes have other limits;
 * BRIM_STATUS_BUDGET: the claims do not fit. */
brim_status brim__shared_join(struct brim__shared *shared, const char *name,
                              const uint64_t limits[BRIM_MEMORY_KINDS],
                              const uint64_t claims[BRIM_MEMORY_KINDS]);
/* Frees the entry; if it was the last, also deletes the name. NULL segment: does nothing. */
void brim__shared_leave(struct brim__shared *shared);

/* Raises the claim to `bytes` in all. `elastic`: the last part of the limit (BRIM__FIRM_PART) is
 * not available. *missing: the bytes that do not fit. Waits some milliseconds for the lock, and not
 * at all if the last wait for it failed. */
enum brim__claim brim__shared_claim(struct brim__shared *shared, brim_memory kind, uint64_t bytes,
                                    bool elastic, uint64_t *missing);
/* Lowers the claim to `bytes`. */
void brim__shared_settle(struct brim__shared *shared, brim_memory kind, uint64_t bytes);
/* Shows other processes how much of the claim is elastic. */
void brim__shared_tell_elastic(struct brim__shared *shared, brim_memory kind, uint64_t bytes);
/* Waits until the lock is available, or until the deadline (brim__now). No lock is held. */
void brim__shared_await(const struct brim__shared *shared, uint64_t deadline);
/* Writes why the lock is not available (busy or broken), which process holds it, and what to do. */
void brim__shared_explain(const struct brim__shared *shared, enum brim__claim why,
                          char text[BRIM__DETAIL_BYTES]);
/* What is left of the limit after the claims of others and `taken`, which counts as this process's
 * claim. */
uint64_t brim__shared_left(const struct brim__shared *shared, brim_memory kind, uint64_t taken,
                           bool elastic);

/* What all other processes claim at the moment, read without the lock. */
uint64_t brim__shared_others(const struct brim__shared *shared, brim_memory kind);
/* The number of processes, with this one. */
uint32_t brim__shared_processes(const struct brim__shared *shared);
/* Frees the entries of processes that are gone, if the lock becomes available before the deadline
 * (brim__now). Reads /proc: no lock of a tree is held. */
void brim__shared_reap(const struct brim__shared *shared, uint64_t deadline);

/* "process 4711 (python3) 3.0 GiB (2.5 GiB of it elastic), this process 1.0 GiB", largest
 * first, as many as fit; and as holders in `lack`, unless that is NULL. */
void brim__shared_list(const struct brim__shared *shared, brim_memory kind, char *text,
                       size_t bytes, struct brim__lack *lack);

/* Adds `entry` to a list in `text`, of which *at bytes are filled, if room is left for the number
 * of further entries. Otherwise writes that number instead. `left`: entries to come, with this one.
 * false: the list is full. */
bool brim__list_add(char *text, size_t bytes, size_t *at, const char *entry, uint32_t left);

#endif

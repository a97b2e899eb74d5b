/*
 * budget.h: the tree of limits, inside the library.
 *
 * A budget counts, for each kind of memory, what is charged (firm and elastic) and what is
 * reserved, and passes the part that exceeds its own minimum on to its parent: counted at the
 * parent = max(minimum, charged + reserved), where what its own children count at it is among its
 * charged. brim_budget_info shows the memory that is really taken at a budget and below it, without
 * unused minimums. One mutex, the root's, guards the whole tree: charging is rare (opening,
 * growing, trimming), never in the steady state.
 *
 * Firm charges may take memory from elastic holders: a holder registers a brim__revoke function at
 * its budget; the thread that needs the memory calls it. While a firm charge is collecting, elastic
 * charges in the same tree are refused, so that no other holder takes the memory that was just
 * revoked.
 *
 * The lock order is in docs/design.md, and with it the locks under which no firm charge is made and
 * which a revoke function may take.
 */
#ifndef BRIM_BUDGET_H
#define BRIM_BUDGET_H

#include "base/base.h"

/* Gives back elastic memory worth at least `wanted` bytes of a kind if it can (uncharging it),
 * waiting only for samples in progress. Returns the bytes given back. It is called only for kinds
 * of which its budget has elastic memory. firmly: for a firm charge, or because the program asked;
 * else what is costly to make again may stay. */
typedef uint64_t brim__revoke(void *holder, brim_memory kind, uint64_t wanted, bool firmly);

/* A tree's root, given up by brim__budget_unref. limits: one for each kind.
 * BRIM_STATUS_BUDGET if the host limit cannot hold the root itself. */
brim_status brim__budget_root(const char *label, const uint64_t limits[BRIM_MEMORY_KINDS],
                              brim_budget **budget);
/* Makes a new root count all its charges, present and later, in the shared budget of that name
 * (shared.h). limits: of all processes together; 0: those that the other processes gave. The memory
 * for sharing is charged too. After a failure the root can only be freed (unref). */
brim_status brim__budget_share(brim_budget *root, const char *name,
                               const uint64_t limits[BRIM_MEMORY_KINDS]);
struct brim__sharing {
    uint64_t limit, used; /* of all processes together */
    uint32_t processes;
};
/* false: nothing is shared. */
bool brim__budget_sharing(brim_budget *budget, brim_memory kind, struct brim__sharing *sharing);
/* brim_budget_free is brim__budget_unref. The last unref returns what is still charged or reserved,
 * except for memory of alloc.h: that stays charged until it is freed, and keeps the node and its
 * limits, as children do. Nothing else may be uncharged on a node without a reference to it. */
void brim__budget_ref(brim_budget *budget);
void brim__budget_unref(brim_budget *budget);
/* BRIM_OK, or the failure of the public calls: budget is NULL, no such kind, forked. */
brim_status brim__budget_usable(const brim_budget *budget, brim_memory kind);
/* The bytes that a new budget charges to its parent. */
uint64_t brim__budget_node_bytes(void);

/* Where memory of a kind is, for a text that has named an amount: "", " of page-locked memory",
 * " on cuda:0", " on opencl:1". Returns `text`. */
#define BRIM__MEMORY_TEXT 32
const char *brim__memory_text(brim_memory kind, char text[BRIM__MEMORY_TEXT]);

/* Elastic: granted only if free right now; never revokes, waits or explains. */
bool brim__budget_try(brim_budget *budget, brim_memory kind, uint64_t bytes);
void brim__budget_return(brim_budget *budget, brim_memory kind, uint64_t bytes); /* of elastic */
/* Makes elastic memory firm: its holder can no longer give it up. What is in use stays the same, so
 * it cannot be refused. If the budget has elastic pages, these are taken first: the caller clears
 * their `elastic`. */
void brim__budget_firm_up(brim_budget *budget, brim_memory kind, uint64_t bytes);
/* Makes it elastic again: its holder can give it up. Host memory must be pages; the caller sets
 * their `elastic`. */
void brim__budget_soften(brim_budget *budget, brim_memory kind, uint64_t bytes);

/* Reserved: like brim_budget_charge, in the other column. */
brim_status brim__budget_reserve(brim_budget *budget, brim_memory kind, uint64_t bytes);
void brim__budget_unreserve(brim_budget *budget, brim_memory kind, uint64_t bytes);

/* Only for alloc.c: host memory that keeps its budget. An elastic refusal is BRIM_STATUS_BUDGET
 * without a text. */
brim_status brim__budget_charge_block(brim_budget *budget, uint64_t bytes, bool elastic);
void brim__budget_uncharge_block(brim_budget *budget, uint64_t bytes, bool elastic);

/* Sets the holder of a budget, at most one. It gives back what is elastic at the budget, and at
 * nodes below that have no holder. NULL removes the holder and waits until no thread is inside its
 * function; it must not be called from that function, nor with a lock that the function takes. The
 * holder must be removed before the last unref. */
void brim__budget_on_revoke(brim_budget *budget, brim__revoke *revoke, void *holder);
/* How readily a budget's holder gives way. The readier ones are asked first. May change at any
 * time. */
enum brim__yield {
    BRIM__YIELDS_LAST,  /* in use: only to firm charges */
    BRIM__YIELDS_CACHE, /* what a cache keeps, which costs an epoch to make again */
    BRIM__YIELDS_IDLE,  /* of a loader whose consumer does not come: it can be made again in time */
};
void brim__budget_yields(brim_budget *budget, enum brim__yield yield);
/* Asks the holders, except those of BRIM__YIELDS_LAST, until `bytes` could be charged elastically
 * to `budget` or they have no more. For memory that a consumer waits for now. */
void brim__budget_make_free(brim_budget *budget, brim_memory kind, uint64_t bytes);
/* Asks the holders at and below `budget`, each once, for `wanted` bytes in all. Returns the bytes
 * that they gave. */
uint64_t brim__budget_revoke(brim_budget *budget, brim_memory kind, uint64_t wanted);

/* available: bytes that a firm charge could get now. These are free at every node up to the root,
 * with the elastic memory below each node counted as free. free: bytes that an elastic charge could
 * get without taking from any holder. A part of a shared budget is not available to it. */
uint64_t brim__budget_available(brim_budget *budget, brim_memory kind);
uint64_t brim__budget_free_now(brim_budget *budget, brim_memory kind);
/* The bytes in use at the budget, in this process, with the minimums that are set aside below
 * it. */
uint64_t brim__budget_used(brim_budget *budget, brim_memory kind);
/* The lowest limit on the way to the root. */
uint64_t brim__budget_limit(brim_budget *budget, brim_memory kind);
/* The node on the way to the root that has the least left for a firm charge. Its holders are the
 * ones to list. Valid as long as `budget`. */
brim_budget *brim__budget_tightest(brim_budget *budget, brim_memory kind);
/* At or below. */
bool brim__budget_is_below(brim_budget *budget, const brim_budget *root);

/* Lists the holders of memory of a kind at and below `budget`, as "train 12.0 MiB, validation 4.0
 * MiB", largest first, as many as fit; also in `lack`, unless it is NULL. Each holder's bytes are
 * its own charges and the unused part of its minimum. */
void brim__budget_holders(brim_budget *budget, brim_memory kind, char *text, size_t bytes,
                          struct brim__lack *lack);
/* Checks the invariants above; aborts in debug builds. For tests. */
void brim__budget_check(brim_budget *budget);

#endif

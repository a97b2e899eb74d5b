/*
 * node.h: the parts of a budget; only for budget.c, charge.c and holders.c.
 *
 *     tree ── lock, revoke lock, process
 *      └ root node ─ counts[kind]: own   firm, elastic, reserved
 *          ├ node                  sums  charged, elastic, reserved of all below
 *          └ node                  used  what the limit is checked against
 *
 * used is a node's own firm + elastic + reserved and, for each child, the larger of the child's
 * minimum and its used. kept is the same without anything elastic: the bytes that would still be
 * used if every holder gave way. Both are kept up to date on every change, so that a charge costs a
 * walk to the root and no more. charged + reserved <= used <= limit at every node, at every
 * instant.
 */
#ifndef BRIM_NODE_H
#define BRIM_NODE_H

#include "base/platform.h"
#include "memory/budget.h"
#include "memory/shared.h"

/* A deeper tree would be a mistake. Every charge walks all levels. */
#define BRIM__MOST_LEVELS 64

/* all fields: the tree's lock */
struct brim__count {
    uint64_t limit, minimum;          /* change through brim_budget_set alone */
    uint64_t firm, elastic, reserved; /* own */
    uint64_t sum_charged, sum_elastic, sum_reserved, peak; /* own and below */
    uint64_t used, kept;
};

struct brim_budget {
    /* never change */
    struct brim__tree *tree;
    brim_budget *parent; /* NULL: the root */
    uint32_t depth;
    char label[BRIM_NAME_BYTES];
    /* all others: the tree's lock */
    uint32_t refs; /* handles; at 0 what they charged is returned */
    /* charged bytes of memory that brim allocated, which includes the children's nodes: the node
     * stays while there are any */
    uint64_t blocks, elastic_blocks;
    brim_budget *first, *last;    /* children, oldest first */
    brim_budget *previous, *next; /* siblings */
    brim__revoke *revoke;
    void *holder;
    enum brim__yield yields;
    bool inside;    /* a thread is inside revoke */
    uint64_t asked; /* the last round in which the holder had no more to give */
    struct brim__count counts[BRIM_MEMORY_KINDS];
};

struct brim__tree {
    brim_budget root;
    uint32_t process;        /* that made it; never changes */
    uint64_t node_bytes;     /* the root's own memory; never changes */
    brim__mutex revoke_lock; /* held while collecting, never while anything else is */
    brim__mutex lock;        /* guards the counts; see docs/design.md, lock order */
    brim__condition left;    /* a thread has left a revoke function */
    bool collecting;         /* elastic charges are refused; lock */
    uint64_t round;          /* of collecting; lock */
    /* The shared budget. The root claims what it uses. While it collects, the claim may be more, so
     * that no other process gets what the holders have given up. */
    struct brim__shared shared;
};

static inline uint64_t brim__counted(const struct brim__count *count, uint64_t used) {
    return brim__max(count->minimum, used);
}

enum brim__column { BRIM__FIRM, BRIM__ELASTIC, BRIM__RESERVED, BRIM__BOUNDS };

/* A request for `bytes` more at a node in a column; or for other bounds of a node, for which its
 * parent may have to set aside more. */
struct brim__request {
    brim_budget *at;
    brim_memory kind;
    enum brim__column column;
    uint64_t bytes;
    const char *who; /* for whom, in a refusal */
    bool block;      /* memory that brim allocated (alloc.c) */
    /* BRIM__BOUNDS: new bounds for this node; fits() sets `at` and `bytes` from them and from what
     * is used at the moment */
    brim_budget *bounded;
    uint64_t limit, minimum;
};

/* Why a request does not fit. */
struct brim__refusal {
    brim_budget *by;      /* the node whose limit it is; the root for a shared budget */
    uint64_t passed;      /* bytes that would be counted at it */
    uint64_t missing;     /* bytes that its limit lacks */
    enum brim__claim why; /* other than BRIM__CLAIMED: the shared budget refused */
};

/* ---------------------------------------------------------------- charge.c */

/* Adds a firm request or fails with an explanation; takes the locks. */
brim_status brim__add_firmly(struct brim__request *request);
/* Adds the request if it fits without taking from any holder; takes the lock. */
bool brim__add_if_free(struct brim__request *request);
/* All others: the tree's lock is held. */
void brim__add(const struct brim__request *request); /* which is known to fit, and claimed */
void brim__subtract(brim_budget *at, brim_memory kind, enum brim__column column, uint64_t bytes);
void brim__raise_kept(brim_budget *node, brim_memory kind, uint64_t more);
void brim__lower_used(brim_budget *node, brim_memory kind, uint64_t less);
void brim__lower_kept(brim_budget *node, brim_memory kind, uint64_t less);
/* Shows other processes how much of the root's memory is elastic. */
void brim__tell_elastic(struct brim__tree *tree, brim_memory kind);
/* Bytes of a column without the memory that brim allocated. */
uint64_t brim__loose(brim_budget *node, brim_memory kind, enum brim__column column);
uint64_t *brim__own_blocks(brim_budget *node, enum brim__column column);

/* ---------------------------------------------------- budget.c, holders.c */

bool brim__budget_forked(const brim_budget *budget); /* this is not the process that made it */
/* The node after `node` in the tree below `top`, parents first; NULL at the
 * end. The tree's lock is held. */
brim_budget *brim__budget_after(const brim_budget *node, const brim_budget *top);
/* What is left at a node if `taken` is all that is taken there; at the root, of the shared budget
 * too. `elastic`: for elastic charges. The tree's lock is held. */
uint64_t brim__budget_left(const brim_budget *node, brim_memory kind, uint64_t taken, bool elastic);
/* Writes why a request was refused, for people and for programs. The tree's lock is held. */
void brim__budget_explain(const struct brim__request *request, const struct brim__refusal *refusal,
                          char text[BRIM__DETAIL_BYTES], struct brim__lack *lack);

#endif

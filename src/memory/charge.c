/*
 * charge.c: the arithmetic of the tree, and collecting from elastic holders.
 *
 * A change is checked all the way to the root before anything is changed, and both happen under one
 * lock, so no instant shows a limit exceeded. A firm charge that is refused collects: it takes the
 * revoke lock, has elastic charges refused meanwhile, and asks the holders below the node that
 * refused for exactly what is missing, the readiest and then those with the most first, until it
 * fits or no holder has more to give. Memory inside a minimum frees nothing for others, so it is
 * not revoked.
 *
 * If processes share a budget, the last step of the check is to claim there what the root needs. A
 * process collects only from its own holders. It keeps the revoked memory claimed until it has used
 * it, so that no other process gets it.
 *
 * Everything above "collecting" is called with the tree's lock held.
 */
#include "memory/node.h"

/* Time between two searches for processes that are gone, when elastic charges cause them. */
#define REAP_NS UINT64_C(1000000000)
/* How long a firm charge waits in all for the lock of a shared budget. */
#define FIRM_NS UINT64_C(2000000000)

/* ------------------------------------------------- arithmetic, lock held */

/* For a change of bounds: sets the node that must have room (`at`), and how many bytes. The parent
 * already counts what the node uses beyond its minimum. */
static void find_bounded(struct brim__request *request) {
    brim_budget *node = request->bounded;
    const struct brim__count *count = &node->counts[request->kind];
    const uint64_t before = brim__counted(count, count->used);
    const bool more = count->used <= request->limit && request->minimum > before;
    request->at = more ? node->parent : node;
    request->bytes = more ? request->minimum - before : 0;
}

/* Whether the shared budget, if any, has room; `claim`: claims it. */
static bool fits_shared(const struct brim__request *request, uint64_t more, bool claim,
                        struct brim__refusal *refusal) {
    assert(request->at != NULL); /* above a root there are no bounds to find room for */
    struct brim__tree *tree = request->at->tree;
    const brim_memory kind = request->kind;
    const uint64_t bytes = tree->root.counts[kind].used + more;
    if (tree->shared.segment == NULL || bytes <= tree->shared.claimed[kind]) {
        return true;
    }
    *refusal = (struct brim__refusal){ .by = &tree->root, .passed = more };
    if (claim) {
        refusal->why = brim__shared_claim(&tree->shared, kind, bytes,
                                          request->column == BRIM__ELASTIC, &refusal->missing);
    } else {
        const uint64_t left =
            brim__shared_left(&tree->shared, kind, bytes - more, request->column == BRIM__ELASTIC);
        refusal->missing = more - brim__min(more, left);
        refusal->why = more > left ? BRIM__CLAIM_FULL : BRIM__CLAIMED;
    }
    return refusal->why == BRIM__CLAIMED;
}

/* Whether the request fits as things are; if not, what is in the way: the first node on
 * the way up whose limit is. `claim`: what fits is added at once, so it is claimed at what
 * processes share. */
static bool fits(struct brim__request *request, bool claim, struct brim__refusal *refusal) {
    if (request->column == BRIM__BOUNDS) {
        find_bounded(request);
        const struct brim__count *count = &request->bounded->counts[request->kind];
        if (count->used > request->limit) {
            *refusal = (struct brim__refusal){ .by = request->bounded,
                                               .missing = count->used - request->limit };
            return false;
        }
    }
    uint64_t more = request->bytes;
    for (brim_budget *node = request->at; node != NULL && more > 0; node = node->parent) {
        const struct brim__count *count = &node->counts[request->kind];
        const uint64_t left = count->limit - count->used;
        if (more > left) {
            *refusal = (struct brim__refusal){ .by = node, .passed = more, .missing = more - left };
            return false;
        }
        more = brim__counted(count, count->used + more) - brim__counted(count, count->used);
    }
    return more == 0 || fits_shared(request, more, claim, refusal);
}

/* Lowers the claim on a shared budget, after the root uses less or collecting has ended. */
static void settle(struct brim__tree *tree, brim_memory kind) {
    if (tree->shared.segment != NULL && !tree->collecting) {
        brim__shared_settle(&tree->shared, kind, tree->root.counts[kind].used);
    }
}

/* To be called after the root's elastic memory has changed. */
void brim__tell_elastic(struct brim__tree *tree, brim_memory kind) {
    if (tree->shared.segment != NULL) {
        brim__shared_tell_elastic(&tree->shared, kind, tree->root.counts[kind].sum_elastic);
    }
}

static void raise_used(brim_budget *node, brim_memory kind, uint64_t more) {
    for (; node != NULL && more > 0; node = node->parent) {
        struct brim__count *count = &node->counts[kind];
        const uint64_t before = count->used;
        count->used += more;
        more = brim__counted(count, count->used) - brim__counted(count, before);
    }
}

void brim__raise_kept(brim_budget *node, brim_memory kind, uint64_t more) {
    for (; node != NULL && more > 0; node = node->parent) {
        struct brim__count *count = &node->counts[kind];
        const uint64_t before = count->kept;
        count->kept += more;
        more = brim__counted(count, count->kept) - brim__counted(count, before);
    }
}

void brim__lower_used(brim_budget *node, brim_memory kind, uint64_t less) {
    for (; node != NULL && less > 0; node = node->parent) {
        struct brim__count *count = &node->counts[kind];
        const uint64_t before = count->used;
        count->used -= less;
        less = brim__counted(count, before) - brim__counted(count, count->used);
        if (node->parent == NULL) {
            settle(node->tree, kind);
        }
    }
}

void brim__lower_kept(brim_budget *node, brim_memory kind, uint64_t less) {
    for (; node != NULL && less > 0; node = node->parent) {
        struct brim__count *count = &node->counts[kind];
        const uint64_t before = count->kept;
        count->kept -= less;
        less = brim__counted(count, before) - brim__counted(count, count->kept);
    }
}

static uint64_t *own_column(brim_budget *node, brim_memory kind, enum brim__column column) {
    struct brim__count *count = &node->counts[kind];
    return column == BRIM__FIRM      ? &count->firm
           : column == BRIM__ELASTIC ? &count->elastic
                                     : &count->reserved;
}

uint64_t *brim__own_blocks(brim_budget *node, enum brim__column column) {
    return column == BRIM__ELASTIC ? &node->elastic_blocks : &node->blocks;
}

/* kept is never above used, so what fits with used fits with it. */
static void set_bounds(const struct brim__request *request) {
    brim_budget *node = request->bounded;
    const brim_memory kind = request->kind;
    struct brim__count *count = &node->counts[kind];
    const struct brim__count before = *count;
    count->limit = request->limit;
    count->minimum = request->minimum;
    if (request->minimum > before.minimum) {
        raise_used(node->parent, kind,
                   brim__counted(count, count->used) - brim__counted(&before, count->used));
        brim__raise_kept(node->parent, kind,
                         brim__counted(count, count->kept) - brim__counted(&before, count->kept));
    } else {
        brim__lower_used(node->parent, kind,
                         brim__counted(&before, count->used) - brim__counted(count, count->used));
        brim__lower_kept(node->parent, kind,
                         brim__counted(&before, count->kept) - brim__counted(count, count->kept));
    }
}

/* Makes the change that fits() has accepted. */
void brim__add(const struct brim__request *request) {
    const brim_memory kind = request->kind;
    const uint64_t bytes = request->bytes;
    if (request->column == BRIM__BOUNDS) {
        set_bounds(request);
        return;
    }
    raise_used(request->at, kind, bytes);
    if (request->column != BRIM__ELASTIC) {
        brim__raise_kept(request->at, kind, bytes);
    }
    if (request->block) {
        *brim__own_blocks(request->at, request->column) += bytes;
    }
    *own_column(request->at, kind, request->column) += bytes;
    for (brim_budget *node = request->at; node != NULL; node = node->parent) {
        struct brim__count *count = &node->counts[kind];
        if (request->column == BRIM__RESERVED) {
            count->sum_reserved += bytes;
        } else {
            count->sum_charged += bytes;
        }
        if (request->column == BRIM__ELASTIC) {
            count->sum_elastic += bytes;
        }
        count->peak = brim__max(count->peak, count->sum_charged + count->sum_reserved);
    }
    if (request->column == BRIM__ELASTIC) {
        brim__tell_elastic(request->at->tree, kind);
    }
}

void brim__subtract(brim_budget *at, brim_memory kind, enum brim__column column, uint64_t bytes) {
    *own_column(at, kind, column) -= bytes;
    for (brim_budget *node = at; node != NULL; node = node->parent) {
        struct brim__count *count = &node->counts[kind];
        if (column == BRIM__RESERVED) {
            count->sum_reserved -= bytes;
        } else {
            count->sum_charged -= bytes;
        }
        if (column == BRIM__ELASTIC) {
            count->sum_elastic -= bytes;
        }
    }
    brim__lower_used(at, kind, bytes);
    if (column == BRIM__ELASTIC) {
        brim__tell_elastic(at->tree, kind);
    } else {
        brim__lower_kept(at, kind, bytes);
    }
}

uint64_t brim__loose(brim_budget *node, brim_memory kind, enum brim__column column) {
    const uint64_t all = *own_column(node, kind, column);
    return kind == BRIM_MEMORY_HOST && column != BRIM__RESERVED
               ? all - *brim__own_blocks(node, column)
               : all;
}

/* ------------------------------------------------------------- collecting */

/* The bytes of the request that would be counted at `node`, below the refuser `top`; 0 if `node` is
 * not on its way. */
static uint64_t coming_to(const struct brim__request *request, const brim_budget *node,
                          const brim_budget *top) {
    uint64_t more = request->bytes;
    const brim_budget *at = request->at;
    for (; at != node && at != top; at = at->parent) {
        const struct brim__count *count = &at->counts[request->kind];
        more = brim__counted(count, count->used + more) - brim__counted(count, count->used);
    }
    return at == node ? more : 0;
}

/* How many of the bytes missing at `top` the holder at `node` can free. Bytes within the minimum of
 * a node in between free nothing, unless the request itself uses that minimum. Nothing is freed
 * below a node that is to get a larger minimum. A holder that gives up fewer bytes than this frees
 * all of them. */
static uint64_t gain(const brim_budget *node, const struct brim__request *request,
                     const brim_budget *top) {
    uint64_t most = node->counts[request->kind].sum_elastic;
    for (; node != top; node = node->parent) {
        if (node == request->bounded) {
            return 0;
        }
        const struct brim__count *count = &node->counts[request->kind];
        const uint64_t used = count->used + coming_to(request, node, top);
        most = brim__min(most, brim__counted(count, used) - count->minimum);
    }
    return most;
}

/* Holders that give way more readily are asked first, then those with the most. */
static bool is_before(const brim_budget *a, const brim_budget *b, brim_memory kind) {
    return a->yields != b->yields ? a->yields > b->yields
                                  : a->counts[kind].elastic > b->counts[kind].elastic;
}

/* The holder below or at `top` to ask next: the readiest among those that help the request, and of
 * these the one with the most elastic memory of its own. Without a request (trimming) every
 * holder does. */
static brim_budget *pick_holder(brim_budget *top, brim_memory kind,
                                const struct brim__request *request) {
    brim_budget *picked = NULL;
    for (brim_budget *node = top; node != NULL; node = brim__budget_after(node, top)) {
        if (node->revoke == NULL || node->asked == top->tree->round) {
            continue;
        }
        if ((request != NULL ? gain(node, request, top) : node->counts[kind].sum_elastic) == 0) {
            continue;
        }
        if (picked == NULL || is_before(node, picked, kind)) {
            picked = node;
        }
    }
    return picked;
}

/* Calls the holder with the lock released. A holder that gave nothing is not asked again in this
 * round. */
static uint64_t ask(brim_budget *node, brim_memory kind, uint64_t wanted, bool firmly) {
    struct brim__tree *tree = node->tree;
    const uint64_t before = node->counts[kind].sum_elastic;
    brim__revoke *const revoke = node->revoke;
    void *const holder = node->holder;
    node->inside = true;
    brim__unlock(&tree->lock);
    const uint64_t given = revoke(holder, kind, wanted, firmly);
    brim__lock(&tree->lock);
    node->inside = false;
    brim__broadcast(&tree->left);
    if (node->counts[kind].sum_elastic >= before) {
        node->asked = tree->round;
    }
    return given;
}

static void begin_collecting(struct brim__tree *tree) {
    brim__lock(&tree->revoke_lock);
    brim__lock(&tree->lock);
    tree->collecting = true;
    tree->round++;
}

static void end_collecting(struct brim__tree *tree) {
    tree->collecting = false;
    for (int kind = 0; kind < BRIM_MEMORY_KINDS; kind++) {
        settle(tree, (brim_memory)kind);
    }
    brim__unlock(&tree->lock);
    brim__unlock(&tree->revoke_lock);
}

/* Asks the next holder whose memory helps the request to fit, for what is missing; those that are
 * in use only if `firmly`. false: there is none. */
static bool collect(const struct brim__request *request, const struct brim__refusal *refusal,
                    bool firmly) {
    brim_budget *holder = pick_holder(refusal->by, request->kind, request);
    if (holder == NULL || (!firmly && holder->yields == BRIM__YIELDS_LAST)) {
        return false;
    }
    ask(holder, request->kind, brim__min(refusal->missing, gain(holder, request, refusal->by)),
        firmly);
    return true;
}

/* Looks for processes that are gone, with the lock released. */
static void reap(struct brim__tree *tree, uint64_t deadline) {
    tree->shared.reaped_ns = brim__now();
    brim__unlock(&tree->lock);
    brim__shared_reap(&tree->shared, deadline);
    brim__lock(&tree->lock);
}

/* Like fits() with a claim, but waits for the lock of the shared budget, with the tree's lock
 * released. */
static bool fits_in_time(struct brim__tree *tree, struct brim__request *request, uint64_t deadline,
                         struct brim__refusal *refusal) {
    bool fit;
    while (!(fit = fits(request, true, refusal)) && refusal->why == BRIM__CLAIM_BUSY &&
           brim__now() < deadline) {
        brim__unlock(&tree->lock);
        brim__shared_await(&tree->shared, deadline);
        brim__lock(&tree->lock);
    }
    return fit;
}

/* Whether freeing memory could help. It cannot if the lock of the shared budget is not
 * available. */
static bool lacks_memory(const struct brim__refusal *refusal) {
    return refusal->why == BRIM__CLAIMED || refusal->why == BRIM__CLAIM_FULL;
}

brim_status brim__add_firmly(struct brim__request *request) {
    struct brim__tree *tree = (request->at != NULL ? request->at : request->bounded)->tree;
    struct brim__refusal refusal;
    char text[BRIM__DETAIL_BYTES];
    struct brim__lack lack = { 0 };
    const uint64_t deadline = brim__now() + FIRM_NS; /* of all waiting for that lock */
    brim__lock(&tree->lock);
    bool fit = fits_in_time(tree, request, deadline, &refusal);
    const bool collecting = !fit && lacks_memory(&refusal);
    if (collecting) {
        brim__unlock(&tree->lock);
        begin_collecting(tree);
        bool reaped = false;
        while (!(fit = fits_in_time(tree, request, deadline, &refusal)) && lacks_memory(&refusal)) {
            if (collect(request, &refusal, true)) {
                continue;
            }
            if (reaped || refusal.why == BRIM__CLAIMED) {
                break;
            }
            reap(tree, deadline);
            reaped = true;
        }
    }
    if (fit) {
        brim__add(request);
    } else {
        brim__budget_explain(request, &refusal, text, &lack);
    }
    if (collecting) {
        end_collecting(tree);
    } else {
        brim__unlock(&tree->lock);
    }
    if (fit) {
        return BRIM_OK;
    }
    const brim_status status = brim__fail_text(BRIM_STATUS_BUDGET, text);
    *brim__lack() = lack;
    return status;
}

bool brim__add_if_free(struct brim__request *request) {
    struct brim__tree *tree = request->at->tree;
    struct brim__refusal refusal;
    brim__lock(&tree->lock);
    bool fit = !tree->collecting && fits(request, true, &refusal);
    if (!fit && !tree->collecting && refusal.why == BRIM__CLAIM_FULL &&
        brim__now() - tree->shared.reaped_ns > REAP_NS) {
        reap(tree, brim__now() + BRIM__SOON_NS);
        fit = !tree->collecting && fits(request, true, &refusal);
    }
    if (fit) {
        brim__add(request);
    }
    brim__unlock(&tree->lock);
    return fit;
}

/* ---------------------------------------------------------------- revoking */

void brim__budget_on_revoke(brim_budget *budget, brim__revoke *revoke, void *holder) {
    if (brim__budget_forked(budget)) {
        return;
    }
    brim__lock(&budget->tree->lock);
    assert(revoke == NULL || budget->revoke == NULL);
    budget->revoke = revoke;
    budget->holder = holder;
    while (revoke == NULL && budget->inside) {
        brim__wait(&budget->tree->left, &budget->tree->lock, UINT64_MAX);
    }
    brim__unlock(&budget->tree->lock);
}

void brim__budget_yields(brim_budget *budget, enum brim__yield yield) {
    brim__lock(&budget->tree->lock);
    budget->yields = yield;
    brim__unlock(&budget->tree->lock);
}

void brim__budget_make_free(brim_budget *budget, brim_memory kind, uint64_t bytes) {
    struct brim__request request = {
        .at = budget, .kind = kind, .column = BRIM__ELASTIC, .bytes = bytes
    };
    struct brim__tree *tree = budget->tree;
    struct brim__refusal refusal;
    brim__lock(&tree->lock);
    const bool fit = fits(&request, false, &refusal);
    brim__unlock(&tree->lock);
    if (fit) {
        return;
    }
    begin_collecting(tree);
    while (!fits(&request, false, &refusal) && collect(&request, &refusal, false)) {
    }
    end_collecting(tree);
}

uint64_t brim__budget_revoke(brim_budget *budget, brim_memory kind, uint64_t wanted) {
    if (brim__budget_forked(budget)) {
        return 0;
    }
    struct brim__tree *tree = budget->tree;
    uint64_t given = 0;
    brim_budget *node;
    begin_collecting(tree);
    while (given < wanted && (node = pick_holder(budget, kind, NULL)) != NULL) {
        given += ask(node, kind, wanted - given, true);
        node->asked = tree->round;
    }
    end_collecting(tree);
    return given;
}

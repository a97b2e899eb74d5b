/*
 * charge.c: the arithmetic of the tree, and collecting from elastic holders.
 *
 * A change is checked all the way to the root before anything is changed, and
 * both happen under one lock, so no instant shows a limit exceeded. A firm
 * charge that is refused collects: it takes the revoke lock, has elastic
 * charges refused meanwhile, and asks the holders below the node that refused
 * for exactly what is missing, those with the most first, until it fits or
 * nobody has more to give. What lies below a minimum frees nothing for others,
 * so it is not asked for.
 *
 * Everything above "collecting" is called with the tree's lock held.
 */
#include "memory/node.h"

/* ------------------------------------------------- arithmetic, lock held */

/* The first node on the way up whose limit is in the way, NULL if the request
 * fits. *passed: what would come to that node, more than its limit leaves. */
static brim_budget *find_refuser(const struct brim__request *request, uint64_t *passed) {
    uint64_t more = request->bytes;
    for (brim_budget *node = request->at; node && more > 0; node = node->parent) {
        const struct brim__count *count = &node->counts[request->kind];
        if (more > count->limit - count->used) {
            *passed = more;
            return node;
        }
        more = brim__counted(count, count->used + more) - brim__counted(count, count->used);
    }
    return NULL;
}

static void raise_used(brim_budget *node, brim_memory kind, uint64_t more) {
    for (; node && more > 0; node = node->parent) {
        struct brim__count *count = &node->counts[kind];
        const uint64_t before = count->used;
        count->used += more;
        more = brim__counted(count, count->used) - brim__counted(count, before);
    }
}

void brim__raise_kept(brim_budget *node, brim_memory kind, uint64_t more) {
    for (; node && more > 0; node = node->parent) {
        struct brim__count *count = &node->counts[kind];
        const uint64_t before = count->kept;
        count->kept += more;
        more = brim__counted(count, count->kept) - brim__counted(count, before);
    }
}

void brim__lower_used(brim_budget *node, brim_memory kind, uint64_t less) {
    for (; node && less > 0; node = node->parent) {
        struct brim__count *count = &node->counts[kind];
        const uint64_t before = count->used;
        count->used -= less;
        less = brim__counted(count, before) - brim__counted(count, count->used);
    }
}

void brim__lower_kept(brim_budget *node, brim_memory kind, uint64_t less) {
    for (; node && less > 0; node = node->parent) {
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

static void link_child(brim_budget *child) {
    brim_budget *parent = child->parent;
    child->previous = parent->last;
    if (parent->last) {
        parent->last->next = child;
    } else {
        parent->first = child;
    }
    parent->last = child;
}

/* Makes the change that find_refuser() has let pass. */
void brim__add(const struct brim__request *request) {
    const brim_memory kind = request->kind;
    const uint64_t bytes = request->bytes;
    raise_used(request->at, kind, bytes);
    if (request->column != BRIM__ELASTIC) {
        brim__raise_kept(request->at, kind, bytes);
    }
    if (request->column == BRIM__MINIMUM) {
        link_child(request->child);
        return;
    }
    if (request->block) {
        *brim__own_blocks(request->at, request->column) += bytes;
    }
    *own_column(request->at, kind, request->column) += bytes;
    for (brim_budget *node = request->at; node; node = node->parent) {
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
}

void brim__subtract(brim_budget *at, brim_memory kind, enum brim__column column, uint64_t bytes) {
    *own_column(at, kind, column) -= bytes;
    for (brim_budget *node = at; node; node = node->parent) {
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
    if (column != BRIM__ELASTIC) {
        brim__lower_kept(at, kind, bytes);
    }
}

uint64_t brim__loose(brim_budget *node, brim_memory kind, enum brim__column column) {
    const uint64_t all = *own_column(node, kind, column);
    return kind == BRIM_HOST && column != BRIM__RESERVED ? all - *brim__own_blocks(node, column)
                                                         : all;
}

/* ------------------------------------------------------------- collecting */

/* What of the request would come to `node` below the refuser `top`; 0 if it
 * does not pass there. */
static uint64_t coming_to(const struct brim__request *request, const brim_budget *node,
                          const brim_budget *top) {
    uint64_t more = request->bytes;
    const brim_budget *at = request->at;
    for (; at != node && at != top; at = at->parent) {
        const struct brim__count *count = &at->counts[BRIM_HOST];
        more = brim__counted(count, count->used + more) - brim__counted(count, count->used);
    }
    return at == node ? more : 0;
}

/* How much nearer to fitting below `top` the request comes if the holder at
 * `node` gives up all: what is below the minimum of a node in between, and not
 * filled by the request itself, stays set aside. A smaller gift counts in full. */
static uint64_t gain(const brim_budget *node, const struct brim__request *request,
                     const brim_budget *top) {
    uint64_t most = node->counts[BRIM_HOST].sum_elastic;
    for (; node != top; node = node->parent) {
        const struct brim__count *count = &node->counts[BRIM_HOST];
        const uint64_t used = count->used + coming_to(request, node, top);
        most = brim__min(most, brim__counted(count, used) - count->minimum);
    }
    return most;
}

/* The holder below or at `top` to ask next: the one with the most elastic
 * memory of its own among those who help the request. Without a request
 * (trimming) everyone does. */
static brim_budget *pick_holder(brim_budget *top, const struct brim__request *request) {
    brim_budget *picked = NULL;
    for (brim_budget *node = top; node; node = brim__budget_after(node, top)) {
        if (!node->revoke || node->asked == top->tree->round) {
            continue;
        }
        if ((request ? gain(node, request, top) : node->counts[BRIM_HOST].sum_elastic) == 0) {
            continue;
        }
        if (!picked || node->counts[BRIM_HOST].elastic > picked->counts[BRIM_HOST].elastic) {
            picked = node;
        }
    }
    return picked;
}

/* Calls the holder with the lock released. One that gave nothing is not asked
 * again in this round. */
static uint64_t ask(brim_budget *node, uint64_t wanted) {
    struct brim__tree *tree = node->tree;
    const uint64_t before = node->counts[BRIM_HOST].sum_elastic;
    brim__revoke *const revoke = node->revoke;
    void *const holder = node->holder;
    node->inside = true;
    brim__unlock(&tree->lock);
    const uint64_t given = revoke(holder, wanted);
    brim__lock(&tree->lock);
    node->inside = false;
    brim__broadcast(&tree->left);
    if (node->counts[BRIM_HOST].sum_elastic >= before) {
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
    brim__unlock(&tree->lock);
    brim__unlock(&tree->revoke_lock);
}

brim_status brim__add_firmly(const struct brim__request *request) {
    struct brim__tree *tree = request->at->tree;
    char text[BRIM__DETAIL_BYTES];
    uint64_t passed = 0;
    brim__lock(&tree->lock);
    brim_budget *refuser = find_refuser(request, &passed);
    const bool collecting = refuser && request->kind == BRIM_HOST;
    if (collecting) {
        brim__unlock(&tree->lock);
        begin_collecting(tree);
        while ((refuser = find_refuser(request, &passed)) != NULL) {
            const struct brim__count *count = &refuser->counts[BRIM_HOST];
            brim_budget *holder = pick_holder(refuser, request);
            if (!holder) {
                break;
            }
            ask(holder,
                brim__min(passed - (count->limit - count->used), gain(holder, request, refuser)));
        }
    }
    if (refuser) {
        brim__budget_explain(refuser, request->kind, request->bytes, passed, request->who, text);
    } else {
        brim__add(request);
    }
    if (collecting) {
        end_collecting(tree);
    } else {
        brim__unlock(&tree->lock);
    }
    return refuser ? brim__fail_text(BRIM_BUDGET, text) : BRIM_OK;
}

bool brim__add_if_free(const struct brim__request *request) {
    struct brim__tree *tree = request->at->tree;
    uint64_t passed;
    brim__lock(&tree->lock);
    const bool fits = !tree->collecting && !find_refuser(request, &passed);
    if (fits) {
        brim__add(request);
    }
    brim__unlock(&tree->lock);
    return fits;
}

/* ---------------------------------------------------------------- revoking */

void brim__budget_on_revoke(brim_budget *budget, brim__revoke *revoke, void *holder) {
    if (brim__budget_forked(budget)) {
        return;
    }
    brim__lock(&budget->tree->lock);
    assert(!revoke || !budget->revoke);
    budget->revoke = revoke;
    budget->holder = holder;
    while (!revoke && budget->inside) {
        brim__wait(&budget->tree->left, &budget->tree->lock, UINT64_MAX);
    }
    brim__unlock(&budget->tree->lock);
}

uint64_t brim__budget_revoke(brim_budget *budget, uint64_t wanted) {
    if (brim__budget_forked(budget)) {
        return 0;
    }
    struct brim__tree *tree = budget->tree;
    uint64_t given = 0;
    brim_budget *node;
    begin_collecting(tree);
    while (given < wanted && (node = pick_holder(budget, NULL)) != NULL) {
        given += ask(node, wanted - given);
        node->asked = tree->round;
    }
    end_collecting(tree);
    return given;
}

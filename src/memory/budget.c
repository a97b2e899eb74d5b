/*
 * budget.c: the nodes of the tree: their lifetime, and the calls that charge them.
 *
 * Life of a node. Handles are counted (refs). When the last one is freed, the bytes that are still
 * charged through them are returned up the tree. Memory that brim allocated (alloc.c) is not
 * returned: it stays charged until it is freed, and keeps its node. Living children keep it too,
 * because their nodes are such memory of the parent. Therefore only a call with a freed handle can
 * reach a node that is gone.
 *
 * After a fork the child uses no lock, because the parent may have held it. Reading and charging
 * return BRIM_STATUS_FORKED; freeing and uncharging do nothing.
 */
#include "base/struct.h"
#include "memory/alloc.h"
#include "memory/node.h"

bool brim__budget_forked(const brim_budget *budget) {
    return budget->tree->process != brim__process();
}

brim_status brim__budget_usable(const brim_budget *budget, brim_memory kind) {
    if (budget == NULL) {
        return brim__fail(BRIM_STATUS_INVALID, "the budget is NULL");
    }
    if ((unsigned)kind >= BRIM_MEMORY_KINDS) {
        return brim__fail(BRIM_STATUS_INVALID, "%u is not a kind of memory; there are %u",
                          (unsigned)kind, (unsigned)BRIM_MEMORY_KINDS);
    }
    if (brim__budget_forked(budget)) {
        return brim__fail(BRIM_STATUS_FORKED,
                          "budget \"%s\" belongs to process %u; make a runtime in this one",
                          budget->label, (unsigned)budget->tree->process);
    }
    return BRIM_OK;
}

/* ------------------------------------------------------------ life of nodes */

/* Cut at a whole UTF-8 character; no control characters, which would let a
 * label disturb a terminal. */
static void set_label(brim_budget *node, const char *label) {
    if (!brim__copy_text(node->label, sizeof node->label, label)) {
        size_t end = sizeof node->label - 1;
        while (end > 0 && ((unsigned char)label[end] & 0xC0) == 0x80) {
            end--;
        }
        node->label[end] = '\0';
    }
    for (char *at = node->label; *at; at++) {
        if ((unsigned char)*at < 0x20 || *at == 0x7F) {
            *at = '?';
        }
    }
}

static brim_status init_locks(struct brim__tree *tree) {
    brim_status status = brim__mutex_init(&tree->revoke_lock);
    if (status != BRIM_OK) {
        return status;
    }
    status = brim__mutex_init(&tree->lock);
    if (status != BRIM_OK) {
        goto no_lock;
    }
    status = brim__condition_init(&tree->left);
    if (status != BRIM_OK) {
        goto no_condition;
    }
    return BRIM_OK;
no_condition:
    brim__mutex_fini(&tree->lock);
no_lock:
    brim__mutex_fini(&tree->revoke_lock);
    return status;
}

brim_status brim__budget_root(const char *label, const uint64_t limits[BRIM_MEMORY_KINDS],
                              brim_budget **budget) {
    const uint64_t bytes = brim__alloc_bytes(sizeof(struct brim__tree));
    if (limits[BRIM_MEMORY_HOST] < bytes) {
        char limit[BRIM__SIZE_TEXT];
        return brim__fail(BRIM_STATUS_BUDGET,
                          "budget \"%s\" (limit %s) is too small for its own records; raise the "
                          "limit to at least %llu bytes",
                          label, brim__size_text(limits[BRIM_MEMORY_HOST], limit),
                          (unsigned long long)bytes);
    }
    brim_status status;
    struct brim__tree *tree = brim__alloc(NULL, sizeof *tree, &status);
    if (tree == NULL) {
        return status;
    }
    status = init_locks(tree);
    if (status != BRIM_OK) {
        brim__free(tree);
        return status;
    }
    brim_budget *root = &tree->root;
    tree->process = brim__process();
    tree->node_bytes = bytes;
    root->tree = tree;
    root->refs = 1;
    set_label(root, label);
    for (size_t kind = 0; kind < BRIM_MEMORY_KINDS; kind++) {
        root->counts[kind].limit = limits[kind];
    }
    brim__add(&(struct brim__request){ .at = root,
                                       .kind = BRIM_MEMORY_HOST,
                                       .column = BRIM__FIRM,
                                       .bytes = bytes,
                                       .block = true });
    *budget = root;
    return BRIM_OK;
}

static void link_child(brim_budget *child) {
    brim_budget *parent = child->parent;
    brim__lock(&parent->tree->lock);
    child->previous = parent->last;
    if (parent->last != NULL) {
        parent->last->next = child;
    } else {
        parent->first = child;
    }
    parent->last = child;
    brim__unlock(&parent->tree->lock);
}

brim_status brim__budget_share(brim_budget *root, const char *name,
                               const uint64_t limits[BRIM_MEMORY_KINDS]) {
    uint64_t claims[BRIM_MEMORY_KINDS];
    const brim_status status =
        brim_budget_charge(root, BRIM_MEMORY_HOST,
                           brim__align(sizeof(struct brim__shared_segment), brim__page_bytes()));
    if (status != BRIM_OK) {
        return status;
    }
    for (size_t kind = 0; kind < BRIM_MEMORY_KINDS; kind++) {
        claims[kind] = root->counts[kind].used;
    }
    return brim__shared_join(&root->tree->shared, name, limits, claims);
}

/* Gives up the minimum as well; the child itself counts nothing any more. */
static void unlink_child(brim_budget *child) {
    brim_budget *parent = child->parent;
    if (child->previous != NULL) {
        child->previous->next = child->next;
    } else {
        parent->first = child->next;
    }
    if (child->next != NULL) {
        child->next->previous = child->previous;
    } else {
        parent->last = child->previous;
    }
    for (int kind = 0; kind < BRIM_MEMORY_KINDS; kind++) {
        const struct brim__count *count = &child->counts[kind];
        assert(count->used == 0);
        brim__lower_used(parent, (brim_memory)kind, brim__counted(count, count->used));
        brim__lower_kept(parent, (brim_memory)kind, brim__counted(count, count->kept));
    }
}

uint64_t brim__budget_node_bytes(void) {
    return brim__alloc_bytes(sizeof(brim_budget));
}

static brim_status check_bounds(const char *label, uint64_t limit, uint64_t minimum) {
    return minimum <= limit
               ? BRIM_OK
               : brim__fail(BRIM_STATUS_INVALID,
                            "budget \"%s\": its minimum of %llu bytes is above its limit of %llu",
                            label, (unsigned long long)minimum, (unsigned long long)limit);
}

brim_status brim_budget_new(brim_budget *parent, const char *label, uint64_t limit,
                            uint64_t minimum, brim_budget **budget) {
    if (budget == NULL) {
        return brim__fail_null("budget");
    }
    *budget = NULL;
    brim_status status = brim__budget_usable(parent, BRIM_MEMORY_HOST);
    if (status != BRIM_OK) {
        return status;
    }
    if (label == NULL || label[0] == '\0') {
        return brim__fail(BRIM_STATUS_INVALID, "a budget needs a label");
    }
    status = check_bounds(label, limit, minimum);
    if (status != BRIM_OK) {
        return status;
    }
    if (parent->depth + 1 >= BRIM__MOST_LEVELS) {
        return brim__fail(BRIM_STATUS_INVALID, "budget \"%s\": budgets nest at most %d levels deep",
                          label, BRIM__MOST_LEVELS);
    }
    brim_budget *node = brim__alloc(parent, sizeof *node, &status);
    if (node == NULL) {
        return status;
    }
    node->tree = parent->tree;
    node->parent = parent;
    node->depth = parent->depth + 1;
    node->refs = 1;
    set_label(node, label);
    for (size_t kind = 0; kind < BRIM_MEMORY_KINDS; kind++) {
        node->counts[kind].limit = BRIM_UNLIMITED;
    }
    node->counts[BRIM_MEMORY_HOST].limit = limit;
    link_child(node);
    status = brim_budget_set(node, BRIM_MEMORY_HOST, limit, minimum);
    if (status != BRIM_OK) {
        brim__budget_unref(node);
        return status;
    }
    *budget = node;
    return BRIM_OK;
}

brim_status brim_budget_set(brim_budget *budget, brim_memory kind, uint64_t limit,
                            uint64_t minimum) {
    brim_status status = brim__budget_usable(budget, kind);
    if (status == BRIM_OK) {
        status = check_bounds(budget->label, limit, minimum);
    }
    if (status != BRIM_OK) {
        return status;
    }
    if (budget->parent == NULL && minimum > 0) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "budget \"%s\" has no parent, so it cannot have a minimum",
                          budget->label);
    }
    return brim__add_firmly(&(struct brim__request){ .kind = kind,
                                                     .column = BRIM__BOUNDS,
                                                     .who = budget->label,
                                                     .bounded = budget,
                                                     .limit = limit,
                                                     .minimum = minimum });
}

/* Lock held: true if nothing holds the node any more. It has then left the tree, and the caller
 * destroys it after releasing the lock. */
static bool bury_if_dead(brim_budget *node) {
    const bool is_root = node->parent == NULL;
    const uint64_t itself = is_root ? node->tree->node_bytes : 0;
    if (node->refs > 0 || node->blocks > itself || node->elastic_blocks > 0) {
        return false;
    }
    assert(node->first == NULL && node->revoke == NULL);
    if (!is_root) {
        unlink_child(node);
    }
    return true;
}

/* Freeing the node uncharges it at its parent, which may be the last thing that keeps the parent;
 * BRIM__MOST_LEVELS bounds the depth of this recursion. */
static void destroy(brim_budget *node) {
    struct brim__tree *tree = node->tree;
    if (node->parent != NULL) {
        brim__free(node);
        return;
    }
    struct brim__shared shared = tree->shared;
    brim__condition_fini(&tree->left);
    brim__mutex_fini(&tree->lock);
    brim__mutex_fini(&tree->revoke_lock);
    brim__free(tree);
    brim__shared_leave(&shared); /* last: what is claimed is never below what is held */
}

void brim__budget_ref(brim_budget *budget) {
    if (brim__budget_forked(budget)) {
        return;
    }
    brim__lock(&budget->tree->lock);
    budget->refs++;
    brim__unlock(&budget->tree->lock);
}

void brim__budget_unref(brim_budget *budget) {
    if (budget == NULL || brim__budget_forked(budget)) {
        return;
    }
    struct brim__tree *tree = budget->tree;
    brim__lock(&tree->lock);
    assert(budget->refs > 0);
    budget->refs--;
    for (int k = 0; k < BRIM_MEMORY_KINDS && budget->refs == 0; k++) {
        for (enum brim__column column = BRIM__FIRM; column <= BRIM__RESERVED; column++) {
            brim__subtract(budget, (brim_memory)k, column,
                           brim__loose(budget, (brim_memory)k, column));
        }
    }
    const bool dead = bury_if_dead(budget);
    brim__unlock(&tree->lock);
    if (dead) {
        destroy(budget);
    }
}

void brim_budget_free(brim_budget *budget) {
    brim__budget_unref(budget);
}

/* ---------------------------------------------------------------- charging */

static brim_status charge(brim_budget *budget, brim_memory kind, enum brim__column column,
                          uint64_t bytes, bool block) {
    const brim_status status = brim__budget_usable(budget, kind);
    if (status != BRIM_OK) {
        return status;
    }
    return brim__add_firmly(&(struct brim__request){ .at = budget,
                                                     .kind = kind,
                                                     .column = column,
                                                     .bytes = bytes,
                                                     .who = budget->label,
                                                     .block = block });
}

/* If `bytes` is more than is charged, an error of the caller, all that is charged is uncharged. */
static void uncharge(brim_budget *budget, brim_memory kind, enum brim__column column,
                     uint64_t bytes) {
    if (budget == NULL || (unsigned)kind >= BRIM_MEMORY_KINDS || brim__budget_forked(budget)) {
        return;
    }
    brim__lock(&budget->tree->lock);
    const uint64_t most = brim__loose(budget, kind, column);
    assert(bytes <= most);
    brim__subtract(budget, kind, column, brim__min(bytes, most));
    brim__unlock(&budget->tree->lock);
}

brim_status brim_budget_charge(brim_budget *budget, brim_memory kind, uint64_t bytes) {
    return charge(budget, kind, BRIM__FIRM, bytes, false);
}

void brim_budget_uncharge(brim_budget *budget, brim_memory kind, uint64_t bytes) {
    uncharge(budget, kind, BRIM__FIRM, bytes);
}

brim_status brim__budget_reserve(brim_budget *budget, brim_memory kind, uint64_t bytes) {
    return charge(budget, kind, BRIM__RESERVED, bytes, false);
}

void brim__budget_unreserve(brim_budget *budget, brim_memory kind, uint64_t bytes) {
    uncharge(budget, kind, BRIM__RESERVED, bytes);
}

bool brim__budget_try(brim_budget *budget, brim_memory kind, uint64_t bytes) {
    return !brim__budget_forked(budget) &&
           brim__add_if_free(&(struct brim__request){
               .at = budget, .kind = kind, .column = BRIM__ELASTIC, .bytes = bytes });
}

void brim__budget_return(brim_budget *budget, brim_memory kind, uint64_t bytes) {
    uncharge(budget, kind, BRIM__ELASTIC, bytes);
}

void brim__budget_firm_up(brim_budget *budget, brim_memory kind, uint64_t bytes) {
    if (brim__budget_forked(budget)) {
        return;
    }
    brim__lock(&budget->tree->lock);
    struct brim__count *own = &budget->counts[kind];
    assert(bytes <= own->elastic);
    bytes = brim__min(bytes, own->elastic);
    own->elastic -= bytes;
    own->firm += bytes;
    const uint64_t blocks = kind == BRIM_MEMORY_HOST ? brim__min(bytes, budget->elastic_blocks) : 0;
    budget->elastic_blocks -= blocks;
    budget->blocks += blocks;
    for (brim_budget *node = budget; node != NULL; node = node->parent) {
        node->counts[kind].sum_elastic -= bytes;
    }
    brim__raise_kept(budget, kind, bytes);
    brim__tell_elastic(budget->tree, kind);
    brim__unlock(&budget->tree->lock);
}

void brim__budget_soften(brim_budget *budget, brim_memory kind, uint64_t bytes) {
    if (brim__budget_forked(budget)) {
        return;
    }
    brim__lock(&budget->tree->lock);
    struct brim__count *own = &budget->counts[kind];
    assert(bytes <= own->firm);
    bytes = brim__min(bytes, own->firm);
    own->firm -= bytes;
    own->elastic += bytes;
    if (kind == BRIM_MEMORY_HOST) {
        assert(bytes <= budget->blocks);
        budget->blocks -= bytes;
        budget->elastic_blocks += bytes;
    }
    for (brim_budget *node = budget; node != NULL; node = node->parent) {
        node->counts[kind].sum_elastic += bytes;
    }
    brim__lower_kept(budget, kind, bytes);
    brim__tell_elastic(budget->tree, kind);
    brim__unlock(&budget->tree->lock);
}

brim_status brim__budget_charge_block(brim_budget *budget, uint64_t bytes, bool elastic) {
    if (!elastic) {
        return charge(budget, BRIM_MEMORY_HOST, BRIM__FIRM, bytes, true);
    }
    const brim_status status = brim__budget_usable(budget, BRIM_MEMORY_HOST);
    if (status != BRIM_OK) {
        return status;
    }
    const bool fits = brim__add_if_free(&(struct brim__request){ .at = budget,
                                                                 .kind = BRIM_MEMORY_HOST,
                                                                 .column = BRIM__ELASTIC,
                                                                 .bytes = bytes,
                                                                 .block = true });
    return fits ? BRIM_OK : BRIM_STATUS_BUDGET;
}

void brim__budget_uncharge_block(brim_budget *budget, uint64_t bytes, bool elastic) {
    if (brim__budget_forked(budget)) {
        return;
    }
    struct brim__tree *tree = budget->tree;
    brim__lock(&tree->lock);
    const enum brim__column column = elastic ? BRIM__ELASTIC : BRIM__FIRM;
    assert(bytes <= *brim__own_blocks(budget, column));
    brim__subtract(budget, BRIM_MEMORY_HOST, column, bytes);
    *brim__own_blocks(budget, column) -= bytes;
    const bool dead = bury_if_dead(budget);
    brim__unlock(&tree->lock);
    if (dead) {
        destroy(budget);
    }
}

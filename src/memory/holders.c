/*
 * holders.c: reading the tree of budgets: walking it, its numbers, the free memory, the list of
 * holders, and checking it.
 *
 * Holders are listed by the bytes that each node holds itself: its own charges and reservations and
 * the unused part of its minimum. These add up to the bytes in use at the top node, so the list in
 * a refusal accounts for every byte. The list needs no memory, because it searches for the next
 * largest holder each time. It ends when the text is full.
 */
#include "base/struct.h"
#include "memory/node.h"

#include <stdio.h>

brim_budget *brim__budget_after(const brim_budget *node, const brim_budget *top) {
    if (node->first != NULL) {
        return node->first;
    }
    for (; node != top; node = node->parent) {
        if (node->next != NULL) {
            return node->next;
        }
    }
    return NULL;
}

/* ------------------------------------------------------------ what is left */

/* The most that could be charged at `budget` if `used` (or `kept`) were all that is taken. The
 * unused part of its minimum needs nothing from its parent. */
uint64_t brim__budget_left(const brim_budget *node, brim_memory kind, uint64_t taken,
                           bool elastic) {
    const struct brim__shared *shared = &node->tree->shared;
    uint64_t left = node->counts[kind].limit - taken;
    if (node->parent == NULL && shared->segment != NULL) {
        left = brim__min(left, brim__shared_left(shared, kind, taken, elastic));
    }
    return left;
}

static uint64_t room(const brim_budget *budget, brim_memory kind, bool kept) {
    uint64_t left[BRIM__MOST_LEVELS];
    uint64_t aside[BRIM__MOST_LEVELS];
    size_t levels = 0;
    for (const brim_budget *node = budget; node != NULL; node = node->parent, levels++) {
        const struct brim__count *count = &node->counts[kind];
        const uint64_t taken = kept ? count->kept : count->used;
        left[levels] = brim__budget_left(node, kind, taken, !kept);
        aside[levels] = brim__counted(count, taken) - taken;
    }
    uint64_t most = left[levels - 1];
    for (size_t i = levels - 1; i-- > 0;) {
        if (brim__add_overflows(most, aside[i], &most)) {
            most = UINT64_MAX;
        }
        most = brim__min(most, left[i]);
    }
    return most;
}

static uint64_t locked_room(brim_budget *budget, brim_memory kind, bool kept) {
    if (brim__budget_forked(budget)) {
        return 0;
    }
    if (kept && budget->tree->shared.segment != NULL) { /* what the dead have can be had too */
        brim__shared_reap(&budget->tree->shared, brim__now() + BRIM__SOON_NS);
    }
    brim__lock(&budget->tree->lock);
    const uint64_t most = room(budget, kind, kept);
    brim__unlock(&budget->tree->lock);
    return most;
}

uint64_t brim__budget_available(brim_budget *budget, brim_memory kind) {
    return locked_room(budget, kind, true);
}

uint64_t brim__budget_free_now(brim_budget *budget, brim_memory kind) {
    return locked_room(budget, kind, false);
}

uint64_t brim__budget_used(brim_budget *budget, brim_memory kind) {
    if (brim__budget_forked(budget)) {
        return 0;
    }
    brim__lock(&budget->tree->lock);
    const uint64_t used = budget->counts[kind].used;
    brim__unlock(&budget->tree->lock);
    return used;
}

uint64_t brim__budget_limit(brim_budget *budget, brim_memory kind) {
    uint64_t limit = BRIM_UNLIMITED;
    if (brim__budget_forked(budget)) {
        return 0;
    }
    brim__lock(&budget->tree->lock);
    for (const brim_budget *node = budget; node != NULL; node = node->parent) {
        limit = brim__min(limit, node->counts[kind].limit);
    }
    if (budget->tree->shared.segment != NULL) {
        limit = brim__min(limit, budget->tree->shared.limits[kind]);
    }
    brim__unlock(&budget->tree->lock);
    return limit;
}

brim_budget *brim__budget_tightest(brim_budget *budget, brim_memory kind) {
    brim_budget *tightest = budget;
    if (brim__budget_forked(budget)) {
        return budget;
    }
    brim__lock(&budget->tree->lock);
    uint64_t least = brim__budget_left(budget, kind, budget->counts[kind].kept, false);
    for (brim_budget *node = budget->parent; node != NULL; node = node->parent) {
        const uint64_t left = brim__budget_left(node, kind, node->counts[kind].kept, false);
        if (left < least) {
            tightest = node;
            least = left;
        }
    }
    brim__unlock(&budget->tree->lock);
    return tightest;
}

bool brim__budget_is_below(brim_budget *budget, const brim_budget *root) {
    const brim_budget *node = budget;
    while (node != NULL && node != root) {
        node = node->parent;
    }
    return node != NULL;
}

bool brim__budget_sharing(brim_budget *budget, brim_memory kind, struct brim__sharing *sharing) {
    struct brim__tree *tree = budget->tree;
    if (brim__budget_forked(budget) || tree->shared.segment == NULL) {
        return false;
    }
    brim__lock(&tree->lock);
    uint64_t used;
    if (brim__add_overflows(tree->shared.claimed[kind], brim__shared_others(&tree->shared, kind),
                            &used)) {
        used = UINT64_MAX;
    }
    *sharing = (struct brim__sharing){ .limit = tree->shared.limits[kind],
                                       .used = used,
                                       .processes = brim__shared_processes(&tree->shared) };
    brim__unlock(&tree->lock);
    return true;
}

/* -------------------------------------------------------- lists of holders */

static uint64_t held(const brim_budget *node, brim_memory kind) {
    const struct brim__count *count = &node->counts[kind];
    return count->firm + count->elastic + count->reserved + brim__counted(count, count->used) -
           count->used;
}

/* The holder that was found last: its bytes, and its place among equals. */
struct holder {
    const brim_budget *node;
    uint64_t bytes, place;
    uint32_t left; /* holders from this one on */
};

static const struct holder before_all = { .bytes = UINT64_MAX, .place = UINT64_MAX };

/* The next largest one; false: there is none. */
static bool find_holder(const brim_budget *top, brim_memory kind, struct holder *holder) {
    struct holder found = { 0 };
    uint64_t place = 0;
    for (const brim_budget *node = top; node != NULL;
         node = brim__budget_after(node, top), place++) {
        const uint64_t here = held(node, kind);
        if (here == 0 || here > holder->bytes ||
            (here == holder->bytes && place <= holder->place)) {
            continue;
        }
        const uint32_t left = found.left + 1;
        if (here > found.bytes) {
            found = (struct holder){ .node = node, .bytes = here, .place = place };
        }
        found.left = left;
    }
    *holder = found;
    return found.node != NULL;
}

/* Lists the holders below and at `top`, largest first: as text, as many as fit, and in `lack`
 * unless that is NULL. */
static void list_holders(const brim_budget *top, brim_memory kind, char *text, size_t bytes,
                         struct brim__lack *lack) {
    struct holder holder = before_all;
    size_t at = 0;
    bool fits = true;
    text[0] = '\0';
    while ((fits || lack != NULL) && find_holder(top, kind, &holder)) {
        char entry[BRIM_NAME_BYTES + BRIM__SIZE_TEXT + 4];
        char size[BRIM__SIZE_TEXT];
        snprintf(entry, sizeof entry, "%s %s", holder.node->label,
                 brim__size_text(holder.bytes, size));
        fits = fits && brim__list_add(text, bytes, &at, entry, holder.left);
        if (lack != NULL) {
            brim__lack_holder(lack, holder.node->label, holder.bytes);
            lack = lack->holder_count < BRIM_MAX_HOLDERS ? lack : NULL;
        }
    }
}

/* Processes, and the holders in this one; the former get two thirds of the text. */
static void list_processes(const brim_budget *root, brim_memory kind, char *text, size_t bytes,
                           struct brim__lack *lack) {
    static const char between[] = "; in this process ";
    brim__shared_list(&root->tree->shared, kind, text, bytes / 3 * 2, lack);
    const size_t at = strlen(text) + strlen(between);
    if (root->counts[kind].used > 0 && at < bytes) {
        list_holders(root, kind, text + at, bytes - at, NULL);
        if (text[at] != '\0') {
            memcpy(text + at - strlen(between), between, strlen(between));
        }
    }
}

/* The numbering of devices is brim_device_memory's. */
const char *brim__memory_text(brim_memory kind, char text[BRIM__MEMORY_TEXT]) {
    static const char *const devices[] = { "cuda", "opencl" };
    if (kind == BRIM_MEMORY_HOST) {
        text[0] = '\0';
    } else if (kind == BRIM_MEMORY_PINNED) {
        snprintf(text, BRIM__MEMORY_TEXT, " of page-locked memory");
    } else {
        const unsigned number = (unsigned)kind - BRIM_MEMORY_DEVICE;
        assert(number / BRIM_MAX_DEVICES < BRIM__COUNT(devices));
        snprintf(text, BRIM__MEMORY_TEXT, " on %s:%u", devices[number / BRIM_MAX_DEVICES],
                 number % BRIM_MAX_DEVICES);
    }
    return text;
}

/* Explains a refusal by the shared budget. */
static void explain_shared(const struct brim__request *request, const struct brim__refusal *refusal,
                           char text[BRIM__DETAIL_BYTES], struct brim__lack *lack) {
    const brim_budget *root = refusal->by;
    const struct brim__shared *shared = &root->tree->shared;
    char holders[480];
    char limit[BRIM__SIZE_TEXT];
    char asked[BRIM__SIZE_TEXT];
    char used_text[BRIM__SIZE_TEXT];
    char of_kind[BRIM__MEMORY_TEXT];
    if (refusal->why != BRIM__CLAIM_FULL) {
        lack->blocked = true;
        brim__shared_explain(shared, refusal->why, text);
        return;
    }
    uint64_t used;
    uint64_t needed;
    if (brim__add_overflows(brim__shared_others(shared, request->kind),
                            root->counts[request->kind].used, &used)) {
        used = UINT64_MAX;
    }
    if (brim__add_overflows(used, refusal->passed, &needed)) {
        needed = UINT64_MAX;
    }
    list_processes(root, request->kind, holders, sizeof holders, lack);
    snprintf(text, BRIM__DETAIL_BYTES,
             "shared budget \"%s\" (limit %s%s) refused %s for \"%s\": %s is in use; held by "
             "%s; " BRIM__SHARED_ADVICE,
             shared->name, brim__size_text(shared->limits[request->kind], limit),
             brim__memory_text(request->kind, of_kind), brim__size_text(request->bytes, asked),
             request->who, brim__size_text(used, used_text), holders, (unsigned long long)needed);
}

/* Records the smallest limit, of the budget that refused, with which the request would fit now. */
static void note_minimum(brim_memory kind, uint64_t needed, struct brim__lack *lack) {
    if (kind == BRIM_MEMORY_HOST) {
        lack->minimum_bytes = needed;
    } else if (kind == BRIM_MEMORY_PINNED) {
        lack->minimum_pinned_bytes = needed;
    } else {
        lack->minimum_device_bytes = needed;
    }
}

void brim__budget_explain(const struct brim__request *request, const struct brim__refusal *refusal,
                          char text[BRIM__DETAIL_BYTES], struct brim__lack *lack) {
    lack->kind = request->kind;
    lack->wanted = request->bytes;
    if (request->kind == BRIM_MEMORY_HOST && request->column != BRIM__BOUNDS &&
        brim__add_overflows(request->at->counts[request->kind].used, request->bytes,
                            &lack->needed)) {
        lack->needed = UINT64_MAX;
    }
    if (refusal->why != BRIM__CLAIMED) {
        explain_shared(request, refusal, text, lack);
        return;
    }
    const brim_budget *by = refusal->by;
    const struct brim__count *count = &by->counts[request->kind];
    char holders[560];
    char limit[BRIM__SIZE_TEXT];
    char asked[BRIM__SIZE_TEXT];
    char used[BRIM__SIZE_TEXT];
    char needed_text[BRIM__SIZE_TEXT];
    char of_kind[BRIM__MEMORY_TEXT];
    uint64_t needed;
    if (brim__add_overflows(count->used, refusal->passed, &needed)) {
        needed = UINT64_MAX;
    }
    list_holders(by, request->kind, holders, sizeof holders, lack);
    note_minimum(request->kind, needed, lack);
    brim__memory_text(request->kind, of_kind);
    brim__size_text(count->used, used);
    if (refusal->passed == 0) { /* a limit below what is in use */
        snprintf(text, BRIM__DETAIL_BYTES,
                 "budget \"%s\" cannot be limited to %s%s: %s (%llu bytes) is in use; held by %s; "
                 "close one of them or choose a higher limit",
                 by->label, brim__size_text(request->limit, limit), of_kind, used,
                 (unsigned long long)count->used, holders);
        return;
    }
    snprintf(text, BRIM__DETAIL_BYTES,
             "budget \"%s\" (limit %s%s) refused %s for \"%s\": %s is in use%s%s; raise the limit "
             "to at least %s (%llu bytes)%s",
             by->label, brim__size_text(count->limit, limit), of_kind,
             brim__size_text(request->bytes, asked), request->who, used,
             holders[0] ? "; held by " : "", holders, brim__size_text(needed, needed_text),
             (unsigned long long)needed, holders[0] ? " or close one of them" : "");
}

void brim__budget_holders(brim_budget *budget, brim_memory kind, char *text, size_t bytes,
                          struct brim__lack *lack) {
    text[0] = '\0';
    if (brim__budget_forked(budget)) {
        return;
    }
    brim__lock(&budget->tree->lock);
    const struct brim__count *count = &budget->counts[kind];
    if (brim__budget_left(budget, kind, count->kept, false) < count->limit - count->kept) {
        list_processes(budget, kind, text, bytes, lack);
    } else {
        list_holders(budget, kind, text, bytes, lack);
    }
    brim__unlock(&budget->tree->lock);
}

static brim_budget_info describe(const brim_budget *node, brim_memory kind) {
    const struct brim__count *count = &node->counts[kind];
    brim_budget_info info = BRIM_BUDGET_INFO_INIT;
    brim__copy_text(info.label, sizeof info.label, node->label);
    info.limit = count->limit;
    info.minimum = count->minimum;
    info.charged = count->sum_charged;
    info.reserved = count->sum_reserved;
    info.elastic = count->sum_elastic;
    info.peak = count->peak;
    info.depth = node->depth;
    return info;
}

brim_status brim_budget_read(brim_budget *budget, brim_memory kind, brim_budget_info *info) {
    brim_status status = brim__budget_usable(budget, kind);
    if (status == BRIM_OK) {
        status = brim__struct_check("budget info", "BRIM_BUDGET_INFO_INIT", info);
    }
    if (status != BRIM_OK) {
        return status;
    }
    brim__lock(&budget->tree->lock);
    const brim_budget_info whole = describe(budget, kind);
    brim__unlock(&budget->tree->lock);
    brim__struct_give(info, &whole, sizeof whole);
    return BRIM_OK;
}

brim_status brim_budget_walk(brim_budget *budget, brim_memory kind, brim_budget_visit *visit,
                             void *user) {
    const brim_status status = brim__budget_usable(budget, kind);
    if (status != BRIM_OK) {
        return status;
    }
    if (visit == NULL) {
        return brim__fail(BRIM_STATUS_INVALID, "visit is NULL");
    }
    brim__lock(&budget->tree->lock);
    for (const brim_budget *node = budget; node != NULL; node = brim__budget_after(node, budget)) {
        const brim_budget_info info = describe(node, kind);
        if (visit(user, &info) != 0) {
            break;
        }
    }
    brim__unlock(&budget->tree->lock);
    return BRIM_OK;
}

static bool is_right(const brim_budget *node, size_t kind) {
    const struct brim__count *count = &node->counts[kind];
    uint64_t used = count->firm + count->elastic + count->reserved;
    uint64_t kept = count->firm + count->reserved;
    uint64_t charged = count->firm + count->elastic;
    uint64_t elastic = count->elastic;
    uint64_t reserved = count->reserved;
    for (const brim_budget *child = node->first; child != NULL; child = child->next) {
        const struct brim__count *below = &child->counts[kind];
        used += brim__counted(below, below->used);
        kept += brim__counted(below, below->kept);
        charged += below->sum_charged;
        elastic += below->sum_elastic;
        reserved += below->sum_reserved;
        if (child->parent != node || child->depth != node->depth + 1) {
            return false;
        }
    }
    return used == count->used && kept == count->kept && charged == count->sum_charged &&
           elastic == count->sum_elastic && reserved == count->sum_reserved &&
           count->used <= count->limit && count->peak >= charged + reserved &&
           (kind != BRIM_MEMORY_HOST ||
            (count->firm >= node->blocks && count->elastic >= node->elastic_blocks));
}

void brim__budget_check(brim_budget *budget) {
    bool right = true;
    brim__lock(&budget->tree->lock);
    for (const brim_budget *node = budget; node != NULL; node = brim__budget_after(node, budget)) {
        for (size_t kind = 0; kind < BRIM_MEMORY_KINDS; kind++) {
            right = right && is_right(node, kind);
        }
    }
    const struct brim__tree *tree = budget->tree;
    for (size_t kind = 0; kind < BRIM_MEMORY_KINDS && tree->shared.segment != NULL; kind++) {
        const uint64_t claimed = tree->shared.claimed[kind];
        const uint64_t used = tree->root.counts[kind].used;
        right = right && (tree->collecting ? claimed >= used : claimed == used);
    }
    brim__unlock(&budget->tree->lock);
    assert(right);
    (void)right;
}

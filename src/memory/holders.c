/*
 * holders.c: looking at the tree of budgets: walking it, reading it, saying who
 * holds what, and checking it.
 *
 * Holders are listed by what each node holds itself: its own charges and
 * reservations and the unused part of its minimum. These add up to what the
 * node at the top has in use, so a refusal's list accounts for every byte.
 * The list is made without memory, by looking for the next largest again and
 * again; it ends where the text does.
 */
#include "memory/node.h"

#include <stdio.h>

brim_budget *brim__budget_after(const brim_budget *node, const brim_budget *top) {
    if (node->first) {
        return node->first;
    }
    for (; node != top; node = node->parent) {
        if (node->next) {
            return node->next;
        }
    }
    return NULL;
}

static uint64_t held(const brim_budget *node, brim_memory kind) {
    const struct brim__count *count = &node->counts[kind];
    return count->firm + count->elastic + count->reserved + brim__counted(count, count->used) -
           count->used;
}

void brim__budget_list(const brim_budget *top, brim_memory kind, char *text, size_t bytes) {
    const size_t tail = sizeof ", and 4294967295 more";
    size_t at = 0;
    text[0] = '\0';
    /* The last one written: its bytes, and its place among equals. */
    uint64_t last_bytes = UINT64_MAX;
    uint64_t last_place = UINT64_MAX;
    for (;;) {
        const brim_budget *largest = NULL;
        uint64_t largest_bytes = 0;
        uint64_t largest_place = 0;
        uint64_t place = 0;
        uint32_t left = 0;
        for (const brim_budget *node = top; node; node = brim__budget_after(node, top), place++) {
            const uint64_t here = held(node, kind);
            if (here == 0 || here > last_bytes || (here == last_bytes && place <= last_place)) {
                continue;
            }
            left++;
            if (here > largest_bytes) {
                largest = node;
                largest_bytes = here;
                largest_place = place;
            }
        }
        if (!largest) {
            return;
        }
        char entry[BRIM_NAME_BYTES + BRIM__SIZE_TEXT + 4];
        char size[BRIM__SIZE_TEXT];
        const int length = snprintf(entry, sizeof entry, "%s%s %s", at ? ", " : "", largest->label,
                                    brim__size_text(largest_bytes, size));
        const bool fits = at + (size_t)length + (left > 1 ? tail : 1) <= bytes;
        if (!fits) {
            if (at > 0 && at + tail <= bytes) {
                snprintf(text + at, bytes - at, ", and %u more", left);
            }
            return;
        }
        memcpy(text + at, entry, (size_t)length + 1);
        at += (size_t)length;
        last_bytes = largest_bytes;
        last_place = largest_place;
    }
}

static const char *kind_text(brim_memory kind, char text[32]) {
    if (kind == BRIM_HOST) {
        text[0] = '\0';
    } else if (kind == BRIM_PINNED) {
        snprintf(text, 32, " of page-locked memory");
    } else {
        snprintf(text, 32, " on device %u", (unsigned)(kind - BRIM_DEVICE));
    }
    return text;
}

void brim__budget_explain(const brim_budget *refuser, brim_memory kind, uint64_t bytes,
                          uint64_t passed, const char *who, char text[BRIM__DETAIL_BYTES]) {
    const struct brim__count *count = &refuser->counts[kind];
    char holders[560];
    char limit[BRIM__SIZE_TEXT];
    char asked[BRIM__SIZE_TEXT];
    char used[BRIM__SIZE_TEXT];
    char needed_text[BRIM__SIZE_TEXT];
    char of_kind[32];
    uint64_t needed;
    if (brim__add_overflows(count->used, passed, &needed)) {
        needed = UINT64_MAX;
    }
    brim__budget_list(refuser, kind, holders, sizeof holders);
    snprintf(text, BRIM__DETAIL_BYTES,
             "budget \"%s\" (limit %s%s) refused %s for \"%s\": %s is in use%s%s; raise the limit "
             "to at least %s (%llu bytes)%s",
             refuser->label, brim__size_text(count->limit, limit), kind_text(kind, of_kind),
             brim__size_text(bytes, asked), who, brim__size_text(count->used, used),
             holders[0] ? "; held by " : "", holders, brim__size_text(needed, needed_text),
             (unsigned long long)needed, holders[0] ? " or close one of them" : "");
}

void brim__budget_holders(brim_budget *budget, char *text, size_t bytes) {
    text[0] = '\0';
    if (brim__budget_forked(budget)) {
        return;
    }
    brim__lock(&budget->tree->lock);
    brim__budget_list(budget, BRIM_HOST, text, bytes);
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
    const brim_status status = brim__budget_usable(budget, kind);
    if (status) {
        return status;
    }
    if (!info || info->size < sizeof info->size) {
        return brim__fail(BRIM_INVALID,
                          "info is NULL or its size is not set; use BRIM_BUDGET_INFO_INIT");
    }
    const size_t size = info->size; /* of an older or a newer header */
    brim__lock(&budget->tree->lock);
    const brim_budget_info whole = describe(budget, kind);
    brim__unlock(&budget->tree->lock);
    memcpy(info, &whole, brim__min(size, sizeof whole));
    info->size = size;
    return BRIM_OK;
}

brim_status brim_budget_walk(brim_budget *budget, brim_memory kind, brim_budget_visit *visit,
                             void *user) {
    const brim_status status = brim__budget_usable(budget, kind);
    if (status) {
        return status;
    }
    if (!visit) {
        return brim__fail(BRIM_INVALID, "visit is NULL");
    }
    brim__lock(&budget->tree->lock);
    for (const brim_budget *node = budget; node; node = brim__budget_after(node, budget)) {
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
    for (const brim_budget *child = node->first; child; child = child->next) {
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
           (kind != BRIM_HOST ||
            (count->firm >= node->blocks && count->elastic >= node->elastic_blocks));
}

void brim__budget_check(brim_budget *budget) {
    bool right = true;
    brim__lock(&budget->tree->lock);
    for (const brim_budget *node = budget; node; node = brim__budget_after(node, budget)) {
        for (size_t kind = 0; kind < BRIM_MEMORY_KINDS; kind++) {
            right = right && is_right(node, kind);
        }
    }
    brim__unlock(&budget->tree->lock);
    assert(right);
    (void)right;
}

/*
 * folder_links.c: directories that links reach again and again.
 *
 * A link to a directory on its own path is no problem: it is left out. But the number of paths
 * through directories that link to each other grows with the number of their orders: seven such
 * directories have 13,699 paths, each of which ends. So every directory that a link leads to is
 * remembered, with its class, and links that lead to one of them again are counted. The count may
 * reach the number of directories that are not reached through such links, and AGAIN_FREE more.
 * Intended uses, such as one directory that many others link to, stay below that.
 *
 * The table has hashes, at least 16 bytes for each directory that links lead to, and nothing for
 * others.
 */
#include "source/listing.h"

#define ROOM_LEAST 512
#define AGAIN_FREE 1000 /* repeated links that are allowed for any number of directories */

static uint64_t *entry_of(uint64_t *seen, uint64_t room, uint64_t hash) {
    uint64_t at = hash & (room - 1);
    while (seen[at] != 0 && seen[at] != hash) {
        at = (at + 1) & (room - 1);
    }
    return &seen[at];
}

static brim_status grow(struct brim__links *links, brim_budget *budget) {
    brim_status status;
    const uint64_t room = links->room == 0 ? ROOM_LEAST : 2 * links->room;
    uint64_t *seen = brim__alloc(budget, room * sizeof *seen, &status);
    if (seen == NULL) {
        return brim__fail_within(status, "remembering %llu links to directories",
                                 (unsigned long long)links->count);
    }
    for (uint64_t i = 0; i < links->room; i++) {
        if (links->seen[i] != 0) {
            *entry_of(seen, room, links->seen[i]) = links->seen[i];
        }
    }
    brim__free(links->seen);
    links->seen = seen;
    links->room = room;
    return BRIM_OK;
}

/* Puts the hash into the table. *known: it was there already. */
static brim_status remember(struct brim__links *links, uint64_t hash, brim_budget *budget,
                            bool *known) {
    brim_status status = links->count < links->room / 2 ? BRIM_OK : grow(links, budget);
    if (status == BRIM_OK) {
        uint64_t *entry = entry_of(links->seen, links->room, hash);
        *known = *entry == hash;
        links->count += !*known;
        *entry = hash;
    }
    return status;
}

brim_status brim__links_enter(struct brim__links *links, const struct brim__entry *entry,
                              uint64_t class_key, bool below, const char *root, brim_budget *budget,
                              bool *again) {
    bool known = false;
    if (entry->link) {
        const uint64_t hash = brim__hash_words(entry->facts.device, entry->facts.inode, class_key);
        const brim_status status = remember(links, hash == 0 ? 1 : hash, budget, &known);
        if (status != BRIM_OK) {
            return status;
        }
    }
    *again = below || known;
    links->again += known;
    links->once += !*again;
    if (links->again > AGAIN_FREE + links->once) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "%s: links lead to the same directories again and again: %llu links "
                          "(the last one: %.100s) for %llu directories; remove such links, or give "
                          "links=no to follow none",
                          root, (unsigned long long)links->again, entry->name,
                          (unsigned long long)links->once);
    }
    return BRIM_OK;
}

void brim__links_fini(struct brim__links *links) {
    brim__free(links->seen);
    *links = (struct brim__links){ 0 };
}

/*
 * alloc.h: the only access to malloc, to anonymous maps and to memory files.
 *
 * All memory is charged to a budget before the system is asked for it. Each block records its
 * budget, and is uncharged there when it is freed. budget NULL: not counted; only for objects that
 * exist before any budget does (pipelines, whose size is bounded by their text, and the runtime
 * object).
 */
#ifndef BRIM_ALLOC_H
#define BRIM_ALLOC_H

#include "memory/budget.h"

/* Zeroed, aligned to 64 bytes. NULL with the thread's detail set (BRIM_STATUS_BUDGET
 * or BRIM_STATUS_MEMORY through *status, which may be NULL). */
void *brim__alloc(brim_budget *budget, uint64_t bytes, brim_status *status);
void brim__free(void *memory);
/* What brim__alloc charges for `bytes`; UINT64_MAX if that does not fit. */
uint64_t brim__alloc_bytes(uint64_t bytes);

/* Pages that are mapped separately, so that freeing them returns them to the system at once. After
 * brim_keep_addresses, empty pages stay in their place. */
struct brim__pages {
    uint8_t *memory; /* NULL: none */
    size_t bytes;    /* charged: whole pages, the guard not counted */
    size_t guard;    /* bytes of inaccessible pages in front */
    brim_budget *budget;
    bool elastic;
    int file;        /* of shared pages */
    uint64_t number; /* of shared pages; 0: private */
};
/* Firm pages can revoke elastic memory, and a refusal has a text. Elastic pages are taken only if
 * they are free, and a refusal is BRIM_STATUS_BUDGET without a text. guard: one inaccessible page
 * below (stacks). */
brim_status brim__pages_new(struct brim__pages *pages, brim_budget *budget, uint64_t bytes,
                            bool elastic, bool guard);
/* The same in a separate memory file, which other processes can map. Once the pages are freed, an
 * access to them raises SIGBUS in these processes. */
brim_status brim__pages_new_shared(struct brim__pages *pages, brim_budget *budget, uint64_t bytes,
                                   bool elastic);
/* How other processes find the pages. Private pages, or none, have no region. */
brim_region brim__pages_region(const struct brim__pages *pages);
void brim__pages_free(struct brim__pages *pages); /* harmless twice */
/* Makes the system allocate all of the pages now, which costs less than one at a time. */
void brim__pages_populate(const struct brim__pages *pages);

/* A bump allocator for what lives as long as one object. Takes whole pages
 * from its budget as it grows, firmly. */
struct brim__arena {
    brim_budget *budget;
    struct brim__arena_block *blocks; /* newest first */
    uint64_t bytes;                   /* charged so far */
    uint64_t taken;                   /* of these, without what is left of the blocks */
};
void brim__arena_init(struct brim__arena *arena, brim_budget *budget);
void brim__arena_fini(struct brim__arena *arena);
/* Zeroed, aligned to 16 bytes (64 for 64 bytes and more). */
brim_status brim__arena_take(struct brim__arena *arena, uint64_t bytes, void *memory_out);
brim_status brim__arena_text(struct brim__arena *arena, const char *text, const char **copy);

#endif

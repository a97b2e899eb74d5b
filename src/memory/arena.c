/*
 * arena.c: a bump allocator over whole pages.
 *
 *     blocks ─► | block | taken ... | free |  ─►  | block | taken ......... |
 *
 * The first block is one page, later ones are four, and a request that does not fit such a block
 * gets one of its own size. So the charge of an arena depends only on the requests, and a plan can
 * predict it by making the same requests. The block with the most room stays first.
 */
#include "base/platform.h"
#include "memory/alloc.h"

#define LATER_PAGES 4

struct brim__arena_block {
    struct brim__arena_block *next;
    struct brim__pages pages; /* this struct is in them */
    size_t taken;             /* bytes, this struct among them */
};

void brim__arena_init(struct brim__arena *arena, brim_budget *budget) {
    *arena = (struct brim__arena){ .budget = budget };
}

void brim__arena_fini(struct brim__arena *arena) {
    struct brim__arena_block *block = arena->blocks;
    while (block != NULL) {
        struct brim__arena_block *next = block->next;
        struct brim__pages pages = block->pages;
        brim__pages_free(&pages);
        block = next;
    }
    arena->blocks = NULL;
    arena->bytes = arena->taken = 0;
}

static size_t room(const struct brim__arena_block *block) {
    return block->pages.bytes - block->taken;
}

/* Bytes between the taken ones of the block and the next aligned address. Blocks begin at a
 * page. */
static size_t gap(const struct brim__arena_block *block, size_t alignment) {
    return brim__align(block->taken, alignment) - block->taken;
}

static brim_status add_block(struct brim__arena *arena, uint64_t bytes, size_t alignment,
                             struct brim__arena_block **added) {
    const size_t page = brim__page_bytes();
    uint64_t needed;
    if (brim__add_overflows(brim__align(sizeof(struct brim__arena_block), alignment), bytes,
                            &needed)) {
        needed = UINT64_MAX; /* refused below, with this size */
    }
    const uint64_t usual = arena->blocks != NULL ? LATER_PAGES * page : page;
    struct brim__pages pages;
    const brim_status status =
        brim__pages_new(&pages, arena->budget, brim__max(needed, usual), false, false);
    if (status != BRIM_OK) {
        return status;
    }
    struct brim__arena_block *block = (struct brim__arena_block *)pages.memory;
    block->pages = pages;
    block->taken = sizeof *block;
    arena->bytes += pages.bytes;
    struct brim__arena_block *front = arena->blocks;
    if (front != NULL && room(front) > room(block) - gap(block, alignment) - bytes) {
        block->next = front->next;
        front->next = block;
    } else {
        block->next = front;
        arena->blocks = block;
    }
    *added = block;
    return BRIM_OK;
}

brim_status brim__arena_take(struct brim__arena *arena, uint64_t bytes, void *memory_out) {
    const size_t alignment = bytes >= 64 ? 64 : 16;
    struct brim__arena_block *block = arena->blocks;
    bytes = brim__max(bytes, 1); /* every request gets a different address */
    if (block == NULL || room(block) < gap(block, alignment) ||
        room(block) - gap(block, alignment) < bytes) {
        const brim_status status = add_block(arena, bytes, alignment, &block);
        if (status != BRIM_OK) {
            return status;
        }
    }
    arena->taken += gap(block, alignment) + bytes;
    block->taken += gap(block, alignment);
    void *memory = (uint8_t *)block + block->taken;
    block->taken += bytes;
    memcpy(memory_out, &memory, sizeof memory); /* a pointer of the caller's own type */
    return BRIM_OK;
}

brim_status brim__arena_text(struct brim__arena *arena, const char *text, const char **copy) {
    const size_t bytes = strlen(text) + 1;
    char *memory;
    const brim_status status = brim__arena_take(arena, bytes, &memory);
    if (status != BRIM_OK) {
        return status;
    }
    memcpy(memory, text, bytes);
    *copy = memory;
    return BRIM_OK;
}

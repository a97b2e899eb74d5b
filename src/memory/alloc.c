/*
 * alloc.c: the only callers of malloc and of anonymous maps in the library.
 *
 * A block knows how much it has charged and where:
 *
 *     | header (64 bytes) | memory of the caller ...            |
 *       ^ aligned to 64     ^ aligned to 64
 *       |<------- charged: header + memory, to 16 bytes ------->|
 *
 * The charge comes first and is given back if the system refuses. Freeing goes
 * the other way round: the memory leaves before the charge does, so that the
 * charge is never below what is held.
 */
#include "memory/alloc.h"
#include "base/fault.h"
#include "base/platform.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

struct header {
    uint64_t charged;
    brim_budget *budget; /* NULL: not counted */
};

#define ALIGNMENT 64
static_assert(sizeof(struct header) <= ALIGNMENT, "the header has one alignment's room");

static brim_status refuse(uint64_t bytes, const brim_budget *budget, int error) {
    char size[BRIM__SIZE_TEXT];
    char why[BRIM__ERROR_TEXT];
    return brim__fail(BRIM_MEMORY, "the system refused %s (%llu bytes)%s: %s",
                      brim__size_text(bytes, size), (unsigned long long)bytes,
                      budget ? ", which the budget would have allowed" : "",
                      brim__error_text(error, why));
}

uint64_t brim__alloc_bytes(uint64_t bytes) {
    uint64_t total;
    return brim__add_overflows(bytes, ALIGNMENT + 15, &total) ? UINT64_MAX : total & ~UINT64_C(15);
}

static struct header *take(brim_budget *budget, uint64_t total, brim_status *status) {
    if (total > PTRDIFF_MAX) {
        *status = refuse(total, NULL, ENOMEM);
        return NULL;
    }
    *status = budget ? brim__budget_charge_block(budget, total, false) : BRIM_OK;
    if (*status) {
        return NULL;
    }
    void *memory = NULL;
    const int error =
        brim__fault(BRIM__FAULT_ALLOC) ? ENOMEM : posix_memalign(&memory, ALIGNMENT, total);
    if (error) {
        if (budget) {
            brim__budget_uncharge_block(budget, total, false);
        }
        *status = refuse(total, budget, error);
        return NULL;
    }
    memset(memory, 0, total);
    return memory;
}

void *brim__alloc(brim_budget *budget, uint64_t bytes, brim_status *status) {
    brim_status own_status;
    const uint64_t total = brim__alloc_bytes(bytes);
    struct header *header = take(budget, total, status ? status : &own_status);
    if (!header) {
        return NULL;
    }
    header->charged = total;
    header->budget = budget;
    return (uint8_t *)header + ALIGNMENT;
}

void brim__free(void *memory) {
    if (!memory) {
        return;
    }
    struct header *header = (struct header *)((uint8_t *)memory - ALIGNMENT);
    brim_budget *const budget = header->budget;
    const uint64_t charged = header->charged;
    free(header);
    if (budget) {
        brim__budget_uncharge_block(budget, charged, false);
    }
}

/* [guard page] + bytes, or MAP_FAILED with errno. */
static uint8_t *map(size_t bytes, size_t guard) {
    if (brim__fault(BRIM__FAULT_MAP)) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    uint8_t *memory =
        mmap(NULL, bytes + guard, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory != MAP_FAILED && guard > 0 && mprotect(memory, guard, PROT_NONE) != 0) {
        const int error = errno;
        munmap(memory, bytes + guard);
        errno = error;
        return MAP_FAILED;
    }
    return memory;
}

brim_status brim__pages_new(struct brim__pages *pages, brim_budget *budget, uint64_t bytes,
                            bool elastic, bool guard) {
    *pages = (struct brim__pages){ 0 };
    const size_t page = brim__page_bytes();
    if (bytes > PTRDIFF_MAX - 2 * page) {
        return refuse(bytes, NULL, ENOMEM);
    }
    const size_t whole = brim__align(brim__max(bytes, 1), page);
    const size_t guard_bytes = guard ? page : 0;
    if (budget) {
        const brim_status status = brim__budget_charge_block(budget, whole, elastic);
        if (status) {
            return status;
        }
    }
    uint8_t *memory = map(whole, guard_bytes);
    if (memory == MAP_FAILED) {
        const int error = errno;
        if (budget) {
            brim__budget_uncharge_block(budget, whole, elastic);
        }
        return refuse(whole, budget, error);
    }
    *pages = (struct brim__pages){ .memory = memory + guard_bytes,
                                   .bytes = whole,
                                   .guard = guard_bytes,
                                   .budget = budget,
                                   .elastic = elastic };
    return BRIM_OK;
}

void brim__pages_free(struct brim__pages *pages) {
    if (!pages->memory) {
        return;
    }
    munmap(pages->memory - pages->guard, pages->bytes + pages->guard);
    if (pages->budget) {
        brim__budget_uncharge_block(pages->budget, pages->bytes, pages->elastic);
    }
    *pages = (struct brim__pages){ 0 };
}

/*
 * alloc.c: the only callers of malloc, of anonymous maps and of memory files in the
 * library.
 *
 * A block knows how much it has charged and where:
 *
 *     | header (64 bytes) | memory of the caller ...            |
 *       ^ aligned to 64     ^ aligned to 64
 *       |<------- charged: header + memory, to 16 bytes ------->|
 *
 * The charge comes first and is returned if the system refuses. Freeing works in reverse: the
 * memory is freed before the charge is returned, so the charge is never less than the memory.
 *
 * Shared pages are a separate memory file and its map. The number that identifies them is never
 * used twice: a process that has mapped the file of a number may keep the map for as long as that
 * number is used.
 *
 * After brim_keep_addresses, freed pages are replaced by empty ones in one step, so that no other
 * map can get the addresses in between.
 */
#include "memory/alloc.h"
#include "base/fault.h"
#include "base/platform.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct header {
    uint64_t charged;
    brim_budget *budget; /* NULL: not counted */
};

#define ALIGNMENT  64
#define FILL_PIECE ((size_t)1 << 20)
static_assert(sizeof(struct header) <= ALIGNMENT, "the header has one alignment's room");

static brim_status refuse(uint64_t bytes, const brim_budget *budget, int error) {
    char size[BRIM__SIZE_TEXT];
    char why[BRIM__ERROR_TEXT];
    return brim__fail(BRIM_STATUS_MEMORY, "the system refused %s (%llu bytes)%s: %s",
                      brim__size_text(bytes, size), (unsigned long long)bytes,
                      budget != NULL ? ", which the budget would have allowed" : "",
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
    *status = budget != NULL ? brim__budget_charge_block(budget, total, false) : BRIM_OK;
    if (*status != BRIM_OK) {
        return NULL;
    }
    void *memory = NULL;
    const int error =
        brim__fault(BRIM__FAULT_ALLOC) ? ENOMEM : posix_memalign(&memory, ALIGNMENT, total);
    if (error) {
        if (budget != NULL) {
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
    struct header *header = take(budget, total, status != NULL ? status : &own_status);
    if (header == NULL) {
        return NULL;
    }
    header->charged = total;
    header->budget = budget;
    return (uint8_t *)header + ALIGNMENT;
}

void brim__free(void *memory) {
    if (memory == NULL) {
        return;
    }
    struct header *header = (struct header *)((uint8_t *)memory - ALIGNMENT);
    brim_budget *const budget = header->budget;
    const uint64_t charged = header->charged;
    free(header);
    if (budget != NULL) {
        brim__budget_uncharge_block(budget, charged, false);
    }
}

/* ------------------------------------------------------------------- pages */

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

/* Sets the length of the file and allocates all its pages now. The system grants a memory file any
 * length, even where it refuses private memory beyond its limit (vm.overcommit_memory=2). The first
 * access to a page that cannot be allocated would then kill this process, or a worker process, with
 * SIGBUS. The memory is no more than the budget was charged. It is allocated piece by piece,
 * because a signal undoes the piece in progress. */
static bool fill(int file, size_t bytes) {
    size_t done = 0;
    while (done < bytes) {
        const size_t piece = brim__min(bytes - done, FILL_PIECE);
        if (brim__fault(BRIM__FAULT_MAP)) {
            errno = ENOMEM;
            return false;
        }
        if (fallocate(file, 0, (off_t)done, (off_t)piece) == 0) {
            done += piece;
        } else if (errno != EINTR) {
            return false;
        }
    }
    return true;
}

/* A memory file of `bytes` in full and its map, or MAP_FAILED with errno. */
static uint8_t *map_file(size_t bytes, int *file) {
    if (brim__fault(BRIM__FAULT_MAP)) {
        errno = EMFILE;
        return MAP_FAILED;
    }
    *file = memfd_create("brim", MFD_CLOEXEC);
    if (*file < 0) {
        return MAP_FAILED;
    }
    void *memory = MAP_FAILED;
    if (fill(*file, bytes)) {
        if (brim__fault(BRIM__FAULT_MAP)) {
            errno = ENOMEM;
        } else {
            memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, *file, 0);
        }
    }
    if (memory == MAP_FAILED) {
        const int error = errno;
        close(*file); /* and with it all that it held */
        errno = error;
    }
    return memory;
}

static brim_status take_pages(struct brim__pages *pages, brim_budget *budget, uint64_t bytes,
                              bool elastic, bool guard, bool shared) {
    static atomic_uint_least64_t numbers; /* of shared pages so far */
    *pages = (struct brim__pages){ 0 };
    const size_t page = brim__page_bytes();
    if (bytes > PTRDIFF_MAX - 2 * page) {
        return refuse(bytes, NULL, ENOMEM);
    }
    const size_t whole = brim__align(brim__max(bytes, 1), page);
    const size_t guard_bytes = guard ? page : 0;
    if (budget != NULL) {
        const brim_status status = brim__budget_charge_block(budget, whole, elastic);
        if (status != BRIM_OK) {
            return status;
        }
    }
    int file = -1;
    uint8_t *memory = shared ? map_file(whole, &file) : map(whole, guard_bytes);
    if (memory == MAP_FAILED) {
        const int error = errno;
        if (budget != NULL) {
            brim__budget_uncharge_block(budget, whole, elastic);
        }
        const brim_status status = refuse(whole, budget, error);
        return shared ? brim__fail_within(status, "memory that other processes can map") : status;
    }
    *pages = (struct brim__pages){ .memory = memory + guard_bytes,
                                   .bytes = whole,
                                   .guard = guard_bytes,
                                   .budget = budget,
                                   .elastic = elastic,
                                   .file = file,
                                   .number = shared ? atomic_fetch_add(&numbers, 1) + 1 : 0 };
    return BRIM_OK;
}

brim_status brim__pages_new(struct brim__pages *pages, brim_budget *budget, uint64_t bytes,
                            bool elastic, bool guard) {
    return take_pages(pages, budget, bytes, elastic, guard, false);
}

brim_status brim__pages_new_shared(struct brim__pages *pages, brim_budget *budget, uint64_t bytes,
                                   bool elastic) {
    return take_pages(pages, budget, bytes, elastic, false, true);
}

brim_region brim__pages_region(const struct brim__pages *pages) {
    if (!pages->number) {
        return (brim_region){ .file = -1 };
    }
    return (brim_region){
        .memory = pages->memory, .bytes = pages->bytes, .number = pages->number, .file = pages->file
    };
}

static atomic_bool keep_addresses;

void brim_keep_addresses(void) {
    atomic_store(&keep_addresses, true);
}

/* Replaces pages by empty ones; false: they are unchanged. */
static bool empty(uint8_t *memory, size_t bytes) {
    return !brim__fault(BRIM__FAULT_MAP) &&
           mmap(memory, bytes, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) != MAP_FAILED;
}

void brim__pages_populate(const struct brim__pages *pages) {
#ifdef MADV_POPULATE_WRITE
    (void)madvise(pages->memory, pages->bytes, MADV_POPULATE_WRITE); /* older systems: not */
#else
    (void)pages;
#endif
}

void brim__pages_free(struct brim__pages *pages) {
    if (pages->memory == NULL) {
        return;
    }
    uint8_t *const memory = pages->memory - pages->guard;
    const size_t bytes = pages->bytes + pages->guard;
    if (!atomic_load(&keep_addresses) || !empty(memory, bytes)) {
        munmap(memory, bytes);
    }
    if (pages->number) { /* after the map, through which cut pages would be a SIGBUS */
        /* else they would stay for as long as any process maps them, charged to no budget */
        const int cut = ftruncate(pages->file, 0);
        assert(cut == 0);
        (void)cut;
        close(pages->file);
    }
    if (pages->budget != NULL) {
        brim__budget_uncharge_block(pages->budget, pages->bytes, pages->elastic);
    }
    *pages = (struct brim__pages){ 0 };
}

/*
 * memory_space.c: the memory tier's pages: counts threads inside, takes spare memory, and gives
 * way. memory_space.h describes how these work together.
 *
 * Memory is taken only if the headroom stays free, and only if it is free now: there is no waiting.
 * After a refusal or a revocation there are no requests for a while, because a request takes the
 * lock of the whole tree of budgets.
 */
#include "cache/memory_space.h"

#include <stdio.h>

#define PAUSE_NS UINT64_C(10000000)

/* An extent has room for 16 entries like its first, and at least the usual size, unless all missing
 * entries need less. If 16 entries would exceed the largest size, an entry gets its own extent. So
 * little memory is unused at the end of an extent. If less memory is free, an extent is smaller,
 * but not below the smallest size that is worth a map. */
#define EXTENT_ENTRIES  16
#define SMALLEST_EXTENT (UINT64_C(64) << 10)
#define USUAL_EXTENT    (UINT64_C(1) << 20)
#define LARGEST_EXTENT  (UINT64_C(4) << 20)

/* If not all entries will fit, and the table could grow to more than 1/16 of the memory, it grows
 * only to 1/4 of the extents. Otherwise each of a few entries among very many numbers could need
 * its own segment. */
#define TABLE_SHARE  16
#define SPARSE_SHARE 4

/* ------------------------------------------------------------------- inside */

struct brim__stripe *brim__space_stripe(struct brim__tier *tier) {
    static _Atomic unsigned threads; /* that came so far, in the process */
    static _Thread_local unsigned number;
    if (BRIM__UNLIKELY(number == 0)) {
        number = atomic_fetch_add_explicit(&threads, 1, memory_order_relaxed) + 1;
    }
    return &tier->stripe[number % BRIM__STRIPES];
}

_Atomic uint64_t *brim__space_enter(struct brim__tier *tier) {
    const unsigned phase = atomic_load_explicit(&tier->phase, memory_order_relaxed);
    _Atomic uint64_t *pin = &brim__space_stripe(tier)->inside[phase];
    atomic_fetch_add(pin, 1);
    return pin;
}

void brim__space_leave(_Atomic uint64_t *pin) {
    atomic_fetch_sub_explicit(pin, 1, memory_order_release);
}

/* Waits until all threads have left that may have loaded a pointer before the caller cleared it. */
static void wait_for_those_inside(struct brim__tier *tier) {
    for (int turn = 0; turn < 2; turn++) {
        const unsigned phase = atomic_fetch_xor(&tier->phase, 1);
        for (size_t i = 0; i < BRIM__STRIPES; i++) {
            while (atomic_load(&tier->stripe[i].inside[phase]) != 0) {
                brim__relax();
            }
        }
    }
}

/* ------------------------------------------------ taking memory; mutex held */

static uint64_t left_in(const struct brim__cache_extent *extent) {
    return extent != NULL ? extent->pages.bytes - extent->used : 0;
}

/* Keeps the extent with more room for the next entries. */
static void prefer(struct brim__tier *tier, struct brim__cache_extent *extent) {
    if (left_in(extent) > left_in(tier->current)) {
        tier->current = extent;
    }
    atomic_store_explicit(&tier->left, left_in(tier->current), memory_order_relaxed);
}

static void pause_taking(struct brim__tier *tier) {
    atomic_store_explicit(&tier->paused_until, brim__now() + PAUSE_NS, memory_order_relaxed);
}

static bool is_paused(struct brim__tier *tier) {
    return brim__now() < atomic_load_explicit(&tier->paused_until, memory_order_relaxed);
}

bool brim__space_is_full(struct brim__tier *tier, uint64_t stride) {
    return stride > atomic_load_explicit(&tier->left, memory_order_relaxed) && is_paused(tier);
}

static uint64_t segment_bytes(uint64_t count, uint64_t index) {
    const uint64_t rest = count - index * BRIM__SEGMENT_COUNT;
    return brim__align(offsetof(struct brim__cache_segment, kept) +
                           brim__min(rest, BRIM__SEGMENT_COUNT) * sizeof(brim__kept_pointer),
                       brim__page_bytes());
}

/* Bytes of an extent for this many entries. */
static uint64_t extent_bytes(uint64_t entries, uint64_t stride) {
    return brim__align(BRIM__FIRST_KEPT + entries * stride, brim__page_bytes());
}

/* The number of entries for which an extent is made if memory is free. */
static uint64_t extent_entries(const struct brim__tier *tier, uint64_t stride) {
    if (stride > LARGEST_EXTENT / EXTENT_ENTRIES) {
        return 1;
    }
    const uint64_t usual = brim__max(EXTENT_ENTRIES, USUAL_EXTENT / stride);
    return brim__max(1, brim__min(usual, tier->start.count - tier->filled));
}

/* The least bytes of an extent. */
static uint64_t least_extent(const struct brim__tier *tier, uint64_t stride) {
    return brim__min(extent_bytes(extent_entries(tier, stride), stride),
                     brim__max(extent_bytes(1, stride), SMALLEST_EXTENT));
}

/* Bytes that may be taken now, in whole pages. */
static uint64_t spare_bytes(struct brim__tier *tier) {
    const uint64_t held = tier->segment_bytes + tier->extent_bytes;
    return brim__min(brim__tier_spare(&tier->start), tier->start.limit - held) &
           ~((uint64_t)brim__page_bytes() - 1);
}

static bool take_segment(struct brim__tier *tier, uint64_t index, uint64_t bytes) {
    struct brim__pages pages;
    if (brim__pages_new(&pages, tier->start.budget, bytes, true, false) != BRIM_OK) {
        return false;
    }
    struct brim__cache_segment *segment = (struct brim__cache_segment *)(void *)pages.memory;
    segment->pages = pages;
    tier->segment_bytes += pages.bytes;
    atomic_store(&tier->segment[index], segment);
    return true;
}

/* Takes an extent of up to `most` bytes, in whole pages, with room for an entry of `stride`. */
static bool take_extent(struct brim__tier *tier, uint64_t stride, uint64_t most) {
    const uint64_t entries =
        brim__min(extent_entries(tier, stride), (most - BRIM__FIRST_KEPT) / stride);
    struct brim__pages pages;
    if (brim__pages_new(&pages, tier->start.budget, extent_bytes(entries, stride), true, false) !=
        BRIM_OK) {
        return false;
    }
    brim__pages_populate(&pages);
    struct brim__cache_extent *extent = (struct brim__cache_extent *)(void *)pages.memory;
    *extent = (struct brim__cache_extent){ .pages = pages,
                                           .next = tier->newest,
                                           .used = BRIM__FIRST_KEPT };
    tier->newest = extent;
    tier->extent_bytes += pages.bytes;
    return true;
}

/* Finds an extent with room for an entry, and makes sure that its number has a pointer. Takes the
 * missing memory for both, or for neither. NULL: there is no memory now. */
static struct brim__cache_extent *extent_for(struct brim__tier *tier, uint64_t number,
                                             uint64_t stride) {
    const uint64_t index = number / BRIM__SEGMENT_COUNT;
    const bool has_segment = atomic_load(&tier->segment[index]) != NULL;
    const bool has_extent = stride <= left_in(tier->current);
    if (has_segment && has_extent) {
        return tier->current;
    }
    const uint64_t segment = has_segment ? 0 : segment_bytes(tier->start.count, index);
    const bool too_early = tier->sparse && !has_segment && tier->segment_bytes > 0 &&
                           tier->segment_bytes + segment > tier->extent_bytes / SPARSE_SHARE;
    if (too_early || is_paused(tier)) {
        return NULL;
    }
    const uint64_t extent = has_extent ? 0 : least_extent(tier, stride);
    const uint64_t spare = spare_bytes(tier);
    if (segment + extent > spare || (!has_segment && !take_segment(tier, index, segment)) ||
        (!has_extent && !take_extent(tier, stride, spare - segment))) {
        pause_taking(tier);
        return NULL;
    }
    return has_extent ? tier->current : tier->newest;
}

struct brim__kept *brim__space_add(struct brim__tier *tier, uint64_t number, uint64_t stamp,
                                   uint64_t bytes) {
    const uint64_t stride = brim__space_stride(bytes);
    struct brim__cache_extent *extent = extent_for(tier, number, stride);
    if (extent == NULL) {
        return NULL;
    }
    struct brim__kept *kept = (struct brim__kept *)(void *)(extent->pages.memory + extent->used);
    *kept =
        (struct brim__kept){ .number = number, .bytes = bytes, .stamp = stamp, .extent = extent };
    extent->used += stride;
    prefer(tier, extent);
    return kept;
}

void brim__space_return(struct brim__tier *tier, const struct brim__kept *kept) {
    struct brim__cache_extent *extent = kept->extent;
    const uint64_t stride = brim__space_stride(kept->bytes);
    assert(!extent->dead);
    if ((const uint8_t *)kept + stride == extent->pages.memory + extent->used) {
        extent->used -= stride;
        prefer(tier, extent);
    }
}

/* -------------------------------------------------------------- giving back */

/* Mutex held: removes the newest extent, which is the least filled, from the list and its entries
 * from the table. NULL: there is none. */
static struct brim__cache_extent *unlink_newest(struct brim__tier *tier) {
    struct brim__cache_extent *extent = tier->newest;
    if (extent == NULL) {
        return NULL;
    }
    tier->newest = extent->next;
    extent->dead = true;
    if (tier->current == extent) {
        tier->current = NULL;
    }
    prefer(tier, tier->newest);
    for (uint64_t at = BRIM__FIRST_KEPT; at < extent->used;) {
        struct brim__kept *kept = (struct brim__kept *)(void *)(extent->pages.memory + at);
        brim__kept_pointer *pointer = brim__space_pointer(tier, kept->number);
        if (atomic_load(pointer) == kept) { /* else it was replaced, or is not committed */
            atomic_store(pointer, NULL);
            tier->filled--;
        }
        at += brim__space_stride(kept->bytes);
    }
    return extent;
}

/* Mutex held: removes all segments from the table. */
static struct brim__cache_segment *unlink_segments(struct brim__tier *tier) {
    struct brim__cache_segment *gone = NULL;
    for (uint64_t i = 0; i < tier->segment_count; i++) {
        struct brim__cache_segment *segment = atomic_load(&tier->segment[i]);
        if (segment != NULL) {
            atomic_store(&tier->segment[i], NULL);
            segment->next = gone;
            gone = segment;
        }
    }
    return gone;
}

/* These free memory that no thread can reach any more, and return its bytes. The record is copied
 * first, because it is in the pages. */
static uint64_t free_extents(struct brim__cache_extent *extent) {
    uint64_t bytes = 0;
    while (extent != NULL) {
        struct brim__pages pages = extent->pages;
        extent = extent->next;
        bytes += pages.bytes;
        brim__pages_free(&pages);
    }
    return bytes;
}

static uint64_t free_segments(struct brim__cache_segment *segment) {
    uint64_t bytes = 0;
    while (segment != NULL) {
        struct brim__pages pages = segment->pages;
        segment = segment->next;
        bytes += pages.bytes;
        brim__pages_free(&pages);
    }
    return bytes;
}

uint64_t brim__space_revoke(void *holder, brim_memory kind, uint64_t wanted, bool firmly) {
    (void)kind;   /* nothing else is elastic */
    (void)firmly; /* all of it is soon made again */
    struct brim__tier *tier = holder;
    struct brim__cache_extent *extents = NULL;
    struct brim__cache_segment *segments = NULL;
    bool more = true;
    /* The mutex is taken for each extent, so that no thread waits long for it. No extent can be
     * added meanwhile, because elastic charges are refused during a revocation. */
    for (uint64_t bytes = 0; more && bytes < wanted;) {
        brim__lock(&tier->mutex);
        struct brim__cache_extent *extent = unlink_newest(tier);
        if (extent != NULL) {
            bytes += extent->pages.bytes;
            extent->next = extents;
            extents = extent;
        } else {
            segments = unlink_segments(tier);
            more = false;
        }
        pause_taking(tier);
        brim__unlock(&tier->mutex);
    }
    wait_for_those_inside(tier);
    const uint64_t of_extents = free_extents(extents);
    const uint64_t of_segments = free_segments(segments);
    brim__lock(&tier->mutex);
    tier->extent_bytes -= of_extents;
    tier->segment_bytes -= of_segments;
    brim__unlock(&tier->mutex);
    return of_extents + of_segments;
}

/* -------------------------------------------------------------------- a life */

uint64_t brim__space_most_bytes(uint64_t count, uint64_t entry_bytes) {
    const uint64_t last = count / BRIM__SEGMENT_COUNT;
    uint64_t entries;
    uint64_t all;
    if (entry_bytes > UINT64_MAX / 8 ||
        brim__mul_overflows(count, brim__space_stride(entry_bytes), &entries) ||
        brim__add_overflows(entries, last * BRIM__SEGMENT_BYTES + segment_bytes(count, last),
                            &all) ||
        brim__add_overflows(all, entries / 4 + brim__min(entries, LARGEST_EXTENT), &all) ||
        brim__add_overflows(all, brim__page_bytes(), &all)) {
        return UINT64_MAX;
    }
    return all;
}

void brim__space_init(struct brim__tier *tier) {
    const struct brim__tier_start *start = &tier->start;
    const uint64_t most =
        brim__min(start->limit, brim__budget_limit(start->budget, BRIM_MEMORY_HOST));
    const uint64_t least =
        segment_bytes(start->count, 0) + least_extent(tier, brim__space_stride(0));
    tier->segment_count = brim__divide_up(start->count, BRIM__SEGMENT_COUNT);
    tier->sparse = most < brim__space_most_bytes(start->count, start->most_bytes) &&
                   most / TABLE_SHARE / sizeof(brim__kept_pointer) < start->count;
    tier->fills = start->limit >= least;
    if (!tier->fills) {
        char limit[BRIM__SIZE_TEXT];
        char needed[BRIM__SIZE_TEXT];
        snprintf(tier->warning, sizeof tier->warning,
                 "cache: nothing can be kept within a limit of %s; raise it to at least %s",
                 brim__size_text(start->limit, limit), brim__size_text(least, needed));
    }
}

void brim__space_fini(struct brim__tier *tier) {
    free_extents(tier->newest);
    free_segments(unlink_segments(tier));
}

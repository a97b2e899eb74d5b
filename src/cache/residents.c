/*
 * residents.c: which samples are on the device, and the memory for them.
 */
#include "cache/residents.h"

#define LEAST_OF_PART 8 /* an empty tier begins with no less than this fraction of a part */

static uint64_t arena_bytes(uint64_t count) {
    uint64_t bytes;
    return brim__mul_overflows(count, sizeof(uint32_t), &bytes) ||
                   brim__add_overflows(bytes, sizeof(struct brim__residents), &bytes)
               ? UINT64_MAX
               : bytes;
}

/* All parts have equally many rows. */
static uint64_t most_bytes(uint64_t count, uint64_t entry_bytes) {
    const uint64_t rows = (count + BRIM__GATHER_PARTS - 1) / BRIM__GATHER_PARTS;
    uint64_t bytes;
    return brim__mul_overflows(rows * BRIM__GATHER_PARTS, entry_bytes, &bytes) ? UINT64_MAX : bytes;
}

static brim_status start(void *memory, const struct brim__tier_start *how,
                         struct brim__tier **tier) {
    struct brim__residents *resident = memory;
    resident->start = *how;
    *tier = memory;
    return BRIM_OK;
}

static void stop(struct brim__tier *tier) {
    brim__resident_give((struct brim__residents *)(void *)tier, UINT64_MAX);
}

static void stats(struct brim__tier *tier, struct brim__tier_stats *out) {
    const struct brim__residents *resident = (const struct brim__residents *)(void *)tier;
    out->filled = atomic_load_explicit(&resident->filled, memory_order_relaxed);
    out->bytes = atomic_load_explicit(&resident->bytes, memory_order_relaxed);
    out->stored = atomic_load_explicit(&resident->stored, memory_order_relaxed);
    out->dropped = atomic_load_explicit(&resident->dropped, memory_order_relaxed);
    out->fills = true;
}

/* What is left of `bytes` for the tier. */
static uint64_t room_in(const struct brim__residents *tier, uint64_t bytes, uint64_t spare) {
    return brim__min(tier->start.limit, bytes > spare ? bytes - spare : 0);
}

static uint64_t rows_in(const struct brim__residents *tier, uint64_t room) {
    return brim__min(brim__min(tier->start.count, UINT32_MAX - 2 * BRIM__GATHER_PARTS),
                     room / tier->start.most_bytes);
}

/* Rows of a part. As many parts as there may be hold all that could ever be had, what others
 * hold elastically among it. Where less is free now, fewer and smaller ones take all of that,
 * and the rest of them what becomes free later. With very little the tier stays empty and
 * chooses again the next time, or it would be bound to tiny parts. */
static uint64_t choose_part(const struct brim__residents *tier, uint64_t spare) {
    const struct brim__tier_start *how = &tier->start;
    const uint64_t free_now = brim__budget_free_now(how->budget, how->kind);
    const uint64_t available = brim__budget_available(how->budget, how->kind);
    const uint64_t room = room_in(tier, free_now, spare);
    const uint64_t now = rows_in(tier, room);
    const uint64_t most = rows_in(tier, room_in(tier, available, spare));
    const uint64_t part = brim__min(brim__divide_up(most, BRIM__GATHER_PARTS),
                                    how->device->largest / how->most_bytes);
    if (part == 0 || now < brim__divide_up(part, LEAST_OF_PART)) {
        return 0;
    }
    const uint64_t parts = brim__max(1, brim__divide_up(now, part));
    const uint64_t rows = brim__divide_up(now, parts);
    return rows * parts <= room / how->most_bytes ? rows : now / parts;
}

static bool take_part(struct brim__residents *tier, uint64_t spare) {
    const struct brim__tier_start *how = &tier->start;
    if (tier->part_count == 0) {
        tier->part_rows = choose_part(tier, spare);
    }
    const uint64_t bytes = tier->part_rows * how->most_bytes;
    const uint64_t held = tier->part_count * bytes;
    if (bytes == 0 || tier->part_count == BRIM__GATHER_PARTS || bytes > how->limit - held ||
        bytes > brim__budget_free_now(how->budget, how->kind) ||
        spare > brim__budget_free_now(how->budget, how->kind) - bytes ||
        !brim__budget_try(how->budget, how->kind, bytes)) {
        return false;
    }
    if (brim__device_take(how->device, bytes, &tier->part[tier->part_count]) != BRIM_OK) {
        brim__budget_return(how->budget, how->kind, bytes);
        return false;
    }
    tier->part_count++;
    atomic_fetch_add_explicit(&tier->bytes, bytes, memory_order_relaxed);
    return true;
}

uint64_t brim__resident_reserve(struct brim__residents *tier, uint64_t rows, uint64_t spare) {
    if (tier->rows == tier->part_count * tier->part_rows && !take_part(tier, spare)) {
        atomic_fetch_add_explicit(&tier->dropped, rows, memory_order_relaxed);
        return 0;
    }
    return brim__min(rows, tier->part_count * tier->part_rows - tier->rows);
}

void brim__resident_publish(struct brim__residents *tier, const uint64_t *samples, uint64_t rows) {
    for (uint64_t i = 0; i < rows; i++) {
        const uint32_t number = (uint32_t)tier->rows++;
        if (!brim__resident_has(tier, samples[i])) { /* twice in one batch: the first stays */
            atomic_fetch_add_explicit(&tier->filled, 1, memory_order_relaxed);
            atomic_store_explicit(&tier->row[samples[i]], number + 1, memory_order_release);
        }
    }
    atomic_fetch_add_explicit(&tier->stored, rows, memory_order_relaxed);
}

uint64_t brim__resident_give(struct brim__residents *tier, uint64_t wanted) {
    const struct brim__tier_start *how = &tier->start;
    const uint64_t bytes = tier->part_rows * how->most_bytes;
    const uint32_t before = tier->part_count;
    uint64_t given = 0;
    while (tier->part_count > 0 && given < wanted) {
        brim__device_give(how->device, &tier->part[--tier->part_count]);
        brim__budget_return(how->budget, how->kind, bytes);
        atomic_fetch_sub_explicit(&tier->bytes, bytes, memory_order_relaxed);
        given += bytes;
    }
    const uint64_t left = tier->part_count * tier->part_rows;
    tier->rows = brim__min(tier->rows, left);
    for (uint64_t i = 0; tier->part_count < before && i < how->count; i++) {
        if (atomic_load_explicit(&tier->row[i], memory_order_relaxed) > left) {
            atomic_store_explicit(&tier->row[i], 0, memory_order_relaxed);
            atomic_fetch_sub_explicit(&tier->filled, 1, memory_order_relaxed);
        }
    }
    return given;
}

const struct brim__tier_ops brim__device_tier = {
    .name = "device",
    .arena_bytes = arena_bytes,
    .most_bytes = most_bytes,
    .start = start,
    .stop = stop,
    .stats = stats,
};

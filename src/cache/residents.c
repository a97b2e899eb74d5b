/*
 * residents.c: which samples are on the device, and the memory for them; see residents.h.
 */
#include "cache/residents.h"

#define LEAST_OF_PART 8 /* an empty one begins with no less than this fraction of a part */

uint64_t brim__residents_bytes(uint64_t count) {
    uint64_t bytes;
    return brim__mul_overflows(count, sizeof(uint32_t), &bytes) ||
                   brim__add_overflows(bytes, sizeof(struct brim__residents), &bytes)
               ? UINT64_MAX
               : bytes;
}

/* All parts have equally many rows. */
uint64_t brim__residents_most_bytes(uint64_t count, uint64_t row_bytes) {
    const uint64_t rows = (count + BRIM__GATHER_PARTS - 1) / BRIM__GATHER_PARTS;
    uint64_t bytes;
    return brim__mul_overflows(rows * BRIM__GATHER_PARTS, row_bytes, &bytes) ? UINT64_MAX : bytes;
}

void brim__residents_end(struct brim__residents *residents) {
    brim__resident_give(residents, UINT64_MAX);
}

/* The part of `bytes` that is available for residents. */
static uint64_t room_in(const struct brim__residents *residents, uint64_t bytes, uint64_t spare) {
    return brim__min(residents->start.limit, bytes > spare ? bytes - spare : 0);
}

static uint64_t rows_in(const struct brim__residents *residents, uint64_t room) {
    return brim__min(brim__min(residents->start.count, UINT32_MAX - 2 * BRIM__GATHER_PARTS),
                     room / residents->start.row_bytes);
}

/* Chooses the rows of a part, such that BRIM__GATHER_PARTS parts can hold all memory that could
 * ever be available, including elastic memory of others. If less is free now, fewer and smaller
 * parts take all of it, and the other parts take what becomes free later. If very little is free,
 * no part is taken and the size is chosen again the next time, because otherwise all parts would be
 * tiny. */
static uint64_t choose_part(const struct brim__residents *residents, uint64_t spare) {
    const struct brim__residents_start *how = &residents->start;
    const uint64_t free_now = brim__budget_free_now(how->budget, how->kind);
    const uint64_t available = brim__budget_available(how->budget, how->kind);
    const uint64_t room = room_in(residents, free_now, spare);
    const uint64_t now = rows_in(residents, room);
    const uint64_t most = rows_in(residents, room_in(residents, available, spare));
    const uint64_t part =
        brim__min(brim__divide_up(most, BRIM__GATHER_PARTS), how->device->largest / how->row_bytes);
    if (part == 0 || now < brim__divide_up(part, LEAST_OF_PART)) {
        return 0;
    }
    const uint64_t parts = brim__max(1, brim__divide_up(now, part));
    const uint64_t rows = brim__divide_up(now, parts);
    return rows * parts <= room / how->row_bytes ? rows : now / parts;
}

static bool take_part(struct brim__residents *residents, uint64_t spare) {
    const struct brim__residents_start *how = &residents->start;
    if (residents->part_count == 0) {
        residents->part_rows = choose_part(residents, spare);
    }
    const uint64_t bytes = residents->part_rows * how->row_bytes;
    const uint64_t held = residents->part_count * bytes;
    if (bytes == 0 || residents->part_count == BRIM__GATHER_PARTS || bytes > how->limit - held ||
        bytes > brim__budget_free_now(how->budget, how->kind) ||
        spare > brim__budget_free_now(how->budget, how->kind) - bytes ||
        !brim__budget_try(how->budget, how->kind, bytes)) {
        return false;
    }
    if (brim__device_take(how->device, bytes, &residents->part[residents->part_count]) != BRIM_OK) {
        brim__budget_return(how->budget, how->kind, bytes);
        return false;
    }
    residents->part_count++;
    atomic_fetch_add_explicit(&residents->bytes, bytes, memory_order_relaxed);
    return true;
}

uint64_t brim__resident_reserve(struct brim__residents *residents, uint64_t rows, uint64_t spare) {
    if (residents->rows == residents->part_count * residents->part_rows &&
        !take_part(residents, spare)) {
        atomic_fetch_add_explicit(&residents->dropped, rows, memory_order_relaxed);
        return 0;
    }
    return brim__min(rows, residents->part_count * residents->part_rows - residents->rows);
}

void brim__resident_publish(struct brim__residents *residents, const uint64_t *samples,
                            uint64_t rows) {
    for (uint64_t i = 0; i < rows; i++) {
        const uint32_t number = (uint32_t)residents->rows++;
        if (!brim__resident_has(residents, samples[i])) { /* twice in one batch: the first stays */
            atomic_fetch_add_explicit(&residents->filled, 1, memory_order_relaxed);
            atomic_store_explicit(&residents->row[samples[i]], number + 1, memory_order_release);
        }
    }
    atomic_fetch_add_explicit(&residents->stored, rows, memory_order_relaxed);
}

uint64_t brim__resident_give(struct brim__residents *residents, uint64_t wanted) {
    const struct brim__residents_start *how = &residents->start;
    const uint64_t bytes = residents->part_rows * how->row_bytes;
    const uint32_t before = residents->part_count;
    uint64_t given = 0;
    while (residents->part_count > 0 && given < wanted) {
        brim__device_give(how->device, &residents->part[--residents->part_count]);
        brim__budget_return(how->budget, how->kind, bytes);
        atomic_fetch_sub_explicit(&residents->bytes, bytes, memory_order_relaxed);
        given += bytes;
    }
    const uint64_t left = residents->part_count * residents->part_rows;
    residents->rows = brim__min(residents->rows, left);
    for (uint64_t i = 0; residents->part_count < before && i < how->count; i++) {
        if (atomic_load_explicit(&residents->row[i], memory_order_relaxed) > left) {
            atomic_store_explicit(&residents->row[i], 0, memory_order_relaxed);
            atomic_fetch_sub_explicit(&residents->filled, 1, memory_order_relaxed);
        }
    }
    return given;
}

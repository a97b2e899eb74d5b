/*
 * residents.h: samples that stay on a device: put there once, gathered by number for
 * every batch.
 *
 * Unlike the other tiers it keeps rows of batches as the user gets them, all of one size,
 * and nobody finds or commits entries: whoever ships batches to the device (engine/ship.c)
 * asks which samples are there, has them gathered, and stores those that are new. Memory
 * is taken in up to BRIM__GATHER_PARTS parts of equally many rows, as it is needed and
 * elastically; a part's fields lie one behind the other, each with all its rows.
 *
 *     row[sample] ─► number ─► part number / part_rows, row number % part_rows
 *
 * All but brim__resident_has is for one thread at a time. A number that was published
 * stays until its part is given up; so who has seen that a sample is there must be told
 * to begin again when that happens.
 */
#ifndef BRIM_RESIDENTS_H
#define BRIM_RESIDENTS_H

#include "cache/tier.h"
#include "device/device.h"

#define BRIM__NOT_RESIDENT UINT32_MAX

/* A brim__tier. */
struct brim__residents {
    struct brim__tier_start start;
    uint64_t part_rows; /* 0: nothing was taken yet */
    struct brim__device_memory part[BRIM__GATHER_PARTS];
    uint32_t part_count;
    uint64_t rows; /* in use, from the first on */
    _Atomic uint64_t filled, bytes, stored, dropped;
    _Atomic uint32_t row[]; /* of each sample, plus 1; 0: it is not there */
};

extern const struct brim__tier_ops brim__device_tier;

/* From any thread. */
static inline bool brim__resident_has(const struct brim__residents *tier, uint64_t sample) {
    return atomic_load_explicit(&tier->row[sample], memory_order_acquire) != 0;
}
static inline uint32_t brim__resident_row(const struct brim__residents *tier, uint64_t sample) {
    return atomic_load_explicit(&tier->row[sample], memory_order_relaxed) - 1;
}
/* How many of `rows` rows may be put in now, from tier->rows on and in one part; takes
 * another part if there is none left. spare: bytes of the device that stay free when it does.
 * The loader gives the slot that it takes next, if more are planned: so a cache that has given
 * way to a slot does not have the memory back before the slot is there. All the others are
 * made free when somebody waits for them. */
uint64_t brim__resident_reserve(struct brim__residents *tier, uint64_t rows, uint64_t spare);
/* They were put in: what they are of. */
void brim__resident_publish(struct brim__residents *tier, const uint64_t *samples, uint64_t rows);
/* Gives up parts, the last first, until `wanted` bytes are free; what was given. Nothing
 * on the device uses them any more. */
uint64_t brim__resident_give(struct brim__residents *tier, uint64_t wanted);

#endif

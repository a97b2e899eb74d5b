/*
 * residents.h: samples that stay on a device (`cache device`): put there once, gathered by
 * number for every batch.
 *
 * It keeps rows of batches as the consumer gets them, all of one size. The thread that uploads
 * batches (engine/resident.c) asks which samples are there, has them gathered, and stores those
 * that are new. Memory is taken in up to BRIM__GATHER_PARTS parts of equally many rows, as it is
 * needed and elastically; a part's fields lie one after the other, each with all its rows.
 *
 *     row[sample] ─► number ─► part number / part_rows, row number % part_rows
 *
 * All but brim__resident_has is for one thread at a time. A number that was published stays until
 * its part is given up; so a thread that has seen a sample there must begin again when that
 * happens.
 */
#ifndef BRIM_RESIDENTS_H
#define BRIM_RESIDENTS_H

#include "device/device.h"
#include "memory/alloc.h"

#include <stdatomic.h>

#define BRIM__NOT_RESIDENT UINT32_MAX

/* What they are begun with. Pointers stay valid until they are ended. */
struct brim__residents_start {
    brim_budget *budget; /* of their own: all in it is elastic, but the node */
    struct brim__device *device;
    brim_memory kind;
    uint64_t count;     /* samples */
    uint64_t row_bytes; /* of one, in all its fields */
    uint64_t limit;     /* bytes that they may take in all; BRIM_UNLIMITED */
};

struct brim__residents {
    struct brim__residents_start start;
    uint64_t part_rows; /* 0: nothing was taken yet */
    struct brim__device_memory part[BRIM__GATHER_PARTS];
    uint32_t part_count;
    uint64_t rows; /* in use, from the first on */
    _Atomic uint64_t filled, bytes, stored, dropped;
    _Atomic uint32_t row[]; /* of each sample, plus 1; 0: it is not there */
};

/* Bytes of the record for `count` samples, which is zeroed and aligned to 64; and bytes of the
 * device that they would ever take. Both saturate. */
uint64_t brim__residents_bytes(uint64_t count);
uint64_t brim__residents_most_bytes(uint64_t count, uint64_t row_bytes);
/* Gives all memory of the device up, which nothing there uses any more. */
void brim__residents_end(struct brim__residents *residents);

/* From any thread. */
static inline bool brim__resident_has(const struct brim__residents *residents, uint64_t sample) {
    return atomic_load_explicit(&residents->row[sample], memory_order_acquire) != 0;
}
static inline uint32_t brim__resident_row(const struct brim__residents *residents,
                                          uint64_t sample) {
    return atomic_load_explicit(&residents->row[sample], memory_order_relaxed) - 1;
}
/* How many of `rows` rows may be put in now, from residents->rows on and in one part; takes
 * another part if there is none left. spare: bytes of the device that stay free when it does.
 * The loader gives the slot that it takes next, if more are planned: so a cache that has given
 * way to a slot does not have the memory back before the slot is there. All the others are
 * made free when a consumer waits for them. */
uint64_t brim__resident_reserve(struct brim__residents *residents, uint64_t rows, uint64_t spare);
/* They were put in: what they are of. */
void brim__resident_publish(struct brim__residents *residents, const uint64_t *samples,
                            uint64_t rows);
/* Gives up parts, the last first, until `wanted` bytes are free; what was given. Nothing
 * on the device uses them any more. */
uint64_t brim__resident_give(struct brim__residents *residents, uint64_t wanted);

#endif

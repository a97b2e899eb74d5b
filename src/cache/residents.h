/*
 * residents.h: samples that stay on a device (`cache device`): they are stored there once, and
 * gathered by number for every batch.
 *
 * It keeps rows of batches as the consumer gets them, all of one size. The thread that uploads
 * batches (engine/resident.c) looks up which samples are there, gathers them, and stores the new
 * ones. Memory is taken when it is needed, elastically, in up to BRIM__GATHER_PARTS parts of
 * equally many rows. A part has its fields one after the other, each with all its rows.
 *
 *     row[sample] ─► number ─► part number / part_rows, row number % part_rows
 *
 * All functions except brim__resident_has are for one thread at a time. A published number stays
 * until its part is given up. So a thread that has found a sample must begin again when that
 * happens.
 */
#ifndef BRIM_RESIDENTS_H
#define BRIM_RESIDENTS_H

#include "device/device.h"
#include "memory/alloc.h"

#include <stdatomic.h>

#define BRIM__NOT_RESIDENT UINT32_MAX

/* The arguments for starting. Pointers must stay valid until brim__residents_end. */
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
/* Gives up all memory of the device. Nothing there may still use it. */
void brim__residents_end(struct brim__residents *residents);

/* From any thread. */
static inline bool brim__resident_has(const struct brim__residents *residents, uint64_t sample) {
    return atomic_load_explicit(&residents->row[sample], memory_order_acquire) != 0;
}
static inline uint32_t brim__resident_row(const struct brim__residents *residents,
                                          uint64_t sample) {
    return atomic_load_explicit(&residents->row[sample], memory_order_relaxed) - 1;
}
/* How many of `rows` rows may be stored now, from residents->rows on and in one part. Takes another
 * part if there is no room left. spare: bytes of the device that must then stay free. The loader
 * passes the bytes of the slot that it takes next, if more are planned, so that a cache that gave
 * way to a slot does not take the memory back before the slot is made. Memory for further slots is
 * freed when a consumer waits for them. */
uint64_t brim__resident_reserve(struct brim__residents *residents, uint64_t rows, uint64_t spare);
/* Records the samples of the rows that were stored. */
void brim__resident_publish(struct brim__residents *residents, const uint64_t *samples,
                            uint64_t rows);
/* Gives up parts, the last first, until `wanted` bytes are free. Returns the bytes given up.
 * Nothing on the device may still use the parts. */
uint64_t brim__resident_give(struct brim__residents *residents, uint64_t wanted);

#endif

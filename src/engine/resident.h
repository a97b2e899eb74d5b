/*
 * resident.h: samples that stay on the device (`cache device`, cache/device_tier.h): who
 * makes rows leaves them out, who ships batches has them gathered there, and they give way
 * when the memory is needed.
 *
 * Which rows of a batch are resident is decided once, when it is shipped, and noted in its
 * staging slot. A row that was left out is resident then too: rows go only when all
 * batches that are not yet shipped are begun again.
 */
#ifndef BRIM_RESIDENT_H
#define BRIM_RESIDENT_H

#include "cache/device_tier.h"
#include "engine/ship.h"

/* What stays on the device, or NULL. */
static inline struct brim__resident *brim__loader_resident(const brim_loader *loader) {
    const struct brim__cache *cache = loader->plan->resident;
    return cache != NULL ? (struct brim__resident *)(void *)cache->tier : NULL;
}

/* All for the thread that ships, without the mutex; rows: the valid ones of the batch. */
/* Notes which rows are resident; how many. */
uint64_t brim__resident_number(const brim_loader *loader, const struct brim__slot *slot,
                               const uint64_t *samples, uint64_t rows);
/* The next rows from *first on that are not; 0: there are none. */
uint64_t brim__resident_made(const brim_loader *loader, const struct brim__slot *slot,
                             uint64_t *first, uint64_t rows);
/* Into the queue: the notes; then the rows that are there, to their places in the berth. */
brim_status brim__resident_send(brim_loader *loader, const struct brim__slot *slot, uint64_t rows);
brim_status brim__resident_gather(brim_loader *loader, const struct brim__slot *slot,
                                  const struct brim__slot *berth, uint64_t rows);
/* And the others, as far as there is room, to where they stay. */
brim_status brim__resident_store(brim_loader *loader, const struct brim__slot *slot,
                                 const struct brim__slot *berth, const uint64_t *samples,
                                 uint64_t rows);

/* Mutex held: a batch did not come to the device whole, so its samples are not there. */
void brim__resident_withdraw(brim_loader *loader, const struct brim__slot *slot);

/* A brim__revoke; the holder is the loader. */
uint64_t brim__resident_revoke(void *holder, brim_memory kind, uint64_t wanted);

#endif

/*
 * resident.h: samples that stay on the device (`cache device`, cache/residents.h): threads that
 * make rows leave them out, the thread that uploads a batch has them gathered there, and they
 * give way when the memory is needed.
 *
 * Which rows of a batch are resident is decided once, when it is uploaded, and noted in its
 * staging slot. A row that was left out is resident then too: rows go only when all
 * batches that are not yet uploaded are begun again.
 */
#ifndef BRIM_RESIDENT_H
#define BRIM_RESIDENT_H

#include "engine/upload.h"

/* What stays on the device, or NULL. */
static inline struct brim__residents *brim__loader_residents(const brim_loader *loader) {
    return loader->uploader != NULL ? loader->uploader->residents : NULL;
}

/* All for the thread that uploads, without the mutex; rows: the valid ones of the batch. */
/* Notes which rows are resident; how many. */
uint64_t brim__resident_number(const brim_loader *loader, const struct brim__slot *from,
                               const uint64_t *samples, uint64_t rows);
/* The next rows from *first on that are not; 0: there are none. */
uint64_t brim__resident_made(const brim_loader *loader, const struct brim__slot *from,
                             uint64_t *first, uint64_t rows);
/* Into the queue: the notes; then the rows that are there, to their places in the device slot. */
brim_status brim__resident_send(brim_loader *loader, const struct brim__slot *from, uint64_t rows);
brim_status brim__resident_gather(brim_loader *loader, const struct brim__slot *from,
                                  const struct brim__slot *to, uint64_t rows);
/* And the others, as far as there is room, to where they stay. */
brim_status brim__resident_store(brim_loader *loader, const struct brim__slot *from,
                                 const struct brim__slot *to, const uint64_t *samples,
                                 uint64_t rows);

/* Mutex held: a batch did not come to the device whole, so its samples are not there. */
void brim__resident_withdraw(brim_loader *loader, const struct brim__slot *from);

/* When the loader opens and closes, of plans without `cache device` too; and what there is. */
brim_status brim__resident_start(brim_loader *loader);
void brim__resident_stop(brim_loader *loader);
void brim__resident_stats(const brim_loader *loader, brim_cache_stats *stats);

/* A brim__revoke; the holder is the loader. */
uint64_t brim__resident_revoke(void *holder, brim_memory kind, uint64_t wanted, bool firmly);

#endif

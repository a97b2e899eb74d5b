/*
 * position.h: where a loader is in its data, and going to another place.
 *
 * The calls in seek.c, and `next`, use one table of operations. The kind of plan chooses it:
 *
 *     position_direct.c     batches have numbers, so a position is computed
 *     position_sequenced.c  a batch has the rows that came next, so a position is the one after the
 *                           last row of the last batch taken
 *
 * All with the mutex held, except for `after`, which reads a lent batch.
 */
#ifndef BRIM_POSITION_H
#define BRIM_POSITION_H

#include "engine/loader.h"

struct brim__position_ops {
    uint64_t (*epoch)(const brim_loader *loader); /* of the next batch ... */
    bool (*at_end)(const brim_loader *loader);  /* ... which is known to have no more batches ... */
    bool (*goes_on)(const brim_loader *loader); /* ... or to have one */
    /* BRIM_OK: batches come. Else why none does: BRIM_STATUS_END, with which the next epoch
     * begins, or a failure. */
    brim_status (*end)(brim_loader *loader);
    void (*took)(brim_loader *loader, const struct brim__slot *slot);
    void (*after)(const brim_batch *batch, struct brim__position *position);
    void (*read)(brim_loader *loader, struct brim__position *position);
    brim_status (*seek)(brim_loader *loader, uint64_t epoch, uint64_t step);
    brim_status (*restore)(brim_loader *loader, const struct brim__position *position);
};

extern const struct brim__position_ops brim__position_direct, brim__position_sequenced;

/* seek.c. What the deliveries of an epoch are. The next is delivery `index` of `epoch`, which
 * begins at `base`. The failure that is the end of an epoch. */
struct brim__shard brim__loader_shard(const brim_loader *loader, uint64_t epoch);
void brim__loader_go(brim_loader *loader, uint64_t epoch, uint64_t index, uint64_t base);
brim_status brim__end_of_epoch(uint64_t epoch);

/* position_sequenced.c: goes to a position of a sequenced plan. */
void brim__sequenced_go(brim_loader *loader, const struct brim__position *position);

#endif

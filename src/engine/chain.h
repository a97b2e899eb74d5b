/*
 * chain.h: the rings of a loader as one: looked at from their end, turned, recalled, revoked.
 *
 * `next` takes batches from the last ring and knows no other. Workers turn the rings from the
 * last to the first: what is nearest to the consumer is done first. Revocation and seeks walk
 * them all. The rings that hold batches use the same tickets, and the first tickets that one
 * ring has not taken are the next ones that the ring after it begins:
 *
 *     batches   take ─ ready, filling ─ make          device ring   take ─ ready, filling ─ make
 *                └────────────────────────── is ──────────────────────────────────────────────┘
 *
 * A ring of encoded bytes can stand before the rows: its role reads, and the rows' role takes.
 *
 * What becomes of a failure: where it is kept until `next` returns it in its turn, and what
 * happens when `next` is asked again.
 *
 *   what failed            direct plan            a sequencer stands before   samples stay on the
 *                                                                             device (direct)
 *   ────────────────────── ────────────────────── ─────────────────────────── ─────────────────────
 *   a row, and on_error=   in the slot; the batch in the sequencer's ring;    as direct
 *   fail                   is made again          the sample is made again,
 *                                                 of a stream left out
 *   too many bad samples   in the slot; the batch not kept: tested again      as direct
 *                          is made again
 *   a stage on the batch   in the slot; the batch in the sequencer's ring;    (not allowed)
 *                          is made again          made again from the last
 *                                                 position delivered; left
 *                                                 out where that cannot be
 *   an upload, when it is  in the slot; the batch in the slot; sent again     as a copy that
 *   put into the queue     is made again          through a new queue         fails later
 *   a copy later, of a     in the device ring;    in the staging slot; sent   in the device ring;
 *   batch that waits       at once; recalled:     again before all others,    at once; its samples
 *                          made again with all    into the place it has       are withdrawn, and it
 *                          after it                                           is recalled
 *   a copy later, of a     in the lent slot: brim_batch_wait and others       the same, in all that
 *   batch that is lent     return it, once                                    are lent from it on;
 *                                                                             the rest is recalled
 *   a copy later, of what  nowhere                nowhere                     in all that are lent;
 *   a seek has dropped                                                        the rest is recalled
 *   the mark in the queue  nowhere: the slot is lost, and another is made up for it. If there is
 *   at a release           no memory for one and no slot will be free again: in the staging slot
 */
#ifndef BRIM_CHAIN_H
#define BRIM_CHAIN_H

#include "engine/loader.h"

/* All with the mutex held. */

/* The batch that `next` is to look at: that of the last ring, if it has a slot; or the READY
 * slot of the ring before, if it must not be uploaded until `next` has seen its error or its
 * bad samples. NULL: neither. */
struct brim__slot *brim__chain_head(const brim_loader *loader);
/* A batch with this may be too bad to be handed out, or failed: only `next` can tell. */
bool brim__slot_awaits_next(const struct brim__slot *slot);

/* The ring whose error is to be returned now: all batches before it are taken, or a device has
 * failed; or NULL. */
struct brim__ring *brim__chain_error(brim_loader *loader);
/* `next` is asked again: what has failed and was returned is tried again. */
void brim__chain_retry(brim_loader *loader);

/* A piece of work, by a worker or by `next`, from the last ring to the first. Takes the mutex
 * itself. False: there was nothing to do. */
bool brim__chain_turn(brim_loader *loader, bool is_next);

/* The batches from `ticket` on that are not lent are begun again later. Not after a sequencer. */
void brim__chain_recall(brim_loader *loader, uint64_t ticket);
/* All that is not lent is dropped; what is made next is where loader->taken stands. */
void brim__chain_abandon(brim_loader *loader);

/* A brim__revoke. Takes the locks itself. */
uint64_t brim__chain_revoke(void *holder, brim_memory kind, uint64_t wanted);

void brim__chain_check(const brim_loader *loader); /* asserts what the drawings say */

#endif

/*
 * chain.h: the rings of a loader as one: their head, turning, recall and revocation.
 *
 * `next` takes batches from the last ring and knows no other. Workers turn the rings from the
 * last to the first: what is nearest to the consumer is done first. Revocation and seeks walk
 * them all. The rings that hold batches use the same tickets: `take` of the batches on the host is
 * `make` of the device ring.
 *
 * A ring of encoded bytes could come before the rows: its role would read, and the role of the rows
 * would take from it.
 *
 * What happens to a failure: where it is kept until `next` returns it in its turn, and what the
 * next call does.
 *
 *   what failed          │ direct plan             │ a sequencer stands      │ samples stay on the
 *                        │                         │ before                  │ device (direct)
 *   ─────────────────────┼─────────────────────────┼─────────────────────────┼────────────────────────
 *   a row, with          │ in the slot; the batch  │ in the sequencer's      │ as direct
 *   on_error=fail        │ is made again           │ ring; the sample is     │
 *                        │                         │ made again, of a stream │
 *                        │                         │ left out                │
 *                        │                         │                         │
 *   too many bad samples │ not kept; the batch is  │ not kept; counted       │ as direct
 *                        │ made again and counted  │ again. One after the    │
 *                        │ again                   │ other: in the           │
 *                        │                         │ sequencer's ring        │
 *                        │                         │                         │
 *   a stage on the batch │ in the slot; the batch  │ in the sequencer's      │ (not allowed)
 *                        │ is made again           │ ring; made again from   │
 *                        │                         │ the last position       │
 *                        │                         │ delivered, left out     │
 *                        │                         │ where that cannot be    │
 *                        │                         │                         │
 *   an upload, when it   │ in the slot; the batch  │ in the slot; sent again │ as a copy that fails
 *   is put into the      │ is made again           │ through a new queue     │ later
 *   queue                │                         │                         │
 *                        │                         │                         │
 *   a copy later, of a   │ in the device ring, at  │ in the staging slot;    │ in the device ring, at
 *   batch that waits     │ once; recalled: made    │ sent again before all   │ once; its samples are
 *                        │ again with all after it │ others, to the place it │ withdrawn, and it is
 *                        │                         │ has                     │ recalled
 *                        │                         │                         │
 *   a copy later, of a   │ in the lent slot:       │ the same                │ the same, in all that
 *   batch that is lent   │ brim_batch_wait and     │                         │ are lent from it on;
 *                        │ others return it, once  │                         │ the rest is recalled
 *                        │                         │                         │
 *   a copy later, of     │ nowhere                 │ nowhere                 │ in all that are lent;
 *   what a seek has      │                         │                         │ the rest is recalled
 *   dropped              │                         │                         │
 *
 * If the mark in the consumer's queue fails at a release, the slot is lost, and another is made up
 * for it. If there is no memory for one and no slot will be free as long as the user releases
 * nothing, the staging slot keeps that error.
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

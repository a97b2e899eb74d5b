/*
 * chain.h: the rings of a loader as one: their head, turning, recall and revocation.
 *
 * `next` takes batches from the last ring; a batch of the ring before it that must be seen before it
 * is uploaded comes to it as the head. Workers turn the rings from the last to the first: what is
 * nearest to the consumer is done first. Revocation and seeks walk them all. The rings from
 * loader->batches on hold batches and use the same tickets: `take` of the batches on the host is
 * `make` of the device ring. A recall walks only these.
 *
 * The rings before loader->batches, if any, count tickets of their own. One of encoded bytes could
 * come before the rows: its role would read, and the role of the rows would take from it.
 *
 * brim__chain_check (loader.h) asserts what is said here and in ring.h. What happens to a failure,
 * where it is kept and what the next call does, is a table in docs/engine.md.
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
 * failed; or NULL. urgent: only of a device, whose failure comes before the end of an epoch and
 * before the refusal of one more batch. */
struct brim__ring *brim__chain_error(brim_loader *loader, bool urgent);
/* `next` is asked again: what has failed and was returned is tried again. */
void brim__chain_retry(brim_loader *loader);

/* A piece of work, by a worker or by `next`, from the last ring to the first. Takes the mutex
 * itself. False: there was nothing to do. */
bool brim__chain_turn(brim_loader *loader, bool is_next);

/* All work that is over at once, such as putting copies into a queue. */
void brim__chain_push(brim_loader *loader);
/* A consumer waits: each ring takes one more slot, if it is planned and there is memory. */
void brim__chain_grow(brim_loader *loader);
/* Samples of a stream are in the scratch of `next`, where no worker finds them. */
bool brim__chain_needs_next(const brim_loader *loader);
/* A thread is making rows. */
bool brim__chain_is_worked_at(const brim_loader *loader);

/* The batches from `ticket` on that are not lent are begun again later. Not after a sequencer. */
void brim__chain_recall(brim_loader *loader, uint64_t ticket);
/* All that is not lent is dropped; what is made next is where loader->reached.taken stands. */
void brim__chain_abandon(brim_loader *loader);

/* A brim__revoke. Takes the locks itself. */
uint64_t brim__chain_revoke(void *holder, brim_memory kind, uint64_t wanted, bool firmly);

#endif

/*
 * upload_failure.c: what happens to a batch whose upload or copy failed: the rows of the table of
 * failures in docs/engine.md on uploads and copies.
 */
#include "engine/upload.h"

#include "engine/chain.h"
#include "engine/resident.h"

/* What is done about a copy that has failed. */
enum remedy {
    FORGET,     /* a seek has dropped the batch */
    TELL_USER,  /* the batch is lent: brim_batch_wait and others return the failure; or it was,
                 * then `next` does */
    SEND_AGAIN, /* its rows cannot be made again: the sequencer is past them */
    MAKE_AGAIN, /* with all batches after it, in their order */
    WITHDRAW,   /* the same; and its samples do not stay there */
};

static enum remedy remedy_of(const brim_loader *loader, const struct brim__slot *from) {
    return loader->uploader->residents != NULL ? WITHDRAW
           : from->abandoned                   ? FORGET
           : from->ticket < loader->last->take ? TELL_USER
           : loader->last->made_once           ? SEND_AGAIN
                                               : MAKE_AGAIN;
}

/* The lent batches of the tickets [first, end) get the error. Whether there is one. */
static bool tell_lent(brim_loader *loader, uint64_t first, uint64_t end, brim_status status) {
    const struct brim__ring *there = loader->last;
    bool told = false;
    for (uint32_t i = 0; i < there->cap; i++) {
        struct brim__slot *slot = &there->slot[i];
        if (slot->state == BRIM__SLOT_LENT && slot->ticket >= first && slot->ticket < end) {
            brim__error_keep(&slot->error, status);
            told = true;
        }
    }
    return told;
}

static void keep_in_slot(struct brim__slot *slot, brim_status status) {
    brim__error_keep(&slot->error, status);
    slot->error.of = BRIM__ERROR_OF_UPLOAD;
}

static void keep_in_ring(struct brim__ring *there, brim_status status) {
    if (there->error.status == BRIM_OK) { /* else the retry of that failure covers it */
        brim__error_keep(&there->error, status);
    }
}

/* The batch, or those that have its samples, were released before the device was done with the
 * copy: no batch is left that could return its failure. */
static void keep_delivered(struct brim__ring *there, const struct brim__slot *from,
                           brim_status status) {
    char why[BRIM__DETAIL_BYTES / 2];
    brim__copy_text(why, sizeof why, brim_detail());
    brim__error_keep(
        &there->error,
        brim__fail(status,
                   "epoch %llu, step %llu: the batch was released before its copy to the device "
                   "failed, so work on the device has read wrong rows: %s",
                   (unsigned long long)from->epoch, (unsigned long long)from->delivery.step, why));
    there->error.of = BRIM__ERROR_OF_DELIVERED;
}

void brim__upload_released(brim_loader *loader, const struct brim__slot *slot) {
    struct brim__uploader *uploader = loader->uploader;
    uploader->released = brim__max(uploader->released, slot->device.upload);
    if (slot->error.status != BRIM_OK) {
        const brim_status status = brim__fail_kept(slot->error.status, &slot->error.failure);
        keep_delivered(loader->last, slot, status);
        brim__loader_event(loader);
    }
}

/* Rows that were to stay on the device may have gone from there into any batch that was
 * uploaded after this one, and are missing in those that were made without them; also where a
 * seek has made the copy pointless. */
static void withdraw(brim_loader *loader, struct brim__slot *from, brim_status status) {
    struct brim__ring *there = loader->last;
    const uint64_t ticket = from->abandoned ? 0 : from->ticket; /* it may have been given again */
    const bool waits = !from->abandoned && ticket >= there->take;
    const bool was_used = loader->uploader->released >= from->device.upload;
    const bool told = tell_lent(loader, ticket, UINT64_MAX, status);
    if (waits) {
        keep_in_ring(there, status);
    } else if (!told && was_used) {
        keep_delivered(there, from, status);
    }
    brim__resident_withdraw(loader, from);
    brim__slot_free(from);
    brim__chain_recall(loader, brim__max(ticket, there->take));
}

void brim__upload_failed(brim_loader *loader, struct brim__slot *from, brim_status status) {
    struct brim__ring *there = loader->last;
    const uint64_t ticket = from->ticket;
    struct brim__slot *to;
    switch (remedy_of(loader, from)) {
    case FORGET:
        brim__slot_free(from);
        break;
    case TELL_USER:
        if (!tell_lent(loader, ticket, ticket + 1, status)) {
            keep_delivered(there, from, status);
        }
        brim__slot_free(from);
        break;
    case SEND_AGAIN:
        to = brim__ring_find(there, BRIM__SLOT_READY, ticket);
        assert(to != NULL);
        brim__slot_set(to, BRIM__SLOT_FILLING); /* keeps its place, for no thread yet */
        brim__slot_set(from, BRIM__SLOT_READY);
        keep_in_slot(from, status);
        break;
    case MAKE_AGAIN:
        keep_in_ring(there, status);
        brim__slot_free(from);
        brim__chain_recall(loader, ticket);
        break;
    case WITHDRAW:
        withdraw(loader, from, status);
        break;
    }
}

void brim__upload_not_sent(brim_loader *loader, struct brim__slot *from, struct brim__slot *to,
                           bool again, brim_status status) {
    struct brim__ring *there = loader->last, *here = there->from;
    if (loader->uploader->residents != NULL) {
        withdraw(loader, from, status); /* some of its samples may count as there already */
        brim__slot_free(to);
    } else if (from->abandoned) {
        brim__slot_free(from);
        brim__slot_free(to);
    } else {
        brim__slot_set(from, BRIM__SLOT_READY);
        keep_in_slot(from, status);
        if (!again) {
            brim__slot_free(to);
            here->take--;
            there->make--;
        }
    }
}

void brim__upload_tell_lost(brim_loader *loader, struct brim__slot *from, brim_status status) {
    char size[BRIM__SIZE_TEXT];
    const struct brim__ring *there = loader->last;
    const uint64_t bytes = loader->plan->on_device.slot_bytes;
    const bool room_there =
        brim__budget_free_now(loader->budget, loader->plan->on_device.kind) >= bytes;
    if (status == BRIM_STATUS_BUDGET && room_there &&
        brim__budget_free_now(loader->budget, BRIM_MEMORY_HOST) >= there->bytes) {
        return; /* refused only while memory is being collected */
    }
    if (brim__ring_count(there, BRIM__SLOT_EMPTY) + brim__ring_count(there, BRIM__SLOT_LENT) <
        there->cap) {
        return;
    }
    if (status == BRIM_STATUS_BUDGET) {
        status =
            brim__fail(BRIM_STATUS_BUDGET,
                       "a device slot of %s was lost because its batch could not be released "
                       "on its queue, and others have the memory now: close one of them, or "
                       "raise the limit of %s",
                       brim__size_text(bytes, size), room_there ? "host memory" : "the device");
    }
    keep_in_slot(from, status);
}

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
    TELL_USER,  /* the batch is lent: brim_batch_wait and others return the failure */
    SEND_AGAIN, /* its rows cannot be made again: the sequencer is past them */
    MAKE_AGAIN, /* with all batches after it, in their order */
    WITHDRAW,   /* the same; and its samples do not stay there */
};

static enum remedy remedy_of(const brim_loader *loader, const struct brim__slot *from) {
    return loader->uploader->residents != NULL ? WITHDRAW
           : from->abandoned                   ? FORGET
           : from->ticket < loader->last->take ? TELL_USER
           : loader->last->keeps               ? SEND_AGAIN
                                               : MAKE_AGAIN;
}

/* The lent batches of the tickets [first, end) get the error. */
static void tell_lent(brim_loader *loader, uint64_t first, uint64_t end, brim_status status) {
    const struct brim__ring *there = loader->last;
    for (uint32_t i = 0; i < there->cap; i++) {
        struct brim__slot *slot = &there->slot[i];
        if (slot->state == BRIM__SLOT_LENT && slot->ticket >= first && slot->ticket < end) {
            brim__error_keep(&slot->error, status);
        }
    }
}

static void keep_in_slot(struct brim__slot *slot, brim_status status) {
    brim__error_keep(&slot->error, status);
    slot->error.rows_are_good = true;
}

/* Rows that were to stay on the device may have gone from there into any batch that was
 * uploaded after this one, and are missing in those that were made without them; also where a
 * seek has made the copy pointless. */
static void withdraw(brim_loader *loader, struct brim__slot *from, brim_status status) {
    struct brim__ring *there = loader->last;
    const uint64_t ticket = from->abandoned ? 0 : from->ticket; /* it may have been given again */
    const bool waits = !from->abandoned && ticket >= there->take;
    tell_lent(loader, ticket, UINT64_MAX, status);
    if (waits && there->error.status == BRIM_OK) { /* else the retry of that failure covers it */
        brim__error_keep(&there->error, status);
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
        tell_lent(loader, ticket, ticket + 1, status);
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
        if (there->error.status == BRIM_OK) { /* else the retry of that failure covers it */
            brim__error_keep(&there->error, status);
        }
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

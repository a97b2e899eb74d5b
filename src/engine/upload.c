/*
 * upload.c: uploading batches in order, and looking for finished copies and readers.
 */
#include "engine/upload.h"

#include "engine/chain.h"

/* ----------------------------------------------------------------- looking */

brim_status brim__upload_poll(brim_loader *loader, const struct brim__event *event, bool *over) {
    struct brim__device *device = &loader->uploader->device;
    const brim_status status = brim__event_poll(device, event);
    *over = status == BRIM_OK;
    if (status == BRIM_OK || status == BRIM_STATUS_TIMEOUT) {
        return status;
    }
    struct brim__failure failure;
    brim__failure_keep(&failure);
    *over = brim__event_wait(device, event) == BRIM_OK;
    return brim__fail_kept(status, &failure);
}

bool brim__upload_is_writing(brim_loader *loader, const struct brim__slot *slot) {
    bool over;
    return brim__upload_poll(loader, &slot->device.ready, &over) == BRIM_STATUS_TIMEOUT;
}

/* A staging slot of which the copy may be done; false: not yet. */
static bool settle_copy(brim_loader *loader, struct brim__slot *slot) {
    bool over;
    const brim_status status = brim__upload_poll(loader, &slot->device.left, &over);
    if (status == BRIM_STATUS_TIMEOUT) {
        return false;
    }
    brim__event_free(&loader->uploader->device, &slot->device.left);
    if (status == BRIM_OK) {
        brim__slot_free(slot);
    } else {
        brim__upload_failed(loader, slot, status);
    }
    return true;
}

/* A device slot of which the reader may be done; false: not yet. */
static bool settle_reader(brim_loader *loader, struct brim__slot *slot) {
    struct brim__device *device = &loader->uploader->device;
    bool over;
    if (brim__upload_poll(loader, &slot->device.left, &over) == BRIM_STATUS_TIMEOUT) {
        return false;
    }
    brim__event_free(device, &slot->device.left);
    if (over) {
        brim__slot_free(slot);
    } else {
        /* its reader may not be done: as at a release that could not be marked */
        (void)brim__event_wait(device, &slot->device.ready);
        brim__ring_give_up(loader, slot);
    }
    return true;
}

void brim__upload_settle(brim_loader *loader) {
    const struct brim__uploader *uploader = loader->uploader;
    const struct brim__ring *there = loader->last, *here = there->from;
    /* not while another thread counts on what stays on the device, or gives it up: a copy
     * that has failed takes samples away from there */
    const bool later = uploader->running && uploader->residents != NULL;
    bool polls = later, news = false;
    for (uint32_t i = 0; i < here->cap && !later; i++) {
        struct brim__slot *slot = &here->slot[i];
        if (slot->state == BRIM__SLOT_LEAVING && slot->busy == 0) {
            const bool done = settle_copy(loader, slot);
            news |= done;
            polls |= !done;
        }
    }
    for (uint32_t i = 0; i < there->cap; i++) {
        struct brim__slot *slot = &there->slot[i];
        if (slot->state == BRIM__SLOT_LEAVING) {
            const bool done = settle_reader(loader, slot);
            news |= done;
            polls |= !done;
        }
    }
    atomic_store(&loader->polls, polls);
    if (news) {
        brim__loader_want(loader);
        brim__loader_event(loader);
    }
}

void brim__upload_await(brim_loader *loader) {
    brim__loader_wait(loader, brim__now() + BRIM__POLL_NS);
    brim__upload_settle(loader);
}

void brim__upload_stop(brim_loader *loader) {
    while (loader->uploader->running) {
        brim__loader_wait(loader, UINT64_MAX);
    }
    brim__upload_settle(loader);
}

/* --------------------------------------------------------------- uploading */

/* The batch to be uploaded next, if it is ready: one that is sent again before all others. */
static struct brim__slot *find_next(const struct brim__ring *here) {
    struct brim__slot *next = NULL;
    for (uint32_t i = 0; i < here->cap; i++) {
        struct brim__slot *slot = &here->slot[i];
        if (slot->state == BRIM__SLOT_READY && slot->ticket <= here->take &&
            (next == NULL || slot->ticket < next->ticket)) {
            next = slot;
        }
    }
    return next != NULL && !brim__slot_awaits_next(next) ? next : NULL;
}

/* Where it goes: a batch that is sent again has kept its place. */
static struct brim__slot *find_target(const struct brim__ring *there,
                                      const struct brim__slot *from) {
    return from->ticket < there->make ? brim__ring_find(there, BRIM__SLOT_FILLING, from->ticket)
                                      : brim__ring_find_free(there);
}

/* What `next` will say of the batch, which lies in the staging slot no longer. */
static void describe(struct brim__slot *to, const struct brim__slot *from) {
    to->ticket = from->ticket;
    to->epoch = from->epoch;
    to->index = from->index;
    to->delivery = from->delivery;
    to->rows = from->rows;
    to->bad_rows = from->bad_rows;
    to->replaced_rows = from->replaced_rows;
    to->skipped = from->skipped;
    to->resume = from->resume;
    brim__error_clear(&to->error);
}

/* Mutex held, released meanwhile. */
static void upload(brim_loader *loader, struct brim__slot *from, struct brim__slot *to) {
    struct brim__uploader *uploader = loader->uploader;
    struct brim__ring *there = loader->last, *here = there->from;
    const bool again = to->state == BRIM__SLOT_FILLING;
    uint64_t copied = 0;
    brim__slot_set(from, BRIM__SLOT_LEAVING);
    brim__slot_set(to, BRIM__SLOT_FILLING);
    from->busy = to->busy = 1;
    describe(to, from);
    from->device.upload = to->device.upload = ++uploader->uploads;
    here->take += !again;
    there->make += !again;
    uploader->spare = there->planned > there->count ? loader->plan->on_device.slot_bytes : 0;
    brim__loader_unlock(loader);
    brim__event_free(&uploader->device, &to->device.ready);
    const brim_status status = brim__upload_send(loader, from, to, &copied);
    if (status != BRIM_OK) {
        /* waits for what is in it: then nothing reads the one slot or writes the other */
        brim__queue_free(&uploader->queue);
        brim__event_free(&uploader->device, &from->device.left);
    }
    brim__lock(&loader->mutex);
    from->busy = to->busy = 0;
    if (status != BRIM_OK) {
        brim__upload_not_sent(loader, from, to, again, status);
        return;
    }
    uploader->copied_bytes += copied;
    atomic_store(&loader->polls, true);
    if (to->abandoned) {
        brim__slot_free(to);
    } else {
        brim__slot_set(to, BRIM__SLOT_READY);
    }
}

/* Mutex held, released meanwhile: one more device slot, if it is of use. */
static void grow(brim_loader *loader) {
    struct brim__ring *there = loader->last;
    const bool lost = there->count < there->minimum;
    if (brim__ring_find_free(there) != NULL || (!there->grow && !lost)) {
        return;
    }
    const brim_status status = brim__ring_grow(loader, there);
    struct brim__slot *next = find_next(there->from);
    if (lost && status != BRIM_OK && status != BRIM_STATUS_TIMEOUT && next != NULL) {
        brim__upload_tell_lost(loader, next, status);
    }
}

static bool turn(brim_loader *loader, bool is_next) {
    struct brim__uploader *uploader = loader->uploader;
    struct brim__ring *there = loader->last;
    (void)is_next; /* any thread may: it is over at once */
    brim__upload_settle(loader);
    if (uploader->running || loader->revoking || loader->closing ||
        there->error.status != BRIM_OK || find_next(there->from) == NULL) {
        return false;
    }
    uploader->running = true;
    grow(loader);
    struct brim__slot *from = find_next(there->from);
    struct brim__slot *to = from != NULL ? find_target(there, from) : NULL;
    const bool uploads = to != NULL && !loader->revoking;
    if (uploads) {
        upload(loader, from, to);
    }
    uploader->running = false;
    brim__loader_event(loader);
    return uploads;
}

/* What else has failed meanwhile is tried again too. */
static void retry(brim_loader *loader) {
    brim__error_clear(&loader->last->error);
    struct brim__slot *head = brim__chain_head(loader);
    if (brim__slot_is_ready(head) && head->error.status != BRIM_OK && !head->ring->made_once) {
        brim__slot_restart(head);
    }
}

const struct brim__ring_role brim__upload_role = { .turn = turn, .retry = retry, .quick = true };

/* ------------------------------------------------------------------ lending */

brim_status brim__upload_lend(brim_loader *loader, struct brim__slot *slot) {
    struct brim__uploader *uploader = loader->uploader;
    struct brim__queue queue;
    brim_status status = BRIM_OK;
    if (uploader->consumer != NULL) {
        status = brim__queue_of(&uploader->device, uploader->consumer, &queue);
        if (status == BRIM_OK) {
            status = brim__queue_wait(&queue, &slot->device.ready);
        }
    }
    return status;
}

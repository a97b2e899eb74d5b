/*
 * ship.h: batches on their way to a device.
 *
 * Slots are then staging: page-locked, filled as always, never lent. What is lent are
 * berths, slots on the device. Whoever comes by (a worker, or `next`) ships the next
 * batch, one thread at a time and in the order of tickets, as soon as it is ready and a
 * berth is free:
 *
 *     slot    ... READY ──ship──► SHIPPED ──copy is done──► FREE
 *     berth   FREE ──ship──► READY ──next──► LENT ──release──► LEAVING ──reader is done──► FREE
 *
 * Copies and conversions go into one in-order queue of the loader's own. A berth that is
 * READY may still be written: who uses it waits for its event, on the device. A berth is
 * LEAVING while what the consumer had put into its own queue before the release is not
 * done: only after that is it free, so a kernel that reads late is never overtaken.
 *
 * The state of an event is looked up by whoever comes by; idle workers and a `next` that
 * waits come by every POLL_NS while there is any to wait for (loader->polls).
 *
 * What cannot be shipped is an error of its slot, which `next` returns when its turn has
 * come; asked again, it is shipped again, through a new queue. A copy that fails later, on
 * the device, is told by `next` too, and its batch is made again, with all behind it; or,
 * where a sequencer made it, shipped again before any other. Whoever has it already is told
 * when he waits for it. Where samples stay on the device, a batch that cannot be shipped counts
 * as a copy that failed, because some of its samples may be taken for resident already. A berth
 * of which the driver cannot say whether its reader is done is given up, never filled again.
 */
#ifndef BRIM_SHIP_H
#define BRIM_SHIP_H

#include "device/device.h"
#include "engine/loader.h"

struct brim__ship {
    struct brim__device device;
    void *consumer;           /* the queue that the loader was opened with, or NULL */
    struct brim__queue queue; /* the runner's; handle NULL: to be made again */
    struct brim__device_memory fixed;
    /* under the loader's mutex: */
    struct brim__slot *berth; /* plan->berth_cap of them */
    uint32_t berth_count;     /* with memory, and the one that is `making` */
    bool making;              /* one is asked for, which may be refused */
    uint64_t ticket;          /* of the next batch to be shipped */
    uint64_t generation;      /* counts seeks: what was being shipped then goes nowhere */
    bool running;             /* a thread ships, without the mutex */
    bool grow;                /* a consumer has waited since the last berth was added */
    bool refused;             /* there was no memory for it */
    brim_status error;        /* of a copy that failed later, of a batch not lent ... */
    bool told;                /* ... and told by `next` */
    char error_text[BRIM__DETAIL_BYTES];
    uint64_t copied_bytes;
    uint64_t spare; /* the runner's: bytes of a berth, if one is planned and not there */
};

/* ---------------------------------------------------------------- berths.c */

/* The queue, the memory that all share, and the minimum of berths; firm. ship->device is
 * open. After a failure: brim__ship_close. */
brim_status brim__ship_open(brim_loader *loader);
/* Waits for all copies and for all readers of berths that were released; everything but
 * what is lent goes. No thread is inside. */
void brim__ship_close(brim_loader *loader);
/* With the last reference. */
void brim__ship_free(brim_loader *loader);
/* After brim__ship_close: the memory of a berth that was lent. */
void brim__berth_free(brim_loader *loader, struct brim__slot *berth);
/* A staging slot's pages, page-locked, and back. */
brim_status brim__slot_pin(brim_loader *loader, struct brim__slot *slot, bool elastic);
void brim__slot_unpin(brim_loader *loader, struct brim__slot *slot);

/* Mutex held, released meanwhile: memory for one more berth, or for all that are planned,
 * if it is free. BRIM_STATUS_TIMEOUT: not now. One that was lost with its release
 * (brim__ship_take_back) is made up for. */
brim_status brim__berth_grow(brim_loader *loader);
void brim__ship_grow(brim_loader *loader);

/* For beyond.c, mutex held: how many berths are firm; one more, with the mutex released
 * meanwhile; one that is elastic again. */
uint32_t brim__berths_firm(const brim_loader *loader);
brim_status brim__berth_firm(brim_loader *loader);
void brim__berth_soften(brim_loader *loader);

/* ----------------------------------------------------------------- cargo.c */

/* Puts all that a batch needs into the queue, without the mutex; the slot's and the
 * berth's events are set. *copied: bytes from the host. */
brim_status brim__cargo_send(brim_loader *loader, struct brim__slot *slot, struct brim__slot *berth,
                             uint64_t *copied);

/* ------------------------------------------------------------------ ship.c */

/* All with the mutex held. */
/* Ships a batch if one is ready, and looks what has been done; the mutex is released
 * meanwhile. False: there was nothing to ship. */
bool brim__ship_turn(brim_loader *loader);
/* Looks which copies and readers are done. */
void brim__ship_settle(brim_loader *loader);
/* Waits a little for a thread, or for the device. */
void brim__ship_await(brim_loader *loader);
/* Everything that was shipped and not lent is dropped; tickets stand where they shall. */
void brim__ship_go(brim_loader *loader);
/* What `next` wants: the berth, or a slot that has an error to tell; NULL: not yet. */
struct brim__slot *brim__ship_head(brim_loader *loader);
/* Says that a copy has failed; nothing is shipped until `next` is asked again, and then
 * what else has failed meanwhile is tried again too. */
brim_status brim__ship_tell(brim_loader *loader);
void brim__ship_retry(brim_loader *loader);
/* Bytes of the device's memory, or of the host's, given up: free berths, then those furthest
 * ahead. */
uint64_t brim__ship_revoke(brim_loader *loader, brim_memory kind, uint64_t wanted);
void brim__ship_check(const brim_loader *loader); /* asserts what the drawing says */
/* Batches in berths that are not lent. */
uint32_t brim__ship_ready(const brim_loader *loader);

/* Batches that are not shipped yet are begun again. Nobody ships. */
void brim__ship_recall(brim_loader *loader);

/* The consumer may use the berth when its queue has come so far; no queue: at once. */
brim_status brim__ship_lend(brim_loader *loader, struct brim__slot *berth);
/* No lock held: the berth comes back once what the queue `handle` holds now is done. */
void brim__ship_take_back(brim_loader *loader, struct brim__slot *berth, void *handle);

/* device_batch.c: a copy in the device's memory. */
brim_status brim__batch_copy_there(const brim_batch *batch, brim_batch **out);

#define BRIM__POLL_NS 100000

#endif

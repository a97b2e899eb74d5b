/*
 * upload.h: batches on their way to a device.
 *
 * The ring before the device ring is staging: page-locked, filled as always, never lent. Any
 * worker, or `next`, uploads the next batch, one thread at a time and in the order of tickets, as
 * soon as it is ready and a device slot is free:
 *
 *     staging slot   ... READY ──upload──► LEAVING ──copy is done──► FREE
 *     device slot    FREE ──upload──► FILLING ► READY ──next──► LENT ──release──► LEAVING
 *                      ▲                                                            │
 *                      └────────────────── what reads it is done ◄──────────────────┘
 *
 * Copies and conversions go into one in-order queue of the loader's own. A device slot that is
 * READY may still be written: a consumer waits for its event, on the device. It is LEAVING while
 * what the consumer had put into its own queue before the release is not done: only after that
 * is it free, so a kernel that reads late is never overtaken.
 *
 * Any thread that looks for work looks whether events are done; idle workers, and a `next` that
 * waits, look every BRIM__POLL_NS while there is any to wait for (loader->polls).
 *
 * docs/engine.md has the table of failures.
 */
#ifndef BRIM_UPLOAD_H
#define BRIM_UPLOAD_H

#include "cache/residents.h"
#include "engine/loader.h"

/* Beside the device ring, which is loader->last; its `from` has the staging slots. */
struct brim__uploader {
    struct brim__device device;
    void *consumer;                    /* the queue that the loader was opened with, or NULL */
    struct brim__queue queue;          /* the uploading thread's; handle NULL: to be made again */
    struct brim__device_memory fixed;  /* that all batches share: conversions, numbers of rows */
    struct brim__residents *residents; /* samples that stay there (resident.h); NULL: none */
    /* under the loader's mutex: */
    bool running; /* a thread uploads, without the mutex */
    uint64_t copied_bytes;
    uint64_t uploads;  /* so far */
    uint64_t released; /* number of the latest upload whose batch was released */
    uint64_t spare; /* the uploading thread's: bytes of a slot, if one is planned and not there */
};

extern const struct brim__ring_role brim__upload_role;

/* -------------------------------------------------------- upload_memory.c */

/* The queue and the memory that all batches share; firm. uploader->device is open, and the
 * staging slots have memory. After a failure: brim__upload_close. */
brim_status brim__upload_open(brim_loader *loader);
/* Says why the driver refused memory for the minimum, and which holders have some. */
brim_status brim__upload_explain(brim_loader *loader);
/* Waits for all copies and for all readers of device slots that were released. No thread is
 * inside. */
void brim__upload_close(brim_loader *loader);
/* With the last reference. */
void brim__upload_free(brim_loader *loader);
/* Memory of the device that is charged already. No lock is held. */
brim_status brim__upload_take_memory(brim_loader *loader, uint64_t bytes, bool elastic,
                                     struct brim__device_memory *memory);

/* --------------------------------------------------------- upload_queue.c */

/* Puts all that a batch needs into the queue, without the mutex; the event `left` of the
 * staging slot and `ready` of the device slot are set. *copied: bytes from the host. */
brim_status brim__upload_send(brim_loader *loader, struct brim__slot *from, struct brim__slot *to,
                              uint64_t *copied);

/* ------------------------------------------------------- upload_failure.c */

/* Mutex held. A batch could not be put into the queue, and nothing of it is there any more;
 * to: its device slot; again: which was kept for it. */
void brim__upload_not_sent(brim_loader *loader, struct brim__slot *from, struct brim__slot *to,
                           bool again, brim_status status);
/* A copy that the device had accepted has failed. */
void brim__upload_failed(brim_loader *loader, struct brim__slot *from, brim_status status);
/* A batch is released: a failure of its copy for which the consumer has not asked is returned by
 * `next`. */
void brim__upload_released(brim_loader *loader, const struct brim__slot *slot);
/* Device slots were lost, and there is no memory for others. `next` returns the failure if no slot
 * will be free as long as the user releases nothing; else it would wait without end. */
void brim__upload_tell_lost(brim_loader *loader, struct brim__slot *from, brim_status status);

/* --------------------------------------------------------------- upload.c */

/* All with the mutex held. */
/* Looks which copies and readers are done. */
void brim__upload_settle(brim_loader *loader);
/* Waits a little for a thread, or for the device. */
void brim__upload_await(brim_loader *loader);
/* Waits until no thread uploads. */
void brim__upload_stop(brim_loader *loader);
/* A device slot's memory is being written. */
bool brim__upload_is_writing(brim_loader *loader, const struct brim__slot *slot);
/* Looks whether an event is done. A driver that fails when it is asked may tell of something
 * else, with the work still under way: that is waited for, and counts as failed. *over: what
 * came before the event has ended, for all that the driver says. */
brim_status brim__upload_poll(brim_loader *loader, const struct brim__event *event, bool *over);
/* The consumer may use the slot when its queue has come so far; no queue: at once. */
brim_status brim__upload_lend(brim_loader *loader, struct brim__slot *slot);

/* ------------------------------------------------------- device_batch.c */

/* A copy in the device's memory. */
brim_status brim__batch_copy_there(const brim_batch *batch, brim_batch **out);

#endif

/*
 * ring.h: slots, and the rings that they form.
 *
 * A loader is a chain of rings, each of which is filled from the one before it:
 *
 *     workers ► ring (chunks or batches) ► [sequencer's ring] ► [device ring] ► next
 *
 * A ring is an array of slots and two tickets. Every chunk or batch has a ticket, a number that
 * counts without end across epochs. The slots that are ready or being filled hold the tickets
 * [take, make) without a gap, so what is taken next always has a slot first:
 *
 *        take                        make
 *          │ ready │ ready │ filling │ (not begun)        lent, leaving: tickets below take
 *
 *   EMPTY ─ grow ► MAPPING ► FREE ─ begin ► FILLING ─ complete ► READY ─ next, upload ► LENT, LEAVING
 *     ▲               │       │ ▲             │  ▲               │ │ ▲                    │    │    │
 *     ├── refused ────┘       │ │             │  └── restart ────┘ │ └─── send again ─────┘    │    │
 *     ├────── give up ────────┘ │             │                    │                           │    │
 *     │                         ├─ dropped ───┘                    │                           │    │
 *     │                         ├─ dropped, or a chunk is used up ─┘                           │    │
 *     │                         └──────────── released, and nothing reads it ──────────────────┘    │
 *     └─────────────────────── lost: it is unknown when its reader is done ─────────────────────────┘
 *
 *   state     memory   who may change it
 *   EMPTY     none     the thread that grows the ring
 *   MAPPING   coming   that thread, which may ask for it without the loader's mutex
 *   FREE      yes      the thread that begins a delivery; revocation
 *   FILLING   yes      `busy` threads write; without any, it waits to be claimed, or (in a device
 *                      ring) for a batch that is sent again
 *   READY     yes      the next ring's thread, `next`, recall, seek
 *   LENT      yes      the consumer, which releases it
 *   LEAVING   yes      the device reads it until the event `left` is done: a staging slot whose
 *                      upload is under way, or a device slot that the consumer has released, which
 *                      was LENT
 *
 * A batch without rows goes from FREE to READY. On the host a slot is never LEAVING, and a staging
 * slot is never LENT.
 *
 * brim__slot_set asserts that each change of state is an edge of the drawing, except at closing,
 * when all memory goes; brim__chain_check asserts what is said of tickets and memory.
 *
 * The slots of a ring all have the same size. Which of them count as elastic is only a mark: it
 * moves to the slot that is given up. Batches up to `hold` are lent inside the minimum; for each
 * beyond, one slot more is firm as long as it is lent. So what is lent is never given up.
 *
 * Everything here is guarded by the loader's mutex unless a comment says otherwise.
 */
#ifndef BRIM_RING_H
#define BRIM_RING_H

#include "device/device.h"
#include "engine/state.h"
#include "memory/alloc.h"
#include "plan/plan.h"

#define BRIM__SAMPLE_ERROR 256

enum brim__slot_state {
    BRIM__SLOT_EMPTY,
    BRIM__SLOT_MAPPING,
    BRIM__SLOT_FREE,
    BRIM__SLOT_FILLING,
    BRIM__SLOT_READY,
    BRIM__SLOT_LENT,
    BRIM__SLOT_LEAVING,
};

/* What a failure leaves to be done. */
enum brim__error_of {
    BRIM__ERROR_OF_ROWS,      /* they are made again */
    BRIM__ERROR_OF_UPLOAD,    /* the rows are not at fault: they can be sent again */
    BRIM__ERROR_OF_DELIVERED, /* nothing: the batch was released before; no seek undoes that */
};

/* A failure that is kept until `next` returns it in its turn. */
struct brim__kept_error {
    brim_status status; /* BRIM_OK: none */
    bool reported;      /* `next` has returned it: asked again, what failed is tried again */
    enum brim__error_of of;
    struct brim__failure failure;
};

struct brim_batch {
    brim_batch_info info;
    brim_field *field; /* info.field_count of them, in the memory of the record */
    struct brim_loader *loader;
    struct brim__slot *slot;           /* NULL: a copy */
    struct brim__pages pages;          /* of a copy */
    struct brim__device_memory memory; /* of a copy on a device */
    struct brim__delivery delivery;
    struct brim__position resume; /* sequenced: where a loader stands after it */
};

/* Beside a slot that workers fill: its rows that are given out and made. */
struct brim__claims {
    uint32_t given, made;
    /* rows of a run that was interrupted: to be given out again. One run at most: that of
     * `next`; of a loader that is being closed nothing is given out any more */
    uint32_t returned_first, returned;
    uint32_t error_row; /* the lowest row that failed */
    uint32_t bad_first; /* first row of the lowest run with a bad sample */
    bool ended;         /* a chunk: the stream ended after it */
};

/* Beside a slot of which a device reads or writes the memory. */
struct brim__device_side {
    struct brim__device_memory memory; /* of a device slot; `pages` has what stays on the host */
    void *pin;                         /* of a staging slot ... */
    bool pinned;                       /* ... that is page-locked */
    struct brim__event ready;          /* of a device slot: its batch is there */
    struct brim__event left;           /* LEAVING: nothing reads the slot any more */
    uint64_t upload;                   /* of both slots: number of the batch's upload */
};

struct brim__slot {
    struct brim__ring *ring;
    struct brim_batch batch;  /* written when it is lent or uploaded; the user's while lent */
    struct brim__pages pages; /* their mark `elastic` is that of all the slot's memory */
    enum brim__slot_state state;
    bool abandoned; /* its ticket means nothing any more: FREE when threads and events are done */
    bool inspected; /* `next` has seen its bad samples, and they are not too many */
    uint32_t busy;  /* threads that use its memory without the mutex */
    uint64_t ticket, epoch, index;
    struct brim__delivery delivery;
    struct brim__position resume; /* sequenced: where a loader stands after it */
    uint32_t rows;
    uint32_t bad_rows, replaced_rows;
    uint32_t skipped;                  /* sequenced: bad samples met on the way to this batch */
    char bad_text[BRIM__SAMPLE_ERROR]; /* of the first of its bad samples; "": none ... */
    uint64_t bad_cause;                /* ... and its cause, as in brim_failure */
    struct brim__kept_error error;     /* of the lowest row that failed, or of the whole batch */
    struct brim__claims claims;
    struct brim__device_side device;
};

/* Where the memory of a ring's slots is. */
enum brim__ring_memory {
    BRIM__RING_HOST,
    BRIM__RING_STAGING, /* on the host, page-locked: a device copies from it */
    BRIM__RING_DEVICE,  /* on the device, with a few pages on the host */
};

/* What fills a ring. `turn` does a piece of work if there is any; the mutex is held, and
 * released meanwhile. `retry` is called when `next` is asked again after the ring's error. */
struct brim__ring_role {
    bool (*turn)(struct brim_loader *loader, bool is_next);
    void (*retry)(struct brim_loader *loader);
    /* of what cannot be made again by itself: drops all that is not lent, to be made again from
     * where the loader stands. False: that is not possible, or not now */
    bool (*go_back)(struct brim_loader *loader);
    bool quick; /* a turn is over at once: `next` does it whatever the workers do */
};

struct brim__ring {
    const struct brim__ring_role *role;
    struct brim__ring *from; /* the ring before it; NULL: workers make its rows */
    struct brim__slot *slot;
    uint32_t cap;     /* slots, however much memory is free */
    uint32_t minimum; /* of them that are firm */
    uint32_t planned; /* of them that are of use in this budget */
    uint32_t count;   /* of them that have memory, or are MAPPING */
    enum brim__ring_memory memory;
    uint64_t bytes; /* of a slot's pages */
    bool made_once; /* what it holds cannot be made again: a sequencer stands before it */
    bool grow;      /* a consumer has waited since a slot was last asked for */
    bool refused;   /* there was no memory for it */
    uint64_t take, make;
    struct brim__kept_error error; /* what failed is not one batch of it. No `turn` meanwhile */
};

/* Keeps the thread's failure `status` with its detail; returns the failure again, and marks it
 * as reported; and no failure any more. */
void brim__error_keep(struct brim__kept_error *error, brim_status status);
brim_status brim__error_report(struct brim__kept_error *error);
void brim__error_clear(struct brim__kept_error *error);

/* ------------------------------------------------------------------ ring.c */

struct brim__slot *brim__ring_find(const struct brim__ring *ring, enum brim__slot_state state,
                                   uint64_t ticket);
struct brim__slot *brim__ring_find_free(const struct brim__ring *ring);
uint32_t brim__ring_count(const struct brim__ring *ring, enum brim__slot_state state);
/* The slot of the ticket, READY or FILLING; NULL: it has none. */
struct brim__slot *brim__ring_slot(const struct brim__ring *ring, uint64_t ticket);
static inline struct brim__slot *brim__ring_head(const struct brim__ring *ring) {
    return brim__ring_slot(ring, ring->take);
}
static inline bool brim__slot_is_ready(const struct brim__slot *slot) {
    return slot != NULL && slot->state == BRIM__SLOT_READY;
}

/* Another state, to which an edge of the drawing leads. */
void brim__slot_set(struct brim__slot *slot, enum brim__slot_state state);
/* To FREE, where nothing uses it; to FILLING, with no row made; the same, or READY where it has no
 * rows; what it holds is dropped, at once or when its threads leave it. */
void brim__slot_free(struct brim__slot *slot);
void brim__slot_fill(struct brim__slot *slot);
void brim__slot_restart(struct brim__slot *slot);
void brim__slot_drop(struct brim__slot *slot);
/* All that is not lent is dropped; what comes next has this ticket. The copy of a batch that is lent
 * goes on. */
void brim__ring_abandon(struct brim__ring *ring, uint64_t ticket);

/* A slot for which the caller then gets memory; and what came of that, which it returns. */
struct brim__slot *brim__ring_add(struct brim__ring *ring);
brim_status brim__ring_added(struct brim__slot *slot, brim_status status);
/* Memory for one more slot, elastic, if it is free and more are planned; of a device ring the
 * mutex is released meanwhile. BRIM_STATUS_TIMEOUT: not now. A slot that was lost is made up
 * for: below the minimum it is firm. */
brim_status brim__ring_grow(struct brim_loader *loader, struct brim__ring *ring);
/* Slots whose memory cannot be given up. One more: an elastic one, or memory for which others
 * give way (the mutex is released meanwhile). One of them is elastic again. */
uint32_t brim__ring_firm(const struct brim__ring *ring);
brim_status brim__ring_firm_up(struct brim_loader *loader, struct brim__ring *ring);
void brim__ring_soften(struct brim_loader *loader, struct brim__ring *ring);
/* A slot's memory goes, and with it the mark of an elastic one. */
void brim__ring_give_up(struct brim_loader *loader, struct brim__slot *slot);
/* Bytes of a kind given up: free slots, then those furthest ahead. firmly: if these cannot be made
 * again one by one, what all rings hold and is not lent, where that can be made again. */
uint64_t brim__ring_revoke(struct brim_loader *loader, struct brim__ring *ring, brim_memory kind,
                           uint64_t wanted, bool firmly);
/* Slots above the minimum that brim__ring_revoke would give at once, without waiting for the
 * user or the user's code. */
uint32_t brim__ring_spare(const struct brim_loader *loader, const struct brim__ring *ring);
void brim__ring_check(const struct brim__ring *ring); /* asserts what the drawing says */

/* ----------------------------------------------------------- slot_memory.c */

/* What a slot takes of a kind of memory. */
uint64_t brim__ring_slot_bytes(const struct brim_loader *loader, const struct brim__ring *ring,
                               brim_memory kind);
/* A ring whose memory a device uses. Before slots are given up: waits until no thread fills any,
 * and looks what the device has done. A slot that is READY is still being written. Waits a little
 * for slots that are in use. On the host: does nothing; false; waits for a thread. */
void brim__ring_settle(struct brim_loader *loader, const struct brim__ring *ring);
bool brim__slot_is_written(struct brim_loader *loader, const struct brim__slot *slot);
void brim__ring_await(struct brim_loader *loader, const struct brim__ring *ring);
/* Memory for a slot, and back. No lock is held where it is firm, because others may have to give
 * way, or on a device. */
brim_status brim__slot_map(struct brim_loader *loader, struct brim__slot *slot, bool elastic);
void brim__slot_unmap(struct brim_loader *loader, struct brim__slot *slot);
/* Nothing can take its memory back from now on; and it can again. */
void brim__slot_firm_up(struct brim_loader *loader, struct brim__slot *slot);
void brim__slot_soften(struct brim_loader *loader, struct brim__slot *slot);

#endif

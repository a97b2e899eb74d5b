/*
 * loader.h: a running plan.
 *
 * Deliveries (what `next` returns) are numbered by tickets, without end across
 * epochs. The slots that are filled or being filled hold the tickets
 * [take, make) without a gap, so the batch that is wanted next always has a
 * slot first:
 *
 *      take                        make
 *        │ ready │ ready │ filling │ (not begun)        lent: tickets below take
 *
 *   EMPTY ──map──► FREE ──claim──► FILLING ──last row──► READY ──next──► LENT
 *     ▲             ▲ ▲               │ abandoned          │               │
 *     └──revoke─────┘ └───────────────┴────────────────────┘◄──release─────┘
 *
 * Threads claim runs of rows of the lowest ticket that has unclaimed rows,
 * make them without any lock, and report back. Seeking abandons what is in
 * [take, make): slots in which a thread is busy are freed when it leaves.
 *
 * In a direct plan these slots are the ones that are lent. In a sequenced plan
 * (plan/sequence.h) they are chunks: a sequencer takes their rows in order and
 * fills the slots that are lent, which know only FREE, READY and LENT. Where batches
 * are delivered on a device, slots are copied to others there, which are lent instead
 * (ship.h).
 *
 * Everything below `mutex` is guarded by it unless a comment says otherwise.
 * The loader's core lives as long as the handle or any lent batch.
 */
#ifndef BRIM_LOADER_H
#define BRIM_LOADER_H

#include "base/stop.h"
#include "device/device.h"
#include "engine/runtime.h"
#include "engine/state.h"
#include "plan/plan.h"

#define BRIM__ERRORS_KEPT  8
#define BRIM__SAMPLE_ERROR 256

enum brim__slot_state {
    BRIM__SLOT_EMPTY, /* no memory */
    BRIM__SLOT_FREE,
    BRIM__SLOT_FILLING,
    BRIM__SLOT_READY,
    BRIM__SLOT_LENT,
    BRIM__SLOT_SHIPPED, /* ship.h: its copy to the device is under way */
    BRIM__SLOT_LEAVING, /* ship.h: released, and perhaps still read there */
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

struct brim__slot {
    struct brim_batch batch; /* written when lent; the user's while lent */
    struct brim__pages pages;
    /* on a device (ship.h): of a berth its memory, with `pages` for what stays on the host */
    struct brim__device_memory memory;
    bool elastic; /* that memory */
    void *pin;    /* of a staging slot */
    bool pinned;
    struct brim__event copied;   /* a staging slot may be filled again; a berth is there */
    struct brim__event released; /* of a berth: nobody reads it any more */
    bool cleared;                /* its bad samples are not too many */
    bool stranded;               /* READY, with an error: it could not be shipped */
    enum brim__slot_state state;
    bool abandoned; /* FILLING, for nobody: free it when `busy` is 0 */
    uint64_t ticket, epoch, index;
    struct brim__delivery delivery;
    uint32_t rows, claimed, done; /* rows in all, given out, made */
    /* rows of a run that was interrupted: to be given out again. One run at most: that of
     * `next`; of a loader that is being closed nothing is given out any more */
    uint32_t returned_first, returned;
    uint32_t busy; /* threads inside */
    uint32_t bad_rows, replaced_rows;
    uint32_t skipped; /* sequenced: bad samples met on the way to this batch */
    bool ended;       /* a chunk: the stream ended behind it */
    struct brim__position resume;
    uint32_t bad_first;                /* first row of the lowest run with a bad sample ... */
    char bad_text[BRIM__SAMPLE_ERROR]; /* ... and the text of its first; "": none */
    bool told;         /* READY, and next has returned its error: made again when asked again */
    brim_status error; /* of the lowest row that failed (on_error=fail), or of the whole batch */
    uint32_t error_row;
    char error_text[BRIM__DETAIL_BYTES];
};

/* One thread's working memory. */
struct brim__scratch {
    struct brim__pages pages;
    bool busy;
};

struct brim__stage_time {
    uint64_t samples, timed_ns, timed_samples;
};

struct brim_loader {
    atomic_uint references; /* handle, lent batches, copies */
    /* counts whatever `ready` is signalled for; written under mutex, and looked
     * at without end by a `next` that waits: so it has a cache line to itself */
    _Alignas(BRIM__CACHE_LINE) atomic_uint events;
    _Alignas(BRIM__CACHE_LINE) uint32_t visitors; /* runtime's pool lock: workers inside */
    uint64_t turn;                                /* pool lock: when the last one came */
    brim_runtime *runtime;
    brim_plan *plan; /* its arena holds this struct */
    brim_budget *budget;
    bool shared; /* slots, chunks and scratch are pages that other processes can map */

    struct brim_loader *next; /* runtime's pool lock */
    atomic_bool wants;        /* may have rows to make */
    atomic_bool starving;     /* a consumer waits for rows */
    atomic_bool interrupted;  /* `next` is to return; also what it makes itself stops by it */
    atomic_bool stopping;     /* being closed: what workers make stops by it */
    brim_interrupted_callback *asked; /* of the options, or NULL ... */
    void *asked_user;                 /* ... and what it gets */
    uint64_t asked_ns;                /* when it was last; of the thread inside `next` */
    atomic_bool polls;                /* there are events of a device to look for */

    brim__mutex mutex;
    brim__condition ready; /* the head may be ready; somebody left; closing */
    bool closing;
    bool in_call;  /* a thread is inside next, seek, state or restore */
    bool revoking; /* memory is being given up: claim nothing new */
    uint32_t hold, lent;
    uint32_t beyond;         /* batches that may be lent above `hold`: see beyond.c */
    uint32_t slot_count;     /* with memory */
    struct brim__slot *slot; /* plan->slot_cap of them: those that are lent */
    struct brim__slot *ring; /* those that workers fill: the same, or chunks */
    uint32_t ring_cap;
    struct brim__sequencer *sequencer; /* NULL: a direct plan */
    struct brim__ship *ship;           /* NULL: batches are delivered on the host */
    struct brim__scratch *scratch;     /* plan->thread_cap + 1 of them; 0: firm, for `next` alone */
    uint32_t scratch_count;            /* with memory */
    _Atomic uint64_t lacking;          /* its part of the runtime's; written under the mutex */
    bool grow_slot;                    /* a consumer has waited since the last slot was added */
    bool slot_refused;                 /* there was no memory for it */
    uint64_t waiting_since;            /* the first call in vain for the next batch; 0: none */
    bool idle;                         /* nobody comes: others have its elastic memory first */
    uint64_t used_ns, gap_ns;          /* when `next` was last called or left; mean between */

    uint64_t take_ticket, make_ticket;
    uint64_t take_epoch, take_index; /* of the next batch */
    uint64_t make_epoch, make_index; /* of the next delivery to begin */
    uint64_t base, base_epoch;       /* a restored epoch that begins at `base` */
    uint64_t epoch_bad;              /* samples skipped or replaced in this epoch */
    uint64_t ns_per_row;             /* running mean; 0: unknown */
    uint64_t runs;
    bool cold; /* reads take long: give advice */

    /* a stream, which one thread at a time pulls from */
    bool pulling, stream_ended;
    bool stuck;         /* the system failed: nobody pulls until `next` has said so */
    bool rewind;        /* before the next pull: to stream_at of make_epoch */
    uint64_t stream_at; /* number of the next sample */
    /* samples that `next` pulled and did not make, because it was interrupted: they lie in
     * its scratch, and their chunk waits, with no thread inside. slot NULL: none */
    struct {
        struct brim__slot *slot;
        const uint8_t *records;
        uint64_t sample;
    } unmade;

    uint64_t opened_ns, regrown_ns;
    brim_stats stats;
    struct brim__stage_time *stage; /* plan->info.stage_count */
    char detail[BRIM__DETAIL_BYTES];
    char error[BRIM__ERRORS_KEPT][BRIM__SAMPLE_ERROR]; /* ring; the latest at errors - 1 */
    uint64_t errors;
};

struct brim__run;

/* open.c */
/* Pages for a slot, a chunk or a scratch: of the kind that the loader was opened with. */
brim_status brim__loader_pages(brim_loader *loader, struct brim__pages *pages, uint64_t bytes,
                               bool elastic);
void brim__loader_ref(brim_loader *loader);
void brim__loader_unref(brim_loader *loader);

/* next.c, with the mutex held: of the next batch; and whether that epoch is known to
 * have none */
uint64_t brim__loader_epoch(const brim_loader *loader);
bool brim__loader_at_end(brim_loader *loader);

/* caches.c. Stamping looks at all files, and needs memory meanwhile that slots have later. */
brim_status brim__caches_stamp(brim_loader *loader, const brim_open_options *options);
brim_status brim__caches_start(brim_loader *loader);
void brim__caches_stop(brim_loader *loader); /* nobody makes rows any more */

/* sharing.c. A consumer comes, at `now`. mutex held. */
void brim__loader_used(brim_loader *loader, uint64_t now);
/* A consumer waits: what the loader lacks is taken from those who lose less by it, and
 * workers that were stopped come back, if the last attempt is some time ago. The mutex is
 * held, and released meanwhile. */
void brim__loader_regrow(brim_loader *loader, uint64_t now);
/* Workers, scratch and a slot that were planned, are of use and are not there, in bytes.
 * The mutex is held, or nobody else has the loader yet. And tells the runtime, after a
 * change. */
uint64_t brim__loader_lacks(const brim_loader *loader);
void brim__loader_note_lacking(brim_loader *loader);

/* slots.c: all with the mutex held */
struct brim__slot *brim__slot_head(brim_loader *loader); /* of take_ticket, or NULL */
struct brim__slot *brim__slot_find_free(struct brim__slot *slots, uint32_t count);
/* A run of rows of the lowest ticket that has any left; head_only: of the batch
 * that is wanted next, no other. */
bool brim__slot_claim(brim_loader *loader, bool head_only, struct brim__slot **slot,
                      uint32_t *first, uint32_t *count);
/* Something happened that a thread may wait for; it is woken by the caller's
 * brim__broadcast(&loader->ready), best after unlocking. */
static inline void brim__loader_event(brim_loader *loader) {
    atomic_fetch_add(&loader->events, 1);
}
/* Memory for one more slot or scratch, elastic, if free and not at the cap. */
bool brim__slot_grow(brim_loader *loader);
bool brim__scratch_grow(brim_loader *loader);
void brim__slot_free(struct brim__slot *slot);    /* to FREE */
void brim__slot_restart(struct brim__slot *slot); /* its delivery is made from the beginning */
void brim__slots_abandon(brim_loader *loader);    /* everything in [take, make) */
struct brim__shard brim__loader_shard(const brim_loader *loader, uint64_t epoch);
void brim__slots_check(const brim_loader *loader); /* asserts what the drawing says */
/* Takes the locks itself. A brim__revoke. */
uint64_t brim__loader_revoke(void *holder, brim_memory kind, uint64_t wanted);

/* beyond.c, with the mutex held: slots that cannot be given up; a firm slot for one batch more than are lent, which is refused
 * where the budget has none (the mutex is released meanwhile); and after a release: what is no
 * longer lent beyond the minimum is elastic again. */
uint32_t brim__slots_firm(const brim_loader *loader);
brim_status brim__beyond_take(brim_loader *loader);
void brim__beyond_return(brim_loader *loader);

/* batch.c: lays the fields over a slot's memory; info.rows is set */
void brim__batch_layout(struct brim_batch *batch, const brim_plan *plan, uint8_t *memory);

/* work.c: makes one run of rows if there is any; `next` only for the batch that
 * it waits for. Takes the mutex itself. */
bool brim__loader_work(brim_loader *loader, bool is_next);

/* work.c: the stages that act on whole batches, on one that is complete otherwise,
 * until one fails. No lock held; takes the mutex to count their time. */
brim_status brim__batch_act(brim_loader *loader, const struct brim__batch_call *call);

/* work.c, for stream.c: the beginning and the end of a run. mutex held. */
struct brim__scratch *brim__scratch_take(brim_loader *loader, bool is_next);
void brim__run_begin(struct brim__run *run, brim_loader *loader, const struct brim__slot *slot,
                     const struct brim__scratch *scratch, bool is_next);
/* Reports what became of the run, and releases the mutex. */
void brim__run_end(struct brim__run *run, struct brim__slot *slot, struct brim__scratch *scratch,
                   uint64_t took);

/* Nobody can use this thread now: gives the scratch back (NULL: none), and
 * releases the mutex. */
void brim__nothing_to_do(brim_loader *loader, bool is_next, struct brim__scratch *scratch);

/* stream.c: pulls samples of a stream into a chunk and makes them, if it can.
 * The mutex is held before, and not after. */
bool brim__stream_work(brim_loader *loader, bool is_next);

/* rows.c: makes rows [first, first + count) of a slot; no lock held. */
struct brim__run {
    brim_loader *loader;
    struct brim__stop stop;
    const struct brim__slot *slot;
    uint8_t *slot_memory;
    uint8_t *scratch;
    brim_region batch_region, scratch_region;
    uint32_t first, count;
    bool timed; /* measure each stage */
    bool advise;
    /* results */
    bool interrupted; /* nothing of it counts: its rows are made again */
    brim_status error;
    uint32_t error_row;
    uint32_t bad_rows, replaced_rows;
    uint64_t read_bytes;
    uint64_t slowest_fetch_ns;
    uint64_t stage_ns[BRIM__MAX_STAGES]; /* when timed */
    char error_text[BRIM__DETAIL_BYTES];
    uint32_t texts;
    char text[2][BRIM__SAMPLE_ERROR]; /* of the first bad samples */
};
void brim__rows_make(struct brim__run *run);
/* The same for run->count samples of a stream, from number `sample` on, whose
 * records were pulled; and for one that could not be, because it is bad, or
 * because nothing can be (stuck). */
void brim__rows_pulled(struct brim__run *run, uint64_t sample, const uint8_t *records);
void brim__rows_unpulled(struct brim__run *run, uint64_t sample, brim_status status, bool stuck);

#endif

/*
 * loader.h: a running plan.
 *
 * What it makes goes through a chain of rings (ring.h, chain.h):
 *
 *     workers ► ring ► next                          a direct plan
 *     workers ► chunks ► sequencer's ring ► next     samples are placed one after the other
 *     workers ► ring ► device ring ► next            batches are delivered on a device
 *     workers ► chunks ► sequencer's ring ► device ring ► next      both
 *
 * | what happens to a batch | file |
 * |---|---|
 * | rows are given out, made, counted | claim.c, make.c, make_rows.c, make_stream.c |
 * | rows are assigned to batches, in order | sequencer.c, sequencer_input.c, pack.c, reorder.c |
 * | it is copied to a device | upload.c, upload_queue.c, upload_failure.c |
 * | it is waited for, lent, given back | next.c, lend.c, release.c |
 * | the loader goes to another step | seek.c, position_direct.c, position_sequenced.c |
 *
 * Everything below `mutex` is guarded by it unless a comment says otherwise.
 * The loader's core lives as long as the handle or any lent batch.
 */
#ifndef BRIM_LOADER_H
#define BRIM_LOADER_H

#include "base/stop.h"
#include "engine/ring.h"
#include "engine/runtime.h"

#define BRIM__MOST_RINGS 3
#define BRIM__POLL_NS    100000 /* between two looks for what a device has done */

/* One thread's working memory. */
struct brim__scratch {
    struct brim__pages pages;
    bool busy;
};

struct brim__stage_time {
    uint64_t samples, timed_ns, timed_samples;
};

/* A delivery: what workers fill and number by `index` in an epoch, a batch or a chunk. */
struct brim__cursor {
    uint64_t epoch, index;
};

/* A stream, which one thread at a time pulls from. */
struct brim__pulls {
    bool pulling, ended;
    bool stuck;  /* the system failed: no thread pulls until `next` has returned that */
    bool rewind; /* before the next pull: to `at` of loader->reached.begun.epoch */
    uint64_t at; /* number of the next sample */
    /* samples that `next` pulled and did not make, because it was interrupted: they lie in
     * its scratch, and their chunk waits, with no thread inside. slot NULL: none */
    struct {
        struct brim__slot *slot;
        const uint8_t *records;
        uint64_t sample;
    } unmade;
};

/* Of the runtime's pool, under its lock. */
struct brim__visits {
    uint32_t visitors;        /* workers inside */
    uint64_t turn;            /* when the last one came */
    struct brim_loader *next; /* in the list of the runtime */
};

/* How far the loader is. */
struct brim__reached {
    struct brim__cursor taken; /* the next that `next` lends or, of chunks, the sequencer takes */
    struct brim__cursor begun; /* the next to begin */
    uint64_t base, base_epoch; /* a restored epoch that begins at `base` */
    uint64_t epoch_bad;        /* samples skipped or replaced in this epoch */
};

/* How long rows take. */
struct brim__pace {
    uint64_t ns_per_row; /* running mean; 0: unknown */
    uint64_t runs;
    bool cold; /* reads take long: give advice */
};

/* What the program can ask for. */
struct brim__report {
    uint64_t opened_ns;
    brim_stats stats;
    struct brim__stage_time *stage;               /* plan->info.stage_count */
    struct brim__failure failure;                 /* the last of `next`, seek, state and restore */
    struct brim__failure error[BRIM_ERRORS_KEPT]; /* of bad samples, a ring ... */
    uint64_t errors;                              /* ... of which the latest is errors - 1 */
};

/* How the consumer behaves. */
struct brim__consumer {
    uint64_t waiting_since;           /* the first call that did not get the next batch; 0: none */
    uint64_t used_ns, gap_ns;         /* when `next` was last called or left; mean between */
    brim_interrupted_callback *asked; /* of the options, or NULL ... */
    void *asked_user;                 /* ... and what it gets */
    uint64_t asked_ns;                /* when it was last; of the thread inside `next` */
};

struct brim_loader {
    atomic_uint references; /* handle, lent batches, copies */
    /* counts whatever `ready` is signalled for; written under the mutex. A `next` that waits
     * reads it in a loop, so it has a cache line to itself */
    _Alignas(BRIM__CACHE_LINE) atomic_uint events;
    _Alignas(BRIM__CACHE_LINE) struct brim__visits visits;

    /* what does not change after opening */
    brim_runtime *runtime;
    brim_plan *plan; /* its arena holds this struct */
    brim_budget *budget;
    bool shared;           /* slots, chunks and scratch are pages that other processes can map */
    uint32_t hold, beyond; /* batches that may be lent, and how many more above them */
    uint32_t ring_count;
    struct brim__ring *rows;                   /* the first: batches, or chunks */
    struct brim__ring *batches;                /* that of batches on the host */
    struct brim__ring *last;                   /* batches are lent from it */
    struct brim__sequencer *sequencer;         /* beside its ring; NULL: a direct plan */
    const struct brim__position_ops *position; /* as the kind of plan has it */
    struct brim__uploader *uploader;           /* beside the device ring; NULL: there is none */

    atomic_bool wants;       /* there may be work for a worker ... */
    atomic_uint wanted;      /* ... as often as that was said */
    atomic_bool starving;    /* a consumer waits for rows */
    atomic_bool interrupted; /* `next` is to return; also what it makes itself stops by it */
    atomic_bool stopping;    /* being closed: what workers make stops by it */
    atomic_bool polls;       /* there are events of a device to look for */

    brim__mutex mutex;
    brim__condition ready; /* the head may be ready; a thread has left; closing */
    bool news;             /* `ready` is signalled when the mutex is released */
    bool closing;
    bool in_call;  /* a thread is inside next, seek, state or restore */
    bool revoking; /* memory is being given up: claim nothing new */
    bool idle;     /* no call has come for long: others have its elastic memory first */
    uint32_t lent;

    struct brim__ring ring[BRIM__MOST_RINGS];
    struct brim__scratch *scratch; /* plan->thread_cap + 1 of them; 0: firm, for `next` alone */
    uint32_t scratch_count;        /* with memory */
    _Atomic uint64_t lacking;      /* its part of the runtime's; written under the mutex */
    uint64_t regrown_ns;

    struct brim__reached reached;
    struct brim__pace pace;
    struct brim__pulls stream;
    struct brim__consumer consumer;
    struct brim__report report;
};

/* With assertions, all that the drawings say is checked where a thread that has changed something
 * leaves the loader or waits in it. */
#ifdef NDEBUG
#define BRIM__CHECK_CHAIN(loader) ((void)0)
#else
#define BRIM__CHECK_CHAIN(loader) brim__chain_check(loader)
#endif
void brim__chain_check(const brim_loader *loader);

/* There may be work for a worker. From any thread. */
static inline void brim__loader_want(brim_loader *loader) {
    atomic_fetch_add(&loader->wanted, 1);
    atomic_store(&loader->wants, true);
}
/* Something happened that a thread may wait for: it is woken when the mutex is released, so
 * that it does not meet a held lock. mutex held. */
static inline void brim__loader_event(brim_loader *loader) {
    atomic_fetch_add(&loader->events, 1);
    loader->news = true;
}
/* Releases the mutex and wakes the threads that wait for events. A thread inside the loader does
 * it, so that the loader is still there. */
static inline void brim__loader_unlock(brim_loader *loader) {
    BRIM__CHECK_CHAIN(loader);
    const bool news = loader->news;
    loader->news = false;
    brim__unlock(&loader->mutex);
    if (news) {
        brim__broadcast(&loader->ready);
    }
}
/* Waits for an event, with the mutex held, and released meanwhile. */
static inline void brim__loader_wait(brim_loader *loader, uint64_t deadline) {
    BRIM__CHECK_CHAIN(loader);
    if (loader->news) {
        loader->news = false;
        brim__broadcast(&loader->ready);
    }
    brim__wait(&loader->ready, &loader->mutex, deadline);
}

/* open.c */
/* Pages for a slot, a chunk or a scratch: of the kind that the loader was opened with. */
brim_status brim__loader_pages(brim_loader *loader, struct brim__pages *pages, uint64_t bytes,
                               bool elastic);
void brim__loader_ref(brim_loader *loader);
void brim__loader_unref(brim_loader *loader);

/* seek.c. Enters a call that only one thread may be in; with BRIM_OK the mutex is held until
 * brim__loader_leave. wake: there may be something to do for a worker. */
brim_status brim__loader_enter(brim_loader *loader);
void brim__loader_leave(brim_loader *loader, bool wake);
/* Remembers the thread's detail as the loader's, and returns the status; mutex held. */
brim_status brim__loader_keep_detail(brim_loader *loader, brim_status status);

/* stats.c. The failure of a bad sample that was met: all that is known of it, if it is one of the
 * last, else its text and cause. mutex held. */
brim_status brim__fail_bad(const brim_loader *loader, const char *text, uint64_t cause);

/* lend.c, with the mutex held: lends the batch in the slot. With BRIM_OK and *out left as it is,
 * it was passed over, or only looked at before it is uploaded. A failure says why it may not be
 * lent. */
brim_status brim__lend(brim_loader *loader, struct brim__slot *slot, brim_batch **out);
/* It is empty, and will not be lent. */
bool brim__lend_passes_over(const brim_loader *loader, const struct brim__slot *slot);
/* Makes sure that one more batch may be lent and has a slot; a failure says why not and names the
 * batches that are lent. BRIM_OK too as long as it is unknown whether the epoch has one more. The
 * mutex is released meanwhile. Whether it may be lent. After a release: a slot that was firm for a
 * batch beyond `hold` is elastic again. */
brim_status brim__lend_begin(brim_loader *loader);
bool brim__lend_is_begun(const brim_loader *loader);
void brim__lend_end(brim_loader *loader);
/* Slots of the last ring that are firm at most. */
uint64_t brim__lend_firm(const brim_loader *loader);

/* caches.c. Stamping looks at all files; the memory that it needs meanwhile goes to slots later. */
brim_status brim__caches_stamp(brim_loader *loader, const brim_open_options *options);
brim_status brim__caches_start(brim_loader *loader);
void brim__caches_stop(brim_loader *loader); /* no thread makes rows any more */

/* contention.c. A consumer comes, at `now`. mutex held. */
void brim__loader_used(brim_loader *loader, uint64_t now);
/* A consumer waits: what the loader lacks is taken from holders that lose less by it, and
 * workers that were stopped are started again, if the last attempt is some time ago. The mutex
 * is held, and released meanwhile. */
void brim__loader_regrow(brim_loader *loader, uint64_t now);
/* Bytes of workers, scratch and a slot that were planned, are of use and are not there. The
 * mutex is held, or no other thread has the loader yet. The second tells the runtime, after a
 * change. */
uint64_t brim__loader_lacks(const brim_loader *loader);
void brim__loader_note_lacking(brim_loader *loader);

/* batch.c: lays the fields over a slot's memory; info.rows is set */
void brim__batch_layout(struct brim_batch *batch, const brim_plan *plan, uint8_t *memory);

#endif

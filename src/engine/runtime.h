/*
 * runtime.h: a budget and a pool of workers.
 *
 * Workers serve all loaders of the runtime, one run of rows at a time. A worker
 * is a stack of its own, charged elastically to the budget "workers": it is
 * started when a loader could use it, and stopped when its memory is needed
 * elsewhere. Its record lies in the last page of its stack's pages.
 *
 * The lock order is in docs/design.md. A worker that is to stop is taken off the list under the
 * pool's lock and joined without it.
 */
#ifndef BRIM_RUNTIME_H
#define BRIM_RUNTIME_H

#include "base/platform.h"
#include "memory/alloc.h"
#include "plan/plan.h"

#include <stdatomic.h>

#define BRIM__MOST_THREADS 256

struct brim__worker {
    struct brim__pages pages; /* holds this record */
    brim_runtime *runtime;
    struct brim__worker *next; /* pool */
    brim__thread thread;
    uint64_t usable;         /* stack for running rows */
    bool quit;               /* pool */
    bool in_callback_loader; /* pool: may be inside the user's code */
};

struct brim_runtime {
    atomic_uint references; /* the handle, each loader core */
    uint32_t process;
    brim_budget *budget;
    brim_budget *workers_budget;
    uint64_t base_bytes; /* charged before any loader */
    uint32_t threads;    /* most workers */
    uint32_t cpus;       /* that this process may use */
    char origin[BRIM__ORIGIN_BYTES];
    char *index_dir; /* a copy, charged; NULL: none was given */
    bool trust_foreign;
    brim_log_callback *log; /* NULL: none; see engine/log.h */
    void *log_user;

    brim__mutex devices; /* their limits are being set */
    brim__mutex pool;
    brim__condition work; /* something to do, or quit */
    brim__condition left; /* a worker has left a loader or ended a run */
    /* under pool: */
    struct brim__worker *workers;
    /* written under the lock, read by `next` without it: */
    atomic_uint worker_count;
    atomic_uint large_count; /* those of them with a stack for users' callbacks */
    struct brim_loader *loaders;
    uint32_t loader_count;
    uint64_t loaders_opened;
    uint64_t turns; /* of workers with loaders, so far */
    bool polling;   /* a worker that sleeps looks for events of devices */

    atomic_uint sleepers; /* workers waiting for work */
    /* bytes that the loaders have planned for slots, scratch and workers and do not have:
     * caches leave them free */
    _Atomic uint64_t lacking;
};

void brim__runtime_ref(brim_runtime *runtime);
void brim__runtime_unref(brim_runtime *runtime);
static inline bool brim__runtime_forked(const brim_runtime *runtime) {
    return runtime->process != brim__process();
}
brim_status brim__forked(void); /* the error of every call in a forked child */

/* A device is about to be used: without a limit given, it gets one at its first use. */
struct brim__device;
brim_status brim__runtime_use(brim_runtime *runtime, const struct brim__device *device);
/* Pool held: some loader waits for events of a device; and has workers look for them. */
bool brim__pool_polls(brim_runtime *runtime);
void brim__pool_poll(brim_runtime *runtime);

/* Starts workers until `wanted` run whose stacks have `usable` bytes, as far as
 * memory is free; replaces smaller ones. Never an error: fewer are fewer. */
void brim__pool_grow(brim_runtime *runtime, uint32_t wanted, uint64_t usable);
/* Wakes a worker if one sleeps. No lock of pool or loader may be held. */
void brim__pool_wake(brim_runtime *runtime);
void brim__pool_enter(brim_runtime *runtime, struct brim_loader *loader);
/* Takes the loader off; returns when no worker is inside it. */
void brim__pool_leave(brim_runtime *runtime, struct brim_loader *loader);
uint64_t brim__pool_revoke(void *holder, brim_memory kind, uint64_t wanted,
                           bool firmly); /* a brim__revoke */
void brim__pool_stop(brim_runtime *runtime);
/* Workers whose stack suits a plan. */
static inline uint32_t brim__pool_suited(brim_runtime *runtime, bool callback) {
    return callback ? atomic_load(&runtime->large_count) : atomic_load(&runtime->worker_count);
}

#endif

/*
 * pool.c: the workers of a runtime.
 *
 * A worker looks for a loader that wants rows, makes one run there and looks again. Loaders whose
 * consumers wait come first, of these the one with fewest workers inside, and of equals the one to
 * which a worker last came longest ago. So workers are shared out evenly, and a worker that works
 * ahead turns to a loader whose consumer waits after a single run. It sleeps only when no loader
 * wants anything. No wake-up is lost: a loader first sets its want, then looks for sleepers; a
 * worker first counts itself as a sleeper, then looks for wants. Both use sequentially consistent
 * atomics.
 */
#include "engine/chain.h"
#include "engine/upload.h"

#include <stdio.h>

/* pool held */
static bool suits(const struct brim__worker *worker, brim_loader *loader) {
    return atomic_load(&loader->wants) && loader->plan->stack_usable <= worker->usable &&
           loader->plan->info.threads > loader->visits.visitors;
}

/* pool held: whether `a` is to be served before `b`. */
static bool comes_before(brim_loader *a, brim_loader *b) {
    const bool a_starves = atomic_load(&a->starving), b_starves = atomic_load(&b->starving);
    if (a_starves != b_starves) {
        return a_starves;
    }
    return a->visits.visitors != b->visits.visitors ? a->visits.visitors < b->visits.visitors
                                                    : a->visits.turn < b->visits.turn;
}

/* pool held: the loader to serve now, or NULL. */
static brim_loader *pick(brim_runtime *runtime, const struct brim__worker *worker) {
    brim_loader *first = NULL;
    for (brim_loader *loader = runtime->loaders; loader != NULL; loader = loader->visits.next) {
        if (suits(worker, loader) && (first == NULL || comes_before(loader, first))) {
            first = loader;
        }
    }
    return first;
}

/* pool held, released meanwhile. While there are events of devices to look for, one of the
 * workers that sleep looks every now and then: true if it was this one. */
static bool sleep_until_work(brim_runtime *runtime) {
    if (runtime->polling || !brim__pool_polls(runtime)) {
        brim__wait(&runtime->work, &runtime->pool, UINT64_MAX);
        return false;
    }
    runtime->polling = true;
    brim__wait(&runtime->work, &runtime->pool, brim__now() + BRIM__POLL_NS);
    runtime->polling = false;
    brim__pool_poll(runtime);
    return true;
}

/* pool held: a worker that looked for events leaves, or cannot do the work that it found: another
 * one is to look. */
static void hand_over(brim_runtime *runtime) {
    if (brim__pool_polls(runtime)) {
        brim__broadcast(&runtime->work);
    }
}

static void *run_worker(void *argument) {
    struct brim__worker *worker = argument;
    brim_runtime *runtime = worker->runtime;
    bool polled = false; /* just now, for events of devices */
    brim__lock(&runtime->pool);
    while (!worker->quit) {
        brim_loader *loader = pick(runtime, worker);
        if (loader == NULL) {
            atomic_fetch_add(&runtime->sleepers, 1);
            if (pick(runtime, worker) == NULL && !worker->quit) {
                polled = sleep_until_work(runtime);
            }
            atomic_fetch_sub(&runtime->sleepers, 1);
            const bool mixed =
                runtime->large_count > 0 && runtime->large_count < runtime->worker_count;
            if (polled && (worker->quit || mixed)) {
                hand_over(runtime);
            }
            continue;
        }
        if (polled && atomic_load(&runtime->sleepers) > 0) {
            hand_over(runtime);
        }
        polled = false;
        loader->visits.visitors++;
        loader->visits.turn = ++runtime->turns;
        worker->in_callback_loader = loader->plan->callback;
        brim__unlock(&runtime->pool);
        brim__chain_turn(loader, false);
        brim__lock(&runtime->pool);
        worker->in_callback_loader = false;
        loader->visits.visitors--;
        brim__broadcast(&runtime->left);
    }
    brim__unlock(&runtime->pool);
    return NULL;
}

void brim__pool_wake(brim_runtime *runtime) {
    if (atomic_load(&runtime->sleepers) > 0) {
        brim__lock(&runtime->pool);
        if (runtime->large_count == 0 || runtime->large_count == runtime->worker_count) {
            brim__signal(&runtime->work);
        } else {
            brim__broadcast(&runtime->work); /* the one that wakes must suit the loader */
        }
        brim__unlock(&runtime->pool);
    }
}

/* A worker with its stack, not yet on the list; NULL when memory or threads
 * are short, which is no failure: there is one worker less. */
static struct brim__worker *start(brim_runtime *runtime, uint64_t usable) {
    struct brim__pages pages;
    const size_t page = brim__page_bytes();
    const size_t stack = brim__thread_stack_bytes(usable);
    if (brim__pages_new(&pages, runtime->workers_budget, stack + page, true, true) != BRIM_OK) {
        return NULL;
    }
    struct brim__worker *worker = (struct brim__worker *)(void *)(pages.memory + stack);
    static_assert(sizeof *worker <= 4096, "a worker's record fits one page");
    worker->pages = pages;
    worker->runtime = runtime;
    worker->usable = usable;
    if (brim__thread_start(&worker->thread, pages.memory, stack, "brim-worker", run_worker,
                           worker) != BRIM_OK) {
        brim__pages_free(&pages);
        return NULL;
    }
    return worker;
}

/* Joins a worker that was told to quit and is off the list; no lock held. */
static uint64_t reap(struct brim__worker *worker) {
    struct brim__pages pages = worker->pages; /* holds the worker */
    const uint64_t bytes = pages.bytes;
    brim__thread_join(worker->thread);
    brim__pages_free(&pages);
    return bytes;
}

/* pool held: takes a worker off the list and tells it to quit. */
static void dismiss(brim_runtime *runtime, struct brim__worker *worker) {
    struct brim__worker **link = &runtime->workers;
    while (*link != worker) {
        link = &(*link)->next;
    }
    *link = worker->next;
    runtime->worker_count--;
    runtime->large_count -= worker->usable >= BRIM__STACK_CALLBACK;
    worker->quit = true;
    brim__broadcast(&runtime->work);
}

/* pool held: a worker whose stack is below `usable` and that is not in the
 * user's code (no thread waits for that), or NULL. */
static struct brim__worker *find_smaller(brim_runtime *runtime, uint64_t usable) {
    for (struct brim__worker *worker = runtime->workers; worker != NULL; worker = worker->next) {
        if (worker->usable < usable && !worker->in_callback_loader) {
            return worker;
        }
    }
    return NULL;
}

/* pool held, released meanwhile: makes room for a worker among those that the
 * runtime runs at most, by stopping one that is too small, if its successor
 * will have memory: else there would be one worker less for all loaders. */
static bool replace_smaller(brim_runtime *runtime, uint64_t usable) {
    struct brim__worker *smaller = find_smaller(runtime, usable);
    const uint64_t needed = brim__thread_stack_bytes(usable) + brim__page_bytes();
    if (smaller == NULL ||
        needed > smaller->pages.bytes +
                     brim__budget_free_now(runtime->workers_budget, BRIM_MEMORY_HOST)) {
        return false;
    }
    dismiss(runtime, smaller);
    brim__unlock(&runtime->pool);
    reap(smaller);
    brim__lock(&runtime->pool);
    return true;
}

void brim__pool_grow(brim_runtime *runtime, uint32_t wanted, uint64_t usable) {
    brim__lock(&runtime->pool);
    while (brim__pool_suited(runtime, usable >= BRIM__STACK_CALLBACK) < wanted) {
        if (runtime->worker_count >= runtime->threads) {
            if (!replace_smaller(runtime, usable)) {
                break;
            }
            continue; /* the lock was released: look again */
        }
        /* the new one waits for the pool's lock before it looks at the list */
        struct brim__worker *worker = start(runtime, usable);
        if (worker == NULL) {
            break;
        }
        worker->next = runtime->workers;
        runtime->workers = worker;
        runtime->worker_count++;
        runtime->large_count += usable >= BRIM__STACK_CALLBACK;
    }
    brim__unlock(&runtime->pool);
}

void brim__pool_enter(brim_runtime *runtime, brim_loader *loader) {
    brim__lock(&runtime->pool);
    loader->visits.next = runtime->loaders;
    runtime->loaders = loader;
    runtime->loader_count++;
    brim__unlock(&runtime->pool);
}

void brim__pool_leave(brim_runtime *runtime, brim_loader *loader) {
    brim__lock(&runtime->pool);
    struct brim_loader **link = &runtime->loaders;
    while (*link != loader) {
        link = &(*link)->visits.next;
    }
    *link = loader->visits.next;
    runtime->loader_count--;
    while (loader->visits.visitors > 0) {
        brim__wait(&runtime->left, &runtime->pool, UINT64_MAX);
    }
    brim__unlock(&runtime->pool);
}

/* Caches leave free what the loaders' workers need to come back. */
static void note_lacking(brim_runtime *runtime) {
    brim__lock(&runtime->pool);
    for (struct brim_loader *loader = runtime->loaders; loader != NULL;
         loader = loader->visits.next) {
        brim__lock(&loader->mutex);
        brim__loader_note_lacking(loader);
        brim__unlock(&loader->mutex);
    }
    brim__unlock(&runtime->pool);
}

uint64_t brim__pool_revoke(void *holder, brim_memory kind, uint64_t wanted, bool firmly) {
    (void)kind;   /* nothing else is elastic */
    (void)firmly; /* all of it is soon made again */
    brim_runtime *runtime = holder;
    uint64_t freed = 0;
    while (freed < wanted) {
        brim__lock(&runtime->pool);
        struct brim__worker *worker = find_smaller(runtime, UINT64_MAX);
        if (worker != NULL) {
            dismiss(runtime, worker);
        }
        brim__unlock(&runtime->pool);
        if (worker == NULL) {
            break;
        }
        freed += reap(worker);
    }
    note_lacking(runtime);
    return freed;
}

void brim__pool_stop(brim_runtime *runtime) {
    for (;;) {
        brim__lock(&runtime->pool);
        struct brim__worker *worker = runtime->workers;
        if (worker != NULL) {
            dismiss(runtime, worker);
        }
        brim__unlock(&runtime->pool);
        if (worker == NULL) {
            return;
        }
        reap(worker);
    }
}

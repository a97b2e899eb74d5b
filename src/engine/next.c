/*
 * next.c: waiting for the next batch, and being interrupted.
 *
 * `next` waits for the head of the last ring to be ready. It makes rows itself when no
 * worker serves the loader, and also when workers exist but none has taken the
 * rows it waits for within HELP_NS (all are busy elsewhere, perhaps in a
 * callback that itself waits): so it always makes progress, also when it is
 * called again and again with a time-out of 0. Rows of other batches are left
 * to the workers: during a slow callback it could not see an interrupt.
 *
 * Small batches come every few dozen microseconds; sleeping and being woken would cost as much as
 * making them. So a wait begins by polling for SPIN_NS, if the workers leave a CPU for that.
 */
#include "base/struct.h"
#include "engine/chain.h"
#include "engine/log.h"
#include "engine/position.h"

#define HELP_NS 2000000
#define SPIN_NS 50000

/* ----------------------------------------------------------------- waiting */

/* Mutex held, released meanwhile: workers may sleep because there was nothing to
 * do, or no scratch to be had while memory was being collected. */
static void call_workers(brim_loader *loader) {
    brim__loader_want(loader);
    if (atomic_load(&loader->runtime->sleepers) > 0) {
        brim__loader_unlock(loader); /* in_call keeps the loader */
        brim__pool_wake(loader->runtime);
        brim__lock(&loader->mutex);
    }
}

/* Mutex held, released meanwhile: true as soon as something has happened. */
static bool look(brim_loader *loader, uint64_t until) {
    const unsigned seen = atomic_load(&loader->events);
    brim__loader_unlock(loader);
    while (atomic_load(&loader->events) == seen && brim__now() < until) {
        brim__relax();
    }
    brim__lock(&loader->mutex);
    return atomic_load(&loader->events) != seen;
}

/* Mutex held, released meanwhile: asks the program now and then whether to go on. Decoders do
 * so too while they are at one image. */
static void ask(brim_loader *loader) {
    struct brim__consumer *consumer = &loader->consumer;
    if (consumer->asked == NULL || brim__now() - consumer->asked_ns < BRIM__ASK_NS) {
        return;
    }
    consumer->asked_ns = brim__now();
    brim__loader_unlock(loader); /* in_call keeps the loader */
    if (consumer->asked(consumer->asked_user) != 0) {
        atomic_store(&loader->interrupted, true);
    }
    brim__lock(&loader->mutex);
}

/* Whether `next` makes rows itself: there are no workers (they may also have been
 * stopped for their memory), or none has come; or the workers leave no CPU, so that
 * sleeping and being woken gains nothing. It leaves the user's code to workers that
 * are running it: that may take long, and a `next` with a deadline, such as that of an
 * interpreter that looks at its signals, could not return meanwhile. */
static bool helps(const brim_loader *loader, uint64_t now) {
    const brim_plan *plan = loader->plan;
    if (brim__chain_needs_next(loader)) {
        return true;
    }
    if (plan->info.threads == 0 || brim__pool_suited(loader->runtime, plan->callback) == 0) {
        return true;
    }
    const bool alone = now - loader->consumer.waiting_since >= HELP_NS;
    return plan->callback ? alone && !brim__chain_is_worked_at(loader)
                          : alone || plan->info.threads >= loader->runtime->cpus;
}

/* The head is not ready: makes rows, or waits for the threads that do. */
static void await(brim_loader *loader, uint64_t deadline) {
    const uint64_t now = brim__now();
    brim__chain_grow(loader);
    brim__loader_regrow(loader, now);
    const bool help = helps(loader, now);
    if (help) {
        brim__loader_unlock(loader);
        const bool did = brim__chain_turn(loader, true);
        brim__lock(&loader->mutex);
        if (did) {
            return;
        }
    }
    if (!help && look(loader, brim__min(deadline, now + SPIN_NS))) {
        return;
    }
    if (!brim__slot_is_ready(brim__chain_head(loader)) && !loader->closing &&
        !loader->position->at_end(loader) && brim__chain_error(loader, false) == NULL &&
        !atomic_load(&loader->interrupted)) {
        const uint64_t most = atomic_load(&loader->polls) ? BRIM__POLL_NS : HELP_NS;
        brim__loader_wait(loader, brim__min(deadline, now + most));
    }
}

static brim_status take(brim_loader *loader, uint64_t deadline, brim_batch **out) {
    bool helped = false; /* without workers a call that may not wait still makes some rows */
    for (;;) {
        brim__chain_push(loader);
        struct brim__ring *failed = brim__chain_error(loader, true);
        if (failed != NULL && !loader->closing) {
            return brim__error_report(&failed->error);
        }
        /* a device slot may have been lost */
        const brim_status room = loader->closing ? BRIM_OK : brim__lend_begin(loader);
        if (room != BRIM_OK && !loader->closing) {
            return room;
        }
        if (loader->lent >= loader->hold) { /* there is a slot more to be filled */
            if (!helped) {
                call_workers(loader);
            }
            brim__chain_push(loader);
        }
        if (loader->closing) {
            return brim__fail(BRIM_STATUS_CLOSED, "the loader is being closed by another thread");
        }
        if (atomic_exchange(&loader->interrupted, false)) {
            return brim__fail(BRIM_STATUS_INTERRUPTED, "interrupted");
        }
        const brim_status end = loader->position->end(loader);
        if (end != BRIM_OK) {
            return end;
        }
        failed = brim__chain_error(loader, false);
        if (failed != NULL) {
            return brim__error_report(&failed->error);
        }
        struct brim__slot *head = brim__chain_head(loader);
        if (brim__slot_is_ready(head) && !brim__lend_is_begun(loader)) {
            continue; /* it came meanwhile */
        }
        if (brim__slot_is_ready(head)) {
            brim_batch *batch = NULL;
            const bool passed = brim__lend_passes_over(loader, head);
            const brim_status status = brim__lend(loader, head, &batch);
            if (status == BRIM_OK && batch == NULL) {
                if (passed) {
                    call_workers(loader); /* there is a slot to be filled */
                }
                continue;
            }
            *out = batch != NULL ? batch : *out;
            return status;
        }
        const uint64_t now = brim__now();
        if (now >= deadline && (helped || !helps(loader, now))) {
            return brim__fail(BRIM_STATUS_TIMEOUT, "no batch within the time given");
        }
        await(loader, deadline);
        ask(loader);
        helped = true;
    }
}

brim_status brim_loader_next(brim_loader *loader, int64_t timeout_ns, brim_batch **out) {
    if (out == NULL) {
        return brim__fail_null("batch");
    }
    *out = NULL;
    brim_status status = brim__loader_enter(loader);
    if (status != BRIM_OK) {
        return status;
    }
    struct brim__consumer *consumer = &loader->consumer;
    const bool warned = loader->report.stats.warning[0] != '\0';
    const uint64_t began = brim__now();
    brim__loader_used(loader, began);
    uint64_t deadline = UINT64_MAX;
    if (timeout_ns >= 0 && brim__add_overflows(began, (uint64_t)timeout_ns, &deadline)) {
        deadline = UINT64_MAX;
    }
    brim__chain_retry(loader);
    /* a batch that is passed over is nothing to go on with */
    const struct brim__slot *head = brim__chain_head(loader);
    const bool starving = !brim__slot_is_ready(head) || brim__lend_passes_over(loader, head);
    if (starving) {
        atomic_store(&loader->starving, true);
        consumer->waiting_since = consumer->waiting_since == 0 ? began : consumer->waiting_since;
        call_workers(loader);
    }
    status = take(loader, deadline, out);
    if (starving) {
        atomic_store(&loader->starving, false);
        consumer->used_ns = brim__now();
        loader->report.stats.waited_ns += consumer->used_ns - began;
    }
    if (status != BRIM_STATUS_TIMEOUT && status != BRIM_STATUS_INTERRUPTED) {
        consumer->waiting_since = 0;
    }
    if (status != BRIM_OK && status != BRIM_STATUS_END && status != BRIM_STATUS_TIMEOUT &&
        status != BRIM_STATUS_INTERRUPTED) {
        brim__loader_keep_detail(loader, status);
    }
    brim__log_next(loader, status, warned);
    brim__loader_leave(loader, starving || atomic_load(&loader->polls));
    return status;
}

brim_status brim_loader_interrupt(brim_loader *loader) {
    if (loader == NULL) {
        return brim__fail_null("loader");
    }
    if (brim__runtime_forked(loader->runtime)) {
        return brim__forked();
    }
    atomic_store(&loader->interrupted, true);
    brim__lock(&loader->mutex);
    brim__loader_event(loader);
    brim__broadcast(&loader->ready);
    brim__unlock(&loader->mutex);
    return BRIM_OK;
}

/*
 * next.c: taking batches, going elsewhere, being interrupted.
 *
 * `next` waits for the head's slot to be ready. It makes rows itself when no
 * worker serves the loader, and also when workers exist but none has taken the
 * rows it waits for within HELP_NS (all are busy elsewhere, perhaps in a
 * callback that itself waits): so it always makes progress, also when it is
 * called again and again with a time-out of 0. Rows of other batches are left
 * to the workers: a slow callback among them would make it deaf to interrupts.
 *
 * Small batches come every few dozen microseconds; sleeping and being woken
 * would cost as much as making them. So a wait begins with looking, for SPIN_NS,
 * whether anything has happened, if the workers leave a CPU for that.
 */
#include "engine/loader.h"
#include "engine/sequencer.h"
#include "engine/ship.h"

#include <stdio.h>

#define HELP_NS 2000000
#define SPIN_NS 50000

/* Remembers the thread's detail as the loader's; mutex held. */
static brim_status keep_detail(brim_loader *loader, brim_status status) {
    brim__copy_text(loader->detail, sizeof(loader->detail), brim_detail());
    return status;
}

/* Enters a call that only one thread may be in. With BRIM_OK the mutex is held
 * until leave(). */
static brim_status enter(brim_loader *loader) {
    if (brim__runtime_forked(loader->runtime)) {
        return brim__forked();
    }
    brim__lock(&loader->mutex);
    if (loader->closing || loader->in_call) {
        const brim_status status =
            loader->closing
                ? brim__fail(BRIM_STATUS_CLOSED, "the loader is being closed by another thread")
                : brim__fail(BRIM_STATUS_INVALID,
                             "another thread is inside a call on this loader: take "
                             "batches from one thread at a time");
        brim__unlock(&loader->mutex);
        return status;
    }
    loader->in_call = true;
    return BRIM_OK;
}

/* A worker is woken while the call still counts as one: a thread that closes
 * the loader waits for calls, and then loader and runtime may be gone. */
static void leave(brim_loader *loader, bool wake) {
    if (wake) {
        brim__unlock(&loader->mutex);
        brim__pool_wake(loader->runtime);
        brim__lock(&loader->mutex);
    }
    loader->in_call = false;
    if (loader->closing) {
        brim__broadcast(&loader->ready);
    }
    brim__unlock(&loader->mutex);
}

/* ----------------------------------------------------------------- lending */

static bool comes_before(const struct brim__slot *a, const struct brim__slot *b) {
    if (a->epoch != b->epoch) {
        return a->epoch < b->epoch;
    }
    return a->delivery.step != b->delivery.step ? a->delivery.step < b->delivery.step
                                                : a->delivery.micro < b->delivery.micro;
}

/* The batch that is lent and comes next after `last` (NULL: the first of all). */
static const struct brim__slot *next_lent(const brim_loader *loader,
                                          const struct brim__slot *last) {
    const struct brim__slot *found = NULL;
    const struct brim__slot *slots = loader->ship != NULL ? loader->ship->berth : loader->slot;
    const uint32_t count = loader->ship != NULL ? loader->plan->berth_cap : loader->plan->slot_cap;
    for (uint32_t i = 0; i < count; i++) {
        const struct brim__slot *slot = &slots[i];
        if (slot->state == BRIM__SLOT_LENT && (last == NULL || comes_before(last, slot)) &&
            (found == NULL || comes_before(slot, found))) {
            found = slot;
        }
    }
    return found;
}

/* why: there is no slot for one beyond `hold`; NULL: none may be lent. */
static brim_status refuse_held(brim_loader *loader, const char *why) {
    char names[512] = "", allowed[BRIM__DETAIL_BYTES / 2], beyond[32] = "";
    size_t length = 0;
    for (const struct brim__slot *slot = next_lent(loader, NULL);
         slot != NULL && length < sizeof(names) - 64; slot = next_lent(loader, slot)) {
        const int wrote = snprintf(names + length, sizeof(names) - length, "%sepoch %llu step %llu",
                                   length > 0 ? ", " : "", (unsigned long long)slot->epoch,
                                   (unsigned long long)slot->delivery.step);
        length += wrote > 0 ? (size_t)wrote : 0;
    }
    if (loader->beyond > 0) {
        snprintf(beyond, sizeof(beyond), " with beyond=%u", loader->beyond);
    }
    if (why != NULL) {
        snprintf(allowed, sizeof(allowed), "and one beyond hold=%u does not fit (%s)", loader->hold,
                 why);
    } else {
        snprintf(allowed, sizeof(allowed), "as many as hold=%u%s allows", loader->hold, beyond);
    }
    return brim__fail(BRIM_STATUS_HELD,
                      "%u batch%s held, %s: %s; release one, copy it, or open with a larger hold",
                      loader->lent, loader->lent == 1 ? " is" : "es are", allowed, names);
}

static void call_workers(brim_loader *loader);

/* Mutex held, released meanwhile: there is a slot for one batch more that may be lent. */
static brim_status make_room(brim_loader *loader) {
    if (loader->lent < loader->hold) {
        return BRIM_OK;
    }
    if (loader->lent >= loader->hold + loader->beyond) {
        return refuse_held(loader, NULL);
    }
    if (brim__loader_at_end(loader)) {
        return BRIM_OK; /* no batch comes */
    }
    const brim_status status = brim__beyond_take(loader);
    if (status == BRIM_STATUS_BUDGET) {
        char why[BRIM__DETAIL_BYTES / 2];
        brim__copy_text(why, sizeof(why), brim_detail());
        return refuse_held(loader, why);
    }
    call_workers(loader);
    return status;
}

/* All samples of the batch were bad and left out. Not of a sequenced plan, whose rows close up
 * across batches. */
static bool is_empty(const struct brim__slot *slot) {
    return slot->bad_rows > 0 && slot->bad_rows == slot->delivery.valid_rows;
}

/* An empty batch that is a whole step of the only rank can be left out. With several ranks the
 * others would take a step more, and wait in it for this one; a program that adds micro-batches
 * up to a step counts them. */
static bool is_passed_over(const brim_loader *loader, const struct brim__slot *slot) {
    return is_empty(slot) && loader->plan->shard.world == 1 && slot->delivery.micro_count == 1;
}

/* As if it had been lent and released. Positions stay as they are. */
static void pass_over(brim_loader *loader, struct brim__slot *slot) {
    loader->epoch_bad += slot->bad_rows;
    loader->stats.skipped += slot->bad_rows;
    loader->stats.empty++;
    loader->take_ticket++;
    loader->take_index++;
    if (loader->ship != NULL) { /* it was not shipped: batches with bad samples wait for `next` */
        loader->ship->ticket = brim__max(loader->ship->ticket, loader->take_ticket);
    }
    brim__slot_free(slot);
}

/* Once is enough. */
static void warn_of_empty(brim_loader *loader, const struct brim__slot *slot) {
    if (loader->stats.warning[0] != '\0') {
        return;
    }
    snprintf(loader->stats.warning, sizeof(loader->stats.warning),
             "on_error=skip: all samples of epoch %llu, step %llu%s were bad; the batch of no "
             "valid rows is delivered so that %s: pass over it, or use on_error=replace",
             (unsigned long long)slot->epoch, (unsigned long long)slot->delivery.step,
             loader->plan->shard.world > 1 ? " at this rank" : " in a micro-batch",
             loader->plan->shard.world > 1 ? "ranks take equally many steps"
                                           : "the step has all of its micro-batches");
}

static void lend(brim_loader *loader, struct brim__slot *slot, brim_batch **out) {
    struct brim_batch *batch = &slot->batch;
    const struct brim__delivery *delivery = &slot->delivery;
    const uint64_t rows = slot->rows - slot->bad_rows;
    batch->loader = loader;
    batch->slot = slot;
    batch->delivery = *delivery;
    batch->info = (brim_batch_info){
        .epoch = slot->epoch,
        .step = delivery->step,
        .micro = delivery->micro,
        .micro_count = delivery->micro_count,
        .rows = rows,
        .valid_rows = delivery->valid_rows - slot->bad_rows,
        .skipped = slot->bad_rows + slot->skipped,
        .step_rows = delivery->step_rows,
        .global_rows = delivery->global_rows,
        .first_position = delivery->first,
        .field_count = loader->plan->delivered.output_count,
    };
    batch->resume = slot->resume;
    if (loader->ship == NULL) {
        brim__batch_layout(batch, loader->plan, slot->pages.memory);
    } else { /* fields were laid out when it was shipped */
        batch->info.samples = (const uint64_t *)(const void *)slot->pages.memory;
        batch->info.valid = slot->pages.memory + loader->plan->landing.tail_valid;
    }
    slot->state = BRIM__SLOT_LENT;
    loader->lent++;
    if (loader->sequencer != NULL) {
        loader->sequencer->take++;
        loader->sequencer->delivered = slot->resume;
    } else {
        loader->take_ticket++;
        loader->take_index++;
    }
    loader->epoch_bad += batch->info.skipped;
    brim__loader_ref(loader);

    brim_stats *stats = &loader->stats;
    stats->samples += batch->info.valid_rows;
    stats->batches++;
    stats->skipped += batch->info.skipped;
    stats->replaced += slot->replaced_rows;
    if (is_empty(slot)) {
        stats->empty++;
        warn_of_empty(loader, slot);
    }
    for (uint32_t f = 0; f < batch->info.field_count; f++) {
        stats->bytes += batch->field[f].bytes;
    }
    if (stats->first_batch_ns == 0) {
        stats->first_batch_ns = brim__now() - loader->opened_ns;
    }
    *out = batch;
}

/* The head is ready: whether it may be lent, or why not. */
static brim_status check_head(brim_loader *loader, struct brim__slot *slot) {
    if (slot->error != BRIM_OK) {
        slot->told = true;
        return brim__fail_text(slot->error, slot->error_text);
    }
    const uint64_t cap = loader->plan->batching.max_errors;
    const uint64_t bad = slot->bad_rows + slot->skipped + slot->replaced_rows;
    if (bad > 0 && loader->epoch_bad + bad > cap) {
        slot->told = loader->sequencer == NULL;
        return brim__fail(BRIM_STATUS_CORRUPT,
                          "more than max_errors=%llu bad samples in epoch %llu by step %llu: %s",
                          (unsigned long long)cap, (unsigned long long)slot->epoch,
                          (unsigned long long)slot->delivery.step, slot->bad_text);
    }
    return BRIM_OK;
}

/* A slot that is passed over, or only had to be looked at before it is shipped, is not lent:
 * *out stays. */
static brim_status deliver(brim_loader *loader, struct brim__slot *slot, brim_batch **out) {
    brim_status status = BRIM_OK;
    if (loader->ship == NULL || slot->memory.handle == NULL) {
        status = check_head(loader, slot);
        if (status == BRIM_OK && is_passed_over(loader, slot)) {
            pass_over(loader, slot);
            call_workers(loader); /* there is a slot to be filled */
            return BRIM_OK;
        }
        if (status != BRIM_OK || loader->ship != NULL) {
            slot->cleared = status == BRIM_OK;
            return status;
        }
    } else {
        status = brim__ship_lend(loader, slot);
    }
    if (status == BRIM_OK) {
        loader->epoch_bad += slot->replaced_rows;
        lend(loader, slot, out);
    }
    return status;
}

/* ----------------------------------------------------------------- waiting */

/* The batch that is wanted next, if it has a slot. */
static struct brim__slot *find_head(brim_loader *loader) {
    return loader->ship != NULL        ? brim__ship_head(loader)
           : loader->sequencer != NULL ? brim__sequencer_head(loader)
                                       : brim__slot_head(loader);
}

uint64_t brim__loader_epoch(const brim_loader *loader) {
    return loader->sequencer != NULL ? loader->sequencer->delivered.epoch : loader->take_epoch;
}

bool brim__loader_at_end(brim_loader *loader) {
    if (loader->sequencer != NULL) {
        return loader->sequencer->end && loader->sequencer->take == loader->sequencer->make;
    }
    const struct brim__shard shard = brim__loader_shard(loader, loader->take_epoch);
    return loader->take_index >= brim__shard_deliveries(&shard);
}

static void go(brim_loader *loader, uint64_t epoch, uint64_t index, uint64_t base);
static void go_sequenced(brim_loader *loader, const struct brim__position *position);

/* What has been made of the next epoch is kept. */
static void begin_epoch(brim_loader *loader) {
    struct brim__sequencer *sequencer = loader->sequencer;
    loader->epoch_bad = 0;
    if (sequencer == NULL) {
        loader->take_epoch++;
        loader->take_index = 0;
        return;
    }
    const struct brim__position begin = { .epoch = sequencer->delivered.epoch + 1 };
    const struct brim__shard shard = brim__loader_shard(loader, loader->take_epoch);
    const bool stream = loader->plan->sequence.stream;
    if (!stream && sequencer->chunk == NULL &&
        loader->take_index >= brim__shard_deliveries(&shard)) {
        loader->take_epoch++;
        loader->take_index = 0;
        brim__sequencer_go(loader, &begin);
    } else {
        go_sequenced(loader, &begin);
    }
    sequencer->spent = stream && !loader->plan->sequence.seekable;
}

/* Mutex held, released meanwhile: workers may sleep because there was nothing to
 * do, or no scratch to be had while memory was being collected. */
static void call_workers(brim_loader *loader) {
    atomic_store(&loader->wants, true);
    if (atomic_load(&loader->runtime->sleepers) > 0) {
        brim__unlock(&loader->mutex); /* in_call keeps the loader */
        brim__pool_wake(loader->runtime);
        brim__lock(&loader->mutex);
    }
}

/* Mutex held, released meanwhile: true as soon as something has happened. */
static bool look(brim_loader *loader, uint64_t until) {
    const unsigned seen = atomic_load(&loader->events);
    brim__unlock(&loader->mutex);
    while (atomic_load(&loader->events) == seen && brim__now() < until) {
        brim__relax();
    }
    brim__lock(&loader->mutex);
    return atomic_load(&loader->events) != seen;
}

static bool somebody_works(const brim_loader *loader) {
    bool works = loader->pulling;
    for (uint32_t i = 0; i < loader->ring_cap; i++) {
        works |= loader->ring[i].busy > 0;
    }
    return works;
}

/* Mutex held, released meanwhile: asks the program now and then whether to go on. Decoders do
 * so too while they are at one image. */
static void ask(brim_loader *loader) {
    if (loader->asked == NULL || brim__now() - loader->asked_ns < BRIM__ASK_NS) {
        return;
    }
    loader->asked_ns = brim__now();
    brim__unlock(&loader->mutex); /* in_call keeps the loader */
    if (loader->asked(loader->asked_user) != 0) {
        atomic_store(&loader->interrupted, true);
    }
    brim__lock(&loader->mutex);
}

/* Whether `next` makes rows itself: there is nobody else (workers may also have
 * been stopped for their memory), or nobody has come; or the workers leave no CPU,
 * so that sleeping and being woken gains nothing. The user's code it leaves to those
 * who are at it: that may take long, and whoever called `next` with a deadline, as an
 * interpreter does that looks at its signals, could not be answered meanwhile. */
static bool helps(const brim_loader *loader, uint64_t now) {
    const brim_plan *plan = loader->plan;
    if (loader->unmade.slot != NULL) {
        return true; /* they lie in the scratch of `next`, where no worker finds them */
    }
    if (plan->info.threads == 0 || brim__pool_suited(loader->runtime, plan->callback) == 0) {
        return true;
    }
    const bool alone = now - loader->waiting_since >= HELP_NS;
    return plan->callback ? alone && !somebody_works(loader)
                          : alone || plan->info.threads >= loader->runtime->cpus;
}

static bool failed(const brim_loader *loader) {
    return loader->sequencer != NULL && loader->sequencer->error != BRIM_OK &&
           loader->sequencer->take == loader->sequencer->make;
}

/* The head is not ready: make rows, or wait for those who do. */
static void await(brim_loader *loader, uint64_t deadline) {
    const uint64_t now = brim__now();
    loader->grow_slot = true;
    if (loader->ship != NULL) {
        loader->ship->grow = true;
    }
    brim__loader_regrow(loader, now);
    const bool help = helps(loader, now);
    if (help) {
        brim__unlock(&loader->mutex);
        const bool did = brim__loader_work(loader, true);
        brim__lock(&loader->mutex);
        if (did) {
            return;
        }
    }
    if (!help && look(loader, brim__min(deadline, now + SPIN_NS))) {
        return;
    }
    const struct brim__slot *head = find_head(loader);
    if ((head == NULL || head->state != BRIM__SLOT_READY) && !loader->closing &&
        !brim__loader_at_end(loader) && !failed(loader) && !atomic_load(&loader->interrupted)) {
        const uint64_t most = atomic_load(&loader->polls) ? BRIM__POLL_NS : HELP_NS;
        brim__wait(&loader->ready, &loader->mutex, brim__min(deadline, now + most));
    }
}

/* Asked again after a failure. A batch that failed as a whole is made again from its
 * samples, because its rows may have been changed, if they can be read once more. */
static void retry_sequenced(brim_loader *loader) {
    const struct brim__sequence *sequence = &loader->plan->sequence;
    if (loader->sequencer->batch_failed && (!sequence->stream || sequence->seekable)) {
        const struct brim__position position = loader->sequencer->delivered;
        const uint64_t bad = loader->epoch_bad; /* of batches that stay delivered */
        go_sequenced(loader, &position);
        loader->epoch_bad = bad;
    } else {
        brim__sequencer_retry(loader);
    }
}

/* After a seek whose step nobody could check: was there one? */
static brim_status check_past_end(brim_loader *loader) {
    struct brim__sequencer *sequencer = loader->sequencer;
    if (sequencer == NULL || sequencer->step >= sequencer->discard_step) {
        return BRIM_OK;
    }
    return brim__fail(BRIM_STATUS_INVALID, "seek to step %llu: the epoch has only %llu steps",
                      (unsigned long long)sequencer->discard_step,
                      (unsigned long long)sequencer->step);
}

/* Bad samples behind the last batch, which no batch could tell of. */
static bool too_many_at_the_end(const brim_loader *loader) {
    return loader->sequencer != NULL && loader->sequencer->tail > 0 &&
           loader->epoch_bad + loader->sequencer->tail > loader->plan->batching.max_errors;
}

static brim_status take(brim_loader *loader, uint64_t deadline, brim_batch **out) {
    const brim_status room = make_room(loader);
    if (room != BRIM_OK) {
        return room;
    }
    bool helped = false; /* without workers a call that may not wait still makes some rows */
    for (;;) {
        if (loader->ship != NULL) {
            while (brim__ship_turn(loader)) {
            }
        }
        if (loader->closing) {
            return brim__fail(BRIM_STATUS_CLOSED, "the loader is being closed by another thread");
        }
        if (atomic_exchange(&loader->interrupted, false)) {
            return brim__fail(BRIM_STATUS_INTERRUPTED, "interrupted");
        }
        if (loader->sequencer != NULL && loader->sequencer->spent) {
            return brim__fail(BRIM_STATUS_UNSEEKABLE,
                              "the stream has ended, and a pipe or a stream without a reopen "
                              "function is read once: redirect a file, or give it one");
        }
        if (brim__loader_at_end(loader)) {
            const uint64_t epoch = brim__loader_epoch(loader);
            const brim_status status = check_past_end(loader);
            if (too_many_at_the_end(loader)) {
                return brim__fail(BRIM_STATUS_CORRUPT,
                                  "more than max_errors=%llu bad samples in epoch %llu: %s",
                                  (unsigned long long)loader->plan->batching.max_errors,
                                  (unsigned long long)epoch, loader->sequencer->bad_text);
            }
            if (loader->sequencer != NULL) { /* no batch could count them */
                loader->stats.skipped += loader->sequencer->tail;
            }
            begin_epoch(loader);
            return status != BRIM_OK ? status
                                     : brim__fail(BRIM_STATUS_END, "the end of epoch %llu",
                                                  (unsigned long long)epoch);
        }
        if (loader->ship != NULL && loader->ship->error != BRIM_OK) {
            return brim__ship_tell(loader);
        }
        struct brim__slot *head = find_head(loader);
        if (failed(loader)) {
            loader->sequencer->told = true;
            return brim__fail_text(loader->sequencer->error, loader->sequencer->error_text);
        }
        if (head != NULL && head->state == BRIM__SLOT_READY) {
            brim_batch *batch = NULL;
            const brim_status status = deliver(loader, head, &batch);
            if (status == BRIM_OK && batch == NULL) {
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
    brim_status status = enter(loader);
    if (status != BRIM_OK) {
        return status;
    }
    const uint64_t began = brim__now();
    brim__loader_used(loader, began);
    uint64_t deadline = UINT64_MAX;
    if (timeout_ns >= 0 && brim__add_overflows(began, (uint64_t)timeout_ns, &deadline)) {
        deadline = UINT64_MAX;
    }
    if (loader->ship != NULL) {
        brim__ship_retry(loader);
    }
    struct brim__slot *head = find_head(loader);
    if (head != NULL && head->state == BRIM__SLOT_READY && head->told) {
        /* only now: what made it fail may have been put right since */
        if (head->stranded && loader->sequencer != NULL) {
            head->stranded = head->told = false; /* its rows are made */
            head->error = BRIM_OK;
        } else {
            brim__slot_restart(head);
        }
    }
    if (failed(loader) && loader->sequencer->told) {
        retry_sequenced(loader);
    }
    /* a batch that is passed over is nothing to go on with */
    const bool starving =
        head == NULL || head->state != BRIM__SLOT_READY || is_passed_over(loader, head);
    if (starving) {
        atomic_store(&loader->starving, true);
        loader->waiting_since = loader->waiting_since == 0 ? began : loader->waiting_since;
        call_workers(loader);
    }
    status = take(loader, deadline, out);
    if (starving) {
        atomic_store(&loader->starving, false);
        loader->used_ns = brim__now();
        loader->stats.waited_ns += loader->used_ns - began;
    }
    if (status != BRIM_STATUS_TIMEOUT && status != BRIM_STATUS_INTERRUPTED) {
        loader->waiting_since = 0;
    }
    if (status != BRIM_OK && status != BRIM_STATUS_END && status != BRIM_STATUS_TIMEOUT &&
        status != BRIM_STATUS_INTERRUPTED) {
        keep_detail(loader, status);
    }
    leave(loader, starving || atomic_load(&loader->polls));
    return status;
}

brim_status brim_loader_interrupt(brim_loader *loader) {
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

/* --------------------------------------------------------- going elsewhere */

/* Mutex held: batches are placed from a position on. */
static void go_sequenced(brim_loader *loader, const struct brim__position *position) {
    struct brim__position at = *position;
    brim__sequencer_go(loader, position);
    if (at.sample == UINT64_MAX) { /* the end: chunks are those of the epoch after it */
        at = (struct brim__position){ .epoch = at.epoch };
        loader->stream_ended = true;
    } else {
        loader->stream_ended = false;
    }
    loader->stuck = false;
    loader->stream_at = at.sample;
    loader->rewind = loader->plan->sequence.seekable;
    go(loader, at.epoch, 0, at.sample);
}

/* Mutex held: the next batch is delivery `index` of `epoch`, which begins at
 * `base`. */
static void go(brim_loader *loader, uint64_t epoch, uint64_t index, uint64_t base) {
    loader->base = base;
    loader->base_epoch = epoch;
    loader->take_epoch = epoch;
    loader->take_index = index;
    loader->epoch_bad = 0;
    brim__slots_abandon(loader);
    if (loader->ship != NULL) {
        brim__ship_go(loader);
    }
    atomic_store(&loader->wants, true);
}

/* Mutex held. */
static brim_status check_seekable(brim_loader *loader) {
    if (!loader->plan->sequence.stream || loader->plan->sequence.seekable) {
        return BRIM_OK;
    }
    return keep_detail(loader, brim__fail(BRIM_STATUS_UNSEEKABLE,
                                          "a pipe or a stream without a reopen function is read "
                                          "once, from its begin to its end: redirect a file, or "
                                          "give it one"));
}

brim_status brim_loader_seek(brim_loader *loader, uint64_t epoch, uint64_t step) {
    brim_status status = enter(loader);
    if (status != BRIM_OK) {
        return status;
    }
    const struct brim__shard shard = loader->plan->shard; /* base 0: whole epochs */
    const uint64_t steps = brim__shard_steps(&shard);
    if (loader->sequencer != NULL) {
        status = check_seekable(loader);
        if (status == BRIM_OK) {
            /* the batches before it are made and thrown away */
            const struct brim__position begin = { .epoch = epoch, .until = step };
            go_sequenced(loader, &begin);
        }
    } else if (step > steps) {
        status = brim__fail(BRIM_STATUS_INVALID, "seek to step %llu: an epoch has %llu steps",
                            (unsigned long long)step, (unsigned long long)steps);
        keep_detail(loader, status);
    } else {
        go(loader, epoch,
           step == steps ? brim__shard_deliveries(&shard)
                         : brim__shard_delivery_of_step(&shard, step),
           0);
    }
    leave(loader, true);
    return status;
}

brim_status brim_loader_state(brim_loader *loader, brim_state *state) {
    const brim_status status = enter(loader);
    if (status != BRIM_OK) {
        return status;
    }
    const struct brim__shard shard = brim__loader_shard(loader, loader->take_epoch);
    struct brim__position position = { .epoch = loader->take_epoch };
    if (loader->sequencer != NULL) {
        position = loader->sequencer->delivered;
    } else if (loader->take_index < brim__shard_deliveries(&shard)) {
        struct brim__delivery delivery;
        brim__shard_delivery(&shard, loader->take_index, &delivery);
        position.sample = delivery.resume;
        position.micro = delivery.micro;
    } else {
        position.sample = UINT64_MAX;
    }
    brim__state_write(loader->plan, &position, state);
    leave(loader, false);
    return BRIM_OK;
}

/* Mutex held: a state may be damaged and still have a right checksum. */
static brim_status check_position(brim_loader *loader, const struct brim__position *position) {
    const brim_plan *plan = loader->plan;
    if (position->sample == UINT64_MAX ||
        (position->row < plan->rows_per_sample &&
         (plan->sequence.stream || position->sample <= brim__order_count(&plan->order)))) {
        return BRIM_OK;
    }
    return keep_detail(loader, brim__fail(BRIM_STATUS_CORRUPT,
                                          "the state stands at row %llu of sample %llu, which the "
                                          "data does not have",
                                          (unsigned long long)position->row,
                                          (unsigned long long)position->sample));
}

brim_status brim_loader_restore(brim_loader *loader, const brim_state *state) {
    brim_status status = enter(loader);
    if (status != BRIM_OK) {
        return status;
    }
    struct brim__position position;
    status = brim__state_read(loader->plan, state, &position);
    if (status != BRIM_OK) {
        keep_detail(loader, status);
    } else if (loader->sequencer != NULL) {
        status = check_seekable(loader);
        if (status == BRIM_OK) {
            status = check_position(loader, &position);
        }
        if (status == BRIM_OK) {
            go_sequenced(loader, &position);
        }
    } else {
        const struct brim__shard *shard = &loader->plan->shard;
        const uint64_t sample = brim__min(position.sample, shard->count);
        if (sample == shard->count) {
            go(loader, position.epoch, brim__shard_deliveries(shard), 0);
        } else if (sample % shard->global_rows == 0) {
            const uint64_t step = sample / shard->global_rows;
            go(loader, position.epoch,
               brim__min(brim__shard_delivery_of_step(shard, step) + position.micro,
                         brim__shard_deliveries(shard)),
               0);
        } else {
            go(loader, position.epoch, position.micro, sample);
        }
    }
    leave(loader, true);
    return status;
}

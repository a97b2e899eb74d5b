/*
 * work.c: one run of rows: claim, make, report. Called by workers, and by
 * `next` when no worker does it.
 */
#include "engine/loader.h"
#include "engine/place.h"
#include "engine/sequencer.h"
#include "engine/ship.h"

#define TIMED_EVERY 64    /* runs; the clock is read for each stage then */
#define COLD_NS     50000 /* a read slower than this did not come from the page cache */
#define MEAN_SHIFT  3     /* weight of a new run in the running mean: 1/8 */

/* mutex held; the first is kept for `next`, so that it never depends on others */
struct brim__scratch *brim__scratch_take(brim_loader *loader, bool is_next) {
    if (is_next) {
        assert(!loader->scratch[0].busy);
        loader->scratch[0].busy = true;
        return &loader->scratch[0];
    }
    for (int grown = 0; grown < 2; grown++) {
        for (uint32_t i = 1; i <= loader->plan->thread_cap; i++) {
            struct brim__scratch *scratch = &loader->scratch[i];
            if (scratch->pages.memory != NULL && !scratch->busy) {
                scratch->busy = true;
                return scratch;
            }
        }
        if (!brim__scratch_grow(loader)) {
            break;
        }
    }
    return NULL;
}

/* mutex held: time and counts of a run enter the loader's. */
static void account(brim_loader *loader, const struct brim__run *run, uint64_t took) {
    const uint64_t per_row = brim__max(1, took / brim__max(1, run->count));
    loader->ns_per_row = loader->ns_per_row == 0
                             ? per_row
                             : loader->ns_per_row - (loader->ns_per_row >> MEAN_SHIFT) +
                                   (per_row >> MEAN_SHIFT) + (per_row > loader->ns_per_row);
    loader->stats.read_bytes += run->read_bytes;
    /* stages of whole batches, the last ones, are counted by those */
    for (uint32_t i = 0; i < loader->plan->info.stage_count - loader->plan->batch_steps; i++) {
        loader->stage[i].samples += run->count;
        if (run->timed) {
            loader->stage[i].timed_ns += run->stage_ns[i];
            loader->stage[i].timed_samples += run->count;
        }
    }
    if (run->timed) {
        loader->cold = run->slowest_fetch_ns > COLD_NS;
    }
    for (uint32_t i = 0; i < run->texts; i++) {
        brim__copy_text(loader->error[loader->errors++ % BRIM__ERRORS_KEPT], BRIM__SAMPLE_ERROR,
                        run->text[i]);
    }
}

/* mutex held: the slot learns what became of its rows. */
static void report(struct brim__slot *slot, const struct brim__run *run) {
    slot->done += run->count;
    slot->bad_rows += run->bad_rows;
    slot->replaced_rows += run->replaced_rows;
    if (run->texts > 0 && (slot->bad_text[0] == '\0' || run->first < slot->bad_first)) {
        slot->bad_first = run->first;
        memcpy(slot->bad_text, run->text[0], sizeof(slot->bad_text));
        slot->bad_cause = run->cause;
    }
    if (run->error != BRIM_OK && (slot->error == BRIM_OK || run->error_row < slot->error_row)) {
        slot->error = run->error;
        slot->error_row = run->error_row;
        slot->kept = run->kept;
    }
}

brim_status brim__batch_act(brim_loader *loader, const struct brim__batch_call *call) {
    const brim_plan *plan = loader->plan;
    uint64_t took[BRIM__BATCH_STEPS];
    brim_status status = BRIM_OK;
    uint32_t done = 0;
    if (plan->batch_steps == 0) {
        return BRIM_OK;
    }
    uint64_t before = brim__now();
    while (status == BRIM_OK && done < plan->batch_steps) {
        status = plan->batch_step[done].run(&plan->batch_step[done], call);
        const uint64_t after = brim__now();
        took[done++] = after - before;
        before = after;
    }
    brim__lock(&loader->mutex);
    for (uint32_t i = 0; i < done; i++) {
        struct brim__stage_time *time = &loader->stage[plan->batch_step[i].stage];
        time->samples += call->rows;
        time->timed_samples += call->rows;
        time->timed_ns += took[i];
    }
    brim__unlock(&loader->mutex);
    return brim__plan_at_stage(plan, status, plan->batch_step[done - 1].stage);
}

/* The batch as the user sees it: without bad rows, those of unequal length moved
 * together or filled up, and what acts on whole batches done. */
static brim_status finish(brim_loader *loader, const struct brim__slot *slot) {
    const struct brim__layout *layout = &loader->plan->placed;
    const uint64_t rows = slot->bad_rows > 0
                              ? brim__place_close_up(layout, slot->pages.memory, slot->rows)
                              : slot->rows;
    brim__place_finish(layout, slot->pages.memory, rows, 0);
    const struct brim__batch_call call = {
        .memory = slot->pages.memory,
        .rows = slot->delivery.valid_rows - slot->bad_rows,
        .all_rows = rows,
        .epoch = slot->epoch,
        .number = slot->delivery.first,
        .region = brim__pages_region(&slot->pages),
    };
    return brim__batch_act(loader, &call);
}

/* mutex held, and released while the batch is finished; true: `ready` has news. */
static bool leave_slot(brim_loader *loader, struct brim__slot *slot) {
    const brim_plan *plan = loader->plan;
    /* what failed is not finished: the lengths of rows that were not made say nothing */
    if (!slot->abandoned && slot->done == slot->rows && loader->sequencer == NULL &&
        slot->error == BRIM_OK &&
        (slot->bad_rows > 0 || plan->placed.ragged || plan->batch_steps > 0)) {
        brim__unlock(&loader->mutex);
        const brim_status status = finish(loader, slot);
        brim__lock(&loader->mutex);
        if (status != BRIM_OK) {
            slot->error = status;
            brim__failure_keep(&slot->kept);
        }
    }
    slot->busy--;
    if (slot->abandoned && slot->busy == 0) {
        brim__slot_free(slot);
        return true;
    }
    if (!slot->abandoned && slot->done == slot->rows) {
        slot->state = BRIM__SLOT_READY;
        return slot->ticket == loader->take_ticket;
    }
    return false;
}

void brim__run_begin(struct brim__run *run, brim_loader *loader, const struct brim__slot *slot,
                     const struct brim__scratch *scratch, bool is_next) {
    run->loader = loader;
    run->stop = (struct brim__stop){ .flag = is_next ? &loader->interrupted : &loader->stopping,
                                     .asked = is_next ? loader->asked : NULL,
                                     .user = loader->asked_user,
                                     .asked_ns = is_next ? loader->asked_ns : 0 };
    run->interrupted = false;
    run->slot = slot;
    run->slot_memory = slot->pages.memory;
    run->scratch = scratch->pages.memory;
    run->batch_region = brim__pages_region(&slot->pages);
    run->scratch_region = brim__pages_region(&scratch->pages);
    run->timed = loader->runs++ % TIMED_EVERY == 0;
    run->advise = loader->cold;
    run->error = BRIM_OK;
    run->error_row = run->bad_rows = run->replaced_rows = run->texts = 0;
    run->read_bytes = run->slowest_fetch_ns = 0;
    if (run->timed) {
        memset(run->stage_ns, 0, loader->plan->info.stage_count * sizeof(run->stage_ns[0]));
    }
}

void brim__run_end(struct brim__run *run, struct brim__slot *slot, struct brim__scratch *scratch,
                   uint64_t took) {
    brim_loader *loader = run->loader;
    if (run->stop.asked != NULL) {
        loader->asked_ns = run->stop.asked_ns;
    }
    if (BRIM__UNLIKELY(run->interrupted)) {
        assert(slot->returned == 0 || loader->closing);
        slot->returned_first = run->first;
        slot->returned = run->count;
    } else {
        account(loader, run, took);
        report(slot, run);
    }
    const bool news = leave_slot(loader, slot) || loader->revoking;
    scratch->busy = false;
    if (news) {
        brim__loader_event(loader);
    }
    atomic_store(&loader->wants, true);
    brim__unlock(&loader->mutex);
    if (news) {
        /* after unlocking, so that who wakes does not meet a held lock; a worker
         * inside, or `next` itself, keeps the loader alive */
        brim__broadcast(&loader->ready);
    }
}

/* mutex held, and not after: claims rows and makes them. */
static bool make_rows(brim_loader *loader, bool is_next) {
    struct brim__run run;
    struct brim__slot *slot;
    struct brim__scratch *scratch = brim__scratch_take(loader, is_next);
    if (scratch == NULL || !brim__slot_claim(loader, is_next, &slot, &run.first, &run.count)) {
        brim__nothing_to_do(loader, is_next, scratch);
        return false;
    }
    brim__run_begin(&run, loader, slot, scratch, is_next);
    brim__unlock(&loader->mutex);
    brim__pool_wake(loader->runtime); /* there may be more for another worker */

    const uint64_t before = brim__now();
    brim__rows_make(&run);
    const uint64_t took = brim__now() - before;

    brim__lock(&loader->mutex);
    brim__run_end(&run, slot, scratch, took);
    return true;
}

void brim__nothing_to_do(brim_loader *loader, bool is_next, struct brim__scratch *scratch) {
    if (scratch != NULL) {
        scratch->busy = false;
    }
    if (!is_next) {
        atomic_store(&loader->wants, false);
    }
    brim__unlock(&loader->mutex);
}

bool brim__loader_work(brim_loader *loader, bool is_next) {
    brim__lock(&loader->mutex);
    if (!loader->closing && loader->ship != NULL) {
        brim__ship_settle(loader); /* a slot that is free again is the sequencer's */
    }
    if (!loader->closing && loader->sequencer != NULL && brim__sequencer_turn(loader)) {
        brim__unlock(&loader->mutex);
        return true;
    }
    if (!loader->closing && loader->ship != NULL && brim__ship_turn(loader)) {
        brim__unlock(&loader->mutex);
        return true;
    }
    if (loader->closing || loader->revoking) {
        brim__nothing_to_do(loader, is_next, NULL);
        return false;
    }
    return loader->plan->sequence.stream ? brim__stream_work(loader, is_next)
                                         : make_rows(loader, is_next);
}

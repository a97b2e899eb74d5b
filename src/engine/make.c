/*
 * make.c: one run of rows: claim, make, report; the run with the last rows finishes the batch.
 * Called by workers, and by `next` when no worker does it.
 */
#include "engine/make.h"

#include "engine/place.h"

#define TIMED_EVERY 64    /* runs; the clock is read for each stage then */
#define COLD_NS     50000 /* a read slower than this did not come from the page cache */
#define MEAN_SHIFT  3     /* weight of a new run in the running mean: 1/8 */

bool brim__scratch_grow(brim_loader *loader) {
    if (loader->scratch_count > loader->plan->info.threads || loader->revoking || loader->idle) {
        return false;
    }
    for (uint32_t i = 1; i <= loader->plan->thread_cap; i++) {
        struct brim__scratch *scratch = &loader->scratch[i];
        if (scratch->pages.memory == NULL) {
            if (brim__loader_pages(loader, &scratch->pages, loader->plan->info.scratch_bytes,
                                   true) != BRIM_OK) {
                return false;
            }
            loader->scratch_count++;
            brim__loader_note_lacking(loader);
            return true;
        }
    }
    return false;
}

/* The first is kept for `next`, which so has one whatever the workers do. */
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
    loader->pace.ns_per_row =
        loader->pace.ns_per_row == 0
            ? per_row
            : loader->pace.ns_per_row - (loader->pace.ns_per_row >> MEAN_SHIFT) +
                  (per_row >> MEAN_SHIFT) + (per_row > loader->pace.ns_per_row);
    loader->report.stats.read_bytes += run->read_bytes;
    /* stages of whole batches, the last ones, are counted by those */
    for (uint32_t i = 0; i < loader->plan->info.stage_count - loader->plan->batch_steps; i++) {
        loader->report.stage[i].samples += run->count;
        if (run->timed) {
            loader->report.stage[i].timed_ns += run->stage_ns[i];
            loader->report.stage[i].timed_samples += run->count;
        }
    }
    if (run->timed) {
        loader->pace.cold = run->slowest_fetch_ns > COLD_NS;
    }
    for (uint32_t i = 0; i < run->bad_count; i++) {
        loader->report.error[loader->report.errors++ % BRIM_ERRORS_KEPT] = run->bad[i];
    }
}

/* mutex held: the slot learns what became of its rows. */
static void report(struct brim__slot *slot, const struct brim__run *run) {
    struct brim__claims *claims = &slot->claims;
    claims->made += run->count;
    slot->bad_rows += run->bad_rows;
    slot->replaced_rows += run->replaced_rows;
    if (run->bad_count > 0 && (slot->bad_text[0] == '\0' || run->first < claims->bad_first)) {
        claims->bad_first = run->first;
        brim__copy_text(slot->bad_text, sizeof slot->bad_text, run->bad[0].text);
        slot->bad_cause = run->bad[0].cause;
    }
    if (run->error != BRIM_OK &&
        (slot->error.status == BRIM_OK || run->error_row < claims->error_row)) {
        claims->error_row = run->error_row;
        slot->error.status = run->error;
        slot->error.failure = run->failure;
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
        struct brim__stage_time *time = &loader->report.stage[plan->batch_step[i].stage];
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

/* mutex held, and released while the batch is finished. */
static void leave_slot(brim_loader *loader, struct brim__slot *slot) {
    const brim_plan *plan = loader->plan;
    const struct brim__ring *ring = slot->ring;
    /* what failed is not finished: the lengths of rows that were not made say nothing */
    if (!slot->abandoned && slot->claims.made == slot->rows && ring == loader->batches &&
        slot->error.status == BRIM_OK &&
        (slot->bad_rows > 0 || plan->placed.ragged || plan->batch_steps > 0)) {
        brim__unlock(&loader->mutex);
        const brim_status status = finish(loader, slot);
        brim__lock(&loader->mutex);
        if (status != BRIM_OK) {
            brim__error_keep(&slot->error, status);
        }
    }
    slot->busy--;
    if (slot->abandoned && slot->busy == 0) {
        brim__slot_free(slot);
        brim__loader_event(loader);
    } else if (!slot->abandoned && slot->claims.made == slot->rows) {
        brim__slot_set(slot, BRIM__SLOT_READY);
        if (slot->ticket == ring->take) {
            brim__loader_event(loader);
        }
    }
}

void brim__run_begin(struct brim__run *run, brim_loader *loader, bool is_next) {
    const struct brim__consumer *consumer = &loader->consumer;
    run->loader = loader;
    run->stop = (struct brim__stop){ .flag = is_next ? &loader->interrupted : &loader->stopping,
                                     .asked = is_next ? consumer->asked : NULL,
                                     .user = consumer->asked_user,
                                     .asked_ns = is_next ? consumer->asked_ns : 0 };
    run->interrupted = false;
    run->slot_memory = run->slot->pages.memory;
    run->scratch = run->memory->pages.memory;
    run->batch_region = brim__pages_region(&run->slot->pages);
    run->scratch_region = brim__pages_region(&run->memory->pages);
    run->timed = loader->pace.runs++ % TIMED_EVERY == 0;
    run->advise = loader->pace.cold;
    run->error = BRIM_OK;
    run->error_row = run->bad_rows = run->replaced_rows = run->bad_count = 0;
    run->read_bytes = run->slowest_fetch_ns = 0;
    if (run->timed) {
        memset(run->stage_ns, 0, loader->plan->info.stage_count * sizeof run->stage_ns[0]);
    }
}

void brim__run_end(struct brim__run *run, uint64_t took) {
    brim_loader *loader = run->loader;
    struct brim__slot *slot = run->slot;
    if (run->stop.asked != NULL) {
        loader->consumer.asked_ns = run->stop.asked_ns;
    }
    if (BRIM__UNLIKELY(run->interrupted)) {
        assert(slot->claims.returned == 0 || loader->closing);
        slot->claims.returned_first = run->first;
        slot->claims.returned = run->count;
    } else {
        account(loader, run, took);
        report(slot, run);
    }
    leave_slot(loader, slot);
    run->memory->busy = false;
    if (loader->revoking) {
        brim__loader_event(loader);
    }
    brim__loader_want(loader);
}

/* Claims rows and makes them. */
static bool turn(brim_loader *loader, bool is_next) {
    struct brim__run run;
    if (loader->revoking) {
        return false;
    }
    run.memory = brim__scratch_take(loader, is_next);
    if (run.memory == NULL) {
        return false;
    }
    if (!brim__claim(loader, is_next, &run)) {
        run.memory->busy = false;
        return false;
    }
    brim__run_begin(&run, loader, is_next);
    brim__loader_unlock(loader);
    brim__pool_wake(loader->runtime); /* there may be more for another worker */

    const uint64_t before = brim__now();
    brim__rows_make(&run);
    const uint64_t took = brim__now() - before;

    brim__lock(&loader->mutex);
    brim__run_end(&run, took);
    return true;
}

const struct brim__ring_role brim__make_role = { .turn = turn };

/*
 * lend.c: whether a batch may be lent, and lending it.
 */
#include "engine/chain.h"
#include "engine/position.h"
#include "engine/upload.h"

#include <stdio.h>

/* ------------------------------------------------------------ batches held */

static bool comes_before(const struct brim__slot *a, const struct brim__slot *b) {
    if (a->epoch != b->epoch) {
        return a->epoch < b->epoch;
    }
    return a->delivery.step != b->delivery.step ? a->delivery.step < b->delivery.step
                                                : a->delivery.micro < b->delivery.micro;
}

/* The batch that is lent and comes next after `previous` (NULL: the first of all). */
static const struct brim__slot *next_lent(const struct brim__ring *ring,
                                          const struct brim__slot *previous) {
    const struct brim__slot *found = NULL;
    for (uint32_t i = 0; i < ring->cap; i++) {
        const struct brim__slot *slot = &ring->slot[i];
        if (slot->state == BRIM__SLOT_LENT && (previous == NULL || comes_before(previous, slot)) &&
            (found == NULL || comes_before(slot, found))) {
            found = slot;
        }
    }
    return found;
}

/* why: there is no slot for one beyond `hold`; NULL: no more may be lent. */
static brim_status refuse(const brim_loader *loader, const char *why) {
    char names[512] = "", allowed[BRIM__DETAIL_BYTES / 2], beyond[32] = "";
    size_t length = 0;
    for (const struct brim__slot *slot = next_lent(loader->last, NULL);
         slot != NULL && length < sizeof names - 64; slot = next_lent(loader->last, slot)) {
        const int wrote = snprintf(names + length, sizeof names - length, "%sepoch %llu step %llu",
                                   length > 0 ? ", " : "", (unsigned long long)slot->epoch,
                                   (unsigned long long)slot->delivery.step);
        length += wrote > 0 ? (size_t)wrote : 0;
    }
    if (loader->beyond > 0) {
        snprintf(beyond, sizeof beyond, " with %u beyond it", loader->beyond);
    }
    const struct brim__lack lack = *brim__lack(); /* of the memory that was refused */
    if (why != NULL) {
        snprintf(allowed, sizeof allowed, "and one beyond hold=%u does not fit (%s)", loader->hold,
                 why);
    } else {
        snprintf(allowed, sizeof allowed, "as many as hold=%u%s allows", loader->hold, beyond);
    }
    const brim_status status =
        brim__fail(BRIM_STATUS_HELD,
                   "%u batch%s held, %s: %s; release one, copy it, or open with a larger hold",
                   loader->lent, loader->lent == 1 ? " is" : "es are", allowed, names);
    if (why != NULL) {
        *brim__lack() = lack;
    }
    return status;
}

bool brim__lend_is_begun(const brim_loader *loader) {
    return loader->lent < loader->hold || (loader->lent < loader->hold + loader->beyond &&
                                           brim__ring_firm(loader->last) > loader->lent);
}

brim_status brim__lend_begin(brim_loader *loader) {
    if (brim__lend_is_begun(loader) || !loader->position->goes_on(loader)) {
        return BRIM_OK; /* at the end of an epoch no slot is needed */
    }
    if (loader->lent >= loader->hold + loader->beyond) {
        return refuse(loader, NULL);
    }
    brim_status status = BRIM_OK;
    while (status == BRIM_OK && brim__ring_firm(loader->last) <= loader->lent) {
        status = brim__ring_firm_up(loader, loader->last);
    }
    brim__lend_end(loader); /* a batch may have been released while the mutex was */
    if (status == BRIM_STATUS_BUDGET) {
        char why[BRIM__DETAIL_BYTES / 2];
        brim__copy_text(why, sizeof why, brim_detail());
        return refuse(loader, why);
    }
    return status;
}

/* A `next` that is under way counts on one more; and so does a consumer that waits in slices, or
 * two of them would take each other's slot that is half made. */
uint64_t brim__lend_firm(const brim_loader *loader) {
    const bool waits = loader->in_call || loader->consumer.waiting_since != 0;
    return brim__max(loader->last->minimum, (uint64_t)loader->lent + waits);
}

void brim__lend_end(brim_loader *loader) {
    if (loader->beyond == 0) {
        return;
    }
    for (uint64_t firm = brim__ring_firm(loader->last); firm > brim__lend_firm(loader); firm--) {
        brim__ring_soften(loader, loader->last);
    }
}

/* ------------------------------------------------------------ empty batches */

/* All samples of the batch were bad and left out. Not of a sequenced plan, whose rows close up
 * across batches. */
static bool is_empty(const struct brim__slot *slot) {
    return slot->bad_rows > 0 && slot->bad_rows == slot->delivery.valid_rows;
}

/* An empty batch that is a whole step of the only rank can be left out. With several ranks the
 * others would take a step more, and wait in it for this rank; a program that adds micro-batches
 * up to a step counts them. */
bool brim__lend_passes_over(const brim_loader *loader, const struct brim__slot *slot) {
    return is_empty(slot) && loader->plan->shard.world == 1 && slot->delivery.micro_count == 1;
}

/* As if it had been lent and released. Positions stay as they are. */
static void pass_over(brim_loader *loader, struct brim__slot *slot) {
    loader->reached.epoch_bad += slot->bad_rows;
    loader->report.stats.skipped += slot->bad_rows;
    loader->report.stats.empty++;
    loader->position->took(loader, slot);
    for (struct brim__ring *ring = loader->last; ring != slot->ring; ring = ring->from) {
        ring->take++; /* it was not uploaded: batches with bad samples wait for `next` */
        ring->make++;
    }
    slot->ring->take++;
    brim__slot_free(slot);
}

/* Once is enough. */
static void warn_of_empty(brim_loader *loader, const struct brim__slot *slot) {
    const bool ranks = loader->plan->shard.world > 1;
    if (loader->report.stats.warning[0] != '\0') {
        return;
    }
    snprintf(loader->report.stats.warning, sizeof loader->report.stats.warning,
             "on_error=skip: all samples of epoch %llu, step %llu%s were bad; the batch is "
             "delivered without valid rows so that %s: skip it, or use on_error=replace",
             (unsigned long long)slot->epoch, (unsigned long long)slot->delivery.step,
             ranks ? " at this rank" : " in a micro-batch",
             ranks ? "ranks take equally many steps" : "the step has all of its micro-batches");
}

/* ---------------------------------------------------------------- handing out */

/* The head is ready: whether it may be handed out, or why not. */
static brim_status inspect(brim_loader *loader, struct brim__slot *slot) {
    if (slot->error.status != BRIM_OK) {
        return brim__error_report(&slot->error);
    }
    const uint64_t cap = loader->plan->batching.max_errors;
    const uint64_t bad = slot->bad_rows + slot->skipped + slot->replaced_rows;
    if (bad > 0 && loader->reached.epoch_bad + bad > cap) {
        brim_status status = brim__fail_bad(loader, slot->bad_text, slot->bad_cause);
        status = brim__fail_within(
            status, "more than max_errors=%llu bad samples in epoch %llu by step %llu",
            (unsigned long long)cap, (unsigned long long)slot->epoch,
            (unsigned long long)slot->delivery.step);
        if (!slot->ring->made_once) { /* the batch is made again, and its samples counted again */
            brim__error_keep(&slot->error, status);
            slot->error.reported = true;
        }
        return status;
    }
    slot->inspected = true;
    return BRIM_OK;
}

static void describe(brim_loader *loader, struct brim__slot *slot) {
    const brim_plan *plan = loader->plan;
    const struct brim__delivery *delivery = &slot->delivery;
    struct brim_batch *batch = &slot->batch;
    batch->loader = loader;
    batch->slot = slot;
    batch->delivery = *delivery;
    batch->resume = slot->resume;
    batch->info = (brim_batch_info){
        .epoch = slot->epoch,
        .step = delivery->step,
        .micro = delivery->micro,
        .micro_count = delivery->micro_count,
        .rows = slot->rows - slot->bad_rows,
        .valid_rows = delivery->valid_rows - slot->bad_rows,
        .skipped = slot->bad_rows + slot->skipped,
        .step_rows = delivery->step_rows,
        .global_rows = delivery->global_rows,
        .first_position = delivery->first,
        .field_count = plan->delivered.output_count,
    };
    if (slot->ring->memory == BRIM__RING_HOST) {
        brim__batch_layout(batch, plan, slot->pages.memory);
    } else { /* fields were laid out when it was uploaded */
        batch->info.samples = (const uint64_t *)(const void *)slot->pages.memory;
        batch->info.valid = slot->pages.memory + plan->on_device.tail_valid;
    }
}

static void count(brim_loader *loader, const struct brim__slot *slot) {
    const struct brim_batch *batch = &slot->batch;
    brim_stats *stats = &loader->report.stats;
    loader->reached.epoch_bad += batch->info.skipped + slot->replaced_rows;
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
        stats->first_batch_ns = brim__now() - loader->report.opened_ns;
    }
}

brim_status brim__lend(brim_loader *loader, struct brim__slot *slot, brim_batch **out) {
    struct brim__ring *ring = loader->last;
    brim_status status = BRIM_OK;
    if (ring->memory != BRIM__RING_DEVICE || slot->ring != ring) {
        status = inspect(loader, slot);
        if (status == BRIM_OK && brim__lend_passes_over(loader, slot)) {
            pass_over(loader, slot);
            return BRIM_OK;
        }
        if (slot->ring != ring) {
            return status; /* it may be uploaded now */
        }
    } else {
        status = brim__upload_lend(loader, slot);
    }
    if (status != BRIM_OK) {
        return status;
    }
    describe(loader, slot);
    brim__slot_set(slot, BRIM__SLOT_LENT);
    loader->lent++;
    ring->take++;
    loader->position->took(loader, slot);
    count(loader, slot);
    brim__loader_ref(loader);
    *out = &slot->batch;
    return BRIM_OK;
}

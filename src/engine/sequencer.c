/*
 * sequencer.c: assigning rows to batches in order; see sequencer.h.
 */
#include "engine/sequencer.h"

#include "engine/chain.h"
#include "engine/make.h"
#include "engine/place.h"
#include "engine/position.h"

/* ------------------------------------------------------------- to batches */

/* A slot to fill; false: none is free. */
static bool take_slot(brim_loader *loader) {
    struct brim__sequencer *sequencer = loader->sequencer;
    if (sequencer->slot != NULL) {
        return true;
    }
    brim__lock(&loader->mutex);
    struct brim__ring *ring = loader->batches;
    struct brim__slot *slot = brim__ring_find_free(ring);
    if (slot == NULL && ring->grow && brim__ring_grow(loader, ring) == BRIM_OK) {
        slot = brim__ring_find_free(ring);
    }
    if (slot != NULL) {
        slot->rows = 0;
        brim__slot_fill(slot);
        slot->ticket = ring->make; /* if it is handed out */
        sequencer->slot = slot;
        sequencer->rows = sequencer->width = 0;
    }
    BRIM__CHECK_CHAIN(loader);
    brim__unlock(&loader->mutex);
    return slot != NULL;
}

/* Micro-batches of a step: the same at each rank, and in the last step too, whose
 * rows are not known when the first of them is handed out. */
static uint32_t micro_count(const struct brim__shard *shard) {
    return (uint32_t)brim__shard_micro_count(shard, shard->global_rows);
}

/* The batch lies before what is wanted. No lock is needed: a call that changes what is wanted
 * waits until the sequencer does not run. */
static bool is_discarded(const struct brim__sequencer *sequencer,
                         const struct brim__delivery *delivery) {
    return delivery->step < sequencer->discard_step || (delivery->step == sequencer->discard_step &&
                                                        delivery->micro < sequencer->discard_micro);
}

/* The stages that act on whole batches; false: one of them has failed. */
static bool act(brim_loader *loader, const struct brim__slot *slot) {
    struct brim__sequencer *sequencer = loader->sequencer;
    const brim_plan *plan = loader->plan;
    const struct brim__delivery *delivery = &slot->delivery;
    const struct brim__batch_call call = {
        .memory = slot->pages.memory,
        .rows = delivery->valid_rows,
        .all_rows = delivery->rows,
        .epoch = slot->epoch,
        .number = plan->batching.bucket.on ? brim__shard_batch_of_step(&plan->shard, delivery->step)
                                           : delivery->first,
        .region = brim__pages_region(&slot->pages),
    };
    const brim_status status = brim__batch_act(loader, &call);
    if (status != BRIM_OK) {
        sequencer->failed = BRIM__FAILED_BATCH;
        brim__error_keep(&sequencer->failure, status);
    }
    return status == BRIM_OK;
}

/* Hands the slot out, or gives it back if it lies before what is wanted or has failed.
 * micros: how many the step has; resume: after it. */
static void publish(brim_loader *loader, uint32_t micros, const struct brim__position *resume) {
    const brim_plan *plan = loader->plan;
    struct brim__sequencer *sequencer = loader->sequencer;
    struct brim__slot *slot = sequencer->slot;
    uint8_t *memory = slot->pages.memory;
    const uint64_t valid = sequencer->rows;
    const uint64_t step_rows = plan->shard.global_rows;
    uint64_t begin, end, rows = valid;
    brim__shard_micro(&plan->shard, step_rows, sequencer->micro, &begin, &end);
    memset(memory + plan->placed.valid_offset, 1, valid);
    if (plan->shard.remainder == BRIM__PAD && !plan->batching.bucket.on) {
        rows = end - begin;
        brim__place_padding(&plan->placed, memory, valid, rows);
    }
    brim__place_finish(&plan->placed, memory, rows, sequencer->width);
    slot->delivery = (struct brim__delivery){
        .step = sequencer->step,
        .micro = sequencer->micro,
        .micro_count = micros,
        .first = plan->batching.bucket.on ? 0 : sequencer->total + begin,
        .rows = rows,
        .valid_rows = valid,
        .step_rows = brim__shard_valid(&plan->shard, step_rows, step_rows),
        .global_rows = step_rows,
    };
    if (sequencer->phase != BRIM__PLACING) { /* the step's rows are known */
        slot->delivery.step_rows =
            plan->batching.bucket.on
                ? valid
                : brim__shard_valid(&plan->shard, step_rows, sequencer->step_rows);
        slot->delivery.global_rows = sequencer->step_rows;
    }
    slot->epoch = sequencer->at.epoch;
    slot->rows = slot->claims.given = slot->claims.made = (uint32_t)rows;
    slot->skipped = (uint32_t)brim__min(sequencer->skipped, UINT32_MAX);
    slot->resume = *resume;
    slot->resume.until = resume->step;
    memcpy(slot->bad_text, sequencer->bad_text, sizeof slot->bad_text);
    slot->bad_cause = sequencer->bad_cause;
    sequencer->published++;
    sequencer->slot = NULL;
    sequencer->micro++;
    const bool discarded = is_discarded(sequencer, &slot->delivery);
    const bool good = discarded || act(loader, slot);
    sequencer->skipped = good ? 0 : sequencer->skipped; /* else the next batch counts them */
    brim__lock(&loader->mutex);
    if (discarded) {
        brim__slot_free(slot);
        sequencer->delivered = slot->resume;
        sequencer->delivered.until = sequencer->discard_step;
    } else if (!good) {
        brim__slot_free(slot);
    } else {
        slot->ticket = loader->batches->make++;
        brim__slot_set(slot, BRIM__SLOT_READY);
    }
    brim__loader_event(loader);
    brim__loader_unlock(loader);
}

/* The step's begin, with so many of its micro-batches delivered. */
static struct brim__position inside_step(const struct brim__sequencer *sequencer) {
    struct brim__position position = sequencer->step_begin;
    position.step = sequencer->step;
    position.micro = sequencer->micro + 1;
    return position;
}

static void next_step(struct brim__sequencer *sequencer) {
    sequencer->total += sequencer->step_rows;
    sequencer->step++;
    sequencer->step_rows = 0;
    sequencer->micro = 0;
    sequencer->step_begin = sequencer->last;
}

/* Rows were counted, and perhaps placed: what is complete now? */
static void advance(brim_loader *loader, uint64_t count) {
    const struct brim__shard *shard = &loader->plan->shard;
    struct brim__sequencer *sequencer = loader->sequencer;
    uint64_t begin, end;
    brim__shard_own_rows(shard, shard->global_rows, &begin, &end);
    sequencer->step_rows += count;
    if (sequencer->slot != NULL && sequencer->rows == shard->micro_rows &&
        sequencer->step_rows < end) { /* the rank's last one waits for the step */
        const struct brim__position inside = inside_step(sequencer);
        publish(loader, micro_count(shard), &inside);
    }
    if (sequencer->step_rows == shard->global_rows) {
        sequencer->phase = BRIM__COMPLETING;
    }
}

/* Hands out what is left of a step's micro-batches, of which every rank has equally
 * many: some of the last may be empty. false: a slot is missing for that, or one has
 * failed. */
static bool complete_step(brim_loader *loader, const struct brim__position *after) {
    struct brim__sequencer *sequencer = loader->sequencer;
    const bool bucket = loader->plan->batching.bucket.on;
    const uint32_t micros = bucket ? 1 : micro_count(&loader->plan->shard);
    while (sequencer->micro < micros) {
        if (!take_slot(loader)) {
            return false;
        }
        if (sequencer->rows == 0) {
            sequencer->width = bucket ? 1 : 0; /* nothing came for this rank */
        }
        const struct brim__position inside = inside_step(sequencer);
        publish(loader, micros, sequencer->micro + 1 < micros ? &inside : after);
        if (sequencer->failed == BRIM__FAILED_BATCH) {
            return false;
        }
    }
    next_step(sequencer);
    return true;
}

/* Where the next row of the step belongs: how many rows from here on do not
 * concern this rank, or how many its slot takes. */
static uint64_t room(const brim_loader *loader, bool *own) {
    const struct brim__shard *shard = &loader->plan->shard;
    const struct brim__sequencer *sequencer = loader->sequencer;
    uint64_t begin, end;
    brim__shard_own_rows(shard, shard->global_rows, &begin, &end);
    *own = sequencer->step_rows >= begin && sequencer->step_rows < end;
    if (!*own) {
        return sequencer->step_rows < begin ? begin - sequencer->step_rows
                                            : shard->global_rows - sequencer->step_rows;
    }
    const uint64_t taken = sequencer->slot == NULL ? 0 : sequencer->rows;
    return brim__min(end - sequencer->step_rows, shard->micro_rows - taken);
}

/* No slot is free: whether there is another row at all, so that the end of an epoch is found also
 * with all slots lent. */
static enum brim__flow look_ahead(brim_loader *loader) {
    struct brim__sequencer *sequencer = loader->sequencer;
    enum brim__flow flow = BRIM__FLOW_ROW;
    if (loader->plan->sequence.reordering == BRIM__BUCKETED) {
        flow = brim__reorder_prepare(loader);
    } else if (sequencer->ahead.layout == NULL) {
        struct brim__row row;
        flow = sequencer->top(loader, &row);
        if (flow == BRIM__FLOW_ROW) {
            sequencer->ahead = row;
        }
    }
    sequencer->starved |= flow == BRIM__FLOW_ROW;
    return flow == BRIM__FLOW_ROW ? BRIM__FLOW_WAIT : flow;
}

/* The next row of the uppermost level. */
static enum brim__flow next_row(brim_loader *loader, struct brim__row *row) {
    struct brim__sequencer *sequencer = loader->sequencer;
    if (sequencer->ahead.layout == NULL) {
        return sequencer->top(loader, row);
    }
    *row = sequencer->ahead;
    sequencer->ahead.layout = NULL;
    return BRIM__FLOW_ROW;
}

/* Straight from chunk to batch: as many rows at once as lie together. */
static enum brim__flow place_run(brim_loader *loader) {
    const brim_plan *plan = loader->plan;
    struct brim__sequencer *sequencer = loader->sequencer;
    bool own;
    uint64_t first = 0, count = 0;
    const uint64_t most = room(loader, &own);
    if (own && !take_slot(loader)) {
        return look_ahead(loader);
    }
    const enum brim__flow flow = brim__made_rows(loader, most, &first, &count);
    if (flow != BRIM__FLOW_ROW) {
        return flow;
    }
    if (own) {
        brim__place_copy(&plan->made, sequencer->chunk->pages.memory, first, &plan->placed,
                         sequencer->slot->pages.memory, sequencer->rows, count);
        sequencer->rows += count;
    }
    sequencer->last = brim__made_position(loader);
    sequencer->skipped += sequencer->met;
    sequencer->met = 0;
    advance(loader, count);
    return BRIM__FLOW_ROW;
}

/* One row that was packed or reordered. */
static enum brim__flow place_row(brim_loader *loader) {
    struct brim__sequencer *sequencer = loader->sequencer;
    struct brim__row row;
    bool own;
    room(loader, &own);
    if (own && !take_slot(loader)) {
        return look_ahead(loader);
    }
    const enum brim__flow flow = next_row(loader, &row);
    if (flow != BRIM__FLOW_ROW) {
        return flow;
    }
    if (own) {
        brim__row_place(&row, &loader->plan->placed, sequencer->slot->pages.memory,
                        sequencer->rows++, 0);
    }
    sequencer->last = row.after;
    if (loader->plan->sequence.reordering == BRIM__IN_ORDER) {
        sequencer->skipped += sequencer->met; /* else with the block that they were met in */
        sequencer->met = 0;
    }
    advance(loader, 1);
    return BRIM__FLOW_ROW;
}

/* One batch of rows of like length: a step is one for each rank. */
static enum brim__flow place_bucket(brim_loader *loader) {
    const brim_plan *plan = loader->plan;
    struct brim__sequencer *sequencer = loader->sequencer;
    struct brim__bucket_batch batch;
    const uint32_t turn = sequencer->micro; /* whose batch it is */
    const bool own = brim__shard_is_next(&plan->shard, turn);
    if (own && !take_slot(loader)) {
        return look_ahead(loader);
    }
    const enum brim__flow flow = brim__reorder_batch(loader, &batch);
    if (flow != BRIM__FLOW_ROW) {
        return flow;
    }
    if (own) {
        sequencer->width = batch.width;
        sequencer->rows = batch.rows;
        for (uint64_t i = 0; i < batch.rows; i++) {
            const struct brim__row row = { .layout = &plan->made,
                                           .packed =
                                               brim__block_row(batch.block, batch.first + i) };
            brim__row_place(&row, &plan->placed, sequencer->slot->pages.memory, i, batch.width);
        }
    }
    sequencer->last = batch.after;
    sequencer->step_rows += batch.rows;
    sequencer->micro = turn + 1;
    if (brim__shard_is_whole(&plan->shard, sequencer->micro)) {
        sequencer->micro = 0; /* one batch, not a micro-batch */
        sequencer->phase = BRIM__COMPLETING;
    }
    return BRIM__FLOW_ROW;
}

/* ------------------------------------------------------------- the end */

/* The input has no more rows: what is left of the last step is handed out, padded or dropped.
 * False: not all of it, as complete_step says. */
static bool finish_step(brim_loader *loader) {
    struct brim__sequencer *sequencer = loader->sequencer;
    const struct brim__position end = { .epoch = sequencer->at.epoch, .sample = UINT64_MAX };
    const bool bucket = loader->plan->batching.bucket.on;
    if (sequencer->phase != BRIM__FINISHING && bucket) {
        sequencer->micro = 0; /* it counted ranks */
    }
    sequencer->phase = BRIM__FINISHING;
    if (sequencer->step_rows == 0 || (loader->plan->shard.remainder == BRIM__DROP && !bucket)) {
        return true; /* a slot that is left is given back by end_epoch */
    }
    return complete_step(loader, &end);
}

/* mutex held: the epoch's batches have all been made. */
static void end_epoch(struct brim__sequencer *sequencer) {
    if (sequencer->slot != NULL) {
        brim__slot_free(sequencer->slot);
        sequencer->slot = NULL;
    }
    sequencer->tail = sequencer->skipped + sequencer->met;
    sequencer->skipped = sequencer->met = 0;
    sequencer->phase = BRIM__ENDED;
}

/* ------------------------------------------------------------------ running */

static enum brim__flow place(brim_loader *loader) {
    const struct brim__sequence *sequence = &loader->plan->sequence;
    struct brim__sequencer *sequencer = loader->sequencer;
    if (sequencer->phase == BRIM__COMPLETING) {
        struct brim__position after = sequencer->last;
        after.step = sequencer->step + 1;
        after.micro = 0;
        if (!complete_step(loader, &after)) {
            sequencer->starved |= sequencer->failed == BRIM__FAILED_NOTHING;
            return BRIM__FLOW_WAIT;
        }
        sequencer->phase = BRIM__PLACING;
        return BRIM__FLOW_ROW;
    }
    if (sequencer->phase == BRIM__FINISHING) {
        return BRIM__FLOW_END;
    }
    if (sequence->reordering == BRIM__BUCKETED) {
        return place_bucket(loader);
    }
    return sequencer->top == brim__made_next && sequencer->ahead.layout == NULL ? place_run(loader)
                                                                                : place_row(loader);
}

/* Until a batch is made, or nothing more can be done; whether anything was. *ended: the
 * epoch's batches have all been made. */
static bool run(brim_loader *loader, bool *ended) {
    struct brim__sequencer *sequencer = loader->sequencer;
    const uint64_t published = sequencer->published;
    bool did = false;
    for (;;) {
        const enum brim__flow flow = place(loader);
        if (flow == BRIM__FLOW_END) {
            *ended = finish_step(loader);
            sequencer->starved |= !*ended && sequencer->failed == BRIM__FAILED_NOTHING;
            return did || *ended || sequencer->published != published;
        }
        if (sequencer->failed == BRIM__FAILED_BATCH) {
            return true;
        }
        if (flow == BRIM__FLOW_FAIL) {
            sequencer->failed =
                brim__made_too_many(loader) ? BRIM__FAILED_MANY : BRIM__FAILED_SAMPLE;
            return did;
        }
        if (flow == BRIM__FLOW_WAIT) {
            const bool reorders = loader->plan->sequence.reordering != BRIM__IN_ORDER;
            return (reorders && brim__reorder_absorb(loader)) || did;
        }
        did = true;
        if (sequencer->published != published) {
            return true;
        }
    }
}

static bool turn(brim_loader *loader, bool is_next) {
    struct brim__sequencer *sequencer = loader->sequencer;
    struct brim__ring *ring = loader->batches;
    bool ended = false;
    (void)is_next;
    if (sequencer->running || sequencer->phase >= BRIM__ENDED || ring->error.status != BRIM_OK) {
        sequencer->missed = sequencer->running;
        return false;
    }
    sequencer->running = true;
    sequencer->missed = sequencer->starved = false;
    sequencer->failed = BRIM__FAILED_NOTHING;
    brim__loader_unlock(loader);
    bool did = run(loader, &ended);
    brim__lock(&loader->mutex);
    sequencer->running = false;
    did |= sequencer->missed; /* what that thread came for may be newer than the last look */
    if (ended) {
        end_epoch(sequencer);
    }
    const bool failed = sequencer->failed != BRIM__FAILED_NOTHING;
    if (failed) {
        ring->error = sequencer->failure;
    }
    if (did || failed) {
        brim__loader_want(loader);
    }
    brim__loader_event(loader); /* a seek may wait for it to stop running */
    return did;
}

/* Begins again after the last batch that was delivered. */
static void begin_again(brim_loader *loader) {
    const struct brim__position position = loader->sequencer->delivered;
    const uint64_t bad = loader->reached.epoch_bad; /* of batches that stay delivered */
    brim__sequenced_go(loader, &position);
    loader->reached.epoch_bad = bad;
}

/* Too many bad samples stay too many until a seek. The rows of a batch that failed as a whole may
 * have been changed: it is made again from its samples, or, where they cannot be read once more,
 * left out. A sample is made again or, of a stream, left out. */
static void retry(brim_loader *loader) {
    const struct brim__sequence *sequence = &loader->plan->sequence;
    struct brim__sequencer *sequencer = loader->sequencer;
    struct brim__slot *chunk = sequencer->chunk;
    if (sequencer->failed == BRIM__FAILED_MANY) {
        return;
    }
    brim__error_clear(&loader->batches->error);
    brim__loader_want(loader);
    if (sequencer->failed == BRIM__FAILED_BATCH) {
        sequencer->failed = BRIM__FAILED_NOTHING;
        if (!sequence->stream || sequence->seekable) {
            begin_again(loader);
        }
    } else if (sequence->stream) {
        /* what was pulled cannot be pulled again */
        loader->stream.stuck = false;
        brim__made_leave_sample(loader);
    } else if (chunk != NULL) {
        sequencer->origin_row = sequencer->chunk_row;
        sequencer->chunk = NULL;
        brim__slot_restart(chunk);
        /* those before it have been placed: were they made again, they might fail now */
        chunk->claims.given = chunk->claims.made =
            (uint32_t)(sequencer->chunk_row / loader->plan->rows_per_sample);
    }
}

/* What has failed waits for `next`, and a stream would have to be read once more. */
static bool go_back(brim_loader *loader) {
    const struct brim__sequencer *sequencer = loader->sequencer;
    while (sequencer->running && !loader->plan->callback) { /* a callback may take long */
        brim__loader_wait(loader, UINT64_MAX);
    }
    if (sequencer->running || loader->plan->sequence.stream || loader->closing ||
        sequencer->failed != BRIM__FAILED_NOTHING || sequencer->phase == BRIM__SPENT ||
        loader->batches->error.status != BRIM_OK) {
        return false;
    }
    begin_again(loader);
    return true;
}

const struct brim__ring_role brim__sequencer_role = { .turn = turn,
                                                      .retry = retry,
                                                      .go_back = go_back };

/* ---------------------------------------------------- beginning and ending */

void brim__sequencer_go(brim_loader *loader, const struct brim__position *position) {
    struct brim__sequencer *sequencer = loader->sequencer;
    while (sequencer->running) {
        brim__loader_wait(loader, UINT64_MAX);
    }
    const bool at_end = position->sample == UINT64_MAX;
    struct brim__position at = *position;
    at.sample = at_end ? 0 : at.sample;
    at.offset = at.given = at.micro = 0;
    sequencer->phase = at_end ? BRIM__ENDED : BRIM__PLACING;
    sequencer->failed = BRIM__FAILED_NOTHING;
    brim__error_clear(&loader->batches->error);
    sequencer->delivered = *position;
    sequencer->discard_step = brim__max(position->step, position->until);
    sequencer->discard_micro = position->micro;
    sequencer->chunk = NULL;
    sequencer->slot = NULL;
    sequencer->ahead.layout = NULL;
    sequencer->starved = false;
    sequencer->at = at;
    sequencer->origin_row = at.row;
    sequencer->step = position->step;
    sequencer->step_rows = sequencer->micro = 0;
    sequencer->met = sequencer->skipped = sequencer->tail = 0;
    sequencer->bad_text[0] = '\0';
    sequencer->total = position->step * loader->plan->shard.global_rows;
    sequencer->step_begin = sequencer->last = *position;
    sequencer->step_begin.micro = 0;
    brim__pack_go(loader, position);
    brim__reorder_go(loader, position);
}

brim_status brim__sequencer_init(brim_loader *loader) {
    const struct brim__sequence *sequence = &loader->plan->sequence;
    struct brim__sequencer *sequencer = loader->sequencer;
    brim_status status = BRIM_OK;
    if (sequence->pack) {
        status =
            brim__pages_new(&sequencer->item, loader->budget, sequence->item.bytes, false, false);
    }
    if (status == BRIM_OK && sequence->reordering != BRIM__IN_ORDER) {
        status = brim__pages_new(&sequencer->blocks, loader->budget, 2 * sequence->block_bytes,
                                 false, false);
        for (uint32_t i = 0; status == BRIM_OK && i < 2; i++) {
            sequencer->reorderer.block[i].memory =
                sequencer->blocks.memory + i * sequence->block_bytes;
            sequencer->reorderer.block[i].bytes = sequence->block_bytes;
        }
    }
    const bool reorders = sequence->reordering != BRIM__IN_ORDER;
    sequencer->reorder_below =
        sequence->pack && sequence->pack_first ? brim__pack_next : brim__made_next;
    sequencer->pack_below =
        reorders && !sequence->pack_first ? brim__reorder_next : brim__made_next;
    sequencer->top = sequence->pack && !(reorders && sequence->pack_first) ? brim__pack_next
                     : reorders                                            ? brim__reorder_next
                                                                           : brim__made_next;
    return status;
}

void brim__sequencer_fini(brim_loader *loader) {
    brim__pages_free(&loader->sequencer->item);
    brim__pages_free(&loader->sequencer->blocks);
}

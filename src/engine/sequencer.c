/*
 * sequencer.c: rows placed one after the other; see sequencer.h.
 */
#include "engine/sequencer.h"

#include "engine/place.h"

#include <stdio.h>

/* ------------------------------------------------------------- from chunks */

/* The chunk to read from, or why there is none. */
static enum brim__flow take_chunk(brim_loader *loader) {
    struct brim__sequencer *sequencer = loader->sequencer;
    enum brim__flow flow = BRIM__FLOW_ROW;
    if (sequencer->chunk != NULL) {
        return flow;
    }
    brim__lock(&loader->mutex);
    const struct brim__shard shard = brim__loader_shard(loader, loader->take_epoch);
    struct brim__slot *head = brim__slot_head(loader);
    if (!loader->plan->sequence.stream && loader->take_index >= brim__shard_deliveries(&shard)) {
        flow = BRIM__FLOW_END;
    } else if (head == NULL || head->state != BRIM__SLOT_READY) {
        flow = BRIM__FLOW_WAIT;
    } else {
        sequencer->chunk = head;
        sequencer->chunk_row = sequencer->origin_row;
        sequencer->origin_row = 0;
    }
    brim__unlock(&loader->mutex);
    return flow;
}

static void leave_chunk(brim_loader *loader) {
    struct brim__sequencer *sequencer = loader->sequencer;
    brim__lock(&loader->mutex);
    brim__slot_free(sequencer->chunk);
    loader->take_ticket++;
    loader->take_index++;
    atomic_store(&loader->wants, true);
    brim__unlock(&loader->mutex);
    brim__pool_wake(loader->runtime);
    sequencer->chunk = NULL;
}

static enum brim__flow fail(brim_loader *loader, const struct brim__slot *chunk) {
    struct brim__sequencer *sequencer = loader->sequencer;
    const uint64_t sample = sequencer->chunk_row / loader->plan->rows_per_sample;
    const uint64_t number = chunk->delivery.first + sample;
    if (chunk->error != BRIM_OK && chunk->error_row == sample) {
        sequencer->failure = chunk->error;
        sequencer->kept = chunk->kept;
    } else {
        sequencer->failure = BRIM_STATUS_CORRUPT;
        brim__failure_set(&sequencer->kept, BRIM_STATUS_CORRUPT,
                          "sample %llu is bad; one before it in the stream said why",
                          (unsigned long long)number);
        sequencer->kept.sample = number;
    }
    return BRIM__FLOW_FAIL;
}

/* Nothing but bad samples, more than max_errors allows, since the last batch. */
static enum brim__flow fail_of_many(brim_loader *loader) {
    struct brim__sequencer *sequencer = loader->sequencer;
    sequencer->failure = BRIM_STATUS_CORRUPT;
    brim__failure_set(&sequencer->kept, BRIM_STATUS_CORRUPT,
                      "more than max_errors=%llu bad samples one after the other, the last: %s",
                      (unsigned long long)loader->plan->batching.max_errors, sequencer->bad_text);
    sequencer->kept.cause = sequencer->bad_cause;
    return BRIM__FLOW_FAIL;
}

/* The rest of the sample's rows are passed over. */
static void leave_sample(brim_loader *loader) {
    const uint64_t most = loader->plan->rows_per_sample;
    loader->sequencer->chunk_row += most - loader->sequencer->chunk_row % most;
}

/* Up to `most` neighbouring rows that were kept: *first of the chunk on. */
static enum brim__flow take_rows(brim_loader *loader, uint64_t most, uint64_t *first,
                                 uint64_t *count) {
    const brim_plan *plan = loader->plan;
    const struct brim__sequence *sequence = &plan->sequence;
    struct brim__sequencer *sequencer = loader->sequencer;
    for (;;) {
        if (sequencer->at.passed >= sequence->take &&
            sequencer->at.passed - sequence->take >= sequence->skip) {
            return BRIM__FLOW_END;
        }
        if (sequencer->met + sequencer->skipped > plan->batching.max_errors) {
            return fail_of_many(loader);
        }
        const enum brim__flow flow = take_chunk(loader);
        if (flow != BRIM__FLOW_ROW) {
            return flow;
        }
        const struct brim__slot *chunk = sequencer->chunk;
        const uint8_t *outcome = chunk->pages.memory + plan->made.outcome_offset;
        const uint64_t rows = chunk->rows * plan->rows_per_sample;
        if (sequencer->chunk_row == rows) {
            if (chunk->ended) {
                return BRIM__FLOW_END;
            }
            leave_chunk(loader);
            continue;
        }
        const uint64_t at = sequencer->chunk_row;
        uint64_t run = 1;
        if (outcome[at] == BRIM__ROW_FAILED) {
            return fail(loader, chunk);
        }
        if (outcome[at] == BRIM__ROW_MADE) {
            /* rows that skip leaves out come one by one; take ends a run */
            const bool skipped = sequencer->at.passed < sequence->skip;
            const uint64_t left = skipped ? 1
                                  : sequence->take == UINT64_MAX
                                      ? UINT64_MAX
                                      : sequence->skip + sequence->take - sequencer->at.passed;
            const uint64_t end = brim__min(rows - at, brim__min(most, left));
            while (run < end && outcome[at + run] == BRIM__ROW_MADE) {
                run++;
            }
            sequencer->at.passed += run;
            sequencer->chunk_row += run;
            if (!skipped) {
                *first = at;
                *count = run;
                return BRIM__FLOW_ROW;
            }
            continue;
        }
        if (outcome[at] == BRIM__ROW_BAD) {
            leave_sample(loader);
            sequencer->met++;
            memcpy(sequencer->bad_text, chunk->bad_text, sizeof(sequencer->bad_text));
            sequencer->bad_cause = chunk->bad_cause;
        } else {
            sequencer->chunk_row++;
        }
    }
}

/* The position behind the last row taken. */
static struct brim__position position_now(const brim_loader *loader) {
    const struct brim__sequencer *sequencer = loader->sequencer;
    struct brim__position position = sequencer->at;
    position.sample =
        sequencer->chunk->delivery.first + sequencer->chunk_row / loader->plan->rows_per_sample;
    position.row = sequencer->chunk_row % loader->plan->rows_per_sample;
    return position;
}

static enum brim__flow made_next(brim_loader *loader, struct brim__row *row) {
    uint64_t first, count;
    const enum brim__flow flow = take_rows(loader, 1, &first, &count);
    if (flow == BRIM__FLOW_ROW) {
        *row = (struct brim__row){ .layout = &loader->plan->made,
                                   .memory = loader->sequencer->chunk->pages.memory,
                                   .at = first,
                                   .after = position_now(loader) };
    }
    return flow;
}

/* ------------------------------------------------------------- to batches */

/* A slot to fill; false: none is free. */
static bool take_slot(brim_loader *loader) {
    struct brim__sequencer *sequencer = loader->sequencer;
    if (sequencer->slot != NULL) {
        return true;
    }
    brim__lock(&loader->mutex);
    struct brim__slot *slot = brim__slot_find_free(loader->slot, loader->plan->slot_cap);
    if (slot == NULL && loader->grow_slot && brim__slot_grow(loader)) {
        slot = brim__slot_find_free(loader->slot, loader->plan->slot_cap);
    }
    if (slot != NULL) {
        slot->rows = 0;
        brim__slot_restart(slot);
        slot->state = BRIM__SLOT_FILLING;
        sequencer->slot = slot;
        sequencer->rows = sequencer->width = 0;
    }
    brim__unlock(&loader->mutex);
    return slot != NULL;
}

/* Micro-batches of a step: the same at each rank, and in the last step too, whose
 * rows nobody knows when the first of them is handed out. */
static uint32_t micro_count(const struct brim__shard *shard) {
    return (uint32_t)brim__shard_micro_count(shard, shard->global_rows);
}

/* The batch lies before what is wanted. No lock is needed: who changes what is wanted
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
        .number = plan->batching.bucket.on ? delivery->step * plan->shard.world + plan->shard.rank
                                           : delivery->first,
        .region = brim__pages_region(&slot->pages),
    };
    sequencer->failure = brim__batch_act(loader, &call);
    sequencer->batch_failed = sequencer->failure != BRIM_OK;
    if (sequencer->batch_failed) {
        brim__failure_keep(&sequencer->kept);
    }
    return !sequencer->batch_failed;
}

/* Hands the slot out, or gives it back if it lies before what is wanted or has failed.
 * micros: how many the step has; resume: behind it. */
static void publish(brim_loader *loader, uint32_t micros, const struct brim__position *resume) {
    const brim_plan *plan = loader->plan;
    struct brim__sequencer *sequencer = loader->sequencer;
    struct brim__slot *slot = sequencer->slot;
    uint8_t *memory = slot->pages.memory;
    const uint64_t valid = sequencer->rows;
    uint64_t begin, end, rows = valid;
    brim__shard_own_rows(&plan->shard, plan->shard.global_rows, &begin, &end);
    memset(memory + plan->placed.valid_offset, 1, valid);
    const uint64_t first = begin + sequencer->micro * plan->shard.micro_rows;
    if (plan->shard.remainder == BRIM__PAD && !plan->batching.bucket.on) {
        rows = brim__min(plan->shard.micro_rows, end - brim__min(end, first));
        brim__place_padding(&plan->placed, memory, valid, rows);
    }
    brim__place_finish(&plan->placed, memory, rows, sequencer->width);
    slot->delivery = (struct brim__delivery){
        .step = sequencer->step,
        .micro = sequencer->micro,
        .micro_count = micros,
        .first = plan->batching.bucket.on ? 0 : sequencer->total + first,
        .rows = rows,
        .valid_rows = valid,
        .step_rows = end - begin,
        .global_rows = plan->shard.global_rows,
    };
    if (sequencer->completing || sequencer->input_ended) { /* the step's rows are known */
        slot->delivery.step_rows =
            plan->batching.bucket.on
                ? valid
                : brim__min(end, sequencer->step_rows) - brim__min(begin, sequencer->step_rows);
        slot->delivery.global_rows = sequencer->step_rows;
    }
    slot->epoch = sequencer->at.epoch;
    slot->rows = slot->claimed = slot->done = (uint32_t)rows;
    slot->skipped = (uint32_t)brim__min(sequencer->skipped, UINT32_MAX);
    slot->resume = *resume;
    slot->resume.until = resume->step;
    memcpy(slot->bad_text, sequencer->bad_text, sizeof(slot->bad_text));
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
        slot->ticket = sequencer->make++;
        slot->state = BRIM__SLOT_READY;
    }
    brim__loader_event(loader);
    brim__unlock(&loader->mutex);
    brim__broadcast(&loader->ready);
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
    sequencer->completing = sequencer->step_rows == shard->global_rows;
}

/* Hands out what is left of a step's micro-batches, of which every rank has equally
 * many: some of the last may be empty. false: a slot is missing for that, or one has
 * failed. */
static bool complete_step(brim_loader *loader, const struct brim__position *behind) {
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
        publish(loader, micros, sequencer->micro + 1 < micros ? &inside : behind);
        if (sequencer->batch_failed) {
            return false;
        }
    }
    sequencer->completing = false;
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

/* Straight from chunk to batch: as many rows at once as lie together. */
static enum brim__flow place_run(brim_loader *loader) {
    const brim_plan *plan = loader->plan;
    struct brim__sequencer *sequencer = loader->sequencer;
    bool own;
    uint64_t first = 0, count = 0;
    const uint64_t most = room(loader, &own);
    if (own && !take_slot(loader)) {
        return BRIM__FLOW_WAIT;
    }
    const enum brim__flow flow = take_rows(loader, most, &first, &count);
    if (flow != BRIM__FLOW_ROW) {
        return flow;
    }
    if (own) {
        brim__place_copy(&plan->made, sequencer->chunk->pages.memory, first, &plan->placed,
                         sequencer->slot->pages.memory, sequencer->rows, count);
        sequencer->rows += count;
    }
    sequencer->last = position_now(loader);
    sequencer->skipped += sequencer->met;
    sequencer->met = 0;
    advance(loader, count);
    return BRIM__FLOW_ROW;
}

/* One row that was packed or gathered. */
static enum brim__flow place_row(brim_loader *loader) {
    struct brim__sequencer *sequencer = loader->sequencer;
    struct brim__row row;
    bool own;
    room(loader, &own);
    if (own && !take_slot(loader)) {
        return BRIM__FLOW_WAIT;
    }
    const enum brim__flow flow = sequencer->top(loader, &row);
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
    const bool own = turn == plan->shard.rank;
    if (own && !take_slot(loader)) {
        return BRIM__FLOW_WAIT;
    }
    const enum brim__flow flow = brim__gather_batch(loader, &batch);
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
    if (sequencer->micro == plan->shard.world) {
        sequencer->micro = 0; /* one batch, not a micro-batch */
        sequencer->completing = true;
    }
    return BRIM__FLOW_ROW;
}

/* ------------------------------------------------------------- the end */

/* What is left of the last step is handed out, padded or dropped; false: not all of
 * it, as complete_step says. */
static bool finish_step(brim_loader *loader) {
    struct brim__sequencer *sequencer = loader->sequencer;
    const struct brim__position end = { .epoch = sequencer->at.epoch, .sample = UINT64_MAX };
    const bool bucket = loader->plan->batching.bucket.on;
    if (sequencer->step_rows == 0 || (loader->plan->shard.remainder == BRIM__DROP && !bucket)) {
        return true; /* a slot that is left is given back by who ends the epoch */
    }
    if (bucket && !sequencer->finishing) {
        sequencer->micro = 0; /* it counted ranks */
    }
    sequencer->finishing = true;
    return complete_step(loader, &end);
}

/* mutex held: the epoch's batches have all been made. */
static void end_epoch(brim_loader *loader) {
    struct brim__sequencer *sequencer = loader->sequencer;
    if (sequencer->slot != NULL) {
        brim__slot_free(sequencer->slot);
        sequencer->slot = NULL;
    }
    sequencer->tail = sequencer->skipped + sequencer->met;
    sequencer->skipped = sequencer->met = 0;
    sequencer->end = true;
}

/* ------------------------------------------------------------------ running */

static enum brim__flow place(brim_loader *loader) {
    const struct brim__sequence *sequence = &loader->plan->sequence;
    struct brim__sequencer *sequencer = loader->sequencer;
    if (sequencer->completing) {
        struct brim__position behind = sequencer->last;
        behind.step = sequencer->step + 1;
        behind.micro = 0;
        return complete_step(loader, &behind) ? BRIM__FLOW_ROW : BRIM__FLOW_WAIT;
    }
    if (sequencer->input_ended) {
        return BRIM__FLOW_END;
    }
    if (sequence->reordering == BRIM__BUCKETED) {
        return place_bucket(loader);
    }
    return sequencer->top == made_next ? place_run(loader) : place_row(loader);
}

/* Until a batch is made, or nothing more can be done; whether anything was. */
static bool run(brim_loader *loader, bool *ended, bool *failed) {
    struct brim__sequencer *sequencer = loader->sequencer;
    const uint64_t published = sequencer->published;
    bool did = false;
    for (;;) {
        const enum brim__flow flow = place(loader);
        if (flow == BRIM__FLOW_END) {
            sequencer->input_ended = true;
            *ended = finish_step(loader);
            *failed = sequencer->batch_failed;
            return did || *ended || sequencer->published != published;
        }
        if (sequencer->batch_failed) {
            *failed = true;
            return true;
        }
        if (flow == BRIM__FLOW_FAIL) {
            *failed = true;
            return did;
        }
        if (flow == BRIM__FLOW_WAIT) {
            const bool gathers = loader->plan->sequence.reordering != BRIM__IN_ORDER;
            return (gathers && brim__gather_absorb(loader)) || did;
        }
        did = true;
        if (sequencer->published != published) {
            return true;
        }
    }
}

bool brim__sequencer_turn(brim_loader *loader) {
    struct brim__sequencer *sequencer = loader->sequencer;
    bool ended = false, failed = false;
    if (sequencer->running || sequencer->end || sequencer->error != BRIM_OK) {
        sequencer->missed = sequencer->running;
        return false;
    }
    sequencer->running = true;
    sequencer->missed = false;
    brim__unlock(&loader->mutex);
    bool did = run(loader, &ended, &failed);
    brim__lock(&loader->mutex);
    sequencer->running = false;
    did |= sequencer->missed; /* what that thread saw, this one may have looked for too early */
    if (ended) {
        end_epoch(loader);
    }
    sequencer->error = failed ? sequencer->failure : BRIM_OK;
    if (did || failed) {
        atomic_store(&loader->wants, true);
        brim__loader_event(loader);
    }
    brim__broadcast(&loader->ready); /* a seek may wait for it to stop running */
    return did;
}

void brim__sequencer_retry(brim_loader *loader) {
    struct brim__sequencer *sequencer = loader->sequencer;
    struct brim__slot *chunk = sequencer->chunk;
    sequencer->error = BRIM_OK;
    sequencer->told = false;
    if (sequencer->batch_failed) {
        sequencer->batch_failed = false; /* its rows were taken: those behind it come next */
    } else if (loader->plan->sequence.stream) {
        /* what was pulled cannot be pulled again */
        loader->stuck = false;
        leave_sample(loader);
    } else {
        sequencer->origin_row = sequencer->chunk_row;
        sequencer->chunk = NULL;
        brim__slot_restart(chunk);
        /* those before it have been placed: were they made again, they might fail now */
        chunk->claimed = chunk->done =
            (uint32_t)(sequencer->chunk_row / loader->plan->rows_per_sample);
    }
    atomic_store(&loader->wants, true);
}

struct brim__slot *brim__sequencer_head(brim_loader *loader) {
    for (uint32_t i = 0; i < loader->plan->slot_cap; i++) {
        struct brim__slot *slot = &loader->slot[i];
        if (slot->state == BRIM__SLOT_READY && slot->ticket == loader->sequencer->take) {
            return slot;
        }
    }
    return NULL;
}

/* ------------------------------------------------------- beginning, ending */

void brim__sequencer_go(brim_loader *loader, const struct brim__position *position) {
    struct brim__sequencer *sequencer = loader->sequencer;
    while (sequencer->running) {
        brim__wait(&loader->ready, &loader->mutex, UINT64_MAX);
    }
    for (uint32_t i = 0; i < loader->plan->slot_cap; i++) {
        struct brim__slot *slot = &loader->slot[i];
        if (slot->state == BRIM__SLOT_READY || slot->state == BRIM__SLOT_FILLING) {
            brim__slot_free(slot);
        }
    }
    const bool at_end = position->sample == UINT64_MAX;
    struct brim__position at = *position;
    at.sample = at_end ? 0 : at.sample;
    at.offset = at.given = at.micro = 0;
    sequencer->end = at_end;
    sequencer->spent = sequencer->input_ended = false;
    sequencer->error = BRIM_OK;
    sequencer->told = false;
    sequencer->take = sequencer->make;
    sequencer->delivered = *position;
    sequencer->discard_step = brim__max(position->step, position->until);
    sequencer->discard_micro = position->micro;
    sequencer->chunk = NULL;
    sequencer->slot = NULL;
    sequencer->at = at;
    sequencer->origin_row = at.row;
    sequencer->step = position->step;
    sequencer->step_rows = sequencer->micro = 0;
    sequencer->met = sequencer->skipped = sequencer->tail = 0;
    sequencer->completing = sequencer->finishing = sequencer->batch_failed = false;
    sequencer->bad_text[0] = '\0';
    sequencer->total = position->step * loader->plan->shard.global_rows;
    sequencer->step_begin = sequencer->last = *position;
    sequencer->step_begin.micro = 0;
    brim__pack_go(loader, position);
    brim__gather_go(loader, position);
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
            sequencer->gatherer.block[i].memory =
                sequencer->blocks.memory + i * sequence->block_bytes;
            sequencer->gatherer.block[i].bytes = sequence->block_bytes;
        }
    }
    const bool gathers = sequence->reordering != BRIM__IN_ORDER;
    sequencer->gather_below = sequence->pack && sequence->pack_first ? brim__pack_next : made_next;
    sequencer->pack_below = gathers && !sequence->pack_first ? brim__gather_next : made_next;
    sequencer->top = sequence->pack && !(gathers && sequence->pack_first) ? brim__pack_next
                     : gathers                                            ? brim__gather_next
                                                                          : made_next;
    return status;
}

void brim__sequencer_fini(brim_loader *loader) {
    brim__pages_free(&loader->sequencer->item);
    brim__pages_free(&loader->sequencer->blocks);
}

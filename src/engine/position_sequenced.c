/*
 * position_sequenced.c: the position of a loader whose batches have the rows that came next.
 *
 * A batch tells the position after its last row, and the loader is at that of the last batch taken.
 * A step has no number in the data: to seek to one, the batches before it are made and dropped.
 */
#include "engine/chain.h"
#include "engine/position.h"
#include "engine/sequencer.h"

static uint64_t epoch_of(const brim_loader *loader) {
    return loader->sequencer->delivered.epoch;
}

/* ------------------------------------------------------------ end of an epoch */

static bool at_end(const brim_loader *loader) {
    const struct brim__sequencer *sequencer = loader->sequencer;
    return !sequencer->running && sequencer->phase == BRIM__ENDED &&
           loader->last->take == loader->batches->make;
}

/* A batch is made, or begun and without a slot. */
static bool goes_on(const brim_loader *loader) {
    const struct brim__sequencer *sequencer = loader->sequencer;
    return loader->batches->make != loader->last->take ||
           (!sequencer->running && sequencer->starved);
}

/* What no batch of the epoch could tell: bad samples after its last batch, or a step that it does
 * not have. */
static brim_status check_end(brim_loader *loader) {
    const struct brim__sequencer *sequencer = loader->sequencer;
    const uint64_t most = loader->plan->batching.max_errors;
    if (sequencer->tail > 0 && loader->reached.epoch_bad + sequencer->tail > most) {
        const brim_status many = brim__fail_bad(loader, sequencer->bad_text, sequencer->bad_cause);
        return brim__fail_within(many, "more than max_errors=%llu bad samples in epoch %llu",
                                 (unsigned long long)most,
                                 (unsigned long long)sequencer->delivered.epoch);
    }
    loader->report.stats.skipped += sequencer->tail; /* no batch could count them */
    if (sequencer->step < sequencer->discard_step) {
        return brim__fail(BRIM_STATUS_INVALID, "seek to step %llu: the epoch has only %llu steps",
                          (unsigned long long)sequencer->discard_step,
                          (unsigned long long)sequencer->step);
    }
    return BRIM_OK;
}

static void begin_epoch(brim_loader *loader) {
    struct brim__sequencer *sequencer = loader->sequencer;
    const struct brim__position begin = { .epoch = sequencer->delivered.epoch + 1 };
    const struct brim__shard shard = brim__loader_shard(loader, loader->reached.taken.epoch);
    const bool stream = loader->plan->sequence.stream;
    if (!stream && sequencer->chunk == NULL &&
        loader->reached.taken.index >= brim__shard_deliveries(&shard)) {
        /* what has been made of the next epoch is kept */
        loader->reached.taken = (struct brim__cursor){ .epoch = loader->reached.taken.epoch + 1 };
        brim__sequencer_go(loader, &begin);
    } else {
        brim__sequenced_go(loader, &begin);
    }
    loader->reached.epoch_bad = 0;
    if (stream && !loader->plan->sequence.seekable) {
        sequencer->phase = BRIM__SPENT;
    }
}

static brim_status end(brim_loader *loader) {
    const struct brim__sequencer *sequencer = loader->sequencer;
    const uint64_t epoch = sequencer->delivered.epoch;
    if (!sequencer->running && sequencer->phase == BRIM__SPENT) {
        return brim__fail(BRIM_STATUS_UNSEEKABLE,
                          "the stream has ended, and a pipe or a stream without a reopen "
                          "function is read once: redirect a file, or give a reopen function");
    }
    if (!at_end(loader)) {
        return BRIM_OK;
    }
    const brim_status status = check_end(loader);
    if (status == BRIM_STATUS_CORRUPT) {
        return status; /* as often as it is asked */
    }
    begin_epoch(loader);
    return status != BRIM_OK ? status : brim__end_of_epoch(epoch);
}

/* ------------------------------------------------------------------- reading */

static void took(brim_loader *loader, const struct brim__slot *slot) {
    loader->sequencer->delivered = slot->resume;
}

static void after(const brim_batch *batch, struct brim__position *position) {
    *position = batch->resume;
}

static void read(brim_loader *loader, struct brim__position *position) {
    *position = loader->sequencer->delivered;
}

/* ------------------------------------------------------------- going elsewhere */

void brim__sequenced_go(brim_loader *loader, const struct brim__position *position) {
    struct brim__position at = *position;
    brim__sequencer_go(loader, position);
    loader->stream.ended = at.sample == UINT64_MAX;
    if (loader->stream.ended) { /* the end: chunks are those of the epoch after it */
        at = (struct brim__position){ .epoch = at.epoch };
    }
    loader->stream.stuck = false;
    loader->stream.at = at.sample;
    loader->stream.rewind = loader->plan->sequence.seekable;
    brim__loader_go(loader, at.epoch, 0, at.sample);
}

static brim_status check_seekable(const brim_loader *loader) {
    if (!loader->plan->sequence.stream || loader->plan->sequence.seekable) {
        return BRIM_OK;
    }
    return brim__fail(BRIM_STATUS_UNSEEKABLE,
                      "a pipe or a stream without a reopen function is read once, from beginning "
                      "to end: redirect a file, or give a reopen function");
}

static brim_status seek(brim_loader *loader, uint64_t epoch, uint64_t step) {
    const brim_status status = check_seekable(loader);
    if (status == BRIM_OK) {
        const struct brim__position begin = { .epoch = epoch, .until = step };
        brim__sequenced_go(loader, &begin);
    }
    return status;
}

/* A state may be damaged and still have a right checksum. */
static brim_status check_position(const brim_loader *loader,
                                  const struct brim__position *position) {
    const brim_plan *plan = loader->plan;
    if (position->sample == UINT64_MAX ||
        (position->row < plan->rows_per_sample &&
         (plan->sequence.stream || position->sample <= brim__order_count(&plan->order)))) {
        return BRIM_OK;
    }
    return brim__fail(BRIM_STATUS_CORRUPT,
                      "the state is at row %llu of sample %llu, which the data do not have",
                      (unsigned long long)position->row, (unsigned long long)position->sample);
}

static brim_status restore(brim_loader *loader, const struct brim__position *position) {
    brim_status status = check_seekable(loader);
    if (status == BRIM_OK) {
        status = check_position(loader, position);
    }
    if (status == BRIM_OK) {
        brim__sequenced_go(loader, position);
    }
    return status;
}

const struct brim__position_ops brim__position_sequenced = {
    .epoch = epoch_of,
    .at_end = at_end,
    .goes_on = goes_on,
    .end = end,
    .took = took,
    .after = after,
    .read = read,
    .seek = seek,
    .restore = restore,
};

/*
 * seek.c: the position of a loader, seeking and restoring; and admitting one thread at a time to a
 * loader's calls.
 */
#include "base/struct.h"
#include "engine/chain.h"
#include "engine/sequencer.h"

/* ------------------------------------------------------------------- calls */

brim_status brim__loader_keep_detail(brim_loader *loader, brim_status status) {
    brim__failure_keep(&loader->failure);
    return status;
}

brim_status brim__loader_enter(brim_loader *loader) {
    if (loader == NULL) {
        return brim__fail_null("loader");
    }
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
void brim__loader_leave(brim_loader *loader, bool wake) {
    if (wake) {
        brim__loader_unlock(loader);
        brim__pool_wake(loader->runtime);
        brim__lock(&loader->mutex);
    }
    loader->in_call = false;
    if (!loader->closing) {
        brim__lend_end(loader); /* a slot beyond `hold` that no batch was lent in */
    }
    if (loader->closing || loader->news) {
        loader->news = false;
        brim__broadcast(&loader->ready);
    }
    brim__unlock(&loader->mutex);
}

/* ------------------------------------------------------------------- where */

struct brim__shard brim__loader_shard(const brim_loader *loader, uint64_t epoch) {
    struct brim__shard shard = loader->plan->deliveries;
    shard.base = epoch == loader->base_epoch ? loader->base : 0;
    return shard;
}

uint64_t brim__loader_epoch(const brim_loader *loader) {
    return loader->sequencer != NULL ? loader->sequencer->delivered.epoch : loader->taken.epoch;
}

bool brim__loader_at_end(const brim_loader *loader) {
    if (loader->sequencer != NULL) {
        return brim__sequencer_at_end(loader);
    }
    const struct brim__shard shard = brim__loader_shard(loader, loader->taken.epoch);
    return loader->taken.index >= brim__shard_deliveries(&shard);
}

void brim__loader_took(brim_loader *loader, const struct brim__slot *slot) {
    if (loader->sequencer != NULL) {
        loader->sequencer->delivered = slot->resume;
    } else {
        loader->taken.index++;
    }
}

/* What has been made of the next epoch is kept. */
static void begin_epoch(brim_loader *loader) {
    loader->epoch_bad = 0;
    if (loader->sequencer != NULL) {
        brim__sequencer_begin_epoch(loader);
    } else {
        loader->taken = (struct brim__cursor){ .epoch = loader->taken.epoch + 1 };
    }
}

brim_status brim__loader_end(brim_loader *loader) {
    const uint64_t epoch = brim__loader_epoch(loader);
    brim_status status = loader->sequencer != NULL ? brim__sequencer_check_spent(loader) : BRIM_OK;
    if (status != BRIM_OK || !brim__loader_at_end(loader)) {
        return status;
    }
    if (loader->sequencer != NULL) { /* what no batch could tell of */
        status = brim__sequencer_check_end(loader);
    }
    if (status == BRIM_STATUS_CORRUPT) {
        return status; /* as often as it is asked */
    }
    begin_epoch(loader);
    return status != BRIM_OK
               ? status
               : brim__fail(BRIM_STATUS_END, "the end of epoch %llu", (unsigned long long)epoch);
}

/* --------------------------------------------------------- going elsewhere */

/* Mutex held: the next batch is delivery `index` of `epoch`, which begins at
 * `base`. */
static void go(brim_loader *loader, uint64_t epoch, uint64_t index, uint64_t base) {
    loader->base = base;
    loader->base_epoch = epoch;
    loader->taken = (struct brim__cursor){ .epoch = epoch, .index = index };
    loader->epoch_bad = 0;
    brim__chain_abandon(loader);
}

void brim__loader_go(brim_loader *loader, const struct brim__position *position) {
    struct brim__position at = *position;
    brim__sequencer_go(loader, position);
    loader->stream.ended = at.sample == UINT64_MAX;
    if (loader->stream.ended) { /* the end: chunks are those of the epoch after it */
        at = (struct brim__position){ .epoch = at.epoch };
    }
    loader->stream.stuck = false;
    loader->stream.at = at.sample;
    loader->stream.rewind = loader->plan->sequence.seekable;
    go(loader, at.epoch, 0, at.sample);
}

/* Mutex held. */
static brim_status check_seekable(brim_loader *loader) {
    if (!loader->plan->sequence.stream || loader->plan->sequence.seekable) {
        return BRIM_OK;
    }
    return brim__loader_keep_detail(
        loader,
        brim__fail(BRIM_STATUS_UNSEEKABLE, "a pipe or a stream without a reopen function is read "
                                           "once, from beginning to end: redirect a file, or give "
                                           "a reopen function"));
}

brim_status brim_loader_seek(brim_loader *loader, uint64_t epoch, uint64_t step) {
    brim_status status = brim__loader_enter(loader);
    if (status != BRIM_OK) {
        return status;
    }
    loader->consumer.waiting_since = 0;                   /* it waits for that batch no more */
    const struct brim__shard shard = loader->plan->shard; /* base 0: whole epochs */
    const uint64_t steps = brim__shard_steps(&shard);
    if (loader->sequencer != NULL) {
        status = check_seekable(loader);
        if (status == BRIM_OK) {
            /* the batches before it are made and thrown away */
            const struct brim__position begin = { .epoch = epoch, .until = step };
            brim__loader_go(loader, &begin);
        }
    } else if (step > steps) {
        status = brim__fail(BRIM_STATUS_INVALID, "seek to step %llu: an epoch has %llu steps",
                            (unsigned long long)step, (unsigned long long)steps);
        brim__loader_keep_detail(loader, status);
    } else {
        go(loader, epoch,
           step == steps ? brim__shard_deliveries(&shard)
                         : brim__shard_delivery_of_step(&shard, step),
           0);
    }
    brim__loader_leave(loader, true);
    return status;
}

brim_status brim_loader_state(brim_loader *loader, brim_state *state) {
    if (state == NULL) {
        return brim__fail_null("state");
    }
    const brim_status status = brim__loader_enter(loader);
    if (status != BRIM_OK) {
        return status;
    }
    const struct brim__shard shard = brim__loader_shard(loader, loader->taken.epoch);
    struct brim__position position = { .epoch = loader->taken.epoch };
    if (loader->sequencer != NULL) {
        position = loader->sequencer->delivered;
    } else if (loader->taken.index < brim__shard_deliveries(&shard)) {
        struct brim__delivery delivery;
        brim__shard_delivery(&shard, loader->taken.index, &delivery);
        position.sample = delivery.resume;
        position.micro = delivery.micro;
    } else {
        position.sample = UINT64_MAX;
    }
    brim__state_write(loader->plan, &position, state);
    brim__loader_leave(loader, false);
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
    return brim__loader_keep_detail(
        loader,
        brim__fail(BRIM_STATUS_CORRUPT,
                   "the state is at row %llu of sample %llu, which the data do not have",
                   (unsigned long long)position->row, (unsigned long long)position->sample));
}

brim_status brim_loader_restore(brim_loader *loader, const brim_state *state) {
    if (state == NULL) {
        return brim__fail_null("state");
    }
    brim_status status = brim__loader_enter(loader);
    if (status != BRIM_OK) {
        return status;
    }
    loader->consumer.waiting_since = 0; /* it waits for that batch no more */
    struct brim__position position;
    status = brim__state_read(loader->plan, state, &position);
    if (status != BRIM_OK) {
        brim__loader_keep_detail(loader, status);
    } else if (loader->sequencer != NULL) {
        status = check_seekable(loader);
        if (status == BRIM_OK) {
            status = check_position(loader, &position);
        }
        if (status == BRIM_OK) {
            brim__loader_go(loader, &position);
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
    brim__loader_leave(loader, true);
    return status;
}

/*
 * seek.c: the calls that read a loader's position or change it; and admitting one thread at a time
 * to a loader's calls.
 */
#include "base/struct.h"
#include "engine/chain.h"
#include "engine/position.h"

/* ------------------------------------------------------------------- calls */

brim_status brim__loader_keep_detail(brim_loader *loader, brim_status status) {
    brim__failure_keep(&loader->report.failure);
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
    BRIM__CHECK_CHAIN(loader);
    brim__unlock(&loader->mutex);
}

/* ------------------------------------------------------------------- where */

struct brim__shard brim__loader_shard(const brim_loader *loader, uint64_t epoch) {
    struct brim__shard shard = loader->plan->deliveries;
    shard.base = epoch == loader->reached.base_epoch ? loader->reached.base : 0;
    return shard;
}

void brim__loader_go(brim_loader *loader, uint64_t epoch, uint64_t index, uint64_t base) {
    loader->reached.base = base;
    loader->reached.base_epoch = epoch;
    loader->reached.taken = (struct brim__cursor){ .epoch = epoch, .index = index };
    loader->reached.epoch_bad = 0;
    brim__chain_abandon(loader);
}

brim_status brim__end_of_epoch(uint64_t epoch) {
    return brim__fail(BRIM_STATUS_END, "the end of epoch %llu", (unsigned long long)epoch);
}

/* The end of a seek or a restore: the consumer waits for another batch now. */
static brim_status leave(brim_loader *loader, brim_status status) {
    loader->consumer.waiting_since = 0;
    if (status != BRIM_OK) {
        brim__loader_keep_detail(loader, status);
    }
    brim__loader_leave(loader, true);
    return status;
}

brim_status brim_loader_seek(brim_loader *loader, uint64_t epoch, uint64_t step) {
    const brim_status status = brim__loader_enter(loader);
    return status != BRIM_OK ? status : leave(loader, loader->position->seek(loader, epoch, step));
}

brim_status brim_loader_state(brim_loader *loader, brim_state *state) {
    if (state == NULL) {
        return brim__fail_null("state");
    }
    const brim_status status = brim__loader_enter(loader);
    if (status != BRIM_OK) {
        return status;
    }
    struct brim__position position;
    loader->position->read(loader, &position);
    brim__state_write(loader->plan, &position, state);
    brim__loader_leave(loader, false);
    return BRIM_OK;
}

brim_status brim_loader_restore(brim_loader *loader, const brim_state *state) {
    if (state == NULL) {
        return brim__fail_null("state");
    }
    brim_status status = brim__loader_enter(loader);
    if (status != BRIM_OK) {
        return status;
    }
    struct brim__position position;
    status = brim__state_read(loader->plan, state, &position);
    if (status == BRIM_OK) {
        status = loader->position->restore(loader, &position);
    }
    return leave(loader, status);
}

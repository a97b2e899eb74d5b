/*
 * position_direct.c: the position of a loader whose batches have numbers.
 */
#include "engine/position.h"

static uint64_t epoch_of(const brim_loader *loader) {
    return loader->reached.taken.epoch;
}

static bool at_end(const brim_loader *loader) {
    const struct brim__shard shard = brim__loader_shard(loader, loader->reached.taken.epoch);
    return loader->reached.taken.index >= brim__shard_deliveries(&shard);
}

static bool goes_on(const brim_loader *loader) {
    return !at_end(loader);
}

/* What has been made of the next epoch is kept. */
static brim_status end(brim_loader *loader) {
    const uint64_t epoch = loader->reached.taken.epoch;
    if (!at_end(loader)) {
        return BRIM_OK;
    }
    loader->reached.epoch_bad = 0;
    loader->reached.taken = (struct brim__cursor){ .epoch = epoch + 1 };
    return brim__end_of_epoch(epoch);
}

static void took(brim_loader *loader, const struct brim__slot *slot) {
    (void)slot;
    loader->reached.taken.index++;
}

static void after(const brim_batch *batch, struct brim__position *position) {
    const struct brim__delivery *delivery = &batch->delivery;
    *position = (struct brim__position){
        .epoch = batch->info.epoch,
        .sample = delivery->resume,
        .micro = delivery->micro + 1,
    };
    if (position->micro == delivery->micro_count) {
        struct brim__shard rest = batch->loader->plan->shard;
        rest.base = delivery->resume_next;
        position->sample = brim__shard_steps(&rest) > 0 ? rest.base : UINT64_MAX;
        position->micro = 0;
    }
}

static void read(brim_loader *loader, struct brim__position *position) {
    const struct brim__shard shard = brim__loader_shard(loader, loader->reached.taken.epoch);
    *position =
        (struct brim__position){ .epoch = loader->reached.taken.epoch, .sample = UINT64_MAX };
    if (loader->reached.taken.index < brim__shard_deliveries(&shard)) {
        struct brim__delivery delivery;
        brim__shard_delivery(&shard, loader->reached.taken.index, &delivery);
        position->sample = delivery.resume;
        position->micro = delivery.micro;
    }
}

/* To the first micro-batch of a step, or `micro` later; past the last of them: to the end. */
static void go_to_step(brim_loader *loader, uint64_t epoch, uint64_t step, uint64_t micro) {
    const struct brim__shard *shard = &loader->plan->shard; /* base 0: whole epochs */
    const uint64_t all = brim__shard_deliveries(shard);
    const uint64_t index = step >= brim__shard_steps(shard)
                               ? all
                               : brim__min(brim__shard_delivery_of_step(shard, step) + micro, all);
    brim__loader_go(loader, epoch, index, 0);
}

static brim_status seek(brim_loader *loader, uint64_t epoch, uint64_t step) {
    const uint64_t steps = brim__shard_steps(&loader->plan->shard);
    if (step > steps) {
        return brim__fail(BRIM_STATUS_INVALID, "seek to step %llu: an epoch has %llu steps",
                          (unsigned long long)step, (unsigned long long)steps);
    }
    go_to_step(loader, epoch, step, 0);
    return BRIM_OK;
}

static brim_status restore(brim_loader *loader, const struct brim__position *position) {
    const struct brim__shard *shard = &loader->plan->shard;
    const uint64_t sample = brim__min(position->sample, shard->count);
    if (sample == shard->count) {
        brim__loader_go(loader, position->epoch, brim__shard_deliveries(shard), 0);
    } else if (sample % shard->global_rows == 0) {
        go_to_step(loader, position->epoch, sample / shard->global_rows, position->micro);
    } else { /* another batch size wrote the state: this epoch begins there */
        brim__loader_go(loader, position->epoch, position->micro, sample);
    }
    return BRIM_OK;
}

const struct brim__position_ops brim__position_direct = {
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

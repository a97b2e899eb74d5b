/*
 * stats.c: what a loader has done so far. From any thread at any time.
 */
#include "engine/loader.h"
#include "engine/ship.h"

brim_status brim_loader_stats(brim_loader *loader, brim_stats *given) {
    if (brim__runtime_forked(loader->runtime)) {
        return brim__forked();
    }
    const size_t size = given->size;
    if (size < sizeof(size_t)) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "stats: size is not set: begin with BRIM_STATS_INIT");
    }
    brim__lock(&loader->runtime->pool);
    const uint32_t threads = loader->runtime->worker_count;
    brim__unlock(&loader->runtime->pool);
    brim__lock(&loader->mutex);
    brim_stats stats = loader->stats;
    stats.size = size;
    stats.epoch = brim__loader_epoch(loader);
    stats.ended = brim__loader_at_end(loader);
    stats.threads = threads;
    stats.slots = loader->slot_count;
    stats.lent = loader->lent;
    stats.stage_count = loader->plan->info.stage_count;
    stats.error_count = (uint32_t)brim__min(loader->errors, BRIM__ERRORS_KEPT);
    stats.errors = loader->errors;
    stats.cache_count = loader->plan->cache_count;
    if (loader->ship != NULL) {
        stats.device_slots = loader->ship->berth_count - loader->ship->making;
        stats.copied_bytes = loader->ship->copied_bytes;
    }
    brim__unlock(&loader->mutex);
    memcpy(given, &stats, brim__min(size, sizeof(stats)));
    return BRIM_OK;
}

/* Samples for which the stage did nothing, because a cache behind it had them. An order is
 * not asked less for that. */
static uint64_t found_behind(const brim_plan *plan, size_t stage) {
    uint64_t found = 0;
    if (brim_stage_find(plan->stage[stage].name)->room == BRIM_ROOM_ORDER) {
        return 0;
    }
    for (const struct brim__cache *cache = plan->caches; cache != NULL; cache = cache->next) {
        if (stage >= cache->first_stage && stage < cache->stage) {
            found += atomic_load_explicit(&cache->hits, memory_order_relaxed);
        }
    }
    return found;
}

brim_status brim_loader_stage_stats(brim_loader *loader, size_t stage, brim_stage_stats *given) {
    if (brim__runtime_forked(loader->runtime)) {
        return brim__forked();
    }
    const size_t size = given->size;
    if (size < sizeof(size_t) || stage >= loader->plan->info.stage_count) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "stage %zu of %u, or size is not set: begin with "
                          "BRIM_STAGE_STATS_INIT",
                          stage, loader->plan->info.stage_count);
    }
    brim__lock(&loader->mutex);
    const struct brim__stage_time time = loader->stage[stage];
    brim__unlock(&loader->mutex);
    brim_stage_stats stats = {
        .size = size,
        .name = loader->plan->stage[stage].name,
        .samples = time.samples - brim__min(time.samples, found_behind(loader->plan, stage)),
        .ns = time.timed_samples > 0 ? (uint64_t)((double)time.timed_ns /
                                                  (double)time.timed_samples * (double)time.samples)
                                     : 0,
    };
    memcpy(given, &stats, brim__min(size, sizeof(stats)));
    return BRIM_OK;
}

brim_status brim_loader_error(brim_loader *loader, size_t index, char *text, size_t text_bytes) {
    if (brim__runtime_forked(loader->runtime)) {
        return brim__forked();
    }
    brim__lock(&loader->mutex);
    const uint64_t kept = brim__min(loader->errors, BRIM__ERRORS_KEPT);
    const bool found = index < kept && text_bytes > 0;
    if (found) {
        brim__copy_text(text, text_bytes,
                        loader->error[(loader->errors - 1 - index) % BRIM__ERRORS_KEPT]);
    }
    brim__unlock(&loader->mutex);
    return found
               ? BRIM_OK
               : brim__fail(BRIM_STATUS_INVALID, "%llu errors are kept", (unsigned long long)kept);
}

void brim_loader_detail(brim_loader *loader, char *text, size_t text_bytes) {
    if (text_bytes > 0) {
        text[0] = '\0';
    }
    if (text_bytes == 0 || brim__runtime_forked(loader->runtime)) {
        return;
    }
    brim__lock(&loader->mutex);
    brim__copy_text(text, text_bytes, loader->kept.text);
    brim__unlock(&loader->mutex);
}

brim_status brim_loader_failure(brim_loader *loader, brim_failure *failure) {
    if (brim__runtime_forked(loader->runtime)) {
        return brim__forked();
    }
    brim__lock(&loader->mutex);
    const brim_status status = brim__failure_tell(&loader->kept, failure);
    brim__unlock(&loader->mutex);
    return status;
}

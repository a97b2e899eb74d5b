/*
 * stats.c: what a loader has done so far. From any thread at any time.
 */
#include "base/struct.h"
#include "engine/position.h"
#include "engine/upload.h"

/* A loader that may be asked, and a struct for the answer. */
static brim_status check(const brim_loader *loader, const char *what, const char *init,
                         const void *given) {
    if (loader == NULL) {
        return brim__fail(BRIM_STATUS_INVALID, "%s: the loader must not be NULL", what);
    }
    return brim__runtime_forked(loader->runtime) ? brim__forked()
                                                 : brim__struct_check(what, init, given);
}

brim_status brim_loader_read_stats(brim_loader *loader, brim_stats *given) {
    const brim_status status = check(loader, "stats", "BRIM_STATS_INIT", given);
    if (status != BRIM_OK) {
        return status;
    }
    brim__lock(&loader->runtime->pool);
    const uint32_t threads = loader->runtime->worker_count;
    brim__unlock(&loader->runtime->pool);
    brim__lock(&loader->mutex);
    brim_stats stats = loader->report.stats;
    stats.epoch = loader->position->epoch(loader);
    stats.ended = loader->position->at_end(loader);
    stats.threads = threads;
    stats.slots = loader->batches->count - brim__ring_count(loader->batches, BRIM__SLOT_MAPPING);
    stats.lent = loader->lent;
    stats.stage_count = loader->plan->info.stage_count;
    stats.error_count = (uint32_t)brim__min(loader->report.errors, BRIM_ERRORS_KEPT);
    stats.errors = loader->report.errors;
    stats.cache_count = loader->plan->cache_count;
    if (loader->uploader != NULL) {
        stats.device_slots =
            loader->last->count - brim__ring_count(loader->last, BRIM__SLOT_MAPPING);
        stats.copied_bytes = loader->uploader->copied_bytes;
    }
    brim__unlock(&loader->mutex);
    brim__struct_give(given, &stats, sizeof stats);
    return BRIM_OK;
}

static uint64_t found_in(const struct brim__cache *cache, size_t stage) {
    return stage >= cache->first_stage && stage < cache->stage
               ? atomic_load_explicit(&cache->hits, memory_order_relaxed)
               : 0;
}

/* Samples for which the stage did nothing, because a cache after it had them. An order stage
 * does its work all the same. */
static uint64_t found_behind(const brim_plan *plan, size_t stage) {
    uint64_t found = 0;
    if (brim_stage_find(plan->stage[stage].name)->room == BRIM_ROOM_ORDER) {
        return 0;
    }
    for (const struct brim__cache *cache = plan->caches; cache != NULL; cache = cache->next) {
        found += found_in(cache, stage);
    }
    return plan->device_cache != NULL ? found + found_in(plan->device_cache, stage) : found;
}

brim_status brim_loader_read_stage_stats(brim_loader *loader, size_t stage,
                                         brim_stage_stats *given) {
    const brim_status status = check(loader, "stage stats", "BRIM_STAGE_STATS_INIT", given);
    if (status != BRIM_OK) {
        return status;
    }
    if (stage >= loader->plan->info.stage_count) {
        return brim__fail(BRIM_STATUS_INVALID, "stage %zu: the pipeline has %u stages", stage,
                          loader->plan->info.stage_count);
    }
    brim__lock(&loader->mutex);
    const struct brim__stage_time time = loader->report.stage[stage];
    brim__unlock(&loader->mutex);
    brim_stage_stats stats = {
        .name = loader->plan->stage[stage].name,
        .samples = time.samples - brim__min(time.samples, found_behind(loader->plan, stage)),
        .ns = time.timed_samples > 0 ? (uint64_t)((double)time.timed_ns /
                                                  (double)time.timed_samples * (double)time.samples)
                                     : 0,
    };
    brim__struct_give(given, &stats, sizeof stats);
    return BRIM_OK;
}

brim_status brim__fail_bad(const brim_loader *loader, const char *text, uint64_t cause) {
    for (uint64_t i = 0; i < brim__min(loader->report.errors, BRIM_ERRORS_KEPT); i++) {
        const struct brim__failure *failure = &loader->report.error[i];
        if (strncmp(failure->text, text, BRIM__SAMPLE_ERROR - 1) == 0) {
            return brim__fail_kept(BRIM_STATUS_CORRUPT, failure);
        }
    }
    return brim__at_cause(brim__fail(BRIM_STATUS_CORRUPT, "%s", text), cause);
}

brim_status brim_loader_read_error(brim_loader *loader, uint64_t number, brim_failure *failure) {
    brim_status status = check(loader, "failure", "BRIM_FAILURE_INIT", failure);
    if (status != BRIM_OK) {
        return status;
    }
    brim__lock(&loader->mutex);
    const uint64_t errors = loader->report.errors;
    if (number < errors && errors - number <= BRIM_ERRORS_KEPT) {
        status = brim__failure_tell(&loader->report.error[number % BRIM_ERRORS_KEPT], failure);
    } else {
        status = brim__fail(
            BRIM_STATUS_INVALID, "bad sample %llu: the last %d of %llu are kept, numbered from 0",
            (unsigned long long)number, BRIM_ERRORS_KEPT, (unsigned long long)errors);
    }
    brim__unlock(&loader->mutex);
    return status;
}

void brim_loader_detail(brim_loader *loader, char *text, size_t text_bytes) {
    if (text == NULL || text_bytes == 0) {
        return;
    }
    text[0] = '\0';
    if (loader == NULL || brim__runtime_forked(loader->runtime)) {
        return;
    }
    brim__lock(&loader->mutex);
    brim__copy_text(text, text_bytes, loader->report.failure.text);
    brim__unlock(&loader->mutex);
}

brim_status brim_loader_read_failure(brim_loader *loader, brim_failure *failure) {
    brim_status status = check(loader, "failure", "BRIM_FAILURE_INIT", failure);
    if (status != BRIM_OK) {
        return status;
    }
    brim__lock(&loader->mutex);
    status = brim__failure_tell(&loader->report.failure, failure);
    brim__unlock(&loader->mutex);
    return status;
}

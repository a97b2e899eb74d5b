/*
 * caches.c: the caches of a loader: started when it opens, stopped when it closes.
 *
 * Each has a budget of its own below the loader's, in which everything except the node is elastic.
 * Workers, their scratch, and slots that a consumer has waited for come first. A runtime knows how
 * much of these its loaders lack (`lacking`): caches leave that free, and caches in memory give it
 * up when a consumer waits. A loader that opens takes its minimum firmly, and caches in memory give
 * way to it before any other holder does.
 */
#include "base/struct.h"
#include "engine/resident.h"

#include <stdio.h>

/* Of all files of all leaves after which the cache stands. */
static brim_status stamp_all(const brim_loader *loader, const struct brim__cache *cache,
                             const brim_open_options *options, uint64_t *stamp) {
    const brim_plan *plan = loader->plan;
    brim_status status = BRIM_OK;
    uint64_t leaves = 0; /* of this cache's: others may come and go */
    for (uint32_t i = 0; i < plan->leaf_count; i++) {
        const struct brim__leaf *leaf = plan->leaf[i];
        for (uint32_t p = 0; status == BRIM_OK && p < leaf->cache_count; p++) {
            uint64_t one;
            if (leaf->cache[p].cache != cache) {
                continue;
            }
            status = brim__sources_stamp_all(leaf->source, leaf->source_count, loader->budget,
                                             options->progress, options->progress_user, &one);
            if (status == BRIM_OK) {
                *stamp = brim__hash_words(*stamp, one, leaves++);
            }
        }
    }
    return status;
}

brim_status brim__caches_stamp(brim_loader *loader, const brim_open_options *options) {
    brim_status status = BRIM_OK;
    for (struct brim__cache *cache = loader->plan->caches; status == BRIM_OK && cache != NULL;
         cache = cache->next) {
        if (cache->path != NULL && cache->verify == BRIM__VERIFY_OPEN) {
            status = stamp_all(loader, cache, options, &cache->stamp);
        }
    }
    return status;
}

static brim_status start(brim_loader *loader, struct brim__cache *cache) {
    char label[BRIM_NAME_BYTES];
    struct brim__tier_start how = {
        .headroom = &loader->lacking,
        .root = loader->runtime->budget,
        .root_headroom = &loader->runtime->lacking,
        .count = cache->count,
        .most_bytes = cache->most_bytes,
        .limit =
            cache->path != NULL
                ? cache->limit
                : brim__min(cache->limit, cache->ops->most_bytes(cache->count, cache->most_bytes)),
        .copies = loader->plan->callback, /* no thread waits for the user's code to let go */
        .threads = loader->plan->info.threads > 0,
        .path = cache->path,
        .trust_foreign = loader->runtime->trust_foreign,
        .data = cache->data,
        .sample = cache->sample,
        .stamp = cache->stamp,
        .verify = cache->verify,
        .pipeline = cache->pipeline,
    };
    snprintf(label, sizeof label, "cache %s", cache->ops->name);
    brim_status status = brim_budget_new(loader->budget, label, BRIM_UNLIMITED, 0, &cache->budget);
    if (status == BRIM_OK) {
        if (cache->path == NULL) { /* a file would have to be written first */
            brim__budget_yields(cache->budget, BRIM__YIELDS_CACHE);
        }
        how.budget = cache->budget;
        status = cache->ops->start(cache->memory, &how, &cache->tier);
    }
    return status;
}

brim_status brim__caches_start(brim_loader *loader) {
    brim_status status = BRIM_OK;
    for (struct brim__cache *cache = loader->plan->caches; status == BRIM_OK && cache != NULL;
         cache = cache->next) {
        status = start(loader, cache);
    }
    return status == BRIM_OK ? brim__resident_start(loader) : status;
}

void brim__caches_stop(brim_loader *loader) {
    brim__resident_stop(loader);
    for (struct brim__cache *cache = loader->plan->caches; cache != NULL; cache = cache->next) {
        if (cache->tier != NULL) {
            cache->ops->stop(cache->tier);
            cache->tier = NULL;
        }
        if (cache->budget != NULL) {
            brim_budget_free(cache->budget);
            cache->budget = NULL;
        }
    }
}

/* --------------------------------------------------------------- statistics */

static void describe(const struct brim__cache *cache, brim_cache_stats *stats) {
    stats->tier = cache->ops->name;
    if (cache->tier != NULL) {
        struct brim__tier_stats tier = { 0 };
        cache->ops->stats(cache->tier, &tier);
        stats->fills = tier.fills;
        stats->filled = tier.filled;
        stats->bytes = tier.bytes;
        stats->stored = tier.stored;
        stats->dropped = tier.dropped;
        stats->damaged = tier.damaged;
        stats->changed = tier.changed;
        brim__copy_text(stats->warning, sizeof stats->warning, tier.warning);
        brim__copy_text(stats->note, sizeof stats->note, tier.note);
    }
}

/* In the order of the pipeline: what stays on a device is the last of all. */
static const struct brim__cache *find(const brim_plan *plan, size_t index) {
    size_t later = plan->cache_count - 1 - index;
    if (plan->device_cache != NULL && later-- == 0) {
        return plan->device_cache;
    }
    const struct brim__cache *cache = plan->caches; /* newest first */
    while (later-- > 0) {
        cache = cache->next;
    }
    return cache;
}

brim_status brim_loader_read_cache_stats(brim_loader *loader, size_t index,
                                         brim_cache_stats *given) {
    if (loader == NULL) {
        return brim__fail_null("loader");
    }
    if (brim__runtime_forked(loader->runtime)) {
        return brim__forked();
    }
    const uint32_t count = loader->plan->cache_count;
    const brim_status status = brim__struct_check("cache stats", "BRIM_CACHE_STATS_INIT", given);
    if (status != BRIM_OK) {
        return status;
    }
    if (index >= count) {
        return brim__fail(BRIM_STATUS_INVALID, "cache %zu: the pipeline has %u caches", index,
                          count);
    }
    const struct brim__cache *cache = find(loader->plan, index);
    brim_cache_stats stats = {
        .stage = cache->stage,
        .samples = cache->count,
        .hits = atomic_load_explicit(&cache->hits, memory_order_relaxed),
        .misses = atomic_load_explicit(&cache->misses, memory_order_relaxed),
    };
    if (cache == loader->plan->device_cache) {
        brim__resident_stats(loader, &stats);
    } else {
        describe(cache, &stats);
    }
    brim__struct_give(given, &stats, sizeof stats);
    return BRIM_OK;
}

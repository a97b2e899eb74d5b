/*
 * log.c: see log.h.
 */
#include "engine/log.h"

#include "cache/cache.h"

#include <stdarg.h>
#include <stdio.h>

__attribute__((format(printf, 3, 4))) static void
tell(const brim_runtime *runtime, brim_log_level level, const char *format, ...) {
    char text[BRIM__DETAIL_BYTES];
    struct brim__failure failure;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    const struct brim__lack lack = *brim__lack();
    brim__failure_keep(&failure);
    runtime->log(runtime->log_user, level, text);
    brim__failure_restore(&failure); /* the program's calls may have failed */
    *brim__lack() = lack;
}

void brim__log_planned(const brim_runtime *runtime, const brim_plan *plan) {
    for (uint32_t i = 0; runtime->log != NULL && i < plan->info.index_count; i++) {
        if (plan->index[i].note[0] != '\0') {
            tell(runtime, BRIM_LOG_WARNING, "%s", plan->index[i].note);
        }
    }
}

/* Tells a text of a cache, unless it is the last one told: texts for two reasons always differ. */
static void tell_cache(const brim_loader *loader, brim_log_level level, const char *text,
                       uint64_t *logged) {
    const uint64_t hash = brim__hash(text, strlen(text), 0);
    if (text[0] != '\0' && hash != *logged) {
        *logged = hash;
        tell(loader->runtime, level, "%s", text);
    }
}

static void tell_caches(brim_loader *loader) {
    for (struct brim__cache *cache = loader->plan->caches; cache != NULL; cache = cache->next) {
        struct brim__tier_stats stats = { 0 };
        if (cache->tier != NULL) {
            cache->ops->stats(cache->tier, &stats);
            tell_cache(loader, BRIM_LOG_NOTE, stats.note, &cache->logged_note);
            tell_cache(loader, BRIM_LOG_WARNING, stats.warning, &cache->logged_warning);
        }
    }
}

void brim__log_opened(brim_loader *loader) {
    const brim_runtime *runtime = loader->runtime;
    const uint32_t wanted = loader->plan->info.threads;
    if (runtime->log == NULL) {
        return;
    }
    tell_caches(loader);
    const uint32_t running = brim__pool_suited(loader->runtime, loader->plan->callback);
    if (running < wanted) {
        tell(runtime, BRIM_LOG_WARNING,
             "%u of %u workers run: the budget has no memory for the stacks of more, or the "
             "system refused threads; batches come slower until there is room",
             running, wanted);
    }
}

void brim__log_next(brim_loader *loader, brim_status status, bool warned) {
    const bool empty = !warned && loader->report.stats.warning[0] != '\0';
    if (loader->runtime->log == NULL || (!empty && status != BRIM_STATUS_END)) {
        return;
    }
    char warning[sizeof loader->report.stats.warning];
    memcpy(warning, loader->report.stats.warning, sizeof warning);
    brim__loader_unlock(loader); /* in_call keeps the loader */
    if (empty) {
        tell(loader->runtime, BRIM_LOG_WARNING, "%s", warning);
    }
    if (status == BRIM_STATUS_END) {
        tell_caches(loader);
    }
    brim__lock(&loader->mutex);
}

void brim__log_closing(brim_loader *loader) {
    if (loader->runtime->log != NULL) {
        tell_caches(loader);
    }
}

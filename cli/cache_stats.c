/*
 * cache_stats.c: reports what the caches of a loader did, and the loader's warnings.
 */
#include "cache_stats.h"

#include "cli.h"
#include "output.h"

#include <inttypes.h>

/* The cache `index` of a loader; false past the last. */
static bool cache_at(brim_loader *loader, uint32_t index, brim_cache_stats *cache) {
    brim_stats stats = BRIM_STATS_INIT;
    *cache = (brim_cache_stats)BRIM_CACHE_STATS_INIT;
    return brim_loader_read_stats(loader, &stats) == BRIM_OK && index < stats.cache_count &&
           brim_loader_read_cache_stats(loader, index, cache) == BRIM_OK;
}

/* ", 5 not kept", unless there are none. */
static void print_some(uint64_t count, const char *what) {
    char text[NUMBER_TEXT];
    if (count > 0) {
        printf(", %s %s", count_text(count, text), what);
    }
}

void caches_print(brim_loader *loader, int width) {
    char a[NUMBER_TEXT], b[NUMBER_TEXT], c[NUMBER_TEXT];
    brim_cache_stats cache;
    for (uint32_t i = 0; cache_at(loader, i, &cache); i++) {
        printf("%-*s%s: %s of %s samples, %s", width, "cache", cache.tier,
               count_text(cache.filled, a), count_text(cache.samples, b),
               bytes_text((double)cache.bytes, c));
        printf("; %s hit%s, %s miss%s", count_text(cache.hits, a), cache.hits == 1 ? "" : "s",
               count_text(cache.misses, b), cache.misses == 1 ? "" : "es");
        print_some(cache.dropped, "not kept");
        print_some(cache.changed, "changed");
        print_some(cache.damaged, "damaged");
        putchar('\n');
    }
}

void caches_json(struct document *json, brim_loader *loader) {
    brim_cache_stats cache;
    put_array(json, "caches");
    for (uint32_t i = 0; cache_at(loader, i, &cache); i++) {
        put_object(json, NULL);
        put_text(json, "tier", cache.tier);
        put_count(json, "stage", cache.stage);
        put_count(json, "samples", cache.samples);
        put_count(json, "filled", cache.filled);
        put_count(json, "bytes", cache.bytes);
        put_count(json, "hits", cache.hits);
        put_count(json, "misses", cache.misses);
        put_count(json, "stored", cache.stored);
        put_count(json, "dropped", cache.dropped);
        put_count(json, "damaged", cache.damaged);
        put_count(json, "changed", cache.changed);
        put_bool(json, "fills", cache.fills != 0);
        put_text(json, "warning", cache.warning);
        put_text(json, "note", cache.note);
        end_object(json);
    }
    end_array(json);
}

/* "brim run: note: ...", unless there is nothing to say. */
static void say(const struct options *options, const char *what, const char *text) {
    if (text[0] != '\0') {
        fflush(stdout);
        fprintf(stderr, "brim %s: %s: ", options->command->name, what);
        put_clean(stderr, text);
        fputc('\n', stderr);
    }
}

void loader_say(brim_loader *loader, const struct options *options) {
    brim_stats stats = BRIM_STATS_INIT;
    brim_cache_stats cache;
    if (brim_loader_read_stats(loader, &stats) == BRIM_OK) {
        say(options, "warning", stats.warning);
    }
    for (uint32_t i = 0; cache_at(loader, i, &cache); i++) {
        if (!options->quiet) {
            say(options, "note", cache.note);
        }
        say(options, "warning", cache.warning);
    }
}

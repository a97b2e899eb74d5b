/*
 * cache_stats.h: what the caches of a loader did, and the loader's warnings, at the end of run and
 * bench.
 */
#ifndef CLI_CACHE_STATS_H
#define CLI_CACHE_STATS_H

#include "document.h"
#include "options.h"

#include <brim.h>

/* A line for each, its label padded to `width`. */
void caches_print(brim_loader *loader, int width);
/* "caches": an array, empty if there are none. */
void caches_json(struct document *json, brim_loader *loader);
/* On stderr: what caches found at opening (not with --quiet), and what went wrong for good,
 * with them or with batches. */
void loader_say(brim_loader *loader, const struct options *options);

#endif

/*
 * cache_runs.h: what the tests of caches in whole pipelines share.
 *
 * A pipeline is written with marks where a cache may stand:
 *
 *     "npy $/a.npy ^| shuffle ^| batch 8"
 *
 * $ is the test's directory; the first ^ becomes "| " and the first cache of the caller,
 * the second ^ the second, and so on; a cache of NULL is none. In a cache's text $ is the
 * directory too. So the same pipeline is run without and with caches, and must give the
 * same batches.
 */
#ifndef BRIM_TESTS_CACHE_RUNS_H
#define BRIM_TESTS_CACHE_RUNS_H

#include "support/support.h"

#define MOST_MARKS 6

struct caches {
    const char *at[MOST_MARKS]; /* "cache memory"; NULL: none */
};
const char *with_caches(const char *marked, struct caches caches, char text[TEXT_BYTES]);

/* Numbers of a cache of the loader; every helper asserts that it succeeds. */
brim_cache_stats cache_stats(brim_loader *loader, size_t index);
uint32_t cache_count(brim_loader *loader);

/* The digest of some whole epochs in a runtime of its own, and what the first cache said at
 * the end; stats: NULL, or where to put it. */
struct digest run_epochs(const char *text, const struct how *how, unsigned epochs,
                         brim_cache_stats *stats);
/* Takes some batches and closes. */
void run_batches(const char *text, const struct how *how, uint64_t batches);

void assert_digest(const char *text, struct digest got, struct digest wanted);

/* Files below the test's directory. */
void remove_file(const char *name); /* which may be missing */
bool file_exists(const char *name);
uint64_t file_bytes(const char *name);
/* All bytes, malloced. */
uint8_t *read_whole(const char *name, size_t *bytes);
void copy_file(const char *from, const char *to);

#endif

/*
 * cache_runs.c: running pipelines with and without caches.
 */
#include "support/cache_runs.h"

#include "support/memory_data.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *with_caches(const char *marked, struct caches caches, char text[TEXT_BYTES]) {
    char joined[TEXT_BYTES];
    size_t used = 0, mark = 0;
    for (; *marked != '\0'; marked++) {
        const char *cache = "";
        if (*marked != '^') {
            joined[used++] = *marked;
        } else {
            assert_true(mark < MOST_MARKS);
            cache = caches.at[mark++];
        }
        if (cache != NULL && *cache != '\0') {
            used += (size_t)snprintf(joined + used, sizeof joined - used, "| %s ", cache);
        }
        assert_true(used + 1 < sizeof joined);
    }
    joined[used] = '\0';
    return expand(joined, text);
}

brim_cache_stats cache_stats(brim_loader *loader, size_t index) {
    brim_cache_stats stats = BRIM_CACHE_STATS_INIT;
    assert_int_equal(brim_loader_read_cache_stats(loader, index, &stats), BRIM_OK);
    return stats;
}

uint32_t cache_count(brim_loader *loader) {
    brim_stats stats = BRIM_STATS_INIT;
    assert_int_equal(brim_loader_read_stats(loader, &stats), BRIM_OK);
    return stats.cache_count;
}

struct digest run_epochs(const char *text, const struct how *how, unsigned epochs,
                         brim_cache_stats *stats) {
    struct session session;
    struct digest digest = { 0 };
    session_open(&session, text, how);
    for (unsigned i = 0; i < epochs; i++) {
        assert_true(take_batches(&session, TO_THE_END, digest_batch, &digest));
    }
    if (stats != NULL) {
        *stats = cache_stats(session.loader, 0);
    }
    session_close(&session);
    return digest;
}

void run_batches(const char *text, const struct how *how, uint64_t batches) {
    struct session session;
    struct digest digest = { 0 };
    session_open(&session, text, how);
    take_batches(&session, batches, digest_batch, &digest);
    session_close(&session);
}

void assert_digest(const char *text, struct digest got, struct digest wanted) {
    if (got.value != wanted.value || got.batches != wanted.batches) {
        fail_msg("\"%s\" gave other batches (%" PRIu64 " of %" PRIu64 ") than without a cache",
                 text, got.batches, wanted.batches);
    }
}

/* ------------------------------------------------------------------- files */

void remove_file(const char *name) {
    assert_true(unlink(in_directory(name).text) == 0 || errno == ENOENT);
}

bool file_exists(const char *name) {
    return access(in_directory(name).text, F_OK) == 0;
}

uint64_t file_bytes(const char *name) {
    struct stat facts;
    assert_int_equal(stat(in_directory(name).text, &facts), 0);
    return (uint64_t)facts.st_size;
}

uint8_t *read_whole(const char *name, size_t *bytes) {
    FILE *file = fopen(in_directory(name).text, "rbe");
    assert_non_null(file);
    *bytes = file_bytes(name);
    uint8_t *data = malloc(*bytes + 1);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, *bytes, file), *bytes);
    fclose(file);
    return data;
}

void copy_file(const char *from, const char *to) {
    size_t bytes;
    uint8_t *data = read_whole(from, &bytes);
    write_file(to, data, bytes);
    free(data);
}

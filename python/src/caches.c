/*
 * caches.c: the caches of a Loader: their figures, and what they warn of.
 *
 * A cache that keeps nothing more (a full disk, a file that another process fills) is no error:
 * batches come as before, only later. So it is a CacheWarning, once for each cache, when the loader
 * is opened or at the end of an epoch. So is a cache whose samples were stale and that was reset,
 * and an index that was not trusted.
 */
#include "loader.h"

#include <stdio.h>
#include <string.h>

#define MOST_TOLD 64 /* caches of which it is remembered that they have warned */

static PyObject *decode(const char *text) {
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

static PyObject *describe(const brim_cache_stats *cache) {
    return Py_BuildValue(
        "{s:s,s:I,s:N,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:N,s:N}", "tier", cache->tier, "stage",
        cache->stage, "fills", PyBool_FromLong(cache->fills), "samples",
        (unsigned long long)cache->samples, "filled", (unsigned long long)cache->filled, "bytes",
        (unsigned long long)cache->bytes, "hits", (unsigned long long)cache->hits, "misses",
        (unsigned long long)cache->misses, "stored", (unsigned long long)cache->stored, "dropped",
        (unsigned long long)cache->dropped, "damaged", (unsigned long long)cache->damaged,
        "changed", (unsigned long long)cache->changed, "warning", decode(cache->warning), "note",
        decode(cache->note));
}

PyObject *brim_py_list_caches(brim_loader *loader, uint32_t count) {
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < count; i++) {
        brim_cache_stats cache = BRIM_CACHE_STATS_INIT;
        if (brim_loader_read_cache_stats(loader, i, &cache) != BRIM_OK) {
            break;
        }
        PyObject *item = describe(&cache);
        if (item == NULL || PyList_Append(list, item) != 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(item);
    }
    return list;
}

static int warn(const char *given, Py_ssize_t level) {
    PyObject *text = decode(given);
    const char *plain = text == NULL ? NULL : PyUnicode_AsUTF8AndSize(text, NULL);
    const int failed = plain == NULL ? -1 : PyErr_WarnEx(brim_py_cache_warning, plain, level);
    Py_XDECREF(text);
    return failed == 0 ? 0 : -1;
}

/* Indexes that other users could have written, and that were not used. */
static int warn_of_indexes(LoaderObject *self, Py_ssize_t level) {
    const brim_plan *plan = brim_loader_plan(self->loader);
    const brim_plan_index *index;
    if (self->warned_indexes) {
        return 0;
    }
    self->warned_indexes = 1;
    for (size_t i = 0; (index = brim_plan_index_at(plan, i)) != NULL; i++) {
        if (index->note[0] != '\0' && warn(index->note, level) != 0) {
            return -1;
        }
    }
    return 0;
}

/* What was found in the cache's place: its samples are made again. */
static int warn_of_note(const brim_cache_stats *cache, Py_ssize_t level) {
    char text[sizeof cache->note + 64];
    snprintf(text, sizeof text, "cache %s at stage %u: %s", cache->tier, cache->stage, cache->note);
    return warn(text, level);
}

int brim_py_warn_of_caches(LoaderObject *self, Py_ssize_t level) {
    brim_stats stats = BRIM_STATS_INIT;
    if (warn_of_indexes(self, level) != 0) {
        return -1;
    }
    if (brim_loader_read_stats(self->loader, &stats) != BRIM_OK) {
        return 0;
    }
    for (uint32_t i = 0; i < stats.cache_count && i < MOST_TOLD; i++) {
        brim_cache_stats cache = BRIM_CACHE_STATS_INIT;
        const uint64_t bit = UINT64_C(1) << i;
        if (brim_loader_read_cache_stats(self->loader, i, &cache) != BRIM_OK) {
            continue;
        }
        const int notes = cache.note[0] != '\0' && (self->noted_caches & bit) == 0;
        const int warns = cache.warning[0] != '\0' && (self->warned_caches & bit) == 0;
        self->noted_caches |= notes ? bit : 0;
        if (notes && warn_of_note(&cache, level) != 0) {
            return -1;
        }
        self->warned_caches |= warns ? bit : 0;
        if (warns && warn(cache.warning, level) != 0) {
            return -1;
        }
    }
    return 0;
}

/*
 * index.c: opens, reads and verifies index files.
 *
 * Opening reads one page, whatever the count: the header gives the number of pages, and the file's
 * size must agree. Reading entries reads their pages, one at a time on the stack, and uses no entry
 * before the page's hash was compared. Entries are also checked against the data file's size,
 * because a hash detects accidents, not forgeries.
 */
#include "source/index.h"

#include "base/progress.h"
#include "source/index_file.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

uint64_t brim__index_page_hash(const uint8_t *page, uint64_t number) {
    return brim__hash(page, BRIM__INDEX_HASHED, number);
}

void brim__index_seal(uint8_t *page, uint64_t number) {
    const uint64_t hash = brim__index_page_hash(page, number);
    memcpy(page + BRIM__INDEX_HASHED, &hash, sizeof hash);
}

bool brim__index_sealed(const uint8_t *page, uint64_t number) {
    const uint64_t hash = brim__index_page_hash(page, number);
    return memcmp(page + BRIM__INDEX_HASHED, &hash, sizeof hash) == 0;
}

void brim__index_expect(const struct brim__file *data, const struct brim__index_recipe *recipe,
                        struct brim__index_header *header) {
    *header = (struct brim__index_header){ .version = BRIM__INDEX_VERSION,
                                           .page_bytes = BRIM__INDEX_PAGE,
                                           .options = recipe->options,
                                           .data_bytes = data->bytes,
                                           .data_modified_ns = data->modified_ns };
    memcpy(header->magic, BRIM__INDEX_MAGIC, sizeof header->magic);
    brim__copy_text(header->source, sizeof header->source, recipe->source);
}

/* -------------------------------------------------------------------- path */

/* The path of an index in the cache. Its name is a hash of how the index is made and of the data
 * file's absolute path without links, so a file that is reached through several links has one
 * index. */
static brim_status cache_path(const struct brim__file *data,
                              const struct brim__index_recipe *recipe,
                              const struct brim__opening *opening, char text[PATH_MAX]) {
    char real[PATH_MAX], home[PATH_MAX];
    const bool given = opening->index_dir != NULL;
    if (!given && !brim__home_directory(home, sizeof home)) {
        return brim__fail(BRIM_STATUS_IO,
                          "%s: there is no place for its index: this user has no home directory; "
                          "give index=beside or an index directory (index_dir of the runtime, "
                          "--index-dir on the command line)",
                          data->path);
    }
    if (realpath(data->path, real) == NULL) {
        char why[BRIM__ERROR_TEXT];
        return brim__fail(BRIM_STATUS_IO, "%s: its absolute path cannot be found: %s", data->path,
                          brim__error_text(errno, why));
    }
    const uint64_t kind = brim__hash_words(brim__hash(recipe->source, strlen(recipe->source), 0),
                                           recipe->options, BRIM__INDEX_VERSION);
    char user[24] = "";
    if (recipe->own) {
        snprintf(user, sizeof user, "-%u", (unsigned)geteuid());
    }
    const int length = snprintf(text, PATH_MAX, "%s%s/index/%016llx%s.brimidx",
                                given ? opening->index_dir : home, given ? "" : "/.cache/brim",
                                (unsigned long long)brim__hash(real, strlen(real), kind), user);
    return length < PATH_MAX ? BRIM_OK
                             : brim__fail(BRIM_STATUS_IO, "the index directory's path is too long");
}

brim_status brim__index_path(const struct brim__file *data, const struct brim__index_recipe *recipe,
                             struct brim__opening *opening, const char **path) {
    char text[PATH_MAX];
    brim_status status = BRIM_OK;
    if (recipe->home == BRIM__INDEX_CACHE) {
        status = cache_path(data, recipe, opening, text);
    } else if (snprintf(text, sizeof text, "%s.%s.brimidx", data->path, recipe->source) >=
               PATH_MAX) {
        status = brim__fail(BRIM_STATUS_IO, "%s: its path is too long for an index beside it",
                            data->path);
    }
    return status == BRIM_OK ? brim__arena_text(opening->arena, text, path) : status;
}

brim_status brim__kept_path(const struct brim__file *data, const struct brim__index_recipe *recipe,
                            const char *ending, struct brim__opening *opening, const char **path) {
    const char *index;
    char text[PATH_MAX], source[BRIM_NAME_BYTES];
    struct brim__index_recipe named = *recipe;
    snprintf(source, sizeof source, "%s-%08x", recipe->source,
             (unsigned)(recipe->options & UINT32_MAX));
    named.source = source;
    const brim_status status = brim__index_path(data, &named, opening, &index);
    if (status != BRIM_OK) {
        return status;
    }
    const size_t length = (size_t)(strrchr(index, '.') - index);
    if (snprintf(text, sizeof text, "%.*s%s", (int)length, index, ending) >= (int)sizeof text) {
        return brim__fail(BRIM_STATUS_IO, "%s: the path of its index is too long", data->path);
    }
    return brim__arena_text(opening->arena, text, path);
}

/* ------------------------------------------------------------------- pages */

static brim_status read_page(const struct brim__file *file, uint64_t number,
                             uint8_t page[BRIM__INDEX_PAGE]) {
    const uint64_t at = number * BRIM__INDEX_PAGE;
    const brim_status status = brim__file_read(file, at, page, BRIM__INDEX_PAGE);
    if (status != BRIM_OK) {
        return status;
    }
    if (!brim__index_sealed(page, number)) {
        return brim__fail(BRIM_STATUS_CORRUPT,
                          "%s: this index is damaged in page %llu (byte %llu): delete it; the next "
                          "opening makes a new one",
                          file->path, (unsigned long long)number, (unsigned long long)at);
    }
    return BRIM_OK;
}

static brim_status stale(const char *path) {
    return brim__fail(BRIM_STATUS_CORRUPT,
                      "%s: is not an index of these data, or is incomplete: "
                      "delete it; the next opening makes a new one",
                      path);
}

/* Opens the index at `path`. A failure means that it must be made. */
static brim_status open_existing(struct brim__index *index, const char *path,
                                 const struct brim__file *data,
                                 const struct brim__index_recipe *recipe,
                                 const struct brim__opening *opening) {
    uint8_t page[BRIM__INDEX_PAGE];
    struct brim__index_header header, expected;
    brim_status status = brim__file_open(&index->file, path);
    if (status != BRIM_OK) {
        return status;
    }
    status = brim__index_trust(&index->file, opening, &index->note);
    if (status == BRIM_OK) {
        status =
            index->file.bytes < BRIM__INDEX_PAGE ? stale(path) : read_page(&index->file, 0, page);
    }
    if (status == BRIM_OK) {
        memcpy(&header, page, sizeof header);
        brim__index_expect(data, recipe, &expected);
        const size_t same = offsetof(struct brim__index_header, count);
        const uint64_t pages = index->file.bytes / BRIM__INDEX_PAGE;
        if (memcmp(&header, &expected, same) != 0 || index->file.bytes % BRIM__INDEX_PAGE != 0 ||
            brim__index_pages(header.count) != pages || header.largest > data->bytes) {
            status = stale(path);
        }
    }
    if (status != BRIM_OK) {
        brim__file_close(&index->file);
        return status;
    }
    index->count = header.count;
    index->largest = header.largest;
    index->total = header.total;
    index->data_bytes = data->bytes;
    index->data_path = data->path;
    return BRIM_OK;
}

brim_status brim__index_open(struct brim__index *index, const struct brim__file *data,
                             const struct brim__index_recipe *given,
                             struct brim__opening *opening) {
    struct brim__index_recipe recipe = *given;
    const char *path, *note = NULL;
    *index = (struct brim__index){ .file = { .fd = -1 } };
    brim_status status = brim__index_settle(data, &recipe, NULL, opening, &path, &note);
    if (status != BRIM_OK) {
        return status;
    }
    index->note = note;
    if (open_existing(index, path, data, &recipe, opening) != BRIM_OK) {
        status = brim__index_make(path, data, &recipe, opening);
        if (status == BRIM_OK) {
            status = open_existing(index, path, data, &recipe, opening);
            index->made = true;
        }
    }
    if (status == BRIM_OK && opening->indexes != NULL) {
        index->next = *opening->indexes;
        *opening->indexes = index;
    }
    return status;
}

void brim__index_close(struct brim__index *index) {
    brim__file_close(&index->file);
}

/* ----------------------------------------------------------------- entries */

static brim_status unpack(const struct brim__index *index, const uint8_t *from, uint64_t number,
                          struct brim__index_entry *entry) {
    struct brim__index_item item;
    memcpy(&item, from, sizeof item);
    *entry = (struct brim__index_entry){ .offset = item.offset,
                                         .length = item.length_kind & (BRIM__INDEX_LENGTH - 1),
                                         .kind = (uint16_t)(item.length_kind >> 48),
                                         .a = item.a,
                                         .b = item.b };
    if (entry->offset > index->data_bytes || entry->length > index->data_bytes - entry->offset) {
        return brim__fail(BRIM_STATUS_CORRUPT,
                          "%s: record %llu of this index is not inside %s: delete the index; the "
                          "next opening makes a new one",
                          index->file.path, (unsigned long long)number, index->data_path);
    }
    return BRIM_OK;
}

/* Reads entries, or, if `entries` is NULL, the same as ranges of the data file. */
static brim_status read_entries(const struct brim__index *index, uint64_t first, size_t count,
                                struct brim__index_entry *entries, const struct brim__file *data,
                                struct brim__file_range *ranges) {
    uint8_t page[BRIM__INDEX_PAGE];
    assert(first <= index->count && count <= index->count - first);
    for (size_t i = 0; i < count;) {
        const uint64_t number = 1 + (first + i) / BRIM__INDEX_PER_PAGE;
        size_t place = (size_t)((first + i) % BRIM__INDEX_PER_PAGE);
        brim_status status = read_page(&index->file, number, page);
        for (; status == BRIM_OK && i < count && place < BRIM__INDEX_PER_PAGE; i++, place++) {
            struct brim__index_entry entry;
            status = unpack(index, page + place * BRIM__INDEX_ENTRY, first + i, &entry);
            if (entries != NULL) {
                entries[i] = entry;
            } else {
                ranges[i] = (struct brim__file_range){ .file = data,
                                                       .offset = entry.offset,
                                                       .bytes = entry.length,
                                                       .samples = 1,
                                                       .mark = entry.a };
            }
        }
        if (status != BRIM_OK) {
            return status;
        }
    }
    return BRIM_OK;
}

brim_status brim__index_read(const struct brim__index *index, uint64_t first, size_t count,
                             struct brim__index_entry *entries) {
    return read_entries(index, first, count, entries, NULL, NULL);
}

brim_status brim__index_locate(const struct brim__index *index, const struct brim__file *data,
                               uint64_t first, size_t count, struct brim__file_range *ranges) {
    return read_entries(index, first, count, NULL, data, ranges);
}

brim_status brim__index_verify(const struct brim__index *index, brim_progress_callback *progress,
                               void *progress_user) {
    uint8_t page[BRIM__INDEX_PAGE];
    brim_status status = read_page(&index->file, 0, page);
    uint64_t largest = 0, total = 0, reported_ns = brim__now();
    char what[256];
    snprintf(what, sizeof what, "checking %s", index->file.path);
    for (uint64_t i = 0; status == BRIM_OK && i < index->count; i++) {
        const uint64_t place = i % BRIM__INDEX_PER_PAGE;
        struct brim__index_entry entry;
        if (place == 0 && brim__progress_is_due(progress, &reported_ns) &&
            !brim__progress_report(progress, progress_user, what, BRIM_UNIT_SAMPLES, i,
                                   index->count)) {
            return brim__fail(BRIM_STATUS_INTERRUPTED, "%s: checking it was stopped at record %llu",
                              index->file.path, (unsigned long long)i);
        }
        if (place == 0) {
            status = read_page(&index->file, 1 + i / BRIM__INDEX_PER_PAGE, page);
        }
        if (status == BRIM_OK) {
            status = unpack(index, page + place * BRIM__INDEX_ENTRY, i, &entry);
        }
        if (status == BRIM_OK) {
            largest = brim__max(largest, entry.length);
            total += entry.length;
            status = index->check == NULL ? BRIM_OK : index->check(index, &entry);
        }
    }
    if (status == BRIM_OK && (largest != index->largest || total != index->total)) {
        status = brim__fail(BRIM_STATUS_CORRUPT,
                            "%s: the header of this index does not agree with its entries: delete "
                            "it; the next opening makes a new one",
                            index->file.path);
    }
    return status;
}

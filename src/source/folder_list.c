/*
 * folder_list.c: the listing of a folder: its bytes, whether it is fresh, its records.
 *
 *     page 0   header, ends with its hash
 *     page 1   entries of an index: where the record of each sample lies
 *     ...
 *     ...      records of the samples, in their order
 *     ...      records of the classes, in the order of their numbers
 *     ...      records of the directories that were walked
 *
 * Every record has a hash of itself and its place in the file. No record is used before its hash
 * was compared, because a wrong path would be a wrong sample. Numbers that decide where something
 * is read or written are checked as well, because a hash detects accidents, not forgeries.
 */
#include "source/listing.h"

#include <stdio.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "listings are little-endian");

#define MAGIC       "brimlst\n"
#define READ_LEAST  ((size_t)8192)
#define READ_MOST   ((size_t)65536)
#define RECORD_TAIL (BRIM__LISTING_RECORD - sizeof(uint64_t)) /* after the hash */

_Static_assert(sizeof(struct brim__listing_header) <= BRIM__INDEX_HASHED, "the header is one page");
_Static_assert(BRIM__LISTED_MOST <= READ_LEAST, "any record fits the buffer");

/* ----------------------------------------------------------------- records */

brim_status brim__listing_damaged(const char *path, uint64_t at) {
    return brim__fail(BRIM_STATUS_CORRUPT,
                      "%s: this listing of a folder is damaged at byte %llu: delete it; the next "
                      "opening makes a new one",
                      path, (unsigned long long)at);
}

brim_status brim__listed_append(struct brim__append_file *append, struct brim__listed listed,
                                const char *path, size_t path_bytes) {
    uint8_t record[BRIM__LISTED_MOST];
    assert(path_bytes < PATH_MAX);
    listed.path_bytes = (uint16_t)path_bytes;
    memcpy(record, &listed, sizeof listed);
    memcpy(record + sizeof listed, path, path_bytes);
    const uint64_t hash =
        brim__hash(record + sizeof hash, RECORD_TAIL + path_bytes, brim__append_end(append));
    memcpy(record, &hash, sizeof hash);
    return brim__append_bytes(append, record, sizeof listed + path_bytes);
}

/* Whether a path that starts at a root stays below it. Walking finds names joined by single
 * slashes, none of which begins with a dot; any other path was forged and could lead anywhere. The
 * empty path is the root itself. Links in the folder are allowed, because its owner has made
 * them. */
static bool stays_below(const char *path, size_t bytes) {
    bool begins = true; /* a name begins here */
    for (size_t i = 0; i < bytes; i++) {
        if (path[i] == '\0' || (begins && (path[i] == '.' || path[i] == '/'))) {
            return false;
        }
        begins = path[i] == '/';
    }
    return bytes == 0 || !begins;
}

brim_status brim__listed_parse(const uint8_t *record, uint64_t bytes, const char *file_path,
                               uint64_t at, struct brim__listed *listed, const char **path) {
    if (bytes < sizeof *listed) {
        return brim__listing_damaged(file_path, at);
    }
    memcpy(listed, record, sizeof *listed);
    if (listed->path_bytes != bytes - sizeof *listed || listed->path_bytes >= PATH_MAX ||
        listed->hash !=
            brim__hash(record + sizeof listed->hash, RECORD_TAIL + listed->path_bytes, at) ||
        !stays_below((const char *)record + sizeof *listed, listed->path_bytes)) {
        return brim__listing_damaged(file_path, at);
    }
    *path = (const char *)record + sizeof *listed;
    return BRIM_OK;
}

brim_status brim__listed_next(struct brim__forward_reader *reader, struct brim__listed *listed,
                              const char **path) {
    const uint8_t *record;
    const uint64_t at = reader->at - (reader->have - reader->from);
    brim_status status = brim__forward_peek(reader, sizeof *listed, &record);
    if (status != BRIM_OK) {
        return status;
    }
    memcpy(listed, record, sizeof *listed);
    const size_t bytes = sizeof *listed + listed->path_bytes;
    if (bytes > reader->room) {
        return brim__listing_damaged(reader->file->path, at);
    }
    status = brim__forward_peek(reader, bytes, &record);
    if (status == BRIM_OK) {
        status = brim__listed_parse(record, bytes, reader->file->path, at, listed, path);
        brim__forward_skip(reader, bytes);
    }
    return status;
}

brim_status brim__listed_path(const struct brim__folder *folder, uint32_t root, const char *path,
                              size_t path_bytes, char to[PATH_MAX]) {
    const char *const own = folder->absolute[root];
    const size_t root_bytes = strlen(own);
    if (root_bytes + path_bytes + 2 > PATH_MAX) {
        return brim__fail(BRIM_STATUS_IO,
                          "%.300s: the path of a file in it is longer than %d bytes: %.*s", own,
                          PATH_MAX - 1, (int)path_bytes, path);
    }
    memcpy(to, own, root_bytes);
    to[root_bytes] = path_bytes == 0 ? '\0' : '/';
    memcpy(to + root_bytes + 1, path, path_bytes);
    to[root_bytes + 1 + path_bytes] = '\0';
    return BRIM_OK;
}

/* ----------------------------------------------------------------- opening */

void brim__listing_expect(struct brim__listing_header *header, uint64_t options) {
    *header = (struct brim__listing_header){ .version = BRIM__LISTING_VERSION,
                                             .page_bytes = BRIM__INDEX_PAGE,
                                             .options = options };
    memcpy(header->magic, MAGIC, sizeof header->magic);
}

static brim_status stale(const char *path) {
    return brim__fail(BRIM_STATUS_CORRUPT,
                      "%s: is not a listing of this folder, or is incomplete: "
                      "delete it; the next opening makes a new one",
                      path);
}

static brim_status read_header(struct brim__listing *listing, uint64_t options) {
    struct brim__listing_header *header = &listing->header, expected;
    const struct brim__file *file = &listing->index.file;
    uint8_t page[BRIM__INDEX_PAGE];
    if (file->bytes < sizeof page) {
        return stale(file->path);
    }
    const brim_status status = brim__file_read(file, 0, page, sizeof page);
    if (status != BRIM_OK) {
        return status;
    }
    memcpy(header, page, sizeof *header);
    brim__listing_expect(&expected, options);
    const uint64_t each = BRIM__LISTING_RECORD;
    const uint64_t most = file->bytes / BRIM__INDEX_ENTRY;
    const uint64_t begin = brim__listing_records_at(brim__min(header->samples, most));
    const bool whole =
        brim__index_sealed(page, 0) &&
        memcmp(header, &expected, offsetof(struct brim__listing_header, samples)) == 0 &&
        header->bytes == file->bytes && header->directories_at <= header->bytes &&
        header->classes_at <= header->directories_at && header->samples > 0 &&
        header->classes_at >= begin && header->samples <= (header->classes_at - begin) / each &&
        header->classes <= (header->directories_at - header->classes_at) / each &&
        header->directories > 0 &&
        header->directories <= (header->bytes - header->directories_at) / each &&
        header->labelled <= 1 && header->classes <= BRIM__NO_LABEL &&
        (header->classes > 0) == (header->labelled == 1) && header->longest > 0 &&
        header->longest < PATH_MAX && brim__probed_plausible(&header->probed, header->samples);
    return whole ? BRIM_OK : stale(file->path);
}

/* Begins reading [from, to). The caller frees the reader's buffer. */
static brim_status begin_reading(struct brim__forward_reader *reader, const struct brim__file *file,
                                 uint64_t from, uint64_t to, const struct brim__opening *opening) {
    brim_status status;
    const size_t room = brim__index_buffer(opening, 8, READ_LEAST, READ_MOST);
    *reader = (struct brim__forward_reader){ .file = file, .at = from, .end = to, .room = room };
    reader->buffer = brim__alloc(opening->arena->budget, room, &status);
    return reader->buffer != NULL ? BRIM_OK
                                  : brim__fail_within(status, "reading the listing %s", file->path);
}

static brim_status check_directory(const struct brim__folder *folder,
                                   const struct brim__listed *listed, const char *path,
                                   const char *listing) {
    char full[PATH_MAX];
    struct brim__facts facts = { 0 };
    if (listed->root >= folder->root_count ||
        (listed->b != BRIM__LISTED_SURE && listed->b != BRIM__LISTED_NONE)) {
        return stale(listing);
    }
    const brim_status status =
        brim__listed_path(folder, listed->root, path, listed->path_bytes, full);
    if (status != BRIM_OK) {
        return status;
    }
    if (listed->b == BRIM__LISTED_NONE) {
        return brim__walk_nowhere(full);
    }
    return brim__walk_facts(full, false, &facts) == BRIM_OK && facts.hash == listed->a
               ? BRIM_OK
               : stale(listing);
}

static brim_status check_directories(const struct brim__listing *listing,
                                     const struct brim__folder *folder,
                                     const struct brim__opening *opening) {
    const struct brim__listing_header *header = &listing->header;
    struct brim__forward_reader reader;
    uint64_t count = 0;
    brim_status status = begin_reading(&reader, &listing->index.file, header->directories_at,
                                       header->bytes, opening);
    for (; status == BRIM_OK && !brim__forward_done(&reader); count++) {
        struct brim__listed listed;
        const char *path = "";
        status = brim__listed_next(&reader, &listed, &path);
        if (status == BRIM_OK) {
            status = check_directory(folder, &listed, path, listing->index.file.path);
        }
    }
    brim__free(reader.buffer);
    return status == BRIM_OK && count != header->directories ? stale(listing->index.file.path)
                                                             : status;
}

/* Checks that the record of an entry is whole. */
static brim_status check_record(const struct brim__index *index,
                                const struct brim__index_entry *entry) {
    uint8_t record[BRIM__LISTED_MOST];
    struct brim__listed listed;
    const char *path;
    if (entry->length > sizeof record) {
        return brim__listing_damaged(index->file.path, entry->offset);
    }
    brim_status status =
        brim__file_read(&index->file, entry->offset, record, (size_t)entry->length);
    if (status == BRIM_OK) {
        status = brim__listed_parse(record, entry->length, index->file.path, entry->offset, &listed,
                                    &path);
    }
    return status == BRIM_OK && listed.label != entry->a
               ? brim__listing_damaged(index->file.path, entry->offset)
               : status;
}

brim_status brim__listing_open(struct brim__listing *listing, const char *path, uint64_t options,
                               const struct brim__folder *folder,
                               const struct brim__opening *opening) {
    const struct brim__listing_header *header = &listing->header;
    struct brim__index *index = &listing->index;
    brim_status status = brim__file_open(&index->file, path);
    if (status == BRIM_OK) {
        status = brim__index_trust(&index->file, opening, &index->note);
    }
    if (status == BRIM_OK) {
        status = read_header(listing, options);
    }
    if (status == BRIM_OK && folder != NULL) {
        status = check_directories(listing, folder, opening);
    }
    if (status != BRIM_OK) {
        brim__listing_close(listing);
        return status;
    }
    index->count = header->samples;
    index->largest = BRIM__LISTING_RECORD + header->longest;
    index->total = header->classes_at - brim__listing_records_at(header->samples);
    index->data_bytes = index->file.bytes;
    index->data_path = index->file.path;
    index->check = check_record;
    return BRIM_OK;
}

void brim__listing_close(struct brim__listing *listing) {
    brim__index_close(&listing->index);
}

/* ----------------------------------------------------------------- classes */

brim_status brim__listing_classes(const struct brim__listing *listing,
                                  struct brim__opening *opening, const char *const **names) {
    const struct brim__listing_header *header = &listing->header;
    const char **table;
    struct brim__forward_reader reader;
    brim_status status = brim__arena_take(opening->arena, header->classes * sizeof *table, &table);
    if (status != BRIM_OK) {
        return status;
    }
    status = begin_reading(&reader, &listing->index.file, header->classes_at,
                           header->directories_at, opening);
    for (uint64_t i = 0; status == BRIM_OK && i < header->classes; i++) {
        struct brim__listed listed;
        const char *name = "";
        char *copy;
        status = brim__listed_next(&reader, &listed, &name);
        if (status == BRIM_OK) {
            status = brim__arena_take(opening->arena, (uint64_t)listed.path_bytes + 1, &copy);
        }
        if (status == BRIM_OK) {
            memcpy(copy, name, listed.path_bytes); /* the arena's memory is zero after it */
            table[i] = copy;
        }
    }
    brim__free(reader.buffer);
    *names = table;
    return status;
}

/*
 * index.h: the one format of sidecar indexes: where the records of a file lie.
 *
 * An index is made in one pass with bounded memory, written beside its final name and renamed, so
 * that there is either none or a whole one; it is read in blocks when entries are needed and never
 * loaded whole. Its blocks carry checksums that every read verifies. It is stale when the data
 * file's size or time of change differ, or when it was made with other options; then it is made
 * again. Several processes may make the same one at once: each writes a file of its own, and the
 * last rename wins with the same content.
 *
 * Byte layout: docs/index.md.
 */
#ifndef BRIM_INDEX_H
#define BRIM_INDEX_H

#include "base/file.h"
#include "memory/alloc.h"
#include "source/source.h"

/* One record, 24 bytes on disk. */
struct brim__index_entry {
    uint64_t offset; /* in the data file */
    uint64_t length; /* bytes; below 2^48 */
    uint16_t kind;   /* what the source makes of it; 0 if nothing */
    uint32_t a, b;   /* two small numbers, such as width and height */
};

struct brim__index {
    struct brim__file file; /* fd -1: not open */
    uint64_t count;         /* entries */
    uint64_t largest;       /* longest length */
    uint64_t total;         /* sum of the lengths */
    uint64_t data_bytes;    /* size of the data file */
    const char *data_path;  /* of the data file */
    bool made;              /* it was made when it was opened */
    /* checks the record of an entry too, where it lies in the same file; NULL: it does not */
    brim_status (*check)(const struct brim__index *index, const struct brim__index_entry *entry);
    const char *note;         /* what was found at its place, and not used; NULL: nothing */
    struct brim__index *next; /* in the opening's list */
};

/* Where an index is kept. */
enum brim__index_place { BRIM__INDEX_CACHE, BRIM__INDEX_BESIDE };

struct brim__index_writer;
/* Walks the data file once and enters its records in order. */
typedef brim_status brim__index_scan(void *self, const struct brim__file *data,
                                     struct brim__index_writer *writer);
brim_status brim__index_add(struct brim__index_writer *writer,
                            const struct brim__index_entry *entry);
/* To be called now and then by a scan, with the bytes walked so far: tells the
 * caller's progress function, and returns BRIM_STATUS_INTERRUPTED if it wants no more. */
brim_status brim__index_progress(struct brim__index_writer *writer, uint64_t done);

/* Bytes that a buffer for making an index may take: `most`, halved until it is at most
 * 1 / `share` of what the budget can give, but not below `least`. */
size_t brim__index_buffer(const struct brim__opening *opening, uint64_t share, size_t least,
                          size_t most);

/* Adds to the thread's detail what can be done about a place that refused writing. */
brim_status brim__index_refused(brim_status status, enum brim__index_place place);

/* What an index is of and how it is made. */
struct brim__index_recipe {
    const char *source; /* "text", "csv": part of the key */
    uint64_t options;   /* hash of all options that decide the entries */
    enum brim__index_place place;
    bool own; /* in the cache, under a name that no other user's index has */
    brim__index_scan *scan;
    void *self;
};

/* Opens the index of `data`, making it first if there is none that is fresh and
 * whole. What the index needs for good comes from the opening's arena; what
 * making it needs is charged and given back. It enters the opening's list of
 * indexes, if there is one, so it must lie in the arena. */
brim_status brim__index_open(struct brim__index *index, const struct brim__file *data,
                             const struct brim__index_recipe *given, struct brim__opening *opening);
void brim__index_close(struct brim__index *index); /* harmless twice */

/* Entries [first, first + count), read with at most a few KiB of stack; from any
 * thread. Every entry lies inside the data file; else BRIM_STATUS_CORRUPT. */
brim_status brim__index_read(const struct brim__index *index, uint64_t first, size_t count,
                             struct brim__index_entry *entries);
/* The same as ranges of the data file; `a` is the mark. */
brim_status brim__index_locate(const struct brim__index *index, const struct brim__file *data,
                               uint64_t first, size_t count, struct brim__file_range *ranges);
/* Reads all of it and compares every checksum. */
brim_status brim__index_verify(const struct brim__index *index, brim_progress_callback *progress,
                               void *progress_user);

/* index_trust.c: where to keep something of `data` (ending NULL: its index; else as
 * brim__kept_path): at the recipe's place, or, where another user's file has that name, which
 * is left alone, in the index directory. Changes the recipe's place, and says so in *note;
 * both texts are in the arena. BRIM_STATUS_IO: all places are taken. */
brim_status brim__index_settle(const struct brim__file *data, struct brim__index_recipe *recipe,
                               const char *ending, struct brim__opening *opening, const char **path,
                               const char **note);
/* BRIM_OK: what was opened may be used. Else it counts as absent: a *note that is NULL says
 * that it is made anew. */
brim_status brim__index_trust(const struct brim__file *file, const struct brim__opening *opening,
                              const char **note);

/* The path of the index that a recipe would have; in the arena. */
brim_status brim__index_path(const struct brim__file *data, const struct brim__index_recipe *recipe,
                             struct brim__opening *opening, const char **path);
/* Where something is kept that belongs to `data`: as its index would, but with another
 * ending of the name, such as ".brimlst", and with other options under another name
 * even beside the data; in the arena. */
brim_status brim__kept_path(const struct brim__file *data, const struct brim__index_recipe *recipe,
                            const char *ending, struct brim__opening *opening, const char **path);

#endif

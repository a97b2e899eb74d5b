/*
 * index.h: the format of index files: where the records of a data file are.
 *
 * An index is made in one pass with bounded memory. It is written beside its final name and
 * renamed, so there is either none or a whole one. It is read in blocks when entries are needed,
 * and never loaded whole. Its blocks have checksums, which every read verifies. It is stale if the
 * data file's size or time of change differs, or if it was made with other options; then it is made
 * again. Several processes may make the same index at the same time: each writes a separate file
 * with the same content, and the last rename replaces the others.
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
    /* checks the record of an entry, if the records are in the same file; NULL: they are not */
    brim_status (*check)(const struct brim__index *index, const struct brim__index_entry *entry);
    const char *note;         /* what was found under its name, and not used; NULL: nothing */
    struct brim__index *next; /* in the opening's list */
};

/* Where an index is kept. */
enum brim__index_home { BRIM__INDEX_CACHE, BRIM__INDEX_BESIDE };

struct brim__index_writer;
/* Walks the data file once and enters its records in order. */
typedef brim_status brim__index_scan(void *self, const struct brim__file *data,
                                     struct brim__index_writer *writer);
brim_status brim__index_add(struct brim__index_writer *writer,
                            const struct brim__index_entry *entry);
/* A scan calls this regularly with the bytes walked so far. Calls the caller's progress function,
 * and returns BRIM_STATUS_INTERRUPTED if that asks to stop. */
brim_status brim__index_progress(struct brim__index_writer *writer, uint64_t done);

/* Bytes that a buffer for making an index may take: `most`, halved until it is at most
 * 1 / `share` of what the budget can give, but not below `least`. */
size_t brim__index_buffer(const struct brim__opening *opening, uint64_t share, size_t least,
                          size_t most);

/* Adds to the thread's detail how to choose another directory, after one could not be written. */
brim_status brim__index_refused(brim_status status, enum brim__index_home home);

/* How an index is made. */
struct brim__index_recipe {
    const char *source; /* "text", "csv": part of the key */
    uint64_t options;   /* hash of all options that decide the entries */
    enum brim__index_home home;
    bool own; /* in the cache, under a name that no other user's index has */
    brim__index_scan *scan;
    void *self;
};

/* Opens the index of `data`, and makes it first unless there is one that is fresh and whole.
 * Lasting memory comes from the opening's arena; memory for making the index is charged and
 * returned. The index is added to the opening's list of indexes, if there is one, so *index must be
 * in the arena. */
brim_status brim__index_open(struct brim__index *index, const struct brim__file *data,
                             const struct brim__index_recipe *given, struct brim__opening *opening);
void brim__index_close(struct brim__index *index); /* harmless twice */

/* Reads entries [first, first + count) with at most a few KiB of stack. May be called from any
 * thread. BRIM_STATUS_CORRUPT unless every entry is inside the data file. */
brim_status brim__index_read(const struct brim__index *index, uint64_t first, size_t count,
                             struct brim__index_entry *entries);
/* The same as ranges of the data file; `a` is the mark. */
brim_status brim__index_locate(const struct brim__index *index, const struct brim__file *data,
                               uint64_t first, size_t count, struct brim__file_range *ranges);
/* Reads all of it and compares every checksum. */
brim_status brim__index_verify(const struct brim__index *index, brim_progress_callback *progress,
                               void *progress_user);

/* index_trust.c: the path at which to keep a file that belongs to `data` (ending NULL: its index;
 * else as in brim__kept_path). It is in the recipe's home, or in the index directory if another
 * user's file has that name; then the recipe's home is changed, and *note says so. Both texts are
 * in the arena. BRIM_STATUS_IO: other users' files have all the names. */
brim_status brim__index_settle(const struct brim__file *data, struct brim__index_recipe *recipe,
                               const char *ending, struct brim__opening *opening, const char **path,
                               const char **note);
/* BRIM_OK: the open file may be used. Else it counts as absent, and a *note that is NULL is set to
 * say that it is made again. */
brim_status brim__index_trust(const struct brim__file *file, const struct brim__opening *opening,
                              const char **note);

/* The path of the index that a recipe would have; in the arena. */
brim_status brim__index_path(const struct brim__file *data, const struct brim__index_recipe *recipe,
                             struct brim__opening *opening, const char **path);
/* The path of another file that is kept for `data`; in the arena. It is like that of the index, but
 * with another ending, such as ".brimlst", and the name depends on the options even beside the
 * data. */
brim_status brim__kept_path(const struct brim__file *data, const struct brim__index_recipe *recipe,
                            const char *ending, struct brim__opening *opening, const char **path);

#endif

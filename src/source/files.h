/*
 * files.h: a list of local files read as one run of equal records.
 *
 * npy and token files, for example, have this in common after their headers were read: file k has
 * `samples` records, the first at byte `data`, each source->pitch bytes after the one before.
 * Samples are numbered through all files in the order of the list.
 *
 *     file 0:  header | record 0 | record 1 | ...      | anything
 *     file 1:  header | record `first` | ...           | anything
 *
 * A source of this kind has a brim__files as its `self` and brim__files_ops.
 *
 * A compressed file is packed until the source is loaded. Loading inflates it into memory and
 * closes it, and its records are then in that memory.
 *
 * Invariants once finished: every file is open (and mapped, if asked for and it holds samples) or
 * held in memory (a packed file is open until the source is loaded, and in memory after that);
 * `first` grows by `samples`; every record of a file lies inside the size that the file had when it
 * was opened, or inside the memory.
 */
#ifndef BRIM_FILES_H
#define BRIM_FILES_H

#include "source/inflate.h"
#include "source/source.h"

#define BRIM__MOST_FILES 100000

/* The part of a file to inflate, and the size of the result. */
struct brim__packed {
    bool on;
    uint64_t place; /* byte of the pages at which it begins */
    enum brim__deflate_form form;
    uint64_t begin, bytes; /* the range of the file */
    uint64_t skipped;      /* of the output: a header that is not kept, ... */
    uint64_t kept;         /* ... and what follows it: no more, no less */
    bool has_crc;          /* BRIM__DEFLATE_RAW: what is kept must have this CRC-32 */
    uint32_t crc;
    const char *label; /* "x.npz, a.npy": for messages; in the opening's arena */
};

struct brim__files_part {
    struct brim__file file;
    uint64_t data;    /* byte of its first record */
    uint64_t samples; /* records in it; may be 0 */
    uint64_t first;   /* number of its first record in the source */
    /* the content, of which `data` is a byte: the map, or what was inflated;
     * NULL: read from the file, or packed */
    const uint8_t *memory;
    struct brim__packed packed;
};

struct brim__files {
    size_t count;
    struct brim__files_part *part;
    struct brim__inflater *inflater; /* for all that is packed */
    uint64_t packed_largest;         /* of what is kept of one file */
    uint64_t packed_bytes;           /* that all of it takes, one after the other, ... */
    struct brim__pages pages;        /* ... in here, once it is loaded */
};

/* Makes the table for a list of `count` files, none of them open, and sets it as the source's self.
 * From now on source->ops->close closes the files that are open. */
brim_status brim__files_init(struct brim__source *source, const char *stage, size_t count,
                             struct brim__opening *opening, struct brim__files **files);
/* Opens file `index`; `path` must live in the opening's arena. */
brim_status brim__files_open(struct brim__files *files, size_t index, const char *path);
/* Records that loading must inflate the content of file `index` as `packed` says, with
 * files->inflater. advice: how to avoid holding it in memory. */
void brim__files_pack(struct brim__source *source, size_t index, const struct brim__packed *packed,
                      const char *advice);
/* Before this call, data and samples of all files and the source's pitch, record_bytes and identity
 * must be set. Numbers the samples, maps the files if `map`, and fills in the source's other
 * fields. what: the word for records in messages. */
brim_status brim__files_finish(struct brim__source *source, struct brim__files *files, bool map,
                               const char *what);

/* The `stamp` operation of a source over these files: of the file that has the sample, or of all
 * files. */
brim_status brim__files_stamp(const struct brim__files *files, uint64_t sample, uint64_t *stamp);

/* The file that has a sample. */
const struct brim__files_part *brim__files_find(const struct brim__files *files, uint64_t sample);

extern const struct brim__source_ops brim__files_ops;

#endif

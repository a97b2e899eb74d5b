/*
 * files.h: a list of local files read as one run of equal records.
 *
 * What npy and token files have in common once their headers are understood:
 * file k holds `samples` records, the first at byte `data`, each source->pitch
 * bytes after the one before. Samples are numbered through the files in the
 * order of the list.
 *
 *     file 0:  header | record 0 | record 1 | ...      | anything
 *     file 1:  header | record `first` | ...           | anything
 *
 * A source of this kind has a brim__files as its `self` and brim__files_ops.
 *
 * A file that is compressed is inflated into memory when it is opened, and
 * closed: its records are then found in that memory.
 *
 * Invariants once finished: every file is open (and mapped, if asked for and
 * it holds samples) or held in memory; `first` grows by `samples`; every record
 * of a file lies inside the size that the file had when it was opened, or
 * inside the memory.
 */
#ifndef BRIM_FILES_H
#define BRIM_FILES_H

#include "source/source.h"

#define BRIM__MOST_FILES 100000

struct brim__part {
    struct brim__file file;
    uint64_t data;    /* byte of its first record */
    uint64_t samples; /* records in it; may be 0 */
    uint64_t first;   /* number of its first record in the source */
    uint64_t stamp;   /* of the file as opening saw it */
    /* the content, of which `data` is a byte: the map, or what was inflated;
     * NULL: read from the file */
    const uint8_t *memory;
};

struct brim__files {
    size_t count;
    struct brim__part *part;
};

/* Takes the table for a list of `count` files, none of them open, and makes
 * it the source's self; from here on source->ops->close closes what is open. */
brim_status brim__files_init(struct brim__source *source, const char *stage, size_t count,
                             struct brim__opening *opening, struct brim__files **files);
/* Opens file `index`; `path` must live in the opening's arena. */
brim_status brim__files_open(struct brim__files *files, size_t index, const char *path);
/* The content of file `index` is what lies in `memory`, which outlives the
 * source: the file is closed, and its size is that of the content. */
void brim__files_hold(struct brim__files *files, size_t index, const uint8_t *memory,
                      uint64_t bytes);
/* With data and samples of all files, and the source's pitch, record_bytes and
 * identity set: numbers the samples, maps the files if asked to, and fills in
 * what the source says about reading. `what` names records in messages. */
brim_status brim__files_finish(struct brim__source *source, struct brim__files *files, bool map,
                               const char *what);

/* What `stamp` of a source over these files is: of the file that holds the sample, or
 * of all. */
brim_status brim__files_stamp(const struct brim__files *files, uint64_t sample, uint64_t *stamp);

extern const struct brim__source_ops brim__files_ops;
/* The same without advice: for records whose bytes do not lie together. */
extern const struct brim__source_ops brim__files_scattered_ops;

#endif

/*
 * cache.h: the `cache` stage: keeps samples after they are made.
 *
 * A cache comes after some steps of a program. It puts the sample's fields at that point into one
 * entry, which a tier (tier.h) keeps under the sample's number:
 *
 *     entry:  | dense fields, each at its place | lengths | what has no fixed length |
 *
 * A worker searches the caches of a leaf, the last first. After a hit the entry is in the frame's
 * record, and the worker continues after the cache. After a miss the sample is made from the
 * beginning, and the cache's own step offers the entry to the tier. The steps after a cache are the
 * same in both cases.
 *
 *     sources ─► steps ─► [ store ] ─► steps ─► row
 *                             ▲ entry │
 *                             └─ tier ┘
 *
 * Samples of all leaves before a cache (the parts of a mix) are numbered consecutively. A cache is
 * in its plan's arena; it keeps nothing until a loader starts it.
 */
#ifndef BRIM_CACHE_H
#define BRIM_CACHE_H

#include "base/stage.h"
#include "cache/tier.h"
#include "transform/picture.h"
#include "transform/program.h"

#define BRIM__MAX_CACHES BRIM__KEPT_RECORDS /* that a sample passes */

struct brim__cache {
    const struct brim__tier_ops *ops; /* NULL: on the device of the batches (residents.h) */
    uint32_t stage;                   /* its place in the plan ... */
    uint32_t first_stage;             /* ... and that of the first of those before it */
    const char *path;                 /* of a file; or NULL */
    uint64_t limit;
    enum brim__verify verify;
    bool freeze;           /* what is random before it is drawn as in epoch 0 */
    uint64_t data, sample; /* fingerprints of the data and stages before it */
    uint64_t stamp;        /* of all files, when the loader was opened; or 0 */
    const char *pipeline;  /* its text */
    uint64_t count;        /* samples of all its leaves */
    uint64_t most_bytes;   /* of an entry */
    bool varies;           /* not all entries are as long */
    char effect[192];      /* what the plan says of it */
    void *memory;          /* the tier's, in the arena */
    struct brim__cache *next;
    /* started */
    struct brim__tier *tier; /* NULL: not yet */
    brim_budget *budget;
    _Atomic uint64_t hits, misses;
    uint64_t logged_note, logged_warning; /* hashes of the texts that the log got last */
};

/* A value without a fixed length in an entry. */
struct brim__cache_part {
    uint64_t count_at;   /* where the entry has its length */
    uint64_t span_at;    /* where the program's scratch has its span */
    uint64_t unit_bytes; /* of one in its first dimension */
    uint64_t bound;
};

/* A cache in the program of one leaf. */
struct brim__leaf_cache {
    struct brim__cache *cache;
    uint64_t first;  /* number of the leaf's sample 0 */
    uint32_t resume; /* the step after the one that stores */
    uint32_t record; /* of the frame: the entry */
    uint64_t block;  /* in scratch: the entry of a miss, and the buffer of the tier */
    uint64_t head_bytes;
    uint64_t most_bytes;
    uint32_t part_count;
    struct brim__cache_part part[BRIM__MAX_FIELDS];
};

/* stage.c: fails, with the reason, if a cache is not allowed after the program's stages so far. */
brim_status brim__cache_allowed(const struct brim__cache *cache,
                                const struct brim__program *program);

/* entry.c: lays out the entry and adds the step that stores it. number: how many caches the program
 * has so far. */
brim_status brim__cache_attach(struct brim__cache *cache, struct brim__program *program,
                               uint32_t number, struct brim__leaf_cache *leaf_cache);
/* The most bytes of an entry with the present fields; false: it could not be kept. */
bool brim__cache_entry_bytes(const struct brim__program *program, uint64_t *bytes);

/* Finds the entry of a sample and sets it in the frame until `leave`. false: the cache does not
 * have it. */
bool brim__cache_enter(const struct brim__leaf_cache *leaf_cache, struct brim__frame *frame,
                       struct brim__found *found);
void brim__cache_leave(const struct brim__leaf_cache *leaf_cache, struct brim__found *found);
static inline bool brim__cache_has(const struct brim__leaf_cache *leaf_cache, uint64_t sample) {
    const struct brim__cache *cache = leaf_cache->cache;
    return cache->ops->has(cache->tier, leaf_cache->first + sample);
}
/* Prepares the frame for making a sample: its entry is in scratch. */
static inline void brim__cache_pass(const struct brim__leaf_cache *leaf_cache,
                                    struct brim__frame *frame) {
    frame->record[leaf_cache->record] = frame->scratch + leaf_cache->block;
}

extern const struct brim__stage brim__stage_cache;

#endif

/*
 * sequence.h: the sequenced part of a plan: for samples of a stream, after a filter or an
 * expansion, packed or sorted by length.
 *
 * Workers make samples in chunks, as they make batches in a direct plan. One sequencer
 * (engine/sequencer.c) takes the rows of the chunks in order:
 *
 *     chunks ─► rows kept ─► skip, take ─► pack, reorder (either first) ─► batches
 *
 * The chunks, the packing's one row and the two blocks of the reordering are part of the minimum,
 * so that no order depends on the budget.
 */
#ifndef BRIM_SEQUENCE_H
#define BRIM_SEQUENCE_H

#include "batching/shard.h"
#include "order/unnumbered.h"
#include "plan/layout.h"

enum brim__reordering {
    BRIM__IN_ORDER,
    BRIM__SHUFFLED, /* the rows of a block in random order */
    BRIM__BUCKETED, /* sorted by length, in batches bounded by tokens */
};

struct brim__sequence {
    bool on;
    const char *cause;             /* the stage that begins it */
    bool stream;                   /* samples are pulled from the only source of leaf 0 */
    bool seekable;                 /* and it can be pulled from any sample on */
    struct brim__unnumbered asked; /* by order stages; laid out, it becomes: */
    uint64_t skip;                 /* rows kept by the programs that are left out ... */
    uint64_t take;                 /* ... and those after them that are used */
    bool pack;
    bool pack_first; /* packed rows are reordered, not the other way round */
    uint32_t pack_field;
    uint64_t pack_length;
    bool pack_split;
    struct brim__layout item; /* one packed row; set if pack */
    enum brim__reordering reordering;
    bool each_epoch; /* another order in every epoch */
    uint64_t key;
    uint64_t block_bytes; /* of each of the two blocks */
    uint32_t chunks;      /* in the window */
};

#endif

/*
 * order.h: which sample is at a position of an epoch.
 *
 * An order is a small tree of operations, each a bijection or an injection on
 * positions. Locating a sample walks from the last operation to a leaf (a
 * source):
 *
 *     (epoch, position) -> take, skip, split, shuffle, repeat, mix ... -> (leaf, epoch', sample)
 *
 * `repeat` and `mix` count each pass over their input as an epoch of it. `repeat 3` in epoch e
 * shows epochs 3e, 3e+1, 3e+2 of its input, so every random key depends on the pass without a
 * special rule. A part of a mix continues with its own epochs, each a full permutation, across the
 * epochs of the mix. `balance` and `weighted`, which may show a sample twice in an epoch, count
 * passes in the same way. These numbers wrap at 2^64, which only changes keys.
 *
 * Most operations are arithmetic and take no memory. Data that cannot be computed (a list of
 * numbers, the members of a class) is in tables that a stage makes when the order is built.
 * Locating neither allocates nor reads. An order is built once and read by any thread.
 */
#ifndef BRIM_ORDER_H
#define BRIM_ORDER_H

#include "base/base.h"
#include "base/stage.h"
#include "memory/alloc.h"

#define BRIM__ORDER_OPS     96 /* operations in a whole pipeline */
#define BRIM__ORDER_PARTS   16 /* parts of a mix */
#define BRIM__ORDER_PATTERN 1024
#define BRIM__CONCAT_PARTS  32

/* Keys depend on these numbers: new kinds go to the end. */
enum brim__order_kind {
    BRIM__ORDER_LEAF,
    BRIM__ORDER_TAKE,
    BRIM__ORDER_SKIP,
    BRIM__ORDER_SPLIT,
    BRIM__ORDER_SHUFFLE,
    BRIM__ORDER_REPEAT,
    BRIM__ORDER_MIX,
    BRIM__ORDER_CONCAT,
    BRIM__ORDER_SUBSET,
    BRIM__ORDER_BALANCE,
    BRIM__ORDER_WEIGHTED,
    BRIM__ORDER_PART, /* a stratified split, or a fold */
};

struct brim__mix;        /* pattern of a mix; memory of the caller, see brim__order_mix */
struct brim__concat;     /* where the parts begin; memory of the caller, see brim__order_concat */
struct brim__numbers;    /* order/numbers.h */
struct brim__sampling;   /* order/sampling.h */
struct brim__split_part; /* order/split_part.h */

struct brim__order_op {
    enum brim__order_kind kind;
    uint32_t input; /* operation below; for a leaf: the leaf's number */
    uint64_t count; /* samples after it */
    uint64_t key;
    uint64_t amount; /* take, skip, repeat: the argument; split: first position of the part;
                        shuffle: block, 0 for none */
    bool each_epoch; /* shuffle: a new order every epoch */
    union {
        struct brim__mix *mix;
        struct brim__concat *concat;
        const struct brim__numbers *numbers;   /* subset */
        const struct brim__sampling *sampling; /* balance, weighted */
        const struct brim__split_part *part;
    };
};

struct brim__order {
    struct brim__order_op op[BRIM__ORDER_OPS];
    uint32_t op_count;
    uint32_t top; /* last operation added: where locating begins */
    /* of data that the order depends on and that is not in the pipeline's text: the numbers of a
     * subset, the labels of classes */
    uint64_t fingerprint;
};

struct brim__location {
    uint64_t sample;
    uint64_t epoch;
    uint32_t leaf;
};

/* The arguments of a stage that adds itself to an order. */
struct brim__order_site {
    struct brim__order *order;
    uint64_t key; /* from the stage's place and branch; a seed of the stage is mixed into it */
    struct brim__arena *arena; /* for tables that live as long as the order */
    /* Reads the values of an integer or text field (text: a hash of it) of the samples at positions
     * [first, first + count) of the order so far, in epoch 0. It reads the source, so long runs are
     * faster. */
    brim_status (*labels)(void *user, const char *field, uint64_t first, uint64_t count,
                          int64_t *labels);
    void *user;
};

/* The arguments of a stage that joins pipelines to one order. */
struct brim__join_site {
    struct brim__order *order;
    struct brim__arena *arena; /* for tables that live as long as the order */
    uint64_t branch;           /* of the stage; each part gets one of its own, made of it */
    uint64_t *fingerprint;     /* the stage hashes its own data into it, not that of its parts */
    uint64_t *bytes;           /* set: what the stage takes of the arena for itself */
    /* Opens a part; it becomes the top of the order. */
    brim_status (*open_part)(void *user, const brim_pipeline *part, uint64_t branch);
    void *user;
};

void brim__order_init(struct brim__order *order);
/* Begins a chain: a leaf with `count` samples becomes the top. */
brim_status brim__order_leaf(struct brim__order *order, uint32_t leaf, uint64_t count);

/* Each adds an operation, which becomes the top. */
brim_status brim__order_take(struct brim__order *order, uint64_t count);
brim_status brim__order_skip(struct brim__order *order, uint64_t count);
brim_status brim__order_repeat(struct brim__order *order, uint64_t times);
brim_status brim__order_shuffle(struct brim__order *order, uint64_t key, uint64_t block,
                                bool each_epoch);
/* Positions [first, first + count) of a permutation that is the same in every epoch. */
brim_status brim__order_split(struct brim__order *order, uint64_t key, uint64_t first,
                              uint64_t count);

/* The parts' tops are operations of this order. length 0: until the first part
 * is exhausted. `mix` (brim__mix_bytes() bytes, zeroed, aligned to 8) belongs to
 * the caller and must outlive the order. */
size_t brim__mix_bytes(void);
brim_status brim__order_mix(struct brim__order *order, struct brim__mix *mix, uint64_t key,
                            const uint32_t *tops, const double *weights, size_t parts,
                            uint64_t length);

/* Puts the parts one after the other, all in the same epoch. `concat` (brim__concat_bytes(parts)
 * bytes, aligned to 8) belongs to the caller and must outlive the order. */
size_t brim__concat_bytes(size_t parts);
brim_status brim__order_concat(struct brim__order *order, struct brim__concat *concat,
                               const uint32_t *tops, size_t parts);

/* The tables must outlive the order. */
brim_status brim__order_subset(struct brim__order *order, const struct brim__numbers *numbers);
brim_status brim__order_balance(struct brim__order *order, const struct brim__sampling *sampling,
                                uint64_t key);
brim_status brim__order_weighted(struct brim__order *order, const struct brim__sampling *sampling,
                                 uint64_t key);
brim_status brim__order_part(struct brim__order *order, const struct brim__split_part *part,
                             uint64_t key);

/* Refuses, with an error that names `stage`, a top that does not show the same samples at the same
 * positions in every epoch; with `once`, also one that shows a sample twice. Temporary memory for
 * checking a subset's numbers is charged to `budget` and returned. */
brim_status brim__order_check_below(const struct brim__order *order, const char *stage, bool once,
                                    brim_budget *budget);

static inline uint64_t brim__order_count(const struct brim__order *order) {
    return order->op[order->top].count;
}

/* Whether neighbouring positions are not neighbouring samples. */
bool brim__order_jumps(const struct brim__order *order);

/* Fills locations[i] for positions first .. first + count - 1, all below the order's count. Keys
 * are set up once for the run, so runs are cheaper than single calls. */
void brim__order_locate(const struct brim__order *order, uint64_t epoch, uint64_t first,
                        size_t count, struct brim__location *locations);

#endif

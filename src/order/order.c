/*
 * order.c: building an order, and locating samples in it.
 *
 * Locating takes a run of positions through the operations from the top down
 * to the leaves. The run travels as lanes: parallel arrays of epoch, position
 * and the place that the result belongs to. Arithmetic is done for all lanes of
 * an operation before the next operation is looked at, so a permutation is set
 * up once for each (operation, epoch) in the run, however the lanes lie, and
 * evaluations that do not depend on each other stand side by side for the CPU.
 * A mix deals its lanes out to its parts and walks each part; the recursion is
 * as deep as mixes are nested.
 *
 * A shuffle by blocks cuts n samples into blocks (the last may be short),
 * permutes the blocks over as many slots, cuts the slots into groups of
 * GROUP_SLOTS and permutes the samples inside each group:
 *
 *     slot      0     1     2     3     4              stream = the slots in
 *     block   | 3   | 0   | 4 | 1     | 2     |        order; block 4 is short
 *     group   |--- 0 -----------|--- 1 -------|        (drawn with 3 slots)
 *
 * The short block's slot comes from the inverse permutation; it alone decides
 * where slots and groups begin, so nothing is searched.
 *
 * Epochs are numbers of 64 bits: what repeat and mix make of them wraps at 2^64,
 * which changes keys and nothing else. Counts are at most 2^63.
 */
#include "order/order.h"

#include "order/mix.h"
#include "order/permutation.h"

#define MOST_COUNT  ((uint64_t)1 << 63)
#define LANES       64
#define GROUP_SLOTS 16

/* Which permutation of an operation a key is for. */
enum key_use { KEY_WHOLE, KEY_BLOCKS, KEY_GROUP };

/* ---------------------------------------------------------------- building */

static const char *const kind_name[] = {
    [BRIM__ORDER_LEAF] = "source",     [BRIM__ORDER_TAKE] = "take",
    [BRIM__ORDER_SKIP] = "skip",       [BRIM__ORDER_SPLIT] = "split",
    [BRIM__ORDER_SHUFFLE] = "shuffle", [BRIM__ORDER_REPEAT] = "repeat",
    [BRIM__ORDER_MIX] = "mix",
};

void brim__order_init(struct brim__order *order) {
    memset(order, 0, sizeof *order);
}

static brim_status push(struct brim__order *order, struct brim__order_op op) {
    if (order->op_count == BRIM__ORDER_OPS) {
        return brim__fail(BRIM_UNSUPPORTED,
                          "%s: the pipeline has more than %d sources and order stages in all",
                          kind_name[op.kind], BRIM__ORDER_OPS);
    }
    order->top = order->op_count++;
    order->op[order->top] = op;
    return BRIM_OK;
}

brim_status brim__order_leaf(struct brim__order *order, uint32_t leaf, uint64_t count) {
    if (count > MOST_COUNT) {
        return brim__fail(BRIM_UNSUPPORTED, "source: %llu samples are more than 2^63",
                          (unsigned long long)count);
    }
    return push(order, (struct brim__order_op){
                           .kind = BRIM__ORDER_LEAF,
                           .input = leaf,
                           .count = count,
                       });
}

brim_status brim__order_take(struct brim__order *order, uint64_t count) {
    return push(order, (struct brim__order_op){
                           .kind = BRIM__ORDER_TAKE,
                           .input = order->top,
                           .count = brim__min(count, brim__order_count(order)),
                           .amount = count,
                       });
}

brim_status brim__order_skip(struct brim__order *order, uint64_t count) {
    const uint64_t skipped = brim__min(count, brim__order_count(order));
    return push(order, (struct brim__order_op){
                           .kind = BRIM__ORDER_SKIP,
                           .input = order->top,
                           .count = brim__order_count(order) - skipped,
                           .amount = skipped,
                       });
}

brim_status brim__order_repeat(struct brim__order *order, uint64_t times) {
    const uint64_t once = brim__order_count(order);
    uint64_t count;
    if (times == 0) {
        return brim__fail(BRIM_INVALID, "repeat: 0 times; repeat at least once");
    }
    if (brim__mul_overflows(once, times, &count) || count > MOST_COUNT) {
        return brim__fail(BRIM_INVALID,
                          "repeat: %llu times %llu samples are more than 2^63; repeat fewer times, "
                          "or let the loader run for more epochs",
                          (unsigned long long)times, (unsigned long long)once);
    }
    return push(order, (struct brim__order_op){
                           .kind = BRIM__ORDER_REPEAT,
                           .input = order->top,
                           .count = count,
                           .amount = times,
                       });
}

brim_status brim__order_shuffle(struct brim__order *order, uint64_t key, uint64_t block,
                                bool each_epoch) {
    return push(order, (struct brim__order_op){
                           .kind = BRIM__ORDER_SHUFFLE,
                           .input = order->top,
                           .count = brim__order_count(order),
                           .key = key,
                           .amount = block,
                           .each_epoch = each_epoch,
                       });
}

brim_status brim__order_split(struct brim__order *order, uint64_t key, uint64_t first,
                              uint64_t count) {
    const uint64_t whole = brim__order_count(order);
    if (first > whole || count > whole - first) {
        return brim__fail(BRIM_INVALID, "split: %llu samples from number %llu on, of %llu",
                          (unsigned long long)count, (unsigned long long)first,
                          (unsigned long long)whole);
    }
    return push(order, (struct brim__order_op){
                           .kind = BRIM__ORDER_SPLIT,
                           .input = order->top,
                           .count = count,
                           .key = key,
                           .amount = first,
                       });
}

bool brim__order_jumps(const struct brim__order *order) {
    for (uint32_t i = 0; i < order->op_count; i++) {
        const enum brim__order_kind kind = order->op[i].kind;
        if (kind == BRIM__ORDER_SHUFFLE || kind == BRIM__ORDER_SPLIT || kind == BRIM__ORDER_MIX) {
            return true;
        }
    }
    return false;
}

/* -------------------------------------------------------- shuffle by blocks */

/* The shuffle of one epoch. Blocks, slots and groups as drawn above. */
struct block_shuffle {
    struct brim__permutation blocks; /* slot -> block */
    struct brim__permutation inside; /* of the group that was looked at last */
    uint64_t key;
    uint64_t block;                   /* samples of a full block */
    uint64_t slots;                   /* at least 1 */
    uint64_t short_slot;              /* slot of the last block ... */
    uint64_t short_begin;             /* ... its place in the stream ... */
    uint64_t short_rows;              /* ... and its samples, 1 .. block */
    uint64_t group_begin, group_rows; /* 0 rows: none yet */
};

static void block_shuffle_init(struct block_shuffle *shuffle, uint64_t count, uint64_t block,
                               uint64_t key) {
    shuffle->key = key;
    shuffle->block = block;
    shuffle->slots = brim__divide_up(count, block);
    brim__permutation_init(&shuffle->blocks, shuffle->slots, brim__hash_words(key, 0, KEY_BLOCKS));
    shuffle->short_slot = brim__unpermute(&shuffle->blocks, shuffle->slots - 1);
    shuffle->short_begin = shuffle->short_slot * block;
    shuffle->short_rows = count - (shuffle->slots - 1) * block;
    shuffle->group_begin = shuffle->group_rows = 0;
}

/* Where a slot begins in the stream; slot == slots gives the end. */
static uint64_t slot_begin(const struct block_shuffle *shuffle, uint64_t slot) {
    return slot <= shuffle->short_slot ? slot * shuffle->block
                                       : (slot - 1) * shuffle->block + shuffle->short_rows;
}

/* The slot of a place in the stream, and the offset in it. */
static uint64_t slot_at(const struct block_shuffle *shuffle, uint64_t place, uint64_t *offset) {
    const uint64_t behind = place - shuffle->short_begin;
    if (place >= shuffle->short_begin && behind < shuffle->short_rows) {
        *offset = behind;
        return shuffle->short_slot;
    }
    const bool after = place > shuffle->short_begin;
    const uint64_t even = after ? place - shuffle->short_rows : place;
    *offset = even % shuffle->block;
    return even / shuffle->block + after;
}

static void enter_group(struct block_shuffle *shuffle, uint64_t position) {
    uint64_t offset;
    const uint64_t group = slot_at(shuffle, position, &offset) / GROUP_SLOTS;
    const uint64_t last = brim__min(group * GROUP_SLOTS + GROUP_SLOTS, shuffle->slots);
    shuffle->group_begin = slot_begin(shuffle, group * GROUP_SLOTS);
    shuffle->group_rows = slot_begin(shuffle, last) - shuffle->group_begin;
    brim__permutation_init(&shuffle->inside, shuffle->group_rows,
                           brim__hash_words(shuffle->key, group, KEY_GROUP));
}

/* Lanes that follow each other mostly share a group: they go through its
 * permutation together. */
static void block_shuffle_run(struct block_shuffle *shuffle, uint64_t *positions, size_t count) {
    uint64_t offset[LANES];
    for (size_t done = 0; done < count;) {
        if (positions[done] - shuffle->group_begin >= shuffle->group_rows) {
            enter_group(shuffle, positions[done]);
        }
        size_t end = done;
        while (end < count && positions[end] - shuffle->group_begin < shuffle->group_rows) {
            positions[end++] -= shuffle->group_begin;
        }
        brim__permute_run(&shuffle->inside, positions + done, end - done);
        for (; done < end; done++) {
            positions[done] =
                slot_at(shuffle, positions[done] + shuffle->group_begin, &offset[done]);
        }
    }
    brim__permute_run(&shuffle->blocks, positions, count);
    for (size_t i = 0; i < count; i++) {
        positions[i] = positions[i] * shuffle->block + offset[i];
    }
}

/* ---------------------------------------------------------------- locating */

struct lanes {
    size_t count;
    uint64_t epoch[LANES];
    uint64_t position[LANES];
    uint8_t place[LANES];
};

/* Takes from `pending` (lanes in order, *count of them) those of the first
 * one's epoch into `same`; the others stay. Returns how many were taken. */
static size_t take_epoch(const struct lanes *lanes, uint8_t *pending, size_t *count,
                         uint8_t *same) {
    const uint64_t epoch = lanes->epoch[pending[0]];
    size_t taken = 0, left = 0;
    for (size_t i = 0; i < *count; i++) {
        const uint8_t at = pending[i];
        const bool is_same = lanes->epoch[at] == epoch;
        same[taken] = at;
        taken += is_same;
        pending[left] = at;
        left += !is_same;
    }
    *count = left;
    return taken;
}

static void shuffle_positions(const struct brim__order_op *op, uint64_t epoch, uint64_t *positions,
                              size_t count) {
    const uint64_t key = op->each_epoch ? brim__hash_words(op->key, epoch, KEY_WHOLE) : op->key;
    if (op->amount > 1) {
        struct block_shuffle shuffle;
        block_shuffle_init(&shuffle, op->count, op->amount, key);
        block_shuffle_run(&shuffle, positions, count);
    } else {
        struct brim__permutation permutation;
        brim__permutation_init(&permutation, op->count, key);
        brim__permute_run(&permutation, positions, count);
    }
}

static bool one_epoch(const struct lanes *lanes) {
    uint64_t difference = 0;
    for (size_t i = 1; i < lanes->count; i++) {
        difference |= lanes->epoch[i] ^ lanes->epoch[0];
    }
    return difference == 0;
}

static void shuffle_lanes(const struct brim__order_op *op, struct lanes *lanes) {
    if (!op->each_epoch || one_epoch(lanes)) {
        shuffle_positions(op, lanes->epoch[0], lanes->position, lanes->count);
        return;
    }
    uint8_t pending[LANES], same[LANES];
    uint64_t positions[LANES];
    size_t left = lanes->count;
    for (size_t i = 0; i < left; i++) {
        pending[i] = (uint8_t)i;
    }
    while (left > 0) {
        const size_t taken = take_epoch(lanes, pending, &left, same);
        for (size_t i = 0; i < taken; i++) {
            positions[i] = lanes->position[same[i]];
        }
        shuffle_positions(op, lanes->epoch[same[0]], positions, taken);
        for (size_t i = 0; i < taken; i++) {
            lanes->position[same[i]] = positions[i];
        }
    }
}

static void split_lanes(const struct brim__order_op *op, uint64_t whole, struct lanes *lanes) {
    struct brim__permutation permutation;
    brim__permutation_init(&permutation, whole, op->key);
    for (size_t i = 0; i < lanes->count; i++) {
        lanes->position[i] += op->amount;
    }
    brim__permute_run(&permutation, lanes->position, lanes->count);
}

static void repeat_lanes(const struct brim__order_op *op, uint64_t once, struct lanes *lanes) {
    for (size_t i = 0; i < lanes->count; i++) {
        lanes->epoch[i] = lanes->epoch[i] * op->amount + lanes->position[i] / once;
        lanes->position[i] %= once;
    }
}

static void walk(const struct brim__order *order, uint32_t at, struct lanes *lanes,
                 struct brim__place *places);

static void mix_lanes(const struct brim__order *order, const struct brim__mix *mix,
                      struct lanes *lanes, struct brim__place *places) {
    struct brim__mix_start start;
    uint8_t part[LANES];
    uint32_t seen = 0;
    uint64_t epoch = lanes->epoch[0];
    brim__mix_begin(mix, epoch, &start);
    for (size_t i = 0; i < lanes->count; i++) {
        if (lanes->epoch[i] != epoch) {
            epoch = lanes->epoch[i];
            brim__mix_begin(mix, epoch, &start);
        }
        part[i] = (uint8_t)brim__mix_place(mix, &start, &lanes->epoch[i], &lanes->position[i]);
        seen |= 1u << part[i];
    }
    for (; seen != 0; seen &= seen - 1) {
        const uint32_t k = (uint32_t)__builtin_ctz(seen);
        struct lanes below;
        below.count = 0;
        for (size_t i = 0; i < lanes->count; i++) {
            below.epoch[below.count] = lanes->epoch[i];
            below.position[below.count] = lanes->position[i];
            below.place[below.count] = lanes->place[i];
            below.count += part[i] == k;
        }
        walk(order, mix->top[k], &below, places);
    }
}
static_assert(BRIM__ORDER_PARTS <= 32, "the parts seen are bits of 32");

static void walk(const struct brim__order *order, uint32_t at, struct lanes *lanes,
                 struct brim__place *places) {
    assert(lanes->count > 0 && lanes->count <= LANES);
    for (;;) {
        const struct brim__order_op *op = &order->op[at];
        switch (op->kind) {
        case BRIM__ORDER_LEAF:
            for (size_t i = 0; i < lanes->count; i++) {
                places[lanes->place[i]] = (struct brim__place){
                    .sample = lanes->position[i],
                    .epoch = lanes->epoch[i],
                    .leaf = op->input,
                };
            }
            return;
        case BRIM__ORDER_MIX:
            mix_lanes(order, op->mix, lanes, places);
            return;
        case BRIM__ORDER_TAKE:
            break;
        case BRIM__ORDER_SKIP:
            for (size_t i = 0; i < lanes->count; i++) {
                lanes->position[i] += op->amount;
            }
            break;
        case BRIM__ORDER_SPLIT:
            split_lanes(op, order->op[op->input].count, lanes);
            break;
        case BRIM__ORDER_SHUFFLE:
            shuffle_lanes(op, lanes);
            break;
        case BRIM__ORDER_REPEAT:
            repeat_lanes(op, order->op[op->input].count, lanes);
            break;
        }
        at = op->input;
    }
}

void brim__order_locate(const struct brim__order *order, uint64_t epoch, uint64_t first,
                        size_t count, struct brim__place *places) {
    assert(first <= brim__order_count(order) && count <= brim__order_count(order) - first);
    for (size_t done = 0; done < count; done += LANES) {
        struct lanes lanes;
        lanes.count = brim__min(count - done, LANES);
        for (size_t i = 0; i < lanes.count; i++) {
            lanes.epoch[i] = epoch;
            lanes.position[i] = first + done + i;
            lanes.place[i] = (uint8_t)i;
        }
        walk(order, order->top, &lanes, places + done);
    }
}

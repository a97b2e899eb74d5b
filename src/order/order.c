/*
 * order.c: building an order, and locating samples in it.
 *
 * Locating takes a run of positions through the operations from the top down to the leaves. The run
 * is kept as lanes: parallel arrays of epoch, position and the index of the result. An operation is
 * done for all lanes before the next operation starts. So a permutation is set up once for each
 * (operation, epoch) in the run, and the CPU can evaluate several lanes at the same time. A mix or
 * a concat distributes its lanes to its parts and walks each part; the recursion is as deep as they
 * are nested.
 *
 * Epochs have 64 bits. The epochs that repeat and mix compute wrap at 2^64, which only changes
 * keys. Counts are at most 2^63.
 */
#include "order/order.h"

#include "order/block_shuffle.h"
#include "order/concat.h"
#include "order/mix.h"
#include "order/numbers.h"
#include "order/permutation.h"
#include "order/sampling.h"
#include "order/split_part.h"

#define MOST_COUNT ((uint64_t)1 << 63)
#define LANES      BRIM__PERMUTATION_LANES

/* Which permutation of a shuffle a key is for; block_shuffle.c has others. */
enum key_use { KEY_WHOLE };

/* ---------------------------------------------------------------- building */

static const char *const kind_name[] = {
    [BRIM__ORDER_LEAF] = "source",       [BRIM__ORDER_TAKE] = "take",
    [BRIM__ORDER_SKIP] = "skip",         [BRIM__ORDER_SPLIT] = "split",
    [BRIM__ORDER_SHUFFLE] = "shuffle",   [BRIM__ORDER_REPEAT] = "repeat",
    [BRIM__ORDER_SUBSET] = "subset",     [BRIM__ORDER_BALANCE] = "balance",
    [BRIM__ORDER_WEIGHTED] = "weighted", [BRIM__ORDER_PART] = "split or fold",
};

void brim__order_init(struct brim__order *order) {
    memset(order, 0, sizeof *order);
}

static brim_status push(struct brim__order *order, struct brim__order_op op) {
    if (order->op_count == BRIM__ORDER_OPS) {
        return brim__fail(BRIM_STATUS_UNSUPPORTED,
                          "%s: the pipeline has more than %d sources and order stages in all",
                          kind_name[op.kind], BRIM__ORDER_OPS);
    }
    order->top = order->op_count++;
    order->op[order->top] = op;
    return BRIM_OK;
}

brim_status brim__order_leaf(struct brim__order *order, uint32_t leaf, uint64_t count) {
    if (count > MOST_COUNT) {
        return brim__fail(BRIM_STATUS_UNSUPPORTED, "source: %llu samples are more than 2^63",
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
        return brim__fail(BRIM_STATUS_INVALID, "repeat: 0 times; repeat at least once");
    }
    if (brim__mul_overflows(once, times, &count) || count > MOST_COUNT) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "repeat: %llu times %llu samples are more than 2^63; repeat fewer times, "
                          "or run the loader for more epochs",
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
        return brim__fail(BRIM_STATUS_INVALID, "split: %llu samples from number %llu on, of %llu",
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

brim_status brim__order_subset(struct brim__order *order, const struct brim__numbers *numbers) {
    return push(order, (struct brim__order_op){
                           .kind = BRIM__ORDER_SUBSET,
                           .input = order->top,
                           .count = numbers->count,
                           .numbers = numbers,
                       });
}

static brim_status push_sampling(struct brim__order *order, enum brim__order_kind kind,
                                 const struct brim__sampling *sampling, uint64_t key) {
    assert(sampling->classes->samples == brim__order_count(order));
    return push(order, (struct brim__order_op){
                           .kind = kind,
                           .input = order->top,
                           .count = sampling->length,
                           .key = key,
                           .sampling = sampling,
                       });
}

brim_status brim__order_balance(struct brim__order *order, const struct brim__sampling *sampling,
                                uint64_t key) {
    return push_sampling(order, BRIM__ORDER_BALANCE, sampling, key);
}

brim_status brim__order_weighted(struct brim__order *order, const struct brim__sampling *sampling,
                                 uint64_t key) {
    return push_sampling(order, BRIM__ORDER_WEIGHTED, sampling, key);
}

brim_status brim__order_part(struct brim__order *order, const struct brim__split_part *part,
                             uint64_t key) {
    assert(part->whole == brim__order_count(order));
    return push(order, (struct brim__order_op){
                           .kind = BRIM__ORDER_PART,
                           .input = order->top,
                           .count = brim__split_part_count(part),
                           .key = key,
                           .part = part,
                       });
}

bool brim__order_jumps(const struct brim__order *order) {
    for (uint32_t i = 0; i < order->op_count; i++) {
        switch (order->op[i].kind) {
        case BRIM__ORDER_LEAF:
        case BRIM__ORDER_TAKE:
        case BRIM__ORDER_SKIP:
        case BRIM__ORDER_REPEAT:
        case BRIM__ORDER_CONCAT:
            break;
        case BRIM__ORDER_SPLIT:
        case BRIM__ORDER_SHUFFLE:
        case BRIM__ORDER_MIX:
        case BRIM__ORDER_SUBSET:
        case BRIM__ORDER_BALANCE:
        case BRIM__ORDER_WEIGHTED:
        case BRIM__ORDER_PART:
            return true;
        }
    }
    return false;
}

/* ---------------------------------------------------------------- locating */

struct lanes {
    size_t count;
    uint64_t epoch[LANES];
    uint64_t position[LANES];
    uint8_t result[LANES];
};

/* Moves the lanes that have the epoch of the first one from `pending` (*count lanes, in order) to
 * `same`. Returns how many were moved. */
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
        struct brim__block_shuffle shuffle;
        brim__block_shuffle_init(&shuffle, op->count, op->amount, key);
        brim__block_shuffle_run(&shuffle, positions, count);
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
                 struct brim__location *locations);

/* Walks copies of the lanes whose `part` is k. */
static void walk_part(const struct brim__order *order, uint32_t top, const struct lanes *lanes,
                      const uint8_t *part, uint32_t k, struct brim__location *locations) {
    struct lanes below;
    below.count = 0;
    for (size_t i = 0; i < lanes->count; i++) {
        below.epoch[below.count] = lanes->epoch[i];
        below.position[below.count] = lanes->position[i];
        below.result[below.count] = lanes->result[i];
        below.count += part[i] == k;
    }
    walk(order, top, &below, locations);
}

static void mix_lanes(const struct brim__order *order, const struct brim__mix *mix,
                      struct lanes *lanes, struct brim__location *locations) {
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
        part[i] = (uint8_t)brim__mix_locate(mix, &start, &lanes->epoch[i], &lanes->position[i]);
        seen |= 1u << part[i];
    }
    for (; seen != 0; seen &= seen - 1) {
        const uint32_t k = (uint32_t)__builtin_ctz(seen);
        walk_part(order, mix->top[k], lanes, part, k, locations);
    }
}

static void concat_lanes(const struct brim__order *order, const struct brim__concat *concat,
                         struct lanes *lanes, struct brim__location *locations) {
    uint8_t part[LANES];
    uint32_t seen = 0, at = 0;
    for (size_t i = 0; i < lanes->count; i++) {
        at = brim__concat_at(concat, at, lanes->position[i]);
        lanes->position[i] -= concat->part[at].begin;
        part[i] = (uint8_t)at;
        seen |= 1u << at;
    }
    for (; seen != 0; seen &= seen - 1) {
        const uint32_t k = (uint32_t)__builtin_ctz(seen);
        walk_part(order, concat->part[k].top, lanes, part, k, locations);
    }
}
static_assert(BRIM__ORDER_PARTS <= 32 && BRIM__CONCAT_PARTS <= 32, "the parts seen are bits of 32");

static void walk(const struct brim__order *order, uint32_t at, struct lanes *lanes,
                 struct brim__location *locations) {
    assert(lanes->count > 0 && lanes->count <= LANES);
    for (;;) {
        const struct brim__order_op *op = &order->op[at];
        switch (op->kind) {
        case BRIM__ORDER_LEAF:
            for (size_t i = 0; i < lanes->count; i++) {
                locations[lanes->result[i]] = (struct brim__location){
                    .sample = lanes->position[i],
                    .epoch = lanes->epoch[i],
                    .leaf = op->input,
                };
            }
            return;
        case BRIM__ORDER_MIX:
            mix_lanes(order, op->mix, lanes, locations);
            return;
        case BRIM__ORDER_CONCAT:
            concat_lanes(order, op->concat, lanes, locations);
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
        case BRIM__ORDER_SUBSET:
            for (size_t i = 0; i < lanes->count; i++) {
                lanes->position[i] = brim__number_at(op->numbers, lanes->position[i]);
            }
            break;
        case BRIM__ORDER_BALANCE:
            brim__balance_run(op->sampling, op->key, lanes->epoch, lanes->position, lanes->count);
            break;
        case BRIM__ORDER_WEIGHTED:
            brim__weighted_run(op->sampling, op->key, lanes->epoch, lanes->position, lanes->count);
            break;
        case BRIM__ORDER_PART:
            brim__split_part_run(op->part, op->key, lanes->position, lanes->count);
            break;
        }
        at = op->input;
    }
}

void brim__order_locate(const struct brim__order *order, uint64_t epoch, uint64_t first,
                        size_t count, struct brim__location *locations) {
    assert(first <= brim__order_count(order) && count <= brim__order_count(order) - first);
    for (size_t done = 0; done < count; done += LANES) {
        struct lanes lanes;
        lanes.count = brim__min(count - done, LANES);
        for (size_t i = 0; i < lanes.count; i++) {
            lanes.epoch[i] = epoch;
            lanes.position[i] = first + done + i;
            lanes.result[i] = (uint8_t)i;
        }
        walk(order, order->top, &lanes, locations + done);
    }
}

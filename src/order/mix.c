/*
 * mix.c: computes a pattern from weights, and positions from the pattern.
 *
 * The smallest block that gives every weight to within 1e-9 is taken. If no block up to MOST_BLOCK
 * is that exact, weights are rounded to thousandths by largest remainder, and each part occurs at
 * least once. The decisions depend on doubles, but only on single products and on sums in a fixed
 * order, so every machine finds the same block.
 *
 * Invariants: in_block sums to block, in_table to table; entry[t].rank counts
 * the entries of the same part before t; part_count and in_table are not 0.
 */
#include "order/mix.h"

#include "order/permutation.h"

#include <float.h>

#define MOST_BLOCK 1000
#define CLOSE      1e-9
#define MOST_COUNT ((uint64_t)1 << 63)

static_assert(MOST_BLOCK <= BRIM__ORDER_PATTERN, "a block must fit into the table");
static_assert(BRIM__ORDER_PARTS <= MOST_BLOCK, "each part must find a place in a block");

size_t brim__mix_bytes(void) {
    return sizeof(struct brim__mix);
}

/* Scales the weights to shares of 1. They are divided by the largest first, so that no sum
 * overflows. */
static brim_status normalise(const double *weights, uint32_t parts, double *shares) {
    double most = 0, sum = 0;
    for (uint32_t k = 0; k < parts; k++) {
        if (!(weights[k] > 0) || weights[k] > DBL_MAX) {
            return brim__fail(
                BRIM_STATUS_INVALID,
                "mix: the weight of part %u is %g; weights are finite numbers above 0", k + 1,
                weights[k]);
        }
        most = weights[k] > most ? weights[k] : most;
    }
    for (uint32_t k = 0; k < parts; k++) {
        sum += weights[k] / most;
    }
    for (uint32_t k = 0; k < parts; k++) {
        shares[k] = weights[k] / most / sum;
    }
    return BRIM_OK;
}

static bool block_fits(const double *shares, uint32_t parts, uint32_t block, uint32_t *counts) {
    uint32_t sum = 0;
    for (uint32_t k = 0; k < parts; k++) {
        counts[k] = (uint32_t)(shares[k] * block + 0.5);
        const double error = (double)counts[k] / block - shares[k];
        if (counts[k] == 0 || error > CLOSE || error < -CLOSE) {
            return false;
        }
        sum += counts[k];
    }
    return sum == block;
}

static void largest_remainder(const double *shares, uint32_t parts, uint32_t *counts) {
    double remainder[BRIM__ORDER_PARTS] = { 0 };
    uint32_t sum = 0;
    for (uint32_t k = 0; k < parts; k++) {
        const double exact = shares[k] * MOST_BLOCK;
        counts[k] = (uint32_t)exact;
        remainder[k] = exact - counts[k];
        if (counts[k] == 0) {
            counts[k] = 1;
            remainder[k] = -1; /* it has more than its share */
        }
        sum += counts[k];
    }
    for (; sum < MOST_BLOCK; sum++) {
        uint32_t best = 0;
        for (uint32_t k = 1; k < parts; k++) {
            best = remainder[k] > remainder[best] ? k : best;
        }
        counts[best]++;
        remainder[best] -= 1;
    }
    /* parts raised to 1 may make the sum too large: the largest part is reduced */
    for (; sum > MOST_BLOCK; sum--) {
        uint32_t largest = 0;
        for (uint32_t k = 1; k < parts; k++) {
            largest = counts[k] > counts[largest] ? k : largest;
        }
        counts[largest]--;
    }
}

static void choose_block(struct brim__mix *mix, const double *shares) {
    for (mix->block = 1; mix->block <= MOST_BLOCK; mix->block++) {
        if (block_fits(shares, mix->parts, mix->block, mix->in_block)) {
            return;
        }
    }
    mix->block = MOST_BLOCK;
    largest_remainder(shares, mix->parts, mix->in_block);
}

static void fill_table(struct brim__mix *mix, uint64_t key) {
    uint16_t part_of[MOST_BLOCK];
    uint32_t at = 0;
    for (uint32_t k = 0; k < mix->parts; k++) {
        for (uint32_t i = 0; i < mix->in_block[k]; i++) {
            part_of[at++] = (uint16_t)k;
        }
    }
    assert(at == mix->block);

    const uint32_t blocks = BRIM__ORDER_PATTERN / mix->block;
    mix->table = blocks * mix->block;
    memset(mix->in_table, 0, sizeof mix->in_table);
    for (uint32_t b = 0; b < blocks; b++) {
        struct brim__permutation permutation;
        brim__permutation_init(&permutation, mix->block, brim__hash_words(key, b, 0));
        for (uint32_t i = 0; i < mix->block; i++) {
            const uint16_t part = part_of[brim__permute(&permutation, i)];
            mix->entry[b * mix->block + i] = (struct brim__mix_entry){
                .part = part,
                .rank = (uint16_t)mix->in_table[part]++,
            };
        }
    }
}

uint64_t brim__mix_share(const struct brim__mix *mix, uint32_t part, uint64_t length) {
    uint64_t share = length / mix->table * mix->in_table[part];
    for (uint32_t t = 0; t < length % mix->table; t++) {
        share += mix->entry[t].part == part;
    }
    return share;
}

/* The first position at which some part would have to begin a second pass. */
static uint64_t first_exhausted(const struct brim__mix *mix) {
    uint64_t length = MOST_COUNT;
    for (uint32_t t = 0; t < mix->table; t++) {
        const struct brim__mix_entry entry = mix->entry[t];
        const uint64_t count = mix->part_count[entry.part];
        const uint64_t in_table = mix->in_table[entry.part];
        if (count % in_table != entry.rank) {
            continue;
        }
        const unsigned __int128 end = (unsigned __int128)(count / in_table) * mix->table + t;
        if (end < length) {
            length = (uint64_t)end;
        }
    }
    return length;
}

brim_status brim__order_mix(struct brim__order *order, struct brim__mix *mix, uint64_t key,
                            const uint32_t *tops, const double *weights, size_t parts,
                            uint64_t length) {
    if (parts == 0 || parts > BRIM__ORDER_PARTS) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "mix: %zu parts; a mix has 1 to %d, a part may be a mix", parts,
                          BRIM__ORDER_PARTS);
    }
    if (length > MOST_COUNT) {
        return brim__fail(BRIM_STATUS_INVALID, "mix: a length of %llu is more than 2^63",
                          (unsigned long long)length);
    }
    if (order->op_count == BRIM__ORDER_OPS) {
        return brim__fail(BRIM_STATUS_UNSUPPORTED,
                          "mix: the pipeline has more than %d sources and order stages in all",
                          BRIM__ORDER_OPS);
    }
    double shares[BRIM__ORDER_PARTS] = { 0 };
    mix->parts = (uint32_t)parts;
    const brim_status status = normalise(weights, mix->parts, shares);
    if (status != BRIM_OK) {
        return status;
    }
    for (uint32_t k = 0; k < mix->parts; k++) {
        assert(tops[k] < order->op_count);
        mix->top[k] = tops[k];
        mix->part_count[k] = order->op[tops[k]].count;
        if (mix->part_count[k] == 0) {
            return brim__fail(BRIM_STATUS_INVALID,
                              "mix: part %u of %zu has no samples; leave it out, or change its "
                              "source or its take, skip and split stages",
                              k + 1, parts);
        }
    }
    choose_block(mix, shares);
    fill_table(mix, key);
    if (length == 0) {
        length = first_exhausted(mix);
    }
    for (uint32_t k = 0; k < mix->parts; k++) {
        mix->in_epoch[k] = brim__mix_share(mix, k, length);
    }

    order->top = order->op_count++;
    order->op[order->top] = (struct brim__order_op){
        .kind = BRIM__ORDER_MIX,
        .input = tops[0],
        .count = length,
        .key = key,
        .mix = mix,
    };
    return BRIM_OK;
}

void brim__mix_begin(const struct brim__mix *mix, uint64_t epoch, struct brim__mix_start *start) {
    for (uint32_t k = 0; k < mix->parts; k++) {
        const uint64_t count = mix->part_count[k];
        uint64_t before;
        if (!brim__mul_overflows(epoch, mix->in_epoch[k], &before)) {
            start->epoch[k] = before / count;
            start->position[k] = before % count;
        } else {
            /* exact; a part's epoch above 2^64 wraps */
            const unsigned __int128 wide = (unsigned __int128)epoch * mix->in_epoch[k];
            start->epoch[k] = (uint64_t)(wide / count);
            start->position[k] = (uint64_t)(wide % count);
        }
    }
}

uint32_t brim__mix_locate(const struct brim__mix *mix, const struct brim__mix_start *start,
                          uint64_t *epoch, uint64_t *position) {
    const struct brim__mix_entry entry = mix->entry[*position % mix->table];
    const uint64_t whole = *position / mix->table;
    const uint32_t part = entry.part;
    const uint64_t count = mix->part_count[part];
    /* both are below 2^63: no overflow */
    const uint64_t running = start->position[part] + whole * mix->in_table[part] + entry.rank;
    *epoch = start->epoch[part];
    *position = running;
    if (running >= count) {
        *epoch += running / count;
        *position = running % count;
    }
    return part;
}

/*
 * permutation.c: the Feistel network, the walk, and the table for tiny counts.
 *
 * A position of `bits` bits, bits = width of count - 1 but at least 8, is cut
 * into a left and a right half, which may differ by one bit:
 *
 *     left ^= round(right, key 0);  right ^= round(left, key 1);  ...   8 rounds
 *
 * Each step undoes itself, so the whole is a bijection on [0, 2^bits) whatever the round function
 * is. A value at or above count is permuted again until it is below count. This follows the cycle
 * of the bijection, so two positions never get the same value. More than half of the values are
 * below count, so a position needs less than two passes on average.
 *
 * Below 2^8 the halves would have too few bits to mix well, and the walks would be long. So tiny
 * counts have a table, which is shuffled by exchanges when it is set up.
 *
 * The output is part of the format: a resumed run must have the same order.
 */
#include "order/permutation.h"

#define LEAST_BITS 8
#define RUN        64

/* Odd and without pattern: fractions of the golden ratio and of the square
 * roots of 11, 3 and 7. */
#define SPREAD     0x9E3779B97F4A7C15u
#define FOLD       0x510E527FADE682D1u
#define SCRAMBLE_0 0xBB67AE8584CAA73Bu
#define SCRAMBLE_1 0xA54FF53A5F1D36F1u

/* A sequence of 64-bit numbers from a counter: two multiplications and shifts
 * after which each bit of the input moves each bit of the output. */
static uint64_t scramble(uint64_t value) {
    value ^= value >> 32;
    value *= SCRAMBLE_0;
    value ^= value >> 29;
    value *= SCRAMBLE_1;
    value ^= value >> 32;
    return value;
}

static uint64_t key_number(uint64_t key, uint64_t number) {
    return scramble(scramble(key) + (number + 1) * SPREAD);
}

void brim__permutation_init(struct brim__permutation *permutation, uint64_t count, uint64_t key) {
    assert(count > 0 && count <= (uint64_t)1 << 63);
    permutation->count = count;
    if (count <= BRIM__PERMUTATION_TINY) {
        permutation->left_mask = permutation->right_mask = 0;
        permutation->right_bits = 0;
        uint8_t *table = permutation->table;
        for (uint64_t i = 0; i < count; i++) {
            const uint64_t bits = key_number(key, i);
            const uint64_t other = (uint64_t)(((unsigned __int128)bits * (i + 1)) >> 64);
            table[i] = table[other];
            table[other] = (uint8_t)i;
        }
        return;
    }
    const uint32_t width = 64 - (uint32_t)__builtin_clzll(count - 1);
    const uint32_t bits = width < LEAST_BITS ? LEAST_BITS : width;
    permutation->right_bits = bits - bits / 2;
    permutation->left_mask = ((uint64_t)1 << (bits / 2)) - 1;
    permutation->right_mask = ((uint64_t)1 << permutation->right_bits) - 1;
    for (uint64_t round = 0; round < BRIM__PERMUTATION_ROUNDS; round++) {
        permutation->round_key[round] = key_number(key, round);
    }
}

/* The exclusive or between two multiplications makes the result depend on the key in a way that is
 * not linear. Folding adds the upper half of the product, which depends on all bits, to the low
 * bits that the masks keep. */
static inline uint64_t round_function(uint64_t half, uint64_t key) {
    const unsigned __int128 product = (unsigned __int128)((half * SPREAD) ^ key) * FOLD;
    return (uint64_t)(product >> 64) ^ (uint64_t)product;
}

struct halves {
    uint64_t left, right;
};

static inline struct halves cut(const struct brim__permutation *permutation, uint64_t value) {
    return (struct halves){ value >> permutation->right_bits, value & permutation->right_mask };
}

static inline uint64_t join(const struct brim__permutation *permutation, struct halves halves) {
    return halves.left << permutation->right_bits | halves.right;
}

static inline struct halves two_rounds(const struct brim__permutation *permutation,
                                       struct halves halves, int round) {
    const uint64_t *key = permutation->round_key;
    halves.left ^= round_function(halves.right, key[round]) & permutation->left_mask;
    halves.right ^= round_function(halves.left, key[round + 1]) & permutation->right_mask;
    return halves;
}

static inline struct halves undo_two_rounds(const struct brim__permutation *permutation,
                                            struct halves halves, int round) {
    const uint64_t *key = permutation->round_key;
    halves.right ^= round_function(halves.left, key[round + 1]) & permutation->right_mask;
    halves.left ^= round_function(halves.right, key[round]) & permutation->left_mask;
    return halves;
}

static_assert(BRIM__PERMUTATION_ROUNDS == 8, "the rounds are written out, for speed");

static inline uint64_t forward(const struct brim__permutation *permutation, uint64_t value) {
    struct halves halves = cut(permutation, value);
    halves = two_rounds(permutation, halves, 0);
    halves = two_rounds(permutation, halves, 2);
    halves = two_rounds(permutation, halves, 4);
    halves = two_rounds(permutation, halves, 6);
    return join(permutation, halves);
}

static inline uint64_t backward(const struct brim__permutation *permutation, uint64_t value) {
    struct halves halves = cut(permutation, value);
    halves = undo_two_rounds(permutation, halves, 6);
    halves = undo_two_rounds(permutation, halves, 4);
    halves = undo_two_rounds(permutation, halves, 2);
    halves = undo_two_rounds(permutation, halves, 0);
    return join(permutation, halves);
}

static inline bool is_tiny(const struct brim__permutation *permutation) {
    return permutation->count <= BRIM__PERMUTATION_TINY;
}

uint64_t brim__permute(const struct brim__permutation *permutation, uint64_t position) {
    assert(position < permutation->count);
    if (is_tiny(permutation)) {
        return permutation->table[position];
    }
    uint64_t value = position;
    do {
        value = forward(permutation, value);
    } while (value >= permutation->count);
    return value;
}

uint64_t brim__unpermute(const struct brim__permutation *permutation, uint64_t value) {
    assert(value < permutation->count);
    if (is_tiny(permutation)) {
        const uint8_t *at = memchr(permutation->table, (int)value, permutation->count);
        assert(at != NULL);
        return (uint64_t)(at - permutation->table);
    }
    uint64_t position = value;
    do {
        position = backward(permutation, position);
    } while (position >= permutation->count);
    return position;
}

/* Permutes up to RUN values, and permutes again those that are not below count yet. Within a pass
 * no value depends on another, and no branch depends on a value, so the CPU works on several at
 * once. A single evaluation is a chain of sixteen multiplications. */
static void permute_some(const struct brim__permutation *permutation, uint64_t *values,
                         size_t count) {
    const struct brim__permutation local = *permutation; /* stores to values cannot change it */
    uint8_t pending[RUN];
    size_t left = 0;
    for (size_t i = 0; i < count; i++) {
        values[i] = forward(&local, values[i]);
        pending[left] = (uint8_t)i;
        left += values[i] >= local.count;
    }
    while (left > 0) {
        const size_t all = left;
        left = 0;
        for (size_t i = 0; i < all; i++) {
            const uint8_t at = pending[i];
            values[at] = forward(&local, values[at]);
            pending[left] = at;
            left += values[at] >= local.count;
        }
    }
}

void brim__permute_run(const struct brim__permutation *permutation, uint64_t *values,
                       size_t count) {
    if (is_tiny(permutation)) {
        for (size_t i = 0; i < count; i++) {
            values[i] = permutation->table[values[i]];
        }
        return;
    }
    for (size_t done = 0; done < count; done += RUN) {
        permute_some(permutation, values + done, brim__min(count - done, RUN));
    }
}

void brim__permute_each(struct brim__permutation_lane *lanes, size_t count) {
    assert(count <= BRIM__PERMUTATION_LANES);
    uint8_t pending[BRIM__PERMUTATION_LANES], same[BRIM__PERMUTATION_LANES];
    for (size_t i = 0; i < count; i++) {
        pending[i] = (uint8_t)i;
    }
    for (size_t left = count; left > 0;) {
        const struct brim__permutation_lane first = lanes[pending[0]];
        uint64_t together[BRIM__PERMUTATION_LANES];
        size_t taken = 0, kept = 0;
        for (size_t i = 0; i < left; i++) {
            const uint8_t at = pending[i];
            const bool is_same = lanes[at].key == first.key;
            same[taken] = at;
            together[taken] = lanes[at].value;
            taken += is_same;
            pending[kept] = at;
            kept += !is_same;
        }
        left = kept;
        struct brim__permutation permutation;
        brim__permutation_init(&permutation, first.count, first.key);
        brim__permute_run(&permutation, together, taken);
        for (size_t i = 0; i < taken; i++) {
            lanes[same[i]].value = together[i];
        }
    }
}

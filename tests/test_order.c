/*
 * test_order.c: every order operation against lists.
 *
 * The model writes an epoch out as a list of (leaf, epoch, sample) and does to
 * lists what the operations do to positions: take cuts, repeat joins, a shuffle
 * moves, a mix deals from streams. Random pipelines of both are compared.
 */
#include "order/mix.h"
#include "order/order.h"
#include "order/permutation.h"
#include "order/stages.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

static uint64_t random_state = 1;
static uint64_t pick(uint64_t bound) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (random_state >> 33) % bound;
}

/* ------------------------------------------------------------------- lists */

#define MOST_LIST 3000

struct list {
    size_t count;
    struct brim__place at[MOST_LIST];
};

/* Lists are used again: they are large, and sanitizers make freeing slow. */
static struct list *unused[64];
static size_t unused_count;

static struct list *list_new(void) {
    struct list *list = unused_count > 0 ? unused[--unused_count] : malloc(sizeof *list);
    assert_non_null(list);
    list->count = 0;
    return list;
}
static void list_free(struct list *list) {
    assert_true(unused_count < BRIM__COUNT(unused));
    unused[unused_count++] = list;
}
/* Moves the rows of `from` into `list`, and frees it. */
static void replace(struct list *list, struct list *from) {
    list->count = from->count;
    memcpy(list->at, from->at, from->count * sizeof from->at[0]);
    list_free(from);
}
static void append(struct list *list, struct brim__place place) {
    assert(list->count < MOST_LIST);
    list->at[list->count++] = place;
}

/* Cuts into blocks, lays them out in permuted order, then permutes the rows of
 * every sixteen of them. */
static void shuffle_list_by_blocks(struct list *list, uint64_t block, uint64_t key) {
    const uint64_t slots = brim__divide_up(list->count, block);
    struct brim__permutation blocks, inside;
    brim__permutation_init(&blocks, slots, brim__hash_words(key, 0, 1));
    struct list *shuffled = list_new();
    for (uint64_t group = 0; group * 16 < slots; group++) {
        struct list *rows = list_new();
        for (uint64_t slot = group * 16; slot < group * 16 + 16 && slot < slots; slot++) {
            const uint64_t from = brim__permute(&blocks, slot) * block;
            for (uint64_t i = from; i < from + block && i < list->count; i++) {
                append(rows, list->at[i]);
            }
        }
        brim__permutation_init(&inside, rows->count, brim__hash_words(key, group, 2));
        for (uint64_t i = 0; i < rows->count; i++) {
            append(shuffled, rows->at[brim__permute(&inside, i)]);
        }
        list_free(rows);
    }
    replace(list, shuffled);
}

static void permute_list(struct list *list, uint64_t key) {
    struct brim__permutation permutation;
    struct list *permuted = list_new();
    if (list->count > 0) {
        brim__permutation_init(&permutation, list->count, key);
    }
    for (uint64_t i = 0; i < list->count; i++) {
        append(permuted, list->at[brim__permute(&permutation, i)]);
    }
    replace(list, permuted);
}

static void keep_range(struct list *list, size_t first, size_t count) {
    first = brim__min(first, list->count);
    count = brim__min(count, list->count - first);
    memmove(list->at, list->at + first, count * sizeof list->at[0]);
    list->count = count;
}

static struct list *list_of(const struct brim__order *order, uint32_t at, uint64_t epoch);

/* Deals from the parts' streams, from the mix's epoch 0 on. */
static void deal(const struct brim__order *order, const struct brim__order_op *op, uint64_t epoch,
                 struct list *list) {
    struct list *part[BRIM__ORDER_PARTS];
    size_t used[BRIM__ORDER_PARTS] = { 0 };
    uint64_t part_epoch[BRIM__ORDER_PARTS] = { 0 };
    for (uint32_t k = 0; k < op->mix->parts; k++) {
        part[k] = list_of(order, op->mix->top[k], 0);
    }
    for (uint64_t e = 0; e <= epoch; e++) {
        for (uint64_t p = 0; p < op->count; p++) {
            const uint32_t k = op->mix->entry[p % op->mix->table].part;
            if (used[k] == part[k]->count) {
                list_free(part[k]);
                part[k] = list_of(order, op->mix->top[k], ++part_epoch[k]);
                used[k] = 0;
            }
            if (e == epoch) {
                append(list, part[k]->at[used[k]]);
            }
            used[k]++;
        }
    }
    for (uint32_t k = 0; k < op->mix->parts; k++) {
        list_free(part[k]);
    }
}

/* The operations' arguments are read from the order; what they mean is not. */
static struct list *list_of(const struct brim__order *order, uint32_t at, uint64_t epoch) {
    const struct brim__order_op *op = &order->op[at];
    if (op->kind == BRIM__ORDER_LEAF || op->kind == BRIM__ORDER_MIX ||
        op->kind == BRIM__ORDER_REPEAT) {
        struct list *list = list_new();
        if (op->kind == BRIM__ORDER_LEAF) {
            for (uint64_t i = 0; i < op->count; i++) {
                append(list,
                       (struct brim__place){ .sample = i, .epoch = epoch, .leaf = op->input });
            }
        }
        if (op->kind == BRIM__ORDER_MIX) {
            deal(order, op, epoch, list);
        }
        for (uint64_t pass = 0; op->kind == BRIM__ORDER_REPEAT && pass < op->amount; pass++) {
            struct list *once = list_of(order, op->input, epoch * op->amount + pass);
            for (size_t i = 0; i < once->count; i++) {
                append(list, once->at[i]);
            }
            list_free(once);
        }
        return list;
    }
    struct list *list = list_of(order, op->input, epoch);
    const uint64_t key = op->each_epoch ? brim__hash_words(op->key, epoch, 0) : op->key;
    switch (op->kind) {
    case BRIM__ORDER_TAKE:
        keep_range(list, 0, op->amount);
        break;
    case BRIM__ORDER_SKIP:
        keep_range(list, op->amount, SIZE_MAX);
        break;
    case BRIM__ORDER_SPLIT:
        permute_list(list, op->key);
        keep_range(list, op->amount, op->count);
        break;
    default:
        if (op->amount > 1 && list->count > 0) {
            shuffle_list_by_blocks(list, op->amount, key);
        } else {
            permute_list(list, key);
        }
    }
    return list;
}

static void assert_place(struct brim__place got, struct brim__place wanted) {
    if (got.sample == wanted.sample && got.epoch == wanted.epoch && got.leaf == wanted.leaf) {
        return; /* cmocka's own comparisons are slow */
    }
    assert_int_equal(got.sample, wanted.sample);
    assert_int_equal(got.epoch, wanted.epoch);
    assert_int_equal(got.leaf, wanted.leaf);
}

/* All positions one by one, in runs of 64, in runs of random lengths. */
static void compare_with_list(const struct brim__order *order, uint64_t epoch) {
    struct list *list = list_of(order, order->top, epoch);
    struct brim__place *places = calloc(list->count + 1, sizeof *places);
    assert_non_null(places);
    assert_int_equal(brim__order_count(order), list->count);
    for (int way = 0; way < 4; way++) {
        memset(places, 0xff, list->count * sizeof *places);
        for (uint64_t at = 0, run; at < list->count; at += run) {
            const uint64_t wanted[] = { 1, 64, 1 + pick(64), 1 + pick(300) };
            run = brim__min(wanted[way], list->count - at);
            brim__order_locate(order, epoch, at, run, places + at);
        }
        for (size_t i = 0; i < list->count; i++) {
            assert_place(places[i], list->at[i]);
        }
    }
    free(places);
    list_free(list);
}

/* -------------------------------------------------------- random pipelines */

static struct brim__mix mixes[8];
static uint32_t mixes_used, leaves_used;

static void random_stage(struct brim__order *order) {
    const uint64_t count = brim__order_count(order);
    const uint64_t key = pick(1000);
    switch (pick(6)) {
    case 0:
        assert_int_equal(brim__order_take(order, count / 2 + pick(count + 3)), BRIM_OK);
        break;
    case 1:
        assert_int_equal(brim__order_skip(order, pick(pick(8) == 0 ? count + 3 : 10)), BRIM_OK);
        break;
    case 2:
        if (count < 200) {
            assert_int_equal(brim__order_repeat(order, 1 + pick(4)), BRIM_OK);
        }
        break;
    case 3: {
        const uint64_t first = pick(count / 3 + 1);
        assert_int_equal(brim__order_split(order, key, first, pick(count - first + 1)), BRIM_OK);
        break;
    }
    case 4:
        assert_int_equal(brim__order_shuffle(order, key, 0, pick(3) > 0), BRIM_OK);
        break;
    default:
        assert_int_equal(brim__order_shuffle(order, key, pick(12), pick(3) > 0), BRIM_OK);
    }
}

static void random_chain(struct brim__order *order, int depth) {
    if (depth > 0 && pick(3) == 0 && mixes_used < BRIM__COUNT(mixes)) {
        struct brim__mix *mix = &mixes[mixes_used++];
        uint32_t tops[3];
        double weights[3];
        const size_t parts = 1 + pick(3);
        for (size_t k = 0; k < parts; k++) {
            random_chain(order, depth - 1);
            if (brim__order_count(order) == 0) {
                assert_int_equal(brim__order_leaf(order, leaves_used++, 5), BRIM_OK);
            }
            tops[k] = order->top;
            weights[k] = (double)(1 + pick(5));
        }
        assert_int_equal(brim__order_mix(order, mix, pick(1000), tops, weights, parts,
                                         pick(2) * (1 + pick(200))),
                         BRIM_OK);
    } else {
        const uint64_t count = pick(20) == 0 ? pick(4) : 1 + pick(150);
        assert_int_equal(brim__order_leaf(order, leaves_used++, count), BRIM_OK);
    }
    for (uint64_t stages = pick(5); stages > 0 && brim__order_count(order) < 500; stages--) {
        random_stage(order);
    }
}

static void test_random_pipelines_equal_lists(void **state) {
    (void)state;
    for (uint64_t i = 0; i < 1200; i++) {
        struct brim__order order;
        random_state = i;
        mixes_used = leaves_used = 0;
        brim__order_init(&order);
        random_chain(&order, 2);
        compare_with_list(&order, pick(4));
    }
}

/* ----------------------------------------------------------------- shuffle */

static void test_block_shuffle_is_a_bijection(void **state) {
    (void)state;
    for (uint64_t count = 1; count <= 100; count++) {
        for (uint64_t block = 1; block <= count + 1; block++) {
            struct brim__order order;
            struct brim__place places[100];
            uint8_t seen[100] = { 0 };
            brim__order_init(&order);
            brim__order_leaf(&order, 0, count);
            brim__order_shuffle(&order, count * 1000 + block, block, true);
            brim__order_locate(&order, 5, 0, count, places);
            for (uint64_t i = 0; i < count; i++) {
                assert_true(places[i].sample < count);
                assert_int_equal(seen[places[i].sample]++, 0);
            }
        }
    }
}

static void test_block_shuffle_equals_lists(void **state) {
    (void)state;
    static const uint64_t counts[] = { 1, 2, 16, 17, 31, 32, 33, 48, 100, 257, 1000, 1025 };
    for (size_t c = 0; c < BRIM__COUNT(counts); c++) {
        for (uint64_t block = 1; block <= 70; block += 1 + block / 12) {
            struct brim__order order;
            brim__order_init(&order);
            brim__order_leaf(&order, 3, counts[c]);
            brim__order_shuffle(&order, 9, block, block % 2 == 0);
            compare_with_list(&order, 2);
        }
    }
}

/* A stretch of positions reads from at most two groups of sixteen blocks. */
static void test_block_shuffle_reads_near(void **state) {
    (void)state;
    struct brim__order order;
    brim__order_init(&order);
    brim__order_leaf(&order, 0, 1000003);
    brim__order_shuffle(&order, 4, 1000, true);
    struct brim__place *places = calloc(16000, sizeof *places);
    assert_non_null(places);
    brim__order_locate(&order, 0, 320000, 16000, places);
    uint32_t blocks[1001] = { 0 };
    int distinct = 0;
    for (int i = 0; i < 16000; i++) {
        distinct += blocks[places[i].sample / 1000]++ == 0;
    }
    assert_true(distinct >= 15 && distinct <= 33);
    free(places);
}

static void test_shuffle_changes_with_epoch_only_when_asked(void **state) {
    (void)state;
    for (int each = 0; each < 2; each++) {
        for (uint64_t block = 0; block <= 8; block += 8) {
            struct brim__order order;
            struct brim__place a[64], b[64];
            brim__order_init(&order);
            brim__order_leaf(&order, 0, 5000);
            brim__order_shuffle(&order, 1, block, each == 1);
            brim__order_locate(&order, 0, 0, 64, a);
            brim__order_locate(&order, 1, 0, 64, b);
            int same = 0;
            for (int i = 0; i < 64; i++) {
                same += a[i].sample == b[i].sample;
                assert_int_equal(b[i].epoch, 1);
            }
            if (each == 1) {
                assert_true(same < 8);
            } else {
                assert_int_equal(same, 64);
            }
        }
    }
}

static void test_epochs_of_a_shuffle_are_uncorrelated(void **state) {
    (void)state;
    enum { COUNT = 4000 };
    static struct brim__place a[COUNT], b[COUNT];
    struct brim__order order;
    brim__order_init(&order);
    brim__order_leaf(&order, 0, COUNT);
    brim__order_shuffle(&order, 1, 0, true);
    for (uint64_t epoch = 0; epoch < 40; epoch++) {
        brim__order_locate(&order, epoch, 0, COUNT, a);
        brim__order_locate(&order, epoch + 1, 0, COUNT, b);
        double products = 0, squares = 0;
        for (int i = 0; i < COUNT; i++) {
            const double off = (double)a[i].sample - (COUNT - 1) / 2.0;
            products += off * ((double)b[i].sample - (COUNT - 1) / 2.0);
            squares += off * off;
        }
        assert_true(fabs(products / squares * sqrt(COUNT)) < 4.5);
    }
}

/* ------------------------------------------------- repeat, take, skip, all */

static void test_repeat_joins_epochs(void **state) {
    (void)state;
    struct brim__order once, repeated;
    struct brim__place a[3 * 37], b[37];
    brim__order_init(&once);
    brim__order_leaf(&once, 0, 37);
    brim__order_shuffle(&once, 8, 0, true);
    repeated = once;
    assert_int_equal(brim__order_repeat(&repeated, 3), BRIM_OK);
    assert_int_equal(brim__order_count(&repeated), 3 * 37);
    for (uint64_t epoch = 0; epoch < 5; epoch++) {
        brim__order_locate(&repeated, epoch, 0, 3 * 37, a);
        for (uint64_t pass = 0; pass < 3; pass++) {
            brim__order_locate(&once, 3 * epoch + pass, 0, 37, b);
            for (int i = 0; i < 37; i++) {
                assert_place(a[pass * 37 + (uint64_t)i], b[i]);
            }
        }
    }
}

static void test_empty_orders(void **state) {
    (void)state;
    struct brim__order order;
    brim__order_init(&order);
    assert_int_equal(brim__order_leaf(&order, 0, 10), BRIM_OK);
    assert_int_equal(brim__order_skip(&order, 11), BRIM_OK);
    assert_int_equal(brim__order_shuffle(&order, 1, 4, true), BRIM_OK);
    assert_int_equal(brim__order_repeat(&order, 1000), BRIM_OK);
    assert_int_equal(brim__order_take(&order, 5), BRIM_OK);
    assert_int_equal(brim__order_split(&order, 0, 0, 0), BRIM_OK);
    assert_int_equal(brim__order_count(&order), 0);
    brim__order_locate(&order, 0, 0, 0, NULL);
}

static void test_refusals(void **state) {
    (void)state;
    struct brim__order order;
    brim__order_init(&order);
    assert_int_equal(brim__order_leaf(&order, 0, ((uint64_t)1 << 63) + 1), BRIM_UNSUPPORTED);
    assert_int_equal(brim__order_leaf(&order, 0, (uint64_t)1 << 40), BRIM_OK);
    assert_int_equal(brim__order_repeat(&order, 0), BRIM_INVALID);
    assert_int_equal(brim__order_repeat(&order, ((uint64_t)1 << 23) + 1), BRIM_INVALID);
    assert_int_equal(brim__order_repeat(&order, UINT64_MAX), BRIM_INVALID);
    assert_int_equal(brim__order_split(&order, 0, 1, (uint64_t)1 << 40), BRIM_INVALID);
    assert_int_equal(brim__order_split(&order, 0, UINT64_MAX, 2), BRIM_INVALID);
    assert_int_equal(order.op_count, 1);
    assert_int_equal(brim__order_repeat(&order, (uint64_t)1 << 23), BRIM_OK);
    while (order.op_count < BRIM__ORDER_OPS) {
        assert_int_equal(brim__order_take(&order, 5), BRIM_OK);
    }
    assert_int_equal(brim__order_take(&order, 5), BRIM_UNSUPPORTED);
    assert_non_null(strstr(brim_detail(), "take"));
    assert_int_equal(order.op_count, BRIM__ORDER_OPS);
    const double weight = 1;
    assert_int_equal(brim__order_mix(&order, &mixes[0], 0, &order.top, &weight, 1, 0),
                     BRIM_UNSUPPORTED);
}

/* --------------------------------------------------------------------- mix */

static brim_status mix_of(struct brim__order *order, const double *weights, const uint64_t *counts,
                          size_t parts, uint64_t length) {
    uint32_t tops[BRIM__ORDER_PARTS + 1];
    memset(&mixes[0], 0, sizeof mixes[0]);
    brim__order_init(order);
    for (size_t k = 0; k < parts; k++) {
        assert_int_equal(brim__order_leaf(order, (uint32_t)k, counts[k]), BRIM_OK);
        assert_int_equal(brim__order_shuffle(order, k, 0, true), BRIM_OK);
        tops[k] = order->top;
    }
    return brim__order_mix(order, &mixes[0], 77, tops, weights, parts, length);
}

/* Every block of every table holds the parts by their counts. */
static void check_pattern(const struct brim__mix *mix) {
    uint32_t rank[BRIM__ORDER_PARTS] = { 0 };
    assert_int_equal(mix->table % mix->block, 0);
    assert_true(mix->table + mix->block > BRIM__ORDER_PATTERN);
    for (uint32_t begin = 0; begin < mix->table; begin += mix->block) {
        uint32_t seen[BRIM__ORDER_PARTS] = { 0 };
        for (uint32_t t = begin; t < begin + mix->block; t++) {
            assert_int_equal(mix->entry[t].rank, rank[mix->entry[t].part]++);
            seen[mix->entry[t].part]++;
        }
        assert_memory_equal(seen, mix->in_block, sizeof seen);
    }
}

static void test_mix_blocks(void **state) {
    (void)state;
    static const struct {
        size_t parts;
        double weights[4];
        uint32_t block, counts[4];
    } known[] = {
        { 1, { 5 }, 1, { 1 } },
        { 2, { 0.7, 0.3 }, 10, { 7, 3 } },
        { 2, { 1e308, 1e308 }, 2, { 1, 1 } },
        { 3, { 1, 1, 1 }, 3, { 1, 1, 1 } },
        { 3, { 0.1, 0.2, 0.7 }, 10, { 1, 2, 7 } },
        { 2, { 0.3333333333, 0.6666666667 }, 3, { 1, 2 } },
        { 2, { 999, 1 }, 1000, { 999, 1 } },
        { 2, { 3.14159265, 1 }, 1000, { 759, 241 } },
        { 3, { 1, 1e-300, 1e-300 }, 1000, { 998, 1, 1 } },
        { 4, { 2, 3, 4, 5 }, 14, { 2, 3, 4, 5 } },
    };
    const uint64_t counts[4] = { 5000, 5000, 5000, 5000 };
    for (size_t i = 0; i < BRIM__COUNT(known); i++) {
        struct brim__order order;
        assert_int_equal(mix_of(&order, known[i].weights, counts, known[i].parts, 0), BRIM_OK);
        assert_int_equal(mixes[0].block, known[i].block);
        assert_memory_equal(mixes[0].in_block, known[i].counts, known[i].parts * 4);
        check_pattern(&mixes[0]);
    }
}

static void test_mix_pattern_is_random(void **state) {
    (void)state;
    struct brim__order order;
    const uint64_t counts[2] = { 5000, 5000 };
    const double weights[2] = { 1, 1 };
    assert_int_equal(mix_of(&order, weights, counts, 2, 0), BRIM_OK);
    int first = 0;
    for (uint32_t t = 0; t < mixes[0].table; t += 2) {
        first += mixes[0].entry[t].part == 0;
    }
    assert_true(first > 200 && first < 312); /* of 512 pairs */
}

static void test_mix_ends_at_the_first_exhausted_part(void **state) {
    (void)state;
    for (uint64_t i = 0; i < 400; i++) {
        struct brim__order order;
        uint64_t counts[4];
        double weights[4];
        random_state = i;
        const size_t parts = 1 + pick(4);
        for (size_t k = 0; k < parts; k++) {
            counts[k] = 1 + pick(i % 4 < 2 ? 6 : 4000);
            weights[k] = i % 2 == 0 ? (double)(1 + pick(9)) : 0.001 + (double)pick(1000000) / 7;
        }
        assert_int_equal(mix_of(&order, weights, counts, parts, 0), BRIM_OK);
        uint64_t used[4] = { 0 }, length = 0;
        for (;; length++) {
            const uint32_t part = mixes[0].entry[length % mixes[0].table].part;
            if (used[part] == counts[part]) {
                break;
            }
            used[part]++;
        }
        assert_int_equal(brim__order_count(&order), length);
        for (uint32_t k = 0; k < parts; k++) {
            assert_int_equal(mixes[0].in_epoch[k], used[k]);
        }
    }
}

/* Epochs of the mix are too short or too long for a part: its own epochs go on,
 * each a full permutation. */
static void test_mix_parts_have_their_own_epochs(void **state) {
    (void)state;
    struct brim__order order;
    const uint64_t counts[3] = { 1000, 7, 90 };
    const double weights[3] = { 5, 3, 2 };
    assert_int_equal(mix_of(&order, weights, counts, 3, 123), BRIM_OK);
    uint64_t used[3] = { 0 };
    uint8_t seen[3][1000] = { { 0 } };
    for (uint64_t epoch = 0; epoch < 60; epoch++) {
        struct brim__place places[123];
        brim__order_locate(&order, epoch, 0, 123, places);
        for (int i = 0; i < 123; i++) {
            const uint32_t part = places[i].leaf;
            assert_int_equal(places[i].epoch, used[part] / counts[part]);
            if (used[part] % counts[part] == 0) {
                memset(seen[part], 0, sizeof seen[part]);
            }
            assert_int_equal(seen[part][places[i].sample]++, 0);
            used[part]++;
        }
    }
    assert_true(used[0] > 3 * counts[0] && used[1] > 100 * counts[1]);
    assert_true(used[0] > 60 * 123 / 2 - 400 && used[0] < 60 * 123 / 2 + 400);
}

static void test_mix_in_late_epochs_is_exact(void **state) {
    (void)state;
    struct brim__order order;
    uint32_t tops[2];
    const double weights[2] = { 2, 1 };
    const uint64_t counts[2] = { ((uint64_t)1 << 62) + 1, 1000003 };
    brim__order_init(&order);
    for (uint32_t k = 0; k < 2; k++) {
        brim__order_leaf(&order, k, counts[k]);
        tops[k] = order.top;
    }
    const uint64_t length = ((uint64_t)1 << 61) + 12345;
    assert_int_equal(brim__order_mix(&order, &mixes[0], 1, tops, weights, 2, length), BRIM_OK);
    static const uint64_t epochs[] = { 0, 1, 7, (uint64_t)1 << 40, UINT64_MAX };
    for (size_t e = 0; e < BRIM__COUNT(epochs); e++) {
        for (uint64_t p = 0; p < 200; p++) {
            const uint64_t position = p < 100 ? p * p * p : length - 1 - p;
            struct brim__place place;
            brim__order_locate(&order, epochs[e], position, 1, &place);
            const uint64_t before = brim__mix_share(&mixes[0], place.leaf, position);
            const unsigned __int128 running =
                (unsigned __int128)epochs[e] * mixes[0].in_epoch[place.leaf] + before;
            assert_int_equal(place.sample, (uint64_t)(running % counts[place.leaf]));
            assert_int_equal(place.epoch, (uint64_t)(running / counts[place.leaf]));
        }
    }
}

static void test_mix_refusals(void **state) {
    (void)state;
    struct brim__order order;
    const uint64_t counts[17] = { 5, 5, 0, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5 };
    double weights[17];
    for (int k = 0; k < 17; k++) {
        weights[k] = 1;
    }
    assert_int_equal(mix_of(&order, weights, counts, 0, 0), BRIM_INVALID);
    assert_int_equal(mix_of(&order, weights, counts, 17, 0), BRIM_INVALID);
    assert_int_equal(mix_of(&order, weights, counts, 3, 0), BRIM_INVALID);
    assert_non_null(strstr(brim_detail(), "part 3 of 3 has no samples"));
    assert_int_equal(mix_of(&order, weights, counts, 2, UINT64_MAX), BRIM_INVALID);
    const double bad[] = { 0, -1, (double)NAN, (double)INFINITY, -0.0 };
    for (size_t i = 0; i < BRIM__COUNT(bad); i++) {
        weights[1] = bad[i];
        assert_int_equal(mix_of(&order, weights, counts, 2, 0), BRIM_INVALID);
        assert_non_null(strstr(brim_detail(), "part 2"));
    }
}

/* ------------------------------------------------------------------ stages */

/* A use with integers (or reals) for all arguments of a row. */
static brim_status add_stage(const struct brim__stage *stage, struct brim__order *order,
                             uint64_t key, const double *values) {
    struct brim__item items[4];
    struct brim__values lists[4];
    const size_t count = stage->info.argument_count;
    assert_true(count <= 4);
    for (size_t i = 0; i < count; i++) {
        items[i] = (struct brim__item){ .text = "",
                                        .integer = isnan(values[i]) ? 0 : (int64_t)values[i],
                                        .real = values[i] };
        lists[i] = (struct brim__values){ .items = &items[i], .count = 1 };
    }
    const struct brim__use use = { .stage = stage, .values = lists };
    return stage->add_order(&use, key, order);
}

static void test_rows(void **state) {
    (void)state;
    const struct brim__stage *const rows[] = { &brim__stage_shuffle, &brim__stage_split,
                                               &brim__stage_take,    &brim__stage_skip,
                                               &brim__stage_repeat,  &brim__stage_mix };
    for (size_t i = 0; i < BRIM__COUNT(rows); i++) {
        const brim_stage_info *info = &rows[i]->info;
        assert_int_equal(info->room, BRIM_ROOM_ORDER);
        assert_int_equal(strncmp(info->example, info->name, strlen(info->name)), 0);
        assert_int_equal(rows[i]->add_order == NULL, rows[i] == &brim__stage_mix);
        for (size_t k = 0; k < info->argument_count; k++) {
            assert_non_null(info->arguments[k].help);
            assert_int_equal((info->arguments[k].flags & BRIM_REQUIRED) != 0,
                             info->arguments[k].fallback == NULL);
        }
    }
}

static void test_stages_build_their_operations(void **state) {
    (void)state;
    struct brim__order order;
    brim__order_init(&order);
    brim__order_leaf(&order, 0, 100);
    assert_int_equal(add_stage(&brim__stage_skip, &order, 0, (const double[]){ 10 }), BRIM_OK);
    assert_int_equal(add_stage(&brim__stage_take, &order, 0, (const double[]){ 50 }), BRIM_OK);
    assert_int_equal(add_stage(&brim__stage_repeat, &order, 0, (const double[]){ 3 }), BRIM_OK);
    assert_int_equal(brim__order_count(&order), 150);
    struct brim__place place;
    brim__order_locate(&order, 2, 57, 1, &place);
    assert_place(place, (struct brim__place){ .sample = 17, .epoch = 7, .leaf = 0 });

    /* the seed and the key both change the order; block and each_epoch arrive */
    const double seeds[] = { 0, 7, -3 };
    uint64_t keys[6];
    for (size_t i = 0; i < 6; i++) {
        brim__order_init(&order);
        brim__order_leaf(&order, 0, 100);
        const double values[] = { seeds[i / 2], i % 2 == 0 ? 0 : 8, i % 2 == 0 };
        assert_int_equal(add_stage(&brim__stage_shuffle, &order, 5 + i % 2, values), BRIM_OK);
        keys[i] = order.op[order.top].key;
        assert_int_equal(order.op[order.top].amount, i % 2 == 0 ? 0 : 8);
        assert_int_equal(order.op[order.top].each_epoch, i % 2 == 0);
        for (size_t k = 0; k < i; k++) {
            assert_int_not_equal(keys[k], keys[i]);
        }
    }
}

/* Builds the three parts; returns the first refusal. */
static brim_status split_parts(struct brim__order part[3], uint64_t count, double validation,
                               double test, double seed) {
    for (int k = 0; k < 3; k++) {
        brim__order_init(&part[k]);
        brim__order_leaf(&part[k], 0, count);
        const double values[] = { k, validation, test, seed };
        /* a key for each: the place in the pipeline must not matter */
        const brim_status status =
            add_stage(&brim__stage_split, &part[k], (uint64_t)k * 99, values);
        if (status != BRIM_OK) {
            return status;
        }
    }
    return BRIM_OK;
}

static void test_split_is_disjoint_and_complete(void **state) {
    (void)state;
    static const double sizes[][2] = { { 0.1, 0 },        { 0.1, 0.1 }, { 0.5, 0.5 }, { 0.3, 0.7 },
                                       { 0.25, 0.33333 }, { 0, 0 },     { 0, 0.999 }, { 1, 1 },
                                       { 3, 0.2 },        { 0.2, 2 },   { 5, 0 } };
    for (uint64_t count = 5; count <= 300; count += count < 70 ? 1 : 23) {
        for (size_t s = 0; s < BRIM__COUNT(sizes); s++) {
            for (int seed = -2; seed < 2; seed++) {
                struct brim__order part[3];
                struct brim__place places[300];
                uint8_t seen[300] = { 0 };
                uint64_t sum = 0;
                assert_int_equal(split_parts(part, count, sizes[s][0], sizes[s][1], seed), BRIM_OK);
                for (int k = 0; k < 3; k++) {
                    const uint64_t rows = brim__order_count(&part[k]);
                    brim__order_locate(&part[k], (uint64_t)k, 0, rows, places);
                    sum += rows;
                    for (uint64_t i = 0; i < rows; i++) {
                        assert_int_equal(seen[places[i].sample]++, 0);
                    }
                }
                assert_int_equal(sum, count);
                for (int k = 1; k < 3; k++) {
                    const double size = sizes[s][k - 1];
                    const double exact = size < 1 ? size * (double)count : size;
                    assert_true(fabs((double)brim__order_count(&part[k]) - exact) <=
                                (k == 1 ? 0.5 + 1e-6 : 1 + 1e-6));
                }
            }
        }
    }
}

static void test_split_rounds_exactly(void **state) {
    (void)state;
    static const struct {
        uint64_t count;
        double validation;
        uint64_t rows;
    } known[] = {
        { 5, 0.3, 2 },
        { 15, 0.3, 5 },
        { 15, 0.1, 2 },
        { 14, 0.1, 1 },
        { 0, 0.5, 0 },
        { 1, 0.5, 1 },
        { 1, 0.499999, 0 },
        { 50000, 0.1, 5000 },
        { 1000, 1, 1 },
        { 1000, 1000, 1000 },
        { (uint64_t)1 << 53, 0.1, 900719925474099 },
        { ((uint64_t)1 << 53) - 1, 0.5, (uint64_t)1 << 52 },
        { (uint64_t)1 << 63, 0.7, 6456360425798343066 },
    };
    for (size_t i = 0; i < BRIM__COUNT(known); i++) {
        struct brim__order part[3];
        assert_int_equal(split_parts(part, known[i].count, known[i].validation, 0, 0), BRIM_OK);
        assert_int_equal(brim__order_count(&part[1]), known[i].rows);
        assert_int_equal(brim__order_count(&part[0]), known[i].count - known[i].rows);
    }
}

static void test_split_refusals(void **state) {
    (void)state;
    static const struct {
        double validation, test;
        const char *text;
    } known[] = {
        { 0.6, 0.5, "overlap" },
        { 101, 0, "overlap" },
        { 60, 41, "overlap" },
        { 60, 0.41, "overlap" },
        { 1.5, 0, "validation=1.5 is neither" },
        { 0.1, 2.25, "test=2.25 is neither" },
        { -0.1, 0, "not a size" },
        { (double)NAN, 0, "not a size" },
    };
    struct brim__order part[3];
    for (size_t i = 0; i < BRIM__COUNT(known); i++) {
        assert_int_equal(split_parts(part, 100, known[i].validation, known[i].test, 0),
                         BRIM_INVALID);
        assert_non_null(strstr(brim_detail(), known[i].text));
    }
    assert_int_equal(split_parts(part, 100, 60, 0.4, 0), BRIM_OK);
}

/* What shows samples elsewhere in another epoch, or twice, would leak. */
static void test_split_stands_before_what_moves_samples(void **state) {
    (void)state;
    const double values[] = { 0, 0.1, 0, 0 };
    struct brim__order order;
    const uint64_t counts[2] = { 10, 10 };
    const double weights[2] = { 1, 1 };
    brim__order_init(&order);
    brim__order_leaf(&order, 0, 100);
    brim__order_shuffle(&order, 0, 0, false);
    brim__order_take(&order, 90);
    brim__order_repeat(&order, 1);
    assert_int_equal(add_stage(&brim__stage_split, &order, 0, values), BRIM_OK);
    brim__order_shuffle(&order, 0, 0, true);
    brim__order_skip(&order, 3);
    assert_int_equal(add_stage(&brim__stage_split, &order, 0, values), BRIM_INVALID);
    assert_non_null(strstr(brim_detail(), "shuffle"));
    brim__order_init(&order);
    brim__order_leaf(&order, 0, 100);
    brim__order_repeat(&order, 2);
    assert_int_equal(add_stage(&brim__stage_split, &order, 0, values), BRIM_INVALID);
    assert_non_null(strstr(brim_detail(), "repeat"));
    assert_int_equal(mix_of(&order, weights, counts, 2, 0), BRIM_OK);
    assert_int_equal(add_stage(&brim__stage_split, &order, 0, values), BRIM_INVALID);
    assert_non_null(strstr(brim_detail(), "mix"));
}

/* -------------------------------------------------------------------- cost */

static double seconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void test_cost_does_not_grow_with_the_count(void **state) {
    (void)state;
    double least[2] = { 1e9, 1e9 };
    for (int attempt = 0; attempt < 7; attempt++) {
        for (int k = 0; k < 2; k++) {
            struct brim__order order;
            struct brim__place places[64];
            brim__order_init(&order);
            brim__order_leaf(&order, 0, k == 0 ? 1000000 : 1000000000000000);
            brim__order_shuffle(&order, 1, 1024, true);
            brim__order_repeat(&order, 5);
            brim__order_skip(&order, 17);
            const uint64_t step = brim__order_count(&order) / 100;
            const double begin = seconds();
            for (uint64_t i = 0; i < 99; i++) {
                brim__order_locate(&order, i, i * step, 64, places);
            }
            least[k] = fmin(least[k], seconds() - begin);
        }
    }
    assert_true(least[1] < 8 * least[0]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_pipelines_equal_lists),
        cmocka_unit_test(test_block_shuffle_is_a_bijection),
        cmocka_unit_test(test_block_shuffle_equals_lists),
        cmocka_unit_test(test_block_shuffle_reads_near),
        cmocka_unit_test(test_shuffle_changes_with_epoch_only_when_asked),
        cmocka_unit_test(test_epochs_of_a_shuffle_are_uncorrelated),
        cmocka_unit_test(test_repeat_joins_epochs),
        cmocka_unit_test(test_empty_orders),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_mix_blocks),
        cmocka_unit_test(test_mix_pattern_is_random),
        cmocka_unit_test(test_mix_ends_at_the_first_exhausted_part),
        cmocka_unit_test(test_mix_parts_have_their_own_epochs),
        cmocka_unit_test(test_mix_in_late_epochs_is_exact),
        cmocka_unit_test(test_mix_refusals),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_stages_build_their_operations),
        cmocka_unit_test(test_split_is_disjoint_and_complete),
        cmocka_unit_test(test_split_rounds_exactly),
        cmocka_unit_test(test_split_refusals),
        cmocka_unit_test(test_split_stands_before_what_moves_samples),
        cmocka_unit_test(test_cost_does_not_grow_with_the_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * order_model.h: an order as a list, for the tests of orders.
 *
 * The model writes an epoch out as a list of (leaf, epoch, sample) and does to
 * lists what the operations do to positions: take cuts, repeat joins, a shuffle
 * moves, a mix deals from streams, a class is what a search of all labels finds.
 */
#ifndef BRIM_TESTS_ORDER_MODEL_H
#define BRIM_TESTS_ORDER_MODEL_H

#include "order/classes.h"
#include "order/concat.h"
#include "order/mix.h"
#include "order/numbers.h"
#include "order/order.h"
#include "order/permutation.h"
#include "order/philox.h"
#include "order/sampling.h"
#include "order/split_part.h"
#include "order/stages.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

static uint64_t pick_state = 1;
static inline uint64_t pick(uint64_t bound) {
    pick_state = pick_state * 6364136223846793005u + 1442695040888963407u;
    return (pick_state >> 33) % bound;
}

/* ------------------------------------------------------------------- lists */

#define MOST_LIST 3000

struct list {
    size_t count;
    struct brim__location at[MOST_LIST];
};

/* Lists are used again: they are large, and sanitizers make freeing slow. */
static struct list *unused[64];
static size_t unused_count;

static inline struct list *list_new(void) {
    struct list *list = unused_count > 0 ? unused[--unused_count] : malloc(sizeof *list);
    assert_non_null(list);
    list->count = 0;
    return list;
}
static inline void list_free(struct list *list) {
    assert_true(unused_count < BRIM__COUNT(unused));
    unused[unused_count++] = list;
}
/* Moves the rows of `from` into `list`, and frees it. */
static inline void replace(struct list *list, struct list *from) {
    list->count = from->count;
    memcpy(list->at, from->at, from->count * sizeof from->at[0]);
    list_free(from);
}
static inline void append(struct list *list, struct brim__location place) {
    assert(list->count < MOST_LIST);
    list->at[list->count++] = place;
}

/* Cuts into blocks, lays them out in permuted order, then permutes the rows of
 * every sixteen of them. */
static inline void shuffle_list_by_blocks(struct list *list, uint64_t block, uint64_t key) {
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

static inline void permute_list(struct list *list, uint64_t key) {
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

static inline void keep_range(struct list *list, size_t first, size_t count) {
    first = brim__min(first, list->count);
    count = brim__min(count, list->count - first);
    memmove(list->at, list->at + first, count * sizeof list->at[0]);
    list->count = count;
}

static struct list *list_of(const struct brim__order *order, uint32_t at, uint64_t epoch);

/* Appends the rows of `from`, and frees it. */
static inline void join(struct list *list, struct list *from) {
    for (size_t i = 0; i < from->count; i++) {
        append(list, from->at[i]);
    }
    list_free(from);
}

static inline void choose(struct list *list, const struct brim__numbers *numbers) {
    struct list *chosen = list_new();
    for (uint64_t i = 0; i < numbers->count; i++) {
        append(chosen, list->at[brim__number_at(numbers, i)]);
    }
    replace(list, chosen);
}

/* ----------------------------------------------------------------- classes */

/* The label of a position, in every pipeline of these tests. */
static struct {
    uint64_t classes; /* 0: none */
    uint64_t run;     /* neighbours with one label */
    uint64_t salt;
    uint64_t calls, most; /* of label_run */
} labelled;

static inline int64_t label_at(uint64_t position) {
    const uint64_t hash = brim__hash_words(position / labelled.run, labelled.salt, 1);
    /* skewed: the lesser of two draws; labels below and above 0 */
    const uint64_t c = brim__min(hash % labelled.classes, (hash >> 32) % labelled.classes);
    return ((int64_t)c - 2) * 1000000007;
}

static inline brim_status label_run(void *user, const char *field, uint64_t first, uint64_t count,
                                    int64_t *labels) {
    (void)user;
    if (strcmp(field, "label") != 0) {
        return brim__fail(BRIM_STATUS_INVALID, "there is no field '%s'", field);
    }
    labelled.calls++;
    labelled.most = brim__max(labelled.most, count);
    for (uint64_t i = 0; i < count; i++) {
        labels[i] = label_at(first + i);
    }
    return BRIM_OK;
}

/* Positions below `count` by class and then by position, and where each class
 * begins; the number of classes. */
static inline uint32_t sort_by_class(uint64_t count, uint64_t *position, uint64_t *begin) {
    uint32_t classes = 0;
    uint64_t rank = 0;
    for (int64_t last = INT64_MIN; rank < count;) {
        int64_t next = INT64_MAX;
        for (uint64_t i = 0; i < count; i++) {
            const int64_t label = label_at(i);
            next = label > last && label < next ? label : next;
        }
        begin[classes++] = rank;
        for (uint64_t i = 0; i < count; i++) {
            if (label_at(i) == next) {
                position[rank++] = i;
            }
        }
        last = next;
    }
    begin[classes] = count;
    return classes;
}

static inline uint64_t permuted(uint64_t count, uint64_t key, uint64_t position) {
    struct brim__permutation permutation;
    brim__permutation_init(&permutation, count, key);
    return brim__permute(&permutation, position);
}

/* Balance and weighted: each position looks its sample up in a list of the epoch
 * below that it belongs to. */
static inline struct list *draw(const struct brim__order *order, const struct brim__order_op *op,
                                uint64_t epoch) {
    static uint64_t member[MOST_LIST], begin[MOST_LIST + 1];
    const uint64_t below = order->op[op->input].count;
    struct list *list = list_new();
    const uint32_t classes = sort_by_class(below, member, begin);
    uint64_t smallest = below;
    for (uint32_t c = 0; c < classes; c++) {
        smallest = brim__min(smallest, begin[c + 1] - begin[c]);
    }
    assert(classes > 0 && smallest > 0);
    const uint64_t rounds = (op->count + classes - 1) / classes;
    const uint64_t passes = (rounds + smallest - 1) / smallest;
    /* what lies below is the same in every epoch but for the epoch's number */
    struct list *once = list_of(order, op->input, epoch);
    for (uint64_t p = 0; p < op->count; p++) {
        uint64_t c = 0, k, below_epoch;
        if (op->kind == BRIM__ORDER_BALANCE) {
            const uint64_t key = brim__hash_words(op->key, epoch, 0);
            const uint64_t round = p / classes;
            c = permuted(classes, brim__hash_words(key, round, 1), p % classes);
            const uint64_t size = begin[c + 1] - begin[c];
            const uint64_t pass = round / size;
            k = permuted(size, brim__hash_words(brim__hash_words(key, c, 2), pass, 0),
                         round % size);
            below_epoch = epoch * passes + pass;
        } else {
            const uint64_t drawn = brim__random_below(op->key, p, epoch, 0, (uint64_t)1 << 53);
            while (op->sampling->before[c + 1] <= drawn) {
                c++;
            }
            k = brim__random_below(op->key, p, epoch, 1, begin[c + 1] - begin[c]);
            below_epoch = epoch * op->count + p;
        }
        struct brim__location place = once->at[member[begin[c] + k]];
        place.epoch = below_epoch;
        append(list, place);
    }
    list_free(once);
    return list;
}

/* Number of those among the first `to` of `whole` that a spread choice takes. */
static inline uint64_t spread(uint64_t whole, uint64_t chosen, uint64_t to) {
    return (uint64_t)((unsigned __int128)to * chosen / whole);
}

static inline bool is_in(const struct brim__split_part *part, uint64_t rank) {
    if (part->kind == BRIM__PART_FOLD || part->kind == BRIM__PART_NOT_FOLD) {
        return (rank % part->folds == part->fold) == (part->kind == BRIM__PART_FOLD);
    }
    const uint64_t v = spread(part->whole, part->validation, rank);
    if (spread(part->whole, part->validation, rank + 1) > v) {
        return part->kind == BRIM__PART_VALIDATION;
    }
    const uint64_t left = part->whole - part->validation;
    const bool test = spread(left, part->test, rank - v + 1) > spread(left, part->test, rank - v);
    return part->kind == (test ? BRIM__PART_TEST : BRIM__PART_TRAIN);
}

/* A stratified split or a fold: rank by rank. */
static inline void divide(struct list *list, const struct brim__order_op *op) {
    static uint64_t member[MOST_LIST], begin[MOST_LIST + 1];
    const struct brim__split_part *part = op->part;
    struct list *kept = list_new();
    if (part->classes == NULL) {
        permute_list(list, brim__hash_words(op->key, 0, 0));
    } else {
        struct list *ranked = list_new();
        const uint32_t classes = sort_by_class(list->count, member, begin);
        for (uint32_t c = 0; c < classes; c++) {
            const uint64_t size = begin[c + 1] - begin[c];
            for (uint64_t k = 0; k < size; k++) {
                append(ranked,
                       list->at[member[begin[c] +
                                       permuted(size, brim__hash_words(op->key, c, 2), k)]]);
            }
        }
        replace(list, ranked);
    }
    for (uint64_t rank = 0; rank < list->count; rank++) {
        if (is_in(part, rank)) {
            append(kept, list->at[rank]);
        }
    }
    replace(list, kept);
    if (part->classes != NULL) {
        permute_list(list, brim__hash_words(op->key, part->kind, 1));
    }
}

/* Deals from the parts' streams, from the mix's epoch 0 on. */
static inline void deal(const struct brim__order *order, const struct brim__order_op *op,
                        uint64_t epoch, struct list *list) {
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
static inline struct list *list_of(const struct brim__order *order, uint32_t at, uint64_t epoch) {
    const struct brim__order_op *op = &order->op[at];
    if (op->kind == BRIM__ORDER_BALANCE || op->kind == BRIM__ORDER_WEIGHTED) {
        return draw(order, op, epoch);
    }
    if (op->kind == BRIM__ORDER_LEAF || op->kind == BRIM__ORDER_MIX ||
        op->kind == BRIM__ORDER_CONCAT || op->kind == BRIM__ORDER_REPEAT) {
        struct list *list = list_new();
        if (op->kind == BRIM__ORDER_LEAF) {
            for (uint64_t i = 0; i < op->count; i++) {
                append(list,
                       (struct brim__location){ .sample = i, .epoch = epoch, .leaf = op->input });
            }
        }
        if (op->kind == BRIM__ORDER_MIX) {
            deal(order, op, epoch, list);
        }
        for (uint32_t k = 0; op->kind == BRIM__ORDER_CONCAT && k < op->concat->parts; k++) {
            join(list, list_of(order, op->concat->part[k].top, epoch));
        }
        for (uint64_t pass = 0; op->kind == BRIM__ORDER_REPEAT && pass < op->amount; pass++) {
            join(list, list_of(order, op->input, epoch * op->amount + pass));
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
    case BRIM__ORDER_SUBSET:
        choose(list, op->numbers);
        break;
    case BRIM__ORDER_PART:
        divide(list, op);
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

static inline void assert_place(struct brim__location got, struct brim__location wanted) {
    if (got.sample == wanted.sample && got.epoch == wanted.epoch && got.leaf == wanted.leaf) {
        return; /* cmocka's own comparisons are slow */
    }
    assert_int_equal(got.sample, wanted.sample);
    assert_int_equal(got.epoch, wanted.epoch);
    assert_int_equal(got.leaf, wanted.leaf);
}

/* All positions one by one, in runs of 64, in runs of random lengths. */
static inline void compare_with_list(const struct brim__order *order, uint64_t epoch) {
    struct list *list = list_of(order, order->top, epoch);
    struct brim__location *places = calloc(list->count + 1, sizeof *places);
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

/* ------------------------------------------------------------------ stages */

/* A value of an argument; not given: all zero but `absent`. */
struct given {
    double number;
    const char *text;
    const double *list; /* instead of number, so many */
    size_t count;
    bool absent;
};

#define MOST_ITEMS 64

/* Adds a stage as the plan does, with these values for all of its arguments. */
static inline brim_status add_given(const struct brim__stage *stage,
                                    const struct brim__order_site *site,
                                    const struct given *given) {
    struct brim__item items[MOST_ITEMS];
    struct brim__values lists[8];
    size_t used = 0;
    assert_true(stage->info.argument_count <= BRIM__COUNT(lists));
    for (size_t a = 0; a < stage->info.argument_count; a++) {
        const size_t count = given[a].absent ? 0 : given[a].list != NULL ? given[a].count : 1;
        lists[a] = (struct brim__values){ .items = &items[used], .count = count };
        for (size_t i = 0; i < count; i++) {
            const double number = given[a].list != NULL ? given[a].list[i] : given[a].number;
            assert_true(used < MOST_ITEMS);
            items[used++] = (struct brim__item){
                .text = given[a].text != NULL ? given[a].text : "",
                .integer = isnan(number) || fabs(number) > 9e18 ? 0 : (int64_t)number,
                .real = number,
            };
        }
    }
    const struct brim__use use = { .stage = stage, .values = lists };
    return stage->add_order(&use, site);
}

/* Memory of the orders that a test builds, and a site for their stages. */
static struct brim__arena model_arena;

static inline struct brim__order_site site_of(struct brim__order *order, uint64_t key) {
    return (struct brim__order_site){
        .order = order, .key = key, .arena = &model_arena, .labels = label_run
    };
}
static inline void forget_tables(void) {
    brim__arena_fini(&model_arena);
    brim__arena_init(&model_arena, NULL);
}

/* Numbers for the first arguments of a row; those behind are not given. */
static inline brim_status add_numbers(const struct brim__stage *stage, struct brim__order *order,
                                      uint64_t key, const double *values, size_t count) {
    struct given given[8] = { { 0 } };
    for (size_t a = 0; a < stage->info.argument_count; a++) {
        given[a] =
            a < count ? (struct given){ .number = values[a] } : (struct given){ .absent = true };
    }
    const struct brim__order_site site = site_of(order, key);
    return add_given(stage, &site, given);
}
#define ADD(stage, order, key, ...)                                    \
    add_numbers(&(stage), order, key, (const double[]){ __VA_ARGS__ }, \
                sizeof((const double[]){ __VA_ARGS__ }) / sizeof(double))

/* --------------------------------------------------------------------- mix */

static struct brim__mix mixes[8];

/* Parts of leaves, each shuffled. */
static inline brim_status mix_of(struct brim__order *order, const double *weights,
                                 const uint64_t *counts, size_t parts, uint64_t length) {
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

#endif

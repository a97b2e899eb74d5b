/*
 * stage_split.c: train, validation and test parts of one source.
 *
 * A permutation that is the same in every epoch is cut in three:
 *
 *     0        validation       + test                      count
 *     |-- validation --|-- test --|---------- train ----------|
 *
 * Its key depends only on the seed, not on the stage's position, so two pipelines that split the
 * same samples agree on the parts wherever the stage is in them. For the same reason a split comes
 * before all stages that show a sample at another position in another epoch or twice in one:
 * otherwise a sample that was held out in one epoch would be trained on in the next.
 *
 * Fractions are taken as decimals of 15 digits and multiplied as integers, so 0.3 of 5 samples is
 * exactly 1.5 and rounds to 2. Two fractions are rounded together: the test part ends where their
 * sum does, so the parts never overlap.
 *
 * Stratified, the parts have the same sizes, but are spread over each class (split_part.h).
 */
#include "order/split_part.h"
#include "order/stages.h"

#define UNIT       1000000000000000u  /* 1 as a decimal of 15 digits */
#define MOST_COUNT 9007199254740992.0 /* 2^53: a count is exact as a double */

enum { PART, VALIDATION, TEST, SEED, STRATIFY };
enum { TRAIN_PART, VALIDATION_PART, TEST_PART };

static const brim_argument_info arguments[] = {
    [PART] = {
        .name = "part",
        .type = BRIM_TYPE_CHOICE,
        .flags = BRIM_ARGUMENT_FLAG_REQUIRED | BRIM_ARGUMENT_FLAG_POSITIONAL,
        .choices = "train|validation|test",
        .help = "which part to keep; train is the rest after the other two",
    },
    [VALIDATION] = {
        .name = "validation",
        .type = BRIM_TYPE_REAL,
        .fallback = "0.1",
        .least = 0,
        .most = MOST_COUNT,
        .help = "size of the validation part: below 1 a fraction of the samples, else a number "
                "of samples",
    },
    [TEST] = {
        .name = "test",
        .type = BRIM_TYPE_REAL,
        .fallback = "0",
        .least = 0,
        .most = MOST_COUNT,
        .help = "size of the test part: below 1 a fraction of the samples, else a number of "
                "samples",
    },
    [SEED] = BRIM__ORDER_SEED_ARGUMENT("other parts; all pipelines over one source need the same number"),
    [STRATIFY] = {
        .name = "stratify",
        .type = BRIM_TYPE_WORD,
        .help = "field whose values are divided evenly over the parts; all values are read when "
                "the pipeline is opened",
    },
};

static uint64_t decimal(double fraction) {
    return (uint64_t)(fraction * (double)UNIT + 0.5);
}

/* To the nearest, halves up. */
static uint64_t part_of(uint64_t count, uint64_t fraction) {
    return (uint64_t)(((unsigned __int128)count * fraction + UNIT / 2) / UNIT);
}

/* *rows: of `count`, by a fraction or a number. */
static brim_status size_of(const struct brim__use *use, size_t argument, uint64_t count,
                           uint64_t *rows) {
    const double size = brim__item(use, argument)->real;
    if (!(size >= 0 && size <= MOST_COUNT)) {
        return brim__fail(BRIM_STATUS_INVALID, "split: %s=%g is not a size",
                          arguments[argument].name, size);
    }
    *rows = size < 1 ? part_of(count, decimal(size)) : (uint64_t)size;
    if (size >= 1 && (double)*rows != size) {
        return brim__fail(
            BRIM_STATUS_INVALID,
            "split: %s=%g is neither a fraction below 1 nor a whole number of samples",
            arguments[argument].name, size);
    }
    return BRIM_OK;
}

/* Adds a split whose parts are spread over the classes of a field. */
static brim_status add_stratified(const struct brim__use *use, const struct brim__order_site *site,
                                  uint64_t validation, uint64_t test) {
    static const enum brim__split_part_kind kinds[] = {
        [TRAIN_PART] = BRIM__PART_TRAIN,
        [VALIDATION_PART] = BRIM__PART_VALIDATION,
        [TEST_PART] = BRIM__PART_TEST,
    };
    struct brim__split_part *part;
    brim_status status = brim__arena_take(site->arena, sizeof *part, &part);
    if (status == BRIM_OK) {
        status = brim__classes_read(site, "split", brim__item(use, STRATIFY)->text, &part->classes);
    }
    if (status != BRIM_OK) {
        return status;
    }
    part->kind = kinds[brim__item(use, PART)->integer];
    part->whole = brim__order_count(site->order);
    part->validation = validation;
    part->test = test;
    const uint64_t seed = (uint64_t)brim__item(use, SEED)->integer;
    return brim__order_part(site->order, part, brim__hash_words(seed, 0, BRIM__ORDER_PART));
}

static brim_status add(const struct brim__use *use, const struct brim__order_site *site) {
    const uint64_t count = brim__order_count(site->order);
    uint64_t validation = 0, test = 0;
    brim_status status = brim__order_check_below(site->order, "split", true, site->arena->budget);
    if (status == BRIM_OK) {
        status = size_of(use, VALIDATION, count, &validation);
    }
    if (status == BRIM_OK) {
        status = size_of(use, TEST, count, &test);
    }
    if (status != BRIM_OK) {
        return status;
    }
    const double validation_size = brim__item(use, VALIDATION)->real;
    const double test_size = brim__item(use, TEST)->real;
    bool overlap = validation > count || test > count - validation;
    if (validation_size < 1 && test_size < 1) {
        const uint64_t both = decimal(validation_size) + decimal(test_size);
        overlap = both > UNIT;
        test = overlap ? test : part_of(count, both) - validation;
    }
    if (overlap) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "split: validation=%.15g (%llu samples) and test=%.15g (%llu samples) "
                          "overlap: there are %llu samples; make one of them smaller",
                          validation_size, (unsigned long long)validation, test_size,
                          (unsigned long long)test, (unsigned long long)count);
    }

    if (brim__given(use, STRATIFY)) {
        return add_stratified(use, site, validation, test);
    }
    const uint64_t seed = (uint64_t)brim__item(use, SEED)->integer;
    const uint64_t split_key = brim__hash_words(seed, 0, BRIM__ORDER_SPLIT);
    switch (brim__item(use, PART)->integer) {
    case VALIDATION_PART:
        return brim__order_split(site->order, split_key, 0, validation);
    case TEST_PART:
        return brim__order_split(site->order, split_key, validation, test);
    default:
        return brim__order_split(site->order, split_key, validation + test,
                                 count - validation - test);
    }
}

const struct brim__stage brim__stage_split = {
    .info = {
        .name = "split",
        .summary = "the train, validation or test part of the samples",
        .example = "split train validation=0.1 seed=7",
        .room = BRIM_ROOM_ORDER,
        .version = 1,
        .arguments = arguments,
        .argument_count = BRIM__COUNT(arguments),
    },
    .add_order = add,
};

/*
 * stage_fold.c: folds for cross-validation.
 *
 * As with split, the key depends only on the seed. So all pipelines over the same samples agree on
 * the folds, wherever the stage is in them.
 */
#include "order/split_part.h"
#include "order/stages.h"

enum { FOLD, OF, PART, STRATIFY, SEED };
enum { VALIDATION_PART };

static const brim_argument_info arguments[] = {
    [FOLD] = {
        .name = "fold",
        .type = BRIM_TYPE_INTEGER,
        .flags = BRIM_ARGUMENT_FLAG_REQUIRED | BRIM_ARGUMENT_FLAG_POSITIONAL,
        .least = 0,
        .most = BRIM__ORDER_MOST_ARGUMENT,
        .help = "which fold is held out: 0 to the number of folds minus 1",
    },
    [OF] = {
        .name = "of",
        .type = BRIM_TYPE_INTEGER,
        .fallback = "5",
        .least = 2,
        .most = BRIM__ORDER_MOST_ARGUMENT,
        .help = "number of folds; their sizes differ by one at most",
    },
    [PART] = {
        .name = "part",
        .type = BRIM_TYPE_CHOICE,
        .fallback = "validation",
        .choices = "validation|train",
        .help = "validation: the fold itself; train: all other folds",
    },
    [STRATIFY] = {
        .name = "stratify",
        .type = BRIM_TYPE_WORD,
        .help = "field whose values are divided evenly over the folds; all values are read when "
                "the pipeline is opened",
    },
    [SEED] = BRIM__ORDER_SEED_ARGUMENT("other folds; all pipelines over one source need the same number"),
};

static brim_status add(const struct brim__use *use, const struct brim__order_site *site) {
    struct brim__order *order = site->order;
    const uint64_t fold = (uint64_t)brim__item(use, FOLD)->integer;
    const uint64_t folds = (uint64_t)brim__item(use, OF)->integer;
    const uint64_t count = brim__order_count(order);
    if (fold >= folds || folds > count) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "fold: number %llu of %llu folds of %llu samples; folds are counted from "
                          "0, and there are at most as many as samples",
                          (unsigned long long)fold, (unsigned long long)folds,
                          (unsigned long long)count);
    }
    struct brim__split_part *part;
    brim_status status = brim__order_check_below(order, "fold", true, site->arena->budget);
    if (status == BRIM_OK) {
        status = brim__arena_take(site->arena, sizeof *part, &part);
    }
    if (status != BRIM_OK) {
        return status;
    }
    part->kind =
        brim__item(use, PART)->integer == VALIDATION_PART ? BRIM__PART_FOLD : BRIM__PART_NOT_FOLD;
    part->whole = count;
    part->fold = fold;
    part->folds = folds;
    if (brim__given(use, STRATIFY)) {
        status = brim__classes_read(site, "fold", brim__item(use, STRATIFY)->text, &part->classes);
        if (status != BRIM_OK) {
            return status;
        }
    }
    const uint64_t seed = (uint64_t)brim__item(use, SEED)->integer;
    return brim__order_part(order, part, brim__hash_words(seed, 1, BRIM__ORDER_PART));
}

const struct brim__stage brim__stage_fold = {
    .info = {
        .name = "fold",
        .summary = "one fold of the samples, or all others, for cross-validation",
        .example = "fold 0 of=5 part=train seed=7",
        .room = BRIM_ROOM_ORDER,
        .version = 1,
        .arguments = arguments,
        .argument_count = BRIM__COUNT(arguments),
    },
    .add_order = add,
};

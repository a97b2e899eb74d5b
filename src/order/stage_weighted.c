/*
 * stage_weighted.c: draws with replacement, by the weight of a sample's class.
 */
#include "order/sampling.h"
#include "order/stages.h"

enum { LABEL, WEIGHTS, LENGTH, SEED };

static const brim_argument_info arguments[] = {
    [LABEL] = BRIM__LABEL_ARGUMENT,
    [WEIGHTS] = {
        .name = "weights",
        .type = BRIM_TYPE_REAL,
        .flags = BRIM_ARGUMENT_FLAG_LIST,
        .least = 0,
        .most = 1e300,
        .help = "how often each class is drawn, relative to the sum, in ascending order of the "
                "classes; default: all equally often, so a sample's weight is 1 over the frequency "
                "of its class",
    },
    [LENGTH] = BRIM__ORDER_LENGTH_ARGUMENT(
        "draws in an epoch; 0: as many as there are samples"),
    [SEED] = BRIM__ORDER_SEED_ARGUMENT("other draws"),
};

/* The given weights, one for each class; NULL if there are none. */
static brim_status read_weights(const struct brim__use *use, const struct brim__order_site *site,
                                const struct brim__classes *classes, double **weights) {
    const struct brim__values *given = &use->values[WEIGHTS];
    *weights = NULL;
    if (given->count == 0) {
        return BRIM_OK;
    }
    if (given->count != classes->count) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "weighted: %zu weights for %u classes; give one for each different value "
                          "of '%s', in ascending order",
                          given->count, classes->count, brim__item(use, LABEL)->text);
    }
    brim_status status;
    *weights = brim__alloc(site->arena->budget, given->count * sizeof **weights, &status);
    if (*weights == NULL) {
        return status;
    }
    for (size_t i = 0; i < given->count; i++) {
        (*weights)[i] = given->items[i].real;
    }
    return BRIM_OK;
}

static brim_status add(const struct brim__use *use, const struct brim__order_site *site) {
    const uint64_t seed = (uint64_t)brim__item(use, SEED)->integer;
    const struct brim__classes *classes;
    const struct brim__sampling *sampling;
    double *weights = NULL;
    brim_status status =
        brim__order_check_below(site->order, "weighted", false, site->arena->budget);
    if (status == BRIM_OK) {
        status = brim__classes_read(site, "weighted", brim__item(use, LABEL)->text, &classes);
    }
    if (status == BRIM_OK) {
        status = read_weights(use, site, classes, &weights);
    }
    if (status == BRIM_OK) {
        status = brim__sampling_weighted(site, classes, weights,
                                         (uint64_t)brim__item(use, LENGTH)->integer, &sampling);
    }
    brim__free(weights);
    if (status != BRIM_OK) {
        return status;
    }
    return brim__order_weighted(site->order, sampling,
                                brim__hash_words(site->key, seed, BRIM__ORDER_WEIGHTED));
}

const struct brim__stage brim__stage_weighted = {
    .info = {
        .name = "weighted",
        .summary = "random draws with replacement, by the weights of the classes",
        .example = "weighted label weights=1,2,5",
        .room = BRIM_ROOM_ORDER,
        .version = 1,
        .arguments = arguments,
        .argument_count = BRIM__COUNT(arguments),
    },
    .add_order = add,
};

/*
 * stage_balance.c: every class equally often.
 */
#include "order/sampling.h"
#include "order/stages.h"

enum { LABEL, LENGTH, SEED };

static const brim_argument_info arguments[] = {
    [LABEL] = BRIM__LABEL_ARGUMENT,
    [LENGTH] = BRIM__ORDER_LENGTH_ARGUMENT(
        "samples in an epoch; 0: as many as needed for every sample to come at least once"),
    [SEED] = BRIM__ORDER_SEED_ARGUMENT("another order"),
};

static brim_status add(const struct brim__use *use, const struct brim__order_site *site) {
    const uint64_t seed = (uint64_t)brim__item(use, SEED)->integer;
    const struct brim__classes *classes;
    const struct brim__sampling *sampling;
    brim_status status =
        brim__order_check_below(site->order, "balance", false, site->arena->budget);
    if (status == BRIM_OK) {
        status = brim__classes_read(site, "balance", brim__item(use, LABEL)->text, &classes);
    }
    if (status == BRIM_OK) {
        status = brim__sampling_balanced(site, classes, (uint64_t)brim__item(use, LENGTH)->integer,
                                         &sampling);
    }
    if (status != BRIM_OK) {
        return status;
    }
    return brim__order_balance(site->order, sampling,
                               brim__hash_words(site->key, seed, BRIM__ORDER_BALANCE));
}

const struct brim__stage brim__stage_balance = {
    .info = {
        .name = "balance",
        .summary = "every class equally often, in a new order every epoch",
        .example = "balance label",
        .room = BRIM_ROOM_ORDER,
        .version = 1,
        .arguments = arguments,
        .argument_count = BRIM__COUNT(arguments),
    },
    .add_order = add,
};

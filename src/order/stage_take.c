/*
 * stage_take.c: only the first samples. A count above the number of samples takes all.
 */
#include "order/order.h"
#include "order/stages.h"
#include "order/unnumbered.h"

enum { COUNT };

static const brim_argument_info arguments[] = {
    [COUNT] = BRIM__ORDER_COUNT_ARGUMENT("samples to take; a larger count takes all"),
};

static brim_status add(const struct brim__use *use, const struct brim__order_site *site) {
    return brim__order_take(site->order, (uint64_t)brim__item(use, COUNT)->integer);
}

static brim_status add_unnumbered(const struct brim__use *use,
                                  const struct brim__unnumbered_site *site) {
    return brim__unnumbered_take(site, use->stage->info.name,
                                 (uint64_t)brim__item(use, COUNT)->integer);
}

const struct brim__stage brim__stage_take = {
    .info = {
        .name = "take",
        .summary = "the first samples only",
        .example = "take 1000",
        .room = BRIM_ROOM_ORDER,
        .version = 1,
        .arguments = arguments,
        .argument_count = BRIM__COUNT(arguments),
    },
    .add_order = add,
    .add_unnumbered = add_unnumbered,
};

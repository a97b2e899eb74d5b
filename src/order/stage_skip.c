/*
 * stage_skip.c: leaves out the first samples. A count above the number of samples leaves none.
 */
#include "order/order.h"
#include "order/stages.h"
#include "order/unnumbered.h"

enum { COUNT };

static const brim_argument_info arguments[] = {
    [COUNT] = BRIM__ORDER_COUNT_ARGUMENT(
        "samples to leave out at the beginning; a larger count leaves none"),
};

static brim_status add(const struct brim__use *use, const struct brim__order_site *site) {
    return brim__order_skip(site->order, (uint64_t)brim__item(use, COUNT)->integer);
}

static brim_status add_unnumbered(const struct brim__use *use,
                                  const struct brim__unnumbered_site *site) {
    return brim__unnumbered_skip(site, use->stage->info.name,
                                 (uint64_t)brim__item(use, COUNT)->integer);
}

const struct brim__stage brim__stage_skip = {
    .info = {
        .name = "skip",
        .summary = "all but the first samples",
        .example = "skip 1000",
        .room = BRIM_ROOM_ORDER,
        .version = 1,
        .arguments = arguments,
        .argument_count = BRIM__COUNT(arguments),
    },
    .add_order = add,
    .add_unnumbered = add_unnumbered,
};

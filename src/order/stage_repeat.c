/*
 * stage_repeat.c: several passes as one longer epoch. Stages before it see each
 * pass as an epoch of their own, so a shuffle before it gives each pass another
 * order, and every random draw differs from pass to pass.
 */
#include "order/order.h"
#include "order/stages.h"

enum { TIMES };

static const brim_argument_info arguments[] = {
    [TIMES] = {
        .name = "times",
        .type = BRIM_TYPE_INTEGER,
        .flags = BRIM_ARGUMENT_FLAG_REQUIRED | BRIM_ARGUMENT_FLAG_POSITIONAL,
        .least = 1,
        .most = BRIM__ORDER_MOST_ARGUMENT,
        .help = "passes in one epoch",
    },
};

static brim_status add(const struct brim__use *use, const struct brim__order_site *site) {
    return brim__order_repeat(site->order, (uint64_t)brim__item(use, TIMES)->integer);
}

const struct brim__stage brim__stage_repeat = {
    .info = {
        .name = "repeat",
        .summary = "several passes over the samples as one longer epoch",
        .example = "repeat 3",
        .room = BRIM_ROOM_ORDER,
        .version = 1,
        .arguments = arguments,
        .argument_count = BRIM__COUNT(arguments),
    },
    .add_order = add,
};

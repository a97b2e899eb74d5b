/*
 * stage_mix.c: several pipelines in turn, by weight.
 *
 * Only the row: the parts are pipelines, which the plan opens before it calls
 * brim__order_mix.
 */
#include "order/order.h"
#include "order/stages.h"

static const brim_argument_info arguments[] = {
    {
        .name = "parts",
        .type = BRIM_TYPE_WEIGHTED,
        .flags = BRIM_ARGUMENT_REQUIRED | BRIM_ARGUMENT_POSITIONAL | BRIM_ARGUMENT_LIST,
        .help = "weight (pipeline), once for each part; weights are relative to their sum",
    },
    {
        .name = "length",
        .type = BRIM_TYPE_INTEGER,
        .fallback = "0",
        .least = 0,
        .most = BRIM__ORDER_MOST_ARGUMENT,
        .help = "samples in an epoch, parts beginning again as needed; 0: until a part is "
                "exhausted",
    },
    {
        .name = "seed",
        .type = BRIM_TYPE_INTEGER,
        .fallback = "0",
        .help = "another number gives another sequence of parts",
    },
};

const struct brim__stage brim__stage_mix = {
    .info = {
        .name = "mix",
        .summary = "samples of several pipelines in turn, by weight",
        .example = "mix 0.7 (npy a.npy | shuffle) 0.3 (npy b.npy | shuffle)",
        .room = BRIM_ROOM_ORDER,
        .version = 1,
        .arguments = arguments,
        .argument_count = BRIM__COUNT(arguments),
    },
};

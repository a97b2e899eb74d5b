/*
 * stage_concat.c: several pipelines one after the other.
 *
 * Only the row: the parts are pipelines, which the plan opens before it calls
 * brim__order_concat.
 */
#include "order/order.h"
#include "order/stages.h"

static const brim_argument_info arguments[] = {
    {
        .name = "parts",
        .type = BRIM_TYPE_PIPELINE,
        .flags = BRIM_ARGUMENT_REQUIRED | BRIM_ARGUMENT_POSITIONAL | BRIM_ARGUMENT_LIST,
        .help = "pipelines that give the same fields; the samples of the first come first",
    },
};

const struct brim__stage brim__stage_concat = {
    .info = {
        .name = "concat",
        .summary = "the samples of several pipelines, one pipeline after the other",
        .example = "concat (npy a.npy) (npy b.npy)",
        .room = BRIM_ROOM_ORDER,
        .version = 1,
        .arguments = arguments,
        .argument_count = BRIM__COUNT(arguments),
    },
};

/*
 * stage_concat.c: several pipelines one after the other.
 *
 * The plan opens the parts, which are pipelines, one by one; concat.c does the arithmetic.
 */
#include "order/order.h"
#include "order/stages.h"

enum { PARTS };

static const brim_argument_info arguments[] = {
    [PARTS] = {
        .name = "parts",
        .type = BRIM_TYPE_PIPELINE,
        .flags = BRIM_ARGUMENT_FLAG_REQUIRED | BRIM_ARGUMENT_FLAG_POSITIONAL | BRIM_ARGUMENT_FLAG_LIST,
        .help = "pipelines with the same fields; the samples of the first come first",
    },
};

static brim_status join(const struct brim__use *use, const struct brim__join_site *site) {
    const struct brim__values *parts = &use->values[PARTS];
    uint32_t tops[BRIM__CONCAT_PARTS];
    if (parts->count > BRIM__CONCAT_PARTS) {
        return brim__fail(BRIM_STATUS_UNSUPPORTED, "concat: more than %d parts",
                          BRIM__CONCAT_PARTS);
    }
    for (size_t i = 0; i < parts->count; i++) {
        const brim_status status = site->open_part(site->user, parts->items[i].pipeline,
                                                   brim__hash_words(site->branch, 2, i + 1));
        if (status != BRIM_OK) {
            return brim__fail_within(status, "concat: part %zu", i + 1);
        }
        tops[i] = site->order->top;
        *site->fingerprint =
            brim__hash_words(*site->fingerprint, brim__order_count(site->order), site->order->top);
    }
    struct brim__concat *concat;
    const size_t bytes = brim__concat_bytes(parts->count);
    brim_status status = brim__arena_take(site->arena, bytes, &concat);
    if (status == BRIM_OK) {
        status = brim__order_concat(site->order, concat, tops, parts->count);
    }
    *site->bytes = bytes;
    return status;
}

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
    .join_parts = join,
};

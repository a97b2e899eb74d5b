/*
 * stage_mix.c: several pipelines in turn, by weight.
 *
 * The plan opens the parts, which are pipelines, one by one; mix.c does the arithmetic.
 */
#include "order/order.h"
#include "order/stages.h"

enum { PARTS, LENGTH, SEED };

static const brim_argument_info arguments[] = {
    [PARTS] = {
        .name = "parts",
        .type = BRIM_TYPE_WEIGHTED,
        .flags = BRIM_ARGUMENT_FLAG_REQUIRED | BRIM_ARGUMENT_FLAG_POSITIONAL | BRIM_ARGUMENT_FLAG_LIST,
        .help = "weight (pipeline), once for each part; weights are relative to their sum",
    },
    [LENGTH] = BRIM__ORDER_LENGTH_ARGUMENT(
        "samples in an epoch, parts restarting as needed; 0: until a part is exhausted"),
    [SEED] = BRIM__ORDER_SEED_ARGUMENT("another sequence of parts"),
};

static brim_status join(const struct brim__use *use, const struct brim__join_site *site) {
    const struct brim__values *parts = &use->values[PARTS];
    uint32_t tops[BRIM__ORDER_PARTS];
    double weights[BRIM__ORDER_PARTS];
    if (parts->count > BRIM__ORDER_PARTS) {
        return brim__fail(BRIM_STATUS_UNSUPPORTED, "mix: more than %d parts", BRIM__ORDER_PARTS);
    }
    for (size_t i = 0; i < parts->count; i++) {
        const brim_status status = site->open_part(site->user, parts->items[i].pipeline,
                                                   brim__hash_words(site->branch, 1, i + 1));
        if (status != BRIM_OK) {
            return brim__fail_within(status, "mix: part %zu", i + 1);
        }
        tops[i] = site->order->top;
        weights[i] = parts->items[i].real;
        /* the parts' own order stages are already in the fingerprint */
        *site->fingerprint = brim__hash_words(
            *site->fingerprint, brim__hash(&weights[i], sizeof weights[i], i), site->order->top);
    }
    struct brim__mix *mix;
    const uint64_t seed = (uint64_t)brim__item(use, SEED)->integer;
    const uint64_t length = (uint64_t)brim__item(use, LENGTH)->integer;
    brim_status status = brim__arena_take(site->arena, brim__mix_bytes(), &mix);
    if (status == BRIM_OK) {
        status = brim__order_mix(site->order, mix, brim__hash_words(seed, site->branch, 0), tops,
                                 weights, parts->count, length);
    }
    *site->fingerprint = brim__hash_words(*site->fingerprint, length, seed);
    *site->bytes = brim__mix_bytes();
    return status;
}

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
    .join_parts = join,
};

/*
 * stage_shuffle.c: a random order, as arithmetic: no buffer, no list.
 *
 * The seed is mixed into the key of the stage's position, so that two shuffles of one pipeline
 * differ without seeds.
 */
#include "order/order.h"
#include "order/stages.h"
#include "order/unnumbered.h"

enum { SEED, BLOCK, EACH_EPOCH, BUFFER };

static const brim_argument_info arguments[] = {
    [SEED] = BRIM__ORDER_SEED_ARGUMENT("another order"),
    [BLOCK] = {
        .name = "block",
        .type = BRIM_TYPE_INTEGER,
        .fallback = "0",
        .least = 0,
        .most = BRIM__ORDER_MOST_ARGUMENT,
        .help = "shuffle blocks of this many neighbouring samples, then inside groups of 16 "
                "blocks: for disks where single random reads are slow; 0 shuffles single samples",
    },
    [EACH_EPOCH] = {
        .name = "each_epoch",
        .type = BRIM_TYPE_YESNO,
        .fallback = "yes",
        .help = "yes: a new order in every epoch; no: the same order in all epochs",
    },
    [BUFFER] = {
        .name = "buffer",
        .type = BRIM_TYPE_SIZE,
        .fallback = "0",
        .least = 0,
        .most = 1099511627776.0, /* 2^40 */
        .help = "memory for samples to shuffle, only for streams and after filters, where samples "
                "have no numbers; half of it is filled while the other half is delivered",
    },
};

static uint64_t shuffle_key(const struct brim__use *use, uint64_t key) {
    const uint64_t seed = (uint64_t)brim__item(use, SEED)->integer;
    return brim__hash_words(key, seed, BRIM__ORDER_SHUFFLE);
}

static brim_status add(const struct brim__use *use, const struct brim__order_site *site) {
    if (brim__item(use, BUFFER)->integer != 0) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "shuffle: buffer= is for streams and after filters; here every sample "
                          "has a number, and shuffle needs no memory: leave it out");
    }
    return brim__order_shuffle(site->order, shuffle_key(use, site->key),
                               (uint64_t)brim__item(use, BLOCK)->integer,
                               brim__item(use, EACH_EPOCH)->integer != 0);
}

static brim_status add_unnumbered(const struct brim__use *use,
                                  const struct brim__unnumbered_site *site) {
    const uint64_t buffer = (uint64_t)brim__item(use, BUFFER)->integer;
    if (buffer == 0) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "shuffle: here samples have no numbers (a stream, or after a filter), so "
                          "it needs memory: give buffer=64MiB, or put shuffle before the filter");
    }
    if (brim__item(use, BLOCK)->integer != 0) {
        return brim__fail(BRIM_STATUS_INVALID, "shuffle: block= and buffer= exclude each other");
    }
    return brim__unnumbered_shuffle(site, shuffle_key(use, site->key), buffer,
                                    brim__item(use, EACH_EPOCH)->integer != 0);
}

const struct brim__stage brim__stage_shuffle = {
    .info = {
        .name = "shuffle",
        .summary = "a random order of all samples, without a buffer",
        .example = "shuffle seed=7",
        .room = BRIM_ROOM_ORDER,
        .version = 1,
        .arguments = arguments,
        .argument_count = BRIM__COUNT(arguments),
    },
    .add_order = add,
    .add_unnumbered = add_unnumbered,
};

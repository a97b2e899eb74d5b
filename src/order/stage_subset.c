/*
 * stage_subset.c: the samples whose numbers a file names, in its order.
 *
 * The file's path is not part of a fingerprint; the numbers are.
 */
#include "order/numbers.h"
#include "order/stages.h"

enum { FILE_PATH };

static const brim_argument_info arguments[] = {
    [FILE_PATH] = {
        .name = "file",
        .type = BRIM_TYPE_PATH,
        .flags = BRIM_ARGUMENT_FLAG_REQUIRED | BRIM_ARGUMENT_FLAG_POSITIONAL,
        .help = "numbers of samples, counted from 0 in the order so far: text with one a line "
                "(# begins a comment), or npy with integers in one dimension",
    },
};

static brim_status add(const struct brim__use *use, const struct brim__order_site *site) {
    struct brim__order *order = site->order;
    const struct brim__numbers *numbers;
    const brim_status status = brim__numbers_read(brim__item(use, FILE_PATH)->text,
                                                  brim__order_count(order), site->arena, &numbers);
    if (status != BRIM_OK) {
        return brim__fail_within(status, "subset");
    }
    order->fingerprint =
        brim__hash_words(order->fingerprint, numbers->fingerprint, BRIM__ORDER_SUBSET);
    return brim__order_subset(order, numbers);
}

const struct brim__stage brim__stage_subset = {
    .info = {
        .name = "subset",
        .summary = "the samples whose numbers a file names, in its order",
        .example = "subset chosen.txt",
        .room = BRIM_ROOM_ORDER,
        .version = 1,
        .arguments = arguments,
        .argument_count = BRIM__COUNT(arguments),
    },
    .add_order = add,
};

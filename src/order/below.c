/*
 * below.c: what stages require of the order before them.
 *
 * Classes are read once and are valid in every epoch, and the parts of a split must have no samples
 * in common. Both need an order that has the same sample at the same position in every epoch. A
 * split also needs an order that shows no sample twice.
 */
#include "order/concat.h"
#include "order/numbers.h"

struct look {
    const struct brim__order *order;
    const char *stage;
    bool once;
    brim_budget *budget;
};

static brim_status refuse(const struct look *look, const char *why) {
    return brim__fail(BRIM_STATUS_INVALID, "%s: after %s %s; put %s first", look->stage, why,
                      look->once
                          ? "the parts would share samples from epoch to epoch"
                          : "samples and their labels are at other positions in other epochs",
                      look->stage);
}

static brim_status look_at_subset(const struct look *look, const struct brim__numbers *numbers) {
    bool repeat = false;
    const brim_status status =
        look->once ? brim__numbers_repeat(numbers, look->budget, &repeat) : BRIM_OK;
    if (status == BRIM_OK && repeat) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "%s: the subset before it names a sample twice, which the parts would "
                          "share; name each once, or put %s first",
                          look->stage, look->stage);
    }
    return status;
}

static brim_status look_from(const struct look *look, uint32_t at) {
    for (;; at = look->order->op[at].input) {
        const struct brim__order_op *op = &look->order->op[at];
        brim_status status = BRIM_OK;
        switch (op->kind) {
        case BRIM__ORDER_LEAF:
            return BRIM_OK;
        case BRIM__ORDER_CONCAT:
            for (uint32_t k = 0; k < op->concat->parts && status == BRIM_OK; k++) {
                status = look_from(look, op->concat->part[k].top);
            }
            return status;
        case BRIM__ORDER_MIX:
            return refuse(look, "mix");
        case BRIM__ORDER_BALANCE:
            return refuse(look, "balance");
        case BRIM__ORDER_WEIGHTED:
            return refuse(look, "weighted");
        case BRIM__ORDER_SHUFFLE:
            if (op->each_epoch) {
                return refuse(look, "a shuffle that changes each epoch");
            }
            break;
        case BRIM__ORDER_REPEAT:
            if (op->amount > 1) {
                return refuse(look, "repeat");
            }
            break;
        case BRIM__ORDER_SUBSET:
            status = look_at_subset(look, op->numbers);
            if (status != BRIM_OK) {
                return status;
            }
            break;
        case BRIM__ORDER_TAKE:
        case BRIM__ORDER_SKIP:
        case BRIM__ORDER_SPLIT:
        case BRIM__ORDER_PART:
            break;
        }
    }
}

brim_status brim__order_check_below(const struct brim__order *order, const char *stage, bool once,
                                    brim_budget *budget) {
    const struct look look = { .order = order, .stage = stage, .once = once, .budget = budget };
    return look_from(&look, order->top);
}

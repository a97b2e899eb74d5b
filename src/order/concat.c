/*
 * concat.c: putting orders one after the other.
 *
 *     position   0          a           b                      count
 *                |  part 0  |   part 1  |        part 2         |
 *
 * A part without samples takes no positions. All parts are in the epoch of the whole. A shuffle
 * after a concat shuffles the samples of all parts together; a shuffle inside a part moves only
 * that part's samples.
 */
#include "order/concat.h"

#define MOST_COUNT ((uint64_t)1 << 63)

size_t brim__concat_bytes(size_t parts) {
    return sizeof(struct brim__concat) + parts * sizeof(struct brim__concat_part);
}

brim_status brim__order_concat(struct brim__order *order, struct brim__concat *concat,
                               const uint32_t *tops, size_t parts) {
    if (parts == 0 || parts > BRIM__CONCAT_PARTS) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "concat: %zu parts; a concat has 1 to %d, a part may be a concat", parts,
                          BRIM__CONCAT_PARTS);
    }
    if (order->op_count == BRIM__ORDER_OPS) {
        return brim__fail(BRIM_STATUS_UNSUPPORTED,
                          "concat: the pipeline has more than %d sources and order stages in all",
                          BRIM__ORDER_OPS);
    }
    uint64_t count = 0;
    concat->parts = (uint32_t)parts;
    for (uint32_t k = 0; k < concat->parts; k++) {
        assert(tops[k] < order->op_count);
        concat->part[k] = (struct brim__concat_part){ .begin = count, .top = tops[k] };
        if (brim__add_overflows(count, order->op[tops[k]].count, &count) || count > MOST_COUNT) {
            return brim__fail(BRIM_STATUS_INVALID,
                              "concat: with part %u there are more than 2^63 samples; leave parts "
                              "out, or take fewer samples of them",
                              k + 1);
        }
        concat->part[k].end = count;
    }
    order->top = order->op_count++;
    order->op[order->top] = (struct brim__order_op){
        .kind = BRIM__ORDER_CONCAT,
        .input = tops[0],
        .count = count,
        .concat = concat,
    };
    return BRIM_OK;
}

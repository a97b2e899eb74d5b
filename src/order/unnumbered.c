/*
 * unnumbered.c: records the requests of order stages; see unnumbered.h.
 */
#include "order/unnumbered.h"

void brim__unnumbered_init(struct brim__unnumbered *order) {
    *order = (struct brim__unnumbered){ .take = UINT64_MAX };
}

/* take and skip count rows before shuffle and pack_sequences. */
static brim_status check_bound(const struct brim__unnumbered_site *site, const char *stage) {
    if (site->order->shuffled || site->packed) {
        return brim__fail(
            BRIM_STATUS_UNSUPPORTED,
            "%s: not supported after shuffle with buffer= or pack_sequences; put it before them",
            stage);
    }
    site->order->bounded = true;
    return BRIM_OK;
}

brim_status brim__unnumbered_take(const struct brim__unnumbered_site *site, const char *stage,
                                  uint64_t count) {
    const brim_status status = check_bound(site, stage);
    if (status == BRIM_OK) {
        site->order->take = brim__min(site->order->take, count);
    }
    return status;
}

brim_status brim__unnumbered_skip(const struct brim__unnumbered_site *site, const char *stage,
                                  uint64_t count) {
    struct brim__unnumbered *order = site->order;
    const brim_status status = check_bound(site, stage);
    if (status == BRIM_OK) {
        order->skip += brim__min(count, order->take);
        order->take -= order->take == UINT64_MAX ? 0 : brim__min(count, order->take);
    }
    return status;
}

brim_status brim__unnumbered_shuffle(const struct brim__unnumbered_site *site, uint64_t key,
                                     uint64_t buffer_bytes, bool each_epoch) {
    struct brim__unnumbered *order = site->order;
    if (order->shuffled) {
        return brim__fail(BRIM_STATUS_UNSUPPORTED, "shuffle: one shuffle with buffer= is enough");
    }
    order->shuffled = true;
    order->shuffled_packed = site->packed;
    order->each_epoch = each_epoch;
    order->key = key;
    order->buffer_bytes = buffer_bytes;
    return BRIM_OK;
}

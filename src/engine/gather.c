/*
 * gather.c: rows gathered in blocks and given out in another order.
 *
 * There are two blocks. While rows of one are given out, the other is filled;
 * when both are done they change places. Which rows a block holds depends only
 * on where it begins, and in which order they come only on that and the key.
 */
#include "engine/sequencer.h"

#define AHEAD 2 /* rows taken in for each one given out, so that both blocks end together */

static struct brim__block *giving(struct brim__gatherer *gatherer) {
    return &gatherer->block[gatherer->giving];
}
static struct brim__block *filling(struct brim__gatherer *gatherer) {
    return &gatherer->block[1 - gatherer->giving];
}

void brim__gather_go(brim_loader *loader, const struct brim__position *position) {
    struct brim__gatherer *gatherer = &loader->sequencer->gatherer;
    struct brim__position begin = *position;
    begin.given = 0;
    if (!loader->plan->sequence.pack_first) {
        begin.offset = 0; /* of the row that is given next, above this level */
    }
    gatherer->discard = position->given;
    gatherer->given = 0;
    gatherer->ended = false;
    gatherer->left.layout = NULL;
    brim__block_clear(giving(gatherer), &begin);
    brim__block_clear(filling(gatherer), &begin);
    giving(gatherer)->sealed = true;
}

static void seal(brim_loader *loader, struct brim__block *block) {
    const brim_plan *plan = loader->plan;
    block->sealed = true;
    if (plan->sequence.reordering == BRIM__BUCKETED) {
        brim__block_cut(block, &plan->batching.bucket, plan->batching.rows);
    }
}

/* Takes up to `most` rows in. ROW: the block is sealed, or `most` were taken. */
static enum brim__flow fill(brim_loader *loader, uint64_t most) {
    struct brim__sequencer *sequencer = loader->sequencer;
    struct brim__gatherer *gatherer = &sequencer->gatherer;
    struct brim__block *block = filling(gatherer);
    while (!block->sealed && most-- > 0) {
        struct brim__row row = gatherer->left;
        gatherer->left.layout = NULL;
        if (row.layout == NULL) {
            const enum brim__flow flow = sequencer->gather_below(loader, &row);
            if (flow == BRIM__FLOW_WAIT || flow == BRIM__FLOW_FAIL) {
                return flow; /* bad samples go on counting: they are met until a row comes */
            }
            block->skipped += sequencer->met;
            sequencer->met = 0;
            if (flow == BRIM__FLOW_END) {
                gatherer->ended = true;
                seal(loader, block);
                break;
            }
        }
        if (!brim__block_add(block, &row)) {
            gatherer->left = row;
            seal(loader, block);
        }
    }
    return BRIM__FLOW_ROW;
}

bool brim__gather_absorb(brim_loader *loader) {
    struct brim__gatherer *gatherer = &loader->sequencer->gatherer;
    const uint64_t before = filling(gatherer)->rows;
    if (filling(gatherer)->sealed) {
        return false;
    }
    fill(loader, UINT64_MAX);
    return filling(gatherer)->rows != before || filling(gatherer)->sealed;
}

static uint64_t things(const brim_plan *plan, const struct brim__block *block) {
    return plan->sequence.reordering == BRIM__BUCKETED ? block->batches : block->rows;
}

/* The filled block is given out from now on. */
static void change_places(brim_loader *loader) {
    const brim_plan *plan = loader->plan;
    struct brim__gatherer *gatherer = &loader->sequencer->gatherer;
    gatherer->giving = 1 - gatherer->giving;
    const struct brim__block *block = giving(gatherer);
    loader->sequencer->skipped += block->skipped;
    const struct brim__position *begin = &block->begin;
    const uint64_t epoch = plan->sequence.each_epoch ? begin->epoch : 0;
    const uint64_t key = brim__hash_words(
        brim__hash_words(plan->sequence.key, epoch, begin->sample), begin->row, begin->offset);
    brim__block_clear(filling(gatherer), &block->end);
    filling(gatherer)->sealed = gatherer->ended;
    gatherer->given = brim__min(gatherer->discard, things(plan, block));
    gatherer->discard = 0;
    if (things(plan, block) > 0) {
        brim__permutation_init(&gatherer->order, things(plan, block), key);
    }
}

enum brim__flow brim__gather_prepare(brim_loader *loader) {
    struct brim__gatherer *gatherer = &loader->sequencer->gatherer;
    while (gatherer->given == things(loader->plan, giving(gatherer))) {
        if (gatherer->ended && filling(gatherer)->sealed && filling(gatherer)->rows == 0) {
            return BRIM__FLOW_END;
        }
        const enum brim__flow flow = fill(loader, UINT64_MAX);
        if (flow != BRIM__FLOW_ROW) {
            return flow;
        }
        change_places(loader);
    }
    return BRIM__FLOW_ROW;
}

/* Number `given` was given: what comes after it. */
static struct brim__position pass(brim_loader *loader) {
    struct brim__gatherer *gatherer = &loader->sequencer->gatherer;
    const struct brim__block *block = giving(gatherer);
    struct brim__position after = block->begin;
    after.given = ++gatherer->given;
    return gatherer->given == things(loader->plan, block) ? block->end : after;
}

enum brim__flow brim__gather_next(brim_loader *loader, struct brim__row *row) {
    const struct brim__sequence *sequence = &loader->plan->sequence;
    struct brim__gatherer *gatherer = &loader->sequencer->gatherer;
    const enum brim__flow flow = brim__gather_prepare(loader);
    if (flow != BRIM__FLOW_ROW) {
        return flow;
    }
    *row = (struct brim__row){
        .layout = sequence->pack_first ? &sequence->item : &loader->plan->made,
        .packed =
            brim__block_row(giving(gatherer), brim__permute(&gatherer->order, gatherer->given)),
    };
    row->after = pass(loader);
    (void)fill(loader, AHEAD); /* what it says is said again when rows are needed */
    return BRIM__FLOW_ROW;
}

enum brim__flow brim__gather_batch(brim_loader *loader, struct brim__bucket_batch *batch) {
    const struct brim__bucketing *bucket = &loader->plan->batching.bucket;
    struct brim__gatherer *gatherer = &loader->sequencer->gatherer;
    const enum brim__flow flow = brim__gather_prepare(loader);
    if (flow != BRIM__FLOW_ROW) {
        return flow;
    }
    const uint64_t i =
        bucket->shuffle ? brim__permute(&gatherer->order, gatherer->given) : gatherer->given;
    batch->block = giving(gatherer);
    batch->first = brim__block_batch(batch->block, bucket, i, &batch->rows, &batch->width);
    batch->after = pass(loader);
    return BRIM__FLOW_ROW;
}

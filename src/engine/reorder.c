/*
 * reorder.c: rows collected in blocks and given out in another order.
 *
 * There are two blocks. While rows of one are given out, the other is filled;
 * when both are done they are swapped. Which rows a block holds depends only
 * on where it begins, and in which order they come only on that and the key.
 */
#include "engine/sequencer.h"

#define AHEAD 2 /* rows taken in for each one given out, so that both blocks end together */

static struct brim__block *giving(struct brim__reorderer *reorderer) {
    return &reorderer->block[reorderer->giving];
}
static struct brim__block *filling(struct brim__reorderer *reorderer) {
    return &reorderer->block[1 - reorderer->giving];
}

void brim__reorder_go(brim_loader *loader, const struct brim__position *position) {
    struct brim__reorderer *reorderer = &loader->sequencer->reorderer;
    struct brim__position begin = *position;
    begin.given = 0;
    if (!loader->plan->sequence.pack_first) {
        begin.offset = 0; /* of the row that is given next, above this level */
    }
    reorderer->discard = position->given;
    reorderer->given = 0;
    reorderer->ended = false;
    reorderer->left.layout = NULL;
    brim__block_clear(giving(reorderer), &begin);
    brim__block_clear(filling(reorderer), &begin);
    giving(reorderer)->sealed = true;
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
    struct brim__reorderer *reorderer = &sequencer->reorderer;
    struct brim__block *block = filling(reorderer);
    while (!block->sealed && most-- > 0) {
        struct brim__row row = reorderer->left;
        reorderer->left.layout = NULL;
        if (row.layout == NULL) {
            const enum brim__flow flow = sequencer->reorder_below(loader, &row);
            if (flow == BRIM__FLOW_WAIT || flow == BRIM__FLOW_FAIL) {
                return flow; /* bad samples go on counting: they are met until a row comes */
            }
            block->skipped += sequencer->met;
            sequencer->met = 0;
            if (flow == BRIM__FLOW_END) {
                reorderer->ended = true;
                seal(loader, block);
                break;
            }
        }
        if (!brim__block_add(block, &row)) {
            reorderer->left = row;
            seal(loader, block);
        }
    }
    return BRIM__FLOW_ROW;
}

bool brim__reorder_absorb(brim_loader *loader) {
    struct brim__reorderer *reorderer = &loader->sequencer->reorderer;
    const uint64_t before = filling(reorderer)->rows;
    if (filling(reorderer)->sealed) {
        return false;
    }
    fill(loader, UINT64_MAX);
    return filling(reorderer)->rows != before || filling(reorderer)->sealed;
}

static uint64_t things(const brim_plan *plan, const struct brim__block *block) {
    return plan->sequence.reordering == BRIM__BUCKETED ? block->batches : block->rows;
}

/* The filled block is given out from now on. */
static void swap_blocks(brim_loader *loader) {
    const brim_plan *plan = loader->plan;
    struct brim__reorderer *reorderer = &loader->sequencer->reorderer;
    reorderer->giving = 1 - reorderer->giving;
    const struct brim__block *block = giving(reorderer);
    loader->sequencer->skipped += block->skipped;
    const struct brim__position *begin = &block->begin;
    const uint64_t epoch = plan->sequence.each_epoch ? begin->epoch : 0;
    const uint64_t key = brim__hash_words(
        brim__hash_words(plan->sequence.key, epoch, begin->sample), begin->row, begin->offset);
    brim__block_clear(filling(reorderer), &block->end);
    filling(reorderer)->sealed = reorderer->ended;
    reorderer->given = brim__min(reorderer->discard, things(plan, block));
    reorderer->discard = 0;
    if (things(plan, block) > 0) {
        brim__permutation_init(&reorderer->order, things(plan, block), key);
    }
}

enum brim__flow brim__reorder_prepare(brim_loader *loader) {
    struct brim__reorderer *reorderer = &loader->sequencer->reorderer;
    while (reorderer->given == things(loader->plan, giving(reorderer))) {
        if (reorderer->ended && filling(reorderer)->sealed && filling(reorderer)->rows == 0) {
            return BRIM__FLOW_END;
        }
        const enum brim__flow flow = fill(loader, UINT64_MAX);
        if (flow != BRIM__FLOW_ROW) {
            return flow;
        }
        swap_blocks(loader);
    }
    return BRIM__FLOW_ROW;
}

/* Number `given` was given: what comes after it. */
static struct brim__position pass(brim_loader *loader) {
    struct brim__reorderer *reorderer = &loader->sequencer->reorderer;
    const struct brim__block *block = giving(reorderer);
    struct brim__position after = block->begin;
    after.given = ++reorderer->given;
    return reorderer->given == things(loader->plan, block) ? block->end : after;
}

enum brim__flow brim__reorder_next(brim_loader *loader, struct brim__row *row) {
    const struct brim__sequence *sequence = &loader->plan->sequence;
    struct brim__reorderer *reorderer = &loader->sequencer->reorderer;
    const enum brim__flow flow = brim__reorder_prepare(loader);
    if (flow != BRIM__FLOW_ROW) {
        return flow;
    }
    *row = (struct brim__row){
        .layout = sequence->pack_first ? &sequence->item : &loader->plan->made,
        .packed =
            brim__block_row(giving(reorderer), brim__permute(&reorderer->order, reorderer->given)),
    };
    row->after = pass(loader);
    (void)fill(loader, AHEAD); /* what it says is said again when rows are needed */
    return BRIM__FLOW_ROW;
}

enum brim__flow brim__reorder_batch(brim_loader *loader, struct brim__bucket_batch *batch) {
    const struct brim__bucketing *bucket = &loader->plan->batching.bucket;
    struct brim__reorderer *reorderer = &loader->sequencer->reorderer;
    const enum brim__flow flow = brim__reorder_prepare(loader);
    if (flow != BRIM__FLOW_ROW) {
        return flow;
    }
    const uint64_t i =
        bucket->shuffle ? brim__permute(&reorderer->order, reorderer->given) : reorderer->given;
    batch->block = giving(reorderer);
    batch->first = brim__block_batch(batch->block, bucket, i, &batch->rows, &batch->width);
    batch->after = pass(loader);
    return BRIM__FLOW_ROW;
}

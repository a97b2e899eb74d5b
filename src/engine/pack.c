/*
 * pack.c: documents laid end to end into windows of one length; batching/pack_sequences.c describes
 * the fields.
 */
#include "engine/sequencer.h"

void brim__pack_go(brim_loader *loader, const struct brim__position *position) {
    struct brim__packer *packer = &loader->sequencer->packer;
    *packer = (struct brim__packer){ .discard = position->offset, .before = *position };
    packer->before.offset = 0;
    if (loader->plan->sequence.pack_first) {
        packer->before.given = 0; /* of windows, above this level */
    }
}

/* Elements of one kind in the window: rest of it zeroed. */
static void fill_rest(const struct brim__sequence *sequence, uint8_t *item, uint64_t filled) {
    for (uint32_t f = 0; f < sequence->item.output_count; f++) {
        const struct brim__output *output = &sequence->item.output[f];
        const uint64_t element = brim_dtype_bytes(output->dtype);
        memset(item + output->offset + filled * element, 0,
               (sequence->pack_length - filled) * element);
    }
}

/* As much of the document as the window takes. */
static void lay(const struct brim__sequence *sequence, struct brim__packer *packer, uint8_t *item) {
    const struct brim__output *output = sequence->item.output;
    const uint64_t element = brim_dtype_bytes(output[0].dtype);
    uint64_t ignored;
    const uint8_t *from = brim__row_field(&packer->from, sequence->pack_field, &ignored);
    const uint64_t count =
        brim__min(packer->count - packer->used, sequence->pack_length - packer->filled);
    int32_t *position = (int32_t *)(void *)(item + output[1].offset) + packer->filled;
    int32_t *document = (int32_t *)(void *)(item + output[2].offset) + packer->filled;
    if (packer->filled == 0) {
        brim__layout_ids(&sequence->item, item)[0] = brim__row_number(&packer->from);
    }
    packer->documents++;
    memcpy(item + output[0].offset + packer->filled * element, from + packer->used * element,
           count * element);
    for (uint64_t i = 0; i < count; i++) {
        position[i] = (int32_t)(packer->used + i);
        document[i] = (int32_t)packer->documents;
    }
    packer->used += count;
    packer->filled += count;
}

/* The document is packed whole: the next one begins after it. */
static void leave(struct brim__packer *packer) {
    packer->before = packer->from.after;
    packer->from.layout = NULL;
}

static enum brim__flow hand_out(const brim_loader *loader, struct brim__row *row) {
    struct brim__packer *packer = &loader->sequencer->packer;
    *row = (struct brim__row){ .layout = &loader->plan->sequence.item,
                               .memory = loader->sequencer->item.memory,
                               .after = packer->before };
    row->after.offset = packer->from.layout != NULL ? packer->used : 0;
    packer->filled = packer->documents = 0;
    return BRIM__FLOW_ROW;
}

/* A document that must not be split and does not fit waits for the next window. */
static bool must_wait(const struct brim__sequence *sequence, const struct brim__packer *packer) {
    return !sequence->pack_split && packer->filled > 0 && packer->used == 0 &&
           packer->count > sequence->pack_length - packer->filled;
}

enum brim__flow brim__pack_next(brim_loader *loader, struct brim__row *row) {
    const struct brim__sequence *sequence = &loader->plan->sequence;
    struct brim__sequencer *sequencer = loader->sequencer;
    struct brim__packer *packer = &sequencer->packer;
    uint8_t *item = sequencer->item.memory;
    while (packer->filled < sequence->pack_length) {
        if (packer->from.layout == NULL) {
            const enum brim__flow flow =
                packer->ended ? BRIM__FLOW_END : sequencer->pack_below(loader, &packer->from);
            if (flow != BRIM__FLOW_ROW) {
                packer->from.layout = NULL;
                packer->ended = flow == BRIM__FLOW_END;
                if (!packer->ended || packer->filled == 0) {
                    return flow;
                }
                break;
            }
            brim__row_field(&packer->from, sequence->pack_field, &packer->count);
            packer->used = brim__min(packer->discard, packer->count);
            packer->discard = 0;
        }
        if (must_wait(sequence, packer)) {
            break;
        }
        if (packer->used < packer->count) {
            lay(sequence, packer, item);
        }
        if (packer->used == packer->count) {
            leave(packer);
        }
    }
    fill_rest(sequence, item, packer->filled);
    return hand_out(loader, row);
}

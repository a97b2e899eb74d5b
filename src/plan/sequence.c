/*
 * sequence.c: planning of sequenced plans; see sequence.h.
 */
#include "plan/plan.h"

#define CHUNK_BYTES   (128u << 10) /* a lock and a wake for each are then worth it */
#define CHUNK_SAMPLES 256
#define SMALL_CHUNK   (64u << 10)
#define MANY_CHUNKS   8
#define FEW_CHUNKS    4
#define ROW_OVERHEAD  40 /* of a row in a block: its number and its entry */

brim_status brim__sequence_begin(brim_plan *plan, const char *stage, bool nested) {
    if (nested) {
        return brim__fail(BRIM_STATUS_UNSUPPORTED,
                          "'%s' cannot be inside parentheses, where every sample needs a number: "
                          "put it after them",
                          stage);
    }
    if (!plan->sequence.on) {
        plan->sequence.on = true;
        plan->sequence.cause = stage;
        brim__unnumbered_init(&plan->sequence.asked);
    }
    return BRIM_OK;
}

brim_status brim__sequence_order(brim_plan *plan, const struct brim__use *use, uint64_t key) {
    const struct brim__unnumbered_site site = {
        .order = &plan->sequence.asked,
        .key = key,
        .packed = plan->batching.pack.on,
    };
    if (use->stage->add_unnumbered == NULL) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "%s: here samples have no numbers: put it before the filter, or read a "
                          "file instead of a stream",
                          use->stage->info.name);
    }
    return use->stage->add_unnumbered(use, &site);
}

/* ------------------------------------------------------------------ layout */

static brim_status lay_out_pack(brim_plan *plan) {
    const struct brim__packing *pack = &plan->batching.pack;
    struct brim__sequence *sequence = &plan->sequence;
    const struct brim__layout *made = &plan->made;
    uint32_t f = 0;
    while (f < made->output_count &&
           (pack->field[0] != '\0' ? strcmp(made->output[f].name, pack->field) != 0
                                   : made->output[f].form == BRIM_FORM_DENSE)) {
        f++;
    }
    if (f == made->output_count) {
        return brim__fail(BRIM_STATUS_INVALID, "pack_sequences: there is no field%s%s%s to pack",
                          pack->field[0] != '\0' ? " '" : " that differs in length", pack->field,
                          pack->field[0] != '\0' ? "'" : "");
    }
    const struct brim__output *from = &made->output[f];
    if (from->form == BRIM_FORM_DENSE || from->padded || from->shape.rank != 1) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "pack_sequences: field '%s' is not a list that differs in length from "
                          "sample to sample%s",
                          from->name, from->padded ? "; leave out pad" : "");
    }
    sequence->pack = true;
    sequence->pack_field = f;
    sequence->pack_length = pack->length;
    sequence->pack_split = pack->split;
    static const char *const names[] = { NULL, "position", "document" };
    struct brim__layout *item = &sequence->item;
    item->output_count = BRIM__COUNT(names);
    for (uint32_t i = 0; i < BRIM__COUNT(names); i++) {
        struct brim__output *output = &item->output[i];
        brim__copy_text(output->name, sizeof output->name, i == 0 ? from->name : names[i]);
        output->dtype = i == 0 ? from->dtype : BRIM_DTYPE_I32;
        output->shape = (struct brim__shape){ .rank = 1, .dim = { pack->length } };
        if (i > 0 && strcmp(names[i], from->name) == 0) {
            return brim__fail(BRIM_STATUS_INVALID,
                              "pack_sequences: the field to pack is called '%s', like a field that "
                              "it adds: give it another name",
                              from->name);
        }
    }
    return brim__layout_set_offsets(item, 1, 0);
}

/* Bytes of the largest row of a layout in a block. */
static uint64_t packed_row(const struct brim__layout *layout) {
    uint64_t bytes = ROW_OVERHEAD;
    for (uint32_t f = 0; f < layout->output_count; f++) {
        bytes += layout->output[f].row_bytes + sizeof(uint64_t);
    }
    return bytes;
}

static brim_status check_bucket(const brim_plan *plan) {
    const struct brim__bucketing *bucket = &plan->batching.bucket;
    bool padded = false;
    if (plan->sequence.asked.shuffled || plan->sequence.pack) {
        return brim__fail(
            BRIM_STATUS_UNSUPPORTED,
            "bucket collects samples itself: leave out shuffle with buffer= and pack_sequences");
    }
    for (uint32_t f = 0; f < plan->made.output_count; f++) {
        const struct brim__output *output = &plan->made.output[f];
        const uint64_t widest =
            bucket->edges > 0 ? bucket->edge[bucket->edges - 1] : bucket->tokens;
        padded |= output->padded;
        if (output->padded && output->shape.dim[0] > widest) {
            return brim__fail(
                BRIM_STATUS_INVALID,
                "bucket: field '%s' may have %llu elements, but a batch has room for rows of %llu: "
                "give the source a smaller bound (max_length, max_bytes) or bucket a larger %s",
                output->name, (unsigned long long)output->shape.dim[0], (unsigned long long)widest,
                bucket->edges > 0 ? "last edge" : "number of tokens");
        }
    }
    if (!padded) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "bucket: no field is padded to the longest of its batch: put `pad "
                          "on=...` without to= before it, for the field whose length counts");
    }
    return BRIM_OK;
}

static brim_status check_batching(const brim_plan *plan) {
    const struct brim__batching *batching = &plan->batching;
    if (batching->on_error == BRIM__REPLACE) {
        return brim__fail(BRIM_STATUS_INVALID, "on_error=replace needs samples with numbers: after "
                                               "a filter or for a stream use on_error=skip");
    }
    if (batching->remainder == BRIM__DROP && batching->micro != 0) {
        return brim__fail(BRIM_STATUS_UNSUPPORTED,
                          "remainder=drop with micro-batches needs the number of samples, which is "
                          "not known here before the end: leave out one of them");
    }
    return BRIM_OK;
}

static brim_status size_blocks(brim_plan *plan, const struct brim__layout *row) {
    struct brim__sequence *sequence = &plan->sequence;
    if (sequence->reordering == BRIM__IN_ORDER) {
        return BRIM_OK;
    }
    const uint64_t least = brim__align(packed_row(row), brim__page_bytes());
    sequence->block_bytes = brim__align(sequence->block_bytes, brim__page_bytes());
    if (sequence->block_bytes < least) {
        const uint64_t both = 2 * sequence->block_bytes, needed = 2 * least;
        return brim__fail(BRIM_STATUS_INVALID,
                          "buffer=%llu: half of it must hold one sample of the largest size, so at "
                          "least %llu bytes are needed",
                          (unsigned long long)both, (unsigned long long)needed);
    }
    return BRIM_OK;
}

/* Computes how many samples workers make at a time, and the size of the chunks for them. */
static brim_status size_chunks(brim_plan *plan) {
    uint64_t sample = 1;
    for (uint32_t f = 0; f < plan->made.output_count; f++) {
        uint64_t bytes;
        const struct brim__output *output = &plan->made.output[f];
        if (brim__shape_bytes_overflow(&output->shape, brim_dtype_bytes(output->dtype), &bytes) ||
            brim__add_overflows(sample, bytes, &sample)) {
            return brim__fail(BRIM_STATUS_INVALID, "a sample is too large");
        }
    }
    if (brim__mul_overflows(sample, plan->rows_per_sample, &sample)) {
        return brim__fail(BRIM_STATUS_INVALID, "the result of one sample is too large");
    }
    const uint64_t samples =
        brim__max(1, brim__min(CHUNK_SAMPLES, CHUNK_BYTES / brim__max(1, sample)));
    const struct brim__batching chunk = { .rows = samples };
    brim_status status =
        brim__shard_init(&plan->deliveries, &chunk, brim__order_count(&plan->order), 0, 1);
    if (status == BRIM_OK) {
        status = brim__layout_set_offsets(&plan->made, samples * plan->rows_per_sample, 0);
    }
    if (status == BRIM_OK && plan->made.bytes > UINT64_MAX / 64) {
        return brim__fail(BRIM_STATUS_INVALID, "the result of one sample is too large");
    }
    plan->sequence.chunks = plan->made.bytes <= SMALL_CHUNK ? MANY_CHUNKS : FEW_CHUNKS;
    return status;
}

/* Lays out the requests of order stages. */
static void lay_out_order(struct brim__sequence *sequence) {
    const struct brim__unnumbered *asked = &sequence->asked;
    sequence->skip = asked->skip;
    sequence->take = asked->take;
    if (asked->shuffled) {
        sequence->reordering = BRIM__SHUFFLED;
        sequence->pack_first = asked->shuffled_packed;
        sequence->each_epoch = asked->each_epoch;
        sequence->key = asked->key;
        sequence->block_bytes = brim__divide_up(asked->buffer_bytes, 2);
    }
}

brim_status brim__sequence_lay_out(brim_plan *plan) {
    struct brim__sequence *sequence = &plan->sequence;
    const struct brim__bucketing *bucket = &plan->batching.bucket;
    lay_out_order(sequence);
    brim_status status = check_batching(plan);
    if (status == BRIM_OK) {
        status = size_chunks(plan);
    }
    if (status == BRIM_OK && plan->batching.pack.on) {
        status = lay_out_pack(plan);
    }
    if (status == BRIM_OK && bucket->on) {
        status = check_bucket(plan);
        sequence->reordering = BRIM__BUCKETED;
        sequence->each_epoch = true;
        sequence->key = brim__hash_words(bucket->seed, BRIM__BUCKETED, 0);
        sequence->block_bytes = bucket->buffer / 2;
    }
    if (status != BRIM_OK) {
        return status;
    }
    const struct brim__layout *from = sequence->pack ? &sequence->item : &plan->made;
    status = size_blocks(plan, sequence->pack && sequence->pack_first ? from : &plan->made);
    plan->placed = *from;
    return status == BRIM_OK
               ? brim__layout_set_offsets(&plan->placed, plan->shard.micro_rows, bucket->tokens)
               : status;
}

uint64_t brim__sequence_bytes(const brim_plan *plan) {
    const struct brim__sequence *sequence = &plan->sequence;
    if (!sequence->on) {
        return 0;
    }
    return sequence->chunks * plan->made.bytes + (sequence->pack ? sequence->item.bytes : 0) +
           (sequence->reordering != BRIM__IN_ORDER ? 2 * sequence->block_bytes : 0);
}

/*
 * stream.c: documents of unequal length from a function that gives one after the other, in batches
 * of similar length.
 *
 * `pull` stands for a socket, a queue or a generator. Documents shorter than 8 tokens are left out;
 * the others are padded to the longest of their batch, and batches are bounded by tokens, not by
 * rows. With `reopen` a second epoch is possible, and so is resuming in the middle.
 */
#include <brim.h>

#include <inttypes.h>
#include <stdio.h>

enum { DOCUMENTS = 2000, LONGEST = 200, TOKENS = 4096 };

struct stream {
    uint64_t next; /* the document that comes next */
};

/* The next document, if there is one more. */
static int pull(void *user, brim_value *outputs, size_t output_count, char *why, size_t why_bytes) {
    struct stream *stream = user;
    (void)output_count, (void)why, (void)why_bytes;
    if (stream->next == DOCUMENTS) {
        return BRIM_ANSWER_DONE;
    }
    const uint64_t number = stream->next++;
    const int64_t length = (int64_t)(number * 7919 % (LONGEST + 1));
    int32_t *tokens = outputs[0].data;
    for (int64_t i = 0; i < length; i++) {
        tokens[i] = (int32_t)((number * 31 + (uint64_t)i) % 50000);
    }
    outputs[0].shape[0] = length; /* it was the bound before */
    return BRIM_ANSWER_SAMPLE;
}

static int reopen(void *user, uint64_t epoch, uint64_t sample, char *why, size_t why_bytes) {
    struct stream *stream = user;
    (void)epoch, (void)why, (void)why_bytes;
    stream->next = sample;
    return BRIM_ANSWER_DONE;
}

struct totals {
    uint64_t batches, rows, tokens, padding, most_rows, fewest_rows;
};

/* Takes the rest of an epoch; after `stop` batches keeps the state. */
static brim_status take_epoch(brim_loader *loader, uint64_t stop, brim_state *state,
                              struct totals *totals) {
    brim_batch *batch;
    brim_status status;
    while ((status = brim_loader_next(loader, BRIM_FOREVER, &batch)) == BRIM_OK) {
        const brim_field *tokens = brim_batch_find(batch, "tokens");
        const int64_t *lengths = brim_batch_find(batch, "tokens_length")->data;
        const uint64_t rows = brim_batch_get(batch)->rows;
        totals->batches++;
        totals->rows += rows;
        totals->most_rows = rows > totals->most_rows ? rows : totals->most_rows;
        totals->fewest_rows =
            totals->fewest_rows == 0 || rows < totals->fewest_rows ? rows : totals->fewest_rows;
        for (uint64_t r = 0; r < rows; r++) {
            totals->tokens += (uint64_t)lengths[r];
            totals->padding += (uint64_t)(tokens->shape[1] - lengths[r]);
        }
        if (totals->batches == stop) {
            status = brim_batch_state(batch, state);
        }
        brim_batch_release(batch);
        if (status != BRIM_OK) {
            return status;
        }
    }
    return status == BRIM_STATUS_END ? BRIM_OK : status;
}

int main(void) {
    struct stream stream = { 0 };
    const brim_field_spec field = { .size = sizeof field,
                                    .name = "tokens",
                                    .dtype = BRIM_DTYPE_I32,
                                    .rank = 1,
                                    .shape = { LONGEST },
                                    .form = BRIM_FORM_RAGGED };
    const brim_binding binding = { .size = sizeof binding,
                                   .name = "documents",
                                   .kind = BRIM_BINDING_STREAM,
                                   .user = &stream,
                                   .fields = &field,
                                   .field_count = 1,
                                   .pull = pull,
                                   .reopen = reopen };
    brim_open_options options = BRIM_OPEN_OPTIONS_INIT;
    options.bindings = &binding;
    options.binding_count = 1;
    brim_runtime_options limits = BRIM_RUNTIME_OPTIONS_INIT;
    limits.host_bytes = 32 << 20;

    brim_runtime *runtime = NULL;
    brim_pipeline *pipeline = NULL;
    brim_loader *loader = NULL;
    brim_state state;
    struct totals whole = { 0 }, rest = { 0 };
    brim_status status = brim_runtime_new(&limits, &runtime);
    if (status == BRIM_OK) {
        status = brim_pipeline_parse("stream @documents | filter \"length(tokens) >= 8\""
                                     " | pad on=tokens | bucket 4096 buffer=256KiB seed=7",
                                     &pipeline);
    }
    if (status == BRIM_OK) {
        status = brim_loader_open(runtime, pipeline, &options, &loader);
    }
    if (status == BRIM_OK) {
        status = take_epoch(loader, 10, &state, &whole);
    }
    if (status == BRIM_OK) {
        printf("%" PRIu64 " documents in %" PRIu64 " batches of %" PRIu64 " to %" PRIu64
               " rows, at most %d tokens each; %.1f %% padding\n",
               whole.rows, whole.batches, whole.fewest_rows, whole.most_rows, TOKENS,
               100.0 * (double)whole.padding / (double)(whole.padding + whole.tokens));
        status = brim_loader_restore(loader, &state);
    }
    if (status == BRIM_OK) {
        status = take_epoch(loader, 0, &state, &rest);
    }
    if (status != BRIM_OK) {
        fprintf(stderr, "stream: %s\n", brim_detail());
    } else {
        printf("from the state after batch 10 on: %" PRIu64 " batches\n", rest.batches);
    }
    brim_loader_close(loader);
    brim_pipeline_free(pipeline);
    brim_runtime_free(runtime);
    return status == BRIM_OK && rest.batches == whole.batches - 10 ? 0 : 1;
}

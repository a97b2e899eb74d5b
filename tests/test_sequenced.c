/*
 * test_sequenced.c: what is placed one after the other: filters, streams,
 * expansions, shuffles with a buffer, batches by length, packed sequences.
 *
 * Where there is a plain description of what must come out, it is computed here
 * and compared; where not (random orders), what must hold of it is. Each way of
 * running a pipeline of the table must give one digest, from every step on too.
 */
#include "support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SAMPLES 1000
#define LONGEST 37

/* ---------------------------------------------------------- the documents
 *
 * Sample i has length_of(i) tokens, token k of it is i * 100 + k, and label
 * i % 5. The same by number, as a stream, and as a stream that can be reopened. */

static uint64_t length_of(uint64_t sample) {
    return sample * 2654435761u % (LONGEST + 1);
}

static void write_sample(uint64_t sample, brim_value *outputs) {
    const uint64_t length = length_of(sample);
    int32_t *tokens = outputs[0].data;
    for (uint64_t k = 0; k < length; k++) {
        tokens[k] = (int32_t)(sample * 100 + k);
    }
    outputs[0].shape[0] = (int64_t)length;
    *(int64_t *)outputs[1].data = (int64_t)(sample % 5);
}

static int read_sample(void *user, const brim_call *call, brim_value *outputs, size_t count,
                       char *why, size_t why_bytes) {
    (void)count;
    if (user != NULL && call->sample % 10 == 7) {
        snprintf(why, why_bytes, "sevens are bad");
        return -1;
    }
    write_sample(call->sample, outputs);
    return 0;
}

static uint64_t stream_at;

static int pull_sample(void *user, brim_value *outputs, size_t count, char *why, size_t why_bytes) {
    (void)count;
    if (stream_at == SAMPLES) {
        return 0;
    }
    const uint64_t sample = stream_at++;
    if (user != NULL && sample % 10 == 7) {
        snprintf(why, why_bytes, "sevens are bad");
        return -1;
    }
    write_sample(sample, outputs);
    return 1;
}

static int reopen_stream(void *user, uint64_t epoch, uint64_t sample, char *why, size_t why_bytes) {
    (void)user, (void)epoch, (void)why, (void)why_bytes;
    stream_at = sample;
    return 0;
}

static int keep_some(void *user, const brim_call *call, const brim_value *inputs, size_t count,
                     char *why, size_t why_bytes) {
    (void)user, (void)inputs, (void)count, (void)why, (void)why_bytes;
    return call->sample % 3 != 1;
}

/* As many samples as the label says, each {label, index}. */
static int multiply(void *user, const brim_call *call, uint64_t index, const brim_value *inputs,
                    size_t input_count, brim_value *outputs, size_t output_count, char *why,
                    size_t why_bytes) {
    (void)user, (void)call, (void)input_count, (void)output_count, (void)why, (void)why_bytes;
    const int64_t label = *(const int64_t *)inputs[1].data;
    if ((int64_t)index >= label) {
        return 0;
    }
    *(int64_t *)outputs[0].data = label * 10 + (int64_t)index;
    return 1;
}

static const brim_field_spec document_fields[] = {
    { .size = sizeof(brim_field_spec),
      .name = "tokens",
      .dtype = BRIM_DTYPE_I32,
      .rank = 1,
      .shape = { LONGEST },
      .form = BRIM_FORM_RAGGED },
    { .size = sizeof(brim_field_spec), .name = "label", .dtype = BRIM_DTYPE_I64 },
};
static const brim_field_spec many_fields[] = {
    { .size = sizeof(brim_field_spec), .name = "value", .dtype = BRIM_DTYPE_I64 },
};
static int marker;

#define DOCUMENTS .fields = document_fields, .field_count = 2
static const brim_binding bindings[] = {
    { .size = sizeof(brim_binding),
      .name = "documents",
      .kind = BRIM_BINDING_SOURCE,
      .count = SAMPLES,
      .flags = BRIM_CALLBACK_PURE | BRIM_CALLBACK_CONCURRENT,
      .read = read_sample,
      DOCUMENTS },
    { .size = sizeof(brim_binding),
      .name = "bad",
      .kind = BRIM_BINDING_SOURCE,
      .count = SAMPLES,
      .user = &marker,
      .flags = BRIM_CALLBACK_PURE | BRIM_CALLBACK_CONCURRENT,
      .read = read_sample,
      DOCUMENTS },
    { .size = sizeof(brim_binding),
      .name = "once",
      .kind = BRIM_BINDING_STREAM,
      .pull = pull_sample,
      DOCUMENTS },
    { .size = sizeof(brim_binding),
      .name = "again",
      .kind = BRIM_BINDING_STREAM,
      .pull = pull_sample,
      .reopen = reopen_stream,
      DOCUMENTS },
    { .size = sizeof(brim_binding),
      .name = "bad_stream",
      .kind = BRIM_BINDING_STREAM,
      .user = &marker,
      .pull = pull_sample,
      .reopen = reopen_stream,
      DOCUMENTS },
    { .size = sizeof(brim_binding),
      .name = "some",
      .kind = BRIM_BINDING_FILTER,
      .filter = keep_some,
      .flags = BRIM_CALLBACK_PURE | BRIM_CALLBACK_CONCURRENT },
    { .size = sizeof(brim_binding),
      .name = "multiply",
      .kind = BRIM_BINDING_FLAT_MAP,
      .count = 4,
      .flat_map = multiply,
      .flags = BRIM_CALLBACK_PURE | BRIM_CALLBACK_CONCURRENT,
      .fields = many_fields,
      .field_count = 1 },
};

static struct how with(int32_t threads) {
    stream_at = 0;
    return (struct how){ .threads = threads,
                         .bindings = bindings,
                         .binding_count = sizeof bindings / sizeof bindings[0] };
}

static const int32_t thread_counts[] = { 0, 1, 3 };

/* The pipelines whose result must not depend on how they are run. */
static const char *const pipelines[] = {
    "callback @documents | filter 'label==3' | batch 7",
    "callback @documents | shuffle seed=4 | filter 'label!=0' | batch 16 remainder=drop",
    "callback @documents | filter by=@some | batch 16 micro=5 remainder=pad",
    "callback @documents | filter 'length(tokens)>2' | pad on=tokens value=-1 | batch 9",
    "callback @documents | filter 'label<9' | skip 3 | take 500 | batch 8",
    "callback @documents | filter 'label>0' | shuffle seed=2 buffer=8KiB | batch 8",
    "callback @documents | shuffle | flat_map @multiply | batch 11",
    "callback @documents | unbatch on=tokens | batch 32",
    "callback @documents | unbatch on=tokens | shuffle buffer=4KiB | batch 32",
    "callback @documents | pad on=tokens | bucket 256 buffer=16KiB",
    "callback @documents | pad on=tokens | bucket 256 buffer=8KiB edges=8,20,40 rows=5 shuffle=no",
    "callback @documents | pack_sequences 50 | batch 4",
    "callback @documents | pack_sequences 20 split=no | batch 4",
    "callback @documents | pack_sequences 50 | shuffle buffer=16KiB | batch 4",
    "callback @documents | filter 'label>=0' | shuffle buffer=8KiB | pack_sequences 50 | batch 4",
    "stream @again | batch 13",
    "stream @again | filter 'label==1' | shuffle buffer=8KiB | batch 5",
    "stream @again | pack_sequences 31 | batch 3",
};
#define PIPELINES (sizeof pipelines / sizeof pipelines[0])

static struct digest digest_of(const char *text, const struct how *how, unsigned epochs) {
    struct session session;
    struct digest digest = { 0 };
    session_open(&session, text, how);
    for (unsigned i = 0; i < epochs; i++) {
        assert_true(take_batches(&session, TO_THE_END, digest_batch, &digest));
    }
    session_close(&session);
    return digest;
}

static void test_one_digest(void **state) {
    (void)state;
    for (size_t i = 0; i < PIPELINES; i++) {
        struct how how = with(0);
        const struct digest expected = digest_of(pipelines[i], &how, 3);
        assert_true(expected.batches > 3);
        for (size_t t = 0; t < 3; t++) {
            for (uint32_t hold = 1; hold <= 3; hold += 2) {
                for (int least = 0; least < 2; least++) {
                    how = with(thread_counts[t]);
                    how.hold = hold;
                    how.bytes = least ? AT_MINIMUM : 0;
                    how.growth = hold == 3 ? BRIM_GROWTH_FIXED : BRIM_GROWTH_ON_DEMAND;
                    const struct digest got = digest_of(pipelines[i], &how, 3);
                    if (got.value != expected.value || got.batches != expected.batches) {
                        fail_msg("%s: threads %d, hold %u, least %d: another digest", pipelines[i],
                                 thread_counts[t], hold, least);
                    }
                }
            }
        }
    }
}

/* --------------------------------------------------------------- resuming */

/* Digest of what comes from a state on, for the rest of this epoch and one more. */
static uint64_t rest_of(const char *text, const struct how *how, const brim_state *from) {
    struct session session;
    struct digest digest = { 0 };
    session_open(&session, text, how);
    session_restore(&session, from);
    assert_true(take_batches(&session, TO_THE_END, digest_batch, &digest));
    assert_true(take_batches(&session, TO_THE_END, digest_batch, &digest));
    session_close(&session);
    return digest.value;
}

struct collected {
    brim_state states[1024];
    size_t count;
};

static void collect(void *user, const brim_batch *batch) {
    struct collected *collected = user;
    assert_true(collected->count < 1024);
    assert_int_equal(brim_batch_state(batch, &collected->states[collected->count++]), BRIM_OK);
}

static void test_resume_from_any_batch(void **state) {
    (void)state;
    for (size_t i = 0; i < PIPELINES; i++) {
        struct collected collected = { .count = 0 };
        struct how how = with(0);
        struct session session;
        session_open(&session, pipelines[i], &how);
        assert_true(take_batches(&session, TO_THE_END, collect, &collected));
        session_close(&session);
        const size_t step = 1 + collected.count / 9;
        for (size_t k = 0; k < collected.count; k += step) {
            /* expected: skip k + 1 batches by taking them */
            struct digest expected = { 0 }, ignored = { 0 };
            how = with(0);
            session_open(&session, pipelines[i], &how);
            take_batches(&session, k + 1, digest_batch, &ignored);
            const brim_state here = session_state(&session);
            const bool last = k + 1 == collected.count;
            assert_true(take_batches(&session, TO_THE_END, digest_batch, &expected));
            assert_true(take_batches(&session, TO_THE_END, digest_batch, &expected));
            session_close(&session);
            how = with(i % 2 == 0 ? 2 : 0);
            how.bytes = AT_MINIMUM;
            if (rest_of(pipelines[i], &how, &collected.states[k]) != expected.value) {
                fail_msg("%s: the batch's state after %zu batches", pipelines[i], k + 1);
            }
            how = with(0);
            if (rest_of(pipelines[i], &how, &here) != expected.value) {
                fail_msg("%s: the loader's state after %zu batches%s", pipelines[i], k + 1,
                         last ? ", the last" : "");
            }
        }
    }
}

static void test_seek(void **state) {
    (void)state;
    const char *text = "callback @documents | filter 'label!=2' | shuffle buffer=8KiB | batch 10";
    struct how how = with(2);
    struct session session;
    struct log log = { 0 };
    log_run(&log, text, &how, 2);
    session_open(&session, text, &how);
    for (uint64_t step = 0; step < 80; step += 13) {
        assert_int_equal(brim_loader_seek(session.loader, 1, step), BRIM_OK);
        brim_batch *batch = take_batch(&session);
        const brim_batch_info *info = brim_batch_get(batch);
        assert_int_equal(info->epoch, 1);
        assert_int_equal(info->step, step);
        const struct logged *expected = &log.batch[80 + step];
        for (uint64_t r = 0; r < info->rows; r++) {
            assert_int_equal(info->samples[r], log.row[expected->first_row + r].id);
        }
        brim_batch_release(batch);
    }
    brim_batch *batch;
    assert_int_equal(brim_loader_seek(session.loader, 0, 80), BRIM_OK);
    assert_int_equal(brim_loader_next(session.loader, BRIM_FOREVER, &batch), BRIM_STATUS_END);
    assert_int_equal(brim_loader_seek(session.loader, 0, 81), BRIM_OK);
    assert_int_equal(brim_loader_next(session.loader, BRIM_FOREVER, &batch), BRIM_STATUS_INVALID);
    assert_detail_has("80 steps");
    session_close(&session);
    text = "callback @documents | filter 'label!=2' | batch 9"; /* the last one is not full */
    session_open(&session, text, &how);
    assert_int_equal(brim_loader_seek(session.loader, 0, 89), BRIM_OK);
    assert_int_equal(brim_loader_next(session.loader, BRIM_FOREVER, &batch), BRIM_STATUS_END);
    assert_int_equal(brim_loader_seek(session.loader, 0, 90), BRIM_OK);
    assert_int_equal(brim_loader_next(session.loader, BRIM_FOREVER, &batch), BRIM_STATUS_INVALID);
    assert_detail_has("89 steps");
    log_free(&log);
    session_close(&session);
}

/* ----------------------------------------------------------------- filters */

static void test_dropping_nothing_is_the_direct_path(void **state) {
    (void)state;
    static const char *const batches[] = {
        "batch 7",          "batch 7 remainder=drop",         "batch 7 remainder=pad",
        "batch 64 micro=9", "batch 64 micro=9 remainder=pad", "batch 2000"
    };
    for (size_t b = 0; b < sizeof batches / sizeof batches[0]; b++) {
        for (size_t t = 0; t < 3; t++) {
            char direct[TEXT_BYTES], sequenced[TEXT_BYTES];
            struct how how = with(thread_counts[t]);
            struct log a = { 0 }, c = { 0 };
            format_text(direct, "callback @documents | shuffle seed=1 | %s", batches[b]);
            format_text(sequenced, "callback @documents | shuffle seed=1 | filter 'label>=0' | %s",
                        batches[b]);
            log_run(&a, direct, &how, 2);
            log_run(&c, sequenced, &how, 2);
            assert_int_equal(a.rows, c.rows);
            assert_rows_equal(a.row, c.row, a.rows);
            /* the last step has as many micro-batches as any, some of them empty */
            const bool micro = strcmp(batches[b], "batch 64 micro=9") == 0;
            assert_int_equal(c.batches - a.batches, micro ? 2 * 3 : 0);
            for (size_t i = 0; !micro && i < a.batches; i++) {
                assert_int_equal(a.batch[i].info.rows, c.batch[i].info.rows);
                assert_int_equal(a.batch[i].info.valid_rows, c.batch[i].info.valid_rows);
                assert_int_equal(a.batch[i].info.step, c.batch[i].info.step);
                assert_int_equal(a.batch[i].info.micro, c.batch[i].info.micro);
                assert_int_equal(a.batch[i].info.first_position, c.batch[i].info.first_position);
            }
            log_free(&a);
            log_free(&c);
        }
    }
}

static void test_dropping_everything_ends(void **state) {
    (void)state;
    for (size_t t = 0; t < 3; t++) {
        struct how how = with(thread_counts[t]);
        struct session session;
        brim_batch *batch;
        session_open(&session, "callback @documents | filter 'label<0' | batch 8", &how);
        for (int epoch = 0; epoch < 4; epoch++) {
            assert_int_equal(brim_loader_next(session.loader, BRIM_FOREVER, &batch),
                             BRIM_STATUS_END);
        }
        const brim_state at = session_state(&session);
        session_restore(&session, &at);
        assert_int_equal(brim_loader_next(session.loader, BRIM_FOREVER, &batch), BRIM_STATUS_END);
        session_close(&session);
    }
}

static void test_filter_keeps_what_it_says(void **state) {
    (void)state;
    struct how how = with(2);
    struct log log = { 0 };
    log_run(&log, "callback @documents | filter 'label==3' 'length(tokens)>=10' | batch 10", &how,
            1);
    size_t row = 0;
    for (uint64_t i = 0; i < SAMPLES; i++) {
        if (i % 5 == 3 && length_of(i) >= 10) {
            assert_true(row < log.rows);
            assert_int_equal(log.row[row++].id, i);
        }
    }
    assert_int_equal(row, log.rows);
    log_free(&log);
}

/* -------------------------------------------------------------- expansions */

struct values {
    int64_t value[64 * SAMPLES];
    size_t count;
};

static void collect_values(void *user, const brim_batch *batch) {
    struct values *values = user;
    const brim_field *field = brim_batch_field_at(batch, 0);
    for (int64_t r = 0; r < field->shape[0]; r++) {
        values->value[values->count++] = field->dtype == BRIM_DTYPE_I64
                                             ? ((const int64_t *)field->data)[r]
                                             : ((const int32_t *)field->data)[r];
    }
}

static void test_many_from_one(void **state) {
    (void)state;
    for (size_t t = 0; t < 3; t++) {
        struct values *values = calloc(1, sizeof *values);
        struct how how = with(thread_counts[t]);
        struct session session;
        size_t at = 0;
        assert_non_null(values);
        session_open(&session, "callback @documents | flat_map @multiply | batch 13", &how);
        assert_true(take_batches(&session, TO_THE_END, collect_values, values));
        session_close(&session);
        for (int64_t i = 0; i < SAMPLES; i++) {
            for (int64_t k = 0; k < i % 5; k++) {
                assert_int_equal(values->value[at++], i % 5 * 10 + k);
            }
        }
        assert_int_equal(at, values->count);
        values->count = at = 0;
        session_open(&session, "callback @documents | unbatch on=tokens | batch 13", &how);
        assert_true(take_batches(&session, TO_THE_END, collect_values, values));
        session_close(&session);
        for (uint64_t i = 0; i < SAMPLES; i++) {
            for (uint64_t k = 0; k < length_of(i); k++) {
                assert_int_equal(values->value[at++], i * 100 + k);
            }
        }
        assert_int_equal(at, values->count);
        free(values);
    }
}

/* ----------------------------------------------------------------- gathering */

static int compare_numbers(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Each sample once in rows [first, first + SAMPLES) of a log. */
static void assert_permutation(const struct log *log, size_t first) {
    uint64_t ids[SAMPLES];
    for (size_t i = 0; i < SAMPLES; i++) {
        ids[i] = log->row[first + i].id;
    }
    qsort(ids, SAMPLES, sizeof ids[0], compare_numbers);
    for (size_t i = 0; i < SAMPLES; i++) {
        assert_int_equal(ids[i], i);
    }
}

static void test_shuffle_with_a_buffer(void **state) {
    (void)state;
    struct how how = with(1);
    struct log log = { 0 };
    log_run(&log, "stream @again | shuffle buffer=32KiB seed=5 | batch 10", &how, 2);
    assert_int_equal(log.rows, 2 * SAMPLES);
    assert_permutation(&log, 0);
    assert_permutation(&log, SAMPLES);
    size_t same = 0, neighbours = 0;
    for (size_t i = 0; i < SAMPLES; i++) {
        same += log.row[i].id == log.row[SAMPLES + i].id;
        neighbours += i > 0 && log.row[i].id == log.row[i - 1].id + 1;
    }
    assert_true(same < SAMPLES / 10);       /* another order each epoch */
    assert_true(neighbours < SAMPLES / 10); /* and hardly any pair stays together */
    log_free(&log);
}

struct lengths {
    uint64_t seen[SAMPLES];
    uint64_t padding, elements, batches;
    const int64_t *edges;
};

static void check_bucket(void *user, const brim_batch *batch) {
    struct lengths *lengths = user;
    const brim_batch_info *info = brim_batch_get(batch);
    const brim_field *tokens = brim_batch_find(batch, "tokens");
    const int64_t *length = brim_batch_find(batch, "tokens_length")->data;
    const int64_t width = tokens->shape[1];
    int64_t longest = 0;
    assert_true((int64_t)info->rows * width <= 256);
    assert_int_equal(tokens->form, BRIM_FORM_DENSE);
    for (uint64_t r = 0; r < info->rows; r++) {
        const int32_t *row = (const int32_t *)(const void *)((const char *)tokens->data +
                                                             (int64_t)r * tokens->strides[0]);
        const uint64_t sample = info->samples[r];
        lengths->seen[sample]++;
        assert_int_equal(length[r], length_of(sample));
        longest = length[r] > longest ? length[r] : longest;
        for (int64_t k = 0; k < width; k++) {
            assert_int_equal(row[k], k < length[r] ? (int64_t)sample * 100 + k : 0);
        }
        lengths->padding += (uint64_t)(width - length[r]);
        lengths->elements += (uint64_t)width;
    }
    if (lengths->edges != NULL) {
        size_t e = 0;
        while (lengths->edges[e] < longest) {
            e++;
        }
        assert_int_equal(width, lengths->edges[e]);
    } else {
        assert_int_equal(width, longest > 0 ? longest : 1);
    }
    lengths->batches++;
}

static void test_bucket(void **state) {
    (void)state;
    static const int64_t edges[] = { 8, 20, 40 };
    for (int with_edges = 0; with_edges < 2; with_edges++) {
        struct lengths lengths = { .edges = with_edges ? edges : NULL };
        struct how how = with(2);
        struct session session;
        session_open(&session,
                     with_edges ? "callback @documents | pad on=tokens | bucket 256 edges=8,20,40"
                                : "callback @documents | pad on=tokens | bucket 256 buffer=64KiB",
                     &how);
        assert_true(take_batches(&session, TO_THE_END, check_bucket, &lengths));
        session_close(&session);
        for (size_t i = 0; i < SAMPLES; i++) {
            assert_int_equal(lengths.seen[i], 1);
        }
        if (!with_edges) {
            assert_true(lengths.padding * 10 < lengths.elements); /* below a tenth is wasted */
        }
    }
}

/* ------------------------------------------------------------------ packing */

struct packed {
    int32_t token[64 * SAMPLES];
    int32_t position[64 * SAMPLES];
    int32_t document[64 * SAMPLES];
    size_t count;
    int64_t length;
};

static void collect_packed(void *user, const brim_batch *batch) {
    struct packed *packed = user;
    const brim_field *field = brim_batch_find(batch, "tokens");
    const size_t count = (size_t)(field->shape[0] * field->shape[1]);
    packed->length = field->shape[1];
    memcpy(packed->token + packed->count, field->data, count * 4);
    memcpy(packed->position + packed->count, brim_batch_find(batch, "position")->data, count * 4);
    memcpy(packed->document + packed->count, brim_batch_find(batch, "document")->data, count * 4);
    packed->count += count;
}

static void test_pack(void **state) {
    (void)state;
    for (int split = 0; split < 2; split++) {
        struct packed *packed = calloc(1, sizeof *packed);
        struct how how = with(2);
        struct session session;
        assert_non_null(packed);
        session_open(&session,
                     split ? "callback @documents | pack_sequences 50 | batch 4"
                           : "callback @documents | pack_sequences 20 split=no | batch 4",
                     &how);
        assert_true(take_batches(&session, TO_THE_END, collect_packed, packed));
        session_close(&session);
        size_t at = 0;
        for (uint64_t i = 0; i < SAMPLES; i++) {
            const uint64_t length = length_of(i);
            const size_t window = (size_t)packed->length;
            if (!split && length > 0 && at % window != 0 && length > window - at % window) {
                while (at % window != 0) { /* what is left of the window is empty */
                    assert_int_equal(packed->document[at++], 0);
                }
            }
            int32_t document = 0;
            for (uint64_t k = 0; k < length; k++, at++) {
                const bool begins = at % window == 0;
                const int32_t before = begins ? 0 : packed->document[at - 1];
                assert_int_equal(packed->token[at], i * 100 + k);
                assert_int_equal(packed->position[at], k);
                document = k == 0 || begins ? before + 1 : document;
                assert_int_equal(packed->document[at], document);
            }
        }
        for (; at < packed->count; at++) {
            assert_int_equal(packed->document[at], 0);
            assert_int_equal(packed->token[at], 0);
        }
        assert_true(packed->count % (size_t)packed->length == 0);
        free(packed);
    }
}

/* -------------------------------------------------------------------- ranks */

static void test_ranks_share_every_batch(void **state) {
    (void)state;
    static const char *const texts[] = {
        "callback @documents | filter 'label!=4' | batch 12 per=global",
        "callback @documents | filter 'label!=4' | batch 12 per=global remainder=drop",
        "callback @documents | filter 'label!=4' | batch 12 per=global remainder=pad",
        "callback @documents | filter 'label!=4' | shuffle buffer=8KiB | batch 12 per=global",
    };
    for (size_t i = 0; i < 4; i++) {
        struct log whole = { 0 }, part[3] = { { 0 } };
        struct how how = with(1);
        log_run(&whole, texts[i], &how, 1);
        for (uint32_t rank = 0; rank < 3; rank++) {
            how.rank = rank;
            how.world = 3;
            log_run(&part[rank], texts[i], &how, 1);
            assert_int_equal(part[rank].batches, whole.batches);
        }
        for (size_t b = 0; b < whole.batches; b++) {
            size_t row = whole.batch[b].first_row;
            const size_t end = row + whole.batch[b].info.rows;
            for (uint32_t rank = 0; rank < 3; rank++) {
                const struct logged *own = &part[rank].batch[b];
                assert_rows_equal(&whole.row[row], &part[rank].row[own->first_row], own->info.rows);
                row += own->info.rows;
            }
            assert_int_equal(row, end);
        }
        log_free(&whole);
        for (uint32_t rank = 0; rank < 3; rank++) {
            log_free(&part[rank]);
        }
    }
}

/* Every rank has equally many micro-batches, and a step ends with its last. */
static void test_ranks_with_micro_batches(void **state) {
    (void)state;
    for (uint32_t world = 1; world <= 3; world++) {
        size_t batches = 0;
        uint64_t rows = 0;
        for (uint32_t rank = 0; rank < world; rank++) {
            struct how how = with(1);
            struct log log = { 0 };
            how.rank = rank;
            how.world = world;
            log_run(&log,
                    "callback @documents | filter 'label!=1' | take 66 | batch 5 per=global "
                    "micro=1",
                    &how, 1);
            assert_true(rank == 0 || log.batches == batches);
            batches = log.batches;
            rows += log.rows;
            for (size_t i = 0; i < log.batches; i++) {
                const brim_batch_info *info = &log.batch[i].info;
                const bool ends = i + 1 == log.batches || log.batch[i + 1].info.step != info->step;
                assert_int_equal(info->micro + 1 == info->micro_count, ends);
            }
            log_free(&log);
        }
        assert_int_equal(rows, 66);
    }
}

/* Each bucket batch goes to one rank. */
static void test_ranks_of_buckets(void **state) {
    (void)state;
    struct lengths lengths = { .edges = NULL };
    uint64_t batches[2];
    for (uint32_t rank = 0; rank < 2; rank++) {
        struct how how = with(1);
        struct session session;
        how.rank = rank;
        how.world = 2;
        lengths.batches = 0;
        session_open(&session, "callback @documents | pad on=tokens | bucket 256 buffer=16KiB",
                     &how);
        assert_true(take_batches(&session, TO_THE_END, check_bucket, &lengths));
        session_close(&session);
        batches[rank] = lengths.batches;
    }
    assert_int_equal(batches[0], batches[1]);
    for (size_t i = 0; i < SAMPLES; i++) {
        assert_int_equal(lengths.seen[i], 1);
    }
}

/* ------------------------------------------------------------------ streams */

static void test_stream_that_is_read_once(void **state) {
    (void)state;
    for (size_t t = 0; t < 3; t++) {
        struct how how = with(thread_counts[t]);
        struct session session;
        struct log log = { 0 };
        brim_batch *batch;
        session_open(&session, "stream @once | batch 100", &how);
        const brim_state begin = session_state(&session);
        assert_true(take_batches(&session, TO_THE_END, log_batch, &log));
        assert_int_equal(log.rows, SAMPLES);
        for (size_t i = 0; i < log.rows; i++) {
            assert_int_equal(log.row[i].id, i);
        }
        assert_int_equal(brim_loader_next(session.loader, BRIM_FOREVER, &batch),
                         BRIM_STATUS_UNSEEKABLE);
        assert_int_equal(brim_loader_next(session.loader, BRIM_FOREVER, &batch),
                         BRIM_STATUS_UNSEEKABLE);
        assert_detail_has("reopen");
        assert_int_equal(brim_loader_seek(session.loader, 0, 0), BRIM_STATUS_UNSEEKABLE);
        assert_int_equal(brim_loader_restore(session.loader, &begin), BRIM_STATUS_UNSEEKABLE);
        log_free(&log);
        session_close(&session);
    }
}

/* ------------------------------------------------------------- bad samples */

static void test_bad_samples(void **state) {
    (void)state;
    static const char *const sources[] = { "callback @bad", "stream @bad_stream" };
    for (size_t i = 0; i < 2; i++) {
        for (size_t t = 0; t < 3; t++) {
            char text[TEXT_BYTES];
            struct how how = with(thread_counts[t]);
            struct log log = { 0 };
            format_text(text, "%s | filter 'label>=0' | batch 10 on_error=skip", sources[i]);
            log_run(&log, text, &how, 2);
            assert_int_equal(log.rows, 2 * SAMPLES * 9 / 10); /* batches are full */
            uint64_t skipped = 0;
            for (size_t b = 0; b < log.batches; b++) {
                skipped += log.batch[b].info.skipped;
            }
            assert_true(skipped >= 2 * SAMPLES / 10 - 2);
            log_free(&log);

            struct session session;
            brim_batch *batch;
            how = with(thread_counts[t]);
            format_text(text, "%s | filter 'label>=0' | batch 10 on_error=skip max_errors=5",
                        sources[i]);
            session_open(&session, text, &how);
            for (int b = 0; b < 5; b++) {
                brim_batch_release(take_batch(&session));
            }
            assert_int_equal(brim_loader_next(session.loader, BRIM_FOREVER, &batch),
                             BRIM_STATUS_CORRUPT);
            assert_detail_has("max_errors=5");
            session_close(&session);

            how = with(thread_counts[t]);
            format_text(text, "%s | filter 'label>=0' | batch 5", sources[i]);
            session_open(&session, text, &how);
            brim_batch_release(take_batch(&session)); /* 0 to 4; 7 is bad */
            assert_int_equal(brim_loader_next(session.loader, BRIM_FOREVER, &batch),
                             BRIM_STATUS_CALLBACK);
            assert_detail_has("sevens are bad");
            if (i == 0) {
                /* it is made again, and fails again */
                assert_int_equal(brim_loader_next(session.loader, BRIM_FOREVER, &batch),
                                 BRIM_STATUS_CALLBACK);
                assert_detail_has("sample 7");
            } else {
                /* a stream goes on behind it */
                batch = take_batch(&session);
                const uint64_t *ids = brim_batch_get(batch)->samples;
                static const uint64_t expected[] = { 5, 6, 8, 9, 10 };
                for (size_t k = 0; k < 5; k++) {
                    assert_int_equal(ids[k], expected[k]);
                }
                brim_batch_release(batch);
            }
            session_close(&session);
        }
    }
}

static int never_reopens(void *user, uint64_t epoch, uint64_t sample, char *why, size_t why_bytes) {
    (void)user, (void)sample;
    snprintf(why, why_bytes, "epoch %d is closed", (int)epoch);
    return epoch == 0 ? 0 : -1;
}

/* A stream that cannot go on is no bad sample: it is told, not skipped. */
static void test_stream_that_is_stuck(void **state) {
    (void)state;
    brim_binding binding = bindings[3];
    binding.reopen = never_reopens;
    for (size_t t = 0; t < 3; t++) {
        struct how how = with(thread_counts[t]);
        struct session session;
        brim_batch *batch;
        how.bindings = &binding;
        how.binding_count = 1;
        session_open(&session, "stream @again | batch 10 on_error=skip", &how);
        struct digest digest = { 0 };
        assert_true(take_batches(&session, TO_THE_END, digest_batch, &digest));
        for (int i = 0; i < 3; i++) {
            assert_int_equal(brim_loader_next(session.loader, BRIM_FOREVER, &batch),
                             BRIM_STATUS_CALLBACK);
            assert_detail_has("closed");
        }
        session_close(&session);
    }
}

static int bad_always(void *user, const brim_call *call, brim_value *outputs, size_t count,
                      char *why, size_t why_bytes) {
    (void)user, (void)call, (void)outputs, (void)count;
    snprintf(why, why_bytes, "always bad");
    return -1;
}

static void test_nothing_but_bad_samples(void **state) {
    (void)state;
    brim_binding binding = bindings[0];
    binding.read = bad_always;
    for (size_t t = 0; t < 3; t++) {
        struct how how = with(thread_counts[t]);
        struct session session;
        brim_batch *batch;
        how.bindings = &binding;
        how.binding_count = 1;
        session_open(&session,
                     "callback @documents | filter 'label>=0' | batch 10 on_error=skip "
                     "max_errors=10",
                     &how);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(brim_loader_next(session.loader, BRIM_FOREVER, &batch),
                             BRIM_STATUS_CORRUPT);
            assert_detail_has("max_errors=10");
            assert_detail_has("always bad");
        }
        session_close(&session);
    }
}

/* The samples [bad_from, bad_to) are bad; changed while workers make samples ahead. */
static _Atomic uint64_t bad_from, bad_to;
static int read_some_bad(void *user, const brim_call *call, brim_value *outputs, size_t count,
                         char *why, size_t why_bytes) {
    if (call->sample >= bad_from && call->sample < bad_to) {
        snprintf(why, why_bytes, "sample %d is bad", (int)call->sample);
        return BRIM_ANSWER_BAD;
    }
    return read_sample(user, call, outputs, count, why, why_bytes);
}

static int pull_some_bad(void *user, brim_value *outputs, size_t count, char *why,
                         size_t why_bytes) {
    if (stream_at >= bad_from && stream_at < bad_to) {
        snprintf(why, why_bytes, "sample %d is bad", (int)stream_at++);
        return BRIM_ANSWER_BAD;
    }
    return pull_sample(user, outputs, count, why, why_bytes);
}

/* Too many stay too many until a seek, also where rows are gathered in buffers: no row of a sample
 * that was not made is delivered, nothing hangs, and after the seek all is as before. */
static void test_too_many_bad_before_a_buffer(void **state) {
    (void)state;
    static const char *const texts[] = {
        "stream @bad | shuffle buffer=64KiB | batch 8 on_error=skip max_errors=2",
        "stream @bad | pad on=tokens | bucket 640 buffer=64KiB on_error=skip max_errors=2",
        "callback @bad | filter 'label>=0' | shuffle buffer=64KiB | batch 8 on_error=skip "
        "max_errors=2",
        "callback @bad | filter 'label>=0' | batch 8 on_error=skip max_errors=2",
    };
    brim_binding read = bindings[0], pull = bindings[3];
    read.name = pull.name = "bad";
    read.read = read_some_bad;
    pull.pull = pull_some_bad;
    for (size_t t = 0; t < 3 * 4 * 2; t++) {
        const char *text = texts[t % 4];
        const bool streams = text[0] == 's';
        struct how how = with(thread_counts[t / 8]);
        struct session session;
        brim_batch *batch;
        /* the last sample of a chunk among them, and not */
        bad_from = t / 4 % 2 == 0 ? 253 : 11;
        bad_to = bad_from + 3;
        stream_at = 0;
        how.bindings = streams ? &pull : &read;
        how.binding_count = 1;
        session_open(&session, text, &how);
        brim_status status;
        while ((status = brim_loader_next(session.loader, BRIM_FOREVER, &batch)) == BRIM_OK) {
            brim_batch_release(batch);
        }
        for (int i = 0; i < 3; i++) {
            assert_int_equal(status, BRIM_STATUS_CORRUPT);
            assert_detail_has("max_errors=2");
            assert_detail_has("is bad");
            status = brim_loader_next(session.loader, BRIM_FOREVER, &batch);
        }
        bad_to = bad_from;
        assert_int_equal(brim_loader_seek(session.loader, 0, 0), BRIM_OK);
        uint64_t rows = 0;
        while ((status = brim_loader_next(session.loader, BRIM_FOREVER, &batch)) == BRIM_OK) {
            rows += brim_batch_get(batch)->rows;
            brim_batch_release(batch);
        }
        assert_int_equal(status, BRIM_STATUS_END);
        assert_int_equal(rows, SAMPLES);
        session_close(&session);
    }
}

/* Which batch tells of which bad sample does not depend on who reads ahead. */
static void test_skipped_are_counted_alike(void **state) {
    (void)state;
    struct log first = { 0 };
    for (size_t t = 0; t < 3; t++) {
        struct how how = with(thread_counts[t]);
        struct log log = { 0 };
        log_run(&log,
                "callback @bad | filter 'label>=0' | shuffle buffer=16KiB | batch 20 "
                "on_error=skip",
                &how, 1);
        for (size_t i = 0; t > 0 && i < log.batches; i++) {
            assert_int_equal(log.batch[i].info.skipped, first.batch[i].info.skipped);
        }
        if (t == 0) {
            first = log;
        } else {
            log_free(&log);
        }
    }
    log_free(&first);
}

/* A state taken between a seek and the batch that it sought. */
static void test_state_after_seek(void **state) {
    (void)state;
    struct how how = with(0);
    struct session session;
    session_open(&session, "callback @documents | filter 'label!=2' | batch 10", &how);
    assert_int_equal(brim_loader_seek(session.loader, 0, 5), BRIM_OK);
    const brim_state at = session_state(&session);
    assert_int_equal(brim_loader_seek(session.loader, 0, 0), BRIM_OK);
    session_restore(&session, &at);
    brim_batch *batch = take_batch(&session);
    assert_int_equal(brim_batch_get(batch)->step, 5);
    brim_batch_release(batch);
    session_close(&session);
}

static int none_of_one(void *user, const brim_call *call, uint64_t index, const brim_value *inputs,
                       size_t input_count, brim_value *outputs, size_t output_count, char *why,
                       size_t why_bytes) {
    (void)user, (void)index, (void)input_count, (void)output_count, (void)why, (void)why_bytes;
    *(int64_t *)outputs[0].data = *(const int64_t *)inputs[1].data;
    return call->sample % 2 == 0;
}

static void test_one_or_none_from_one(void **state) {
    (void)state;
    brim_binding two[] = { bindings[0], bindings[6] };
    two[1].count = 1;
    two[1].flat_map = none_of_one;
    struct how how = with(1);
    struct log log = { 0 };
    how.bindings = two;
    how.binding_count = 2;
    log_run(&log, "callback @documents | flat_map @multiply | batch 10", &how, 1);
    assert_int_equal(log.rows, SAMPLES / 2);
    log_free(&log);
}

/* ----------------------------------------------------------------- refusals */

static void test_refusals(void **state) {
    (void)state;
    struct how how = with(0);
    static const struct {
        const char *text, *part;
        brim_status status;
    } cases[] = {
        { "callback @documents | filter 'label>0' | shuffle | batch 4",
          "buffer=", BRIM_STATUS_INVALID },
        { "callback @documents | shuffle buffer=1MiB | batch 4", "leave it out",
          BRIM_STATUS_INVALID },
        { "callback @documents | filter 'label>0' | repeat 2 | batch 4", "no numbers",
          BRIM_STATUS_INVALID },
        { "callback @documents | filter 'label>0' | take 5 | filter 'label>1' | batch 4",
          "take or skip", BRIM_STATUS_UNSUPPORTED },
        { "mix 1 (callback @documents | filter 'label>0') 1 (callback @documents) | batch 4",
          "parentheses", BRIM_STATUS_UNSUPPORTED },
        { "zip (stream @once) (range 5) | batch 4", "stream", BRIM_STATUS_UNSUPPORTED },
        { "stream @once | batch 4 on_error=replace", "on_error=skip", BRIM_STATUS_INVALID },
        { "stream @once | batch 4 micro=2 remainder=drop", "micro", BRIM_STATUS_UNSUPPORTED },
        { "stream @once | pad on=tokens to=4096 | shuffle buffer=10KiB | batch 4", "at least",
          BRIM_STATUS_INVALID },
        { "stream @once | bucket 64", "pad", BRIM_STATUS_INVALID },
        { "stream @once | pad on=tokens | bucket 16", "37", BRIM_STATUS_INVALID },
        { "stream @once | pack_sequences 8 on=label | batch 4", "label", BRIM_STATUS_INVALID },
        { "stream @once | pack_sequences 8 | cast int64 | batch 4", "before", BRIM_STATUS_SYNTAX },
        { "stream @once | pack_sequences 8 | pack_sequences 8 | batch 4", "there are two",
          BRIM_STATUS_SYNTAX },
        { "callback @documents | unbatch on=tokens | flat_map @multiply | batch 4", "only one",
          BRIM_STATUS_UNSUPPORTED },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        expect_refused(cases[i].text, &how, cases[i].status, cases[i].part);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_digest),
        cmocka_unit_test(test_resume_from_any_batch),
        cmocka_unit_test(test_seek),
        cmocka_unit_test(test_dropping_nothing_is_the_direct_path),
        cmocka_unit_test(test_dropping_everything_ends),
        cmocka_unit_test(test_filter_keeps_what_it_says),
        cmocka_unit_test(test_many_from_one),
        cmocka_unit_test(test_shuffle_with_a_buffer),
        cmocka_unit_test(test_bucket),
        cmocka_unit_test(test_pack),
        cmocka_unit_test(test_ranks_share_every_batch),
        cmocka_unit_test(test_ranks_of_buckets),
        cmocka_unit_test(test_stream_that_is_read_once),
        cmocka_unit_test(test_bad_samples),
        cmocka_unit_test(test_ranks_with_micro_batches),
        cmocka_unit_test(test_stream_that_is_stuck),
        cmocka_unit_test(test_nothing_but_bad_samples),
        cmocka_unit_test(test_too_many_bad_before_a_buffer),
        cmocka_unit_test(test_skipped_are_counted_alike),
        cmocka_unit_test(test_state_after_seek),
        cmocka_unit_test(test_one_or_none_from_one),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests_name("sequenced", tests, begin_tests, end_tests);
}

/*
 * test_stream.c: samples that a function of the program gives one after the other.
 */
#include "program_util.h"
#include "support/support.h"

#include <time.h>

/* A stream of `end` samples; sample s is s and a word of s % 5 letters. */
struct feed {
    uint64_t next, end;
    uint64_t bad;      /* this one fails */
    uint64_t too_long; /* and this one says too much */
    uint64_t slow;     /* the function waits a moment before each from here on */
    unsigned calls;
    uint64_t epoch;
    int refuse;
};

static int pull(void *user, brim_value *outputs, size_t count, char *why, size_t why_bytes) {
    struct feed *feed = user;
    feed->calls++;
    assert_int_equal(count, 2);
    assert_int_equal(outputs[1].form, BRIM_FORM_TEXT);
    assert_int_equal(outputs[1].shape[0], 4);
    assert_int_equal((uintptr_t)outputs[0].data % 64, 0);
    assert_int_equal((uintptr_t)outputs[1].data % 64, 0);
    if (feed->next >= feed->end) {
        return 0;
    }
    const uint64_t s = feed->next++;
    if (s >= feed->slow) {
        nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
    }
    if (s == feed->bad) {
        snprintf(why, why_bytes, "sample %llu is rotten", (unsigned long long)s);
        return BRIM_ANSWER_BAD;
    }
    memcpy(outputs[0].data, &s, sizeof s);
    memcpy(outputs[1].data, "abcd", s % 5);
    outputs[1].shape[0] = s == feed->too_long ? 5 : (int64_t)(s % 5);
    return 1;
}

static int reopen(void *user, uint64_t epoch, uint64_t sample, char *why, size_t why_bytes) {
    struct feed *feed = user;
    if (feed->refuse != 0) {
        snprintf(why, why_bytes, "gone");
        return feed->refuse;
    }
    feed->next = sample;
    feed->epoch = epoch;
    return 0;
}

static const brim_field_spec fields[] = {
    { .size = sizeof(brim_field_spec), .name = "n", .dtype = BRIM_DTYPE_U64 },
    { .size = sizeof(brim_field_spec),
      .name = "word",
      .dtype = BRIM_DTYPE_U8,
      .rank = 1,
      .shape = { 4 },
      .form = BRIM_FORM_TEXT },
};

static struct feed new_feed(uint64_t end) {
    return (struct feed){ .end = end, .bad = -1, .too_long = -1, .slow = -1 };
}

static brim_binding feed_binding(struct feed *feed) {
    return (brim_binding){ .size = sizeof(brim_binding),
                           .name = "feed",
                           .kind = BRIM_BINDING_STREAM,
                           .user = feed,
                           .fields = fields,
                           .field_count = 2,
                           .pull = pull,
                           .reopen = reopen };
}

/* Pulls at most `count`; OK: their number in *got, and they are `first` and on. */
static brim_status pull_some(struct made *made, uint64_t count, uint64_t first, uint64_t *got) {
    const uint8_t *records;
    const brim_status status =
        made->source.ops->pull(&made->source, count, UINT64_MAX, made->buffer, &records, got);
    if (status != BRIM_OK) {
        return status;
    }
    assert_in_range(*got, 1, count);
    made->output[0] = '\0';
    char expected[OUTPUT_BYTES];
    for (uint64_t i = 0; i < *got; i++) {
        made->output[0] = '\0';
        made->frame.record[0] = records + i * made->source.pitch;
        assert_int_equal(run_record(made), BRIM_OK);
        snprintf(expected, sizeof expected, "n=%llu word='%.*s'", (unsigned long long)(first + i),
                 (int)((first + i) % 5), "abcd");
        assert_string_equal(made->output, expected);
    }
    return BRIM_OK;
}

static void open_feed(struct made *made, struct feed *feed) {
    const brim_binding binding = feed_binding(feed);
    assert_int_equal(made_open(made, "stream @feed", &binding, 1), BRIM_OK);
}

static void test_runs(void **state) {
    (void)state;
    static struct made made;
    struct feed feed = new_feed(1000);
    uint64_t got = 0, next = 0;
    open_feed(&made, &feed);
    assert_true(made.source.stream && made.source.callback);
    assert_true(made.source.count == BRIM_UNKNOWN);
    assert_int_equal(made.source.pitch, 64 + 64 + 64);
    assert_int_equal(made.source.most_run, BRIM__READ_WINDOW / 192);
    assert_int_equal(feed.calls, 0);
    assert_int_equal(pull_some(&made, 1, 0, &got), BRIM_OK);
    assert_int_equal(feed.calls, 1); /* no more are taken than were asked for */
    for (next = 1; next < 1000; next += got) {
        assert_int_equal(pull_some(&made, made.source.most_run, next, &got), BRIM_OK);
    }
    assert_int_equal(next, 1000);
    for (int again = 0; again < 3; again++) {
        assert_int_equal(pull_some(&made, 7, 0, &got), BRIM_STATUS_END);
    }
    assert_int_equal(feed.calls, 1001); /* not asked again after its end */
    char where[80];
    made.source.ops->describe(&made.source, 17, where, sizeof where);
    assert_string_equal(where, "stream @feed, sample 17");
    made_close(&made);
}

/* A bad sample comes alone, behind those before it, and the stream goes on. */
static void test_bad_samples(void **state) {
    (void)state;
    static struct made made;
    for (uint64_t bad = 0; bad < 6; bad++) {
        struct feed feed = new_feed(6);
        feed.bad = bad;
        feed.too_long = bad + 1;
        uint64_t got = 0;
        open_feed(&made, &feed);
        uint64_t next = 0;
        while (next < bad) {
            assert_int_equal(pull_some(&made, 10, next, &got), BRIM_OK);
            next += got;
        }
        assert_int_equal(next, bad);
        brim__fail(BRIM_STATUS_INVALID, "something else in between");
        assert_int_equal(pull_some(&made, 10, next, &got), BRIM_STATUS_CALLBACK);
        detail_has("is rotten (it returned -1)", "a bad sample");
        if (bad < 5) {
            assert_int_equal(pull_some(&made, 10, next, &got), BRIM_STATUS_CALLBACK);
            detail_has("field 'word' has 5 in its first dimension", "too long a sample");
        }
        for (next = bad + 2; next < 6; next += got) {
            assert_int_equal(pull_some(&made, 10, next, &got), BRIM_OK);
        }
        assert_int_equal(pull_some(&made, 10, next, &got), BRIM_STATUS_END);
        assert_int_equal(feed.calls, 7);
        made_close(&made);
    }
}

/* What a slow function has given is handed over without waiting for the next. */
static void test_slow(void **state) {
    (void)state;
    static struct made made;
    struct feed feed = new_feed(4);
    feed.slow = 0;
    uint64_t got = 0;
    open_feed(&made, &feed);
    for (uint64_t s = 0; s < 4; s++) {
        assert_int_equal(pull_some(&made, 10, s, &got), BRIM_OK);
        assert_int_equal(got, 1);
    }
    made_close(&made);
}

static void test_rewind(void **state) {
    (void)state;
    static struct made made;
    struct feed feed = new_feed(5);
    feed.bad = 3;
    uint64_t got = 0;
    open_feed(&made, &feed);
    const struct brim__source_ops *ops = made.source.ops;
    assert_int_equal(pull_some(&made, 3, 0, &got), BRIM_OK);
    assert_int_equal(ops->rewind(&made.source, 7, 1), BRIM_OK);
    assert_int_equal(feed.epoch, 7);
    for (uint64_t next = 1; next < 3; next += got) {
        assert_int_equal(pull_some(&made, 10, next, &got), BRIM_OK);
    }
    /* neither the bad sample that was kept nor the end is left over */
    assert_int_equal(ops->rewind(&made.source, 8, 4), BRIM_OK);
    assert_int_equal(pull_some(&made, 1, 4, &got), BRIM_OK);
    assert_int_equal(pull_some(&made, 1, 5, &got), BRIM_STATUS_END);
    assert_int_equal(ops->rewind(&made.source, 9, 4), BRIM_OK);
    assert_int_equal(pull_some(&made, 1, 4, &got), BRIM_OK);
    feed.refuse = 5;
    assert_int_equal(ops->rewind(&made.source, 9, 2), BRIM_STATUS_CALLBACK);
    detail_has("stream @feed cannot go to sample 2 of epoch 9: gone (it returned 5)", "rewind");
    made_close(&made);

    brim_binding once = feed_binding(&feed);
    once.reopen = NULL;
    assert_int_equal(made_open(&made, "stream @feed", &once, 1), BRIM_OK);
    assert_null(made.source.ops->rewind);
    made_close(&made);
}

static uint64_t identity(const char *text, const brim_binding *binding) {
    static struct made made;
    assert_int_equal(made_open(&made, text, binding, 1), BRIM_OK);
    const uint64_t value = made.source.identity;
    made_close(&made);
    return value;
}

static void test_identity(void **state) {
    (void)state;
    struct feed feed = new_feed(1);
    brim_binding binding = feed_binding(&feed);
    const uint64_t own = identity("stream @feed", &binding);
    assert_int_equal(identity("stream @feed version=0", &binding), own);
    assert_int_not_equal(identity("stream @feed version=1", &binding), own);
    binding.field_count = 1;
    assert_int_not_equal(identity("stream @feed", &binding), own);
    binding.field_count = 2;
    brim_field_spec other[] = { fields[0], fields[1] };
    other[1].form = BRIM_FORM_BYTES;
    binding.fields = other;
    assert_int_not_equal(identity("stream @feed", &binding), own);
}

static void test_refused(void **state) {
    (void)state;
    struct feed feed = new_feed(1);
    brim_binding binding = feed_binding(&feed);
    expect_unbuilt("stream @other", &binding, 1, BRIM_STATUS_UNBOUND, "@other");
    expect_unbuilt("callback @feed", &binding, 1, BRIM_STATUS_INVALID, "BRIM_BINDING_STREAM");
    binding.field_count = 0;
    expect_unbuilt("stream @feed", &binding, 1, BRIM_STATUS_INVALID, "stream @feed: 0 fields");
    binding = feed_binding(&feed);
    binding.pull = NULL;
    expect_unbuilt("stream @feed", &binding, 1, BRIM_STATUS_INVALID, "`pull` is NULL");
    const brim_field_spec twice[] = { fields[0], fields[0] };
    binding = feed_binding(&feed);
    binding.fields = twice;
    expect_unbuilt("stream @feed", &binding, 1, BRIM_STATUS_INVALID,
                   "two fields have the name \"n\"");
}

/* ------------------------------------------------------------------ loaders */

struct seen {
    uint64_t next; /* sample that must come */
    uint64_t left_out;
};

static void see_batch(void *user, const brim_batch *batch) {
    struct seen *seen = user;
    const brim_batch_info *info = brim_batch_get(batch);
    const brim_field *numbers = brim_batch_find(batch, "n");
    const brim_field *words = brim_batch_find(batch, "word");
    for (uint64_t r = 0; r < info->rows; r++) {
        seen->next += seen->next == seen->left_out;
        const uint64_t s = seen->next++;
        assert_int_equal(((const uint64_t *)numbers->data)[r], s);
        assert_int_equal(info->samples[r], s);
        assert_int_equal(words->offsets[r + 1] - words->offsets[r], s % 5);
        assert_memory_equal((const char *)words->data + words->offsets[r], "abcd", s % 5);
    }
}

/* In order, one after the other, whatever the threads; again in every epoch. */
static void test_loaded(void **state) {
    (void)state;
    for (int32_t threads = 0; threads < 5; threads += 2) {
        struct feed feed = new_feed(2000);
        feed.bad = 777;
        const brim_binding binding = feed_binding(&feed);
        const struct how how = { .threads = threads, .bindings = &binding, .binding_count = 1 };
        struct session session;
        session_open(&session, "stream @feed | batch 31 on_error=skip", &how);
        for (uint64_t epoch = 0; epoch < 3; epoch++) {
            struct seen seen = { .left_out = 777 };
            assert_true(take_batches(&session, TO_THE_END, see_batch, &seen));
            assert_int_equal(seen.next, 2000);
        }
        const brim_state where = session_state(&session);
        session_restore(&session, &where);
        session_close(&session);
    }
}

/* A loader goes on from a state in the middle by asking the function to. */
static void test_resumed(void **state) {
    (void)state;
    struct feed feed = new_feed(100), other = new_feed(100);
    const brim_binding bindings[] = { feed_binding(&feed), feed_binding(&other) };
    const struct how how = { .bindings = &bindings[0], .binding_count = 1 };
    const struct how again = { .bindings = &bindings[1], .binding_count = 1 };
    struct session session;
    struct seen seen = { .left_out = UINT64_MAX };
    session_open(&session, "stream @feed | batch 7", &how);
    assert_false(take_batches(&session, 5, see_batch, &seen));
    const brim_state middle = session_state(&session);
    session_close(&session);
    session_open(&session, "stream @feed | batch 7", &again);
    session_restore(&session, &middle);
    assert_true(take_batches(&session, TO_THE_END, see_batch, &seen));
    assert_int_equal(seen.next, 100);
    assert_true(other.calls < 80); /* it began where the first one was */
    session_close(&session);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_runs),     cmocka_unit_test(test_bad_samples),
        cmocka_unit_test(test_slow),     cmocka_unit_test(test_rewind),
        cmocka_unit_test(test_identity), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_loaded),   cmocka_unit_test(test_resumed),
    };
    return cmocka_run_group_tests(tests, begin_tests, end_tests);
}

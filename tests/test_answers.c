/*
 * test_answers.c: what a callback returns. A bad sample is what on_error says; a callback that
 * stops the run ends the call, whatever on_error says, and the next call tries again.
 */
#include "support/support.h"

#include <stdio.h>
#include <string.h>

#define SAMPLES 12
#define CHOSEN  5 /* the sample that fails */

static int failure; /* what is returned for CHOSEN; 0: it is as good as the others ... */
static bool once;   /* ... from the second time on */

static int answer_to(uint64_t sample, int good, char *why, size_t why_bytes) {
    if (sample != CHOSEN || failure == 0) {
        return good;
    }
    snprintf(why, why_bytes, "sample %d is the chosen one", CHOSEN);
    const int answer = failure;
    failure = once ? 0 : failure;
    return answer;
}

static int read_sample(void *user, const brim_call *call, brim_value *outputs, size_t count,
                       char *why, size_t why_bytes) {
    const int64_t value = (int64_t)call->sample;
    (void)user, (void)count;
    memcpy(outputs[0].data, &value, sizeof value);
    return answer_to(call->sample, BRIM_ANSWER_DONE, why, why_bytes);
}

static int map_sample(void *user, const brim_call *call, const brim_value *inputs, size_t count,
                      brim_value *outputs, size_t output_count, char *why, size_t why_bytes) {
    (void)user, (void)count, (void)output_count;
    memcpy(outputs[0].data, inputs[0].data, sizeof(int64_t));
    return answer_to(call->sample, BRIM_ANSWER_DONE, why, why_bytes);
}

static int keep_sample(void *user, const brim_call *call, const brim_value *inputs, size_t count,
                       char *why, size_t why_bytes) {
    (void)user, (void)inputs, (void)count;
    return answer_to(call->sample, BRIM_ANSWER_SAMPLE, why, why_bytes);
}

static int expand_sample(void *user, const brim_call *call, uint64_t index,
                         const brim_value *inputs, size_t count, brim_value *outputs,
                         size_t output_count, char *why, size_t why_bytes) {
    (void)user, (void)count, (void)output_count;
    memcpy(outputs[0].data, inputs[0].data, sizeof(int64_t));
    return index > 0 ? BRIM_ANSWER_DONE
                     : answer_to(call->sample, BRIM_ANSWER_SAMPLE, why, why_bytes);
}

static int map_batch(void *user, const brim_call *call, brim_value *inputs, size_t count,
                     brim_value *outputs, size_t output_count, char *why, size_t why_bytes) {
    (void)user, (void)call, (void)outputs, (void)output_count, (void)count;
    const int64_t *values = inputs[0].data;
    for (int64_t i = 0; i < inputs[0].shape[0]; i++) {
        if (values[i] == CHOSEN) {
            return answer_to(CHOSEN, BRIM_ANSWER_DONE, why, why_bytes);
        }
    }
    return BRIM_ANSWER_DONE;
}

static uint64_t next_pulled;

static int pull_sample(void *user, brim_value *outputs, size_t count, char *why, size_t why_bytes) {
    (void)user, (void)count;
    if (next_pulled == SAMPLES) {
        return BRIM_ANSWER_DONE;
    }
    const int answer = answer_to(next_pulled, BRIM_ANSWER_SAMPLE, why, why_bytes);
    if (answer != BRIM_ANSWER_STOP) { /* that one is still to come */
        memcpy(outputs[0].data, &next_pulled, sizeof next_pulled);
        next_pulled++;
    }
    return answer;
}

static int reopen_stream(void *user, uint64_t epoch, uint64_t sample, char *why, size_t why_bytes) {
    (void)user, (void)epoch;
    next_pulled = sample;
    return sample == 0 ? BRIM_ANSWER_DONE : answer_to(sample, BRIM_ANSWER_DONE, why, why_bytes);
}

static const brim_field_spec value = { .size = sizeof value,
                                       .name = "value",
                                       .dtype = BRIM_DTYPE_I64 };

static const brim_binding bindings[] = {
    { .size = sizeof(brim_binding),
      .name = "read",
      .kind = BRIM_BINDING_SOURCE,
      .count = SAMPLES,
      .fields = &value,
      .field_count = 1,
      .read = read_sample },
    { .size = sizeof(brim_binding),
      .name = "map",
      .kind = BRIM_BINDING_MAP,
      .fields = &value,
      .field_count = 1,
      .map = map_sample },
    { .size = sizeof(brim_binding),
      .name = "keep",
      .kind = BRIM_BINDING_FILTER,
      .filter = keep_sample },
    { .size = sizeof(brim_binding),
      .name = "expand",
      .kind = BRIM_BINDING_FLAT_MAP,
      .count = 2,
      .fields = &value,
      .field_count = 1,
      .flat_map = expand_sample },
    { .size = sizeof(brim_binding),
      .name = "whole",
      .kind = BRIM_BINDING_BATCH_MAP,
      .batch_map = map_batch },
    { .size = sizeof(brim_binding),
      .name = "pull",
      .kind = BRIM_BINDING_STREAM,
      .fields = &value,
      .field_count = 1,
      .pull = pull_sample,
      .reopen = reopen_stream },
};
static const struct how how = { .bindings = bindings, .binding_count = 6 };

static const char *const pipelines[] = {
    "callback @read | batch 4 on_error=%s",
    "range 12 | map @map | batch 4 on_error=%s",
    "range 12 | filter by=@keep | batch 4 on_error=%s",
    "range 12 | flat_map @expand | batch 4 on_error=%s",
    "stream @pull | batch 4 on_error=%s",
};
#define PIPELINES (sizeof pipelines / sizeof pipelines[0])

static void count_rows(void *user, const brim_batch *batch) {
    *(uint64_t *)user += brim_batch_get(batch)->valid_rows;
}

static uint64_t rows_of(struct session *session) {
    uint64_t rows = 0;
    assert_true(take_batches(session, TO_THE_END, count_rows, &rows));
    return rows;
}

/* The first failure of an epoch. */
static brim_status first_failure(struct session *session) {
    brim_batch *batch;
    brim_status status;
    while ((status = brim_loader_next(session->loader, BRIM_FOREVER, &batch)) == BRIM_OK) {
        brim_batch_release(batch);
    }
    assert_null(batch);
    return status;
}

static void open_with(struct session *session, const char *format, const char *on_error,
                      int answer) {
    char text[128];
    failure = answer;
    next_pulled = 0;
    snprintf(text, sizeof text, format, on_error);
    session_open(session, text, &how);
}

static void test_a_bad_sample_is_what_on_error_says(void **state) {
    struct session session;
    (void)state;
    for (size_t i = 0; i < PIPELINES; i++) {
        open_with(&session, pipelines[i], "skip", BRIM_ANSWER_BAD);
        assert_int_equal(rows_of(&session), SAMPLES - 1);
        session_close(&session);
        open_with(&session, pipelines[i], "fail", BRIM_ANSWER_BAD);
        assert_int_equal(first_failure(&session), BRIM_STATUS_CALLBACK);
        assert_detail_has("the chosen one");
        session_close(&session);
    }
}

/* A callback is asked once for a sample, also in the middle of a run of neighbours: what it answers
 * is not lost by asking again. */
static void test_an_answer_given_once_counts(void **state) {
    struct session session;
    static const char *const others[] = {
        "zip (range 12 name=i) (callback @read) | batch 4 on_error=%s",
        "callback @read | shuffle block=4 seed=1 | batch 4 on_error=%s",
        "callback @read | filter by=@keep | batch 4 on_error=%s",
    };
    (void)state;
    once = true;
    for (size_t i = 0; i < PIPELINES + sizeof others / sizeof others[0]; i++) {
        const char *format = i < PIPELINES ? pipelines[i] : others[i - PIPELINES];
        open_with(&session, format, "skip", BRIM_ANSWER_STOP);
        assert_int_equal(first_failure(&session), BRIM_STATUS_STOPPED);
        session_close(&session);
        open_with(&session, format, "skip", BRIM_ANSWER_BAD);
        assert_int_equal(rows_of(&session), SAMPLES - 1);
        session_close(&session);
        open_with(&session, format, "fail", BRIM_ANSWER_BAD);
        assert_int_equal(first_failure(&session), BRIM_STATUS_CALLBACK);
        session_close(&session);
    }
    once = false;
}

static void test_a_number_of_no_meaning_is_a_bad_sample(void **state) {
    struct session session;
    (void)state;
    for (size_t i = 0; i < PIPELINES; i++) {
        open_with(&session, pipelines[i], "skip", 7);
        assert_int_equal(rows_of(&session), SAMPLES - 1);
        session_close(&session);
    }
}

static void test_stopping_is_not_skipped_and_is_tried_again(void **state) {
    struct session session;
    (void)state;
    for (size_t i = 0; i < PIPELINES; i++) {
        open_with(&session, pipelines[i], "skip", BRIM_ANSWER_STOP);
        assert_int_equal(first_failure(&session), BRIM_STATUS_STOPPED);
        assert_detail_has("which stops the run");
        assert_detail_has("the chosen one");
        assert_int_equal(first_failure(&session), BRIM_STATUS_STOPPED);
        brim_stats stats = BRIM_STATS_INIT;
        assert_int_equal(brim_loader_read_stats(session.loader, &stats), BRIM_OK);
        assert_int_equal(stats.skipped, 0);
        failure = 0;
        assert_int_equal(stats.samples + rows_of(&session), SAMPLES);
        session_close(&session);
    }
}

static void test_a_batch_that_is_bad_or_stops(void **state) {
    struct session session;
    (void)state;
    open_with(&session, "callback @read | batch 4 on_error=%s | batch_map @whole", "skip",
              BRIM_ANSWER_DONE);
    failure = BRIM_ANSWER_DONE;
    assert_int_equal(rows_of(&session), SAMPLES);
    session_close(&session);
    open_with(&session, "range 12 name=value | batch 4 on_error=%s | batch_map @whole", "skip",
              BRIM_ANSWER_BAD);
    assert_int_equal(first_failure(&session), BRIM_STATUS_CALLBACK);
    failure = BRIM_ANSWER_STOP;
    assert_int_equal(first_failure(&session), BRIM_STATUS_STOPPED);
    assert_detail_has("which stops the run");
    session_close(&session);
}

static void test_reopening_that_stops(void **state) {
    struct session session;
    brim_batch *batch;
    (void)state;
    open_with(&session, "stream @pull | batch 5 on_error=%s", "skip", BRIM_ANSWER_DONE);
    batch = take_batch(&session);
    brim_batch_release(batch);
    const brim_state at = session_state(&session);
    failure = BRIM_ANSWER_STOP;
    session_restore(&session, &at);
    assert_int_equal(first_failure(&session), BRIM_STATUS_STOPPED);
    session_close(&session);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_bad_sample_is_what_on_error_says),
        cmocka_unit_test(test_an_answer_given_once_counts),
        cmocka_unit_test(test_a_number_of_no_meaning_is_a_bad_sample),
        cmocka_unit_test(test_stopping_is_not_skipped_and_is_tried_again),
        cmocka_unit_test(test_a_batch_that_is_bad_or_stops),
        cmocka_unit_test(test_reopening_that_stops),
    };
    return cmocka_run_group_tests(tests, begin_tests, end_tests);
}

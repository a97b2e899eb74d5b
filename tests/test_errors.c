/*
 * test_errors.c: bad samples: next fails, the row is left out, or another sample
 * takes it; and what a loader can still do afterwards.
 *
 * The source is a function that fails for chosen samples. What the batches must
 * be follows from the order alone, which a run without failures gives.
 */
#include "support/support.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SAMPLES 60

/* Read by the workers while the test's thread changes it. */
struct failing {
    atomic_uchar bad[SAMPLES];
    atomic_uint calls;
};

static int read_sample(void *user, const brim_call *call, brim_value *outputs, size_t count,
                       char *why, size_t why_bytes) {
    struct failing *failing = user;
    const int64_t value = (int64_t)call->sample * 10;
    (void)count;
    atomic_fetch_add(&failing->calls, 1);
    memcpy(outputs[0].data, &value, sizeof value);
    if (atomic_load(&failing->bad[call->sample])) {
        snprintf(why, why_bytes, "sample %llu was spoilt", (unsigned long long)call->sample);
        return 7;
    }
    return 0;
}

/* Passes the number on, but fails where the source would. */
static int map_sample(void *user, const brim_call *call, const brim_value *inputs,
                      size_t input_count, brim_value *outputs, size_t output_count, char *why,
                      size_t why_bytes) {
    struct failing *failing = user;
    (void)input_count, (void)output_count;
    memcpy(outputs[0].data, inputs[0].data, sizeof(int64_t));
    if (atomic_load(&failing->bad[call->sample])) {
        snprintf(why, why_bytes, "no way to map %llu", (unsigned long long)call->sample);
        return -3;
    }
    return 0;
}

static const brim_field_spec value_field = { .size = sizeof(brim_field_spec),
                                             .name = "value",
                                             .dtype = BRIM_DTYPE_I64 };
static struct failing failing;
static int64_t labels[SAMPLES];
static const brim_binding bindings[] = {
    { .size = sizeof(brim_binding),
      .name = "reader",
      .kind = BRIM_BINDING_SOURCE,
      .user = &failing,
      .count = SAMPLES,
      .fields = &value_field,
      .field_count = 1,
      .read = read_sample,
      .flags = BRIM_CALLBACK_CONCURRENT },
    { .size = sizeof(brim_binding),
      .name = "mapper",
      .kind = BRIM_BINDING_MAP,
      .user = &failing,
      .fields = &value_field,
      .field_count = 1,
      .map = map_sample },
    { .size = sizeof(brim_binding),
      .name = "labels",
      .kind = BRIM_BINDING_ARRAY,
      .data = labels,
      .dtype = BRIM_DTYPE_I64,
      .rank = 1,
      .shape = { SAMPLES } },
};

static struct how with_threads(int32_t threads) {
    return (struct how){ .threads = threads, .bindings = bindings, .binding_count = 3 };
}

/* Spoils the samples of a list that ends with -1, and only them. */
static void spoil(const int *bad) {
    for (int i = 0; i < SAMPLES; i++) {
        atomic_store(&failing.bad[i], 0);
        labels[i] = i % 5;
    }
    for (; *bad >= 0; bad++) {
        atomic_store(&failing.bad[*bad], 1);
        labels[*bad] = 5 + *bad;
    }
}
#define SPOIL(...) spoil((const int[]){ __VA_ARGS__, -1 })

/* The order of the samples when none is bad. */
static void order_of(const char *stages, uint64_t *order) {
    char text[TEXT_BYTES];
    const struct how how = { 0 };
    struct log log = { 0 };
    format_text(text, "range %d | %s | batch 8", SAMPLES, stages);
    log_run(&log, text, &how, 1);
    assert_int_equal(log.rows, SAMPLES);
    for (size_t i = 0; i < SAMPLES; i++) {
        order[i] = log.row[i].id;
    }
    log_free(&log);
}

static brim_stats stats_of(struct session *session) {
    brim_stats stats = BRIM_STATS_INIT;
    assert_int_equal(brim_loader_read_stats(session->loader, &stats), BRIM_OK);
    return stats;
}

static void assert_values(const brim_batch *batch) {
    const brim_batch_info *info = brim_batch_get(batch);
    const int64_t *values = brim_batch_find(batch, "value")->data;
    for (uint64_t r = 0; r < info->rows; r++) {
        if (info->valid[r]) {
            assert_int_equal(values[r], info->samples[r] * 10);
            assert_false(atomic_load(&failing.bad[info->samples[r]]));
        }
    }
}

/* -------------------------------------------------------------------- fail */

/* Next fails, and the texts of thread and loader name the sample and say why. */
static void expect_failure(struct session *session, brim_status status, const char *where,
                           const char *why) {
    char text[1024] = "";
    brim_batch *batch = NULL;
    assert_int_equal(brim_loader_next(session->loader, BRIM_FOREVER, &batch), status);
    assert_null(batch);
    assert_detail_has(where);
    assert_detail_has(why);
    brim_loader_detail(session->loader, text, sizeof text);
    assert_string_equal(text, brim_detail());
}

static void test_fail_names_the_first_bad_sample(void **state) {
    (void)state;
    SPOIL(13, 11, 40, 12);
    for (int32_t threads = 0; threads <= 2; threads++) {
        const struct how how = with_threads(threads);
        struct session session;
        session_open(&session, "callback @reader | batch 8", &how);
        brim_batch_release(take_batch(&session));
        for (int i = 0; i < 5; i++) { /* asked again: it fails again, the same way */
            expect_failure(&session, BRIM_STATUS_CALLBACK, "callback @reader, sample 11",
                           "sample 11 was spoilt");
        }
        assert_int_equal(stats_of(&session).batches, 1);
        assert_int_equal(stats_of(&session).lent, 0);
        session_close(&session);

        session_open(&session, "callback @reader | map @mapper | batch 60", &how);
        expect_failure(&session, BRIM_STATUS_CALLBACK, "sample 11", "was spoilt");
        session_close(&session);
    }
}

static void test_fail_goes_on_when_the_cause_is_gone(void **state) {
    (void)state;
    for (int32_t threads = 0; threads <= 2; threads++) {
        for (int repeat = 0; repeat < 20; repeat++) { /* a race would show some of the time */
            const struct how how = with_threads(threads);
            struct session session;
            SPOIL(11);
            session_open(&session, "callback @reader | batch 8", &how);
            brim_batch_release(take_batch(&session));
            expect_failure(&session, BRIM_STATUS_CALLBACK, "sample 11", "was spoilt");
            expect_failure(&session, BRIM_STATUS_CALLBACK, "sample 11", "was spoilt");
            spoil((const int[]){ -1 });
            for (uint64_t step = 1; step < 8; step++) {
                brim_batch *batch = take_batch(&session);
                assert_int_equal(brim_batch_get(batch)->step, step);
                assert_int_equal(brim_batch_get(batch)->rows, step == 7 ? 4 : 8);
                assert_values(batch);
                brim_batch_release(batch);
            }
            session_close(&session);
        }
    }
}

static void test_fail_and_go_elsewhere(void **state) {
    (void)state;
    SPOIL(11);
    for (int32_t threads = 0; threads <= 2; threads++) {
        const struct how how = with_threads(threads);
        struct session session;
        session_open(&session, "callback @reader | batch 8", &how);
        brim_batch_release(take_batch(&session));
        const brim_state before = session_state(&session);
        expect_failure(&session, BRIM_STATUS_CALLBACK, "sample 11", "was spoilt");
        const brim_state after = session_state(&session); /* a failure moves nothing */
        assert_memory_equal(&before, &after, sizeof before);

        assert_int_equal(brim_loader_seek(session.loader, 0, 2), BRIM_OK);
        for (uint64_t step = 2; step < 8; step++) {
            brim_batch *batch = take_batch(&session);
            assert_int_equal(brim_batch_get(batch)->step, step);
            assert_values(batch);
            brim_batch_release(batch);
        }
        brim_batch *batch;
        assert_int_equal(brim_loader_next(session.loader, BRIM_FOREVER, &batch), BRIM_STATUS_END);
        session_restore(&session, &before);
        expect_failure(&session, BRIM_STATUS_CALLBACK, "sample 11", "was spoilt");
        session_close(&session); /* also right after a failure */
    }
}

static void test_reason_of_a_map(void **state) {
    (void)state;
    SPOIL(17);
    for (int32_t threads = 0; threads <= 2; threads++) {
        const struct how how = with_threads(threads);
        struct session session;
        session_open(&session, "array @labels | map @mapper | batch 20", &how);
        expect_failure(&session, BRIM_STATUS_CALLBACK, "array @labels, sample 17",
                       "map @mapper returned -3: no way to map 17");
        session_close(&session);
    }
}

static void test_bad_labels(void **state) {
    (void)state;
    SPOIL(17, 31);
    for (int32_t threads = 0; threads <= 2; threads++) {
        const struct how how = with_threads(threads);
        struct session session;
        session_open(&session, "array @labels | one_hot 5 | batch 20", &how);
        expect_failure(&session, BRIM_STATUS_CORRUPT, "array @labels, sample 17",
                       "field 'labels' is 22, outside 0 to 4");
        session_close(&session);

        session_open(&session, "array @labels | one_hot 5 | batch 20 on_error=skip", &how);
        for (uint64_t step = 0; step < 3; step++) {
            brim_batch *batch = take_batch(&session);
            const brim_batch_info *info = brim_batch_get(batch);
            const float *rows = brim_batch_find(batch, "labels")->data;
            assert_int_equal(info->rows, step < 2 ? 19 : 20);
            assert_int_equal(info->skipped, step < 2 ? 1 : 0);
            for (uint64_t r = 0; r < info->rows; r++) {
                for (int64_t c = 0; c < 5; c++) {
                    assert_true(rows[r * 5 + (uint64_t)c] ==
                                (labels[info->samples[r]] == c ? 1.0f : 0.0f));
                }
            }
            brim_batch_release(batch);
        }
        session_close(&session);
    }
}

/* -------------------------------------------------------------------- skip */

/* Runs an epoch with on_error=skip and checks each batch against the order
 * without its bad samples. */
static void check_skipped(const char *order_stages, uint64_t rows, const char *remainder,
                          int32_t threads) {
    char text[TEXT_BYTES];
    uint64_t order[SAMPLES];
    const struct how how = with_threads(threads);
    struct session session;
    uint64_t skipped = 0, empty = 0;
    order_of(order_stages, order);
    format_text(text, "callback @reader | %s | batch %llu on_error=skip remainder=%s", order_stages,
                (unsigned long long)rows, remainder);
    session_open(&session, text, &how);
    for (uint64_t first = 0; first < SAMPLES; first += rows) {
        const uint64_t end = first + rows < SAMPLES ? first + rows : SAMPLES;
        uint64_t bad = 0;
        for (uint64_t i = first; i < end; i++) {
            bad += atomic_load(&failing.bad[order[i]]);
        }
        if (bad == end - first) { /* passed over, and no position shifts */
            skipped += bad;
            empty++;
            continue;
        }
        brim_batch *batch = take_batch(&session);
        const brim_batch_info *info = brim_batch_get(batch);
        uint64_t r = 0;
        assert_int_equal(info->first_position, first);
        assert_int_equal(info->step, first / rows);
        assert_int_equal(info->step_rows, end - first); /* planned: bad ones among them */
        for (uint64_t i = first; i < end; i++) {
            if (!atomic_load(&failing.bad[order[i]])) {
                assert_true(r < info->rows);
                assert_int_equal(info->samples[r], order[i]);
                assert_int_equal(info->valid[r], 1);
                r++;
            }
        }
        assert_int_equal(info->valid_rows, r);
        assert_int_equal(info->skipped, end - first - r);
        const bool padded = strcmp(remainder, "pad") == 0;
        assert_int_equal(info->rows, padded ? rows - info->skipped : r);
        for (; r < info->rows; r++) {
            assert_int_equal(info->valid[r], 0);
            assert_int_equal(info->samples[r], UINT64_MAX);
            assert_int_equal(((const int64_t *)brim_batch_find(batch, "value")->data)[r], 0);
        }
        assert_int_equal(brim_batch_find(batch, "value")->shape[0], info->rows);
        assert_values(batch);
        skipped += info->skipped;
        brim_batch_release(batch);
    }
    brim_batch *batch;
    assert_int_equal(brim_loader_next(session.loader, BRIM_FOREVER, &batch), BRIM_STATUS_END);
    const brim_stats stats = stats_of(&session);
    assert_int_equal(stats.skipped, skipped);
    assert_int_equal(stats.samples, SAMPLES - skipped);
    assert_int_equal(stats.replaced, 0);
    assert_int_equal(stats.empty, empty);
    assert_string_equal(stats.warning, "");
    session_close(&session);
}

static void test_skip_closes_rows_up(void **state) {
    (void)state;
    for (int32_t threads = 0; threads <= 3; threads++) {
        SPOIL(0, 3, 4, 7, 8, 59, 31);
        check_skipped("skip 0", 8, "keep", threads);
        check_skipped("shuffle seed=1", 8, "keep", threads);
        check_skipped("shuffle seed=2", 7, "pad", threads);
        check_skipped("shuffle seed=2", 60, "keep", threads);
        SPOIL(16, 17, 18, 19, 20, 21, 22, 23); /* a batch of none */
        check_skipped("skip 0", 8, "keep", threads);
        SPOIL(0, 1, 2, 8, 9, 56, 57, 58, 59); /* all of the last step */
        check_skipped("skip 0", 8, "keep", threads);
        check_skipped("skip 0", 8, "pad", threads); /* the last has rows, but no valid ones */
        check_skipped("skip 0", 1, "keep", threads);
        check_skipped("shuffle seed=4", 2, "keep", threads);
        check_skipped("shuffle seed=4", 7, "pad", threads);
        spoil((const int[]){ -1 });
        check_skipped("shuffle", 8, "keep", threads);
    }
}

/* The failures of bad samples are kept, numbered since opening. */
static void test_skipped_samples_are_listed(void **state) {
    (void)state;
    brim_failure failure = BRIM_FAILURE_INIT;
    for (int32_t threads = 0; threads <= 2; threads++) {
        const struct how how = with_threads(threads);
        struct session session;
        struct log log = { 0 };
        SPOIL(5, 20, 33, 58);
        session_open(&session, "callback @reader | take 59 | batch 8 on_error=skip", &how);
        assert_int_equal(stats_of(&session).error_count <= 4, 1);
        /* not over the end, where workers begin the next epoch */
        assert_false(take_batches(&session, 5, log_batch, &log));
        if (threads == 0) {
            static const int wanted[] = { 33, 20, 5 };
            assert_int_equal(stats_of(&session).error_count, 3);
            for (size_t i = 0; i < 3; i++) {
                char part[64];
                snprintf(part, sizeof part, "sample %d was spoilt", wanted[i]);
                assert_int_equal(brim_loader_read_error(session.loader, 2 - i, &failure), BRIM_OK);
                assert_non_null(strstr(failure.text, part));
                assert_int_equal(failure.status, BRIM_STATUS_CALLBACK);
                assert_int_equal(failure.sample, wanted[i]);
                assert_string_equal(failure.stage, "callback");
                assert_string_equal(failure.source, "@reader");
            }
            assert_int_equal(brim_loader_read_error(session.loader, 3, &failure),
                             BRIM_STATUS_INVALID);
            assert_detail_has("the last 8 of 3");
        }
        for (uint32_t i = 0; i < stats_of(&session).error_count; i++) {
            assert_int_equal(brim_loader_read_error(session.loader, i, &failure), BRIM_OK);
            assert_non_null(strstr(failure.text, "callback @reader, sample "));
            assert_non_null(strstr(failure.text, "was spoilt"));
        }
        assert_int_equal(stats_of(&session).skipped, 3);
        log_free(&log);
        session_close(&session);
    }
}

/* Resuming between batches with bad samples: positions did not shift. */
static void test_skip_and_resume(void **state) {
    (void)state;
    const char *text = "callback @reader | shuffle seed=3 | batch 8 on_error=skip";
    const struct how how = with_threads(1);
    struct log whole = { 0 }, pieces = { 0 };
    struct session session;
    brim_state taken;
    SPOIL(1, 2, 3, 5, 8, 13, 21, 34, 55);
    log_run(&whole, text, &how, 1);
    for (bool ended = false, first = true; !ended; first = false) {
        session_open(&session, text, &how);
        if (!first) {
            session_restore(&session, &taken);
        }
        ended = take_batches(&session, 2, log_batch, &pieces);
        taken = session_state(&session);
        session_close(&session);
    }
    assert_int_equal(pieces.batches, whole.batches);
    assert_int_equal(pieces.rows, SAMPLES - 9);
    assert_rows_equal(pieces.row, whole.row, whole.rows);
    log_free(&whole);
    log_free(&pieces);
}

/* A state taken anywhere, also beside a batch that is passed over, resumes to the same batches. */
static void test_empty_batches_and_resume(void **state) {
    (void)state;
    static const char *const texts[] = {
        "callback @reader | batch 4 on_error=skip",
        "callback @reader | shuffle seed=2 | batch 1 on_error=skip",
        "callback @reader | batch 8 remainder=pad on_error=skip",
        "callback @reader | filter 'value >= 0' | batch 4 on_error=skip",
    };
    SPOIL(0, 1, 2, 3, 16, 17, 18, 19, 20, 21, 22, 23, 56, 57, 58, 59);
    for (size_t t = 0; t < sizeof texts / sizeof texts[0]; t++) {
        for (int32_t threads = 0; threads <= 2; threads += 2) {
            const struct how how = with_threads(threads);
            struct log whole = { 0 };
            struct session session;
            log_run(&whole, texts[t], &how, 1);
            assert_int_equal(whole.rows >= SAMPLES - 16, 1);
            for (uint64_t most = 1; most <= 3; most++) {
                struct log pieces = { 0 };
                brim_state taken;
                for (bool ended = false, first = true; !ended; first = false) {
                    session_open(&session, texts[t], &how);
                    if (!first) {
                        session_restore(&session, &taken);
                    }
                    ended = take_batches(&session, most, log_batch, &pieces);
                    taken = session_state(&session);
                    session_close(&session);
                }
                assert_int_equal(pieces.batches, whole.batches);
                assert_int_equal(pieces.rows, whole.rows);
                assert_rows_equal(pieces.row, whole.row, whole.rows);
                for (size_t i = 0; i < whole.batches; i++) {
                    assert_int_equal(pieces.batch[i].info.step, whole.batch[i].info.step);
                    assert_true(whole.batch[i].info.valid_rows > 0);
                }
                log_free(&pieces);
            }
            /* sought, it is not there: the one after it comes */
            if (t == 0) {
                session_open(&session, texts[t], &how);
                assert_int_equal(brim_loader_seek(session.loader, 0, 4), BRIM_OK);
                brim_batch *batch = take_batch(&session);
                assert_int_equal(brim_batch_get(batch)->step, 6);
                brim_batch_release(batch);
                session_close(&session);
            }
            log_free(&whole);
        }
    }
}

/* Ranks take equally many steps, and a step has all of its micro-batches. */
static void test_empty_batches_that_are_delivered(void **state) {
    (void)state;
    for (int32_t threads = 0; threads <= 2; threads += 2) {
        struct session session;
        brim_batch *batch;
        struct how how = with_threads(threads);
        SPOIL(16, 17, 18, 19); /* all of rank 0's part of step 2; half of a step without ranks */
        for (how.world = 1; how.world <= 2; how.world++) {
            const char *text = how.world == 1
                                   ? "callback @reader | batch 8 micro=4 on_error=skip"
                                   : "callback @reader | batch 8 per=global on_error=skip";
            const uint64_t empty_at = how.world == 1 ? 4 : 2, count = how.world == 1 ? 15 : 8;
            session_open(&session, text, &how);
            for (uint64_t i = 0; i < count; i++) {
                batch = take_batch(&session);
                const brim_batch_info *info = brim_batch_get(batch);
                assert_int_equal(info->step, how.world == 1 ? i / 2 : i);
                assert_int_equal(info->rows == 0, i == empty_at);
                assert_int_equal(info->valid_rows, info->rows);
                assert_int_equal(info->skipped, i == empty_at ? 4 : 0);
                assert_int_equal(brim_batch_find(batch, "value")->shape[0], info->rows);
                brim_batch_release(batch);
                assert_int_equal(stats_of(&session).empty, i >= empty_at);
                assert_int_equal(strstr(stats_of(&session).warning, "on_error=replace") != NULL,
                                 i >= empty_at);
            }
            assert_int_equal(brim_loader_next(session.loader, BRIM_FOREVER, &batch),
                             BRIM_STATUS_END);
            session_close(&session);
        }
    }
}

/* An epoch in which all is bad ends; more than max_errors is told as ever. */
static void test_nothing_but_bad_samples(void **state) {
    (void)state;
    static const char *const texts[] = {
        "callback @reader | batch 8 on_error=skip",
        "callback @reader | batch 8 on_error=skip remainder=pad",
        "callback @reader | filter 'value >= 0' | batch 8 on_error=skip",
    };
    spoil((const int[]){ -1 });
    for (int i = 0; i < SAMPLES; i++) {
        atomic_store(&failing.bad[i], 1);
    }
    for (size_t t = 0; t < sizeof texts / sizeof texts[0]; t++) {
        for (int32_t threads = 0; threads <= 2; threads += 2) {
            char text[TEXT_BYTES];
            struct session session;
            brim_batch *batch;
            const struct how how = with_threads(threads);
            session_open(&session, texts[t], &how);
            for (uint64_t epoch = 1; epoch <= 3; epoch++) {
                assert_int_equal(brim_loader_next(session.loader, BRIM_FOREVER, &batch),
                                 BRIM_STATUS_END);
                usleep(2000); /* workers read on in the next epoch, which is not counted yet */
                assert_int_equal(stats_of(&session).skipped, epoch * SAMPLES);
                assert_int_equal(stats_of(&session).batches, 0);
            }
            session_close(&session);
            session_open(&session, format_text(text, "%s max_errors=20", texts[t]), &how);
            assert_int_equal(brim_loader_next(session.loader, BRIM_FOREVER, &batch),
                             BRIM_STATUS_CORRUPT);
            assert_detail_has("more than max_errors=20");
            session_close(&session);
        }
    }
}

/* --------------------------------------------------------------- max_errors */

/* Batches until the cap is met, and the text then. */
static uint64_t batches_to_the_cap(const char *on_error, unsigned cap, int32_t threads,
                                   char detail[1024]) {
    char text[TEXT_BYTES];
    const struct how how = with_threads(threads);
    struct session session;
    uint64_t batches = 0;
    brim_batch *batch;
    brim_status status;
    format_text(text, "callback @reader | shuffle seed=5 | batch 6 on_error=%s max_errors=%u",
                on_error, cap);
    session_open(&session, text, &how);
    while ((status = brim_loader_next(session.loader, BRIM_FOREVER, &batch)) == BRIM_OK) {
        assert_values(batch);
        brim_batch_release(batch);
        batches++;
    }
    snprintf(detail, 1024, "%s", brim_detail());
    if (status != BRIM_STATUS_END) {
        assert_int_equal(status, BRIM_STATUS_CORRUPT);
        assert_int_equal(brim_loader_next(session.loader, BRIM_FOREVER, &batch),
                         BRIM_STATUS_CORRUPT);
        assert_string_equal(brim_detail(), detail); /* asked again, it says the same */
        const brim_stats stats = stats_of(&session);
        assert_true(stats.skipped + stats.replaced <= cap);
        /* elsewhere it goes on, and counts anew */
        assert_int_equal(brim_loader_seek(session.loader, 3, 0), BRIM_OK);
        status = brim_loader_next(session.loader, BRIM_FOREVER, &batch);
        assert_true(status == BRIM_OK || cap < 6);
        if (status == BRIM_OK) {
            brim_batch_release(batch);
        }
    }
    session_close(&session);
    return batches;
}

static void test_cap_is_the_same_for_any_number_of_threads(void **state) {
    (void)state;
    static const char *const policies[] = { "skip", "replace" };
    static const int bad[] = { 2, 3, 11, 17, 23, 29, 41, 43, 44, 51, 59, -1 };
    uint64_t order[SAMPLES];
    spoil(bad);
    order_of("shuffle seed=5", order);
    for (size_t p = 0; p < 2; p++) {
        for (unsigned cap = 0; cap <= 12; cap++) {
            char first[1024], detail[1024];
            uint64_t wanted = 0, errors = 0;
            for (uint64_t i = 0; i < SAMPLES; i++) { /* whole batches before the cap */
                errors += atomic_load(&failing.bad[order[i]]);
                wanted += i % 6 == 5 && errors <= cap;
            }
            assert_int_equal(batches_to_the_cap(policies[p], cap, 0, first), wanted);
            assert_int_equal(wanted == SAMPLES / 6, cap >= 11);
            if (cap < 11) {
                char part[64];
                snprintf(part, sizeof part, "max_errors=%u ", cap);
                assert_non_null(strstr(first, part));
                assert_non_null(strstr(first, "was spoilt"));
            }
            for (int32_t threads = 1; threads <= 3; threads++) {
                assert_int_equal(batches_to_the_cap(policies[p], cap, threads, detail), wanted);
                assert_string_equal(detail, first);
            }
        }
    }
}

/* The cap is of an epoch: the next one begins at nought. */
static void test_cap_of_each_epoch(void **state) {
    (void)state;
    SPOIL(2, 3, 11);
    for (int32_t threads = 0; threads <= 2; threads++) {
        const struct how how = with_threads(threads);
        struct log log = { 0 };
        log_run(&log, "callback @reader | shuffle | batch 6 on_error=skip max_errors=3", &how, 4);
        assert_int_equal(log.rows, 4 * (SAMPLES - 3));
        log_free(&log);
    }
}

/* ----------------------------------------------------------------- replace */

static void test_replace_takes_other_samples(void **state) {
    (void)state;
    static const char *const texts[] = {
        "callback @reader | shuffle seed=5 | batch 7 on_error=replace",
        "callback @reader | shuffle seed=5 | take 50 | map @mapper | batch 7 on_error=replace",
        ("mix 1 (callback @reader | shuffle) 1 (callback @reader) length=80 | "
         "batch 7 on_error=replace remainder=pad"),
    };
    SPOIL(1, 4, 9, 16, 25, 36, 49, 50, 51, 52);
    for (size_t t = 0; t < sizeof texts / sizeof texts[0]; t++) {
        struct log logs[4] = { 0 };
        for (int32_t threads = 0; threads < 4; threads++) {
            const struct how how = with_threads(threads);
            struct session session;
            session_open(&session, texts[t], &how);
            assert_true(take_batches(&session, TO_THE_END, log_batch, &logs[threads]));
            const brim_stats stats = stats_of(&session);
            assert_int_equal(stats.skipped, 0);
            assert_true(stats.replaced > 0);
            session_close(&session);
            assert_int_equal(logs[threads].rows, logs[0].rows);
            assert_rows_equal(logs[threads].row, logs[0].row, logs[0].rows);
        }
        for (size_t i = 0; i < logs[0].rows; i++) { /* ids say which samples came */
            const struct row *row = &logs[0].row[i];
            assert_true(!row->valid || !atomic_load(&failing.bad[row->id % SAMPLES]));
        }
        for (int i = 0; i < 4; i++) {
            log_free(&logs[i]);
        }
    }
}

/* Only the bad rows are others than without failures, and their values are those
 * of the samples that their ids name. */
static void test_replace_leaves_the_others(void **state) {
    (void)state;
    uint64_t order[SAMPLES], replaced = 0, different = 0;
    const struct how how = with_threads(2);
    struct session session;
    SPOIL(1, 4, 9, 16, 25, 36, 49);
    order_of("shuffle seed=6", order);
    session_open(&session, "callback @reader | shuffle seed=6 | batch 8 on_error=replace", &how);
    for (uint64_t i = 0; i < SAMPLES;) {
        brim_batch *batch = take_batch(&session);
        const brim_batch_info *info = brim_batch_get(batch);
        assert_values(batch);
        assert_int_equal(info->skipped, 0);
        for (uint64_t r = 0; r < info->rows; r++, i++) {
            if (atomic_load(&failing.bad[order[i]])) {
                replaced++;
                different += info->samples[r] != order[i];
            } else {
                assert_int_equal(info->samples[r], order[i]);
            }
        }
        brim_batch_release(batch);
    }
    assert_int_equal(replaced, 7);
    assert_int_equal(different, 7);
    assert_int_equal(stats_of(&session).replaced, 7);
    session_close(&session);
}

static void test_replace_gives_up_when_all_are_bad(void **state) {
    (void)state;
    for (int i = 0; i < SAMPLES; i++) {
        atomic_store(&failing.bad[i], 1);
    }
    for (int32_t threads = 0; threads <= 2; threads++) {
        const struct how how = with_threads(threads);
        struct session session;
        session_open(&session, "callback @reader | batch 4 on_error=replace", &how);
        expect_failure(&session, BRIM_STATUS_CALLBACK, "other samples failed too", "was spoilt");
        session_close(&session);
    }
}

/* A file that was cut short after opening: its last samples are bad, no others. */
static void test_file_cut_short(void **state) {
    (void)state;
    static int32_t rows[SAMPLES][4];
    fill_random(rows, sizeof rows, 8);
    for (int32_t threads = 0; threads <= 2; threads++) {
        char text[TEXT_BYTES];
        const struct how how = with_threads(threads);
        struct session session;
        struct log log = { 0 };
        write_npy("cut.npy", BRIM_DTYPE_I32, 2, (const int64_t[]){ SAMPLES, 4 }, rows);
        format_text(text, "npy %s | batch 16 on_error=skip", in_directory("cut.npy").text);
        session_open(&session, text, &how);
        assert_int_equal(brim_loader_seek(session.loader, 1, 0), BRIM_OK);
        write_npy("cut.npy", BRIM_DTYPE_I32, 2, (const int64_t[]){ SAMPLES - 5, 4 }, rows);
        assert_int_equal(brim_loader_seek(session.loader, 0, 0), BRIM_OK);
        assert_true(take_batches(&session, TO_THE_END, log_batch, &log));
        assert_int_equal(log.rows, SAMPLES - 5);
        for (size_t i = 0; i < log.rows; i++) {
            assert_int_equal(log.row[i].id, i);
        }
        assert_int_equal(stats_of(&session).skipped, 5);
        brim_failure failure = BRIM_FAILURE_INIT;
        /* what workers made ahead of the seeks counts too, so the first may not be kept any more */
        assert_int_equal(
            brim_loader_read_error(session.loader, stats_of(&session).errors - 1, &failure),
            BRIM_OK);
        assert_non_null(strstr(failure.text, "cut.npy"));
        log_free(&log);
        session_close(&session);
    }
}

/* A refusal says in numbers what would do; with that it opens, and with less it does not. */
static void test_refusals_in_numbers(void **state) {
    (void)state;
    brim_failure refusal = BRIM_FAILURE_INIT;
    brim_pipeline *pipeline;
    brim_loader *loader;
    assert_int_equal(brim_pipeline_parse("range 100000 | batch 100000", &pipeline), BRIM_OK);
    for (int i = 0; i < 3; i++) {
        brim_runtime_options options = BRIM_RUNTIME_OPTIONS_INIT;
        brim_runtime *runtime;
        options.threads = 0;
        options.host_bytes = i == 0 ? 256 << 10 : refusal.minimum_bytes - (i == 1);
        assert_int_equal(brim_runtime_new(&options, &runtime), BRIM_OK);
        const brim_status status = brim_loader_open(runtime, pipeline, NULL, &loader);
        assert_int_equal(status, i < 2 ? BRIM_STATUS_BUDGET : BRIM_OK);
        if (i < 2) {
            const uint64_t before = refusal.minimum_bytes;
            assert_int_equal(brim_failure_read(&refusal), BRIM_OK);
            assert_int_equal(refusal.status, BRIM_STATUS_BUDGET);
            assert_string_equal(refusal.text, brim_detail());
            assert_int_equal(refusal.exact, 1);
            assert_int_equal(refusal.blocked, 0);
            assert_true(refusal.minimum_bytes > 1600000);
            assert_true(i == 0 || refusal.minimum_bytes == before);
            assert_int_equal(refusal.wanted_kind, BRIM_MEMORY_HOST);
            assert_true(refusal.wanted_bytes > 1600000);
            assert_true(refusal.holder_count > 0);
            assert_true(refusal.holder[0].bytes > 0);
        } else {
            brim_loader_close(loader);
        }
        brim_runtime_free(runtime);
    }
    brim_pipeline_free(pipeline);
    refusal.size = 0;
    assert_int_equal(brim_failure_read(&refusal), BRIM_STATUS_INVALID);
    assert_int_equal(brim_failure_read(NULL), BRIM_STATUS_INVALID);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals_in_numbers),
        cmocka_unit_test(test_fail_names_the_first_bad_sample),
        cmocka_unit_test(test_fail_goes_on_when_the_cause_is_gone),
        cmocka_unit_test(test_fail_and_go_elsewhere),
        cmocka_unit_test(test_reason_of_a_map),
        cmocka_unit_test(test_bad_labels),
        cmocka_unit_test(test_skip_closes_rows_up),
        cmocka_unit_test(test_skipped_samples_are_listed),
        cmocka_unit_test(test_skip_and_resume),
        cmocka_unit_test(test_empty_batches_and_resume),
        cmocka_unit_test(test_empty_batches_that_are_delivered),
        cmocka_unit_test(test_nothing_but_bad_samples),
        cmocka_unit_test(test_cap_is_the_same_for_any_number_of_threads),
        cmocka_unit_test(test_cap_of_each_epoch),
        cmocka_unit_test(test_replace_takes_other_samples),
        cmocka_unit_test(test_replace_leaves_the_others),
        cmocka_unit_test(test_replace_gives_up_when_all_are_bad),
        cmocka_unit_test(test_file_cut_short),
    };
    return cmocka_run_group_tests(tests, begin_tests, end_tests);
}

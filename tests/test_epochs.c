/*
 * test_epochs.c: what an epoch is: every sample once, an end that is told once,
 * and a place to go to in O(1), whatever the number of samples.
 */
#include "support/memory_watch.h"
#include "support/support.h"

#include "base/platform.h"

#include <stdlib.h>
#include <string.h>

static const struct how plain = { 0 };

/* The first field of every row, which `range` makes the sample's number. */
struct seen {
    uint64_t *number;
    uint64_t count, capacity;
};

static void see_batch(void *user, const brim_batch *batch) {
    struct seen *seen = user;
    const brim_batch_info *info = brim_batch_get(batch);
    const int64_t *numbers = brim_batch_field_at(batch, 0)->data;
    assert_true(seen->count + info->rows <= seen->capacity);
    for (uint64_t r = 0; r < info->rows; r++) {
        assert_int_equal(info->samples[r], numbers[r]);
        seen->number[seen->count++] = (uint64_t)numbers[r];
    }
}

static struct seen seen_new(uint64_t capacity) {
    struct seen seen = { .capacity = capacity, .number = calloc(capacity + 1, sizeof(uint64_t)) };
    assert_non_null(seen.number);
    return seen;
}

/* Each of 0 .. count - 1 comes `times` times. */
static void assert_each(const struct seen *seen, uint64_t count, uint8_t times) {
    uint8_t *found = calloc(count + 1, 1);
    assert_non_null(found);
    assert_int_equal(seen->count, count * times);
    for (uint64_t i = 0; i < seen->count; i++) {
        assert_true(seen->number[i] < count);
        found[seen->number[i]]++;
    }
    for (uint64_t i = 0; i < count; i++) {
        if (found[i] != times) {
            fail_msg("sample %llu of %llu came %u times", (unsigned long long)i,
                     (unsigned long long)count, found[i]);
        }
    }
    free(found);
}

/* --------------------------------------------------------------- whole epochs */

static void check_epochs(uint64_t count, const char *shuffle, uint32_t rows) {
    char text[TEXT_BYTES];
    struct how how = { .threads = (int32_t)(count % 3) };
    struct session session;
    struct seen epochs[2] = { seen_new(count), seen_new(count) };
    format_text(text, "range %llu | %s | batch %u", (unsigned long long)count, shuffle, rows);
    session_open(&session, text, &how);
    for (int e = 0; e < 2; e++) {
        assert_true(take_batches(&session, TO_THE_END, see_batch, &epochs[e]));
        assert_each(&epochs[e], count, 1);
    }
    uint64_t fixed = 0, same = 0;
    for (uint64_t i = 0; i < count; i++) {
        fixed += epochs[0].number[i] == i;
        same += epochs[0].number[i] == epochs[1].number[i];
    }
    if (count > 1000) { /* about one of each is expected; 20 would be odd beyond belief */
        assert_true(fixed < 20 && same < 20);
    }
    session_close(&session);
    free(epochs[0].number);
    free(epochs[1].number);
}

static void test_every_epoch_is_every_sample_once(void **state) {
    (void)state;
    static const unsigned powers[] = { 1, 6, 7, 12, 16, 18 };
    for (size_t i = 0; i < sizeof powers / sizeof powers[0]; i++) {
        const uint64_t power = (uint64_t)1 << powers[i];
        for (uint64_t count = power - 1; count <= power + 1; count++) {
            check_epochs(count, "shuffle seed=1", 4096);
        }
    }
    check_epochs(((uint64_t)1 << 16) + 1, "shuffle block=64", 1000);
    check_epochs(1000, "shuffle seed=3", 1);
    check_epochs(5003, "shuffle block=16 | shuffle seed=3", 7);
}

static void test_same_order_in_every_epoch_if_asked(void **state) {
    (void)state;
    struct session session;
    struct seen seen = seen_new(1000);
    session_open(&session, "range 500 | shuffle each_epoch=no | batch 64", &plain);
    assert_true(take_batches(&session, TO_THE_END, see_batch, &seen));
    assert_true(take_batches(&session, TO_THE_END, see_batch, &seen));
    assert_memory_equal(seen.number, seen.number + 500, 500 * sizeof seen.number[0]);
    session_close(&session);
    free(seen.number);
}

static void test_the_end_comes_once(void **state) {
    (void)state;
    for (int32_t threads = 0; threads <= 2; threads++) {
        const struct how how = { .threads = threads };
        struct session session;
        brim_batch *batch;
        session_open(&session, "range 10 | shuffle | batch 4", &how);
        for (uint64_t epoch = 0; epoch < 5; epoch++) {
            for (uint64_t step = 0; step < 3; step++) {
                batch = take_batch(&session);
                assert_int_equal(brim_batch_get(batch)->epoch, epoch);
                assert_int_equal(brim_batch_get(batch)->step, step);
                assert_int_equal(brim_batch_get(batch)->rows, step == 2 ? 2 : 4);
                assert_int_equal(brim_batch_get(batch)->first_position, step * 4);
                brim_batch_release(batch);
            }
            batch = NULL;
            assert_int_equal(brim_loader_next(session.loader, BRIM_FOREVER, &batch),
                             BRIM_STATUS_END);
            assert_null(batch);
            brim_stats stats = BRIM_STATS_INIT;
            assert_int_equal(brim_loader_read_stats(session.loader, &stats), BRIM_OK);
            assert_int_equal(stats.epoch, epoch + 1);
            assert_int_equal(stats.batches, 3 * (epoch + 1));
            assert_int_equal(stats.samples, 10 * (epoch + 1));
        }
        session_close(&session);
    }
}

/* Asked without waiting, again and again, a loader comes to its end: without
 * threads each call makes some rows. */
static void test_polling(void **state) {
    (void)state;
    for (int32_t threads = 0; threads <= 2; threads++) {
        const struct how how = { .threads = threads };
        struct session session;
        struct seen seen = seen_new(5000);
        brim_status status = BRIM_OK;
        session_open(&session, "range 5000 | shuffle | batch 1000", &how);
        while (status != BRIM_STATUS_END) {
            brim_batch *batch;
            status = brim_loader_next(session.loader, 0, &batch);
            assert_true(status == BRIM_OK || status == BRIM_STATUS_TIMEOUT ||
                        status == BRIM_STATUS_END);
            if (status == BRIM_OK) {
                see_batch(&seen, batch);
                brim_batch_release(batch);
            }
        }
        assert_each(&seen, 5000, 1);
        session_close(&session);
        free(seen.number);
    }
}

/* -------------------------------------------------------------------- seeking */

static void test_seek_anywhere(void **state) {
    (void)state;
    enum { EPOCHS = 3, STEPS = 7 };
    const char *text = "range 40 | shuffle seed=2 | batch 6 micro=4";
    for (int32_t threads = 0; threads <= 2; threads++) {
        const struct how how = { .threads = threads };
        struct session session;
        struct log log = { 0 };
        log_run(&log, text, &how, EPOCHS);
        session_open(&session, text, &how);
        const brim_plan_info *info = brim_plan_get(brim_loader_plan(session.loader));
        assert_int_equal(info->steps, STEPS);
        assert_int_equal(info->batches, 2 * STEPS - 1); /* the last has 4 rows: one piece */
        assert_int_equal(log.batches, EPOCHS * info->batches);
        uint64_t random = 5;
        for (int i = 0; i < 200; i++) {
            const uint64_t epoch = next_random(&random) % EPOCHS;
            const uint64_t step = next_random(&random) % (STEPS + 1);
            const size_t first =
                epoch * (2 * STEPS - 1) + (step == STEPS ? 2 * STEPS - 1 : 2 * step);
            struct log here = { 0 };
            assert_int_equal(brim_loader_seek(session.loader, epoch, step), BRIM_OK);
            const bool ended = take_batches(&session, 1 + i % 3, log_batch, &here);
            assert_int_equal(ended, step + (uint64_t)(i % 3) / 2 >= STEPS ||
                                        (step == STEPS - 1 && i % 3 > 0));
            assert_true(here.batches > 0 || step == STEPS);
            for (size_t b = 0; b < here.batches; b++) {
                const struct logged *got = &here.batch[b], *wanted = &log.batch[first + b];
                assert_info_equal(&got->info, &wanted->info);
                assert_rows_equal(here.row + got->first_row, log.row + wanted->first_row,
                                  got->info.rows);
            }
            log_free(&here);
        }
        log_free(&log);
        session_close(&session);
    }
}

static void test_seek_past_the_end(void **state) {
    (void)state;
    struct session session;
    struct seen seen = seen_new(100);
    session_open(&session, "range 40 | batch 6", &plain);
    assert_false(take_batches(&session, 2, see_batch, &seen));
    assert_int_equal(brim_loader_seek(session.loader, 0, 8), BRIM_STATUS_INVALID);
    assert_detail_has("step 8");
    assert_detail_has("7 steps");
    assert_int_equal(brim_loader_seek(session.loader, 9, UINT64_MAX), BRIM_STATUS_INVALID);
    brim_batch *batch = take_batch(&session); /* a refusal moves nothing */
    assert_int_equal(brim_batch_get(batch)->first_position, 12);
    brim_batch_release(batch);

    /* just past the last step is the end, which is told */
    assert_int_equal(brim_loader_seek(session.loader, 4, 7), BRIM_OK);
    assert_int_equal(brim_loader_next(session.loader, BRIM_FOREVER, &batch), BRIM_STATUS_END);
    batch = take_batch(&session);
    assert_int_equal(brim_batch_get(batch)->epoch, 5);
    assert_int_equal(brim_batch_get(batch)->step, 0);
    brim_batch_release(batch);

    /* epochs have no end */
    assert_int_equal(brim_loader_seek(session.loader, UINT64_C(1) << 40, 3), BRIM_OK);
    batch = take_batch(&session);
    assert_int_equal(brim_batch_get(batch)->epoch, UINT64_C(1) << 40);
    assert_int_equal(brim_batch_get(batch)->first_position, 18);
    brim_batch_release(batch);
    session_close(&session);
    free(seen.number);
}

/* What is held stays as it is while the loader goes elsewhere. */
static void test_seek_while_holding(void **state) {
    (void)state;
    for (int32_t threads = 0; threads <= 2; threads++) {
        const struct how how = { .threads = threads, .hold = 2, .bytes = AT_MINIMUM };
        struct session session;
        session_open(&session, "range 1000 | batch 50", &how);
        brim_batch *held = take_batch(&session);
        for (uint64_t step = 0; step < 20; step++) {
            assert_int_equal(brim_loader_seek(session.loader, step, 19 - step), BRIM_OK);
            brim_batch *batch = take_batch(&session);
            assert_int_equal(brim_batch_get(batch)->samples[0], (19 - step) * 50);
            brim_batch_release(batch);
            for (int64_t r = 0; r < 50; r++) {
                assert_int_equal(((const int64_t *)brim_batch_field_at(held, 0)->data)[r], r);
            }
        }
        brim_batch_release(held);
        session_close(&session);
    }
}

/* ------------------------------------------------- repeat, take, skip, split */

static void test_repeat(void **state) {
    (void)state;
    struct session session;
    struct seen repeated = seen_new(300), plain_epochs = seen_new(300);
    session_open(&session, "range 50 | shuffle seed=5 | repeat 3 | batch 8", &plain);
    assert_true(take_batches(&session, TO_THE_END, see_batch, &repeated));
    assert_each(&repeated, 50, 3);
    assert_true(take_batches(&session, TO_THE_END, see_batch, &repeated));
    session_close(&session);
    session_open(&session, "range 50 | shuffle seed=5 | batch 8", &plain);
    for (int i = 0; i < 6; i++) {
        assert_true(take_batches(&session, TO_THE_END, see_batch, &plain_epochs));
    }
    session_close(&session);
    /* a pass is an epoch of what stands before repeat */
    assert_int_equal(repeated.count, 300);
    assert_memory_equal(repeated.number, plain_epochs.number, 300 * sizeof(uint64_t));
    free(repeated.number);
    free(plain_epochs.number);
}

static void check_numbers(const char *text, uint64_t first, uint64_t count) {
    struct session session;
    struct seen seen = seen_new(count);
    session_open(&session, text, &plain);
    for (int epoch = 0; epoch < 2; epoch++) {
        seen.count = 0;
        assert_true(take_batches(&session, TO_THE_END, see_batch, &seen));
        assert_int_equal(seen.count, count);
        for (uint64_t i = 0; i < count; i++) {
            assert_int_equal(seen.number[i], first + i);
        }
    }
    session_close(&session);
    free(seen.number);
}

static void test_take_and_skip(void **state) {
    (void)state;
    check_numbers("range 100 | take 30 | batch 8", 0, 30);
    check_numbers("range 100 | take 100 | batch 8", 0, 100);
    check_numbers("range 100 | take 1000000 | batch 8", 0, 100);
    check_numbers("range 100 | skip 30 | batch 8", 30, 70);
    check_numbers("range 100 | skip 20 | take 30 | skip 5 | batch 8", 25, 25);
    check_numbers("range 5 | batch 8", 0, 5);
    check_numbers("range 7", 0, 7); /* nothing said: batches of one */
}

static void test_empty_pipelines_end_at_once(void **state) {
    (void)state;
    static const char *const texts[] = {
        "range 100 | take 0 | batch 8",
        "range 100 | skip 100 | batch 8",
        "range 100 | skip 1000 | shuffle | repeat 7 | batch 8 remainder=pad",
        "range 100 | take 0 | shuffle block=5 | batch 8",
        "range 5 | batch 8 remainder=drop",
        "range 3 | split test | batch 8",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        for (int32_t threads = 0; threads <= 2; threads += 2) {
            const struct how how = { .threads = threads };
            struct session session;
            struct seen seen = seen_new(1);
            session_open(&session, texts[i], &how);
            const brim_plan_info *info = brim_plan_get(brim_loader_plan(session.loader));
            assert_int_equal(info->batches, 0);
            assert_int_equal(info->steps, 0);
            for (int epoch = 0; epoch < 3; epoch++) {
                assert_true(take_batches(&session, TO_THE_END, see_batch, &seen));
            }
            assert_int_equal(seen.count, 0);
            assert_int_equal(brim_loader_seek(session.loader, 7, 0), BRIM_OK);
            assert_int_equal(brim_loader_seek(session.loader, 7, 1), BRIM_STATUS_INVALID);
            const brim_state end = session_state(&session);
            session_restore(&session, &end);
            assert_true(take_batches(&session, TO_THE_END, see_batch, &seen));
            session_close(&session);
            free(seen.number);
        }
    }
}

static void test_split_parts_are_disjoint_and_complete(void **state) {
    (void)state;
    static const char *const parts[] = { "train", "validation", "test" };
    static const char *const sizes[] = { "validation=0.1", "validation=0.25 test=0.5 seed=3",
                                         "validation=17 test=0.1", "validation=0", "test=1000" };
    static const uint64_t counts[] = { 1, 10, 65536, 65537 };
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
            if ((s == 2 || s == 4) && counts[c] < 1200) {
                continue; /* asks for more samples than there are */
            }
            struct seen seen = seen_new(counts[c]);
            struct seen again = seen_new(counts[c]);
            for (size_t p = 0; p < 3; p++) {
                char text[TEXT_BYTES];
                struct session session;
                format_text(text, "range %llu | split %s %s | shuffle seed=%zu | batch 4096",
                            (unsigned long long)counts[c], parts[p], sizes[s], p);
                session_open(&session, text, &plain);
                assert_true(take_batches(&session, TO_THE_END, see_batch, &seen));
                assert_true(take_batches(&session, TO_THE_END, see_batch, &again));
                session_close(&session);
            }
            assert_each(&seen, counts[c], 1);
            assert_each(&again, counts[c], 1); /* the parts are the same in every epoch */
            free(seen.number);
            free(again.number);
        }
    }
}

/* ---------------------------------------------------------------- huge counts */

struct opened {
    uint64_t charged, took_ns;
};

static struct opened open_range(uint64_t count) {
    char text[TEXT_BYTES];
    struct session session;
    struct opened opened;
    brim_usage usage = BRIM_USAGE_INIT;
    format_text(text, "range %llu | split train | shuffle seed=7 | repeat 2 | batch 64",
                (unsigned long long)count);
    const uint64_t before = used_ns();
    session_open(&session, text, &plain);
    opened.took_ns = used_ns() - before;
    assert_int_equal(brim_runtime_read_usage(session.runtime, &usage), BRIM_OK);
    opened.charged = usage.charged;

    /* the last batch of a far epoch costs as much as the first of this one */
    const brim_plan_info *info = brim_plan_get(brim_loader_plan(session.loader));
    const uint64_t seeking = used_ns();
    assert_int_equal(brim_loader_seek(session.loader, 1000, info->steps - 1), BRIM_OK);
    brim_batch *batch = take_batch(&session);
    opened.took_ns = brim__max(opened.took_ns, used_ns() - seeking);
    assert_true(brim_batch_get(batch)->rows > 0);
    for (uint64_t r = 0; r < brim_batch_get(batch)->rows; r++) {
        assert_true(brim_batch_get(batch)->samples[r] < count);
    }
    brim_batch_release(batch);
    assert_int_equal(brim_loader_next(session.loader, BRIM_FOREVER, &batch), BRIM_STATUS_END);
    session_close(&session);
    return opened;
}

/* The quickest of some tries: the first ones fill caches. */
static struct opened open_range_quickly(uint64_t count) {
    struct opened best = open_range(count);
    for (int i = 0; i < 4; i++) {
        const struct opened again = open_range(count);
        assert_int_equal(again.charged, best.charged);
        best.took_ns = brim__min(best.took_ns, again.took_ns);
    }
    return best;
}

static void test_a_billion_samples_cost_as_much_as_a_thousand(void **state) {
    (void)state;
    const uint64_t allowed = 50000000; /* 50 ms */
    const struct opened few = open_range_quickly(1000);
    const struct opened billion = open_range_quickly(UINT64_C(1000000000));
    const struct opened more = open_range_quickly(UINT64_C(1000000000000000));
    assert_int_equal(billion.charged, few.charged);
    assert_int_equal(more.charged, few.charged);
    assert_true(billion.took_ns < few.took_ns + allowed);
    assert_true(more.took_ns < few.took_ns + allowed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_epoch_is_every_sample_once),
        cmocka_unit_test(test_same_order_in_every_epoch_if_asked),
        cmocka_unit_test(test_the_end_comes_once),
        cmocka_unit_test(test_polling),
        cmocka_unit_test(test_seek_anywhere),
        cmocka_unit_test(test_seek_past_the_end),
        cmocka_unit_test(test_seek_while_holding),
        cmocka_unit_test(test_repeat),
        cmocka_unit_test(test_take_and_skip),
        cmocka_unit_test(test_empty_pipelines_end_at_once),
        cmocka_unit_test(test_split_parts_are_disjoint_and_complete),
        cmocka_unit_test(test_a_billion_samples_cost_as_much_as_a_thousand),
    };
    return cmocka_run_group_tests(tests, begin_tests, end_tests);
}

/*
 * test_shards.c: ranks of a world, through the whole engine.
 *
 * Joining the ranks' rows of a step must give the unsharded batch, whatever the
 * world; a state that one world wrote must go on in another where it stood.
 */
#include "support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SAMPLES    97
#define MOST_WORLD 4
#define EPOCHS     2

static float table[SAMPLES][5];

static const brim_binding bindings[] = {
    { .size = sizeof(brim_binding),
      .name = "table",
      .kind = BRIM_BINDING_ARRAY,
      .data = table,
      .dtype = BRIM_DTYPE_F32,
      .rank = 2,
      .shape = { SAMPLES, 5 } },
};

static int fill_table(void **state) {
    for (size_t i = 0; i < SAMPLES * 5; i++) {
        ((float *)table)[i] = (float)i + 0.5f; /* no row is all zeros */
    }
    return begin_tests(state);
}

static struct how rank_of(uint32_t rank, uint32_t world) {
    return (struct how){ .rank = rank,
                         .world = world,
                         .bindings = bindings,
                         .binding_count = 1,
                         .threads = (int32_t)(rank % 2) };
}

/* ------------------------------------------------------------- whole worlds */

/* One log for each rank. */
struct world {
    uint32_t size;
    struct log log[MOST_WORLD];
};

static void world_free(struct world *world) {
    for (uint32_t r = 0; r < world->size; r++) {
        log_free(&world->log[r]);
    }
}

/* Runs all ranks, from a state or from the beginning (NULL), until `epochs`
 * ends were met or each rank has taken `most` batches; *after, unless NULL, is
 * the state then, which all ranks must agree on. */
static void world_run(struct world *world, uint32_t size, const char *text, unsigned epochs,
                      uint64_t most, const brim_state *before, brim_state *after) {
    *world = (struct world){ .size = size };
    for (uint32_t r = 0; r < size; r++) {
        const struct how how = rank_of(r, size);
        struct session session;
        session_open(&session, text, &how);
        if (before != NULL) {
            session_restore(&session, before);
        }
        for (unsigned ends = 0; ends < epochs && world->log[r].batches < most;) {
            ends +=
                take_batches(&session, most == TO_THE_END ? most : 1, log_batch, &world->log[r]);
        }
        if (after != NULL) {
            const brim_state state = session_state(&session);
            if (r == 0) {
                *after = state;
            }
            assert_memory_equal(after, &state, sizeof state);
        }
        session_close(&session);
    }
}

/* Joins the ranks' rows step by step into one log with a batch for each step,
 * checking on the way that the ranks are in step. */
static void world_join(const struct world *world, struct log *joined) {
    const size_t batches = world->log[0].batches;
    const size_t most_rows = MOST_WORLD * (SAMPLES + 64) * EPOCHS;
    joined->row = calloc(most_rows, sizeof joined->row[0]);
    joined->batch = calloc(batches + 1, sizeof joined->batch[0]);
    for (uint32_t r = 0; r < world->size; r++) {
        assert_int_equal(world->log[r].batches, batches);
    }
    for (size_t b = 0; b < batches;) {
        const brim_batch_info *first = &world->log[0].batch[b].info;
        struct logged *step = &joined->batch[joined->batches++];
        *step = (struct logged){ .info = *first, .first_row = joined->rows };
        step->info.rows = step->info.valid_rows = step->info.step_rows = 0;
        assert_int_equal(first->micro, 0);
        assert_true(first->micro_count > 0);
        for (uint32_t r = 0; r < world->size; r++) {
            const struct log *log = &world->log[r];
            uint64_t valid_rows = 0;
            for (uint32_t m = 0; m < first->micro_count; m++) {
                const struct logged *piece = &log->batch[b + m];
                const brim_batch_info *info = &piece->info;
                assert_int_equal(info->epoch, first->epoch);
                assert_int_equal(info->step, first->step);
                assert_int_equal(info->micro, m);
                assert_int_equal(info->micro_count, first->micro_count);
                assert_int_equal(info->global_rows, first->global_rows);
                assert_int_equal(info->step_rows, log->batch[b].info.step_rows);
                if (info->valid_rows > 0) {
                    assert_int_equal(info->first_position,
                                     first->first_position + joined->rows - step->first_row);
                }
                assert_true(joined->rows + info->rows <= most_rows);
                for (uint64_t i = 0; i < info->rows; i++) {
                    joined->row[joined->rows + i] = log->row[piece->first_row + i];
                }
                joined->rows += info->rows;
                step->info.rows += info->rows;
                valid_rows += info->valid_rows;
            }
            assert_int_equal(valid_rows, log->batch[b].info.step_rows);
            step->info.valid_rows += valid_rows;
            step->info.step_rows += valid_rows;
        }
        assert_int_equal(step->info.valid_rows, first->global_rows);
        b += first->micro_count;
    }
}

static void assert_steps_equal(const struct log *a, const struct log *b) {
    assert_int_equal(a->batches, b->batches);
    assert_int_equal(a->rows, b->rows);
    for (size_t i = 0; i < a->batches; i++) {
        const brim_batch_info *x = &a->batch[i].info, *y = &b->batch[i].info;
        assert_int_equal(x->epoch, y->epoch);
        assert_int_equal(x->step, y->step);
        assert_int_equal(x->rows, y->rows);
        assert_int_equal(x->valid_rows, y->valid_rows);
        assert_int_equal(x->global_rows, y->global_rows);
        assert_int_equal(x->first_position, y->first_position);
        assert_int_equal(a->batch[i].first_row, b->batch[i].first_row);
    }
    assert_rows_equal(a->row, b->row, a->rows);
}

/* ------------------------------------------------------------------ joining */

static const char *const remainders[] = { "keep", "drop", "pad" };

/* text: with a place for rows, per, micro and remainder. */
static void check_worlds(const char *order, bool global, unsigned rows, unsigned micro,
                         const char *remainder) {
    for (uint32_t size = 1; size <= MOST_WORLD; size++) {
        char text[TEXT_BYTES], whole[TEXT_BYTES];
        struct world world, alone;
        struct log joined = { 0 }, wanted = { 0 };
        format_text(text, "array @table | %s | batch %u per=%s micro=%u remainder=%s", order, rows,
                    global ? "global" : "rank", micro, remainder);
        format_text(whole, "array @table | %s | batch %u remainder=%s", order,
                    global ? rows : rows * size, remainder);
        world_run(&world, size, text, EPOCHS, TO_THE_END, NULL, NULL);
        world_run(&alone, 1, whole, EPOCHS, TO_THE_END, NULL, NULL);
        world_join(&world, &joined);
        world_join(&alone, &wanted);
        assert_steps_equal(&joined, &wanted);
        log_free(&joined);
        log_free(&wanted);
        world_free(&world);
        world_free(&alone);
    }
}

static void test_joined_ranks_are_the_unsharded_batches(void **state) {
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        for (unsigned micro = 0; micro <= 3; micro++) {
            check_worlds("shuffle seed=1", true, 12, micro, remainders[i]);
            check_worlds("shuffle seed=1", true, 7, micro, remainders[i]);
            check_worlds("shuffle seed=1", false, 5, micro, remainders[i]);
            check_worlds("take 96", true, 4, micro, remainders[i]);
        }
        check_worlds("take 3", false, 8, 0, remainders[i]); /* less than one batch */
        check_worlds("shuffle | repeat 2 | take 150", false, 6, 0, remainders[i]);
    }
}

static void test_every_rank_has_as_many_batches_as_planned(void **state) {
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        char text[TEXT_BYTES];
        struct world world;
        format_text(text, "array @table | batch 10 per=global micro=2 remainder=%s", remainders[i]);
        world_run(&world, 3, text, 1, TO_THE_END, NULL, NULL);
        for (uint32_t r = 0; r < 3; r++) {
            const struct how how = rank_of(r, 3);
            struct session session;
            session_open(&session, text, &how);
            const brim_plan_info *info = brim_plan_get(brim_loader_plan(session.loader));
            assert_int_equal(info->batches, world.log[r].batches);
            assert_int_equal(info->steps, i == 1 ? 9 : 10);
            assert_int_equal(info->samples, SAMPLES);
            assert_int_equal(info->batch_rows, 2);
            session_close(&session);
        }
        world_free(&world);
    }
}

static void test_padded_rows(void **state) {
    (void)state;
    const struct how how = rank_of(0, 1);
    struct session session;
    session_open(&session, "array @table | cast float64 | batch 20 remainder=pad", &how);
    /* a slot that was full of other rows before, so that zeros are no accident */
    assert_int_equal(brim_loader_seek(session.loader, 0, 3), BRIM_OK);
    for (uint64_t step = 3; step < 5; step++) {
        brim_batch *batch = take_batch(&session);
        const brim_batch_info *info = brim_batch_get(batch);
        const brim_field *field = brim_batch_find(batch, "table");
        const uint64_t valid = step == 4 ? SAMPLES - 80 : 20;
        assert_int_equal(info->step, step);
        assert_int_equal(info->rows, 20);
        assert_int_equal(info->valid_rows, valid);
        assert_int_equal(info->step_rows, valid);
        assert_int_equal(info->global_rows, valid);
        assert_int_equal(field->shape[0], 20);
        for (uint64_t r = 0; r < 20; r++) {
            const double *row = (const double *)field->data + r * 5;
            assert_int_equal(info->valid[r], r < valid);
            assert_int_equal(info->samples[r], r < valid ? step * 20 + r : UINT64_MAX);
            for (int k = 0; k < 5; k++) {
                assert_true(row[k] == (r < valid ? (double)table[step * 20 + r][k] : 0.0));
            }
        }
        brim_batch_release(batch);
    }
    brim_stats stats = BRIM_STATS_INIT;
    assert_int_equal(brim_loader_read_stats(session.loader, &stats), BRIM_OK);
    assert_int_equal(stats.samples, 20 + SAMPLES - 80); /* padding is no sample */
    session_close(&session);
}

static void test_refused_worlds(void **state) {
    (void)state;
    struct how how = rank_of(3, 3);
    expect_refused("array @table | batch 4", &how, BRIM_STATUS_INVALID, "rank 3");
    how.rank = 0;
    expect_refused("array @table | batch 2 per=global", &how, BRIM_STATUS_INVALID, "smaller than");
}

/* --------------------------------------------------------- another world */

/* The rows that the unsharded order has from a global position on. */
static void check_continued(const struct log *joined, const struct log *unsharded, uint64_t from) {
    size_t valid = 0;
    for (size_t i = 0; i < joined->rows; i++) {
        if (joined->row[i].valid) {
            assert_rows_equal(&joined->row[i], &unsharded->row[from + valid], 1);
            valid++;
        }
    }
    assert_int_equal(valid, unsharded->rows - from);
}

static void check_restored(bool global, unsigned rows, const char *remainder, uint32_t from,
                           uint32_t to, uint64_t steps) {
    char text[TEXT_BYTES];
    struct world first, second, whole;
    struct log joined = { 0 }, rest = { 0 }, unsharded = { 0 };
    brim_state state;
    const struct how how = rank_of(0, 1);
    format_text(text, "array @table | shuffle seed=4 | batch %u per=%s remainder=%s", rows,
                global ? "global" : "rank", remainder);
    world_run(&first, from, text, 1, steps, NULL, &state);
    world_run(&second, to, text, EPOCHS, TO_THE_END, &state, NULL);
    world_join(&first, &joined);
    world_join(&second, &rest);
    log_run(&unsharded, "array @table | shuffle seed=4 | batch 1", &how, EPOCHS);

    /* nothing twice, nothing missed: what came before, and what came after */
    const uint64_t position = steps * rows * (global ? 1 : from);
    assert_rows_equal(joined.row, unsharded.row, position);
    check_continued(&rest, &unsharded, position);
    if (rest.batch[0].info.epoch == 0) {
        assert_int_equal(rest.batch[0].info.first_position, position);
        assert_int_equal(rest.batch[0].info.step, position / (rows * (global ? 1 : to)));
    }

    /* with a global batch the batches are those of a run without a stop */
    if (global) {
        struct log all = { 0 };
        world_run(&whole, to, text, EPOCHS, TO_THE_END, NULL, NULL);
        world_join(&whole, &all);
        assert_int_equal(all.batches, steps + rest.batches);
        for (size_t i = 0; i < rest.batches; i++) {
            const struct logged *a = &rest.batch[i], *b = &all.batch[steps + i];
            assert_int_equal(a->info.epoch, b->info.epoch);
            assert_int_equal(a->info.step, b->info.step);
            assert_int_equal(a->info.rows, b->info.rows);
            assert_rows_equal(rest.row + a->first_row, all.row + b->first_row, a->info.rows);
        }
        log_free(&all);
        world_free(&whole);
    }
    log_free(&joined);
    log_free(&rest);
    log_free(&unsharded);
    world_free(&first);
    world_free(&second);
}

static void test_restored_under_another_world(void **state) {
    (void)state;
    for (uint32_t from = 1; from <= MOST_WORLD; from++) {
        for (uint32_t to = 1; to <= MOST_WORLD; to++) {
            check_restored(true, 8, "keep", from, to, 5);
            check_restored(true, 7, "pad", from, to, 1);
            check_restored(false, 5, "keep", from, to, 3);
            check_restored(false, 5, "pad", from, to, 2);
            check_restored(false, 3, "keep", from, to, 0);
        }
    }
}

/* A chain of worlds, each going on where the last one stopped. */
static void test_world_after_world(void **state) {
    (void)state;
    static const uint32_t sizes[] = { 3, 2, 4, 1, 2 };
    const char *text = "array @table | shuffle seed=4 | batch 3";
    const struct how how = rank_of(0, 1);
    struct log unsharded = { 0 };
    brim_state position;
    uint64_t at = 0;
    log_run(&unsharded, "array @table | shuffle seed=4 | batch 1", &how, 1);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct world world;
        struct log joined = { 0 };
        const brim_state before = position;
        world_run(&world, sizes[i], text, 1, 2, i == 0 ? NULL : &before, &position);
        world_join(&world, &joined);
        assert_int_equal(joined.rows, 2 * 3 * sizes[i]);
        assert_rows_equal(joined.row, unsharded.row + at, joined.rows);
        at += joined.rows;
        log_free(&joined);
        world_free(&world);
    }
    log_free(&unsharded);
}

/* A state from inside a step: the same world goes on with the next micro-batch,
 * another world, batch or micro-batch begins the step anew. */
static void test_restored_inside_a_step(void **state) {
    (void)state;
    static const struct {
        const char *text;
        uint32_t world, micro;
    } others[] = {
        { "array @table | batch 12 per=global micro=2", 2, 1 },
        { "array @table | batch 12 per=global micro=2", 3, 0 },
        { "array @table | batch 12 per=global micro=3", 2, 0 },
        { "array @table | batch 6 micro=2", 2, 1 },
        { "array @table | batch 8 per=global micro=2", 2, 0 },
    };
    struct world world;
    brim_state taken;
    world_run(&world, 2, others[0].text, 1, 4, NULL, &taken); /* three make a step */
    world_free(&world);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        for (uint32_t r = 0; r < others[i].world; r++) {
            const struct how how = rank_of(r, others[i].world);
            struct session session;
            session_open(&session, others[i].text, &how);
            session_restore(&session, &taken);
            brim_batch *batch = take_batch(&session);
            const brim_batch_info *info = brim_batch_get(batch);
            assert_int_equal(info->step, 1);
            assert_int_equal(info->micro, others[i].micro);
            if (r == 0) {
                assert_int_equal(info->first_position, 12 + 2 * others[i].micro);
            }
            brim_batch_release(batch);
            session_close(&session);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_joined_ranks_are_the_unsharded_batches),
        cmocka_unit_test(test_every_rank_has_as_many_batches_as_planned),
        cmocka_unit_test(test_padded_rows),
        cmocka_unit_test(test_refused_worlds),
        cmocka_unit_test(test_restored_under_another_world),
        cmocka_unit_test(test_world_after_world),
        cmocka_unit_test(test_restored_inside_a_step),
    };
    return cmocka_run_group_tests(tests, fill_table, end_tests);
}

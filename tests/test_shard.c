/*
 * test_shard.c: what ranks receive, against a model that deals positions out
 * one by one, and the batch stage that says how.
 */
#include "batching/shard.h"
#include "batching/stages.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#define MOST_POSITIONS 128
#define MOST_WORLD     5

static struct brim__batching batching_of(uint64_t rows, bool global, uint64_t micro,
                                         enum brim__remainder remainder) {
    return (struct brim__batching){
        .rows = rows, .global = global, .micro = micro, .remainder = remainder
    };
}

/* One step of the model: whose row each of the step's rows is. Row by row: row
 * i belongs to the last rank whose share begins at or before it. */
static uint32_t owner_of(uint64_t row, uint64_t rows, uint32_t world) {
    uint32_t owner = 0;
    for (uint32_t r = 0; r < world; r++) {
        if (rows * r / world <= row) {
            owner = r;
        }
    }
    return owner;
}

struct expected {
    uint64_t position[MOST_POSITIONS]; /* of a rank in a step; padded ones among them */
    uint64_t rows, valid;
};

/* Checks one rank's deliveries of one step; returns the deliveries. */
static uint64_t check_step(const struct brim__shard *shard, uint64_t index, uint64_t number,
                           uint64_t begin, uint64_t valid, uint64_t rows, uint64_t micro) {
    static struct expected ranks[MOST_WORLD];
    uint64_t most = 0;
    memset(ranks, 0, sizeof ranks);
    for (uint64_t row = 0; row < rows; row++) {
        struct expected *rank = &ranks[owner_of(row, rows, shard->world)];
        rank->position[rank->rows++] = begin + row;
        rank->valid += row < valid;
        most = brim__max(most, rank->rows);
    }
    const struct expected *own = &ranks[shard->rank];
    const uint64_t piece = micro == 0 ? most : micro;
    const uint64_t pieces = brim__max(1, brim__divide_up(most, piece));
    uint64_t at = 0;
    for (uint64_t m = 0; m < pieces; m++) {
        struct brim__delivery delivery;
        brim__shard_delivery(shard, index + m, &delivery);
        assert_int_equal(delivery.step, shard->base / shard->global_rows + number);
        assert_int_equal(delivery.micro, m);
        assert_int_equal(delivery.micro_count, pieces);
        assert_int_equal(delivery.rows, brim__min(piece, own->rows - at));
        assert_true(delivery.rows <= shard->micro_rows);
        assert_int_equal(delivery.step_rows, own->valid);
        assert_int_equal(delivery.global_rows, valid);
        assert_int_equal(delivery.resume, begin);
        assert_int_equal(delivery.resume_next, begin + valid);
        for (uint64_t i = 0; i < delivery.rows; i++, at++) {
            assert_int_equal(delivery.first + i, own->position[at]);
            assert_int_equal(i < delivery.valid_rows, own->position[at] < shard->count);
        }
        if (delivery.rows == 0) {
            assert_int_equal(delivery.valid_rows, 0);
        }
    }
    assert_int_equal(at, own->rows);
    return pieces;
}

static void check_rank(const struct brim__shard *shard, uint64_t micro) {
    uint64_t index = 0, number = 0, begin = shard->base;
    while (begin < shard->count) {
        const uint64_t valid = brim__min(shard->global_rows, shard->count - begin);
        if (valid < shard->global_rows && shard->remainder == BRIM__DROP) {
            break;
        }
        const uint64_t rows = shard->remainder == BRIM__PAD ? shard->global_rows : valid;
        assert_int_equal(brim__shard_delivery_of_step(shard, number), index);
        index += check_step(shard, index, number, begin, valid, rows, micro);
        begin += valid;
        number++;
    }
    assert_int_equal(brim__shard_steps(shard), number);
    assert_int_equal(brim__shard_deliveries(shard), index);
    assert_int_equal(brim__shard_delivery_of_step(shard, number), index);
}

/* Joining the ranks gives the whole, and all have equally many deliveries. */
static void check_joined(struct brim__shard *ranks, uint32_t world) {
    uint64_t position = ranks[0].base;
    const uint64_t steps = brim__shard_steps(&ranks[0]);
    for (uint32_t r = 1; r < world; r++) {
        assert_int_equal(brim__shard_deliveries(&ranks[r]), brim__shard_deliveries(&ranks[0]));
    }
    for (uint64_t step = 0; step < steps; step++) {
        for (uint32_t r = 0; r < world; r++) {
            const uint64_t end = brim__shard_delivery_of_step(&ranks[r], step + 1);
            for (uint64_t i = brim__shard_delivery_of_step(&ranks[r], step); i < end; i++) {
                struct brim__delivery delivery;
                brim__shard_delivery(&ranks[r], i, &delivery);
                if (delivery.valid_rows > 0) {
                    assert_int_equal(delivery.first, position);
                }
                position += delivery.valid_rows;
            }
        }
    }
    const uint64_t left = ranks[0].count - position;
    if (ranks[0].remainder == BRIM__DROP) {
        assert_true(left < ranks[0].global_rows);
    } else {
        assert_int_equal(left, 0);
    }
}

static void test_ranks_equal_the_model(void **state) {
    (void)state;
    static const uint64_t counts[] = { 0, 1, 2, 5, 12, 24, 29, 60 };
    for (uint32_t world = 1; world <= MOST_WORLD; world++) {
        for (int global = 0; global < 2; global++) {
            for (uint64_t rows = global ? world : 1; rows <= 12; rows++) {
                for (uint64_t micro = 0; micro <= 5; micro++) {
                    for (int remainder = 0; remainder < 3; remainder++) {
                        for (size_t c = 0; c < BRIM__COUNT(counts); c++) {
                            for (uint64_t base = 0; base <= counts[c]; base += 1 + counts[c] / 5) {
                                struct brim__shard ranks[MOST_WORLD];
                                const struct brim__batching batching = batching_of(
                                    rows, global == 1, micro, (enum brim__remainder)remainder);
                                for (uint32_t r = 0; r < world; r++) {
                                    assert_int_equal(
                                        brim__shard_init(&ranks[r], &batching, counts[c], r, world),
                                        BRIM_OK);
                                    assert_int_equal(ranks[r].base, 0);
                                    ranks[r].base = base;
                                    check_rank(&ranks[r], micro);
                                }
                                check_joined(ranks, world);
                            }
                        }
                    }
                }
            }
        }
    }
}

static void test_nothing_left_after_the_end(void **state) {
    (void)state;
    for (int remainder = 0; remainder < 3; remainder++) {
        struct brim__shard shard;
        const struct brim__batching batching =
            batching_of(4, false, 0, (enum brim__remainder)remainder);
        assert_int_equal(brim__shard_init(&shard, &batching, 10, 0, 1), BRIM_OK);
        shard.base = 10;
        assert_int_equal(brim__shard_deliveries(&shard), 0);
        assert_int_equal(brim__shard_steps(&shard), 0);
        assert_int_equal(brim__shard_delivery_of_step(&shard, 0), 0);
    }
}

/* Three positions for five ranks: two ranks get an empty delivery. */
static void test_kept_remainder_smaller_than_the_world(void **state) {
    (void)state;
    uint64_t empty = 0, rows = 0;
    for (uint32_t r = 0; r < 5; r++) {
        struct brim__shard shard;
        struct brim__delivery delivery;
        const struct brim__batching batching = batching_of(2, false, 0, BRIM__KEEP);
        assert_int_equal(brim__shard_init(&shard, &batching, 23, r, 5), BRIM_OK);
        assert_int_equal(brim__shard_deliveries(&shard), 3);
        brim__shard_delivery(&shard, 2, &delivery);
        empty += delivery.rows == 0;
        rows += delivery.rows;
        assert_int_equal(delivery.global_rows, 3);
        assert_int_equal(delivery.micro_count, 1);
    }
    assert_int_equal(empty, 2);
    assert_int_equal(rows, 3);
}

static void test_state_continues_under_another_world(void **state) {
    (void)state;
    /* 24 rows in all: ranks 2 and 3 see the same steps */
    for (uint32_t world = 2; world <= 3; world++) {
        struct brim__shard shard;
        struct brim__delivery delivery;
        const struct brim__batching batching = batching_of(24, true, 0, BRIM__KEEP);
        assert_int_equal(brim__shard_init(&shard, &batching, 100, 1, world), BRIM_OK);
        brim__shard_delivery(&shard, 3, &delivery);
        assert_int_equal(delivery.resume, 72);
        assert_int_equal(delivery.resume_next, 96);
        shard.base = 72;
        brim__shard_delivery(&shard, 0, &delivery);
        assert_int_equal(delivery.resume, 72);
        assert_int_equal(delivery.step, 3);
        assert_int_equal(delivery.first, 72 + 24 / world);
    }
}

static void test_large_numbers(void **state) {
    (void)state;
    struct brim__shard shard;
    struct brim__delivery delivery;
    const uint32_t world = UINT32_MAX;
    const struct brim__batching batching = batching_of((1u << 30) - 1, false, 0, BRIM__KEEP);
    const uint64_t count = (uint64_t)1 << 63, global = batching.rows * (uint64_t)world;
    assert_int_equal(brim__shard_init(&shard, &batching, count, world - 1, world), BRIM_OK);
    assert_int_equal(brim__shard_steps(&shard), brim__divide_up(count, global));
    brim__shard_delivery(&shard, 1, &delivery);
    assert_int_equal(delivery.first, 2 * global - batching.rows);
    assert_int_equal(delivery.rows, batching.rows);
    brim__shard_delivery(&shard, brim__shard_deliveries(&shard) - 1, &delivery);
    assert_int_equal(delivery.first + delivery.rows, count);
}

static void test_refusals(void **state) {
    (void)state;
    struct brim__shard shard;
    struct brim__batching batching = batching_of(4, false, 0, BRIM__KEEP);
    assert_int_equal(brim__shard_init(&shard, &batching, 10, 0, 0), BRIM_STATUS_INVALID);
    assert_int_equal(brim__shard_init(&shard, &batching, 10, 2, 2), BRIM_STATUS_INVALID);
    assert_non_null(strstr(brim_detail(), "rank 2 of a world of 2"));
    batching.global = true;
    assert_int_equal(brim__shard_init(&shard, &batching, 10, 0, 4), BRIM_OK);
    assert_int_equal(brim__shard_init(&shard, &batching, 10, 0, 5), BRIM_STATUS_INVALID);
    assert_non_null(strstr(brim_detail(), "4 rows is smaller than the world of 5"));
    batching = batching_of(0, false, 0, BRIM__KEEP);
    assert_int_equal(brim__shard_init(&shard, &batching, 10, 0, 1), BRIM_STATUS_INVALID);
    batching = batching_of(UINT64_MAX / 2, false, 0, BRIM__KEEP);
    assert_int_equal(brim__shard_init(&shard, &batching, 10, 0, 3), BRIM_STATUS_INVALID);
    batching = batching_of((uint64_t)1 << 40, false, 1, BRIM__KEEP);
    assert_int_equal(brim__shard_init(&shard, &batching, 10, 0, 1), BRIM_STATUS_INVALID);
}

static void test_batch_stage(void **state) {
    (void)state;
    const brim_stage_info *info = &brim__stage_batch.info;
    assert_string_equal(info->name, "batch");
    assert_int_equal(info->room, BRIM_ROOM_BATCHING);
    assert_int_equal(info->argument_count, 6);
    static const int64_t given[] = { 256, 1, 32, 2, 1, 77 };
    struct brim__item items[6];
    struct brim__values values[6];
    for (size_t i = 0; i < 6; i++) {
        items[i] = (struct brim__item){ .text = "", .integer = given[i] };
        values[i] = (struct brim__values){ .items = &items[i], .count = 1 };
    }
    const struct brim__use use = { .stage = &brim__stage_batch, .values = values };
    struct brim__batching batching;
    assert_int_equal(brim__stage_batch.set_batching(&use, &batching), BRIM_OK);
    assert_int_equal(batching.rows, 256);
    assert_true(batching.global);
    assert_int_equal(batching.micro, 32);
    assert_int_equal(batching.remainder, BRIM__PAD);
    assert_int_equal(batching.on_error, BRIM__SKIP);
    assert_int_equal(batching.max_errors, 77);
    items[1].integer = 0;
    assert_int_equal(brim__stage_batch.set_batching(&use, &batching), BRIM_OK);
    assert_false(batching.global);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks_equal_the_model),
        cmocka_unit_test(test_nothing_left_after_the_end),
        cmocka_unit_test(test_kept_remainder_smaller_than_the_world),
        cmocka_unit_test(test_state_continues_under_another_world),
        cmocka_unit_test(test_large_numbers),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_batch_stage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

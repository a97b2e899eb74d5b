/*
 * test_cache_memory.c: the memory tier: what it finds, what it may take, and how it
 * gives way while others read and fill.
 *
 * The bytes of every entry are a function of its number and stamp, so that whatever is
 * found can be checked. Where threads run, pages that went too early show as a crash, as
 * wrong bytes, or as a report of a sanitizer.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/fault.h"
#include "budget_util.h"
#include "cache/tier.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static const struct brim__tier_ops *const ops = &brim__memory_tier;

/* A tier at a budget of its own below a root, which leaves exactly `room` bytes. */
struct fixture {
    brim_budget *root, *budget;
    struct brim__tier_start start;
    struct brim__tier *tier;
    void *memory;
    uint8_t *buffer; /* most_bytes */
    _Atomic uint64_t headroom;
};

#define LARGEST (6 * MIB)

static void open_with(struct fixture *fixture, uint64_t room, struct brim__tier_start start) {
    fixture->root = new_root(room + node_bytes());
    fixture->budget = new_child(fixture->root, "cache", BRIM_UNLIMITED, 0);
    fixture->headroom = 0;
    start.budget = fixture->budget;
    start.headroom = &fixture->headroom;
    start.most_bytes = start.most_bytes ? start.most_bytes : LARGEST;
    start.limit = start.limit ? start.limit : BRIM_UNLIMITED;
    fixture->start = start;
    const uint64_t bytes = brim__align(ops->arena_bytes(start.count), 64);
    fixture->memory = aligned_alloc(64, bytes);
    fixture->buffer = aligned_alloc(64, brim__align(start.most_bytes, 64));
    assert_non_null(fixture->memory);
    assert_non_null(fixture->buffer);
    memset(fixture->memory, 0, bytes);
    assert_int_equal(ops->start(fixture->memory, &fixture->start, &fixture->tier), BRIM_OK);
}

static void open_tier(struct fixture *fixture, uint64_t room, uint64_t count) {
    open_with(fixture, room, (struct brim__tier_start){ .count = count });
}

static void close_tier(struct fixture *fixture) {
    ops->stop(fixture->tier);
    assert_int_equal(read_info(fixture->budget).charged, 0);
    brim__budget_check(fixture->root);
    brim_budget_free(fixture->budget);
    brim__budget_unref(fixture->root);
    free(fixture->memory);
    free(fixture->buffer);
}

static struct brim__tier_stats stats_of(struct fixture *fixture) {
    struct brim__tier_stats stats;
    ops->stats(fixture->tier, &stats);
    return stats;
}

/* What the tier says that it holds is what its budget counts. */
static uint64_t checked_bytes(struct fixture *fixture) {
    const uint64_t bytes = stats_of(fixture).bytes;
    assert_int_equal(bytes, read_info(fixture->budget).charged);
    brim__budget_check(fixture->root);
    return bytes;
}

static void nap(uint64_t ns) {
    nanosleep(&(struct timespec){ .tv_nsec = (long)ns }, NULL);
}
/* Longer than a tier waits after a refusal. */
static void let_the_pause_pass(void) {
    nap(15000000);
}

/* ----------------------------------------------------------------- contents */

static uint64_t word_of(uint64_t number, uint64_t stamp, uint64_t at) {
    return (number * 0x9E3779B97F4A7C15 ^ stamp * 0xC2B2AE3D27D4EB4F) + at * 0x165667B19E3779F9;
}

static void write_entry(uint8_t *data, uint64_t bytes, uint64_t number, uint64_t stamp) {
    for (uint64_t at = 0; at < bytes; at += 8) {
        const uint64_t word = word_of(number, stamp, at);
        memcpy(data + at, &word, brim__min(8, bytes - at));
    }
}

static bool entry_is_right(const uint8_t *data, uint64_t bytes, uint64_t number, uint64_t stamp) {
    for (uint64_t at = 0; at < bytes; at += 8) {
        const uint64_t word = word_of(number, stamp, at);
        if (memcmp(data + at, &word, brim__min(8, bytes - at)) != 0) {
            return false;
        }
    }
    return true;
}

static bool put_stamped(struct fixture *fixture, uint64_t number, uint64_t stamp, uint64_t bytes) {
    struct brim__room room;
    if (!ops->begin(fixture->tier, number, stamp, bytes, &room)) {
        return false;
    }
    assert_int_equal((uintptr_t)room.data % BRIM__TIER_ALIGNMENT, 0);
    assert_int_equal(room.bytes, bytes);
    write_entry(room.data, bytes, number, stamp);
    ops->commit(fixture->tier, &room);
    return true;
}

static bool put(struct fixture *fixture, uint64_t number, uint64_t bytes) {
    return put_stamped(fixture, number, 0, bytes);
}

/* Whether it is there; then it is right, and of `bytes`. */
static bool get_stamped(struct fixture *fixture, uint64_t number, uint64_t stamp, uint64_t bytes) {
    struct brim__found found;
    if (!ops->find(fixture->tier, number, stamp, fixture->buffer, UINT64_MAX, &found)) {
        return false;
    }
    assert_true(ops->has(fixture->tier, number));
    assert_int_equal((uintptr_t)found.data % BRIM__TIER_ALIGNMENT, 0);
    assert_int_equal(found.bytes, bytes);
    assert_true(entry_is_right(found.data, bytes, number, stamp));
    ops->done(fixture->tier, &found);
    return true;
}

static bool get(struct fixture *fixture, uint64_t number, uint64_t bytes) {
    return get_stamped(fixture, number, 0, bytes);
}

/* How many of the numbers 0 ... count - 1 are there, each right. */
static uint64_t count_found(struct fixture *fixture, uint64_t count, uint64_t bytes) {
    uint64_t found = 0;
    for (uint64_t number = 0; number < count; number++) {
        found += get(fixture, number, bytes);
    }
    return found;
}

/* -------------------------------------------------------- finding, filling */

static void what_was_put_in_is_found(void **state) {
    (void)state;
    struct fixture fixture;
    const uint64_t count = 10000; /* three segments */
    open_tier(&fixture, 64 * MIB, count);
    assert_int_equal(checked_bytes(&fixture), 0);
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t number = i * 7919 % count; /* in no order */
        assert_false(ops->has(fixture.tier, number));
        assert_false(get(&fixture, number, 100 + number % 1000));
        assert_true(put(&fixture, number, 100 + number % 1000));
        assert_true(get(&fixture, number, 100 + number % 1000));
    }
    for (uint64_t number = 0; number < count; number++) {
        assert_true(get(&fixture, number, 100 + number % 1000));
        assert_false(put(&fixture, number, 100 + number % 1000)); /* it is there */
    }
    const struct brim__tier_stats stats = stats_of(&fixture);
    assert_int_equal(stats.filled, count);
    assert_int_equal(stats.stored, count);
    assert_int_equal(stats.dropped, 0);
    assert_int_equal(stats.damaged, 0);
    assert_true(stats.fills);
    assert_string_equal(stats.warning, "");
    /* 600 bytes, 32 of a header, on average 32 of padding; and the table */
    assert_in_range(checked_bytes(&fixture), count * 632, count * 680 + 2 * MIB);
    close_tier(&fixture);
}

static void entries_of_any_size(void **state) {
    (void)state;
    static const uint64_t sizes[] = {
        0,    1,       31,          32,          33,         63,     64,     65,
        4095, 4096,    65504,       65505,       256 * 1024, 262112, 262113, MIB - 1,
        MIB,  4 * MIB, 4 * MIB + 1, LARGEST - 1, LARGEST,    150528,
    };
    struct fixture fixture;
    open_tier(&fixture, 256 * MIB, BRIM__COUNT(sizes) * 3);
    for (uint64_t round = 0; round < 3; round++) {
        for (uint64_t i = 0; i < BRIM__COUNT(sizes); i++) {
            assert_true(put(&fixture, round * BRIM__COUNT(sizes) + i, sizes[i]));
        }
    }
    uint64_t sum = 0;
    for (uint64_t number = 0; number < BRIM__COUNT(sizes) * 3; number++) {
        assert_true(get(&fixture, number, sizes[number % BRIM__COUNT(sizes)]));
        sum += sizes[number % BRIM__COUNT(sizes)];
    }
    assert_in_range(checked_bytes(&fixture), sum, sum + sum / 10);
    assert_false(put(&fixture, 0, LARGEST + 1));
    assert_false(put(&fixture, 0, UINT64_MAX));
    assert_int_equal(stats_of(&fixture).dropped, 2);
    close_tier(&fixture);

    open_with(&fixture, 4 * MIB, (struct brim__tier_start){ .count = 1, .most_bytes = 8 });
    assert_false(put(&fixture, 0, 9));
    assert_true(put(&fixture, 0, 8));
    close_tier(&fixture);
}

static void entries_of_one_size_waste_little(void **state) {
    (void)state;
    static const uint64_t sizes[] = { 3072, 2050, 150528, 200000, 262112, 300000, 602112 };
    for (size_t i = 0; i < BRIM__COUNT(sizes); i++) {
        struct fixture fixture;
        open_tier(&fixture, 256 * MIB, 4000);
        uint64_t sum = 0;
        for (uint64_t number = 0; sum < 32 * MIB && number < 4000; number++) {
            assert_true(put(&fixture, number, sizes[i]));
            sum += sizes[i];
        }
        assert_in_range(checked_bytes(&fixture), sum, sum + sum / 20 + 4 * MIB);
        close_tier(&fixture);
    }
}

static void large_entries_do_not_push_small_ones_to_new_extents(void **state) {
    (void)state;
    struct fixture fixture;
    open_tier(&fixture, 64 * MIB, 1000);
    for (uint64_t number = 0; number < 100; number++) {
        assert_true(put(&fixture, number, number % 2 == 0 ? 3500 : 300000));
    }
    assert_in_range(checked_bytes(&fixture), 50 * 303500, 50 * 303500 + 2 * MIB);
    close_tier(&fixture);
}

static void an_entry_of_another_stamp_is_replaced(void **state) {
    (void)state;
    struct fixture fixture;
    open_tier(&fixture, 16 * MIB, 100);
    assert_true(put_stamped(&fixture, 5, 1, 1000));
    assert_true(put_stamped(&fixture, 6, 1, 1000));
    assert_true(get_stamped(&fixture, 5, 1, 1000));
    assert_false(put_stamped(&fixture, 5, 1, 1000));
    assert_false(get_stamped(&fixture, 5, 2, 1000));
    assert_false(get_stamped(&fixture, 5, 0, 1000));

    struct brim__found old;
    assert_true(ops->find(fixture.tier, 5, 1, fixture.buffer, UINT64_MAX, &old));
    assert_true(put_stamped(&fixture, 5, 2, 500));
    assert_true(entry_is_right(old.data, old.bytes, 5, 1)); /* who has it keeps it */
    ops->done(fixture.tier, &old);
    assert_true(get_stamped(&fixture, 5, 2, 500));
    assert_false(get_stamped(&fixture, 5, 1, 1000));
    assert_true(get_stamped(&fixture, 6, 1, 1000));
    struct brim__tier_stats stats = stats_of(&fixture);
    assert_int_equal(stats.changed, 1);
    assert_int_equal(stats.stored, 3);
    assert_int_equal(stats.filled, 2);

    brim__budget_revoke(fixture.root, BRIM_MEMORY_HOST,
                        UINT64_MAX); /* meets the one that was replaced */
    stats = stats_of(&fixture);
    assert_int_equal(stats.filled, 0);
    assert_int_equal(checked_bytes(&fixture), 0);
    close_tier(&fixture);
}

static void the_second_of_two_gives_its_room_back(void **state) {
    (void)state;
    struct fixture fixture;
    open_tier(&fixture, 16 * MIB, 100);
    struct brim__room first;
    struct brim__room second;
    struct brim__room third;
    assert_true(ops->begin(fixture.tier, 7, 0, 400, &first));
    assert_true(ops->begin(fixture.tier, 7, 0, 400, &second));
    assert_ptr_not_equal(first.data, second.data);
    assert_false(ops->has(fixture.tier, 7)); /* nobody sees what is not committed */
    write_entry(first.data, 400, 7, 0);
    ops->commit(fixture.tier, &first);
    write_entry(second.data, 400, 8, 0); /* wrong, and so it would show */
    ops->commit(fixture.tier, &second);
    assert_true(get(&fixture, 7, 400));
    assert_int_equal(stats_of(&fixture).stored, 1);
    assert_int_equal(stats_of(&fixture).filled, 1);
    assert_true(ops->begin(fixture.tier, 9, 0, 400, &third));
    assert_ptr_equal(third.data, second.data);
    ops->abandon(fixture.tier, &third);
    assert_false(ops->has(fixture.tier, 9));
    assert_true(ops->begin(fixture.tier, 10, 0, 4, &third));
    assert_ptr_equal(third.data, second.data);
    ops->abandon(fixture.tier, &third);

    /* not the last: its room stays, and is walked over when the extent goes */
    assert_true(ops->begin(fixture.tier, 11, 0, 40, &second));
    assert_true(put(&fixture, 12, 40));
    ops->abandon(fixture.tier, &second);
    assert_true(put(&fixture, 13, 40));
    brim__budget_revoke(fixture.root, BRIM_MEMORY_HOST, UINT64_MAX);
    assert_int_equal(stats_of(&fixture).filled, 0);
    assert_int_equal(checked_bytes(&fixture), 0);
    close_tier(&fixture);
}

static void copies_hold_nothing(void **state) {
    (void)state;
    struct fixture fixture;
    open_with(&fixture, 16 * MIB,
              (struct brim__tier_start){ .count = 10, .most_bytes = 5000, .copies = true });
    assert_true(put(&fixture, 3, 4999));
    struct brim__found found;
    assert_true(ops->find(fixture.tier, 3, 0, fixture.buffer, UINT64_MAX, &found));
    assert_ptr_equal(found.data, fixture.buffer);
    /* would wait for ever for somebody inside */
    assert_true(brim__budget_revoke(fixture.root, BRIM_MEMORY_HOST, UINT64_MAX) >= 5000);
    assert_int_equal(checked_bytes(&fixture), 0);
    assert_false(ops->has(fixture.tier, 3));
    assert_true(entry_is_right(found.data, found.bytes, 3, 0));
    ops->done(fixture.tier, &found);
    close_tier(&fixture);
}

/* ------------------------------------------------------------------- memory */

/* Fills with entries of `bytes` until `count` numbers have been offered. */
static void offer_all(struct fixture *fixture, uint64_t count, uint64_t bytes) {
    for (uint64_t number = 0; number < count; number++) {
        put(fixture, number, bytes);
    }
}

static void fills_to_the_brim_and_not_over(void **state) {
    (void)state;
    static const uint64_t sizes[] = { 10, 3000, 100000, 700000 };
    for (size_t i = 0; i < BRIM__COUNT(sizes); i++) {
        const uint64_t count = 8 * MIB / sizes[i] + 50;
        struct fixture fixture;
        open_tier(&fixture, 5 * MIB + 12345, brim__min(count, 100000));
        offer_all(&fixture, fixture.start.count, sizes[i]);
        const uint64_t bytes = checked_bytes(&fixture);
        const brim_budget_info info = read_info(fixture.root);
        assert_true(info.peak <= info.limit);
        const uint64_t most = brim__max(sizes[i] + 4096, 64 * KIB);
        assert_true(brim__budget_free_now(fixture.root, BRIM_MEMORY_HOST) <
                    most); /* no more would fit */
        const struct brim__tier_stats stats = stats_of(&fixture);
        assert_true(stats.dropped > 0);
        assert_int_equal(stats.filled + stats.dropped, fixture.start.count);
        assert_int_equal(count_found(&fixture, fixture.start.count, sizes[i]), stats.filled);
        assert_true(sizes[i] < 1000 || stats.filled * sizes[i] >= bytes - bytes / 20);
        close_tier(&fixture);
    }
}

static void headroom_stays_free(void **state) {
    (void)state;
    struct fixture fixture;
    open_tier(&fixture, 8 * MIB, 5000);
    fixture.headroom = 5 * MIB;
    offer_all(&fixture, 5000, 3000);
    assert_in_range(brim__budget_free_now(fixture.root, BRIM_MEMORY_HOST), 5 * MIB,
                    5 * MIB + 64 * KIB);
    const uint64_t before = stats_of(&fixture).filled;
    assert_true(before > 0);
    fixture.headroom = UINT64_MAX; /* which no sum may run over */
    let_the_pause_pass();
    offer_all(&fixture, 5000, 3000);
    assert_in_range(brim__budget_free_now(fixture.root, BRIM_MEMORY_HOST), 5 * MIB,
                    5 * MIB + 64 * KIB);
    fixture.headroom = 2 * MIB;
    let_the_pause_pass();
    offer_all(&fixture, 5000, 3000);
    assert_in_range(brim__budget_free_now(fixture.root, BRIM_MEMORY_HOST), 2 * MIB,
                    2 * MIB + 64 * KIB);
    assert_true(stats_of(&fixture).filled > before + 900);
    assert_int_equal(count_found(&fixture, 5000, 3000), stats_of(&fixture).filled);
    close_tier(&fixture);
}

static void limit_is_kept(void **state) {
    (void)state;
    static const uint64_t limits[] = { 128 * KIB, MIB, 3 * MIB + 5 };
    for (size_t i = 0; i < BRIM__COUNT(limits); i++) {
        struct fixture fixture;
        open_with(&fixture, 32 * MIB,
                  (struct brim__tier_start){ .count = 3000, .limit = limits[i] });
        offer_all(&fixture, 3000, 3000);
        const uint64_t bytes = checked_bytes(&fixture);
        assert_in_range(bytes, limits[i] - 64 * KIB, limits[i]);
        assert_true(read_info(fixture.budget).peak <= limits[i]);
        assert_true(stats_of(&fixture).filled * 3000 > bytes - bytes / 3);
        close_tier(&fixture);
    }
    struct fixture fixture;
    open_with(&fixture, 32 * MIB, (struct brim__tier_start){ .count = 3000, .limit = 64 * KIB });
    offer_all(&fixture, 3000, 3000);
    const struct brim__tier_stats stats = stats_of(&fixture);
    assert_false(stats.fills);
    assert_int_equal(stats.dropped, 3000);
    assert_int_equal(stats.bytes, 0);
    assert_non_null(strstr(stats.warning, "64.0 KiB; raise it"));
    assert_false(ops->has(fixture.tier, 0));
    close_tier(&fixture);
}

/* Within what the plan says that it can use at all, all entries fit, in any order. */
static void most_bytes_are_enough(void **state) {
    (void)state;
    static const struct {
        uint64_t count, bytes;
    } cases[] = {
        { 1, 0 },       { 1, 5000 },    { 10, 100 },     { 100, 3072 },
        { 20000, 8 },   { 5000, 3072 }, { 200, 150528 }, { 60, 300000 },
        { 10, 700000 }, { 4089, 64 },   { 4090, 1000 },
    };
    for (size_t i = 0; i < BRIM__COUNT(cases); i++) {
        const uint64_t count = cases[i].count;
        const uint64_t most = ops->most_bytes(count, cases[i].bytes);
        for (int uneven = 0; uneven < 2; uneven++) {
            struct fixture fixture;
            open_with(&fixture, 64 * MIB,
                      (struct brim__tier_start){
                          .count = count, .most_bytes = cases[i].bytes, .limit = most });
            assert_string_equal(stats_of(&fixture).warning, "");
            for (uint64_t k = 0; k < count; k++) {
                const uint64_t number = k * 7919 % count;
                assert_true(put(&fixture, number,
                                uneven ? number * 31337 % (cases[i].bytes + 1) : cases[i].bytes));
            }
            assert_true(checked_bytes(&fixture) <= most);
            close_tier(&fixture);
        }
    }
    assert_true(ops->most_bytes(10, 100) < 16 * KIB);
    assert_true(ops->most_bytes(100000, 3072) < 100000 * 3072 / 2 * 3);
    assert_int_equal(ops->most_bytes(UINT64_MAX, 1), UINT64_MAX);
    assert_int_equal(ops->most_bytes(1, UINT64_MAX), UINT64_MAX);
    assert_int_equal(ops->most_bytes(UINT64_C(1) << 32, UINT64_C(1) << 32), UINT64_MAX);
}

/* The table of 100 million numbers would be 800 MB, one segment 32 KiB. */
static void few_entries_among_many_numbers(void **state) {
    (void)state;
    struct fixture fixture;
    const uint64_t count = 100000000;
    open_tier(&fixture, 16 * MIB, count);
    uint64_t kept = 0;
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < 2000000 && bytes < 15 * MIB; i++) {
        if (put(&fixture, random_below(count), 2000)) {
            kept++;
            bytes = stats_of(&fixture).bytes;
        }
    }
    assert_int_equal(stats_of(&fixture).filled, kept);
    assert_true(kept > 500); /* with a segment for each, 16 MiB would be full before */
    assert_true(bytes < 2 * kept * 2000 + MIB);
    close_tier(&fixture);
}

static void firm_memory_is_there_at_once_and_it_fills_again(void **state) {
    (void)state;
    struct fixture fixture;
    open_tier(&fixture, 8 * MIB, 5000);
    brim_budget *other = fixture.root;
    for (int round = 0; round < 3; round++) {
        let_the_pause_pass();
        offer_all(&fixture, 5000, 3000);
        const uint64_t before = checked_bytes(&fixture);
        const uint64_t filled = stats_of(&fixture).filled;
        assert_true(before > 7 * MIB);

        assert_true(charges(other, 2 * MIB));
        const uint64_t after = checked_bytes(&fixture);
        assert_in_range(after, 4 * MIB, before - 2 * MIB + 64 * KIB); /* and no more than it must */
        const uint64_t left = stats_of(&fixture).filled;
        assert_in_range(left, filled / 2, filled - 1);
        assert_int_equal(count_found(&fixture, 5000, 3000), left);

        assert_true(charges(other, 6 * MIB)); /* all of it, the table too */
        assert_int_equal(checked_bytes(&fixture), 0);
        assert_int_equal(stats_of(&fixture).filled, 0);
        assert_int_equal(count_found(&fixture, 5000, 3000), 0);
        let_the_pause_pass();
        assert_false(put(&fixture, 0, 3000));
        brim_budget_uncharge(other, BRIM_MEMORY_HOST, 8 * MIB);
    }
    const brim_budget_info info = read_info(fixture.root);
    assert_true(info.peak <= info.limit);
    close_tier(&fixture);
}

static void after_a_refusal_nothing_is_asked_for_a_while(void **state) {
    (void)state;
    struct fixture fixture;
    open_tier(&fixture, MIB, 100);
    fixture.headroom = MIB;
    const uint64_t asked = brim__now();
    assert_false(put(&fixture, 1, 1000));
    fixture.headroom = 0;
    const bool taken = put(&fixture, 1, 1000);
    assert_true(!taken || brim__now() - asked > 9000000);
    let_the_pause_pass();
    assert_true(taken || put(&fixture, 1, 1000));
    close_tier(&fixture);
}

/* ------------------------------------------------------------------ threads */

struct revoker {
    brim_budget *root;
    uint64_t given;
    _Atomic bool finished;
};

static void *revoke_all(void *argument) {
    struct revoker *revoker = argument;
    revoker->given = brim__budget_revoke(revoker->root, BRIM_MEMORY_HOST, UINT64_MAX);
    atomic_store(&revoker->finished, true);
    return NULL;
}

static void revoking_waits_for_who_reads_and_who_fills(void **state) {
    (void)state;
    for (int who = 0; who < 3; who++) { /* a reader, two readers, a filler */
        struct fixture fixture;
        open_tier(&fixture, 16 * MIB, 100);
        assert_true(put(&fixture, 1, 50000));
        assert_true(put(&fixture, 2, MIB));
        const uint64_t held = checked_bytes(&fixture);
        struct brim__found found;
        struct brim__found again = { 0 };
        struct brim__room room;
        if (who < 2) {
            assert_true(ops->find(fixture.tier, 1, 0, fixture.buffer, UINT64_MAX, &found));
            assert_true(who == 0 ||
                        ops->find(fixture.tier, 2, 0, fixture.buffer, UINT64_MAX, &again));
        } else {
            assert_true(ops->begin(fixture.tier, 3, 0, 50000, &room));
        }
        struct revoker revoker = { .root = fixture.root };
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, revoke_all, &revoker), 0);
        while (ops->has(fixture.tier, 1) || ops->has(fixture.tier, 2)) {
            brim__relax();
        }
        nap(20000000);
        assert_false(atomic_load(&revoker.finished)); /* gone from the table, not from memory */
        assert_false(
            ops->find(fixture.tier, 2, 0, fixture.buffer, UINT64_MAX, &(struct brim__found){ 0 }));
        assert_false(put(&fixture, 4, 100)); /* elastic memory is refused meanwhile */
        if (who == 0) {
            assert_true(entry_is_right(found.data, found.bytes, 1, 0));
            ops->done(fixture.tier, &found);
        } else if (who == 1) {
            ops->done(fixture.tier, &found);
            nap(5000000);
            assert_false(atomic_load(&revoker.finished));
            assert_true(entry_is_right(again.data, again.bytes, 2, 0));
            ops->done(fixture.tier, &again);
        } else {
            write_entry(room.data, room.bytes, 3, 0);
            ops->commit(fixture.tier, &room); /* to nowhere */
        }
        pthread_join(thread, NULL);
        assert_int_equal(revoker.given, held);
        assert_int_equal(checked_bytes(&fixture), 0);
        assert_false(ops->has(fixture.tier, 3));
        const struct brim__tier_stats stats = stats_of(&fixture);
        assert_int_equal(stats.filled, 0);
        assert_int_equal(stats.dropped, who == 2 ? 2 : 1);
        let_the_pause_pass();
        assert_true(put(&fixture, 3, 50000)); /* as before */
        assert_true(get(&fixture, 3, 50000));
        close_tier(&fixture);
    }
}

#define THREADS 8

struct crowd {
    struct fixture fixture;
    _Atomic bool stop;
    _Atomic uint64_t found, put, wrong;
    _Atomic unsigned numbers; /* of threads */
};

static uint64_t crowd_bytes(uint64_t number) {
    return number % 50 == 7 ? 300000 : number * 37 % 3000;
}

static uint64_t crowd_stamp(uint64_t number, uint64_t draw) {
    return number % 10 == 3 ? draw >> 40 & 1 : 0; /* some change all the time */
}

/* Finds, reads, fills; now and then holds an entry while it does so with another. */
static void *live_in_a_crowd(void *argument) {
    struct crowd *crowd = argument;
    struct brim__tier *tier = crowd->fixture.tier;
    uint64_t draw = atomic_fetch_add(&crowd->numbers, 1) + 1;
    uint64_t found_count = 0;
    uint64_t put_count = 0;
    struct brim__found held = { 0 };
    uint64_t held_number = 0;
    uint64_t held_stamp = 0;
    while (!atomic_load(&crowd->stop)) {
        draw = draw * UINT64_C(6364136223846793005) + 1442695040888963407;
        const uint64_t number = (draw >> 33) % crowd->fixture.start.count;
        const uint64_t stamp = crowd_stamp(number, draw);
        const uint64_t bytes = crowd_bytes(number);
        struct brim__found found;
        struct brim__room room;
        if (ops->find(tier, number, stamp, NULL, UINT64_MAX, &found)) {
            found_count++;
            if (found.bytes != bytes || !entry_is_right(found.data, bytes, number, stamp)) {
                atomic_fetch_add(&crowd->wrong, 1);
            }
            if (held.pin == NULL && number % 4 == 0) {
                held = found;
                held_number = number;
                held_stamp = stamp;
            } else {
                ops->done(tier, &found);
            }
        } else if (ops->begin(tier, number, stamp, bytes, &room)) {
            write_entry(room.data, bytes, number, stamp);
            if (number % 16 == 5) {
                ops->abandon(tier, &room);
            } else {
                ops->commit(tier, &room);
                put_count++;
            }
        } else if (ops->has(tier, (number + 1) % crowd->fixture.start.count)) {
            brim__relax();
        }
        if (held.pin != NULL && draw >> 62 == 0) {
            if (!entry_is_right(held.data, held.bytes, held_number, held_stamp)) {
                atomic_fetch_add(&crowd->wrong, 1);
            }
            ops->done(tier, &held);
        }
    }
    if (held.pin != NULL) {
        ops->done(tier, &held);
    }
    atomic_fetch_add(&crowd->found, found_count);
    atomic_fetch_add(&crowd->put, put_count);
    return NULL;
}

static void a_crowd_against_revocation(void **state) {
    (void)state;
    struct crowd crowd = { 0 };
    open_tier(&crowd.fixture, 12 * MIB, 20000);
    pthread_t thread[THREADS];
    for (size_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&thread[i], NULL, live_in_a_crowd, &crowd), 0);
    }
    const uint64_t end = brim__now() + UINT64_C(2000000000);
    uint64_t rounds = 0;
    while (brim__now() < end) {
        const uint64_t bytes = 1 + random_below(rounds % 3 == 0 ? 12 * MIB : 2 * MIB);
        assert_true(charges(crowd.fixture.root, bytes)); /* all else is elastic */
        nap(random_below(4000000));
        brim_budget_uncharge(crowd.fixture.root, BRIM_MEMORY_HOST, bytes);
        nap(random_below(20000000)); /* some longer than the pause */
        if (rounds++ % 8 == 7) {
            brim__budget_revoke(crowd.fixture.root, BRIM_MEMORY_HOST, UINT64_MAX);
        }
        struct brim__tier_stats stats = stats_of(&crowd.fixture);
        assert_true(stats.bytes <= 12 * MIB);
    }
    atomic_store(&crowd.stop, true);
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
    }
    assert_int_equal(crowd.wrong, 0);
    assert_true(crowd.found > 0);
    assert_true(crowd.put > 0);
    const struct brim__tier_stats stats = stats_of(&crowd.fixture);
    assert_true(stats.stored <= crowd.put);
    assert_true(stats.changed > 0);
    uint64_t there = 0;
    for (uint64_t number = 0; number < 20000; number++) {
        there += ops->has(crowd.fixture.tier, number);
    }
    assert_int_equal(stats.filled, there);
    checked_bytes(&crowd.fixture);
    const brim_budget_info info = read_info(crowd.fixture.root);
    assert_true(info.peak <= info.limit);
    close_tier(&crowd.fixture);
}

/* ------------------------------------------------------------------- faults */

/* The system refuses the nth map: what was offered is dropped, all else goes on. */
static void whatever_the_system_refuses_is_a_miss(void **state) {
    (void)state;
    const unsigned kinds = 1u << BRIM__FAULT_ALLOC | 1u << BRIM__FAULT_MAP;
    for (int for_ever = 0; for_ever < 2; for_ever++) {
        uint64_t injected = 1;
        for (uint64_t nth = 1; injected > 0; nth++) {
            struct fixture fixture;
            open_tier(&fixture, 64 * MIB, 10000);
            brim__fault_arm(kinds, nth, for_ever);
            uint64_t kept = 0;
            for (uint64_t number = 0; number < 10000; number += 1250) {
                kept += put(&fixture, number, 2000);
                kept += put(&fixture, number + 1, 400000);
            }
            const uint64_t allowed = checked_bytes(&fixture);
            injected = brim__fault_injected();
            brim__fault_arm(0, 0, false);
            struct brim__tier_stats stats = stats_of(&fixture);
            assert_int_equal(stats.filled, kept);
            assert_int_equal(stats.dropped, 16 - kept);
            assert_true(injected > 0 ? kept < 16 : kept == 16);
            assert_true(for_ever == 0 || nth > 1 || (kept == 0 && allowed == 0));
            assert_true(stats.fills);

            let_the_pause_pass();
            for (uint64_t number = 0; number < 10000; number += 1250) {
                put(&fixture, number, 2000);
                put(&fixture, number + 1, 400000);
                assert_true(get(&fixture, number, 2000));
                assert_true(get(&fixture, number + 1, 400000));
            }
            const uint64_t bytes = checked_bytes(&fixture);
            assert_int_equal(brim__budget_revoke(fixture.root, BRIM_MEMORY_HOST, UINT64_MAX),
                             bytes);
            assert_int_equal(checked_bytes(&fixture), 0);
            close_tier(&fixture);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_put_in_is_found),
        cmocka_unit_test(entries_of_any_size),
        cmocka_unit_test(entries_of_one_size_waste_little),
        cmocka_unit_test(large_entries_do_not_push_small_ones_to_new_extents),
        cmocka_unit_test(an_entry_of_another_stamp_is_replaced),
        cmocka_unit_test(the_second_of_two_gives_its_room_back),
        cmocka_unit_test(copies_hold_nothing),
        cmocka_unit_test(fills_to_the_brim_and_not_over),
        cmocka_unit_test(headroom_stays_free),
        cmocka_unit_test(limit_is_kept),
        cmocka_unit_test(most_bytes_are_enough),
        cmocka_unit_test(few_entries_among_many_numbers),
        cmocka_unit_test(firm_memory_is_there_at_once_and_it_fills_again),
        cmocka_unit_test(after_a_refusal_nothing_is_asked_for_a_while),
        cmocka_unit_test(revoking_waits_for_who_reads_and_who_fills),
        cmocka_unit_test(a_crowd_against_revocation),
        cmocka_unit_test(whatever_the_system_refuses_is_a_miss),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

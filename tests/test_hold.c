/*
 * test_hold.c: how many slots there are for how many batches that are lent.
 *
 * The minimum is max(2, hold) slots of the ring that is lent from, so that at `hold` lent all of
 * them may be: nothing may wait for a slot then that only the program can give back. A loader
 * that lends beyond `hold` has a further slot firm as long as that one is lent.
 */
#include "engine/chain.h"
#include "upload_util.h"

#define DIRECT "npy $/images.npy | shuffle seed=3 | cast float32 | batch 4"
#define PADDED "zip (npy $/images.npy) (npy $/classes.npy name=label) | batch 6 remainder=pad"
#define FILTERED                                                                               \
    "zip (npy $/images.npy) (npy $/classes.npy name=label) | filter \"label != 7\" | batch 6 " \
    "remainder=keep"
#define SHUFFLED \
    "npy $/classes.npy name=label | filter \"label > 0\" | shuffle seed=1 buffer=32KiB | batch 3"
#define RAGGED "text $/lines.txt | batch 5 remainder=keep"
static const char *const texts[] = { DIRECT, PADDED, FILTERED, SHUFFLED, RAGGED };
#define TEXTS (sizeof texts / sizeof texts[0])

static const brim_device kinds[] = { BRIM_DEVICE_HOST, BRIM_DEVICE_OPENCL };
#define KINDS (sizeof kinds / sizeof kinds[0])

static uint32_t least(uint32_t hold) {
    return hold < 2 ? 2 : hold;
}

/* ------------------------------------------------------------------ the minimum */

static void test_the_minimum_is_hold_and_two_at_least(void **state) {
    (void)state;
    for (size_t w = 0; w < TEXTS * KINDS; w++) {
        const brim_device kind = kinds[w / TEXTS];
        if (!has_device(kind)) {
            continue;
        }
        for (uint32_t hold = 0; hold < 6; hold++) {
            char text[TEXT_BYTES], part[32];
            struct session session;
            struct how how = { .threads = 1, .hold = hold, .device = kind };
            session_open(&session, expand(texts[w % TEXTS], text), &how);
            const brim_plan_info *info = brim_plan_get(brim_loader_plan(session.loader));
            const bool there = kind != BRIM_DEVICE_HOST;
            assert_int_equal(there ? info->minimum_device_slots : info->minimum_slots, least(hold));
            assert_int_equal(info->minimum_slots, there ? 2 : least(hold));
            session_close(&session);

            how.slots = least(hold);
            session_open(&session, text, &how);
            session_close(&session);
            how.slots--;
            snprintf(part, sizeof part, "at least %u are needed", least(hold));
            expect_refused(text, &how, BRIM_STATUS_INVALID, part);
        }
    }
}

/* A consumer that has hold - 1 batches gets the next one, from epoch to epoch: in no more slots
 * than the minimum, and in no more bytes, of any kind. */
static void test_loops_in_the_minimum(void **state) {
    (void)state;
    for (size_t w = 0; w < TEXTS * KINDS; w++) {
        const brim_device kind = kinds[w / TEXTS];
        char text[TEXT_BYTES];
        if (!has_device(kind)) {
            continue;
        }
        expand(texts[w % TEXTS], text);
        const struct digest wanted = run_epochs(text, &(struct how){ 0 }, 2);
        for (unsigned way = 0; way < 18; way++) {
            const uint32_t hold = 1 + way % 3;
            struct how how = { .threads = (int32_t)(way / 3 % 3), .hold = hold, .device = kind };
            if (way < 9) {
                how.bytes = how.device_bytes = how.pinned_bytes = AT_MINIMUM;
            } else {
                how.slots = least(hold);
            }
            assert_same(run_epochs(text, &how, 2), wanted);
        }
    }
}

/* With `hold` lent `next` says so, and does not wait; the one that is released first makes room,
 * whichever it is. */
static void test_all_slots_lent(void **state) {
    (void)state;
    for (size_t w = 0; w < TEXTS * KINDS; w++) {
        const brim_device kind = kinds[w / TEXTS];
        char text[TEXT_BYTES];
        if (!has_device(kind)) {
            continue;
        }
        expand(texts[w % TEXTS], text);
        for (unsigned way = 0; way < 9; way++) {
            const uint32_t hold = 1 + way % 3;
            const struct how how = {
                .threads = (int32_t)(way / 3), .hold = hold, .device = kind, .bytes = AT_MINIMUM
            };
            struct session session;
            brim_batch *held[3] = { 0 }, *none = NULL;
            session_open(&session, text, &how);
            for (uint32_t i = 0; i < hold; i++) {
                held[i] = take_batch(&session);
            }
            for (uint32_t i = 0; i < hold; i++) {
                assert_int_equal(brim_loader_next(session.loader, BRIM_FOREVER, &none),
                                 BRIM_STATUS_HELD);
                assert_null(none);
                assert_int_equal(brim_runtime_trim(session.runtime, NULL), BRIM_OK);
                const uint64_t step = brim_batch_get(held[i])->step;
                brim_batch_release(held[i]);
                held[i] = take_batch(&session);
                assert_int_equal(brim_batch_get(held[i])->step, step + hold);
            }
            /* elsewhere, with all of them lent */
            MUST(brim_loader_seek(session.loader, 3, 0));
            assert_int_equal(brim_loader_next(session.loader, BRIM_FOREVER, &none),
                             BRIM_STATUS_HELD);
            brim_batch_release(held[0]);
            held[0] = take_batch(&session);
            assert_int_equal(brim_batch_get(held[0])->epoch, 3);
            assert_int_equal(brim_batch_get(held[0])->step, 0);
            for (uint32_t i = 0; i < hold; i++) {
                brim_batch_release(held[i]);
            }
            session_close(&session);
        }
    }
}

/* ------------------------------------------------------------------ beyond hold */

static void check(const struct session *session) {
    brim__lock(&session->loader->mutex);
    brim__chain_check(session->loader);
    brim__unlock(&session->loader->mutex);
    brim__budget_check(brim_runtime_budget(session->runtime));
}

static uint64_t elastic_of(const struct session *session) {
    return budget_of(session->runtime, session->kind).elastic;
}

/* Charges all that the runtime has left, elastic memory among it. */
static uint64_t fill(brim_runtime *runtime) {
    assert_int_equal(brim_runtime_trim(runtime, NULL), BRIM_OK);
    const brim_usage usage = usage_of(runtime);
    const uint64_t rest = usage.limit - usage.charged;
    MUST(brim_budget_charge(brim_runtime_budget(runtime), BRIM_MEMORY_HOST, rest));
    return rest;
}

static void unfill(brim_runtime *runtime, uint64_t bytes) {
    brim_budget_uncharge(brim_runtime_budget(runtime), BRIM_MEMORY_HOST, bytes);
}

/* Further batches are lent in slots that were elastic, or are charged for them: firm as long as
 * they are lent. They are the batches that come, in their order. */
static void test_beyond(void **state) {
    (void)state;
    for (size_t w = 0; w < TEXTS * KINDS; w++) {
        const brim_device kind = kinds[w / TEXTS];
        char text[TEXT_BYTES];
        if (!has_device(kind)) {
            continue;
        }
        expand(texts[w % TEXTS], text);
        for (unsigned way = 0; way < 12; way++) {
            const uint32_t hold = 1 + way % 2, beyond = 1 + way / 2 % 2;
            const struct how how = { .threads = (int32_t)(way / 4),
                                     .hold = hold,
                                     .beyond = beyond,
                                     .growth = way & 1 ? BRIM_GROWTH_FIXED : BRIM_GROWTH_ON_DEMAND,
                                     .device = kind };
            struct session session;
            brim_batch *held[4] = { 0 }, *none = NULL;
            uint64_t gone = 0;
            session_open(&session, text, &how);
            const brim_plan_info info = *brim_plan_get(brim_loader_plan(session.loader));
            const uint64_t slot_bytes =
                kind == BRIM_DEVICE_HOST ? info.slot_bytes : info.device_slot_bytes;
            assert_true(info.minimum_slots == 2);
            for (int round = 0; round < 2; round++) {
                for (uint32_t i = 0; i < hold + beyond; i++) {
                    held[i] = take_batch(&session);
                    assert_int_equal(brim_batch_get(held[i])->step, gone + i);
                    check(&session);
                }
                assert_int_equal(brim_loader_next(session.loader, BRIM_FOREVER, &none),
                                 BRIM_STATUS_HELD);
                assert_detail_has(" beyond it allows");
                /* nothing that is lent is asked back */
                assert_int_equal(brim_runtime_trim(session.runtime, NULL), BRIM_OK);
                assert_true(info.sequenced ||
                            elastic_of(&session) == 0); /* it keeps what is made */
                check(&session);
                for (uint32_t i = 0; i < hold + beyond; i++) {
                    struct digest digest = { 0 };
                    digest_batch(&digest, held[i]);
                    brim_batch_release(held[i]);
                    check(&session);
                }
                gone += hold + beyond;
                /* two stay firm */
                assert_true(kind != BRIM_DEVICE_HOST ||
                            elastic_of(&session) >= (hold + beyond - 2) * slot_bytes);
                uint64_t bytes = 0;
                assert_int_equal(brim_runtime_trim(session.runtime, &bytes), BRIM_OK);
                assert_true(info.sequenced || bytes >= (hold + beyond - 2) * slot_bytes);
                check(&session);
            }
            session_close(&session);
        }
    }
}

/* Where the budget has no slot more the names are told, and what it would need; memory of others
 * gives way for it, and it is asked for anew each time. */
static void test_beyond_ends_in_the_budget(void **state) {
    (void)state;
    char text[TEXT_BYTES];
    expand(DIRECT, text);
    for (int32_t threads = 0; threads < 3; threads++) {
        brim_open_options options = open_options("training");
        options.hold = 2;
        options.beyond = 1;
        const brim_plan_info info = plan_alone(threads, text, &options);
        brim_runtime *runtime = make_runtime(threads, info.planned_bytes);
        struct session session = open_on(runtime, text, &options);
        brim_batch *held[3] = { 0 }, *none = NULL;
        brim_budget *budget = brim_runtime_budget(runtime);
        held[0] = take_batch(&session);
        held[1] = take_batch(&session);
        const uint64_t filler = fill(runtime);
        for (int again = 0; again < 2; again++) {
            assert_int_equal(brim_loader_next(session.loader, BRIM_FOREVER, &none),
                             BRIM_STATUS_HELD);
            assert_detail_has("2 batches are held, and one beyond hold=2 does not fit (budget");
            assert_detail_has("epoch 0 step 0, epoch 0 step 1; release one");
            assert_null(none);
            assert_int_equal(usage_of(runtime).charged, usage_of(runtime).limit);
        }
        unfill(runtime, filler);
        held[2] = take_batch(&session);
        assert_int_equal(brim_batch_get(held[2])->step, 2);
        /* now it is firm: a charge takes nothing from it */
        const uint64_t less = fill(runtime);
        assert_true(less <= filler - info.slot_bytes);
        assert_int_equal(brim_budget_charge(budget, BRIM_MEMORY_HOST, 1), BRIM_STATUS_BUDGET);
        brim_batch_release(held[0]);
        MUST(brim_budget_charge(budget, BRIM_MEMORY_HOST, info.slot_bytes));
        unfill(runtime, less + info.slot_bytes);
        held[0] = take_batch(&session);
        /* closed with all of them lent */
        brim_loader_close(session.loader);
        for (int i = 0; i < 3; i++) {
            struct digest digest = { 0 };
            digest_batch(&digest, held[i]);
            brim_batch_release(held[i]);
        }
        brim_runtime_free(runtime);
    }
}

/* The end of an epoch is no batch: it needs no slot, with all batches lent that may be too. */
static void test_the_end_needs_no_slot(void **state) {
    (void)state;
    for (uint32_t beyond = 0; beyond < 2; beyond++) {
        const struct how how = { .hold = 2, .beyond = beyond, .bytes = AT_MINIMUM };
        struct session session;
        brim_batch *held[2], *none = NULL;
        session_open(&session, "range 8 | batch 4", &how);
        held[0] = take_batch(&session);
        held[1] = take_batch(&session);
        const uint64_t filler = fill(session.runtime);
        assert_int_equal(brim_loader_next(session.loader, BRIM_FOREVER, &none), BRIM_STATUS_END);
        assert_int_equal(brim_loader_next(session.loader, BRIM_FOREVER, &none), BRIM_STATUS_HELD);
        unfill(session.runtime, filler);
        brim_batch_release(held[0]);
        brim_batch_release(held[1]);
        session_close(&session);
    }
}

/* So in a sequenced plan, whoever finds the end: with a batch more to come it is refused, always. */
static void test_the_end_of_a_sequenced_plan_needs_no_slot(void **state) {
    (void)state;
    static const char *const orders[] = {
        "filter 'label >= 0'",
        "filter 'label >= 0' | shuffle buffer=32KiB",
        "filter 'label >= 0' 'label < 5'",
    };
    for (unsigned way = 0; way < 3 * 3 * 2 * 2 * KINDS; way++) {
        const brim_device kind = kinds[way / 36];
        const bool more = way / 18 % 2 == 1, kept = way / 9 % 2 == 1;
        const uint32_t hold = kept ? 3 : 2;
        char text[TEXT_BYTES];
        if (!has_device(kind)) {
            continue;
        }
        /* of the last, numbers that are not kept come after the last batch */
        snprintf(text, sizeof text, "range %u name=label | %s | batch 2 remainder=keep",
                 way % 3 == 2 ? 600 : 2 * hold, orders[way % 3]);
        if (way % 3 == 2 && !kept) {
            continue; /* five numbers are three batches */
        }
        if (more) {
            snprintf(text, sizeof text, "range %u name=label | %s | batch 2 remainder=keep",
                     2 * hold + 1, orders[way % 3 % 2]);
        }
        const struct how how = { .threads = (int32_t)(way / 3 % 3), .hold = hold, .device = kind };
        struct session session;
        brim_batch *held[3], *none = NULL;
        session_open(&session, text, &how);
        for (int again = 0; again < 3; again++) {
            for (uint32_t i = 0; i < hold; i++) {
                held[i] = take_batch(&session);
            }
            const brim_status status = brim_loader_next(session.loader, BRIM_FOREVER, &none);
            assert_int_equal(status, more ? BRIM_STATUS_HELD : BRIM_STATUS_END);
            for (uint32_t i = 0; i < hold; i++) {
                brim_batch_release(held[i]);
            }
            if (more) {
                held[0] = take_batch(&session);
                assert_int_equal(brim_batch_get(held[0])->rows, 1);
                brim_batch_release(held[0]);
                assert_int_equal(brim_loader_next(session.loader, BRIM_FOREVER, &none),
                                 BRIM_STATUS_END);
            }
        }
        session_close(&session);
    }
}

static void test_what_cannot_be_lent(void **state) {
    (void)state;
    expect_refused("range 8 | batch 4", &(struct how){ .hold = 1000, .beyond = 25 },
                   BRIM_STATUS_INVALID, "hold=1000 with beyond=25: at most 1024 batches");
    expect_refused("range 8 | batch 4", &(struct how){ .hold = 1, .beyond = UINT32_MAX },
                   BRIM_STATUS_INVALID, "at most 1024 batches");
    /* slots= bounds what is made ahead, not what is lent beyond hold */
    const struct how how = { .hold = 2, .beyond = 1, .slots = 2 };
    struct session session;
    brim_batch *held[3], *none = NULL;
    session_open(&session, "range 80 | batch 4", &how);
    assert_int_equal(brim_plan_get(brim_loader_plan(session.loader))->slots, 2);
    for (int i = 0; i < 3; i++) {
        held[i] = take_batch(&session);
    }
    assert_int_equal(brim_loader_next(session.loader, BRIM_FOREVER, &none), BRIM_STATUS_HELD);
    assert_detail_has("3 batches are held, as many as hold=2 with 1 beyond it allows");
    for (int i = 0; i < 3; i++) {
        brim_batch_release(held[i]);
    }
    session_close(&session);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_minimum_is_hold_and_two_at_least),
        cmocka_unit_test(test_loops_in_the_minimum),
        cmocka_unit_test(test_all_slots_lent),
        cmocka_unit_test(test_beyond),
        cmocka_unit_test(test_beyond_ends_in_the_budget),
        cmocka_unit_test(test_the_end_needs_no_slot),
        cmocka_unit_test(test_the_end_of_a_sequenced_plan_needs_no_slot),
        cmocka_unit_test(test_what_cannot_be_lent),
    };
    return cmocka_run_group_tests(tests, begin_upload_tests, end_tests);
}

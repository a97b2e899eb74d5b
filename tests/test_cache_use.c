/*
 * test_cache_use.c: caches in all that is done with loaders: bad samples, seeking, states,
 * shards that share a file, random stages that are frozen; and where a cache may not stand.
 */
#include "support/cache_runs.h"
#include "support/memory_data.h"

#include <dirent.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define SAMPLES 60

static const char *const tiers[] = { "cache memory", "cache file=$/1.cache",
                                     "cache file=$/1.cache verify=hit | cache memory" };

/* ---------------------------------------------------------------- functions */

/* Which samples fail: where they are made, and behind. */
static atomic_bool bad[SAMPLES], bad_behind[SAMPLES];
static _Atomic uint64_t made; /* calls */

static int make(void *user, const brim_call *call, brim_value *outputs, size_t count, char *why,
                size_t why_bytes) {
    (void)user, (void)count;
    const int64_t number = (int64_t)call->sample * 3;
    atomic_fetch_add(&made, 1);
    memcpy(outputs[0].data, &number, sizeof number);
    snprintf(why, why_bytes, "sample %d was spoilt", (int)call->sample);
    return atomic_load(&bad[call->sample]);
}

static int behind(void *user, const brim_call *call, const brim_value *inputs, size_t count,
                  brim_value *outputs, size_t output_count, char *why, size_t why_bytes) {
    (void)user, (void)count, (void)output_count, (void)why, (void)why_bytes;
    memcpy(outputs[0].data, inputs[0].data, sizeof(int64_t));
    return atomic_load(&bad_behind[call->sample]);
}

/* Another number in every epoch. */
static int draw(void *user, const brim_call *call, const brim_value *inputs, size_t count,
                brim_value *outputs, size_t output_count, char *why, size_t why_bytes) {
    (void)user, (void)count, (void)output_count, (void)why, (void)why_bytes;
    int64_t number;
    memcpy(&number, inputs[0].data, sizeof number);
    number = number * 1000 + (int64_t)call->epoch + ((int64_t)brim_call_random(call, 1) << 20);
    memcpy(outputs[0].data, &number, sizeof number);
    return 0;
}

/* A source that is another in every epoch. */
static int make_anew(void *user, const brim_call *call, brim_value *outputs, size_t count,
                     char *why, size_t why_bytes) {
    (void)user, (void)count, (void)why, (void)why_bytes;
    const int64_t number = (int64_t)(call->sample * 100 + call->epoch);
    memcpy(outputs[0].data, &number, sizeof number);
    return 0;
}

static const brim_field_spec fields[] = {
    { .size = sizeof(brim_field_spec), .name = "number", .dtype = BRIM_DTYPE_I64 },
};
static int64_t numbers[SAMPLES];

#define BINDING(label, of_kind, of_flags) \
    .size = sizeof(brim_binding), .name = label, .kind = of_kind, .flags = of_flags
#define MAP(label, of_flags, function)                                                  \
    {                                                                                   \
        BINDING(label, BRIM_BINDING_MAP, of_flags), .fields = fields, .field_count = 1, \
                                                    .map = function                     \
    }
static const brim_binding bindings[] = {
    { BINDING("made", BRIM_BINDING_SOURCE, BRIM_CALLBACK_PURE | BRIM_CALLBACK_CONCURRENT),
      .count = SAMPLES, .fields = fields, .field_count = 1, .read = make },
    { BINDING("anew", BRIM_BINDING_SOURCE, BRIM_CALLBACK_PURE | BRIM_CALLBACK_RANDOM),
      .count = SAMPLES, .fields = fields, .field_count = 1, .read = make_anew },
    MAP("behind", BRIM_CALLBACK_PURE | BRIM_CALLBACK_CONCURRENT, behind),
    MAP("random", BRIM_CALLBACK_PURE | BRIM_CALLBACK_CONCURRENT | BRIM_CALLBACK_RANDOM, draw),
    MAP("impure", BRIM_CALLBACK_CONCURRENT, draw),
    { BINDING("numbers", BRIM_BINDING_ARRAY, 0), .data = numbers, .dtype = BRIM_DTYPE_I64,
      .rank = 1, .shape = { SAMPLES } },
};
static const struct how plain = { .bindings = bindings, .binding_count = COUNT_OF(bindings) };

static struct how with_threads(int32_t threads) {
    struct how how = plain;
    how.threads = threads;
    return how;
}

static const char *text_of(const char *marked, const char *cache, char text[TEXT_BYTES]) {
    return with_caches(marked, (struct caches){ { cache } }, text);
}

/* -------------------------------------------------------------- bad samples */

static void spoil(atomic_bool *which, unsigned every, unsigned first) {
    for (unsigned i = 0; i < SAMPLES; i++) {
        atomic_store(&which[i], every > 0 && i % every == first);
    }
}

/* Bad ones are met again in every epoch, as without a cache, whoever fails; of a sample that
 * failed nothing is kept. */
static void test_bad_samples(void **state) {
    (void)state;
    static const char *const marked[] = {
        "callback @made version=1 ^| shuffle seed=3 | batch 7 on_error=skip",
        "callback @made version=1 | map @behind version=1 ^| shuffle | batch 7 on_error=skip",
        "callback @made version=1 ^| map @behind | shuffle seed=3 | batch 7 on_error=replace",
        "callback @made version=1 ^| map @behind | filter \"number > 9\" | batch 4 on_error=skip",
    };
    spoil(bad, 7, 3);
    spoil(bad_behind, 11, 0);
    for (size_t p = 0; p < COUNT_OF(marked); p++) {
        char text[TEXT_BYTES];
        const struct digest wanted = run_epochs(text_of(marked[p], NULL, text), &plain, 3, NULL);
        for (size_t t = 0; t < COUNT_OF(tiers); t++) {
            for (int32_t threads = 0; threads <= 4; threads += 2) {
                const struct how how = with_threads(threads);
                brim_cache_stats stats;
                text_of(marked[p], tiers[t], text);
                remove_file("1.cache");
                assert_digest(text, run_epochs(text, &how, 3, &stats), wanted);
                assert_true(threads > 0 || (stats.filled > 40 && stats.filled < SAMPLES - 7));
                assert_digest(text, run_epochs(text, &how, 3, NULL), wanted);
            }
        }
    }
    spoil(bad, 0, 0);
    spoil(bad_behind, 0, 0);
}

/* A sample that failed once and is good now: made and kept then. One that is kept comes even
 * if it could not be made any more. */
static void test_good_again_and_bad_again(void **state) {
    (void)state;
    char text[TEXT_BYTES];
    for (size_t t = 0; t < COUNT_OF(tiers); t++) {
        struct session session;
        struct log log = { 0 };
        remove_file("1.cache");
        spoil(bad, 10, 5);
        session_open(&session,
                     text_of("callback @made version=1 ^| batch 10 on_error=skip", tiers[t], text),
                     &plain);
        assert_true(take_batches(&session, TO_THE_END, log_batch, &log));
        assert_int_equal(log.rows, 54);
        spoil(bad, 0, 0);
        atomic_store(&made, 0);
        assert_true(take_batches(&session, TO_THE_END, log_batch, &log));
        assert_int_equal(log.rows, 54 + 60);
        assert_int_equal(made, 6);
        spoil(bad, 1, 0);
        assert_true(take_batches(&session, TO_THE_END, log_batch, &log));
        assert_int_equal(log.rows, 54 + 60 + 60);
        assert_int_equal(made, 6);
        log_free(&log);
        session_close(&session);
        spoil(bad, 0, 0);
    }
}

/* on_error=fail: the error is the same, in every epoch, and goes away with its cause. */
static void test_a_failure_is_not_kept(void **state) {
    (void)state;
    for (size_t t = 0; t < COUNT_OF(tiers); t++) {
        char text[TEXT_BYTES];
        struct session session;
        brim_batch *batch = NULL;
        remove_file("1.cache");
        spoil(bad, 60, 33);
        session_open(&session, text_of("callback @made version=1 ^| batch 30", tiers[t], text),
                     &plain);
        brim_batch_release(take_batch(&session));
        for (int i = 0; i < 3; i++) {
            assert_int_equal(brim_loader_next(session.loader, BRIM_FOREVER, &batch),
                             BRIM_STATUS_CALLBACK);
            assert_detail_has("sample 33 was spoilt");
        }
        spoil(bad, 0, 0);
        brim_batch_release(take_batch(&session));
        session_close(&session);
    }
}

/* ------------------------------------------------------- seeking and states */

static void test_seek_and_restore(void **state) {
    (void)state;
    static const char marked[] =
        "npy $/a.npy $/b.npy ^| shuffle seed=4 | flip | cast float32 | batch 10";
    static const uint64_t epochs[] = { 3, 0, 1, 0, 7 };
    char text[TEXT_BYTES];
    struct digest wanted = { 0 };
    struct session session;
    for (size_t t = 0; t <= COUNT_OF(tiers); t++) {
        for (int32_t threads = 0; threads <= 2; threads += 2) {
            const struct how how = with_threads(threads);
            struct digest digest = { 0 };
            brim_state taken;
            text_of(marked, t == 0 ? NULL : tiers[t - 1], text);
            remove_file("1.cache");
            session_open(&session, text, &how);
            for (size_t i = 0; i < COUNT_OF(epochs); i++) {
                assert_int_equal(brim_loader_seek(session.loader, epochs[i], 2 * i), BRIM_OK);
                take_batches(&session, 3, digest_batch, &digest);
            }
            take_batches(&session, 1, digest_batch, &digest);
            taken = session_state(&session);
            session_close(&session);
            session_open(&session, text, &how); /* of the file's samples there are some now */
            session_restore(&session, &taken);
            take_batches(&session, TO_THE_END, digest_batch, &digest);
            take_batches(&session, TO_THE_END, digest_batch, &digest);
            session_close(&session);
            if (t == 0) {
                wanted = digest;
            }
            assert_digest(text, digest, wanted);
        }
    }
}

/* A state of a run without a cache is one of a run with it: the order is the same. */
static void test_a_state_does_not_know_of_caches(void **state) {
    (void)state;
    char without[TEXT_BYTES], with[TEXT_BYTES];
    struct session session;
    struct digest digest = { 0 }, wanted = { 0 };
    text_of("npy $/a.npy ^| shuffle seed=4 | batch 10", NULL, without);
    text_of("npy $/a.npy ^| shuffle seed=4 | batch 10", tiers[0], with);
    session_open(&session, without, &plain);
    take_batches(&session, 2, digest_batch, &digest);
    const brim_state taken = session_state(&session);
    take_batches(&session, TO_THE_END, digest_batch, &wanted);
    session_close(&session);
    digest = (struct digest){ 0 };
    session_open(&session, with, &plain);
    session_restore(&session, &taken);
    take_batches(&session, TO_THE_END, digest_batch, &digest);
    assert_digest(with, digest, wanted);
    session_close(&session);
}

/* ------------------------------------------------------------------- shards */

/* Two ranks use one file at the same time, taking turns: one fills it, both read it. */
static void test_ranks_share_a_file(void **state) {
    (void)state;
    static const char marked[] =
        "npy $/a.npy $/b.npy | layout chw ^| shuffle seed=6 | cast float32 | batch 8 remainder=pad";
    char text[TEXT_BYTES];
    for (int32_t threads = 0; threads <= 2; threads++) {
        struct session rank[2];
        struct digest wanted[2], digest[2] = { { 0 } };
        struct how how = with_threads(threads);
        how.world = 2;
        text_of(marked, NULL, text);
        for (how.rank = 0; how.rank < 2; how.rank++) {
            wanted[how.rank] = run_epochs(text, &how, 3, NULL);
        }
        remove_file("1.cache");
        text_of(marked, "cache file=$/1.cache", text);
        for (how.rank = 0; how.rank < 2; how.rank++) {
            session_open(&rank[how.rank], text, &how);
        }
        for (unsigned epoch = 0; epoch < 3; epoch++) {
            for (bool ended[2] = { false }; !ended[0] || !ended[1];) {
                for (unsigned r = 0; r < 2; r++) {
                    ended[r] = ended[r] || take_batches(&rank[r], 2, digest_batch, &digest[r]);
                }
            }
        }
        for (unsigned r = 0; r < 2; r++) {
            assert_digest(text, digest[r], wanted[r]);
            const brim_cache_stats stats = cache_stats(rank[r].loader, 0);
            assert_int_equal(stats.fills, r == 0);
            assert_int_equal(
                strstr(stats.warning, "another loader or process is filling it") != NULL, r == 1);
            assert_true(threads > 0 || stats.hits > 0); /* a thread writes when it comes to it */
            assert_int_equal(stats.damaged, 0);
        }
        assert_int_equal(cache_stats(rank[1].loader, 0).stored, 0);
        session_close(&rank[0]);
        session_close(&rank[1]);
        brim_cache_stats stats;
        how = with_threads(0);
        run_epochs(text, &how, 1, NULL); /* fills the rest, of whichever rank */
        run_epochs(text, &how, 1, &stats);
        assert_int_equal(stats.misses, 0);
        assert_int_equal(stats.filled, 96);
    }
}

/* The same path twice in one pipeline: one of them keeps nothing, and says why. */
static void test_one_path_for_two_caches(void **state) {
    (void)state;
    static const char marked[] =
        "mix 1 (npy $/a.npy ^) 1 (npy $/b.npy ^) length=90 | shuffle ^| batch 10";
    char text[TEXT_BYTES];
    const struct digest wanted =
        run_epochs(with_caches(marked, (struct caches){ { 0 } }, text), &plain, 2, NULL);
    struct caches caches = { { "cache file=$/1.cache", "cache file=$/1.cache",
                               "cache file=$/1.cache" } };
    struct session session;
    struct digest digest = { 0 };
    remove_file("1.cache");
    session_open(&session, with_caches(marked, caches, text), &plain);
    assert_true(take_batches(&session, TO_THE_END, digest_batch, &digest));
    assert_true(take_batches(&session, TO_THE_END, digest_batch, &digest));
    assert_digest(text, digest, wanted);
    unsigned fill = 0;
    for (size_t i = 0; i < 3; i++) {
        const brim_cache_stats stats = cache_stats(session.loader, i);
        fill += stats.fills != 0;
        assert_true(stats.fills || strstr(stats.warning, "1.cache: ") != NULL);
    }
    assert_int_equal(fill, 1);
    session_close(&session);
}

static unsigned cache_files_in(const char *name) {
    DIR *entries = opendir(in_directory(name).text);
    unsigned count = 0;
    assert_non_null(entries);
    for (const struct dirent *entry; (entry = readdir(entries)) != NULL;) {
        const char *dot = strrchr(entry->d_name, '.');
        count += dot != NULL && strcmp(dot, ".brimcache") == 0;
    }
    closedir(entries);
    return count;
}

/* A directory holds a file for each pipeline, each found again by its own. */
static void test_one_directory_for_all(void **state) {
    (void)state;
    static const char *const marked[] = {
        "npy $/a.npy ^| batch 8",
        "npy $/a.npy | cast float32 ^| batch 8",
        "npy $/b.npy ^| batch 8",
    };
    char text[TEXT_BYTES];
    for (unsigned turn = 0; turn < 2; turn++) {
        for (unsigned p = 0; p < COUNT_OF(marked); p++) {
            brim_cache_stats stats;
            run_epochs(text_of(marked[p], "cache file=$/many/of/them/", text), &plain, 1, &stats);
            assert_int_equal(stats.misses > 0, turn == 0);
            assert_int_equal(stats.hits > 0, turn == 1);
            assert_int_equal(cache_files_in("many/of/them"), turn == 0 ? p + 1 : 3);
        }
    }
}

/* ------------------------------------------------------- behind and in front */

/* What stands behind a cache may change, and the order, and the batches: it is kept. */
static void test_kept_when_others_change(void **state) {
    (void)state;
    static const char *const kept[] = {
        "npy $/a.npy $/b.npy | cast float32 ^| batch 8",
        "npy $/a.npy $/b.npy | cast float32 ^| layout chw | batch 8",
        "npy $/a.npy $/b.npy | cast float32 ^| normalize mean=1 std=2 | batch 24 remainder=pad",
        "npy $/a.npy $/b.npy | shuffle | cast float32 ^| batch 5",
        "npy $/a.npy $/b.npy | cast float32 ^| shuffle seed=9 | take 40 | repeat 2 | batch 8",
        "npy $/a.npy $/b.npy | split train validation=0.5 | cast float32 ^| batch 8",
        "npy $/a.npy $/b.npy | cast float32 ^| cast uint8 | flip | batch 8 on_error=skip",
    };
    static const char *const others[] = {
        "npy $/a.npy $/b.npy | cast float16 ^| batch 8",
        "npy $/a.npy $/b.npy | cast float32 | cast float32 ^| batch 8",
        "npy $/a.npy $/b.npy name=y | cast float32 ^| batch 8",
        "npy $/b.npy $/a.npy | cast float32 ^| batch 8",
    };
    char text[TEXT_BYTES];
    brim_cache_stats stats;
    remove_file("1.cache");
    run_epochs(text_of(kept[0], tiers[1], text), &plain, 1, NULL);
    for (size_t i = 0; i < COUNT_OF(kept); i++) {
        const struct digest wanted = run_epochs(text_of(kept[i], NULL, text), &plain, 1, NULL);
        assert_digest(text, run_epochs(text_of(kept[i], tiers[1], text), &plain, 1, &stats),
                      wanted);
        assert_int_equal(stats.misses, 0);
        assert_true(stats.hits > 0);
    }
    for (size_t i = 0; i < COUNT_OF(others); i++) {
        const struct digest wanted = run_epochs(text_of(others[i], NULL, text), &plain, 1, NULL);
        assert_digest(text, run_epochs(text_of(others[i], tiers[1], text), &plain, 1, &stats),
                      wanted);
        assert_int_equal(stats.hits, 0);
        run_epochs(text, &plain, 1, &stats);
        assert_int_equal(stats.misses, 0); /* it was reset, for this one */
    }
}

/* ------------------------------------------------------------------- freeze */

static struct digest epoch_digest(struct session *session) {
    struct log log = { 0 };
    struct digest digest = { 0 };
    assert_true(take_batches(session, TO_THE_END, log_batch, &log));
    for (size_t i = 0; i < log.rows; i++) {
        digest.value = digest.value * 31 + log.row[i].hash + log.row[i].id;
    }
    digest.batches = log.batches;
    log_free(&log);
    return digest;
}

/* Every epoch is the first: cold, full, emptied, found in a file, with any threads. */
static void test_freeze(void **state) {
    (void)state;
    static const char *const marked[] = {
        "npy $/a.npy | flip | random_crop 8 | color_jitter hue=0.2 ^| cast float32 | batch 10",
        "callback @made version=1 | map @random version=1 ^| batch 10",
        "callback @anew version=1 ^| batch 10",
        "callback @made version=1 | shuffle seed=2 | map @random version=1 ^| batch 9",
        ("mix 1 (npy $/a.npy | flip | random_crop 8) 1 (npy $/b.npy | random_crop 8 | repeat 2) "
         "length=80 ^| batch 8"),
    };
    static const char *const frozen[] = { "cache memory freeze=yes",
                                          "cache file=$/1.cache freeze=yes",
                                          "cache memory freeze=yes limit=48KiB" };
    for (size_t p = 0; p < COUNT_OF(marked); p++) {
        const bool shuffled = p > 2; /* then epochs differ in their order */
        char text[TEXT_BYTES];
        struct session session;
        struct digest first = { 0 }, second = { 0 };
        session_open(&session, text_of(marked[p], NULL, text), &plain);
        first = epoch_digest(&session);
        assert_int_not_equal(epoch_digest(&session).value, first.value);
        session_close(&session);
        for (size_t t = 0; t < COUNT_OF(frozen); t++) {
            remove_file("1.cache");
            for (int32_t turn = 0; turn < 4; turn++) {
                const struct how how = with_threads(turn % 3);
                session_open(&session, text_of(marked[p], frozen[t], text), &how);
                assert_digest(text, epoch_digest(&session), first);
                for (int epoch = 1; epoch < 4; epoch++) {
                    if (epoch == 2) {
                        assert_int_equal(brim_runtime_trim(session.runtime, NULL), BRIM_OK);
                        assert_int_equal(brim_loader_seek(session.loader, 1, 0), BRIM_OK);
                    }
                    const struct digest digest = epoch_digest(&session);
                    if (!shuffled) {
                        assert_digest(text, digest, first);
                    } else if (epoch == 1 && turn == 0 && t == 0) {
                        second = digest;
                    } else if (epoch < 3) { /* epoch 1, twice */
                        assert_digest(text, digest, second);
                    }
                }
                session_close(&session);
            }
        }
    }
}

/* With a seed of its own a frozen cache is another. */
static void test_freeze_knows_the_seed(void **state) {
    (void)state;
    char text[TEXT_BYTES];
    brim_cache_stats stats;
    static const char *const marked[] = {
        "npy $/a.npy | random_crop 8 seed=1 ^| batch 10",
        "npy $/a.npy | random_crop 8 seed=2 ^| batch 10",
        "npy $/a.npy | flip p=0 | random_crop 8 seed=2 ^| batch 10",
    };
    remove_file("1.cache");
    for (size_t i = 0; i < COUNT_OF(marked); i++) {
        run_epochs(text_of(marked[i], "cache file=$/1.cache freeze=yes", text), &plain, 1, &stats);
        assert_int_equal(stats.hits, 0);
        run_epochs(text, &plain, 1, &stats);
        assert_int_equal(stats.misses, 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_samples),
        cmocka_unit_test(test_good_again_and_bad_again),
        cmocka_unit_test(test_a_failure_is_not_kept),
        cmocka_unit_test(test_seek_and_restore),
        cmocka_unit_test(test_a_state_does_not_know_of_caches),
        cmocka_unit_test(test_ranks_share_a_file),
        cmocka_unit_test(test_one_path_for_two_caches),
        cmocka_unit_test(test_one_directory_for_all),
        cmocka_unit_test(test_kept_when_others_change),
        cmocka_unit_test(test_freeze),
        cmocka_unit_test(test_freeze_knows_the_seed),
    };
    return cmocka_run_group_tests(tests, begin_memory_tests_in_memory, end_tests);
}

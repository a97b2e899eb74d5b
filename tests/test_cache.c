/*
 * test_cache.c: a cache never decides what a batch holds.
 *
 * Every pipeline below is run without a cache, and then with caches of every kind at its
 * marks (support/cache_runs.h): begun and left in the middle, filled on, and full; with
 * different numbers of threads, in memory in plenty and in the least that the plan allows.
 * All of these give the same batches, over two epochs.
 */
#include "support/cache_runs.h"
#include "support/format_data.h"
#include "support/image_data.h"
#include "support/memory_data.h"
#include "support/memory_watch.h"

#include <string.h>

#define EPOCHS 2

/* ---------------------------------------------------------------- functions */

#define SAMPLES 50
#define WIDTH   37

/* A sample is its number and what follows from it, whatever the epoch. */
static int make(void *user, const brim_call *call, brim_value *outputs, size_t count, char *why,
                size_t why_bytes) {
    (void)user, (void)count, (void)why, (void)why_bytes;
    const int64_t number = (int64_t)call->sample;
    uint32_t *noise = outputs[1].data;
    memcpy(outputs[0].data, &number, sizeof number);
    for (uint32_t i = 0; i < call->sample % (WIDTH + 1); i++) {
        noise[i] = (uint32_t)call->sample * 65537 + i;
    }
    outputs[1].shape[0] = (int64_t)(call->sample % (WIDTH + 1));
    return 0;
}

/* Twice the number; one_more also a random number, another in every epoch. */
static int change(void *user, const brim_call *call, const brim_value *inputs, size_t count,
                  brim_value *outputs, size_t output_count, char *why, size_t why_bytes) {
    (void)count, (void)output_count, (void)why, (void)why_bytes;
    int64_t number;
    memcpy(&number, inputs[0].data, sizeof number);
    number = 2 * number + (user != NULL ? brim_call_random(call, 0) : 0);
    memcpy(outputs[0].data, &number, sizeof number);
    memcpy(outputs[1].data, inputs[1].data, inputs[1].bytes);
    outputs[1].shape[0] = inputs[1].shape[0];
    return 0;
}

static int is_even(void *user, const brim_call *call, const brim_value *inputs, size_t count,
                   char *why, size_t why_bytes) {
    (void)user, (void)call, (void)count, (void)why, (void)why_bytes;
    int64_t number;
    memcpy(&number, inputs[0].data, sizeof number);
    return number % 2 == 0;
}

static const brim_field_spec fields[] = {
    { .size = sizeof(brim_field_spec), .name = "number", .dtype = BRIM_DTYPE_I64 },
    { .size = sizeof(brim_field_spec),
      .name = "noise",
      .dtype = BRIM_DTYPE_U32,
      .rank = 1,
      .shape = { WIDTH },
      .form = BRIM_FORM_RAGGED },
};
static uint16_t grid[SAMPLES][3][5];

#define FUNCTION(label, of_kind, of_flags) \
    .size = sizeof(brim_binding), .name = label, .kind = of_kind, .flags = of_flags
static const brim_binding bindings[] = {
    { FUNCTION("made", BRIM_BINDING_SOURCE, BRIM_CALLBACK_PURE | BRIM_CALLBACK_CONCURRENT),
      .count = SAMPLES, .fields = fields, .field_count = 2, .read = make },
    { FUNCTION("twice", BRIM_BINDING_MAP, BRIM_CALLBACK_PURE), .fields = fields, .field_count = 2,
      .map = change },
    { FUNCTION("moved", BRIM_BINDING_MAP,
               BRIM_CALLBACK_PURE | BRIM_CALLBACK_CONCURRENT | BRIM_CALLBACK_RANDOM),
      .user = grid, .fields = fields, .field_count = 2, .map = change },
    { FUNCTION("even", BRIM_BINDING_FILTER, BRIM_CALLBACK_PURE | BRIM_CALLBACK_CONCURRENT),
      .filter = is_even },
    { FUNCTION("grid", BRIM_BINDING_ARRAY, 0), .data = grid, .dtype = BRIM_DTYPE_U16, .rank = 3,
      .shape = { SAMPLES, 3, 5 } },
};

/* ------------------------------------------------------------------- caches */

static const struct caches ways[] = {
    { { "cache memory" } },
    { { "cache file=$/1.cache" } },
    { { NULL, "cache memory" } },
    { { NULL, "cache file=$/1.cache" } },
    { { "cache file=$/1.cache | cache memory" } },
    { { "cache memory", "cache file=$/1.cache verify=never" } },
    { { "cache file=$/1.cache", "cache file=$/2.cache verify=hit" } },
    { { "cache memory | cache memory", "cache memory | cache memory" } },
    { { "cache memory limit=48KiB", "cache memory limit=40KiB" } },
    { { "cache file=$/1.cache limit=9KiB", "cache file=$/ limit=9KiB" } },
    { { "cache memory verify=hit" } },
};

static void forget_files(void) {
    remove_file("1.cache");
    remove_file("2.cache");
}

/* Left in the middle, filled on, full. */
static void check_way(const char *text, const struct how *base, unsigned turn,
                      struct digest wanted) {
    static const int32_t threads[] = { 0, 2, 4, 1 };
    struct how how = *base;
    forget_files();
    how.threads = threads[turn % COUNT_OF(threads)];
    run_batches(text, &how, 1 + wanted.batches / EPOCHS / 2);
    how.threads = threads[(turn / 4 + 1) % COUNT_OF(threads)];
    assert_digest(text, run_epochs(text, &how, EPOCHS, NULL), wanted);
    how.threads = threads[(turn + 2) % COUNT_OF(threads)];
    how.bytes = AT_MINIMUM;
    how.growth = turn % 2 == 0 ? BRIM_GROWTH_FIXED : BRIM_GROWTH_ON_DEMAND;
    assert_digest(text, run_epochs(text, &how, EPOCHS, NULL), wanted);
}

static void check_pipelines(const char *const *marked, size_t count, const struct how *how) {
    char text[TEXT_BYTES];
    unsigned turn = 0;
    for (size_t p = 0; p < count; p++) {
        const struct digest wanted =
            run_epochs(with_caches(marked[p], (struct caches){ 0 }, text), how, EPOCHS, NULL);
        const bool second = strchr(strchr(marked[p], '^') + 1, '^') != NULL;
        for (size_t w = 0; w < COUNT_OF(ways); w++, turn++) {
            if ((ways[w].at[0] == NULL && !second) || (is_sanitized() && (w + p) % 4 != 0)) {
                continue;
            }
            check_way(with_caches(marked[p], ways[w], text), how, turn, wanted);
        }
    }
}

/* ---------------------------------------------------------------- pipelines */

#define IMAGES "npy $/a.npy $/b.npy"
#define LABELS "(npy $/labels.npy name=label)"

static const char *const arrays[] = {
    IMAGES " ^| shuffle seed=5 | normalize imagenet ^| layout chw | batch 24",
    IMAGES " | shuffle seed=5 | layout chw ^| normalize mean=1 std=4 | batch 24 per=rank",
    IMAGES " | cast float16 ^| normalize mean=3 std=7 ^| cast bfloat16 | batch 16",
    IMAGES " | normalize imagenet | cast float16 ^| layout chw ^| cast float64 | batch 16",
    IMAGES " | cast int8 ^| cast int32 ^| cast float32 | batch 16",
    IMAGES " map=yes ^| cast float32 ^| batch 20 remainder=pad",
    IMAGES " ^| random_crop 8 | flip | color_jitter brightness=0.5 hue=0.1 | batch 16",
    IMAGES " | crop 10 12 x=1 y=2 ^| copy x view | random_crop 4 on=view | batch 16",
    "zip (" IMAGES " name=image) " LABELS " ^| shuffle | cast float32 on=image | "
    "one_hot 10 on=label ^| batch 40 micro=24",
    "zip (" IMAGES " name=image) " LABELS " | balance label ^| batch 10",
    "zip (" IMAGES " name=image) " LABELS
    " | weighted label weights=1,2,3,4,5,6,7,8,9,10 ^| batch 10",
    "zip (" IMAGES " name=image) " LABELS
    " ^| filter \"label > 4\" | shuffle buffer=64KiB | batch 10",
    "zip (" IMAGES " name=image) " LABELS " | fold 1 of=3 part=train stratify=label ^| batch 7",
    IMAGES " ^| split train validation=0.25 | shuffle | repeat 2 ^| batch 16",
    IMAGES " | skip 11 | take 50 ^| repeat 3 | shuffle | cast float16 ^| batch 16 remainder=drop",
    IMAGES " | shuffle seed=3 block=8 ^| subset $/some.txt | batch 7",
    "mix 0.6 (npy $/a.npy | shuffle seed=1 ^) 0.4 (npy $/b.npy | repeat 3 ^) length=150 | "
    "cast float32 | batch 24",
    "mix 2 (npy $/a.npy | shuffle seed=1) 1 (npy $/b.npy | flip p=1) length=150 ^| "
    "random_crop 8 | batch 24",
    "concat (npy $/a.npy ^| cast float32) (npy $/b.npy | cast float32) | shuffle ^| batch 10",
    "concat (npy $/a.npy) (npy $/a.npy) (npy $/b.npy | take 9) ^| shuffle | flip | batch 10",
    "tokens $/plain.bin length=64 ^| shuffle seed=1 | cast int64 ^| batch 64",
    "tokens $/llmc.bin length=64 stride=48 ^| batch 50",
    "tokens $/mega.bin length=64 ^| shuffle | cast float32 | batch 64",
    "range 300 ^| shuffle seed=9 | one_hot 300 on=index ^| batch 32",
    "callback @made version=1 ^| map @twice version=a ^| map @moved | batch 8",
    "callback @made version=1 | map @twice version=a ^| filter by=@even | batch 8",
    "callback @made version=1 ^| pad on=noise value=7 ^| batch 8",
    "callback @made version=1 ^| pack_sequences 64 on=noise | batch 3",
    "callback @made version=1 ^| pad on=noise ^| bucket 256 buffer=16KiB edges=8,16,37",
    "array @grid version=5 | cast float64 ^| layout ba from=ab ^| batch 8",
};

static void test_arrays(void **state) {
    (void)state;
    const struct how how = { .bindings = bindings, .binding_count = COUNT_OF(bindings) };
    write_file("some.txt", "5\n93\n0\n41\n40\n39\n7\n5\n", 20);
    for (size_t i = 0; i < sizeof grid; i++) {
        ((uint8_t *)grid)[i] = (uint8_t)(i * 7);
    }
    check_pipelines(arrays, COUNT_OF(arrays), &how);
}

#define CSV   "csv $/table.csv columns=label,score,name index=beside "
#define JSONL "jsonl $/documents.jsonl max_length=8 index=beside "

static const char *const formats[] = {
    "text $/lines.txt index=beside ^| shuffle seed=2 ^| batch 8",
    CSV "^| shuffle ^| batch 6",
    CSV "| balance label ^| batch 4",
    CSV "^| filter \"label == 1\" \"score < 90\" | batch 2",
    "csv $/table.csv columns=label,score pack=yes index=beside ^| cast float16 ^| batch 6",
    JSONL "^| shuffle ^| batch 6",
    JSONL "^| pad on=ids value=-1 ^| batch 4",
    JSONL "^| pack_sequences 32 on=ids | batch 3",
    JSONL "^| filter \"label > 0\" | shuffle buffer=4KiB | pad on=ids | batch 4",
    "jsonl $/documents.jsonl fields=ids,label max_length=8 index=beside ^| pad on=ids | "
    "bucket 64 buffer=4KiB edges=2,4,8",
    "jsonl $/documents.jsonl fields=label index=beside ^| flat_map @twice | batch 10",
    "jsonl $/documents.jsonl fields=label index=beside ^| batch 4 | batch_map @double",
    "safetensors $/x.safetensors ^| shuffle | subset $/chosen.npy ^| batch 10",
    "npz $/stored.npz ^| unbatch | batch 44",
    "npz $/deflated.npz | reshape 2 4 ^| shuffle ^| batch 10",
    "idx $/images.idx ^| shuffle | normalize unit ^| batch 10",
    "idx $/images.idx.gz ^| shuffle ^| batch 10",
    "cifar $/cifar.bin | layout hwc from=chw ^| shuffle | random_crop 32 padding=4 | flip | "
    "one_hot 10 on=label | "
    "cast float32 | batch 4 | mixup",
    "records $/raw.bin bytes=7 fields=a:uint8,b:uint16:3 ^| shuffle | cast int32 on=a ^| batch 6",
};

static void test_formats(void **state) {
    (void)state;
    const brim_open_options options = format_options();
    const struct how how = { .bindings = options.bindings, .binding_count = options.binding_count };
    check_pipelines(formats, COUNT_OF(formats), &how);
}

#define PETS "folder $/pets index=beside "

static const char *const images[] = {
    PETS "^| batch 2",
    PETS "| decode ^| random_resized_crop 16 | flip | normalize imagenet | layout chw | batch 2",
    PETS "| shuffle | decode | resize 24 ^| center_crop 16 | layout chw ^| batch 3",
    PETS "| decode | resize 20 24 ^| random_crop 16 padding=2 | flip | batch 3",
    PETS "| decode | resize 20 24 ^| random_erasing | rotate 30 | gaussian_blur 5 | batch 3",
    PETS "| decode ^| grayscale | resize 12 ^| crop 12 12 | trivial_augment | batch 4",
    PETS "| decode | copy image view ^| random_resized_crop 8 on=image | "
         "random_resized_crop 12 on=view | batch 4",
    "folder $/pets index=beside probe=no | decode room=1MiB | resize 24 | center_crop 16 ^| batch "
    "2",
    PETS "| decode | resize 24 24 ^| crop 9 11 x=3 y=2 ^| resize 7 9 | batch 4",
    PETS "| decode | crop 28 25 x=3 y=2 ^| resize 14 ^| resize 6 6 | cast float16 | batch 4",
    PETS "| decode | flip p=1 ^| resize 14 14 | brightness 0.3 | batch 4",
    "files $/pets.csv index=beside | decode ^| resize 8 8 ^| batch 1",
    PETS "| decode | resize 16 16 ^| one_hot 2 on=label | cast float32 | batch 4 | mixup | "
         "cutmix layout=hwc",
    "mix 1 (folder $/pets index=beside | decode ^| crop 16) 1 (folder $/pets index=beside | decode "
    "| resize 16 16) "
    "length=20 ^| flip | batch 6",
    "zip (folder $/same index=beside) (npy $/pets.npy) | decode on=image ^| random_crop 30 "
    "on=image,x | "
    "batch 2",
};

static void test_images(void **state) {
    (void)state;
    const struct how how = { 0 };
    check_pipelines(images, COUNT_OF(images), &how);
}

/* ------------------------------------------------------------------- counts */

/* Without workers all is exact: each sample is made once and found ever after. */
static void test_every_sample_is_made_once(void **state) {
    (void)state;
    static const char *const tiers[] = { "cache memory", "cache file=$/1.cache",
                                         "cache file=$/1.cache verify=hit",
                                         "cache file=$/1.cache verify=never" };
    const struct how how = { 0 };
    for (size_t t = 0; t < COUNT_OF(tiers); t++) {
        char text[TEXT_BYTES];
        struct session session;
        struct digest digest = { 0 };
        forget_files();
        with_caches(IMAGES " | take 90 ^| shuffle | flip | batch 10",
                    (struct caches){ { tiers[t] } }, text);
        session_open(&session, text, &how);
        assert_int_equal(cache_count(session.loader), 1);
        take_batches(&session, 4, digest_batch, &digest);
        brim_cache_stats stats = cache_stats(session.loader, 0);
        assert_string_equal(stats.tier, t == 0 ? "memory" : "file");
        assert_int_equal(stats.stage, 2);
        assert_int_equal(stats.samples, 96); /* of the source: it does not know of take */
        assert_int_equal(stats.hits, 0);
        assert_int_equal(stats.misses, 40);
        assert_int_equal(stats.filled, 40);
        for (uint64_t epoch = 0; epoch < 3; epoch++) {
            assert_true(take_batches(&session, TO_THE_END, digest_batch, &digest));
            stats = cache_stats(session.loader, 0);
            assert_int_equal(stats.misses, 90);
            assert_int_equal(stats.hits, epoch * 90);
            assert_int_equal(stats.filled, 90);
            assert_int_equal(stats.stored, 90);
            assert_int_equal(stats.dropped, 0);
            assert_int_equal(stats.damaged, 0);
            assert_true(stats.fills && stats.bytes >= 90 * 16 * 16 * 3);
            assert_string_equal(stats.warning, "");
        }
        session_close(&session);
        if (t > 0) {
            run_epochs(text, &how, 1, &stats);
            assert_int_equal(stats.hits, 90);
            assert_int_equal(stats.misses, 0);
            assert_int_equal(stats.filled, 90);
        }
    }
}

/* The last cache that has a sample gives it; those before it are not asked. */
static void test_caches_in_a_row(void **state) {
    (void)state;
    char text[TEXT_BYTES];
    const struct how how = { 0 };
    struct session session;
    struct digest digest = { 0 };
    forget_files();
    with_caches(IMAGES " ^| cast float32 ^| batch 12",
                (struct caches){ { "cache file=$/1.cache", "cache memory" } }, text);
    session_open(&session, text, &how);
    assert_int_equal(cache_count(session.loader), 2);
    assert_true(take_batches(&session, TO_THE_END, digest_batch, &digest));
    assert_true(take_batches(&session, TO_THE_END, digest_batch, &digest));
    assert_string_equal(cache_stats(session.loader, 0).tier, "file");
    assert_string_equal(cache_stats(session.loader, 1).tier, "memory");
    assert_int_equal(cache_stats(session.loader, 0).hits, 0);
    assert_int_equal(cache_stats(session.loader, 1).hits, 96);
    assert_int_equal(brim_runtime_trim(session.runtime, NULL), BRIM_OK);
    assert_int_equal(cache_stats(session.loader, 1).filled, 0);
    assert_true(take_batches(&session, TO_THE_END, digest_batch, &digest));
    assert_int_equal(cache_stats(session.loader, 0).hits, 96);
    assert_int_equal(cache_stats(session.loader, 0).misses, 96);
    assert_int_equal(cache_stats(session.loader, 1).hits, 96);
    assert_int_equal(cache_stats(session.loader, 1).misses, 2 * 96);
    brim_cache_stats stats = BRIM_CACHE_STATS_INIT;
    assert_int_equal(brim_loader_read_cache_stats(session.loader, 2, &stats), BRIM_STATUS_INVALID);
    session_close(&session);
}

int main(void) {
    const struct CMUnitTest of_arrays[] = {
        cmocka_unit_test(test_arrays),
        cmocka_unit_test(test_every_sample_is_made_once),
        cmocka_unit_test(test_caches_in_a_row),
    };
    const struct CMUnitTest of_formats[] = { cmocka_unit_test(test_formats) };
    const struct CMUnitTest of_images[] = { cmocka_unit_test(test_images) };
    return cmocka_run_group_tests(of_arrays, begin_memory_tests_in_memory, end_tests) +
           cmocka_run_group_tests(of_formats, begin_format_tests, end_tests) +
           cmocka_run_group_tests(of_images, begin_image_tests, end_tests);
}

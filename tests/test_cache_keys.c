/*
 * test_cache_keys.c: whose entries a cache file holds, told apart where it is easy to
 * mistake them: frozen draws, caches side by side that look at files or do not, other image
 * libraries, data of equal shapes, links, and what is said of a file that is reset.
 */
#include "base/platform.h"
#include "image/decode.h"
#include "support/cache_runs.h"
#include "support/memory_data.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct how plain = { .threads = 0 };

/* In place of the library's own: which decoders there are. */
static uint64_t libraries = 1;
uint64_t brim__image_libraries(void) {
    return libraries;
}

static struct digest run(const char *text, brim_cache_stats *stats) {
    return run_epochs(text, &plain, 1, stats);
}

/* Two pipelines of the same stages, whose draws differ because they stand elsewhere. */
static void test_frozen_draws_are_those_of_the_pipeline(void **state) {
    (void)state;
    static const char *const pipelines[] = {
        "concat (npy $/a.npy | random_crop 5 padding=2)"
        " (npy $/a.npy | random_crop 5 padding=2) ^| batch 8",
        "concat (npy $/a.npy) (npy $/a.npy) | random_crop 5 padding=2 ^| batch 8",
    };
    char text[TEXT_BYTES];
    struct digest wanted[2];
    remove_file("1.cache");
    for (size_t i = 0; i < 2; i++) {
        with_caches(pipelines[i], (struct caches){ { "cache memory freeze=yes" } }, text);
        wanted[i] = run(text, NULL);
    }
    assert_int_not_equal(wanted[0].value, wanted[1].value);
    for (size_t i = 0; i < 4; i++) {
        with_caches(pipelines[i % 2], (struct caches){ { "cache file=$/1.cache freeze=yes" } },
                    text);
        assert_digest(text, run(text, NULL), wanted[i % 2]);
    }
}

/* A cache in memory that looks at files does not make one in a file do so. */
static void test_each_file_has_its_own_stamps(void **state) {
    (void)state;
    char text[TEXT_BYTES];
    brim_cache_stats stats;
    remove_file("1.cache");
    with_caches(
        "npy $/a.npy ^^| batch 8",
        (struct caches){ { "cache file=$/1.cache verify=never", "cache memory verify=hit" } },
        text);
    const struct digest wanted = run(text, NULL);
    with_caches("npy $/a.npy ^| batch 8",
                (struct caches){ { "cache file=$/1.cache verify=never" } }, text);
    assert_digest(text, run(text, &stats), wanted);
    assert_int_equal(stats.misses, 0);
    assert_int_equal(stats.damaged + stats.changed, 0);
}

/* Another decoder may give other pixels. */
static void test_other_image_libraries(void **state) {
    (void)state;
    char text[TEXT_BYTES];
    brim_cache_stats stats;
    remove_file("1.cache");
    with_caches("npy $/a.npy ^| batch 8", (struct caches){ { "cache file=$/1.cache" } }, text);
    const struct digest wanted = run(text, &stats);
    assert_int_equal(stats.filled, stats.misses);
    for (int i = 0; i < 3; i++) {
        assert_digest(text, run(text, &stats), wanted);
        assert_int_equal(stats.misses, 0);
        libraries++;
        assert_digest(text, run(text, &stats), wanted);
        assert_int_equal(stats.hits, 0);
        assert_int_equal(stats.filled, stats.misses);
        assert_non_null(strstr(stats.note, "reset"));
    }
}

/* Nobody looks at the files, but at their paths. */
static void test_data_of_equal_shapes(void **state) {
    (void)state;
    char text[TEXT_BYTES], one[TEXT_BYTES], other[TEXT_BYTES];
    copy_file("a.npy", "twin.npy");
    size_t bytes;
    uint8_t *data = read_whole("twin.npy", &bytes);
    data[bytes - 1] ^= 1;
    FILE *file = fopen(expand("$/twin.npy", text), "wb");
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    fclose(file);
    free(data);
    remove_file("1.cache");
    const struct caches caches = { { "cache file=$/1.cache verify=never" } };
    with_caches("npy $/a.npy ^| batch 8", caches, one);
    with_caches("npy $/twin.npy ^| batch 8", caches, other);
    const struct digest first = run(one, NULL), second = run(other, NULL);
    assert_int_not_equal(first.value, second.value);
    assert_int_equal(second.value, run(expand("npy $/twin.npy | batch 8", text), NULL).value);
}

static void test_what_was_found_is_said(void **state) {
    (void)state;
    static const struct {
        const char *cache, *note;
    } turns[] = {
        { "cache file=$/1.cache", "" },
        { "cache file=$/1.cache", "" },
        { "cast float32 | cache file=$/1.cache", "reset: it was of other data or stages: npy " },
        { "cast float32 | cache file=$/1.cache verify=hit", "reset: it was made with another" },
        { "cache file=$/1.cache", "reset: it was of other" },
    };
    char text[TEXT_BYTES];
    brim_cache_stats stats;
    remove_file("1.cache");
    for (size_t i = 0; i < sizeof turns / sizeof turns[0]; i++) {
        with_caches("npy $/b.npy ^| batch 8", (struct caches){ { turns[i].cache } }, text);
        run(text, &stats);
        assert_string_equal(stats.warning, "");
        assert_memory_equal(stats.note, turns[i].note, strlen(turns[i].note));
        assert_int_equal(stats.note[0] == '\0', turns[i].note[0] == '\0');
    }
    const struct timespec times[2] = { { .tv_sec = 1000 }, { .tv_sec = 1000 } };
    char path[TEXT_BYTES];
    assert_int_equal(utimensat(AT_FDCWD, expand("$/b.npy", path), times, 0), 0);
    run(text, &stats);
    assert_string_equal(stats.note, "reset: a file of the data has changed since");
    assert_int_equal(truncate(expand("$/1.cache", path), 5000), 0);
    FILE *file = fopen(path, "r+b");
    assert_int_equal(fseek(file, 200, SEEK_SET), 0);
    fputs("damage", file);
    fclose(file);
    run(text, &stats);
    assert_string_equal(stats.note, "reset: it was damaged, or of another format");
}

/* Who only reads tells what the other has put in. */
static void test_a_reader_counts_what_is_there(void **state) {
    (void)state;
    char text[TEXT_BYTES];
    struct session writer, reader;
    struct digest ignored = { 0 };
    remove_file("1.cache");
    with_caches("npy $/a.npy ^| batch 8", (struct caches){ { "cache file=$/1.cache" } }, text);
    session_open(&writer, text, &plain);
    session_open(&reader, text, &plain);
    assert_true(take_batches(&writer, TO_THE_END, digest_batch, &ignored));
    const uint64_t deadline = brim__now() + UINT64_C(60000000000);
    uint64_t filled;
    do {
        filled = cache_stats(reader.loader, 0).filled;
    } while (filled == 0 && brim__now() < deadline);
    assert_int_equal(filled, cache_stats(writer.loader, 0).filled);
    session_close(&reader);
    session_close(&writer);
}

/* What a link leads to is made and replaced; the link stays. */
static void test_links(void **state) {
    (void)state;
    char text[TEXT_BYTES], target[TEXT_BYTES], name[TEXT_BYTES];
    brim_cache_stats stats;
    struct stat facts;
    remove_file("1.cache");
    remove_file("link");
    expand("$/1.cache", target);
    expand("$/link", name);
    assert_int_equal(symlink(target, name), 0);
    with_caches("npy $/a.npy ^| batch 8", (struct caches){ { "cache file=$/link" } }, text);
    const struct digest wanted = run(expand("npy $/a.npy | batch 8", target), NULL);
    assert_digest(text, run(text, &stats), wanted);
    assert_non_null(strstr(stats.warning, "No such file"));
    expand("npy $/b.npy | cache file=$/1.cache | batch 8", target);
    run(target, NULL);
    assert_digest(text, run(text, &stats), wanted); /* reset, behind the link */
    assert_digest(text, run(text, &stats), wanted);
    assert_int_equal(stats.misses, 0);
    assert_int_equal(lstat(name, &facts), 0);
    assert_true(S_ISLNK(facts.st_mode));
}

/* One loader's want of memory says nothing of another budget's. */
static void test_a_part_of_the_budget(void **state) {
    (void)state;
    char text[TEXT_BYTES];
    brim_runtime_options options = BRIM_RUNTIME_OPTIONS_INIT;
    options.host_bytes = UINT64_C(1) << 30;
    options.threads = 2;
    brim_runtime *runtime;
    brim_budget *part;
    brim_loader *idle, *loader;
    brim_pipeline *pipeline;
    assert_int_equal(brim_runtime_new(&options, &runtime), BRIM_OK);
    assert_int_equal(brim_budget_new(brim_runtime_budget(runtime), "part", 16u << 20, 0, &part),
                     BRIM_OK);
    brim_open_options open = BRIM_OPEN_OPTIONS_INIT;
    assert_int_equal(
        brim_pipeline_parse("range 100000 | one_hot 100000 on=index | batch 200", &pipeline),
        BRIM_OK);
    assert_int_equal(brim_loader_open(runtime, pipeline, &open, &idle), BRIM_OK);
    brim_pipeline_free(pipeline);
    open.budget = part;
    with_caches("npy $/a.npy ^| batch 8", (struct caches){ { "cache memory" } }, text);
    assert_int_equal(brim_pipeline_parse(text, &pipeline), BRIM_OK);
    assert_int_equal(brim_loader_open(runtime, pipeline, &open, &loader), BRIM_OK);
    brim_pipeline_free(pipeline);
    const uint64_t deadline = brim__now() + UINT64_C(60000000000);
    brim_cache_stats stats = cache_stats(loader, 0);
    while (stats.filled < stats.samples && brim__now() < deadline) {
        brim_batch *batch;
        if (brim_loader_next(loader, -1, &batch) == BRIM_OK) {
            brim_batch_release(batch);
        }
        stats = cache_stats(loader, 0);
    }
    assert_int_equal(stats.filled, stats.samples);
    brim_loader_close(loader);
    brim_loader_close(idle);
    brim_budget_free(part);
    brim_runtime_free(runtime);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frozen_draws_are_those_of_the_pipeline),
        cmocka_unit_test(test_each_file_has_its_own_stamps),
        cmocka_unit_test(test_other_image_libraries),
        cmocka_unit_test(test_data_of_equal_shapes),
        cmocka_unit_test(test_what_was_found_is_said),
        cmocka_unit_test(test_a_reader_counts_what_is_there),
        cmocka_unit_test(test_links),
        cmocka_unit_test(test_a_part_of_the_budget),
    };
    return cmocka_run_group_tests(tests, begin_memory_tests_in_memory, end_tests);
}

/*
 * test_cache_damage.c: cache files that are damaged, torn, forged or somebody else's, and
 * disks that are full, read-only or gone.
 *
 * Every run gives the batches of a run without a cache, and ends. Where the system refuses
 * for good, the statistics say why. Forged entries, whose checksums are right, are the only
 * ones that are believed: of these only that nothing is read or written out of bounds.
 *
 * With BRIM_TEST_LONG=1 in the environment ten times as many cases are tried.
 *
 * label: quick, long
 */
#include "support/cache_runs.h"
#include "support/image_data.h"
#include "support/memory_data.h"
#include "support/memory_watch.h"

#include "cache/file_format.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct how plain = { 0 };

static unsigned times(unsigned count) {
    return getenv("BRIM_TEST_LONG") != NULL ? 10 * count : is_sanitized() ? count / 5 : count;
}

/* Entries of one size, and images of none. */
static const char *const pipelines[] = {
    "npy $/a.npy | take 12 | cast float16 ^| batch 5",
    "folder $/pets index=beside | decode ^| random_resized_crop 6 | batch 3",
};
static const uint64_t samples[] = { 12, 6 };

/* A pipeline with a full cache file, whose bytes can be spoilt. */
struct scene {
    char text[TEXT_BYTES];
    struct digest wanted;
    uint64_t samples;
    uint8_t *whole;
    size_t bytes;
};

static void begin_scene(struct scene *scene, size_t pipeline) {
    char text[TEXT_BYTES];
    const struct caches caches = { { "cache file=$/1.cache verify=never" } };
    remove_file("1.cache");
    scene->wanted =
        run_epochs(with_caches(pipelines[pipeline], (struct caches){ 0 }, text), &plain, 1, NULL);
    with_caches(pipelines[pipeline], caches, scene->text);
    run_epochs(scene->text, &plain, 1, NULL);
    scene->samples = samples[pipeline];
    scene->whole = read_whole("1.cache", &scene->bytes);
}

static void end_scene(struct scene *scene) {
    free(scene->whole);
    remove_file("1.cache");
}

/* Runs with what the file is now, and again with what that run made of it. */
static brim_cache_stats check_scene(const struct scene *scene, const char *what, uint64_t number) {
    brim_cache_stats stats, later;
    const struct how how = { .threads = number % 16 == 7 ? 2 : 0 };
    const struct digest got = run_epochs(scene->text, &how, 1, &stats);
    if (got.value != scene->wanted.value || got.batches != scene->wanted.batches) {
        fail_msg("%s, case %" PRIu64 ": other batches than without a cache", what, number);
    }
    if (number % 8 == 0) {
        assert_digest(scene->text, run_epochs(scene->text, &plain, 1, &later), scene->wanted);
        if (stats.warning[0] == '\0') {
            assert_int_equal(later.misses, 0);           /* all that was damaged is whole again */
            assert_true(later.filled >= scene->samples); /* and what was never asked for */
        }
    }
    assert_true(how.threads > 0 || stats.hits + stats.misses == scene->samples);
    return stats;
}

/* ------------------------------------------------------------------- damage */

enum place { ANYWHERE, HEADER, TABLE, HEAP, PLACES };

static size_t draw_place(const struct scene *scene, uint64_t *random) {
    struct brim__cache_header header;
    memcpy(&header, scene->whole, sizeof header);
    const uint64_t heap = brim__cache_heap(header.count);
    switch ((enum place)(next_random(random) % PLACES)) {
    case HEADER:
        return next_random(random) % BRIM__CACHE_HEADER;
    case TABLE:
        return BRIM__CACHE_HEADER + next_random(random) % (heap - BRIM__CACHE_HEADER);
    case HEAP:
        return heap + next_random(random) % (scene->bytes - heap);
    default:
        return next_random(random) % scene->bytes;
    }
}

static void test_flipped_bytes(void **state) {
    (void)state;
    for (size_t p = 0; p < COUNT_OF(pipelines); p++) {
        struct scene scene;
        uint64_t random = 17 + p, hits = 0, damaged = 0;
        begin_scene(&scene, p);
        uint8_t *bytes = malloc(scene.bytes);
        assert_non_null(bytes);
        for (uint64_t i = 0; i < times(350); i++) {
            memcpy(bytes, scene.whole, scene.bytes);
            for (uint64_t flips = 1 + next_random(&random) % 8; flips > 0; flips--) {
                bytes[draw_place(&scene, &random)] ^= (uint8_t)(1 + next_random(&random) % 255);
            }
            write_file("1.cache", bytes, scene.bytes);
            const brim_cache_stats stats = check_scene(&scene, "flipped bytes", i);
            hits += stats.hits;
            damaged += stats.damaged;
        }
        assert_true(hits > times(350) && damaged > times(350) / 10);
        free(bytes);
        end_scene(&scene);
    }
}

/* As a machine that lost its power leaves it: pieces are zeros or of another time. */
static void test_torn_files(void **state) {
    (void)state;
    for (size_t p = 0; p < COUNT_OF(pipelines); p++) {
        struct scene scene;
        uint64_t random = 31 + p;
        begin_scene(&scene, p);
        uint8_t *bytes = malloc(scene.bytes);
        assert_non_null(bytes);
        for (uint64_t i = 0; i < times(150); i++) {
            const size_t at = draw_place(&scene, &random);
            const size_t from = draw_place(&scene, &random);
            size_t count = 1 + next_random(&random) % 600;
            memcpy(bytes, scene.whole, scene.bytes);
            count = at + count > scene.bytes ? scene.bytes - at : count;
            count = from + count > scene.bytes ? scene.bytes - from : count;
            switch (i % 3) {
            case 0: /* cut short */
                write_file("1.cache", bytes, at);
                break;
            case 1:
                memset(bytes + at, 0, count);
                write_file("1.cache", bytes, scene.bytes);
                break;
            default:
                memmove(bytes + at, scene.whole + from, count);
                write_file("1.cache", bytes, scene.bytes);
                break;
            }
            check_scene(&scene, "torn file", i);
        }
        free(bytes);
        end_scene(&scene);
    }
}

/* Files that are no caches stay what they are; empty ones and other caches do not. */
static void test_other_files(void **state) {
    (void)state;
    struct scene scene;
    static uint8_t noise[9000];
    size_t bytes;
    begin_scene(&scene, 0);
    for (unsigned i = 0; i < 6; i++) {
        const size_t count = i % 3 == 0 ? 1 : i % 3 == 1 ? 4096 : sizeof noise;
        fill_random(noise, sizeof noise, i);
        if (i < 3) {
            memset(noise, 0, sizeof noise);
        }
        write_file("1.cache", noise, count);
        const brim_cache_stats stats = check_scene(&scene, "no cache", i);
        assert_int_equal(stats.fills, 0);
        assert_non_null(strstr(stats.warning, "is not a cache file, so it is not changed"));
        uint8_t *after = read_whole("1.cache", &bytes);
        assert_int_equal(bytes, count);
        assert_memory_equal(after, noise, count);
        free(after);
    }
    write_file("1.cache", noise, 0);
    assert_string_equal(check_scene(&scene, "an empty file", 0).warning, "");
    char other[TEXT_BYTES];
    run_epochs(with_caches("npy $/b.npy ^| batch 5",
                           (struct caches){ { "cache file=$/1.cache verify=never" } }, other),
               &plain, 1, NULL);
    assert_int_equal(check_scene(&scene, "of another pipeline", 0).hits, 0);
    end_scene(&scene);
}

/* Entries with right checksums that hold anything, of any length. */
static void test_forged_entries(void **state) {
    (void)state;
    struct scene scene;
    uint64_t random = 99, good = 0;
    begin_scene(&scene, 1);
    struct brim__cache_header header;
    memcpy(&header, scene.whole, sizeof header);
    const uint64_t seed = brim__cache_seed(&header);
    uint8_t *bytes = malloc(scene.bytes);
    assert_non_null(bytes);
    for (uint64_t i = 0; i < times(300); i++) {
        memcpy(bytes, scene.whole, scene.bytes);
        for (uint64_t n = 0; n < scene.samples; n++) {
            struct brim__cache_entry entry;
            uint8_t *place = bytes + brim__cache_table_at(n);
            memcpy(&entry, place, sizeof entry);
            assert_true(entry.offset + entry.length <= scene.bytes);
            for (uint64_t k = next_random(&random) % 4; k > 0; k--) { /* lengths come first */
                const uint64_t most = next_random(&random) % 2 ? entry.length : 48;
                bytes[entry.offset + next_random(&random) % most] = (uint8_t)next_random(&random);
            }
            entry.length -= next_random(&random) % 4 == 0 ? next_random(&random) % entry.length : 0;
            entry.checksum = brim__cache_checksum(seed, n, &entry, bytes + entry.offset);
            memcpy(place, &entry, sizeof entry);
        }
        write_file("1.cache", bytes, scene.bytes);
        struct session session;
        session_open(&session, scene.text, &plain);
        for (brim_status status = BRIM_OK; status == BRIM_OK;) {
            brim_batch *batch = NULL;
            status = brim_loader_next(session.loader, BRIM_FOREVER, &batch);
            if (status == BRIM_OK) {
                (void)digest_of(batch);
                brim_batch_release(batch);
                good++;
            } else {
                assert_true(status == BRIM_STATUS_END || status == BRIM_STATUS_CORRUPT);
            }
        }
        session_close(&session);
    }
    assert_true(good > 0);
    free(bytes);
    end_scene(&scene);
}

/* -------------------------------------------------------------------- disks */

static void check_refused_disk(const char *cache, const char *part, bool fills_at_first,
                               int32_t threads) {
    char text[TEXT_BYTES];
    const char *marked = "npy $/a.npy $/b.npy | cast float32 ^| shuffle | batch 10";
    const struct digest wanted =
        run_epochs(with_caches(marked, (struct caches){ 0 }, text), &plain, 2, NULL);
    const struct how how = { .threads = threads };
    brim_cache_stats stats;
    assert_digest(
        text, run_epochs(with_caches(marked, (struct caches){ { cache } }, text), &how, 2, &stats),
        wanted);
    if (threads == 0) { /* else the thread that writes may not have come to it */
        assert_int_equal(stats.fills, 0);
        assert_int_equal(stats.stored > 0, fills_at_first);
        assert_int_equal(stats.hits > 0, fills_at_first);
        if (strstr(stats.warning, part) == NULL || strstr(stats.warning, "cache ") == NULL) {
            fail_msg("\"%s\" is not in the warning \"%s\"", part, stats.warning);
        }
    }
}

static void make_disk(const char *name, const char *options) {
    assert_int_equal(mkdir(in_directory(name).text, 0700), 0);
    assert_int_equal(mount("brim", in_directory(name).text, "tmpfs", 0, options), 0);
}

static void drop_disk(const char *name) {
    assert_int_equal(umount(in_directory(name).text), 0);
}

static void full_disks(void **state) {
    (void)state;
    make_disk("small", "size=64k");
    make_disk("tiny", "nr_inodes=2"); /* of the directory, and of one file */
    for (int32_t threads = 0; threads <= 2; threads += 2) {
        check_refused_disk("cache file=$/small/1.cache", "No space left on device", true, threads);
        check_refused_disk("cache file=$/tiny/1.cache", "No space left on device", false, threads);
        assert_false(file_exists("tiny/1.cache")); /* what could not be made is not left half */
        remove_file("small/1.cache");
    }
    drop_disk("small");
    drop_disk("tiny");
}

static void read_only_disks(void **state) {
    (void)state;
    char text[TEXT_BYTES];
    brim_cache_stats stats;
    make_disk("fixed", "size=4m");
    with_caches("npy $/a.npy ^| batch 10", (struct caches){ { "cache file=$/fixed/1.cache" } },
                text);
    run_epochs(text, &plain, 1, NULL);
    assert_int_equal(mount(NULL, in_directory("fixed").text, NULL, MS_REMOUNT | MS_RDONLY, NULL),
                     0);
    check_refused_disk("cache file=$/fixed/2.cache", "Read-only file system", false, 0);
    check_refused_disk("cache file=$/fixed/1.cache", "cannot be replaced", false, 0);
    run_epochs(text, &plain, 1, &stats); /* what is there is found */
    assert_int_equal(stats.misses, 0);
    assert_int_equal(stats.fills, 0);
    assert_non_null(strstr(stats.warning, "Read-only file system: it is only read"));
    drop_disk("fixed");
}

/* Who may not write in the directory: root may everything, and becomes somebody else. */
static void permission_denied(void **state) {
    (void)state;
    make_folder("closed");
    assert_int_equal(chmod(in_directory("closed").text, 0500), 0);
    if (geteuid() == 0) {
        assert_int_equal(chmod(in_directory("").text, 0755), 0);
        assert_int_equal(chmod(in_directory("a.npy").text, 0644), 0);
        assert_int_equal(chmod(in_directory("b.npy").text, 0644), 0);
        assert_int_equal(setresuid(65534, 65534, 0), 0);
    }
    check_refused_disk("cache file=$/closed/1.cache", "Permission denied", false, 0);
    (void)setresuid(0, 0, 0); /* to clean up, if it was root */
}

/* These change the process, and so are run in one of their own, which this program starts from
 * itself: test_cache_damage NAME. */
static const struct CMUnitTest alone[] = {
    cmocka_unit_test(full_disks),
    cmocka_unit_test(read_only_disks),
    cmocka_unit_test(permission_denied),
};

static int begin(void **state);

static int run_alone(const char *name) {
    for (size_t i = 0; i < COUNT_OF(alone); i++) {
        if (strcmp(alone[i].name, name) == 0) {
            const struct CMUnitTest one[] = { alone[i] };
            if (unshare(CLONE_NEWNS) != 0 ||
                mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) {
                return 77;
            }
            return cmocka_run_group_tests(one, begin, end_tests) == 0 ? 0 : 1;
        }
    }
    return 2;
}

static void test_alone(void **state) {
    (void)state;
    unsigned skipped = 0;
    for (size_t i = 0; i < COUNT_OF(alone); i++) {
        fflush(NULL);
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            execl("/proc/self/exe", "test_cache_damage", alone[i].name, (char *)NULL);
            _exit(127);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        assert_true(WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 77);
        skipped += WEXITSTATUS(status) == 77;
    }
    if (skipped > 0) {
        print_message("no file system may be mounted here\n");
        skip();
    }
}

static void test_places_where_no_file_can_be(void **state) {
    (void)state;
    write_file("plain", "x", 1);
    check_refused_disk("cache file=$/plain/1.cache", "Not a directory", false, 0);
    check_refused_disk("cache file=/dev/null", "is no", false, 0);
    char cache[TEXT_BYTES] = "cache file=$/";
    memset(cache + strlen(cache), 'n', 300);
    check_refused_disk(cache, "File name too long", false, 0);
}

/* The file, and then its directory, go away under a run; the next run makes them again. */
static void test_a_directory_that_disappears(void **state) {
    (void)state;
    static const char marked[] = "npy $/a.npy $/b.npy | cast float32 ^| shuffle | batch 10";
    char text[TEXT_BYTES];
    const struct digest wanted =
        run_epochs(with_caches(marked, (struct caches){ 0 }, text), &plain, 2, NULL);
    with_caches(marked, (struct caches){ { "cache file=$/gone/soon/1.cache" } }, text);
    for (int32_t threads = 0; threads <= 2; threads += 2) {
        const struct how how = { .threads = threads };
        struct session session;
        struct digest digest = { 0 };
        session_open(&session, text, &how);
        take_batches(&session, 3, digest_batch, &digest);
        remove_file("gone/soon/1.cache");
        assert_int_equal(rmdir(in_directory("gone/soon").text), 0);
        assert_int_equal(rmdir(in_directory("gone").text), 0);
        assert_true(take_batches(&session, TO_THE_END, digest_batch, &digest));
        assert_true(take_batches(&session, TO_THE_END, digest_batch, &digest));
        assert_digest(text, digest, wanted);
        assert_non_null(strstr(cache_stats(session.loader, 0).warning, "was deleted"));
        session_close(&session);
        assert_false(file_exists("gone"));
    }
    brim_cache_stats stats;
    assert_digest(text, run_epochs(text, &plain, 2, &stats), wanted);
    assert_int_equal(stats.misses, 96);
    assert_int_equal(stats.hits, 96);
}

/* Deleted and made again by another, while this one runs on the old one. */
static void test_a_file_that_is_replaced(void **state) {
    (void)state;
    static const char marked[] = "npy $/a.npy $/b.npy | cast float32 ^| shuffle | batch 10";
    char text[TEXT_BYTES];
    struct session session;
    struct digest digest = { 0 };
    remove_file("1.cache");
    const struct digest wanted =
        run_epochs(with_caches(marked, (struct caches){ 0 }, text), &plain, 2, NULL);
    with_caches(marked, (struct caches){ { "cache file=$/1.cache" } }, text);
    session_open(&session, text, &plain);
    take_batches(&session, 3, digest_batch, &digest);
    remove_file("1.cache");
    assert_digest(text, run_epochs(text, &plain, 2, NULL), wanted);
    assert_true(take_batches(&session, TO_THE_END, digest_batch, &digest));
    assert_true(take_batches(&session, TO_THE_END, digest_batch, &digest));
    assert_digest(text, digest, wanted);
    session_close(&session);
    brim_cache_stats stats;
    assert_digest(text, run_epochs(text, &plain, 2, &stats), wanted);
    assert_int_equal(stats.misses, 0);
}

static int begin(void **state) {
    static uint8_t pixels[40 * 40 * 3];
    if (begin_memory_tests_in_memory(state) != 0) {
        return -1;
    }
    make_folder("pets");
    for (uint32_t i = 0; i < samples[1]; i++) {
        char name[16] = "pets/0.png";
        name[5] = (char)('0' + i);
        draw_pixels(pixels, 10 + i, 20 - i, i);
        write_png(name, pixels, 10 + i, 20 - i);
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 2) {
        return run_alone(argv[1]);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flipped_bytes),
        cmocka_unit_test(test_torn_files),
        cmocka_unit_test(test_other_files),
        cmocka_unit_test(test_forged_entries),
        cmocka_unit_test(test_alone),
        cmocka_unit_test(test_places_where_no_file_can_be),
        cmocka_unit_test(test_a_directory_that_disappears),
        cmocka_unit_test(test_a_file_that_is_replaced),
    };
    return cmocka_run_group_tests(tests, begin, end_tests);
}

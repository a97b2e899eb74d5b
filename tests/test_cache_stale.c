/*
 * test_cache_stale.c: what changed data, stages and formats do to a cache, for each verify=.
 *
 * The table of docs/cache.md line by line: what is reset, what is made again, what is
 * found; and also what is not noticed, so that the page says the truth. Samples are always
 * those of a run without a cache, but where the page says "old samples".
 */
#include "support/cache_runs.h"
#include "support/image_data.h"
#include "support/memory_data.h"
#include "support/memory_watch.h"

#include "cache/file_format.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILES 6

static const struct how plain = { 0 };

enum verify { AT_OPENING, AT_HIT, AT_NO_TIME, BY_CONTENT, VERIFIES };
static const char *const caches[VERIFIES] = { "cache file=$/1.cache",
                                              "cache file=$/1.cache verify=hit",
                                              "cache file=$/1.cache verify=never",
                                              "cache file=$/1.cache verify=content" };

/* ------------------------------------------------------------- a folder of images */

static char folder[16]; /* where the images are now */

static struct path image(unsigned number) {
    char name[64];
    snprintf(name, sizeof name, "%s/%u.png", folder, number);
    return in_directory(name);
}

/* Writes an image that is not like any before. `bytes`: its file's size, or 0 for any. */
static void paint(unsigned number, uint64_t bytes) {
    enum { SIDE = 9 };
    static uint64_t seed;
    uint8_t pixels[SIDE * SIDE * 3];
    char name[64];
    struct stat facts;
    snprintf(name, sizeof name, "%s/%u.png", folder, number);
    do {
        draw_pixels(pixels, SIDE, SIDE, ++seed);
        write_png(name, pixels, SIDE, SIDE);
        assert_int_equal(stat(image(number).text, &facts), 0);
    } while (bytes != 0 && (uint64_t)facts.st_size != bytes);
}

static uint64_t bytes_of(unsigned number) {
    struct stat facts;
    assert_int_equal(stat(image(number).text, &facts), 0);
    return (uint64_t)facts.st_size;
}

/* A folder that no run has seen. */
static void paint_all(void) {
    static unsigned folders;
    snprintf(folder, sizeof folder, "images%u", folders++);
    make_folder(folder);
    for (unsigned i = 0; i < FILES; i++) {
        paint(i, 0);
    }
}

static struct timespec modified_of(const char *path) {
    struct stat facts;
    assert_int_equal(stat(path, &facts), 0);
    return facts.st_mtim;
}

static void set_modified(const char *path, struct timespec modified) {
    const struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, modified };
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

/* ------------------------------------------------------------------ changes */

static void change_nothing(void) {}

static void change_place(void) {
    const struct path before = in_directory(folder);
    snprintf(folder, sizeof folder, "moved%.6s", strrchr(folder, 's') + 1);
    assert_int_equal(rename(before.text, in_directory(folder).text), 0);
}

/* With their times, as cp -p does. */
static void change_copies(void) {
    char from[16], name[2][64];
    snprintf(from, sizeof from, "%s", folder);
    snprintf(folder, sizeof folder, "copied%.6s", strrchr(from, 's') + 1);
    make_folder(folder);
    for (unsigned i = 0; i < FILES; i++) {
        snprintf(name[0], sizeof name[0], "%s/%u.png", from, i);
        snprintf(name[1], sizeof name[1], "%s/%u.png", folder, i);
        copy_file(name[0], name[1]);
        set_modified(in_directory(name[1]).text, modified_of(in_directory(name[0]).text));
    }
}

/* Restored from a backup: other files of the same names. */
static void change_to_copies(void) {
    char here[sizeof folder];
    memcpy(here, folder, sizeof here);
    change_copies();
    assert_int_equal(rename(in_directory(here).text, in_directory("backup").text), 0);
    assert_int_equal(rename(in_directory(folder).text, in_directory(here).text), 0);
    memcpy(folder, here, sizeof here);
    for (unsigned i = 0; i < FILES; i++) {
        char name[32];
        snprintf(name, sizeof name, "backup/%u.png", i);
        remove_file(name);
    }
    assert_int_equal(rmdir(in_directory("backup").text), 0);
}

static void change_content(void) {
    paint(2, bytes_of(2));
}

/* Nobody sees it by size or time of modification. */
static void change_content_and_time(void) {
    const struct timespec before = modified_of(image(2).text);
    paint(2, bytes_of(2));
    set_modified(image(2).text, before);
}

/* Another file takes the name. */
static void change_inode(void) {
    const struct timespec before = modified_of(image(2).text);
    const uint64_t bytes = bytes_of(2);
    assert_int_equal(rename(image(2).text, in_directory("aside").text), 0);
    paint(2, bytes);
    set_modified(image(2).text, before);
    remove_file("aside");
}

static void change_size(void) {
    const uint64_t before = bytes_of(2);
    do {
        paint(2, 0);
    } while (bytes_of(2) == before);
}

static void change_time(void) {
    assert_int_equal(utimensat(AT_FDCWD, image(2).text, NULL, 0), 0);
}

static void change_mode(void) {
    assert_int_equal(chmod(image(2).text, 0640), 0);
}

static void change_links(void) {
    assert_int_equal(link(image(2).text, in_directory("linked").text), 0);
    remove_file("linked");
}

static void change_one_more(void) {
    paint(FILES, 0);
}

static void change_one_less(void) {
    assert_int_equal(unlink(image(0).text), 0);
}

/* The order of the samples stays what it was. */
static void change_name(void) {
    assert_int_equal(rename(image(FILES - 1).text, image(FILES).text), 0);
}

enum outcome {
    FOUND,     /* all, and they are right */
    ONE_AGAIN, /* one is made again */
    ANEW,      /* all are */
    OLD        /* all are found, one of them old */
};

static const struct change {
    const char *name;
    void (*make)(void);
    enum outcome wanted[VERIFIES];
} changes[] = {
    { "nothing", change_nothing, { FOUND, FOUND, FOUND, FOUND } },
    { "place", change_place, { FOUND, FOUND, ANEW, FOUND } },
    { "copies", change_copies, { ANEW, ANEW, ANEW, FOUND } },
    { "content", change_content, { ANEW, ONE_AGAIN, OLD, ONE_AGAIN } },
    { "content and time", change_content_and_time, { ANEW, ONE_AGAIN, OLD, ONE_AGAIN } },
    { "inode", change_inode, { ANEW, ONE_AGAIN, OLD, ONE_AGAIN } },
    { "size", change_size, { ANEW, ONE_AGAIN, OLD, ONE_AGAIN } },
    { "time", change_time, { ANEW, ONE_AGAIN, FOUND, FOUND } },
    { "mode", change_mode, { ANEW, ONE_AGAIN, FOUND, FOUND } },
    { "links", change_links, { ANEW, ONE_AGAIN, FOUND, FOUND } },
    { "one more", change_one_more, { ANEW, ANEW, ANEW, ANEW } },
    { "one less", change_one_less, { ANEW, ANEW, ANEW, ANEW } },
    { "name", change_name, { ANEW, ANEW, ANEW, ANEW } },
    { "same place, copies", change_to_copies, { ANEW, ANEW, FOUND, FOUND } },
};

static const char *text_of(const char *cache, char text[TEXT_BYTES]) {
    char marked[TEXT_BYTES];
    format_text(marked, "folder $/%s index=beside | decode | resize 8 8 ^| cast float32 | batch 4",
                folder);
    return with_caches(marked, (struct caches){ { cache } }, text);
}

static struct log rows_of(const char *text, brim_cache_stats *stats) {
    struct session session;
    struct log log = { 0 };
    session_open(&session, text, &plain);
    assert_true(take_batches(&session, TO_THE_END, log_batch, &log));
    if (stats != NULL) {
        *stats = cache_stats(session.loader, 0);
    }
    session_close(&session);
    return log;
}

static void assert_same_rows(const struct log *a, const struct log *b) {
    assert_int_equal(a->rows, b->rows);
    assert_rows_equal(a->row, b->row, b->rows);
}

static void check_change(const struct change *change, enum verify verify) {
    static const uint64_t made[] = { 0, 1, FILES, 0 };
    char text[TEXT_BYTES];
    brim_cache_stats stats;
    remove_file("1.cache");
    paint_all();
    struct log before = rows_of(text_of(caches[verify], text), NULL);
    change->make();
    struct log fresh = rows_of(text_of(NULL, text), NULL);
    const enum outcome wanted = change->wanted[verify];
    const uint64_t again = wanted == ANEW ? fresh.rows : made[wanted];
    for (unsigned turn = 0; turn < 2; turn++) { /* the second time all is as it was */
        struct log rows = rows_of(text_of(caches[verify], text), &stats);
        const uint64_t misses = turn == 0 ? again : 0;
        if (stats.misses != misses || stats.hits != fresh.rows - misses) {
            fail_msg("%s, %s: %" PRIu64 " hits, %" PRIu64 " misses", change->name, caches[verify],
                     stats.hits, stats.misses);
        }
        assert_string_equal(stats.warning, "");
        assert_same_rows(&rows, wanted == OLD ? &before : &fresh);
        assert_int_equal(wanted == OLD, rows.row[2].hash != fresh.row[2].hash);
        log_free(&rows);
    }
    log_free(&before);
    log_free(&fresh);
}

static void test_between_runs(void **state) {
    (void)state;
    for (size_t c = 0; c < COUNT_OF(changes); c++) {
        for (enum verify v = 0; v < VERIFIES; v++) {
            check_change(&changes[c], v);
        }
    }
}

/* While a loader is open: only `hit` looks, and it sees every change. */
static void test_during_a_run(void **state) {
    (void)state;
    static const struct {
        const char *cache;
        bool sees;
    } tiers[] = {
        { "cache memory", false },
        { "cache memory verify=never", false },
        { "cache memory verify=hit", true },
        { "cache file=$/1.cache", false },
        { "cache file=$/1.cache verify=hit", true },
        { "cache file=$/1.cache verify=never", false },
        { "cache file=$/1.cache verify=hit | cache memory", true },
        { "cache memory | cache file=$/1.cache verify=hit", true },
        { "cache memory verify=content", true },
        { "cache file=$/1.cache verify=content", true },
        { "cache file=$/1.cache verify=content | cache memory", true },
        { "cache memory verify=hit | cache file=$/1.cache verify=content", true },
    };
    for (size_t t = 0; t < COUNT_OF(tiers); t++) {
        for (size_t c = 3; c < 10; c++) { /* the name of each file stays */
            char text[TEXT_BYTES];
            struct session session;
            struct log before = { 0 }, after = { 0 };
            remove_file("1.cache");
            paint_all();
            session_open(&session, text_of(tiers[t].cache, text), &plain);
            assert_true(take_batches(&session, TO_THE_END, log_batch, &before));
            changes[c].make();
            struct log fresh = rows_of(text_of(NULL, text), NULL);
            assert_true(take_batches(&session, TO_THE_END, log_batch, &after));
            assert_same_rows(&after, tiers[t].sees ? &fresh : &before);
            session_close(&session);
            log_free(&before);
            log_free(&after);
            log_free(&fresh);
        }
    }
}

/* What is put in while the data change never comes in a later run. */
static void test_changed_while_it_was_filled(void **state) {
    (void)state;
    for (enum verify v = 0; v < AT_NO_TIME; v++) {
        char text[TEXT_BYTES];
        struct session session;
        struct digest digest = { 0 };
        remove_file("1.cache");
        paint_all();
        session_open(&session, text_of(caches[v], text), &plain);
        take_batches(&session, 1, digest_batch, &digest);
        for (unsigned i = 0; i < FILES; i++) {
            paint(i, bytes_of(i));
        }
        take_batches(&session, TO_THE_END, digest_batch, &digest);
        for (unsigned i = 0; i < FILES; i++) {
            paint(i, bytes_of(i));
        }
        session_close(&session);
        struct log fresh = rows_of(text_of(NULL, text), NULL);
        struct log rows = rows_of(text_of(caches[v], text), NULL);
        assert_same_rows(&rows, &fresh);
        log_free(&fresh);
        log_free(&rows);
    }
}

/* A file goes away: a bad sample with and without a cache, where somebody looks. */
static void test_a_file_that_is_gone(void **state) {
    (void)state;
    static const uint64_t rows_left[VERIFIES] = { FILES, FILES - 1, FILES, FILES - 1 };
    for (enum verify v = 0; v < VERIFIES; v++) {
        char marked[TEXT_BYTES], text[TEXT_BYTES];
        struct session session;
        struct log log = { 0 };
        remove_file("1.cache");
        paint_all();
        format_text(marked,
                    "folder $/%s index=beside | decode | resize 8 8 ^| batch 2 on_error=skip",
                    folder);
        session_open(&session, with_caches(marked, (struct caches){ { caches[v] } }, text), &plain);
        assert_true(take_batches(&session, TO_THE_END, log_batch, &log));
        assert_int_equal(log.rows, FILES);
        change_one_less();
        assert_true(take_batches(&session, TO_THE_END, log_batch, &log));
        assert_int_equal(log.rows, FILES + rows_left[v]);
        log_free(&log);
        session_close(&session);
    }
}

/* --------------------------------------------------------------- one file for all */

#define ROWS 40

static void write_rows(uint64_t seed) {
    static uint8_t rows[ROWS][16];
    fill_random(rows, sizeof rows, seed);
    write_npy("rows.npy", BRIM_DTYPE_U8, 2, (const int64_t[]){ ROWS, 16 }, rows);
}

/* A file with many samples is looked at as a whole. */
static void test_an_array(void **state) {
    (void)state;
    static const uint64_t found[2][VERIFIES] = { { ROWS, ROWS, ROWS, ROWS }, { 0, 0, ROWS, 0 } };
    for (enum verify v = 0; v < VERIFIES; v++) {
        char text[TEXT_BYTES], with[TEXT_BYTES];
        brim_cache_stats stats;
        remove_file("1.cache");
        write_rows(1);
        expand("npy $/rows.npy | batch 8", text);
        with_caches("npy $/rows.npy ^| batch 8", (struct caches){ { caches[v] } }, with);
        const struct digest old = run_epochs(with, &plain, 1, NULL);
        for (unsigned turn = 0; turn < 2; turn++) {
            if (turn == 1) {
                write_rows(2);
            }
            const struct digest fresh = run_epochs(text, &plain, 1, NULL);
            const struct digest got = run_epochs(with, &plain, 1, &stats);
            assert_int_equal(stats.hits, found[turn][v]);
            assert_int_equal(stats.misses, ROWS - found[turn][v]);
            assert_digest(with, got, v == AT_NO_TIME ? old : fresh);
            assert_int_equal(fresh.value == old.value, turn == 0);
        }
        /* another shape: another key, whoever looks */
        static uint8_t rows[ROWS + 1][16];
        write_npy("rows.npy", BRIM_DTYPE_U8, 2, (const int64_t[]){ ROWS + 1, 16 }, rows);
        assert_digest(with, run_epochs(with, &plain, 1, &stats), run_epochs(text, &plain, 1, NULL));
        assert_int_equal(stats.hits, 0);
    }
}

/* A store through a writable map, and the times as they were: only the bytes tell. Of a
 * file with many samples only the changed record is made again, also where sources stand side
 * by side. */
static void test_a_store_through_a_map(void **state) {
    (void)state;
    static const char *const texts[] = {
        "npy $/rows.npy map=no ^| batch 8",
        "npy $/rows.npy map=yes ^| batch 8",
        "zip (npy $/rows.npy name=a) (npy $/rows.npy name=b) ^| batch 8",
    };
    for (size_t t = 0; t < COUNT_OF(texts); t++) {
        char text[TEXT_BYTES], with[TEXT_BYTES];
        brim_cache_stats stats;
        remove_file("1.cache");
        write_rows(1);
        with_caches(texts[t], (struct caches){ { NULL } }, text);
        with_caches(texts[t], (struct caches){ { caches[BY_CONTENT] } }, with);
        const struct digest old = run_epochs(with, &plain, 2, &stats);
        assert_int_equal(stats.misses, ROWS);
        assert_int_equal(stats.hits, ROWS);
        const struct path kept = in_directory("rows.npy");
        const struct timespec before = modified_of(kept.text);
        const int fd = open(kept.text, O_RDWR | O_CLOEXEC);
        uint8_t *map = mmap(NULL, 128 + ROWS * 16, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        assert_true(map != MAP_FAILED);
        map[128 + 7 * 16 + 3] ^= 1; /* behind the header: row 7 */
        set_modified(kept.text, before);
        const struct digest fresh = run_epochs(text, &plain, 1, NULL);
        const struct digest got = run_epochs(with, &plain, 1, &stats);
        assert_digest(with, got, fresh);
        assert_true(fresh.value != old.value);
        assert_int_equal(stats.misses, 1);
        assert_int_equal(stats.changed, 1);
        assert_int_equal(stats.hits, ROWS - 1);
        munmap(map, 128 + ROWS * 16);
        close(fd);
    }
}

/* Two equal hits read the records, and count what they read. */
static void test_content_is_read(void **state) {
    (void)state;
    char with[TEXT_BYTES];
    remove_file("1.cache");
    write_rows(3);
    uint64_t read[2];
    for (unsigned i = 0; i < 2; i++) {
        struct session session;
        struct log log = { 0 };
        brim_stats stats = BRIM_STATS_INIT;
        remove_file("1.cache");
        with_caches("npy $/rows.npy map=no ^| batch 8",
                    (struct caches){ { i == 0 ? "cache memory" : "cache memory verify=content" } },
                    with);
        session_open(&session, with, &plain);
        assert_true(take_batches(&session, TO_THE_END, log_batch, &log));
        assert_true(take_batches(&session, TO_THE_END, log_batch, &log));
        assert_int_equal(brim_loader_read_stats(session.loader, &stats), BRIM_OK);
        assert_int_equal(cache_stats(session.loader, 0).hits, ROWS);
        read[i] = stats.read_bytes;
        session_close(&session);
        log_free(&log);
    }
    assert_int_equal(read[0], ROWS * 16);
    assert_int_equal(read[1], 3 * ROWS * 16); /* made once, compared twice */
}

/* ------------------------------------------------------------ stages and formats */

/* As in a release of brim in which a stage gives other values. */
static void change_version(const char *stage) {
    uint32_t *version = (uint32_t *)(uintptr_t)&brim_stage_find(stage)->version;
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    void *begin = (void *)((uintptr_t)version / page * page);
    assert_int_equal(mprotect(begin, page, PROT_READ | PROT_WRITE), 0);
    ++*version;
    assert_int_equal(mprotect(begin, page, PROT_READ), 0);
}

static void test_a_stage_of_another_version(void **state) {
    (void)state;
    static const struct {
        const char *stage;
        bool before; /* the cache */
    } stages[] = { { "npy", true }, { "cast", true }, { "normalize", false }, { "batch", false } };
    char text[TEXT_BYTES];
    brim_cache_stats stats;
    for (enum verify v = 0; v < VERIFIES; v++) {
        remove_file("1.cache");
        with_caches("npy $/a.npy | cast float32 ^| normalize mean=1 std=2 | batch 8",
                    (struct caches){ { caches[v] } }, text);
        run_epochs(text, &plain, 1, NULL);
        for (size_t i = 0; i < COUNT_OF(stages); i++) {
            change_version(stages[i].stage);
            run_epochs(text, &plain, 1, &stats);
            assert_int_equal(stats.hits == 0, stages[i].before);
            assert_int_equal(stats.misses == 0, !stages[i].before);
        }
    }
}

enum header_change { DATA, SAMPLE, STAMP, VERIFY, NUMBERS, ENTRY, VERSION, ORDER, HEADER_CHANGES };

/* A header that is whole in itself, as another brim or another machine may have written. */
static void change_header(enum header_change change) {
    struct brim__cache_header header;
    const int fd = open(in_directory("1.cache").text, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &header, sizeof header, 0), sizeof header);
    header.data ^= change == DATA;
    header.sample ^= change == SAMPLE;
    header.stamp ^= change == STAMP;
    header.verify = change == VERIFY ? (header.verify + 1) % VERIFIES : header.verify;
    header.count -= change == NUMBERS;
    header.most_bytes += change == ENTRY;
    header.version += change == VERSION;
    header.byte_order = change == ORDER ? __builtin_bswap64(header.byte_order) : header.byte_order;
    brim__cache_header_seal(&header);
    assert_int_equal(pwrite(fd, &header, sizeof header, 0), sizeof header);
    close(fd);
}

static void test_other_headers(void **state) {
    (void)state;
    char text[TEXT_BYTES];
    brim_cache_stats stats;
    for (enum verify v = 0; v < VERIFIES; v++) {
        const struct digest wanted =
            run_epochs(expand("npy $/a.npy | batch 8", text), &plain, 1, NULL);
        for (enum header_change h = 0; h < HEADER_CHANGES; h++) {
            remove_file("1.cache");
            with_caches("npy $/a.npy ^| batch 8", (struct caches){ { caches[v] } }, text);
            run_epochs(text, &plain, 1, NULL);
            change_header(h);
            assert_digest(text, run_epochs(text, &plain, 1, &stats), wanted);
            assert_int_equal(stats.hits, 0);
            assert_string_equal(stats.warning, "");
            run_epochs(text, &plain, 1, &stats);
            assert_int_equal(stats.misses, 0);
        }
    }
}

/* A header says that the file is of this pipeline; what is in it says that it is not. */
static void test_entries_of_another_pipeline(void **state) {
    (void)state;
    char text[TEXT_BYTES], other[TEXT_BYTES];
    uint8_t *header;
    size_t bytes;
    brim_cache_stats stats;
    remove_file("1.cache");
    with_caches("npy $/a.npy ^| batch 8", (struct caches){ { caches[AT_OPENING] } }, text);
    with_caches("npy $/a.npy | layout whc from=hwc ^| batch 8",
                (struct caches){ { caches[AT_OPENING] } }, other);
    run_epochs(text, &plain, 1, NULL);
    header = read_whole("1.cache", &bytes);
    run_epochs(other, &plain, 1, NULL);
    const int fd = open(in_directory("1.cache").text, O_RDWR | O_CLOEXEC);
    assert_int_equal(pwrite(fd, header, BRIM__CACHE_HEADER, 0), BRIM__CACHE_HEADER);
    close(fd);
    free(header);
    const struct digest wanted =
        run_epochs(expand("npy $/a.npy | batch 8", other), &plain, 2, NULL);
    assert_digest(text, run_epochs(text, &plain, 2, &stats), wanted);
    assert_int_equal(stats.damaged, 40);
    assert_int_equal(stats.hits, 40); /* of the second epoch: they were replaced */
}

int main(void) {
    const struct CMUnitTest of_images[] = {
        cmocka_unit_test(test_between_runs),
        cmocka_unit_test(test_during_a_run),
        cmocka_unit_test(test_changed_while_it_was_filled),
        cmocka_unit_test(test_a_file_that_is_gone),
    };
    const struct CMUnitTest of_arrays[] = {
        cmocka_unit_test(test_an_array),
        cmocka_unit_test(test_a_store_through_a_map),
        cmocka_unit_test(test_content_is_read),
        cmocka_unit_test(test_other_headers),
        cmocka_unit_test(test_entries_of_another_pipeline),
        cmocka_unit_test(test_a_stage_of_another_version), /* last: it leaves them so */
    };
    return cmocka_run_group_tests(of_images, begin_image_tests, end_tests) +
           cmocka_run_group_tests(of_arrays, begin_memory_tests_in_memory, end_tests);
}

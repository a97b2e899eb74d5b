/*
 * test_folder_faults.c: `folder` in little memory, with calls that fail, killed while
 * it makes a listing, and with files that were damaged.
 *
 * Whatever is done to a listing, reading gives the model's samples or an error, never
 * anything else. Very many files: test_folder_many.c.
 */
#include "folder_util.h"

#include "base/fault.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>

static size_t cached_files(void) {
    size_t count = 0;
    DIR *directory = opendir(at("cache/index").text);
    for (const struct dirent *entry; directory != NULL && (entry = readdir(directory)) != NULL;) {
        count += entry->d_name[0] != '.';
    }
    if (directory != NULL) {
        closedir(directory);
    }
    return count;
}

/* ------------------------------------------------------------------ memory */

static void test_sorter(void **state) {
    (void)state;
    enum { KEYS = 30000, MEMORY = 3 * BRIM__SORT_CHUNK };
    static uint8_t memory[MEMORY] __attribute__((aligned(64)));
    static uint8_t buffer[4096];
    static struct brim__sorter sorter;
    static char *keys[KEYS];
    uint64_t random = 7;
    const struct long_path path = at("sorted");
    brim__sorter_init(&sorter, path.text, memory, sizeof memory, buffer, sizeof buffer);
    for (int round = 0; round < 4; round++) {
        static const size_t counts[] = { 0, 1, 500, KEYS };
        const size_t count = counts[round];
        for (size_t i = 0; i < count; i++) {
            char key[4200];
            const size_t long_one = i % 1000 == 7 ? 4000 : 0;
            memset(key, 'k', long_one);
            snprintf(key + long_one, 64, "%.*s%llu", (int)(i % 3), "ab",
                     (unsigned long long)next_random(&random) % 100000);
            keys[i] = strdup(key);
            assert_int_equal(brim__sorter_add(&sorter, key, strlen(key)), BRIM_OK);
        }
        assert_int_equal(brim__sorter_sort(&sorter), BRIM_OK);
        assert_int_equal(sorter.spilled, round == 3);
        qsort(keys, count, sizeof *keys, compare_texts);
        const uint8_t *key;
        size_t length;
        for (size_t i = 0; i < count; i++) {
            assert_int_equal(brim__sorter_next(&sorter, &key, &length), BRIM_OK);
            assert_int_equal(length, strlen(keys[i]));
            assert_memory_equal(key, keys[i], length);
            free(keys[i]);
        }
        assert_int_equal(brim__sorter_next(&sorter, &key, &length), BRIM_STATUS_END);
        assert_int_equal(brim__sorter_next(&sorter, &key, &length), BRIM_STATUS_END);
        brim__sorter_reset(&sorter);
    }
    brim__sorter_fini(&sorter);
    assert_int_equal(access(path.text, F_OK), -1);
}

static void make_many(const char *root, unsigned count, unsigned classes) {
    for (unsigned i = 0; i < count; i++) {
        char name[96];
        snprintf(name, sizeof name, "%s/class%03u/image-%08x.jpg", root, i % classes,
                 i * 2654435761u);
        if (i < classes) {
            put(name, "", 0);
        } else {
            const int fd = open(at(name).text, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
            assert_true(fd >= 0);
            close(fd);
        }
    }
}

static void test_many_files_in_little_memory(void **state) {
    (void)state;
    make_many("many", 20000, 10);
    const struct long_path root = at("many");
    const char *const roots[] = { root.text };
    struct samples classes = { 0 }, wanted = { 0 };
    model_classes(roots, 1, &classes, &wanted);
    assert_int_equal(wanted.count, 20000);
    for (int again = 0; again < 2; again++) {
        struct test_use use;
        struct session session;
        struct samples got = { 0 };
        const uint64_t room = 320 * KIB;
        brim_budget *budget = new_root(room);
        folder_use(&use, root.text, "");
        assert_int_equal(open_in(&session, &use, budget), BRIM_OK);
        assert_int_equal(session.indexes->made, again == 0);
        assert_int_equal(take_samples(&session.source, 100, &got), BRIM_OK);
        assert_same_samples(&got, &wanted);
        drop_samples(&got);
        close_in(&session);
        /* 64 KiB for sorting hold fewer than a thousand of these paths */
        assert_true(read_info(budget).peak <= root_bytes() + room);
        brim_budget_free(budget);
    }
    struct test_use use;
    struct session session;
    brim_budget *budget = new_root(64 * KIB);
    folder_use(&use, root.text, "allow_empty=yes");
    assert_int_equal(open_in(&session, &use, budget), BRIM_STATUS_BUDGET);
    assert_detail_has("listing");
    close_in(&session);
    brim_budget_free(budget);
    drop_samples(&wanted);
    drop_samples(&classes);
}

/* ------------------------------------------------------------------ faults */

/* The samples, and the width of the widest image. */
static void expect_opened(const char *root, const struct samples *wanted, uint32_t width) {
    struct test_use use;
    struct session session;
    struct samples got = { 0 };
    folder_use(&use, root, "");
    assert_int_equal(open_in(&session, &use, NULL), BRIM_OK);
    assert_int_equal(take_samples(&session.source, 100, &got), BRIM_OK);
    assert_same_samples(&got, wanted);
    assert_non_null(session.source.field[0].images);
    assert_int_equal(all_images(&session.source).width, width);
    drop_samples(&got);
    close_in(&session);
}

static void test_every_fault(void **state) {
    (void)state;
    put_image("f/a/1.png", 3, 4);
    put("f/a/sub/2.jpg", "x", 1);
    put("f/b/3.jpg", "x", 1);
    link_to("../a/sub", "f/b/linked");
    const struct long_path root = at("f");
    struct samples wanted = { 0 };
    assert_int_equal(try_folder(root.text, "", &wanted, NULL), BRIM_OK);
    assert_int_equal(wanted.count, 4);
    const size_t descriptors = open_descriptors();
    for (unsigned kind = 0; kind < BRIM__FAULT_KINDS; kind++) {
        for (unsigned for_ever = 0; for_ever < 2; for_ever++) {
            for (uint64_t nth = 1;; nth++) {
                struct samples got = { 0 };
                remove_tree(at("cache").text);
                brim__fail_text(BRIM_OK, "");
                brim__fault_arm(1u << kind, nth, for_ever != 0);
                brim_status status = try_folder(root.text, "", &got, NULL);
                const uint64_t injected = brim__fault_injected();
                brim__fault_arm(0, 0, false);
                if (status == BRIM_OK) {
                    assert_same_samples(&got, &wanted);
                } else {
                    assert_true(injected > 0 && brim_detail()[0] != '\0');
                    assert_int_equal(status,
                                     kind <= BRIM__FAULT_MAP ? BRIM_STATUS_MEMORY : BRIM_STATUS_IO);
                }
                drop_samples(&got);
                assert_int_equal(open_descriptors(), descriptors);
                assert_true(cached_files() <=
                            1); /* the listing or nothing: it is never half made */
                expect_opened(root.text, &wanted, 3); /* nothing wrong is remembered */
                if (injected == 0) {
                    break;
                }
            }
        }
    }
    drop_samples(&wanted);
}

static void test_killed_while_making(void **state) {
    (void)state;
    make_many("k", 2000, 7);
    const struct long_path root = at("k");
    struct samples wanted = { 0 };
    assert_int_equal(try_folder(root.text, "", &wanted, NULL), BRIM_OK);
    for (long pause = 0; pause < 16; pause++) {
        struct samples got = { 0 };
        remove_tree(at("cache").text);
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            struct samples own = { 0 };
            little = NULL; /* it is the parent's */
            (void)try_folder(root.text, "", &own, NULL);
            _exit(0);
        }
        const struct timespec time = { .tv_nsec = pause * 2000000 };
        nanosleep(&time, NULL);
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, NULL, 0), child);
        assert_int_equal(try_folder(root.text, "", &got, NULL), BRIM_OK);
        assert_same_samples(&got, &wanted);
        drop_samples(&got);
    }
    drop_samples(&wanted);
}

struct asked {
    uint64_t calls, last, total;
    uint64_t give_up; /* at this call */
    char what[128];
};

static int ask(void *user, const brim_progress *progress) {
    struct asked *asked = user;
    assert_true(progress->done <= progress->total);
    assert_int_equal(progress->unit, BRIM_UNIT_FILES);
    snprintf(asked->what, sizeof asked->what, "%s", progress->what);
    asked->last = progress->done;
    asked->total = progress->total;
    return ++asked->calls == asked->give_up;
}

static void test_progress(void **state) {
    (void)state;
    const struct long_path root = at("many");
    struct test_use use;
    struct session session;
    struct asked asked = { .give_up = 1 };
    remove_tree(at("cache").text);
    for (int i = 0; i < 2; i++) {
        folder_use(&use, root.text, "");
        memset(&session, 0, sizeof session);
        brim__arena_init(&session.arena, NULL);
        snprintf(session.cache, sizeof session.cache, "%s/cache", tree);
        session.opening = (struct brim__opening){ .arena = &session.arena,
                                                  .index_dir = session.cache,
                                                  .progress = ask,
                                                  .progress_user = &asked };
        const brim_status status = use.use.stage->open(&use.use, &session.opening, &session.source);
        if (asked.give_up > 0 && asked.calls > 0) {
            assert_int_equal(status, BRIM_STATUS_INTERRUPTED);
            assert_detail_has("was stopped");
            assert_int_equal(cached_files(), 0);
        } else {
            assert_int_equal(status, BRIM_OK);
        }
        close_in(&session);
        asked = (struct asked){ 0 };
    }
}

/* ------------------------------------------------------------------ damage */

static void copy_file(const char *from, const char *to) {
    static uint8_t bytes[1 << 20];
    FILE *file = fopen(from, "rb");
    assert_non_null(file);
    const size_t count = fread(bytes, 1, sizeof bytes, file);
    assert_true(count > 0 && count < sizeof bytes);
    fclose(file);
    file = fopen(to, "r+b"); /* in place: its inode and name stay */
    assert_non_null(file);
    assert_int_equal(ftruncate(fileno(file), 0), 0);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    fclose(file);
}

/* Opens a folder whose listing was damaged: the right samples, or an error. */
static void expect_right_or_refused(const char *root, const char *options,
                                    const struct samples *wanted) {
    struct samples got = { 0 };
    const brim_status status = try_folder(root, options, &got, NULL);
    if (status == BRIM_OK) {
        assert_same_samples(&got, wanted);
    } else {
        assert_int_equal(status, BRIM_STATUS_CORRUPT);
        assert_detail_has("delete");
        for (size_t i = 0; i < got.count; i++) {
            assert_string_equal(got.path[i], wanted->path[i]);
            assert_int_equal(got.label[i], wanted->label[i]);
        }
    }
    drop_samples(&got);
}

static void test_damage(void **state) {
    (void)state;
    remove_tree(at("cache").text);
    for (int i = 0; i < 20; i++) {
        char name[32];
        snprintf(name, sizeof name, "d/%c/%d.jpg", 'a' + i % 3, i);
        put(name, "x", 1);
    }
    const struct long_path root = at("d");
    struct samples wanted = { 0 };
    assert_int_equal(try_folder(root.text, "probe=no", &wanted, NULL), BRIM_OK);
    const struct long_path file = only_file("cache/index", "", ".brimlst"), whole = at("whole");
    struct stat facts;
    assert_int_equal(stat(file.text, &facts), 0);
    put("whole", "", 0);
    copy_file(file.text, whole.text);
    const struct timespec times[2] = { facts.st_atim, facts.st_mtim };
    const off_t step = facts.st_size / 100;
    for (off_t byte = 0; byte < facts.st_size; byte += byte < 200 ? 3 : step) {
        uint8_t value;
        const int fd = open(file.text, O_RDWR | O_CLOEXEC);
        assert_true(fd >= 0);
        assert_int_equal(pread(fd, &value, 1, byte), 1);
        value ^= (uint8_t)(1 << (byte % 8));
        assert_int_equal(pwrite(fd, &value, 1, byte), 1);
        close(fd);
        /* the time of change as it was, so that nothing else gives it away */
        assert_int_equal(utimensat(AT_FDCWD, file.text, times, 0), 0);
        expect_right_or_refused(root.text, "probe=no", &wanted);
        copy_file(whole.text, file.text);
        assert_int_equal(utimensat(AT_FDCWD, file.text, times, 0), 0);
    }
    for (off_t cut = 0; cut < facts.st_size; cut += 797) {
        assert_int_equal(truncate(file.text, cut), 0);
        assert_int_equal(utimensat(AT_FDCWD, file.text, times, 0), 0);
        expect_right_or_refused(root.text, "probe=no", &wanted);
        copy_file(whole.text, file.text);
        assert_int_equal(utimensat(AT_FDCWD, file.text, times, 0), 0);
    }
    drop_samples(&wanted);
}

/* Two records that are whole, but have changed places. */
static void test_exchanged_records(void **state) {
    (void)state;
    remove_tree(at("cache").text);
    put("e/1.jpg", "x", 1);
    put("e/2.jpg", "x", 1);
    const struct long_path root = at("e");
    struct samples wanted = { 0 };
    assert_int_equal(try_folder(root.text, "probe=no", &wanted, NULL), BRIM_OK);
    const struct long_path file = only_file("cache/index", "", ".brimlst");
    struct stat facts;
    uint8_t records[2][BRIM__LISTING_RECORD + 5];
    assert_int_equal(stat(file.text, &facts), 0);
    const int fd = open(file.text, O_RDWR | O_CLOEXEC);
    const off_t begin = (off_t)brim__listing_records_at(2);
    assert_int_equal(pread(fd, records, sizeof records, begin), sizeof records);
    assert_memory_equal(records[1] + BRIM__LISTING_RECORD, "2.jpg", 5);
    assert_int_equal(pwrite(fd, records[1], sizeof records[1], begin), sizeof records[1]);
    assert_int_equal(pwrite(fd, records[0], sizeof records[0], begin + (off_t)sizeof records[1]),
                     sizeof records[0]);
    close(fd);
    const struct timespec times[2] = { facts.st_atim, facts.st_mtim };
    assert_int_equal(utimensat(AT_FDCWD, file.text, times, 0), 0);
    expect_right_or_refused(root.text, "probe=no", &wanted);
    drop_samples(&wanted);
}

/* ---------------------------------------------------------------- forgeries */

/* Puts `bytes` bytes of a value at a place of the header, with a hash that is right. */
static void forge(const char *path, const struct stat *facts, size_t place, const void *value,
                  size_t bytes) {
    uint8_t page[BRIM__INDEX_PAGE];
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_int_equal(pread(fd, page, sizeof page, 0), sizeof page);
    memcpy(page + place, value, bytes);
    brim__index_seal(page, 0);
    assert_int_equal(pwrite(fd, page, sizeof page, 0), sizeof page);
    close(fd);
    const struct timespec times[2] = { facts->st_atim, facts->st_mtim };
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

/* Puts another path of the same length into the first record that begins at `at`, with a
 * hash that is right. */
static void forge_path(const char *path, const struct stat *facts, uint64_t begin,
                       const char *value, size_t bytes) {
    uint8_t record[BRIM__LISTED_MOST];
    const size_t all = BRIM__LISTING_RECORD + bytes;
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_int_equal(pread(fd, record, all, (off_t)begin), all);
    memcpy(record + BRIM__LISTING_RECORD, value, bytes);
    const uint64_t hash = brim__hash(record + sizeof hash, all - sizeof hash, begin);
    memcpy(record, &hash, sizeof hash);
    assert_int_equal(pwrite(fd, record, all, (off_t)begin), all);
    close(fd);
    const struct timespec times[2] = { facts->st_atim, facts->st_mtim };
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

/* A listing names files below its root and no others, whatever its hashes say. */
static void test_paths_that_lead_outside(void **state) {
    (void)state;
    static const char paths[][8] = { "../x.jp", "a/../.g", "/etc/pw",  "a//.jpg", "a/./bjp",
                                     "ab.jpg/", "a/..jpg", "a\0b.jpg", ".hidden", "a/b/../" };
    remove_tree(at("cache").text);
    put("out/ab.jpg", "x", 1);
    put("out/a/1.jpg", "x", 1);
    const struct long_path root = at("out");
    struct samples wanted = { 0 };
    /* "a/1.jpg" is the first record of seven bytes */
    assert_int_equal(try_folder(root.text, "probe=no classes=no", &wanted, NULL), BRIM_OK);
    const struct long_path file = only_file("cache/index", "", ".brimlst"), whole = at("whole");
    struct stat facts;
    assert_int_equal(stat(file.text, &facts), 0);
    put("whole", "", 0);
    copy_file(file.text, whole.text);
    const uint64_t begin = brim__listing_records_at(2) + BRIM__LISTING_RECORD + 6;
    for (size_t i = 0; i < BRIM__COUNT(paths); i++) {
        struct samples got = { 0 };
        forge_path(file.text, &facts, begin, paths[i], 7);
        assert_int_equal(try_folder(root.text, "probe=no classes=no", &got, NULL),
                         BRIM_STATUS_CORRUPT);
        assert_detail_has("damaged");
        for (size_t k = 0; k < got.count; k++) {
            assert_string_equal(got.path[k], wanted.path[k]);
        }
        drop_samples(&got);
        copy_file(whole.text, file.text);
    }
    drop_samples(&wanted);
}

/* Entries of the listing's index with hashes that are right: they lead to other records, into
 * the middle of one, outside the samples and outside the file. */
static void test_forged_entries(void **state) {
    (void)state;
    remove_tree(at("cache").text);
    put("entries/a/1.jpg", "x", 1);
    put("entries/a/22.jpg", "x", 1);
    put("entries/b/3.jpg", "x", 1);
    const struct long_path root = at("entries");
    struct samples wanted = { 0 };
    assert_int_equal(try_folder(root.text, "probe=no", &wanted, NULL), BRIM_OK);
    const struct long_path file = only_file("cache/index", "", ".brimlst");
    const uint64_t begin = brim__listing_records_at(3), first = BRIM__LISTING_RECORD + 7;
    struct stat facts;
    assert_int_equal(stat(file.text, &facts), 0);
    const struct brim__index_item items[] = {
        { .offset = begin, .length_kind = first + 1 },
        { .offset = begin, .length_kind = first - 1 },
        { .offset = begin + 1, .length_kind = first },
        { .offset = begin, .length_kind = first, .a = 1 }, /* of another class */
        { .offset = begin, .length_kind = 10 },
        { .offset = 0, .length_kind = first },
        { .offset = BRIM__INDEX_PAGE, .length_kind = 4000 },
        { .offset = (uint64_t)facts.st_size - 5, .length_kind = first },
        { .offset = (uint64_t)facts.st_size, .length_kind = 0 },
        { .offset = UINT64_MAX - 5, .length_kind = first },
    };
    for (size_t i = 0; i < BRIM__COUNT(items); i++) {
        uint8_t page[BRIM__INDEX_PAGE];
        const int fd = open(file.text, O_RDWR | O_CLOEXEC);
        assert_int_equal(pread(fd, page, sizeof page, sizeof page), sizeof page);
        memcpy(page, &items[i], sizeof items[i]);
        brim__index_seal(page, 1);
        assert_int_equal(pwrite(fd, page, sizeof page, sizeof page), sizeof page);
        close(fd);
        const struct timespec times[2] = { facts.st_atim, facts.st_mtim };
        assert_int_equal(utimensat(AT_FDCWD, file.text, times, 0), 0);
        struct test_use use;
        struct session session;
        struct samples got = { 0 };
        folder_use(&use, root.text, "probe=no");
        assert_int_equal(open_in(&session, &use, NULL), BRIM_OK);
        assert_false(session.indexes->made);
        assert_int_equal(take_samples(&session.source, 100, &got), BRIM_STATUS_CORRUPT);
        assert_int_equal(got.count, 0);
        assert_int_equal(brim__index_verify(session.indexes, NULL, NULL), BRIM_STATUS_CORRUPT);
        drop_samples(&got);
        close_in(&session);
    }
    drop_samples(&wanted);
}

/* Verifying a listing reads its records too. */
static void test_verify(void **state) {
    (void)state;
    remove_tree(at("cache").text);
    put("v/a/1.jpg", "x", 1);
    put("v/b/2.jpg", "x", 1);
    const struct long_path root = at("v");
    for (int damaged = 0; damaged < 2; damaged++) {
        struct test_use use;
        struct session session;
        folder_use(&use, root.text, "probe=no");
        assert_int_equal(open_in(&session, &use, NULL), BRIM_OK);
        assert_int_equal(session.indexes->made, damaged == 0);
        assert_int_equal(brim__index_verify(session.indexes, NULL, NULL),
                         damaged == 0 ? BRIM_OK : BRIM_STATUS_CORRUPT);
        close_in(&session);
        const struct long_path file = only_file("cache/index", "", ".brimlst");
        const int fd = open(file.text, O_WRONLY | O_CLOEXEC);
        const off_t place = (off_t)brim__listing_records_at(2) + BRIM__LISTING_RECORD;
        assert_int_equal(pwrite(fd, "b", 1, place), 1);
        close(fd);
    }
}

/* A plan for it is made or refused, whatever the listing says that images need. */
static void plan_images(brim_runtime *runtime, const char *root) {
    char text[PATH_MAX + 64];
    brim_pipeline *pipeline;
    brim_plan *plan;
    snprintf(text, sizeof text, "folder %s | decode orient=yes | resize 8,8 | batch 2", root);
    assert_int_equal(brim_pipeline_parse(text, &pipeline), BRIM_OK);
    brim__fail_text(BRIM_OK, "");
    if (brim_plan_new(runtime, pipeline, NULL, &plan) == BRIM_OK) {
        brim_plan_free(plan);
    } else {
        assert_true(brim_detail()[0] != '\0');
    }
    brim_pipeline_free(pipeline);
}

/* Opened, its bounds are within reason; *width: of the widest image. */
static void check_bounds(const char *root, uint32_t *width) {
    struct test_use use;
    struct session session;
    folder_use(&use, root, "");
    *width = 0;
    if (open_in(&session, &use, NULL) == BRIM_OK && session.source.field[0].images != NULL) {
        const struct brim__image_bounds all = all_images(&session.source), *images = &all;
        *width = images->width;
        assert_true(images->width >= 1 && images->width <= BRIM__MAX_SIDE);
        assert_true(images->height >= 1 && images->height <= BRIM__MAX_SIDE);
        assert_true(images->pixels >= 1 &&
                    images->pixels <= (uint64_t)images->width * images->height);
        assert_true(images->memory < BRIM__PROBED_BYTES && images->outside < BRIM__PROBED_BYTES);
        assert_true(images->needs <= images->memory + images->outside);
        assert_true(session.source.field[0].view.shape.dim[0] < BRIM__PROBED_BYTES);
    }
    close_in(&session);
}

static void test_forged_headers(void **state) {
    (void)state;
    static const uint64_t values[] = {
        0, 1, 2, INT32_MAX, UINT32_MAX, UINT64_C(1) << 32, UINT64_C(1) << 47, INT64_MAX, UINT64_MAX
    };
    remove_tree(at("cache").text);
    put_image("h/a/1.png", 30, 40);
    put_image("h/a/2.png", 50, 20);
    put("h/b/3.jpg", "x", 1);
    put("h/loose.jpg", "x", 1);
    const struct long_path root = at("h"), cache = at("cache"), whole = at("whole");
    struct samples wanted = { 0 };
    assert_int_equal(try_folder(root.text, "", &wanted, NULL), BRIM_OK);
    const struct long_path file = only_file("cache/index", "", ".brimlst");
    struct stat facts;
    assert_int_equal(stat(file.text, &facts), 0);
    put("whole", "", 0);
    copy_file(file.text, whole.text);
    brim_runtime_options options = BRIM_RUNTIME_OPTIONS_INIT;
    brim_runtime *runtime;
    options.host_bytes = 16 * MIB;
    options.threads = 0;
    options.index_dir = cache.text;
    assert_int_equal(brim_runtime_new(&options, &runtime), BRIM_OK);
    const size_t words = sizeof(struct brim__listing_header) / 4;
    for (size_t i = 0; i < words * BRIM__COUNT(values); i++) {
        const size_t place = 4 * (i % words), bytes = place % 8 == 0 ? 8 : 4;
        uint32_t width;
        forge(file.text, &facts, place, &values[i / words], bytes);
        plan_images(runtime, root.text);
        copy_file(whole.text, file.text);
        forge(file.text, &facts, place, &values[i / words], bytes);
        check_bounds(root.text, &width);
        copy_file(whole.text, file.text);
        forge(file.text, &facts, place, &values[i / words], bytes);
        expect_right_or_refused(root.text, "", &wanted);
        copy_file(whole.text, file.text);
    }
    brim_runtime_free(runtime);
    drop_samples(&wanted);
}

/* What cannot be true is not believed, and found out anew. */
static void test_bounds_that_cannot_be(void **state) {
    (void)state;
    const struct long_path root = at("h");
#define PROBED(member) offsetof(struct brim__listing_header, probed.member), sizeof(uint64_t)
#define HALF(member)   offsetof(struct brim__listing_header, probed.member), sizeof(uint32_t)
#define SIDE(member)   offsetof(struct brim__listing_header, probed.member), sizeof(uint16_t)
    static const struct {
        size_t place, bytes;
        uint64_t value;
    } cases[] = {
        { SIDE(band[0].width), 0 },
        { SIDE(band[0].height), 0 },
        { SIDE(band[0].turned), 2 },
        { SIDE(band[0].zero), 1 },
        { HALF(band[0].least), 0 },
        { HALF(band[0].least), 50 * 40 + 1 },
        { HALF(band[0].pixels), 0 },
        { HALF(band[0].pixels), 50 * 40 + 1 },
        { PROBED(band[0].memory), BRIM__PROBED_BYTES },
        { PROBED(band[0].outside), UINT64_MAX },
        { PROBED(band[0].needs), BRIM__PROBED_BYTES },
        { PROBED(band[0].sample), 3 },
        { PROBED(band[0].images), 1 },
        { PROBED(band[1].images), 1 },
        { PROBED(band[48].memory), 1 },
        { PROBED(largest), BRIM__PROBED_BYTES },
        { PROBED(images), 4 },
        { PROBED(others), UINT64_MAX },
        { offsetof(struct brim__listing_header, labelled), 8, 2 },
        { offsetof(struct brim__listing_header, classes), 8, 0 },
        { offsetof(struct brim__listing_header, longest), 8, 0 },
        { offsetof(struct brim__listing_header, directories), 8, 0 },
        { offsetof(struct brim__listing_header, directories), 8, UINT64_MAX },
    };
#undef PROBED
#undef HALF
#undef SIDE
    remove_tree(at("cache").text);
    for (size_t i = 0; i < BRIM__COUNT(cases); i++) {
        uint32_t width;
        struct stat before, after;
        check_bounds(root.text, &width);
        const struct long_path file = only_file("cache/index", "", ".brimlst");
        assert_int_equal(stat(file.text, &before), 0);
        forge(file.text, &before, cases[i].place, &cases[i].value, cases[i].bytes);
        check_bounds(root.text, &width);
        assert_int_equal(width, 50);
        assert_int_equal(stat(file.text, &after), 0);
        assert_true(before.st_ino != after.st_ino);
    }
}

/* Larger than any image: a bad sample, which makes nothing of the others. */
static void test_a_file_without_end(void **state) {
    (void)state;
    put_image("endless/1.png", 30, 40);
    put("endless/2.png", "x", 1);
    if (truncate(at("endless/2.png").text, (off_t)(BRIM__PROBED_BYTES + 1)) != 0) {
        skip(); /* no file system for such */
    }
    for (int i = 0; i < 2; i++) {
        struct test_use use;
        struct session session;
        const struct long_path root = at("endless");
        folder_use(&use, root.text, i == 0 ? "" : "probe=no");
        assert_int_equal(open_in(&session, &use, NULL), BRIM_OK);
        assert_int_equal(session.source.count, 2);
        assert_true(session.source.field[0].view.shape.dim[0] < 1000);
        close_in(&session);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sorter),
        cmocka_unit_test(test_many_files_in_little_memory),
        cmocka_unit_test(test_progress),
        cmocka_unit_test(test_every_fault),
        cmocka_unit_test(test_killed_while_making),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_exchanged_records),
        cmocka_unit_test(test_forged_headers),
        cmocka_unit_test(test_paths_that_lead_outside),
        cmocka_unit_test(test_forged_entries),
        cmocka_unit_test(test_verify),
        cmocka_unit_test(test_bounds_that_cannot_be),
        cmocka_unit_test(test_a_file_without_end),
    };
    return cmocka_run_group_tests_name("folder_faults", tests, set_up, tear_down);
}

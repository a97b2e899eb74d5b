/*
 * test_index.c: index files against a model that knows every entry.
 *
 * The scan of these tests enters made-up records, so that an index is compared
 * entry by entry with what the model says; files of lines are test_lines.c's
 * business. Whatever is done to an index file, reading it gives the model's
 * entries or an error, never anything else.
 */
#include "source_util.h"

#include "base/fault.h"
#include "source/index_file.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#define DATA_BYTES 100000
#define RUN        64

/* What a scan enters: a pure function of its number. */
static struct brim__index_entry model(uint64_t number) {
    uint64_t state = number * 2 + 1;
    const uint64_t a = next_random(&state), b = next_random(&state);
    return (struct brim__index_entry){ .offset = a % (DATA_BYTES - 1000),
                                       .length = b % 1000,
                                       .kind = (uint16_t)(a >> 48),
                                       .a = (uint32_t)(b >> 32),
                                       .b = (uint32_t)a };
}

struct scene {
    struct brim__file data;
    struct brim__arena arena;
    struct brim__opening opening;
    struct brim__index_recipe recipe;
    brim_budget *budget;
    struct brim__index *list;
    /* of the scan */
    uint64_t count;
    unsigned scans;
    uint64_t fail_at;        /* BRIM_STATUS_CORRUPT at this record; 0: never */
    const char *grow;        /* appends to this file while scanning */
    uint64_t progress_calls; /* of the scan's progress function */
    bool give_up;
    uint64_t pause_ns; /* after each page's worth of records */
};

static brim_status scan(void *self, const struct brim__file *data,
                        struct brim__index_writer *writer) {
    struct scene *scene = self;
    brim_status status = BRIM_OK;
    assert_ptr_equal(data, &scene->data);
    scene->scans++;
    for (uint64_t i = 0; status == BRIM_OK && i < scene->count; i++) {
        const struct brim__index_entry entry = model(i);
        if (scene->fail_at > 0 && i + 1 == scene->fail_at) {
            return brim__fail(BRIM_STATUS_CORRUPT, "record %llu is bad", (unsigned long long)i);
        }
        status = brim__index_add(writer, &entry);
        if (status == BRIM_OK && i % BRIM__INDEX_PER_PAGE == 0) {
            status = brim__index_progress(writer, i % DATA_BYTES);
            if (scene->pause_ns > 0) {
                const struct timespec pause = { .tv_nsec = (long)scene->pause_ns };
                nanosleep(&pause, NULL);
            }
        }
    }
    if (scene->grow != NULL) {
        FILE *file = fopen(scene->grow, "a");
        assert_non_null(file);
        fputs("more", file);
        fclose(file);
    }
    return status;
}

static void data_open(struct scene *scene, const char *name) {
    static const uint8_t zeros[DATA_BYTES];
    const struct path path = scratch_path(name);
    const char *kept;
    if (access(path.text, F_OK) != 0) {
        write_file(path.text, zeros, sizeof zeros);
    }
    assert_int_equal(brim__arena_text(&scene->arena, path.text, &kept), BRIM_OK);
    assert_int_equal(brim__file_open(&scene->data, kept), BRIM_OK);
}

/* A scene whose index lies beside the data, in a budget of `bytes` (0: none). */
static void begin(struct scene *scene, uint64_t count, uint64_t bytes) {
    memset(scene, 0, sizeof *scene);
    if (bytes > 0) {
        uint64_t limits[BRIM_MEMORY_KINDS] = { bytes };
        assert_int_equal(brim__budget_root("test", limits, &scene->budget), BRIM_OK);
    }
    brim__arena_init(&scene->arena, scene->budget);
    scene->count = count;
    scene->opening = (struct brim__opening){ .arena = &scene->arena, .indexes = &scene->list };
    scene->recipe = (struct brim__index_recipe){
        .source = "model", .options = 7, .home = BRIM__INDEX_BESIDE, .scan = scan, .self = scene
    };
    data_open(scene, "data");
}

static void end(struct scene *scene) {
    brim__file_close(&scene->data);
    brim__arena_fini(&scene->arena);
    if (scene->budget != NULL) {
        brim__budget_check(scene->budget);
        brim_budget_free(scene->budget);
    }
}

static struct path index_path(void) {
    return scratch_path("data.model.brimidx");
}

static void remove_all(void) {
    unlink(index_path().text);
    unlink(scratch_path("data").text);
}

static brim_status open_index(struct scene *scene, struct brim__index *index) {
    return brim__index_open(index, &scene->data, &scene->recipe, &scene->opening);
}

static void assert_entry(const struct brim__index_entry *entry, uint64_t number) {
    const struct brim__index_entry wanted = model(number);
    assert_int_equal(entry->offset, wanted.offset);
    assert_int_equal(entry->length, wanted.length);
    assert_int_equal(entry->kind, wanted.kind);
    assert_int_equal(entry->a, wanted.a);
    assert_int_equal(entry->b, wanted.b);
}

/* Reads all entries in runs; those that can be read must be the model's. Returns
 * whether all could. */
static bool read_all(const struct brim__index *index) {
    struct brim__index_entry entries[RUN];
    bool whole = true;
    for (uint64_t first = 0; first < index->count; first += RUN) {
        const size_t count = (size_t)brim__min(RUN, index->count - first);
        const brim_status status = brim__index_read(index, first, count, entries);
        if (status != BRIM_OK) {
            assert_int_equal(status, BRIM_STATUS_CORRUPT);
            whole = false;
            continue;
        }
        for (size_t i = 0; i < count; i++) {
            assert_entry(&entries[i], first + i);
        }
    }
    return whole;
}

static void assert_whole(struct scene *scene) {
    struct brim__index index;
    assert_int_equal(open_index(scene, &index), BRIM_OK);
    assert_int_equal(index.count, scene->count);
    assert_true(read_all(&index));
    assert_int_equal(brim__index_verify(&index, NULL, NULL), BRIM_OK);
    brim__index_close(&index);
    brim__index_close(&index);
}

static size_t files_in_directory(void) {
    DIR *directory = opendir(scratch_directory);
    size_t count = 0;
    assert_non_null(directory);
    for (const struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        count += entry->d_name[0] != '.';
    }
    closedir(directory);
    return count;
}

static size_t load(const char *path, uint8_t **bytes) {
    struct brim__file file;
    assert_int_equal(brim__file_open(&file, path), BRIM_OK);
    *bytes = malloc(file.bytes + 1);
    assert_non_null(*bytes);
    assert_int_equal(brim__file_read(&file, 0, *bytes, file.bytes), BRIM_OK);
    brim__file_close(&file);
    return file.bytes;
}

/* ------------------------------------------------------------------- tests */

static void test_entries_come_back(void **state) {
    (void)state;
    const uint64_t counts[] = { 0, 1, 169, 170, 171, 340, 341, 2719, 2720, 2721, 20000 };
    for (size_t c = 0; c < BRIM__COUNT(counts); c++) {
        struct scene scene;
        struct brim__index index;
        uint64_t largest = 0, total = 0;
        remove_all();
        begin(&scene, counts[c], 0);
        for (uint64_t i = 0; i < counts[c]; i++) {
            largest = brim__max(largest, model(i).length);
            total += model(i).length;
        }
        assert_int_equal(open_index(&scene, &index), BRIM_OK);
        assert_true(index.made);
        assert_ptr_equal(scene.list, &index);
        assert_int_equal(index.count, counts[c]);
        assert_int_equal(index.largest, largest);
        assert_int_equal(index.total, total);
        assert_int_equal(index.data_bytes, DATA_BYTES);
        assert_true(read_all(&index));
        assert_int_equal(brim__index_verify(&index, NULL, NULL), BRIM_OK);
        uint64_t random = 5;
        for (int i = 0; i < 200 && counts[c] > 0; i++) {
            struct brim__index_entry entries[RUN];
            const uint64_t first = next_random(&random) % counts[c];
            const size_t count = (size_t)brim__min(next_random(&random) % RUN, counts[c] - first);
            assert_int_equal(brim__index_read(&index, first, count, entries), BRIM_OK);
            for (size_t k = 0; k < count; k++) {
                assert_entry(&entries[k], first + k);
            }
        }
        brim__index_close(&index);
        assert_int_equal(scene.scans, 1);
        assert_int_equal(open_index(&scene, &index), BRIM_OK);
        assert_false(index.made);
        assert_int_equal(scene.scans, 1);
        brim__index_close(&index);
        end(&scene);
    }
}

static uint64_t number_at(const uint8_t *bytes, size_t at, size_t count) {
    uint64_t number = 0;
    for (size_t i = 0; i < count; i++) {
        number |= (uint64_t)bytes[at + i] << (8 * i);
    }
    return number;
}

/* The page in docs/index.md, byte by byte. */
static void test_the_bytes_are_as_documented(void **state) {
    (void)state;
    struct scene scene;
    uint8_t *bytes;
    remove_all();
    begin(&scene, 171, 0);
    assert_whole(&scene);
    const size_t count = load(index_path().text, &bytes);
    assert_int_equal(count, 3 * 4096);
    assert_memory_equal(bytes, "brimidx\n", 8);
    assert_int_equal(number_at(bytes, 8, 4), 1);
    assert_int_equal(number_at(bytes, 12, 4), 4096);
    assert_string_equal((const char *)bytes + 16, "model");
    assert_int_equal(number_at(bytes, 64, 8), 7);
    assert_int_equal(number_at(bytes, 72, 8), DATA_BYTES);
    assert_int_equal(number_at(bytes, 80, 8), scene.data.modified_ns);
    assert_int_equal(number_at(bytes, 88, 8), 171);
    for (size_t page = 0; page < 3; page++) {
        assert_int_equal(number_at(bytes, page * 4096 + 4088, 8),
                         brim__hash(bytes + page * 4096, 4088, page));
    }
    for (uint64_t i = 0; i < 171; i++) {
        const size_t at = (size_t)(i < 170 ? 4096 + i * 24 : 8192);
        const struct brim__index_entry entry = model(i);
        assert_int_equal(number_at(bytes, at, 8), entry.offset);
        assert_int_equal(number_at(bytes, at + 8, 6), entry.length);
        assert_int_equal(number_at(bytes, at + 14, 2), entry.kind);
        assert_int_equal(number_at(bytes, at + 16, 4), entry.a);
        assert_int_equal(number_at(bytes, at + 20, 4), entry.b);
    }
    free(bytes);
    end(&scene);
}

static void test_stale_ones_are_made_anew(void **state) {
    (void)state;
    struct scene scene;
    remove_all();
    begin(&scene, 500, 0);
    assert_whole(&scene);
    assert_int_equal(scene.scans, 1);
    end(&scene);

    begin(&scene, 600, 0); /* by time */
    const struct timespec times[2] = { { .tv_sec = 1 }, { .tv_sec = 1, .tv_nsec = 1 } };
    assert_int_equal(utimensat(AT_FDCWD, scene.data.path, times, 0), 0);
    end(&scene);
    begin(&scene, 600, 0);
    assert_whole(&scene);
    assert_int_equal(scene.scans, 1);
    const struct timespec later[2] = { { .tv_sec = 1 }, { .tv_sec = 1, .tv_nsec = 2 } };
    assert_int_equal(utimensat(AT_FDCWD, scene.data.path, later, 0), 0);
    end(&scene);
    begin(&scene, 700, 0);
    assert_whole(&scene);
    assert_int_equal(scene.scans, 1);

    assert_int_equal(truncate(scene.data.path, DATA_BYTES + 1), 0); /* by size */
    assert_int_equal(utimensat(AT_FDCWD, scene.data.path, later, 0), 0);
    end(&scene);
    begin(&scene, 800, 0);
    assert_whole(&scene);
    assert_int_equal(scene.scans, 1);

    scene.recipe.options++; /* by options */
    scene.count = 900;
    assert_whole(&scene);
    assert_int_equal(scene.scans, 2);

    uint8_t *bytes; /* by version, with a hash that is right */
    const size_t count = load(index_path().text, &bytes);
    bytes[8]++;
    const uint64_t hash = brim__index_page_hash(bytes, 0);
    memcpy(bytes + BRIM__INDEX_HASHED, &hash, sizeof hash);
    write_file(index_path().text, bytes, count);
    free(bytes);
    assert_whole(&scene);
    assert_int_equal(scene.scans, 3);
    assert_whole(&scene);
    assert_int_equal(scene.scans, 3);
    end(&scene);
}

static void test_damage_is_never_believed(void **state) {
    (void)state;
    struct scene scene;
    uint8_t *bytes;
    uint64_t random = 11;
    unsigned made = 0, noticed = 0;
    remove_all();
    begin(&scene, 1000, 0);
    assert_whole(&scene);
    const size_t count = load(index_path().text, &bytes);
    for (int i = 0; i < 200; i++) {
        /* every third in the header, which would else be hit seldom */
        const size_t at = (size_t)(next_random(&random) % (i % 3 == 0 ? 4096 : count));
        const uint8_t change = (uint8_t)(1 + next_random(&random) % 255);
        struct brim__index index;
        bytes[at] ^= change;
        write_file(index_path().text, bytes, count);
        bytes[at] ^= change;
        const unsigned scans = scene.scans;
        assert_int_equal(open_index(&scene, &index), BRIM_OK);
        assert_int_equal(scene.scans - scans, at < 4096 ? 1 : 0);
        made += at < 4096;
        const bool whole = read_all(&index);
        assert_int_equal(whole, at < 4096);
        if (!whole) {
            noticed++;
            assert_detail_has("delete it");
            assert_int_equal(brim__index_verify(&index, NULL, NULL), BRIM_STATUS_CORRUPT);
        }
        brim__index_close(&index);
    }
    assert_true(made > 50 && noticed > 50);

    uint8_t page[4096]; /* two pages change places: each is whole by itself */
    memcpy(page, bytes + 4096, sizeof page);
    memcpy(bytes + 4096, bytes + 8192, sizeof page);
    memcpy(bytes + 8192, page, sizeof page);
    write_file(index_path().text, bytes, count);
    struct brim__index index;
    assert_int_equal(open_index(&scene, &index), BRIM_OK);
    assert_false(read_all(&index));
    brim__index_close(&index);
    free(bytes);
    end(&scene);
}

static void test_cut_and_longer_ones_are_made_anew(void **state) {
    (void)state;
    struct scene scene;
    uint8_t *bytes;
    uint64_t random = 12;
    remove_all();
    begin(&scene, 1000, 0);
    assert_whole(&scene);
    const size_t count = load(index_path().text, &bytes);
    bytes = realloc(bytes, 2 * count);
    assert_non_null(bytes);
    memcpy(bytes + count, bytes, count);
    for (int i = 0; i < 60; i++) {
        const size_t length = (size_t)(next_random(&random) % (2 * count));
        const size_t kept = i < 20 ? length / 4096 * 4096 : length;
        if (kept == count) {
            continue;
        }
        const unsigned scans = scene.scans;
        write_file(index_path().text, bytes, kept);
        assert_whole(&scene);
        assert_int_equal(scene.scans, scans + 1);
    }
    free(bytes);
    end(&scene);
}

/* An index may be made by anyone who can write beside the data. */
static void test_a_lying_index_leads_nowhere(void **state) {
    (void)state;
    const uint64_t offsets[] = { DATA_BYTES + 1, UINT64_MAX, DATA_BYTES - 5 };
    for (size_t i = 0; i < BRIM__COUNT(offsets); i++) {
        struct scene scene;
        struct brim__index index;
        struct brim__index_entry entries[3];
        uint8_t *bytes;
        remove_all();
        begin(&scene, 3, 0);
        assert_whole(&scene);
        const size_t count = load(index_path().text, &bytes);
        const struct brim__index_item item = { .offset = offsets[i], .length_kind = 6 };
        memcpy(bytes + 4096 + 24, &item, sizeof item);
        const uint64_t hash = brim__index_page_hash(bytes + 4096, 1);
        memcpy(bytes + 8192 - 8, &hash, sizeof hash);
        write_file(index_path().text, bytes, count);
        free(bytes);
        assert_int_equal(open_index(&scene, &index), BRIM_OK);
        assert_int_equal(brim__index_read(&index, 0, 1, entries), BRIM_OK);
        assert_int_equal(brim__index_read(&index, 0, 3, entries), BRIM_STATUS_CORRUPT);
        assert_detail_has("is not inside");
        brim__index_close(&index);
        end(&scene);
    }
}

static uint64_t reads_of_opening(uint64_t count) {
    struct scene scene;
    struct brim__index index;
    remove_all();
    begin(&scene, count, 0);
    assert_whole(&scene);
    brim__fault_arm(0, 0, false); /* only counts */
    assert_int_equal(open_index(&scene, &index), BRIM_OK);
    const uint64_t reads = brim__fault_passed(BRIM__FAULT_READ);
    brim__index_close(&index);
    end(&scene);
    return reads;
}

static void test_opening_costs_the_same_for_any_count(void **state) {
    (void)state;
    assert_int_equal(reads_of_opening(10), 1);
    assert_int_equal(reads_of_opening(50000), 1);
}

static void test_bad_records_are_refused(void **state) {
    (void)state;
    struct scene scene;
    struct brim__index index;
    remove_all();
    begin(&scene, 5000, 1 << 20);
    brim_budget_info before = BRIM_BUDGET_INFO_INIT, after = BRIM_BUDGET_INFO_INIT;
    brim_budget_read(scene.budget, BRIM_MEMORY_HOST, &before);
    scene.fail_at = 4000; /* some pages are written by then */
    assert_int_equal(open_index(&scene, &index), BRIM_STATUS_CORRUPT);
    assert_detail_has("record 3999 is bad");
    assert_int_equal(files_in_directory(), 1);
    assert_null(scene.list);
    brim_budget_read(scene.budget, BRIM_MEMORY_HOST, &after);
    assert_int_equal(before.charged, after.charged);
    assert_true(after.peak > after.charged);

    scene.fail_at = 0;
    scene.grow = scene.data.path;
    assert_int_equal(open_index(&scene, &index), BRIM_STATUS_CORRUPT);
    assert_detail_has("changed while its index was made");
    assert_int_equal(files_in_directory(), 1);
    end(&scene);
}

static brim_status scan_outside(void *self, const struct brim__file *data,
                                struct brim__index_writer *writer) {
    const struct brim__index_entry entry = *(const struct brim__index_entry *)self;
    (void)data;
    return brim__index_add(writer, &entry);
}

static void test_records_outside_the_file_are_not_entered(void **state) {
    (void)state;
    struct brim__index_entry entries[] = {
        { .offset = DATA_BYTES + 1 },
        { .offset = 0, .length = DATA_BYTES + 1 },
        { .offset = UINT64_MAX, .length = 2 },
    };
    for (size_t i = 0; i < BRIM__COUNT(entries); i++) {
        struct scene scene;
        struct brim__index index;
        remove_all();
        begin(&scene, 0, 0);
        scene.recipe.scan = scan_outside;
        scene.recipe.self = &entries[i];
        assert_int_equal(open_index(&scene, &index), BRIM_STATUS_CORRUPT);
        assert_int_equal(files_in_directory(), 1);
        end(&scene);
    }
}

static int told(void *user, const brim_progress *progress) {
    struct scene *scene = user;
    assert_non_null(strstr(progress->what, "/data"));
    assert_int_equal(progress->unit, BRIM_UNIT_BYTES);
    assert_int_equal(progress->total, DATA_BYTES);
    assert_true(progress->done <= progress->total);
    scene->progress_calls++;
    return scene->give_up;
}

static void test_progress_is_told_and_may_give_up(void **state) {
    (void)state;
    struct scene scene;
    struct brim__index index;
    remove_all();
    begin(&scene, 170 * 60, 0);
    scene.opening.progress = told;
    scene.opening.progress_user = &scene;
    scene.pause_ns = 5000000; /* 0.3 s in all: some calls, not sixty */
    assert_int_equal(open_index(&scene, &index), BRIM_OK);
    brim__index_close(&index);
    assert_true(scene.progress_calls >= 2 && scene.progress_calls < 30);
    unlink(index_path().text);
    scene.list = NULL;
    scene.give_up = true;
    assert_int_equal(open_index(&scene, &index), BRIM_STATUS_INTERRUPTED);
    assert_detail_has("was stopped");
    assert_int_equal(files_in_directory(), 1);
    end(&scene);
}

/* --------------------------------------------------------------- the place */

static void test_the_index_directory(void **state) {
    (void)state;
    struct scene scene;
    struct brim__index index;
    const struct path cache = scratch_path("a/b/cache");
    const char *path, *other;
    struct stat facts;
    remove_all();
    begin(&scene, 300, 0);
    scene.opening.index_dir = cache.text;
    scene.recipe.home = BRIM__INDEX_CACHE;
    assert_whole(&scene);
    assert_int_equal(brim__index_path(&scene.data, &scene.recipe, &scene.opening, &path), BRIM_OK);
    assert_int_equal(strncmp(path, cache.text, strlen(cache.text)), 0);
    assert_int_equal(strncmp(path + strlen(cache.text), "/index/", 7), 0);
    assert_int_equal(stat(cache.text, &facts), 0);
    assert_int_equal(facts.st_mode & 0777, 0700);
    assert_int_equal(stat(path, &facts), 0);
    assert_int_equal(facts.st_mode & 0777, 0600);
    assert_whole(&scene);
    assert_int_equal(scene.scans, 1);

    /* one file under another name has the same; other options have another */
    const struct path link = scratch_path("link");
    assert_int_equal(symlink("data", link.text), 0);
    struct brim__file second;
    assert_int_equal(brim__file_open(&second, link.text), BRIM_OK);
    assert_int_equal(brim__index_path(&second, &scene.recipe, &scene.opening, &other), BRIM_OK);
    assert_string_equal(path, other);
    brim__file_close(&second);
    scene.recipe.options++;
    assert_int_equal(brim__index_path(&scene.data, &scene.recipe, &scene.opening, &other), BRIM_OK);
    assert_string_not_equal(path, other);
    assert_int_equal(open_index(&scene, &index), BRIM_OK);
    brim__index_close(&index);
    unlink(path);
    unlink(other);
    unlink(link.text);
    const char *const made[] = { "a/b/cache/index", "a/b/cache", "a/b", "a" };
    for (size_t i = 0; i < BRIM__COUNT(made); i++) {
        assert_int_equal(rmdir(scratch_path(made[i]).text), 0);
    }
    end(&scene);
}

static void test_the_home_directory_is_the_default(void **state) {
    (void)state;
    struct scene scene;
    char home[1000], wanted[1100];
    const char *path;
    if (!brim__home_directory(home, sizeof home)) {
        skip(); /* this user has none */
    }
    assert_int_equal(home[0], '/');
    char too_short[2];
    assert_false(strlen(home) > 1 && brim__home_directory(too_short, sizeof too_short));
    begin(&scene, 1, 0);
    scene.recipe.home = BRIM__INDEX_CACHE;
    assert_int_equal(brim__index_path(&scene.data, &scene.recipe, &scene.opening, &path), BRIM_OK);
    snprintf(wanted, sizeof wanted, "%s/.cache/brim/index/", home);
    assert_int_equal(strncmp(path, wanted, strlen(wanted)), 0);
    end(&scene);
}

static void test_a_place_that_cannot_be_written(void **state) {
    (void)state;
    struct scene scene;
    struct brim__index index;
    remove_all();
    begin(&scene, 300, 0);
    scene.recipe.home = BRIM__INDEX_CACHE;
    const struct path below_a_file = scratch_path("data/cache");
    const char *const places[] = { below_a_file.text, "/proc/brim" };
    for (size_t i = 0; i < BRIM__COUNT(places); i++) {
        scene.opening.index_dir = places[i];
        assert_int_equal(open_index(&scene, &index), BRIM_STATUS_IO);
        assert_detail_has("index=beside");
        assert_detail_has("--index-dir");
    }
    scene.recipe.home = BRIM__INDEX_BESIDE; /* a directory is in the way */
    assert_int_equal(mkdir(index_path().text, 0700), 0);
    assert_int_equal(open_index(&scene, &index), BRIM_STATUS_IO);
    assert_detail_has("index=cache");
    assert_int_equal(files_in_directory(), 2);
    assert_int_equal(rmdir(index_path().text), 0);
    assert_int_equal(scene.scans, 1);
    end(&scene);
}

/* ------------------------------------------------------- memory and faults */

static void test_a_small_budget_gives_the_same_index(void **state) {
    (void)state;
    uint8_t *bytes[2];
    size_t count[2];
    const uint64_t budgets[2] = { 0, 96 << 10 };
    for (int i = 0; i < 2; i++) {
        struct scene scene;
        unlink(index_path().text);
        begin(&scene, 30000, budgets[i]);
        assert_whole(&scene);
        count[i] = load(index_path().text, &bytes[i]);
        end(&scene);
    }
    assert_int_equal(count[0], count[1]);
    assert_memory_equal(bytes[0], bytes[1], count[0]);
    free(bytes[0]);
    free(bytes[1]);
}

static void test_every_fault(void **state) {
    (void)state;
    const unsigned all = (1u << BRIM__FAULT_KINDS) - 1;
    for (int for_ever = 0; for_ever < 2; for_ever++) {
        unsigned failed = 0;
        for (uint64_t nth = 1;; nth++) {
            struct scene scene;
            struct brim__index index;
            remove_all();
            begin(&scene, 6000, 1 << 20);
            const size_t descriptors = open_descriptors();
            brim__fault_arm(all, nth, for_ever != 0);
            const brim_status status = open_index(&scene, &index);
            const uint64_t injected = brim__fault_injected();
            brim__fault_arm(0, 0, false);
            if (status == BRIM_OK) {
                assert_true(read_all(&index));
                brim__index_close(&index);
            } else {
                assert_true(status == BRIM_STATUS_IO || status == BRIM_STATUS_MEMORY);
                assert_true(brim_detail()[0] != '\0');
                assert_int_equal(open_descriptors(), descriptors);
                failed++;
            }
            /* the data, and an index or none: no temporary file */
            assert_int_equal(files_in_directory(), access(index_path().text, F_OK) == 0 ? 2 : 1);
            scene.list = NULL;
            assert_whole(&scene);
            end(&scene);
            if (injected == 0) {
                break;
            }
        }
        assert_true(failed > 5);
    }
}

/* --------------------------------------------------------------- processes */

static void test_processes_at_once(void **state) {
    (void)state;
    for (int round = 0; round < 5; round++) {
        pid_t children[4];
        remove_all();
        struct scene scene;
        begin(&scene, 20000, 0);
        for (size_t i = 0; i < BRIM__COUNT(children); i++) {
            children[i] = fork();
            assert_true(children[i] >= 0);
            if (children[i] == 0) {
                struct brim__index index;
                const bool good = open_index(&scene, &index) == BRIM_OK && index.count == 20000 &&
                                  brim__index_verify(&index, NULL, NULL) == BRIM_OK;
                _exit(good ? 0 : 1);
            }
        }
        for (size_t i = 0; i < BRIM__COUNT(children); i++) {
            int code;
            assert_int_equal(waitpid(children[i], &code, 0), children[i]);
            assert_int_equal(code, 0);
        }
        assert_whole(&scene);
        assert_int_equal(scene.scans, 0);
        assert_int_equal(files_in_directory(), 2);
        end(&scene);
    }
}

static void test_killed_at_any_moment(void **state) {
    (void)state;
    uint64_t random = 3;
    unsigned none = 0;
    for (int i = 0; i < 30; i++) {
        struct scene scene;
        remove_all();
        begin(&scene, 60000, 0);
        scene.pause_ns = 1000; /* at least 50 us a page: some 20 ms in all */
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            struct brim__index index;
            _exit(open_index(&scene, &index) == BRIM_OK ? 0 : 1);
        }
        const struct timespec pause = { .tv_nsec = (long)(next_random(&random) % 30000000) };
        nanosleep(&pause, NULL);
        kill(child, SIGKILL);
        int code;
        assert_int_equal(waitpid(child, &code, 0), child);
        assert_true(WIFSIGNALED(code) || WEXITSTATUS(code) == 0);
        const bool there = access(index_path().text, F_OK) == 0;
        none += !there;
        assert_whole(&scene);
        assert_int_equal(scene.scans, there ? 0 : 1); /* what is there is whole */
        end(&scene);
    }
    assert_true(none > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_entries_come_back),
        cmocka_unit_test(test_the_bytes_are_as_documented),
        cmocka_unit_test(test_stale_ones_are_made_anew),
        cmocka_unit_test(test_damage_is_never_believed),
        cmocka_unit_test(test_cut_and_longer_ones_are_made_anew),
        cmocka_unit_test(test_a_lying_index_leads_nowhere),
        cmocka_unit_test(test_opening_costs_the_same_for_any_count),
        cmocka_unit_test(test_bad_records_are_refused),
        cmocka_unit_test(test_records_outside_the_file_are_not_entered),
        cmocka_unit_test(test_progress_is_told_and_may_give_up),
        cmocka_unit_test(test_the_index_directory),
        cmocka_unit_test(test_the_home_directory_is_the_default),
        cmocka_unit_test(test_a_place_that_cannot_be_written),
        cmocka_unit_test(test_a_small_budget_gives_the_same_index),
        cmocka_unit_test(test_every_fault),
        cmocka_unit_test(test_processes_at_once),
        cmocka_unit_test(test_killed_at_any_moment),
    };
    return cmocka_run_group_tests_name("index", tests, make_directory, remove_directory);
}

/*
 * cache_file_util.h: what the tests of cache files share: a model that knows every entry,
 * a tier in a budget of its own, and files as bytes.
 *
 * An entry's length and bytes are functions of its number, so that whatever is found can be
 * compared.
 */
#ifndef BRIM_TESTS_CACHE_FILE_UTIL_H
#define BRIM_TESTS_CACHE_FILE_UTIL_H

#include "support/support.h"

#include "base/fault.h"
#include "base/platform.h"
#include "cache/file_format.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define KIB UINT64_C(1024)
#define MIB (1024 * KIB)

#define COUNT    200
#define FEW      40
#define MOST     40000 /* several pieces of a checksum */
#define RETRY_MS 1100  /* after which who only reads asks for the lock again */

/* -------------------------------------------------------------------- model */

static inline uint64_t length_of(uint64_t number) {
    static const uint64_t special[] = { 0, 1, 63, 64, 65, 127, MOST, MOST - 1 };
    return number < 8 ? special[number] : (number * 977) % 700;
}

static inline void make_entry(uint64_t number, uint8_t *data) {
    uint64_t random = number * 2 + 1;
    for (uint64_t i = 0; i < length_of(number); i += 8) {
        const uint64_t word = next_random(&random);
        memcpy(data + i, &word, brim__min(8, length_of(number) - i));
    }
}

static inline bool is_entry(uint64_t number, const uint8_t *data, uint64_t bytes) {
    uint8_t expected[MOST];
    make_entry(number, expected);
    return bytes == length_of(number) && (bytes == 0 || memcmp(data, expected, bytes) == 0);
}

/* ------------------------------------------------------------------- scenes */

static const struct brim__tier_ops *const ops = &brim__file_tier;

struct scene {
    brim_budget *root, *node;
    _Atomic uint64_t headroom;
    struct brim__tier_start start;
    void *memory;
    struct brim__tier *tier; /* NULL: not started */
    char path[256];
};

/* A tier that is to be started with what the test may change in scene->start. */
static inline void set_scene(struct scene *scene, const char *path, bool threads) {
    const uint64_t limits[BRIM_MEMORY_KINDS] = { 32 * MIB };
    memset(scene, 0, sizeof *scene);
    assert_int_equal(brim__budget_root("runtime", limits, &scene->root), BRIM_OK);
    assert_int_equal(brim_budget_new(scene->root, "cache", BRIM_UNLIMITED, 0, &scene->node),
                     BRIM_OK);
    assert_true(brim__copy_text(scene->path, sizeof scene->path, path));
    scene->start = (struct brim__tier_start){ .budget = scene->node,
                                              .headroom = &scene->headroom,
                                              .count = COUNT,
                                              .most_bytes = MOST,
                                              .limit = BRIM_UNLIMITED,
                                              .threads = threads,
                                              .path = scene->path,
                                              .data = 11,
                                              .sample = 22,
                                              .stamp = 33,
                                              .verify = BRIM__VERIFY_OPEN,
                                              .pipeline = "range 200 | cast float32" };
}

static inline void start(struct scene *scene) {
    scene->memory = brim__alloc(scene->root, ops->arena_bytes(scene->start.count), NULL);
    assert_non_null(scene->memory);
    assert_int_equal(ops->start(scene->memory, &scene->start, &scene->tier), BRIM_OK);
}

static inline void stop(struct scene *scene) {
    ops->stop(scene->tier);
    scene->tier = NULL;
    brim__free(scene->memory);
    brim_budget_info info = BRIM_BUDGET_INFO_INIT;
    assert_int_equal(brim_budget_read(scene->node, BRIM_MEMORY_HOST, &info), BRIM_OK);
    assert_int_equal(info.charged, 0);
}

static inline void end_scene(struct scene *scene) {
    if (scene->tier != NULL) {
        stop(scene);
    }
    brim__budget_check(scene->root);
    brim_budget_free(scene->node);
    brim_budget_free(scene->root);
}

static inline void open_scene(struct scene *scene, const char *path, bool threads) {
    set_scene(scene, path, threads);
    start(scene);
}

static inline struct brim__tier_stats stats_of(const struct scene *scene) {
    struct brim__tier_stats stats;
    ops->stats(scene->tier, &stats);
    return stats;
}

static inline void assert_warning(const struct scene *scene, const char *part) {
    const struct brim__tier_stats stats = stats_of(scene);
    if (part[0] == '\0' ? stats.warning[0] != '\0' : strstr(stats.warning, part) == NULL) {
        print_error("the warning is \"%s\", without \"%s\"\n", stats.warning, part);
        fail();
    }
}

static inline uint64_t stamp_of(const struct scene *scene, uint64_t number) {
    return scene->start.verify == BRIM__VERIFY_HIT ? number * 3 + 1 : 0;
}

static inline bool put(const struct scene *scene, uint64_t number) {
    struct brim__room room;
    if (!ops->begin(scene->tier, number, stamp_of(scene, number), length_of(number), &room)) {
        return false;
    }
    assert_int_equal((uintptr_t)room.data % BRIM__TIER_ALIGNMENT, 0);
    assert_int_equal(room.bytes, length_of(number));
    make_entry(number, room.data);
    ops->commit(scene->tier, &room);
    return true;
}

/* Whether it is found; what is found must be right. */
static inline bool get(const struct scene *scene, uint64_t number) {
    struct brim__found found;
    uint8_t *buffer = NULL;
    /* of its own, so that the sanitizer sees a byte too many */
    assert_int_equal(posix_memalign((void **)&buffer, BRIM__TIER_ALIGNMENT, MOST), 0);
    memset(buffer, 0xee, MOST);
    const bool hit =
        ops->find(scene->tier, number, stamp_of(scene, number), buffer, UINT64_MAX, &found);
    if (hit) {
        assert_true(is_entry(number, found.data, found.bytes));
        ops->done(scene->tier, &found);
    }
    free(buffer);
    return hit;
}

static inline uint64_t get_all(const struct scene *scene) {
    uint64_t hits = 0;
    for (uint64_t i = 0; i < scene->start.count; i++) {
        hits += get(scene, i);
    }
    return hits;
}

static inline void pause_ms(unsigned ms) {
    const struct timespec pause = { .tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000 };
    nanosleep(&pause, NULL);
}

/* Puts until it is taken: the ring may be full, or memory short. */
static inline void put_surely(const struct scene *scene, uint64_t number) {
    while (!put(scene, number)) {
        pause_ms(1);
    }
}

static inline void fill_all(const struct scene *scene) {
    for (uint64_t i = 0; i < scene->start.count; i++) {
        if (!get(scene, i)) {
            put_surely(scene, i);
        }
    }
}

/* A file with all entries, made without a thread. */
static inline void make_full(const char *path, uint64_t count) {
    struct scene scene;
    set_scene(&scene, path, false);
    scene.start.count = count;
    start(&scene);
    fill_all(&scene);
    assert_int_equal(stats_of(&scene).filled, count);
    end_scene(&scene);
}

/* -------------------------------------------------------------------- files */

struct image {
    uint8_t *data;
    size_t bytes;
};

static inline struct image read_image(const char *path) {
    struct stat facts;
    struct image image;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &facts), 0);
    image.bytes = (size_t)facts.st_size;
    image.data = malloc(image.bytes + 1);
    assert_non_null(image.data);
    assert_int_equal(read(fd, image.data, image.bytes), image.bytes);
    close(fd);
    return image;
}

static inline void write_image(const char *path, const void *data, size_t bytes) {
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, bytes), bytes);
    close(fd);
}

static inline void assert_image(const char *path, const void *data, size_t bytes) {
    const struct image now = read_image(path);
    assert_int_equal(now.bytes, bytes);
    assert_memory_equal(now.data, data, bytes);
    free(now.data);
}

static inline unsigned count_names(const char *path) {
    unsigned names = 0;
    DIR *directory = opendir(path);
    assert_non_null(directory);
    for (const struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        names += entry->d_name[0] != '.';
    }
    closedir(directory);
    return names;
}

static inline uint64_t bytes_of(const char *path) {
    struct stat facts;
    assert_int_equal(stat(path, &facts), 0);
    return (uint64_t)facts.st_size;
}

/* What the file takes on the disk may be counted in whole blocks, and later. */
static inline bool is_disk_use(uint64_t bytes, const char *path) {
    return bytes > 0 && bytes <= bytes_of(path) + (64u << 10);
}

/* A path that nothing lies at. */
static inline struct path fresh_path(const char *name) {
    const struct path path = in_directory(name);
    (void)unlink(path.text);
    return path;
}

static inline struct brim__cache_entry entry_of(const struct image *image, uint64_t number) {
    struct brim__cache_entry entry;
    memcpy(&entry, image->data + brim__cache_table_at(number), sizeof entry);
    return entry;
}

static inline uint64_t charged(brim_budget *budget) {
    brim_budget_info info = BRIM_BUDGET_INFO_INIT;
    assert_int_equal(brim_budget_read(budget, BRIM_MEMORY_HOST, &info), BRIM_OK);
    return info.charged;
}

#endif

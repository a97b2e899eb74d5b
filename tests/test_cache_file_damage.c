/*
 * test_cache_file_damage.c: whatever is done to a cache file (cut, flipped, forged, filled by
 * a process that is killed), a find gives the model's bytes or a miss, and the file can be
 * filled again.
 *
 * Called with "fill PATH" this is the process that is killed.
 */
#include "cache_file_util.h"

#include <signal.h>
#include <sys/wait.h>

static void open_few(struct scene *scene, const char *path) {
    set_scene(scene, path, false);
    scene->start.count = FEW;
    start(scene);
}

static void a_file_cut_anywhere_is_filled_again(void **state) {
    (void)state;
    const struct path path = fresh_path("cut");
    make_full(path.text, FEW);
    const struct image image = read_image(path.text);
    const uint64_t heap = brim__cache_heap(FEW);
    uint64_t sizes[64] = { 0,
                           1,
                           7,
                           8,
                           100,
                           4087,
                           4088,
                           4095,
                           4096,
                           4097,
                           4096 + 32,
                           4096 + 33,
                           heap - 1,
                           heap,
                           heap + 1,
                           heap + 64,
                           image.bytes - 1,
                           image.bytes - 64,
                           image.bytes - 65 };
    uint64_t random = 5;
    for (size_t i = 19; i < BRIM__COUNT(sizes); i++) {
        sizes[i] = heap + next_random(&random) % (image.bytes - heap);
    }
    for (size_t i = 0; i < BRIM__COUNT(sizes); i++) {
        struct scene scene;
        write_image(path.text, image.data, sizes[i]);
        if (sizes[i] > 0 && sizes[i] < 8) { /* too little to know it by */
            open_few(&scene, path.text);
            assert_warning(&scene, "is not changed");
            end_scene(&scene);
            continue;
        }
        open_few(&scene, path.text);
        assert_warning(&scene, "");
        const uint64_t hits = get_all(&scene);
        assert_true(sizes[i] >= heap || hits == 0);
        fill_all(&scene);
        assert_int_equal(get_all(&scene), FEW);
        stop(&scene);
        start(&scene);
        assert_int_equal(get_all(&scene), FEW);
        end_scene(&scene);
    }
    free(image.data);
}

static void a_file_cut_while_open_is_filled_again(void **state) {
    (void)state;
    const struct path path = fresh_path("cut-open");
    struct scene scene;
    make_full(path.text, FEW);
    open_few(&scene, path.text);
    assert_int_equal(truncate(path.text, (off_t)brim__cache_heap(FEW) + 1000), 0);
    assert_true(get_all(&scene) < FEW);
    assert_true(stats_of(&scene).damaged > 0);
    fill_all(&scene);
    assert_int_equal(get_all(&scene), FEW);
    assert_int_equal(truncate(path.text, 10), 0);
    assert_int_equal(get_all(&scene), 0);
    end_scene(&scene);
}

static void flipped_bytes_are_never_served(void **state) {
    (void)state;
    const struct path path = fresh_path("flips");
    make_full(path.text, FEW);
    const struct image image = read_image(path.text);
    uint64_t random = 9, misses = 0;
    uint8_t *changed = malloc(image.bytes);
    assert_non_null(changed);
    for (int i = 0; i < 1000; i++) {
        struct scene scene;
        memcpy(changed, image.data, image.bytes);
        for (uint64_t flips = 1 + next_random(&random) % 3; flips > 0; flips--) {
            /* as often in the table and the header as in the heap */
            const uint64_t end = i % 2 == 0 ? image.bytes : brim__cache_heap(FEW);
            changed[next_random(&random) % end] ^= (uint8_t)(1 << next_random(&random) % 8);
        }
        write_image(path.text, changed, image.bytes);
        open_few(&scene, path.text);
        const uint64_t hits = get_all(&scene);
        misses += FEW - hits;
        if (stats_of(&scene).filled > 0) { /* the header is whole */
            assert_true(hits >= FEW - 3);
        }
        if (i % 10 == 0) {
            fill_all(&scene);
            assert_int_equal(get_all(&scene), FEW);
        }
        end_scene(&scene);
    }
    assert_true(misses > 100);
    free(changed);
    free(image.data);
}

static void set_entry(const char *path, uint64_t number, const struct brim__cache_entry *entry) {
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, entry, sizeof *entry, (off_t)brim__cache_table_at(number)),
                     sizeof *entry);
    close(fd);
}

static void forged_entries_reach_nothing(void **state) {
    (void)state;
    const struct path path = fresh_path("forged");
    struct scene scene;
    make_full(path.text, FEW);
    open_few(&scene, path.text);
    const struct image image = read_image(path.text);
    struct brim__cache_header header;
    memcpy(&header, image.data, sizeof header);
    const uint64_t seed = brim__cache_seed(&header), heap = brim__cache_heap(FEW);
    const struct brim__cache_entry whole = entry_of(&image, 20);
    const struct {
        uint64_t offset, length;
    } places[] = { { 0, 64 },
                   { 64, 100 },
                   { 4096, 320 },
                   { heap - 64, 64 },
                   { whole.offset + 1, whole.length },
                   { whole.offset + 32, 64 },
                   { whole.offset, MOST + 1 },
                   { whole.offset, UINT64_MAX },
                   { whole.offset, (uint64_t)INT64_MAX },
                   { UINT64_MAX - 63, 128 },
                   { UINT64_MAX - 63, 0 },
                   { (uint64_t)INT64_MAX - 63, 64 },
                   { UINT64_C(1) << 62, MOST },
                   { image.bytes, 1 },
                   { image.bytes - 64, 65 },
                   { 0, 0 } };
    uint64_t damaged = 0;
    for (size_t i = 0; i < BRIM__COUNT(places); i++) {
        struct brim__cache_entry entry = { .offset = places[i].offset, .length = places[i].length };
        entry.checksum = 1;
        if (entry.length < 10000 && entry.offset < image.bytes &&
            entry.length <= image.bytes - entry.offset) {
            /* what lies there really has this checksum */
            entry.checksum = brim__cache_checksum(seed, 20, &entry, image.data + entry.offset);
        }
        set_entry(path.text, 20, &entry);
        assert_false(get(&scene, 20));
        assert_int_equal(stats_of(&scene).damaged, ++damaged);
        assert_false(ops->has(scene.tier, 20));
        uint64_t bad = 0;
        assert_int_equal(brim_cache_verify(path.text, NULL, NULL, NULL, &bad), BRIM_OK);
        assert_int_equal(bad, 1);
        assert_true(put(&scene, 20));
        assert_true(get(&scene, 20));
        assert_true(ops->has(scene.tier, 20));
    }
    /* another's entry, which is whole, in its place */
    const struct brim__cache_entry other = entry_of(&image, 21);
    set_entry(path.text, 20, &other);
    assert_false(get(&scene, 20));
    assert_true(get(&scene, 21));
    free(image.data);
    end_scene(&scene);
}

static void begin_looks_whether_what_is_there_is_whole(void **state) {
    (void)state;
    const struct path path = fresh_path("whole");
    struct scene scene;
    make_full(path.text, FEW);
    const struct image image = read_image(path.text);
    image.data[entry_of(&image, 30).offset] ^= 1;
    image.data[entry_of(&image, 6).offset + MOST - 1] ^= 1;
    write_image(path.text, image.data, image.bytes);
    open_few(&scene, path.text);
    assert_false(put(&scene, 31));
    assert_true(put(&scene, 30)); /* nobody has asked for it before */
    assert_true(put(&scene, 6));
    assert_int_equal(get_all(&scene), FEW);
    free(image.data);
    end_scene(&scene);
}

/* ------------------------------------------------------------------- killed */

/* The child's life: fills in some order until it is killed. */
static _Noreturn void fill_for_ever(const char *path) {
    struct scene scene;
    uint64_t random = (uint64_t)getpid() * 2 + 1;
    open_scene(&scene, path, true);
    for (;;) {
        const uint64_t number = next_random(&random) % COUNT;
        if (!get(&scene, number)) {
            put(&scene, number);
        }
        if (stats_of(&scene).stored >= COUNT) {
            pause();
        }
    }
}

static void a_killed_filler_leaves_whole_entries(void **state) {
    (void)state;
    const struct path path = fresh_path("killed");
    uint64_t random = 77;
    for (int i = 0; i < 40; i++) {
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            execl("/proc/self/exe", "test_cache_file_damage", "fill", path.text, (char *)NULL);
            _exit(127);
        }
        for (int wait = 0; wait < 60000 && access(path.text, F_OK) != 0; wait++) {
            pause_ms(1);
        }
        const struct timespec pause = { .tv_nsec = (long)(next_random(&random) % 4000000) };
        nanosleep(&pause, NULL);
        kill(child, SIGKILL);
        int how;
        assert_int_equal(waitpid(child, &how, 0), child);
        assert_true(WIFSIGNALED(how));

        struct scene scene;
        open_scene(&scene, path.text, false);
        assert_true(stats_of(&scene).fills); /* its lock died with it */
        const uint64_t hits = get_all(&scene);
        assert_int_equal(hits, stats_of(&scene).filled);
        fill_all(&scene);
        assert_int_equal(get_all(&scene), COUNT);
        end_scene(&scene);
        assert_int_equal(unlink(path.text), 0);
    }
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "fill") == 0) {
        fill_for_ever(argv[2]);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_cut_anywhere_is_filled_again),
        cmocka_unit_test(a_file_cut_while_open_is_filled_again),
        cmocka_unit_test(flipped_bytes_are_never_served),
        cmocka_unit_test(forged_entries_reach_nothing),
        cmocka_unit_test(begin_looks_whether_what_is_there_is_whole),
        cmocka_unit_test(a_killed_filler_leaves_whole_entries),
    };
    return cmocka_run_group_tests(tests, begin_tests_in_memory, end_tests);
}

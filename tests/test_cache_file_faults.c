/*
 * test_cache_file_faults.c: a cache file when memory, threads or the disk are short: a loader
 * starts all the same, what is found is right, and a warning says what is wrong.
 */
#include "cache_file_util.h"

#include <sched.h>
#include <sys/mount.h>

/* ------------------------------------------------------- memory and threads */

static void memory_is_taken_only_if_it_is_free(void **state) {
    (void)state;
    const struct path path = fresh_path("memory");
    for (int threads = 0; threads < 2; threads++) {
        struct scene scene;
        (void)unlink(path.text);
        open_scene(&scene, path.text, threads);
        atomic_store(&scene.headroom, 32 * MIB);
        assert_false(put(&scene, 9));
        assert_int_equal(charged(scene.node), 0);
        assert_int_equal(stats_of(&scene).dropped, 1);
        assert_warning(&scene, "the budget has no");
        atomic_store(&scene.headroom, 0);
        put_surely(&scene, 9);
        assert_warning(&scene, "");
        assert_true(charged(scene.node) >= 256 * KIB);
        end_scene(&scene);
    }
}

static void rooms_never_overlap(void **state) {
    (void)state;
    enum { ROOMS = 64 };
    const struct path path = fresh_path("rooms");
    struct brim__room room[ROOMS];
    bool lent[ROOMS] = { false };
    uint64_t random = 3, refused = 0, taken = 0;
    struct scene scene;
    set_scene(&scene, path.text, false);
    scene.start.count = UINT64_C(1) << 34;
    start(&scene);
    for (int i = 0; i < 20000; i++) {
        const size_t place = next_random(&random) % ROOMS;
        if (lent[place]) {
            /* what was put there is as it was, and most of it is given up again */
            for (uint64_t at = 0; at < room[place].bytes; at++) {
                assert_int_equal(room[place].data[at], place);
            }
            if (next_random(&random) % 64 == 0) {
                ops->commit(scene.tier, &room[place]);
            } else {
                ops->abandon(scene.tier, &room[place]);
            }
            lent[place] = false;
            continue;
        }
        const uint64_t bytes = next_random(&random) % 3 == 0 ? next_random(&random) % MOST
                                                             : next_random(&random) % 300;
        lent[place] = ops->begin(scene.tier, (uint64_t)i, 0, bytes, &room[place]);
        taken += lent[place];
        refused += !lent[place];
        if (lent[place]) {
            memset(room[place].data, (int)place, bytes);
        }
    }
    for (size_t place = 0; place < ROOMS; place++) {
        if (lent[place]) {
            ops->abandon(scene.tier, &room[place]);
        }
    }
    assert_true(taken > 5000 && refused > 500);
    end_scene(&scene);
    assert_int_equal(unlink(path.text), 0);
}

/* A thread that puts without end. */
struct filler {
    struct scene *scene;
    pthread_t thread;
    _Atomic bool quit;
    uint64_t seed;
};

static void *run_filler(void *argument) {
    struct filler *filler = argument;
    uint64_t random = filler->seed * 2 + 1;
    while (!atomic_load(&filler->quit)) {
        const uint64_t number = next_random(&random) % filler->scene->start.count;
        struct brim__room room;
        if (get(filler->scene, number)) {
            continue;
        }
        const uint64_t length = length_of(number);
        if (ops->begin(filler->scene->tier, number, stamp_of(filler->scene, number), length,
                       &room)) {
            make_entry(number, room.data);
            if (next_random(&random) % 16 == 0) {
                ops->abandon(filler->scene->tier, &room);
            } else {
                ops->commit(filler->scene->tier, &room);
            }
        }
        (void)ops->has(filler->scene->tier, number);
    }
    return NULL;
}

static void begin_filling(struct filler *fillers, int count, struct scene *scene) {
    for (int i = 0; i < count; i++) {
        fillers[i].scene = scene;
        fillers[i].seed = (uint64_t)i + 1;
        atomic_store(&fillers[i].quit, false);
        assert_int_equal(pthread_create(&fillers[i].thread, NULL, run_filler, &fillers[i]), 0);
    }
}

static void end_filling(struct filler *fillers, int count) {
    for (int i = 0; i < count; i++) {
        atomic_store(&fillers[i].quit, true);
        assert_int_equal(pthread_join(fillers[i].thread, NULL), 0);
    }
}

static void many_threads_fill_and_find(void **state) {
    (void)state;
    for (int threads = 0; threads < 2; threads++) {
        const struct path path = fresh_path("threads");
        struct filler fillers[4];
        struct scene scene;
        set_scene(&scene, path.text, threads);
        scene.start.count = 3000;
        start(&scene);
        begin_filling(fillers, 4, &scene);
        for (int i = 0; i < 200 && stats_of(&scene).filled < 2900; i++) {
            pause_ms(2);
        }
        end_filling(fillers, 4);
        fill_all(&scene);
        stop(&scene);
        start(&scene);
        assert_int_equal(stats_of(&scene).filled, 3000);
        assert_int_equal(get_all(&scene), 3000);
        assert_int_equal(stats_of(&scene).damaged, 0);
        end_scene(&scene);
    }
}

static void memory_is_given_back_while_writing(void **state) {
    (void)state;
    for (int threads = 0; threads < 2; threads++) {
        const struct path path = fresh_path("revoke");
        struct filler fillers[2];
        struct scene scene;
        uint64_t taken = 0;
        set_scene(&scene, path.text, threads);
        scene.start.count = UINT64_C(1) << 34; /* never full, and no longer for that */
        start(&scene);
        assert_warning(&scene, "");
        begin_filling(fillers, 2, &scene);
        for (int i = 0; i < 25; i++) {
            for (int wait = 0; wait < 60000 && charged(scene.node) == 0; wait++) {
                pause_ms(1);
            }
            taken += charged(scene.node) > 0;
            const uint64_t all = brim__budget_available(scene.root, BRIM_MEMORY_HOST);
            assert_int_equal(brim_budget_charge(scene.root, BRIM_MEMORY_HOST, all), BRIM_OK);
            assert_int_equal(charged(scene.node), 0);
            brim_budget_uncharge(scene.root, BRIM_MEMORY_HOST, all);
        }
        assert_int_equal(taken, 25); /* it began again each time */
        for (int wait = 0; wait < 60000 && stats_of(&scene).stored == 0; wait++) {
            pause_ms(1);
        }
        end_filling(fillers, 2);
        assert_true(stats_of(&scene).stored > 0);
        assert_int_equal(stats_of(&scene).damaged, 0);
        stop(&scene);
        uint64_t good, bad;
        assert_int_equal(brim_cache_verify(path.text, NULL, NULL, &good, &bad), BRIM_OK);
        assert_true(good > 0 && bad == 0);
        end_scene(&scene);
        assert_int_equal(unlink(path.text), 0);
    }
}

/* ------------------------------------------------------- the system says no */

static unsigned open_files(void) {
    return count_names("/proc/self/fd");
}

/* A whole life under a fault, and one after it. */
static uint64_t live(const char *path, unsigned kinds, uint64_t nth, bool for_ever, bool threads) {
    struct scene scene;
    set_scene(&scene, path, threads);
    scene.start.count = FEW;
    scene.memory = brim__alloc(scene.root, ops->arena_bytes(FEW), NULL);
    brim__fault_arm(kinds, nth, for_ever);
    const brim_status status = ops->start(scene.memory, &scene.start, &scene.tier);
    assert_int_equal(status, BRIM_OK);
    for (uint64_t i = 0; i < 12; i++) {
        put(&scene, i);
        (void)ops->has(scene.tier, i);
    }
    for (uint64_t i = 0; i < 14; i++) {
        get(&scene, i);
    }
    struct brim__tier_stats stats = stats_of(&scene);
    ops->stop(scene.tier);
    const uint64_t injected = brim__fault_injected();
    brim__fault_arm(0, 0, false);
    assert_true(stats.fills || stats.warning[0] != '\0');
    brim__free(scene.memory);
    assert_int_equal(charged(scene.node), 0);

    start(&scene);
    assert_warning(&scene, "");
    (void)get_all(&scene);
    fill_all(&scene);
    stop(&scene);
    start(&scene);
    assert_int_equal(get_all(&scene), FEW);
    end_scene(&scene);
    return injected;
}

static void every_refusal_is_survived(void **state) {
    (void)state;
    static const enum brim__fault_kind kinds[] = { BRIM__FAULT_OPEN,  BRIM__FAULT_READ,
                                                   BRIM__FAULT_WRITE, BRIM__FAULT_MAP,
                                                   BRIM__FAULT_ALLOC, BRIM__FAULT_THREAD };
    const struct path path = in_directory("refused/x");
    const struct path directory = in_directory("refused");
    const unsigned before = open_files();
    uint64_t injected = 0;
    for (size_t k = 0; k < BRIM__COUNT(kinds); k++) {
        for (int how = 0; how < 8; how++) {
            const bool threads = (how & 1) != 0, for_ever = (how & 2) != 0, full = (how & 4) != 0;
            for (uint64_t nth = 1;; nth++) {
                (void)unlink(path.text);
                (void)rmdir(directory.text);
                if (full) {
                    make_full(path.text, FEW);
                }
                const uint64_t met = live(path.text, 1u << kinds[k], nth, for_ever, threads);
                injected += met;
                if (met == 0) {
                    break;
                }
                assert_int_equal(count_names(directory.text), 1); /* no temporary files */
            }
        }
    }
    assert_true(injected > 300);
    assert_int_equal(open_files(), before);
}

static void a_failing_disk_turns_filling_off(void **state) {
    (void)state;
    for (int threads = 0; threads < 2; threads++) {
        const struct path path = fresh_path("failing");
        struct scene scene;
        open_scene(&scene, path.text, threads);
        for (uint64_t i = 0; i < 50; i++) {
            put_surely(&scene, i);
        }
        while (stats_of(&scene).stored < 50) {
            pause_ms(1);
        }
        brim__fault_arm(1u << BRIM__FAULT_WRITE, 1, true);
        for (int i = 0; i < 60000 && stats_of(&scene).fills; i++) {
            put(&scene, 60);
            pause_ms(1);
        }
        brim__fault_arm(0, 0, false);
        assert_warning(&scene, "failing: No space left on device: nothing more is kept");
        assert_false(stats_of(&scene).fills);
        assert_false(put(&scene, 61)); /* for good */
        assert_int_equal(get_all(&scene), 50);
        end_scene(&scene);
    }
}

static void a_vanished_directory_does_no_harm(void **state) {
    (void)state;
    const struct path path = in_directory("vanishing/deep/x");
    struct scene scene;
    open_scene(&scene, path.text, true);
    put_surely(&scene, 9);
    while (stats_of(&scene).stored < 1) {
        pause_ms(1);
    }
    assert_int_equal(unlink(path.text), 0);
    assert_int_equal(rmdir(in_directory("vanishing/deep").text), 0);
    put_surely(&scene, 10);
    assert_true(get(&scene, 9));
    end_scene(&scene);
    write_file("vanishing/deep", "no directory", 12);
    open_scene(&scene, path.text, true);
    assert_warning(&scene, "directory");
    assert_false(put(&scene, 9));
    end_scene(&scene);
}

static void a_long_path_does_not_hide_the_reason(void **state) {
    (void)state;
    char text[200];
    struct scene scene;
    memset(text, 'n', sizeof text);
    memcpy(text, "/proc/", 6);
    text[sizeof text - 1] = '\0';
    open_scene(&scene, text, false); /* nobody makes files there */
    assert_warning(&scene, "nnn: ");
    assert_warning(&scene, ": nothing is kept");
    end_scene(&scene);
}

/* A small file system of the test's own, seen by nobody else; false: not allowed. */
static bool mount_small(const char *at) {
    if (mkdir(at, 0700) != 0 || unshare(CLONE_NEWNS) != 0 ||
        mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("brim", at, "tmpfs", 0, "size=256k") != 0) {
        print_message("skipped: a file system cannot be mounted here: %s\n", strerror(errno));
        (void)rmdir(at);
        return false;
    }
    return true;
}

static void a_full_or_read_only_disk(void **state) {
    (void)state;
    const struct path at = in_directory("small");
    if (!mount_small(at.text)) {
        skip();
    }
    const struct path path = in_directory("small/x");
    for (int threads = 0; threads < 2; threads++) {
        struct scene scene;
        (void)unlink(path.text);
        set_scene(&scene, path.text, threads);
        scene.start.count = 3000;
        start(&scene);
        for (uint64_t i = 0; i < 3000 && stats_of(&scene).fills; i++) {
            put(&scene, i);
        }
        for (int i = 0; i < 60000 && stats_of(&scene).fills; i++) {
            pause_ms(1);
        }
        assert_warning(&scene, "small/x: No space left on device: nothing more is kept");
        const uint64_t hits = get_all(&scene);
        assert_true(hits > 100 && hits < 3000);
        stop(&scene);
        start(&scene);
        assert_int_equal(get_all(&scene), hits);
        end_scene(&scene);
    }
    /* the disk is full: another one cannot even be begun */
    struct scene scene;
    open_scene(&scene, in_directory("small/y").text, false);
    if (stats_of(&scene).fills) {
        assert_false(put(&scene, 6) && get(&scene, 6));
    }
    assert_warning(&scene, "No space left on device");
    end_scene(&scene);

    assert_int_equal(unlink(path.text), 0);
    make_full(path.text, COUNT);
    assert_int_equal(mount("none", at.text, NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
    open_scene(&scene, path.text, true);
    assert_warning(&scene, "Read-only file system: it is only read");
    assert_int_equal(get_all(&scene), COUNT);
    assert_false(stats_of(&scene).fills);
    end_scene(&scene);
    set_scene(&scene, path.text, true);
    scene.start.data++;
    start(&scene);
    assert_warning(&scene, "cannot be replaced: Read-only file system");
    assert_int_equal(get_all(&scene), 0);
    end_scene(&scene);
    open_scene(&scene, in_directory("small/new").text, true);
    assert_warning(&scene, "Read-only file system: nothing is kept");
    assert_false(put(&scene, 9));
    end_scene(&scene);
    open_scene(&scene, in_directory("small/new/deep/").text, true);
    assert_warning(&scene, "Read-only file system");
    end_scene(&scene);
    assert_int_equal(umount(at.text), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_taken_only_if_it_is_free),
        cmocka_unit_test(rooms_never_overlap),
        cmocka_unit_test(many_threads_fill_and_find),
        cmocka_unit_test(memory_is_given_back_while_writing),
        cmocka_unit_test(every_refusal_is_survived),
        cmocka_unit_test(a_failing_disk_turns_filling_off),
        cmocka_unit_test(a_vanished_directory_does_no_harm),
        cmocka_unit_test(a_long_path_does_not_hide_the_reason),
        cmocka_unit_test(a_full_or_read_only_disk),
    };
    return cmocka_run_group_tests(tests, begin_tests_in_memory, end_tests);
}

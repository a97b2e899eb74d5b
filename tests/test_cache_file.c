/*
 * test_cache_file.c: the cache in a file: what is put in is found, by all who may, within
 * its limit, and only under the same key.
 */
#include "cache_file_util.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

static void check_round_trip(bool threads, enum brim__verify verify) {
    const struct path path = fresh_path("round-trip");
    struct scene scene;
    set_scene(&scene, path.text, threads);
    scene.start.verify = verify;
    start(&scene);
    assert_warning(&scene, "");
    assert_int_equal(get_all(&scene), 0);
    assert_false(ops->has(scene.tier, 3));
    for (uint64_t i = COUNT; i-- > 0;) {
        put_surely(&scene, i);
    }
    stop(&scene);

    start(&scene);
    struct brim__tier_stats stats = stats_of(&scene);
    assert_int_equal(stats.filled, COUNT);
    assert_true(is_disk_use(stats.bytes, path.text));
    assert_true(stats.fills);
    assert_int_equal(get_all(&scene), COUNT);
    assert_true(ops->has(scene.tier, 3));
    for (uint64_t i = 0; i < COUNT; i++) {
        assert_false(put(&scene, i)); /* it is there, whole */
    }
    stats = stats_of(&scene);
    assert_int_equal(stats.stored + stats.dropped + stats.damaged, 0);
    end_scene(&scene);
    assert_true(is_disk_use(stats.bytes, path.text));
}

static void what_is_put_in_is_found(void **state) {
    (void)state;
    check_round_trip(false, BRIM__VERIFY_OPEN);
    check_round_trip(true, BRIM__VERIFY_NEVER);
    check_round_trip(true, BRIM__VERIFY_HIT);
}

static void abandoned_room_is_nothing(void **state) {
    (void)state;
    const struct path path = fresh_path("abandoned");
    for (int threads = 0; threads < 2; threads++) {
        struct scene scene;
        struct brim__room room[3];
        (void)unlink(path.text);
        open_scene(&scene, path.text, threads);
        for (uint64_t i = 0; i < 3; i++) {
            assert_true(ops->begin(scene.tier, 10 + i, 0, length_of(10 + i), &room[i]));
            make_entry(10 + i, room[i].data);
        }
        ops->commit(scene.tier, &room[2]);
        ops->abandon(scene.tier, &room[0]);
        ops->commit(scene.tier, &room[1]);
        stop(&scene);
        start(&scene);
        assert_int_equal(get_all(&scene), 2);
        assert_false(get(&scene, 10));
        end_scene(&scene);
    }
}

static void two_rooms_for_one_number_do_not_mix(void **state) {
    (void)state;
    const struct path path = fresh_path("twice");
    struct scene scene;
    struct brim__room first, second;
    open_scene(&scene, path.text, true);
    assert_true(ops->begin(scene.tier, 6, 0, MOST, &first));
    if (ops->begin(scene.tier, 6, 0, MOST, &second)) {
        make_entry(6, second.data);
        ops->commit(scene.tier, &second);
    }
    make_entry(6, first.data);
    ops->commit(scene.tier, &first);
    stop(&scene);
    start(&scene);
    assert_true(get(&scene, 6));
    assert_int_equal(stats_of(&scene).filled, 1);
    end_scene(&scene);
}

static void an_entry_of_another_stamp_is_replaced(void **state) {
    (void)state;
    const struct path path = fresh_path("stamps");
    struct scene scene;
    uint8_t buffer[MOST];
    struct brim__found found;
    struct brim__room room;
    set_scene(&scene, path.text, false);
    scene.start.verify = BRIM__VERIFY_HIT;
    start(&scene);
    assert_true(put(&scene, 9));
    assert_true(get(&scene, 9));
    assert_false(ops->find(scene.tier, 9, 77, buffer, UINT64_MAX, &found));
    assert_int_equal(stats_of(&scene).changed, 1);
    assert_true(ops->begin(scene.tier, 9, 77, 2, &room));
    memcpy(room.data, "ab", 2);
    ops->commit(scene.tier, &room);
    assert_true(ops->find(scene.tier, 9, 77, buffer, UINT64_MAX, &found));
    assert_int_equal(found.bytes, 2);
    assert_memory_equal(found.data, "ab", 2);
    assert_false(get(&scene, 9));
    assert_int_equal(stats_of(&scene).filled, 1);
    end_scene(&scene);
}

/* --------------------------------------------------------------------- keys */

static void expect_fresh(struct scene *scene, const char *path) {
    start(scene);
    assert_warning(scene, "");
    assert_int_equal(stats_of(scene).filled, 0);
    assert_int_equal(get_all(scene), 0);
    assert_true(put(scene, 8));
    assert_true(get(scene, 8));
    end_scene(scene);
    brim_cache_info info = BRIM_CACHE_INFO_INIT;
    assert_int_equal(brim_cache_read(path, &info), BRIM_OK);
    assert_int_equal(info.usable, 1);
    assert_int_equal(info.filled, 1);
}

static void another_key_begins_anew(void **state) {
    (void)state;
    const struct path path = fresh_path("keys");
    for (int i = 0; i < 6; i++) {
        struct scene scene;
        make_full(path.text, COUNT);
        set_scene(&scene, path.text, false);
        struct brim__tier_start *how = &scene.start;
        how->data += i == 0;
        how->sample += i == 1;
        how->stamp += i == 2;
        how->verify = i == 3 ? BRIM__VERIFY_NEVER : how->verify;
        how->count -= i == 4;
        how->most_bytes += i == 5;
        how->limit = MIB; /* no part of it */
        expect_fresh(&scene, path.text);
    }
    struct scene scene;
    make_full(path.text, COUNT);
    set_scene(&scene, path.text, false);
    scene.start.limit = MIB;
    scene.start.pipeline = "the same, said otherwise";
    start(&scene);
    assert_int_equal(get_all(&scene), COUNT);
    end_scene(&scene);
}

static void another_format_begins_anew(void **state) {
    (void)state;
    const struct path path = fresh_path("formats");
    make_full(path.text, COUNT);
    const struct image image = read_image(path.text);
    for (int i = 0; i < 7; i++) {
        struct image changed = { malloc(image.bytes), image.bytes };
        struct brim__cache_header header;
        memcpy(changed.data, image.data, image.bytes);
        memcpy(&header, image.data, sizeof header);
        header.version += i == 0;
        header.byte_order = i == 1 ? __builtin_bswap64(header.byte_order) : header.byte_order;
        header.verify = i == 2 ? 4 : header.verify;
        header.count = i == 3 ? UINT64_MAX / 32 : header.count;
        if (i == 4) {
            memset(header.pipeline, 'x', sizeof header.pipeline);
        }
        brim__cache_header_seal(&header);
        header.magic[0] ^= i == 5;
        header.magic_again[7] ^= i == 6;
        memcpy(changed.data, &header, sizeof header);
        write_image(path.text, changed.data, changed.bytes);
        free(changed.data);

        brim_cache_info info = BRIM_CACHE_INFO_INIT;
        assert_int_equal(brim_cache_read(path.text, &info), BRIM_OK);
        assert_int_equal(info.usable, 0);
        assert_int_equal(brim_cache_verify(path.text, NULL, NULL, NULL, NULL), BRIM_STATUS_CORRUPT);
        struct scene scene;
        set_scene(&scene, path.text, false);
        expect_fresh(&scene, path.text);
    }
    free(image.data);
}

static void strangers_are_left_alone(void **state) {
    (void)state;
    const struct path path = fresh_path("stranger");
    uint8_t noise[6000];
    fill_random(noise, sizeof noise, 3);
    static const size_t sizes[] = { 1, 7, 8, 4095, 4096, sizeof noise };
    for (size_t i = 0; i < BRIM__COUNT(sizes); i++) {
        struct scene scene;
        write_image(path.text, noise, sizes[i]);
        open_scene(&scene, path.text, false);
        assert_warning(&scene, "is not changed");
        assert_false(stats_of(&scene).fills);
        assert_false(put(&scene, 9));
        assert_int_equal(get_all(&scene), 0);
        assert_int_equal(stats_of(&scene).dropped, 1);
        end_scene(&scene);
        assert_image(path.text, noise, sizes[i]);
        assert_int_equal(brim_cache_remove(path.text), BRIM_STATUS_INVALID);
        assert_int_equal(brim_cache_verify(path.text, NULL, NULL, NULL, NULL), BRIM_STATUS_INVALID);
    }
    assert_int_equal(unlink(path.text), 0);
    assert_int_equal(mkfifo(path.text, 0600), 0);
    struct scene scene;
    open_scene(&scene, path.text, false); /* and does not wait for who writes it */
    assert_warning(&scene, "is not changed");
    end_scene(&scene);
    assert_int_equal(unlink(path.text), 0);
    write_image(path.text, "", 0); /* one of no bytes is nobody's */
    set_scene(&scene, path.text, false);
    expect_fresh(&scene, path.text);
}

static void a_directory_holds_many_caches(void **state) {
    (void)state;
    char text[TEXT_BYTES];
    const struct path directory = in_directory("many");
    format_text(text, "%s/deep/", directory.text);
    for (int round = 0; round < 2; round++) {
        for (uint64_t i = 0; i < 3; i++) {
            struct scene scene;
            set_scene(&scene, text, false);
            scene.start.sample += i;
            scene.start.stamp += i; /* only one of these keys */
            start(&scene);
            assert_warning(&scene, "");
            assert_int_equal(get(&scene, 9), round == 1);
            assert_int_equal(put(&scene, 9), round == 0);
            end_scene(&scene);
        }
        if (round == 0) {
            text[strlen(text) - 1] = '\0'; /* it is a directory by now */
        }
        assert_int_equal(count_names(text), 3);
    }
    struct scene scene;
    set_scene(&scene, text, false);
    scene.start.stamp += 1; /* the data changed: not one more */
    start(&scene);
    assert_int_equal(get_all(&scene), 0);
    end_scene(&scene);
    assert_int_equal(count_names(text), 3);
    assert_int_equal(brim_cache_remove(text), BRIM_STATUS_INVALID);
    assert_detail_has("directory");
}

/* ------------------------------------------------------------ more than one */

static void one_of_many_starters_fills(void **state) {
    (void)state;
    enum { STARTERS = 6 };
    for (int round = 0; round < 40; round++) {
        const struct path path = fresh_path("starters");
        if (round % 3 == 1) {
            write_image(path.text, "", 0);
        } else if (round % 3 == 2) {
            make_full(path.text, COUNT);
        }
        int from[2];
        pid_t child[STARTERS];
        assert_int_equal(pipe(from), 0);
        for (int i = 0; i < STARTERS; i++) {
            child[i] = fork();
            assert_true(child[i] >= 0);
            if (child[i] == 0) {
                struct scene scene;
                set_scene(&scene, path.text, false);
                scene.start.data++;
                start(&scene);
                struct brim__tier_stats stats = stats_of(&scene);
                for (int k = 0; k < 30 && round % 3 != 2 && !stats.fills && stats.bytes == 0; k++) {
                    pause_ms(RETRY_MS); /* it gave up before the one that makes the file was done */
                    put(&scene, 9);
                    stats = stats_of(&scene);
                }
                /* who does not fill reads, and has a file to read */
                const char word = stats.fills ? 'f' : stats.bytes > 0 ? 'r' : 'n';
                if (write(from[1], &word, 1) != 1) {
                    _exit(1);
                }
                for (;;) {
                    pause();
                }
            }
        }
        unsigned fill = 0, readers = 0;
        for (int i = 0; i < STARTERS; i++) {
            char word = '?';
            assert_int_equal(read(from[0], &word, 1), 1);
            fill += word == 'f';
            readers += word == 'r';
        }
        for (int i = 0; i < STARTERS; i++) {
            kill(child[i], SIGKILL);
            assert_int_equal(waitpid(child[i], NULL, 0), child[i]);
        }
        close(from[0]);
        close(from[1]);
        assert_int_equal(fill, 1);
        /* with a stale file there, who comes while it is replaced asks again later */
        assert_true(round % 3 == 2 || readers == STARTERS - 1);
    }
}

static void one_fills_and_the_others_read(void **state) {
    (void)state;
    const struct path path = fresh_path("shared");
    struct scene first, second, other, idle;
    char text[TEXT_BYTES];
    open_scene(&first, path.text, false);
    open_scene(&second, path.text, false);
    set_scene(&other, path.text, false);
    other.start.data++;
    start(&other);
    assert_warning(&second, "only reads");
    assert_warning(&other, "of another pipeline");
    assert_false(stats_of(&second).fills);
    assert_false(put(&second, 9));
    assert_false(put(&other, 9));
    assert_true(put(&first, 9));
    assert_true(get(&second, 9));
    assert_false(get(&other, 9));
    brim_cache_info info = BRIM_CACHE_INFO_INIT;
    assert_int_equal(brim_cache_read(path.text, &info), BRIM_OK);
    assert_int_equal(info.in_use, 1);
    assert_int_equal(brim_cache_remove(path.text), BRIM_STATUS_BUSY);
    end_scene(&first);

    open_scene(&idle, format_text(text, "%s.idle", path.text), true);
    put_surely(&idle, 6);
    brim_budget_info ring = BRIM_BUDGET_INFO_INIT;
    assert_int_equal(brim_budget_read(idle.node, BRIM_MEMORY_HOST, &ring), BRIM_OK);
    assert_true(ring.peak >= 512 * KIB);
    pause_ms(RETRY_MS);
    const uint64_t stack = brim__thread_stack_bytes(256 * KIB);
    for (int i = 0; i < 60000 && charged(idle.node) != stack; i++) {
        pause_ms(1);
    }
    assert_int_equal(charged(idle.node), stack); /* the ring is gone until it is needed */
    assert_true(get(&idle, 6));
    put_surely(&idle, 7);
    end_scene(&idle);

    assert_true(put(&second, 10)); /* the lock is free */
    assert_warning(&second, "");
    assert_true(stats_of(&second).fills);
    assert_true(get(&second, 9) && get(&second, 10));
    assert_false(put(&other, 9)); /* not now: second has it */
    end_scene(&second);
    pause_ms(RETRY_MS);
    assert_true(put(&other, 9)); /* and makes it its own */
    assert_warning(&other, "");
    end_scene(&other);
    assert_int_equal(brim_cache_read(path.text, &info), BRIM_OK);
    assert_int_equal(info.data_fingerprint, 12);
    assert_int_equal(info.in_use, 0);
}

static void a_reader_keeps_a_file_that_is_replaced(void **state) {
    (void)state;
    const struct path path = fresh_path("replaced");
    struct scene filler, reader;
    open_scene(&filler, path.text, false);
    open_scene(&reader, path.text, false);
    fill_all(&filler);
    end_scene(&filler);
    set_scene(&filler, path.text, false);
    filler.start.sample++;
    start(&filler);
    assert_warning(&filler, ""); /* nobody had the old one's lock */
    pause_ms(RETRY_MS);
    assert_int_equal(get_all(&reader), COUNT);
    assert_false(put(&reader, 9));
    assert_warning(&reader, "replaced");
    assert_int_equal(get_all(&reader), COUNT);
    assert_int_equal(get_all(&filler), 0);
    end_scene(&reader);
    end_scene(&filler);
}

/* ------------------------------------------------------------------- bounds */

static void the_limit_is_never_passed(void **state) {
    (void)state;
    const struct path path = fresh_path("limit");
    const uint64_t heap = brim__cache_heap(COUNT);
    for (int threads = 0; threads < 2; threads++) {
        struct scene scene;
        (void)unlink(path.text);
        set_scene(&scene, path.text, threads);
        scene.start.limit = heap + 100000;
        start(&scene);
        for (int round = 0; round < 3; round++) {
            for (uint64_t i = 0; i < COUNT; i++) {
                put(&scene, i);
                assert_true(bytes_of(path.text) <= scene.start.limit);
            }
            pause_ms(20);
        }
        struct brim__tier_stats stats = stats_of(&scene);
        for (int i = 0; i < 60000 && stats.stored != stats.filled; i++) {
            pause_ms(1); /* what is on its way is filled, and not stored yet */
            stats = stats_of(&scene);
        }
        assert_int_equal(stats.stored, stats.filled);
        assert_false(stats.fills);
        assert_warning(&scene, "");
        assert_true(stats.dropped > 0 && stats.filled > 10 && stats.filled < COUNT);
        assert_true(bytes_of(path.text) > scene.start.limit - 1000);
        assert_int_equal(get_all(&scene), stats.filled);
        stop(&scene);
        assert_true(bytes_of(path.text) <= scene.start.limit);
        scene.start.limit = BRIM_UNLIMITED; /* more than before */
        start(&scene);
        fill_all(&scene);
        stop(&scene);
        scene.start.limit = 1;
        start(&scene);
        assert_int_equal(get_all(&scene), COUNT); /* what is there may be read */
        end_scene(&scene);
    }
    struct scene scene;
    (void)unlink(path.text);
    set_scene(&scene, path.text, false);
    scene.start.limit = heap - 1;
    start(&scene);
    assert_warning(&scene, "larger limit=");
    assert_false(put(&scene, 9));
    end_scene(&scene);
    assert_int_equal(access(path.text, F_OK), -1); /* nothing is left lying about */
    set_scene(&scene, path.text, false);
    scene.start.count = UINT64_MAX / 2;
    start(&scene);
    assert_warning(&scene, "limit");
    end_scene(&scene);
}

static void a_limit_of_the_process_raises_no_signal(void **state) {
    (void)state;
    const struct path path = fresh_path("rlimit");
    struct rlimit before, low;
    struct scene scene;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    low = before;
    low.rlim_cur = brim__cache_heap(COUNT) + 50000;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    open_scene(&scene, path.text, false);
    for (uint64_t i = 0; i < COUNT; i++) {
        put(&scene, i);
    }
    const uint64_t filled = stats_of(&scene).filled;
    const uint64_t found = get_all(&scene);
    end_scene(&scene);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_true(filled > 0 && filled < COUNT);
    assert_int_equal(found, filled);
}

static void a_sparse_table_costs_nothing(void **state) {
    (void)state;
    const struct path path = fresh_path("sparse");
    struct scene scene;
    set_scene(&scene, path.text, false);
    scene.start.count = UINT64_C(1) << 34; /* a table of 512 GiB */
    start(&scene);
    assert_warning(&scene, "");
    assert_true(put(&scene, 0));
    assert_true(put(&scene, scene.start.count - 1));
    assert_true(get(&scene, scene.start.count - 1));
    stop(&scene);
    start(&scene);
    assert_int_equal(stats_of(&scene).filled, 2);
    end_scene(&scene);
    assert_int_equal(unlink(path.text), 0);
}

/* ------------------------------------------------------------- from outside */

struct told {
    uint64_t calls, done, total;
    int answer;
};

static int tell(void *user, const brim_progress *progress) {
    struct told *told = user;
    assert_non_null(progress->what);
    assert_int_equal(progress->unit, BRIM_UNIT_SAMPLES);
    told->calls++;
    told->done = progress->done;
    told->total = progress->total;
    return told->answer;
}

static void a_file_is_looked_at_from_outside(void **state) {
    (void)state;
    const struct path path = fresh_path("outside");
    struct scene scene;
    struct timespec now;
    uint64_t good, bad;
    char text[3000];
    assert_int_equal(brim_cache_verify(path.text, NULL, NULL, &good, &bad), BRIM_STATUS_IO);
    assert_detail_has("No such file");
    clock_gettime(CLOCK_REALTIME, &now);
    const int64_t before = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec - 50000000;
    memset(text, 'a', sizeof text);
    text[sizeof text - 1] = '\0';
    memcpy(text + 1022, "\xc3\xa9", 2); /* one character, at the place where it is cut */
    set_scene(&scene, path.text, false);
    scene.start.verify = BRIM__VERIFY_HIT;
    scene.start.limit = 3 * MIB;
    scene.start.pipeline = text;
    start(&scene);
    for (uint64_t i = 0; i < 100; i++) {
        assert_true(put(&scene, i * 2));
    }
    brim_cache_info info = BRIM_CACHE_INFO_INIT;
    assert_int_equal(brim_cache_read(path.text, &info), BRIM_OK);
    assert_int_equal(info.in_use, 1);
    end_scene(&scene);
    assert_int_equal(brim_cache_read(path.text, &info), BRIM_OK);
    assert_int_equal(info.usable, 1);
    assert_int_equal(info.in_use, 0);
    assert_int_equal(info.samples, COUNT);
    assert_int_equal(info.filled, 100);
    assert_true(is_disk_use(info.bytes, path.text));
    assert_int_equal(info.limit, 3 * MIB);
    assert_int_equal(info.data_fingerprint, 11);
    assert_int_equal(info.sample_fingerprint, 22);
    assert_string_equal(info.verify, "hit");
    assert_int_equal(strlen(info.pipeline), 1022);
    assert_true(info.created_ns >= before && info.created_ns - before < INT64_C(60000000000));
    assert_true(info.used_ns >= before && info.used_ns - before < INT64_C(60000000000));

    struct told told = { 0 };
    assert_int_equal(brim_cache_verify(path.text, tell, &told, &good, &bad), BRIM_OK);
    assert_int_equal(good, 100);
    assert_int_equal(bad, 0);
    assert_true(told.calls > 0 && told.total == COUNT);
    told.answer = 1;
    assert_int_equal(brim_cache_verify(path.text, tell, &told, &good, &bad),
                     BRIM_STATUS_INTERRUPTED);
    const struct image image = read_image(path.text);
    image.data[entry_of(&image, 6).offset + 34567] ^= 4;
    image.data[brim__cache_table_at(40) + 24] ^= 4;
    write_image(path.text, image.data, image.bytes);
    assert_int_equal(brim_cache_verify(path.text, NULL, NULL, &good, &bad), BRIM_OK);
    assert_int_equal(good, 98);
    assert_int_equal(bad, 2);
    assert_image(path.text, image.data, image.bytes); /* not changed by looking */
    free(image.data);

    /* a caller that was compiled with an older header */
    info.size = offsetof(brim_cache_info, filled);
    info.filled = 12345;
    info.samples = 0;
    assert_int_equal(brim_cache_read(path.text, &info), BRIM_OK);
    assert_int_equal(info.filled, 12345);
    assert_int_equal(info.samples, COUNT);
    info.size = 0;
    assert_int_equal(brim_cache_read(path.text, &info), BRIM_STATUS_INVALID);
    assert_int_equal(brim_cache_read(NULL, &info), BRIM_STATUS_INVALID);
    assert_int_equal(brim_cache_remove(path.text), BRIM_OK);
    assert_int_equal(access(path.text, F_OK), -1);
    assert_int_equal(brim_cache_remove(path.text), BRIM_STATUS_IO);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_put_in_is_found),
        cmocka_unit_test(abandoned_room_is_nothing),
        cmocka_unit_test(two_rooms_for_one_number_do_not_mix),
        cmocka_unit_test(an_entry_of_another_stamp_is_replaced),
        cmocka_unit_test(another_key_begins_anew),
        cmocka_unit_test(another_format_begins_anew),
        cmocka_unit_test(strangers_are_left_alone),
        cmocka_unit_test(a_directory_holds_many_caches),
        cmocka_unit_test(one_of_many_starters_fills),
        cmocka_unit_test(one_fills_and_the_others_read),
        cmocka_unit_test(a_reader_keeps_a_file_that_is_replaced),
        cmocka_unit_test(the_limit_is_never_passed),
        cmocka_unit_test(a_limit_of_the_process_raises_no_signal),
        cmocka_unit_test(a_sparse_table_costs_nothing),
        cmocka_unit_test(a_file_is_looked_at_from_outside),
    };
    return cmocka_run_group_tests(tests, begin_tests_in_memory, end_tests);
}

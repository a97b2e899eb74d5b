/*
 * test_folder_changes.c: when the source `folder` makes its listing anew, and when not.
 *
 * A listing that is used though the folder has changed gives wrong samples for ever; one
 * that is made anew each time costs minutes. Both are wrong.
 */
#include "folder_util.h"

#include <time.h>

static void test_changes_are_noticed(void **state) {
    (void)state;
    put("c/a/1.jpg", "x", 1);
    put("c/a/sub/2.jpg", "x", 1);
    put("c/b/3.jpg", "x", 1);
    const struct long_path root = at("c");
    expect_made(root.text, "", true, 3);
    expect_made(root.text, "", false, 3);
    expect_made(root.text, "probe=no", true, 3); /* other options */
    expect_made(root.text, "", false, 3);
    put("c/a/sub/4.jpg", "x", 1); /* added */
    expect_made(root.text, "", true, 4);
    expect_made(root.text, "", false, 4);
    assert_int_equal(unlink(at("c/a/1.jpg").text), 0); /* removed */
    expect_made(root.text, "", true, 3);
    assert_int_equal(rename(at("c/b/3.jpg").text, at("c/b/0.jpg").text), 0); /* renamed */
    expect_made(root.text, "", true, 3);
    put("c/0/5.jpg", "x", 1); /* a new class */
    expect_made(root.text, "", true, 4);
    /* another directory in the place of one, with the times of the first */
    struct stat facts;
    assert_int_equal(stat(at("c/b").text, &facts), 0);
    struct stat above;
    assert_int_equal(stat(root.text, &above), 0);
    put("other/7.jpg", "x", 1);
    put("other/8.jpg", "x", 1);
    assert_int_equal(rename(at("c/b").text, at("gone").text), 0);
    assert_int_equal(rename(at("other").text, at("c/b").text), 0);
    const struct timespec times[2] = { facts.st_atim, facts.st_mtim };
    const struct timespec above_times[2] = { above.st_atim, above.st_mtim };
    assert_int_equal(utimensat(AT_FDCWD, at("c/b").text, times, 0), 0);
    assert_int_equal(utimensat(AT_FDCWD, root.text, above_times, 0), 0);
    expect_made(root.text, "", true, 5);
    /* a directory that is gone */
    remove_tree(at("c/a").text);
    expect_made(root.text, "", true, 3);
    expect_made(root.text, "", false, 3);
}

/* However quickly a file follows: the time of its directory has moved on. */
static void test_changes_within_one_tick(void **state) {
    (void)state;
    const struct long_path root = at("q");
    put("q/0.jpg", "x", 1);
    for (size_t i = 1; i < 20; i++) {
        char name[32];
        snprintf(name, sizeof name, "q/%zu.jpg", i);
        expect_made(root.text, "probe=no", true, i);
        put(name, "x", 1);
    }
}

/* tar and rsync set the time of a directory back when they have changed it. */
static void test_times_that_are_set_back(void **state) {
    (void)state;
    struct stat facts;
    put("back/a/1.jpg", "x", 1);
    const struct long_path root = at("back"), inner = at("back/a");
    expect_made(root.text, "", true, 1);
    assert_int_equal(stat(inner.text, &facts), 0);
    put("back/a/2.jpg", "x", 1);
    const struct timespec times[2] = { facts.st_atim, facts.st_mtim };
    assert_int_equal(utimensat(AT_FDCWD, inner.text, times, 0), 0);
    expect_made(root.text, "", true, 2);
    expect_made(root.text, "", false, 2);
}

/* A disk that was not mounted is, and is not again. */
static void test_links_that_led_nowhere(void **state) {
    (void)state;
    static const char *const options[] = { "", "classes=no", "extensions=any" };
    put("v/a/1.jpg", "x", 1);
    link_to("../../disk/deep", "v/a/below");
    link_to("../disk/class", "v/class");
    link_to("../disk/photo.jpg", "v/a/photo.jpg");
    const struct long_path root = at("v"), disk = at("disk"), away = at("away");
    put("away/deep/2.jpg", "x", 1);
    put("away/class/3.jpg", "x", 1);
    put("away/photo.jpg", "x", 1);
    for (size_t i = 0; i < BRIM__COUNT(options); i++) {
        /* with any, the link itself is a sample while it leads nowhere, but no class */
        const size_t without = i == 2 ? 3 : 2;
        expect_made(root.text, options[i], true, without);
        expect_made(root.text, options[i], false, without);
        assert_int_equal(rename(away.text, disk.text), 0);
        expect_made(root.text, options[i], true, 4);
        expect_made(root.text, options[i], false, 4);
        assert_int_equal(rename(disk.text, away.text), 0);
        expect_made(root.text, options[i], true, without);
    }
    /* a link to a file that appears changes nothing: it was a sample all along */
    put("disk/photo.jpg", "x", 1);
    expect_made(root.text, "", false, 2);
}

/* On a file system that counts whole seconds a change may leave the time as it is. */
static void test_clocks_without_fractions(void **state) {
    (void)state;
    put("w/1.jpg", "x", 1);
    const struct long_path root = at("w");
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    /* to come, so that it stays recent on a machine that is slow, or whose clock is set */
    struct timespec times[2] = { { .tv_sec = now.tv_sec + 2 }, { .tv_sec = now.tv_sec + 2 } };
    assert_int_equal(utimensat(AT_FDCWD, root.text, times, 0), 0);
    expect_made(root.text, "", true, 1);
    expect_made(root.text, "", true, 1); /* nobody can tell */
    times[1].tv_sec -= 10;
    assert_int_equal(utimensat(AT_FDCWD, root.text, times, 0), 0);
    expect_made(root.text, "", true, 1);
    expect_made(root.text, "", false, 1);
}

/* ---------------------------------------------------------------- own files */

static void test_listings_beside_the_folder(void **state) {
    (void)state;
    put("beside/a/1.jpg", "x", 1);
    put("beside/a/2.png", "x", 1);
    const struct long_path root = at("beside/a"), above = at("beside");
    /* other options, another listing */
    expect_made(root.text, "index=beside", true, 2);
    expect_made(root.text, "index=beside extensions=jpg", true, 1);
    expect_made(root.text, "index=beside", false, 2);
    expect_made(root.text, "index=beside extensions=jpg", false, 1);
    /* they are no samples of a folder in which they lie */
    expect_made(above.text, "extensions=any classes=no", true, 2);
    expect_made(above.text, "extensions=any classes=no", false, 2);
    /* a listing that would change what it lists */
    struct test_use use;
    struct session session;
    folder_use(&use, root.text, "index=beside classes=no");
    use_set(&use, "directories", above.text);
    assert_int_equal(open_in(&session, &use, NULL), BRIM_STATUS_INVALID);
    assert_detail_has("give index=cache");
    close_in(&session);
    folder_use(&use, root.text, "classes=no");
    use_set(&use, "directories", above.text);
    for (int again = 0; again < 2; again++) {
        assert_int_equal(open_in(&session, &use, NULL), BRIM_OK);
        assert_int_equal(session.source.count, 4);
        assert_int_equal(session.indexes->made, again == 0);
        close_in(&session);
    }
}

/* The cache may lie in the folder, or be it. */
static void test_a_cache_in_the_folder(void **state) {
    (void)state;
    char held[sizeof tree];
    put("x/a/1.jpg", "x", 1);
    put("x/b/2.jpg", "x", 1);
    const struct long_path root = at("x"), cache = at("x/cache");
    strcpy(held, tree);
    strcpy(tree, root.text); /* whose cache is x/cache then */
    expect_made(root.text, "", true, 2);
    expect_made(root.text, "", false, 2);
    expect_made(root.text, "extensions=any classes=no", true, 2);
    expect_made(root.text, "extensions=any classes=no", false, 2);
    strcpy(tree, held);
    remove_tree(cache.text);
    assert_int_equal(rename(root.text, at("cache/now").text), 0);
    remove_tree(at("cache/index").text);
    expect_made(at("cache").text, "", true, 2);
    expect_made(at("cache").text, "", false, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_changes_are_noticed),
        cmocka_unit_test(test_changes_within_one_tick),
        cmocka_unit_test(test_times_that_are_set_back),
        cmocka_unit_test(test_links_that_led_nowhere),
        cmocka_unit_test(test_clocks_without_fractions),
        cmocka_unit_test(test_listings_beside_the_folder),
        cmocka_unit_test(test_a_cache_in_the_folder),
    };
    return cmocka_run_group_tests_name("folder_changes", tests, set_up, tear_down);
}

/*
 * test_folder_many.c: a folder of very many files, in a fixed little memory.
 *
 * 30,000 of them, or with BRIM_TEST_LONG=1 in the environment as many as BRIM_TEST_FILES
 * says, 1,000,000 if it is not set. What every sample must be follows from its number, so
 * that no list of them is held here either. The files are hard links to a few, which are
 * made faster; they lie below TMPDIR, or /tmp, and not in memory as those of other tests.
 *
 * label: quick, long
 */
#include "folder_util.h"

#include <sys/resource.h>

#if !defined(__has_feature)
#define __has_feature(name) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || \
    __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED true /* which takes memory of its own */
#else
#define SANITIZED false
#endif

#define ROOM     (320 * KIB) /* for listing and for opening, however many there are */
#define RESIDENT (4 * MIB)   /* more than that the process has not grown by: code, stacks */
#define LINKS    50000       /* to one file; ext4 allows 65,000 */

struct many {
    uint64_t count, classes, each; /* files of a class */
};

static struct many many;

static int make_place(void **state) {
    (void)state;
    const char *place = getenv("TMPDIR"), *number = getenv("BRIM_TEST_FILES");
    const bool is_long = getenv("BRIM_TEST_LONG") != NULL;
    many.count = !is_long ? 30000 : number != NULL ? strtoull(number, NULL, 10) : 1000000;
    many.classes = many.count >= 1000000 ? 1000 : 30;
    many.each = many.count / many.classes;
    many.count = many.each * many.classes;
    const int length = snprintf(tree, sizeof tree, "%s/brim-many-XXXXXX",
                                place != NULL && place[0] != '\0' ? place : "/tmp");
    return length >= (int)sizeof tree || many.count == 0 || mkdtemp(tree) == NULL ? -1 : 0;
}

/* The path and the label of sample `s`: classes by name, in each the files by name. */
static struct long_path path_of(uint64_t s, int64_t *label) {
    struct long_path path;
    *label = (int64_t)(s / many.each);
    snprintf(path.text, sizeof path.text, "%s/root/class%05llu/image-%09llu.png", tree,
             (unsigned long long)(s / many.each), (unsigned long long)(s % many.each));
    return path;
}

/* All files, in an order that is not theirs. Every file that is linked to is wider than the
 * one before it by a pixel; returns the widest. */
static uint32_t make_files(void) {
    const uint64_t step = 7919; /* a prime that divides no count here: every file comes once */
    uint32_t width = 0;
    char from[64] = "";
    assert_true(many.count % step != 0);
    for (uint64_t i = 0, s = 0; i < many.count; i++, s = (s + step) % many.count) {
        int64_t label;
        if (i % LINKS == 0) {
            snprintf(from, sizeof from, "images/%u.png", ++width);
            put_image(from, width, 1);
        }
        const struct long_path path = path_of(s, &label);
        if (link(at(from).text, path.text) != 0) {
            char name[64];
            snprintf(name, sizeof name, "root/class%05lld/.made", (long long)label);
            put(name, "", 0);
            assert_int_equal(link(at(from).text, path.text), 0);
        }
    }
    return width;
}

static void expect_sample(const struct brim__source *source, uint64_t s, uint8_t *buffer) {
    const uint8_t *record;
    uint64_t got = 0;
    int64_t label, wanted;
    assert_int_equal(fetch_run(source, s, 1, buffer, &record, &got), BRIM_OK);
    assert_int_equal(got, 1);
    const struct long_path path = path_of(s, &wanted);
    assert_string_equal(path_in(record, &source->field[0]), path.text);
    memcpy(&label, record + source->field[1].view.offset, sizeof label);
    assert_int_equal(label, wanted);
}

/* The first and the last of every class, and some thousands between. */
static void expect_samples(const struct brim__source *source) {
    uint8_t *buffer = new_buffer(source, 1);
    uint64_t random = 3;
    assert_int_equal(source->count, many.count);
    for (uint64_t c = 0; c < many.classes; c++) {
        expect_sample(source, c * many.each, buffer);
        expect_sample(source, (c + 1) * many.each - 1, buffer);
    }
    for (int i = 0; i < 5000; i++) {
        expect_sample(source, next_random(&random) % many.count, buffer);
    }
    free(buffer);
}

static uint64_t most_resident(void) {
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    return (uint64_t)usage.ru_maxrss * 1024;
}

static void test_many_files(void **state) {
    (void)state;
    static const char *const options[] = { "probe=no", "probe=yes" };
    const uint32_t width = make_files();
    const struct long_path root = at("root");
    const uint64_t before = most_resident();
    for (int i = 0; i < 4; i++) {
        struct test_use use;
        struct session session;
        brim_budget *budget = new_root(ROOM);
        folder_use(&use, root.text, options[i / 2]);
        const uint64_t begin = brim__now();
        assert_int_equal(open_in(&session, &use, budget), BRIM_OK);
        const double seconds = (double)(brim__now() - begin) * 1e-9;
        assert_int_equal(session.indexes->made, i % 2 == 0);
        expect_samples(&session.source);
        if (i >= 2) {
            assert_non_null(session.source.field[0].images);
            assert_int_equal(all_images(&session.source).width, width);
        }
        const uint64_t peak = read_info(budget).peak - root_bytes();
        const uint64_t grown = most_resident() - before;
        print_message("%s: %llu files, %s in %.2f s, charged %llu KiB, resident %llu KiB more\n",
                      options[i / 2], (unsigned long long)session.source.count,
                      session.indexes->made ? "made" : "opened again", seconds,
                      (unsigned long long)(peak / KIB), (unsigned long long)(grown / KIB));
        assert_true(peak <= ROOM);
        assert_true(SANITIZED || grown <= RESIDENT);
        close_in(&session);
        brim_budget_free(budget);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many_files),
    };
    return cmocka_run_group_tests_name("folder_many", tests, make_place, drop_tree);
}

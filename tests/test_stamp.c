/*
 * test_stamp.c: stamps: what tells that the files of a sample have changed.
 *
 * Every source that reads files is opened through a plan, and the file of its first
 * sample is then changed in each way that there is. Wanted are the stamps of an opening
 * that lasts, which must see the change, and those of a later opening: what the first one
 * makes from then on may be half of the old file, and must not be taken for the new one's.
 */
#include "base/fault.h"
#include "plan/plan.h"
#include "source/source.h"
#include "support/format_data.h"
#include "support/image_data.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FAULT_OPEN (1u << BRIM__FAULT_OPEN)

/* ------------------------------------------------------------------- files */

static struct timespec modified_of(const char *path) {
    struct stat facts;
    assert_int_equal(stat(path, &facts), 0);
    return facts.st_mtim;
}

static void set_modified(const char *path, struct timespec modified) {
    const struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, modified };
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static size_t read_whole(const char *path, uint8_t *bytes, size_t room) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    const ssize_t got = read(fd, bytes, room);
    assert_true(got > 0 && (size_t)got < room);
    assert_int_equal(close(fd), 0);
    return (size_t)got;
}

static void write_at(const char *path, const uint8_t *bytes, size_t count, int flags) {
    const int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, count), count);
    assert_int_equal(close(fd), 0);
}

static void copy_file(const char *from, const char *to) {
    static uint8_t bytes[65536];
    write_file(to, bytes, read_whole(in_directory(from).text, bytes, sizeof bytes));
}

/* The ways in which a file changes. All but the second leave its size, all but the
 * first two its time of modification. */
enum change { TOUCHED, GROWN, REWRITTEN, REPLACED, CHANGES };

static void change_file(const char *path, enum change change) {
    static uint8_t bytes[65536];
    const size_t count = read_whole(path, bytes, sizeof bytes);
    struct timespec modified = modified_of(path);
    char beside[200];
    switch (change) {
    case TOUCHED:
        modified.tv_sec -= 3600;
        set_modified(path, modified);
        break;
    case GROWN:
        write_at(path, (const uint8_t *)"\n", 1, O_APPEND);
        break;
    case REWRITTEN:
        write_at(path, bytes, count, 0);
        set_modified(path, modified);
        break;
    default:
        snprintf(beside, sizeof beside, "%s.new", path);
        write_at(beside, bytes, count, 0);
        set_modified(beside, modified);
        assert_int_equal(rename(beside, path), 0);
    }
    struct stat facts;
    assert_int_equal(stat(path, &facts), 0);
    assert_int_equal(facts.st_size, count + (change == GROWN));
}

static void shorten(const char *path) {
    struct stat facts;
    assert_int_equal(stat(path, &facts), 0);
    assert_int_equal(truncate(path, facts.st_size - 1), 0);
}

/* ------------------------------------------------------------------- plans */

static brim_runtime *runtime;

struct opened {
    brim_plan *plan;
    const struct brim__leaf *leaf;
    uint8_t *buffer[BRIM__MAX_SOURCES];
};

static void open_text(struct opened *opened, const char *text, const brim_binding *binding) {
    brim_open_options options = BRIM_OPEN_OPTIONS_INIT;
    brim_pipeline *pipeline;
    options.bindings = binding;
    options.binding_count = binding != NULL;
    *opened = (struct opened){ 0 };
    assert_int_equal(brim_pipeline_parse(text, &pipeline), BRIM_OK);
    const brim_status status = brim_plan_new(runtime, pipeline, &options, &opened->plan);
    if (status != BRIM_OK) {
        fail_msg("%s: %s", text, brim_detail());
    }
    brim_pipeline_free(pipeline);
    opened->leaf = opened->plan->leaf[0];
    for (uint32_t s = 0; s < opened->leaf->source_count; s++) {
        const size_t bytes = brim__source_buffer(opened->leaf->source[s], 1);
        assert_int_equal(posix_memalign((void **)&opened->buffer[s], 64, bytes + 1), 0);
    }
}

static void close_text(struct opened *opened) {
    for (uint32_t s = 0; s < opened->leaf->source_count; s++) {
        free(opened->buffer[s]);
    }
    brim_plan_free(opened->plan);
}

static brim_status try_one(const struct opened *opened, uint64_t sample, uint64_t *stamp) {
    return brim__sources_stamp(opened->leaf->source, opened->leaf->source_count, sample,
                               opened->buffer, stamp);
}

static brim_status try_all(const struct opened *opened, uint64_t *stamp) {
    return brim__sources_stamp_all(opened->leaf->source, opened->leaf->source_count,
                                   brim_runtime_budget(runtime), NULL, NULL, stamp);
}

struct stamps {
    uint64_t first, last, all; /* of the first sample, the last, and all */
};

static struct stamps take_stamps(const struct opened *opened) {
    struct stamps stamps;
    assert_int_equal(try_one(opened, 0, &stamps.first), BRIM_OK);
    assert_int_equal(try_one(opened, opened->leaf->source[0]->count - 1, &stamps.last), BRIM_OK);
    assert_int_equal(try_all(opened, &stamps.all), BRIM_OK);
    return stamps;
}

static struct stamps open_stamps(const char *text, const brim_binding *binding) {
    struct opened opened;
    open_text(&opened, text, binding);
    const struct stamps stamps = take_stamps(&opened);
    close_text(&opened);
    return stamps;
}

static void assert_stamps_equal(struct stamps a, struct stamps b) {
    assert_true(a.first == b.first && a.last == b.last && a.all == b.all);
}

/* ---------------------------------------------------------------- subjects */

struct subject {
    const char *text;    /* of the source; $ is the test's directory */
    const char *from[2]; /* copied to `file` and `other` first; NULL: they are there */
    const char *file;    /* of the first sample */
    const char *other;   /* of the last one; NULL: the same */
    bool held;           /* something of the file is held since it was opened */
};

static const struct subject subjects[] = {
    { "npy $/a $/b", { "values.npy", "values.npy" }, "a", "b", true },
    { "npy $/a $/b map=yes", { "values.npy", "values.npy" }, "a", "b", true },
    { "npy $/a $/b map=yes", { "columns.npy", "columns.npy" }, "a", "b", true },
    { "npz $/a", { "stored.npz" }, "a", NULL, true },
    { "npz $/a", { "deflated.npz" }, "a", NULL, true },
    { "idx $/a $/b", { "images.idx", "images.idx" }, "a", "b", true },
    { "idx $/a $/b", { "images.idx.gz", "images.idx" }, "a", "b", true },
    { "cifar $/a $/b kind=10", { "cifar.bin", "cifar.bin" }, "a", "b", true },
    { "records $/a $/b bytes=7", { "raw.bin", "raw.bin" }, "a", "b", true },
    { "tokens $/a $/b length=8", { "raw.bin", "raw.bin" }, "a", "b", true },
    { "tokens $/megatron.bin length=8", { NULL }, "megatron.bin", NULL, true },
    { "safetensors $/a", { "x.safetensors" }, "a", NULL, true },
    { "text $/a $/b", { "lines.txt", "lines.txt" }, "a", "b", true },
    { "csv $/a $/b", { "table.csv", "table.csv" }, "a", "b", true },
    { "jsonl $/a $/b", { "documents.jsonl", "documents.jsonl" }, "a", "b", true },
    { "folder $/tree", { NULL }, "tree/cat/1.png", "tree/dog/2.png", false },
    { "files $/one.csv path=path", { NULL }, "tree/cat/1.png", "tree/dog/2.png", false },
    { "files $/two.csv path=mask,path", { NULL }, "tree/cat/1.png", "tree/dog/2.png", false },
    { "files list=@list probe=yes", { NULL }, "tree/cat/1.png", "tree/dog/2.png", false },
    { "files list=@rooted root=$/tree probe=yes",
      { NULL },
      "tree/cat/1.png",
      "tree/dog/2.png",
      false },
    { "zip (range 60) (npy $/a name=y)", { "values.npy" }, "a", NULL, true },
};

static struct path listed[2];
static const char *const list[] = { listed[0].text, listed[1].text };
static const char *const rooted[] = { "cat/1.png", "dog/2.png" };

static brim_binding bind_list(const char *text) {
    brim_binding binding = BRIM_BINDING_INIT;
    const bool with_root = strstr(text, "@rooted") != NULL;
    binding.name = with_root ? "rooted" : "list";
    binding.kind = BRIM_BINDING_FILES;
    binding.count = 2;
    binding.paths = with_root ? rooted : list;
    return binding;
}

static const char *directory_of(char text[TEXT_BYTES], const char *with) {
    const struct path directory = in_directory("");
    size_t used = 0;
    for (; *with != '\0'; with++) {
        if (*with == '$') { /* without the slash at its end */
            used += (size_t)snprintf(text + used, TEXT_BYTES - used, "%.*s",
                                     (int)strlen(directory.text) - 1, directory.text);
        } else {
            text[used++] = *with;
        }
    }
    text[used] = '\0';
    return text;
}

static void write_columns(void) {
    static uint8_t bytes[65536];
    const size_t count = read_whole(in_directory("values.npy").text, bytes, sizeof bytes - 1);
    char *order = strstr((char *)bytes + 10, "False,");
    assert_non_null(order);
    memcpy(order, "True, ", 6);
    write_file("columns.npy", bytes, count);
}

/* One sequence of 100 tokens. */
static void write_megatron(void) {
    uint8_t idx[34 + 12 + 16] = "MMIDIDX", tokens[200] = { 1 };
    const uint64_t version = 1, sequences = 1, documents = 2;
    const int32_t length = 100;
    memcpy(idx + 9, &version, sizeof version);
    idx[17] = 8;
    memcpy(idx + 18, &sequences, sizeof sequences);
    memcpy(idx + 26, &documents, sizeof documents);
    memcpy(idx + 34, &length, sizeof length);
    write_file("megatron.idx", idx, sizeof idx);
    write_file("megatron.bin", tokens, sizeof tokens);
}

static int begin_stamps(void **state) {
    static float values[60 * 8];
    static uint8_t pixels[8 * 8 * 3];
    static const char one[] = "path,label\ntree/cat/1.png,3\ntree/dog/2.png,5\n";
    static const char two[] = "path,mask\ntree/cat/1.png,tree/mask.png\ntree/dog/2.png,none.png\n";
    if (begin_format_tests(state) != 0) {
        return -1;
    }
    write_npy("values.npy", BRIM_DTYPE_F32, 2, (const int64_t[]){ 60, 8 }, values);
    write_columns();
    write_megatron();
    make_folder("tree");
    make_folder("tree/cat");
    make_folder("tree/dog");
    draw_pixels(pixels, 8, 8, 1);
    write_png("tree/cat/1.png", pixels, 8, 8);
    write_png("tree/dog/2.png", pixels, 8, 8);
    write_png("tree/mask.png", pixels, 8, 8);
    write_png("none.png", pixels, 8, 8);
    write_file("one.csv", one, sizeof one - 1);
    write_file("two.csv", two, sizeof two - 1);
    listed[0] = in_directory("tree/cat/1.png");
    listed[1] = in_directory("tree/dog/2.png");
    static struct path cache;
    cache = in_directory("cache");
    brim_runtime_options options = BRIM_RUNTIME_OPTIONS_INIT;
    options.host_bytes = UINT64_C(256) << 20;
    options.threads = 0;
    options.index_dir = cache.text;
    return brim_runtime_new(&options, &runtime) == BRIM_OK ? 0 : -1;
}

static int end_stamps(void **state) {
    brim_runtime_free(runtime);
    return end_tests(state);
}

static void renew(const struct subject *subject) {
    for (int i = 0; i < 2; i++) {
        if (subject->from[i] != NULL) {
            copy_file(subject->from[i], i == 0 ? subject->file : subject->other);
        }
    }
}

/* ------------------------------------------------------------------- tests */

static void test_sources_without_files_have_no_stamp(void **state) {
    (void)state;
    struct opened opened;
    open_text(&opened, "range 10", NULL);
    assert_null(opened.leaf->source[0]->ops->stamp);
    const struct stamps stamps = take_stamps(&opened);
    assert_true(stamps.first == 0 && stamps.last == 0 && stamps.all == 0);
    close_text(&opened);
}

static void test_unchanged_files_keep_their_stamps(void **state) {
    (void)state;
    for (size_t i = 0; i < BRIM__COUNT(subjects); i++) {
        char text[TEXT_BYTES];
        const brim_binding binding = bind_list(subjects[i].text);
        struct opened opened;
        renew(&subjects[i]);
        open_text(&opened, directory_of(text, subjects[i].text), &binding);
        const struct stamps stamps = take_stamps(&opened);
        assert_true(stamps.first != 0 && stamps.all != 0);
        assert_true((stamps.first == stamps.last) == (subjects[i].other == NULL));
        assert_stamps_equal(take_stamps(&opened), stamps);
        assert_stamps_equal(open_stamps(text, &binding), stamps);
        close_text(&opened);
    }
}

/* `opened` has seen the change from `before` to `during`; and a later opening? */
static void check_later(const struct subject *subject, const char *text,
                        const brim_binding *binding, struct stamps before, struct stamps during) {
    const struct stamps after = open_stamps(text, binding);
    assert_true(after.first != before.first && after.all != before.all);
    assert_true(!subject->held || (after.first != during.first && after.all != during.all));
    if (subject->other != NULL) {
        assert_int_equal(after.last, before.last);
    }
}

static void test_changes_are_seen(void **state) {
    (void)state;
    for (size_t i = 0; i < BRIM__COUNT(subjects) * CHANGES; i++) {
        const struct subject *subject = &subjects[i / CHANGES];
        const enum change change = (enum change)(i % CHANGES);
        char text[TEXT_BYTES];
        const brim_binding binding = bind_list(subject->text);
        struct opened opened;
        if (i % CHANGES == 0) { /* all changes leave the content as it was, in the end */
            renew(subject);
        }
        open_text(&opened, directory_of(text, subject->text), &binding);
        const struct stamps before = take_stamps(&opened);
        change_file(in_directory(subject->file).text, change);
        const struct stamps during = take_stamps(&opened);
        if (during.first == before.first || during.all == before.all ||
            (subject->other != NULL && during.last != before.last)) {
            fail_msg("%s: change %d is not seen, or in the other file", subject->text, (int)change);
        }
        assert_stamps_equal(take_stamps(&opened), during);
        if (change == GROWN) { /* many formats refuse a file that is too long */
            shorten(in_directory(subject->file).text);
        }
        check_later(subject, text, &binding, before, during);
        close_text(&opened);
    }
}

static void test_vanished_files(void **state) {
    (void)state;
    for (size_t i = 0; i < BRIM__COUNT(subjects); i++) {
        const struct subject *subject = &subjects[i];
        char text[TEXT_BYTES], away[200];
        const brim_binding binding = bind_list(subject->text);
        const struct path path = in_directory(subject->file);
        struct opened opened;
        uint64_t stamp;
        renew(subject);
        open_text(&opened, directory_of(text, subject->text), &binding);
        const struct stamps before = take_stamps(&opened);
        snprintf(away, sizeof away, "%s.away", path.text);
        assert_int_equal(rename(path.text, away), 0);
        assert_int_equal(try_one(&opened, 0, &stamp), BRIM_STATUS_IO);
        assert_detail_has(subject->file);
        assert_detail_has("No such file");
        if (subject->other != NULL) {
            assert_int_equal(try_one(&opened, opened.leaf->source[0]->count - 1, &stamp), BRIM_OK);
            assert_int_equal(stamp, before.last);
        }
        assert_int_equal(try_all(&opened, &stamp), BRIM_OK);
        assert_int_not_equal(stamp, before.all);
        assert_int_equal(rename(away, path.text), 0);
        close_text(&opened);
    }
}

static void test_system_failures(void **state) {
    (void)state;
    for (size_t i = 0; i < BRIM__COUNT(subjects); i++) {
        char text[TEXT_BYTES];
        const brim_binding binding = bind_list(subjects[i].text);
        struct opened opened;
        uint64_t stamp;
        renew(&subjects[i]);
        open_text(&opened, directory_of(text, subjects[i].text), &binding);
        const struct stamps before = take_stamps(&opened);
        for (int all = 0; all < 2; all++) {
            uint64_t injected = 1, nth;
            for (nth = 1; injected > 0; nth++) {
                brim__fault_arm(FAULT_OPEN, nth, false);
                const brim_status status =
                    all ? try_all(&opened, &stamp) : try_one(&opened, 0, &stamp);
                injected = brim__fault_injected();
                brim__fault_arm(0, 0, false);
                assert_int_equal(status, injected > 0 ? BRIM_STATUS_IO : BRIM_OK);
            }
            assert_true(nth > 2); /* there was a point */
        }
        assert_stamps_equal(take_stamps(&opened), before);
        close_text(&opened);
    }
}

/* Labels and other columns come from the manifest: it is part of every sample. */
static void test_manifest_is_part_of_samples(void **state) {
    (void)state;
    char text[TEXT_BYTES];
    struct opened opened;
    open_text(&opened, directory_of(text, "files $/one.csv path=path"), NULL);
    const struct stamps before = take_stamps(&opened);
    change_file(in_directory("one.csv").text, REWRITTEN);
    const struct stamps during = take_stamps(&opened);
    assert_true(during.first != before.first && during.last != before.last &&
                during.all != before.all);
    close_text(&opened);
}

static void test_all_path_columns_count(void **state) {
    (void)state;
    char text[TEXT_BYTES];
    struct opened opened;
    open_text(&opened, directory_of(text, "files $/two.csv path=path,mask"), NULL);
    const struct stamps before = take_stamps(&opened);
    change_file(in_directory("tree/mask.png").text, TOUCHED);
    const struct stamps during = take_stamps(&opened);
    assert_true(during.first != before.first && during.last == before.last &&
                during.all != before.all);
    close_text(&opened);
}

static void test_any_source_side_by_side_counts(void **state) {
    (void)state;
    char text[TEXT_BYTES];
    struct opened opened;
    copy_file("values.npy", "a");
    copy_file("values.npy", "b");
    open_text(&opened, directory_of(text, "zip (npy $/a) (npy $/b name=y)"), NULL);
    const struct stamps before = take_stamps(&opened);
    change_file(in_directory("b").text, REPLACED);
    const struct stamps second = take_stamps(&opened);
    change_file(in_directory("a").text, REPLACED);
    const struct stamps both = take_stamps(&opened);
    assert_true(before.first != second.first && before.all != second.all);
    assert_true(both.first != second.first && both.all != second.all);
    close_text(&opened);
    const uint64_t one = open_stamps(text, NULL).first;
    assert_int_not_equal(
        one, open_stamps(directory_of(text, "zip (npy $/b) (npy $/a name=y)"), NULL).first);
}

/* A directory that is moved takes its files along as they are. */
static void test_renamed_directory_keeps_stamps(void **state) {
    (void)state;
    char text[TEXT_BYTES], other[TEXT_BYTES];
    make_folder("here");
    copy_file("values.npy", "here/a");
    copy_file("tree/cat/1.png", "here/1.png");
    const uint64_t array = open_stamps(directory_of(text, "npy $/here/a"), NULL).all;
    const uint64_t folder = open_stamps(directory_of(text, "folder $/here"), NULL).all;
    assert_int_equal(rename(in_directory("here").text, in_directory("there").text), 0);
    assert_int_equal(open_stamps(directory_of(other, "npy $/there/a"), NULL).all, array);
    assert_int_equal(open_stamps(directory_of(other, "folder $/there"), NULL).all, folder);
}

/* ---------------------------------------------------------------- progress */

#define MANY 2000000

struct told {
    unsigned calls;
    uint64_t done, total;
    char what[200];
};

static int give_up(void *user, const brim_progress *progress) {
    struct told *told = user;
    told->calls++;
    told->done = progress->done;
    told->total = progress->total;
    snprintf(told->what, sizeof told->what, "%s", progress->what);
    return 1;
}

/* So many that looking at all of them takes longer than nobody is told. */
static void test_looking_at_all_can_be_given_up(void **state) {
    (void)state;
    const char **paths = calloc(MANY, sizeof *paths);
    struct told told = { 0 };
    struct opened opened;
    uint64_t stamp;
    brim_binding binding = bind_list("@list");
    assert_non_null(paths);
    for (size_t i = 0; i < MANY; i++) {
        paths[i] = listed[0].text;
    }
    binding.paths = paths;
    binding.count = MANY;
    open_text(&opened, "files list=@list | decode | resize 4 4", &binding);
    assert_int_equal(brim__sources_stamp_all(opened.leaf->source, 1, brim_runtime_budget(runtime),
                                             give_up, &told, &stamp),
                     BRIM_STATUS_INTERRUPTED);
    assert_detail_has("was stopped");
    assert_int_equal(told.calls, 1);
    assert_true(told.done > 0 && told.done < MANY);
    assert_int_equal(told.total, MANY);
    assert_non_null(strstr(told.what, "looking at"));
    close_text(&opened);
    free(paths);
}

/* Paths need a buffer, arrays do not, however large their samples are. */
static void test_memory_is_charged(void **state) {
    (void)state;
    char text[TEXT_BYTES];
    struct opened folder, array;
    brim_budget *small;
    brim_budget_info info = BRIM_BUDGET_INFO_INIT;
    uint64_t stamp;
    assert_int_equal(brim_budget_new(brim_runtime_budget(runtime), "small", 64, 0, &small),
                     BRIM_OK);
    copy_file("values.npy", "a");
    open_text(&folder, directory_of(text, "folder $/tree"), NULL);
    open_text(&array, directory_of(text, "npy $/a"), NULL);
    assert_int_equal(brim__sources_stamp_all(folder.leaf->source, 1, small, NULL, NULL, &stamp),
                     BRIM_STATUS_BUDGET);
    assert_detail_has("looking at the files");
    assert_int_equal(brim__sources_stamp_all(array.leaf->source, 1, small, NULL, NULL, &stamp),
                     BRIM_OK);
    assert_int_equal(brim_budget_read(small, BRIM_MEMORY_HOST, &info), BRIM_OK);
    assert_int_equal(info.charged, 0);
    close_text(&folder);
    close_text(&array);
    brim_budget_free(small);
}

/* ------------------------------------------------------------------ clocks */

static void test_times_of_coarse_clocks_are_unsure(void **state) {
    (void)state;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    /* the next second, so that it stays recent on a machine that is busy */
    const struct timespec fine = { now.tv_sec, 1 }, coarse = { now.tv_sec + 1, 0 },
                          old = { now.tv_sec - 60, 0 }, coming = { now.tv_sec + 60, 0 };
    for (int wait = 0; wait < 2; wait++) {
        assert_true(brim__time_is_sure(&fine, wait));
        assert_false(brim__time_is_sure(&coarse, wait));
        assert_true(brim__time_is_sure(&old, wait));
        assert_true(brim__time_is_sure(&coming, wait));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sources_without_files_have_no_stamp),
        cmocka_unit_test(test_unchanged_files_keep_their_stamps),
        cmocka_unit_test(test_changes_are_seen),
        cmocka_unit_test(test_vanished_files),
        cmocka_unit_test(test_system_failures),
        cmocka_unit_test(test_manifest_is_part_of_samples),
        cmocka_unit_test(test_all_path_columns_count),
        cmocka_unit_test(test_any_source_side_by_side_counts),
        cmocka_unit_test(test_renamed_directory_keeps_stamps),
        cmocka_unit_test(test_looking_at_all_can_be_given_up),
        cmocka_unit_test(test_memory_is_charged),
        cmocka_unit_test(test_times_of_coarse_clocks_are_unsure),
    };
    return cmocka_run_group_tests(tests, begin_stamps, end_stamps);
}

/*
 * test_trust.c: indexes, listings and cache files that other users own or may write count as
 * absent, are told of, and are left alone if they are somebody else's.
 *
 * Only root can make a file of another user: where these tests run as somebody else, that part
 * says so and is left out.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <brim.h>

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SOMEBODY 65534

static char tree[64];

struct text {
    char text[PATH_MAX];
};

static struct text at(const char *name) {
    struct text path;
    snprintf(path.text, sizeof path.text, "%s/%s", tree, name);
    return path;
}

static int remove_one(const char *path, const struct stat *facts, int kind, struct FTW *where) {
    (void)facts;
    (void)kind;
    (void)where;
    return remove(path);
}

static int make_tree(void **state) {
    (void)state;
    snprintf(tree, sizeof tree, "%s/brim-trust-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    return mkdtemp(tree) == NULL ? -1 : 0;
}

static int drop_tree(void **state) {
    (void)state;
    return nftw(tree, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void put(const char *name, const char *bytes) {
    FILE *file = fopen(at(name).text, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, strlen(bytes), file), strlen(bytes));
    fclose(file);
}

/* The only file in a directory whose name begins and ends so. */
static struct text only(const char *folder, const char *begin, const char *ending) {
    struct text found = { "" };
    DIR *directory = opendir(at(folder).text);
    assert_non_null(directory);
    for (const struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        const size_t length = strlen(entry->d_name), end = strlen(ending);
        if (length >= end && strcmp(entry->d_name + length - end, ending) == 0 &&
            strncmp(entry->d_name, begin, strlen(begin)) == 0) {
            assert_string_equal(found.text, "");
            snprintf(found.text, sizeof found.text, "%.3800s/%s", at(folder).text, entry->d_name);
        }
    }
    closedir(directory);
    assert_string_not_equal(found.text, "");
    return found;
}

static struct stat facts_of(const char *path) {
    struct stat facts;
    assert_int_equal(stat(path, &facts), 0);
    return facts;
}

/* Root can give a file away; who is not says that this is not tried. */
static bool give_away(const char *path) {
    if (geteuid() != 0) {
        print_message("not root: a file of another user is not tried\n");
        return false;
    }
    assert_int_equal(chown(path, SOMEBODY, SOMEBODY), 0);
    return true;
}

/* Of a file that must not be touched: what would differ if it had been. */
struct untouched {
    struct text path;
    struct stat facts;
};

static struct untouched keep(const char *path) {
    struct untouched kept = { .facts = facts_of(path) };
    snprintf(kept.path.text, sizeof kept.path.text, "%s", path);
    return kept;
}

static void assert_untouched(const struct untouched *kept) {
    const struct stat now = facts_of(kept->path.text);
    assert_int_equal(now.st_ino, kept->facts.st_ino);
    assert_int_equal(now.st_size, kept->facts.st_size);
    assert_int_equal(now.st_uid, kept->facts.st_uid);
    assert_int_equal(now.st_mode, kept->facts.st_mode);
    assert_memory_equal(&now.st_mtim, &kept->facts.st_mtim, sizeof now.st_mtim);
}

/* ----------------------------------------------------------------- indexes */

struct found {
    brim_status status;
    uint64_t samples;
    int made;
    char path[PATH_MAX];
    char note[1024];
};

/* What a plan says of its last index. */
static struct found plan(const char *format, const char *name, int trust_foreign) {
    brim_runtime_options options = BRIM_RUNTIME_OPTIONS_INIT;
    const struct text cache = at("cache"), data = at(name);
    struct found found = { .status = BRIM_OK };
    char text[2 * PATH_MAX];
    brim_runtime *runtime;
    brim_pipeline *pipeline;
    brim_plan *made;
    options.host_bytes = 16 << 20;
    options.threads = 0;
    options.index_dir = cache.text;
    options.trust_foreign = trust_foreign;
    snprintf(text, sizeof text, format, data.text);
    assert_int_equal(brim_runtime_new(&options, &runtime), BRIM_OK);
    assert_int_equal(brim_pipeline_parse(text, &pipeline), BRIM_OK);
    found.status = brim_plan_new(runtime, pipeline, NULL, &made);
    if (found.status == BRIM_OK) {
        const uint32_t count = brim_plan_get(made)->index_count;
        const brim_plan_index *index = brim_plan_index_at(made, count - 1);
        assert_non_null(index);
        found.samples = brim_plan_get(made)->samples;
        found.made = index->made;
        snprintf(found.path, sizeof found.path, "%s", index->path);
        snprintf(found.note, sizeof found.note, "%s", index->note);
        brim_plan_free(made);
    } else {
        snprintf(found.note, sizeof found.note, "%s", brim_detail());
    }
    brim_pipeline_free(pipeline);
    brim_runtime_free(runtime);
    return found;
}

static void expect(const struct found *found, int made, const char *words) {
    assert_int_equal(found->status, BRIM_OK);
    assert_int_equal(found->made, made);
    if (words == NULL ? found->note[0] != '\0' : strstr(found->note, words) == NULL) {
        fail_msg("\"%s\" is not: %s", found->note, words == NULL ? "" : words);
    }
}

#define CSV "csv %s | batch 2"

static void one_that_others_may_write_is_made_anew(void **state) {
    (void)state;
    static const mode_t modes[] = { 0666, 0622, 0664, 0602 };
    put("a.csv", "x\n1\n2\n3\n");
    struct found found = plan(CSV, "a.csv", 0);
    expect(&found, 1, NULL);
    assert_int_equal(facts_of(found.path).st_mode & 07777, 0600); /* whatever the umask */
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        assert_int_equal(chmod(found.path, modes[i]), 0);
        const struct found trusting = plan(CSV, "a.csv", 1);
        expect(&trusting, 0, NULL);
        found = plan(CSV, "a.csv", 0);
        expect(&found, 1, "could be written by other users");
        assert_int_equal(found.samples, 3);
        assert_int_equal(facts_of(found.path).st_mode & 07777, 0600);
        found = plan(CSV, "a.csv", 0);
        expect(&found, 0, NULL);
    }
    assert_int_equal(chmod(found.path, 0644), 0); /* others may read it */
    found = plan(CSV, "a.csv", 0);
    expect(&found, 0, NULL);
}

/* With any umask brim makes files that nobody else can write. */
static void the_umask_decides_nothing(void **state) {
    (void)state;
    const mode_t before = umask(0);
    put("u.csv", "x\n1\n");
    const struct found found = plan(CSV, "u.csv", 0), again = plan(CSV, "u.csv", 0);
    umask(before);
    expect(&found, 1, NULL);
    expect(&again, 0, NULL);
}

static void another_users_in_the_cache_is_left_alone(void **state) {
    (void)state;
    put("b.csv", "x\n1\n2\n3\n");
    const struct found first = plan(CSV, "b.csv", 0);
    expect(&first, 1, NULL);
    if (!give_away(first.path)) {
        skip();
    }
    const struct untouched kept = keep(first.path);
    struct found found = plan(CSV, "b.csv", 0);
    expect(&found, 1, "belongs to another user (number 65534)");
    assert_string_not_equal(found.path, first.path);
    assert_int_equal(found.samples, 3);
    found = plan(CSV, "b.csv", 0);
    expect(&found, 0, "belongs to another user"); /* the user's own is fresh now */
    assert_untouched(&kept);

    found = plan(CSV, "b.csv", 1);
    expect(&found, 0, NULL);
    assert_string_equal(found.path, first.path);

    /* a name that only this user would take, taken as well */
    const struct found own = plan(CSV, "b.csv", 0);
    assert_int_equal(chown(own.path, SOMEBODY, SOMEBODY), 0);
    found = plan(CSV, "b.csv", 0);
    assert_int_equal(found.status, BRIM_STATUS_IO);
    assert_non_null(strstr(found.note, "trust_foreign"));
    assert_untouched(&kept);
}

/* A link to nothing cannot be read, and in a directory like /tmp not be replaced either. */
static void another_users_link_is_left_alone(void **state) {
    (void)state;
    put("l.csv", "x\n1\n2\n3\n");
    const struct text link = at("l.csv.csv.brimidx");
    assert_int_equal(symlink("/nowhere", link.text), 0);
    if (geteuid() != 0) {
        print_message("not root: a link of another user is not tried\n");
        skip();
    }
    assert_int_equal(lchown(link.text, SOMEBODY, SOMEBODY), 0);
    const struct found found = plan("csv %s index=beside | batch 2", "l.csv", 0);
    expect(&found, 1, "belongs to another user (number 65534)");
    assert_string_not_equal(found.path, link.text);
    struct stat facts;
    assert_int_equal(lstat(link.text, &facts), 0);
    assert_true(S_ISLNK(facts.st_mode));
}

/* Also one that says something else with right checksums. */
static void another_users_beside_the_data_is_not_believed(void **state) {
    (void)state;
    put("c.csv", "x\n1\n2\n3\n4\n");
    put("d.csv", "x\n12345\n6\n"); /* as long */
    const struct found lie = plan("csv %s index=beside | batch 2", "d.csv", 0);
    expect(&lie, 1, NULL);
    const struct text path = at("c.csv.csv.brimidx");
    const struct stat facts = facts_of(at("d.csv").text);
    assert_int_equal(facts.st_size, facts_of(at("c.csv").text).st_size);
    const struct timespec times[2] = { facts.st_atim, facts.st_mtim };
    assert_int_equal(utimensat(AT_FDCWD, at("c.csv").text, times, 0), 0);
    assert_int_equal(rename(lie.path, path.text), 0);
    struct found found = plan("csv %s index=beside | batch 2", "c.csv", 0);
    assert_int_equal(found.samples, 2); /* an index of ours is believed */
    if (!give_away(path.text)) {
        skip();
    }
    const struct untouched kept = keep(path.text);
    found = plan("csv %s index=beside | batch 2", "c.csv", 0);
    expect(&found, 1, "belongs to another user");
    assert_non_null(strstr(found.path, "/cache/index/"));
    assert_int_equal(found.samples, 4);
    found = plan("csv %s index=beside | batch 2", "c.csv", 0);
    expect(&found, 0, "belongs to another user");
    assert_untouched(&kept);
    found = plan("csv %s index=beside | batch 2", "c.csv", 1);
    assert_int_equal(found.samples, 2);
}

/* ---------------------------------------------------------------- listings */

static void listings_and_probes_too(void **state) {
    (void)state;
    static const char folders[] = "folder %s index=beside probe=no | batch 1";
    assert_int_equal(mkdir(at("f").text, 0755), 0);
    put("f/1.jpg", "x");
    put("f/2.jpg", "x");
    struct found found = plan(folders, "f", 0);
    expect(&found, 1, NULL);
    const struct text listing = only("", "f.folder", ".brimlst");
    assert_int_equal(chmod(listing.text, 0666), 0);
    found = plan(folders, "f", 0);
    expect(&found, 1, "could be written by other users");
    assert_int_equal(facts_of(listing.text).st_mode & 07777, 0600);
    found = plan(folders, "f", 0);
    expect(&found, 0, NULL);

    put("m.csv", "path,y\nf/1.jpg,1\nf/2.jpg,2\n");
    static const char manifests[] = "files %s index=beside probe=yes | batch 1";
    found = plan(manifests, "m.csv", 0);
    expect(&found, 0, NULL); /* made to find the columns, and opened again */
    const struct text probe = only("", "m.csv", ".brimprb");
    assert_int_equal(chmod(probe.text, 0620), 0);
    found = plan(manifests, "m.csv", 0);
    expect(&found, 0, "could be written by other users");
    assert_int_equal(facts_of(probe.text).st_mode & 07777, 0600);

    assert_int_equal(chmod(found.path, 0666), 0);
    found = plan(manifests, "m.csv", 0);
    expect(&found, 0, "could be written by other users");
    found = plan(manifests, "m.csv", 0);
    expect(&found, 0, NULL);

    if (!give_away(listing.text)) {
        skip();
    }
    const struct untouched kept = keep(listing.text);
    found = plan(folders, "f", 0);
    expect(&found, 1, "belongs to another user");
    assert_int_equal(found.samples, 2);
    assert_non_null(strstr(found.path, "/cache/index/"));
    found = plan(folders, "f", 0);
    expect(&found, 0, "belongs to another user");
    assert_untouched(&kept);
    assert_true(give_away(probe.text));
    const struct untouched other = keep(probe.text);
    found = plan(manifests, "m.csv", 0);
    expect(&found, 0, "belongs to another user");
    assert_untouched(&other);
}

/* ------------------------------------------------------------------ caches */

struct ran {
    brim_cache_stats cache;
    int64_t sum;
};

/* An epoch of six samples through a cache. */
static struct ran run(int trust_foreign) {
    static const int32_t numbers[6] = { 1, 20, 300, 4000, 50000, 600000 };
    brim_runtime_options options = BRIM_RUNTIME_OPTIONS_INIT;
    brim_open_options open = BRIM_OPEN_OPTIONS_INIT;
    brim_binding binding = BRIM_BINDING_INIT;
    const struct text path = at("x.brimcache");
    struct ran ran = { .cache = BRIM_CACHE_STATS_INIT };
    char text[PATH_MAX + 64];
    brim_runtime *runtime;
    brim_pipeline *pipeline;
    brim_loader *loader;
    brim_batch *batch;
    binding.name = "n";
    binding.kind = BRIM_BINDING_ARRAY;
    binding.data = numbers;
    binding.dtype = BRIM_DTYPE_I32;
    binding.rank = 1;
    binding.shape[0] = 6;
    open.bindings = &binding;
    open.binding_count = 1;
    options.host_bytes = 16 << 20;
    options.threads = 0;
    options.trust_foreign = trust_foreign;
    snprintf(text, sizeof text, "array @n version=1 | cache file=%s | batch 6", path.text);
    assert_int_equal(brim_runtime_new(&options, &runtime), BRIM_OK);
    assert_int_equal(brim_pipeline_parse(text, &pipeline), BRIM_OK);
    if (brim_loader_open(runtime, pipeline, &open, &loader) != BRIM_OK ||
        brim_loader_next(loader, BRIM_FOREVER, &batch) != BRIM_OK) {
        fail_msg("%s", brim_detail());
    }
    const int32_t *values = brim_batch_field_at(batch, 0)->data;
    for (int i = 0; i < 6; i++) {
        ran.sum += values[i];
    }
    brim_batch_release(batch);
    assert_int_equal(brim_loader_read_cache_stats(loader, 0, &ran.cache), BRIM_OK);
    brim_loader_close(loader);
    brim_pipeline_free(pipeline);
    brim_runtime_free(runtime);
    assert_int_equal(ran.sum, 654321);
    return ran;
}

static void cache_files_too(void **state) {
    (void)state;
    const struct text path = at("x.brimcache");
    struct ran ran = run(0);
    assert_int_equal(ran.cache.misses, 6);
    ran = run(0);
    assert_int_equal(ran.cache.hits, 6);
    assert_int_equal(facts_of(path.text).st_mode & 07777, 0600);

    assert_int_equal(chmod(path.text, 0660), 0);
    ran = run(1);
    assert_int_equal(ran.cache.hits, 6);
    ran = run(0);
    assert_int_equal(ran.cache.hits, 0);
    assert_non_null(strstr(ran.cache.note, "other users could write it"));
    assert_int_equal(facts_of(path.text).st_mode & 07777, 0600);
    ran = run(0);
    assert_int_equal(ran.cache.hits, 6);
    assert_string_equal(ran.cache.note, "");

    if (!give_away(path.text)) {
        skip();
    }
    const struct untouched kept = keep(path.text);
    ran = run(0);
    assert_int_equal(ran.cache.hits, 0);
    assert_int_equal(ran.cache.stored, 0);
    assert_int_equal(ran.cache.fills, 0);
    assert_non_null(strstr(ran.cache.warning, "belongs to another user (number 65534)"));
    assert_untouched(&kept);
    ran = run(1);
    assert_int_equal(ran.cache.hits, 6);
    /* an empty one might be filled by its owner at any time */
    assert_int_equal(truncate(path.text, 0), 0);
    const struct untouched empty = keep(path.text);
    ran = run(0);
    assert_non_null(strstr(ran.cache.warning, "belongs to another user"));
    assert_untouched(&empty);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_that_others_may_write_is_made_anew),
        cmocka_unit_test(the_umask_decides_nothing),
        cmocka_unit_test(another_users_in_the_cache_is_left_alone),
        cmocka_unit_test(another_users_link_is_left_alone),
        cmocka_unit_test(another_users_beside_the_data_is_not_believed),
        cmocka_unit_test(listings_and_probes_too),
        cmocka_unit_test(cache_files_too),
    };
    return cmocka_run_group_tests(tests, make_tree, drop_tree);
}

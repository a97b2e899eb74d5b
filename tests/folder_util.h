/*
 * folder_util.h: what the tests of `folder` and `files` share: trees of files,
 * small images, samples as text, and a model of torchvision's ImageFolder.
 */
#ifndef BRIM_TESTS_FOLDER_UTIL_H
#define BRIM_TESTS_FOLDER_UTIL_H

#include "source_util.h"

#include "budget_util.h"
#include "source/listing.h"

#include <errno.h>
#include <ftw.h>
#include <sys/stat.h>

/* ------------------------------------------------------------------- trees */

static char tree[64]; /* the test's directory */

static int remove_one(const char *path, const struct stat *facts, int kind, struct FTW *at) {
    (void)facts;
    (void)kind;
    (void)at;
    return remove(path);
}

static inline void remove_tree(const char *path) {
    (void)nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* In memory where there is such: listings are synchronised with the disk. */
static inline int make_tree(void **state) {
    (void)state;
    snprintf(tree, sizeof tree, "%s/brim-folder-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    return mkdtemp(tree) == NULL ? -1 : 0;
}

static inline int drop_tree(void **state) {
    (void)state;
    remove_tree(tree);
    return 0;
}

struct long_path {
    char text[PATH_MAX];
};

static inline struct long_path at(const char *name) {
    struct long_path path;
    snprintf(path.text, sizeof path.text, "%s/%s", tree, name);
    return path;
}

/* Makes a file and the directories above it. */
static inline void put(const char *name, const void *bytes, size_t count) {
    struct long_path path = at(name);
    for (char *slash = path.text + strlen(tree) + 1; (slash = strchr(slash, '/')) != NULL;
         *slash++ = '/') {
        *slash = '\0';
        assert_true(mkdir(path.text, 0755) == 0 || errno == EEXIST);
    }
    write_file(path.text, bytes, count);
}

/* The only file of a directory with this beginning and this ending. */
static inline struct long_path only_file(const char *directory, const char *begin,
                                         const char *ending) {
    struct long_path found = { "" };
    const struct long_path path = at(directory);
    DIR *entries = opendir(path.text);
    assert_non_null(entries);
    for (const struct dirent *entry; (entry = readdir(entries)) != NULL;) {
        const size_t length = strlen(entry->d_name), end = strlen(ending);
        if (strncmp(entry->d_name, begin, strlen(begin)) == 0 && length > end &&
            strcmp(entry->d_name + length - end, ending) == 0) {
            assert_true(found.text[0] == '\0');
            snprintf(found.text, sizeof found.text, "%.3800s/%s", path.text, entry->d_name);
        }
    }
    closedir(entries);
    assert_true(found.text[0] != '\0');
    return found;
}

static inline void link_to(const char *target, const char *name) {
    assert_int_equal(symlink(target, at(name).text), 0);
}

/* ------------------------------------------------------------------ images */

static inline void put_be(uint8_t *to, uint32_t value) {
    for (int i = 0; i < 4; i++) {
        to[i] = (uint8_t)(value >> (24 - 8 * i));
    }
}

static inline size_t png_chunk(uint8_t *to, const char *type, const uint8_t *data, uint32_t bytes) {
    uint32_t crc = UINT32_MAX;
    put_be(to, bytes);
    memcpy(to + 4, type, 4);
    if (bytes > 0) {
        memcpy(to + 8, data, bytes);
    }
    for (uint32_t i = 4; i < 8 + bytes; i++) {
        crc ^= to[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = crc >> 1 ^ (UINT32_C(0xedb88320) & (0 - (crc & 1)));
        }
    }
    put_be(to + 8 + bytes, ~crc);
    return 12 + bytes;
}

/* A PNG that has a header of this size, and no pixels. */
static inline void put_image(const char *name, uint32_t width, uint32_t height) {
    uint8_t bytes[128] = "\x89PNG\r\n\x1a\n", header[13] = { [8] = 8, [9] = 2 };
    size_t used = 8;
    put_be(header, width);
    put_be(header + 4, height);
    used += png_chunk(bytes + used, "IHDR", header, sizeof header);
    used += png_chunk(bytes + used, "IDAT", (const uint8_t *)"\x78\x9c\x03\0\0\0\0\x01", 8);
    used += png_chunk(bytes + used, "IEND", NULL, 0);
    put(name, bytes, used);
}

/* ----------------------------------------------------------------- samples */

struct samples {
    char **path;
    int64_t *label;
    size_t count, room;
};

static inline void add_sample(struct samples *samples, const char *path, int64_t label) {
    if (samples->count == samples->room) {
        samples->room = samples->room == 0 ? 64 : 2 * samples->room;
        samples->path = realloc(samples->path, samples->room * sizeof *samples->path);
        samples->label = realloc(samples->label, samples->room * sizeof *samples->label);
        assert_true(samples->path != NULL && samples->label != NULL);
    }
    samples->path[samples->count] = strdup(path);
    assert_non_null(samples->path[samples->count]);
    samples->label[samples->count++] = label;
}

static inline void drop_samples(struct samples *samples) {
    for (size_t i = 0; i < samples->count; i++) {
        free(samples->path[i]);
    }
    free(samples->path);
    free(samples->label);
    *samples = (struct samples){ 0 };
}

static inline void assert_same_samples(const struct samples *a, const struct samples *b) {
    assert_int_equal(a->count, b->count);
    for (size_t i = 0; i < a->count; i++) {
        assert_string_equal(a->path[i], b->path[i]);
        assert_int_equal(a->label[i], b->label[i]);
    }
}

static inline const char *path_in(const uint8_t *record, const struct brim__source_field *field) {
    struct brim__deferred deferred;
    memcpy(&deferred, record + field->view.offset, sizeof deferred);
    assert_non_null(deferred.path);
    return deferred.path;
}

/* All samples of a source, fetched `run` at a time; -1 for no label. The first failure
 * is returned. */
static inline brim_status take_samples(const struct brim__source *source, uint64_t run,
                                       struct samples *samples) {
    uint8_t *buffer = new_buffer(source, source->most_run);
    brim_status status = BRIM_OK;
    run = run < source->most_run ? run : source->most_run;
    for (uint64_t s = 0; s < source->count && status == BRIM_OK;) {
        const uint8_t *records;
        uint64_t got = 0;
        status = fetch_run(source, s, run < source->count - s ? run : source->count - s, buffer,
                           &records, &got);
        for (uint64_t i = 0; status == BRIM_OK && i < got; i++, s++) {
            const uint8_t *record = records + i * source->pitch;
            int64_t label = -1;
            if (source->field_count > 1) {
                memcpy(&label, record + source->field[1].view.offset, sizeof label);
            }
            add_sample(samples, path_in(record, &source->field[0]), label);
        }
    }
    free(buffer);
    return status;
}

/* ----------------------------------------------------------------- opening */

struct session {
    struct brim__arena arena;
    struct brim__opening opening;
    struct brim__index *indexes;
    struct brim__source source;
    char cache[96];
};

/* budget: NULL, or one that everything is charged to. */
static inline brim_status open_in(struct session *session, const struct test_use *use,
                                  brim_budget *budget) {
    memset(session, 0, sizeof *session);
    memset(&session->source, 0xa5, sizeof session->source);
    brim__arena_init(&session->arena, budget);
    snprintf(session->cache, sizeof session->cache, "%s/cache", tree);
    session->opening = (struct brim__opening){ .arena = &session->arena,
                                               .index_dir = session->cache,
                                               .indexes = &session->indexes };
    return use->use.stage->open(&use->use, &session->opening, &session->source);
}

/* What is known of all images of the first field. */
static inline struct brim__image_bounds all_images(const struct brim__source *source) {
    return brim__image_bounds_within(source->field[0].images, UINT64_MAX);
}

static inline void close_in(struct session *session) {
    if (session->source.ops != NULL) {
        session->source.ops->close(&session->source);
    }
    assert_null(session->source.ops);
    brim__arena_fini(&session->arena);
}

/* "name=value name=value ...", in place of the defaults. */
static inline void use_text(struct test_use *use, char *text) {
    const brim_stage_info *info = &use->use.stage->info;
    char *rest = text;
    for (char *word; (word = strsep(&rest, " ")) != NULL;) {
        char *value = strchr(word, '=');
        if (value == NULL) {
            continue;
        }
        *value = '\0';
        for (size_t i = 0; i < info->argument_count; i++) {
            if (strcmp(brim_stage_argument_at(info, i)->name, word) == 0) {
                use->values[i].count = 0;
            }
        }
        use_set(use, word, value + 1);
    }
}

/* ------------------------------------------------------------------- model */

static inline bool ends_with(const char *name, const char *ending) {
    const size_t a = strlen(name), b = strlen(ending);
    return a > b && strcasecmp(name + a - b, ending) == 0;
}

static inline bool is_image(const char *name) {
    return ends_with(name, ".jpg") || ends_with(name, ".jpeg") || ends_with(name, ".png") ||
           ends_with(name, ".webp");
}

struct pair {
    char *directory, *name;
};
struct pairs {
    struct pair *pair;
    size_t count, room;
};

static inline void walk_model(const char *path, bool recursive, struct pairs *pairs) {
    DIR *directory = opendir(path);
    assert_non_null(directory);
    for (const struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        struct long_path child;
        struct stat facts;
        if (entry->d_name[0] == '.') {
            continue;
        }
        snprintf(child.text, sizeof child.text, "%.3800s/%s", path, entry->d_name);
        if (stat(child.text, &facts) == 0 && S_ISDIR(facts.st_mode)) {
            if (recursive) {
                walk_model(child.text, recursive, pairs);
            }
        } else if (is_image(entry->d_name)) {
            if (pairs->count == pairs->room) {
                pairs->room = pairs->room == 0 ? 64 : 2 * pairs->room;
                pairs->pair = realloc(pairs->pair, pairs->room * sizeof *pairs->pair);
                assert_non_null(pairs->pair);
            }
            pairs->pair[pairs->count++] =
                (struct pair){ .directory = strdup(path), .name = strdup(entry->d_name) };
        }
    }
    closedir(directory);
}

static inline int compare_pairs(const void *a, const void *b) {
    const struct pair *x = a, *y = b;
    const int order = strcmp(x->directory, y->directory);
    return order != 0 ? order : strcmp(x->name, y->name);
}

static inline int compare_texts(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static inline void model_group(const char *path, int64_t label, bool recursive,
                               struct samples *samples) {
    struct pairs pairs = { 0 };
    walk_model(path, recursive, &pairs);
    if (pairs.count > 0) {
        qsort(pairs.pair, pairs.count, sizeof *pairs.pair, compare_pairs);
    }
    for (size_t i = 0; i < pairs.count; i++) {
        struct long_path full;
        snprintf(full.text, sizeof full.text, "%.3800s/%s", pairs.pair[i].directory,
                 pairs.pair[i].name);
        add_sample(samples, full.text, label);
        free(pairs.pair[i].directory);
        free(pairs.pair[i].name);
    }
    free(pairs.pair);
}

/* The samples of roots with classes, and the classes' names as samples. */
static inline void model_classes(const char *const *roots, size_t count, struct samples *classes,
                                 struct samples *samples) {
    for (size_t r = 0; r < count; r++) {
        DIR *directory = opendir(roots[r]);
        assert_non_null(directory);
        for (const struct dirent *entry; (entry = readdir(directory)) != NULL;) {
            struct long_path child;
            struct stat facts;
            snprintf(child.text, sizeof child.text, "%.3800s/%s", roots[r], entry->d_name);
            bool known =
                entry->d_name[0] == '.' || stat(child.text, &facts) != 0 || !S_ISDIR(facts.st_mode);
            for (size_t i = 0; i < classes->count && !known; i++) {
                known = strcmp(classes->path[i], entry->d_name) == 0;
            }
            if (!known) {
                add_sample(classes, entry->d_name, 0);
            }
        }
        closedir(directory);
    }
    if (classes->count > 0) {
        qsort(classes->path, classes->count, sizeof *classes->path, compare_texts);
    }
    for (size_t r = 0; r < count; r++) {
        for (size_t i = 0; i < classes->count; i++) {
            struct long_path child;
            struct stat facts;
            snprintf(child.text, sizeof child.text, "%.3800s/%s", roots[r], classes->path[i]);
            if (stat(child.text, &facts) == 0) {
                model_group(child.text, (int64_t)i, true, samples);
            }
        }
    }
}

/* ----------------------------------------------------------------- folders */

/* A use of `folder` with a root and "name=value ..." */
static inline void folder_use(struct test_use *use, const char *root, const char *options) {
    static char text[512];
    use_init(use, &brim__stage_folder);
    use_set(use, "directories", root);
    snprintf(text, sizeof text, "%s", options);
    use_text(use, text);
}

/* Of most tests: small buffers, which a sanitizer fills faster. */
static brim_budget *little;

static inline int set_up(void **state) {
    little = new_root(MIB);
    return make_tree(state);
}

static inline int tear_down(void **state) {
    brim_budget_free(little);
    return drop_tree(state);
}

static inline brim_status try_folder(const char *root, const char *options, struct samples *samples,
                                     bool *made) {
    struct test_use use;
    struct session session;
    static char held[PATH_MAX];
    snprintf(held, sizeof held, "%s", root);
    folder_use(&use, held, options);
    brim_status status = open_in(&session, &use, little);
    if (status == BRIM_OK) {
        if (made != NULL) {
            assert_non_null(session.indexes);
            *made = session.indexes->made;
        }
        status = take_samples(&session.source, 7, samples);
    } else {
        assert_null(session.source.ops);
    }
    close_in(&session);
    if (little != NULL) {
        assert_int_equal(read_info(little).charged, root_bytes());
    }
    return status;
}

/* Whether the listing is made, and how many samples there are. */
static inline void expect_made(const char *root, const char *options, bool wanted, size_t count) {
    struct samples got = { 0 };
    bool made;
    assert_int_equal(try_folder(root, options, &got, &made), BRIM_OK);
    assert_int_equal(made, wanted);
    assert_int_equal(got.count, count);
    drop_samples(&got);
}

#endif

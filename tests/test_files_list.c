/*
 * test_files_list.c: the source `files`: paths from CSV, TSV and JSON lines, and from
 * the caller.
 */
#include "folder_util.h"

#include "base/fault.h"

static void files_use(struct test_use *use, const char *manifest, const char *options) {
    static char path[PATH_MAX], text[4096];
    use_init(use, &brim__stage_files);
    snprintf(path, sizeof path, "%s", manifest);
    snprintf(text, sizeof text, "%s", options);
    if (manifest[0] != '\0') {
        use_set(use, "manifest", path);
    }
    use_text(use, text);
}

static brim_status open_manifest(struct session *session, const char *manifest,
                                 const char *options) {
    struct test_use use;
    files_use(&use, at(manifest).text, options);
    return open_in(session, &use, NULL);
}

static const struct brim__source_field *field_of(const struct brim__source *source,
                                                 const char *name) {
    for (uint32_t i = 0; i < source->field_count; i++) {
        if (strcmp(source->field[i].name, name) == 0) {
            return &source->field[i];
        }
    }
    fail_msg("no field %s", name);
    return NULL;
}

/* What is known of all images of a field. */
static struct brim__image_bounds bounds_of(const struct brim__source *source, const char *field) {
    assert_non_null(field_of(source, field)->images);
    return brim__image_bounds_within(field_of(source, field)->images, UINT64_MAX);
}

/* The file of a field that needs the most. */
static void expect_most(const struct brim__source *source, const char *field, const char *path) {
    char text[BRIM__SAMPLE_NAME];
    brim_budget *budget = new_root(1 << 20);
    const uint32_t number = (uint32_t)(field_of(source, field) - source->field);
    assert_int_equal(
        source->ops->path(source, bounds_of(source, field).sample, number, budget, text), BRIM_OK);
    assert_string_equal(text, path);
    brim_budget_free(budget);
}

/* Path and, in a field of int64, the number of one sample. */
static void expect_sample(const struct brim__source *source, uint64_t sample, const char *field,
                          const char *path, const char *number_field, int64_t number) {
    uint8_t *buffer = new_buffer(source, source->most_run);
    const uint8_t *records;
    uint64_t got;
    assert_int_equal(fetch_run(source, sample, 1, buffer, &records, &got), BRIM_OK);
    assert_string_equal(path_in(records, field_of(source, field)), path);
    if (number_field != NULL) {
        int64_t found;
        memcpy(&found, records + field_of(source, number_field)->view.offset, sizeof found);
        assert_int_equal(found, number);
    }
    free(buffer);
}

static void put_text(const char *name, const char *text) {
    put(name, text, strlen(text));
}

/* --------------------------------------------------------------- manifests */

static void test_formats(void **state) {
    (void)state;
    static const struct {
        const char *name, *text, *options;
    } manifests[] = {
        { "m/a.csv", "label,image,name\n3,x/1.jpg,\"one, two\"\n4,/abs/2.jpg,b\n", "" },
        { "m/a.tsv", "label\timage\tname\n3\tx/1.jpg\tone, two\n4\t/abs/2.jpg\tb\n", "" },
        { "m/a.NDJSON",
          "{\"label\":3,\"image\":\"x/1.jpg\",\"name\":\"one, two\"}\n"
          "{\"label\":4,\"image\":\"/abs/2.jpg\",\"name\":\"b\"}\n",
          "" },
        { "m/a.list", "label,image,name\n3,x/1.jpg,\"one, two\"\n4,/abs/2.jpg,b\n", "format=csv" },
        { "m/b.csv", "1,x/1.jpg,z\n3,x/1.jpg,a\n4,/abs/2.jpg,b\n", "path=c1" },
    };
    const struct long_path first = at("m/x/1.jpg"), root = at("elsewhere");
    for (size_t i = 0; i < BRIM__COUNT(manifests); i++) {
        struct session session;
        const bool bare = i == 4;
        const char *path = bare ? "c1" : "image", *label = bare ? "c0" : "label";
        put_text(manifests[i].name, manifests[i].text);
        assert_int_equal(open_manifest(&session, manifests[i].name, manifests[i].options), BRIM_OK);
        const struct brim__source *source = &session.source;
        assert_int_equal(source->count, bare ? 3 : 2);
        assert_int_equal(source->field_count, 3);
        const struct brim__source_field *field = field_of(source, path);
        assert_true(field->deferred && field->form == BRIM_FORM_BYTES && field->images == NULL);
        expect_sample(source, bare, path, first.text, label, 3);
        expect_sample(source, bare + 1, path, "/abs/2.jpg", label, 4);
        assert_int_equal(field_of(source, bare ? "c2" : "name")->form, BRIM_FORM_TEXT);
        /* several at once: spans of the other columns stay right */
        uint8_t *buffer = new_buffer(source, 2);
        const uint8_t *records;
        uint64_t got;
        assert_int_equal(fetch_run(source, bare, 2, buffer, &records, &got), BRIM_OK);
        assert_int_equal(got, 2);
        struct brim__span span;
        memcpy(&span, records + source->pitch + source->field[2].view.offset, sizeof span);
        assert_int_equal(span.count, 1);
        assert_memory_equal(span.data, "b", 1);
        assert_string_equal(path_in(records, field), first.text);
        free(buffer);
        char text[PATH_MAX + 64];
        source->ops->describe(source, 1, text, sizeof text);
        assert_non_null(strstr(text, "record 1"));
        close_in(&session);
        char options[PATH_MAX + 64];
        snprintf(options, sizeof options, "%s root=%s probe=no", manifests[i].options, root.text);
        assert_int_equal(open_manifest(&session, manifests[i].name, options), BRIM_OK);
        expect_sample(&session.source, bare, path, at("elsewhere/x/1.jpg").text, label, 3);
        assert_int_equal(field_of(&session.source, path)->view.shape.dim[0], UINT32_MAX);
        close_in(&session);
    }
}

static void test_several_paths_and_columns(void **state) {
    (void)state;
    put_image("s/1.png", 30, 40);
    put_image("s/mask/1.png", 7, 9);
    put_text("s/m.csv", "image,weight,mask,extra\n1.png,0.5,mask/1.png,z\n");
    struct session session;
    assert_int_equal(open_manifest(&session, "s/m.csv", "path=image columns=mask"), BRIM_OK);
    assert_int_equal(session.source.field_count, 2);
    close_in(&session);
    struct test_use use;
    files_use(&use, at("s/m.csv").text, "");
    use_set(&use, "path", "image");
    use_set(&use, "path", "mask");
    use_set(&use, "types", "weight:float32");
    for (int again = 0; again < 2; again++) {
        assert_int_equal(open_in(&session, &use, NULL), BRIM_OK);
        const struct brim__source *source = &session.source;
        expect_sample(source, 0, "image", at("s/1.png").text, NULL, 0);
        expect_sample(source, 0, "mask", at("s/mask/1.png").text, NULL, 0);
        assert_int_equal(field_of(source, "weight")->view.dtype, BRIM_DTYPE_F32);
        assert_int_equal(bounds_of(source, "image").width, 30);
        assert_int_equal(bounds_of(source, "mask").height, 9);
        expect_most(source, "image", at("s/1.png").text);
        expect_most(source, "mask", at("s/mask/1.png").text);
        close_in(&session);
    }
    use_set(&use, "path", "image");
    assert_int_equal(open_in(&session, &use, NULL), BRIM_STATUS_INVALID);
    close_in(&session);
}

/* What was found out is kept as long as the manifest stays as it is. */
static void test_probe_is_kept(void **state) {
    (void)state;
    put_image("k/1.png", 30, 40);
    put_text("k/no.jpg", "no image");
    put_text("k/m.csv", "file\n1.png\nno.jpg\nnowhere.jpg\n");
    struct session session;
    for (int round = 0; round < 3; round++) {
        if (round == 1) {
            put_image("k/1.png", 300, 400); /* not noticed, as is said */
        } else if (round == 2) {
            put_text("k/m.csv", "file\n1.png\nno.jpg\nnowhere.jpg\n1.png\n");
        }
        assert_int_equal(open_manifest(&session, "k/m.csv", ""), BRIM_OK);
        assert_int_equal(bounds_of(&session.source, "file").width, round == 2 ? 300 : 30);
        expect_most(&session.source, "file", at("k/1.png").text);
        close_in(&session);
    }
    assert_int_equal(open_manifest(&session, "k/m.csv", "index=beside"), BRIM_OK);
    close_in(&session);
    const struct long_path page = only_file("k", "m.csv.files-", ".brimprb");
    /* whatever becomes of that page, it is found out anew */
    for (off_t byte = 0; byte < 8192; byte += 61) {
        const int fd = open(page.text, O_RDWR | O_CLOEXEC);
        uint8_t value;
        assert_int_equal(pread(fd, &value, 1, byte), 1);
        value ^= 16;
        assert_int_equal(pwrite(fd, &value, 1, byte), 1);
        close(fd);
        assert_int_equal(open_manifest(&session, "k/m.csv", "index=beside"), BRIM_OK);
        assert_int_equal(bounds_of(&session.source, "file").width, 300);
        close_in(&session);
    }
}

/* A page with a right hash that says what cannot be. */
static void test_forged_bounds(void **state) {
    (void)state;
    put_image("g/1.png", 30, 40);
    put_text("g/m.csv", "file\n1.png\n");
    struct session session;
    for (size_t place = 8; place < 8 + sizeof(struct brim__probed); place += 4) {
        static const uint32_t values[] = { 0, UINT32_MAX };
        for (size_t v = 0; v < BRIM__COUNT(values); v++) {
            uint8_t bytes[BRIM__INDEX_PAGE];
            assert_int_equal(open_manifest(&session, "g/m.csv", "index=beside"), BRIM_OK);
            close_in(&session);
            const struct long_path page = only_file("g", "m.csv.files-", ".brimprb");
            const int fd = open(page.text, O_RDWR | O_CLOEXEC);
            assert_int_equal(pread(fd, bytes, sizeof bytes, sizeof bytes), sizeof bytes);
            memcpy(bytes + place, &values[v], sizeof values[v]);
            brim__index_seal(bytes, 0);
            assert_int_equal(pwrite(fd, bytes, sizeof bytes, sizeof bytes), sizeof bytes);
            close(fd);
            assert_int_equal(open_manifest(&session, "g/m.csv", "index=beside"), BRIM_OK);
            if (field_of(&session.source, "file")->images != NULL) {
                const struct brim__image_bounds images = bounds_of(&session.source, "file");
                assert_true(images.width >= 30 && images.height >= 40);
                assert_int_equal(images.pixels, 1200);
                assert_true(images.memory < BRIM__PROBED_BYTES &&
                            images.outside < BRIM__PROBED_BYTES);
            }
            close_in(&session);
            assert_int_equal(unlink(page.text), 0);
        }
    }
}

/* The same words mean another directory elsewhere: nothing may be remembered by them. */
static void test_roots_are_what_they_mean(void **state) {
    (void)state;
    char here[PATH_MAX];
    struct session session;
    put_image("one/photos/1.png", 30, 40);
    put_image("two/photos/1.png", 500, 40);
    put_text("r.csv", "file\n1.png\n");
    assert_non_null(getcwd(here, sizeof here));
    for (int i = 0; i < 4; i++) {
        const struct long_path from = at(i % 2 == 0 ? "one" : "two");
        assert_int_equal(chdir(from.text), 0);
        assert_int_equal(open_manifest(&session, "r.csv", "root=photos"), BRIM_OK);
        assert_int_equal(bounds_of(&session.source, "file").width, i % 2 == 0 ? 30 : 500);
        assert_int_equal(chdir("/"), 0);
        expect_sample(&session.source, 0, "file",
                      at(i % 2 == 0 ? "one/photos/1.png" : "two/photos/1.png").text, NULL, 0);
        close_in(&session);
    }
    /* beside the manifest there is one page for each of the two */
    assert_int_equal(chdir(at("one").text), 0);
    assert_int_equal(open_manifest(&session, "r.csv", "root=photos index=beside"), BRIM_OK);
    close_in(&session);
    assert_int_equal(chdir(at("two").text), 0);
    const struct long_path first = only_file(".", "r.csv.files-", ".brimprb");
    assert_int_equal(open_manifest(&session, "r.csv", "root=photos index=beside"), BRIM_OK);
    close_in(&session);
    assert_int_equal(unlink(first.text), 0);
    assert_string_not_equal(only_file(".", "r.csv.files-", ".brimprb").text, first.text);
    assert_int_equal(chdir(here), 0);
}

static void test_bad_manifests(void **state) {
    (void)state;
    struct session session;
    put_text("b/none.csv", "label,name\n1,a\n");
    put_text("b/what.dat", "path\na\n");
    put_text("b/bad.csv", "path,n\na.jpg,1\n\"\",2\nb.jpg,3\n");
    static const struct {
        const char *name, *options;
        brim_status status;
        const char *part;
    } cases[] = {
        { "b/none.csv", "", BRIM_STATUS_INVALID,
          "give path= with the column that has the paths (label" },
        { "b/none.csv", "path=photo", BRIM_STATUS_INVALID, "photo" },
        { "b/what.dat", "", BRIM_STATUS_INVALID, "format=csv" },
        { "b/absent.csv", "", BRIM_STATUS_IO, "absent.csv" },
    };
    for (size_t i = 0; i < BRIM__COUNT(cases); i++) {
        assert_int_equal(open_manifest(&session, cases[i].name, cases[i].options), cases[i].status);
        assert_detail_has(cases[i].part);
        close_in(&session);
    }
    struct test_use use;
    files_use(&use, "", "");
    assert_int_equal(open_in(&session, &use, NULL), BRIM_STATUS_INVALID);
    assert_detail_has("manifest or list");
    close_in(&session);
    files_use(&use, "-", "format=csv path=x");
    assert_int_equal(open_in(&session, &use, NULL), BRIM_STATUS_UNSUPPORTED);
    close_in(&session);
    /* an empty path is a bad sample alone */
    assert_int_equal(open_manifest(&session, "b/bad.csv", ""), BRIM_OK);
    uint8_t *buffer = new_buffer(&session.source, session.source.most_run);
    const uint8_t *records;
    uint64_t got;
    assert_int_equal(fetch_run(&session.source, 0, 3, buffer, &records, &got), BRIM_OK);
    assert_int_equal(got, 1);
    assert_int_equal(fetch_run(&session.source, 1, 2, buffer, &records, &got), BRIM_STATUS_CORRUPT);
    assert_detail_has("empty");
    assert_int_equal(fetch_run(&session.source, 2, 1, buffer, &records, &got), BRIM_OK);
    free(buffer);
    close_in(&session);
}

static void test_long_and_odd_paths(void **state) {
    (void)state;
    static char text[5000];
    memcpy(text, "path\n\"new\nline.jpg\"\n\xff\xfe.jpg\n", 27);
    memset(text + 27, 'p', 4500);
    text[4527] = '\n';
    put("o/m.csv", text, 4528);
    struct session session;
    assert_int_equal(open_manifest(&session, "o/m.csv", ""), BRIM_OK);
    expect_sample(&session.source, 0, "path", at("o/new\nline.jpg").text, NULL, 0);
    expect_sample(&session.source, 1, "path", at("o/\xff\xfe.jpg").text, NULL, 0);
    uint8_t *buffer = new_buffer(&session.source, 1);
    const uint8_t *records;
    uint64_t got;
    assert_int_equal(fetch_run(&session.source, 2, 1, buffer, &records, &got), BRIM_STATUS_CORRUPT);
    assert_detail_has("4095");
    free(buffer);
    close_in(&session);
}

static void test_faults(void **state) {
    (void)state;
    put_image("f/1.png", 30, 40);
    put_text("f/m.csv", "path,n\n1.png,1\n1.png,2\n");
    const size_t descriptors = open_descriptors();
    for (unsigned kind = 0; kind < BRIM__FAULT_KINDS; kind++) {
        for (uint64_t nth = 1;; nth++) {
            struct session session;
            remove_tree(at("cache").text);
            brim__fault_arm(1u << kind, nth, false);
            const brim_status status = open_manifest(&session, "f/m.csv", "");
            const uint64_t injected = brim__fault_injected();
            brim__fault_arm(0, 0, false);
            if (status == BRIM_OK) {
                expect_sample(&session.source, 1, "path", at("f/1.png").text, "n", 2);
                assert_int_equal(all_images(&session.source).width, 30);
            } else {
                assert_true(injected > 0);
                assert_int_equal(status,
                                 kind <= BRIM__FAULT_MAP ? BRIM_STATUS_MEMORY : BRIM_STATUS_IO);
            }
            close_in(&session);
            assert_int_equal(open_descriptors(), descriptors);
            assert_int_equal(open_manifest(&session, "f/m.csv", ""), BRIM_OK);
            assert_int_equal(all_images(&session.source).width, 30);
            close_in(&session);
            if (injected == 0) {
                break;
            }
        }
    }
}

/* ------------------------------------------------------------------- lists */

static brim_status open_list(struct opened *opened, const char *const *paths, const int64_t *labels,
                             uint64_t count, const char *options) {
    struct test_use use;
    brim_binding binding = BRIM_BINDING_INIT;
    binding.kind = BRIM_BINDING_FILES;
    binding.name = "mine";
    binding.paths = paths;
    binding.labels = labels;
    binding.count = count;
    files_use(&use, "", options);
    use_set(&use, "list", "mine");
    return open_use(opened, &use, &binding, 1);
}

static void test_a_callers_list(void **state) {
    (void)state;
    put_image("c/1.png", 30, 40);
    put_image("c/2.png", 60, 10);
    const struct long_path first = at("c/1.png"), root = at("c");
    const char *const paths[] = { first.text, "2.png", "nowhere.png" };
    const int64_t labels[] = { 5, -1, 7 };
    struct opened opened;
    assert_int_equal(open_list(&opened, paths, labels, 3, ""), BRIM_OK);
    assert_int_equal(opened.source.count, 3);
    expect_sample(&opened.source, 0, "image", first.text, "label", 5);
    expect_sample(&opened.source, 1, "image", "2.png", "label", -1);
    assert_null(opened.source.field[0].images);
    assert_int_equal(opened.source.field[0].view.shape.dim[0], UINT32_MAX);
    const uint64_t identity = opened.source.identity;
    close_opened(&opened);
    char options[PATH_MAX + 64];
    snprintf(options, sizeof options, "root=%s probe=yes field=x label=y", root.text);
    assert_int_equal(open_list(&opened, paths, labels, 3, options), BRIM_OK);
    expect_sample(&opened.source, 0, "x", first.text, "y", 5);
    expect_sample(&opened.source, 1, "x", at("c/2.png").text, "y", -1);
    assert_int_equal(all_images(&opened.source).width, 60);
    assert_int_equal(all_images(&opened.source).height, 40);
    char text[PATH_MAX];
    opened.source.ops->describe(&opened.source, 1, text, sizeof text);
    assert_string_equal(text, at("c/2.png").text);
    close_opened(&opened);
    assert_int_equal(open_list(&opened, paths, NULL, 3, ""), BRIM_OK);
    assert_int_equal(opened.source.field_count, 1);
    assert_true(opened.source.identity != identity);
    close_opened(&opened);
}

static void test_bad_lists(void **state) {
    (void)state;
    const char *const paths[] = { "a", NULL, "b" };
    struct opened opened;
    assert_int_equal(open_list(&opened, paths, NULL, 3, ""), BRIM_STATUS_INVALID);
    assert_detail_has("path 1 of 3 is NULL");
    close_opened(&opened);
    assert_int_equal(open_list(&opened, paths, NULL, 0, ""), BRIM_STATUS_INVALID);
    assert_detail_has("empty");
    close_opened(&opened);
    assert_int_equal(open_list(&opened, paths, (const int64_t[]){ 1 }, 1, "field=a label=a"),
                     BRIM_STATUS_INVALID);
    assert_detail_has("both 'a'");
    close_opened(&opened);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_formats),
        cmocka_unit_test(test_several_paths_and_columns),
        cmocka_unit_test(test_probe_is_kept),
        cmocka_unit_test(test_forged_bounds),
        cmocka_unit_test(test_roots_are_what_they_mean),
        cmocka_unit_test(test_bad_manifests),
        cmocka_unit_test(test_long_and_odd_paths),
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_a_callers_list),
        cmocka_unit_test(test_bad_lists),
    };
    return cmocka_run_group_tests_name("files_list", tests, make_tree, drop_tree);
}

/*
 * test_folder.c: the source `folder` against a model of torchvision's ImageFolder.
 *
 * The model walks the tree by itself, holds everything in memory and sorts pairs of
 * directory and name. How changes are noticed is test_folder_changes.c's business; what
 * happens when memory is short, calls fail or files are damaged is test_folder_faults.c's.
 */
#include "folder_util.h"

#include <sys/wait.h>

static void assert_folder(const char *root, const char *options, const struct samples *wanted) {
    struct samples samples = { 0 };
    assert_int_equal(try_folder(root, options, &samples, NULL), BRIM_OK);
    assert_same_samples(&samples, wanted);
    drop_samples(&samples);
}

static void assert_refused(const char *name, const char *options, brim_status status,
                           const char *part) {
    struct samples samples = { 0 };
    assert_int_equal(try_folder(at(name).text, options, &samples, NULL), status);
    assert_detail_has(part);
    drop_samples(&samples);
}

/* ------------------------------------------------------------------- order */

static void test_order_and_labels(void **state) {
    (void)state;
    static const char *const names[] = {
        "a/b/1.jpg",
        "a/b-c/1.jpg",
        "a/b/d/1.jpg",
        "a/b.jpg",
        "a/B.JPG",
        "a/z.PNG",
        "a/0.webp",
        "a/b0/1.jpeg",
        "a/note.txt",
        "a/.hidden.jpg",
        "a/.git/x.jpg",
        "B/one.jpg",
        "with space/it's.jpg",
        "n\new/l\n.jpg",
        "b\xff/\xfe\x80.jpg",
        "a/\xc3\xa9.jpg",
        "10/x.jpg",
        "9/x.jpg",
        ".cache/x.jpg",
        "loose.jpg",
        "a/jpg",
        "a/x.jpg.gz",
        "a/b/d/e/f/g/h.jpg",
        "a/b/d.e/1.jpg",
    };
    for (size_t i = 0; i < BRIM__COUNT(names); i++) {
        char name[64];
        snprintf(name, sizeof name, "t/%s", names[i]);
        put(name, "x", 1);
    }
    char most[300] = "t/a/";
    memset(most + 4, 'q', 251);
    memcpy(most + 255, ".jpg", 5);
    put(most, "x", 1);
    const struct long_path root = at("t");
    const char *const roots[] = { root.text };
    struct samples classes = { 0 }, wanted = { 0 }, flat = { 0 };
    model_classes(roots, 1, &classes, &wanted);
    assert_true(wanted.count > 15 && classes.count == 7);
    for (int again = 0; again < 2; again++) {
        struct test_use use;
        struct session session;
        struct samples got = { 0 };
        folder_use(&use, root.text, "field=picture label=kind");
        assert_int_equal(open_in(&session, &use, NULL), BRIM_OK);
        const struct brim__source *source = &session.source;
        assert_int_equal(source->count, wanted.count);
        assert_int_equal(source->field_count, 2);
        assert_string_equal(source->field[0].name, "picture");
        assert_true(source->field[0].deferred && source->field[0].form == BRIM_FORM_BYTES);
        assert_int_equal(source->field[0].view.shape.dim[0], 1);
        assert_null(source->field[0].images);
        assert_string_equal(source->field[1].name, "kind");
        assert_int_equal(source->field[1].class_count, classes.count);
        for (size_t i = 0; i < classes.count; i++) {
            assert_string_equal(source->field[1].class_names[i], classes.path[i]);
        }
        assert_int_equal(session.indexes->made, again == 0);
        assert_int_equal(take_samples(source, 1 + (uint64_t)again * 100, &got), BRIM_OK);
        assert_same_samples(&got, &wanted);
        char text[PATH_MAX];
        source->ops->describe(source, 3, text, sizeof text);
        assert_string_equal(text, wanted.path[3]);
        drop_samples(&got);
        close_in(&session);
    }
    model_group(root.text, -1, true, &flat);
    assert_folder(root.text, "classes=no", &flat);
    drop_samples(&flat);
    model_group(root.text, -1, false, &flat);
    assert_int_equal(flat.count, 1);
    assert_folder(root.text, "classes=no recursive=no", &flat);
    /* with any there is the text, and what has no ending */
    struct samples all = { 0 };
    assert_int_equal(try_folder(root.text, "extensions=any", &all, NULL), BRIM_OK);
    assert_int_equal(all.count, wanted.count + 3);
    drop_samples(&all);
    assert_int_equal(try_folder(root.text, "extensions=.GZ,txt allow_empty=yes", &all, NULL),
                     BRIM_OK);
    assert_int_equal(all.count, 2);
    drop_samples(&all);
    drop_samples(&flat);
    drop_samples(&classes);
    drop_samples(&wanted);
}

static void test_several_roots(void **state) {
    (void)state;
    put("r1/cat/1.jpg", "x", 1);
    put("r1/dog/2.jpg", "x", 1);
    put("r2/ape/3.jpg", "xyz", 3);
    put("r2/cat/0.jpg", "x", 1);
    const struct long_path a = at("r1/"), b = at("r2");
    const struct long_path plain = at("r1");
    const char *const roots[] = { plain.text, b.text };
    struct samples classes = { 0 }, wanted = { 0 }, got = { 0 };
    struct test_use use;
    struct session session;
    model_classes(roots, 2, &classes, &wanted);
    assert_int_equal(wanted.label[0], 1);
    folder_use(&use, a.text, "");
    use_set(&use, "directories", b.text);
    assert_int_equal(open_in(&session, &use, NULL), BRIM_OK);
    assert_int_equal(session.source.field[1].class_count, 3);
    assert_int_equal(session.source.field[0].view.shape.dim[0], 3);
    assert_int_equal(take_samples(&session.source, 100, &got), BRIM_OK);
    assert_same_samples(&got, &wanted);
    const uint64_t identity = session.source.identity;
    close_in(&session);
    drop_samples(&got);
    /* moved elsewhere the data are the same, with another label they are not */
    assert_int_equal(rename(at("r1").text, at("moved").text), 0);
    const struct long_path moved = at("moved");
    folder_use(&use, moved.text, "probe=no index=beside");
    use_set(&use, "directories", b.text);
    assert_int_equal(open_in(&session, &use, NULL), BRIM_OK);
    assert_int_equal(session.source.identity, identity);
    assert_int_equal(access(only_file(".", "moved.folder-", ".brimlst").text, R_OK), 0);
    close_in(&session);
    put("r2/ape/3.jpg", "xy", 2);
    put("r2/ape/4.txt", "x", 1); /* a size alone is not noticed */
    assert_int_equal(open_in(&session, &use, NULL), BRIM_OK);
    assert_true(session.source.identity != identity);
    close_in(&session);
    drop_samples(&wanted);
    drop_samples(&classes);
}

static void test_class_names_of_a_plan(void **state) {
    (void)state;
    put("n/dog/1.jpg", "x", 1);
    put("n/cat/1.jpg", "x", 1);
    const struct long_path root = at("n"), cache = at("cache");
    char text[PATH_MAX + 64];
    snprintf(text, sizeof text, "folder %s label=kind | batch 2", root.text);
    brim_runtime_options options = BRIM_RUNTIME_OPTIONS_INIT;
    brim_runtime *runtime;
    brim_pipeline *pipeline;
    brim_plan *plan;
    options.host_bytes = 16 * MIB;
    options.threads = 0;
    options.index_dir = cache.text;
    assert_int_equal(brim_runtime_new(&options, &runtime), BRIM_OK);
    assert_int_equal(brim_pipeline_parse(text, &pipeline), BRIM_OK);
    assert_int_equal(brim_plan_new(runtime, pipeline, NULL, &plan), BRIM_OK);
    assert_int_equal(brim_plan_class_count(plan, "kind"), 2);
    assert_string_equal(brim_plan_class_name(plan, "kind", 0), "cat");
    assert_string_equal(brim_plan_class_name(plan, "kind", 1), "dog");
    assert_null(brim_plan_class_name(plan, "kind", 2));
    assert_int_equal(brim_plan_class_count(plan, "image"), 0);
    assert_null(brim_plan_class_name(plan, NULL, 0));
    assert_int_equal(brim_plan_verify(plan, NULL, NULL), BRIM_OK);
    assert_string_equal(brim_plan_index_at(plan, 0)->data_path, root.text);
    brim_plan_free(plan);
    brim_pipeline_free(pipeline);
    brim_runtime_free(runtime);
}

/* ------------------------------------------------------------------- links */

static void test_links_and_loops(void **state) {
    (void)state;
    put("l/a/1.jpg", "x", 1);
    put("l/a/deep/2.jpg", "x", 1);
    put("elsewhere/3.jpg", "x", 1);
    link_to("../../elsewhere", "l/a/linked");
    link_to("1.jpg", "l/a/same.jpg");
    link_to("nowhere", "l/a/dangling.jpg");
    link_to("../../a", "l/a/deep/up");
    link_to(".", "l/a/self");
    link_to("self-loop.jpg", "l/a/self-loop.jpg");
    link_to("a", "l/class");
    assert_int_equal(mkfifo(at("l/a/pipe.jpg").text, 0600), 0);
    static const char *const wanted[] = {
        "a/1.jpg",        "a/dangling.jpg",      "a/same.jpg",       "a/self-loop.jpg",
        "a/deep/2.jpg",   "a/linked/3.jpg",      "class/1.jpg",      "class/dangling.jpg",
        "class/same.jpg", "class/self-loop.jpg", "class/deep/2.jpg", "class/linked/3.jpg",
    };
    struct samples got = { 0 };
    assert_int_equal(try_folder(at("l").text, "", &got, NULL), BRIM_OK);
    assert_int_equal(got.count, BRIM__COUNT(wanted));
    for (size_t i = 0; i < got.count; i++) {
        char name[64];
        snprintf(name, sizeof name, "l/%s", wanted[i]);
        assert_string_equal(got.path[i], at(name).text);
    }
    drop_samples(&got);
    assert_int_equal(try_folder(at("l").text, "links=no", &got, NULL), BRIM_OK);
    assert_int_equal(got.count, 2);
    drop_samples(&got);
}

/* Directories that link to each other have as many paths as the links have orders. */
static void test_links_that_multiply(void **state) {
    (void)state;
    for (int i = 0; i < 7; i++) {
        char name[32], target[32];
        snprintf(name, sizeof name, "m/%d/%d.jpg", i, i);
        put(name, "x", 1);
        for (int j = 0; j < 7; j++) {
            snprintf(name, sizeof name, "m/%d/to%d", i, j);
            snprintf(target, sizeof target, "../%d", j);
            if (i != j) {
                link_to(target, name);
            }
        }
    }
    assert_refused("m", "probe=no", BRIM_STATUS_INVALID, "again and again");
    assert_refused("m", "probe=no classes=no", BRIM_STATUS_INVALID, "links=no");
    struct samples got = { 0 };
    assert_int_equal(try_folder(at("m").text, "probe=no links=no", &got, NULL), BRIM_OK);
    assert_int_equal(got.count, 7);
    drop_samples(&got);
    /* many links to one directory, or to many, are nobody's mistake */
    put("s/shared/sub/x.jpg", "x", 1);
    for (int i = 0; i < 1500; i++) {
        char name[32];
        snprintf(name, sizeof name, "s/all/%d/y.jpg", i);
        put(name, "x", 1);
        snprintf(name, sizeof name, "s/all/%d/z", i);
        link_to("../../shared", name);
        snprintf(name, sizeof name, "s/other%d", i);
        link_to("all/0", name);
    }
    const struct long_path shared = at("s/all"), links = at("s");
    assert_int_equal(try_folder(shared.text, "probe=no classes=no", &got, NULL), BRIM_OK);
    assert_int_equal(got.count, 3000);
    drop_samples(&got);
    assert_int_equal(try_folder(links.text, "probe=no", &got, NULL), BRIM_OK);
    assert_int_equal(got.count, 1 + 3000 + 3000);
    drop_samples(&got);
}

/* However many there are, each is known again, and only in its own class. */
static void test_links_are_remembered(void **state) {
    (void)state;
    struct brim__links links = { 0 };
    for (uint64_t round = 0; round < 3; round++) {
        for (uint64_t i = 1; i <= 5000; i++) {
            const struct brim__entry entry = {
                .name = "x", .directory = true, .link = true, .facts = { .device = 1, .inode = i }
            };
            bool again;
            assert_int_equal(
                brim__links_enter(&links, &entry, round / 2, false, "root", NULL, &again), BRIM_OK);
            assert_int_equal(again, round == 1);
        }
    }
    assert_int_equal(links.count, 10000);
    assert_int_equal(links.again, 5000);
    brim__links_fini(&links);
}

/* A relative directory means what it meant at the opening, wherever the process goes. */
static void test_relative_directories(void **state) {
    (void)state;
    char here[PATH_MAX], text[PATH_MAX];
    struct test_use use;
    struct session session;
    struct samples got = { 0 };
    put("relative/a/1.jpg", "x", 1);
    put_image("relative/a/2.png", 30, 20);
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(chdir(tree), 0);
    folder_use(&use, "relative", "");
    assert_int_equal(open_in(&session, &use, NULL), BRIM_OK);
    assert_int_equal(chdir("/"), 0);
    assert_int_equal(take_samples(&session.source, 7, &got), BRIM_OK);
    assert_string_equal(got.path[0], at("relative/a/1.jpg").text);
    session.source.ops->describe(&session.source, 0, text, sizeof text);
    assert_string_equal(text, "relative/a/1.jpg");
    char most[BRIM__SAMPLE_NAME];
    assert_int_equal(session.source.ops->path(&session.source, all_images(&session.source).sample,
                                              0, NULL, most),
                     BRIM_OK);
    assert_string_equal(most, "relative/a/2.png");
    session.source.ops->describe(&session.source, 0, text, 12); /* the end says most */
    assert_string_equal(text, ".../a/1.jpg");
    session.source.ops->describe(&session.source, 0, text, 8);
    assert_string_equal(text, "....jpg");
    close_in(&session);
    drop_samples(&got);
    assert_int_equal(chdir(here), 0);
}

static void test_what_is_left_out_is_said(void **state) {
    (void)state;
    struct test_use use;
    struct session session;
    put_image("o/a/1.png", 3, 4);
    put("o/a/2.png", "none", 4);
    put_image("o/loose.png", 3, 4);
    put("o/loose.txt", "x", 1);
    const struct long_path root = at("o");
    static const struct {
        const char *options, *note;
    } cases[] = {
        { "", "; 1 image beside the classes is left out; 1 is no image" },
        { "probe=no", "; 1 image beside the classes is left out" },
        { "classes=no recursive=no", NULL },
        { "classes=no extensions=any", "; 2 are no images" },
    };
    for (size_t i = 0; i < 2 * BRIM__COUNT(cases); i++) {
        folder_use(&use, root.text, cases[i / 2].options);
        assert_int_equal(open_in(&session, &use, NULL), BRIM_OK);
        if (cases[i / 2].note == NULL) {
            assert_null(session.source.note);
        } else {
            assert_string_equal(session.source.note, cases[i / 2].note);
        }
        close_in(&session);
    }
}

/* ------------------------------------------------------------------- probe */

static void test_probe(void **state) {
    (void)state;
    put_image("p/a/wide.png", 900, 20);
    put_image("p/a/tall.png", 30, 1000);
    put_image("p/b/most.png", 300, 200);
    put("p/b/none.png", "this is no image", 16);
    put("p/b/empty.jpg", "", 0);
    link_to("nowhere", "p/b/dangling.jpg");
    const struct long_path root = at("p");
    for (int again = 0; again < 2; again++) {
        struct test_use use;
        struct session session;
        folder_use(&use, root.text, "");
        assert_int_equal(open_in(&session, &use, NULL), BRIM_OK);
        assert_non_null(session.source.field[0].images);
        const struct brim__image_bounds all = all_images(&session.source), *images = &all;
        assert_int_equal(images->width, 900);
        assert_int_equal(images->height, 1000);
        assert_int_equal(images->pixels, 60000);
        assert_true(images->memory + images->outside > 0 && images->needs > 0);
        assert_false(images->turned);
        /* the neediest is one of them, and needs what is said */
        struct brim__file file;
        struct brim__input input;
        struct brim__image_info info;
        static uint8_t window[BRIM__INPUT_WINDOW];
        char path[BRIM__SAMPLE_NAME];
        assert_int_equal(session.source.ops->path(&session.source, images->sample, 0, NULL, path),
                         BRIM_OK);
        assert_int_equal(brim__file_open(&file, path), BRIM_OK);
        brim__input_file(&input, &file, 0, file.bytes, window);
        assert_int_equal(brim__image_info(&input, true, &info), BRIM_OK);
        assert_int_equal(info.memory + info.outside, images->needs);
        brim__file_close(&file);
        assert_true(session.source.field[0].view.shape.dim[0] > 16);
        assert_int_equal(session.source.count, 6);
        close_in(&session);
        folder_use(&use, root.text, "probe=no");
        assert_int_equal(open_in(&session, &use, NULL), BRIM_OK);
        assert_null(session.source.field[0].images);
        close_in(&session);
    }
}

static void test_bounds_name_the_neediest(void **state) {
    (void)state;
    struct brim__image_band bands[BRIM__IMAGE_BANDS] = { 0 };
    const struct brim__image_survey survey = { .band = bands, .count = 1 };
    struct brim__image_info info = { .width = 10, .height = 10, .orientation = 1, .outside = 80 };
    brim__image_bands_add(bands, &info, 5);
    info = (struct brim__image_info){ .width = 5, .height = 40, .orientation = 6, .memory = 60 };
    brim__image_bands_add(bands, &info, 6); /* needs less in all */
    struct brim__image_bounds bounds = brim__image_bounds_within(&survey, UINT64_MAX);
    assert_int_equal(bounds.images, 2);
    assert_int_equal(bounds.memory, 60);
    assert_int_equal(bounds.outside, 80);
    assert_int_equal(bounds.width, 10);
    assert_int_equal(bounds.height, 40);
    assert_int_equal(bounds.pixels, 200);
    assert_true(bounds.turned);
    assert_int_equal(bounds.sample, 5);
    assert_int_equal(bounds.needs, 80);
    info.memory = 81;
    brim__image_bands_add(bands, &info, 7);
    assert_int_equal(brim__image_bounds_within(&survey, UINT64_MAX).sample, 7);
}

/* Whatever the bound, what is above it counts for nothing; exactly so at the ends of bands. */
static void test_bounds_of_any_number_of_pixels(void **state) {
    (void)state;
    static const struct {
        uint32_t width, height;
    } sizes[] = { { 1, 1 },         { 256, 256 },     { 257, 256 },     { 320, 256 },
                  { 1000, 1000 },   { 1024, 1024 },   { 8000, 5000 },   { 10000, 8948 },
                  { 10000, 17895 }, { 10000, 17896 }, { 65535, 65535 }, { 65500, 65500 } };
    struct brim__image_band bands[BRIM__IMAGE_BANDS] = { 0 };
    struct brim__image_band kept[BRIM__IMAGE_BANDS];
    struct brim__image_survey survey = { .band = kept };
    for (uint64_t i = 0; i < BRIM__COUNT(sizes); i++) {
        const struct brim__image_info info = {
            .width = sizes[i].width,
            .height = sizes[i].height,
            .orientation = 1,
            .memory = (uint64_t)sizes[i].width * sizes[i].height * 6,
        };
        brim__image_bands_add(bands, &info, i);
    }
    for (uint32_t i = 0; i < BRIM__IMAGE_BANDS; i++) {
        assert_true(brim__image_band_plausible(&bands[i], i, BRIM__COUNT(sizes), UINT64_MAX));
        if (bands[i].images > 0) {
            kept[survey.count++] = bands[i];
        }
    }
    static const uint64_t bounds[] = { 65536, 87381, 1 << 20, 89478485, 178956970, UINT64_MAX };
    for (uint32_t b = 0; b < BRIM__COUNT(bounds); b++) {
        const struct brim__image_bounds got = brim__image_bounds_within(&survey, bounds[b]);
        uint64_t most = 0, over = 0;
        for (uint32_t i = 0; i < BRIM__COUNT(sizes); i++) {
            const uint64_t pixels = (uint64_t)sizes[i].width * sizes[i].height;
            over += pixels > bounds[b];
            most = pixels > bounds[b] ? most : brim__max(most, pixels);
        }
        assert_int_equal(got.pixels, most);
        assert_int_equal(got.memory, most * 6);
        assert_int_equal(got.needs, most * 6);
        assert_int_equal(got.over, over);
        assert_int_equal(got.images, BRIM__COUNT(sizes) - over);
    }
    /* a bound inside a band: all of it counts, but no image is thought larger than allowed */
    struct brim__image_bounds got = brim__image_bounds_within(&survey, 1000001);
    assert_int_equal(got.pixels, 1000001);
    assert_int_equal(got.memory, 6 << 20);
    got = brim__image_bounds_within(&survey, 999999);
    assert_int_equal(got.pixels, 320 * 256);
    assert_int_equal(brim__image_bounds_within(&survey, 0).images, 0);
}

static void test_deferred(void **state) {
    (void)state;
    put("blob/x.bin", "0123456789", 10);
    const struct long_path path = at("blob/x.bin");
    struct brim__file own, held;
    const struct brim__file *file;
    uint64_t offset, bytes;
    struct brim__deferred deferred = { .path = path.text };
    assert_int_equal(brim__deferred_open(&deferred, &own, &file, &offset, &bytes), BRIM_OK);
    assert_ptr_equal(file, &own);
    assert_true(offset == 0 && bytes == 10);
    brim__file_close(&own);
    assert_int_equal(brim__file_open(&held, path.text), BRIM_OK);
    deferred = (struct brim__deferred){ .file = &held, .offset = 3, .bytes = 4 };
    assert_int_equal(brim__deferred_open(&deferred, &own, &file, &offset, &bytes), BRIM_OK);
    assert_ptr_equal(file, &held);
    assert_true(offset == 3 && bytes == 4);
    brim__file_close(&own);
    assert_true(held.fd >= 0);
    brim__file_close(&held);
    deferred = (struct brim__deferred){ .path = "/nowhere/x" };
    assert_int_equal(brim__deferred_open(&deferred, &own, &file, &offset, &bytes), BRIM_STATUS_IO);
    assert_detail_has("/nowhere/x: cannot be opened");
    deferred.described = true; /* its path stands before the reason already */
    assert_int_equal(brim__deferred_open(&deferred, &own, &file, &offset, &bytes), BRIM_STATUS_IO);
    assert_int_equal(strncmp(brim_detail(), "cannot be opened", 16), 0);
    brim__file_close(&own);
}

/* ---------------------------------------------------------------- refusals */

static void test_guess(void **state) {
    (void)state;
    char text[PATH_MAX + 16], wanted[PATH_MAX + 16];
    put("g/flat/note.txt", "x", 1);
    put("g/flat/x.JPG", "x", 1);
    put("g/deep/a/x.png", "x", 1);
    put("g/none/a/x.txt", "x", 1);
    static const char *const names[] = { "g/flat", "g/deep" };
    for (size_t i = 0; i < BRIM__COUNT(names); i++) {
        snprintf(wanted, sizeof wanted, "folder %s", at(names[i]).text);
        assert_int_equal(brim_guess(at(names[i]).text, text, sizeof text), BRIM_OK);
        assert_string_equal(text, wanted);
    }
    assert_int_equal(brim_guess(at("g/none").text, text, sizeof text), BRIM_STATUS_IO);
    assert_detail_has("is a directory");
}

static void test_refusals(void **state) {
    (void)state;
    put("x/file", "x", 1);
    put("x/gif/a.gif", "x", 1);
    put("x/gif/b.gif", "x", 1);
    put("x/flat/a.gif", "x", 1);
    put("x/mixed/full/a.jpg", "x", 1);
    assert_int_equal(mkdir(at("x/mixed/empty").text, 0755), 0);
    assert_int_equal(mkdir(at("x/mixed/void").text, 0755), 0);
    assert_int_equal(mkdir(at("x/nothing").text, 0755), 0);
    put("x/loose/1.jpg", "x", 1);
    assert_int_equal(mkdir(at("x/loose/sub").text, 0755), 0);
    assert_refused("x/none", "", BRIM_STATUS_IO, "no such directory");
    assert_refused("x/file", "", BRIM_STATUS_INVALID, "is not a directory");
    assert_refused("x/flat", "", BRIM_STATUS_INVALID,
                   "no files with the extension .jpg, .jpeg, .png or .webp in it; 1 other, such "
                   "as a.gif: give extensions=");
    assert_refused("x/nothing", "", BRIM_STATUS_INVALID, "no files with");
    assert_refused("x/nothing", "classes=yes", BRIM_STATUS_INVALID, "classes=no");
    assert_refused("x/mixed", "", BRIM_STATUS_INVALID, "2 of 3 classes have no files");
    assert_refused("x/mixed", "", BRIM_STATUS_INVALID, "empty, void; allow_empty=yes");
    assert_refused("x/loose", "", BRIM_STATUS_INVALID, "classes=no reads them");
    assert_refused("x/mixed", "field=label", BRIM_STATUS_INVALID, "allow_empty");
    assert_refused("x/mixed", "field=label allow_empty=yes", BRIM_STATUS_INVALID, "both 'label'");
    assert_refused("x/mixed", "extensions=", BRIM_STATUS_INVALID, "extensions=");
    assert_refused("x/mixed", "field=no/name", BRIM_STATUS_INVALID, "no/name");
    struct samples got = { 0 };
    assert_int_equal(try_folder(at("x/mixed").text, "allow_empty=yes", &got, NULL), BRIM_OK);
    assert_int_equal(got.count, 1);
    assert_int_equal(got.label[0], 1);
    drop_samples(&got);
}

static void test_paths_too_long(void **state) {
    (void)state;
    char name[201];
    memset(name, 'n', 200);
    name[200] = '\0';
    const struct long_path root = at("long");
    assert_int_equal(mkdir(root.text, 0755), 0);
    int fd = open(root.text, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; i < 25; i++) { /* deeper than any path reaches */
        assert_int_equal(mkdirat(fd, name, 0755), 0);
        const int next = openat(fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        close(fd);
        fd = next;
        const int file = openat(fd, "x.jpg", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        assert_true(file >= 0);
        close(file);
    }
    close(fd);
    assert_refused("long", "classes=no probe=no", BRIM_STATUS_IO, "4095");
    /* remove it from below: its paths are too long for remove_tree */
    char command[PATH_MAX + 16];
    snprintf(command, sizeof command, "rm -rf '%s'", root.text);
    assert_int_equal(system(command), 0);
}

/* As a user who may not read one of the directories. */
static void test_unreadable_directory(void **state) {
    (void)state;
    put("u/a/1.jpg", "x", 1);
    put("u/b/2.jpg", "x", 1);
    assert_int_equal(chmod(at("u/b").text, 0), 0);
    assert_int_equal(chmod(tree, 0755), 0);
    const struct long_path root = at("u");
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct test_use use;
        struct session session;
        if (geteuid() == 0 && setuid(65534) != 0) {
            _exit(77);
        }
        char cache[] = "/tmp/brim-folder-XXXXXX"; /* which that user can write */
        if (mkdtemp(cache) == NULL) {
            _exit(2);
        }
        folder_use(&use, root.text, "");
        memset(&session, 0, sizeof session);
        brim__arena_init(&session.arena, NULL);
        session.opening = (struct brim__opening){ .arena = &session.arena, .index_dir = cache };
        const brim_status status = use.use.stage->open(&use.use, &session.opening, &session.source);
        const bool said = strstr(brim_detail(), "u/b: this directory cannot be opened") != NULL;
        remove_tree(cache);
        _exit(status == BRIM_STATUS_IO && said ? 0 : 1);
    }
    int result;
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_int_equal(chmod(at("u/b").text, 0755), 0);
    assert_true(WIFEXITED(result));
    if (WEXITSTATUS(result) == 77) {
        skip();
    }
    assert_int_equal(WEXITSTATUS(result), 0);
}

static void test_a_place_that_cannot_be_written(void **state) {
    (void)state;
    put("w/1.jpg", "x", 1);
    remove_tree(at("cache").text);
    put("cache", "a file where a directory is wanted", 5);
    assert_refused("w", "", BRIM_STATUS_IO, "index=beside");
    remove_tree(at("cache").text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order_and_labels),
        cmocka_unit_test(test_several_roots),
        cmocka_unit_test(test_class_names_of_a_plan),
        cmocka_unit_test(test_links_and_loops),
        cmocka_unit_test(test_links_that_multiply),
        cmocka_unit_test(test_links_are_remembered),
        cmocka_unit_test(test_relative_directories),
        cmocka_unit_test(test_what_is_left_out_is_said),
        cmocka_unit_test(test_probe),
        cmocka_unit_test(test_bounds_name_the_neediest),
        cmocka_unit_test(test_bounds_of_any_number_of_pixels),
        cmocka_unit_test(test_deferred),
        cmocka_unit_test(test_guess),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_paths_too_long),
        cmocka_unit_test(test_unreadable_directory),
        cmocka_unit_test(test_a_place_that_cannot_be_written),
    };
    return cmocka_run_group_tests_name("folder", tests, set_up, tear_down);
}

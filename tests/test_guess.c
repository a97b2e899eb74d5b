/*
 * test_guess.c: what a file is, told from its bytes and its name.
 */
#include "arrays_util.h"

/* "npy %s": what is expected, with the file's path for %s. */
static void expect(const char *name, const void *data, size_t count, const char *format) {
    const struct path path = scratch_path(name);
    char text[1024], wanted[1024];
    write_file(path.text, data, count);
    const char *mark = strstr(format, "%s");
    assert_non_null(mark);
    snprintf(wanted, sizeof wanted, "%.*s%s%s", (int)(mark - format), format, path.text, mark + 2);
    if (brim_guess(path.text, text, sizeof text) != BRIM_OK) {
        fail_msg("%s: %s", name, brim_detail());
    }
    assert_string_equal(text, wanted);
    brim_pipeline *pipeline;
    if (brim_pipeline_parse(text, &pipeline) != BRIM_OK) {
        fail_msg("%s: %s", text, brim_detail());
    }
    brim_pipeline_free(pipeline);
}

static void expect_nothing(const char *name, const void *data, size_t count, brim_status status,
                           const char *part) {
    const struct path path = scratch_path(name);
    char text[64] = "untouched";
    write_file(path.text, data, count);
    assert_int_equal(brim_guess(path.text, text, sizeof text), status);
    assert_detail_has(path.text);
    assert_detail_has(part);
    assert_string_equal(text, "untouched");
}

/* A zip file with empty members of these names. */
static struct bytes make_zip(const char *const *names, size_t count) {
    struct bytes zip = { 0 }, directory = { 0 };
    for (size_t i = 0; i < count; i++) {
        add(&directory, "PK\1\2", 4);
        add_number(&directory, 0, 24);
        add_number(&directory, strlen(names[i]), 2);
        add_number(&directory, 0, 12);
        add_number(&directory, zip.count, 4);
        add_text(&directory, names[i]);
        add(&zip, "PK\3\4", 4);
        add_number(&zip, 0, 22);
        add_number(&zip, strlen(names[i]), 2);
        add_number(&zip, 0, 2);
        add_text(&zip, names[i]);
    }
    const size_t at = zip.count;
    add(&zip, directory.data, directory.count);
    add(&zip, "PK\5\6\0\0\0\0", 8);
    add_number(&zip, count, 2);
    add_number(&zip, count, 2);
    add_number(&zip, directory.count, 4);
    add_number(&zip, at, 4);
    add_number(&zip, 0, 2);
    free(directory.data);
    return zip;
}

static void test_magic(void **state) {
    (void)state;
    expect("x.bin", "\x93NUMPY and so on", 16, "npy %s");
    expect("labels", "\0\0\x08\1\0\0\0\3abc", 11, "idx %s");
    expect("images", "\0\0\x0d\2\0\0\0\1\0\0\0\2abcdefgh", 20, "idx %s");
    expect("model", "\x0e\0\0\0\0\0\0\0{\"__metadata\"", 22, "safetensors %s");
    struct bytes gzip = compressed("\0\0\x08\1\0\0\0\3abc", 11, GZIP);
    expect("labels.gz", gzip.data, gzip.count, "idx %s");
    free(gzip.data);
    gzip = compressed("a,b\n1,2\n", 8, GZIP);
    expect_nothing("x.csv.gz", gzip.data, gzip.count, BRIM_STATUS_UNSUPPORTED, "gunzip");
    expect_nothing("y.gz", gzip.data, 12, BRIM_STATUS_CORRUPT, "end too early");
    free(gzip.data);
}

/* Of an image it is said what it is, from its bytes, and what reads many of them. */
static void test_images(void **state) {
    (void)state;
    static const uint8_t png[] = {
        0x89, 'P',  'N',  'G',  '\r', '\n', 0x1a, '\n', 0, 0,   0,   13,  'I', 'H',
        'D',  'R',  0,    0,    0,    3,    0,    0,    0, 2,   8,   0,   0,   0,
        0,    0xb8, 0x1f, 0x39, 0xc6, 0,    0,    0,    0, 'I', 'D', 'A', 'T',
    };
    static const uint8_t webp[] = {
        'R', 'I', 'F', 'F',  26, 0,    0, 0,    'W', 'E',  'B', 'P',  'V',  'P',  '8',  'L', 13,
        0,   0,   0,   0x2f, 4,  0xc0, 1, 0x10, 7,   0x10, 17,  0x11, 0x88, 0x88, 0xfe, 7,   0,
    };
    expect_nothing("x.png", png, sizeof png, BRIM_STATUS_UNSUPPORTED,
                   "a PNG image of 3 x 2 pixels");
    expect_nothing("named.txt", png, sizeof png, BRIM_STATUS_UNSUPPORTED, "folder \"");
    expect_nothing("x.webp", webp, sizeof webp, BRIM_STATUS_UNSUPPORTED,
                   "a WebP image of 5 x 8 pixels");
    expect_nothing("cut.png", png, 20, BRIM_STATUS_CORRUPT, "cut.png: ");
    expect_nothing("x.jpg", "\xff\xd8\xff", 3, BRIM_STATUS_CORRUPT, "x.jpg: ends after 3 bytes");
    expect_nothing("text.JPG", "word\n", 5, BRIM_STATUS_CORRUPT,
                   "is not a JPEG, PNG or WebP image");
    expect_nothing("empty.png", "", 0, BRIM_STATUS_UNSUPPORTED, "is empty");
}

static void test_zip(void **state) {
    (void)state;
    static const char *const one[] = { "readme", "x.npy" };
    static const char *const several[] = { "readme", "a b.npy", "c.npy" };
    struct bytes zip = make_zip(one, 2);
    expect("one.npz", zip.data, zip.count, "npz %s");
    expect_nothing("cut.npz", zip.data, zip.count - 1, BRIM_STATUS_CORRUPT, "cut short");
    free(zip.data);
    zip = make_zip(several, 3);
    expect("several", zip.data, zip.count, "npz %s array=\"a b\"");
    free(zip.data);
    zip = make_zip(several, 1);
    expect_nothing("x.zip", zip.data, zip.count, BRIM_STATUS_UNSUPPORTED, "none of its 1 members");
    free(zip.data);
}

static void test_tokens(void **state) {
    (void)state;
    struct bytes llmc = { 0 };
    add_number(&llmc, 20240520, 4);
    add_number(&llmc, 1, 4);
    for (int i = 0; i < 254; i++) {
        add_number(&llmc, 0, 4);
    }
    expect("train.bin", llmc.data, llmc.count, "tokens %s length=1024");
    free(llmc.data);
    static const char index[34] = "MMIDIDX\0\0\1\0\0\0\0\0\0\0\x08";
    expect("mega.idx", index, sizeof index, "tokens %s length=1024");
    expect("mega.bin", "tokens", 6, "tokens %s length=1024");
    expect_nothing("tokens.bin", "tokens", 6, BRIM_STATUS_UNSUPPORTED, "length=1024");
}

static void test_names(void **state) {
    (void)state;
    expect("t.csv", "a,b\n", 4, "csv %s");
    expect("T.CSV", "a,b\n", 4, "csv %s");
    expect("t.tsv", "a\tb\n", 4, "csv %s delimiter=tab");
    expect("t.jsonl", "{}\n", 3, "jsonl %s");
    expect("t.ndjson", "{}\n", 3, "jsonl %s");
    expect("t.txt", "word\n", 5, "text %s");
    expect("lines.json", "{\"a\": 1}\n{\"a\": 2}\n", 18, "jsonl %s");
    expect("one.json", "{\"a\": 1} \r\n", 11, "jsonl %s");
    expect_nothing("list.json", "[1, 2]\n", 7, BRIM_STATUS_UNSUPPORTED, "JSON lines");
    expect_nothing("pretty.json", "{\n  \"a\": 1\n}\n", 13, BRIM_STATUS_UNSUPPORTED, "JSON lines");
    /* damaged, but meant: the reader says what is wrong */
    expect("bad.npy", "something", 9, "npy %s");
    expect("cut-idx3-ubyte", "\0\0\x08\3\0\0", 6, "idx %s");
    expect("bad.safetensors", "something", 9, "safetensors %s");
    /* begins like IDX, but is of another size, and has no name that says so */
    expect_nothing("zeros", "\0\0\x08\1\0\0\0\3abcd", 12, BRIM_STATUS_UNSUPPORTED, "known are npy");
    expect_nothing("readme", "word\n", 5, BRIM_STATUS_UNSUPPORTED, "known are npy, npz");
    expect_nothing("empty.csv", "", 0, BRIM_STATUS_UNSUPPORTED, "is empty");
}

static void test_cifar(void **state) {
    (void)state;
    uint8_t *bytes = calloc(2, 3074);
    expect("data_batch_1.bin", bytes, 2 * 3073, "cifar %s");
    expect("data_batch_2.bin", bytes, 2 * 3074, "cifar %s");
    expect_nothing("data_batch_3.bin", bytes, 2 * 3074 - 1, BRIM_STATUS_UNSUPPORTED,
                   "records bytes=N");
    expect_nothing("data.bin", bytes, 2 * 3073, BRIM_STATUS_UNSUPPORTED, "records bytes=N");
    expect_nothing("train.bin", bytes, 2 * 3074, BRIM_STATUS_UNSUPPORTED, "records bytes=N");
    free(bytes);
}

/* Whatever a path looks like, the parser reads it back as it is. */
static void test_quotes(void **state) {
    (void)state;
    static const char *const names[] = {
        "two words.csv", "a,b.csv",       "a=b.csv",    "a|b.csv",        "(x).csv",
        "it's.csv",      "say \"x\".csv", "back\\.csv", "a\\\"b\\\\.csv", "tab\there.csv",
        "new\nline.csv", "#1.csv",        "@x.csv",     "\xc3\xa4.csv",
    };
    for (size_t i = 0; i < BRIM__COUNT(names); i++) {
        const struct path path = scratch_path(names[i]);
        char text[1024];
        write_file(path.text, "a,b\n", 4);
        assert_int_equal(brim_guess(path.text, text, sizeof text), BRIM_OK);
        brim_pipeline *parsed, *built;
        if (brim_pipeline_parse(text, &parsed) != BRIM_OK) {
            fail_msg("%s: %s", text, brim_detail());
        }
        brim_argument argument = BRIM_ARGUMENT_INIT;
        argument.text = path.text;
        assert_int_equal(brim_pipeline_new(&built), BRIM_OK);
        assert_int_equal(brim_pipeline_add(built, "csv", &argument, 1), BRIM_OK);
        assert_string_equal(brim_pipeline_text(parsed), brim_pipeline_text(built));
        brim_pipeline_free(parsed);
        brim_pipeline_free(built);
    }
    /* names that mean something else at the beginning of a word */
    const struct path directory = scratch_path("");
    char before[512];
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(directory.text), 0);
    static const struct {
        const char *name, *text;
    } words[] = { { "-", "npy ./-" },
                  { "#1.txt", "npy \"#1.txt\"" },
                  { "@x.txt", "npy \"@x.txt\"" } };
    for (size_t i = 0; i < BRIM__COUNT(words); i++) {
        char text[64];
        write_file(words[i].name, "\x93NUMPY and so on", 16);
        assert_int_equal(brim_guess(words[i].name, text, sizeof text), BRIM_OK);
        assert_string_equal(text, words[i].text);
    }
    assert_int_equal(chdir(before), 0);
}

static void test_arguments(void **state) {
    (void)state;
    const struct path path = scratch_path("t.csv");
    char text[1024], whole[1024];
    write_file(path.text, "a,b\n", 4);
    assert_int_equal(brim_guess(NULL, text, sizeof text), BRIM_STATUS_INVALID);
    assert_int_equal(brim_guess(path.text, NULL, 0), BRIM_STATUS_INVALID);
    assert_int_equal(brim_guess(scratch_path("").text, text, sizeof text), BRIM_STATUS_IO);
    assert_detail_has("directory");
    assert_int_equal(brim_guess("/nowhere/x.csv", text, sizeof text), BRIM_STATUS_IO);
    assert_int_equal(brim_guess(path.text, whole, sizeof whole), BRIM_OK);
    const size_t needed = strlen(whole) + 1;
    for (size_t bytes = 0; bytes <= needed; bytes++) {
        memset(text, 'u', sizeof text);
        const brim_status status = brim_guess(path.text, text, bytes);
        assert_int_equal(status, bytes == needed ? BRIM_OK : BRIM_STATUS_INVALID);
        assert_int_equal(text[bytes], 'u');
        if (status != BRIM_OK) {
            assert_int_equal(text[0], 'u');
            assert_detail_has("bytes, but there are");
        } else {
            assert_string_equal(text, whole);
        }
    }
}

static void test_hostile_bytes(void **state) {
    (void)state;
    static const char *const members[] = { "a.npy", "b.npy" };
    struct bytes zip = make_zip(members, 2);
    struct bytes gzip = compressed("\0\0\x08\1\0\0\0\3abc", 11, GZIP);
    const struct bytes *const files[] = { &zip, &gzip };
    const struct path path = scratch_path("hostile");
    const size_t before = open_descriptors();
    uint64_t random = 5;
    for (size_t f = 0; f < 2; f++) {
        char text[1024];
        for (size_t count = 0; count < files[f]->count; count++) {
            write_file(path.text, files[f]->data, count);
            (void)brim_guess(path.text, text, sizeof text);
        }
        for (int i = 0; i < 500; i++) {
            const size_t at = next_random(&random) % files[f]->count;
            const uint8_t good = files[f]->data[at];
            files[f]->data[at] = (uint8_t)(next_random(&random) >> 30);
            write_bytes(path.text, files[f]);
            (void)brim_guess(path.text, text, sizeof text);
            files[f]->data[at] = good;
        }
        write_bytes(path.text, files[f]);
        bool injected = true;
        for (uint64_t nth = 1; injected; nth++) {
            brim__fault_arm(1u << BRIM__FAULT_MAP | 1u << BRIM__FAULT_OPEN | 1u << BRIM__FAULT_READ,
                            nth, false);
            const brim_status status = brim_guess(path.text, text, sizeof text);
            injected = brim__fault_injected() > 0;
            brim__fault_arm(0, 0, false);
            assert_int_equal(status == BRIM_OK, !injected);
        }
    }
    assert_int_equal(open_descriptors(), before);
    free(zip.data);
    free(gzip.data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_magic),     cmocka_unit_test(test_zip),
        cmocka_unit_test(test_tokens),    cmocka_unit_test(test_names),
        cmocka_unit_test(test_cifar),     cmocka_unit_test(test_quotes),
        cmocka_unit_test(test_arguments), cmocka_unit_test(test_hostile_bytes),
        cmocka_unit_test(test_images),
    };
    return cmocka_run_group_tests_name("guess", tests, make_directory, remove_directory);
}

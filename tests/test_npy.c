/*
 * test_npy.c: npy files as numpy writes them, and as nobody should.
 *
 * The fixtures under data/npy were written by numpy (make.py says what is in
 * them). Everything hostile is made here.
 */
#include "source_util.h"

#include "source/npy_header.h"

/* The fixtures lie beside this file, wherever the tests are run from. */
static struct path fixture(const char *name) {
    static const char here[] = __FILE__;
    const char *slash = strrchr(here, '/');
    struct path path;
    snprintf(path.text, sizeof path.text, "%.*sdata/npy/%s.npy",
             slash == NULL ? 0 : (int)(slash + 1 - here), here, name);
    return path;
}

static brim_status open_npy(struct opened *opened, const char *path, const char *map) {
    struct test_use use;
    use_init(&use, &brim__stage_npy);
    use_set(&use, "files", path);
    use_set(&use, "map", map);
    return open_use(opened, &use, NULL, 0);
}

static void assert_opens(struct opened *opened, const char *path, const char *map) {
    const brim_status status = open_npy(opened, path, map);
    if (status != BRIM_OK) {
        fail_msg("%s: %s", path, brim_detail());
    }
}

/* Opens, expects failure, and gives the status; the detail stays. */
static brim_status refused(const char *path, const char *map) {
    struct opened opened;
    const brim_status status = open_npy(&opened, path, map);
    close_opened(&opened);
    return status;
}

/* Compares all samples with what make.py put into the fixtures. */
static void check_values(const struct brim__source *source, uint64_t run) {
    const struct brim__view *view = &source->field[0].view;
    uint64_t elements = 1;
    for (uint32_t i = 0; i < view->shape.rank; i++) {
        elements *= view->shape.dim[i];
    }
    uint8_t *buffer = new_buffer(source, run);
    for (uint64_t sample = 0; sample < source->count;) {
        const uint8_t *records;
        uint64_t got = 0;
        assert_int_equal(fetch_run(source, sample, run, buffer, &records, &got), BRIM_OK);
        assert_true(got >= 1 && got <= run);
        for (uint64_t r = 0; r < got; r++) {
            for (uint64_t i = 0; i < elements; i++) {
                const int64_t k = (int64_t)((sample + r) * elements + i);
                double value[2], wanted[2] = { (double)(k * 259 + 1), 0 };
                read_element(view, records + r * source->pitch, i, value);
                if (view->dtype == BRIM_DTYPE_BOOL) {
                    wanted[0] = k % 3 == 0;
                } else if (view->dtype == BRIM_DTYPE_U8) {
                    wanted[0] = (uint8_t)(k * 259 + 1);
                } else if (view->dtype == BRIM_DTYPE_I8) {
                    wanted[0] = (int8_t)(k * 259 + 1);
                } else if (brim__dtype_is_complex(view->dtype)) {
                    wanted[1] = (double)(k - 4);
                }
                if (value[0] != wanted[0] || value[1] != wanted[1]) {
                    fail_msg("sample %llu, element %llu: %g+%gi, not %g+%gi",
                             (unsigned long long)(sample + r), (unsigned long long)i, value[0],
                             value[1], wanted[0], wanted[1]);
                }
            }
        }
        sample += got;
    }
    free(buffer);
}

/* -------------------------------------------------------------- fixtures */

static void test_dtypes(void **state) {
    (void)state;
    static const struct {
        const char *code;
        brim_dtype dtype;
    } cases[] = {
        { "b1", BRIM_DTYPE_BOOL }, { "u1", BRIM_DTYPE_U8 },    { "i1", BRIM_DTYPE_I8 },
        { "u2", BRIM_DTYPE_U16 },  { "i2", BRIM_DTYPE_I16 },   { "u4", BRIM_DTYPE_U32 },
        { "i4", BRIM_DTYPE_I32 },  { "u8", BRIM_DTYPE_U64 },   { "i8", BRIM_DTYPE_I64 },
        { "f2", BRIM_DTYPE_F16 },  { "f4", BRIM_DTYPE_F32 },   { "f8", BRIM_DTYPE_F64 },
        { "c8", BRIM_DTYPE_C64 },  { "c16", BRIM_DTYPE_C128 },
    };
    for (size_t i = 0; i < BRIM__COUNT(cases); i++) {
        for (int big = 0; big < 2; big++) {
            for (int map = 0; map < 2; map++) {
                char name[32];
                snprintf(name, sizeof name, "%s-%s", cases[i].code, big ? "big" : "little");
                struct opened opened;
                assert_opens(&opened, fixture(name).text, map ? "yes" : "no");
                const struct brim__source *source = &opened.source;
                const size_t bytes = brim_dtype_bytes(cases[i].dtype);
                assert_int_equal(source->count, 3);
                assert_int_equal(source->field_count, 1);
                assert_string_equal(source->field[0].name, "x");
                assert_int_equal(source->field[0].view.dtype, cases[i].dtype);
                assert_int_equal(source->field[0].view.swapped, big && bytes > 1);
                assert_int_equal(source->field[0].view.shape.rank, 1);
                assert_int_equal(source->field[0].view.shape.dim[0], 2);
                assert_int_equal(source->record_bytes, 2 * bytes);
                assert_int_equal(source->pitch, 2 * bytes);
                assert_int_equal(source->in_memory, map);
                assert_true(source->is_file && source->serial == NULL && !source->callback);
                for (uint64_t run = 1; run < 5; run++) {
                    check_values(source, run);
                }
                close_opened(&opened);
            }
        }
    }
}

static void test_ranks_and_orders(void **state) {
    (void)state;
    static const uint64_t dims[5][4] = { { 0 }, { 5 }, { 3, 4 }, { 2, 3, 4 }, { 2, 3, 2, 4 } };
    for (uint32_t rank = 1; rank <= 4; rank++) {
        for (int fortran = 0; fortran < 2; fortran++) {
            for (int map = 0; map < 2; map++) {
                char name[32];
                snprintf(name, sizeof name, "rank%u-%s", rank, fortran ? "fortran" : "c");
                const struct path path = fixture(name);
                if (fortran && rank > 1 && !map) {
                    assert_int_equal(refused(path.text, "no"), BRIM_STATUS_INVALID);
                    assert_detail_has(name);
                    assert_detail_has("Fortran order");
                    assert_detail_has("map=yes");
                    continue;
                }
                struct opened opened;
                assert_opens(&opened, path.text, map ? "yes" : "no");
                const struct brim__view *view = &opened.source.field[0].view;
                assert_int_equal(opened.source.count, dims[rank][0]);
                assert_int_equal(view->shape.rank, rank - 1);
                for (uint32_t i = 1; i < rank; i++) {
                    assert_int_equal(view->shape.dim[i - 1], dims[rank][i]);
                }
                assert_int_equal(brim__view_is_row_major(view), !fortran || rank == 1);
                for (uint64_t run = 1; run < 4; run++) {
                    check_values(&opened.source, run);
                }
                close_opened(&opened);
            }
        }
    }
    struct opened opened;
    assert_opens(&opened, fixture("rank8").text, "no");
    assert_int_equal(opened.source.field[0].view.shape.rank, 7);
    check_values(&opened.source, 2);
    close_opened(&opened);
}

static void test_versions(void **state) {
    (void)state;
    uint64_t identity = 0;
    for (int version = 1; version <= 3; version++) {
        char name[32];
        snprintf(name, sizeof name, "version%d", version);
        struct opened opened;
        assert_opens(&opened, fixture(name).text, "no");
        assert_int_equal(opened.source.count, 4);
        check_values(&opened.source, 4);
        if (version > 1) { /* the same data in files of one size */
            assert_true(opened.source.identity == identity);
        }
        identity = opened.source.identity;
        close_opened(&opened);
    }
}

static void test_refusals_explain(void **state) {
    (void)state;
    static const struct {
        const char *name;
        brim_status status;
        const char *text;
    } cases[] = {
        { "structured", BRIM_STATUS_UNSUPPORTED, "zip" },
        { "structured-utf8", BRIM_STATUS_UNSUPPORTED, "structured dtype" },
        { "object", BRIM_STATUS_UNSUPPORTED, "pickle" },
        { "void2", BRIM_STATUS_UNSUPPORTED, "bfloat16" },
        { "text", BRIM_STATUS_UNSUPPORTED, "text" },
        { "bytes", BRIM_STATUS_UNSUPPORTED, "text" },
        { "times", BRIM_STATUS_UNSUPPORTED, "int64" },
        { "longdouble", BRIM_STATUS_UNSUPPORTED, "known are" },
        { "rank0-c", BRIM_STATUS_INVALID, "scalar" },
        { "rank9", BRIM_STATUS_UNSUPPORTED, "more than 8 dimensions" },
        { "no-samples", BRIM_STATUS_INVALID, "no samples" },
        { "no-elements", BRIM_STATUS_INVALID, "no elements" },
    };
    for (size_t i = 0; i < BRIM__COUNT(cases); i++) {
        assert_int_equal(refused(fixture(cases[i].name).text, "yes"), cases[i].status);
        assert_detail_has(cases[i].name);
        assert_detail_has(cases[i].text);
    }
    assert_int_equal(refused("does/not/exist.npy", "no"), BRIM_STATUS_IO);
    assert_detail_has("does/not/exist.npy");
    assert_int_equal(refused("/tmp", "no"), BRIM_STATUS_IO);
}

/* -------------------------------------------------------- several files */

/* A whole file: version, text as it is, then `data_bytes` bytes 0, 1, 2, ... */
static size_t build(uint8_t *file, int version, const char *text, size_t text_bytes,
                    size_t data_bytes) {
    size_t at = version == 1 ? 10 : 12;
    memcpy(file, "\x93NUMPY", 6);
    file[6] = (uint8_t)version;
    file[7] = 0;
    for (size_t i = 8; i < at; i++) {
        file[i] = (uint8_t)(text_bytes >> 8 * (i - 8));
    }
    memcpy(file + at, text, text_bytes);
    at += text_bytes;
    for (size_t i = 0; i < data_bytes; i++) {
        file[at + i] = (uint8_t)i;
    }
    return at + data_bytes;
}

static void write_npy(const char *path, const char *text, size_t data_bytes) {
    uint8_t file[4096];
    write_file(path, file, build(file, 1, text, strlen(text), data_bytes));
}

static void test_files_follow_each_other(void **state) {
    (void)state;
    const char *texts[] = { "{'descr':'<u2','fortran_order':False,'shape':(3,2)}",
                            "{'descr':'<u2','fortran_order':False,'shape':(0,2)}",
                            "{'descr':'<u2','fortran_order':False,'shape':(1,2)}",
                            "{'descr':'<u2','fortran_order':False,'shape':(4,2)}" };
    const uint64_t samples[] = { 3, 0, 1, 4 };
    for (int map = 0; map < 2; map++) {
        struct test_use use;
        struct path paths[4];
        use_init(&use, &brim__stage_npy);
        use_set(&use, "map", map ? "yes" : "no");
        use_set(&use, "name", "tokens.v-2");
        for (size_t i = 0; i < 4; i++) {
            char name[16];
            snprintf(name, sizeof name, "part%zu.npy", i);
            paths[i] = scratch_path(name);
            write_npy(paths[i].text, texts[i], samples[i] * 4 + 3); /* 3 bytes follow */
            use_set(&use, "files", paths[i].text);
        }
        struct opened opened;
        assert_int_equal(open_use(&opened, &use, NULL, 0), BRIM_OK);
        const struct brim__source *source = &opened.source;
        assert_int_equal(source->count, 8);
        assert_string_equal(source->field[0].name, "tokens.v-2");
        uint8_t *buffer = new_buffer(source, 8);
        for (uint64_t sample = 0; sample < 8; sample++) {
            for (uint64_t count = 1; count <= 8; count++) {
                const uint64_t first = sample < 3 ? 0 : sample < 4 ? 3 : 4;
                const uint64_t end = sample < 3 ? 3 : sample < 4 ? 4 : 8;
                const uint8_t *records;
                uint64_t got;
                assert_int_equal(fetch_run(source, sample, count, buffer, &records, &got), BRIM_OK);
                assert_int_equal(got, brim__min(count, end - sample));
                for (uint64_t i = 0; i < got * 4; i++) {
                    assert_int_equal(records[i], (sample - first) * 4 + i);
                }
            }
        }
        free(buffer);
        brim__source_advise(source, 0, 8);
        brim__source_advise(source, 2, 100);
        char text[600], wanted[600];
        source->ops->describe(source, 5, text, sizeof text);
        snprintf(wanted, sizeof wanted, "%s, sample 5 (byte %zu)", paths[3].text,
                 10 + strlen(texts[3]) + 4);
        assert_string_equal(text, wanted);
        close_opened(&opened);
    }
}

static void test_files_must_agree(void **state) {
    (void)state;
    static const struct {
        const char *text;
        const char *says;
    } cases[] = {
        { "{'descr':'<i2','fortran_order':False,'shape':(3,2)}", "has dtype int16" },
        { "{'descr':'>u2','fortran_order':False,'shape':(3,2)}", "big-endian" },
        { "{'descr':'<u2','fortran_order':False,'shape':(3,3)}", "shape 3" },
        { "{'descr':'<u2','fortran_order':False,'shape':(3,)}", "shape scalar" },
        { "{'descr':'<u2','fortran_order':True,'shape':(3,2)}", "Fortran order" },
    };
    const struct path a = scratch_path("a.npy"), b = scratch_path("b.npy");
    write_npy(a.text, "{'descr':'<u2','fortran_order':False,'shape':(3,2)}", 12);
    for (size_t i = 0; i < BRIM__COUNT(cases); i++) {
        write_npy(b.text, cases[i].text, 18);
        struct test_use use;
        use_init(&use, &brim__stage_npy);
        use_set(&use, "files", a.text);
        use_set(&use, "files", b.text);
        use_set(&use, "map", "yes");
        struct opened opened;
        assert_int_equal(open_use(&opened, &use, NULL, 0), BRIM_STATUS_INVALID);
        assert_detail_has(a.text);
        assert_detail_has(b.text);
        assert_detail_has(cases[i].says);
        close_opened(&opened);
    }
}

static void test_fortran_files(void **state) {
    (void)state;
    const struct path a = scratch_path("f1.npy"), b = scratch_path("f2.npy");
    write_npy(a.text, "{'descr':'|u1','fortran_order':True,'shape':(3,2)}", 6);
    write_npy(b.text, "{'descr':'|u1','fortran_order':True,'shape':(3,2)}", 6);
    struct test_use use;
    use_init(&use, &brim__stage_npy);
    use_set(&use, "files", a.text);
    use_set(&use, "files", b.text);
    use_set(&use, "map", "yes");
    struct opened opened;
    assert_int_equal(open_use(&opened, &use, NULL, 0), BRIM_OK);
    assert_int_equal(opened.source.count, 6);
    assert_true(opened.source.no_read_ahead);
    for (uint64_t sample = 0; sample < 6; sample++) {
        const uint8_t *record;
        uint64_t got;
        double value[2];
        assert_int_equal(fetch_run(&opened.source, sample, 1, NULL, &record, &got), BRIM_OK);
        for (uint64_t i = 0; i < 2; i++) {
            read_element(&opened.source.field[0].view, record, i, value);
            assert_true(value[0] == (double)(sample % 3 + 3 * i));
        }
    }
    close_opened(&opened);
    write_npy(b.text, "{'descr':'|u1','fortran_order':True,'shape':(2,2)}", 6);
    assert_int_equal(open_use(&opened, &use, NULL, 0), BRIM_STATUS_INVALID);
    assert_detail_has(b.text);
    assert_detail_has("equally many");
    close_opened(&opened);
}

static void test_identity(void **state) {
    (void)state;
    const struct path a = scratch_path("one.npy"), b = scratch_path("two.npy");
    const char *text = "{'descr':'<u2','fortran_order':False,'shape':(3,2)}";
    write_npy(a.text, text, 12);
    write_npy(b.text, text, 12);
    struct opened one, two;
    assert_opens(&one, a.text, "no");
    assert_opens(&two, b.text, "yes");
    assert_true(one.source.identity == two.source.identity);
    close_opened(&two);
    write_npy(b.text, "{'descr':'<u2','fortran_order':False,'shape':(2,3)}", 12);
    assert_opens(&two, b.text, "no");
    assert_true(one.source.identity != two.source.identity);
    close_opened(&two);
    write_npy(b.text, text, 13);
    assert_opens(&two, b.text, "no");
    assert_true(one.source.identity != two.source.identity);
    close_opened(&two);
    close_opened(&one);
}

/* --------------------------------------------------------------- grammar */

static void test_legal_headers(void **state) {
    (void)state;
    static const char *const texts[] = {
        "{'descr': '<u2', 'fortran_order': False, 'shape': (3, 2), }      \n",
        "{'shape': (3L, 2L), 'fortran_order': False, 'descr': '<u2'}",
        "{\"fortran_order\" :False,\"descr\":\"<u2\",\"shape\":(3,2,),}",
        "\t\n { 'shape'\n:\r\n( 3 , 2 ) , 'descr' : '<u2' , 'fortran_order' : False } \n\n",
    };
    const struct path path = scratch_path("legal.npy");
    for (size_t i = 0; i < BRIM__COUNT(texts); i++) {
        write_npy(path.text, texts[i], 12);
        struct opened opened;
        assert_opens(&opened, path.text, "no");
        assert_int_equal(opened.source.count, 3);
        assert_int_equal(opened.source.record_bytes, 4);
        close_opened(&opened);
    }
    /* one byte has no order, whatever the header says */
    write_npy(path.text, "{'descr':'>i1','fortran_order':False,'shape':(3,2)}", 6);
    struct opened single;
    assert_opens(&single, path.text, "no");
    assert_int_equal(single.source.field[0].view.dtype, BRIM_DTYPE_I8);
    assert_false(single.source.field[0].view.swapped);
    close_opened(&single);
    write_npy(path.text, "{'descr':'|u2','fortran_order':False,'shape':(3,2)}", 12);
    assert_int_equal(refused(path.text, "no"), BRIM_STATUS_UNSUPPORTED);
    /* a header of the longest size that is taken, and one byte more */
    for (size_t extra = 0; extra < 2; extra++) {
        const size_t text_bytes = BRIM__NPY_HEADER_BYTES + extra;
        char *text = malloc(text_bytes);
        uint8_t *file = malloc(text_bytes + 64);
        assert_non_null(text);
        assert_non_null(file);
        memset(text, ' ', text_bytes);
        memcpy(text, texts[0], strlen(texts[0]));
        write_file(path.text, file, build(file, 2, text, text_bytes, 12));
        if (extra == 0) {
            struct opened opened;
            assert_opens(&opened, path.text, "no");
            close_opened(&opened);
        } else {
            assert_int_equal(refused(path.text, "no"), BRIM_STATUS_CORRUPT);
            assert_detail_has("byte 8");
        }
        free(text);
        free(file);
    }
}

#define D "'descr':'<u2'"
#define F "'fortran_order':False"
#define S "'shape':(3,2)"

static void test_hostile_headers(void **state) {
    (void)state;
    /* text, the byte that the error names (from the text's begin), what it says */
    static const struct {
        const char *text;
        size_t byte;
        const char *says;
    } cases[] = {
        { "", 0, "expected '{'" },
        { "   ", 3, "expected '{'" },
        { "x", 0, "expected '{'" },
        { "[" D "," F "," S "]", 0, "expected '{'" },
        { "{", 1, "string in quotes" },
        { "{}", 2, "descr is missing" },
        { "{,}", 1, "string in quotes" },
        { "{" D "," F "}", 37, "shape is missing" },
        { "{" D "," S "}", 29, "fortran_order is missing" },
        { "{" F "," S "}", 37, "descr is missing" },
        { "{" D "," F "," S, 50, "expected ',' or '}'" },
        { "{" D "," F "," S ",", 51, "string in quotes" },
        { "{" D "," F "," S ",,}", 51, "string in quotes" },
        { "{" D " " F "," S "}", 15, "expected ',' or '}'" },
        { "{" D "," F "," S "} x", 52, "something follows" },
        { "{" D "," F "," S "}{}", 51, "something follows" },
        { "{" D "," D "," F "," S "}", 15, "twice" },
        { "{" D "," F "," S "," S "}", 51, "twice" },
        { "{" D "," F "," S ",'extra':1}", 51, "a key other than" },
        { "{'Descr':'<u2'," F "," S "}", 1, "a key other than" },
        { "{'descr' '<u2'," F "," S "}", 9, "expected ':'" },
        { "{'descr':'<u2", 13, "ends inside a string" },
        { "{'descr", 7, "ends inside a string" },
        { "{'", 2, "ends inside a string" },
        { "{'d\\x65scr':'<u2'," F "," S "}", 3, "cannot stand" },
        { "{'d\xc3\xa9scr':'<u2'," F "," S "}", 3, "cannot stand" },
        { "{\xff}", 1, "string in quotes" },
        { "{'descr':'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'," F "," S "}", 41, "longer" },
        { "{'descr':2," F "," S "}", 9, "string in quotes" },
        { "{'descr':None," F "," S "}", 9, "string in quotes" },
        { "{" D ",'fortran_order':false," S "}", 31, "True or False" },
        { "{" D ",'fortran_order':0," S "}", 31, "True or False" },
        { "{" D ",'fortran_order':Falsey," S "}", 36, "expected ','" },
        { "{" D "," F ",'shape':3}", 45, "tuple" },
        { "{" D "," F ",'shape':[3,2]}", 45, "tuple" },
        { "{" D "," F ",'shape':(3)}", 47, "comma" },
        { "{" D "," F ",'shape':(,)}", 46, "decimal number" },
        { "{" D "," F ",'shape':(3,,2)}", 48, "decimal number" },
        { "{" D "," F ",'shape':(3 2)}", 48, "expected ',' or ')'" },
        { "{" D "," F ",'shape':(3,2", 49, "expected ',' or ')'" },
        { "{" D "," F ",'shape':(3,", 48, "decimal number" },
        { "{" D "," F ",'shape':(", 46, "decimal number" },
        { "{" D "," F ",'shape':((3,2))}", 46, "decimal number" },
        { "{" D "," F ",'shape':((((((((((((((((((((((((((((", 46, "decimal number" },
        { "{" D "," F ",'shape':(-3,2)}", 46, "negative" },
        { "{" D "," F ",'shape':(+3,2)}", 46, "decimal number" },
        { "{" D "," F ",'shape':(3.0,2)}", 47, "expected ',' or ')'" },
        { "{" D "," F ",'shape':(0x3,2)}", 47, "expected ',' or ')'" },
        { "{" D "," F ",'shape':(03,2)}", 48, "begins with 0" },
        { "{" D "," F ",'shape':(3LL,2)}", 48, "expected ',' or ')'" },
        { "{" D "," F ",'shape':(1e9,2)}", 47, "expected ',' or ')'" },
        { "{" D "," F ",'shape':(99999999999999999999,)}", 64, "2^63" },
        { "{" D "," F ",'shape':(9223372036854775808,)}", 64, "2^63" },
        { "{" D "," F ",'shape':(__import__('os'),)}", 46, "decimal number" },
        { "{" D "," F "," S ",**{}}", 51, "string in quotes" },
    };
    const struct path path = scratch_path("hostile.npy");
    const size_t before = open_descriptors();
    for (size_t i = 0; i < BRIM__COUNT(cases); i++) {
        for (int version = 1; version <= 3; version++) {
            uint8_t file[512];
            write_file(path.text, file,
                       build(file, version, cases[i].text, strlen(cases[i].text), 12));
            struct opened opened;
            const brim_status status = open_npy(&opened, path.text, "no");
            if (status != BRIM_STATUS_CORRUPT) {
                fail_msg("case %zu: status %d: %s", i, (int)status, brim_detail());
            }
            assert_true(opened.arena.bytes <= 65536);
            close_opened(&opened);
            char where[600];
            snprintf(where, sizeof where, "%s: byte %zu: ", path.text,
                     (version == 1 ? 10u : 12u) + cases[i].byte);
            assert_detail_has(where);
            assert_detail_has(cases[i].says);
        }
    }
    assert_int_equal(open_descriptors(), before);
}

static void test_hostile_sizes(void **state) {
    (void)state;
    static const struct {
        const char *text;
        size_t data_bytes;
        const char *says;
    } cases[] = {
        { "{" D "," F ",'shape':(4611686018427387904,)}", 12, "2^63 bytes" },
        { "{" D "," F ",'shape':(4294967296,4294967296)}", 12, "2^63 bytes" },
        { "{" D "," F ",'shape':(3037000500,3037000500)}", 12, "2^63 bytes" },
        { "{" D "," F ",'shape':(0,9223372036854775807,9223372036854775807)}", 12, "2^63 bytes" },
        { "{" D "," F ",'shape':(3,9223372036854775807,0)}", 12, "2^63 bytes" },
        { "{" D "," F ",'shape':(2305843009213693951,)}", 12, "the file ends" },
        { "{" D "," F ",'shape':(3,2)}", 11, "the file ends" },
        { "{" D "," F ",'shape':(3,2)}", 0, "the file ends" },
        { "{'descr':'<c16'," F ",'shape':(1000000000,)}", 12, "the file ends" },
        { "{" D ",'fortran_order':True,'shape':(1000000000,4)}", 12, "the file ends" },
    };
    const struct path path = scratch_path("sizes.npy");
    for (size_t i = 0; i < BRIM__COUNT(cases); i++) {
        write_npy(path.text, cases[i].text, cases[i].data_bytes);
        struct opened opened;
        assert_int_equal(open_npy(&opened, path.text, "yes"), BRIM_STATUS_CORRUPT);
        assert_true(opened.arena.bytes <= 65536);
        close_opened(&opened);
        assert_detail_has(path.text);
        assert_detail_has("byte ");
        assert_detail_has(cases[i].says);
    }
    /* lengths of the header that lie */
    uint8_t file[512];
    const char *text = "{" D "," F "," S "}";
    const size_t bytes = build(file, 2, text, strlen(text), 12);
    static const uint32_t lengths[] = { 0,          1,          50,         52,        62,
                                        100,        65535,      65536,      65537,     1000000,
                                        0x7fffffff, 0x80000000, 0xfffffff4, 0xffffffff };
    for (size_t i = 0; i < BRIM__COUNT(lengths); i++) {
        memcpy(file + 8, &lengths[i], 4);
        write_file(path.text, file, bytes);
        struct opened opened;
        assert_int_equal(open_npy(&opened, path.text, "no"), BRIM_STATUS_CORRUPT);
        assert_true(opened.arena.bytes <= 65536);
        close_opened(&opened);
        assert_detail_has(path.text);
        assert_detail_has("byte ");
    }
    for (unsigned version = 0; version < 256; version++) {
        build(file, 2, text, strlen(text), 12);
        file[6] = (uint8_t)version;
        write_file(path.text, file, bytes);
        if (version == 2 || version == 3) {
            continue;
        }
        assert_true(refused(path.text, "no") != BRIM_OK);
        assert_detail_has("byte ");
    }
}

static void test_truncated_everywhere(void **state) {
    (void)state;
    const struct path path = scratch_path("short.npy");
    for (int version = 1; version <= 2; version++) {
        uint8_t file[512];
        const char *text = "{" D "," F "," S ", }\n";
        const size_t bytes = build(file, version, text, strlen(text), 12);
        for (size_t cut = 0; cut < bytes; cut++) {
            write_file(path.text, file, cut);
            for (int map = 0; map < 2; map++) {
                assert_int_equal(refused(path.text, map ? "yes" : "no"), BRIM_STATUS_CORRUPT);
                char where[600];
                snprintf(where, sizeof where, "%s: byte %zu: ", path.text, cut);
                assert_detail_has(where);
            }
        }
        write_file(path.text, file, bytes);
        struct opened opened;
        assert_opens(&opened, path.text, "no");
        close_opened(&opened);
    }
}

/* One or two wrong bytes in the header of a legal file: whatever comes of it,
 * nothing is read outside the file, and what opens can be fetched. */
static void test_random_corruption(void **state) {
    (void)state;
    const struct path path = scratch_path("corrupt.npy");
    static const char *const texts[] = {
        "{'descr': '<u2', 'fortran_order': False, 'shape': (3, 2), }\n",
        "{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3, 2), }\n",
    };
    static const char likely[] = "0123456789(),:'{}<>|uifcbVO-LTrueFals \n\x93";
    const size_t before = open_descriptors();
    uint64_t random = 88172645463325252u;
    unsigned opened_count = 0;
    for (unsigned round = 0; round < 20000; round++) {
        uint8_t file[512];
        const char *text = texts[round % 2];
        const size_t bytes = build(file, 1 + (int)(round / 2 % 3), text, strlen(text), 12);
        for (uint64_t wrong = 1 + next_random(&random) % 2; wrong > 0; wrong--) {
            const uint64_t number = next_random(&random);
            file[number % (bytes - 12)] =
                number >> 60 < 12 ? (uint8_t)likely[(number >> 32) % (sizeof likely - 1)]
                                  : (uint8_t)(number >> 40);
        }
        write_file(path.text, file, bytes);
        const bool map = (round / 8) % 2 == 0;
        struct opened opened;
        const brim_status status = open_npy(&opened, path.text, map ? "yes" : "no");
        assert_true(opened.arena.bytes <= 65536);
        if (status != BRIM_OK) {
            assert_true(status == BRIM_STATUS_CORRUPT || status == BRIM_STATUS_UNSUPPORTED ||
                        status == BRIM_STATUS_INVALID);
            assert_detail_has(path.text);
        } else {
            const struct brim__source *source = &opened.source;
            const struct brim__view *view = &source->field[0].view;
            uint8_t *buffer = new_buffer(source, 2);
            opened_count++;
            for (uint64_t sample = 0; sample < source->count; sample++) {
                const uint8_t *records;
                uint64_t got;
                double value[2];
                assert_int_equal(fetch_run(source, sample, 2, buffer, &records, &got), BRIM_OK);
                if (brim__dtype_is_integer(view->dtype)) {
                    read_element(view, records, 0, value);
                }
                volatile uint8_t last =
                    records[(got - 1) * source->pitch + source->record_bytes - 1];
                (void)last;
            }
            free(buffer);
        }
        close_opened(&opened);
    }
    assert_true(opened_count > 100); /* else this tests little */
    assert_int_equal(open_descriptors(), before);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dtypes),
        cmocka_unit_test(test_ranks_and_orders),
        cmocka_unit_test(test_versions),
        cmocka_unit_test(test_refusals_explain),
        cmocka_unit_test(test_files_follow_each_other),
        cmocka_unit_test(test_files_must_agree),
        cmocka_unit_test(test_fortran_files),
        cmocka_unit_test(test_identity),
        cmocka_unit_test(test_legal_headers),
        cmocka_unit_test(test_hostile_headers),
        cmocka_unit_test(test_hostile_sizes),
        cmocka_unit_test(test_truncated_everywhere),
        cmocka_unit_test(test_random_corruption),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}

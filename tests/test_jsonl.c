/*
 * test_jsonl.c: lines of JSON to records: values, types, what is missing, and
 * what is hostile.
 */
#include "source_util.h"

#include "source/json.h"
#include "source/jsonl.h"

#include <math.h>

/* One source over one file of lines. */
struct jsonl {
    struct opened opened;
    struct test_use use;
    uint8_t *buffer;
    const uint8_t *record;
};

static struct path write_lines(const char *text, size_t length) {
    const struct path path = scratch_path("t.jsonl");
    write_file(path.text, text, length);
    return path;
}

/* Options: "key=value", up to four. */
static void use_lines(struct test_use *use, const char *path, const char *const options[4]) {
    use_init(use, &brim__stage_jsonl);
    use_set(use, "files", path);
    use_set(use, "index", "beside");
    static char words[4][256]; /* the use keeps pointers to them */
    for (size_t i = 0; i < 4 && options[i] != NULL; i++) {
        brim__copy_text(words[i], sizeof words[i], options[i]);
        char *value = strchr(words[i], '=');
        assert_non_null(value);
        *value++ = '\0';
        for (char *rest = value, *word; (word = strsep(&rest, ",")) != NULL;) {
            use_set(use, words[i], word);
        }
    }
}

static brim_status try_lines(struct jsonl *jsonl, const char *text, const char *const options[4]) {
    const struct path path = write_lines(text, strlen(text));
    use_lines(&jsonl->use, path.text, options);
    jsonl->buffer = NULL;
    return open_use(&jsonl->opened, &jsonl->use, NULL, 0);
}

#define OPTIONS(...) ((const char *const[4]){ __VA_ARGS__ })
#define NO_OPTIONS   OPTIONS(NULL)

static void open_lines(struct jsonl *jsonl, const char *text, const char *const options[4]) {
    if (try_lines(jsonl, text, options) != BRIM_OK) {
        fail_msg("%s: %s", text, brim_detail());
    }
    jsonl->buffer = new_buffer(&jsonl->opened.source, 1);
}

static void close_lines(struct jsonl *jsonl) {
    free(jsonl->buffer);
    close_opened(&jsonl->opened);
}

static brim_status fetch(struct jsonl *jsonl, uint64_t sample) {
    uint64_t got;
    return fetch_run(&jsonl->opened.source, sample, 1, jsonl->buffer, &jsonl->record, &got);
}

static void fetch_good(struct jsonl *jsonl, uint64_t sample) {
    if (fetch(jsonl, sample) != BRIM_OK) {
        fail_msg("sample %llu: %s", (unsigned long long)sample, brim_detail());
    }
}

static const struct brim__source_field *find(const struct jsonl *jsonl, const char *name) {
    for (uint32_t i = 0; i < jsonl->opened.source.field_count; i++) {
        if (strcmp(jsonl->opened.source.field[i].name, name) == 0) {
            return &jsonl->opened.source.field[i];
        }
    }
    fail_msg("no field %s", name);
    return NULL;
}

static struct brim__span span_of(const struct jsonl *jsonl, const char *name) {
    const struct brim__source_field *field = find(jsonl, name);
    struct brim__span span;
    assert_int_not_equal(field->form, BRIM_FORM_DENSE);
    assert_int_equal(field->view.offset % 8, 0);
    memcpy(&span, jsonl->record + field->view.offset, sizeof span);
    assert_true(span.count <= field->view.shape.dim[0]);
    return span;
}

static void assert_text(const struct jsonl *jsonl, const char *name, const char *text,
                        size_t length) {
    assert_int_equal(find(jsonl, name)->form, BRIM_FORM_TEXT);
    const struct brim__span span = span_of(jsonl, name);
    assert_int_equal(span.count, length);
    assert_memory_equal(span.data, text, length);
}

/* The bytes of a dense element, which must be of the dtype. */
static void assert_element(const struct jsonl *jsonl, const char *name, brim_dtype dtype,
                           const void *wanted) {
    const struct brim__source_field *field = find(jsonl, name);
    assert_int_equal(field->form, BRIM_FORM_DENSE);
    assert_int_equal(field->view.dtype, dtype);
    assert_memory_equal(jsonl->record + field->view.offset, wanted, brim_dtype_bytes(dtype));
}

static void assert_list(const struct jsonl *jsonl, const char *name, brim_dtype dtype,
                        const void *wanted, uint64_t count) {
    const struct brim__source_field *field = find(jsonl, name);
    assert_int_equal(field->form, BRIM_FORM_RAGGED);
    assert_int_equal(field->view.dtype, dtype);
    const struct brim__span span = span_of(jsonl, name);
    assert_int_equal(span.count, count);
    if (count > 0) {
        assert_memory_equal(span.data, wanted, count * brim_dtype_bytes(dtype));
    }
}

/* ------------------------------------------------------------------ values */

static void test_kinds_of_values(void **state) {
    (void)state;
    struct jsonl jsonl;
    open_lines(
        &jsonl,
        "{\"i\":-7,\"r\":2.5,\"b\":true,\"t\":\"h\\u00e9\\n\",\"v\":[1,2,3],\"w\":[0.5],"
        "\"o\":{\"i\":1},\"n\":null,\"s\":[\"x\"]}\n"
        "\n"
        "{ \"w\" : [ ] , \"v\":[-9223372036854775808], \"t\": \"\", \"b\":false, \"r\":-0.0,"
        "\"i\":9223372036854775807 }\r\n"
        "{\"i\":0,\"r\":1e3,\"b\":true,\"t\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\ud83d\\ude00\\u0000\","
        "\"v\":[],\"w\":[1,2e-3]}",
        NO_OPTIONS);
    assert_int_equal(jsonl.opened.source.count, 3);
    assert_int_equal(jsonl.opened.source.field_count, 6);
    assert_string_equal(jsonl.opened.source.field[0].name, "i");
    assert_string_equal(jsonl.opened.source.field[5].name, "w");
    fetch_good(&jsonl, 0);
    assert_element(&jsonl, "i", BRIM_DTYPE_I64, &(int64_t){ -7 });
    assert_element(&jsonl, "r", BRIM_DTYPE_F64, &(double){ 2.5 });
    assert_element(&jsonl, "b", BRIM_DTYPE_BOOL, &(uint8_t){ 1 });
    assert_text(&jsonl, "t", "h\xc3\xa9\n", 4);
    assert_list(&jsonl, "v", BRIM_DTYPE_I64, (int64_t[]){ 1, 2, 3 }, 3);
    assert_list(&jsonl, "w", BRIM_DTYPE_F64, (double[]){ 0.5 }, 1);
    fetch_good(&jsonl, 1);
    assert_element(&jsonl, "i", BRIM_DTYPE_I64, &(int64_t){ INT64_MAX });
    assert_element(&jsonl, "r", BRIM_DTYPE_F64, &(double){ -0.0 });
    assert_element(&jsonl, "b", BRIM_DTYPE_BOOL, &(uint8_t){ 0 });
    assert_text(&jsonl, "t", "", 0);
    assert_list(&jsonl, "v", BRIM_DTYPE_I64, (int64_t[]){ INT64_MIN }, 1);
    assert_list(&jsonl, "w", BRIM_DTYPE_F64, NULL, 0);
    fetch_good(&jsonl, 2);
    assert_element(&jsonl, "r", BRIM_DTYPE_F64, &(double){ 1000 });
    assert_text(&jsonl, "t", "\"\\/\b\f\n\r\t\xf0\x9f\x98\x80\0", 13);
    assert_list(&jsonl, "v", BRIM_DTYPE_I64, NULL, 0);
    assert_list(&jsonl, "w", BRIM_DTYPE_F64, (double[]){ 1, 2e-3 }, 2);
    close_lines(&jsonl);
}

/* Records of one fetch stay whole beside each other. */
static void test_runs(void **state) {
    (void)state;
    char text[16384];
    size_t length = 0;
    for (int i = 0; i < 200; i++) {
        length += (size_t)sprintf(text + length, "{\"t\":\"a\\t%d\",\"v\":[%d,%d],\"u\":[%d]}\n", i,
                                  i, i + 1, -i);
    }
    struct jsonl jsonl;
    open_lines(&jsonl, text, NO_OPTIONS);
    const struct brim__source *source = &jsonl.opened.source;
    assert_true(source->most_run > 1);
    uint8_t *buffer = new_buffer(source, source->most_run);
    for (uint64_t sample = 0; sample < source->count;) {
        const uint8_t *records;
        uint64_t got;
        assert_int_equal(fetch_run(source, sample, source->most_run, buffer, &records, &got),
                         BRIM_OK);
        assert_true(got > 1 || sample + 1 == source->count);
        for (uint64_t r = 0; r < got; r++) {
            const int64_t i = (int64_t)(sample + r);
            char wanted[16];
            sprintf(wanted, "a\t%d", (int)i);
            jsonl.record = records + r * source->pitch;
            assert_text(&jsonl, "t", wanted, strlen(wanted));
            assert_list(&jsonl, "v", BRIM_DTYPE_I64, (int64_t[]){ i, i + 1 }, 2);
            assert_list(&jsonl, "u", BRIM_DTYPE_I64, (int64_t[]){ -i }, 1);
        }
        sample += got;
    }
    free(buffer);
    close_lines(&jsonl);
}

static void test_chosen_fields(void **state) {
    (void)state;
    struct jsonl jsonl;
    open_lines(&jsonl,
               "{\"x\":[{\"c\":9}],\"b\":{\"d\":[7],\"c\":1,\"e\":{\"c\":2}},\"c\":3,\"k.l\":4}\n"
               "{\"c\":30,\"k\":{\"l\":40},\"b\":{\"c\":10,\"e\":{\"c\":20,\"z\":[[{}]]}}}\n",
               OPTIONS("fields=c,b.c,b.e.c,k.l"));
    static const int64_t wanted[2][4] = { { 3, 1, 2, 4 }, { 30, 10, 20, 40 } };
    static const char *const names[] = { "c", "b.c", "b.e.c", "k.l" };
    for (uint64_t sample = 0; sample < 2; sample++) {
        fetch_good(&jsonl, sample);
        for (int i = 0; i < 4; i++) {
            assert_string_equal(jsonl.opened.source.field[i].name, names[i]);
            assert_element(&jsonl, names[i], BRIM_DTYPE_I64, &wanted[sample][i]);
        }
    }
    close_lines(&jsonl);
    /* a key that another begins with is no object on the way to it */
    open_lines(&jsonl, "{\"a\":{\"c\":5},\"abc\":1}", OPTIONS("fields=abc"));
    fetch_good(&jsonl, 0);
    assert_element(&jsonl, "abc", BRIM_DTYPE_I64, &(int64_t){ 1 });
    close_lines(&jsonl);
    /* a name has fewer characters than a key */
    open_lines(&jsonl, "{\"a b\":1,\"\\u00e9\\u00e9\":2,\"\":3}", NO_OPTIONS);
    fetch_good(&jsonl, 0);
    assert_element(&jsonl, "a_b", BRIM_DTYPE_I64, &(int64_t){ 1 });
    assert_element(&jsonl, "k1", BRIM_DTYPE_I64, &(int64_t){ 2 });
    assert_element(&jsonl, "k2", BRIM_DTYPE_I64, &(int64_t){ 3 });
    close_lines(&jsonl);
    open_lines(&jsonl, "{\"a b\":1}", OPTIONS("fields=a b", "types=a b:float32"));
    fetch_good(&jsonl, 0);
    assert_element(&jsonl, "a_b", BRIM_DTYPE_F32, &(float){ 1 });
    close_lines(&jsonl);
}

static void test_given_types(void **state) {
    (void)state;
    static const struct {
        const char *type, *good, *bad[4];
        brim_dtype dtype;
        uint8_t bytes[8];
    } cases[] = {
        { "int8", "-128", { "128", "-129", "1.0", "1e1" }, BRIM_DTYPE_I8, { 0x80 } },
        { "uint8", "255", { "256", "-1", "0.5", "true" }, BRIM_DTYPE_U8, { 0xff } },
        { "int16", "-32768", { "32768", "-32769", "\"1\"", "[1]" }, BRIM_DTYPE_I16, { 0, 0x80 } },
        { "uint16", "65535", { "65536", "-1", "{}", "1e0" }, BRIM_DTYPE_U16, { 0xff, 0xff } },
        { "int32",
          "2147483647",
          { "2147483648", "-2147483649", "false", "1." },
          BRIM_DTYPE_I32,
          { 0xff, 0xff, 0xff, 0x7f } },
        { "uint32",
          "4294967295",
          { "4294967296", "-1", "null", "01" },
          BRIM_DTYPE_U32,
          { 0xff, 0xff, 0xff, 0xff } },
        { "uint64",
          "18446744073709551615",
          { "18446744073709551616", "-1", "1.5", "+1" },
          BRIM_DTYPE_U64,
          { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff } },
        { "int64",
          "-1",
          { "9223372036854775808", "1e5", "NaN", "Infinity" },
          BRIM_DTYPE_I64,
          { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff } },
        { "float32",
          "0.1",
          { "\"0.1\"", "nan", ".5", "0x1" },
          BRIM_DTYPE_F32,
          { 0xcd, 0xcc, 0xcc, 0x3d } },
        { "float64",
          "1",
          { "true", "[]", "-", "1e" },
          BRIM_DTYPE_F64,
          { 0, 0, 0, 0, 0, 0, 0xf0, 0x3f } },
        { "bool", "true", { "1", "0", "\"true\"", "True" }, BRIM_DTYPE_BOOL, { 1 } },
    };
    for (size_t i = 0; i < BRIM__COUNT(cases); i++) {
        char text[256], option[64];
        snprintf(text, sizeof text, "{\"k\":%s}\n{\"k\":%s}\n{\"k\":%s}\n{\"k\":%s}\n{\"k\":%s}\n",
                 cases[i].good, cases[i].bad[0], cases[i].bad[1], cases[i].bad[2], cases[i].bad[3]);
        snprintf(option, sizeof option, "types=%s%s", i % 2 ? "k:" : "", cases[i].type);
        struct jsonl jsonl;
        open_lines(&jsonl, text, OPTIONS("fields=k", option));
        fetch_good(&jsonl, 0);
        assert_element(&jsonl, "k", cases[i].dtype, cases[i].bytes);
        for (uint64_t sample = 1; sample < 5; sample++) {
            if (fetch(&jsonl, sample) != BRIM_STATUS_CORRUPT) {
                fail_msg("%s is taken as %s", cases[i].bad[sample - 1], cases[i].type);
            }
        }
        fetch_good(&jsonl, 0); /* a bad sample leaves nothing behind */
        close_lines(&jsonl);
    }
}

static void test_dense_lists(void **state) {
    (void)state;
    struct jsonl jsonl;
    open_lines(&jsonl,
               "{\"v\":[1,2.5,-3],\"m\":[true,false]}\n"
               "{\"v\":[1,2],\"m\":[true,false]}\n{\"v\":[1,2,3,4],\"m\":[true,false]}\n"
               "{\"v\":[1,[2],3],\"m\":[true,false]}\n{\"v\":5,\"m\":[true,false]}\n"
               "{\"v\":[1,2,\"3\"],\"m\":[true,false]}\n",
               OPTIONS("types=v:float32[3],m:bool[2]", "fields=v,m"));
    const struct brim__source_field *field = find(&jsonl, "v");
    assert_int_equal(field->form, BRIM_FORM_DENSE);
    assert_int_equal(field->view.shape.rank, 1);
    assert_int_equal(field->view.shape.dim[0], 3);
    fetch_good(&jsonl, 0);
    assert_memory_equal(jsonl.record + field->view.offset, ((float[]){ 1, 2.5f, -3 }), 12);
    assert_memory_equal(jsonl.record + find(&jsonl, "m")->view.offset, ((uint8_t[]){ 1, 0 }), 2);
    static const char *const parts[] = { "has 2 elements, not 3", "more than 3", "holds a list",
                                         "is a number", "holds a string" };
    for (uint64_t sample = 1; sample < 6; sample++) {
        assert_int_equal(fetch(&jsonl, sample), BRIM_STATUS_CORRUPT);
        assert_detail_has("key 'v'");
        assert_detail_has(parts[sample - 1]);
    }
    close_lines(&jsonl);
    open_lines(&jsonl, "{\"v\":[1,2,3]}\n{\"v\":[1,2,3,4]}",
               OPTIONS("types=v:uint8[]", "max_length=3"));
    fetch_good(&jsonl, 0);
    assert_list(&jsonl, "v", BRIM_DTYPE_U8, (uint8_t[]){ 1, 2, 3 }, 3);
    assert_int_equal(find(&jsonl, "v")->view.shape.dim[0], 3);
    assert_int_equal(fetch(&jsonl, 1), BRIM_STATUS_CORRUPT);
    assert_detail_has("raise max_length");
    close_lines(&jsonl);
}

/* ---------------------------------------------------------- lists of lists */

/* `count` rows of `inner` elements behind each other. */
static void assert_rows(const struct jsonl *jsonl, const char *name, brim_dtype dtype,
                        const void *wanted, uint64_t count, uint64_t inner) {
    const struct brim__source_field *field = find(jsonl, name);
    const struct brim__span span = span_of(jsonl, name);
    assert_int_equal(field->form, BRIM_FORM_RAGGED);
    assert_int_equal(field->view.dtype, dtype);
    assert_int_equal(field->view.shape.rank, 2);
    assert_int_equal(field->view.shape.dim[1], inner);
    assert_int_equal(span.count, count);
    if (count > 0) {
        assert_memory_equal(span.data, wanted, count * inner * brim_dtype_bytes(dtype));
    }
}

static void test_rows(void **state) {
    (void)state;
    struct jsonl jsonl;
    /* found by looking, beside other lists; the first ones may be empty */
    open_lines(&jsonl,
               "{\"b\":[],\"v\":[1],\"r\":[[0.5],[2]]}\n"
               "{\"v\":[2,3],\"b\":[[10,20,30,40],[1,-2,3,4]],\"r\":[]}\n"
               "{\"r\":[[7]],\"b\":[[5 , 6,7,8]],\"v\":[]}\n",
               NO_OPTIONS);
    fetch_good(&jsonl, 0);
    assert_rows(&jsonl, "b", BRIM_DTYPE_I64, NULL, 0, 4);
    assert_list(&jsonl, "v", BRIM_DTYPE_I64, (int64_t[]){ 1 }, 1);
    assert_rows(&jsonl, "r", BRIM_DTYPE_F64, (double[]){ 0.5, 2 }, 2, 1);
    fetch_good(&jsonl, 1);
    assert_rows(&jsonl, "b", BRIM_DTYPE_I64, (int64_t[]){ 10, 20, 30, 40, 1, -2, 3, 4 }, 2, 4);
    assert_list(&jsonl, "v", BRIM_DTYPE_I64, (int64_t[]){ 2, 3 }, 2);
    assert_rows(&jsonl, "r", BRIM_DTYPE_F64, NULL, 0, 1);
    fetch_good(&jsonl, 2);
    assert_rows(&jsonl, "b", BRIM_DTYPE_I64, (int64_t[]){ 5, 6, 7, 8 }, 1, 4);
    assert_rows(&jsonl, "r", BRIM_DTYPE_F64, (double[]){ 7 }, 1, 1);
    close_lines(&jsonl);
    /* given, and in an object */
    open_lines(&jsonl,
               "{\"o\":{\"b\":[[1,2.5,3,4]]},\"m\":[[true,false]],\"d\":[[1,2,3],[4,5,6]]}\n",
               OPTIONS("fields=o.b,m,d", "types=float32[][4],bool[][2],uint8[2][3]"));
    fetch_good(&jsonl, 0);
    assert_rows(&jsonl, "o.b", BRIM_DTYPE_F32, (float[]){ 1, 2.5f, 3, 4 }, 1, 4);
    assert_rows(&jsonl, "m", BRIM_DTYPE_BOOL, (uint8_t[]){ 1, 0 }, 1, 2);
    const struct brim__source_field *dense = find(&jsonl, "d");
    assert_int_equal(dense->form, BRIM_FORM_DENSE);
    assert_int_equal(dense->view.shape.rank, 2);
    assert_int_equal(dense->view.shape.dim[0], 2);
    assert_int_equal(dense->view.shape.dim[1], 3);
    assert_memory_equal(jsonl.record + dense->view.offset, ((uint8_t[]){ 1, 2, 3, 4, 5, 6 }), 6);
    close_lines(&jsonl);
}

static void test_wrong_rows(void **state) {
    (void)state;
    static const struct {
        const char *value, *part;
    } cases[] = {
        { "[[1,2],[3]]", "list 1 in its list has 1 elements, not 2" },
        { "[[1,2,3]]", "list 0 in its list has at least 3 elements, not 2" },
        { "[[1,2],[]]", "list 1 in its list has 0 elements, not 2" },
        { "[1,2]", "holds a number, but its type is a list of lists of int64" },
        { "[[1,2],3]", "holds a number" },
        { "[[1,[2]]]", "holds a list" },
        { "[[[1,2]]]", "holds a list" },
        { "[[1,{}]]", "holds an object" },
        { "[{\"x\":[1,2]}]", "holds an object" },
        { "[[1,\"2\"]]", "holds a string" },
        { "[[1,2.5]]", "2.5 is no int64" },
        { "[null]", "holds null" },
        { "[[1,null]]", "null in its list" },
        { "[[1,2],[3,4],[5,6],[7,8]]", "more than 3 lists: raise max_length" },
        { "7", "is a number" },
        { "{}", "is an object" },
        { "null", "is null" },
        { "[[1,2],[3,4]", "near byte" },
    };
    char text[2048];
    size_t length = 0;
    for (size_t i = 0; i < BRIM__COUNT(cases); i++) {
        length += (size_t)sprintf(text + length, "{\"b\":%s}\n{\"b\":[[%zu,1],[2,3]]}\n",
                                  cases[i].value, i);
    }
    struct jsonl jsonl;
    open_lines(&jsonl, text, OPTIONS("fields=b", "types=int64[][2]", "max_length=3"));
    for (size_t i = 0; i < BRIM__COUNT(cases); i++) {
        if (fetch(&jsonl, 2 * i) != BRIM_STATUS_CORRUPT) {
            fail_msg("%s is taken", cases[i].value);
        }
        assert_detail_has(cases[i].part);
        assert_true(i + 1 == BRIM__COUNT(cases) || strstr(brim_detail(), "key 'b'") != NULL);
        fetch_good(&jsonl, 2 * i + 1);
        assert_rows(&jsonl, "b", BRIM_DTYPE_I64, (int64_t[]){ (int64_t)i, 1, 2, 3 }, 2, 2);
    }
    close_lines(&jsonl);
    open_lines(&jsonl, "{\"d\":[[1,2]]}\n{\"d\":[[1,2],[3,4],[5,6]]}\n{\"d\":[1,2]}\n",
               OPTIONS("fields=d", "types=int8[2][2]"));
    static const char *const parts[] = { "has 1 lists, not 2", "more than 2 lists",
                                         "holds a number" };
    for (uint64_t sample = 0; sample < 3; sample++) {
        assert_int_equal(fetch(&jsonl, sample), BRIM_STATUS_CORRUPT);
        assert_detail_has(parts[sample]);
    }
    close_lines(&jsonl);
    /* later lines do not change what the first ones said */
    length = 0;
    for (int i = 0; i < 100; i++) {
        length += (size_t)sprintf(text + length, "{\"b\":[[1]]}\n");
    }
    sprintf(text + length, "{\"b\":[[1,2]]}\n");
    open_lines(&jsonl, text, NO_OPTIONS);
    assert_int_equal(fetch(&jsonl, 100), BRIM_STATUS_CORRUPT);
    assert_detail_has("key 'b': list 0 in its list has at least 2 elements, not 1");
    close_lines(&jsonl);
}

static void test_missing_rows(void **state) {
    (void)state;
    static const char text[] = "{\"b\":[[1,null]],\"d\":[[1,null]]}\n{\"b\":null}\n{}\n";
    static const char fields[] = "fields=b,d", types[] = "types=float32[][2],float64[1][2]";
    struct jsonl jsonl;
    open_lines(&jsonl, text, OPTIONS(fields, types, "missing=zero"));
    fetch_good(&jsonl, 0);
    assert_rows(&jsonl, "b", BRIM_DTYPE_F32, (float[]){ 1, 0 }, 1, 2);
    for (uint64_t sample = 1; sample < 3; sample++) {
        fetch_good(&jsonl, sample);
        assert_rows(&jsonl, "b", BRIM_DTYPE_F32, NULL, 0, 2);
        assert_memory_equal(jsonl.record + find(&jsonl, "d")->view.offset, ((double[]){ 0, 0 }),
                            16);
    }
    close_lines(&jsonl);
    open_lines(&jsonl, text, OPTIONS(fields, types, "missing=nan"));
    fetch_good(&jsonl, 0);
    float row[2];
    memcpy(row, span_of(&jsonl, "b").data, sizeof row);
    assert_true(row[0] == 1 && isnan(row[1]));
    assert_int_equal(fetch(&jsonl, 1), BRIM_STATUS_CORRUPT);
    assert_detail_has("make it empty");
    close_lines(&jsonl);
}

/* ------------------------------------------------------------------- types */

static void test_guessed_types(void **state) {
    (void)state;
    static const struct {
        const char *values[3];
        const char *missing;
        brim_form form;
        brim_dtype dtype;
    } cases[] = {
        { { "1", "2", "-3" }, "error", BRIM_FORM_DENSE, BRIM_DTYPE_I64 },
        { { "1", "2", "0.5" }, "error", BRIM_FORM_DENSE, BRIM_DTYPE_F64 },
        { { "1", "2e3", "1" }, "error", BRIM_FORM_DENSE, BRIM_DTYPE_F64 },
        { { "1", "18446744073709551615", "1" }, "error", BRIM_FORM_DENSE, BRIM_DTYPE_U64 },
        { { "-1", "18446744073709551615", "1" }, "error", BRIM_FORM_DENSE, BRIM_DTYPE_F64 },
        { { "1", "18446744073709551616", "1" }, "error", BRIM_FORM_DENSE, BRIM_DTYPE_F64 },
        { { "1", "null", "2" }, "zero", BRIM_FORM_DENSE, BRIM_DTYPE_I64 },
        { { "1", "null", "2" }, "nan", BRIM_FORM_DENSE, BRIM_DTYPE_F64 },
        { { "true", "false", "null" }, "zero", BRIM_FORM_DENSE, BRIM_DTYPE_BOOL },
        { { "\"\"", "\"1\"", "null" }, "zero", BRIM_FORM_TEXT, BRIM_DTYPE_U8 },
        { { "[]", "[1]", "[]" }, "error", BRIM_FORM_RAGGED, BRIM_DTYPE_I64 },
        { { "[]", "[1]", "[0.5]" }, "error", BRIM_FORM_RAGGED, BRIM_DTYPE_F64 },
        { { "[]", "[]", "[]" }, "error", BRIM_FORM_RAGGED, BRIM_DTYPE_F64 },
        { { "[1,null]", "[]", "[]" }, "nan", BRIM_FORM_RAGGED, BRIM_DTYPE_F64 },
        { { "[]", "[[1,2]]", "[]" }, "error", BRIM_FORM_RAGGED, BRIM_DTYPE_I64 },
        { { "[[1,2]]", "[]", "[[3,0.5]]" }, "error", BRIM_FORM_RAGGED, BRIM_DTYPE_F64 },
        { { "[[18446744073709551615]]", "[]", "[]" }, "error", BRIM_FORM_RAGGED, BRIM_DTYPE_U64 },
        { { "[[1,null]]", "null", "[]" }, "zero", BRIM_FORM_RAGGED, BRIM_DTYPE_I64 },
    };
    for (size_t i = 0; i < BRIM__COUNT(cases); i++) {
        char text[256], option[64];
        snprintf(text, sizeof text, "{\"k\":%s}\n{\"k\":%s}\n{\"k\":%s}\n", cases[i].values[0],
                 cases[i].values[1], cases[i].values[2]);
        snprintf(option, sizeof option, "missing=%s", cases[i].missing);
        struct jsonl jsonl;
        open_lines(&jsonl, text, OPTIONS(option));
        const struct brim__source_field *field = find(&jsonl, "k");
        if (field->form != cases[i].form || field->view.dtype != cases[i].dtype) {
            fail_msg("%s: form %d, %s", text, (int)field->form, brim_dtype_name(field->view.dtype));
        }
        for (uint64_t sample = 0; sample < 3; sample++) {
            fetch_good(&jsonl, sample);
        }
        close_lines(&jsonl);
    }
}

static void assert_not_opened(const char *text, const char *const options[4], brim_status wanted,
                              const char *part) {
    struct jsonl jsonl;
    const size_t descriptors = open_descriptors();
    const brim_status status = try_lines(&jsonl, text, options);
    close_opened(&jsonl.opened);
    if (status != wanted) {
        fail_msg("%s: status %d: %s", text, (int)status, brim_detail());
    }
    assert_detail_has(part);
    assert_int_equal(open_descriptors(), descriptors);
}

static void test_refused_openings(void **state) {
    (void)state;
    assert_not_opened("", NO_OPTIONS, BRIM_STATUS_CORRUPT, "it is empty");
    assert_not_opened("\n\r\n\n", NO_OPTIONS, BRIM_STATUS_CORRUPT, "it is empty");
    assert_not_opened("", OPTIONS("fields=a", "types=text"), BRIM_STATUS_CORRUPT, "it is empty");
    assert_not_opened("{\"a\":1}\n", OPTIONS("max_bytes=3"), BRIM_STATUS_INVALID,
                      "at most max_bytes");
    assert_not_opened("\x1f\x8b\b\n", NO_OPTIONS, BRIM_STATUS_CORRUPT, "compressed with gzip");
    assert_not_opened("{}\n", NO_OPTIONS, BRIM_STATUS_INVALID, "the first record has no key");
    assert_not_opened("{\"a\":{},\"b\":null,\"c\":[[[1]]],\"d\":[true],\"e\":[[1],[2,3]],"
                      "\"f\":[[1],2],\"g\":[[]],\"h\":[[\"x\"]],\"i\":[[1],[]],\"j\":[null,[1]]}",
                      NO_OPTIONS, BRIM_STATUS_INVALID, "the first record has no key");
    assert_not_opened("hello\n[1]\n", NO_OPTIONS, BRIM_STATUS_CORRUPT,
                      "none of its first 2 records");
    assert_detail_has("record 0: near byte");
    assert_not_opened("[1]\n", OPTIONS("fields=a"), BRIM_STATUS_CORRUPT, "is not a JSON object");
    assert_not_opened("{\"a\":1}\n{\"a\":\"b\"}\n", NO_OPTIONS, BRIM_STATUS_INVALID,
                      "no common type");
    assert_not_opened("{\"a\":1}\n{\"a\":[1]}\n", NO_OPTIONS, BRIM_STATUS_INVALID,
                      "no common type");
    assert_not_opened("{\"a\":[[1]]}\n{\"a\":[1]}\n", NO_OPTIONS, BRIM_STATUS_INVALID,
                      "no common type");
    assert_not_opened("{\"a\":[[1,2],3]}\n", OPTIONS("fields=a"), BRIM_STATUS_INVALID,
                      "no common type");
    assert_not_opened("{\"a\":[[1,2]]}\n{\"a\":[[1]]}\n", NO_OPTIONS, BRIM_STATUS_INVALID,
                      "differ in length: give one, as types=a:float64[][2]");
    assert_not_opened("{\"a\":[[]]}\n", OPTIONS("fields=a"), BRIM_STATUS_INVALID,
                      "differ in length");
    assert_not_opened("{\"a\":[[[1]]]}\n", OPTIONS("fields=a"), BRIM_STATUS_INVALID,
                      "are not fields");
    assert_not_opened("{\"a\":true}\n{\"a\":1}\n", NO_OPTIONS, BRIM_STATUS_INVALID,
                      "no common type");
    assert_not_opened("{\"a\":1}\n{\"a\":{}}\n", NO_OPTIONS, BRIM_STATUS_INVALID,
                      "'a' are objects");
    assert_not_opened("{\"a\":{\"b\":1}}\n", OPTIONS("fields=a"), BRIM_STATUS_INVALID, "a.KEY");
    assert_not_opened("{\"a\":1}\n", OPTIONS("fields=b"), BRIM_STATUS_INVALID,
                      "'b' has no value in the first 1 records");
    assert_not_opened("{\"a\":1}\n", OPTIONS("types=int64,int64"), BRIM_STATUS_INVALID,
                      "more types");
    assert_not_opened("{\"label\":1}\n", OPTIONS("types=lable:int64"), BRIM_STATUS_INVALID,
                      "did you mean 'label'?");
    assert_not_opened("{\"a\":1}\n", OPTIONS("types=a:int64,a:int8"), BRIM_STATUS_INVALID,
                      "two types");
    static const char *const types[] = { "a:complex64",
                                         "a:float16",
                                         "a:number",
                                         "a:text[]",
                                         "a:int64[0]",
                                         "a:int64[",
                                         "a:int64[-1]",
                                         "a:",
                                         "a:int64[1.5]",
                                         "a:int8[][]",
                                         "a:int8[2][]",
                                         "a:int8[][0]",
                                         "a:int8[][4",
                                         "a:int8[][4]x",
                                         "a:int8[][2][2]",
                                         "a:text[][4]",
                                         "a:int8[]4]",
                                         "a:int8[65536][65536]",
                                         "a:int8[][4294967296]" };
    for (size_t i = 0; i < BRIM__COUNT(types); i++) {
        char option[64];
        snprintf(option, sizeof option, "types=%s", types[i]);
        assert_not_opened("{\"a\":1}\n", OPTIONS(option), BRIM_STATUS_INVALID, "is not a type");
    }
    assert_not_opened("{\"a b\":1,\"a_b\":2}\n", NO_OPTIONS, BRIM_STATUS_INVALID,
                      "two keys give a field of the name 'a_b'");
    char many[512] = "{\"k0\":0";
    for (int i = 1; i < 17; i++) {
        sprintf(many + strlen(many), ",\"k%d\":%d", i, i);
    }
    strcat(many, "}\n");
    assert_not_opened(many, NO_OPTIONS, BRIM_STATUS_INVALID, "more than 16 fields");
    struct jsonl jsonl;
    open_lines(&jsonl, many, OPTIONS("fields=k16,k3"));
    fetch_good(&jsonl, 0);
    assert_element(&jsonl, "k16", BRIM_DTYPE_I64, &(int64_t){ 16 });
    close_lines(&jsonl);
}

/* Bad lines at the beginning do not decide what the fields are. */
static void test_bad_lines_first(void **state) {
    (void)state;
    struct jsonl jsonl;
    open_lines(&jsonl, "{\"a\":1,\n{\"a\":1,\"a\":2}\n\xff\n{\"b\":1}\n", NO_OPTIONS);
    assert_int_equal(jsonl.opened.source.count, 4);
    assert_int_equal(jsonl.opened.source.field_count, 1);
    for (uint64_t sample = 0; sample < 3; sample++) {
        assert_int_equal(fetch(&jsonl, sample), BRIM_STATUS_CORRUPT);
    }
    fetch_good(&jsonl, 3);
    assert_element(&jsonl, "b", BRIM_DTYPE_I64, &(int64_t){ 1 });
    close_lines(&jsonl);
    /* nor do bad ones behind it, up to where they are bad */
    open_lines(&jsonl, "{\"a\":[]}\n{\"a\":[[1,2\n{\"a\":\"x\",}\n{\"a\":[3]}\n", NO_OPTIONS);
    fetch_good(&jsonl, 3);
    assert_list(&jsonl, "a", BRIM_DTYPE_I64, (int64_t[]){ 3 }, 1);
    close_lines(&jsonl);
}

/* ----------------------------------------------------------------- missing */

static void test_missing(void **state) {
    (void)state;
    static const char text[] =
        "{\"i\":1,\"f\":0.5,\"g\":0.5,\"b\":true,\"t\":\"x\",\"v\":[1],\"d\":[1,2]}\n"
        "{}\n"
        "{\"i\":null,\"f\":null,\"g\":null,\"b\":null,\"t\":null,\"v\":null,\"d\":null}\n"
        "{\"i\":1,\"f\":0.5,\"g\":0.5,\"b\":true,\"t\":\"x\",\"v\":[null],\"d\":[1,null]}\n";
    static const char types[] = "types=i:int64,g:float32,d:float64[2]";
    struct jsonl jsonl;
    open_lines(&jsonl, text, OPTIONS("fields=i,f,g,b,t,v,d", types));
    for (uint64_t sample = 1; sample < 4; sample++) {
        assert_int_equal(fetch(&jsonl, sample), BRIM_STATUS_CORRUPT);
        assert_detail_has(sample == 1   ? "key 'i': is missing"
                          : sample == 2 ? "key 'i': is null"
                                        : "key 'v': null in its list");
        assert_detail_has("missing=");
    }
    close_lines(&jsonl);
    open_lines(&jsonl, text, OPTIONS("fields=i,f,g,b,t,v,d", types, "missing=zero"));
    for (uint64_t sample = 1; sample < 3; sample++) {
        fetch_good(&jsonl, sample);
        assert_element(&jsonl, "i", BRIM_DTYPE_I64, &(int64_t){ 0 });
        assert_element(&jsonl, "f", BRIM_DTYPE_F64, &(double){ 0 });
        assert_element(&jsonl, "g", BRIM_DTYPE_F32, &(float){ 0 });
        assert_element(&jsonl, "b", BRIM_DTYPE_BOOL, &(uint8_t){ 0 });
        assert_text(&jsonl, "t", "", 0);
        assert_list(&jsonl, "v", BRIM_DTYPE_I64, NULL, 0);
        assert_memory_equal(jsonl.record + find(&jsonl, "d")->view.offset, ((double[]){ 0, 0 }),
                            16);
    }
    fetch_good(&jsonl, 3);
    assert_list(&jsonl, "v", BRIM_DTYPE_I64, (int64_t[]){ 0 }, 1);
    close_lines(&jsonl);
}

static void test_missing_nan(void **state) {
    (void)state;
    struct jsonl jsonl;
    open_lines(&jsonl, "{\"f\":1,\"g\":2,\"d\":[1,2],\"v\":[1,null]}\n{\"f\":null,\"v\":[]}\n",
               OPTIONS("missing=nan", "types=g:float32,d:float64[2]"));
    fetch_good(&jsonl, 0);
    assert_element(&jsonl, "f", BRIM_DTYPE_F64, &(double){ 1 });
    const struct brim__span span = span_of(&jsonl, "v");
    double values[2];
    memcpy(values, span.data, sizeof values);
    assert_true(values[0] == 1 && isnan(values[1]));
    fetch_good(&jsonl, 1);
    double f, d[2];
    float g;
    memcpy(&f, jsonl.record + find(&jsonl, "f")->view.offset, sizeof f);
    memcpy(&g, jsonl.record + find(&jsonl, "g")->view.offset, sizeof g);
    memcpy(d, jsonl.record + find(&jsonl, "d")->view.offset, sizeof d);
    assert_true(isnan(f) && isnan(g) && isnan(d[0]) && isnan(d[1]));
    close_lines(&jsonl);
    open_lines(&jsonl,
               "{\"i\":1,\"b\":true,\"t\":\"\",\"v\":[]}\n{\"b\":true,\"t\":\"\",\"v\":[]}\n"
               "{\"i\":1,\"t\":\"\",\"v\":[]}\n{\"i\":1,\"b\":true,\"v\":[]}\n"
               "{\"i\":1,\"b\":true,\"t\":\"\"}\n",
               OPTIONS("missing=nan"));
    static const char *const parts[] = { "int64 has no NaN", "bool has no NaN", "make it empty",
                                         "make it empty" };
    for (uint64_t sample = 1; sample < 5; sample++) {
        assert_int_equal(fetch(&jsonl, sample), BRIM_STATUS_CORRUPT);
        assert_detail_has(parts[sample - 1]);
    }
    close_lines(&jsonl);
}

/* ----------------------------------------------------------------- hostile */

static void test_hostile_lines(void **state) {
    (void)state;
    static const struct {
        const char *line, *part;
    } cases[] = {
        { "{", "ends too early" },
        { "{\"k\"", "ends too early" },
        { "{\"k\":", "ends too early" },
        { "{\"k\":1", "ends too early" },
        { "{\"k\":\"abc", "ends too early" },
        { "{\"k\":\"\\", "ends too early" },
        { "{\"k\":\"\\u12", "ends too early" },
        { "{\"k\":tru", "near byte" },
        { "{\"o\":[1,2", "ends too early" },
        { "{\"k\":1}}", "trailing garbage" },
        { "{\"k\":1} {\"k\":2}", "trailing garbage" },
        { "{\"k\":1,}", "near byte" },
        { "{\"k\":01}", "near byte" },
        { "{\"k\":1 2}", "near byte" },
        { "{k:1}", "near byte" },
        { "{'k':1}", "near byte" },
        { "{\"k\":undefined}", "near byte" },
        { "{\"k\":NaN}", "near byte" },
        { "{\"k\":-Infinity}", "near byte" },
        { "{\"k\":1 /* no */}", "near byte" },
        { "{\"k\":1,\"k\":2}", "'k' twice" },
        { "{\"k\":1,\"\\u006b\":2}", "'k' twice" },
        { "{\"k\":\"a\tb\"}", "near byte" },
        { "{\"k\":\f1}", "byte 5: a control character" },
        { "{\"k\":1}\v", "byte 7: a control character" },
        { "{\"k\":\"\\n\f\"}", "byte 8: a control character" },
        { "{\"k\":\"\\x\"}", "near byte" },
        { "{\"k\":\"\\uD8\"}", "near byte" },
        { "{\"o\":\"\\ud800\"}", "surrogate" },
        { "{\"o\":\"\\udc00\"}", "surrogate" },
        { "{\"o\":\"\\ud800x\"}", "surrogate" },
        { "{\"o\":\"\\ud800\\n\"}", "surrogate" },
        { "{\"o\":\"\\ud800\\u0041\"}", "surrogate" },
        { "{\"o\":\"\\ud800\\ud800\\udc00\"}", "surrogate" },
        { "{\"o\":\"\x80\"}", "byte 6: is not UTF-8" },
        { "{\"o\":\"\xc0\xaf\"}", "byte 6: is not UTF-8" },
        { "{\"o\":\"\xc3\"}", "byte 7: is not UTF-8" },
        { "{\"o\":\"\xe0\x80\xaf\"}", "byte 7: is not UTF-8" },
        { "{\"o\":\"\xed\xa0\x80\"}", "byte 7: is not UTF-8" },
        { "{\"o\":\"\xf4\x90\x80\x80\"}", "byte 7: is not UTF-8" },
        { "{\"o\":\"\xf8\x88\x80\x80\"}", "byte 6: is not UTF-8" },
        { "{\"o\":\"0123456789012345678901234567890123456789\xff\"}", "byte 46: is not UTF-8" },
        { "1", "is not a JSON object" },
        { "\"k\"", "is not a JSON object" },
        { "null", "is not a JSON object" },
        { "[{\"k\":1}]", "is not a JSON object" },
        { "   ", "ends too early" },
        { "{\"k\":{\"k\":1}}", "is an object" },
        { "{\"k\":[1]}", "is a list" },
        { "{\"k\":\"1\"}", "is a string" },
    };
    static char text[8192]; /* each between two good ones */
    size_t length = (size_t)sprintf(text, "{\"k\":0}\n");
    for (size_t i = 0; i < BRIM__COUNT(cases); i++) {
        assert_true(length + strlen(cases[i].line) + 32 < sizeof text);
        length += (size_t)sprintf(text + length, "%s\n{\"k\":%zu}\n", cases[i].line, i);
    }
    struct jsonl jsonl;
    open_lines(&jsonl, text, OPTIONS("fields=k", "types=int64"));
    assert_int_equal(jsonl.opened.source.count, 2 * BRIM__COUNT(cases) + 1);
    for (size_t i = 0; i < BRIM__COUNT(cases); i++) {
        const brim_status status = fetch(&jsonl, 2 * i + 1);
        if (status != BRIM_STATUS_CORRUPT) {
            fail_msg("%s: status %d", cases[i].line, (int)status);
        }
        assert_detail_has(cases[i].part);
        fetch_good(&jsonl, 2 * i + 2);
        assert_element(&jsonl, "k", BRIM_DTYPE_I64, &(int64_t){ (int64_t)i });
    }
    close_lines(&jsonl);
    /* zeros are no blanks */
    const struct path path = write_lines("{\"k\":1}\0\n", 9);
    use_lines(&jsonl.use, path.text, OPTIONS("fields=k", "types=int64"));
    assert_int_equal(open_use(&jsonl.opened, &jsonl.use, NULL, 0), BRIM_OK);
    jsonl.buffer = new_buffer(&jsonl.opened.source, 1);
    assert_int_equal(fetch(&jsonl, 0), BRIM_STATUS_CORRUPT);
    close_lines(&jsonl);
}

static void test_depth(void **state) {
    (void)state;
    for (int depth = BRIM__JSON_DEPTH - 2; depth <= BRIM__JSON_DEPTH + 2; depth++) {
        char text[512] = "{\"k\":1,\"o\":";
        for (int i = 0; i < depth - 1; i++) {
            strcat(text, i % 2 ? "[" : "{\"k\":");
        }
        strcat(text, "0");
        for (int i = depth - 1; i-- > 0;) {
            strcat(text, i % 2 ? "]" : "}");
        }
        strcat(text, "}\n");
        struct jsonl jsonl;
        open_lines(&jsonl, text, OPTIONS("fields=k", "types=int64"));
        if (depth <= BRIM__JSON_DEPTH) {
            fetch_good(&jsonl, 0);
        } else {
            assert_int_equal(fetch(&jsonl, 0), BRIM_STATUS_CORRUPT);
            assert_detail_has("nested deeper than 64");
        }
        close_lines(&jsonl);
    }
    static char deep[200001];
    memset(deep, '[', 200000);
    memcpy(deep, "{\"k\":", 5);
    struct jsonl jsonl;
    open_lines(&jsonl, deep, OPTIONS("fields=k", "types=int64[]"));
    assert_int_equal(fetch(&jsonl, 0), BRIM_STATUS_CORRUPT);
    close_lines(&jsonl);
}

/* One line alone whose field is a text, or rows of int64, with not a byte more of
 * memory than is asked for. *told: the span's count. */
static brim_status parse_alone(struct brim__jsonl *jsonl, const char *line, size_t length,
                               uint64_t *told) {
    struct brim__line_format format = { .self = jsonl };
    brim__jsonl_fit(&format, length);
    uint8_t *work, *bytes = malloc(length + 1);
    assert_int_equal(posix_memalign((void **)&work, 64, format.work_bytes + format.scratch_bytes),
                     0);
    memcpy(bytes, line, length);
    struct brim__span span = { 0 };
    const brim_status status =
        brim__jsonl_parse(NULL, jsonl, bytes, length, (uint8_t *)&span, work);
    if (status == BRIM_OK) {
        const bool text = jsonl->field[0].form == BRIM_FORM_TEXT;
        const uint8_t *first = text ? bytes : work;
        const uint64_t room = text ? length : format.work_bytes;
        const uint64_t used = text ? span.count : span.count * jsonl->field[0].inner * 8;
        assert_true(span.data >= first && span.data + used <= first + room);
    }
    *told = span.count;
    free(bytes);
    free(work);
    return status;
}

/* Strings of every length around the sizes of buffers, whole and cut: the memory
 * set aside is enough. */
static void test_lengths(void **state) {
    (void)state;
    static char line[20000];
    struct brim__jsonl own = { .count = 1, .max_length = 1 };
    own.field[0] = (struct brim__jsonl_field){
        .key = "k", .key_length = 1, .name = "k", .form = BRIM_FORM_TEXT, .dtype = BRIM_DTYPE_U8
    };
    for (size_t n = 0; n < 9000; n += n % 2048 < 40 || n % 2048 > 2000 ? 1 : 61) {
        for (int escaped = 0; escaped < 2; escaped++) {
            size_t length = (size_t)sprintf(line, "{\"k\":\"%s", escaped ? "\\n" : "n");
            memset(line + length, 'x', n);
            length += n;
            length += (size_t)sprintf(line + length, "\"}");
            uint64_t told;
            assert_int_equal(parse_alone(&own, line, length, &told), BRIM_OK);
            assert_int_equal(told, n + 1);
            assert_int_equal(parse_alone(&own, line, length - 2, &told), BRIM_STATUS_CORRUPT);
            assert_detail_has("ends too early");
        }
    }
    struct jsonl jsonl;
    open_lines(&jsonl, "{\"k\":1}\n{\"k\":1,\"more\":\"of it\"}\n",
               OPTIONS("max_bytes=10", "fields=k"));
    fetch_good(&jsonl, 0);
    assert_int_equal(fetch(&jsonl, 1), BRIM_STATUS_CORRUPT);
    assert_detail_has("max_bytes");
    close_lines(&jsonl);
    open_lines(&jsonl, "{\"k\":\"abc\"}", NO_OPTIONS); /* bounds are the longest line's */
    assert_int_equal(find(&jsonl, "k")->view.shape.dim[0], 11);
    close_lines(&jsonl);
}

/* As many numbers as a line can hold, in several lists. */
static void test_crowded_lists(void **state) {
    (void)state;
    static char text[8192];
    for (int lists = 1; lists < 5; lists++) {
        size_t length = (size_t)sprintf(text, "{");
        for (int list = 0; list < lists; list++) {
            length += (size_t)sprintf(text + length, "%s\"%d\":[1", list ? "," : "", list);
            for (int i = 0; i < (list == 1 ? 0 : 300 + list); i++) {
                length += (size_t)sprintf(text + length, ",%d", i % 10);
            }
            length += (size_t)sprintf(text + length, "]");
        }
        sprintf(text + length, "}");
        struct jsonl jsonl;
        open_lines(&jsonl, text, OPTIONS("max_length=400", "types=0:uint8[]"));
        fetch_good(&jsonl, 0);
        for (int list = 0; list < lists; list++) {
            char name[12];
            sprintf(name, "%d", list);
            assert_int_equal(span_of(&jsonl, name).count, list == 1 ? 1 : 301 + list);
        }
        close_lines(&jsonl);
    }
}

/* Rows up to what a line can hold, whole, cut anywhere and too long: with the memory
 * that is asked for and not a byte more, and never more rows than the bound. */
static void test_crowded_rows(void **state) {
    (void)state;
    for (uint64_t inner = 1; inner < 70; inner += inner < 6 ? 1 : 21) {
        for (uint64_t rows = 1; rows < 9; rows++) {
            char line[2048];
            size_t length = (size_t)sprintf(line, "{\"\":[");
            for (uint64_t i = 0; i < rows * inner; i++) {
                length += (size_t)sprintf(line + length, "%s%llu%s",
                                          i == 0      ? "["
                                          : i % inner ? ","
                                                      : ",[",
                                          (unsigned long long)i % 10, (i + 1) % inner ? "" : "]");
            }
            length += (size_t)sprintf(line + length, "]}");
            struct jsonl jsonl;
            open_lines(&jsonl, line, NO_OPTIONS);
            fetch_good(&jsonl, 0);
            assert_int_equal(span_of(&jsonl, "k0").count, rows);
            assert_int_equal(find(&jsonl, "k0")->view.shape.dim[1], inner);
            close_lines(&jsonl);
            struct brim__jsonl own = { .count = 1, .max_length = 4096 };
            uint64_t told;
            for (uint64_t wanted = 1; wanted < 2 * inner; wanted += wanted < 4 ? 1 : 13) {
                own.field[0] = (struct brim__jsonl_field){ .key = "",
                                                           .name = "k0",
                                                           .form = BRIM_FORM_RAGGED,
                                                           .inner = wanted,
                                                           .dtype = BRIM_DTYPE_I64 };
                for (size_t cut = 5; cut <= length; cut += cut % 7 + 1) {
                    const brim_status status = parse_alone(&own, line, cut, &told);
                    assert_true(status == BRIM_STATUS_CORRUPT || cut == length);
                }
                assert_int_equal(parse_alone(&own, line, length, &told),
                                 wanted == inner ? BRIM_OK : BRIM_STATUS_CORRUPT);
            }
        }
    }
}

static void test_flipped_bytes(void **state) {
    (void)state;
    static const char line[] = "{\"t\":\"h\\u00e9 \\ud83d\\ude00\",\"n\":-1.5e3,\"v\":[1,2,3],"
                               "\"w\":[[1,2],[3,4]],\"b\":true,\"o\":{\"p\":[{\"q\":null}]}}";
    uint64_t random = 11;
    for (int round = 0; round < 8; round++) {
        static char text[sizeof line * 130];
        size_t length = 0;
        memcpy(text, line, sizeof line - 1);
        length = sizeof line - 1;
        text[length++] = '\n';
        for (int i = 0; i < 125; i++) {
            memcpy(text + length, line, sizeof line - 1);
            for (uint64_t flips = next_random(&random) % 4; flips-- > 0;) {
                text[length + next_random(&random) % (sizeof line - 1)] =
                    (char)next_random(&random);
            }
            length += sizeof line - 1 - next_random(&random) % 3;
            text[length++] = '\n';
        }
        const struct path path = write_lines(text, length);
        struct jsonl jsonl;
        use_lines(&jsonl.use, path.text,
                  OPTIONS("fields=t,n,v,b,w", "types=text,float64,int64[],bool,uint8[][2]"));
        assert_int_equal(open_use(&jsonl.opened, &jsonl.use, NULL, 0), BRIM_OK);
        const struct brim__source *source = &jsonl.opened.source;
        jsonl.buffer = new_buffer(source, source->most_run);
        for (uint64_t sample = 0; sample < source->count; sample++) {
            uint64_t got;
            const brim_status status =
                fetch_run(source, sample, source->most_run, jsonl.buffer, &jsonl.record, &got);
            assert_true(status == BRIM_OK || status == BRIM_STATUS_CORRUPT);
            assert_true(sample > 0 || status == BRIM_OK);
        }
        close_lines(&jsonl);
    }
}

/* -------------------------------------------------------------------- json */

struct log {
    char text[400];
};

static brim_status write_event(void *user, enum brim__json_kind kind, const char *text,
                               size_t length) {
    struct log *log = user;
    static const char marks[] = "zft#\"k{}[]";
    const size_t used = strlen(log->text);
    snprintf(log->text + used, sizeof log->text - used, "%c%.*s ", marks[kind], (int)length,
             text == NULL ? "" : text);
    return text != NULL && length == 4 && memcmp(text, "stop", 4) == 0 ? BRIM_STATUS_END : BRIM_OK;
}

/* The same events, wherever the text is cut into pieces. */
static void test_pieces(void **state) {
    (void)state;
    static const char text[] = " {\"a\\u00e9\\ud83d\\ude00\": [1, -2.5e3, \"\\n\xc3\xa9\", null],"
                               "\"b\": {\"\": true, \"c\": false}} ";
    static const char wanted[] =
        "{ ka\xc3\xa9\xf0\x9f\x98\x80 [ #1 #-2.5e3 \"\n\xc3\xa9 z ] kb { k t "
        "kc f } } ";
    static _Alignas(16) uint8_t memory[65536];
    const uint64_t bytes = brim__json_pieces_bytes(64);
    assert_true(bytes <= sizeof memory);
    const size_t length = sizeof text - 1;
    for (size_t first = 0; first <= length; first++) {
        for (size_t second = first; second <= length; second++) {
            struct log log = { "" };
            struct brim__json *json;
            assert_int_equal(brim__json_begin(&json, memory, bytes, write_event, &log), BRIM_OK);
            const uint8_t *from = (const uint8_t *)text;
            assert_int_equal(brim__json_feed(json, from, first), BRIM_OK);
            assert_int_equal(brim__json_feed(json, from + first, second - first), BRIM_OK);
            assert_int_equal(brim__json_feed(json, from + second, length - second), BRIM_OK);
            assert_int_equal(brim__json_end(json), BRIM_OK);
            assert_string_equal(log.text, wanted);
        }
    }
    struct log log = { "" };
    uint8_t copy[sizeof text];
    memcpy(copy, text, sizeof text);
    assert_int_equal(
        brim__json_parse(copy, length, memory, brim__json_whole_bytes(length), write_event, &log),
        BRIM_OK);
    assert_string_equal(log.text, wanted);
    /* what a visit returns ends the parse */
    uint8_t stop[] = "[\"stop\",1]";
    log.text[0] = '\0';
    assert_int_equal(brim__json_parse(stop, sizeof stop - 1, memory, brim__json_whole_bytes(16),
                                      write_event, &log),
                     BRIM_STATUS_END);
    assert_string_equal(log.text, "[ \"stop ");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds_of_values),
        cmocka_unit_test(test_runs),
        cmocka_unit_test(test_chosen_fields),
        cmocka_unit_test(test_given_types),
        cmocka_unit_test(test_dense_lists),
        cmocka_unit_test(test_guessed_types),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_wrong_rows),
        cmocka_unit_test(test_missing_rows),
        cmocka_unit_test(test_crowded_rows),
        cmocka_unit_test(test_refused_openings),
        cmocka_unit_test(test_bad_lines_first),
        cmocka_unit_test(test_missing),
        cmocka_unit_test(test_missing_nan),
        cmocka_unit_test(test_hostile_lines),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_crowded_lists),
        cmocka_unit_test(test_flipped_bytes),
        cmocka_unit_test(test_pieces),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}

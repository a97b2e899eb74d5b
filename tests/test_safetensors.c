/*
 * test_safetensors.c: safetensors files as they should be, and as nobody should
 * write them.
 *
 * Every file is made here: a header as text, and data that count up from 0.
 */
#include "source_util.h"

#include "memory/budget.h"
#include "source/safetensors_header.h"

/* Header and data as a file; the length may lie. */
static struct path write_tensors(const char *header, size_t header_length, uint64_t said_length,
                                 size_t data_bytes) {
    const struct path path = scratch_path("t.safetensors");
    uint8_t *bytes = malloc(8 + header_length + data_bytes);
    assert_non_null(bytes);
    memcpy(bytes, &said_length, 8);
    memcpy(bytes + 8, header, header_length);
    for (size_t i = 0; i < data_bytes; i++) {
        bytes[8 + header_length + i] = (uint8_t)i;
    }
    write_file(path.text, bytes, 8 + header_length + data_bytes);
    free(bytes);
    return path;
}

static struct path write_header(const char *header, size_t data_bytes) {
    return write_tensors(header, strlen(header), strlen(header), data_bytes);
}

static brim_status open_tensor(struct opened *opened, const char *path, const char *tensor) {
    struct test_use use;
    use_init(&use, &brim__stage_safetensors);
    use_set(&use, "file", path);
    if (tensor != NULL) {
        use_set(&use, "tensor", tensor);
    }
    return open_use(opened, &use, NULL, 0);
}

static void assert_refused(const char *header, size_t data_bytes, const char *tensor,
                           brim_status wanted, const char *part) {
    const struct path path = write_header(header, data_bytes);
    struct opened opened;
    const size_t descriptors = open_descriptors();
    const brim_status status = open_tensor(&opened, path.text, tensor);
    close_opened(&opened);
    if (status != wanted) {
        fail_msg("%s: status %d, not %d: %s", header, (int)status, (int)wanted, brim_detail());
    }
    assert_detail_has(part);
    assert_detail_has(path.text);
    assert_int_equal(open_descriptors(), descriptors);
}

/* ------------------------------------------------------------------ values */

static void test_dtypes(void **state) {
    (void)state;
    static const struct {
        const char *name;
        brim_dtype dtype;
    } cases[] = {
        { "BOOL", BRIM_DTYPE_BOOL }, { "U8", BRIM_DTYPE_U8 },     { "I8", BRIM_DTYPE_I8 },
        { "U16", BRIM_DTYPE_U16 },   { "I16", BRIM_DTYPE_I16 },   { "U32", BRIM_DTYPE_U32 },
        { "I32", BRIM_DTYPE_I32 },   { "U64", BRIM_DTYPE_U64 },   { "I64", BRIM_DTYPE_I64 },
        { "F16", BRIM_DTYPE_F16 },   { "BF16", BRIM_DTYPE_BF16 }, { "F32", BRIM_DTYPE_F32 },
        { "F64", BRIM_DTYPE_F64 },   { "C64", BRIM_DTYPE_C64 },
    };
    for (size_t i = 0; i < BRIM__COUNT(cases); i++) {
        const size_t bytes = brim_dtype_bytes(cases[i].dtype);
        char header[200];
        snprintf(header, sizeof header,
                 "{\"t\":{\"dtype\":\"%s\",\"shape\":[5,2,3],\"data_offsets\":[0,%zu]}}",
                 cases[i].name, 30 * bytes);
        struct opened opened;
        assert_int_equal(open_tensor(&opened, write_header(header, 30 * bytes).text, NULL),
                         BRIM_OK);
        const struct brim__source *source = &opened.source;
        assert_int_equal(source->count, 5);
        assert_int_equal(source->field_count, 1);
        assert_string_equal(source->field[0].name, "x");
        assert_int_equal(source->field[0].form, BRIM_FORM_DENSE);
        assert_int_equal(source->field[0].view.dtype, cases[i].dtype);
        assert_false(source->field[0].view.swapped);
        assert_int_equal(source->field[0].view.shape.rank, 2);
        assert_int_equal(source->field[0].view.shape.dim[0], 2);
        assert_int_equal(source->field[0].view.shape.dim[1], 3);
        assert_int_equal(source->record_bytes, 6 * bytes);
        uint8_t *buffer = new_buffer(source, 2);
        const uint8_t *records;
        uint64_t got;
        assert_int_equal(fetch_run(source, 3, 2, buffer, &records, &got), BRIM_OK);
        assert_int_equal(got, 2);
        for (size_t k = 0; k < 12 * bytes; k++) {
            assert_int_equal(records[k], (uint8_t)(18 * bytes + k));
        }
        free(buffer);
        close_opened(&opened);
    }
}

/* Three tensors in another order than their data, with blanks, escapes, metadata
 * and a padded header; chosen by name, read and mapped. */
static void test_chosen_by_name(void **state) {
    (void)state;
    static const char header[] =
        "{ \"__metadata__\": {\"format\": \"pt\", \"a\\u00e9\": \"\"},\n"
        "  \"b\\u0065ta\": {\"data_offsets\": [8, 14], \"shape\": [3, 2], \"dtype\": \"U8\"},\n"
        "  \"empty\": {\"dtype\": \"F32\", \"shape\": [0, 4], \"data_offsets\": [8, 8]},\n"
        "  \"alpha\": {\"dtype\":\"I16\",\"shape\":[4],\"data_offsets\":[0,8]},\n"
        "  \"scalar\": {\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[14,15]},\n"
        "  \"small\": {\"dtype\":\"F4\",\"shape\":[2],\"data_offsets\":[15,16]}}       ";
    const struct path path = write_header(header, 16);
    for (int map = 0; map < 2; map++) {
        struct opened opened;
        struct test_use use;
        use_init(&use, &brim__stage_safetensors);
        use_set(&use, "file", path.text);
        use_set(&use, "tensor", "beta");
        use_set(&use, "name", "image");
        use_set(&use, "map", map ? "yes" : "no");
        assert_int_equal(open_use(&opened, &use, NULL, 0), BRIM_OK);
        assert_string_equal(opened.source.field[0].name, "image");
        assert_int_equal(opened.source.count, 3);
        assert_int_equal(opened.source.in_memory, map);
        uint8_t *buffer = new_buffer(&opened.source, 3);
        const uint8_t *records;
        uint64_t got;
        assert_int_equal(fetch_run(&opened.source, 0, 3, buffer, &records, &got), BRIM_OK);
        assert_int_equal(got, 3);
        for (uint8_t k = 0; k < 6; k++) {
            assert_int_equal(records[k], 8 + k);
        }
        free(buffer);
        close_opened(&opened);
    }
    assert_refused(header, 16, NULL, BRIM_STATUS_INVALID, "holds 5 tensors");
    assert_detail_has("'beta', 'empty', 'alpha', 'scalar', 'small'");
    assert_refused(header, 16, "gamma", BRIM_STATUS_INVALID, "no tensor 'gamma'");
    assert_refused(header, 16, "scalar", BRIM_STATUS_INVALID, "a scalar");
    assert_refused(header, 16, "empty", BRIM_STATUS_INVALID, "holds no samples");
    assert_refused(header, 16, "small", BRIM_STATUS_UNSUPPORTED, "F4");
    assert_refused(header, 16, "__metadata__", BRIM_STATUS_INVALID, "no tensor");
}

/* ----------------------------------------------------------------- hostile */

#define TENSOR(name, dtype, shape, offsets) \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static void test_lengths(void **state) {
    (void)state;
    static const char header[] = "{" TENSOR("t", "U8", "[4]", "[0,4]") "}";
    const size_t length = sizeof header - 1;
    static const struct {
        uint64_t said;
        const char *part;
    } cases[] = {
        { 100000001, "100000000 are allowed" },
        { UINT64_MAX, "are allowed" },
        { UINT64_C(1) << 63, "are allowed" },
        { 100000000, "the file has only" },
        { sizeof header - 1 + 5, "the file has only" },
        { sizeof header - 1 + 4, "is not UTF-8" }, /* swallows the data */
        { sizeof header - 2, "ends too early" },
        { 1, "begin with '{'" },
        { 0, "begin with '{'" },
    };
    for (size_t i = 0; i < BRIM__COUNT(cases); i++) {
        struct path path = write_tensors(header, length, cases[i].said, 0);
        uint8_t tail[4] = { 0xff, 0xfe, 0xfd, 0xfc };
        uint8_t bytes[8 + sizeof header + 4];
        memcpy(bytes, &cases[i].said, 8);
        memcpy(bytes + 8, header, length);
        memcpy(bytes + 8 + length, tail, 4);
        write_file(path.text, bytes, 8 + length + 4);
        struct opened opened;
        assert_int_equal(open_tensor(&opened, path.text, NULL), BRIM_STATUS_CORRUPT);
        assert_detail_has(cases[i].part);
        assert_detail_has(path.text);
        close_opened(&opened);
    }
    /* cut at every byte */
    for (size_t cut = 0; cut < 8 + length + 4; cut++) {
        const struct path path = write_tensors(header, length, length, 4);
        assert_int_equal(truncate(path.text, (off_t)cut), 0);
        struct opened opened;
        assert_int_equal(open_tensor(&opened, path.text, NULL), BRIM_STATUS_CORRUPT);
        close_opened(&opened);
    }
}

static void test_hostile_headers(void **state) {
    (void)state;
    static const struct {
        const char *header;
        size_t data;
        const char *part;
    } cases[] = {
        { "{" TENSOR("a", "U8", "[4]", "[0,4]") "}", 3, "cut short" },
        { "{" TENSOR("a", "U8", "[4]", "[0,4]") "}", 5, "too long" },
        { "{" TENSOR("a", "U8", "[4]", "[1,5]") "}", 5, "a hole" },
        { "{" TENSOR("a", "U8", "[2]", "[0,2]") "," TENSOR("b", "U8", "[2]", "[3,5]") "}", 5,
          "a hole" },
        { "{" TENSOR("a", "U8", "[4]", "[0,4]") "," TENSOR("b", "U8", "[2]", "[3,5]") "}", 5,
          "an overlap" },
        { "{" TENSOR("a", "U8", "[4]", "[0,4]") "," TENSOR("b", "U8", "[4]", "[0,4]") "}", 4,
          "an overlap" },
        { "{" TENSOR("a", "U8", "[4]", "[4,0]") "}", 4, "not a begin and an end" },
        { "{" TENSOR("a", "U8", "[4]", "[0]") "}", 4, "not a begin and an end" },
        { "{" TENSOR("a", "U8", "[4]", "[0,4,8]") "}", 4, "not a begin and an end" },
        { "{" TENSOR("a", "U8", "[4]", "[0,5]") "}", 5, "span 5 bytes" },
        { "{" TENSOR("a", "F32", "[4]", "[0,4]") "}", 4, "4 elements of F32" },
        { "{" TENSOR("a", "F4", "[3]", "[0,1]") "}", 1, "3 elements of F4" },
        { "{" TENSOR("a", "U8", "[-4]", "[0,4]") "}", 4, "-4 is no dimension" },
        { "{" TENSOR("a", "U8", "[4.0]", "[0,4]") "}", 4, "4.0 is no dimension" },
        { "{" TENSOR("a", "U8", "[4]", "[0,4e0]") "}", 4, "4e0 is no offset" },
        { "{" TENSOR("a", "U8", "[9223372036854775808]", "[0,4]") "}", 4, "is no dimension" },
        { "{" TENSOR("a", "U8", "[4]", "[0,18446744073709551616]") "}", 4, "is no offset" },
        { "{" TENSOR("a", "U8", "[4294967296,4294967296]", "[0,0]") "}", 0, "can be counted" },
        { "{" TENSOR("a", "F64", "[2305843009213693952]", "[0,0]") "}", 0, "span 0 bytes" },
        { "{" TENSOR("a", "U8", "[2]", "[0,2]") "," TENSOR("a", "U8", "[2]", "[2,4]") "}", 4,
          "a tensor twice" },
        { "{" TENSOR("a", "U8", "[2]", "[0,2]") "," TENSOR("\\u0061", "U8", "[2]", "[2,4]") "}", 4,
          "a tensor twice" },
        { "{\"a\":{\"dtype\":\"U8\",\"dtype\":\"I8\",\"shape\":[2],\"data_offsets\":[0,2]}}", 2,
          "twice" },
        { "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"shape\":[2],\"data_offsets\":[0,2]}}", 2,
          "twice" },
        { "{\"a\":{\"dtype\":\"U8\",\"shape\":[2]}}", 2, "needs dtype, shape and data_offsets" },
        { "{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,2]}}", 2, "needs dtype" },
        { "{\"a\":{\"shape\":[2],\"data_offsets\":[0,2]}}", 2, "needs dtype" },
        { "{\"a\":{}}", 2, "needs dtype" },
        { "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2],\"more\":1}}", 2,
          "a member that is not" },
        { "{\"a\":{\"dtype\":8,\"shape\":[2],\"data_offsets\":[0,2]}}", 2, "an unexpected number" },
        { "{\"a\":{\"dtype\":\"U8\",\"shape\":\"2\",\"data_offsets\":[0,2]}}", 2,
          "an unexpected string" },
        { "{\"a\":{\"dtype\":[\"U8\"],\"shape\":[2],\"data_offsets\":[0,2]}}", 2,
          "an unexpected list" },
        { "{\"a\":{\"dtype\":\"U8\",\"shape\":[[2]],\"data_offsets\":[0,2]}}", 2,
          "an unexpected list" },
        { "{\"a\":{\"dtype\":\"U8\",\"shape\":[{}],\"data_offsets\":[0,2]}}", 2,
          "an unexpected object" },
        { "{\"a\":{\"dtype\":null,\"shape\":[2],\"data_offsets\":[0,2]}}", 2, "null" },
        { "{\"a\":[]}", 2, "an unexpected list" },
        { "{\"a\":1}", 2, "an unexpected number" },
        { "{\"a\":\"b\"}", 2, "an unexpected string" },
        { "{\"__metadata__\":{\"a\":1}}", 0, "strings only" },
        { "{\"__metadata__\":{\"a\":{}}}", 0, "strings only" },
        { "{\"__metadata__\":{\"a\":[\"b\"]}}", 0, "strings only" },
        { "{\"__metadata__\":{\"a\":null}}", 0, "strings only" },
        { "{\"__metadata__\":{},\"__metadata__\":{}}", 0, "twice" },
        { "{\"__metadata__\":\"a\"}", 0, "an unexpected string" },
        { "{" TENSOR("a", "U8", "[2]", "[0,2]") "} {}", 2, "trailing garbage" },
        { "{" TENSOR("a", "U8", "[2]", "[0,2]") ",}", 2, "byte" },
        { "{" TENSOR("a", "U8", "[2,]", "[0,2]") "}", 2, "byte" },
        { "{" TENSOR("a", "U8", "[2]", "[0,2]"), 2, "ends too early" },
        { "{'a':1}", 2, "near byte 2" },
        { "{" TENSOR("\\ud800", "U8", "[2]", "[0,2]") "}", 2, "surrogate" },
        { "{" TENSOR("\xc0\xaf", "U8", "[2]", "[0,2]") "}", 2, "UTF-8" },
    };
    for (size_t i = 0; i < BRIM__COUNT(cases); i++) {
        assert_refused(cases[i].header, cases[i].data, NULL, BRIM_STATUS_CORRUPT, cases[i].part);
    }
    assert_refused("{}", 0, NULL, BRIM_STATUS_INVALID, "holds no tensors");
    assert_refused("{\"__metadata__\":{\"a\":\"b\"}}", 0, NULL, BRIM_STATUS_INVALID,
                   "holds no tensors");
    assert_refused("{" TENSOR("a", "F8_E4M3", "[2]", "[0,2]") "}", 2, NULL, BRIM_STATUS_UNSUPPORTED,
                   "F8_E4M3");
    assert_refused("{" TENSOR("a", "Q7", "[2]", "[0,2]") "}", 2, NULL, BRIM_STATUS_UNSUPPORTED,
                   "Q7");
    assert_refused("{" TENSOR("a", "U8", "[2,0]", "[0,0]") "}", 0, NULL, BRIM_STATUS_INVALID,
                   "have no elements");
    assert_refused("{" TENSOR("a", "U8", "[1,1,1,1,1,1,1,1,2]", "[0,2]") "}", 2, NULL,
                   BRIM_STATUS_UNSUPPORTED, "9 dimensions");
}

/* Nesting is bounded long before the stack is. */
static void test_deep_header(void **state) {
    (void)state;
    char header[4096] = "{\"a\":";
    size_t length = strlen(header);
    memset(header + length, '[', 3000);
    length += 3000;
    const struct path path = write_tensors(header, length, length, 0);
    struct opened opened;
    assert_int_equal(open_tensor(&opened, path.text, NULL), BRIM_STATUS_CORRUPT);
    close_opened(&opened);
}

/* ------------------------------------------------------------------- large */

/* Opens under a budget; gives the peak of what was charged. */
static brim_status read_within(const char *path, const char *wanted, uint64_t limit,
                               struct brim__safetensor *tensor, uint64_t *peak) {
    brim_runtime_options options = BRIM_RUNTIME_OPTIONS_INIT;
    options.host_bytes = limit;
    options.threads = 0;
    brim_runtime *runtime;
    assert_int_equal(brim_runtime_new(&options, &runtime), BRIM_OK);
    struct brim__file file;
    assert_int_equal(brim__file_open(&file, path), BRIM_OK);
    brim_budget_info before = BRIM_BUDGET_INFO_INIT, info = BRIM_BUDGET_INFO_INIT;
    brim_budget *budget = brim_runtime_budget(runtime);
    assert_int_equal(brim_budget_read(budget, BRIM_MEMORY_HOST, &before), BRIM_OK);
    const brim_status status = brim__safetensors_read(&file, wanted, budget, tensor);
    assert_int_equal(brim_budget_read(budget, BRIM_MEMORY_HOST, &info), BRIM_OK);
    assert_int_equal(info.charged, before.charged); /* all was given back */
    *peak = info.peak;
    brim__file_close(&file);
    brim_runtime_free(runtime);
    return status;
}

/* Names and numbers that cross the window's pieces at every place. */
static void test_many_tensors(void **state) {
    (void)state;
    const size_t count = 5000;
    char *header = malloc(count * 120);
    size_t length = 0;
    header[length++] = '{';
    for (size_t i = 0; i < count; i++) { /* the data in the opposite order */
        const size_t at = count - 1 - i;
        length += (size_t)sprintf(
            header + length,
            "%s\"layer.%zu.we\\u0069ght%.*s\":{\"dtype\":\"U16\",\"shape\":[2],"
            "\"data_offsets\":[%zu,%zu]}",
            i == 0 ? "" : ",", i, (int)(i % 17), "================", at * 4, at * 4 + 4);
    }
    header[length++] = '}';
    const struct path path = write_tensors(header, length, length, count * 4);
    struct brim__safetensor tensor;
    uint64_t peak;
    assert_int_equal(
        read_within(path.text, "layer.1000.weight==============", 64 << 20, &tensor, &peak),
        BRIM_OK);
    assert_int_equal(tensor.dtype, BRIM_DTYPE_U16);
    assert_int_equal(tensor.data, 8 + length + 4 * (count - 1 - 1000));
    assert_int_equal(read_within(path.text, NULL, 64 << 20, &tensor, &peak), BRIM_STATUS_INVALID);
    assert_detail_has("5000 tensors");
    assert_detail_has("...");
    /* one byte of some offset changed: there is a hole or a wrong size */
    uint64_t random = 7;
    for (int round = 0; round < 60; round++) {
        const size_t at = next_random(&random) % length;
        const char old = header[at];
        if (old < '0' || old > '9') {
            continue;
        }
        header[at] = old == '9' ? '3' : (char)(old + 1);
        write_tensors(header, length, length, count * 4);
        const brim_status status =
            read_within(path.text, "layer.0.weight", 64 << 20, &tensor, &peak);
        /* a digit of a name may change freely, unless it was the wanted one's, or
         * makes two of one */
        assert_true(status == BRIM_OK || status == BRIM_STATUS_CORRUPT ||
                    status == BRIM_STATUS_INVALID || status == BRIM_STATUS_UNSUPPORTED);
        header[at] = old;
    }
    free(header);
}

/* A header of 12 MB is read within 8 MiB; a string of 5 MB in it is refused. */
static void test_long_header(void **state) {
    (void)state;
    const size_t length = 12000000;
    char *header = malloc(length);
    static const char begin[] = "{\"__metadata__\":{";
    static const char end[] = "\"\":\"\"}," TENSOR("t", "U8", "[4]", "[0,4]") "}";
    memcpy(header, begin, sizeof begin - 1);
    size_t at = sizeof begin - 1;
    const size_t long_string = 900000;
    for (int i = 0; i < 12; i++) { /* with an escape, so that they are decoded too */
        at += (size_t)sprintf(header + at, "\"key %d\":\"\\n", i);
        memset(header + at, 'x', long_string);
        at += long_string;
        at += (size_t)sprintf(header + at, "\",");
    }
    memcpy(header + at, end, sizeof end - 1);
    at += sizeof end - 1;
    memset(header + at, ' ', length - at);
    const struct path path = write_tensors(header, length, length, 4);
    struct brim__safetensor tensor;
    uint64_t peak;
    const brim_status status = read_within(path.text, "t", 8 << 20, &tensor, &peak);
    if (status != BRIM_OK) {
        fail_msg("%s", brim_detail());
    }
    assert_int_equal(tensor.data, 8 + length);
    assert_true(peak < 8 << 20);
    assert_int_equal(read_within(path.text, "t", 4 << 20, &tensor, &peak), BRIM_STATUS_BUDGET);
    assert_detail_has("parsing its header of 12000000 bytes");
    char *quote = strstr(header, "\",\"key 1\"");
    assert_non_null(quote);
    for (int i = 0; i < 5; i++) { /* joins five of them to one string */
        quote[0] = quote[1] = quote[2] = 'x';
        quote = strstr(quote, "\":\"\\n");
        assert_non_null(quote);
        quote[0] = quote[1] = quote[2] = 'x';
        quote = strstr(quote, "\",\"key");
        assert_non_null(quote);
    }
    write_tensors(header, length, length, 4);
    assert_int_equal(read_within(path.text, "t", 64 << 20, &tensor, &peak), BRIM_STATUS_CORRUPT);
    assert_detail_has("too long");
    assert_true(peak < 8 << 20);
    free(header);
}

/* Random bytes changed: an answer, whatever it is, and no memory touched that
 * is not ours (the sanitizers look). */
static void test_flipped_bytes(void **state) {
    (void)state;
    static const char header[] = "{\"__metadata__\":{\"format\":\"pt\"}," TENSOR(
        "a", "F32", "[2,2]", "[0,16]") "," TENSOR("b\\ud83d\\ude00", "U8", "[3]", "[16,19]") "}";
    uint64_t random = 3;
    struct path path = scratch_path("t.safetensors");
    for (int round = 0; round < 1000; round++) {
        uint8_t bytes[8 + sizeof header - 1 + 19] = { 0 };
        const uint64_t length = sizeof header - 1;
        memcpy(bytes, &length, 8);
        memcpy(bytes + 8, header, sizeof header - 1);
        for (uint64_t flips = next_random(&random) % 4; flips-- > 0;) {
            bytes[next_random(&random) % sizeof bytes] = (uint8_t)next_random(&random);
        }
        write_file(path.text, bytes, sizeof bytes - next_random(&random) % 3);
        struct opened opened;
        if (open_tensor(&opened, path.text, "a") == BRIM_OK) {
            uint8_t *buffer = new_buffer(&opened.source, 1);
            const uint8_t *records;
            uint64_t got;
            assert_int_equal(
                fetch_run(&opened.source, opened.source.count - 1, 1, buffer, &records, &got),
                BRIM_OK);
            free(buffer);
        }
        close_opened(&opened);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dtypes),      cmocka_unit_test(test_chosen_by_name),
        cmocka_unit_test(test_lengths),     cmocka_unit_test(test_hostile_headers),
        cmocka_unit_test(test_deep_header), cmocka_unit_test(test_many_tensors),
        cmocka_unit_test(test_long_header), cmocka_unit_test(test_flipped_bytes),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}

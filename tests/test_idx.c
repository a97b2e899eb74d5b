/*
 * test_idx.c: IDX files, plain and gzipped, joined and mixed, and what is no
 * such file.
 */
#include "arrays_util.h"

/* ----------------------------------------------------------------- files */

struct array {
    uint8_t type;
    uint32_t rank;
    uint32_t dim[12];
    const void *data;
    size_t bytes;
};

static struct bytes make_idx(const struct array *array) {
    struct bytes idx = { 0 };
    add_number(&idx, 0, 2);
    add_number(&idx, array->type, 1);
    add_number(&idx, array->rank, 1);
    for (uint32_t i = 0; i < array->rank; i++) {
        add_big(&idx, array->dim[i], 4);
    }
    add(&idx, array->data, array->bytes);
    return idx;
}

static void write_gzip(const char *path, const struct bytes *bytes) {
    struct bytes gzip = compressed(bytes->data, bytes->count, GZIP);
    write_bytes(path, &gzip);
    free(gzip.data);
}

static const uint8_t pixels[24] = { 0, 1, 2, 3, 4, 5, 60, 70, 80, 90, 100, 255, 13, 14, 15 };
static const struct array images = {
    .type = 8, .rank = 3, .dim = { 4, 2, 3 }, .data = pixels, .bytes = 24
};

/* --------------------------------------------------------------- opening */

static void use_idx(struct test_use *use, const char *const *paths, size_t count) {
    use_init(use, &brim__stage_idx);
    for (size_t i = 0; i < count; i++) {
        use_set(use, "files", paths[i]);
    }
}

static brim_status open_idx(struct opened *opened, const char *const *paths, size_t count) {
    struct test_use use;
    use_idx(&use, paths, count);
    return open_use(opened, &use, NULL, 0);
}

static void refuse_list(const char *const *paths, size_t count, brim_status status,
                        const char *part) {
    struct opened opened;
    const brim_status got = open_idx(&opened, paths, count);
    if (got != status) {
        fail_msg("status %d, not %d, with \"%s\": %s", (int)got, (int)status, part, brim_detail());
    }
    assert_detail_has(part);
    close_opened(&opened);
}

static void refuse(const struct bytes *bytes, brim_status status, const char *part) {
    const struct path path = scratch_path("x-idx");
    const char *const list[] = { path.text };
    write_bytes(path.text, bytes);
    refuse_list(list, 1, status, part);
    assert_detail_has("x-idx");
}

/* ----------------------------------------------------------------- tests */

static void test_values(void **state) {
    (void)state;
    const struct path path = scratch_path("images-idx3-ubyte");
    const char *const list[] = { path.text };
    struct bytes idx = make_idx(&images);
    uint64_t identity[2];
    for (int gzip = 0; gzip < 2; gzip++) {
        struct opened opened;
        (gzip ? write_gzip : write_bytes)(path.text, &idx);
        if (open_idx(&opened, list, 1) != BRIM_OK) {
            fail_msg("%s", brim_detail());
        }
        const struct brim__source *source = &opened.source;
        const struct brim__view *view = &source->field[0].view;
        assert_int_equal(source->count, 4);
        assert_int_equal(source->field_count, 1);
        assert_string_equal(source->field[0].name, "x");
        assert_int_equal(view->dtype, BRIM_DTYPE_U8);
        assert_false(view->swapped);
        assert_int_equal(view->shape.rank, 2);
        assert_int_equal(view->shape.dim[0], 2);
        assert_int_equal(view->shape.dim[1], 3);
        assert_int_equal(source->in_memory, gzip);
        assert_int_equal(source->is_file, !gzip);
        assert_records(source, pixels, sizeof pixels);
        identity[gzip] = source->identity;
        close_opened(&opened);
    }
    assert_int_equal(identity[0], identity[1]); /* the same data */
    free(idx.data);
}

static void test_types(void **state) {
    (void)state;
    static const struct {
        uint8_t type;
        brim_dtype dtype;
        const char *bytes; /* -2, big-endian */
        size_t count;
        double value;
    } cases[] = {
        { 0x08, BRIM_DTYPE_U8, "\xfe", 1, 254 },
        { 0x09, BRIM_DTYPE_I8, "\xfe", 1, -2 },
        { 0x0b, BRIM_DTYPE_I16, "\xff\xfe", 2, -2 },
        { 0x0c, BRIM_DTYPE_I32, "\xff\xff\xff\xfe", 4, -2 },
        { 0x0d, BRIM_DTYPE_F32, "\xc0\0\0\0", 4, -2 },
        { 0x0e, BRIM_DTYPE_F64, "\xc0\0\0\0\0\0\0\0", 8, -2 },
    };
    for (size_t i = 0; i < BRIM__COUNT(cases); i++) {
        const struct path path = scratch_path("x-idx");
        const char *const list[] = { path.text };
        const struct array array = { .type = cases[i].type,
                                     .rank = 1,
                                     .dim = { 1 },
                                     .data = cases[i].bytes,
                                     .bytes = cases[i].count };
        struct bytes idx = make_idx(&array);
        write_bytes(path.text, &idx);
        struct opened opened;
        assert_int_equal(open_idx(&opened, list, 1), BRIM_OK);
        const struct brim__view *view = &opened.source.field[0].view;
        assert_int_equal(view->dtype, cases[i].dtype);
        assert_int_equal(view->swapped, cases[i].count > 1);
        assert_int_equal(view->shape.rank, 0);
        uint8_t *record;
        double value[2];
        assert_int_equal(read_all(&opened.source, &record), BRIM_OK);
        read_element(view, record, 0, value);
        assert_true(value[0] == cases[i].value);
        free(record);
        close_opened(&opened);
        free(idx.data);
    }
}

/* Files that are read and files that are held, in any order. */
static void test_several_files(void **state) {
    (void)state;
    struct path path[3];
    const char *list[3];
    uint8_t all[3 * sizeof pixels];
    struct bytes idx = make_idx(&images);
    for (size_t i = 0; i < 3; i++) {
        memcpy(all + i * sizeof pixels, pixels, sizeof pixels);
        all[i * sizeof pixels] = (uint8_t)(200 + i);
    }
    for (unsigned gzipped = 0; gzipped < 8; gzipped++) {
        for (size_t i = 0; i < 3; i++) {
            char name[8];
            snprintf(name, sizeof name, "part-%zu", i);
            path[i] = scratch_path(name);
            list[i] = path[i].text;
            idx.data[16] = (uint8_t)(200 + i);
            (gzipped >> i & 1 ? write_gzip : write_bytes)(path[i].text, &idx);
        }
        struct opened opened;
        assert_int_equal(open_idx(&opened, list, 3), BRIM_OK);
        assert_int_equal(opened.source.count, 12);
        assert_int_equal(opened.source.in_memory, gzipped == 7);
        assert_records(&opened.source, all, sizeof all);
        if (!opened.source.in_memory) { /* rows may be read in place: the buffer counts */
            uint8_t *buffer = new_buffer(&opened.source, 12);
            for (uint64_t sample = 0; sample < 12; sample++) {
                const uint8_t *records;
                uint64_t got = 0;
                assert_int_equal(fetch_run(&opened.source, sample, 12, buffer, &records, &got),
                                 BRIM_OK);
                assert_ptr_equal(records, buffer);
            }
            free(buffer);
        }
        brim__source_advise(&opened.source, 0, 12);
        char text[600];
        opened.source.ops->describe(&opened.source, 5, text, sizeof text);
        assert_non_null(strstr(text, "part-1, sample 5"));
        close_opened(&opened);
    }
    idx.data[11] = 3; /* the second dimension */
    idx.data[15] = 2;
    write_bytes(path[1].text, &idx);
    refuse_list(list, 3, BRIM_STATUS_INVALID, "uint8 of shape 4x3x2");
    idx.data[11] = 2;
    idx.data[15] = 3;
    idx.data[2] = 9;
    write_bytes(path[1].text, &idx);
    refuse_list(list, 3, BRIM_STATUS_INVALID, "int8 of shape 4x2x3");
    free(idx.data);
}

static void test_headers_that_lie(void **state) {
    (void)state;
    static const struct {
        struct array array;
        brim_status status;
        const char *part;
    } cases[] = {
        { { 0x0a, 1, { 24 }, pixels, 24 }, BRIM_STATUS_CORRUPT, "not an IDX file" },
        { { 0x00, 1, { 24 }, pixels, 24 }, BRIM_STATUS_CORRUPT, "not an IDX file" },
        { { 0xff, 1, { 24 }, pixels, 24 }, BRIM_STATUS_CORRUPT, "not an IDX file" },
        { { 0x08, 0, { 0 }, pixels, 24 }, BRIM_STATUS_INVALID, "0 dimensions" },
        { { 0x08, 9, { 24, 1, 1, 1, 1, 1, 1, 1, 1 }, pixels, 24 },
          BRIM_STATUS_UNSUPPORTED,
          "9 dim" },
        { { 0x08, 1, { 0 }, pixels, 0 }, BRIM_STATUS_INVALID, "holds no samples" },
        { { 0x08, 3, { 24, 0, 1 }, pixels, 0 }, BRIM_STATUS_INVALID, "dimension 1 is 0" },
        { { 0x0e, 3, { 0xffffffff, 0xffffffff, 0xffffffff }, pixels, 24 },
          BRIM_STATUS_CORRUPT,
          "more than 2^63" },
        { { 0x0e, 4, { 0, 0xffffffff, 0xffffffff, 0xffffffff }, pixels, 24 },
          BRIM_STATUS_CORRUPT,
          "more than 2^63" },
    };
    for (size_t i = 0; i < BRIM__COUNT(cases); i++) {
        struct bytes idx = make_idx(&cases[i].array);
        struct bytes gzip = compressed(idx.data, idx.count, GZIP);
        refuse(&idx, cases[i].status, cases[i].part);
        refuse(&gzip, cases[i].status, cases[i].part);
        free(idx.data);
        free(gzip.data);
    }
    struct array array = images;
    array.dim[0] = 5;
    struct bytes idx = make_idx(&array), gzip = compressed(idx.data, idx.count, GZIP);
    refuse(&idx, BRIM_STATUS_CORRUPT, "byte 40: the file ends");
    assert_detail_has("end at byte 46");
    refuse(&gzip, BRIM_STATUS_CORRUPT, "after 40 bytes, but 46 were expected");
    free(idx.data);
    free(gzip.data);
    array.dim[0] = 3;
    idx = make_idx(&array), gzip = compressed(idx.data, idx.count, GZIP);
    refuse(&idx, BRIM_STATUS_CORRUPT, "end at byte 34");
    refuse(&gzip, BRIM_STATUS_CORRUPT,
           "the gzip trailer gives a length of 40, but the IDX header "
           "requires 34 bytes");
    gzip.data[gzip.count - 4] = 34; /* the same lie at the end: found when it is inflated */
    refuse(&gzip, BRIM_STATUS_CORRUPT, "continue after the 34 bytes that were expected");
    free(idx.data);
    free(gzip.data);
}

static void test_gzip_that_lies(void **state) {
    (void)state;
    struct bytes idx = make_idx(&images), gzip = compressed(idx.data, idx.count, GZIP);
    gzip.data[gzip.count - 5] ^= 1; /* of the CRC */
    refuse(&gzip, BRIM_STATUS_CORRUPT, "incorrect data check");
    gzip.data[gzip.count - 5] ^= 1;
    gzip.data[gzip.count - 1] ^= 1; /* of the length: too much for the header, ... */
    refuse(&gzip, BRIM_STATUS_CORRUPT, "the gzip trailer gives a length of 16777256");
    gzip.data[gzip.count - 1] ^= 1;
    gzip.data[gzip.count - 4] ^= 1 << 3; /* ... and too little for what comes out */
    refuse(&gzip, BRIM_STATUS_CORRUPT, "incorrect length check");
    gzip.data[gzip.count - 4] ^= 1 << 3;
    gzip.data[2] = 7; /* the method */
    refuse(&gzip, BRIM_STATUS_CORRUPT, "unknown compression method");
    gzip.data[2] = 8;
    const size_t good = gzip.count;
    add_text(&gzip, "more");
    refuse(&gzip, BRIM_STATUS_CORRUPT, "bytes follow that do not belong to the file");
    gzip.count = good;
    add(&gzip, "\0\0\0\0", 4);
    refuse(&gzip, BRIM_STATUS_CORRUPT, "4 bytes follow that do not belong");
    gzip.count = good;
    add(&gzip, "\x1f mo\0\0\0\0", 8);
    refuse(&gzip, BRIM_STATUS_CORRUPT, "incorrect header check");
    free(gzip.data);

    /* several members are one file, as gzip has it */
    gzip = compressed(idx.data, 11, GZIP);
    struct bytes rest = compressed(idx.data + 11, idx.count - 11, GZIP);
    struct bytes empty = compressed(idx.data, 0, GZIP);
    add(&gzip, empty.data, empty.count);
    add(&gzip, rest.data, rest.count);
    add(&gzip, empty.data, empty.count);
    const struct path path = scratch_path("x-idx");
    const char *const list[] = { path.text };
    write_bytes(path.text, &gzip);
    struct opened opened;
    assert_int_equal(open_idx(&opened, list, 1), BRIM_OK);
    assert_records(&opened.source, pixels, sizeof pixels);
    close_opened(&opened);
    free(gzip.data);
    free(rest.data);
    free(empty.data);
    free(idx.data);
}

/* Half a gibibyte that the header promises, and that fits no file so small; and
 * half a mebibyte that does. */
static void test_bombs(void **state) {
    (void)state;
    const struct path path = scratch_path("bomb");
    const char *const list[] = { path.text };
    struct test_use use;
    struct within within;
    use_idx(&use, list, 1);
    uint8_t *zeros = calloc(1, 1 << 20);
    struct array array = {
        .type = 8, .rank = 2, .dim = { 1 << 19, 1 << 10 }, .data = zeros, .bytes = 1 << 19
    };
    struct bytes idx = make_idx(&array);
    write_gzip(path.text, &idx);
    assert_int_equal(open_within(&within, &use, UINT64_C(1) << 40), BRIM_STATUS_CORRUPT);
    assert_detail_has("more than a file of");
    close_within(&within);
    free(idx.data);

    array.dim[0] = 1 << 9;
    idx = make_idx(&array);
    write_gzip(path.text, &idx);
    assert_int_equal(open_within(&within, &use, 1 << 18), BRIM_STATUS_BUDGET);
    assert_detail_has("bomb: is compressed and must be held in memory: 512.0 KiB (524288 bytes)");
    assert_detail_has("gunzip");
    close_within(&within);
    assert_int_equal(open_within(&within, &use, 1 << 20), BRIM_OK);
    assert_records(&within.opened.source, zeros, 1 << 19);
    close_within(&within);
    free(idx.data);

    /* it puts out far more than its header promises: that much, and no more */
    array.dim[0] = 16;
    array.bytes = 1 << 20;
    idx = make_idx(&array);
    write_gzip(path.text, &idx);
    assert_int_equal(open_within(&within, &use, 256 << 10), BRIM_STATUS_CORRUPT);
    assert_detail_has("the gzip trailer gives a length of 1048588");
    close_within(&within);
    free(idx.data);
    free(zeros);
}

/* One inflater serves all files of a list. */
static void test_memory_of_many_files(void **state) {
    (void)state;
    const struct path path = scratch_path("small");
    struct test_use use;
    struct within within;
    uint64_t charged[2];
    struct bytes idx = make_idx(&images);
    write_gzip(path.text, &idx);
    for (size_t i = 0; i < 2; i++) {
        const char *const list[] = { path.text, path.text, path.text, path.text };
        use_idx(&use, list, i == 0 ? 1 : 4);
        assert_int_equal(open_within(&within, &use, 1 << 20), BRIM_OK);
        charged[i] = charged_to(within.budget, NULL);
        close_within(&within);
    }
    assert_true(charged[0] < 100 << 10);
    assert_true(charged[1] - charged[0] < 4 << 10);
    free(idx.data);
}

static int give_up(void *user, const brim_progress *progress) {
    assert_non_null(strstr(progress->what, "inflating"));
    assert_true(progress->done <= progress->total);
    ++*(unsigned *)user;
    return 1;
}

/* Noise, so that there is much to read; long enough to be asked about. */
static void test_progress(void **state) {
    (void)state;
    const struct path path = scratch_path("large");
    const size_t bytes = 256 << 20;
    struct bytes idx = { 0 };
    uint64_t random = 1;
    add_number(&idx, 0x01080000, 4);
    add_big(&idx, bytes, 4);
    uint8_t *noise = malloc(1 << 20);
    assert_non_null(noise);
    for (size_t i = 0; i < 1 << 20; i++) {
        noise[i] = (uint8_t)(next_random(&random) >> 60);
    }
    add(&idx, noise, 1 << 20); /* the rest is missing: only the beginning is read */
    struct bytes gzip = compressed(idx.data, idx.count, GZIP);
    struct bytes more = compressed(noise, 1 << 20, GZIP);
    for (int i = 0; i < 64; i++) {
        add(&gzip, more.data, more.count);
    }
    free(more.data);
    write_bytes(path.text, &gzip);
    struct test_use use;
    const char *const list[] = { path.text };
    use_idx(&use, list, 1);
    struct opened opened = { 0 };
    unsigned asked = 0;
    brim__arena_init(&opened.arena, NULL);
    opened.opening = (struct brim__opening){ .arena = &opened.arena,
                                             .serials = &opened.serials,
                                             .progress = give_up,
                                             .progress_user = &asked };
    const brim_status status = open_loaded(&use.use, &opened.opening, &opened.source);
    if (status != BRIM_STATUS_INTERRUPTED) { /* a machine that is done before anyone would ask */
        assert_int_equal(status, BRIM_STATUS_CORRUPT);
        assert_int_equal(asked, 0);
    } else {
        assert_int_equal(asked, 1);
        assert_detail_has("was stopped");
    }
    close_opened(&opened);
    free(noise);
    free(idx.data);
    free(gzip.data);
}

static void test_hostile_bytes(void **state) {
    (void)state;
    const struct path path = scratch_path("x-idx");
    const char *const list[] = { path.text };
    struct test_use use;
    struct bytes idx = make_idx(&images), gzip = compressed(idx.data, idx.count, GZIP);
    use_idx(&use, list, 1);
    cut_everywhere(&use, path.text, &idx);
    cut_everywhere(&use, path.text, &gzip);
    flip_bytes(&use, path.text, &idx, 500);
    refuse_everything(&use);
    flip_bytes(&use, path.text, &gzip, 500);
    refuse_everything(&use);
    free(idx.data);
    free(gzip.data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_several_files),
        cmocka_unit_test(test_headers_that_lie),
        cmocka_unit_test(test_gzip_that_lies),
        cmocka_unit_test(test_bombs),
        cmocka_unit_test(test_memory_of_many_files),
        cmocka_unit_test(test_progress),
        cmocka_unit_test(test_hostile_bytes),
    };
    return cmocka_run_group_tests_name("idx", tests, make_directory, remove_directory);
}

/*
 * test_records.c: raw records, their fields, and records that come one after
 * the other.
 */
#include "arrays_util.h"

#include <sys/stat.h>

static void use_records(struct test_use *use, const char *path, const char *bytes) {
    use_init(use, &brim__stage_records);
    use_set(use, "files", path);
    use_set(use, "bytes", bytes);
}

static brim_status open_fields(struct opened *opened, const char *path, const char *bytes,
                               const char *const *fields, size_t count) {
    struct test_use use;
    use_records(&use, path, bytes);
    for (size_t i = 0; i < count; i++) {
        use_set(&use, "fields", fields[i]);
    }
    return open_use(opened, &use, NULL, 0);
}

static const uint8_t content[] = "head0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKL";
enum { SKIP = 4, RECORD = 12, RECORDS = 4 };

/* ----------------------------------------------------------------- files */

static void test_bytes(void **state) {
    (void)state;
    const struct path path = scratch_path("r.bin");
    write_file(path.text, content, SKIP + RECORDS * RECORD);
    for (int map = 0; map < 2; map++) {
        struct test_use use;
        struct opened opened;
        use_records(&use, path.text, "12");
        use_set(&use, "skip", "4");
        use_set(&use, "map", map ? "yes" : "no");
        use_set(&use, "name", "raw");
        assert_int_equal(open_use(&opened, &use, NULL, 0), BRIM_OK);
        assert_int_equal(opened.source.count, RECORDS);
        assert_int_equal(opened.source.in_memory, map);
        assert_int_equal(opened.source.field_count, 1);
        assert_string_equal(opened.source.field[0].name, "raw");
        assert_int_equal(opened.source.field[0].view.dtype, BRIM_DTYPE_U8);
        assert_int_equal(opened.source.field[0].view.shape.dim[0], RECORD);
        assert_records(&opened.source, content + SKIP, RECORDS * RECORD);
        close_opened(&opened);
        /* two files, each with a header */
        use_set(&use, "files", path.text);
        assert_int_equal(open_use(&opened, &use, NULL, 0), BRIM_OK);
        assert_int_equal(opened.source.count, 2 * RECORDS);
        uint8_t *all;
        assert_int_equal(read_all(&opened.source, &all), BRIM_OK);
        assert_memory_equal(all, content + SKIP, RECORDS * RECORD);
        assert_memory_equal(all + RECORDS * RECORD, content + SKIP, RECORDS * RECORD);
        free(all);
        close_opened(&opened);
    }
}

static void test_fields(void **state) {
    (void)state;
    const struct path path = scratch_path("r.bin");
    static const uint8_t record[16] = {
        7, 1, 2, 3, 4, 5, 6, 0, 0, 0x80, 0x3f, 9, 0xfe, 0xff, 8, 0
    };
    write_file(path.text, record, sizeof record);
    static const char *const fields[] = { "label:uint8",    "image:u8:2x3",  "score:float32",
                                          "count:int16@12", "again:uint8@0", "next:bool" };
    static const struct {
        const char *name;
        brim_dtype dtype;
        uint64_t offset;
        uint32_t rank;
        double last; /* of its elements */
    } wanted[] = {
        { "label", BRIM_DTYPE_U8, 0, 0, 7 },  { "image", BRIM_DTYPE_U8, 1, 2, 6 },
        { "score", BRIM_DTYPE_F32, 7, 0, 1 }, { "count", BRIM_DTYPE_I16, 12, 0, -2 },
        { "again", BRIM_DTYPE_U8, 0, 0, 7 },  { "next", BRIM_DTYPE_BOOL, 1, 0, 1 },
    };
    struct opened opened;
    assert_int_equal(open_fields(&opened, path.text, "16", fields, 6), BRIM_OK);
    assert_int_equal(opened.source.field_count, 6);
    uint8_t *all;
    assert_int_equal(read_all(&opened.source, &all), BRIM_OK);
    for (uint32_t i = 0; i < 6; i++) {
        const struct brim__source_field *field = &opened.source.field[i];
        assert_string_equal(field->name, wanted[i].name);
        assert_int_equal(field->view.dtype, wanted[i].dtype);
        assert_int_equal(field->view.offset, wanted[i].offset);
        assert_int_equal(field->view.shape.rank, wanted[i].rank);
        assert_false(field->view.swapped);
        double value[2];
        read_element(&field->view, all, wanted[i].rank == 2 ? 5 : 0, value);
        assert_true(value[0] == wanted[i].last);
    }
    free(all);
    close_opened(&opened);

    struct test_use use;
    use_records(&use, path.text, "16");
    use_set(&use, "fields", "a:uint8");
    use_set(&use, "fields", "b:uint16@1");
    use_set(&use, "order", "big");
    assert_int_equal(open_use(&opened, &use, NULL, 0), BRIM_OK);
    assert_false(opened.source.field[0].view.swapped);
    assert_true(opened.source.field[1].view.swapped);
    assert_int_equal(read_all(&opened.source, &all), BRIM_OK);
    double value[2];
    read_element(&opened.source.field[1].view, all, 0, value);
    assert_true(value[0] == 0x102);
    free(all);
    close_opened(&opened);
}

static void test_fields_that_are_none(void **state) {
    (void)state;
    const struct path path = scratch_path("r.bin");
    write_file(path.text, content, 48);
    static const struct {
        const char *field, *part;
    } cases[] = {
        { "x", "has no dtype" },
        { "", "has no dtype" },
        { "x:", "field 'x:'" },
        { "x:float33", "float33" },
        { ":uint8", "field ':uint8'" },
        { "a b:uint8", "field 'a b:uint8'" },
        { "x:uint8:", "its shape is not" },
        { "x:uint8:0", "its shape is not" },
        { "x:uint8:3x", "its shape is not" },
        { "x:uint8:3xx3", "its shape is not" },
        { "x:uint8:-1", "its shape is not" },
        { "x:uint8:1x1x1x1x1x1x1x1", "its shape is not" },
        { "x:uint8:99999999999999999999", "its shape is not" },
        { "x:uint8@", "no number follows the @" },
        { "x:uint8@1@2", "no number follows the @" },
        { "x:uint8@-1", "no number follows the @" },
        { "x:uint8:13", "past the record's 12 bytes" },
        { "x:uint8@12", "past the record's 12 bytes" },
        { "x:uint32@9", "past the record's 12 bytes" },
        { "x:uint8:4294967296x4294967296x4294967296", "past the record's 12 bytes" },
        { "x:uint8:9223372036854775807@9223372036854775807", "past the record's 12 bytes" },
    };
    struct opened opened;
    for (size_t i = 0; i < BRIM__COUNT(cases); i++) {
        if (open_fields(&opened, path.text, "12", &cases[i].field, 1) != BRIM_STATUS_INVALID) {
            fail_msg("'%s': %s", cases[i].field, brim_detail());
        }
        assert_detail_has(cases[i].part);
        close_opened(&opened);
    }
    static const char *const twice[] = { "x:uint8", "x:int8" };
    assert_int_equal(open_fields(&opened, path.text, "12", twice, 2), BRIM_STATUS_INVALID);
    assert_detail_has("two fields have the name 'x'");
    close_opened(&opened);
    char long_name[400];
    memset(long_name, 'n', sizeof long_name);
    long_name[399] = '\0';
    const char *const longest = long_name;
    assert_int_equal(open_fields(&opened, path.text, "12", &longest, 1), BRIM_STATUS_INVALID);
    assert_detail_has("too long");
    close_opened(&opened);
}

static void test_sizes(void **state) {
    (void)state;
    const struct path path = scratch_path("r.bin");
    struct test_use use;
    use_records(&use, path.text, "12");
    use_set(&use, "skip", "4");
    const size_t before = open_descriptors();
    for (size_t count = 0; count <= SKIP + RECORDS * RECORD; count++) {
        write_file(path.text, content, count);
        const brim_status status = open_and_read(&use);
        if (count < SKIP) {
            assert_int_equal(status, BRIM_STATUS_CORRUPT);
            assert_detail_has("inside the 4 bytes to be skipped");
        } else if (count == SKIP) {
            assert_int_equal(status, BRIM_STATUS_INVALID);
            assert_detail_has("holds no records");
        } else if ((count - SKIP) % RECORD != 0) {
            assert_int_equal(status, BRIM_STATUS_CORRUPT);
            assert_detail_has("r.bin: byte");
            assert_detail_has("not a multiple of bytes=12");
        } else {
            assert_int_equal(status, BRIM_OK);
        }
    }
    assert_int_equal(open_descriptors(), before);
    refuse_everything(&use);
}

/* ---------------------------------------------------------------- streams */

static brim_status pull(const struct brim__source *source, uint64_t count, uint8_t *buffer,
                        const uint8_t **records, uint64_t *got) {
    return source->ops->pull(source, count, brim__now() + 20000000, buffer, records, got);
}

static void assert_pulls(const struct brim__source *source, const void *wanted, uint64_t records) {
    uint8_t *buffer = new_buffer(source, source->most_run);
    uint64_t done = 0;
    while (done < records) {
        const uint8_t *at;
        uint64_t got = 0;
        assert_int_equal(pull(source, source->most_run, buffer, &at, &got), BRIM_OK);
        assert_true(got > 0 && got <= records - done);
        assert_memory_equal(at, (const uint8_t *)wanted + done * RECORD, got * RECORD);
        done += got;
    }
    free(buffer);
}

static void test_pipe(void **state) {
    (void)state;
    const struct path path = scratch_path("pipe");
    struct test_use use;
    struct opened opened;
    assert_int_equal(mkfifo(path.text, 0600), 0);
    use_records(&use, path.text, "12");
    use_set(&use, "skip", "4");
    assert_int_equal(open_use(&opened, &use, NULL, 0), BRIM_OK);
    const struct brim__source *source = &opened.source;
    assert_true(source->stream && source->count == BRIM_UNKNOWN && source->ops->rewind == NULL);
    const int fd = open(path.text, O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    uint8_t *buffer = new_buffer(source, source->most_run);
    const uint8_t *records;
    uint64_t got = 0;
    assert_int_equal(pull(source, 5, buffer, &records, &got), BRIM_STATUS_TIMEOUT);
    /* byte by byte: nothing before a record is whole, and nothing is lost */
    for (size_t i = 0; i < SKIP + 2 * RECORD; i++) {
        assert_int_equal(write(fd, content + i, 1), 1);
        memset(buffer, 0, RECORD);
        const brim_status status = pull(source, 5, buffer, &records, &got);
        if (i + 1 > SKIP && (i + 1 - SKIP) % RECORD == 0) {
            assert_int_equal(status, BRIM_OK);
            assert_int_equal(got, 1);
            assert_memory_equal(records, content + i + 1 - RECORD, RECORD);
        } else {
            assert_int_equal(status, BRIM_STATUS_TIMEOUT);
        }
    }
    /* a record and a half, then the end */
    assert_int_equal(write(fd, content + SKIP, RECORD + 6), RECORD + 6);
    assert_int_equal(pull(source, 5, buffer, &records, &got), BRIM_OK);
    assert_int_equal(got, 1);
    assert_memory_equal(records, content + SKIP, RECORD);
    assert_int_equal(close(fd), 0);
    assert_int_equal(pull(source, 5, buffer, &records, &got), BRIM_STATUS_CORRUPT);
    assert_detail_has("ends inside record 3: 6 of its 12 bytes came");
    assert_int_equal(pull(source, 5, buffer, &records, &got), BRIM_STATUS_END);
    assert_int_equal(pull(source, 5, buffer, &records, &got), BRIM_STATUS_END);
    char text[200];
    source->ops->describe(source, 3, text, sizeof text);
    assert_non_null(strstr(text, "record 3"));
    free(buffer);
    close_opened(&opened);

    /* a stream is no file among others */
    use_set(&use, "files", path.text);
    assert_int_equal(open_use(&opened, &use, NULL, 0), BRIM_STATUS_INVALID);
    assert_detail_has("alone");
    close_opened(&opened);
}

static void test_pipe_that_ends_early(void **state) {
    (void)state;
    const struct path path = scratch_path("short");
    struct test_use use;
    struct opened opened;
    assert_int_equal(mkfifo(path.text, 0600), 0);
    use_records(&use, path.text, "12");
    use_set(&use, "skip", "40");
    assert_int_equal(open_use(&opened, &use, NULL, 0), BRIM_OK);
    const int fd = open(path.text, O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, content, 30), 30);
    assert_int_equal(close(fd), 0);
    uint8_t *buffer = new_buffer(&opened.source, 1);
    const uint8_t *records;
    uint64_t got = 0;
    assert_int_equal(pull(&opened.source, 1, buffer, &records, &got), BRIM_STATUS_CORRUPT);
    assert_detail_has("inside the 40 bytes to be skipped: 10 are missing");
    assert_int_equal(pull(&opened.source, 1, buffer, &records, &got), BRIM_STATUS_END);
    free(buffer);
    close_opened(&opened);
}

/* A file as standard input can be read again, from any record on. */
static void test_standard_input(void **state) {
    (void)state;
    const struct path path = scratch_path("r.bin");
    write_file(path.text, content, SKIP + RECORDS * RECORD);
    const int before = dup(0), fd = open(path.text, O_RDONLY | O_CLOEXEC);
    assert_true(before >= 0 && fd >= 0);
    assert_int_equal(dup2(fd, 0), 0);
    struct test_use use;
    struct opened opened;
    use_records(&use, "-", "12");
    use_set(&use, "skip", "4");
    assert_int_equal(open_use(&opened, &use, NULL, 0), BRIM_OK);
    const struct brim__source *source = &opened.source;
    assert_non_null(source->ops->rewind);
    uint8_t *buffer = new_buffer(source, 1);
    const uint8_t *records;
    uint64_t got;
    assert_pulls(source, content + SKIP, RECORDS);
    assert_int_equal(pull(source, 1, buffer, &records, &got), BRIM_STATUS_END);
    for (uint64_t sample = 0; sample <= RECORDS; sample++) {
        assert_int_equal(source->ops->rewind(source, 1, sample), BRIM_OK);
        assert_pulls(source, content + SKIP + sample * RECORD, RECORDS - sample);
        assert_int_equal(pull(source, 1, buffer, &records, &got), BRIM_STATUS_END);
    }
    assert_int_equal(source->ops->rewind(source, 1, RECORDS + 1), BRIM_OK);
    assert_int_equal(pull(source, 1, buffer, &records, &got), BRIM_STATUS_END);
    assert_int_equal(source->ops->rewind(source, 1, UINT64_MAX), BRIM_OK);
    assert_int_equal(pull(source, 1, buffer, &records, &got), BRIM_STATUS_END);
    free(buffer);
    close_opened(&opened);
    assert_int_equal(dup2(before, 0), 0);
    close(before);
    close(fd);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_fields),
        cmocka_unit_test(test_fields_that_are_none),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_pipe),
        cmocka_unit_test(test_pipe_that_ends_early),
        cmocka_unit_test(test_standard_input),
    };
    return cmocka_run_group_tests_name("records", tests, make_directory, remove_directory);
}

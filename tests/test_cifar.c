/*
 * test_cifar.c: CIFAR's binary files: which of the two they are, and what is in
 * them.
 */
#include "arrays_util.h"

enum { TEN = 3073, HUNDRED = 3074 };

/* `count` records; byte i of record r is a function of both. */
static struct bytes make_records(size_t size, size_t count, size_t first) {
    struct bytes bytes = { 0 };
    for (size_t r = first; r < first + count; r++) {
        for (size_t i = 0; i < size; i++) {
            const uint8_t byte = (uint8_t)(i == 0 ? r : i == 1 ? r + 100 : i * 31 + r * 7);
            add(&bytes, &byte, 1);
        }
    }
    return bytes;
}

static brim_status open_cifar(struct opened *opened, const char *const *paths, size_t count,
                              const char *kind) {
    struct test_use use;
    use_init(&use, &brim__stage_cifar);
    for (size_t i = 0; i < count; i++) {
        use_set(&use, "files", paths[i]);
    }
    use_set(&use, "kind", kind);
    return open_use(opened, &use, NULL, 0);
}

static void assert_field(const struct brim__source *source, uint32_t index, const char *name,
                         uint64_t offset, uint32_t rank) {
    const struct brim__source_field *field = &source->field[index];
    assert_string_equal(field->name, name);
    assert_int_equal(field->view.dtype, BRIM_DTYPE_U8);
    assert_int_equal(field->view.offset, offset);
    assert_int_equal(field->view.shape.rank, rank);
    if (rank == 3) {
        assert_int_equal(field->view.shape.dim[0], 3);
        assert_int_equal(field->view.shape.dim[1], 32);
        assert_int_equal(field->view.shape.dim[2], 32);
        assert_int_equal(field->view.stride[0], 1024);
        assert_int_equal(field->view.stride[1], 32);
        assert_int_equal(field->view.stride[2], 1);
    }
}

static void test_values(void **state) {
    (void)state;
    const struct path path[2] = { scratch_path("data_batch_1.bin"),
                                  scratch_path("data_batch_2.bin") };
    const char *const list[] = { path[0].text, path[1].text };
    for (int hundred = 0; hundred < 2; hundred++) {
        const size_t size = hundred ? HUNDRED : TEN;
        struct bytes all = make_records(size, 7, 0);
        write_file(path[0].text, all.data, 4 * size);
        write_file(path[1].text, all.data + 4 * size, 3 * size);
        static const char *const kinds[2][2] = { { "auto", "10" }, { "auto", "100" } };
        for (int said = 0; said < 2; said++) {
            struct opened opened;
            assert_int_equal(open_cifar(&opened, list, 2, kinds[hundred][said]), BRIM_OK);
            const struct brim__source *source = &opened.source;
            assert_int_equal(source->count, 7);
            assert_int_equal(source->field_count, hundred ? 3 : 2);
            assert_field(source, 0, "image", hundred ? 2 : 1, 3);
            assert_field(source, 1, "label", hundred ? 1 : 0, 0);
            if (hundred) {
                assert_field(source, 2, "coarse", 0, 0);
            }
            assert_records(source, all.data, all.count);
            close_opened(&opened);
        }
        free(all.data);
    }
}

static void test_sizes(void **state) {
    (void)state;
    const struct path both = scratch_path("both.bin"), ten = scratch_path("ten.bin"),
                      hundred = scratch_path("hundred.bin"), odd = scratch_path("odd.bin");
    struct bytes bytes = make_records(TEN, HUNDRED, 0); /* 3074 of one, 3073 of the other */
    struct opened opened;
    write_bytes(both.text, &bytes);
    write_file(ten.text, bytes.data, 2 * TEN);
    write_file(hundred.text, bytes.data, 2 * HUNDRED);
    write_file(odd.text, bytes.data, 2 * TEN + 1);
    free(bytes.data);
    const char *const ambiguous[] = { both.text };
    assert_int_equal(open_cifar(&opened, ambiguous, 1, "auto"), BRIM_STATUS_INVALID);
    assert_detail_has("both.bin");
    assert_detail_has("kind=10 or kind=100");
    close_opened(&opened);
    assert_int_equal(open_cifar(&opened, ambiguous, 1, "10"), BRIM_OK);
    assert_int_equal(opened.source.count, HUNDRED);
    close_opened(&opened);
    assert_int_equal(open_cifar(&opened, ambiguous, 1, "100"), BRIM_OK);
    assert_int_equal(opened.source.count, TEN);
    close_opened(&opened);
    /* another file decides */
    const char *const decided[] = { both.text, hundred.text };
    assert_int_equal(open_cifar(&opened, decided, 2, "auto"), BRIM_OK);
    assert_int_equal(opened.source.count, TEN + 2);
    close_opened(&opened);
    const char *const unlike[] = { ten.text, hundred.text };
    assert_int_equal(open_cifar(&opened, unlike, 2, "auto"), BRIM_STATUS_CORRUPT);
    assert_detail_has("hundred.bin: 6148 bytes");
    assert_detail_has("files before it");
    close_opened(&opened);
    const char *const cut[] = { odd.text };
    assert_int_equal(open_cifar(&opened, cut, 1, "auto"), BRIM_STATUS_CORRUPT);
    assert_detail_has("odd.bin: 6147 bytes are not a whole number");
    close_opened(&opened);
    assert_int_equal(open_cifar(&opened, cut, 1, "10"), BRIM_STATUS_CORRUPT);
    assert_detail_has("odd.bin: byte 6146: the file ends inside a record");
    close_opened(&opened);
    write_file(odd.text, "", 0);
    assert_int_equal(open_cifar(&opened, cut, 1, "10"), BRIM_STATUS_INVALID);
    assert_detail_has("holds no images");
    close_opened(&opened);
    const char *const missing[] = { "/nowhere/at/all.bin" };
    assert_int_equal(open_cifar(&opened, missing, 1, "auto"), BRIM_STATUS_IO);
    assert_detail_has("/nowhere/at/all.bin");
    close_opened(&opened);
}

static void test_refusals(void **state) {
    (void)state;
    const struct path path = scratch_path("data_batch_1.bin");
    struct bytes bytes = make_records(TEN, 2, 0);
    struct test_use use;
    use_init(&use, &brim__stage_cifar);
    use_set(&use, "files", path.text);
    const size_t before = open_descriptors();
    for (size_t count = 0; count < bytes.count; count += 97) {
        write_file(path.text, bytes.data, count);
        assert_int_equal(open_and_read(&use) == BRIM_OK,
                         count > 0 && (count % TEN == 0 || count % HUNDRED == 0));
    }
    assert_int_equal(open_descriptors(), before);
    write_bytes(path.text, &bytes);
    refuse_everything(&use);
    free(bytes.data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests_name("cifar", tests, make_directory, remove_directory);
}

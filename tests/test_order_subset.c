/*
 * test_order_subset.c: lists of sample numbers from files.
 */
#include "order_model.h"

#include "base/fault.h"
#include "budget_util.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

static char directory[] = "/tmp/brim-subset-XXXXXX";
static char path[64];

static int make_directory(void **state) {
    (void)state;
    if (mkdtemp(directory) == NULL) {
        return -1;
    }
    snprintf(path, sizeof path, "%s/list", directory);
    return 0;
}

static int remove_directory(void **state) {
    (void)state;
    (void)unlink(path);
    return rmdir(directory);
}

static void write_list(const void *bytes, size_t count) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

/* As numpy does: `elements` behind a header of 128 bytes in all. */
static void write_npy_list(const char *descr, const char *shape, const void *elements,
                           size_t bytes) {
    static uint8_t file[8192];
    char text[119];
    const int length = snprintf(
        text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }", descr, shape);
    assert_true(length > 0 && length < 118 && 128 + bytes <= sizeof file);
    memcpy(file, "\x93NUMPY\x01\x00\x76\x00", 10);
    memset(file + 10, ' ', 117);
    memcpy(file + 10, text, (size_t)length);
    file[127] = '\n';
    memcpy(file + 128, elements, bytes);
    write_list(file, 128 + bytes);
}

static brim_status add_subset(struct brim__order *order, uint64_t below) {
    brim__order_init(order);
    assert_int_equal(brim__order_leaf(order, 0, below), BRIM_OK);
    const struct brim__order_site site = site_of(order, 0);
    return add_given(&brim__stage_subset, &site, &(const struct given){ .text = path });
}

static void assert_list(uint64_t below, const uint64_t *wanted, size_t count) {
    struct brim__order order;
    struct brim__location places[64];
    forget_tables();
    assert_int_equal(add_subset(&order, below), BRIM_OK);
    assert_int_equal(brim__order_count(&order), count);
    brim__order_locate(&order, 2, 0, count, places);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(places[i].sample, wanted[i]);
        assert_int_equal(places[i].epoch, 2);
    }
    assert_true(brim__order_jumps(&order));
}

static void assert_refused(uint64_t below, brim_status status, const char *part) {
    struct brim__order order;
    forget_tables();
    assert_int_equal(add_subset(&order, below), status);
    assert_non_null(strstr(brim_detail(), part));
    assert_non_null(strstr(brim_detail(), "subset: "));
    assert_int_equal(order.op_count, 1);
    assert_int_equal(order.fingerprint, 0);
}

/* -------------------------------------------------------------------- text */

static void test_text(void **state) {
    (void)state;
    static const struct {
        const char *text;
        size_t count;
        uint64_t numbers[4];
    } known[] = {
        { "5", 1, { 5 } },
        { "5\n", 1, { 5 } },
        { "0\n99\n", 2, { 0, 99 } },
        { "3\r\n1\r\n2\r\n", 3, { 3, 1, 2 } },
        { "# these\n\n  7 \t# the seventh\n\n\t0\n#end", 2, { 7, 0 } },
        { "4\n4\n4\n04", 4, { 4, 4, 4, 4 } },
        { "12# no space\n# 13\n14 #", 2, { 12, 14 } },
    };
    for (size_t i = 0; i < BRIM__COUNT(known); i++) {
        write_list(known[i].text, strlen(known[i].text));
        assert_list(100, known[i].numbers, known[i].count);
    }
}

static void test_bad_text(void **state) {
    (void)state;
    static const struct {
        const char *text, *part;
    } known[] = {
        { "", "contains no numbers" },
        { "\n# none\n\n", "contains no numbers" },
        { "1\n2\n100\n", "line 3: sample 100, but before this stage there are 100 samples" },
        { "1\n\n#\n18446744073709551616\n", "line 4: sample 18446744073709551615" },
        { "99999999999999999999999999999999", "line 1: sample 18446744073709551615" },
        { "1\n-1\n", "line 2: not one whole number" },
        { "1.0\n", "line 1: not" },
        { "1 2\n", "line 1: not" },
        { "1,2\n", "line 1: not" },
        { "7\nx\n", "line 2: not" },
        { "\x93NUMP", "line 1: not" },
    };
    for (size_t i = 0; i < BRIM__COUNT(known); i++) {
        write_list(known[i].text, strlen(known[i].text));
        assert_refused(100, BRIM_STATUS_INVALID, known[i].part);
    }
    write_list("1\0002\n", 4);
    assert_refused(100, BRIM_STATUS_INVALID, "line 1: not");
    write_list("0\n", 2);
    assert_refused(0, BRIM_STATUS_INVALID, "no samples before this stage");
    assert_int_equal(unlink(path), 0);
    assert_refused(100, BRIM_STATUS_IO, "cannot be opened");
}

/* Larger than any buffer, with numbers across its edges. */
static void test_long_text(void **state) {
    (void)state;
    enum { COUNT = 30000 };
    static char text[COUNT * 12];
    static struct brim__location places[COUNT];
    struct brim__order order;
    size_t length = 0;
    for (uint64_t i = 0; i < COUNT; i++) {
        length += (size_t)snprintf(text + length, sizeof text - length, "%llu\n",
                                   (unsigned long long)(brim__hash_words(i, 0, 0) % 1000003));
    }
    write_list(text, length);
    forget_tables();
    assert_int_equal(add_subset(&order, 1000003), BRIM_OK);
    assert_int_equal(brim__order_count(&order), COUNT);
    brim__order_locate(&order, 0, 0, COUNT, places);
    for (uint64_t i = 0; i < COUNT; i++) {
        assert_true(places[i].sample == brim__hash_words(i, 0, 0) % 1000003);
    }
    assert_false(order.op[order.top].numbers->ascending);
    /* four bytes for each, and no more than a few pages beside it */
    assert_true(model_arena.bytes >= COUNT * 4 && model_arena.bytes < COUNT * 4 + 16 * KIB);
}

/* ------------------------------------------------------------- npy and both */

static void test_npy_of_every_integer(void **state) {
    (void)state;
    static const char *const types[] = { "|i1", "|u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8",
                                         ">i2", ">u2", ">i4", ">u4", ">i8", ">u8", "<u1", ">i1" };
    const uint64_t numbers[5] = { 9, 0, 99, 100, 9 };
    for (size_t t = 0; t < BRIM__COUNT(types); t++) {
        const size_t bytes = (size_t)(types[t][2] - '0');
        uint8_t elements[5 * 8];
        for (size_t i = 0; i < 5; i++) {
            for (size_t b = 0; b < bytes; b++) {
                const size_t shift = types[t][0] == '>' ? bytes - 1 - b : b;
                elements[i * bytes + b] = (uint8_t)(numbers[i] >> (8 * shift));
            }
        }
        write_npy_list(types[t], "(5,)", elements, 5 * bytes);
        assert_list(101, numbers, 5);
        assert_refused(100, BRIM_STATUS_INVALID, "element 3: sample 100");
    }
    /* numbers of more than 32 bits, where there are so many samples */
    const uint64_t large[2] = { ((uint64_t)1 << 40) - 1, (uint64_t)1 << 32 };
    write_npy_list("<u8", "(2,)", large, 16);
    assert_list((uint64_t)1 << 40, large, 2);
    const uint64_t last = UINT32_MAX;
    write_npy_list("<u8", "( 1L, )", &last, 8);
    assert_refused(100, BRIM_STATUS_UNSUPPORTED, "one dimension");
    write_npy_list("<u8", "(1L, )", &last, 8);
    assert_list((uint64_t)1 << 32, &last, 1);
}

static void test_bad_npy(void **state) {
    (void)state;
    static const uint8_t zeros[256];
    static const struct {
        const char *descr, *shape;
        brim_status status;
        const char *part;
    } known[] = {
        { "<i8", "(0,)", BRIM_STATUS_INVALID, "contains no numbers" },
        { "<i8", "(33,)", BRIM_STATUS_CORRUPT, "33 numbers of 8 bytes" },
        { "<i8", "(99999999999999999999,)", BRIM_STATUS_UNSUPPORTED, "one dimension" },
        { "<i8", "(18446744073709551615,)", BRIM_STATUS_CORRUPT, "cut short" },
        { "<i8", "(4, 8)", BRIM_STATUS_UNSUPPORTED, "one dimension" },
        { "<i8", "()", BRIM_STATUS_UNSUPPORTED, "one dimension" },
        { "<i8", "(8)", BRIM_STATUS_UNSUPPORTED, "one dimension" },
        { "<f8", "(8,)", BRIM_STATUS_UNSUPPORTED, "integers" },
        { "|b1", "(8,)", BRIM_STATUS_UNSUPPORTED, "flatnonzero" },
        { "<i3", "(8,)", BRIM_STATUS_UNSUPPORTED, "integers" },
        { "i8", "(8,)", BRIM_STATUS_UNSUPPORTED, "integers" },
        { "|O", "(8,)", BRIM_STATUS_UNSUPPORTED, "integers" },
        { "", "(8,)", BRIM_STATUS_UNSUPPORTED, "integers" },
    };
    for (size_t i = 0; i < BRIM__COUNT(known); i++) {
        write_npy_list(known[i].descr, known[i].shape, zeros, sizeof zeros);
        assert_refused(100, known[i].status, known[i].part);
    }
    const int64_t negative[2] = { 4, -4 };
    write_npy_list("<i8", "(2,)", negative, 16);
    assert_refused(100, BRIM_STATUS_INVALID, "element 1: negative");
    /* every way of cutting the file short */
    uint8_t whole[128 + 16];
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fread(whole, 1, sizeof whole, file), sizeof whole);
    fclose(file);
    for (size_t bytes = 0; bytes < sizeof whole; bytes++) {
        struct brim__order order;
        write_list(whole, bytes);
        forget_tables();
        assert_int_not_equal(add_subset(&order, 100), BRIM_OK);
    }
    /* and of changing one byte of its header: refused or read, nothing else */
    for (size_t at = 0; at < 128; at++) {
        for (int value = 0; value < 256; value += 29) {
            struct brim__order order;
            const uint8_t before = whole[at];
            whole[at] = (uint8_t)value;
            write_list(whole, sizeof whole);
            whole[at] = before;
            forget_tables();
            (void)add_subset(&order, 100);
        }
    }
}

static void test_fingerprint_is_that_of_the_numbers(void **state) {
    (void)state;
    struct brim__order order;
    const uint16_t numbers[3] = { 7, 3, 50 };
    write_list("7\n3\n50\n", 7);
    forget_tables();
    assert_int_equal(add_subset(&order, 100), BRIM_OK);
    const uint64_t text = order.fingerprint;
    write_npy_list("<u2", "(3,)", numbers, sizeof numbers);
    assert_int_equal(add_subset(&order, 100), BRIM_OK);
    assert_int_equal(order.fingerprint, text);
    assert_int_equal(add_subset(&order, (uint64_t)1 << 40), BRIM_OK);
    assert_int_equal(order.fingerprint, text);
    static const char *const others[] = { "7\n3\n51\n", "3\n7\n50\n", "7\n3\n", "7\n3\n50\n0\n" };
    for (size_t i = 0; i < BRIM__COUNT(others); i++) {
        write_list(others[i], strlen(others[i]));
        assert_int_equal(add_subset(&order, 100), BRIM_OK);
        assert_int_not_equal(order.fingerprint, text);
    }
    /* the first of many */
    static uint8_t many[3000];
    uint64_t prints[2];
    for (uint8_t i = 0; i < 2; i++) {
        many[0] = i;
        write_npy_list("|u1", "(3000,)", many, sizeof many);
        assert_int_equal(add_subset(&order, 100), BRIM_OK);
        prints[i] = order.fingerprint;
    }
    assert_int_not_equal(prints[0], prints[1]);
}

static void test_ascending_lists_are_known(void **state) {
    (void)state;
    static const struct {
        const char *text;
        bool ascending;
    } known[] = {
        { "5", true },     { "0\n1\n99", true }, { "1\n1\n2", false },
        { "2\n1", false }, { "1\n3\n2", false }, { "3\n4\n4", false },
    };
    for (size_t i = 0; i < BRIM__COUNT(known); i++) {
        struct brim__order order;
        write_list(known[i].text, strlen(known[i].text));
        forget_tables();
        assert_int_equal(add_subset(&order, 100), BRIM_OK);
        assert_int_equal(order.op[order.top].numbers->ascending, known[i].ascending);
    }
}

static void test_repeats_are_found(void **state) {
    (void)state;
    for (uint64_t i = 0; i < 300; i++) {
        uint64_t list[64];
        uint32_t narrow[64];
        pick_state = i;
        const uint64_t count = 1 + pick(64);
        bool wanted = false, ascending = true;
        for (uint64_t k = 0; k < count; k++) {
            list[k] = pick(i % 2 == 0 ? 100 : 100000) << (i % 3 == 0 ? 40 : 0);
            narrow[k] = (uint32_t)list[k];
            ascending = ascending && (k == 0 || list[k] > list[k - 1]);
            for (uint64_t j = 0; j < k; j++) {
                wanted = wanted || list[j] == list[k];
            }
        }
        const struct brim__numbers numbers = { .count = count,
                                               .narrow = i % 3 == 0 ? NULL : narrow,
                                               .wide = i % 3 == 0 ? list : NULL,
                                               .ascending = ascending };
        bool repeat = !wanted;
        assert_int_equal(brim__numbers_repeat(&numbers, NULL, &repeat), BRIM_OK);
        assert_int_equal(repeat, wanted);
    }
}

/* --------------------------------------------------------- budget and faults */

static void test_budget_holds(void **state) {
    (void)state;
    static uint8_t elements[4000];
    struct brim__order order;
    brim_budget *root = new_root(24 * KIB);
    struct brim__arena arena;
    struct brim__order_site site = site_of(&order, 0);
    memset(elements, 1, sizeof elements);
    write_npy_list("|u1", "(4000,)", elements, sizeof elements);
    for (int wide = 0; wide < 2; wide++) {
        brim__order_init(&order);
        brim__arena_init(&arena, root);
        site.arena = &arena;
        brim__order_leaf(&order, 0, wide == 0 ? 1000 : (uint64_t)1 << 33);
        assert_int_equal(
            add_given(&brim__stage_subset, &site, &(const struct given){ .text = path }),
            wide == 0 ? BRIM_OK : BRIM_STATUS_BUDGET);
        brim__arena_fini(&arena);
    }
    brim_budget_free(root);
}

static void test_faults(void **state) {
    (void)state;
    static const unsigned kinds[] = { 1u << BRIM__FAULT_MAP, 1u << BRIM__FAULT_OPEN,
                                      1u << BRIM__FAULT_READ };
    for (size_t k = 0; k < BRIM__COUNT(kinds); k++) {
        for (int npy = 0; npy < 2; npy++) {
            const int16_t numbers[2] = { 3, 4 };
            if (npy == 1) {
                write_npy_list("<i2", "(2,)", numbers, 4);
            } else {
                write_list("3\n4\n", 4);
            }
            brim_status status = BRIM_STATUS_END;
            uint64_t nth = 0, failed = 0;
            while (status != BRIM_OK) {
                struct brim__order order;
                forget_tables();
                brim__fault_arm(kinds[k], ++nth, false);
                status = add_subset(&order, 10);
                failed += brim__fault_injected();
                assert_int_equal(status == BRIM_OK, brim__fault_injected() == 0);
                assert_true(nth < 20);
            }
            assert_true(failed > 0);
            brim__fault_arm(0, 0, false);
        }
    }
    /* the sorted copy */
    const uint32_t narrow[2] = { 4, 3 };
    const struct brim__numbers list = { .count = 2, .narrow = narrow };
    bool repeat;
    brim__fault_arm(1u << BRIM__FAULT_ALLOC, 1, false);
    assert_int_equal(brim__numbers_repeat(&list, NULL, &repeat), BRIM_STATUS_MEMORY);
    brim__fault_arm(0, 0, false);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_bad_text),
        cmocka_unit_test(test_long_text),
        cmocka_unit_test(test_npy_of_every_integer),
        cmocka_unit_test(test_bad_npy),
        cmocka_unit_test(test_fingerprint_is_that_of_the_numbers),
        cmocka_unit_test(test_ascending_lists_are_known),
        cmocka_unit_test(test_repeats_are_found),
        cmocka_unit_test(test_budget_holds),
        cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}

/*
 * test_tensor.c: dtypes, shapes and views, and the small floats: every float16
 * and, on the way back, every value at which rounding to it could go wrong.
 */
#include "tensor/tensor.h"
#include "tensor_model.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* ------------------------------------------------------------------ dtypes */

static void test_dtype_names_and_sizes(void **state) {
    (void)state;
    assert_string_equal(brim_dtype_name(BRIM_DTYPE_BOOL), "bool");
    assert_string_equal(brim_dtype_name(BRIM_DTYPE_U8), "uint8");
    assert_string_equal(brim_dtype_name(BRIM_DTYPE_BF16), "bfloat16");
    assert_string_equal(brim_dtype_name(BRIM_DTYPE_C128), "complex128");
    assert_string_equal(brim_dtype_name((brim_dtype)0), "unknown");
    assert_string_equal(brim_dtype_name((brim_dtype)99), "unknown");
    assert_int_equal(brim_dtype_bytes(BRIM_DTYPE_BOOL), 1);
    assert_int_equal(brim_dtype_bytes(BRIM_DTYPE_F16), 2);
    assert_int_equal(brim_dtype_bytes(BRIM_DTYPE_I64), 8);
    assert_int_equal(brim_dtype_bytes(BRIM_DTYPE_C128), 16);
    assert_int_equal(brim_dtype_bytes((brim_dtype)0), 0);
    assert_int_equal(brim_dtype_bytes((brim_dtype)16), 0);
    assert_int_equal(brim_dtype_bytes((brim_dtype)-1), 0);
}

static void test_dtype_parse(void **state) {
    (void)state;
    static const struct {
        const char *name;
        brim_dtype dtype;
    } cases[] = {
        { "bool", BRIM_DTYPE_BOOL },     { "u8", BRIM_DTYPE_U8 },
        { "i8", BRIM_DTYPE_I8 },         { "u16", BRIM_DTYPE_U16 },
        { "i16", BRIM_DTYPE_I16 },       { "u32", BRIM_DTYPE_U32 },
        { "i32", BRIM_DTYPE_I32 },       { "u64", BRIM_DTYPE_U64 },
        { "i64", BRIM_DTYPE_I64 },       { "f16", BRIM_DTYPE_F16 },
        { "bf16", BRIM_DTYPE_BF16 },     { "f32", BRIM_DTYPE_F32 },
        { "f64", BRIM_DTYPE_F64 },       { "c64", BRIM_DTYPE_C64 },
        { "c128", BRIM_DTYPE_C128 },     { "half", BRIM_DTYPE_F16 },
        { "float", BRIM_DTYPE_F32 },     { "double", BRIM_DTYPE_F64 },
        { "uint16", BRIM_DTYPE_U16 },    { "bfloat16", BRIM_DTYPE_BF16 },
        { "complex64", BRIM_DTYPE_C64 },
    };
    for (size_t i = 0; i < BRIM__COUNT(cases); i++) {
        brim_dtype dtype = (brim_dtype)0;
        assert_int_equal(brim__dtype_parse(cases[i].name, &dtype), BRIM_OK);
        assert_int_equal(dtype, cases[i].dtype);
    }
    for (int i = BRIM_DTYPE_BOOL; i <= BRIM_DTYPE_C128; i++) {
        brim_dtype dtype = (brim_dtype)0;
        assert_int_equal(brim__dtype_parse(brim_dtype_name((brim_dtype)i), &dtype), BRIM_OK);
        assert_int_equal(dtype, i);
    }
}

static void test_dtype_parse_refuses_with_the_names(void **state) {
    (void)state;
    brim_dtype dtype = BRIM_DTYPE_U8;
    assert_int_equal(brim__dtype_parse("flota32", &dtype), BRIM_STATUS_INVALID);
    assert_int_equal(dtype, BRIM_DTYPE_U8);
    assert_non_null(strstr(brim_detail(), "\"flota32\""));
    assert_non_null(strstr(brim_detail(), "one of float32, bool, uint8"));
    assert_non_null(strstr(brim_detail(), "complex128, u8"));
    assert_non_null(strstr(brim_detail(), "double"));
    /* the nearest is named once */
    const char *const first = strstr(brim_detail(), "float32");
    assert_null(strstr(first + 1, " float32"));

    assert_int_equal(brim__dtype_parse("no such thing at all", &dtype), BRIM_STATUS_INVALID);
    assert_non_null(strstr(brim_detail(), "one of bool, uint8"));
    assert_int_equal(brim__dtype_parse("", &dtype), BRIM_STATUS_INVALID);
    assert_int_equal(brim__dtype_parse("Float32", &dtype), BRIM_STATUS_INVALID);
    char longest[5000];
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = 0;
    assert_int_equal(brim__dtype_parse(longest, &dtype), BRIM_STATUS_INVALID);
}

static void test_dtype_kinds(void **state) {
    (void)state;
    for (int i = -1; i <= 16; i++) {
        const brim_dtype dtype = (brim_dtype)i;
        assert_int_equal(brim__dtype_is_integer(dtype), i >= BRIM_DTYPE_U8 && i <= BRIM_DTYPE_I64);
        assert_int_equal(brim__dtype_is_float(dtype), i >= BRIM_DTYPE_F16 && i <= BRIM_DTYPE_F64);
        assert_int_equal(brim__dtype_is_complex(dtype),
                         i == BRIM_DTYPE_C64 || i == BRIM_DTYPE_C128);
    }
}

/* Small types by trying all their values, the others by their limits. */
static void test_dtype_holds(void **state) {
    (void)state;
    for (int from = BRIM_DTYPE_BOOL; from <= BRIM_DTYPE_F64; from++) {
        for (int to = BRIM_DTYPE_BOOL; to <= BRIM_DTYPE_F64; to++) {
            const size_t bytes = brim_dtype_bytes((brim_dtype)from);
            bool holds = true;
            if (bytes <= 2) {
                for (uint32_t i = 0; i < (bytes == 1 ? 256u : 65536u) && holds; i++) {
                    uint8_t in[8] = { (uint8_t)i, (uint8_t)(i >> 8) }, there[8], back[8];
                    if (from == BRIM_DTYPE_BOOL) {
                        in[0] &= 1;
                    }
                    model_convert((brim_dtype)from, (brim_dtype)to, in, there, NULL, NULL);
                    model_convert((brim_dtype)to, (brim_dtype)from, there, back, NULL, NULL);
                    const struct model_number a = model_load((brim_dtype)from, in);
                    const struct model_number b = model_load((brim_dtype)to, there);
                    const struct model_number c = model_load((brim_dtype)from, back);
                    holds =
                        a.real != a.real ? b.real != b.real : a.real == b.real && a.real == c.real;
                }
            } else {
                holds =
                    from == to ||
                    (from == BRIM_DTYPE_U32 && (to == BRIM_DTYPE_U64 || to == BRIM_DTYPE_I64)) ||
                    (from == BRIM_DTYPE_I32 && to == BRIM_DTYPE_I64) ||
                    ((from == BRIM_DTYPE_U32 || from == BRIM_DTYPE_I32 || from == BRIM_DTYPE_F32) &&
                     to == BRIM_DTYPE_F64);
            }
            if (brim__dtype_holds((brim_dtype)to, (brim_dtype)from) != holds) {
                fail_msg("%s holds %s: should be %d", brim_dtype_name((brim_dtype)to),
                         brim_dtype_name((brim_dtype)from), holds);
            }
        }
    }
    assert_true(brim__dtype_holds(BRIM_DTYPE_C64, BRIM_DTYPE_F32));
    assert_true(brim__dtype_holds(BRIM_DTYPE_C128, BRIM_DTYPE_C64));
    assert_true(brim__dtype_holds(BRIM_DTYPE_C128, BRIM_DTYPE_I32));
    assert_false(brim__dtype_holds(BRIM_DTYPE_C64, BRIM_DTYPE_F64));
    assert_false(brim__dtype_holds(BRIM_DTYPE_F64, BRIM_DTYPE_C64));
    assert_false(brim__dtype_holds(BRIM_DTYPE_F64, (brim_dtype)0));
    assert_false(brim__dtype_holds((brim_dtype)77, BRIM_DTYPE_BOOL));
}

/* ------------------------------------------------------- shapes and views */

static void test_shape_bytes(void **state) {
    (void)state;
    uint64_t bytes = 0;
    const struct brim__shape scalar = { 0, { 0 } };
    assert_false(brim__shape_bytes_overflow(&scalar, 8, &bytes));
    assert_int_equal(bytes, 8);
    const struct brim__shape image = { 3, { 3, 32, 32 } };
    assert_false(brim__shape_bytes_overflow(&image, 4, &bytes));
    assert_int_equal(bytes, 12288);
    const struct brim__shape most = { 2, { UINT64_C(1) << 32, (UINT64_C(1) << 32) - 1 } };
    assert_false(brim__shape_bytes_overflow(&most, 1, &bytes));
    assert_true(brim__shape_bytes_overflow(&most, 2, &bytes));
    const struct brim__shape over = { 2, { UINT64_C(1) << 32, UINT64_C(1) << 32 } };
    assert_true(brim__shape_bytes_overflow(&over, 1, &bytes));
    const struct brim__shape empty = { 3, { UINT64_MAX, UINT64_MAX, 0 } };
    assert_false(brim__shape_bytes_overflow(&empty, 16, &bytes));
    assert_int_equal(bytes, 0);
}

static void test_shape_equal_and_text(void **state) {
    (void)state;
    char text[BRIM__SHAPE_TEXT];
    const struct brim__shape scalar = { 0, { 7 } };
    const struct brim__shape other = { 0, { 9 } };
    const struct brim__shape image = { 3, { 3, 32, 32 } };
    const struct brim__shape taller = { 3, { 3, 33, 32 } };
    const struct brim__shape flat = { 2, { 3, 32 } };
    assert_true(brim__shape_equal(&scalar, &other));
    assert_true(brim__shape_equal(&image, &image));
    assert_false(brim__shape_equal(&image, &taller));
    assert_false(brim__shape_equal(&image, &flat));
    assert_string_equal(brim__shape_text(&scalar, text), "scalar");
    assert_string_equal(brim__shape_text(&image, text), "3x32x32");
    struct brim__shape longest = { BRIM_MAX_RANK, { 0 } };
    for (size_t i = 0; i < BRIM_MAX_RANK; i++) {
        longest.dim[i] = UINT64_MAX;
    }
    assert_int_equal(strlen(brim__shape_text(&longest, text)), 8 * 20 + 7);
}

static void test_view_row_major(void **state) {
    (void)state;
    struct brim__view view = { .dtype = BRIM_DTYPE_F32, .shape = { 3, { 2, 5, 7 } } };
    assert_false(brim__view_is_row_major(&view));
    brim__view_row_major(&view);
    assert_int_equal(view.stride[0], 140);
    assert_int_equal(view.stride[1], 28);
    assert_int_equal(view.stride[2], 4);
    assert_true(brim__view_is_row_major(&view));
    view.stride[1] = -28;
    assert_false(brim__view_is_row_major(&view));

    struct brim__view ones = { .dtype = BRIM_DTYPE_U8,
                               .shape = { 3, { 1, 4, 1 } },
                               .stride = { -77, 1, 99 } };
    assert_true(brim__view_is_row_major(&ones));
    ones.stride[1] = 2;
    assert_false(brim__view_is_row_major(&ones));
    ones.shape.dim[0] = 0;
    assert_true(brim__view_is_row_major(&ones));
    const struct brim__view scalar = { .dtype = BRIM_DTYPE_F64 };
    assert_true(brim__view_is_row_major(&scalar));
}

/* ----------------------------------------------------------- small floats */

static void expect_f16(float value, uint16_t expected) {
    const uint16_t got = brim__f32_to_f16(value);
    if (got != expected) {
        fail_msg("float32 %08x (%g): float16 %04x, should be %04x", model_bits(value),
                 (double)value, got, expected);
    }
}

static void test_every_f16_widens(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 65536; i++) {
        const uint32_t got = model_bits(brim__f16_to_f32((uint16_t)i));
        const uint32_t expected = model_bits(model_from_f16((uint16_t)i));
        if (got != expected) {
            fail_msg("float16 %04x: float32 %08x, should be %08x", i, got, expected);
        }
    }
}

/* Between two neighbours: themselves, half way, and just beside half way. The
 * expectation follows from the neighbours alone. */
static void test_f16_rounds_at_every_boundary(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 0x7c00; i++) {
        const float low = model_from_f16((uint16_t)i);
        const float high = i + 1 == 0x7c00 ? 65536.0f : model_from_f16((uint16_t)(i + 1));
        const float half_way = (low + high) / 2;
        const float below = model_float(model_bits(half_way) - 1);
        const float above = model_float(model_bits(half_way) + 1);
        for (uint32_t sign = 0; sign <= 0x8000; sign += 0x8000) {
            const float factor = sign ? -1.0f : 1.0f;
            expect_f16(factor * low, (uint16_t)(sign | i));
            expect_f16(factor * below, (uint16_t)(sign | i));
            expect_f16(factor * half_way, (uint16_t)(sign | (i + (i & 1))));
            expect_f16(factor * above, (uint16_t)(sign | (i + 1)));
        }
    }
}

static void test_f16_agrees_on_random_bits(void **state) {
    (void)state;
    uint64_t random = 5;
    for (int i = 0; i < 300000; i++) {
        const uint64_t draw = model_random(&random);
        /* half of them where float16 has values, half anywhere */
        uint32_t bits = (uint32_t)draw;
        if (draw >> 63) {
            bits = (bits & 0x807fffff) | (uint32_t)(96 + (draw >> 32) % 52) << 23;
        }
        const float value = model_float(bits);
        expect_f16(value, model_f16(value));
    }
}

static void test_f16_special_values(void **state) {
    (void)state;
    expect_f16(0.0f, 0);
    expect_f16(-0.0f, 0x8000);
    expect_f16(model_float(1), 0); /* the least float32 */
    expect_f16(0x1p-25f, 0);
    expect_f16(65504.0f, 0x7bff);
    expect_f16(65519.996f, 0x7bff);
    expect_f16(65520.0f, 0x7c00);
    expect_f16(model_float(0x7f7fffff), 0x7c00);
    expect_f16(model_float(0xff800000), 0xfc00);
    expect_f16(model_float(0x7fc00000), 0x7e00);
    expect_f16(model_float(0xff800001), 0xfe00); /* signalling: quiet, not infinite */
    expect_f16(model_float(0x7fffe000), 0x7fff);
}

static void test_bf16(void **state) {
    (void)state;
    static const struct {
        uint32_t from;
        uint16_t to;
    } cases[] = {
        { 0x00000000, 0x0000 }, { 0x80000000, 0x8000 }, { 0x3f800000, 0x3f80 }, /* 1 */
        { 0x3f807fff, 0x3f80 }, { 0x3f808000, 0x3f80 },                         /* tie, to even */
        { 0x3f808001, 0x3f81 }, { 0x3f818000, 0x3f82 }, /* tie, to even above */
        { 0x3fffffff, 0x4000 },                         /* carries into the exponent */
        { 0x7f7fffff, 0x7f80 },                         /* rounds to infinity */
        { 0x7f7f7fff, 0x7f7f }, { 0x7f800000, 0x7f80 }, { 0xff800000, 0xff80 },
        { 0x7f800001, 0x7fc0 }, /* a NaN whose payload is cut stays a NaN */
        { 0xffffffff, 0xffff }, { 0x7fc12345, 0x7fc1 }, { 0x00000001, 0x0000 },
        { 0x00008000, 0x0000 }, { 0x00008001, 0x0001 }, { 0x007fffff, 0x0080 },
        { 0x80018000, 0x8002 },
    };
    for (size_t i = 0; i < BRIM__COUNT(cases); i++) {
        assert_int_equal(brim__f32_to_bf16(model_float(cases[i].from)), cases[i].to);
    }
    for (uint32_t i = 0; i < 65536; i++) {
        assert_int_equal(model_bits(brim__bf16_to_f32((uint16_t)i)), i << 16);
    }
    uint64_t random = 11;
    for (int i = 0; i < 200000; i++) {
        const float value = model_float((uint32_t)(model_random(&random) >> 17));
        assert_int_equal(brim__f32_to_bf16(value), model_bf16(value));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dtype_names_and_sizes),
        cmocka_unit_test(test_dtype_parse),
        cmocka_unit_test(test_dtype_parse_refuses_with_the_names),
        cmocka_unit_test(test_dtype_kinds),
        cmocka_unit_test(test_dtype_holds),
        cmocka_unit_test(test_shape_bytes),
        cmocka_unit_test(test_shape_equal_and_text),
        cmocka_unit_test(test_view_row_major),
        cmocka_unit_test(test_every_f16_widens),
        cmocka_unit_test(test_f16_rounds_at_every_boundary),
        cmocka_unit_test(test_f16_agrees_on_random_bits),
        cmocka_unit_test(test_f16_special_values),
        cmocka_unit_test(test_bf16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

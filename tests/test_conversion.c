/*
 * test_conversion.c: every kernel of every variant, and whole conversions,
 * against the plain model of tensor_model.h, bit for bit.
 *
 * Elements are random bytes with values sprinkled in at which conversions go
 * wrong: NaNs, infinities, subnormals, the limits of every integer type and
 * the numbers beside them.
 */
#include "tensor/tensor.h"
#include "tensor_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#define GUARD 0xa5
#define ROOM  65536

static uint8_t source[ROOM] __attribute__((aligned(64)));
static uint8_t got[ROOM] __attribute__((aligned(64)));
static uint8_t expected[ROOM] __attribute__((aligned(64)));

static const double specials[] = {
    0.0,
    -0.0,
    0.5,
    -0.5,
    0.9999999,
    -0.9999999,
    1.0,
    -1.0,
    127.0,
    128.0,
    -128.0,
    -129.0,
    255.0,
    255.99,
    256.0,
    32767.0,
    32768.0,
    -32768.9,
    -32769.0,
    65504.0,
    65519.0,
    65520.0,
    65535.5,
    65536.0,
    2147483520.,
    2147483647.,
    2147483648.,
    -2147483648.,
    -2147483904.,
    -2147483649.,
    4294967040.,
    4294967295.,
    4294967295.5,
    4294967296.,
    0x1p53,
    0x1.fffffffffffffp62,
    0x1p63,
    -0x1p63,
    -0x1.0000000000001p63,
    0x1.fffffep63,
    0x1.fffffffffffffp63,
    0x1p64,
    -1e30,
    1e30,
    0x1p-14,
    0x1p-24,
    0x1p-25,
    0x1.8p-24,
    0x1p-126,
    0x1p-133,
    0x1p-149,
    0x1p-150,
    0x1.ffffffp127,
    0x1p128,
    1e300,
    -1e300,
    4.9e-324,
};

/* Fills with elements of a dtype. */
static void fill(uint8_t *at, brim_dtype dtype, size_t count, uint64_t *random) {
    const size_t bytes = brim_dtype_bytes(dtype);
    for (size_t i = 0; i < count; i++, at += bytes) {
        const uint64_t draw = model_random(random);
        const uint64_t more = model_random(random);
        memcpy(at, &draw, bytes < 8 ? bytes : 8);
        if (bytes == 16) {
            memcpy(at + 8, &more, 8);
        }
        if (dtype > BRIM_DTYPE_F64 || more % 3 == 0) {
            continue;
        }
        struct model_number number = { .real = specials[(more >> 8) % BRIM__COUNT(specials)] };
        if (more % 7 == 0) {
            number.real = (double)__builtin_inff();
        } else if (more % 7 == 1) {
            number.real = (double)__builtin_nanf("");
        }
        number.real = more >> 63 ? -number.real : number.real;
        number.single = (float)number.real;
        model_store(number, dtype, at);
    }
}

static void compare(const char *what, brim_dtype from, brim_dtype to, size_t count, size_t bytes) {
    if (memcmp(got, expected, bytes) == 0) {
        return;
    }
    size_t at = 0;
    while (got[at] == expected[at]) {
        at++;
    }
    fail_msg("%s: %s to %s, %zu elements: byte %zu is %02x, should be %02x", what,
             brim_dtype_name(from), brim_dtype_name(to), count, at, got[at], expected[at]);
}

/* ----------------------------------------------------------------- kernels */

/* All pairs, counts around every vector's width, addresses aligned to nothing;
 * bytes before and behind must stay. */
static void test_kernels_agree_with_the_model(void **state) {
    (void)state;
    uint64_t random = 1;
    static const float scale[] = { 0.0171f, -3.0f, 0.0f, 1e-30f };
    static const float bias[] = { -1.9f, 0.25f, 0.0f, 1e30f };
    for (int from = BRIM_DTYPE_BOOL; from <= BRIM_DTYPE_F64; from++) {
        for (int to = BRIM_DTYPE_BOOL; to <= BRIM_DTYPE_F64; to++) {
            const size_t from_bytes = brim_dtype_bytes((brim_dtype)from);
            const size_t to_bytes = brim_dtype_bytes((brim_dtype)to);
            for (size_t count = 0; count <= 70; count++) {
                const size_t skew = (count * 3 + 1) % 8;
                const uint8_t *const in = source + skew;
                const size_t shift = 8 + (count * 5 + 3) % 8;
                const size_t end = shift + count * to_bytes + 64;
                fill(source + skew, (brim_dtype)from, count, &random);
                for (int affine = 0; affine < 2; affine++) {
                    if (affine && !brim__dtype_is_float((brim_dtype)to)) {
                        continue;
                    }
                    const float *const by = affine ? &scale[count % 4] : NULL;
                    const float *const plus = affine ? &bias[count % 4] : NULL;
                    memset(expected, GUARD, end);
                    for (size_t i = 0; i < count; i++) {
                        model_convert((brim_dtype)from, (brim_dtype)to, in + i * from_bytes,
                                      expected + shift + i * to_bytes, by, plus);
                    }
                    const struct brim__kernels *kernels;
                    for (size_t v = 0; (kernels = brim__kernels_variant(v)) != NULL; v++) {
                        memset(got, GUARD, end);
                        if (affine) {
                            kernels->affine[from][to](in, got + shift, count, *by, *plus);
                        } else {
                            kernels->convert[from][to](in, got + shift, count);
                        }
                        compare(kernels->name, (brim_dtype)from, (brim_dtype)to, count, end);
                    }
                }
            }
        }
    }
}

static void test_planes3_agrees_with_the_model(void **state) {
    (void)state;
    uint64_t random = 2;
    static const float scale[] = { 0.0171f, -0.0175f, 0.0169f };
    static const float bias[] = { -1.9f, 2.0f, -1.8f };
    for (size_t pixels = 0; pixels <= 100; pixels++) {
        const size_t plane = pixels + pixels % 5;
        const uint8_t *const in = source + pixels % 7;
        const size_t shift = 8 + pixels % 9;
        const size_t end = shift + 3 * plane * 4 + 64;
        fill(source, BRIM_DTYPE_U8, 400, &random);
        memset(expected, GUARD, end);
        for (size_t i = 0; i < 3 * pixels; i++) {
            model_convert(BRIM_DTYPE_U8, BRIM_DTYPE_F32, in + i,
                          expected + shift + (i % 3 * plane + i / 3) * 4, &scale[i % 3],
                          &bias[i % 3]);
        }
        const struct brim__kernels *kernels;
        for (size_t v = 0; (kernels = brim__kernels_variant(v)) != NULL; v++) {
            memset(got, GUARD, end);
            kernels->planes3(in, (float *)(void *)(got + shift), plane, pixels, scale, bias);
            compare(kernels->name, BRIM_DTYPE_U8, BRIM_DTYPE_F32, 3 * pixels, end);
        }
    }
}

static void test_variants(void **state) {
    (void)state;
    assert_string_equal(brim__kernels_variant(0)->name, "scalar");
    size_t count = 0;
    while (brim__kernels_variant(count) != NULL) {
        count++;
    }
    assert_ptr_equal(brim__kernels(), brim__kernels_variant(count - 1));
    assert_ptr_equal(brim__kernels(), brim__kernels());
    assert_null(brim__kernels_variant(count + 1));
}

/* ------------------------------------------------------------- conversions */

/* Goes through the destination's elements one by one. */
static void model_run(const struct brim__conversion *conversion, uint8_t *out) {
    const struct brim__view *const from = &conversion->from;
    const size_t from_bytes = brim_dtype_bytes(from->dtype);
    const size_t to_bytes = brim_dtype_bytes(conversion->to);
    uint64_t elements = 1;
    for (uint32_t i = 0; i < from->shape.rank; i++) {
        elements *= from->shape.dim[i];
    }
    for (uint64_t e = 0; e < elements; e++) {
        uint64_t rest = e, channel = 0;
        int64_t at = (int64_t)from->offset;
        for (uint32_t i = from->shape.rank; i-- > 0;) {
            const uint64_t index = rest % from->shape.dim[i];
            rest /= from->shape.dim[i];
            at += (int64_t)index * from->stride[i];
            channel = i == conversion->channel_axis && conversion->channels > 1 ? index : channel;
        }
        uint8_t element[16];
        memcpy(element, source + at, from_bytes);
        if (from->swapped) {
            const bool complex = brim__dtype_is_complex(from->dtype);
            const size_t word = from_bytes / (complex ? 2 : 1);
            for (size_t i = 0; i < from_bytes; i++) {
                element[i] = source[at + (int64_t)(i / word * word + word - 1 - i % word)];
            }
        }
        model_convert(from->dtype, conversion->to, element, out + e * to_bytes,
                      conversion->scale != NULL ? conversion->scale + channel : NULL,
                      conversion->scale != NULL ? conversion->bias + channel : NULL);
    }
}

static void check_conversion(struct brim__conversion *conversion, size_t shift) {
    if (brim__conversion_prepare(conversion) != BRIM_OK) {
        fail_msg("%s", brim_detail());
    }
    const size_t end = shift + conversion->bytes + 64;
    assert_true(end <= ROOM);
    memset(expected, GUARD, end);
    memset(got, GUARD, end);
    model_run(conversion, expected + shift);
    brim__convert(conversion, source, got + shift);
    char text[BRIM__SHAPE_TEXT];
    compare(brim__shape_text(&conversion->from.shape, text), conversion->from.dtype, conversion->to,
            conversion->elements, end);
}

/* A view with dimensions stored in any order, with gaps, backwards, or not at
 * all (stride 0). Its elements lie inside `source`. */
static struct brim__view random_view(brim_dtype dtype, uint64_t *random) {
    struct brim__view view = { .dtype = dtype, .swapped = model_random(random) % 4 == 0 };
    const uint64_t style = model_random(random);
    view.shape.rank = (uint32_t)(style % (BRIM_MAX_RANK + 1));
    uint64_t elements = 1;
    for (uint32_t i = 0; i < view.shape.rank; i++) {
        const uint64_t draw = model_random(random);
        uint64_t dim = draw % 4 + 1 - (draw % 61 == 0);
        dim = draw % 11 == 0 ? draw / 11 % 1200 + 1 : dim;
        dim = elements * dim > 1500 ? 1 : dim;
        view.shape.dim[i] = dim;
        elements *= dim > 0 ? dim : 1;
    }
    uint32_t order[BRIM_MAX_RANK];
    for (uint32_t i = 0; i < view.shape.rank; i++) {
        const uint32_t other = style & 1024 ? (uint32_t)(model_random(random) % (i + 1)) : i;
        order[i] = order[other];
        order[other] = i;
    }
    uint64_t step = brim_dtype_bytes(dtype);
    uint64_t offset = 8 + style % 7;
    for (uint32_t i = view.shape.rank; i-- > 0;) {
        const uint32_t axis = order[i];
        const uint64_t dim = view.shape.dim[axis];
        const uint64_t draw = model_random(random);
        step += style & 2048 && draw % 4 == 0 && step < 64 ? draw / 4 % 5 : 0;
        view.stride[axis] = (int64_t)step;
        if (style & 4096 && draw % 5 == 1) {
            view.stride[axis] = -(int64_t)step;
            offset += dim > 0 ? step * (dim - 1) : 0;
        } else if (style & 8192 && draw % 5 == 2) {
            view.stride[axis] = 0;
            continue;
        }
        step *= dim > 0 ? dim : 1;
    }
    view.offset = offset;
    assert_true(offset + step + 16 <= ROOM);
    return view;
}

static void test_random_conversions(void **state) {
    (void)state;
    uint64_t random = 3;
    static float scale[1200], bias[1200];
    for (size_t i = 0; i < BRIM__COUNT(scale); i++) {
        scale[i] = (float)(model_random(&random) % 1000) / 300 - 1;
        bias[i] = (float)(model_random(&random) % 1000) / 100 - 5;
    }
    for (int i = 0; i < 12000; i++) {
        const brim_dtype from = (brim_dtype)(model_random(&random) % 15 + 1);
        const struct brim__view view = random_view(from, &random);
        struct brim__conversion conversion;
        brim__conversion_init(&conversion, &view);
        const uint64_t draw = model_random(&random);
        if (!brim__dtype_is_complex(from)) {
            conversion.to = draw % 3 == 0 ? from : (brim_dtype)(draw / 3 % 13 + 1);
            if (draw / 64 % 2 == 0) {
                conversion.to = (brim_dtype)(BRIM_DTYPE_F16 + draw / 128 % 4);
                conversion.scale = scale;
                conversion.bias = bias;
                conversion.channels = 1;
                if (view.shape.rank > 0) {
                    conversion.channel_axis = (uint32_t)(draw / 512 % view.shape.rank);
                    conversion.channels = (uint32_t)view.shape.dim[conversion.channel_axis];
                }
            }
        }
        if (i % 16 == 0) { /* the source as elements now and then, else any bytes */
            fill(source, from, 40000 / brim_dtype_bytes(from), &random);
        }
        check_conversion(&conversion, 8 + draw % 9);
    }
}

/* Interleaved pixels to planes, whole, cropped, flipped and both. */
static void test_images_to_planes(void **state) {
    (void)state;
    uint64_t random = 4;
    static const float scale[] = { 0.0171f, 0.0175f, -0.0169f };
    static const float bias[] = { -1.9f, 2.0f, -1.8f };
    fill(source, BRIM_DTYPE_U8, ROOM, &random);
    for (int i = 0; i < 600; i++) {
        const uint64_t draw = model_random(&random);
        const uint64_t height = draw % 40 + 1, width = draw / 64 % 90 + 1;
        const uint64_t pitch = 3 * (width + (draw / 8192 % 2) * 5);
        const bool flip = draw >> 20 & 1, turn = draw >> 21 & 1;
        const uint64_t channels = draw >> 22 & 3 ? 3 : draw % 4 + 1;
        struct brim__view view = {
            .dtype = BRIM_DTYPE_U8,
            .shape = { 3, { channels, height, width } },
            .stride = { 1, (int64_t)pitch, flip ? -3 : 3 },
            .offset = 7 + (flip ? 3 * (width - 1) : 0) + (turn ? pitch * (height - 1) : 0),
        };
        view.stride[1] = turn ? -view.stride[1] : view.stride[1];
        if (3 * height * width * 4 + 128 > ROOM || channels > 3) {
            continue;
        }
        struct brim__conversion conversion;
        brim__conversion_init(&conversion, &view);
        conversion.to = draw >> 25 & 7 ? BRIM_DTYPE_F32 : BRIM_DTYPE_F16;
        if (draw >> 24 & 1) {
            conversion.scale = scale;
            conversion.bias = bias;
            conversion.channels = draw >> 28 & 3 ? (uint32_t)channels : 1;
        }
        check_conversion(&conversion, 64 + draw % 3);
    }
    /* looks like pixels to planes, but the three channels are the rows */
    const struct brim__view rows = {
        .dtype = BRIM_DTYPE_U8,
        .shape = { 3, { 3, 3, 50 } },
        .stride = { 1, 150, 3 },
    };
    struct brim__conversion conversion;
    brim__conversion_init(&conversion, &rows);
    conversion.to = BRIM_DTYPE_F32;
    conversion.scale = scale;
    conversion.bias = bias;
    conversion.channels = 3;
    conversion.channel_axis = 1;
    check_conversion(&conversion, 64);
}

/* Channels innermost and long, and channels that change every few elements. */
static void test_patterns_of_channels(void **state) {
    (void)state;
    uint64_t random = 6;
    static float scale[2000], bias[2000];
    for (size_t i = 0; i < BRIM__COUNT(scale); i++) {
        scale[i] = 1.0f + (float)i;
        bias[i] = -(float)i;
    }
    static const uint64_t channels[] = {
        2, 3, 4, 7, 31, 63, 64, 65, 100, 511, 512, 513, 768, 2000
    };
    static const uint64_t runs[] = { 1, 2, 5, 15, 16, 17, 40 };
    for (size_t c = 0; c < BRIM__COUNT(channels); c++) {
        for (size_t r = 0; r < BRIM__COUNT(runs); r++) {
            for (uint64_t outer = 1; outer <= 40; outer += 13) {
                struct brim__view view = { .dtype = outer & 4 ? BRIM_DTYPE_I16 : BRIM_DTYPE_F32,
                                           .swapped = outer == 27,
                                           .shape = { 3, { outer, channels[c], runs[r] } } };
                if (outer * channels[c] * runs[r] > 12000) {
                    continue;
                }
                brim__view_row_major(&view);
                fill(source, view.dtype, 12000, &random);
                for (int to = BRIM_DTYPE_F16; to <= BRIM_DTYPE_F64; to++) {
                    struct brim__conversion conversion;
                    brim__conversion_init(&conversion, &view);
                    conversion.to = (brim_dtype)to;
                    conversion.scale = scale;
                    conversion.bias = bias;
                    conversion.channels = (uint32_t)channels[c];
                    conversion.channel_axis = 1;
                    if (outer * channels[c] * runs[r] * 8 + 128 <= ROOM) {
                        check_conversion(&conversion, 9);
                    }
                }
            }
        }
    }
}

static void test_empty_and_scalar(void **state) {
    (void)state;
    uint64_t random = 7;
    fill(source, BRIM_DTYPE_F32, 100, &random);
    struct brim__view view = { .dtype = BRIM_DTYPE_F32, .shape = { 3, { 4, 0, 5 } } };
    struct brim__conversion conversion;
    brim__conversion_init(&conversion, &view);
    conversion.to = BRIM_DTYPE_U8;
    check_conversion(&conversion, 8);
    assert_int_equal(conversion.elements, 0);
    assert_int_equal(conversion.bytes, 0);

    view.shape.rank = 0;
    view.offset = 13;
    brim__conversion_init(&conversion, &view);
    conversion.to = BRIM_DTYPE_F64;
    check_conversion(&conversion, 8);
    assert_int_equal(conversion.bytes, 8);
}

static void test_is_copy(void **state) {
    (void)state;
    static const float one = 1, zero = 0;
    struct brim__view view = { .dtype = BRIM_DTYPE_U16,
                               .shape = { 2, { 3, 4 } },
                               .stride = { 8, 2 } };
    struct brim__conversion conversion;
    brim__conversion_init(&conversion, &view);
    assert_true(brim__conversion_is_copy(&conversion));
    conversion.from.swapped = true;
    assert_false(brim__conversion_is_copy(&conversion));
    conversion.from.swapped = false;
    conversion.to = BRIM_DTYPE_I16;
    assert_false(brim__conversion_is_copy(&conversion));
    brim__conversion_init(&conversion, &view);
    conversion.from.stride[0] = 10;
    assert_false(brim__conversion_is_copy(&conversion));
    brim__conversion_init(&conversion, &view);
    conversion.scale = &one;
    conversion.bias = &zero;
    assert_false(brim__conversion_is_copy(&conversion));
    view = (struct brim__view){
        .dtype = BRIM_DTYPE_U8, .swapped = true, .shape = { 1, { 9 } }, .stride = { 1 }
    };
    brim__conversion_init(&conversion, &view);
    assert_true(brim__conversion_is_copy(&conversion));
}

static void refuse(const struct brim__conversion *wrong, brim_status status, const char *text) {
    struct brim__conversion conversion = *wrong;
    assert_int_equal(brim__conversion_prepare(&conversion), status);
    if (strstr(brim_detail(), text) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", brim_detail(), text);
    }
}

static void test_prepare_refuses(void **state) {
    (void)state;
    static const float scale[3] = { 1, 1, 1 }, bias[3] = { 0, 0, 0 };
    static const float infinite[3] = { 1, __builtin_inff(), 1 };
    struct brim__view view = { .dtype = BRIM_DTYPE_U8, .shape = { 3, { 3, 8, 8 } } };
    brim__view_row_major(&view);
    struct brim__conversion good;
    brim__conversion_init(&good, &view);
    good.to = BRIM_DTYPE_F32;
    good.scale = scale;
    good.bias = bias;
    good.channels = 3;

    struct brim__conversion wrong = good;
    assert_int_equal(brim__conversion_prepare(&wrong), BRIM_OK);
    wrong = good;
    wrong.channel_axis = 1;
    refuse(&wrong, BRIM_STATUS_INVALID,
           "3 channels of scale and bias do not match dimension 1 of 3x8x8");
    wrong.channel_axis = 3;
    refuse(&wrong, BRIM_STATUS_INVALID, "no dimension 3");
    wrong = good;
    wrong.to = BRIM_DTYPE_U8;
    refuse(&wrong, BRIM_STATUS_INVALID, "uint8");
    wrong = good;
    wrong.bias = NULL;
    refuse(&wrong, BRIM_STATUS_INVALID, "together");
    wrong = good;
    wrong.scale = infinite;
    refuse(&wrong, BRIM_STATUS_INVALID, "channel 1 must be finite");
    wrong = good;
    wrong.from.dtype = BRIM_DTYPE_C64;
    refuse(&wrong, BRIM_STATUS_UNSUPPORTED, "complex elements are only copied");
    wrong.scale = wrong.bias = NULL;
    refuse(&wrong, BRIM_STATUS_UNSUPPORTED, "complex64 to float32");
    wrong.from.dtype = BRIM_DTYPE_F32;
    wrong.to = BRIM_DTYPE_C128;
    refuse(&wrong, BRIM_STATUS_UNSUPPORTED, "float32 to complex128");
    wrong.to = (brim_dtype)16;
    refuse(&wrong, BRIM_STATUS_INVALID, "unknown dtype");
    wrong = good;
    wrong.from.shape.rank = 9;
    refuse(&wrong, BRIM_STATUS_INVALID, "at most 8");
    wrong = good;
    wrong.from.shape.dim[1] = wrong.from.shape.dim[2] = UINT64_C(1) << 31;
    refuse(&wrong, BRIM_STATUS_INVALID, "too many bytes");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kernels_agree_with_the_model),
        cmocka_unit_test(test_planes3_agrees_with_the_model),
        cmocka_unit_test(test_variants),
        cmocka_unit_test(test_random_conversions),
        cmocka_unit_test(test_images_to_planes),
        cmocka_unit_test(test_patterns_of_channels),
        cmocka_unit_test(test_empty_and_scalar),
        cmocka_unit_test(test_is_copy),
        cmocka_unit_test(test_prepare_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

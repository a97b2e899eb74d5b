/*
 * kernels.c: the loops that convert contiguous elements.
 *
 * Compiled once for each variant (base/cpu.h), with BRIM__KERNELS the name of the table that it
 * defines and BRIM__KERNELS_NAME its text. The loops are plain C that the compiler vectorises for
 * the variant. The three loops that matter most to fast pipelines are written for AVX2 by hand,
 * because gcc's shuffles cost up to twice as much as storing the result. All variants give the same
 * bits, because every operation here is exact or rounds once to nearest even, and none is fused
 * (-ffp-contract=off, no -mfma).
 *
 * A kernel is composed of three macros, for source S and destination D:
 *
 *     LOAD_S(stored)    the element's value, of a type value_S
 *     KIND_S            I (integer), F (float32) or D (float64): what value_S is
 *     kind_D(value)     what is stored for that value
 *
 * NaNs: if an operation makes a NaN (0 times infinity), x86 and ARM give different bits. So scale
 * and bias over a float source replace every NaN by one fixed NaN. An integer source makes none,
 * because scale and bias are finite.
 */
#include "tensor/half.h"
#include "tensor/tensor.h"

#ifdef __AVX2__
#include <immintrin.h>
#endif

/* --------------------------------------------------------------- elements */

/* Elements in memory: at any address, of any declared type. */
#define STORED(name, type) typedef type stored_##name __attribute__((aligned(1), may_alias));
STORED(BOOL, uint8_t)
STORED(U8, uint8_t)
STORED(I8, int8_t)
STORED(U16, uint16_t)
STORED(I16, int16_t)
STORED(U32, uint32_t)
STORED(I32, int32_t)
STORED(U64, uint64_t)
STORED(I64, int64_t)
STORED(F16, uint16_t)
STORED(BF16, uint16_t)
STORED(F32, float)
STORED(F64, double)

typedef uint8_t value_BOOL;
typedef uint8_t value_U8;
typedef int8_t value_I8;
typedef uint16_t value_U16;
typedef int16_t value_I16;
typedef uint32_t value_U32;
typedef int32_t value_I32;
typedef uint64_t value_U64;
typedef int64_t value_I64;
typedef float value_F16;
typedef float value_BF16;
typedef float value_F32;
typedef double value_F64;

#define LOAD_BOOL(stored) ((uint8_t)((stored) != 0))
#define LOAD_U8(stored)   (stored)
#define LOAD_I8(stored)   (stored)
#define LOAD_U16(stored)  (stored)
#define LOAD_I16(stored)  (stored)
#define LOAD_U32(stored)  (stored)
#define LOAD_I32(stored)  (stored)
#define LOAD_U64(stored)  (stored)
#define LOAD_I64(stored)  (stored)
#define LOAD_F16(stored)  brim__bits_float(brim__f16_widen(stored))
#define LOAD_BF16(stored) brim__bits_float(brim__bf16_widen(stored))
#define LOAD_F32(stored)  (stored)
#define LOAD_F64(stored)  (stored)

#define KIND_BOOL I
#define KIND_U8   I
#define KIND_I8   I
#define KIND_U16  I
#define KIND_I16  I
#define KIND_U32  I
#define KIND_I32  I
#define KIND_U64  I
#define KIND_I64  I
#define KIND_F16  F
#define KIND_BF16 F
#define KIND_F32  F
#define KIND_F64  D

/* Truncates and saturates; NaN gives 0. Clamping first keeps the conversion
 * defined, and compiles to minimum, maximum and one conversion. The bounds
 * must be exact in `real`, and fit `through`. */
#define CLAMP(name, real, type, through, least, most)       \
    static inline type name(real value) {                   \
        const real number = value == value ? value : 0;     \
        const real above = number > least ? number : least; \
        const real inside = above < most ? above : most;    \
        return (type)(through)inside;                       \
    }
CLAMP(clamp_f_u8, float, uint8_t, int32_t, 0.0f, 255.0f)
CLAMP(clamp_f_i8, float, int8_t, int32_t, -128.0f, 127.0f)
CLAMP(clamp_f_u16, float, uint16_t, int32_t, 0.0f, 65535.0f)
CLAMP(clamp_f_i16, float, int16_t, int32_t, -32768.0f, 32767.0f)
CLAMP(clamp_d_u8, double, uint8_t, int32_t, 0.0, 255.0)
CLAMP(clamp_d_i8, double, int8_t, int32_t, -128.0, 127.0)
CLAMP(clamp_d_u16, double, uint16_t, int32_t, 0.0, 65535.0)
CLAMP(clamp_d_i16, double, int16_t, int32_t, -32768.0, 32767.0)
CLAMP(clamp_d_u32, double, uint32_t, int64_t, 0.0, 4294967295.0)
CLAMP(clamp_d_i32, double, int32_t, int32_t, -2147483648.0, 2147483647.0)

/* The type's maximum is not exact in `real`, so values that reach it are compared instead. */
static inline int32_t clamp_f_i32(float value) {
    const float number = value == value ? value : 0;
    const float above = number > -0x1p31f ? number : -0x1p31f;
    const float inside = above < 0x1.fffffep30f ? above : 0x1.fffffep30f;
    const int32_t whole = (int32_t)inside;
    return number >= 0x1p31f ? INT32_MAX : whole;
}

static inline uint64_t clamp_d_u64(double value) {
    if (value >= 0x1p64) {
        return UINT64_MAX;
    }
    return value > 0 ? (uint64_t)value : 0;
}

static inline int64_t clamp_d_i64(double value) {
    if (value >= 0x1p63) {
        return INT64_MAX;
    }
    if (value < -0x1p63) {
        return INT64_MIN;
    }
    return value == value ? (int64_t)value : 0;
}

#define I_BOOL(value) ((uint8_t)((value) != 0))
#define I_U8(value)   ((uint8_t)(value))
#define I_I8(value)   ((int8_t)(value))
#define I_U16(value)  ((uint16_t)(value))
#define I_I16(value)  ((int16_t)(value))
#define I_U32(value)  ((uint32_t)(value))
#define I_I32(value)  ((int32_t)(value))
#define I_U64(value)  ((uint64_t)(value))
#define I_I64(value)  ((int64_t)(value))
#define I_F16(value)  brim__f16_narrow(brim__float_bits((float)(value)))
#define I_BF16(value) brim__bf16_narrow(brim__float_bits((float)(value)))
#define I_F32(value)  ((float)(value))
#define I_F64(value)  ((double)(value))

#define F_BOOL(value) I_BOOL(value)
#define F_U8(value)   clamp_f_u8(value)
#define F_I8(value)   clamp_f_i8(value)
#define F_U16(value)  clamp_f_u16(value)
#define F_I16(value)  clamp_f_i16(value)
#define F_U32(value)  clamp_d_u32((double)(value))
#define F_I32(value)  clamp_f_i32(value)
#define F_U64(value)  clamp_d_u64((double)(value))
#define F_I64(value)  clamp_d_i64((double)(value))
#define F_F16(value)  I_F16(value)
#define F_BF16(value) I_BF16(value)
#define F_F32(value)  (value)
#define F_F64(value)  I_F64(value)

#define D_BOOL(value) I_BOOL(value)
#define D_U8(value)   clamp_d_u8(value)
#define D_I8(value)   clamp_d_i8(value)
#define D_U16(value)  clamp_d_u16(value)
#define D_I16(value)  clamp_d_i16(value)
#define D_U32(value)  clamp_d_u32(value)
#define D_I32(value)  clamp_d_i32(value)
#define D_U64(value)  clamp_d_u64(value)
#define D_I64(value)  clamp_d_i64(value)
#define D_F16(value)  I_F16(value)
#define D_BF16(value) I_BF16(value)
#define D_F32(value)  I_F32(value)
#define D_F64(value)  (value)

#define PASTE(a, b)            a##_##b
#define STORE_KIND(kind, to)   PASTE(kind, to)
#define STORE(from, to, value) STORE_KIND(KIND_##from, to)(value)

static inline float one_nan(float value) {
    return value == value ? value : __builtin_nanf("");
}
#define RESULT_I(value)     (value)
#define RESULT_F(value)     one_nan(value)
#define RESULT_D(value)     one_nan(value)
#define RESULT_KIND(kind)   PASTE(RESULT, kind)
#define RESULT(from, value) RESULT_KIND(KIND_##from)(value)

/* ------------------------------------------------------------------- loops */

/* Equal dtypes are copied as bytes: NaNs, and bools other than 0 and 1, keep their bits. */
#define DEFINE_CONVERT(from, to)                                                               \
    static void convert_##from##_##to(const void *restrict source, void *restrict destination, \
                                      size_t count) {                                          \
        if ((int)BRIM_DTYPE_##from == (int)BRIM_DTYPE_##to) {                                  \
            memcpy(destination, source, count * sizeof(stored_##from));                        \
            return;                                                                            \
        }                                                                                      \
        const stored_##from *in = source;                                                      \
        stored_##to *out = destination;                                                        \
        for (size_t i = 0; i < count; i++) {                                                   \
            const value_##from value = LOAD_##from(in[i]);                                     \
            out[i] = STORE(from, to, value);                                                   \
        }                                                                                      \
    }

#define DEFINE_AFFINE(from, to)                                                               \
    static void affine_##from##_##to(const void *restrict source, void *restrict destination, \
                                     size_t count, float scale, float bias) {                 \
        const stored_##from *in = source;                                                     \
        stored_##to *out = destination;                                                       \
        for (size_t i = 0; i < count; i++) {                                                  \
            const value_##from value = LOAD_##from(in[i]);                                    \
            const float scaled = STORE(from, F32, value) * scale;                             \
            const float result = RESULT(from, scaled + bias);                                 \
            out[i] = F_##to(result);                                                          \
        }                                                                                     \
    }

#define FLOATS(X, from) X(from, F16) X(from, BF16) X(from, F32) X(from, F64)
#define REALS(X, from) \
    X(from, BOOL)      \
    X(from, U8)        \
    X(from, I8)        \
    X(from, U16)       \
    X(from, I16)       \
    X(from, U32) X(from, I32) X(from, U64) X(from, I64) FLOATS(X, from)
#define FROM_ALL(list, X)                                                                     \
    list(X, BOOL) list(X, U8) list(X, I8) list(X, U16) list(X, I16) list(X, U32) list(X, I32) \
        list(X, U64) list(X, I64) list(X, F16) list(X, BF16) list(X, F32) list(X, F64)

FROM_ALL(REALS, DEFINE_CONVERT)
FROM_ALL(FLOATS, DEFINE_AFFINE)

/* ------------------------------------------------------------ AVX2 by hand */

#ifdef __AVX2__
/* A vector shuffle moves bytes within each half only, but is twice as fast as
 * the instructions that widen across. So 16 bytes are loaded into both halves,
 * each half picks and widens its own, and the rest is left to the plain loop. */
static __m256i load_twice(const uint8_t *at) {
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)at));
}

#define BYTE(a)         a, -1, -1, -1
#define BYTES(a)        BYTE(a), BYTE(a + 1), BYTE(a + 2), BYTE(a + 3)
#define WORD(a)         a, a + 1, -1, -1, -1, -1, -1, -1
#define WORDS(a)        WORD(a), WORD(a + 2)
#define PIXELS(a)       BYTE(a), BYTE(a + 3), BYTE(a + 6), BYTE(a + 9)
#define PICK(low, high) _mm256_setr_epi8(low, high)

static void wide_convert_U16_I64(const void *source, void *destination, size_t count) {
    const uint8_t *const in = source;
    uint8_t *const out = destination;
    const __m256i pick0 = PICK(WORDS(0), WORDS(4));
    const __m256i pick1 = PICK(WORDS(8), WORDS(12));
    size_t i = 0;
    for (; i + 8 <= count; i += 8) {
        const __m256i words = load_twice(in + 2 * i);
        _mm256_storeu_si256((__m256i *)(out + 8 * i), _mm256_shuffle_epi8(words, pick0));
        _mm256_storeu_si256((__m256i *)(out + 8 * i + 32), _mm256_shuffle_epi8(words, pick1));
    }
    convert_U16_I64(in + 2 * i, out + 8 * i, count - i);
}

static __m256 scaled(__m256i values, __m256 scale, __m256 bias) {
    return _mm256_add_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(values), scale), bias);
}

static void wide_affine_U8_F32(const void *source, void *destination, size_t count, float scale,
                               float bias) {
    const uint8_t *const in = source;
    stored_F32 *const out = destination;
    const __m256i pick0 = PICK(BYTES(0), BYTES(4));
    const __m256i pick1 = PICK(BYTES(8), BYTES(12));
    const __m256 scales = _mm256_set1_ps(scale), biases = _mm256_set1_ps(bias);
    size_t i = 0;
    for (; i + 16 <= count; i += 16) {
        const __m256i bytes = load_twice(in + i);
        const __m256i values0 = _mm256_shuffle_epi8(bytes, pick0);
        const __m256i values1 = _mm256_shuffle_epi8(bytes, pick1);
        _mm256_storeu_ps((float *)(out + i), scaled(values0, scales, biases));
        _mm256_storeu_ps((float *)(out + i + 8), scaled(values1, scales, biases));
    }
    affine_U8_F32(in + i, out + i, count - i, scale, bias);
}

/* The table below pastes the names of its entries, so these definitions put the AVX2 ones into
 * it. */
#define convert_U16_I64 wide_convert_U16_I64
#define affine_U8_F32   wide_affine_U8_F32

/* 8 pixels, 24 bytes, in two overlapping halves of a vector:
 *
 *     low   bytes 0..15:  pixels 0..3 at 0, 3, 6, 9
 *     high  bytes 8..23:  pixels 4..7 at 4, 7, 10, 13
 *
 * One shuffle extracts a channel's bytes and widens them to 32 bits. Nothing past the pixels is
 * read. */
static size_t planes3_vectors(const uint8_t *from, stored_F32 *to, size_t plane, size_t pixels,
                              const float *scale, const float *bias) {
    const __m256i pick0 = PICK(PIXELS(0), PIXELS(4));
    const __m256i pick1 = PICK(PIXELS(1), PIXELS(5));
    const __m256i pick2 = PICK(PIXELS(2), PIXELS(6));
    const __m256 scale0 = _mm256_set1_ps(scale[0]), bias0 = _mm256_set1_ps(bias[0]);
    const __m256 scale1 = _mm256_set1_ps(scale[1]), bias1 = _mm256_set1_ps(bias[1]);
    const __m256 scale2 = _mm256_set1_ps(scale[2]), bias2 = _mm256_set1_ps(bias[2]);
    float *const plane0 = (float *)to;
    float *const plane1 = plane0 + plane;
    float *const plane2 = plane1 + plane;

    size_t i = 0;
    for (; i + 8 <= pixels; i += 8) {
        const __m128i low = _mm_loadu_si128((const __m128i *)(from + 3 * i));
        const __m128i high = _mm_loadu_si128((const __m128i *)(from + 3 * i + 8));
        const __m256i bytes = _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
        const __m256i values0 = _mm256_shuffle_epi8(bytes, pick0);
        const __m256i values1 = _mm256_shuffle_epi8(bytes, pick1);
        const __m256i values2 = _mm256_shuffle_epi8(bytes, pick2);
        _mm256_storeu_ps(plane0 + i, scaled(values0, scale0, bias0));
        _mm256_storeu_ps(plane1 + i, scaled(values1, scale1, bias1));
        _mm256_storeu_ps(plane2 + i, scaled(values2, scale2, bias2));
    }
    return i;
}
#endif

/* ----------------------------------------------------------------- planes3 */

static void planes3(const uint8_t *restrict from, float *restrict to, size_t plane, size_t pixels,
                    const float *scale, const float *bias) {
    stored_F32 *const plane0 = (stored_F32 *)to;
    stored_F32 *const plane1 = plane0 + plane;
    stored_F32 *const plane2 = plane1 + plane;
    const float scale0 = scale[0], scale1 = scale[1], scale2 = scale[2];
    const float bias0 = bias[0], bias1 = bias[1], bias2 = bias[2];
    size_t i = 0;
#ifdef __AVX2__
    i = planes3_vectors(from, plane0, plane, pixels, scale, bias);
#endif
    for (; i < pixels; i++) {
        plane0[i] = (float)from[3 * i] * scale0 + bias0;
        plane1[i] = (float)from[3 * i + 1] * scale1 + bias1;
        plane2[i] = (float)from[3 * i + 2] * scale2 + bias2;
    }
}

/* ------------------------------------------------------------------- table */

#define CONVERT_ENTRY(from, to) [BRIM_DTYPE_##from][BRIM_DTYPE_##to] = convert_##from##_##to,
#define AFFINE_ENTRY(from, to)  [BRIM_DTYPE_##from][BRIM_DTYPE_##to] = affine_##from##_##to,

const struct brim__kernels BRIM__KERNELS = {
    .name = BRIM__KERNELS_NAME,
    .convert = { FROM_ALL(REALS, CONVERT_ENTRY) },
    .affine = { FROM_ALL(FLOATS, AFFINE_ENTRY) },
    .planes3 = planes3,
};

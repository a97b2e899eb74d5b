/*
 * tensor_model.h: what conversions must give, written the slow and plain way.
 *
 * One element at a time, in doubles and wide integers, and sharing nothing with
 * the library but the dtypes' numbers: the tests compare the two. Floats are
 * narrowed by counting in units of the last place, not by shifting bits.
 */
#ifndef BRIM_TENSOR_MODEL_H
#define BRIM_TENSOR_MODEL_H

#include <brim.h>

#include <stdbool.h>
#include <string.h>

/* xorshift64*: the tests' own random numbers. */
static inline uint64_t model_random(uint64_t *state) {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 0x2545f4914f6cdd1dull;
}

static inline uint32_t model_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float model_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* What a small float of `digits` bits of significand, whose least subnormal is
 * `unit`, has for bits; `infinity` is the pattern of its infinity. Not NaN. */
static inline uint16_t model_narrow(float value, int digits, double unit, uint32_t infinity) {
    const uint32_t sign = model_bits(value) >> 31 << 15;
    const double magnitude = value < 0 ? -(double)value : (double)value;
    const double whole = (double)(1u << digits);
    uint32_t binade = 0;
    while (magnitude >= unit * whole && (binade << (digits - 1)) < infinity) {
        unit *= 2;
        binade++;
    }
    /* Adding and taking away 2^52 rounds to the nearest even integer. */
    volatile double rounded = magnitude / unit;
    if (rounded > 2 * whole) {
        return (uint16_t)(sign | infinity);
    }
    rounded = rounded + 0x1p52;
    rounded = rounded - 0x1p52;
    const uint32_t bits = (binade << (digits - 1)) + (uint32_t)rounded;
    return (uint16_t)(sign | (bits < infinity ? bits : infinity));
}

static inline uint16_t model_f16(float value) {
    if (value != value) {
        const uint32_t bits = model_bits(value);
        return (uint16_t)((bits >> 31 << 15) | 0x7e00 | ((bits & 0x7fffff) >> 13));
    }
    return model_narrow(value, 11, 0x1p-24, 0x7c00);
}

static inline uint16_t model_bf16(float value) {
    if (value != value) {
        return (uint16_t)(model_bits(value) >> 16 | 0x40);
    }
    return model_narrow(value, 8, 0x1p-133, 0x7f80);
}

static inline float model_from_f16(uint16_t half) {
    const int exponent = half >> 10 & 31;
    const int fraction = half & 1023;
    if (exponent == 31 && fraction != 0) {
        return model_float((uint32_t)(half >> 15) << 31 | 0x7fc00000 | (uint32_t)fraction << 13);
    }
    double value = exponent == 0 ? fraction : 1024 + fraction;
    value *= 0x1p-24;
    for (int i = 1; i < exponent; i++) {
        value *= 2;
    }
    if (exponent == 31) {
        value = (double)__builtin_inff();
    }
    return (float)(half & 0x8000 ? -value : value);
}

struct model_number {
    bool integral;
    __int128 integer;
    double real;
    float single; /* the value as float32, rounded once */
};

static inline struct model_number model_load(brim_dtype dtype, const uint8_t *at) {
    struct model_number number = { .integral = true };
#define MODEL_INTEGER(name, type)         \
    case BRIM_DTYPE_##name: {             \
        type value;                       \
        memcpy(&value, at, sizeof value); \
        number.integer = value;           \
        number.single = (float)value;     \
        number.real = (double)value;      \
        return number;                    \
    }
    switch (dtype) {
        MODEL_INTEGER(U8, uint8_t)
        MODEL_INTEGER(I8, int8_t)
        MODEL_INTEGER(U16, uint16_t)
        MODEL_INTEGER(I16, int16_t)
        MODEL_INTEGER(U32, uint32_t)
        MODEL_INTEGER(I32, int32_t)
        MODEL_INTEGER(U64, uint64_t)
        MODEL_INTEGER(I64, int64_t)
    case BRIM_DTYPE_BOOL:
        number.integer = *at != 0;
        number.single = *at != 0;
        number.real = *at != 0;
        return number;
    case BRIM_DTYPE_F64:
        number.integral = false;
        memcpy(&number.real, at, sizeof number.real);
        number.single = (float)number.real;
        return number;
    default:
        break;
    }
#undef MODEL_INTEGER
    number.integral = false;
    uint16_t half;
    memcpy(&half, at, sizeof half);
    if (dtype == BRIM_DTYPE_F32) {
        memcpy(&number.single, at, sizeof number.single);
    } else {
        number.single =
            dtype == BRIM_DTYPE_F16 ? model_from_f16(half) : model_float((uint32_t)half << 16);
    }
    number.real = (double)number.single;
    return number;
}

static inline void model_store(struct model_number number, brim_dtype dtype, uint8_t *at) {
#define MODEL_INTEGER(name, type, least, most)   \
    case BRIM_DTYPE_##name: {                    \
        type value = (type)number.integer;       \
        if (!number.integral) {                  \
            const double real = number.real;     \
            value = 0;                           \
            if (real <= (double)(least)) {       \
                value = (least);                 \
            } else if (real >= (double)(most)) { \
                value = (most);                  \
            } else if (real == real) {           \
                value = (type)real;              \
            }                                    \
        }                                        \
        memcpy(at, &value, sizeof value);        \
        return;                                  \
    }
    uint16_t half;
    switch (dtype) {
        MODEL_INTEGER(U8, uint8_t, 0, UINT8_MAX)
        MODEL_INTEGER(I8, int8_t, INT8_MIN, INT8_MAX)
        MODEL_INTEGER(U16, uint16_t, 0, UINT16_MAX)
        MODEL_INTEGER(I16, int16_t, INT16_MIN, INT16_MAX)
        MODEL_INTEGER(U32, uint32_t, 0, UINT32_MAX)
        MODEL_INTEGER(I32, int32_t, INT32_MIN, INT32_MAX)
        MODEL_INTEGER(U64, uint64_t, 0, UINT64_MAX)
        MODEL_INTEGER(I64, int64_t, INT64_MIN, INT64_MAX)
    case BRIM_DTYPE_BOOL:
        *at = number.integral ? number.integer != 0 : number.real != 0;
        return;
    case BRIM_DTYPE_F32:
        memcpy(at, &number.single, sizeof number.single);
        return;
    case BRIM_DTYPE_F64:
        memcpy(at, &number.real, sizeof number.real);
        return;
    default:
        half = dtype == BRIM_DTYPE_F16 ? model_f16(number.single) : model_bf16(number.single);
        memcpy(at, &half, sizeof half);
    }
#undef MODEL_INTEGER
}

/* One element, with scale and bias unless scale is NULL. */
static inline void model_convert(brim_dtype from, brim_dtype to, const uint8_t *source,
                                 uint8_t *destination, const float *scale, const float *bias) {
    if (from == to && scale == NULL) {
        memcpy(destination, source, brim_dtype_bytes(from));
        return;
    }
    struct model_number number = model_load(from, source);
    if (scale != NULL) {
        volatile float product = number.single * *scale; /* volatile: never fused */
        const float sum = product + *bias;
        number.integral = false;
        number.single = sum == sum ? sum : model_float(0x7fc00000);
        number.real = (double)number.single;
    }
    model_store(number, to, destination);
}

#endif

/*
 * half.h: float16 and bfloat16 as bit patterns, for loops that vectorise.
 *
 * The functions use only integer arithmetic and selections. So the compiler can vectorise loops
 * over them, and the results depend neither on the CPU nor on its rounding mode. "bits" are those
 * of the float32 of the same value.
 *
 *     float16   s eeeee mmmmmmmmmm            bias 15
 *     bfloat16  s eeeeeeee mmmmmmm            bias 127, the upper half of float32
 *     float32   s eeeeeeee mmmmmmm mmmm...    bias 127
 *
 * NaNs keep their sign and the payload that fits, and become quiet. NaNs from bfloat16 keep their
 * bits.
 */
#ifndef BRIM_HALF_H
#define BRIM_HALF_H

#include "base/base.h"

static inline uint32_t brim__float_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float brim__bits_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t brim__f16_widen(uint16_t half) {
    const uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    const uint32_t rest = half & 0x7fff;
    const uint32_t normal = (rest << 13) + (112u << 23);
    /* A subnormal is a small integer times 2^-24. Making that integer a float
     * is exact and finds its leading bit; the rest is arithmetic on the
     * exponent. */
    const uint32_t subnormal = brim__float_bits((float)(int32_t)rest) - (24u << 23);
    /* Masks instead of branches, because a compiler does not vectorise a branch if it would then
     * have to convert values that are not used. */
    const uint32_t zero = 0u - (rest == 0);
    const uint32_t small = 0u - (rest < 0x0400);
    const uint32_t special = 0u - (rest >= 0x7c00);
    const uint32_t nan = 0u - (rest > 0x7c00);
    const uint32_t finite = (subnormal & small & ~zero) | (normal & ~small);
    /* Exponent 31 becomes 255: the amount that was added for the bias is added again. */
    return sign | ((finite + ((112u << 23) & special)) | ((1u << 22) & nan));
}

static inline uint16_t brim__f16_narrow(uint32_t bits) {
    const uint32_t sign = (bits >> 16) & 0x8000;
    const uint32_t rest = bits & 0x7fffffff;
    /* Adding just under a half of the last place kept, and one more if that
     * place is odd, rounds to nearest even; a carry into the exponent is right,
     * up to infinity. */
    const uint32_t normal = (rest - (112u << 23) + 0xfff + ((rest >> 13) & 1)) >> 13;
    /* Below 2^-14 the unit is 2^-24 for every exponent: a shift of 14 at exponent 112, and one more
     * for each exponent below. From 25 on everything is rounded away. The lower bound only keeps
     * unused lanes defined. */
    const int32_t wanted = 126 - (int32_t)(rest >> 23);
    const int32_t above = wanted < 14 ? 14 : wanted;
    const uint32_t shift = (uint32_t)(above > 25 ? 25 : above);
    const uint32_t integer = (rest & 0x7fffff) | 0x800000;
    const uint32_t below_half = (1u << (shift - 1)) - 1;
    const uint32_t subnormal = (integer + below_half + ((integer >> shift) & 1)) >> shift;
    const uint32_t special = rest > 0x7f800000 ? 0x7e00 | ((rest >> 13) & 0x3ff) : 0x7c00;
    const uint32_t finite = rest < 0x38800000 ? subnormal : normal;
    return (uint16_t)(sign | (rest >= 0x47800000 ? special : finite));
}

static inline uint32_t brim__bf16_widen(uint16_t half) {
    return (uint32_t)half << 16;
}

static inline uint16_t brim__bf16_narrow(uint32_t bits) {
    const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    /* Rounding could turn a NaN into infinity, and so could cutting its payload. */
    const uint32_t nan = (bits >> 16) | 0x40;
    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? nan : rounded);
}

#endif

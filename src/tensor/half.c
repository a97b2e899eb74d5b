/*
 * half.c: float16 and bfloat16, one value at a time. The arithmetic is in
 * half.h, which the kernels share, so that there is one definition of it.
 */
#include "tensor/half.h"
#include "tensor/tensor.h"

float brim__f16_to_f32(uint16_t bits) {
    return brim__bits_float(brim__f16_widen(bits));
}
uint16_t brim__f32_to_f16(float value) {
    return brim__f16_narrow(brim__float_bits(value));
}
float brim__bf16_to_f32(uint16_t bits) {
    return brim__bits_float(brim__bf16_widen(bits));
}
uint16_t brim__f32_to_bf16(float value) {
    return brim__bf16_narrow(brim__float_bits(value));
}

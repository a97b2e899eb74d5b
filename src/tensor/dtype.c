/*
 * dtype.c: names, sizes and properties of the element types.
 *
 * One table, made from BRIM_DTYPES, describes the values of a dtype: the bits of magnitude of an
 * integer, the bits of significand and exponent of a float. Everything else is computed from it.
 */
#include "tensor/tensor.h"

#include <stdio.h>

enum kind { UNKNOWN, BOOLEAN, INTEGER, FLOAT, COMPLEX };

struct properties {
    enum kind kind;
    bool negative;  /* has negative values */
    uint8_t digits; /* bits of magnitude, or of the significand with the hidden one */
    uint8_t exponent_bits;
};

static const struct properties properties[16] = {
    [BRIM_DTYPE_BOOL] = { BOOLEAN, false, 1, 0 },  [BRIM_DTYPE_U8] = { INTEGER, false, 8, 0 },
    [BRIM_DTYPE_I8] = { INTEGER, true, 7, 0 },     [BRIM_DTYPE_U16] = { INTEGER, false, 16, 0 },
    [BRIM_DTYPE_I16] = { INTEGER, true, 15, 0 },   [BRIM_DTYPE_U32] = { INTEGER, false, 32, 0 },
    [BRIM_DTYPE_I32] = { INTEGER, true, 31, 0 },   [BRIM_DTYPE_U64] = { INTEGER, false, 64, 0 },
    [BRIM_DTYPE_I64] = { INTEGER, true, 63, 0 },   [BRIM_DTYPE_F16] = { FLOAT, true, 11, 5 },
    [BRIM_DTYPE_BF16] = { FLOAT, true, 8, 8 },     [BRIM_DTYPE_F32] = { FLOAT, true, 24, 8 },
    [BRIM_DTYPE_F64] = { FLOAT, true, 53, 11 },    [BRIM_DTYPE_C64] = { COMPLEX, true, 24, 8 },
    [BRIM_DTYPE_C128] = { COMPLEX, true, 53, 11 },
};

/* Full names first and in the order of the enum: messages list them. */
static const struct {
    const char *name;
    brim_dtype dtype;
} names[] = {
#define X(name, text, number, bytes) { #text, BRIM_DTYPE_##name },
    BRIM_DTYPES(X)
#undef X
        { "u8", BRIM_DTYPE_U8 },
    { "i8", BRIM_DTYPE_I8 },
    { "u16", BRIM_DTYPE_U16 },
    { "i16", BRIM_DTYPE_I16 },
    { "u32", BRIM_DTYPE_U32 },
    { "i32", BRIM_DTYPE_I32 },
    { "u64", BRIM_DTYPE_U64 },
    { "i64", BRIM_DTYPE_I64 },
    { "f16", BRIM_DTYPE_F16 },
    { "bf16", BRIM_DTYPE_BF16 },
    { "f32", BRIM_DTYPE_F32 },
    { "f64", BRIM_DTYPE_F64 },
    { "c64", BRIM_DTYPE_C64 },
    { "c128", BRIM_DTYPE_C128 },
    { "half", BRIM_DTYPE_F16 },
    { "float", BRIM_DTYPE_F32 },
    { "double", BRIM_DTYPE_F64 },
};

const char *brim_dtype_name(brim_dtype dtype) {
    switch (dtype) {
#define X(name, text, number, bytes) \
    case BRIM_DTYPE_##name:          \
        return #text;
        BRIM_DTYPES(X)
#undef X
    }
    return "unknown";
}

size_t brim_dtype_bytes(brim_dtype dtype) {
    switch (dtype) {
#define X(name, text, number, bytes) \
    case BRIM_DTYPE_##name:          \
        return bytes;
        BRIM_DTYPES(X)
#undef X
    }
    return 0;
}

brim_status brim__dtype_parse(const char *name, brim_dtype *dtype) {
    const char *words[BRIM__COUNT(names)];
    for (size_t i = 0; i < BRIM__COUNT(names); i++) {
        if (strcmp(names[i].name, name) == 0) {
            *dtype = names[i].dtype;
            return BRIM_OK;
        }
        words[i] = names[i].name;
    }

    char list[256];
    size_t length = 0;
    const char *nearest = brim_nearest(name, words, BRIM__COUNT(words));
    if (nearest != NULL) {
        length = (size_t)snprintf(list, sizeof list, "%s", nearest);
    }
    for (size_t i = 0; i < BRIM__COUNT(names) && length < sizeof list; i++) {
        if (nearest == NULL || strcmp(names[i].name, nearest) != 0) {
            length += (size_t)snprintf(list + length, sizeof list - length, "%s%s",
                                       length == 0 ? "" : ", ", names[i].name);
        }
    }
    return brim__fail(BRIM_STATUS_INVALID, "no dtype is called \"%.40s\"; use one of %s", name,
                      list);
}

static const struct properties *of(brim_dtype dtype) {
    const size_t number = (size_t)dtype;
    return &properties[number < BRIM__COUNT(properties) ? number : 0];
}

bool brim__dtype_is_float(brim_dtype dtype) {
    return of(dtype)->kind == FLOAT;
}
bool brim__dtype_is_integer(brim_dtype dtype) {
    return of(dtype)->kind == INTEGER;
}
bool brim__dtype_is_complex(brim_dtype dtype) {
    return of(dtype)->kind == COMPLEX;
}

bool brim__dtype_holds(brim_dtype to, brim_dtype from) {
    const struct properties *const t = of(to);
    const struct properties *const f = of(from);
    /* A kind can hold the kinds before it. An integer of n bits fits a significand of n bits, and
     * so does its least value, a power of two. Every float type here with enough digits also has
     * enough range. */
    return f->kind != UNKNOWN && t->kind >= f->kind && t->digits >= f->digits &&
           t->exponent_bits >= f->exponent_bits && (t->negative || !f->negative);
}

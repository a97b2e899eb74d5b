/*
 * tensor.h: the layout of elements in memory, and the one pass that converts them.
 *
 * A view describes where the elements of one sample's field are in a record, with any strides
 * (Fortran order, transposed, reversed). A conversion writes the elements of a view to a contiguous
 * row-major destination. Byte swap, change of dtype, scale and bias per channel and any permutation
 * of dimensions are done in one pass. Stages (cast, normalize, layout, reshape) edit a conversion
 * until a stage needs its result, so that a row is written once.
 *
 * Rules of conversion: integer to integer wraps (as numpy's astype); float to integer truncates
 * toward zero and saturates, NaN gives 0; to bool: non-zero; float to a narrower float rounds to
 * nearest even; float16 and bfloat16 go through float32 (integers first become float32, rounded to
 * nearest even). With scale and bias: the value is converted to float32, then value * scale[c] +
 * bias[c] in float32 (two roundings, no fused operation), then converted to the destination; a NaN
 * becomes the one quiet NaN 0x7fc00000, because CPUs differ in the NaNs that they make. Converting
 * a dtype to itself copies bits. A bool is any byte; one that is not zero converts as 1. Complex
 * elements are only copied.
 */
#ifndef BRIM_TENSOR_H
#define BRIM_TENSOR_H

#include "base/base.h"
#include "base/cpu.h"

struct brim__shape {
    uint32_t rank;
    uint64_t dim[BRIM_MAX_RANK];
};

struct brim__view {
    brim_dtype dtype;
    bool swapped; /* the other byte order */
    struct brim__shape shape;
    int64_t stride[BRIM_MAX_RANK]; /* bytes */
    uint64_t offset;               /* of element 0 in the record */
};

/* "float32", "f32", "u8", "half", ... */
brim_status brim__dtype_parse(const char *name, brim_dtype *dtype);
bool brim__dtype_is_float(brim_dtype dtype);
bool brim__dtype_is_integer(brim_dtype dtype); /* bool is not */
bool brim__dtype_is_complex(brim_dtype dtype);
/* Whether every value of `from` exists in `to`, so that converting to it and back loses nothing. */
bool brim__dtype_holds(brim_dtype to, brim_dtype from);

/* Product of the dimensions (1 for rank 0), times `unit`; true if it overflows. */
bool brim__shape_bytes_overflow(const struct brim__shape *shape, uint64_t unit, uint64_t *bytes);
bool brim__shape_equal(const struct brim__shape *a, const struct brim__shape *b);
/* "3x32x32", "scalar". Returns text. */
#define BRIM__SHAPE_TEXT 176
const char *brim__shape_text(const struct brim__shape *shape, char text[BRIM__SHAPE_TEXT]);
void brim__view_row_major(struct brim__view *view); /* strides from dtype and shape */
bool brim__view_is_row_major(const struct brim__view *view);

/* ------------------------------------------------------------- conversion */

struct brim__conversion;
struct brim__kernels;
typedef void brim__conversion_run(const struct brim__conversion *conversion, const uint8_t *source,
                                  uint8_t *destination);

struct brim__conversion {
    struct brim__view from; /* dimensions in the destination's order */
    brim_dtype to;
    const float *scale, *bias; /* `channels` each, finite, or both NULL; not owned */
    uint32_t channels;         /* 1: one scale and bias for all elements, whatever the axis */
    uint32_t channel_axis;     /* in from.shape */
    /* set by brim__conversion_prepare */
    brim__conversion_run *run;
    uint64_t elements;
    uint64_t bytes;         /* of the destination */
    struct brim__view walk; /* `from` with dimensions merged that lie together */
    uint64_t channel_run;   /* elements of the destination before the channel changes */
    const struct brim__kernels *kernels;
};

/* A conversion that copies the view as it is. */
void brim__conversion_init(struct brim__conversion *conversion, const struct brim__view *view);
/* Whether the conversion only copies contiguous bytes. */
bool brim__conversion_is_copy(const struct brim__conversion *conversion);
/* Chooses kernels for the CPU. Needs no memory. */
brim_status brim__conversion_prepare(struct brim__conversion *conversion);
/* source: the record; the view's offset is added here. destination: at any alignment, never
 * overlapping the source. */
static inline void brim__convert(const struct brim__conversion *conversion, const uint8_t *source,
                                 uint8_t *destination) {
    conversion->run(conversion, source + conversion->from.offset, destination);
}

/* ------------------------------------------------------------------ kernels */

/* `count` contiguous elements. Sources and destinations may be unaligned. */
typedef void brim__kernel_convert(const void *from, void *to, size_t count);
/* The same with one scale and bias. */
typedef void brim__kernel_affine(const void *from, void *to, size_t count, float scale, float bias);
/* Converts interleaved pixels of 3 channels (uint8) to 3 planes (float32) that begin `plane`
 * elements apart, with a scale and bias for each channel. */
typedef void brim__kernel_planes3(const uint8_t *from, float *to, size_t plane, size_t pixels,
                                  const float *scale, const float *bias);

struct brim__kernels {
    const char *name;                      /* "scalar", "avx2" */
    brim__kernel_convert *convert[16][16]; /* [from][to], NULL where none */
    brim__kernel_affine *affine[16][16];   /* to float types only */
    brim__kernel_planes3 *planes3;
};
extern const struct brim__kernels brim__kernels_scalar, brim__kernels_avx2;

/* Variant 0 is the scalar one; NULL for one that does not exist or that this CPU does not run. All
 * give the same bits. */
static inline const struct brim__kernels *brim__kernels_variant(size_t index) {
    static const struct brim__kernels *const variants[] = BRIM__CPU_VARIANTS(brim__kernels);
    return index < brim__cpu_variants() ? variants[index] : NULL;
}
/* The fastest that this CPU runs. */
static inline const struct brim__kernels *brim__kernels(void) {
    return brim__kernels_variant(brim__cpu_variants() - 1);
}

/* float16 and bfloat16, exact in both directions (round to nearest even). */
float brim__f16_to_f32(uint16_t bits);
uint16_t brim__f32_to_f16(float value);
float brim__bf16_to_f32(uint16_t bits);
uint16_t brim__f32_to_bf16(float value);

#endif

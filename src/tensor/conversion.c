/*
 * conversion.c: from any view to contiguous elements, in one pass.
 *
 * Preparing separates the two sides of a conversion. The source side is the walk: the view's
 * dimensions in the destination's order, without those of 1, and merged if they are contiguous. A
 * whole image is often a single run. The destination side is a count: it is written from front to
 * back, so an element's channel follows from its number,
 *
 *     channel = number / channel_run % channels
 *
 * and merging can ignore the channels. The ways to run, from the simplest to the most general:
 *
 *     run_copy        memcpy
 *     run_contiguous  one call of a kernel
 *     run_planes3     interleaved uint8 pixels to float32 planes
 *     run_moves       same dtype from any view, or with bytes swapped
 *     run_pieces      pieces of one channel through a kernel
 *     run_pattern     channels that change from element to element (innermost)
 *
 * A piece is read in place if it is contiguous and in this machine's byte order; else it is
 * collected in a buffer on the stack and swapped there. Offsets are computed only for elements that
 * exist, so strides that the source has checked never lead outside the record.
 */
#include "tensor/tensor.h"

#define PIECE       512 /* elements collected at a time: in cache, and worth a kernel's call */
#define DIRECT      64  /* a run shorter than this is collected together with the next ones */
#define PATTERN     64  /* least length of a repeated pattern: some vectors */
#define QUICK       16  /* channel runs shorter than this are done by pattern */
#define KERNEL_SIZE 8   /* bytes of the largest element that kernels convert */

typedef float loose_float __attribute__((aligned(1), may_alias));

/* ------------------------------------------------------------ source side */

struct cursor {
    const struct brim__view *walk;
    const uint8_t *base;
    int64_t offset; /* of the next element */
    uint64_t index[BRIM_MAX_RANK];
};

static void cursor_init(struct cursor *cursor, const struct brim__view *walk, const uint8_t *base) {
    *cursor = (struct cursor){ .walk = walk, .base = base };
}

static uint64_t cursor_run(const struct cursor *cursor) {
    const uint32_t last = cursor->walk->shape.rank - 1;
    return cursor->walk->shape.dim[last] - cursor->index[last];
}

/* Advances by `count` elements, at most the rest of the run. */
static void cursor_advance(struct cursor *cursor, uint64_t count) {
    const struct brim__view *const walk = cursor->walk;
    uint32_t axis = walk->shape.rank - 1;
    if (count < walk->shape.dim[axis] - cursor->index[axis]) {
        cursor->offset += (int64_t)count * walk->stride[axis];
        cursor->index[axis] += count;
        return;
    }
    cursor->offset -= (int64_t)cursor->index[axis] * walk->stride[axis];
    cursor->index[axis] = 0;
    while (axis-- > 0) {
        if (cursor->index[axis] + 1 < walk->shape.dim[axis]) {
            cursor->offset += walk->stride[axis];
            cursor->index[axis]++;
            return;
        }
        cursor->offset -= (int64_t)cursor->index[axis] * walk->stride[axis];
        cursor->index[axis] = 0;
    }
}

#define DEFINE_COLLECT(bytes)                                                         \
    static void collect_##bytes(struct cursor *cursor, uint8_t *to, uint64_t count) { \
        const int64_t stride = cursor->walk->stride[cursor->walk->shape.rank - 1];    \
        while (count > 0) {                                                           \
            const uint64_t run = brim__min(count, cursor_run(cursor));                \
            const uint8_t *const from = cursor->base + cursor->offset;                \
            if (stride == bytes) {                                                    \
                memcpy(to, from, run *bytes);                                         \
            } else {                                                                  \
                for (uint64_t i = 0; i < run; i++) {                                  \
                    memcpy(to + i * bytes, from + (int64_t)i * stride, bytes);        \
                }                                                                     \
            }                                                                         \
            to += run * bytes;                                                        \
            count -= run;                                                             \
            cursor_advance(cursor, run);                                              \
        }                                                                             \
    }
DEFINE_COLLECT(1)
DEFINE_COLLECT(2)
DEFINE_COLLECT(3)
DEFINE_COLLECT(4)
DEFINE_COLLECT(8)
DEFINE_COLLECT(16)

static void collect(struct cursor *cursor, size_t element_bytes, uint8_t *to, uint64_t count) {
    switch (element_bytes) {
    case 1:
        collect_1(cursor, to, count);
        return;
    case 2:
        collect_2(cursor, to, count);
        return;
    case 3:
        collect_3(cursor, to, count);
        return;
    case 4:
        collect_4(cursor, to, count);
        return;
    case 8:
        collect_8(cursor, to, count);
        return;
    default:
        assert(element_bytes == 16);
        collect_16(cursor, to, count);
    }
}

#define DEFINE_SWAP(bits)                                       \
    static void swap_##bits(uint8_t *data, uint64_t count) {    \
        for (uint64_t i = 0; i < count; i++) {                  \
            uint##bits##_t word;                                \
            memcpy(&word, data + i * sizeof word, sizeof word); \
            word = __builtin_bswap##bits(word);                 \
            memcpy(data + i * sizeof word, &word, sizeof word); \
        }                                                       \
    }
DEFINE_SWAP(16)
DEFINE_SWAP(32)
DEFINE_SWAP(64)

static void swap(brim_dtype dtype, uint8_t *data, uint64_t count) {
    /* A complex number is two numbers, each swapped in its place. */
    const bool complex = brim__dtype_is_complex(dtype);
    const size_t bytes = brim_dtype_bytes(dtype) / (complex ? 2 : 1);
    const uint64_t words = complex ? 2 * count : count;
    if (bytes == 2) {
        swap_16(data, words);
    } else if (bytes == 4) {
        swap_32(data, words);
    } else if (bytes == 8) {
        swap_64(data, words);
    }
}

/* Returns up to *count elements of `bytes`, contiguous and in native byte order, either in the
 * source itself or in the buffer, which has room for PIECE. Sets *count. */
static const uint8_t *fetch(struct cursor *cursor, size_t bytes, uint8_t *buffer, uint64_t *count) {
    const struct brim__view *const walk = cursor->walk;
    if (!walk->swapped && walk->stride[walk->shape.rank - 1] == (int64_t)bytes) {
        const uint64_t run = cursor_run(cursor);
        if (run >= brim__min(*count, DIRECT)) {
            const uint8_t *const from = cursor->base + cursor->offset;
            *count = brim__min(*count, run);
            cursor_advance(cursor, *count);
            return from;
        }
    }
    *count = brim__min(*count, PIECE);
    collect(cursor, bytes, buffer, *count);
    if (walk->swapped) {
        swap(walk->dtype, buffer, *count);
    }
    return buffer;
}

/* ---------------------------------------------------------------- running */

static void run_nothing(const struct brim__conversion *conversion, const uint8_t *source,
                        uint8_t *destination) {
    (void)conversion;
    (void)source;
    (void)destination;
}

static void run_copy(const struct brim__conversion *conversion, const uint8_t *source,
                     uint8_t *destination) {
    memcpy(destination, source, conversion->bytes);
}

static void run_contiguous(const struct brim__conversion *conversion, const uint8_t *source,
                           uint8_t *destination) {
    conversion->kernels->convert[conversion->from.dtype][conversion->to](source, destination,
                                                                         conversion->elements);
}

/* The first dimension of the walk is the channels. The others go over whole pixels, elements of
 * three bytes, at any strides that crops and flips have made. */
static void run_planes3(const struct brim__conversion *conversion, const uint8_t *source,
                        uint8_t *destination) {
    /* Without scale and bias: x * 1 + 0 is exact, so only the layout changes. */
    static const float one[3] = { 1, 1, 1 };
    static const float zero[3] = { 0, 0, 0 };
    const bool plain = conversion->scale == NULL;
    const float *const scale = plain ? one : conversion->scale;
    const float *const bias = plain ? zero : conversion->bias;
    const struct brim__view *const walk = &conversion->walk;
    const uint64_t pixels = conversion->elements / 3;
    if (walk->shape.rank == 2 && walk->stride[1] == 3) {
        conversion->kernels->planes3(source, (float *)(void *)destination, pixels, pixels, scale,
                                     bias);
        return;
    }

    struct brim__view grid = { .dtype = walk->dtype, .shape.rank = walk->shape.rank - 1 };
    for (uint32_t i = 0; i < grid.shape.rank; i++) {
        grid.shape.dim[i] = walk->shape.dim[i + 1];
        grid.stride[i] = walk->stride[i + 1];
    }
    uint8_t buffer[PIECE * 3] __attribute__((aligned(64)));
    struct cursor cursor;
    cursor_init(&cursor, &grid, source);
    for (uint64_t done = 0; done < pixels;) {
        uint64_t count = pixels - done;
        const uint8_t *const piece = fetch(&cursor, 3, buffer, &count);
        conversion->kernels->planes3(piece, (float *)(void *)destination, pixels, count, scale,
                                     bias);
        destination += count * sizeof(float);
        done += count;
    }
}

static void run_moves(const struct brim__conversion *conversion, const uint8_t *source,
                      uint8_t *destination) {
    const struct brim__view *const walk = &conversion->walk;
    const size_t bytes = brim_dtype_bytes(walk->dtype);
    struct cursor cursor;
    cursor_init(&cursor, walk, source);
    for (uint64_t done = 0; done < conversion->elements;) {
        const uint64_t count = brim__min(PIECE, conversion->elements - done);
        collect(&cursor, bytes, destination, count);
        if (walk->swapped) {
            swap(walk->dtype, destination, count);
        }
        destination += count * bytes;
        done += count;
    }
}

static void run_pieces(const struct brim__conversion *conversion, const uint8_t *source,
                       uint8_t *destination) {
    const brim_dtype from = conversion->from.dtype, to = conversion->to;
    const size_t bytes = brim_dtype_bytes(to);
    const bool plain = conversion->scale == NULL;
    uint8_t buffer[PIECE * KERNEL_SIZE] __attribute__((aligned(64)));
    struct cursor cursor;
    cursor_init(&cursor, &conversion->walk, source);
    uint64_t left = conversion->channel_run;
    uint32_t channel = 0;
    for (uint64_t done = 0; done < conversion->elements;) {
        uint64_t count = left;
        const uint8_t *const piece = fetch(&cursor, brim_dtype_bytes(from), buffer, &count);
        if (plain) {
            conversion->kernels->convert[from][to](piece, destination, count);
        } else {
            conversion->kernels->affine[from][to](
                piece, destination, count, conversion->scale[channel], conversion->bias[channel]);
        }
        destination += count * bytes;
        done += count;
        left -= count;
        if (left == 0) {
            left = conversion->channel_run;
            channel = channel + 1 == conversion->channels ? 0 : channel + 1;
        }
    }
}

/* scale and bias repeat every `period` elements; *phase is the place in the period. Each element is
 * computed as in the affine kernels. */
static void apply_pattern(uint8_t *data, uint64_t count, const float *scale, const float *bias,
                          uint64_t period, uint64_t *phase) {
    while (count > 0) {
        const uint64_t run = brim__min(count, period - *phase);
        loose_float *restrict const value = (loose_float *)data;
        const float *restrict const by = scale + *phase;
        const float *restrict const plus = bias + *phase;
        for (uint64_t i = 0; i < run; i++) {
            const float scaled = value[i] * by[i];
            const float result = scaled + plus[i];
            value[i] = result == result ? result : __builtin_nanf("");
        }
        data += run * sizeof(float);
        count -= run;
        *phase = *phase + run == period ? 0 : *phase + run;
    }
}

static void run_pattern(const struct brim__conversion *conversion, const uint8_t *source,
                        uint8_t *destination) {
    const struct brim__kernels *const kernels = conversion->kernels;
    const brim_dtype from = conversion->from.dtype, to = conversion->to;
    const size_t bytes = brim_dtype_bytes(to);
    uint8_t buffer[PIECE * KERNEL_SIZE] __attribute__((aligned(64)));
    float values[PIECE] __attribute__((aligned(64)));
    float scales[PIECE], biases[PIECE];

    /* A long pattern can be the caller's arrays, without a copy. A short one is repeated, so that
     * the loop over it is long enough for vectors. */
    const float *scale = conversion->scale;
    const float *bias = conversion->bias;
    uint64_t period = conversion->channels * conversion->channel_run;
    if (conversion->channel_run > 1 || period < PATTERN) {
        const uint64_t times = brim__divide_up(PATTERN, period);
        uint64_t at = 0;
        for (uint64_t i = 0; i < times; i++) {
            for (uint32_t channel = 0; channel < conversion->channels; channel++) {
                for (uint64_t j = 0; j < conversion->channel_run; j++, at++) {
                    scales[at] = conversion->scale[channel];
                    biases[at] = conversion->bias[channel];
                }
            }
        }
        scale = scales;
        bias = biases;
        period = at;
    }

    struct cursor cursor;
    cursor_init(&cursor, &conversion->walk, source);
    uint64_t phase = 0;
    for (uint64_t done = 0; done < conversion->elements;) {
        uint64_t count = brim__min(PIECE, conversion->elements - done);
        const uint8_t *const piece = fetch(&cursor, brim_dtype_bytes(from), buffer, &count);
        uint8_t *const floats = to == BRIM_DTYPE_F32 ? destination : (uint8_t *)values;
        kernels->convert[from][BRIM_DTYPE_F32](piece, floats, count);
        apply_pattern(floats, count, scale, bias, period, &phase);
        if (to != BRIM_DTYPE_F32) {
            kernels->convert[BRIM_DTYPE_F32][to](floats, destination, count);
        }
        destination += count * bytes;
        done += count;
    }
}

/* -------------------------------------------------------------- preparing */

void brim__conversion_init(struct brim__conversion *conversion, const struct brim__view *view) {
    *conversion = (struct brim__conversion){ .from = *view, .to = view->dtype };
}

/* Elements of one byte have no byte order. */
static bool is_swapped(const struct brim__view *view) {
    return view->swapped && brim_dtype_bytes(view->dtype) > 1;
}

bool brim__conversion_is_copy(const struct brim__conversion *conversion) {
    return conversion->scale == NULL && conversion->from.dtype == conversion->to &&
           !is_swapped(&conversion->from) && brim__view_is_row_major(&conversion->from);
}

static brim_status check(const struct brim__conversion *conversion) {
    const struct brim__view *const from = &conversion->from;
    const struct brim__shape *const shape = &from->shape;
    const size_t from_bytes = brim_dtype_bytes(from->dtype);
    const size_t to_bytes = brim_dtype_bytes(conversion->to);
    if (from_bytes == 0 || to_bytes == 0) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "cannot convert dtype number %d to %d: unknown dtype", (int)from->dtype,
                          (int)conversion->to);
    }
    if (shape->rank > BRIM_MAX_RANK) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "cannot convert %u dimensions: at most %d are supported",
                          (unsigned)shape->rank, BRIM_MAX_RANK);
    }
    uint64_t bytes;
    if (brim__shape_bytes_overflow(shape, from_bytes > to_bytes ? from_bytes : to_bytes, &bytes) ||
        bytes > INT64_MAX) {
        char text[BRIM__SHAPE_TEXT];
        return brim__fail(BRIM_STATUS_INVALID,
                          "cannot convert %s elements of %s to %s: too many bytes",
                          brim__shape_text(shape, text), brim_dtype_name(from->dtype),
                          brim_dtype_name(conversion->to));
    }
    if ((conversion->scale == NULL) != (conversion->bias == NULL)) {
        return brim__fail(BRIM_STATUS_INVALID, "scale and bias must be given together");
    }
    if ((brim__dtype_is_complex(from->dtype) || brim__dtype_is_complex(conversion->to)) &&
        (from->dtype != conversion->to || conversion->scale != NULL)) {
        return brim__fail(BRIM_STATUS_UNSUPPORTED,
                          "cannot convert %s to %s%s: complex elements are only copied",
                          brim_dtype_name(from->dtype), brim_dtype_name(conversion->to),
                          conversion->scale != NULL ? " with scale and bias" : "");
    }
    return BRIM_OK;
}

static brim_status check_affine(const struct brim__conversion *conversion) {
    const struct brim__shape *const shape = &conversion->from.shape;
    if (!brim__dtype_is_float(conversion->to)) {
        return brim__fail(
            BRIM_STATUS_INVALID,
            "scale and bias cannot give %s: choose float16, bfloat16, float32 or float64",
            brim_dtype_name(conversion->to));
    }
    if (conversion->channels != 1) {
        char text[BRIM__SHAPE_TEXT];
        const uint32_t axis = conversion->channel_axis;
        if (axis >= shape->rank) {
            return brim__fail(BRIM_STATUS_INVALID,
                              "no dimension %u for %u channels in the shape %s", (unsigned)axis,
                              (unsigned)conversion->channels, brim__shape_text(shape, text));
        }
        if (shape->dim[axis] != conversion->channels) {
            return brim__fail(BRIM_STATUS_INVALID,
                              "%u channels of scale and bias do not match dimension %u of %s, "
                              "which has %llu",
                              (unsigned)conversion->channels, (unsigned)axis,
                              brim__shape_text(shape, text), (unsigned long long)shape->dim[axis]);
        }
    }
    for (uint32_t i = 0; i < conversion->channels; i++) {
        /* Subtracting a number from itself gives 0 unless it is infinite or NaN. */
        const float scale = conversion->scale[i], bias = conversion->bias[i];
        if (scale - scale != 0 || bias - bias != 0) {
            return brim__fail(BRIM_STATUS_INVALID,
                              "scale %g and bias %g of channel %u must be finite numbers",
                              (double)scale, (double)bias, (unsigned)i);
        }
    }
    return BRIM_OK;
}

/* Merges contiguous dimensions; at least one is left. */
static void merge(const struct brim__view *from, struct brim__view *walk) {
    uint32_t rank = 0;
    *walk = *from;
    walk->swapped = is_swapped(from);
    for (uint32_t i = 0; i < from->shape.rank; i++) {
        const uint64_t dim = from->shape.dim[i];
        const int64_t stride = from->stride[i];
        int64_t together;
        if (dim == 1) {
            continue;
        }
        if (rank > 0 && !__builtin_mul_overflow(stride, (int64_t)dim, &together) &&
            walk->stride[rank - 1] == together) {
            walk->shape.dim[rank - 1] *= dim;
            walk->stride[rank - 1] = stride;
        } else {
            walk->shape.dim[rank] = dim;
            walk->stride[rank] = stride;
            rank++;
        }
    }
    if (rank == 0) {
        walk->shape.dim[0] = 1;
        walk->stride[0] = (int64_t)brim_dtype_bytes(from->dtype);
        rank = 1;
    }
    walk->shape.rank = rank;
}

static bool is_planes3(const struct brim__conversion *conversion) {
    const struct brim__view *const walk = &conversion->walk;
    return conversion->from.dtype == BRIM_DTYPE_U8 && conversion->to == BRIM_DTYPE_F32 &&
           walk->shape.rank >= 2 && walk->shape.dim[0] == 3 && walk->stride[0] == 1 &&
           (conversion->scale == NULL ||
            (conversion->channels == 3 && conversion->channel_run == conversion->elements / 3));
}

static brim__conversion_run *choose(const struct brim__conversion *conversion) {
    const struct brim__view *const walk = &conversion->walk;
    const bool plain = conversion->scale == NULL;
    const bool same = conversion->from.dtype == conversion->to;
    const bool together = !walk->swapped && walk->shape.rank == 1 &&
                          walk->stride[0] == (int64_t)brim_dtype_bytes(walk->dtype);
    if (conversion->elements == 0) {
        return run_nothing;
    }
    if (plain && same) {
        return together ? run_copy : run_moves;
    }
    if (plain && together) {
        return run_contiguous;
    }
    if (is_planes3(conversion)) {
        return run_planes3;
    }
    if (!plain && conversion->channels > 1 &&
        (conversion->channel_run == 1 ||
         (conversion->channel_run < QUICK &&
          conversion->channels * conversion->channel_run <= PIECE))) {
        return run_pattern;
    }
    return run_pieces;
}

brim_status brim__conversion_prepare(struct brim__conversion *conversion) {
    brim_status status = check(conversion);
    if (status == BRIM_OK && conversion->scale != NULL) {
        status = check_affine(conversion);
    }
    if (status != BRIM_OK) {
        return status;
    }
    /* None of these overflows, because check() has computed a larger product. */
    const struct brim__shape *const shape = &conversion->from.shape;
    brim__shape_bytes_overflow(shape, 1, &conversion->elements);
    conversion->bytes = conversion->elements * brim_dtype_bytes(conversion->to);
    conversion->channel_run = conversion->elements;
    if (conversion->scale != NULL && conversion->channels > 1 && conversion->elements > 0) {
        conversion->channel_run = 1;
        for (uint32_t i = conversion->channel_axis + 1; i < shape->rank; i++) {
            conversion->channel_run *= shape->dim[i];
        }
    }
    conversion->kernels = brim__kernels();
    merge(&conversion->from, &conversion->walk);
    conversion->run = choose(conversion);
    return BRIM_OK;
}

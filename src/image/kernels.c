/*
 * kernels.c: the loops over pixels: resampling, alpha, and the layouts of batches.
 *
 * Compiled once for each variant (base/cpu.h), with BRIM__IMAGE_KERNELS the name of the table that
 * it defines. Loops that the compiler vectorises well are plain C. The others have an AVX2 form,
 * which leaves the remainder to the plain loop. All variants give the same bits: integers are
 * exact, and floats are rounded once for each operation (-ffp-contract=off, no -mfma).
 *
 * Resampling sums byte * weight exactly modulo 2^32, as Pillow does: in halves,
 * (sum of high parts) * 2048 + (sum of low parts), and then rounds, shifts by 22 and
 * clamps to a byte. A high part has 13 bits and its sign, so no product or pair of
 * products leaves 32 bits.
 */
#include "image/kernels.h"

#include "image/weights.h"

#ifdef __AVX2__
#include <immintrin.h>
#endif

#define ROUNDING (1u << (BRIM__WEIGHT_BITS - 1))

typedef uint32_t pixel32 __attribute__((aligned(1), may_alias));
typedef float real32 __attribute__((aligned(1), may_alias));

static inline uint8_t settled(uint32_t sum) {
    const int32_t value = (int32_t)(sum + ROUNDING) >> BRIM__WEIGHT_BITS;
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

/* ------------------------------------------------------------- resampling */

/* Outputs from `j` on. */
static inline void across4_from(uint32_t j, const uint8_t *restrict row, uint8_t *restrict out,
                                const struct brim__weights *weights) {
    const uint32_t pairs = weights->pairs;
    for (; j < weights->count; j++) {
        const uint8_t *pixel = row + (size_t)weights->first[j] * 4;
        const int16_t *half = brim__weights_of(weights, j);
        uint32_t sum[4] = { 0, 0, 0, 0 };
        for (uint32_t pair = 0; pair < pairs; pair++) {
            const int32_t a = half[0] * (1 << BRIM__LOW_BITS) + half[2];
            const int32_t b = half[1] * (1 << BRIM__LOW_BITS) + half[3];
            for (int c = 0; c < 4; c++) {
                sum[c] += (uint32_t)(pixel[c] * a) + (uint32_t)(pixel[4 + c] * b);
            }
            pixel += 8;
            half += 4;
        }
        for (int c = 0; c < 4; c++) {
            out[(size_t)j * 4 + c] = settled(sum[c]);
        }
    }
}

static inline void across1_from(uint32_t j, const uint8_t *restrict row, uint8_t *restrict out,
                                const struct brim__weights *weights) {
    const uint32_t pairs = weights->pairs;
    for (; j < weights->count; j++) {
        const uint8_t *pixel = row + weights->first[j];
        const int16_t *half = brim__weights_of(weights, j);
        uint32_t high = 0, low = 0;
        for (uint32_t pair = 0; pair < pairs; pair++) {
            high += (uint32_t)(pixel[0] * half[0] + pixel[1] * half[1]);
            low += (uint32_t)(pixel[0] * half[2] + pixel[1] * half[3]);
            pixel += 2;
            half += 4;
        }
        out[j] = settled((high << BRIM__LOW_BITS) + low);
    }
}

/* Bytes from `i` on, in blocks whose sums stay in the first cache. */
static inline void down_from(size_t i, const uint8_t *const *rows, uint32_t taps,
                             const int16_t *halves, uint8_t *restrict out, size_t bytes) {
    enum { BLOCK = 256 };
    int32_t high[BLOCK], low[BLOCK];
    while (i < bytes) {
        const size_t block = bytes - i < BLOCK ? bytes - i : BLOCK;
        memset(high, 0, sizeof high);
        memset(low, 0, sizeof low);
        for (uint32_t tap = 0; tap < taps; tap += 2) {
            const int16_t *const half = halves + (size_t)tap * 2;
            const uint8_t *const a = rows[tap] + i, *const b = rows[tap + 1] + i;
            for (size_t k = 0; k < block; k++) {
                high[k] += a[k] * half[0] + b[k] * half[1];
                low[k] += a[k] * half[2] + b[k] * half[3];
            }
        }
        for (size_t k = 0; k < block; k++) {
            out[i + k] = settled(((uint32_t)high[k] << BRIM__LOW_BITS) + (uint32_t)low[k]);
        }
        i += block;
    }
}

static void add(const uint8_t *restrict row, int32_t weight, int32_t *restrict sums, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) {
        sums[i] = (int32_t)((uint32_t)sums[i] + (uint32_t)(row[i] * weight));
    }
}

static void settle(const int32_t *restrict sums, uint8_t *restrict out, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) {
        out[i] = settled((uint32_t)sums[i]);
    }
}

#ifndef __AVX2__
static void across4(const uint8_t *row, uint8_t *out, const struct brim__weights *weights) {
    across4_from(0, row, out, weights);
}

static void across1(const uint8_t *row, uint8_t *out, const struct brim__weights *weights) {
    across1_from(0, row, out, weights);
}

static void down(const uint8_t *const *rows, uint32_t taps, const int16_t *halves, uint8_t *out,
                 size_t bytes) {
    down_from(0, rows, taps, halves, out, bytes);
}
#else
#define INLINE static inline __attribute__((always_inline))

INLINE __m256i load_two(const void *low, const void *high) {
    const __m128i first = _mm_loadu_si128((const __m128i *)low);
    return _mm256_inserti128_si256(_mm256_castsi128_si256(first),
                                   _mm_loadu_si128((const __m128i *)high), 1);
}

INLINE __m256i load_two_halves(const void *low, const void *high) {
    const __m128i first = _mm_loadl_epi64((const __m128i *)low);
    return _mm256_inserti128_si256(_mm256_castsi128_si256(first),
                                   _mm_loadl_epi64((const __m128i *)high), 1);
}

INLINE __m256i load_vector(const int16_t *at) {
    return _mm256_loadu_si256((const __m256i *)at);
}

/* 32-bit sums, not yet clamped. */
INLINE __m256i joined(__m256i high, __m256i low) {
    const __m256i rounded = _mm256_add_epi32(low, _mm256_set1_epi32((int)ROUNDING));
    const __m256i sum = _mm256_add_epi32(_mm256_slli_epi32(high, BRIM__LOW_BITS), rounded);
    return _mm256_srai_epi32(sum, BRIM__WEIGHT_BITS);
}

/* Two outputs, one in each half of a vector, a channel in each 32 bits. Pixels are widened to pairs
 * of 16 bits, r0 r1 g0 g1 b0 b1 x0 x1, and pixels 2 and 3 in the same way. One multiply-and-add
 * combines them with their weights, h0 h1 and l0 l1 repeated. */
INLINE __m256i pick01(__m256i pixels) {
    const __m128i pick = _mm_setr_epi8(0, -1, 4, -1, 1, -1, 5, -1, 2, -1, 6, -1, 3, -1, 7, -1);
    return _mm256_shuffle_epi8(pixels, _mm256_broadcastsi128_si256(pick));
}

INLINE __m256i pick23(__m256i pixels) {
    const __m128i pick =
        _mm_setr_epi8(8, -1, 12, -1, 9, -1, 13, -1, 10, -1, 14, -1, 11, -1, 15, -1);
    return _mm256_shuffle_epi8(pixels, _mm256_broadcastsi128_si256(pick));
}

/* One or two pairs. */
INLINE __m256i across4_spread(const uint8_t *a, const uint8_t *b, const int16_t *spread,
                              size_t pairs) {
    const __m256i pixels = pairs == 1 ? load_two_halves(a, b) : load_two(a, b);
    const __m256i p01 = pick01(pixels);
    __m256i high = _mm256_madd_epi16(p01, load_vector(spread));
    __m256i low = _mm256_madd_epi16(p01, load_vector(spread + 16));
    if (pairs == 2) {
        const __m256i p23 = pick23(pixels);
        high = _mm256_add_epi32(high, _mm256_madd_epi16(p23, load_vector(spread + 32)));
        low = _mm256_add_epi32(low, _mm256_madd_epi16(p23, load_vector(spread + 48)));
    }
    return joined(high, low);
}

INLINE __m256i across4_pairs(const uint8_t *a, const uint8_t *b, const int16_t *half,
                             size_t pairs) {
    const size_t next = (pairs + 1) / 2 * BRIM__GROUP_HALVES; /* from output to output */
    __m256i high = _mm256_setzero_si256(), low = _mm256_setzero_si256();
    for (size_t g = 0; g < pairs / 2; g++, a += 16, b += 16, half += BRIM__GROUP_HALVES) {
        const __m256i halves = load_two(half, half + next);
        const __m256i pixels = load_two(a, b);
        const __m256i p01 = pick01(pixels), p23 = pick23(pixels);
        const __m256i h01 = _mm256_madd_epi16(p01, _mm256_shuffle_epi32(halves, 0x00));
        const __m256i l01 = _mm256_madd_epi16(p01, _mm256_shuffle_epi32(halves, 0x55));
        const __m256i h23 = _mm256_madd_epi16(p23, _mm256_shuffle_epi32(halves, 0xaa));
        const __m256i l23 = _mm256_madd_epi16(p23, _mm256_shuffle_epi32(halves, 0xff));
        high = _mm256_add_epi32(high, _mm256_add_epi32(h01, h23));
        low = _mm256_add_epi32(low, _mm256_add_epi32(l01, l23));
    }
    if (pairs % 2 == 1) {
        const __m256i halves = load_two_halves(half, half + next);
        const __m256i p01 = pick01(load_two_halves(a, b));
        const __m256i h01 = _mm256_madd_epi16(p01, _mm256_shuffle_epi32(halves, 0x00));
        const __m256i l01 = _mm256_madd_epi16(p01, _mm256_shuffle_epi32(halves, 0x55));
        high = _mm256_add_epi32(high, h01);
        low = _mm256_add_epi32(low, l01);
    }
    return joined(high, low);
}

/* Copies the table's pointers to local variables first, because the compiler must assume that
 * storing a byte changes them. */
INLINE void across4_all(const uint8_t *row, uint8_t *out, const struct brim__weights *weights,
                        size_t pairs, bool spread) {
    const uint32_t *const first = weights->first;
    const int16_t *half = spread ? weights->spread : weights->halves;
    const size_t step = spread ? BRIM__SPREAD_PAIR : (pairs + 1) / 2 * 2 * BRIM__GROUP_HALVES;
    const uint32_t count = weights->count;
    uint32_t j = 0;
    for (; j + 4 <= count; j += 4) {
        const uint8_t *const a = row + (size_t)first[j] * 4;
        const uint8_t *const b = row + (size_t)first[j + 1] * 4;
        const uint8_t *const c = row + (size_t)first[j + 2] * 4;
        const uint8_t *const d = row + (size_t)first[j + 3] * 4;
        const __m256i ab =
            spread ? across4_spread(a, b, half, pairs) : across4_pairs(a, b, half, pairs);
        const __m256i cd = spread ? across4_spread(c, d, half + step, pairs)
                                  : across4_pairs(c, d, half + step, pairs);
        half += 2 * step;
        const __m256i words = _mm256_packs_epi32(ab, cd); /* a c | b d */
        const __m256i bytes = _mm256_packus_epi16(words, words);
        const __m128i four =
            _mm_unpacklo_epi32(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1));
        _mm_storeu_si128((__m128i *)(out + (size_t)j * 4), four);
    }
    across4_from(j, row, out, weights);
}

static void across4(const uint8_t *row, uint8_t *out, const struct brim__weights *weights) {
    const uint32_t pairs = weights->pairs;
    if (weights->spread != NULL && pairs == 1) {
        across4_all(row, out, weights, 1, true);
    } else if (weights->spread != NULL) {
        across4_all(row, out, weights, 2, true);
    } else if (pairs == 3) {
        across4_all(row, out, weights, 3, false);
    } else if (pairs == 4) {
        across4_all(row, out, weights, 4, false);
    } else {
        across4_all(row, out, weights, pairs, false);
    }
}

/* Four pixels of 1 byte, or two. */
INLINE __m128i load_pixels(const uint8_t *at, size_t count) {
    int value = 0;
    memcpy(&value, at, count);
    return _mm_cvtsi32_si128(value);
}

/* The terms that are added to the sums of two outputs, one in each half: h01, l01, h23, l23 of
 * each. One multiply-and-add does four taps with both halves of their weights. */
INLINE __m256i across1_taps(const uint8_t *a, const uint8_t *b, size_t count, __m256i halves) {
    const __m256i pick = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, -1, 1, -1, 0, -1, 1, -1, 2, -1, 3, -1, 2, -1, 3, -1));
    const __m256i low = _mm256_castsi128_si256(load_pixels(a, count));
    const __m256i pixels = _mm256_inserti128_si256(low, load_pixels(b, count), 1);
    return _mm256_madd_epi16(_mm256_shuffle_epi8(pixels, pick), halves);
}

INLINE __m256i across1_two(const uint8_t *a, const uint8_t *b, const int16_t *half, size_t pairs) {
    const size_t next = (pairs + 1) / 2 * BRIM__GROUP_HALVES; /* from output to output */
    __m256i sums = _mm256_setzero_si256();
    for (size_t g = 0; g < pairs / 2; g++, a += 4, b += 4, half += BRIM__GROUP_HALVES) {
        const __m256i halves = load_two(half, half + next);
        sums = _mm256_add_epi32(sums, across1_taps(a, b, 4, halves));
    }
    if (pairs % 2 == 1) {
        const __m256i halves = load_two(half, half + next);
        sums = _mm256_add_epi32(sums, across1_taps(a, b, 2, halves));
    }
    return sums;
}

INLINE void across1_all(const uint8_t *row, uint8_t *out, const struct brim__weights *weights,
                        size_t pairs) {
    const uint32_t *const first = weights->first;
    const int16_t *half = weights->halves;
    const size_t step = (pairs + 1) / 2 * 2 * BRIM__GROUP_HALVES;
    const uint32_t count = weights->count;
    uint32_t j = 0;
    for (; j + 4 <= count; j += 4) {
        const __m256i ab = across1_two(row + first[j], row + first[j + 1], half, pairs);
        const __m256i cd = across1_two(row + first[j + 2], row + first[j + 3], half + step, pairs);
        half += 2 * step;
        /* high and low of a, of c | of b, of d */
        const __m256i sums =
            _mm256_add_epi32(_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd));
        const __m256i values = joined(sums, _mm256_srli_epi64(sums, 32));
        const __m256i dwords = _mm256_shuffle_epi32(values, 0x08);
        const __m256i words = _mm256_packs_epi32(dwords, dwords);
        const __m256i bytes = _mm256_packus_epi16(words, words);
        const __m128i four =
            _mm_unpacklo_epi8(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1));
        const int value = _mm_cvtsi128_si32(four);
        memcpy(out + j, &value, sizeof value);
    }
    across1_from(j, row, out, weights);
}

static void across1(const uint8_t *row, uint8_t *out, const struct brim__weights *weights) {
    if (weights->pairs == 1) {
        across1_all(row, out, weights, 1);
    } else if (weights->pairs == 2) {
        across1_all(row, out, weights, 2);
    } else {
        across1_all(row, out, weights, weights->pairs);
    }
}

/* 32 bytes from i on. Bytes of two rows are interleaved and widened, so that packing the
 * results in the same order brings them back to theirs. */
INLINE void down_vector(size_t i, const uint8_t *const *rows, uint32_t taps, const int16_t *halves,
                        uint8_t *out) {
    const __m256i zero = _mm256_setzero_si256();
    __m256i high[4] = { zero, zero, zero, zero }, low[4] = { zero, zero, zero, zero };
    for (size_t tap = 0; tap < taps; tap += 2) {
        int pair[2];
        memcpy(pair, halves + tap * 2, sizeof pair);
        const __m256i weight_high = _mm256_set1_epi32(pair[0]);
        const __m256i weight_low = _mm256_set1_epi32(pair[1]);
        const __m256i a = _mm256_loadu_si256((const __m256i *)(rows[tap] + i));
        const __m256i b = _mm256_loadu_si256((const __m256i *)(rows[tap + 1] + i));
        const __m256i ab0 = _mm256_unpacklo_epi8(a, b), ab1 = _mm256_unpackhi_epi8(a, b);
        const __m256i words[4] = {
            _mm256_unpacklo_epi8(ab0, zero),
            _mm256_unpackhi_epi8(ab0, zero),
            _mm256_unpacklo_epi8(ab1, zero),
            _mm256_unpackhi_epi8(ab1, zero),
        };
        for (int k = 0; k < 4; k++) {
            high[k] = _mm256_add_epi32(high[k], _mm256_madd_epi16(words[k], weight_high));
            low[k] = _mm256_add_epi32(low[k], _mm256_madd_epi16(words[k], weight_low));
        }
    }
    const __m256i words0 = _mm256_packs_epi32(joined(high[0], low[0]), joined(high[1], low[1]));
    const __m256i words1 = _mm256_packs_epi32(joined(high[2], low[2]), joined(high[3], low[3]));
    _mm256_storeu_si256((__m256i *)(out + i), _mm256_packus_epi16(words0, words1));
}

INLINE void down_taps(const uint8_t *const *rows, uint32_t taps, const int16_t *halves,
                      uint8_t *out, size_t bytes) {
    size_t i = 0;
    for (; i + 32 <= bytes; i += 32) {
        down_vector(i, rows, taps, halves, out);
    }
    if (i < bytes && bytes >= 32) {
        down_vector(bytes - 32, rows, taps, halves, out);
        i = bytes;
    }
    down_from(i, rows, taps, halves, out, bytes);
}

static void down(const uint8_t *const *rows, uint32_t taps, const int16_t *halves, uint8_t *out,
                 size_t bytes) {
    if (taps <= 2) {
        down_taps(rows, 2, halves, out, bytes);
    } else if (taps <= 4) {
        down_taps(rows, 4, halves, out, bytes);
    } else {
        down_taps(rows, taps, halves, out, bytes);
    }
}
#endif

/* ------------------------------------------------------------------ alpha */

/* x / 255, rounded, for products of bytes. */
static inline uint32_t divide255(uint32_t x) {
    const uint32_t more = x + 128;
    return ((more >> 8) + more) >> 8;
}

static void premultiply(const uint8_t *restrict from, uint8_t *restrict to, size_t pixels) {
    for (size_t i = 0; i < pixels; i++) {
        const uint32_t alpha = from[4 * i + 3];
        to[4 * i] = (uint8_t)divide255(from[4 * i] * alpha);
        to[4 * i + 1] = (uint8_t)divide255(from[4 * i + 1] * alpha);
        to[4 * i + 2] = (uint8_t)divide255(from[4 * i + 2] * alpha);
        to[4 * i + 3] = (uint8_t)alpha;
    }
}

static void unpremultiply(uint8_t *row, size_t pixels) {
    for (size_t i = 0; i < pixels; i++) {
        uint8_t *const pixel = row + 4 * i;
        const uint32_t alpha = pixel[3];
        if (alpha == 0 || alpha == 255) {
            continue;
        }
        for (size_t c = 0; c < 3; c++) {
            const uint32_t whole = pixel[c] * 255 / alpha;
            pixel[c] = (uint8_t)(whole < 255 ? whole : 255);
        }
    }
}

/* ---------------------------------------------------------------- layouts */

static void planes4(const uint8_t *restrict from, float *restrict to, size_t plane, size_t pixels,
                    const float scale[3], const float bias[3]) {
    const pixel32 *const in = (const pixel32 *)from;
    real32 *const plane0 = (real32 *)to;
    real32 *const plane1 = plane0 + plane;
    real32 *const plane2 = plane1 + plane;
    const float scale0 = scale[0], scale1 = scale[1], scale2 = scale[2];
    const float bias0 = bias[0], bias1 = bias[1], bias2 = bias[2];
    for (size_t i = 0; i < pixels; i++) {
        const uint32_t pixel = in[i];
        plane0[i] = (float)(int32_t)(pixel & 255) * scale0 + bias0;
        plane1[i] = (float)(int32_t)(pixel >> 8 & 255) * scale1 + bias1;
        plane2[i] = (float)(int32_t)(pixel >> 16 & 255) * scale2 + bias2;
    }
}

static void split4(const uint8_t *restrict from, uint8_t *restrict to, size_t plane, size_t pixels,
                   uint32_t channels) {
    const pixel32 *const in = (const pixel32 *)from;
    for (uint32_t c = 0; c < channels; c++) {
        uint8_t *const out = to + c * plane;
        const uint32_t shift = 8 * c;
        for (size_t i = 0; i < pixels; i++) {
            out[i] = (uint8_t)(in[i] >> shift);
        }
    }
}

static void pack4(const uint8_t *restrict from, uint8_t *restrict to, size_t pixels) {
    size_t i = 0;
#ifdef __AVX2__
    /* 16 bytes are stored for 12: there must be room for two more pixels */
    const __m128i pick = _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
    for (; i + 6 <= pixels; i += 4) {
        const __m128i four = _mm_loadu_si128((const __m128i *)(from + 4 * i));
        _mm_storeu_si128((__m128i *)(to + 3 * i), _mm_shuffle_epi8(four, pick));
    }
#endif
    for (; i < pixels; i++) {
        to[3 * i] = from[4 * i];
        to[3 * i + 1] = from[4 * i + 1];
        to[3 * i + 2] = from[4 * i + 2];
    }
}

static void unpack3(const uint8_t *restrict from, uint8_t *restrict to, size_t pixels) {
    size_t i = 0;
#ifdef __AVX2__
    /* 16 bytes are loaded for 12: there must be two more pixels */
    const __m128i pick = _mm_setr_epi8(0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1);
    const __m128i opaque = _mm_set1_epi32((int)0xff000000u);
    for (; i + 6 <= pixels; i += 4) {
        const __m128i four = _mm_loadu_si128((const __m128i *)(from + 3 * i));
        _mm_storeu_si128((__m128i *)(to + 4 * i),
                         _mm_or_si128(_mm_shuffle_epi8(four, pick), opaque));
    }
#endif
    for (; i < pixels; i++) {
        to[4 * i] = from[3 * i];
        to[4 * i + 1] = from[3 * i + 1];
        to[4 * i + 2] = from[3 * i + 2];
        to[4 * i + 3] = 255;
    }
}

static void gray4(const uint8_t *restrict from, uint8_t *restrict to, size_t pixels) {
    const pixel32 *const in = (const pixel32 *)from;
    for (size_t i = 0; i < pixels; i++) {
        const uint32_t pixel = in[i];
        to[i] = brim__luma(pixel & 255, pixel >> 8 & 255, pixel >> 16 & 255);
    }
}

static void reverse4(const uint8_t *restrict from, uint8_t *restrict to, size_t pixels) {
    const pixel32 *const in = (const pixel32 *)from;
    pixel32 *const out = (pixel32 *)to;
    for (size_t i = 0; i < pixels; i++) {
        out[i] = in[pixels - 1 - i];
    }
}

static void reverse1(const uint8_t *restrict from, uint8_t *restrict to, size_t pixels) {
    for (size_t i = 0; i < pixels; i++) {
        to[i] = from[pixels - 1 - i];
    }
}

/* ------------------------------------------------------------------ table */

const struct brim__image_kernels BRIM__IMAGE_KERNELS = {
    .name = BRIM__KERNELS_NAME,
    .across4 = across4,
    .across1 = across1,
    .down = down,
    .add = add,
    .settle = settle,
    .premultiply = premultiply,
    .unpremultiply = unpremultiply,
    .planes4 = planes4,
    .split4 = split4,
    .pack4 = pack4,
    .unpack3 = unpack3,
    .gray4 = gray4,
    .reverse4 = reverse4,
    .reverse1 = reverse1,
};

/*
 * pixels_blur.c: gaussian blur in 16-bit integers.
 *
 * The kernel is a product of a horizontal and a vertical one. A row is blurred horizontally and
 * kept in a ring of rows as long as a row above or below needs it. The vertical sum overwrites a
 * row of the image that has been read before:
 *
 *     image row y + half --(across)--> ring of `size` rows --(down)--> image row y
 *
 * Values have 7 fractional bits. The sum of two values, of the two rows or columns at one distance,
 * fits in 16 bits, and the upper half of its product with a weight of 16 bits is a value again. So
 * eight values fit in the smallest vector registers, and the bits are the same on every machine.
 * Truncating a product loses half a unit on average, which is added to the sum in advance. With 63
 * taps the error of a result is less than 0.3 of 255 before it is rounded.
 */
#include "base/real.h"
#include "image/pixels.h"

#define POINT 7 /* fractional bits */
#define HALF  (BRIM__BLUR_MOST / 2)

struct kernel {
    uint32_t half;
    uint16_t weight[HALF + 1]; /* at each distance; [0] is half of the middle's */
    uint16_t start;            /* what truncation takes away on average */
};

/* The position in [0, count) that stands for `at`: mirrored at the first and last pixel. */
static uint32_t reflect(int64_t at, uint32_t count) {
    const int64_t period = count == 1 ? 1 : 2 * (int64_t)count - 2;
    int64_t rest = at % period;
    rest = rest < 0 ? rest + period : rest;
    return (uint32_t)(rest < count ? rest : period - rest);
}

static void make_kernel(struct kernel *kernel, uint32_t size, double sigma) {
    double weight[HALF + 1], sum = 0.0;
    kernel->half = size / 2;
    for (uint32_t i = 0; i <= kernel->half; i++) {
        const double x = i / sigma;
        weight[i] = brim__exp(-0.5 * (x * x));
        sum += i == 0 ? weight[i] : 2.0 * weight[i];
    }
    uint32_t rest = 32768;
    for (uint32_t i = kernel->half; i > 0; i--) {
        kernel->weight[i] = (uint16_t)(int)(weight[i] / sum * 65536.0 + 0.5);
        rest -= kernel->weight[i];
    }
    kernel->weight[0] = (uint16_t)rest; /* so that they sum to one exactly */
    kernel->start = (uint16_t)((kernel->half + 1) / 2);
}

/* sums += (a + b) * weight */
static void add_pair(uint16_t *restrict sums, const uint16_t *a, const uint16_t *b, uint16_t weight,
                     size_t count) {
    for (size_t i = 0; i < count; i++) {
        const uint16_t both = (uint16_t)(a[i] + b[i]);
        sums[i] = (uint16_t)(sums[i] + (uint16_t)((uint32_t)both * weight >> 16));
    }
}

static void start_sums(uint16_t *sums, uint16_t start, size_t count) {
    for (size_t i = 0; i < count; i++) {
        sums[i] = start;
    }
}

/* wide: room for a row with `half` mirrored pixels at both ends. */
static void blur_across(const struct kernel *kernel, const uint8_t *row, uint32_t width,
                        uint32_t pixel, uint16_t *wide, uint16_t *sums) {
    const size_t count = (size_t)width * pixel, margin = (size_t)kernel->half * pixel;
    uint16_t *middle = wide + margin;
    for (size_t i = 0; i < count; i++) {
        middle[i] = (uint16_t)(row[i] << POINT);
    }
    for (uint32_t i = 1; i <= kernel->half; i++) {
        const uint16_t *left = middle + (size_t)reflect(-(int64_t)i, width) * pixel;
        const uint16_t *right = middle + (size_t)reflect((int64_t)width - 1 + i, width) * pixel;
        memcpy(middle - (size_t)i * pixel, left, pixel * sizeof *middle);
        memcpy(middle + count + (size_t)(i - 1) * pixel, right, pixel * sizeof *middle);
    }
    start_sums(sums, kernel->start, count);
    for (uint32_t i = 0; i <= kernel->half; i++) {
        const size_t distance = (size_t)i * pixel;
        add_pair(sums, middle - distance, middle + distance, kernel->weight[i], count);
    }
}

static void blur_down(const struct kernel *kernel, const uint16_t *ring, uint32_t rows,
                      size_t count, uint32_t y, uint32_t height, uint16_t *sums, uint8_t *row) {
    start_sums(sums, kernel->start, count);
    for (uint32_t i = 0; i <= kernel->half; i++) {
        const uint32_t above = reflect((int64_t)y - i, height) % rows;
        const uint32_t below = reflect((int64_t)y + i, height) % rows;
        add_pair(sums, ring + above * count, ring + below * count, kernel->weight[i], count);
    }
    for (size_t i = 0; i < count; i++) {
        row[i] = (uint8_t)((sums[i] + (1u << (POINT - 1))) >> POINT);
    }
}

/* The ring, a row with its margins, a row of sums. */
uint64_t brim__image_blur_bytes(uint32_t width, uint32_t height, uint32_t pixel) {
    const uint64_t row = (uint64_t)width * pixel;
    const uint64_t margins = 2 * (uint64_t)HALF * pixel;
    return (brim__min(height, BRIM__BLUR_MOST) * row + row + margins + row) * sizeof(uint16_t);
}

void brim__image_blur(const struct brim__image *image, uint32_t size, double sigma,
                      uint8_t *scratch) {
    assert(size % 2 == 1 && size <= BRIM__BLUR_MOST && sigma > 0.0);
    assert((uintptr_t)scratch % sizeof(uint16_t) == 0);
    struct kernel kernel;
    make_kernel(&kernel, size, sigma);
    const size_t count = (size_t)image->width * image->pixel;
    const uint32_t rows = (uint32_t)brim__min(size, image->height);
    uint16_t *ring = (uint16_t *)(void *)scratch;
    uint16_t *sums = ring + rows * count;
    uint16_t *wide = sums + count;
    uint32_t ahead = 0; /* rows that are in the ring, or were */
    for (uint32_t y = 0; count > 0 && y < image->height; y++) {
        for (; ahead < image->height && ahead <= y + kernel.half; ahead++) {
            blur_across(&kernel, brim__image_row(image, ahead), image->width, image->pixel, wide,
                        ring + ahead % rows * count);
        }
        blur_down(&kernel, ring, rows, count, y, image->height, sums, brim__image_row(image, y));
    }
}

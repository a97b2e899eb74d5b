/*
 * pixels_geometry.c: operations that move pixels and do not change their colours.
 *
 * Pixels are moved as a byte or as four at once (move_pixel); images need not be aligned.
 *
 * The affine transform has the three methods of Pillow, because each of them rounds differently,
 * which decides the pixel that is taken:
 *
 *     bilinear                    positions in double, computed for each pixel
 *     nearest, small coordinates  16.16 fixed point, summed along a row
 *     nearest, pure scaling or    double, summed along a row
 *       larger coordinates
 */
#include "image/pixels.h"

#include "base/real.h"

#define TILE 16 /* pixels: a line of the cache */

static inline void move_pixel(uint8_t *to, const uint8_t *from, uint32_t pixel) {
    if (pixel == 4) {
        memcpy(to, from, 4);
    } else {
        *to = *from;
    }
}

static void fill_run(uint8_t *to, size_t count, uint32_t pixel, const uint8_t color[4]) {
    if (pixel == 1) {
        memset(to, color[0], count);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        memcpy(to + i * 4, color, 4);
    }
}

void brim__image_fill(const struct brim__image *image, uint32_t x, uint32_t y, uint32_t width,
                      uint32_t height, const uint8_t color[4]) {
    assert(x <= image->width && width <= image->width - x);
    assert(y <= image->height && height <= image->height - y);
    for (uint32_t i = 0; i < height; i++) {
        fill_run(brim__image_row(image, y + i) + (size_t)x * image->pixel, width, image->pixel,
                 color);
    }
}

void brim__image_copy(const struct brim__image *from, const struct brim__image *to) {
    assert(from->width == to->width && from->height == to->height && from->pixel == to->pixel);
    for (uint32_t y = 0; y < from->height; y++) {
        memcpy(brim__image_row(to, y), brim__image_row(from, y), (size_t)from->width * from->pixel);
    }
}

/* ---------------------------------------------------- flips and orientation */

void brim__image_flip_x(const struct brim__image *image) {
    const uint32_t pixel = image->pixel;
    for (uint32_t y = 0; image->width > 0 && y < image->height; y++) {
        uint8_t *left = brim__image_row(image, y);
        uint8_t *right = left + (size_t)(image->width - 1) * pixel;
        for (; left < right; left += pixel, right -= pixel) {
            uint8_t kept[4];
            move_pixel(kept, left, pixel);
            move_pixel(left, right, pixel);
            move_pixel(right, kept, pixel);
        }
    }
}

void brim__image_flip_y(const struct brim__image *image) {
    const size_t bytes = (size_t)image->width * image->pixel;
    for (uint32_t y = 0; y < image->height / 2; y++) {
        uint8_t *restrict above = brim__image_row(image, y);
        uint8_t *restrict below = brim__image_row(image, image->height - 1 - y);
        for (size_t i = 0; i < bytes; i++) {
            const uint8_t kept = above[i];
            above[i] = below[i];
            below[i] = kept;
        }
    }
}

void brim__image_orient(const struct brim__image *from, const struct brim__image *to,
                        uint8_t orientation) {
    assert(orientation >= 1 && orientation <= 8 && from->pixel == to->pixel);
    const bool transposed = orientation >= 5;
    assert(to->width == (transposed ? from->height : from->width));
    assert(to->height == (transposed ? from->width : from->height));
    /* whether the rows and columns of `from` are read from their end */
    const bool from_right =
        orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
    const bool from_bottom =
        orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
    const uint32_t pixel = from->pixel;
    const ptrdiff_t step_x = from_right ? -(ptrdiff_t)pixel : (ptrdiff_t)pixel;
    const ptrdiff_t step_y = from_bottom ? -(ptrdiff_t)from->stride : (ptrdiff_t)from->stride;
    if (to->width == 0 || to->height == 0) {
        return;
    }
    const uint8_t *first = brim__image_row(from, from_bottom ? from->height - 1 : 0) +
                           (from_right ? (size_t)(from->width - 1) * pixel : 0);
    const ptrdiff_t along = transposed ? step_y : step_x, down = transposed ? step_x : step_y;
    /* a few rows of `to` at a time: if transposed, they share cache lines of `from` */
    for (uint32_t top = 0; top < to->height; top += TILE) {
        const uint32_t rows = to->height - top < TILE ? to->height - top : TILE;
        for (uint32_t left = 0; left < to->width; left += TILE) {
            const uint32_t columns = to->width - left < TILE ? to->width - left : TILE;
            for (uint32_t y = top; y < top + rows; y++) {
                uint8_t *out = brim__image_row(to, y) + (size_t)left * pixel;
                const uint8_t *in = first + (ptrdiff_t)y * down + (ptrdiff_t)left * along;
                for (uint32_t x = 0; x < columns; x++, out += pixel, in += along) {
                    move_pixel(out, in, pixel);
                }
            }
        }
    }
}

/* ---------------------------------------------------------------------- pad */

/* The position in [0, count) that stands for `at`, which may be outside. */
static uint32_t inside(int64_t at, uint32_t count, enum brim__edge edge) {
    if (at >= 0 && at < count) {
        return (uint32_t)at;
    }
    if (edge == BRIM__EDGE_EDGE || count == 1) {
        return at < 0 ? 0 : count - 1;
    }
    const bool twice = edge == BRIM__EDGE_SYMMETRIC; /* the border's own pixel is repeated */
    const int64_t period = twice ? 2 * (int64_t)count : 2 * (int64_t)count - 2;
    int64_t rest = at % period;
    rest = rest < 0 ? rest + period : rest;
    return (uint32_t)(rest < count ? rest : period - rest - (twice ? 1 : 0));
}

void brim__image_pad(const struct brim__image *from, const struct brim__image *to, uint32_t x,
                     uint32_t y, enum brim__edge edge, const uint8_t color[4]) {
    assert(from->pixel == to->pixel && from->width > 0 && from->height > 0);
    assert(x <= to->width && from->width <= to->width - x);
    assert(y <= to->height && from->height <= to->height - y);
    const uint32_t pixel = from->pixel, right = x + from->width;
    for (uint32_t row = 0; row < to->height; row++) {
        uint8_t *out = brim__image_row(to, row);
        if (edge == BRIM__EDGE_CONSTANT) {
            if (row < y || row - y >= from->height) {
                fill_run(out, to->width, pixel, color);
                continue;
            }
            fill_run(out, x, pixel, color);
            fill_run(out + (size_t)right * pixel, to->width - right, pixel, color);
        }
        const uint8_t *in = brim__image_row(from, inside((int64_t)row - y, from->height, edge));
        memcpy(out + (size_t)x * pixel, in, (size_t)from->width * pixel);
        for (uint32_t column = 0; edge != BRIM__EDGE_CONSTANT && column < to->width; column++) {
            if (column == x) {
                column = right;
                if (column == to->width) {
                    break;
                }
            }
            move_pixel(out + (size_t)column * pixel,
                       in + (size_t)inside((int64_t)column - x, from->width, edge) * pixel, pixel);
        }
    }
}

/* ------------------------------------------------------------------- affine */

static int64_t floor_of(double value) {
    const int64_t whole = (int64_t)value;
    return (double)whole > value ? whole - 1 : whole;
}

static bool fits_fixed(const double m[6], double x, double y) {
    const double at_x = x * m[0] + y * m[1] + m[2], at_y = x * m[3] + y * m[4] + m[5];
    return at_x < 32768.0 && at_x > -32768.0 && at_y < 32768.0 && at_y > -32768.0;
}

static int64_t fixed(double value) {
    return floor_of(value * 65536.0 + 0.5);
}

static void nearest_fixed(const struct brim__image *from, const struct brim__image *to,
                          const double m[6]) {
    const int64_t x_by_x = fixed(m[0]), x_by_y = fixed(m[1]);
    const int64_t y_by_x = fixed(m[3]), y_by_y = fixed(m[4]);
    int64_t x_begin = fixed(m[2] + m[0] * 0.5 + m[1] * 0.5);
    int64_t y_begin = fixed(m[5] + m[3] * 0.5 + m[4] * 0.5);
    const uint64_t width = (uint64_t)from->width << 16, height = (uint64_t)from->height << 16;
    for (uint32_t row = 0; row < to->height; row++) {
        uint8_t *out = brim__image_row(to, row);
        int64_t x = x_begin, y = y_begin;
        for (uint32_t i = 0; i < to->width; i++, out += to->pixel) {
            if ((uint64_t)x < width && (uint64_t)y < height) {
                move_pixel(out,
                           brim__image_row(from, (uint32_t)(y >> 16)) +
                               (size_t)(x >> 16) * from->pixel,
                           from->pixel);
            }
            x += x_by_x;
            y += y_by_x;
        }
        x_begin += x_by_y;
        y_begin += y_by_y;
    }
}

static void nearest_double(const struct brim__image *from, const struct brim__image *to,
                           const double m[6]) {
    double x_begin = m[2] + m[0] * 0.5 + m[1] * 0.5, y_begin = m[5] + m[3] * 0.5 + m[4] * 0.5;
    for (uint32_t row = 0; row < to->height; row++) {
        uint8_t *out = brim__image_row(to, row);
        double x = x_begin, y = y_begin;
        for (uint32_t i = 0; i < to->width; i++, out += to->pixel) {
            if (x >= 0.0 && x < from->width && y >= 0.0 && y < from->height) {
                move_pixel(out,
                           brim__image_row(from, (uint32_t)y) + (size_t)(uint32_t)x * from->pixel,
                           from->pixel);
            }
            x += m[0];
            y += m[3];
        }
        x_begin += m[1];
        y_begin += m[4];
    }
}

/* Interpolates between the four pixels around a position; beyond the border the nearest pixels are
 * used. Truncates, does not round. `pixel` is a constant where this is inlined. */
static inline void bilinear_pixel(const struct brim__image *from, double x, double y, uint8_t *out,
                                  uint32_t pixel) {
    /* positions are at least 0: with 1 added, truncating is the same as rounding down */
    const int32_t at_x = (int32_t)(x + 0.5) - 1, at_y = (int32_t)(y + 0.5) - 1;
    const double dx = x - 0.5 - at_x, dy = y - 0.5 - at_y;
    const int32_t last_x = (int32_t)from->width - 1, last_y = (int32_t)from->height - 1;
    const size_t left = (size_t)(at_x < 0 ? 0 : at_x) * pixel;
    const size_t right = (size_t)(at_x < last_x ? at_x + 1 : last_x) * pixel;
    const uint8_t *above = brim__image_row(from, at_y < 0 ? 0 : (uint32_t)at_y);
    const uint8_t *below = brim__image_row(from, (uint32_t)(at_y < last_y ? at_y + 1 : last_y));
    const uint8_t *a = above + left, *b = above + right, *c = below + left, *d = below + right;
    for (uint32_t i = 0; i < pixel; i++) {
        const double upper = a[i] + (b[i] - a[i]) * dx, lower = c[i] + (d[i] - c[i]) * dx;
        out[i] = (uint8_t)(int)(upper + (lower - upper) * dy);
    }
}

static void bilinear_double(const struct brim__image *from, const struct brim__image *to,
                            const double m[6]) {
    for (uint32_t row = 0; row < to->height; row++) {
        uint8_t *out = brim__image_row(to, row);
        const double in_y = row + 0.5;
        for (uint32_t i = 0; i < to->width; i++, out += to->pixel) {
            const double in_x = i + 0.5;
            const double x = m[0] * in_x + m[1] * in_y + m[2];
            const double y = m[3] * in_x + m[4] * in_y + m[5];
            if (!(x >= 0.0 && x < from->width && y >= 0.0 && y < from->height)) {
                continue;
            }
            if (from->pixel == 4) {
                bilinear_pixel(from, x, y, out, 4);
            } else {
                bilinear_pixel(from, x, y, out, 1);
            }
        }
    }
}

void brim__image_affine(const struct brim__image *from, const struct brim__image *to,
                        const double m[6], bool bilinear, const uint8_t fill[4]) {
    assert(from->pixel == to->pixel);
    brim__image_fill(to, 0, 0, to->width, to->height, fill);
    if (bilinear) {
        bilinear_double(from, to, m);
    } else if ((m[1] != 0.0 || m[3] != 0.0) && fits_fixed(m, 0, 0) && fits_fixed(m, to->width, 0) &&
               fits_fixed(m, 0, to->height) && fits_fixed(m, to->width, to->height)) {
        nearest_fixed(from, to, m);
    } else {
        nearest_double(from, to, m);
    }
}

/* Rounds to 15 decimal places, as Pillow does, so that a right angle is exact. |x| <= 1. Uses
 * integers, because a product of doubles would be rounded first. This matters for sin 45 and cos
 * 45, which are on different sides of a half. */
static double round_digits(double x) {
    __extension__ typedef unsigned __int128 wide;
    const uint64_t digits = 1000000000000000u;
    const wide bits = (wide)((x < 0 ? -x : x) * 0x1p60);
    const double near = (double)(uint64_t)((bits * digits + (UINT64_C(1) << 59)) >> 60);
    return (x < 0 ? -near : near) / (double)digits;
}

void brim__image_rotation(uint32_t width, uint32_t height, double degrees, double m[6]) {
    const double within = degrees - 360.0 * (double)floor_of(degrees / 360.0);
    const double radians = -(within * (BRIM__PI / 180.0));
    const double cosine = round_digits(brim__cos(radians)), sine = round_digits(brim__sin(radians));
    const double x = width / 2.0, y = height / 2.0;
    m[0] = cosine;
    m[1] = sine;
    m[2] = cosine * -x + sine * -y + x;
    m[3] = -sine;
    m[4] = cosine;
    m[5] = -sine * -x + cosine * -y + y;
}

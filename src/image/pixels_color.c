/*
 * pixels_color.c: operations that change the colour of each pixel.
 *
 * Most of them map a byte to a byte, the same everywhere in the image. They fill a table of 256
 * bytes for each channel by the definition, and apply it once. Those that depend on a whole pixel
 * (saturation, hue, gray) or on its neighbours (sharpness) have their own loops. All of it is
 * bit-identical to Pillow, whose blending is in float32, truncated and not rounded.
 */
#include "image/pixels.h"

#define VALUES 256

struct tables {
    uint8_t of[3][VALUES]; /* one for each channel; gray: the first */
};
struct histograms {
    uint64_t of[3][VALUES];
};

static uint32_t channels_of(const struct brim__image *image) {
    return image->pixel == 4 ? 3 : 1;
}

static void apply(const struct brim__image *image, const struct tables *tables) {
    for (uint32_t y = 0; y < image->height; y++) {
        uint8_t *row = brim__image_row(image, y);
        if (image->pixel == 1) {
            for (uint32_t x = 0; x < image->width; x++) {
                row[x] = tables->of[0][row[x]];
            }
            continue;
        }
        for (uint8_t *end = row + (size_t)image->width * 4; row < end; row += 4) {
            row[0] = tables->of[0][row[0]];
            row[1] = tables->of[1][row[1]];
            row[2] = tables->of[2][row[2]];
        }
    }
}

/* The first table for all channels. */
static void apply_one(const struct brim__image *image, struct tables *tables) {
    memcpy(tables->of[1], tables->of[0], VALUES);
    memcpy(tables->of[2], tables->of[0], VALUES);
    apply(image, tables);
}

static void count_values(const struct brim__image *image, struct histograms *counts) {
    *counts = (struct histograms){ 0 };
    for (uint32_t y = 0; y < image->height; y++) {
        const uint8_t *row = brim__image_row(image, y);
        for (uint32_t x = 0; x < image->width; x++, row += image->pixel) {
            for (uint32_t c = 0; c < channels_of(image); c++) {
                counts->of[c][row[c]]++;
            }
        }
    }
}

/* Pillow's blend of one byte: `from` at factor 0, `to` at 1, beyond outside of that. */
static inline uint8_t blend(int from, int to, float factor) {
    const float value = (float)from + factor * (float)(to - from);
    const float least = value < 0.0f ? 0.0f : value;
    return (uint8_t)(int)(least > 255.0f ? 255.0f : least);
}

/* ------------------------------------------------------------- ImageEnhance */

static void blend_with(const struct brim__image *image, int value, double factor) {
    struct tables tables;
    for (int i = 0; i < VALUES; i++) {
        tables.of[0][i] = blend(value, i, (float)factor);
    }
    apply_one(image, &tables);
}

void brim__image_brightness(const struct brim__image *image, double factor) {
    blend_with(image, 0, factor);
}

static inline uint8_t luma_of(const uint8_t *pixel) {
    return brim__luma(pixel[0], pixel[1], pixel[2]);
}

static int mean_gray(const struct brim__image *image) {
    uint64_t sum = 0;
    for (uint32_t y = 0; y < image->height; y++) {
        const uint8_t *row = brim__image_row(image, y);
        uint32_t part = 0; /* of a row: at most 65535 * 255 */
        if (image->pixel == 1) {
            for (uint32_t x = 0; x < image->width; x++) {
                part += row[x];
            }
        } else {
            for (uint32_t x = 0; x < image->width; x++) {
                part += luma_of(row + (size_t)x * 4);
            }
        }
        sum += part;
    }
    const uint64_t pixels = (uint64_t)image->width * image->height;
    return pixels == 0 ? 0 : (int)((double)sum / (double)pixels + 0.5);
}

void brim__image_contrast(const struct brim__image *image, double factor) {
    blend_with(image, mean_gray(image), factor);
}

void brim__image_saturation(const struct brim__image *image, double factor) {
    const float f = (float)factor;
    for (uint32_t y = 0; image->pixel == 4 && y < image->height; y++) {
        uint8_t *row = brim__image_row(image, y);
        for (uint32_t x = 0; x < image->width; x++) {
            uint8_t *pixel = row + (size_t)x * 4;
            const int gray = luma_of(pixel);
            pixel[0] = blend(gray, pixel[0], f);
            pixel[1] = blend(gray, pixel[1], f);
            pixel[2] = blend(gray, pixel[2], f);
        }
    }
}

/*
 * Blends with the image smoothed by the kernel 1 1 1 / 1 5 1 / 1 1 1. Pillow divides by 13 in
 * float32. No sum of bytes is near enough to a half for the rounding error to matter, so integers
 * give the same result. Pixels at the border do not change.
 */
static void sharpen_row(const uint8_t *restrict above, const uint8_t *restrict row,
                        const uint8_t *restrict below, uint8_t *restrict to, size_t pixel,
                        size_t bytes, float factor) {
    for (size_t i = pixel; i < bytes - pixel; i++) {
        const uint32_t sum = above[i - pixel] + above[i] + above[i + pixel] + row[i - pixel] +
                             5u * row[i] + row[i + pixel] + below[i - pixel] + below[i] +
                             below[i + pixel];
        to[i] = blend((int)((2 * sum + 13) / 26), row[i], factor);
    }
    for (size_t i = 3; pixel == 4 && i < bytes; i += 4) {
        to[i] = row[i];
    }
}

void brim__image_sharpness(const struct brim__image *from, const struct brim__image *to,
                           double factor) {
    assert(from->width == to->width && from->height == to->height && from->pixel == to->pixel);
    brim__image_copy(from, to);
    if (from->width < 3) {
        return;
    }
    for (uint32_t y = 1; y + 1 < from->height; y++) {
        sharpen_row(brim__image_row(from, y - 1), brim__image_row(from, y),
                    brim__image_row(from, y + 1), brim__image_row(to, y), from->pixel,
                    (size_t)from->width * from->pixel, (float)factor);
    }
}

/* ---------------------------------------------------------------------- hue */

/*
 * The meaning of a byte of hue: a colour between two of six. One channel there has the
 * highest value, one the lowest, and the third moves between them.
 */
struct hue {
    double away;                       /* the third from the highest, 0 to 1 */
    uint8_t at_high, at_third, at_low; /* bits that they are shifted by in a pixel */
};

/*
 * Pillow's hue of a colour that is not gray. Pillow has three cases, each a difference of two
 * quotients, one of which is 1. With t = (high - middle) / (high - low) they are base + t or base -
 * t.
 */
static inline uint8_t hue_of(int r, int g, int b, int high, int low) {
    static const struct {
        double base, sign;
    } cases[6] = { { 1, -1 }, { -1, 1 }, { 1, 1 }, { 3, -1 }, { 3, 1 }, { 5, -1 } };
    const int which = r == high ? b != low : g == high ? 2 + (b != low) : 4 + (r != low);
    const int middle = r + g + b - high - low;
    const float t = (float)(high - middle) / (float)(high - low);
    const float sixths = (float)(cases[which].base + cases[which].sign * (double)t);
    const double turn = (double)sixths / 6.0 + 1.0;
    const float hue = (float)(turn >= 1.0 ? turn - 1.0 : turn);
    return (uint8_t)(int)((double)hue * 255.0);
}

static inline uint32_t nearest(double value) {
    return (uint32_t)(int)(value + 0.5);
}

static void turn_row(uint8_t *row, uint32_t width, uint8_t shift, const struct hue hues[VALUES]) {
    for (uint8_t *end = row + (size_t)width * 4; row < end; row += 4) {
        const int r = row[0], g = row[1], b = row[2];
        const int more = r > g ? r : g, less = r < g ? r : g;
        const int high = more > b ? more : b, low = less < b ? less : b;
        if (high == low) {
            continue; /* gray has no hue */
        }
        const int saturation = (int)((double)((float)(high - low) / (float)high) * 255.0);
        const double s = (double)((float)saturation / 255.0f);
        const struct hue *hue = &hues[(uint8_t)(hue_of(r, g, b, high, low) + shift)];
        const uint32_t lowest = nearest(high * (1.0 - s));
        const uint32_t third = nearest(high * (1.0 - s * hue->away));
        const uint32_t pixel =
            (uint32_t)high << hue->at_high | third << hue->at_third | lowest << hue->at_low;
        row[0] = (uint8_t)pixel;
        row[1] = (uint8_t)(pixel >> 8);
        row[2] = (uint8_t)(pixel >> 16);
    }
}

void brim__image_hue(const struct brim__image *image, double turn) {
    static const uint8_t at_high[6] = { 0, 8, 8, 16, 16, 0 };
    static const uint8_t at_third[6] = { 8, 0, 16, 8, 0, 16 };
    struct hue hues[VALUES];
    for (int i = 0; i < VALUES; i++) {
        const double sixths = i * 6.0 / 255.0;
        const int number = (int)sixths % 6;
        const float rest = (float)(sixths - (double)(int)sixths);
        hues[i].away = number % 2 == 0 ? 1.0 - (double)rest : (double)rest;
        hues[i].at_high = at_high[number];
        hues[i].at_third = at_third[number];
        hues[i].at_low = (uint8_t)(24 - at_high[number] - at_third[number]);
    }
    const uint8_t shift = (uint8_t)(int)(turn * 255.0);
    for (uint32_t y = 0; image->pixel == 4 && y < image->height; y++) {
        turn_row(brim__image_row(image, y), image->width, shift, hues);
    }
}

/* --------------------------------------------------------------------- gray */

void brim__image_gray(const struct brim__image *image) {
    for (uint32_t y = 0; image->pixel == 4 && y < image->height; y++) {
        uint8_t *row = brim__image_row(image, y);
        for (uint32_t x = 0; x < image->width; x++) {
            uint8_t *pixel = row + (size_t)x * 4;
            pixel[0] = pixel[1] = pixel[2] = luma_of(pixel);
        }
    }
}

void brim__image_to_gray(const struct brim__image *from, const struct brim__image *to) {
    assert(from->pixel == 4 && to->pixel == 1);
    assert(from->width == to->width && from->height == to->height);
    for (uint32_t y = 0; y < from->height; y++) {
        const uint8_t *restrict row = brim__image_row(from, y);
        uint8_t *restrict gray = brim__image_row(to, y);
        for (uint32_t x = 0; x < from->width; x++) {
            gray[x] = luma_of(row + (size_t)x * 4);
        }
    }
}

/* -------------------------------------------------------------------- alpha */

void brim__image_premultiply(const struct brim__image *image) {
    assert(image->pixel == 4);
    for (uint32_t y = 0; y < image->height; y++) {
        uint8_t *row = brim__image_row(image, y);
        for (uint32_t x = 0; x < image->width; x++, row += 4) {
            for (uint32_t c = 0; c < 3; c++) {
                const uint32_t product = (uint32_t)row[c] * row[3] + 128;
                row[c] = (uint8_t)((product + (product >> 8)) >> 8); /* / 255, rounded */
            }
        }
    }
}

void brim__image_unpremultiply(const struct brim__image *image) {
    assert(image->pixel == 4);
    for (uint32_t y = 0; y < image->height; y++) {
        uint8_t *row = brim__image_row(image, y);
        for (uint32_t x = 0; x < image->width; x++, row += 4) {
            for (uint32_t c = 0; c < 3 && row[3] != 0; c++) {
                row[c] = (uint8_t)brim__min(255u * row[c] / row[3], 255);
            }
        }
    }
}

/* ------------------------------------------------------------------- tables */

void brim__image_add(const struct brim__image *image, double delta) {
    struct tables tables;
    for (int i = 0; i < VALUES; i++) {
        const float value = ((float)i * (1.0f / 255.0f) + (float)delta) * 255.5f;
        const float least = value < 0.0f ? 0.0f : value;
        tables.of[0][i] = (uint8_t)(int)(least > 255.0f ? 255.0f : least);
    }
    apply_one(image, &tables);
}

void brim__image_posterize(const struct brim__image *image, uint32_t bits) {
    assert(bits <= 8);
    struct tables tables;
    const uint32_t mask = 0xffu << (8 - bits);
    for (uint32_t i = 0; i < VALUES; i++) {
        tables.of[0][i] = (uint8_t)(i & mask);
    }
    apply_one(image, &tables);
}

void brim__image_solarize(const struct brim__image *image, uint32_t threshold) {
    struct tables tables;
    for (uint32_t i = 0; i < VALUES; i++) {
        tables.of[0][i] = (uint8_t)(i < threshold ? i : 255 - i);
    }
    apply_one(image, &tables);
}

void brim__image_autocontrast(const struct brim__image *image) {
    struct tables tables;
    struct histograms counts;
    count_values(image, &counts);
    for (uint32_t c = 0; c < channels_of(image); c++) {
        int low = 0, high = 255;
        while (low < 255 && counts.of[c][low] == 0) {
            low++;
        }
        while (high > 0 && counts.of[c][high] == 0) {
            high--;
        }
        const double scale = high > low ? 255.0 / (high - low) : 1.0;
        const double offset = high > low ? -low * scale : 0.0;
        for (int i = 0; i < VALUES; i++) {
            const double value = i * scale + offset;
            tables.of[c][i] = (uint8_t)(int)(value < 0.0 ? 0.0 : value > 255.0 ? 255.0 : value);
        }
    }
    apply(image, &tables);
}

void brim__image_equalize(const struct brim__image *image) {
    struct tables tables;
    struct histograms counts;
    count_values(image, &counts);
    const uint64_t pixels = (uint64_t)image->width * image->height;
    for (uint32_t c = 0; c < channels_of(image); c++) {
        int high = 255;
        while (high > 0 && counts.of[c][high] == 0) {
            high--;
        }
        const uint64_t step = (pixels - counts.of[c][high]) / 255;
        uint64_t below = step / 2;
        for (uint32_t i = 0; i < VALUES; i++) {
            tables.of[c][i] = (uint8_t)(step == 0 ? i : brim__min(below / step, 255));
            below += counts.of[c][i];
        }
    }
    apply(image, &tables);
}

/*
 * bounds.c: the most memory that any of many images needs, for any bound on pixels.
 *
 * An image of a few bytes may claim to be of any size. If it exceeds the bound on pixels, its need
 * must not decide the memory for all others. The bound comes from `decode`, long after the images
 * were probed, so the maximum of each quantity is kept for bands of sizes. The bands end at 2^16
 * pixels, and then at 2^k times 3/3, 4/3 and 5/3, rounded down. So powers of two, and the sizes
 * from which Pillow warns or refuses, are ends of bands, and a bound at the end of a band is exact.
 */
#include "image/decode.h"

/* The most pixels of a band. */
static uint64_t band_end(uint32_t number) {
    return (UINT64_C(1) << (16 + number / 3)) * (3 + number % 3) / 3;
}

static uint32_t band_of(uint64_t pixels) {
    uint32_t number = 0;
    while (number < BRIM__IMAGE_BANDS - 1 && pixels > band_end(number)) {
        number++;
    }
    return number;
}

void brim__image_bands_add(struct brim__image_band bands[BRIM__IMAGE_BANDS],
                           const struct brim__image_info *info, uint64_t sample) {
    const uint32_t pixels = info->width * info->height; /* fits: sides are at most BRIM__MAX_SIDE */
    struct brim__image_band *band = &bands[band_of(pixels)];
    const uint64_t needs = info->memory + info->outside;
    if (band->images == 0 || needs > band->needs) {
        band->needs = needs;
        band->sample = sample;
    }
    band->least = band->images == 0 || pixels < band->least ? pixels : band->least;
    band->pixels = pixels > band->pixels ? pixels : band->pixels;
    band->memory = brim__max(band->memory, info->memory);
    band->outside = brim__max(band->outside, info->outside);
    band->width = (uint16_t)brim__max(band->width, info->width);
    band->height = (uint16_t)brim__max(band->height, info->height);
    band->turned |= info->orientation != 1;
    band->images++;
}

bool brim__image_band_plausible(const struct brim__image_band *band, uint32_t number,
                                uint64_t samples, uint64_t most) {
    static const struct brim__image_band none;
    if (band->images == 0) {
        return memcmp(band, &none, sizeof none) == 0;
    }
    return band->images <= samples && band->sample < samples && band->memory < most &&
           band->outside < most && band->needs <= band->memory + band->outside &&
           band->least >= 1 && band->least <= band->pixels && band_of(band->least) == number &&
           band_of(band->pixels) == number && band->width >= 1 && band->height >= 1 &&
           band->pixels <= (uint64_t)band->width * band->height && band->turned <= 1 &&
           band->zero == 0;
}

struct brim__image_bounds brim__image_bounds_within(const struct brim__image_survey *survey,
                                                    uint64_t most_pixels) {
    struct brim__image_bounds bounds = { 0 };
    for (uint32_t i = 0; i < survey->count; i++) {
        const struct brim__image_band *band = &survey->band[i];
        if (band->least > most_pixels) {
            bounds.over += band->images;
            bounds.over_sample = band->sample;
            continue;
        }
        if (bounds.images == 0 || band->needs > bounds.needs) {
            bounds.needs = band->needs;
            bounds.sample = band->sample;
        }
        bounds.images += band->images;
        bounds.width = (uint32_t)brim__max(bounds.width, band->width);
        bounds.height = (uint32_t)brim__max(bounds.height, band->height);
        bounds.pixels = brim__max(bounds.pixels, brim__min(band->pixels, most_pixels));
        bounds.memory = brim__max(bounds.memory, band->memory);
        bounds.outside = brim__max(bounds.outside, band->outside);
        bounds.turned = bounds.turned || band->turned != 0;
    }
    return bounds;
}

/*
 * random_erasing.c: `random_erasing`: paints over a random rectangle, as torchvision's
 * RandomErasing, but before normalize: the colour is in the range of pixels, 0 to 255.
 *
 * Up to ten times an area and a ratio are drawn, until the rectangle is smaller than the image; if
 * it never is, the image stays as it is. Noise has its own key and depends on the position in the
 * rectangle.
 */
#include "base/real.h"
#include "order/philox.h"
#include "transform/geometry.h"
#include "transform/stages.h"

enum { P, SCALE, RATIO, VALUE, NOISE, SEED, ON };
enum { TRIES = 10 };
enum { LEFT, TOP, WIDTH, HEIGHT, KEY }; /* numbers of the act */

struct random_erasing {
    double p;
    double scale_low, scale_high;
    double ratio_low, ratio_high; /* logarithms */
    uint8_t color[4];
    bool noise;
};

static void run(const struct brim__act *act, const struct brim__image *from,
                const struct brim__image *to, uint8_t *scratch) {
    (void)from, (void)scratch;
    const double *number = act->pixels.number;
    brim__image_fill(to, (uint32_t)number[LEFT], (uint32_t)number[TOP], (uint32_t)number[WIDTH],
                     (uint32_t)number[HEIGHT], act->pixels.color);
}

/* Every byte of the colours is uniform; alpha is left alone. */
static void run_noise(const struct brim__act *act, const struct brim__image *from,
                      const struct brim__image *to, uint8_t *scratch) {
    (void)from, (void)scratch;
    const double *number = act->pixels.number;
    const uint32_t width = (uint32_t)number[WIDTH], height = (uint32_t)number[HEIGHT];
    const uint32_t colors = to->pixel == 4 ? 3 : 1;
    uint64_t key;
    memcpy(&key, &number[KEY], sizeof key);
    struct brim__philox_block block = { { 0 } };
    uint32_t at = 0;
    for (uint32_t y = 0; y < height; y++) {
        uint8_t *pixel = brim__image_row(to, (uint32_t)number[TOP] + y) +
                         (size_t)(uint32_t)number[LEFT] * to->pixel;
        for (uint32_t x = 0; x < width; x++, at++, pixel += to->pixel) {
            if (at % 4 == 0) {
                block = brim__philox(key, (const uint32_t[4]){ at / 4, 0, 0, 0 });
            }
            const uint32_t word = block.word[at % 4];
            const uint8_t bytes[3] = { (uint8_t)word, (uint8_t)(word >> 8), (uint8_t)(word >> 16) };
            memcpy(pixel, bytes, colors);
        }
    }
}

static void erase(const struct random_erasing *self, const struct brim__picture_draws *draws,
                  struct brim__acts *acts, uint32_t width, uint32_t height) {
    struct brim__act *act = brim__act_pixels(acts, self->noise ? run_noise : run, true);
    double *number = act->pixels.number;
    number[LEFT] = (double)brim__draw_below(draws, 0, acts->width - width + 1);
    number[TOP] = (double)brim__draw_below(draws, 1, acts->height - height + 1);
    number[WIDTH] = width;
    number[HEIGHT] = height;
    const uint64_t key =
        brim__hash_words(draws->key, draws->sample, brim__hash_words(draws->epoch, 0, 0));
    memcpy(&number[KEY], &key, sizeof key);
    memcpy(act->pixels.color, self->color, 4);
}

static brim_status resolve(const void *self, const struct brim__picture_draws *draws,
                           struct brim__acts *acts) {
    const struct random_erasing *erasing = self;
    if (brim__draw(draws, 0) >= erasing->p) {
        return BRIM_OK;
    }
    const double all = (double)acts->width * acts->height;
    for (uint32_t i = 0; i < TRIES; i++) {
        const double area =
            all * brim__draw_between(draws, 1 + 2 * i, erasing->scale_low, erasing->scale_high);
        const double ratio = brim__exp(
            brim__draw_between(draws, 2 + 2 * i, erasing->ratio_low, erasing->ratio_high));
        const double height = brim__sqrt(area * ratio) + 0.5,
                     width = brim__sqrt(area / ratio) + 0.5;
        if (height < acts->height && width < acts->width) {
            if (height >= 1.0 && width >= 1.0) {
                erase(erasing, draws, acts, (uint32_t)width, (uint32_t)height);
            }
            break;
        }
    }
    return BRIM_OK;
}

static brim_status add(const struct brim__use *use, struct brim__program *program) {
    struct random_erasing *self;
    uint32_t pictures;
    brim_status status = brim__arena_take(program->arena, sizeof *self, &self);
    if (status == BRIM_OK) {
        status = brim__geometry_range(use, SCALE, &self->scale_low, &self->scale_high);
    }
    if (status == BRIM_OK) {
        status = brim__geometry_range(use, RATIO, &self->ratio_low, &self->ratio_high);
    }
    if (status == BRIM_OK) {
        status = brim__geometry_color(use, VALUE, self->color);
    }
    if (status == BRIM_OK) {
        status = brim__picture_on(program, use, ON, false, &pictures, NULL);
    }
    if (status != BRIM_OK) {
        return status;
    }
    self->ratio_low = brim__log(self->ratio_low);
    self->ratio_high = brim__log(self->ratio_high);
    self->p = brim__item(use, P)->real;
    self->noise = brim__item(use, NOISE)->integer != 0;
    const struct brim__op op = { .resolve = resolve,
                                 .self = self,
                                 .key = brim__geometry_key(program, use, SEED,
                                                           brim__geometry_draws(self->p, true)),
                                 .pixels = true };
    return brim__geometry_add(program, &op, pictures, 0, 0, 0);
}

static const brim_argument_info arguments[] = {
    [P] = BRIM__P_ARGUMENT("0.5", BRIM_ARGUMENT_FLAG_POSITIONAL),
    [SCALE] = { .name = "scale",
                .type = BRIM_TYPE_REAL,
                .flags = BRIM_ARGUMENT_FLAG_LIST,
                .fallback = "0.02,0.33",
                .least = 0,
                .most = 1,
                .help = "area of the rectangle, as a share of the image's, drawn from low,high" },
    [RATIO] = { .name = "ratio",
                .type = BRIM_TYPE_REAL,
                .flags = BRIM_ARGUMENT_FLAG_LIST,
                .fallback = "0.3,3.3",
                .least = 1e-3,
                .most = 1e3,
                .help = "height to width, drawn from low,high" },
    [VALUE] = { .name = "value",
                .type = BRIM_TYPE_INTEGER,
                .flags = BRIM_ARGUMENT_FLAG_LIST,
                .fallback = "0",
                .least = 0,
                .most = 255,
                .help = "the colour: one value, or one for each channel" },
    [NOISE] = { .name = "noise",
                .type = BRIM_TYPE_YESNO,
                .fallback = "no",
                .help = "yes: a random colour for each pixel instead" },
    [SEED] = BRIM__DRAWS_SEED_ARGUMENT,
    [ON] = BRIM__IMAGES_ARGUMENT,
};

const struct brim__stage brim__stage_random_erasing = {
    .info = { .name = "random_erasing",
              .summary = "paints over a random rectangle",
              .example = "random_erasing 0.25",
              .room = BRIM_ROOM_TRANSFORM,
              .version = 1,
              .arguments = arguments,
              .argument_count = BRIM__COUNT(arguments) },
    .add_transform = add,
};

/*
 * geometry.h: the common part of the stages that crop, resize and turn images.
 */
#ifndef BRIM_GEOMETRY_H
#define BRIM_GEOMETRY_H

#include "image/pixels.h"
#include "transform/picture.h"

/* A size of one number (a square) or two: height and width. */
brim_status brim__geometry_size(const struct brim__use *use, size_t argument, uint32_t *width,
                                uint32_t *height);
enum brim__filter brim__geometry_filter(const struct brim__use *use, size_t argument);
/* A colour of one number or one for each channel; not given: 0. */
brim_status brim__geometry_color(const struct brim__use *use, size_t argument, uint8_t color[4]);
/* One or two numbers of a range: low and high. */
brim_status brim__geometry_range(const struct brim__use *use, size_t argument, double *low,
                                 double *high);
/* The key of a stage's draws. draws: they have an effect, so the stage is random. */
uint64_t brim__geometry_key(struct brim__program *program, const struct brim__use *use, size_t seed,
                            bool draws);
/* Whether draws have an effect: p decides at random if an image is changed, or, with `how`, draws
 * decide the change. */
bool brim__geometry_draws(double p, bool how);
/* Adds the same operation to all pictures. After it all have the size width x height; 0: their
 * sizes do not change. */
brim_status brim__geometry_add(struct brim__program *program, const struct brim__op *op,
                               uint32_t pictures, uint32_t boxes, uint32_t width, uint32_t height);

/* The fill for uncovered pixels: a colour in images, a class in masks. */
struct brim__fill {
    uint8_t color[4];
    uint8_t mask;
};
brim_status brim__geometry_fill(const struct brim__use *use, size_t color, size_t mask,
                                struct brim__fill *fill);
/* The four bytes of a pixel of this image or mask. */
void brim__fill_pixel(const struct brim__fill *fill, const struct brim__acts *acts,
                      uint8_t pixel[4]);

/* Adds an act that pads by `left`, `top` ... pixels on each side. */
void brim__act_pad(struct brim__acts *acts, uint32_t left, uint32_t top, uint32_t right,
                   uint32_t bottom, enum brim__edge edge, const struct brim__fill *fill);

#define BRIM__FILTER_ARGUMENT                                               \
    {                                                                       \
        .name = "filter", .type = BRIM_TYPE_CHOICE, .fallback = "bilinear", \
        .choices = "nearest|box|bilinear|bicubic|lanczos",                  \
        .help = "how pixels are weighted; masks always use nearest"         \
    }
#define BRIM__PICTURES_ARGUMENT                                                                 \
    {                                                                                           \
        .name = "on", .type = BRIM_TYPE_WORD, .flags = BRIM_ARGUMENT_FLAG_LIST,                 \
        .help =                                                                                 \
            "images, masks and boxes that are changed with the same draw; default: all images " \
            "and masks"                                                                         \
    }
#define BRIM__IMAGES_ARGUMENT                                                   \
    {                                                                           \
        .name = "on", .type = BRIM_TYPE_WORD, .flags = BRIM_ARGUMENT_FLAG_LIST, \
        .help = "images that are changed with the same draw; default: all"      \
    }
#define BRIM__SIZE_ARGUMENT(one)                                                                   \
    {                                                                                              \
        .name = "size", .type = BRIM_TYPE_INTEGER,                                                 \
        .flags =                                                                                   \
            BRIM_ARGUMENT_FLAG_REQUIRED | BRIM_ARGUMENT_FLAG_POSITIONAL | BRIM_ARGUMENT_FLAG_LIST, \
        .least = 1, .most = 32768, .help = one ", or height and width"                             \
    }
#define BRIM__PAD_ARGUMENT                                            \
    {                                                                 \
        .name = "pad", .type = BRIM_TYPE_YESNO, .fallback = "no",     \
        .help = "pad smaller images, which are bad samples otherwise" \
    }
#define BRIM__FILL_ARGUMENT(help_)                                                   \
    {                                                                                \
        .name = "fill", .type = BRIM_TYPE_INTEGER, .flags = BRIM_ARGUMENT_FLAG_LIST, \
        .fallback = "0", .least = 0, .most = 255, .help = help_                      \
    }
#define BRIM__MASK_FILL_ARGUMENT(what)                                                            \
    {                                                                                             \
        .name = "mask_fill", .type = BRIM_TYPE_INTEGER, .fallback = "0", .least = 0, .most = 255, \
        .help = "class of " what " pixels in masks"                                               \
    }
#define BRIM__P_ARGUMENT(otherwise, position)                                                      \
    {                                                                                              \
        .name = "p", .type = BRIM_TYPE_REAL, .flags = position, .fallback = otherwise, .least = 0, \
        .most = 1, .help = "the probability; 1: always"                                            \
    }
#define BRIM__DRAWS_SEED_ARGUMENT                                               \
    {                                                                           \
        .name = "seed", .type = BRIM_TYPE_INTEGER, .fallback = "0", .least = 0, \
        .most = 9007199254740992.0, .help = "another seed gives other draws"    \
    }

#endif

/*
 * look.h: how the samples of a field are images, and how their values become
 * colours.
 */
#ifndef CLI_LOOK_H
#define CLI_LOOK_H

#include <brim.h>
#include <stdbool.h>
#include <stddef.h>

#define LOOK_CHANNELS 4

/* One sample, its elements one after the other. */
struct image {
    brim_dtype dtype;
    uint32_t height, width, channels; /* 1 gray, 3 RGB, 4 RGB and opacity */
    bool planar;                      /* channels outermost: chw */
};

/* Whether a field holds images; if not, *why says what it lacks. */
bool image_of(const brim_plan_field *field, struct image *image, const char **why);
uint64_t image_bytes(const struct image *image);

/* value * std + mean is black at `black` and white at `white`. */
struct look {
    bool palette; /* values are numbers of classes */
    double mean[LOOK_CHANNELS], std[LOOK_CHANNELS];
    double black, white;
    char note[256]; /* what a reader of the sheet should know; "": nothing */
};

/* Finds the look of a field from the stages of a plan and its pipeline, and from `count`
 * samples. */
void look_find(struct look *look, const brim_plan *plan, const brim_pipeline *pipeline,
               const char *field, const struct image *image, unsigned char *const *samples,
               size_t count);
/* The colour of a pixel, 0xrrggbb. */
uint32_t look_colour(const struct look *look, const struct image *image, const unsigned char *data,
                     uint32_t x, uint32_t y);

#endif

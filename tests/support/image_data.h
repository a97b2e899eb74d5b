/*
 * image_data.h: small images of every format in folders, for tests of whole pipelines.
 */
#ifndef BRIM_TESTS_IMAGE_DATA_H
#define BRIM_TESTS_IMAGE_DATA_H

#include "support/support.h"

/* Slopes and noise: width x height pixels of 3 bytes. */
void draw_pixels(uint8_t *pixels, uint32_t width, uint32_t height, uint64_t seed);

/* Files below the test's directory; folders in the name must be there. */
void write_png(const char *name, const uint8_t *pixels, uint32_t width, uint32_t height);
void write_jpeg(const char *name, const uint8_t *pixels, uint32_t width, uint32_t height,
                bool progressive);
void write_webp(const char *name, const uint8_t *pixels, uint32_t width, uint32_t height);
void make_folder(const char *name);

/* Set-up of a cmocka group: begin_tests_in_memory() and
 *
 *   pets/cat pets/dog        4 images each, sizes from 40x30 on: JPEG, progressive JPEG, PNG, WebP
 *   pets.npy                 uint8 2 x 48 x 64 x 3; the same pixels as
 *   same                     two PNG files
 *   pets.csv                 path, label of two of them
 */
int begin_image_tests(void **state);

#endif

/*
 * pixels.h: operations on an image in memory.
 *
 * Definitions are Pillow's (ImageEnhance, ImageOps, Image.rotate) or torchvision's where Pillow has
 * none, bit-identical except for the blur. Unless a function says otherwise, it works in place on
 * 1- or 4-byte pixels and does not change the fourth byte. Nothing here takes memory.
 */
#ifndef BRIM_PIXELS_H
#define BRIM_PIXELS_H

#include "image/image.h"

/* ImageEnhance: factor 1 changes nothing. */
void brim__image_brightness(const struct brim__image *image, double factor);
void brim__image_contrast(const struct brim__image *image, double factor);
void brim__image_saturation(const struct brim__image *image, double factor);
/* from and to differ and have one size. */
void brim__image_sharpness(const struct brim__image *from, const struct brim__image *to,
                           double factor);
/* Turns the hue by `turn` of a full circle, -0.5 to 0.5, in 8-bit HSV as Pillow. */
void brim__image_hue(const struct brim__image *image, double turn);
/* tf.image.adjust_brightness of a uint8 image: adds delta, 1.0 being the full range. In float32:
 * (value / 255 + delta) * 255.5, clamped to 0 .. 255 and truncated. */
void brim__image_add(const struct brim__image *image, double delta);
/* Sets all channels to the pixel's gray. */
void brim__image_gray(const struct brim__image *image);
/* 4-byte pixels to 1-byte gray. */
void brim__image_to_gray(const struct brim__image *from, const struct brim__image *to);

void brim__image_posterize(const struct brim__image *image, uint32_t bits);
void brim__image_solarize(const struct brim__image *image, uint32_t threshold);
void brim__image_autocontrast(const struct brim__image *image);
void brim__image_equalize(const struct brim__image *image);

/* A rectangle set to one colour. */
void brim__image_fill(const struct brim__image *image, uint32_t x, uint32_t y, uint32_t width,
                      uint32_t height, const uint8_t color[4]);
void brim__image_copy(const struct brim__image *from, const struct brim__image *to);
void brim__image_flip_x(const struct brim__image *image);
void brim__image_flip_y(const struct brim__image *image);
/* Applies EXIF's orientation 1 to 8. From 5 on the sides of `to` are exchanged. */
void brim__image_orient(const struct brim__image *from, const struct brim__image *to,
                        uint8_t orientation);
/* Puts `from` at (x, y) in `to` and fills the rest. */
enum brim__edge { BRIM__EDGE_CONSTANT, BRIM__EDGE_EDGE, BRIM__EDGE_REFLECT, BRIM__EDGE_SYMMETRIC };
void brim__image_pad(const struct brim__image *from, const struct brim__image *to, uint32_t x,
                     uint32_t y, enum brim__edge edge, const uint8_t color[4]);

/* Image.transform(AFFINE): pixel (x, y) of `to` is taken from
 * (m[0] x + m[1] y + m[2], m[3] x + m[4] y + m[5]) of `from`; fill where that is outside. */
void brim__image_affine(const struct brim__image *from, const struct brim__image *to,
                        const double m[6], bool bilinear, const uint8_t fill[4]);
/* The matrix of Image.rotate, about the centre of an image of that size; degrees are
 * counter-clockwise. */
void brim__image_rotation(uint32_t width, uint32_t height, double degrees, double m[6]);
/* Multiply colours by alpha, the fourth byte, and undo it. For use before and after a bilinear
 * affine, as Image.transform does. */
void brim__image_premultiply(const struct brim__image *image);
void brim__image_unpremultiply(const struct brim__image *image);

/* torchvision's gaussian_blur: a kernel of `size` (odd, to BRIM__BLUR_MOST) taps a side,
 * reflected at the edges, all bytes of a pixel alike. scratch: brim__image_blur_bytes,
 * aligned to 2. Within 1 of 255. */
#define BRIM__BLUR_MOST 63
uint64_t brim__image_blur_bytes(uint32_t width, uint32_t height, uint32_t pixel);
void brim__image_blur(const struct brim__image *image, uint32_t size, double sigma,
                      uint8_t *scratch);

#endif

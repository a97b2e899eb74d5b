/*
 * jpeg_rough.h: a JPEG at a quarter or an eighth of its size, from the lowest coefficients of
 * its blocks alone.
 *
 * The first coefficient of a block of 8 x 8 pixels is their mean: the whole picture at an eighth.
 * With the three next to it there are the means of its quarters. All others are skipped, which is
 * faster than reading them; they are most of the cost of decoding a large photograph.
 */
#ifndef BRIM_JPEG_ROUGH_H
#define BRIM_JPEG_ROUGH_H

#include "image/jpeg_memory.h"

/* Whether it can be done, once libjpeg has read the header: one scan, Huffman codes, gray or
 * the usual colours and samplings. */
bool brim__jpeg_is_rough(const struct jpeg_decompress_struct *jpeg,
                         const struct brim__decoding *decoding);
/* The region's rows. At an eighth luminance is what libjpeg gives. Chrominance is repeated
 * where it has fewer pixels. data: what libjpeg has left of the input's piece. */
brim_status brim__jpeg_rough(struct jpeg_decompress_struct *jpeg,
                             const struct brim__decoding *decoding, const uint8_t *data,
                             size_t bytes, brim__row_sink *sink, void *user);

#endif

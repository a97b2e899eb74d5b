/*
 * jpeg_rough.h: decodes a JPEG at a quarter or an eighth of its size, using only the lowest
 * coefficients of its blocks.
 *
 * The first coefficient of a block of 8 x 8 pixels is their mean: the whole picture at an eighth.
 * With the next three coefficients, the means of the block's quarters can be computed. All others
 * are skipped, which is faster than reading them; reading them is most of the cost of decoding a
 * large photograph.
 */
#ifndef BRIM_JPEG_ROUGH_H
#define BRIM_JPEG_ROUGH_H

#include "image/jpeg_memory.h"

/* Whether it can be done, once libjpeg has read the header: one scan, Huffman codes, gray or
 * the usual colours and samplings. */
bool brim__jpeg_is_rough(const struct jpeg_decompress_struct *jpeg,
                         const struct brim__decoding *decoding);
/* Makes the region's rows. At an eighth, luminance equals libjpeg's. Chrominance with fewer pixels
 * is repeated. data: the bytes of the input's piece that libjpeg has not read. */
brim_status brim__jpeg_rough(struct jpeg_decompress_struct *jpeg,
                             const struct brim__decoding *decoding, const uint8_t *data,
                             size_t bytes, brim__row_sink *sink, void *user);

#endif

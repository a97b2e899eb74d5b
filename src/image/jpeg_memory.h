/*
 * jpeg_memory.h: gives libjpeg all its memory from one block.
 *
 * libjpeg asks a memory manager for everything: small objects, rows of samples, and, where an image
 * comes in several scans, the coefficients of all of it. This manager takes from a block that was
 * sized by the image's header, and frees nothing: a decoder exists for one image.
 * brim__jpeg_memory_bound gives the size that the block must have.
 */
#ifndef BRIM_JPEG_MEMORY_H
#define BRIM_JPEG_MEMORY_H

#include "image/decode.h"

#include <stdio.h> /* jpeglib.h needs it */

#include <jpeglib.h>

/* Rows of pixels begin this far from an aligned address: libjpeg-turbo writes aligned
 * ones past the caches, from where the resizer would have to fetch each again. */
#define BRIM__JPEG_UNALIGNED 8

struct brim__jpeg_memory {
    struct jpeg_memory_mgr manager; /* first: libjpeg hands this back */
    uint8_t *data;
    size_t bytes, used;
    jvirt_barray_ptr arrays; /* asked for */
};

/* data: aligned to 64. Then jpeg->mem = &memory->manager, after keeping the one that
 * was there: it holds what jpeg_create_decompress took, and must be put back before
 * jpeg_destroy_decompress. */
void brim__jpeg_memory_init(struct brim__jpeg_memory *memory, uint8_t *data, size_t bytes);

/* Bytes aligned to 64; libjpeg's error exit (JERR_OUT_OF_MEMORY) if there are none left. */
void *brim__jpeg_memory_take(j_common_ptr jpeg, size_t bytes);

/* Most bytes that decoding takes here, one row of output included, for any region, colour
 * and scale: a function of size, sampling factors, and whether it is held whole. */
uint64_t brim__jpeg_memory_bound(const struct brim__image_info *info);

/* Most bytes that jpeg_create_decompress takes from the system before the manager can be
 * put in. */
#define BRIM__JPEG_OUTSIDE 4096

#endif

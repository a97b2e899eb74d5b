/*
 * jpeg_memory.h: gives libjpeg all its memory from one block.
 *
 * libjpeg takes all memory from a memory manager: small objects, rows of samples, and, if an image
 * has several scans, all its coefficients. This manager takes it from a block that was sized by the
 * image's header. It frees nothing, because a decoder exists for one image only.
 * brim__jpeg_memory_bound gives the size that the block must have.
 */
#ifndef BRIM_JPEG_MEMORY_H
#define BRIM_JPEG_MEMORY_H

#include "image/decode.h"

#include <stdio.h> /* jpeglib.h needs it */

#include <jpeglib.h>

/* Rows of pixels begin this far from an aligned address. libjpeg-turbo writes aligned rows past the
 * caches, so the resizer would have to load them from memory. */
#define BRIM__JPEG_UNALIGNED 8

struct brim__jpeg_memory {
    struct jpeg_memory_mgr manager; /* first: libjpeg hands this back */
    uint8_t *data;
    size_t bytes, used;
    jvirt_barray_ptr arrays; /* asked for */
};

/* data: aligned to 64. The caller then saves the old jpeg->mem and sets it to &memory->manager. The
 * old manager holds the memory of jpeg_create_decompress, and must be put back before
 * jpeg_destroy_decompress. */
void brim__jpeg_memory_init(struct brim__jpeg_memory *memory, uint8_t *data, size_t bytes);

/* Bytes aligned to 64; libjpeg's error exit (JERR_OUT_OF_MEMORY) if there are none left. */
void *brim__jpeg_memory_take(j_common_ptr jpeg, size_t bytes);

/* The most bytes that decoding takes here, including one row of output, for any region, colour and
 * scale. They depend on size, sampling factors, and whether the image is held whole. */
uint64_t brim__jpeg_memory_bound(const struct brim__image_info *info);

/* The most bytes that jpeg_create_decompress takes from the system before the manager can be
 * installed. */
#define BRIM__JPEG_OUTSIDE 4096

#endif

/*
 * npy_header.h: the header of an npy file, read with a fixed grammar.
 */
#ifndef BRIM_NPY_HEADER_H
#define BRIM_NPY_HEADER_H

#include "base/file.h"
#include "tensor/tensor.h"

#define BRIM__NPY_HEADER_BYTES 65536 /* longest header text */

struct brim__npy_header {
    brim_dtype dtype;
    bool swapped;             /* big-endian elements of more than one byte */
    bool fortran;             /* the first dimension varies fastest */
    struct brim__shape shape; /* of the whole array */
    uint64_t data;            /* byte at which the elements begin */
    uint64_t bytes;           /* of all elements, at most 2^63 - 1 */
};

/* Understands the header and makes sure that the file is long enough for what
 * it promises. Takes no memory but 64 KiB of stack. */
brim_status brim__npy_header_read(const struct brim__file *file, struct brim__npy_header *header);

#endif

/*
 * npy_header.h: reads the header of an npy file with a fixed grammar, and sets up a source by it.
 */
#ifndef BRIM_NPY_HEADER_H
#define BRIM_NPY_HEADER_H

#include "base/file.h"
#include "source/inflate.h"
#include "source/source.h"
#include "tensor/tensor.h"

#define BRIM__NPY_HEADER_BYTES 65536 /* longest header text */

struct brim__npy_header {
    brim_dtype dtype;
    bool swapped;             /* big-endian elements of more than one byte */
    bool fortran;             /* the first dimension varies fastest */
    struct brim__shape shape; /* of the whole array */
    uint64_t data;            /* byte of the input at which the elements begin */
    uint64_t bytes;           /* of all elements, at most 2^63 - 1 */
};

/* What an npy file is read from: a whole file, a range of a file, or the output of an inflater,
 * which is read once and in order. */
struct brim__npy_input {
    const struct brim__file *file; /* NULL: inflated */
    struct brim__inflater *inflater;
    uint64_t begin, bytes;   /* the range; begin is 0 of what is inflated */
    const char *path, *noun; /* "x.npz, a.npy", "member": for messages */
};

/* Reads the header and checks that the input is long enough for the array. Takes no memory except
 * 64 KiB of stack. */
brim_status brim__npy_header_read_in(const struct brim__npy_input *input,
                                     struct brim__npy_header *header);
/* The same for a whole file. */
brim_status brim__npy_header_read(const struct brim__file *file, struct brim__npy_header *header);

/* ------------------------------------------------------------------- npy.c */

/* Whether the array is in Fortran order with a sample's elements spread over all of it. */
bool brim__npy_scattered(const struct brim__npy_header *header);
/* Fails if the array cannot be a source. in_memory: it is mapped, or held in memory. */
brim_status brim__npy_check(const char *path, const struct brim__npy_header *header,
                            bool in_memory);
/* Sets the source's one field, record_bytes, pitch, the begin of its identity and, for a scattered
 * array, its ops. The field's name must be set already. */
void brim__npy_set_source(struct brim__source *source, const struct brim__npy_header *header);

#endif

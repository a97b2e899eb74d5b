/*
 * npy_header.h: the header of an npy file, read with a fixed grammar, and what
 * a source makes of it.
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
    uint64_t data;            /* byte of the place at which the elements begin */
    uint64_t bytes;           /* of all elements, at most 2^63 - 1 */
};

/* Where an npy file lies: in a file of its own, in a range of one, or in what an
 * inflater puts out, which is read once and in order. */
struct brim__npy_place {
    const struct brim__file *file; /* NULL: inflated */
    struct brim__inflater *inflater;
    uint64_t begin, bytes;   /* the range; begin is 0 of what is inflated */
    const char *path, *noun; /* "x.npz, a.npy", "member": for messages */
};

/* Understands the header and makes sure that the place is long enough for what
 * it promises. Takes no memory but 64 KiB of stack. */
brim_status brim__npy_header_read_in(const struct brim__npy_place *place,
                                     struct brim__npy_header *header);
/* Of a file that is nothing else. */
brim_status brim__npy_header_read(const struct brim__file *file, struct brim__npy_header *header);

/* ------------------------------------------------------------------- npy.c */

/* Fortran order, with a sample's elements all over the array. */
bool brim__npy_scattered(const struct brim__npy_header *header);
/* Can the array be a source at all? in_memory: mapped, or held. */
brim_status brim__npy_check(const char *path, const struct brim__npy_header *header,
                            bool in_memory);
/* The source's one field, record_bytes, pitch, the begin of its identity and, of a
 * scattered array, its ops. The field's name is set already. */
void brim__npy_set_source(struct brim__source *source, const struct brim__npy_header *header);

#endif

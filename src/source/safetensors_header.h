/*
 * safetensors_header.h: the header of a safetensors file, checked as a whole.
 */
#ifndef BRIM_SAFETENSORS_HEADER_H
#define BRIM_SAFETENSORS_HEADER_H

#include "base/file.h"
#include "memory/budget.h"

struct brim__safetensor {
    const char *dtype_name; /* as the format has it */
    brim_dtype dtype;       /* 0: none of brim's */
    uint32_t rank;          /* `dim` holds the first BRIM_MAX_RANK */
    uint64_t dim[BRIM_MAX_RANK];
    uint64_t data; /* byte of the file at which its elements begin */
};

/* Reads the header, checks all of it against the file, and finds the tensor of the name `wanted`;
 * NULL: the only one. On success the tensor's elements are inside the file. Temporary memory is
 * returned. */
brim_status brim__safetensors_read(const struct brim__file *file, const char *wanted,
                                   brim_budget *budget, struct brim__safetensor *tensor);

#endif

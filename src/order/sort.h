/*
 * sort.h: sorting in place, without memory and without a worst case.
 *
 * The C library's qsort may allocate, uncounted.
 */
#ifndef BRIM_SORT_H
#define BRIM_SORT_H

#include "base/base.h"

/* Sorts in ascending order of the key, the first 8 bytes of each element, which is a signed integer
 * if `key` says so. Elements are `bytes` long, at most BRIM__SORT_BYTES. The order of equal
 * elements may change. */
#define BRIM__SORT_BYTES 32
void brim__sort(void *elements, uint64_t count, size_t bytes, bool is_signed);

#endif

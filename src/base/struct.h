/*
 * struct.h: structs of the public header that a caller makes and that grow at their end.
 *
 * Each begins with its `size` in bytes, as the caller's header has it. One that is shorter than
 * this library's comes from an older header: what it lacks has its default. One that is longer
 * comes from a newer header. It is accepted if all bytes that this library does not know are 0, so
 * that no option that the caller set is ignored.
 */
#ifndef BRIM_STRUCT_H
#define BRIM_STRUCT_H

#include "base/base.h"

/* For options. `known` is this library's struct, filled with the defaults; the `size` bytes of
 * `given` are copied over it. what: "open options"; init: the macro that sets `size`. */
brim_status brim__struct_take(const char *what, const char *init, const void *given, size_t size,
                              void *known, size_t known_bytes);

/* For structs that the library fills: BRIM_STATUS_INVALID unless `given` is a struct whose size is
 * set. */
brim_status brim__struct_check(const char *what, const char *init, const void *given);
/* Copies `made`, this library's struct, to `given`. The rest of a longer `given` becomes 0. */
void brim__struct_give(void *given, const void *made, size_t made_bytes);

/* BRIM_STATUS_INVALID: "brim_loader_next: loader must not be NULL", where brim_loader_next says
 * `return brim__fail_null("loader")`. */
#define brim__fail_null(what) brim__failed(BRIM_STATUS_INVALID, brim__null_write(__func__, what))
bool brim__null_write(const char *call, const char *what);

#endif

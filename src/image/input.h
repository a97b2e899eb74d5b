/*
 * input.h: encoded bytes, in memory or read from a file through a window.
 *
 * A decoder that reads from front to back asks for the next piece each time and never holds the
 * whole file. One that jumps (headers) asks by offset.
 */
#ifndef BRIM_INPUT_H
#define BRIM_INPUT_H

#include "base/file.h"
#include "base/stop.h"

#define BRIM__INPUT_WINDOW 65536 /* bytes of a window for a file */

struct brim__input {
    uint64_t bytes; /* all of it */
    /* in memory: `memory` is all; else the file's [base, base + bytes) is read
     * into `window`, which now holds [at, at + have) */
    const uint8_t *memory;
    const struct brim__file *file;
    uint64_t base;
    uint8_t *window;
    uint64_t at;
    size_t have;
    uint64_t next;           /* where brim__input_next continues */
    struct brim__stop *stop; /* asked for each piece: BRIM_STATUS_INTERRUPTED; NULL: none */
};

void brim__input_memory(struct brim__input *input, const void *memory, uint64_t bytes);
/* window: BRIM__INPUT_WINDOW bytes. */
void brim__input_file(struct brim__input *input, const struct brim__file *file, uint64_t base,
                      uint64_t bytes, uint8_t *window);

/* Gives the bytes [offset, offset + bytes), at most a window; valid until the next call. Past the
 * end: BRIM_STATUS_CORRUPT, "ends after N bytes". */
brim_status brim__input_at(struct brim__input *input, uint64_t offset, size_t bytes,
                           const uint8_t **data);
/* Gives the next piece, from `next` on, at least one byte and at most a window, and moves `next`
 * after it. *bytes is 0 at the end. */
brim_status brim__input_next(struct brim__input *input, const uint8_t **data, size_t *bytes);
static inline void brim__input_seek(struct brim__input *input, uint64_t offset) {
    input->next = offset;
}

#endif

/*
 * input.c: encoded bytes, in memory or read from a file through a window.
 *
 * A window is filled from the requested byte to its own end or the input's. So sequential reads
 * mostly find it filled, and each jump costs one read. It contains [at, at + have); after a failed
 * read it is empty.
 */
#include "image/input.h"

void brim__input_memory(struct brim__input *input, const void *memory, uint64_t bytes) {
    *input = (struct brim__input){ .bytes = bytes, .memory = memory };
    if (memory == NULL) {
        assert(bytes == 0);
        input->memory = (const uint8_t *)"";
    }
}

void brim__input_file(struct brim__input *input, const struct brim__file *file, uint64_t base,
                      uint64_t bytes, uint8_t *window) {
    *input = (struct brim__input){ .bytes = bytes, .file = file, .base = base, .window = window };
}

/* Makes the window begin with `offset`, which is inside the input. */
static brim_status fill(struct brim__input *input, uint64_t offset) {
    const size_t bytes = (size_t)brim__min(input->bytes - offset, BRIM__INPUT_WINDOW);
    uint64_t from;
    input->have = 0;
    if (brim__stopped(input->stop)) {
        return brim__interrupted();
    }
    if (brim__add_overflows(input->base, offset, &from)) {
        return brim__fail(BRIM_STATUS_CORRUPT, "%s: byte %llu + %llu lies outside of any file",
                          input->file->path, (unsigned long long)input->base,
                          (unsigned long long)offset);
    }
    const brim_status status = brim__file_read(input->file, from, input->window, bytes);
    if (status == BRIM_OK) {
        input->at = offset;
        input->have = bytes;
    }
    return status;
}

brim_status brim__input_at(struct brim__input *input, uint64_t offset, size_t bytes,
                           const uint8_t **data) {
    uint64_t end;
    assert(bytes <= BRIM__INPUT_WINDOW);
    if (brim__add_overflows(offset, bytes, &end) || end > input->bytes) {
        return brim__fail(BRIM_STATUS_CORRUPT,
                          "ends after %llu bytes; %llu are needed at byte %llu",
                          (unsigned long long)input->bytes, (unsigned long long)bytes,
                          (unsigned long long)offset);
    }
    if (input->memory != NULL) {
        *data = input->memory + offset;
        return BRIM_OK;
    }
    if (offset < input->at || end > input->at + input->have) {
        const brim_status status = fill(input, offset);
        if (status != BRIM_OK) {
            return status;
        }
    }
    *data = input->window + (offset - input->at);
    return BRIM_OK;
}

brim_status brim__input_next(struct brim__input *input, const uint8_t **data, size_t *bytes) {
    const uint64_t offset = input->next;
    *bytes = 0;
    *data = NULL;
    if (offset >= input->bytes) {
        return BRIM_OK;
    }
    if (input->memory != NULL) {
        if (brim__stopped(input->stop)) {
            return brim__interrupted();
        }
        *data = input->memory + offset;
        *bytes = (size_t)brim__min(input->bytes - offset, BRIM__INPUT_WINDOW);
    } else {
        if (offset < input->at || offset >= input->at + input->have) {
            const brim_status status = fill(input, offset);
            if (status != BRIM_OK) {
                return status;
            }
        }
        *data = input->window + (offset - input->at);
        *bytes = input->have - (size_t)(offset - input->at);
    }
    input->next = offset + *bytes;
    return BRIM_OK;
}

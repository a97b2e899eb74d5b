/*
 * struct.c: see struct.h.
 */
#include "base/struct.h"

/* Every struct of the header is much smaller, so a larger size is an uninitialized one. */
#define MOST_BYTES 65536

static brim_status check_size(const char *what, const char *init, size_t size) {
    return size >= sizeof size && size <= MOST_BYTES
               ? BRIM_OK
               : brim__fail(BRIM_STATUS_INVALID,
                            "%s: size is %zu: initialise the struct with "
                            "%s",
                            what, size, init);
}

brim_status brim__struct_take(const char *what, const char *init, const void *given, size_t size,
                              void *known, size_t known_bytes) {
    const brim_status status = check_size(what, init, size);
    if (status != BRIM_OK) {
        return status;
    }
    const uint8_t *bytes = given;
    for (size_t i = known_bytes; i < size; i++) {
        if (bytes[i] != 0) {
            return brim__fail(BRIM_STATUS_UNSUPPORTED,
                              "%s: byte %zu of %zu is set, but brim %s knows the first %zu only: "
                              "leave newer fields at 0, or load a newer library",
                              what, i, size, brim_version(), known_bytes);
        }
    }
    memcpy(known, given, brim__min(size, known_bytes));
    memcpy(known, &known_bytes, sizeof known_bytes);
    return BRIM_OK;
}

static size_t size_of(const void *given) {
    size_t size;
    memcpy(&size, given, sizeof size);
    return size;
}

brim_status brim__struct_check(const char *what, const char *init, const void *given) {
    if (given == NULL) {
        return brim__fail(BRIM_STATUS_INVALID, "%s: the struct must not be NULL", what);
    }
    return check_size(what, init, size_of(given));
}

void brim__struct_give(void *given, const void *made, size_t made_bytes) {
    const size_t size = size_of(given);
    memset(given, 0, size);
    memcpy(given, made, brim__min(size, made_bytes));
    memcpy(given, &size, sizeof size);
}

bool brim__null_write(const char *call, const char *what) {
    return brim__failure_write(BRIM_STATUS_INVALID, "%s: %s must not be NULL", call, what);
}

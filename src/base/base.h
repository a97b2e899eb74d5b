/*
 * base.h: definitions that every other file of the library may use.
 *
 * Checked arithmetic for sizes that come from files and users, alignment, and the only way to fail:
 * brim__fail() writes the calling thread's detail text and returns the status, so that an error is
 * raised in one line:
 *
 *     return brim__fail(BRIM_STATUS_CORRUPT, "%s: byte %llu: ...", path, at);
 */
#ifndef BRIM_BASE_H
#define BRIM_BASE_H

#include <brim.h>

#include <assert.h>
#include <stdbool.h>
#include <string.h>

#define BRIM__DETAIL_BYTES 1024

#define BRIM__COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define BRIM__UNLIKELY(x)  __builtin_expect(!!(x), 0)
#define BRIM__CACHE_LINE   64

/* Write the thread's detail: a text; a prefix and ": " before the detail that is there; a text as
 * it is. Each returns true, so that it can be an argument. */
bool brim__detail_write(const char *format, ...) __attribute__((format(printf, 1, 2)));
bool brim__detail_prefix(const char *format, ...) __attribute__((format(printf, 1, 2)));
bool brim__detail_copy(const char *text);

static inline brim_status brim__failed(brim_status status, bool written) {
    (void)written;
    return status;
}

/* Writes the thread's detail and returns status. The three are macros because an analyzer looks at
 * one file at a time: it must see here that a failure returns the status that it was given, or it
 * takes every failure for a success that left its results unset. */
#define brim__fail(status, ...) brim__failed((status), brim__detail_write(__VA_ARGS__))
/* Puts "prefix: " before the thread's detail and returns status. */
#define brim__fail_within(status, ...) brim__failed((status), brim__detail_prefix(__VA_ARGS__))
/* Makes `text` the thread's detail: for errors that another thread met. */
#define brim__fail_text(status, text) brim__failed((status), brim__detail_copy(text))

/* What brim_refusal_read tells, for the calling thread. The calls that it speaks of begin with
 * brim__refusal_begin and end with brim__refusal_end, which returns `status`; whatever refuses
 * on the way notes what it knows. */
struct brim__refusal_note {
    uint64_t needed;       /* of host memory: what the budget that asked had, and asked for */
    uint64_t others_bytes; /* as in brim_refusal */
    bool blocked;
    brim_refusal told;
};
struct brim__refusal_note *brim__refusal_note(void);
void brim__refusal_begin(void);
brim_status brim__refusal_end(brim_status status);

/* true: the result did not fit, *result is undefined. */
static inline bool brim__add_overflows(uint64_t a, uint64_t b, uint64_t *result) {
    return __builtin_add_overflow(a, b, result);
}
static inline bool brim__mul_overflows(uint64_t a, uint64_t b, uint64_t *result) {
    return __builtin_mul_overflow(a, b, result);
}

static inline uint64_t brim__min(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}
static inline uint64_t brim__max(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}
static inline uint64_t brim__divide_up(uint64_t a, uint64_t b) {
    return a / b + (a % b != 0);
}
/* alignment is a power of two; the caller has made sure that it does not overflow. */
static inline uint64_t brim__align(uint64_t value, uint64_t alignment) {
    return (value + alignment - 1) & ~(alignment - 1);
}

/* Copies at most bytes - 1 characters and ends with a zero; false if cut. */
bool brim__copy_text(char *to, size_t bytes, const char *from);

/* "1.5 MiB": for people. Returns `text`. */
#define BRIM__SIZE_TEXT 24
const char *brim__size_text(uint64_t bytes, char text[BRIM__SIZE_TEXT]);

/* What the system says to an errno value. Returns `text`. */
#define BRIM__ERROR_TEXT 80
const char *brim__error_text(int error, char text[BRIM__ERROR_TEXT]);

/* hash64 of bytes and of a few integers (libxxhash); part of the formats:
 * fingerprints and random keys depend on it. */
uint64_t brim__hash(const void *bytes, size_t count, uint64_t seed);
uint64_t brim__hash_words(uint64_t a, uint64_t b, uint64_t c);

#endif

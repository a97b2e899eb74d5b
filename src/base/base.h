/*
 * base.h: definitions that every other file of the library may use.
 *
 * Checked arithmetic for sizes that come from files and users, alignment, and the only way to fail:
 * brim__fail() writes the calling thread's last failure and returns the status, so that an error is
 * raised in one line:
 *
 *     return brim__fail(BRIM_STATUS_CORRUPT, "%s: ...", path);
 *     return brim__fail_byte(BRIM_STATUS_CORRUPT, path, at, "...");
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

/* A failure as it is kept for another call or thread; see brim_failure. */
struct brim__failure {
    brim_status status;
    uint32_t stage_index;  /* BRIM_NO_STAGE: unknown */
    size_t begin, end, at; /* of the stage in the text; both 0: unknown */
    uint64_t sample, byte; /* BRIM_UNKNOWN */
    uint64_t cause;        /* 0: none */
    char stage[BRIM_NAME_BYTES];
    char argument[BRIM_NAME_BYTES];
    char source[BRIM_SOURCE_BYTES];
    char text[BRIM__DETAIL_BYTES];
};

/* Each sets the thread's last failure, with `status`, and returns true, so that it can be an
 * argument. write: a formatted text; write_byte: the same after "path: byte N: "; prefix: puts a
 * prefix and ": " before the present text, and keeps the other fields; copy: a text as it is;
 * copy_kept: a failure that was kept. */
bool brim__failure_write(brim_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
bool brim__failure_write_byte(brim_status status, const char *path, uint64_t byte,
                              const char *format, ...) __attribute__((format(printf, 4, 5)));
bool brim__failure_prefix(brim_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
bool brim__failure_copy(brim_status status, const char *text);
bool brim__failure_copy_kept(brim_status status, const struct brim__failure *kept);

static inline brim_status brim__failed(brim_status status, bool written) {
    (void)written;
    return status;
}

/* These write the thread's failure and return status. They are macros because an analyzer looks at
 * one file at a time: it must see here that a failure returns the status that it was given, or it
 * assumes that every failure is a success whose results are unset. */
#define brim__fail(status, ...) brim__failed((status), brim__failure_write((status), __VA_ARGS__))
/* The same for a byte of a file: the text begins with "path: byte 17: ". */
#define brim__fail_byte(status, path, byte, ...) \
    brim__failed((status), brim__failure_write_byte((status), (path), (byte), __VA_ARGS__))
/* Puts "prefix: " before the thread's text and returns status, which is a variable. */
#define brim__fail_within(status, ...) \
    brim__failed((status), brim__failure_prefix((status), __VA_ARGS__))
/* Makes `text` the thread's detail. */
#define brim__fail_text(status, text) brim__failed((status), brim__failure_copy((status), (text)))
/* Sets the thread's failure from a kept one, for errors that another thread met. */
#define brim__fail_kept(status, kept) \
    brim__failed((status), brim__failure_copy_kept((status), (kept)))

/* Keep the thread's last failure, and put it back after calls whose own failures do not matter.
 * What the failure said about memory (brim__lack) is lost. */
void brim__failure_keep(struct brim__failure *kept);
void brim__failure_restore(const struct brim__failure *kept);
/* Writes a kept failure without changing the thread's. */
void brim__failure_set(struct brim__failure *kept, brim_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Fills *out. Fails if `out` is NULL or its size is not set. */
brim_status brim__failure_tell(const struct brim__failure *kept, brim_failure *out);

/* These add facts to the thread's last failure: stage, argument, source, byte, sample. The text is
 * written where an error is raised, but these facts are often known only to its callers. The
 * callee's facts are nearer to the cause, so those of stage, step, argument, source and sample do
 * not replace a fact that is there. brim__at_* return `status`:
 *
 *     return brim__at_byte(brim__fail(BRIM_STATUS_CORRUPT, "..."), path, at);
 *
 * For BRIM_OK they change nothing. */
struct brim__spot { /* a stage of a pipeline */
    const char *stage;
    uint32_t index;    /* BRIM_NO_STAGE: unknown */
    size_t begin, end; /* bytes of the text; both 0: unknown */
};
void brim__note_stage(const struct brim__spot *spot);
void brim__note_text_byte(size_t at);             /* the byte of the text that is wrong */
void brim__note_extent(size_t begin, size_t end); /* of the stage in another text */
uint32_t brim__noted_stage(void);                 /* BRIM_NO_STAGE: unknown */
void brim__note_step(uint32_t index);             /* the stage's number alone, until it is named */
uint32_t brim__noted_step(void);
void brim__note_argument(const char *name);
void brim__note_source(const char *name);
/* A file and a byte of it. Ignored if another file has been named, because the byte is not in that
 * one. */
void brim__note_source_byte(const char *path, uint64_t byte);
void brim__note_file(const char *path); /* replaces the source's name */
void brim__note_sample(uint64_t sample);
void brim__note_cause(void); /* takes the callback's: brim_callback_cause */
bool brim__cause_said(void); /* it has said one */
uint64_t brim__noted_cause(void);
void brim__put_cause(uint64_t cause); /* for a failure that repeats another one */

static inline brim_status brim__at_stage(brim_status status, const struct brim__spot *spot) {
    if (status != BRIM_OK) {
        brim__note_stage(spot);
    }
    return status;
}
static inline brim_status brim__at_argument(brim_status status, const char *name) {
    if (status != BRIM_OK) {
        brim__note_argument(name);
    }
    return status;
}
static inline brim_status brim__at_source(brim_status status, const char *name) {
    if (status != BRIM_OK) {
        brim__note_source(name);
    }
    return status;
}
static inline brim_status brim__in_file(brim_status status, const char *path) {
    if (status != BRIM_OK) {
        brim__note_file(path);
    }
    return status;
}
static inline brim_status brim__at_byte(brim_status status, const char *path, uint64_t byte) {
    if (status != BRIM_OK) {
        brim__note_source_byte(path, byte);
    }
    return status;
}
static inline brim_status brim__at_sample(brim_status status, uint64_t sample) {
    if (status != BRIM_OK) {
        brim__note_sample(sample);
    }
    return status;
}
static inline brim_status brim__at_callback(brim_status status) {
    if (status != BRIM_OK) {
        brim__note_cause();
    }
    return status;
}

static inline brim_status brim__at_cause(brim_status status, uint64_t cause) {
    brim__put_cause(cause);
    return status;
}

/* What the thread's last failure says about memory. The code that refuses memory fills it after
 * brim__fail. It is empty after every other failure. */
struct brim__lack {
    uint64_t needed; /* of host memory: what the budget that asked had, and asked for */
    uint64_t wanted;
    brim_memory kind;
    uint64_t minimum_bytes, minimum_pinned_bytes, minimum_device_bytes;
    uint64_t others_bytes;
    bool exact, blocked;
    bool final; /* the minimum is that of the whole call, not of one charge in it */
    uint32_t holder_count;
    brim_holder holder[BRIM_MAX_HOLDERS];
};
struct brim__lack *brim__lack(void);
/* Adds a holder, if there is room for one more. */
void brim__lack_holder(struct brim__lack *out, const char *label, uint64_t bytes);
/* To be called at the end of a call that opens something. It clears the minimum, unless it is
 * `final`: the minimum of one charge is less than what the whole call needs. Returns `status`. */
brim_status brim__lack_of_opening(brim_status status);

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

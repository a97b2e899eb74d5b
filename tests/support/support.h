/*
 * support.h: what the tests of the engine as a whole share.
 *
 * Files in a directory of the test's own, a loader opened in a runtime of its
 * own, and two ways to look at what it gives: a digest (are two runs the same?)
 * and a log of batches and rows (what came, and in which order?). Helpers
 * assert what they rely on, so that a test says only what it is about.
 */
#ifndef BRIM_TESTS_SUPPORT_H
#define BRIM_TESTS_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <brim.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* ------------------------------------------------------------------ groups */

/* Set-up and tear-down of a cmocka group: a temporary directory, and an alarm
 * that ends a test that hangs. */
int begin_tests(void **state);
/* The directory is one in memory where there is such: for tests that make many
 * indexes, each of which is synchronised with the disk. */
int begin_tests_in_memory(void **state);
int end_tests(void **state);

/* ------------------------------------------------------------------- files */

#define TEXT_BYTES 2048

/* Formats into the caller's buffer of TEXT_BYTES; every "%s" of a file goes
 * through in_directory(). Returns text. */
const char *format_text(char text[TEXT_BYTES], const char *format, ...)
    __attribute__((format(printf, 2, 3)));

struct path {
    char text[96];
};
struct path in_directory(const char *name);

void write_file(const char *name, const void *data, size_t bytes);
/* An array as numpy saves it; the first dimension counts the samples. */
void write_npy(const char *name, brim_dtype dtype, uint32_t rank, const int64_t *shape,
               const void *data);

/* The same numbers on every machine: xorshift64*. */
uint64_t next_random(uint64_t *state);
void fill_random(void *data, size_t bytes, uint64_t seed);

/* ---------------------------------------------------------------- sessions */

#define MOST_HELD  8
#define AT_MINIMUM UINT64_MAX /* also of a device */

/* How to run a pipeline; all zero: one rank, no threads, memory in plenty. */
struct how {
    uint64_t bytes; /* the runtime's host limit; 0: plenty; AT_MINIMUM: the plan's minimum */
    int32_t threads;
    uint32_t hold, rank, world;
    brim_growth growth;
    const brim_binding *bindings;
    size_t binding_count;
    brim_device device; /* batches are delivered there; digests are of what is read back */
    uint32_t device_index;
    void *queue;           /* the consumer's */
    uint64_t device_bytes; /* the runtime's limit of each device; 0: as it sees fit */
    uint64_t pinned_bytes;
    uint32_t slots, beyond;
};

/* A runtime with one loader. */
struct session {
    brim_runtime *runtime;
    brim_loader *loader;
    uint32_t hold;
    uint64_t charged_before; /* by the runtime alone */
    brim_memory kind;        /* of memory in which batches are delivered */
    brim_batch *held[MOST_HELD];
    uint32_t held_count;
};

void session_open(struct session *session, const char *text, const struct how *how);
/* Also checks that the plan's bounds held and that all memory came back. */
void session_close(struct session *session);
void session_restore(struct session *session, const brim_state *state);
brim_state session_state(struct session *session);

/* Opens in a runtime of its own, expects it to be refused, and checks that the
 * refusal's text has `part` in it. */
void expect_refused(const char *text, const struct how *how, brim_status status, const char *part);
/* The calling thread's last failure has `part` in its text. */
void assert_detail_has(const char *part);

typedef void batch_visit(void *user, const brim_batch *batch);

/* Takes at most `most` batches, or until the end of the epoch; true: the end
 * was met. Each is visited just before it is released; as many as `hold` allows
 * are held meanwhile, but none when it returns. */
bool take_batches(struct session *session, uint64_t most, batch_visit *visit, void *user);
#define TO_THE_END UINT64_MAX
/* The next batch, which must come. */
brim_batch *take_batch(struct session *session);

/* ----------------------------------------------------------------- digests */

struct digest {
    uint64_t value;
    uint64_t batches;
};
/* A batch_visit; user is a digest, at first zero. All that a batch says, but
 * not the padding between fields. */
void digest_batch(void *digest, const brim_batch *batch);

/* -------------------------------------------------------------------- logs */

struct row {
    uint64_t id;   /* the sample's number */
    uint64_t hash; /* of the row's bytes in all fields */
    bool valid;
};

struct logged {
    brim_batch_info info; /* its pointers are NULL */
    size_t first_row;     /* in the log's rows */
};

struct log {
    struct row *row;
    size_t rows, row_capacity;
    struct logged *batch;
    size_t batches, batch_capacity;
};
/* A batch_visit; user is a log, at first zero; freed by log_free. */
void log_batch(void *log, const brim_batch *batch);
void log_free(struct log *log);
/* Opens, takes `epochs` whole epochs, closes. */
void log_run(struct log *log, const char *text, const struct how *how, unsigned epochs);
/* All but the pointers. */
void assert_info_equal(const brim_batch_info *a, const brim_batch_info *b);
void assert_rows_equal(const struct row *a, const struct row *b, size_t count);

#endif

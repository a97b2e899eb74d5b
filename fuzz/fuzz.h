/*
 * fuzz.h: what the fuzz targets share.
 *
 * A target is a function from bytes to a run of the library that must not do
 * anything wrong: touch memory that is not its own (the address sanitizer looks),
 * compute what C leaves undefined (the other one), hang, take more than its
 * budget, keep anything, or fail without saying why. How to run them: tools/fuzz
 * and docs/testing.md.
 *
 *   source_fuzz.c   the table of targets that read a file: a row for each format
 *   parse_fuzz.c    the text of a pipeline
 *   plan_fuzz.c     the text of a pipeline, run over a few files
 *   state_fuzz.c    the bytes of a state
 *   index_fuzz.c    the bytes of an index
 *   listing_fuzz.c  the bytes of a folder's listing
 *   cache_fuzz.c    the bytes of a cache file
 *   guess_fuzz.c    brim_guess, and the pipeline that it writes
 *   jpeg_fuzz.c, png_fuzz.c, webp_fuzz.c   the decoders of images
 *
 * Everything runs on one thread, and files lie in a directory of the process's
 * own, so that an input alone decides what happens.
 */
#ifndef BRIM_FUZZ_H
#define BRIM_FUZZ_H

#include <brim.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What libFuzzer calls. */
int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

#define FUZZ_BUDGET     ((uint64_t)4 << 20)
#define FUZZ_PATH_BYTES 256
#define FUZZ_TEXT_BYTES 8192

/* Says what was wrong and ends the process, which libFuzzer reports. */
void fuzz_wrong(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* Of LLVMFuzzerInitialize: makes the directory and the runtime. Standard input
 * is empty. */
void fuzz_begin(void);
/* The path of a file in the directory; `path` has FUZZ_PATH_BYTES. */
const char *fuzz_path(char *path, const char *name);
/* `row` with the file's path in place of every $; `text` has FUZZ_TEXT_BYTES. */
const char *fuzz_expand(char *text, const char *row, const char *name);
/* Writes a file there, in place of the one of that name; each has a time of
 * change of its own, so that no index of the one before is taken for fresh. */
void fuzz_write(const char *name, const void *data, size_t bytes);

brim_runtime *fuzz_runtime(void);

/* Set by targets whose inputs name files: those may be missing. */
extern bool fuzz_may_miss_files;
/* A status that hostile data or a wrong text may lead to, with its reason. */
void fuzz_check_refusal(const char *call, brim_status status);
/* Parses, opens, takes a few hundred samples and closes; then checks that all
 * memory came back and that the budget was kept. Relative paths mean files of the
 * directory. Returns a digest of what came, FUZZ_NOTHING if that was nothing; 0 if it did not
 * open. */
#define FUZZ_NOTHING UINT64_C(0xcbf29ce484222325)
uint64_t fuzz_run(const char *text);
/* The batches of a loader, as far as fuzz_run takes them. */
uint64_t fuzz_take(brim_loader *loader);
/* Bad samples that the last of these left out. */
extern uint64_t fuzz_skipped;
/* Everything is closed: nothing is charged, the budget was kept. */
void fuzz_check_budget(void);

#endif

/*
 * memory_watch.h: what the tests of memory and failure look at: the process
 * (resident memory, descriptors, maps), a runtime's counters, and loaders that
 * share a runtime.
 */
#ifndef BRIM_TESTS_MEMORY_WATCH_H
#define BRIM_TESTS_MEMORY_WATCH_H

#include "support/support.h"

/* Built with the address or the thread sanitizer: resident memory says nothing
 * and everything is slow; and with the thread sanitizer. */
bool is_sanitized(void);
bool is_thread_sanitized(void);

uint64_t resident_bytes(void);
size_t descriptor_count(void);
size_t file_map_count(void); /* maps of files of the test's directory */
void sleep_ns(uint64_t ns);
/* Of the processor, by this process. */
uint64_t used_ns(void);

/* Every helper asserts that it succeeds. */
brim_runtime *make_runtime(int32_t threads, uint64_t bytes);
brim_usage usage_of(brim_runtime *runtime);
brim_pipeline *parse(const char *text);
brim_open_options open_options(const char *label);
/* A plan's numbers; its texts are gone. */
brim_plan_info plan_in(brim_runtime *runtime, const char *text, const brim_open_options *options);
/* The same in a runtime of its own with memory in plenty. */
brim_plan_info plan_alone(int32_t threads, const char *text, const brim_open_options *options);
uint64_t empty_runtime_bytes(void); /* charged by a runtime alone */

brim_status try_open(brim_runtime *runtime, const char *text, const brim_open_options *options,
                     brim_loader **loader);
/* A session on a runtime that others use too: closed by brim_loader_close. */
struct session open_on(brim_runtime *runtime, const char *text, const brim_open_options *options);

/* The digest of the first `batches` batches, the epochs' ends left out, in a
 * runtime of its own. */
struct digest first_batches(const char *text, uint64_t batches);
/* `batches` more of them into the digest (NULL: just taken); false: a call
 * failed. Asserts nothing: for threads. */
bool take_more(brim_loader *loader, uint64_t batches, struct digest *digest);

struct digest digest_of(const brim_batch *batch);
void assert_same(struct digest a, struct digest b);
/* The runtime has kept its limit, and its counters add up. */
void check_budget(brim_runtime *runtime);

#endif

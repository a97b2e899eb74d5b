/*
 * fault_sweep.h: whatever the system refuses, and whenever, the failure is clean.
 *
 * A scenario is a whole life from the text of a pipeline to freeing everything.
 * A run of it makes the Nth point of a kind fail, once or from then on; N goes up
 * until a run meets fewer points. In every run
 *
 *   - a call that fails says so with a status that fits the kind, and a detail;
 *     it returns nothing and leaves nothing charged;
 *   - once the fault is gone, the same call succeeds, and the scenario goes on
 *     to its end with the same batches as without any fault;
 *   - afterwards all counters, descriptors, maps and files are as they were.
 *
 * So a scenario always ends with the same digest. Without threads the Nth point
 * is the same in every run (but for sequential reads, where it depends on time
 * how many neighbours one of them fetches), and a failure prints how to see it
 * again:
 *
 *   test_faults SCENARIO KIND N once|forever THREADS
 */
#ifndef BRIM_TESTS_FAULT_SWEEP_H
#define BRIM_TESTS_FAULT_SWEEP_H

#include "support/support.h"

#include <inttypes.h>

#define SIXTEEN_MIB ((uint64_t)16 << 20)

struct scenario {
    const char *name;
    void (*run)(void);
    const char *text;     /* of its pipeline, $ for the directory; for `run` to use */
    struct digest wanted; /* of what it gives without any fault */
    bool device_only;     /* only with faults of a device */
    bool fileless; /* no file is read but by caches, so no call may fail with BRIM_STATUS_IO */
    bool some;     /* a run takes long: only some points, always the same */
};

struct kind;

/* The run in progress. */
struct fault_run {
    struct scenario *scenario;
    const struct kind *kind;
    uint64_t nth; /* 0: no fault */
    bool for_ever;
    int32_t threads;
    bool disarmed;
    uint64_t injected;
    brim_runtime *runtime;
    uint64_t base; /* charged by the runtime alone */
    struct digest digest;
};
extern struct fault_run now;

/* The main of a program of scenarios: sweeps all of them, or runs one as the
 * arguments say. set_up: of the cmocka group. */
int sweep_main(int argc, char **argv, struct scenario *scenarios, size_t count,
               int (*set_up)(void **state));

/* ------------------------------------------------- what scenarios are made of */

void wrong(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
void forget_detail(void);
/* A call has failed: it is how it should be, and the fault goes away. */
void check_failure(const char *call, brim_status status);
/* What is charged and not elastic, where that is certain; else 0. */
uint64_t charged_now(void);
/* Whether the run's faults are of this kind (enum brim__fault_kind) alone. */
bool faults_are(unsigned kind);
/* A call that no fault reaches. */
void must(brim_status status, const char *call);

/* Makes the call; if it fails as it may, checks that it left nothing behind and
 * makes it again, which must succeed. */
#define ATTEMPT(call, result)                                                                     \
    do {                                                                                          \
        const uint64_t charged_ = charged_now();                                                  \
        forget_detail();                                                                          \
        (result) = NULL;                                                                          \
        brim_status status_ = (call);                                                             \
        if (status_ != BRIM_OK) {                                                                 \
            check_failure(#call, status_);                                                        \
            if ((result) != NULL || charged_now() != charged_) {                                  \
                wrong("%s failed, but left something: %" PRIu64 " bytes charged before, %" PRIu64 \
                      " after",                                                                   \
                      #call, charged_, charged_now());                                            \
            }                                                                                     \
            status_ = (call);                                                                     \
        }                                                                                         \
        if (status_ != BRIM_OK) {                                                                 \
            wrong("%s failed again: %s: %s", #call, brim_status_name(status_), brim_detail());    \
        }                                                                                         \
    } while (0)

void begin_runtime(uint64_t bytes);
/* The same, with indexes kept in the directory $/cache. */
void begin_runtime_with_cache(uint64_t bytes);
/* Everything on the runtime has been closed. */
void end_runtime(void);
brim_loader *open_text(const char *text, const brim_open_options *options);
/* One more batch, across the end of an epoch. A worker may have met the fault
 * for a later batch, so that with threads a call fails after it has gone. */
brim_batch *take_one(brim_loader *loader);
void take(brim_loader *loader, unsigned count); /* into the digest */

#endif

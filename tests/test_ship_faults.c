/*
 * test_ship_faults.c: whatever fails on the way to a device, the failure is clean.
 *
 * Scenarios of support/fault_sweep.h: every call of a driver fails in turn, once or from
 * then on, while a loader is opened, grows, ships, lends on a consumer's queue, copies,
 * reads back, seeks, gives way, takes back and closes. What fails says so and can be asked
 * again; the batches are the same as without any fault. On the stand-in for CUDA nothing
 * may be left behind or be used wrongly; there the driver itself fails too, call by call,
 * which goes deeper than brim's own points.
 *
 *   test_ship_faults SCENARIO KIND N once|forever THREADS
 */
#include "support/fault_sweep.h"

#include "base/fault.h"
#include "memory/budget.h"
#include "ship_util.h"

#include <xxhash.h>

#define DECODED "npy $/images.npy | shuffle seed=3 | normalize imagenet | layout chw | batch 16"
#define PLACED                                                                                  \
    "zip (npy $/images.npy) (npy $/classes.npy name=label) | filter \"label != 7\" | batch 12 " \
    "remainder=pad"
#define RAGGED "text $/lines.txt | batch 12 remainder=keep"

/* A call that gives nothing but its status: it may fail, and is made again. */
/* A batch may have two failures to tell: of this call, and of its copy. */
#define TRY(call)                                              \
    do {                                                       \
        brim_status status_ = BRIM_DRIVER;                     \
        for (int i_ = 0; i_ < 2 && status_ != BRIM_OK; i_++) { \
            forget_detail();                                   \
            status_ = (call);                                  \
            if (status_ != BRIM_OK) {                          \
                check_failure(#call, status_);                 \
            }                                                  \
        }                                                      \
        if (status_ != BRIM_OK) {                              \
            must((call), #call);                               \
        }                                                      \
    } while (0)

/* All that a batch has, read back. */
static void digest_there(const brim_batch *batch) {
    const brim_batch_info *info = brim_batch_get(batch);
    uint64_t value = XXH3_64bits_withSeed(info->samples, info->rows * sizeof info->samples[0],
                                          now.digest.value + info->step);
    for (uint32_t f = 0; f < info->field_count; f++) {
        const brim_field *field = brim_batch_field_at(batch, f);
        uint8_t *bytes = malloc(field->bytes + 1);
        assert_non_null(bytes);
        TRY(brim_batch_read(batch, f, bytes, field->bytes));
        value = XXH3_64bits_withSeed(bytes, field->bytes, value);
        free(bytes);
    }
    now.digest.value = value;
    now.digest.batches++;
}

static void take_there(brim_loader *loader, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        brim_batch *batch = take_one(loader);
        digest_there(batch);
        brim_batch_release(batch);
    }
}

/* Closes and looks for what was left, of all kinds of memory. */
static void end_there(void) {
    for (int kind = BRIM_PINNED; kind < BRIM_MEMORY_KINDS; kind++) {
        const brim_budget_info info = budget_of(now.runtime, (brim_memory)kind);
        if (info.charged != 0 || info.reserved != 0 || info.peak > info.limit) {
            wrong("memory %d: %" PRIu64 " bytes charged in the end, %" PRIu64
                  " at most of %" PRIu64,
                  kind, info.charged, info.peak, info.limit);
        }
    }
    end_runtime();
}

static void end_consumer(struct consumer *consumer) {
    consumer_close(consumer);
    if (consumer->kind == BRIM_ON_CUDA &&
        (cuda_standin_get(CUDA_STANDIN_violations) != 0 || !cuda_standin_empty())) {
        wrong("the stand-in has something left, or a violation: %s", cuda_standin_violation(0));
    }
}

static brim_open_options options_there(brim_device kind) {
    brim_open_options options = BRIM_OPEN_OPTIONS_INIT;
    options.device_kind = kind;
    return options;
}

/* -------------------------------------------------------------------- scenarios */

/* The consumer's queue is known; two are held; slots grow at once. */
static void run_known(brim_device kind) {
    struct consumer consumer = consumer_new(kind);
    uint8_t *late = malloc(1 << 20);
    char text[TEXT_BYTES];
    begin_runtime(SIXTEEN_MIB);
    brim_open_options options = options_there(kind);
    options.device_queue = consumer.queue;
    options.hold = 2;
    options.growth = BRIM_FIXED;
    brim_loader *loader = open_text(expand(now.scenario->text, text), &options);
    take_there(loader, 2);
    brim_batch *first = take_one(loader), *second = take_one(loader), *copy;
    consumer_read(&consumer, brim_batch_field_at(first, 0), late, 0);
    ATTEMPT(brim_batch_copy(first, &copy), copy);
    consumer_finish(&consumer);
    brim_batch_release(first);
    TRY(brim_batch_wait(second, NULL));
    TRY(brim_batch_wait(second, consumer.queue));
    digest_there(second);
    brim_batch_release_after(second, consumer.queue);
    digest_there(copy);
    brim_batch_release_after(copy, consumer.queue);
    TRY(brim_loader_seek(loader, 0, 1));
    take_there(loader, 2);
    must(brim_runtime_trim(now.runtime, NULL), "trim");
    take_there(loader, 3);
    brim_batch *last = take_one(loader);
    brim_loader_close(loader);
    digest_there(last);
    brim_batch_release(last);
    end_there();
    free(late);
    end_consumer(&consumer);
}

/* The same in short: every device that is opened on OpenCL compiles its kernels. */
static void run_short(brim_device kind) {
    struct consumer consumer = consumer_new(kind);
    char text[TEXT_BYTES];
    begin_runtime(SIXTEEN_MIB);
    brim_open_options options = options_there(kind);
    options.device_queue = consumer.queue;
    options.slots = 2;
    brim_loader *loader = open_text(expand(now.scenario->text, text), &options);
    brim_batch *batch = take_one(loader), *copy;
    ATTEMPT(brim_batch_copy(batch, &copy), copy);
    TRY(brim_batch_wait(batch, consumer.queue));
    brim_batch_release(batch);
    digest_there(copy);
    brim_batch_release_after(copy, consumer.queue);
    take_there(loader, 2);
    brim_loader_close(loader);
    end_there();
    end_consumer(&consumer);
}

/* Nobody has a queue: all waits are on the host. At the minimum of everything. */
static void run_unknown(brim_device kind) {
    char text[TEXT_BYTES];
    begin_runtime(SIXTEEN_MIB);
    brim_open_options options = options_there(kind);
    options.slots = 2;
    brim_loader *loader = open_text(expand(now.scenario->text, text), &options);
    take_there(loader, 2);
    brim_state state;
    must(brim_loader_state(loader, &state), "state");
    take_there(loader, 1);
    TRY(brim_loader_restore(loader, &state));
    take_there(loader, 1);
    brim_loader_close(loader);
    end_there();
}

/* A queue that the loader learns of when a batch is released: on CUDA any is usable. Some
 * are taken and released without any call that could tell of a failure. */
static void run_released_there(void) {
    struct consumer consumer = consumer_new(BRIM_ON_CUDA);
    char text[TEXT_BYTES];
    begin_runtime(SIXTEEN_MIB);
    brim_open_options options = options_there(BRIM_ON_CUDA);
    brim_loader *loader = open_text(expand(now.scenario->text, text), &options);
    for (int i = 0; i < 6; i++) {
        brim_batch *batch = take_one(loader);
        if (i == 0 || i > 3) {
            digest_there(batch);
        }
        brim_batch_release_after(batch, consumer.queue);
    }
    brim_loader_close(loader);
    end_there();
    end_consumer(&consumer);
}

/* A loader whose elastic slots go to a second one. */
static void run_two(void) {
    const brim_device kind = BRIM_ON_CUDA;
    char text[TEXT_BYTES];
    begin_runtime(SIXTEEN_MIB);
    brim_open_options options = options_there(kind);
    options.growth = BRIM_FIXED;
    expand(now.scenario->text, text);
    brim_plan *plan;
    brim_pipeline *pipeline;
    ATTEMPT(brim_pipeline_parse(text, &pipeline), pipeline);
    ATTEMPT(brim_plan_new(now.runtime, pipeline, &options, &plan), plan);
    const brim_plan_info info = *brim_plan_get(plan);
    brim_plan_free(plan);
    brim_pipeline_free(pipeline);
    must(brim_budget_set(brim_runtime_budget(now.runtime), brim_device_memory(kind, 0),
                         info.minimum_device_bytes * 2 + info.device_slot_bytes, 0),
         "limit");
    brim_loader *training = open_text(text, &options);
    take_there(training, 2);
    brim_loader *validation = open_text(text, &options);
    take_there(validation, 3);
    take_there(training, 2);
    brim_loader_close(validation);
    take_there(training, 2);
    brim_loader_close(training);
    end_there();
}

static void run_known_cuda(void) {
    run_known(BRIM_ON_CUDA);
}
static void run_unknown_cuda(void) {
    run_unknown(BRIM_ON_CUDA);
}
static void run_short_cuda(void) {
    run_short(BRIM_ON_CUDA);
}
static void run_short_opencl(void) {
    run_short(BRIM_ON_OPENCL);
}
static void run_unknown_opencl(void) {
    run_unknown(BRIM_ON_OPENCL);
}

static struct scenario scenarios[] = {
    { .name = "cuda-known", .run = run_known_cuda, .text = DECODED, .device_only = true },
    { .name = "cuda-short", .run = run_short_cuda, .text = DECODED },
    { .name = "cuda-unknown", .run = run_unknown_cuda, .text = PLACED, .device_only = true },
    { .name = "cuda-released", .run = run_released_there, .text = RAGGED, .device_only = true },
    { .name = "cuda-two", .run = run_two, .text = DECODED, .device_only = true },
    { .name = "opencl-known", .run = run_short_opencl, .text = DECODED, .device_only = true },
    { .name = "opencl-unknown", .run = run_unknown_opencl, .text = PLACED, .device_only = true },
};

int main(int argc, char **argv) {
    const size_t count = sizeof scenarios / sizeof scenarios[0];
    const size_t without = has_device(BRIM_ON_OPENCL) ? 0 : 2; /* the last */
    if (without > 0) {
        printf("skipped on OpenCL: %s\n", brim_detail());
    }
    return sweep_main(argc, argv, scenarios, count - without, begin_ship_tests);
}

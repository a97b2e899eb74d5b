/*
 * test_upload_faults.c: whatever fails on the way to a device, the failure is clean.
 *
 * Scenarios of support/fault_sweep.h: every call of a driver fails in turn, once or from
 * then on, while a loader is opened, grows, uploads, lends on a consumer's queue, copies,
 * reads back, keeps samples there, seeks, gives way, takes back and closes. What fails says
 * so and can be asked again; the batches are the same as without any fault. On the stand-in
 * for CUDA nothing may be left behind or be used wrongly; there the driver itself fails too,
 * call by call, which goes deeper than brim's own points (test_upload_cuda).
 *
 *   test_upload_faults SCENARIO KIND N once|forever THREADS
 *
 * label: full
 */
#include "support/fault_sweep.h"

#include "base/fault.h"
#include "device/device.h"
#include "memory/budget.h"
#include "upload_util.h"

#include <xxhash.h>

#define DECODED "npy $/images.npy | shuffle seed=3 | normalize imagenet | layout chw | batch 16"
#define PLACED                                                                                  \
    "zip (npy $/images.npy) (npy $/classes.npy name=label) | filter \"label != 7\" | batch 12 " \
    "remainder=pad"
#define RAGGED "text $/lines.txt | batch 12 remainder=keep"
#define KEPT                                                                              \
    "zip (npy $/images.npy) (npy $/classes.npy name=label) | take 12 | shuffle seed=3 | " \
    "normalize imagenet on=x | layout chw on=x | cache device | batch 4"

/* A call that gives nothing but its status: it may fail, and is made again. */
/* A batch may have two failures to tell: of this call, and of its copy. */
#define TRY(call)                                              \
    do {                                                       \
        brim_status status_ = BRIM_STATUS_DRIVER;              \
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
        TRY(brim_batch_copy_field(batch, f, bytes, field->bytes));
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
    for (int kind = BRIM_MEMORY_PINNED; kind < BRIM_MEMORY_KINDS; kind++) {
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
    if (consumer->kind == BRIM_DEVICE_CUDA &&
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

/* OpenCL's loaders that are opened without a queue share a context and the kernels in it for
 * as long as there is one; so that these are not built in every run, this one stays. */
static struct brim__device keeper;

static struct consumer consumer_in_keeper(void) {
    const struct consumer none = { .kind = BRIM_DEVICE_OPENCL, .context = keeper.context };
    return consumer_beside(&none);
}

/* The consumer's queue is known; two are held; slots grow at once. */
static void run_known(brim_device kind) {
    struct consumer consumer = consumer_new(kind);
    uint8_t *late = malloc(1 << 20);
    char text[TEXT_BYTES];
    begin_runtime(SIXTEEN_MIB);
    brim_open_options options = options_there(kind);
    options.device_queue = consumer.queue;
    options.hold = 2;
    options.growth = BRIM_GROWTH_FIXED;
    brim_loader *loader = open_text(expand(now.scenario->text, text), &options);
    take_there(loader, 2);
    brim_batch *first = take_one(loader), *second = take_one(loader), *copy;
    consumer_read(&consumer, brim_batch_field_at(first, 0), late, 0);
    TRY(brim_batch_copy(first, &copy));
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

/* The same in short. */
static void run_short(brim_device kind) {
    struct consumer consumer = consumer_new(kind);
    char text[TEXT_BYTES];
    begin_runtime(SIXTEEN_MIB);
    brim_open_options options = options_there(kind);
    options.device_queue = consumer.queue;
    options.slots = 2;
    brim_loader *loader = open_text(expand(now.scenario->text, text), &options);
    brim_batch *batch = take_one(loader), *copy;
    TRY(brim_batch_copy(batch, &copy));
    TRY(brim_batch_wait(batch, consumer.queue));
    brim_batch_release(batch);
    digest_there(copy);
    brim_batch_release_after(copy, consumer.queue);
    take_there(loader, 2);
    brim_loader_close(loader);
    end_there();
    end_consumer(&consumer);
}

/* In short too, in a context in which all is built already. */
static void run_shared(void) {
    struct consumer consumer = consumer_in_keeper();
    char text[TEXT_BYTES];
    begin_runtime(SIXTEEN_MIB);
    brim_open_options options = options_there(BRIM_DEVICE_OPENCL);
    brim_loader *loader = open_text(expand(now.scenario->text, text), &options);
    for (int i = 0; i < 5; i++) {
        brim_batch *batch = take_one(loader), *copy = NULL;
        TRY(brim_batch_wait(batch, consumer.queue));
        if (i == 1) {
            TRY(brim_batch_copy(batch, &copy));
        }
        digest_there(batch);
        brim_batch_release_after(batch, consumer.queue);
        if (copy != NULL) {
            digest_there(copy);
            brim_batch_release_after(copy, consumer.queue);
        }
    }
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

/* A queue that the loader learns of when a batch is released: on CUDA any is usable, on OpenCL
 * it is of the context of another one. Some are taken and released without any call that could
 * tell of a failure. */
static void run_released(brim_device kind) {
    struct consumer consumer = consumer_new(kind), known = { .kind = kind };
    char text[TEXT_BYTES];
    begin_runtime(SIXTEEN_MIB);
    brim_open_options options = options_there(kind);
    if (kind == BRIM_DEVICE_OPENCL) {
        known = consumer_beside(&consumer);
        options.device_queue = known.queue;
    }
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
    if (known.queue != NULL) {
        consumer_close_beside(&known);
    }
    end_consumer(&consumer);
}

static brim_cache_stats kept_by(brim_loader *loader) {
    brim_cache_stats stats = BRIM_CACHE_STATS_INIT;
    must(brim_loader_read_cache_stats(loader, 0, &stats), "cache stats");
    return stats;
}

/* Samples that stay on the device: all of them, half, none, and all again. */
static void run_kept(brim_device kind) {
    struct consumer consumer = kind == BRIM_DEVICE_CUDA ? consumer_new(kind) : consumer_in_keeper();
    char text[TEXT_BYTES];
    begin_runtime(SIXTEEN_MIB);
    brim_budget *root = brim_runtime_budget(now.runtime);
    const brim_memory there = brim_device_memory(kind, 0);
    brim_open_options options = options_there(kind);
    options.device_queue = kind == BRIM_DEVICE_CUDA ? consumer.queue : NULL;
    options.slots = 2;
    must(brim_budget_set(root, there, SIXTEEN_MIB, 0), "limit");
    brim_loader *loader = open_text(expand(now.scenario->text, text), &options);
    const brim_plan_info *info = brim_plan_get(brim_loader_plan(loader));
    take_there(loader, 4);
    const brim_cache_stats all = kept_by(loader);
    must(brim_budget_set(root, there, info->minimum_device_bytes + all.bytes / 2, 0), "limit");
    const brim_cache_stats half = kept_by(loader);
    take_there(loader, 2);
    must(brim_runtime_trim(now.runtime, NULL), "trim");
    const brim_cache_stats none = kept_by(loader);
    must(brim_budget_set(root, there, SIXTEEN_MIB, 0), "limit");
    take_there(loader, 1);
    TRY(brim_loader_seek(loader, 1, 1));
    take_there(loader, 5);
    if (now.nth == 0 && now.threads == 0) { /* workers may be ahead of this */
        const brim_cache_stats again = kept_by(loader);
        if (all.filled != 12 || half.filled == 0 || half.filled >= 12 || none.filled != 0 ||
            again.filled != 12 || again.stored < 24 || again.hits < 8) {
            wrong("%" PRIu64 ", %" PRIu64 ", %" PRIu64 " and %" PRIu64 " samples are kept, %" PRIu64
                  " were stored and %" PRIu64 " found",
                  all.filled, half.filled, none.filled, again.filled, again.stored, again.hits);
        }
    }
    brim_batch *read = take_one(loader);
    TRY(brim_batch_wait(read, consumer.queue));
    brim_batch_release_after(read, consumer.queue);
    brim_batch *last = take_one(loader);
    brim_loader_close(loader);
    digest_there(last);
    brim_batch_release(last);
    end_there();
    end_consumer(&consumer);
}

/* A loader whose elastic slots go to a second one. */
static void run_two(brim_device kind) {
    char text[TEXT_BYTES];
    begin_runtime(SIXTEEN_MIB);
    brim_open_options options = options_there(kind);
    options.growth = BRIM_GROWTH_FIXED;
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

#define ON_BOTH(run)                 \
    static void run##_cuda(void) {   \
        run(BRIM_DEVICE_CUDA);       \
    }                                \
    static void run##_opencl(void) { \
        run(BRIM_DEVICE_OPENCL);     \
    }
ON_BOTH(run_known)
ON_BOTH(run_short)
ON_BOTH(run_unknown)
ON_BOTH(run_released)
ON_BOTH(run_kept)
ON_BOTH(run_two)

/* A loader that is opened on OpenCL with a queue compiles its kernels, and every argument of a
 * kernel is a point: of the longest only some. */
static struct scenario scenarios[] = {
    { .name = "cuda-known", .run = run_known_cuda, .text = DECODED, .device_only = true },
    { .name = "cuda-short", .run = run_short_cuda, .text = DECODED },
    { .name = "cuda-unknown", .run = run_unknown_cuda, .text = PLACED, .device_only = true },
    { .name = "cuda-released", .run = run_released_cuda, .text = RAGGED, .device_only = true },
    { .name = "cuda-kept", .run = run_kept_cuda, .text = KEPT, .device_only = true },
    { .name = "cuda-two", .run = run_two_cuda, .text = DECODED, .device_only = true },
    { .name = "opencl-known",
      .run = run_known_opencl,
      .text = DECODED,
      .device_only = true,
      .some = true },
    { .name = "opencl-short",
      .run = run_short_opencl,
      .text = DECODED,
      .device_only = true,
      .some = true },
    { .name = "opencl-shared", .run = run_shared, .text = DECODED, .device_only = true },
    { .name = "opencl-unknown", .run = run_unknown_opencl, .text = PLACED, .device_only = true },
    { .name = "opencl-released", .run = run_released_opencl, .text = RAGGED, .device_only = true },
    { .name = "opencl-kept",
      .run = run_kept_opencl,
      .text = KEPT,
      .device_only = true,
      .some = true },
    { .name = "opencl-two",
      .run = run_two_opencl,
      .text = DECODED,
      .device_only = true,
      .some = true },
};
#define ON_OPENCL 7 /* the last */

static bool on_opencl;

static int begin(void **state) {
    if (on_opencl && (brim__device_open(&keeper, BRIM_DEVICE_OPENCL, 0, NULL, NULL) != BRIM_OK ||
                      brim__device_prepare(&keeper) != BRIM_OK)) {
        return -1;
    }
    return begin_upload_tests(state);
}

int main(int argc, char **argv) {
    size_t count = sizeof scenarios / sizeof scenarios[0];
    on_opencl = has_device(BRIM_DEVICE_OPENCL);
    if (!on_opencl) {
        printf("skipped on OpenCL: %s\n", brim_detail());
        count -= ON_OPENCL;
    }
    const int failed = sweep_main(argc, argv, scenarios, count, begin);
    if (keeper.context != NULL) {
        brim__device_close(&keeper);
    }
    return failed;
}

/*
 * device.c: batches on a device against the device alone.
 *
 *   copy      uint8 rows of 224x224x3 that cost next to nothing to make (a callback that
 *             writes a byte of each page), batches of 64, against a naked loop that puts
 *             asynchronous copies of the same bytes, from as many page-locked buffers to as
 *             many on the device, into one queue
 *   resident  epochs in random order over float32 images of 3x224x224 that stay on the
 *             device (`cache device`), against a naked kernel that gathers as many rows at
 *             random from one buffer
 *   overlap   a consumer that sleeps as long as a batch takes to make, against the longer
 *             of the two: what `make` takes when nobody else does anything, and the sleep
 *
 * All on the first device of OpenCL. A batch counts when it is there: the one before it is
 * waited for while the next is on its way. Rounds alternate between the sides; figures are
 * medians, a ratio being taken within each round, with the least and the largest.
 *
 *     device [seconds of a round, default 0.5] [rounds, default 7]
 */
#include <brim.h>

#include "device/opencl_library.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SIDE        224u
#define ROW         ((size_t)SIDE * SIDE * 3)
#define BATCH       64u
#define IMAGES      512u
#define NAKED_SLOTS 2
#define MOST_SLOTS  16
#define MOST_ROUNDS 99

static double seconds_of_round = 0.5;
static int rounds = 7;
static const struct brim__opencl *cl;
static cl_context context;
static cl_command_queue queue;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void sleep_for(double seconds) {
    const double end = now() + seconds;
    struct timespec time = { .tv_sec = (time_t)seconds,
                             .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9) };
    do {
        nanosleep(&time, NULL);
    } while (now() < end);
}

static void die(const char *what, const char *why) {
    fprintf(stderr, "device: %s: %s\n", what, why);
    exit(1);
}

static void check(brim_status status, const char *what) {
    if (status != BRIM_OK) {
        die(what, brim_detail());
    }
}

static void check_cl(cl_int error, const char *what) {
    if (error != 0) {
        die(what, brim__opencl_error_name(error));
    }
}

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values) {
    qsort(values, (size_t)rounds, sizeof *values, ascending);
    return values[rounds / 2];
}

static void print_ratio(const char *name, const char *unit, double *brim, double *naked,
                        double wanted) {
    double ratio[MOST_ROUNDS];
    for (int i = 0; i < rounds; i++) {
        ratio[i] = brim[i] / naked[i];
    }
    const double middle = median(ratio);
    printf("%-10s naked %9.0f %s  brim %9.0f %s  ratio %.2f (%.2f to %.2f), wanted %.1f\n", name,
           median(naked), unit, median(brim), unit, middle, ratio[0], ratio[rounds - 1], wanted);
    fflush(stdout);
}

/* ---------------------------------------------------------------------- brim */

struct feed {
    brim_runtime *runtime;
    brim_loader *loader;
};

static void feed_open(struct feed *feed, const char *text, const brim_binding *binding,
                      int threads) {
    brim_runtime_options how = BRIM_RUNTIME_OPTIONS_INIT;
    brim_open_options options = BRIM_OPEN_OPTIONS_INIT;
    brim_pipeline *pipeline;
    how.host_bytes = (uint64_t)1 << 30;
    how.device_bytes = (uint64_t)2 << 30;
    how.threads = threads;
    options.hold = 2;
    options.device_kind = BRIM_DEVICE_OPENCL;
    options.growth = BRIM_GROWTH_FIXED;
    options.bindings = binding;
    options.binding_count = 1;
    check(brim_runtime_new(&how, &feed->runtime), "a runtime");
    check(brim_pipeline_parse(text, &pipeline), text);
    check(brim_loader_open(feed->runtime, pipeline, &options, &feed->loader), text);
    brim_pipeline_free(pipeline);
}

static void feed_close(struct feed *feed) {
    brim_loader_close(feed->loader);
    brim_runtime_free(feed->runtime);
}

/* Batches until `until`, each waited for while the next is on its way; rows. */
static uint64_t take(const struct feed *feed, double until, double sleeps) {
    brim_batch *last = NULL;
    uint64_t rows = 0;
    while (now() < until) {
        brim_batch *batch;
        const brim_status status = brim_loader_next(feed->loader, BRIM_FOREVER, &batch);
        if (status == BRIM_STATUS_END) {
            continue;
        }
        check(status, "next");
        if (last != NULL) {
            check(brim_batch_wait(last, NULL), "waiting");
            rows += brim_batch_get(last)->rows;
            brim_batch_release(last);
        }
        last = batch;
        if (sleeps > 0) {
            sleep_for(sleeps);
        }
    }
    brim_batch_release(last);
    return rows;
}

static double rate(const struct feed *feed, double sleeps) {
    const double begin = now();
    const uint64_t rows = take(feed, begin + seconds_of_round, sleeps);
    return (double)rows / (now() - begin);
}

/* ---------------------------------------------------------------------- copy */

static int make_hardly(void *user, const brim_call *call, brim_value *outputs, size_t count,
                       char *why, size_t why_bytes) {
    uint8_t *row = outputs[0].data;
    (void)user, (void)call, (void)count, (void)why, (void)why_bytes;
    /* so that there is memory behind each page, and not the system's one page of zeros */
    for (uint64_t i = 0; i < outputs[0].bytes; i += 4096) {
        row[i] = 1;
    }
    return 0;
}

/* As many buffers on each side as brim has slots. */
struct copies {
    size_t here_count, there_count;
    uint8_t *here[MOST_SLOTS];
    cl_mem there[MOST_SLOTS];
};

static double naked_copies(const struct copies *copies) {
    const double begin = now();
    cl_event done[MOST_SLOTS] = { 0 };
    uint64_t rows = 0;
    for (uint64_t i = 0; now() < begin + seconds_of_round; i++) {
        const size_t slot = i % copies->here_count;
        if (done[slot] != NULL) {
            check_cl(cl->clWaitForEvents(1, &done[slot]), "waiting");
            cl->clReleaseEvent(done[slot]);
            rows += BATCH;
        }
        check_cl(cl->clEnqueueWriteBuffer(queue, copies->there[i % copies->there_count], 0, 0,
                                          ROW * BATCH, copies->here[slot], 0, NULL, &done[slot]),
                 "a copy");
        cl->clFlush(queue);
    }
    cl->clFinish(queue);
    const double took = now() - begin;
    for (size_t i = 0; i < copies->here_count; i++) {
        cl->clReleaseEvent(done[i]);
    }
    return (double)rows / took;
}

static void bench_copy(void) {
    double brim[MOST_ROUNDS], naked[MOST_ROUNDS];
    struct copies copies = { 0 };
    brim_stats stats = BRIM_STATS_INIT;
    cl_int error;
    brim_field_spec field = BRIM_FIELD_SPEC_INIT;
    brim_binding binding = BRIM_BINDING_INIT;
    struct feed feed;
    field.name = "image";
    field.dtype = BRIM_DTYPE_U8;
    field.rank = 3;
    field.shape[0] = field.shape[1] = SIDE;
    field.shape[2] = 3;
    binding.name = "images";
    binding.kind = BRIM_BINDING_SOURCE;
    binding.count = 100000;
    binding.fields = &field;
    binding.field_count = 1;
    binding.flags = BRIM_CALLBACK_PURE | BRIM_CALLBACK_CONCURRENT;
    binding.read = make_hardly;
    feed_open(&feed, "callback @images | batch 64", &binding, 1);
    check(brim_loader_read_stats(feed.loader, &stats), "stats");
    copies.here_count = stats.slots;
    copies.there_count = stats.device_slots;
    if (copies.here_count == 0 || copies.here_count > MOST_SLOTS || copies.there_count == 0 ||
        copies.there_count > MOST_SLOTS) {
        die("slots", "none, or more than the bench expects");
    }
    for (size_t i = 0; i < copies.here_count; i++) {
        copies.here[i] = aligned_alloc(4096, ROW * BATCH);
        memset(copies.here[i], 1, ROW * BATCH);
    }
    for (size_t i = 0; i < copies.there_count; i++) {
        copies.there[i] = cl->clCreateBuffer(context, CL_MEM_READ_WRITE, ROW * BATCH, NULL, &error);
        check_cl(error, "a buffer");
    }
    for (int i = 0; i < rounds; i++) {
        naked[i] = naked_copies(&copies);
        brim[i] = rate(&feed, 0);
    }
    feed_close(&feed);
    for (size_t i = 0; i < copies.there_count; i++) {
        cl->clReleaseMemObject(copies.there[i]);
    }
    for (size_t i = 0; i < copies.here_count; i++) {
        free(copies.here[i]);
    }
    print_ratio("copy", "rows/s", brim, naked, 0.9);
}

/* ------------------------------------------------------------------ resident */

static const char *naked_source =
    "kernel void take(global const uint4 *from, global uint4 *to, global const uint *number,\n"
    "                 uint units) {\n"
    "    const size_t row = get_global_id(1), run = (units + get_global_size(0) - 1) /\n"
    "                                               get_global_size(0);\n"
    "    const size_t begin = get_global_id(0) * run, end = min(begin + run, (size_t)units);\n"
    "    global const uint4 *source = from + (size_t)number[row] * units;\n"
    "    for (size_t i = begin; i < end; i++) {\n"
    "        to[row * units + i] = source[i];\n"
    "    }\n"
    "}\n";

struct gather {
    cl_mem images, numbers, batch[NAKED_SLOTS];
    cl_kernel kernel;
    uint32_t *number;
};

static double naked_gather(const struct gather *gather) {
    const double begin = now();
    const size_t size[2] = { 9, BATCH };
    cl_event done[NAKED_SLOTS] = { 0 };
    uint64_t rows = 0;
    for (uint64_t i = 0; now() < begin + seconds_of_round; i++) {
        const size_t slot = i % NAKED_SLOTS;
        const uint32_t *number = gather->number + (i % (IMAGES / BATCH)) * BATCH;
        if (done[slot] != NULL) {
            check_cl(cl->clWaitForEvents(1, &done[slot]), "waiting");
            cl->clReleaseEvent(done[slot]);
            rows += BATCH;
        }
        check_cl(cl->clEnqueueWriteBuffer(queue, gather->numbers, 0, 0, BATCH * 4, number, 0, NULL,
                                          NULL),
                 "numbers");
        check_cl(cl->clSetKernelArg(gather->kernel, 1, sizeof(cl_mem), &gather->batch[slot]),
                 "an argument");
        check_cl(cl->clEnqueueNDRangeKernel(queue, gather->kernel, 2, NULL, size, NULL, 0, NULL,
                                            &done[slot]),
                 "the kernel");
        cl->clFlush(queue);
    }
    cl->clFinish(queue);
    const double took = now() - begin;
    for (size_t i = 0; i < NAKED_SLOTS; i++) {
        cl->clReleaseEvent(done[i]);
    }
    return (double)rows / took;
}

/* So that there is memory behind `batches` batches of floats. */
static void touch(cl_mem memory, size_t batches) {
    float *floats = calloc(BATCH, ROW * 4);
    for (size_t i = 0; i < batches; i++) {
        check_cl(cl->clEnqueueWriteBuffer(queue, memory, 1, i * BATCH * ROW * 4, BATCH * ROW * 4,
                                          floats, 0, NULL, NULL),
                 "filling");
    }
    free(floats);
}

static void gather_open(struct gather *gather) {
    const cl_uint units = (cl_uint)(ROW * 4 / 16);
    uint64_t state = 7;
    cl_int error;
    gather->number = malloc(IMAGES * sizeof(uint32_t));
    for (uint32_t i = 0; i < IMAGES; i++) {
        gather->number[i] = i;
    }
    for (uint32_t i = IMAGES; i > 1; i--) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        const uint32_t j = (uint32_t)(state >> 33) % i, swap = gather->number[i - 1];
        gather->number[i - 1] = gather->number[j];
        gather->number[j] = swap;
    }
    gather->images = cl->clCreateBuffer(context, CL_MEM_READ_WRITE, IMAGES * ROW * 4, NULL, &error);
    check_cl(error, "the images");
    gather->numbers = cl->clCreateBuffer(context, CL_MEM_READ_WRITE, BATCH * 4, NULL, &error);
    check_cl(error, "the numbers");
    touch(gather->images, IMAGES / BATCH);
    for (size_t i = 0; i < NAKED_SLOTS; i++) {
        gather->batch[i] =
            cl->clCreateBuffer(context, CL_MEM_READ_WRITE, BATCH * ROW * 4, NULL, &error);
        check_cl(error, "a batch");
        touch(gather->batch[i], 1);
    }
    cl_program program = cl->clCreateProgramWithSource(context, 1, &naked_source, NULL, &error);
    check_cl(error, "the program");
    check_cl(cl->clBuildProgram(program, 0, NULL, "", NULL, NULL), "building");
    gather->kernel = cl->clCreateKernel(program, "take", &error);
    check_cl(error, "the kernel");
    cl->clReleaseProgram(program);
    check_cl(cl->clSetKernelArg(gather->kernel, 0, sizeof(cl_mem), &gather->images), "an argument");
    check_cl(cl->clSetKernelArg(gather->kernel, 2, sizeof(cl_mem), &gather->numbers),
             "an argument");
    check_cl(cl->clSetKernelArg(gather->kernel, 3, sizeof units, &units), "an argument");
}

static void gather_close(struct gather *gather) {
    cl->clReleaseKernel(gather->kernel);
    for (size_t i = 0; i < NAKED_SLOTS; i++) {
        cl->clReleaseMemObject(gather->batch[i]);
    }
    cl->clReleaseMemObject(gather->numbers);
    cl->clReleaseMemObject(gather->images);
    free(gather->number);
}

static void bench_resident(void) {
    double brim[MOST_ROUNDS], naked[MOST_ROUNDS];
    uint8_t *images = malloc(IMAGES * ROW);
    brim_binding binding = BRIM_BINDING_INIT;
    brim_cache_stats cache = BRIM_CACHE_STATS_INIT;
    struct gather gather;
    struct feed feed;
    for (size_t i = 0; i < IMAGES * ROW; i++) {
        images[i] = (uint8_t)(i * 31);
    }
    binding.name = "images";
    binding.kind = BRIM_BINDING_ARRAY;
    binding.data = images;
    binding.dtype = BRIM_DTYPE_U8;
    binding.rank = 4;
    binding.shape[0] = IMAGES;
    binding.shape[1] = binding.shape[2] = SIDE;
    binding.shape[3] = 3;
    gather_open(&gather);
    feed_open(&feed,
              "array @images | shuffle seed=1 | normalize imagenet | layout chw | cache device | "
              "batch 64",
              &binding, 1);
    for (int i = 0; i < 20 && cache.filled < IMAGES; i++) {
        take(&feed, now() + 0.2, 0);
        check(brim_loader_read_cache_stats(feed.loader, 0, &cache), "the cache");
    }
    if (cache.filled < IMAGES) {
        die("cache device", "is not full");
    }
    for (int i = 0; i < rounds; i++) {
        naked[i] = naked_gather(&gather);
        brim[i] = rate(&feed, 0);
    }
    feed_close(&feed);
    gather_close(&gather);
    free(images);
    print_ratio("resident", "rows/s", brim, naked, 0.7);
}

/* ------------------------------------------------------------------- overlap */

/* Busy for a while, so that a batch takes long to make. */
static int make_slowly(void *user, const brim_call *call, brim_value *outputs, size_t count,
                       char *why, size_t why_bytes) {
    const double end = now() + *(const double *)user;
    (void)count, (void)why, (void)why_bytes;
    memset(outputs[0].data, (int)call->sample, outputs[0].bytes);
    while (now() < end) {
    }
    return 0;
}

static void bench_overlap(void) {
    double brim[MOST_ROUNDS], naked[MOST_ROUNDS], each = 100e-6;
    brim_field_spec field = BRIM_FIELD_SPEC_INIT;
    brim_binding binding = BRIM_BINDING_INIT;
    struct feed feed;
    field.name = "x";
    field.dtype = BRIM_DTYPE_U8;
    field.rank = 1;
    field.shape[0] = 4096;
    binding.name = "slow";
    binding.kind = BRIM_BINDING_SOURCE;
    binding.user = &each;
    binding.count = 100000;
    binding.fields = &field;
    binding.field_count = 1;
    binding.flags = BRIM_CALLBACK_PURE | BRIM_CALLBACK_CONCURRENT;
    binding.read = make_slowly;
    feed_open(&feed, "callback @slow | batch 64", &binding, 1);
    for (int i = 0; i < rounds; i++) {
        naked[i] = rate(&feed, 0); /* making alone, and a sleep of the same time */
        brim[i] = rate(&feed, (double)BATCH / naked[i]);
    }
    feed_close(&feed);
    print_ratio("overlap", "rows/s", brim, naked, 0.9);
}

int main(int argc, char **argv) {
    uint32_t count = 0;
    cl_int error;
    seconds_of_round = argc > 1 ? atof(argv[1]) : seconds_of_round;
    rounds = argc > 2 ? atoi(argv[2]) : rounds;
    if (seconds_of_round <= 0 || rounds < 1 || rounds > MOST_ROUNDS) {
        die("usage", "device [seconds of a round] [rounds, 1 to 99]");
    }
    if (brim_device_count(BRIM_DEVICE_OPENCL, &count) != BRIM_OK || count == 0 ||
        brim__opencl_load(&cl) != BRIM_OK) {
        printf("device: skipped: %s\n", brim_detail());
        return 0;
    }
    brim_device_info info = BRIM_DEVICE_INFO_INIT;
    check(brim_device_read(BRIM_DEVICE_OPENCL, 0, &info), "the device");
    printf("%s, %s, %ld CPUs\n", info.name, info.driver, sysconf(_SC_NPROCESSORS_ONLN));
    context = cl->clCreateContext(NULL, 1, &cl->device[0].id, NULL, NULL, &error);
    check_cl(error, "a context");
    queue = cl->clCreateCommandQueue(context, cl->device[0].id, 0, &error);
    check_cl(error, "a queue");
    bench_copy();
    bench_resident();
    bench_overlap();
    cl->clReleaseCommandQueue(queue);
    cl->clReleaseContext(context);
    return 0;
}

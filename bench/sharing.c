/*
 * sharing.c: a validation pass in the middle of training, in one budget.
 *
 * Both loaders stay open. The budget holds their minimums, the workers, scratch for both,
 * and the slots above the minimum of one of them: whoever is used has them. A round is
 *
 *     training (before) ─► validation ─► training (after) ─► both at once ─► validation alone
 *
 * where the last runs in a runtime of its own with the same limit. Compared are training
 * after with before, validation in the middle with alone, and, with both at once, the sum
 * of their shares with 1. Ratios are taken within a round, and the median over rounds is
 * printed beside what is wanted. The loops do nothing with their batches, so that every
 * rate is that of the loader; phases include the time until memory has moved.
 *
 *     sharing [seconds of a phase, default 1] [rounds, default 5]
 */
#include <brim.h>

#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define IMAGES      4096u
#define SIDE        64u
#define SLOTS       8u
#define WANTED      0.95
#define MOST_ROUNDS 99

static double seconds_of_phase = 1;
static int rounds = 5;
static char path[96];

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void check(brim_status status, const char *what) {
    if (status != BRIM_OK) {
        fprintf(stderr, "sharing: %s: %s\n", what, brim_detail());
        exit(1);
    }
}

/* ------------------------------------------------------------------- the data */

static void write_all(int fd, const void *bytes, size_t count) {
    if (write(fd, bytes, count) != (ssize_t)count) {
        perror("sharing: write");
        exit(1);
    }
}

static void prepare(void) {
    static uint64_t image[SIDE * SIDE * 3 / 8];
    char header[128];
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    memset(header, ' ', sizeof header);
    memcpy(header, "\x93NUMPY\x01\x00\x76\x00", 10);
    const int length = snprintf(
        header + 10, 100, "{'descr': '|u1', 'fortran_order': False, 'shape': (%u, %u, %u, 3), }",
        IMAGES, SIDE, SIDE);
    header[10 + length] = ' ';
    header[127] = '\n';
    write_all(fd, header, sizeof header);
    uint64_t state = 1;
    for (unsigned i = 0; i < IMAGES; i++) {
        for (size_t k = 0; k < sizeof image / 8; k++) {
            image[k] = state = state * 6364136223846793005u + 1442695040888963407u;
        }
        write_all(fd, image, sizeof image);
    }
    close(fd);
}

/* ---------------------------------------------------------------- the loaders */

static brim_runtime *new_runtime(uint64_t bytes) {
    brim_runtime_options options = BRIM_RUNTIME_OPTIONS_INIT;
    brim_runtime *runtime;
    options.host_bytes = bytes;
    check(brim_runtime_new(&options, &runtime), "runtime");
    return runtime;
}

static const char *const training_text =
    "npy %s | shuffle seed=7 | resize 48 48 | normalize imagenet | layout chw | batch 64";
static const char *const validation_text =
    "npy %s | resize 40 40 | normalize imagenet | layout chw | batch 64";

static brim_loader *open_loader(brim_runtime *runtime, const char *format, const char *label) {
    char text[512];
    brim_pipeline *pipeline;
    brim_loader *loader;
    brim_open_options options = BRIM_OPEN_OPTIONS_INIT;
    options.label = label;
    options.slots = SLOTS;
    snprintf(text, sizeof text, format, path);
    check(brim_pipeline_parse(text, &pipeline), "pipeline");
    check(brim_loader_open(runtime, pipeline, &options, &loader), "open");
    brim_pipeline_free(pipeline);
    return loader;
}

/* Samples a second. */
static double run(brim_loader *loader) {
    const double began = now();
    size_t made = 0;
    do {
        brim_batch *batch;
        const brim_status status = brim_loader_next(loader, BRIM_FOREVER, &batch);
        if (status == BRIM_STATUS_END) {
            continue;
        }
        check(status, "next");
        made += brim_batch_get(batch)->rows;
        brim_batch_release(batch);
    } while (now() - began < seconds_of_phase);
    return (double)made / (now() - began);
}

struct side {
    brim_loader *loader;
    double rate;
};

static void *run_in_thread(void *argument) {
    struct side *side = argument;
    side->rate = run(side->loader);
    return NULL;
}

static void run_both(struct side *a, struct side *b) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, run_in_thread, a) != 0) {
        perror("sharing: pthread_create");
        exit(1);
    }
    run_in_thread(b);
    pthread_join(thread, NULL);
}

static uint64_t charged(brim_runtime *runtime) {
    brim_usage usage = BRIM_USAGE_INIT;
    check(brim_runtime_read_usage(runtime, &usage), "usage");
    return usage.charged;
}

static uint32_t slots_of(brim_loader *loader) {
    brim_stats stats = BRIM_STATS_INIT;
    check(brim_loader_read_stats(loader, &stats), "stats");
    return stats.slots;
}

/* Both minimums, workers, scratch for both, and the slots of the one in use. */
static uint64_t budget_for_both(void) {
    brim_runtime *runtime = new_runtime(1u << 30);
    brim_loader *training = open_loader(runtime, training_text, "training");
    brim_loader *validation = open_loader(runtime, validation_text, "validation");
    const brim_plan_info *a = brim_plan_get(brim_loader_plan(training));
    const brim_plan_info *b = brim_plan_get(brim_loader_plan(validation));
    const uint64_t bytes = a->minimum_bytes + b->minimum_bytes +
                           a->threads * (a->stack_bytes + a->scratch_bytes + b->scratch_bytes) +
                           (SLOTS - a->minimum_slots) * a->slot_bytes;
    brim_loader_close(training);
    brim_loader_close(validation);
    brim_runtime_free(runtime);
    return bytes;
}

/* ---------------------------------------------------------------- the contest */

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values) {
    qsort(values, (size_t)rounds, sizeof *values, ascending);
    return values[rounds / 2];
}

static void report(const char *what, double *ratios) {
    const double found = median(ratios);
    printf("%-40s ratio %.2f  wanted %.2f%s\n", what, found, WANTED,
           found < WANTED ? "  NOT MET" : "");
}

int main(int argc, char **argv) {
    if (argc > 1) {
        seconds_of_phase = atof(argv[1]);
    }
    if (argc > 2 && atoi(argv[2]) > 0 && atoi(argv[2]) < MOST_ROUNDS) {
        rounds = atoi(argv[2]);
    }
    const char *temporary = getenv("TMPDIR");
    snprintf(path, sizeof path, "%.40s/brim-bench-XXXXXX", temporary != NULL ? temporary : "/tmp");
    const int fd = mkstemp(path);
    if (fd < 0) {
        perror("sharing: mkstemp");
        return 1;
    }
    close(fd);
    prepare();
    const uint64_t limit = budget_for_both();
    brim_runtime *together = new_runtime(limit), *apart = new_runtime(limit);
    brim_loader *training = open_loader(together, training_text, "training");
    brim_loader *validation = open_loader(together, validation_text, "validation");
    brim_loader *alone = open_loader(apart, validation_text, "validation");
    double before[MOST_ROUNDS], middle[MOST_ROUNDS], after[MOST_ROUNDS], alone_rate[MOST_ROUNDS];
    double after_ratio[MOST_ROUNDS], middle_ratio[MOST_ROUNDS], both_ratio[MOST_ROUNDS];
    double training_share[MOST_ROUNDS];
    run(training); /* warm, and grown */
    run(alone);
    printf("budget %.1f MiB\n", (double)limit / (1 << 20));
    for (int i = 0; i < rounds; i++) {
        before[i] = run(training);
        const uint64_t bytes_before = charged(together);
        const uint32_t slots_before = slots_of(training);
        middle[i] = run(validation);
        const uint32_t slots_middle = slots_of(training), slots_validation = slots_of(validation);
        after[i] = run(training);
        printf("round %d: charged %.2f MiB before, %.2f after; training's slots %u before, %u "
               "during (validation's %u), %u after\n",
               i + 1, (double)bytes_before / (1 << 20), (double)charged(together) / (1 << 20),
               slots_before, slots_middle, slots_validation, slots_of(training));
        struct side a = { .loader = training }, b = { .loader = validation };
        run_both(&a, &b);
        alone_rate[i] = run(alone);
        after_ratio[i] = after[i] / before[i];
        middle_ratio[i] = middle[i] / alone_rate[i];
        training_share[i] = a.rate / before[i];
        both_ratio[i] = training_share[i] + b.rate / alone_rate[i];
    }
    printf("training    before %9.0f/s  after %9.0f/s  beside validation %.2f of before\n",
           median(before), median(after), median(training_share));
    printf("validation  alone  %9.0f/s  in the middle %9.0f/s\n", median(alone_rate),
           median(middle));
    report("training after against before", after_ratio);
    report("validation in the middle against alone", middle_ratio);
    report("both at once, sum of their shares", both_ratio);
    brim_loader_close(training);
    brim_loader_close(validation);
    brim_loader_close(alone);
    brim_runtime_free(together);
    brim_runtime_free(apart);
    unlink(path);
    return 0;
}

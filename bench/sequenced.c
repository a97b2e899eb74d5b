/*
 * sequenced.c: samples placed one after the other against the direct path, side by
 * side in one run.
 *
 * The same samples from the caller's memory, in random order: directly, behind a
 * filter that keeps all, behind one that keeps half (counted by samples
 * delivered), and through a shuffle with a buffer. Rounds alternate; a ratio is
 * the median over rounds.
 *
 *     sequenced [seconds of a round, default 0.25] [rounds, default 7]
 */
#include <brim.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MOST_ROUNDS 99
#define WAYS        4

static double seconds_of_round = 0.25;
static int rounds = 7;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void check(brim_status status, const char *what) {
    if (status != BRIM_OK) {
        fprintf(stderr, "sequenced: %s: %s\n", what, brim_detail());
        exit(1);
    }
}

struct load {
    const char *name;
    brim_dtype dtype;
    int64_t samples, elements;
    const char *rest; /* of the pipeline, behind the order */
};

static const struct load loads[] = {
    { "16 floats", BRIM_DTYPE_F32, 400000, 16, "batch 256" },
    { "tokens", BRIM_DTYPE_U16, 40000, 1024, "cast int64 | batch 32" },
    { "images", BRIM_DTYPE_U8, 20000, 3072, "normalize unit | batch 64" },
};

static const struct {
    const char *name, *text;
} ways[WAYS] = {
    { "direct", "zip (array @x) (range %lld) | shuffle seed=7 | %s" },
    { "keeps all", "zip (array @x) (range %lld) | shuffle seed=7 | filter \"index>=0\" | %s" },
    { "keeps half", "zip (array @x) (range %lld) | shuffle seed=7 | filter \"index>=%lld\" | %s" },
    { "buffer=8MiB",
      "zip (array @x) (range %lld) | filter \"index>=0\" | shuffle buffer=8MiB | %s" },
};

static brim_loader *open_way(brim_runtime *runtime, const struct load *load, int way,
                             const brim_binding *binding) {
    char text[512];
    brim_pipeline *pipeline;
    brim_loader *loader;
    brim_open_options options = BRIM_OPEN_OPTIONS_INIT;
    options.bindings = binding;
    options.binding_count = 1;
    if (way == 2) {
        snprintf(text, sizeof text, ways[way].text, (long long)load->samples,
                 (long long)load->samples / 2, load->rest);
    } else {
        snprintf(text, sizeof text, ways[way].text, (long long)load->samples, load->rest);
    }
    check(brim_pipeline_parse(text, &pipeline), "parsing");
    check(brim_loader_open(runtime, pipeline, &options, &loader), "opening");
    brim_pipeline_free(pipeline);
    return loader;
}

/* Samples delivered in a second. */
static double rate(brim_loader *loader) {
    const double begin = now();
    uint64_t rows = 0;
    double took = 0;
    while (took < seconds_of_round) {
        brim_batch *batch;
        const brim_status status = brim_loader_next(loader, BRIM_FOREVER, &batch);
        if (status == BRIM_OK) {
            rows += brim_batch_get(batch)->rows;
            brim_batch_release(batch);
        } else if (status != BRIM_STATUS_END) {
            check(status, "next");
        }
        took = now() - begin;
    }
    return (double)rows / took;
}

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values) {
    qsort(values, (size_t)rounds, sizeof values[0], ascending);
    return values[rounds / 2];
}

static void run(const struct load *load, int threads) {
    static double rates[WAYS][MOST_ROUNDS], ratio[MOST_ROUNDS];
    const size_t bytes = (size_t)(load->samples * load->elements) * brim_dtype_bytes(load->dtype);
    void *data = malloc(bytes);
    brim_runtime_options options = BRIM_RUNTIME_OPTIONS_INIT;
    brim_binding binding = BRIM_BINDING_INIT;
    brim_runtime *runtime;
    brim_loader *loader[WAYS];
    if (data == NULL) {
        exit(1);
    }
    memset(data, 7, bytes);
    binding.name = "x";
    binding.data = data;
    binding.dtype = load->dtype;
    binding.rank = 2;
    binding.shape[0] = load->samples;
    binding.shape[1] = load->elements;
    options.host_bytes = 256u << 20;
    options.threads = threads;
    check(brim_runtime_new(&options, &runtime), "runtime");
    for (int way = 0; way < WAYS; way++) {
        loader[way] = open_way(runtime, load, way, &binding);
        rate(loader[way]); /* warm */
    }
    for (int round = 0; round < rounds; round++) {
        for (int way = 0; way < WAYS; way++) {
            rates[way][round] = rate(loader[way]);
        }
    }
    memcpy(ratio, rates[0], sizeof ratio); /* it is sorted */
    printf("%-10s %d threads  direct %8.0f k/s", load->name, threads, median(ratio) * 1e-3);
    for (int way = 1; way < WAYS; way++) {
        for (int round = 0; round < rounds; round++) {
            ratio[round] = rates[way][round] / rates[0][round];
        }
        printf("  %s %5.2f", ways[way].name, median(ratio));
    }
    printf("\n");
    for (int way = 0; way < WAYS; way++) {
        brim_loader_close(loader[way]);
    }
    brim_runtime_free(runtime);
    free(data);
}

int main(int count, char **words) {
    if (count > 1) {
        seconds_of_round = atof(words[1]);
    }
    if (count > 2) {
        rounds = atoi(words[2]);
    }
    if (seconds_of_round <= 0 || rounds < 1 || rounds > MOST_ROUNDS) {
        fprintf(stderr, "usage: sequenced [seconds of a round] [rounds, at most %d]\n",
                MOST_ROUNDS);
        return 2;
    }
    printf("samples delivered in a second; ratios to the direct path\n");
    for (size_t i = 0; i < sizeof loads / sizeof loads[0]; i++) {
        for (int threads = 0; threads <= 2; threads++) {
            run(&loads[i], threads);
        }
    }
    return 0;
}

/*
 * direct.c: the direct path against plain C loops, side by side in one run.
 *
 * Two loads, in random order from the page cache:
 *   tokens  windows of 1,025 uint16 tokens to int64 x and y
 *   arrays  32x32x3 uint8 images to normalised float32, channels first
 * Each is read from a file with reads, and from memory (a map, the caller's
 * array). The plain loop knows the order in advance (a table of numbers), reads
 * the same ranges into the same number of slots and converts with a simple loop;
 * it does nothing else. Rounds alternate between the loop and brim, so that both
 * see the same machine; the ratio is the median over rounds.
 *
 *     direct [seconds of a round, default 0.25] [rounds, default 7]
 */
#include <brim.h>

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define LENGTH      1024
#define TOKENS      (100u << 20)
#define IMAGES      50000u
#define PIXELS      1024u
#define MOST_SLOTS  16
#define MOST_ROUNDS 99

static double seconds_of_round = 0.25;
static int rounds = 7;
static char directory[64];

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void die(const char *what) {
    fprintf(stderr, "direct: %s: %s\n", what, brim_detail());
    exit(1);
}

static void check(brim_status status, const char *what) {
    if (status != BRIM_OK) {
        die(what);
    }
}

static uint64_t next_random(uint64_t *state) {
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* --------------------------------------------------------------- the loads */

struct load {
    const char *name;
    const char *file;      /* pipeline that reads */
    const char *memory;    /* pipeline over memory */
    size_t record, header; /* bytes of a sample, and of what stands before the first */
    size_t stride;         /* between samples */
    size_t samples, rows, row_bytes;
    void (*convert)(const uint8_t *record, uint8_t *slot, size_t row, size_t rows);
    char path[96];
    int fd;
    const uint8_t *map;
    size_t bytes;
    uint32_t *order;
    uint8_t *slots;
};

static void convert_tokens(const uint8_t *record, uint8_t *slot, size_t row, size_t rows) {
    const uint16_t *tokens = (const uint16_t *)(const void *)record;
    int64_t *x = (int64_t *)(void *)slot + row * LENGTH;
    int64_t *y = (int64_t *)(void *)slot + (rows + row) * LENGTH;
    for (size_t i = 0; i < LENGTH; i++) {
        x[i] = tokens[i];
    }
    for (size_t i = 0; i < LENGTH; i++) {
        y[i] = tokens[i + 1];
    }
}

static void convert_image(const uint8_t *record, uint8_t *slot, size_t row, size_t rows) {
    static const float scale[3] = { 0.0157f, 0.0163f, 0.0151f }, bias[3] = { -2, -2, -1.7f };
    float *planes = (float *)(void *)slot + row * 3 * PIXELS;
    (void)rows;
    for (size_t c = 0; c < 3; c++) {
        for (size_t p = 0; p < PIXELS; p++) {
            planes[c * PIXELS + p] = (float)record[p * 3 + c] * scale[c] + bias[c];
        }
    }
}

static struct load loads[] = {
    { .name = "tokens",
      .file = "tokens %s length=1024 | shuffle seed=7 | cast int64 | batch 32",
      .memory = "tokens %s length=1024 map=yes | shuffle seed=7 | cast int64 | batch 32",
      .record = (LENGTH + 1) * 2,
      .stride = LENGTH * 2,
      .samples = (TOKENS - 1) / LENGTH,
      .rows = 32,
      .row_bytes = LENGTH * 16,
      .convert = convert_tokens },
    { .name = "arrays",
      .file = "npy %s | shuffle seed=7 | normalize mean=0.5,0.5,0.45 std=0.25,0.24,0.26 | "
              "layout chw | batch 64",
      .memory = "array @x | shuffle seed=7 | normalize mean=0.5,0.5,0.45 std=0.25,0.24,0.26 | "
                "layout chw | batch 64",
      .record = PIXELS * 3,
      .header = 128,
      .stride = PIXELS * 3,
      .samples = IMAGES,
      .rows = 64,
      .row_bytes = PIXELS * 12,
      .convert = convert_image },
};

static void write_all(int fd, const void *bytes, size_t count) {
    if (write(fd, bytes, count) != (ssize_t)count) {
        perror("direct: write");
        exit(1);
    }
}

static void prepare(struct load *load) {
    snprintf(load->path, sizeof load->path, "%s/%s", directory, load->name);
    load->fd = open(load->path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (load->header > 0) {
        char header[128];
        memset(header, ' ', sizeof header);
        memcpy(header, "\x93NUMPY\x01\x00\x76\x00", 10);
        const int length = snprintf(header + 10, 100,
                                    "{'descr': '|u1', 'fortran_order': False, 'shape': (%u, 32, "
                                    "32, 3), }",
                                    IMAGES);
        header[10 + length] = ' ';
        header[127] = '\n';
        write_all(load->fd, header, sizeof header);
    }
    const size_t block = 1 << 20;
    uint64_t state = 1;
    uint64_t *noise = malloc(block);
    load->bytes = load->header + (load->samples - 1) * load->stride + load->record;
    for (size_t at = load->header; at < load->bytes; at += block) {
        for (size_t i = 0; i < block / 8; i++) {
            noise[i] = next_random(&state);
        }
        write_all(load->fd, noise, load->bytes - at < block ? load->bytes - at : block);
    }
    free(noise);
    load->map = mmap(NULL, load->bytes, PROT_READ, MAP_SHARED, load->fd, 0);
    load->order = malloc(load->samples * sizeof *load->order);
    for (size_t i = 0; i < load->samples; i++) {
        load->order[i] = (uint32_t)i;
    }
    for (size_t i = load->samples; i > 1; i--) {
        const size_t j = next_random(&state) % i;
        const uint32_t swap = load->order[i - 1];
        load->order[i - 1] = load->order[j];
        load->order[j] = swap;
    }
    load->slots = aligned_alloc(4096, MOST_SLOTS * load->rows * load->row_bytes);
    memset(load->slots, 1, MOST_SLOTS * load->rows * load->row_bytes);
}

/* ---------------------------------------------------------------- contests */

/* Samples a second of the plain loop. */
static double run_loop(const struct load *load, bool from_memory, size_t slots) {
    static size_t at;
    uint8_t record[4096];
    const double began = now();
    size_t made = 0, slot = 0;
    do {
        uint8_t *rows = load->slots + slot * load->rows * load->row_bytes;
        for (size_t row = 0; row < load->rows; row++, at++) {
            const off_t offset =
                (off_t)(load->header + load->order[at % load->samples] * load->stride);
            const uint8_t *source = load->map + offset;
            if (!from_memory) {
                if (pread(load->fd, record, load->record, offset) != (ssize_t)load->record) {
                    perror("direct: pread");
                    exit(1);
                }
                source = record;
            }
            load->convert(source, rows, row, load->rows);
        }
        made += load->rows;
        slot = (slot + 1) % slots;
    } while (now() - began < seconds_of_round);
    return (double)made / (now() - began);
}

struct feed {
    brim_runtime *runtime;
    brim_pipeline *pipeline;
    brim_loader *loader;
    double first_batch;
};

static void feed_open(struct feed *feed, const struct load *load, bool from_memory, int threads,
                      uint64_t memory) {
    char text[512];
    snprintf(text, sizeof text, from_memory ? load->memory : load->file, load->path);
    brim_runtime_options options = BRIM_RUNTIME_OPTIONS_INIT;
    options.host_bytes = memory;
    options.threads = threads;
    brim_binding binding = BRIM_BINDING_INIT;
    binding.name = "x";
    binding.kind = BRIM_BINDING_ARRAY;
    binding.data = load->map + load->header;
    binding.dtype = BRIM_DTYPE_U8;
    binding.rank = 4;
    binding.shape[0] = IMAGES;
    binding.shape[1] = binding.shape[2] = 32;
    binding.shape[3] = 3;
    brim_open_options open = BRIM_OPEN_OPTIONS_INIT;
    open.bindings = &binding;
    open.binding_count = 1;
    check(brim_runtime_new(&options, &feed->runtime), "runtime");
    check(brim_pipeline_parse(text, &feed->pipeline), "pipeline");
    check(brim_loader_open(feed->runtime, feed->pipeline, &open, &feed->loader), "open");
}

static void feed_close(struct feed *feed) {
    brim_stats stats = BRIM_STATS_INIT;
    check(brim_loader_read_stats(feed->loader, &stats), "stats");
    feed->first_batch = 1e-9 * (double)stats.first_batch_ns;
    brim_loader_close(feed->loader);
    brim_pipeline_free(feed->pipeline);
    brim_runtime_free(feed->runtime);
}

static double run_brim(const struct feed *feed) {
    const double began = now();
    size_t made = 0;
    do {
        brim_batch *batch;
        const brim_status status = brim_loader_next(feed->loader, BRIM_FOREVER, &batch);
        if (status == BRIM_STATUS_END) {
            continue;
        }
        check(status, "next");
        made += brim_batch_get(batch)->rows;
        brim_batch_release(batch);
    } while (now() - began < seconds_of_round);
    return (double)made / (now() - began);
}

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int count) {
    qsort(values, (size_t)count, sizeof *values, ascending);
    return values[count / 2];
}

static void contest(const struct load *load, bool from_memory, int threads) {
    struct feed feed;
    double ratio[MOST_ROUNDS], loop[MOST_ROUNDS], brim[MOST_ROUNDS];
    feed_open(&feed, load, from_memory, threads, 256u << 20);
    run_brim(&feed); /* warm, and grown */
    brim_stats stats = BRIM_STATS_INIT;
    check(brim_loader_read_stats(feed.loader, &stats), "stats");
    const size_t slots = stats.slots < MOST_SLOTS ? stats.slots : MOST_SLOTS;
    for (int i = 0; i < rounds; i++) {
        loop[i] = run_loop(load, from_memory, slots);
        brim[i] = run_brim(&feed);
        ratio[i] = brim[i] / loop[i];
    }
    feed_close(&feed);
    printf("%-7s %-7s %d worker%s  plain loop %9.0f/s  brim %9.0f/s  ratio %.2f  first batch %.1f "
           "ms\n",
           load->name, from_memory ? "memory" : "reads", threads, threads == 1 ? " " : "s",
           median(loop, rounds), median(brim, rounds), median(ratio, rounds),
           1e3 * feed.first_batch);
}

/* The smallest budget against a large one, one worker asked for. */
static void contest_budget(const struct load *load) {
    struct feed small, large;
    double ratio[MOST_ROUNDS];
    feed_open(&large, load, false, 1, 256u << 20);
    const uint64_t minimum = brim_plan_get(brim_loader_plan(large.loader))->minimum_bytes;
    feed_open(&small, load, false, 1, minimum);
    run_brim(&small);
    run_brim(&large);
    for (int i = 0; i < rounds; i++) {
        const double of_large = run_brim(&large);
        ratio[i] = run_brim(&small) / of_large;
    }
    feed_close(&small);
    feed_close(&large);
    printf("%-7s reads   1 worker   minimum budget (%.1f MiB) against 256 MiB: ratio %.2f\n",
           load->name, (double)minimum / (1 << 20), median(ratio, rounds));
}

int main(int argc, char **argv) {
    if (argc > 1) {
        seconds_of_round = atof(argv[1]);
    }
    if (argc > 2 && atoi(argv[2]) > 0 && atoi(argv[2]) < MOST_ROUNDS) {
        rounds = atoi(argv[2]);
    }
    const char *temporary = getenv("TMPDIR");
    snprintf(directory, sizeof directory, "%.40s/brim-bench-XXXXXX",
             temporary != NULL ? temporary : "/tmp");
    if (mkdtemp(directory) == NULL) {
        perror("direct: mkdtemp");
        return 1;
    }
    for (size_t i = 0; i < sizeof loads / sizeof loads[0]; i++) {
        struct load *load = &loads[i];
        prepare(load);
        for (int memory = 0; memory < 2; memory++) {
            for (int threads = 0; threads <= 2; threads++) {
                contest(load, memory == 1, threads);
            }
        }
        contest_budget(load);
        unlink(load->path);
    }
    rmdir(directory);
    return 0;
}

/*
 * cache.c: full caches against plain loops over memory, and what filling one costs.
 *
 *   memory, file  uint8 images of 224x224x3 that all are in the tier (the file in the page
 *                 cache), in random order, flipped with chance, normalised to float32,
 *                 channels first, batches of 64. The plain loop has the same bytes in its
 *                 own memory, knows order and flips in advance, has as many threads as brim
 *                 has workers, and writes into as many slots in turn.
 *   filling       the first epoch over JPEGs that are decoded and resized to 224x224, from
 *                 opening to its end, with a cache and without; and the processor's time for
 *                 an image, which others on the machine change less than the rate
 *
 * Rounds alternate between the sides. Rates and ratios are medians over the rounds, a ratio
 * being taken within each, with the least and the largest of them in brackets. What is wanted
 * stands beside a ratio, with NOT MET where it is not reached.
 *
 *     cache [images, default 1536] [seconds of a round, default 0.5] [rounds, default 7]
 *           [folder of JPEGs]
 *
 * Without a folder (and without ../shared/data/imagenet) it draws 200 images itself.
 */
#include <brim.h>

#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <jpeglib.h>

#define SIDE         224u
#define PIXELS       (SIDE * SIDE)
#define BATCH        64u
#define DRAWN        200
#define MOST_COPIES  16
#define MOST_THREADS 2
#define MOST_EPOCHS  20 /* in which a cache must be full */
#define MOST_ROUNDS  99

#define WANTED_MEMORY  0.7 /* of the plain loop */
#define WANTED_FILE    0.5
#define WANTED_FILLING 0.95 /* of the epoch without a cache */

#define BEHIND "flip | normalize imagenet | layout chw | batch 64"

static size_t image_count = 1536;
static double seconds_of_round = 0.5;
static int rounds = 7;
static char directory[64];
static char npy[96], cache_path[96];
static uint8_t *images;
static uint32_t *order; /* an image's number, and above it whether it is flipped */
#define FLIPPED 0x80000000u

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* That the process has had of the processors. */
static double used(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

static void die(const char *what, const char *why) {
    fprintf(stderr, "cache: %s: %s\n", what, why);
    exit(1);
}

static void check(brim_status status, const char *what) {
    if (status != BRIM_OK) {
        die(what, brim_detail());
    }
}

static uint64_t next_random(uint64_t *state) {
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts them. */
static double median(double *values) {
    qsort(values, (size_t)rounds, sizeof *values, ascending);
    return values[rounds / 2];
}

static void print_ratio(const char *name, double *with, double *without, double *ratio,
                        double wanted) {
    const double middle = median(ratio);
    printf("%-22s %8.0f/s  brim %8.0f/s  ratio %.2f (%.2f to %.2f)  wanted %.2f%s", name,
           median(without), median(with), middle, ratio[0], ratio[rounds - 1], wanted,
           middle < wanted ? "  NOT MET" : "");
}

/* ---------------------------------------------------------------------- files */

static void prepare_images(void) {
    char header[128];
    const size_t bytes = image_count * PIXELS * 3;
    uint64_t state = 1;
    images = aligned_alloc(4096, (bytes + 4095) & ~(size_t)4095);
    order = malloc(image_count * sizeof *order);
    FILE *file = fopen(npy, "wb");
    if (images == NULL || order == NULL || file == NULL) {
        die(npy, "no memory for the images, or no file");
    }
    for (size_t i = 0; i < bytes / 8; i++) { /* a whole number, for PIXELS is */
        const uint64_t noise = next_random(&state);
        memcpy(images + i * 8, &noise, 8);
    }
    memset(header, ' ', sizeof header);
    memcpy(header, "\x93NUMPY\x01\x00\x76\x00", 10);
    const int length = snprintf(header + 10, 100,
                                "{'descr': '|u1', 'fortran_order': False, 'shape': (%zu, %u, %u, "
                                "3), }",
                                image_count, SIDE, SIDE);
    header[10 + length] = ' ';
    header[127] = '\n';
    if (fwrite(header, sizeof header, 1, file) != 1 || fwrite(images, bytes, 1, file) != 1 ||
        fclose(file) != 0) {
        die(npy, "cannot be written");
    }
    for (size_t i = 0; i < image_count; i++) {
        order[i] = (uint32_t)i;
    }
    for (size_t i = image_count; i > 1; i--) {
        const size_t j = next_random(&state) % i;
        const uint32_t swap = order[i - 1];
        order[i - 1] = order[j];
        order[j] = swap;
    }
    for (size_t i = 0; i < image_count; i++) {
        order[i] |= next_random(&state) & 1 ? FLIPPED : 0;
    }
}

/* A picture with edges, slopes and noise, so that it compresses like a photograph. */
static void draw(const char *path, uint64_t seed) {
    struct jpeg_compress_struct jpeg;
    struct jpeg_error_mgr error;
    uint8_t row[500 * 3];
    uint64_t state = seed;
    FILE *file = fopen(path, "wb");
    if (file == NULL) {
        die(path, "cannot be written");
    }
    jpeg.err = jpeg_std_error(&error);
    jpeg_create_compress(&jpeg);
    jpeg_stdio_dest(&jpeg, file);
    jpeg.image_width = 500;
    jpeg.image_height = 375;
    jpeg.input_components = 3;
    jpeg.in_color_space = JCS_RGB;
    jpeg_set_defaults(&jpeg);
    jpeg_set_quality(&jpeg, 92, TRUE);
    jpeg_start_compress(&jpeg, TRUE);
    for (uint32_t y = 0; y < 375; y++) {
        for (uint32_t x = 0; x < 500; x++) {
            const uint64_t noise = next_random(&state);
            uint64_t place = seed << 32 | (x / 37) << 16 | y / 29;
            const uint64_t block = next_random(&place);
            for (uint32_t c = 0; c < 3; c++) {
                row[x * 3 + c] = (uint8_t)((x * (c + 1) / 7 + y / (c + 2)) / 4 +
                                           (block >> 8 * c & 127) + (noise >> 8 * c & 31));
            }
        }
        JSAMPROW rows[] = { row };
        jpeg_write_scanlines(&jpeg, rows, 1);
    }
    jpeg_finish_compress(&jpeg);
    jpeg_destroy_compress(&jpeg);
    fclose(file);
}

static void draw_folder(const char *path) {
    char name[128];
    mkdir(path, 0700);
    for (int i = 0; i < DRAWN; i++) {
        snprintf(name, sizeof name, "%s/%03d.jpg", path, i);
        draw(name, (uint64_t)i + 1);
    }
}

static size_t count_files(const char *path) {
    size_t count = 0;
    DIR *folder = opendir(path);
    if (folder == NULL) {
        die(path, "cannot be read");
    }
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        count += entry->d_name[0] != '.';
    }
    closedir(folder);
    return count;
}

/* ------------------------------------------------------------- the plain loop */

struct loop {
    float *slots;
    size_t slot_count;
    double end;
    _Atomic uint64_t next; /* batch; goes on over the rounds */
    _Atomic uint64_t made; /* images */
};

/* Row by row: bytes to their planes, mirrored or not, then planes to numbers. The compiler makes
 * good vectors of both, which it does not of a loop that mirrors and converts at once. */
static void convert(const uint8_t *image, bool flipped, float *planes) {
    static const float scale[3] = { 0.01712475f, 0.01750700f, 0.01742919f };
    static const float bias[3] = { -2.11790393f, -2.03571429f, -1.80444444f };
    uint8_t row[3][SIDE];
    for (size_t y = 0; y < SIDE; y++) {
        const uint8_t *from = image + y * SIDE * 3;
        if (flipped) {
            for (size_t x = 0; x < SIDE; x++) {
                row[0][SIDE - 1 - x] = from[3 * x];
                row[1][SIDE - 1 - x] = from[3 * x + 1];
                row[2][SIDE - 1 - x] = from[3 * x + 2];
            }
        } else {
            for (size_t x = 0; x < SIDE; x++) {
                row[0][x] = from[3 * x];
                row[1][x] = from[3 * x + 1];
                row[2][x] = from[3 * x + 2];
            }
        }
        for (size_t c = 0; c < 3; c++) {
            float *to = planes + c * PIXELS + y * SIDE;
            for (size_t x = 0; x < SIDE; x++) {
                to[x] = (float)row[c][x] * scale[c] + bias[c];
            }
        }
    }
}

static void *loop_thread(void *user) {
    struct loop *loop = user;
    do {
        const uint64_t batch = atomic_fetch_add(&loop->next, 1);
        float *rows = loop->slots + batch % loop->slot_count * BATCH * PIXELS * 3;
        for (size_t row = 0; row < BATCH; row++) {
            const uint32_t place = order[(batch * BATCH + row) % image_count];
            convert(images + (size_t)(place & ~FLIPPED) * PIXELS * 3, (place & FLIPPED) != 0,
                    rows + row * PIXELS * 3);
        }
        atomic_fetch_add(&loop->made, BATCH);
    } while (now() < loop->end);
    return NULL;
}

/* Images a second. */
static double run_loop(struct loop *loop, int threads) {
    pthread_t thread[MOST_THREADS];
    const double began = now();
    loop->end = began + seconds_of_round;
    loop->made = 0;
    for (int i = 0; i < threads; i++) {
        if (pthread_create(&thread[i], NULL, loop_thread, loop) != 0) {
            die("plain loop", "no thread");
        }
    }
    for (int i = 0; i < threads; i++) {
        pthread_join(thread[i], NULL);
    }
    return (double)loop->made / (now() - began);
}

/* ----------------------------------------------------------------------- brim */

struct feed {
    brim_runtime *runtime;
    brim_pipeline *pipeline;
    brim_loader *loader;
};

static void feed_open(struct feed *feed, const char *text, int threads) {
    brim_runtime_options options = BRIM_RUNTIME_OPTIONS_INIT;
    options.host_bytes = image_count * PIXELS * 3 + (512u << 20);
    options.threads = threads;
    options.index_dir = directory;
    check(brim_runtime_new(&options, &feed->runtime), "runtime");
    check(brim_pipeline_parse(text, &feed->pipeline), text);
    check(brim_loader_open(feed->runtime, feed->pipeline, NULL, &feed->loader), text);
}

static void feed_close(struct feed *feed) {
    brim_loader_close(feed->loader);
    brim_pipeline_free(feed->pipeline);
    brim_runtime_free(feed->runtime);
}

/* Images of the next batch; 0 at the end of an epoch. */
static uint64_t take(const struct feed *feed) {
    brim_batch *batch;
    const brim_status status = brim_loader_next(feed->loader, BRIM_FOREVER, &batch);
    if (status == BRIM_STATUS_END) {
        return 0;
    }
    check(status, "next");
    const uint64_t rows = brim_batch_get(batch)->rows;
    brim_batch_release(batch);
    return rows;
}

static brim_cache_stats read_cache(const struct feed *feed) {
    brim_cache_stats stats = BRIM_CACHE_STATS_INIT;
    check(brim_loader_read_cache_stats(feed->loader, 0, &stats), "cache's statistics");
    return stats;
}

static double run_brim(const struct feed *feed) {
    const double began = now();
    uint64_t made = 0;
    do {
        made += take(feed);
    } while (now() - began < seconds_of_round);
    return (double)made / (now() - began);
}

/* Epochs until everything is cached. What a file's writer cannot take is left for the next. */
static void fill(const struct feed *feed) {
    brim_cache_stats stats = read_cache(feed);
    for (int i = 0; stats.filled < stats.samples && i < MOST_EPOCHS; i++) {
        while (take(feed) > 0) {
        }
        stats = read_cache(feed);
    }
    if (stats.filled < stats.samples) {
        fprintf(stderr, "cache: only %llu of %llu samples are kept. %s\n",
                (unsigned long long)stats.filled, (unsigned long long)stats.samples, stats.warning);
        exit(1);
    }
}

/* ------------------------------------------------------------------- contests */

static void contest(const char *name, const char *stage, int threads, double wanted) {
    struct feed feed;
    struct loop loop = { 0 };
    double ratio[MOST_ROUNDS], plain[MOST_ROUNDS], own[MOST_ROUNDS];
    char text[512], title[64];
    snprintf(text, sizeof text, "npy %s | shuffle seed=7 | %s | " BEHIND, npy, stage);
    feed_open(&feed, text, threads);
    fill(&feed);
    run_brim(&feed); /* warm, and grown */
    brim_stats stats = BRIM_STATS_INIT;
    check(brim_loader_read_stats(feed.loader, &stats), "statistics");
    const uint64_t misses = read_cache(&feed).misses;
    const size_t bytes = (size_t)stats.slots * BATCH * PIXELS * 3 * sizeof(float);
    loop.slot_count = stats.slots;
    loop.slots = aligned_alloc(4096, bytes);
    if (loop.slots == NULL) {
        die("plain loop", "no memory for its slots");
    }
    memset(loop.slots, 1, bytes);
    for (int i = 0; i < rounds; i++) {
        plain[i] = run_loop(&loop, threads);
        own[i] = run_brim(&feed);
        ratio[i] = own[i] / plain[i];
    }
    if (read_cache(&feed).misses != misses) {
        die(name, "some samples were not found any more");
    }
    feed_close(&feed);
    free(loop.slots);
    snprintf(title, sizeof title, "%-7s %d worker%s", name, threads, threads == 1 ? "" : "s");
    print_ratio(title, own, plain, ratio, wanted);
    printf("  %u slots\n", stats.slots);
    fflush(stdout);
}

/* The rate of a first epoch, the processor's milliseconds for an image, and how much was kept. */
static double run_first(const char *folder, size_t copies, const char *stage, double *cost,
                        double *kept) {
    struct feed feed;
    char text[MOST_COPIES * 256 + 512] = "folder";
    for (size_t i = 0; i < copies; i++) {
        snprintf(text + strlen(text), sizeof text - strlen(text), " \"%.250s\"", folder);
    }
    snprintf(text + strlen(text), sizeof text - strlen(text),
             " classes=no | decode | resize 224 224 | %s" BEHIND, stage);
    uint64_t made = 0;
    const double began = now(), used_before = used();
    feed_open(&feed, text, MOST_THREADS);
    for (uint64_t rows; (rows = take(&feed)) > 0;) {
        made += rows;
    }
    const double rate = (double)made / (now() - began);
    *cost = 1000 * (used() - used_before) / (double)made;
    if (stage[0] != '\0') {
        const brim_cache_stats stats = read_cache(&feed);
        *kept = (double)stats.stored / (double)stats.samples;
    }
    feed_close(&feed);
    unlink(cache_path);
    return rate;
}

static void contest_filling(const char *name, const char *stage, const char *folder,
                            size_t copies) {
    double ratio[MOST_ROUNDS], without[MOST_ROUNDS], with[MOST_ROUNDS], kept[MOST_ROUNDS];
    double cost_without[MOST_ROUNDS], cost_with[MOST_ROUNDS];
    char title[64];
    run_first(folder, copies, "", cost_with, kept);
    for (int i = 0; i < rounds; i++) {
        without[i] = run_first(folder, copies, "", &cost_without[i], kept);
        with[i] = run_first(folder, copies, stage, &cost_with[i], &kept[i]);
        ratio[i] = with[i] / without[i];
    }
    snprintf(title, sizeof title, "filling %s", name);
    print_ratio(title, with, without, ratio, WANTED_FILLING);
    printf("  %.0f %% kept; processor %.3f ms an image, %.3f without\n", 100 * median(kept),
           median(cost_with), median(cost_without));
    fflush(stdout);
}

int main(int count, char **words) {
    char file_stage[128], filling_stage[132], drawn[96];
    if (count > 1 && atoi(words[1]) >= (int)BATCH) {
        image_count = (size_t)atoi(words[1]) / BATCH * BATCH;
    }
    if (count > 2) {
        seconds_of_round = atof(words[2]);
    }
    if (count > 3 && atoi(words[3]) > 0 && atoi(words[3]) < MOST_ROUNDS) {
        rounds = atoi(words[3]);
    }
    const char *temporary = getenv("TMPDIR");
    snprintf(directory, sizeof directory, "%.40s/brim-bench-XXXXXX",
             temporary != NULL ? temporary : "/tmp");
    if (mkdtemp(directory) == NULL) {
        perror("cache: mkdtemp");
        return 1;
    }
    snprintf(npy, sizeof npy, "%s/images.npy", directory);
    snprintf(cache_path, sizeof cache_path, "%s/images.brimcache", directory);
    snprintf(file_stage, sizeof file_stage, "cache file=%s", cache_path);
    prepare_images();
    printf("%zu images, rounds of %.2f s, %d of them; first the plain loop, or brim without\n",
           image_count, seconds_of_round, rounds);
    for (int threads = 1; threads <= MOST_THREADS; threads++) {
        contest("memory", "cache memory", threads, WANTED_MEMORY);
    }
    for (int threads = 1; threads <= MOST_THREADS; threads++) {
        contest("file", file_stage, threads, WANTED_FILE); /* the second finds it full */
    }
    unlink(cache_path);
    unlink(npy);

    const char *folder = count > 4 ? words[4] : "../shared/data/imagenet";
    if (access(folder, R_OK) != 0) {
        snprintf(drawn, sizeof drawn, "%s/drawn", directory);
        draw_folder(drawn);
        folder = drawn;
    }
    const size_t files = count_files(folder);
    size_t copies = files > 0 ? image_count / files : 1;
    copies = copies < 1 ? 1 : copies > MOST_COPIES ? MOST_COPIES : copies;
    snprintf(filling_stage, sizeof filling_stage, "%s | ", file_stage);
    contest_filling("memory", "cache memory | ", folder, copies);
    contest_filling("a file", filling_stage, folder, copies);
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", directory);
    return system(command) == 0 ? 0 : 1;
}

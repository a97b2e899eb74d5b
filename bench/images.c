/*
 * images.c: decoding, cropping and resizing JPEGs against libjpeg-turbo itself.
 *
 * The naked loop does nothing but decode: as many threads, one decompressor for each,
 * used again and again; it reads a file, skips to the crop, decodes the crop's rows and
 * columns and throws them away. For validation it decodes whole images. brim does the
 * same and resizes, flips, normalises and writes batches. Rounds alternate; a ratio is
 * the median over rounds.
 *
 *   train       random_resized_crop 224, flip, normalise, float32 CHW, batches of 64;
 *               the naked loop decodes the very same crops
 *   validation  resize 256, center_crop 224, normalise, float32 CHW
 *   photos      12-megapixel images, exact and with decode fast=yes
 *   memory      float32 batches in 96 MiB and uint8 ones in 24 MiB, and what is resident
 *
 *     images [folder of JPEGs] [images in a round, default 2000] [rounds, default 5]
 *
 * Without a folder (and without ../shared/data/imagenet) it draws 200 images itself.
 */
#include "base/real.h"
#include "order/philox.h"

#include <brim.h>

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <jpeglib.h>

#define THREADS     2
#define MOST_FILES  4096
#define MOST_ROUNDS 99
#define DRAWN       200

static char **files;
static size_t file_count;
static const char *folder;
static char scratch_folder[] = "/tmp/brim-images-XXXXXX";
static uint64_t images_of_round = 2000;
static int rounds = 5;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void check(brim_status status, const char *what) {
    if (status != BRIM_OK) {
        fprintf(stderr, "images: %s: %s\n", what, brim_detail());
        exit(1);
    }
}

static int compare_doubles(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int count) {
    qsort(values, (size_t)count, sizeof values[0], compare_doubles);
    return values[count / 2];
}

/* -------------------------------------------------------------------- files */

static int compare_names(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void list_files(void) {
    DIR *directory = opendir(folder);
    const struct dirent *entry;
    files = calloc(MOST_FILES, sizeof files[0]);
    while (directory != NULL && file_count < MOST_FILES && (entry = readdir(directory)) != NULL) {
        if (entry->d_name[0] != '.') {
            char path[4096];
            snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
            files[file_count++] = strdup(path);
        }
    }
    if (directory == NULL || file_count == 0) {
        fprintf(stderr, "images: no files in %s\n", folder);
        exit(1);
    }
    closedir(directory);
    qsort(files, file_count, sizeof files[0], compare_names);
}

/* A picture with edges, slopes and noise (`grain`), so that it compresses like a photograph. */
static void draw(const char *path, uint32_t width, uint32_t height, uint32_t grain, uint64_t seed) {
    struct jpeg_compress_struct jpeg;
    struct jpeg_error_mgr error;
    FILE *file = fopen(path, "wb");
    uint8_t *row = malloc((size_t)width * 3);
    if (file == NULL || row == NULL) {
        perror(path);
        exit(1);
    }
    jpeg.err = jpeg_std_error(&error);
    jpeg_create_compress(&jpeg);
    jpeg_stdio_dest(&jpeg, file);
    jpeg.image_width = width;
    jpeg.image_height = height;
    jpeg.input_components = 3;
    jpeg.in_color_space = JCS_RGB;
    jpeg_set_defaults(&jpeg);
    jpeg_set_quality(&jpeg, 92, TRUE);
    jpeg_start_compress(&jpeg, TRUE);
    for (uint32_t y = 0; y < height; y++) {
        for (uint32_t x = 0; x < width; x++) {
            const uint32_t noise = brim__random(seed, x, 0, y);
            const uint32_t block = brim__random(seed, x / 37, 1, y / 29);
            for (uint32_t c = 0; c < 3; c++) {
                row[x * 3 + c] = (uint8_t)((x * (c + 1) / 7 + y / (c + 2)) / 4 +
                                           (block >> (8 * c) & 127) + (noise >> (8 * c) & grain));
            }
        }
        JSAMPROW rows[] = { row };
        jpeg_write_scanlines(&jpeg, rows, 1);
    }
    jpeg_finish_compress(&jpeg);
    jpeg_destroy_compress(&jpeg);
    fclose(file);
    free(row);
}

static void draw_folder(const char *path, int count, uint32_t width, uint32_t height,
                        uint32_t grain) {
    char name[4096];
    mkdir(path, 0700);
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "%s/%03d.jpg", path, i);
        draw(name, width, height, grain, (uint64_t)i + 1);
    }
}

/* --------------------------------------------------------------- naked loop */

/* The crops that random_resized_crop draws as the second transform of a pipeline. */
static void choose_crop(uint64_t sample, uint64_t epoch, uint32_t width, uint32_t height,
                        uint32_t crop[4]) {
    const uint64_t key = brim__hash_words(brim__hash_words(BRIM_ROOM_TRANSFORM, 1, 0), 0, 0);
    const double low = brim__log(0.75), high = brim__log(1.3333333333333333);
    for (uint32_t try = 0; try < 10; try++) {
        const double u = brim__random(key, sample, epoch, 2 * try) * 0x1p-32;
        const double v = brim__random(key, sample, epoch, 2 * try + 1) * 0x1p-32;
        const double area = (double)width * height * (0.08 + (1 - 0.08) * u);
        const double ratio = brim__exp(low + (high - low) * v);
        const uint32_t w = (uint32_t)(brim__sqrt(area * ratio) + 0.5);
        const uint32_t h = (uint32_t)(brim__sqrt(area / ratio) + 0.5);
        if (w >= 1 && w <= width && h >= 1 && h <= height) {
            crop[0] = (uint32_t)brim__random_below(key, sample, epoch, 2 * try, width - w + 1);
            crop[1] = (uint32_t)brim__random_below(key, sample, epoch, 2 * try + 1, height - h + 1);
            crop[2] = w;
            crop[3] = h;
            return;
        }
    }
    crop[0] = crop[1] = 0;
    crop[2] = width;
    crop[3] = height;
}

struct naked {
    bool whole;
    _Atomic uint64_t next;
};

static void *naked_thread(void *user) {
    struct naked *naked = user;
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr error;
    size_t room = 1 << 20;
    uint8_t *bytes = malloc(room), *row = malloc(1 << 20);
    jpeg.err = jpeg_std_error(&error);
    jpeg_create_decompress(&jpeg);
    for (uint64_t i; (i = atomic_fetch_add(&naked->next, 1)) < images_of_round;) {
        const int fd = open(files[i % file_count], O_RDONLY | O_CLOEXEC);
        struct stat stat;
        fstat(fd, &stat);
        if ((size_t)stat.st_size > room) {
            room = (size_t)stat.st_size;
            bytes = realloc(bytes, room);
        }
        if (read(fd, bytes, (size_t)stat.st_size) != stat.st_size) {
            perror(files[i % file_count]);
            exit(1);
        }
        close(fd);
        jpeg_mem_src(&jpeg, bytes, (unsigned long)stat.st_size);
        jpeg_read_header(&jpeg, TRUE);
        jpeg.out_color_space = JCS_RGB;
        uint32_t crop[4] = { 0, 0, jpeg.image_width, jpeg.image_height };
        if (!naked->whole) {
            choose_crop(i % file_count, i / file_count, jpeg.image_width, jpeg.image_height, crop);
        }
        jpeg_start_decompress(&jpeg);
        if (!naked->whole) {
            JDIMENSION x = crop[0], width = crop[2];
            jpeg_crop_scanline(&jpeg, &x, &width);
            jpeg_skip_scanlines(&jpeg, crop[1]);
        }
        for (uint32_t y = 0; y < crop[3]; y++) {
            JSAMPROW rows[] = { row };
            jpeg_read_scanlines(&jpeg, rows, 1);
        }
        jpeg_abort_decompress(&jpeg);
    }
    jpeg_destroy_decompress(&jpeg);
    free(bytes);
    free(row);
    return NULL;
}

/* Images a second. */
static double run_naked(bool whole) {
    struct naked naked = { .whole = whole };
    pthread_t threads[THREADS];
    const double begin = now();
    for (int i = 0; i < THREADS; i++) {
        pthread_create(&threads[i], NULL, naked_thread, &naked);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    return (double)images_of_round / (now() - begin);
}

/* --------------------------------------------------------------------- brim */

static double run_brim(const char *from, const char *stages, uint64_t memory, uint64_t images) {
    char text[8192];
    brim_runtime *runtime;
    brim_pipeline *pipeline;
    brim_loader *loader;
    brim_batch *batch;
    brim_runtime_options options = BRIM_RUNTIME_OPTIONS_INIT;
    brim_open_options open_options = BRIM_OPEN_OPTIONS_INIT;
    options.host_bytes = memory;
    options.threads = THREADS;
    options.index_dir = scratch_folder;
    snprintf(text, sizeof text, "folder \"%s\" classes=no | repeat 1000000 | %s", from, stages);
    check(brim_runtime_new(&options, &runtime), "runtime");
    check(brim_pipeline_parse(text, &pipeline), text);
    check(brim_loader_open(runtime, pipeline, &open_options, &loader), text);
    uint64_t made = 0;
    const double begin = now();
    while (made < images) {
        check(brim_loader_next(loader, -1, &batch), "next");
        made += brim_batch_get(batch)->valid_rows;
        brim_batch_release(batch);
    }
    const double rate = (double)made / (now() - begin);
    brim_loader_close(loader);
    brim_pipeline_free(pipeline);
    brim_runtime_free(runtime);
    return rate;
}

#define TO_FLOAT "normalize imagenet | layout chw | batch 64"
#define TRAIN    "decode | random_resized_crop 224 | flip | "
#define FAST     "decode fast=yes | random_resized_crop 224 | flip | "

static void compare_naked(const char *name, const char *stages, bool whole) {
    double ratio[MOST_ROUNDS], naked = 0, own = 0;
    for (int i = 0; i < rounds; i++) {
        naked = run_naked(whole);
        own = run_brim(folder, stages, 256 << 20, images_of_round);
        ratio[i] = own / naked;
    }
    printf("%-30s naked %7.0f/s   brim %7.0f/s   ratio %.2f\n", name, naked, own,
           median(ratio, rounds));
    fflush(stdout);
}

static void compare_photos(void) {
    char path[4096];
    double ratio[MOST_ROUNDS], exact = 0, fast = 0;
    snprintf(path, sizeof path, "%s/photos", scratch_folder);
    draw_folder(path, 4, 4000, 3000, 15); /* 3.5 MB each, as phones make them */
    const uint64_t images = images_of_round < 640 ? 64 : images_of_round / 10;
    for (int i = 0; i < rounds; i++) {
        exact = run_brim(path, TRAIN TO_FLOAT, 256 << 20, images);
        fast = run_brim(path, FAST TO_FLOAT, 256 << 20, images);
        ratio[i] = fast / exact;
    }
    printf("%-30s exact %7.1f/s   fast %7.1f/s   ratio %.2f\n", "12-megapixel photographs", exact,
           fast, median(ratio, rounds));
    fflush(stdout);
}

/* In a process of its own, so that only this pipeline is resident. */
static void measure_memory(const char *name, const char *stages, uint64_t memory) {
    int pipe_ends[2];
    if (pipe(pipe_ends) != 0) {
        perror("pipe");
        exit(1);
    }
    const pid_t child = fork();
    if (child == 0) {
        const double rate = run_brim(folder, stages, memory, images_of_round);
        char line[256];
        double peak = 0;
        FILE *status = fopen("/proc/self/status", "r");
        while (status != NULL && fgets(line, sizeof line, status) != NULL) {
            sscanf(line, "VmHWM: %lf kB", &peak);
        }
        const double answer[2] = { rate, peak / 1024 };
        _exit(write(pipe_ends[1], answer, sizeof answer) != sizeof answer);
    }
    double answer[2] = { 0, 0 };
    if (read(pipe_ends[0], answer, sizeof answer) == sizeof answer) {
        printf("%-30s %7.0f/s   resident at most %.1f MiB\n", name, answer[0], answer[1]);
    }
    fflush(stdout);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
    waitpid(child, NULL, 0);
}

int main(int count, char **words) {
    if (mkdtemp(scratch_folder) == NULL) {
        perror(scratch_folder);
        return 1;
    }
    images_of_round = count > 2 ? strtoull(words[2], NULL, 10) : images_of_round;
    rounds = count > 3 ? atoi(words[3]) : rounds;
    rounds = rounds < 1 ? 1 : rounds > MOST_ROUNDS ? MOST_ROUNDS : rounds;
    char drawn[64];
    folder = count > 1 ? words[1] : "../shared/data/imagenet";
    if (access(folder, R_OK) != 0) {
        snprintf(drawn, sizeof drawn, "%s/drawn", scratch_folder);
        draw_folder(drawn, DRAWN, 500, 375, 31);
        folder = drawn;
    }
    list_files();
    printf("%zu images of %s, %d threads, %llu images in a round, %d rounds\n", file_count, folder,
           THREADS, (unsigned long long)images_of_round, rounds);
    measure_memory("float32 in 96 MiB", TRAIN TO_FLOAT, 96 << 20);
    measure_memory("float32 in 256 MiB", TRAIN TO_FLOAT, 256 << 20);
    measure_memory("uint8 in 24 MiB", TRAIN "layout chw | batch 64", 24 << 20);
    measure_memory("uint8 in 256 MiB", TRAIN "layout chw | batch 64", 256 << 20);
    compare_naked("train, exact", TRAIN TO_FLOAT, false);
    compare_naked("train, fast", FAST TO_FLOAT, false);
    compare_naked("train, exact, uint8", TRAIN "layout chw | batch 64", false);
    compare_naked("validation", "decode | resize 256 | center_crop 224 | " TO_FLOAT, true);
    compare_photos();
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", scratch_folder);
    return system(command) == 0 ? 0 : 1;
}

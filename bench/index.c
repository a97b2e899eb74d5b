/*
 * index.c: making the index of a file of lines, beside counting its lines.
 *
 * The plain loop reads the file in pieces and counts newlines with memchr; it
 * keeps and writes nothing. brim makes the index from nothing each time, through
 * planning: finds the records, writes an entry of 24 bytes for each, and syncs
 * the file, so that short lines cost more than long ones. Both read from the
 * page cache. Rounds alternate between the two, so that both see the same
 * machine; the ratio is the median over rounds.
 *
 *     index [directory, default /tmp] [rounds, default 7]
 *
 * In a directory in memory (/dev/shm) the disk that the index is synced to is
 * left out.
 */
#include <brim.h>

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FILE_BYTES  (256u << 20)
#define PIECE_BYTES (256u << 10)
#define MOST_ROUNDS 99

static char directory[256];
static int rounds = 7;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void die(const char *what) {
    fprintf(stderr, "index: %s: %s\n", what, brim_detail());
    exit(1);
}

static uint64_t next_random(uint64_t *state) {
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

struct load {
    const char *name;
    const char *stage;  /* that reads it */
    size_t least, most; /* bytes of a line */
};

static const struct load loads[] = {
    { "text, lines of 5 to 15 bytes", "text", 5, 15 },
    { "text, lines of 50 to 150 bytes", "text", 50, 150 },
    { "text, lines of 500 to 1500 bytes", "text", 500, 1500 },
    { "csv, rows of 50 to 150 bytes in quotes", "csv", 50, 150 },
};

/* CSV has two columns of text in quotes. */
static void make_file(const struct load *load, const char *path) {
    const bool csv = strcmp(load->stage, "csv") == 0;
    uint64_t random = 1;
    FILE *file = fopen(path, "w");
    if (file == NULL) {
        die(path);
    }
    fputs(csv ? "a,b\n" : "", file);
    for (size_t written = 0; written < FILE_BYTES;) {
        const size_t length = load->least + next_random(&random) % (load->most - load->least + 1);
        for (size_t i = 0; i < length; i++) {
            const bool quote = i == 0 || i == 20 || i == 22 || i == length - 1;
            putc(!csv ? 'x' : quote ? '"' : i == 21 ? ',' : 'x', file);
        }
        putc('\n', file);
        written += length + 1;
    }
    if (fclose(file) != 0) {
        die(path);
    }
}

static double count_lines(const char *path, uint64_t *lines, uint64_t *bytes) {
    static char piece[PIECE_BYTES];
    const double began = now();
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    *lines = *bytes = 0;
    for (ssize_t got; (got = read(fd, piece, sizeof piece)) > 0; *bytes += (uint64_t)got) {
        const char *end = piece + got;
        for (const char *at = piece; (at = memchr(at, '\n', (size_t)(end - at))) != NULL; at++) {
            ++*lines;
        }
    }
    close(fd);
    return now() - began;
}

static double make_index(brim_runtime *runtime, const char *text, uint64_t *records) {
    brim_pipeline *pipeline;
    brim_plan *plan;
    if (brim_pipeline_parse(text, &pipeline) != BRIM_OK) {
        die(text);
    }
    const double began = now();
    if (brim_plan_new(runtime, pipeline, NULL, &plan) != BRIM_OK) {
        die(text);
    }
    const double took = now() - began;
    const brim_plan_index *index = brim_plan_index_at(plan, 0);
    if (index == NULL || !index->made || unlink(index->path) != 0) {
        die("no index was made");
    }
    *records = index->records;
    brim_plan_free(plan);
    brim_pipeline_free(pipeline);
    return took;
}

static int compare(const void *a, const void *b) {
    const double left = *(const double *)a, right = *(const double *)b;
    return left < right ? -1 : left > right;
}

static double median(double *values) {
    qsort(values, (size_t)rounds, sizeof *values, compare);
    return values[rounds / 2];
}

static void measure(brim_runtime *runtime, const struct load *load) {
    double plain[MOST_ROUNDS], brim[MOST_ROUNDS], ratio[MOST_ROUNDS];
    char path[300], text[400];
    uint64_t lines = 0, bytes = 0, records = 0;
    snprintf(path, sizeof path, "%s/lines", directory);
    snprintf(text, sizeof text, "%s %s index=beside", load->stage, path);
    make_file(load, path);
    count_lines(path, &lines, &bytes); /* into the page cache */
    for (int i = 0; i < rounds; i++) {
        const double a = count_lines(path, &lines, &bytes);
        const double b = make_index(runtime, text, &records);
        plain[i] = (double)bytes / a / 1e6;
        brim[i] = (double)bytes / b / 1e6;
        ratio[i] = a / b;
    }
    unlink(path);
    printf("%-38s memchr %6.0f MB/s   index %6.0f MB/s   ratio %.2f   (%llu records)\n", load->name,
           median(plain), median(brim), median(ratio), (unsigned long long)records);
}

int main(int count, char **words) {
    brim_runtime *runtime;
    brim_runtime_options options = BRIM_RUNTIME_OPTIONS_INIT;
    options.host_bytes = 8u << 20;
    snprintf(directory, sizeof directory, "%s/brim-index-XXXXXX", count > 1 ? words[1] : "/tmp");
    rounds = count > 2 ? atoi(words[2]) : rounds;
    if (rounds < 1 || rounds > MOST_ROUNDS || mkdtemp(directory) == NULL ||
        brim_runtime_new(&options, &runtime) != BRIM_OK) {
        die("cannot begin");
    }
    for (size_t i = 0; i < sizeof loads / sizeof loads[0]; i++) {
        measure(runtime, &loads[i]);
    }
    brim_runtime_free(runtime);
    rmdir(directory);
    return 0;
}

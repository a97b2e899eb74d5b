/*
 * glyphs.c: trains a classifier on data larger than its memory budget.
 *
 *     make run                        or: glyphs --help
 *
 * It draws noisy digits, writes them as two .npy files (31 MB), and trains a
 * small network on them inside 16 MiB that hold everything: the loader of the
 * training part, the loader of the validation part, and the network.
 *
 *     images.npy  --> training   --> network: judge, learn
 *     labels.npy  --> validation --> network: judge
 *                         |             |
 *                         +--- budget --+
 *
 * Of brim only the public header is used. Where to look for what:
 *   the pipelines         make_pipeline
 *   the plan              show_plan
 *   opening and charging  open_all
 *   the loop of batches   run_epoch
 * The rest is the drawing of digits, the network and the options.
 *
 * Invariant: no random number, order or sum depends on threads or memory, so
 * the same options give the same accuracy to the last digit.
 */
#include <brim.h>

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { SIDE = 28, PIXELS = SIDE * SIDE, CLASSES = 10, HIDDEN = 64, BATCH = 64 };

/* What went wrong if it was not brim; brim's own words are in brim_detail(). */
static char trouble[3 * PATH_MAX];

#define FAIL(status, ...) (snprintf(trouble, sizeof(trouble), __VA_ARGS__), (status))

/* ----------------------------------------------------------------- drawing */

/* Ten digits of 5 x 7 cells, six columns apart. */
static const char *const font[7] = {
    " ###    #    ###   ###     #  #####  ###  #####  ###   ### ",
    "#   #  ##   #   # #   #   ##  #     #         # #   # #   #",
    "#   # # #       #     #  # #  #     #        #  #   # #   #",
    "#   #   #     ##    ##  #  #  ####  ####    #    ###   ####",
    "#   #   #    #        # #####     # #   #  #    #   #     #",
    "#   #   #   #     #   #    #  #   # #   #  #    #   #     #",
    " ###  ##### #####  ###     #   ###   ###   #     ###   ### ",
};

/* A counter, multiplied and folded until it looks random. */
static uint32_t draw(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)(z >> 32);
}

static float draw_between(uint64_t *state, float least, float most) {
    return least + (most - least) * ((float)(draw(state) >> 8) * 0x1p-24f);
}

static float cell(unsigned digit, int column, int row) {
    const bool inside = column >= 0 && column < 5 && row >= 0 && row < 7;
    return inside && font[row][digit * 6 + (unsigned)column] == '#' ? 1.0f : 0.0f;
}

/* Ink at a point of the font, interpolated between the centres of its cells. */
static float ink_at(unsigned digit, float u, float v) {
    const int column = (int)(u + 64.0f) - 64, row = (int)(v + 64.0f) - 64; /* rounded down */
    const float right = u - (float)column, down = v - (float)row;
    const float above =
        (1.0f - right) * cell(digit, column, row) + right * cell(digit, column + 1, row);
    const float below =
        (1.0f - right) * cell(digit, column, row + 1) + right * cell(digit, column + 1, row + 1);
    return (1.0f - down) * above + down * below;
}

/* Sample `number` of the data, which depends on nothing else; returns its label. */
static uint8_t draw_glyph(uint64_t number, uint8_t pixels[PIXELS]) {
    uint64_t state = number * UINT64_C(0xd1342543de82ef95);
    const unsigned digit = draw(&state) % CLASSES;
    const float x0 = draw_between(&state, 12.0f, 15.0f), y0 = draw_between(&state, 12.0f, 15.0f);
    const float width = draw_between(&state, 2.6f, 3.4f), height = draw_between(&state, 2.2f, 2.9f);
    const float slant = draw_between(&state, -0.2f, 0.2f);
    const float ink = draw_between(&state, 130.0f, 255.0f);
    for (int i = 0; i < PIXELS; i++) {
        const int column = i % SIDE, row = i / SIDE;
        const float x = (float)column - x0, y = (float)row - y0;
        float value = ink * ink_at(digit, (x + slant * y) / width + 2.0f, y / height + 3.0f);
        value += draw_between(&state, -25.0f, 25.0f) + draw_between(&state, -25.0f, 25.0f);
        pixels[i] = (uint8_t)(value < 0.0f ? 0.0f : value > 255.0f ? 255.0f : value);
    }
    for (int speckles = 0; speckles < 6; speckles++) { /* they hide what is below */
        const unsigned corner = draw(&state) % (SIDE - 2) * SIDE + draw(&state) % (SIDE - 2);
        const int shade = (int)(draw(&state) & 0xff);
        for (unsigned row = 0; row < 3; row++) {
            memset(pixels + corner + row * SIDE, shade, 3);
        }
    }
    return (uint8_t)digit;
}

/* ------------------------------------------------------------------- files */

enum { HEADER = 128 };

struct data_set {
    char images[PATH_MAX + 16], labels[PATH_MAX + 16]; /* paths */
    uint64_t count;
    bool reused;
};

/* The header of an array of bytes as numpy writes it; `shape` as in Python. */
static void make_header(char header[HEADER], const char *shape) {
    /* the name, version 1.0, and the length of what follows in two bytes */
    static const char magic[] = { '\x93', 'N', 'U', 'M', 'P', 'Y', 1, 0, HEADER - 10, 0 };
    memset(header, ' ', HEADER);
    memcpy(header, magic, sizeof(magic));
    const int length = snprintf(header + 10, HEADER - 10,
                                "{'descr': '|u1', 'fortran_order': False, 'shape': %s, }", shape);
    header[10 + length] = ' ';
    header[HEADER - 1] = '\n';
}

/* The file has this header, `count` records, and `last` is the last of them. */
static bool is_complete(const char *path, const char header[HEADER], uint64_t count,
                        const uint8_t *last, size_t bytes) {
    char buffer[PIXELS];
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return false;
    }
    const bool complete = fread(buffer, HEADER, 1, file) == 1 &&
                          memcmp(buffer, header, HEADER) == 0 &&
                          fseeko(file, HEADER + (off_t)((count - 1) * bytes), SEEK_SET) == 0 &&
                          fread(buffer, bytes, 1, file) == 1 && memcmp(buffer, last, bytes) == 0 &&
                          fgetc(file) == EOF;
    fclose(file);
    return complete;
}

/* Draws sample after sample into both files. They get their names when complete:
 * a run that was broken off leaves nothing that looks good. */
static brim_status write_files(const struct data_set *data, const char image_header[HEADER],
                               const char label_header[HEADER]) {
    char image_path[PATH_MAX + 48], label_path[PATH_MAX + 48];
    snprintf(image_path, sizeof(image_path), "%s.part%d", data->images, (int)getpid());
    snprintf(label_path, sizeof(label_path), "%s.part%d", data->labels, (int)getpid());
    FILE *images = fopen(image_path, "wb");
    FILE *labels = fopen(label_path, "wb");
    bool good = images != NULL && labels != NULL && fwrite(image_header, HEADER, 1, images) == 1 &&
                fwrite(label_header, HEADER, 1, labels) == 1;
    for (uint64_t i = 0; good && i < data->count; i++) {
        uint8_t pixels[PIXELS];
        const uint8_t label = draw_glyph(i, pixels);
        good = fwrite(pixels, PIXELS, 1, images) == 1 && fputc(label, labels) != EOF;
    }
    good = (images == NULL || fclose(images) == 0) && good;
    good = (labels == NULL || fclose(labels) == 0) && good;
    good = good && rename(image_path, data->images) == 0 && rename(label_path, data->labels) == 0;
    if (good) {
        return BRIM_OK;
    }
    const char *why = strerror(errno);
    unlink(image_path);
    unlink(label_path);
    return FAIL(BRIM_IO, "cannot write %s and its labels: %s; --data names another directory",
                data->images, why);
}

/* Finds the data set in `directory`, or draws it. Without a directory: in
 * build/ if there is one, else where temporary files go. */
static brim_status prepare_data(const char *directory, uint64_t count, struct data_set *data) {
    char chosen[PATH_MAX];
    struct stat about;
    const char *temporary = getenv("TMPDIR");
    int length;
    if (directory != NULL) {
        length = snprintf(chosen, sizeof(chosen), "%s", directory);
    } else if (stat("build", &about) == 0 && S_ISDIR(about.st_mode)) {
        length = snprintf(chosen, sizeof(chosen), "build/glyphs");
    } else {
        length = snprintf(chosen, sizeof(chosen), "%s/brim-glyphs-%u",
                          temporary != NULL ? temporary : "/tmp", (unsigned)getuid());
    }
    if (length >= PATH_MAX) {
        return FAIL(BRIM_INVALID, "the directory's path is too long: %d bytes", length);
    }
    if (mkdir(chosen, 0777) != 0 && errno != EEXIST) {
        return FAIL(BRIM_IO, "cannot make the directory %s: %s", chosen, strerror(errno));
    }
    snprintf(data->images, sizeof(data->images), "%s/images.npy", chosen);
    snprintf(data->labels, sizeof(data->labels), "%s/labels.npy", chosen);
    data->count = count;

    char shape[64], image_header[HEADER], label_header[HEADER];
    snprintf(shape, sizeof(shape), "(%" PRIu64 ", %d, %d)", count, SIDE, SIDE);
    make_header(image_header, shape);
    snprintf(shape, sizeof(shape), "(%" PRIu64 ",)", count);
    make_header(label_header, shape);
    uint8_t pixels[PIXELS];
    const uint8_t label = draw_glyph(count - 1, pixels);
    data->reused = is_complete(data->images, image_header, count, pixels, PIXELS) &&
                   is_complete(data->labels, label_header, count, &label, 1);
    return data->reused ? BRIM_OK : write_files(data, image_header, label_header);
}

/* ----------------------------------------------------------------- network */

/* 784 inputs, 64 hidden units, 10 classes in 16 outputs; the last row of a
 * layer's weights is the bias. All units are taken LANES at a time, whose sums
 * the compiler keeps in vector registers. */
enum { LANES = 16, OUTPUTS = 16 };

struct network {
    float w1[PIXELS + 1][HIDDEN], w2[HIDDEN + 1][OUTPUTS];
    float v1[PIXELS + 1][HIDDEN], v2[HIDDEN + 1][OUTPUTS]; /* momentum */
    float hidden[BATCH][HIDDEN], output[BATCH][OUTPUTS], blame[BATCH][HIDDEN];
};

/* Both layers get weights below sqrt(6 / inputs), which keeps signals in scale. */
static void initialise(struct network *network, uint64_t seed) {
    uint64_t state = seed;
    for (int i = 0; i < PIXELS * HIDDEN; i++) {
        network->w1[i / HIDDEN][i % HIDDEN] = draw_between(&state, -0.0875f, 0.0875f);
    }
    for (int i = 0; i < HIDDEN * OUTPUTS; i++) {
        network->w2[i / OUTPUTS][i % OUTPUTS] = draw_between(&state, -0.306f, 0.306f);
    }
}

/* y = x w + bias, for `rows` rows. */
static void apply(const float *w, size_t inputs, size_t outputs, size_t rows, const float *x,
                  float *y) {
    for (size_t first = 0; first < outputs; first += LANES) {
        for (size_t r = 0; r < rows; r++) {
            float sum[LANES];
            memcpy(sum, w + inputs * outputs + first, sizeof(sum));
            for (size_t i = 0; i < inputs; i++) {
                for (size_t l = 0; l < LANES; l++) {
                    sum[l] += x[r * inputs + i] * w[i * outputs + first + l];
                }
            }
            memcpy(y + r * outputs + first, sum, sizeof(sum));
        }
    }
}

/* A step of descent with momentum; dy is the loss's gradient at y. */
static void descend(float *w, float *v, size_t inputs, size_t outputs, size_t rows, const float *x,
                    const float *dy) {
    for (size_t first = 0; first < outputs; first += LANES) {
        for (size_t i = 0; i <= inputs; i++) {
            float sum[LANES] = { 0 };
            for (size_t r = 0; r < rows; r++) {
                const float input = i < inputs ? x[r * inputs + i] : 1.0f;
                for (size_t l = 0; l < LANES; l++) {
                    sum[l] += input * dy[r * outputs + first + l];
                }
            }
            for (size_t l = 0; l < LANES; l++) {
                float *velocity = v + i * outputs + first + l;
                *velocity = 0.9f * *velocity - 0.03f * sum[l];
                w[i * outputs + first + l] += *velocity;
            }
        }
    }
}

/* e to the x, for x <= 0, by the limit that defines it: near enough for a
 * gradient, and the same bits on every machine, which libm does not promise. */
static float exponential(float x) {
    double y = x > -4096.0f ? 1.0 + (double)x / 4096.0 : 0.0;
    for (int i = 0; i < 12; i++) {
        y *= y;
    }
    return (float)y;
}

/* Runs the rows through the network; returns how many of them it has right, and
 * leaves the gradient of their mean cross-entropy in output. */
static uint64_t judge(struct network *network, size_t rows, const float *images,
                      const uint8_t *labels) {
    uint64_t right = 0;
    apply(network->w1[0], PIXELS, HIDDEN, rows, images, network->hidden[0]);
    for (size_t i = 0; i < rows * HIDDEN; i++) {
        float *unit = network->hidden[0] + i;
        *unit = *unit > 0.0f ? *unit : 0.0f;
    }
    apply(network->w2[0], HIDDEN, OUTPUTS, rows, network->hidden[0], network->output[0]);
    for (size_t r = 0; r < rows; r++) {
        float *output = network->output[r], sum = 0.0f;
        size_t best = 0;
        for (size_t c = 1; c < CLASSES; c++) {
            best = output[c] > output[best] ? c : best;
        }
        right += best == labels[r];
        const float most = output[best];
        for (size_t c = 0; c < CLASSES; c++) {
            sum += output[c] = exponential(output[c] - most);
        }
        for (size_t c = 0; c < OUTPUTS; c++) {
            output[c] = c < CLASSES ? (output[c] / sum - (c == labels[r])) / (float)rows : 0.0f;
        }
    }
    return right;
}

/* Learns from the rows that have just been judged. */
static void learn(struct network *network, size_t rows, const float *images) {
    for (size_t r = 0; r < rows; r++) {
        for (size_t h = 0; h < HIDDEN; h++) {
            float sum = 0.0f;
            for (size_t c = 0; c < CLASSES; c++) {
                sum += network->output[r][c] * network->w2[h][c];
            }
            network->blame[r][h] = network->hidden[r][h] > 0.0f ? sum : 0.0f;
        }
    }
    descend(network->w2[0], network->v2[0], HIDDEN, OUTPUTS, rows, network->hidden[0],
            network->output[0]);
    descend(network->w1[0], network->v1[0], PIXELS, HIDDEN, rows, images, network->blame[0]);
}

/* ---------------------------------------------------------------- training */

struct program {
    /* options */
    const char *directory; /* NULL: prepare_data chooses */
    uint64_t samples, epochs, memory, seed;
    int32_t threads;
    bool json;
    /* what is open */
    struct data_set data;
    brim_runtime *runtime;
    brim_budget *budget; /* the network's, below the runtime's */
    struct network *network;
    brim_loader *training, *validation;
    /* how it goes */
    uint64_t epoch, batches, trained; /* trained: samples that were learned from ... */
    double begun, training_seconds;   /* ... in these seconds */
    double drawn;                     /* when the progress line was; 0: there is none */
    double accuracy;                  /* of the last validation */
};

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static double mebibytes(uint64_t bytes) {
    return (double)bytes * 0x1p-20;
}

/* A path as a word of a pipeline's text: in quotes, because it may hold anything. */
static void quote(const char *path, char *word) {
    *word++ = '"';
    for (; *path != '\0'; path++) {
        if (*path == '"' || *path == '\\') {
            *word++ = '\\';
        }
        *word++ = *path;
    }
    memcpy(word, "\"", 2);
}

static brim_status make_pipeline(const struct program *program, const char *part,
                                 brim_pipeline **pipeline) {
    enum { WORD = 2 * sizeof(program->data.images) + 2 };
    static char images[WORD], labels[WORD], text[2 * WORD + 512];
    char shuffle[64] = "";
    quote(program->data.images, images);
    quote(program->data.labels, labels);
    if (strcmp(part, "train") == 0) { /* what only judges needs no other order */
        snprintf(shuffle, sizeof(shuffle), " | shuffle seed=%" PRIu64, program->seed);
    }
    snprintf(text, sizeof(text),
             "zip (npy %s name=image) (npy %s name=label)"
             " | split %s validation=0.1 seed=%" PRIu64 "%s"
             " | normalize mean=0.2 std=0.3 on=image | batch %d",
             images, labels, part, program->seed, shuffle, BATCH);
    return brim_pipeline_parse(text, pipeline);
}

static void show_plan(const char *label, const brim_pipeline *pipeline, const brim_plan *plan) {
    const brim_plan_info *info = brim_plan_get(plan);
    printf("%s: %s\n", label, brim_pipeline_text(pipeline));
    for (uint32_t i = 0; i < info->stage_count; i++) {
        const brim_plan_stage *stage = brim_plan_stage_at(plan, i);
        printf("  %-10s %6.1f KiB  %s\n", stage->name, (double)stage->bytes / 1024, stage->effect);
    }
    printf("  minimum %.2f MiB, planned %.2f MiB, limit %.2f MiB, %u slots, %u threads\n\n",
           mebibytes(info->minimum_bytes), mebibytes(info->planned_bytes),
           mebibytes(info->limit_bytes), info->slots, info->threads);
}

/* Plans before opening: the plan tells what will be used, or what is missing. */
static brim_status open_loader(const struct program *program, const char *label, const char *part,
                               brim_loader **loader) {
    brim_pipeline *pipeline = NULL;
    brim_plan *plan = NULL;
    brim_open_options options = BRIM_OPEN_OPTIONS_INIT;
    options.label = label;
    brim_status status = make_pipeline(program, part, &pipeline);
    if (status == BRIM_OK) {
        status = brim_plan_new(program->runtime, pipeline, &options, &plan);
    }
    if (status == BRIM_OK && !program->json) {
        show_plan(label, pipeline, plan);
    }
    brim_plan_free(plan); /* a plan takes some of the budget too */
    if (status == BRIM_OK) {
        status = brim_loader_open(program->runtime, pipeline, &options, loader);
    }
    brim_pipeline_free(pipeline);
    return status;
}

/* One budget holds all: the network's memory is charged to it, then taken. */
static brim_status open_all(struct program *program) {
    brim_runtime_options options = BRIM_RUNTIME_OPTIONS_INIT;
    options.host_bytes = program->memory;
    options.threads = program->threads;
    brim_status status = brim_runtime_new(&options, &program->runtime);
    if (status == BRIM_OK) {
        status = brim_budget_new(brim_runtime_budget(program->runtime), "network", BRIM_UNLIMITED,
                                 0, &program->budget);
    }
    if (status == BRIM_OK) {
        status = brim_budget_charge(program->budget, BRIM_HOST, sizeof(*program->network));
    }
    if (status != BRIM_OK) {
        return status;
    }
    program->network = calloc(1, sizeof(*program->network));
    if (program->network == NULL) {
        return FAIL(BRIM_MEMORY, "no memory for the network");
    }
    initialise(program->network, program->seed);
    status = open_loader(program, "training", "train", &program->training);
    if (status == BRIM_OK) {
        status = open_loader(program, "validation", "validation", &program->validation);
    }
    return status;
}

/* Draws the progress line anew, on terminals and now and then. */
static void show_progress(struct program *program, double rate) {
    const double time = now();
    brim_usage usage = BRIM_USAGE_INIT;
    if (isatty(STDERR_FILENO) == 0 || time - program->drawn < 0.2 ||
        brim_runtime_usage(program->runtime, &usage) != BRIM_OK) {
        return;
    }
    const uint64_t all = brim_plan_get(brim_loader_plan(program->training))->batches +
                         brim_plan_get(brim_loader_plan(program->validation))->batches;
    const double done = (double)program->batches / (double)(program->epochs * all);
    fprintf(stderr, "\repoch %" PRIu64 " of %" PRIu64 "  %.0f %%  %.0f samples/s  ", program->epoch,
            program->epochs, 100.0 * done, rate);
    fprintf(stderr, "%.1f of %.1f MiB  %.1f s left\033[K",
            mebibytes(usage.charged + usage.reserved), mebibytes(usage.limit),
            (time - program->begun) * (1.0 - done) / done);
    fflush(stderr);
    program->drawn = time;
}

/* The batches of an epoch through the network; *accuracy is the share of samples
 * that it had right, before it learned from them. */
static brim_status run_epoch(struct program *program, brim_loader *loader, double *accuracy) {
    const bool learning = loader == program->training;
    const double begun = now();
    uint64_t right = 0, seen = 0;
    brim_batch *batch;
    brim_status status;
    while ((status = brim_loader_next(loader, BRIM_FOREVER, &batch)) == BRIM_OK) {
        const size_t rows = brim_batch_get(batch)->rows;
        const float *images = brim_batch_find(batch, "image")->data;
        const uint8_t *labels = brim_batch_find(batch, "label")->data;
        right += judge(program->network, rows, images, labels);
        if (learning) {
            learn(program->network, rows, images);
        }
        brim_batch_release(batch);
        seen += rows;
        program->batches++;
        show_progress(program, (double)seen / (now() - begun));
    }
    if (learning) {
        program->trained += seen;
        program->training_seconds += now() - begun;
    }
    *accuracy = (double)right / (double)seen;
    return status == BRIM_END ? BRIM_OK : status;
}

static brim_status train(struct program *program) {
    brim_status status = BRIM_OK;
    program->begun = now();
    while (status == BRIM_OK && program->epoch < program->epochs) {
        double learned;
        program->epoch++;
        status = run_epoch(program, program->training, &learned);
        if (status == BRIM_OK) {
            status = run_epoch(program, program->validation, &program->accuracy);
        }
        if (program->drawn > 0.0) {
            fputs("\r\033[K", stderr);
        }
        if (status == BRIM_OK && !program->json) {
            printf("epoch %" PRIu64 ": accuracy %.4f in training, %.4f in validation, %.1f s\n",
                   program->epoch, learned, program->accuracy, now() - program->begun);
            fflush(stdout);
        }
    }
    return status;
}

static brim_status show_result(const struct program *program) {
    brim_usage usage = BRIM_USAGE_INIT;
    const brim_status status = brim_runtime_usage(program->runtime, &usage);
    if (status != BRIM_OK) {
        return status;
    }
    const double rate = (double)program->trained / program->training_seconds;
    const uint64_t data = program->data.count * (PIXELS + 1);
    if (program->json) {
        printf("{\"accuracy\": %.6f, \"samples_per_second\": %.1f, \"budget_bytes\": %" PRIu64
               ", \"peak_charged_bytes\": %" PRIu64 ", \"peak_rss_bytes\": %" PRIu64
               ", \"epochs\": %" PRIu64 ", \"data_bytes\": %" PRIu64 ", \"data_reused\": %s}\n",
               program->accuracy, rate, usage.limit, usage.peak, usage.peak_rss, program->epochs,
               data, program->data.reused ? "true" : "false");
    } else {
        printf("\nvalidation accuracy  %.4f\n", program->accuracy);
        printf("training             %.0f samples/s, the network's work included\n", rate);
        printf("data                 %.1f MiB\n", mebibytes(data));
        printf("budget               %.1f MiB\n", mebibytes(usage.limit));
        printf("peak charged         %.1f MiB: loaders and network\n", mebibytes(usage.peak));
        printf("peak resident        %.1f MiB: the whole process\n", mebibytes(usage.peak_rss));
    }
    return BRIM_OK;
}

static brim_status run(struct program *program) {
    brim_status status = prepare_data(program->directory, program->samples, &program->data);
    if (status == BRIM_OK && !program->json) {
        printf("data: %" PRIu64 " glyphs %s %s\n\n", program->data.count,
               program->data.reused ? "found in" : "drawn into", program->data.images);
    }
    if (status == BRIM_OK) {
        status = open_all(program);
    }
    if (status == BRIM_OK) {
        status = train(program);
    }
    return status == BRIM_OK ? show_result(program) : status;
}

/* ----------------------------------------------------------------- options */

static const char help[] =
    "glyphs: trains a classifier on data larger than its memory budget\n"
    "\n"
    "usage: glyphs [options]\n"
    "\n"
    "  --data DIR     where the drawn digits are kept; default build/glyphs if there is a\n"
    "                 directory build, else a directory for temporary files\n"
    "  --samples N    digits to draw, at least 640; default 40000 (31 MB)\n"
    "  --epochs N     passes over the training part; default 3\n"
    "  --memory SIZE  budget of loaders and network together; default 16MiB\n"
    "  --threads N    workers that make batches, or auto (default)\n"
    "  --seed N       another split, order and network; default 7\n"
    "  --json         one object at the end instead of text\n"
    "  --help         this text\n"
    "\n"
    "exit codes: 0 good, 1 the data or the system failed, 2 wrong options, 3 does not fit\n"
    "the budget\n";

static const struct option known[] = {
    { "data", required_argument, NULL, 'd' },
    { "samples", required_argument, NULL, 'n' },
    { "epochs", required_argument, NULL, 'e' },
    { "memory", required_argument, NULL, 'm' },
    { "threads", required_argument, NULL, 't' },
    { "seed", required_argument, NULL, 's' },
    { "json", no_argument, NULL, 'j' },
    { "help", no_argument, NULL, 'h' },
    { 0 },
};

static bool parse_number(const char *text, uint64_t least, uint64_t most, uint64_t *number) {
    char *end;
    errno = 0;
    *number = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && *end == '\0' && errno == 0 && *number >= least &&
           *number <= most;
}

static bool parse_size(const char *text, uint64_t *bytes) {
    static const char *const names[] = { "", "KiB", "MiB", "GiB" };
    char *end;
    double size = strtod(text, &end);
    for (size_t i = 0; i < 4 && end != text; i++, size *= 1024.0) {
        if (strcmp(end, names[i]) == 0 && size >= 1.0 && size < 0x1p63) {
            *bytes = (uint64_t)size;
            return true;
        }
    }
    return false;
}

/* Takes one option; false if its value is not one. */
static bool take_option(struct program *program, int letter) {
    uint64_t threads = 0;
    switch (letter) {
    case 'd':
        program->directory = optarg;
        return *optarg != '\0';
    case 'n':
        return parse_number(optarg, 640, UINT32_MAX, &program->samples);
    case 'e':
        return parse_number(optarg, 1, UINT32_MAX, &program->epochs);
    case 'm':
        return parse_size(optarg, &program->memory);
    case 's':
        return parse_number(optarg, 0, INT64_MAX, &program->seed);
    case 't':
        if (strcmp(optarg, "auto") == 0) {
            return true;
        }
        program->threads = parse_number(optarg, 0, 1024, &threads) ? (int32_t)threads : -2;
        return program->threads >= 0;
    default:
        program->json = true;
        return true;
    }
}

int main(int count, char **words) {
    static struct program program = {
        .samples = 40000, .epochs = 3, .memory = 16 << 20, .seed = 7, .threads = BRIM_THREADS_AUTO
    };
    int letter, which;
    while ((letter = getopt_long(count, words, "", known, &which)) != -1) {
        if (letter == 'h') {
            fputs(help, stdout);
            return 0;
        }
        if (letter == '?') { /* getopt has said why */
            return 2;
        }
        if (!take_option(&program, letter)) {
            fprintf(stderr, "glyphs: --%s cannot be '%s'; see --help\n", known[which].name, optarg);
            return 2;
        }
    }
    if (optind < count) {
        fprintf(stderr, "glyphs: what is '%s'? see --help\n", words[optind]);
        return 2;
    }

    const brim_status status = run(&program);
    if (status != BRIM_OK) {
        fprintf(stderr, "glyphs: %s\n", *trouble != '\0' ? trouble : brim_detail());
    }
    brim_loader_close(program.validation);
    brim_loader_close(program.training);
    free(program.network);
    brim_budget_free(program.budget); /* returns what is charged to it */
    brim_runtime_free(program.runtime);
    if (status == BRIM_OK) {
        return fflush(stdout) == 0 ? 0 : 1; /* what nobody could read was not said */
    }
    return status == BRIM_BUDGET ? 3 : status == BRIM_INVALID ? 2 : 1;
}

/*
 * glyphs.c: trains a classifier on data larger than its memory budget.
 *
 *     make run                        or: glyphs --help
 *
 * It draws handwritten-looking digits, writes them as two .npy files (31 MB),
 * and trains a small network on them inside 16 MiB that hold everything: two
 * loaders (training and validation) and the network itself.
 *
 *     images.npy, labels.npy --> training loader   --> network: learn
 *                            \-> validation loader --> network: judge
 *                                      |                 |
 *                                      +---- budget -----+
 *
 * Only brim.h is used, as in any program of a user. Where to look for what:
 *   the pipelines        make_pipeline
 *   the plan             show_plan
 *   opening, charging    open_all
 *   the training loop    run_epoch
 * The rest is the drawing of the digits, the network and the options.
 *
 * No random number, order or sum here depends on threads or memory: the same
 * options give the same accuracy to the last digit.
 */
#include <brim.h>

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { SIDE = 28, PIXELS = SIDE * SIDE, CLASSES = 10, HIDDEN = 64, BATCH = 64 };

/* What went wrong if it was not brim; brim's own words are in brim_detail(). */
static char trouble[PATH_MAX + 256];

__attribute__((format(printf, 2, 3))) static brim_status fail(brim_status status,
                                                              const char *format, ...) {
    va_list values;
    va_start(values, format);
    vsnprintf(trouble, sizeof(trouble), format, values);
    va_end(values);
    return status;
}

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

/* A counter that is multiplied and folded: each state gives one number. */
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
    return column >= 0 && column < 5 && row >= 0 && row < 7 &&
                   font[row][digit * 6 + (unsigned)column] == '#'
               ? 1.0f
               : 0.0f;
}

/* Ink at a point of the font's cells, interpolated between their centres. */
static float ink_at(unsigned digit, float u, float v) {
    const int column = (int)(u + 8.0f) - 8, row = (int)(v + 8.0f) - 8; /* rounded down */
    const float right = u - (float)column, down = v - (float)row;
    return (1.0f - down) *
               ((1.0f - right) * cell(digit, column, row) + right * cell(digit, column + 1, row)) +
           down * ((1.0f - right) * cell(digit, column, row + 1) +
                   right * cell(digit, column + 1, row + 1));
}

/* Sample `number` of the data, which depends on nothing else; returns its label. */
static uint8_t draw_glyph(uint64_t number, uint8_t *pixels) {
    uint64_t state = number * UINT64_C(0xd1342543de82ef95);
    const unsigned digit = draw(&state) % CLASSES;
    const float x0 = draw_between(&state, 10.5f, 16.5f), y0 = draw_between(&state, 10.5f, 16.5f);
    const float width = draw_between(&state, 2.0f, 3.6f), height = draw_between(&state, 1.8f, 3.2f);
    const float slant = draw_between(&state, -0.4f, 0.4f);
    const float ink = draw_between(&state, 90.0f, 230.0f);
    for (int y = 0; y < SIDE; y++) {
        for (int x = 0; x < SIDE; x++) {
            const float dx = (float)x - x0, dy = (float)y - y0;
            float value = ink * ink_at(digit, (dx + slant * dy) / width + 2.0f, dy / height + 3.0f);
            value += draw_between(&state, -40.0f, 40.0f) + draw_between(&state, -40.0f, 40.0f);
            value = value < 0.0f ? 0.0f : value > 255.0f ? 255.0f : value;
            pixels[y * SIDE + x] = (uint8_t)value;
        }
    }
    for (int spots = 0; spots < 12; spots++) { /* speckles that hide what is below */
        const unsigned x = draw(&state) % (SIDE - 2), y = draw(&state) % (SIDE - 2);
        const int shade = (int)(draw(&state) & 0xff);
        for (unsigned row = y; row < y + 3; row++) {
            memset(pixels + row * SIDE + x, shade, 3);
        }
    }
    return (uint8_t)digit;
}

/* ------------------------------------------------------------------- files */

enum { HEADER = 128 };

/* The header of an array of bytes as numpy writes it; `shape` as in Python. */
static void make_header(char header[HEADER], const char *shape) {
    char text[HEADER - 10 + 1];
    const int length = snprintf(text, sizeof(text),
                                "{'descr': '|u1', 'fortran_order': False, 'shape': %s, }", shape);
    memset(header, ' ', HEADER);
    memcpy(header, "\x93NUMPY\x01\x00\x76\x00", 10); /* 0x76: what follows has 118 bytes */
    memcpy(header + 10, text, (size_t)length);
    header[HEADER - 1] = '\n';
}

/* The file has this header, `count` records and ends with this one. */
static bool is_complete(const char *path, const char header[HEADER], uint64_t count,
                        const uint8_t *last, size_t bytes) {
    char buffer[PIXELS];
    FILE *file = fopen(path, "rb");
    const bool complete = file != NULL && fread(buffer, HEADER, 1, file) == 1 &&
                          memcmp(buffer, header, HEADER) == 0 &&
                          fseeko(file, HEADER + (off_t)((count - 1) * bytes), SEEK_SET) == 0 &&
                          fread(buffer, bytes, 1, file) == 1 && memcmp(buffer, last, bytes) == 0 &&
                          fgetc(file) == EOF;
    if (file != NULL) {
        fclose(file);
    }
    return complete;
}

struct data_set {
    char images[PATH_MAX], labels[PATH_MAX]; /* the files */
    uint64_t count;
    bool reused;
};

/* Draws the samples one by one into both files; they get their names when
 * complete, so that a run that was broken off leaves nothing that looks good. */
static brim_status write_files(const struct data_set *data, const char image_header[HEADER],
                               const char label_header[HEADER]) {
    char image_path[PATH_MAX + 16], label_path[PATH_MAX + 16];
    snprintf(image_path, sizeof(image_path), "%s.part%d", data->images, (int)getpid());
    snprintf(label_path, sizeof(label_path), "%s.part%d", data->labels, (int)getpid());
    FILE *images = fopen(image_path, "wb"), *labels = fopen(label_path, "wb");
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
    if (!good) {
        const char *why = strerror(errno);
        unlink(image_path);
        unlink(label_path);
        return fail(BRIM_IO, "cannot write %s and %s: %s; --data names another directory",
                    data->images, data->labels, why);
    }
    return BRIM_OK;
}

/* Finds the data set in `directory`, or draws it. Without a directory: in
 * build/ if there is one, else where temporary files go. */
static brim_status prepare_data(const char *directory, uint64_t count, struct data_set *data) {
    char chosen[PATH_MAX];
    struct stat about;
    if (directory != NULL) {
        snprintf(chosen, sizeof(chosen), "%s", directory);
    } else if (stat("build", &about) == 0 && S_ISDIR(about.st_mode)) {
        snprintf(chosen, sizeof(chosen), "build/glyphs");
    } else {
        const char *temporary = getenv("TMPDIR");
        snprintf(chosen, sizeof(chosen), "%s/brim-glyphs-%u",
                 temporary != NULL && *temporary != '\0' ? temporary : "/tmp", (unsigned)getuid());
    }
    if (mkdir(chosen, 0777) != 0 && errno != EEXIST) {
        return fail(BRIM_IO, "cannot make the directory %s: %s", chosen, strerror(errno));
    }
    const int length = snprintf(data->images, PATH_MAX, "%s/images.npy", chosen);
    snprintf(data->labels, PATH_MAX, "%s/labels.npy", chosen);
    if (length >= PATH_MAX) {
        return fail(BRIM_INVALID, "the path of --data is too long: %d bytes", length);
    }
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

/* 784 inputs, 64 hidden units, 10 outputs. */
struct layers {
    float w1[PIXELS][HIDDEN], b1[HIDDEN], w2[HIDDEN][CLASSES], b2[CLASSES];
};
struct network {
    struct layers weights, velocity; /* velocity: the momentum's running mean */
    float hidden[BATCH][HIDDEN], output[BATCH][CLASSES], blame[BATCH][HIDDEN];
};

static void initialise(struct network *network, uint64_t seed) {
    uint64_t state = seed;
    for (int i = 0; i < PIXELS; i++) {
        for (int h = 0; h < HIDDEN; h++) { /* sqrt(6 / inputs) keeps the scale of signals */
            network->weights.w1[i][h] = draw_between(&state, -0.0875f, 0.0875f);
        }
    }
    for (int h = 0; h < HIDDEN; h++) {
        for (int c = 0; c < CLASSES; c++) {
            network->weights.w2[h][c] = draw_between(&state, -0.306f, 0.306f);
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

enum { LANES = 16 }; /* hidden units at a time: their sums stay in registers */

/* Fills hidden and output (as probabilities); returns how many rows are right. */
static uint64_t forward(struct network *network, size_t rows, const float (*images)[PIXELS],
                        const uint8_t *labels) {
    const struct layers *weights = &network->weights;
    for (size_t first = 0; first < HIDDEN; first += LANES) {
        for (size_t r = 0; r < rows; r++) {
            float sum[LANES];
            memcpy(sum, weights->b1 + first, sizeof(sum));
            for (size_t i = 0; i < PIXELS; i++) {
                for (size_t l = 0; l < LANES; l++) {
                    sum[l] += images[r][i] * weights->w1[i][first + l];
                }
            }
            for (size_t l = 0; l < LANES; l++) {
                network->hidden[r][first + l] = sum[l] > 0.0f ? sum[l] : 0.0f;
            }
        }
    }
    uint64_t right = 0;
    for (size_t r = 0; r < rows; r++) {
        float *output = network->output[r];
        memcpy(output, weights->b2, sizeof(weights->b2));
        for (size_t h = 0; h < HIDDEN; h++) {
            for (size_t c = 0; c < CLASSES; c++) {
                output[c] += network->hidden[r][h] * weights->w2[h][c];
            }
        }
        size_t best = 0;
        for (size_t c = 1; c < CLASSES; c++) {
            best = output[c] > output[best] ? c : best;
        }
        right += best == labels[r];
        const float most = output[best];
        float sum = 0.0f;
        for (size_t c = 0; c < CLASSES; c++) {
            sum += output[c] = exponential(output[c] - most);
        }
        for (size_t c = 0; c < CLASSES; c++) {
            output[c] /= sum;
        }
    }
    return right;
}

static void step(float *weight, float *velocity, float gradient) {
    *velocity = 0.9f * *velocity - 0.02f * gradient;
    *weight += *velocity;
}

/* One step of gradient descent with momentum on the mean cross-entropy of the
 * rows that forward has just seen. */
static void learn(struct network *network, size_t rows, const float (*images)[PIXELS],
                  const uint8_t *labels) {
    struct layers *weights = &network->weights, *velocity = &network->velocity;
    for (size_t r = 0; r < rows; r++) { /* output becomes the loss's gradient */
        network->output[r][labels[r]] -= 1.0f;
        for (size_t c = 0; c < CLASSES; c++) {
            network->output[r][c] /= (float)rows;
        }
        for (size_t h = 0; h < HIDDEN; h++) {
            float blame = 0.0f;
            for (size_t c = 0; c < CLASSES; c++) {
                blame += network->output[r][c] * weights->w2[h][c];
            }
            network->blame[r][h] = network->hidden[r][h] > 0.0f ? blame : 0.0f;
        }
    }
    for (size_t c = 0; c < CLASSES; c++) {
        float sum = 0.0f;
        for (size_t r = 0; r < rows; r++) {
            sum += network->output[r][c];
        }
        step(&weights->b2[c], &velocity->b2[c], sum);
        for (size_t h = 0; h < HIDDEN; h++) {
            sum = 0.0f;
            for (size_t r = 0; r < rows; r++) {
                sum += network->output[r][c] * network->hidden[r][h];
            }
            step(&weights->w2[h][c], &velocity->w2[h][c], sum);
        }
    }
    for (size_t first = 0; first < HIDDEN; first += LANES) {
        float sum[LANES] = { 0 };
        for (size_t r = 0; r < rows; r++) {
            for (size_t l = 0; l < LANES; l++) {
                sum[l] += network->blame[r][first + l];
            }
        }
        for (size_t l = 0; l < LANES; l++) {
            step(&weights->b1[first + l], &velocity->b1[first + l], sum[l]);
        }
        for (size_t i = 0; i < PIXELS; i++) {
            memset(sum, 0, sizeof(sum));
            for (size_t r = 0; r < rows; r++) {
                for (size_t l = 0; l < LANES; l++) {
                    sum[l] += images[r][i] * network->blame[r][first + l];
                }
            }
            for (size_t l = 0; l < LANES; l++) {
                step(&weights->w1[i][first + l], &velocity->w1[i][first + l], sum[l]);
            }
        }
    }
}

/* ----------------------------------------------------------------- options */

struct options {
    const char *data; /* NULL: prepare_data chooses */
    uint64_t samples, epochs, memory, seed;
    int32_t threads;
    bool json;
};

static const char help[] =
    "glyphs: trains a classifier on data larger than its memory budget\n"
    "\n"
    "usage: glyphs [options]\n"
    "\n"
    "  --data DIR     where the drawn digits are kept; default build/glyphs if there is a\n"
    "                 directory build, else a directory for temporary files\n"
    "  --samples N    digits to draw, from 640; default 40000 (31 MB)\n"
    "  --epochs N     passes over the training part; default 3\n"
    "  --memory SIZE  the budget of loaders and network together; default 16MiB\n"
    "  --threads N    workers that make batches, or auto (default)\n"
    "  --seed N       another split, order and network; default 7\n"
    "  --json         one object at the end instead of text\n"
    "  --help         this text\n"
    "\n"
    "exit codes: 0 good, 1 the data or the system failed, 2 wrong options, 3 does not fit\n"
    "the budget\n";

static bool parse_number(const char *text, uint64_t least, uint64_t most, uint64_t *number) {
    char *end;
    errno = 0;
    *number = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && *end == '\0' && errno == 0 && *number >= least &&
           *number <= most;
}

static bool parse_size(const char *text, uint64_t *bytes) {
    static const struct {
        const char *name;
        double bytes;
    } units[] = { { "", 1 },         { "B", 1 },    { "KiB", 0x1p10 }, { "MiB", 0x1p20 },
                  { "GiB", 0x1p30 }, { "kB", 1e3 }, { "MB", 1e6 },     { "GB", 1e9 } };
    char *end;
    const double number = strtod(text, &end);
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        if (end != text && strcmp(end, units[i].name) == 0) {
            const double size = number * units[i].bytes;
            *bytes = size >= 1.0 && size < 0x1p63 ? (uint64_t)size : 0;
            return *bytes > 0;
        }
    }
    return false;
}

/* Takes one option; false if its value is not one. */
static bool take_option(struct options *options, int letter) {
    uint64_t number = 0;
    switch (letter) {
    case 'd':
        options->data = optarg;
        return *optarg != '\0';
    case 'n':
        return parse_number(optarg, 10 * BATCH, UINT32_MAX, &options->samples);
    case 'e':
        return parse_number(optarg, 1, UINT32_MAX, &options->epochs);
    case 'm':
        return parse_size(optarg, &options->memory);
    case 't':
        if (strcmp(optarg, "auto") == 0) {
            options->threads = BRIM_THREADS_AUTO;
            return true;
        }
        if (!parse_number(optarg, 0, 1024, &number)) {
            return false;
        }
        options->threads = (int32_t)number;
        return true;
    case 's':
        return parse_number(optarg, 0, INT64_MAX, &options->seed);
    default:
        options->json = true;
        return true;
    }
}

/* ---------------------------------------------------------------- training */

struct program {
    struct options options;
    struct data_set data;
    brim_runtime *runtime;
    brim_budget *budget; /* the network's, below the runtime's */
    struct network *network;
    brim_loader *training, *validation;
    double begun;         /* when the first epoch began */
    double train_seconds; /* in the training part of epochs */
    double drawn;         /* when the progress line was last drawn; 0: there is none */
    uint64_t train_rows, batches;
    double accuracy; /* of the last validation */
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
    enum { WORD = 2 * PATH_MAX + 2 };
    static char images[WORD], labels[WORD], text[2 * WORD + 512];
    const uint64_t seed = program->options.seed;
    char shuffle[64] = "";
    quote(program->data.images, images);
    quote(program->data.labels, labels);
    if (strcmp(part, "train") == 0) { /* what only judges needs no other order */
        snprintf(shuffle, sizeof(shuffle), " | shuffle seed=%" PRIu64, seed);
    }
    snprintf(text, sizeof(text),
             "zip (npy %s name=image) (npy %s name=label)"
             " | split %s validation=0.1 seed=%" PRIu64 "%s | normalize unit on=image | batch %d",
             images, labels, part, seed, shuffle, BATCH);
    return brim_pipeline_parse(text, pipeline);
}

static void show_plan(const char *label, const brim_pipeline *pipeline, const brim_plan *plan) {
    const brim_plan_info *info = brim_plan_get(plan);
    printf("%s: %s\n", label, brim_pipeline_text(pipeline));
    for (uint32_t i = 0; i < info->stage_count; i++) {
        const brim_plan_stage *stage = brim_plan_stage_at(plan, i);
        printf("  %-10s %8.1f KiB  %s\n", stage->name, (double)stage->bytes / 1024.0,
               stage->effect);
    }
    printf("  minimum %.2f MiB, planned %.2f MiB, limit %.2f MiB, %" PRIu32 " slots, %" PRIu32
           " threads\n\n",
           mebibytes(info->minimum_bytes), mebibytes(info->planned_bytes),
           mebibytes(info->limit_bytes), info->slots, info->threads);
}

/* Plans before opening: the plan says what will be used, or what is missing. */
static brim_status open_loader(struct program *program, const char *label, const char *part,
                               brim_loader **loader) {
    brim_pipeline *pipeline = NULL;
    brim_plan *plan = NULL;
    brim_open_options open = BRIM_OPEN_OPTIONS_INIT;
    open.label = label;
    brim_status status = make_pipeline(program, part, &pipeline);
    if (status == BRIM_OK) {
        status = brim_plan_new(program->runtime, pipeline, &open, &plan);
    }
    if (status == BRIM_OK && !program->options.json) {
        show_plan(label, pipeline, plan);
    }
    if (status == BRIM_OK) {
        status = brim_loader_open(program->runtime, pipeline, &open, loader);
    }
    brim_plan_free(plan);
    brim_pipeline_free(pipeline);
    return status;
}

/* One budget for all: the network's memory is charged to it before it is taken. */
static brim_status open_all(struct program *program) {
    brim_runtime_options options = BRIM_RUNTIME_OPTIONS_INIT;
    options.host_bytes = program->options.memory;
    options.threads = program->options.threads;
    brim_status status = brim_runtime_new(&options, &program->runtime);
    if (status == BRIM_OK) {
        status = brim_budget_new(brim_runtime_budget(program->runtime), "network", BRIM_UNLIMITED,
                                 0, &program->budget);
    }
    if (status == BRIM_OK) {
        status = brim_budget_charge(program->budget, BRIM_HOST, sizeof(struct network));
    }
    if (status == BRIM_OK) {
        program->network = calloc(1, sizeof(struct network));
        status = program->network != NULL ? BRIM_OK : fail(BRIM_MEMORY, "no memory for a network");
    }
    if (status == BRIM_OK) {
        initialise(program->network, program->options.seed);
        status = open_loader(program, "training", "train", &program->training);
    }
    if (status == BRIM_OK) {
        status = open_loader(program, "validation", "validation", &program->validation);
    }
    return status;
}

/* Draws the progress line on a terminal, now and then. */
static void show_progress(struct program *program, uint64_t epoch, double rate) {
    const double time = now();
    brim_usage usage = BRIM_USAGE_INIT;
    if (isatty(STDERR_FILENO) == 0 || time - program->drawn < 0.2 ||
        brim_runtime_usage(program->runtime, &usage) != BRIM_OK) {
        return;
    }
    const uint64_t epochs = program->options.epochs;
    const uint64_t all = epochs * (brim_plan_get(brim_loader_plan(program->training))->batches +
                                   brim_plan_get(brim_loader_plan(program->validation))->batches);
    const double share = (double)program->batches / (double)all;
    fprintf(stderr,
            "\repoch %" PRIu64 " of %" PRIu64 "  %3.0f %%  %.0f samples/s  %.1f of %.1f MiB  "
            "%.1f s left\033[K",
            epoch, epochs, 100.0 * share, rate, mebibytes(usage.charged + usage.reserved),
            mebibytes(usage.limit), (time - program->begun) * (1.0 - share) / share);
    fflush(stderr);
    program->drawn = time;
}

/* All batches of a loader's epoch through the network; *accuracy is the share
 * of rows it had right (while learning: before it learned from them). */
static brim_status run_epoch(struct program *program, brim_loader *loader, bool learning,
                             uint64_t epoch, double *accuracy) {
    struct network *network = program->network;
    const double begun = now();
    uint64_t right = 0, seen = 0;
    brim_batch *batch;
    brim_status status;
    while ((status = brim_loader_next(loader, BRIM_FOREVER, &batch)) == BRIM_OK) {
        const size_t rows = brim_batch_get(batch)->rows;
        const float(*images)[PIXELS] = brim_batch_find(batch, "image")->data;
        const uint8_t *labels = brim_batch_find(batch, "label")->data;
        right += forward(network, rows, images, labels);
        if (learning) {
            learn(network, rows, images, labels);
        }
        brim_batch_release(batch);
        seen += rows;
        program->batches++;
        show_progress(program, epoch, (double)seen / (now() - begun));
    }
    if (learning) {
        program->train_rows += seen;
        program->train_seconds += now() - begun;
    }
    *accuracy = (double)right / (double)seen;
    return status == BRIM_END ? BRIM_OK : status;
}

static brim_status train(struct program *program) {
    program->begun = now();
    for (uint64_t epoch = 1; epoch <= program->options.epochs; epoch++) {
        double learned;
        brim_status status = run_epoch(program, program->training, true, epoch, &learned);
        if (status == BRIM_OK) {
            status = run_epoch(program, program->validation, false, epoch, &program->accuracy);
        }
        if (program->drawn > 0.0) {
            fputs("\r\033[K", stderr);
        }
        if (status != BRIM_OK) {
            return status;
        }
        if (!program->options.json) {
            printf("epoch %" PRIu64 ": accuracy %.4f in training, %.4f in validation, %.1f s\n",
                   epoch, learned, program->accuracy, now() - program->begun);
            fflush(stdout);
        }
    }
    return BRIM_OK;
}

static brim_status show_result(struct program *program) {
    brim_usage usage = BRIM_USAGE_INIT;
    const brim_status status = brim_runtime_usage(program->runtime, &usage);
    if (status != BRIM_OK) {
        return status;
    }
    const double rate = (double)program->train_rows / program->train_seconds;
    const uint64_t data = program->data.count * (PIXELS + 1);
    if (program->options.json) {
        printf("{\"accuracy\": %.6f, \"samples_per_second\": %.1f, \"budget_bytes\": %" PRIu64
               ", \"peak_charged_bytes\": %" PRIu64 ", \"peak_rss_bytes\": %" PRIu64
               ", \"data_bytes\": %" PRIu64 ", \"data_reused\": %s, \"epochs\": %" PRIu64 "}\n",
               program->accuracy, rate, usage.limit, usage.peak, usage.peak_rss, data,
               program->data.reused ? "true" : "false", program->options.epochs);
        return BRIM_OK;
    }
    printf("\nvalidation accuracy  %.4f\n", program->accuracy);
    printf("training             %.0f samples/s, the network's work included\n", rate);
    printf("data                 %.1f MiB\n", mebibytes(data));
    printf("budget               %.1f MiB\n", mebibytes(usage.limit));
    printf("peak charged         %.1f MiB: loaders and network\n", mebibytes(usage.peak));
    printf("peak resident        %.1f MiB: the whole process\n", mebibytes(usage.peak_rss));
    return BRIM_OK;
}

static brim_status run(struct program *program) {
    const struct options *options = &program->options;
    brim_status status = prepare_data(options->data, options->samples, &program->data);
    if (status == BRIM_OK && !options->json) {
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

int main(int count, char **words) {
    static struct program program = { .options = { .samples = 40000,
                                                   .epochs = 3,
                                                   .memory = 16 << 20,
                                                   .threads = BRIM_THREADS_AUTO,
                                                   .seed = 7 } };
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
    int letter, which;
    while ((letter = getopt_long(count, words, "", known, &which)) != -1) {
        if (letter == 'h') {
            fputs(help, stdout);
            return 0;
        }
        if (letter == '?') { /* getopt has said why */
            return 2;
        }
        if (!take_option(&program.options, letter)) {
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
    return status == BRIM_OK ? 0 : status == BRIM_BUDGET ? 3 : status == BRIM_INVALID ? 2 : 1;
}

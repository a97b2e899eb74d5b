/*
 * glyphs.c: trains a classifier on a folder of images inside one memory budget.
 *
 *     make run                        or: glyphs --help
 *
 * It draws digits in many colours, sizes and slants, writes them as JPEG files, a folder for each
 * class, and trains a small network on them inside 16 MiB, which hold the loader of the training
 * images, that of the validation images, and the network.
 *
 *     train/3/0007.jpg       --> training   --> network: judge, learn
 *     validation/3/0007.jpg  --> validation --> network: judge
 *                                    |             |
 *                                    +--- budget --+
 *
 * It uses only the public header of brim. Where to find what:
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
#include <stdio.h> /* before jpeglib.h, which uses FILE */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <jpeglib.h>

/* The network sees images of SIDE x SIDE; files have sides of SMALLEST to LARGEST. */
enum { SIDE = 32, SMALLEST = 48, LARGEST = 96, RGB = 3 };
enum { PIXELS = SIDE * SIDE * RGB, CLASSES = 10, HIDDEN = 64, BATCH = 64 };

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

static float between_0_and(float most, float value) {
    return value < 0.0f ? 0.0f : value > most ? most : value;
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

struct drawing {
    unsigned width, height;
    uint8_t pixels[LARGEST * LARGEST * RGB];
};

/* Image `number` of one of the sets, which depends on nothing else: dark paper, bright ink of
 * another colour, grain, and a few speckles that hide what is below. */
static void draw_glyph(unsigned digit, uint64_t number, struct drawing *image) {
    uint64_t state = (number * CLASSES + digit) * UINT64_C(0xd1342543de82ef95);
    image->width = SMALLEST + draw(&state) % (LARGEST - SMALLEST + 1);
    image->height = SMALLEST + draw(&state) % (LARGEST - SMALLEST + 1);
    const float w = (float)image->width, h = (float)image->height;
    const float x0 = w * draw_between(&state, 0.45f, 0.55f);
    const float y0 = h * draw_between(&state, 0.45f, 0.55f);
    const float width = w * draw_between(&state, 0.085f, 0.115f); /* of a cell */
    const float height = h * draw_between(&state, 0.075f, 0.1f);
    const float slant = draw_between(&state, -0.2f, 0.2f);
    const float least = draw_between(&state, 0.05f, 0.35f); /* ink below it is none: thin to bold */
    float paper[RGB], ink[RGB];
    for (int c = 0; c < RGB; c++) {
        paper[c] = draw_between(&state, 0.0f, 110.0f);
        ink[c] = draw_between(&state, 130.0f, 255.0f);
    }
    for (unsigned i = 0; i < image->width * image->height; i++) {
        const float x = (float)(i % image->width) - x0, y = (float)(i / image->width) - y0;
        const float u = (x + slant * y) / width + 2.0f, v = y / height + 3.0f;
        const float share = between_0_and(1.0f, 2.5f * (ink_at(digit, u, v) - least));
        const float grain = draw_between(&state, -20.0f, 20.0f);
        for (int c = 0; c < RGB; c++) {
            const float value = paper[c] + share * (ink[c] - paper[c]) + grain;
            image->pixels[i * RGB + (unsigned)c] = (uint8_t)between_0_and(255.0f, value);
        }
    }
    for (int speckles = 0; speckles < 6; speckles++) {
        const unsigned side = image->width / 12, column = draw(&state) % (image->width - side);
        const unsigned row = draw(&state) % (image->height - side);
        const int shade = (int)(draw(&state) & 0xff);
        for (unsigned r = row; r < row + side; r++) {
            memset(image->pixels + (r * image->width + column) * RGB, shade, side * RGB);
        }
    }
}

/* The image as JPEG in memory, which the caller frees. */
static unsigned char *encode(const struct drawing *image, unsigned long *bytes) {
    struct jpeg_compress_struct compress;
    struct jpeg_error_mgr errors;
    unsigned char *file = NULL;
    compress.err = jpeg_std_error(&errors); /* only memory can fail here, and that ends it all */
    jpeg_create_compress(&compress);
    jpeg_mem_dest(&compress, &file, bytes);
    compress.image_width = image->width;
    compress.image_height = image->height;
    compress.input_components = RGB;
    compress.in_color_space = JCS_RGB;
    jpeg_set_defaults(&compress);
    jpeg_set_quality(&compress, 90, TRUE);
    jpeg_start_compress(&compress, TRUE);
    for (unsigned row = 0; row < image->height; row++) {
        JSAMPROW line = (JSAMPROW)(image->pixels + (size_t)row * image->width * RGB);
        jpeg_write_scanlines(&compress, &line, 1);
    }
    jpeg_finish_compress(&compress);
    jpeg_destroy_compress(&compress);
    return file;
}

/* ------------------------------------------------------------------- files */

enum { TRAINING, VALIDATION, SETS };
static const char *const set_names[SETS] = { "train", "validation" };

struct data_set {
    char directory[PATH_MAX];
    uint64_t count[SETS]; /* images of each set */
    uint64_t bytes;
    bool reused;
};

/* Of a set's folder, and of one of its images. */
static int set_path(const struct data_set *data, int set, char path[PATH_MAX + 64]) {
    return snprintf(path, PATH_MAX + 64, "%s/%s", data->directory, set_names[set]);
}

static void image_path(const struct data_set *data, int set, uint64_t i, char path[PATH_MAX + 64]) {
    const int length = set_path(data, set, path);
    snprintf(path + length, 48, "/%" PRIu64 "/%04" PRIu64 ".jpg", i % CLASSES, i / CLASSES);
}

/* All images are there, and as many bytes in all as when they were drawn. */
static bool is_complete(struct data_set *data, const char *note_path) {
    char path[PATH_MAX + 64];
    uint64_t noted = 0, bytes = 0;
    FILE *note = fopen(note_path, "r");
    const bool read = note != NULL && fscanf(note, "%" SCNu64, &noted) == 1;
    if (note != NULL) {
        fclose(note);
    }
    for (int set = 0; read && set < SETS; set++) {
        for (uint64_t i = 0; i < data->count[set]; i++) {
            struct stat about;
            image_path(data, set, i, path);
            bytes += stat(path, &about) == 0 ? (uint64_t)about.st_size : UINT32_MAX;
        }
    }
    data->bytes = bytes;
    return read && bytes == noted;
}

static bool make_directory(const char *path) {
    return mkdir(path, 0777) == 0 || errno == EEXIST;
}

static bool write_file(const char *path, const void *content, size_t bytes) {
    FILE *file = fopen(path, "wb");
    const bool good = file != NULL && fwrite(content, 1, bytes, file) == bytes;
    return (file == NULL || fclose(file) == 0) && good;
}

/* Draws image `i` of a set and writes it, in the folder of its class. */
static bool write_image(struct data_set *data, int set, uint64_t i, char path[PATH_MAX + 64]) {
    static struct drawing image;
    unsigned long bytes = 0;
    image_path(data, set, i, path);
    if (i < CLASSES) { /* the first of its class */
        char *name = strrchr(path, '/');
        *name = '\0';
        if (!make_directory(path)) {
            return false;
        }
        *name = '/';
    }
    draw_glyph((unsigned)(i % CLASSES), i / CLASSES * SETS + (uint64_t)set, &image);
    unsigned char *file = encode(&image, &bytes);
    const bool good = write_file(path, file, bytes);
    free(file);
    data->bytes += bytes;
    return good;
}

/* The note of how many bytes there are comes last: a run that was broken off leaves nothing that
 * looks complete. */
static brim_status write_images(struct data_set *data, const char *note_path) {
    char path[PATH_MAX + 64], note[32];
    bool good = true;
    data->bytes = 0;
    for (int set = 0; good && set < SETS; set++) {
        set_path(data, set, path);
        good = make_directory(path);
        for (uint64_t i = 0; good && i < data->count[set]; i++) {
            good = write_image(data, set, i, path);
        }
    }
    if (good) {
        const int length = snprintf(note, sizeof note, "%" PRIu64 "\n", data->bytes);
        snprintf(path, sizeof path, "%s", note_path);
        good = write_file(path, note, (size_t)length);
    }
    return good ? BRIM_OK
                : FAIL(BRIM_STATUS_IO, "cannot write %s: %s; --data names another directory", path,
                       strerror(errno));
}

/* Finds the images in `directory`, or draws them. Without a directory: in build/ if there is
 * one, else where temporary files go. */
static brim_status prepare_data(const char *directory, uint64_t count, struct data_set *data) {
    char chosen[PATH_MAX - 64], note[PATH_MAX + 64];
    struct stat about;
    const char *temporary = getenv("TMPDIR");
    int length;
    if (directory != NULL) {
        length = snprintf(chosen, sizeof chosen, "%s", directory);
    } else if (stat("build", &about) == 0 && S_ISDIR(about.st_mode)) {
        length = snprintf(chosen, sizeof chosen, "build/glyphs");
    } else {
        length = snprintf(chosen, sizeof chosen, "%s/brim-glyphs-%u",
                          temporary != NULL ? temporary : "/tmp", (unsigned)getuid());
    }
    if (length >= (int)sizeof chosen) {
        return FAIL(BRIM_STATUS_INVALID, "the directory's path is too long: %d bytes", length);
    }
    /* as many in the name: another number is another folder */
    snprintf(data->directory, sizeof data->directory, "%s/%" PRIu64, chosen, count);
    if (!make_directory(chosen) || !make_directory(data->directory)) {
        return FAIL(BRIM_STATUS_IO, "cannot make the directory %s: %s", chosen, strerror(errno));
    }
    data->count[TRAINING] = count;
    data->count[VALIDATION] = count / 4;
    snprintf(note, sizeof note, "%s/bytes", data->directory);
    data->reused = is_complete(data, note);
    return data->reused ? BRIM_OK : write_images(data, note);
}

/* ----------------------------------------------------------------- network */

/* 3072 inputs, 64 hidden units, 10 classes in 16 outputs; the last row of a
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
        network->w1[i / HIDDEN][i % HIDDEN] = draw_between(&state, -0.0442f, 0.0442f);
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
            memcpy(sum, w + inputs * outputs + first, sizeof sum);
            for (size_t i = 0; i < inputs; i++) {
                for (size_t l = 0; l < LANES; l++) {
                    sum[l] += x[r * inputs + i] * w[i * outputs + first + l];
                }
            }
            memcpy(y + r * outputs + first, sum, sizeof sum);
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
                *velocity = 0.9f * *velocity - 0.01f * sum[l];
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
                      const int64_t *labels) {
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
        right += (int64_t)best == labels[r];
        const float most = output[best];
        for (size_t c = 0; c < CLASSES; c++) {
            sum += output[c] = exponential(output[c] - most);
        }
        for (size_t c = 0; c < OUTPUTS; c++) {
            output[c] =
                c < CLASSES ? (output[c] / sum - ((int64_t)c == labels[r])) / (float)rows : 0.0f;
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

/* Training sees another part of each image every time, in another order every epoch; validation
 * sees each whole image, in the order of the folder. */
static brim_status make_pipeline(const struct program *program, int set, brim_pipeline **pipeline) {
    static char folder[PATH_MAX + 64], word[2 * sizeof folder + 2], text[sizeof word + 512];
    set_path(&program->data, set, folder);
    quote(folder, word);
    if (set == TRAINING) {
        snprintf(text, sizeof text,
                 "folder %s | shuffle seed=%" PRIu64 " | decode"
                 " | random_resized_crop %d scale=0.6,1 seed=%" PRIu64
                 " | normalize mean=0.4 std=0.3 | batch %d",
                 word, program->seed, SIDE, program->seed, BATCH);
    } else {
        snprintf(text, sizeof text,
                 "folder %s | decode | resize %d %d | normalize mean=0.4 std=0.3 | batch %d", word,
                 SIDE, SIDE, BATCH);
    }
    return brim_pipeline_parse(text, pipeline);
}

static void show_plan(const char *label, const brim_pipeline *pipeline, const brim_plan *plan) {
    const brim_plan_info *info = brim_plan_get(plan);
    printf("%s: %s\n", label, brim_pipeline_text(pipeline));
    for (uint32_t i = 0; i < info->stage_count; i++) {
        const brim_plan_stage *stage = brim_plan_stage_at(plan, i);
        printf("  %-19s %6.1f KiB  %s\n", stage->name, (double)stage->bytes / 1024, stage->effect);
    }
    printf("  minimum %.2f MiB, planned %.2f MiB, limit %.2f MiB, %u slots, %u threads\n\n",
           mebibytes(info->minimum_bytes), mebibytes(info->planned_bytes),
           mebibytes(info->limit_bytes), info->slots, info->threads);
}

/* Plans before opening: the plan tells what will be used, or what is missing. */
static brim_status open_loader(const struct program *program, const char *label, int set,
                               brim_loader **loader) {
    brim_pipeline *pipeline = NULL;
    brim_plan *plan = NULL;
    brim_open_options options = BRIM_OPEN_OPTIONS_INIT;
    options.label = label;
    brim_status status = make_pipeline(program, set, &pipeline);
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
    options.index_dir = program->data.directory; /* the folders' indexes stay with them */
    brim_status status = brim_runtime_new(&options, &program->runtime);
    if (status == BRIM_OK) {
        status = brim_budget_new(brim_runtime_budget(program->runtime), "network", BRIM_UNLIMITED,
                                 0, &program->budget);
    }
    if (status == BRIM_OK) {
        status = brim_budget_charge(program->budget, BRIM_MEMORY_HOST, sizeof *program->network);
    }
    if (status != BRIM_OK) {
        return status;
    }
    program->network = calloc(1, sizeof *program->network);
    if (program->network == NULL) {
        return FAIL(BRIM_STATUS_MEMORY, "no memory for the network");
    }
    initialise(program->network, program->seed);
    status = open_loader(program, "training", TRAINING, &program->training);
    if (status == BRIM_OK) {
        status = open_loader(program, "validation", VALIDATION, &program->validation);
    }
    return status;
}

/* Draws the progress line again from time to time, on terminals only. */
static void show_progress(struct program *program, double rate) {
    const double time = now();
    brim_usage usage = BRIM_USAGE_INIT;
    if (isatty(STDERR_FILENO) == 0 || time - program->drawn < 0.2 ||
        brim_runtime_read_usage(program->runtime, &usage) != BRIM_OK) {
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
        const int64_t *labels = brim_batch_find(batch, "label")->data;
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
    return status == BRIM_STATUS_END ? BRIM_OK : status;
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
    const brim_status status = brim_runtime_read_usage(program->runtime, &usage);
    if (status != BRIM_OK) {
        return status;
    }
    const double rate = (double)program->trained / program->training_seconds;
    if (program->json) {
        printf("{\"accuracy\": %.6f, \"samples_per_second\": %.1f, \"budget_bytes\": %" PRIu64
               ", \"peak_charged_bytes\": %" PRIu64 ", \"peak_rss_bytes\": %" PRIu64
               ", \"epochs\": %" PRIu64 ", \"data_bytes\": %" PRIu64 ", \"data_reused\": %s}\n",
               program->accuracy, rate, usage.limit, usage.peak, usage.peak_rss, program->epochs,
               program->data.bytes, program->data.reused ? "true" : "false");
    } else {
        printf("\nvalidation accuracy  %.4f\n", program->accuracy);
        printf("training             %.0f samples/s, the network's work included\n", rate);
        printf("data                 %.1f MiB of JPEG files\n", mebibytes(program->data.bytes));
        printf("budget               %.1f MiB\n", mebibytes(usage.limit));
        printf("peak charged         %.1f MiB: loaders and network\n", mebibytes(usage.peak));
        printf("peak RSS             %.1f MiB: the whole process\n", mebibytes(usage.peak_rss));
    }
    return BRIM_OK;
}

static brim_status run(struct program *program) {
    brim_status status = prepare_data(program->directory, program->samples, &program->data);
    if (status == BRIM_OK && !program->json) {
        printf("data: %" PRIu64 " images %s %s\n\n",
               program->data.count[TRAINING] + program->data.count[VALIDATION],
               program->data.reused ? "found in" : "drawn into", program->data.directory);
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
    "glyphs: trains a classifier on a folder of images inside one memory budget\n"
    "\n"
    "usage: glyphs [options]\n"
    "\n"
    "  --data DIR     where the drawn digits are kept; default build/glyphs if there is a\n"
    "                 directory build, else a directory for temporary files\n"
    "  --samples N    images to train on, at least 640; default 2000; a quarter as many more\n"
    "                 are for validation\n"
    "  --epochs N     passes over the training images; default 8\n"
    "  --memory SIZE  budget of loaders and network together; default 16MiB\n"
    "  --threads N    workers that make batches, or auto (default)\n"
    "  --seed N       another order and network; default 7\n"
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
        .samples = 2000, .epochs = 8, .memory = 16 << 20, .seed = 7, .threads = BRIM_THREADS_AUTO
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
        return fflush(stdout) == 0 ? 0 : 1; /* output that could not be written is a failure */
    }
    return status == BRIM_STATUS_BUDGET ? 3 : status == BRIM_STATUS_INVALID ? 2 : 1;
}

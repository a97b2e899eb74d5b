/*
 * fuzz.c: the directory, the runtime, and running a pipeline to look at all that
 * comes out of it.
 */
#include "fuzz.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_SAMPLES 300
#define MOST_BATCHES 40
#define MOST_NUMBER  ((uint64_t)1 << 32) /* no source here has as many samples */
/* Work that only takes long is given up after so many reports of progress. */
#define MOST_REPORTS 20

bool fuzz_may_miss_files;
uint64_t fuzz_skipped;

static char directory[128];
static int home; /* where the process was started */
static brim_runtime *runtime;
static uint64_t charged_before; /* by the runtime alone */

void fuzz_wrong(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("wrong: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    abort();
}

/* -------------------------------------------------------------- directory */

static int remove_entry(const char *path, const struct stat *status, int flag, struct FTW *place) {
    (void)status, (void)flag, (void)place;
    return remove(path);
}

static void remove_directory(void) {
    nftw(directory, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static brim_usage usage(void) {
    brim_usage now = BRIM_USAGE_INIT;
    if (brim_runtime_read_usage(runtime, &now) != BRIM_OK) {
        fuzz_wrong("brim_runtime_read_usage: %s", brim_detail());
    }
    return now;
}

void fuzz_begin(void) {
    const char *place = getenv("TMPDIR");
    snprintf(directory, sizeof directory, "%s/brim-fuzz-XXXXXX", place == NULL ? "/tmp" : place);
    home = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (mkdtemp(directory) == NULL || home < 0) {
        fuzz_wrong("no directory can be made: %s", directory);
    }
    atexit(remove_directory);
    const int empty = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (empty < 0 || dup2(empty, 0) != 0 || close(empty) != 0) {
        fuzz_wrong("/dev/null cannot be made standard input");
    }
    const brim_runtime_options options = {
        .size = sizeof options,
        .host_bytes = FUZZ_BUDGET,
        .index_dir = directory,
        .trust_foreign = 1, /* inputs are written with any umask, and are to be read */
    };
    if (brim_runtime_new(&options, &runtime) != BRIM_OK) {
        fuzz_wrong("brim_runtime_new: %s", brim_detail());
    }
    charged_before = usage().charged;
}

brim_runtime *fuzz_runtime(void) {
    return runtime;
}

const char *fuzz_path(char *path, const char *name) {
    snprintf(path, FUZZ_PATH_BYTES, "%s/%s", directory, name);
    return path;
}

const char *fuzz_expand(char *text, const char *row, const char *name) {
    char path[FUZZ_PATH_BYTES];
    const size_t length = strlen(fuzz_path(path, name));
    size_t used = 0;
    for (; *row != '\0'; row++) {
        if (used + length + 1 >= FUZZ_TEXT_BYTES) {
            fuzz_wrong("a pipeline is too long");
        }
        if (*row == '$') {
            memcpy(text + used, path, length);
            used += length;
        } else {
            text[used++] = *row;
        }
    }
    text[used] = '\0';
    return text;
}

void fuzz_write(const char *name, const void *data, size_t bytes) {
    static int64_t seconds = 1000000000;
    const struct timespec times[2] = { { .tv_sec = seconds }, { .tv_sec = seconds } };
    char path[FUZZ_PATH_BYTES];
    const int fd = open(fuzz_path(path, name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, data, bytes) != (ssize_t)bytes || futimens(fd, times) != 0 ||
        close(fd) != 0) {
        fuzz_wrong("%s cannot be written", path);
    }
    seconds++;
}

/* ----------------------------------------------------------------- batches */

static uint64_t add(uint64_t digest, const void *data, size_t bytes) {
    const unsigned char *at = data;
    for (size_t i = 0; i < bytes; i++) {
        digest = (digest ^ at[i]) * UINT64_C(0x100000001b3);
    }
    return digest;
}

/* Bytes between neighbours of the first dimension but the batch's, as the
 * elements of a field that is not dense lie. */
static size_t inner_bytes(const brim_field *field) {
    size_t bytes = brim_dtype_bytes(field->dtype);
    for (uint32_t i = 2; i < field->rank; i++) {
        bytes *= (size_t)field->shape[i];
    }
    return bytes;
}

/* Reads every byte that the field says it has. The library's memory comes in
 * pages of its own, inside of which the address sanitizer sees nothing; that rows
 * keep their bounds and numbers is looked at here. */
static uint64_t look_at_field(const brim_field *field, const brim_plan_field *planned,
                              uint64_t rows, uint64_t digest) {
    if (brim_dtype_bytes(field->dtype) == 0 || field->rank == 0 || field->rank > BRIM_MAX_RANK ||
        field->shape[0] != (int64_t)rows) {
        fuzz_wrong("field %s: dtype %d, rank %u, %lld rows of %llu", field->name, field->dtype,
                   field->rank, (long long)field->shape[0], (unsigned long long)rows);
    }
    digest = add(digest, field->name, strlen(field->name));
    if (field->form == BRIM_FORM_DENSE) {
        size_t row_bytes = brim_dtype_bytes(field->dtype);
        for (uint32_t i = 1; i < field->rank; i++) {
            row_bytes *= (size_t)field->shape[i];
        }
        for (uint64_t row = 0; row < rows; row++) {
            const char *at = (const char *)field->data + (int64_t)row * field->strides[0];
            digest = add(digest, at, row_bytes);
        }
        return digest;
    }
    if (field->offsets == NULL || field->offsets[0] != 0) {
        fuzz_wrong("field %s: offsets do not begin with 0", field->name);
    }
    for (uint64_t row = 0; row < rows; row++) {
        const int64_t count = field->offsets[row + 1] - field->offsets[row];
        if (count < 0 || count > planned->shape[1]) {
            fuzz_wrong("field %s: row %llu has %lld elements, its bound is %lld", field->name,
                       (unsigned long long)row, (long long)count, (long long)planned->shape[1]);
        }
    }
    digest = add(digest, field->offsets, (rows + 1) * sizeof field->offsets[0]);
    return add(digest, field->data, (size_t)field->offsets[rows] * inner_bytes(field));
}

static uint64_t look_at_batch(const brim_batch *batch, const brim_plan *plan, uint64_t digest) {
    const brim_batch_info *info = brim_batch_get(batch);
    for (uint64_t row = 0; row < info->rows; row++) {
        if (info->samples[row] >= MOST_NUMBER && info->valid[row] != 0) {
            fuzz_wrong("row %llu is sample %llu", (unsigned long long)row,
                       (unsigned long long)info->samples[row]);
        }
    }
    digest = add(digest, info->samples, info->rows * sizeof info->samples[0]);
    for (uint32_t i = 0; i < info->field_count; i++) {
        digest = look_at_field(brim_batch_field_at(batch, i), brim_plan_field_at(plan, i),
                               info->rows, digest);
    }
    return digest;
}

uint64_t fuzz_take(brim_loader *loader) {
    uint64_t digest = FUZZ_NOTHING, samples = 0;
    for (int i = 0; i < MOST_BATCHES && samples < MOST_SAMPLES; i++) {
        brim_batch *batch;
        const brim_status status = brim_loader_next(loader, BRIM_FOREVER, &batch);
        if (status == BRIM_STATUS_END) {
            break;
        }
        if (status != BRIM_OK) {
            fuzz_check_refusal("brim_loader_next", status);
            break;
        }
        samples += brim_batch_get(batch)->rows;
        digest = look_at_batch(batch, brim_loader_plan(loader), digest);
        brim_batch_release(batch);
    }
    brim_stats stats = BRIM_STATS_INIT;
    if (brim_loader_read_stats(loader, &stats) != BRIM_OK) {
        fuzz_wrong("brim_loader_read_stats: %s", brim_detail());
    }
    fuzz_skipped = stats.skipped;
    return digest;
}

/* -------------------------------------------------------------------- runs */

void fuzz_check_refusal(const char *call, brim_status status) {
    switch (status) {
    case BRIM_STATUS_INVALID:
    case BRIM_STATUS_SYNTAX:
    case BRIM_STATUS_UNBOUND:
    case BRIM_STATUS_BUDGET:
    case BRIM_STATUS_CORRUPT:
    case BRIM_STATUS_UNSUPPORTED:
    case BRIM_STATUS_MISMATCH:
    case BRIM_STATUS_UNSEEKABLE:
    case BRIM_STATUS_INTERRUPTED:
        break;
    case BRIM_STATUS_IO:
        if (fuzz_may_miss_files) {
            break;
        }
        /* fall through */
    default:
        fuzz_wrong("%s: %s: %s", call, brim_status_name(status), brim_detail());
    }
    if (brim_detail()[0] == '\0') {
        fuzz_wrong("%s: %s without a reason", call, brim_status_name(status));
    }
}

void fuzz_check_budget(void) {
    if (brim_runtime_trim(runtime, NULL) != BRIM_OK) {
        fuzz_wrong("brim_runtime_trim: %s", brim_detail());
    }
    const brim_usage now = usage();
    if (now.charged != charged_before || now.reserved != 0 || now.loaders != 0) {
        fuzz_wrong("%llu bytes are charged after closing, %llu were before",
                   (unsigned long long)now.charged, (unsigned long long)charged_before);
    }
    if (now.peak > FUZZ_BUDGET) {
        fuzz_wrong("%llu bytes were charged, %llu are allowed", (unsigned long long)now.peak,
                   (unsigned long long)FUZZ_BUDGET);
    }
}

static int count_reports(void *user, const brim_progress *progress) {
    (void)progress;
    return ++*(int *)user > MOST_REPORTS;
}

uint64_t fuzz_run(const char *text) {
    brim_pipeline *pipeline;
    brim_loader *loader;
    uint64_t digest = 0;
    int reports = 0;
    brim_open_options options = BRIM_OPEN_OPTIONS_INIT;
    options.progress = count_reports;
    options.progress_user = &reports;
    brim_status status = brim_pipeline_parse(text, &pipeline);
    if (status != BRIM_OK) {
        fuzz_check_refusal("brim_pipeline_parse", status);
        return 0;
    }
    /* not for good: libFuzzer's own paths may be relative */
    if (chdir(directory) != 0) {
        fuzz_wrong("%s is gone", directory);
    }
    status = brim_loader_open(runtime, pipeline, &options, &loader);
    brim_pipeline_free(pipeline);
    if (status == BRIM_OK) {
        digest = fuzz_take(loader);
        brim_loader_close(loader);
    } else {
        fuzz_check_refusal("brim_loader_open", status);
    }
    if (fchdir(home) != 0) {
        fuzz_wrong("the directory in which this was started is gone");
    }
    fuzz_check_budget();
    return digest;
}

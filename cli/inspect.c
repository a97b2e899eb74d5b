/*
 * inspect.c: `brim inspect`: what a file holds, and whether all of it can be read.
 *
 * A path is turned into the pipeline that reads it (brim_guess), and the plan of
 * that pipeline says the rest. Verifying takes every sample once and leaves bad
 * ones out, so that all of them are counted and the first are told. A stream can
 * be opened only once: if it is to be verified, the loader's plan is the one that
 * is shown.
 */
#include "cli.h"
#include "feed.h"
#include "progress.h"
#include "session.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define ERRORS_TOLD   5
#define ERROR_BYTES   512
#define TEXT_BYTES    8192
#define BATCH_BYTES   (256.0 * 1024) /* of a batch that is verified, and ... */
#define BATCH_ROWS    256            /* ... the most rows of one */
#define STREAM_ROWS   4 /* of a stream, whose samples are not known then: up to 64 KiB each */
#define VERIFY_FORMAT "%s | batch %d on_error=skip max_errors=4611686018427387904"

struct inspection {
    const struct options *options;
    const char *subject; /* as given: a path or a pipeline */
    bool is_file;
    uint64_t file_bytes;
    char text[TEXT_BYTES]; /* the pipeline */
    struct session session;
    brim_pipeline *pipeline; /* NULL, or the one to show, where the session has another */
    brim_plan *own;          /* NULL: the loader has the plan */
    const brim_plan *plan;   /* NULL: a choice must be made first, see `note` */
    struct feed feed;
    char note[ERROR_BYTES]; /* what else the file holds; "": nothing */
    double largest;         /* bytes of a sample at most, without what aligns it */
    /* --verify */
    uint64_t good, bad;
    char errors[ERRORS_TOLD][ERROR_BYTES];
    size_t error_count;
    struct failure failure; /* status BRIM_OK: none */
    bool interrupted;
};

/* ------------------------------------------------------------------ looking */

/* A word that begins like a pipeline and is no file. */
static bool is_pipeline(const char *subject) {
    char name[BRIM_NAME_BYTES];
    const size_t length = strcspn(subject, " |(");
    if (subject[length] == '\0' || length >= sizeof(name)) {
        return false;
    }
    memcpy(name, subject, length);
    name[length] = '\0';
    return brim_stage_find(name) != NULL;
}

static brim_status find_text(struct inspection *inspection) {
    struct stat file;
    brim_status status;
    inspection->is_file = stat(inspection->subject, &file) == 0;
    if (!inspection->is_file && is_pipeline(inspection->subject)) {
        const int length =
            snprintf(inspection->text, sizeof(inspection->text), "%s", inspection->subject);
        if (length > 0 && (size_t)length < sizeof(inspection->text)) {
            return BRIM_OK;
        }
        inspection->failure = (struct failure){ .status = BRIM_INVALID };
        snprintf(inspection->failure.text, sizeof(inspection->failure.text),
                 "the pipeline is longer than the %d bytes that brim inspect takes", TEXT_BYTES);
        return BRIM_INVALID;
    }
    inspection->file_bytes = inspection->is_file ? (uint64_t)file.st_size : 0;
    status = brim_guess(inspection->subject, inspection->text, sizeof(inspection->text));
    if (status != BRIM_OK) {
        inspection->failure = failure_now(&inspection->session, status);
    }
    return status;
}

/* Keeps the words of a source that holds several arrays and wants one named, if
 * that was the last failure. */
static bool keep_choice(struct inspection *inspection, brim_status status) {
    if (status != BRIM_INVALID || strstr(brim_detail(), ": say which ") == NULL) {
        return false;
    }
    snprintf(inspection->note, sizeof(inspection->note), "%s", brim_detail());
    return true;
}

/* A guess takes the first array of an npz file: asks for none, to hear of all. */
static void find_others(struct inspection *inspection) {
    brim_argument path = BRIM_ARGUMENT_INIT;
    brim_pipeline *pipeline = NULL;
    brim_plan *plan = NULL;
    path.text = inspection->subject;
    if (!inspection->is_file || strncmp(inspection->text, "npz ", 4) != 0) {
        return;
    }
    brim_status status = brim_pipeline_new(&pipeline);
    if (status == BRIM_OK) {
        status = brim_pipeline_add(pipeline, "npz", &path, 1);
    }
    if (status == BRIM_OK) {
        status =
            brim_plan_new(inspection->session.runtime, pipeline, &inspection->session.open, &plan);
    }
    (void)keep_choice(inspection, status);
    brim_plan_free(plan);
    brim_pipeline_free(pipeline);
}

/* Gives the session the pipeline with batches that leave bad samples out. */
static brim_status add_batches(struct inspection *inspection, int rows) {
    char text[TEXT_BYTES + sizeof(VERIFY_FORMAT) + 16];
    snprintf(text, sizeof(text), VERIFY_FORMAT, inspection->text, rows);
    brim_pipeline *pipeline;
    const brim_status status = brim_pipeline_parse(text, &pipeline);
    if (status == BRIM_OK) {
        inspection->pipeline = inspection->session.pipeline;
        inspection->session.pipeline = pipeline;
    }
    return status;
}

/* The plan of what is described: of the loader already if a stream is verified. */
static brim_status open_plan(struct inspection *inspection) {
    struct session *session = &inspection->session;
    const struct outline outline = outline_of(session->pipeline);
    brim_status status = BRIM_OK;
    if (!inspection->options->verify || !outline.stream) {
        status = session_plan(session, &inspection->own);
        inspection->plan = inspection->own;
        return status;
    }
    if (!outline.batches) {
        status = add_batches(inspection, STREAM_ROWS);
    }
    if (status == BRIM_OK) {
        status = feed_open(&inspection->feed, session);
    }
    if (status == BRIM_OK) {
        inspection->plan = brim_loader_plan(inspection->feed.loader);
    }
    return status;
}

static brim_status find_plan(struct inspection *inspection) {
    struct session *session = &inspection->session;
    brim_status status =
        session_open(session, inspection->options, inspection->text, &inspection->failure);
    if (status != BRIM_OK) {
        return status;
    }
    status = open_plan(inspection);
    if (status != BRIM_OK) {
        /* a choice left open is no failure, unless there is something to verify */
        if (inspection->is_file && !inspection->options->verify &&
            keep_choice(inspection, status)) {
            return BRIM_OK;
        }
        inspection->failure = failure_now(session, status);
        return status;
    }
    find_others(inspection);
    const brim_plan_info *info = brim_plan_get(inspection->plan);
    for (uint32_t i = 0; i < info->field_count; i++) {
        const brim_plan_field *field = brim_plan_field_at(inspection->plan, i);
        double bytes = (double)brim_dtype_bytes(field->dtype);
        for (uint32_t d = 1; d < field->rank; d++) {
            bytes *= (double)field->shape[d];
        }
        inspection->largest += bytes;
    }
    return BRIM_OK;
}

/* ---------------------------------------------------------------- verifying */

/* Opens the loader, unless it was opened for its plan. */
static brim_status open_feed(struct inspection *inspection) {
    if (inspection->feed.loader != NULL) {
        return BRIM_OK;
    }
    if (!outline_of(inspection->session.pipeline).batches) {
        const double fit = BATCH_BYTES / (inspection->largest > 1 ? inspection->largest : 1);
        const int rows = fit < 1 ? 1 : fit > BATCH_ROWS ? BATCH_ROWS : (int)fit;
        const brim_status status = add_batches(inspection, rows);
        if (status != BRIM_OK) {
            return status;
        }
    }
    brim_plan_free(inspection->own); /* the loader has one of its own to pay for */
    inspection->own = NULL;
    inspection->plan = NULL;
    return feed_open(&inspection->feed, &inspection->session);
}

/* Keeps the first errors: `seen` bad samples were known before this look. The
 * loader has the texts of the last few, the latest first. */
static void keep_errors(struct inspection *inspection, brim_loader *loader, uint64_t *seen) {
    brim_stats stats = BRIM_STATS_INIT;
    (void)brim_loader_stats(loader, &stats);
    const uint64_t fresh = stats.skipped - *seen;
    uint64_t index = fresh < stats.error_count ? fresh : stats.error_count;
    *seen = stats.skipped;
    while (index-- > 0 && inspection->error_count < ERRORS_TOLD) {
        char *text = inspection->errors[inspection->error_count];
        inspection->error_count += brim_loader_error(loader, index, text, ERROR_BYTES) == BRIM_OK;
    }
}

static void verify(struct inspection *inspection) {
    const struct options *options = inspection->options;
    struct session *session = &inspection->session;
    const uint64_t samples = brim_plan_get(inspection->plan)->samples;
    struct feed *feed = &inspection->feed;
    brim_status status = open_feed(inspection);
    struct progress progress;
    progress_begin(&progress, !options->quiet && !options->json);
    while (status == BRIM_OK) {
        const brim_batch *batch;
        status = feed_next(feed, &batch);
        if (status == BRIM_OK) {
            inspection->good += brim_batch_get(batch)->valid_rows;
            keep_errors(inspection, feed->loader, &inspection->bad);
            progress_update(&progress, session->runtime, feed->loader,
                            samples == BRIM_UNKNOWN || samples == 0
                                ? 0
                                : (double)inspection->good / (double)samples);
        }
    }
    if (status == BRIM_END) {
        keep_errors(inspection, feed->loader, &inspection->bad);
    } else if (status == BRIM_INTERRUPTED) {
        inspection->interrupted = true;
    } else {
        inspection->failure = failure_now(session, status);
    }
    progress_end(&progress);
}

/* ------------------------------------------------------------------ telling */

static const char *shown_text(const struct inspection *inspection) {
    return brim_pipeline_text(inspection->pipeline != NULL ? inspection->pipeline
                                                           : inspection->session.pipeline);
}

static void describe_json(struct document *json, const struct inspection *inspection) {
    put_text(json, "pipeline", shown_text(inspection));
    if (inspection->is_file) {
        put_count(json, "bytes", inspection->file_bytes);
    }
    if (inspection->note[0] != '\0') {
        put_text(json, "note", inspection->note);
    }
    if (inspection->plan == NULL) {
        return;
    }
    const brim_plan_info *info = brim_plan_get(inspection->plan);
    put_known(json, "samples", info->samples);
    put_count(json, "largest_sample_bytes", (uint64_t)inspection->largest);
    put_array(json, "fields");
    for (uint32_t i = 0; i < info->field_count; i++) {
        const brim_plan_field *field = brim_plan_field_at(inspection->plan, i);
        put_object(json, NULL);
        put_text(json, "name", field->name);
        put_text(json, "dtype", brim_dtype_name(field->dtype));
        put_text(json, "form", form_name(field->form));
        put_array(json, "shape");
        for (uint32_t d = 1; d < field->rank; d++) {
            put_signed(json, NULL, field->shape[d]);
        }
        end_array(json);
        end_object(json);
    }
    end_array(json);
}

static void describe(const struct inspection *inspection) {
    char text[NUMBER_TEXT], shape[SHAPE_TEXT];
    fputs("  pipeline  ", stdout);
    put_clean(stdout, shown_text(inspection));
    putchar('\n');
    if (inspection->is_file) {
        printf("  size      %s\n", bytes_text((double)inspection->file_bytes, text));
    }
    if (inspection->note[0] != '\0') {
        fputs("  note      ", stdout);
        put_clean(stdout, inspection->note);
        putchar('\n');
    }
    if (inspection->plan == NULL) {
        return;
    }
    const brim_plan_info *info = brim_plan_get(inspection->plan);
    printf("  samples   %s\n", count_text(info->samples, text));
    printf("  largest   %s\n", bytes_text(inspection->largest, text));
    for (uint32_t i = 0; i < info->field_count; i++) {
        const brim_plan_field *field = brim_plan_field_at(inspection->plan, i);
        fputs("  field     ", stdout);
        put_clean(stdout, field->name);
        printf(" %s %s\n", field_type_text(field, text), field_shape_text(field, false, shape));
    }
}

static void report_json(struct document *json, const struct inspection *inspection) {
    if (inspection->failure.status != BRIM_OK) {
        failure_json(json, &inspection->failure);
    } else {
        put_object(json, "verified");
        put_count(json, "samples", inspection->good);
        put_count(json, "bad", inspection->bad);
        put_array(json, "errors");
        for (size_t i = 0; i < inspection->error_count; i++) {
            put_text(json, NULL, inspection->errors[i]);
        }
        end_array(json);
        end_object(json);
    }
}

static void report(const struct inspection *inspection) {
    char good[NUMBER_TEXT], bad[NUMBER_TEXT];
    printf("  verified  %s samples good, %s bad%s\n", count_text(inspection->good, good),
           count_text(inspection->bad, bad), inspection->interrupted ? ", interrupted" : "");
    for (size_t i = 0; i < inspection->error_count; i++) {
        fputs("            ", stdout);
        put_clean(stdout, inspection->errors[i]);
        putchar('\n');
    }
}

/* One path: an object in `json`, or lines if that is NULL. */
static int inspect(struct inspection *inspection, struct document *json) {
    const bool verified = inspection->options->verify;
    if (json != NULL) {
        put_object(json, NULL);
        put_text(json, "path", inspection->subject);
    }
    if (find_text(inspection) == BRIM_OK && find_plan(inspection) == BRIM_OK) {
        if (json != NULL) {
            describe_json(json, inspection);
        } else {
            put_clean(stdout, inspection->subject);
            putchar('\n');
            describe(inspection);
        }
        if (verified) {
            verify(inspection);
        }
    }
    const bool failed = inspection->failure.status != BRIM_OK;
    if (json != NULL) {
        if (verified || failed) {
            report_json(json, inspection);
        }
        end_object(json);
    } else if (verified && !failed) {
        report(inspection);
    }
    feed_close(&inspection->feed);
    brim_plan_free(inspection->own);
    brim_pipeline_free(inspection->pipeline);
    session_end(&inspection->session);
    if (failed) {
        fflush(stdout);
        return failure_print(inspection->options, &inspection->failure);
    }
    if (inspection->interrupted) {
        return EXIT_SIGNAL + feed_signal();
    }
    return inspection->bad > 0 ? EXIT_FAILED : EXIT_GOOD;
}

int command_inspect(const struct options *options) {
    struct document json = { .file = stdout };
    struct failure first = { .status = BRIM_OK };
    int code = EXIT_GOOD;
    if (options->json) {
        put_object(&json, NULL);
        put_array(&json, "files");
    }
    for (size_t i = 0; i < options->operand_count && code < EXIT_SIGNAL; i++) {
        struct inspection *inspection = take(1, sizeof(*inspection));
        inspection->options = options;
        inspection->subject = options->operands[i];
        const int own = inspect(inspection, options->json ? &json : NULL);
        if (first.status == BRIM_OK) {
            first = inspection->failure;
        }
        code = code == EXIT_GOOD || own >= EXIT_SIGNAL ? own : code;
        free(inspection);
    }
    if (options->json) {
        end_array(&json);
        if (first.status != BRIM_OK) {
            failure_json(&json, &first);
        }
        end_object(&json);
    }
    return code;
}

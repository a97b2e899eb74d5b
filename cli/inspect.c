/*
 * inspect.c: `brim inspect`: what a file holds, and whether all of it can be read.
 *
 * A path is turned into the pipeline that reads it (brim_guess), and the plan of
 * that pipeline says the rest. Verifying takes every sample once and leaves bad
 * ones out, so that all of them are counted and the first are told.
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
#define VERIFY_FORMAT "%s | batch %d on_error=skip max_errors=4611686018427387904"

struct inspection {
    const struct options *options;
    const char *subject; /* as given: a path or a pipeline */
    bool is_file;
    uint64_t file_bytes;
    char text[TEXT_BYTES]; /* the pipeline */
    struct session session;
    brim_plan *plan;
    double largest; /* bytes of a sample at most, without what aligns it */
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

static brim_status find_plan(struct inspection *inspection) {
    struct session *session = &inspection->session;
    brim_status status =
        session_open(session, inspection->options, inspection->text, &inspection->failure);
    if (status != BRIM_OK) {
        return status;
    }
    status = session_plan(session, &inspection->plan);
    if (status != BRIM_OK) {
        inspection->failure = failure_now(session, status);
        return status;
    }
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

/* The pipeline with batches that leave bad samples out, unless it has its own. */
static brim_status add_batches(struct inspection *inspection) {
    const brim_plan_info *info = brim_plan_get(inspection->plan);
    const brim_plan_stage *last = brim_plan_stage_at(inspection->plan, info->stage_count - 1);
    const brim_stage_info *stage = last != NULL ? brim_stage_find(last->name) : NULL;
    if (stage != NULL && stage->room == BRIM_ROOM_BATCHING) {
        return BRIM_OK;
    }
    const double fit = BATCH_BYTES / (inspection->largest > 1 ? inspection->largest : 1);
    const int rows = fit < 1 ? 1 : fit > BATCH_ROWS ? BATCH_ROWS : (int)fit;
    char text[TEXT_BYTES + sizeof(VERIFY_FORMAT) + 16];
    snprintf(text, sizeof(text), VERIFY_FORMAT, inspection->text, rows);
    brim_pipeline *pipeline;
    const brim_status status = brim_pipeline_parse(text, &pipeline);
    if (status == BRIM_OK) {
        brim_pipeline_free(inspection->session.pipeline);
        inspection->session.pipeline = pipeline;
    } else {
        inspection->failure = failure_now(&inspection->session, status);
    }
    return status;
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
    struct feed feed = { 0 };
    if (add_batches(inspection) != BRIM_OK) {
        return;
    }
    brim_plan_free(inspection->plan); /* the loader has one of its own to pay for */
    inspection->plan = NULL;
    brim_status status = feed_open(&feed, session);
    struct progress progress;
    progress_begin(&progress, !options->quiet && !options->json);
    while (status == BRIM_OK) {
        const brim_batch *batch;
        status = feed_next(&feed, &batch);
        if (status == BRIM_OK) {
            inspection->good += brim_batch_get(batch)->valid_rows;
            keep_errors(inspection, feed.loader, &inspection->bad);
            progress_update(&progress, session->runtime, feed.loader,
                            samples == BRIM_UNKNOWN || samples == 0
                                ? 0
                                : (double)inspection->good / (double)samples);
        }
    }
    if (status == BRIM_END) {
        keep_errors(inspection, feed.loader, &inspection->bad);
    } else if (status == BRIM_INTERRUPTED) {
        inspection->interrupted = true;
    } else {
        inspection->failure = failure_now(session, status);
    }
    progress_end(&progress);
    feed_close(&feed);
}

/* ------------------------------------------------------------------ telling */

static void describe_json(struct document *json, const struct inspection *inspection) {
    const brim_plan_info *info = brim_plan_get(inspection->plan);
    put_text(json, "pipeline", brim_pipeline_text(inspection->session.pipeline));
    if (inspection->is_file) {
        put_count(json, "bytes", inspection->file_bytes);
    }
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
    const brim_plan_info *info = brim_plan_get(inspection->plan);
    char text[NUMBER_TEXT], shape[SHAPE_TEXT];
    fputs("  pipeline  ", stdout);
    put_clean(stdout, brim_pipeline_text(inspection->session.pipeline));
    putchar('\n');
    if (inspection->is_file) {
        printf("  size      %s\n", bytes_text((double)inspection->file_bytes, text));
    }
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
    brim_plan_free(inspection->plan);
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

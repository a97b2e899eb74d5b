/*
 * inspect.c: `brim inspect`: what a file holds, and whether all of it can be read.
 *
 * A path is turned into the pipeline that reads it (brim_guess), and the plan of that pipeline says
 * the rest. Verifying takes every sample once, in batches of its own that leave bad ones out,
 * whatever batches the pipeline asks for: so all are read, bad ones are counted, and the first of
 * them reported. The images of a folder are decoded, since their bytes alone can always be read. A
 * stream can be opened only once: if it is to be verified, the loader's plan is the one that is
 * shown.
 */
#include "bad.h"
#include "cli.h"
#include "feed.h"
#include "progress.h"
#include "session.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define ERRORS_KEPT   1000 /* shown with --json */
#define ERRORS_SHOWN  20
#define CLASSES_SHOWN 20
#define NOTE_BYTES    1024
#define TEXT_BYTES    8192
#define BATCH_BYTES   (256.0 * 1024) /* of a batch that is verified, and ... */
#define BATCH_ROWS    256            /* ... the most rows of one */
#define PIECES        8              /* batches of one step */
#define STREAM_ROWS   4 /* of a stream, whose samples are not known then: up to 64 KiB each */
#define IMAGE_SLOTS   8 /* batches of one image ahead, as many as a loader keeps errors of */
#define VERIFY_FORMAT "%.*s%s | batch %d micro=%d on_error=skip max_errors=4611686018427387904"
#define DECODED       " | decode | resize 8 8" /* nearly no memory for what comes out */

struct inspection {
    const struct options *options;
    const char *subject; /* as given: a path or a pipeline */
    bool is_file;        /* or a directory */
    bool is_directory;
    uint64_t file_bytes;
    char text[TEXT_BYTES]; /* the pipeline */
    struct session session;
    brim_pipeline *pipeline; /* NULL, or the one to show, where the session has another */
    brim_plan *own;          /* NULL: the loader has the plan */
    const brim_plan *plan;   /* NULL: a choice must be made first, see `note` */
    struct feed feed;
    char note[NOTE_BYTES]; /* what else the file holds; "": nothing */
    double largest;        /* bytes of a sample at most, without what aligns it */
    /* --verify */
    uint64_t good, bad;
    struct bad errors;
    struct failure failure; /* status BRIM_OK: none */
    bool interrupted;
};

/* ------------------------------------------------------------------ looking */

static brim_status find_text(struct inspection *inspection) {
    struct stat file;
    brim_status status;
    inspection->is_file = stat(inspection->subject, &file) == 0;
    if (!inspection->is_file && is_pipeline(inspection->subject)) {
        const int length =
            snprintf(inspection->text, sizeof inspection->text, "%s", inspection->subject);
        if (length > 0 && (size_t)length < sizeof inspection->text) {
            return BRIM_OK;
        }
        inspection->failure = (struct failure){ .status = BRIM_STATUS_INVALID };
        snprintf(inspection->failure.text, sizeof inspection->failure.text,
                 "the pipeline is longer than %d bytes, the most for brim inspect", TEXT_BYTES);
        return BRIM_STATUS_INVALID;
    }
    inspection->is_directory = inspection->is_file && S_ISDIR(file.st_mode);
    inspection->file_bytes = inspection->is_file ? (uint64_t)file.st_size : 0;
    status = brim_guess(inspection->subject, inspection->text, sizeof inspection->text);
    if (status != BRIM_OK) {
        inspection->failure = failure_now(&inspection->session, status);
    }
    return status;
}

/* Keeps the words of a source that holds several arrays and wants one named, if
 * that was the last failure: an argument is wrong that was not given. */
static bool keep_choice(struct inspection *inspection, const brim_pipeline *pipeline,
                        brim_status status) {
    brim_failure failure = BRIM_FAILURE_INIT;
    brim_pipeline_value value;
    if (status != BRIM_STATUS_INVALID || brim_failure_read(&failure) != BRIM_OK ||
        failure.argument[0] == '\0' ||
        argument_of(pipeline, failure.stage_index, failure.argument, 0, &value)) {
        return false;
    }
    snprintf(inspection->note, sizeof inspection->note, "%s", failure.text);
    return true;
}

static bool begins_with(const brim_pipeline *pipeline, const char *name) {
    brim_pipeline_stage stage;
    return stage_at(pipeline, 0, &stage) && strcmp(stage.info->name, name) == 0;
}

/* A guess takes the first array of an npz file: asks for none, to hear of all. */
static void find_others(struct inspection *inspection) {
    brim_argument path = BRIM_ARGUMENT_INIT;
    brim_pipeline *pipeline = NULL;
    brim_plan *plan = NULL;
    path.text = inspection->subject;
    if (!inspection->is_file || !begins_with(inspection->session.pipeline, "npz")) {
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
    (void)keep_choice(inspection, pipeline, status);
    brim_plan_free(plan);
    brim_pipeline_free(pipeline);
}

/* Files of a folder as they are, and images by their names. */
static bool is_image_folder(const brim_pipeline *pipeline, const struct outline *outline) {
    brim_pipeline_value value;
    return !outline->changes && begins_with(pipeline, "folder") &&
           !(argument_of(pipeline, 0, "extensions", 0, &value) && value.end > 0);
}

/* Gives the session the pipeline with batches that leave bad samples out. Images come one by one,
 * so that the error of each is kept. The batches are pieces of a larger one: pieces come also if
 * all their samples are bad, and batches would be passed over with more errors than a loader
 * keeps. */
static brim_status add_batches(struct inspection *inspection, int rows) {
    struct session *session = &inspection->session;
    const struct outline outline = outline_of(session->pipeline);
    const char *given = brim_pipeline_text(session->pipeline);
    const bool decode = is_image_folder(session->pipeline, &outline);
    const size_t bytes = outline.sample_bytes + sizeof(DECODED) + sizeof(VERIFY_FORMAT) + 32;
    if (decode || outline.decodes) {
        session->open.slots = IMAGE_SLOTS;
        rows = 1;
    }
    char *text = take(bytes, 1);
    snprintf(text, bytes, VERIFY_FORMAT, (int)outline.sample_bytes, given, decode ? DECODED : "",
             outline.stream ? rows : PIECES * rows, outline.stream ? 0 : rows);
    brim_pipeline *pipeline;
    const brim_status status = brim_pipeline_parse(text, &pipeline);
    free(text);
    if (status == BRIM_OK) {
        inspection->pipeline = session->pipeline;
        session->pipeline = pipeline;
    }
    return status;
}

/* The plan of what is described: of the loader already if a stream is verified. */
static brim_status open_plan(struct inspection *inspection) {
    struct session *session = &inspection->session;
    const struct outline outline = outline_of(session->pipeline);
    brim_status status;
    if (!inspection->options->verify || !outline.stream) {
        status = session_plan(session, &inspection->own);
        inspection->plan = inspection->own;
        return status;
    }
    status = add_batches(inspection, STREAM_ROWS);
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
            keep_choice(inspection, session->pipeline, status)) {
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
    const double fit = BATCH_BYTES / (inspection->largest > 1 ? inspection->largest : 1);
    const int rows = fit < 1 ? 1 : fit > BATCH_ROWS ? BATCH_ROWS : (int)fit;
    const brim_status status = add_batches(inspection, rows);
    if (status != BRIM_OK) {
        return status;
    }
    brim_plan_free(inspection->own); /* the loader has one of its own to pay for */
    inspection->own = NULL;
    inspection->plan = NULL;
    return feed_open(&inspection->feed, &inspection->session);
}

static void count_bad(struct inspection *inspection, brim_loader *loader) {
    brim_stats stats = BRIM_STATS_INIT;
    (void)brim_loader_read_stats(loader, &stats);
    inspection->bad = stats.skipped;
    bad_look(&inspection->errors, loader);
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
            count_bad(inspection, feed->loader);
            progress_update(&progress, session->runtime, feed->loader,
                            samples == BRIM_UNKNOWN || samples == 0
                                ? 0
                                : (double)(inspection->good + inspection->bad) / (double)samples);
        }
    }
    if (status == BRIM_STATUS_END) {
        count_bad(inspection, feed->loader);
    } else if (status == BRIM_STATUS_INTERRUPTED) {
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
    if (inspection->is_file && !inspection->is_directory) {
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
        const size_t classes = brim_plan_class_count(inspection->plan, field->name);
        if (classes > 0) {
            put_array(json, "classes");
            for (size_t c = 0; c < classes; c++) {
                put_text(json, NULL, brim_plan_class_name(inspection->plan, field->name, c));
            }
            end_array(json);
        }
        end_object(json);
    }
    end_array(json);
}

/* "  classes   1,000 of label: cat, dog and 998 more" */
static void describe_classes(const brim_plan *plan, const char *field) {
    char text[NUMBER_TEXT];
    const size_t count = brim_plan_class_count(plan, field);
    if (count == 0) {
        return;
    }
    printf("  classes   %s of ", count_text(count, text));
    put_clean(stdout, field);
    for (size_t c = 0; c < count && c < CLASSES_SHOWN; c++) {
        fputs(c == 0 ? ": " : ", ", stdout);
        put_clean(stdout, brim_plan_class_name(plan, field, c));
    }
    if (count > CLASSES_SHOWN) {
        printf(" and %s more", count_text(count - CLASSES_SHOWN, text));
    }
    putchar('\n');
}

static void describe(const struct inspection *inspection) {
    char text[NUMBER_TEXT], shape[SHAPE_TEXT];
    fputs("  pipeline  ", stdout);
    put_clean(stdout, shown_text(inspection));
    putchar('\n');
    if (inspection->is_file && !inspection->is_directory) {
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
    for (uint32_t i = 0; i < info->field_count; i++) {
        describe_classes(inspection->plan, brim_plan_field_at(inspection->plan, i)->name);
    }
}

/* The others are of samples made ahead that were not taken any more. */
static size_t errors_kept(const struct inspection *inspection) {
    const size_t kept = inspection->errors.count;
    return inspection->bad < kept ? (size_t)inspection->bad : kept;
}

static void report_json(struct document *json, const struct inspection *inspection) {
    if (inspection->failure.status != BRIM_OK) {
        failure_json(json, &inspection->failure);
    } else {
        put_object(json, "verified");
        put_count(json, "samples", inspection->good);
        put_count(json, "bad", inspection->bad);
        put_array(json, "errors");
        for (size_t i = 0; i < errors_kept(inspection); i++) {
            put_text(json, NULL, inspection->errors.texts[i]);
        }
        end_array(json);
        end_object(json);
    }
}

static void report(const struct inspection *inspection) {
    char good[NUMBER_TEXT], bad[NUMBER_TEXT];
    printf("  verified  %s samples good, %s bad%s\n", count_text(inspection->good, good),
           count_text(inspection->bad, bad), inspection->interrupted ? ", interrupted" : "");
    const size_t kept = errors_kept(inspection), shown = kept < ERRORS_SHOWN ? kept : ERRORS_SHOWN;
    for (size_t i = 0; i < shown; i++) {
        fputs("            ", stdout);
        put_clean(stdout, inspection->errors.texts[i]);
        putchar('\n');
    }
    if (inspection->bad > shown) {
        printf("            and %s more%s\n", count_text(inspection->bad - shown, bad),
               kept > shown ? ", more of them with --json" : "");
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
    bad_free(&inspection->errors);
    if (failed) {
        fflush(stdout);
        return failure_print(inspection->options, &inspection->failure);
    }
    if (inspection->interrupted) {
        return EXIT_SIGNAL + feed_signal();
    }
    return inspection->bad > 0 ? EXIT_FAILED : EXIT_GOOD;
}

static int inspect_operand(const struct options *options, const char *operand,
                           struct document *json, struct failure *failure) {
    struct inspection *inspection = take(1, sizeof *inspection);
    inspection->options = options;
    inspection->subject = operand;
    inspection->errors.most = ERRORS_KEPT;
    const int code = inspect(inspection, json);
    *failure = inspection->failure;
    free(inspection);
    return code;
}

int command_inspect(const struct options *options) {
    return each_operand(options, inspect_operand);
}

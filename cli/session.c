/*
 * session.c: opens what the commands work with and explains what went wrong.
 *
 * The smallest budget comes from the plan that does not fit, or from the refusal
 * (brim_failure_read). Where the limit was too small even for a runtime or a plan, one more plan is
 * made with a little more, so that a refusal never takes the memory that it refused; where that is
 * too little as well, all that is known is that it needs more. A stream that was opened once is
 * never planned again, since its beginning is gone.
 */
#include "session.h"

#include "cli.h"
#include "feed.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MORE_BYTES  (8ull << 20) /* that planning once more may take beyond the limit */
#define GUESS_BYTES 512

/* Where indexes go: as said, or as the user's environment says (only an absolute
 * path counts), or NULL for the library's choice. */
static const char *index_directory(const struct options *options, char text[PATH_MAX]) {
    const char *home = getenv("XDG_CACHE_HOME");
    if (options->index_dir != NULL) {
        return options->index_dir;
    }
    if (home == NULL || home[0] != '/' || snprintf(text, PATH_MAX, "%s/brim", home) >= PATH_MAX) {
        return NULL;
    }
    return text;
}

static brim_status runtime_new(const struct options *options, brim_runtime **runtime) {
    char text[PATH_MAX];
    brim_runtime_options given = BRIM_RUNTIME_OPTIONS_INIT;
    given.host_bytes = options->memory;
    given.pinned_bytes = options->pinned;
    given.device_bytes = options->device_memory;
    given.threads = options->threads;
    given.index_dir = index_directory(options, text);
    given.trust_foreign = options->trust_foreign;
    given.shared_name = options->shared;
    given.shared_bytes = options->shared_memory;
    return brim_runtime_new(&given, runtime);
}

/* A runtime with a little more than the session's, for planning alone. Taking part in a shared
 * budget costs memory too, so that the plan must count it: this runtime has a shared budget of
 * its own, and takes nothing of the session's. */
static brim_status larger_new(const struct session *session, brim_runtime **runtime) {
    const struct options *options = session->options;
    char text[PATH_MAX], name[32];
    brim_runtime_options given = BRIM_RUNTIME_OPTIONS_INIT;
    brim_usage usage = BRIM_USAGE_INIT;
    uint64_t limit = options->memory;
    if (session->runtime != NULL && brim_runtime_read_usage(session->runtime, &usage) == BRIM_OK) {
        limit = usage.limit;
    }
    given.host_bytes = limit < UINT64_MAX - MORE_BYTES ? limit + MORE_BYTES : UINT64_MAX;
    if (options->shared != NULL) {
        snprintf(name, sizeof name, "minimum-%d", (int)getpid());
        given.shared_name = name;
        given.shared_bytes = given.host_bytes;
    }
    given.threads = options->threads; /* a loader has a record for each: none runs for a plan */
    given.index_dir = index_directory(options, text);
    given.trust_foreign = options->trust_foreign;
    return brim_runtime_new(&given, runtime);
}

static int on_question(void *user) {
    (void)user;
    return feed_signal() != 0 ? BRIM_ANSWER_STOP : BRIM_ANSWER_DONE;
}

brim_status session_open(struct session *session, const struct options *options, const char *text,
                         struct failure *failure) {
    *session = (struct session){
        .options = options,
        .open = BRIM_OPEN_OPTIONS_INIT,
    };
    session->open.label = options->command->name;
    session->open.rank = options->rank;
    session->open.world = options->world;
    session->open.hold = (uint32_t)options->hold;
    session->open.slots = (uint32_t)options->slots;
    session->open.growth = options->growth;
    session->open.device_kind = options->device;
    session->open.device_index = options->device_index;
    session->open.progress = feed_progress;
    session->open.progress_user = &session->opening;
    session->open.interrupted = on_question;

    brim_status status = brim_pipeline_parse(text, &session->pipeline);
    if (status == BRIM_OK) {
        status = runtime_new(options, &session->runtime);
    }
    if (status != BRIM_OK) {
        *failure = failure_now(session, status);
    }
    return status;
}

/* A path where a pipeline should stand is a likely slip: says what to write. */
static void explain_path(const char *path, struct failure *failure) {
    char guess[GUESS_BYTES];
    struct stat facts;
    if (stat(path, &facts) != 0 || !(S_ISREG(facts.st_mode) || S_ISDIR(facts.st_mode))) {
        return;
    }
    const char *kind = S_ISDIR(facts.st_mode) ? "directory" : "file";
    if (brim_guess(path, guess, sizeof guess) == BRIM_OK) {
        snprintf(failure->text, sizeof failure->text,
                 "%.256s is a %s, not a pipeline; the pipeline that reads it: '%s'; brim inspect "
                 "shows what it contains",
                 path, kind, guess);
    } else {
        snprintf(failure->text, sizeof failure->text,
                 "%.256s is a %s, not a pipeline; a pipeline names the stage that reads it, such "
                 "as 'csv FILE'; brim stages lists them",
                 path, kind);
    }
}

int session_begin(struct session *session, const struct options *options) {
    struct failure failure;
    if (session_open(session, options, options->operand, &failure) != BRIM_OK) {
        if (session->pipeline == NULL) {
            explain_path(options->operand, &failure);
        }
        return failure_tell(options, &failure);
    }
    return EXIT_GOOD;
}

/* Indexes that were found and not used, once for a session. */
static void tell_indexes(struct session *session, const brim_plan *plan) {
    const brim_plan_index *index;
    if (session->noted || session->options->quiet) {
        return;
    }
    for (size_t i = 0; (index = brim_plan_index_at(plan, i)) != NULL; i++) {
        if (index->note[0] != '\0') {
            fflush(stdout);
            fprintf(stderr, "brim %s: note: ", session->options->command->name);
            put_clean(stderr, index->note);
            fputc('\n', stderr);
            session->noted = true;
        }
    }
}

brim_status session_plan(struct session *session, brim_plan **plan) {
    feed_watch();
    session->opened = true;
    progress_begin(&session->opening, !session->options->quiet && !session->options->json);
    const brim_status status =
        brim_plan_new(session->runtime, session->pipeline, &session->open, plan);
    progress_end(&session->opening);
    if (status == BRIM_OK) {
        tell_indexes(session, *plan);
    }
    return status;
}

brim_status session_load(struct session *session, brim_loader **loader) {
    session->opened = true;
    progress_begin(&session->opening, !session->options->quiet && !session->options->json);
    const brim_status status =
        brim_loader_open(session->runtime, session->pipeline, &session->open, loader);
    progress_end(&session->opening);
    if (status == BRIM_OK) {
        tell_indexes(session, brim_loader_plan(*loader));
    }
    return status;
}

brim_status session_verify(struct session *session, const brim_plan *plan) {
    progress_begin(&session->opening, !session->options->quiet && !session->options->json);
    const brim_status status = brim_plan_verify(plan, feed_progress, &session->opening);
    progress_end(&session->opening);
    return status;
}

void session_end(struct session *session) {
    brim_pipeline_free(session->pipeline);
    brim_runtime_free(session->runtime);
    *session = (struct session){ 0 };
}

/* ------------------------------------------------------------- the outline */

bool is_pipeline(const char *subject) {
    brim_failure failure = BRIM_FAILURE_INIT;
    brim_pipeline *pipeline;
    if (brim_pipeline_parse(subject, &pipeline) == BRIM_OK) {
        brim_pipeline_free(pipeline);
        return true;
    }
    if (brim_failure_read(&failure) != BRIM_OK || strlen(subject) <= strlen(failure.stage)) {
        return false;
    }
    return failure.at > 0 || (failure.end > 0 && brim_stage_find(failure.stage) != NULL);
}

static bool is_stream(const char *word) {
    struct stat facts;
    return strcmp(word, "-") == 0 ||
           (stat(word, &facts) == 0 &&
            (S_ISFIFO(facts.st_mode) || S_ISSOCK(facts.st_mode) || S_ISCHR(facts.st_mode)));
}

bool stage_at(const brim_pipeline *pipeline, size_t index, brim_pipeline_stage *stage) {
    *stage = (brim_pipeline_stage)BRIM_PIPELINE_STAGE_INIT;
    return index < brim_pipeline_stage_count(pipeline) &&
           brim_pipeline_read_stage(pipeline, index, stage) == BRIM_OK;
}

bool argument_of(const brim_pipeline *pipeline, size_t index, const char *argument, size_t number,
                 brim_pipeline_value *value) {
    brim_pipeline_stage stage;
    if (!stage_at(pipeline, index, &stage)) {
        return false;
    }
    for (size_t i = 0; i < stage.value_count; i++) {
        *value = (brim_pipeline_value)BRIM_PIPELINE_VALUE_INIT;
        if (brim_pipeline_read_value(pipeline, index, i, value) != BRIM_OK) {
            return false;
        }
        if (strcmp(value->info->name, argument) == 0 && number-- == 0) {
            return true;
        }
    }
    return false;
}

/* Whether a source reads one of its files as a stream. */
static bool reads_stream(const brim_pipeline *pipeline, size_t index, size_t value_count) {
    for (size_t i = 0; i < value_count; i++) {
        brim_pipeline_value value = BRIM_PIPELINE_VALUE_INIT;
        if (brim_pipeline_read_value(pipeline, index, i, &value) == BRIM_OK &&
            value.info->type == BRIM_TYPE_PATH && is_stream(value.text)) {
            return true;
        }
    }
    return false;
}

struct outline outline_of(const brim_pipeline *pipeline) {
    const char *const text = brim_pipeline_text(pipeline);
    struct outline outline = { .sample_bytes = text == NULL ? 0 : strlen(text) };
    brim_pipeline_stage stage;
    size_t before = 0; /* where the last stage outside of parentheses ends */
    bool cut = false;
    for (size_t i = 0; stage_at(pipeline, i, &stage); i++) {
        const brim_room room = stage.info->room;
        outline.changes |= room == BRIM_ROOM_TRANSFORM;
        outline.decodes |= strcmp(stage.info->name, "decode") == 0;
        outline.stream |= room == BRIM_ROOM_SOURCE && reads_stream(pipeline, i, stage.value_count);
        if (stage.depth > 0) {
            continue;
        }
        outline.batches = room == BRIM_ROOM_BATCHING;
        if (outline.batches && !cut) {
            outline.sample_bytes = before;
            cut = true;
        }
        before = stage.end;
    }
    return outline;
}

/* ---------------------------------------------------------------- failures */

static void take_minimum(struct failure *failure, const brim_plan_info *info) {
    failure->minimum_bytes = info->minimum_bytes;
    failure->minimum_device_bytes = info->minimum_device_bytes;
    failure->minimum_pinned_bytes = info->minimum_pinned_bytes;
    failure->at_least = false;
}

static void take_refusal(struct failure *failure, const brim_failure *refusal) {
    failure->minimum_bytes = refusal->minimum_bytes;
    failure->minimum_device_bytes = refusal->minimum_device_bytes;
    failure->minimum_pinned_bytes = refusal->minimum_pinned_bytes;
    failure->at_least = refusal->exact == 0;
}

/* Plans once more, with a little more memory: the smallest budget, or more than is known of it
 * so far. */
static void plan_larger(const struct session *session, struct failure *failure) {
    brim_failure refusal = BRIM_FAILURE_INIT;
    brim_runtime *runtime;
    brim_plan *plan;
    if (larger_new(session, &runtime) != BRIM_OK) {
        return;
    }
    const brim_status status = brim_plan_new(runtime, session->pipeline, &session->open, &plan);
    if (status == BRIM_OK) {
        take_minimum(failure, brim_plan_get(plan));
        brim_plan_free(plan);
    } else if (status == BRIM_STATUS_BUDGET && brim_failure_read(&refusal) == BRIM_OK &&
               refusal.minimum_bytes > failure->minimum_bytes) {
        take_refusal(failure, &refusal);
    }
    brim_runtime_free(runtime);
}

/* Whether what processes share is too small, and what of it would do. */
static void find_shared(const struct session *session, struct failure *failure) {
    uint64_t limit = session->options->shared_memory;
    brim_usage usage = BRIM_USAGE_INIT;
    if (session->options->shared == NULL || failure->minimum_bytes == 0) {
        return;
    }
    if (session->runtime == NULL) { /* it could not even join: the refusal says what is there */
        if (failure->others_bytes > 0) {
            limit = 0; /* it is not known, but less */
        }
    } else if (brim_runtime_read_usage(session->runtime, &usage) == BRIM_OK) {
        limit = usage.shared_limit;
        failure->others_bytes =
            usage.shared_used > usage.charged ? usage.shared_used - usage.charged : 0;
    }
    const uint64_t needed = failure->others_bytes + failure->minimum_bytes;
    failure->minimum_shared_bytes = needed > limit ? needed : 0;
}

void failure_minimum(struct failure *failure, const struct session *session,
                     const brim_plan_info *info) {
    take_minimum(failure, info);
    find_shared(session, failure);
}

struct failure failure_now(const struct session *session, brim_status status) {
    struct failure failure = { .status = status };
    brim_failure refusal = BRIM_FAILURE_INIT;
    (void)brim_failure_read(&refusal);
    snprintf(failure.text, sizeof failure.text, "%s",
             refusal.text[0] != '\0' ? refusal.text : brim_status_text(status));
    if (status != BRIM_STATUS_BUDGET || refusal.blocked) {
        return failure; /* no budget would do */
    }
    take_refusal(&failure, &refusal);
    failure.others_bytes = refusal.others_bytes;
    if (failure.at_least && session->pipeline != NULL &&
        !(session->opened && outline_of(session->pipeline).stream)) {
        plan_larger(session, &failure);
    }
    find_shared(session, &failure);
    return failure;
}

static int exit_code(brim_status status) {
    switch (status) {
    case BRIM_OK:
        return EXIT_GOOD;
    case BRIM_STATUS_BUDGET:
        return EXIT_BUDGET;
    case BRIM_STATUS_INVALID:
    case BRIM_STATUS_SYNTAX:
    case BRIM_STATUS_UNBOUND:
        return EXIT_USAGE;
    case BRIM_STATUS_INTERRUPTED:
        return EXIT_SIGNAL + feed_signal();
    default:
        return EXIT_FAILED;
    }
}

void failure_json(struct document *json, const struct failure *failure) {
    put_text(json, "error", failure->text);
    put_text(json, "status", brim_status_name(failure->status));
}

static void print_limit(const char *option, uint64_t bytes) {
    char text[NUMBER_TEXT];
    if (bytes > 0) {
        fprintf(stderr, "%s %" PRIu64 " (%s)", option, bytes, bytes_text((double)bytes, text));
    }
}

int failure_print(const struct options *options, const struct failure *failure) {
    fprintf(stderr, "brim %s: ", options->command->name);
    put_clean(stderr, failure->text);
    fputc('\n', stderr);
    if (failure->minimum_bytes > 0) {
        fputs(failure->at_least ? "the smallest budget that fits is not known, but it is at least:"
                                : "the smallest budget that fits:",
              stderr);
        print_limit(" --shared-memory", failure->minimum_shared_bytes);
        if (failure->minimum_shared_bytes == 0 || options->memory > 0) { /* else it is all of it */
            print_limit(" --memory", failure->minimum_bytes);
        }
        print_limit(" --pinned", failure->minimum_pinned_bytes);
        print_limit(" --device-memory", failure->minimum_device_bytes);
        fputc('\n', stderr);
        if (failure->minimum_shared_bytes > 0 && failure->others_bytes > 0) {
            char text[NUMBER_TEXT];
            fprintf(stderr,
                    "other processes have %s of the shared budget; its limit can change only after "
                    "all of them have ended\n",
                    bytes_text((double)failure->others_bytes, text));
        }
    }
    return exit_code(failure->status);
}

int failure_tell(const struct options *options, const struct failure *failure) {
    if (options->json) {
        struct document json = { .file = stdout };
        put_object(&json, NULL);
        failure_json(&json, failure);
        if (failure->status == BRIM_STATUS_BUDGET) {
            put_bool(&json, "fits", false);
            if (failure->minimum_bytes > 0) {
                put_count(&json, failure->at_least ? "at_least_bytes" : "minimum_bytes",
                          failure->minimum_bytes);
            }
            if (failure->minimum_shared_bytes > 0) {
                put_count(&json, "minimum_shared_bytes", failure->minimum_shared_bytes);
            }
            if (failure->minimum_device_bytes > 0) {
                put_count(&json, "minimum_pinned_bytes", failure->minimum_pinned_bytes);
                put_count(&json, "minimum_device_bytes", failure->minimum_device_bytes);
            }
        }
        end_object(&json);
    }
    return failure_print(options, failure);
}

int each_operand(const struct options *options, operand_run *run) {
    struct document json = { .file = stdout };
    struct failure first = { .status = BRIM_OK };
    int code = EXIT_GOOD;
    if (options->json) {
        put_object(&json, NULL);
        put_array(&json, "files");
    }
    for (size_t i = 0; i < options->operand_count && code < EXIT_SIGNAL; i++) {
        struct failure failure;
        const int own = run(options, options->operands[i], options->json ? &json : NULL, &failure);
        if (first.status == BRIM_OK) {
            first = failure;
        }
        code = code == EXIT_GOOD || own >= EXIT_SIGNAL ? own : code;
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

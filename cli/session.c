/*
 * session.c: opens what the commands work with and explains what went wrong.
 *
 * The smallest budget is found only after a refusal: the plan of the same
 * runtime knows it; where the limit is too small even for a runtime, a second
 * one with an ample limit is made for planning alone, which takes none of it.
 */
#include "session.h"

#include "cli.h"
#include "feed.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define AMPLE_BYTES (1ull << 50)

/* Where indexes go: as said, or as the user's environment says (only an absolute
 * path counts), or NULL for the library's choice. */
static const char *cache_directory(const struct options *options, char text[PATH_MAX]) {
    const char *home = getenv("XDG_CACHE_HOME");
    if (options->cache_dir != NULL) {
        return options->cache_dir;
    }
    if (home == NULL || home[0] != '/' || snprintf(text, PATH_MAX, "%s/brim", home) >= PATH_MAX) {
        return NULL;
    }
    return text;
}

static brim_status runtime_new(const struct options *options, uint64_t bytes, int32_t threads,
                               brim_runtime **runtime) {
    char text[PATH_MAX];
    brim_runtime_options given = BRIM_RUNTIME_OPTIONS_INIT;
    given.host_bytes = bytes;
    given.threads = threads;
    given.cache_dir = cache_directory(options, text);
    return brim_runtime_new(&given, runtime);
}

static int on_progress(void *user, const char *what, uint64_t done, uint64_t total) {
    progress_opening(user, what, done, total);
    return feed_signal() != 0;
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
    session->open.progress = on_progress;
    session->open.progress_user = &session->opening;

    brim_status status = brim_pipeline_parse(text, &session->pipeline);
    if (status == BRIM_OK) {
        status = runtime_new(options, options->memory, options->threads, &session->runtime);
    }
    if (status != BRIM_OK) {
        *failure = failure_now(session, status);
    }
    return status;
}

int session_begin(struct session *session, const struct options *options) {
    struct failure failure;
    if (session_open(session, options, options->operand, &failure) != BRIM_OK) {
        return failure_tell(options, &failure);
    }
    return EXIT_GOOD;
}

brim_status session_plan(struct session *session, brim_plan **plan) {
    feed_watch();
    progress_begin(&session->opening, !session->options->quiet && !session->options->json);
    const brim_status status =
        brim_plan_new(session->runtime, session->pipeline, &session->open, plan);
    progress_end(&session->opening);
    return status;
}

brim_status session_load(struct session *session, brim_loader **loader) {
    progress_begin(&session->opening, !session->options->quiet && !session->options->json);
    const brim_status status =
        brim_loader_open(session->runtime, session->pipeline, &session->open, loader);
    progress_end(&session->opening);
    return status;
}

void session_end(struct session *session) {
    brim_pipeline_free(session->pipeline);
    brim_runtime_free(session->runtime);
    *session = (struct session){ 0 };
}

/* The smallest budget for the session's pipeline; 0 if planning fails too. */
static uint64_t minimum_of(const struct session *session, brim_runtime *runtime) {
    brim_plan *plan;
    if (runtime == NULL ||
        brim_plan_new(runtime, session->pipeline, &session->open, &plan) != BRIM_OK) {
        return 0;
    }
    const uint64_t minimum = brim_plan_get(plan)->minimum_bytes;
    brim_plan_free(plan);
    return minimum;
}

struct failure failure_now(const struct session *session, brim_status status) {
    struct failure failure = { .status = status };
    const char *detail = brim_detail();
    snprintf(failure.text, sizeof(failure.text), "%s",
             *detail != '\0' ? detail : brim_status_text(status));
    if (status == BRIM_BUDGET) {
        failure.minimum_bytes = minimum_of(session, session->runtime);
        brim_runtime *ample;
        if (failure.minimum_bytes == 0 &&
            runtime_new(session->options, AMPLE_BYTES, 0, &ample) == BRIM_OK) {
            failure.minimum_bytes = minimum_of(session, ample);
            brim_runtime_free(ample);
        }
    }
    return failure;
}

static int exit_code(brim_status status) {
    switch (status) {
    case BRIM_OK:
        return EXIT_GOOD;
    case BRIM_BUDGET:
        return EXIT_BUDGET;
    case BRIM_INVALID:
    case BRIM_SYNTAX:
    case BRIM_UNBOUND:
        return EXIT_USAGE;
    case BRIM_INTERRUPTED:
        return EXIT_SIGNAL + feed_signal();
    default:
        return EXIT_FAILED;
    }
}

void failure_json(struct document *json, const struct failure *failure) {
    put_text(json, "error", failure->text);
    put_text(json, "status", brim_status_name(failure->status));
}

int failure_print(const struct options *options, const struct failure *failure) {
    fprintf(stderr, "brim %s: ", options->command->name);
    put_clean(stderr, failure->text);
    fputc('\n', stderr);
    if (failure->minimum_bytes > 0) {
        char text[NUMBER_TEXT];
        fprintf(stderr, "the smallest budget that would do: --memory %" PRIu64 " (%s)\n",
                failure->minimum_bytes, bytes_text((double)failure->minimum_bytes, text));
    }
    return exit_code(failure->status);
}

int failure_tell(const struct options *options, const struct failure *failure) {
    if (options->json) {
        struct document json = { .file = stdout };
        put_object(&json, NULL);
        failure_json(&json, failure);
        if (failure->status == BRIM_BUDGET) {
            put_bool(&json, "fits", false);
            if (failure->minimum_bytes > 0) {
                put_count(&json, "minimum_bytes", failure->minimum_bytes);
            }
        }
        end_object(&json);
    }
    return failure_print(options, failure);
}

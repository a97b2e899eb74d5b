/*
 * session.c: opens what the commands work with and explains what went wrong.
 *
 * The smallest budget is found only after a refusal: the plan of the same
 * runtime knows it; where the limit is too small even for a runtime, a second
 * one with an ample limit is made for planning alone, which takes none of it.
 * A stream that was opened once is never planned again, since its beginning is
 * gone: there the refusal's own words are all there is.
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

#define AMPLE_BYTES   (1ull << 50)
#define MINIMUM_WORDS "alone it fits into a budget of "
#define JOIN_WORDS    "to begin with, beside "
#define LOCK_WORDS    "its lock is held by "
#define GUESS_BYTES   512

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

static brim_status runtime_new(const struct options *options, brim_runtime **runtime) {
    char text[PATH_MAX];
    brim_runtime_options given = BRIM_RUNTIME_OPTIONS_INIT;
    given.host_bytes = options->memory;
    given.pinned_bytes = options->pinned;
    given.device_bytes = options->device_memory;
    given.threads = options->threads;
    given.cache_dir = cache_directory(options, text);
    given.shared_name = options->shared;
    given.shared_bytes = options->shared_memory;
    return brim_runtime_new(&given, runtime);
}

/* Takes nothing of a limit, and nothing of what processes share: where that is in play it
 * shares with nobody, since sharing itself takes memory too. */
static brim_status ample_new(const struct options *options, brim_runtime **runtime) {
    char text[PATH_MAX], name[32];
    brim_runtime_options given = BRIM_RUNTIME_OPTIONS_INIT;
    given.host_bytes = AMPLE_BYTES;
    if (options->shared != NULL) {
        snprintf(name, sizeof(name), "minimum-%d", (int)getpid());
        given.shared_name = name;
        given.shared_bytes = AMPLE_BYTES;
    }
    given.threads = 0;
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
    session->open.growth = options->growth;
    session->open.device_kind = (int32_t)options->device;
    session->open.device_index = options->device_index;
    session->open.progress = on_progress;
    session->open.progress_user = &session->opening;

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
    if (brim_guess(path, guess, sizeof(guess)) == BRIM_OK) {
        snprintf(failure->text, sizeof(failure->text),
                 "%.256s is a %s, not a pipeline; the pipeline that reads it: '%s'; brim inspect "
                 "says what it holds",
                 path, kind, guess);
    } else {
        snprintf(failure->text, sizeof(failure->text),
                 "%.256s is a %s, not a pipeline, which names the stage that reads it, such as "
                 "'csv FILE'; brim stages lists them",
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

brim_status session_plan(struct session *session, brim_plan **plan) {
    feed_watch();
    session->opened = true;
    progress_begin(&session->opening, !session->options->quiet && !session->options->json);
    const brim_status status =
        brim_plan_new(session->runtime, session->pipeline, &session->open, plan);
    progress_end(&session->opening);
    return status;
}

brim_status session_load(struct session *session, brim_loader **loader) {
    session->opened = true;
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

/* ------------------------------------------------------------- the outline */

char word_next(const char **at, char word[PATH_MAX]) {
    const char *text = *at + strspn(*at, " ");
    size_t length = 0;
    char quote = '\0', before = ' ';
    word[0] = '\0';
    if (*text == '\0' || strchr("|()", *text) != NULL) {
        *at = text + (*text != '\0');
        return *text;
    }
    for (; *text != '\0' && (quote != '\0' || strchr(" |()", *text) == NULL); text++) {
        if (quote == '\0' && strchr("\"'", *text) != NULL && strchr(" =,", before) != NULL) {
            quote = *text;
            continue;
        }
        if (quote != '\0' && *text == quote) {
            quote = '\0';
            continue;
        }
        text += quote != '\0' && *text == '\\' && (text[1] == quote || text[1] == '\\');
        before = *text;
        if (length + 1 < PATH_MAX) {
            word[length++] = *text;
        }
    }
    word[length] = '\0';
    *at = text;
    return 'w';
}

static bool is_stream(const char *word) {
    struct stat facts;
    return strcmp(word, "-") == 0 ||
           (stat(word, &facts) == 0 &&
            (S_ISFIFO(facts.st_mode) || S_ISSOCK(facts.st_mode) || S_ISCHR(facts.st_mode)));
}

struct outline outline_of(const brim_pipeline *pipeline) {
    struct outline outline = { 0 };
    const char *const text = brim_pipeline_text(pipeline);
    const char *at = text, *bar = text; /* the one before the stage */
    char word[PATH_MAX];
    unsigned depth = 0;
    char kind, before = '|';
    bool cut = false;
    if (text == NULL) {
        return outline;
    }
    outline.sample_bytes = strlen(text);
    for (; (kind = word_next(&at, word)) != '\0'; before = kind) {
        depth += kind == '(';
        depth -= kind == ')';
        bar = kind == '|' && depth == 0 ? at - 1 : bar;
        if (kind != 'w') {
            continue;
        }
        if (before != '|' && before != '(') {
            outline.stream |= is_stream(word);
            continue;
        }
        const brim_stage_info *stage = brim_stage_find(word);
        outline.changes |= stage != NULL && stage->room == BRIM_ROOM_TRANSFORM;
        outline.decodes |= strcmp(word, "decode") == 0;
        if (depth == 0) {
            outline.batches = stage != NULL && stage->room == BRIM_ROOM_BATCHING;
            if (outline.batches && !cut) {
                outline.sample_bytes = (size_t)(bar - text);
                cut = true;
            }
        }
    }
    return outline;
}

/* ---------------------------------------------------------------- failures */

static void take_minimum(struct failure *failure, const brim_plan_info *info) {
    failure->minimum_bytes = info->minimum_bytes;
    failure->minimum_device_bytes = info->minimum_device_bytes;
    failure->minimum_pinned_bytes = info->minimum_pinned_bytes;
}

/* The smallest budget for the session's pipeline, unless planning fails too. */
static void find_minimum(const struct session *session, brim_runtime *runtime,
                         struct failure *failure) {
    brim_plan *plan;
    if (runtime != NULL &&
        brim_plan_new(runtime, session->pipeline, &session->open, &plan) == BRIM_OK) {
        take_minimum(failure, brim_plan_get(plan));
        brim_plan_free(plan);
    }
}

/* What a plan without limits says, of what is not known yet: one that does not fit on the
 * host says nothing of the device. */
static void find_ample(const struct session *session, struct failure *failure) {
    struct failure whole = { 0 };
    brim_runtime *ample;
    if ((failure->minimum_bytes > 0 &&
         (session->open.device_kind == BRIM_ON_HOST || failure->minimum_device_bytes > 0)) ||
        ample_new(session->options, &ample) != BRIM_OK) {
        return;
    }
    find_minimum(session, ample, &whole);
    brim_runtime_free(ample);
    if (failure->minimum_bytes == 0) {
        failure->minimum_bytes = whole.minimum_bytes;
    }
    failure->minimum_device_bytes = whole.minimum_device_bytes;
    failure->minimum_pinned_bytes = whole.minimum_pinned_bytes;
}

/* Whether what processes share is too small, and what of it would do. */
static void find_shared(const struct session *session, struct failure *failure) {
    uint64_t limit = session->options->shared_memory;
    brim_usage usage = BRIM_USAGE_INIT;
    if (session->options->shared == NULL || failure->minimum_bytes == 0) {
        return;
    }
    if (session->runtime == NULL) { /* it could not even join: the refusal says what is there */
        const char *words = strstr(failure->text, JOIN_WORDS);
        if (words != NULL) {
            failure->others_bytes = strtoull(words + strlen(JOIN_WORDS), NULL, 10);
            limit = 0; /* it is not known, but less */
        }
    } else if (brim_runtime_usage(session->runtime, &usage) == BRIM_OK) {
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
    if (!outline_of(session->pipeline).stream) {
        find_ample(session, failure);
    }
    find_shared(session, failure);
}

struct failure failure_now(const struct session *session, brim_status status) {
    struct failure failure = { .status = status };
    const char *detail = brim_detail();
    snprintf(failure.text, sizeof(failure.text), "%s",
             *detail != '\0' ? detail : brim_status_text(status));
    if (status != BRIM_BUDGET || strstr(failure.text, LOCK_WORDS) != NULL) {
        return failure; /* no budget would do */
    }
    if (session->opened && outline_of(session->pipeline).stream) {
        const char *words = strstr(failure.text, MINIMUM_WORDS);
        failure.minimum_bytes =
            words != NULL ? strtoull(words + strlen(MINIMUM_WORDS), NULL, 10) : 0;
        failure.spent = failure.minimum_bytes == 0;
    } else {
        find_minimum(session, session->runtime, &failure);
        find_ample(session, &failure);
    }
    find_shared(session, &failure);
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
        fputs("the smallest budget that would do:", stderr);
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
                    "other processes have %s of the shared budget, whose limit holds until all of "
                    "them have ended\n",
                    bytes_text((double)failure->others_bytes, text));
        }
    } else if (failure->spent) {
        fputs("the smallest budget that would do cannot be found: a stream is read only once\n",
              stderr);
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

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

#define AMPLE_BYTES   (1ull << 50)
#define MINIMUM_WORDS "alone it fits into a budget of "
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

/* A path where a pipeline should stand is a likely slip: says what to write. */
static void explain_path(const char *path, struct failure *failure) {
    char guess[GUESS_BYTES];
    struct stat facts;
    if (stat(path, &facts) != 0 || !S_ISREG(facts.st_mode)) {
        return;
    }
    if (brim_guess(path, guess, sizeof(guess)) == BRIM_OK) {
        snprintf(failure->text, sizeof(failure->text),
                 "%.256s is a file, not a pipeline; the pipeline that reads it: '%s'; brim inspect "
                 "says what it holds",
                 path, guess);
    } else {
        snprintf(failure->text, sizeof(failure->text),
                 "%.256s is a file, not a pipeline, which names the stage that reads it, such as "
                 "'csv FILE'; brim stages lists them",
                 path);
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

/* One word of a canonical text from *at on, which moves behind it: 'w' for a
 * name or a value, one of "|()" for itself, 0 at the end. Quotes are taken off; a
 * value longer than any path is cut. */
static char next_word(const char **at, char word[PATH_MAX]) {
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
    const char *at = brim_pipeline_text(pipeline);
    char word[PATH_MAX];
    unsigned depth = 0;
    char kind, before = '|';
    if (at == NULL) {
        return outline;
    }
    for (; (kind = next_word(&at, word)) != '\0'; before = kind) {
        depth += kind == '(';
        depth -= kind == ')';
        if (kind != 'w') {
            continue;
        }
        if (before != '|' && before != '(') {
            outline.stream |= is_stream(word);
        } else if (depth == 0) {
            const brim_stage_info *stage = brim_stage_find(word);
            outline.batches = stage != NULL && stage->room == BRIM_ROOM_BATCHING;
        }
    }
    return outline;
}

/* ---------------------------------------------------------------- failures */

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
    if (status == BRIM_BUDGET && session->opened && outline_of(session->pipeline).stream) {
        const char *words = strstr(detail, MINIMUM_WORDS);
        failure.minimum_bytes =
            words != NULL ? strtoull(words + strlen(MINIMUM_WORDS), NULL, 10) : 0;
        failure.spent = failure.minimum_bytes == 0;
    } else if (status == BRIM_BUDGET) {
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
        }
        end_object(&json);
    }
    return failure_print(options, failure);
}

/*
 * stream.c: `stream @name`, samples that a function of the program gives one after the other. Their
 * number is not known before the end.
 *
 * A pull calls the function for as many samples as fit a read window, each in its own record
 * (spec.h). If the calls take long, it returns the samples it has, so that a slow function does not
 * delay samples that are ready.
 *
 * Invariants. A bad sample after good ones is kept for the next pull, so that it is always returned
 * alone. After the end the function is not called again until it is reopened. It is never called by
 * two threads at once, nor for two stages that use the same name: the name's lock is held during
 * the call.
 */
#include "base/answer.h"
#include "source/arguments.h"
#include "source/spec.h"

#include <stdio.h>

#define MOMENT_NS 500000

enum { ARGUMENT_STREAM, ARGUMENT_VERSION };

struct stream {
    brim_pull_callback *pull;
    brim_reopen_callback *reopen; /* NULL: it can be read only once */
    void *user;
    brim__mutex *serial;
    /* written by pull and rewind, which the engine calls from one thread at a time */
    bool ended;
    brim_status kept; /* BRIM_OK: nothing is */
    struct brim__failure kept_failure;
    char name[BRIM_NAME_BYTES];
};

/* One sample; BRIM_STATUS_END at the end. */
static brim_status pull_one(const struct brim__source *source, uint8_t *record) {
    struct stream *stream = source->self;
    brim_value outputs[BRIM__MAX_FIELDS];
    char why[256] = "";
    brim__spec_outputs(source, record, outputs);
    brim__lock(stream->serial);
    brim__answer_begin();
    const int answer = stream->pull(stream->user, outputs, source->field_count, why, sizeof why);
    brim__unlock(stream->serial);
    why[sizeof why - 1] = '\0';
    if (answer == BRIM_ANSWER_DONE) {
        stream->ended = true;
        return BRIM_STATUS_END;
    }
    if (answer != BRIM_ANSWER_SAMPLE) {
        return brim__answer_fail(answer, why);
    }
    return brim__spec_spans(source, outputs, record);
}

static brim_status pull(const struct brim__source *source, uint64_t count, uint64_t deadline_ns,
                        uint8_t *buffer, const uint8_t **records, uint64_t *got) {
    struct stream *stream = source->self;
    assert(count > 0);
    if (stream->kept != BRIM_OK) {
        const brim_status kept = stream->kept;
        stream->kept = BRIM_OK;
        return brim__fail_kept(kept, &stream->kept_failure);
    }
    const uint64_t until = brim__min(deadline_ns, brim__now() + MOMENT_NS);
    uint64_t made = 0;
    do {
        const brim_status status =
            stream->ended ? BRIM_STATUS_END : pull_one(source, buffer + made * source->pitch);
        if (status == BRIM_OK) {
            made++;
            continue;
        }
        if (made == 0) {
            return status;
        }
        if (status != BRIM_STATUS_END) {
            stream->kept = status;
            brim__failure_keep(&stream->kept_failure);
        }
        break;
    } while (made < count && brim__now() < until);
    *records = buffer;
    *got = made;
    return BRIM_OK;
}

static brim_status rewind_stream(const struct brim__source *source, uint64_t epoch,
                                 uint64_t sample) {
    struct stream *stream = source->self;
    char why[256] = "";
    brim__lock(stream->serial);
    brim__answer_begin();
    const int answer = stream->reopen(stream->user, epoch, sample, why, sizeof why);
    brim__unlock(stream->serial);
    why[sizeof why - 1] = '\0';
    if (answer != BRIM_ANSWER_DONE) {
        const brim_status status = brim__answer_status(answer);
        if (brim__cause_said()) {
            return brim__at_callback(brim__fail(
                status, "stream @%s cannot go to sample %llu of epoch %llu: %s", stream->name,
                (unsigned long long)sample, (unsigned long long)epoch, brim__answer_reason(why)));
        }
        return brim__fail(status,
                          "stream @%s cannot go to sample %llu of epoch %llu: %s (it returned "
                          "%d%s)",
                          stream->name, (unsigned long long)sample, (unsigned long long)epoch,
                          brim__answer_reason(why), answer, brim__answer_note(answer));
    }
    stream->ended = false;
    stream->kept = BRIM_OK;
    return BRIM_OK;
}

static void describe(const struct brim__source *source, uint64_t sample, char *text, size_t bytes) {
    const struct stream *stream = source->self;
    snprintf(text, bytes, "stream @%s, sample %llu", stream->name, (unsigned long long)sample);
}

static void close_stream(struct brim__source *source) {
    source->ops = NULL;
}

static const struct brim__source_ops once_ops = {
    .pull = pull,
    .describe = describe,
    .close = close_stream,
};
static const struct brim__source_ops again_ops = {
    .pull = pull,
    .rewind = rewind_stream,
    .describe = describe,
    .close = close_stream,
};

static brim_status open_stream(const struct brim__use *use, struct brim__opening *opening,
                               struct brim__source *source) {
    const char *name = brim__item(use, ARGUMENT_STREAM)->text;
    const char *version = brim__item(use, ARGUMENT_VERSION)->text;
    memset(source, 0, sizeof *source);
    brim_binding binding;
    brim_status status = brim__binding_find(opening, use, name, BRIM_BINDING_STREAM, &binding);
    if (status != BRIM_OK) {
        return status;
    }
    if (binding.pull == NULL) {
        return brim__fail(BRIM_STATUS_INVALID, "stream @%s: its function `pull` is NULL", name);
    }
    source->identity = brim__hash("stream", 6, 0);
    struct stream *stream = NULL;
    status = brim__spec_record(&binding, "stream", source);
    if (status == BRIM_OK) {
        status = brim__arena_take(opening->arena, sizeof *stream, &stream);
    }
    if (status == BRIM_OK) {
        status = brim__serial_find(opening, name, &stream->serial);
    }
    if (status != BRIM_OK) {
        return status;
    }
    stream->pull = binding.pull;
    stream->reopen = binding.reopen;
    stream->user = binding.user;
    brim__copy_text(stream->name, sizeof stream->name, name);
    source->self = stream;
    source->stream = true;
    source->count = BRIM_UNKNOWN;
    source->most_run = brim__max(1, BRIM__READ_WINDOW / source->pitch);
    source->callback = true;
    source->identity = brim__hash(version, strlen(version), source->identity);
    source->ops = stream->reopen != NULL ? &again_ops : &once_ops;
    return BRIM_OK;
}

static const brim_argument_info arguments[] = {
    [ARGUMENT_STREAM] = { .name = "stream",
                          .type = BRIM_TYPE_BINDING,
                          .flags = BRIM_ARGUMENT_FLAG_REQUIRED | BRIM_ARGUMENT_FLAG_POSITIONAL,
                          .help = "the function, bound when planning or opening with the fields "
                                  "that it promises" },
    [ARGUMENT_VERSION] = BRIM__VERSION_ARGUMENT("the function gives other samples", ""),
};

const struct brim__stage brim__stage_stream = {
    .info = { .name = "stream",
              .summary = "samples that a function of the program gives one after the other",
              .example = "stream @generator",
              .room = BRIM_ROOM_SOURCE,
              .version = 1,
              .arguments = arguments,
              .argument_count = BRIM__COUNT(arguments) },
    .open = open_stream,
};

/*
 * callback.c: `callback @name`, samples that a function of the program makes.
 *
 * The function is called with a sample's number. It writes all fields of the sample into the
 * engine's buffer, in the layout of spec.h.
 */
#include "base/answer.h"
#include "source/arguments.h"
#include "source/spec.h"

#include <stdio.h>

enum { ARGUMENT_CALLBACK, ARGUMENT_SEED, ARGUMENT_VERSION };

struct callback {
    brim_read_callback *read;
    void *user;
    uint64_t seed;
    char name[BRIM_NAME_BYTES];
};

static brim_status fetch(const struct brim__source *source, const brim_call *call, uint64_t count,
                         uint8_t *buffer, const uint8_t **records, uint64_t *got) {
    const struct callback *callback = source->self;
    brim_value outputs[BRIM__MAX_FIELDS];
    char why[256] = "";
    (void)count;
    assert(call->sample < source->count && count > 0);
    brim__spec_outputs(source, buffer, outputs);
    brim_call own = *call;
    own.key = brim__hash_words(call->key, callback->seed, 0);
    brim__answer_begin();
    const int answer =
        callback->read(callback->user, &own, outputs, source->field_count, why, sizeof why);
    why[sizeof why - 1] = '\0';
    if (answer != BRIM_ANSWER_DONE) {
        return brim__answer_fail(answer, why);
    }
    const brim_status status = brim__spec_spans(source, outputs, buffer);
    if (status != BRIM_OK) {
        return status;
    }
    *records = buffer;
    *got = 1;
    return BRIM_OK;
}

static void describe(const struct brim__source *source, uint64_t sample, char *text, size_t bytes) {
    const struct callback *callback = source->self;
    snprintf(text, bytes, "callback @%s, sample %llu", callback->name, (unsigned long long)sample);
}

static void close_callback(struct brim__source *source) {
    source->ops = NULL;
}

static const struct brim__source_ops callback_ops = {
    .fetch = fetch,
    .describe = describe,
    .close = close_callback,
};

static brim_status check_binding(const brim_binding *binding) {
    const char *name = binding->name;
    if (binding->read == NULL) {
        return brim__fail(BRIM_STATUS_INVALID, "callback @%s: its function `read` is NULL", name);
    }
    if (binding->count == 0 || binding->count > INT64_MAX) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "callback @%s: its `count` is %llu; it must have between 1 "
                          "and 2^63 - 1 samples",
                          name, (unsigned long long)binding->count);
    }
    return BRIM_OK;
}

static brim_status open_callback(const struct brim__use *use, struct brim__opening *opening,
                                 struct brim__source *source) {
    const char *name = brim__item(use, ARGUMENT_CALLBACK)->text;
    memset(source, 0, sizeof *source);
    brim_binding binding;
    brim_status status = brim__binding_find(opening, use, name, BRIM_BINDING_SOURCE, &binding);
    if (status != BRIM_OK) {
        return status;
    }
    status = check_binding(&binding);
    if (status != BRIM_OK) {
        return status;
    }
    struct callback *callback;
    status = brim__arena_take(opening->arena, sizeof *callback, &callback);
    if (status != BRIM_OK) {
        return status;
    }
    callback->read = binding.read;
    callback->user = binding.user;
    callback->seed = (uint64_t)brim__item(use, ARGUMENT_SEED)->integer;
    brim__copy_text(callback->name, sizeof callback->name, name);

    source->identity = brim__hash("callback", 8, binding.count);
    status = brim__spec_record(&binding, "callback", source);
    if (status != BRIM_OK) {
        return status;
    }

    source->self = callback;
    source->count = binding.count;
    source->most_run = 1;
    source->callback = true;
    source->impure = (binding.flags & BRIM_CALLBACK_PURE) == 0;
    source->random = (binding.flags & BRIM_CALLBACK_RANDOM) != 0;
    char maker[2 * BRIM_NAME_BYTES];
    snprintf(maker, sizeof maker, "callback @%s", callback->name);
    status = brim__arena_text(opening->arena, maker, &source->maker);
    if (status != BRIM_OK) {
        return status;
    }
    if ((binding.flags & BRIM_CALLBACK_CONCURRENT) == 0) {
        status = brim__serial_find(opening, name, &source->serial);
        if (status != BRIM_OK) {
            return status;
        }
    }
    source->ops = &callback_ops;
    const char *version = brim__item(use, ARGUMENT_VERSION)->text;
    source->identity = brim__hash(version, strlen(version), source->identity);
    source->unversioned = brim__unversioned(version);
    return BRIM_OK;
}

static const brim_argument_info arguments[] = {
    [ARGUMENT_CALLBACK] = { .name = "callback",
                            .type = BRIM_TYPE_BINDING,
                            .flags = BRIM_ARGUMENT_FLAG_REQUIRED | BRIM_ARGUMENT_FLAG_POSITIONAL,
                            .help = "the function, bound when planning or opening with the number "
                                    "of its samples and the fields that it promises" },
    [ARGUMENT_SEED] = BRIM__CALLS_SEED_ARGUMENT,
    [ARGUMENT_VERSION] = BRIM__VERSION_ARGUMENT("the function gives other samples",
                                                "; a cache file needs one that is not 0"),
};

const struct brim__stage brim__stage_callback = {
    .info = { .name = "callback",
              .summary = "samples that a function of the program makes, asked for by number",
              .example = "callback @reader",
              .room = BRIM_ROOM_SOURCE,
              .version = 1,
              .arguments = arguments,
              .argument_count = BRIM__COUNT(arguments) },
    .open = open_callback,
};

/*
 * callback.c: `callback @name`, samples that a function of the caller makes.
 *
 * The function is asked for samples by number and writes all fields of one
 * into the engine's buffer. A record holds the fields one after the other, each
 * at an offset that is a multiple of 64, so that with a buffer aligned to 64
 * bytes every field is:
 *
 *     0          64-aligned        64-aligned
 *     | field 0 ... | field 1 ....... | field 2 ... |
 *
 * Invariant: what the function is handed is a copy of the fields' description,
 * made for each call. Whatever it does to that copy changes nothing here.
 */
#include "source/source.h"

#include <stdio.h>

#define FIELD_ALIGNMENT 64

enum { ARGUMENT_CALLBACK, ARGUMENT_SEED, ARGUMENT_VERSION };

struct callback {
    brim_read_callback *read;
    void *user;
    uint64_t seed;
    uint64_t bytes[BRIM__MAX_FIELDS]; /* of each field */
    char name[BRIM_NAME_BYTES];
};

static brim_status fetch(const struct brim__source *source, const brim_call *call, uint64_t count,
                         uint8_t *buffer, const uint8_t **records, uint64_t *got) {
    const struct callback *callback = source->self;
    brim_value outputs[BRIM__MAX_FIELDS];
    char why[256] = "";
    (void)count;
    assert(call->sample < source->count && count > 0);
    for (uint32_t i = 0; i < source->field_count; i++) {
        const struct brim__view *view = &source->field[i].view;
        outputs[i] = (brim_value){ .name = source->field[i].name,
                                   .dtype = view->dtype,
                                   .rank = view->shape.rank,
                                   .data = buffer + view->offset,
                                   .bytes = callback->bytes[i] };
        for (uint32_t axis = 0; axis < view->shape.rank; axis++) {
            outputs[i].shape[axis] = (int64_t)view->shape.dim[axis];
        }
    }
    brim_call own = *call;
    own.key = brim__hash_words(call->key, callback->seed, 0);
    const int failed =
        callback->read(callback->user, &own, outputs, source->field_count, why, sizeof why);
    why[sizeof why - 1] = '\0';
    if (failed != 0) {
        return brim__fail(BRIM_CALLBACK, "%s (it returned %d)",
                          why[0] != '\0' ? why : "the function failed and gave no reason", failed);
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

/* Adds the field that the binding promises as number `index`; *bytes is what it
 * measures. */
static brim_status add_field(const brim_binding *binding, size_t index, struct brim__source *source,
                             uint64_t *bytes) {
    struct brim__source_field *field = &source->field[index];
    const brim_status status = brim__spec_field(binding, index, field, bytes);
    if (status != BRIM_OK) {
        return brim__fail_within(status, "callback");
    }
    for (size_t i = 0; i < index; i++) {
        if (strcmp(source->field[i].name, field->name) == 0) {
            return brim__fail(BRIM_INVALID, "callback @%s: two fields have the name \"%s\"",
                              binding->name, field->name);
        }
    }
    field->view.offset = source->record_bytes;
    source->record_bytes += brim__align(*bytes, FIELD_ALIGNMENT);
    source->field_count++;
    const struct brim__shape *shape = &field->view.shape;
    source->identity =
        brim__hash(field->name, strlen(field->name),
                   brim__hash_words(source->identity, (uint64_t)field->view.dtype, shape->rank));
    for (uint32_t axis = 0; axis < shape->rank; axis++) {
        source->identity = brim__hash_words(source->identity, axis, shape->dim[axis]);
    }
    return BRIM_OK;
}

static brim_status check_binding(const brim_binding *binding) {
    const char *name = binding->name;
    if (binding->read == NULL) {
        return brim__fail(BRIM_INVALID, "callback @%s: its function `read` is NULL", name);
    }
    if (binding->count == 0 || binding->count > INT64_MAX) {
        return brim__fail(BRIM_INVALID,
                          "callback @%s: its `count` is %llu; it must have between 1 "
                          "and 2^63 - 1 samples",
                          name, (unsigned long long)binding->count);
    }
    if (binding->field_count == 0 || binding->field_count > BRIM__MAX_FIELDS) {
        return brim__fail(BRIM_INVALID, "callback @%s: %zu fields, but a sample has 1 to %d", name,
                          binding->field_count, BRIM__MAX_FIELDS);
    }
    return BRIM_OK;
}

static brim_status open_callback(const struct brim__use *use, struct brim__opening *opening,
                                 struct brim__source *source) {
    const char *name = brim__item(use, ARGUMENT_CALLBACK)->text;
    memset(source, 0, sizeof *source);
    brim_binding binding;
    brim_status status = brim__binding_find(opening, use, name, BRIM_BIND_SOURCE, &binding);
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
    for (size_t i = 0; i < binding.field_count; i++) {
        status = add_field(&binding, i, source, &callback->bytes[i]);
        if (status != BRIM_OK) {
            return status;
        }
    }

    source->self = callback;
    source->count = binding.count;
    source->pitch = source->record_bytes;
    source->most_run = 1;
    source->callback = true;
    if ((binding.flags & BRIM_CONCURRENT) == 0) {
        status = brim__serial_find(opening, name, &source->serial);
        if (status != BRIM_OK) {
            return status;
        }
    }
    source->ops = &callback_ops;
    const char *version = brim__item(use, ARGUMENT_VERSION)->text;
    source->identity = brim__hash(version, strlen(version), source->identity);
    return BRIM_OK;
}

static const brim_argument_info arguments[] = {
    [ARGUMENT_CALLBACK] = { .name = "callback",
                            .type = BRIM_TYPE_BINDING,
                            .flags = BRIM_REQUIRED | BRIM_POSITIONAL,
                            .help = "the function, bound when planning or opening with the number "
                                    "of its samples and the fields that it promises" },
    [ARGUMENT_SEED] = { .name = "seed",
                        .type = BRIM_TYPE_INTEGER,
                        .fallback = "0",
                        .help = "another seed gives brim_call_random other numbers" },
    [ARGUMENT_VERSION] = { .name = "version",
                           .type = BRIM_TYPE_WORD,
                           .fallback = "0",
                           .help = "change it when the function gives other samples: it is part of "
                                   "the data's identity" },
};

const struct brim__stage brim__stage_callback = {
    .info = { .name = "callback",
              .summary = "samples that a function of the caller makes, asked for by number",
              .example = "callback @reader",
              .room = BRIM_ROOM_SOURCE,
              .version = 1,
              .arguments = arguments,
              .argument_count = BRIM__COUNT(arguments) },
    .open = open_callback,
};

/*
 * binding.c: the caller's arrays and functions, found by name.
 *
 * Bindings come from callers that may have been compiled with an older or a newer brim.h. The
 * elements are bindings->size bytes apart, and only the bytes that both sides know are copied. The
 * other checks here are those that every stage needs: the name exists once, and is of the kind that
 * the stage takes.
 */
#include "base/struct.h"
#include "source/source.h"

#include <stdio.h>

#define KNOWN_FLAGS \
    (BRIM_CALLBACK_PURE | BRIM_CALLBACK_CONCURRENT | BRIM_CALLBACK_PROBED | BRIM_CALLBACK_RANDOM)

static const char *kind_text(brim_binding_kind kind) {
    switch (kind) {
    case BRIM_BINDING_ARRAY:
        return "an array (BRIM_BINDING_ARRAY)";
    case BRIM_BINDING_SOURCE:
        return "a function that reads samples (BRIM_BINDING_SOURCE)";
    case BRIM_BINDING_MAP:
        return "a function that maps samples (BRIM_BINDING_MAP)";
    case BRIM_BINDING_STREAM:
        return "a stream of samples (BRIM_BINDING_STREAM)";
    case BRIM_BINDING_FILTER:
        return "a function that keeps or drops samples (BRIM_BINDING_FILTER)";
    case BRIM_BINDING_FLAT_MAP:
        return "a function that makes many samples of one (BRIM_BINDING_FLAT_MAP)";
    case BRIM_BINDING_FILES:
        return "a list of paths (BRIM_BINDING_FILES)";
    case BRIM_BINDING_BATCH_MAP:
        return "a function on whole batches (BRIM_BINDING_BATCH_MAP)";
    }
    return "a kind of binding that this library does not know";
}

static brim_status copy_binding(const struct brim__opening *opening, size_t index,
                                brim_binding *binding) {
    const size_t size = opening->bindings->size;
    const uint8_t *element = (const uint8_t *)opening->bindings + index * size;
    *binding = (brim_binding)BRIM_BINDING_INIT;
    const brim_status status = brim__struct_take("a binding", "BRIM_BINDING_INIT", element, size,
                                                 binding, sizeof *binding);
    if (status != BRIM_OK) {
        return status;
    }
    if ((binding->flags & ~KNOWN_FLAGS) != 0) {
        return brim__fail(BRIM_STATUS_UNSUPPORTED,
                          "binding %zu: flags are %#x, of which brim %s knows %#x only: leave the "
                          "others out, or load a newer library",
                          index, binding->flags, brim_version(), KNOWN_FLAGS);
    }
    if (binding->name == NULL) {
        return brim__fail(BRIM_STATUS_INVALID, "binding %zu has no name: set its field `name`",
                          index);
    }
    return BRIM_OK;
}

static void list_names(const struct brim__opening *opening, char *text, size_t bytes) {
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < opening->binding_count && used < bytes; i++) {
        brim_binding binding;
        if (copy_binding(opening, i, &binding) != BRIM_OK) {
            return;
        }
        const int wrote =
            snprintf(text + used, bytes - used, "%s@%.47s", i == 0 ? "" : ", ", binding.name);
        if (wrote < 0) {
            return;
        }
        used += (size_t)wrote;
    }
}

static brim_status find(const struct brim__opening *opening, const struct brim__use *use,
                        const char *name, brim_binding_kind kind, brim_binding *binding) {
    const char *stage = use->stage->info.name;
    if (opening->binding_count > 0 && opening->bindings == NULL) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "%s @%s: there are %zu bindings, but `bindings` is NULL", stage, name,
                          opening->binding_count);
    }

    bool found = false;
    for (size_t i = 0; i < opening->binding_count; i++) {
        brim_binding candidate;
        const brim_status status = copy_binding(opening, i, &candidate);
        if (status != BRIM_OK) {
            return status;
        }
        if (strcmp(candidate.name, name) != 0) {
            continue;
        }
        if (found) {
            return brim__fail(BRIM_STATUS_INVALID,
                              "%s @%s: two bindings have this name; give each its own", stage,
                              name);
        }
        *binding = candidate;
        found = true;
    }
    if (!found && opening->binding_count == 0) {
        return brim__fail(BRIM_STATUS_UNBOUND,
                          "%s @%s: nothing is bound: give a binding named \"%s\" when planning or "
                          "opening",
                          stage, name, name);
    }
    if (!found) {
        char names[400];
        list_names(opening, names, sizeof names);
        return brim__fail(BRIM_STATUS_UNBOUND, "%s @%s: no binding has this name; bound: %s", stage,
                          name, names);
    }
    if (binding->kind != kind) {
        return brim__fail(BRIM_STATUS_INVALID, "%s @%s: is bound to %s, but the stage takes %s",
                          stage, name, kind_text(binding->kind), kind_text(kind));
    }
    return BRIM_OK;
}

brim_status brim__binding_find(const struct brim__opening *opening, const struct brim__use *use,
                               const char *name, brim_binding_kind kind, brim_binding *binding) {
    brim_status status = find(opening, use, name, kind, binding);
    for (size_t i = 0; status != BRIM_OK && i < use->stage->info.argument_count; i++) {
        if (brim__given(use, i) && brim__item(use, i)->text == name) {
            status = brim__at_argument(status, brim_stage_argument_at(&use->stage->info, i)->name);
        }
    }
    return status;
}

static bool may_stand_in_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || c == '-';
}

brim_status brim__field_name(char to[BRIM_NAME_BYTES], const char *name) {
    if (name == NULL || name[0] == '\0') {
        return brim__fail(BRIM_STATUS_INVALID, "a field's name is empty");
    }
    const size_t length = strnlen(name, BRIM_NAME_BYTES);
    if (length == BRIM_NAME_BYTES) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "the field name \"%.47s...\" is longer than %d characters", name,
                          BRIM_NAME_BYTES - 1);
    }
    for (size_t i = 0; i < length; i++) {
        if (!may_stand_in_name(name[i])) {
            return brim__fail(BRIM_STATUS_INVALID,
                              "the field name \"%s\" has a character (byte %zu) that is not a "
                              "letter, a digit, '_', '.' or '-'",
                              name, i);
        }
    }
    memcpy(to, name, length + 1);
    return BRIM_OK;
}

void brim__field_name_of(char to[BRIM_NAME_BYTES], const char *text, size_t length) {
    size_t used = 0;
    bool gap = false;
    for (size_t i = 0; i < length; i++) {
        if (!may_stand_in_name(text[i])) {
            gap = used > 0;
        } else if (used + 2 < BRIM_NAME_BYTES) {
            if (gap) {
                to[used++] = '_';
            }
            to[used++] = text[i];
            gap = false;
        }
    }
    to[used] = '\0';
}

brim_status brim__serial_find(struct brim__opening *opening, const char *name,
                              brim__mutex **mutex) {
    struct brim__serial *serial = *opening->serials;
    while (serial != NULL && strcmp(serial->name, name) != 0) {
        serial = serial->next;
    }
    if (serial == NULL) {
        brim_status status = brim__arena_take(opening->arena, sizeof *serial, &serial);
        if (status == BRIM_OK) {
            status = brim__arena_text(opening->arena, name, &serial->name);
        }
        if (status == BRIM_OK) {
            status = brim__mutex_init(&serial->mutex);
        }
        if (status != BRIM_OK) {
            return status;
        }
        serial->next = *opening->serials;
        *opening->serials = serial;
    }
    *mutex = &serial->mutex;
    return BRIM_OK;
}

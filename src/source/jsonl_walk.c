/*
 * jsonl_walk.c: finds the values of the chosen keys in one line.
 *
 * For every open object on the way to a chosen key, the walk keeps a bit for each field that may
 * still be in it, and how many characters of their keys have matched so far. All these keys share
 * the matched characters, so one number is enough. Values that contain no field are skipped by
 * counting depth.
 */
#include "source/jsonl.h"

struct level {
    uint32_t fields;
    size_t prefix;
};

struct walk {
    const struct brim__jsonl *jsonl;
    brim__jsonl_value *value;
    void *user;
    uint32_t seen;
    uint32_t depth;     /* objects open that are walked; level[depth - 1] is the innermost */
    uint32_t skip;      /* containers open that are not */
    int32_t target;     /* field whose value comes next or whose list is open; -1: none */
    uint32_t lists;     /* open lists of the target */
    struct level inner; /* of the object that may come next */
    struct level level[BRIM__JSON_DEPTH];
};

static brim_status on_key(struct walk *walk, const char *text, size_t length) {
    const struct level *level = &walk->level[walk->depth - 1];
    walk->target = -1;
    walk->inner.fields = 0;
    for (uint32_t fields = level->fields; fields != 0; fields &= fields - 1) {
        const uint32_t index = (uint32_t)__builtin_ctz(fields);
        const struct brim__jsonl_field *field = &walk->jsonl->field[index];
        const size_t left = field->key_length - level->prefix;
        const char *key = field->key + level->prefix;
        /* most keys differ in length: compared as texts only if they do not */
        if (length == left && memcmp(key, text, length) == 0) {
            if (walk->seen & 1u << index) {
                return brim__fail(BRIM_STATUS_CORRUPT, "has the key '%s' twice", field->name);
            }
            walk->seen |= 1u << index;
            walk->target = (int32_t)index;
        } else if (length < left && key[length] == '.' && memcmp(key, text, length) == 0) {
            walk->inner.fields |= 1u << index;
            walk->inner.prefix = level->prefix + length + 1;
        }
    }
    return BRIM_OK;
}

static brim_status tell(struct walk *walk, enum brim__json_kind kind, const char *text,
                        size_t length) {
    const uint32_t field = (uint32_t)walk->target;
    if (walk->lists == 0 && kind != BRIM__JSON_LIST) {
        walk->target = -1;
    }
    return walk->value(walk->user, field, kind, walk->lists, text, length);
}

static brim_status on_object(struct walk *walk) {
    if (walk->skip > 0) {
        walk->skip++;
        return BRIM_OK;
    }
    if (walk->target >= 0) {
        const brim_status status = tell(walk, BRIM__JSON_OBJECT, NULL, 0);
        if (status != BRIM_OK) {
            return status;
        }
    }
    if (walk->depth == 0) {
        walk->level[walk->depth++] = (struct level){ .fields = (1u << walk->jsonl->count) - 1 };
    } else if (walk->lists == 0 && walk->inner.fields != 0) {
        walk->level[walk->depth++] = walk->inner;
        walk->inner.fields = 0;
    } else {
        walk->skip = 1;
    }
    return BRIM_OK;
}

static brim_status on_list(struct walk *walk) {
    if (walk->skip > 0) {
        walk->skip++;
        return BRIM_OK;
    }
    if (walk->target < 0) {
        walk->skip = 1;
        return BRIM_OK;
    }
    const brim_status status = tell(walk, BRIM__JSON_LIST, NULL, 0);
    if (walk->lists == BRIM__JSONL_LISTS) {
        walk->skip = 1;
    } else {
        walk->lists++;
    }
    return status;
}

static brim_status on_list_end(struct walk *walk) {
    walk->lists--;
    return tell(walk, BRIM__JSON_LIST_END, NULL, 0);
}

static brim_status visit(void *self, enum brim__json_kind kind, const char *text, size_t length) {
    struct walk *walk = self;
    if (walk->depth == 0 && kind != BRIM__JSON_OBJECT) {
        return brim__fail(BRIM_STATUS_CORRUPT, "is not a JSON object: it does not begin with '{'");
    }
    switch (kind) {
    case BRIM__JSON_OBJECT:
        return on_object(walk);
    case BRIM__JSON_LIST:
        return on_list(walk);
    case BRIM__JSON_KEY:
        return walk->skip > 0 ? BRIM_OK : on_key(walk, text, length);
    case BRIM__JSON_OBJECT_END:
    case BRIM__JSON_LIST_END:
        if (walk->skip > 0) {
            walk->skip--;
        } else if (kind == BRIM__JSON_LIST_END) {
            return on_list_end(walk);
        } else {
            walk->depth--;
        }
        return BRIM_OK;
    case BRIM__JSON_NULL:
    case BRIM__JSON_FALSE:
    case BRIM__JSON_TRUE:
    case BRIM__JSON_NUMBER:
    case BRIM__JSON_STRING:
        break;
    }
    return walk->skip > 0 || walk->target < 0 ? BRIM_OK : tell(walk, kind, text, length);
}

brim_status brim__jsonl_walk(const struct brim__jsonl *jsonl, uint8_t *line, size_t length,
                             void *memory, uint64_t memory_bytes, brim__jsonl_value *value,
                             void *user, uint32_t *seen) {
    struct walk walk; /* not set to zero, because `level` is large */
    walk.jsonl = jsonl;
    walk.value = value;
    walk.user = user;
    walk.seen = 0;
    walk.depth = walk.skip = walk.lists = 0;
    walk.target = -1;
    walk.inner = (struct level){ 0 };
    const brim_status status = brim__json_parse(line, length, memory, memory_bytes, visit, &walk);
    *seen = walk.seen;
    return status;
}

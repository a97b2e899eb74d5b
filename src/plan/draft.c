/*
 * draft.c: collects the values of one stage in the order in which they are written.
 *
 * Values without a key fill the POSITIONAL arguments in their order. A list takes all following
 * values up to a key=value. WEIGHTED takes a number and then a pipeline, which together are one
 * item. Arguments that were not given get their defaults at the end, so that a use has the values
 * of all arguments.
 */
#include "plan/parse.h"

#include <stdio.h>

/* --------------------------------------------------------------- messages */

/* The names that the arguments with all of `flags` have: "seed, block". */
static void names_text(const brim_stage_info *stage, uint32_t flags, char *text, size_t bytes) {
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < stage->argument_count; i++) {
        const brim_argument_info *info = brim_stage_argument_at(stage, i);
        if ((info->flags & flags) == flags && used < bytes) {
            used += (size_t)snprintf(text + used, bytes - used, "%s%s", used > 0 ? ", " : "",
                                     info->name);
        }
    }
}

/* The choice that may have been meant, as "; did you mean 'drop'?", or "". */
static void meant_choice(const char *choices, const char *word, char *text, size_t bytes) {
    char copy[BRIM__WANTED];
    const char *names[64];
    size_t count = 0;
    text[0] = '\0';
    if (strlen(word) >= BRIM_NAME_BYTES || !brim__copy_text(copy, sizeof copy, choices)) {
        return;
    }
    char *rest = copy;
    while (rest != NULL && count < BRIM__COUNT(names)) {
        names[count++] = strsep(&rest, "|");
    }
    const char *nearest = brim_nearest(word, names, count);
    if (nearest != NULL) {
        snprintf(text, bytes, "; did you mean '%s'?", nearest);
    }
}

/* The argument that takes a path, if that needs its key; else NULL. */
static const char *path_argument(const brim_stage_info *stage) {
    for (size_t i = 0; i < stage->argument_count; i++) {
        const brim_argument_info *info = brim_stage_argument_at(stage, i);
        if (info->type == BRIM_TYPE_PATH && (info->flags & BRIM_ARGUMENT_FLAG_POSITIONAL) == 0) {
            return info->name;
        }
    }
    return NULL;
}

static brim_status refuse(const struct brim__draft *draft, const brim_argument_info *info,
                          const struct brim__raw *raw, enum brim__outcome outcome) {
    char wanted[BRIM__WANTED], shown[BRIM__SHOWN], hint[128] = "";
    brim__value_wanted(info, wanted);
    if (raw->spelling == BRIM__BARE && raw->text[0] == '@') {
        snprintf(hint, sizeof hint, "%s",
                 raw->text[1] == '\0' ? "; a name must follow the '@'"
                 : info->type == BRIM_TYPE_BINDING
                     ? "; a name has letters, digits, '_', '.' and '-'"
                     : "; put text that begins with '@' in quotes");
    } else if (outcome == BRIM__TOO_LARGE) {
        snprintf(hint, sizeof hint, ", which is too large");
    } else if (info->type == BRIM_TYPE_CHOICE) {
        meant_choice(info->choices, raw->text, hint, sizeof hint);
        const char *path = path_argument(&draft->stage->info);
        if (hint[0] == '\0' && path != NULL) {
            snprintf(hint, sizeof hint, "; give a path as %s=", path);
        }
    }
    const brim_status status = brim__complain(
        draft->reading, raw->at, "%s: %s must be %s, not '%s'%s", draft->stage->info.name,
        info->name, wanted, brim__show(shown, raw->text), hint);
    return brim__at_argument(status, info->name);
}

/* ------------------------------------------------------------------ draft */

brim_status brim__draft_begin(struct brim__draft *draft, const struct brim__reading *reading,
                              const struct brim__stage *stage, size_t at) {
    *draft = (struct brim__draft){ .reading = reading, .stage = stage, .at = at };
    return brim__arena_take(
        reading->arena, (stage->info.argument_count + 1) * sizeof *draft->values, &draft->values);
}

static brim_status given_twice(const struct brim__draft *draft, size_t argument, size_t at) {
    const char *name = brim_stage_argument_at(&draft->stage->info, argument)->name;
    return brim__at_argument(
        brim__complain(draft->reading, at, "%s: %s is given twice", draft->stage->info.name, name),
        name);
}

brim_status brim__draft_next(struct brim__draft *draft, size_t at, size_t *argument) {
    const brim_stage_info *stage = &draft->stage->info;
    for (; draft->cursor < stage->argument_count; draft->cursor++) {
        const brim_argument_info *info = brim_stage_argument_at(stage, draft->cursor);
        const struct brim__draft_values *values = &draft->values[draft->cursor];
        if ((info->flags & BRIM_ARGUMENT_FLAG_POSITIONAL) == 0) {
            continue;
        }
        if (values->count > 0 && !values->positional) {
            return given_twice(draft, draft->cursor, at);
        }
        const bool full =
            values->count > 0 && !values->half && (info->flags & BRIM_ARGUMENT_FLAG_LIST) == 0;
        if (!full && !values->closed) {
            draft->values[draft->cursor].positional = true;
            *argument = draft->cursor;
            return BRIM_OK;
        }
    }
    char keyless[160], all[256];
    names_text(stage, BRIM_ARGUMENT_FLAG_POSITIONAL, keyless, sizeof keyless);
    names_text(stage, 0, all, sizeof all);
    if (stage->argument_count == 0) {
        return brim__complain(draft->reading, at, "%s: too many values: it takes none",
                              stage->name);
    }
    return brim__complain(
        draft->reading, at,
        "%s: too many values: %s%s may be given without a key; its arguments are %s", stage->name,
        keyless[0] == '\0' ? "none" : "only ", keyless, all);
}

static brim_status unknown_argument(const struct brim__draft *draft, const char *key, size_t at) {
    const brim_stage_info *stage = &draft->stage->info;
    char all[256], shown[BRIM__SHOWN], hint[96] = "";
    const char *names[64];
    size_t count = 0;
    for (; count < stage->argument_count && count < BRIM__COUNT(names); count++) {
        names[count] = brim_stage_argument_at(stage, count)->name;
    }
    const char *nearest = strlen(key) < BRIM_NAME_BYTES ? brim_nearest(key, names, count) : NULL;
    if (nearest != NULL) {
        snprintf(hint, sizeof hint, "did you mean '%s'? ", nearest);
    }
    names_text(stage, 0, all, sizeof all);
    const brim_status status = brim__complain(
        draft->reading, at, "%s: unknown argument '%s'; %sits arguments are %s%s", stage->name,
        brim__show(shown, key), hint, all[0] == '\0' ? "none" : all,
        draft->reading->text == NULL ? "" : "; put a value that contains '=' in quotes");
    return brim__at_argument(status, key);
}

brim_status brim__draft_key(struct brim__draft *draft, const char *key, size_t at, bool again,
                            size_t *argument) {
    const brim_stage_info *stage = &draft->stage->info;
    size_t i = 0;
    while (i < stage->argument_count && strcmp(brim_stage_argument_at(stage, i)->name, key) != 0) {
        i++;
    }
    if (i == stage->argument_count) {
        return unknown_argument(draft, key, at);
    }
    const struct brim__draft_values *values = &draft->values[i];
    const bool more =
        again && !values->positional &&
        (values->half || (brim_stage_argument_at(stage, i)->flags & BRIM_ARGUMENT_FLAG_LIST) != 0);
    if (values->count > 0 && !more) {
        return given_twice(draft, i, at);
    }
    if (draft->cursor < stage->argument_count && draft->values[draft->cursor].positional) {
        draft->values[draft->cursor].closed = true;
    }
    *argument = i;
    return BRIM_OK;
}

brim_status brim__draft_opens(const struct brim__draft *draft, size_t argument, size_t at) {
    const brim_stage_info *stage = &draft->stage->info;
    const brim_argument_info *info = brim_stage_argument_at(stage, argument);
    if (info->type == BRIM_TYPE_PIPELINE ||
        (info->type == BRIM_TYPE_WEIGHTED && draft->values[argument].half)) {
        return BRIM_OK;
    }
    if (info->type == BRIM_TYPE_WEIGHTED) {
        const brim_status status =
            brim__complain(draft->reading, at, "%s: %s: a weight must come before the pipeline",
                           stage->name, info->name);
        return brim__at_argument(status, info->name);
    }
    char wanted[BRIM__WANTED];
    brim__value_wanted(info, wanted);
    const brim_status status = brim__complain(
        draft->reading, at, "%s: %s must be %s, not a pipeline%s", stage->name, info->name, wanted,
        draft->reading->text == NULL ? "" : "; put a value that contains parentheses in quotes");
    return brim__at_argument(status, info->name);
}

/* A place for one more item at the end of a list. */
static brim_status room_for_item(const struct brim__draft *draft,
                                 struct brim__draft_values *values) {
    if (values->count < values->capacity) {
        return BRIM_OK;
    }
    const size_t capacity = values->capacity == 0 ? 1 : 2 * values->capacity;
    struct brim__item *items;
    const brim_status status =
        brim__arena_take(draft->reading->arena, capacity * sizeof *items, &items);
    if (status != BRIM_OK) {
        return status;
    }
    if (values->count > 0) {
        memcpy(items, values->items, values->count * sizeof *items);
    }
    values->items = items;
    values->capacity = capacity;
    return BRIM_OK;
}

static brim_status lacks_pipeline(const struct brim__draft *draft, size_t argument, size_t at) {
    const struct brim__draft_values *values = &draft->values[argument];
    char shown[BRIM__SHOWN];
    const char *name = brim_stage_argument_at(&draft->stage->info, argument)->name;
    const brim_status status = brim__complain(
        draft->reading, at, "%s: %s: a pipeline in parentheses must follow the weight '%s'",
        draft->stage->info.name, name, brim__show(shown, values->items[values->count - 1].text));
    return brim__at_argument(status, name);
}

brim_status brim__draft_put(struct brim__draft *draft, size_t argument,
                            const struct brim__raw *raw) {
    const brim_argument_info *info = brim_stage_argument_at(&draft->stage->info, argument);
    struct brim__draft_values *values = &draft->values[argument];
    values->at = raw->at;
    if (raw->text == NULL) {
        const brim_status status = brim__draft_opens(draft, argument, raw->at);
        if (status != BRIM_OK) {
            return status;
        }
        if (values->half) {
            values->items[values->count - 1].pipeline = raw->pipeline;
            values->half = false;
            return BRIM_OK;
        }
    } else if (values->half) {
        return lacks_pipeline(draft, argument, raw->at);
    }
    if (values->count > 0 && (info->flags & BRIM_ARGUMENT_FLAG_LIST) == 0) {
        return given_twice(draft, argument, raw->at);
    }
    const brim_status status = room_for_item(draft, values);
    if (status != BRIM_OK) {
        return status;
    }
    struct brim__item *item = &values->items[values->count];
    if (raw->text == NULL) {
        *item = (struct brim__item){ .text = "", .pipeline = raw->pipeline };
    } else {
        const enum brim__outcome outcome = brim__value_read(info, raw->text, raw->spelling, item);
        if (outcome != BRIM__GOOD) {
            return refuse(draft, info, raw, outcome);
        }
    }
    values->half = info->type == BRIM_TYPE_WEIGHTED;
    values->count++;
    return BRIM_OK;
}

/* Sets the default of an argument that was not given. */
static brim_status put_fallback(struct brim__draft *draft, size_t argument) {
    const brim_argument_info *info = brim_stage_argument_at(&draft->stage->info, argument);
    brim_status status = BRIM_OK;
    for (const char *rest = info->fallback; rest != NULL && status == BRIM_OK;) {
        char piece[BRIM__PIECE_BYTES];
        struct brim__raw raw = { .spelling = BRIM__BUILT, .at = draft->at };
        rest = brim__fallback_piece(info, rest, piece);
        status = brim__arena_text(draft->reading->arena, piece, &raw.text);
        if (status == BRIM_OK) {
            status = brim__draft_put(draft, argument, &raw);
        }
    }
    return status;
}

brim_status brim__draft_end(struct brim__draft *draft, struct brim__use *use) {
    const brim_stage_info *stage = &draft->stage->info;
    struct brim__values *values;
    brim_status status = brim__arena_take(draft->reading->arena,
                                          (stage->argument_count + 1) * sizeof *values, &values);
    for (size_t i = 0; i < stage->argument_count && status == BRIM_OK; i++) {
        const brim_argument_info *info = brim_stage_argument_at(stage, i);
        struct brim__draft_values *drafted = &draft->values[i];
        if (drafted->half) {
            return lacks_pipeline(draft, i, drafted->at);
        }
        if (drafted->count == 0 && (info->flags & BRIM_ARGUMENT_FLAG_REQUIRED) != 0) {
            char wanted[BRIM__WANTED];
            brim__value_wanted(info, wanted);
            status =
                brim__complain(draft->reading, draft->at, "%s: %s is missing: %s; for example: %s",
                               stage->name, info->name, wanted, stage->example);
            return brim__at_argument(status, info->name);
        }
        if (drafted->count == 0) {
            status = put_fallback(draft, i);
        }
        struct brim__extent *extents = NULL;
        if (status == BRIM_OK) {
            status = brim__arena_take(draft->reading->arena, (drafted->count + 1) * sizeof *extents,
                                      &extents);
        }
        values[i] = (struct brim__values){ drafted->items, extents, drafted->count };
    }
    *use = (struct brim__use){ .stage = draft->stage, .values = values };
    return status;
}

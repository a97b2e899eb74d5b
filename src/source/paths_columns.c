/*
 * paths_columns.c: opens the manifest of `files` with the source of its format.
 *
 * csv and jsonl are opened as a pipeline would open them: with a use of their stage that has its
 * defaults, the user's columns and types, and for each path's column the type that does not change
 * it. Paths of a CSV file are bytes, because names of files need not be UTF-8; in JSON they are
 * texts.
 */
#include "base/number.h"
#include "source/index.h"
#include "source/paths.h"

#include <stdio.h>
#include <strings.h>

#define MOST_ARGUMENTS 16

enum { FORMAT_AUTO, FORMAT_CSV, FORMAT_TSV, FORMAT_JSONL };

/* A use of the inner stage: its defaults, and the arguments that are set. */
struct inner_use {
    struct brim__use use;
    struct brim__values values[MOST_ARGUMENTS];
    struct brim__item item[MOST_ARGUMENTS];
};

static int64_t number_of(const brim_argument_info *argument, const char *text) {
    int64_t number = 0;
    if (argument->type == BRIM_TYPE_YESNO) {
        return strcmp(text, "yes") == 0;
    }
    if (argument->type == BRIM_TYPE_CHOICE) {
        const size_t length = strlen(text);
        const char *choice = argument->choices;
        while (strncmp(choice, text, length) != 0 ||
               (choice[length] != '|' && choice[length] != '\0')) {
            choice += strcspn(choice, "|") + 1;
            number++;
        }
        return number;
    }
    (void)brim__parse_integer(text, strlen(text), &number);
    return number;
}

static size_t argument_of(const struct inner_use *inner, const char *name) {
    const brim_stage_info *info = &inner->use.stage->info;
    size_t i = 0;
    while (i < info->argument_count && strcmp(brim_stage_argument_at(info, i)->name, name) != 0) {
        i++;
    }
    assert(i < info->argument_count);
    return i;
}

static void set(struct inner_use *inner, const char *name, const char *text) {
    const size_t i = argument_of(inner, name);
    inner->item[i] = (struct brim__item){
        .text = text, .integer = number_of(brim_stage_argument_at(&inner->use.stage->info, i), text)
    };
    inner->values[i] = (struct brim__values){ .items = &inner->item[i], .count = 1 };
}

static void set_defaults(struct inner_use *inner, const struct brim__stage *stage) {
    memset(inner, 0, sizeof *inner);
    inner->use = (struct brim__use){ .stage = stage, .values = inner->values };
    assert(stage->info.argument_count <= MOST_ARGUMENTS);
    for (size_t i = 0; i < stage->info.argument_count; i++) {
        const brim_argument_info *argument = brim_stage_argument_at(&stage->info, i);
        if (argument->fallback != NULL) {
            set(inner, argument->name, argument->fallback);
        }
    }
}

static bool has_suffix(const char *path, const char *suffix) {
    const size_t length = strlen(path), bytes = strlen(suffix);
    return length > bytes && strcasecmp(path + length - bytes, suffix) == 0;
}

static brim_status find_format(const struct brim__use *use, const char *path, int64_t *format) {
    static const struct {
        const char *suffix;
        int64_t format;
    } known[] = {
        { ".csv", FORMAT_CSV },
        { ".tsv", FORMAT_TSV },
        { ".jsonl", FORMAT_JSONL },
        { ".ndjson", FORMAT_JSONL },
    };
    *format = brim__item(use, BRIM__PATHS_FORMAT)->integer;
    for (size_t i = 0; i < BRIM__COUNT(known) && *format == FORMAT_AUTO; i++) {
        if (has_suffix(path, known[i].suffix)) {
            *format = known[i].format;
        }
    }
    return *format != FORMAT_AUTO
               ? BRIM_OK
               : brim__fail(BRIM_STATUS_INVALID,
                            "files: %s: its name does not show its format: give format=csv, tsv or "
                            "jsonl",
                            path);
}

static bool is_among(const struct brim__values *values, const char *text) {
    for (size_t i = 0; i < values->count; i++) {
        if (strcmp(values->items[i].text, text) == 0) {
            return true;
        }
    }
    return false;
}

/* The list of the user's columns with the paths' before them, if they are not in it. */
static brim_status all_columns(const struct brim__values *columns, const struct brim__values *paths,
                               struct brim__arena *arena, struct brim__values *all) {
    struct brim__item *items;
    *all = (struct brim__values){ 0 };
    if (columns->count == 0) {
        return BRIM_OK;
    }
    const brim_status status =
        brim__arena_take(arena, (columns->count + paths->count) * sizeof *items, &items);
    if (status != BRIM_OK) {
        return status;
    }
    for (size_t i = 0; i < paths->count; i++) {
        if (!is_among(columns, paths->items[i].text)) {
            items[all->count++] = paths->items[i];
        }
    }
    memcpy(items + all->count, columns->items, columns->count * sizeof *items);
    all->items = items;
    all->count += columns->count;
    return BRIM_OK;
}

/* The user's types, and "name:bytes" for each path. */
static brim_status all_types(const struct brim__values *types, const struct brim__values *paths,
                             const char *kind, struct brim__arena *arena,
                             struct brim__values *all) {
    struct brim__item *items;
    brim_status status =
        brim__arena_take(arena, (types->count + paths->count + 1) * sizeof *items, &items);
    if (status != BRIM_OK) {
        return status;
    }
    if (types->count > 0) {
        memcpy(items, types->items, types->count * sizeof *items);
    }
    for (size_t i = 0; i < paths->count && status == BRIM_OK; i++) {
        char text[512];
        if (snprintf(text, sizeof text, "%s:%s", paths->items[i].text, kind) >= (int)sizeof text) {
            return brim__fail(BRIM_STATUS_INVALID,
                              "files: path=%.60s...: the name is too long: "
                              "rename the column",
                              paths->items[i].text);
        }
        status = brim__arena_text(arena, text, &items[types->count + i].text);
    }
    *all = (struct brim__values){ .items = items, .count = types->count + paths->count };
    return status;
}

brim_status brim__manifest_inner(const struct brim__use *use, const char *path,
                                 const struct brim__values *paths, struct brim__opening *opening,
                                 struct brim__source *inner) {
    struct inner_use own;
    int64_t format;
    brim_status status = find_format(use, path, &format);
    if (status != BRIM_OK) {
        return status;
    }
    const bool lines = format == FORMAT_JSONL;
    set_defaults(&own, lines ? &brim__stage_jsonl : &brim__stage_csv);
    set(&own, "files", path);
    set(&own, "index", brim__item(use, BRIM__PATHS_INDEX)->text);
    if (!lines) {
        set(&own, "header", brim__item(use, BRIM__PATHS_HEADER)->text);
    }
    if (format == FORMAT_TSV) {
        set(&own, "delimiter", "tab");
    }
    status = all_columns(&use->values[BRIM__PATHS_COLUMNS], paths, opening->arena,
                         &own.values[argument_of(&own, lines ? "fields" : "columns")]);
    if (status == BRIM_OK) {
        status = all_types(&use->values[BRIM__PATHS_TYPES], paths, lines ? "text" : "bytes",
                           opening->arena, &own.values[argument_of(&own, "types")]);
    }
    return status == BRIM_OK ? own.use.stage->open(&own.use, opening, inner) : status;
}

brim_status brim__manifest_guess(const struct brim__use *use, const char *path,
                                 const struct brim__opening *opening, struct brim__item *item,
                                 const char **note) {
    static const char *const names[] = { "path", "file", "image", "filename" };
    struct brim__opening first = *opening;
    struct brim__source inner = { 0 };
    const struct brim__values none = { 0 };
    struct brim__index *index = NULL;
    first.indexes = &index; /* kept separate, because this source is closed again */
    brim_status status = brim__manifest_inner(use, path, &none, &first, &inner);
    if (status != BRIM_OK) {
        return status;
    }
    *note = index == NULL ? NULL : index->note;
    for (size_t n = 0; n < BRIM__COUNT(names) && item->text == NULL; n++) {
        for (uint32_t f = 0; f < inner.field_count; f++) {
            if (strcmp(inner.field[f].name, names[n]) == 0) {
                item->text = names[n];
            }
        }
    }
    if (item->text == NULL) {
        char list[300] = "";
        size_t used = 0;
        for (uint32_t f = 0; f < inner.field_count && used < sizeof list; f++) {
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", f == 0 ? "" : ", ",
                                     inner.field[f].name);
        }
        status = brim__fail(BRIM_STATUS_INVALID,
                            "files: %s: no column is called path, file, image or filename: give "
                            "path= with the column that has the paths (%s)",
                            path, list);
    }
    inner.ops->close(&inner);
    return status;
}

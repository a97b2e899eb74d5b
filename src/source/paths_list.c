/*
 * paths_list.c: `files MANIFEST` and `files list=@name`: one sample for each path.
 *
 * This file has the stage's arguments and the caller's list: paths, and optionally labels, in
 * memory that outlives the loader. Nothing is copied and no index is made. A record points to the
 * caller's path, or to a path after the records that begins with root=.
 *
 *     record:  brim__deferred -> path | label: int64
 */
#include "source/arguments.h"
#include "source/paths.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct list {
    const char *const *paths;
    const int64_t *labels;
    const char *root; /* NULL: none */
    uint64_t longest; /* path with root and zero */
};

brim_status brim__paths_root(const char *path, struct brim__arena *arena, const char **root) {
    char found[PATH_MAX], from[PATH_MAX];
    if (realpath(path, found) == NULL) {
        const bool alone = path[0] == '/' || getcwd(from, sizeof from) == NULL;
        if (snprintf(found, sizeof found, "%s%s%s", alone ? "" : from, alone ? "" : "/", path) >=
            (int)sizeof found) {
            return brim__fail(BRIM_STATUS_IO, "files: root=%.300s...: the path is too long", path);
        }
    }
    return brim__arena_text(arena, found, root);
}

void brim__paths_name(const char *root, const char *path, char *text, size_t bytes) {
    const bool alone = root[0] == '\0' || path[0] == '/';
    const size_t front = alone ? 0 : strlen(root) + 1, all = front + strlen(path) + 1;
    if (all <= bytes) {
        snprintf(text, bytes, "%s%s%s", alone ? "" : root, alone ? "" : "/", path);
        return;
    }
    /* keep the end: the name is more useful than the directories before it */
    const size_t skip = all - bytes + 3;
    if (skip >= front) {
        snprintf(text, bytes, "...%s", path + (skip - front));
    } else {
        snprintf(text, bytes, "...%s/%s", root + skip, path);
    }
}

brim_status brim__paths_note(uint64_t loose, uint64_t others, struct brim__arena *arena,
                             const char **note) {
    char beside[80] = "", none[80] = "", text[160];
    if (loose > 0) {
        snprintf(beside, sizeof beside, "; %llu image%s beside the classes %s left out",
                 (unsigned long long)loose, loose == 1 ? "" : "s", loose == 1 ? "is" : "are");
    }
    if (others > 0) {
        snprintf(none, sizeof none, "; %llu %s", (unsigned long long)others,
                 others == 1 ? "is no image" : "are no images");
    }
    snprintf(text, sizeof text, "%s%s", beside, none);
    *note = NULL;
    return text[0] == '\0' ? BRIM_OK : brim__arena_text(arena, text, note);
}

brim_status brim__paths_join(const char *root, const char *text, size_t length, char *to,
                             size_t room) {
    const bool alone = root[0] == '\0' || (length > 0 && text[0] == '/');
    const size_t root_bytes = alone ? 0 : strlen(root) + 1;
    if (length == 0) {
        return brim__fail(BRIM_STATUS_CORRUPT, "files: the path is empty");
    }
    if (memchr(text, '\0', length) != NULL) {
        return brim__fail(BRIM_STATUS_CORRUPT,
                          "files: the path \"%.300s\" has a NUL byte after that", text);
    }
    if (root_bytes + length + 1 > room) {
        return brim__fail(BRIM_STATUS_CORRUPT,
                          "files: the path \"%.300s...\" has %zu bytes; the system opens paths of "
                          "at most %d bytes",
                          text, root_bytes + length, PATH_MAX - 1);
    }
    if (!alone) {
        memcpy(to, root, root_bytes - 1);
        to[root_bytes - 1] = '/';
    }
    memcpy(to + root_bytes, text, length);
    to[root_bytes + length] = '\0';
    return BRIM_OK;
}

void brim__paths_field(struct brim__source_field *field, uint64_t offset, uint64_t longest) {
    field->form = BRIM_FORM_BYTES;
    field->deferred = true;
    field->view = (struct brim__view){ .dtype = BRIM_DTYPE_U8,
                                       .shape = { .rank = 1, .dim = { brim__max(1, longest) } },
                                       .offset = offset };
    brim__view_row_major(&field->view);
}

/* ---------------------------------------------------------------- fetching */

static brim_status path_of(const struct list *list, uint64_t sample, char *room,
                           const char **path) {
    *path = list->paths[sample];
    assert(*path != NULL); /* take_paths has looked */
    if (list->root == NULL) {
        return BRIM_OK;
    }
    const brim_status status =
        brim__paths_join(list->root, *path, strlen(*path), room, list->longest);
    *path = room;
    return status;
}

static brim_status fetch(const struct brim__source *source, const brim_call *call, uint64_t count,
                         uint8_t *buffer, const uint8_t **records, uint64_t *got) {
    const struct list *list = source->self;
    struct brim__deferred deferred = { .described = true };
    assert(call->sample < source->count && count > 0);
    const brim_status status = path_of(
        list, call->sample, (char *)buffer + brim__source_extra(source, count), &deferred.path);
    if (status != BRIM_OK) {
        return status;
    }
    memcpy(buffer, &deferred, sizeof deferred);
    if (list->labels != NULL) {
        memcpy(buffer + sizeof deferred, &list->labels[call->sample], sizeof(int64_t));
    }
    *records = buffer;
    *got = 1;
    return BRIM_OK;
}

static void describe(const struct brim__source *source, uint64_t sample, char *text, size_t bytes) {
    const struct list *list = source->self;
    brim__paths_name(list->root == NULL ? "" : list->root, list->paths[sample], text, bytes);
}

static void where(const struct brim__source *source, uint64_t sample, char *path, uint64_t *byte) {
    describe(source, sample, path, BRIM_SOURCE_BYTES);
    *byte = BRIM_UNKNOWN;
}

static brim_status name_of(const struct brim__source *source, uint64_t sample, uint32_t field,
                           brim_budget *budget, char *text) {
    const struct list *list = source->self;
    const char *path = list->paths[sample];
    (void)field, (void)budget;
    return brim__paths_join(list->root == NULL ? "" : list->root, path, strlen(path), text,
                            BRIM__SAMPLE_NAME);
}

static void close_list(struct brim__source *source) {
    source->ops = NULL;
}

static const struct brim__source_ops list_ops = {
    .fetch = fetch,
    .describe = describe,
    .where = where,
    .path = name_of,
    .stamp = brim__paths_stamp,
    .close = close_list,
};

/* ----------------------------------------------------------------- opening */

/* Reads the header of every file. */
static brim_status probe_list(struct brim__source *source, struct list *list,
                              struct brim__opening *opening, const char *name) {
    struct brim__probed probed = { 0 };
    char *room;
    brim_status status;
    uint64_t reported_ns = brim__now();
    const size_t bytes = BRIM__INPUT_WINDOW + PATH_MAX;
    uint8_t *window = brim__alloc(opening->arena->budget, bytes, &status);
    if (window == NULL) {
        return brim__fail_within(status, "files @%s", name);
    }
    room = (char *)window + BRIM__INPUT_WINDOW;
    for (uint64_t i = 0; i < source->count && status == BRIM_OK; i++) {
        enum brim__image_format format;
        uint64_t file_bytes;
        const char *path;
        status = path_of(list, i, room, &path);
        if (status == BRIM_OK) {
            status = brim__probe(&probed, path, i, window, &file_bytes, &format);
        } else if (status == BRIM_STATUS_CORRUPT) {
            status = BRIM_OK; /* it will be a bad sample */
        }
        if (status == BRIM_OK) {
            status = brim__probe_tell(opening, "looking at the files of", name, i, source->count,
                                      &reported_ns);
        }
    }
    if (status == BRIM_OK) {
        status = brim__probed_survey(&probed, opening->arena, &source->field[0].images);
    }
    if (status == BRIM_OK && source->field[0].images != NULL) {
        status = brim__paths_note(0, probed.others, opening->arena, &source->note);
    }
    source->field[0].view.shape.dim[0] = brim__max(1, probed.largest);
    brim__view_row_major(&source->field[0].view);
    brim__free(window);
    return status;
}

static brim_status take_paths(struct brim__source *source, struct list *list, const char *name) {
    uint64_t longest = 0;
    source->identity = brim__hash("files", 5, list->labels != NULL);
    for (uint64_t i = 0; i < source->count; i++) {
        if (list->paths[i] == NULL) {
            return brim__fail(BRIM_STATUS_INVALID, "files @%s: path %llu of %llu is NULL", name,
                              (unsigned long long)i, (unsigned long long)source->count);
        }
        const size_t length = strlen(list->paths[i]);
        longest = brim__max(longest, length);
        source->identity =
            brim__hash(list->paths[i], length,
                       brim__hash_words(source->identity, i,
                                        list->labels == NULL ? 0 : (uint64_t)list->labels[i]));
    }
    if (list->root != NULL) {
        list->longest = brim__min(PATH_MAX, strlen(list->root) + 1 + longest + 1);
        source->extra_bytes = list->longest;
    }
    return BRIM_OK;
}

static brim_status open_list(const struct brim__use *use, struct brim__opening *opening,
                             struct brim__source *source) {
    const char *name = brim__item(use, BRIM__PATHS_LIST)->text;
    brim_binding binding;
    struct list *list;
    brim_status status = brim__binding_find(opening, use, name, BRIM_BINDING_FILES, &binding);
    if (status == BRIM_OK && (binding.count == 0 || binding.paths == NULL)) {
        status = brim__fail(BRIM_STATUS_INVALID,
                            "files @%s: the list is empty: set `paths` and `count`", name);
    }
    if (status == BRIM_OK && binding.count > INT64_MAX) {
        status = brim__fail(BRIM_STATUS_INVALID, "files @%s: more than 2^63 paths", name);
    }
    if (status == BRIM_OK) {
        status = brim__arena_take(opening->arena, sizeof *list, &list);
    }
    if (status != BRIM_OK) {
        return status;
    }
    list->paths = binding.paths;
    list->labels = binding.labels;
    if (brim__given(use, BRIM__PATHS_ROOT)) {
        status =
            brim__paths_root(brim__item(use, BRIM__PATHS_ROOT)->text, opening->arena, &list->root);
    }
    source->self = list;
    source->count = binding.count;
    source->most_run = 1;
    source->is_file = true;
    source->field_count = list->labels != NULL ? 2 : 1;
    source->record_bytes = sizeof(struct brim__deferred);
    brim__paths_field(&source->field[0], 0, UINT32_MAX);
    if (status == BRIM_OK) {
        status = brim__field_name(source->field[0].name, brim__item(use, BRIM__PATHS_FIELD)->text);
    }
    if (status == BRIM_OK && list->labels != NULL) {
        source->field[1].view =
            (struct brim__view){ .dtype = BRIM_DTYPE_I64, .offset = source->record_bytes };
        brim__view_row_major(&source->field[1].view);
        source->record_bytes += sizeof(int64_t);
        status = brim__field_name(source->field[1].name, brim__item(use, BRIM__PATHS_LABEL)->text);
        if (status == BRIM_OK && strcmp(source->field[0].name, source->field[1].name) == 0) {
            status = brim__fail(BRIM_STATUS_INVALID, "files: field= and label= are both '%s'",
                                source->field[0].name);
        }
    }
    source->pitch = source->record_bytes;
    if (status == BRIM_OK) {
        status = take_paths(source, list, name);
    }
    if (status == BRIM_OK &&
        brim__item(use, BRIM__PATHS_PROBE)->integer == (int64_t)BRIM__PROBE_YES) {
        status = probe_list(source, list, opening, name);
    }
    source->ops = status == BRIM_OK ? &list_ops : NULL;
    return status;
}

static brim_status open_files(const struct brim__use *use, struct brim__opening *opening,
                              struct brim__source *source) {
    const bool manifest = brim__given(use, BRIM__PATHS_MANIFEST);
    memset(source, 0, sizeof *source);
    if (manifest == brim__given(use, BRIM__PATHS_LIST)) {
        return brim__fail(BRIM_STATUS_INVALID, "files: give either a manifest or list=@name%s",
                          manifest ? ", not both" : "");
    }
    return manifest ? brim__manifest_open(use, opening, source) : open_list(use, opening, source);
}

static const brim_argument_info arguments[] = {
    [BRIM__PATHS_MANIFEST] = { .name = "manifest",
                               .type = BRIM_TYPE_PATH,
                               .flags = BRIM_ARGUMENT_FLAG_POSITIONAL,
                               .help = "a file with a path on each line: CSV, TSV or JSON lines" },
    [BRIM__PATHS_FORMAT] = { .name = "format",
                             .type = BRIM_TYPE_CHOICE,
                             .fallback = "auto",
                             .choices = "auto|csv|tsv|jsonl",
                             .help = "of the manifest; auto: as its name ends" },
    [BRIM__PATHS_PATH] = { .name = "path",
                           .type = BRIM_TYPE_WORD,
                           .flags = BRIM_ARGUMENT_FLAG_LIST,
                           .help = "columns or keys that hold paths, each of which becomes a field "
                                   "of the file's bytes; left out: the first that there is of "
                                   "path, file, image and filename" },
    [BRIM__PATHS_ROOT] = { .name = "root",
                           .type = BRIM_TYPE_PATH,
                           .help = "directory that relative paths start from; left out: the "
                                   "manifest's, and for a list that of the process" },
    [BRIM__PATHS_COLUMNS] = { .name = "columns",
                              .type = BRIM_TYPE_WORD,
                              .flags = BRIM_ARGUMENT_FLAG_LIST,
                              .help = "columns or keys to read; left out: as csv and jsonl do" },
    [BRIM__PATHS_TYPES] = { .name = "types",
                            .type = BRIM_TYPE_WORD,
                            .flags = BRIM_ARGUMENT_FLAG_LIST,
                            .help = "name:type for other columns, as csv and jsonl take them" },
    [BRIM__PATHS_HEADER] = { .name = "header",
                             .type = BRIM_TYPE_CHOICE,
                             .fallback = "auto",
                             .choices = "auto|yes|no",
                             .help = "whether a CSV manifest begins with the columns' names; "
                                     "without it they are called c0, c1, ..." },
    [BRIM__PATHS_PROBE] = { .name = "probe",
                            .type = BRIM_TYPE_CHOICE,
                            .fallback = "auto",
                            .choices = "auto|yes|no",
                            .help = "read each image's header when opening, so that the plan knows "
                                    "what the largest needs; auto: of a manifest, where it is "
                                    "remembered" },
    [BRIM__PATHS_INDEX] = BRIM__INDEX_ARGUMENT(
        "where what is remembered of a manifest is kept: in the index directory, or beside it"),
    [BRIM__PATHS_LIST] = { .name = "list",
                           .type = BRIM_TYPE_BINDING,
                           .help = "instead of a manifest: paths of the caller, bound when "
                                   "planning or opening" },
    [BRIM__PATHS_FIELD] = { .name = "field",
                            .type = BRIM_TYPE_WORD,
                            .fallback = "image",
                            .help = "of a list: name of the field with the file's bytes" },
    [BRIM__PATHS_LABEL] = { .name = "label",
                            .type = BRIM_TYPE_WORD,
                            .fallback = "label",
                            .help = "of a list: name of the field with the label" },
};

const struct brim__stage brim__stage_files = {
    .info = { .name = "files",
              .summary = "files whose paths a manifest lists, with its other columns",
              .example = "files train.csv path=image root=photos",
              .room = BRIM_ROOM_SOURCE,
              .version = 1,
              .arguments = arguments,
              .argument_count = BRIM__COUNT(arguments) },
    .open = open_files,
};

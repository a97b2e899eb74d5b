/*
 * folder.c: `folder DIR...`, one sample for each image file below a directory.
 *
 * A sample is a path and, if there are classes, a label. The paths are in the folder's listing,
 * which is their index too (listing.h). Fetching reads the listing and opens no image; the stage
 * that decodes the image does.
 *
 *     range:   a record of the listing
 *     record:  brim__deferred -> "/.../DIR/class/name", in the work memory | label: int64
 *
 * Paths are absolute, so that they stay valid when the process changes its directory. Messages
 * begin with the directory as the user wrote it.
 *
 * Opening uses an existing listing if it is fresh, else makes one. If a listing turns out to be
 * damaged while it is opened, or another process replaces it meanwhile, it is made once more before
 * an error is returned.
 */
#include "source/arguments.h"
#include "source/listing.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define TRIES     3
#define RUN       32   /* most samples of one fetch ... */
#define RUN_BYTES 8192 /* ... if their paths need no more than this */

enum {
    ARGUMENT_ROOTS,
    ARGUMENT_CLASSES,
    ARGUMENT_EXTENSIONS,
    ARGUMENT_RECURSIVE,
    ARGUMENT_LINKS,
    ARGUMENT_ALLOW_EMPTY,
    ARGUMENT_PROBE,
    ARGUMENT_INDEX,
    ARGUMENT_FIELD,
    ARGUMENT_LABEL,
};

struct opened {
    struct brim__folder folder;
    struct brim__listing listing;
    const struct brim__image_survey *images; /* NULL: none, or not looked at */
    const char *const *classes;              /* NULL: none */
    uint64_t longest;                        /* full path with its zero */
};

/* ---------------------------------------------------------------- fetching */

static brim_status locate(const struct brim__source *source, uint64_t sample, uint64_t count,
                          struct brim__file_range *ranges, size_t most, size_t *found) {
    const struct opened *opened = source->self;
    const struct brim__file *file = &opened->listing.index.file;
    const uint64_t longest = BRIM__LISTING_RECORD + opened->listing.header.longest;
    assert(sample < source->count && count > 0 && most > 0);
    const size_t run = (size_t)brim__min(brim__min(count, most), source->count - sample);
    const brim_status status =
        brim__index_locate(&opened->listing.index, file, sample, run, ranges);
    size_t n = 0;
    while (status == BRIM_OK && n < run && ranges[n].bytes <= longest) {
        n++;
    }
    *found = n;
    return status == BRIM_OK && n == 0 ? brim__listing_damaged(file->path, ranges[0].offset)
                                       : status;
}

static brim_status parse_record(const struct opened *opened, const struct brim__file_range *range,
                                const uint8_t *bytes, struct brim__listed *listed,
                                const char **relative) {
    const struct brim__listing *listing = &opened->listing;
    const brim_status status = brim__listed_parse(bytes, range->bytes, listing->index.file.path,
                                                  range->offset, listed, relative);
    if (status != BRIM_OK) {
        return status;
    }
    if (listed->root >= opened->folder.root_count || listed->path_bytes > listing->header.longest ||
        listed->label != range->mark ||
        (listing->header.labelled != 0 && listed->label >= listing->header.classes)) {
        return brim__listing_damaged(listing->index.file.path, range->offset);
    }
    return BRIM_OK;
}

static brim_status parse(const struct brim__source *source, const struct brim__file_range *range,
                         uint8_t *bytes, uint8_t *record, uint8_t *work) {
    const struct opened *opened = source->self;
    const struct brim__deferred deferred = { .path = (const char *)work, .described = true };
    struct brim__listed listed;
    const char *relative;
    char full[PATH_MAX];
    brim_status status = parse_record(opened, range, bytes, &listed, &relative);
    if (status == BRIM_OK) {
        status = brim__listed_path(&opened->folder, listed.root, relative, listed.path_bytes, full);
    }
    if (status != BRIM_OK) {
        return status;
    }
    memcpy(work, full, strlen(full) + 1);
    memcpy(record, &deferred, sizeof deferred);
    if (source->field_count > 1) {
        const int64_t label = listed.label;
        memcpy(record + sizeof deferred, &label, sizeof label);
    }
    return BRIM_OK;
}

/* The name of a sample: its path as the user would write it, or the end of that path. */
static brim_status name_of(const struct brim__source *source, uint64_t sample, char *text,
                           size_t bytes) {
    const struct opened *opened = source->self;
    struct brim__file_range range;
    struct brim__listed listed;
    uint8_t record[BRIM__LISTED_MOST];
    char path[PATH_MAX];
    const char *relative;
    size_t found;
    brim_status status = locate(source, sample, 1, &range, 1, &found);
    if (status == BRIM_OK) {
        status = brim__file_read(range.file, range.offset, record, (size_t)range.bytes);
    }
    if (status == BRIM_OK) {
        status = parse_record(opened, &range, record, &listed, &relative);
    }
    if (status == BRIM_OK) {
        memcpy(path, relative, listed.path_bytes);
        path[listed.path_bytes] = '\0';
        brim__paths_name(opened->folder.root[listed.root], path, text, bytes);
    }
    return status;
}

static void describe(const struct brim__source *source, uint64_t sample, char *text, size_t bytes) {
    const struct opened *opened = source->self;
    struct brim__failure kept;
    brim__failure_keep(&kept); /* the failure that is being described */
    const brim_status status = name_of(source, sample, text, bytes);
    brim__failure_restore(&kept);
    if (status != BRIM_OK) {
        snprintf(text, bytes, "%s, sample %llu", opened->folder.root[0],
                 (unsigned long long)sample);
    }
}

static void where(const struct brim__source *source, uint64_t sample, char *path, uint64_t *byte) {
    describe(source, sample, path, BRIM_SOURCE_BYTES);
    *byte = BRIM_UNKNOWN;
}

static brim_status path_of(const struct brim__source *source, uint64_t sample, uint32_t field,
                           brim_budget *budget, char *text) {
    (void)field, (void)budget;
    return name_of(source, sample, text, BRIM__SAMPLE_NAME);
}

static void close_folder(struct brim__source *source) {
    struct opened *opened = source->self;
    brim__listing_close(&opened->listing);
    source->ops = NULL;
}

static const struct brim__source_ops folder_ops = {
    .locate = locate,
    .parse = parse,
    .fetch = brim__source_fetch,
    .describe = describe,
    .where = where,
    .path = path_of,
    .stamp = brim__paths_stamp,
    .close = close_folder,
};

/* --------------------------------------------------------------- arguments */

static brim_status check_root(const char *path) {
    struct stat facts;
    if (stat(path, &facts) != 0) {
        const int error = errno;
        char why[BRIM__ERROR_TEXT];
        return error == ENOENT ? brim__fail(BRIM_STATUS_IO, "%s: there is no such directory", path)
                               : brim__fail(BRIM_STATUS_IO, "%s: cannot be found: %s", path,
                                            brim__error_text(error, why));
    }
    return S_ISDIR(facts.st_mode)
               ? BRIM_OK
               : brim__fail(
                     BRIM_STATUS_INVALID,
                     "%s: is not a directory; `folder` reads a directory of images, `files` a "
                     "list of paths",
                     path);
}

static brim_status find_absolute(const char *root, struct brim__arena *arena, const char **path) {
    char found[PATH_MAX], why[BRIM__ERROR_TEXT];
    return realpath(root, found) != NULL
               ? brim__arena_text(arena, found, path)
               : brim__fail(BRIM_STATUS_IO, "%s: its absolute path cannot be found: %s", root,
                            brim__error_text(errno, why));
}

static brim_status set_roots(struct brim__folder *folder, const struct brim__values *values,
                             struct brim__arena *arena) {
    const char **roots, **absolute = NULL;
    if (values->count > BRIM__MOST_ROOTS) {
        return brim__fail(BRIM_STATUS_INVALID, "folder: %zu directories; there may be %d",
                          values->count, BRIM__MOST_ROOTS);
    }
    brim_status status = brim__arena_take(arena, values->count * sizeof *roots, &roots);
    if (status == BRIM_OK) {
        status = brim__arena_take(arena, values->count * sizeof *absolute, &absolute);
    }
    for (size_t i = 0; i < values->count && status == BRIM_OK; i++) {
        char *root;
        size_t length = strlen(values->items[i].text);
        if (length == 0) {
            return brim__fail(BRIM_STATUS_INVALID, "folder: a directory's path is empty");
        }
        while (length > 1 && values->items[i].text[length - 1] == '/') {
            length--;
        }
        status = brim__arena_take(arena, length + 1, &root);
        if (status == BRIM_OK) {
            memcpy(root, values->items[i].text, length);
            roots[i] = root;
            status = check_root(root);
        }
        if (status == BRIM_OK) {
            status = find_absolute(root, arena, &absolute[i]);
        }
    }
    folder->root = roots;
    folder->absolute = absolute;
    folder->root_count = values->count;
    return status;
}

/* Words, each of them a list between commas: ".JPG,png" is jpg and png. */
static brim_status set_extensions(struct brim__folder *folder, const struct brim__values *values,
                                  struct brim__arena *arena) {
    size_t most = values->count;
    const char **extensions;
    for (size_t i = 0; i < values->count; i++) {
        for (const char *c = values->items[i].text; *c != '\0'; c++) {
            most += *c == ',';
        }
    }
    brim_status status = brim__arena_take(arena, most * sizeof *extensions, &extensions);
    folder->extension = extensions;
    for (size_t i = 0; i < values->count && status == BRIM_OK; i++) {
        for (const char *at = values->items[i].text; status == BRIM_OK; at++) {
            char *copy;
            at += *at == '.';
            const size_t length = strcspn(at, ",");
            if (length == 0 || memchr(at, '/', length) != NULL) {
                return brim__fail(BRIM_STATUS_INVALID,
                                  "folder: extensions=%s: name endings such as jpg,png, or any",
                                  values->items[i].text);
            }
            if (length == 3 && memcmp(at, "any", 3) == 0 && most == 1) {
                return BRIM_OK;
            }
            status = brim__arena_take(arena, length + 1, &copy);
            for (size_t c = 0; status == BRIM_OK && c < length; c++) {
                copy[c] = (char)(at[c] >= 'A' && at[c] <= 'Z' ? at[c] - 'A' + 'a' : at[c]);
            }
            if (status == BRIM_OK) {
                extensions[folder->extension_count++] = copy;
            }
            at += length;
            if (*at == '\0') {
                break;
            }
        }
    }
    return status;
}

/* Hash of all options that determine a listing's content. */
static uint64_t hash_options(const struct brim__folder *folder) {
    const uint64_t flags = (uint64_t)folder->classes | (uint64_t)folder->recursive << 8 |
                           (uint64_t)folder->links << 9 | (uint64_t)folder->probe << 10 |
                           (uint64_t)folder->allow_empty << 11;
    uint64_t hash = brim__hash(brim_version(), strlen(brim_version()),
                               BRIM__IMAGE_BOUNDS_VERSION << 8 | BRIM__LISTING_VERSION);
    hash = brim__hash_words(hash, flags, folder->extension_count);
    for (size_t i = 0; i < folder->extension_count; i++) {
        hash = brim__hash(folder->extension[i], strlen(folder->extension[i]), hash);
    }
    for (size_t i = 0; i < folder->root_count; i++) {
        hash = brim__hash(folder->absolute[i], strlen(folder->absolute[i]), hash);
    }
    return hash;
}

/* ----------------------------------------------------------------- opening */

/* Reads the parts of the listing that the source keeps. */
static brim_status load(struct opened *opened, struct brim__opening *opening) {
    const struct brim__listing_header *header = &opened->listing.header;
    brim_status status = BRIM_OK;
    if (opened->folder.probe) {
        status = brim__probed_survey(&header->probed, opening->arena, &opened->images);
    }
    if (status == BRIM_OK && header->labelled != 0) {
        status = brim__listing_classes(&opened->listing, opening, &opened->classes);
    }
    return status;
}

/* *existing: whether an existing listing may be used; on return, whether it was used. */
static brim_status open_once(struct opened *opened, const char *path, uint64_t options,
                             struct brim__opening *opening, bool *existing) {
    struct brim__index *index = &opened->listing.index;
    brim_status status = BRIM_OK;
    *existing = *existing && brim__listing_open(&opened->listing, path, options, &opened->folder,
                                                opening) == BRIM_OK;
    if (!*existing) {
        status = brim__listing_make(path, options, &opened->folder, opening);
        if (status == BRIM_OK) { /* the next opening notices later changes of the folder */
            status = brim__listing_open(&opened->listing, path, options, NULL, opening);
        }
    }
    if (status == BRIM_OK) {
        status = load(opened, opening);
    }
    if (status != BRIM_OK) {
        brim__listing_close(&opened->listing);
        return status;
    }
    index->made = !*existing;
    index->data_path = opened->folder.root[0];
    if (opening->indexes != NULL) {
        index->next = *opening->indexes;
        *opening->indexes = index;
    }
    return BRIM_OK;
}

static brim_status open_listing(struct opened *opened, struct brim__opening *opening) {
    const uint64_t options = hash_options(&opened->folder);
    const struct brim__file directory = { .fd = -1, .path = opened->folder.absolute[0] };
    struct brim__index_recipe recipe = { .source = "folder",
                                         .options = options,
                                         .home = opened->folder.home };
    const char *path = NULL;
    bool existing = true;
    brim_status status = brim__index_settle(&directory, &recipe, ".brimlst", opening, &path,
                                            &opened->listing.index.note);
    if (status != BRIM_OK) {
        return status;
    }
    opened->folder.home = recipe.home;
    for (int i = 0; i < TRIES; i++) {
        status = open_once(opened, path, options, opening, &existing);
        if (status != BRIM_STATUS_CORRUPT) {
            break;
        }
        existing = !existing;
    }
    return status;
}

static brim_status set_fields(struct brim__source *source, const struct opened *opened) {
    const struct brim__listing_header *header = &opened->listing.header;
    struct brim__source_field *image = &source->field[0], *label = &source->field[1];
    brim__paths_field(image, 0, header->probed.largest);
    image->images = opened->images;
    source->field_count = 1;
    source->record_bytes = sizeof(struct brim__deferred);
    if (header->labelled != 0) {
        label->view =
            (struct brim__view){ .dtype = BRIM_DTYPE_I64, .offset = source->record_bytes };
        brim__view_row_major(&label->view);
        label->class_count = header->classes;
        label->class_names = opened->classes;
        source->field_count = 2;
        source->record_bytes += sizeof(int64_t);
        if (strcmp(image->name, label->name) == 0) {
            return brim__fail(BRIM_STATUS_INVALID, "folder: field= and label= are both '%s'",
                              image->name);
        }
    }
    source->pitch = source->record_bytes;
    return BRIM_OK;
}

static brim_status open_samples(const struct brim__use *use, struct brim__opening *opening,
                                struct brim__source *source, struct opened *opened) {
    struct brim__folder *folder = &opened->folder;
    brim_status status = set_roots(folder, &use->values[ARGUMENT_ROOTS], opening->arena);
    if (status == BRIM_OK) {
        status = set_extensions(folder, &use->values[ARGUMENT_EXTENSIONS], opening->arena);
    }
    if (status == BRIM_OK) {
        status = open_listing(opened, opening);
    }
    if (status != BRIM_OK) {
        return status;
    }
    const struct brim__listing_header *header = &opened->listing.header;
    uint64_t longest_root = 0;
    for (size_t i = 0; i < folder->root_count; i++) {
        longest_root = brim__max(longest_root, strlen(folder->absolute[i]));
    }
    opened->longest = longest_root + 1 + header->longest + 1;
    source->count = header->samples;
    source->identity = header->identity;
    source->is_file = true;
    source->most_run = brim__max(1, brim__min(RUN, RUN_BYTES / opened->longest));
    source->no_read_ahead = true; /* it would read paths, not the files themselves */
    source->range_bytes = source->most_run * (BRIM__LISTING_RECORD + header->longest);
    source->work_bytes = opened->longest;
    source->extra_bytes = brim__source_parsing_bytes(source);
    status = brim__paths_note(header->loose, header->probed.others, opening->arena, &source->note);
    return status == BRIM_OK ? set_fields(source, opened) : status;
}

static brim_status open_folder(const struct brim__use *use, struct brim__opening *opening,
                               struct brim__source *source) {
    struct opened *opened;
    memset(source, 0, sizeof *source);
    brim_status status =
        brim__field_name(source->field[0].name, brim__item(use, ARGUMENT_FIELD)->text);
    if (status == BRIM_OK) {
        status = brim__field_name(source->field[1].name, brim__item(use, ARGUMENT_LABEL)->text);
    }
    if (status != BRIM_OK) {
        return brim__fail_within(status, "folder");
    }
    status = brim__arena_take(opening->arena, sizeof *opened, &opened);
    if (status != BRIM_OK) {
        return status;
    }
    opened->folder = (struct brim__folder){
        .classes = (enum brim__folder_classes)brim__item(use, ARGUMENT_CLASSES)->integer,
        .recursive = brim__item(use, ARGUMENT_RECURSIVE)->integer != 0,
        .links = brim__item(use, ARGUMENT_LINKS)->integer != 0,
        .probe = brim__item(use, ARGUMENT_PROBE)->integer != 0,
        .allow_empty = brim__item(use, ARGUMENT_ALLOW_EMPTY)->integer != 0,
        .home = (enum brim__index_home)brim__item(use, ARGUMENT_INDEX)->integer,
    };
    opened->listing.index.file.fd = -1;
    source->self = opened;
    source->ops = &folder_ops;
    status = open_samples(use, opening, source, opened);
    if (status != BRIM_OK) {
        close_folder(source);
    }
    return status;
}

static const brim_argument_info arguments[] = {
    [ARGUMENT_ROOTS] = { .name = "directories",
                         .type = BRIM_TYPE_PATH,
                         .flags = BRIM_ARGUMENT_FLAG_REQUIRED | BRIM_ARGUMENT_FLAG_POSITIONAL |
                                  BRIM_ARGUMENT_FLAG_LIST,
                         .help = "one or several directories; their samples come one directory "
                                 "after the other" },
    [ARGUMENT_CLASSES] = { .name = "classes",
                           .type = BRIM_TYPE_CHOICE,
                           .fallback = "auto",
                           .choices = "auto|yes|no",
                           .help = "yes: each subdirectory is a class, and its number among the "
                                   "sorted names the label; auto: yes if the first directory has "
                                   "subdirectories" },
    [ARGUMENT_EXTENSIONS] = { .name = "extensions",
                              .type = BRIM_TYPE_WORD,
                              .flags = BRIM_ARGUMENT_FLAG_LIST,
                              .fallback = "jpg,jpeg,png,webp",
                              .help = "which files are samples, by the end of their name in any "
                                      "case; any: all" },
    [ARGUMENT_RECURSIVE] = { .name = "recursive",
                             .type = BRIM_TYPE_YESNO,
                             .fallback = "yes",
                             .help = "also files in directories further down" },
    [ARGUMENT_LINKS] = { .name = "links",
                         .type = BRIM_TYPE_YESNO,
                         .fallback = "yes",
                         .help = "follow links to files and directories; no: leave them out" },
    [ARGUMENT_ALLOW_EMPTY] = { .name = "allow_empty",
                               .type = BRIM_TYPE_YESNO,
                               .fallback = "no",
                               .help = "yes: a class without files keeps its number; no: it is "
                                       "an error" },
    [ARGUMENT_PROBE] = { .name = "probe",
                         .type = BRIM_TYPE_YESNO,
                         .fallback = "yes",
                         .help = "read each image's header when the folder is listed, so that the "
                                 "plan knows what the largest needs" },
    [ARGUMENT_INDEX] = BRIM__INDEX_ARGUMENT(
        "where the listing is kept: in the index directory, or beside the first directory"),
    [ARGUMENT_FIELD] = { .name = "field",
                         .type = BRIM_TYPE_WORD,
                         .fallback = "image",
                         .help = "name of the field with the file's bytes" },
    [ARGUMENT_LABEL] = { .name = "label",
                         .type = BRIM_TYPE_WORD,
                         .fallback = "label",
                         .help = "name of the field with the class" },
};

const struct brim__stage brim__stage_folder = {
    .info = { .name = "folder",
              .summary = "image files below directories, with their subdirectories as classes",
              .example = "folder train extensions=jpg,png",
              .room = BRIM_ROOM_SOURCE,
              .version = 1,
              .arguments = arguments,
              .argument_count = BRIM__COUNT(arguments) },
    .open = open_folder,
};

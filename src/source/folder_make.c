/*
 * folder_make.c: makes the listing of a folder.
 *
 *   1. The roots are read. With classes the names of their subdirectories are
 *      sorted and numbered.
 *   2. All directories are walked. A scratch file is their queue, and in the end the
 *      list of all directories. Files go to the sorter; a key is
 *
 *          root | class | directory 0 name        (numbers with the high byte first)
 *
 *      so that keys sort as in torchvision's ImageFolder: by class, then by the path of
 *      the directory, then by the name of the file. The zero makes a directory come
 *      before those below it.
 *   3. The sorted files are examined one by one and written to the listing, after the
 *      room for their entries; then the classes, the directories, and last the header.
 *
 * The memory is a few buffers, one byte for each class, and the table of folder_links.c. A process
 * that dies leaves at most a file with a temporary name, which is never read.
 *
 * Writing the listing must not change the folder. The opening's index directory is left out of the
 * listing. A listing beside the data is refused if it would be in one of the directories that it
 * lists.
 */
#include "source/listing.h"

#include <stdio.h>

#define SORT_MOST    ((size_t)8 << 20)
#define SORT_LEAST   ((size_t)64 << 10)
#define APPEND_BYTES ((size_t)16 << 10)
#define KEY_NUMBERS  8 /* bytes of a key before its path */
#define TELL_EVERY   64

struct maker {
    const struct brim__folder *folder;
    struct brim__opening *opening;
    const char *path; /* of the listing */
    bool labelled;
    struct brim__sorter sorter;
    struct brim__append_file directories, classes, out;
    struct brim__index_packer packer; /* of the samples' entries */
    struct brim__listing_header header;
    uint8_t *entries; /* buffer of a directory's entries */
    uint8_t *read;    /* buffer of the scratch file's reader */
    uint8_t *window;  /* of an image; NULL: not looked at */
    uint8_t *full;    /* one byte for each class: it has files */
    uint64_t found;   /* files so far */
    uint64_t others;  /* files of other extensions, and one of them */
    uint64_t loose;   /* files that lie in a root, outside of all classes */
    char other[NAME_MAX + 1];
    uint64_t reported_ns;
    struct brim__facts own;      /* of the directory that the listing lies in */
    struct brim__facts cache[2]; /* of the index directory, and of `index` in it; or zero */
    struct brim__links links;
    /* the directory that is read */
    uint32_t root, label;
    bool again; /* links led to it before */
    size_t root_bytes, relative_bytes;
    char full_path[PATH_MAX]; /* of it, or of the sample that is looked at */
    uint8_t key[KEY_NUMBERS + PATH_MAX];
};

/* ------------------------------------------------------------------- names */

static brim_status nothing_found(const struct maker *maker) {
    const struct brim__folder *folder = maker->folder;
    char extensions[200], others[NAME_MAX + 80] = "", loose[120] = "";
    brim__folder_endings(folder, extensions, sizeof extensions);
    if (maker->others > 0) {
        snprintf(others, sizeof others, "; %llu other%s, such as %.200s: give extensions=",
                 (unsigned long long)maker->others, maker->others == 1 ? "" : "s", maker->other);
    }
    if (maker->loose > 0) {
        snprintf(loose, sizeof loose,
                 "; %llu directly in it belong to no class: classes=no reads them",
                 (unsigned long long)maker->loose);
    }
    return brim__fail(BRIM_STATUS_INVALID, "%s: no files%s in %s%s%s%s", folder->root[0],
                      extensions, maker->labelled ? "its subdirectories" : "it",
                      folder->root_count > 1 ? ", nor in the other directories" : "", others,
                      loose);
}

/* ------------------------------------------------------------- directories */

static bool is_same(const struct brim__facts *a, const struct brim__facts *b) {
    return a->inode == b->inode && a->device == b->device;
}

static bool is_cache(const struct maker *maker, const struct brim__facts *facts) {
    return is_same(facts, &maker->cache[0]) || is_same(facts, &maker->cache[1]);
}

/* Reads the facts of the directories that are written to while the folder is listed. */
static brim_status find_own(struct maker *maker) {
    char path[PATH_MAX];
    const char *cache = maker->opening->index_dir;
    brim__copy_text(path, sizeof path, maker->path);
    *strrchr(path, '/') = '\0';
    const brim_status status = brim__walk_facts(path, false, &maker->own);
    for (int i = 0; i < 2 && status == BRIM_OK && cache != NULL; i++) {
        snprintf(path, sizeof path, "%s%s", cache, i == 0 ? "" : "/index");
        if (brim__walk_facts(path, false, &maker->cache[i]) != BRIM_OK) {
            maker->cache[i] = (struct brim__facts){ 0 }; /* there is none */
        }
    }
    return status;
}

static brim_status add_directory(struct maker *maker, uint32_t root, uint32_t label,
                                 const char *relative, size_t bytes,
                                 const struct brim__facts *facts, bool again) {
    const struct brim__listed listed = {
        .a = facts->hash,
        .b = (uint64_t)(facts->unsure ? BRIM__LISTED_UNSURE : BRIM__LISTED_SURE) |
             (again ? BRIM__LISTED_AGAIN : 0),
        .label = label,
        .root = (uint16_t)root,
    };
    if (maker->folder->home == BRIM__INDEX_BESIDE && is_same(facts, &maker->own)) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "%s: its listing would lie beside it in %.*s, which is listed too: give "
                          "index=cache",
                          maker->folder->root[0], (int)(strrchr(maker->path, '/') - maker->path),
                          maker->path);
    }
    maker->header.directories++;
    return brim__listed_append(&maker->directories, listed, relative, bytes);
}

/* Records a link that leads nowhere, because it may lead to a directory later, for example when a
 * disk is mounted. A link whose name makes it a sample is treated as a file instead. */
static brim_status add_nowhere(struct maker *maker, const char *relative, size_t bytes) {
    const struct brim__listed listed = { .b = BRIM__LISTED_NONE,
                                         .label = maker->label,
                                         .root = (uint16_t)maker->root };
    maker->header.directories++;
    return brim__listed_append(&maker->directories, listed, relative, bytes);
}

static bool may_be_directory(const struct maker *maker, const struct brim__entry *entry) {
    return entry->nowhere &&
           (maker->folder->extension_count == 0 || !brim__folder_wants(maker->folder, entry->name));
}

/* Makes this the current directory and sets maker->full_path to its path. */
static brim_status enter_directory(struct maker *maker, uint32_t root, uint32_t label,
                                   const char *relative, size_t bytes) {
    maker->root = root;
    maker->label = label;
    maker->root_bytes = strlen(maker->folder->absolute[root]);
    maker->relative_bytes = bytes;
    return brim__listed_path(maker->folder, root, relative, bytes, maker->full_path);
}

/* Puts "directory/name", or only the name in a root, at `to`; PATH_MAX bytes. */
static brim_status join(const struct maker *maker, const char *name, char separator, char *to,
                        size_t *bytes) {
    const char *relative = maker->full_path + maker->root_bytes + 1;
    const size_t length = strlen(name);
    const size_t before = maker->relative_bytes == 0 ? 0 : maker->relative_bytes + 1;
    if (maker->root_bytes + 1 + before + length + 1 > PATH_MAX) {
        return brim__fail(BRIM_STATUS_IO,
                          "a path of %zu bytes in %.300s..., but the system opens paths of at most "
                          "%d bytes",
                          maker->root_bytes + 1 + before + length, maker->full_path, PATH_MAX - 1);
    }
    if (before > 0) {
        memcpy(to, relative, maker->relative_bytes);
        to[maker->relative_bytes] = separator;
    }
    memcpy(to + before, name, length);
    *bytes = before + length;
    return BRIM_OK;
}

static void put_number(uint8_t *to, uint32_t number) {
    for (int i = 0; i < 4; i++) {
        to[i] = (uint8_t)(number >> (24 - 8 * i));
    }
}

static uint32_t get_number(const uint8_t *from) {
    return (uint32_t)from[0] << 24 | (uint32_t)from[1] << 16 | (uint32_t)from[2] << 8 | from[3];
}

static brim_status visit_file(struct maker *maker, const char *name) {
    size_t bytes = 0;
    if (!brim__folder_wants(maker->folder, name)) {
        if (maker->others++ == 0) {
            brim__copy_text(maker->other, sizeof maker->other, name);
        }
        return BRIM_OK;
    }
    put_number(maker->key, maker->root);
    put_number(maker->key + 4, maker->label);
    brim_status status = BRIM_OK;
    maker->key[KEY_NUMBERS] = '\0'; /* before the name of a file in the root */
    const size_t front = KEY_NUMBERS + (maker->relative_bytes == 0);
    status = join(maker, name, '\0', (char *)maker->key + front, &bytes);
    if (status == BRIM_OK) {
        status = brim__sorter_add(&maker->sorter, maker->key, front + bytes);
    }
    if (status == BRIM_OK && ++maker->found % TELL_EVERY == 0) {
        status = brim__probe_tell(maker->opening, "listing", maker->folder->root[0], maker->found,
                                  BRIM_UNKNOWN, &maker->reported_ns);
    }
    return status;
}

static brim_status visit(void *user, const struct brim__entry *entry) {
    struct maker *maker = user;
    char relative[PATH_MAX];
    size_t bytes = 0;
    bool again = false;
    brim_status status = entry->directory ? BRIM_OK : visit_file(maker, entry->name);
    if (status != BRIM_OK || !maker->folder->recursive ||
        (entry->directory ? is_cache(maker, &entry->facts) : !may_be_directory(maker, entry))) {
        return status;
    }
    status = join(maker, entry->name, '/', relative, &bytes);
    if (status == BRIM_OK && !entry->directory) {
        return add_nowhere(maker, relative, bytes);
    }
    if (status == BRIM_OK) {
        status = brim__links_enter(
            &maker->links, entry, brim__hash_words(maker->root, maker->label, 0), maker->again,
            maker->folder->root[maker->root], maker->opening->arena->budget, &again);
    }
    return status == BRIM_OK ? add_directory(maker, maker->root, maker->label, relative, bytes,
                                             &entry->facts, again)
                             : status;
}

/* Walks all directories in the scratch file, and those that are found on the way. */
static brim_status walk_all(struct maker *maker) {
    struct brim__forward_reader reader = { .file = &maker->directories.view,
                                           .buffer = maker->read,
                                           .room = APPEND_BYTES };
    brim_status status = BRIM_OK;
    while (status == BRIM_OK) {
        if (brim__forward_done(&reader)) {
            status = brim__append_flush(&maker->directories);
            reader.end = maker->directories.view.bytes;
            if (status != BRIM_OK || brim__forward_done(&reader)) {
                break;
            }
        }
        struct brim__listed listed;
        const char *relative;
        status = brim__listed_next(&reader, &listed, &relative);
        if (status == BRIM_OK && ((listed.b & BRIM__LISTED_KIND) == BRIM__LISTED_NONE ||
                                  (listed.path_bytes == 0 && maker->labelled))) {
            continue; /* none, or a root, whose files belong to no class */
        }
        if (status == BRIM_OK) {
            maker->again = (listed.b & BRIM__LISTED_AGAIN) != 0;
            status = enter_directory(maker, listed.root, listed.label, relative, listed.path_bytes);
        }
        if (status == BRIM_OK) {
            status = brim__walk(maker->full_path, maker->root_bytes, maker->folder->links,
                                maker->entries, visit, maker);
        }
    }
    return status;
}

/* ----------------------------------------------------------------- classes */

/* Adds a root's subdirectory as a possible class. The key is its name, a zero and the root. */
static brim_status visit_root(void *user, const struct brim__entry *entry) {
    struct maker *maker = user;
    if (!entry->directory) {
        maker->loose += brim__folder_wants(maker->folder, entry->name);
        return may_be_directory(maker, entry) ? add_nowhere(maker, entry->name, strlen(entry->name))
                                              : BRIM_OK;
    }
    if (is_cache(maker, &entry->facts)) {
        return BRIM_OK;
    }
    const size_t length = strlen(entry->name) + 1;
    memcpy(maker->key, entry->name, length);
    put_number(maker->key + length, maker->root);
    maker->found++;
    return brim__sorter_add(&maker->sorter, maker->key, length + 4);
}

/* Numbers the classes in their order, and adds their directories to the scratch file. */
static brim_status enter_classes(struct maker *maker) {
    char name[NAME_MAX + 1] = "";
    brim_status status = brim__sorter_sort(&maker->sorter);
    while (status == BRIM_OK) {
        const uint8_t *key;
        size_t length;
        status = brim__sorter_next(&maker->sorter, &key, &length);
        if (status != BRIM_OK) {
            break;
        }
        const char *next = (const char *)key;
        if (maker->header.classes == 0 || strcmp(name, next) != 0) {
            if (maker->header.classes == BRIM__NO_LABEL) {
                return brim__fail(BRIM_STATUS_UNSUPPORTED, "%s: more than %u classes",
                                  maker->folder->root[0], BRIM__NO_LABEL);
            }
            brim__copy_text(name, sizeof name, next);
            const struct brim__listed listed = { .label = (uint32_t)maker->header.classes++ };
            status = brim__listed_append(&maker->classes, listed, name, strlen(name));
        }
        const uint32_t root = get_number(key + length - 4);
        const uint32_t label = (uint32_t)maker->header.classes - 1;
        struct brim__facts facts = { 0 };
        if (status == BRIM_OK) {
            status = enter_directory(maker, root, label, name, strlen(name));
        }
        if (status == BRIM_OK) {
            status = brim__walk_facts(maker->full_path, true, &facts);
        }
        if (status == BRIM_OK) {
            status = add_directory(maker, root, label, name, strlen(name), &facts, false);
        }
    }
    brim__sorter_reset(&maker->sorter);
    return status == BRIM_STATUS_END ? BRIM_OK : status;
}

static brim_status read_roots(struct maker *maker) {
    const struct brim__folder *folder = maker->folder;
    brim_status status = BRIM_OK;
    maker->labelled = folder->classes != BRIM__CLASSES_NO;
    for (uint32_t i = 0; i < folder->root_count && status == BRIM_OK; i++) {
        struct brim__facts facts = { 0 };
        status = enter_directory(maker, i, BRIM__NO_LABEL, "", 0);
        if (status == BRIM_OK) {
            status = brim__walk_facts(maker->full_path, true, &facts);
        }
        if (status == BRIM_OK) {
            status = add_directory(maker, i, BRIM__NO_LABEL, "", 0, &facts, false);
        }
        if (status == BRIM_OK && maker->labelled) {
            status = brim__walk(maker->full_path, maker->root_bytes, folder->links, maker->entries,
                                visit_root, maker);
            if (i == 0 && maker->found == 0 && folder->classes == BRIM__CLASSES_AUTO) {
                maker->labelled = false;
            }
        }
    }
    if (status != BRIM_OK || !maker->labelled) {
        return status;
    }
    if (maker->found == 0) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "%s: has no subdirectories to be classes: give classes=no to read its "
                          "files without labels",
                          folder->root[0]);
    }
    maker->found = 0;
    status = enter_classes(maker);
    if (status == BRIM_OK) {
        maker->full = brim__alloc(maker->opening->arena->budget, maker->header.classes, &status);
    }
    return status;
}

/* Reports the names of classes without files. */
static brim_status check_classes(struct maker *maker) {
    struct brim__forward_reader reader = { .file = &maker->classes.view,
                                           .end = maker->classes.view.bytes,
                                           .buffer = maker->read,
                                           .room = APPEND_BYTES };
    char names[400] = "", extensions[200];
    size_t used = 0;
    uint64_t empty = 0;
    for (uint64_t i = 0; i < maker->header.classes; i++) {
        struct brim__listed listed;
        const char *name;
        const brim_status status = brim__listed_next(&reader, &listed, &name);
        if (status != BRIM_OK) {
            return status;
        }
        if (maker->full[i] == 0) {
            empty++;
            if (used + listed.path_bytes + 8 < sizeof names) {
                used += (size_t)snprintf(names + used, sizeof names - used, "%s%.*s",
                                         used == 0 ? "" : ", ", (int)listed.path_bytes, name);
            } else if (used + 5 < sizeof names) {
                memcpy(names + used, ", ...", 6);
                used = sizeof names;
            }
        }
    }
    if (empty == 0) {
        return BRIM_OK;
    }
    brim__folder_endings(maker->folder, extensions, sizeof extensions);
    return brim__fail(BRIM_STATUS_INVALID,
                      "%s: %llu of %llu classes have no files%s: %s; allow_empty=yes keeps such "
                      "classes",
                      maker->folder->root[0], (unsigned long long)empty,
                      (unsigned long long)maker->header.classes, extensions, names);
}

/* ----------------------------------------------------------------- writing */

static brim_status write_sample(struct maker *maker, const uint8_t *key, size_t length) {
    struct brim__listing_header *header = &maker->header;
    char relative[PATH_MAX];
    const uint32_t root = get_number(key);
    struct brim__listed listed = { .label = get_number(key + 4), .root = (uint16_t)root };
    enum brim__image_format format = BRIM__IMAGE_NONE;
    /* the zero between directory and name; a file in the root has nothing before it */
    const char *from = (const char *)key + KEY_NUMBERS;
    size_t bytes = length - KEY_NUMBERS;
    const bool in_root = from[0] == '\0';
    from += in_root;
    bytes -= in_root;
    assert(bytes < sizeof relative);
    memcpy(relative, from, bytes);
    char *zero = in_root ? NULL : memchr(relative, '\0', bytes);
    if (zero != NULL) {
        *zero = '/';
    }
    brim_status status = brim__listed_path(maker->folder, root, relative, bytes, maker->full_path);
    if (status == BRIM_OK) {
        status = brim__probe(&header->probed, maker->full_path, header->samples, maker->window,
                             &listed.a, &format);
    }
    if (status != BRIM_OK) {
        return status;
    }
    listed.b = format;
    if (maker->full != NULL) {
        maker->full[listed.label] = 1;
    }
    const struct brim__index_entry entry = { .offset = brim__append_end(&maker->out),
                                             .length = sizeof listed + bytes,
                                             .kind = (uint16_t)format,
                                             .a = listed.label };
    header->longest = brim__max(header->longest, bytes);
    header->identity =
        brim__hash(relative, bytes, brim__hash_words(header->identity, listed.a, listed.label));
    header->samples++;
    status = brim__listed_append(&maker->out, listed, relative, bytes);
    return status == BRIM_OK ? brim__index_pack(&maker->packer, &entry) : status;
}

static brim_status write_samples(struct maker *maker) {
    brim_status status = brim__sorter_sort(&maker->sorter);
    while (status == BRIM_OK) {
        const uint8_t *key;
        size_t length;
        status = brim__sorter_next(&maker->sorter, &key, &length);
        if (status == BRIM_OK) {
            status = write_sample(maker, key, length);
        }
        if (status == BRIM_OK && maker->header.samples % TELL_EVERY == 0) {
            status =
                brim__probe_tell(maker->opening, "looking at the files of", maker->folder->root[0],
                                 maker->header.samples, maker->found, &maker->reported_ns);
        }
    }
    return status == BRIM_STATUS_END ? BRIM_OK : status;
}

/* Copies the records of a scratch file. Their hashes change with their places. */
static brim_status copy_records(struct maker *maker, const struct brim__append_file *from) {
    struct brim__forward_reader reader = {
        .file = &from->view, .end = from->view.bytes, .buffer = maker->read, .room = APPEND_BYTES
    };
    brim_status status = BRIM_OK;
    while (status == BRIM_OK && !brim__forward_done(&reader)) {
        struct brim__listed listed;
        const char *path;
        status = brim__listed_next(&reader, &listed, &path);
        if (status == BRIM_OK) {
            listed.b &= BRIM__LISTED_KIND;
            status = brim__listed_append(&maker->out, listed, path, listed.path_bytes);
        }
    }
    return status;
}

static brim_status write_header(struct maker *maker) {
    struct brim__listing_header *header = &maker->header;
    uint8_t page[BRIM__INDEX_PAGE] = { 0 };
    header->labelled = maker->labelled;
    header->loose = maker->labelled ? maker->loose : 0;
    header->bytes = brim__append_end(&maker->out);
    header->identity = brim__hash_words(header->identity, header->samples, header->classes);
    memcpy(page, header, sizeof *header);
    brim__index_seal(page, 0);
    brim_status status = brim__append_flush(&maker->out);
    if (status == BRIM_OK) {
        status = brim__new_file_write(&maker->out.file, 0, page, sizeof page);
        maker->out.refused |= status != BRIM_OK;
    }
    return status;
}

static brim_status write_listing(struct maker *maker) {
    struct brim__listing_header *header = &maker->header;
    maker->out.view.bytes = brim__listing_records_at(maker->found);
    brim_status status = maker->found == 0 ? nothing_found(maker) : write_samples(maker);
    if (status == BRIM_OK) {
        assert(header->samples == maker->found);
        status = brim__index_packer_end(&maker->packer);
    }
    if (status == BRIM_OK) {
        status = brim__append_flush(&maker->classes);
    }
    if (status == BRIM_OK && maker->labelled && !maker->folder->allow_empty) {
        status = check_classes(maker);
    }
    header->classes_at = brim__append_end(&maker->out);
    if (status == BRIM_OK) {
        status = copy_records(maker, &maker->classes);
    }
    header->directories_at = brim__append_end(&maker->out);
    if (status == BRIM_OK) {
        status = copy_records(maker, &maker->directories);
    }
    return status == BRIM_OK ? write_header(maker) : status;
}

/* ------------------------------------------------------------------ making */

static brim_status begin_files(struct maker *maker, uint8_t *buffers) {
    struct brim__append_file *const files[] = { &maker->directories, &maker->classes, &maker->out };
    brim_status status = brim__make_directory_of(maker->path);
    maker->out.refused = status != BRIM_OK;
    for (size_t i = 0; i < BRIM__COUNT(files) && status == BRIM_OK; i++) {
        status = brim__append_begin(files[i], maker->path, files[i] != &maker->out,
                                    buffers + i * APPEND_BYTES, APPEND_BYTES);
    }
    return status;
}

static brim_status make(struct maker *maker, uint8_t *buffers) {
    brim_status status = begin_files(maker, buffers);
    if (status == BRIM_OK) {
        status = find_own(maker);
    }
    if (status == BRIM_OK) {
        status = read_roots(maker);
    }
    if (status == BRIM_OK) {
        status = walk_all(maker);
    }
    if (status == BRIM_OK) {
        status = write_listing(maker);
    }
    if (status == BRIM_OK) {
        status = brim__new_file_commit(&maker->out.file);
        maker->out.refused = status != BRIM_OK;
    }
    const bool refused = maker->out.refused || maker->packer.refused || maker->classes.refused ||
                         maker->directories.refused || maker->sorter.spill.refused;
    brim__append_abandon(&maker->out);
    brim__append_abandon(&maker->classes);
    brim__append_abandon(&maker->directories);
    brim__sorter_fini(&maker->sorter);
    brim__links_fini(&maker->links);
    brim__free(maker->full);
    return refused ? brim__index_refused(status, maker->folder->home) : status;
}

brim_status brim__listing_make(const char *path, uint64_t options,
                               const struct brim__folder *folder, struct brim__opening *opening) {
    brim_budget *budget = opening->arena->budget;
    const size_t sort = brim__index_buffer(opening, 4, SORT_LEAST, SORT_MOST);
    const size_t head = (size_t)brim__align(sizeof(struct maker), BRIM__CACHE_LINE);
    const size_t window = folder->probe ? BRIM__INPUT_WINDOW : 0;
    brim_status status;
    uint8_t *memory = brim__alloc(
        budget, head + sort + 5 * APPEND_BYTES + BRIM__WALK_BUFFER + BRIM__INDEX_PAGE + window,
        &status);
    if (memory == NULL) {
        return brim__fail_within(status, "listing %s", folder->root[0]);
    }
    struct maker *maker = (struct maker *)(void *)memory;
    uint8_t *buffers = memory + head + sort;
    maker->folder = folder;
    maker->opening = opening;
    maker->path = path;
    maker->read = buffers + 4 * APPEND_BYTES;
    maker->entries = buffers + 5 * APPEND_BYTES;
    uint8_t *const page = maker->entries + BRIM__WALK_BUFFER;
    maker->window = folder->probe ? page + BRIM__INDEX_PAGE : NULL;
    brim__index_packer_init(&maker->packer, &maker->out.file, page, 1);
    maker->reported_ns = brim__now();
    brim__listing_expect(&maker->header, options);
    maker->header.identity = brim__hash("folder", 6, 0);
    brim__sorter_init(&maker->sorter, path, memory + head, sort, buffers + 3 * APPEND_BYTES,
                      APPEND_BYTES);
    status = make(maker, buffers);
    brim__free(memory);
    return status;
}

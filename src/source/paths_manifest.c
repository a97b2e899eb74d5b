/*
 * paths_manifest.c: `files MANIFEST`: paths in the columns of a CSV file, or in the
 * keys of JSON lines.
 *
 * The manifest is read by the source of its format, which is opened here with arguments that make
 * paths bytes or texts; its ranges are used. Each path column gets a brim__deferred after the inner
 * record, which replaces the column as a field:
 *
 *     record:  the inner record | brim__deferred | brim__deferred ...
 *     work:    the inner source's | paths, one for each brim__deferred
 *
 * The inner source's scratch memory, which is temporary, overlaps the paths.
 *
 * The most that any image needs is determined when the manifest is opened for the first time, and
 * kept in a file of pages:
 *
 *     struct kept | zeros | hash      and for each path column
 *     its number | struct brim__probed | zeros | hash
 *
 * They are used while the manifest has the same size and time of change, and if their values are
 * possible.
 */
#include "base/stream.h"
#include "source/index_file.h"
#include "source/paths.h"

#define RUN_BYTES      65536 /* of paths for one fetch, if there are several */
#define WORK_ALIGNMENT 16    /* of memory for parsing (json.h) */
#define KEPT_MAGIC     "brimprb\n"
#define KEPT_VERSION   2

struct manifest {
    struct brim__source inner;
    const char *path;
    const char *root; /* absolute */
    uint32_t path_count;
    uint32_t column[BRIM__MAX_FIELDS]; /* field of each path */
    uint64_t span[BRIM__MAX_FIELDS];   /* its place in the inner record */
    uint64_t room[BRIM__MAX_FIELDS];   /* bytes of its full path with the zero */
    uint64_t rooms;                    /* their sum */
    uint64_t deferred_at;              /* place of the first brim__deferred in a record */
};

/* ---------------------------------------------------------------- fetching */

static brim_status set_paths(const struct manifest *manifest, uint8_t *record, char *room) {
    for (uint32_t i = 0; i < manifest->path_count; i++) {
        struct brim__span span;
        const struct brim__deferred deferred = { .path = room };
        memcpy(&span, record + manifest->span[i], sizeof span);
        const brim_status status =
            brim__paths_join(manifest->root, span.count == 0 ? "" : (const char *)span.data,
                             (size_t)span.count, room, (size_t)manifest->room[i]);
        if (status != BRIM_OK) {
            return status;
        }
        memcpy(record + manifest->deferred_at + i * sizeof deferred, &deferred, sizeof deferred);
        room += manifest->room[i];
    }
    return BRIM_OK;
}

static brim_status locate(const struct brim__source *source, uint64_t sample, uint64_t count,
                          struct brim__file_range *ranges, size_t most, size_t *found) {
    const struct manifest *manifest = source->self;
    return manifest->inner.ops->locate(&manifest->inner, sample, count, ranges, most, found);
}

static brim_status parse(const struct brim__source *source, const struct brim__file_range *range,
                         uint8_t *bytes, uint8_t *record, uint8_t *work) {
    const struct manifest *manifest = source->self;
    const struct brim__source *inner = &manifest->inner;
    const brim_status status = inner->ops->parse(inner, range, bytes, record, work);
    return status == BRIM_OK ? set_paths(manifest, record, (char *)work + inner->work_bytes)
                             : status;
}

static void describe(const struct brim__source *source, uint64_t sample, char *text, size_t bytes) {
    const struct manifest *manifest = source->self;
    manifest->inner.ops->describe(&manifest->inner, sample, text, bytes);
}

static void where(const struct brim__source *source, uint64_t sample, char *path, uint64_t *byte) {
    const struct manifest *manifest = source->self;
    manifest->inner.ops->where(&manifest->inner, sample, path, byte);
}

/* Returns the path of column i in a record. */
static const char *deferred_path(const struct manifest *manifest, const uint8_t *record,
                                 uint32_t i) {
    struct brim__deferred deferred;
    memcpy(&deferred, record + manifest->deferred_at + i * sizeof deferred, sizeof deferred);
    return deferred.path;
}

static brim_status path_of(const struct brim__source *source, uint64_t sample, uint32_t field,
                           brim_budget *budget, char *text) {
    const struct manifest *manifest = source->self;
    uint32_t column = 0;
    for (uint32_t i = 0; i < manifest->path_count; i++) {
        column = manifest->column[i] == field ? i : column;
    }
    const brim_call call = { .size = sizeof call, .sample = sample };
    const uint8_t *record;
    uint64_t got;
    brim_status status;
    uint8_t *buffer = brim__alloc(budget, brim__source_buffer(source, 1), &status);
    if (buffer == NULL) {
        return status;
    }
    status = brim__source_fetch(source, &call, 1, buffer, &record, &got);
    if (status == BRIM_OK) {
        brim__copy_text(text, BRIM__SAMPLE_NAME, deferred_path(manifest, record, column));
    }
    brim__free(buffer);
    return status;
}

/* The manifest's stamp is part of every sample's stamp, because labels and other columns come from
 * it. */
static brim_status stamp_samples(const struct brim__source *source, uint64_t sample,
                                 uint8_t *buffer, const struct brim__opening *opening,
                                 uint64_t *stamp) {
    const struct manifest *manifest = source->self;
    const struct brim__source *inner = &manifest->inner;
    uint64_t own = 0;
    brim_status status = inner->ops->stamp(inner, sample, buffer, opening, &own);
    if (status == BRIM_OK) {
        status = brim__paths_stamp(source, sample, buffer, opening, stamp);
        *stamp = brim__hash_words(*stamp, own, 0);
    }
    return status;
}

static void close_manifest(struct brim__source *source) {
    struct manifest *manifest = source->self;
    if (manifest->inner.ops != NULL) {
        manifest->inner.ops->close(&manifest->inner);
    }
    source->ops = NULL;
}

static const struct brim__source_ops manifest_ops = {
    .locate = locate,
    .parse = parse,
    .fetch = brim__source_fetch,
    .describe = describe,
    .where = where,
    .path = path_of,
    .stamp = stamp_samples,
    .close = close_manifest,
};

/* ------------------------------------------------------------------- probe */

struct kept {
    char magic[8];
    uint32_t version, page_bytes;
    uint64_t options;
    uint64_t data_bytes;
    int64_t data_modified_ns;
    uint64_t samples;
    uint64_t paths;
};
struct column_kept {
    uint64_t column;
    struct brim__probed probed;
};
_Static_assert(sizeof(struct kept) <= BRIM__INDEX_PAGE - 8, "one page with its hash");
_Static_assert(sizeof(struct column_kept) <= BRIM__INDEX_PAGE - 8, "one page with its hash");

/* Reads a page and copies its first `bytes` bytes to `to`. false: it is not whole. */
static bool read_page(const struct brim__file *file, uint64_t number, void *to, size_t bytes) {
    uint8_t page[BRIM__INDEX_PAGE];
    const bool whole = brim__file_read(file, number * sizeof page, page, sizeof page) == BRIM_OK &&
                       brim__index_sealed(page, 0);
    memcpy(to, page, whole ? bytes : 0);
    return whole;
}

static brim_status write_page(struct brim__new_file *file, uint64_t number, const void *from,
                              size_t bytes) {
    uint8_t page[BRIM__INDEX_PAGE] = { 0 };
    memcpy(page, from, bytes);
    brim__index_seal(page, 0);
    return brim__new_file_write(file, number * sizeof page, page, sizeof page);
}

/* probed: one for each path; it may be changed even if the result is false. */
static bool read_kept(const struct kept *kept, const char *path,
                      const struct brim__opening *opening, struct brim__probed *probed,
                      const char **note) {
    struct brim__file file;
    struct kept found;
    if (brim__file_open(&file, path) != BRIM_OK) {
        return false;
    }
    bool good = brim__index_trust(&file, opening, note) == BRIM_OK &&
                file.bytes == (1 + kept->paths) * BRIM__INDEX_PAGE &&
                read_page(&file, 0, &found, sizeof found) &&
                memcmp(&found, kept, sizeof found) == 0;
    for (uint64_t i = 0; good && i < kept->paths; i++) {
        struct column_kept column;
        good = read_page(&file, 1 + i, &column, sizeof column) && column.column == i &&
               brim__probed_plausible(&column.probed, kept->samples);
        if (good) {
            probed[i] = column.probed;
        }
    }
    brim__file_close(&file);
    return good;
}

static brim_status write_kept(const struct kept *kept, const struct brim__probed *probed,
                              const char *path, enum brim__index_home home) {
    struct brim__new_file file = { .fd = -1 };
    brim_status status = brim__make_directory_of(path);
    if (status == BRIM_OK) {
        status = brim__new_file_begin(&file, path);
    }
    if (status == BRIM_OK) {
        status = write_page(&file, 0, kept, sizeof *kept);
    }
    for (uint64_t i = 0; status == BRIM_OK && i < kept->paths; i++) {
        const struct column_kept column = { .column = i, .probed = probed[i] };
        status = write_page(&file, 1 + i, &column, sizeof column);
    }
    if (status == BRIM_OK) {
        status = brim__new_file_commit(&file);
    }
    brim__new_file_abandon(&file);
    return status == BRIM_OK ? BRIM_OK : brim__index_refused(status, home);
}

static brim_status look_at_all(const struct brim__source *source, struct brim__opening *opening,
                               uint8_t *buffer, uint8_t *window, struct brim__probed *probed) {
    const struct manifest *manifest = source->self;
    brim_status status = BRIM_OK;
    uint64_t reported_ns = brim__now();
    for (uint64_t s = 0; s < source->count && status == BRIM_OK;) {
        const brim_call call = { .size = sizeof call, .sample = s };
        const uint8_t *records = buffer;
        uint64_t run = 0;
        status = brim__source_fetch(source, &call, brim__min(source->most_run, source->count - s),
                                    buffer, &records, &run);
        if (status == BRIM_STATUS_CORRUPT) { /* it will be a bad sample */
            status = BRIM_OK;
            s++;
            continue;
        }
        for (uint64_t r = 0; r < run && status == BRIM_OK; r++, s++) {
            for (uint32_t i = 0; i < manifest->path_count && status == BRIM_OK; i++) {
                enum brim__image_format format;
                uint64_t bytes;
                status =
                    brim__probe(&probed[i], deferred_path(manifest, records + r * source->pitch, i),
                                s, window, &bytes, &format);
            }
        }
        if (status == BRIM_OK) {
            status = brim__probe_tell(opening, "looking at the files of", manifest->path, s,
                                      source->count, &reported_ns);
        }
    }
    return status;
}

/* Sets the results of probing in the fields. */
static brim_status set_fields_of(struct brim__source *source, const struct manifest *manifest,
                                 const struct brim__probed *probed, struct brim__opening *opening) {
    brim_status status = BRIM_OK;
    uint64_t others = 0;
    for (uint32_t i = 0; i < manifest->path_count && status == BRIM_OK; i++) {
        struct brim__source_field *field = &source->field[manifest->column[i]];
        brim__paths_field(field, field->view.offset, probed[i].largest);
        status = brim__probed_survey(&probed[i], opening->arena, &field->images);
        others += field->images != NULL ? probed[i].others : 0;
    }
    return status == BRIM_OK ? brim__paths_note(0, others, opening->arena, &source->note) : status;
}

/* Sets the note of the newest index, which is the manifest's. */
static void set_note(const struct brim__opening *opening, const char *note) {
    if (note != NULL && opening->indexes != NULL && *opening->indexes != NULL &&
        (*opening->indexes)->note == NULL) {
        (*opening->indexes)->note = note;
    }
}

static brim_status probe(const struct brim__use *use, struct brim__opening *opening,
                         struct brim__source *source, struct manifest *manifest) {
    struct brim__file data;
    const char *path, *note = NULL;
    brim_status status = brim__file_open(&data, manifest->path);
    if (status != BRIM_OK) {
        return status;
    }
    brim__file_close(&data); /* only its facts are needed */
    struct kept kept = { .version = KEPT_VERSION,
                         .page_bytes = BRIM__INDEX_PAGE,
                         .options = brim__hash(brim_version(), strlen(brim_version()),
                                               BRIM__IMAGE_BOUNDS_VERSION),
                         .data_bytes = data.bytes,
                         .data_modified_ns = data.modified_ns,
                         .samples = source->count,
                         .paths = manifest->path_count };
    memcpy(kept.magic, KEPT_MAGIC, sizeof kept.magic);
    kept.options = brim__hash(manifest->root, strlen(manifest->root), kept.options);
    for (uint32_t i = 0; i < manifest->path_count; i++) {
        const char *name = source->field[manifest->column[i]].name;
        kept.options = brim__hash(name, strlen(name), kept.options);
    }
    kept.options = brim__hash_words(kept.options, source->identity, 0);
    struct brim__index_recipe recipe = {
        .source = "files",
        .options = kept.options,
        .home = (enum brim__index_home)brim__item(use, BRIM__PATHS_INDEX)->integer,
    };
    status = brim__index_settle(&data, &recipe, ".brimprb", opening, &path, &note);
    if (status != BRIM_OK) {
        return status;
    }
    const uint64_t bytes = brim__align(brim__source_buffer(source, source->most_run), 64);
    const size_t each = manifest->path_count * sizeof(struct brim__probed);
    uint8_t *buffer =
        brim__alloc(opening->arena->budget, bytes + BRIM__INPUT_WINDOW + each, &status);
    if (buffer == NULL) {
        return brim__fail_within(status, "looking at the files of %s", manifest->path);
    }
    struct brim__probed *probed =
        (struct brim__probed *)(void *)(buffer + bytes + BRIM__INPUT_WINDOW);
    if (!read_kept(&kept, path, opening, probed, &note)) {
        memset(probed, 0, each);
        status = look_at_all(source, opening, buffer, buffer + bytes, probed);
        if (status == BRIM_OK) {
            status = write_kept(&kept, probed, path, recipe.home);
        }
    }
    set_note(opening, note);
    if (status == BRIM_OK) {
        status = set_fields_of(source, manifest, probed, opening);
    }
    brim__free(buffer);
    return status;
}

/* ----------------------------------------------------------------- opening */

/* Copies the inner source's fields, with those of paths as deferred ones. */
static brim_status set_fields(struct brim__source *source, struct manifest *manifest,
                              const struct brim__values *paths) {
    const struct brim__source *inner = &manifest->inner;
    source->field_count = inner->field_count;
    memcpy(source->field, inner->field, sizeof source->field);
    manifest->deferred_at = brim__align(inner->record_bytes, 8);
    for (size_t p = 0; p < paths->count; p++) {
        char name[BRIM_NAME_BYTES];
        const char *text = paths->items[p].text;
        uint32_t f = 0;
        brim__field_name_of(name, text, strlen(text));
        while (f < inner->field_count && strcmp(inner->field[f].name, name) != 0) {
            f++;
        }
        if (f == inner->field_count || inner->field[f].form == BRIM_FORM_DENSE ||
            inner->field[f].form == BRIM_FORM_RAGGED || source->field[f].deferred) {
            return brim__fail(BRIM_STATUS_INVALID, "files: path=%s: %s", text,
                              f < inner->field_count && source->field[f].deferred
                                  ? "is named twice"
                                  : "there is no such column of texts");
        }
        const uint32_t i = manifest->path_count++;
        manifest->column[i] = f;
        manifest->span[i] = inner->field[f].view.offset;
        manifest->room[i] =
            brim__min(PATH_MAX, strlen(manifest->root) + 2 + inner->field[f].view.shape.dim[0]);
        manifest->rooms += manifest->room[i];
        brim__paths_field(&source->field[f],
                          manifest->deferred_at + i * sizeof(struct brim__deferred), UINT32_MAX);
    }
    source->record_bytes = source->pitch =
        manifest->deferred_at + manifest->path_count * sizeof(struct brim__deferred);
    return BRIM_OK;
}

static brim_status set_root(const struct brim__use *use, struct manifest *manifest,
                            struct brim__opening *opening) {
    const char *slash = strrchr(manifest->path, '/');
    char root[PATH_MAX] = ".";
    if (brim__given(use, BRIM__PATHS_ROOT)) {
        return brim__paths_root(brim__item(use, BRIM__PATHS_ROOT)->text, opening->arena,
                                &manifest->root);
    }
    if (slash != NULL) {
        const size_t length = slash == manifest->path ? 1 : (size_t)(slash - manifest->path);
        if (length >= sizeof root) {
            return brim__fail(BRIM_STATUS_IO, "%.300s...: the path is too long", manifest->path);
        }
        memcpy(root, manifest->path, length);
        root[length] = '\0';
    }
    return brim__paths_root(root, opening->arena, &manifest->root);
}

static brim_status open_samples(const struct brim__use *use, struct brim__opening *opening,
                                struct brim__source *source, struct manifest *manifest) {
    struct brim__item guessed = { 0 };
    struct brim__values paths = use->values[BRIM__PATHS_PATH];
    struct brim__source *inner = &manifest->inner;
    const char *note = NULL;
    brim_status status = set_root(use, manifest, opening);
    if (status == BRIM_OK && brim__stream_is(manifest->path)) {
        return brim__fail(BRIM_STATUS_UNSUPPORTED,
                          "files: the manifest %s is a stream; write it to a file",
                          brim__stream_name(manifest->path));
    }
    if (status == BRIM_OK && paths.count == 0) {
        status = brim__manifest_guess(use, manifest->path, opening, &guessed, &note);
        paths = (struct brim__values){ .items = &guessed, .count = 1 };
    }
    if (status == BRIM_OK) {
        status = brim__manifest_inner(use, manifest->path, &paths, opening, inner);
    }
    if (status == BRIM_OK) {
        set_note(opening, note);
    }
    if (status == BRIM_OK) {
        status = set_fields(source, manifest, &paths);
    }
    if (status != BRIM_OK) {
        return status;
    }
    source->count = inner->count;
    source->is_file = true;
    source->most_run = brim__max(1, brim__min(inner->most_run, RUN_BYTES / manifest->rooms));
    source->range_bytes = inner->range_bytes;
    source->range_margin = inner->range_margin;
    source->work_bytes = inner->work_bytes + manifest->rooms;
    if (inner->work_bytes > 0 || inner->scratch_bytes > 0) {
        source->work_bytes = brim__align(source->work_bytes, WORK_ALIGNMENT);
    }
    source->scratch_bytes = inner->scratch_bytes;
    source->extra_bytes = brim__source_parsing_bytes(source);
    source->identity =
        brim__hash_words(inner->identity, brim__hash("files", 5, 0), manifest->path_count);
    return brim__item(use, BRIM__PATHS_PROBE)->integer == (int64_t)BRIM__PROBE_NO
               ? BRIM_OK
               : probe(use, opening, source, manifest);
}

brim_status brim__manifest_open(const struct brim__use *use, struct brim__opening *opening,
                                struct brim__source *source) {
    struct manifest *manifest;
    brim_status status = brim__arena_take(opening->arena, sizeof *manifest, &manifest);
    if (status == BRIM_OK) {
        status = brim__arena_text(opening->arena, brim__item(use, BRIM__PATHS_MANIFEST)->text,
                                  &manifest->path);
    }
    if (status != BRIM_OK) {
        return status;
    }
    source->self = manifest;
    source->ops = &manifest_ops;
    status = open_samples(use, opening, source, manifest);
    if (status != BRIM_OK) {
        close_manifest(source);
    }
    return status;
}

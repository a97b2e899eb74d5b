/*
 * jsonl.c: `jsonl FILES...`, one JSON object on each line.
 *
 * lines.c finds and numbers the records. The keys that become fields, and their types, are given or
 * are determined from the first records of the first file (jsonl_types.c). Every line is compared
 * with them, and one that does not agree is a bad sample.
 */
#include "source/jsonl.h"
#include "source/arguments.h"

#include "base/stream.h"

#define LOOK_RECORDS 100   /* types are worked out from this many records ... */
#define LOOK_BYTES   65536 /* ... or this many bytes of them */

enum {
    ARGUMENT_FILES,
    ARGUMENT_FIELDS,
    ARGUMENT_TYPES,
    ARGUMENT_MAX_BYTES,
    ARGUMENT_MAX_LENGTH,
    ARGUMENT_MISSING,
    ARGUMENT_INDEX,
};

/* ------------------------------------------------------------------- types */

static brim_status add_fields(struct brim__jsonl *jsonl, const struct brim__values *fields,
                              struct brim__arena *arena) {
    for (size_t i = 0; i < fields->count; i++) {
        const char *key = fields->items[i].text;
        const brim_status status = brim__jsonl_add(jsonl, arena, key, strlen(key));
        if (status != BRIM_OK) {
            return status;
        }
    }
    return BRIM_OK;
}

/* Finds the field of a type: that of "name:type", or the next one in order. */
static brim_status find_typed(struct brim__jsonl *jsonl, const char *text, uint32_t place,
                              struct brim__jsonl_field **field, const char **type) {
    const char *colon = strrchr(text, ':');
    if (colon == NULL) {
        if (place >= jsonl->count) {
            return brim__fail(BRIM_STATUS_INVALID,
                              "jsonl: types= has more types than the %u fields", jsonl->count);
        }
        *field = &jsonl->field[place];
        *type = text;
        return BRIM_OK;
    }
    const size_t length = (size_t)(colon - text);
    const char *names[BRIM__MAX_FIELDS];
    *type = colon + 1;
    for (uint32_t i = 0; i < jsonl->count; i++) {
        const struct brim__jsonl_field *known = &jsonl->field[i];
        names[i] = known->name;
        if ((known->key_length == length && memcmp(known->key, text, length) == 0) ||
            (strlen(known->name) == length && memcmp(known->name, text, length) == 0)) {
            *field = &jsonl->field[i];
            return BRIM_OK;
        }
    }
    char name[BRIM_NAME_BYTES] = "";
    if (length < sizeof name) {
        memcpy(name, text, length);
    }
    const char *nearest = brim_nearest(name, names, jsonl->count);
    return brim__fail(BRIM_STATUS_INVALID, "jsonl: types=%.60s: there is no such field%s%s%s", text,
                      nearest == NULL ? "" : "; did you mean '", nearest == NULL ? "" : nearest,
                      nearest == NULL ? "" : "'?");
}

static brim_status set_types(struct brim__jsonl *jsonl, const struct brim__values *types) {
    uint32_t place = 0;
    for (size_t i = 0; i < types->count; i++) {
        struct brim__jsonl_field *field = NULL;
        const char *type = NULL;
        brim_status status = find_typed(jsonl, types->items[i].text, place, &field, &type);
        if (status == BRIM_OK && field->typed) {
            status = brim__fail(BRIM_STATUS_INVALID, "jsonl: types= gives the field '%s' two types",
                                field->name);
        }
        if (status == BRIM_OK) {
            status = brim__jsonl_type(field, type);
        }
        if (status != BRIM_OK) {
            return status;
        }
        place = (uint32_t)(field - jsonl->field) + 1;
    }
    return BRIM_OK;
}

/* ----------------------------------------------------------------- looking */

/* Looks at one record, with temporary memory for its length. */
static brim_status look_at(struct brim__jsonl_look *look, uint8_t *line, uint64_t length) {
    const uint64_t bytes = brim__json_whole_bytes(length);
    brim_status status;
    void *memory = brim__alloc(look->arena->budget, bytes, &status);
    if (memory == NULL) {
        return brim__fail_within(status, "jsonl: parsing a record of %llu bytes",
                                 (unsigned long long)length);
    }
    status = brim__jsonl_look(look, line, length, memory, bytes);
    brim__free(memory);
    return status;
}

/* *long_ones: how many records were longer than max_bytes and not looked at. */
static brim_status look_at_all(struct brim__jsonl_look *look, struct brim__lines *lines,
                               uint64_t *long_ones) {
    uint64_t looked_bytes = 0;
    for (uint64_t i = 0; i < LOOK_RECORDS && looked_bytes < LOOK_BYTES; i++) {
        uint8_t *line;
        uint64_t length;
        brim_status status = brim__lines_peek(lines, i, &line, &length);
        if (status == BRIM_STATUS_CORRUPT) { /* too long: a bad sample later */
            ++*long_ones;
            continue;
        }
        if (status == BRIM_OK && i == 0 && brim__lines_is_gzip(line, length)) {
            return brim__fail(BRIM_STATUS_CORRUPT, "the file is " BRIM__LINES_GZIP, "jsonl");
        }
        if (status == BRIM_OK) {
            looked_bytes += length;
            status = look_at(look, line, length);
        }
        if (status != BRIM_OK) {
            return status == BRIM_STATUS_END ? BRIM_OK : status;
        }
    }
    return BRIM_OK;
}

/* The failure if no record could be looked at, or none was good. */
static brim_status nothing_good(const struct brim__jsonl_look *look,
                                const struct brim__lines *lines, uint64_t long_ones,
                                const char *path) {
    if (look->looked > 0) {
        return brim__fail(BRIM_STATUS_CORRUPT,
                          "%s: none of its first %llu records is a JSON object: %s", path,
                          (unsigned long long)look->looked, look->why);
    }
    return long_ones == 0 && brim__lines_ended(lines)
               ? brim__lines_empty(path)
               : brim__fail(BRIM_STATUS_INVALID, "%s: holds no records of at most max_bytes", path);
}

/* Adds the fields if there are none, and sets the types that are not given. */
static brim_status look_for_types(struct brim__jsonl *jsonl, struct brim__lines *lines,
                                  const struct brim__values *types, const char *path,
                                  struct brim__arena *arena) {
    const bool named = jsonl->count > 0;
    struct brim__jsonl_look look = { .jsonl = jsonl, .arena = arena };
    uint64_t long_ones = 0;
    brim_status status = look_at_all(&look, lines, &long_ones);
    if (status == BRIM_OK && look.good == 0) {
        return nothing_good(&look, lines, long_ones, path);
    }
    if (status == BRIM_OK && !named) {
        status = set_types(jsonl, types);
    }
    if (status == BRIM_OK) {
        status = brim__jsonl_decide(&look);
    }
    return status == BRIM_OK ? status : brim__fail_within(status, "%s", path);
}

/* ----------------------------------------------------------------- opening */

/* Sets the places of the fields in a record, and their descriptions in the source. Bounds are set
 * again when the longest line is known. */
static void lay_out(struct brim__source *source, struct brim__jsonl *jsonl) {
    uint64_t at = 0;
    source->field_count = jsonl->count;
    for (uint32_t i = 0; i < jsonl->count; i++) {
        struct brim__jsonl_field *field = &jsonl->field[i];
        struct brim__source_field *to = &source->field[i];
        const uint64_t element = brim_dtype_bytes(field->dtype);
        const bool span = field->form != BRIM_FORM_DENSE;
        field->at = brim__align(at, span ? 8 : element);
        at = field->at + (span ? sizeof(struct brim__span)
                               : element * brim__max(1, field->fixed) * brim__jsonl_row(field));
        memcpy(to->name, field->name, sizeof to->name);
        to->form = field->form;
        to->view = (struct brim__view){ .dtype = field->dtype, .offset = field->at };
        if (field->fixed > 0 || span) {
            to->view.shape.rank = 1;
            to->view.shape.dim[0] = brim__max(1, field->fixed);
        }
        if (field->inner > 0) {
            to->view.shape.rank = 2;
            to->view.shape.dim[1] = field->inner;
        }
        brim__view_row_major(&to->view);
        source->identity = brim__hash_words(
            source->identity, field->inner << 32 | (uint64_t)field->dtype << 8 | field->form,
            field->fixed);
        source->identity =
            brim__hash_words(source->identity, brim__hash(field->key, field->key_length, 0), 0);
    }
    source->record_bytes = at;
    source->pitch = brim__align(at, 8);
}

static void set_bounds(struct brim__source *source, const struct brim__jsonl *jsonl,
                       uint64_t bound) {
    for (uint32_t i = 0; i < jsonl->count; i++) {
        uint64_t *dim = &source->field[i].view.shape.dim[0];
        if (jsonl->field[i].form == BRIM_FORM_TEXT) {
            *dim = brim__max(1, bound);
        } else if (jsonl->field[i].form == BRIM_FORM_RAGGED) {
            /* of a line, a number takes two bytes at least, "1,"; a list of n of them 2 n + 2 */
            const uint64_t inner = jsonl->field[i].inner;
            const uint64_t most = bound / (inner > 0 ? 2 * inner + 2 : 2);
            *dim = brim__max(1, brim__min(jsonl->max_length, most));
        }
    }
}

static brim_status open_lines(const struct brim__use *use, struct brim__opening *opening,
                              struct brim__source *source) {
    struct brim__arena *arena = opening->arena;
    const struct brim__values *paths = &use->values[ARGUMENT_FILES];
    struct brim__jsonl *jsonl;
    struct brim__lines *lines;
    brim_status status = brim__arena_take(arena, sizeof *jsonl, &jsonl);
    if (status != BRIM_OK) {
        return status;
    }
    jsonl->missing = (enum brim__jsonl_missing)brim__item(use, ARGUMENT_MISSING)->integer;
    jsonl->max_length = (uint64_t)brim__item(use, ARGUMENT_MAX_LENGTH)->integer;
    const struct brim__line_format format = {
        .stage = "jsonl",
        .skip_blank = true,
        .max_bytes = (uint64_t)brim__item(use, ARGUMENT_MAX_BYTES)->integer,
        .fit = brim__jsonl_fit,
        .parse = brim__jsonl_parse,
        .self = jsonl,
    };
    status = brim__lines_init(source, &format, paths,
                              (enum brim__index_home)brim__item(use, ARGUMENT_INDEX)->integer,
                              opening, &lines);
    if (status == BRIM_OK) {
        status = add_fields(jsonl, &use->values[ARGUMENT_FIELDS], arena);
    }
    if (status == BRIM_OK && jsonl->count > 0) {
        status = set_types(jsonl, &use->values[ARGUMENT_TYPES]);
    }
    bool typed = jsonl->count > 0;
    for (uint32_t i = 0; i < jsonl->count; i++) {
        typed = typed && jsonl->field[i].typed;
    }
    if (status == BRIM_OK && !typed) {
        status = look_for_types(jsonl, lines, &use->values[ARGUMENT_TYPES],
                                brim__stream_name(paths->items[0].text), arena);
    }
    if (status != BRIM_OK) {
        return status;
    }
    source->identity =
        brim__hash_words(brim__hash("jsonl", 5, 0), (uint64_t)jsonl->missing, jsonl->max_length);
    lay_out(source, jsonl);
    status = brim__lines_finish(source, lines);
    if (status == BRIM_OK) {
        set_bounds(source, jsonl, brim__lines_bound(lines));
    }
    return status;
}

static brim_status open_jsonl(const struct brim__use *use, struct brim__opening *opening,
                              struct brim__source *source) {
    memset(source, 0, sizeof *source);
    const brim_status status = open_lines(use, opening, source);
    if (status != BRIM_OK && source->ops != NULL) {
        source->ops->close(source);
    }
    return status;
}

static const brim_argument_info arguments[] = {
    [ARGUMENT_FILES] = BRIM__FILES_ARGUMENT(
        "files of one JSON object per line, read as one; or a pipe, or - for standard input"),
    [ARGUMENT_FIELDS] = { .name = "fields",
                          .type = BRIM_TYPE_WORD,
                          .flags = BRIM_ARGUMENT_FLAG_LIST,
                          .help = "keys to read, a.b for the key b of the object a; else those of "
                                  "the first record whose values are numbers, booleans, strings, "
                                  "lists of numbers or lists of such lists of one length" },
    [ARGUMENT_TYPES] = { .name = "types",
                         .type = BRIM_TYPE_WORD,
                         .flags = BRIM_ARGUMENT_FLAG_LIST,
                         .help = "types of the fields, in their order or as key:type: text, bool, "
                                 "float32, float64, integers; lists as int64[] or, of one length, "
                                 "float32[3]; lists of lists as float32[][4]; else from the first "
                                 "100 records" },
    [ARGUMENT_MAX_BYTES] = BRIM__MAX_BYTES_ARGUMENT("line", 1073741824),
    [ARGUMENT_MAX_LENGTH] = { .name = "max_length",
                              .type = BRIM_TYPE_INTEGER,
                              .fallback = "4096",
                              .least = 1,
                              .most = 268435456,
                              .help = "longest list of varying length" },
    [ARGUMENT_MISSING] = { .name = "missing",
                           .type = BRIM_TYPE_CHOICE,
                           .fallback = "error",
                           .choices = "error|nan|zero",
                           .help = "what a null, or a key that is not there, becomes; zero makes "
                                   "texts and lists empty" },
    [ARGUMENT_INDEX] = BRIM__LINES_INDEX_ARGUMENT,
};

const struct brim__stage brim__stage_jsonl = {
    .info = { .name = "jsonl",
              .summary = "samples from files of one JSON object per line",
              .example = "jsonl train.jsonl fields=text,label types=label:int64",
              .room = BRIM_ROOM_SOURCE,
              .version = 1,
              .arguments = arguments,
              .argument_count = BRIM__COUNT(arguments) },
    .open = open_jsonl,
};

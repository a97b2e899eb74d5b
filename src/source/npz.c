/*
 * npz.c: `npz PATH array=NAME`, one of the arrays that numpy saved together.
 *
 * An npz file is a zip file of npy files. A stored member (numpy.savez) is a range of the file, and
 * is read or mapped in place. A deflated member (numpy.savez_compressed) has no samples that can be
 * read by number. It is inflated into memory when the source is loaded, and stays there. Opening
 * inflates only its header. The zip directory gives the memory for loading before anything is
 * allocated, and never more is inflated.
 *
 * The CRC-32 of a deflated member is checked, because all its bytes are read. That of a stored
 * member is not, because only the requested samples are read.
 */
#include "source/arguments.h"
#include "source/files.h"
#include "source/npy_header.h"
#include "source/zip_file.h"

#include <stdio.h>

enum { ARGUMENT_FILE, ARGUMENT_ARRAY, ARGUMENT_MAP, ARGUMENT_NAME };

#define LIST_BYTES 512

static bool ends_in_npy(const char *name) {
    const size_t length = strlen(name);
    return length > 4 && strcmp(name + length - 4, ".npy") == 0;
}

/* ------------------------------------------------------------ which member */

enum match { NO_MATCH, MATCH_WITH_SUFFIX, MATCH_EXACT };

struct choice {
    const struct brim__zip *zip;
    const char *array; /* NULL: the only .npy */
    enum match best;
    uint64_t arrays; /* members that end in .npy */
    struct brim__zip_member member;
    char list[LIST_BYTES]; /* names of the arrays, as many as fit */
    uint64_t listed;
};

/* Adds "name, " without its .npy. */
static void add_to_list(struct choice *choice, const char *name) {
    const size_t used = strlen(choice->list), length = strlen(name) - 4;
    if (choice->arrays != choice->listed || used + length + 3 > LIST_BYTES) {
        return;
    }
    snprintf(choice->list + used, LIST_BYTES - used, "%s%.*s", used > 0 ? ", " : "", (int)length,
             name);
    choice->listed++;
}

static enum match match(const char *array, const char *name) {
    const size_t length = strlen(array);
    if (strncmp(name, array, length) != 0) {
        return NO_MATCH;
    }
    return name[length] == '\0'                 ? MATCH_EXACT
           : strcmp(name + length, ".npy") == 0 ? MATCH_WITH_SUFFIX
                                                : NO_MATCH;
}

static brim_status consider(void *user, const struct brim__zip_member *member) {
    struct choice *choice = user;
    const bool npy = ends_in_npy(member->name);
    if (npy) {
        add_to_list(choice, member->name);
        choice->arrays++;
    }
    const enum match found = choice->array != NULL ? match(choice->array, member->name)
                             : npy                 ? MATCH_EXACT
                                                   : NO_MATCH;
    if (found == NO_MATCH || found < choice->best) {
        return BRIM_OK;
    }
    if (choice->array != NULL && found == choice->best) {
        return brim__fail_byte(BRIM_STATUS_CORRUPT, choice->zip->file->path, member->entry,
                               "a second member with the name %s", member->name);
    }
    choice->best = found;
    choice->member = *member;
    return BRIM_OK;
}

static brim_status choose(const struct brim__zip *zip, const char *array, struct choice *choice) {
    *choice = (struct choice){ .zip = zip, .array = array };
    const brim_status status = brim__zip_walk(zip, consider, choice);
    if (status != BRIM_OK) {
        return status;
    }
    const char *path = zip->file->path;
    if (choice->arrays == 0 && choice->best == NO_MATCH) {
        return brim__fail(BRIM_STATUS_INVALID, "%s: none of its %llu members is an array (*.npy)",
                          path, (unsigned long long)zip->members);
    }
    const char *more = choice->listed < choice->arrays ? ", ..." : "";
    if (array != NULL && choice->best == NO_MATCH) {
        const brim_status missing =
            brim__fail(BRIM_STATUS_INVALID, "%s: holds no array '%s'; it holds %llu: %s%s", path,
                       array, (unsigned long long)choice->arrays, choice->list, more);
        return brim__at_argument(missing, "array");
    }
    if (array == NULL && choice->arrays > 1) {
        const brim_status unclear = brim__fail(
            BRIM_STATUS_INVALID, "%s: holds %llu arrays: give one with array=; they are: %s%s",
            path, (unsigned long long)choice->arrays, choice->list, more);
        return brim__at_argument(unclear, "array");
    }
    return BRIM_OK;
}

/* -------------------------------------------------------------- its content */

#define ADVICE "store it uncompressed (numpy.savez instead of savez_compressed)"

/* Begins to inflate a member, the header of the npy file first. */
static brim_status begin_member(const struct brim__zip_member *member, struct brim__files *files,
                                uint64_t data, const char *label, struct brim__opening *opening) {
    if (member->bytes / BRIM__INFLATE_RATIO > member->packed_bytes) {
        return brim__fail_byte(BRIM_STATUS_CORRUPT, label, member->entry,
                               "%llu compressed bytes cannot inflate to the %llu that the "
                               "directory gives",
                               (unsigned long long)member->packed_bytes,
                               (unsigned long long)member->bytes);
    }
    const brim_status status = brim__inflater_new(opening, &files->inflater);
    return status == BRIM_OK ? brim__inflate_begin(files->inflater, BRIM__DEFLATE_RAW,
                                                   &files->part[0].file, data, member->packed_bytes)
                             : status;
}

static brim_status open_member(const struct brim__zip *zip, const struct choice *choice, bool map,
                               struct brim__opening *opening, struct brim__source *source,
                               struct brim__files *files) {
    const struct brim__zip_member *member = &choice->member;
    struct brim__files_part *part = &files->part[0];
    struct brim__npy_header header;
    char text[BRIM__ZIP_NAME_BYTES + 256];
    const char *label;
    uint64_t data = 0;
    snprintf(text, sizeof text, "%s, %s", part->file.path, member->name);
    brim_status status = brim__arena_text(opening->arena, text, &label);
    if (status == BRIM_OK) {
        status = brim__zip_locate(zip, member, &data);
    }
    if (status != BRIM_OK) {
        return status;
    }
    struct brim__npy_input input = { .file = &part->file,
                                     .begin = data,
                                     .bytes = member->packed_bytes,
                                     .path = label,
                                     .noun = "member" };
    const bool deflated = member->method == BRIM__ZIP_DEFLATED;
    if (deflated) {
        const struct brim__packed packed = { .form = BRIM__DEFLATE_RAW,
                                             .begin = data,
                                             .bytes = member->packed_bytes,
                                             .kept = member->bytes,
                                             .has_crc = true,
                                             .crc = member->crc,
                                             .label = label };
        status = begin_member(member, files, data, label, opening);
        if (status != BRIM_OK) {
            return status;
        }
        brim__files_pack(source, 0, &packed, ADVICE);
        input = (struct brim__npy_input){ .inflater = files->inflater,
                                          .bytes = member->bytes,
                                          .path = label,
                                          .noun = "inflated member" };
    }
    status = brim__npy_header_read_in(&input, &header);
    if (status == BRIM_OK) {
        status = brim__npy_check(label, &header, map || deflated);
    }
    if (status != BRIM_OK) {
        return status;
    }
    part->data = header.data;
    part->samples = header.shape.dim[0];
    brim__npy_set_source(source, &header);
    source->identity = brim__hash_words(source->identity, member->crc, member->bytes);
    return brim__files_finish(source, files, map, "samples");
}

static brim_status open_file(const struct brim__use *use, struct brim__opening *opening,
                             struct brim__source *source) {
    const bool map = brim__item(use, ARGUMENT_MAP)->integer != 0;
    const char *array =
        brim__given(use, ARGUMENT_ARRAY) ? brim__item(use, ARGUMENT_ARRAY)->text : NULL;
    struct brim__files *files;
    struct brim__zip zip;
    struct choice choice;
    const char *path;
    brim_status status = brim__files_init(source, "npz", 1, opening, &files);
    if (status == BRIM_OK) {
        status = brim__arena_text(opening->arena, brim__item(use, ARGUMENT_FILE)->text, &path);
    }
    if (status == BRIM_OK) {
        status = brim__files_open(files, 0, path);
    }
    if (status == BRIM_OK) {
        status = brim__zip_open(&zip, &files->part[0].file);
    }
    if (status == BRIM_OK) {
        status = choose(&zip, array, &choice);
    }
    if (status == BRIM_OK) {
        status = open_member(&zip, &choice, map, opening, source, files);
        status = brim__in_file(status, path);
    }
    return status;
}

static brim_status open_npz(const struct brim__use *use, struct brim__opening *opening,
                            struct brim__source *source) {
    memset(source, 0, sizeof *source);
    brim_status status =
        brim__field_name(source->field[0].name, brim__item(use, ARGUMENT_NAME)->text);
    if (status != BRIM_OK) {
        return brim__fail_within(status, "npz");
    }
    status = open_file(use, opening, source);
    if (status != BRIM_OK && source->ops != NULL) {
        source->ops->close(source);
    }
    return status;
}

static const brim_argument_info arguments[] = {
    [ARGUMENT_FILE] = BRIM__FILE_ARGUMENT(
        "an .npz file; a compressed array is held in memory, a stored one is read where it lies"),
    [ARGUMENT_ARRAY] = { .name = "array",
                         .type = BRIM_TYPE_WORD,
                         .help = "which array, with or without .npy; not needed if there is only "
                                 "one" },
    [ARGUMENT_MAP] = BRIM__MAP_ARGUMENT("a stored array instead of reading it",
                                        "; needed for stored arrays in Fortran order"),
    [ARGUMENT_NAME] = BRIM__NAME_ARGUMENT("x", ""),
};

const struct brim__stage brim__stage_npz = {
    .info = { .name = "npz",
              .summary = "samples from one of the arrays that numpy saved together",
              .example = "npz train.npz array=images name=image",
              .room = BRIM_ROOM_SOURCE,
              .version = 1,
              .arguments = arguments,
              .argument_count = BRIM__COUNT(arguments) },
    .open = open_npz,
};

/*
 * cifar.c: `cifar PATH...`, the binary files of CIFAR-10 and CIFAR-100.
 *
 *     CIFAR-10:   label | 3072 bytes of image                 3073 bytes
 *     CIFAR-100:  coarse | fine label | 3072 bytes of image   3074 bytes
 *
 * An image is 3 x 32 x 32: all of red, then green, then blue. The files have no header, so their
 * sizes decide which of the two they are. Both fit only if 3073 * 3074 divides the size; then
 * `kind` must be given.
 */
#include "source/arguments.h"
#include "source/files.h"

enum { ARGUMENT_FILES, ARGUMENT_KIND };
enum { KIND_AUTO, KIND_10, KIND_100 };

#define IMAGE_BYTES 3072

static uint64_t record_bytes(int64_t kind) {
    return (kind == KIND_100 ? 2 : 1) + IMAGE_BYTES;
}

static bool fits(const struct brim__file *file, int64_t kind) {
    return file->bytes % record_bytes(kind) == 0;
}

/* The one kind whose records fit all files. */
static brim_status find_kind(const struct brim__files *files, int64_t *kind) {
    bool ten = true, hundred = true;
    for (size_t i = 0; i < files->count; i++) {
        const struct brim__file *file = &files->part[i].file;
        ten = ten && fits(file, KIND_10);
        hundred = hundred && fits(file, KIND_100);
        if (!ten && !hundred) {
            return brim__fail(BRIM_STATUS_CORRUPT,
                              "%s: %llu bytes are not a whole number of records of CIFAR-10 (3073 "
                              "bytes) or CIFAR-100 (3074)%s",
                              file->path, (unsigned long long)file->bytes,
                              i > 0 ? ", or not of the same as in the files before it" : "");
        }
    }
    if (ten && hundred) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "%s: %llu bytes may be CIFAR-10 or CIFAR-100: give kind=10 or kind=100",
                          files->part[0].file.path, (unsigned long long)files->part[0].file.bytes);
    }
    *kind = ten ? KIND_10 : KIND_100;
    return BRIM_OK;
}

static void add_field(struct brim__source *source, const char *name, uint64_t offset, bool image) {
    struct brim__source_field *field = &source->field[source->field_count++];
    brim__copy_text(field->name, sizeof field->name, name);
    field->view = (struct brim__view){ .dtype = BRIM_DTYPE_U8, .offset = offset };
    if (image) {
        field->view.shape = (struct brim__shape){ .rank = 3, .dim = { 3, 32, 32 } };
    }
    brim__view_row_major(&field->view);
}

static brim_status open_files(const struct brim__use *use, struct brim__opening *opening,
                              struct brim__source *source) {
    const struct brim__values *paths = &use->values[ARGUMENT_FILES];
    int64_t kind = brim__item(use, ARGUMENT_KIND)->integer;
    struct brim__files *files;
    brim_status status = brim__files_init(source, "cifar", paths->count, opening, &files);
    for (size_t i = 0; i < paths->count && status == BRIM_OK; i++) {
        const char *path;
        status = brim__arena_text(opening->arena, paths->items[i].text, &path);
        if (status == BRIM_OK) {
            status = brim__files_open(files, i, path);
        }
    }
    if (status == BRIM_OK && kind == KIND_AUTO) {
        status = find_kind(files, &kind);
    }
    if (status != BRIM_OK) {
        return status;
    }
    for (size_t i = 0; i < files->count; i++) {
        struct brim__files_part *part = &files->part[i];
        if (!fits(&part->file, kind)) {
            return brim__fail_byte(BRIM_STATUS_CORRUPT, part->file.path,
                                   (part->file.bytes - part->file.bytes % record_bytes(kind)),
                                   "the file ends inside a record: %llu bytes are not a "
                                   "multiple of %llu",
                                   (unsigned long long)part->file.bytes,
                                   (unsigned long long)record_bytes(kind));
        }
        part->samples = part->file.bytes / record_bytes(kind);
    }
    add_field(source, "image", record_bytes(kind) - IMAGE_BYTES, true);
    add_field(source, "label", kind == KIND_10 ? 0 : 1, false);
    if (kind == KIND_100) {
        add_field(source, "coarse", 0, false);
    }
    source->record_bytes = source->pitch = record_bytes(kind);
    source->identity = brim__hash("cifar", 5, (uint64_t)kind);
    return brim__files_finish(source, files, false, "images");
}

static brim_status open_cifar(const struct brim__use *use, struct brim__opening *opening,
                              struct brim__source *source) {
    memset(source, 0, sizeof *source);
    const brim_status status = open_files(use, opening, source);
    if (status != BRIM_OK && source->ops != NULL) {
        source->ops->close(source);
    }
    return status;
}

static const brim_argument_info arguments[] = {
    [ARGUMENT_FILES] = BRIM__FILES_ARGUMENT("one or several files of CIFAR's binary version"),
    [ARGUMENT_KIND] = { .name = "kind",
                        .type = BRIM_TYPE_CHOICE,
                        .fallback = "auto",
                        .choices = "auto|10|100",
                        .help = "10: image and label; 100: image, label (the fine one) and coarse; "
                                "auto: by the size of the files" },
};

const struct brim__stage brim__stage_cifar = {
    .info = { .name = "cifar",
              .summary = "images and labels from the binary files of CIFAR-10 and CIFAR-100",
              .example = "cifar data_batch_1.bin data_batch_2.bin",
              .room = BRIM_ROOM_SOURCE,
              .version = 1,
              .arguments = arguments,
              .argument_count = BRIM__COUNT(arguments) },
    .open = open_cifar,
};

/*
 * npy.c: `npy PATH...`, arrays that numpy saved.
 *
 * The first dimension counts the samples. Several files are one source: their
 * samples follow each other, and dtype, byte order and the other dimensions
 * must agree. Bytes after the array are ignored, as numpy does.
 *
 * In Fortran order the sample's number varies fastest, so the elements of one
 * sample lie all over the file, a whole column apart:
 *
 *     C order:        a0 a1 a2  b0 b1 b2          record = 3 elements
 *     Fortran order:  a0 b0     a1 b1     a2 b2   record = the file from a0 on
 *
 * Without a map, each sample would require reading the whole file. In a mapped file a sample is a
 * view with strides, so such files need map=yes (for rank 1 both orders are the same). The strides
 * depend on the number of samples, so several Fortran files must have the same number.
 */
#include "source/arguments.h"
#include "source/files.h"
#include "source/npy_header.h"

enum { ARGUMENT_FILES, ARGUMENT_MAP, ARGUMENT_NAME };

bool brim__npy_scattered(const struct brim__npy_header *header) {
    return header->fortran && header->shape.rank > 1;
}

static struct brim__shape sample_shape(const struct brim__npy_header *header) {
    struct brim__shape shape = { .rank = header->shape.rank - 1 };
    for (uint32_t i = 0; i < shape.rank; i++) {
        shape.dim[i] = header->shape.dim[i + 1];
    }
    return shape;
}

brim_status brim__npy_check(const char *path, const struct brim__npy_header *header,
                            bool in_memory) {
    char text[BRIM__SHAPE_TEXT];
    if (header->shape.rank == 0) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "%s: a scalar, which has no samples: the first dimension counts them",
                          path);
    }
    for (uint32_t i = 1; i < header->shape.rank; i++) {
        if (header->shape.dim[i] == 0) {
            return brim__fail(BRIM_STATUS_INVALID, "%s: shape %s: its samples have no elements",
                              path, brim__shape_text(&header->shape, text));
        }
    }
    if (brim__npy_scattered(header) && !in_memory) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "%s: is in Fortran order, where a sample's elements are spread over the "
                          "file: give map=yes, or save it with numpy.ascontiguousarray",
                          path);
    }
    return BRIM_OK;
}

/* Checks that two files of one list agree. */
static brim_status check_agreement(const char *path, const struct brim__npy_header *header,
                                   const char *first_path, const struct brim__npy_header *first) {
    char text[BRIM__SHAPE_TEXT], first_text[BRIM__SHAPE_TEXT];
    if (header->dtype != first->dtype) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "%s has dtype %s, but %s has %s: files of one list must "
                          "agree",
                          path, brim_dtype_name(header->dtype), first_path,
                          brim_dtype_name(first->dtype));
    }
    if (header->swapped != first->swapped) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "%s is %s-endian, but %s is %s-endian: files of one list "
                          "must agree",
                          path, header->swapped ? "big" : "little", first_path,
                          first->swapped ? "big" : "little");
    }
    const struct brim__shape shape = sample_shape(header), first_shape = sample_shape(first);
    if (!brim__shape_equal(&shape, &first_shape)) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "%s has samples of shape %s, but %s of %s: files of one "
                          "list must agree in all dimensions but the first",
                          path, brim__shape_text(&shape, text), first_path,
                          brim__shape_text(&first_shape, first_text));
    }
    if (brim__npy_scattered(header) != brim__npy_scattered(first)) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "%s is in %s order, but %s in %s order: files of one list "
                          "must agree",
                          path, header->fortran ? "Fortran" : "C", first_path,
                          first->fortran ? "Fortran" : "C");
    }
    if (brim__npy_scattered(header) && header->shape.dim[0] != first->shape.dim[0]) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "%s has %llu samples, but %s has %llu: in Fortran order "
                          "the files of one list must have equally many, or be in C order",
                          path, (unsigned long long)header->shape.dim[0], first_path,
                          (unsigned long long)first->shape.dim[0]);
    }
    return BRIM_OK;
}

void brim__npy_set_source(struct brim__source *source, const struct brim__npy_header *header) {
    struct brim__view *view = &source->field[0].view;
    const uint64_t item_bytes = brim_dtype_bytes(header->dtype);
    *view = (struct brim__view){ .dtype = header->dtype,
                                 .swapped = header->swapped,
                                 .shape = sample_shape(header) };
    source->field_count = 1;
    source->identity =
        brim__hash_words(brim__hash("npy", 3, 0), (uint64_t)header->dtype,
                         (uint64_t)header->swapped | (uint64_t)brim__npy_scattered(header) << 1);
    for (uint32_t i = 1; i < header->shape.rank; i++) {
        source->identity = brim__hash_words(source->identity, i, header->shape.dim[i]);
    }
    if (!brim__npy_scattered(header)) {
        brim__view_row_major(view);
        source->record_bytes = item_bytes;
        for (uint32_t i = 0; i < view->shape.rank; i++) {
            source->record_bytes *= view->shape.dim[i];
        }
        source->pitch = source->record_bytes;
        return;
    }
    source->no_read_ahead = true; /* a sample's range is most of the file */
    /* nothing overflows: the header's size fits in 63 bits, and if it is 0 the source has no
     * samples and is refused */
    uint64_t stride = item_bytes * brim__max(1, header->shape.dim[0]);
    source->record_bytes = item_bytes;
    for (uint32_t i = 0; i < view->shape.rank; i++) {
        view->stride[i] = (int64_t)stride;
        source->record_bytes += (view->shape.dim[i] - 1) * stride;
        stride *= view->shape.dim[i];
    }
    source->pitch = item_bytes;
}

static brim_status open_files(const struct brim__use *use, struct brim__opening *opening,
                              struct brim__source *source) {
    const struct brim__values *paths = &use->values[ARGUMENT_FILES];
    const bool map = brim__item(use, ARGUMENT_MAP)->integer != 0;
    struct brim__npy_header first = { 0 };
    struct brim__files *files;
    brim_status status = brim__files_init(source, "npy", paths->count, opening, &files);
    if (status != BRIM_OK) {
        return status;
    }
    for (size_t i = 0; i < files->count; i++) {
        struct brim__npy_header header;
        const char *path;
        status = brim__arena_text(opening->arena, paths->items[i].text, &path);
        if (status == BRIM_OK) {
            status = brim__files_open(files, i, path);
        }
        if (status == BRIM_OK) {
            status = brim__npy_header_read(&files->part[i].file, &header);
        }
        if (status == BRIM_OK) {
            status = brim__npy_check(path, &header, map);
        }
        if (status == BRIM_OK && i > 0) {
            status = check_agreement(path, &header, files->part[0].file.path, &first);
        }
        if (status != BRIM_OK) {
            return status;
        }
        if (i == 0) {
            first = header;
        }
        files->part[i].data = header.data;
        files->part[i].samples = header.shape.dim[0];
    }
    brim__npy_set_source(source, &first);
    return brim__files_finish(source, files, map, "samples");
}

static brim_status open_npy(const struct brim__use *use, struct brim__opening *opening,
                            struct brim__source *source) {
    memset(source, 0, sizeof *source);
    brim_status status =
        brim__field_name(source->field[0].name, brim__item(use, ARGUMENT_NAME)->text);
    if (status != BRIM_OK) {
        return brim__fail_within(status, "npy");
    }
    status = open_files(use, opening, source);
    if (status != BRIM_OK && source->ops != NULL) {
        source->ops->close(source);
    }
    return status;
}

static const brim_argument_info arguments[] = {
    [ARGUMENT_FILES] =
        BRIM__FILES_ARGUMENT("one or several .npy files, read as one: their samples follow each "
                             "other; dtype and all dimensions but the first must agree"),
    [ARGUMENT_MAP] = BRIM__MAP_ARGUMENT("the files instead of reading them",
                                        "; needed for arrays in Fortran order"),
    [ARGUMENT_NAME] = BRIM__NAME_ARGUMENT("x", ""),
};

const struct brim__stage brim__stage_npy = {
    .info = { .name = "npy",
              .summary = "samples from arrays that numpy saved; the first dimension counts them",
              .example = "npy train-0.npy train-1.npy name=image",
              .room = BRIM_ROOM_SOURCE,
              .version = 1,
              .arguments = arguments,
              .argument_count = BRIM__COUNT(arguments) },
    .open = open_npy,
};

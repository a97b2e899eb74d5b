/*
 * idx.c: `idx PATH...`, arrays in the format of MNIST.
 *
 *     byte 0   0, 0
 *     2        type: 08 u8, 09 i8, 0B i16, 0C i32, 0D f32, 0E f64
 *     3        number of dimensions
 *     4        u32 for each dimension
 *     then     the elements, row-major
 *
 * All big-endian. The first dimension counts the samples, and the file ends with
 * the last element. Several files are one source: their samples follow each
 * other, and type and the other dimensions must agree.
 *
 * If a file begins like gzip, opening inflates only its header, which gives the size; loading
 * inflates exactly that much into memory.
 */
#include "source/arguments.h"
#include "source/files.h"

#include <stdio.h>

enum { ARGUMENT_FILES, ARGUMENT_NAME };

#define MOST_HEADER (4 + 4 * BRIM_MAX_RANK)

struct header {
    brim_dtype dtype;
    struct brim__shape shape; /* of the whole array */
    uint64_t data;            /* bytes of the header */
    uint64_t bytes;           /* of the elements, below 2^63 */
};

/* The input for a header: a file, or an inflater of it. */
struct input {
    const struct brim__file *file;
    struct brim__inflater *inflater; /* NULL: not compressed */
};

static const struct {
    uint8_t code;
    brim_dtype dtype;
} types[] = {
    { 0x08, BRIM_DTYPE_U8 },  { 0x09, BRIM_DTYPE_I8 },  { 0x0b, BRIM_DTYPE_I16 },
    { 0x0c, BRIM_DTYPE_I32 }, { 0x0d, BRIM_DTYPE_F32 }, { 0x0e, BRIM_DTYPE_F64 },
};

/* ------------------------------------------------------------------ header */

static brim_status read_bytes(const struct input *input, uint64_t at, uint8_t *to, size_t count) {
    if (input->inflater != NULL) {
        return brim__inflate_read(input->inflater, to, count);
    }
    if (at > input->file->bytes || count > input->file->bytes - at) {
        return brim__fail_byte(BRIM_STATUS_CORRUPT, input->file->path, input->file->bytes,
                               "the file ends inside the header of IDX");
    }
    return brim__file_read(input->file, at, to, count);
}

/* If the data is inflated, bytes are counted in the output. */
static brim_status read_header(const struct input *input, struct header *header) {
    const char *path = input->file->path;
    uint8_t bytes[MOST_HEADER];
    *header = (struct header){ 0 };
    brim_status status = read_bytes(input, 0, bytes, 4);
    if (status != BRIM_OK) {
        return status;
    }
    for (size_t i = 0; i < BRIM__COUNT(types); i++) {
        if (types[i].code == bytes[2]) {
            header->dtype = types[i].dtype;
        }
    }
    if (bytes[0] != 0 || bytes[1] != 0 || header->dtype == 0) {
        return brim__fail_byte(BRIM_STATUS_CORRUPT, path, 0,
                               "not an IDX file: it begins with %02x %02x %02x and not with "
                               "00 00 and one of the types 08 09 0b 0c 0d 0e",
                               bytes[0], bytes[1], bytes[2]);
    }
    header->shape.rank = bytes[3];
    if (header->shape.rank == 0 || header->shape.rank > BRIM_MAX_RANK) {
        return brim__fail_byte(
            header->shape.rank == 0 ? BRIM_STATUS_INVALID : BRIM_STATUS_UNSUPPORTED, path, 3,
            "%u dimensions; 1 to %d are supported, and the first counts the samples",
            header->shape.rank, BRIM_MAX_RANK);
    }
    header->data = 4 + 4 * (uint64_t)header->shape.rank;
    status = read_bytes(input, 4, bytes + 4, header->data - 4);
    if (status != BRIM_OK) {
        return status;
    }
    struct brim__shape solid = { .rank = header->shape.rank };
    bool empty = false;
    for (uint32_t i = 0; i < header->shape.rank; i++) {
        const uint8_t *at = bytes + 4 + 4 * i;
        header->shape.dim[i] =
            (uint64_t)at[0] << 24 | (uint64_t)at[1] << 16 | (uint64_t)at[2] << 8 | (uint64_t)at[3];
        empty = empty || header->shape.dim[i] == 0;
        solid.dim[i] = brim__max(1, header->shape.dim[i]);
        if (i > 0 && header->shape.dim[i] == 0) {
            return brim__fail(BRIM_STATUS_INVALID,
                              "%s: byte %u: dimension %u is 0: its samples have no "
                              "elements",
                              path, 4 + 4 * i, i);
        }
    }
    /* a dimension of 0 must not hide an overflow of the others */
    if (brim__shape_bytes_overflow(&solid, brim_dtype_bytes(header->dtype), &header->bytes) ||
        header->bytes > INT64_MAX) {
        char text[BRIM__SHAPE_TEXT];
        return brim__fail_byte(BRIM_STATUS_CORRUPT, path, 4,
                               "shape %s would take more than 2^63 bytes",
                               brim__shape_text(&header->shape, text));
    }
    header->bytes = empty ? 0 : header->bytes;
    return BRIM_OK;
}

/* ------------------------------------------------------------------- files */

static brim_status is_gzip(const struct brim__file *file, bool *yes) {
    uint8_t magic[2];
    *yes = false;
    if (file->bytes < sizeof magic) {
        return BRIM_OK;
    }
    const brim_status status = brim__file_read(file, 0, magic, sizeof magic);
    *yes = status == BRIM_OK && magic[0] == 0x1f && magic[1] == 0x8b;
    return status;
}

static brim_status open_plain(struct brim__files *files, size_t index, struct header *header) {
    const struct brim__file *file = &files->part[index].file;
    const struct input input = { .file = file };
    const brim_status status = read_header(&input, header);
    if (status != BRIM_OK) {
        return status;
    }
    files->part[index].data = header->data;
    if (file->bytes - header->data == header->bytes) {
        return BRIM_OK;
    }
    char text[BRIM__SHAPE_TEXT];
    const unsigned long long end = header->data + header->bytes;
    return brim__fail_byte(BRIM_STATUS_CORRUPT, file->path, file->bytes,
                           "the file ends, but %s of shape %s end at byte %llu: it was "
                           "cut short, or something follows that does not belong to it",
                           brim_dtype_name(header->dtype), brim__shape_text(&header->shape, text),
                           end);
}

/* The last bytes of a gzip file are the output size of its last member, modulo 2^32. There may be
 * several members, so less than the header promises can be right; more cannot. */
static brim_status check_trailer(const struct brim__file *file, const struct header *header) {
    const uint64_t promised = header->data + header->bytes;
    uint8_t bytes[4] = { 0 };
    if (promised > UINT32_MAX || file->bytes < sizeof bytes) {
        return BRIM_OK;
    }
    const brim_status status =
        brim__file_read(file, file->bytes - sizeof bytes, bytes, sizeof bytes);
    const uint32_t said = (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
                          (uint32_t)bytes[3] << 24;
    if (status != BRIM_OK || said <= promised) {
        return status;
    }
    return brim__fail_byte(BRIM_STATUS_CORRUPT, file->path, (file->bytes - sizeof bytes),
                           "the gzip trailer gives a length of %u, but the IDX header requires "
                           "%llu bytes: one of them is wrong, or bytes follow that do not belong "
                           "to the file",
                           said, (unsigned long long)promised);
}

static brim_status open_gzip(struct brim__source *source, size_t index, struct header *header) {
    struct brim__files *files = source->self;
    const struct brim__file *file = &files->part[index].file;
    const struct input input = { .file = file, .inflater = files->inflater };
    brim_status status =
        brim__inflate_begin(files->inflater, BRIM__DEFLATE_GZIP, file, 0, file->bytes);
    if (status == BRIM_OK) {
        status = read_header(&input, header);
    }
    if (status == BRIM_OK && header->bytes / BRIM__INFLATE_RATIO > file->bytes) {
        char text[BRIM__SHAPE_TEXT];
        status = brim__fail(BRIM_STATUS_CORRUPT,
                            "%s: byte 4 of the inflated data: shape %s needs %llu bytes, more than "
                            "a file of %llu bytes can inflate to",
                            file->path, brim__shape_text(&header->shape, text),
                            (unsigned long long)header->bytes, (unsigned long long)file->bytes);
    }
    if (status == BRIM_OK) {
        status = check_trailer(file, header);
    }
    if (status == BRIM_OK) {
        /* the memory begins with the elements, so they are aligned */
        const struct brim__packed packed = { .form = BRIM__DEFLATE_GZIP,
                                             .bytes = file->bytes,
                                             .skipped = header->data,
                                             .kept = header->bytes,
                                             .label = file->path };
        brim__files_pack(source, index, &packed, "decompress the file (gunzip)");
        files->part[index].data = 0;
    }
    return status;
}

static brim_status check_agreement(const char *path, const struct header *header,
                                   const char *first_path, const struct header *first) {
    struct brim__shape shape = header->shape;
    shape.dim[0] = first->shape.dim[0];
    if (header->dtype == first->dtype && brim__shape_equal(&shape, &first->shape)) {
        return BRIM_OK;
    }
    char text[BRIM__SHAPE_TEXT], first_text[BRIM__SHAPE_TEXT];
    return brim__fail(BRIM_STATUS_INVALID,
                      "%s has %s of shape %s, but %s has %s of shape %s: files of one list must "
                      "agree in type and in all dimensions but the first",
                      path, brim_dtype_name(header->dtype), brim__shape_text(&header->shape, text),
                      first_path, brim_dtype_name(first->dtype),
                      brim__shape_text(&first->shape, first_text));
}

static void set_source(struct brim__source *source, const struct header *header) {
    struct brim__view *view = &source->field[0].view;
    *view = (struct brim__view){ .dtype = header->dtype,
                                 .swapped = brim_dtype_bytes(header->dtype) > 1,
                                 .shape = { .rank = header->shape.rank - 1 } };
    source->identity =
        brim__hash_words(brim__hash("idx", 3, 0), (uint64_t)header->dtype, header->shape.rank);
    source->record_bytes = brim_dtype_bytes(header->dtype);
    for (uint32_t i = 0; i < view->shape.rank; i++) {
        view->shape.dim[i] = header->shape.dim[i + 1];
        source->record_bytes *= view->shape.dim[i];
        source->identity = brim__hash_words(source->identity, i, view->shape.dim[i]);
    }
    brim__view_row_major(view);
    source->pitch = source->record_bytes;
    source->field_count = 1;
}

static brim_status open_files(const struct brim__use *use, struct brim__opening *opening,
                              struct brim__source *source) {
    const struct brim__values *paths = &use->values[ARGUMENT_FILES];
    struct header first = { 0 };
    struct brim__files *files;
    brim_status status = brim__files_init(source, "idx", paths->count, opening, &files);
    if (status != BRIM_OK) {
        return status;
    }
    for (size_t i = 0; i < files->count; i++) {
        struct header header;
        const char *path;
        bool gzip = false;
        status = brim__arena_text(opening->arena, paths->items[i].text, &path);
        if (status == BRIM_OK) {
            status = brim__files_open(files, i, path);
        }
        if (status == BRIM_OK) {
            status = is_gzip(&files->part[i].file, &gzip);
        }
        if (status == BRIM_OK && gzip && files->inflater == NULL) {
            status = brim__inflater_new(opening, &files->inflater);
        }
        if (status == BRIM_OK) {
            status = gzip ? open_gzip(source, i, &header) : open_plain(files, i, &header);
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
        files->part[i].samples = header.shape.dim[0];
    }
    set_source(source, &first);
    return brim__files_finish(source, files, false, "samples");
}

static brim_status open_idx(const struct brim__use *use, struct brim__opening *opening,
                            struct brim__source *source) {
    memset(source, 0, sizeof *source);
    brim_status status =
        brim__field_name(source->field[0].name, brim__item(use, ARGUMENT_NAME)->text);
    if (status != BRIM_OK) {
        return brim__fail_within(status, "idx");
    }
    status = open_files(use, opening, source);
    if (status != BRIM_OK && source->ops != NULL) {
        source->ops->close(source);
    }
    return status;
}

static const brim_argument_info arguments[] = {
    [ARGUMENT_FILES] =
        BRIM__FILES_ARGUMENT("one or several IDX files, read as one: type and all dimensions but "
                             "the first must agree; one that is gzipped is held in memory"),
    [ARGUMENT_NAME] = BRIM__NAME_ARGUMENT("x", ""),
};

const struct brim__stage brim__stage_idx = {
    .info = { .name = "idx",
              .summary = "samples from IDX files, the format of MNIST, also gzipped",
              .example = "idx train-images-idx3-ubyte.gz name=image",
              .room = BRIM_ROOM_SOURCE,
              .version = 1,
              .arguments = arguments,
              .argument_count = BRIM__COUNT(arguments) },
    .open = open_idx,
};

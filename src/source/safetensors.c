/*
 * safetensors.c: `safetensors FILE`, rows of one tensor of a safetensors file.
 *
 * The first dimension of the tensor counts the samples, the others are a
 * sample's shape. Elements lie in the file little-endian and row-major, one
 * tensor after the other, so that a sample is a run of bytes (files.h).
 */
#include "source/arguments.h"
#include "source/files.h"
#include "source/safetensors_header.h"

enum { ARGUMENT_FILE, ARGUMENT_TENSOR, ARGUMENT_NAME, ARGUMENT_MAP };

/* Fails if the tensor cannot be a source. */
static brim_status check_tensor(const struct brim__safetensor *tensor, const char *path) {
    if (tensor->dtype == 0) {
        return brim__fail(BRIM_STATUS_UNSUPPORTED,
                          "%s: the tensor's dtype is %s, which brim does not have", path,
                          tensor->dtype_name);
    }
    if (tensor->rank == 0) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "%s: a scalar, which has no samples: the first dimension counts them",
                          path);
    }
    if (tensor->rank > BRIM_MAX_RANK) {
        return brim__fail(BRIM_STATUS_UNSUPPORTED,
                          "%s: the tensor has %u dimensions, but at most %d are supported", path,
                          tensor->rank, BRIM_MAX_RANK);
    }
    for (uint32_t i = 1; i < tensor->rank; i++) {
        if (tensor->dim[i] == 0) {
            return brim__fail(BRIM_STATUS_INVALID,
                              "%s: dimension %u of the tensor is 0: its samples have no elements",
                              path, i);
        }
    }
    return BRIM_OK;
}

/* dtype and shape of a sample. */
static brim_status set_view(struct brim__source *source, const struct brim__safetensor *tensor,
                            const char *path) {
    struct brim__view *view = &source->field[0].view;
    *view = (struct brim__view){ .dtype = tensor->dtype, .shape = { .rank = tensor->rank - 1 } };
    source->identity =
        brim__hash_words(brim__hash("safetensors", 11, 0), (uint64_t)view->dtype, tensor->data);
    for (uint32_t i = 0; i < view->shape.rank; i++) {
        view->shape.dim[i] = tensor->dim[i + 1];
        source->identity = brim__hash_words(source->identity, i, view->shape.dim[i]);
    }
    /* the whole tensor fits the file, but a tensor without samples may have any shape */
    if (brim__shape_bytes_overflow(&view->shape, brim_dtype_bytes(view->dtype),
                                   &source->record_bytes) ||
        source->record_bytes > INT64_MAX) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "%s: a sample needs more bytes than can be addressed", path);
    }
    brim__view_row_major(view);
    source->pitch = source->record_bytes;
    source->field_count = 1;
    return BRIM_OK;
}

static brim_status open_file(const struct brim__use *use, struct brim__opening *opening,
                             struct brim__source *source) {
    struct brim__safetensor tensor;
    struct brim__files *files;
    const char *path;
    brim_status status = brim__files_init(source, "safetensors", 1, opening, &files);
    if (status == BRIM_OK) {
        status = brim__arena_text(opening->arena, brim__item(use, ARGUMENT_FILE)->text, &path);
    }
    if (status == BRIM_OK) {
        status = brim__files_open(files, 0, path);
    }
    if (status == BRIM_OK) {
        const char *wanted =
            brim__given(use, ARGUMENT_TENSOR) ? brim__item(use, ARGUMENT_TENSOR)->text : NULL;
        status =
            brim__safetensors_read(&files->part[0].file, wanted, opening->arena->budget, &tensor);
    }
    if (status == BRIM_OK) {
        status = check_tensor(&tensor, path);
    }
    if (status == BRIM_OK) {
        status = set_view(source, &tensor, path);
    }
    if (status != BRIM_OK) {
        return status;
    }
    files->part[0].data = tensor.data;
    files->part[0].samples = tensor.dim[0];
    return brim__files_finish(source, files, brim__item(use, ARGUMENT_MAP)->integer != 0,
                              "samples");
}

static brim_status open_safetensors(const struct brim__use *use, struct brim__opening *opening,
                                    struct brim__source *source) {
    memset(source, 0, sizeof *source);
    brim_status status =
        brim__field_name(source->field[0].name, brim__item(use, ARGUMENT_NAME)->text);
    if (status != BRIM_OK) {
        return brim__fail_within(status, "safetensors");
    }
    status = open_file(use, opening, source);
    if (status != BRIM_OK && source->ops != NULL) {
        source->ops->close(source);
    }
    return status;
}

static const brim_argument_info arguments[] = {
    [ARGUMENT_FILE] = BRIM__FILE_ARGUMENT("a .safetensors file"),
    [ARGUMENT_TENSOR] = { .name = "tensor",
                          .type = BRIM_TYPE_WORD,
                          .help = "the tensor's name in the file; may be left out if there is "
                                  "only one" },
    [ARGUMENT_NAME] = BRIM__NAME_ARGUMENT("x", ""),
    [ARGUMENT_MAP] = BRIM__MAP_ARGUMENT("the file instead of reading it", ""),
};

const struct brim__stage brim__stage_safetensors = {
    .info = { .name = "safetensors",
              .summary =
                  "rows of one tensor of a safetensors file; its first dimension counts them",
              .example = "safetensors features.safetensors tensor=embedding",
              .room = BRIM_ROOM_SOURCE,
              .version = 1,
              .arguments = arguments,
              .argument_count = BRIM__COUNT(arguments) },
    .open = open_safetensors,
};

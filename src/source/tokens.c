/*
 * tokens.c: `tokens PATH... length=N`, windows over files of tokens.
 *
 * Window i of a file begins at token i * stride and has length + 1 tokens. Two fields are views of
 * them:
 *
 *     record:   t0  t1  t2 ... t(length-1)  t(length)
 *     x:        |<-------- length ------->|
 *     y:            |<-------- length ------->|
 *
 * With shift=no there is only x, and a window has `length` tokens. Windows do not cross a file's
 * end; a file shorter than a window has none. Nothing is converted: x and y have the file's dtype.
 * tokens_plain.c and megatron.c describe the formats.
 */
#include "source/tokens.h"
#include "source/arguments.h"
#include "source/files.h"

enum {
    ARGUMENT_FILES,
    ARGUMENT_LENGTH,
    ARGUMENT_STRIDE,
    ARGUMENT_SHIFT,
    ARGUMENT_FORMAT,
    ARGUMENT_MAP,
};

static const char *const format_names[] = {
    [BRIM__TOKENS_AUTO] = "unknown",       [BRIM__TOKENS_U16] = "headerless u16",
    [BRIM__TOKENS_U32] = "headerless u32", [BRIM__TOKENS_LLMC] = "llm.c",
    [BRIM__TOKENS_MEGATRON] = "Megatron",
};

/* Opens one file and finds its tokens. *format: the requested format; on return, that of the
 * file. */
static brim_status open_file(struct brim__files *files, size_t index, const char *given,
                             struct brim__arena *arena, enum brim__token_format *format,
                             struct brim__token_run *run) {
    const struct brim__file *file = &files->part[index].file;
    const char *path = NULL, *idx_path = NULL;
    brim_status status = BRIM_OK;
    bool yes = false;
    if (*format == BRIM__TOKENS_AUTO) {
        status = brim__megatron_guess(arena, given, &yes);
        if (yes) {
            *format = BRIM__TOKENS_MEGATRON;
        }
    }
    if (status == BRIM_OK) {
        status = *format == BRIM__TOKENS_MEGATRON
                     ? brim__megatron_paths(arena, given, &path, &idx_path)
                     : brim__arena_text(arena, given, &path);
    }
    if (status == BRIM_OK) {
        status = brim__files_open(files, index, path);
    }
    if (status != BRIM_OK) {
        return status;
    }
    if (*format == BRIM__TOKENS_AUTO) {
        status = brim__tokens_is_llmc(file, &yes);
        if (status != BRIM_OK) {
            return status;
        }
        *format = yes ? BRIM__TOKENS_LLMC : BRIM__TOKENS_U16;
    }
    switch (*format) {
    case BRIM__TOKENS_LLMC:
        return brim__tokens_llmc(file, run);
    case BRIM__TOKENS_MEGATRON:
        return brim__megatron_read(idx_path, file, run);
    default:
        return brim__tokens_plain(
            file, *format == BRIM__TOKENS_U32 ? BRIM_DTYPE_U32 : BRIM_DTYPE_U16, run);
    }
}

static brim_status open_files(const struct brim__use *use, struct brim__opening *opening,
                              struct brim__source *source) {
    const struct brim__values *paths = &use->values[ARGUMENT_FILES];
    const uint64_t length = (uint64_t)brim__item(use, ARGUMENT_LENGTH)->integer;
    const uint64_t given_stride = (uint64_t)brim__item(use, ARGUMENT_STRIDE)->integer;
    const uint64_t stride = given_stride == 0 ? length : given_stride;
    const bool shift = brim__item(use, ARGUMENT_SHIFT)->integer != 0;
    const uint64_t window = length + (shift ? 1 : 0);
    enum brim__token_format first_format = BRIM__TOKENS_AUTO;
    brim_dtype dtype = BRIM_DTYPE_U16;
    struct brim__files *files;
    brim_status status = brim__files_init(source, "tokens", paths->count, opening, &files);
    if (status != BRIM_OK) {
        return status;
    }
    for (size_t i = 0; i < files->count; i++) {
        enum brim__token_format format =
            (enum brim__token_format)brim__item(use, ARGUMENT_FORMAT)->integer;
        struct brim__token_run run;
        struct brim__files_part *part = &files->part[i];
        status = open_file(files, i, paths->items[i].text, opening->arena, &format, &run);
        if (status != BRIM_OK) {
            return status;
        }
        if (i == 0) {
            first_format = format;
            dtype = run.dtype;
        }
        if (format != first_format || run.dtype != dtype) {
            return brim__fail(BRIM_STATUS_INVALID,
                              "%s has %s tokens (format %s), but %s has %s tokens (format %s): "
                              "files of one list must agree; or say format=",
                              part->file.path, brim_dtype_name(run.dtype), format_names[format],
                              files->part[0].file.path, brim_dtype_name(dtype),
                              format_names[first_format]);
        }
        part->data = run.data;
        part->samples = run.tokens < window ? 0 : (run.tokens - window) / stride + 1;
    }

    const uint64_t item_bytes = brim_dtype_bytes(dtype);
    source->field_count = shift ? 2 : 1;
    for (uint32_t i = 0; i < source->field_count; i++) {
        struct brim__source_field *field = &source->field[i];
        brim__copy_text(field->name, sizeof field->name, i == 0 ? "x" : "y");
        field->view = (struct brim__view){ .dtype = dtype,
                                           .shape = { .rank = 1, .dim = { length } },
                                           .offset = i * item_bytes };
        brim__view_row_major(&field->view);
    }
    source->record_bytes = window * item_bytes;
    source->pitch = stride * item_bytes;
    source->identity = brim__hash_words(brim__hash("tokens", 6, (uint64_t)dtype), window, stride);
    status = brim__files_finish(source, files, brim__item(use, ARGUMENT_MAP)->integer != 0,
                                "whole windows");
    if (status == BRIM_STATUS_INVALID && source->count == 0) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "tokens: none of the %zu files (the first: %s) holds %llu tokens, which "
                          "a window of length=%llu needs%s",
                          files->count, files->part[0].file.path, (unsigned long long)window,
                          (unsigned long long)length, shift ? " with shift=yes" : "");
    }
    return status;
}

static brim_status open_tokens(const struct brim__use *use, struct brim__opening *opening,
                               struct brim__source *source) {
    memset(source, 0, sizeof *source);
    const brim_status status = open_files(use, opening, source);
    if (status != BRIM_OK && source->ops != NULL) {
        source->ops->close(source);
    }
    return status;
}

static const brim_argument_info arguments[] = {
    [ARGUMENT_FILES] = BRIM__FILES_ARGUMENT("one or several token files of one format; a Megatron "
                                            "pair is named by its .bin or its .idx"),
    [ARGUMENT_LENGTH] = { .name = "length",
                          .type = BRIM_TYPE_INTEGER,
                          .flags = BRIM_ARGUMENT_FLAG_REQUIRED,
                          .least = 1,
                          .most = 16777216, /* 2^24 */
                          .help = "tokens in x, and in y" },
    [ARGUMENT_STRIDE] = { .name = "stride",
                          .type = BRIM_TYPE_INTEGER,
                          .fallback = "0",
                          .least = 0,
                          .most = 1099511627776.0, /* 2^40 */
                          .help = "tokens from the beginning of one window to that of the next; 0: "
                                  "`length`, so that no token of x comes twice" },
    [ARGUMENT_SHIFT] = { .name = "shift",
                         .type = BRIM_TYPE_YESNO,
                         .fallback = "yes",
                         .help = "yes: also y, which is x shifted by one token; no: only x" },
    [ARGUMENT_FORMAT] = { .name = "format",
                          .type = BRIM_TYPE_CHOICE,
                          .fallback = "auto",
                          .choices = "auto|u16|u32|llmc|megatron",
                          .help = "u16, u32: only tokens; llmc: after llm.c's header; "
                                  "megatron: a .bin with an .idx; auto: Megatron if there is an "
                                  "index, llm.c if there is its magic, else u16" },
    [ARGUMENT_MAP] = BRIM__MAP_ARGUMENT("the files instead of reading them", ""),
};

const struct brim__stage brim__stage_tokens = {
    .info = { .name = "tokens",
              .summary = "windows of tokens from nanoGPT, llm.c and Megatron files",
              .example = "tokens train.bin length=1024",
              .room = BRIM_ROOM_SOURCE,
              .version = 1,
              .arguments = arguments,
              .argument_count = BRIM__COUNT(arguments) },
    .open = open_tokens,
};

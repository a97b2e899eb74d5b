/*
 * npy_writer.c: the files of `brim cat --npy`.
 *
 * How many samples there are is known at the end, so the header takes a fixed
 * number of bytes, blank at first, and is written when the count is known:
 *
 *     "\x93NUMPY" 1 0 | length of the text, 16 bits | text, blanks, \n | elements
 *     |<------------------------- HEADER_BYTES ----------------------->|
 *
 * Field names may come from the data (the first line of a CSV file, say). One that
 * could leave the folder, or meet another field's files, is refused.
 */
#include "npy_writer.h"

#include "value.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEADER_BYTES 256 /* a multiple of 64 that the longest shape fits into */
#define BUFFER_BYTES (256 << 10)

struct output {
    FILE *file;
    char path[PATH_MAX]; /* as it will be called */
    brim_output *output; /* what becomes it; NULL: none, or it has */
};

struct column {
    char name[BRIM_NAME_BYTES];
    brim_form form;
    brim_dtype dtype;
    uint32_t rank; /* of one sample */
    int64_t shape[BRIM_MAX_RANK];
    bool begun;    /* the shape is that of the first sample */
    int64_t items; /* not dense: in the first dimension, over all samples */
    struct output values;
    struct output offsets; /* not dense only */
};

struct npy_writer {
    uint64_t samples;
    uint32_t count;
    struct column columns[];
};

static brim_status fail(struct failure *failure, brim_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static brim_status fail(struct failure *failure, brim_status status, const char *format, ...) {
    *failure = (struct failure){ .status = status };
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(failure->text, sizeof failure->text, format, arguments);
    va_end(arguments);
    return status;
}

/* numpy's name of a type; NULL: it has none. */
static const char *type_code(brim_dtype dtype) {
    static const char *const codes[] = {
        [BRIM_DTYPE_BOOL] = "|b1", [BRIM_DTYPE_U8] = "|u1",    [BRIM_DTYPE_I8] = "|i1",
        [BRIM_DTYPE_U16] = "<u2",  [BRIM_DTYPE_I16] = "<i2",   [BRIM_DTYPE_U32] = "<u4",
        [BRIM_DTYPE_I32] = "<i4",  [BRIM_DTYPE_U64] = "<u8",   [BRIM_DTYPE_I64] = "<i8",
        [BRIM_DTYPE_F16] = "<f2",  [BRIM_DTYPE_F32] = "<f4",   [BRIM_DTYPE_F64] = "<f8",
        [BRIM_DTYPE_C64] = "<c8",  [BRIM_DTYPE_C128] = "<c16",
    };
    return (size_t)dtype < sizeof codes / sizeof codes[0] ? codes[dtype] : NULL;
}

/* ------------------------------------------------------------------ one file */

static brim_status output_open(struct output *output, const char *folder, const char *name,
                               const char *suffix, struct failure *failure) {
    const int length = snprintf(output->path, sizeof output->path, "%s/%s%s", folder, name, suffix);
    static const char blank[HEADER_BYTES];
    if (length < 0 || (size_t)length >= sizeof output->path) {
        return fail(failure, BRIM_STATUS_IO, "cannot write %s/%s%s: %s", folder, name, suffix,
                    strerror(ENAMETOOLONG));
    }
    if (brim_output_new(output->path, &output->output) != BRIM_OK) {
        return fail(failure, BRIM_STATUS_IO, "cannot write: %s", brim_detail());
    }
    output->file = stream_of(output->output);
    if (output->file == NULL) {
        return fail(failure, BRIM_STATUS_IO, "cannot write %s: %s", output->path, strerror(errno));
    }
    (void)setvbuf(output->file, NULL, _IOFBF, BUFFER_BYTES);
    (void)fwrite(blank, 1, sizeof blank, output->file); /* a failure shows at the end */
    return BRIM_OK;
}

static brim_status output_failed(const struct output *output, struct failure *failure) {
    return fail(failure, BRIM_STATUS_IO, "cannot write %s: %s", output->path, strerror(errno));
}

/* The header, and the file under its own name. `shape` without the first dimension. */
static brim_status output_finish(struct output *output, brim_dtype dtype, uint64_t first,
                                 const int64_t *shape, uint32_t rank, struct failure *failure) {
    char header[HEADER_BYTES + 1] = "\x93NUMPY\x01";
    const size_t begin = 10, text_bytes = HEADER_BYTES - begin;
    header[8] = (char)(text_bytes & 0xff);
    header[9] = (char)(text_bytes >> 8);
    size_t at = begin;
    at += (size_t)snprintf(header + at, sizeof header - at,
                           "{'descr': '%s', 'fortran_order': False, 'shape': (%" PRIu64 ",",
                           type_code(dtype), first);
    for (uint32_t d = 0; d < rank; d++) {
        at += (size_t)snprintf(header + at, sizeof header - at, " %" PRId64 ",", shape[d]);
    }
    at += (size_t)snprintf(header + at, sizeof header - at, "), }");
    memset(header + at, ' ', HEADER_BYTES - at);
    header[HEADER_BYTES - 1] = '\n';

    const bool good = ferror(output->file) == 0 && fseeko(output->file, 0, SEEK_SET) == 0 &&
                      fwrite(header, 1, HEADER_BYTES, output->file) == HEADER_BYTES;
    const int closed = fclose(output->file);
    output->file = NULL;
    if (!good || closed != 0) {
        return output_failed(output, failure);
    }
    brim_output *whole = output->output;
    output->output = NULL;
    return brim_output_commit(whole) == BRIM_OK
               ? BRIM_OK
               : fail(failure, BRIM_STATUS_IO, "cannot write: %s", brim_detail());
}

static void output_close(struct output *output) {
    if (output->file != NULL) {
        fclose(output->file);
    }
    brim_output_free(output->output);
}

/* --------------------------------------------------------------- the columns */

static brim_status check_name(const struct npy_writer *writer, const char *name,
                              struct failure *failure) {
    if (name[0] == '\0' || name[0] == '.' || strchr(name, '/') != NULL) {
        return fail(failure, BRIM_STATUS_INVALID,
                    "the field '%s' cannot be the name of a file: give it another name", name);
    }
    static const char offsets[] = ".offsets";
    for (uint32_t i = 0; i < writer->count; i++) {
        const char *other = writer->columns[i].name;
        const size_t length = strlen(other);
        if (strncmp(name, other, length) == 0 && strcmp(name + length, offsets) == 0 &&
            writer->columns[i].form != BRIM_FORM_DENSE) {
            return fail(failure, BRIM_STATUS_INVALID,
                        "the field %s and the offsets of %s would be one file: give one of them "
                        "another name",
                        name, other);
        }
    }
    return BRIM_OK;
}

static brim_status column_open(struct column *column, const char *folder, struct failure *failure) {
    if (type_code(column->dtype) == NULL) {
        return fail(failure, BRIM_STATUS_UNSUPPORTED,
                    "the field %s is %s, which numpy does not have: add cast float32 on=%s",
                    column->name, brim_dtype_name(column->dtype), column->name);
    }
    brim_status status = output_open(&column->values, folder, column->name, ".npy", failure);
    if (status == BRIM_OK && column->form != BRIM_FORM_DENSE) {
        status = output_open(&column->offsets, folder, column->name, ".offsets.npy", failure);
        if (status == BRIM_OK) {
            const int64_t zero = 0;
            (void)fwrite(&zero, sizeof zero, 1, column->offsets.file);
        }
    }
    return status;
}

struct npy_writer *npy_writer_new(const char *folder, const brim_plan *plan,
                                  struct failure *failure) {
    if (mkdir(folder, 0777) != 0 && errno != EEXIST) {
        (void)fail(failure, BRIM_STATUS_IO, "cannot make the directory %s: %s", folder,
                   strerror(errno));
        return NULL;
    }
    const uint32_t count = brim_plan_get(plan)->field_count;
    struct npy_writer *writer = take(1, sizeof *writer + (size_t)count * sizeof writer->columns[0]);
    writer->count = count;
    for (uint32_t i = 0; i < count; i++) {
        const brim_plan_field *field = brim_plan_field_at(plan, i);
        struct column *column = &writer->columns[i];
        snprintf(column->name, sizeof column->name, "%s", field->name);
        column->form = field->form;
        column->dtype = field->dtype;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (check_name(writer, writer->columns[i].name, failure) != BRIM_OK ||
            column_open(&writer->columns[i], folder, failure) != BRIM_OK) {
            npy_writer_close(writer);
            return NULL;
        }
    }
    return writer;
}

static bool write_run(void *user, const unsigned char *data, uint64_t count) {
    const struct column *column = user;
    return fwrite(data, brim_dtype_bytes(column->dtype), count, column->values.file) == count;
}

/* Whether a sample has the shape of those before it, ragged length aside. */
static bool fits(const struct column *column, const struct value *value) {
    for (uint32_t d = column->form == BRIM_FORM_DENSE ? 0 : 1; d < column->rank; d++) {
        if (column->shape[d] != value->shape[d]) {
            return false;
        }
    }
    return column->rank == value->rank;
}

static brim_status column_add(struct column *column, const struct value *value,
                              struct failure *failure) {
    if (!column->begun) {
        column->rank = value->rank;
        memcpy(column->shape, value->shape, sizeof column->shape);
        column->begun = true;
    } else if (!fits(column, value)) {
        char before[SHAPE_TEXT], now[SHAPE_TEXT];
        return fail(failure, BRIM_STATUS_INVALID,
                    "the samples of %s differ in shape, which a .npy file cannot hold: %s, then "
                    "%s; leave out pad, or give it to=",
                    column->name, shape_text(column->shape, column->rank, before),
                    shape_text(value->shape, value->rank, now));
    }
    if (!value_walk(value, write_run, column)) {
        return output_failed(&column->values, failure);
    }
    if (column->form != BRIM_FORM_DENSE) {
        column->items += value->shape[0];
        if (fwrite(&column->items, sizeof column->items, 1, column->offsets.file) != 1) {
            return output_failed(&column->offsets, failure);
        }
    }
    return BRIM_OK;
}

brim_status npy_writer_add(struct npy_writer *writer, const brim_batch *batch, uint64_t row,
                           struct failure *failure) {
    brim_status status = BRIM_OK;
    for (uint32_t i = 0; i < writer->count && status == BRIM_OK; i++) {
        const struct value value = value_of(brim_batch_field_at(batch, i), row);
        status = column_add(&writer->columns[i], &value, failure);
    }
    writer->samples += status == BRIM_OK;
    return status;
}

brim_status npy_writer_finish(struct npy_writer *writer, struct failure *failure) {
    brim_status status = BRIM_OK;
    for (uint32_t i = 0; i < writer->count && status == BRIM_OK; i++) {
        struct column *column = &writer->columns[i];
        const bool dense = column->form == BRIM_FORM_DENSE;
        /* the other dimensions of a ragged field's samples come after its first */
        const uint32_t skip = dense || column->rank == 0 ? 0 : 1;
        status = output_finish(&column->values, column->dtype,
                               dense ? writer->samples : (uint64_t)column->items,
                               column->shape + skip, column->rank - skip, failure);
        if (status == BRIM_OK && !dense) {
            status = output_finish(&column->offsets, BRIM_DTYPE_I64, writer->samples + 1, NULL, 0,
                                   failure);
        }
    }
    return status;
}

void npy_writer_close(struct npy_writer *writer) {
    if (writer != NULL) {
        for (uint32_t i = 0; i < writer->count; i++) {
            output_close(&writer->columns[i].values);
            output_close(&writer->columns[i].offsets);
        }
        free(writer);
    }
}

/*
 * rows.c: runs pipelines for tests that compare what comes out with other software.
 *
 *     rows MEMORY_BYTES THREADS CACHE_DIR
 *
 * Reads lines "BATCHES <tab> PIPELINE" from standard input, one process for many
 * pipelines. For each it writes the batches of the first epoch, BATCHES at most:
 *
 *     batch ROWS FIELDS
 *     field NAME DTYPE BYTES DIM DIM ...      and BYTES bytes, for each field; offsets of
 *                                             a field that is not dense come before them
 *     end                                     or: error STATUS DETAIL
 */
#include <brim.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE 65536

static void write_field(const brim_field *field, uint64_t rows) {
    uint64_t bytes = field->bytes;
    if (field->form != BRIM_FORM_DENSE) {
        bytes += (rows + 1) * sizeof(int64_t);
    }
    printf("field %s %s %" PRIu64, field->name, brim_dtype_name(field->dtype), bytes);
    for (uint32_t i = 0; i < field->rank; i++) {
        printf(" %" PRId64, field->shape[i]);
    }
    putchar('\n');
    if (field->form != BRIM_FORM_DENSE) {
        fwrite(field->offsets, sizeof(int64_t), rows + 1, stdout);
    }
    fwrite(field->data, 1, field->bytes, stdout);
}

static void write_batch(const brim_batch *batch) {
    const brim_batch_info *info = brim_batch_get(batch);
    printf("batch %" PRIu64 " %u\n", info->rows, info->field_count);
    for (uint32_t i = 0; i < info->field_count; i++) {
        write_field(brim_batch_field_at(batch, i), info->rows);
    }
}

static brim_status run(brim_runtime *runtime, const char *text, unsigned long batches) {
    brim_pipeline *pipeline = NULL;
    brim_loader *loader = NULL;
    const brim_open_options options = BRIM_OPEN_OPTIONS_INIT;
    brim_status status = brim_pipeline_parse(text, &pipeline);
    if (status == BRIM_OK) {
        status = brim_loader_open(runtime, pipeline, &options, &loader);
    }
    for (unsigned long i = 0; status == BRIM_OK && i < batches; i++) {
        brim_batch *batch;
        status = brim_loader_next(loader, -1, &batch);
        if (status == BRIM_OK) {
            write_batch(batch);
            brim_batch_release(batch);
        }
    }
    brim_loader_close(loader);
    brim_pipeline_free(pipeline);
    return status == BRIM_STATUS_END ? BRIM_OK : status;
}

int main(int count, char **words) {
    static char line[LINE];
    brim_runtime *runtime;
    if (count != 4) {
        fprintf(stderr, "usage: rows MEMORY_BYTES THREADS CACHE_DIR\n");
        return 2;
    }
    brim_runtime_options options = BRIM_RUNTIME_OPTIONS_INIT;
    options.host_bytes = strtoull(words[1], NULL, 10);
    options.threads = (int32_t)strtol(words[2], NULL, 10);
    options.index_dir = words[3];
    if (brim_runtime_new(&options, &runtime) != BRIM_OK) {
        fprintf(stderr, "rows: %s\n", brim_detail());
        return 1;
    }
    while (fgets(line, sizeof line, stdin) != NULL) {
        char *text;
        const unsigned long batches = strtoul(line, &text, 10);
        text[strcspn(text, "\n")] = '\0';
        const brim_status status = run(runtime, text + (*text == '\t'), batches);
        if (status == BRIM_OK) {
            puts("end");
        } else {
            printf("error %s %s\n", brim_status_name(status), brim_detail());
        }
        fflush(stdout);
    }
    brim_runtime_free(runtime);
    return 0;
}

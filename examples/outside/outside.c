/*
 * outside.c: a program of a project of its own that uses an installed brim.
 *
 * Prints the version of the header and of the library that is loaded, takes one
 * epoch, and adds the numbers up.
 */
#include <brim.h>

#include <inttypes.h>
#include <stdio.h>

int main(void) {
    brim_runtime_options limits = BRIM_RUNTIME_OPTIONS_INIT;
    limits.host_bytes = 2 << 20;
    brim_runtime *runtime = NULL;
    brim_pipeline *pipeline = NULL;
    brim_loader *loader = NULL;
    brim_batch *batch;
    int64_t sum = 0;
    brim_status status = brim_runtime_new(&limits, &runtime);
    if (status == BRIM_OK) {
        status = brim_pipeline_parse("range 1000 | shuffle seed=7 | batch 64", &pipeline);
    }
    if (status == BRIM_OK) {
        status = brim_loader_open(runtime, pipeline, NULL, &loader);
    }
    while (status == BRIM_OK &&
           (status = brim_loader_next(loader, BRIM_FOREVER, &batch)) == BRIM_OK) {
        const brim_field *field = brim_batch_find(batch, "index");
        const int64_t *numbers = field->data;
        for (int64_t row = 0; row < field->shape[0]; row++) {
            sum += numbers[row];
        }
        brim_batch_release(batch);
    }
    if (status != BRIM_STATUS_END) {
        fprintf(stderr, "outside: %s\n", brim_detail());
    } else {
        printf("brim %d.%d.%d, library %s, sum %" PRId64 "\n", BRIM_VERSION_MAJOR,
               BRIM_VERSION_MINOR, BRIM_VERSION_PATCH, brim_version(), sum);
    }
    brim_loader_close(loader);
    brim_pipeline_free(pipeline);
    brim_runtime_free(runtime);
    return status == BRIM_STATUS_END && sum == 499500 ? 0 : 1;
}

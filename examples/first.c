/*
 * first.c: a first program. An array of the program, in random order, in batches of 64, inside a
 * budget of 1 MiB.
 */
#include <brim.h>

#include <stdio.h>

int main(void) {
    static float numbers[1000];
    for (int i = 0; i < 1000; i++) {
        numbers[i] = (float)i;
    }

    /* What the pipeline's text calls @numbers; the array is read in place. */
    const int64_t shape[] = { 1000 };
    const brim_binding binding = brim_bind_array("numbers", numbers, BRIM_DTYPE_F32, 1, shape);

    brim_runtime_options limits = BRIM_RUNTIME_OPTIONS_INIT;
    limits.host_bytes = 1 << 20;
    brim_open_options options = BRIM_OPEN_OPTIONS_INIT;
    options.bindings = &binding;
    options.binding_count = 1;

    brim_runtime *runtime = NULL;
    brim_loader *loader = NULL;
    brim_status status = brim_runtime_new(&limits, &runtime);
    if (status == BRIM_OK) {
        status = brim_loader_open_text(runtime, "array @numbers | shuffle seed=7 | batch 64",
                                       &options, &loader);
    }

    double sum = 0;
    brim_batch *batch;
    while (status == BRIM_OK &&
           (status = brim_loader_next(loader, BRIM_FOREVER, &batch)) == BRIM_OK) {
        const brim_field *field = brim_batch_find(batch, "numbers");
        const float *values = field->data;
        printf("%2d numbers: %3.0f %3.0f %3.0f ...\n", (int)field->shape[0], values[0], values[1],
               values[2]);
        for (int64_t i = 0; i < field->shape[0]; i++) {
            sum += values[i];
        }
        brim_batch_release(batch);
    }

    if (status == BRIM_STATUS_END) {
        printf("the sum of all is %.0f\n", sum);
    } else {
        fprintf(stderr, "%s\n", brim_detail());
    }
    brim_loader_close(loader);
    brim_runtime_free(runtime);
    return status == BRIM_STATUS_END ? 0 : 1;
}

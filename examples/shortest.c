/*
 * shortest.c: as little as a program needs; it is also at the top of brim.h.
 */
#include <brim.h>
#include <stdio.h>

int main(void) {
    brim_runtime *runtime = NULL;
    brim_loader *loader = NULL;
    brim_batch *batch = NULL;
    brim_status status = brim_runtime_new(NULL, &runtime);
    if (status == BRIM_OK)
        status =
            brim_loader_open_text(runtime, "range 1000 name=x | shuffle | batch 64", NULL, &loader);
    while (status == BRIM_OK &&
           (status = brim_loader_next(loader, BRIM_FOREVER, &batch)) == BRIM_OK) {
        const brim_field *x = brim_batch_find(batch, "x");
        printf("%d numbers\n", (int)x->shape[0]);
        brim_batch_release(batch);
    }
    if (status != BRIM_STATUS_END) // once at the end of each epoch
        fprintf(stderr, "%s\n", brim_detail());
    brim_loader_close(loader);
    brim_runtime_free(runtime);
    return status == BRIM_STATUS_END ? 0 : 1;
}

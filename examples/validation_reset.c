/*
 * validation_reset.c: a validation loader that is reset three times, and then 97 times more,
 * takes no more memory than one that was never reset.
 *
 *     validation_reset [DEVICE]
 *
 * A reset goes back to the first batch, in the middle of a pass or at its end. It frees and
 * allocates nothing: the slots stay, and hold other batches afterwards.
 */
#include "memory_line.h"

enum { IMAGES = 512, BATCHES = IMAGES / 32, RESETS = 100 };

/* Takes batches, at most `most`, and gives each back. */
static int take_batches(brim_loader *loader, int most, double *sum) {
    brim_batch *batch;
    brim_status status = BRIM_OK;
    int count = 0;
    while (count < most && (status = brim_loader_next(loader, BRIM_FOREVER, &batch)) == BRIM_OK) {
        *sum += batch_sum(batch);
        brim_batch_release(batch);
        count++;
    }
    must(status == BRIM_STATUS_END ? BRIM_OK : status);
    return count;
}

int main(int count, char **words) {
    static uint8_t pixels[IMAGES * IMAGE_BYTES];
    const struct place place = choose_place(count, words);
    const brim_binding images = draw_images(pixels, IMAGES);
    brim_runtime *runtime;
    brim_pipeline *pipeline;
    brim_loader *loader;
    brim_runtime_options limits = BRIM_RUNTIME_OPTIONS_INIT;
    limits.host_bytes = limits.device_bytes = 16 << 20;
    brim_open_options options = BRIM_OPEN_OPTIONS_INIT;
    options.label = "validation";
    options.bindings = &images;
    options.binding_count = 1;
    options.growth = BRIM_GROWTH_FIXED; /* all of it at once, so that any change would show */
    options.device_kind = (int32_t)place.kind;
    options.device_index = place.index;
    must(brim_runtime_new(&limits, &runtime));
    must(brim_pipeline_parse("array @images | normalize imagenet | layout chw | batch 32",
                             &pipeline));
    must(brim_loader_open(runtime, pipeline, &options, &loader));

    memory_heading(&place);
    double wanted = 0;
    must_hold(take_batches(loader, BATCHES + 1, &wanted) == BATCHES, "not all batches came");
    const struct memory first = memory_line(runtime, &place, "first pass");
    for (int i = 1; i <= RESETS; i++) {
        double sum = 0;
        if (i % 2 == 0) { /* also in the middle of a pass */
            must_hold(take_batches(loader, BATCHES / 2, &sum) == BATCHES / 2, "too few batches");
            sum = 0;
        }
        must(brim_loader_seek(loader, 0, 0));
        must_hold(take_batches(loader, BATCHES + 1, &sum) == BATCHES, "not all batches came");
        must_hold(sum == wanted, "a pass gave other batches");
        char when[32];
        snprintf(when, sizeof when, "reset %d", i);
        const struct memory now = i <= 3 || i == RESETS ? memory_line(runtime, &place, when)
                                                        : memory_now(runtime, &place);
        must_hold(same_memory(&now, &first), "a reset has changed what is charged");
        must_hold(now.host.peak == first.host.peak && now.pinned.peak == first.pinned.peak &&
                      now.device.peak == first.device.peak,
                  "a reset took more for a while");
    }
    printf("%d resets: memory is flat, and every pass gave the same %d batches\n", RESETS, BATCHES);
    brim_loader_close(loader);
    brim_pipeline_free(pipeline);
    brim_runtime_free(runtime);
    return 0;
}

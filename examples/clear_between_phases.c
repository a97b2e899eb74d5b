/*
 * clear_between_phases.c: memory is cleared between phases.
 *
 *     clear_between_phases [DEVICE]
 *
 * Trimming frees all elastic memory and returns its size; the loader keeps the minimum with which
 * it goes on. Closing it frees the rest. Both go to the system at once and not to a pool: the
 * resident memory of the process (RSS) falls by the pages that were touched.
 */
#include "memory_line.h"

enum { IMAGES = 4096, BATCH = 512 };

/* On the host never more than with nothing open, and what is charged. A device's driver has
 * memory of its own besides. */
static void print_resident(brim_runtime *runtime) {
    brim_usage usage = BRIM_USAGE_INIT;
    must(brim_runtime_read_usage(runtime, &usage));
    printf("  the process has %.1f KiB\n", (double)usage.rss / 1024);
}

static void pass(brim_loader *loader) {
    brim_batch *batch;
    brim_status status;
    int count = 0;
    for (; (status = brim_loader_next(loader, BRIM_FOREVER, &batch)) == BRIM_OK; count++) {
        must(brim_batch_wait(batch, NULL));
        brim_batch_release(batch);
    }
    must(status == BRIM_STATUS_END ? BRIM_OK : status);
    must_hold(count == IMAGES / BATCH, "not all batches came");
}

int main(int count, char **words) {
    static uint8_t pixels[IMAGES * IMAGE_BYTES];
    const struct place place = choose_place(count, words);
    const brim_binding images = draw_images(pixels, IMAGES);
    brim_runtime *runtime;
    brim_pipeline *pipeline;
    brim_loader *loader;
    brim_runtime_options limits = BRIM_RUNTIME_OPTIONS_INIT;
    limits.host_bytes = limits.device_bytes = 256 << 20;
    brim_open_options options = BRIM_OPEN_OPTIONS_INIT;
    options.label = "phase 1";
    options.bindings = &images;
    options.binding_count = 1;
    options.growth = BRIM_GROWTH_FIXED;
    options.device_kind = (int32_t)place.kind;
    options.device_index = place.index;
    must(brim_runtime_new(&limits, &runtime));
    must(brim_pipeline_parse("array @images | normalize imagenet | layout chw | batch 512",
                             &pipeline));

    memory_heading(&place);
    const struct memory empty = memory_line(runtime, &place, "nothing open");
    print_resident(runtime);
    must(brim_loader_open(runtime, pipeline, &options, &loader));
    pass(loader);
    const struct memory full = memory_line(runtime, &place, "after phase 1");
    print_resident(runtime);

    uint64_t given;
    must(brim_runtime_trim(runtime, &given));
    const struct memory trimmed = memory_line(runtime, &place, "trimmed");
    printf("  trim gave back %.1f KiB\n", (double)given / 1024);
    print_resident(runtime);
    const uint64_t host = full.host.charged - trimmed.host.charged;
    const uint64_t fell = host + full.device.charged - trimmed.device.charged;
    must_hold(given == fell, "trim says something else than the budget");
    must_hold(given > 0 && trimmed.host.elastic == 0 && trimmed.device.elastic == 0,
              "something elastic is left");

    pass(loader); /* it goes on, and grows again as far as it pays */
    memory_line(runtime, &place, "went on");
    brim_loader_close(loader);
    const struct memory closed = memory_line(runtime, &place, "closed");
    print_resident(runtime);
    must_hold(closed.pinned.charged == 0 && closed.device.charged == 0,
              "a loader that was closed still holds memory");

    options.label = "phase 2";
    must(brim_loader_open(runtime, pipeline, &options, &loader));
    pass(loader);
    const struct memory second = memory_line(runtime, &place, "after phase 2");
    must_hold(second.host.charged <= full.host.peak && second.device.charged <= full.device.peak,
              "the second phase takes more than the first");
    brim_loader_close(loader);
    must(brim_runtime_trim(runtime, NULL)); /* the workers' stacks, which are the runtime's */
    const struct memory end = memory_line(runtime, &place, "closed and trimmed");
    must_hold(same_memory(&end, &empty), "something is left of the phases");
    printf("nothing is left of both phases\n");
    brim_pipeline_free(pipeline);
    brim_runtime_free(runtime);
    return 0;
}

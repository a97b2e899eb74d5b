/*
 * resident_evaluation.c: a repeated evaluation on a set that is cached on the device.
 *
 *     resident_evaluation [DEVICE]
 *
 * `cache device` keeps each sample on the device after the first pass; later passes gather their
 * batches from these, in any order, and upload nothing. The cache gives way when other holders need
 * the device's memory; its samples are then uploaded again.
 *
 * On the host there is nothing to upload: samples are kept in memory, and the program checks that
 * none is made twice.
 */
#include "memory_line.h"

enum { IMAGES = 512, BATCHES = IMAGES / 32, PASSES = 10 };

/* One epoch, in an order of its own. */
static double pass(brim_loader *loader) {
    brim_batch *batch;
    brim_status status;
    double sum = 0;
    int count = 0;
    for (; (status = brim_loader_next(loader, BRIM_FOREVER, &batch)) == BRIM_OK; count++) {
        sum += batch_sum(batch);
        brim_batch_release(batch);
    }
    must(status == BRIM_STATUS_END ? BRIM_OK : status);
    must_hold(count == BATCHES, "not all batches came");
    return sum;
}

int main(int count, char **words) {
    static uint8_t pixels[IMAGES * IMAGE_BYTES];
    const struct place place = choose_place(count, words);
    const int on_host = place.kind == BRIM_DEVICE_HOST;
    const brim_binding images = draw_images(pixels, IMAGES);
    brim_runtime *runtime;
    brim_pipeline *pipeline;
    brim_loader *loader;
    brim_runtime_options limits = BRIM_RUNTIME_OPTIONS_INIT;
    limits.host_bytes = limits.device_bytes = 32 << 20;
    brim_open_options options = BRIM_OPEN_OPTIONS_INIT;
    options.label = "evaluation";
    options.bindings = &images;
    options.binding_count = 1;
    options.growth = BRIM_GROWTH_FIXED; /* what was taken is taken after the first pass */
    options.device_kind = (int32_t)place.kind;
    options.device_index = place.index;
    must(brim_runtime_new(&limits, &runtime));
    must(brim_pipeline_parse(
        "array @images | normalize imagenet | layout chw | cache device | batch 32", &pipeline));
    must(brim_loader_open(runtime, pipeline, &options, &loader));

    memory_heading(&place);
    uint64_t copied = 0, made = 0;
    double wanted = 0;
    struct memory settled = { 0 };
    for (int i = 1; i <= PASSES; i++) {
        const double sum = pass(loader);
        char when[32];
        snprintf(when, sizeof when, "pass %d", i);
        const struct memory now = memory_line(runtime, &place, when);
        brim_stats stats = BRIM_STATS_INIT;
        brim_cache_stats cache = BRIM_CACHE_STATS_INIT;
        must(brim_loader_read_stats(loader, &stats));
        must(brim_loader_read_cache_stats(loader, 0, &cache));
        if (i == 1) {
            printf("  %.1f KiB copied, %llu of %llu samples kept\n",
                   (double)stats.copied_bytes / 1024, (unsigned long long)cache.filled,
                   (unsigned long long)cache.samples);
            must_hold(cache.filled == IMAGES, "not all samples were kept");
            must_hold(on_host || stats.copied_bytes >= sizeof pixels, "less than all was copied");
            copied = stats.copied_bytes;
            made = cache.misses;
            wanted = sum;
        }
        must_hold(stats.copied_bytes == copied, "a later pass has copied something");
        must_hold(cache.misses == made, "a later pass has made a sample again");
        must_hold(sum == wanted, "a later pass gave other batches");
        must_hold(i == 1 || same_memory(&now, &settled), "memory grows with the passes");
        settled = now;
    }
    printf("%d passes: %.1f KiB copied in all, %llu samples made\n", PASSES, (double)copied / 1024,
           (unsigned long long)made);
    brim_loader_close(loader);
    brim_pipeline_free(pipeline);
    brim_runtime_free(runtime);
    return 0;
}

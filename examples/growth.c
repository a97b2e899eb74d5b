/*
 * growth.c: the same data with memory that grows and with memory that is fixed.
 *
 *     growth [DEVICE]
 *
 * `grow` (the default) begins with the minimum and takes more when a consumer has waited; `fixed`
 * takes all planned memory when it is opened. Neither ever exceeds the plan, and the batches are
 * the same.
 */
#include "memory_line.h"

enum { IMAGES = 2048, BATCH = 128, PASSES = 3 };

struct outcome {
    struct memory opened, end;
    uint64_t planned, planned_device;
    double sum;
};

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
    must_hold(count == IMAGES / BATCH, "not all batches came");
    return sum;
}

static struct outcome run(const brim_binding *images, const struct place *place,
                          const brim_pipeline *pipeline, brim_growth growth) {
    const char *const how = growth == BRIM_GROWTH_FIXED ? "fixed" : "grow";
    struct outcome outcome = { 0 };
    brim_runtime *runtime;
    brim_loader *loader;
    brim_runtime_options limits = BRIM_RUNTIME_OPTIONS_INIT;
    limits.host_bytes = limits.device_bytes = 64 << 20;
    brim_open_options options = BRIM_OPEN_OPTIONS_INIT;
    options.bindings = images;
    options.binding_count = 1;
    options.growth = growth;
    options.device_kind = (int32_t)place->kind;
    options.device_index = place->index;
    must(brim_runtime_new(&limits, &runtime));
    must(brim_loader_open(runtime, pipeline, &options, &loader));
    char when[32];
    snprintf(when, sizeof when, "%s: opened", how);
    outcome.opened = memory_line(runtime, place, when);
    for (int i = 1; i <= PASSES; i++) {
        outcome.sum += pass(loader) * i;
        snprintf(when, sizeof when, "%s: pass %d", how, i);
        outcome.end = memory_line(runtime, place, when);
    }
    const brim_plan_info *info = brim_plan_get(brim_loader_plan(loader));
    outcome.planned = info->planned_bytes;
    outcome.planned_device = info->planned_device_bytes;
    must_hold(outcome.end.host.peak <= outcome.planned &&
                  outcome.end.device.peak <= outcome.planned_device,
              "more than was planned");
    brim_loader_close(loader);
    brim_runtime_free(runtime);
    return outcome;
}

int main(int count, char **words) {
    static uint8_t pixels[IMAGES * IMAGE_BYTES];
    const struct place place = choose_place(count, words);
    const brim_binding images = draw_images(pixels, IMAGES);
    brim_pipeline *pipeline;
    must(brim_pipeline_parse("array @images | shuffle seed=7 | normalize imagenet | layout chw | "
                             "batch 128",
                             &pipeline));
    memory_heading(&place);
    const struct outcome grown = run(&images, &place, pipeline, BRIM_GROWTH_ON_DEMAND);
    const struct outcome fixed = run(&images, &place, pipeline, BRIM_GROWTH_FIXED);
    printf("planned for both: host %.1f KiB, device %.1f KiB\n", (double)fixed.planned / 1024,
           (double)fixed.planned_device / 1024);
    must_hold(same_memory(&fixed.opened, &fixed.end), "fixed has changed after opening");
    must_hold(grown.opened.host.charged < fixed.opened.host.charged,
              "grow has begun with no less than fixed");
    must_hold(place.kind == BRIM_DEVICE_HOST ||
                  grown.opened.device.charged < fixed.opened.device.charged,
              "grow has begun with no less on the device");
    must_hold(grown.sum == fixed.sum, "the batches are not the same");
    printf("the same batches from both\n");
    brim_pipeline_free(pipeline);
    return 0;
}

/*
 * one_limit.c: training and validation in one limit, with validation in the middle of
 * training.
 *
 *     one_limit [DEVICE]
 *
 * The limits are the minimums of both loaders, and room for two workers and two slots more. Each
 * loader has its minimum from opening on, so that both can always go on. Memory above that goes to
 * the loader that waits, and the sum never exceeds a limit, of any kind of memory.
 */
#include "memory_line.h"

enum { TRAINING = 1024, VALIDATION = 256, BATCH = 32, STEPS = 64, BETWEEN = 16, MORE = 2 };

struct side {
    const char *label;
    const char *text;
    brim_binding images;
    brim_pipeline *pipeline;
    brim_loader *loader;
};

static brim_open_options options_of(const struct side *side, const struct place *place) {
    brim_open_options options = BRIM_OPEN_OPTIONS_INIT;
    options.label = side->label;
    options.bindings = &side->images;
    options.binding_count = 1;
    options.device_kind = (int32_t)place->kind;
    options.device_index = place->index;
    return options;
}

/* The minimum of a loader, and this many workers and slots more. */
static void add_needs(const struct side *side, const struct place *place, uint64_t more,
                      brim_runtime_options *limits) {
    const brim_open_options options = options_of(side, place);
    brim_runtime *ample;
    brim_plan *plan;
    must(brim_runtime_new(NULL, &ample));
    must(brim_plan_new(ample, side->pipeline, &options, &plan));
    const brim_plan_info *info = brim_plan_get(plan);
    limits->host_bytes +=
        info->minimum_bytes + more * (info->stack_bytes + info->scratch_bytes + info->slot_bytes);
    if (place->kind != BRIM_DEVICE_HOST) {
        limits->pinned_bytes += info->minimum_pinned_bytes + more * info->slot_bytes;
        limits->device_bytes += info->minimum_device_bytes + more * info->device_slot_bytes;
    }
    brim_plan_free(plan);
    brim_runtime_free(ample);
}

/* One batch; 0 at the end of an epoch, and the next call begins the next one. */
static int step(struct side *side) {
    brim_batch *batch;
    const brim_status status = brim_loader_next(side->loader, BRIM_FOREVER, &batch);
    if (status == BRIM_STATUS_END) {
        return 0;
    }
    must(status);
    must(brim_batch_wait(batch, NULL)); /* it is there: what a network would do stands here */
    brim_batch_release(batch);
    return 1;
}

static void check(const struct memory *now, const brim_runtime_options *limits) {
    must_hold(now->host.peak <= limits->host_bytes, "over the host's limit");
    must_hold(now->pinned.peak <= limits->pinned_bytes, "over the limit of page-locked memory");
    must_hold(now->device.peak <= limits->device_bytes, "over the device's limit");
}

int main(int count, char **words) {
    static uint8_t pixels[(TRAINING + VALIDATION) * IMAGE_BYTES];
    const struct place place = choose_place(count, words);
    struct side training = { .label = "training",
                             .text = "array @images | shuffle seed=7 | flip | normalize imagenet | "
                                     "layout chw | batch 32",
                             .images = draw_images(pixels, TRAINING) };
    struct side validation = { .label = "validation",
                               .text = "array @images | normalize imagenet | layout chw | batch 32",
                               .images = draw_images(pixels + TRAINING * IMAGE_BYTES, VALIDATION) };
    struct side *const sides[] = { &training, &validation };
    brim_runtime_options limits = BRIM_RUNTIME_OPTIONS_INIT;
    for (int i = 0; i < 2; i++) {
        must(brim_pipeline_parse(sides[i]->text, &sides[i]->pipeline));
        add_needs(sides[i], &place, i == 0 ? MORE : 0, &limits);
    }
    brim_runtime *runtime;
    must(brim_runtime_new(&limits, &runtime));
    for (int i = 0; i < 2; i++) {
        const brim_open_options options = options_of(sides[i], &place);
        must(brim_loader_open(runtime, sides[i]->pipeline, &options, &sides[i]->loader));
    }

    printf("limits: host %.1f KiB, page-locked %.1f KiB, device %.1f KiB\n",
           (double)limits.host_bytes / 1024, (double)limits.pinned_bytes / 1024,
           (double)limits.device_bytes / 1024);
    memory_heading(&place);
    memory_line(runtime, &place, "opened");
    int trained = 0, validated = 0;
    while (trained < STEPS) {
        if (!step(&training) || ++trained % BETWEEN != 0) {
            continue;
        }
        char when[32];
        snprintf(when, sizeof when, "trained %d", trained);
        struct memory now = memory_line(runtime, &place, when);
        check(&now, &limits);
        int batches = 0;
        while (step(&validation)) {
            batches++;
        }
        must_hold(batches == VALIDATION / BATCH, "a validation was not whole");
        validated += batches;
        snprintf(when, sizeof when, "  validated %d", validated);
        now = memory_line(runtime, &place, when);
        check(&now, &limits);
    }
    must_hold(trained == STEPS && validated == STEPS / BETWEEN * (VALIDATION / BATCH),
              "one of the two has stood still");
    printf("%d steps of training, %d batches of validation, never above a limit\n", trained,
           validated);
    for (int i = 0; i < 2; i++) {
        brim_loader_close(sides[i]->loader);
        brim_pipeline_free(sides[i]->pipeline);
    }
    brim_runtime_free(runtime);
    return 0;
}

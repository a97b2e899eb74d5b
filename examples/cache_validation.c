/*
 * cache_validation.c: a small validation set is cached, a large training set is not; both
 * in one budget.
 *
 *     training    1000 samples, 2.9 MiB   made in every epoch
 *     validation   200 samples, 0.6 MiB   made in the first pass, then found in memory
 *
 * A cache takes free budget and gives way to all other holders, so that memory does not grow with
 * the number of passes.
 */
#include <brim.h>

#include <stdio.h>
#include <stdlib.h>

enum { LENGTH = 768, TRAINING = 1000, VALIDATION = 200, BATCH = 50, PASSES = 4 };
static const uint64_t budget = 2 << 20;

struct side {
    unsigned made; /* samples */
    brim_pipeline *pipeline;
    brim_loader *loader;
};

/* Ends the program if a call failed. */
static void must(brim_status status) {
    if (status != BRIM_OK) {
        fprintf(stderr, "cache_validation: %s: %s\n", brim_status_name(status), brim_detail());
        exit(1);
    }
}

static void must_hold(int claim, const char *otherwise) {
    if (!claim) {
        fprintf(stderr, "cache_validation: %s\n", otherwise);
        exit(1);
    }
}

/* What is slow: it stands for reading and decoding. */
static int read_sample(void *user, const brim_call *call, brim_value *outputs, size_t output_count,
                       char *why, size_t why_bytes) {
    float *value = outputs[0].data;
    struct side *side = user;
    (void)output_count, (void)why, (void)why_bytes;
    for (int i = 0; i < LENGTH; i++) {
        value[i] = (float)(call->sample % 10) + (float)i / LENGTH;
    }
    side->made++;
    return BRIM_ANSWER_DONE;
}

static void open_side(brim_runtime *runtime, struct side *side, const char *label, uint64_t count,
                      const char *text) {
    static const brim_field_spec fields[] = {
        { .size = sizeof *fields,
          .name = "x",
          .dtype = BRIM_DTYPE_F32,
          .rank = 1,
          .shape = { LENGTH } },
    };
    brim_binding samples = BRIM_BINDING_INIT;
    samples.name = "samples";
    samples.kind = BRIM_BINDING_SOURCE;
    samples.count = count;
    samples.fields = fields;
    samples.field_count = 1;
    samples.flags = BRIM_CALLBACK_PURE;
    samples.read = read_sample;
    samples.user = side;
    brim_open_options options = BRIM_OPEN_OPTIONS_INIT;
    options.label = label;
    options.bindings = &samples;
    options.binding_count = 1;
    must(brim_pipeline_parse(text, &side->pipeline));
    must(brim_loader_open(runtime, side->pipeline, &options, &side->loader));
}

/* One epoch; how many samples had to be made for it. */
static unsigned pass(struct side *side) {
    const unsigned before = side->made;
    brim_batch *batch;
    brim_status status;
    while ((status = brim_loader_next(side->loader, BRIM_FOREVER, &batch)) == BRIM_OK) {
        brim_batch_release(batch);
    }
    must(status == BRIM_STATUS_END ? BRIM_OK : status);
    return side->made - before;
}

static void close_side(struct side *side) {
    brim_loader_close(side->loader);
    brim_pipeline_free(side->pipeline);
}

int main(void) {
    struct side training = { 0 }, validation = { 0 };
    brim_runtime_options limits = BRIM_RUNTIME_OPTIONS_INIT;
    limits.host_bytes = budget;
    limits.threads = 0; /* no worker runs ahead: the counts below are exact */
    brim_runtime *runtime;
    must(brim_runtime_new(&limits, &runtime));
    open_side(runtime, &training, "training", TRAINING,
              "callback @samples | shuffle seed=7 | batch 50");
    open_side(runtime, &validation, "validation", VALIDATION,
              "callback @samples | cache memory | batch 50");

    uint64_t settled = 0;
    for (int i = 0; i < PASSES; i++) {
        const unsigned trained = pass(&training), validated = pass(&validation);
        brim_usage usage = BRIM_USAGE_INIT;
        must(brim_runtime_read_usage(runtime, &usage));
        printf("epoch %d: %4u samples made for training, %3u for validation; %.1f of %.1f KiB\n", i,
               trained, validated, (double)usage.charged / 1024, (double)budget / 1024);
        must_hold(trained == TRAINING, "a training sample was not made");
        must_hold(validated == (i == 0 ? VALIDATION : 0), "validation was not found in memory");
        must_hold(usage.peak <= budget, "over the budget");
        must_hold(i < 2 || usage.charged == settled, "the memory grows with the passes");
        settled = usage.charged;
    }
    close_side(&validation);
    close_side(&training);
    brim_runtime_free(runtime);
    return 0;
}

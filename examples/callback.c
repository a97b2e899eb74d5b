/*
 * callback.c: samples that one function of the program makes and another one changes.
 *
 * `read_wave` is a source: it makes sample n. Here it computes a wave; it could also ask a
 * database. `add_noise` is a map: from the fields of a sample to the fields that it declared.
 *
 * Both may run on several threads at once (BRIM_CALLBACK_CONCURRENT) and always give the same
 * output for the same input (BRIM_CALLBACK_PURE), so that brim may drop their results and call them
 * again. Random numbers come from brim_call_random, which depends on sample, epoch and position in
 * the pipeline, never on the thread: the checksums printed for 0, 1 and 4 threads are the same.
 */
#include <brim.h>

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { LENGTH = 32, WAVES = 500 };

/* Sample n: a triangle wave whose period grows with n, and n's class of three. */
static int read_wave(void *user, const brim_call *call, brim_value *outputs, size_t output_count,
                     char *why, size_t why_bytes) {
    float *wave = outputs[0].data;
    uint8_t *label = brim_value_at(outputs, 1)->data;
    const int period = 4 + (int)(call->sample % 13);
    (void)user, (void)output_count, (void)why, (void)why_bytes;
    for (int i = 0; i < LENGTH; i++) {
        const int phase = i % period;
        wave[i] = (float)(2 * phase < period ? phase : period - phase) / (float)period;
    }
    *label = (uint8_t)(call->sample % 3);
    return BRIM_ANSWER_DONE;
}

/* The wave with noise of the strength that `user` points to; its peak; its label. */
static int add_noise(void *user, const brim_call *call, const brim_value *inputs,
                     size_t input_count, brim_value *outputs, size_t output_count, char *why,
                     size_t why_bytes) {
    const float strength = *(const float *)user;
    const float *clean = inputs[0].data;
    float *wave = outputs[0].data, *peak = brim_value_at(outputs, 1)->data;
    (void)input_count, (void)output_count;
    if (inputs[0].bytes != LENGTH * sizeof(float)) {
        snprintf(why, why_bytes, "a wave of %" PRIu64 " bytes", inputs[0].bytes);
        return BRIM_ANSWER_BAD; /* `batch on_error=` says what happens to it */
    }
    *peak = 0.0f;
    for (uint32_t i = 0; i < LENGTH; i++) {
        const float uniform = (float)(brim_call_random(call, i) >> 8) * 0x1p-24f;
        wave[i] = clean[i] + strength * (uniform - 0.5f);
        *peak = wave[i] > *peak ? wave[i] : *peak;
    }
    memcpy(brim_value_at(outputs, 2)->data, brim_value_at(inputs, 1)->data, 1);
    return BRIM_ANSWER_DONE;
}

/* Adds the batches of one epoch to a checksum, row by row. */
static brim_status take_epoch(brim_loader *loader, uint64_t *checksum, double *highest) {
    brim_batch *batch;
    brim_status status;
    while ((status = brim_loader_next(loader, BRIM_FOREVER, &batch)) == BRIM_OK) {
        const brim_field *wave = brim_batch_find(batch, "wave");
        const brim_field *peak = brim_batch_find(batch, "peak");
        const unsigned char *bytes = wave->data;
        for (uint64_t i = 0; i < wave->bytes; i++) {
            *checksum = (*checksum ^ bytes[i]) * UINT64_C(0x100000001b3);
        }
        for (int64_t row = 0; row < peak->shape[0]; row++) {
            const double value = ((const float *)peak->data)[row];
            *highest = value > *highest ? value : *highest;
        }
        brim_batch_release(batch);
    }
    return status == BRIM_STATUS_END ? BRIM_OK : status;
}

static brim_status run(int32_t threads, float strength, uint64_t *checksum, double *highest) {
    static const brim_field_spec made[] = {
        { .size = sizeof *made,
          .name = "wave",
          .dtype = BRIM_DTYPE_F32,
          .rank = 1,
          .shape = { LENGTH } },
        { .size = sizeof *made, .name = "label", .dtype = BRIM_DTYPE_U8 },
    };
    static const brim_field_spec mapped[] = {
        { .size = sizeof *mapped,
          .name = "wave",
          .dtype = BRIM_DTYPE_F32,
          .rank = 1,
          .shape = { LENGTH } },
        { .size = sizeof *mapped, .name = "peak", .dtype = BRIM_DTYPE_F32 },
        { .size = sizeof *mapped, .name = "label", .dtype = BRIM_DTYPE_U8 },
    };
    const brim_binding bindings[] = {
        { .size = sizeof(brim_binding),
          .name = "waves",
          .kind = BRIM_BINDING_SOURCE,
          .count = WAVES,
          .fields = made,
          .field_count = 2,
          .flags = BRIM_CALLBACK_PURE | BRIM_CALLBACK_CONCURRENT,
          .read = read_wave },
        { .size = sizeof(brim_binding),
          .name = "noise",
          .kind = BRIM_BINDING_MAP,
          .user = &strength,
          .fields = mapped,
          .field_count = 3,
          .flags = BRIM_CALLBACK_PURE | BRIM_CALLBACK_CONCURRENT,
          .map = add_noise },
    };
    brim_open_options options = BRIM_OPEN_OPTIONS_INIT;
    options.bindings = bindings;
    options.binding_count = 2;
    brim_runtime_options limits = BRIM_RUNTIME_OPTIONS_INIT;
    limits.host_bytes = 64 << 20; /* a worker that runs callbacks has a stack of 8 MiB */
    limits.threads = threads;

    brim_runtime *runtime = NULL;
    brim_pipeline *pipeline = NULL;
    brim_loader *loader = NULL;
    brim_status status = brim_runtime_new(&limits, &runtime);
    if (status == BRIM_OK) {
        status = brim_pipeline_parse("callback @waves | shuffle seed=7 | map @noise | batch 32",
                                     &pipeline);
    }
    if (status == BRIM_OK) {
        status = brim_loader_open(runtime, pipeline, &options, &loader);
    }
    for (int epoch = 0; epoch < 2 && status == BRIM_OK; epoch++) {
        status = take_epoch(loader, checksum, highest);
    }
    brim_loader_close(loader);
    brim_pipeline_free(pipeline);
    brim_runtime_free(runtime);
    return status;
}

int main(void) {
    static const int32_t threads[] = { 0, 1, 4 };
    uint64_t first = 0;
    bool same = true;
    for (size_t i = 0; i < sizeof threads / sizeof threads[0]; i++) {
        uint64_t checksum = UINT64_C(0xcbf29ce484222325);
        double highest = 0.0;
        const brim_status status = run(threads[i], 0.2f, &checksum, &highest);
        if (status != BRIM_OK) {
            fprintf(stderr, "callback: %s\n", brim_detail());
            return 1;
        }
        printf("threads=%d: two epochs of %d waves, highest %.3f, checksum %016" PRIx64 "\n",
               threads[i], WAVES, highest, checksum);
        first = i == 0 ? checksum : first;
        same = same && checksum == first;
    }
    puts(same ? "the same for any number of threads" : "NOT the same");
    return same ? 0 : 1;
}

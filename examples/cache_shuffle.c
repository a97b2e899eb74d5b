/*
 * cache_shuffle.c: a shuffle after a cache: another order in every epoch, and every sample made
 * once.
 *
 * `read_wave` stands for a slow decoder or database, and counts its calls. The first epoch makes
 * the samples and keeps them; later epochs find them. An order is arithmetic and holds no samples,
 * so shuffling cached samples costs nothing, and `shuffle` may come before or after the cache.
 */
#include <brim.h>

#include <stdio.h>
#include <stdlib.h>

enum { LENGTH = 256, WAVES = 500, EPOCHS = 3 };

/* Ends the program if a call failed. */
static void must(brim_status status) {
    if (status != BRIM_OK) {
        fprintf(stderr, "cache_shuffle: %s: %s\n", brim_status_name(status), brim_detail());
        exit(1);
    }
}

static void must_hold(int claim, const char *otherwise) {
    if (!claim) {
        fprintf(stderr, "cache_shuffle: %s\n", otherwise);
        exit(1);
    }
}

static int read_wave(void *user, const brim_call *call, brim_value *outputs, size_t output_count,
                     char *why, size_t why_bytes) {
    float *wave = outputs[0].data;
    (void)output_count, (void)why, (void)why_bytes;
    for (int i = 0; i < LENGTH; i++) {
        wave[i] = (float)(i % (4 + (int)(call->sample % 13)));
    }
    ++*(unsigned *)user;
    return BRIM_ANSWER_DONE;
}

int main(void) {
    static const brim_field_spec fields[] = {
        { .size = sizeof *fields,
          .name = "wave",
          .dtype = BRIM_DTYPE_F32,
          .rank = 1,
          .shape = { LENGTH } },
    };
    unsigned made = 0;
    brim_binding waves = BRIM_BINDING_INIT;
    waves.name = "waves";
    waves.kind = BRIM_BINDING_SOURCE;
    waves.count = WAVES;
    waves.fields = fields;
    waves.field_count = 1;
    waves.flags = BRIM_CALLBACK_PURE; /* the same each time: what may be cached at all */
    waves.read = read_wave;
    waves.user = &made;

    brim_runtime_options limits = BRIM_RUNTIME_OPTIONS_INIT;
    limits.host_bytes = 4 << 20;
    limits.threads = 0; /* no worker runs ahead: the counts below are exact */
    brim_open_options options = BRIM_OPEN_OPTIONS_INIT;
    options.bindings = &waves;
    options.binding_count = 1;
    brim_runtime *runtime;
    brim_pipeline *pipeline;
    brim_loader *loader;
    must(brim_runtime_new(&limits, &runtime));
    must(brim_pipeline_parse("callback @waves | cache memory | shuffle seed=7 | batch 50",
                             &pipeline));
    must(brim_loader_open(runtime, pipeline, &options, &loader));

    uint64_t first[EPOCHS] = { 0 };
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        const unsigned before = made;
        brim_batch *batch;
        brim_status status;
        for (int step = 0; (status = brim_loader_next(loader, BRIM_FOREVER, &batch)) == BRIM_OK;
             step++) {
            if (step == 0) {
                const uint64_t *numbers = brim_batch_get(batch)->samples;
                first[epoch] = numbers[0];
                printf("epoch %d: samples %d, %d, %d ...", epoch, (int)numbers[0], (int)numbers[1],
                       (int)numbers[2]);
            }
            brim_batch_release(batch);
        }
        must(status == BRIM_STATUS_END ? BRIM_OK : status);
        printf(" %u made\n", made - before);
        must_hold(made == WAVES, "a sample was made twice, or not at all");
    }
    must_hold(first[0] != first[1] && first[1] != first[2], "two epochs begin alike");

    brim_cache_stats cache = BRIM_CACHE_STATS_INIT;
    must(brim_loader_read_cache_stats(loader, 0, &cache));
    must_hold(cache.hits == (EPOCHS - 1) * WAVES, "a sample was not found");
    printf("in the cache: %d of %d samples, %.1f KiB; %d hits, %d misses\n", (int)cache.filled,
           (int)cache.samples, (double)cache.bytes / 1024, (int)cache.hits, (int)cache.misses);
    brim_loader_close(loader);
    brim_pipeline_free(pipeline);
    brim_runtime_free(runtime);
    return 0;
}

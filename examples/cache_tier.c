/*
 * cache_tier.c: the same pipeline, cached in memory if it fits and in a file if not.
 *
 *     cache_tier             in a temporary folder, which it removes
 *     cache_tier FOLDER      the file stays there, and the next run finds it full
 *
 * A plan says how much a cache after each stage would keep of a sample. The program compares that
 * with the free budget above the loader's minimum. A file is keyed by the data and by the stages
 * before the cache, functions by their version=: any process may use such a file, at any time.
 */
#include <brim.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { LENGTH = 1024, WAVES = 1000 };
static const char samples[] = "callback @waves version=1";

/* Ends the program if a call failed. */
static void must(brim_status status) {
    if (status != BRIM_OK) {
        fprintf(stderr, "cache_tier: %s: %s\n", brim_status_name(status), brim_detail());
        exit(1);
    }
}

static void must_hold(int claim, const char *otherwise) {
    if (!claim) {
        fprintf(stderr, "cache_tier: %s\n", otherwise);
        exit(1);
    }
}

static int read_wave(void *user, const brim_call *call, brim_value *outputs, size_t output_count,
                     char *why, size_t why_bytes) {
    float *wave = outputs[0].data;
    (void)user, (void)output_count, (void)why, (void)why_bytes;
    for (int i = 0; i < LENGTH; i++) {
        wave[i] = (float)(i % (4 + (int)(call->sample % 13)));
    }
    return BRIM_ANSWER_DONE;
}

static brim_open_options with_waves(void) {
    static const brim_field_spec fields[] = {
        { .size = sizeof *fields,
          .name = "wave",
          .dtype = BRIM_DTYPE_F32,
          .rank = 1,
          .shape = { LENGTH } },
    };
    static const brim_binding waves = { .size = sizeof waves,
                                        .name = "waves",
                                        .kind = BRIM_BINDING_SOURCE,
                                        .count = WAVES,
                                        .fields = fields,
                                        .field_count = 1,
                                        .flags = BRIM_CALLBACK_PURE | BRIM_CALLBACK_CONCURRENT,
                                        .read = read_wave };
    brim_open_options options = BRIM_OPEN_OPTIONS_INIT;
    options.bindings = &waves;
    options.binding_count = 1;
    return options;
}

/* Whether all samples fit into what the budget leaves above the minimum. */
static int fits_in_memory(brim_runtime *runtime) {
    char text[128];
    const brim_open_options options = with_waves();
    brim_pipeline *pipeline;
    brim_plan *plan;
    snprintf(text, sizeof text, "%s | batch 50", samples);
    must(brim_pipeline_parse(text, &pipeline));
    must(brim_plan_new(runtime, pipeline, &options, &plan));
    const brim_plan_info *info = brim_plan_get(plan);
    const brim_plan_stage *stage = brim_plan_stage_at(plan, 0);
    must_hold(stage->cacheable, "a cache may not stand there");
    const uint64_t needed = info->samples * stage->sample_bytes;
    const uint64_t left = info->limit_bytes - info->minimum_bytes;
    printf("%d samples of %d bytes: %.1f MiB; %.1f of the budget are left\n", (int)info->samples,
           (int)stage->sample_bytes, (double)needed / (1 << 20), (double)left / (1 << 20));
    brim_plan_free(plan);
    brim_pipeline_free(pipeline);
    return needed < left / 10 * 9; /* entries have heads, and some memory is cut off */
}

/* Epochs until the cache has all samples, but at least one; what it says then. */
static brim_cache_stats run(uint64_t bytes, const char *file) {
    char text[4096];
    brim_runtime_options limits = BRIM_RUNTIME_OPTIONS_INIT;
    const brim_open_options options = with_waves();
    brim_runtime *runtime;
    brim_pipeline *pipeline;
    brim_loader *loader;
    limits.host_bytes = bytes;
    limits.threads = 0; /* a worker that runs callbacks has a stack of 8 MiB */
    must(brim_runtime_new(&limits, &runtime));
    if (fits_in_memory(runtime)) {
        snprintf(text, sizeof text, "%s | cache memory | shuffle | batch 50", samples);
    } else {
        snprintf(text, sizeof text, "%s | cache file=\"%s\" | shuffle | batch 50", samples, file);
    }
    must(brim_pipeline_parse(text, &pipeline));
    must(brim_loader_open(runtime, pipeline, &options, &loader));
    brim_cache_stats cache = BRIM_CACHE_STATS_INIT;
    do {
        brim_batch *batch;
        brim_status status;
        while ((status = brim_loader_next(loader, BRIM_FOREVER, &batch)) == BRIM_OK) {
            brim_batch_release(batch);
        }
        must(status == BRIM_STATUS_END ? BRIM_OK : status);
        must(brim_loader_read_cache_stats(loader, 0, &cache));
        must_hold(cache.warning[0] == '\0', cache.warning);
    } while (cache.filled < cache.samples);
    brim_usage usage = BRIM_USAGE_INIT;
    must(brim_runtime_read_usage(runtime, &usage));
    must_hold(usage.peak <= bytes, "over the budget");
    printf("  cache %s: %d of %d samples, %.1f MiB; %d hits, %d misses\n", cache.tier,
           (int)cache.filled, (int)cache.samples, (double)cache.bytes / (1 << 20), (int)cache.hits,
           (int)cache.misses);
    brim_loader_close(loader);
    brim_pipeline_free(pipeline);
    brim_runtime_free(runtime);
    return cache;
}

int main(int argc, char **argv) {
    char own[] = "/tmp/cache_tier.XXXXXX", file[3800];
    const char *folder = argc > 1 ? argv[1] : mkdtemp(own);
    must_hold(folder != NULL, "cannot make a temporary folder");
    must_hold(snprintf(file, sizeof file, "%s/waves.brimcache", folder) < (int)sizeof file,
              "too long a path");

    puts("in 16 MiB:");
    const brim_cache_stats memory = run(16 << 20, file);
    must_hold(memory.misses == WAVES, "a sample was made twice, or not at all");
    puts("in 2 MiB:");
    run(2 << 20, file);
    puts("in 2 MiB, as the next run of a program:");
    const brim_cache_stats again = run(2 << 20, file);
    must_hold(again.hits == WAVES && again.misses == 0, "the file was not full");

    if (argc == 1) {
        must(brim_cache_remove(file));
        must_hold(rmdir(folder) == 0, "cannot remove the temporary folder");
    }
    return 0;
}

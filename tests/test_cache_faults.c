/*
 * test_cache_faults.c: faults while caches are filled and read; see support/fault_sweep.h.
 *
 * What a cache meets is never an error of its loader, so most faults show in nothing but the
 * statistics; some keep a loader from opening, as without a cache. Whatever they are, batches
 * are the same, nothing is left charged, open or on the disk, and the next run without a
 * fault finds a file that it can use.
 *
 * Where the source reads no file, all that is opened, read and written is the cache's: there
 * no call may fail for that, and a write that failed is told in the statistics.
 */
#include "support/cache_runs.h"
#include "support/fault_sweep.h"
#include "support/image_data.h"
#include "support/memory_data.h"
#include "support/memory_watch.h"

#include "base/fault.h"
#include "base/platform.h"

#define PATIENCE_NS UINT64_C(60000000000)

/* Fills, fills on, goes elsewhere and finds. */
static void run_text(void) {
    char text[TEXT_BYTES];
    const brim_open_options options = open_options("cached");
    expand(now.scenario->text, text);
    begin_runtime(SIXTEEN_MIB * 4);
    brim_loader *loader = open_text(text, &options);
    take(loader, 2);
    brim_loader_close(loader);
    loader = open_text(text, &options);
    take(loader, 2);
    must(brim_loader_seek(loader, 0, 0), "seek");
    take(loader, 4);
    brim_loader_close(loader);
    end_runtime();
    remove_file("1.cache");
    remove_file("2.cache");
}

/* A cache whose filling is off, and that says why. */
static bool is_told(brim_loader *loader) {
    bool told = false;
    for (uint32_t i = 0; i < cache_count(loader); i++) {
        const brim_cache_stats stats = cache_stats(loader, i);
        told |= !stats.fills && stats.warning[0] != '\0';
        if (now.nth == 0 && (!stats.fills || stats.damaged > 0)) {
            wrong("without a fault the statistics say \"%s\"", stats.warning);
        }
    }
    return told;
}

/* A write has failed. A thread that writes may have met that just now. */
static void check_told(brim_loader *loader) {
    const uint64_t deadline = brim__now() + PATIENCE_NS;
    while (!is_told(loader)) {
        if (brim__now() > deadline) {
            wrong("a write has failed, and no cache says so in the statistics");
        }
        sleep_ns(1000000);
    }
}

static int make_sample(void *user, const brim_call *call, brim_value *outputs, size_t count,
                       char *why, size_t why_bytes) {
    (void)user, (void)count, (void)why, (void)why_bytes;
    uint64_t random = call->sample + 1;
    for (size_t i = 0; i < outputs[0].bytes; i++) {
        ((uint8_t *)outputs[0].data)[i] = (uint8_t)next_random(&random);
    }
    return 0;
}

static const uint16_t grid[12][9] = { { 1, 2 }, { 3 }, [7] = { 4, 5, 6 }, [11] = { 7 } };
static const brim_field_spec made_field = { .size = sizeof(brim_field_spec),
                                            .name = "made",
                                            .dtype = BRIM_DTYPE_U8,
                                            .rank = 1,
                                            .shape = { 700 } };
static const brim_binding bindings[] = {
    { .size = sizeof(brim_binding),
      .name = "grid",
      .kind = BRIM_BINDING_ARRAY,
      .data = grid,
      .dtype = BRIM_DTYPE_U16,
      .rank = 2,
      .shape = { 12, 9 } },
    { .size = sizeof(brim_binding),
      .name = "made",
      .kind = BRIM_BINDING_SOURCE,
      .count = 12,
      .fields = &made_field,
      .field_count = 1,
      .flags = BRIM_CALLBACK_PURE | BRIM_CALLBACK_CONCURRENT,
      .read = make_sample },
};

/* Every file that is opened, read or written is the cache's. */
static void run_fileless(void) {
    char text[TEXT_BYTES];
    brim_open_options options = open_options("cached");
    options.bindings = bindings;
    options.binding_count = sizeof bindings / sizeof bindings[0];
    expand(now.scenario->text, text);
    begin_runtime(SIXTEEN_MIB * 4);
    for (int turn = 0; turn < 2; turn++) {
        const uint64_t before = brim__fault_injected();
        brim_loader *loader = open_text(text, &options);
        take(loader, turn == 0 ? 2 : 7); /* the second finds some, fills on, and finds all */
        if (!is_told(loader) && faults_are(BRIM__FAULT_WRITE) && brim__fault_injected() > before) {
            check_told(loader);
        }
        brim_loader_close(loader);
    }
    end_runtime();
    remove_file("1.cache");
    remove_file("2.cache");
}

/* Everything is taken away in the middle. */
static void run_trimmed(void) {
    char text[TEXT_BYTES];
    const brim_open_options options = open_options("cached");
    begin_runtime(SIXTEEN_MIB);
    brim_loader *loader = open_text(expand(now.scenario->text, text), &options);
    for (int i = 0; i < 3; i++) {
        take(loader, 2);
        must(brim_runtime_trim(now.runtime, NULL), "trim");
    }
    brim_loader_close(loader);
    end_runtime();
    remove_file("1.cache");
}

/* A file of another pipeline is replaced, and one by a second loader only read. */
static void run_two(void) {
    char text[TEXT_BYTES], other[TEXT_BYTES];
    const brim_open_options options = open_options("cached");
    expand("npy $/a.npy | take 5 | cache file=$/1.cache | batch 4", other);
    expand(now.scenario->text, text);
    begin_runtime(SIXTEEN_MIB);
    brim_loader *loader = open_text(other, &options);
    take(loader, 2);
    brim_loader_close(loader);
    brim_loader *a = open_text(text, &options), *b = open_text(text, &options);
    take(a, 1);
    take(b, 1);
    brim_loader_close(a);
    take(b, 2);
    brim_loader_close(b);
    end_runtime();
    remove_file("1.cache");
}

#define IMAGES "npy $/a.npy | take 9" /* few: every read and write of each is a point */

#define FILELESS .run = run_fileless, .fileless = true

static struct scenario scenarios[] = {
    { .name = "range",
      FILELESS,
      .text = "range 12 | one_hot 12 on=index | cache file=$/1.cache | shuffle | batch 4" },
    { .name = "array",
      FILELESS,
      .text = "array @grid version=1 | cache file=$/1.cache | cast float64 | "
              "cache file=$/2.cache verify=hit | batch 4" },
    { .name = "callback",
      FILELESS,
      .text = "callback @made version=1 | cache file=$/1.cache verify=never | cache memory | "
              "batch 4" },
    { .name = "memory",
      .run = run_text,
      .text = IMAGES " | cache memory | shuffle | cast float32 | batch 4" },
    { .name = "file",
      .run = run_text,
      .text = IMAGES " | cache file=$/1.cache | shuffle | cast float32 | batch 4" },
    { .name = "both",
      .run = run_text,
      .text = IMAGES " | cache file=$/1.cache verify=hit | cast float32 | cache memory | batch 4" },
    { .name = "files",
      .run = run_text,
      .text = "folder $/pets index=beside | decode | cache file=$/1.cache | resize 8 8 | "
              "cache file=$/2.cache verify=never | batch 3" },
    { .name = "trimmed",
      .run = run_trimmed,
      .text = IMAGES " | cache memory | cast float32 | cache file=$/1.cache | batch 4" },
    { .name = "two",
      .run = run_two,
      .text = IMAGES " | cast float32 | cache file=$/1.cache | batch 4" },
};

static int begin(void **state) {
    static uint8_t pixels[40 * 40 * 3];
    if (begin_memory_tests_in_memory(state) != 0) {
        return -1;
    }
    make_folder("pets");
    for (uint32_t i = 0; i < 4; i++) {
        char name[16] = "pets/0.png";
        name[5] = (char)('0' + i);
        draw_pixels(pixels, 10 + i, 30 - i, i);
        write_png(name, pixels, 10 + i, 30 - i);
    }
    return 0;
}

int main(int argc, char **argv) {
    return sweep_main(argc, argv, scenarios, sizeof scenarios / sizeof scenarios[0], begin);
}

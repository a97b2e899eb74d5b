/*
 * test_cache_faults.c: faults while caches are filled and read; see support/fault_sweep.h.
 *
 * What a cache meets is never an error of its loader, so most faults show in nothing but the
 * statistics; some keep a loader from opening, as without a cache. Whatever they are, batches
 * are the same, nothing is left charged, open or on the disk, and the next run without a
 * fault finds a file that it can use.
 */
#include "support/cache_runs.h"
#include "support/fault_sweep.h"
#include "support/image_data.h"
#include "support/memory_data.h"
#include "support/memory_watch.h"

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

static struct scenario scenarios[] = {
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

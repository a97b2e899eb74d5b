/*
 * test_faults_formats.c: faults while files of every format are opened, indexed,
 * inflated and read; see support/fault_sweep.h.
 */
#include "support/fault_sweep.h"
#include "support/format_data.h"
#include "support/memory_data.h"

#include <fcntl.h>
#include <unistd.h>

/* Two batches, then one of the next epoch. */
static void read_through(void) {
    char text[TEXT_BYTES];
    const brim_open_options options = format_options();
    brim_loader *loader = open_text(expand(now.scenario->text, text), &options);
    take(loader, 2);
    must(brim_loader_seek(loader, 1, 1), "seek");
    take(loader, 1);
    brim_loader_close(loader);
}

static void run_text(void) {
    begin_runtime(SIXTEEN_MIB);
    read_through();
    end_runtime();
}

/* Indexes in the cache: made by the first loader, read by the second. */
static void run_cached(void) {
    begin_runtime_with_cache(SIXTEEN_MIB);
    read_through();
    read_through();
    end_runtime();
}

static void run_input(void) {
    char text[TEXT_BYTES];
    const int fd = open(in_directory("lines.txt").text, O_RDONLY | O_CLOEXEC);
    assert_true(fd > 0 && dup2(fd, 0) == 0 && close(fd) == 0);
    begin_runtime(SIXTEEN_MIB);
    brim_loader *loader = open_text(expand(now.scenario->text, text), NULL);
    take(loader, 4);
    brim_loader_close(loader);
    end_runtime();
}

static struct scenario scenarios[] = {
    { .name = "text",
      .run = run_text,
      .text = "text $/lines.txt index=beside | shuffle seed=2 | batch 8" },
    { .name = "cache", .run = run_cached, .text = "text $/lines.txt max_bytes=1KiB | batch 8" },
    { .name = "input", .run = run_input, .text = "text - max_bytes=1KiB | batch 8" },
    { .name = "csv", .run = run_text, .text = "csv $/table.csv index=beside | shuffle | batch 6" },
    { .name = "csv_pack",
      .run = run_text,
      .text = "csv $/table.csv columns=label,score pack=yes index=beside | batch 6" },
    { .name = "jsonl",
      .run = run_text,
      .text = "jsonl $/documents.jsonl index=beside | shuffle | batch 6" },
    { .name = "jsonl_pad",
      .run = run_text,
      .text = "jsonl $/documents.jsonl fields=ids index=beside | pad on=ids | batch 6" },
    { .name = "safetensors",
      .run = run_text,
      .text = "safetensors $/x.safetensors | shuffle | batch 10" },
    { .name = "npz", .run = run_text, .text = "npz $/stored.npz | shuffle | batch 10" },
    { .name = "npz_deflated", .run = run_text, .text = "npz $/deflated.npz | shuffle | batch 10" },
    { .name = "idx", .run = run_text, .text = "idx $/images.idx | shuffle | batch 10" },
    { .name = "idx_gzip", .run = run_text, .text = "idx $/images.idx.gz | shuffle | batch 10" },
    { .name = "cifar", .run = run_text, .text = "cifar $/cifar.bin | shuffle | batch 4" },
    { .name = "records",
      .run = run_text,
      .text = "records $/raw.bin bytes=7 fields=a:uint8,b:uint16:3 | shuffle | batch 6" },
};

int main(int argc, char **argv) {
    return sweep_main(argc, argv, scenarios, sizeof scenarios / sizeof scenarios[0],
                      begin_format_tests);
}

/*
 * test_faults_stages.c: faults in the stages that choose, drop, multiply, pad and
 * pack samples, and going on from a state in each; see support/fault_sweep.h.
 */
#include "support/fault_sweep.h"
#include "support/format_data.h"
#include "support/memory_data.h"

static void run_text(void) {
    char text[TEXT_BYTES];
    brim_state state;
    const void *none = NULL;
    const brim_open_options options = format_options();
    rewind_documents();
    begin_runtime(SIXTEEN_MIB);
    brim_loader *loader = open_text(expand(now.scenario->text, text), &options);
    take(loader, 1);
    must(brim_loader_state(loader, &state), "state");
    take(loader, 1);
    ATTEMPT(brim_loader_restore(loader, &state), none);
    take(loader, 2);
    brim_loader_close(loader);
    end_runtime();
}

#define CSV   "csv $/table.csv columns=label,score index=beside | "
#define JSONL "jsonl $/documents.jsonl fields=ids,label max_length=8 index=beside | "
static struct scenario scenarios[] = {
    { .name = "subset",
      .run = run_text,
      .text = "npz $/stored.npz | subset $/chosen.txt | batch 10" },
    { .name = "subset_npy",
      .run = run_text,
      .text = "npz $/stored.npz | subset $/chosen.npy | batch 10" },
    { .name = "concat",
      .run = run_text,
      .text =
          "concat (npz $/stored.npz) (safetensors $/x.safetensors | take 20) | shuffle | batch 4" },
    { .name = "balance", .run = run_text, .text = CSV "balance label | batch 4" },
    { .name = "weighted", .run = run_text, .text = CSV "weighted label weights=1,2,5 | batch 4" },
    { .name = "stratify",
      .run = run_text,
      .text = CSV "split train validation=0.2 stratify=label | batch 4" },
    { .name = "fold",
      .run = run_text,
      .text = CSV "fold 1 of=5 part=train stratify=label | batch 4" },
    { .name = "filter",
      .run = run_text,
      .text = CSV "filter \"label == 1\" \"score < 90\" | batch 2" },
    { .name = "filter_by", .run = run_text, .text = CSV "filter by=@even | batch 3" },
    { .name = "flat_map", .run = run_text, .text = CSV "flat_map @twice | batch 10" },
    { .name = "unbatch", .run = run_text, .text = "npz $/stored.npz | unbatch | batch 44" },
    { .name = "pad", .run = run_text, .text = JSONL "pad on=ids value=-1 | batch 4" },
    { .name = "buffer",
      .run = run_text,
      .text = JSONL "filter \"label > 0\" | shuffle buffer=4KiB | pad on=ids | batch 4" },
    { .name = "bucket",
      .run = run_text,
      .text = JSONL "pad on=ids | bucket 64 buffer=4KiB edges=2,4,8" },
    { .name = "pack", .run = run_text, .text = JSONL "pack_sequences 32 on=ids | batch 3" },
    { .name = "batch_map", .run = run_text, .text = CSV "batch 4 | batch_map @double" },
    { .name = "batch_map_filter",
      .run = run_text,
      .text = CSV "filter by=@even | batch 3 | batch_map @double | batch_map @double" },
    { .name = "stream", .run = run_text, .text = "stream @documents | pad on=ids | batch 4" },
    { .name = "stream_buffer",
      .run = run_text,
      .text = "stream @documents | shuffle buffer=4KiB | batch 4" },
};

int main(int argc, char **argv) {
    return sweep_main(argc, argv, scenarios, sizeof scenarios / sizeof scenarios[0],
                      begin_format_tests);
}

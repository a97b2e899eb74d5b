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
    { "subset", run_text, "npz $/stored.npz | subset $/chosen.txt | batch 10", { 0 } },
    { "subset_npy", run_text, "npz $/stored.npz | subset $/chosen.npy | batch 10", { 0 } },
    { "concat",
      run_text,
      "concat (npz $/stored.npz) (safetensors $/x.safetensors | take 20) | shuffle | batch 4",
      { 0 } },
    { "balance", run_text, CSV "balance label | batch 4", { 0 } },
    { "weighted", run_text, CSV "weighted label weights=1,2,5 | batch 4", { 0 } },
    { "stratify", run_text, CSV "split train validation=0.2 stratify=label | batch 4", { 0 } },
    { "fold", run_text, CSV "fold 1 of=5 part=train stratify=label | batch 4", { 0 } },
    { "filter", run_text, CSV "filter \"label == 1\" \"score < 90\" | batch 2", { 0 } },
    { "filter_by", run_text, CSV "filter by=@even | batch 3", { 0 } },
    { "flat_map", run_text, CSV "flat_map @twice | batch 10", { 0 } },
    { "unbatch", run_text, "npz $/stored.npz | unbatch | batch 44", { 0 } },
    { "pad", run_text, JSONL "pad on=ids value=-1 | batch 4", { 0 } },
    { "buffer",
      run_text,
      JSONL "filter \"label > 0\" | shuffle buffer=4KiB | pad on=ids | batch 4",
      { 0 } },
    { "bucket", run_text, JSONL "pad on=ids | bucket 64 buffer=4KiB edges=2,4,8", { 0 } },
    { "pack", run_text, JSONL "pack_sequences 32 on=ids | batch 3", { 0 } },
    { "stream", run_text, "stream @documents | pad on=ids | batch 4", { 0 } },
    { "stream_buffer", run_text, "stream @documents | shuffle buffer=4KiB | batch 4", { 0 } },
};

int main(int argc, char **argv) {
    return sweep_main(argc, argv, scenarios, sizeof scenarios / sizeof scenarios[0],
                      begin_format_tests);
}

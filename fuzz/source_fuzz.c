/*
 * source_fuzz.c: files of every format: the input is the file.
 *
 * Each row of the table is a target, and FUZZ_TARGET chooses the row. Every
 * pipeline of the row reads the file twice, the second time with the index that
 * the first has made, and both must give the same.
 */
#include "fuzz.h"

#include <stdio.h>
#include <string.h>

#define BATCH " | batch 16 on_error=skip max_errors=1000000"

struct target {
    const char *name;
    const char *file;        /* the input's name */
    const char *other;       /* a second file of zeros, or NULL */
    const char *pipeline[4]; /* until NULL; $ stands for the input's path */
};

/* CMakeLists.txt reads the names from here. */
static const struct target targets[] = {
    { "npy", "x.npy", NULL, { "npy $", "npy $ map=yes | cast float32" } },
    { "npz", "x.npz", NULL, { "npz $", "npz $ array=x", "npz $ array=x map=yes" } },
    { "idx", "x-idx", NULL, { "idx $" } },
    { "cifar", "x.bin", NULL, { "cifar $", "cifar $ kind=10", "cifar $ kind=100" } },
    { "records",
      "x.rec",
      NULL,
      { "records $ bytes=7", "records $ bytes=12 skip=5 order=big fields=a:uint16,b:float32:2" } },
    { "safetensors", "x.safetensors", NULL, { "safetensors $", "safetensors $ tensor=x" } },
    { "csv",
      "x.csv",
      NULL,
      { "csv $ index=beside max_bytes=4KiB",
        "csv $ index=beside max_bytes=4KiB header=yes missing=nan",
        "csv $ index=beside max_bytes=4KiB header=no pack=yes missing=zero",
        "csv $ index=beside max_bytes=4KiB header=yes columns=a,b types=int64,text" } },
    { "jsonl",
      "x.jsonl",
      NULL,
      { "jsonl $ index=beside max_bytes=4KiB max_length=64",
        "jsonl $ index=beside max_bytes=4KiB fields=a,b.c types=float32,text missing=zero",
        "jsonl $ index=beside max_bytes=4KiB fields=a types=float32[3] missing=nan" } },
    { "text",
      "x.txt",
      NULL,
      { "text $ index=beside max_bytes=4KiB", "text $ index=beside max_bytes=100 form=bytes" } },
    { "megatron", "x.idx", "x.bin", { "tokens $ length=8 format=megatron" } },
    { "llmc", "x.bin", NULL, { "tokens $ length=8", "tokens $ length=3 format=llmc shift=no" } },
    { "subset", "x.txt", NULL, { "range 1000 | subset $" } },
    { "subset_npy", "x.npy", NULL, { "range 1000 | subset $" } },
};

static const struct target *target;

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    static const char zeros[4096];
    (void)argc, (void)argv;
    fuzz_begin();
    for (size_t i = 0; i < sizeof targets / sizeof targets[0]; i++) {
        if (strcmp(targets[i].name, FUZZ_TARGET) == 0) {
            target = &targets[i];
        }
    }
    if (target == NULL) {
        fuzz_wrong("there is no target %s", FUZZ_TARGET);
    }
    if (target->other != NULL) {
        fuzz_write(target->other, zeros, sizeof zeros);
    }
    return 0;
}

/* A row that does not parse would test nothing. */
static uint64_t run_row(const char *text) {
    brim_pipeline *pipeline;
    if (brim_pipeline_parse(text, &pipeline) != BRIM_OK) {
        fuzz_wrong("%s: %s", text, brim_detail());
    }
    brim_pipeline_free(pipeline);
    return fuzz_run(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    fuzz_write(target->file, data, bytes);
    for (size_t i = 0; i < 4 && target->pipeline[i] != NULL; i++) {
        const char *row = target->pipeline[i], *gap = strchr(row, '$');
        char text[FUZZ_TEXT_BYTES], path[FUZZ_PATH_BYTES];
        snprintf(text, sizeof text, "%.*s%s%s%s", (int)(gap - row), row,
                 fuzz_path(path, target->file), gap + 1, BATCH);
        const uint64_t first = run_row(text), second = run_row(text);
        if (first != second) {
            fuzz_wrong("read twice, it differs: %s", text);
        }
    }
    return 0;
}

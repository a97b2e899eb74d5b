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
#include <zlib.h>

#define BATCH " | batch 16 on_error=skip max_errors=1000000"

struct target {
    const char *name;
    const char *file;        /* the input's name */
    const char *other;       /* a second file of zeros, or NULL */
    const char *pipeline[4]; /* until NULL; $ stands for the input's path */
    bool gzip;               /* the file is the input compressed: its checksum is right */
};

/* CMakeLists.txt reads the names from here. */
static const struct target targets[] = {
    { "npy", "x.npy", NULL, { "npy $", "npy $ map=yes | cast float32" }, false },
    { "npz", "x.npz", NULL, { "npz $", "npz $ array=x", "npz $ array=x map=yes" }, false },
    { "idx", "x-idx", NULL, { "idx $" }, false },
    { "idx_gzip", "x-idx.gz", NULL, { "idx $" }, true },
    { "cifar", "x.bin", NULL, { "cifar $", "cifar $ kind=10", "cifar $ kind=100" }, false },
    { "records",
      "x.rec",
      NULL,
      { "records $ bytes=7", "records $ bytes=12 skip=5 order=big fields=a:uint16,b:float32:2" },
      false },
    { "safetensors", "x.safetensors", NULL, { "safetensors $", "safetensors $ tensor=x" }, false },
    { "csv",
      "x.csv",
      NULL,
      { "csv $ index=beside max_bytes=4KiB",
        "csv $ index=beside max_bytes=4KiB header=yes missing=nan",
        "csv $ index=beside max_bytes=4KiB header=no pack=yes missing=zero",
        "csv $ index=beside max_bytes=4KiB header=yes columns=a,b types=int64,text" },
      false },
    { "jsonl",
      "x.jsonl",
      NULL,
      { "jsonl $ index=beside max_bytes=4KiB max_length=64",
        "jsonl $ index=beside max_bytes=4KiB fields=a,b.c types=float32,text missing=zero",
        "jsonl $ index=beside max_bytes=4KiB fields=a types=float32[3] missing=nan" },
      false },
    { "text",
      "x.txt",
      NULL,
      { "text $ index=beside max_bytes=4KiB", "text $ index=beside max_bytes=100 form=bytes" },
      false },
    { "megatron", "x.idx", "x.bin", { "tokens $ length=8 format=megatron" }, false },
    { "llmc",
      "x.bin",
      NULL,
      { "tokens $ length=8", "tokens $ length=3 format=llmc shift=no" },
      false },
    { "subset", "x.txt", NULL, { "range 1000 | subset $" }, false },
    { "subset_npy", "x.npy", NULL, { "range 1000 | subset $" }, false },
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

static void write_compressed(const uint8_t *data, size_t bytes) {
    static uint8_t packed[1 << 20];
    z_stream stream = { .next_in = (z_const Bytef *)data,
                        .avail_in = (uInt)bytes,
                        .next_out = packed,
                        .avail_out = sizeof packed };
    if (deflateInit2(&stream, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK ||
        deflate(&stream, Z_FINISH) != Z_STREAM_END || deflateEnd(&stream) != Z_OK) {
        fuzz_wrong("the input cannot be compressed");
    }
    fuzz_write(target->file, packed, stream.total_out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    if (target->gzip) {
        write_compressed(data, bytes);
    } else {
        fuzz_write(target->file, data, bytes);
    }
    for (size_t i = 0; i < 4 && target->pipeline[i] != NULL; i++) {
        char row[512], text[FUZZ_TEXT_BYTES];
        snprintf(row, sizeof row, "%s" BATCH, target->pipeline[i]);
        fuzz_expand(text, row, target->file);
        const uint64_t first = run_row(text), second = run_row(text);
        if (first != second) {
            fuzz_wrong("read twice, it differs: %s", text);
        }
    }
    return 0;
}

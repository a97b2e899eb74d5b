/*
 * guess_fuzz.c: brim_guess on any bytes under names of every kind. A guess is a
 * text that parses; it is run as well.
 */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char *const names[] = {
    "x",       "x.npy",        "x.npz",         "x.gz",   "x.bin", "x.csv",           "x.tsv",
    "x.jsonl", "a 'b\" |.txt", "x.safetensors", "x.json", "x.idx", "data_batch_1.bin"
};

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    fuzz_begin();
    fuzz_may_miss_files = true;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char guess[1024], text[FUZZ_TEXT_BYTES], path[FUZZ_PATH_BYTES];
        fuzz_write(names[i], data, bytes);
        const brim_status status = brim_guess(fuzz_path(path, names[i]), guess, sizeof guess);
        if (status == BRIM_OK) {
            brim_pipeline *pipeline;
            if (brim_pipeline_parse(guess, &pipeline) != BRIM_OK) {
                fuzz_wrong("the guess \"%s\" does not parse: %s", guess, brim_detail());
            }
            brim_pipeline_free(pipeline);
            snprintf(text, sizeof text, "%s | batch 16 on_error=skip", guess);
            fuzz_run(text);
        } else {
            fuzz_check_refusal("brim_guess", status);
        }
        unlink(path);
    }
    return 0;
}

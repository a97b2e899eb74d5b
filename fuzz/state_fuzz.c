/*
 * state_fuzz.c: the bytes of a state: as they are, and with the identity and the
 * checksum of a true one, as if somebody had forged it. Whatever a loader takes
 * for a state, it goes on from there, or says that it cannot.
 */
#include "fuzz.h"

#include "base/base.h"

#include <stdio.h>
#include <string.h>

/* Where a state's position begins, and its checksum (engine/state.h). */
enum { AT_POSITION = 24, AT_CHECKSUM = 120 };

/* $ is a file of lines. */
static const char *const pipelines[] = {
    "range 100 | shuffle seed=3 | batch 8 micro=3",
    "mix 0.5 (range 10 | repeat 3) 0.5 (range 20 | shuffle) length=50 | batch 7 remainder=pad",
    "range 100 | filter \"index > 30\" | shuffle buffer=4KiB | batch 8 micro=3",
    "records $ bytes=6 | unbatch | take 90 | batch 5",
    "text $ index=beside max_bytes=64 | pack_sequences 16 | batch 2",
    "text $ index=beside max_bytes=64 | pad on=text | bucket 64 buffer=4KiB",
};

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    char lines[1200];
    size_t used = 0;
    (void)argc, (void)argv;
    for (unsigned i = 0; used < sizeof lines - 40; i++) {
        used += (size_t)snprintf(lines + used, 40, "%.*s\n", (int)(i * 7 % 20),
                                 "twenty letters and one");
    }
    used -= used % 6;
    fuzz_begin();
    fuzz_write("lines", lines, used);
    return 0;
}

static void restore(brim_loader *loader, const brim_state *state) {
    brim_state after;
    const brim_status status = brim_loader_restore(loader, state);
    if (status != BRIM_OK) {
        fuzz_check_refusal("brim_loader_restore", status);
    }
    fuzz_take(loader);
    if (brim_loader_state(loader, &after) != BRIM_OK ||
        brim_loader_restore(loader, &after) != BRIM_OK) {
        fuzz_wrong("a state just written is refused: %s", brim_detail());
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    for (size_t i = 0; i < sizeof pipelines / sizeof pipelines[0]; i++) {
        char text[FUZZ_TEXT_BYTES];
        brim_state state = { { 0 } }, forged;
        brim_pipeline *pipeline;
        brim_loader *loader;
        if (brim_pipeline_parse(fuzz_expand(text, pipelines[i], "lines"), &pipeline) != BRIM_OK ||
            brim_loader_open(fuzz_runtime(), pipeline, NULL, &loader) != BRIM_OK ||
            brim_loader_state(loader, &forged) != BRIM_OK) {
            fuzz_wrong("%s: %s", pipelines[i], brim_detail());
        }
        brim_pipeline_free(pipeline);
        memcpy(state.bytes, data, bytes < sizeof state.bytes ? bytes : sizeof state.bytes);
        memcpy(forged.bytes + AT_POSITION, state.bytes + AT_POSITION, AT_CHECKSUM - AT_POSITION);
        const uint64_t checksum = brim__hash(forged.bytes, AT_CHECKSUM, 0);
        memcpy(forged.bytes + AT_CHECKSUM, &checksum, sizeof checksum);
        restore(loader, &state);
        restore(loader, &forged);
        brim_loader_close(loader);
        fuzz_check_budget();
    }
    return 0;
}

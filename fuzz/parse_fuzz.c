/*
 * parse_fuzz.c: the text of a pipeline. What parses prints as text that parses
 * to the same; a copy prints the same.
 */
#include "fuzz.h"

#include <string.h>

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    fuzz_begin();
    return 0;
}

static brim_pipeline *parse(const char *text) {
    brim_pipeline *pipeline;
    const brim_status status = brim_pipeline_parse(text, &pipeline);
    if (status != BRIM_OK) {
        fuzz_wrong("\"%s\" was printed but does not parse: %s", text, brim_detail());
    }
    return pipeline;
}

static void check_same(const brim_pipeline *a, const brim_pipeline *b) {
    const char *first = brim_pipeline_text(a), *second = brim_pipeline_text(b);
    if (first == NULL || second == NULL || strcmp(first, second) != 0) {
        fuzz_wrong("\"%s\" and \"%s\" differ", first, second);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    char text[FUZZ_TEXT_BYTES];
    brim_pipeline *pipeline, *copy;
    if (bytes >= sizeof text) {
        return -1;
    }
    memcpy(text, data, bytes);
    text[bytes] = '\0';
    const brim_status status = brim_pipeline_parse(text, &pipeline);
    if (status != BRIM_OK) {
        fuzz_check_refusal("brim_pipeline_parse", status);
        return 0;
    }
    if (brim_pipeline_copy(pipeline, &copy) != BRIM_OK) {
        fuzz_wrong("brim_pipeline_copy: %s", brim_detail());
    }
    check_same(pipeline, copy);
    brim_pipeline *again = parse(brim_pipeline_text(pipeline));
    check_same(pipeline, again);
    brim_pipeline_free(again);
    brim_pipeline_free(copy);
    brim_pipeline_free(pipeline);
    return 0;
}

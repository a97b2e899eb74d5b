/*
 * parse_fuzz.c: the text of a pipeline. What parses prints as text that parses
 * to the same; a copy prints the same. Its stages and values lie in that text, one inside
 * or after the other. What does not parse fails at a place inside the text.
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

static void check_values(const brim_pipeline *pipeline, size_t number,
                         const brim_pipeline_stage *stage) {
    for (size_t i = 0; i < stage->value_count; i++) {
        brim_pipeline_value value = BRIM_PIPELINE_VALUE_INIT;
        if (brim_pipeline_read_value(pipeline, number, i, &value) != BRIM_OK) {
            fuzz_wrong("brim_pipeline_read_value: %s", brim_detail());
        }
        if (value.end > 0 &&
            (value.begin <= stage->begin || value.begin >= value.end || value.end > stage->end)) {
            fuzz_wrong("value %zu lies outside of stage %zu of \"%s\"", i, number,
                       brim_pipeline_text(pipeline));
        }
    }
}

static void check_walk(const brim_pipeline *pipeline) {
    const char *text = brim_pipeline_text(pipeline);
    brim_pipeline_stage before = BRIM_PIPELINE_STAGE_INIT;
    for (size_t i = 0; i < brim_pipeline_stage_count(pipeline); i++) {
        brim_pipeline_stage stage = BRIM_PIPELINE_STAGE_INIT;
        if (brim_pipeline_read_stage(pipeline, i, &stage) != BRIM_OK) {
            fuzz_wrong("brim_pipeline_read_stage: %s", brim_detail());
        }
        const size_t length = strlen(stage.info->name);
        if (stage.end > strlen(text) || stage.end < stage.begin + length ||
            strncmp(text + stage.begin, stage.info->name, length) != 0 ||
            (i > 0 && stage.begin <= before.begin) || stage.depth > before.depth + 1 ||
            (stage.depth == 0) != (stage.parent == BRIM_NO_STAGE) ||
            (stage.depth > 0 && stage.parent >= i)) {
            fuzz_wrong("stage %zu is not where it should be in \"%s\"", i, text);
        }
        check_values(pipeline, i, &stage);
        before = stage;
    }
}

static void check_place(size_t bytes) {
    brim_failure failure = BRIM_FAILURE_INIT;
    if (brim_failure_read(&failure) != BRIM_OK || failure.at > bytes || failure.end > bytes ||
        failure.begin > failure.at || (failure.end > 0 && failure.begin >= failure.end)) {
        fuzz_wrong("the failure is at byte %zu, of a stage from %zu to %zu: %s", failure.at,
                   failure.begin, failure.end, failure.text);
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
        check_place(bytes);
        return 0;
    }
    if (brim_pipeline_copy(pipeline, &copy) != BRIM_OK) {
        fuzz_wrong("brim_pipeline_copy: %s", brim_detail());
    }
    check_same(pipeline, copy);
    check_walk(pipeline);
    check_walk(copy);
    brim_pipeline *again = parse(brim_pipeline_text(pipeline));
    check_same(pipeline, again);
    brim_pipeline_free(again);
    brim_pipeline_free(copy);
    brim_pipeline_free(pipeline);
    return 0;
}

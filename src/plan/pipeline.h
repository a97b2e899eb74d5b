/*
 * pipeline.h: a pipeline as a list of stage uses, and its text.
 *
 * Only brim_pipeline_add and brim_pipeline_cut change a pipeline. Its memory is bounded by its
 * text, which is bounded by BRIM__PIPELINE_BYTES.
 */
#ifndef BRIM_PIPELINE_H
#define BRIM_PIPELINE_H

#include "base/stage.h"
#include "memory/alloc.h"

#define BRIM__PIPELINE_BYTES  (1u << 20) /* longest text */
#define BRIM__PIPELINE_DEPTH  8          /* nested parentheses */
#define BRIM__PIPELINE_STAGES 64

struct brim_pipeline {
    struct brim__arena arena; /* not counted: made before any budget; empty if nested */
    struct brim__use *use;
    size_t use_count, use_capacity;
    char *text;           /* canonical, without defaults; made by every change; NULL if nested */
    uint32_t stage_count; /* in it, with those in parentheses; only of the outermost */
};

/* The table: rows in the order of rooms. */
extern const struct brim__stage *const brim__stages[];
extern const size_t brim__stages_count;
const struct brim__stage *brim__stage_by_name(const char *name, size_t length);

/* One use as text. full: with defaults spelled out and nested pipelines in full
 * (for fingerprints and `brim plan`); without_paths: PATH values left out.
 * Returns the length without the zero, like snprintf; writes at most `bytes`. */
size_t brim__use_text(const struct brim__use *use, bool full, bool without_paths, char *text,
                      size_t bytes);

/* walk.c. The thread's failure, which counts in the pipeline's text, counts in the text that was
 * parsed instead. */
void brim__pipeline_note_given(const brim_pipeline *pipeline);

#endif

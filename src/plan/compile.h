/*
 * compile.h: what the files that compile a pipeline share: compile.c (chains of
 * stages), leaves.c (sources), describe.c (what `brim plan` shows of each stage).
 */
#ifndef BRIM_COMPILE_H
#define BRIM_COMPILE_H

#include "plan/plan.h"

#define BRIM__EFFECT_BYTES 512

struct brim__compiler {
    brim_plan *plan;
    struct brim__opening opening;
    uint32_t stage; /* the next free record of plan->stage */
    bool has_batch;
};

/* describe.c */
size_t brim__count_stages(const brim_pipeline *pipeline); /* with those in parentheses */
/* Begins the record of a stage: its name and full text. */
brim_status brim__begin_stage(struct brim__compiler *compiler, const struct brim__use *use,
                              uint32_t *place);
brim_status brim__set_effect(struct brim__compiler *compiler, uint32_t place, const char *text);
brim_status brim__effect_of_program(struct brim__compiler *compiler, uint32_t place,
                                    const struct brim__program *program);
brim_status brim__effect_of_order(struct brim__compiler *compiler, uint32_t place);
/* Enters a stage into a fingerprint: its version and full text without paths. */
brim_status brim__enter_stage(struct brim__compiler *compiler, uint64_t *fingerprint,
                              const struct brim__use *use);

/* leaves.c: a leaf: its sources, its place in the order, and an empty program. */
brim_status brim__open_leaf(struct brim__compiler *compiler, const struct brim__use *use,
                            uint32_t place, uint64_t branch, bool nested);

#endif

/*
 * compile.h: declarations for the files that compile a pipeline: compile.c (chains of stages),
 * leaves.c (sources), batches.c (stages that act on whole batches), describe.c (what `brim plan`
 * shows of each stage), caches.c.
 */
#ifndef BRIM_COMPILE_H
#define BRIM_COMPILE_H

#include "plan/plan.h"

#define BRIM__EFFECT_BYTES 1024

/* A stage after `batch`, which is added when the layout of batches is known. */
struct brim__late_stage {
    const struct brim__use *use;
    uint32_t index;
    uint64_t key;
};

struct brim__compiler {
    brim_plan *plan;
    struct brim__opening opening;
    uint32_t stage; /* the next free record of plan->stage */
    bool has_batch;
    const struct brim__device *device; /* NULL: the host */
    struct brim__late_stage late[BRIM__BATCH_STEPS];
    uint32_t late_count;
};

/* The place of a stage. */
struct brim__site {
    const struct brim__use *use;
    const brim_pipeline *pipeline; /* the chain, in which it is ... */
    size_t number;                 /* ... this one */
    uint32_t index;                /* in the plan, where ... */
    uint32_t begin;                /* ... the chain begins here */
    uint32_t first_leaf;           /* of the chain's */
    uint64_t key;
    bool nested;
};

/* describe.c */
size_t brim__count_stages(const brim_pipeline *pipeline); /* with those in parentheses */
/* Begins the record of a stage: its name and full text. */
brim_status brim__begin_stage(struct brim__compiler *compiler, const struct brim__use *use,
                              uint32_t *index);
/* begin_fields takes room for the records of the fields after a stage; add_field adds one. */
brim_status brim__begin_fields(struct brim__compiler *compiler, uint32_t index, uint32_t most);
brim_status brim__add_field(struct brim__compiler *compiler, uint32_t index, const char *name,
                            brim_form form, brim_dtype dtype, const struct brim__shape *shape);
brim_status brim__set_effect(struct brim__compiler *compiler, uint32_t index, const char *text);
brim_status brim__effect_of_program(struct brim__compiler *compiler, uint32_t index,
                                    const struct brim__program *program, const char *note);
brim_status brim__effect_of_order(struct brim__compiler *compiler, uint32_t index);
/* Hashes a stage into a fingerprint: its version and full text without paths. */
brim_status brim__enter_stage(struct brim__compiler *compiler, uint64_t *fingerprint,
                              const struct brim__use *use);

/* leaves.c: a leaf: its sources, its place in the order, and an empty program. */
brim_status brim__open_leaf(struct brim__compiler *compiler, const struct brim__use *use,
                            uint32_t index, uint64_t branch, bool nested);

/* caches.c: a cache after the current steps of the chain's leaves; and whether a cache is allowed
 * after a stage. */
brim_status brim__compile_cache(struct brim__compiler *compiler, const struct brim__site *site);
void brim__cacheable(brim_plan *plan, uint32_t index, uint32_t first_leaf);
/* To be called when all stages are known: fails if a cache on the device is not allowed with
 * them. */
brim_status brim__check_residents(const struct brim__compiler *compiler);

/* batches.c: stages that act on whole batches: notes one, and, when the batches are
 * laid out, adds all of them to the plan. */
brim_status brim__compile_late(struct brim__compiler *compiler, const struct brim__use *use,
                               uint32_t index, uint64_t key);
brim_status brim__add_late(struct brim__compiler *compiler);

#endif

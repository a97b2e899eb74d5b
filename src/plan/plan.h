/*
 * plan.h: a pipeline fitted into a budget.
 *
 * Building a plan opens the sources, composes the order, compiles one program for each leaf, lays
 * out a slot, and computes the minimum and how many threads and slots fit above it. Only the
 * headers of a source are read, and labels if the order needs them. Memory that a source will hold
 * is counted now and taken when the loader loads it. The plan's permanent data are in one arena,
 * charged to the budget of the future loader; a loader takes the plan over.
 *
 *     leaf 0: sources side by side ─ program ─┐
 *     leaf 1: (another part of a mix) ────────┴─► rows of a slot:
 *
 *     (layout.h), directly into a batch, or into a chunk from which a sequencer
 *     fills batches (sequence.h)
 */
#ifndef BRIM_PLAN_H
#define BRIM_PLAN_H

#include "batching/batch_program.h"
#include "batching/shard.h"
#include "cache/cache.h"
#include "memory/alloc.h"
#include "order/order.h"
#include "plan/device_layout.h"
#include "plan/layout.h"
#include "plan/pipeline.h"
#include "plan/sequence.h"
#include "source/source.h"
#include "transform/program.h"

#define BRIM__MAX_LEAVES   32
#define BRIM__MAX_STAGES   128 /* with those in parentheses */
#define BRIM__ORIGIN_BYTES 160 /* where a limit comes from, in words */

struct brim__leaf {
    struct brim__source *source[BRIM__MAX_SOURCES];
    uint32_t source_stage[BRIM__MAX_SOURCES];
    const char *source_name[BRIM__MAX_SOURCES]; /* for failures: its path, or "@name"; NULL: none */
    uint64_t key[BRIM__MAX_SOURCES];            /* for random numbers of callbacks */
    uint64_t run[BRIM__MAX_SOURCES];            /* most samples of one fetch */
    uint64_t buffer[BRIM__MAX_SOURCES];         /* its place in scratch */
    uint32_t source_count;
    uint64_t program_scratch; /* the program's place in scratch */
    uint64_t count;
    uint64_t first_id;                             /* samples of all leaves are numbered through */
    uint64_t data_fingerprint, sample_fingerprint; /* of its own sources and stages */
    uint64_t draws; /* of the keys of what is random in it, which depend on its place */
    struct brim__program program;
    struct brim__leaf_cache cache[BRIM__MAX_CACHES]; /* caches in the program, in order */
    uint32_t cache_count;
    uint32_t frozen; /* steps before this one are run as in epoch 0 */
    bool stamped;    /* a cache looks at the files of each sample */
    bool hashed;     /* a cache compares the content of each sample's records */
};

/* The arguments for making a plan. */
struct brim__plan_request {
    brim_budget *budget; /* the loader's own node; the plan holds a reference */
    uint64_t base_bytes; /* counted at the root before any loader, and the node itself */
    uint64_t (*extra_bytes)(const brim_plan *plan); /* that the loader wants of the arena */
    const brim_open_options *options;               /* whole: of this version's size */
    uint32_t threads;                               /* workers that the runtime would run */
    uint32_t running[2];               /* that it runs already: with any stack, with a large one */
    const char *limit_origin;          /* less than BRIM__ORIGIN_BYTES */
    const char *index_dir;             /* for indexes; NULL: in the user's home */
    bool trust_foreign;                /* indexes of other users are used too */
    const struct brim__device *device; /* opened; NULL: batches are delivered on the host */
};

struct brim_plan {
    struct brim__arena arena;
    brim_budget *budget;
    struct brim__order order;
    struct brim__batching batching;
    struct brim__shard shard;      /* how rows become batches */
    struct brim__shard deliveries; /* the same for what workers fill: batches, or chunks */
    struct brim__sequence sequence;
    struct brim__serial *serials;
    struct brim__index *indexes;      /* newest first */
    uint64_t loaded_bytes;            /* that loaded sources hold, beside the arena */
    brim_progress_callback *progress; /* while the plan is made and loaded; or NULL */
    void *progress_user;
    struct brim__cache *caches; /* newest first */
    uint32_t cache_count;
    struct brim__cache *device_cache; /* `cache device`, which is none of these; NULL: none */
    struct brim__leaf *leaf[BRIM__MAX_LEAVES];
    uint32_t leaf_count;
    struct brim__layout made;      /* what workers fill */
    struct brim__layout placed;    /* a batch whose rows are complete: the same, or sequenced */
    struct brim__layout delivered; /* what the user gets: the same, or what stages put in place */
    struct brim__device_layout on_device; /* and how that lies on a device */
    uint64_t rows_per_sample;             /* rows that one sample becomes at most */
    uint64_t replace_key;                 /* which sample replaces a bad one */
    bool callback;                        /* runs the user's code */
    uint64_t stack_usable;
    uint32_t slot_cap, thread_cap; /* never more, however much is free */
    uint32_t device_slot_cap;      /* slots on the device; 0: none */
    struct {
        brim_memory kind;
        uint64_t bytes;
    } lacking;   /* the kind that is short, and the need; 0: it fits */
    void *extra; /* what extra_bytes asked for, zeroed: the loader */
    struct brim__batch_step batch_step[BRIM__BATCH_STEPS]; /* of the last stages, one each */
    uint32_t batch_steps;
    brim_plan_stage *stage;
    brim_plan_field **stage_field;         /* of each stage, its field_count fields */
    brim_plan_stage *batch_stage;          /* NULL: batches of 1, as nothing was said */
    char limit_origin[BRIM__ORIGIN_BYTES]; /* here, so that no minimum depends on its length */
    brim_plan_field *field;
    brim_plan_index *index; /* in the order of opening */
    brim_plan_info info;
};

brim_status brim__plan_build(const struct brim__plan_request *request,
                             const brim_pipeline *pipeline, brim_plan **out);
void brim__plan_free(brim_plan *plan);

/* compile.c makes sources, order and programs. layout.c, called at its end, lays out rows and
 * scratch, and, after stages on whole batches were added, slots and the user's fields. fit.c
 * computes how much of it fits into the budget. */
brim_status brim__plan_compile(brim_plan *plan, const struct brim__plan_request *request,
                               const brim_pipeline *pipeline);
brim_status brim__plan_lay_out(brim_plan *plan, const struct brim__device *device, bool acts);
brim_status brim__plan_lay_out_slots(brim_plan *plan, const struct brim__device *device);
/* device_layout.c. defer: leaves conversions to the device, before programs are finished (acts:
 * there are stages on whole batches). lay_out: lays out device slots. table: writes the table of a
 * conversion, in the host's byte order, 256 elements for each channel. */
void brim__device_defer(brim_plan *plan, const struct brim__device *device, bool acts);
brim_status brim__device_lay_out(brim_plan *plan, const struct brim__device *device);
brim_status brim__device_table(const struct brim__device_field *field, void *table);
/* sequence.c: stages that only a sequenced plan has, or that work differently in it. */
brim_status brim__sequence_order(brim_plan *plan, const struct brim__use *use, uint64_t key);
brim_status brim__sequence_begin(brim_plan *plan, const char *stage, bool nested);
brim_status brim__sequence_lay_out(brim_plan *plan);
uint64_t brim__sequence_bytes(const brim_plan *plan); /* of its window */
/* leaves.c: sources that are held in memory: the bytes that loading will take, in whole pages, and
 * loading one source, or all. */
uint64_t brim__plan_held_bytes(const brim_plan *plan);
brim_status brim__plan_load_source(brim_plan *plan, struct brim__source *source);
brim_status brim__plan_load(brim_plan *plan);
/* labels.c: a brim__order_site's labels. */
brim_status brim__plan_labels(void *user, const char *name, uint64_t first, uint64_t count,
                              int64_t *labels);
/* indexes.c: plan->index, from the list. */
brim_status brim__plan_list_indexes(brim_plan *plan);
brim_status brim__plan_fit(brim_plan *plan, const struct brim__plan_request *request);
/* refuse: the failure of opening `label` with a plan that does not fit. note_minimum: adds the
 * minimum to a failure, if the plan fits but memory was short later. */
brim_status brim__plan_refuse(const brim_plan *plan, const char *label);
void brim__plan_note_minimum(const brim_plan *plan);

/* at_stage adds this stage to the thread's failure (describe.c). at_sample adds a sample of a leaf:
 * its number, its file, and the stage, which is that of the failed step or that of the source,
 * which also names the sample (leaves.c). */
brim_status brim__plan_at_stage(const brim_plan *plan, brim_status status, uint32_t index);
brim_status brim__plan_at_sample(const brim_plan *plan, brim_status status,
                                 const struct brim__leaf *leaf, uint32_t source, uint64_t sample);

/* Appends "name dtype shape" to a list for people, cut without an error. */
void brim__append_field(char *text, size_t bytes, const char *name, brim_form form,
                        brim_dtype dtype, const struct brim__shape *shape);

/* No budget may be smaller. A small plan fits into it, so that a refusal can always give the
 * minimum. */
#define BRIM__BUDGET_FLOOR (128u << 10)
#define BRIM__MOST_HOLD    1024u
#define BRIM__MOST_SLOTS   (BRIM__MOST_HOLD + 8)

/* Stacks: small for brim's code, of the usual size if functions of the program run. */
#define BRIM__STACK_OWN      (256u << 10)
#define BRIM__STACK_CALLBACK (8u << 20)

#endif

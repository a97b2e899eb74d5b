/*
 * stage.h: one row of the stage table, and the use of a stage in a pipeline.
 *
 * A stage is described once, by its brim_stage_info, and built by the functions of its
 * row. The parser fills a brim__use: the values of
 * all arguments, in the order of the row's arguments, defaults included, each
 * already checked against type, range and choices.
 */
#ifndef BRIM_STAGE_H
#define BRIM_STAGE_H

#include "base/base.h"

struct brim__arena;           /* memory/alloc.h */
struct brim__opening;         /* source/source.h */
struct brim__source;          /* source/source.h */
struct brim__zip_site;        /* source/zip.h */
struct brim__order_site;      /* order/order.h */
struct brim__join_site;       /* order/order.h */
struct brim__unnumbered_site; /* order/unnumbered.h */
struct brim__program;         /* transform/program.h */
struct brim__cache;           /* cache/cache.h */
struct brim__batching;        /* batching/batching.h */
struct brim__batch_site;      /* batching/batch_program.h */
struct brim__use;

typedef brim_status brim__source_open(const struct brim__use *use, struct brim__opening *opening,
                                      struct brim__source *source);
typedef brim_status brim__parts_zip(const struct brim__use *use, const struct brim__zip_site *site);
typedef brim_status brim__parts_join(const struct brim__use *use,
                                     const struct brim__join_site *site);
typedef brim_status brim__order_add(const struct brim__use *use,
                                    const struct brim__order_site *site);
typedef brim_status brim__unnumbered_add(const struct brim__use *use,
                                         const struct brim__unnumbered_site *site);
typedef brim_status brim__transform_add(const struct brim__use *use, struct brim__program *program);
typedef brim_status brim__cache_make(const struct brim__use *use, struct brim__arena *arena,
                                     struct brim__cache **out);
typedef brim_status brim__batching_set(const struct brim__use *use,
                                       struct brim__batching *batching);
typedef brim_status brim__batch_add(const struct brim__use *use,
                                    const struct brim__batch_site *site);

/* A row of the table. The functions of a row determine where a pipeline can have the stage and how
 * it is compiled. Only the stage's own file knows it by name. */
struct brim__stage {
    brim_stage_info info;
    /* at the begin of a pipeline, one of: */
    brim__source_open *open;      /* opens a source */
    brim__parts_zip *zip_parts;   /* opens a source for each part, side by side */
    brim__parts_join *join_parts; /* opens a pipeline for each part, makes one order of all */
    /* after that, one of: */
    brim__order_add *add_order;
    brim__transform_add *add_transform;
    brim__cache_make *make_cache;
    brim__batching_set *set_batching; /* says how batches are made */
    brim__batch_add *add_batch;       /* acts on whole batches, after a stage that makes them */
    /* beside add_order: the same for samples without numbers; NULL: refused there */
    brim__unnumbered_add *add_unnumbered;
    /* beside set_batching */
    bool makes_batches; /* after it only stages with add_batch may stand */
    bool sequences;     /* rows get their places one after the other, in a sequenced plan */
};

/* One value. `text` is always set: as written, unquoted. For a binding it is
 * the name without the @. */
struct brim__item {
    const char *text;
    int64_t integer;         /* INTEGER, SIZE, YESNO (0 or 1), CHOICE (index) */
    double real;             /* REAL, and the weight of WEIGHTED */
    brim_pipeline *pipeline; /* PIPELINE and WEIGHTED */
    bool integral;           /* REAL: it was written as an integer */
};

/* Bytes of the pipeline's text; both 0: a default, which is left out there. */
struct brim__extent {
    size_t begin, end;
};

struct brim__values {
    const struct brim__item *items;
    struct brim__extent *extents; /* of each; NULL: not of a pipeline */
    size_t count;                 /* 0: not given and no default */
};

struct brim__use {
    const struct brim__stage *stage;
    const struct brim__values *values; /* stage->info.argument_count of them */
    size_t begin, end;                 /* bytes of the pipeline's text */
    size_t given_begin, given_end;     /* bytes of the text that was parsed; both 0: none */
    uint32_t number;                   /* among all stages of the text, those in parentheses too */
};

static inline struct brim__spot brim__spot_of(const struct brim__use *use) {
    return (struct brim__spot){ use->stage->info.name, use->number, use->begin, use->end };
}

static inline bool brim__given(const struct brim__use *use, size_t argument) {
    return use->values[argument].count > 0;
}
static inline const struct brim__item *brim__item(const struct brim__use *use, size_t argument) {
    assert(use->values[argument].count > 0);
    return &use->values[argument].items[0];
}

/* Rows of arguments that stages of several rooms have. */
#define BRIM__SEED_ARGUMENT(help_) \
    { .name = "seed", .type = BRIM_TYPE_INTEGER, .fallback = "0", .help = help_ }
/* The seed of stages that call a function, for brim_call_random. */
#define BRIM__CALLS_SEED_ARGUMENT \
    BRIM__SEED_ARGUMENT("another seed gives brim_call_random other numbers")
#define BRIM__ON_ARGUMENT(help_) \
    { .name = "on", .type = BRIM_TYPE_WORD, .flags = BRIM_ARGUMENT_FLAG_LIST, .help = help_ }

#endif

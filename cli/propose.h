/*
 * propose.h: where a cache would pay in a pipeline, measured.
 */
#ifndef CLI_PROPOSE_H
#define CLI_PROPOSE_H

#include "document.h"
#include "progress.h"
#include "session.h"

#include <brim.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PROPOSALS 2

struct proposal {
    uint32_t stage; /* the cache stands after this one ... */
    char after[BRIM_NAME_BYTES];
    uint64_t sample_bytes; /* that it keeps of a sample, at most */
    double bytes;          /* of all samples */
    bool less;             /* estimated from what samples took, since that is less */
    bool file;             /* too large for the budget: in a file instead */
    double saves;          /* of the CPU time of a sample, when all are found */
    char *text;            /* the pipeline with it; freed by proposals_free */
};

/* The best comes first. */
struct proposals {
    struct proposal at[PROPOSALS];
    size_t count;
    double samples; /* that a cache would keep */
    double room;    /* bytes that a cache in memory could have */
    uint64_t rows;  /* of a batch */
};

/* Finds where a cache may stand in the session's pipeline, from the loader's plan. */
void proposals_find(struct proposals *proposals, const struct session *session,
                    const brim_loader *loader);
/* Tries each with `samples_per_second` known of the pipeline, for about `seconds`, and
 * keeps those that pay. No loader is open now: the trials have the whole budget. */
void proposals_try(struct proposals *proposals, const struct session *session,
                   double samples_per_second, double seconds, struct progress *progress);
void proposals_print(const struct proposals *proposals);
void proposals_json(struct document *json, const struct proposals *proposals); /* an array */
void proposals_free(struct proposals *proposals);

#endif

/*
 * mixing.h: the common part of mixup and cutmix: their arguments, the fields that they act on,
 * lambda, and mixing rows with the row before.
 *
 * Row r of a batch is mixed with row r - 1, and row 0 with the last. That needs no second batch.
 * Blocks of columns are done one at a time: the last row's block is saved, and then rows are
 * changed from the last to the first, each while the row before it is still unchanged. A block
 * stays in the CPU's first cache from the time it is read as a row's predecessor until it is
 * changed itself, so that memory is read once and written once.
 */
#ifndef BRIM_MIXING_H
#define BRIM_MIXING_H

#include "batching/batch_program.h"
#include "batching/beta.h"
#include "source/source.h"

#define BRIM__MIX_BLOCK 8192 /* bytes of a row in work; on the stack */

/* The first arguments of both stages, in this order. */
enum {
    BRIM__MIX_ALPHA,
    BRIM__MIX_ON,
    BRIM__MIX_LABELS,
    BRIM__MIX_P,
    BRIM__MIX_SEED,
    BRIM__MIX_ARGUMENTS,
};
#define BRIM__MIX_ARGUMENT_ROWS(alpha)                                                             \
    [BRIM__MIX_ALPHA] = { .name = "alpha",                                                         \
                          .type = BRIM_TYPE_REAL,                                                  \
                          .flags = BRIM_ARGUMENT_FLAG_POSITIONAL,                                  \
                          .fallback = alpha,                                                       \
                          .least = BRIM__LEAST_ALPHA,                                              \
                          .most = BRIM__MOST_ALPHA,                                                \
                          .help = "lambda is drawn from Beta(alpha, alpha): near 0, most "         \
                                  "batches are hardly mixed; 1: all lambdas are equally likely" }, \
    [BRIM__MIX_ON] = { .name = "on",                                                               \
                       .type = BRIM_TYPE_WORD,                                                     \
                       .flags = BRIM_ARGUMENT_FLAG_LIST,                                           \
                       .help = "fields to mix; default: the first" },                              \
    [BRIM__MIX_LABELS] = { .name = "labels",                                                       \
                           .type = BRIM_TYPE_WORD,                                                 \
                           .flags = BRIM_ARGUMENT_FLAG_LIST,                                       \
                           .help =                                                                 \
                               "fields of one-hot labels, mixed by lambda; default: the last" },   \
    [BRIM__MIX_P] = { .name = "p",                                                                 \
                      .type = BRIM_TYPE_REAL,                                                      \
                      .fallback = "1",                                                             \
                      .least = 0,                                                                  \
                      .most = 1,                                                                   \
                      .help = "probability that a batch is mixed" },                               \
    [BRIM__MIX_SEED] = BRIM__SEED_ARGUMENT("another number draws other batches and lambdas")

/* The place and the element type of a field's rows. */
struct brim__mixed {
    brim_dtype dtype;
    uint64_t offset, row_bytes;
};

struct brim__mixing {
    uint64_t key;
    double alpha, p;
    uint32_t images; /* bit f: field f of the site is one of `on` */
    struct brim__mixed label[BRIM__MAX_FIELDS];
    uint32_t label_count;
};

/* Reads the common arguments, chooses the fields and checks the labels; sets
 * step->fields. */
brim_status brim__mixing_init(const struct brim__use *use, const struct brim__batch_site *site,
                              struct brim__mixing *mixing);
/* Draws lambda; further draws come after it. false: this batch is not mixed. */
bool brim__mixing_begin(const struct brim__mixing *mixing, const struct brim__batch_call *call,
                        struct brim__batch_draws *draws, double *lambda);
void brim__mix_labels(const struct brim__mixing *mixing, const struct brim__batch_call *call,
                      double lambda);

/* Whether rows of this type can be mixed. */
bool brim__mixable(brim_dtype dtype);
/* lambda x row + (1 - lambda) x the row before, for all of call->rows >= 2 rows. */
void brim__mix_rows(const struct brim__mixed *field, const struct brim__batch_call *call,
                    double lambda);

#endif

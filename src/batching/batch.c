/*
 * batch.c: how samples become batches: rows, micro-batches, remainder, errors.
 *
 * This file only reads the arguments; shard.c does the arithmetic for a rank. The choices are in
 * the order of their enums.
 */
#include "batching/batching.h"
#include "batching/stages.h"

#define MOST_ROWS 2147483647.0

enum { ROWS, PER, MICRO, REMAINDER, ON_ERROR, MAX_ERRORS };
enum { PER_RANK, PER_GLOBAL };

static_assert(BRIM__KEEP == 0 && BRIM__DROP == 1 && BRIM__PAD == 2, "the order of the choices");
static_assert(BRIM__FAIL == 0 && BRIM__SKIP == 1 && BRIM__REPLACE == 2, "the order of the choices");

static const brim_argument_info arguments[] = {
    [ROWS] = {
        .name = "rows",
        .type = BRIM_TYPE_INTEGER,
        .flags = BRIM_ARGUMENT_FLAG_REQUIRED | BRIM_ARGUMENT_FLAG_POSITIONAL,
        .least = 1,
        .most = MOST_ROWS,
        .help = "samples in a batch",
    },
    [PER] = {
        .name = "per",
        .type = BRIM_TYPE_CHOICE,
        .fallback = "rank",
        .choices = "rank|global",
        .help = "what rows means: the batch of each rank, or of all ranks together",
    },
    [MICRO] = {
        .name = "micro",
        .type = BRIM_TYPE_INTEGER,
        .fallback = "0",
        .least = 0,
        .most = MOST_ROWS,
        .help = "deliver a rank's batch in micro-batches of this many rows; 0: whole",
    },
    [REMAINDER] = {
        .name = "remainder",
        .type = BRIM_TYPE_CHOICE,
        .fallback = "keep",
        .choices = "keep|drop|pad",
        .help = "if there are too few samples for the last batch: a smaller batch, no batch, or a "
                "full one with rows marked as not valid",
    },
    [ON_ERROR] = BRIM__ON_ERROR_ARGUMENT("fail|skip|replace", "the batch has one row less, or another sample replaces it"),
    [MAX_ERRORS] = BRIM__MAX_ERRORS_ARGUMENT("skip and replace accept"),
};

static brim_status set(const struct brim__use *use, struct brim__batching *batching) {
    batching->rows = (uint64_t)brim__item(use, ROWS)->integer;
    batching->global = brim__item(use, PER)->integer == PER_GLOBAL;
    batching->micro = (uint64_t)brim__item(use, MICRO)->integer;
    batching->remainder = (enum brim__remainder)brim__item(use, REMAINDER)->integer;
    batching->on_error = (enum brim__on_error)brim__item(use, ON_ERROR)->integer;
    batching->max_errors = (uint64_t)brim__item(use, MAX_ERRORS)->integer;
    return BRIM_OK;
}

const struct brim__stage brim__stage_batch = {
    .info = {
        .name = "batch",
        .summary = "collects samples into batches",
        .example = "batch 64",
        .room = BRIM_ROOM_BATCHING,
        .version = 1,
        .arguments = arguments,
        .argument_count = BRIM__COUNT(arguments),
    },
    .set_batching = set,
    .makes_batches = true,
};

/*
 * zip.c: `zip (a) (b) ...`, the row of the table.
 *
 * Sample i of a zip has the fields of sample i of every part. The parts are
 * pipelines, which only the compiler of plans can open, so there is nothing
 * here to open.
 */
#include "source/source.h"

static const brim_argument_info arguments[] = {
    { .name = "parts",
      .type = BRIM_TYPE_PIPELINE,
      .flags = BRIM_ARGUMENT_REQUIRED | BRIM_ARGUMENT_POSITIONAL | BRIM_ARGUMENT_LIST,
      .help = "pipelines with equally many samples and no field name in common; sample i is "
              "made of sample i of each" },
};

const struct brim__stage brim__stage_zip = {
    .info = { .name = "zip",
              .summary = "joins the fields of several sources, sample by sample",
              .example = "zip (npy images.npy name=x) (npy labels.npy name=y)",
              .room = BRIM_ROOM_SOURCE,
              .version = 1,
              .arguments = arguments,
              .argument_count = BRIM__COUNT(arguments) },
};

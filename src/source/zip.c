/*
 * zip.c: `zip (a) (b) ...`: several sources side by side.
 *
 * Sample i of a zip has the fields of sample i of every part. The plan opens the parts,
 * each of which is one source.
 */
#include "source/zip.h"

static const brim_argument_info arguments[] = {
    { .name = "parts",
      .type = BRIM_TYPE_PIPELINE,
      .flags =
          BRIM_ARGUMENT_FLAG_REQUIRED | BRIM_ARGUMENT_FLAG_POSITIONAL | BRIM_ARGUMENT_FLAG_LIST,
      .help = "pipelines with equally many samples and no field name in common; sample i is "
              "made of sample i of each" },
};

static brim_status zip(const struct brim__use *use, const struct brim__zip_site *site) {
    const struct brim__values *parts = &use->values[0];
    const struct brim__source *first = NULL;
    for (size_t i = 0; i < parts->count; i++) {
        const struct brim__source *source = NULL;
        const brim_status status =
            site->open_part(site->user, parts->items[i].pipeline, i + 1, &source);
        if (status != BRIM_OK) {
            return status;
        }
        first = first == NULL ? source : first;
        if (source->stream) {
            return brim__fail(BRIM_STATUS_UNSUPPORTED,
                              "zip: part %zu is a stream, whose samples have no numbers to be "
                              "joined by",
                              i + 1);
        }
        if (source->count != first->count) {
            return brim__fail(BRIM_STATUS_INVALID,
                              "zip: part 1 has %llu samples, part %zu has %llu: they must have "
                              "equally many",
                              (unsigned long long)first->count, i + 1,
                              (unsigned long long)source->count);
        }
    }
    return BRIM_OK;
}

const struct brim__stage brim__stage_zip = {
    .info = { .name = "zip",
              .summary = "joins the fields of several sources, sample by sample",
              .example = "zip (npy images.npy name=x) (npy labels.npy name=y)",
              .room = BRIM_ROOM_SOURCE,
              .version = 1,
              .arguments = arguments,
              .argument_count = BRIM__COUNT(arguments) },
    .zip_parts = zip,
};

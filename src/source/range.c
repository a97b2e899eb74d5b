/*
 * range.c: `range N`, N samples whose value is their number.
 *
 * There is no data: a sample is its number as int64, written into the engine's buffer. The stage is
 * useful for showing an order, and for measuring the cost of brim itself.
 */
#include "source/arguments.h"
#include "source/source.h"

#include <stdio.h>

enum { ARGUMENT_COUNT, ARGUMENT_NAME };

static brim_status fetch(const struct brim__source *source, const brim_call *call, uint64_t count,
                         uint8_t *buffer, const uint8_t **records, uint64_t *got) {
    assert(call->sample < source->count && count > 0);
    const uint64_t run =
        brim__min(brim__min(count, source->most_run), source->count - call->sample);
    for (uint64_t i = 0; i < run; i++) {
        const int64_t number = (int64_t)(call->sample + i);
        memcpy(buffer + i * sizeof number, &number, sizeof number);
    }
    *records = buffer;
    *got = run;
    return BRIM_OK;
}

static void describe(const struct brim__source *source, uint64_t sample, char *text, size_t bytes) {
    (void)source;
    snprintf(text, bytes, "range, sample %llu", (unsigned long long)sample);
}

static void close_range(struct brim__source *source) {
    source->ops = NULL;
}

static const struct brim__source_ops range_ops = {
    .fetch = fetch,
    .describe = describe,
    .close = close_range,
};

static brim_status open_range(const struct brim__use *use, struct brim__opening *opening,
                              struct brim__source *source) {
    (void)opening;
    memset(source, 0, sizeof *source);
    struct brim__source_field *field = &source->field[0];
    const brim_status status = brim__field_name(field->name, brim__item(use, ARGUMENT_NAME)->text);
    if (status != BRIM_OK) {
        return brim__fail_within(status, "range");
    }
    field->view = (struct brim__view){ .dtype = BRIM_DTYPE_I64 };
    source->count = (uint64_t)brim__item(use, ARGUMENT_COUNT)->integer;
    source->record_bytes = sizeof(int64_t);
    source->pitch = sizeof(int64_t);
    source->most_run = BRIM__READ_WINDOW / sizeof(int64_t);
    source->field_count = 1;
    source->identity = brim__hash("range", 5, source->count);
    source->ops = &range_ops;
    return BRIM_OK;
}

static const brim_argument_info arguments[] = {
    [ARGUMENT_COUNT] = { .name = "count",
                         .type = BRIM_TYPE_INTEGER,
                         .flags = BRIM_ARGUMENT_FLAG_REQUIRED | BRIM_ARGUMENT_FLAG_POSITIONAL,
                         .least = 1,
                         .most = 4611686018427387904.0, /* 2^62 */
                         .help = "how many samples; they are numbered from 0" },
    [ARGUMENT_NAME] = BRIM__NAME_ARGUMENT("index", ""),
};

const struct brim__stage brim__stage_range = {
    .info = { .name = "range",
              .summary = "samples that hold their own number, for trying and measuring",
              .example = "range 1000",
              .room = BRIM_ROOM_SOURCE,
              .version = 1,
              .arguments = arguments,
              .argument_count = BRIM__COUNT(arguments) },
    .open = open_range,
};

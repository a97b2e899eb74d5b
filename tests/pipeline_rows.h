/*
 * pipeline_rows.h: a table of stages for the tests of text and builder, with an
 * argument of every type, so that these tests do not depend on the real rows.
 */
#ifndef BRIM_TEST_PIPELINE_ROWS_H
#define BRIM_TEST_PIPELINE_ROWS_H

#include "plan/parse.h"

#include <math.h>

static const brim_argument_info files_arguments[] = {
    { .name = "files",
      .type = BRIM_TYPE_PATH,
      .flags =
          BRIM_ARGUMENT_FLAG_REQUIRED | BRIM_ARGUMENT_FLAG_POSITIONAL | BRIM_ARGUMENT_FLAG_LIST },
    { .name = "name", .type = BRIM_TYPE_WORD, .fallback = "x" },
    { .name = "map", .type = BRIM_TYPE_YESNO, .fallback = "no" },
    { .name = "index", .type = BRIM_TYPE_PATH, .flags = BRIM_ARGUMENT_FLAG_POSITIONAL },
};
static const brim_argument_info bound_arguments[] = {
    { .name = "array",
      .type = BRIM_TYPE_BINDING,
      .flags = BRIM_ARGUMENT_FLAG_REQUIRED | BRIM_ARGUMENT_FLAG_POSITIONAL },
    { .name = "others", .type = BRIM_TYPE_BINDING, .flags = BRIM_ARGUMENT_FLAG_LIST },
};
static const brim_argument_info join_arguments[] = {
    { .name = "parts",
      .type = BRIM_TYPE_PIPELINE,
      .flags =
          BRIM_ARGUMENT_FLAG_REQUIRED | BRIM_ARGUMENT_FLAG_POSITIONAL | BRIM_ARGUMENT_FLAG_LIST },
    { .name = "else", .type = BRIM_TYPE_PIPELINE },
};
static const brim_argument_info shuffle_arguments[] = {
    { .name = "seed", .type = BRIM_TYPE_INTEGER, .fallback = "0" },
    { .name = "each_epoch", .type = BRIM_TYPE_YESNO, .fallback = "yes" },
};
static const brim_argument_info split_arguments[] = {
    { .name = "part",
      .type = BRIM_TYPE_CHOICE,
      .flags = BRIM_ARGUMENT_FLAG_REQUIRED | BRIM_ARGUMENT_FLAG_POSITIONAL,
      .choices = "train|validation|test" },
    { .name = "validation",
      .type = BRIM_TYPE_REAL,
      .flags = BRIM_ARGUMENT_FLAG_POSITIONAL,
      .fallback = "0.1",
      .least = 0,
      .most = 1e6 },
    { .name = "test",
      .type = BRIM_TYPE_REAL,
      .flags = BRIM_ARGUMENT_FLAG_POSITIONAL,
      .fallback = "0",
      .least = 0,
      .most = 1e6 },
};
static const brim_argument_info mix_arguments[] = {
    { .name = "parts",
      .type = BRIM_TYPE_WEIGHTED,
      .flags =
          BRIM_ARGUMENT_FLAG_REQUIRED | BRIM_ARGUMENT_FLAG_POSITIONAL | BRIM_ARGUMENT_FLAG_LIST,
      .least = 1e-3,
      .most = 1e9 },
    { .name = "length", .type = BRIM_TYPE_INTEGER, .fallback = "0" },
};
static const brim_argument_info pair_arguments[] = {
    { .name = "first", .type = BRIM_TYPE_WEIGHTED, .flags = BRIM_ARGUMENT_FLAG_POSITIONAL },
    { .name = "note", .type = BRIM_TYPE_WORD, .flags = BRIM_ARGUMENT_FLAG_POSITIONAL },
};
static const brim_argument_info normalize_arguments[] = {
    { .name = "mean",
      .type = BRIM_TYPE_REAL,
      .flags = BRIM_ARGUMENT_FLAG_LIST,
      .fallback = "0.5,0.5" },
    { .name = "max", .type = BRIM_TYPE_REAL },
    { .name = "on", .type = BRIM_TYPE_WORD, .flags = BRIM_ARGUMENT_FLAG_LIST },
};
static const brim_argument_info cache_arguments[] = {
    { .name = "bytes",
      .type = BRIM_TYPE_SIZE,
      .flags = BRIM_ARGUMENT_FLAG_POSITIONAL,
      .fallback = "64MiB",
      .least = 1024,
      .most = 9223372036854775808.0 },
    { .name = "least", .type = BRIM_TYPE_SIZE, .least = 0, .most = 1048576, .fallback = "0" },
};
static const brim_argument_info batch_arguments[] = {
    { .name = "rows",
      .type = BRIM_TYPE_INTEGER,
      .flags = BRIM_ARGUMENT_FLAG_REQUIRED | BRIM_ARGUMENT_FLAG_POSITIONAL,
      .least = 1,
      .most = 1048576 },
    { .name = "remainder",
      .type = BRIM_TYPE_CHOICE,
      .fallback = "keep",
      .choices = "keep|drop|pad" },
};

#define TEST_ROW(word, list)                             \
    static const struct brim__stage word##_row = {       \
        .info = { .name = #word,                         \
                  .example = #word " ...",               \
                  .arguments = list,                     \
                  .argument_count = BRIM__COUNT(list) }, \
    }
TEST_ROW(files, files_arguments);
TEST_ROW(bound, bound_arguments);
TEST_ROW(join, join_arguments);
TEST_ROW(shuffle, shuffle_arguments);
TEST_ROW(split, split_arguments);
TEST_ROW(mix, mix_arguments);
TEST_ROW(pair, pair_arguments);
TEST_ROW(normalize, normalize_arguments);
TEST_ROW(cache, cache_arguments);
TEST_ROW(batch, batch_arguments);
static const struct brim__stage plain_row = { .info = { .name = "plain", .example = "plain" } };

static const struct brim__stage *const test_rows[] = {
    &files_row, &bound_row, &join_row,      &shuffle_row, &split_row, &mix_row,
    &pair_row,  &cache_row, &normalize_row, &batch_row,   &plain_row,
};
static const struct brim__table test_table = { test_rows, BRIM__COUNT(test_rows) };

static inline bool same_pipeline(const brim_pipeline *a, const brim_pipeline *b);

static inline bool same_test_item(brim_type type, const struct brim__item *a,
                                  const struct brim__item *b) {
    if (type == BRIM_TYPE_WORD || type == BRIM_TYPE_PATH || type == BRIM_TYPE_BINDING) {
        return strcmp(a->text, b->text) == 0;
    }
    if ((a->pipeline == NULL) != (b->pipeline == NULL)) {
        return false;
    }
    return a->integer == b->integer && a->real == b->real && signbit(a->real) == signbit(b->real) &&
           a->integral == b->integral &&
           (a->pipeline == NULL || same_pipeline(a->pipeline, b->pipeline));
}

/* Equal in every value, however it was written. */
static inline bool same_pipeline(const brim_pipeline *a, const brim_pipeline *b) {
    if (a->use_count != b->use_count) {
        return false;
    }
    for (size_t i = 0; i < a->use_count; i++) {
        const struct brim__use *x = &a->use[i], *y = &b->use[i];
        if (x->stage != y->stage) {
            return false;
        }
        for (size_t k = 0; k < x->stage->info.argument_count; k++) {
            const brim_type type = brim_stage_argument_at(&x->stage->info, k)->type;
            if (x->values[k].count != y->values[k].count) {
                return false;
            }
            for (size_t j = 0; j < x->values[k].count; j++) {
                if (!same_test_item(type, &x->values[k].items[j], &y->values[k].items[j])) {
                    return false;
                }
            }
        }
    }
    return true;
}

#endif

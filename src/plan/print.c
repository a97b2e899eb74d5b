/*
 * print.c: a pipeline as canonical text.
 *
 *     name value... key=value...
 *
 * Arguments are in the order of the row: first the positional ones, without keys, then the others.
 * Values that equal the default are left out; the full form has them too. The text depends only on
 * the values, not on how they were written: reading it gives the same values, and printing those
 * gives the same text. The full form is hashed into fingerprints, so changing it invalidates caches
 * and states.
 *
 * Writing follows snprintf: everything is counted, and as much as fits is written.
 */
#include "plan/parse.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct writer {
    char *text;
    size_t bytes;  /* of `text`, with the zero */
    size_t length; /* of all that was put, written or not */
    bool full, without_paths;
    bool marks;      /* what is written is the pipeline's own text: its stages and values learn
                        where they stand in it */
    uint32_t stages; /* that have begun */
};

static void put_bytes(struct writer *writer, const char *text, size_t length) {
    if (writer->length < writer->bytes) {
        const size_t left = writer->bytes - writer->length;
        memcpy(writer->text + writer->length, text, length < left ? length : left);
    }
    writer->length += length;
}

static void put(struct writer *writer, const char *text) {
    put_bytes(writer, text, strlen(text));
}

static size_t finish(struct writer *writer) {
    if (writer->bytes > 0) {
        const size_t last = writer->bytes - 1;
        writer->text[writer->length < last ? writer->length : last] = '\0';
    }
    return writer->length;
}

void brim__real_text(double value, char text[BRIM__REAL_TEXT]) {
    /* The C locale of glibc and musl is a static object, so this takes no memory. */
    const locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    const locale_t before = uselocale(plain);
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, BRIM__REAL_TEXT, "%.*g", digits, value);
        if (strtod_l(text, NULL, plain) == value) {
            break;
        }
    }
    uselocale(before);
    freelocale(plain);
    const size_t end = strcspn(text, ".e");
    if (isfinite(value) && text[end] == '\0') {
        memcpy(text + end, ".0", 3);
    }
}

void brim__bytes_text(int64_t bytes, char text[BRIM__SIZE_TEXT]) {
    static const char *const units[] = { "", "KiB", "MiB", "GiB" };
    size_t unit = 0;
    while (bytes != 0 && bytes % 1024 == 0 && unit + 1 < BRIM__COUNT(units)) {
        bytes /= 1024;
        unit++;
    }
    snprintf(text, BRIM__SIZE_TEXT, "%lld%s", (long long)bytes, units[unit]);
}

/* Whether a value without quotes would be read as something else. */
static bool needs_quotes(const char *text, bool list) {
    if (text[0] == '\0' || text[0] == '@' || text[0] == '#') {
        return true;
    }
    for (const char *c = text; *c != '\0'; c++) {
        const unsigned char byte = (unsigned char)*c;
        if (byte <= ' ' || byte == 0x7f || strchr("|()='\"", byte) != NULL ||
            (list && byte == ',')) {
            return true;
        }
    }
    return false;
}

static void put_text(struct writer *writer, const char *text, bool list) {
    if (!needs_quotes(text, list)) {
        put(writer, text);
        return;
    }
    put(writer, "\"");
    for (const char *c = text; *c != '\0'; c++) {
        if (*c == '"' || *c == '\\') {
            put(writer, "\\");
        }
        put_bytes(writer, c, 1);
    }
    put(writer, "\"");
}

static void put_real(struct writer *writer, const struct brim__item *item) {
    char number[BRIM__REAL_TEXT];
    if (item->integral) {
        snprintf(number, sizeof number, "%lld", (long long)item->integer);
    } else {
        brim__real_text(item->real, number);
    }
    put(writer, number);
}

static void put_pipeline(struct writer *writer, const brim_pipeline *pipeline);

static void put_nested(struct writer *writer, const brim_pipeline *pipeline) {
    put(writer, "(");
    put_pipeline(writer, pipeline);
    put(writer, ")");
}

static void put_choice(struct writer *writer, const char *choices, int64_t index) {
    for (; index > 0; index--) {
        choices = strchr(choices, '|') + 1;
    }
    put_bytes(writer, choices, strcspn(choices, "|"));
}

static void put_item(struct writer *writer, const brim_argument_info *info,
                     const struct brim__item *item, const char *separator) {
    char number[BRIM__SIZE_TEXT];
    switch (info->type) {
    case BRIM_TYPE_INTEGER:
        snprintf(number, sizeof number, "%lld", (long long)item->integer);
        put(writer, number);
        break;
    case BRIM_TYPE_REAL:
        put_real(writer, item);
        break;
    case BRIM_TYPE_SIZE:
        brim__bytes_text(item->integer, number);
        put(writer, number);
        break;
    case BRIM_TYPE_YESNO:
        put(writer, item->integer != 0 ? "yes" : "no");
        break;
    case BRIM_TYPE_CHOICE:
        put_choice(writer, info->choices, item->integer);
        break;
    case BRIM_TYPE_WORD:
    case BRIM_TYPE_PATH:
        put_text(writer, item->text, brim__takes_several(info));
        break;
    case BRIM_TYPE_BINDING:
        put(writer, "@");
        put(writer, item->text);
        break;
    case BRIM_TYPE_PIPELINE:
        put_nested(writer, item->pipeline);
        break;
    case BRIM_TYPE_WEIGHTED:
        put_real(writer, item);
        put(writer, separator);
        put_nested(writer, item->pipeline);
        break;
    }
}

static void put_values(struct writer *writer, const brim_argument_info *info,
                       const struct brim__values *values, const char *separator) {
    for (size_t i = 0; i < values->count; i++) {
        put(writer, i > 0 ? separator : "");
        const size_t begin = writer->length;
        put_item(writer, info, &values->items[i], separator);
        if (writer->marks) {
            values->extents[i] = (struct brim__extent){ begin, writer->length };
        }
    }
}

static bool left_out(const struct writer *writer, const brim_argument_info *info,
                     const struct brim__values *values) {
    return values->count == 0 || (writer->without_paths && info->type == BRIM_TYPE_PATH) ||
           (!writer->full && brim__values_default(info, values));
}

static void clear_extents(const struct brim__use *use) {
    for (size_t i = 0; i < use->stage->info.argument_count; i++) {
        for (size_t k = 0; k < use->values[i].count; k++) {
            use->values[i].extents[k] = (struct brim__extent){ 0 };
        }
    }
}

static void put_use(struct writer *writer, const struct brim__use *use) {
    const brim_stage_info *stage = &use->stage->info;
    put(writer, stage->name);
    /* Values have no keys up to the first argument that is left out or takes all following values.
     * After it keys are needed. */
    size_t keyless = 0;
    for (bool ends = false; keyless < stage->argument_count && !ends; keyless++) {
        const brim_argument_info *info = brim_stage_argument_at(stage, keyless);
        if ((info->flags & BRIM_ARGUMENT_FLAG_POSITIONAL) == 0) {
            continue;
        }
        if (left_out(writer, info, &use->values[keyless])) {
            break;
        }
        put(writer, " ");
        put_values(writer, info, &use->values[keyless], " ");
        ends = (info->flags & BRIM_ARGUMENT_FLAG_LIST) != 0;
    }
    for (size_t i = 0; i < stage->argument_count; i++) {
        const brim_argument_info *info = brim_stage_argument_at(stage, i);
        const bool done = i < keyless && (info->flags & BRIM_ARGUMENT_FLAG_POSITIONAL) != 0;
        if (!done && !left_out(writer, info, &use->values[i])) {
            put(writer, " ");
            put(writer, info->name);
            put(writer, "=");
            put_values(writer, info, &use->values[i], ",");
        }
    }
}

static void put_marked(struct writer *writer, struct brim__use *use) {
    use->number = writer->stages++;
    use->begin = writer->length;
    clear_extents(use);
    put_use(writer, use);
    use->end = writer->length;
}

static void put_pipeline(struct writer *writer, const brim_pipeline *pipeline) {
    for (size_t i = 0; i < pipeline->use_count; i++) {
        put(writer, i > 0 ? " | " : "");
        if (writer->marks) {
            put_marked(writer, &pipeline->use[i]);
        } else {
            put_use(writer, &pipeline->use[i]);
        }
    }
}

size_t brim__use_text(const struct brim__use *use, bool full, bool without_paths, char *text,
                      size_t bytes) {
    struct writer writer = {
        .text = text, .bytes = bytes, .full = full, .without_paths = without_paths
    };
    put_use(&writer, use);
    return finish(&writer);
}

size_t brim__pipeline_write(const brim_pipeline *pipeline, bool full, bool without_paths,
                            char *text, size_t bytes) {
    struct writer writer = {
        .text = text, .bytes = bytes, .full = full, .without_paths = without_paths
    };
    put_pipeline(&writer, pipeline);
    return finish(&writer);
}

void brim__pipeline_mark(brim_pipeline *pipeline, char *text, size_t bytes) {
    struct writer writer = { .text = text, .bytes = bytes, .marks = true };
    put_pipeline(&writer, pipeline);
    finish(&writer);
    pipeline->stage_count = writer.stages;
}

void brim__use_mark(brim_pipeline *pipeline, struct brim__use *use, char *text, size_t at,
                    size_t bytes) {
    struct writer writer = {
        .text = text, .bytes = bytes, .length = at, .marks = true, .stages = pipeline->stage_count
    };
    put_marked(&writer, use);
    finish(&writer);
    pipeline->stage_count = writer.stages;
}

const char *brim_pipeline_text(const brim_pipeline *pipeline) {
    return pipeline == NULL ? NULL : pipeline->text;
}

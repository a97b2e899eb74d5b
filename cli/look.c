/*
 * look.c: from the values of a field to colours.
 *
 * What the network sees is shown as a person would see it. `normalize` is undone by the numbers of
 * its arguments. Floats of unknown range are shown as 0 to 1 or 0 to 255 if all of them are in that
 * range; otherwise they are stretched, all images of the sheet alike, and a note says so. Whole
 * numbers in one channel that can only be classes (a mask) get a colour each. What is not a number
 * is drawn in a colour that stands out.
 *
 * The stages are walked from the last to the first, so that the field that `copy`
 * made is followed to the one that it was made from.
 */
#include "look.h"

#include "session.h"
#include "value.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NOT_A_NUMBER 0xff00ffu
#define TOLERANCE    0.02 /* what rounding and resampling may overshoot */
#define LEAST_BYTE   32   /* floats of which none reaches it were not 0 to 255 */
#define MASK_CLASSES 32   /* uint8 values from here on are brightness, but for 255 */
#define IGNORED      255  /* in masks: belongs to no class */

/* ------------------------------------------------------------------- shapes */

static bool is_channels(int64_t length) {
    return length == 1 || length == 3 || length == 4;
}

bool image_of(const brim_plan_field *field, struct image *image, const char **why) {
    const int64_t *shape = field->shape + 1;
    const uint32_t rank = field->rank - 1;
    *why = NULL;
    if (field->form != BRIM_FORM_DENSE) {
        *why = "its samples differ in length";
    } else if (field->dtype == BRIM_DTYPE_C64 || field->dtype == BRIM_DTYPE_C128) {
        *why = "it is complex";
    } else if (rank != 2 && rank != 3) {
        *why = "an image has 2 or 3 dimensions";
    } else if (rank == 3 && !is_channels(shape[0]) && !is_channels(shape[2])) {
        *why = "neither its first nor its last dimension is 1, 3 or 4 channels";
    }
    if (*why != NULL) {
        return false;
    }
    const bool planar = rank == 3 && !is_channels(shape[2]);
    const int64_t height = shape[planar ? 1 : 0], width = shape[planar ? 2 : 1];
    *image = (struct image){ .dtype = field->dtype, .planar = planar };
    image->channels = rank == 2 ? 1 : (uint32_t)shape[planar ? 0 : 2];
    if (height < 1 || width < 1 || height > INT32_MAX || width > INT32_MAX) {
        *why = "it is empty, or too large";
        return false;
    }
    image->height = (uint32_t)height;
    image->width = (uint32_t)width;
    return true;
}

uint64_t image_bytes(const struct image *image) {
    return (uint64_t)image->height * image->width * image->channels *
           brim_dtype_bytes(image->dtype);
}

static double value_at(const struct image *image, const unsigned char *data, uint32_t x, uint32_t y,
                       uint32_t channel) {
    const uint64_t pixel = (uint64_t)y * image->width + x;
    const uint64_t pixels = (uint64_t)image->width * image->height;
    const uint64_t place =
        image->planar ? channel * pixels + pixel : pixel * image->channels + channel;
    return element_value(image->dtype, data + place * brim_dtype_bytes(image->dtype));
}

/* --------------------------------------------------------------- the stages */

/* A plan and its pipeline, whose stages have the same numbers. */
struct stages {
    const brim_plan *plan;
    const brim_pipeline *pipeline;
};

/* What the stages tell of a field. */
struct history {
    bool mask; /* decoded as classes */
    bool normalized;
    size_t normalize; /* the stage that did it */
    bool several;     /* that are not the same: which one is not known */
    bool bounded;     /* its values were 0 to `max` */
};

/* Whether the first value of an argument of a stage is this text. */
static bool is_value(const struct stages *stages, size_t stage, const char *argument,
                     const char *text) {
    brim_pipeline_value value;
    return argument_of(stages->pipeline, stage, argument, 0, &value) &&
           strcmp(value.text, text) == 0;
}

/* Whether the stage acts on the field: it is one of on=, or without on= all of them are meant, or
 * the first of one shape. */
static bool acts_on(const struct stages *stages, size_t stage, const char *field, bool all) {
    const brim_plan_field *first = brim_plan_stage_field_at(stages->plan, stage, 0);
    brim_pipeline_value value;
    for (size_t i = 0; argument_of(stages->pipeline, stage, "on", i, &value); i++) {
        if (strcmp(value.text, field) == 0) {
            return true;
        }
    }
    if (argument_of(stages->pipeline, stage, "on", 0, &value)) {
        return false;
    }
    return all || (first != NULL && strcmp(first->name, field) == 0);
}

/* The type that a field has before the stage at `place`. */
static brim_dtype type_before(const brim_plan *plan, size_t place, const char *field) {
    while (place-- > 0) {
        const brim_plan_field *own;
        for (size_t i = 0; (own = brim_plan_stage_field_at(plan, place, i)) != NULL; i++) {
            if (strcmp(own->name, field) == 0) {
                return own->dtype;
            }
        }
    }
    return BRIM_DTYPE_F32;
}

static void note_normalize(struct history *history, const struct stages *stages, size_t stage,
                           const char *field) {
    const brim_dtype before = type_before(stages->plan, stage, field);
    const double most = before == BRIM_DTYPE_U8 ? 255 : before == BRIM_DTYPE_U16 ? 65535 : 0;
    const char *text = brim_plan_stage_at(stages->plan, stage)->text;
    brim_pipeline_value max;
    history->several |=
        history->normalized &&
        strcmp(brim_plan_stage_at(stages->plan, history->normalize)->text, text) != 0;
    history->normalized = true;
    history->normalize = stage;
    if (argument_of(stages->pipeline, stage, "max", 0, &max)) {
        history->bounded = max.real > 1 && max.real >= most; /* 1 leaves pixels as they are */
    } else { /* a preset is refused where nothing says how far values go */
        history->bounded = most > 0 || !is_value(stages, stage, "preset", "own");
    }
}

static struct history history_of(const struct stages *stages, const char *field) {
    struct history history = { 0 };
    brim_pipeline_value from;
    const char *name = field;
    for (size_t i = brim_plan_get(stages->plan)->stage_count; i-- > 0;) {
        const char *stage = brim_plan_stage_at(stages->plan, i)->name;
        if (strcmp(stage, "copy") == 0) {
            if (is_value(stages, i, "to", name) &&
                argument_of(stages->pipeline, i, "from", 0, &from)) {
                name = from.text;
            }
        } else if (strcmp(stage, "normalize") == 0 && acts_on(stages, i, name, false)) {
            note_normalize(&history, stages, i, name);
        } else if (strcmp(stage, "decode") == 0 && acts_on(stages, i, name, true)) {
            history.mask |= is_value(stages, i, "mode", "mask");
        }
    }
    return history;
}

/* One number for all channels, or one for each. False: there is none. */
static bool numbers_read(const struct stages *stages, size_t stage, const char *argument,
                         double numbers[LOOK_CHANNELS]) {
    brim_pipeline_value value;
    unsigned count = 0;
    while (count < LOOK_CHANNELS && argument_of(stages->pipeline, stage, argument, count, &value)) {
        numbers[count++] = value.real;
    }
    for (unsigned c = 1; c < LOOK_CHANNELS && count == 1; c++) {
        numbers[c] = numbers[0];
    }
    return count > 0 && !argument_of(stages->pipeline, stage, argument, LOOK_CHANNELS, &value);
}

/* The inverse of a normalize stage, but for its max. */
static bool normalize_read(struct look *look, const struct stages *stages, size_t stage) {
    static const double mean[] = { 0.485, 0.456, 0.406 }, std[] = { 0.229, 0.224, 0.225 };
    if (is_value(stages, stage, "preset", "imagenet")) {
        memcpy(look->mean, mean, sizeof mean);
        memcpy(look->std, std, sizeof std);
        return true;
    }
    return is_value(stages, stage, "preset", "unit") ||
           (numbers_read(stages, stage, "mean", look->mean) &&
            numbers_read(stages, stage, "std", look->std));
}

/* ------------------------------------------------------------------- values */

struct range {
    double least, most; /* of what is finite, but for opacity; 0 and 0: nothing is */
    bool finite;        /* all are */
    bool classes;       /* all are whole numbers of classes, or `IGNORED` */
};

static struct range range_of(const struct look *look, const struct image *image,
                             unsigned char *const *samples, size_t count) {
    struct range range = { .least = INFINITY, .most = -INFINITY, .finite = true, .classes = true };
    const uint32_t channels = image->channels < 3 ? 1 : 3;
    for (size_t i = 0; i < count; i++) {
        for (uint32_t y = 0; y < image->height; y++) {
            for (uint32_t x = 0; x < image->width; x++) {
                for (uint32_t c = 0; c < channels; c++) {
                    const double value =
                        value_at(image, samples[i], x, y, c) * look->std[c] + look->mean[c];
                    range.finite = range.finite && isfinite(value);
                    range.classes = range.classes && (value < MASK_CLASSES || value == IGNORED);
                    if (isfinite(value)) {
                        range.least = value < range.least ? value : range.least;
                        range.most = value > range.most ? value : range.most;
                    }
                }
            }
        }
    }
    return range.least <= range.most ? range : (struct range){ 0 };
}

static bool is_unit(const struct range *range) {
    return range->least >= -TOLERANCE && range->most <= 1 + TOLERANCE;
}

/* 0 to 255. */
static bool is_bytes(const struct range *range) {
    return range->least >= -TOLERANCE && range->most <= 255 * (1 + TOLERANCE) &&
           range->most >= LEAST_BYTE;
}

static bool is_real(brim_dtype dtype) {
    return dtype == BRIM_DTYPE_F16 || dtype == BRIM_DTYPE_BF16 || dtype == BRIM_DTYPE_F32 ||
           dtype == BRIM_DTYPE_F64;
}

/* One channel of whole numbers: classes, if the stages say so or the values leave
 * no other way to read them. */
static bool is_mask(const struct image *image, const struct history *history,
                    const struct range *range) {
    if (image->channels != 1 || is_real(image->dtype)) {
        return false;
    }
    if (history->mask || image->dtype == BRIM_DTYPE_BOOL) {
        return true;
    }
    return range->least >= -1 && range->most <= IGNORED &&
           (image->dtype == BRIM_DTYPE_U8 ? range->classes : image->dtype != BRIM_DTYPE_U16);
}

void look_find(struct look *look, const brim_plan *plan, const brim_pipeline *pipeline,
               const char *field, const struct image *image, unsigned char *const *samples,
               size_t count) {
    const struct stages stages = { plan, pipeline };
    const struct history history = history_of(&stages, field);
    *look = (struct look){ .std = { 1, 1, 1, 1 }, .white = 1 };
    const bool normalized = is_real(image->dtype) && history.normalized && !history.several &&
                            normalize_read(look, &stages, history.normalize);
    const struct range range = range_of(look, image, samples, count);
    look->palette = is_mask(image, &history, &range);
    if (image->dtype == BRIM_DTYPE_U8) {
        look->white = 255;
    } else if (image->dtype == BRIM_DTYPE_U16) {
        look->white = 65535;
    } else if (!look->palette && !(normalized && history.bounded) && !is_unit(&range)) {
        look->white = 255;
        if (!is_bytes(&range)) {
            look->black = range.least;
            look->white = range.most > range.least ? range.most : range.least + 1;
            snprintf(look->note, sizeof look->note,
                     "the range of %s before normalize is not known%s: shown from black at %g to "
                     "white at %g",
                     field, history.several ? ", there are several normalize stages" : "",
                     look->black, look->white);
        }
    }
    if (!range.finite) {
        snprintf(look->note, sizeof look->note,
                 "%s has values that are not numbers or not finite: shown in magenta", field);
    }
}

/* ------------------------------------------------------------------ colours */

/* Class 0 is dark; those after it go round the circle of colours by the golden
 * angle, every third of them paler, so that neighbours differ. */
static uint32_t class_colour(double number) {
    if (number == IGNORED || number < 0) {
        return 0xf0f0f0;
    }
    const double turn = fmod(number * 0.6180339887498949, 1.0) * 6;
    const double least = fmod(number, 3) == 2 ? 0.45 : 0.1, most = number < 1 ? 0.16 : 0.95;
    uint32_t colour = 0;
    for (int c = 0; c < 3; c++) {
        const double away = fabs(fmod(turn + 6 - 2 * c, 6) - 3) - 1; /* 2 at its own third */
        const double share = number < 1 ? 1 : fmin(fmax(away, 0), 1);
        colour = colour << 8 | (uint32_t)(255 * (least + (most - least) * share));
    }
    return colour;
}

uint32_t look_colour(const struct look *look, const struct image *image, const unsigned char *data,
                     uint32_t x, uint32_t y) {
    double shown[LOOK_CHANNELS] = { 0 };
    for (uint32_t c = 0; c < image->channels; c++) {
        const double value = value_at(image, data, x, y, c);
        if (!isfinite(value)) {
            return NOT_A_NUMBER;
        }
        if (look->palette) {
            return class_colour(value);
        }
        const double share =
            (value * look->std[c] + look->mean[c] - look->black) / (look->white - look->black);
        shown[c] = 255 * fmin(fmax(share, 0), 1);
    }
    uint32_t colour = 0;
    for (uint32_t c = 0; c < 3; c++) {
        double level = shown[image->channels == 1 ? 0 : c];
        if (image->channels == 4) { /* over squares of 8 pixels */
            const double below = ((x ^ y) >> 3 & 1) != 0 ? 204 : 255;
            level = below + (level - below) * shown[3] / 255;
        }
        colour = colour << 8 | (uint32_t)(level + 0.5);
    }
    return colour;
}

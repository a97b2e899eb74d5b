/*
 * normalize.c: `normalize`: float32 values (value / max - mean) / std.
 *
 * Computed as value * scale + bias with scale = 1 / (max * std) and
 * bias = -mean / std, both rounded once to float32 when the pipeline is planned,
 * so that the same bits come out of every kernel.
 *
 * max is the range of the field (range.c). `unit` and `imagenet` scale values to 0 to 1 and need
 * the range. mean= and std= may also be meant for unscaled values: for a type without a range max
 * is 1, unless the values show that this is an error.
 */
#include "transform/program.h"
#include "transform/stages.h"

enum { PRESET, MEAN, STD, MAX, AXIS, ON };
enum { OWN, UNIT, IMAGENET };

static const struct brim__item imagenet_mean[] = { { .real = 0.485 },
                                                   { .real = 0.456 },
                                                   { .real = 0.406 } };
static const struct brim__item imagenet_std[] = { { .real = 0.229 },
                                                  { .real = 0.224 },
                                                  { .real = 0.225 } };
static const struct brim__item zero[] = { { .real = 0.0 } }, one[] = { { .real = 1.0 } };

/* Reads the means and deviations from the arguments: 1, or one for each channel. */
static brim_status read_values(const struct brim__use *use, struct brim__values *mean,
                               struct brim__values *std) {
    *mean = use->values[MEAN];
    *std = use->values[STD];
    const struct brim__item *preset = brim__item(use, PRESET);
    if (preset->integer != OWN && (mean->count > 0 || std->count > 0)) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "normalize: give either '%s' or mean= and std=, not both", preset->text);
    }
    if (preset->integer == UNIT) {
        *mean = (struct brim__values){ .items = zero, .count = 1 };
        *std = (struct brim__values){ .items = one, .count = 1 };
    } else if (preset->integer == IMAGENET) {
        *mean = (struct brim__values){ .items = imagenet_mean, .count = 3 };
        *std = (struct brim__values){ .items = imagenet_std, .count = 3 };
    } else if (mean->count == 0 || std->count == 0) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "normalize: give mean= and std=, or 'unit' (0 to 1) or "
                          "'imagenet'");
    }
    if (mean->count != std->count && mean->count != 1 && std->count != 1) {
        return brim__fail(BRIM_STATUS_INVALID, "normalize: %zu means but %zu deviations",
                          mean->count, std->count);
    }
    for (size_t i = 0; i < std->count; i++) {
        if (!(std->items[i].real > 0)) {
            return brim__fail(BRIM_STATUS_INVALID, "normalize: std must be above 0, not %g",
                              std->items[i].real);
        }
    }
    return BRIM_OK;
}

/* The axis that `channels` values run along: the last one that is as long, or
 * else the first; or the one that the user names. */
static brim_status find_axis(const struct brim__use *use, const struct brim__program_field *field,
                             uint32_t channels, uint32_t *axis) {
    const struct brim__shape *shape = &field->pending.from.shape;
    const int64_t rank = shape->rank;
    char text[BRIM__SHAPE_TEXT];
    if (brim__given(use, AXIS)) {
        const int64_t wanted = brim__item(use, AXIS)->integer;
        const int64_t place = wanted < 0 ? wanted + rank : wanted;
        if (place < 0 || place >= rank || shape->dim[place] != channels) {
            return brim__fail(BRIM_STATUS_INVALID,
                              "normalize: field '%s' is %s: axis %lld does not have %u channels",
                              field->name, brim__shape_text(shape, text), (long long)wanted,
                              channels);
        }
        *axis = (uint32_t)place;
        return BRIM_OK;
    }
    if (rank > 0 && shape->dim[rank - 1] == channels) {
        *axis = (uint32_t)rank - 1;
    } else if (rank > 0 && shape->dim[0] == channels) {
        *axis = 0;
    } else {
        return brim__fail(BRIM_STATUS_INVALID,
                          "normalize: field '%s' is %s: neither its last nor its first dimension "
                          "has %u channels; give %s",
                          field->name, brim__shape_text(shape, text), channels,
                          brim__item(use, PRESET)->integer == IMAGENET
                              ? "mean= and std= instead of imagenet, whose constants are for 3"
                              : "axis=");
    }
    return BRIM_OK;
}

/* The max of older versions, in which fields did not keep their range. */
static double max_by_type(brim_dtype dtype) {
    return brim__range_of_type(dtype) > 0 ? brim__range_of_type(dtype) : 1.0;
}

static bool all_within_unit(const struct brim__values *values) {
    bool within = true;
    for (size_t i = 0; i < values->count; i++) {
        within &= values->items[i].real >= -1.0 && values->items[i].real <= 1.0;
    }
    return within;
}

/* Finds the number by which values are divided. */
static brim_status find_max(const struct brim__use *use, const struct brim__program_field *field,
                            const struct brim__values *mean, const struct brim__values *std,
                            double *max) {
    const struct brim__item *preset = brim__item(use, PRESET);
    const double range = brim__range(field);
    const char *type = brim_dtype_name(field->pending.to);
    if (brim__given(use, MAX)) {
        *max = brim__item(use, MAX)->real;
        return BRIM_OK;
    }
    if (preset->integer != OWN && range == 0) {
        return brim__fail(
            BRIM_STATUS_INVALID,
            "normalize %s: field '%s' is %s, and the range of its values is not known: add max=1 "
            "if they go from 0 to 1, max=255 if they are pixels from 0 to 255",
            preset->text, field->name, type);
    }
    *max = preset->integer != OWN || brim__range_of_type(field->pending.to) > 0 ? range : 1.0;
    if (*max != range && range > 1 && all_within_unit(mean) && all_within_unit(std)) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "normalize: field '%s' is %s with values from 0 to %g, but mean= and "
                          "std= look like those of values from 0 to 1: add max=%g to divide by "
                          "that first, or max=1 if they are meant for values up to %g",
                          field->name, type, range, range, range);
    }
    return BRIM_OK;
}

/* The range of the values after normalize; 0: they no longer begin at 0. */
static double range_after(const struct brim__use *use, const struct brim__program_field *field,
                          const struct brim__values *mean, const struct brim__values *std,
                          double max) {
    const double before = brim__range(field);
    for (size_t i = 0; i < mean->count; i++) {
        if (mean->items[i].real != 0) {
            return 0;
        }
    }
    for (size_t i = 1; i < std->count; i++) {
        if (std->items[i].real != std->items[0].real) {
            return 0;
        }
    }
    /* if the field's range is unknown, max= gives it */
    return (before == 0 && brim__given(use, MAX) ? max : before) / (max * std->items[0].real);
}

static brim_status normalize(const struct brim__use *use, struct brim__program *program,
                             uint32_t index) {
    struct brim__program_field *field = &program->field[index];
    struct brim__values mean, std;
    brim_status status = read_values(use, &mean, &std);
    if (status != BRIM_OK) {
        return status;
    }
    if (brim__dtype_is_complex(field->pending.to)) {
        return brim__fail(BRIM_STATUS_UNSUPPORTED, "normalize: field '%s' is complex", field->name);
    }
    const uint32_t channels = (uint32_t)brim__max(mean.count, std.count);
    uint32_t axis = 0;
    if (channels > 1) {
        status = find_axis(use, field, channels, &axis);
        if (status != BRIM_OK) {
            return status;
        }
    }
    double max = 1;
    status = find_max(use, field, &mean, &std, &max);
    if (status != BRIM_OK) {
        return status;
    }
    if (!brim__given(use, MAX) && max != max_by_type(field->pending.to)) {
        /* older versions gave other values for the same text, so samples kept by them are stale */
        program->meaning =
            brim__hash_words(program->meaning, brim__hash(&max, sizeof max, 0), index);
    }
    const double range = range_after(use, field, &mean, &std, max);
    if (field->pending.scale != NULL ||
        !brim__dtype_holds(field->pending.to, field->pending.from.dtype)) {
        status = brim__program_flush(program, index, false);
    }
    float *scale = NULL;
    if (status == BRIM_OK) {
        status = brim__arena_take(program->arena, 2 * channels * sizeof(float), &scale);
    }
    if (status != BRIM_OK) {
        return status;
    }
    for (uint32_t c = 0; c < channels; c++) {
        const double m = mean.items[mean.count == 1 ? 0 : c].real;
        const double s = std.items[std.count == 1 ? 0 : c].real;
        scale[c] = (float)(1.0 / (max * s));
        scale[channels + c] = (float)(0.0 - m / s);
    }
    field->pending.scale = scale;
    field->pending.bias = scale + channels;
    field->pending.channels = channels;
    field->pending.channel_axis = axis;
    field->pending.to = BRIM_DTYPE_F32;
    field->range = range;
    field->stage = program->stage;
    return BRIM_OK;
}

static brim_status add(const struct brim__use *use, struct brim__program *program) {
    uint32_t fields = 0;
    brim_status status = brim__program_on(program, use, ON, BRIM__ON_FIRST, true, &fields);
    for (uint32_t f = 0; status == BRIM_OK && f < program->field_count; f++) {
        if (fields >> f & 1) {
            status = normalize(use, program, f);
        }
    }
    return status;
}

static const brim_argument_info arguments[] = {
    [PRESET] = { .name = "preset",
                 .type = BRIM_TYPE_CHOICE,
                 .flags = BRIM_ARGUMENT_FLAG_POSITIONAL,
                 .fallback = "own",
                 .choices = "own|unit|imagenet",
                 .help = "own (mean= and std=), unit (0 to 1), or the constants of imagenet" },
    [MEAN] = { .name = "mean",
               .type = BRIM_TYPE_REAL,
               .flags = BRIM_ARGUMENT_FLAG_LIST,
               .help = "one value, or one for each channel" },
    [STD] = { .name = "std",
              .type = BRIM_TYPE_REAL,
              .flags = BRIM_ARGUMENT_FLAG_LIST,
              .help = "one value, or one for each channel; above 0" },
    [MAX] = { .name = "max",
              .type = BRIM_TYPE_REAL,
              .least = 1e-30,
              .most = 1e30,
              .help = "values are divided by it first; default: the range of the field: 255 for "
                      "uint8 and images, 65535 for uint16; otherwise unit and imagenet need it, "
                      "and mean= and std= do not divide" },
    [AXIS] = { .name = "axis",
               .type = BRIM_TYPE_INTEGER,
               .least = -BRIM_MAX_RANK,
               .most = BRIM_MAX_RANK,
               .help = "dimension of the channels; default: found by its length" },
    [ON] = BRIM__ON_ARGUMENT("fields to normalise; default: the first"),
};

const struct brim__stage brim__stage_normalize = {
    .info = { .name = "normalize",
              .summary = "float32 values (value / max - mean) / std, for each channel",
              .example = "normalize mean=0.49,0.48,0.45 std=0.25,0.24,0.26",
              .room = BRIM_ROOM_TRANSFORM,
              .version = 1,
              .arguments = arguments,
              .argument_count = BRIM__COUNT(arguments) },
    .add_transform = add,
};

/*
 * mixing.c: chooses fields, and mixes rows with the row before; see mixing.h.
 *
 * float32 and narrower types are computed in float32, float64 in float64: row * lambda + previous *
 * (1 - lambda), both factors rounded to that type first, no fused operation. uint8 is rounded to
 * the nearest integer, halves to the even one. Every NaN becomes one fixed quiet NaN, because CPUs
 * make different ones.
 */
#include "batching/mixing.h"

#include "tensor/half.h"

#define HALVES 512 /* narrow floats in work as float32 */

/* ----------------------------------------------------------------- kernels */

/* The loops are plain, so that the compiler vectorises them. */
typedef void mix_kernel(void *row, const void *previous, size_t count, double lambda);

static inline float mix_float(float row, float previous, float own, float other) {
    const float value = row * own + previous * other;
    return value == value ? value : brim__bits_float(0x7fc00000);
}

static void mix_f32(void *row, const void *previous, size_t count, double lambda) {
    const float own = (float)lambda, other = (float)(1 - lambda);
    float *restrict to = row;
    const float *restrict from = previous;
    for (size_t i = 0; i < count; i++) {
        to[i] = mix_float(to[i], from[i], own, other);
    }
}

static void mix_f64(void *row, const void *previous, size_t count, double lambda) {
    const double other = 1 - lambda;
    double *restrict to = row;
    const double *restrict from = previous;
    for (size_t i = 0; i < count; i++) {
        const double value = to[i] * lambda + from[i] * other;
        to[i] = value == value ? value : __builtin_nan("");
    }
}

/* Narrow floats are converted by the CPU's kernels (tensor/kernels.c), because float16 needs a
 * different shift in each lane, which the compiler's baseline vectors do not have. */
static void mix_half(brim_dtype dtype, void *row, const void *previous, size_t count,
                     double lambda) {
    const struct brim__kernels *kernels = brim__kernels();
    uint16_t *to = row;
    const uint16_t *from = previous;
    for (size_t at = 0; at < count; at += HALVES) {
        float wide[HALVES], before[HALVES];
        const size_t some = brim__min(HALVES, count - at);
        kernels->convert[dtype][BRIM_DTYPE_F32](to + at, wide, some);
        kernels->convert[dtype][BRIM_DTYPE_F32](from + at, before, some);
        mix_f32(wide, before, some, lambda);
        kernels->convert[BRIM_DTYPE_F32][dtype](wide, to + at, some);
    }
}

static void mix_f16(void *row, const void *previous, size_t count, double lambda) {
    mix_half(BRIM_DTYPE_F16, row, previous, count, lambda);
}

static void mix_bf16(void *row, const void *previous, size_t count, double lambda) {
    mix_half(BRIM_DTYPE_BF16, row, previous, count, lambda);
}

static void mix_u8(void *row, const void *previous, size_t count, double lambda) {
    const float own = (float)lambda, other = (float)(1 - lambda);
    uint8_t *restrict to = row;
    const uint8_t *restrict from = previous;
    for (size_t i = 0; i < count; i++) {
        const float value = (float)to[i] * own + (float)from[i] * other;
        /* at 2^23 a float's last place is 1: adding it rounds, and the integer is in the lowest
         * bits */
        to[i] = (uint8_t)brim__float_bits(value + 0x1p23f);
    }
}

static mix_kernel *kernel_of(brim_dtype dtype) {
    switch (dtype) {
    case BRIM_DTYPE_U8:
        return mix_u8;
    case BRIM_DTYPE_F16:
        return mix_f16;
    case BRIM_DTYPE_BF16:
        return mix_bf16;
    case BRIM_DTYPE_F32:
        return mix_f32;
    case BRIM_DTYPE_F64:
        return mix_f64;
    default:
        return NULL;
    }
}

bool brim__mixable(brim_dtype dtype) {
    return kernel_of(dtype) != NULL;
}

void brim__mix_rows(const struct brim__mixed *field, const struct brim__batch_call *call,
                    double lambda) {
    _Alignas(BRIM__CACHE_LINE) uint8_t saved[BRIM__MIX_BLOCK];
    mix_kernel *const mix = kernel_of(field->dtype);
    const uint64_t element = brim_dtype_bytes(field->dtype);
    assert(call->rows >= 2);
    for (uint64_t at = 0; at < field->row_bytes; at += BRIM__MIX_BLOCK) {
        const uint64_t bytes = brim__min(BRIM__MIX_BLOCK, field->row_bytes - at);
        uint8_t *first = call->memory + field->offset + at;
        uint8_t *row = first + (call->rows - 1) * field->row_bytes;
        memcpy(saved, row, bytes);
        for (; row != first; row -= field->row_bytes) {
            mix(row, row - field->row_bytes, bytes / element, lambda);
        }
        mix(first, saved, bytes / element, lambda);
    }
}

/* ------------------------------------------------------------------ fields */

static brim_status unknown_field(const struct brim__batch_site *site, const char *stage,
                                 const char *name) {
    char list[BRIM__MAX_FIELDS * (BRIM_NAME_BYTES + 2)] = "";
    const char *names[BRIM__MAX_FIELDS];
    size_t length = 0;
    for (uint32_t f = 0; f < site->field_count; f++) {
        names[f] = site->field[f].name;
        const size_t bytes = strlen(names[f]);
        memcpy(list + length, ", ", f > 0 ? 2 : 0);
        length += f > 0 ? 2 : 0;
        memcpy(list + length, names[f], bytes + 1);
        length += bytes;
    }
    const char *near = brim_nearest(name, names, site->field_count);
    return brim__fail(BRIM_STATUS_INVALID, "%s: no field '%s'%s%s%s; a batch's fields here are: %s",
                      stage, name, near != NULL ? "; did you mean '" : "", near != NULL ? near : "",
                      near != NULL ? "'?" : "", list);
}

/* Finds the fields that an argument names; if it is not given, the first dense field, or the
 * last. */
static brim_status choose(const struct brim__use *use, const struct brim__batch_site *site,
                          size_t argument, bool last, uint32_t *fields) {
    const struct brim__values *values = &use->values[argument];
    const char *stage = use->stage->info.name;
    *fields = 0;
    for (uint32_t f = 0; values->count == 0 && f < site->field_count; f++) {
        if (site->field[f].dense && (last || *fields == 0)) {
            *fields = 1u << f;
        }
    }
    for (size_t i = 0; i < values->count; i++) {
        uint32_t f = 0;
        while (f < site->field_count && strcmp(site->field[f].name, values->items[i].text) != 0) {
            f++;
        }
        if (f == site->field_count) {
            return unknown_field(site, stage, values->items[i].text);
        }
        *fields |= 1u << f;
    }
    for (uint32_t f = 0; f < site->field_count; f++) {
        if ((*fields >> f & 1) != 0 && !site->field[f].dense) {
            return brim__fail(BRIM_STATUS_INVALID,
                              "%s: field '%s' differs in length from sample to sample: give it one "
                              "shape before batch, with pad to=",
                              stage, site->field[f].name);
        }
    }
    return BRIM_OK;
}

static brim_status check_label(const char *stage, const struct brim__batch_field *field) {
    if (!brim__dtype_is_float(field->dtype)) {
        return brim__fail(
            BRIM_STATUS_INVALID,
            "%s: labels '%s' are %s, which cannot be mixed: make class numbers vectors before "
            "batch, with `one_hot N on=%s`, where N is the number of classes",
            stage, field->name, brim_dtype_name(field->dtype), field->name);
    }
    if (field->shape.rank == 0) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "%s: labels '%s' are single numbers, and class numbers cannot be mixed: "
                          "put `one_hot N on=%s` before batch; to mix a quantity to be learned, "
                          "put `reshape 1 on=%s` before batch",
                          stage, field->name, field->name, field->name);
    }
    return BRIM_OK;
}

brim_status brim__mixing_init(const struct brim__use *use, const struct brim__batch_site *site,
                              struct brim__mixing *mixing) {
    const char *stage = use->stage->info.name;
    const uint64_t seed = (uint64_t)brim__item(use, BRIM__MIX_SEED)->integer;
    uint32_t labels = 0;
    mixing->key = brim__hash_words(site->key, seed, 0);
    mixing->alpha = brim__item(use, BRIM__MIX_ALPHA)->real;
    mixing->p = brim__item(use, BRIM__MIX_P)->real;
    brim_status status = choose(use, site, BRIM__MIX_ON, false, &mixing->images);
    if (status == BRIM_OK) {
        status = choose(use, site, BRIM__MIX_LABELS, true, &labels);
    }
    if (status == BRIM_OK && (mixing->images == 0 || labels == 0)) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "%s: every field here differs in length from sample to sample: give "
                          "those to mix one shape before batch, with pad to=",
                          stage);
    }
    if (status == BRIM_OK && (mixing->images & labels) != 0) {
        const uint32_t both = (uint32_t)__builtin_ctz(mixing->images & labels);
        return brim__fail(BRIM_STATUS_INVALID,
                          "%s: field '%s' cannot be both the mixed field and its labels: name "
                          "both, with on= and labels=",
                          stage, site->field[both].name);
    }
    for (uint32_t f = 0; status == BRIM_OK && f < site->field_count; f++) {
        const struct brim__batch_field *field = &site->field[f];
        if ((labels >> f & 1) != 0) {
            status = check_label(stage, field);
            mixing->label[mixing->label_count++] =
                (struct brim__mixed){ field->dtype, field->offset, field->row_bytes };
        }
    }
    site->step->fields = mixing->images | labels;
    return status;
}

/* ----------------------------------------------------------------- running */

bool brim__mixing_begin(const struct brim__mixing *mixing, const struct brim__batch_call *call,
                        struct brim__batch_draws *draws, double *lambda) {
    *draws = (struct brim__batch_draws){ mixing->key, call->number, call->epoch, 0 };
    if (call->rows < 2 || brim__draw_uniform(draws) >= mixing->p) {
        return false;
    }
    *lambda = brim__draw_beta(draws, mixing->alpha);
    return true;
}

void brim__mix_labels(const struct brim__mixing *mixing, const struct brim__batch_call *call,
                      double lambda) {
    for (uint32_t i = 0; i < mixing->label_count; i++) {
        brim__mix_rows(&mixing->label[i], call, lambda);
    }
}

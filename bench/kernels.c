/*
 * kernels.c: how fast the conversion kernels are, each variant beside the others.
 *
 * Usage: kernels
 *
 * Prints nanoseconds per element and GB/s (read and written together) for data
 * that stays in the first-level cache, the best of several rounds; and whole
 * conversions, as the loader runs them, against memcpy of the same bytes.
 */
#include "base/platform.h"
#include "tensor/tensor.h"

#include <stdio.h>

#define ROUNDS   15
#define ROUND_NS 2000000.0

static uint8_t source[1 << 16] __attribute__((aligned(64)));
static uint8_t target[1 << 16] __attribute__((aligned(64)));

static const float scales[3] = { 0.017f, 0.0175f, 0.0171f };
static const float biases[3] = { -1.9f, -2.0f, -1.8f };

struct job {
    const struct brim__kernels *kernels; /* NULL: `conversion` or memcpy */
    const struct brim__conversion *conversion;
    bool affine, planes3;
    brim_dtype from, to;
    size_t count;
};

static void once(const struct job *job) {
    if (job->conversion != NULL) {
        brim__convert(job->conversion, source, target);
    } else if (job->kernels == NULL) {
        memcpy(target, source, job->count);
    } else if (job->planes3) {
        job->kernels->planes3(source, (float *)(void *)target, job->count / 3, job->count / 3,
                              scales, biases);
    } else if (job->affine) {
        job->kernels->affine[job->from][job->to](source, target, job->count, scales[0], biases[0]);
    } else {
        job->kernels->convert[job->from][job->to](source, target, job->count);
    }
    __asm__ volatile("" ::: "memory");
}

/* Nanoseconds of one run: the best round's mean. */
static double measure(const struct job *job) {
    double best = 1e18;
    size_t times = 1;
    for (int round = 0; round < ROUNDS; round++) {
        const uint64_t start = brim__now();
        for (size_t i = 0; i < times; i++) {
            once(job);
        }
        const double mean = (double)(brim__now() - start) / (double)times;
        best = mean < best ? mean : best;
        times = (size_t)(ROUND_NS / (best + 0.1)) + 1;
    }
    return best;
}

static void report(const char *what, const char *variant, const struct job *job) {
    const double ns = measure(job);
    const double bytes =
        (double)job->count * (double)(brim_dtype_bytes(job->from) + brim_dtype_bytes(job->to));
    printf("%-34s %-7s %9.1f ns %8.3f ns/element %7.1f GB/s\n", what, variant, ns,
           ns / (double)job->count, bytes / ns);
}

static void kernel(bool affine, bool planes3, brim_dtype from, brim_dtype to, size_t count) {
    char what[64];
    snprintf(what, sizeof what, "%s %s to %s x %zu",
             planes3 ? "planes3" : (affine ? "affine" : "convert"), brim_dtype_name(from),
             brim_dtype_name(to), count);
    const struct brim__kernels *kernels;
    for (size_t i = 0; (kernels = brim__kernels_variant(i)) != NULL; i++) {
        const struct job job = { .kernels = kernels,
                                 .affine = affine,
                                 .planes3 = planes3,
                                 .from = from,
                                 .to = to,
                                 .count = count };
        report(what, job.kernels->name, &job);
    }
}

static int whole(const char *what, const struct brim__view *view, brim_dtype to, uint32_t axis,
                 bool affine) {
    struct brim__conversion conversion;
    brim__conversion_init(&conversion, view);
    conversion.to = to;
    if (affine) {
        conversion.scale = scales;
        conversion.bias = biases;
        conversion.channels = 3;
        conversion.channel_axis = axis;
    }
    if (brim__conversion_prepare(&conversion) != BRIM_OK) {
        fprintf(stderr, "%s: %s\n", what, brim_detail());
        return 1;
    }
    const struct job job = {
        .conversion = &conversion, .from = view->dtype, .to = to, .count = conversion.elements
    };
    report(what, conversion.kernels->name, &job);
    return 0;
}

int main(void) {
    for (size_t i = 0; i < sizeof source; i++) {
        source[i] = (uint8_t)(i * 37 % 100 + 20); /* no NaNs or subnormals in any type */
    }
    const struct job copy = { .from = BRIM_DTYPE_U8, .to = BRIM_DTYPE_U8, .count = 12288 };
    report("memcpy x 12288", "", &copy);

    kernel(false, true, BRIM_DTYPE_U8, BRIM_DTYPE_F32, 3072);
    kernel(true, false, BRIM_DTYPE_U8, BRIM_DTYPE_F32, 3072);
    kernel(true, false, BRIM_DTYPE_U8, BRIM_DTYPE_F16, 3072);
    kernel(true, false, BRIM_DTYPE_U8, BRIM_DTYPE_BF16, 3072);
    kernel(true, false, BRIM_DTYPE_F32, BRIM_DTYPE_F32, 1024);
    kernel(false, false, BRIM_DTYPE_U8, BRIM_DTYPE_F32, 3072);
    kernel(false, false, BRIM_DTYPE_U16, BRIM_DTYPE_I64, 1024);
    kernel(false, false, BRIM_DTYPE_U16, BRIM_DTYPE_I32, 1024);
    kernel(false, false, BRIM_DTYPE_U32, BRIM_DTYPE_I64, 1024);
    kernel(false, false, BRIM_DTYPE_F32, BRIM_DTYPE_F16, 1024);
    kernel(false, false, BRIM_DTYPE_F32, BRIM_DTYPE_BF16, 1024);
    kernel(false, false, BRIM_DTYPE_F16, BRIM_DTYPE_F32, 1024);
    kernel(false, false, BRIM_DTYPE_BF16, BRIM_DTYPE_F32, 1024);
    kernel(false, false, BRIM_DTYPE_F64, BRIM_DTYPE_F32, 1024);
    kernel(false, false, BRIM_DTYPE_F32, BRIM_DTYPE_U8, 1024);
    kernel(false, false, BRIM_DTYPE_F32, BRIM_DTYPE_I32, 1024);
    kernel(false, false, BRIM_DTYPE_F32, BRIM_DTYPE_I64, 1024);

    const struct brim__view hwc = { .dtype = BRIM_DTYPE_U8,
                                    .shape = { 3, { 32, 32, 3 } },
                                    .stride = { 96, 3, 1 } };
    const struct brim__view planes = { .dtype = BRIM_DTYPE_U8,
                                       .shape = { 3, { 3, 32, 32 } },
                                       .stride = { 1, 96, 3 } };
    const struct brim__view flipped = {
        .dtype = BRIM_DTYPE_U8, .shape = { 3, { 3, 32, 32 } }, .stride = { 1, 96, -3 }, .offset = 93
    };
    const struct brim__view cropped = {
        .dtype = BRIM_DTYPE_U8, .shape = { 3, { 3, 28, 28 } }, .stride = { 1, 96, 3 }, .offset = 198
    };
    const struct brim__view chw = { .dtype = BRIM_DTYPE_U8,
                                    .shape = { 3, { 3, 32, 32 } },
                                    .stride = { 1024, 32, 1 } };
    const struct brim__view mixed = { .dtype = BRIM_DTYPE_U8,
                                      .shape = { 3, { 32, 32, 3 } },
                                      .stride = { 32, 1, 1024 } };
    const struct brim__view swapped = {
        .dtype = BRIM_DTYPE_U16, .swapped = true, .shape = { 1, { 1024 } }, .stride = { 2 }
    };
    const struct brim__view label = { .dtype = BRIM_DTYPE_U8, .shape = { 0, { 0 } } };
    return whole("HWC to CHW, normalised", &planes, BRIM_DTYPE_F32, 0, true) |
           whole("HWC to CHW, flipped, normalised", &flipped, BRIM_DTYPE_F32, 0, true) |
           whole("HWC to CHW, cropped, normalised", &cropped, BRIM_DTYPE_F32, 0, true) |
           whole("CHW to CHW, normalised", &chw, BRIM_DTYPE_F32, 0, true) |
           whole("HWC to HWC, normalised", &hwc, BRIM_DTYPE_F32, 2, true) |
           whole("HWC to HWC, normalised to float16", &hwc, BRIM_DTYPE_F16, 2, true) |
           whole("CHW to HWC, normalised", &mixed, BRIM_DTYPE_F32, 2, true) |
           whole("CHW to HWC, uint8", &mixed, BRIM_DTYPE_U8, 2, false) |
           whole("swapped uint16 to int64", &swapped, BRIM_DTYPE_I64, 0, false) |
           whole("one uint8 to int64", &label, BRIM_DTYPE_I64, 0, false);
}

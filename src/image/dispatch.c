/*
 * dispatch.c: which table of image kernels this CPU gets.
 *
 * As for tensors: kernels.c is compiled once for each variant, the choice depends on
 * the CPU alone, and threads that race to make it store the same pointer.
 */
#include "image/kernels.h"

#include <stdatomic.h>

extern const struct brim__image_kernels brim__image_kernels_scalar;

#if defined(__x86_64__)
extern const struct brim__image_kernels brim__image_kernels_avx2;

const struct brim__image_kernels *brim__image_kernels_variant(size_t index) {
    if (index == 0) {
        return &brim__image_kernels_scalar;
    }
    return index == 1 && __builtin_cpu_supports("avx2") ? &brim__image_kernels_avx2 : NULL;
}
#else
const struct brim__image_kernels *brim__image_kernels_variant(size_t index) {
    return index == 0 ? &brim__image_kernels_scalar : NULL;
}
#endif

const struct brim__image_kernels *brim__image_kernels(void) {
    static _Atomic(const struct brim__image_kernels *) chosen;
    const struct brim__image_kernels *kernels = atomic_load_explicit(&chosen, memory_order_relaxed);
    if (kernels == NULL) {
        /* The variants come in the order of their speed. */
        for (size_t i = 0; brim__image_kernels_variant(i) != NULL; i++) {
            kernels = brim__image_kernels_variant(i);
        }
        atomic_store_explicit(&chosen, kernels, memory_order_relaxed);
    }
    return kernels;
}

/*
 * dispatch.c: which table of kernels this CPU gets.
 *
 * kernels.c is compiled once for each variant and each compilation defines one
 * table. The choice depends on the CPU alone, so threads that race to make it
 * store the same pointer; the tables are constant, so no order is needed.
 */
#include "tensor/tensor.h"

#include <stdatomic.h>

extern const struct brim__kernels brim__kernels_scalar;

#if defined(__x86_64__)
extern const struct brim__kernels brim__kernels_avx2;

const struct brim__kernels *brim__kernels_variant(size_t index) {
    if (index == 0) {
        return &brim__kernels_scalar;
    }
    return index == 1 && __builtin_cpu_supports("avx2") ? &brim__kernels_avx2 : NULL;
}
#else
const struct brim__kernels *brim__kernels_variant(size_t index) {
    return index == 0 ? &brim__kernels_scalar : NULL;
}
#endif

const struct brim__kernels *brim__kernels(void) {
    static _Atomic(const struct brim__kernels *) chosen;
    const struct brim__kernels *kernels = atomic_load_explicit(&chosen, memory_order_relaxed);
    if (kernels == NULL) {
        /* The variants come in the order of their speed. */
        for (size_t i = 0; brim__kernels_variant(i) != NULL; i++) {
            kernels = brim__kernels_variant(i);
        }
        atomic_store_explicit(&chosen, kernels, memory_order_relaxed);
    }
    return kernels;
}

/*
 * cpu.h: which of the compiled variants of a kernel this CPU runs.
 *
 * Files of kernels are compiled once for each instruction set (CMakeLists.txt), and each
 * compilation defines one constant table. A module lists its tables with BRIM__CPU_VARIANTS,
 * the slowest first, and takes the last one that this CPU runs.
 */
#ifndef BRIM_CPU_H
#define BRIM_CPU_H

#include "base/base.h"

/* The tables NAME_scalar, NAME_avx2 that this architecture has, as an initializer. */
#if defined(__x86_64__)
#define BRIM__CPU_VARIANTS(name) \
    { &name##_scalar, &name##_avx2 }
#else
#define BRIM__CPU_VARIANTS(name) \
    { &name##_scalar }
#endif

/* How many of the variants this CPU runs: those before it run too. At least 1. */
static inline size_t brim__cpu_variants(void) {
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx2") ? 2 : 1;
#else
    return 1;
#endif
}

#endif

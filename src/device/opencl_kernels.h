/*
 * opencl_kernels.h: the two computations that brim runs on OpenCL devices.
 *
 * The program is built from source for one context and device, when the device is prepared, or else
 * by the first call that needs a kernel. Compiling takes time, so it is done once for each context.
 * A kernel keeps its arguments, so each opener has its own kernels.
 */
#ifndef BRIM_OPENCL_KERNELS_H
#define BRIM_OPENCL_KERNELS_H

#include "base/platform.h"
#include "device/device.h"
#include "device/opencl_library.h"

enum brim__opencl_kernel {
    BRIM__LOOKUP_1, /* elements of this many bytes */
    BRIM__LOOKUP_2,
    BRIM__LOOKUP_4,
    BRIM__GATHER_1, /* copies units of this many bytes */
    BRIM__GATHER_4,
    BRIM__GATHER_16,
    BRIM__OPENCL_KERNELS
};

/* For one context and device, which outlive it; zero: not built yet. */
struct brim__opencl_program {
    cl_program built;
};

struct brim__opencl_kernels {
    const struct brim__opencl *opencl;
    uint32_t index; /* of the device */
    bool is_cpu;
    cl_context context;                      /* outlives this */
    cl_device_id device;                     /* of it */
    struct brim__opencl_program *of_context; /* outlives this too; NULL: the context is its own */
    /* Guards the fields below. A kernel keeps its arguments until it is put into a queue, so the
     * lock is held from setting the arguments until then. */
    brim__mutex lock;
    bool made;                       /* all kernels */
    struct brim__opencl_program own; /* where the context is its own */
    cl_kernel kernel[BRIM__OPENCL_KERNELS];
};

/* The caller has filled in all fields before the lock. */
brim_status brim__opencl_kernels_init(struct brim__opencl_kernels *kernels);
brim_status brim__opencl_kernels_build(struct brim__opencl_kernels *kernels);
void brim__opencl_kernels_fini(struct brim__opencl_kernels *kernels);
/* The program must no longer be in use. */
void brim__opencl_program_free(const struct brim__opencl *opencl,
                               struct brim__opencl_program *program);

brim_status brim__opencl_lookup(struct brim__opencl_kernels *kernels, cl_command_queue queue,
                                const struct brim__lookup *lookup);
brim_status brim__opencl_gather(struct brim__opencl_kernels *kernels, cl_command_queue queue,
                                const struct brim__gather *gather);

#endif

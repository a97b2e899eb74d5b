/*
 * cuda_library.h: CUDA's driver, loaded at its first use.
 */
#ifndef BRIM_CUDA_LIBRARY_H
#define BRIM_CUDA_LIBRARY_H

#include "base/base.h"
#include "device/cuda_api.h"

/* The driver's entry points, each under its symbol. */
struct brim__cuda {
#define X(symbol, parameters) CUresult(*symbol) parameters;
    BRIM__CUDA_CALLS(X)
#undef X
};

/* Gives the entry points of the driver. The first call loads it, for the life of the process; later
 * calls, from any thread, return the same result. devices may be NULL; *devices is false if there
 * is a driver but no device. BRIM_STATUS_UNSUPPORTED: there is no driver, or one that is too
 * old. */
brim_status brim__cuda_load(const struct brim__cuda **cuda, bool *devices);

/* "CUDA_ERROR_NO_DEVICE (no CUDA-capable device is detected)". Returns `text`. */
#define BRIM__CUDA_TEXT 256
const char *brim__cuda_text(const struct brim__cuda *cuda, CUresult result,
                            char text[BRIM__CUDA_TEXT]);

#endif

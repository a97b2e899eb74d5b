/*
 * opencl_library.h: OpenCL's loader on this machine, its devices, and the names of its errors.
 */
#ifndef BRIM_OPENCL_LIBRARY_H
#define BRIM_OPENCL_LIBRARY_H

#include "base/base.h"
#include "device/opencl_api.h"

struct brim__opencl {
#define X(result, name, parameters) result(*name) parameters;
    BRIM__OPENCL_CALLS(X)
#undef X
    /* numbered over all platforms, CPUs after all others */
    uint32_t count;
    struct {
        cl_platform_id platform;
        cl_device_id id;
    } device[BRIM_MAX_DEVICES];
};

/* Gives OpenCL's entry points. The first call that succeeds loads the library, for the life of the
 * process. BRIM_STATUS_UNSUPPORTED: there is no library, or it has no driver; the text says what to
 * install. BRIM_STATUS_FORKED: the parent process has used OpenCL before the fork. May be called
 * from any thread. */
brim_status brim__opencl_load(const struct brim__opencl **opencl);

/* A text that is zero-ended, cut, and without blanks at its ends. "" if the driver gives none.
 * Returns `text`. */
char *brim__opencl_device_text(const struct brim__opencl *opencl, cl_device_id device,
                               cl_uint which, char *text, size_t bytes);
char *brim__opencl_platform_text(const struct brim__opencl *opencl, cl_platform_id platform,
                                 cl_uint which, char *text, size_t bytes);

/* "CL_INVALID_VALUE". */
const char *brim__opencl_error_name(cl_int error);
/* The driver refused memory. */
bool brim__opencl_is_memory(cl_int error);
/* "opencl:0: <what> failed: CL_INVALID_VALUE (-30)", BRIM_STATUS_MEMORY or BRIM_STATUS_DRIVER. */
brim_status brim__opencl_fail(uint32_t index, const char *what, cl_int error);

#endif

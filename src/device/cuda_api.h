/*
 * cuda_api.h: the part of CUDA's driver API that brim uses, declared here so that building needs no
 * CUDA headers.
 *
 * Names are CUDA's own, so that its documentation can be looked up. Entry points are listed by the
 * symbol that the library exports. The symbols of calls that have changed since CUDA 2 end in a
 * version, which CUDA's header hides with a macro. All of them are in drivers since CUDA 11.0.
 */
#ifndef BRIM_CUDA_API_H
#define BRIM_CUDA_API_H

#include <stddef.h>

typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;

typedef enum CUresult {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NOT_INITIALIZED = 3,
    CUDA_ERROR_DEINITIALIZED = 4,
    CUDA_ERROR_STUB_LIBRARY = 34,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_INVALID_DEVICE = 101,
    CUDA_ERROR_INVALID_CONTEXT = 201,
    CUDA_ERROR_INVALID_HANDLE = 400,
    CUDA_ERROR_NOT_READY = 600,
    CUDA_ERROR_ILLEGAL_ADDRESS = 700,
    CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712,
    CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED = 713,
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
    CUDA_ERROR_UNKNOWN = 999,
} CUresult;

typedef enum CUdevice_attribute {
    CU_DEVICE_ATTRIBUTE_INTEGRATED = 18, /* its memory is the host's */
} CUdevice_attribute;

/* How a capture of a stream, for a graph, restricts the calls of a thread. */
typedef enum CUstreamCaptureMode {
    CU_STREAM_CAPTURE_MODE_GLOBAL = 0, /* what a thread begins with */
    CU_STREAM_CAPTURE_MODE_RELAXED = 2,
} CUstreamCaptureMode;

#define CU_STREAM_NON_BLOCKING  0x1u
#define CU_EVENT_DISABLE_TIMING 0x2u
/* Streams that always exist. A small number takes the place of the pointer. */
#define CU_STREAM_LEGACY     ((CUstream)0x1)
#define CU_STREAM_PER_THREAD ((CUstream)0x2)

/* X(symbol, parameters); all return a CUresult. */
#define BRIM__CUDA_CALLS(X)                                                                    \
    X(cuInit, (unsigned int flags))                                                            \
    X(cuDriverGetVersion, (int *version))                                                      \
    X(cuGetErrorName, (CUresult result, const char **text))                                    \
    X(cuGetErrorString, (CUresult result, const char **text))                                  \
    X(cuDeviceGetCount, (int *count))                                                          \
    X(cuDeviceGet, (CUdevice * device, int index))                                             \
    X(cuDeviceGetName, (char *name, int bytes, CUdevice device))                               \
    X(cuDeviceTotalMem_v2, (size_t * bytes, CUdevice device))                                  \
    X(cuDeviceGetAttribute, (int *value, CUdevice_attribute attribute, CUdevice device))       \
    X(cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device))                        \
    X(cuDevicePrimaryCtxRelease_v2, (CUdevice device))                                         \
    X(cuCtxPushCurrent_v2, (CUcontext context))                                                \
    X(cuCtxPopCurrent_v2, (CUcontext * context))                                               \
    X(cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode * mode))                         \
    X(cuMemGetInfo_v2, (size_t * free_bytes, size_t * total_bytes))                            \
    X(cuMemAlloc_v2, (CUdeviceptr * address, size_t bytes))                                    \
    X(cuMemFree_v2, (CUdeviceptr address))                                                     \
    X(cuMemHostRegister_v2, (void *memory, size_t bytes, unsigned int flags))                  \
    X(cuMemHostUnregister, (void *memory))                                                     \
    X(cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void *from, size_t bytes, CUstream stream)) \
    X(cuMemcpyDtoHAsync_v2, (void *to, CUdeviceptr from, size_t bytes, CUstream stream))       \
    X(cuMemcpyDtoDAsync_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)) \
    X(cuStreamCreate, (CUstream * stream, unsigned int flags))                                 \
    X(cuStreamDestroy_v2, (CUstream stream))                                                   \
    X(cuStreamSynchronize, (CUstream stream))                                                  \
    X(cuStreamGetCtx, (CUstream stream, CUcontext * context))                                  \
    X(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned int flags))                 \
    X(cuEventCreate, (CUevent * event, unsigned int flags))                                    \
    X(cuEventDestroy_v2, (CUevent event))                                                      \
    X(cuEventRecord, (CUevent event, CUstream stream))                                         \
    X(cuEventQuery, (CUevent event))                                                           \
    X(cuEventSynchronize, (CUevent event))

#endif

/*
 * opencl_api.h: the part of OpenCL 1.2 that brim uses, with the names of its specification.
 * Declared here, so that brim builds without OpenCL's headers; loaded at the first use of a device
 * (opencl_library.c).
 */
#ifndef BRIM_OPENCL_API_H
#define BRIM_OPENCL_API_H

#include <stddef.h>
#include <stdint.h>

typedef int32_t cl_int;
typedef uint32_t cl_uint;
typedef uint64_t cl_ulong;
typedef cl_uint cl_bool;
typedef cl_ulong cl_bitfield;

typedef struct _cl_platform_id *cl_platform_id;
typedef struct _cl_device_id *cl_device_id;
typedef struct _cl_context *cl_context;
typedef struct _cl_command_queue *cl_command_queue;
typedef struct _cl_mem *cl_mem;
typedef struct _cl_program *cl_program;
typedef struct _cl_kernel *cl_kernel;
typedef struct _cl_event *cl_event;

#define CL_SUCCESS                       0
#define CL_DEVICE_NOT_FOUND              (-1)
#define CL_MEM_OBJECT_ALLOCATION_FAILURE (-4)
#define CL_OUT_OF_RESOURCES              (-5)
#define CL_OUT_OF_HOST_MEMORY            (-6)
#define CL_MAP_FAILURE                   (-12)
#define CL_INVALID_BUFFER_SIZE           (-61)
#define CL_PLATFORM_NOT_FOUND_KHR        (-1001)

#define CL_TRUE  1
#define CL_FALSE 0

#define CL_PLATFORM_NAME 0x0902

#define CL_DEVICE_TYPE_CPU ((cl_bitfield)1 << 1)
#define CL_DEVICE_TYPE_ALL ((cl_bitfield)0xFFFFFFFF)

#define CL_DEVICE_TYPE                0x1000
#define CL_DEVICE_MAX_MEM_ALLOC_SIZE  0x1010
#define CL_DEVICE_GLOBAL_MEM_SIZE     0x101F
#define CL_DEVICE_AVAILABLE           0x1027
#define CL_DEVICE_COMPILER_AVAILABLE  0x1028
#define CL_DEVICE_NAME                0x102B
#define CL_DRIVER_VERSION             0x102D
#define CL_DEVICE_VERSION             0x102F
#define CL_DEVICE_HOST_UNIFIED_MEMORY 0x1035

#define CL_CONTEXT_PLATFORM 0x1084
#define CL_QUEUE_CONTEXT    0x1090
#define CL_QUEUE_DEVICE     0x1091

#define CL_MEM_READ_WRITE   ((cl_bitfield)1 << 0)
#define CL_MEM_USE_HOST_PTR ((cl_bitfield)1 << 3)
#define CL_MAP_WRITE        ((cl_bitfield)1 << 1)

#define CL_PROGRAM_BUILD_LOG              0x1183
#define CL_EVENT_COMMAND_EXECUTION_STATUS 0x11D3
#define CL_COMPLETE                       0

/* X(result, name, parameters). Queues are made by the call of OpenCL 1.2, which later versions
 * still have. */
#define BRIM__OPENCL_CALLS(X)                                                                      \
    X(cl_int, clGetPlatformIDs, (cl_uint, cl_platform_id *, cl_uint *))                            \
    X(cl_int, clGetPlatformInfo, (cl_platform_id, cl_uint, size_t, void *, size_t *))              \
    X(cl_int, clGetDeviceIDs, (cl_platform_id, cl_bitfield, cl_uint, cl_device_id *, cl_uint *))   \
    X(cl_int, clGetDeviceInfo, (cl_device_id, cl_uint, size_t, void *, size_t *))                  \
    X(cl_context, clCreateContext,                                                                 \
      (const intptr_t *, cl_uint, const cl_device_id *,                                            \
       void (*)(const char *, const void *, size_t, void *), void *, cl_int *))                    \
    X(cl_int, clRetainContext, (cl_context))                                                       \
    X(cl_int, clReleaseContext, (cl_context))                                                      \
    X(cl_command_queue, clCreateCommandQueue, (cl_context, cl_device_id, cl_bitfield, cl_int *))   \
    X(cl_int, clReleaseCommandQueue, (cl_command_queue))                                           \
    X(cl_int, clGetCommandQueueInfo, (cl_command_queue, cl_uint, size_t, void *, size_t *))        \
    X(cl_mem, clCreateBuffer, (cl_context, cl_bitfield, size_t, void *, cl_int *))                 \
    X(cl_int, clReleaseMemObject, (cl_mem))                                                        \
    X(cl_int, clEnqueueWriteBuffer,                                                                \
      (cl_command_queue, cl_mem, cl_bool, size_t, size_t, const void *, cl_uint, const cl_event *, \
       cl_event *))                                                                                \
    X(cl_int, clEnqueueReadBuffer,                                                                 \
      (cl_command_queue, cl_mem, cl_bool, size_t, size_t, void *, cl_uint, const cl_event *,       \
       cl_event *))                                                                                \
    X(cl_int, clEnqueueCopyBuffer,                                                                 \
      (cl_command_queue, cl_mem, cl_mem, size_t, size_t, size_t, cl_uint, const cl_event *,        \
       cl_event *))                                                                                \
    X(void *, clEnqueueMapBuffer,                                                                  \
      (cl_command_queue, cl_mem, cl_bool, cl_bitfield, size_t, size_t, cl_uint, const cl_event *,  \
       cl_event *, cl_int *))                                                                      \
    X(cl_int, clEnqueueUnmapMemObject,                                                             \
      (cl_command_queue, cl_mem, void *, cl_uint, const cl_event *, cl_event *))                   \
    X(cl_int, clEnqueueMarkerWithWaitList,                                                         \
      (cl_command_queue, cl_uint, const cl_event *, cl_event *))                                   \
    X(cl_int, clEnqueueBarrierWithWaitList,                                                        \
      (cl_command_queue, cl_uint, const cl_event *, cl_event *))                                   \
    X(cl_int, clFlush, (cl_command_queue))                                                         \
    X(cl_int, clFinish, (cl_command_queue))                                                        \
    X(cl_int, clGetEventInfo, (cl_event, cl_uint, size_t, void *, size_t *))                       \
    X(cl_int, clWaitForEvents, (cl_uint, const cl_event *))                                        \
    X(cl_int, clReleaseEvent, (cl_event))                                                          \
    X(cl_program, clCreateProgramWithSource,                                                       \
      (cl_context, cl_uint, const char **, const size_t *, cl_int *))                              \
    X(cl_int, clBuildProgram,                                                                      \
      (cl_program, cl_uint, const cl_device_id *, const char *, void (*)(cl_program, void *),      \
       void *))                                                                                    \
    X(cl_int, clGetProgramBuildInfo,                                                               \
      (cl_program, cl_device_id, cl_uint, size_t, void *, size_t *))                               \
    X(cl_int, clReleaseProgram, (cl_program))                                                      \
    X(cl_kernel, clCreateKernel, (cl_program, const char *, cl_int *))                             \
    X(cl_int, clSetKernelArg, (cl_kernel, cl_uint, size_t, const void *))                          \
    X(cl_int, clReleaseKernel, (cl_kernel))                                                        \
    X(cl_int, clEnqueueNDRangeKernel,                                                              \
      (cl_command_queue, cl_kernel, cl_uint, const size_t *, const size_t *, const size_t *,       \
       cl_uint, const cl_event *, cl_event *))

#endif

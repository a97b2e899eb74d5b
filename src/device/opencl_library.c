/*
 * opencl_library.c: loads OpenCL at its first use.
 *
 * The loader (libOpenCL.so.1) is part of the system's package; it knows the installed drivers. One
 * lock guards the table while it is filled. A search that found nothing is repeated by the next
 * call; one that succeeded is final, so that the numbers of devices do not change. The library is
 * never unloaded, because threads of drivers keep running.
 *
 * A driver's threads do not exist in a forked child, and its locks may be held there: a call in a
 * child whose parent has used OpenCL is refused, without taking a lock.
 */
#include "device/opencl_library.h"
#include "base/fault.h"
#include "base/platform.h"

#include <dlfcn.h>
#include <stdatomic.h>

#define LIBRARY   "libOpenCL.so.1"
#define ADVICE    "install ocl-icd-libopencl1 and a driver such as pocl-opencl-icd"
#define PLATFORMS 32 /* looked at */
#define DEVICES   64 /* of a platform that are looked at */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct brim__opencl table;  /* written under the lock until `loaded`, then constant */
static bool loaded;                /* under the lock */
static _Atomic uint32_t asked_for; /* the process that asked first; 0: none yet */

/* ------------------------------------------------------------------- errors */

static const struct {
    cl_int error;
    const char *name;
} errors[] = {
    { 0, "CL_SUCCESS" },
    { -1, "CL_DEVICE_NOT_FOUND" },
    { -2, "CL_DEVICE_NOT_AVAILABLE" },
    { -3, "CL_COMPILER_NOT_AVAILABLE" },
    { -4, "CL_MEM_OBJECT_ALLOCATION_FAILURE" },
    { -5, "CL_OUT_OF_RESOURCES" },
    { -6, "CL_OUT_OF_HOST_MEMORY" },
    { -7, "CL_PROFILING_INFO_NOT_AVAILABLE" },
    { -8, "CL_MEM_COPY_OVERLAP" },
    { -11, "CL_BUILD_PROGRAM_FAILURE" },
    { -12, "CL_MAP_FAILURE" },
    { -13, "CL_MISALIGNED_SUB_BUFFER_OFFSET" },
    { -14, "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST" },
    { -15, "CL_COMPILE_PROGRAM_FAILURE" },
    { -16, "CL_LINKER_NOT_AVAILABLE" },
    { -17, "CL_LINK_PROGRAM_FAILURE" },
    { -30, "CL_INVALID_VALUE" },
    { -31, "CL_INVALID_DEVICE_TYPE" },
    { -32, "CL_INVALID_PLATFORM" },
    { -33, "CL_INVALID_DEVICE" },
    { -34, "CL_INVALID_CONTEXT" },
    { -35, "CL_INVALID_QUEUE_PROPERTIES" },
    { -36, "CL_INVALID_COMMAND_QUEUE" },
    { -37, "CL_INVALID_HOST_PTR" },
    { -38, "CL_INVALID_MEM_OBJECT" },
    { -42, "CL_INVALID_BINARY" },
    { -43, "CL_INVALID_BUILD_OPTIONS" },
    { -44, "CL_INVALID_PROGRAM" },
    { -45, "CL_INVALID_PROGRAM_EXECUTABLE" },
    { -46, "CL_INVALID_KERNEL_NAME" },
    { -47, "CL_INVALID_KERNEL_DEFINITION" },
    { -48, "CL_INVALID_KERNEL" },
    { -49, "CL_INVALID_ARG_INDEX" },
    { -50, "CL_INVALID_ARG_VALUE" },
    { -51, "CL_INVALID_ARG_SIZE" },
    { -52, "CL_INVALID_KERNEL_ARGS" },
    { -53, "CL_INVALID_WORK_DIMENSION" },
    { -54, "CL_INVALID_WORK_GROUP_SIZE" },
    { -55, "CL_INVALID_WORK_ITEM_SIZE" },
    { -56, "CL_INVALID_GLOBAL_OFFSET" },
    { -57, "CL_INVALID_EVENT_WAIT_LIST" },
    { -58, "CL_INVALID_EVENT" },
    { -59, "CL_INVALID_OPERATION" },
    { -61, "CL_INVALID_BUFFER_SIZE" },
    { -63, "CL_INVALID_GLOBAL_WORK_SIZE" },
    { -64, "CL_INVALID_PROPERTY" },
    { -72, "CL_MAX_SIZE_RESTRICTION_EXCEEDED" },
    { -1001, "CL_PLATFORM_NOT_FOUND_KHR" },
};

const char *brim__opencl_error_name(cl_int error) {
    for (size_t i = 0; i < BRIM__COUNT(errors); i++) {
        if (errors[i].error == error) {
            return errors[i].name;
        }
    }
    return "an error of the driver's own";
}

bool brim__opencl_is_memory(cl_int error) {
    return error == CL_MEM_OBJECT_ALLOCATION_FAILURE || error == CL_OUT_OF_HOST_MEMORY ||
           error == CL_INVALID_BUFFER_SIZE;
}

brim_status brim__opencl_fail(uint32_t index, const char *what, cl_int error) {
    return brim__fail(brim__opencl_is_memory(error) ? BRIM_STATUS_MEMORY : BRIM_STATUS_DRIVER,
                      "opencl:%u: %s failed: %s (%d)", index, what, brim__opencl_error_name(error),
                      error);
}

/* -------------------------------------------------------------------- texts */

/* Cleans up a text that a driver has written into text[bytes]. */
static char *tidy(char *text, size_t bytes, cl_int error) {
    if (error) {
        text[0] = 0;
        return text;
    }
    text[bytes - 1] = 0;
    size_t length = strlen(text);
    while (length > 0 && text[length - 1] == ' ') {
        text[--length] = 0;
    }
    const size_t blanks = strspn(text, " ");
    memmove(text, text + blanks, length + 1 - blanks);
    return text;
}

/* Drivers do not return part of a text, so it is read whole and then cut. */
#define WHOLE_TEXT 1024

char *brim__opencl_device_text(const struct brim__opencl *opencl, cl_device_id device,
                               cl_uint which, char *text, size_t bytes) {
    char whole[WHOLE_TEXT] = "";
    const cl_int error = opencl->clGetDeviceInfo(device, which, sizeof whole, whole, NULL);
    brim__copy_text(text, bytes, tidy(whole, sizeof whole, error));
    return text;
}

char *brim__opencl_platform_text(const struct brim__opencl *opencl, cl_platform_id platform,
                                 cl_uint which, char *text, size_t bytes) {
    char whole[WHOLE_TEXT] = "";
    const cl_int error = opencl->clGetPlatformInfo(platform, which, sizeof whole, whole, NULL);
    brim__copy_text(text, bytes, tidy(whole, sizeof whole, error));
    return text;
}

/* ------------------------------------------------------------------ loading */

/* Fills in all entry points; false: `missing` is not there. */
static bool find_calls(void *library, struct brim__opencl *opencl, const char **missing) {
#define X(result, name, parameters)                          \
    {                                                        \
        void *const symbol = dlsym(library, #name);          \
        if (symbol == NULL) {                                \
            *missing = #name;                                \
            return false;                                    \
        }                                                    \
        memcpy(&opencl->name, &symbol, sizeof opencl->name); \
    }
    BRIM__OPENCL_CALLS(X)
#undef X
    return true;
}

/* Adds the devices of a platform that are CPUs, or those that are not. */
static cl_int add_devices(struct brim__opencl *opencl, cl_platform_id platform, bool cpus) {
    cl_device_id ids[DEVICES];
    cl_uint count = 0;
    const cl_int error =
        brim__fault(BRIM__FAULT_DEVICE)
            ? CL_OUT_OF_RESOURCES
            : opencl->clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, DEVICES, ids, &count);
    if (error) {
        return error == CL_DEVICE_NOT_FOUND ? CL_SUCCESS : error;
    }
    for (cl_uint i = 0; i < count && i < DEVICES && opencl->count < BRIM_MAX_DEVICES; i++) {
        cl_bitfield type = 0;
        const cl_int type_error =
            opencl->clGetDeviceInfo(ids[i], CL_DEVICE_TYPE, sizeof type, &type, NULL);
        if (type_error) {
            return type_error;
        }
        if (((type & CL_DEVICE_TYPE_CPU) != 0) == cpus) {
            opencl->device[opencl->count].platform = platform;
            opencl->device[opencl->count].id = ids[i];
            opencl->count++;
        }
    }
    return CL_SUCCESS;
}

static brim_status find_devices(struct brim__opencl *opencl) {
    cl_platform_id platforms[PLATFORMS];
    cl_uint count = 0;
    const cl_int error = brim__fault(BRIM__FAULT_DEVICE)
                             ? CL_OUT_OF_RESOURCES
                             : opencl->clGetPlatformIDs(PLATFORMS, platforms, &count);
    if (error == CL_PLATFORM_NOT_FOUND_KHR || (error == CL_SUCCESS && count == 0)) {
        return brim__fail(BRIM_STATUS_UNSUPPORTED,
                          "OpenCL: " LIBRARY
                          " found no driver (it reads /etc/OpenCL/vendors); " ADVICE);
    }
    if (error) {
        return brim__fail(BRIM_STATUS_DRIVER,
                          "OpenCL: " LIBRARY " could not list its drivers: %s (%d)",
                          brim__opencl_error_name(error), error);
    }
    /* A driver that fails, such as one without its hardware, does not keep brim from using the
     * others. */
    brim_status status = BRIM_OK;
    for (int pass = 0; pass < 2; pass++) {
        for (cl_uint i = 0; i < count && i < PLATFORMS; i++) {
            const cl_int device_error = add_devices(opencl, platforms[i], pass == 1);
            if (device_error) {
                char name[128];
                status = brim__fail(BRIM_STATUS_DRIVER,
                                    "OpenCL: the driver \"%s\" could not list its devices: %s (%d)",
                                    brim__opencl_platform_text(opencl, platforms[i],
                                                               CL_PLATFORM_NAME, name, sizeof name),
                                    brim__opencl_error_name(device_error), device_error);
            }
        }
    }
    return opencl->count > 0 ? BRIM_OK : status;
}

/* With the lock. */
static brim_status load(void) {
    const bool refused = brim__fault(BRIM__FAULT_DEVICE);
    void *const library = refused ? NULL : dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        const char *const why = refused ? "refused by a test" : dlerror();
        return brim__fail(BRIM_STATUS_UNSUPPORTED,
                          "there is no OpenCL here: " LIBRARY " was looked for, and could not be "
                          "loaded (%s); " ADVICE,
                          why != NULL ? why : "no reason given");
    }
    struct brim__opencl found = { 0 };
    const char *missing;
    if (!find_calls(library, &found, &missing)) {
        return brim__fail(BRIM_STATUS_UNSUPPORTED,
                          "OpenCL: " LIBRARY " has no %s, so it is older than OpenCL 1.2; " ADVICE,
                          missing);
    }
    const brim_status status = find_devices(&found);
    if (status == BRIM_OK) {
        table = found;
        loaded = true;
    }
    return status;
}

brim_status brim__opencl_load(const struct brim__opencl **opencl) {
    const uint32_t process = brim__process();
    uint32_t first = 0;
    if (!atomic_compare_exchange_strong(&asked_for, &first, process) && first != process) {
        return brim__fail(BRIM_STATUS_FORKED,
                          "OpenCL was in use before this process was forked, and its drivers do "
                          "not work in both processes; use it in one of them, or start the other "
                          "as a new program (in Python's multiprocessing: spawn)");
    }
    brim__lock(&lock);
    const brim_status status = loaded ? BRIM_OK : load();
    brim__unlock(&lock);
    if (status == BRIM_OK) {
        *opencl = &table;
    }
    return status;
}

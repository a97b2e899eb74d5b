/*
 * cuda_library.c: finds libcuda.so.1, which is part of the driver, and starts it.
 *
 * This is done once for the process, under pthread_once, and never undone, because other parts of
 * the process (a framework) use the same driver. The result, with its text, is kept for all
 * callers.
 *
 * Invariant: `loaded` is written by load() only, and read after it.
 */
#include "device/cuda_library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

#define LIBRARY "libcuda.so.1"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct {
    struct brim__cuda cuda;
    brim_status status;
    bool devices;
    char why[BRIM__DETAIL_BYTES]; /* of a status that is not BRIM_OK */
} loaded;

static void note(brim_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void note(brim_status status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(loaded.why, sizeof loaded.why, format, arguments);
    va_end(arguments);
    loaded.status = status;
}

/* Fills in all entry points; returns the name of one that is missing, or NULL. */
static const char *find_calls(void *library) {
#define X(symbol, parameters)                              \
    {                                                      \
        void *const found = dlsym(library, #symbol);       \
        if (found == NULL) {                               \
            return #symbol;                                \
        }                                                  \
        memcpy(&loaded.cuda.symbol, &found, sizeof found); \
    }
    BRIM__CUDA_CALLS(X)
#undef X
    return NULL;
}

static void load(void) {
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        const char *why = dlerror();
        note(BRIM_STATUS_UNSUPPORTED,
             "there is no CUDA driver: looked for " LIBRARY ", which NVIDIA's driver installs (%s)",
             why != NULL ? why : "not found");
        return;
    }
    const char *missing = find_calls(library);
    if (missing != NULL) {
        note(BRIM_STATUS_UNSUPPORTED,
             "the CUDA driver is too old: " LIBRARY
             " has no %s; drivers for CUDA 11.0 and later have it",
             missing);
        return;
    }
    const CUresult result = loaded.cuda.cuInit(0);
    loaded.devices = result == CUDA_SUCCESS;
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NO_DEVICE) {
        char text[BRIM__CUDA_TEXT];
        note(result == CUDA_ERROR_STUB_LIBRARY ? BRIM_STATUS_UNSUPPORTED : BRIM_STATUS_DRIVER,
             "the CUDA driver (" LIBRARY ") does not start: %s",
             brim__cuda_text(&loaded.cuda, result, text));
    }
}

brim_status brim__cuda_load(const struct brim__cuda **cuda, bool *devices) {
    pthread_once(&once, load);
    if (loaded.status != BRIM_OK) {
        return brim__fail_text(loaded.status, loaded.why);
    }
    *cuda = &loaded.cuda;
    if (devices != NULL) {
        *devices = loaded.devices;
    }
    return BRIM_OK;
}

const char *brim__cuda_text(const struct brim__cuda *cuda, CUresult result,
                            char text[BRIM__CUDA_TEXT]) {
    const char *name = NULL, *says = NULL;
    /* a code that the driver does not know leaves NULL */
    (void)cuda->cuGetErrorName(result, &name);
    (void)cuda->cuGetErrorString(result, &says);
    if (name == NULL || says == NULL) {
        snprintf(text, BRIM__CUDA_TEXT, "error %d, which the driver has no name for", (int)result);
    } else {
        snprintf(text, BRIM__CUDA_TEXT, "%s (%s)", name, says);
    }
    return text;
}

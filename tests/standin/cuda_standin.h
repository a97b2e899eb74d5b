/*
 * cuda_standin.h: how tests steer and read the stand-in for CUDA's driver.
 *
 * The stand-in is a libcuda.so.1 with the entry points that brim uses, two devices whose
 * memory is plain memory, and a thread for each stream, which does what was put there in
 * its order. It is stricter than a driver: what CUDA would let pass, or answer with
 * anything, is a violation here, which is counted and kept as a text. These are
 *
 *   - addresses that were never given or are freed, copies beyond an allocation;
 *   - memory freed or unlocked while something in a stream still uses it, and streams
 *     destroyed while they hold something;
 *   - two streams that use the same bytes at once, one of them writing;
 *   - streams, events and contexts that are destroyed, or of another context;
 *   - calls without a current context, or before cuInit, or in a forked child;
 *   - more contexts popped than pushed, and threads that end with one pushed;
 *   - things freed twice; pages that were unmapped while they were page-locked;
 *   - a context that is released with something still in it;
 *   - calls that would spoil a capture which somebody has begun.
 *
 * Device addresses are not addresses of the process: to touch one crashes.
 *
 * A test finds the stand-in by linking it (CMake target cuda_standin): then
 * dlopen("libcuda.so.1") finds the one that is there already. A test in Python loads it
 * with ctypes before anything else does, from the path in BRIM_CUDA_STANDIN; a program
 * that is started, such as the command line, gets LD_LIBRARY_PATH with its folder. For
 * these there are variables of the environment:
 *
 *   CUDA_STANDIN_DEVICES=0   how many devices there are, at most 2
 *   CUDA_STANDIN_BYTES=1000  the memory of each
 *   CUDA_STANDIN_INIT=803    what cuInit says
 *   CUDA_STANDIN_REPORT=FILE when the process ends, all counters ("NAME NUMBER") and
 *                            violations ("violation: TEXT") are written there, a line each
 *
 * All functions may be called from any thread.
 */
#ifndef CUDA_STANDIN_H
#define CUDA_STANDIN_H

#include "device/cuda_api.h"

#include <stdbool.h>
#include <stdint.h>

#define CUDA_STANDIN_DEVICES 2
#define CUDA_STANDIN_BYTES   (UINT64_C(1) << 30) /* of each device, unless told otherwise */

/* X(name, what it counts) */
#define CUDA_STANDIN_COUNTERS(X)                                                     \
    X(calls, "calls of entry points, those for texts not counted")                   \
    X(violations, "see above")                                                       \
    X(forked_calls, "calls in forked children, which are violations too")            \
    X(not_locked, "copies from or to host memory that is not page-locked")           \
    X(copies_in, "copies from the host that were put into streams")                  \
    X(copies_back, "copies to the host")                                             \
    X(copies_within, "copies on a device")                                           \
    X(bytes_in, "bytes of the copies from the host")                                 \
    X(retained, "there now: contexts, each as often as it is retained")              \
    X(allocations, "there now: device memory")                                       \
    X(device_bytes, "there now: bytes of it, on both devices")                       \
    X(device_bytes_peak, "most of these")                                            \
    X(locked, "there now: page-locked ranges of the host")                           \
    X(locked_bytes, "there now: bytes of these")                                     \
    X(locked_bytes_peak, "most of these")                                            \
    X(streams, "there now: streams that were made, the default ones not counted")    \
    X(events, "there now")                                                           \
    X(depth, "contexts that are current on the calling thread, one above the other") \
    X(failed, "calls that were made to fail")

enum cuda_standin_counter {
#define X(name, says) CUDA_STANDIN_##name,
    CUDA_STANDIN_COUNTERS(X)
#undef X
        CUDA_STANDIN_COUNTERS_END
};

#pragma GCC visibility push(default) /* all else of the stand-in is hidden */

/* The entry points, for tests that play the consumer. */
#define X(symbol, parameters) CUresult symbol parameters;
BRIM__CUDA_CALLS(X)
#undef X

/* The calls, counters and peaks are counted from the last reset on. */
uint64_t cuda_standin_get(enum cuda_standin_counter counter);
/* Whether nothing is there now: contexts, memory, page-locked ranges, streams, events. */
bool cuda_standin_empty(void);
/* The text of a violation, from 0 on; "" past the last, of which the first 16 are kept. The
 * text stays until the reset. */
const char *cuda_standin_violation(unsigned index);

/* As if just loaded, still initialised: what is there is dropped, what streams hold is done
 * before, what was set is forgotten. Whoever uses the stand-in has ended. */
void cuda_standin_reset(void);

/* Everything that streams do begins so much later. */
void cuda_standin_delay(uint64_t microseconds);
/* Memory of a device, and page-locked memory of the host: beyond it calls are refused. */
void cuda_standin_limit(unsigned device, uint64_t bytes);
void cuda_standin_limit_locked(uint64_t bytes);
/* The nth call from now on (from 1) of this entry point, or of all (NULL), says `result`;
 * with for_ever all later ones do. nth 0: none. A call that frees, waits or pops has its
 * effect all the same, as a driver that reports an older error. Others have none. */
void cuda_standin_fail(const char *call, uint64_t nth, CUresult result, bool for_ever);

/* As if another thread had begun to capture a stream, in the mode that forbids others calls
 * that may wait or take memory; and as if it had ended. */
void cuda_standin_capture(bool captures);

/* Events can neither be asked nor waited for: both say CUDA_ERROR_UNKNOWN at once. */
void cuda_standin_silence(bool silent);

/* A stream does not begin with anything until it is let go on, as often as it was held.
 * CU_STREAM_LEGACY and CU_STREAM_PER_THREAD as in all calls. */
CUresult cuda_standin_hold(CUstream stream);
CUresult cuda_standin_go_on(CUstream stream);
/* The consumer's kernels: one reads device memory, which is put to host memory `to`, one
 * fills it, both `microseconds` after the stream came to them. They need a current context. */
CUresult cuda_standin_read(CUstream stream, CUdeviceptr from, void *to, size_t bytes,
                           uint64_t microseconds);
CUresult cuda_standin_write(CUstream stream, CUdeviceptr to, uint8_t value, size_t bytes,
                            uint64_t microseconds);
/* What device memory holds at this moment, whatever streams do. Refused beyond an
 * allocation. */
CUresult cuda_standin_peek(CUdeviceptr from, void *to, size_t bytes);

#pragma GCC visibility pop

#endif

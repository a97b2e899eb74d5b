/*
 * fault.h: points at which a test makes the system refuse.
 *
 * Every call that the system may refuse asks brim__fault() first. In the library that users get
 * this is the constant false; in the library that the tests link (BRIM_FAULTS) a point counts
 * itself and, when armed, fails the Nth time, once or always. Counting is atomic; which point is
 * the Nth is deterministic with 0 threads.
 */
#ifndef BRIM_FAULT_H
#define BRIM_FAULT_H

#include "base/base.h"

enum brim__fault_kind {
    BRIM__FAULT_ALLOC,  /* malloc */
    BRIM__FAULT_MAP,    /* mmap of memory or of a file */
    BRIM__FAULT_THREAD, /* thread start */
    BRIM__FAULT_OPEN,   /* open, fstat */
    BRIM__FAULT_READ,   /* pread, read */
    BRIM__FAULT_DEVICE, /* calls of a driver (device/device.h) */
    BRIM__FAULT_WRITE,  /* making, writing, syncing and renaming files, making directories */
    BRIM__FAULT_KINDS
};

#ifdef BRIM_FAULTS
bool brim__fault(enum brim__fault_kind kind);
/* Arms: the nth point (from 1) of a kind in `kinds` (bits) fails; with
 * `for_ever` all later ones too. nth = 0 disarms. Resets the counts. */
void brim__fault_arm(unsigned kinds, uint64_t nth, bool for_ever);
uint64_t brim__fault_passed(enum brim__fault_kind kind); /* points met since arming */
uint64_t brim__fault_injected(void);                     /* failures since arming */
#else
static inline bool brim__fault(enum brim__fault_kind kind) {
    (void)kind;
    return false;
}
#endif

#endif

/*
 * fault.c: the counters of fault.h. The library that users get does not contain them.
 *
 * All state is atomic, because workers meet points at the same time. Arming is
 * for a moment when no other thread runs: a point that is met while it happens
 * may count before or after.
 */
#include "base/fault.h"

#ifdef BRIM_FAULTS

#include <stdatomic.h>

static _Atomic unsigned armed_kinds;
static _Atomic uint64_t armed_nth; /* 0: disarmed */
static _Atomic bool armed_for_ever;
static _Atomic uint64_t met; /* points of the armed kinds since arming */
static _Atomic uint64_t injected;
static _Atomic uint64_t passed[BRIM__FAULT_KINDS];

bool brim__fault(enum brim__fault_kind kind) {
    atomic_fetch_add(&passed[kind], 1);
    const uint64_t nth = atomic_load(&armed_nth);
    if (nth == 0 || !(atomic_load(&armed_kinds) & (1u << kind))) {
        return false;
    }
    const uint64_t number = atomic_fetch_add(&met, 1) + 1;
    if (number != nth && !(number > nth && atomic_load(&armed_for_ever))) {
        return false;
    }
    atomic_fetch_add(&injected, 1);
    return true;
}

void brim__fault_arm(unsigned kinds, uint64_t nth, bool for_ever) {
    atomic_store(&armed_nth, 0);
    atomic_store(&armed_kinds, kinds);
    atomic_store(&armed_for_ever, for_ever);
    if (nth > 0) { /* disarmed, a thread that is past its first look is not the Nth once more */
        atomic_store(&met, 0);
    }
    atomic_store(&injected, 0);
    for (size_t kind = 0; kind < BRIM__FAULT_KINDS; kind++) {
        atomic_store(&passed[kind], 0);
    }
    atomic_store(&armed_nth, nth);
}

uint64_t brim__fault_passed(enum brim__fault_kind kind) {
    return atomic_load(&passed[kind]);
}

uint64_t brim__fault_injected(void) {
    return atomic_load(&injected);
}

#endif

/*
 * machine.h: how much memory and how many CPUs this process may use.
 *
 * Looks at MemAvailable, the process's memory cgroup (v1 and v2) and all its
 * parents, the CPU affinity and the CPU quota. `root` is "" for the real
 * system; tests give a directory that imitates /proc and /sys.
 */
#ifndef BRIM_MACHINE_H
#define BRIM_MACHINE_H

#include "base/base.h"

struct brim__machine {
    uint64_t free_bytes; /* the tightest of MemAvailable and limit - use + reclaimable */
    uint32_t cpus;       /* at least 1 */
    char origin[160];    /* which of them was the tightest, in words */
};

/* Never fails: what cannot be read does not limit. Allocates nothing. */
void brim__machine_read(const char *root, struct brim__machine *machine);

#endif

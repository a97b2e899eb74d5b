/*
 * devices.c: the devices of a runtime: the limits on their memory, and looking for finished events.
 */
#include "engine/loader.h"

brim_status brim__runtime_use(brim_runtime *runtime, const struct brim__device *device) {
    const brim_memory kind = brim_device_memory(device->kind, device->index);
    brim_device_info info = BRIM_DEVICE_INFO_INIT;
    brim_budget_info now = BRIM_BUDGET_INFO_INIT;
    brim_status status = brim_budget_read(runtime->budget, kind, &now);
    if (status != BRIM_OK || now.limit != BRIM_UNLIMITED) {
        return status;
    }
    status = brim_device_read(device->kind, device->index, &info);
    if (status != BRIM_OK) {
        return status;
    }
    const uint64_t left = info.free_bytes == BRIM_UNKNOWN ? info.total_bytes : info.free_bytes;
    brim__lock(&runtime->devices); /* two threads may open it at once */
    status = brim_budget_read(runtime->budget, kind, &now);
    if (status == BRIM_OK && now.limit == BRIM_UNLIMITED) {
        /* above what is set aside already, so that no holder has to give way to it */
        const uint64_t used = brim__budget_used(runtime->budget, kind);
        const uint64_t rest = left - brim__min(left, used);
        status = brim_budget_set(runtime->budget, kind, used + rest / 4, 0);
    }
    brim__unlock(&runtime->devices);
    return status;
}

bool brim__pool_polls(brim_runtime *runtime) {
    bool polls = false;
    for (brim_loader *loader = runtime->loaders; loader != NULL; loader = loader->visits.next) {
        polls |= atomic_load(&loader->polls);
    }
    return polls;
}

void brim__pool_poll(brim_runtime *runtime) {
    for (brim_loader *loader = runtime->loaders; loader != NULL; loader = loader->visits.next) {
        if (atomic_load(&loader->polls)) {
            brim__loader_want(loader);
        }
    }
}

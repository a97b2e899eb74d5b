/*
 * runtime.c: making, reading and trimming a runtime.
 */
#include "engine/runtime.h"

#include "base/machine.h"
#include "base/struct.h"
#include "plan/plan.h"

#include <stdio.h>

brim_status brim__forked(void) {
    return brim__fail(BRIM_STATUS_FORKED,
                      "this object belongs to the parent process: after fork a child "
                      "must make its own runtime");
}

/* Copies the caller's options, of whatever version, over the defaults. */
static brim_status read_options(const brim_runtime_options *given, brim_runtime_options *options) {
    *options = (brim_runtime_options)BRIM_RUNTIME_OPTIONS_INIT;
    if (given == NULL) {
        return BRIM_OK;
    }
    const brim_status status = brim__struct_take("runtime options", "BRIM_RUNTIME_OPTIONS_INIT",
                                                 given, given->size, options, sizeof *options);
    if (status != BRIM_OK) {
        return status;
    }
    if (options->threads < BRIM_THREADS_AUTO || options->threads > BRIM__MOST_THREADS) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "threads=%d: 0 to %d, or -1 for as many as there are CPUs",
                          options->threads, BRIM__MOST_THREADS);
    }
    if (options->shared_bytes > 0 && options->shared_name == NULL) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "shared_bytes is %llu, but there is no shared_name: give "
                          "the name by which processes share it",
                          (unsigned long long)options->shared_bytes);
    }
    return BRIM_OK;
}

static void set_limits(brim_runtime *runtime, brim_runtime_options *options) {
    struct brim__machine machine;
    brim__machine_read("", &machine);
    runtime->cpus = machine.cpus;
    if (options->host_bytes == 0 && options->shared_name != NULL) {
        snprintf(runtime->origin, sizeof runtime->origin, "all of the shared budget \"%.64s\"",
                 options->shared_name);
    } else if (options->host_bytes == 0) {
        options->host_bytes = machine.free_bytes / 4;
        snprintf(runtime->origin, sizeof runtime->origin, "a quarter of %.140s", machine.origin);
    } else {
        snprintf(runtime->origin, sizeof runtime->origin, "given");
    }
    runtime->threads = options->threads == BRIM_THREADS_AUTO
                           ? (uint32_t)brim__min(machine.cpus, BRIM__MOST_THREADS)
                           : (uint32_t)options->threads;
}

static brim_status check_floor(uint64_t bytes) {
    char size[BRIM__SIZE_TEXT];
    if (bytes >= BRIM__BUDGET_FLOOR) {
        return BRIM_OK;
    }
    const brim_status status =
        brim__fail(BRIM_STATUS_BUDGET,
                   "a budget of %llu bytes is too small for any pipeline: give at least %s",
                   (unsigned long long)bytes, brim__size_text(BRIM__BUDGET_FLOOR, size));
    brim__lack()->minimum_bytes = BRIM__BUDGET_FLOOR;
    brim__lack()->final = true;
    return status;
}

static brim_status share(brim_runtime *runtime, brim_runtime_options *options) {
    uint64_t limits[BRIM_MEMORY_KINDS];
    struct brim__sharing sharing;
    limits[BRIM_MEMORY_HOST] = options->shared_bytes;
    limits[BRIM_MEMORY_PINNED] = options->pinned_bytes;
    for (int kind = BRIM_MEMORY_DEVICE; kind < BRIM_MEMORY_KINDS; kind++) {
        limits[kind] = options->device_bytes;
    }
    brim_status status = brim__budget_share(runtime->budget, options->shared_name, limits);
    if (status != BRIM_OK) {
        return status;
    }
    brim__budget_sharing(runtime->budget, BRIM_MEMORY_HOST, &sharing);
    if (options->host_bytes == 0) {
        options->host_bytes = sharing.limit;
    }
    return check_floor(sharing.limit);
}

static brim_status make_root(brim_runtime *runtime, brim_runtime_options *options) {
    uint64_t limits[BRIM_MEMORY_KINDS];
    for (int kind = 0; kind < BRIM_MEMORY_KINDS; kind++) {
        /* what is free on a device is known when it is opened, and its limit set then */
        limits[kind] = kind >= BRIM_MEMORY_DEVICE && options->device_bytes > 0
                           ? options->device_bytes
                           : BRIM_UNLIMITED;
    }
    brim_status status = brim__budget_root("runtime", limits, &runtime->budget);
    if (status == BRIM_OK && options->shared_name != NULL) {
        status = share(runtime, options);
    }
    if (status == BRIM_OK) {
        status = check_floor(options->host_bytes);
    }
    if (status == BRIM_OK) {
        status = brim_budget_set(runtime->budget, BRIM_MEMORY_HOST, options->host_bytes, 0);
    }
    if (status == BRIM_OK) {
        status = brim_budget_set(
            runtime->budget, BRIM_MEMORY_PINNED,
            options->pinned_bytes > 0 ? options->pinned_bytes : options->host_bytes, 0);
    }
    return status;
}

static brim_status init_budgets(brim_runtime *runtime, brim_runtime_options *options) {
    brim_status status = make_root(runtime, options);
    if (status == BRIM_OK) {
        status = brim_budget_charge(runtime->budget, BRIM_MEMORY_HOST,
                                    brim__alloc_bytes(sizeof *runtime));
    }
    runtime->trust_foreign = options->trust_foreign != 0;
    if (status == BRIM_OK && options->index_dir != NULL) {
        const size_t bytes = strlen(options->index_dir) + 1;
        runtime->index_dir = brim__alloc(runtime->budget, bytes, &status);
        if (runtime->index_dir != NULL) {
            memcpy(runtime->index_dir, options->index_dir, bytes);
        }
    }
    if (status == BRIM_OK) {
        status = brim_budget_new(runtime->budget, "workers", BRIM_UNLIMITED, 0,
                                 &runtime->workers_budget);
    }
    if (status == BRIM_OK) {
        brim_budget_info info = BRIM_BUDGET_INFO_INIT;
        status = brim_budget_read(runtime->budget, BRIM_MEMORY_HOST, &info);
        runtime->base_bytes = info.charged;
    }
    return status;
}

static void destroy(brim_runtime *runtime) {
    if (runtime->workers_budget != NULL) {
        brim__budget_on_revoke(runtime->workers_budget, NULL, NULL);
    }
    brim__pool_stop(runtime);
    brim__free(runtime->index_dir);
    brim_budget_free(runtime->workers_budget);
    brim_budget_free(runtime->budget);
    brim__mutex_fini(&runtime->devices);
    brim__condition_fini(&runtime->left);
    brim__condition_fini(&runtime->work);
    brim__mutex_fini(&runtime->pool);
    brim__free(runtime);
}

static brim_status runtime_new(const brim_runtime_options *given, brim_runtime **out) {
    brim_runtime_options options;
    brim_status status = read_options(given, &options);
    if (status != BRIM_OK) {
        return status;
    }
    brim_runtime *runtime = brim__alloc(NULL, sizeof *runtime, &status);
    if (runtime == NULL) {
        return status;
    }
    atomic_init(&runtime->references, 1);
    runtime->process = brim__process();
    runtime->log = options.log;
    runtime->log_user = options.log_user;
    status = brim__mutex_init(&runtime->pool);
    if (status != BRIM_OK) {
        goto no_pool;
    }
    status = brim__condition_init(&runtime->work);
    if (status != BRIM_OK) {
        goto no_work;
    }
    status = brim__condition_init(&runtime->left);
    if (status != BRIM_OK) {
        goto no_left;
    }
    status = brim__mutex_init(&runtime->devices);
    if (status != BRIM_OK) {
        goto no_devices;
    }
    set_limits(runtime, &options);
    status = init_budgets(runtime, &options);
    if (status != BRIM_OK) {
        destroy(runtime);
        return status;
    }
    brim__budget_on_revoke(runtime->workers_budget, brim__pool_revoke, runtime);
    *out = runtime;
    return BRIM_OK;

no_devices:
    brim__condition_fini(&runtime->left);
no_left:
    brim__condition_fini(&runtime->work);
no_work:
    brim__mutex_fini(&runtime->pool);
no_pool:
    brim__free(runtime);
    return status;
}

brim_status brim_runtime_new(const brim_runtime_options *given, brim_runtime **out) {
    if (out == NULL) {
        return brim__fail_null("runtime");
    }
    *out = NULL;
    return brim__lack_of_opening(runtime_new(given, out));
}

void brim__runtime_ref(brim_runtime *runtime) {
    atomic_fetch_add_explicit(&runtime->references, 1, memory_order_relaxed);
}

void brim__runtime_unref(brim_runtime *runtime) {
    if (atomic_fetch_sub_explicit(&runtime->references, 1, memory_order_acq_rel) == 1) {
        destroy(runtime);
    }
}

void brim_runtime_free(brim_runtime *runtime) {
    if (runtime != NULL && !brim__runtime_forked(runtime)) {
        brim__runtime_unref(runtime);
    }
}

brim_budget *brim_runtime_budget(brim_runtime *runtime) {
    return runtime != NULL ? runtime->budget : NULL;
}

brim_status brim_runtime_read_usage(brim_runtime *runtime, brim_usage *given) {
    if (runtime == NULL) {
        return brim__fail_null("runtime");
    }
    if (brim__runtime_forked(runtime)) {
        return brim__forked();
    }
    brim_budget_info info = BRIM_BUDGET_INFO_INIT;
    brim_usage usage = BRIM_USAGE_INIT;
    brim_status status = brim__struct_check("usage", "BRIM_USAGE_INIT", given);
    if (status == BRIM_OK) {
        status = brim_budget_read(runtime->budget, BRIM_MEMORY_HOST, &info);
    }
    if (status != BRIM_OK) {
        return status;
    }
    usage.limit = info.limit;
    usage.charged = info.charged;
    usage.reserved = info.reserved;
    usage.elastic = info.elastic;
    usage.peak = info.peak;
    struct brim__sharing sharing;
    if (brim__budget_sharing(runtime->budget, BRIM_MEMORY_HOST, &sharing)) {
        usage.shared_limit = sharing.limit;
        usage.shared_used = sharing.used;
        usage.processes = sharing.processes;
    }
    brim__rss(&usage.rss, &usage.peak_rss);
    usage.outside = usage.rss > usage.charged ? usage.rss - usage.charged : 0;
    brim__lock(&runtime->pool);
    usage.threads = runtime->worker_count;
    usage.loaders = runtime->loader_count;
    brim__unlock(&runtime->pool);
    memcpy(usage.host_origin, runtime->origin, sizeof usage.host_origin);
    brim__struct_give(given, &usage, sizeof usage);
    return BRIM_OK;
}

/* Charged now, of all kinds; page-locked memory counts as host memory. */
static uint64_t charged(brim_runtime *runtime) {
    uint64_t bytes = 0;
    for (int kind = 0; kind < BRIM_MEMORY_KINDS; kind++) {
        brim_budget_info info = BRIM_BUDGET_INFO_INIT;
        if (kind != BRIM_MEMORY_PINNED &&
            brim_budget_read(runtime->budget, (brim_memory)kind, &info) == BRIM_OK) {
            bytes += info.charged;
        }
    }
    return bytes;
}

brim_status brim_runtime_trim(brim_runtime *runtime, uint64_t *bytes) {
    if (runtime == NULL) {
        return brim__fail_null("runtime");
    }
    if (brim__runtime_forked(runtime)) {
        return brim__forked();
    }
    /* a holder that gives memory of one kind may give some of another with it */
    const uint64_t before = charged(runtime);
    for (int kind = 0; kind < BRIM_MEMORY_KINDS; kind++) {
        brim__budget_revoke(runtime->budget, (brim_memory)kind, UINT64_MAX);
    }
    const uint64_t after = charged(runtime);
    if (bytes != NULL) {
        *bytes = before > after ? before - after : 0;
    }
    return BRIM_OK;
}

/*
 * memory_watch.c: looking at the process and at runtimes.
 */
#include "support/memory_watch.h"

#include "base/platform.h"
#include "memory/budget.h"
#include "support/memory_data.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define PLENTY ((uint64_t)256 << 20)

#ifndef __has_feature
#define __has_feature(x) 0
#endif

bool is_thread_sanitized(void) {
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
    return true;
#else
    return false;
#endif
}

bool is_sanitized(void) {
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
    return true;
#else
    return is_thread_sanitized();
#endif
}

/* ----------------------------------------------------------------- process */

/* Counted page by page where the kernel does so: what it keeps as a running figure, for each CPU,
 * is off by megabytes. */
uint64_t resident_bytes(void) {
    char line[256];
    unsigned long long kib = 0;
    uint64_t now, peak;
    FILE *counted = fopen("/proc/self/smaps_rollup", "re");
    while (counted != NULL && fgets(line, sizeof line, counted) != NULL) {
        if (sscanf(line, "Rss: %llu kB", &kib) == 1) {
            break;
        }
    }
    if (counted != NULL) {
        fclose(counted);
    }
    if (kib > 0) {
        return (uint64_t)kib << 10;
    }
    brim__rss(&now, &peak);
    return now;
}

size_t descriptor_count(void) {
    DIR *entries = opendir("/proc/self/fd");
    size_t count = 0;
    assert_non_null(entries);
    for (const struct dirent *entry; (entry = readdir(entries)) != NULL;) {
        count += entry->d_name[0] != '.';
    }
    closedir(entries);
    return count - 1; /* without the one that looks */
}

size_t file_map_count(void) {
    const struct path directory = in_directory("");
    char line[512];
    size_t count = 0;
    FILE *maps = fopen("/proc/self/maps", "re");
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps) != NULL) {
        count += strstr(line, directory.text) != NULL;
    }
    fclose(maps);
    return count;
}

uint64_t used_ns(void) {
    struct timespec time;
    assert_int_equal(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time), 0);
    return (uint64_t)time.tv_sec * UINT64_C(1000000000) + (uint64_t)time.tv_nsec;
}

void sleep_ns(uint64_t ns) {
    const struct timespec time = { .tv_sec = (time_t)(ns / 1000000000),
                                   .tv_nsec = (long)(ns % 1000000000) };
    nanosleep(&time, NULL);
}

/* ---------------------------------------------------------------- runtimes */

static void assert_ok(brim_status status, const char *what) {
    if (status != BRIM_OK) {
        fail_msg("%s: %s: %s", what, brim_status_name(status), brim_detail());
    }
}

brim_runtime *make_runtime(int32_t threads, uint64_t bytes) {
    brim_runtime_options options = BRIM_RUNTIME_OPTIONS_INIT;
    brim_runtime *runtime = NULL;
    options.threads = threads;
    options.host_bytes = bytes == 0 ? PLENTY : bytes;
    assert_ok(brim_runtime_new(&options, &runtime), "a runtime");
    return runtime;
}

brim_usage usage_of(brim_runtime *runtime) {
    brim_usage usage = BRIM_USAGE_INIT;
    assert_ok(brim_runtime_read_usage(runtime, &usage), "usage");
    return usage;
}

uint64_t empty_runtime_bytes(void) {
    brim_runtime *runtime = make_runtime(0, 0);
    const uint64_t charged = usage_of(runtime).charged;
    brim_runtime_free(runtime);
    return charged;
}

brim_pipeline *parse(const char *text) {
    brim_pipeline *pipeline = NULL;
    assert_ok(brim_pipeline_parse(text, &pipeline), text);
    return pipeline;
}

brim_open_options open_options(const char *label) {
    brim_open_options options = BRIM_OPEN_OPTIONS_INIT;
    options.label = label;
    options.bindings = memory_bindings;
    options.binding_count = memory_binding_count;
    return options;
}

brim_plan_info plan_in(brim_runtime *runtime, const char *text, const brim_open_options *options) {
    brim_pipeline *pipeline = parse(text);
    brim_plan *plan = NULL;
    assert_ok(brim_plan_new(runtime, pipeline, options, &plan), text);
    brim_plan_info info = *brim_plan_get(plan);
    info.reason = info.limit_origin = NULL;
    brim_plan_free(plan);
    brim_pipeline_free(pipeline);
    return info;
}

brim_plan_info plan_alone(int32_t threads, const char *text, const brim_open_options *options) {
    brim_runtime *runtime = make_runtime(threads, 0);
    const brim_plan_info info = plan_in(runtime, text, options);
    brim_runtime_free(runtime);
    return info;
}

/* ----------------------------------------------------------------- loaders */

brim_status try_open(brim_runtime *runtime, const char *text, const brim_open_options *options,
                     brim_loader **loader) {
    brim_pipeline *pipeline = parse(text);
    const brim_status status = brim_loader_open(runtime, pipeline, options, loader);
    brim_pipeline_free(pipeline);
    return status;
}

struct session open_on(brim_runtime *runtime, const char *text, const brim_open_options *options) {
    struct session session = { .runtime = runtime, .hold = options->hold ? options->hold : 1 };
    assert_ok(try_open(runtime, text, options, &session.loader), text);
    return session;
}

bool take_more(brim_loader *loader, uint64_t batches, struct digest *digest) {
    for (uint64_t taken = 0; taken < batches;) {
        brim_batch *batch;
        const brim_status status = brim_loader_next(loader, BRIM_FOREVER, &batch);
        if (status == BRIM_OK) {
            if (digest != NULL) {
                digest_batch(digest, batch);
            }
            brim_batch_release(batch);
            taken++;
        } else if (status != BRIM_STATUS_END) {
            return false;
        }
    }
    return true;
}

struct digest first_batches(const char *text, uint64_t batches) {
    const brim_open_options options = open_options(NULL);
    brim_runtime *runtime = make_runtime(0, 0);
    const struct session session = open_on(runtime, text, &options);
    struct digest digest = { 0 };
    assert_true(take_more(session.loader, batches, &digest));
    brim_loader_close(session.loader);
    brim_runtime_free(runtime);
    return digest;
}

void assert_same(struct digest a, struct digest b) {
    assert_int_equal(a.batches, b.batches);
    assert_int_equal(a.value, b.value);
}

struct digest digest_of(const brim_batch *batch) {
    struct digest digest = { 0 };
    digest_batch(&digest, batch);
    return digest;
}

void check_budget(brim_runtime *runtime) {
    const brim_usage usage = usage_of(runtime);
    assert_true(usage.peak <= usage.limit);
    brim__budget_check(brim_runtime_budget(runtime));
}

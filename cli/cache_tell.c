/*
 * cache_tell.c: what is known of a cache file, for people and as JSON.
 */
#include "cache_tell.h"

#include "output.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TIME_TEXT 48
#define UNUSABLE  "of another format or damaged"
#define ANEW      "a pipeline that opens it resets it"

static double seconds_now(void) {
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* "5 min ago". A clock that was set back says "just now". */
static const char *age_text(int64_t time_ns, char text[TIME_TEXT]) {
    static const struct {
        double seconds;
        const char *name;
    } units[] = { { 86400, "days" }, { 3600, "h" }, { 60, "min" }, { 1, "s" } };
    const double age = seconds_now() - (double)time_ns * 1e-9;
    snprintf(text, TIME_TEXT, "just now");
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (age >= 2 * units[i].seconds) {
            snprintf(text, TIME_TEXT, "%.0f %s ago", age / units[i].seconds - 0.5, units[i].name);
            break;
        }
    }
    return text;
}

/* "2026-03-01 14:05:59, 5 min ago" */
static const char *moment_text(int64_t time_ns, char text[TIME_TEXT]) {
    const time_t seconds = (time_t)(time_ns / 1000000000);
    char age[TIME_TEXT];
    struct tm parts;
    size_t at = 0;
    if (localtime_r(&seconds, &parts) != NULL) {
        at = strftime(text, TIME_TEXT, "%Y-%m-%d %H:%M:%S, ", &parts);
    }
    snprintf(text + at, TIME_TEXT - at, "%s", age_text(time_ns, age));
    return text;
}

static double fill_of(const brim_cache_info *info) {
    return info->samples > 0 ? (double)info->filled / (double)info->samples : 0;
}

void cache_json(struct document *json, const char *path, const brim_cache_info *info) {
    put_object(json, NULL);
    put_text(json, "path", path);
    put_bool(json, "usable", info->usable != 0);
    put_bool(json, "in_use", info->in_use != 0);
    put_count(json, "bytes", info->bytes);
    if (info->usable) {
        put_text(json, "pipeline", info->pipeline);
        put_count(json, "samples", info->samples);
        put_count(json, "filled", info->filled);
        put_known(json, "limit", info->limit); /* null: none */
        put_real(json, "created", (double)info->created_ns * 1e-9);
        put_real(json, "used", (double)info->used_ns * 1e-9);
        put_text(json, "verify", info->verify);
        put_object(json, "fingerprints");
        put_hex(json, "data", info->data_fingerprint);
        put_hex(json, "sample", info->sample_fingerprint);
        end_object(json);
    }
    end_object(json);
}

void cache_print(const char *path, const brim_cache_info *info) {
    char a[NUMBER_TEXT], b[NUMBER_TEXT], time[TIME_TEXT];
    put_clean(stdout, path);
    if (!info->usable) {
        printf("\n  size         %s\n  usable       no: " UNUSABLE "; " ANEW "\n",
               bytes_text((double)info->bytes, a));
        return;
    }
    fputs("\n  pipeline     ", stdout);
    put_clean(stdout, info->pipeline);
    printf("\n  samples      %s of %s, %.1f %%\n", count_text(info->filled, a),
           count_text(info->samples, b), fill_of(info) * 100);
    printf("  size         %s", bytes_text((double)info->bytes, a));
    if (info->limit != BRIM_UNLIMITED) {
        printf(" of at most %s", bytes_text((double)info->limit, a));
    }
    printf("\n  created      %s\n", moment_text(info->created_ns, time));
    printf("  used         %s\n", moment_text(info->used_ns, time));
    printf("  verify       %s\n", info->verify);
    printf("  fingerprint  data %016" PRIx64 ", sample %016" PRIx64 "\n", info->data_fingerprint,
           info->sample_fingerprint);
    printf("  in use       %s\n", info->in_use ? "yes: a process is filling it" : "no");
    puts("  usable       yes");
}

/* What a cell has room for: the end. */
static const char *tail_text(const char *pipeline, char text[CELL_BYTES]) {
    static const char more[] = "...";
    const size_t more_bytes = sizeof more - 1, length = strlen(pipeline);
    if (length < CELL_BYTES) {
        return pipeline;
    }
    const char *rest = pipeline + length - (CELL_BYTES - 1 - more_bytes);
    while (((unsigned char)*rest & 0xc0) == 0x80) {
        rest++;
    }
    memcpy(text, more, more_bytes);
    memcpy(text + more_bytes, rest, (size_t)(pipeline + length + 1 - rest));
    return text;
}

static void list_row(struct table *table, const struct cache_file *file) {
    const brim_cache_info *info = &file->info;
    char pipeline[CELL_BYTES], bytes[NUMBER_TEXT], fill[NUMBER_TEXT] = "-", age[TIME_TEXT] = "-";
    if (info->usable) {
        /* full is only what is */
        snprintf(fill, sizeof fill, "%.0f %%",
                 info->filled < info->samples && fill_of(info) > 0.99 ? 99 : fill_of(info) * 100);
        (void)age_text(info->used_ns, age);
    }
    table_row(table,
              (const char *[]){ bytes_text((double)info->bytes, bytes), fill,
                                info->in_use ? "in use" : age, file->path,
                                info->usable ? tail_text(info->pipeline, pipeline) : UNUSABLE });
}

void cache_list_print(const struct cache_files *found) {
    struct table table = {
        .columns = 5, .right = 7u, .line = terminal_columns(STDOUT_FILENO), .tails = true
    };
    if (found->count == 0) {
        return;
    }
    table_row(&table, (const char *[]){ "size", "filled", "last used", "file", "pipeline" });
    for (size_t i = 0; i < found->count; i++) {
        list_row(&table, &found->files[i]);
    }
    table_print(&table, stdout);
}

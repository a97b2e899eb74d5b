/*
 * holders.c: the tree of budgets as the user sees it.
 *
 * The runtime's own budget is the root and counts all below it; it is shown under the name
 * of the kind of memory. A walk holds the tree's lock, so that the rows are only collected
 * in it: a row of a table and one of a document both take memory.
 */
#include "holders.h"

#include "output.h"

#include <inttypes.h>

#define MOST_ROWS 64 /* of a kind; the command line's own tree has a handful */
#define INDENT    2

struct rows {
    brim_budget_info row[MOST_ROWS];
    size_t count;
};

static int collect(void *user, const brim_budget_info *info) {
    struct rows *rows = user;
    if (info->peak > 0) {
        rows->row[rows->count++] = *info;
    }
    return rows->count == MOST_ROWS ? BRIM_ANSWER_STOP : BRIM_ANSWER_DONE;
}

/* "host", "page-locked", "opencl:0" */
static const char *kind_text(int kind, char text[DEVICE_TEXT]) {
    static const brim_device kinds[] = { BRIM_DEVICE_CUDA, BRIM_DEVICE_OPENCL };
    snprintf(text, DEVICE_TEXT, "%s", kind == BRIM_MEMORY_HOST ? "host" : "page-locked");
    for (uint32_t i = 0; i < 2 * BRIM_MAX_DEVICES; i++) {
        const brim_device device = kinds[i / BRIM_MAX_DEVICES];
        const uint32_t index = i % BRIM_MAX_DEVICES;
        if ((int)brim_device_memory(device, index) == kind) {
            return device_text(device, index, text);
        }
    }
    return text;
}

/* What was used of a kind of memory; false: nothing. */
static bool find(brim_runtime *runtime, int kind, struct rows *rows) {
    rows->count = 0;
    return brim_budget_walk(brim_runtime_budget(runtime), (brim_memory)kind, collect, rows) ==
               BRIM_OK &&
           rows->count > 0;
}

void holders_print(brim_runtime *runtime) {
    struct table table = { .columns = 5, .right = 1u << 1 | 1u << 2 | 1u << 3 | 1u << 4 };
    static struct rows rows;
    table_row(&table, (const char *[]){ "memory", "now", "peak", "gives way", "limit" });
    for (int kind = 0; kind < BRIM_MEMORY_KINDS; kind++) {
        char name[DEVICE_TEXT];
        for (size_t i = 0; i < (find(runtime, kind, &rows) ? rows.count : 0); i++) {
            const brim_budget_info *row = &rows.row[i];
            char label[CELL_BYTES], now[NUMBER_TEXT], peak[NUMBER_TEXT], elastic[NUMBER_TEXT];
            char limit[NUMBER_TEXT];
            snprintf(label, sizeof label, "%*s%s", (int)row->depth * INDENT, "",
                     row->depth == 0 ? kind_text(kind, name) : row->label);
            table_row(
                &table,
                (const char *[]){
                    label, bytes_text((double)(row->charged + row->reserved), now),
                    bytes_text((double)row->peak, peak), bytes_text((double)row->elastic, elastic),
                    row->limit == BRIM_UNLIMITED ? "-" : bytes_text((double)row->limit, limit) });
        }
    }
    table_print(&table, stdout);
}

void holders_json(struct document *json, brim_runtime *runtime) {
    static struct rows rows;
    put_array(json, "usage");
    for (int kind = 0; kind < BRIM_MEMORY_KINDS; kind++) {
        char name[DEVICE_TEXT];
        if (!find(runtime, kind, &rows)) {
            continue;
        }
        put_object(json, NULL);
        put_text(json, "memory", kind_text(kind, name));
        put_array(json, "budgets");
        for (size_t i = 0; i < rows.count; i++) {
            const brim_budget_info *row = &rows.row[i];
            put_object(json, NULL);
            put_text(json, "label", row->label);
            put_count(json, "depth", row->depth);
            put_count(json, "charged_bytes", row->charged + row->reserved);
            put_count(json, "peak_bytes", row->peak);
            put_count(json, "elastic_bytes", row->elastic);
            put_count(json, "minimum_bytes", row->minimum);
            put_known(json, "limit_bytes", row->limit); /* none: null */
            end_object(json);
        }
        end_array(json);
        end_object(json);
    }
    end_array(json);
}

void shared_print(const brim_usage *usage, int width) {
    char used[NUMBER_TEXT], limit[NUMBER_TEXT];
    if (usage->processes > 0) {
        printf("%-*s%s of %s, by %" PRIu32 " process%s\n", width, "shared",
               bytes_text((double)usage->shared_used, used),
               bytes_text((double)usage->shared_limit, limit), usage->processes,
               usage->processes == 1 ? "" : "es");
    }
}

void shared_json(struct document *json, const brim_usage *usage) {
    if (usage->processes > 0) {
        put_object(json, "shared");
        put_count(json, "used_bytes", usage->shared_used);
        put_count(json, "limit_bytes", usage->shared_limit);
        put_count(json, "processes", usage->processes);
        end_object(json);
    }
}

void put_device(struct document *json, const struct options *options) {
    char device[DEVICE_TEXT];
    put_text(json, "device", device_text(options->device, options->device_index, device));
}

void copies_json(struct document *json, const struct options *options, const brim_stats *stats) {
    put_device(json, options);
    put_count(json, "device_slots", stats->device_slots);
    put_count(json, "copied_bytes", stats->copied_bytes);
}

void copies_print(const struct options *options, const brim_stats *stats, int width) {
    char device[DEVICE_TEXT], copied[NUMBER_TEXT];
    if (options->device != BRIM_DEVICE_HOST) {
        printf("%-*s%s: %" PRIu32 " slots, %s copied\n", width, "device",
               device_text(options->device, options->device_index, device), stats->device_slots,
               bytes_text((double)stats->copied_bytes, copied));
    }
}

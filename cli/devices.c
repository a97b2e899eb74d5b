/*
 * devices.c: `brim devices`: the devices of all kinds that batches can be delivered to.
 *
 * A kind without a driver or a device, and a device that cannot be read, are listed with the
 * reason: that is a result, not a failure.
 */
#include "cli.h"
#include "output.h"
#include "session.h"

#include <string.h>

#define KINDS 3u

struct missing {
    char device[DEVICE_TEXT]; /* "cuda", "cuda:1" */
    struct failure failure;
};

struct found {
    brim_device_info devices[KINDS * BRIM_MAX_DEVICES];
    size_t device_count;
    struct missing missing[KINDS * BRIM_MAX_DEVICES];
    size_t missing_count;
};

static void add_missing(struct found *found, brim_status status, const char *device,
                        const char *why) {
    struct missing *missing = &found->missing[found->missing_count++];
    missing->failure.status = status;
    snprintf(missing->device, sizeof missing->device, "%s", device);
    snprintf(missing->failure.text, sizeof missing->failure.text, "%s", why);
}

static void find_kind(struct found *found, brim_device kind) {
    uint32_t count = 0;
    const brim_status status = brim_device_count(kind, &count);
    if (status != BRIM_OK) {
        add_missing(found, status, brim_device_name(kind), brim_detail());
    } else if (count == 0) {
        add_missing(found, BRIM_STATUS_UNSUPPORTED, brim_device_name(kind),
                    "there is a driver, but no device");
    }
    for (uint32_t index = 0; index < count && index < BRIM_MAX_DEVICES; index++) {
        brim_device_info *info = &found->devices[found->device_count];
        *info = (brim_device_info)BRIM_DEVICE_INFO_INIT;
        const brim_status read = brim_device_read(kind, index, info);
        if (read == BRIM_OK) {
            found->device_count++;
        } else {
            char name[DEVICE_TEXT];
            add_missing(found, read, device_text(kind, index, name), brim_detail());
        }
    }
}

/* ------------------------------------------------------------------- people */

static const char *memory_text(uint64_t bytes, char text[NUMBER_TEXT]) {
    return bytes == BRIM_UNKNOWN ? "unknown" : bytes_text((double)bytes, text);
}

static void print_devices(const struct found *found) {
    struct table table = { .columns = 6, .right = 1u << 1 | 1u << 2 };
    table_row(&table,
              (const char *[]){ "device", "memory", "free", "normalises", "name", "driver" });
    for (size_t i = 0; i < found->device_count; i++) {
        const brim_device_info *info = &found->devices[i];
        char device[DEVICE_TEXT], total[NUMBER_TEXT], left[NUMBER_TEXT];
        table_row(&table,
                  (const char *[]){ device_text(info->kind, info->index, device),
                                    memory_text(info->total_bytes, total),
                                    memory_text(info->free_bytes, left),
                                    info->converts ? "yes" : "no", info->name, info->driver });
    }
    table_print(&table, stdout);
    for (size_t i = 0; i < found->missing_count; i++) {
        printf("%s%s: ", i == 0 ? "\n" : "", found->missing[i].device);
        put_clean(stdout, found->missing[i].failure.text);
        putchar('\n');
    }
}

/* --------------------------------------------------------------------- JSON */

static void print_json(const struct found *found) {
    struct document json = { .file = stdout };
    put_object(&json, NULL);
    put_array(&json, "devices");
    for (size_t i = 0; i < found->device_count; i++) {
        const brim_device_info *info = &found->devices[i];
        char device[DEVICE_TEXT];
        put_object(&json, NULL);
        put_text(&json, "device", device_text(info->kind, info->index, device));
        put_text(&json, "kind", brim_device_name(info->kind));
        put_count(&json, "index", info->index);
        put_text(&json, "name", info->name);
        put_text(&json, "driver", info->driver);
        put_known(&json, "total_bytes", info->total_bytes);
        put_known(&json, "free_bytes", info->free_bytes);
        put_known(&json, "largest_bytes", info->largest_bytes);
        put_bool(&json, "unified", info->unified != 0);
        put_bool(&json, "converts", info->converts != 0);
        end_object(&json);
    }
    end_array(&json);
    put_array(&json, "missing");
    for (size_t i = 0; i < found->missing_count; i++) {
        put_object(&json, NULL);
        put_text(&json, "device", found->missing[i].device);
        failure_json(&json, &found->missing[i].failure);
        end_object(&json);
    }
    end_array(&json);
    end_object(&json);
}

int command_devices(const struct options *options) {
    static const brim_device kinds[KINDS] = { BRIM_DEVICE_HOST, BRIM_DEVICE_CUDA,
                                              BRIM_DEVICE_OPENCL };
    static struct found found; /* too large for a stack */
    for (size_t i = 0; i < KINDS; i++) {
        find_kind(&found, kinds[i]);
    }
    if (options->json) {
        print_json(&found);
    } else {
        print_devices(&found);
    }
    return EXIT_GOOD;
}

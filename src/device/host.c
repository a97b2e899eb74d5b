/*
 * host.c: the host as a device. Each call does its copy or kernel before it returns, so every event
 * is done and no event object exists. Tests compare the results of the other kinds with the host's.
 *
 * Memory is separate pages, after one page that describes them:
 *
 *     | struct brim__pages ... | memory of the caller ... |
 *       ^ a page                 ^ the handle
 */
#include "base/machine.h"
#include "base/platform.h"
#include "device/device.h"

#include <unistd.h>

static brim_status count_devices(uint32_t *count) {
    *count = 1;
    return BRIM_OK;
}

static brim_status read_device(uint32_t index, brim_device_info *info) {
    (void)index;
    struct brim__machine machine;
    brim__machine_read("", &machine);
    const long pages = sysconf(_SC_PHYS_PAGES);
    brim__copy_text(info->name, sizeof info->name, "host");
    brim__copy_text(info->driver, sizeof info->driver, "none");
    info->total_bytes = pages > 0 ? (uint64_t)pages * brim__page_bytes() : BRIM_UNKNOWN;
    info->free_bytes = machine.free_bytes;
    info->largest_bytes = BRIM_UNLIMITED;
    info->unified = 1;
    return BRIM_OK;
}

static brim_status check_queue(struct brim__device *device, void *handle) {
    (void)device;
    (void)handle;
    return brim__fail(BRIM_STATUS_INVALID,
                      "the host has no queues; queues are of cuda and opencl devices");
}

static brim_status open_device(struct brim__device *device, void *queue, brim_budget *budget) {
    (void)budget;
    device->largest = BRIM_UNLIMITED;
    return queue != NULL ? check_queue(device, queue) : BRIM_OK;
}

static void close_device(struct brim__device *device) {
    (void)device;
}

static brim_status take(struct brim__device *device, uint64_t bytes, void **handle) {
    (void)device;
    const uint64_t page = brim__page_bytes();
    uint64_t whole;
    if (brim__add_overflows(bytes, page, &whole)) {
        whole = UINT64_MAX;
    }
    struct brim__pages pages;
    const brim_status status = brim__pages_new(&pages, NULL, whole, false, false);
    if (status == BRIM_OK) {
        memcpy(pages.memory, &pages, sizeof pages);
        *handle = pages.memory + page;
    }
    return status;
}

static void give(struct brim__device *device, void *handle) {
    (void)device;
    struct brim__pages pages; /* a copy, because the original is in these pages */
    memcpy(&pages, (uint8_t *)handle - brim__page_bytes(), sizeof pages);
    brim__pages_free(&pages);
}

static brim_status pin(struct brim__device *device, void *memory, uint64_t bytes, void **handle) {
    (void)device;
    (void)memory;
    (void)bytes;
    (void)handle;
    return BRIM_OK;
}

static void unpin(struct brim__device *device, void *memory, void *handle) {
    (void)device;
    (void)memory;
    (void)handle;
}

static brim_status queue_new(struct brim__device *device, void **handle) {
    *handle = device; /* anything but NULL */
    return BRIM_OK;
}

static void queue_free(struct brim__device *device, void *handle) {
    (void)device;
    (void)handle;
}

/* ---------------------------------------------------------------- the work */

static uint8_t *at(const struct brim__device_memory *memory, uint64_t offset) {
    return (uint8_t *)memory->handle + offset;
}

static brim_status write_to(struct brim__queue *queue, const struct brim__device_memory *to,
                            uint64_t offset, const void *from, uint64_t bytes) {
    (void)queue;
    memcpy(at(to, offset), from, bytes);
    return BRIM_OK;
}

static brim_status read_back(struct brim__queue *queue, void *to,
                             const struct brim__device_memory *from, uint64_t offset,
                             uint64_t bytes) {
    (void)queue;
    memcpy(to, at(from, offset), bytes);
    return BRIM_OK;
}

static brim_status copy(struct brim__queue *queue, const struct brim__device_memory *to,
                        uint64_t to_offset, const struct brim__device_memory *from,
                        uint64_t from_offset, uint64_t bytes) {
    (void)queue;
    memcpy(at(to, to_offset), at(from, from_offset), bytes);
    return BRIM_OK;
}

static void lookup_row(const struct brim__lookup *lookup, const uint8_t *source,
                       const uint8_t *table, uint8_t *destination) {
    const uint64_t element = lookup->element;
    uint32_t index[3];
    for (index[0] = 0; index[0] < lookup->dim[0]; index[0]++) {
        for (index[1] = 0; index[1] < lookup->dim[1]; index[1]++) {
            for (index[2] = 0; index[2] < lookup->dim[2]; index[2]++) {
                uint64_t place = 0;
                for (int i = 0; i < 3; i++) {
                    place += (uint64_t)index[i] * lookup->stride[i];
                }
                const uint64_t channel = lookup->axis < 3 ? index[lookup->axis] : 0;
                memcpy(destination, table + (channel * 256 + source[place]) * element, element);
                destination += element;
            }
        }
    }
}

static brim_status look_up(struct brim__queue *queue, const struct brim__lookup *lookup) {
    (void)queue;
    for (uint64_t row = 0; row < lookup->rows; row++) {
        lookup_row(
            lookup, at(lookup->source, lookup->source_offset + row * lookup->source_row),
            at(lookup->table, lookup->table_offset),
            at(lookup->destination, lookup->destination_offset + row * lookup->destination_row));
    }
    return BRIM_OK;
}

static brim_status gather_rows(struct brim__queue *queue, const struct brim__gather *gather) {
    (void)queue;
    for (uint64_t row = 0; row < gather->rows; row++) {
        const uint32_t number = gather->number[row];
        if (number != UINT32_MAX) {
            memcpy(
                at(gather->destination, gather->destination_offset + row * gather->destination_row),
                at(gather->part[number / gather->part_rows],
                   gather->source_offset + number % gather->part_rows * gather->source_row),
                gather->row_bytes);
        }
    }
    return BRIM_OK;
}

/* ------------------------------------------------------------------- events */

static brim_status flush(struct brim__queue *queue) {
    (void)queue;
    return BRIM_OK;
}

static brim_status record(struct brim__queue *queue, void **event) {
    (void)queue;
    *event = NULL;
    return BRIM_OK;
}

static brim_status queue_wait(struct brim__queue *queue, void *event) {
    (void)queue;
    (void)event;
    return BRIM_OK;
}

static brim_status event_done(struct brim__device *device, void *event) {
    (void)device;
    (void)event;
    return BRIM_OK;
}

static void event_free(struct brim__device *device, void *event) {
    (void)device;
    (void)event;
}

const struct brim__device_ops brim__device_host = {
    .name = "host",
    .count = count_devices,
    .read = read_device,
    .open = open_device,
    .close = close_device,
    .take = take,
    .give = give,
    .pin = pin,
    .unpin = unpin,
    .queue_new = queue_new,
    .queue_free = queue_free,
    .queue_check = check_queue,
    .write = write_to,
    .read_back = read_back,
    .copy = copy,
    .lookup = look_up,
    .gather = gather_rows,
    .flush = flush,
    .record = record,
    .queue_wait = queue_wait,
    .event_poll = event_done,
    .event_wait = event_done,
    .event_free = event_free,
};

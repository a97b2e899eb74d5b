/*
 * device.c: the calls of device.h that all kinds of devices have in common, and the public
 * functions that describe devices.
 *
 * A call here checks its arguments (by assertion: they come from the engine), is a fault point, and
 * calls the driver's function. Cases that need no driver are handled here: nothing to copy, no
 * event to wait for, more memory than a device allocates at once, and gathering rows if a driver
 * has no kernel for it.
 */
#include "device/device.h"
#include "base/fault.h"
#include "base/number.h"
#include "base/struct.h"

static const struct {
    const char *name;
    const struct brim__device_ops *ops;
} kinds[] = {
    [BRIM_DEVICE_HOST] = { "host", &brim__device_host },
    [BRIM_DEVICE_CUDA] = { "cuda", &brim__device_cuda },
    [BRIM_DEVICE_OPENCL] = { "opencl", &brim__device_opencl },
};

/* The value may come from any caller, and the compiler chooses the enum's type. */
static bool is_kind(brim_device kind) {
    return (uint64_t)kind < BRIM__COUNT(kinds);
}

/* ------------------------------------------------------------ public calls */

static brim_status check_kind(brim_device kind) {
    return is_kind(kind) ? BRIM_OK
                         : brim__fail(BRIM_STATUS_INVALID,
                                      "%lld is not a kind of device; the kinds are "
                                      "BRIM_DEVICE_HOST, BRIM_DEVICE_CUDA and BRIM_DEVICE_OPENCL",
                                      (long long)kind);
}

/* kind is one. */
static brim_status check_index(brim_device kind, uint32_t index) {
    uint32_t count;
    const brim_status status = kinds[kind].ops->count(&count);
    if (status != BRIM_OK) {
        return status;
    }
    if (index < count) {
        return BRIM_OK;
    }
    const char *const name = kinds[kind].name;
    if (count == 0) {
        return brim__fail(BRIM_STATUS_INVALID, "there is no %s:%u: the driver has found no device",
                          name, index);
    }
    return brim__fail(BRIM_STATUS_INVALID,
                      "there is no %s:%u: the last device of this kind is %s:%u", name, index, name,
                      count - 1);
}

brim_status brim_device_count(brim_device kind, uint32_t *count) {
    brim_status status = check_kind(kind);
    if (status != BRIM_OK) {
        return status;
    }
    if (count == NULL) {
        return brim__fail_null("count");
    }
    uint32_t found;
    status = kinds[kind].ops->count(&found);
    if (status == BRIM_OK) {
        *count = found;
    }
    return status;
}

brim_status brim_device_read(brim_device kind, uint32_t index, brim_device_info *info) {
    brim_status status = brim__struct_check("device info", "BRIM_DEVICE_INFO_INIT", info);
    if (status == BRIM_OK) {
        status = check_kind(kind);
    }
    if (status == BRIM_OK) {
        status = check_index(kind, index);
    }
    if (status != BRIM_OK) {
        return status;
    }
    brim_device_info whole = { .size = sizeof whole, .kind = kind, .index = index };
    status = kinds[kind].ops->read(index, &whole);
    if (status != BRIM_OK) {
        return status;
    }
    whole.converts = kinds[kind].ops->lookup != NULL;
    brim__struct_give(info, &whole, sizeof whole);
    return BRIM_OK;
}

brim_status brim_device_parse(const char *text, brim_device *kind, uint32_t *index) {
    if (text == NULL || kind == NULL || index == NULL) {
        return brim__fail_null("text, kind and index");
    }
    const size_t length = strlen(text);
    const char *const colon = strchr(text, ':');
    const size_t name_length = colon != NULL ? (size_t)(colon - text) : length;
    const bool is_cpu = name_length == 3 && memcmp(text, "cpu", 3) == 0;
    for (size_t i = 0; i < BRIM__COUNT(kinds); i++) {
        const char *const name = is_cpu ? "cpu" : kinds[i].name;
        if (strlen(name) != name_length || memcmp(text, name, name_length) != 0) {
            continue;
        }
        const uint64_t most = i == BRIM_DEVICE_HOST ? 0 : BRIM_MAX_DEVICES - 1;
        uint64_t number = 0;
        if (colon != NULL && (!brim__parse_unsigned(colon + 1, length - name_length - 1, &number) ||
                              number > most)) {
            return brim__fail(
                BRIM_STATUS_INVALID,
                "\"%.60s\": after the colon comes the number of a device, from 0 to %llu", text,
                (unsigned long long)most);
        }
        *kind = (brim_device)i;
        *index = (uint32_t)number;
        return BRIM_OK;
    }
    return brim__fail(BRIM_STATUS_INVALID,
                      "\"%.60s\" is not a device; write host (or cpu), cuda, opencl, or with a "
                      "number as in cuda:1",
                      text);
}

const char *brim_device_name(brim_device kind) {
    return is_kind(kind) ? kinds[kind].name : NULL;
}

brim_memory brim_device_memory(brim_device kind, uint32_t index) {
    if (kind == BRIM_DEVICE_HOST) {
        return BRIM_MEMORY_HOST;
    }
    if (!is_kind(kind) || index >= BRIM_MAX_DEVICES) {
        return BRIM_MEMORY_NONE; /* refused by every call that charges memory */
    }
    const uint32_t first = kind == BRIM_DEVICE_CUDA ? 0 : BRIM_MAX_DEVICES;
    return (brim_memory)((uint32_t)BRIM_MEMORY_DEVICE + first + index);
}
static_assert(BRIM_MEMORY_DEVICE + 2 * BRIM_MAX_DEVICES == BRIM_MEMORY_KINDS,
              "every device has a kind of memory");

/* ------------------------------------------------------- devices and memory */

/* A point at which tests let a driver fail. */
static bool fails(void) {
    return brim__fault(BRIM__FAULT_DEVICE);
}

static brim_status failed(const struct brim__device *device, const char *what) {
    return brim__fail(BRIM_STATUS_DRIVER, "%s:%u: %s failed: refused by a test", device->ops->name,
                      device->index, what);
}

brim_status brim__device_open(struct brim__device *device, brim_device kind, uint32_t index,
                              void *queue, brim_budget *budget) {
    *device = (struct brim__device){ 0 };
    brim_status status = check_kind(kind);
    if (status == BRIM_OK) {
        status = check_index(kind, index);
    }
    if (status != BRIM_OK) {
        return status;
    }
    struct brim__device opened = { .ops = kinds[kind].ops, .kind = kind, .index = index };
    status = fails() ? failed(&opened, "opening") : opened.ops->open(&opened, queue, budget);
    if (status == BRIM_OK) {
        *device = opened;
    }
    return status;
}

void brim__device_close(struct brim__device *device) {
    if (device->ops != NULL) {
        device->ops->close(device);
        *device = (struct brim__device){ 0 };
    }
}

brim_status brim__device_take(struct brim__device *device, uint64_t bytes,
                              struct brim__device_memory *memory) {
    assert(bytes > 0);
    *memory = (struct brim__device_memory){ 0 };
    char size[BRIM__SIZE_TEXT];
    if (bytes > device->largest) {
        char largest[BRIM__SIZE_TEXT];
        return brim__fail(BRIM_STATUS_MEMORY,
                          "%s:%u allocates at most %s (%llu bytes) at once, but %s (%llu bytes) "
                          "are needed; use smaller batches",
                          device->ops->name, device->index,
                          brim__size_text(device->largest, largest),
                          (unsigned long long)device->largest, brim__size_text(bytes, size),
                          (unsigned long long)bytes);
    }
    if (fails()) {
        return brim__fail(BRIM_STATUS_MEMORY, "%s:%u: %s were refused by a test", device->ops->name,
                          device->index, brim__size_text(bytes, size));
    }
    void *handle;
    const brim_status status = device->ops->take(device, bytes, &handle);
    if (status == BRIM_OK) {
        *memory = (struct brim__device_memory){ .handle = handle, .bytes = bytes };
    }
    return status;
}

void brim__device_give(struct brim__device *device, struct brim__device_memory *memory) {
    if (memory->handle != NULL) {
        device->ops->give(device, memory->handle);
        *memory = (struct brim__device_memory){ 0 };
    }
}

brim_status brim__device_pin(struct brim__device *device, void *memory, uint64_t bytes,
                             void **pin) {
    assert(memory != NULL && bytes > 0);
    *pin = NULL;
    return fails() ? failed(device, "page-locking memory")
                   : device->ops->pin(device, memory, bytes, pin);
}

void brim__device_unpin(struct brim__device *device, void *memory, void *pin) {
    device->ops->unpin(device, memory, pin);
}

/* ------------------------------------------------------------------- queues */

brim_status brim__queue_new(struct brim__device *device, struct brim__queue *queue) {
    *queue = (struct brim__queue){ 0 };
    void *handle;
    const brim_status status =
        fails() ? failed(device, "making a queue") : device->ops->queue_new(device, &handle);
    if (status == BRIM_OK) {
        *queue = (struct brim__queue){ .device = device, .handle = handle, .own = true };
    }
    return status;
}

brim_status brim__queue_of(struct brim__device *device, void *handle, struct brim__queue *queue) {
    assert(handle != NULL);
    *queue = (struct brim__queue){ 0 };
    const brim_status status =
        fails() ? failed(device, "looking at a queue") : device->ops->queue_check(device, handle);
    if (status == BRIM_OK) {
        *queue = (struct brim__queue){ .device = device, .handle = handle };
    }
    return status;
}

void brim__queue_free(struct brim__queue *queue) {
    if (queue->handle != NULL && queue->own) {
        queue->device->ops->queue_free(queue->device, queue->handle);
    }
    *queue = (struct brim__queue){ 0 };
}

/* [offset, offset + bytes) lies in the memory. */
static bool inside(const struct brim__device_memory *memory, uint64_t offset, uint64_t bytes) {
    return memory->handle != NULL && offset <= memory->bytes && bytes <= memory->bytes - offset;
}

/* `rows` pieces of `bytes`, each `step` after the one before it. */
static bool rows_inside(const struct brim__device_memory *memory, uint64_t offset, uint64_t step,
                        uint64_t bytes, uint64_t rows) {
    uint64_t last;
    return rows == 0 || (!brim__mul_overflows(rows - 1, step, &last) &&
                         !brim__add_overflows(last, offset, &last) && inside(memory, last, bytes));
}

brim_status brim__queue_write(struct brim__queue *queue, const struct brim__device_memory *to,
                              uint64_t offset, const void *from, uint64_t bytes) {
    assert(inside(to, offset, bytes));
    if (bytes == 0) {
        return BRIM_OK;
    }
    return fails() ? failed(queue->device, "copying to the device")
                   : queue->device->ops->write(queue, to, offset, from, bytes);
}

brim_status brim__queue_read(struct brim__queue *queue, void *to,
                             const struct brim__device_memory *from, uint64_t offset,
                             uint64_t bytes) {
    assert(inside(from, offset, bytes));
    if (bytes == 0) {
        return BRIM_OK;
    }
    return fails() ? failed(queue->device, "copying from the device")
                   : queue->device->ops->read_back(queue, to, from, offset, bytes);
}

brim_status brim__queue_copy(struct brim__queue *queue, const struct brim__device_memory *to,
                             uint64_t to_offset, const struct brim__device_memory *from,
                             uint64_t from_offset, uint64_t bytes) {
    assert(inside(to, to_offset, bytes) && inside(from, from_offset, bytes));
    assert(to->handle != from->handle || to_offset + bytes <= from_offset ||
           from_offset + bytes <= to_offset);
    if (bytes == 0) {
        return BRIM_OK;
    }
    return fails() ? failed(queue->device, "copying on the device")
                   : queue->device->ops->copy(queue, to, to_offset, from, from_offset, bytes);
}

/* Whether all that a lookup reads and writes is inside its memory, and elements are aligned. */
static bool lookup_fits(const struct brim__lookup *lookup) {
    const uint32_t *const dim = lookup->dim;
    const uint32_t *const stride = lookup->stride;
    const uint64_t element = lookup->element;
    const uint64_t tables = lookup->axis < 3 ? dim[lookup->axis] : 1;
    uint64_t elements;
    uint64_t reach = 1; /* bytes of a source row from its first to its last */
    if (brim__mul_overflows((uint64_t)dim[0] * dim[1], dim[2], &elements) ||
        elements > UINT64_MAX / 4 || tables == 0) {
        return false;
    }
    for (int i = 0; i < 3; i++) {
        if (brim__add_overflows(reach, (uint64_t)(dim[i] - 1) * stride[i], &reach)) {
            return false;
        }
    }
    return (element == 1 || element == 2 || element == 4) && lookup->axis <= 3 &&
           lookup->table_offset % element == 0 && lookup->destination_offset % element == 0 &&
           lookup->destination_row % element == 0 &&
           inside(lookup->table, lookup->table_offset, tables * 256 * element) &&
           rows_inside(lookup->source, lookup->source_offset, lookup->source_row, reach,
                       lookup->rows) &&
           rows_inside(lookup->destination, lookup->destination_offset, lookup->destination_row,
                       elements * element, lookup->rows);
}

brim_status brim__device_prepare(struct brim__device *device) {
    if (device->ops->prepare == NULL) {
        return BRIM_OK;
    }
    return fails() ? failed(device, "preparing the device") : device->ops->prepare(device);
}

brim_status brim__queue_lookup(struct brim__queue *queue, const struct brim__lookup *lookup) {
    assert(brim__device_converts(queue->device));
    if (lookup->rows == 0 || lookup->dim[0] == 0 || lookup->dim[1] == 0 || lookup->dim[2] == 0) {
        return BRIM_OK;
    }
    assert(lookup_fits(lookup));
    (void)lookup_fits;
    return fails() ? failed(queue->device, "converting on the device")
                   : queue->device->ops->lookup(queue, lookup);
}

static bool gather_fits(const struct brim__gather *gather) {
    for (uint64_t row = 0; row < gather->rows; row++) {
        const uint32_t number = gather->number[row];
        if (number == UINT32_MAX) {
            continue;
        }
        const uint64_t part = number / gather->part_rows;
        if (part >= BRIM__GATHER_PARTS || gather->part[part] == NULL ||
            !rows_inside(gather->part[part], gather->source_offset, gather->source_row,
                         gather->row_bytes, number % gather->part_rows + 1)) {
            return false;
        }
    }
    return gather->numbers_offset % sizeof(uint32_t) == 0 &&
           rows_inside(gather->destination, gather->destination_offset, gather->destination_row,
                       gather->row_bytes, gather->rows);
}

/* For drivers without a kernel: makes one copy for each row. */
static brim_status gather_by_copies(struct brim__queue *queue, const struct brim__gather *gather) {
    for (uint64_t row = 0; row < gather->rows; row++) {
        const uint32_t number = gather->number[row];
        if (number == UINT32_MAX) {
            continue;
        }
        const brim_status status = queue->device->ops->copy(
            queue, gather->destination, gather->destination_offset + row * gather->destination_row,
            gather->part[number / gather->part_rows],
            gather->source_offset + number % gather->part_rows * gather->source_row,
            gather->row_bytes);
        if (status != BRIM_OK) {
            return status;
        }
    }
    return BRIM_OK;
}

brim_status brim__queue_gather(struct brim__queue *queue, const struct brim__gather *gather) {
    if (gather->rows == 0 || gather->row_bytes == 0) {
        return BRIM_OK;
    }
    assert(gather->part_rows > 0 && gather_fits(gather));
    (void)gather_fits;
    if (fails()) {
        return failed(queue->device, "gathering rows on the device");
    }
    return queue->device->ops->gather != NULL ? queue->device->ops->gather(queue, gather)
                                              : gather_by_copies(queue, gather);
}

brim_status brim__queue_flush(struct brim__queue *queue) {
    return fails() ? failed(queue->device, "flushing a queue") : queue->device->ops->flush(queue);
}

/* ------------------------------------------------------------------- events */

brim_status brim__queue_record(struct brim__queue *queue, struct brim__event *event) {
    *event = (struct brim__event){ 0 };
    return fails() ? failed(queue->device, "putting an event into a queue")
                   : queue->device->ops->record(queue, &event->handle);
}

brim_status brim__queue_wait(struct brim__queue *queue, const struct brim__event *event) {
    if (event->handle == NULL) {
        return BRIM_OK;
    }
    return fails() ? failed(queue->device, "having a queue wait")
                   : queue->device->ops->queue_wait(queue, event->handle);
}

brim_status brim__event_poll(struct brim__device *device, const struct brim__event *event) {
    if (event->handle == NULL) {
        return BRIM_OK;
    }
    const brim_status status = device->ops->event_poll(device, event->handle);
    /* A fault point only if the event is done: the number of earlier polls depends on timing. */
    return status == BRIM_OK && fails() ? failed(device, "work on the device") : status;
}

brim_status brim__event_wait(struct brim__device *device, const struct brim__event *event) {
    if (event->handle == NULL) {
        return BRIM_OK;
    }
    const brim_status status = device->ops->event_wait(device, event->handle);
    /* The fault point comes after the wait, so that memory that the work uses can be freed. */
    return status == BRIM_OK && fails() ? failed(device, "work on the device") : status;
}

void brim__event_free(struct brim__device *device, struct brim__event *event) {
    if (event->handle != NULL) {
        device->ops->event_free(device, event->handle);
        *event = (struct brim__event){ 0 };
    }
}

/*
 * device.h: memory of devices, and copying to it: one table of functions, implemented for the host
 * (host.c), OpenCL (opencl.c) and CUDA (cuda.c).
 *
 * A driver is a library that is loaded at the first use of a device of its kind; there is no
 * build-time dependency. An opened device has a context of the driver: that of the consumer's
 * queue, if one is given (OpenCL buffers are usable only in the context that they were made in),
 * else one that is common to all openers of the device in this process.
 *
 * The calls put all copies and kernels into a queue, which runs them in order. An event in a queue
 * is done when all work before it is done. The queues of consumers are used unchanged
 * (brim__queue_of), never finished, and get only two things from brim: a wait for an event, and an
 * event.
 *
 * Nothing here charges a budget: the caller has charged the memory before, to the kind that
 * brim_device_memory returns. A driver that refuses memory is BRIM_STATUS_MEMORY, any other failure
 * of a driver BRIM_STATUS_DRIVER, with the driver's error in the text. Every driver call that may
 * fail is a fault point (BRIM__FAULT_DEVICE). All functions may be called from any thread; a queue
 * is used by one thread at a time.
 */
#ifndef BRIM_DEVICE_H
#define BRIM_DEVICE_H

#include "memory/alloc.h"

struct brim__device_ops;

/* An opened device; the memory belongs to the opener. */
struct brim__device {
    const struct brim__device_ops *ops;
    brim_device kind;
    uint32_t index;
    uint64_t largest; /* allocation at once */
    void *context;    /* the driver's */
    void *handle;     /* cl_device_id, CUdevice */
    void *self;       /* more that a driver keeps (kernels), charged to the budget; or NULL */
};

/* Memory of a device. handle: a cl_mem, or an address on the device. NULL: none. */
struct brim__device_memory {
    void *handle;
    uint64_t bytes;
};

/* An in-order queue: a cl_command_queue or a CUstream. */
struct brim__queue {
    struct brim__device *device;
    void *handle;
    bool own; /* made by brim */
};

/* handle NULL: no event, which counts as done. */
struct brim__event {
    void *handle; /* cl_event, CUevent */
};

/* Converts rows of uint8 to rows of another type by a table: element i of a row of the destination
 * is table[channel(i) * 256 + source[place(i)]], where i counts the destination's shape row-major,
 * and place(i) is the sum of the indices times `stride`. Source rows are source_row bytes apart and
 * begin at source_offset. The offsets of table and destination and destination_row are multiples of
 * an element. */
struct brim__lookup {
    const struct brim__device_memory *source, *table, *destination;
    uint64_t source_offset, source_row;
    uint64_t table_offset;
    uint64_t destination_offset, destination_row;
    uint64_t rows;
    uint32_t element;   /* bytes of an element of table and destination: 1, 2 or 4 */
    uint32_t dim[3];    /* of a row of the destination, slowest first */
    uint32_t stride[3]; /* in the source, bytes */
    uint32_t axis;      /* of the channels; 3: one table for all */
};

#define BRIM__GATHER_PARTS 8
/* Copies rows by number: row r of the destination is row number[r] of the `part`s. Each part has
 * part_rows rows, the last one maybe fewer. Number UINT32_MAX leaves the row unchanged. */
struct brim__gather {
    const struct brim__device_memory *part[BRIM__GATHER_PARTS]; /* unused: NULL, at the end */
    uint64_t part_rows;
    uint64_t source_offset, source_row; /* in a part: of the first row, from row to row */
    const struct brim__device_memory *destination;
    uint64_t destination_offset, destination_row;
    uint64_t row_bytes; /* of these that are copied; multiples of 4 are fastest */
    uint64_t rows;
    const uint32_t *number;                    /* in host memory ... */
    const struct brim__device_memory *numbers; /* ... and the same on the device, at ... */
    uint64_t numbers_offset;                   /* ... this place, a multiple of 4 */
};

struct brim__device_ops {
    const char *name; /* "opencl" */
    /* Number of devices, at most BRIM_MAX_DEVICES; BRIM_STATUS_UNSUPPORTED without a driver. */
    brim_status (*count)(uint32_t *count);
    /* Fills in the properties of a device without opening it. kind, index and size are set. */
    brim_status (*read)(uint32_t index, brim_device_info *info);
    /* ops, kind and index are set. queue: the consumer's, or NULL. Memory for `self` is
     * charged to the budget. */
    brim_status (*open)(struct brim__device *device, void *queue, brim_budget *budget);
    void (*close)(struct brim__device *device);

    brim_status (*take)(struct brim__device *device, uint64_t bytes, void **handle);
    void (*give)(struct brim__device *device, void *handle);
    /* Page-locks whole host pages, and undoes it. *pin may stay NULL. */
    brim_status (*pin)(struct brim__device *device, void *memory, uint64_t bytes, void **pin);
    void (*unpin)(struct brim__device *device, void *memory, void *pin);

    brim_status (*queue_new)(struct brim__device *device, void **handle);
    void (*queue_free)(struct brim__device *device, void *handle); /* waits for what is in it */
    /* BRIM_STATUS_INVALID unless the context of the queue is that of the device. */
    brim_status (*queue_check)(struct brim__device *device, void *handle);

    brim_status (*write)(struct brim__queue *queue, const struct brim__device_memory *to,
                         uint64_t offset, const void *from, uint64_t bytes);
    brim_status (*read_back)(struct brim__queue *queue, void *to,
                             const struct brim__device_memory *from, uint64_t offset,
                             uint64_t bytes);
    brim_status (*copy)(struct brim__queue *queue, const struct brim__device_memory *to,
                        uint64_t to_offset, const struct brim__device_memory *from,
                        uint64_t from_offset, uint64_t bytes);
    /* Prepares lookup and gather, for example compiles kernels. NULL: nothing to prepare. */
    brim_status (*prepare)(struct brim__device *device);
    /* NULL: not available. Rows are then gathered by copies. */
    brim_status (*lookup)(struct brim__queue *queue, const struct brim__lookup *lookup);
    brim_status (*gather)(struct brim__queue *queue, const struct brim__gather *gather);

    brim_status (*flush)(struct brim__queue *queue);
    brim_status (*record)(struct brim__queue *queue, void **event);
    brim_status (*queue_wait)(struct brim__queue *queue, void *event);
    /* BRIM_OK: done; BRIM_STATUS_TIMEOUT: not yet; else: work before the event failed. */
    brim_status (*event_poll)(struct brim__device *device, void *event);
    brim_status (*event_wait)(struct brim__device *device, void *event); /* on this thread */
    void (*event_free)(struct brim__device *device, void *event);
};

extern const struct brim__device_ops brim__device_host, brim__device_opencl, brim__device_cuda;

/* ---------------------------------------------------------------- device.c */

/* device: to be filled. queue: the consumer's, or NULL. */
brim_status brim__device_open(struct brim__device *device, brim_device kind, uint32_t index,
                              void *queue, brim_budget *budget);
void brim__device_close(struct brim__device *device); /* harmless twice */

brim_status brim__device_take(struct brim__device *device, uint64_t bytes,
                              struct brim__device_memory *memory);
void brim__device_give(struct brim__device *device, struct brim__device_memory *memory);
brim_status brim__device_pin(struct brim__device *device, void *memory, uint64_t bytes, void **pin);
void brim__device_unpin(struct brim__device *device, void *memory, void *pin);

brim_status brim__queue_new(struct brim__device *device, struct brim__queue *queue);
/* A queue of the consumer's; BRIM_STATUS_INVALID if it is of another context. */
brim_status brim__queue_of(struct brim__device *device, void *handle, struct brim__queue *queue);
void brim__queue_free(struct brim__queue *queue); /* an own one: waits; harmless twice */

brim_status brim__queue_write(struct brim__queue *queue, const struct brim__device_memory *to,
                              uint64_t offset, const void *from, uint64_t bytes);
brim_status brim__queue_read(struct brim__queue *queue, void *to,
                             const struct brim__device_memory *from, uint64_t offset,
                             uint64_t bytes);
brim_status brim__queue_copy(struct brim__queue *queue, const struct brim__device_memory *to,
                             uint64_t to_offset, const struct brim__device_memory *from,
                             uint64_t from_offset, uint64_t bytes);
static inline bool brim__device_converts(const struct brim__device *device) {
    return device->ops->lookup != NULL;
}
/* To be called before lookup and gather, on a thread of the program, because a compiler of kernels
 * may need more stack than a worker has. */
brim_status brim__device_prepare(struct brim__device *device);
brim_status brim__queue_lookup(struct brim__queue *queue, const struct brim__lookup *lookup);
brim_status brim__queue_gather(struct brim__queue *queue, const struct brim__gather *gather);
/* Makes the device start the work that is in the queue. */
brim_status brim__queue_flush(struct brim__queue *queue);
/* Adds an event after all work that is in the queue now, and flushes the queue. */
brim_status brim__queue_record(struct brim__queue *queue, struct brim__event *event);
/* Work that is put into the queue after this call starts after the event. */
brim_status brim__queue_wait(struct brim__queue *queue, const struct brim__event *event);

brim_status brim__event_poll(struct brim__device *device, const struct brim__event *event);
brim_status brim__event_wait(struct brim__device *device, const struct brim__event *event);
void brim__event_free(struct brim__device *device, struct brim__event *event);

#endif

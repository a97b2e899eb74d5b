/*
 * device_layout.h: the layout of a batch on a device.
 *
 *     staging slot (plan->delivered)            device slot
 *     | field 0 | field 1 | numbers | valid |   | field 0 | field 1 |      + a tail on the host:
 *                                                                          numbers, valid, offsets
 *
 * If the last change of a field of pixels can be done by a table (uint8 to a float type, by scale
 * and bias) and the device can do it, the field stays uint8 on the host, in its order there. For
 * float32 only a quarter of the bytes is then uploaded. The bytes go through memory that all slots
 * share (fixed), which is safe because copies and conversions follow each other in one queue.
 */
#ifndef BRIM_DEVICE_LAYOUT_H
#define BRIM_DEVICE_LAYOUT_H

#include "device/device.h"
#include "source/source.h"
#include "tensor/tensor.h"

struct brim__device_field {
    uint64_t offset;  /* in a device slot */
    uint64_t bytes;   /* of all rows, at most */
    uint64_t offsets; /* not dense, as the user sees it: of these in the tail */
    /* converted there: */
    bool converts;
    brim_dtype dtype; /* what the user sees */
    struct brim__shape shape;
    uint64_t row_bytes;
    uint32_t channels;
    const float *scale, *bias;  /* or NULL */
    uint64_t resident;          /* of a row that stays on the device: bytes before it */
    uint64_t raw, table;        /* in the fixed memory: rows as they come; what they become */
    struct brim__lookup lookup; /* its geometry */
};

struct brim__device_layout {
    bool used;
    brim_memory kind;
    struct brim__device_field field[BRIM__MAX_FIELDS];
    uint64_t slot_bytes;
    uint64_t fixed_bytes;
    uint64_t tail_bytes, tail_valid; /* whole pages; where `valid` lies */
    /* for rows that stay on the device: the bytes of one, and the places of a batch's numbers in a
     * staging slot and in the fixed memory */
    uint64_t resident_bytes, numbers, numbers_there;
    uint64_t resident_room; /* bytes for such rows that could be had when it was planned */
};

#endif

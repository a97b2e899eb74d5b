/*
 * device_util.h: what the tests of devices share: random lookups and gathers, run on a
 * device from memory to memory, so that the bytes that two devices leave behind can be
 * compared, the gaps between rows among them.
 */
#ifndef BRIM_TESTS_DEVICE_UTIL_H
#define BRIM_TESTS_DEVICE_UTIL_H

#include "device/device.h"
#include "support/support.h"

#include <stdlib.h>

#define must_ok(call) must_ok_at((call), #call, __FILE__, __LINE__)

static inline void must_ok_at(brim_status status, const char *call, const char *file, int line) {
    if (status != BRIM_OK) {
        print_error("%s: %s: %s\n", call, brim_status_name(status), brim_detail());
        _fail(file, line);
    }
}

static inline uint64_t random_to(uint64_t *state, uint64_t most) {
    return next_random(state) % (most + 1);
}

/* A device with a queue of its own. */
struct place {
    struct brim__device device;
    struct brim__queue queue;
};

static inline void place_open(struct place *place, brim_device kind) {
    must_ok(brim__device_open(&place->device, kind, 0, NULL, NULL));
    must_ok(brim__queue_new(&place->device, &place->queue));
}

static inline void place_close(struct place *place) {
    brim__queue_free(&place->queue);
    brim__device_close(&place->device);
}

static inline void wait_for_all(struct brim__queue *queue) {
    struct brim__event event;
    must_ok(brim__queue_record(queue, &event));
    must_ok(brim__event_wait(queue->device, &event));
    must_ok(brim__event_poll(queue->device, &event));
    brim__event_free(queue->device, &event);
}

/* Memory of a device with these bytes in it. */
static inline struct brim__device_memory put(struct place *place, const void *data,
                                             uint64_t bytes) {
    struct brim__device_memory memory;
    must_ok(brim__device_take(&place->device, bytes, &memory));
    must_ok(brim__queue_write(&place->queue, &memory, 0, data, bytes));
    return memory;
}

static inline void get(struct place *place, const struct brim__device_memory *memory, void *data) {
    must_ok(brim__queue_read(&place->queue, data, memory, 0, memory->bytes));
    wait_for_all(&place->queue);
}

/* ------------------------------------------------------------------ lookups */

struct lookup_case {
    struct brim__lookup lookup; /* without memory */
    uint64_t source_bytes, table_bytes, destination_bytes;
    uint64_t seed;
};

static inline struct lookup_case random_lookup(uint64_t *random) {
    static const uint32_t sizes[] = { 1, 2, 4 };
    static const uint8_t orders[][3] = { { 0, 1, 2 }, { 0, 2, 1 }, { 1, 0, 2 },
                                         { 1, 2, 0 }, { 2, 0, 1 }, { 2, 1, 0 } };
    struct lookup_case test = { .seed = next_random(random) };
    struct brim__lookup *const lookup = &test.lookup;
    const uint32_t element = sizes[random_to(random, 2)];
    const bool large = random_to(random, 7) == 0; /* more than a work item's run */
    lookup->element = element;
    lookup->axis = (uint32_t)random_to(random, 3);
    lookup->rows = 1 + random_to(random, 3);
    uint64_t elements = 1;
    for (int i = 0; i < 3; i++) {
        lookup->dim[i] = (uint32_t)(1 + random_to(random, large && i > 0 ? 99 : 8));
        elements *= lookup->dim[i];
    }
    /* the source's axes in any order, with gaps */
    const uint8_t *const order = orders[random_to(random, 5)];
    uint64_t step = 1 + random_to(random, 1);
    uint64_t reach = 1;
    for (int i = 2; i >= 0; i--) {
        const uint8_t axis = order[i];
        lookup->stride[axis] = (uint32_t)step;
        reach += (lookup->dim[axis] - 1) * step;
        step = step * lookup->dim[axis] + random_to(random, 2);
    }
    lookup->source_offset = random_to(random, 70);
    lookup->source_row = reach + random_to(random, 9);
    lookup->table_offset = element * random_to(random, 9);
    lookup->destination_offset = element * random_to(random, 30);
    lookup->destination_row = element * (elements + random_to(random, 3));
    const uint64_t tables = lookup->axis < 3 ? lookup->dim[lookup->axis] : 1;
    test.source_bytes = lookup->source_offset + lookup->rows * lookup->source_row;
    test.table_bytes = lookup->table_offset + tables * 256 * element;
    test.destination_bytes = lookup->destination_offset + lookup->rows * lookup->destination_row;
    return test;
}

/* The case's bytes, the same wherever it is run. */
static inline uint8_t *some_bytes(uint64_t bytes, uint64_t seed) {
    uint8_t *const data = malloc(bytes);
    assert_non_null(data);
    fill_random(data, bytes, seed);
    return data;
}

/* What the destination holds afterwards; freed by the caller. */
static inline uint8_t *run_lookup(struct place *place, const struct lookup_case *test) {
    uint8_t *const source = some_bytes(test->source_bytes, test->seed);
    uint8_t *const table = some_bytes(test->table_bytes, test->seed + 1);
    uint8_t *const destination = some_bytes(test->destination_bytes, test->seed + 2);
    struct brim__device_memory memory[] = { put(place, source, test->source_bytes),
                                            put(place, table, test->table_bytes),
                                            put(place, destination, test->destination_bytes) };
    struct brim__lookup lookup = test->lookup;
    lookup.source = &memory[0];
    lookup.table = &memory[1];
    lookup.destination = &memory[2];
    must_ok(brim__queue_lookup(&place->queue, &lookup));
    get(place, &memory[2], destination);
    for (int i = 0; i < 3; i++) {
        brim__device_give(&place->device, &memory[i]);
    }
    free(source);
    free(table);
    return destination;
}

/* ------------------------------------------------------------------ gathers */

struct gather_case {
    struct brim__gather gather; /* without memory and numbers */
    uint32_t parts;
    uint64_t part_bytes, destination_bytes;
    uint64_t seed;
    uint32_t number[64];
};

static inline struct gather_case random_gather(uint64_t *random) {
    static const uint64_t units[] = { 1, 4, 16 };
    struct gather_case test = { .seed = next_random(random) };
    struct brim__gather *const gather = &test.gather;
    const uint64_t unit = units[random_to(random, 2)];
    const bool large = random_to(random, 7) == 0; /* as above */
    test.parts = (uint32_t)(1 + random_to(random, BRIM__GATHER_PARTS - 1));
    gather->part_rows = 1 + random_to(random, large ? 1 : 6);
    gather->rows = random_to(random, large ? 4 : BRIM__COUNT(test.number));
    gather->row_bytes = unit * (1 + random_to(random, large ? 5000 : 40));
    gather->source_offset = unit * random_to(random, 5);
    gather->source_row = gather->row_bytes + unit * random_to(random, 2);
    gather->destination_offset = unit * random_to(random, 5);
    gather->destination_row = gather->row_bytes + unit * random_to(random, 2);
    gather->numbers_offset = 4 * random_to(random, 3);
    test.part_bytes = gather->source_offset + gather->part_rows * gather->source_row;
    test.destination_bytes =
        gather->destination_offset + brim__max(gather->rows, 1) * gather->destination_row;
    for (uint64_t row = 0; row < gather->rows; row++) {
        const uint64_t all = test.parts * gather->part_rows;
        test.number[row] =
            random_to(random, 9) == 0 ? UINT32_MAX : (uint32_t)random_to(random, all - 1);
    }
    return test;
}

/* As run_lookup. */
static inline uint8_t *run_gather(struct place *place, const struct gather_case *test) {
    struct brim__device_memory part[BRIM__GATHER_PARTS];
    struct brim__gather gather = test->gather;
    uint8_t *data[BRIM__GATHER_PARTS];
    for (uint32_t i = 0; i < test->parts; i++) {
        data[i] = some_bytes(test->part_bytes, test->seed + 1 + i);
        part[i] = put(place, data[i], test->part_bytes);
        gather.part[i] = &part[i];
    }
    const uint64_t numbers_bytes = gather.numbers_offset + sizeof test->number;
    struct brim__device_memory numbers;
    must_ok(brim__device_take(&place->device, numbers_bytes, &numbers));
    must_ok(brim__queue_write(&place->queue, &numbers, gather.numbers_offset, test->number,
                              sizeof test->number));
    uint8_t *const destination = some_bytes(test->destination_bytes, test->seed);
    struct brim__device_memory to = put(place, destination, test->destination_bytes);
    gather.destination = &to;
    gather.number = test->number;
    gather.numbers = &numbers;
    must_ok(brim__queue_gather(&place->queue, &gather));
    get(place, &to, destination);
    for (uint32_t i = 0; i < test->parts; i++) {
        brim__device_give(&place->device, &part[i]);
        free(data[i]);
    }
    brim__device_give(&place->device, &numbers);
    brim__device_give(&place->device, &to);
    return destination;
}

#endif

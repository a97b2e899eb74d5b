/*
 * budget_util.h: what the tests of budgets share: trees with exactly so much
 * room, and random numbers.
 */
#ifndef BRIM_TESTS_BUDGET_UTIL_H
#define BRIM_TESTS_BUDGET_UTIL_H

#include "memory/alloc.h"
#include "memory/node.h"

#define KIB UINT64_C(1024)
#define MIB (1024 * KIB)

static inline uint64_t root_bytes(void) {
    return brim__alloc_bytes(sizeof(struct brim__tree));
}
static inline uint64_t node_bytes(void) {
    return brim__alloc_bytes(sizeof(struct brim_budget));
}

/* A root that leaves exactly `room` bytes of host memory, and 1 MiB of
 * page-locked memory. */
static inline brim_budget *new_root(uint64_t room) {
    const uint64_t limits[BRIM_MEMORY_KINDS] = { root_bytes() + room, MIB };
    brim_budget *root;
    assert_int_equal(brim__budget_root("runtime", limits, &root), BRIM_OK);
    return root;
}

/* A root with room for nodes, and exactly `room` bytes of a kind other than host memory;
 * nothing of all others. */
static inline brim_budget *new_root_of(brim_memory kind, uint64_t room) {
    uint64_t limits[BRIM_MEMORY_KINDS] = { MIB };
    brim_budget *root;
    limits[kind] = room;
    assert_int_equal(brim__budget_root("runtime", limits, &root), BRIM_OK);
    return root;
}

static inline brim_budget *new_child(brim_budget *parent, const char *label, uint64_t limit,
                                     uint64_t minimum) {
    brim_budget *child;
    assert_int_equal(brim_budget_new(parent, label, limit, minimum, &child), BRIM_OK);
    return child;
}

static inline brim_budget_info read_kind(brim_budget *budget, brim_memory kind) {
    brim_budget_info info = BRIM_BUDGET_INFO_INIT;
    assert_int_equal(brim_budget_read(budget, kind, &info), BRIM_OK);
    return info;
}

static inline brim_budget_info read_info(brim_budget *budget) {
    return read_kind(budget, BRIM_MEMORY_HOST);
}

static inline bool charges_of(brim_budget *budget, brim_memory kind, uint64_t bytes) {
    const brim_status status = brim_budget_charge(budget, kind, bytes);
    assert_true(status == BRIM_OK || status == BRIM_STATUS_BUDGET);
    return status == BRIM_OK;
}

static inline bool charges(brim_budget *budget, uint64_t bytes) {
    return charges_of(budget, BRIM_MEMORY_HOST, bytes);
}

static inline bool sets(brim_budget *budget, brim_memory kind, uint64_t limit, uint64_t minimum) {
    const brim_status status = brim_budget_set(budget, kind, limit, minimum);
    assert_true(status == BRIM_OK || status == BRIM_STATUS_BUDGET);
    return status == BRIM_OK;
}

static uint64_t random_state = 12345;
static inline uint64_t random_below(uint64_t bound) {
    random_state = random_state * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (random_state >> 33) % bound;
}

#endif

/*
 * state.c: writing and reading a state; see state.h for its bytes.
 */
#include "engine/state.h"

static const char magic[8] = { 'B', 'R', 'I', 'M', 'S', 'T', 'A', '2' };

enum {
    AT_DATA = 8,
    AT_ORDER = 16,
    AT_EPOCH = 24,
    AT_SAMPLE = 32,
    AT_MICRO = 40,
    AT_WORLD = 44,
    AT_GLOBAL_ROWS = 48,
    AT_MICRO_ROWS = 56,
    AT_REMAINDER = 64,
    AT_ROW = 72,
    AT_PASSED = 80,
    AT_OFFSET = 88,
    AT_GIVEN = 96,
    AT_STEP = 104,
    AT_UNTIL = 112,
    AT_CHECKSUM = 120,
};
static_assert(AT_CHECKSUM + 8 == BRIM_STATE_BYTES, "the checksum ends the state");

static void put(brim_state *state, size_t at, uint64_t value, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) {
        state->bytes[at + i] = (unsigned char)(value >> (8 * i));
    }
}

static uint64_t get(const brim_state *state, size_t at, size_t bytes) {
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; i++) {
        value |= (uint64_t)state->bytes[at + i] << (8 * i);
    }
    return value;
}

void brim__state_write(const brim_plan *plan, const struct brim__position *position,
                       brim_state *state) {
    memset(state, 0, sizeof *state);
    memcpy(state->bytes, magic, sizeof magic);
    put(state, AT_DATA, plan->info.data_fingerprint, 8);
    put(state, AT_ORDER, plan->info.order_fingerprint, 8);
    put(state, AT_EPOCH, position->epoch, 8);
    put(state, AT_SAMPLE, position->sample, 8);
    put(state, AT_MICRO, position->micro, 4);
    put(state, AT_WORLD, plan->shard.world, 4);
    put(state, AT_GLOBAL_ROWS, plan->shard.global_rows, 8);
    put(state, AT_MICRO_ROWS, plan->shard.micro_rows, 8);
    put(state, AT_REMAINDER, plan->shard.remainder, 1);
    put(state, AT_ROW, position->row, 8);
    put(state, AT_PASSED, position->passed, 8);
    put(state, AT_OFFSET, position->offset, 8);
    put(state, AT_GIVEN, position->given, 8);
    put(state, AT_STEP, position->step, 8);
    put(state, AT_UNTIL, position->until, 8);
    put(state, AT_CHECKSUM, brim__hash(state->bytes, AT_CHECKSUM, 0), 8);
}

brim_status brim__state_read(const brim_plan *plan, const brim_state *state,
                             struct brim__position *position) {
    if (memcmp(state->bytes, magic, sizeof magic) != 0 ||
        get(state, AT_CHECKSUM, 8) != brim__hash(state->bytes, AT_CHECKSUM, 0)) {
        return brim__fail(BRIM_STATUS_CORRUPT,
                          "these bytes are not a state that brim has written, or "
                          "they were damaged");
    }
    if (get(state, AT_DATA, 8) != plan->info.data_fingerprint) {
        return brim__fail(BRIM_STATUS_MISMATCH,
                          "the state was written for other data (fingerprint %016llx, here "
                          "%016llx): files, their sizes or their number differ",
                          (unsigned long long)get(state, AT_DATA, 8),
                          (unsigned long long)plan->info.data_fingerprint);
    }
    if (get(state, AT_ORDER, 8) != plan->info.order_fingerprint) {
        return brim__fail(BRIM_STATUS_MISMATCH,
                          "the state was written for another order (fingerprint %016llx, here "
                          "%016llx): shuffle, split, filter and the like differ",
                          (unsigned long long)get(state, AT_ORDER, 8),
                          (unsigned long long)plan->info.order_fingerprint);
    }
    *position = (struct brim__position){
        .epoch = get(state, AT_EPOCH, 8),
        .sample = get(state, AT_SAMPLE, 8),
        .row = get(state, AT_ROW, 8),
        .passed = get(state, AT_PASSED, 8),
        .offset = get(state, AT_OFFSET, 8),
        .given = get(state, AT_GIVEN, 8),
        .step = get(state, AT_STEP, 8),
        .until = get(state, AT_UNTIL, 8),
    };
    const bool same = get(state, AT_WORLD, 4) == plan->shard.world &&
                      get(state, AT_GLOBAL_ROWS, 8) == plan->shard.global_rows &&
                      get(state, AT_MICRO_ROWS, 8) == plan->shard.micro_rows &&
                      get(state, AT_REMAINDER, 1) == plan->shard.remainder;
    position->micro = same ? (uint32_t)get(state, AT_MICRO, 4) : 0;
    return BRIM_OK;
}

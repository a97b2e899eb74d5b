/*
 * block_shuffle.c: a shuffle that keeps reads near each other.
 *
 * A shuffle by blocks cuts n samples into blocks (the last may be short),
 * permutes the blocks over as many slots, cuts the slots into groups of
 * GROUP_SLOTS and permutes the samples inside each group:
 *
 *     slot      0     1     2     3     4              stream = the slots in
 *     block   | 3   | 0   | 4 | 1     | 2     |        order; block 4 is short
 *     group   |--- 0 -----------|--- 1 -------|        (drawn with 3 slots)
 *
 * The short block's slot comes from the inverse permutation; it alone decides
 * where slots and groups begin, so nothing is searched.
 */
#include "order/block_shuffle.h"

#define GROUP_SLOTS 16

/* Which permutation of a shuffle a key is for. 0 is for the whole shuffle (order.c). */
enum key_use { KEY_BLOCKS = 1, KEY_GROUP };

void brim__block_shuffle_init(struct brim__block_shuffle *shuffle, uint64_t count, uint64_t block,
                              uint64_t key) {
    shuffle->key = key;
    shuffle->block = block;
    shuffle->slots = brim__divide_up(count, block);
    brim__permutation_init(&shuffle->blocks, shuffle->slots, brim__hash_words(key, 0, KEY_BLOCKS));
    shuffle->short_slot = brim__unpermute(&shuffle->blocks, shuffle->slots - 1);
    shuffle->short_begin = shuffle->short_slot * block;
    shuffle->short_rows = count - (shuffle->slots - 1) * block;
    shuffle->group_begin = shuffle->group_rows = 0;
}

/* The place in the stream where a slot begins; for slot == slots, the end of the stream. */
static uint64_t slot_begin(const struct brim__block_shuffle *shuffle, uint64_t slot) {
    return slot <= shuffle->short_slot ? slot * shuffle->block
                                       : (slot - 1) * shuffle->block + shuffle->short_rows;
}

/* The slot of a place in the stream, and the offset in it. */
static uint64_t slot_at(const struct brim__block_shuffle *shuffle, uint64_t place,
                        uint64_t *offset) {
    const uint64_t behind = place - shuffle->short_begin;
    if (place >= shuffle->short_begin && behind < shuffle->short_rows) {
        *offset = behind;
        return shuffle->short_slot;
    }
    const bool after = place > shuffle->short_begin;
    const uint64_t even = after ? place - shuffle->short_rows : place;
    *offset = even % shuffle->block;
    return even / shuffle->block + after;
}

static void enter_group(struct brim__block_shuffle *shuffle, uint64_t position) {
    uint64_t offset;
    const uint64_t group = slot_at(shuffle, position, &offset) / GROUP_SLOTS;
    const uint64_t last = brim__min(group * GROUP_SLOTS + GROUP_SLOTS, shuffle->slots);
    shuffle->group_begin = slot_begin(shuffle, group * GROUP_SLOTS);
    shuffle->group_rows = slot_begin(shuffle, last) - shuffle->group_begin;
    brim__permutation_init(&shuffle->inside, shuffle->group_rows,
                           brim__hash_words(shuffle->key, group, KEY_GROUP));
}

/* Neighbouring lanes mostly share a group, so they are permuted together. */
void brim__block_shuffle_run(struct brim__block_shuffle *shuffle, uint64_t *positions,
                             size_t count) {
    uint64_t offset[BRIM__PERMUTATION_LANES];
    assert(count <= BRIM__PERMUTATION_LANES);
    for (size_t done = 0; done < count;) {
        if (positions[done] - shuffle->group_begin >= shuffle->group_rows) {
            enter_group(shuffle, positions[done]);
        }
        size_t end = done;
        while (end < count && positions[end] - shuffle->group_begin < shuffle->group_rows) {
            positions[end++] -= shuffle->group_begin;
        }
        brim__permute_run(&shuffle->inside, positions + done, end - done);
        for (; done < end; done++) {
            positions[done] =
                slot_at(shuffle, positions[done] + shuffle->group_begin, &offset[done]);
        }
    }
    brim__permute_run(&shuffle->blocks, positions, count);
    for (size_t i = 0; i < count; i++) {
        positions[i] = positions[i] * shuffle->block + offset[i];
    }
}

/*
 * philox.c: Philox4x32 with ten rounds.
 *
 * Two multiplications of 32 bits mix the four words of the counter in each
 * round; the two words of the key advance by constants between rounds.
 *
 * Blocks are numbered by the counter's last word. brim__random uses the blocks below 2^30, four
 * draws from each. brim__random_below needs 64 bits for a draw and uses one block for it, from
 * those with the highest bit set. So the two never use the same number.
 */
#include "order/philox.h"

#define ROUNDS        10
#define BELOW_BLOCKS  0x80000000u
#define MULTIPLIER_0  0xD2511F53u
#define MULTIPLIER_1  0xCD9E8D57u
#define KEY_ADVANCE_0 0x9E3779B9u
#define KEY_ADVANCE_1 0xBB67AE85u

struct brim__philox_block brim__philox(uint64_t key, const uint32_t counter[4]) {
    uint32_t key_0 = (uint32_t)key, key_1 = (uint32_t)(key >> 32);
    struct brim__philox_block block = { { counter[0], counter[1], counter[2], counter[3] } };
    for (int round = 0; round < ROUNDS; round++) {
        const uint64_t product_0 = (uint64_t)MULTIPLIER_0 * block.word[0];
        const uint64_t product_1 = (uint64_t)MULTIPLIER_1 * block.word[2];
        block = (struct brim__philox_block){ {
            (uint32_t)(product_1 >> 32) ^ block.word[1] ^ key_0,
            (uint32_t)product_1,
            (uint32_t)(product_0 >> 32) ^ block.word[3] ^ key_1,
            (uint32_t)product_0,
        } };
        key_0 += KEY_ADVANCE_0;
        key_1 += KEY_ADVANCE_1;
    }
    return block;
}

static struct brim__philox_block block_of(uint64_t key, uint64_t sample, uint64_t epoch,
                                          uint32_t number) {
    const uint32_t counter[4] = { (uint32_t)sample, (uint32_t)(sample >> 32), (uint32_t)epoch,
                                  number };
    return brim__philox(key, counter);
}

uint32_t brim__random(uint64_t key, uint64_t sample, uint64_t epoch, uint32_t draw) {
    return block_of(key, sample, epoch, draw / 4).word[draw % 4];
}

uint64_t brim__random_below(uint64_t key, uint64_t sample, uint64_t epoch, uint32_t draw,
                            uint64_t bound) {
    assert(bound > 0 && draw < BELOW_BLOCKS);
    const struct brim__philox_block block = block_of(key, sample, epoch, BELOW_BLOCKS | draw);
    const uint64_t bits = (uint64_t)block.word[1] << 32 | block.word[0];
    return (uint64_t)(((unsigned __int128)bits * bound) >> 64);
}

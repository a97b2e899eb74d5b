/*
 * philox.h: Philox4x32-10, a counter-based random generator.
 *
 * The numbers depend only on key and counter, so a sample's random numbers are the same in every
 * thread. Counter = (sample 64 bits, epoch 32 bits, draw 32 bits), key = hash64(seed, stage's
 * position, branch). Epochs wrap at 2^32 here.
 */
#ifndef BRIM_PHILOX_H
#define BRIM_PHILOX_H

#include "base/base.h"

struct brim__philox_block {
    uint32_t word[4];
};

struct brim__philox_block brim__philox(uint64_t key, const uint32_t counter[4]);
/* Word `draw % 4` of block `draw / 4` for a sample in an epoch. */
uint32_t brim__random(uint64_t key, uint64_t sample, uint64_t epoch, uint32_t draw);
/* Uniform in [0, bound), bound > 0; the bias is negligible (64-bit multiply). draw < 2^31.
 * Independent of brim__random for every draw. */
uint64_t brim__random_below(uint64_t key, uint64_t sample, uint64_t epoch, uint32_t draw,
                            uint64_t bound);

#endif

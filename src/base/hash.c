/*
 * hash.c: the one hash of the library, XXH3 with 64 bits from libxxhash.
 *
 * Fingerprints and random keys depend on it, so its values are part of the formats. Integers are
 * hashed as little-endian bytes on every machine.
 */
#include "base/base.h"

#include <xxhash.h>

uint64_t brim__hash(const void *bytes, size_t count, uint64_t seed) {
    return XXH3_64bits_withSeed(bytes, count, seed);
}

uint64_t brim__hash_words(uint64_t a, uint64_t b, uint64_t c) {
    const uint64_t words[3] = { a, b, c };
    uint8_t bytes[sizeof words];
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (uint8_t)(words[i / 8] >> (i % 8 * 8));
    }
    return brim__hash(bytes, sizeof bytes, 0);
}

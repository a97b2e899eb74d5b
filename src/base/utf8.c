/*
 * utf8.c: checks UTF-8.
 *
 * Most text is ASCII: eight bytes at a time are passed over while none has its high bit set. The
 * allowed values of a character's second byte depend on its first. All later bytes are 80 to BF.
 */
#include "base/utf8.h"

#define HIGH_BITS UINT64_C(0x8080808080808080)

static bool is_between(uint8_t byte, uint8_t least, uint8_t most) {
    return byte >= least && byte <= most;
}

/* Bytes of the character that begins here; 0: there is none. */
static size_t character(const uint8_t *at, size_t left) {
    const uint8_t first = at[0];
    uint8_t least = 0x80, most = 0xBF;
    size_t length;
    if (first < 0x80) {
        return 1;
    }
    if (is_between(first, 0xC2, 0xDF)) {
        length = 2;
    } else if (is_between(first, 0xE0, 0xEF)) {
        length = 3;
        least = first == 0xE0 ? 0xA0 : least; /* else written longer than needed */
        most = first == 0xED ? 0x9F : most;   /* else a surrogate */
    } else if (is_between(first, 0xF0, 0xF4)) {
        length = 4;
        least = first == 0xF0 ? 0x90 : least;
        most = first == 0xF4 ? 0x8F : most; /* else above U+10FFFF */
    } else {
        return 0;
    }
    if (length > left || !is_between(at[1], least, most)) {
        return 0;
    }
    for (size_t i = 2; i < length; i++) {
        if (!is_between(at[i], 0x80, 0xBF)) {
            return 0;
        }
    }
    return length;
}

size_t brim__utf8_valid(const uint8_t *bytes, size_t count) {
    size_t at = 0;
    while (at < count) {
        uint64_t eight;
        if (count - at >= sizeof eight) {
            memcpy(&eight, bytes + at, sizeof eight);
            if ((eight & HIGH_BITS) == 0) {
                at += sizeof eight;
                continue;
            }
        }
        const size_t length = character(bytes + at, count - at);
        if (length == 0) {
            break;
        }
        at += length;
    }
    return at;
}

/*
 * webp_scan.c: how much libwebp will allocate for a lossless image.
 *
 * libwebp has no hook for memory, so its need must be known before. For lossless images the size is
 * not enough: the image may be divided into blocks that use different sets of Huffman codes, and
 * libwebp makes tables of 12 to 20 KB for each set. A small file can ask for a gigabyte; usual
 * files have a few dozen sets. Their number is in compressed data:
 *
 *     transforms  cache  | image of set numbers | codes of each set | pixels
 *     (with images)
 *     \_________ read here ____________________/ \_ of the first set _/
 *
 * So these few small images are parsed here. This takes no memory, because the pixels are not
 * needed to find the end of an image, and the largest set number is in the data literally.
 *
 * The bound must hold for the versions of libwebp in use. The sizes below follow its table sizes
 * and structures (1.2.4 and 1.3.2), and were compared with its measured peak for the files of its
 * test suite and for generated ones.
 */
#include "image/webp.h"

#define MOST_CACHE_BITS 11
#define LITERALS        256
#define LENGTHS         24
#define DISTANCES       40
#define MOST_SYMBOLS    (LITERALS + LENGTHS + (1 << MOST_CACHE_BITS))
#define MOST_BITS       15 /* of a code */

#define SMALL_BYTES  (64 * 1024) /* decoder, code lengths, sorting, colour map and cache */
#define SET_BYTES    640         /* of a set besides its tables; 568 in 1.2.4 */
#define ENTRY_BYTES  4           /* of a table */
#define MOST_DIRECT  1000        /* sets; of more, only those that are used get tables ... */
#define NUMBER_BYTES 4           /* ... after a list of all numbers */

struct bits {
    struct brim__input *input;
    uint64_t at, end; /* of what was not taken yet */
    uint64_t held;    /* the next bits, the first lowest */
    uint32_t count;
    brim_status status; /* BRIM_STATUS_CORRUPT also when the data ended */
};

static void fill(struct bits *bits) {
    const uint8_t *data;
    const uint64_t bytes = brim__min(4, bits->end - bits->at);
    if (bytes == 0) {
        bits->status = brim__fail(BRIM_STATUS_CORRUPT,
                                  "WebP: its lossless data ends at byte %llu, before "
                                  "the first pixel",
                                  (unsigned long long)bits->end);
        return;
    }
    bits->status = brim__input_at(bits->input, bits->at, bytes, &data);
    if (bits->status != BRIM_OK) {
        return;
    }
    for (uint64_t i = 0; i < bytes; i++) {
        bits->held |= (uint64_t)data[i] << bits->count;
        bits->count += 8;
    }
    bits->at += bytes;
}

/* 0 after a failure. n: at most 24. */
static uint32_t read_bits(struct bits *bits, uint32_t n) {
    while (bits->count < n && bits->status == BRIM_OK) {
        fill(bits);
    }
    if (bits->status != BRIM_OK) {
        return 0;
    }
    const uint32_t value = (uint32_t)(bits->held & ((1u << n) - 1));
    bits->held >>= n;
    bits->count -= n;
    return value;
}

static void refuse(struct bits *bits, const char *why) {
    if (bits->status == BRIM_OK) {
        bits->status = brim__fail(BRIM_STATUS_CORRUPT, "WebP: lossless data near byte %llu: %s",
                                  (unsigned long long)bits->at, why);
    }
}

/* ------------------------------------------------------------------- codes */

/* A canonical code: how many symbols have each length, and the symbols by length. */
struct code {
    uint16_t counts[MOST_BITS + 1];
    uint16_t *symbols;
    uint16_t only; /* the symbol, if there is one alone: it takes no bits */
    bool single;
};

enum { GREEN, RED, BLUE, ALPHA, DISTANCE, CODES };

struct set {
    struct code codes[CODES];
    uint16_t symbols[MOST_SYMBOLS + 3 * LITERALS + DISTANCES];
    bool simple; /* one of the codes has at most two symbols */
};

static void build(struct bits *bits, struct code *code, const uint8_t *lengths, uint32_t symbols) {
    uint16_t next[MOST_BITS + 1];
    uint32_t used = 0;
    int32_t open = 1;
    memset(code->counts, 0, sizeof code->counts);
    for (uint32_t i = 0; i < symbols; i++) {
        if (lengths[i] != 0) {
            code->counts[lengths[i]]++;
            code->only = (uint16_t)i;
            used++;
        }
    }
    code->single = used == 1;
    next[1] = 0;
    for (uint32_t length = 1; length <= MOST_BITS; length++) {
        open = 2 * open - code->counts[length];
        if (open < 0) {
            break;
        }
        if (length < MOST_BITS) {
            next[length + 1] = (uint16_t)(next[length] + code->counts[length]);
        }
    }
    if (used == 0 || (open != 0 && !code->single)) {
        refuse(bits, "a Huffman code is not complete");
        return;
    }
    for (uint32_t i = 0; i < symbols; i++) {
        if (lengths[i] != 0) {
            code->symbols[next[lengths[i]]++] = (uint16_t)i;
        }
    }
}

static uint32_t read_symbol(struct bits *bits, const struct code *code) {
    if (code->single) {
        return code->only;
    }
    int32_t value = 0, first = 0;
    uint32_t index = 0;
    for (uint32_t length = 1; length <= MOST_BITS; length++) {
        const int32_t count = code->counts[length];
        value |= (int32_t)read_bits(bits, 1);
        if (value - first < count) {
            return code->symbols[index + (uint32_t)(value - first)];
        }
        index += (uint32_t)count;
        first = (first + count) * 2;
        value *= 2;
    }
    refuse(bits, "a Huffman code is not complete"); /* not reached: build has checked the code */
    return 0;
}

/* Lengths that are themselves compressed. */
static void read_lengths(struct bits *bits, uint8_t *lengths, uint32_t symbols) {
    static const uint8_t order[19] = { 17, 18, 0, 1,  2,  3,  4,  5,  16, 6,
                                       7,  8,  9, 10, 11, 12, 13, 14, 15 };
    uint8_t of_lengths[19] = { 0 };
    uint16_t by_length[19];
    struct code code = { .symbols = by_length };
    const uint32_t given = read_bits(bits, 4) + 4;
    for (uint32_t i = 0; i < given; i++) { /* at most 19 */
        of_lengths[order[i]] = (uint8_t)read_bits(bits, 3);
    }
    build(bits, &code, of_lengths, 19);
    uint32_t left = symbols;
    if (read_bits(bits, 1) != 0) {
        left = 2 + read_bits(bits, 2 + 2 * read_bits(bits, 3));
        if (left > symbols) {
            refuse(bits, "more code lengths than symbols");
        }
    }
    uint8_t previous = 8;
    for (uint32_t i = 0; i < symbols && left > 0 && bits->status == BRIM_OK; left--) {
        const uint32_t symbol = read_symbol(bits, &code);
        if (symbol < 16) {
            lengths[i++] = (uint8_t)symbol;
            previous = symbol != 0 ? (uint8_t)symbol : previous;
            continue;
        }
        const uint32_t repeat = symbol == 16   ? 3 + read_bits(bits, 2)
                                : symbol == 17 ? 3 + read_bits(bits, 3)
                                               : 11 + read_bits(bits, 7);
        if (repeat > symbols - i) {
            refuse(bits, "code lengths continue after the last symbol");
            return;
        }
        memset(lengths + i, symbol == 16 ? previous : 0, repeat);
        i += repeat;
    }
}

static void read_set(struct bits *bits, struct set *set, uint32_t cache_bits) {
    uint16_t *symbols = set->symbols;
    set->simple = false;
    for (int i = 0; i < CODES && bits->status == BRIM_OK; i++) {
        uint8_t lengths[MOST_SYMBOLS] = { 0 };
        uint32_t count = i == DISTANCE ? DISTANCES : LITERALS;
        if (i == GREEN) {
            count += LENGTHS + (cache_bits > 0 ? 1u << cache_bits : 0);
        }
        if (read_bits(bits, 1) != 0) {
            const uint32_t two = read_bits(bits, 1);
            lengths[read_bits(bits, read_bits(bits, 1) != 0 ? 8 : 1)] = 1;
            if (two != 0) {
                lengths[read_bits(bits, 8)] = 1;
            }
            set->simple = true;
        } else {
            read_lengths(bits, lengths, count);
        }
        set->codes[i].symbols = symbols;
        if (bits->status == BRIM_OK) {
            build(bits, &set->codes[i], lengths, count);
        }
        symbols += count;
    }
}

/* ------------------------------------------------------------------ images */

static uint32_t read_cache_bits(struct bits *bits) {
    if (read_bits(bits, 1) == 0) {
        return 0;
    }
    const uint32_t cache_bits = read_bits(bits, 4);
    if (cache_bits < 1 || cache_bits > MOST_CACHE_BITS) {
        refuse(bits, "the colour cache has an invalid size");
    }
    return cache_bits;
}

/* The value of a length or distance symbol with the bits that follow it. */
static uint32_t read_number(struct bits *bits, uint32_t symbol) {
    if (symbol < 4) {
        return symbol + 1;
    }
    const uint32_t extra = (symbol - 2) >> 1;
    return ((2 + (symbol & 1)) << extra) + read_bits(bits, extra) + 1;
}

/* Skips an image inside the image. *largest: the largest value of red and green together. */
static void pass_image(struct bits *bits, uint64_t pixels, struct set *set, uint32_t *largest) {
    const uint32_t cache_bits = read_cache_bits(bits);
    const struct code *codes = set->codes;
    *largest = 0;
    if (bits->status != BRIM_OK) {
        return;
    }
    read_set(bits, set, cache_bits);
    for (uint64_t i = 0; i < pixels && bits->status == BRIM_OK;) {
        const uint32_t green = read_symbol(bits, &codes[GREEN]);
        if (green < LITERALS) {
            const uint32_t red = read_symbol(bits, &codes[RED]);
            (void)read_symbol(bits, &codes[BLUE]);
            (void)read_symbol(bits, &codes[ALPHA]);
            *largest = (uint32_t)brim__max(*largest, red << 8 | green);
            i++;
            if (codes[GREEN].single && codes[RED].single && codes[BLUE].single &&
                codes[ALPHA].single) {
                return; /* all pixels are this one, and take no bits */
            }
        } else if (green < LITERALS + LENGTHS) {
            const uint32_t length = read_number(bits, green - LITERALS);
            (void)read_number(bits, read_symbol(bits, &codes[DISTANCE]));
            if (length > pixels - i) {
                refuse(bits, "a copy continues after the last pixel");
            }
            i += length;
        } else {
            i++; /* a colour from the cache of colours */
            if (codes[GREEN].single) {
                return;
            }
        }
    }
}

static uint64_t blocks(uint64_t side, uint32_t bits) {
    return (side + (1u << bits) - 1) >> bits;
}

/* The most entries in the tables of one set, for complete codes and first-level tables of 8
 * bits. */
static uint64_t table_entries(uint32_t cache_bits) {
    static const uint16_t green[MOST_CACHE_BITS + 1] = { 654, 656, 658, 662,  670,  686,
                                                         718, 782, 912, 1168, 1680, 2704 };
    return 630 * 3 + 410 + (uint64_t)green[cache_bits];
}

brim_status brim__webp_lossless_bytes(struct brim__input *input, uint64_t at, uint64_t bytes,
                                      uint32_t width, uint32_t height, uint64_t *taken) {
    struct bits bits = { .input = input, .at = at, .end = at + bytes };
    struct set set;
    uint64_t across = width, total = SMALL_BYTES;
    uint32_t seen = 0, largest = 0;
    while (read_bits(&bits, 1) != 0) {
        const uint32_t type = read_bits(&bits, 2);
        if ((seen & 1u << type) != 0) {
            refuse(&bits, "a transform occurs twice");
        }
        seen |= 1u << type;
        if (type <= 1) { /* predictors, colours: an image with a pixel for each block */
            const uint32_t side = read_bits(&bits, 3) + 2;
            const uint64_t pixels = blocks(across, side) * blocks(height, side);
            pass_image(&bits, pixels, &set, &largest);
            total += 4 * pixels;
        } else if (type == 3) { /* a palette; with few colours, pixels share a byte */
            const uint32_t colors = read_bits(&bits, 8) + 1;
            pass_image(&bits, colors, &set, &largest);
            across = blocks(across, colors > 16 ? 0 : colors > 4 ? 1 : colors > 2 ? 2 : 3);
        }
    }
    const uint32_t cache_bits = read_cache_bits(&bits);
    uint64_t sets = 1;
    if (read_bits(&bits, 1) != 0) {
        const uint32_t side = read_bits(&bits, 3) + 2;
        const uint64_t pixels = blocks(across, side) * blocks(height, side);
        pass_image(&bits, pixels, &set, &largest);
        total += 4 * pixels;
        sets = (uint64_t)largest + 1;
        if (sets > MOST_DIRECT || sets > across * height) {
            total += sets * NUMBER_BYTES;
            sets = brim__min(sets, pixels);
        }
    }
    if (bits.status == BRIM_OK) {
        read_set(&bits, &set, cache_bits);
    }
    if (bits.status != BRIM_OK) {
        return bits.status;
    }
    /* If tables fill their memory to the last entry, libwebp allocates the same amount again. Codes
     * of at most two symbols never do that. */
    const uint64_t tables = table_entries(cache_bits) * ENTRY_BYTES * (set.simple ? 1 : 2);
    *taken = total + sets * (tables + SET_BYTES) + 4 * (across * height + 17 * (uint64_t)width);
    return BRIM_OK;
}

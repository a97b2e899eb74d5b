/*
 * lines_scan.c: finds records in files by their newlines.
 *
 * A file is walked once through a window that keeps no records. From one window to the next, the
 * walk only keeps where the record in progress began, whether it is inside quotes, and the last
 * byte (a \r before a
 * is part of the line end). So a record may be longer than any buffer.
 *
 * Bytes are processed in blocks of 64, with a bit for each byte. If quotes count, the bytes between
 * quotes are those at which the number of quotes so far is odd. Shifts and exclusive ors compute
 * this for all prefixes of the block at once. So many short lines or many quotes cost little more
 * than the bits that they set. If the result would open a quote in the middle of a field, that
 * quote is literal, and only then are the quotes of the block processed one by one.
 */
#include "source/lines_parts.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#define WINDOW_MOST  ((size_t)256 << 10)
#define WINDOW_LEAST ((size_t)4 << 10)

static const uint8_t byte_order_mark[3] = { 0xEF, 0xBB, 0xBF };

uint64_t brim__line_mark(const uint8_t *bytes, uint64_t count) {
    return count >= sizeof byte_order_mark &&
                   memcmp(bytes, byte_order_mark, sizeof byte_order_mark) == 0
               ? sizeof byte_order_mark
               : 0;
}

uint64_t brim__lines_options(const struct brim__line_format *format) {
    return brim__hash_words((uint64_t)format->quotes | (uint64_t)format->skip_blank << 1,
                            format->skip, format->delimiter);
}

/* ------------------------------------------------------------------ blocks */

#define BLOCK 64

/* Bit i: byte i of the block is `byte`. */
static inline uint64_t equal_bits(const uint8_t *block, uint8_t byte) {
    uint64_t bits = 0;
#if defined(__SSE2__)
    const __m128i wanted = _mm_set1_epi8((char)byte);
    for (unsigned i = 0; i < BLOCK; i += 16) {
        const __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)(block + i));
        const unsigned found = (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(bytes, wanted));
        bits |= (uint64_t)found << i;
    }
#else
    for (unsigned i = 0; i < BLOCK; i += 8) {
        uint64_t eight;
        memcpy(&eight, block + i, sizeof eight);
        eight ^= UINT64_C(0x0101010101010101) * byte;
        /* the high bit of each byte that is zero now; exact, no carries between bytes */
        const uint64_t low = UINT64_C(0x7f7f7f7f7f7f7f7f);
        eight = ~(((eight & low) + low) | eight | low);
        /* gathers the eight high bits, the first byte's lowest */
        bits |= ((eight >> 7) * UINT64_C(0x0102040810204080) >> 56) << i;
    }
#endif
    return bits;
}

/* Bit i: an odd number of bits is set up to i. */
static inline uint64_t parities(uint64_t bits) {
    for (unsigned shift = 1; shift < BLOCK; shift *= 2) {
        bits ^= bits << shift;
    }
    return bits;
}

/* The quotes that open or close, if some of them are literal. */
static uint64_t true_quotes(uint64_t quotes, uint64_t begins, bool inside) {
    uint64_t found = 0;
    for (; quotes != 0; quotes &= quotes - 1) {
        const uint64_t quote = quotes & (0 - quotes);
        /* directly after a closing quote: the two are a doubled quote */
        if (inside || (begins & quote) != 0 || (found & quote >> 1) != 0) {
            found |= quote;
            inside = !inside;
        }
    }
    return found;
}

/* Bit i: byte i is a newline that ends a record. The block has `count` bytes, and
 * zeros after them. */
static inline uint64_t newline_bits(const uint8_t *block, size_t count,
                                    const struct brim__line_format *format,
                                    struct brim__line_state *state) {
    const uint64_t newlines = equal_bits(block, '\n');
    if (!format->quotes) {
        return newlines;
    }
    const uint64_t last = UINT64_C(1) << (count - 1);
    uint64_t quotes = equal_bits(block, '"');
    uint64_t ends =
        format->delimiter == 0 ? UINT64_MAX : newlines | equal_bits(block, format->delimiter);
    if (quotes == 0) {
        state->within = (ends & last) == 0;
        return state->inside ? 0 : newlines;
    }
    const uint64_t begins = ends << 1 | (state->within ? 0 : 1);
    const uint64_t before = state->inside ? UINT64_MAX : 0;
    uint64_t inside = parities(quotes) ^ before;
    if ((quotes & inside & ~(begins | quotes << 1)) != 0) { /* one opens inside a field */
        quotes = true_quotes(quotes, begins, state->inside);
        inside = parities(quotes) ^ before;
    }
    ends |= quotes & ~inside; /* directly after a closing quote a quote counts */
    state->inside = (inside & last) != 0;
    state->within = (ends & last) == 0;
    return newlines & ~inside;
}

const uint8_t *brim__line_end(const uint8_t *from, const uint8_t *end,
                              const struct brim__line_format *format,
                              struct brim__line_state *state) {
    while (from < end) {
        const size_t count = (size_t)brim__min((uint64_t)(end - from), BLOCK);
        uint8_t rest[BLOCK] = { 0 };
        const uint8_t *block = from;
        if (count < BLOCK) {
            memcpy(rest, from, count);
            block = rest;
        }
        const uint64_t newlines = newline_bits(block, count, format, state);
        if (newlines != 0) {
            *state = (struct brim__line_state){ 0 };
            return from + __builtin_ctzll(newlines);
        }
        from += count;
    }
    return NULL;
}

/* -------------------------------------------------------------------- walk */

struct walk {
    const struct brim__file *file;
    uint8_t *window; /* the byte before it holds the last one of the window before */
    size_t window_bytes;
    const uint8_t *end;   /* of what the window holds; zeros after it */
    const uint8_t *block; /* the one that is looked at ... */
    uint64_t newlines;    /* ... and those in it that are still to come */
    uint64_t base;        /* the window's byte in the file */
    uint64_t record;      /* where the record in progress began */
    const struct brim__line_format *format;
    struct brim__line_state state; /* after the block */
    uint8_t *memory;
};

static brim_status walk_begin(struct walk *walk, const struct brim__lines *lines,
                              const struct brim__file *file) {
    brim_budget *budget = lines->opening->arena->budget;
    const size_t wanted = brim__index_buffer(lines->opening, 4, WINDOW_LEAST, WINDOW_MOST);
    brim_status status;
    *walk = (struct walk){ .file = file, .format = &lines->format };
    walk->window_bytes = (size_t)brim__min(wanted, file->bytes);
    walk->memory = brim__alloc(budget, BRIM__CACHE_LINE + walk->window_bytes + BLOCK, &status);
    if (walk->memory == NULL) {
        return brim__fail_within(status, "looking for lines in %s", file->path);
    }
    walk->window = walk->memory + BRIM__CACHE_LINE;
    walk->end = walk->window;
    walk->block = walk->window;
    return BRIM_OK;
}

static void walk_end(struct walk *walk) {
    brim__free(walk->memory);
}

/* Finds the newlines of the block. */
static inline void look_at(struct walk *walk) {
    const uint64_t count = brim__min((uint64_t)(walk->end - walk->block), BLOCK);
    walk->newlines = newline_bits(walk->block, (size_t)count, walk->format, &walk->state);
}

/* The next part of the file; *more is false at its end. */
static brim_status walk_on(struct walk *walk, bool *more) {
    assert(walk->window != NULL);
    const size_t held = (size_t)(walk->end - walk->window);
    if (held > 0) {
        walk->window[-1] = walk->end[-1];
        walk->base += held;
    }
    const size_t next = (size_t)brim__min(walk->window_bytes, walk->file->bytes - walk->base);
    *more = next > 0;
    const brim_status status = brim__file_read(walk->file, walk->base, walk->window, next);
    walk->end = walk->window + next;
    memset(walk->window + next, 0, BLOCK);
    walk->block = walk->window;
    if (status == BRIM_OK && walk->base == 0) {
        walk->record = brim__line_mark(walk->window, next);
        walk->block += walk->record;
    }
    if (walk->block < walk->end) {
        look_at(walk);
    }
    return status;
}

/* The next record, blank ones too. *found is false when no more is in the
 * window. */
static inline void walk_next(struct walk *walk, uint64_t *offset, uint64_t *length, bool *found) {
    while (walk->newlines == 0) {
        if ((size_t)(walk->end - walk->block) <= BLOCK) {
            *found = false;
            return;
        }
        walk->block += BLOCK;
        look_at(walk);
    }
    const uint8_t *newline = walk->block + __builtin_ctzll(walk->newlines);
    walk->newlines &= walk->newlines - 1;
    *found = true;
    const uint64_t at = walk->base + (uint64_t)(newline - walk->window);
    *offset = walk->record;
    *length = at - walk->record;
    if (*length > 0 && newline[-1] == '\r') {
        --*length;
    }
    walk->record = at + 1;
}

/* The record after the last newline, if there is one. */
static bool walk_last(const struct walk *walk, uint64_t *offset, uint64_t *length) {
    *offset = walk->record;
    *length = walk->file->bytes - brim__min(walk->record, walk->file->bytes);
    return *length > 0;
}

/* ------------------------------------------------------------------- index */

brim_status brim__lines_scan(void *self, const struct brim__file *data,
                             struct brim__index_writer *writer) {
    const struct brim__lines *lines = self;
    const bool skip_blank = lines->format.skip_blank;
    uint64_t to_skip = lines->format.skip;
    struct brim__index_entry entry = { 0 };
    struct walk walk;
    bool found, more = true;
    brim_status status = walk_begin(&walk, lines, data);
    if (status != BRIM_OK) {
        return status;
    }
    while (status == BRIM_OK && more) {
        walk_next(&walk, &entry.offset, &entry.length, &found);
        if (!found) {
            status = brim__index_progress(writer, walk.base);
            if (status == BRIM_OK) {
                status = walk_on(&walk, &more);
            }
        }
        if (status == BRIM_OK && !more) {
            found = walk_last(&walk, &entry.offset, &entry.length);
        }
        if (status != BRIM_OK || !found || (skip_blank && entry.length == 0)) {
            continue;
        }
        if (to_skip > 0) {
            to_skip--;
            continue;
        }
        status = brim__index_add(writer, &entry);
    }
    walk_end(&walk);
    return status;
}

/* -------------------------------------------------------------------- peek */

brim_status brim__lines_peek_file(struct brim__lines *lines, uint64_t number, uint8_t **bytes,
                                  uint64_t *length) {
    const struct brim__file *file = &lines->files->part[0].file;
    uint64_t offset = 0, seen = 0;
    struct walk walk;
    bool found = false, more = true;
    brim_status status = walk_begin(&walk, lines, file);
    if (status != BRIM_OK) {
        return status;
    }
    while (status == BRIM_OK && more) {
        walk_next(&walk, &offset, length, &found);
        if (!found) {
            status = walk_on(&walk, &more);
        }
        if (status == BRIM_OK && !more) {
            found = walk_last(&walk, &offset, length);
        }
        if (found && !(lines->format.skip_blank && *length == 0) && seen++ == number) {
            break;
        }
        found = false;
    }
    walk_end(&walk);
    if (status != BRIM_OK || !found) {
        return status != BRIM_OK ? status : BRIM_STATUS_END;
    }
    status = brim__lines_keep(lines, *length, bytes);
    return status == BRIM_OK ? brim__file_read(file, offset, *bytes, *length) : status;
}

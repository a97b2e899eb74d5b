/*
 * jpeg_rough.c: skipping coefficients; see jpeg_rough.h.
 *
 * A code is looked up by the next 11 bits. The entry has the number of bits that code and number
 * take together, and the number of coefficients. Longer codes, which are rare, are found by
 * comparing with the largest code of each length. To skip coefficients, the next 12 bits are looked
 * up, and the entry covers all complete codes and numbers in them, so that several coefficients
 * cost one lookup and one shift. Near the end of a block that could pass the end, so coefficients
 * are skipped one at a time.
 *
 * Bits are read ahead into a word. Reading stops at a marker; further bits are zeros. `count` goes
 * below 0 when bits are used that the file does not have. This is checked once for each block.
 */
#include "image/jpeg_rough.h"

#define LOOK 11
/* An entry: bits of code and number together | coefficients | bits of the number. */
#define LEN_BITS   5
#define LEN_MASK   ((1u << LEN_BITS) - 1)
#define RUN_BITS   7
#define RUN_MASK   ((1u << RUN_BITS) - 1)
#define SIZE_SHIFT (LEN_BITS + RUN_BITS)
#define END        64 /* coefficients: no more in this block */
/* An entry for several: their bits | their coefficients | whether the block ends with them. */
#define LEAP       12
#define LEAP_END   (1u << (LEN_BITS + RUN_BITS))
#define LONGEST    16
#define COMPONENTS 3
#define SLOPES     5 /* up to the last one of the lowest 2 x 2 */

struct table {
    bool first;                  /* of first coefficients; else of all others */
    uint16_t entry[1 << LOOK];   /* 0: a longer code, or none */
    uint16_t leap[1 << LEAP];    /* of other than first ones; 0: none fits */
    int32_t most[LONGEST + 1];   /* largest code of a length, or -1 */
    int32_t offset[LONGEST + 1]; /* from a code to its place in `value` */
    const uint8_t *value;
};

struct reader {
    struct brim__input *input;
    const uint8_t *at, *end;
    uint64_t bits; /* the next one is the highest */
    int count;     /* of them; below 0: more than there were */
    bool marker;   /* or the end; nothing more can be read */
    brim_status status;
};

struct component {
    const struct table *first, *rest;
    const UINT16 *quantum;
    int32_t mean;
    int32_t slope[SLOPES]; /* the coefficients after it, in the order of the file */
    uint32_t h, v;         /* blocks in an MCU */
    uint8_t *rows;         /* of a row of MCUs */
    uint32_t width;        /* of each */
};

/* ------------------------------------------------------------------ tables */

/* The entry of a code: bits of its number, and how many coefficients it covers. */
static uint32_t entry_of(const struct table *table, uint32_t length, uint8_t value) {
    const uint32_t bits = value & 15, run = value >> 4;
    if (table->first) {
        return (length + bits) | 1u << LEN_BITS | bits << SIZE_SHIFT;
    }
    const uint32_t coefficients = bits != 0 ? run + 1 : run == 15 ? 16 : END;
    return (length + bits) | coefficients << LEN_BITS | bits << SIZE_SHIFT;
}

/* false: libjpeg would not accept the table. */
static bool make_table(struct table *table, const JHUFF_TBL *from, bool first) {
    int32_t code = 0, place = 0;
    memset(table->entry, 0, sizeof table->entry);
    table->first = first;
    table->value = from->huffval;
    for (uint32_t length = 1; length <= LONGEST; length++) {
        const int32_t codes = from->bits[length];
        if (place + codes > 256 || code + codes > 1 << length) {
            return false;
        }
        table->offset[length] = place - code;
        for (int32_t i = 0; i < codes; i++, code++, place++) {
            const uint8_t value = from->huffval[place];
            if (first && value > 15) {
                return false;
            }
            if (length <= LOOK) {
                const uint32_t spare = LOOK - length;
                const uint16_t entry = (uint16_t)entry_of(table, length, value);
                for (uint32_t k = 0; k < 1u << spare; k++) {
                    table->entry[((uint32_t)code << spare) + k] = entry;
                }
            }
        }
        table->most[length] = codes > 0 ? code - 1 : -1;
        code <<= 1;
    }
    return true;
}

/* Fills `leap`: for all LEAP bits, the complete codes in them, with their numbers. */
static void make_leaps(struct table *table) {
    for (uint32_t bits = 0; bits < 1u << LEAP; bits++) {
        uint32_t length = 0, coefficients = 0, end = 0;
        while (end == 0) {
            const uint32_t rest = bits << length & ((1u << LEAP) - 1);
            const uint32_t entry = table->entry[rest >> (LEAP - LOOK)];
            const uint32_t run = entry >> LEN_BITS & RUN_MASK;
            if (entry == 0 || length + (entry & LEN_MASK) > LEAP) {
                break;
            }
            length += entry & LEN_MASK;
            end = run == END ? LEAP_END : 0;
            coefficients += end != 0 ? 0 : run;
        }
        table->leap[bits] =
            coefficients > RUN_MASK ? 0 : (uint16_t)(length | coefficients << LEN_BITS | end);
    }
}

/* ----------------------------------------------------------------- reading */

static bool next_piece(struct reader *reader) {
    const uint8_t *data;
    size_t bytes;
    reader->status = brim__input_next(reader->input, &data, &bytes);
    if (reader->status != BRIM_OK || bytes == 0) {
        reader->marker = true;
        return false;
    }
    reader->at = data;
    reader->end = data + bytes;
    return true;
}

/* Reads byte by byte, near an FF or the end of the piece. */
static void fill_slowly(struct reader *reader) {
    while (reader->count <= 56 && !reader->marker) {
        if (reader->at == reader->end && !next_piece(reader)) {
            return;
        }
        const uint8_t byte = *reader->at++;
        if (byte == 0xff) {
            for (;; reader->at++) { /* any number of FFs may precede a marker */
                if (reader->at == reader->end && !next_piece(reader)) {
                    return;
                }
                if (*reader->at != 0xff) {
                    break;
                }
            }
            if (*reader->at != 0) {
                reader->marker = true;
                return;
            }
            reader->at++;
        }
        reader->bits |= (uint64_t)byte << (56 - reader->count);
        reader->count += 8;
    }
}

/* Reads until there are at least 57 bits, or the data ends. */
static inline void fill(struct reader *reader) {
    if (reader->marker) {
        return;
    }
    if (reader->end - reader->at >= 8) {
        uint64_t word;
        memcpy(&word, reader->at, sizeof word);
        const uint64_t ones = UINT64_C(0x0101010101010101);
        if (((~word - ones) & word & (ones << 7)) == 0) { /* no byte is FF */
            /* bits beyond `count` belong to bytes not counted yet: they are read again, with the
             * same values */
            reader->bits |= __builtin_bswap64(word) >> reader->count;
            reader->at += (63 - reader->count) >> 3;
            reader->count |= 56;
            return;
        }
    }
    fill_slowly(reader);
}

static inline void drop(struct reader *reader, uint32_t bits) {
    reader->bits <<= bits;
    reader->count -= (int)bits;
}

/* A code of more than LOOK bits, as an entry; 0: there is none. */
static uint32_t find_long(const struct table *table, uint64_t bits) {
    for (uint32_t length = LOOK + 1; length <= LONGEST; length++) {
        const int32_t code = (int32_t)(bits >> (64 - length));
        if (code <= table->most[length]) {
            return entry_of(table, length, table->value[code + table->offset[length]]);
        }
    }
    return 0;
}

static inline uint32_t look(const struct table *table, uint64_t bits) {
    const uint32_t entry = table->entry[bits >> (64 - LOOK)];
    return BRIM__UNLIKELY(entry == 0) ? find_long(table, bits) : entry;
}

/* The number after a code, whose entry was looked up in `bits`. */
static inline int32_t number_of(uint32_t entry, uint64_t bits) {
    const uint32_t size = entry >> SIZE_SHIFT;
    if (size == 0) {
        return 0;
    }
    const int32_t number = (int32_t)(bits << ((entry & LEN_MASK) - size) >> (64 - size));
    return number < 1 << (size - 1) ? number - (1 << size) + 1 : number;
}

static inline uint32_t advance(uint32_t entry) {
    return entry >> LEN_BITS & RUN_MASK;
}

/* Reads a block: its mean, and for `quarter` the three slopes next to it; skips the rest. false: no
 * valid code, or no more data. */
static inline bool pass_block(struct reader *reader, struct component *component, bool quarter) {
    fill(reader);
    uint32_t entry = look(component->first, reader->bits);
    if (BRIM__UNLIKELY(entry == 0)) {
        return false;
    }
    component->mean =
        (int32_t)((uint32_t)component->mean + (uint32_t)number_of(entry, reader->bits));
    drop(reader, entry & LEN_MASK);
    uint32_t k = 1;
    if (quarter) {
        memset(component->slope, 0, sizeof component->slope);
        while (k < SLOPES) {
            if (reader->count < 32) {
                fill(reader);
            }
            entry = look(component->rest, reader->bits);
            if (BRIM__UNLIKELY(entry == 0)) {
                return false;
            }
            k += advance(entry);
            if (k <= SLOPES) {
                component->slope[k - 1] = number_of(entry, reader->bits);
            }
            drop(reader, entry & LEN_MASK);
        }
    }
    while (k < 64) {
        if (reader->count < 32) {
            fill(reader);
        }
        const uint32_t leap = component->rest->leap[reader->bits >> (64 - LEAP)];
        if (leap != 0 && k + advance(leap) < 64) {
            drop(reader, leap & LEN_MASK);
            k += advance(leap);
            if ((leap & LEAP_END) != 0) {
                break;
            }
            continue;
        }
        entry = look(component->rest, reader->bits);
        if (BRIM__UNLIKELY(entry == 0)) {
            return false;
        }
        k += advance(entry);
        drop(reader, entry & LEN_MASK);
    }
    return reader->count >= 0;
}

/* Reads the marker between restart intervals. */
static bool pass_restart(struct reader *reader, uint32_t number) {
    drop(reader, reader->count > 0 ? (uint32_t)reader->count % 8 : 0);
    fill_slowly(reader);
    if (!reader->marker || reader->count != 0 || reader->at == reader->end ||
        *reader->at != 0xd0 + number % 8) {
        return false;
    }
    reader->at++;
    reader->bits = 0;
    reader->marker = false;
    return true;
}

/* --------------------------------------------------------------- the image */

static uint8_t clamp(int32_t value) {
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

/* libjpeg keeps coefficients in 16 bits. */
static int32_t scaled(int32_t coefficient, UINT16 quantum) {
    return (int16_t)coefficient * quantum;
}

/* The mean of all pixels of the block. */
static void put_one(const struct component *component, uint8_t *to) {
    to[0] = clamp(((scaled(component->mean, component->quantum[0]) + 4) >> 3) + 128);
}

/* The means of the block's quarters. The mean of a half has 0.906 of the height of a slope across
 * the block. In the order of the file, the slopes are right, down, one that is not used, and
 * both. */
static void put_four(const struct component *component, uint8_t *to, size_t stride) {
    const int64_t mean = (int64_t)scaled(component->mean, component->quantum[0]) * 128;
    const int64_t x = (int64_t)scaled(component->slope[1], component->quantum[1]) * 116;
    const int64_t y = (int64_t)scaled(component->slope[2], component->quantum[8]) * 116;
    const int64_t xy = (int64_t)scaled(component->slope[4], component->quantum[9]) * 105;
    const int64_t round = 512 + (128 << 10);
    to[0] = clamp((int32_t)((mean + x + y + xy + round) >> 10));
    to[1] = clamp((int32_t)((mean - x + y - xy + round) >> 10));
    to[stride] = clamp((int32_t)((mean + x - y - xy + round) >> 10));
    to[stride + 1] = clamp((int32_t)((mean - x - y + xy + round) >> 10));
}

/* All blocks of a row of MCUs. */
static bool pass_row(struct reader *reader, struct component *components, uint32_t count,
                     uint32_t mcus, uint32_t interval, uint64_t done, uint32_t side) {
    for (uint32_t mcu = 0; mcu < mcus; mcu++) {
        if (interval != 0 && done + mcu != 0 && (done + mcu) % interval == 0) {
            if (!pass_restart(reader, (uint32_t)((done + mcu) / interval - 1))) {
                return false;
            }
            for (uint32_t c = 0; c < count; c++) {
                components[c].mean = 0;
            }
        }
        for (uint32_t c = 0; c < count; c++) {
            struct component *component = &components[c];
            for (uint32_t y = 0; y < component->v; y++) {
                uint8_t *to = component->rows + (size_t)y * side * component->width +
                              (size_t)mcu * component->h * side;
                for (uint32_t x = 0; x < component->h; x++, to += side) {
                    if (BRIM__UNLIKELY(!pass_block(reader, component, side == 2))) {
                        return false;
                    }
                    if (side == 2) {
                        put_four(component, to, component->width);
                    } else {
                        put_one(component, to);
                    }
                }
            }
        }
    }
    return true;
}

/* Makes one row of the picture from luminance and, if present, chrominance: 4-byte pixels, or their
 * gray. */
static void color_row(const struct component *components, uint32_t count, uint32_t y, uint32_t x,
                      uint32_t width, bool gray, uint8_t *to) {
    const uint8_t *luma = components[0].rows + (size_t)y * components[0].width;
    const size_t chroma = count == 1 ? 0 : y / components[0].v * (size_t)components[1].width;
    for (uint32_t i = x; i < x + width; i++) {
        const int32_t value = luma[i];
        const size_t at = chroma + i / components[0].h;
        const int32_t blue = count == 1 ? 0 : components[1].rows[at] - 128;
        const int32_t red = count == 1 ? 0 : components[2].rows[at] - 128;
        const uint8_t pixel[4] = { clamp(value + ((91881 * red + 32768) >> 16)),
                                   clamp(value + ((-22554 * blue - 46802 * red + 32768) >> 16)),
                                   clamp(value + ((116130 * blue + 32768) >> 16)), 255 };
        if (gray) {
            *to++ = brim__luma(pixel[0], pixel[1], pixel[2]);
        } else {
            memcpy(to, pixel, 4);
            to += 4;
        }
    }
}

bool brim__jpeg_is_rough(const struct jpeg_decompress_struct *jpeg,
                         const struct brim__decoding *decoding) {
    const int count = jpeg->num_components;
    bool fits = decoding->rough && decoding->scale >= 4 && !decoding->damaged &&
                !jpeg->progressive_mode && !jpeg->arith_code && jpeg->data_precision == 8 &&
                jpeg->comps_in_scan == count &&
                ((count == 1 && jpeg->jpeg_color_space == JCS_GRAYSCALE) ||
                 (count == 3 && jpeg->jpeg_color_space == JCS_YCbCr));
    for (int c = 0; fits && c < count; c++) {
        const jpeg_component_info *info = &jpeg->comp_info[c];
        const int most = c == 0 && count > 1 ? 2 : 1;
        fits = jpeg->cur_comp_info[c] == info &&
               (count == 1 || (info->h_samp_factor <= most && info->v_samp_factor <= most)) &&
               info->quant_tbl_no >= 0 && info->quant_tbl_no < NUM_QUANT_TBLS &&
               info->dc_tbl_no >= 0 && info->dc_tbl_no < NUM_HUFF_TBLS && info->ac_tbl_no >= 0 &&
               info->ac_tbl_no < NUM_HUFF_TBLS &&
               jpeg->quant_tbl_ptrs[info->quant_tbl_no] != NULL &&
               jpeg->dc_huff_tbl_ptrs[info->dc_tbl_no] != NULL &&
               jpeg->ac_huff_tbl_ptrs[info->ac_tbl_no] != NULL;
    }
    return fits;
}

static brim_status damaged(const struct reader *reader, const struct brim__decoding *decoding) {
    if (reader->status != BRIM_OK) {
        return reader->status;
    }
    return brim__fail(BRIM_STATUS_CORRUPT, "is a damaged JPEG: near byte %llu of %llu: %s",
                      (unsigned long long)brim__min(decoding->input->next, decoding->input->bytes),
                      (unsigned long long)decoding->input->bytes,
                      reader->count < 0 ? "its data end too early" : "its data are invalid");
}

brim_status brim__jpeg_rough(struct jpeg_decompress_struct *jpeg,
                             const struct brim__decoding *decoding, const uint8_t *data,
                             size_t bytes, brim__row_sink *sink, void *user) {
    const uint32_t count = (uint32_t)jpeg->num_components;
    assert(count > 0 && count <= COMPONENTS);
    struct component components[COMPONENTS];
    struct table firsts[COMPONENTS], rests[COMPONENTS];
    struct reader reader = { .input = decoding->input, .at = data, .end = data + bytes };
    const uint32_t h = count == 1 ? 1 : (uint32_t)jpeg->comp_info[0].h_samp_factor;
    const uint32_t v = count == 1 ? 1 : (uint32_t)jpeg->comp_info[0].v_samp_factor;
    const uint32_t mcus = (uint32_t)brim__divide_up(jpeg->image_width, 8 * h);
    const uint32_t side = 8 / decoding->scale; /* pixels of a block */
    const uint32_t rows = v * side;            /* of a row of MCUs */
    for (uint32_t c = 0; c < count; c++) {
        const jpeg_component_info *info = &jpeg->comp_info[c];
        components[c] = (struct component){
            .first = &firsts[c],
            .rest = &rests[c],
            .quantum = jpeg->quant_tbl_ptrs[info->quant_tbl_no]->quantval,
            .h = c == 0 ? h : 1,
            .v = c == 0 ? v : 1,
        };
        components[c].width = mcus * components[c].h * side;
        components[c].rows = brim__jpeg_memory_take(
            (j_common_ptr)jpeg, (size_t)components[c].width * components[c].v * side);
        if (c > 1 && info->dc_tbl_no == jpeg->comp_info[1].dc_tbl_no &&
            info->ac_tbl_no == jpeg->comp_info[1].ac_tbl_no) { /* as usual */
            components[c].first = &firsts[1];
            components[c].rest = &rests[1];
            continue;
        }
        if (!make_table(&firsts[c], jpeg->dc_huff_tbl_ptrs[info->dc_tbl_no], true) ||
            !make_table(&rests[c], jpeg->ac_huff_tbl_ptrs[info->ac_tbl_no], false)) {
            return brim__fail(BRIM_STATUS_CORRUPT,
                              "is a damaged JPEG: a table of codes is invalid");
        }
        make_leaps(&rests[c]);
    }
    uint8_t *line = brim__jpeg_memory_take((j_common_ptr)jpeg, (size_t)decoding->width * 4);
    const bool gray = brim__color_pixel(decoding->color) == 1;
    const uint32_t bottom = decoding->y + decoding->height;
    for (uint32_t row = 0; row * rows < bottom; row++) {
        if (brim__stopped(decoding->input->stop)) {
            return brim__interrupted();
        }
        if (!pass_row(&reader, components, count, mcus, jpeg->restart_interval,
                      (uint64_t)row * mcus, side)) {
            return damaged(&reader, decoding);
        }
        for (uint32_t y = row * rows; y < (row + 1) * rows && y < bottom; y++) {
            if (y < decoding->y) {
                continue;
            }
            const uint8_t *pixels = line;
            if (gray && count == 1) {
                pixels = components[0].rows + (size_t)(y - row * rows) * components[0].width +
                         decoding->x;
            } else {
                color_row(components, count, y - row * rows, decoding->x, decoding->width, gray,
                          line);
            }
            const brim_status status = sink(user, pixels, y - decoding->y);
            if (status != BRIM_OK) {
                return status;
            }
        }
    }
    return BRIM_OK;
}

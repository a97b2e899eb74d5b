/*
 * numbers.c: reading sample numbers from text or npy.
 *
 * Text has one number a line; blank lines and text after a # are ignored. It is read twice: once to
 * count and to find errors, once to keep the numbers; no memory is taken before the count is known.
 * An npy file must have one dimension and integers. Only the two keys of its header that decide
 * this are read.
 *
 * The fingerprint is that of the numbers as 64-bit integers, in blocks, so a
 * list has the same one as text and as npy of any type.
 */
#include "order/numbers.h"

#include "base/file.h"
#include "order/sort.h"

#define BUFFER_BYTES 16384
#define HEADER_BYTES 4096 /* longest npy header of a list */
#define BLOCK        512  /* numbers that are hashed together */

/* The destination of the numbers: they are only counted until there is a table. */
struct list {
    const char *path;
    uint64_t bound;
    uint64_t count;    /* so far */
    uint64_t capacity; /* of the table; 0: counting only */
    uint32_t *narrow;
    uint64_t *wide;
    bool ascending;
    uint64_t last;
    uint64_t hash;
    uint64_t block[BLOCK];
};

/* place, at: "line 7", "element 7", for messages. */
static brim_status put(struct list *list, uint64_t number, const char *place, uint64_t at) {
    if (number >= list->bound) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "%s: %s %llu: sample %llu, but before this stage there are %llu samples: "
                          "numbers go from 0 to %llu",
                          list->path, place, (unsigned long long)at, (unsigned long long)number,
                          (unsigned long long)list->bound, (unsigned long long)list->bound - 1);
    }
    const uint64_t i = list->count++;
    if (list->capacity == 0) {
        return BRIM_OK;
    }
    if (i >= list->capacity) {
        return brim__fail(BRIM_STATUS_CORRUPT, "%s: was changed while it was read", list->path);
    }
    if (list->narrow != NULL) {
        list->narrow[i] = (uint32_t)number;
    } else {
        list->wide[i] = number;
    }
    list->ascending = list->ascending && (i == 0 || number > list->last);
    list->last = number;
    list->block[i % BLOCK] = number;
    if (i % BLOCK == BLOCK - 1) {
        list->hash = brim__hash(list->block, sizeof list->block, list->hash);
    }
    return BRIM_OK;
}

/* Takes the table for `count` numbers. Numbers are stored from now on. */
static brim_status take_table(struct list *list, uint64_t count, struct brim__arena *arena) {
    const bool is_narrow = list->bound <= (uint64_t)1 << 32;
    uint64_t bytes;
    if (count == 0) {
        return brim__fail(BRIM_STATUS_INVALID, "%s: contains no numbers; name at least one sample",
                          list->path);
    }
    if (brim__mul_overflows(count, is_narrow ? 4 : 8, &bytes)) {
        bytes = UINT64_MAX; /* refused, with its size */
    }
    list->count = 0;
    list->capacity = count;
    list->ascending = true;
    return is_narrow ? brim__arena_take(arena, bytes, &list->narrow)
                     : brim__arena_take(arena, bytes, &list->wide);
}

/* -------------------------------------------------------------------- text */

struct reader {
    const struct brim__file *file;
    uint64_t offset; /* of what comes after the buffer */
    size_t at, filled;
    uint8_t buffer[BUFFER_BYTES];
};

/* *byte: the next one, or -1 at the end. */
static brim_status next_byte(struct reader *reader, int *byte) {
    if (reader->at == reader->filled) {
        const size_t bytes = brim__min(reader->file->bytes - reader->offset, BUFFER_BYTES);
        const brim_status status =
            brim__file_read(reader->file, reader->offset, reader->buffer, bytes);
        if (status != BRIM_OK) {
            return status;
        }
        reader->at = 0;
        reader->filled = bytes;
        reader->offset += bytes;
    }
    *byte = reader->filled == 0 ? -1 : reader->buffer[reader->at++];
    return BRIM_OK;
}

static bool is_space(int byte) {
    return byte == ' ' || byte == '\t' || byte == '\r';
}

static brim_status bad_line(const struct list *list, uint64_t line) {
    return brim__fail(BRIM_STATUS_INVALID,
                      "%s: line %llu: not one whole number of at least 0 (numpy.savetxt writes "
                      "such lines with fmt='%%d')",
                      list->path, (unsigned long long)line);
}

static brim_status walk_text(const struct brim__file *file, struct list *list) {
    struct reader reader;
    enum { BEFORE, INSIDE, AFTER, COMMENT } state = BEFORE;
    uint64_t number = 0, line = 1;
    bool has_number = false;
    int byte = 0;
    reader.file = file;
    reader.offset = 0;
    reader.at = reader.filled = 0;
    while (byte != -1) {
        brim_status status = next_byte(&reader, &byte);
        if (status != BRIM_OK) {
            return status;
        }
        if (byte == '\n' || byte == -1) {
            status = has_number ? put(list, number, "line", line) : BRIM_OK;
            if (status != BRIM_OK) {
                return status;
            }
            state = BEFORE;
            has_number = false;
            number = 0;
            line++;
        } else if (state == COMMENT || byte == '#') {
            state = COMMENT;
        } else if (is_space(byte)) {
            state = state == INSIDE ? AFTER : state;
        } else if (byte >= '0' && byte <= '9' && state != AFTER) {
            const uint64_t digit = (uint64_t)(byte - '0');
            number = number > (UINT64_MAX - digit) / 10 ? UINT64_MAX : number * 10 + digit;
            state = INSIDE;
            has_number = true;
        } else {
            return bad_line(list, line);
        }
    }
    return BRIM_OK;
}

static brim_status read_text(const struct brim__file *file, struct brim__arena *arena,
                             struct list *list) {
    brim_status status = walk_text(file, list);
    if (status == BRIM_OK) {
        status = take_table(list, list->count, arena);
    }
    return status == BRIM_OK ? walk_text(file, list) : status;
}

/* --------------------------------------------------------------------- npy */

struct npy {
    uint64_t count;
    uint64_t data; /* byte at which the elements begin */
    uint32_t bytes;
    bool is_signed, swapped;
};

/* The text after `key`, its quotes and its colon in the header; NULL if the key is missing. */
static const char *after_key(const char *text, const char *key) {
    const char *at = strstr(text, key);
    if (at == NULL) {
        return NULL;
    }
    at += strlen(key);
    at += *at == '\'' || *at == '"';
    at += strspn(at, " ");
    if (*at != ':') {
        return NULL;
    }
    at++;
    return at + strspn(at, " ");
}

/* 'descr': '<i8' */
static bool read_descr(const char *text, struct npy *npy) {
    const char *at = after_key(text, "descr");
    if (at == NULL || (at[0] != '\'' && at[0] != '"') || strchr("<>|", at[1]) == NULL ||
        at[1] == '\0' || (at[2] != 'i' && at[2] != 'u') || at[3] == '\0' ||
        strchr("1248", at[3]) == NULL || at[4] != at[0]) {
        return false;
    }
    npy->bytes = (uint32_t)(at[3] - '0');
    npy->is_signed = at[2] == 'i';
    npy->swapped = at[1] == '>';
    return true;
}

/* 'shape': (1000,) */
static bool read_shape(const char *text, uint64_t *count) {
    const char *at = after_key(text, "shape");
    if (at == NULL || *at != '(' || at[1] < '0' || at[1] > '9') {
        return false;
    }
    *count = 0;
    for (at++; *at >= '0' && *at <= '9'; at++) {
        if (brim__mul_overflows(*count, 10, count) ||
            brim__add_overflows(*count, (uint64_t)(*at - '0'), count)) {
            return false;
        }
    }
    at += *at == 'L'; /* Python 2 wrote it */
    return at[0] == ',' && at[1 + strspn(at + 1, " ")] == ')';
}

static brim_status read_npy_header(const struct brim__file *file, struct npy *npy) {
    uint8_t head[12] = { 0 };
    char text[HEADER_BYTES + 1];
    const size_t head_bytes = brim__min(file->bytes, sizeof head);
    brim_status status = brim__file_read(file, 0, head, head_bytes);
    if (status != BRIM_OK) {
        return status;
    }
    const bool is_long = head[6] > 1; /* version 2 has four bytes of length */
    const uint64_t begin = is_long ? 12 : 10;
    const uint64_t length = (uint64_t)head[8] | (uint64_t)head[9] << 8 |
                            (is_long ? (uint64_t)head[10] << 16 | (uint64_t)head[11] << 24 : 0);
    if (head[6] < 1 || head[6] > 3 || length > HEADER_BYTES || file->bytes < begin) {
        return brim__fail(BRIM_STATUS_CORRUPT,
                          "%s: byte 6: npy version %u with a header of %llu bytes; a list of "
                          "numbers has version 1 to 3 and at most %d bytes",
                          file->path, head[6], (unsigned long long)length, HEADER_BYTES);
    }
    status = brim__file_read(file, begin, text, length);
    if (status != BRIM_OK) {
        return status;
    }
    text[length] = '\0';
    npy->data = begin + length;
    if (!read_descr(text, npy) || !read_shape(text, &npy->count)) {
        return brim__fail(BRIM_STATUS_UNSUPPORTED,
                          "%s: byte %llu: a list of samples is an array of integers in one "
                          "dimension, which this is not; for a mask save numpy.flatnonzero(mask)",
                          file->path, (unsigned long long)begin);
    }
    uint64_t bytes;
    if (brim__mul_overflows(npy->count, npy->bytes, &bytes) || bytes > file->bytes - npy->data) {
        return brim__fail(BRIM_STATUS_CORRUPT,
                          "%s: byte %llu: the file ends, but it should have %llu numbers of %u "
                          "bytes from byte %llu on: it was cut short",
                          file->path, (unsigned long long)file->bytes,
                          (unsigned long long)npy->count, npy->bytes,
                          (unsigned long long)npy->data);
    }
    return BRIM_OK;
}

/* The element as a 64-bit integer; *negative: it is one below 0. */
static uint64_t element(const struct npy *npy, const uint8_t *bytes, bool *negative) {
    uint64_t value = 0;
    for (uint32_t i = 0; i < npy->bytes; i++) {
        const uint32_t shift = npy->swapped ? npy->bytes - 1 - i : i;
        value |= (uint64_t)bytes[i] << (8 * shift);
    }
    *negative = npy->is_signed && value >> (8 * npy->bytes - 1) != 0;
    return value;
}

static brim_status read_npy(const struct brim__file *file, struct brim__arena *arena,
                            struct list *list) {
    struct npy npy = { 0 };
    uint8_t buffer[BUFFER_BYTES];
    brim_status status = read_npy_header(file, &npy);
    if (status == BRIM_OK) {
        status = take_table(list, npy.count, arena);
    }
    for (uint64_t done = 0; status == BRIM_OK && done < npy.count;) {
        const uint64_t some = brim__min(npy.count - done, BUFFER_BYTES / npy.bytes);
        status = brim__file_read(file, npy.data + done * npy.bytes, buffer, some * npy.bytes);
        for (uint64_t i = 0; status == BRIM_OK && i < some; i++, done++) {
            bool negative;
            const uint64_t number = element(&npy, buffer + i * npy.bytes, &negative);
            status = negative ? brim__fail(BRIM_STATUS_INVALID,
                                           "%s: element %llu: negative; numbers go from 0 to %llu",
                                           file->path, (unsigned long long)done,
                                           (unsigned long long)list->bound - 1)
                              : put(list, number, "element", done);
        }
    }
    return status;
}

/* -------------------------------------------------------------------- both */

static brim_status read_numbers(const struct brim__file *file, struct brim__arena *arena,
                                struct list *list) {
    uint8_t magic[6] = { 0 };
    brim_status status = brim__file_read(file, 0, magic, brim__min(file->bytes, sizeof magic));
    if (status != BRIM_OK) {
        return status;
    }
    status = memcmp(magic, "\x93NUMPY", sizeof magic) == 0 ? read_npy(file, arena, list)
                                                           : read_text(file, arena, list);
    if (status == BRIM_OK && list->count != list->capacity) {
        status = brim__fail(BRIM_STATUS_CORRUPT, "%s: was changed while it was read", list->path);
    }
    return status;
}

brim_status brim__numbers_read(const char *path, uint64_t bound, struct brim__arena *arena,
                               const struct brim__numbers **numbers) {
    struct brim__file file;
    struct list list = { .path = path, .bound = bound };
    struct brim__numbers *kept;
    if (bound == 0) {
        return brim__fail(BRIM_STATUS_INVALID, "%s: there are no samples before this stage", path);
    }
    brim_status status = brim__file_open(&file, path);
    if (status == BRIM_OK) {
        status = read_numbers(&file, arena, &list);
        brim__file_close(&file);
    }
    if (status == BRIM_OK) {
        status = brim__arena_take(arena, sizeof *kept, &kept);
    }
    if (status != BRIM_OK) {
        return status;
    }
    *kept = (struct brim__numbers){
        .count = list.count,
        .narrow = list.narrow,
        .wide = list.wide,
        .ascending = list.ascending,
        .fingerprint = brim__hash_words(
            brim__hash(list.block, list.count % BLOCK * sizeof list.block[0], list.hash),
            list.count, 0),
    };
    *numbers = kept;
    return BRIM_OK;
}

brim_status brim__numbers_repeat(const struct brim__numbers *numbers, brim_budget *budget,
                                 bool *repeat) {
    brim_status status;
    *repeat = false;
    if (numbers->ascending) {
        return BRIM_OK;
    }
    uint64_t *sorted = brim__alloc(budget, numbers->count * sizeof *sorted, &status);
    if (sorted == NULL) {
        return status;
    }
    for (uint64_t i = 0; i < numbers->count; i++) {
        sorted[i] = brim__number_at(numbers, i);
    }
    brim__sort(sorted, numbers->count, sizeof *sorted, false);
    for (uint64_t i = 1; i < numbers->count && !*repeat; i++) {
        *repeat = sorted[i] == sorted[i - 1];
    }
    brim__free(sorted);
    return BRIM_OK;
}

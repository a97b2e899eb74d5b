/*
 * folder_sort.c: sorts any number of keys in bounded memory.
 *
 * Keys are collected in memory. When it is full, they are sorted and appended to a file as one run.
 * At the end runs are merged, as many at once as memory has chunks for, into longer runs at the end
 * of the same file, until one merge is left. That merge gives the keys to the caller.
 *
 *     memory while adding:   | length key | length key | ... free ... | places, and as many again |
 *     memory while merging:  | chunk of run 0 | chunk of run 1 | ...
 *     file:                  | bytes: run 0 | bytes: run 1 | ... | bytes: runs 0 to 63 merged | ...
 *
 * A run begins with its length in bytes, so no table of runs is needed. In memory, places are
 * sorted by merging from one half of their room to the other, which has no bad worst case and uses
 * no uncounted memory.
 */
#include "source/listing.h"

#define HEAD sizeof(uint32_t) /* before a key: its length */

void brim__sorter_init(struct brim__sorter *sorter, const char *path, uint8_t *memory, size_t bytes,
                       uint8_t *spill_buffer, size_t spill_room) {
    assert(bytes >= 2 * (size_t)BRIM__SORT_CHUNK && bytes <= UINT32_MAX && bytes % 64 == 0);
    memset(sorter, 0, sizeof *sorter);
    sorter->path = path;
    sorter->memory = memory;
    sorter->bytes = bytes;
    sorter->spill_buffer = spill_buffer;
    sorter->spill_room = spill_room;
}

void brim__sorter_reset(struct brim__sorter *sorter) {
    sorter->count = sorter->next = sorter->live = 0;
    sorter->used = 0;
    sorter->spilled = sorter->given = false;
    sorter->begin = brim__append_end(&sorter->spill);
    sorter->runs = 0;
}

void brim__sorter_fini(struct brim__sorter *sorter) {
    brim__append_abandon(&sorter->spill);
}

static int compare(const uint8_t *a, size_t a_length, const uint8_t *b, size_t b_length) {
    const int order = memcmp(a, b, a_length < b_length ? a_length : b_length);
    return order != 0 ? order : (a_length > b_length) - (a_length < b_length);
}

/* --------------------------------------------------------------- in memory */

static uint32_t length_at(const struct brim__sorter *sorter, uint32_t place) {
    uint32_t length;
    memcpy(&length, sorter->memory + place, sizeof length);
    return length;
}

static bool in_order(const struct brim__sorter *sorter, uint32_t a, uint32_t b) {
    return compare(sorter->memory + a + HEAD, length_at(sorter, a), sorter->memory + b + HEAD,
                   length_at(sorter, b)) <= 0;
}

/* Merges [first, middle) and [middle, end) of `from` into the same range of `to`. */
static void merge_halves(const struct brim__sorter *sorter, const uint32_t *from, uint32_t *to,
                         size_t first, size_t middle, size_t end) {
    size_t a = first, b = middle;
    for (size_t i = first; i < end; i++) {
        if (a < middle && (b >= end || in_order(sorter, from[a], from[b]))) {
            to[i] = from[a++];
        } else {
            to[i] = from[b++];
        }
    }
}

static void sort_memory(struct brim__sorter *sorter) {
    const size_t count = sorter->count;
    uint32_t *from = (uint32_t *)(void *)(sorter->memory + sorter->bytes) - count;
    uint32_t *to = from - count;
    for (size_t width = 1; width < count; width *= 2) {
        for (size_t i = 0; i < count; i += 2 * width) {
            merge_halves(sorter, from, to, i, brim__min(i + width, count),
                         brim__min(i + 2 * width, count));
        }
        uint32_t *swap = from;
        from = to;
        to = swap;
    }
    sorter->sorted = from;
}

/* -------------------------------------------------------------------- runs */

/* Writes the keys in memory as a run. */
static brim_status spill(struct brim__sorter *sorter) {
    brim_status status = BRIM_OK;
    if (sorter->spill.buffer == NULL) {
        status = brim__append_begin(&sorter->spill, sorter->path, true, sorter->spill_buffer,
                                    sorter->spill_room);
    }
    sort_memory(sorter);
    const uint64_t bytes = sorter->used;
    if (status == BRIM_OK) {
        status = brim__append_bytes(&sorter->spill, &bytes, sizeof bytes);
    }
    for (uint32_t i = 0; i < sorter->count && status == BRIM_OK; i++) {
        const uint32_t place = sorter->sorted[i];
        status = brim__append_bytes(&sorter->spill, sorter->memory + place,
                                    HEAD + length_at(sorter, place));
    }
    sorter->used = 0;
    sorter->count = 0;
    sorter->runs++;
    sorter->spilled = true;
    return status;
}

brim_status brim__sorter_add(struct brim__sorter *sorter, const void *key, size_t length) {
    assert(length + HEAD <= BRIM__SORT_CHUNK);
    const size_t places = 2 * sizeof(uint32_t) * ((size_t)sorter->count + 1);
    if (HEAD + length + places > sorter->bytes - sorter->used) {
        const brim_status status = spill(sorter);
        if (status != BRIM_OK) {
            return status;
        }
    }
    const uint32_t head = (uint32_t)length;
    uint8_t *to = sorter->memory + sorter->used;
    memcpy(to, &head, sizeof head);
    memcpy(to + HEAD, key, length);
    uint32_t *const end = (uint32_t *)(void *)(sorter->memory + sorter->bytes);
    *(end - 1 - sorter->count) = (uint32_t)sorter->used;
    sorter->used += HEAD + length;
    sorter->count++;
    return BRIM_OK;
}

/* ----------------------------------------------------------------- merging */

/* The next key of a stream; *live is false after its last. */
static brim_status advance(struct brim__sort_stream *stream, bool *live) {
    const uint8_t *data;
    *live = !brim__forward_done(&stream->reader);
    if (!*live) {
        return BRIM_OK;
    }
    brim_status status = brim__forward_peek(&stream->reader, HEAD, &data);
    if (status != BRIM_OK) {
        return status;
    }
    memcpy(&stream->length, data, sizeof stream->length);
    if (stream->length > stream->reader.room - HEAD) {
        return brim__fail(BRIM_STATUS_CORRUPT, "%s: a file beside it, of sorted names, was damaged",
                          stream->reader.file->path);
    }
    status = brim__forward_peek(&stream->reader, HEAD + stream->length, &data);
    if (status == BRIM_OK) {
        stream->key = data + HEAD;
        brim__forward_skip(&stream->reader, HEAD + stream->length);
    }
    return status;
}

static bool is_before(const struct brim__sorter *sorter, uint32_t a, uint32_t b) {
    const struct brim__sort_stream *x = &sorter->stream[a], *y = &sorter->stream[b];
    return compare(x->key, x->length, y->key, y->length) < 0;
}

/* Lets element i of the heap, whose smallest is the first, sink to its place. */
static void sink(struct brim__sorter *sorter, uint32_t i) {
    uint32_t *heap = sorter->heap;
    for (uint32_t child; (child = 2 * i + 1) < sorter->live; i = child) {
        if (child + 1 < sorter->live && is_before(sorter, heap[child + 1], heap[child])) {
            child++;
        }
        if (!is_before(sorter, heap[child], heap[i])) {
            return;
        }
        const uint32_t held = heap[i];
        heap[i] = heap[child];
        heap[child] = held;
    }
}

/* Opens the first `count` runs from byte *at on. Sets *at to the byte after them, and *bytes to the
 * sum of their lengths. */
static brim_status open_runs(struct brim__sorter *sorter, uint32_t count, uint64_t *at,
                             uint64_t *bytes) {
    const size_t chunk = sorter->bytes / count;
    sorter->live = 0;
    sorter->given = false;
    *bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct brim__sort_stream *stream = &sorter->stream[i];
        uint64_t run;
        bool live;
        brim_status status = brim__file_read(&sorter->spill.view, *at, &run, sizeof run);
        if (status != BRIM_OK) {
            return status;
        }
        *at += sizeof run;
        stream->reader = (struct brim__forward_reader){ .file = &sorter->spill.view,
                                                        .at = *at,
                                                        .end = *at + run,
                                                        .buffer = sorter->memory + i * chunk,
                                                        .room = chunk };
        *at += run;
        *bytes += run;
        status = advance(stream, &live);
        if (status != BRIM_OK) {
            return status;
        }
        if (live) {
            sorter->heap[sorter->live++] = i;
        }
    }
    for (uint32_t i = sorter->live / 2; i > 0; i--) {
        sink(sorter, i - 1);
    }
    return BRIM_OK;
}

static brim_status next_merged(struct brim__sorter *sorter, const struct brim__sort_stream **top) {
    if (sorter->given) {
        bool live;
        const brim_status status = advance(&sorter->stream[sorter->heap[0]], &live);
        if (status != BRIM_OK) {
            return status;
        }
        if (!live) {
            sorter->heap[0] = sorter->heap[--sorter->live];
        }
        sink(sorter, 0);
    }
    sorter->given = sorter->live > 0;
    if (!sorter->given) {
        return BRIM_STATUS_END;
    }
    *top = &sorter->stream[sorter->heap[0]];
    return BRIM_OK;
}

/* Merges runs into one at the end of the spill file. */
static brim_status merge_runs(struct brim__sorter *sorter, uint32_t count, uint64_t *at) {
    uint64_t bytes;
    brim_status status = open_runs(sorter, count, at, &bytes);
    if (status == BRIM_OK) {
        status = brim__append_bytes(&sorter->spill, &bytes, sizeof bytes);
    }
    while (status == BRIM_OK) {
        const struct brim__sort_stream *top;
        status = next_merged(sorter, &top);
        if (status == BRIM_OK) {
            /* in the chunk too, the length is before the key */
            status = brim__append_bytes(&sorter->spill, top->key - HEAD, HEAD + top->length);
        }
    }
    return status == BRIM_STATUS_END ? BRIM_OK : status;
}

brim_status brim__sorter_sort(struct brim__sorter *sorter) {
    if (!sorter->spilled) {
        sort_memory(sorter);
        return BRIM_OK;
    }
    const uint64_t fan = brim__min(BRIM__SORT_FAN, sorter->bytes / BRIM__SORT_CHUNK);
    brim_status status = sorter->count > 0 ? spill(sorter) : BRIM_OK;
    if (status == BRIM_OK) {
        status = brim__append_flush(&sorter->spill);
    }
    while (status == BRIM_OK && sorter->runs > fan) {
        const uint64_t begin = sorter->spill.view.bytes;
        uint64_t at = sorter->begin, merged = 0;
        for (uint64_t left = sorter->runs; left > 0 && status == BRIM_OK; merged++) {
            const uint64_t count = brim__min(left, fan);
            status = merge_runs(sorter, (uint32_t)count, &at);
            left -= count;
        }
        if (status == BRIM_OK) {
            status = brim__append_flush(&sorter->spill);
        }
        sorter->begin = begin;
        sorter->runs = merged;
    }
    uint64_t at = sorter->begin, bytes;
    return status == BRIM_OK ? open_runs(sorter, (uint32_t)sorter->runs, &at, &bytes) : status;
}

brim_status brim__sorter_next(struct brim__sorter *sorter, const uint8_t **key, size_t *length) {
    if (sorter->spilled) {
        const struct brim__sort_stream *top;
        const brim_status status = next_merged(sorter, &top);
        if (status == BRIM_OK) {
            *key = top->key;
            *length = top->length;
        }
        return status;
    }
    if (sorter->next == sorter->count) {
        return BRIM_STATUS_END;
    }
    const uint32_t place = sorter->sorted[sorter->next++];
    *key = sorter->memory + place + HEAD;
    *length = length_at(sorter, place);
    return BRIM_OK;
}

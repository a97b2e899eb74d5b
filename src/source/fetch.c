/*
 * fetch.c: the common part of all sources that read files: fetching samples from their ranges, and
 * announcing the next ranges to the system.
 *
 * Ranges that lie near each other are read with one read, gaps included:
 *
 *     file:  ... | range 0 | gap | range 1 | range 2 | ...     far away | range 3 |
 *                |<---------- one read --------------->|
 *
 * If parsing may write after a range, the next range must leave that room. So the ranges of a
 * forged index can give wrong bytes, but never bytes outside the buffer.
 */
#include "source/source.h"

#define MOST_GAP 4096 /* bytes that cost less to read than another call */

/* How many of `count` ranges are read together, in at most `room` bytes with the margin. *bytes:
 * from the first to the last. */
static size_t count_together(const struct brim__source *source,
                             const struct brim__file_range *ranges, size_t count, uint64_t room,
                             uint64_t *bytes) {
    const uint64_t begin = ranges[0].offset, margin = source->range_margin;
    uint64_t end = begin + ranges[0].bytes;
    size_t n = 1;
    for (; n < count && ranges[n].file == ranges[0].file; n++) {
        const uint64_t next = ranges[n].offset;
        if (next < end + margin || next - end > MOST_GAP ||
            next + ranges[n].bytes - begin > room - margin) {
            break;
        }
        end = next + ranges[n].bytes;
    }
    *bytes = end - begin;
    return n;
}

static brim_status read_bytes(const struct brim__file_range *range, uint64_t bytes, uint8_t *to) {
    if (range->memory != NULL) {
        memcpy(to, range->memory, (size_t)bytes);
        return BRIM_OK;
    }
    return brim__file_read(range->file, range->offset, to, (size_t)bytes);
}

/* Fetches for a source without `parse`: the bytes are the records. */
static brim_status fetch_plain(const struct brim__source *source, uint64_t sample, uint64_t count,
                               uint8_t *buffer, const uint8_t **records, uint64_t *got) {
    struct brim__file_range range;
    size_t found;
    const brim_status status = source->ops->locate(source, sample, count, &range, 1, &found);
    if (status != BRIM_OK) {
        return status;
    }
    *got = range.samples;
    if (source->in_memory) {
        *records = range.memory;
        return BRIM_OK;
    }
    /* also if these bytes are in memory: others are read into the buffer */
    *records = buffer;
    return read_bytes(&range, range.bytes, buffer);
}

static brim_status fetch_parsed(const struct brim__source *source, uint64_t sample, uint64_t count,
                                uint8_t *records, uint8_t *bytes, uint64_t *got) {
    struct brim__file_range ranges[BRIM__MOST_RANGES];
    size_t found, together = 0, n = 0;
    uint64_t length;
    brim_status status =
        source->ops->locate(source, sample, count, ranges, BRIM__COUNT(ranges), &found);
    if (status == BRIM_OK) {
        assert(ranges[0].bytes + source->range_margin <= source->range_bytes);
        together = count_together(source, ranges, found, source->range_bytes, &length);
        status = read_bytes(&ranges[0], length, bytes);
    }
    uint8_t *const work = bytes + source->range_bytes;
    while (status == BRIM_OK && n < together) {
        status =
            source->ops->parse(source, &ranges[n], bytes + (ranges[n].offset - ranges[0].offset),
                               records + n * source->pitch, work + n * source->work_bytes);
        n += status == BRIM_OK;
    }
    *got = n;
    return n > 0 ? BRIM_OK : status;
}

brim_status brim__source_fetch(const struct brim__source *source, const brim_call *call,
                               uint64_t count, uint8_t *buffer, const uint8_t **records,
                               uint64_t *got) {
    assert(call->sample < source->count && count > 0);
    const uint64_t run = brim__min(count, source->most_run);
    if (source->ops->parse == NULL) {
        return fetch_plain(source, call->sample, run, buffer, records, got);
    }
    *records = buffer;
    return fetch_parsed(source, call->sample, run, buffer,
                        buffer + brim__source_extra(source, count), got);
}

void brim__source_advise(const struct brim__source *source, uint64_t sample, uint64_t count) {
    struct brim__file_range ranges[BRIM__MOST_RANGES];
    if (source->ops->locate == NULL || source->no_read_ahead) {
        return;
    }
    assert(sample < source->count);
    const uint64_t end = sample + brim__min(count, source->count - sample);
    while (sample < end) {
        size_t found, together;
        if (source->ops->locate(source, sample, end - sample, ranges, BRIM__COUNT(ranges),
                                &found) != BRIM_OK) {
            sample++; /* fetching it will report the error */
            continue;
        }
        for (size_t i = 0; i < found; i += together) {
            uint64_t bytes;
            together = count_together(source, &ranges[i], found - i, UINT64_MAX, &bytes);
            if (ranges[i].file->fd >= 0) {
                brim__file_advise(ranges[i].file, ranges[i].offset, (size_t)bytes);
            }
            for (size_t k = i; k < i + together; k++) {
                sample += ranges[k].samples;
            }
        }
    }
}

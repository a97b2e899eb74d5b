/*
 * arrays_util.h: what the tests of npz, idx, cifar and records share.
 *
 * Bytes that grow, compressed copies of them, sources opened inside a budget,
 * and what every file format must survive: being cut at any byte, flipped bytes,
 * and a system that refuses.
 */
#ifndef BRIM_TESTS_ARRAYS_UTIL_H
#define BRIM_TESTS_ARRAYS_UTIL_H

#include "source_util.h"

#include "base/fault.h"

#include <zlib.h>

/* ---------------------------------------------------------------- bytes */

struct bytes {
    uint8_t *data;
    size_t count, capacity;
};

static inline void add(struct bytes *bytes, const void *more, size_t count) {
    if (bytes->count + count > bytes->capacity) {
        bytes->capacity = 2 * (bytes->count + count);
        bytes->data = realloc(bytes->data, bytes->capacity);
        assert_non_null(bytes->data);
    }
    if (count > 0) {
        memcpy(bytes->data + bytes->count, more, count);
    }
    bytes->count += count;
}

static inline void add_text(struct bytes *bytes, const char *text) {
    add(bytes, text, strlen(text));
}

/* The low `count` bytes of a number, little-endian. */
static inline void add_number(struct bytes *bytes, uint64_t number, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const uint8_t byte = (uint8_t)(i < 8 ? number >> (8 * i) : 0);
        add(bytes, &byte, 1);
    }
}

static inline void add_big(struct bytes *bytes, uint64_t number, size_t count) {
    for (size_t i = count; i-- > 0;) {
        const uint8_t byte = (uint8_t)(number >> (8 * i));
        add(bytes, &byte, 1);
    }
}

static inline void write_bytes(const char *path, const struct bytes *bytes) {
    write_file(path, bytes->data, bytes->count);
}

enum { RAW_DEFLATE = -MAX_WBITS, GZIP = 16 + MAX_WBITS };

static inline struct bytes compressed(const void *data, size_t count, int window_bits) {
    z_stream zlib = { 0 };
    assert_int_equal(deflateInit2(&zlib, 6, Z_DEFLATED, window_bits, 8, Z_DEFAULT_STRATEGY), Z_OK);
    struct bytes result = { 0 };
    result.capacity = deflateBound(&zlib, count) + 64;
    result.data = malloc(result.capacity);
    assert_non_null(result.data);
    zlib.next_in = (Bytef *)(uintptr_t)data;
    zlib.avail_in = (uInt)count;
    zlib.next_out = result.data;
    zlib.avail_out = (uInt)result.capacity;
    assert_int_equal(deflate(&zlib, Z_FINISH), Z_STREAM_END);
    result.count = result.capacity - zlib.avail_out;
    assert_int_equal(deflateEnd(&zlib), Z_OK);
    return result;
}

/* -------------------------------------------------------------- budgets */

/* Opens inside a budget of `limit` bytes; close_within checks that what was
 * charged never passed it and has come back. */
struct within {
    brim_budget *budget;
    uint64_t limit, before;
    struct opened opened;
};

static inline uint64_t charged_to(brim_budget *budget, uint64_t *peak) {
    brim_budget_info info = BRIM_BUDGET_INFO_INIT;
    assert_int_equal(brim_budget_read(budget, BRIM_MEMORY_HOST, &info), BRIM_OK);
    if (peak != NULL) {
        *peak = info.peak;
    }
    return info.charged;
}

static inline brim_status open_within(struct within *within, const struct test_use *use,
                                      uint64_t limit) {
    const uint64_t limits[BRIM_MEMORY_KINDS] = { [BRIM_MEMORY_HOST] = limit };
    within->limit = limit;
    assert_int_equal(brim__budget_root("test", limits, &within->budget), BRIM_OK);
    within->before = charged_to(within->budget, NULL);
    struct opened *opened = &within->opened;
    memset(opened, 0, sizeof *opened);
    brim__arena_init(&opened->arena, within->budget);
    opened->opening =
        (struct brim__opening){ .arena = &opened->arena, .serials = &opened->serials };
    return open_loaded(&use->use, &opened->opening, &opened->source);
}

static inline void close_within(struct within *within) {
    uint64_t peak;
    if (within->opened.source.ops != NULL) {
        within->opened.source.ops->close(&within->opened.source);
    }
    brim__arena_fini(&within->opened.arena);
    assert_int_equal(charged_to(within->budget, &peak), within->before);
    assert_true(peak <= within->limit);
    brim__budget_unref(within->budget);
}

/* ---------------------------------------------------------------- reads */

/* All records of all samples, one after the other; freed by the caller. */
static inline brim_status read_all(const struct brim__source *source, uint8_t **all) {
    uint8_t *buffer = new_buffer(source, source->most_run);
    brim_status status = BRIM_OK;
    *all = malloc(source->count * source->record_bytes);
    assert_non_null(*all);
    for (uint64_t sample = 0; sample < source->count && status == BRIM_OK;) {
        const uint8_t *records;
        uint64_t got = 0;
        status = fetch_run(source, sample, source->most_run, buffer, &records, &got);
        for (uint64_t i = 0; i < got && status == BRIM_OK; i++) {
            memcpy(*all + (sample + i) * source->record_bytes, records + i * source->pitch,
                   source->record_bytes);
        }
        sample += got;
    }
    free(buffer);
    return status;
}

/* A source's records are exactly these bytes. */
static inline void assert_records(const struct brim__source *source, const void *wanted,
                                  size_t count) {
    uint8_t *all;
    assert_int_equal(source->count * source->record_bytes, count);
    assert_int_equal(read_all(source, &all), BRIM_OK);
    assert_memory_equal(all, wanted, count);
    free(all);
}

/* -------------------------------------------------------------- hostile */

#define SMALL_BUDGET (1u << 20)

/* Opens and reads all; what matters is that nothing breaks. */
static inline brim_status open_and_read(const struct test_use *use) {
    struct within within;
    brim_status status = open_within(&within, use, SMALL_BUDGET);
    if (status == BRIM_OK) {
        const struct brim__source *source = &within.opened.source;
        if (source->count < 100000 && source->record_bytes < 100000) {
            uint8_t *all;
            status = read_all(source, &all);
            free(all);
        }
    } else {
        assert_true(brim_detail()[0] != '\0');
    }
    close_within(&within);
    return status;
}

/* The file, cut at every byte, is refused every time. */
static inline void cut_everywhere(const struct test_use *use, const char *path,
                                  const struct bytes *good) {
    const size_t before = open_descriptors();
    for (size_t count = 0; count < good->count; count++) {
        write_file(path, good->data, count);
        const brim_status status = open_and_read(use);
        if (status == BRIM_OK || status == BRIM_STATUS_IO) {
            fail_msg("cut to %zu of %zu bytes: status %d", count, good->count, (int)status);
        }
        assert_detail_has(path);
    }
    write_bytes(path, good);
    assert_int_equal(open_and_read(use), BRIM_OK);
    assert_int_equal(open_descriptors(), before);
}

/* With one to three bytes changed it is read or refused, and nothing else. */
static inline void flip_bytes(const struct test_use *use, const char *path,
                              const struct bytes *good, unsigned times) {
    const size_t before = open_descriptors();
    uint64_t random = 0x9e3779b97f4a7c15;
    uint8_t *bytes = malloc(good->count);
    assert_non_null(bytes);
    for (unsigned i = 0; i < times; i++) {
        memcpy(bytes, good->data, good->count);
        for (uint64_t flips = 1 + next_random(&random) % 3; flips > 0; flips--) {
            const uint64_t at = next_random(&random) % good->count;
            const uint64_t how = next_random(&random) >> 20;
            bytes[at] = how % 4 == 0 ? 0xff : how % 4 == 1 ? 0 : (uint8_t)(how >> 8);
        }
        write_file(path, bytes, good->count);
        (void)open_and_read(use);
    }
    free(bytes);
    write_bytes(path, good);
    assert_int_equal(open_descriptors(), before);
}

/* Every call that the system may refuse is refused in turn. */
static inline void refuse_everything(const struct test_use *use) {
    const size_t before = open_descriptors();
    const unsigned kinds = 1u << BRIM__FAULT_MAP | 1u << BRIM__FAULT_OPEN | 1u << BRIM__FAULT_READ;
    bool injected = true;
    for (uint64_t nth = 1; injected; nth++) {
        brim__fault_arm(kinds, nth, false);
        const brim_status status = open_and_read(use);
        injected = brim__fault_injected() > 0;
        brim__fault_arm(0, 0, false);
        assert_int_equal(status == BRIM_OK, !injected);
        assert_int_equal(open_descriptors(), before);
    }
}

#endif

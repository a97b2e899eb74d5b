/*
 * source_util.h: what the tests of sources share.
 *
 * Uses of stages without the parser, sources opened and closed with their
 * arena, single elements of a view read the slow way, files in a directory of
 * the test's own, and a count of open descriptors.
 */
#ifndef BRIM_TESTS_SOURCE_UTIL_H
#define BRIM_TESTS_SOURCE_UTIL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "source/source.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---------------------------------------------------------------- uses */

#define USE_ARGUMENTS 16
#define USE_ITEMS     8

struct test_use {
    struct brim__use use;
    struct brim__values values[USE_ARGUMENTS];
    struct brim__item items[USE_ARGUMENTS][USE_ITEMS];
};

static inline struct brim__item use_item(const brim_argument_info *argument, const char *text) {
    struct brim__item item = { .text = text };
    if (argument->type == BRIM_TYPE_INTEGER) {
        item.integer = strtoll(text, NULL, 10);
    } else if (argument->type == BRIM_TYPE_SIZE) {
        char *unit;
        item.integer = strtoll(text, &unit, 10);
        assert_true(*unit == '\0' || strcmp(unit, "KiB") == 0 || strcmp(unit, "MiB") == 0);
        item.integer <<= *unit == 'K' ? 10 : *unit == 'M' ? 20 : 0;
    } else if (argument->type == BRIM_TYPE_YESNO) {
        assert_true(strcmp(text, "yes") == 0 || strcmp(text, "no") == 0);
        item.integer = text[0] == 'y';
    } else if (argument->type == BRIM_TYPE_CHOICE) {
        const char *choice = argument->choices;
        const size_t length = strlen(text);
        while (strncmp(choice, text, length) != 0 ||
               (choice[length] != '|' && choice[length] != '\0')) {
            choice = strchr(choice, '|');
            assert_non_null(choice);
            choice++;
            item.integer++;
        }
    }
    return item;
}

/* Sets an argument; once more adds a value to a list. */
static inline void use_set(struct test_use *use, const char *name, const char *text) {
    const brim_stage_info *info = &use->use.stage->info;
    size_t i = 0;
    while (i < info->argument_count && strcmp(brim_stage_argument_at(info, i)->name, name) != 0) {
        i++;
    }
    assert_true(i < info->argument_count);
    const bool list = (brim_stage_argument_at(info, i)->flags & BRIM_ARGUMENT_FLAG_LIST) != 0;
    const size_t at = list ? use->values[i].count : 0;
    assert_true(at < USE_ITEMS);
    use->items[i][at] = use_item(brim_stage_argument_at(info, i), text);
    use->values[i] = (struct brim__values){ .items = use->items[i], .count = at + 1 };
}

static inline void use_init(struct test_use *use, const struct brim__stage *stage) {
    memset(use, 0, sizeof *use);
    use->use = (struct brim__use){ .stage = stage, .values = use->values };
    assert_true(stage->info.argument_count <= USE_ARGUMENTS);
    for (size_t i = 0; i < stage->info.argument_count; i++) {
        if (brim_stage_argument_at(&stage->info, i)->fallback != NULL) {
            use_set(use, brim_stage_argument_at(&stage->info, i)->name,
                    brim_stage_argument_at(&stage->info, i)->fallback);
        }
    }
}

/* ------------------------------------------------------------- sources */

struct opened {
    struct brim__arena arena;
    struct brim__opening opening;
    struct brim__serial *serials;
    struct brim__source source;
};

/* Opens a source, and loads what it holds in memory; closed after a failure. */
static inline brim_status open_loaded(const struct brim__use *use, struct brim__opening *opening,
                                      struct brim__source *source) {
    brim_status status = use->stage->open(use, opening, source);
    if (status == BRIM_OK && source->held_bytes > 0) {
        status = source->ops->load(source, opening);
        if (status != BRIM_OK) {
            source->ops->close(source);
        }
    }
    return status;
}

static inline brim_status open_use(struct opened *opened, const struct test_use *use,
                                   const brim_binding *bindings, size_t binding_count) {
    memset(opened, 0, sizeof *opened);
    memset(&opened->source, 0xa5, sizeof opened->source); /* opening relies on nothing */
    brim__arena_init(&opened->arena, NULL);
    opened->opening = (struct brim__opening){ .arena = &opened->arena,
                                              .bindings = bindings,
                                              .binding_count = binding_count,
                                              .serials = &opened->serials };
    const brim_status status = open_loaded(&use->use, &opened->opening, &opened->source);
    if (status != BRIM_OK) {
        assert_null(opened->source.ops);
    } else {
        assert_true(opened->source.count > 0 && opened->source.pitch > 0 &&
                    opened->source.most_run > 0 && opened->source.record_bytes > 0);
    }
    return status;
}

static inline void close_opened(struct opened *opened) {
    if (opened->source.ops != NULL) {
        opened->source.ops->close(&opened->source);
    }
    assert_null(opened->source.ops);
    brim__arena_fini(&opened->arena);
}

static inline brim_status fetch_run(const struct brim__source *source, uint64_t sample,
                                    uint64_t count, uint8_t *buffer, const uint8_t **records,
                                    uint64_t *got) {
    const brim_call call = { .size = sizeof call, .sample = sample };
    return source->ops->fetch(source, &call, count, buffer, records, got);
}

/* A buffer of exactly the size that a fetch of `count` needs, so that the
 * sanitizer sees one byte too many. */
static inline uint8_t *new_buffer(const struct brim__source *source, uint64_t count) {
    const uint64_t bytes = brim__source_buffer(source, count);
    uint8_t *buffer = NULL;
    assert_int_equal(posix_memalign((void **)&buffer, 64, bytes > 0 ? bytes : 1), 0);
    return buffer;
}

/* Element `index` (in row-major order) of a view, as real and imaginary part. */
static inline void read_element(const struct brim__view *view, const uint8_t *record,
                                uint64_t index, double value[2]) {
    const uint8_t *at = record + view->offset;
    for (uint32_t axis = view->shape.rank; axis-- > 0;) {
        at += (int64_t)(index % view->shape.dim[axis]) * view->stride[axis];
        index /= view->shape.dim[axis];
    }
    const size_t bytes = brim_dtype_bytes(view->dtype);
    const size_t unit = brim__dtype_is_complex(view->dtype) ? bytes / 2 : bytes;
    uint8_t own[16] = { 0 };
    for (size_t i = 0; i < bytes; i++) { /* swap each part by itself */
        own[i] = at[view->swapped ? i / unit * unit + (unit - 1 - i % unit) : i];
    }
    value[0] = value[1] = 0;
#define AS(type)                        \
    do {                                \
        type part[2];                   \
        memcpy(part, own, sizeof part); \
        value[0] = (double)part[0];     \
        if (bytes == sizeof part)       \
            value[1] = (double)part[1]; \
    } while (0)
    switch (view->dtype) {
    case BRIM_DTYPE_BOOL:
    case BRIM_DTYPE_U8:
        AS(uint8_t);
        break;
    case BRIM_DTYPE_I8:
        AS(int8_t);
        break;
    case BRIM_DTYPE_U16:
        AS(uint16_t);
        break;
    case BRIM_DTYPE_I16:
        AS(int16_t);
        break;
    case BRIM_DTYPE_U32:
        AS(uint32_t);
        break;
    case BRIM_DTYPE_I32:
        AS(int32_t);
        break;
    case BRIM_DTYPE_U64:
        AS(uint64_t);
        break;
    case BRIM_DTYPE_I64:
        AS(int64_t);
        break;
    case BRIM_DTYPE_F32:
    case BRIM_DTYPE_C64:
        AS(float);
        break;
    case BRIM_DTYPE_F64:
    case BRIM_DTYPE_C128:
        AS(double);
        break;
    case BRIM_DTYPE_F16: {
        uint16_t bits;
        memcpy(&bits, own, sizeof bits);
        int exponent = bits >> 10 & 31; /* normal numbers only */
        assert_true(exponent > 0 && exponent < 31);
        value[0] = (1024 + (bits & 1023)) * (bits >> 15 ? -1.0 : 1.0);
        for (; exponent < 25; exponent++) {
            value[0] /= 2;
        }
        for (; exponent > 25; exponent--) {
            value[0] *= 2;
        }
        break;
    }
    default:
        fail_msg("no values of dtype %d", (int)view->dtype);
    }
#undef AS
}

/* ---------------------------------------------------------------- files */

static char scratch_directory[64];

static inline int make_directory(void **state) {
    (void)state;
    snprintf(scratch_directory, sizeof scratch_directory, "/tmp/brim-source-XXXXXX");
    return mkdtemp(scratch_directory) == NULL ? -1 : 0;
}

static inline int remove_directory(void **state) {
    (void)state;
    DIR *directory = opendir(scratch_directory);
    if (directory == NULL) {
        return -1;
    }
    char path[400];
    for (const struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        snprintf(path, sizeof path, "%s/%s", scratch_directory, entry->d_name);
        if (entry->d_name[0] != '.') {
            unlink(path);
        }
    }
    closedir(directory);
    return rmdir(scratch_directory);
}

struct path {
    char text[512];
};

static inline struct path scratch_path(const char *name) {
    struct path path;
    snprintf(path.text, sizeof path.text, "%s/%s", scratch_directory, name);
    return path;
}

/* Overwrites in place and then cuts: much cheaper, thousands of times, than
 * emptying the file first. */
static inline void write_file(const char *path, const void *bytes, size_t count) {
    const int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, count), count);
    assert_int_equal(ftruncate(fd, (off_t)count), 0);
    assert_int_equal(close(fd), 0);
}

static inline size_t open_descriptors(void) {
    DIR *directory = opendir("/proc/self/fd");
    assert_non_null(directory);
    size_t count = 0;
    while (readdir(directory) != NULL) {
        count++;
    }
    closedir(directory);
    return count;
}

/* The last failure's text has `part` in it. */
static inline void assert_detail_has(const char *part) {
    if (strstr(brim_detail(), part) == NULL) {
        fail_msg("\"%s\" is not in the detail \"%s\"", part, brim_detail());
    }
}

/* A small generator, the same on every machine. */
static inline uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state * UINT64_C(0x2545f4914f6cdd1d);
}

#endif

/*
 * files.c: a list of local files read as one run of equal records.
 *
 * Every file stays open, because opening one for each read would cost more than the read, and
 * because an open file cannot be replaced during reading. So the system's limit on open files
 * limits the list, and the error says so.
 *
 * The headers give the size of packed data when a file is opened. Loading takes that much memory,
 * inflates exactly that much, and fails if the data has more or less.
 */
#include "source/files.h"

#include <errno.h>
#include <stdio.h>
#include <sys/resource.h>

brim_status brim__files_init(struct brim__source *source, const char *stage, size_t count,
                             struct brim__opening *opening, struct brim__files **files) {
    if (count == 0 || count > BRIM__MOST_FILES) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "%s: %zu files, but one stage takes 1 to %d: join files", stage, count,
                          BRIM__MOST_FILES);
    }
    struct brim__files *list;
    brim_status status = brim__arena_take(opening->arena, sizeof *list, &list);
    if (status == BRIM_OK) {
        status = brim__arena_take(opening->arena, count * sizeof *list->part, &list->part);
    }
    if (status != BRIM_OK) {
        return status;
    }
    list->count = count;
    for (size_t i = 0; i < count; i++) {
        list->part[i].file.fd = -1;
    }
    source->self = list;
    source->ops = &brim__files_ops;
    *files = list;
    return BRIM_OK;
}

brim_status brim__files_open(struct brim__files *files, size_t index, const char *path) {
    errno = 0;
    const brim_status status = brim__file_open(&files->part[index].file, path);
    if (status == BRIM_OK || (errno != EMFILE && errno != ENFILE)) {
        return status;
    }
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        limit.rlim_cur = 0;
    }
    return brim__fail(status,
                      "%s: the system lets this process open no more files: this is number %zu of "
                      "%zu, and its limit is %llu; raise it (ulimit -n) or join files",
                      path, index + 1, files->count, (unsigned long long)limit.rlim_cur);
}

/* ----------------------------------------------------------------- packed */

/* Saturates: a sum that does not fit 64 bits fits no budget. */
static uint64_t aligned_sum(uint64_t a, uint64_t b, uint64_t alignment) {
    uint64_t sum;
    return brim__add_overflows(a, b, &sum) || sum > UINT64_MAX - alignment
               ? UINT64_MAX - alignment
               : brim__align(sum, alignment);
}

void brim__files_pack(struct brim__source *source, size_t index, const struct brim__packed *packed,
                      const char *advice) {
    struct brim__files *files = source->self;
    struct brim__packed *mine = &files->part[index].packed;
    *mine = *packed;
    mine->on = true;
    mine->place = files->packed_bytes;
    files->packed_bytes =
        aligned_sum(files->packed_bytes, brim__max(1, packed->kept), BRIM__CACHE_LINE);
    source->held_bytes = aligned_sum(files->packed_bytes, 0, brim__page_bytes());
    if (source->held_label == NULL || packed->kept > files->packed_largest) {
        files->packed_largest = packed->kept;
        source->held_label = packed->label;
    }
    source->held_advice = advice;
}

static brim_status inflate_part(struct brim__inflater *inflater,
                                const struct brim__files_part *part, uint8_t *memory) {
    const struct brim__packed *packed = &part->packed;
    brim_status status =
        brim__inflate_begin(inflater, packed->form, &part->file, packed->begin, packed->bytes);
    for (uint64_t done = 0; status == BRIM_OK && done < packed->skipped;) {
        uint8_t header[64];
        const uint64_t count = brim__min(sizeof header, packed->skipped - done);
        status = brim__inflate_read(inflater, header, count);
        done += count;
    }
    if (status == BRIM_OK) {
        status = brim__inflate_read(inflater, memory, packed->kept);
    }
    if (status == BRIM_OK) {
        status = brim__inflate_end(inflater);
    }
    if (status == BRIM_OK && packed->has_crc && brim__inflate_crc(inflater) != packed->crc) {
        status = brim__fail(BRIM_STATUS_CORRUPT,
                            "%s: byte %llu: the inflated data has CRC-32 %08x, but the directory "
                            "gives %08x",
                            packed->label, (unsigned long long)packed->begin,
                            brim__inflate_crc(inflater), packed->crc);
        return brim__at_byte(status, part->file.path, packed->begin);
    }
    return status;
}

static brim_status load(struct brim__source *source, const struct brim__opening *opening) {
    struct brim__files *files = source->self;
    char size[BRIM__SIZE_TEXT];
    brim_status status =
        brim__pages_new(&files->pages, opening->arena->budget, files->packed_bytes, false, false);
    if (status != BRIM_OK) {
        files->pages = (struct brim__pages){ 0 };
        return brim__fail_within(
            status, "%s: is compressed and must be held in memory: %s (%llu bytes%s); %s",
            source->held_label, brim__size_text(files->packed_bytes, size),
            (unsigned long long)files->packed_bytes,
            files->count > 1 ? " with the other files" : "", source->held_advice);
    }
    brim__inflater_use(files->inflater, opening);
    for (size_t i = 0; i < files->count; i++) {
        struct brim__files_part *part = &files->part[i];
        if (!part->packed.on) {
            continue;
        }
        uint8_t *memory = files->pages.memory + part->packed.place;
        status = inflate_part(files->inflater, part, memory);
        if (status != BRIM_OK) {
            return status;
        }
        part->memory = memory;
        brim__file_close(&part->file);
    }
    source->held_bytes = 0;
    return BRIM_OK;
}

/* ----------------------------------------------------------------- reading */

/* The size of the file, or, if it is packed, of the inflated data. */
static uint64_t content_bytes(const struct brim__files_part *part) {
    return part->packed.on ? part->packed.skipped + part->packed.kept : part->file.bytes;
}

/* Whether reading the bytes between two records costs more than a separate read. */
static bool is_far_apart(const struct brim__source *source) {
    return source->pitch > 2 * source->record_bytes;
}

brim_status brim__files_finish(struct brim__source *source, struct brim__files *files, bool map,
                               const char *what) {
    bool any_read = false;
    for (size_t i = 0; i < files->count; i++) {
        struct brim__files_part *part = &files->part[i];
        part->first = source->count;
        if (brim__add_overflows(source->count, part->samples, &source->count) ||
            source->count > INT64_MAX) {
            return brim__fail(BRIM_STATUS_INVALID, "%s: the files hold more than 2^63 %s together",
                              part->file.path, what);
        }
        source->identity = brim__hash_words(source->identity, part->samples, content_bytes(part));
        if (map && part->samples > 0 && !part->packed.on) {
            const brim_status status = brim__file_map(&part->file);
            if (status != BRIM_OK) {
                return status;
            }
            part->memory = part->file.map;
        }
        any_read = any_read || (part->memory == NULL && !part->packed.on && part->samples > 0);
        source->is_file = source->is_file || !part->packed.on;
    }
    if (source->count == 0) {
        return brim__fail(BRIM_STATUS_INVALID, "%s: holds no %s%s", files->part[0].file.path, what,
                          files->count > 1 ? ", nor do the other files of the list" : "");
    }
    source->most_run =
        any_read && is_far_apart(source) ? 1 : brim__max(1, BRIM__READ_WINDOW / source->pitch);
    source->in_memory = !any_read;
    return BRIM_OK;
}

static inline const struct brim__files_part *find(const struct brim__files *files,
                                                  uint64_t sample) {
    size_t low = 0, high = files->count;
    while (BRIM__UNLIKELY(high - low > 1)) {
        const size_t middle = low + (high - low) / 2;
        if (files->part[middle].first <= sample) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return &files->part[low];
}

const struct brim__files_part *brim__files_find(const struct brim__files *files, uint64_t sample) {
    return find(files, sample);
}

static uint64_t record_byte(const struct brim__source *source, const struct brim__files_part *part,
                            uint64_t sample) {
    return part->data + (sample - part->first) * source->pitch;
}

/* Fills in further ranges, one for each record. */
static size_t locate_alone(const struct brim__source *source, uint64_t count,
                           struct brim__file_range *ranges, size_t most) {
    size_t n = 0;
    ranges[0].bytes = source->record_bytes;
    ranges[0].samples = 1;
    while (++n < most && n < count) {
        ranges[n] = ranges[n - 1];
        ranges[n].offset += source->pitch;
        ranges[n].memory += ranges[n].memory == NULL ? 0 : source->pitch;
    }
    return n;
}

/* Records that are close together are one range; records far apart have one each. */
static brim_status locate(const struct brim__source *source, uint64_t sample, uint64_t count,
                          struct brim__file_range *ranges, size_t most, size_t *found) {
    assert(sample < source->count && count > 0 && most > 0);
    const struct brim__files_part *part = find(source->self, sample);
    const uint64_t run = brim__min(count, part->first + part->samples - sample);
    const uint64_t at = record_byte(source, part, sample);
    assert(part->memory != NULL || part->file.fd >= 0);
    ranges[0].file = &part->file;
    ranges[0].memory = part->memory == NULL ? NULL : part->memory + at;
    ranges[0].offset = at;
    ranges[0].bytes = (run - 1) * source->pitch + source->record_bytes;
    ranges[0].samples = run;
    *found = 1;
    if (BRIM__UNLIKELY(run > 1 && source->most_run == 1 && is_far_apart(source))) {
        *found = locate_alone(source, run, ranges, most);
    }
    return BRIM_OK;
}

static void describe(const struct brim__source *source, uint64_t sample, char *text, size_t bytes) {
    const struct brim__files_part *part = brim__files_find(source->self, sample);
    snprintf(text, bytes, "%s, sample %llu (byte %llu)", part->file.path,
             (unsigned long long)sample, (unsigned long long)record_byte(source, part, sample));
}

static void where(const struct brim__source *source, uint64_t sample, char *path, uint64_t *byte) {
    const struct brim__files_part *part = find(source->self, sample);
    brim__copy_text(path, BRIM_SOURCE_BYTES, part->file.path);
    *byte = part->packed.on ? BRIM_UNKNOWN : record_byte(source, part, sample);
}

/* If a file has changed since it was opened, the samples may mix both states (a header or index of
 * the old one). The stamp then differs from the stamps of both. */
static brim_status stamp_part(const struct brim__files_part *part, bool may_lack, uint64_t *stamp) {
    const uint64_t opened = brim__file_opened_stamp(&part->file);
    const brim_status status = brim__file_stamp(part->file.path, may_lack, stamp);
    if (status == BRIM_OK && *stamp != opened) {
        *stamp = brim__hash_words(*stamp, opened, 1);
    }
    return status;
}

brim_status brim__files_stamp(const struct brim__files *files, uint64_t sample, uint64_t *stamp) {
    if (sample != BRIM__ALL_SAMPLES) {
        return stamp_part(brim__files_find(files, sample), false, stamp);
    }
    brim_status status = BRIM_OK;
    *stamp = files->count;
    for (size_t i = 0; i < files->count && status == BRIM_OK; i++) {
        uint64_t own;
        status = stamp_part(&files->part[i], true, &own);
        *stamp = brim__hash_words(*stamp, own, i);
    }
    return status;
}

static brim_status stamp_files(const struct brim__source *source, uint64_t sample, uint8_t *buffer,
                               const struct brim__opening *opening, uint64_t *stamp) {
    (void)buffer;
    (void)opening;
    return brim__files_stamp(source->self, sample, stamp);
}

static void close_files(struct brim__source *source) {
    struct brim__files *files = source->self;
    for (size_t i = 0; i < files->count; i++) {
        brim__file_close(&files->part[i].file);
    }
    brim__pages_free(&files->pages);
    source->ops = NULL;
}

static void expect_random(const struct brim__source *source) {
    const struct brim__files *files = source->self;
    for (size_t i = 0; i < files->count && !source->no_read_ahead; i++) {
        brim__file_expect_random(&files->part[i].file);
    }
}

const struct brim__source_ops brim__files_ops = {
    .locate = locate,
    .fetch = brim__source_fetch,
    .expect_random = expect_random,
    .describe = describe,
    .where = where,
    .stamp = stamp_files,
    .load = load,
    .close = close_files,
};

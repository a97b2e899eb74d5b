/*
 * file_format.c: reads, judges and checks cache files.
 *
 * A file may contain anything: sizes are checked before they are used, and no size in a file
 * decides an allocation. An entry's checksum is a chain over pieces of its bytes. Each piece is
 * hashed with the result of the piece before, so the checksum can be computed at once, or piece by
 * piece in a small buffer.
 */
#include "cache/file_format.h"
#include "base/fault.h"
#include "base/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#define PIECE 16384 /* part of the format */

/* -------------------------------------------------------------------- doors */

int brim__cache_open(const char *path, int flags, int *fd) {
    do {
        if (brim__fault(BRIM__FAULT_OPEN)) {
            *fd = -1;
            return EIO;
        }
        *fd = open(path, flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0600);
    } while (*fd < 0 && errno == EINTR);
    return *fd < 0 ? errno : 0;
}

int brim__cache_stat(int fd, struct stat *facts) {
    if (brim__fault(BRIM__FAULT_OPEN)) {
        return EIO;
    }
    return fstat(fd, facts) == 0 ? 0 : errno;
}

int brim__cache_read(int fd, uint64_t offset, void *buffer, size_t bytes, size_t *got) {
    uint8_t *to = buffer;
    *got = 0;
    while (*got < bytes) {
        ssize_t done = -1;
        errno = EIO;
        if (!brim__fault(BRIM__FAULT_READ)) {
            done = pread(fd, to + *got, bytes - *got, (off_t)(offset + *got));
        }
        if (done < 0 && errno != EINTR) {
            return errno;
        }
        if (done == 0) {
            break;
        }
        *got += done > 0 ? (size_t)done : 0;
    }
    return 0;
}

int brim__cache_write(int fd, uint64_t offset, struct iovec *vectors, int count) {
    for (;;) {
        while (count > 0 && vectors->iov_len == 0) {
            vectors++;
            count--;
        }
        if (count == 0) {
            return 0;
        }
        ssize_t done = -1;
        errno = ENOSPC;
        if (!brim__fault(BRIM__FAULT_WRITE)) {
            done = pwritev(fd, vectors, count, (off_t)offset);
        }
        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done <= 0) {
            return done < 0 ? errno : EIO;
        }
        offset += (uint64_t)done;
        for (size_t left = (size_t)done; left > 0;) {
            const size_t part = brim__min(left, vectors->iov_len);
            vectors->iov_base = (uint8_t *)vectors->iov_base + part;
            vectors->iov_len -= part;
            left -= part;
            if (vectors->iov_len == 0) {
                vectors++;
                count--;
            }
        }
    }
}

int brim__cache_lock(int fd) {
    int done = -1;
    do {
        errno = ENOLCK;
        if (!brim__fault(BRIM__FAULT_OPEN)) {
            done = flock(fd, LOCK_EX | LOCK_NB);
        }
    } while (done != 0 && errno == EINTR);
    return done == 0 ? 0 : errno;
}

bool brim__cache_is_at(const char *path, int fd) {
    struct stat named, opened;
    return brim__cache_stat(fd, &opened) == 0 && !brim__fault(BRIM__FAULT_OPEN) &&
           stat(path, &named) == 0 && named.st_dev == opened.st_dev &&
           named.st_ino == opened.st_ino;
}

/* ------------------------------------------------------------------- header */

uint64_t brim__cache_heap(uint64_t count) {
    uint64_t bytes;
    if (brim__mul_overflows(count, sizeof(struct brim__cache_entry), &bytes) ||
        bytes > INT64_MAX - UINT64_C(2) * BRIM__CACHE_HEADER) {
        return UINT64_MAX;
    }
    return brim__align(BRIM__CACHE_HEADER + bytes, BRIM__CACHE_HEADER);
}

void brim__cache_header_seal(struct brim__cache_header *header) {
    header->checksum = brim__hash(header, offsetof(struct brim__cache_header, checksum), 0);
}

void brim__cache_header_init(struct brim__cache_header *header,
                             const struct brim__tier_start *start) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    *header = (struct brim__cache_header){
        .byte_order = BRIM__CACHE_BYTE_ORDER,
        .version = BRIM__CACHE_VERSION,
        .verify = (uint32_t)start->verify,
        .data = start->data,
        .sample = start->sample,
        .stamp = start->stamp,
        .count = start->count,
        .most_bytes = start->most_bytes,
        .limit = start->limit,
        .created_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec,
    };
    memcpy(header->magic, BRIM__CACHE_MAGIC, sizeof header->magic);
    memcpy(header->magic_again, BRIM__CACHE_MAGIC, sizeof header->magic_again);
    if (!brim__copy_text(header->pipeline, sizeof header->pipeline, start->pipeline)) {
        /* cut between two characters */
        const size_t length = sizeof header->pipeline - 1;
        const size_t whole = brim__utf8_valid((const uint8_t *)header->pipeline, length);
        if (length - whole < 4) {
            memset(header->pipeline + whole, 0, length - whole);
        }
    }
    brim__cache_header_seal(header);
}

static bool is_magic(const char magic[8]) {
    return memcmp(magic, BRIM__CACHE_MAGIC, sizeof BRIM__CACHE_MAGIC - 1) == 0;
}

static enum brim__cache_kind judge(const struct brim__cache_header *header, size_t got,
                                   uint64_t bytes) {
    if (got == 0) {
        return BRIM__CACHE_EMPTY;
    }
    const bool first = got >= sizeof header->magic && is_magic(header->magic);
    const bool second = got == sizeof *header && is_magic(header->magic_again);
    if (!first && !second) {
        return BRIM__CACHE_STRANGER;
    }
    const bool usable =
        first && second && header->byte_order == BRIM__CACHE_BYTE_ORDER &&
        header->version == BRIM__CACHE_VERSION &&
        header->checksum == brim__hash(header, offsetof(struct brim__cache_header, checksum), 0) &&
        header->verify <= BRIM__VERIFY_CONTENT && brim__cache_heap(header->count) <= bytes &&
        memchr(header->pipeline, 0, sizeof header->pipeline) != NULL;
    return usable ? BRIM__CACHE_USABLE : BRIM__CACHE_UNUSABLE;
}

int brim__cache_examine(int fd, struct stat *facts, struct brim__cache_header *header,
                        enum brim__cache_kind *kind) {
    size_t got = 0;
    *kind = BRIM__CACHE_STRANGER;
    int error = brim__cache_stat(fd, facts);
    if (error == 0 && S_ISREG(facts->st_mode)) {
        error = brim__cache_read(fd, 0, header, sizeof *header, &got);
        if (error == 0) {
            *kind = judge(header, got, (uint64_t)facts->st_size);
        }
    }
    return error;
}

bool brim__cache_same_key(const struct brim__cache_header *a, const struct brim__cache_header *b) {
    return a->data == b->data && a->sample == b->sample && a->stamp == b->stamp &&
           a->verify == b->verify && a->count == b->count && a->most_bytes == b->most_bytes;
}

void brim__cache_name(const struct brim__cache_header *header, char name[BRIM__CACHE_NAME]) {
    const uint64_t text = brim__hash(header->pipeline, sizeof header->pipeline, 0);
    const uint64_t key = brim__hash_words(brim__hash_words(header->data, header->sample, text),
                                          header->verify, header->count);
    snprintf(name, BRIM__CACHE_NAME, "%016llx" BRIM__CACHE_SUFFIX, (unsigned long long)key);
}

/* ------------------------------------------------------------------ entries */

uint64_t brim__cache_seed(const struct brim__cache_header *header) {
    const uint64_t words[] = { header->data,   header->sample, header->stamp,
                               header->verify, header->count,  header->most_bytes };
    return brim__hash(words, sizeof words, BRIM__CACHE_VERSION);
}

static uint64_t entry_seed(uint64_t seed, uint64_t number, const struct brim__cache_entry *entry) {
    const uint64_t words[] = { number, entry->length, entry->stamp };
    return brim__hash(words, sizeof words, seed);
}

uint64_t brim__cache_checksum(uint64_t seed, uint64_t number, const struct brim__cache_entry *entry,
                              const void *data) {
    const uint8_t *at = data;
    uint64_t hash = entry_seed(seed, number, entry);
    for (uint64_t left = entry->length; left > 0;) {
        const size_t bytes = brim__min(PIECE, left);
        hash = brim__hash(at, bytes, hash);
        at += bytes;
        left -= bytes;
    }
    return hash;
}

bool brim__cache_entry_lies(const struct brim__cache_entry *entry, uint64_t heap, uint64_t most) {
    return entry->offset >= heap && entry->offset % BRIM__TIER_ALIGNMENT == 0 &&
           entry->length <= most && entry->offset <= INT64_MAX &&
           entry->length <= INT64_MAX - entry->offset;
}

bool brim__cache_is_whole(int fd, uint64_t seed, uint64_t number,
                          const struct brim__cache_entry *entry) {
    uint8_t piece[PIECE];
    uint64_t hash = entry_seed(seed, number, entry);
    for (uint64_t done = 0; done < entry->length;) {
        const size_t bytes = brim__min(PIECE, entry->length - done);
        size_t got;
        if (brim__cache_read(fd, entry->offset + done, piece, bytes, &got) != 0 || got < bytes) {
            return false;
        }
        hash = brim__hash(piece, bytes, hash);
        done += bytes;
    }
    return hash == entry->checksum;
}

/* --------------------------------------------------------------------- walk */

void brim__cache_walk_begin(struct brim__cache_walk *walk, int fd, uint64_t count) {
    walk->fd = fd;
    walk->count = count;
    walk->next = 0;
    walk->at = walk->held = 0;
    walk->error = 0;
}

/* Reads the next part of the table and skips holes: a table of a billion numbers may have few
 * entries. */
static bool refill(struct brim__cache_walk *walk) {
    const uint64_t end = brim__cache_table_at(walk->count);
    const uint64_t from = brim__cache_table_at(walk->next);
    const off_t data = lseek(walk->fd, (off_t)from, SEEK_DATA);
    if (data < 0 && errno == ENXIO) {
        return false;
    }
    if (data > (off_t)from) { /* else the file system does not report holes */
        walk->next = brim__min(walk->count, ((uint64_t)data - BRIM__CACHE_HEADER) /
                                                sizeof(struct brim__cache_entry));
    }
    const uint64_t at = brim__cache_table_at(walk->next);
    size_t got;
    walk->error =
        brim__cache_read(walk->fd, at, walk->entry, brim__min(sizeof walk->entry, end - at), &got);
    walk->at = 0;
    walk->held = walk->error == 0 ? got / sizeof(struct brim__cache_entry) : 0;
    return walk->held > 0;
}

bool brim__cache_walk_next(struct brim__cache_walk *walk, uint64_t *number,
                           struct brim__cache_entry *entry) {
    for (;;) {
        while (walk->at < walk->held) {
            *entry = walk->entry[walk->at++];
            *number = walk->next++;
            if (!brim__cache_is_none(entry)) {
                return true;
            }
        }
        if (walk->next == walk->count || !refill(walk)) {
            return false;
        }
    }
}

/*
 * file_tier.c: a cache in a file: starts it, finds entries and accepts new ones.
 *
 * Finding reads the table's entry and then the bytes, and keeps nothing. A few numbers of damaged
 * entries are kept, so that the next `begin` need not check again and `has` returns false. If such
 * a number is displaced, this only costs a read.
 *
 * file_open.c opens the file and gets the right to fill it; file_writer.c writes entries.
 */
#include "cache/file_tier.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>

static struct brim__file_tier *self(struct brim__tier *tier) {
    return (struct brim__file_tier *)(void *)tier;
}

/* ------------------------------------------------------------ start and stop */

static uint64_t most_bytes(uint64_t count, uint64_t entry_bytes) {
    (void)count;
    return brim__file_writer_most(entry_bytes);
}

static uint64_t arena_bytes(uint64_t count) {
    (void)count;
    return sizeof(struct brim__file_tier);
}

/* Sets the file's path. In a directory, which may have the caches of many pipelines, the name is
 * made of the key. If the path is a link, its target is used, so that a replacement keeps the link;
 * false if it leads nowhere. */
static bool set_path(struct brim__file_tier *tier, const struct brim__cache_header *header) {
    const char *path = tier->start.path;
    const size_t length = strlen(path);
    char name[BRIM__CACHE_NAME] = "";
    struct stat facts;
    const bool slash = length > 0 && path[length - 1] == '/';
    const bool directory = slash || (stat(path, &facts) == 0 && S_ISDIR(facts.st_mode));
    if (directory) {
        brim__cache_name(header, name);
    }
    const int bytes = snprintf(tier->path, sizeof tier->path, "%s%s%s", path,
                               directory && !slash ? "/" : "", name);
    if (bytes <= 0 || (size_t)bytes >= sizeof tier->path) {
        errno = ENAMETOOLONG;
        return false;
    }
    char target[PATH_MAX];
    if (lstat(tier->path, &facts) == 0 && S_ISLNK(facts.st_mode)) {
        if (realpath(tier->path, target) == NULL) {
            return false;
        }
        memcpy(tier->path, target, strlen(target) + 1);
    }
    return true;
}

/* A write above the process's limit of file sizes would raise a signal. */
static uint64_t most_file_bytes(uint64_t limit) {
    struct rlimit process;
    limit = brim__min(limit, INT64_MAX);
    return getrlimit(RLIMIT_FSIZE, &process) == 0 ? brim__min(limit, process.rlim_cur) : limit;
}

static brim_status start(void *memory, const struct brim__tier_start *how,
                         struct brim__tier **tier_out) {
    struct brim__file_tier *tier = memory;
    struct brim__cache_header header;
    tier->start = *how;
    tier->limit = most_file_bytes(how->limit);
    tier->heap = brim__cache_heap(how->count);
    atomic_store(&tier->fd, -1);
    atomic_store(&tier->retry_ns, UINT64_MAX);
    brim_status status = brim__mutex_init(&tier->lock);
    if (status != BRIM_OK) {
        return status;
    }
    status = brim__file_writer_init(tier);
    if (status != BRIM_OK) {
        brim__mutex_fini(&tier->lock);
        return status;
    }
    brim__cache_header_init(&header, how);
    tier->seed = brim__cache_seed(&header);
    if (set_path(tier, &header)) {
        brim__file_tier_open(tier, true);
    } else {
        brim__file_tier_off(tier, errno);
    }
    *tier_out = memory;
    return BRIM_OK;
}

static void stop(struct brim__tier *opaque) {
    struct brim__file_tier *tier = self(opaque);
    const int fd = atomic_load(&tier->fd);
    brim__file_writer_fini(tier);
    if (fd >= 0) {
        (void)flock(fd, LOCK_UN); /* children may have the descriptor too */
        close(fd);
    }
    brim__mutex_fini(&tier->lock);
}

/* ------------------------------------------------------------------ finding */

static bool read_entry(int fd, uint64_t number, struct brim__cache_entry *entry) {
    size_t got;
    return brim__cache_read(fd, brim__cache_table_at(number), entry, sizeof *entry, &got) == 0 &&
           got == sizeof *entry;
}

/* Whether an entry is inside the heap of the file at its present length. */
static bool lies(struct brim__file_tier *tier, int fd, const struct brim__cache_entry *entry) {
    if (!brim__cache_entry_lies(entry, tier->heap, tier->start.most_bytes)) {
        return false;
    }
    const uint64_t end = entry->offset + entry->length;
    struct stat facts;
    if (end > atomic_load_explicit(&tier->known_end, memory_order_relaxed)) {
        if (brim__cache_stat(fd, &facts) != 0 || end > (uint64_t)facts.st_size) {
            return false;
        }
        if (!atomic_load(&tier->writes)) { /* else the writer has the exact end */
            atomic_store(&tier->known_end, (uint64_t)facts.st_size);
        }
    }
    return true;
}

static bool fetch(struct brim__file_tier *tier, int fd, uint64_t number,
                  const struct brim__cache_entry *entry, uint8_t *buffer, uint64_t room) {
    size_t got;
    return entry->length <= room && lies(tier, fd, entry) &&
           brim__cache_read(fd, entry->offset, buffer, entry->length, &got) == 0 &&
           got == entry->length &&
           brim__cache_checksum(tier->seed, number, entry, buffer) == entry->checksum;
}

static bool find(struct brim__tier *opaque, uint64_t number, uint64_t stamp, uint8_t *buffer,
                 uint64_t room, struct brim__found *found) {
    struct brim__file_tier *tier = self(opaque);
    const int fd = atomic_load_explicit(&tier->fd, memory_order_acquire);
    struct brim__cache_entry entry, before;
    assert(number < tier->start.count);
    if (fd < 0) {
        return false;
    }
    bool read = read_entry(fd, number, &entry);
    if (read && brim__cache_is_none(&entry)) {
        return false;
    }
    if (read && entry.stamp != stamp) { /* the data's file has changed, so the entry is stale */
        atomic_fetch_add(&tier->changed, 1);
        return false;
    }
    bool good = read && fetch(tier, fd, number, &entry, buffer, room);
    if (!good && read) {
        /* it may have been read while it was written, in two halves */
        before = entry;
        read = read_entry(fd, number, &entry);
        good = read && memcmp(&entry, &before, sizeof entry) != 0 && entry.stamp == stamp &&
               fetch(tier, fd, number, &entry, buffer, room);
    }
    if (!good) {
        atomic_fetch_add(&tier->damaged, 1);
        atomic_store(brim__file_suspect(tier, number), number + 1);
        return false;
    }
    *found = (struct brim__found){ .data = buffer, .bytes = entry.length };
    return true;
}

static void done(struct brim__tier *opaque, struct brim__found *found) {
    (void)opaque; /* the buffer is the caller's */
    (void)found;
}

static bool has(struct brim__tier *opaque, uint64_t number) {
    struct brim__file_tier *tier = self(opaque);
    const int fd = atomic_load_explicit(&tier->fd, memory_order_acquire);
    struct brim__cache_entry entry;
    return fd >= 0 && atomic_load(brim__file_suspect(tier, number)) != number + 1 &&
           read_entry(fd, number, &entry) && !brim__cache_is_none(&entry);
}

/* ------------------------------------------------------------------ filling */

/* Whether the entry was stored meanwhile, so that it is not kept twice. */
static bool is_there(struct brim__file_tier *tier, uint64_t number, uint64_t stamp) {
    const int fd = atomic_load(&tier->fd);
    struct brim__cache_entry entry;
    return atomic_load(brim__file_suspect(tier, number)) != number + 1 &&
           read_entry(fd, number, &entry) && !brim__cache_is_none(&entry) && entry.stamp == stamp &&
           lies(tier, fd, &entry) && brim__cache_is_whole(fd, tier->seed, number, &entry);
}

static bool begin(struct brim__tier *opaque, uint64_t number, uint64_t stamp, uint64_t bytes,
                  struct brim__room *room) {
    struct brim__file_tier *tier = self(opaque);
    assert(number < tier->start.count && bytes <= tier->start.most_bytes);
    if (brim__file_tier_may_fill(tier)) {
        const uint64_t since = atomic_load(&tier->known_end); /* while filling it never decreases */
        if (is_there(tier, number, stamp)) {
            return false;
        }
        if (brim__file_writer_begin(tier, number, stamp, bytes, since, room)) {
            return true;
        }
    }
    atomic_fetch_add(&tier->dropped, 1);
    return false;
}

static void commit(struct brim__tier *opaque, struct brim__room *room) {
    brim__file_writer_end(self(opaque), room, true);
}

static void abandon(struct brim__tier *opaque, struct brim__room *room) {
    brim__file_writer_end(self(opaque), room, false);
}

static void read_stats(struct brim__tier *opaque, struct brim__tier_stats *stats) {
    struct brim__file_tier *tier = self(opaque);
    brim__file_tier_count(tier);
    brim__file_tier_look(tier);
    *stats = (struct brim__tier_stats){
        .filled = atomic_load(&tier->filled),
        .stored = atomic_load(&tier->stored),
        .dropped = atomic_load(&tier->dropped),
        .damaged = atomic_load(&tier->damaged),
        .changed = atomic_load(&tier->changed),
    };
    struct stat facts;
    const int fd = atomic_load(&tier->fd);
    stats->bytes =
        fd >= 0 && brim__cache_stat(fd, &facts) == 0 ? brim__cache_disk_bytes(&facts) : 0;
    brim__lock(&tier->lock);
    /* include those that are being written */
    stats->filled = brim__min(stats->filled + tier->writer.ready, tier->start.count);
    stats->fills = atomic_load(&tier->writes) && !tier->writer.full;
    memcpy(stats->warning, tier->warning, sizeof stats->warning);
    memcpy(stats->note, tier->note, sizeof stats->note);
    brim__unlock(&tier->lock);
}

const struct brim__tier_ops brim__file_tier = {
    .name = "file",
    .arena_bytes = arena_bytes,
    .most_bytes = most_bytes,
    .start = start,
    .stop = stop,
    .find = find,
    .done = done,
    .has = has,
    .begin = begin,
    .commit = commit,
    .abandon = abandon,
    .stats = read_stats,
};

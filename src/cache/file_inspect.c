/*
 * file_inspect.c: the public brim_cache_ calls, which inspect cache files.
 *
 * They never change a file; one of them deletes files that are caches. Checking whether a process
 * fills a file takes its lock for a moment, shared. A loader that starts at that moment only reads
 * at first, and tries again a second later.
 */
#include "base/platform.h"
#include "base/progress.h"
#include "base/struct.h"
#include "cache/file_format.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

static brim_status fail_at(const char *path, const char *what, int error) {
    char why[BRIM__ERROR_TEXT];
    return brim__fail(BRIM_STATUS_IO, "%s: cannot be %s: %s", path, what,
                      brim__error_text(error, why));
}

/* Opens a cache file; the caller closes it. */
static brim_status open_cache(const char *path, int flags, int *fd, struct stat *facts,
                              struct brim__cache_header *header, enum brim__cache_kind *kind) {
    if (path == NULL) {
        return brim__fail(BRIM_STATUS_INVALID, "cache: the path is NULL");
    }
    int error = brim__cache_open(path, flags, fd);
    if (error == 0) {
        error = brim__cache_examine(*fd, facts, header, kind);
    }
    brim_status status = BRIM_OK;
    if (error == EISDIR || (error == 0 && S_ISDIR(facts->st_mode))) {
        status = brim__fail(BRIM_STATUS_INVALID,
                            "%s: is a directory: name a cache file in it (*" BRIM__CACHE_SUFFIX ")",
                            path);
    } else if (error != 0) {
        status = fail_at(path, "read", error);
    } else if (*kind == BRIM__CACHE_STRANGER || *kind == BRIM__CACHE_EMPTY) {
        status = brim__fail(BRIM_STATUS_INVALID, "%s: is not a cache file", path);
    }
    if (status != BRIM_OK && *fd >= 0) {
        close(*fd);
    }
    return status;
}

static bool is_locked(int fd) {
    if (flock(fd, LOCK_SH | LOCK_NB) != 0) {
        return errno == EWOULDBLOCK;
    }
    (void)flock(fd, LOCK_UN);
    return false;
}

static brim_status count_filled(const char *path, int fd, uint64_t count, uint64_t *filled) {
    struct brim__cache_walk walk;
    struct brim__cache_entry entry;
    uint64_t number;
    *filled = 0;
    brim__cache_walk_begin(&walk, fd, count);
    while (brim__cache_walk_next(&walk, &number, &entry)) {
        (*filled)++;
    }
    return walk.error == 0 ? BRIM_OK : fail_at(path, "read", walk.error);
}

brim_status brim_cache_read(const char *path, brim_cache_info *given) {
    static const char *const words[] = { "open", "hit", "never", "content" };
    struct brim__cache_header header;
    enum brim__cache_kind kind;
    struct stat facts;
    int fd;
    brim_status status = brim__struct_check("cache info", "BRIM_CACHE_INFO_INIT", given);
    if (status == BRIM_OK) {
        status = path != NULL ? open_cache(path, O_RDONLY, &fd, &facts, &header, &kind)
                              : brim__fail_null("path");
    }
    if (status != BRIM_OK) {
        return status;
    }
    brim_cache_info info = {
        .in_use = is_locked(fd),
        .bytes = brim__cache_disk_bytes(&facts),
        .used_ns = (int64_t)facts.st_mtim.tv_sec * 1000000000 + facts.st_mtim.tv_nsec,
        .verify = "",
    };
    if (kind == BRIM__CACHE_USABLE) {
        info.usable = 1;
        info.samples = header.count;
        info.limit = header.limit;
        info.data_fingerprint = header.data;
        info.sample_fingerprint = header.sample;
        info.created_ns = header.created_ns;
        info.verify = words[header.verify];
        memcpy(info.pipeline, header.pipeline, sizeof info.pipeline);
        status = count_filled(path, fd, header.count, &info.filled);
    }
    close(fd);
    if (status == BRIM_OK) {
        brim__struct_give(given, &info, sizeof info);
    }
    return status;
}

brim_status brim_cache_verify(const char *path, brim_progress_callback *progress,
                              void *progress_user, uint64_t *good, uint64_t *bad) {
    struct brim__cache_header header;
    struct brim__cache_walk walk;
    struct brim__cache_entry entry;
    enum brim__cache_kind kind;
    struct stat facts;
    uint64_t number, counts[2] = { 0, 0 }, reported_ns = 0;
    int fd;
    if (path == NULL) {
        return brim__fail_null("path");
    }
    brim_status status = open_cache(path, O_RDONLY, &fd, &facts, &header, &kind);
    if (status != BRIM_OK) {
        return status;
    }
    if (kind != BRIM__CACHE_USABLE) {
        close(fd);
        return brim__fail(BRIM_STATUS_CORRUPT,
                          "%s: this cache is of another format or byte order, or its header is "
                          "damaged: a loader resets it",
                          path);
    }
    const uint64_t seed = brim__cache_seed(&header), heap = brim__cache_heap(header.count);
    brim__cache_walk_begin(&walk, fd, header.count);
    while (status == BRIM_OK && brim__cache_walk_next(&walk, &number, &entry)) {
        const bool whole = brim__cache_entry_lies(&entry, heap, header.most_bytes) &&
                           brim__cache_is_whole(fd, seed, number, &entry);
        counts[whole]++;
        if (brim__progress_is_due(progress, &reported_ns) &&
            !brim__progress_report(progress, progress_user, "checking the cache", BRIM_UNIT_SAMPLES,
                                   number + 1, header.count)) {
            status =
                brim__fail(BRIM_STATUS_INTERRUPTED, "%s: checking it was stopped at sample %llu",
                           path, (unsigned long long)number);
        }
    }
    close(fd);
    if (status == BRIM_OK && walk.error != 0) {
        status = fail_at(path, "read", walk.error);
    }
    if (good != NULL) {
        *good = counts[true];
    }
    if (bad != NULL) {
        *bad = counts[false];
    }
    return status;
}

/* For writing: network file systems lock nothing else. */
brim_status brim_cache_remove(const char *path) {
    struct brim__cache_header header;
    enum brim__cache_kind kind;
    struct stat facts;
    int fd;
    if (path == NULL) {
        return brim__fail_null("path");
    }
    brim_status status = open_cache(path, O_RDWR, &fd, &facts, &header, &kind);
    if (status != BRIM_OK) {
        return status;
    }
    const int error = brim__cache_lock(fd);
    if (error == EWOULDBLOCK) {
        status = brim__fail(BRIM_STATUS_BUSY,
                            "%s: a process is filling this cache: close its loader first", path);
    } else if (error != 0) {
        status = fail_at(path, "locked", error);
    } else if (!brim__cache_is_at(path, fd)) {
        status = brim__fail(BRIM_STATUS_BUSY, "%s: was replaced just now: try again", path);
    } else if (unlink(path) != 0) {
        status = fail_at(path, "deleted", errno);
    }
    close(fd);
    return status;
}

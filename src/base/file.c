/*
 * file.c: local files, read by position.
 *
 * A file is opened without blocking, so that the name of a pipe cannot hang the program, and then
 * refused unless it is a regular file. Its size is read once, when opening: reads are checked
 * against it. A file that turns out shorter was cut while in use, which is bad data and not a short
 * read.
 *
 * Times of change come from a clock with a grain, so two changes shortly after each other may get
 * the same time. Code that remembers a time to notice a change must check again one grain later, or
 * not trust it. The grain of usual clocks is at most 10 ms. Some file systems store whole seconds,
 * and FAT even seconds only. They are recognized by times without a fraction.
 */
#include "base/file.h"
#include "base/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define GRAIN_NS  20000000            /* of a clock that has fractions of a second, and some more */
#define COARSE_NS INT64_C(2100000000) /* of one that has none */

static const char *kind_of(mode_t mode) {
    if (S_ISDIR(mode)) {
        return "a directory";
    }
    if (S_ISFIFO(mode)) {
        return "a pipe";
    }
    if (S_ISSOCK(mode)) {
        return "a socket";
    }
    return "a device";
}

static int open_once(const char *path) {
    if (brim__fault(BRIM__FAULT_OPEN)) {
        errno = EACCES;
        return -1;
    }
    return open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
}

static int stat_once(int fd, struct stat *facts) {
    if (brim__fault(BRIM__FAULT_OPEN)) {
        errno = EIO;
        return -1;
    }
    return fstat(fd, facts);
}

static int look_once(const char *path, struct stat *facts) {
    if (brim__fault(BRIM__FAULT_OPEN)) {
        errno = EIO;
        return -1;
    }
    return stat(path, facts);
}

static ssize_t read_once(int fd, void *buffer, size_t bytes, uint64_t offset) {
    if (brim__fault(BRIM__FAULT_READ)) {
        errno = EIO;
        return -1;
    }
    return pread(fd, buffer, bytes, (off_t)offset);
}

static int64_t nanoseconds(const struct timespec *time) {
    return (int64_t)time->tv_sec * 1000000000 + time->tv_nsec;
}

brim_status brim__file_open_unnamed(struct brim__file *file, const char *path) {
    char why[BRIM__ERROR_TEXT];
    *file = (struct brim__file){ .fd = -1, .path = path };
    int fd;
    do {
        fd = open_once(path);
    } while (fd < 0 && errno == EINTR);
    if (fd < 0) {
        /* the process or the machine lacks something: the file is not bad */
        const bool shortage = errno == EMFILE || errno == ENFILE || errno == ENOMEM;
        return brim__fail(shortage ? BRIM_STATUS_MEMORY : BRIM_STATUS_IO, "cannot be opened: %s",
                          brim__error_text(errno, why));
    }
    struct stat facts;
    if (stat_once(fd, &facts) != 0) {
        const int error = errno;
        close(fd);
        return brim__fail(BRIM_STATUS_IO, "its size cannot be read: %s",
                          brim__error_text(error, why));
    }
    if (!S_ISREG(facts.st_mode)) {
        close(fd);
        return brim__fail(BRIM_STATUS_IO, "is %s; a regular file is needed",
                          kind_of(facts.st_mode));
    }
    file->fd = fd;
    file->bytes = (uint64_t)facts.st_size;
    file->modified_ns = nanoseconds(&facts.st_mtim);
    file->changed_ns = nanoseconds(&facts.st_ctim);
    file->inode = facts.st_ino;
    file->owner = facts.st_uid;
    file->mode = facts.st_mode;
    return BRIM_OK;
}

brim_status brim__file_open(struct brim__file *file, const char *path) {
    const brim_status status = brim__file_open_unnamed(file, path);
    return status == BRIM_OK ? BRIM_OK
                             : brim__at_source(brim__fail_within(status, "%s", path), path);
}

void brim__file_close(struct brim__file *file) {
    if (file->map != NULL && file->bytes > 0) {
        munmap((void *)file->map, file->bytes);
    }
    file->map = NULL;
    if (file->fd >= 0) {
        close(file->fd);
    }
    file->fd = -1;
}

brim_status brim__file_read(const struct brim__file *file, uint64_t offset, void *buffer,
                            size_t bytes) {
    uint64_t end;
    if (brim__add_overflows(offset, bytes, &end) || end > file->bytes) {
        const brim_status status = brim__fail(
            BRIM_STATUS_CORRUPT,
            "%s: %llu bytes are needed at byte %llu, but the file ends at byte %llu", file->path,
            (unsigned long long)bytes, (unsigned long long)offset, (unsigned long long)file->bytes);
        return brim__at_byte(status, file->path, offset);
    }
    uint8_t *to = buffer;
    while (offset < end) {
        const ssize_t got = read_once(file->fd, to, end - offset, offset);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            char why[BRIM__ERROR_TEXT];
            const brim_status status =
                brim__fail(BRIM_STATUS_IO, "%s: %llu bytes at byte %llu cannot be read: %s",
                           file->path, (unsigned long long)(end - offset),
                           (unsigned long long)offset, brim__error_text(errno, why));
            return brim__at_byte(status, file->path, offset);
        }
        if (got == 0) {
            const brim_status status =
                brim__fail(BRIM_STATUS_CORRUPT,
                           "%s: ends at byte %llu; it had %llu bytes when it was opened, so it "
                           "was cut while in use",
                           file->path, (unsigned long long)offset, (unsigned long long)file->bytes);
            return brim__at_byte(status, file->path, offset);
        }
        to += got;
        offset += (uint64_t)got;
    }
    return BRIM_OK;
}

brim_status brim__file_map(struct brim__file *file) {
    assert(file->fd >= 0 && file->map == NULL);
    if (file->bytes == 0) {
        file->map = (const uint8_t *)""; /* the system maps no empty files */
        return BRIM_OK;
    }
    void *map = MAP_FAILED;
    errno = ENOMEM;
    if (!brim__fault(BRIM__FAULT_MAP)) {
        map = mmap(NULL, file->bytes, PROT_READ, MAP_SHARED, file->fd, 0);
    }
    if (map == MAP_FAILED) {
        char size[BRIM__SIZE_TEXT];
        char why[BRIM__ERROR_TEXT];
        const int error = errno;
        return brim__fail(error == ENOMEM ? BRIM_STATUS_MEMORY : BRIM_STATUS_IO,
                          "%s: cannot be mapped (%s): %s; read it instead (map=no)", file->path,
                          brim__size_text(file->bytes, size), brim__error_text(error, why));
    }
    file->map = map;
    return BRIM_OK;
}

void *brim__file_map_shared(int fd, size_t bytes) {
    if (brim__fault(BRIM__FAULT_MAP)) {
        errno = ENOMEM;
        return NULL;
    }
    void *const memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) {
        return NULL;
    }
    if (madvise(memory, bytes, MADV_DONTFORK) != 0) {
        const int error = errno;
        munmap(memory, bytes);
        errno = error;
        return NULL;
    }
    return memory;
}

void brim__file_unmap_shared(void *memory, size_t bytes) {
    munmap(memory, bytes);
}

void brim__file_advise(const struct brim__file *file, uint64_t offset, size_t bytes) {
    if (bytes == 0 || offset >= file->bytes) { /* 0 would mean: to the end */
        return;
    }
    (void)posix_fadvise(file->fd, (off_t)offset, (off_t)brim__min(bytes, file->bytes - offset),
                        POSIX_FADV_WILLNEED);
}

void brim__file_expect_random(const struct brim__file *file) {
    if (file->map != NULL) {
        (void)madvise((void *)(uintptr_t)file->map, file->bytes, MADV_RANDOM);
    }
}

/* ------------------------------------------------------------------- trust */

/* If a file has an access list, the group's bits are the most that any of its entries allows. */
enum brim__trust brim__trust_of(uint32_t owner, uint32_t mode) {
    if (owner != geteuid() && owner != 0) {
        return BRIM__FOREIGN;
    }
    return (mode & (S_IWGRP | S_IWOTH)) != 0 ? BRIM__EXPOSED : BRIM__TRUSTED;
}

bool brim__file_owner(const char *path, uint32_t *owner, uint32_t *mode) {
    struct stat facts;
    if (lstat(path, &facts) != 0) {
        return false;
    }
    *owner = facts.st_uid;
    *mode = facts.st_mode;
    return true;
}

/* ------------------------------------------------------------------ stamps */

static int64_t clock_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return nanoseconds(&now);
}

bool brim__time_is_sure(const struct timespec *time, bool wait) {
    const int64_t age = clock_now() - nanoseconds(time);
    if (wait && age > -GRAIN_NS && age < GRAIN_NS) {
        const struct timespec rest = { .tv_nsec = GRAIN_NS - age };
        (void)nanosleep(&rest, NULL);
    }
    return time->tv_nsec != 0 || age <= -COARSE_NS || age >= COARSE_NS;
}

static uint64_t hash_facts(uint64_t bytes, int64_t modified_ns, int64_t changed_ns,
                           uint64_t inode) {
    return brim__hash_words(brim__hash_words(bytes, (uint64_t)modified_ns, (uint64_t)changed_ns),
                            inode, 0);
}

/* The path has no file, or none that this user can open. */
static bool is_lack(int error) {
    return error == ENOENT || error == ENOTDIR || error == ELOOP || error == EACCES ||
           error == ENAMETOOLONG;
}

brim_status brim__file_stamp(const char *path, bool may_lack, uint64_t *stamp) {
    struct stat facts;
    if (look_once(path, &facts) != 0) {
        const int error = errno;
        char why[BRIM__ERROR_TEXT];
        *stamp = 0;
        return may_lack && is_lack(error) ? BRIM_OK
                                          : brim__fail(BRIM_STATUS_IO, "%s: cannot be examined: %s",
                                                       path, brim__error_text(error, why));
    }
    *stamp = hash_facts((uint64_t)facts.st_size, nanoseconds(&facts.st_mtim),
                        nanoseconds(&facts.st_ctim), facts.st_ino);
    if (!brim__time_is_sure(&facts.st_ctim, true)) {
        *stamp = brim__hash_words(*stamp, (uint64_t)clock_now(), 1);
    }
    return BRIM_OK;
}

uint64_t brim__file_opened_stamp(const struct brim__file *file) {
    return hash_facts(file->bytes, file->modified_ns, file->changed_ns, file->inode);
}

/*
 * file.c: local files, read by position.
 *
 * A file is opened without blocking, so that the name of a pipe cannot hang
 * the program, and then refused unless it is a regular file. Its size is taken
 * once, when opening: reads are checked against it, and a file that turns out
 * shorter was cut while in use, which is bad data and not a short read.
 */
#include "base/file.h"
#include "base/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

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
        errno = EMFILE;
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

static ssize_t read_once(int fd, void *buffer, size_t bytes, uint64_t offset) {
    if (brim__fault(BRIM__FAULT_READ)) {
        errno = EIO;
        return -1;
    }
    return pread(fd, buffer, bytes, (off_t)offset);
}

brim_status brim__file_open(struct brim__file *file, const char *path) {
    char why[BRIM__ERROR_TEXT];
    *file = (struct brim__file){ .fd = -1, .path = path };
    int fd;
    do {
        fd = open_once(path);
    } while (fd < 0 && errno == EINTR);
    if (fd < 0) {
        return brim__fail(BRIM_IO, "%s: cannot be opened: %s", path, brim__error_text(errno, why));
    }
    struct stat facts;
    if (stat_once(fd, &facts) != 0) {
        const int error = errno;
        close(fd);
        return brim__fail(BRIM_IO, "%s: its size cannot be read: %s", path,
                          brim__error_text(error, why));
    }
    if (!S_ISREG(facts.st_mode)) {
        close(fd);
        return brim__fail(BRIM_IO, "%s: is %s; a regular file is needed", path,
                          kind_of(facts.st_mode));
    }
    file->fd = fd;
    file->bytes = (uint64_t)facts.st_size;
    file->modified_ns = (int64_t)facts.st_mtim.tv_sec * 1000000000 + facts.st_mtim.tv_nsec;
    file->inode = facts.st_ino;
    return BRIM_OK;
}

void brim__file_close(struct brim__file *file) {
    if (file->map && file->bytes > 0) {
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
        return brim__fail(BRIM_CORRUPT,
                          "%s: %llu bytes are needed at byte %llu, but the file ends at byte %llu",
                          file->path, (unsigned long long)bytes, (unsigned long long)offset,
                          (unsigned long long)file->bytes);
    }
    uint8_t *to = buffer;
    while (offset < end) {
        const ssize_t got = read_once(file->fd, to, end - offset, offset);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            char why[BRIM__ERROR_TEXT];
            return brim__fail(BRIM_IO, "%s: %llu bytes at byte %llu cannot be read: %s", file->path,
                              (unsigned long long)(end - offset), (unsigned long long)offset,
                              brim__error_text(errno, why));
        }
        if (got == 0) {
            return brim__fail(BRIM_CORRUPT,
                              "%s: ends at byte %llu; it had %llu bytes when it was opened, so it "
                              "was cut while in use",
                              file->path, (unsigned long long)offset,
                              (unsigned long long)file->bytes);
        }
        to += got;
        offset += (uint64_t)got;
    }
    return BRIM_OK;
}

brim_status brim__file_map(struct brim__file *file) {
    assert(file->fd >= 0 && !file->map);
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
        return brim__fail(error == ENOMEM ? BRIM_MEMORY : BRIM_IO,
                          "%s: cannot be mapped (%s): %s; read it instead (map=no)", file->path,
                          brim__size_text(file->bytes, size), brim__error_text(error, why));
    }
    file->map = map;
    return BRIM_OK;
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
